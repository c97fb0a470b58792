"""Loading a source again and again: what is new, what changed, what went."""

import pytest
from tests.contract.shelf import fill, ids

from portico.catalog import Collection
from portico.errors import ConfigError, InvalidParams, SiteError
from portico.query import MATCH_ALL
from portico.store import Store
from portico.store.records import LoadResult, Put


def puts(**numbers: int) -> list[Put]:
    return [Put(id, {"n": n}) for id, n in numbers.items()]


async def load(store: Store, source: str, *batches: list[Put]) -> tuple[list[LoadResult], int]:
    run = await store.loads.begin(source)
    written = [await store.loads.put(run, "things", batch) for batch in batches]
    return written, await store.loads.finish(run)


async def test_a_first_load_adds_everything_and_makes_the_collection(store: Store) -> None:
    assert await load(store, "file:a", puts(a=1, b=2), puts(c=3)) == ([LoadResult(added=2), LoadResult(added=1)], 0)

    assert await ids(store, {}) == ["a", "b", "c"]
    assert [change.kind for change in await store.changes.list_since(0)] == ["create"] * 3


async def test_a_second_load_says_what_changed_and_forgets_what_is_gone(store: Store) -> None:
    await load(store, "file:a", puts(a=1, b=2, c=3))
    head = await store.changes.head()

    assert await load(store, "file:a", puts(a=1, b=20, d=4)) == ([LoadResult(added=1, changed=1, unchanged=1)], 1)

    assert [(change.kind, change.item.id) for change in await store.changes.list_since(head)] == [
        ("update", "b"),
        ("create", "d"),
        ("delete", "c"),
    ]


async def test_a_load_of_nothing_new_leaves_no_trace_in_the_feed(store: Store) -> None:
    await load(store, "file:a", puts(a=1))
    head = await store.changes.head()

    assert await load(store, "file:a", puts(a=1)) == ([LoadResult(unchanged=1)], 0)
    assert await store.changes.head() == head


@pytest.mark.parametrize("batches", [[puts(a=1), [Put("a", {"n": 2})]], [[Put("a", {"n": 1}), Put("a", {"n": 2})]]])
async def test_an_id_given_twice_with_other_data_is_refused_and_the_first_stays(
    store: Store, batches: list[list[Put]]
) -> None:
    written, _ = await load(store, "file:a", *batches)

    assert written[-1].repeated == ("a",)
    assert await ids(store, {"n": 1}) == ["a"]


async def test_only_items_of_the_same_source_are_forgotten(store: Store) -> None:
    await load(store, "file:a", puts(a=1, b=2))
    await load(store, "file:b", puts(c=3))
    await fill(store, {"own": {"n": 9}})

    assert await load(store, "file:a", puts(b=2)) == ([LoadResult(unchanged=1)], 1)

    assert await ids(store, {}) == ["b", "c", "own"]


async def test_an_item_that_two_sources_give_stays_with_the_last(store: Store) -> None:
    await load(store, "file:a", puts(a=1))
    await load(store, "file:b", puts(a=1))

    assert await load(store, "file:a", puts(z=1)) == ([LoadResult(added=1)], 0)
    assert await ids(store, {}) == ["a", "z"]


async def test_many_vanished_items_are_all_forgotten(store: Store) -> None:
    await load(store, "file:a", [Put(f"i{n}", {"n": n}) for n in range(1300)])

    assert (await load(store, "file:a", puts(i5=5)))[1] == 1299
    assert await store.items.count("things", MATCH_ALL) == 1


async def test_a_load_may_spread_over_collections(store: Store) -> None:
    for wanted, gone in (({"left": puts(a=1, b=2), "right": puts(a=1)}, 0), ({"left": puts(b=2)}, 2)):
        run = await store.loads.begin("file:a")
        for name, batch in wanted.items():
            await store.loads.put(run, name, batch)
        assert await store.loads.finish(run) == gone

    assert (await ids(store, {}, "left"), await ids(store, {}, "right")) == (["b"], [])


async def test_an_abandoned_load_forgets_nothing_and_the_next_one_starts_anew(store: Store) -> None:
    await load(store, "file:a", puts(a=1, b=2, c=3))
    abandoned = await store.loads.begin("file:a")
    await store.loads.put(abandoned, "things", puts(a=1, d=4))
    assert await ids(store, {}) == ["a", "b", "c", "d"]

    assert await load(store, "file:a", puts(b=2, d=5)) == ([LoadResult(changed=1, unchanged=1)], 2)

    assert await ids(store, {}) == ["b", "d"]


async def test_a_load_that_another_one_overtook_cannot_forget_what_it_gave(store: Store) -> None:
    slow = await store.loads.begin("file:a")
    await store.loads.put(slow, "things", puts(a=1, b=2))
    fast = await store.loads.begin("file:a")
    await store.loads.put(fast, "things", puts(a=1, b=2, c=3))
    await store.loads.finish(fast)

    for late in (lambda: store.loads.put(slow, "things", puts(d=4)), lambda: store.loads.finish(slow)):
        try:
            await late()
        except SiteError:
            continue

    assert {"a", "b", "c"} <= set(await ids(store, {}))


async def test_a_batch_with_an_item_that_cannot_be_kept_changes_nothing(store: Store) -> None:
    await store.collections.declare(Collection("things"))
    run = await store.loads.begin("file:a")

    with pytest.raises(InvalidParams):
        await store.loads.put(run, "things", [*puts(a=1), Put("b", {"t": "\0"})])

    assert await ids(store, {}) == []
    assert store.collections.schema["things"] == Collection("things")


async def test_a_load_into_what_cannot_be_a_collection_is_refused(store: Store) -> None:
    run = await store.loads.begin("file:a")
    with pytest.raises(ConfigError):
        await store.loads.put(run, "no such name", puts(a=1))

    assert list(await store.collections.refresh()) == []


async def test_loaded_data_teaches_the_schema(store: Store) -> None:
    await load(store, "file:a", [Put("a", {"n": 1}), Put("b", {"n": 1.5, "t": "x"})], [Put("c", {"t": 5})])

    assert {f.name: str(f.type) for f in store.collections.schema["things"].fields.values()} == {
        "n": "number",
        "t": "any",
    }
