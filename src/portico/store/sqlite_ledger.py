"""Blobs, tasks, idempotency keys and API keys in SQLite: what a store keeps besides items."""

import time
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from portico.calls import Task, TaskState
from portico.identity import Key
from portico.store import Kept
from portico.store.ledger import decode_key, decode_task, encode_key, encode_task, micros, moment
from portico.store.sqlite_engine import Database, Engine

BLOB_PART = 8 << 20


class SqliteLedger:
    """The half of `Store` that knows no collections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

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

    async def add_task(self, task: Task) -> None:
        def work(db: Database) -> None:
            db.execute(
                "INSERT INTO tasks (id, caller, state, created, task) VALUES (?, ?, ?, ?, ?)",
                (task.id, task.caller.id, task.state, micros(task.created), encode_task(task)),
            )

        await self._engine.write(work)

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

    async def claim_task(self, owner: str, lease: float, id: str | None = None) -> Task | None:
        def work(db: Database) -> Task | None:
            now = _now()
            only = "" if id is None else "AND id = ?3"
            params: tuple[Any, ...] = (now, owner) if id is None else (now, owner, id)
            found = db.execute(
                "SELECT id FROM tasks WHERE (state = 'pending' OR (state = 'running' AND lease < ?1"
                f" AND owner <> ?2)) {only} ORDER BY created LIMIT 1",
                params,
            ).fetchone()
            if found is None:
                return None
            task = cast("Task", _task(db, found[0]))
            claimed = replace(task, state=TaskState.RUNNING, attempts=task.attempts + 1, updated=moment(now))
            db.execute(
                "UPDATE tasks SET state = ?, owner = ?, lease = ?, task = ? WHERE id = ?",
                (claimed.state, owner, now + int(lease * 1e6), encode_task(claimed), claimed.id),
            )
            return claimed

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
        def work(db: Database) -> bool:
            db.execute(
                "UPDATE tasks SET state = ?, task = ? WHERE id = ? AND owner = ? AND state = 'running'",
                (task.state, encode_task(task), task.id, owner),
            )
            return db.changes() > 0

        return await self._engine.write(work)

    async def cancel_task(self, id: str) -> Task | None:
        def work(db: Database) -> Task | None:
            task = _task(db, id)
            if task and task.state == TaskState.PENDING:
                ended = replace(task, state=TaskState.CANCELLED, updated=moment(_now()))
                db.execute("UPDATE tasks SET state = ?, task = ? WHERE id = ?", (ended.state, encode_task(ended), id))
                return ended
            db.execute("UPDATE tasks SET cancelling = 1 WHERE id = ? AND state = 'running'", (id,))
            return _task(db, id)

        return await self._engine.write(work)

    # Idempotency

    async def keep(self, scope: str, digest: str, expires: datetime) -> Kept | None:
        def work(db: Database) -> Kept | None:
            db.execute("DELETE FROM kept WHERE expires < ?", (_now(),))
            row = db.execute("SELECT digest, task, result FROM kept WHERE scope = ?", (scope,)).fetchone()
            if row:
                return Kept(*row)
            db.execute("INSERT INTO kept VALUES (?, ?, '', x'', ?)", (scope, digest, micros(expires)))
            return None

        return await self._engine.write(work)

    async def settle(self, scope: str, kept: Kept) -> None:
        def work(db: Database) -> None:
            db.execute("UPDATE kept SET task = ?, result = ? WHERE scope = ?", (kept.task, kept.result, scope))

        await self._engine.write(work)

    async def release(self, scope: str) -> None:
        def work(db: Database) -> None:
            db.execute("DELETE FROM kept WHERE scope = ?", (scope,))

        await self._engine.write(work)

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

    async def keys(self) -> list[Key]:
        def work(db: Database) -> list[Key]:
            return [decode_key(*row) for row in db.execute("SELECT key, revoked FROM keys ORDER BY id")]

        return await self._engine.read(work)

    async def revoke_key(self, id: str, at: datetime) -> bool:
        def work(db: Database) -> bool:
            db.execute("UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (micros(at), id))
            return db.changes() > 0

        return await self._engine.write(work)


def _task(db: Database, id: str) -> Task | None:
    row = db.execute("SELECT task, cancelling FROM tasks WHERE id = ?", (id,)).fetchone()
    return decode_task(row[0], cancelling=bool(row[1])) if row else None


def _now() -> int:
    return time.time_ns() // 1000
