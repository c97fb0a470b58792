"""Connections to one SQLite file: one writer thread, several readers, deadlines, migrations. Knows no items."""

import asyncio
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import apsw
import msgspec

from portico.errors import ConfigError, SiteError, TimedOut, Unavailable, Unsupported
from portico.query import compiled

T = TypeVar("T")

READERS = 4
READ_SECONDS = 10.0
BUSY_MS = 30_000
STEPS_BETWEEN_CHECKS = 20_000

MIGRATIONS = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
    CREATE TABLE collections (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, about TEXT NOT NULL);
    CREATE TABLE fields (
        collection INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
        path TEXT NOT NULL, declared INTEGER NOT NULL, description TEXT NOT NULL, place TEXT,
        PRIMARY KEY (collection, name)
    ) WITHOUT ROWID;
    CREATE TABLE changes (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, collection INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
        version TEXT NOT NULL, data TEXT NOT NULL, patch TEXT NOT NULL, undo TEXT NOT NULL,
        at INTEGER NOT NULL
    );
    CREATE INDEX changes_by_collection ON changes (collection, seq);
    CREATE TABLE runs (run INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, at INTEGER NOT NULL);
    CREATE TABLE seen (
        run INTEGER NOT NULL, collection INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (run, collection, id)
    ) WITHOUT ROWID;
    CREATE TABLE vectors (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, collection INTEGER NOT NULL, field TEXT NOT NULL, id TEXT NOT NULL,
        model TEXT NOT NULL, digest TEXT NOT NULL, vector BLOB NOT NULL, UNIQUE (collection, field, id)
    );
    CREATE TABLE blobs (name TEXT NOT NULL, part INTEGER NOT NULL, data BLOB, PRIMARY KEY (name, part));
    CREATE TABLE tasks (
        id TEXT PRIMARY KEY, caller TEXT NOT NULL, state TEXT NOT NULL, created INTEGER NOT NULL, task TEXT NOT NULL,
        cancelling INTEGER NOT NULL DEFAULT 0, owner TEXT NOT NULL DEFAULT '', lease INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX tasks_by_state ON tasks (state, lease);
    CREATE INDEX tasks_by_caller ON tasks (caller, created);
    CREATE TABLE kept (
        scope TEXT PRIMARY KEY, digest TEXT NOT NULL, task TEXT NOT NULL, result BLOB NOT NULL,
        expires INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX kept_by_expiry ON kept (expires);
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, digest TEXT UNIQUE NOT NULL, key TEXT NOT NULL, revoked INTEGER
    ) WITHOUT ROWID;
    """,
)


class Rows(Protocol):
    def fetchone(self) -> tuple[Any, ...] | None: ...

    def fetchall(self) -> list[tuple[Any, ...]]: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Database(Protocol):
    """What work may do with a connection."""

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Rows: ...

    def executemany(self, sql: str, params: Sequence[Sequence[Any]]) -> Rows: ...

    def last_insert_rowid(self) -> int: ...

    def changes(self) -> int: ...


class Connection(Database, Protocol):
    """What the engine does with one besides."""

    in_transaction: bool

    def close(self) -> None: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def set_progress_handler(self, callable: Callable[[], bool], steps: int) -> None: ...

    def create_scalar_function(
        self, name: str, callable: Callable[..., Any], arguments: int, *, deterministic: bool
    ) -> None: ...


class Token:
    """Tells a running statement when to stop."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.cancelled = False

    def is_over(self) -> bool:
        return self.cancelled or time.monotonic() > self._deadline


class Engine:
    """Runs work on connections: `read` on one of a few threads, `write` in a transaction on the one writer."""

    def __init__(self, path: str) -> None:
        self._scratch = tempfile.mkdtemp(prefix="portico-") if path == ":memory:" else None
        self.path = os.path.join(self._scratch, "site.db") if self._scratch else path
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="sqlite-write")
        self._local = threading.local()
        self._open: list[Connection] = []
        self._lock = threading.Lock()
        try:
            self._writer.submit(self._migrate).result()
        except apsw.Error as error:
            self._shut()
            raise _explained(error, self.path) from error
        except OSError as error:
            self._shut()
            raise Unavailable(
                f"{self.path} cannot be used: {error.strerror}", path=self.path, hint="Check path and permissions."
            ) from error
        except ConfigError:
            self._shut()
            raise

    async def read(self, work: Callable[[Database], T], seconds: float = READ_SECONDS) -> T:
        """Run work on a consistent snapshot. A cancelled caller stops the statement."""
        token = Token(seconds)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work, token)
        except asyncio.CancelledError:
            token.cancelled = True
            raise

    async def write(self, work: Callable[[Database], T]) -> T:
        """Run work in one transaction: all of it is kept, or none."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._shut)

    def _shut(self) -> None:
        self._readers.shutdown(wait=True)
        self._writer.shutdown(wait=True)
        for connection in self._open:
            connection.close()
        self._open.clear()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _read(self, work: Callable[[Database], T], token: Token) -> T:
        try:
            connection = self._connection(read_only=True)
            self._local.token = token
            connection.set_progress_handler(token.is_over, STEPS_BETWEEN_CHECKS)
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise _explained(error) from error

    def _write(self, work: Callable[[Database], T]) -> T:
        try:
            connection = self._connection(read_only=False)
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except apsw.Error as error:
            raise _explained(error) from error
        return result

    def _connection(self, *, read_only: bool) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = connect(self.path, read_only=read_only)
            connection.create_scalar_function("portico_regex", self._regex, 2, deterministic=True)
            self._local.connection = connection
            with self._lock:
                self._open.append(connection)
        return connection

    def _regex(self, text: Any, pattern: Any) -> bool:
        token: Token | None = getattr(self._local, "token", None)
        if token and token.is_over():
            # A search in a long text is one step to SQLite, so its own check may come late.
            raise TimedOut("The query took too long", hint="Narrow it with a filter, or ask for less.")
        return isinstance(text, str) and compiled(pattern).search(text) is not None

    def _migrate(self) -> None:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        if not Path(self.path).exists():
            # It holds the secret that signs cursors: for this user alone.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = self._connection(read_only=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN EXCLUSIVE")
        try:
            _bring_up_to_date(connection, self.path)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def connect(path: str, *, read_only: bool) -> Connection:
    connection = cast("Connection", apsw.Connection(path))
    connection.set_busy_timeout(BUSY_MS)
    # FULL: an acknowledged write survives a power cut, not only a killed process.
    connection.execute("PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-32000")
    if read_only:
        connection.execute("PRAGMA query_only=1")
    connection.create_scalar_function("portico_canonical", _canonical, 1, deterministic=True)
    return connection


def _canonical(text: str) -> str:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()


def _bring_up_to_date(connection: Connection, path: str) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()
    version = int(found[0]) if found else 0
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"{path} was made by a newer Portico (schema {version}; this one knows {len(MIGRATIONS)})",
            hint="Upgrade Portico, or use another store.",
        )
    if version == 0 and connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
        raise ConfigError(
            f"{path} is an SQLite database, but not a Portico store",
            hint="To load its tables, name it as a source: portico load sqlite:///… --store …",
        )
    for number in range(version, len(MIGRATIONS)):
        for statement in MIGRATIONS[number].split(";"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={number + 1}")
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?), ('schema', 0)", (secrets.token_bytes(32),))


def _explained(error: apsw.Error, path: str = "") -> SiteError:
    """What a caller may know of a fault. The path is for whoever opens the store, not for callers of the site."""
    store = path or "The store"
    match error:
        case apsw.InterruptError():
            return TimedOut("The query took too long", hint="Narrow it with a filter, or ask for less.")
        case apsw.FullError():
            return Unavailable("The disk is full", hint="Free some space; nothing was written.")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{store} is busy", hint="Another process is writing; try again.")
        case apsw.NotADBError() | apsw.CorruptError():
            return Unavailable(f"{store} is not a sound SQLite database", hint=str(error))
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.IOError() | apsw.PermissionsError():
            return Unavailable(f"{store} cannot be used: {error}", hint="Check path and permissions.")
        case apsw.SQLError() | apsw.TooBigError():
            return Unsupported(f"The store cannot do this: {error}")
        case _:
            return Unavailable(f"{store} failed: {error}", hint="`portico check` looks it over.")
