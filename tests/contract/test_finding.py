"""Filters, orders, projections and counts: the same answers from every store."""

from typing import Any

import pytest
from tests.contract.shelf import fill, ids

from portico.catalog import Collection, Field, FieldType
from portico.errors import BadRequest, InvalidQuery, UnknownField
from portico.query import MATCH_ALL, And, Condition, Not, Or, Order, Query, condition, parse_filter
from portico.store import Store
from portico.store.records import Put

SHELF: dict[str, dict[str, Any]] = {
    "a": {"s": "apple", "i": 1, "f": 0.5, "b": True, "t": "2024-01-01", "d": "PT10M", "tags": ["x", "y"]},
    "b": {"s": "banana", "i": 2, "f": 1.5, "b": False, "t": "2024-01-01T01:00:00+01:00", "d": "PT1H", "tags": []},
    "c": {"s": "cherry", "i": 3, "f": 2.0, "b": True, "t": "2024-06-01T12:00:00.5Z", "d": "PT90S", "tags": ["y", 3]},
    "d": {"s": None, "i": None, "f": None, "b": None, "t": None, "d": None, "tags": None},
    "e": {},
}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"s": "apple"}, "a"),
        ({"s": {"$eq": None}}, "de"),
        ({"s": {"$ne": "apple"}}, "bcde"),
        ({"s": {"$ne": None}}, "abc"),
        ({"s": {"$gt": "apple"}}, "bc"),
        ({"s": {"$lte": "banana"}}, "ab"),
        ({"s": {"$in": ["apple", "cherry", "nope"]}}, "ac"),
        ({"s": {"$in": ["apple", None]}}, "ade"),
        ({"s": {"$in": []}}, ""),
        ({"s": {"$nin": ["apple", "cherry"]}}, "bde"),
        ({"s": {"$nin": []}}, "abcde"),
        ({"s": {"$contains": "an"}}, "b"),
        ({"s": {"$contains": ""}}, "abc"),
        ({"s": {"$contains": 1}}, ""),
        ({"s": {"$regex": "^[ab].*a?$"}}, "ab"),
        ({"s": {"$regex": "(?i)CHERRY"}}, "c"),
        ({"s": {"$between": ["b", "c"]}}, "b"),
        ({"s": {"$exists": True}}, "abc"),
        ({"s": {"$exists": False}}, "de"),
        ({"s": 1}, ""),
        ({"s": {"$lt": 99}}, ""),
        ({"i": 1}, "a"),
        ({"i": 1.0}, "a"),
        ({"i": True}, ""),
        ({"i": "1"}, ""),
        ({"i": {"$ne": True}}, "abcde"),
        ({"i": {"$lt": 2.5}}, "ab"),
        ({"i": {"$gte": 2}}, "bc"),
        ({"i": {"$between": [2, 9]}}, "bc"),
        ({"i": {"$between": [None, 9]}}, ""),
        ({"i": {"$gt": None}}, ""),
        ({"i": {"$contains": 1}}, ""),
        ({"i": {"$regex": "1"}}, ""),
        ({"i": {"$lt": 10**30}}, "abc"),
        ({"f": 2}, "c"),
        ({"f": {"$in": [2, 0.5]}}, "ac"),
        ({"b": True}, "ac"),
        ({"b": 1}, ""),
        ({"b": {"$ne": True}}, "bde"),
        ({"b": {"$lt": True}}, "b"),
        ({"t": "2024-01-01T00:00:00Z"}, "ab"),
        ({"t": {"$gt": "2024-01-01"}}, "c"),
        ({"t": {"$lte": "2024-06-01T14:00:00.5+02:00"}}, "abc"),
        ({"t": {"$gt": "not a time"}}, ""),
        ({"t": {"$contains": "06-01T12"}}, "c"),
        ({"t": {"$regex": "^2024-01-01$"}}, "a"),
        ({"d": "PT60M"}, "b"),
        ({"d": {"$lt": "PT10M"}}, "c"),
        ({"d": {"$between": ["PT90S", "PT600S"]}}, "ac"),
        ({"d": {"$contains": "90"}}, "c"),
        ({"tags": "y"}, "ac"),
        ({"tags": {"$contains": "x"}}, "a"),
        ({"tags": {"$contains": 3}}, "c"),
        ({"tags": {"$contains": "3"}}, ""),
        ({"tags": {"$exists": True}}, "abc"),
        ({"tags": {"$eq": None}}, "de"),
        ({"tags": {"$ne": "y"}}, "bde"),
        ({"tags": {"$gt": 2}}, "c"),
        ({"tags": {"$regex": "^x"}}, "a"),
        ({"id": "c"}, "c"),
        ({"id": {"$gte": "c"}}, "cde"),
        ({"id": {"$in": ["a", "zzz"]}}, "a"),
        ({"id": {"$regex": "[bd]"}}, "bd"),
        ({"id": {"$exists": True}}, "abcde"),
        ({"id": {"$eq": None}}, ""),
        ({"id": 1}, ""),
        ({}, "abcde"),
        ({"$or": []}, ""),
        ({"$and": []}, "abcde"),
        ({"i": {"$gte": 1, "$lt": 3}}, "ab"),
        ({"$or": [{"i": 1}, {"s": "cherry"}]}, "ac"),
        ({"$and": [{"b": True}, {"i": {"$gt": 1}}]}, "c"),
        ({"$not": {"i": {"$gt": 1}}}, "ade"),
        ({"$not": {"i": {"$ne": 1}}}, "a"),
        ({"$not": {"$or": [{"i": 1}, {"s": {"$exists": False}}]}}, "bc"),
        ({"$not": {"$not": {"i": 1}}}, "a"),
        ({"$not": {}}, ""),
        ({"$not": {"s": {"$contains": "an"}}}, "acde"),
        ({"$not": {"s": {"$regex": "."}}}, "de"),
        ({"$not": {"i": {"$between": [1, 2]}}}, "cde"),
        ({"$not": {"tags": {"$contains": "y"}}}, "bde"),
    ],
    ids=str,
)
async def test_a_filter_finds_exactly_what_it_says(backend: Store, where: dict[str, Any], found: str) -> None:
    await fill(backend, SHELF)

    assert await ids(backend, where) == list(found)
    assert sorted(await backend.items.list_ids("things", parse_filter(where))) == list(found)
    assert await backend.items.count("things", parse_filter(where)) == len(found)


