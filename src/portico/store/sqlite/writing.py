"""Writes of items in SQLite, each with its changes in one transaction; loads and copies write through it too."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from portico.catalog import Collection
from portico.items import Change
from portico.store.encoding import to_micros
from portico.store.ledger import LedgerBackup
from portico.store.planning import WritePlan, group_by_source, plan_load, plan_removal, plan_restore
from portico.store.records import Load, LoadResult, Put, SourcedItem
from portico.store.sqlite.changes import SqliteChanges
from portico.store.sqlite.collections import SqliteCollections, put_vector_field
from portico.store.sqlite.engine import SqliteDatabase, fetch_value
from portico.store.sqlite.ledger import SqliteLedger
from portico.store.tables import ADOPT_BATCH, SCAN_BATCH, StoredRow, Table, encode_text, load_superseded
from portico.store.vectors import VectorReader

T = TypeVar("T")


class SqliteWriter:
    """Executes write plans."""

    def __init__(self, collections: SqliteCollections, changes: SqliteChanges) -> None:
        self.collections = collections
        self.changes = changes

    async def write(self, work: Callable[[SqliteDatabase], tuple[T, list[Change]]]) -> T:
        """Run a transaction and announce its changes."""
        result, changes = await self.collections.write(work)
        self.changes.announce(changes)
        return result

    def apply(self, db: SqliteDatabase, table: Table, plan: WritePlan, source: str | None = None) -> list[Change]:
        """Write the items and changes of a plan. Items keep their source unless there is a new one."""
        if plan.collection is not table.collection:
            table = self.collections.reshape(db, table, plan.collection)
        columns = list(table.columns.values())
        names = ["id", "data", "revision", "digest", "source", "at", *columns]
        sets = ["data", "revision", "digest", "at", *columns, *(["source"] if source is not None else [])]
        rows = [row for row in plan.after.values() if row]
        db.executemany(
            f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in sets)}",
            [
                (r.item.id, r.raw, r.revision, r.digest, source or "", to_micros(plan.at), *table.values(r.item.data))
                for r in rows
            ],
        )
        for field in table.vector_fields:
            for row in rows:
                put_vector_field(db, table, row.item.id, row.item.data, field)
        for id in plan.deletes:
            db.execute(f"DELETE FROM {table.name} WHERE id = ?", (id,))
            db.execute("DELETE FROM vectors WHERE collection = ? AND id = ?", (table.number, id))
        return self.changes.append(db, table, plan)


class SqliteLoads:
    """See `LoadStore`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._collections = writer.collections

    async def begin(self, source: str) -> Load:
        def work(db: SqliteDatabase) -> Load:
            # What an interrupted run had seen is of no use: this one sees everything again.
            db.execute("DELETE FROM seen WHERE run IN (SELECT run FROM runs WHERE source = ?)", (source,))
            db.execute("DELETE FROM runs WHERE source = ?", (source,))
            db.execute("INSERT INTO runs (source, at) VALUES (?, ?)", (source, to_micros(datetime.now(UTC))))
            return Load(db.last_insert_rowid(), source)

        return await self._collections.write(work)

    async def adopt(self, load: Load, collection: str, source: str) -> None:
        def work(db: SqliteDatabase) -> int:
            _check_current(db, load)
            table = self._collections.table(db, collection)
            db.execute(
                f"UPDATE {table.name} SET source = ?"
                f" WHERE id IN (SELECT id FROM {table.name} WHERE source = ? LIMIT ?)",
                (load.source, source, ADOPT_BATCH),
            )
            return db.changes()

        while await self._collections.write(work) == ADOPT_BATCH:
            pass

    async def is_shared(self, load: Load, collection: str) -> bool:
        def work(db: SqliteDatabase) -> bool:
            table = self._collections.table(db, collection)
            # Two ranges: the index on the source answers each of them with its first entry.
            sql = f"SELECT EXISTS (SELECT 1 FROM {table.name} WHERE source < ?1)"
            sql += f" OR EXISTS (SELECT 1 FROM {table.name} WHERE source > ?1)"
            return bool(fetch_value(db, sql, (load.source,)))

        return await self._collections.write(work)

    async def put(self, load: Load, collection: str, puts: Sequence[Put]) -> LoadResult:
        ids = [put.id for put in puts]

        def work(db: SqliteDatabase) -> tuple[LoadResult, list[Change]]:
            _check_current(db, load)
            if collection not in self._collections.read_schema(db).tables:
                table = self._collections.create(db, collection)
                self._collections.reshape(db, table, Collection(collection))
            table = self._collections.table(db, collection)
            rows = db.execute(
                "SELECT id FROM seen WHERE run = ? AND collection = ? AND id IN (SELECT value FROM json_each(?))",
                (load.run, table.number, encode_text(ids)),
            )
            run_ids = {id for (id,) in rows}
            plan = plan_load(table.collection, puts, rows_before(db, table, ids), run_ids, datetime.now(UTC))
            db.executemany(
                f"UPDATE {table.name} SET source = ?1 WHERE id = ?2 AND source <> ?1",
                [(load.source, id) for id in plan.unchanged],
            )
            db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", [(load.run, table.number, id) for id in ids])
            return plan.result, self._writer.apply(db, table, plan.writes, load.source)

        return await self._writer.write(work)

    async def finish(self, load: Load) -> int:
        removed = 0
        for name in await self._collections.refresh():
            while count := await self._remove_unseen(load, name):
                removed += count

        def work(db: SqliteDatabase) -> None:
            db.execute("DELETE FROM seen WHERE run = ?", (load.run,))
            db.execute("DELETE FROM runs WHERE run = ?", (load.run,))

        await self._collections.write(work)
        return removed

    async def _remove_unseen(self, load: Load, collection: str) -> int:
        def work(db: SqliteDatabase) -> tuple[int, list[Change]]:
            _check_current(db, load)
            table = self._collections.table(db, collection)
            rows = db.execute(
                f"SELECT id FROM {table.name} i WHERE source = ? AND NOT EXISTS (SELECT 1 FROM seen s"
                " WHERE s.run = ? AND s.collection = ? AND s.id = i.id) LIMIT 500",
                (load.source, load.run, table.number),
            ).fetchall()
            before = rows_before(db, table, [id for (id,) in rows])
            changes = self._writer.apply(db, table, plan_removal(table.collection, before, datetime.now(UTC)))
            return len(changes), changes

        return await self._writer.write(work)


