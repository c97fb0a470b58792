"""Fields of any name: every store finds, sorts, projects, groups and writes them, and takes no name for SQL."""

from typing import Any

import pytest
from tests.contract.shelf import all_ids, all_rows, fill, ids, walk
from tests.test_field_names import HOSTILE

from portico.catalog import Collection, Field, FieldType
from portico.errors import InvalidParams
from portico.query import Aggregate, Aggregation, Condition, Order, Query
from portico.search.finder import Finder
from portico.search.index.memory import MemoryIndex
from portico.store import Store
from portico.store.records import Merge, Put


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_typed_field_of_any_name_is_a_field(backend: Store, name: str) -> None:
    await fill(backend, {"a": {name: 3}, "b": {name: 1}, "c": {name: 2}, "d": {"other": 2}})

    assert await ids(backend, {name: {"$gte": 2}}) == ["a", "c"]
    assert await ids(backend, Condition(name, "exists", False)) == ["d"]
    pages = await walk(backend, Query("things", order=(Order(name, descending=True),), fields=(name,), limit=1))
    assert all_ids(pages) == ["a", "c", "b", "d"]
    assert [dict(item.data) for page in pages for item in page.items] == [{name: 3}, {name: 2}, {name: 1}, {}]


@pytest.mark.parametrize("name", HOSTILE)
async def test_an_untyped_field_of_any_name_is_a_field(backend: Store, name: str) -> None:
    await fill(backend, {"a": {name: ["x", "y"]}, "b": {name: "y"}, "c": {name: {"k": 1}}, "d": {name: 5}})

    assert await ids(backend, Condition(name, "contains", "y")) == ["a", "b"]
    assert await ids(backend, Condition(name, "regex", "^y$")) == ["a", "b"]
    assert await ids(backend, Condition(name, "eq", 5)) == ["d"]
    assert await ids(backend, Condition(name, "in", (5, "y"))) == ["a", "b", "d"]
    assert await ids(backend, Condition(f"{name}.k", "eq", 1)) == ["c"]
    assert all_ids(await walk(backend, Query("things", order=(Order(name),), limit=1))) == ["d", "b", "a", "c"]
    page = await backend.items.find(Query("things", fields=(f"{name}.k",)))
    assert dict(page.items[2].data) == {name: {"k": 1}}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("untyped", [False, True])
async def test_items_are_grouped_by_a_field_of_any_name(backend: Store, name: str, untyped: bool) -> None:
    more: dict[str, Any] = {"e": {name: ["z"]}} if untyped else {}
    await fill(backend, {"a": {name: "x", "n": 1}, "b": {name: "x", "n": 2}, "c": {name: "y", "n": 4}, **more})

    operations = (Aggregation("sum", "total", "n"), Aggregation("count_distinct", "different", name))
    aggregate = Aggregate(operations, (name,), Condition(name, "in", ("x", "y")))
    rows = all_rows(await walk(backend, Query("things", aggregate=aggregate, limit=1)))

    assert rows == [{name: "x", "total": 3, "different": 1}, {name: "y", "total": 4, "different": 1}]


@pytest.mark.parametrize("key", [name for name in HOSTILE if "." not in name])
async def test_a_key_of_any_name_is_reached_inside_an_object(backend: Store, key: str) -> None:
    await fill(backend, {"a": {"o": {key: 1}}, "b": {"o": [{key: 2}, {key: 3}]}, "c": {"o": {"other": 1}}})

    assert await ids(backend, Condition(f"o.{key}", "gte", 1)) == ["a", "b"]
    assert await ids(backend, Condition(f"o.{key}", "exists", False)) == ["c"]
    assert all_ids(await walk(backend, Query("things", order=(Order(f"o.{key}"),), limit=1)))[0] == "a"


async def test_other_names_find_the_same_items_and_results_have_the_own_name(backend: Store) -> None:
    await fill(backend, {"a": {"Region Name": "Oslo", "n": 1}, "b": {"Region Name": "Bergen", "n": 2}})

    for name in ("Region Name", "region_name", "REGION-NAME"):
        assert await ids(backend, Condition(name, "eq", "Oslo")) == ["a"]
        page = await backend.items.find(Query("things", order=(Order(name),), fields=(name,)))
        assert [dict(item.data) for item in page.items] == [{"Region Name": "Bergen"}, {"Region Name": "Oslo"}]
        aggregate = Aggregate((Aggregation("max", "most", name),), (name,))
        rows = (await backend.items.find(Query("things", aggregate=aggregate, order=(Order(name, True),)))).rows
        assert [row["Region Name"] for row in rows] == ["Oslo", "Bergen"]


