"""Connections to one PostgreSQL database: a pool, deadlines, notifications, migrations. Knows no items."""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg
import numpy as np

from portico.errors import ConfigError, OutcomeUnknown, TimedOut, Unavailable
from portico.redaction import redact_url
from portico.store.database import Notifications
from portico.store.health import StoreFault
from portico.store.postgres.faults import (
    FAULTS,
    URL_HINT,
    Disconnected,
    too_slow,
    translate_faults,
    translate_opening_faults,
)
from portico.store.postgres.migrations import extension_schema, prepare

SCHEMA = "portico"  # where the tables live unless the URL says otherwise
SHORT_WORK = 2  # connections of the pool that long queries leave free
CONNECT_SECONDS = 5.0
WAIT_SECONDS = 5.0  # for a free connection
WRITE_SECONDS = 30.0
PATIENT_SECONDS = 120.0  # for reading in bulk
QUEUE_SECONDS = 2.0  # that one waits for a lock with a connection in hand
IDLE_SECONDS = 5.0  # between two statements of one transaction
LONG_SECONDS = 3600.0  # for making an index or filling a column
CLOSE_SECONDS = 3.0
GRACE_SECONDS = 5.0  # beyond the server's own deadline, in case it cannot be reached any more
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0  # between attempts to listen again
LOOKUP_SECONDS = 15.0  # for finding out whether a transaction was committed
TOKEN_SECONDS = 600.0  # that the token of a transaction is kept: longer than any transaction and its lookup may take
SWEEP_SECONDS = 60.0  # between two deletions of old tokens by one process


class PostgresConnection(Protocol):
    """What a transaction may do with a connection."""

    async def execute(self, sql: str, *params: Any) -> str: ...

    async def fetch(self, sql: str, *params: Any) -> list[Sequence[Any]]: ...

    async def fetchrow(self, sql: str, *params: Any) -> Sequence[Any] | None: ...

    async def fetchval(self, sql: str, *params: Any) -> Any: ...

    def cursor(self, sql: str, *params: Any, prefetch: int) -> AsyncIterator[Sequence[Any]]: ...

    def terminate(self) -> None: ...

    def transaction(self, *, isolation: str = ..., readonly: bool = ...) -> "AsyncpgTransaction": ...


