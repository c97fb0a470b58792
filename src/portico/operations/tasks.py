"""Tasks: long operations that outlive requests and processes. Stored in the store; only admitted calls are run."""

import asyncio
import contextlib
import hashlib
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar, get_args
from uuid import uuid4

from portico import errors
from portico.access.limits import Limits
from portico.catalog import Operation
from portico.errors import (
    BadRequest,
    Denied,
    Interrupted,
    InvalidParams,
    OperationFailed,
    OutcomeUnknown,
    RateLimited,
    SiteError,
    TaskCancelled,
    TaskFinished,
    TimedOut,
    Unavailable,
    UnknownTask,
    Unsupported,
)
from portico.items import Item, text_problem
from portico.requests import Call, Caller, Priority, Task, TaskState
from portico.safety.gate import Gate, Permit
from portico.store import Store
from portico.store.health import StoreFault
from portico.store.records import CallSettlement, CommitResult, Reservation, Write
from portico.telemetry import Incident, Recorder, TaskStateChanged, UnexpectedError

LEASE_SECONDS = 15.0
RENEW_SECONDS = 3.0  # how often a lease is renewed
PATIENCE_SECONDS = 2 * RENEW_SECONDS
POLL_SECONDS = 0.5  # between polls of the store without notifications
PACE_SECONDS = 0.02  # at least between two polls, however many notifications there are
CANCEL_SECONDS = 3.0
CLOSE_SECONDS = 5.0  # for storing the state of tasks when a process closes
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  # between retries while the store is unavailable; the last one repeats
TIMEOUT_FACTOR = 120  # a task may take this many times as long as a call
MAX_REQUEST = 255  # characters of a caller's request id
MAX_CALLBACK = 2048
MAX_NOTIFIED = 1000  # tasks whose listeners are known to have been notified


Writes: TypeAlias = Sequence[tuple[str, Write]]


