"""Long work that outlives requests and processes. Keeps it in the store; runs what the gate has admitted."""

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
from portico.store.records import CommitResult, Reservation, Settlement, Write
from portico.telemetry import Broke, Incident, Observe, TaskMoved

LEASE_SECONDS = 15.0
RENEW_SECONDS = 3.0  # how often a lease is renewed
PATIENCE_SECONDS = 2 * RENEW_SECONDS
POLL_SECONDS = 0.5  # how often tasks are looked at when there is no news
PACE_SECONDS = 0.02  # between two looks, however much news there is
CANCEL_SECONDS = 3.0
CLOSE_SECONDS = 5.0  # for storing how things stand when a process closes
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  # while the store is away; the last one again and again
TIMEOUT_FACTOR = 120  # a task may take this many times as long as a call
MAX_REQUEST = 255  # characters of what a caller calls a request
MAX_CALLBACK = 2048
TOLD = 1000  # tasks of which it is known that their end was told


Writes: TypeAlias = Sequence[tuple[str, Write]]


@dataclass(slots=True)
class Handle:
    """What a running operation tells of itself."""

    report: Callable[[float, str], Awaitable[None]]
    # Commits writes together with what is saved; None if the task is no longer this process's.
    save: Callable[[float, str | None, Any, Writes], Coroutine[Any, Any, CommitResult | None]]
    saved: Any = None


@dataclass(frozen=True, slots=True)
class Completed:
    """An operation that has ended: the writes to commit, and its result as plain JSON, once they are made."""

    writes: Writes
    result: Callable[[Sequence[Item]], Any]


T = TypeVar("T")
Runner: TypeAlias = Callable[[Permit, Handle], Awaitable[Completed]]
Change: TypeAlias = Callable[[Task], Task]
Listener: TypeAlias = Callable[[Task], None]  # raises nothing


@dataclass(slots=True, eq=False)
class Run:
    """A task that this process has claimed."""

    task: Task
    owner: str
    renewed: float
    work: asyncio.Task[Change | Completed] = field(init=False)  # the operation; gives what becomes of the task
    worker: asyncio.Task[None] = field(init=False)  # waits for it and stores that
    begun: bool = False
    attempts: int = 1  # that the operation may take
    stopped: bool = False
    saved: Any = None  # what the operation noted last
    decided: datetime | None = None  # when the store was told what becomes of it
    stored: Task | None = None  # what it was told

    def is_of(self, task: Task) -> bool:
        """Whether this is still the run of a task, and not one before another process took it over."""
        return task.state == TaskState.RUNNING and task.attempts == self.task.attempts

    def kept(self, task: Task) -> Any:
        return task.saved if self.saved is None else self.saved

    def stop(self) -> None:
        """Cancel the operation, once: what it does on the way out is not interrupted again."""
        if not self.stopped:
            self.stopped = True
            self.work.cancel()


