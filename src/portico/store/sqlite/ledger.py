"""Blobs, tasks, idempotency keys, meters, roles, API keys, cases and the audit trail in SQLite: all besides items."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

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
    moment,
    read_line,
    renewed,
    superseded,
    task_row,
)
from portico.store.sqlite.engine import Database, Engine

BLOB_PART = 8 << 20
ENTRIES = 500  # read at a time
NEWS_SECONDS = 0.25  # how late the news of another process may be
MINUTE = 60.0
LASTS = "(expires IS NULL OR expires > ?)"
HELD = "scope = ? AND owner = ? AND owner <> '' AND task = '' AND result = x''"


class SqliteLedger:
    """The half of `Store` that knows no collections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._news = 0
        self._heard = asyncio.Event()
        self._swept = 0.0

    # Blobs

    async def save_blob(self, name: str, data: bytes) -> None:
        def work(db: Database) -> None:
            db.execute("DELETE FROM blobs WHERE name = ?", (name,))
            db.executemany(
                "INSERT INTO blobs VALUES (?, ?, ?)",
                [(name, i, data[i : i + BLOB_PART]) for i in range(0, max(len(data), 1), BLOB_PART)],
            )

        await self._engine.write(work)

    async def load_blob(self, name: str) -> bytes | None:
        def work(db: Database) -> bytes | None:
            rows = db.execute("SELECT data FROM blobs WHERE name = ? ORDER BY part", (name,)).fetchall()
            return b"".join(part for (part,) in rows) if rows else None

        return await self._engine.read(work)

    # Tasks

    async def add_task(self, task: Task, limit: int | None = None, key: Reservation | None = None) -> bool:
        meter = task.caller.rate_key

        def work(db: Database) -> bool:
            if limit is not None and _under_way(db, meter) >= limit:
                return False
            db.execute(f"INSERT INTO tasks ({TASK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", task_row(task))
            if key:
                _settle_key(db, key, task=task.id)
            return True

        try:
            added = await self._engine.write(work)
        except LeaseLost:
            raise key_in_use() from None
        if added:
            self._tell()
        return added

    async def get_task(self, id: str) -> Task | None:
        return await self._engine.read(lambda db: _task(db, id))

    async def tasks(self, caller: str, limit: int = 100, *, unfinished: bool = False) -> list[Task]:
        only = "AND state IN ('pending', 'running')" if unfinished else ""

        def work(db: Database) -> list[Task]:
            rows = db.execute(
                f"SELECT task, cancelling FROM tasks WHERE caller = ? {only} ORDER BY created DESC, id LIMIT ?",
                (caller, limit),
            )
            return [decode_task(task, cancelling=bool(cancelling)) for task, cancelling in rows]

        return await self._engine.read(work)

    async def recent_tasks(self, limit: int = 100) -> list[Task]:
        def work(db: Database) -> list[Task]:
            # What tasks hold can be long: only of those that are shown it is read.
            rows = db.execute(
                "SELECT task, cancelling FROM tasks WHERE id IN"
                " (SELECT id FROM tasks ORDER BY created DESC, id LIMIT ?) ORDER BY created DESC, id",
                (limit,),
            )
            return [decode_task(task, cancelling=bool(cancelling)) for task, cancelling in rows]

        return await self._engine.read(work)

    async def claim_task(
        self, owner: str, lease: float, id: str | None = None, *, takeover: bool = True
    ) -> Task | None:
        def work(db: Database) -> Task | None:
            now = _now()
            found = _claimable(db, owner, now, id, takeover=takeover)
            if found is None:
                return None
            task = cast("Task", _task(db, found))
            claimed = replace(task, state=TaskState.RUNNING, attempts=task.attempts + 1, updated=moment(now))
            db.execute(
                "UPDATE tasks SET state = ?, owner = ?, lease = ?, task = ? WHERE id = ?",
                (claimed.state, owner, now + int(lease * 1e6), encode_task(claimed), claimed.id),
            )
            return claimed

        # Most of the time there is nothing to take: that is seen without the one writer.
        if await self._engine.read(lambda db: _claimable(db, owner, _now(), id, takeover=takeover)) is None:
            return None
        return await self._engine.write(work)

    async def renew_lease(self, owner: str, id: str, lease: float) -> Task | None:
        def work(db: Database) -> Task | None:
            db.execute(
                "UPDATE tasks SET lease = ? WHERE id = ? AND owner = ? AND state = 'running'",
                (_now() + int(lease * 1e6), id, owner),
            )
            return _task(db, id) if db.changes() else None

        return await self._engine.write(work)

    async def update_task(self, task: Task, owner: str) -> bool:
        updated = await self._engine.write(lambda db: _update_task(db, task, owner))
        if updated and task.state != TaskState.RUNNING:
            self._tell()
        return updated

    async def cancel_task(self, id: str) -> Task | None:
        def work(db: Database) -> Task | None:
            task = _task(db, id)
            if task and task.state == TaskState.PENDING:
                ended = replace(task, state=TaskState.CANCELLED, updated=moment(_now()))
                db.execute("UPDATE tasks SET state = ?, task = ? WHERE id = ?", (ended.state, encode_task(ended), id))
                return ended
            db.execute("UPDATE tasks SET cancelling = 1 WHERE id = ? AND state = 'running'", (id,))
            return _task(db, id)

        task = await self._engine.write(work)
        self._tell()
        return task

    async def retry_task(self, id: str, call: Call) -> Task | None:
        def work(db: Database) -> Task | None:
            task = _task(db, id)
            if task is None or task.state != TaskState.FAILED:
                return None
            again = renewed(task, call, moment(_now()))
            db.execute("UPDATE tasks SET state = ?, task = ? WHERE id = ?", (again.state, encode_task(again), id))
            return again

        task = await self._engine.write(work)
        if task:
            self._tell()
        return task

    async def task_news(self, after: int, timeout: float) -> int:
        if self._news <= after:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, NEWS_SECONDS)):
                    await self._heard.wait()
        return self._news

    def _tell(self) -> None:
        self._news += 1
        self._heard.set()
        self._heard = asyncio.Event()

    # Idempotency

    async def keep(
        self, scope: str, digest: str, expires: datetime, *, owner: str = "", lease: float = 0.0, reason: str = ""
    ) -> Kept | None:
        def work(db: Database) -> Kept | None:
            now = _now()
            db.execute("DELETE FROM kept WHERE expires < ?", (now,))
            kept = _kept(db, scope, now)
            if kept and not (kept == Kept(digest) and _has_owner(db, scope)):
                return kept
            db.execute(
                f"INSERT OR REPLACE INTO kept ({KEPT_COLUMNS}) VALUES (?, ?, '', x'', ?, ?, ?, ?)",
                (scope, digest, micros(expires), owner, now + int(lease * 1e6), reason),
            )
            return None

        return await self._engine.write(work)

    async def kept(self, scope: str) -> Kept | None:
        return await self._engine.read(lambda db: _kept(db, scope, _now()))

    async def renew_key(self, key: Reservation, lease: float) -> bool:
        def work(db: Database) -> bool:
            db.execute(f"UPDATE kept SET lease = ? WHERE {HELD}", (_now() + int(lease * 1e6), key.scope, key.owner))
            return db.changes() > 0

        return await self._engine.write(work)

    async def abandon_key(self, key: Reservation, reason: str) -> None:
        def work(db: Database) -> None:
            db.execute(f"UPDATE kept SET lease = 0, reason = ? WHERE {HELD}", (reason, key.scope, key.owner))

        await self._engine.write(work)

    async def note(self, scope: str, note: bytes, expires: datetime) -> None:
        def work(db: Database) -> None:
            db.execute("DELETE FROM kept WHERE expires < ?", (_now(),))
            _put_kept(db, Promise(scope, Kept("", result=note), expires))

        await self._engine.write(work)

    async def release(self, scope: str) -> None:
        def work(db: Database) -> None:
            db.execute("DELETE FROM kept WHERE scope = ?", (scope,))

        await self._engine.write(work)

    async def release_key(self, key: Reservation) -> None:
        def work(db: Database) -> None:
            db.execute(f"DELETE FROM kept WHERE {HELD}", (key.scope, key.owner))

        await self._engine.write(work)

    # What replicas share

    async def spend(self, key: str, per_minute: int, count: int = 1) -> Meter:
        def work(db: Database) -> Meter:
            now = time.time()
            self._sweep(db, now)
            row = db.execute("SELECT tokens, at FROM meters WHERE key = ?", (key,)).fetchone()
            before, at = row or (float(per_minute), now)
            # A clock that was set back gives nothing, and takes nothing.
            tokens = min(per_minute, before + max(now - at, 0.0) * per_minute / MINUTE)
            granted = min(count, int(tokens))
            db.execute("INSERT OR REPLACE INTO meters VALUES (?, ?, ?)", (key, tokens - granted, now))
            return Meter(granted, tokens - granted)

        return await self._engine.meters.write(work)

    def _sweep(self, db: Database, now: float) -> None:
        """Forget the buckets that are full again, once in a while."""
        if abs(now - self._swept) > MINUTE:
            self._swept = now
            db.execute("DELETE FROM meters WHERE at NOT BETWEEN ? AND ?", (now - MINUTE, now + MINUTE))

    async def lead(self, role: str, owner: str, seconds: float) -> bool:
        def work(db: Database) -> bool:
            now = _now()
            db.execute(
                "INSERT INTO roles VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET owner = ?2, until = ?3"
                " WHERE owner = ?2 OR until <= ?4",
                (role, owner, now + int(seconds * 1e6), now),
            )
            return db.changes() > 0

        return await self._engine.write(work)

    # Keys

    async def add_key(self, key: Key) -> None:
        def work(db: Database) -> None:
            db.execute("INSERT INTO keys VALUES (?, ?, ?, NULL)", (key.id, key.digest, encode_key(key)))

        await self._engine.write(work)

    async def find_key(self, digest: str) -> Key | None:
        def work(db: Database) -> Key | None:
            row = db.execute("SELECT key, revoked FROM keys WHERE digest = ?", (digest,)).fetchone()
            return decode_key(*row) if row else None

        return await self._engine.read(work)

    async def key(self, id: str) -> Key | None:
        def work(db: Database) -> Key | None:
            row = db.execute("SELECT key, revoked FROM keys WHERE id = ?", (id,)).fetchone()
            return decode_key(*row) if row else None

        return await self._engine.read(work)

    async def keys(self) -> list[Key]:
        def work(db: Database) -> list[Key]:
            return [decode_key(*row) for row in db.execute("SELECT key, revoked FROM keys ORDER BY id")]

        return await self._engine.read(work)

    async def revoke_key(self, id: str, at: datetime) -> bool:
        def work(db: Database) -> bool:
            db.execute("UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (micros(at), id))
            return db.changes() > 0

        return await self._engine.write(work)

    async def supersede_key(self, id: str, until: datetime) -> bool:
        def work(db: Database) -> bool:
            row = db.execute("SELECT key, revoked FROM keys WHERE id = ?", (id,)).fetchone()
            ending = superseded(decode_key(*row), until) if row else None
            if ending:
                db.execute("UPDATE keys SET key = ? WHERE id = ?", (encode_key(ending), id))
            return ending is not None

        return await self._engine.write(work)

    # Safety

    async def case(self, kind: str, id: str) -> Case | None:
        def work(db: Database) -> Case | None:
            wanted = f"SELECT {CASE_COLUMNS} FROM cases WHERE kind = ? AND id = ? AND {LASTS}"
            row = db.execute(wanted, (kind, id, _now())).fetchone()
            return _case(row) if row else None

        return await self._engine.read(work)

    async def cases(self, kind: str, limit: int = 1000) -> list[Case]:
        def work(db: Database) -> list[Case]:
            wanted = f"SELECT {CASE_COLUMNS} FROM cases WHERE kind = ? AND {LASTS} ORDER BY id LIMIT ?"
            return [_case(row) for row in db.execute(wanted, (kind, _now(), limit))]

        return await self._engine.read(work)

    async def decide(self, cases: Sequence[Case], told: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Line] | None:
        def work(db: Database) -> list[Line]:
            now = _now()
            db.execute("DELETE FROM cases WHERE expires <= ?", (now,))
            for case in cases:
                _put_case(db, case)
            seq, before = db.execute("SELECT seq, digest FROM trail ORDER BY seq DESC LIMIT 1").fetchone() or (0, "")
            lines = list(following(seq, before, moment(now), told))
            for line in lines:
                _append(db, line)
            return lines

        try:
            return await self._engine.write(work)
        except Overtaken:
            return None

    async def trail(self, after: int = 0, limit: int = 1000) -> list[Line]:
        def work(db: Database) -> list[Line]:
            wanted = f"SELECT {LINE_COLUMNS} FROM trail WHERE seq > ? ORDER BY seq LIMIT ?"
            return [read_line(*row) for row in db.execute(wanted, (after, limit))]

        return await self._engine.read(work)

    # Moving

    async def entries(self, at: datetime) -> AsyncIterator[list[Entry]]:
        yield list(await self.keys())
        async for rows in self._pages("SELECT id, task, cancelling FROM tasks WHERE id > ? ORDER BY id", ("",)):
            yield [decode_task(task, cancelling=bool(cancelling)) for _, task, cancelling in rows]
        sql = f"SELECT {KEPT_COLUMNS} FROM kept WHERE scope > ? AND expires > ? ORDER BY scope"
        async for rows in self._pages(sql, ("",), micros(at)):
            # A lease does not come along: no call goes on in the other store.
            yield [Promise(row[0], Kept(*row[1:4], reason=row[7]), moment(row[4])) for row in rows]
        sql = f"SELECT {CASE_COLUMNS} FROM cases WHERE (kind, id) > (?, ?) AND {LASTS} ORDER BY kind, id"
        async for rows in self._pages(sql, ("", ""), micros(at)):
            yield [_case(row) for row in rows]
        async for rows in self._pages(f"SELECT {LINE_COLUMNS} FROM trail WHERE seq > ? ORDER BY seq", (0,)):
            yield [read_line(*row) for row in rows]

    async def _pages(self, sql: str, first: tuple[Any, ...], *values: int) -> AsyncIterator[list[tuple[Any, ...]]]:
        """What a query gives, in batches: after `first`, then after as many columns of the row before."""
        last = first
        while True:

            def work(db: Database, after: tuple[Any, ...] = last) -> list[tuple[Any, ...]]:
                return db.execute(f"{sql} LIMIT {ENTRIES}", (*after, *values)).fetchall()

            rows = await self._engine.read(work)
            if not rows:
                return
            last = rows[-1][: len(first)]
            yield rows

    async def forget_entries(self) -> None:
        def work(db: Database) -> None:
            for table in ("keys", "tasks", "kept", "cases"):
                db.execute(f"DELETE FROM {table}")

        await self._engine.write(work)

    async def restore_entries(self, entries: Sequence[Entry]) -> None:
        def work(db: Database) -> None:
            for entry in entries:
                _restore(db, entry)

        await self._engine.write(work)


def _restore(db: Database, entry: Entry) -> None:
    match entry:
        case Key():
            revoked = micros(entry.revoked) if entry.revoked else None
            db.execute(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)", (entry.id, entry.digest, encode_key(entry), revoked)
            )
        case Task():
            db.execute(
                f"INSERT OR REPLACE INTO tasks ({TASK_COLUMNS}, cancelling) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*task_row(entry), entry.cancelling),
            )
        case Promise():
            _put_kept(db, entry)
        case Case():
            db.execute(
                f"INSERT OR REPLACE INTO cases ({CASE_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
                (entry.kind, entry.id, entry.data, entry.version, _expiry(entry)),
            )
        case Line():
            near = db.execute("SELECT seq, digest FROM trail WHERE seq IN (?1, ?1 - 1)", (entry.seq,))
            if is_new(entry, dict(near.fetchall())):
                _append(db, entry)


