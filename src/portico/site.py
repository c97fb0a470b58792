"""Site: what every protocol calls to ask, query, run operations and watch changes.

Each of these methods passes the gate first, so no protocol has to check permissions or limits.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

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
    InvalidParams,
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
AnswerLater: TypeAlias = Callable[[Ask, Caller], Awaitable[Task]]
ShowCode: TypeAlias = Callable[[PendingChallenge, VerificationCode], None]


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
        show: ShowCode | None = None,
    ) -> None:
        self.name = name
        self.finder = finder
        self.identity = identity
        self.limits = limits or Limits()
        check_published(operations)
        self._declared_operations = tuple(operations)
        self._record = record
        self._schema: Mapping[str, Collection] | None = None
        self._catalog = Catalog({}, {})
        rates = Rates(self.limits, finder.store.meters.take)
        self._guard = Guard(finder.store, safety or Safety(), self._agent_operations, record, show)
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
        """The collections and operations of the site, as of now."""
        schema = self.finder.store.collections.schema
        if schema is not self._schema:
            self._schema = schema
            self._catalog = self._build_catalog(schema)
        return self._catalog

    async def _refresh(self) -> bool:
        """Read the collections again, which other processes may have changed. Return whether they did."""
        before = self._schema
        return await self.finder.store.collections.refresh() is not before

    def _build_catalog(self, schema: Mapping[str, Collection]) -> Catalog:
        public = [collection for collection in schema.values() if not collection.private]
        operations = (
            *(operation for collection in public for operation in collection_operations(collection)),
            *self._builtin_operations(),
            *safety_operations(self._guard, self.tasks),
            *self._declared_operations,
        )
        return Catalog(schema, {operation.name: operation for operation in operations})

    def _builtin_operations(self) -> tuple[Operation, ...]:
        return (
            ask_operation(self.collect_answer),
            *task_operations(self.tasks),
            *memory_operations(self.memories),
            workflow_operation(self.workflows),
        )

    def _agent_operations(self) -> Mapping[str, Operation]:
        """Return the operations that agents have to report when they run them."""
        return {name: operation for name, operation in self.catalog.operations.items() if name not in LOOP}

    @property
    def own_operations(self) -> list[Operation]:
        """The operations that only this site has, by name: neither those of a collection nor built-in ones."""
        operations = self.catalog.operations.values()
        own = (operation for operation in operations if not operation.collection and operation.name not in RESERVED)
        return sorted(own, key=lambda operation: operation.name)

    async def start(self) -> None:
        """Resume safety checks that a restart interrupted, and take the role of the serving process."""
        await self._guard.begin()

    async def stop(self) -> None:
        """Release the role of the serving process, so that the next start counts as a restart."""
        await self._guard.close()

    async def read_files(self, files: Sequence[File], question: str, caller: Caller) -> tuple[Item, ...]:
        """Return the passages of files that match a question. Charged like a question."""
        await self._gate.spend(caller)
        return await self._file_reader.read(files, question)

    @property
    def finds_by_meaning(self) -> bool:
        return self.finder.embedder is not None

    def vectors(self, collection: str) -> tuple[str, ...]:
        """Return the vector fields of a collection. An empty name stands for the embeddings of whole items."""
        fields = self.catalog.collection(collection).fields.values()
        embedded = ("",) if self.finds_by_meaning else ()
        return (*embedded, *(field.name for field in fields if field.type == FieldType.VECTOR))

    async def ask(self, ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        """Answer a question. Errors before the first event are raised; later ones are yielded as events."""
        async with aclosing(self._answer(ask, caller, answer_later=self._answer_later)) as events:
            async for event in events:
                yield event

    async def _answer(self, ask: Ask, caller: Caller, answer_later: AnswerLater | None) -> AsyncGenerator[Event]:
        await self._gate.admit(ask, caller)
        started = time.perf_counter()
        # Filters that only a protocol can express, and files, are not part of a task's parameters.
        may_defer = answer_later and ask.where == MATCH_ALL and not ask.attached
        context = AskContext(
            await self._gate.look_up(lambda: self._collections_for(ask, caller)),
            lambda operation: self._gate.may(operation, caller),
            lambda call: self.call(call, caller),
            partial(answer_later, ask, caller) if answer_later and may_defer else None,
            partial(self._may_use_model, caller),
            self._calls.acknowledged,
        )
        is_memory_refused = ask.remember and not await self._store_memories(ask, caller)
        ask = await self._add_memories(ask, caller)
        end, has_started = EndEvent(0), False
        try:
            async with aclosing(self._pipeline.answer(ask, context)) as events:
                async for event in events:
                    has_started = True
                    if isinstance(event, EndEvent):
                        end = event
                    yield _mark_memory_refused(event) if is_memory_refused else event
        except SiteError as error:
            if not has_started:
                raise
            yield ErrorEvent(error)
        self._record(AskAnswered(_elapsed_ms(started), end.items, caller.id, end.cost.calls))

    async def _may_use_model(self, caller: Caller) -> bool:
        meter = await self.finder.store.meters.take(f"model\n{caller.rate_key}", self.limits.model_calls_per_minute)
        return meter.granted > 0

    async def _store_memories(self, ask: Ask, caller: Caller) -> bool:
        """Store what the caller asks to be remembered; return False if it may not store anything now.

        Storing passes the guard like a call of the operation that creates memories: a question must not be a way
        around it for an agent that is blocked.
        """
        if caller.is_anonymous:
            return False
        call = Call(CREATE_MEMORIES, {"preferences": list(ask.memory)})
        try:
            clearance = await self._guard.clear(call, self.catalog.operations[CREATE_MEMORIES], caller)
        except (Denied, RateLimited) as error:
            self._record(RequestRefused("memory", caller.id, type(error).__name__))
            return False
        try:
            await self.memories.keep(caller, "preference", ask.memory)
            await self.memories.keep(caller, "question", [ask.text])
        except (SiteError, asyncio.CancelledError):
            await asyncio.shield(self._calls.settle(clearance, caller, failed=True))
            raise
        await self._calls.settle(clearance, caller, failed=False)
        return True

    async def _add_memories(self, ask: Ask, caller: Caller) -> Ask:
        """Return the question with the stored preferences of the caller."""
        memories = await self.memories.of(caller, "preference")
        return replace(ask, memory=tuple(dict.fromkeys((*(memory.text for memory in memories), *ask.memory))))

    async def _answer_later(self, ask: Ask, caller: Caller) -> Task:
        """Start a task that answers the question. Memories are stored by now: the task only reads."""
        return cast("Task", await self.call(Call(ASK, params_of(ask), run="later"), caller))

    async def collect_answer(self, ask: Ask, caller: Caller) -> list[Event]:
        """Return all events of an answer once it is complete. Raise the error if it fails."""
        collected: list[Event] = []
        async with aclosing(self._answer(ask, caller, answer_later=None)) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    raise event.error
                collected.append(event)
        return collected

    def _collections_for(self, ask: Ask, caller: Caller) -> tuple[str, ...]:
        """Return the readable collections that have every field of the question's filter; raise if none has."""
        names: list[str] = []
        unknown: UnknownField | None = None
        for name in self._gate.readable(caller):
            if ask.collections and name not in ask.collections:
                continue
            try:
                validate_query(Query(name, where=ask.where), self.catalog.collections[name])
                names.append(name)
            except UnknownField as error:
                unknown = error
        if unknown and not names:
            raise unknown
        return tuple(names)

    async def task_events(self, task_id: str, caller: Caller, *, cancel: bool = False) -> tuple[Event, ...]:
        """Return the answer of a task that has completed, or a TaskEvent if it has not. Raise its error if it failed.

        Cancelling is idempotent; a task that has completed keeps its answer.
        """
        await self._gate.spend(caller)
        task = await self.tasks.get(task_id, caller)
        if cancel and not task.state.is_final:
            with contextlib.suppress(TaskFinished):
                task = await self.tasks.cancel(task_id, caller)
        match task.state:
            case TaskState.PENDING | TaskState.RUNNING:
                return (TaskEvent(task),)
            case TaskState.CANCELLED:
                raise TaskCancelled("The task was cancelled", task=task_id)
            case TaskState.FAILED:
                raise error_of(task)
            case TaskState.COMPLETED if task.call.operation == ASK:
                return load_events(task.result)
            case TaskState.COMPLETED:
                items = await self._pipeline.find_items(task.result, self._gate.readable(caller))
                return (OperationEvent(task.call.operation, task.result, items), EndEvent(1))

    async def query(self, query: Query, caller: Caller) -> Page:
        """Return a page of the items that a query matches."""
        await self._gate.admit(query, caller)
        started, catalog = time.perf_counter(), self.catalog
        page = await self.finder.find(query, self._calls.acknowledged)
        if self.catalog is not catalog:  # another process may just have made the collection private
            self._gate.recheck(query, caller)
        self._record(QueryServed(query.collection, _elapsed_ms(started), page.length, caller.id))
        return page

    async def pages(self, query: Query, caller: Caller) -> AsyncGenerator[Page]:
        """Yield every page of a query. All of them together are charged as one."""
        page = await self.query(query, caller)
        yield page
        while page.cursor:
            page = await self.finder.find(replace(query, cursor=page.cursor), self._calls.acknowledged)
            yield page

    async def further_page(self, query: Query, limit: int) -> Page:
        """Return one more page for an answer whose query was just admitted to the collection. Not charged again."""
        return await self.finder.find(replace(query, limit=limit), self._calls.acknowledged)

    async def find_item(self, ref: str, caller: Caller) -> Item:
        """Return the item with this reference, or else the first with this id, in a collection the caller may read."""
        await self._gate.spend(caller)
        names = [] if text_problem(ref) else self._gate.readable(caller)
        for name in sorted(names, key=lambda name: not ref.startswith(f"{name}/")):
            for id in filter(None, dict.fromkeys((ref, ref.removeprefix(f"{name}/")))):
                if item := await self.finder.store.items.get(name, id):
                    return item
        raise UnknownItem(f"There is no item {ref[:100]!r}", id=ref[:100])

    async def call(self, call: Call, caller: Caller) -> Outcome | Task:
        """Run an operation now, or start it as a task."""
        permit = await self._gate.admit(call, caller)
        operation = cast("Operation", permit.operation)
        started = time.perf_counter()
        try:
            params = await self._check_params(operation, call.params)
            outcome = await self._calls.run(permit, call, operation, params)
        except SiteError as error:
            self._record(CallFinished(operation.name, _elapsed_ms(started), caller.id, type(error).__name__, error))
            raise
        self._record(CallFinished(operation.name, _elapsed_ms(started), caller.id))
        return outcome

    async def _check_params(self, operation: Operation, params: Mapping[str, Any]) -> Any:
        """Check parameters against the collection as it is now, should another process have changed it."""
        try:
            return check_params(operation, params)
        except InvalidParams:
            if not operation.check or not await self._refresh():
                raise
        return check_params(self.catalog.operation(operation.name), params)

    async def _call_later(self, call: Call, caller: Caller) -> Outcome | Task:
        """Run a call that was requested earlier, with the permissions that the caller has now."""
        return await self.call(call, await self.identity.refresh(caller))

    async def newest_change(self) -> int:
        """Return the sequence number of the newest change. Watching from it misses nothing."""
        return await self.finder.store.changes.head()

    async def watch(self, watch: Watch, caller: Caller) -> AsyncIterator[Change]:
        """Yield the changes of a collection as they happen, including updates that leave or enter the filter."""
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
        """Begin or resume a subscription. The reader must close its events."""
        where = parse_filter(subscribe.filter or {})
        await self._admit_watch(Watch(subscribe.collection, where), caller)
        return await self.subscriptions.follow(subscribe, caller)

    async def task_of(self, operation: str, key: str, caller: Caller) -> Task | None:
        """Return the task that this caller started with an idempotency key, if any."""
        return await self._calls.task_of(operation, key, caller)


def _mark_memory_refused(event: Event) -> Event:
    """Return the event with the note that nothing was remembered."""
    if isinstance(event, InterpretationEvent):
        return replace(event, ignored=(*event.ignored, "meta.remember"))
    return event


def _elapsed_ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