@dataclass(slots=True)
class TaskHandle:
    """How a running operation reports progress and saves its state."""

    report: Callable[[float, str], Awaitable[None]]
    # Commits writes together with the saved state; None if the task no longer belongs to this process.
    save: Callable[[float, str | None, Any, Writes], Coroutine[Any, Any, CommitResult | None]]
    saved: Any = None


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The outcome of an operation: the writes to commit, and its result as plain JSON from the committed items."""

    writes: Writes
    result: Callable[[Sequence[Item]], Any]


T = TypeVar("T")
Runner: TypeAlias = Callable[[Permit, TaskHandle], Awaitable[OperationResult]]
Change: TypeAlias = Callable[[Task], Task]
Listener: TypeAlias = Callable[[Task], None]  # raises nothing


@dataclass(slots=True, eq=False)
class TaskRun:
    """A task that this process has claimed."""

    task: Task
    owner: str
    renewed: float
    work: asyncio.Task[Change | OperationResult] = field(init=False)  # runs the operation; returns its outcome
    worker: asyncio.Task[None] = field(init=False)  # waits for the work and stores its outcome
    has_begun: bool = False
    attempts: int = 1  # that the operation is allowed
    is_stopped: bool = False
    saved: Any = None  # the state that the operation saved last
    decided: datetime | None = None  # when the outcome was sent to the store
    stored: Task | None = None  # the task as it was sent

    def is_of(self, task: Task) -> bool:
        """Return whether this is the current run of a task, not one from before a takeover by another process."""
        return task.state == TaskState.RUNNING and task.attempts == self.task.attempts

    def saved_value(self, task: Task) -> Any:
        return task.saved if self.saved is None else self.saved

    def stop(self) -> None:
        """Cancel the operation once, so that its cleanup is not interrupted."""
        if not self.is_stopped:
            self.is_stopped = True
            self.work.cancel()


class TaskManager:
    """Starts, lists, cancels and runs tasks. A task of a dead process is taken over when its lease expires.

    While the store is unavailable, tasks keep running, and their outcomes are stored when it is back.
    """

    def __init__(
        self,
        store: Store,
        gate: Gate,
        run: Runner,
        limits: Limits,
        record: Recorder,
        acknowledge: Callable[[CommitResult], None],
    ) -> None:
        self._store = store
        self._gate = gate
        self._run = run
        self._limits = limits
        self._record = record
        self._acknowledge = acknowledge
        self._incident = Incident("tasks", record)
        self._owner = secrets.token_hex(8)
        self._in_doubt = False  # a claim may have succeeded without a response
        self._patient_until = 0.0  # until then no task is taken over
        self._running: dict[str, TaskRun] = {}
        self._own_ids: list[str] = []  # tasks started here and not yet claimed
        self._takes_all = True
        self._closing = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._listeners: list[Listener] = []
        self._notified: deque[str] = deque(maxlen=MAX_NOTIFIED)

    def on_end(self, listener: Listener) -> None:
        """Call a listener for every task that ends in this process, once its end is stored."""
        self._listeners.append(listener)

    async def start(self, permit: Permit, call: Call, operation: Operation, key: Reservation | None = None) -> Task:
        """Store a task. Once this returns, the task will be run, or its failure stored. A key identifies it."""
        _check(call)
        now = datetime.now(UTC)
        # Callers that name their requests expect task ids that are UUIDs. No id may begin with a dash, as options do.
        id = str(uuid4()) if call.request else f"t{secrets.token_urlsafe(24)}"
        limit = self._limits.tasks_per_caller
        task = Task(id, call, permit.caller, TaskState.PENDING, now, now, estimate=operation.estimate)
        if not await self._store.tasks.add(task, limit, key):
            raise RateLimited(
                f"{limit} tasks are already under way",
                limit=limit,
                hint="Wait for one to finish, or cancel one.",
            )
        self._own_ids.append(id)
        self._record(TaskStateChanged(short_id(id), call.operation, task.state))
        return task

    async def recent(self, limit: int) -> list[Task]:
        """Return the newest tasks of all callers, for the operator."""
        return await self._store.tasks.list_recent(limit)

    async def get(self, id: str, caller: Caller) -> Task:
        task = None if text_problem(id) else await self._store.tasks.get(id)
        if task is None or not _owns(caller, task):
            raise UnknownTask("There is no such task", task=id, hint="Task ids are known only to their caller.")
        return task

    async def cancel(self, id: str, caller: Caller) -> Task:
        task = await self.get(id, caller)
        if task.state.is_final:
            raise TaskFinished(f"The task is already {task.state}", task=id, state=task.state)
        requested_at = datetime.now(UTC)
        cancelled = await self._store.tasks.cancel(id)
        if (
            cancelled
            and cancelled.state == TaskState.CANCELLED
            and not cancelled.cancelling
            and cancelled.updated >= requested_at
        ):
            self._notify(cancelled)  # it was pending, so no process sees it end
        if id in self._running:
            self._running[id].stop()
        # The operation may be running here or in another process; either way it ends soon.
        return await self.wait(id, caller, CANCEL_SECONDS) if cancelled else task

    async def cancel_all(self, caller: Caller) -> None:
        """Cancel every unfinished task of a caller, without waiting for them to end."""
        for task in await self._store.tasks.list_by_caller(caller.id, self._limits.tasks_per_caller, unfinished=True):
            if _owns(caller, task):
                await self._store.tasks.cancel(task.id)
                if task.id in self._running:
                    self._running[task.id].stop()

    async def retry(self, id: str, caller: Caller) -> Task:
        """Retry a failed task if its operation may be repeated."""
        task = await self.get(id, caller)
        if task.state != TaskState.FAILED:
            raise TaskFinished(
                f"Only a failed task can be retried; this one is {task.state}", task=id, state=task.state
            )
        # An approval counts once: the retry needs another one.
        call = replace(task.call, confirmation="", step="")
        permit = await self._gate.resume(replace(task, call=call))
        if permit.operation is None or not is_retried(permit.operation):
            raise Unsupported(f"{call.operation} cannot be retried", task=id, operation=call.operation)
        used_step = (await self._gate.clear(permit)).used_step
        again = await self._store.tasks.retry(id, replace(call, step=used_step.name if used_step else ""))
        if again is None:
            raise TaskFinished("The task is already being retried", task=id, state=task.state)
        if id in self._notified:
            self._notified.remove(id)
        self._own_ids.append(id)
        return again

    async def wait(self, id: str, caller: Caller, timeout: float) -> Task:
        """Return the task once it has ended, or as it is after the timeout."""
        deadline = _clock() + timeout
        version = await self._store.tasks.wait(-1, 0)
        while True:
            task = await self.get(id, caller)
            left = deadline - _clock()
            if task.state.is_final or left <= 0:
                return task
            await asyncio.sleep(min(left, PACE_SECONDS))
            version = await self._store.tasks.wait(version, min(left, POLL_SECONDS))

    # Running

    def open(self, *, only_own: bool = False) -> None:
        """Start to claim tasks from the store: all of them, or only those started by this process."""
        self._takes_all = not only_own
        self._loops = [asyncio.create_task(self._work()), asyncio.create_task(self._renew_leases())]

    async def close(self) -> None:
        """Stop. Running tasks are returned to the store, to be resumed by another process or after a restart."""
        self._closing.set()
        await _wait_cancelled(self._loops[:1])  # first, so that no more tasks are claimed
        runs = list(self._running.values())
        for run in runs:
            run.stop()
        if runs:
            await asyncio.wait([run.work for run in runs])
            await asyncio.wait([run.worker for run in runs], timeout=CLOSE_SECONDS)
        await _wait_cancelled([*(run.worker for run in runs), *self._loops])

    async def _work(self) -> None:
        """Claim and run tasks, as many at once as the limits allow."""
        version = failures = 0
        while True:
            await self._wait_for_room()
            try:
                task = await self._claim_task()
                failures = 0
                self._incident.resolve()
            except Exception as error:  # noqa: BLE001 - whatever it was, tasks must be claimed again afterwards
                self._in_doubt = True
                self._patient_until = _clock() + PATIENCE_SECONDS
                self._report_failure(error)
                await asyncio.sleep(_pause(failures))
                failures += 1
                continue
            if task:
                self._begin(task)
            else:
                version = await self._wait_for_news(version)

    def _report_failure(self, error: Exception) -> None:
        if not isinstance(error, StoreFault):  # which the store records
            self._incident.report(str(error) if isinstance(error, SiteError) else repr(error), error)

    async def _wait_for_room(self) -> None:
        while len(self._running) >= self._limits.concurrent_tasks:
            workers = [run.worker for run in self._running.values()]
            await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        if self._in_doubt and not self._running:
            # A lost response may have left a task to this process. Under a new name it can take that over.
            self._owner = secrets.token_hex(8)
            self._in_doubt = False

    async def _wait_for_news(self, version: int) -> int:
        """Wait for a change of tasks, at most for the poll interval."""
        try:
            return await self._store.tasks.wait(version, POLL_SECONDS)
        except SiteError:  # the next claim reports it
            await asyncio.sleep(POLL_SECONDS)
            return version

    async def _claim_task(self) -> Task | None:
        """Claim a task. If this is cancelled meanwhile, the claimed task is returned to the store."""
        claiming = asyncio.ensure_future(self._claim())
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with contextlib.suppress(SiteError):  # its lease runs out
                task = await claiming
                if task:
                    await self._store.tasks.update(_to_pending(_without_attempt(task)), self._owner)
            raise

    async def _claim(self) -> Task | None:
        if self._takes_all:
            self._own_ids.clear()
            # Leases also expire while the store is unavailable: give live processes time to renew theirs.
            takeover = _clock() >= self._patient_until
            return await self._store.tasks.claim(self._owner, LEASE_SECONDS, takeover=takeover)
        while self._own_ids:
            task = await self._store.tasks.claim(self._owner, LEASE_SECONDS, self._own_ids[0])
            self._own_ids.pop(0)
            if task:
                return task
        return None

    def _begin(self, task: Task) -> None:
        before = self._running.get(task.id)
        run = TaskRun(task, self._owner, _clock())
        run.work = asyncio.create_task(self._attempt(run, before))
        run.worker = asyncio.create_task(self._perform(run))
        self._running[task.id] = run

    async def _perform(self, run: TaskRun) -> None:
        """Wait for the outcome of a claimed task and store it."""
        try:
            await asyncio.wait([run.work])
            stopped = run.work.cancelled()
            ending = partial(_to_stopped, has_begun=run.has_begun) if stopped else run.work.result()
            try:
                await self._settle(run, ending)
            except SiteError as error:  # of its writes
                await self._settle(run, _after_failure(run, error))
        except Exception as error:  # noqa: BLE001 - whatever it was, the task must not look as if it were running
            operation = run.task.call.operation
            self._record(UnexpectedError(operation, repr(error), error))
            await self._settle(run, partial(_to_failed, error=OperationFailed(f"{operation} failed")))
        finally:
            if self._running.get(run.task.id) is run:
                del self._running[run.task.id]

    async def _attempt(self, run: TaskRun, before: TaskRun | None) -> Change | OperationResult:
        if before:  # it came back from another process while its earlier run is still ending here
            await asyncio.wait([before.worker])
        task = run.task
        try:
            permit = await self._insist(partial(self._gate.resume, task))
        except Unavailable:
            return partial(_to_stopped, has_begun=False)
        except SiteError as error:
            return partial(_to_failed, error=error)
        operation = permit.operation
        if operation is None or task.attempts > operation.attempts:
            return partial(_to_failed, error=Interrupted("The server stopped while this task was running"))
        if task.cancelling:
            return _to_cancelled
        run.has_begun, run.attempts = True, operation.attempts
        handle = TaskHandle(partial(self._report, run), partial(self._save, run), task.saved)
        try:
            async with asyncio.timeout(task.call.timeout or operation.timeout * TIMEOUT_FACTOR):
                return await self._run(permit, handle)
        except SiteError as error:
            return _after_failure(run, error)
        except TimeoutError:
            return partial(_to_failed, error=TimedOut("The task took too long"))

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Retry until the store answers; try only once more when this process closes."""
        failures = 0
        while True:
            last = self._closing.is_set()
            try:
                return await act()
            except (Unavailable, OutcomeUnknown) as error:
                if last or failures == 0:
                    self._report_failure(error)
                if last:
                    raise
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_pause(failures)):
                    await self._closing.wait()
            failures += 1

    async def _settle(self, run: TaskRun, ending: Change | OperationResult) -> None:
        """Store the outcome of a task. If that fails, its lease expires and another process tries again."""
        run.decided = None
        if isinstance(ending, OperationResult):
            completed = partial(replace, state=TaskState.COMPLETED, progress=1.0, saved=None)
            render = ending.result
            commit = partial(
                self._commit, run, ending.writes, lambda task, items: completed(task, result=render(items))
            )
        else:
            commit = partial(self._commit, run, (), lambda task, _: ending(task))
        with contextlib.suppress(Unavailable, OutcomeUnknown):
            if await self._insist(commit) and run.stored:
                self._finish(run.stored)

    async def _commit(
        self, run: TaskRun, writes: Writes, change: Callable[[Task, Sequence[Item]], Task]
    ) -> CommitResult | None:
        """Store a task's outcome together with writes; None if the task no longer belongs to this process."""
        current = await self._store.tasks.get(run.task.id)
        if current and current.updated == run.decided:  # it was stored, but the response was lost
            run.stored = current
            return CommitResult([], [])
        if current is None or not run.is_of(current):
            return None
        before, now = replace(current, saved=run.saved_value(current)), datetime.now(UTC)
        run.decided = now

        def settle(items: Sequence[Item]) -> CallSettlement:
            run.stored = replace(change(before, items), updated=now)
            return CallSettlement(task=run.stored, owner=run.owner)

        try:
            committed = await self._store.items.commit(writes, settle)
        except TimedOut as error:
            if not writes:
                raise
            # Another attempt would take as long.
            raise OperationFailed(
                f"{len(writes)} writes are too many for one transaction",
                hint="Save more often: `await context.progress(share, save=…)`.",
            ) from error
        if committed:
            self._acknowledge(committed)
        return committed

    def _finish(self, task: Task) -> None:
        if task.state.is_final:
            self._record(TaskStateChanged(short_id(task.id), task.call.operation, task.state))
            self._notify(task)

    def _notify(self, task: Task) -> None:
        """Notify the listeners of a task's end, once even if two callers cancelled it."""
        if task.id in self._notified:
            return
        self._notified.append(task.id)
        for listener in self._listeners:
            listener(task)

    async def _report(self, run: TaskRun, progress: float, message: str) -> None:
        with contextlib.suppress(Unavailable):  # a report is lost while the store is unavailable
            current = await self._store.tasks.get(run.task.id)
            if current is None:
                return
            moved = replace(
                _to_state(current, progress, message), saved=run.saved_value(current), updated=datetime.now(UTC)
            )
            await self._store.tasks.update(moved, run.owner)

    async def _save(
        self, run: TaskRun, progress: float, message: str | None, saved: Any, writes: Writes
    ) -> CommitResult | None:
        """Store a task's progress, saved state and writes together, or none of them."""
        run.decided = None
        if not writes:
            run.saved = saved  # if the store is unavailable, it is stored with the next report or at the end

        def change(task: Task, _: Sequence[Item]) -> Task:
            moved = _to_state(task, progress, message)
            return moved if saved is None else replace(moved, saved=saved)

        try:
            committed = await self._commit(run, writes, change)
        except OutcomeUnknown:  # now or as soon as the store answers
            committed = await self._insist(partial(self._commit, run, writes, change))
        if committed and saved is not None:
            run.saved = saved
        return committed

    async def _renew_leases(self) -> None:
        """Renew the leases of running tasks, and stop those that were cancelled or taken over."""
        version = 0
        while True:
            version = await self._wait_for_news(version)
            await asyncio.gather(*(self._look_after(run) for run in self._running.values()))
            await asyncio.sleep(PACE_SECONDS)

    async def _look_after(self, run: TaskRun) -> None:
        now = _clock()
        try:
            if now - run.renewed < RENEW_SECONDS:
                held = await self._store.tasks.get(run.task.id)
            else:
                held = await self._store.tasks.renew(run.owner, run.task.id, LEASE_SECONDS)
                run.renewed = now
        except Exception as error:  # noqa: BLE001 - the tasks keep running, and other leases are still renewed
            self._report_failure(error)
            return
        if held is None or held.cancelling or not run.is_of(held):
            run.stop()