NESTED: dict[str, dict[str, Any]] = {
    "a": {"offers": {"price": 10, "by": "x"}},
    "b": {"offers": [{"price": 5, "by": "y"}, {"price": 30, "by": None}]},
    "c": {"offers": [{"price": "10"}, {"price": None}, 7, None, [{"price": 99}]]},
    "d": {"offers": []},
    "e": {"offers": None},
    "f": {"offers": {"price": [1, [2], {"deep": 3}], "by": {"name": "z"}}},
    "g": {"offers": "10"},
}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"offers.price": 10}, "a"),
        ({"offers.price": "10"}, "c"),
        ({"offers.price": {"$gt": 20}}, "b"),
        ({"offers.price": {"$lt": 6}}, "bf"),
        ({"offers.price": {"$between": [6, 29]}}, "a"),
        ({"offers.price": {"$exists": True}}, "abcf"),
        ({"offers.price": {"$exists": False}}, "deg"),
        ({"offers.price": None}, "cdeg"),
        ({"offers.price": {"$ne": None}}, "abf"),
        ({"offers.price": {"$ne": 10}}, "bcdefg"),
        ({"offers.price": {"$in": [30, 1]}}, "bf"),
        ({"offers.price": {"$nin": [30, None]}}, "af"),
        ({"offers.price": {"$contains": 1}}, "f"),
        ({"offers.price": {"$contains": "1"}}, "c"),
        ({"offers.price": {"$regex": "^1"}}, "c"),
        ({"offers.price.deep": 3}, "f"),
        ({"offers.by": None}, "bcdeg"),
        ({"offers.by": "y"}, "b"),
        ({"offers.by.name": "z"}, "f"),
        ({"offers.by.name.none": {"$exists": False}}, "abcdefg"),
        ({"offers": 7}, "c"),
        ({"offers": None}, "ce"),
        ({"offers": "10"}, "g"),
        ({"offers": {"$exists": True}}, "abcdfg"),
        ({"$not": {"offers.price": {"$gt": 6}}}, "cdefg"),
    ],
    ids=str,
)
async def test_a_path_reaches_through_objects_and_arrays_of_objects(
    backend: Store, where: dict[str, Any], found: str
) -> None:
    await fill(backend, NESTED)

    assert await ids(backend, where) == list(found)


async def test_conditions_on_one_array_may_hold_for_different_elements(backend: Store) -> None:
    await fill(backend, NESTED)

    assert await ids(backend, {"offers.price": {"$gt": 20, "$lt": 6}}) == ["b"]
    assert await ids(backend, {"offers.price": {"$between": [6, 20]}}) == ["a"]


async def test_an_id_in_the_data_does_not_stand_in_for_the_id_of_the_item(backend: Store) -> None:
    await fill(backend, {"one": {"id": 1}, "two": {"id": 2}})

    assert await ids(backend, {"id": "one"}) == ["one"]
    assert await ids(backend, {"id": {"$in": ["one", "two"]}}) == ["one", "two"]
    assert await ids(backend, {"id": {"$regex": "^t"}}) == ["two"]
    assert await ids(backend, {"id": 1}) == []