class Tasks:
    """Starts, shows, cancels and runs tasks. A task of a process that died is taken over when its lease runs out.

    A store that is away for a while stops nothing: what runs goes on, and its end is stored when the store is back.
    """

    def __init__(
        self,
        store: Store,
        gate: Gate,
        run: Runner,
        limits: Limits,
        observe: Observe,
        acknowledge: Callable[[CommitResult], None],
    ) -> None:
        self._store = store
        self._gate = gate
        self._run = run
        self._limits = limits
        self._observe = observe
        self._acknowledge = acknowledge
        self._incident = Incident("tasks", observe)
        self._owner = secrets.token_hex(8)
        self._in_doubt = False  # a claim may have been kept without an answer
        self._patient_until = 0.0  # until then nothing is taken over
        self._running: dict[str, Run] = {}
        self._own: list[str] = []  # tasks started here and not yet taken
        self._takes_all = True
        self._closing = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._listeners: list[Listener] = []
        self._told: deque[str] = deque(maxlen=TOLD)

    def on_end(self, listener: Listener) -> None:
        """Have somebody told of every task that ends in this process, once its end is stored."""
        self._listeners.append(listener)

    async def start(self, permit: Permit, call: Call, operation: Operation, key: Reservation | None = None) -> Task:
        """Put work into the store. Once this returns it will be done, or said why not. A key stands for it."""
        _check(call)
        now = datetime.now(UTC)
        # Whoever names its requests is a caller of NWP, and there tasks are named by UUIDs (7.2).
        id = str(uuid4()) if call.request else secrets.token_urlsafe(24)
        limit = self._limits.tasks_per_caller
        task = Task(id, call, permit.caller, TaskState.PENDING, now, now, estimate=operation.estimate)
        if not await self._store.tasks.add(task, limit, key):
            raise RateLimited(
                f"{limit} tasks are already under way",
                limit=limit,
                hint="Wait for one to finish, or cancel one.",
            )
        self._own.append(id)
        self._observe(TaskMoved(shown_id(id), call.operation, task.state))
        return task

    async def recent(self, limit: int) -> list[Task]:
        """The newest tasks of all callers, for whoever runs the site."""
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
        asked = datetime.now(UTC)
        ended = await self._store.tasks.cancel(id)
        if ended and ended.state == TaskState.CANCELLED and not ended.cancelling and ended.updated >= asked:
            self._tell(ended)  # it was pending: nobody else sees it end
        if id in self._running:
            self._running[id].stop()
        # The coroutine may be here or in another process; either way it ends soon.
        return await self.wait(id, caller, CANCEL_SECONDS) if ended else task

    async def cancel_all(self, caller: Caller) -> None:
        """Stop whatever a caller has under way, without waiting for it."""
        for task in await self._store.tasks.list_by_caller(caller.id, self._limits.tasks_per_caller, unfinished=True):
            if _owns(caller, task):
                await self._store.tasks.cancel(task.id)
                if task.id in self._running:
                    self._running[task.id].stop()

    async def retry(self, id: str, caller: Caller) -> Task:
        """Have a task that failed tried again, if repeating it is harmless."""
        task = await self.get(id, caller)
        if task.state != TaskState.FAILED:
            raise TaskFinished(
                f"Only a failed task can be tried again; this one is {task.state}", task=id, state=task.state
            )
        # What was confirmed was confirmed once: whoever wants it again has to ask again.
        call = replace(task.call, confirmation="", step="")
        permit = await self._gate.resume(replace(task, call=call))
        if permit.operation is None or not is_retried(permit.operation):
            raise Unsupported(f"{call.operation} is not tried again", task=id, operation=call.operation)
        taken = (await self._gate.clear(permit)).taken
        again = await self._store.tasks.retry(id, replace(call, step=taken.name if taken else ""))
        if again is None:
            raise TaskFinished("Somebody has it tried again already", task=id, state=task.state)
        if id in self._told:
            self._told.remove(id)
        self._own.append(id)
        return again

    async def wait(self, id: str, caller: Caller, timeout: float) -> Task:
        """The task once it has ended, or as it is after the timeout."""
        deadline = _clock() + timeout
        heard = await self._store.tasks.wait(-1, 0)
        while True:
            task = await self.get(id, caller)
            left = deadline - _clock()
            if task.state.is_final or left <= 0:
                return task
            await asyncio.sleep(min(left, PACE_SECONDS))
            heard = await self._store.tasks.wait(heard, min(left, POLL_SECONDS))

    # Running

    def open(self, *, only_own: bool = False) -> None:
        """Begin to take tasks from the store: all there are, or only those that were started here."""
        self._takes_all = not only_own
        self._loops = [asyncio.create_task(self._work()), asyncio.create_task(self._keep())]

    async def close(self) -> None:
        """Stop. What was running goes back, to be taken up by another process or the next start."""
        self._closing.set()
        await _ended(self._loops[:1])  # first of all, nothing more is taken
        runs = list(self._running.values())
        for run in runs:
            run.stop()
        if runs:
            await asyncio.wait([run.work for run in runs])
            await asyncio.wait([run.worker for run in runs], timeout=CLOSE_SECONDS)
        await _ended([*(run.worker for run in runs), *self._loops])

    async def _work(self) -> None:
        """Take what there is to do, as much at once as may run."""
        heard = failures = 0
        while True:
            await self._room()
            try:
                task = await self._taken()
                failures = 0
                self._incident.resolve()
            except Exception as error:  # noqa: BLE001 - whatever it was, tasks are to be taken again afterwards
                self._in_doubt = True
                self._patient_until = _clock() + PATIENCE_SECONDS
                self._report_failure(error)
                await asyncio.sleep(_pause(failures))
                failures += 1
                continue
            if task:
                self._begin(task)
            else:
                heard = await self._news(heard)

    def _report_failure(self, error: Exception) -> None:
        if not isinstance(error, StoreFault):  # which the store records
            self._incident.report(str(error) if isinstance(error, SiteError) else repr(error), error)

    async def _room(self) -> None:
        while len(self._running) >= self._limits.concurrent_tasks:
            workers = [run.worker for run in self._running.values()]
            await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        if self._in_doubt and not self._running:
            # A task may be ours without our knowing. Under another name this process can take it over, as others can.
            self._owner = secrets.token_hex(8)
            self._in_doubt = False

    async def _news(self, heard: int) -> int:
        """Wait for news of tasks, but not for long."""
        try:
            return await self._store.tasks.wait(heard, POLL_SECONDS)
        except SiteError:  # whoever looks next says so
            await asyncio.sleep(POLL_SECONDS)
            return heard

    async def _taken(self) -> Task | None:
        """Claim a task; if this process is told to stop meanwhile, what it claimed goes back."""
        claiming = asyncio.ensure_future(self._claim())
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with contextlib.suppress(SiteError):  # its lease runs out
                task = await claiming
                if task:
                    await self._store.tasks.update(_pending(_untried(task)), self._owner)
            raise

    async def _claim(self) -> Task | None:
        if self._takes_all:
            self._own.clear()
            # Leases also run out while the store is away: then those who live are given time to renew theirs.
            takeover = _clock() >= self._patient_until
            return await self._store.tasks.claim(self._owner, LEASE_SECONDS, takeover=takeover)
        while self._own:
            task = await self._store.tasks.claim(self._owner, LEASE_SECONDS, self._own[0])
            self._own.pop(0)
            if task:
                return task
        return None

    def _begin(self, task: Task) -> None:
        before = self._running.get(task.id)
        run = Run(task, self._owner, _clock())
        run.work = asyncio.create_task(self._attempt(run, before))
        run.worker = asyncio.create_task(self._perform(run))
        self._running[task.id] = run

    async def _perform(self, run: Run) -> None:
        """See one claimed task to its end, whatever that is, and store it."""
        try:
            await asyncio.wait([run.work])
            stopped = run.work.cancelled()
            ending = partial(_stopped, begun=run.begun) if stopped else run.work.result()
            try:
                await self._settle(run, ending)
            except SiteError as error:  # of its writes
                await self._settle(run, _after_failure(run, error))
        except Exception as error:  # noqa: BLE001 - whatever it was, the task must not stay as if it were running
            operation = run.task.call.operation
            self._observe(Broke(operation, repr(error), error))
            await self._settle(run, partial(_failed, error=OperationFailed(f"{operation} failed")))
        finally:
            if self._running.get(run.task.id) is run:
                del self._running[run.task.id]

    async def _attempt(self, run: Run, before: Run | None) -> Change | Completed:
        if before:  # taken over by another process and come back, while it is still ending here
            await asyncio.wait([before.worker])
        task = run.task
        try:
            permit = await self._insist(partial(self._gate.resume, task))
        except Unavailable:
            return partial(_stopped, begun=False)
        except SiteError as error:
            return partial(_failed, error=error)
        operation = permit.operation
        if operation is None or task.attempts > operation.attempts:
            return partial(_failed, error=Interrupted("The server stopped while this task was running"))
        if task.cancelling:
            return _cancelled
        run.begun, run.attempts = True, operation.attempts
        handle = Handle(partial(self._report, run), partial(self._save, run), task.saved)
        try:
            async with asyncio.timeout(task.call.timeout or operation.timeout * TIMEOUT_FACTOR):
                return await self._run(permit, handle)
        except SiteError as error:
            return _after_failure(run, error)
        except TimeoutError:
            return partial(_failed, error=TimedOut("The task took too long"))

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do it as soon as the store answers; when this process closes, now or never."""
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

    async def _settle(self, run: Run, ending: Change | Completed) -> None:
        """Store what became of a task. If that cannot be done, its lease runs out and another process tries again."""
        run.decided = None
        if isinstance(ending, Completed):
            commit = partial(self._commit, run, ending.writes, partial(_completed, ending=ending))
        else:
            commit = partial(self._commit, run, (), lambda task, _: ending(task))
        with contextlib.suppress(Unavailable, OutcomeUnknown):
            if await self._insist(commit) and run.stored:
                self._ended(run.stored)

    async def _commit(
        self, run: Run, writes: Writes, change: Callable[[Task, Sequence[Item]], Task]
    ) -> CommitResult | None:
        """Store what becomes of a task together with writes; None if the task is no longer this process's."""
        current = await self._store.tasks.get(run.task.id)
        if current and current.updated == run.decided:  # it was stored, but the answer got lost
            run.stored = current
            return CommitResult([], [])
        if current is None or not run.is_of(current):
            return None
        before, now = replace(current, saved=run.kept(current)), datetime.now(UTC)
        run.decided = now

        def settle(items: Sequence[Item]) -> Settlement:
            run.stored = replace(change(before, items), updated=now)
            return Settlement(task=run.stored, owner=run.owner)

        try:
            committed = await self._store.items.commit(writes, settle)
        except TimedOut as error:
            if not writes:
                raise
            # It would take as long the next time.
            raise OperationFailed(
                f"{len(writes)} writes are too many for one transaction",
                hint="Save more often: `await context.progress(share, save=…)`.",
            ) from error
        if committed:
            self._acknowledge(committed)
        return committed

    def _ended(self, task: Task) -> None:
        if task.state.is_final:
            self._observe(TaskMoved(shown_id(task.id), task.call.operation, task.state))
            self._tell(task)

    def _tell(self, ended: Task) -> None:
        """Tell of an end, once: of what two callers cancel both see the end."""
        if ended.id in self._told:
            return
        self._told.append(ended.id)
        for listener in self._listeners:
            listener(ended)

    async def _report(self, run: Run, progress: float, message: str) -> None:
        with contextlib.suppress(Unavailable):  # a store that is away misses a report
            current = await self._store.tasks.get(run.task.id)
            if current is None:
                return
            moved = replace(_moved(current, progress, message), saved=run.kept(current), updated=datetime.now(UTC))
            await self._store.tasks.update(moved, run.owner)

    async def _save(
        self, run: Run, progress: float, message: str | None, saved: Any, writes: Writes
    ) -> CommitResult | None:
        """Store how far a task is, what it is to go on from, and its writes, or none of them."""
        run.decided = None
        if not writes:
            run.saved = saved  # if the store is away, it is stored with the next report, or at the end

        def change(task: Task, _: Sequence[Item]) -> Task:
            moved = _moved(task, progress, message)
            return moved if saved is None else replace(moved, saved=saved)

        try:
            committed = await self._commit(run, writes, change)
        except OutcomeUnknown:  # now or as soon as the store answers
            committed = await self._insist(partial(self._commit, run, writes, change))
        if committed and saved is not None:
            run.saved = saved
        return committed

    async def _keep(self) -> None:
        """Keep the leases of what runs here, and stop what someone cancelled or another process took over."""
        heard = 0
        while True:
            heard = await self._news(heard)
            await asyncio.gather(*(self._look_after(run) for run in self._running.values()))
            await asyncio.sleep(PACE_SECONDS)

    async def _look_after(self, run: Run) -> None:
        now = _clock()
        try:
            if now - run.renewed < RENEW_SECONDS:
                held = await self._store.tasks.get(run.task.id)
            else:
                held = await self._store.tasks.renew(run.owner, run.task.id, LEASE_SECONDS)
                run.renewed = now
        except Exception as error:  # noqa: BLE001 - the work goes on meanwhile, and so do the leases of others
            self._report_failure(error)
            return
        if held is None or held.cancelling or not run.is_of(held):
            run.stop()


