"""Put, Merge and Remove: all or nothing, one Change for each thing that changed."""

import asyncio
from typing import Any

import pytest
from tests.contract.shelf import fill, ids

from portico.catalog import Collection
from portico.errors import AlreadyExists, InvalidParams, SiteError, UnknownItem, VersionMismatch
from portico.items import Item
from portico.query import MATCH_ALL, condition
from portico.store import Store
from portico.store.records import CallSettlement, CommitResult, Merge, Put, Remove, Write


async def test_what_was_put_is_got(store: Store) -> None:
    (change,) = await fill(store, {"a": {"name": "soup", "deep": {"list": [1, 2.5, None, True, "x"]}}})

    assert await store.items.get("things", "a") == change.item
    assert change.item == Item(
        "a", "things", {"name": "soup", "deep": {"list": [1, 2.5, None, True, "x"]}}, change.item.version
    )
    assert (change.seq, change.kind, change.patch) == (1, "create", ())


async def test_what_is_not_there_is_none(store: Store) -> None:
    await fill(store, {"a": {"n": 1}, "b": {"n": 2}})

    assert await store.items.get("things", "c") is None
    assert list(await store.items.get_many("things", ["b", "c", "b"])) == ["b"]
    assert await store.items.get_many("things", []) == {}


async def test_a_second_put_replaces_the_whole_item_and_says_what_changed(store: Store) -> None:
    (first,) = await fill(store, {"a": {"n": 1, "gone": True}})

    (second,) = await store.items.write("things", [Put("a", {"n": 2, "new": "x"})])

    assert second.kind == "update"
    assert second.item.data == {"n": 2, "new": "x"}
    assert second.patch == (
        {"op": "remove", "path": "/gone"},
        {"op": "replace", "path": "/n", "value": 2},
        {"op": "add", "path": "/new", "value": "x"},
    )
    assert second.item.version != first.item.version
    assert second.seq > first.seq


async def test_a_merge_changes_what_it_names_and_null_removes(store: Store) -> None:
    await fill(store, {"a": {"n": 1, "o": {"x": 1, "y": 2}, "gone": 1, "list": [1, 2]}})

    (change,) = await store.items.write("things", [Merge("a", {"o": {"y": 3}, "gone": None, "list": [9]})])

    assert change.item.data == {"n": 1, "o": {"x": 1, "y": 3}, "list": [9]}
    assert await store.items.get("things", "a") == change.item


async def test_a_removal_carries_the_item_as_it_last_was(store: Store) -> None:
    (created,) = await fill(store, {"a": {"n": 1}})

    (removed,) = await store.items.write("things", [Remove("a")])

    assert (removed.kind, removed.item) == ("delete", created.item)
    assert await store.items.get("things", "a") is None
    assert await store.items.count("things", MATCH_ALL) == 0


@pytest.mark.parametrize("write", [Merge("a", {"n": 1}), Remove("a")])
async def test_merging_or_removing_what_is_not_there_is_refused(store: Store, write: Any) -> None:
    await store.collections.declare(Collection("things"))

    with pytest.raises(UnknownItem) as refusal:
        await store.items.write("things", [write])

    assert refusal.value.details == {"collection": "things", "id": "a"}


@pytest.mark.parametrize("write", [Put("a", {"o": {"y": 2, "x": 1}}), Merge("a", {"o": {"x": 1}}), Merge("a", {})])
async def test_a_write_that_changes_nothing_gives_no_change_and_no_new_version(store: Store, write: Any) -> None:
    (created,) = await fill(store, {"a": {"o": {"x": 1, "y": 2}}})

    assert await store.items.write("things", [write]) == []
    assert await store.items.get("things", "a") == created.item
    assert await store.changes.head() == created.seq


async def test_no_writes_give_no_changes(store: Store) -> None:
    await store.collections.declare(Collection("things"))

    assert await store.items.write("things", []) == []


@pytest.mark.parametrize(("old", "new"), [(1, 1.0), (1, True), ("1", 1), ([1], [1.0]), ([{"a": 1}], [{"a": True}])])
async def test_a_change_of_kind_is_a_change_and_its_patch_says_so(store: Store, old: Any, new: Any) -> None:
    await fill(store, {"a": {"v": old}})

    (change,) = await store.items.write("things", [Put("a", {"v": new})])

    assert change.patch == ({"op": "replace", "path": "/v", "value": new},)
    assert [type(change.patch[0]["value"])] == [type(new)]


