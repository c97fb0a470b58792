"""Long work that outlives requests and processes. Keeps it in the store; runs what the gate has admitted."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

from portico.calls import Call, Caller, Task, TaskState
from portico.catalog import Operation
from portico.errors import (
    BadRequest,
    Denied,
    Interrupted,
    OperationFailed,
    RateLimited,
    SiteError,
    TaskFinished,
    TimedOut,
    UnknownTask,
)
from portico.limits import Limits
from portico.observe import Broke, Observe, TaskMoved
from portico.safety.gate import Gate, Permit
from portico.store import Store

LEASE_SECONDS = 15.0
POLL_SECONDS = 0.5
CANCEL_SECONDS = 3.0
MAX_UNDER_WAY = 10_000  # tasks of all anonymous callers that are looked through
TIMEOUT_FACTOR = 120  # a task may take this many times as long as a call


@dataclass(slots=True)
class Handle:
    """What a running operation tells of itself."""

    report: Callable[[float, str, Any], Awaitable[None]]
    saved: Any = None


Runner: TypeAlias = Callable[[Permit, Handle], Awaitable[Any]]


class Tasks:
    """Starts, shows, cancels and runs tasks. A task of a process that died is taken over when its lease runs out."""

    def __init__(self, store: Store, gate: Gate, run: Runner, limits: Limits, observe: Observe) -> None:
        self._store = store
        self._gate = gate
        self._run = run
        self._limits = limits
        self._observe = observe
        self._owner = secrets.token_hex(8)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()  # tasks whose operation has started to run
        self._own: list[str] = []  # tasks started here and not yet taken
        self._takes_all = True
        self._starting = asyncio.Lock()  # one at a time, so that the limit holds
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def start(self, permit: Permit, call: Call, operation: Operation) -> Task:
        """Put work into the store. Once this returns it will be done, or said why not."""
        async with self._starting:
            return await self._start(permit.caller, call, operation)

    async def _start(self, caller: Caller, call: Call, operation: Operation) -> Task:
        under_way = await self._store.tasks(caller.id, MAX_UNDER_WAY, unfinished=True)
        waiting = [task for task in under_way if task.caller.rate_key == caller.rate_key]
        if len(waiting) >= self._limits.tasks_per_caller:
            raise RateLimited(
                f"{len(waiting)} tasks are already under way",
                limit=self._limits.tasks_per_caller,
                hint="Wait for one to finish, or cancel one.",
            )
        now = datetime.now(UTC)
        task = Task(secrets.token_urlsafe(24), call, caller, TaskState.PENDING, now, now, estimate=operation.estimate)
        await self._store.add_task(task)
        self._observe(TaskMoved(task.id, call.operation, task.state))
        self._own.append(task.id)
        self._wake.set()
        return task

    async def get(self, id: str, caller: Caller) -> Task:
        task = await self._store.get_task(id)
        if task is None or not _owns(caller, task):
            raise UnknownTask("There is no such task", task=id, hint="Task ids are known only to their caller.")
        return task

    async def cancel(self, id: str, caller: Caller) -> Task:
        task = await self.get(id, caller)
        if task.state.is_final:
            raise TaskFinished(f"The task is already {task.state}", task=id, state=task.state)
        ended = await self._store.cancel_task(id)
        running = self._running.get(id)
        if running:
            running.cancel()
        # The coroutine may be here or in another process; either way it ends soon.
        return await self.wait(id, caller, CANCEL_SECONDS) if ended else task

    async def wait(self, id: str, caller: Caller, timeout: float) -> Task:
        """The task once it has ended, or as it is after the timeout."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            task = await self.get(id, caller)
            left = deadline - asyncio.get_running_loop().time()
            if task.state.is_final or left <= 0:
                return task
            running = self._running.get(id)
            if running:
                await asyncio.wait([running], timeout=min(left, POLL_SECONDS))
            else:
                await asyncio.sleep(min(left, POLL_SECONDS / 5))

    # Running

    def open(self, *, only_own: bool = False) -> None:
        """Begin to take tasks from the store: all there are, or only those that were started here."""
        self._takes_all = not only_own
        self._loop = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Stop. What was running goes back, to be taken up by another process or the next start."""
        workers = [task for task in (self._loop, *self._running.values()) if task]
        for worker in workers:
            worker.cancel("closing")
        for worker in workers:
            with contextlib.suppress(asyncio.CancelledError):
                await worker
        for id in list(self._running):  # claimed, but ended before its first step
            task = await self._store.get_task(id)
            if task:
                await self._give_back(self._untried(task))
        self._running.clear()

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            try:
                while len(self._running) < self._limits.concurrent_tasks:
                    task = await self._taken()
                    if task is None:
                        break
                    self._running[task.id] = asyncio.create_task(self._perform(task))
            except SiteError as error:
                self._observe(Broke("tasks", str(error)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()

    async def _taken(self) -> Task | None:
        """Claim a task; if this process is told to stop meanwhile, what it claimed goes back."""
        claiming = asyncio.ensure_future(self._claim())
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            task = await claiming
            if task:
                await self._give_back(self._untried(task))
            raise

    async def _claim(self) -> Task | None:
        if self._takes_all:
            self._own.clear()
            return await self._store.claim_task(self._owner, LEASE_SECONDS)
        while self._own:
            task = await self._store.claim_task(self._owner, LEASE_SECONDS, self._own.pop(0))
            if task:
                return task
        return None

    async def _perform(self, task: Task) -> None:
        """Run one claimed task to its end, whatever that is."""
        lease = asyncio.create_task(self._hold(task.id, asyncio.current_task()))
        try:
            await self._attempt(task)
        except Exception as error:  # noqa: BLE001 - whatever it was, the task must not stay as if it were running
            self._observe(Broke(task.call.operation, repr(error)))
            await self._end(_failed(task, OperationFailed(f"{task.call.operation} failed")))
        except asyncio.CancelledError:
            current = await self._store.get_task(task.id)
            if current and current.cancelling:
                await self._end(replace(current, state=TaskState.CANCELLED, message="Cancelled"))
            else:
                await self._give_back(self._untried(current or task))
                raise
        finally:
            lease.cancel()
            self._begun.discard(task.id)
            self._running.pop(task.id, None)
            self._wake.set()

    async def _attempt(self, task: Task) -> None:
        try:
            permit = self._gate.resume(task)
            operation = permit.operation
            if operation is None or task.attempts > operation.attempts:
                await self._end(_failed(task, Interrupted("The server stopped while this task was running")))
                return
            if task.cancelling:
                await self._end(replace(task, state=TaskState.CANCELLED))
                return
            handle = Handle(partial(self._report, task.id), task.saved)
            limit = task.call.timeout or operation.timeout * TIMEOUT_FACTOR
            self._begun.add(task.id)
            async with asyncio.timeout(limit):
                result = await self._run(permit, handle)
        except SiteError as error:
            await self._retry_or_fail(task, error)
            return
        except TimeoutError:
            await self._end(_failed(task, TimedOut("The task took too long")))
            return
        current = await self._store.get_task(task.id) or task
        await self._end(replace(current, state=TaskState.COMPLETED, progress=1.0, result=result))

    async def _retry_or_fail(self, task: Task, error: SiteError) -> None:
        current = await self._store.get_task(task.id) or task
        attempts = self._attempts(task)
        hopeless = isinstance(error, TimedOut | BadRequest | Denied)
        if current.attempts < attempts and not hopeless:
            await self._give_back(replace(current, message=f"Trying again: {error.message}"))
            return
        await self._end(_failed(current, error))

    def _attempts(self, task: Task) -> int:
        try:
            operation = self._gate.resume(task).operation
        except SiteError:
            return 0
        return operation.attempts if operation else 0

    def _untried(self, task: Task) -> Task:
        """What was taken but not begun has not been tried."""
        return task if task.id in self._begun else replace(task, attempts=task.attempts - 1)

    async def _give_back(self, task: Task) -> None:
        back = replace(task, state=TaskState.PENDING, updated=datetime.now(UTC))
        await self._store.update_task(back, self._owner)

    async def _end(self, task: Task) -> None:
        ended = replace(task, updated=datetime.now(UTC), saved=None)
        if await self._store.update_task(ended, self._owner):
            self._observe(TaskMoved(task.id, task.call.operation, ended.state))

    async def _report(self, id: str, progress: float, message: str, saved: Any) -> None:
        current = await self._store.get_task(id)
        if current is None:
            return
        moved = max(current.progress, min(max(progress, 0.0), 1.0))
        kept = current.saved if saved is None else saved
        await self._store.update_task(
            replace(current, progress=moved, message=message, saved=kept, updated=datetime.now(UTC)),
            self._owner,
        )

    async def _hold(self, id: str, worker: asyncio.Task[Any] | None) -> None:
        """Keep the lease of a running task, and stop it when someone cancels it or another process took it over."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            held = await self._store.renew_lease(self._owner, id, LEASE_SECONDS)
            if worker and (held is None or held.cancelling):
                worker.cancel()
                return


def _owns(caller: Caller, task: Task) -> bool:
    # Anonymous callers share an id: what tells them apart is that a task's id cannot be guessed.
    return caller.id == task.caller.id


def _failed(task: Task, error: SiteError) -> Task:
    shown = {"error": type(error).__name__, "message": error.message, "hint": error.hint, "details": error.details}
    return replace(task, state=TaskState.FAILED, error=shown)