@pytest.mark.parametrize("path", ["n", "o.n", "l"])
async def test_a_list_of_a_thousand_values_can_be_asked_for(backend: Store, path: str) -> None:
    await fill(backend, {"a": {"n": 999, "o": {"n": 999}, "l": [999]}, "b": {"n": 5000, "o": {}, "l": []}})

    assert await ids(backend, condition(path, "in", list(range(1000)))) == ["a"]
    assert await ids(backend, condition(path, "nin", list(range(1000)))) == ["b"]


async def test_as_many_conditions_and_values_as_are_allowed_can_be_asked_for(backend: Store) -> None:
    await fill(backend, {"a": {"n": 1}, "b": {"n": -1}})
    many = Or(tuple(condition("n", "in", list(range(k * 1000, k * 1000 + 1000))) for k in range(256)))

    assert await ids(backend, many) == ["a"]


@pytest.mark.parametrize("value", [10**25, -(10**25), 10**400, 2**63, "\ud800"], ids=lambda v: ascii(v)[:8])
async def test_no_value_makes_a_filter_break(backend: Store, value: Any) -> None:
    """It finds what it should, or it is refused as a bad request."""
    await fill(backend, {"a": {"n": 1, "o": {"n": 1}, "l": [1], "s": "x"}})
    answers: dict[tuple[str, str], list[str]] = {}

    for path in ("n", "o.n", "l", "s", "id"):
        for op in ("eq", "lt", "in", "contains"):
            try:
                answers[path, op] = await ids(backend, condition(path, op, [value] if op == "in" else value))
            except BadRequest:
                continue

    below = {("n", "lt"), ("o.n", "lt"), ("l", "lt")} if isinstance(value, int) and value > 0 else set()
    assert answers == {asked: ["a"] if asked in below else [] for asked in answers}


@pytest.mark.parametrize(
    "path", ["a..b", ".a", "a.", "a b", "a'b", 'a"b', "a[0]", "$.a;--", "x" * 600, "a.b.c.d.e.f.g.h.i"]
)
async def test_a_path_that_could_not_be_a_field_is_refused(store: Store, path: str) -> None:
    await fill(store, {"a": {"a": {"b": 1}}})

    with pytest.raises(UnknownField):
        await store.items.find(Query("things", where=Condition(path, "eq", 1)))
    with pytest.raises(UnknownField):
        await store.items.find(Query("things", order=(Order(path),)))
    with pytest.raises(UnknownField):
        await store.items.find(Query("things", fields=(path,)))


async def test_there_is_nothing_below_a_plain_value(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})

    with pytest.raises(UnknownField):
        await ids(store, {"n.x": 1})


async def test_a_declared_array_under_another_name_is_found(backend: Store) -> None:
    tags = Field("tags", FieldType.ARRAY, "meta.tags", declared=True)
    await backend.collections.declare(Collection("things", {"tags": tags}))
    await fill(backend, {"a": {"meta": {"tags": ["x"]}}, "b": {"meta": {"tags": ["y"]}}, "c": {"tags": ["x"]}})

    assert await ids(backend, {"tags": {"$contains": "x"}}) == ["a"]


# Order


async def ordered(store: Store, *keys: str) -> list[str]:
    order = tuple(Order(key.removeprefix("-"), key.startswith("-")) for key in keys)
    return [item.id for item in (await store.items.find(Query("things", order=order))).items]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ([], "abcde"),
        (["s"], "abcde"),
        (["-s"], "cbade"),
        (["-i"], "cbade"),
        (["b"], "bacde"),
        (["-b"], "acbde"),
        (["t"], "abcde"),
        (["-t"], "cabde"),
        (["d"], "cabde"),
        (["-d"], "bacde"),
        (["id"], "abcde"),
        (["-id"], "edcba"),
        (["-b", "-i"], "cabde"),
        (["b", "-i"], "bcade"),
        (["tags"], "abcde"),
    ],
    ids=str,
)
async def test_items_come_in_order_and_those_without_the_field_last(
    backend: Store, keys: list[str], found: str
) -> None:
    await fill(backend, SHELF)

    assert await ordered(backend, *keys) == list(found)


MIXED = {
    "bool": {"v": True, "o": {"v": True}},
    "false": {"v": False, "o": {"v": False}},
    "float": {"v": 1.5, "o": {"v": 1.5}},
    "int": {"v": 10, "o": {"v": 10}},
    "list": {"v": [1], "o": {"v": [1]}},
    "none": {"v": None, "o": {"v": None}},
    "text": {"v": "2", "o": {"v": "2"}},
    "unit": {"v": "B", "o": {"v": "B"}},
    "void": {},
}