class AsyncpgTransaction(AbstractAsyncContextManager[None], Protocol):
    async def start(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """The parts of a store URL: the DSN for asyncpg, and the schema of the tables."""

    dsn: str
    schema: str
    redacted: str  # without the password

    @classmethod
    def parse(cls, url: str) -> "PostgresUrl":
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ConfigError("The URL of the store cannot be used", hint=URL_HINT) from error
        options = parse_qsl(parts.query, keep_blank_values=True)
        schema = next((value for name, value in options if name == "schema"), SCHEMA)
        is_reserved = schema in {"$user", "information_schema"} or schema.startswith("pg_")
        if not schema or is_reserved or len(schema.encode()) > 63 or "\0" in schema:
            raise ConfigError(
                f"{schema!r} cannot name a schema", hint="Use at most 63 bytes, and none of PostgreSQL's own schemas."
            )
        rest = urlencode([pair for pair in options if pair[0] != "schema"], quote_via=quote)
        return cls(urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")), schema, redact_url(url))

    @property
    def channel(self) -> str:
        """The channel of notifications; the name of a schema may be too long for one."""
        return f"portico_{hashlib.blake2b(self.schema.encode(), digest_size=12).hexdigest()}"


class LockBusy(Exception):
    """Another process has the lock. Try again, without keeping a connection meanwhile."""


class PostgresEngine:
    """Runs statements on pooled connections, each with a deadline, and translates faults of the database."""

    def __init__(self, address: PostgresUrl, *, pool: int, seconds: float) -> None:
        self._address = address
        self._size = pool
        self._searches = asyncio.Semaphore(max(pool - SHORT_WORK, 1))
        self._seconds = seconds
        self._path = ""
        self._pool: Any = None
        self._listener: asyncio.Task[None] | None = None
        self.report: Callable[[StoreFault], None] = lambda _: None
        self.is_listening = False  # whether notifications arrive at present
        self.changes = Notifications()
        self.tasks = Notifications()
        self._swept = float("-inf")  # when tokens were last deleted, by the monotonic clock

    async def open(self) -> bytes:
        """Connect, bring the tables up to date, and return the store's secret."""
        with translate_opening_faults():
            connection = await _connect(self._address)
            try:
                self._path, secret = await prepare(connection, self._address.schema)
            finally:
                await connection.close()
            self._pool = await asyncpg.create_pool(
                self._address.dsn,
                min_size=1,
                max_size=self._size,
                timeout=CONNECT_SECONDS,
                command_timeout=LONG_SECONDS,
                init=_set_up,
                reset=_reset,
                server_settings=self._settings(),
            )
        return secret

    def _settings(self) -> dict[str, str]:
        return {
            "search_path": self._path,
            "application_name": "portico",
            "statement_timeout": f"{max(int(self._seconds * 1000), 1)}",
            # A process that hangs in the middle of a write does not hold its locks for long.
            "idle_in_transaction_session_timeout": f"{int(IDLE_SECONDS * 1000)}",
            "jit": "off",
            "standard_conforming_strings": "on",
        }

    async def close(self) -> None:
        if self._listener:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        if self._pool:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()

    # Statements

    async def fetch(self, sql: str, *params: Any) -> list[Sequence[Any]]:
        """Run one statement that only reads. A connection that turns out to be dead is tried once more."""
        try:
            return await self._fetch(sql, params)
        except Disconnected:
            try:
                return await self._fetch(sql, params)
            except Disconnected as fault:
                self.report(fault)
                raise

    async def _fetch(self, sql: str, params: Sequence[Any]) -> list[Sequence[Any]]:
        async with self.connection() as connection, _deadline(self._seconds):
            return await connection.fetch(sql, *params)

    async def search(self, sql: str, *params: Any) -> list[Sequence[Any]]:
        """Like `fetch`, for statements that may take long: some connections are always left for others."""
        async with self._search_slot():
            return await self.fetch(sql, *params)

    @asynccontextmanager
    async def _search_slot(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._searches.acquire()
        except TimeoutError:
            raise self._all_busy() from None
        try:
            yield
        finally:
            self._searches.release()

    async def fetchrow(self, sql: str, *params: Any) -> Sequence[Any] | None:
        rows = await self.fetch(sql, *params)
        return rows[0] if rows else None

    async def change(self, sql: str, *params: Any) -> Sequence[Any] | None:
        """Run one statement that writes, in a transaction of its own; return its first row."""
        async with self.connection() as connection, _deadline(self._seconds):
            return await connection.fetchrow(sql, *params)

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[PostgresConnection]:
        try:
            with translate_faults():
                pooled = await self._acquire()
                try:
                    yield cast("PostgresConnection", pooled)
                finally:
                    await self._release(pooled)
        except Disconnected:
            # What cut one connection has most likely cut the others: none of them fails a request of its own.
            await self._pool.expire_connections()
            raise
        except StoreFault as fault:
            self.report(fault)
            raise

    async def _acquire(self) -> Any:
        try:
            return await self._pool.acquire(timeout=WAIT_SECONDS)
        except TimeoutError:
            raise self._all_busy() from None

    def _all_busy(self) -> Unavailable:
        return Unavailable(
            f"All {self._size} connections to the database are busy",
            hint="Try again in a moment. If it stays so, raise store.pool.",
        )

    async def _release(self, pooled: Any) -> None:
        """Return a connection to the pool, which drops one that does not answer any more."""
        with contextlib.suppress(*FAULTS):
            await self._pool.release(pooled, timeout=CLOSE_SECONDS)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection whose statements all see the same state."""
        async with (
            self._search_slot(),
            self.connection() as connection,
            _deadline(self._seconds - GRACE_SECONDS),
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection

    @asynccontextmanager
    async def transaction(
        self, seconds: float = WRITE_SECONDS, shared: Sequence[str] = ()
    ) -> AsyncGenerator[PostgresConnection]:
        """Run one transaction. It can share locks that `hold` takes exclusively; else raise LockBusy.

        A COMMIT that is not answered is looked up: a transaction that was committed ends well, one that was not raises
        Disconnected or TimedOut, and OutcomeUnknown is raised when the database cannot be reached.
        """
        token, is_committing = "", False
        try:
            async with self.connection() as connection, _deadline(seconds):
                transaction = connection.transaction()
                await transaction.start()
                try:
                    ((token, is_free),) = await connection.fetch(
                        _BEGIN,
                        str(int(seconds * 1000)),
                        [self.lock_name(name) for name in shared],
                        secrets.token_hex(8),
                    )
                    if not is_free:
                        raise LockBusy
                    yield connection
                except BaseException:
                    with contextlib.suppress(*FAULTS):
                        await transaction.rollback()
                    raise
                is_committing = True
                await transaction.commit()
        except (Disconnected, TimedOut) as error:
            if not is_committing or not await self._is_committed(token, error):
                raise
        await self._delete_tokens()

    async def _is_committed(self, token: str, fault: Unavailable) -> bool:
        """Return whether the transaction of this token was committed; raise OutcomeUnknown if no lookup succeeds."""
        deadline, pause = time.monotonic() + LOOKUP_SECONDS, 0.05
        while True:
            try:
                # A second row with the token waits until the transaction has ended, and keeps it from ever committing.
                row = await self.change(_LOOK_UP, token)
                return row is not None and row[0]
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise OutcomeUnknown(
                        "The database did not confirm the commit",
                        state="unknown",
                        hint="The changes may have been stored. Check them before you repeat the call.",
                    ) from fault
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _delete_tokens(self) -> None:
        """Delete old tokens, after the first transaction of a process and then from time to time."""
        now = time.monotonic()
        if now - self._swept >= SWEEP_SECONDS:
            self._swept = now
            with contextlib.suppress(Unavailable):  # the next sweep deletes them
                await self.change(_SWEEP, TOKEN_SECONDS)

    async def fetch_patiently(self, sql: str, *params: Any) -> list[Sequence[Any]]:
        """Like `fetch`, for bulk reads that no caller waits for."""
        async with self.connection() as connection, _deadline(PATIENT_SECONDS), connection.transaction(readonly=True):
            await connection.execute(f"SET LOCAL statement_timeout = {int(PATIENT_SECONDS * 1000)}")
            return await connection.fetch(sql, *params)

    @asynccontextmanager
    async def hold(self, lock: str) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection for long work, with a lock of this name; raise LockBusy if another process has it."""
        async with self._long_connection() as connection:
            await connection.execute(f"SET lock_timeout = {int(QUEUE_SECONDS * 1000)}")
            try:
                await connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", self.lock_name(lock))
            except asyncpg.LockNotAvailableError:
                raise LockBusy from None
            await connection.execute("RESET lock_timeout")
            yield connection

    @asynccontextmanager
    async def try_hold(self, lock: str) -> AsyncGenerator[PostgresConnection | None]:
        """Like `hold`, but yield None if another process has the lock: it does the same work."""
        async with self._long_connection() as connection:
            is_locked = await connection.fetchval(
                "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", self.lock_name(lock)
            )
            yield connection if is_locked else None

    @asynccontextmanager
    async def _long_connection(self) -> AsyncGenerator[PostgresConnection]:
        """Yield a connection that may take long and hold locks; both end here, or the connection does."""
        async with self.connection() as connection, _deadline(LONG_SECONDS):
            try:
                await connection.execute(f"SET statement_timeout = {int(LONG_SECONDS * 1000)}")
                yield connection
            finally:
                try:
                    await connection.execute(
                        "SELECT pg_advisory_unlock_all(); RESET statement_timeout; RESET lock_timeout"
                    )
                except BaseException:
                    connection.terminate()
                    raise

    def lock_name(self, name: str) -> str:
        return f"portico/{self._address.schema}/{name}"

    @property
    def channel(self) -> str:
        return self._address.channel

    # Notifications

    def listen(self) -> None:
        """Receive notifications of other processes from now on; a lost connection is opened again."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._listen_once()
                pause = FIRST_PAUSE
            except FAULTS:
                pause = min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _listen_once(self) -> None:
        """Listen on a connection of its own until it is lost."""
        connection = await _connect(self._address)
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _connection: lost.set())
            await connection.add_listener(self.channel, self._notify)
            self.is_listening = True
            self._notify(None, 0, "", "")  # of what happened before
            while not lost.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LONGEST_PAUSE * 3):
                        await lost.wait()
                        return
                async with asyncio.timeout(LONGEST_PAUSE):
                    await connection.execute("SELECT 1")  # a connection that was cut silently says nothing
        finally:
            self.is_listening = False
            self._notify(None, 0, "", "")
            connection.terminate()

    def _notify(self, _connection: object, _pid: int, _channel: str, topic: str) -> None:
        """Wake those who wait. When listening starts or ends, all of them look for themselves."""
        if topic in {"", "changes"}:
            self.changes.notify()
        if topic in {"", "tasks"}:
            self.tasks.notify()


# Tokens are named by the clock of the database, which all processes share: later ones sort after earlier ones.
_STAMP = "lpad(to_hex((extract(epoch FROM clock_timestamp() - {age}) * 1000000)::bigint), 16, '0')"
_BEGIN = f"""
WITH recorded AS (INSERT INTO commits VALUES ({_STAMP.format(age="interval '0'")} || $3, true) RETURNING token)
SELECT token, coalesce(
    (SELECT bool_and(pg_try_advisory_xact_lock_shared(hashtextextended(name, 0))) FROM unnest($2::text[]) name), true)
FROM recorded, set_config('statement_timeout', $1, true)
"""
_SWEEP = f"DELETE FROM commits WHERE token < {_STAMP.format(age='make_interval(secs => $1)')}"
_LOOK_UP = """
INSERT INTO commits VALUES ($1, false) ON CONFLICT (token) DO UPDATE SET token = excluded.token RETURNING is_committed
"""


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncGenerator[None]:
    """Bound the time of a server that no longer answers; one that answers enforces its own deadline."""
    try:
        async with asyncio.timeout(seconds + GRACE_SECONDS):
            yield
    except TimeoutError as error:
        raise too_slow() from error


# Opening


async def _connect(address: PostgresUrl) -> asyncpg.Connection:
    return await asyncpg.connect(address.dsn, timeout=CONNECT_SECONDS, server_settings={"application_name": "portico"})


async def _reset(_connection: Any) -> None:
    """Nothing is left to undo: settings end with their transaction, and `_long_connection` undoes its own."""


async def _set_up(connection: Any) -> None:
    await connection.set_type_codec(
        "vector", schema=await extension_schema(connection), encoder=_to_vector, decoder=_from_vector, format="binary"
    )


def _to_vector(raw: bytes) -> bytes:
    """Convert little-endian float32 to the format of pgvector: two short numbers, then float32 in network order."""
    return (len(raw) // 4).to_bytes(2, "big") + b"\0\0" + np.frombuffer(raw, "<f4").astype(">f4").tobytes()


def _from_vector(raw: bytes) -> bytes:
    return np.frombuffer(raw, ">f4", offset=4).astype("<f4").tobytes()
