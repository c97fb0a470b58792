"""The store in PostgreSQL: any number of processes, on any number of machines, may use the same database."""

from functools import partial

from portico.store import Store
from portico.store.health import StoreHealth
from portico.store.idempotency import SqlIdempotency, SqlNotes
from portico.store.ledger import SqlAudit, SqlBlobs, SqlKeys, SqlRoles
from portico.store.postgres.changes import PostgresChanges
from portico.store.postgres.collections import PostgresCollections
from portico.store.postgres.engine import PostgresEngine, PostgresUrl
from portico.store.postgres.items import PostgresItems
from portico.store.postgres.ledger import PostgresLedger, PostgresMeters
from portico.store.postgres.migrations import TABLES
from portico.store.postgres.writing import PostgresBackup, PostgresLoads, PostgresVectors, PostgresWriter, walk
from portico.store.tables import MAX_PROBLEMS
from portico.store.tasks import SqlTasks


async def open_postgres(url: str, *, keep_changes: int, pool: int, seconds: float) -> Store:
    address = PostgresUrl.parse(url)
    engine = PostgresEngine(address, pool=pool, seconds=seconds)
    ledger = PostgresLedger(engine)
    blobs = SqlBlobs(ledger)
    collections = PostgresCollections(engine)
    health = StoreHealth(blobs.set, partial(find_damage, engine, collections))
    changes = PostgresChanges(engine, collections, health, keep_changes)
    engine.report = health.report
    writer = PostgresWriter(engine, collections, changes)

    async def close() -> None:
        await health.close()
        await engine.close()

    try:
        secret = await engine.open()
        await collections.refresh()
    except BaseException:
        await close()
        raise
    return Store(
        url=address.redacted,
        secret=secret,
        health=health,
        collections=collections,
        items=PostgresItems(engine, writer, health, secret),
        changes=changes,
        loads=PostgresLoads(engine, writer),
        vectors=PostgresVectors(writer, health.report_row),
        blobs=blobs,
        tasks=SqlTasks(ledger),
        idempotency=SqlIdempotency(ledger),
        notes=SqlNotes(ledger),
        meters=PostgresMeters(engine),
        roles=SqlRoles(ledger),
        keys=SqlKeys(ledger),
        audit=SqlAudit(ledger),
        backup=PostgresBackup(ledger, writer),
        check=partial(check, engine, collections, changes),
        close=close,
    )


async def find_damage(engine: PostgresEngine, collections: PostgresCollections) -> list[str]:
    """Read every table to its end, so that PostgreSQL raises an error if it cannot."""
    rows = await engine.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    existing = {name for (name,) in rows}
    schema = await collections.read_current()
    tables = (*TABLES, *(table.name for table in schema.tables.values()))
    for name in tables:
        if name in existing:
            await engine.fetch_patiently(f"SELECT sum(length(t::text)) FROM {name} t")
    return [f"The table {name} is missing" for name in tables if name not in existing]


async def check(engine: PostgresEngine, collections: PostgresCollections, changes: PostgresChanges) -> list[str]:
    """Read the whole store and describe the first problems of its tables, indexes, items and changes."""
    rows = await engine.fetch(
        "SELECT c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid"
        " WHERE NOT x.indisvalid AND c.relnamespace = current_schema()::regnamespace"
    )
    problems = await find_damage(engine, collections)
    problems += [f"The index {name} was not finished; loading again makes it anew" for (name,) in rows]
    for name in collections.known.tables:
        async for table, items in walk(collections, name):
            problems += filter(None, (table.find_damage(*row) for row in items))
    seq = (await engine.fetch("SELECT coalesce((SELECT min(seq) - 1 FROM changes), seq) FROM feed"))[0][0]
    while batch := await changes.list_since(seq):
        problems += [f"Change {change.seq} cannot be read" for change in batch if not change.is_readable]
        seq = batch[-1].seq
    return problems[:MAX_PROBLEMS]
