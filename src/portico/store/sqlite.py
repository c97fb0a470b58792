"""The store on SQLite: typed columns, one writer, many readers, a change with every write."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import apsw
import msgspec
import numpy as np

from portico.catalog import Collection, Field, FieldType, check_collection_name
from portico.errors import (
    AlreadyExists,
    Conflict,
    FeedExpired,
    InvalidCursor,
    InvalidParams,
    InvalidQuery,
    TooLarge,
    UnknownCollection,
    UnknownItem,
    VersionMismatch,
)
from portico.items import Change, ChangeKind, Item, content_hash, diff, merge, problem_with, version_of
from portico.query import (
    Aggregate,
    Filter,
    Near,
    Page,
    Query,
    checked,
    finish_rows,
    make_cursor,
    project,
    read_cursor,
    similarity,
)
from portico.store import Load, Merge, Put, Remove, VectorRow, Write, Written
from portico.store.ledger import micros, moment
from portico.store.sql import MAX_GROUPS, Statement, shown_row
from portico.store.sqlite_dialect import DIALECT
from portico.store.sqlite_engine import Database, Engine
from portico.store.sqlite_ledger import SqliteLedger

INDEXED_FROM = 1000  # items, before columns are worth an index
POLL_SECONDS = 0.25  # how soon a change of another process is seen
SCAN_BATCH = 1000

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Table:
    """A collection as it lies in the database."""

    number: int
    collection: Collection
    columns: Mapping[str, str]  # field -> column

    @property
    def name(self) -> str:
        return f"items_{self.number}"

    @property
    def vector_fields(self) -> list[Field]:
        return [f for f in self.collection.fields.values() if f.type == FieldType.VECTOR]

    def values(self, data: Mapping[str, Any]) -> list[Any]:
        fields = self.collection.fields
        return [fields[name].typed_value(data) for name in self.columns]


@dataclass(frozen=True)
class Schema:
    """All tables as of one change of their shape."""

    number: int
    tables: Mapping[str, Table]

    @cached_property
    def collections(self) -> Mapping[str, Collection]:
        return {name: table.collection for name, table in self.tables.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """A stored item with what is kept beside it."""

    item: Item
    revision: int
    digest: str


class SqliteStore(SqliteLedger):
    """See `Store`. Other processes may use the same file: they see each other's writes within a moment."""

    def __init__(self, path: str, *, keep_changes: int = 100_000) -> None:
        self.url = f"sqlite:///{path}"
        self._keep_changes = keep_changes
        super().__init__(Engine(path))
        self._known = Schema(-1, {})
        self._lock = threading.Lock()
        self._secret = b""
        self._head = 0
        self._woken = asyncio.Event()

    @classmethod
    async def open(cls, path: str, *, keep_changes: int = 100_000) -> "SqliteStore":
        store = await asyncio.get_running_loop().run_in_executor(None, lambda: cls(path, keep_changes=keep_changes))
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

    async def close(self) -> None:
        await self._engine.close()

    async def refresh(self) -> Mapping[str, Collection]:
        await self._engine.read(self._see_schema)
        return self._known.collections

    def _see_schema(self, db: Database) -> Mapping[str, Table]:
        """What is known of collections in the transaction at hand; remembered unless something newer already is."""
        known = self._known
        number = _one(db, "SELECT value FROM meta WHERE key = 'schema'")
        if number == known.number:
            return known.tables
        fresh = Schema(number, {table.collection.name: table for table in _read_tables(db)})
        with self._lock:
            if number > self._known.number:
                self._known = fresh
        return fresh.tables

    def _table(self, db: Database, name: str) -> Table:
        tables = self._see_schema(db)
        table = tables.get(name)
        if table is None:
            raise UnknownCollection(
                f"There is no collection {name!r}",
                collection=name,
                hint=f"Known collections: {', '.join(tables) or 'none yet'}.",
            )
        return table

    # Collections

    async def declare(self, collection: Collection) -> Collection:
        known = (await self.refresh()).get(collection.name)
        if known and known == _combined(known, collection):
            return known

        def work(db: Database) -> Collection:
            known = self._see_schema(db).get(collection.name)
            wanted = _combined(known.collection, collection) if known else collection
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
        about = {k: getattr(wanted, k) for k in ABOUT}
        db.execute("UPDATE collections SET about = ? WHERE number = ?", (_text(about), table.number))
        columns = self._place_columns(db, table, wanted)
        db.execute("DELETE FROM fields WHERE collection = ?", (table.number,))
        db.executemany(
            "INSERT INTO fields VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (table.number, position, f.name, f.type, f.path, f.declared, f.description, columns.get(f.name))
                for position, f in enumerate(wanted.fields.values())
            ],
        )
        db.execute("UPDATE meta SET value = value + 1 WHERE key = 'schema'")
        reshaped = Table(table.number, wanted, columns)
        before = table.collection.fields
        fresh = [f for f in wanted.fields.values() if not _same_storage(before.get(f.name), f)]
        if fresh and _one(db, f"SELECT 1 FROM {table.name} LIMIT 1"):
            _refill(db, reshaped, [f for f in fresh if f.name in columns])
            _refill_vectors(db, reshaped, [f for f in fresh if f.type == FieldType.VECTOR])
        self._see_schema(db)
        return reshaped

    def _place_columns(self, db: Database, table: Table, wanted: Collection) -> dict[str, str]:
        """Which field lies in which column: known ones stay where they are, new ones get a column of their own."""
        columns = {name: column for name, column in table.columns.items() if _is_placed(wanted, name)}
        last = max((int(row[1][1:]) for row in _column_rows(db, table.name)), default=0)
        for name in wanted.fields:
            if _is_placed(wanted, name) and name not in columns:
                last += 1
                columns[name] = f"f{last}"
                db.execute(f"ALTER TABLE {table.name} ADD COLUMN f{last}")
        return columns

    async def _write(self, work: Callable[[Database], T]) -> T:
        """A transaction; if it fails, what was learnt of the schema inside it is forgotten again."""
        try:
            return await self._engine.write(work)
        except BaseException:
            with self._lock:
                self._known = replace(self._known, number=-1)
            raise

    # Reading

    async def get(self, collection: str, id: str) -> Item | None:
        return (await self.get_many(collection, [id])).get(id)

    async def get_many(self, collection: str, ids: Sequence[str]) -> dict[str, Item]:
        ids = [id for id in ids if not problem_with(id, {})]

        def work(db: Database) -> dict[str, Item]:
            table = self._table(db, collection)
            return {row.item.id: row.item for row in _rows(db, table, ids)}

        return await self._engine.read(work)

    async def find(self, query: Query) -> Page:
        def work(db: Database) -> Page:
            table = self._table(db, query.collection)
            asked = checked(query, table.collection)
            if asked.aggregate:
                return self._group(db, table, asked, asked.aggregate)
            if asked.near:
                return self._near(db, table, asked, asked.near)
            return self._page(db, table, asked)

        return await self._engine.read(work)

    def _page(self, db: Database, table: Table, query: Query) -> Page:
        sql = _statement(table)
        where = sql.where(query.where)
        total = None
        if query.count:
            total = _one(db, f"SELECT COUNT(*) FROM {table.name} WHERE {where}", sql.params)
        terms = sql.order(query.order)
        kinds = sql.kinds(query.order)
        if query.cursor:
            where = f"({where} AND {sql.after(terms, _position(query, kinds, self._secret))})"
        keys = ", ".join(term.sql for term in terms)
        order = ", ".join(str(term) for term in terms)
        rows = db.execute(
            f"SELECT id, data, revision, digest, {keys} FROM {table.name} WHERE {where} ORDER BY {order}"
            f" LIMIT {query.limit + 1}",
            sql.params,
        ).fetchall()
        shown = rows[: query.limit]
        more = len(rows) > query.limit
        cursor = make_cursor(query, (kinds, *shown[-1][4:]), self._secret) if more else ""
        items = tuple(project(_row(table, *row[:4]).item, query.fields, table.collection) for row in shown)
        return Page(items, total=total, cursor=cursor)

    def _group(self, db: Database, table: Table, query: Query, aggregate: Aggregate) -> Page:
        sql = _statement(table)
        where = sql.where(query.where)
        keys, computed = sql.group(aggregate)
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        try:
            rows = db.execute(
                f"SELECT {', '.join([*keys, *computed])} FROM {table.name} WHERE {where}{grouped}"
                f" LIMIT {MAX_GROUPS + 1}",
                sql.params,
            ).fetchall()
        except apsw.SQLError as error:
            raise InvalidQuery(f"The aggregate cannot be computed: {error}") from error
        if len(rows) > MAX_GROUPS:
            raise TooLarge(f"More than {MAX_GROUPS} groups", limit=MAX_GROUPS, hint="Group by fewer fields.")
        named = [shown_row(aggregate, table.collection, row, _from_json) for row in rows]
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
        ids, scores = _nearest(rows, near)
        start = 0
        if query.cursor:
            last = read_cursor(query, self._secret)[0]
            start = next((i + 1 for i, id in enumerate(ids) if id == last), len(ids))
        shown = ids[start : start + query.limit]
        more = start + query.limit < len(ids)
        found = {row.item.id: row.item for row in _rows(db, table, shown)}
        return Page(
            tuple(project(found[id], query.fields, table.collection) for id in shown),
            scores=tuple(scores[start : start + query.limit]),
            total=len(ids),
            cursor=make_cursor(query, (shown[-1],), self._secret) if more else "",
        )

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
            sql = _statement(table)
            return [id for (id,) in db.execute(f"SELECT id FROM {table.name} WHERE {sql.where(where)}", sql.params)]

        return await self._engine.read(work)

    async def scan(self, collection: str) -> AsyncIterator[list[Item]]:
        last = 0
        while True:

            def work(db: Database, after: int = last) -> tuple[list[Item], int]:
                table = self._table(db, collection)
                rows = db.execute(
                    f"SELECT rowid, id, data, revision, digest FROM {table.name} WHERE rowid > ?"
                    f" ORDER BY rowid LIMIT {SCAN_BATCH}",
                    (after,),
                ).fetchall()
                return [_row(table, *row[1:]).item for row in rows], rows[-1][0] if rows else after

            items, last = await self._engine.read(work)
            if not items:
                return
            yield items

    # Writing

    async def write(self, collection: str, writes: Sequence[Write]) -> list[Change]:
        def work(db: Database) -> list[Change]:
            table = self._table(db, collection)
            for each in writes:
                _check_id(each.id)
            before = {row.item.id: row for row in _rows(db, table, [w.id for w in writes])}
            changes: list[Change] = []
            for each in writes:
                table, change = self._apply(db, table, each, before)
                changes.extend(change)
            return changes

        changes = await self._write(work)
        self._announce(changes[-1].seq if changes else 0)
        return changes

    def _apply(self, db: Database, table: Table, write: Write, before: dict[str, Row]) -> tuple[Table, list[Change]]:
        old = before.get(write.id)
        _check_expected(table, write, old)
        if isinstance(write, Remove):
            if old is None:
                raise _missing(table, write.id)
            del before[write.id]
            return table, [self._remove(db, table, old)]
        if isinstance(write, Merge) and old is None:
            raise _missing(table, write.id)
        data = merge(old.item.data, write.data) if isinstance(write, Merge) and old else dict(write.data)
        put = Put(write.id, data)
        table = self._room_for(db, table, [put])
        digest = _checked_digest(put)
        if old and old.digest == digest:
            return table, []
        row, change = self._put(db, table, put, digest, old, source="")
        before[write.id] = row
        return table, [change]

    def _room_for(self, db: Database, table: Table, puts: Iterable[Put]) -> Table:
        wanted = table.collection
        for put in puts:
            wanted = wanted.widened(put.data)
        return table if wanted is table.collection else self._reshape(db, table, wanted)

    def _put(
        self, db: Database, table: Table, put: Put, digest: str, old: Row | None, source: str | None
    ) -> tuple[Row, Change]:
        revision = old.revision + 1 if old else 1
        item = Item(put.id, table.collection.name, put.data, version_of(revision, digest))
        now = _now()
        text = _text(put.data)
        columns = list(table.columns.values())
        names = ", ".join(["id", "data", "revision", "digest", "source", "at", *columns])
        values = [put.id, text, revision, digest, source or "", now, *table.values(put.data)]
        sets = ["data", "revision", "digest", "at", *columns, *(["source"] if source is not None else [])]
        db.execute(
            f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' * len(values))})"
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in sets)}",
            values,
        )
        for known in table.vector_fields:
            _put_vector_field(db, table, item.id, item.data, known)
        patch = diff(old.item.data, put.data) if old else ()
        undo = diff(put.data, old.item.data) if old else ()
        change = Change(0, "update" if old else "create", item, patch, moment(now), undo)
        change = self._append(db, table, change, text)
        return Row(item, revision, digest), change

    def _remove(self, db: Database, table: Table, old: Row) -> Change:
        db.execute(f"DELETE FROM {table.name} WHERE id = ?", (old.item.id,))
        db.execute("DELETE FROM vectors WHERE collection = ? AND id = ?", (table.number, old.item.id))
        change = Change(0, "delete", old.item, (), moment(_now()))
        return self._append(db, table, change, _text(old.item.data))

    def _append(self, db: Database, table: Table, change: Change, text: str) -> Change:
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
                text,
                _text(change.patch),
                _text(change.undo),
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

    async def load(self, load: Load, collection: str, puts: Sequence[Put]) -> Written:
        def work(db: Database) -> tuple[Written, int]:
            _check_not_overtaken(db, load)
            if collection not in self._see_schema(db):
                self._reshape(db, self._create(db, collection), Collection(collection))
            table = self._room_for(db, self._table(db, collection), puts)
            return self._load(db, table, load, puts)

        written, seq = await self._write(work)
        self._announce(seq)
        return written

    def _load(self, db: Database, table: Table, load: Load, puts: Sequence[Put]) -> tuple[Written, int]:
        seen = _already_seen(db, table, load, puts)
        before = {row.item.id: row for row in _rows(db, table, [put.id for put in puts])}
        counts = {"added": 0, "changed": 0, "unchanged": 0}
        repeated: list[str] = []
        seq = 0
        for put in puts:
            digest = _checked_digest(put)
            old = before.get(put.id)
            if old and old.digest == digest:
                counts["unchanged"] += 1
                if put.id not in seen:
                    self._claim(db, table, put.id, load.source)
            elif put.id in seen:
                repeated.append(put.id)
            else:
                before[put.id], change = self._put(db, table, put, digest, old, load.source)
                counts["changed" if old else "added"] += 1
                seq = change.seq
            seen.add(put.id)
        db.executemany(
            "INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", [(load.run, table.number, put.id) for put in puts]
        )
        return Written(**counts, repeated=tuple(repeated)), seq

    def _claim(self, db: Database, table: Table, id: str, source: str) -> None:
        db.execute(f"UPDATE {table.name} SET source = ? WHERE id = ? AND source <> ?", (source, id, source))

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
            return [self._remove(db, table, row) for row in _rows(db, table, [id for (id,) in gone])]

        changes = await self._write(work)
        self._announce(changes[-1].seq if changes else 0)
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
            tables = self._see_schema(db)
            newest = _newest(db)
            oldest = _one(db, "SELECT min(seq) FROM changes") or newest + 1
            if since < oldest - 1 or since > newest:
                raise FeedExpired(
                    f"Changes after {since} are not kept; the feed has {oldest} to {newest}",
                    oldest=oldest,
                    newest=newest,
                    hint="Read the items anew and follow from the newest change.",
                )
            names = {table.number: name for name, table in tables.items()}
            only = "" if collection is None else f"AND collection = {self._table(db, collection).number}"
            rows = db.execute(
                "SELECT seq, collection, id, kind, version, data, patch, undo, at FROM changes"
                f" WHERE seq > ? {only} ORDER BY seq LIMIT ?",
                (since, limit),
            )
            return [_change(names, *row) for row in rows]

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

    def _announce(self, seq: int) -> None:
        if seq > self._head:
            self._head = seq
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
            return [(row.item, row.digest) for row in (_row(table, *each) for each in rows)]

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
            return [VectorRow(seq, id, digest, vector) for seq, id, digest, vector in rows]

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

    # Health

    async def check(self) -> list[str]:
        def work(db: Database) -> list[str]:
            return [str(row[0]) for row in db.execute("PRAGMA quick_check(10)") if row[0] != "ok"]

        return await self._engine.read(work, seconds=600)