def _check(call: Call) -> None:
    """Refuse what no task can have; whether its callback may be called is known by those who call it."""
    if call.priority not in get_args(Priority):
        raise InvalidParams(
            f"{str(call.priority)[:100]!r} is not a priority",
            hint=f"Use {', '.join(get_args(Priority))}.",
        )
    for what, text, limit in (("request", call.request, MAX_REQUEST), ("callback", call.callback, MAX_CALLBACK)):
        if len(text) > limit or text_problem(text):
            raise InvalidParams(f"The {what} of a task may have up to {limit} ordinary characters", limit=limit)


def error_of(task: Task) -> SiteError:
    """What a task failed with, as it was raised."""
    if task.state == TaskState.CANCELLED:
        return TaskCancelled("This was cancelled", task=task.id)
    told = task.error or {}
    kind = getattr(errors, str(told.get("error")), OperationFailed)
    return kind(str(told.get("message", "")), hint=told.get("hint"), **told.get("details", {}))


def shown_id(id: str) -> str:
    """A task for a log: whoever holds the id of an anonymous one could end it."""
    return hashlib.sha256(id.encode()).hexdigest()[:12]


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _pause(failures: int) -> float:
    return PAUSES[min(failures, len(PAUSES) - 1)]


async def _ended(workers: list[asyncio.Task[None]]) -> None:
    """Cancel them and see them end; one that does not for a while is left."""
    for worker in workers:
        worker.cancel()
    if workers:
        await asyncio.wait(workers, timeout=CLOSE_SECONDS)


