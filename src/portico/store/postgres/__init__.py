"""The store on PostgreSQL: typed columns, a change with every write, and other processes told of it.

A write locks the items it names, and at its very end the one row that numbers changes: numbers are given in the order
in which writes become visible, so that a reader of the feed misses nothing. Locks are taken in one order: the shape of
the table, items by their ids, the numbers of vectors, the numbers of changes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg

from portico.catalog import Collection, FieldType, check_collection_name
from portico.errors import SiteError, Unavailable, UnknownCollection, UnknownField
from portico.items import Change, Item, problem_with
from portico.query import READ_SHARE, Aggregate, Filter, Near, Page, Query, checked, make_cursor
from portico.rows import finish_rows
from portico.store import Committed, Load, Put, Record, Settle, VectorRow, Write, Written
from portico.store.health import Health, UnreadableRow
from portico.store.ledger import LeaseLost, micros
from portico.store.nearest import nearest, page_of_nearest, part_shown
from portico.store.planning import (
    Plan,
    by_collection,
    by_source,
    check_ids,
    items_in_order,
    plan_load,
    plan_removal,
    plan_restoring,
    plan_writes,
)
from portico.store.postgres.dialect import DIALECT, plain
from portico.store.postgres.engine import LONG_SECONDS, WRITE_SECONDS, Address, Busy, Connection, Engine
from portico.store.postgres.ledger import POLL_SECONDS, PostgresLedger
from portico.store.postgres.migrations import TABLES
from portico.store.postgres.patterns import has_patterns, without_patterns
from portico.store.postgres.tables import insert, make_index, read_schema, reshape, update, worth_indexing
from portico.store.postgres.vectors import candidates, graph_for, put_field_vectors, put_vectors, tag
from portico.store.sql import MAX_GROUPS, Statement, ordering, shown_row, too_many_groups
from portico.store.tables import (
    ADOPTED_AT_ONCE,
    INDEXED_FROM,
    SCAN_BATCH,
    Row,
    Schema,
    Table,
    combined,
    feed_expired,
    fill_page,
    from_json,
    overtaken,
    position_of,
    read_changes,
    read_rows,
    text,
)

ATTEMPTS = 8  # at a write that others get in the way of, or that needs room first
MAX_SEQ = 2**63 - 1
MAX_PROBLEMS = 10  # that are told of at once
HEARING_SECONDS = 5.0  # between looks at the feed while news arrive

T = TypeVar("T")


class PostgresStore(PostgresLedger):
    """See `Store`. Any number of processes, on any number of machines, may use the same database."""

    def __init__(self, address: Address, engine: Engine, *, keep_changes: int) -> None:
        super().__init__(engine)
        self.url = address.shown
        self._keep_changes = keep_changes
        self._known = Schema(-1, {})
        self._secret = b""
        self._reshaping: dict[str, asyncio.Lock] = {}
        self.health = Health(self.save_blob, self._find_damage)
        engine.report = self.health.report

    @classmethod
    async def open(cls, url: str, *, keep_changes: int, pool: int, seconds: float) -> "PostgresStore":
        address = Address.of(url)
        store = cls(address, Engine(address, pool=pool, seconds=seconds), keep_changes=keep_changes)
        try:
            store._secret = await store._engine.open()
            await store.refresh()
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def secret(self) -> bytes:
        return self._secret

    @property
    def schema(self) -> Mapping[str, Collection]:
        return self._known.collections

    def stamp(self) -> int | None:
        return None

    async def close(self) -> None:
        await self.health.close()
        await self._engine.close()

    # Collections

    async def refresh(self) -> Mapping[str, Collection]:
        return (await self._look()).collections

    async def _look(self) -> Schema:
        number = (await self._engine.fetch("SELECT shape FROM meta"))[0][0]
        if number != self._known.number:
            async with self._engine.connection() as db:
                self._remember(await read_schema(db))
        return self._known

    def _remember(self, seen: Schema) -> None:
        if seen.number > self._known.number:
            self._known = seen

    async def declare(self, collection: Collection) -> Collection:
        known = (await self.refresh()).get(collection.name)
        if known and known == combined(known, collection):
            return known
        check_collection_name(collection.name)
        return await self._reshape(collection.name, lambda known: combined(known, collection) if known else collection)

    async def _reshape(self, name: str, wish: Callable[[Collection | None], Collection]) -> Collection:
        # Of this process only one waits for its turn, so that the others' connections stay free.
        async with self._reshaping.setdefault(name, asyncio.Lock()):
            for pause in _pauses(LONG_SECONDS):
                try:
                    async with self._engine.holding(f"shape/{name}") as db:
                        return await self._reshaped(db, name, wish)
                except Busy:
                    await asyncio.sleep(pause)
        raise _being_changed(name)

    async def _reshaped(self, db: Connection, name: str, wish: Callable[[Collection | None], Collection]) -> Collection:
        known = (await read_schema(db)).tables.get(name)
        wanted = wish(known.collection if known else None)
        if known is None or known.collection != wanted:
            await reshape(db, known, wanted)
        seen = await read_schema(db)
        self._remember(seen)
        return seen.table(name).collection

    # Reading

    async def _select(
        self,
        collection: str,
        build: Callable[[Table], tuple[str, Sequence[Any]]],
        beside: Callable[[Table], str] | None = None,
        db: Connection | None = None,
        *,
        in_bulk: bool = False,
        quick: bool = False,
    ) -> tuple[Table, list[Sequence[Any]]]:
        """The rows of one statement about a collection, and the table as it was when they were read.

        The number of the shape comes with the rows: if it is not the one the statement was made for, it is made anew.
        """
        engine = self._engine
        alone = engine.fetch_patiently if in_bulk else engine.fetch if quick else engine.search
        fetch = db.fetch if db else alone
        known = self._known
        for _ in range(ATTEMPTS):
            try:
                table = known.table(collection)
                sql, params = build(table)
            except (UnknownCollection, UnknownField):
                seen = await self._seen(db)
                if seen is known:
                    raise
                known = seen
                continue
            extra = f"({beside(table)})" if beside else "NULL"
            rows = await fetch(
                f"SELECT m.shape, {extra}, q.* FROM meta m"
                f" LEFT JOIN LATERAL (SELECT true AS there, x.* FROM ({sql}) x) q ON true",
                *params,
            )
            if rows[0][0] == known.number:
                return table, rows
            known = await self._seen(db)
        raise Unavailable(f"The fields of {collection} keep changing", hint="Try again.")

    async def _seen(self, db: Connection | None) -> Schema:
        """The shape of all tables as it is now, or as a transaction sees it."""
        if db is None:
            return await self._look()
        if await db.fetchval("SELECT shape FROM meta") == self._known.number:
            return self._known
        seen = await read_schema(db)
        self._remember(seen)
        return seen

    async def _table(self, collection: str, db: Connection) -> Table:
        return (await self._seen(db)).table(collection)

    async def get(self, collection: str, id: str) -> Item | None:
        table, rows = await self._select_rows(collection, [id])
        try:
            return next((table.item(*row) for row in rows), None)
        except UnreadableRow as error:
            self.health.report_row(error)
            raise

    async def get_many(self, collection: str, ids: Sequence[str]) -> dict[str, Item]:
        table, rows = await self._select_rows(collection, ids)
        return {item.id: item for item in read_rows(table.item, rows, self.health.report_row)}

    async def _select_rows(self, collection: str, ids: Sequence[str]) -> tuple[Table, list[Sequence[Any]]]:
        wanted = [id for id in ids if not problem_with(id, {})]
        table, rows = await self._select(collection, lambda table: (_by_id(table), [wanted]), quick=True)
        return table, _found(rows)

    async def find(self, query: Query) -> Page:
        if has_patterns(query.where):
            async with self._engine.snapshot() as db:
                return await self._find(query, await self._resolved(query, db), db)
        return await self._find(query, query.where)

    async def _find(self, query: Query, where: Filter, db: Connection | None = None) -> Page:
        if query.aggregate:
            return await self._group(query, query.aggregate, where, db)
        if query.near:
            return await self._near(query, query.near, where, db)
        return await self._page(query, where, db)

    def cursor(self, query: Query, last: Item) -> str:
        return _statement(self._known.table(query.collection)).cursor(query, last, self._secret)

    async def _page(self, query: Query, where: Filter, db: Connection | None) -> Page:
        asked = query
        kinds = ""

        def build(table: Table) -> tuple[str, Sequence[Any]]:
            nonlocal asked, kinds
            asked = checked(query, table.collection)
            sql = _statement(table)
            found = sql.where(where)
            terms = sql.order(asked.order)
            kinds = sql.kinds(asked.order)
            if asked.cursor:
                found = f"({found} AND {sql.after(terms, position_of(asked, kinds, self._secret))})"
            keys = ", ".join(f"{term.sql} AS k{i}" for i, term in enumerate(terms))
            order = ordering(terms)
            rows = (
                f"SELECT id, data, revision, digest, {keys} FROM {table.name} WHERE {found} ORDER BY {order}"
                f" LIMIT {asked.limit + 1}"
            )
            return _within(rows, len(terms), asked), sql.params

        def total(table: Table) -> str:
            return f"SELECT COUNT(*) FROM {table.name} WHERE {_statement(table).where(where)}"

        table, rows = await self._select(query.collection, build, total if query.count else None, db)
        found = _found(rows)
        is_cut = bool(found) and len(found) < found[0][0]
        items, position = fill_page((row[1:] for row in found), asked, table, self.health.report_row, is_cut=is_cut)
        cursor = make_cursor(asked, (kinds, *map(plain, position)), self._secret) if position else ""
        return Page(items, total=rows[0][1], cursor=cursor)

    async def _group(self, query: Query, aggregate: Aggregate, where: Filter, db: Connection | None) -> Page:
        def build(table: Table) -> tuple[str, Sequence[Any]]:
            checked(query, table.collection)
            sql = _statement(table)
            found = sql.where(where)
            keys, computed = sql.group(aggregate)
            columns = ", ".join(f"{each} AS c{i}" for i, each in enumerate([*keys, *computed]))
            grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
            return f"SELECT {columns} FROM {table.name} WHERE {found}{grouped} LIMIT {MAX_GROUPS + 1}", sql.params

        table, rows = await self._select(query.collection, build, None, db)
        found = _found(rows)
        if len(found) > MAX_GROUPS:
            raise too_many_groups()
        asked = checked(query, table.collection)

        def finished() -> Page:
            named = [shown_row(aggregate, table.collection, [plain(v) for v in row], from_json) for row in found]
            return finish_rows(named, asked, table.collection, self._secret)

        return await asyncio.to_thread(finished)

    async def count(self, collection: str, where: Filter) -> int:
        if has_patterns(where):
            return len(await self.matching(collection, where))

        def build(table: Table) -> tuple[str, Sequence[Any]]:
            checked(Query(collection, where=where), table.collection)
            sql = _statement(table)
            return f"SELECT COUNT(*) FROM {table.name} WHERE {sql.where(where)}", sql.params

        _, rows = await self._select(collection, build)
        return _found(rows)[0][0]

    async def matching(self, collection: str, where: Filter) -> list[str]:
        if has_patterns(where):
            async with self._engine.snapshot() as db:
                return await self._matching(collection, await self._resolved(Query(collection, where=where), db), db)
        return await self._matching(collection, where)

    async def _matching(self, collection: str, where: Filter, db: Connection | None = None) -> list[str]:
        def build(table: Table) -> tuple[str, Sequence[Any]]:
            checked(Query(collection, where=where), table.collection)
            sql = _statement(table)
            return f"SELECT id FROM {table.name} WHERE {sql.where(where)}", sql.params

        _, rows = await self._select(collection, build, None, db)
        return [id for (id,) in _found(rows)]

    async def _resolved(self, query: Query, db: Connection) -> Filter:
        table = await self._table(query.collection, db)
        checked(query, table.collection)
        return await without_patterns(db, table, query.where)

    async def scan(self, collection: str) -> AsyncIterator[list[Item]]:
        async for table, rows in self._walk(collection):
            yield read_rows(table.item, rows, self.health.report_row)

    async def _walk(self, collection: str, *more: str) -> AsyncIterator[tuple[Table, list[Sequence[Any]]]]:
        """All rows, in batches, in the order of their ids."""
        columns = ", ".join(["id", "data", "revision", "digest", *more])
        last = ""
        while True:

            def build(table: Table, after: str = last) -> tuple[str, Sequence[Any]]:
                return f"SELECT {columns} FROM {table.name} WHERE id > $1 ORDER BY id LIMIT {SCAN_BATCH}", [after]

            table, rows = await self._select(collection, build, in_bulk=True)
            found = _found(rows)
            if not found:
                return
            last = found[-1][0]
            yield table, found

    # Nearness

    async def _near(self, query: Query, near: Near, where: Filter, db: Connection | None) -> Page:
        if db is None:
            async with self._engine.snapshot() as taken:
                return await self._near(query, near, where, taken)
        table = await self._table(query.collection, db)
        asked = checked(query, table.collection)
        rows = await candidates(db, table, near, where)
        ids, scores = await asyncio.to_thread(nearest, rows, near)
        shown = ids[part_shown(asked, ids, self._secret)]
        rows = await db.fetch(_by_id(table), shown)
        found = {item.id: item for item in read_rows(table.item, rows, self.health.report_row)}
        return page_of_nearest(asked, table.collection, ids, scores, found, self._secret)

    # Writing

    async def write(self, collection: str, writes: Sequence[Write]) -> list[Change]:
        committed = await self.commit([(collection, write) for write in writes])
        return committed.changes if committed else []

    async def commit(self, writes: Sequence[tuple[str, Write]], settle: Settle | None = None) -> Committed | None:
        check_ids([write for _, write in writes])
        groups = by_collection(writes)

        async def work(db: Connection, tables: Mapping[str, Table]) -> Committed:
            plans: dict[str, Plan] = {}
            for name, group in groups.items():
                before = await _locked(db, tables[name], [write.id for write in group])
                plans[name] = plan_writes(tables[name].collection, group, before, _now())
            items = items_in_order(writes, plans)
            planned = [(tables[name], plan) for name, plan in plans.items()]
            await self._put_items(db, planned)
            if settle:
                await self.record_settlement(db, settle(items))
            return Committed(await self._append_all(db, planned), items)

        try:
            return await self._writing_all(list(groups), work)
        except LeaseLost:
            return None

    async def _writing(self, collection: str, work: Callable[[Connection, Table], Awaitable[T]]) -> T:
        return await self._writing_all([collection], lambda db, tables: work(db, tables[collection]))

    async def _writing_all(
        self, collections: Sequence[str], work: Callable[[Connection, Mapping[str, Table]], Awaitable[T]]
    ) -> T:
        """Run work in a transaction in which tables keep their shape; again if it needs room or met another write."""
        attempts, needs = 0, None
        for pause in _pauses(WRITE_SECONDS):
            try:
                if needs:
                    await self._reshape(needs.name, needs.met)
                    needs = None
                # Writers share the locks and do not wait for each other, only for a change of the shape.
                async with self._engine.writing(shared=[f"shape/{name}" for name in collections]) as db:
                    return await work(db, {name: await self._table(name, db) for name in collections})
            except Busy:
                await asyncio.sleep(pause)
                continue
            except NeedsRoom as room:
                needs = room
            except Raced:
                await asyncio.sleep(pause)
            except SiteError as error:
                if not await self._cleared(collections, error.__cause__):
                    raise
                await asyncio.sleep(pause)
            attempts += 1
            if attempts == ATTEMPTS:
                names = ", ".join(collections)
                raise Unavailable(f"{names} is being written by too many at once", hint="Try again.")
        raise _being_changed(", ".join(collections))

    async def _cleared(self, collections: Sequence[str], fault: BaseException | None) -> bool:
        """Whether what was in the way of a write is so no longer."""
        match fault:
            case asyncpg.DeadlockDetectedError() | asyncpg.SerializationError():
                return True
            case asyncpg.ProgramLimitExceededError() if "index row" in str(fault):
                for name in collections:
                    await self._drop_text_indexes(name, fault.constraint_name)
                return True
            case _:
                return False

    async def _drop_text_indexes(self, collection: str, named: str | None) -> None:
        """A text has come that no index can hold. It was worth one while all were short. Not every fault names it."""
        table = (await self._look()).table(collection)
        texts = [c for name, c in table.columns.items() if table.collection.fields[name].type == FieldType.STRING]
        indexes = [f"{table.name}_{column}" for column in texts]
        async with self._engine.writing() as db:
            await db.execute("SET LOCAL lock_timeout = '1s'")
            for index in [named] if named in indexes else indexes:
                await db.execute(f"DROP INDEX IF EXISTS {index}")

    async def _carry_out(self, db: Connection, table: Table, plan: Plan, source: str | None = None) -> list[Change]:
        """Write what a plan says. Items keep their source unless a new one is given."""
        await self._put_items(db, [(table, plan)], source)
        return await self._append(db, table, plan)

    async def _put_items(
        self, db: Connection, planned: Sequence[tuple[Table, Plan]], source: str | None = None
    ) -> None:
        """Write the items of plans, then their vectors: the locks of all tables are taken in one order."""
        for table, plan in planned:
            if plan.collection is not table.collection:
                raise NeedsRoom(plan)
        for table, plan in planned:
            at = micros(plan.at)
            created, updated, removed = plan.created, plan.updated, plan.removed
            if created and await insert(db, table, created, source or "", at) < len(created):
                raise Raced
            if updated:
                await update(db, table, updated, source, at)
            if removed:
                await db.execute(f"DELETE FROM {table.name} WHERE id = ANY($1::text[])", removed)
                await db.execute(
                    "DELETE FROM vectors WHERE collection = $1 AND id = ANY($2::text[])", table.number, removed
                )
        for table, plan in planned:
            for known in table.vector_fields:
                await put_field_vectors(db, table, known, [*plan.created, *plan.updated])

    async def _append_all(self, db: Connection, planned: Sequence[tuple[Table, Plan]]) -> list[Change]:
        return [change for table, plan in planned for change in await self._append(db, table, plan)]

    async def _append(self, db: Connection, table: Table, plan: Plan) -> list[Change]:
        """Number the changes and write them into the feed, in the transaction of what they tell."""
        count = len(plan.changes)
        if not count:
            return []
        last = await db.fetchval(
            "WITH numbered AS (UPDATE feed SET seq = seq + $2::bigint RETURNING seq, pg_notify($3, 'changes')),"
            " told AS (INSERT INTO changes"
            " SELECT numbered.seq - $2::bigint + n, $1::int, id, kind, version, data, patch, undo, $4::bigint"
            " FROM numbered, unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])"
            " WITH ORDINALITY AS c(id, kind, version, data, patch, undo, n)) SELECT seq FROM numbered",
            table.number,
            count,
            self._engine.channel,
            micros(plan.at),
            [change.item.id for change in plan.changes],
            [change.kind for change in plan.changes],
            [change.item.version for change in plan.changes],
            plan.raws,
            [text(change.patch) for change in plan.changes],
            [text(change.undo) for change in plan.changes],
        )
        if last // 1000 > (last - count) // 1000:
            await db.execute("DELETE FROM changes WHERE seq <= $1", last - self._keep_changes)
        return [replace(change, seq=last - count + i) for i, change in enumerate(plan.changes, 1)]

    # Loading

    async def begin_load(self, source: str) -> Load:
        async with self._engine.writing() as db:
            await self._alone(db, "runs")
            # A batch of another run that is under way ends first. What a killed run had seen is of no use.
            await db.fetch("SELECT run FROM runs WHERE source = $1 FOR UPDATE", source)
            await db.execute("DELETE FROM seen WHERE run IN (SELECT run FROM runs WHERE source = $1)", source)
            await db.execute("DELETE FROM runs WHERE source = $1", source)
            return Load(await db.fetchval("INSERT INTO runs (source) VALUES ($1) RETURNING run", source), source)

    async def adopt(self, load: Load, collection: str, source: str) -> None:
        async def work(db: Connection, table: Table) -> int:
            await _check_not_overtaken(db, load)
            chosen = await db.fetch(
                f"SELECT id FROM {table.name} WHERE source = $1 ORDER BY id LIMIT $2 FOR UPDATE",
                source,
                ADOPTED_AT_ONCE,
            )
            ids = [id for (id,) in chosen]
            await db.execute(f"UPDATE {table.name} SET source = $1 WHERE id = ANY($2::text[])", load.source, ids)
            return len(ids)

        while await self._writing(collection, work) == ADOPTED_AT_ONCE:
            pass

    async def load(self, load: Load, collection: str, puts: Sequence[Put]) -> Written:
        if collection not in await self.refresh():
            check_collection_name(collection)
            await self._reshape(collection, lambda known: known or Collection(collection))
        ids = [put.id for put in puts]

        async def work(db: Connection, table: Table) -> Written:
            await _check_not_overtaken(db, load)
            before = await _locked(db, table, ids)
            seen = await db.fetch(
                "SELECT id FROM seen WHERE run = $1 AND collection = $2 AND id = ANY($3::text[])",
                load.run,
                table.number,
                ids,
            )
            planned = plan_load(table.collection, puts, before, {id for (id,) in seen}, _now())
            await self._carry_out(db, table, planned.plan, load.source)
            if planned.claimed:
                await db.execute(
                    f"UPDATE {table.name} SET source = $1 WHERE id = ANY($2::text[]) AND source <> $1",
                    load.source,
                    planned.claimed,
                )
            await db.execute(
                "INSERT INTO seen SELECT $1, $2, unnest($3::text[]) ON CONFLICT DO NOTHING", load.run, table.number, ids
            )
            return planned.written

        return await self._writing(collection, work)

    async def finish_load(self, load: Load) -> int:
        removed = 0
        for name in await self.refresh():
            while count := await self._writing(name, lambda db, table: self._forget(db, table, load)):
                removed += count
        async with self._engine.writing() as db:
            await db.execute("DELETE FROM runs WHERE run = $1", load.run)
            await db.execute("DELETE FROM seen WHERE run = $1", load.run)
        return removed

    async def _forget(self, db: Connection, table: Table, load: Load) -> int:
        await _check_not_overtaken(db, load)
        gone = await db.fetch(
            # Not as a join: what was just seen is not in the planner's statistics yet.
            f"SELECT id FROM {table.name} WHERE source = $1"
            " EXCEPT SELECT id FROM seen WHERE run = $2 AND collection = $3 LIMIT 500",
            load.source,
            load.run,
            table.number,
        )
        before = await _locked(db, table, [id for (id,) in gone], load.source)
        plan = plan_removal(table.collection, before, _now())
        return len(await self._carry_out(db, table, plan))

    async def optimise(self, collection: str) -> None:
        table = (await self._look()).table(collection)
        async with self._engine.alone(f"optimise/{table.number}") as db:
            if db is None:
                return  # another process is at it
            if await db.fetchval(f"SELECT COUNT(*) FROM {table.name}") >= INDEXED_FROM:
                for column in await worth_indexing(db, table):
                    await make_index(db, f"{table.name}_{column}", f"{table.name} ({column})")
            for field in ("", *(f.name for f in table.vector_fields)):
                graph = await graph_for(db, table, field)
                if graph:
                    await make_index(db, *graph)
            await db.execute(f"ANALYZE {table.name}")

    # The feed

    async def head(self) -> int:
        return (await self._engine.fetch("SELECT seq FROM feed"))[0][0]

    async def changes(self, since: int, limit: int = 1000, collection: str | None = None) -> list[Change]:
        only = None
        since = max(min(since, MAX_SEQ), -1)
        if collection is not None:
            table = self._known.tables.get(collection) or (await self._look()).table(collection)
            only = table.number
        rows = await self._engine.fetch(
            "SELECT f.seq, (SELECT min(seq) FROM changes), c.* FROM feed f LEFT JOIN LATERAL"
            " (SELECT seq, collection, id, kind, version, data, patch, undo, at FROM changes"
            " WHERE seq > $1 AND ($3::int IS NULL OR collection = $3) ORDER BY seq LIMIT $2) c ON true",
            since,
            limit,
            only,
        )
        newest, oldest = rows[0][0], rows[0][1] or rows[0][0] + 1
        if since < oldest - 1 or since > newest:
            raise feed_expired(since, oldest, newest)
        found = [row[2:] for row in rows if row[2] is not None]
        if any(row[1] not in self._known.names for row in found):
            await self._look()
        return read_changes(self._known.names, found, self.health.report_row)

    async def wait(self, seq: int, timeout: float) -> int:
        self._engine.listen()
        deadline = time.monotonic() + timeout
        while True:
            heard = self._engine.changes.count
            head = await self.head()
            left = deadline - time.monotonic()
            if head > seq or left <= 0:
                return head
            await self._engine.changes.wait(heard, min(left, HEARING_SECONDS if self._engine.hears else POLL_SECONDS))

    # Vectors

    async def unembedded(self, collection: str, model: str, limit: int) -> list[tuple[Item, str]]:
        table, rows = await self._select(
            collection,
            lambda table: (
                f"SELECT i.id, i.data, i.revision, i.digest FROM {table.name} i LEFT JOIN vectors v"
                f" ON v.collection = {table.number} AND v.field = '' AND v.id = i.id"
                " WHERE v.id IS NULL OR v.digest <> i.digest OR v.model <> $1 LIMIT $2",
                [model, limit],
            ),
            in_bulk=True,
        )
        return [(row.item, row.digest) for row in read_rows(table.row, _found(rows), self.health.report_row)]

    async def put_vectors(self, collection: str, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None:
        await self._writing(collection, lambda db, table: put_vectors(db, table, model, rows))

    async def vectors(self, collection: str, field: str, model: str, after: int, limit: int) -> list[VectorRow]:
        _, rows = await self._select(
            collection,
            lambda table: (
                f"SELECT seq, id, digest, vector FROM vectors WHERE collection = {table.number} AND field = $1"
                " AND model = $2 AND seq > $3 ORDER BY seq LIMIT $4",
                [tag(field), model, after, limit],
            ),
            in_bulk=True,
        )
        return [VectorRow(*row) for row in _found(rows)]

    async def vector_counts(self, collection: str, model: str) -> tuple[int, int]:
        _, rows = await self._select(
            collection,
            lambda table: (
                f"SELECT (SELECT COUNT(*) FROM vectors v JOIN {table.name} i USING (id) WHERE"
                f" v.collection = {table.number} AND v.field = '' AND v.model = $1 AND v.digest = i.digest),"
                f" (SELECT COUNT(*) FROM {table.name})",
                [model],
            ),
            in_bulk=True,
        )
        current, there = _found(rows)[0]
        return current, there

    # Moving

    async def records(self, collection: str) -> AsyncIterator[list[Record]]:
        async for table, rows in self._walk(collection, "source"):
            yield [Record(table.item(*row[:4]), row[4]) for row in rows]

    async def restore(self, collection: str, records: Sequence[Record]) -> int:
        restored = 0
        for source, group in by_source(records):

            async def work(db: Connection, table: Table, source: str = source, group: list[Item] = group) -> int:
                before = await _locked(db, table, [item.id for item in group])
                plan = plan_restoring(table.collection, group, before, _now())
                changes = await self._carry_out(db, table, plan, source)
                await db.execute(
                    f"UPDATE {table.name} SET source = $1 WHERE id = ANY($2::text[]) AND source <> $1",
                    source,
                    list(before),
                )
                await db.execute(
                    "DELETE FROM vectors WHERE collection = $1 AND field = '' AND id = ANY($2::text[])",
                    table.number,
                    [row.item.id for row in plan.updated],
                )
                return len(changes)

            restored += await self._writing(collection, work)
        return restored

    async def vector_models(self, collection: str) -> list[str]:
        _, rows = await self._select(
            collection,
            lambda table: (
                f"SELECT DISTINCT model FROM vectors WHERE collection = {table.number} AND field = '' ORDER BY model",
                (),
            ),
        )
        return [model for (model,) in _found(rows)]

    async def skip_to(self, seq: int) -> None:
        await self._engine.change("UPDATE feed SET seq = greatest(seq, $1)", seq)

    # Health

    async def check(self) -> list[str]:
        rows = await self._engine.fetch(
            "SELECT c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid"
            " WHERE NOT x.indisvalid AND c.relnamespace = current_schema()::regnamespace"
        )
        unfinished = [f"The index {name} was not finished; loading again makes it anew" for (name,) in rows]
        return [*await self._find_damage(), *unfinished, *await self._damaged_rows()][:MAX_PROBLEMS]

    async def _find_damage(self) -> list[str]:
        """Read every table to its end; PostgreSQL itself says if it cannot."""
        there = {
            name
            for (name,) in await self._engine.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            )
        }
        tables = (*TABLES, *(table.name for table in (await self._look()).tables.values()))
        for name in tables:
            if name in there:
                await self._engine.fetch_patiently(f"SELECT sum(length(t::text)) FROM {name} t")
        return [f"The table {name} is missing" for name in tables if name not in there]

    async def _damaged_rows(self) -> list[str]:
        """What is wrong with rows of items and of the feed."""
        found: list[str] = []
        for name in self._known.tables:
            async for table, rows in self._walk(name):
                found += filter(None, (table.find_damage(*row) for row in rows))
        seq = (await self._engine.fetch("SELECT coalesce((SELECT min(seq) - 1 FROM changes), seq) FROM feed"))[0][0]
        while changes := await self.changes(seq):
            found += [f"Change {change.seq} cannot be read" for change in changes if not change.is_readable]
            seq = changes[-1].seq
        return found


class NeedsRoom(Exception):
    """What is written has fields that the table has no columns for yet."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(f"{plan.collection.name} needs room")
        self.name = plan.collection.name
        self._datas = [change.item.data for change in plan.changes if change.kind != "delete"]

    def met(self, known: Collection | None) -> Collection:
        """What is known of the collection by now, with room for what is written."""
        wanted = known or Collection(self.name)
        for data in self._datas:
            wanted = wanted.widened(data)
        return wanted