ABOUT = ("title", "description", "type", "singular", "language", "weights", "private")


def _statement(table: Table) -> Statement:
    return Statement(DIALECT, table.collection, table.columns)


def _now() -> int:
    return time.time_ns() // 1000


def _text(value: Any) -> str:
    return _encode(value).decode()


def _from_json(value: Any) -> Any:
    return _decode(value) if isinstance(value, str) else value


def _one(db: Database, sql: str, params: Sequence[Any] = ()) -> Any:
    row = db.execute(sql, params).fetchone()
    return row[0] if row else None


def _newest(db: Database) -> int:
    return _one(db, "SELECT seq FROM sqlite_sequence WHERE name = 'changes'") or 0


def _row(table: Table, id: str, data: str, revision: int, digest: str) -> Row:
    item = Item(id, table.collection.name, _decode(data), version_of(revision, digest))
    return Row(item, revision, digest)


def _rows(db: Database, table: Table, ids: Sequence[str]) -> Iterator[Row]:
    rows = db.execute(
        f"SELECT id, data, revision, digest FROM {table.name} WHERE id IN (SELECT value FROM json_each(?))",
        (_text(list(ids)),),
    ).fetchall()
    return (_row(table, *row) for row in rows)


def _change(
    names: Mapping[int, str],
    seq: int,
    collection: int,
    id: str,
    kind: ChangeKind,
    version: str,
    data: str,
    patch: str,
    undo: str,
    at: int,
) -> Change:
    item = Item(id, names[collection], _decode(data), version)
    return Change(seq, kind, item, tuple(_decode(patch)), moment(at), tuple(_decode(undo)))


