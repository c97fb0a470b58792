"""Connections to one SQLite file: one writer thread, several readers, deadlines, migrations. Knows no items."""

import asyncio
import contextlib
import os
import re
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
from portico.query import compile_pattern
from portico.redaction import redact_text, redact_url
from portico.store.health import StoreFault, UnreadableRow
from portico.store.sql import normalize

T = TypeVar("T")

READERS = 4
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
    """
    ALTER TABLE tasks ADD COLUMN meter TEXT NOT NULL DEFAULT '';
    UPDATE tasks SET meter = CASE caller
        WHEN 'anonymous' THEN 'anonymous@' || coalesce(json_extract(task, '$.caller.address'), '') ELSE caller END;
    CREATE INDEX tasks_by_meter ON tasks (meter) WHERE state IN ('pending', 'running');
    CREATE TABLE roles (name TEXT PRIMARY KEY, owner TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
    """,
    """
    ALTER TABLE tasks ADD COLUMN rank INTEGER NOT NULL DEFAULT 1;
    DROP INDEX tasks_by_state;
    CREATE INDEX tasks_waiting ON tasks (created) WHERE state IN ('pending', 'running');
    CREATE INDEX tasks_by_rank ON tasks (rank, created) WHERE state IN ('pending', 'running');
    """,
    # A line that REPLACE puts in the place of another counts as inserted, so that is refused as well.
    """
    CREATE TABLE cases (
        kind TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL, expires INTEGER,
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    CREATE INDEX cases_by_expiry ON cases (expires);
    CREATE TABLE trail (
        seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL, before TEXT NOT NULL,
        digest TEXT NOT NULL
    );
    CREATE TRIGGER trail_inserted BEFORE INSERT ON trail
        WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM trail)
        BEGIN SELECT RAISE(ABORT, 'the audit trail only grows'); END;
    CREATE TRIGGER trail_updated BEFORE UPDATE ON trail
        BEGIN SELECT RAISE(ABORT, 'the audit trail only grows'); END;
    CREATE TRIGGER trail_deleted BEFORE DELETE ON trail
        BEGIN SELECT RAISE(ABORT, 'the audit trail only grows'); END;
    """,
    """
    ALTER TABLE kept ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    ALTER TABLE kept ADD COLUMN lease INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE kept ADD COLUMN reason TEXT NOT NULL DEFAULT '';
    """,
)

TABLES = tuple(re.findall(r"CREATE TABLE (\w+)", "".join(MIGRATIONS)))
METERS = (
    "CREATE TABLE IF NOT EXISTS meters (key TEXT PRIMARY KEY, tokens REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID"
)
METERS_BUSY_MS = 2_000
ALONE_SECONDS = 10.0


class SqliteRows(Protocol):
    def fetchone(self) -> tuple[Any, ...] | None: ...

    def fetchall(self) -> list[tuple[Any, ...]]: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class SqliteDatabase(Protocol):
    """What a transaction may do with a connection."""

    def execute(self, sql: str, params: Sequence[Any] = ()) -> SqliteRows: ...

    def executemany(self, sql: str, params: Sequence[Sequence[Any]]) -> SqliteRows: ...

    def last_insert_rowid(self) -> int: ...

    def changes(self) -> int: ...


class SqliteConnection(SqliteDatabase, Protocol):
    """What the engine does with a connection besides."""

    in_transaction: bool

    def close(self) -> None: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def set_progress_handler(self, callable: Callable[[], bool], steps: int) -> None: ...

    def create_scalar_function(
        self, name: str, callable: Callable[..., Any], arguments: int, *, deterministic: bool
    ) -> None: ...