async def test_a_put_that_expects_the_present_version_succeeds_once(store: Store) -> None:
    (created,) = await fill(store, {"a": {"n": 1}})
    version = created.item.version

    (changed,) = await store.items.write("things", [Put("a", {"n": 2}, expect=version)])

    for late in (Put("a", {"n": 3}, version), Merge("a", {"n": 3}, version), Remove("a", version)):
        with pytest.raises(VersionMismatch) as refusal:
            await store.items.write("things", [late])
        assert refusal.value.details == {"id": "a", "expected": version, "actual": changed.item.version}
    assert await store.items.get("things", "a") == changed.item


async def test_a_version_of_what_is_gone_does_not_match(store: Store) -> None:
    (created,) = await fill(store, {"a": {"n": 1}})
    await store.items.write("things", [Remove("a")])

    with pytest.raises(VersionMismatch) as refusal:
        await store.items.write("things", [Put("a", {"n": 2}, expect=created.item.version)])

    assert refusal.value.details["actual"] is None


async def test_an_empty_expectation_means_that_it_must_be_new(store: Store) -> None:
    await store.collections.declare(Collection("things"))
    await store.items.write("things", [Put("a", {"n": 1}, expect="")])

    with pytest.raises(AlreadyExists):
        await store.items.write("things", [Put("a", {"n": 2}, expect="")])

    item = await store.items.get("things", "a")
    assert item is not None
    assert item.data == {"n": 1}


@pytest.mark.parametrize(
    "bad", [Remove("nobody"), Put("a", {"n": 5}, expect="9-x"), Put("", {"n": 1}), Put("z", {"t": "a\0b"})]
)
async def test_one_refused_write_undoes_the_batch(store: Store, bad: Any) -> None:
    (created,) = await fill(store, {"a": {"n": 1}})
    before = dict(store.collections.schema)

    with pytest.raises(SiteError):
        await store.items.write("things", [Put("b", {"fresh": 1}), Merge("a", {"n": 2}), bad])

    assert await store.items.get_many("things", ["a", "b"]) == {"a": created.item}
    assert await store.changes.head() == created.seq
    assert await store.changes.list_since(created.seq) == []
    assert await store.collections.refresh() == before


async def test_a_field_is_learnt_again_after_a_batch_that_failed(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})
    with pytest.raises(UnknownItem):
        await store.items.write("things", [Put("b", {"fresh": "text"}), Remove("nobody")])

    await store.items.write("things", [Put("b", {"fresh": 7})])

    assert await ids(store, {"fresh": 7}) == ["b"]


async def test_writes_of_one_batch_build_on_each_other(store: Store) -> None:
    await store.collections.declare(Collection("things"))

    changes = await store.items.write(
        "things", [Put("a", {"n": 1}), Merge("a", {"m": 2}), Remove("a"), Put("a", {"n": 9}), Put("a", {"n": 9})]
    )

    assert [change.kind for change in changes] == ["create", "update", "delete", "create"]
    item = await store.items.get("things", "a")
    assert item is not None
    assert item.data == {"n": 9}


async def test_of_many_that_expect_the_same_version_one_wins(store: Store) -> None:
    (created,) = await fill(store, {"a": {"n": 0}})

    outcomes = await asyncio.gather(
        *(store.items.write("things", [Put("a", {"n": n}, created.item.version)]) for n in range(1, 9)),
        return_exceptions=True,
    )

    won = [outcome for outcome in outcomes if isinstance(outcome, list)]
    assert len(won) == 1
    assert sum(isinstance(outcome, VersionMismatch) for outcome in outcomes) == 7
    assert await store.items.get("things", "a") == won[0][0].item


async def test_concurrent_merges_lose_nothing(store: Store) -> None:
    await fill(store, {"a": {}})

    await asyncio.gather(*(store.items.write("things", [Merge("a", {f"k{n}": n})]) for n in range(20)))

    item = await store.items.get("things", "a")
    assert item is not None
    assert item.data == {f"k{n}": n for n in range(20)}
    assert [await ids(store, {f"k{n}": n}) for n in range(20)] == [["a"]] * 20


async def test_readers_see_a_batch_whole_or_not_at_all(store: Store) -> None:
    names = [f"i{n}" for n in range(10)]
    await fill(store, {name: {"round": 0} for name in names})
    done = asyncio.Event()

    async def read() -> set[int]:
        seen: set[int] = set()
        while not done.is_set():
            found = await store.items.get_many("things", names)
            rounds = {item.data["round"] for item in found.values()}
            assert (len(found), len(rounds)) == (10, 1)
            seen |= rounds
        return seen

    async def write() -> None:
        for number in range(1, 30):
            await store.items.write("things", [Put(name, {"round": number}) for name in names])
        done.set()

    *_, seen = await asyncio.gather(write(), read(), read(), read())
    assert max(seen) <= 29


