"""Reads the rows of an SQL database, streamed through SQLAlchemy Core. Never writes.

Needs the extra `portico[sql]`. Values are read as the driver returns them, so that a broken one affects a single row.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import types
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, NoSuchTableError, SQLAlchemyError

from portico.errors import SourceError
from portico.sources import jsonld
from portico.sources.plain import plain
from portico.sources.records import MAX_RECORD_BYTES, BadRecord, Entry, Record, SourceOptions, id_of

ROWS_AT_ONCE = 500
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    schema: str | None
    columns: Mapping[str, types.TypeEngine[Any]]
    keys: tuple[str, ...]


def read(url: str, options: SourceOptions) -> Iterator[Entry]:
    """Yield the rows of `options.table`, or of every table with its name as the collection."""
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            tables = _tables(connection, options.table)
            for table in tables:
                yield from _rows(connection, table, None if options.table else table.name)
    except NoSuchTableError as problem:
        raise SourceError(f"The database has no table {options.table!r}.", table=options.table) from problem
    except (SQLAlchemyError, sqlite3.Error) as problem:
        raise SourceError(f"The database cannot be read: {_first_line(problem)}") from problem
    finally:
        engine.dispose()


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


def _tables(connection: sqlalchemy.Connection, table_name: str | None) -> list[_Table]:
    inspector = sqlalchemy.inspect(connection)
    if table_name is None:
        return [_table(inspector, name, None) for name in sorted(inspector.get_table_names())]
    schema, _, name = table_name.rpartition(".")
    return [_table(inspector, name, schema or None)]


def _table(inspector: sqlalchemy.Inspector, name: str, schema: str | None) -> _Table:
    columns = {column["name"]: column["type"] for column in inspector.get_columns(name, schema)}
    keys = inspector.get_pk_constraint(name, schema).get("constrained_columns") or []
    return _Table(name, schema, columns, tuple(keys))


def _rows(connection: sqlalchemy.Connection, table: _Table, collection: str | None) -> Iterator[Entry]:
    selectable = sqlalchemy.table(table.name, *map(sqlalchemy.column, table.columns), schema=table.schema)
    order = [selectable.c[key] for key in table.keys]
    query = sqlalchemy.select(selectable).order_by(*order)
    streamed = connection.execution_options(stream_results=True, yield_per=ROWS_AT_ONCE)
    with streamed.execute(query) as result:
        for number, row in enumerate(result, 1):
            yield _entry(cast("Sequence[Any]", tuple(row)), table, collection, number)


def _entry(row: Sequence[Any], table: _Table, collection: str | None, number: int) -> Entry:
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