class StatementDeadline:
    """Tells a running statement when to stop."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.cancelled = False

    def is_over(self) -> bool:
        return self.cancelled or time.monotonic() > self._deadline


class SqliteEngine:
    """Runs work on connections: `read` on one of a few threads, `write` in a transaction on the one writer."""

    def __init__(self, path: str, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._scratch = tempfile.mkdtemp(prefix="portico-") if path == ":memory:" else None
        self.path = os.path.join(self._scratch, "site.db") if self._scratch else path
        self.meters = MeterFile(f"{self.path}-meters")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="sqlite-write")
        self._local = threading.local()
        self._open: list[SqliteConnection] = []
        self._lock = threading.Lock()
        self._files: tuple[tuple[int, int], ...] = ()  # as they are once the store is open
        self.report: Callable[[StoreFault | UnreadableRow], None] = lambda _: None
        try:
            self._writer.submit(self._migrate).result()
            self._watcher = self._open_watcher()
            self._files = self._identify_files()
        except apsw.Error as error:
            self._close()
            raise explain(error, self.path) from error
        except OSError as error:
            self._close()
            raise Unavailable(
                f"{self.path} cannot be used: {error.strerror}", path=self.path, hint="Check path and permissions."
            ) from error
        except (ConfigError, StoreFault):
            self._close()
            raise

    async def read(self, work: Callable[[SqliteDatabase], T], seconds: float | None = None) -> T:
        """Run work on a consistent snapshot. A cancelled caller stops the statement."""
        deadline = StatementDeadline(seconds or self._seconds)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work, deadline)
        except asyncio.CancelledError:
            deadline.cancelled = True
            raise
        except (StoreFault, UnreadableRow) as fault:
            self.report(fault)
            raise

    async def write(self, work: Callable[[SqliteDatabase], T], on_rollback: Callable[[], None] = lambda: None) -> T:
        """Run work in one transaction, all or nothing. `on_rollback` is called before it is rolled back.

        A cancelled caller does not stop it.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, work, on_rollback)
        except StoreFault as fault:
            self.report(fault)
            raise

    def stamp(self) -> int | None:
        """Return how many writes the watching connection has noticed, this process's own included.

        It is read each time: a request may begin and end within one turn of the event loop.
        """
        try:
            self._check_files()
            row = self._watcher.execute("PRAGMA data_version").fetchone()
        except (apsw.Error, StoreFault):
            return None
        return int(row[0]) if row else None

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._readers.shutdown(wait=True)
        self._writer.shutdown(wait=True)
        self.meters.close()
        for connection in self._open:
            connection.close()
        self._open.clear()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _read(self, work: Callable[[SqliteDatabase], T], deadline: StatementDeadline) -> T:
        try:
            connection = self._connection(read_only=True)
            self._local.deadline = deadline
            connection.set_progress_handler(deadline.is_over, STEPS_BETWEEN_CHECKS)
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                if connection.in_transaction:  # some faults end it
                    connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise self._explain(error) from error

    def _write(self, work: Callable[[SqliteDatabase], T], on_rollback: Callable[[], None]) -> T:
        try:
            return _transact(self._connection(read_only=False), work, on_rollback=on_rollback)
        except apsw.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: apsw.Error) -> SiteError:
        """Return the error for callers. A damaged file is read again the next time, not from memory."""
        explanation = explain(error)
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection and isinstance(explanation, StoreFault) and explanation.is_damage:
            self._local.connection = None
            with self._lock:
                self._open.remove(connection)
            with contextlib.suppress(apsw.Error):
                connection.close()
        return explanation

    def _connection(self, *, read_only: bool) -> SqliteConnection:
        self._check_files()
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = connect(self.path, read_only=read_only)
            connection.create_scalar_function("portico_regex", self._regex, 2, deterministic=True)
            self._local.connection = connection
            with self._lock:
                self._open.append(connection)
        return connection

    def _check_files(self) -> None:
        """Raise StoreFault if the files no longer have their names: what is written to them is lost."""
        if self._files and self._identify_files() != self._files:
            raise StoreFault(
                "The database file was deleted or replaced while it was in use",
                hint="Put it back, or stop the server, restore a backup and start again.",
            )

    def _identify_files(self) -> tuple[tuple[int, int], ...]:
        return _identity(self.path), _identity(f"{self.path}-wal")

    def _regex(self, text: Any, pattern: Any) -> bool:
        deadline: StatementDeadline | None = getattr(self._local, "deadline", None)
        if deadline and deadline.is_over():
            # A search in a long text is one step to SQLite, so its own check may come late.
            raise TimedOut("The query took too long", hint="Narrow it with a filter, or ask for less.")
        return isinstance(text, str) and compile_pattern(pattern).search(text) is not None

    def _open_watcher(self) -> SqliteConnection:
        """Open a connection that never writes, for the thread of the event loop, which never waits."""
        connection = connect(self.path, read_only=True)
        connection.set_busy_timeout(0)
        self._open.append(connection)
        return connection

    def _migrate(self) -> None:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        check_log(self.path)
        _make_private(self.path)  # it holds the secret that signs cursors
        connection = self._connection(read_only=False)
        connection.execute("PRAGMA journal_mode=WAL")
        _transact(connection, lambda db: _bring_up_to_date(db, self.path), mode="EXCLUSIVE")
        with contextlib.suppress(apsw.Error):  # no room, or others use the file: the next start tries again
            _rewrite_if_redacted(connection)


