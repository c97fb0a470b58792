"""The store in one SQLite file: one writer, many readers. Other processes may use the same file."""

import asyncio
from functools import partial
from itertools import islice

from portico.errors import ConfigError
from portico.store import Store
from portico.store.health import StoreHealth
from portico.store.idempotency import SqlIdempotency, SqlNotes
from portico.store.ledger import SqlAudit, SqlBlobs, SqlKeys, SqlRoles
from portico.store.sqlite.changes import SqliteChanges
from portico.store.sqlite.collections import SqliteCollections, read_tables
from portico.store.sqlite.engine import TABLES, SqliteDatabase, SqliteEngine, fetch_value
from portico.store.sqlite.items import SqliteItems
from portico.store.sqlite.ledger import SqliteLedger, SqliteMeters
from portico.store.sqlite.writing import SqliteBackup, SqliteLoads, SqliteVectors, SqliteWriter
from portico.store.tables import CHANGE_COLUMNS, MAX_PROBLEMS, read_changes
from portico.store.tasks import SqlTasks

CHECK_SECONDS = 600.0  # for reading the whole store


async def open_sqlite_url(url: str, *, keep_changes: int, pool: int, seconds: float) -> Store:
    """Open sqlite:///path. `pool` has no effect: there are no connections to a server."""
    path = url.removeprefix("sqlite:///")
    if path == url or not path:
        raise ConfigError(f"{url} does not name a file", hint="Use sqlite:///path/to/site.db.")
    engine = await asyncio.to_thread(SqliteEngine, path, seconds)
    ledger = SqliteLedger(engine)
    blobs = SqlBlobs(ledger)
    collections = SqliteCollections(engine)
    health = StoreHealth(blobs.set, partial(find_damage, engine))
    engine.report = health.report
    secret = await engine.read(lambda db: bytes(fetch_value(db, "SELECT value FROM meta WHERE key = 'secret'")))
    await collections.refresh()
    changes = SqliteChanges(engine, collections, health, keep_changes)
    writer = SqliteWriter(collections, changes)

    async def close() -> None:
        await health.close()
        await engine.close()

    return Store(
        url=f"sqlite:///{path}",
        secret=secret,
        health=health,
        collections=collections,
        items=SqliteItems(engine, writer, ledger, health, secret),
        changes=changes,
        loads=SqliteLoads(writer),
        vectors=SqliteVectors(collections, health.report_row),
        blobs=blobs,
        tasks=SqlTasks(ledger),
        idempotency=SqlIdempotency(ledger),
        notes=SqlNotes(ledger),
        meters=SqliteMeters(engine),
        roles=SqlRoles(ledger),
        keys=SqlKeys(ledger),
        audit=SqlAudit(ledger),
        backup=SqliteBackup(ledger, writer),
        check=partial(check, engine, collections),
        close=close,
    )


async def find_damage(engine: SqliteEngine) -> list[str]:
    def work(db: SqliteDatabase) -> list[str]:
        problems = [str(row[0]) for row in db.execute("PRAGMA quick_check(10)") if row[0] != "ok"]
        existing = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        tables = (*TABLES, *(table.name for table in read_tables(db))) if not problems else ()
        return problems or [f"The table {name} is missing" for name in tables if name not in existing]

    return await engine.read(work, seconds=CHECK_SECONDS)


async def check(engine: SqliteEngine, collections: SqliteCollections) -> list[str]:
    """Read the whole store and describe the first problems of its tables, items and changes."""

    def find_damaged_rows(db: SqliteDatabase) -> list[str]:
        schema = collections.read_schema(db)
        problems: list[str] = []
        for table in schema.tables.values():
            rows = db.execute(f"SELECT id, data, revision, digest FROM {table.name}")
            problems += islice(filter(None, (table.find_damage(*row) for row in rows)), MAX_PROBLEMS)
        rows = db.execute(f"SELECT {CHANGE_COLUMNS} FROM changes ORDER BY seq")
        read_changes(schema.names, rows, lambda error: problems.append(error.message))
        return problems[:MAX_PROBLEMS]

    return await find_damage(engine) or await engine.read(find_damaged_rows, seconds=CHECK_SECONDS)
