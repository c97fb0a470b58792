"""The store on SQLite: typed columns, one writer, many readers, a change with every write."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import apsw
import numpy as np

from portico.catalog import Collection, Field, FieldType, check_collection_name
from portico.items import Change, Item, problem_with
from portico.query import Aggregate, Filter, Near, Page, Query, checked, conditions, make_cursor
from portico.rows import finish_rows
from portico.store import Committed, Load, Put, Record, Settle, VectorRow, Write, Written
from portico.store.health import Health
from portico.store.ledger import LeaseLost, micros, moment
from portico.store.nearest import nearest, page_of_nearest, part_shown
from portico.store.planning import (
    Plan,
    by_collection,
    by_source,
    check_ids,
    items_in_order,
    plan_load,
    plan_removal,
    plan_restoring,
    plan_writes,
)
from portico.store.sql import MAX_GROUPS, Statement, ordering, shown_row, too_many_groups
from portico.store.sqlite.dialect import DIALECT
from portico.store.sqlite.engine import READERS, TABLES, Database, Engine
from portico.store.sqlite.ledger import SqliteLedger, record_settlement
from portico.store.tables import (
    ADOPTED_AT_ONCE,
    INDEXED_COLUMNS,
    INDEXED_FROM,
    INDEXED_LENGTH,
    SCAN_BATCH,
    Row,
    Schema,
    Table,
    column_number,
    combined,
    decode,
    feed_expired,
    fill_page,
    from_json,
    overtaken,
    position_of,
    read_changes,
    read_rows,
    read_table,
    refilled,
    relearned,
    reshaped,
    text,
    undeclared,
)

CHECK_SECONDS = 600.0  # that reading everything may take
MAX_PROBLEMS = 10  # that are told of at once
FEED_COLUMNS = "seq, collection, id, kind, version, data, patch, undo, at"
POLL_SECONDS = 0.25  # how soon a change of another process is seen
PATTERNS = READERS // 2  # queries with patterns at once

T = TypeVar("T")


class SqliteStore(SqliteLedger):
    """See `Store`. Other processes may use the same file: they see each other's writes within a moment."""

    def __init__(self, path: str, *, keep_changes: int, seconds: float) -> None:
        self._patterns = asyncio.Semaphore(PATTERNS)
        self.url = f"sqlite:///{path}"
        self._keep_changes = keep_changes
        super().__init__(Engine(path, seconds))
        self.health = Health(self.save_blob, self._find_damage)
        self._engine.report = self.health.report
        self._known = Schema(-1, {})
        self._lock = threading.Lock()
        self._secret = b""
        self._head = 0
        self._woken = asyncio.Event()

    @classmethod
    async def open(cls, path: str, *, keep_changes: int, seconds: float) -> "SqliteStore":
        store = await asyncio.to_thread(cls, path, keep_changes=keep_changes, seconds=seconds)
        store._secret = await store._engine.read(
            lambda db: bytes(_one(db, "SELECT value FROM meta WHERE key = 'secret'"))
        )
        await store.refresh()
        return store

    @property
    def secret(self) -> bytes:
        return self._secret

    @property
    def schema(self) -> Mapping[str, Collection]:
        return self._known.collections

    def stamp(self) -> int | None:
        return self._engine.stamp()

    async def close(self) -> None:
        await self.health.close()
        await self._engine.close()

    async def refresh(self) -> Mapping[str, Collection]:
        # Not what is known: that may be of a transaction that has not ended yet.
        return (await self._engine.read(self._see_schema)).collections

    def _see_schema(self, db: Database) -> Schema:
        """What is known of collections in the transaction at hand; remembered unless something newer already is."""
        known = self._known
        number = _one(db, "SELECT value FROM meta WHERE key = 'schema'")
        if number == known.number:
            return known
        fresh = Schema(number, {table.collection.name: table for table in _read_tables(db)})
        with self._lock:
            if number > self._known.number:
                self._known = fresh
        return fresh

    def _table(self, db: Database, name: str) -> Table:
        return self._see_schema(db).table(name)

    # Collections

    async def declare(self, collection: Collection) -> Collection:
        known = (await self.refresh()).get(collection.name)
        if known and known == combined(known, collection):
            return known

        def work(db: Database) -> Collection:
            known = self._see_schema(db).tables.get(collection.name)
            wanted = combined(known.collection, collection) if known else collection
            if known and known.collection == wanted:
                return wanted
            table = known or self._create(db, collection.name)
            wanted = _relearned(db, table, wanted)
            self._reshape(db, table, wanted)
            return wanted

        return await self._write(work)

    def _create(self, db: Database, name: str) -> Table:
        check_collection_name(name)
        db.execute("INSERT INTO collections (name, about) VALUES (?, '{}')", (name,))
        number = db.last_insert_rowid()
        db.execute(
            f"CREATE TABLE items_{number} (id TEXT PRIMARY KEY, data TEXT NOT NULL, revision INTEGER NOT NULL,"
            " digest TEXT NOT NULL, source TEXT NOT NULL, at INTEGER NOT NULL)"
        )
        db.execute(f"CREATE INDEX items_{number}_source ON items_{number} (source)")
        return Table(number, Collection(name), {})

    def _reshape(self, db: Database, table: Table, wanted: Collection) -> Table:
        """Store a collection's new description, adding and refilling columns as its fields demand."""
        there = {row[1] for row in db.execute(f"PRAGMA table_info({table.name})")}
        # SQLite's columns take any type, so a field keeps its column when its type changes.
        new = reshaped(table, wanted, max(map(column_number, there)), lambda before, now: True)
        for column in new.columns.values():
            if column not in there:
                db.execute(f"ALTER TABLE {table.name} ADD COLUMN {column}")
        db.execute("UPDATE collections SET about = ? WHERE number = ?", (new.about, new.number))
        db.execute("DELETE FROM fields WHERE collection = ?", (new.number,))
        db.executemany("INSERT INTO fields VALUES (?, ?, ?, ?, ?, ?, ?, ?)", new.field_rows())
        db.execute("UPDATE meta SET value = value + 1 WHERE key = 'schema'")
        fresh = refilled(table, new)
        if fresh and _one(db, f"SELECT 1 FROM {table.name} LIMIT 1"):
            _refill(db, new, [f for f in fresh if f.name in new.columns])
            _refill_vectors(db, new, [f for f in fresh if f.type == FieldType.VECTOR])
        self._see_schema(db)
        return new

    async def _write(self, work: Callable[[Database], T]) -> T:
        """A transaction; if it fails, what was learnt of the schema inside it is forgotten again."""
        return await self._engine.write(work, self._forget_schema)

    def _forget_schema(self) -> None:
        with self._lock:
            self._known = replace(self._known, number=-1)

    # Reading

    async def get(self, collection: str, id: str) -> Item | None:
        if problem_with(id, {}):
            return None

        def work(db: Database) -> Item | None:
            table = self._table(db, collection)
            return next((table.item(*row) for row in _select_rows(db, table, [id])), None)

        return await self._engine.read(work)

    async def get_many(self, collection: str, ids: Sequence[str]) -> dict[str, Item]:
        ids = [id for id in ids if not problem_with(id, {})]
        return await self._engine.read(lambda db: self._items(db, self._table(db, collection), ids))

    def _items(self, db: Database, table: Table, ids: Sequence[str]) -> dict[str, Item]:
        items = read_rows(table.item, _select_rows(db, table, ids), self.health.report_row)
        return {item.id: item for item in items}

    async def find(self, query: Query) -> Page:
        def work(db: Database) -> Page:
            table = self._table(db, query.collection)
            asked = checked(query, table.collection)
            if asked.aggregate:
                return self._group(db, table, asked, asked.aggregate)
            if asked.near:
                return self._near(db, table, asked, asked.near)
            return self._page(db, table, asked)

        return await self._read(work, query.where)

    async def _read(self, work: Callable[[Database], T], where: Filter) -> T:
        """Patterns take their time: others find a reader meanwhile."""
        if not any(each.op == "regex" for each in conditions(where)):
            return await self._engine.read(work)
        async with self._patterns:
            return await self._engine.read(work)

    def cursor(self, query: Query, last: Item) -> str:
        return _statement(self._known.table(query.collection)).cursor(query, last, self._secret)

    def _page(self, db: Database, table: Table, query: Query) -> Page:
        sql = _statement(table)
        where = sql.where(query.where)
        total = None
        if query.count:
            total = _one(db, f"SELECT COUNT(*) FROM {table.name} WHERE {where}", sql.params)
        terms = sql.order(query.order)
        kinds = sql.kinds(query.order)
        if query.cursor:
            where = f"({where} AND {sql.after(terms, position_of(query, kinds, self._secret))})"
        keys = ", ".join(term.sql for term in terms)
        order = ordering(terms)
        rows = db.execute(
            f"SELECT id, data, revision, digest, {keys} FROM {table.name} WHERE {where} ORDER BY {order}"
            f" LIMIT {query.limit + 1}",
            sql.params,
        )
        items, position = fill_page(rows, query, table, self.health.report_row)
        cursor = make_cursor(query, (kinds, *position), self._secret) if position else ""
        return Page(items, total=total, cursor=cursor)

    def _group(self, db: Database, table: Table, query: Query, aggregate: Aggregate) -> Page:
        try:
            rows = _grouped(db, table, _statement(table), query, aggregate)
        except apsw.SQLError:  # a sum of whole numbers beyond 64 bits
            rows = _grouped(db, table, replace(_statement(table), float_sums=True), query, aggregate)
        if len(rows) > MAX_GROUPS:
            raise too_many_groups()
        named = [shown_row(aggregate, table.collection, row, from_json) for row in rows]
        return finish_rows(named, query, table.collection, self._secret)

    def _near(self, db: Database, table: Table, query: Query, near: Near) -> Page:
        sql = _statement(table)
        where = sql.where(query.where)
        number, wanted = sql.bind(table.number), sql.bind(near.field)
        rows = db.execute(
            f"SELECT v.id, v.vector FROM vectors v JOIN {table.name} USING (id)"
            f" WHERE {where} AND v.collection = {number} AND v.field = {wanted} ORDER BY v.id",
            sql.params,
        )
        ids, scores = nearest(((id, vector) for id, vector in rows), near)
        found = self._items(db, table, ids[part_shown(query, ids, self._secret)])
        return page_of_nearest(query, table.collection, ids, scores, found, self._secret)

    async def count(self, collection: str, where: Filter) -> int:
        def work(db: Database) -> int:
            table = self._table(db, collection)
            checked(Query(collection, where=where), table.collection)
            sql = _statement(table)
            return _one(db, f"SELECT COUNT(*) FROM {table.name} WHERE {sql.where(where)}", sql.params)

        return await self._engine.read(work)

    async def matching(self, collection: str, where: Filter) -> list[str]:
        def work(db: Database) -> list[str]:
            table = self._table(db, collection)
            checked(Query(collection, where=where), table.collection)
            sql = _statement(table)
            return [id for (id,) in db.execute(f"SELECT id FROM {table.name} WHERE {sql.where(where)}", sql.params)]

        return await self._read(work, where)

    async def scan(self, collection: str) -> AsyncIterator[list[Item]]:
        last = 0
        while True:

            def work(db: Database, after: int = last) -> tuple[list[Item], int | None]:
                table = self._table(db, collection)
                rows = db.execute(
                    f"SELECT rowid, id, data, revision, digest FROM {table.name} WHERE rowid > ?"
                    f" ORDER BY rowid LIMIT {SCAN_BATCH}",
                    (after,),
                ).fetchall()
                items = read_rows(table.item, (row[1:] for row in rows), self.health.report_row)
                return items, rows[-1][0] if rows else None

            items, end = await self._engine.read(work)
            if end is None:
                return
            last = end
            yield items

    # Writing

    async def write(self, collection: str, writes: Sequence[Write]) -> list[Change]:
        committed = await self.commit([(collection, write) for write in writes])
        return committed.changes if committed else []

    async def commit(self, writes: Sequence[tuple[str, Write]], settle: Settle | None = None) -> Committed | None:
        check_ids([write for _, write in writes])
        groups = by_collection(writes)

        def work(db: Database) -> tuple[Committed, bool]:
            plans: dict[str, Plan] = {}
            changes: list[Change] = []
            for name, group in groups.items():
                table = self._table(db, name)
                before = _rows_before(db, table, [write.id for write in group])
                plans[name] = plan_writes(table.collection, group, before, _moment())
                changes += self._carry_out(db, table, plans[name])
            items = items_in_order(writes, plans)
            is_news = record_settlement(db, settle(items)) if settle else False
            return Committed(changes, items), is_news

        try:
            committed, is_news = await self._write(work)
        except LeaseLost:
            return None
        self._announce(committed.changes)
        if is_news:
            self._tell()
        return committed

    def _carry_out(self, db: Database, table: Table, plan: Plan, source: str | None = None) -> list[Change]:
        """Write what a plan says. Items keep their source unless a new one is given."""
        if plan.collection is not table.collection:
            table = self._reshape(db, table, plan.collection)
        columns = list(table.columns.values())
        names = ["id", "data", "revision", "digest", "source", "at", *columns]
        sets = ["data", "revision", "digest", "at", *columns, *(["source"] if source is not None else [])]
        rows = [row for row in plan.after.values() if row]
        db.executemany(
            f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in sets)}",
            [
                (r.item.id, r.raw, r.revision, r.digest, source or "", micros(plan.at), *table.values(r.item.data))
                for r in rows
            ],
        )
        for known in table.vector_fields:
            for row in rows:
                _put_vector_field(db, table, row.item.id, row.item.data, known)
        for id in plan.removed:
            db.execute(f"DELETE FROM {table.name} WHERE id = ?", (id,))
            db.execute("DELETE FROM vectors WHERE collection = ? AND id = ?", (table.number, id))
        return [self._append(db, table, change, raw) for change, raw in zip(plan.changes, plan.raws, strict=True)]

    def _append(self, db: Database, table: Table, change: Change, raw: str) -> Change:
        """Write a change into the feed, in the transaction of what it tells; it gets its number here."""
        item = change.item
        db.execute(
            "INSERT INTO changes (collection, id, kind, version, data, patch, undo, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                table.number,
                item.id,
                change.kind,
                item.version,
                raw,
                text(change.patch),
                text(change.undo),
                micros(change.at),
            ),
        )
        seq = db.last_insert_rowid()
        if seq % 1000 == 0:
            db.execute("DELETE FROM changes WHERE seq <= ?", (seq - self._keep_changes,))
        return replace(change, seq=seq)

    # Loading

    async def begin_load(self, source: str) -> Load:
        def work(db: Database) -> Load:
            # What a killed run had seen is of no use: this one sees everything again.
            db.execute("DELETE FROM seen WHERE run IN (SELECT run FROM runs WHERE source = ?)", (source,))
            db.execute("DELETE FROM runs WHERE source = ?", (source,))
            db.execute("INSERT INTO runs (source, at) VALUES (?, ?)", (source, _now()))
            return Load(db.last_insert_rowid(), source)

        return await self._write(work)

    async def adopt(self, load: Load, collection: str, source: str) -> None:
        def work(db: Database) -> int:
            _check_not_overtaken(db, load)
            table = self._table(db, collection)
            db.execute(
                f"UPDATE {table.name} SET source = ?"
                f" WHERE id IN (SELECT id FROM {table.name} WHERE source = ? LIMIT ?)",
                (load.source, source, ADOPTED_AT_ONCE),
            )
            return db.changes()

        while await self._write(work) == ADOPTED_AT_ONCE:
            pass

    async def load(self, load: Load, collection: str, puts: Sequence[Put]) -> Written:
        def work(db: Database) -> tuple[Written, list[Change]]:
            _check_not_overtaken(db, load)
            if collection not in self._see_schema(db).tables:
                self._reshape(db, self._create(db, collection), Collection(collection))
            table = self._table(db, collection)
            ids = [put.id for put in puts]
            before = _rows_before(db, table, ids)
            planned = plan_load(table.collection, puts, before, _already_seen(db, table, load, ids), _moment())
            db.executemany(
                f"UPDATE {table.name} SET source = ?1 WHERE id = ?2 AND source <> ?1",
                [(load.source, id) for id in planned.claimed],
            )
            db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", [(load.run, table.number, id) for id in ids])
            return planned.written, self._carry_out(db, table, planned.plan, load.source)

        written, changes = await self._write(work)
        self._announce(changes)
        return written

    async def finish_load(self, load: Load) -> int:
        removed = 0
        for name in await self.refresh():
            while count := await self._forget(load, name):
                removed += count

        def work(db: Database) -> None:
            db.execute("DELETE FROM seen WHERE run = ?", (load.run,))
            db.execute("DELETE FROM runs WHERE run = ?", (load.run,))

        await self._write(work)
        return removed

    async def _forget(self, load: Load, collection: str) -> int:
        def work(db: Database) -> list[Change]:
            _check_not_overtaken(db, load)
            table = self._table(db, collection)
            gone = db.execute(
                f"SELECT id FROM {table.name} i WHERE source = ? AND NOT EXISTS (SELECT 1 FROM seen s"
                " WHERE s.run = ? AND s.collection = ? AND s.id = i.id) LIMIT 500",
                (load.source, load.run, table.number),
            ).fetchall()
            before = _rows_before(db, table, [id for (id,) in gone])
            return self._carry_out(db, table, plan_removal(table.collection, before, _moment()))

        changes = await self._write(work)
        self._announce(changes)
        return len(changes)

    async def optimise(self, collection: str) -> None:
        def work(db: Database) -> None:
            table = self._table(db, collection)
            if _one(db, f"SELECT COUNT(*) FROM {table.name}") < INDEXED_FROM:
                return
            for column in _worth_indexing(db, table):
                db.execute(f"CREATE INDEX IF NOT EXISTS {table.name}_{column} ON {table.name} ({column})")
            db.execute(f"ANALYZE {table.name}")

        await self._write(work)

    # The feed

    async def head(self) -> int:
        return await self._engine.read(_newest)

    async def changes(self, since: int, limit: int = 1000, collection: str | None = None) -> list[Change]:
        def work(db: Database) -> list[Change]:
            schema = self._see_schema(db)
            newest = _newest(db)
            oldest = _one(db, "SELECT min(seq) FROM changes") or newest + 1
            if since < oldest - 1 or since > newest:
                raise feed_expired(since, oldest, newest)
            only = "" if collection is None else f"AND collection = {schema.table(collection).number}"
            rows = db.execute(
                f"SELECT {FEED_COLUMNS} FROM changes WHERE seq > ? {only} ORDER BY seq LIMIT ?",
                (since, limit),
            )
            return read_changes(schema.names, rows, self.health.report_row)

        return await self._engine.read(work)

    async def wait(self, seq: int, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while True:
            self._woken.clear()
            head = await self.head()
            left = deadline - time.monotonic()
            if head > seq or left <= 0:
                return head
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, POLL_SECONDS)):
                    await self._woken.wait()

    def _announce(self, changes: Sequence[Change]) -> None:
        if changes and changes[-1].seq > self._head:
            self._head = changes[-1].seq
            self._woken.set()

    # Vectors

    async def unembedded(self, collection: str, model: str, limit: int) -> list[tuple[Item, str]]:
        def work(db: Database) -> list[tuple[Item, str]]:
            table = self._table(db, collection)
            rows = db.execute(
                f"SELECT i.id, i.data, i.revision, i.digest FROM {table.name} i LEFT JOIN vectors v"
                " ON v.collection = ? AND v.field = '' AND v.id = i.id"
                " WHERE v.id IS NULL OR v.digest <> i.digest OR v.model <> ? LIMIT ?",
                (table.number, model, limit),
            )
            return [(row.item, row.digest) for row in read_rows(table.row, rows, self.health.report_row)]

        return await self._engine.read(work)

    async def put_vectors(self, collection: str, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None:
        def work(db: Database) -> None:
            table = self._table(db, collection)
            db.executemany(
                # An item that changed or went while its text was being embedded gets no vector.
                "INSERT OR REPLACE INTO vectors (collection, field, id, model, digest, vector)"
                f" SELECT ?1, '', ?3, ?2, ?4, ?5 FROM {table.name} WHERE id = ?3 AND digest = ?4",
                [(table.number, model, *row) for row in rows],
            )

        await self._write(work)

    async def vectors(self, collection: str, field: str, model: str, after: int, limit: int) -> list[VectorRow]:
        def work(db: Database) -> list[VectorRow]:
            table = self._table(db, collection)
            rows = db.execute(
                "SELECT seq, id, digest, vector FROM vectors WHERE collection = ? AND field = ? AND model = ?"
                " AND seq > ? ORDER BY seq LIMIT ?",
                (table.number, field, model, after, limit),
            )
            # One that is not a vector is left to those who know how long it should be.
            return [VectorRow(seq, id, digest, raw if isinstance(raw, bytes) else b"") for seq, id, digest, raw in rows]

        return await self._engine.read(work)

    async def vector_counts(self, collection: str, model: str) -> tuple[int, int]:
        def work(db: Database) -> tuple[int, int]:
            table = self._table(db, collection)
            current = _one(
                db,
                f"SELECT COUNT(*) FROM vectors v JOIN {table.name} i USING (id) WHERE v.collection = ?"
                " AND v.field = '' AND v.model = ? AND v.digest = i.digest",
                (table.number, model),
            )
            return current, _one(db, f"SELECT COUNT(*) FROM {table.name}")

        return await self._engine.read(work)

    # Moving

    async def records(self, collection: str) -> AsyncIterator[list[Record]]:
        last = ""
        while True:

            def work(db: Database, after: str = last) -> list[Record]:
                table = self._table(db, collection)
                rows = db.execute(
                    f"SELECT id, data, revision, digest, source FROM {table.name} WHERE id > ?"
                    f" ORDER BY id LIMIT {SCAN_BATCH}",
                    (after,),
                )
                return [Record(table.item(*row[:4]), row[4]) for row in rows]

            found = await self._engine.read(work)
            if not found:
                return
            last = found[-1].item.id
            yield found

    async def restore(self, collection: str, records: Sequence[Record]) -> int:
        def work(db: Database) -> list[Change]:
            changes: list[Change] = []
            for source, group in by_source(records):
                table = self._table(db, collection)
                before = _rows_before(db, table, [item.id for item in group])
                plan = plan_restoring(table.collection, group, before, _moment())
                changes += self._carry_out(db, table, plan, source)
                db.executemany(
                    f"UPDATE {table.name} SET source = ?1 WHERE id = ?2 AND source <> ?1",
                    [(source, id) for id in before],
                )
                db.executemany(
                    "DELETE FROM vectors WHERE collection = ? AND field = '' AND id = ?",
                    [(table.number, row.item.id) for row in plan.updated],
                )
            return changes

        changes = await self._write(work)
        self._announce(changes)
        return len(changes)

    async def vector_models(self, collection: str) -> list[str]:
        def work(db: Database) -> list[str]:
            rows = db.execute(
                "SELECT DISTINCT model FROM vectors WHERE collection = ? AND field = '' ORDER BY model",
                (self._table(db, collection).number,),
            )
            return [model for (model,) in rows]

        return await self._engine.read(work)

    async def skip_to(self, seq: int) -> None:
        def work(db: Database) -> None:
            if _newest(db) < seq:
                db.execute("DELETE FROM sqlite_sequence WHERE name = 'changes'")
                db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('changes', ?)", (seq,))

        await self._write(work)

    # Health

    async def check(self) -> list[str]:
        return await self._find_damage() or await self._engine.read(self._damaged_rows, seconds=CHECK_SECONDS)

    async def _find_damage(self) -> list[str]:
        def work(db: Database) -> list[str]:
            problems = [str(row[0]) for row in db.execute("PRAGMA quick_check(10)") if row[0] != "ok"]
            return problems or [f"The table {name} is missing" for name in _missing_tables(db)]

        return await self._engine.read(work, seconds=CHECK_SECONDS)

    def _damaged_rows(self, db: Database) -> list[str]:
        """What is wrong with rows of items and of the feed, the first few."""
        schema = self._see_schema(db)
        found: list[str] = []
        for table in schema.tables.values():
            rows = db.execute(f"SELECT id, data, revision, digest FROM {table.name}")
            found += islice(filter(None, (table.find_damage(*row) for row in rows)), MAX_PROBLEMS)
        rows = db.execute(f"SELECT {FEED_COLUMNS} FROM changes ORDER BY seq")
        read_changes(schema.names, rows, lambda error: found.append(error.message))
        return found[:MAX_PROBLEMS]


def _missing_tables(db: Database) -> list[str]:
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return [name for name in (*TABLES, *(table.name for table in _read_tables(db))) if name not in there]


def _statement(table: Table) -> Statement:
    return Statement(DIALECT, table.collection, table.columns)


def _grouped(db: Database, table: Table, sql: Statement, query: Query, aggregate: Aggregate) -> list[tuple[Any, ...]]:
    where = sql.where(query.where)
    keys, computed = sql.group(aggregate)
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return db.execute(
        f"SELECT {', '.join([*keys, *computed])} FROM {table.name} WHERE {where}{grouped} LIMIT {MAX_GROUPS + 1}",
        sql.params,
    ).fetchall()


def _now() -> int:
    return time.time_ns() // 1000


def _moment() -> datetime:
    return moment(_now())


def _one(db: Database, sql: str, params: Sequence[Any] = ()) -> Any:
    row = db.execute(sql, params).fetchone()
    return row[0] if row else None


def _newest(db: Database) -> int:
    return _one(db, "SELECT seq FROM sqlite_sequence WHERE name = 'changes'") or 0


def _rows_before(db: Database, table: Table, ids: Sequence[str]) -> dict[str, Row]:
    """The rows that a write replaces."""
    return {row[0]: table.row_before(*row) for row in _select_rows(db, table, ids)}


def _select_rows(db: Database, table: Table, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    return db.execute(
        f"SELECT id, data, revision, digest FROM {table.name} WHERE id IN (SELECT value FROM json_each(?))",
        (text(list(ids)),),
    ).fetchall()


def _read_tables(db: Database) -> Iterator[Table]:
    for number, name, about in db.execute("SELECT number, name, about FROM collections ORDER BY number").fetchall():
        rows = db.execute(
            "SELECT name, type, path, declared, description, place FROM fields WHERE collection = ? ORDER BY position",
            (number,),
        )
        yield read_table(number, name, about, rows)


def _relearned(db: Database, table: Table, wanted: Collection) -> Collection:
    names = undeclared(table, wanted)
    if names:
        for _, data in _every_row(db, table):
            wanted = relearned(wanted, names, data)
    return wanted


def _every_row(db: Database, table: Table) -> Iterator[tuple[int, dict[str, Any]]]:
    """All items with their row numbers, read in pieces so that memory stays bounded."""
    last = 0
    while rows := db.execute(
        f"SELECT rowid, data FROM {table.name} WHERE rowid > ? ORDER BY rowid LIMIT {SCAN_BATCH}", (last,)
    ).fetchall():
        last = rows[-1][0]
        yield from ((rowid, decode(data)) for rowid, data in rows)


def _refill(db: Database, table: Table, fields: Sequence[Field]) -> None:
    """Compute columns anew from the data."""
    if not fields:
        return
    sets = ", ".join(f"{table.columns[f.name]} = ?" for f in fields)
    for rowid, data in _every_row(db, table):
        values = [f.typed_value(data) for f in fields]
        db.execute(f"UPDATE {table.name} SET {sets} WHERE rowid = ?", (*values, rowid))


def _refill_vectors(db: Database, table: Table, fields: Sequence[Field]) -> None:
    if not fields:
        return
    for rowid, data in _every_row(db, table):
        id = _one(db, f"SELECT id FROM {table.name} WHERE rowid = ?", (rowid,))
        for known in fields:
            _put_vector_field(db, table, id, data, known)


def _worth_indexing(db: Database, table: Table) -> Iterator[str]:
    for name, column in list(table.columns.items())[:INDEXED_COLUMNS]:
        if (
            table.collection.fields[name].type != FieldType.STRING
            or (_one(db, f"SELECT max(length({column})) FROM {table.name}") or 0) <= INDEXED_LENGTH
        ):
            yield column


def _already_seen(db: Database, table: Table, load: Load, ids: Sequence[str]) -> set[str]:
    rows = db.execute(
        "SELECT id FROM seen WHERE run = ? AND collection = ? AND id IN (SELECT value FROM json_each(?))",
        (load.run, table.number, text(list(ids))),
    )
    return {id for (id,) in rows}


def _check_not_overtaken(db: Database, load: Load) -> None:
    if not _one(db, "SELECT 1 FROM runs WHERE run = ?", (load.run,)):
        raise overtaken(load)


def _put_vector_field(db: Database, table: Table, id: str, data: Mapping[str, Any], known: Field) -> None:
    vector = known.vector(data)
    if vector is None:
        db.execute("DELETE FROM vectors WHERE collection = ? AND field = ? AND id = ?", (table.number, known.name, id))
        return
    db.execute(
        "INSERT OR REPLACE INTO vectors (collection, field, id, model, digest, vector) VALUES (?, ?, ?, '', '', ?)",
        (table.number, known.name, id, np.asarray(vector, np.float32).tobytes()),
    )