def record_settlement(db: Database, settlement: Settlement) -> bool:
    """Settle a key and store a task; LeaseLost if another owner has taken over. Return whether a task has ended."""
    if settlement.key:
        _settle_key(db, settlement.key, result=settlement.result, reason=settlement.reason)
    if settlement.task and not _update_task(db, settlement.task, settlement.owner):
        raise LeaseLost
    return settlement.task is not None and settlement.task.state != TaskState.RUNNING


def _settle_key(db: Database, key: Reservation, *, task: str = "", result: bytes = b"", reason: str = "") -> None:
    db.execute(
        f"UPDATE kept SET task = ?, result = ?, reason = ? WHERE {HELD}", (task, result, reason, key.scope, key.owner)
    )
    if not db.changes():
        raise LeaseLost


def _put_kept(db: Database, promise: Promise) -> None:
    kept = promise.kept
    db.execute(
        f"INSERT OR REPLACE INTO kept ({KEPT_COLUMNS}) VALUES (?, ?, ?, ?, ?, '', 0, ?)",
        (promise.scope, kept.digest, kept.task, kept.result, micros(promise.expires), kept.reason),
    )


def _kept(db: Database, scope: str, now: int) -> Kept | None:
    row = db.execute(
        "SELECT digest, task, result, lease > ?1 AND task = '' AND result = x'', reason FROM kept"
        " WHERE scope = ?2 AND expires >= ?1",
        (now, scope),
    ).fetchone()
    return Kept(*row[:3], is_running=bool(row[3]), reason=row[4]) if row else None