def _read_tables(db: Database) -> Iterator[Table]:
    for number, name, about in db.execute("SELECT number, name, about FROM collections ORDER BY number").fetchall():
        fields: dict[str, Field] = {}
        columns: dict[str, str] = {}
        rows = db.execute(
            "SELECT name, type, path, declared, description, place FROM fields WHERE collection = ? ORDER BY position",
            (number,),
        )
        for field, kind, path, declared, description, column in rows:
            fields[field] = Field(field, FieldType(kind), path, bool(declared), description)
            if column:
                columns[field] = column
        yield Table(number, Collection(name, fields, **_decode(about)), columns)


def _combined(known: Collection, said: Collection) -> Collection:
    """What the data taught, under what the site file says."""
    fields = {name: f for name, f in known.fields.items() if not f.declared or name in said.fields}
    return replace(said, fields={**fields, **said.fields})


def _same_storage(before: Field | None, now: Field) -> bool:
    numbers = {FieldType.INTEGER, FieldType.NUMBER}
    if before is None or before.where != now.where:
        return False
    return before.type == now.type or {before.type, now.type} == numbers


def _is_placed(collection: Collection, name: str) -> bool:
    known = collection.fields.get(name)
    return known is not None and known.is_typed


def _column_rows(db: Database, table: str) -> list[tuple[Any, ...]]:
    return [row for row in db.execute(f"PRAGMA table_info({table})") if row[1][0] == "f" and row[1][1:].isdigit()]