class MeterFile:
    """A file beside the store for what changes with every request and may be lost.

    Its writes wait neither for the disk nor for a long write of the store. A broken file is made anew.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-meters")
        self._shared: SqliteConnection | None = None
        self._own: SqliteConnection | None = None
        self._identity = (0, 0)
        self._alone_until = 0.0

    async def write(self, work: Callable[[SqliteDatabase], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, work)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        for connection in (self._shared, self._own):
            if connection:
                connection.close()
        self._shared = self._own = None

    def _write(self, work: Callable[[SqliteDatabase], T]) -> T:
        if time.monotonic() >= self._alone_until:
            for _ in range(2):
                try:
                    return _transact(self._file(), work)
                except (apsw.BusyError, apsw.FullError):
                    break
                except (apsw.Error, OSError):
                    self._remove()
            # The disk is full, say. Requests need not fail for that: for a while this process counts for itself.
            self._alone_until = time.monotonic() + ALONE_SECONDS
        return _transact(self._memory(), work)

    def _file(self) -> SqliteConnection:
        if self._shared and _identity(self.path) == self._identity:
            return self._shared
        self._close_file()
        _make_private(self.path)
        # Looked at before it is opened: a file that takes its place in between is noticed at the next write.
        self._identity = _identity(self.path)
        self._shared = cast("SqliteConnection", apsw.Connection(self.path))
        self._shared.set_busy_timeout(METERS_BUSY_MS)
        self._shared.execute("PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY")
        _transact(self._shared, lambda db: db.execute(METERS))
        return self._shared

    def _memory(self) -> SqliteConnection:
        if self._own is None:
            self._own = cast("SqliteConnection", apsw.Connection(":memory:"))
            self._own.execute(METERS)
        return self._own

    def _remove(self) -> None:
        self._close_file()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _close_file(self) -> None:
        if self._shared:
            self._shared.close()
        self._shared = None


def _transact(
    connection: SqliteConnection,
    work: Callable[[SqliteConnection], T],
    *,
    mode: str = "IMMEDIATE",
    on_rollback: Callable[[], None] = lambda: None,
) -> T:
    """Run work in one transaction, all or nothing."""
    connection.execute(f"BEGIN {mode}")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        on_rollback()  # while no other transaction can write
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def fetch_value(db: SqliteDatabase, sql: str, params: Sequence[Any] = ()) -> Any:
    """Return the first column of the first row; None if there is no row."""
    row = db.execute(sql, params).fetchone()
    return row[0] if row else None


def number_params(sql: str) -> str:
    """Return a shared statement with its parameters $1, $2, … in SQLite's form ?1, ?2, …"""
    return sql.replace("$", "?")


def _make_private(path: str) -> None:
    """Create a file that this user alone can read, unless it exists."""
    # Opening and closing an existing file would release this process's locks on it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def check_log(path: str) -> None:
    """Raise StoreFault for a write-ahead log without its database: SQLite would discard the writes in it."""
    log = f"{path}-wal"
    # The log first: a process that creates a store writes its database before its log.
    if _size(log) and not _size(path):
        raise StoreFault(
            f"The database file {path} is {'empty' if os.path.exists(path) else 'gone'}, but its write-ahead log {log} "
            "is there",
            hint="Restore the database file first: opening a new one would discard the writes in the log.",
        )