def _has_owner(db: Database, scope: str) -> bool:
    return db.execute("SELECT 1 FROM kept WHERE scope = ? AND owner <> ''", (scope,)).fetchone() is not None


def _update_task(db: Database, task: Task, owner: str) -> bool:
    db.execute(
        "UPDATE tasks SET state = ?, task = ? WHERE id = ? AND owner = ? AND state = 'running'",
        (task.state, encode_task(task), task.id, owner),
    )
    return db.changes() > 0


def _put_case(db: Database, case: Case) -> None:
    """Put a case in place of the one of its version, or take that away."""
    data = case.data or b""
    if case.version:
        db.execute(
            "UPDATE cases SET data = ?, version = version + 1, expires = ? WHERE kind = ? AND id = ? AND version = ?",
            (data, _expiry(case), case.kind, case.id, case.version),
        )
    else:
        db.execute(
            f"INSERT INTO cases ({CASE_COLUMNS}) VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING",
            (case.kind, case.id, data, _expiry(case)),
        )
    if not db.changes():
        raise Overtaken
    if case.data is None:
        db.execute("DELETE FROM cases WHERE kind = ? AND id = ?", (case.kind, case.id))


def _case(row: tuple[Any, ...]) -> Case:
    kind, id, data, version, expires = row
    return Case(kind, id, data, version, moment(expires) if expires is not None else None)


