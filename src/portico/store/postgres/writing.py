"""Writes of items in PostgreSQL, each with its changes in one transaction; loads and copies write through it too.

A write locks the items it names, and at its very end the one row that numbers changes: numbers are given in the order
in which writes become visible, so that a reader of the feed misses nothing. Locks are taken in one order: the schema of
the table, items by their ids, the numbers of vectors, the numbers of changes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg

from portico.catalog import Collection, FieldType, check_collection_name
from portico.errors import SiteError, Unavailable
from portico.items import Change, Item
from portico.store.database import SqlRow
from portico.store.encoding import to_micros
from portico.store.ledger import LedgerBackup
from portico.store.planning import WritePlan, group_by_source, plan_load, plan_removal, plan_restore
from portico.store.postgres.changes import PostgresChanges
from portico.store.postgres.collections import ATTEMPTS, PostgresCollections, pauses, schema_busy
from portico.store.postgres.engine import WRITE_SECONDS, LockBusy, PostgresConnection, PostgresEngine
from portico.store.postgres.ledger import PostgresLedger, PostgresTransaction
from portico.store.postgres.tables import insert_rows, update_rows
from portico.store.postgres.vectors import field_tag, put_field_vectors, put_vectors
from portico.store.records import Load, LoadResult, Put, SourcedItem
from portico.store.tables import ADOPT_BATCH, SCAN_BATCH, StoredRow, Table, load_superseded
from portico.store.vectors import VectorReader

T = TypeVar("T")


class PostgresWriter:
    """Executes write plans."""

    def __init__(self, engine: PostgresEngine, collections: PostgresCollections, changes: PostgresChanges) -> None:
        self._engine = engine
        self.collections = collections
        self.changes = changes

    async def write(self, collection: str, work: Callable[[PostgresConnection, Table], Awaitable[T]]) -> T:
        return await self.write_all([collection], lambda db, tables: work(db, tables[collection]))

    async def write_all(
        self, collections: Sequence[str], work: Callable[[PostgresConnection, Mapping[str, Table]], Awaitable[T]]
    ) -> T:
        """Run work in a transaction in which tables keep their columns.

        It runs again if it needs more columns or conflicts with another write.
        """
        attempts, missing = 0, None
        for pause in pauses(WRITE_SECONDS):
            try:
                if missing:
                    await self.collections.reshape(missing.name, missing.add_to)
                    missing = None
                # Writers share the locks and do not wait for each other, only for a change of the columns.
                async with self._engine.transaction(shared=[f"shape/{name}" for name in collections]) as db:
                    return await work(db, {name: await self.collections.table(name, db) for name in collections})
            except LockBusy:
                await asyncio.sleep(pause)
                continue
            except MissingColumns as error:
                missing = error
            except ConcurrentInsert:
                await asyncio.sleep(pause)
            except SiteError as error:
                if not await self._resolve(collections, error.__cause__):
                    raise
                await asyncio.sleep(pause)
            attempts += 1
            if attempts == ATTEMPTS:
                names = ", ".join(collections)
                raise Unavailable(f"Too many writers change {names} at the same time", hint="Try again.")
        raise schema_busy(", ".join(collections))

    async def _resolve(self, collections: Sequence[str], fault: BaseException | None) -> bool:
        """Return whether the fault of a write is over, so that it can be repeated."""
        match fault:
            case asyncpg.DeadlockDetectedError() | asyncpg.SerializationError():
                return True
            case asyncpg.ProgramLimitExceededError() if "index row" in str(fault):
                for name in collections:
                    await self._drop_text_indexes(name, fault.constraint_name)
                return True
            case _:
                return False

    async def _drop_text_indexes(self, collection: str, name: str | None) -> None:
        """Drop the index that a text is too long for; all indexes of texts if the fault does not name it."""
        table = await self.collections.table(collection)
        columns = [c for name, c in table.columns.items() if table.collection.fields[name].type == FieldType.STRING]
        indexes = [f"{table.name}_{column}" for column in columns]
        async with self._engine.transaction() as db:
            await db.execute("SET LOCAL lock_timeout = '1s'")
            for index in [name] if name in indexes else indexes:
                await db.execute(f"DROP INDEX IF EXISTS {index}")

    async def apply(
        self, db: PostgresConnection, table: Table, plan: WritePlan, source: str | None = None
    ) -> list[Change]:
        """Write the items and changes of a plan. Items keep their source unless there is a new one."""
        await self.put_items(db, [(table, plan)], source)
        return await self.changes.append(db, table, plan)

    async def put_items(
        self, db: PostgresConnection, plans: Sequence[tuple[Table, WritePlan]], source: str | None = None
    ) -> None:
        """Write the items of plans, then their vectors: the locks of all tables are taken in one order."""
        for table, plan in plans:
            if plan.collection is not table.collection:
                raise MissingColumns(plan)
        for table, plan in plans:
            at = to_micros(plan.at)
            created, updated, removed = plan.inserts, plan.updates, plan.deletes
            if created and await insert_rows(db, table, created, source or "", at) < len(created):
                raise ConcurrentInsert
            if updated:
                await update_rows(db, table, updated, source, at)
            if removed:
                await db.execute(f"DELETE FROM {table.name} WHERE id = ANY($1::text[])", removed)
                await db.execute(
                    "DELETE FROM vectors WHERE collection = $1 AND id = ANY($2::text[])", table.number, removed
                )
        for table, plan in plans:
            for field in table.vector_fields:
                await put_field_vectors(db, table, field, [*plan.inserts, *plan.updates])


class PostgresLoads:
    """See `LoadStore`."""

    def __init__(self, engine: PostgresEngine, writer: PostgresWriter) -> None:
        self._engine = engine
        self._writer = writer
        self._collections = writer.collections

    async def begin(self, source: str) -> Load:
        async with self._engine.transaction() as db:
            await PostgresTransaction(self._engine, db).lock("runs")
            # A running batch of another run ends first. What an interrupted run had seen is of no use.
            await db.fetch("SELECT run FROM runs WHERE source = $1 FOR UPDATE", source)
            await db.execute("DELETE FROM seen WHERE run IN (SELECT run FROM runs WHERE source = $1)", source)
            await db.execute("DELETE FROM runs WHERE source = $1", source)
            return Load(await db.fetchval("INSERT INTO runs (source) VALUES ($1) RETURNING run", source), source)

    async def adopt(self, load: Load, collection: str, source: str) -> None:
        async def work(db: PostgresConnection, table: Table) -> int:
            await _check_current(db, load)
            rows = await db.fetch(
                f"SELECT id FROM {table.name} WHERE source = $1 ORDER BY id LIMIT $2 FOR UPDATE", source, ADOPT_BATCH
            )
            ids = [id for (id,) in rows]
            await db.execute(f"UPDATE {table.name} SET source = $1 WHERE id = ANY($2::text[])", load.source, ids)
            return len(ids)

        while await self._writer.write(collection, work) == ADOPT_BATCH:
            pass

    async def is_shared(self, load: Load, collection: str) -> bool:
        async def work(db: PostgresConnection, table: Table) -> bool:
            # Two ranges: the index on the source answers each of them with its first entry.
            return await db.fetchval(
                f"SELECT EXISTS (SELECT 1 FROM {table.name} WHERE source < $1)"
                f" OR EXISTS (SELECT 1 FROM {table.name} WHERE source > $1)",
                load.source,
            )

        return await self._writer.write(collection, work)

    async def put(self, load: Load, collection: str, puts: Sequence[Put]) -> LoadResult:
        if collection not in await self._collections.refresh():
            check_collection_name(collection)
            await self._collections.reshape(collection, lambda before: before or Collection(collection))
        ids = [put.id for put in puts]

        async def work(db: PostgresConnection, table: Table) -> LoadResult:
            await _check_current(db, load)
            before = await lock_rows(db, table, ids)
            rows = await db.fetch(
                "SELECT id FROM seen WHERE run = $1 AND collection = $2 AND id = ANY($3::text[])",
                *(load.run, table.number, ids),
            )
            plan = plan_load(table.collection, puts, before, {id for (id,) in rows}, datetime.now(UTC))
            await self._writer.apply(db, table, plan.writes, load.source)
            if plan.unchanged:
                await _set_source(db, table, load.source, plan.unchanged)
            await db.execute(
                "INSERT INTO seen SELECT $1, $2, unnest($3::text[]) ON CONFLICT DO NOTHING", load.run, table.number, ids
            )
            return plan.result

        return await self._writer.write(collection, work)

    async def finish(self, load: Load) -> int:
        removed = 0
        for name in await self._collections.refresh():
            while count := await self._writer.write(name, lambda db, table: self._remove_unseen(db, table, load)):
                removed += count
        async with self._engine.transaction() as db:
            await db.execute("DELETE FROM runs WHERE run = $1", load.run)
            await db.execute("DELETE FROM seen WHERE run = $1", load.run)
        return removed

    async def _remove_unseen(self, db: PostgresConnection, table: Table, load: Load) -> int:
        await _check_current(db, load)
        rows = await db.fetch(
            # Not as a join: what was just seen is not in the planner's statistics yet.
            f"SELECT id FROM {table.name} WHERE source = $1"
            " EXCEPT SELECT id FROM seen WHERE run = $2 AND collection = $3 LIMIT 500",
            *(load.source, load.run, table.number),
        )
        before = await lock_rows(db, table, [id for (id,) in rows], load.source)
        return len(await self._writer.apply(db, table, plan_removal(table.collection, before, datetime.now(UTC))))


class PostgresVectors(VectorReader):
    """See `VectorStore`."""

    def __init__(self, writer: PostgresWriter, report: Callable[[Any], None]) -> None:
        super().__init__(writer.collections, report, field_tag)
        self._writer = writer

    async def put(self, collection: str, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None:
        await self._writer.write(collection, lambda db, table: put_vectors(db, table, model, rows))


class PostgresBackup(LedgerBackup):
    """See `BackupStore`."""

    def __init__(self, ledger: PostgresLedger, writer: PostgresWriter) -> None:
        super().__init__(ledger)
        self._writer = writer

    async def read_items(self, collection: str) -> AsyncIterator[list[SourcedItem]]:
        async for table, rows in walk(self._writer.collections, collection, ", source"):
            yield [SourcedItem(table.item(*row[:4]), row[4]) for row in rows]

    async def restore_items(self, collection: str, items: Sequence[SourcedItem]) -> int:
        restored = 0
        for source, group in group_by_source(items):

            async def work(
                db: PostgresConnection, table: Table, source: str = source, group: list[Item] = group
            ) -> int:
                before = await lock_rows(db, table, [item.id for item in group])
                plan = plan_restore(table.collection, group, before, datetime.now(UTC))
                changes = await self._writer.apply(db, table, plan, source)
                await _set_source(db, table, source, list(before))
                await db.execute(
                    "DELETE FROM vectors WHERE collection = $1 AND field = '' AND id = ANY($2::text[])",
                    *(table.number, [row.item.id for row in plan.updates]),
                )
                return len(changes)

            restored += await self._writer.write(collection, work)
        return restored

    async def advance_feed(self, seq: int) -> None:
        await self._writer.changes.advance(seq)


class MissingColumns(Exception):
    """The table lacks columns for some fields of the items to be written."""

    def __init__(self, plan: WritePlan) -> None:
        super().__init__(f"{plan.collection.name} has no columns for the new fields")
        self.name = plan.collection.name
        self._datas = [
            (change.item.data, keeps_types)
            for change, keeps_types in zip(plan.changes, plan.keeps_types, strict=True)
            if change.kind != "delete"
        ]

    def add_to(self, collection: Collection | None) -> Collection:
        """Return the present collection, with the fields of the items to be written."""
        target = collection or Collection(self.name)
        for data, keeps_types in self._datas:
            target = target.widen(data, keeps_types=keeps_types)
        return target


class ConcurrentInsert(Exception):
    """Another process created the same item at the same time."""


def select_by_id(table: Table) -> str:
    return f"SELECT id, data, revision, digest FROM {table.name} WHERE id = ANY($1::text[])"


async def lock_rows(
    db: PostgresConnection, table: Table, ids: Sequence[str], source: str | None = None
) -> dict[str, StoredRow]:
    """Lock items until the transaction ends, in one order, so that there are no deadlocks.

    With a source, only lock items that still belong to it.
    """
    only = "($2::text IS NULL OR source = $2)"
    rows = await db.fetch(f"{select_by_id(table)} AND {only} ORDER BY id FOR UPDATE", list(ids), source)
    return {row[0]: table.row_before(*row) for row in rows}


async def walk(
    collections: PostgresCollections, collection: str, more: str = ""
) -> AsyncIterator[tuple[Table, list[SqlRow]]]:
    """Yield all rows, in batches, ordered by id."""
    last = ""
    while True:

        def build(table: Table, after: str = last) -> tuple[str, Sequence[Any]]:
            columns = f"id, data, revision, digest{more}"
            return f"SELECT {columns} FROM {table.name} WHERE id > $1 ORDER BY id LIMIT {SCAN_BATCH}", [after]

        table, rows = await collections.read_bulk(collection, build, lambda table, rows: (table, list(rows)))
        if not rows:
            return
        last = rows[-1][0]
        yield table, rows


async def _set_source(db: PostgresConnection, table: Table, source: str, ids: Sequence[str]) -> None:
    await db.execute(f"UPDATE {table.name} SET source = $1 WHERE id = ANY($2::text[]) AND source <> $1", source, ids)


async def _check_current(db: PostgresConnection, load: Load) -> None:
    """Raise Conflict if another load of the source has begun; let none begin before the transaction ends."""
    if not await db.fetchval("SELECT 1 FROM runs WHERE run = $1 FOR SHARE", load.run):
        raise load_superseded(load)
