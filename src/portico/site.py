"""Site: the one door. Every face asks, queries, calls and watches through here, and every door starts at the gate."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar, cast

from portico.access.identity import Identity
from portico.access.limits import Limits, Rates
from portico.access.signed_tokens import SignedTokens
from portico.ask.command_runner import AskContext
from portico.ask.events import EndEvent, ErrorEvent, Event, InterpretationEvent, OperationEvent, TaskEvent
from portico.ask.operation import NAME as ASK
from portico.ask.operation import ask_operation, params_of
from portico.ask.pipeline import AskOptions, Pipeline
from portico.ask.record import load_events
from portico.catalog import Catalog, Collection, FieldType, Operation
from portico.config import Safety
from portico.conversations.feedback import Feedback
from portico.conversations.file_reader import FileReader
from portico.conversations.memories import Memories
from portico.conversations.notes import Notes
from portico.conversations.operations import CREATE as CREATE_MEMORIES
from portico.conversations.operations import memory_operations
from portico.conversations.transcripts import Transcripts
from portico.errors import (
    Denied,
    RateLimited,
    SiteError,
    TaskCancelled,
    TaskFinished,
    UnknownField,
    UnknownItem,
)
from portico.items import Change, Item, text_problem
from portico.models import LanguageModel
from portico.operations import (
    check_params,
    check_published,
    collection_operations,
)
from portico.operations.builtin import task_operations, workflow_operation
from portico.operations.calls import CallRunner
from portico.operations.tasks import error_of
from portico.operations.workflows import RUN, Workflows
from portico.query import MATCH_ALL, Page, Query, parse_filter, validate_query
from portico.requests import Ask, Call, Caller, File, Outcome, Task, TaskState, Watch
from portico.safety.access import Access
from portico.safety.gate import Gate
from portico.safety.guard import Guard
from portico.safety.models import PendingChallenge, VerificationCode
from portico.safety.operations import LOOP, safety_operations
from portico.search.finder import Finder
from portico.subscriptions import OpenSubscription, SubscribeRequest, Subscriptions, watch_changes
from portico.telemetry import AskAnswered, CallFinished, QueryServed, Recorder, RequestRefused, discard

RESERVED = LOOP | {ASK, "get_task", "cancel_task", CREATE_MEMORIES, "list_memories", "forget_memories", RUN}

T = TypeVar("T")
Later: TypeAlias = Callable[[Ask, Caller], Awaitable[Task]]
Show: TypeAlias = Callable[[PendingChallenge, VerificationCode], None]


class Site:
    def __init__(
        self,
        name: str,
        finder: Finder,
        identity: Identity,
        limits: Limits | None = None,
        operations: Sequence[Operation] = (),
        record: Recorder = discard,
        ask_options: AskOptions | None = None,
        model: LanguageModel | None = None,
        safety: Safety | None = None,
        show: Show | None = None,
    ) -> None:
        self.name = name
        self.finder = finder
        self.identity = identity
        self.limits = limits or Limits()
        check_published(operations)
        self._own = tuple(operations)
        self._record = record
        self._schema: Mapping[str, Collection] | None = None
        self._catalog = Catalog({}, {})
        rates = Rates(self.limits, finder.store.meters.take)
        self._guard = Guard(finder.store, safety or Safety(), self._agents_operations, record, show or _unseen)
        self._gate = Gate(
            lambda: self.catalog, self._refresh, self.limits, rates, record, self._guard, identity.refresh
        )
        self.access = Access(identity, self._gate, self._guard, record)
        self.supervision = self._guard.supervision
        self.tokens = SignedTokens(finder.store.secret)
        self.notes = Notes(finder.store)
        self._calls = CallRunner(finder, self._gate, self._guard, self.limits, record)
        self.tasks = self._calls.tasks
        self.memories = Memories(finder.store.collections, finder.store.items)
        self.transcripts = Transcripts(finder.store.collections, finder.store.items)
        self.feedback = Feedback(finder.store)
        self._file_reader = FileReader()
        self.subscriptions = Subscriptions(finder.store, lambda: self.catalog)
        self.workflows = Workflows(lambda: self.catalog, self._gate, self._call_later)
        self._pipeline = Pipeline(finder, lambda: self.catalog, ask_options or AskOptions(), model)

    @property
    def catalog(self) -> Catalog:
        """What the site has and can do, as of now."""
        schema = self.finder.store.collections.schema
        if schema is not self._schema:
            self._schema = schema
            self._catalog = self._build_catalog(schema)
        return self._catalog

    async def _refresh(self) -> bool:
        """See what other processes have made of the collections; whether that is anything new."""
        before = self._schema
        return await self.finder.store.collections.refresh() is not before

    def _build_catalog(self, schema: Mapping[str, Collection]) -> Catalog:
        operations = {
            each.name: each
            for collection in schema.values()
            if not collection.private
            for each in collection_operations(collection)
        }
        operations.update(
            {
                each.name: each
                for each in (*self._builtin_operations(), *safety_operations(self._guard, self.tasks), *self._own)
            }
        )
        return Catalog(schema, operations)

    def _builtin_operations(self) -> tuple[Operation, ...]:
        return (
            ask_operation(self.answered),
            *task_operations(self.tasks),
            *memory_operations(self.memories),
            workflow_operation(self.workflows),
        )

    def _agents_operations(self) -> Mapping[str, Operation]:
        """What agents can have run, and must report."""
        return {name: each for name, each in self.catalog.operations.items() if name not in LOOP}

    @property
    def own_operations(self) -> list[Operation]:
        """What the site itself offers to do: not what every collection and every site has."""
        own = (each for each in self.catalog.operations.values() if not each.collection and each.name not in RESERVED)
        return sorted(own, key=lambda each: each.name)

    async def start(self) -> None:
        """Look anew at steps that were paused before a restart, and hold the role of the process that serves."""
        await self._guard.begin()

    async def stop(self) -> None:
        """Let the next process that starts count as a restart."""
        await self._guard.close()

    async def read_files(self, files: Sequence[File], question: str, caller: Caller) -> tuple[Item, ...]:
        """Return the passages of files that fit a question, to answer it from. Costs as much as a question."""
        await self._gate.spend(caller)
        return await self._file_reader.read(files, question)

    @property
    def finds_by_meaning(self) -> bool:
        return self.finder.embedder is not None

    def vectors(self, collection: str) -> tuple[str, ...]:
        """The fields of a collection that hold vectors; an empty name for those made of whole items."""
        known = self.catalog.collection(collection)
        own = ("",) if self.finds_by_meaning else ()
        return (*own, *(each.name for each in known.fields.values() if each.type == FieldType.VECTOR))

    # The four doors

    async def ask(self, ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        """Answer a question. Errors before the first event are raised; later ones are events."""
        async with aclosing(self._answer(ask, caller, later=self._answer_later)) as events:
            async for event in events:
                yield event

    async def _answer(self, ask: Ask, caller: Caller, later: Later | None) -> AsyncGenerator[Event]:
        await self._gate.admit(ask, caller)
        started = time.perf_counter()
        asker = AskContext(
            await self._gate.look_up(lambda: self._fitting(ask, caller)),
            lambda operation: self._gate.may(operation, caller),
            lambda call: self.call(call, caller),
            # A filter of a face's own, and files, cannot be told to a task, which may run in another process.
            partial(later, ask, caller) if later and ask.where == MATCH_ALL and not ask.attached else None,
            partial(self._may_use_model, caller),
            self._calls.acknowledged,
        )
        is_ignored = ask.remember and not await self._keep_memories(ask, caller)
        known = await self._remembered(ask, caller)
        finished, begun = EndEvent(0), False
        try:
            async with aclosing(self._pipeline.answer(known, asker)) as events:
                async for event in events:
                    begun = True
                    if isinstance(event, EndEvent):
                        finished = event
                    yield _forgetful(event) if is_ignored else event
        except SiteError as error:
            if not begun:
                raise
            yield ErrorEvent(error)
        self._record(AskAnswered(_since(started), finished.items, caller.id, finished.cost.calls))

    async def _may_use_model(self, caller: Caller) -> bool:
        meter = await self.finder.store.meters.take(f"model\n{caller.rate_key}", self.limits.model_calls_per_minute)
        return meter.granted > 0

    async def _keep_memories(self, ask: Ask, caller: Caller) -> bool:
        """Store what the caller asks to be remembered; return False if it may not store anything now.

        A question reads. What is stored with it has to pass the guard like a call of the operation that stores it, so
        that an agent which is blocked, or has not reported it, stores nothing through any protocol.
        """
        if caller.is_anonymous:
            return False
        call = Call(CREATE_MEMORIES, {"preferences": list(ask.memory)})
        try:
            taken = await self._guard.clear(call, self.catalog.operations[CREATE_MEMORIES], caller)
        except (Denied, RateLimited) as error:
            self._record(RequestRefused("memory", caller.id, type(error).__name__))
            return False
        try:
            await self.memories.keep(caller, "preference", ask.memory)
            await self.memories.keep(caller, "question", [ask.text])
        except (SiteError, asyncio.CancelledError):
            await asyncio.shield(self._calls.settle(taken, caller, failed=True))
            raise
        await self._calls.settle(taken, caller, failed=False)
        return True

    async def _remembered(self, ask: Ask, caller: Caller) -> Ask:
        """The question with what is known of the caller."""
        kept = await self.memories.of(caller, "preference")
        return replace(ask, memory=tuple(dict.fromkeys((*(each.text for each in kept), *ask.memory))))

    async def _answer_later(self, ask: Ask, caller: Caller) -> Task:
        """The same question as a task."""
        # What was to be remembered is stored by now: the task only reads.
        return cast("Task", await self.call(Call(ASK, params_of(ask), run="later"), caller))

    async def answered(self, ask: Ask, caller: Caller) -> list[Event]:
        """All events of an answer, however long it takes; what it failed with is raised."""
        found: list[Event] = []
        async with aclosing(self._answer(ask, caller, later=None)) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    raise event.error
                found.append(event)
        return found

    def _fitting(self, ask: Ask, caller: Caller) -> tuple[str, ...]:
        """The collections that have every field the question's filter names; an error if none has."""
        fitting: list[str] = []
        wrong: SiteError | None = None
        for name in self._gate.readable(caller):
            if ask.collections and name not in ask.collections:
                continue
            try:
                validate_query(Query(name, where=ask.where), self.catalog.collections[name])
                fitting.append(name)
            except UnknownField as error:
                wrong = error
        if wrong and not fitting:
            raise wrong
        return tuple(fitting)

    async def awaited(self, token: str, caller: Caller, *, cancel: bool = False) -> tuple[Event, ...]:
        """What has become of a promise: a promise still, or the answer. Raises what it failed with, also if cancelled.

        Cancelling twice is no mistake, and cancelling what is done gives its answer.
        """
        await self._gate.spend(caller)
        task = await self.tasks.get(token, caller)
        if cancel and not task.state.is_final:
            with contextlib.suppress(TaskFinished):
                task = await self.tasks.cancel(token, caller)
        match task.state:
            case TaskState.PENDING | TaskState.RUNNING:
                return (TaskEvent(task),)
            case TaskState.CANCELLED:
                raise TaskCancelled("The task was cancelled", task=token)
            case TaskState.FAILED:
                raise error_of(task)
            case TaskState.COMPLETED if task.call.operation == ASK:
                return load_events(task.result)
            case TaskState.COMPLETED:
                about = await self._pipeline.find_items(task.result, self._gate.readable(caller))
                return (OperationEvent(task.call.operation, task.result, about), EndEvent(1))

    async def query(self, query: Query, caller: Caller) -> Page:
        await self._gate.admit(query, caller)
        started, known = time.perf_counter(), self.catalog
        page = await self.finder.find(query, self._calls.acknowledged)
        if self.catalog is not known:  # another process may just have made the collection private
            self._gate.recheck(query, caller)
        self._record(QueryServed(query.collection, _since(started), page.length, caller.id))
        return page

    async def pages(self, query: Query, caller: Caller) -> AsyncGenerator[Page]:
        """Page after page of what a query finds, to its end. All of them together cost what one costs."""
        page = await self.query(query, caller)
        yield page
        while page.cursor:
            page = await self.finder.find(replace(query, cursor=page.cursor), self._calls.acknowledged)
            yield page

    async def beside(self, query: Query, limit: int) -> Page:
        """Another page of a collection that the caller was just let into, for the same answer. Costs nothing."""
        return await self.finder.find(replace(query, limit=limit), self._calls.acknowledged)

    async def item(self, ref: str, caller: Caller) -> Item:
        """What is called so on the site, or the first item of this id, in a collection that the caller may read."""
        await self._gate.spend(caller)
        names = [] if text_problem(ref) else self._gate.readable(caller)
        for name in sorted(names, key=lambda name: not ref.startswith(f"{name}/")):
            for id in filter(None, dict.fromkeys((ref, ref.removeprefix(f"{name}/")))):
                if found := await self.finder.store.items.get(name, id):
                    return found
        raise UnknownItem(f"There is no item {ref[:100]!r}", id=ref[:100])

    async def call(self, call: Call, caller: Caller) -> Outcome | Task:
        """Run an operation now, or start it as a task."""
        permit = await self._gate.admit(call, caller)
        operation = cast("Operation", permit.operation)
        started = time.perf_counter()
        try:
            params = check_params(operation, call.params)
            outcome = await self._calls.run(permit, call, operation, params)
        except SiteError as error:
            self._record(CallFinished(operation.name, _since(started), caller.id, type(error).__name__, error))
            raise
        self._record(CallFinished(operation.name, _since(started), caller.id))
        return outcome

    async def _call_later(self, call: Call, caller: Caller) -> Outcome | Task:
        """A call of somebody who asked for it earlier: what was taken away since stays undone."""
        return await self.call(call, await self.identity.refresh(caller))

    async def newest(self) -> int:
        """The sequence number of the newest change: from here on to watch is to miss nothing."""
        return await self.finder.store.changes.head()

    async def watch(self, watch: Watch, caller: Caller) -> AsyncIterator[Change]:
        """Yield the changes of a collection as they happen. An update that leaves or enters the filter is shown too."""
        await self._admit_watch(watch, caller)
        changes = watch_changes(self.finder.store, lambda: self.catalog, watch, self.limits.page_bytes)
        async with aclosing(cast("AsyncGenerator[Change]", changes)):
            async for change in changes:
                yield change

    async def _admit_watch(self, watch: Watch, caller: Caller) -> None:
        await self._gate.admit(watch, caller)
        query = Query(watch.collection, where=watch.where)
        await self._gate.look_up(lambda: validate_query(query, self.catalog.collections[watch.collection]))

    async def follow(self, subscribe: SubscribeRequest, caller: Caller) -> OpenSubscription:
        """Begin a subscription, or take one up again. Its events are to be closed by whoever reads them."""
        where = parse_filter(subscribe.filter or {})
        await self._admit_watch(Watch(subscribe.collection, where), caller)
        return await self.subscriptions.follow(subscribe, caller)

    async def task_of(self, operation: str, key: str, caller: Caller) -> Task | None:
        """Return the task that an idempotency key of this caller stands for, if it does."""
        return await self._calls.task_of(operation, key, caller)


def _unseen(_: PendingChallenge, __: VerificationCode) -> None:
    """Codes are shown only to those who ask for them."""


def _forgetful(event: Event) -> Event:
    """Return the event with the note that nothing was remembered: of callers without a key, and of blocked agents."""
    if isinstance(event, InterpretationEvent):
        return replace(event, ignored=(*event.ignored, "meta.remember"))
    return event


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