def _expiry(case: Case) -> int | None:
    return micros(case.expires) if case.expires else None


def _append(db: Database, line: Line) -> None:
    db.execute(f"INSERT INTO trail ({LINE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", line_row(line))


def _task(db: Database, id: str) -> Task | None:
    row = db.execute("SELECT task, cancelling FROM tasks WHERE id = ?", (id,)).fetchone()
    return decode_task(row[0], cancelling=bool(row[1])) if row else None


def _under_way(db: Database, meter: str) -> int:
    rows = db.execute("SELECT count(*) FROM tasks WHERE meter = ? AND state IN ('pending', 'running')", (meter,))
    return sum(count for (count,) in rows)


def _claimable(db: Database, owner: str, now: int, id: str | None, *, takeover: bool) -> str | None:
    """The first task that is pending, or to take over: one whose lease, another owner's, has run out."""
    # Those that have waited for long come before all others. Each question follows an index from its beginning.
    turns = [("created <= ?3 ORDER BY created", now - PATIENT_MICROS), ("rank >= ?3 ORDER BY rank, created", 0)]
    for turn, value in turns if id is None else [("id = ?3", id)]:
        found = db.execute(
            "SELECT id FROM tasks WHERE state IN ('pending', 'running')"
            f" AND (state = 'pending' OR (lease < ?1 AND owner <> ?2)) AND {turn} LIMIT 1",
            (now if takeover else 0, owner, value),
        ).fetchone()
        if found:
            return found[0]
    return None


def _now() -> int:
    return time.time_ns() // 1000
