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
    groups = [row for row in rows if having(row)]
    for key in reversed(order):
        groups = _sort_rows(groups, key, shape.fields[key.field])
    start = 0
    if query.cursor:
        last = dict(zip((key.field for key in order), read_cursor(query, secret), strict=True))
        start = sum(1 for row in groups if _order_rows(row, last, order, shape) <= 0)
    page = groups[start : start + query.limit]
    page = page[: count_within(map(json_size, page), query.max_bytes)]
    more = start + len(page) < len(groups)
    cursor = make_cursor(query, [page[-1][key.field] for key in order], secret) if more else ""
    return Page(rows=tuple(page), total=len(groups), cursor=cursor)


def _shape_of_rows(aggregate: Aggregate, collection: Collection) -> Collection:
    """The columns of the result as fields: times and lengths keep their meaning, the rest is what it is."""
    types = {name: collection.field(name).type for name in aggregate.group_by}
    for operation in aggregate.operations:
        counts = not operation.field or operation.function in {"count", "count_distinct"}
        types[operation.alias] = FieldType.ANY if counts else collection.field(operation.field).type
    timely = {name: kind if kind in TEXT_BEHIND else FieldType.ANY for name, kind in types.items()}
    return Collection("rows", {name: Field(name, kind) for name, kind in timely.items()})


def _row_test(where: Filter, shape: Collection) -> Callable[[Mapping[str, Any]], bool]:
    """A filter as a function of a row. A column may have any name, `id` and dotted ones included: it is numbered."""
    numbers = {name: f"c{number}" for number, name in enumerate(shape.fields)}
    fields = {number: Field(number, shape.fields[name].type) for name, number in numbers.items()}
    test = matcher(_rename_fields(where, numbers), Collection("rows", fields))
    return lambda row: test(Item("", "rows", {number: row[name] for name, number in numbers.items()}))


def _rename_fields(where: Filter, names: Mapping[str, str]) -> Filter:
    match where:
        case And(parts):
            return And(tuple(_rename_fields(part, names) for part in parts))
        case Or(parts):
            return Or(tuple(_rename_fields(part, names) for part in parts))
        case Not(part):
            return Not(_rename_fields(part, names))
        case Condition(name, op, value):
            return Condition(names[name], op, value)


def _sort_rows(rows: list[dict[str, Any]], key: Order, field: Field) -> list[dict[str, Any]]:
    """Rows by one column, those without a value last; equal ones stay in the order they have."""
    keyed = [(_row_key(row, field), row) for row in rows]
    there = [(place, row) for place, row in keyed if place is not None]
    there.sort(key=lambda pair: pair[0], reverse=key.descending)
    return [row for _, row in there] + [row for place, row in keyed if place is None]


def _order_rows(a: Mapping[str, Any], b: Mapping[str, Any], order: Sequence[Order], shape: Collection) -> int:
    for key in order:
        mine, other = (_row_key(row, shape.fields[key.field]) for row in (a, b))
        if mine == other:
            continue
        if mine is None or other is None:
            return -1 if other is None else 1
        return -1 if (mine < other) != key.descending else 1
    return 0


def _row_key(row: Mapping[str, Any], field: Field) -> tuple[int, Any] | None:
    """Sorts as items do; arrays and objects come behind, by their JSON."""
    value = row[field.name]
    if isinstance(value, list | dict):
        return ABSENT, msgspec.json.encode(value, order="sorted")
    value = comparable(field.type, value) if field.is_typed else value
    return None if value is None else sort_key(value)
