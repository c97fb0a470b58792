"""Runs tasks: from a parsed message to an answer, through the NLWeb service.

A run continues when its client disconnects, so that the client can come back. Slow work is a task of the site: the
run ends with its promise, and clients follow that task, in this process or another.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, cast

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotCancelableError, UnsupportedOperationError

from portico.ask.events import EndEvent as AskFinished
from portico.ask.events import Event as AskEvent
from portico.ask.events import ItemEvent, OperationEvent, TaskEvent, TextEvent
from portico.catalog import Operation
from portico.errors import (
    BadRequest,
    Denied,
    Interrupted,
    RateLimited,
    SiteError,
    TaskCancelled,
    TimedOut,
    Unavailable,
    UnknownOperation,
    UnknownTask,
)
from portico.operations import check_params
from portico.protocols.a2a.messages import (
    TEXT,
    AskMessage,
    CallMessage,
    MessageIntent,
    Shown,
    answer_text,
    data_part,
    elicitation_text,
    item_line,
    promise_parts,
    text_part,
)
from portico.protocols.a2a.task_records import A2aEvent, TaskRecord, TaskRecords
from portico.protocols.http import cancel_and_wait
from portico.protocols.nlweb.dialects import ClientInfo, parse_client_info
from portico.protocols.nlweb.errors import NoResults, failure_answer
from portico.protocols.nlweb.render import AnswerAccumulator, Renderer, RenderOptions, make_renderer
from portico.protocols.nlweb.service import IncomingRequest, NlwebService
from portico.protocols.problems import BROKEN
from portico.protocols.rendering import RenderContext, members, render_promise
from portico.requests import Call, Caller, Task, TaskState
from portico.telemetry import Recorder, UnexpectedError

OVERDUE_SECONDS = 400.0  # after which a run of a dead process has failed; no run takes this long
FOLLOW_SECONDS = 1.0  # between two checks of a task of the site; its end is noticed at once
PAUSE_SECONDS = 0.5  # between two checks of a run in another process
MAX_LISTENERS = 32  # requests of a caller that follow tasks at the same time
REFUSALS = (BadRequest, Denied, RateLimited, UnknownOperation)
STOPPED = Interrupted("The server was shut down before the answer was complete", hint="Ask again.")

Key: TypeAlias = tuple[str, str]  # of a task: its caller and its id


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The sender of a message, and how to render answers for it."""

    caller: Caller
    context: RenderContext
    language: str = ""
    earlier: bool = False  # speaks 0.3


class EventLog:
    """Events in order. Any number of readers may follow, each from any place."""

    def __init__(self) -> None:
        self._events: list[A2aEvent] = []
        self._news = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def append(self, event: A2aEvent) -> None:
        self._events.append(event)
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def read(self, place: int) -> AsyncGenerator[A2aEvent]:
        """Yield the events from a place on, until the end."""
        while True:
            while place < len(self._events):
                yield self._events[place]
                place += 1
            if self._closed:
                return
            await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


@dataclass(slots=True, eq=False)
class A2aRun:
    """A task that this process is working on."""

    record: TaskRecord
    key: Key
    log: EventLog = field(default_factory=EventLog)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)  # it can no longer be refused
    refusal: SiteError | None = None
    cancelled: bool = False
    session: Shown = field(default_factory=dict[str, Any])  # of NLWeb, after the answer
    items: int = 0  # published so far
    pieces: int = 0  # of text, published so far
    work: "asyncio.Task[None]" = field(init=False)

    def publish(self, *events: A2aEvent) -> None:
        for event in events:
            self.log.append(event)