def _relearned(db: Database, table: Table, wanted: Collection) -> Collection:
    """Fields that are no longer declared have again the type that the data suggests."""
    gone = [name for name in table.collection.fields if name not in wanted.fields]
    if not gone:
        return wanted
    for _, data in _every_row(db, table):
        wanted = wanted.widened({name: data[name] for name in gone if name in data})
    return wanted


def _every_row(db: Database, table: Table) -> Iterator[tuple[int, dict[str, Any]]]:
    """All items with their row numbers, read in pieces so that memory stays bounded."""
    last = 0
    while rows := db.execute(
        f"SELECT rowid, data FROM {table.name} WHERE rowid > ? ORDER BY rowid LIMIT {SCAN_BATCH}", (last,)
    ).fetchall():
        last = rows[-1][0]
        yield from ((rowid, _decode(data)) for rowid, data in rows)


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
    for name, column in list(table.columns.items())[:16]:
        if (
            table.collection.fields[name].type != FieldType.STRING
            or (_one(db, f"SELECT max(length({column})) FROM {table.name}") or 0) <= 80
        ):
            yield column


def _already_seen(db: Database, table: Table, load: Load, puts: Sequence[Put]) -> set[str]:
    rows = db.execute(
        "SELECT id FROM seen WHERE run = ? AND collection = ? AND id IN (SELECT value FROM json_each(?))",
        (load.run, table.number, _text([put.id for put in puts])),
    )
    return {id for (id,) in rows}


