"""Blobs, roles, API keys, safety records and the audit trail in a SQL database, and copies of all of them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from portico.access.identity import ApiKey
from portico.errors import Conflict
from portico.requests import Task
from portico.store.database import LedgerDatabase, LedgerTransaction, SqlRow
from portico.store.encoding import (
    AUDIT_COLUMNS,
    TASK_COLUMNS,
    decode_audit_entry,
    decode_key,
    decode_task,
    encode_body,
    encode_key,
    make_audit_entries,
    task_row,
    to_micros,
)
from portico.store.idempotency import KEY_COLUMNS, upsert_key
from portico.store.records import (
    AuditEntry,
    AuditEvent,
    IdempotencyEntry,
    IdempotencyRecord,
    LedgerEntry,
    SafetyRecord,
)

BLOB_PART = 8 << 20
ENTRY_BATCH = 500
SAFETY_COLUMNS = "kind, id, data, version, expires"


class SqlBlobs:
    """See `BlobStore`."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    async def get(self, name: str) -> bytes | None:
        rows = await self._db.fetch_patiently("SELECT data FROM blobs WHERE name = $1 ORDER BY part", name)
        return b"".join(part for (part,) in rows) if rows else None

    async def set(self, name: str, data: bytes) -> None:
        async def work(db: LedgerTransaction) -> None:
            await db.lock(f"blob/{name}")
            await db.execute("DELETE FROM blobs WHERE name = $1", name)
            for start in range(0, max(len(data), 1), BLOB_PART):
                await db.execute("INSERT INTO blobs VALUES ($1, $2, $3)", name, start, data[start : start + BLOB_PART])

        await self._db.transact(work, patient=True)


class SqlRoles:
    """See `RoleStore`."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    async def acquire(self, role: str, owner: str, seconds: float) -> bool:
        sql = self._db.dialect
        row = await self._db.change(
            f"INSERT INTO roles AS r VALUES ($1, $2, {sql.after.format('$3')})"
            " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until"
            f" WHERE r.owner = excluded.owner OR r.until <= {sql.now} RETURNING owner",
            *(role, owner, seconds),
        )
        return row is not None


class SqlKeys:
    """See `KeyStore`."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    async def add(self, key: ApiKey) -> None:
        await self._db.change("INSERT INTO keys VALUES ($1, $2, $3, NULL)", key.id, key.digest, encode_key(key))

    async def get(self, id: str) -> ApiKey | None:
        row = await self._db.fetchrow("SELECT key, revoked FROM keys WHERE id = $1", id)
        return decode_key(*row) if row else None

    async def find(self, digest: str) -> ApiKey | None:
        row = await self._db.fetchrow("SELECT key, revoked FROM keys WHERE digest = $1", digest)
        return decode_key(*row) if row else None

    async def list_all(self) -> list[ApiKey]:
        return [decode_key(*row) for row in await self._db.fetch("SELECT key, revoked FROM keys ORDER BY id")]

    async def revoke(self, id: str, at: datetime) -> bool:
        row = await self._db.change(
            "UPDATE keys SET revoked = $2 WHERE id = $1 AND revoked IS NULL RETURNING id", id, to_micros(at)
        )
        return row is not None

    async def supersede(self, id: str, until: datetime) -> bool:
        row = await self._db.fetchrow("SELECT key, revoked FROM keys WHERE id = $1", id)
        key = decode_key(*row) if row else None
        if row is None or key is None or key.revoked or key.until:
            return False
        changed = await self._db.change(
            "UPDATE keys SET key = $2 WHERE id = $1 AND key = $3 AND revoked IS NULL RETURNING id",
            *(id, encode_key(replace(key, until=until)), row[0]),
        )
        return changed is not None


