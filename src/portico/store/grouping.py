"""Rows of an aggregate, once a store has grouped them: having, order, cursor and limit, the same for every store."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from portico.catalog import Collection, Field, FieldType, comparable
from portico.items import Item
from portico.query import (
    ABSENT,
    TEXT_BEHIND,
    Aggregate,
    And,
    Condition,
    Filter,
    Not,
    Or,
    Order,
    Page,
    Query,
    count_within,
    json_size,
    make_cursor,
    matcher,
    read_cursor,
    sort_key,
)


def finish_rows(rows: list[dict[str, Any]], query: Query, collection: Collection, secret: bytes) -> Page:
    """A page of grouped rows."""
    aggregate = cast("Aggregate", query.aggregate)
    shape = _shape_of_rows(aggregate, collection)
    order = (*query.order, *(Order(name) for name in aggregate.group_by))
    having = _row_test(aggregate.having, shape)
    kept = [row for row in rows if having(row)]
    for key in reversed(order):
        kept = _sorted_rows(kept, key, shape.fields[key.field])
    start = 0
    if query.cursor:
        last = dict(zip((key.field for key in order), read_cursor(query, secret), strict=True))
        start = sum(1 for row in kept if _order_rows(row, last, order, shape) <= 0)
    shown = kept[start : start + query.limit]
    shown = shown[: count_within(map(json_size, shown), query.max_bytes)]
    more = start + len(shown) < len(kept)
    cursor = make_cursor(query, [shown[-1][key.field] for key in order], secret) if more else ""
    return Page(rows=tuple(shown), total=len(kept), cursor=cursor)


def _shape_of_rows(aggregate: Aggregate, collection: Collection) -> Collection:
    """The columns of the result as fields: times and lengths keep their meaning, the rest is what it is."""
    kept = {name: collection.field(name).type for name in aggregate.group_by}
    for each in aggregate.operations:
        counts = not each.field or each.function in {"count", "count_distinct"}
        kept[each.alias] = FieldType.ANY if counts else collection.field(each.field).type
    timely = {name: kind if kind in TEXT_BEHIND else FieldType.ANY for name, kind in kept.items()}
    return Collection("rows", {name: Field(name, kind) for name, kind in timely.items()})


def _row_test(where: Filter, shape: Collection) -> Callable[[Mapping[str, Any]], bool]:
    """A filter as a function of a row. A column may have any name, `id` and dotted ones included: it is numbered."""
    numbers = {name: f"c{number}" for number, name in enumerate(shape.fields)}
    fields = {number: Field(number, shape.fields[name].type) for name, number in numbers.items()}
    test = matcher(_renamed(where, numbers), Collection("rows", fields))
    return lambda row: test(Item("", "rows", {number: row[name] for name, number in numbers.items()}))


def _renamed(where: Filter, names: Mapping[str, str]) -> Filter:
    match where:
        case And(parts):
            return And(tuple(_renamed(part, names) for part in parts))
        case Or(parts):
            return Or(tuple(_renamed(part, names) for part in parts))
        case Not(part):
            return Not(_renamed(part, names))
        case Condition(name, op, value):
            return Condition(names[name], op, value)


def _sorted_rows(rows: list[dict[str, Any]], key: Order, known: Field) -> list[dict[str, Any]]:
    """Rows by one column, those without a value last; equal ones stay in the order they have."""
    placed = [(_row_key(row, known), row) for row in rows]
    there = [(place, row) for place, row in placed if place is not None]
    there.sort(key=lambda pair: pair[0], reverse=key.descending)
    return [row for _, row in there] + [row for place, row in placed if place is None]


def _order_rows(a: Mapping[str, Any], b: Mapping[str, Any], order: Sequence[Order], shape: Collection) -> int:
    for key in order:
        mine, other = (_row_key(row, shape.fields[key.field]) for row in (a, b))
        if mine == other:
            continue
        if mine is None or other is None:
            return -1 if other is None else 1
        return -1 if (mine < other) != key.descending else 1
    return 0


def _row_key(row: Mapping[str, Any], known: Field) -> tuple[int, Any] | None:
    """Sorts as items do; arrays and objects come behind, by their JSON."""
    value = row[known.name]
    if isinstance(value, list | dict):
        return ABSENT, msgspec.json.encode(value, order="sorted")
    value = comparable(known.type, value) if known.is_typed else value
    return None if value is None else sort_key(value)
