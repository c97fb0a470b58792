"""The tables and views of an SQL database: their columns, keys and sizes. Reads no rows but to count and compare them.

System tables, the shadow tables of search indexes and the records of migration tools belong to no site: they are never
listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy
from sqlalchemy import types
from sqlalchemy.exc import SQLAlchemyError

from portico.catalog import singular
from portico.field_names import normalize

MAX_COUNT = 1_000_000  # rows that are counted of one table
_TOOL_TABLES = frozenset(
    {
        "alembic_version", "android_metadata", "ar_internal_metadata", "auth_group", "auth_group_permissions",
        "auth_permission", "auth_user_groups", "auth_user_user_permissions", "databasechangelog",
        "databasechangeloglock", "django_admin_log", "django_content_type", "django_migrations", "django_session",
        "doctrine_migration_versions", "__efmigrationshistory", "flyway_schema_history", "geometry_columns",
        "goose_db_version", "knex_migrations", "knex_migrations_lock", "_litestream_lock", "_litestream_seq",
        "phinxlog", "_prisma_migrations", "raster_columns", "raster_overviews", "schema_migrations", "sequelizemeta",
        "spatial_ref_sys", "_sqlx_migrations", "sysdiagrams",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A column whose values are the key of another table."""

    column: str
    table: str
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table or a view. `keys` is empty if no column identifies its rows."""

    name: str
    schema: str | None
    columns: Mapping[str, types.TypeEngine[Any]]
    keys: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @property
    def selectable(self) -> sqlalchemy.TableClause:
        return sqlalchemy.table(self.name, *map(sqlalchemy.column, self.columns), schema=self.schema)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What a person needs to know of a table to decide whether it is published."""

    name: str
    rows: int | None  # None if they cannot be counted; `MAX_COUNT` stands for as many or more
    is_view: bool = False

    @property
    def size(self) -> str:
        kind = "view" if self.is_view else "table"
        if self.rows is None:
            return kind
        count = f"{self.rows:,}{'+' if self.rows == MAX_COUNT else ''} row{'' if self.rows == 1 else 's'}"
        return f"{count}, {kind}" if self.is_view else count


def table_names(connection: sqlalchemy.Connection) -> list[str]:
    """Return the names of the tables that a site could publish, without views."""
    inspector = sqlalchemy.inspect(connection)
    hidden = _index_tables(connection)
    return sorted(name for name in inspector.get_table_names() if name not in hidden and not _is_system(name))


def view_names(connection: sqlalchemy.Connection) -> list[str]:
    return sorted(name for name in sqlalchemy.inspect(connection).get_view_names() if not _is_system(name))


def list_tables(connection: sqlalchemy.Connection) -> list[TableInfo]:
    """Return the tables and then the views, with their sizes."""
    tables = [TableInfo(name, _count(connection, name)) for name in table_names(connection)]
    return [*tables, *(TableInfo(name, _count(connection, name), True) for name in view_names(connection))]


def describe_table(connection: sqlalchemy.Connection, name: str, schema: str | None = None) -> Table:
    """Return a table with its keys. A table without a primary key has the column that its name makes one."""
    inspector = sqlalchemy.inspect(connection)
    columns = {column["name"]: column["type"] for column in inspector.get_columns(name, schema)}
    keys = inspector.get_pk_constraint(name, schema).get("constrained_columns") or []
    table = Table(name, schema, columns, tuple(keys))
    if not keys:
        table = Table(name, schema, columns, _unique_column(connection, table))
    constraints = inspector.get_foreign_keys(name, schema)
    foreign = [key for constraint in constraints if (key := _foreign_key(constraint))]
    return Table(name, schema, columns, table.keys, tuple(foreign))


def compact(name: str) -> str:
    """Return a name without case, accents and separators."""
    return normalize(name).replace("_", "")


def stems(table: str) -> tuple[str, ...]:
    """Return what columns may call a row of a table: `customers` and `customer`."""
    return tuple(dict.fromkeys((compact(table), compact(singular(table.casefold())))))


def _foreign_key(constraint: Mapping[str, Any]) -> ForeignKey | None:
    columns = cast("Sequence[str]", constraint["constrained_columns"])
    if len(columns) > 1:  # no field of its own, so nothing can be a link
        return None
    return ForeignKey(columns[0], constraint["referred_table"], constraint["referred_schema"])


def _unique_column(connection: sqlalchemy.Connection, table: Table) -> tuple[str, ...]:
    wanted = ("id", *(f"{stem}{ending}" for stem in stems(table.name) for ending in ("id", "key", "code")))
    by_name = {compact(column): column for column in list(table.columns)[::-1]}
    candidates = [by_name[name] for name in wanted if name in by_name]
    return next(((name,) for name in candidates if _is_unique(connection, table, name)), ())


def _is_unique(connection: sqlalchemy.Connection, table: Table, column: str) -> bool:
    selectable = table.selectable
    values = selectable.c[column]
    counts = sqlalchemy.select(
        sqlalchemy.func.count(), sqlalchemy.func.count(values), sqlalchemy.func.count(values.distinct())
    )
    rows, present, distinct = connection.execute(counts.select_from(selectable)).one()
    return rows > 0 and rows == present == distinct


def _count(connection: sqlalchemy.Connection, name: str) -> int | None:
    some = sqlalchemy.select(sqlalchemy.literal(1)).select_from(sqlalchemy.table(name)).limit(MAX_COUNT).subquery()
    try:
        with connection.begin_nested():
            return connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(some)).scalar_one()
    except SQLAlchemyError:
        return None  # such as a view of a table that is gone


def _index_tables(connection: sqlalchemy.Connection) -> frozenset[str]:
    """Return the virtual tables of SQLite, such as full-text indexes, and the tables in which they keep their data."""
    if connection.dialect.name != "sqlite":
        return frozenset()
    rows = connection.execute(sqlalchemy.text("PRAGMA main.table_list")).mappings()
    return frozenset(row["name"] for row in rows if row["type"] in ("shadow", "virtual"))


def _is_system(name: str) -> bool:
    return name.casefold() in _TOOL_TABLES or name.casefold().startswith(("sqlite_", "pg_"))
