"""Collections in PostgreSQL: the schema as processes share it, and statements that fit it."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from portico.catalog import Collection, check_collection_name
from portico.errors import Unavailable, UnknownCollection, UnknownField
from portico.store.database import SqlRow
from portico.store.postgres.engine import LONG_SECONDS, LockBusy, PostgresConnection, PostgresEngine
from portico.store.postgres.tables import columns_to_index, make_index, read_schema, reshape
from portico.store.postgres.vectors import graph_for
from portico.store.tables import INDEXED_FROM, Schema, Table, merge_description
from portico.store.vectors import BuildStatement

ATTEMPTS = 8  # at a statement while the tables change

T = TypeVar("T")


class PostgresCollections:
    """See `CollectionStore`."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._reshaping: dict[str, asyncio.Lock] = {}
        self.known = Schema(-1, {})

    @property
    def schema(self) -> Mapping[str, Collection]:
        return self.known.collections

    async def refresh(self) -> Mapping[str, Collection]:
        return (await self.read_current()).collections

    async def read_current(self, db: PostgresConnection | None = None) -> Schema:
        """Return the schema as it is now, or as a transaction sees it."""
        if db is None:
            ((number,),) = await self._engine.fetch("SELECT shape FROM meta")
            if number != self.known.number:
                async with self._engine.connection() as connection:
                    self._remember(await read_schema(connection))
            return self.known
        if await db.fetchval("SELECT shape FROM meta") == self.known.number:
            return self.known
        schema = await read_schema(db)
        self._remember(schema)
        return schema

    def _remember(self, schema: Schema) -> None:
        if schema.number > self.known.number:
            self.known = schema

    async def table(self, collection: str, db: PostgresConnection | None = None) -> Table:
        return (await self.read_current(db)).table(collection)

    async def declare(self, collection: Collection) -> Collection:
        before = (await self.refresh()).get(collection.name)
        if before and before == merge_description(before, collection):
            return before
        check_collection_name(collection.name)
        return await self.reshape(
            collection.name, lambda before: merge_description(before, collection) if before else collection
        )

    async def settle(self, name: str, describe: Callable[[Collection], Collection]) -> Collection:
        before = (await self.table(name)).collection
        if before == describe(before):
            return before
        return await self.reshape(name, lambda stored: describe(stored or before))

    async def reshape(self, name: str, describe: Callable[[Collection | None], Collection]) -> Collection:
        """Create or change a table for what `describe` returns for the stored collection."""
        # Only one task of this process waits for the lock, so that the others do not block connections.
        async with self._reshaping.setdefault(name, asyncio.Lock()):
            for pause in pauses(LONG_SECONDS):
                try:
                    async with self._engine.hold(f"shape/{name}") as db:
                        return await self._reshape(db, name, describe)
                except LockBusy:
                    await asyncio.sleep(pause)
        raise schema_busy(name)

    async def _reshape(
        self, db: PostgresConnection, name: str, describe: Callable[[Collection | None], Collection]
    ) -> Collection:
        table = (await read_schema(db)).tables.get(name)
        target = describe(table.collection if table else None)
        if table is None or table.collection != target:
            await reshape(db, table, target)
        schema = await read_schema(db)
        self._remember(schema)
        return schema.table(name).collection

    async def select(
        self,
        collection: str,
        build: BuildStatement,
        build_value: Callable[[Table], str] | None = None,
        fetch: Callable[..., Any] | None = None,
        db: PostgresConnection | None = None,
    ) -> tuple[Table, list[SqlRow], Any]:
        """Return the table as it was when its rows were read, the rows, and the value of a second query.

        The number of the schema comes with the rows: if the statement was built for another one, it is built again.
        """
        fetch = db.fetch if db else fetch or self._engine.search
        existing = self.known
        for _ in range(ATTEMPTS):
            try:
                table = existing.table(collection)
                sql, params = build(table)
            except (UnknownCollection, UnknownField):
                schema = await self.read_current(db)
                if schema is existing:
                    raise
                existing = schema
                continue
            value = f"({build_value(table)})" if build_value else "NULL"
            rows: Sequence[SqlRow] = await fetch(
                f"SELECT m.shape, {value}, q.* FROM meta m"
                f" LEFT JOIN LATERAL (SELECT true AS is_row, x.* FROM ({sql}) x) q ON true",
                *params,
            )
            if rows[0][0] == existing.number:
                return table, [row[3:] for row in rows if row[2]], rows[0][1]
            existing = await self.read_current(db)
        raise Unavailable(f"The fields of {collection} keep changing", hint="Try again.")

    async def read_bulk(
        self, collection: str, build: BuildStatement, read: Callable[[Table, Iterable[SqlRow]], T]
    ) -> T:
        """See `TableReader`."""
        table, rows, _ = await self.select(collection, build, fetch=self._engine.fetch_patiently)
        return read(table, rows)

    async def optimize(self, collection: str) -> None:
        table = await self.table(collection)
        async with self._engine.try_hold(f"optimise/{table.number}") as db:
            if db is None:
                return  # another process does it
            if await db.fetchval(f"SELECT COUNT(*) FROM {table.name}") >= INDEXED_FROM:
                for column in await columns_to_index(db, table):
                    await make_index(db, f"{table.name}_{column}", f"{table.name} ({column})")
            for field in ("", *(field.name for field in table.vector_fields)):
                graph = await graph_for(db, table, field)
                if graph:
                    await make_index(db, *graph)
            await db.execute(f"ANALYZE {table.name}")


def pauses(seconds: float) -> Iterator[float]:
    """Yield growing pauses until the time is over."""
    deadline, pause = time.monotonic() + seconds, 0.01
    while time.monotonic() < deadline:
        yield pause
        pause = min(2 * pause, 0.5)


def schema_busy(collection: str) -> Unavailable:
    return Unavailable(f"The fields of {collection} are being changed", hint="This may take a while. Try again later.")
