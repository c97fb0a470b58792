"""Collections in SQLite: their tables, created and changed as their fields demand."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from portico.catalog import Collection, Field, FieldType, check_collection_name
from portico.store.database import SqlRow
from portico.store.sqlite.engine import SqliteDatabase, SqliteEngine, fetch_value, number_params
from portico.store.tables import (
    INDEXED_COLUMNS,
    INDEXED_FROM,
    INDEXED_LENGTH,
    SCAN_BATCH,
    Schema,
    Table,
    change_columns,
    column_number,
    decode,
    list_undeclared,
    list_unfilled,
    merge_description,
    read_table,
    relearn,
)
from portico.store.vectors import BuildStatement

T = TypeVar("T")


class SqliteCollections:
    """See `CollectionStore`."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._known = Schema(-1, {})
        self._lock = threading.Lock()

    @property
    def schema(self) -> Mapping[str, Collection]:
        return self._known.collections

    async def refresh(self) -> Mapping[str, Collection]:
        # Not the known one: that may be of a transaction that has not ended yet.
        return (await self._engine.read(self.read_schema)).collections

    def read_schema(self, db: SqliteDatabase) -> Schema:
        """Return the schema as this transaction sees it, and remember it unless a newer one is known."""
        existing = self._known
        number = fetch_value(db, "SELECT value FROM meta WHERE key = 'schema'")
        if number == existing.number:
            return existing
        schema = Schema(number, {table.collection.name: table for table in read_tables(db)})
        with self._lock:
            if number > self._known.number:
                self._known = schema
        return schema

    def find_table(self, name: str) -> Table:
        return self._known.table(name)

    def table(self, db: SqliteDatabase, name: str) -> Table:
        return self.read_schema(db).table(name)

    async def read_bulk(
        self, collection: str, build: BuildStatement, read: Callable[[Table, Iterable[SqlRow]], T]
    ) -> T:
        """See `TableReader`. The rows are read in the thread of the database."""

        def work(db: SqliteDatabase) -> T:
            table = self.table(db, collection)
            sql, params = build(table)
            return read(table, db.execute(number_params(sql), params))

        return await self._engine.read(work)

    async def write(self, work: Callable[[SqliteDatabase], T]) -> T:
        """Run a transaction; if it fails, forget what it has read of the schema."""
        return await self._engine.write(work, self._forget)

    def _forget(self) -> None:
        with self._lock:
            self._known = replace(self._known, number=-1)

    async def declare(self, collection: Collection) -> Collection:
        before = (await self.refresh()).get(collection.name)
        if before and before == merge_description(before, collection):
            return before

        def work(db: SqliteDatabase) -> Collection:
            table = self.read_schema(db).tables.get(collection.name)
            target = merge_description(table.collection, collection) if table else collection
            if table and table.collection == target:
                return target
            table = table or self.create(db, collection.name)
            target = _relearn_undeclared(db, table, target)
            self.reshape(db, table, target)
            return target

        return await self.write(work)

    async def settle(self, name: str, describe: Callable[[Collection], Collection]) -> Collection:
        before = (await self.refresh()).get(name)
        if before and before == describe(before):
            return before

        def work(db: SqliteDatabase) -> Collection:
            table = self.read_schema(db).table(name)
            target = describe(table.collection)
            if target != table.collection:
                self.reshape(db, table, target)
            return target

        return await self.write(work)

    def create(self, db: SqliteDatabase, name: str) -> Table:
        check_collection_name(name)
        db.execute("INSERT INTO collections (name, about) VALUES (?, '{}')", (name,))
        number = db.last_insert_rowid()
        db.execute(
            f"CREATE TABLE items_{number} (id TEXT PRIMARY KEY, data TEXT NOT NULL, revision INTEGER NOT NULL,"
            " digest TEXT NOT NULL, source TEXT NOT NULL, at INTEGER NOT NULL)"
        )
        db.execute(f"CREATE INDEX items_{number}_source ON items_{number} (source)")
        return Table(number, Collection(name), {})

    def reshape(self, db: SqliteDatabase, table: Table, target: Collection) -> Table:
        """Store a collection's new description, adding and refilling columns as its fields demand."""
        columns = {row[1] for row in db.execute(f"PRAGMA table_info({table.name})")}
        # SQLite's columns take any type, so a field keeps its column when its type changes.
        new = change_columns(table, target, max(map(column_number, columns)), lambda before, now: True)
        for column in new.columns.values():
            if column not in columns:
                db.execute(f"ALTER TABLE {table.name} ADD COLUMN {column}")
        db.execute("UPDATE collections SET about = ? WHERE number = ?", (new.about, new.number))
        db.execute("DELETE FROM fields WHERE collection = ?", (new.number,))
        db.executemany("INSERT INTO fields VALUES (?, ?, ?, ?, ?, ?, ?, ?)", new.field_rows())
        db.execute("UPDATE meta SET value = value + 1 WHERE key = 'schema'")
        unfilled = list_unfilled(table, new)
        if unfilled and fetch_value(db, f"SELECT 1 FROM {table.name} LIMIT 1"):
            _refill(db, new, unfilled)
        self.read_schema(db)
        return new

    async def optimize(self, collection: str) -> None:
        def work(db: SqliteDatabase) -> None:
            table = self.table(db, collection)
            if fetch_value(db, f"SELECT COUNT(*) FROM {table.name}") < INDEXED_FROM:
                return
            for column in _columns_to_index(db, table):
                db.execute(f"CREATE INDEX IF NOT EXISTS {table.name}_{column} ON {table.name} ({column})")
            db.execute(f"ANALYZE {table.name}")

        await self.write(work)


