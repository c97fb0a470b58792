"""Making, changing and indexing the tables of collections in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Any

import asyncpg

from portico.catalog import Collection, Field, FieldType
from portico.errors import Unavailable
from portico.store.postgres.dialect import column_type, native
from portico.store.postgres.engine import PostgresConnection
from portico.store.postgres.vectors import put_field_vectors
from portico.store.tables import (
    INDEXED_COLUMNS,
    INDEXED_LENGTH,
    SCAN_BATCH,
    Schema,
    StoredRow,
    Table,
    change_columns,
    column_number,
    has_same_storage,
    list_undeclared,
    list_unfilled,
    needs_filling,
    read_table,
    relearn,
)

ALTER_SECONDS = 0.5  # that readers wait behind a table that is being changed, before it is tried again
ALTER_ATTEMPTS = 20


async def read_schema(db: PostgresConnection) -> Schema:
    """Return all tables as they are now; in one statement, so that number and fields belong together."""
    rows = await db.fetch(
        "SELECT m.shape, c.number, c.name, c.about, f.name, f.type, f.path, f.declared, f.description, f.place"
        " FROM meta m LEFT JOIN collections c ON true LEFT JOIN fields f ON f.collection = c.number"
        " ORDER BY c.number, f.position"
    )
    tables: dict[str, Table] = {}
    for (number, name, about), group in groupby(rows, key=lambda row: (row[1], row[2], row[3])):
        if number is not None:
            fields = [tuple(row[4:]) for row in group if row[4] is not None]
            tables[name] = read_table(number, name, about, fields)
    return Schema(rows[0][0], tables)


async def reshape(db: PostgresConnection, table: Table | None, target: Collection) -> None:
    """Create or change a table, under its lock. Writers wait; readers see the new columns once they are filled."""
    if table is None:
        async with db.transaction():
            table = await _create(db, target.name)
            await _describe(db, await _add_columns(db, table, target))
        return
    names = list_undeclared(table, target)
    if names:
        async for rows in _scan(db, table):
            for row in rows:
                target = relearn(target, names, row.item.data)
    if not any(needs_filling(table.collection.fields.get(f.name), f) for f in target.fields.values()):
        async with db.transaction():
            await _describe(db, await _add_columns(db, table, target))
        return
    new = await _add_columns(db, table, target)
    await _refill(db, new, list_unfilled(table, new))
    async with db.transaction():
        await _describe(db, new)


async def _create(db: PostgresConnection, name: str) -> Table:
    number = await db.fetchval("INSERT INTO collections (name, about) VALUES ($1, '{}') RETURNING number", name)
    await db.execute(
        f'CREATE TABLE items_{number} (id text COLLATE "C" PRIMARY KEY, data text NOT NULL,'
        " doc jsonb NOT NULL GENERATED ALWAYS AS (data::jsonb) STORED, revision int NOT NULL,"
        ' digest text COLLATE "C" NOT NULL, source text NOT NULL, at bigint NOT NULL)'
    )
    await db.execute(f"CREATE INDEX items_{number}_source ON items_{number} (source)")
    return Table(number, Collection(name), {})


async def _add_columns(db: PostgresConnection, table: Table, target: Collection) -> Table:
    rows = await db.fetch(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
        table.name,
    )
    types: dict[str, str] = {name: kind for name, kind in rows}  # noqa: C416 - rows are not tuples to a type checker
    # Left over from earlier fields, or from a change that was interrupted: they are reused before new ones are added.
    spare = [name for name in types if column_number(name) and name not in table.columns.values()]

    def take_unused(field: Field) -> str | None:
        column = next((name for name in spare if types[name] == _sql_type(field.type)), None)
        if column:
            spare.remove(column)
        return column

    # A field of another type gets another column: until the new schema is known, others read the old one.
    new = change_columns(table, target, max(map(column_number, types)), has_same_storage, take_unused)
    added = [
        f"ADD COLUMN {column} {column_type(target.fields[name].type)}"
        for name, column in new.columns.items()
        if column not in types
    ]
    if added:
        await _alter(db, f"ALTER TABLE {table.name} {', '.join(added)}", target.name)
    return new


async def _alter(db: PostgresConnection, statement: str, collection: str) -> None:
    """Change a table that others read. It waits for them only briefly, since all later readers wait behind it."""
    for _ in range(ALTER_ATTEMPTS):
        try:
            async with db.transaction():
                await db.execute(f"SET LOCAL lock_timeout = {int(ALTER_SECONDS * 1000)}")
                await db.execute(statement)
                return
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(ALTER_SECONDS)
    raise Unavailable(
        f"{collection} cannot get new fields while another process has been reading it for long",
        hint="If a backup is running, try again when it is done.",
    )


async def _describe(db: PostgresConnection, table: Table) -> None:
    """Publish a table's columns. From then on every process uses them."""
    await db.execute("UPDATE collections SET about = $1 WHERE number = $2", table.about, table.number)
    await db.execute("DELETE FROM fields WHERE collection = $1", table.number)
    columns = [list(column) for column in zip(*table.field_rows(), strict=True)]
    if columns:
        kinds = ("int", "int", "text", "text", "text", "boolean", "text", "text")
        arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1))
        await db.execute(f"INSERT INTO fields SELECT * FROM unnest({arrays})", *columns)
    await db.execute("UPDATE meta SET shape = shape + 1")