@pytest.mark.parametrize("path", ["v", "o.v"])
async def test_values_of_different_kinds_have_one_order(backend: Store, path: str) -> None:
    await fill(backend, MIXED)

    rest = ["list", "none", "void"]
    assert await ordered(backend, path) == ["float", "int", "text", "unit", "false", "bool", *rest]
    assert await ordered(backend, f"-{path}") == ["bool", "false", "unit", "text", "int", "float", *rest]


async def test_texts_are_ordered_by_their_characters(backend: Store) -> None:
    await fill(backend, {str(n): {"t": text} for n, text in enumerate(["é", "z", "Z", "a", "🦊", "\uffee", ""])})

    page = await backend.items.find(Query("things", order=(Order("t"),)))

    assert [item.data["t"] for item in page.items] == ["", "Z", "a", "z", "é", "\uffee", "🦊"]


# Projection, limits and counts


async def test_a_projection_shows_only_the_named_fields_in_their_nesting(store: Store) -> None:
    await fill(store, {"a": {"n": 1, "o": {"x": 1, "y": 2}, "l": [{"x": 1, "y": 2}, {"y": 3}, 5], "z": 9}})

    page = await store.items.find(Query("things", fields=("n", "o.x", "l.x", "id")))

    (item,) = page.items
    assert (item.id, item.data) == ("a", {"n": 1, "o": {"x": 1}, "l": [{"x": 1}, {}, {}]})
    assert item.version == (await store.items.get_many("things", ["a"]))["a"].version


async def test_two_paths_into_one_object_are_both_shown(store: Store) -> None:
    await fill(store, {"a": {"o": {"x": 1, "y": 2, "z": 3}}})

    page = await store.items.find(Query("things", fields=("o.x", "o.z")))

    assert [dict(item.data) for item in page.items] == [{"o": {"x": 1, "z": 3}}]


async def test_a_path_beside_its_own_parent_does_not_change_the_stored_item(store: Store) -> None:
    await fill(store, {"a": {"o": {"x": 1, "y": 2}}})

    page = await store.items.find(Query("things", fields=("o", "o.x")))

    assert [dict(item.data) for item in page.items] == [{"o": {"x": 1, "y": 2}}]


async def test_a_page_holds_at_most_its_limit_and_counts_on_request(store: Store) -> None:
    await fill(store, {f"i{n:02}": {"n": n} for n in range(30)})

    page = await store.items.find(Query("things", where=parse_filter({"n": {"$lt": 25}}), limit=7, count=True))

    assert ([item.id for item in page.items], page.total) == ([f"i{n:02}" for n in range(7)], 25)
    assert page.cursor


async def test_no_limit_means_the_usual_one_and_none_is_above_the_greatest(store: Store) -> None:
    await fill(store, {f"i{n:04}": {"n": n} for n in range(1010)})

    usual = await store.items.find(Query("things", limit=0))
    greatest = await store.items.find(Query("things", limit=5000))

    assert (len(usual.items), len(greatest.items)) == (20, 1000)
    with pytest.raises(InvalidQuery):
        await store.items.find(Query("things", limit=-1))


async def test_an_empty_collection_gives_an_empty_page(store: Store) -> None:
    await store.collections.declare(Collection("things"))

    page = await store.items.find(Query("things", count=True))

    assert (page.items, page.total, page.cursor) == ((), 0, "")


async def test_a_scan_gives_every_item_once(store: Store) -> None:
    await fill(store, {f"i{n}": {"n": n} for n in range(1500)})

    batches = [items async for items in store.items.scan("things")]

    seen = [item.id for items in batches for item in items]
    assert (len(seen), set(seen)) == (1500, {f"i{n}" for n in range(1500)})


async def test_an_optimised_collection_answers_the_same(store: Store) -> None:
    await fill(store, {f"i{n:04}": {"n": n % 10, "s": f"t{n % 3}"} for n in range(1200)})
    queries = [
        And((condition("n", "gte", 7), condition("s", "eq", "t1"))),
        Not(condition("n", "eq", 3)),
        MATCH_ALL,
    ]
    before = [await store.items.list_ids("things", where) for where in queries]

    await store.collections.optimize("things")

    assert [sorted(await store.items.list_ids("things", where)) for where in queries] == [sorted(b) for b in before]
    assert await store.items.write("things", [Put("i0000", {"n": 99})])
    assert await ids(store, {"n": 99}) == ["i0000"]
