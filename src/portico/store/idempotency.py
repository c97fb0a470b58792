"""Idempotency keys and notes in a SQL database. Both are rows of one table: a note is a key with a result."""

from datetime import datetime

from portico.errors import KeyInUse
from portico.store.database import LeaseLost, LedgerDatabase, LedgerDialect, LedgerTransaction, SqlRow
from portico.store.records import IdempotencyEntry, IdempotencyRecord, Reservation

KEY_COLUMNS = "scope, digest, task, result, expires, owner, lease, reason"


class SqlIdempotency:
    """See `IdempotencyStore`."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db
        sql = self._sql = db.dialect
        is_running = f"lease > {sql.now} AND task = '' AND result = {sql.no_bytes}"
        self._select = f"SELECT digest, task, result, {is_running}, reason FROM kept"
        self._reserve = (
            f"INSERT INTO kept AS k ({KEY_COLUMNS})"
            f" VALUES ($1, $2, '', {sql.no_bytes}, $3, $4, {sql.after.format('$5')}, $6)"
            f" ON CONFLICT (scope) DO UPDATE SET digest = excluded.digest, task = '', result = {sql.no_bytes},"
            " expires = excluded.expires, owner = excluded.owner, lease = excluded.lease, reason = excluded.reason"
            f" WHERE k.expires < {sql.now} OR (k.digest = excluded.digest AND k.owner <> '' AND k.task = ''"
            f" AND k.result = {sql.no_bytes} AND k.reason = '' AND k.lease <= {sql.now}) RETURNING scope"
        )

    async def reserve(
        self, scope: str, digest: str, expires: datetime, *, owner: str = "", lease: float = 0.0, reason: str = ""
    ) -> IdempotencyRecord | None:
        async def work(db: LedgerTransaction) -> tuple[bool, SqlRow | None]:
            await db.execute(_delete_expired(self._sql))
            time = self._sql.encode_time(expires)
            if await db.fetchrow(self._reserve, scope, digest, time, owner, lease, reason):
                return True, None
            return False, await db.fetchrow(f"{self._select} WHERE scope = $1", scope)

        is_reserved, row = await self._db.transact(work)
        if is_reserved:
            return None
        if row:
            return _decode(row)
        # The key was there a moment ago, and its owner has released it since.
        return await self.reserve(scope, digest, expires, owner=owner, lease=lease, reason=reason)

    async def get(self, scope: str) -> IdempotencyRecord | None:
        row = await self._db.fetchrow(f"{self._select} WHERE scope = $1 AND expires >= {self._sql.now}", scope)
        return _decode(row) if row else None

    async def renew(self, key: Reservation, lease: float) -> bool:
        row = await self._db.change(
            f"UPDATE kept SET lease = {self._sql.after.format('$3')} WHERE {_held(self._sql)} RETURNING scope",
            *(key.scope, key.owner, lease),
        )
        return row is not None

    async def abandon(self, key: Reservation, reason: str) -> None:
        await self._db.change(
            f"UPDATE kept SET lease = {self._sql.never}, reason = $3 WHERE {_held(self._sql)}",
            *(key.scope, key.owner, reason),
        )

    async def release(self, key: Reservation) -> None:
        await self._db.change(f"DELETE FROM kept WHERE {_held(self._sql)}", key.scope, key.owner)


class SqlNotes:
    """See `NoteStore`."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    async def get(self, name: str) -> bytes | None:
        row = await self._db.fetchrow(
            f"SELECT result FROM kept WHERE scope = $1 AND expires >= {self._db.dialect.now}", name
        )
        return row[0] or None if row else None

    async def set(self, name: str, value: bytes, expires: datetime) -> None:
        sql = self._db.dialect
        entry = IdempotencyEntry(name, IdempotencyRecord("", result=value), expires)
        await self._db.change(*upsert_key(sql, entry), before=_delete_expired(sql, other_than="$1"))

    async def delete(self, name: str) -> None:
        await self._db.change("DELETE FROM kept WHERE scope = $1", name)


async def settle_key(
    db: LedgerTransaction,
    sql: LedgerDialect,
    key: Reservation,
    *,
    task: str = "",
    result: bytes = b"",
    reason: str = "",
) -> None:
    """Record what a key stands for; raise LeaseLost if another owner has taken it over."""
    row = await db.fetchrow(
        f"UPDATE kept SET task = $3, result = $4, reason = $5 WHERE {_held(sql)} RETURNING scope",
        *(key.scope, key.owner, task, result, reason),
    )
    if row is None:
        raise LeaseLost


def upsert_key(sql: LedgerDialect, entry: IdempotencyEntry) -> tuple[str, str, str, str, bytes, object, str]:
    """Return the statement that writes a key nobody holds, and its parameters."""
    record = entry.record
    return (
        f"INSERT INTO kept ({KEY_COLUMNS}) VALUES ($1, $2, $3, $4, $5, '', {sql.never}, $6)"
        " ON CONFLICT (scope) DO UPDATE SET digest = excluded.digest, task = excluded.task, result = excluded.result,"
        f" expires = excluded.expires, owner = '', lease = {sql.never}, reason = excluded.reason",
        *(entry.scope, record.digest, record.task, record.result, sql.encode_time(entry.expires), record.reason),
    )


def key_in_use() -> KeyInUse:
    return KeyInUse("Another call has taken over this idempotency key", hint="Repeat the call to get its result.")


def _delete_expired(sql: LedgerDialect, other_than: str = "") -> str:
    # A database that deletes and upserts in one statement must not do both to one row.
    other = f" AND scope <> {other_than}" if other_than and sql.batch else ""
    return f"DELETE FROM kept WHERE scope IN (SELECT scope FROM kept WHERE expires < {sql.now}{other}{sql.batch})"


def _held(sql: LedgerDialect) -> str:
    return f"scope = $1 AND owner = $2 AND owner <> '' AND task = '' AND result = {sql.no_bytes}"


def _decode(row: SqlRow) -> IdempotencyRecord:
    return IdempotencyRecord(*row[:3], is_running=bool(row[3]), reason=row[4])