def _owns(caller: Caller, task: Task) -> bool:
    # Anonymous callers share an id: what tells them apart is that a task's id cannot be guessed.
    # Whoever names no user looks on behalf of the caller itself, whose tasks all of them are.
    return caller.id == task.caller.id and caller.user in {"", task.caller.user}


# What becomes of a task


def _moved(task: Task, progress: float, message: str | None) -> Task:
    share = max(task.progress, min(max(progress, 0.0), 1.0))
    return replace(task, progress=share, message=task.message if message is None else message)


def _completed(task: Task, items: Sequence[Item], *, ending: Completed) -> Task:
    return replace(task, state=TaskState.COMPLETED, progress=1.0, result=ending.result(items), saved=None)


def _after_failure(run: Run, error: SiteError) -> Change:
    """Try again, if the operation may be tried again and that can help."""
    if run.task.attempts < run.attempts and not isinstance(error, TimedOut | BadRequest | Denied):
        return partial(_pending, message=f"Trying again: {error.message}")
    return partial(_failed, error=error)


def _failed(task: Task, *, error: SiteError) -> Task:
    shown = {"error": type(error).__name__, "message": error.message, "hint": error.hint, "details": error.details}
    return replace(task, state=TaskState.FAILED, error=shown, saved=None)


def _cancelled(task: Task) -> Task:
    return replace(task, state=TaskState.CANCELLED, message="Cancelled", saved=None)


def _pending(task: Task, *, message: str = "") -> Task:
    return replace(task, state=TaskState.PENDING, message=message or task.message)


def _untried(task: Task) -> Task:
    """What was taken but not begun has not been tried."""
    return replace(task, attempts=task.attempts - 1)


def _stopped(task: Task, *, begun: bool) -> Task:
    """It goes back, unless someone wanted it to stop."""
    if task.cancelling:
        return _cancelled(task)
    return _pending(task if begun else _untried(task))


def is_retried(operation: Operation) -> bool:
    """Whether a failed task of this operation can be tried again: it says that repeating is harmless."""
    return operation.idempotent or operation.attempts > 1