class Raced(Exception):
    """Another process made the same item at the same time."""


def _pauses(seconds: float) -> Iterator[float]:
    """Growing pauses for as long as something may be tried."""
    deadline, pause = time.monotonic() + seconds, 0.01
    while time.monotonic() < deadline:
        yield pause
        pause = min(2 * pause, 0.5)


def _being_changed(collection: str) -> Unavailable:
    return Unavailable(f"{collection} is being given new fields", hint="That may take a while. Try again later.")


def _statement(table: Table) -> Statement:
    return Statement(DIALECT, table.collection, table.columns)


def _now() -> datetime:
    return datetime.now(UTC)


def _found(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """What `_select` found, without what comes beside it."""
    return [row[3:] for row in rows if row[2]]


def _within(rows: str, keys: int, query: Query) -> str:
    """The same rows, up to the first that no longer fits into the page; the first two always.

    The first column counts the rows, also those that are left out. The length of a text is known without reading it.
    """
    names = ", ".join(("id", "data", "revision", "digest", *(f"k{i}" for i in range(keys))))
    if not query.max_bytes:
        return f"SELECT 0 AS count, {names} FROM ({rows}) a"
    size = f"octet_length(data) / {READ_SHARE}" if query.fields else "octet_length(data)"
    before = f"sum({size}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    numbered = f"SELECT {names}, count(*) OVER () AS count, row_number() OVER () AS number, {before} AS before"
    return (
        f"SELECT count, {names} FROM ({numbered} FROM ({rows}) a) b"
        f" WHERE number <= 2 OR before <= {int(query.max_bytes)}"
    )


def _by_id(table: Table) -> str:
    return f"SELECT id, data, revision, digest FROM {table.name} WHERE id = ANY($1::text[])"


async def _locked(db: Connection, table: Table, ids: Sequence[str], source: str | None = None) -> dict[str, Row]:
    """Items that nobody else writes until the transaction ends; in one order for all, so that none waits in a ring.

    With a source, only those that are of it still.
    """
    only = "($2::text IS NULL OR source = $2)"
    rows = await db.fetch(f"{_by_id(table)} AND {only} ORDER BY id FOR UPDATE", list(ids), source)
    return {row[0]: table.row_before(*row) for row in rows}


async def _check_not_overtaken(db: Connection, load: Load) -> None:
    """Make sure that no other load of the source has begun, and that none begins before the transaction ends."""
    if not await db.fetchval("SELECT 1 FROM runs WHERE run = $1 FOR SHARE", load.run):
        raise overtaken(load)