class SqlAudit:
    """See `AuditStore`."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db
        now = db.dialect.now
        self._select = f"SELECT {SAFETY_COLUMNS} FROM cases WHERE kind = $1 AND (expires IS NULL OR expires > {now})"
        self._update = (
            "UPDATE cases SET data = $3, expires = $4, version = $5"
            f" WHERE kind = $1 AND id = $2 AND version = $6 AND (expires IS NULL OR expires > {now}) RETURNING version"
        )
        self._insert = (
            "INSERT INTO cases AS c (kind, id, data, expires, version) VALUES ($1, $2, $3, $4, $5)"
            " ON CONFLICT (kind, id) DO UPDATE"
            " SET data = excluded.data, expires = excluded.expires, version = excluded.version"
            f" WHERE c.expires <= {now} RETURNING version"
        )
        self._delete_expired = (
            "DELETE FROM cases WHERE (kind, id) IN"
            f" (SELECT kind, id FROM cases WHERE expires <= {now}{db.dialect.batch})"
        )

    async def get(self, kind: str, id: str) -> SafetyRecord | None:
        row = await self._db.fetchrow(f"{self._select} AND id = $2", kind, id)
        return _decode_record(self._db, row) if row else None

    async def list_records(self, kind: str, limit: int = 1000) -> list[SafetyRecord]:
        rows = await self._db.fetch(f"{self._select} ORDER BY id LIMIT $2", kind, limit)
        return [_decode_record(self._db, row) for row in rows]

    async def commit(self, records: Sequence[SafetyRecord], events: Sequence[AuditEvent]) -> list[AuditEntry] | None:
        async def work(db: LedgerTransaction) -> list[AuditEntry]:
            # In one order for all, and the trail last, so that no two transactions wait for each other.
            for record in sorted(records, key=lambda record: (record.kind, record.id)):
                await self._put(db, record)
            entries = await self._append(db, events) if events else []
            await db.execute(self._delete_expired)
            return entries

        try:
            return await self._db.transact(work)
        except StaleRecord:
            return None

    async def _put(self, db: LedgerTransaction, record: SafetyRecord) -> None:
        """Replace or delete the record of this version. Waits for other transactions that write it."""
        params = (record.kind, record.id, record.data or b"", _expiry(self._db, record), record.version + 1)
        if record.version:
            row = await db.fetchrow(self._update, *params, record.version)
        else:
            row = await db.fetchrow(self._insert, *params)
        if row is None:
            raise StaleRecord
        if record.data is None:
            await db.execute("DELETE FROM cases WHERE kind = $1 AND id = $2", record.kind, record.id)

    async def _append(self, db: LedgerTransaction, events: Sequence[AuditEvent]) -> list[AuditEntry]:
        await db.lock("trail")
        seq, before = await db.fetchrow("SELECT seq, digest FROM trail ORDER BY seq DESC LIMIT 1") or (0, "")
        ((now,),) = await db.fetch(f"SELECT {self._db.dialect.now}")
        entries = list(make_audit_entries(seq, before, self._db.dialect.decode_time(now), events))
        for entry in entries:
            await _append_entry(db, entry)
        return entries

    async def list_entries(self, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
        rows = await self._db.fetch(
            f"SELECT {AUDIT_COLUMNS} FROM trail WHERE seq > $1 ORDER BY seq LIMIT $2", after, limit
        )
        return [decode_audit_entry(*row) for row in rows]


class LedgerBackup:
    """The half of `BackupStore` that knows no items."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    async def read_entries(self, at: datetime) -> AsyncIterator[list[LedgerEntry]]:
        sql = self._db.dialect
        time = sql.encode_time(at)
        yield [decode_key(*row) for row in await self._db.fetch("SELECT key, revoked FROM keys ORDER BY id")]
        async for rows in self._pages("SELECT id, task, cancelling FROM tasks WHERE id > $1 ORDER BY id", ("",)):
            yield [decode_task(*row[1:]) for row in rows]
        query = f"SELECT {KEY_COLUMNS} FROM kept WHERE scope > $1 AND expires > $2 ORDER BY scope"
        async for rows in self._pages(query, ("",), time):
            # A lease does not come along: no call goes on in the other store.
            yield [
                IdempotencyEntry(row[0], IdempotencyRecord(*row[1:4], reason=row[7]), sql.decode_time(row[4]))
                for row in rows
            ]
        query = f"SELECT {SAFETY_COLUMNS} FROM cases WHERE (kind, id) > ($1, $2) AND (expires IS NULL OR expires > $3)"
        async for rows in self._pages(f"{query} ORDER BY kind, id", ("", ""), time):
            yield [_decode_record(self._db, row) for row in rows]
        async for rows in self._pages(f"SELECT {AUDIT_COLUMNS} FROM trail WHERE seq > $1 ORDER BY seq", (0,)):
            yield [decode_audit_entry(*row) for row in rows]

    async def _pages(self, sql: str, first: SqlRow, *params: Any) -> AsyncIterator[Sequence[SqlRow]]:
        """Yield the rows of a query in batches: after `first`, then after as many columns of the row before."""
        last = first
        while rows := await self._db.fetch(f"{sql} LIMIT {ENTRY_BATCH}", *last, *params):
            last = rows[-1][: len(first)]
            yield rows

    async def restore_entries(self, entries: Sequence[LedgerEntry]) -> None:
        async def work(db: LedgerTransaction) -> None:
            for entry in entries:
                await self._restore(db, entry)

        await self._db.transact(work)

    async def _restore(self, db: LedgerTransaction, entry: LedgerEntry) -> None:
        match entry:
            case ApiKey():
                revoked = to_micros(entry.revoked) if entry.revoked else None
                sql = (
                    "INSERT INTO keys VALUES ($1, $2, $3, $4) ON CONFLICT (id)"
                    " DO UPDATE SET digest = excluded.digest, key = excluded.key, revoked = excluded.revoked"
                )
                await db.execute(sql, entry.id, entry.digest, encode_key(entry), revoked)
            case Task():
                sql = (
                    f"INSERT INTO tasks ({TASK_COLUMNS}, cancelling) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
                    " ON CONFLICT (id) DO UPDATE SET caller = excluded.caller, meter = excluded.meter,"
                    " state = excluded.state, rank = excluded.rank, created = excluded.created, task = excluded.task,"
                    " cancelling = excluded.cancelling, owner = excluded.owner, lease = excluded.lease"
                )
                await db.execute(sql, *task_row(entry), entry.cancelling)
            case IdempotencyEntry():
                await db.execute(*upsert_key(self._db.dialect, entry))
            case SafetyRecord():
                sql = (
                    f"INSERT INTO cases ({SAFETY_COLUMNS}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (kind, id)"
                    " DO UPDATE SET data = excluded.data, version = excluded.version, expires = excluded.expires"
                )
                await db.execute(sql, entry.kind, entry.id, entry.data, entry.version, _expiry(self._db, entry))
            case AuditEntry():
                rows = await db.fetch("SELECT seq, digest FROM trail WHERE seq IN ($1, $2)", entry.seq, entry.seq - 1)
                if _continues(entry, {row[0]: row[1] for row in rows}):
                    await _append_entry(db, entry)

    async def delete_entries(self) -> None:
        async def work(db: LedgerTransaction) -> None:
            for table in ("keys", "tasks", "kept", "cases"):
                await db.execute(f"DELETE FROM {table}")

        await self._db.transact(work, patient=True)