def _check_not_overtaken(db: Database, load: Load) -> None:
    if not _one(db, "SELECT 1 FROM runs WHERE run = ?", (load.run,)):
        raise Conflict(f"Another load of {load.source} has begun", source=load.source, hint="Let that one finish.")


def _position(query: Query, kinds: str, secret: bytes) -> list[Any]:
    """Where a cursor stands; refused if a field it sorts by has changed its kind since."""
    made_for, *position = read_cursor(query, secret)
    if made_for != kinds:
        raise InvalidCursor("A field in the order has changed its type", hint="Start again without a cursor.")
    return position


def _check_id(id: str) -> None:
    problem = problem_with(id, {})
    if problem:
        raise InvalidParams(f"{id[:80]!a} cannot be an id: {problem}")


def _checked_digest(put: Put) -> str:
    problem = problem_with(put.id, put.data)
    if problem:
        raise InvalidParams(f"{put.id[:80]!r} cannot be kept: {problem}", id=put.id[:80])
    return content_hash(put.data)


def _check_expected(table: Table, write: Write, old: Row | None) -> None:
    if write.expect is None:
        return
    if write.expect == "" and old:
        raise AlreadyExists(
            f"{table.collection.name} already has an item {write.id!r}",
            id=write.id,
            hint=f"Use update_{table.collection.one}, or another id.",
        )
    if write.expect and (old is None or old.item.version != write.expect):
        raise VersionMismatch(
            f"{write.id!r} is no longer at version {write.expect}",
            id=write.id,
            expected=write.expect,
            actual=old.item.version if old else None,
            hint="Read it again and repeat the change.",
        )