class SqliteVectors(VectorReader):
    """See `VectorStore`."""

    def __init__(self, collections: SqliteCollections, report: Callable[[Any], None]) -> None:
        super().__init__(collections, report)
        self._collections = collections

    async def put(self, collection: str, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None:
        def work(db: SqliteDatabase) -> None:
            table = self._collections.table(db, collection)
            db.executemany(
                # An item that was changed or removed while its text was being embedded gets no vector.
                "INSERT OR REPLACE INTO vectors (collection, field, id, model, digest, vector)"
                f" SELECT ?1, '', ?3, ?2, ?4, ?5 FROM {table.name} WHERE id = ?3 AND digest = ?4",
                [(table.number, model, *row) for row in rows],
            )

        await self._collections.write(work)


class SqliteBackup(LedgerBackup):
    """See `BackupStore`."""

    def __init__(self, ledger: SqliteLedger, writer: SqliteWriter) -> None:
        super().__init__(ledger)
        self._writer = writer
        self._collections = writer.collections

    async def read_items(self, collection: str) -> AsyncIterator[list[SourcedItem]]:
        last = ""
        while True:
            items = await self._collections.read_bulk(
                collection,
                lambda table, after=last: (
                    f"SELECT id, data, revision, digest, source FROM {table.name} WHERE id > $1"
                    f" ORDER BY id LIMIT {SCAN_BATCH}",
                    (after,),
                ),
                lambda table, rows: [SourcedItem(table.item(*row[:4]), row[4]) for row in rows],
            )
            if not items:
                return
            last = items[-1].item.id
            yield items

    async def restore_items(self, collection: str, items: Sequence[SourcedItem]) -> int:
        def work(db: SqliteDatabase) -> tuple[int, list[Change]]:
            changes: list[Change] = []
            for source, group in group_by_source(items):
                table = self._collections.table(db, collection)
                before = rows_before(db, table, [item.id for item in group])
                plan = plan_restore(table.collection, group, before, datetime.now(UTC))
                changes += self._writer.apply(db, table, plan, source)
                db.executemany(
                    f"UPDATE {table.name} SET source = ?1 WHERE id = ?2 AND source <> ?1",
                    [(source, id) for id in before],
                )
                db.executemany(
                    "DELETE FROM vectors WHERE collection = ? AND field = '' AND id = ?",
                    [(table.number, row.item.id) for row in plan.updates],
                )
            return len(changes), changes

        return await self._writer.write(work)

    async def advance_feed(self, seq: int) -> None:
        await self._writer.changes.advance(seq)


def rows_before(db: SqliteDatabase, table: Table, ids: Sequence[str]) -> dict[str, StoredRow]:
    """Return the rows that a write replaces."""
    return {row[0]: table.row_before(*row) for row in select_rows(db, table, ids)}


def select_rows(db: SqliteDatabase, table: Table, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    return db.execute(
        f"SELECT id, data, revision, digest FROM {table.name} WHERE id IN (SELECT value FROM json_each(?))",
        (encode_text(list(ids)),),
    ).fetchall()


def _check_current(db: SqliteDatabase, load: Load) -> None:
    if not fetch_value(db, "SELECT 1 FROM runs WHERE run = ?", (load.run,)):
        raise load_superseded(load)