async def test_fields_learnt_while_others_read_keep_their_values(store: Store) -> None:
    await fill(store, {"a0": {"f0": 0}})
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            assert await ids(store, {"f0": 0}) == ["a0"]
            await store.collections.refresh()

    async def write() -> None:
        for number in range(1, 30):
            await store.items.write("things", [Put(f"a{number}", {f"f{number}": number})])
        done.set()

    await asyncio.gather(write(), *(read() for _ in range(3)))

    assert [await ids(store, {f"f{n}": n}) for n in range(30)] == [[f"a{n}"] for n in range(30)]
    assert list(store.collections.schema["things"].fields) == [f"f{n}" for n in range(30)]


async def test_a_field_is_known_as_soon_as_its_write_is_acknowledged(backend: Store) -> None:
    await fill(backend, {"a0": {"f0": 0}})
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            await ids(backend, {"f0": 0})

    async def write() -> list[str]:
        unknown: list[str] = []
        for number in range(1, 60):
            await backend.items.write("things", [Put(f"a{number}", {f"f{number}": number})])
            if f"f{number}" not in backend.collections.schema["things"].fields:
                unknown.append(f"f{number}")
        done.set()
        return unknown

    unknown, *_ = await asyncio.gather(write(), *(read() for _ in range(4)))

    assert unknown == []


HOSTILE = [
    "'; DROP TABLE items_1; --",
    'a"b',
    "a'b",
    "a\\b",
    "100%",
    "_",
    "\x01",
    "a\nb",
    "日本語",
    "🦊",
    "e\u0301",
    "\u202e",
    " ",
    "\\u0041",
    "null",
    "x" * 1024,
]


@pytest.mark.parametrize("id", HOSTILE)
async def test_any_text_may_be_an_id(backend: Store, id: str) -> None:
    await fill(backend, {id: {"n": 1}, "other": {"n": 1}})

    item = await backend.items.get("things", id)

    assert item is not None
    assert item.id == id
    assert await ids(backend, {"id": id}) == [id]
    await backend.items.write("things", [Remove(id)])
    assert await ids(backend, {"n": 1}) == ["other"]


@pytest.mark.parametrize("text", HOSTILE)
async def test_any_text_may_be_a_value_at_the_top_and_below(backend: Store, text: str) -> None:
    await fill(backend, {"a": {"t": text, "o": {"t": text}, "l": [text]}, "b": {"t": "?", "o": {"t": "?"}}})

    for where in ({"t": text}, {"o.t": text}, {"l": text}, {"l": {"$contains": text}}, {"t": {"$in": [text]}}):
        assert await ids(backend, where) == ["a"]
    item = await backend.items.get("things", "a")
    assert item is not None
    assert item.data == {"t": text, "o": {"t": text}, "l": [text]}


@pytest.mark.parametrize("key", [*HOSTILE[:-1], "a.b", "$.x", "a[0]", "", "x" * 2000])
async def test_any_text_may_be_a_key_of_the_data(backend: Store, key: str) -> None:
    await fill(backend, {"a": {key: 1, "o": {key: 2}, "fine": 1}})

    item = await backend.items.get("things", "a")

    assert item is not None
    assert item.data == {key: 1, "o": {key: 2}, "fine": 1}
    assert await ids(backend, {"fine": 1}) == ["a"]


@pytest.mark.parametrize(
    "name", ["select", "order", "@id", "$ref", "schema:name", "a-b", "ключ", "値", "rowid", "data"]
)
async def test_unusual_names_of_fields_are_just_names(backend: Store, name: str) -> None:
    await fill(backend, {"a": {name: 1, "o": {name: "x"}}, "b": {name: 2, "o": {name: "y"}}})

    assert await ids(backend, condition(name, "gt", 1)) == ["b"]
    assert await ids(backend, condition(f"o.{name}", "eq", "x")) == ["a"]


@pytest.mark.parametrize(
    "number", [2**53 + 1, 2**63 - 1, -(2**63) + 1, 2**63, 10**25, 1e308, 5e-324, -0.0, 0.1 + 0.2, 1.5e15 + 0.3]
)
async def test_numbers_of_any_size_come_back_and_are_found(backend: Store, number: float) -> None:
    await fill(backend, {"a": {"n": number, "o": {"n": number}, "l": [number]}, "b": {"n": 7, "o": {"n": 7}}})

    item = await backend.items.get("things", "a")

    assert item is not None
    assert item.data == {"n": number, "o": {"n": number}, "l": [number]}
    for path in ("n", "o.n", "l"):
        assert await ids(backend, {path: number}) == ["a"]