class StaleRecord(Exception):
    """A safety record is not of the version that a decision was made on, so that none of the decision is stored."""


def _decode_record(db: LedgerDatabase, row: SqlRow) -> SafetyRecord:
    kind, id, data, version, expires = row
    return SafetyRecord(kind, id, data, version, db.dialect.decode_time(expires) if expires is not None else None)


def _expiry(db: LedgerDatabase, record: SafetyRecord) -> Any:
    return db.dialect.encode_time(record.expires) if record.expires else None


async def _append_entry(db: LedgerTransaction, entry: AuditEntry) -> None:
    at, body = to_micros(entry.at), encode_body(entry.body)
    row = (entry.seq, at, entry.event, body, entry.before, entry.digest)
    await db.execute(f"INSERT INTO trail ({AUDIT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)", *row)


def _continues(entry: AuditEntry, digests: dict[int, str]) -> bool:
    """Return False if the entry is in the trail; raise Conflict unless it continues it. `digests` are by number."""
    if digests.get(entry.seq) == entry.digest:
        return False
    last = "" if entry.seq == 1 else digests.get(entry.seq - 1)
    if entry.seq in digests or entry.before != last:
        raise Conflict(
            f"Entry {entry.seq} does not continue the audit trail of this store",
            hint="Only the site that began a trail can continue it. Copy into an empty store; if this one was empty,"
            " entries are missing in the store they come from.",
            seq=entry.seq,
        )
    return True