def _size(path: str) -> int:
    """Return the bytes of a file; 0 if there is none."""
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _identity(path: str) -> tuple[int, int]:
    """Return device and inode of a file; zeros if there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    return status.st_dev, status.st_ino


def connect(path: str, *, read_only: bool) -> SqliteConnection:
    # Never created here: a file that was deleted would come back empty.
    connection = cast("SqliteConnection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE))
    connection.set_busy_timeout(BUSY_MS)
    # FULL: an acknowledged write survives a power cut, not only a killed process.
    connection.execute("PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-32000")
    if read_only:
        connection.execute("PRAGMA query_only=1")
    connection.create_scalar_function("portico_canonical", _canonical, 1, deterministic=True)
    # To SQLite, a deterministic function returns one value within one statement.
    connection.create_scalar_function("portico_now", lambda: time.time_ns() // 1000, 0, deterministic=True)
    return connection


def _canonical(text: str) -> str:
    return msgspec.json.encode(normalize(msgspec.json.decode(text)), order="sorted").decode()


def _bring_up_to_date(connection: SqliteConnection, path: str) -> None:
    version = int(fetch_value(connection, "PRAGMA user_version") or 0)
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
        connection.execute(MIGRATIONS[number])
        connection.execute(f"PRAGMA user_version={number + 1}")
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?), ('schema', 0)", (secrets.token_bytes(32),))
    _redact_sources(connection)


def _redact_sources(connection: SqliteConnection) -> None:
    """Remove passwords from what earlier versions stored: the names of sources, and why loading them failed."""
    if connection.execute("SELECT 1 FROM meta WHERE key = 'redacted'").fetchone():
        return
    is_changed = False
    numbers = connection.execute("SELECT number FROM collections").fetchall()
    for table in ("runs", *(f"items_{number}" for (number,) in numbers)):
        for (name,) in connection.execute(f"SELECT DISTINCT source FROM {table} WHERE source LIKE '%://%'").fetchall():
            if redact_url(name) != name:
                connection.execute(f"UPDATE {table} SET source = ? WHERE source = ?", (redact_url(name), name))
                is_changed = True
    notes = "SELECT scope, result FROM kept WHERE scope LIKE 'source' || char(10) || '%'"
    for scope, note in connection.execute(notes).fetchall():
        redacted = redact_text(note.decode("utf-8", "replace")).encode()
        if redacted != note:
            connection.execute("UPDATE kept SET result = ? WHERE scope = ?", (redacted, scope))
            is_changed = True
    connection.execute("INSERT INTO meta VALUES ('redacted', ?)", (0 if is_changed else 1,))


def _rewrite_if_redacted(connection: SqliteConnection) -> None:
    """Rewrite the whole file after passwords were removed: unused parts of its pages may still hold them."""
    if connection.execute("SELECT 1 FROM meta WHERE key = 'redacted' AND value = 0").fetchone():
        connection.execute("VACUUM")
        connection.execute("UPDATE meta SET value = 1 WHERE key = 'redacted'")


def explain(error: apsw.Error, path: str = "") -> SiteError:
    """Return the error for a fault of SQLite. The path is for the operator who opens the store, not for callers."""
    store = path or "The store"
    match error:
        case apsw.InterruptError():
            return TimedOut("The query took too long", hint="Narrow it with a filter, or ask for less.")
        case apsw.FullError():
            return StoreFault("The disk is full", hint="Free some space; nothing was written.")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{store} is busy", hint="Another process is writing; try again.")
        case apsw.NotADBError() | apsw.CorruptError():
            return StoreFault(f"{store} is not a sound SQLite database", hint=str(error), is_damage=True)
        case apsw.IOError():
            hint = "Check the disk, its quota and the system's log."
            return StoreFault(f"{store} cannot be read or written: {error}", hint=hint, is_damage=True)
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreFault(f"{store} cannot be used: {error}", hint="Check path and permissions.")
        case apsw.SQLError() if "no such table" in str(error) or "no such column" in str(error):
            return StoreFault(f"{store} is not whole", hint="`portico check` looks it over.", is_damage=True)
        case apsw.SQLError() | apsw.TooBigError():
            return Unsupported(f"The store cannot do this: {error}")
        case _:
            return Unavailable(f"{store} failed: {error}", hint="`portico check` looks it over.")
