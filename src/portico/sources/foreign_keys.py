"""Finds the columns of a table whose values are keys of other tables: those declared, and those that are plain.

A link is plain if the name of a column says which table it means and all of its values are keys of that table.
"""

from collections.abc import Iterator, Mapping

import sqlalchemy
from sqlalchemy.exc import SQLAlchemyError

from portico.sources.schema import ForeignKey, Table, compact, stems

_PARENTS = ("parent",)  # words for another row of the same table


def links_of(connection: sqlalchemy.Connection, table: Table, others: Mapping[str, Table]) -> list[ForeignKey]:
    """Return one foreign key for each column that has one. Only keys of a single column are links."""
    declared = [key for key in table.foreign_keys if _has_single_key(others.get(key.table))]
    known = {key.column for key in table.foreign_keys}
    plain = [
        key for key in _by_names(table, others) if key.column not in known and _holds(connection, table, key, others)
    ]
    return list({key.column: key for key in (*reversed(plain), *reversed(declared))}.values())


def _has_single_key(table: Table | None) -> bool:
    return table is not None and len(table.keys) == 1


def _by_names(table: Table, others: Mapping[str, Table]) -> Iterator[ForeignKey]:
    own = table.keys[0] if len(table.keys) == 1 else ""
    for target in others.values():
        if len(target.keys) != 1:
            continue
        names = _reference_names(target, is_own=target.name == table.name)
        for column in table.columns:
            if column != own and compact(column) in names:
                yield ForeignKey(column, target.name, target.schema)


def _reference_names(target: Table, *, is_own: bool) -> frozenset[str]:
    """Return what columns that refer to a table are called: `artist_id`, `ArtistId` or `artist`."""
    key = compact(target.keys[0])
    if is_own:
        return frozenset(f"{word}{ending}" for word in _PARENTS for ending in {key, "id", ""})
    names = {name for stem in stems(target.name) for name in (stem, f"{stem}{key}", f"{stem}id")}
    return frozenset(names | {key} if any(key.startswith(stem) for stem in stems(target.name)) else names)


def _holds(connection: sqlalchemy.Connection, table: Table, key: ForeignKey, others: Mapping[str, Table]) -> bool:
    """Whether the column has values, and all of them are keys of the other table."""
    target = others[key.table]
    values = table.selectable.c[key.column]
    keys = target.selectable.c[target.keys[0]]
    present = sqlalchemy.select(values).where(values.is_not(None))
    try:
        with connection.begin_nested():
            if connection.execute(present.limit(1)).first() is None:
                return False
            return connection.execute(present.except_(sqlalchemy.select(keys)).limit(1)).first() is None
    except SQLAlchemyError:
        return False  # values of types that cannot be compared
