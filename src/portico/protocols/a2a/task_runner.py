"""Errands at work: from what a message wants to an answer, through the desk of NLWeb.

A run goes on when its client leaves, so that the client can come back to it, and ends by itself. What takes long is a
task of the site: the run ends with its promise, and whoever wants to know more follows that task, here or elsewhere.
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

from portico.ask.events import Did, Found, Promised, Said
from portico.ask.events import Event as AskEvent
from portico.ask.events import Finished as AskFinished
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
from portico.operations import checked_params
from portico.protocols.a2a.messages import (
    TEXT,
    Asking,
    Calling,
    Shown,
    Wanted,
    answer_parts,
    data_part,
    item_parts,
    promise_parts,
    question_parts,
    text_part,
)
from portico.protocols.a2a.task_records import Errand, Errands, Event
from portico.protocols.http import ended
from portico.protocols.nlweb.dialects import Voice, voice_of
from portico.protocols.nlweb.errors import BROKEN, NoResults, failure
from portico.protocols.nlweb.item_rendering import Premises, members
from portico.protocols.nlweb.render import Manner, Rendering, Told, promise, rendering
from portico.protocols.nlweb.service import Desk, Received
from portico.requests import Call, Caller, Task, TaskState
from portico.telemetry import Broke, Observe

OVERDUE_SECONDS = 400.0  # after which a run of a process that died is given up; no run takes as long
FOLLOW_SECONDS = 1.0  # between two looks at a task of the site; its end is noticed at once
PAUSE_SECONDS = 0.5  # between two looks at a run of another process
MAX_LISTENERS = 32  # requests of a caller that follow an errand at the same time
REFUSALS = (BadRequest, Denied, RateLimited, UnknownOperation)
STOPPED = Interrupted("The server stopped while this was answered", hint="Ask again.")

Key: TypeAlias = tuple[str, str]  # of an errand: whose it is, and its id


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sent a message, and from where the site is seen."""

    caller: Caller
    premises: Premises
    language: str = ""
    earlier: bool = False  # speaks 0.3


