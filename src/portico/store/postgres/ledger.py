"""Statements and transactions of the shared parts of a store on PostgreSQL, and its meters."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from portico.store.database import LedgerDialect, LedgerTransaction, SqlRow
from portico.store.postgres.engine import PATIENT_SECONDS, WRITE_SECONDS, PostgresConnection, PostgresEngine
from portico.store.records import TokenGrant

SWEEP_EVERY = 500  # requests, after which meters that are full again are deleted
POLL_SECONDS = 0.25  # while notifications do not arrive

T = TypeVar("T")

DIALECT = LedgerDialect(
    now="clock_timestamp()",
    now_micros="(extract(epoch FROM now()) * 1000000)::bigint",
    never="'-infinity'::timestamptz",
    after="clock_timestamp() + make_interval(secs => {0})",
    no_bytes="''::bytea",
    lock_row=" FOR UPDATE",
    skip_locked=" FOR UPDATE SKIP LOCKED",
    batch=" LIMIT 100 FOR UPDATE SKIP LOCKED",
    encode_time=lambda time: time,
    decode_time=lambda time: time,
)


class PostgresTransaction:
    """See `LedgerTransaction`."""

    def __init__(self, engine: PostgresEngine, db: PostgresConnection) -> None:
        self._engine = engine
        self._db = db

    async def execute(self, sql: str, *params: Any) -> None:
        await self._db.execute(sql, *params)

    async def fetch(self, sql: str, *params: Any) -> Sequence[SqlRow]:
        return await self._db.fetch(sql, *params)

    async def fetchrow(self, sql: str, *params: Any) -> SqlRow | None:
        return await self._db.fetchrow(sql, *params)

    async def lock(self, name: str) -> None:
        await self._db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", self._engine.lock_name(name))

    async def notify_tasks(self) -> None:
        await self._db.execute("SELECT pg_notify($1, 'tasks')", self._engine.channel)


class PostgresLedger:
    """See `LedgerDatabase`."""

    dialect = DIALECT
    has_one_writer = False

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self.fetch = engine.fetch
        self.fetchrow = engine.fetchrow
        self.fetch_patiently = engine.fetch_patiently

    async def change(self, sql: str, *params: Any, before: str = "", notify: bool = False) -> SqlRow | None:
        statement = f"WITH before AS ({before}) {sql}" if before else sql
        if not notify:
            return await self._engine.change(statement, *params)
        return await self._engine.change(
            f"{statement}, pg_notify(${len(params) + 1}, 'tasks')", *params, self._engine.channel
        )

    async def transact(
        self, work: Callable[[LedgerTransaction], Coroutine[Any, Any, T]], *, patient: bool = False
    ) -> T:
        async with self._engine.transaction(PATIENT_SECONDS if patient else WRITE_SECONDS) as db:
            return await work(PostgresTransaction(self._engine, db))

    async def wait_for_tasks(self, after: int, timeout: float) -> int:
        self._engine.listen()
        tasks = self._engine.tasks
        await tasks.wait(after, timeout if self._engine.is_listening else min(timeout, POLL_SECONDS))
        return tasks.count


class PostgresMeters:
    """See `MeterStore`."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._requests = 0

    async def take(self, key: str, per_minute: int, count: int = 1) -> TokenGrant:
        count = min(count, per_minute)
        is_granted, tokens = await self._take_all(key, per_minute, count)
        while not is_granted and tokens >= 1:
            count = int(tokens)
            is_granted, tokens = await self._take_all(key, per_minute, count)
        return TokenGrant(count if is_granted else 0, tokens)

    async def _take_all(self, key: str, per_minute: int, count: int) -> tuple[bool, float]:
        """Take all of these tokens or none; return whether it took them, and how many are left."""
        # The table is not logged: no request waits until a meter is on the disk, and after a crash all are full.
        row = await self._engine.change(_TAKE, key, float(per_minute), float(count))
        self._requests += 1
        if self._requests % SWEEP_EVERY == 0:
            await self._engine.change(
                "DELETE FROM meters WHERE key IN (SELECT key FROM meters"
                " WHERE at < clock_timestamp() - interval '1 minute' LIMIT 10000 FOR UPDATE SKIP LOCKED)"
            )
        is_granted, tokens = row or (True, per_minute - count)
        return is_granted, tokens


_FULL = "least($2::float8, m.tokens + greatest(extract(epoch FROM excluded.at - m.at)::float8, 0) * $2::float8 / 60)"
_TAKE = f"""
INSERT INTO meters AS m VALUES ($1, $2::float8 - $3::float8, true, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET
    granted = {_FULL} >= $3::float8,
    tokens = {_FULL} - CASE WHEN {_FULL} >= $3::float8 THEN $3::float8 ELSE 0 END,
    at = greatest(m.at, excluded.at)
RETURNING granted, tokens
"""
