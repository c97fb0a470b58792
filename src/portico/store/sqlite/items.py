"""Items in SQLite: queries on typed columns, and commits of writes with their settlement."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import apsw

from portico.items import Change, Item, problem_with
from portico.query import Aggregate, Filter, NearVector, Page, Query, conditions, make_cursor, validate_query
from portico.store.database import LeaseLost
from portico.store.grouping import finish_rows
from portico.store.health import StoreHealth
from portico.store.nearest import find_nearest, make_nearest_page, slice_page
from portico.store.planning import WritePlan, check_ids, group_by_collection, items_in_order, plan_writes
from portico.store.records import CommitResult, SettleFunction, Write
from portico.store.sql import MAX_GROUPS, Statement, name_values, too_many_groups
from portico.store.sqlite.dialect import DIALECT
from portico.store.sqlite.engine import READERS, SqliteDatabase, SqliteEngine, fetch_value
from portico.store.sqlite.ledger import SqliteLedger, SqliteTransaction, run_now
from portico.store.sqlite.writing import SqliteWriter, rows_before, select_rows
from portico.store.tables import SCAN_BATCH, Table, fill_page, from_json, read_rows
from portico.store.tasks import record_settlement

PATTERN_QUERIES = READERS // 2  # at once

T = TypeVar("T")


class SqliteItems:
    """See `ItemStore`."""

    def __init__(
        self, engine: SqliteEngine, writer: SqliteWriter, ledger: SqliteLedger, health: StoreHealth, secret: bytes
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._collections = writer.collections
        self._ledger = ledger
        self._health = health
        self._secret = secret
        self._pattern_slots = asyncio.Semaphore(PATTERN_QUERIES)

    async def get(self, collection: str, id: str) -> Item | None:
        if problem_with(id, {}):
            return None

        def work(db: SqliteDatabase) -> Item | None:
            table = self._collections.table(db, collection)
            return next((table.item(*row) for row in select_rows(db, table, [id])), None)

        return await self._engine.read(work)

    async def get_many(self, collection: str, ids: Sequence[str]) -> dict[str, Item]:
        ids = [id for id in ids if not problem_with(id, {})]
        return await self._engine.read(lambda db: self._read_items(db, self._collections.table(db, collection), ids))

    def _read_items(self, db: SqliteDatabase, table: Table, ids: Sequence[str]) -> dict[str, Item]:
        items = read_rows(table.item, select_rows(db, table, ids), self._health.report_row)
        return {item.id: item for item in items}

    async def find(self, query: Query) -> Page:
        def work(db: SqliteDatabase) -> Page:
            table = self._collections.table(db, query.collection)
            valid = validate_query(query, table.collection)
            if valid.aggregate:
                return self._group(db, table, valid, valid.aggregate)
            if valid.near:
                return self._find_near(db, table, valid, valid.near)
            return self._page(db, table, valid)

        return await self._read(work, query.where)

    async def _read(self, work: Callable[[SqliteDatabase], T], where: Filter) -> T:
        """Run a read. Patterns take long, so that some readers are left to other queries."""
        if not any(condition.op == "regex" for condition in conditions(where)):
            return await self._engine.read(work)
        async with self._pattern_slots:
            return await self._engine.read(work)

    def cursor(self, query: Query, last: Item) -> str:
        return Statement(DIALECT, self._collections.find_table(query.collection)).cursor(query, last, self._secret)

    def _page(self, db: SqliteDatabase, table: Table, query: Query) -> Page:
        total = _count(db, table, query.where) if query.count else None
        sql = Statement(DIALECT, table)
        rows = db.execute(sql.select_page(query, query.where, self._secret), sql.params)
        items, position = fill_page(rows, query, table, self._health.report_row)
        cursor = make_cursor(query, (sql.kinds(query.order), *position), self._secret) if position else ""
        return Page(items, total=total, cursor=cursor)

    def _group(self, db: SqliteDatabase, table: Table, query: Query, aggregate: Aggregate) -> Page:
        sql = Statement(DIALECT, table)
        try:
            rows = db.execute(sql.select_groups(aggregate, query.where), sql.params).fetchall()
        except apsw.SQLError:  # a sum of whole numbers beyond 64 bits
            sql = Statement(DIALECT, table, float_sums=True)
            rows = db.execute(sql.select_groups(aggregate, query.where), sql.params).fetchall()
        if len(rows) > MAX_GROUPS:
            raise too_many_groups()
        groups = [name_values(aggregate, table.collection, row, from_json) for row in rows]
        return finish_rows(groups, query, table.collection, self._secret)

    def _find_near(self, db: SqliteDatabase, table: Table, query: Query, near: NearVector) -> Page:
        sql = Statement(DIALECT, table)
        where = sql.where(query.where)
        number, field = sql.bind(table.number), sql.bind(near.field)
        rows = db.execute(
            f"SELECT v.id, v.vector FROM vectors v JOIN {table.name} USING (id)"
            f" WHERE {where} AND v.collection = {number} AND v.field = {field} ORDER BY v.id",
            sql.params,
        )
        ids, scores = find_nearest(((id, vector) for id, vector in rows), near)
        items = self._read_items(db, table, ids[slice_page(query, ids, self._secret)])
        return make_nearest_page(query, table.collection, ids, scores, items, self._secret)

    async def count(self, collection: str, where: Filter) -> int:
        def work(db: SqliteDatabase) -> int:
            table = self._collections.table(db, collection)
            validate_query(Query(collection, where=where), table.collection)
            return _count(db, table, where)

        return await self._engine.read(work)

    async def list_ids(self, collection: str, where: Filter) -> list[str]:
        def work(db: SqliteDatabase) -> list[str]:
            table = self._collections.table(db, collection)
            validate_query(Query(collection, where=where), table.collection)
            sql = Statement(DIALECT, table)
            return [id for (id,) in db.execute(sql.select("id", where), sql.params)]

        return await self._read(work, where)

    async def scan(self, collection: str) -> AsyncIterator[list[Item]]:
        last = 0
        while True:

            def work(db: SqliteDatabase, after: int = last) -> tuple[list[Item], int | None]:
                table = self._collections.table(db, collection)
                rows = db.execute(
                    f"SELECT rowid, id, data, revision, digest FROM {table.name} WHERE rowid > ?"
                    f" ORDER BY rowid LIMIT {SCAN_BATCH}",
                    (after,),
                ).fetchall()
                items = read_rows(table.item, (row[1:] for row in rows), self._health.report_row)
                return items, rows[-1][0] if rows else None

            items, end = await self._engine.read(work)
            if end is None:
                return
            last = end
            yield items

    async def write(self, collection: str, writes: Sequence[Write]) -> list[Change]:
        result = await self.commit([(collection, write) for write in writes])
        return result.changes if result else []

    async def commit(
        self, writes: Sequence[tuple[str, Write]], settle: SettleFunction | None = None
    ) -> CommitResult | None:
        check_ids([write for _, write in writes])
        groups = group_by_collection(writes)

        def work(db: SqliteDatabase) -> tuple[tuple[CommitResult, bool], list[Change]]:
            plans: dict[str, WritePlan] = {}
            changes: list[Change] = []
            for name, group in groups.items():
                table = self._collections.table(db, name)
                before = rows_before(db, table, [write.id for write in group])
                plans[name] = plan_writes(table.collection, group, before, datetime.now(UTC))
                changes += self._writer.apply(db, table, plans[name])
            items = items_in_order(writes, plans)
            transaction = SqliteTransaction(db)
            if settle:
                run_now(record_settlement(transaction, self._ledger.dialect, settle(items)))
            return (CommitResult(changes, items), transaction.has_task_news), changes

        try:
            result, has_task_news = await self._writer.write(work)
        except LeaseLost:
            return None
        if has_task_news:
            self._ledger.notify_tasks()
        return result


def _count(db: SqliteDatabase, table: Table, where: Filter) -> int:
    sql = Statement(DIALECT, table)
    return fetch_value(db, sql.select("COUNT(*)", where), sql.params)