@pytest.mark.parametrize(
    "data",
    [
        {"t": "a\0b"},
        {"a\0b": 1},
        {"o": {"a\0": 1}},
        {"t": "\ud800"},
        {"\udfff": 1},
        {"n": float("nan")},
        {"n": float("inf")},
        {"o": {"n": [float("-inf")]}},
        {"n": 10**400},
        {"b": object()},
    ],
    ids=lambda data: repr(data)[:20],
)
async def test_data_that_is_not_json_is_refused_and_nothing_is_kept(backend: Store, data: Any) -> None:
    await backend.collections.declare(Collection("things"))

    with pytest.raises(InvalidParams):
        await backend.items.write("things", [Put("a", data)])

    assert await backend.items.get("things", "a") is None
    assert await backend.collections.refresh() == {"things": Collection("things")}


@pytest.mark.parametrize("id", ["", "x" * 1025, "a\0b", "\ud800"], ids=ascii)
async def test_an_id_that_cannot_be_kept_is_refused(store: Store, id: str) -> None:
    await store.collections.declare(Collection("things"))

    with pytest.raises(InvalidParams):
        await store.items.write("things", [Put(id, {"n": 1})])


@pytest.mark.parametrize("id", ["a\0b", "\ud800", ""], ids=ascii)
async def test_asking_for_an_id_that_cannot_exist_finds_nothing(store: Store, id: str) -> None:
    await fill(store, {"a": {"n": 1}})

    assert await store.items.get("things", id) is None


async def test_a_text_that_spells_out_an_escape_is_only_a_text(store: Store) -> None:
    await fill(store, {"a": {"t": "write \\u0000 for NUL"}})

    item = await store.items.get("things", "a")

    assert item is not None
    assert item.data == {"t": "write \\u0000 for NUL"}


async def test_the_change_holds_what_a_later_read_gives(store: Store) -> None:
    (change,) = await fill(store, {"a": {"n": 1, "o": {"x": [1, 2.0, None]}}})

    assert [change] == await store.changes.list_since(0)
    assert change.item == await store.items.get("things", "a")


async def test_an_item_of_many_short_texts_is_kept_and_found(store: Store) -> None:
    data = {f"t{n}": f"a short text, number {n}" for n in range(900)}
    await fill(store, {"other": {"t0": "else", "t899": "else"}})

    await store.items.write("things", [Put("wide", data)])
    await store.items.write("things", [Merge("wide", {"t899": "new"})])

    item = await store.items.get("things", "wide")
    assert item is not None
    assert item.data == {**data, "t899": "new"}
    for name, value in (("t0", "a short text, number 0"), ("t450", "a short text, number 450"), ("t899", "new")):
        assert await ids(store, {name: value}) == ["wide"]


async def test_a_commit_to_several_collections_is_made_whole_or_not_at_all(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})
    await store.collections.declare(Collection("others"))
    head = await store.changes.head()
    good: list[tuple[str, Write]] = [("others", Put("o", {"new": "field"})), ("things", Merge("a", {"n": 2}))]

    with pytest.raises(AlreadyExists):
        await store.items.commit([*good, ("things", Put("a", {}, expect=""))])

    assert await store.changes.head() == head
    assert await store.items.get("others", "o") is None
    assert (await got(store, "a")).data == {"n": 1}

    committed = await store.items.commit([*good, ("things", Remove("a"))])

    assert committed is not None
    assert [item.data for item in committed.items] == [{"new": "field"}, {"n": 2}, {"n": 2}]
    assert [change.kind for change in committed.changes] == ["create", "update", "delete"]
    assert [change.seq for change in await store.changes.list_since(head)] == [
        change.seq for change in committed.changes
    ]


async def test_a_commit_tells_of_every_write_what_it_leaves_also_if_nothing_changed(store: Store) -> None:
    (first,) = await fill(store, {"a": {"n": 1}})

    committed = await store.items.commit([("things", Merge("a", {"n": 1}))])

    assert committed == CommitResult([], [first.item])


async def test_what_cannot_be_settled_is_not_written(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})

    def refuse(_: object) -> CallSettlement:
        raise InvalidParams("no")

    with pytest.raises(InvalidParams):
        await store.items.commit([("things", Put("a", {"n": 2}))], refuse)

    assert (await got(store, "a")).data == {"n": 1}


async def got(store: Store, id: str) -> Item:
    item = await store.items.get("things", id)
    assert item is not None
    return item