def _check(call: Call) -> None:
    """Check the priority, request id and callback length of a call. The sender checks the callback itself."""
    if call.priority not in get_args(Priority):
        raise InvalidParams(
            f"{str(call.priority)[:100]!r} is not a priority",
            hint=f"Use {', '.join(get_args(Priority))}.",
        )
    for what, text, limit in (("request", call.request, MAX_REQUEST), ("callback", call.callback, MAX_CALLBACK)):
        if len(text) > limit or text_problem(text):
            raise InvalidParams(f"The {what} of a task may have up to {limit} printable characters", limit=limit)


def error_of(task: Task) -> SiteError:
    """Return the error that a task failed with."""
    if task.state == TaskState.CANCELLED:
        return TaskCancelled("The task was cancelled", task=task.id)
    error = task.error or {}
    kind = getattr(errors, str(error.get("error")), OperationFailed)
    return kind(str(error.get("message", "")), hint=error.get("hint"), **error.get("details", {}))


def short_id(id: str) -> str:
    """Return a digest of a task id for logs: whoever knows the id of an anonymous caller's task could cancel it."""
    return hashlib.sha256(id.encode()).hexdigest()[:12]


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _pause(failures: int) -> float:
    return PAUSES[min(failures, len(PAUSES) - 1)]


async def _wait_cancelled(workers: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait a while for them to end."""
    for worker in workers:
        worker.cancel()
    if workers:
        await asyncio.wait(workers, timeout=CLOSE_SECONDS)


def _owns(caller: Caller, task: Task) -> bool:
    # Anonymous callers share an id; task ids keep them apart because they cannot be guessed.
    # A caller that names no user sees the tasks of all its users.
    return caller.id == task.caller.id and caller.user in {"", task.caller.user}


# Outcomes of a task


def _to_state(task: Task, progress: float, message: str | None) -> Task:
    share = max(task.progress, min(max(progress, 0.0), 1.0))
    return replace(task, progress=share, message=task.message if message is None else message)


def _after_failure(run: TaskRun, error: SiteError) -> Change:
    """Retry a failed task if its operation allows it and a retry can help; otherwise it has failed."""
    if run.task.attempts < run.attempts and not isinstance(error, TimedOut | BadRequest | Denied):
        return partial(_to_pending, message=f"Trying again: {error.message}")
    return partial(_to_failed, error=error)


def _to_failed(task: Task, *, error: SiteError) -> Task:
    values = {"error": type(error).__name__, "message": error.message, "hint": error.hint, "details": error.details}
    return replace(task, state=TaskState.FAILED, error=values, saved=None)


def _to_cancelled(task: Task) -> Task:
    return replace(task, state=TaskState.CANCELLED, message="Cancelled", saved=None)


def _to_pending(task: Task, *, message: str = "") -> Task:
    return replace(task, state=TaskState.PENDING, message=message or task.message)


def _without_attempt(task: Task) -> Task:
    """Take back the attempt of a task that was claimed but not started."""
    return replace(task, attempts=task.attempts - 1)


def _to_stopped(task: Task, *, has_begun: bool) -> Task:
    """Return a stopped task to the store, unless it was cancelled."""
    if task.cancelling:
        return _to_cancelled(task)
    return _to_pending(task if has_begun else _without_attempt(task))


def is_retried(operation: Operation) -> bool:
    """Return whether a failed task of this operation may be retried: only if the operation says it is repeatable."""
    return operation.idempotent or operation.attempts > 1
