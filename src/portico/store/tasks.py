"""Tasks in a SQL database, held by leases. Deadlines are the database's: the clocks of machines need not agree."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

from portico.requests import Call, Task, TaskState
from portico.store.database import LeaseLost, LedgerDatabase, LedgerDialect, LedgerTransaction, SqlRow
from portico.store.encoding import TASK_COLUMNS, decode_task, encode_task, retry_task, task_row
from portico.store.idempotency import key_in_use, settle_key
from portico.store.records import CallSettlement, Reservation

PATIENT_MICROS = 60_000_000  # how long a task waits until it counts as one of high priority

_SELECT = "SELECT task, cancelling FROM tasks"
_UNFINISHED = "state IN ('pending', 'running')"
_UPDATE = "UPDATE tasks SET state = $1, task = $2 WHERE id = $3 AND owner = $4 AND state = 'running' RETURNING id"


class SqlTasks:
    """See `TaskStore`."""

    def __init__(self, db: LedgerDatabase) -> None:
        self._db = db

    async def add(self, task: Task, limit: int | None = None, key: Reservation | None = None) -> bool:
        meter = task.caller.rate_key

        async def work(db: LedgerTransaction) -> bool:
            if limit is not None:
                await db.lock(f"tasks/{meter}")
                rows = await db.fetch(f"SELECT COUNT(*) FROM tasks WHERE meter = $1 AND {_UNFINISHED}", meter)
                if rows[0][0] >= limit:
                    return False
            await db.execute(f"INSERT INTO tasks ({TASK_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)", *task_row(task))
            if key:
                await settle_key(db, self._db.dialect, key, task=task.id)
            await db.notify_tasks()
            return True

        try:
            return await self._db.transact(work)
        except LeaseLost:
            raise key_in_use() from None

    async def get(self, id: str) -> Task | None:
        return _decode(await self._db.fetchrow(f"{_SELECT} WHERE id = $1", id))

    async def list_by_caller(self, caller: str, limit: int = 100, *, unfinished: bool = False) -> list[Task]:
        only = f"AND {_UNFINISHED}" if unfinished else ""
        rows = await self._db.fetch(
            f"{_SELECT} WHERE caller = $1 {only} ORDER BY created DESC, id LIMIT $2", caller, limit
        )
        return [decode_task(*row) for row in rows]

    async def list_recent(self, limit: int = 100) -> list[Task]:
        # A task can be long, so only the chosen ones are read.
        rows = await self._db.fetch(
            f"{_SELECT} WHERE id IN (SELECT id FROM tasks ORDER BY created DESC, id LIMIT $1)"
            " ORDER BY created DESC, id",
            limit,
        )
        return [decode_task(*row) for row in rows]

    async def claim(self, owner: str, lease: float, id: str | None = None, *, takeover: bool = True) -> Task | None:
        async def work(db: LedgerTransaction) -> Task | None:
            task = await self._find_claimable(db.fetchrow, owner, id, takeover, self._db.dialect.skip_locked)
            if task is None:
                return None
            running = replace(task, state=TaskState.RUNNING, attempts=task.attempts + 1, updated=datetime.now(UTC))
            await db.execute(
                "UPDATE tasks SET state = $1, owner = $2, task = $3,"
                f" lease = {self._db.dialect.after.format('$4')} WHERE id = $5",
                *(running.state.value, owner, encode_task(running), lease, running.id),
            )
            return running

        # Most of the time there is nothing to claim: that is seen without the one writer.
        if self._db.has_one_writer and not await self._find_claimable(self._db.fetchrow, owner, id, takeover):
            return None
        return await self._db.transact(work)

    async def _find_claimable(
        self,
        fetchrow: Callable[..., Awaitable[SqlRow | None]],
        owner: str,
        id: str | None,
        takeover: bool,
        lock: str = "",
    ) -> Task | None:
        """Return the first task that is pending, or whose lease, another owner's, has expired."""
        sql = self._db.dialect
        # Tasks that have waited for long come before all others. Each query follows an index from its beginning.
        turns = (
            f"created <= {sql.now_micros} - {PATIENT_MICROS} ORDER BY created",
            "rank >= 0 ORDER BY rank, created",
        )
        for turn in turns if id is None else ("id = $3",):
            row = await fetchrow(
                f"{_SELECT} WHERE {_UNFINISHED} AND (state = 'pending' OR ($2 AND lease < {sql.now} AND owner <> $1))"
                f" AND {turn} LIMIT 1{lock}",
                *(owner, takeover),
                *(() if id is None else (id,)),
            )
            if row:
                return decode_task(*row)
        return None

    async def renew(self, owner: str, id: str, lease: float) -> Task | None:
        row = await self._db.change(
            f"UPDATE tasks SET lease = {self._db.dialect.after.format('$3')}"
            " WHERE id = $2 AND owner = $1 AND state = 'running' RETURNING task, cancelling",
            *(owner, id, lease),
        )
        return _decode(row)

    async def update(self, task: Task, owner: str) -> bool:
        has_ended = task.state != TaskState.RUNNING
        return await self._db.change(_UPDATE, *_update_params(task, owner), notify=has_ended) is not None

    async def cancel(self, id: str) -> Task | None:
        async def work(db: LedgerTransaction) -> Task | None:
            task = await self._get_locked(db, id)
            if task is None or task.state.is_final:
                return task
            if task.state == TaskState.PENDING:
                task = replace(task, state=TaskState.CANCELLED, updated=datetime.now(UTC))
                await _set_state(db, task)
            else:
                task = replace(task, cancelling=True)
                await db.execute("UPDATE tasks SET cancelling = true WHERE id = $1", id)
            await db.notify_tasks()
            return task

        return await self._db.transact(work)

    async def retry(self, id: str, call: Call) -> Task | None:
        async def work(db: LedgerTransaction) -> Task | None:
            task = await self._get_locked(db, id)
            if task is None or task.state != TaskState.FAILED:
                return None
            task = retry_task(task, call, datetime.now(UTC))
            await _set_state(db, task)
            await db.notify_tasks()
            return task

        return await self._db.transact(work)

    async def _get_locked(self, db: LedgerTransaction, id: str) -> Task | None:
        return _decode(await db.fetchrow(f"{_SELECT} WHERE id = $1{self._db.dialect.lock_row}", id))

    async def wait(self, after: int, timeout: float) -> int:
        return await self._db.wait_for_tasks(after, timeout)


async def record_settlement(db: LedgerTransaction, sql: LedgerDialect, settlement: CallSettlement) -> None:
    """Settle a key and store a task, in a transaction; raise LeaseLost if another owner has taken over."""
    if settlement.key:
        await settle_key(db, sql, settlement.key, result=settlement.result, reason=settlement.reason)
    task = settlement.task
    if task:
        if not await db.fetchrow(_UPDATE, *_update_params(task, settlement.owner)):
            raise LeaseLost
        if task.state != TaskState.RUNNING:
            await db.notify_tasks()


async def _set_state(db: LedgerTransaction, task: Task) -> None:
    await db.execute(
        "UPDATE tasks SET state = $1, task = $2 WHERE id = $3", task.state.value, encode_task(task), task.id
    )


def _update_params(task: Task, owner: str) -> tuple[str, str, str, str]:
    return task.state.value, encode_task(task), task.id, owner


def _decode(row: SqlRow | None) -> Task | None:
    return decode_task(*row) if row else None