def _missing(table: Table, id: str) -> UnknownItem:
    return UnknownItem(f"{table.collection.name} has no item {id!r}", collection=table.collection.name, id=id)


def _put_vector_field(db: Database, table: Table, id: str, data: Mapping[str, Any], known: Field) -> None:
    vector = known.vector(data)
    if vector is None:
        db.execute("DELETE FROM vectors WHERE collection = ? AND field = ? AND id = ?", (table.number, known.name, id))
        return
    db.execute(
        "INSERT OR REPLACE INTO vectors (collection, field, id, model, digest, vector) VALUES (?, ?, ?, '', '', ?)",
        (table.number, known.name, id, np.asarray(vector, np.float32).tobytes()),
    )


def _nearest(rows: Iterable[tuple[str, bytes]], near: Near) -> tuple[list[str], list[float]]:
    """The ids nearest to a vector, read in blocks so that memory stays bounded."""
    best: list[tuple[float, str]] = []
    block: list[tuple[str, bytes]] = []

    def settle() -> None:
        kept = [row for row in block if len(row[1]) == 4 * len(near.vector)]
        if kept:
            matrix = np.frombuffer(b"".join(v for _, v in kept), dtype=np.float32).reshape(len(kept), -1)
            ranks = similarity(near, matrix)
            best.extend((float(rank), id) for rank, (id, _) in zip(ranks, kept, strict=True) if np.isfinite(rank))
            best.sort(key=lambda pair: (-pair[0], pair[1]))
            del best[near.top :]
        elif block:
            raise InvalidQuery(
                f"The vector has {len(near.vector)} numbers; the stored ones have {len(block[0][1]) // 4}"
            )
        block.clear()

    for row in rows:
        block.append(row)
        if len(block) == SCAN_BATCH * 4:
            settle()
    settle()
    sign = -1.0 if near.metric == "euclidean" else 1.0
    return [id for _, id in best], [sign * rank for rank, _ in best]
