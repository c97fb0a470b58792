"""Making, changing and indexing the tables of collections in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Any

import asyncpg

from portico.catalog import Collection, Field, FieldType
from portico.errors import Unavailable
from portico.store.postgres.dialect import column_type, native
from portico.store.postgres.engine import Connection
from portico.store.postgres.vectors import put_field_vectors
from portico.store.tables import (
    INDEXED_COLUMNS,
    INDEXED_LENGTH,
    SCAN_BATCH,
    Row,
    Schema,
    Table,
    column_number,
    needs_filling,
    read_table,
    refilled,
    relearned,
    reshaped,
    same_storage,
    undeclared,
)

ALTER_SECONDS = 0.5  # that readers wait behind a table that is being changed, before it is tried again
ALTER_ATTEMPTS = 20


async def read_schema(db: Connection) -> Schema:
    """All tables as they are now; one statement, so that number and fields belong together."""
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


async def reshape(db: Connection, known: Table | None, wanted: Collection) -> None:
    """Make or change a table, while nobody else does. Writers wait; readers see the new shape once it is filled."""
    if known is None:
        async with db.transaction():
            table = await _create(db, wanted.name)
            await _describe(db, await _add_columns(db, table, wanted))
        return
    names = undeclared(known, wanted)
    if names:
        async for rows in _every_row(db, known):
            for row in rows:
                wanted = relearned(wanted, names, row.item.data)
    if not any(needs_filling(known.collection.fields.get(f.name), f) for f in wanted.fields.values()):
        async with db.transaction():
            await _describe(db, await _add_columns(db, known, wanted))
        return
    table = await _add_columns(db, known, wanted)
    await _refill(db, table, refilled(known, table))
    async with db.transaction():
        await _describe(db, table)


async def _create(db: Connection, name: str) -> Table:
    number = await db.fetchval("INSERT INTO collections (name, about) VALUES ($1, '{}') RETURNING number", name)
    await db.execute(
        f'CREATE TABLE items_{number} (id text COLLATE "C" PRIMARY KEY, data text NOT NULL,'
        " doc jsonb NOT NULL GENERATED ALWAYS AS (data::jsonb) STORED, revision int NOT NULL,"
        ' digest text COLLATE "C" NOT NULL, source text NOT NULL, at bigint NOT NULL)'
    )
    await db.execute(f"CREATE INDEX items_{number}_source ON items_{number} (source)")
    return Table(number, Collection(name), {})


async def _add_columns(db: Connection, table: Table, wanted: Collection) -> Table:
    rows = await db.fetch(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
        table.name,
    )
    there: dict[str, str] = {name: kind for name, kind in rows}  # noqa: C416 - rows are not tuples to a type checker
    # Left over from an earlier shape, or from a change that was cut short: they are taken up again before new ones.
    spare = [name for name in there if column_number(name) and name not in table.columns.values()]

    def unused(known: Field) -> str | None:
        fitting = next((name for name in spare if there[name] == _sql_type(known.type)), None)
        if fitting:
            spare.remove(fitting)
        return fitting

    # A field of another type gets another column: until the new shape is known, others read the old one.
    new = reshaped(table, wanted, max(map(column_number, there)), same_storage, unused)
    added = [
        f"ADD COLUMN {column} {column_type(wanted.fields[name].type)}"
        for name, column in new.columns.items()
        if column not in there
    ]
    if added:
        await _alter(db, f"ALTER TABLE {table.name} {', '.join(added)}", wanted.name)
    return new


async def _alter(db: Connection, statement: str, collection: str) -> None:
    """Change a table that others read. Waiting for long readers would make all later ones wait too: so not for long."""
    for _ in range(ALTER_ATTEMPTS):
        try:
            async with db.transaction():
                await db.execute(f"SET LOCAL lock_timeout = {int(ALTER_SECONDS * 1000)}")
                await db.execute(statement)
                return
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(ALTER_SECONDS)
    raise Unavailable(
        f"{collection} needs room for new fields, and something else has been reading it for long",
        hint="Is a backup running? Try again when it is done.",
    )


async def _describe(db: Connection, table: Table) -> None:
    """Make a table's shape known. From here on every process uses it."""
    await db.execute("UPDATE collections SET about = $1 WHERE number = $2", table.about, table.number)
    await db.execute("DELETE FROM fields WHERE collection = $1", table.number)
    columns = [list(column) for column in zip(*table.field_rows(), strict=True)]
    if columns:
        kinds = ("int", "int", "text", "text", "text", "boolean", "text", "text")
        arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1))
        await db.execute(f"INSERT INTO fields SELECT * FROM unnest({arrays})", *columns)
    await db.execute("UPDATE meta SET shape = shape + 1")


