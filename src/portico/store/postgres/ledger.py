"""Blobs, tasks, idempotency keys, meters, roles, API keys, cases and the audit trail in PostgreSQL: all besides items.

Deadlines of leases are the database's: the clocks of machines need not agree.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from portico.calls import Call, Task, TaskState
from portico.identity import Key
from portico.store import Case, Entry, Kept, Line, Meter, Promise, Reservation, Settlement
from portico.store.ledger import (
    CASE_COLUMNS,
    KEPT_COLUMNS,
    LINE_COLUMNS,
    PATIENT_MICROS,
    TASK_COLUMNS,
    LeaseLost,
    Overtaken,
    decode_key,
    decode_task,
    encode_key,
    encode_task,
    following,
    is_new,
    key_in_use,
    line_row,
    micros,
    read_line,
    renewed,
    superseded,
    task_row,
)
from portico.store.postgres.engine import PATIENT_SECONDS, Connection, Engine

BLOB_PART = 8 << 20
ENTRIES = 500  # read at a time
SWEEP_EVERY = 500  # requests, after which meters that are full again are dropped
POLL_SECONDS = 0.25  # while news do not arrive


class PostgresLedger:
    """The half of `Store` that knows no collections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._spent = 0

    # Blobs

    async def save_blob(self, name: str, data: bytes) -> None:
        parts = [(name, i, data[i : i + BLOB_PART]) for i in range(0, max(len(data), 1), BLOB_PART)]
        async with self._engine.writing(PATIENT_SECONDS) as db:
            await self._alone(db, f"blob/{name}")
            await db.execute("DELETE FROM blobs WHERE name = $1", name)
            for part in parts:
                await db.execute("INSERT INTO blobs VALUES ($1, $2, $3)", *part)

    async def load_blob(self, name: str) -> bytes | None:
        rows = await self._engine.fetch_patiently("SELECT data FROM blobs WHERE name = $1 ORDER BY part", name)
        return b"".join(part for (part,) in rows) if rows else None

    async def _alone(self, db: Connection, what: str) -> None:
        """Until the transaction ends, no other one does the same."""
        await db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", self._engine.lock_name(what))

    # Tasks

    async def add_task(self, task: Task, limit: int | None = None, key: Reservation | None = None) -> bool:
        try:
            return await self._add_task(task, limit, key)
        except LeaseLost:
            raise key_in_use() from None

    async def _add_task(self, task: Task, limit: int | None, key: Reservation | None) -> bool:
        meter = task.caller.rate_key
        async with self._engine.writing() as db:
            if limit is not None:
                await self._alone(db, f"tasks/{meter}")
                waiting = await db.fetchval(
                    "SELECT COUNT(*) FROM tasks WHERE meter = $1 AND state IN ('pending', 'running')", meter
                )
                if waiting >= limit:
                    return False
            await db.execute(f"INSERT INTO tasks ({TASK_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)", *task_row(task))
            if key:
                await _settle_key(db, key, task=task.id)
            await self._tell(db)
        return True

    async def record_settlement(self, db: Connection, settlement: Settlement) -> None:
        """Settle a key and store a task, in a transaction; LeaseLost if another owner has taken over."""
        if settlement.key:
            await _settle_key(db, settlement.key, result=settlement.result, reason=settlement.reason)
        task = settlement.task
        if task:
            if not await db.fetchval(_UPDATE_TASK, *_task_update(task, settlement.owner)):
                raise LeaseLost
            if task.state != TaskState.RUNNING:
                await self._tell(db)

    async def _tell(self, db: Connection) -> None:
        await db.execute("SELECT pg_notify($1, 'tasks')", self._engine.channel)

    async def get_task(self, id: str) -> Task | None:
        row = await self._engine.fetchrow("SELECT task, cancelling FROM tasks WHERE id = $1", id)
        return _task(row)

    async def tasks(self, caller: str, limit: int = 100, *, unfinished: bool = False) -> list[Task]:
        only = "AND state IN ('pending', 'running')" if unfinished else ""
        rows = await self._engine.fetch(
            f"SELECT task, cancelling FROM tasks WHERE caller = $1 {only} ORDER BY created DESC, id LIMIT $2",
            caller,
            limit,
        )
        return [decode_task(task, cancelling=cancelling) for task, cancelling in rows]

    async def recent_tasks(self, limit: int = 100) -> list[Task]:
        # What tasks hold can be long: only of those that are shown it is read.
        rows = await self._engine.fetch(
            "SELECT task, cancelling FROM tasks WHERE id IN (SELECT id FROM tasks ORDER BY created DESC, id LIMIT $1)"
            " ORDER BY created DESC, id",
            limit,
        )
        return [decode_task(task, cancelling=cancelling) for task, cancelling in rows]

    async def claim_task(
        self, owner: str, lease: float, id: str | None = None, *, takeover: bool = True
    ) -> Task | None:
        async with self._engine.writing() as db:
            task = await _claimable(db, owner, id, takeover=takeover)
            if task is None:
                return None
            claimed = replace(task, state=TaskState.RUNNING, attempts=task.attempts + 1, updated=datetime.now(UTC))
            await db.execute(
                "UPDATE tasks SET state = $1, owner = $2, task = $3,"
                " lease = clock_timestamp() + make_interval(secs => $4) WHERE id = $5",
                claimed.state.value,
                owner,
                encode_task(claimed),
                lease,
                claimed.id,
            )
            return claimed

    async def renew_lease(self, owner: str, id: str, lease: float) -> Task | None:
        row = await self._engine.change(
            "UPDATE tasks SET lease = clock_timestamp() + make_interval(secs => $3)"
            " WHERE id = $2 AND owner = $1 AND state = 'running' RETURNING task, cancelling",
            owner,
            id,
            lease,
        )
        return _task(row)

    async def update_task(self, task: Task, owner: str) -> bool:
        values = _task_update(task, owner)
        if task.state == TaskState.RUNNING:
            return await self._engine.change(_UPDATE_TASK, *values) is not None
        change = f"{_UPDATE_TASK}, pg_notify($5, 'tasks')"
        return await self._engine.change(change, *values, self._engine.channel) is not None

    async def cancel_task(self, id: str) -> Task | None:
        async with self._engine.writing() as db:
            task = _task(await db.fetchrow("SELECT task, cancelling FROM tasks WHERE id = $1 FOR UPDATE", id))
            if task is None or task.state.is_final:
                return task
            if task.state == TaskState.PENDING:
                task = replace(task, state=TaskState.CANCELLED, updated=datetime.now(UTC))
                await db.execute(
                    "UPDATE tasks SET state = $1, task = $2 WHERE id = $3", task.state.value, encode_task(task), id
                )
            else:
                task = replace(task, cancelling=True)
                await db.execute("UPDATE tasks SET cancelling = true WHERE id = $1", id)
            await self._tell(db)
            return task

    async def retry_task(self, id: str, call: Call) -> Task | None:
        async with self._engine.writing() as db:
            task = _task(await db.fetchrow("SELECT task, cancelling FROM tasks WHERE id = $1 FOR UPDATE", id))
            if task is None or task.state != TaskState.FAILED:
                return None
            again = renewed(task, call, datetime.now(UTC))
            await db.execute(
                "UPDATE tasks SET state = $1, task = $2 WHERE id = $3", again.state.value, encode_task(again), id
            )
            await self._tell(db)
            return again

    async def task_news(self, after: int, timeout: float) -> int:
        self._engine.listen()
        news = self._engine.tasks
        await news.wait(after, timeout if self._engine.hears else min(timeout, POLL_SECONDS))
        return news.count

    # Idempotency

    async def keep(
        self, scope: str, digest: str, expires: datetime, *, owner: str = "", lease: float = 0.0, reason: str = ""
    ) -> Kept | None:
        async with self._engine.writing() as db:
            await db.execute(
                "DELETE FROM kept WHERE scope IN (SELECT scope FROM kept WHERE expires < clock_timestamp()"
                " LIMIT 100 FOR UPDATE SKIP LOCKED)"
            )
            made = await db.fetchrow(
                f"INSERT INTO kept AS k ({KEPT_COLUMNS}) VALUES ($1, $2, '', ''::bytea, $3, $4,"
                " clock_timestamp() + make_interval(secs => $5), $6) ON CONFLICT (scope) DO UPDATE"
                " SET digest = excluded.digest, task = '', result = ''::bytea, expires = excluded.expires,"
                " owner = excluded.owner, lease = excluded.lease, reason = excluded.reason"
                " WHERE k.expires < clock_timestamp() OR (k.digest = excluded.digest AND k.owner <> '' AND k.task = ''"
                " AND k.result = ''::bytea AND k.reason = '' AND k.lease < clock_timestamp()) RETURNING scope",
                *(scope, digest, expires, owner, lease, reason),
            )
            if made:
                return None
            row = await db.fetchrow(f"{_KEPT} WHERE scope = $1", scope)
        if row:
            return Kept(*row)
        # It was there a moment ago: if it has gone since, whoever had it has given it up.
        return await self.keep(scope, digest, expires, owner=owner, lease=lease, reason=reason)

    async def kept(self, scope: str) -> Kept | None:
        row = await self._engine.fetchrow(f"{_KEPT} WHERE scope = $1 AND expires >= clock_timestamp()", scope)
        return Kept(*row) if row else None

    async def renew_key(self, key: Reservation, lease: float) -> bool:
        row = await self._engine.change(
            f"UPDATE kept SET lease = clock_timestamp() + make_interval(secs => $3) WHERE {_HELD} RETURNING scope",
            *(key.scope, key.owner, lease),
        )
        return row is not None

    async def abandon_key(self, key: Reservation, reason: str) -> None:
        await self._engine.change(
            f"UPDATE kept SET lease = '-infinity', reason = $3 WHERE {_HELD}", key.scope, key.owner, reason
        )

    async def note(self, scope: str, note: bytes, expires: datetime) -> None:
        await self._engine.change(
            "WITH old AS (DELETE FROM kept WHERE scope IN (SELECT scope FROM kept WHERE expires < clock_timestamp()"
            " AND scope <> $1 LIMIT 100 FOR UPDATE SKIP LOCKED))"
            " INSERT INTO kept VALUES ($1, '', '', $2, $3) ON CONFLICT (scope) DO UPDATE"
            " SET digest = '', task = '', result = excluded.result, expires = excluded.expires, owner = ''",
            scope,
            note,
            expires,
        )

    async def release(self, scope: str) -> None:
        await self._engine.change("DELETE FROM kept WHERE scope = $1", scope)

    async def release_key(self, key: Reservation) -> None:
        await self._engine.change(f"DELETE FROM kept WHERE {_HELD}", key.scope, key.owner)

    # What replicas share

    async def spend(self, key: str, per_minute: int, count: int = 1) -> Meter:
        wanted = min(count, per_minute)
        granted, tokens = await self._taken(key, per_minute, wanted)
        while not granted and tokens >= 1:
            wanted = int(tokens)
            granted, tokens = await self._taken(key, per_minute, wanted)
        return Meter(wanted if granted else 0, tokens)

    async def _taken(self, key: str, per_minute: int, count: int) -> tuple[bool, float]:
        """Whether all of these tokens could be taken out of a bucket, and how many are in it now."""
        # The table is not logged: nobody waits until a meter is on the disk, and after a crash all are full.
        row = await self._engine.change(_SPEND, key, float(per_minute), float(count))
        self._spent += 1
        if self._spent % SWEEP_EVERY == 0:
            await self._engine.change(
                "DELETE FROM meters WHERE key IN (SELECT key FROM meters"
                " WHERE at < clock_timestamp() - interval '1 minute' LIMIT 10000 FOR UPDATE SKIP LOCKED)"
            )
        granted, tokens = row or (True, per_minute - count)
        return granted, tokens

    async def lead(self, role: str, owner: str, seconds: float) -> bool:
        row = await self._engine.change(
            "INSERT INTO roles AS r VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))"
            " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until"
            " WHERE r.owner = excluded.owner OR r.until < clock_timestamp() RETURNING owner",
            role,
            owner,
            seconds,
        )
        return row is not None

    # Keys

    async def add_key(self, key: Key) -> None:
        await self._engine.change("INSERT INTO keys VALUES ($1, $2, $3)", key.id, key.digest, encode_key(key))

    async def find_key(self, digest: str) -> Key | None:
        row = await self._engine.fetchrow("SELECT key, revoked FROM keys WHERE digest = $1", digest)
        return decode_key(*row) if row else None

    async def key(self, id: str) -> Key | None:
        row = await self._engine.fetchrow("SELECT key, revoked FROM keys WHERE id = $1", id)
        return decode_key(*row) if row else None

    async def keys(self) -> list[Key]:
        return [decode_key(*row) for row in await self._engine.fetch("SELECT key, revoked FROM keys ORDER BY id")]

    async def revoke_key(self, id: str, at: datetime) -> bool:
        row = await self._engine.change(
            "UPDATE keys SET revoked = $2 WHERE id = $1 AND revoked IS NULL RETURNING id", id, micros(at)
        )
        return row is not None

    async def supersede_key(self, id: str, until: datetime) -> bool:
        row = await self._engine.fetchrow("SELECT key, revoked FROM keys WHERE id = $1", id)
        ending = superseded(decode_key(*row), until) if row else None
        if row is None or ending is None:
            return False
        changed = await self._engine.change(
            "UPDATE keys SET key = $2 WHERE id = $1 AND key = $3 AND revoked IS NULL RETURNING id",
            *(id, encode_key(ending), row[0]),
        )
        return changed is not None

    # Safety

    async def case(self, kind: str, id: str) -> Case | None:
        row = await self._engine.fetchrow(
            f"SELECT {CASE_COLUMNS} FROM cases WHERE kind = $1 AND id = $2 AND {_LASTS}", kind, id
        )
        return Case(*row) if row else None

    async def cases(self, kind: str, limit: int = 1000) -> list[Case]:
        rows = await self._engine.fetch(
            f"SELECT {CASE_COLUMNS} FROM cases WHERE kind = $1 AND {_LASTS} ORDER BY id LIMIT $2", kind, limit
        )
        return [Case(*row) for row in rows]

    async def decide(self, cases: Sequence[Case], told: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Line] | None:
        try:
            async with self._engine.writing() as db:
                # In one order for all, and the trail last, so that none waits in a ring.
                for case in sorted(cases, key=lambda case: (case.kind, case.id)):
                    await _put_case(db, case)
                lines = await self._continue(db, told) if told else []
                await db.execute(_SWEEP)
        except Overtaken:
            return None
        return lines

    async def _continue(self, db: Connection, told: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Line]:
        await self._alone(db, "trail")
        head = await db.fetchrow("SELECT seq, digest FROM trail ORDER BY seq DESC LIMIT 1")
        seq, before = head or (0, "")
        lines = list(following(seq, before, await db.fetchval("SELECT clock_timestamp()"), told))
        for line in lines:
            await _append(db, line)
        return lines

    async def trail(self, after: int = 0, limit: int = 1000) -> list[Line]:
        rows = await self._engine.fetch(
            f"SELECT {LINE_COLUMNS} FROM trail WHERE seq > $1 ORDER BY seq LIMIT $2", after, limit
        )
        return [read_line(*row) for row in rows]

    # Moving

    async def entries(self, at: datetime) -> AsyncIterator[list[Entry]]:
        yield list(await self.keys())
        async for rows in self._pages("SELECT id, task, cancelling FROM tasks WHERE id > $1 ORDER BY id", ("",)):
            yield [decode_task(task, cancelling=cancelling) for _, task, cancelling in rows]
        sql = f"SELECT {KEPT_COLUMNS} FROM kept WHERE scope > $1 AND expires > $2 ORDER BY scope"
        async for rows in self._pages(sql, ("",), at):
            # A lease does not come along: no call goes on in the other store.
            yield [Promise(row[0], Kept(*row[1:4], reason=row[7]), row[4]) for row in rows]
        sql = f"SELECT {CASE_COLUMNS} FROM cases WHERE (kind, id) > ($1, $2) AND (expires IS NULL OR expires > $3)"
        async for rows in self._pages(f"{sql} ORDER BY kind, id", ("", ""), at):
            yield [Case(*row) for row in rows]
        async for rows in self._pages(f"SELECT {LINE_COLUMNS} FROM trail WHERE seq > $1 ORDER BY seq", (0,)):
            yield [read_line(*row) for row in rows]

    async def _pages(self, sql: str, first: Sequence[Any], *values: datetime) -> AsyncIterator[list[Sequence[Any]]]:
        """What a query gives, in batches: after `first`, then after as many columns of the row before."""
        last = first
        while rows := await self._engine.fetch(f"{sql} LIMIT {ENTRIES}", *last, *values):
            last = rows[-1][: len(first)]
            yield rows

    async def forget_entries(self) -> None:
        async with self._engine.writing(PATIENT_SECONDS) as db:
            for table in ("keys", "tasks", "kept", "cases"):
                await db.execute(f"DELETE FROM {table}")

    async def restore_entries(self, entries: Sequence[Entry]) -> None:
        async with self._engine.writing() as db:
            for entry in entries:
                await _restore(db, entry)


