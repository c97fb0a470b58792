"""Reads of stored vectors, the same statements for every SQL database."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from portico.items import Item
from portico.store.database import SqlRow
from portico.store.health import UnreadableRow
from portico.store.records import VectorRow
from portico.store.tables import Table, read_rows

T = TypeVar("T")

BuildStatement: TypeAlias = Callable[[Table], tuple[str, Sequence[Any]]]


class TableReader(Protocol):
    """Reads one collection, in the shape that its table has at that moment."""

    async def read_bulk(
        self, collection: str, build: BuildStatement, read: Callable[[Table, Iterable[SqlRow]], T]
    ) -> T:
        """Run the statement that `build` returns for the table, and return what `read` makes of its rows."""
        ...


class VectorReader:
    """The reads of `VectorStore`."""

    def __init__(
        self,
        tables: TableReader,
        report: Callable[[UnreadableRow], None],
        encode_field: Callable[[str], str] = lambda field: field,
    ) -> None:
        self._tables = tables
        self._report = report
        self._encode_field = encode_field

    async def list_missing(self, collection: str, model: str, limit: int) -> list[tuple[Item, str]]:
        return await self._tables.read_bulk(
            collection,
            lambda table: (
                f"SELECT i.id, i.data, i.revision, i.digest FROM {table.name} i LEFT JOIN vectors v"
                f" ON v.collection = {table.number} AND v.field = '' AND v.id = i.id"
                " WHERE v.id IS NULL OR v.digest <> i.digest OR v.model <> $1 LIMIT $2",
                (model, limit),
            ),
            lambda table, rows: [(row.item, row.digest) for row in read_rows(table.row, rows, self._report)],
        )

    async def list_after(self, collection: str, field: str, model: str, after: int, limit: int) -> list[VectorRow]:
        return await self._tables.read_bulk(
            collection,
            lambda table: (
                f"SELECT seq, id, digest, vector FROM vectors WHERE collection = {table.number} AND field = $1"
                " AND model = $2 AND seq > $3 ORDER BY seq LIMIT $4",
                (self._encode_field(field), model, after, limit),
            ),
            # A column of SQLite may hold anything. The reader, which knows the length of a vector, skips an empty one.
            lambda _, rows: [
                VectorRow(seq, id, digest, raw if isinstance(raw, bytes) else b"") for seq, id, digest, raw in rows
            ],
        )

    async def count(self, collection: str, model: str) -> tuple[int, int]:
        ((current, total),) = await self._tables.read_bulk(
            collection,
            lambda table: (
                f"SELECT (SELECT COUNT(*) FROM vectors v JOIN {table.name} i USING (id) WHERE"
                f" v.collection = {table.number} AND v.field = '' AND v.model = $1 AND v.digest = i.digest) AS current,"
                f" (SELECT COUNT(*) FROM {table.name}) AS total",
                (model,),
            ),
            lambda _, rows: list(rows),
        )
        return current, total

    async def list_models(self, collection: str) -> list[str]:
        return await self._tables.read_bulk(
            collection,
            lambda table: (
                f"SELECT DISTINCT model FROM vectors WHERE collection = {table.number} AND field = '' ORDER BY model",
                (),
            ),
            lambda _, rows: [model for (model,) in rows],
        )
