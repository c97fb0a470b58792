"""Patterns in filters, for a database without RE2: matched here, before a statement is made.

RE2 takes time linear in the text whatever the pattern, and patterns mean the same on every store. Only items that the
rest of a filter lets through are looked at, and of those only the field in question.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from portico.catalog import ID, segments
from portico.items import Item
from portico.query import EVERYTHING, And, Condition, Filter, Not, Or, Test, conditions, matcher
from portico.store.postgres.dialect import DIALECT
from portico.store.postgres.engine import Connection
from portico.store.sql import Statement
from portico.store.tables import SCAN_BATCH, Table, decode

NOTHING = Or(())


def has_patterns(where: Filter) -> bool:
    return any(each.op == "regex" for each in conditions(where))


async def without_patterns(db: Connection, table: Table, where: Filter) -> Filter:
    """The filter with every pattern replaced by the ids it fits."""
    fits: dict[Condition, Filter] = {}
    for each in conditions(where):
        if each.op == "regex" and each not in fits:
            ids = [id async for id in _fitting(db, table, each, _widest(where, positive=True))]
            fits[each] = Condition(ID, "in", tuple(ids))
    return _replaced(where, fits)


async def _fitting(db: Connection, table: Table, pattern: Condition, among: Filter) -> AsyncIterator[str]:
    sql = Statement(DIALECT, table.collection, table.columns)
    found = sql.where(among)
    head = segments(table.collection.field(pattern.field).where)[0]
    test = matcher(pattern, table.collection)
    rows = db.cursor(
        f"SELECT id, (doc -> '{head}')::text FROM {table.name} WHERE {found}", *sql.params, prefetch=SCAN_BATCH
    )
    batch: list[Sequence[Any]] = []
    async for row in rows:
        batch.append(row)
        if len(batch) == SCAN_BATCH:
            for id in await asyncio.to_thread(_tested, test, table, head, batch):
                yield id
            batch = []
    for id in await asyncio.to_thread(_tested, test, table, head, batch):
        yield id


def _tested(test: Test, table: Table, head: str, rows: Sequence[Sequence[Any]]) -> list[str]:
    name = table.collection.name
    return [id for id, value in rows if test(Item(id, name, {head: decode(value)} if value is not None else {}))]


def _widest(where: Filter, *, positive: bool) -> Filter:
    """A filter without patterns that lets through whatever this one does, or under a negation: nothing more than it."""
    match where:
        case And(parts):
            return And(tuple(_widest(part, positive=positive) for part in parts))
        case Or(parts):
            return Or(tuple(_widest(part, positive=positive) for part in parts))
        case Not(part):
            return Not(_widest(part, positive=not positive))
        case Condition(_, "regex", _):
            return EVERYTHING if positive else NOTHING
        case Condition():
            return where


def _replaced(where: Filter, by: Mapping[Condition, Filter]) -> Filter:
    match where:
        case And(parts):
            return And(tuple(_replaced(part, by) for part in parts))
        case Or(parts):
            return Or(tuple(_replaced(part, by) for part in parts))
        case Not(part):
            return Not(_replaced(part, by))
        case Condition():
            return by.get(where, where)