async def _restore(db: Connection, entry: Entry) -> None:
    match entry:
        case Key():
            revoked = micros(entry.revoked) if entry.revoked else None
            sql = (
                "INSERT INTO keys VALUES ($1, $2, $3, $4) ON CONFLICT (id)"
                " DO UPDATE SET digest = excluded.digest, key = excluded.key, revoked = excluded.revoked"
            )
            values = (entry.id, entry.digest, encode_key(entry), revoked)
        case Task():
            sql = (
                f"INSERT INTO tasks ({TASK_COLUMNS}, cancelling)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id)"
                " DO UPDATE SET caller = excluded.caller, meter = excluded.meter, state = excluded.state,"
                " rank = excluded.rank, created = excluded.created, task = excluded.task,"
                " cancelling = excluded.cancelling, owner = excluded.owner, lease = excluded.lease"
            )
            values = (*task_row(entry), entry.cancelling)
        case Promise():
            sql = (
                f"INSERT INTO kept ({KEPT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, '', '-infinity', $6)"
                " ON CONFLICT (scope) DO UPDATE"
                " SET digest = excluded.digest, task = excluded.task, result = excluded.result,"
                " expires = excluded.expires, owner = '', lease = '-infinity', reason = excluded.reason"
            )
            kept = entry.kept
            values = (entry.scope, kept.digest, kept.task, kept.result, entry.expires, kept.reason)
        case Case():
            sql = (
                f"INSERT INTO cases ({CASE_COLUMNS}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (kind, id) DO UPDATE"
                " SET data = excluded.data, version = excluded.version, expires = excluded.expires"
            )
            values = (entry.kind, entry.id, entry.data, entry.version, entry.expires)
        case Line():
            near = await db.fetch("SELECT seq, digest FROM trail WHERE seq IN ($1::bigint, $1::bigint - 1)", entry.seq)
            if is_new(entry, {row[0]: row[1] for row in near}):
                await _append(db, entry)
            return
    await db.execute(sql, *values)


