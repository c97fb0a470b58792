"""Reading filters and aggregates; the bounds of a query."""

from dataclasses import fields, replace
from typing import Any

import pytest

from portico.catalog import Collection
from portico.errors import InvalidQuery, TooLarge, UnknownField, UnsafeRegex
from portico.query import (
    Aggregate,
    Aggregation,
    And,
    Condition,
    Filter,
    NearVector,
    Not,
    Or,
    Order,
    Query,
    make_cursor,
    parse_aggregation,
    parse_filter,
)

SECRET = b"only the site knows"


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ({}, And(())),
        ({"a": 1}, Condition("a", "eq", 1)),
        ({"a": None}, Condition("a", "eq", None)),
        ({"a": {"$lt": 5}}, Condition("a", "lt", 5)),
        ({"a": {"$gt": 1, "$lt": 5}}, And((Condition("a", "gt", 1), Condition("a", "lt", 5)))),
        ({"a": 1, "b": 2}, And((Condition("a", "eq", 1), Condition("b", "eq", 2)))),
        ({"$or": [{"a": 1}, {"b": 2}]}, Or((Condition("a", "eq", 1), Condition("b", "eq", 2)))),
        ({"$not": {"a": 1}}, Not(Condition("a", "eq", 1))),
        ({"a": {"$in": [1, "x", None]}}, Condition("a", "in", (1, "x", None))),
        ({"a.b": {"$between": [1, 2]}}, Condition("a.b", "between", (1, 2))),
    ],
    ids=str,
)
def test_a_filter_is_read_from_json(raw: dict[str, Any], where: Any) -> None:
    assert parse_filter(raw) == where


@pytest.mark.parametrize(
    "raw",
    [
        [],
        "a",
        None,
        {"$nope": 1},
        {"a": {"$nope": 1}},
        {"$and": {"a": 1}},
        {"$not": [1]},
        {"a": {"$in": 5}},
        {"a": {"$between": [1]}},
        {"a": {"$between": [1, 2, 3]}},
        {"a": {"$exists": 1}},
        {"a": {"$regex": 5}},
        {"a": {"$regex": "("}},
        {"a": {"$regex": r"(a)\1"}},
        {"a": {"$regex": "(?=a)"}},
        {"a": {"$eq": [1]}},
        {"a": {"$eq": {"b": 1}}},
        {"a": {"$gt": float("nan")}},
        {"a": {"$in": [[1]]}},
        {"a": {"$contains": None}},
        {"a": {"$lt": 1, "b": 2}},
        {"a\0b": 1},
        {"": 1},
    ],
    ids=str,
)
def test_a_malformed_filter_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidQuery):
        parse_filter(raw)


def test_a_bare_value_is_refused_where_operators_are_required() -> None:
    with pytest.raises(InvalidQuery):
        parse_filter({"a": 1}, bare_values=False)


def nested(depth: int) -> dict[str, Any]:
    return {"$not": nested(depth - 1)} if depth else {"a": 1}


def test_a_filter_has_a_greatest_depth_and_size() -> None:
    parse_filter(nested(7))
    parse_filter({"$or": [{"a": n} for n in range(256)]})
    parse_filter({"a": {"$in": list(range(1000))}})
    with pytest.raises(InvalidQuery):
        parse_filter(nested(8))
    with pytest.raises(TooLarge):
        parse_filter({"$or": [{"a": n} for n in range(257)]})
    with pytest.raises(TooLarge):
        parse_filter({"a": {"$in": list(range(1001))}})


@pytest.mark.parametrize("pattern", ["a" * 257, "((a{100}){100}){100}"])
def test_a_pattern_that_could_cost_too_much_is_refused(pattern: str) -> None:
    with pytest.raises((UnsafeRegex, InvalidQuery)):
        parse_filter({"a": {"$regex": pattern}})


@pytest.mark.parametrize(
    ("text", "function", "field", "alias"),
    [
        ("count", "count", "", "count"),
        ("count(*)", "count", "", "count"),
        ("COUNT(*) as n", "count", "", "n"),
        ("avg(price)", "avg", "price", "avg_price"),
        (" sum ( offers.price ) as total ", "sum", "offers.price", "total"),
        ("count_distinct(name)", "count_distinct", "name", "count_distinct_name"),
    ],
)
def test_an_aggregation_is_read_from_text(text: str, function: str, field: str, alias: str) -> None:
    found = parse_aggregation(text)

    assert (found.function, found.field, found.alias) == (function, field, alias)


@pytest.mark.parametrize("text", ["", "median(price)", "sum(price", "sum(a) as b c"])
def test_a_malformed_aggregation_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        parse_aggregation(text)


def test_a_cursor_belongs_to_one_filter() -> None:
    wheres: list[Filter] = [Condition("a", "eq", value) for value in (1, 1.0, True, "1", None, (1, 2), (True, 2))]
    wheres += [And((wheres[0],)), Or((wheres[0],)), Not(wheres[0]), And(tuple(wheres[:2])), Or(tuple(wheres[:2]))]

    assert len({make_cursor(Query("things", where=where), (1,), SECRET) for where in wheres}) == len(wheres)


def test_a_cursor_belongs_to_all_that_a_query_asks_for() -> None:
    others: dict[str, Any] = {
        "collection": "people",
        "text": "soup",
        "near": NearVector((1.0,)),
        "where": Condition("a", "eq", 1),
        "order": (Order("a"),),
        "fields": ("a",),
        "aggregate": Aggregate((Aggregation("count", "n"),)),
    }
    free = {"limit", "cursor", "count", "max_bytes"}  # where a page ends may change from one to the next
    query = Query("things")

    made = [make_cursor(replace(query, **{name: value}), (1,), SECRET) for name, value in others.items()]

    assert {each.name for each in fields(Query)} == others.keys() | free
    assert len({*made, make_cursor(query, (1,), SECRET)}) == len(others) + 1
    assert make_cursor(replace(query, limit=3, count=True), (1,), SECRET) == make_cursor(query, (1,), SECRET)


def test_conditions_are_the_same_if_their_values_are_the_same_json() -> None:
    values = (1, 1.0, True, "1", None, 0.0, -0.0, (1, "a"), (True, "a"), (1.0, "a"))
    distinct = {Condition("a", "eq", value) for value in values}

    assert len(distinct) == len(values)
    assert all(Condition("a", "eq", value) in distinct for value in values)


def test_an_unknown_field_is_an_invalid_query() -> None:
    with pytest.raises(InvalidQuery):
        Collection("things").field("nope")
    assert issubclass(UnknownField, InvalidQuery)
