"""Items in PostgreSQL: queries on typed columns, and commits of writes with their settlement."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from portico.items import Change, Item, problem_with
from portico.query import READ_SHARE, Aggregate, Filter, NearVector, Page, Query, make_cursor, validate_query
from portico.store.database import LeaseLost, SqlRow
from portico.store.grouping import finish_rows
from portico.store.health import StoreHealth, UnreadableRow
from portico.store.nearest import find_nearest, make_nearest_page, slice_page
from portico.store.planning import WritePlan, check_ids, group_by_collection, items_in_order, plan_writes
from portico.store.postgres.dialect import DIALECT, plain
from portico.store.postgres.engine import PostgresConnection, PostgresEngine
from portico.store.postgres.ledger import DIALECT as LEDGER_DIALECT
from portico.store.postgres.ledger import PostgresTransaction
from portico.store.postgres.patterns import has_patterns, resolve_patterns
from portico.store.postgres.vectors import select_candidates
from portico.store.postgres.writing import PostgresWriter, lock_rows, select_by_id, walk
from portico.store.records import CommitResult, SettleFunction, Write
from portico.store.sql import MAX_GROUPS, Statement, name_values, too_many_groups
from portico.store.tables import Table, fill_page, from_json, read_rows
from portico.store.tasks import record_settlement


class PostgresItems:
    """See `ItemStore`."""

    def __init__(self, engine: PostgresEngine, writer: PostgresWriter, health: StoreHealth, secret: bytes) -> None:
        self._engine = engine
        self._writer = writer
        self._collections = writer.collections
        self._health = health
        self._secret = secret

    async def get(self, collection: str, id: str) -> Item | None:
        table, rows = await self._select_by_id(collection, [id])
        try:
            return next((table.item(*row) for row in rows), None)
        except UnreadableRow as error:
            self._health.report_row(error)
            raise

    async def get_many(self, collection: str, ids: Sequence[str]) -> dict[str, Item]:
        table, rows = await self._select_by_id(collection, ids)
        return {item.id: item for item in read_rows(table.item, rows, self._health.report_row)}

    async def _select_by_id(self, collection: str, ids: Sequence[str]) -> tuple[Table, list[SqlRow]]:
        ids = [id for id in ids if not problem_with(id, {})]
        table, rows, _ = await self._collections.select(
            collection, lambda table: (select_by_id(table), [ids]), fetch=self._engine.fetch
        )
        return table, rows

    async def find(self, query: Query) -> Page:
        if has_patterns(query.where):
            async with self._engine.snapshot() as db:
                return await self._find(query, await self._resolve(query, db), db)
        return await self._find(query, query.where)

    async def _find(self, query: Query, where: Filter, db: PostgresConnection | None = None) -> Page:
        if query.aggregate:
            return await self._group(query, where, db)
        if query.near:
            return await self._find_near(query, where, db)
        return await self._page(query, where, db)

    def cursor(self, query: Query, last: Item) -> str:
        return Statement(DIALECT, self._collections.known.table(query.collection)).cursor(query, last, self._secret)

    async def _page(self, query: Query, where: Filter, db: PostgresConnection | None) -> Page:
        def build(table: Table) -> tuple[str, Sequence[Any]]:
            sql = Statement(DIALECT, table)
            valid = validate_query(query, table.collection)
            rows = sql.select_page(valid, where, self._secret)
            return _limit_bytes(rows, len(sql.order(valid.order)), valid), sql.params

        def count(table: Table) -> str:
            return Statement(DIALECT, table).select("COUNT(*)", where)

        table, rows, total = await self._collections.select(
            query.collection, build, count if query.count else None, db=db
        )
        valid = validate_query(query, table.collection)
        is_cut = bool(rows) and len(rows) < rows[0][0]
        items, position = fill_page((row[1:] for row in rows), valid, table, self._health.report_row, is_cut=is_cut)
        cursor = ""
        if position:
            kinds = Statement(DIALECT, table).kinds(valid.order)
            cursor = make_cursor(valid, (kinds, *map(plain, position)), self._secret)
        return Page(items, total=total, cursor=cursor)

    async def _group(self, query: Query, where: Filter, db: PostgresConnection | None) -> Page:
        def build(table: Table) -> tuple[str, Sequence[Any]]:
            sql = Statement(DIALECT, table)
            return sql.select_groups(_aggregate_of(query, table), where), sql.params

        table, rows, _ = await self._collections.select(query.collection, build, db=db)
        if len(rows) > MAX_GROUPS:
            raise too_many_groups()

        def make_page() -> Page:
            aggregate = _aggregate_of(query, table)
            groups = [name_values(aggregate, table.collection, [plain(v) for v in row], from_json) for row in rows]
            return finish_rows(groups, validate_query(query, table.collection), table.collection, self._secret)

        return await asyncio.to_thread(make_page)

    async def _find_near(self, query: Query, where: Filter, db: PostgresConnection | None) -> Page:
        if db is None:
            async with self._engine.snapshot() as snapshot:
                return await self._find_near(query, where, snapshot)
        table = await self._collections.table(query.collection, db)
        valid = validate_query(query, table.collection)
        near = cast("NearVector", valid.near)
        candidates = await select_candidates(db, table, near, where)
        ids, scores = await asyncio.to_thread(find_nearest, candidates, near)
        rows = await db.fetch(select_by_id(table), ids[slice_page(valid, ids, self._secret)])
        items = {item.id: item for item in read_rows(table.item, rows, self._health.report_row)}
        return make_nearest_page(valid, table.collection, ids, scores, items, self._secret)

    async def count(self, collection: str, where: Filter) -> int:
        if has_patterns(where):
            return len(await self.list_ids(collection, where))
        ((count,),) = await self._select(collection, "COUNT(*)", where)
        return count

    async def list_ids(self, collection: str, where: Filter) -> list[str]:
        if has_patterns(where):
            async with self._engine.snapshot() as db:
                where = await self._resolve(Query(collection, where=where), db)
                return [id for (id,) in await self._select(collection, "id", where, db)]
        return [id for (id,) in await self._select(collection, "id", where)]

    async def _select(
        self, collection: str, columns: str, where: Filter, db: PostgresConnection | None = None
    ) -> list[SqlRow]:
        def build(table: Table) -> tuple[str, Sequence[Any]]:
            validate_query(Query(collection, where=where), table.collection)
            sql = Statement(DIALECT, table)
            return sql.select(columns, where), sql.params

        return (await self._collections.select(collection, build, db=db))[1]

    async def _resolve(self, query: Query, db: PostgresConnection) -> Filter:
        """Return the filter of a query with its patterns replaced by the ids they match."""
        table = await self._collections.table(query.collection, db)
        validate_query(query, table.collection)
        return await resolve_patterns(db, table, query.where)

    async def scan(self, collection: str) -> AsyncIterator[list[Item]]:
        async for table, rows in walk(self._collections, collection):
            yield read_rows(table.item, rows, self._health.report_row)

    async def write(self, collection: str, writes: Sequence[Write]) -> list[Change]:
        result = await self.commit([(collection, write) for write in writes])
        return result.changes if result else []

    async def commit(
        self, writes: Sequence[tuple[str, Write]], settle: SettleFunction | None = None
    ) -> CommitResult | None:
        check_ids([write for _, write in writes])
        groups = group_by_collection(writes)

        async def work(db: PostgresConnection, tables: Mapping[str, Table]) -> CommitResult:
            plans: dict[str, WritePlan] = {}
            for name, group in groups.items():
                before = await lock_rows(db, tables[name], [write.id for write in group])
                plans[name] = plan_writes(tables[name].collection, group, before, datetime.now(UTC))
            items = items_in_order(writes, plans)
            table_plans = [(tables[name], plan) for name, plan in plans.items()]
            await self._writer.put_items(db, table_plans)
            if settle:
                await record_settlement(PostgresTransaction(self._engine, db), LEDGER_DIALECT, settle(items))
            changes = [
                change for table, plan in table_plans for change in await self._writer.changes.append(db, table, plan)
            ]
            return CommitResult(changes, items)

        try:
            return await self._writer.write_all(list(groups), work)
        except LeaseLost:
            return None


def _aggregate_of(query: Query, table: Table) -> Aggregate:
    """Return the aggregate of a query with the own names of the table's fields."""
    return cast("Aggregate", validate_query(query, table.collection).aggregate)


def _limit_bytes(rows: str, keys: int, query: Query) -> str:
    """Return a query for the same rows up to the first that no longer fits into the page; always for the first two.

    The first column counts all rows, including those left out. The length of a text is known without reading it.
    """
    names = ", ".join(("id", "data", "revision", "digest", *(f"k{i}" for i in range(keys))))
    if not query.max_bytes:
        return f"SELECT 0 AS count, {names} FROM ({rows}) a"
    size = f"octet_length(data) / {READ_SHARE}" if query.fields else "octet_length(data)"
    before = f"sum({size}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    numbered = f"SELECT {names}, count(*) OVER () AS count, row_number() OVER () AS number, {before} AS before"
    return (
        f"SELECT count, {names} FROM ({numbered} FROM ({rows}) a) b"
        f" WHERE number <= 2 OR before <= {int(query.max_bytes)}"
    )