async def _settle_key(
    db: Connection, key: Reservation, *, task: str = "", result: bytes = b"", reason: str = ""
) -> None:
    row = await db.fetchrow(
        f"UPDATE kept SET task = $3, result = $4, reason = $5 WHERE {_HELD} RETURNING scope",
        *(key.scope, key.owner, task, result, reason),
    )
    if row is None:
        raise LeaseLost


def _task_update(task: Task, owner: str) -> tuple[str, str, str, str]:
    """The values of _UPDATE_TASK."""
    return task.state.value, encode_task(task), task.id, owner


async def _put_case(db: Connection, case: Case) -> None:
    """Put a case in place of the one of its version, or take that away. Waits for whoever else writes it."""
    sql = _CHANGE_CASE if case.version else _NEW_CASE
    version = await db.fetchval(sql, case.kind, case.id, case.data or b"", case.expires, case.version)
    if version is None:
        raise Overtaken
    if case.data is None:
        await db.execute("DELETE FROM cases WHERE kind = $1 AND id = $2", case.kind, case.id)


async def _append(db: Connection, line: Line) -> None:
    await db.execute(f"INSERT INTO trail ({LINE_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)", *line_row(line))


_KEPT = "SELECT digest, task, result, lease > clock_timestamp() AND task = '' AND result = ''::bytea, reason FROM kept"
_HELD = "scope = $1 AND owner = $2 AND owner <> '' AND task = '' AND result = ''::bytea"
_UPDATE_TASK = "UPDATE tasks SET state = $1, task = $2 WHERE id = $3 AND owner = $4 AND state = 'running' RETURNING id"
_LASTS = "(expires IS NULL OR expires > clock_timestamp())"
_CHANGE_CASE = f"""
UPDATE cases SET data = $3, expires = $4, version = version + 1
WHERE kind = $1 AND id = $2 AND version = $5 AND {_LASTS} RETURNING version
"""
_NEW_CASE = """
INSERT INTO cases AS c (kind, id, data, expires, version) VALUES ($1, $2, $3, $4, $5::bigint + 1)
ON CONFLICT (kind, id) DO UPDATE SET data = excluded.data, expires = excluded.expires, version = excluded.version
WHERE c.expires <= clock_timestamp() RETURNING version
"""
_SWEEP = """
DELETE FROM cases WHERE (kind, id) IN
    (SELECT kind, id FROM cases WHERE expires <= clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED)
"""