class Log:
    """Events in the order they happened. Anybody may read along, from any place on."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._news = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def tell(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def read(self, place: int) -> AsyncGenerator[Event]:
        """What is told from a place on, until the end."""
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
class Run:
    """An errand that this process works on."""

    errand: Errand
    key: Key
    log: Log = field(default_factory=Log)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)  # it will not be refused any more
    refused: SiteError | None = None
    cancelled: bool = False
    session: Shown = field(default_factory=dict[str, Any])  # of NLWeb, after the answer
    items: int = 0  # that were told
    pieces: int = 0  # of text that were told
    work: "asyncio.Task[None]" = field(init=False)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.log.tell(event)


class Runs:
    def __init__(self, desk: Desk, errands: Errands, observe: Observe) -> None:
        self._desk = desk
        self._site = desk.site
        self._errands = errands
        self._observe = observe
        self._running: dict[Key, Run] = {}
        self._claimed: set[Key] = set()
        self._listeners: Counter[str] = Counter()
        self._closing = asyncio.Event()

    async def find(self, id: str, caller: Caller) -> Errand | None:
        """An errand of this caller, as far as is known without looking at what it waits for."""
        run = self._running.get(_key(id, caller))
        return run.errand if run else await self._errands.get(id, caller)

    def is_running(self, errand: Errand, caller: Caller) -> bool:
        return _key(errand.task.id, caller) in self._running

    @asynccontextmanager
    async def claimed(self, id: str, caller: Caller) -> AsyncGenerator[Errand | None]:
        """An errand that waits for its caller. Nobody else can go on with it or end it meanwhile."""
        key = _key(id, caller)
        if key in self._claimed:
            raise UnsupportedOperationError("The task is being answered already")
        self._claimed.add(key)
        try:
            run = self._running.get(key)
            if run and not run.errand.is_working:  # it has ended, but is not kept yet
                await asyncio.wait({run.work})
            yield await self.find(id, caller)
        finally:
            self._claimed.remove(key)

    @contextmanager
    def listening(self, caller: Caller) -> Generator[None]:
        """For a request that follows an errand: each looks into the store about once in a second."""
        if self._listeners[caller.rate_key] >= MAX_LISTENERS:
            raise RateLimited(f"{MAX_LISTENERS} requests follow tasks already", hint="Leave one of them.")
        self._listeners[caller.rate_key] += 1
        try:
            yield
        finally:
            self._listeners[caller.rate_key] -= 1
            self._listeners += Counter()  # drops who does not listen any more

    async def begin(self, errand: Errand, wanted: Wanted, visitor: Visitor) -> Run:
        """Begin to work. Raises what it is refused for; what goes wrong later is told by the errand."""
        run = self._entered(errand, visitor.caller)
        run.work = asyncio.create_task(self._perform(run, wanted, visitor))
        run.work.add_done_callback(partial(self._over, run))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._desk.config.ask.patience):
                await run.admitted.wait()
        run.admitted.set()
        if run.refused:
            raise run.refused
        return run

    def _entered(self, errand: Errand, caller: Caller) -> Run:
        if self._closing.is_set():
            raise Unavailable("The server stops", hint="Try again in a moment.")
        most = self._site.limits.tasks_per_caller
        if sum(owner == caller.rate_key for owner, _ in self._running) >= most:
            raise RateLimited(f"{most} messages are being answered already", hint="Wait for one answer.")
        errand.moved(pb.TASK_STATE_WORKING)
        errand.until = time.time() + OVERDUE_SECONDS
        run = Run(errand, _key(errand.task.id, caller))
        run.tell(errand.snapshot())
        self._running[run.key] = run
        return run

    def follow(self, run: Run, visitor: Visitor) -> AsyncGenerator[Event]:
        """What happens to an errand until it ends or waits for its caller, from its beginning on."""
        return self._events(run.errand, visitor, run, 0)

    async def resume(self, errand: Errand, visitor: Visitor) -> AsyncGenerator[Event]:
        """An errand as it is, and what happens to it from now on."""
        run = self._running.get(_key(errand.task.id, visitor.caller))
        errand, place = (run.errand, len(run.log)) if run else (errand, 0)
        yield errand.snapshot()
        async with aclosing(self._events(errand, visitor, run, place)) as events:
            async for event in events:
                yield event

    async def _events(self, errand: Errand, visitor: Visitor, run: Run | None, place: int) -> AsyncGenerator[Event]:
        if run:
            async with aclosing(run.log.read(place)) as told:
                async for event in told:
                    yield event
        if errand.is_working:
            async with aclosing(self._rest(errand, visitor)) as rest:
                async for event in rest:
                    yield event

    async def _rest(self, errand: Errand, visitor: Visitor) -> AsyncGenerator[Event]:
        """How an errand gets on that nobody here works on, and how it ends."""
        last: Task | None = None
        while errand.is_working:
            if self._closing.is_set():  # another process goes on with it, or the next start
                return
            task = await self._next(errand, visitor)
            if task and (last is None or (task.progress, task.message) != (last.progress, last.message)):
                last = task
                yield errand.told(errand.task.status)
        for artifact in errand.task.artifacts:
            yield errand.piece(artifact.parts, append=False, last=True)
        yield errand.told(errand.task.status)

    async def close(self) -> None:
        """End what is worked on here, and let go of those who follow what is not."""
        self._closing.set()
        working = [run.work for run in self._running.values()]
        if working:
            await ended(*working)

    # Working

    async def _perform(self, run: Run, wanted: Wanted, visitor: Visitor) -> None:
        events: list[Event] | None = None
        try:
            events = await self._work(run, wanted, visitor)
        except SiteError as error:
            if isinstance(error, REFUSALS) and not run.admitted.is_set():
                run.refused = error
                events = []
            else:
                events = _failed(run.errand, error)
        except asyncio.CancelledError:  # by its caller, or because this process stops
            events = _failed(run.errand, TaskCancelled("This was cancelled") if run.cancelled else STOPPED)
        finally:
            # Whatever else it was, the client must not wait for ever.
            await self._leave(run, _failed(run.errand, BROKEN) if events is None else events, visitor)

    async def _leave(self, run: Run, events: list[Event], visitor: Visitor) -> None:
        """Keep what came of a run, and tell it: in this order, since whoever hears of it may ask at once."""
        try:
            if events:
                await self._errands.put(run.errand, visitor.caller, run.session)
        except SiteError as error:
            self._observe(Broke("/a2a", type(error).__name__, error))
        finally:
            run.tell(*events)

    def _over(self, run: Run, work: "asyncio.Task[None]") -> None:
        """Let go of a run, however it ended."""
        run.admitted.set()
        run.log.close()
        if self._running.get(run.key) is run:
            del self._running[run.key]
        if not work.cancelled() and (error := work.exception()):
            self._observe(Broke("/a2a", type(error).__name__, error))

    async def _work(self, run: Run, wanted: Wanted, visitor: Visitor) -> list[Event]:
        match wanted:
            case Asking(raw):
                return await self._ask(run, raw, visitor)
            case Calling(call):
                return await self._call(run, call, visitor)

    async def _ask(self, run: Run, raw: Shown, visitor: Visitor) -> list[Event]:
        patience = self._desk.config.ask.patience
        try:
            # An answer that takes longer than that is a promise; this is for one that is neither.
            async with asyncio.timeout(2 * patience):
                answering = await self._desk.ask(_received(raw, visitor))
                run.admitted.set()
                whole = await answering.whole(partial(_hear, run, answering.rendering.told))
        except TimeoutError as error:
            raise TimedOut("The answer took too long", hint="Ask for less.") from error
        run.session = dict(members(members(whole.body.get("_meta")).get("session_context")))
        return _settled(run.errand, whole.body, answering.rendering.told)

    async def _call(self, run: Run, call: Call, visitor: Visitor) -> list[Event]:
        operation = await self._admitted(call, visitor.caller)
        # What takes long is only begun here, at once: that there is no room for it is a refusal, too.
        if not operation.long:
            run.admitted.set()
        outcome = await self._site.call(call, visitor.caller)
        told = (Promised(outcome),) if isinstance(outcome, Task) else (Did(call.operation, outcome.result),)
        answer = _rendered((*told, AskFinished(1)), visitor)
        return _settled(run.errand, answer.whole().body, answer.told)

    async def _admitted(self, call: Call, caller: Caller) -> Operation:
        """The operation, once it is known that it may be called so. Later its own code may raise what refusals do."""
        permit = await self._site.gate.admit(call, caller)
        operation = cast("Operation", permit.operation)
        checked_params(operation, call.params)
        return operation

    # Following

    async def _next(self, errand: Errand, visitor: Visitor) -> Task | None:
        """Wait for news of an errand, but not for long."""
        try:
            await self._unless_closing(self._news(errand, visitor))
            return await self.look(errand, visitor)
        except (RateLimited, Unavailable):  # by looking, or meanwhile: the errand goes on all the same
            await self._unless_closing(asyncio.sleep(FOLLOW_SECONDS))
            return None

    async def _news(self, errand: Errand, visitor: Visitor) -> None:
        if not errand.promise:
            await asyncio.sleep(PAUSE_SECONDS)
            return
        # Not through a door of the site: the request that follows was metered once, and so is the answer that it gets.
        # Metered at every look, a stream would cost as much as it is long.
        with suppress(UnknownTask):
            await self._site.tasks.wait(errand.promise, visitor.caller, FOLLOW_SECONDS)

    async def _unless_closing(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for something, or until the server stops."""
        closing, work = asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({closing, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            await ended(closing, work)

    async def look(self, errand: Errand, visitor: Visitor) -> Task | None:
        """Bring an errand up to date with what it waits for; gives the task of the site while that goes on."""
        if self.is_running(errand, visitor.caller) or not errand.is_working:
            return None
        if not errand.promise:
            return await self._look_elsewhere(errand, visitor)
        try:
            task = await self._site.tasks.get(errand.promise, visitor.caller)
        except UnknownTask as error:
            await self._end(errand, error, visitor)
            return None
        if task.state.is_final:
            await self._finish(errand, task, visitor)
            return None
        shown = promise(task, datetime.now(UTC))
        errand.moved(pb.TASK_STATE_WORKING, promise_parts({"promise": shown}))
        return task

    async def _look_elsewhere(self, errand: Errand, visitor: Visitor) -> None:
        stored = await self._errands.get(errand.task.id, visitor.caller)
        if stored is not None:
            errand.task.CopyFrom(stored.task)
            errand.promise = stored.promise
        if errand.is_working and not errand.promise and time.time() > errand.until:
            await self._end(errand, STOPPED, visitor)

    async def _finish(self, errand: Errand, task: Task, visitor: Visitor) -> None:
        raw = {**errand.origin, "promise_token": errand.promise, "action": "checkin"}
        try:
            answering = await self._desk.awaited(_received(raw, visitor))
            whole = await answering.whole()
        except SiteError as error:
            if task.state == TaskState.COMPLETED or not _is_of(error, task):
                raise
            await self._end(errand, error, visitor)
            return
        _settled(errand, whole.body, answering.rendering.told)
        await self._errands.put(errand, visitor.caller)

    async def _end(self, errand: Errand, error: SiteError, visitor: Visitor) -> None:
        _failed(errand, error)
        await self._errands.put(errand, visitor.caller)

    # Cancelling

    async def cancel(self, errand: Errand, visitor: Visitor) -> Errand:
        """End an errand; gives it as it is then. One that has ended meanwhile cannot be cancelled."""
        run = self._running.get(_key(errand.task.id, visitor.caller))
        if run:
            errand = run.errand
            if errand.is_working:
                run.cancelled = True
                run.work.cancel()
            await asyncio.wait({run.work})
        if errand.promise:
            await self._cancel_promise(errand, visitor)
        elif errand.state == pb.TASK_STATE_INPUT_REQUIRED:
            return await self._cancel_question(errand, visitor)
        elif errand.state != pb.TASK_STATE_CANCELED:
            raise TaskNotCancelableError("It has ended already, or another process is about to answer it")
        return errand

    async def _cancel_question(self, errand: Errand, visitor: Visitor) -> Errand:
        async with self.claimed(errand.task.id, visitor.caller) as current:
            if current is None or current.state != pb.TASK_STATE_INPUT_REQUIRED:
                raise TaskNotCancelableError("It was answered just now")
            await self._end(current, TaskCancelled("This was cancelled"), visitor)
            return current

    async def _cancel_promise(self, errand: Errand, visitor: Visitor) -> None:
        with suppress(SiteError):  # that it is cancelled, or what it failed with
            await self._site.awaited(errand.promise, visitor.caller, cancel=True)
        await self.look(errand, visitor)
        if errand.is_final and errand.state != pb.TASK_STATE_CANCELED:
            raise TaskNotCancelableError("The task has ended already")


def _key(id: str, caller: Caller) -> Key:
    return caller.rate_key, id


async def _hear(run: Run, told: Told, event: AskEvent) -> None:
    """Tell what is found and said on the way. The whole answer follows in the end."""
    errand = run.errand
    match event:
        case Found() | Did() if len(told.items) > run.items:
            run.items = len(told.items)
            run.tell(errand.told(errand.said(pb.TASK_STATE_WORKING, item_parts(*told.items[-1]))))
        case Said(text) if TEXT in errand.modes:
            run.tell(errand.piece([text_part(text)], append=run.pieces > 0, last=False))
            run.pieces += 1
        case _:
            pass


def _settled(errand: Errand, body: Shown, told: Told) -> list[Event]:
    """Take what came of a question; gives the events that tell of it."""
    match told.kind:
        case "elicitation":
            return [errand.moved(pb.TASK_STATE_INPUT_REQUIRED, question_parts(body))]
        case "promise":
            errand.promise = cast("Task", told.task).id
            return [errand.moved(pb.TASK_STATE_WORKING, promise_parts(body))]
        case "failure" if not isinstance(told.error, NoResults):
            return [_broken(errand, body)]
        case _:
            return [errand.answered(answer_parts(body, told)), errand.moved(pb.TASK_STATE_COMPLETED)]


def _failed(errand: Errand, error: SiteError) -> list[Event]:
    if isinstance(error, TaskCancelled):
        return [errand.moved(pb.TASK_STATE_CANCELED)]
    return [_broken(errand, failure(error, voice_of(errand.origin)).body)]


def _broken(errand: Errand, body: Shown) -> Event:
    message = str(members(body.get("error")).get("message", BROKEN))
    return errand.moved(pb.TASK_STATE_FAILED, [text_part(message), data_part(body)])


def _is_of(error: SiteError, task: Task) -> bool:
    """Whether an error is what a task failed with, and not that of whoever looks at it."""
    return not isinstance(error, RateLimited) or members(task.error).get("error") == RateLimited.__name__


def _received(raw: Mapping[str, Any], visitor: Visitor) -> Received:
    return Received(
        raw,
        voice_of(raw),
        visitor.caller,
        visitor.premises,
        time.perf_counter(),
        language=visitor.language,
    )


def _rendered(events: tuple[AskEvent, ...], visitor: Visitor) -> Rendering:
    """What came of an operation, in the form of an answer."""
    started = time.perf_counter()
    manner = Manner(
        Voice(),
        visitor.premises,
        lambda: datetime.now(UTC),
        lambda: round((time.perf_counter() - started) * 1000),
        lambda _: None,
    )
    answer = rendering(manner)
    for event in events:
        answer.take(event)
    return answer
