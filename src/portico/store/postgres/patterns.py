"""Patterns in filters, for a database without RE2: matched here, before a statement is made.

RE2 takes time linear in the text whatever the pattern, and patterns mean the same on every store. Only items that the
rest of a filter lets through are looked at, and of those only the field in question.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from portico.catalog import ID
from portico.items import Item
from portico.query import MATCH_ALL, And, Condition, Filter, Not, Or, Predicate, conditions, matcher
from portico.store.postgres.dialect import DIALECT, json_key
from portico.store.postgres.engine import PostgresConnection
from portico.store.sql import Statement
from portico.store.tables import SCAN_BATCH, Table, decode

NOTHING = Or(())


def has_patterns(where: Filter) -> bool:
    return any(condition.op == "regex" for condition in conditions(where))


async def resolve_patterns(db: PostgresConnection, table: Table, where: Filter) -> Filter:
    """Return the filter with every pattern replaced by the ids it matches."""
    matches: dict[Condition, Filter] = {}
    for condition in conditions(where):
        if condition.op == "regex" and condition not in matches:
            ids = [id async for id in _match(db, table, condition, _widest(where, positive=True))]
            matches[condition] = Condition(ID, "in", tuple(ids))
    return _replace(where, matches)


async def _match(db: PostgresConnection, table: Table, pattern: Condition, among: Filter) -> AsyncIterator[str]:
    sql = Statement(DIALECT, table)
    head = table.collection.field(pattern.field).steps[0]
    test = matcher(pattern, table.collection)
    rows = db.cursor(sql.select(f"id, (doc -> {json_key(head)})::text", among), *sql.params, prefetch=SCAN_BATCH)
    batch: list[Sequence[Any]] = []
    async for row in rows:
        batch.append(row)
        if len(batch) == SCAN_BATCH:
            for id in await asyncio.to_thread(_test, test, table, head, batch):
                yield id
            batch = []
    for id in await asyncio.to_thread(_test, test, table, head, batch):
        yield id


def _test(test: Predicate, table: Table, head: str, rows: Sequence[Sequence[Any]]) -> list[str]:
    name = table.collection.name
    return [id for id, value in rows if test(Item(id, name, {head: decode(value)} if value is not None else {}))]


def _widest(where: Filter, *, positive: bool) -> Filter:
    """Return a filter without patterns that matches at least what this one does, or under a negation at most that."""
    match where:
        case And(parts):
            return And(tuple(_widest(part, positive=positive) for part in parts))
        case Or(parts):
            return Or(tuple(_widest(part, positive=positive) for part in parts))
        case Not(part):
            return Not(_widest(part, positive=not positive))
        case Condition(_, "regex", _):
            return MATCH_ALL if positive else NOTHING
        case Condition():
            return where


def _replace(where: Filter, by: Mapping[Condition, Filter]) -> Filter:
    match where:
        case And(parts):
            return And(tuple(_replace(part, by) for part in parts))
        case Or(parts):
            return Or(tuple(_replace(part, by) for part in parts))
        case Not(part):
            return Not(_replace(part, by))
        case Condition():
            return by.get(where, where)