def read_tables(db: SqliteDatabase) -> Iterator[Table]:
    for number, name, about in db.execute("SELECT number, name, about FROM collections ORDER BY number").fetchall():
        rows = db.execute(
            "SELECT name, type, path, declared, description, place FROM fields WHERE collection = ? ORDER BY position",
            (number,),
        )
        yield read_table(number, name, about, rows)


def put_vector_field(db: SqliteDatabase, table: Table, id: str, data: Mapping[str, Any], field: Field) -> None:
    """Store the vector in the data of an item, or delete the stored one if the data has none."""
    vector = field.vector(data)
    if vector is None:
        db.execute("DELETE FROM vectors WHERE collection = ? AND field = ? AND id = ?", (table.number, field.name, id))
        return
    db.execute(
        "INSERT OR REPLACE INTO vectors (collection, field, id, model, digest, vector) VALUES (?, ?, ?, '', '', ?)",
        (table.number, field.name, id, np.asarray(vector, np.float32).tobytes()),
    )


def _relearn_undeclared(db: SqliteDatabase, table: Table, target: Collection) -> Collection:
    names = list_undeclared(table, target)
    if names:
        for _, _, data in _scan(db, table):
            target = relearn(target, names, data)
    return target


def _scan(db: SqliteDatabase, table: Table) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the row number, the id and the data of all items, read in batches so that memory stays bounded."""
    last = 0
    while rows := db.execute(
        f"SELECT rowid, id, data FROM {table.name} WHERE rowid > ? ORDER BY rowid LIMIT {SCAN_BATCH}", (last,)
    ).fetchall():
        last = rows[-1][0]
        yield from ((rowid, id, decode(data)) for rowid, id, data in rows)


def _refill(db: SqliteDatabase, table: Table, fields: Sequence[Field]) -> None:
    """Compute the columns and the vectors of fields again from the data."""
    typed = [field for field in fields if field.name in table.columns]
    vectors = [field for field in fields if field.type == FieldType.VECTOR]
    if not typed and not vectors:
        return
    sets = ", ".join(f"{table.columns[field.name]} = ?" for field in typed)
    for rowid, id, data in _scan(db, table):
        if typed:
            values = [field.comparable_value(data) for field in typed]
            db.execute(f"UPDATE {table.name} SET {sets} WHERE rowid = ?", (*values, rowid))
        for field in vectors:
            put_vector_field(db, table, id, data, field)


def _columns_to_index(db: SqliteDatabase, table: Table) -> Iterator[str]:
    for name, column in list(table.columns.items())[:INDEXED_COLUMNS]:
        if (
            table.collection.fields[name].type != FieldType.STRING
            or (fetch_value(db, f"SELECT max(length({column})) FROM {table.name}") or 0) <= INDEXED_LENGTH
        ):
            yield column