async def _every_row(db: Connection, table: Table) -> AsyncIterator[list[Row]]:
    """All items, in pieces so that memory stays bounded."""
    last = ""
    while rows := await db.fetch(
        f"SELECT id, data, revision, digest FROM {table.name} WHERE id > $1 ORDER BY id LIMIT {SCAN_BATCH}", last
    ):
        last = rows[-1][0]
        yield [table.row(*row) for row in rows]


async def _refill(db: Connection, table: Table, fields: Sequence[Field]) -> None:
    """Compute columns and vectors anew from the data."""
    placed = [f for f in fields if f.name in table.columns]
    sets = ", ".join(f"{table.columns[f.name]} = g.v{i}" for i, f in enumerate(placed))
    arrays = ", ".join(f"${i + 2}::{_array(f.type)}" for i, f in enumerate(placed))
    names = ", ".join(f"v{i}" for i in range(len(placed)))
    async for rows in _every_row(db, table):
        ids = [row.item.id for row in rows]
        if placed:
            values = [[native(f.typed_value(row.item.data)) for row in rows] for f in placed]
            await db.execute(
                f"UPDATE {table.name} i SET {sets} FROM unnest($1::text[], {arrays}) AS g(id, {names})"
                " WHERE i.id = g.id",
                ids,
                *values,
            )
        async with db.transaction():
            for known in (f for f in fields if f.type == FieldType.VECTOR):
                await put_field_vectors(db, table, known, rows)


def _sql_type(kind: FieldType) -> str:
    return column_type(kind).partition(" ")[0]


def _array(kind: FieldType) -> str:
    return f"{_sql_type(kind)}[]"


async def insert(db: Connection, table: Table, rows: Sequence[Row], source: str, at: int) -> int:
    """Add new items; says how many were new indeed."""
    names, arrays, values = _as_columns(table, rows)
    done = await db.execute(
        f"INSERT INTO {table.name} ({', '.join(names)}, source, at) SELECT g.*, $1::text, $2::bigint"
        f" FROM unnest({', '.join(arrays)}) AS g ON CONFLICT (id) DO NOTHING",
        source,
        at,
        *values,
    )
    return int(done.rpartition(" ")[2])


async def update(db: Connection, table: Table, rows: Sequence[Row], source: str | None, at: int) -> None:
    """Write items that are locked already. They keep their source unless a new one is given."""
    names, arrays, values = _as_columns(table, rows)
    sets = ", ".join(f"{name} = g.{name}" for name in names[1:])
    await db.execute(
        f"UPDATE {table.name} i SET {sets}, source = coalesce($1::text, i.source), at = $2::bigint"
        f" FROM unnest({', '.join(arrays)}) AS g({', '.join(names)}) WHERE i.id = g.id",
        source,
        at,
        *values,
    )


def _as_columns(table: Table, rows: Sequence[Row]) -> tuple[list[str], list[str], list[list[Any]]]:
    """Rows turned into columns: their names, the parameters they are bound to (from $3 on), and their values."""
    rows = sorted(rows, key=lambda row: row.item.id)  # in one order for all writers, so that none waits in a ring
    fields = [table.collection.fields[name] for name in table.columns]
    names = ["id", "data", "revision", "digest", *table.columns.values()]
    kinds = ["text[]", "text[]", "int[]", "text[]", *(_array(f.type) for f in fields)]
    arrays = [f"${number}::{kind}" for number, kind in enumerate(kinds, 3)]
    values: list[list[Any]] = [
        [row.item.id for row in rows],
        [row.raw for row in rows],
        [row.revision for row in rows],
        [row.digest for row in rows],
        *([native(f.typed_value(row.item.data)) for row in rows] for f in fields),
    ]
    return names, arrays, values


# Indexes


async def worth_indexing(db: Connection, table: Table) -> list[str]:
    found: list[str] = []
    for name, column in list(table.columns.items())[:INDEXED_COLUMNS]:
        if table.collection.fields[name].type == FieldType.STRING:
            longest = await db.fetchval(f"SELECT max(length({column})) FROM {table.name}")
            if (longest or 0) > INDEXED_LENGTH:
                continue
        found.append(column)
    return found


async def make_index(db: Connection, name: str, on: str) -> None:
    """Make an index while others read and write. One that was left unfinished is made anew."""
    kind = await db.fetchval("SELECT relkind FROM pg_class WHERE oid = to_regclass($1)", on.partition(" ")[0])
    # The index of a partitioned table cannot be made beside its writers: they wait.
    beside = "" if kind == b"p" else "CONCURRENTLY"
    valid = await db.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", name)
    if valid is False:
        await db.execute(f"DROP INDEX {beside} {name}")
    if not valid:
        await db.execute(f"CREATE INDEX {beside} IF NOT EXISTS {name} ON {on}")
