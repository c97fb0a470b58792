"""Statements and transactions of the shared parts of a store on SQLite, and its meters."""

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from portico.store.database import LedgerDialect, LedgerTransaction, Notifications, SqlRow
from portico.store.encoding import from_micros, to_micros
from portico.store.records import TokenGrant
from portico.store.sqlite.engine import SqliteDatabase, SqliteEngine, number_params

POLL_SECONDS = 0.25  # how late the notification of another process may be
MINUTE = 60.0

T = TypeVar("T")

DIALECT = LedgerDialect(
    now="portico_now()",
    now_micros="portico_now()",
    never="0",
    after="portico_now() + CAST({0} * 1000000 AS INTEGER)",
    no_bytes="x''",
    lock_row="",
    skip_locked="",
    batch="",
    encode_time=to_micros,
    decode_time=from_micros,
)


class SqliteTransaction:
    """See `LedgerTransaction`. Nothing here suspends: a statement has ended when its call returns."""

    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db
        self.has_task_news = False

    async def execute(self, sql: str, *params: Any) -> None:
        self._db.execute(number_params(sql), params).fetchall()

    async def fetch(self, sql: str, *params: Any) -> Sequence[SqlRow]:
        return self._db.execute(number_params(sql), params).fetchall()

    async def fetchrow(self, sql: str, *params: Any) -> SqlRow | None:
        rows = await self.fetch(sql, *params)
        return rows[0] if rows else None

    async def lock(self, name: str) -> None:
        """Do nothing: there is one writer."""

    async def notify_tasks(self) -> None:
        self.has_task_news = True


class SqliteLedger:
    """See `LedgerDatabase`."""

    dialect = DIALECT
    has_one_writer = True

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._task_news = Notifications()

    async def fetch(self, sql: str, *params: Any) -> Sequence[SqlRow]:
        return await self._engine.read(lambda db: db.execute(number_params(sql), params).fetchall())

    async def fetchrow(self, sql: str, *params: Any) -> SqlRow | None:
        rows = await self.fetch(sql, *params)
        return rows[0] if rows else None

    async def fetch_patiently(self, sql: str, *params: Any) -> Sequence[SqlRow]:
        return await self.fetch(sql, *params)

    async def change(self, sql: str, *params: Any, before: str = "", notify: bool = False) -> SqlRow | None:
        async def work(db: LedgerTransaction) -> SqlRow | None:
            if before:
                await db.execute(before)
            row = await db.fetchrow(sql, *params)
            if notify and row:
                await db.notify_tasks()
            return row

        return await self.transact(work)

    async def transact(
        self, work: Callable[[LedgerTransaction], Coroutine[Any, Any, T]], *, patient: bool = False
    ) -> T:
        def run(db: SqliteDatabase) -> tuple[T, bool]:
            transaction = SqliteTransaction(db)
            return run_now(work(transaction)), transaction.has_task_news

        result, has_task_news = await self._engine.write(run)
        if has_task_news:
            self.notify_tasks()
        return result

    def notify_tasks(self) -> None:
        self._task_news.notify()

    async def wait_for_tasks(self, after: int, timeout: float) -> int:
        await self._task_news.wait(after, min(timeout, POLL_SECONDS))
        return self._task_news.count


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only a SqliteTransaction, in this thread."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("A transaction awaited something other than its own statements")


class SqliteMeters:
    """See `MeterStore`."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._file = engine.meters
        self._swept = 0.0

    async def take(self, key: str, per_minute: int, count: int = 1) -> TokenGrant:
        def work(db: SqliteDatabase) -> TokenGrant:
            now = time.time()
            self._delete_full(db, now)
            row = db.execute("SELECT tokens, at FROM meters WHERE key = ?", (key,)).fetchone()
            before, at = row or (float(per_minute), now)
            # A clock that was set back neither adds nor removes tokens.
            tokens = min(per_minute, before + max(now - at, 0.0) * per_minute / MINUTE)
            granted = min(count, int(tokens))
            db.execute("INSERT OR REPLACE INTO meters VALUES (?, ?, ?)", (key, tokens - granted, now))
            return TokenGrant(granted, tokens - granted)

        return await self._file.write(work)

    def _delete_full(self, db: SqliteDatabase, now: float) -> None:
        """Delete the buckets that are full again, at most once a minute."""
        if abs(now - self._swept) > MINUTE:
            self._swept = now
            db.execute("DELETE FROM meters WHERE at NOT BETWEEN ? AND ?", (now - MINUTE, now + MINUTE))