async def _scan(db: PostgresConnection, table: Table) -> AsyncIterator[list[StoredRow]]:
    """Yield all items, in pieces so that memory stays bounded."""
    last = ""
    while rows := await db.fetch(
        f"SELECT id, data, revision, digest FROM {table.name} WHERE id > $1 ORDER BY id LIMIT {SCAN_BATCH}", last
    ):
        last = rows[-1][0]
        yield [table.row(*row) for row in rows]


async def _refill(db: PostgresConnection, table: Table, fields: Sequence[Field]) -> None:
    """Compute columns and vectors anew from the data."""
    in_columns = [f for f in fields if f.name in table.columns]
    sets = ", ".join(f"{table.columns[f.name]} = g.v{i}" for i, f in enumerate(in_columns))
    arrays = ", ".join(f"${i + 2}::{_array(f.type)}" for i, f in enumerate(in_columns))
    names = ", ".join(f"v{i}" for i in range(len(in_columns)))
    async for rows in _scan(db, table):
        ids = [row.item.id for row in rows]
        if in_columns:
            values = [[native(f.comparable_value(row.item.data)) for row in rows] for f in in_columns]
            await db.execute(
                f"UPDATE {table.name} i SET {sets} FROM unnest($1::text[], {arrays}) AS g(id, {names})"
                " WHERE i.id = g.id",
                ids,
                *values,
            )
        async with db.transaction():
            for field in (f for f in fields if f.type == FieldType.VECTOR):
                await put_field_vectors(db, table, field, rows)


def _sql_type(kind: FieldType) -> str:
    return column_type(kind).partition(" ")[0]


def _array(kind: FieldType) -> str:
    return f"{_sql_type(kind)}[]"


async def insert_rows(db: PostgresConnection, table: Table, rows: Sequence[StoredRow], source: str, at: int) -> int:
    """Insert items that do not exist yet; return how many it inserted."""
    names, arrays, values = _as_columns(table, rows)
    status = await db.execute(
        f"INSERT INTO {table.name} ({', '.join(names)}, source, at) SELECT g.*, $1::text, $2::bigint"
        f" FROM unnest({', '.join(arrays)}) AS g ON CONFLICT (id) DO NOTHING",
        source,
        at,
        *values,
    )
    return int(status.rpartition(" ")[2])


async def update_rows(
    db: PostgresConnection, table: Table, rows: Sequence[StoredRow], source: str | None, at: int
) -> None:
    """Write items that are locked already. They keep their source unless there is a new one."""
    names, arrays, values = _as_columns(table, rows)
    sets = ", ".join(f"{name} = g.{name}" for name in names[1:])
    await db.execute(
        f"UPDATE {table.name} i SET {sets}, source = coalesce($1::text, i.source), at = $2::bigint"
        f" FROM unnest({', '.join(arrays)}) AS g({', '.join(names)}) WHERE i.id = g.id",
        source,
        at,
        *values,
    )


def _as_columns(table: Table, rows: Sequence[StoredRow]) -> tuple[list[str], list[str], list[list[Any]]]:
    """Return rows as columns: their names, the parameters they are bound to (from $3 on), and their values."""
    rows = sorted(rows, key=lambda row: row.item.id)  # in one order for all writers, so that no two wait for each other
    fields = [table.collection.fields[name] for name in table.columns]
    names = ["id", "data", "revision", "digest", *table.columns.values()]
    kinds = ["text[]", "text[]", "int[]", "text[]", *(_array(f.type) for f in fields)]
    arrays = [f"${number}::{kind}" for number, kind in enumerate(kinds, 3)]
    values: list[list[Any]] = [
        [row.item.id for row in rows],
        [row.raw for row in rows],
        [row.revision for row in rows],
        [row.digest for row in rows],
        *([native(f.comparable_value(row.item.data)) for row in rows] for f in fields),
    ]
    return names, arrays, values


# Indexes


async def columns_to_index(db: PostgresConnection, table: Table) -> list[str]:
    columns: list[str] = []
    for name, column in list(table.columns.items())[:INDEXED_COLUMNS]:
        if table.collection.fields[name].type == FieldType.STRING:
            longest = await db.fetchval(f"SELECT max(length({column})) FROM {table.name}")
            if (longest or 0) > INDEXED_LENGTH:
                continue
        columns.append(column)
    return columns


async def make_index(db: PostgresConnection, name: str, on: str) -> None:
    """Create an index while others read and write. One that was left unfinished is dropped first."""
    kind = await db.fetchval("SELECT relkind FROM pg_class WHERE oid = to_regclass($1)", on.partition(" ")[0])
    # The index of a partitioned table cannot be created beside its writers: they wait.
    beside = "" if kind == b"p" else "CONCURRENTLY"
    valid = await db.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", name)
    if valid is False:
        await db.execute(f"DROP INDEX {beside} {name}")
    if not valid:
        await db.execute(f"CREATE INDEX {beside} IF NOT EXISTS {name} ON {on}")