async def test_a_cursor_continues_under_any_name_of_its_fields(backend: Store) -> None:
    await fill(backend, {id: {"Region Name": id} for id in "abc"})
    first = await backend.items.find(Query("things", order=(Order("Region Name"),), limit=1))

    then = await backend.items.find(Query("things", order=(Order("region_name"),), limit=1, cursor=first.cursor))

    assert [item.id for item in then.items] == ["b"]


async def test_the_index_answers_like_the_store(store: Store) -> None:
    await fill(store, {"a": {"a.b": 1, "a": {"b": 2}, "Região": ["x"]}, "b": {"a.b": 2, "a": {"b": 1}}})
    index = MemoryIndex(store, None)
    await index.start()
    finder = Finder(store, index)

    for condition in (Condition("a.b", "eq", 1), Condition("regiao", "contains", "x"), Condition("a_b", "lt", 2)):
        query = Query("things", where=condition)
        assert [item.id for item in (await finder.find(query)).items] == await ids(store, condition) == ["a"]
    await index.close()


async def test_a_key_with_a_dot_is_a_field_after_the_store_is_opened_again(store: Store) -> None:
    await fill(store, {"a": {"a.b": {"c": 1}, "a": {"b": {"c": 2}}}})

    fields = (await store.collections.refresh())["things"].fields

    assert fields["a.b"] == Field("a.b", FieldType.OBJECT, keys=("a.b",))
    assert await ids(store, Condition("a.b.c", "eq", 1)) == ["a"]
    assert await ids(store, Condition("a.b.c", "eq", 2)) == []


async def test_a_declared_path_becomes_a_key_when_the_data_has_it(backend: Store) -> None:
    declared = Collection("things", {"a.b": Field("a.b", FieldType.INTEGER, declared=True)})
    await backend.collections.declare(declared)
    await fill(backend, {"nested": {"a": {"b": 1}}})
    assert await ids(backend, Condition("a.b", "eq", 1)) == ["nested"]

    await fill(backend, {"flat": {"a.b": 2}})
    await backend.collections.declare(declared)

    assert await ids(backend, Condition("a.b", "eq", 2)) == ["flat"]


@pytest.mark.parametrize("written", ["Region Name", "region_name", "REGION NAME"])
async def test_a_caller_writes_a_field_by_any_of_its_names(backend: Store, written: str) -> None:
    await fill(backend, {"a": {"Region Name": "Oslo", "n": 1}})

    await backend.items.write("things", [Put("b", {written: "Bergen"}, keeps_types=True)])
    await backend.items.write("things", [Merge("a", {written: "Voss"}, keeps_types=True)])

    stored = await backend.items.get_many("things", ["a", "b"])
    assert {id: dict(item.data) for id, item in stored.items()} == {
        "a": {"Region Name": "Voss", "n": 1},
        "b": {"Region Name": "Bergen"},
    }


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"Region Name": "x", "region_name": "y"}, "Region Name"),
        ({"region_name": 1}, "Region Name"),
        ({"a\u202eb": "x"}, "a\u202eb"),
        ({"x" * 600: 1}, "x" * 40 + "…"),
    ],
)
async def test_a_caller_cannot_write_what_has_no_place(backend: Store, data: dict[str, Any], field: str) -> None:
    await fill(backend, {"a": {"Region Name": "Oslo"}})

    with pytest.raises(InvalidParams) as refusal:
        await backend.items.write("things", [Put("b", data, keeps_types=True)])

    assert refusal.value.details["field"] == field


async def test_a_name_that_cannot_be_seen_is_kept_and_is_no_field(backend: Store) -> None:
    await fill(backend, {"a": {"a\u202eb": 1, "n": 1}})

    assert list(backend.collections.schema["things"].fields) == ["n"]
