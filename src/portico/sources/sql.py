"""Reads the rows of an SQL database, streamed through SQLAlchemy Core. Never writes.

Needs the extra `portico[sql]`. Values are read as the driver returns them, so that a broken one affects a single row.
"""

import re
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import types
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, NoSuchTableError, SQLAlchemyError

from portico.errors import SourceError
from portico.sources import jsonld, schema
from portico.sources.foreign_keys import links_of
from portico.sources.plain import plain
from portico.sources.records import (
    MAX_RECORD_BYTES,
    BadRecord,
    Entry,
    Link,
    Record,
    SourceOptions,
    collection_name,
    id_of,
)
from portico.sources.schema import Table, TableInfo

ROWS_AT_ONCE = 500
MAX_LISTED = 50  # tables in an error
MAX_RELATED = 500  # tables among which links are looked for
_SURROGATE = re.compile("[\ud800-\udfff]")


def read(url: str, options: SourceOptions) -> Iterator[Entry]:
    """Yield the rows of `options.table`, or those of several tables with their names as collections.

    Raise SourceError, with a list of the tables, if the options name none.
    """
    with _connect(url) as connection:
        names = _wanted(connection, options)
        tables = [_table(connection, name) for name in names]
        known = _known_tables(connection, tables)
        for table in tables:
            collection = None if options.table else collection_name(table.name)
            for key in links_of(connection, table, known):
                if target := _linked_collection(key.table, names, options):
                    yield Link(key.column, target, collection)
            yield from _rows(connection, table, collection)


def list_tables(url: str) -> list[TableInfo]:
    """Return the tables and views of a database that a site could publish."""
    with _connect(url) as connection:
        return schema.list_tables(connection)


def _linked_collection(table: str, names: Sequence[str], options: SourceOptions) -> str:
    """Return the collection of a table; empty if the ids of its items are not its keys."""
    if options.id_field and table in names:
        return ""
    return options.collections.get(table, collection_name(table))


@contextmanager
def _connect(url: str) -> Generator[sqlalchemy.Connection]:
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            yield connection
    except NoSuchTableError as problem:
        name = str(problem)
        raise SourceError(f"The database has no table {name!r}.", table=name) from problem
    except (SQLAlchemyError, sqlite3.Error) as problem:
        raise SourceError(f"The database cannot be read: {_first_line(problem)}") from problem
    finally:
        engine.dispose()


def _wanted(connection: sqlalchemy.Connection, options: SourceOptions) -> Sequence[str]:
    """Return the names of the tables to read. A table is private until the owner of the site names it."""
    if options.table:
        return (options.table,)
    if options.tables:
        return options.tables
    if options.all_tables:
        return schema.table_names(connection)
    tables = schema.list_tables(connection)
    listed = "; ".join(f"{table.name} ({table.size})" for table in tables[:MAX_LISTED])
    more = f"; and {len(tables) - MAX_LISTED} more" if len(tables) > MAX_LISTED else ""
    raise SourceError(
        f"Tables of a database are private until you name those to publish. This one has: {listed or 'none'}{more}.",
        tables=[table.name for table in tables],
        hint="Use `--table NAME` (repeatable) or `--all-tables`; "
        "in the site file `table`, `tables` or `all_tables = true` of the [[source]].",
    )


def _table(connection: sqlalchemy.Connection, name: str) -> Table:
    # A name with a dot is that of a table in a schema, unless a table has that very name.
    schema_name, _, table_name = name.rpartition(".")
    if schema_name and sqlalchemy.inspect(connection).has_table(name):
        schema_name, table_name = "", name
    return schema.describe_table(connection, table_name, schema_name or None)


def _known_tables(connection: sqlalchemy.Connection, tables: Sequence[Table]) -> dict[str, Table]:
    """Return the tables to which those that are read may refer: themselves, and others of the database."""
    known = {table.name: table for table in tables}
    referred = {(key.table, key.schema) for table in tables for key in table.foreign_keys}
    others = {*referred, *((name, None) for name in schema.table_names(connection)[:MAX_RELATED])}
    for name, schema_name in sorted(others, key=str):
        if name not in known:
            try:
                known[name] = schema.describe_table(connection, name, schema_name)
            except NoSuchTableError:
                continue  # a foreign key may name a table that was never created
    return known


def _engine(url: str) -> sqlalchemy.Engine:
    try:
        address = sqlalchemy.make_url(url)
        if address.get_backend_name() == "sqlite":
            return _sqlite(address.database or "")
        if address.drivername in ("postgresql", "postgres"):
            address = address.set(drivername="postgresql+psycopg")
        engine = sqlalchemy.create_engine(address)
    except (ArgumentError, NoSuchModuleError, ValueError) as problem:
        raise SourceError(f"The database URL {url} is not valid: {_first_line(problem)}") from problem
    except ModuleNotFoundError as problem:
        hint = "Install it with Portico."
        raise SourceError(f"The database driver {problem.name} is not installed.", hint=hint) from problem
    if engine.dialect.name == "postgresql":
        # One snapshot for all tables, and no way to write.
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return engine


def _sqlite(path: str) -> sqlalchemy.Engine:
    if not Path(path).is_file():
        raise SourceError(f"There is no SQLite database at {path!r}.", path=path)

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, check_same_thread=False)
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")  # see _is_broken
        return connection

    return sqlalchemy.create_engine("sqlite://", creator=connect, poolclass=sqlalchemy.NullPool)


def _rows(connection: sqlalchemy.Connection, table: Table, collection: str | None) -> Iterator[Entry]:
    selectable = table.selectable
    order = [selectable.c[key] for key in table.keys]
    query = sqlalchemy.select(selectable).order_by(*order)
    streamed = connection.execution_options(stream_results=True, yield_per=ROWS_AT_ONCE)
    with streamed.execute(query) as result:
        for number, row in enumerate(result, 1):
            yield _entry(cast("Sequence[Any]", tuple(row)), table, collection, number)


def _entry(row: Sequence[Any], table: Table, collection: str | None, number: int) -> Entry:
    cells = dict(zip(table.columns, row, strict=True))
    key = ":".join(str(plain(cells[name])) for name in table.keys)
    where = f"{table.name}:{key}" if key else f"{table.name} row {number}"
    if any(isinstance(value, str) and _is_broken(value) for value in cells.values()):
        return BadRecord(f"{table.name} row {number}", "is not UTF-8")
    if sum(len(value) for value in cells.values() if isinstance(value, str | bytes)) > MAX_RECORD_BYTES:
        return BadRecord(where, f"is larger than {MAX_RECORD_BYTES >> 20} MB")
    values = ((name, _cell(value, table.columns[name])) for name, value in cells.items())
    data = {name: value for name, value in values if value is not None}
    return Record(data, where, key or id_of(data), collection)


def _cell(value: Any, kind: types.TypeEngine[Any]) -> Any:
    """Return a JSON value. SQLite stores booleans as numbers and JSON as text; other databases return their types."""
    if isinstance(kind, types.Boolean) and value in (0, 1):
        return bool(value)
    if isinstance(kind, types.JSON) and isinstance(value, str):
        try:
            return jsonld.decode(value.encode())
        except jsonld.InvalidJson:
            return value
    return plain(value)


def _is_broken(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0]