class TaskRunner:
    def __init__(self, service: NlwebService, records: TaskRecords, record: Recorder) -> None:
        self._service = service
        self._site = service.site
        self._records = records
        self._record = record
        self._running: dict[Key, A2aRun] = {}
        self._claimed: set[Key] = set()
        self._listeners: Counter[str] = Counter()
        self._closing = asyncio.Event()

    async def find(self, id: str, caller: Caller) -> TaskRecord | None:
        """Return a task of this caller as it was last recorded."""
        run = self._running.get(_key(id, caller))
        return run.record if run else await self._records.get(id, caller)

    def is_running(self, record: TaskRecord, caller: Caller) -> bool:
        return _key(record.task.id, caller) in self._running

    @asynccontextmanager
    async def claim(self, id: str, caller: Caller) -> AsyncGenerator[TaskRecord | None]:
        """Reserve a task that waits for its caller: no other request can continue or end it meanwhile."""
        key = _key(id, caller)
        if key in self._claimed:
            raise UnsupportedOperationError("Another request is continuing this task")
        self._claimed.add(key)
        try:
            run = self._running.get(key)
            if run and not run.record.is_working:  # it has ended, but is not stored yet
                await asyncio.wait({run.work})
            yield await self.find(id, caller)
        finally:
            self._claimed.remove(key)

    @contextmanager
    def count_listener(self, caller: Caller) -> Generator[None]:
        """Count a request that follows a task: each reads the store about once a second."""
        if self._listeners[caller.rate_key] >= MAX_LISTENERS:
            raise RateLimited(f"{MAX_LISTENERS} requests follow tasks already", hint="Close one of them.")
        self._listeners[caller.rate_key] += 1
        try:
            yield
        finally:
            self._listeners[caller.rate_key] -= 1
            self._listeners += Counter()  # drops counts of zero

    async def begin(self, record: TaskRecord, intent: MessageIntent, sender: MessageContext) -> A2aRun:
        """Start a run. Raises what it is refused for; a later failure is recorded in the task."""
        run = self._register(record, sender.caller)
        run.work = asyncio.create_task(self._perform(run, intent, sender))
        run.work.add_done_callback(partial(self._release, run))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._service.config.ask.patience):
                await run.admitted.wait()
        run.admitted.set()
        if run.refusal:
            raise run.refusal
        return run

    def _register(self, record: TaskRecord, caller: Caller) -> A2aRun:
        if self._closing.is_set():
            raise Unavailable("The server is shutting down", hint="Try again in a moment.")
        most = self._site.limits.tasks_per_caller
        if sum(owner == caller.rate_key for owner, _ in self._running) >= most:
            raise RateLimited(f"{most} messages are being answered already", hint="Wait for one answer.")
        record.set_state(pb.TASK_STATE_WORKING)
        record.until = time.time() + OVERDUE_SECONDS
        run = A2aRun(record, _key(record.task.id, caller))
        run.publish(record.snapshot())
        self._running[run.key] = run
        return run

    def follow(self, run: A2aRun, sender: MessageContext) -> AsyncGenerator[A2aEvent]:
        """Yield the events of a task from the beginning until it ends or waits for its caller."""
        return self._events(run.record, sender, run, 0)

    async def resume(self, record: TaskRecord, sender: MessageContext) -> AsyncGenerator[A2aEvent]:
        """Yield a task as it is, and its events from now on."""
        run = self._running.get(_key(record.task.id, sender.caller))
        record, place = (run.record, len(run.log)) if run else (record, 0)
        yield record.snapshot()
        async with aclosing(self._events(record, sender, run, place)) as events:
            async for event in events:
                yield event

    async def _events(
        self, record: TaskRecord, sender: MessageContext, run: A2aRun | None, place: int
    ) -> AsyncGenerator[A2aEvent]:
        if run:
            async with aclosing(run.log.read(place)) as log_events:
                async for event in log_events:
                    yield event
        if record.is_working:
            async with aclosing(self._rest(record, sender)) as rest:
                async for event in rest:
                    yield event

    async def _rest(self, record: TaskRecord, sender: MessageContext) -> AsyncGenerator[A2aEvent]:
        """Yield the progress and the end of a task that no run here works on."""
        last: Task | None = None
        while record.is_working:
            if self._closing.is_set():  # another process goes on with it, or the next start
                return
            task = await self._next(record, sender)
            if task and (last is None or (task.progress, task.message) != (last.progress, last.message)):
                last = task
                yield record.status_event(record.task.status)
        for artifact in record.task.artifacts:
            yield record.artifact_event(artifact.parts, append=False, last=True)
        yield record.status_event(record.task.status)

    async def close(self) -> None:
        """End all runs, and the streams of those who follow other tasks."""
        self._closing.set()
        working = [run.work for run in self._running.values()]
        if working:
            await cancel_and_wait(*working)

    # Working

    async def _perform(self, run: A2aRun, intent: MessageIntent, sender: MessageContext) -> None:
        events: list[A2aEvent] | None = None
        try:
            events = await self._work(run, intent, sender)
        except SiteError as error:
            if isinstance(error, REFUSALS) and not run.admitted.is_set():
                run.refusal = error
                events = []
            else:
                events = _record_failure(run.record, error)
        except asyncio.CancelledError:  # by its caller, or because this process stops
            events = _record_failure(run.record, TaskCancelled("The task was cancelled") if run.cancelled else STOPPED)
        finally:
            # Also after a defect the client must not wait for ever.
            await self._store_and_publish(
                run, _record_failure(run.record, BROKEN) if events is None else events, sender
            )

    async def _store_and_publish(self, run: A2aRun, events: list[A2aEvent], sender: MessageContext) -> None:
        """Store the result of a run, then publish it: a client may get the task as soon as it hears of it."""
        try:
            if events:
                await self._records.put(run.record, sender.caller, run.session)
        except SiteError as error:
            self._record(UnexpectedError("/a2a", type(error).__name__, error))
        finally:
            run.publish(*events)

    def _release(self, run: A2aRun, work: "asyncio.Task[None]") -> None:
        """Release a run, however it ended."""
        run.admitted.set()
        run.log.close()
        if self._running.get(run.key) is run:
            del self._running[run.key]
        if not work.cancelled() and (error := work.exception()):
            self._record(UnexpectedError("/a2a", type(error).__name__, error))

    async def _work(self, run: A2aRun, intent: MessageIntent, sender: MessageContext) -> list[A2aEvent]:
        match intent:
            case AskMessage(raw):
                return await self._ask(run, raw, sender)
            case CallMessage(call):
                return await self._call(run, call, sender)

    async def _ask(self, run: A2aRun, raw: Shown, sender: MessageContext) -> list[A2aEvent]:
        patience = self._service.config.ask.patience
        try:
            # An answer that takes longer becomes a promise; this bounds one that does not.
            async with asyncio.timeout(2 * patience):
                stream = await self._service.ask(_nlweb_request(raw, sender))
                run.admitted.set()
                answer = await stream.collect(partial(_publish_progress, run, stream.renderer.state))
        except TimeoutError as error:
            raise TimedOut("The answer took too long", hint="Ask for less.") from error
        run.session = dict(members(members(answer.body.get("_meta")).get("session_context")))
        return _record_answer(run.record, answer.body, stream.renderer.state)

    async def _call(self, run: A2aRun, call: Call, sender: MessageContext) -> list[A2aEvent]:
        operation = await self._admit(call, sender.caller)
        # A long operation is only started here: a full task queue is a refusal, too.
        if not operation.long:
            run.admitted.set()
        outcome = await self._site.call(call, sender.caller)
        event = (
            (TaskEvent(outcome),) if isinstance(outcome, Task) else (OperationEvent(call.operation, outcome.result),)
        )
        answer = _render_events((*event, AskFinished(1)), sender)
        return _record_answer(run.record, answer.to_json().body, answer.state)

    async def _admit(self, call: Call, caller: Caller) -> Operation:
        """Return the operation if the call is allowed. Its own code may later raise the same errors as a refusal."""
        operation = cast("Operation", await self._site.access.check(call, caller))
        check_params(operation, call.params)
        return operation

    # Following

    async def _next(self, record: TaskRecord, sender: MessageContext) -> Task | None:
        """Wait a short time for news of a task."""
        try:
            await self._unless_closing(self._wait_for_news(record, sender))
            return await self.refresh(record, sender)
        except (RateLimited, Unavailable):  # of the check itself: the task continues
            await self._unless_closing(asyncio.sleep(FOLLOW_SECONDS))
            return None

    async def _wait_for_news(self, record: TaskRecord, sender: MessageContext) -> None:
        if not record.promise:
            await asyncio.sleep(PAUSE_SECONDS)
            return
        # Without a charge: the request that follows was charged once, and so is the answer that it gets.
        # If every check were charged, a stream would cost as much as it is long.
        with suppress(UnknownTask):
            await self._site.tasks.wait(record.promise, sender.caller, FOLLOW_SECONDS)

    async def _unless_closing(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for something, or until the server shuts down."""
        closing, work = asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({closing, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            await cancel_and_wait(closing, work)

    async def refresh(self, record: TaskRecord, sender: MessageContext) -> Task | None:
        """Bring a task up to date with its promise. Return the task of the site while it is running."""
        if self.is_running(record, sender.caller) or not record.is_working:
            return None
        if not record.promise:
            return await self._refresh_from_store(record, sender)
        try:
            task = await self._site.tasks.get(record.promise, sender.caller)
        except UnknownTask as error:
            await self._end(record, error, sender)
            return None
        if task.state.is_final:
            await self._finish(record, task, sender)
            return None
        body = render_promise(task, datetime.now(UTC))
        record.set_state(pb.TASK_STATE_WORKING, promise_parts({"promise": body}))
        return task

    async def _refresh_from_store(self, record: TaskRecord, sender: MessageContext) -> None:
        stored = await self._records.get(record.task.id, sender.caller)
        if stored is not None:
            record.task.CopyFrom(stored.task)
            record.promise = stored.promise
        if record.is_working and not record.promise and time.time() > record.until:
            await self._end(record, STOPPED, sender)

    async def _finish(self, record: TaskRecord, task: Task, sender: MessageContext) -> None:
        raw = {**record.origin, "promise_token": record.promise, "action": "checkin"}
        try:
            stream = await self._service.check_promise(_nlweb_request(raw, sender))
            answer = await stream.collect()
        except SiteError as error:
            if task.state == TaskState.COMPLETED or not _is_of(error, task):
                raise
            await self._end(record, error, sender)
            return
        _record_answer(record, answer.body, stream.renderer.state)
        await self._records.put(record, sender.caller)

    async def _end(self, record: TaskRecord, error: SiteError, sender: MessageContext) -> None:
        _record_failure(record, error)
        await self._records.put(record, sender.caller)

    # Cancelling

    async def cancel(self, record: TaskRecord, sender: MessageContext) -> TaskRecord:
        """Cancel a task and return its record. One that has ended meanwhile cannot be cancelled."""
        run = self._running.get(_key(record.task.id, sender.caller))
        if run:
            record = run.record
            if record.is_working:
                run.cancelled = True
                run.work.cancel()
            await asyncio.wait({run.work})
        if record.promise:
            await self._cancel_promise(record, sender)
        elif record.state == pb.TASK_STATE_INPUT_REQUIRED:
            return await self._cancel_question(record, sender)
        elif record.state != pb.TASK_STATE_CANCELED:
            raise TaskNotCancelableError("The task has ended already, or another process is about to end it")
        return record

    async def _cancel_question(self, record: TaskRecord, sender: MessageContext) -> TaskRecord:
        async with self.claim(record.task.id, sender.caller) as current:
            if current is None or current.state != pb.TASK_STATE_INPUT_REQUIRED:
                raise TaskNotCancelableError("The task was just continued by another request")
            await self._end(current, TaskCancelled("The task was cancelled"), sender)
            return current

    async def _cancel_promise(self, record: TaskRecord, sender: MessageContext) -> None:
        with suppress(SiteError):  # that it is cancelled, or what it failed with
            await self._site.task_events(record.promise, sender.caller, cancel=True)
        await self.refresh(record, sender)
        if record.is_final and record.state != pb.TASK_STATE_CANCELED:
            raise TaskNotCancelableError("The task has ended already")


def _key(id: str, caller: Caller) -> Key:
    return caller.rate_key, id


async def _publish_progress(run: A2aRun, answer: AnswerAccumulator, event: AskEvent) -> None:
    """Publish items and text as they come. The whole answer follows at the end."""
    record = run.record
    match event:
        case ItemEvent() | OperationEvent() if len(answer.items) > run.items:
            run.items = len(answer.items)
            index, item = answer.items[-1]
            parts = [text_part(item_line(item)), data_part({"index": index, "item": item})]
            run.publish(record.status_event(record.make_status(pb.TASK_STATE_WORKING, parts)))
        case TextEvent(text) if TEXT in record.modes:
            run.publish(record.artifact_event([text_part(text)], append=run.pieces > 0, last=False))
            run.pieces += 1
        case _:
            pass


def _record_answer(record: TaskRecord, body: Shown, answer: AnswerAccumulator) -> list[A2aEvent]:
    """Record the answer to a question, and return the events for it."""
    match answer.kind:
        case "elicitation":
            return [
                record.set_state(
                    pb.TASK_STATE_INPUT_REQUIRED, [text_part(elicitation_text(body["elicitation"])), data_part(body)]
                )
            ]
        case "promise":
            record.promise = cast("Task", answer.task).id
            return [record.set_state(pb.TASK_STATE_WORKING, promise_parts(body))]
        case "failure" if not isinstance(answer.error, NoResults):
            return [_fail_with(record, body)]
        case _:
            return [
                record.set_answer([text_part(answer_text(answer)), data_part(body)]),
                record.set_state(pb.TASK_STATE_COMPLETED),
            ]


def _record_failure(record: TaskRecord, error: SiteError) -> list[A2aEvent]:
    if isinstance(error, TaskCancelled):
        return [record.set_state(pb.TASK_STATE_CANCELED)]
    return [_fail_with(record, failure_answer(error, parse_client_info(record.origin)).body)]


def _fail_with(record: TaskRecord, body: Shown) -> A2aEvent:
    message = str(members(body.get("error")).get("message", BROKEN))
    return record.set_state(pb.TASK_STATE_FAILED, [text_part(message), data_part(body)])


def _is_of(error: SiteError, task: Task) -> bool:
    """Return whether an error is the failure of a task, and not of the request that checks it."""
    return not isinstance(error, RateLimited) or members(task.error).get("error") == RateLimited.__name__


def _nlweb_request(raw: Mapping[str, Any], sender: MessageContext) -> IncomingRequest:
    return IncomingRequest(
        raw,
        parse_client_info(raw),
        sender.caller,
        sender.context,
        time.perf_counter(),
        language=sender.language,
    )


def _render_events(events: tuple[AskEvent, ...], sender: MessageContext) -> Renderer:
    """Return the result of an operation as an answer."""
    started = time.perf_counter()
    options = RenderOptions(
        ClientInfo(),
        sender.context,
        lambda: datetime.now(UTC),
        lambda: round((time.perf_counter() - started) * 1000),
        lambda _: None,
    )
    answer = make_renderer(options)
    for event in events:
        answer.add(event)
    return answer