_FULL = "least($2::float8, m.tokens + greatest(extract(epoch FROM excluded.at - m.at)::float8, 0) * $2::float8 / 60)"
_SPEND = f"""
INSERT INTO meters AS m VALUES ($1, $2::float8 - $3::float8, true, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET
    granted = {_FULL} >= $3::float8,
    tokens = {_FULL} - CASE WHEN {_FULL} >= $3::float8 THEN $3::float8 ELSE 0 END,
    at = greatest(m.at, excluded.at)
RETURNING granted, tokens
"""


# Those that have waited for long come before all others. Each question follows an index from its beginning.
_TURNS: tuple[tuple[str, int], ...] = (
    ("created <= (extract(epoch FROM now()) * 1000000)::bigint - $3::bigint ORDER BY created", PATIENT_MICROS),
    ("rank >= $3::smallint ORDER BY rank, created", 0),
)


async def _claimable(db: Connection, owner: str, id: str | None, *, takeover: bool) -> Task | None:
    """The first task that is pending, or to take over; locked, so that others take another one."""
    for turn, value in _TURNS if id is None else (("id = $3::text", id),):
        found = await db.fetchrow(
            "SELECT task, cancelling FROM tasks WHERE state IN ('pending', 'running')"
            " AND (state = 'pending' OR ($2 AND lease < clock_timestamp() AND owner <> $1))"
            f" AND {turn} LIMIT 1 FOR UPDATE SKIP LOCKED",
            owner,
            takeover,
            value,
        )
        if found:
            return _task(found)
    return None


def _task(row: Sequence[Any] | None) -> Task | None:
    return decode_task(row[0], cancelling=row[1]) if row else None
