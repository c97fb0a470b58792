"""Site: the one door. Every face asks, queries, calls and watches through here, and every door starts at the gate."""

import asyncio
import contextlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta

from portico.access.identity import Credentials, Identity, for_user, names_user
from portico.access.limits import Limits, Rates
from portico.access.signed_tokens import seal, unseal
from portico.ask.events import Did, Event, Failed, Finished, Promised, Understood
from portico.ask.pipeline import Asker, Manners, Pipeline
from portico.ask.record import recorded, replayed
from portico.catalog import Catalog, Collection, FieldType, Kind, Operation
from portico.config import Safety
from portico.conversations.feedback import Feedback
from portico.conversations.memories import CHARACTERS, MOST, Memories, Memory
from portico.conversations.transcripts import Transcripts
from portico.errors import (
    BadRequest,
    Denied,
    InvalidParams,
    KeyInUse,
    OutcomeUnknown,
    RateLimited,
    SiteError,
    TaskCancelled,
    TaskFinished,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnknownField,
    UnknownItem,
)
from portico.items import Change, Item, content_hash, text_problem
from portico.models import LanguageModel
from portico.operations import (
    Context,
    Counted,
    check_published,
    checked_params,
    collection_operations,
    finish_despite_cancel,
    run,
)
from portico.operations.tasks import LEASE_SECONDS, RENEW_SECONDS, Completed, Handle, Tasks, error_of
from portico.operations.workflows import RUN, Ran, Workflow, Workflows
from portico.query import EVERYTHING, Page, Query, Test, checked, json_size, matcher, parse_filter
from portico.requests import Ask, Call, Caller, File, Mode, Outcome, Retrieval, Task, TaskState, Watch
from portico.safety.gate import Gate, Permit
from portico.safety.guard import Guard, Taken
from portico.safety.models import Challenged, Code
from portico.safety.operations import LOOP, supervision
from portico.search.finder import Finder
from portico.store.idempotency import key_in_use
from portico.store.records import CommitResult, IdempotencyRecord, Reservation, Settlement
from portico.subscriptions import Following, Standing, Subscribe, Subscriptions
from portico.telemetry import Asked, Called, Observe, Queried, Refused, nowhere

KEY_HOURS = 24
STOPPED = "the process that ran it stopped"
PARTLY_DONE = "it had committed a part of its writes when it ended"
NOTES_PER_MINUTE = 120  # that one caller may have put away
REMEMBER = "create_memories"
RESERVED = LOOP | {"ask", "get_task", "cancel_task", REMEMBER, "list_memories", "forget_memories", RUN}
WATCH_SECONDS = 15.0
WATCH_FIRST = 16  # changes that are read at first
WATCH_MOST = 500  # at once
MAX_TIMEOUT = 300.0
READERS = 2  # of files that come with questions, at once
READING_SECONDS = 15.0
WAITING_SECONDS = 5.0  # for a reader

T = TypeVar("T")
Later: TypeAlias = Callable[[Ask, Caller], Awaitable[Task]]
Show: TypeAlias = Callable[[Challenged, Code], None]


@dataclass(slots=True)
class Attempt:
    """How far a call has come."""

    call: Call
    context: Context
    key: Reservation | None = None
    has_begun: bool = False
    has_ended: bool = False  # the operation: its writes are left to commit

    def doubt(self, operation: Operation, error: BaseException) -> str:
        """Return why it is not known what a failed call has done; empty if it has done nothing, or may run again."""
        if not self.has_begun or operation.idempotent:
            return ""
        if self.context.commits:
            return PARTLY_DONE
        if self.context.unit.fault:
            return self.context.unit.fault.message
        if operation.is_repeatable:
            return ""
        match error:
            case TimedOut():
                return "it did not end in time"
            case asyncio.CancelledError():
                return "the call was broken off"
            case OutcomeUnknown():
                return error.message
            case _ if self.has_ended:
                return "its writes could not be committed"
            case Unavailable() if self.context.is_cut_off:
                return "the store did not answer while it ran"
            case _ if self.context.has_crashed:
                return "it failed unexpectedly"
            case _:
                return ""


class Site:
    def __init__(
        self,
        name: str,
        finder: Finder,
        identity: Identity,
        limits: Limits | None = None,
        operations: Sequence[Operation] = (),
        observe: Observe = nowhere,
        manners: Manners | None = None,
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
        self._observe = observe
        self._schema: Mapping[str, Collection] | None = None
        self._catalog = Catalog({}, {})
        self._acknowledged = 0  # the newest change this process has told a caller of
        rates = Rates(self.limits, finder.store.meters.take)
        self.guard = Guard(finder.store, safety or Safety(), self._agents_operations, observe, show or _unseen)
        self.gate = Gate(lambda: self.catalog, self._refresh, self.limits, rates, observe, self.guard, identity.renewed)
        self.tasks = Tasks(finder.store, self.gate, self._run_task, self.limits, observe, self._acknowledge)
        self.tasks.on_end(self._ended)
        self._settling: set[asyncio.Task[None]] = set()
        self.memories = Memories(finder.store.collections, finder.store.items)
        self.transcripts = Transcripts(finder.store.collections, finder.store.items)
        self.feedback = Feedback(finder.store)
        self._readers = asyncio.Semaphore(READERS)
        self._desks = ThreadPoolExecutor(READERS, thread_name_prefix="read-files")
        self._subscriptions = Subscriptions(finder.store, lambda: self.catalog)
        self.workflows = Workflows(lambda: self.catalog, self.gate, self._call_later)
        self._pipeline = Pipeline(finder, lambda: self.catalog, manners or Manners(), model)

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
            {each.name: each for each in (*_own_operations(self), *supervision(self.guard, self.tasks), *self._own)}
        )
        return Catalog(schema, operations)

    def _agents_operations(self) -> Mapping[str, Operation]:
        """What agents can have run, and must report."""
        return {name: each for name, each in self.catalog.operations.items() if name not in LOOP}

    @property
    def own_operations(self) -> list[Operation]:
        """What the site itself offers to do: not what every collection and every site has."""
        own = (each for each in self.catalog.operations.values() if not each.collection and each.name not in RESERVED)
        return sorted(own, key=lambda each: each.name)

    async def caller(self, credentials: Credentials) -> Caller:
        """Who is calling. Wrong keys cost what a request costs, so that they cannot be tried out."""
        try:
            return await self.identity.caller(credentials)
        except Unauthenticated as error:
            self.refused("credentials", error)
            await self.gate.spend(self.identity.nobody(credentials.address))
            raise

    def refused(self, what: str, error: SiteError) -> None:
        """Note that something was refused before it was known who asks."""
        self._observe(Refused(what, "anonymous", type(error).__name__))

    async def unless_refused(self, reading: Awaitable[T], caller: Caller) -> T:
        """What was read of a request. What cannot be read costs as much as what can."""
        try:
            return await reading
        except BadRequest:
            await self.gate.spend(caller)
            raise

    def seal(self, payload: Mapping[str, Any], caller: Caller, seconds: float) -> str:
        """A token for this caller to bring back."""
        return seal(payload, caller.owner, self.finder.store.secret, seconds)

    @property
    def fingerprint(self) -> str:
        """A name that no other site has, and every process of this one. It tells nothing of its secret."""
        return hmac.digest(self.finder.store.secret, b"fingerprint", "sha256").hex()[:16]

    def unseal(self, token: str, caller: Caller) -> dict[str, Any] | None:
        """What a token says; None if it was altered, is another caller's or has expired."""
        return unseal(token, caller.owner, self.finder.store.secret)

    async def put_away(self, name: str, note: bytes, caller: Caller, hours: float = 1) -> bool:
        """Keep a note for this caller, in place of one of the same name; other processes find it too.

        False if the caller has put away too much lately: then it is not kept.
        """
        store = self.finder.store
        meter = await store.meters.take(f"notes\n{caller.rate_key}", NOTES_PER_MINUTE)
        if meter.granted:
            await store.notes.set(_note(name, caller), note, datetime.now(UTC) + timedelta(hours=hours))
        return meter.granted > 0

    async def taken_out(self, name: str, caller: Caller) -> bytes | None:
        """A note that was put away for this caller."""
        return await self.finder.store.notes.get(_note(name, caller))

    async def claim(self, name: str, digest: str, caller: Caller, hours: float) -> bool:
        """Let a name of this caller stand for one thing, by its digest. False if it stands for another already."""
        store, keys, scope = self.finder.store, self.finder.store.idempotency, _note(name, caller)
        meter = await store.meters.take(f"notes\n{caller.rate_key}", NOTES_PER_MINUTE)
        expires = datetime.now(UTC) + timedelta(hours=hours)
        taken = await (keys.reserve(scope, digest, expires) if meter.granted else keys.get(scope))
        return taken is None or taken.digest == digest

    async def keep(self, name: str, note: bytes, days: float) -> None:
        """Keep something for the site itself, in place of what it kept by this name."""
        await self.finder.store.notes.set(f"site\n{name}", note, datetime.now(UTC) + timedelta(days=days))

    async def kept(self, name: str) -> bytes | None:
        """What the site keeps by a name."""
        return await self.finder.store.notes.get(f"site\n{name}")

    async def read(self, files: Sequence[File], question: str) -> tuple[Item, ...]:
        """Passages of files that came with a question, to answer it from."""
        await self._reader()
        reading = asyncio.get_running_loop().run_in_executor(self._desks, _read_files, files, question)
        # A thread cannot be stopped: it has its place until it ends, also if nobody waits for it any longer.
        reading.add_done_callback(lambda _: self._readers.release())
        try:
            async with asyncio.timeout(READING_SECONDS):
                return await asyncio.shield(reading)
        except TimeoutError as error:
            raise BadRequest("It takes too long to read these files", hint="Send smaller ones.") from error

    async def _reader(self) -> None:
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await self._readers.acquire()
        except TimeoutError as error:
            busy = "Too many files are being read at the moment"
            raise RateLimited(busy, retry_after=READING_SECONDS, hint="Try again in a while.") from error

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
        await self.gate.admit(ask, caller)
        started = time.perf_counter()
        asker = Asker(
            await self.gate.settled(lambda: self._fitting(ask, caller)),
            lambda operation: self.gate.may(operation, caller),
            lambda call: self.call(call, caller),
            # A filter of a face's own, and files, cannot be told to a task, which may run in another process.
            partial(later, ask, caller) if later and ask.where == EVERYTHING and not ask.attached else None,
            partial(self._may_use_model, caller),
            self._acknowledged,
        )
        is_ignored = ask.remember and not await self._keep_memories(ask, caller)
        known = await self._remembered(ask, caller)
        finished, begun = Finished(0), False
        try:
            async with aclosing(self._pipeline.answer(known, asker)) as events:
                async for event in events:
                    begun = True
                    if isinstance(event, Finished):
                        finished = event
                    yield _forgetful(event) if is_ignored else event
        except SiteError as error:
            if not begun:
                raise
            yield Failed(error)
        self._observe(Asked(_since(started), finished.items, caller.id, finished.cost.calls))

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
        call = Call(REMEMBER, {"preferences": list(ask.memory)})
        try:
            taken = await self.guard.clear(call, self.catalog.operations[REMEMBER], caller)
        except (Denied, RateLimited) as error:
            self._observe(Refused("memory", caller.id, type(error).__name__))
            return False
        try:
            await self.memories.keep(caller, "preference", ask.memory)
            await self.memories.keep(caller, "question", [ask.text])
        except (SiteError, asyncio.CancelledError):
            await asyncio.shield(self._settle(taken, caller, failed=True))
            raise
        await self._settle(taken, caller, failed=False)
        return True

    async def _remembered(self, ask: Ask, caller: Caller) -> Ask:
        """The question with what is known of the caller."""
        kept = await self.memories.of(caller, "preference")
        return replace(ask, memory=tuple(dict.fromkeys((*(each.text for each in kept), *ask.memory))))

    async def _answer_later(self, ask: Ask, caller: Caller) -> Task:
        """The same question as a task."""
        # What was to be remembered is stored by now: the task only reads.
        left_out = {"where", "key", "attached", "remember"}
        said = {name: value for name, value in asdict(ask).items() if name not in left_out}
        params = msgspec.to_builtins({**said, "modes": sorted(ask.modes)})
        return cast("Task", await self.call(Call("ask", params, run="later"), caller))

    async def answered(self, ask: Ask, caller: Caller) -> list[Event]:
        """All events of an answer, however long it takes; what it failed with is raised."""
        found: list[Event] = []
        async with aclosing(self._answer(ask, caller, later=None)) as events:
            async for event in events:
                if isinstance(event, Failed):
                    raise event.error
                found.append(event)
        return found

    def _fitting(self, ask: Ask, caller: Caller) -> tuple[str, ...]:
        """The collections that have every field the question's filter names; an error if none has."""
        fitting: list[str] = []
        wrong: SiteError | None = None
        for name in self.gate.readable(caller):
            if ask.collections and name not in ask.collections:
                continue
            try:
                checked(Query(name, where=ask.where), self.catalog.collections[name])
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
        await self.gate.spend(caller)
        task = await self.tasks.get(token, caller)
        if cancel and not task.state.is_final:
            with contextlib.suppress(TaskFinished):
                task = await self.tasks.cancel(token, caller)
        match task.state:
            case TaskState.PENDING | TaskState.RUNNING:
                return (Promised(task),)
            case TaskState.CANCELLED:
                raise TaskCancelled("This was cancelled", task=token)
            case TaskState.FAILED:
                raise error_of(task)
            case TaskState.COMPLETED if task.call.operation == "ask":
                return replayed(task.result)
            case TaskState.COMPLETED:
                about = await self._pipeline.named(task.result, self.gate.readable(caller))
                return (Did(task.call.operation, task.result, about), Finished(1))

    async def query(self, query: Query, caller: Caller) -> Page:
        await self.gate.admit(query, caller)
        started, known = time.perf_counter(), self.catalog
        page = await self.finder.find(query, self._acknowledged)
        if self.catalog is not known:  # another process may just have made the collection private
            self.gate.recheck(query, caller)
        self._observe(Queried(query.collection, _since(started), page.length, caller.id))
        return page

    async def pages(self, query: Query, caller: Caller) -> AsyncGenerator[Page]:
        """Page after page of what a query finds, to its end. All of them together cost what one costs."""
        page = await self.query(query, caller)
        yield page
        while page.cursor:
            page = await self.finder.find(replace(query, cursor=page.cursor), self._acknowledged)
            yield page

    async def beside(self, query: Query, limit: int) -> Page:
        """Another page of a collection that the caller was just let into, for the same answer. Costs nothing."""
        return await self.finder.find(replace(query, limit=limit), self._acknowledged)

    async def item(self, ref: str, caller: Caller) -> Item:
        """What is called so on the site, or the first item of this id, in a collection that the caller may read."""
        await self.gate.spend(caller)
        names = [] if text_problem(ref) else self.gate.readable(caller)
        for name in sorted(names, key=lambda name: not ref.startswith(f"{name}/")):
            for id in filter(None, dict.fromkeys((ref, ref.removeprefix(f"{name}/")))):
                if found := await self.finder.store.items.get(name, id):
                    return found
        raise UnknownItem(f"There is no item {ref[:100]!r}", id=ref[:100])

    async def call(self, call: Call, caller: Caller) -> Outcome | Task:
        """Run an operation now, or start it as a task."""
        permit = await self.gate.admit(call, caller)
        operation = cast("Operation", permit.operation)
        started = time.perf_counter()
        try:
            given = checked_params(operation, call.params)
            outcome = await self._once(permit, call, operation, given)
        except SiteError as error:
            self._observe(Called(operation.name, _since(started), caller.id, type(error).__name__, error))
            raise
        self._observe(Called(operation.name, _since(started), caller.id))
        return outcome

    async def _call_later(self, call: Call, caller: Caller) -> Outcome | Task:
        """A call of somebody who asked for it earlier: what was taken away since stays undone."""
        return await self.call(call, await self.identity.renewed(caller))

    async def newest(self) -> int:
        """The sequence number of the newest change: from here on to watch is to miss nothing."""
        return await self.finder.store.changes.head()

    async def watch(self, watch: Watch, caller: Caller) -> AsyncIterator[Change]:
        """The changes of a collection as they happen. An update that leaves or enters the filter is shown too."""
        await self._admit_watch(watch, caller)
        store = self.finder.store
        seq = await store.changes.head() if watch.since is None else watch.since
        batch = WATCH_FIRST
        while True:
            changes = await store.changes.list_since(seq, batch, watch.collection)
            batch = self._next_batch(batch, changes)
            test = matcher(watch.where, self.catalog.collections[watch.collection])
            for change in changes:
                seq = change.seq
                if await asyncio.to_thread(_concerns, test, change):
                    yield change
            if not changes:
                seq = max(seq, await self._nothing_until(seq, watch.collection))

    def _next_batch(self, batch: int, changes: Sequence[Change]) -> int:
        """How many changes to read next: as many as would fill a page, from how large the last ones were."""
        size = sum(json_size(change.item.data) for change in changes)
        return max(1, min(WATCH_MOST, 4 * batch, self.limits.page_bytes * len(changes) // size)) if size else batch

    async def _admit_watch(self, watch: Watch, caller: Caller) -> None:
        await self.gate.admit(watch, caller)
        wanted = Query(watch.collection, where=watch.where)
        await self.gate.settled(lambda: checked(wanted, self.catalog.collections[watch.collection]))

    async def _nothing_until(self, seq: int, collection: str) -> int:
        """Wait for news. Returns a sequence number up to which there is nothing for this collection."""
        store = self.finder.store
        head = await store.changes.wait(seq, WATCH_SECONDS)
        return seq if await store.changes.list_since(seq, 1, collection) else head

    # Watching with numbers, to go on after a break

    async def follow(self, subscribe: Subscribe, caller: Caller) -> Following:
        """Begin a subscription, or take one up again. Its events are to be closed by whoever reads them."""
        async with self.gate.charging(caller):
            where = parse_filter(subscribe.filter or {})
        await self._admit_watch(Watch(subscribe.collection, where), caller)
        return await self._subscriptions.follow(subscribe, caller)

    async def unfollow(self, id: str, caller: Caller) -> None:
        """Give up a subscription of this caller: its reader ends, and it cannot be taken up again."""
        await self.gate.spend(caller)
        await self._subscriptions.unfollow(id, caller)

    async def standing(self, id: str, caller: Caller) -> Standing:
        """How a subscription of this caller stands, which stays alive by being asked for."""
        await self.gate.spend(caller)
        return await self._subscriptions.standing(id, caller)

    async def close_subscriptions(self) -> None:
        """End all who follow: the server stops."""
        await self._subscriptions.close()

    # Running

    async def _once(self, permit: Permit, call: Call, operation: Operation, given: Any) -> Outcome | Task:
        """Run a call, or give back what its idempotency key already stands for."""
        context = self._context(permit)
        if not call.key or (operation.kind is Kind.READ and not _is_task(call, operation)):
            # What only reads may be read again; kept results would let readers fill the store.
            return await self._begin(permit, operation, given, Attempt(call, context))
        key = Reservation(_key_scope(operation.name, call.key, permit.caller), secrets.token_hex(8))
        digest = content_hash(call.params)
        context.interim = Settlement(key, reason="" if operation.idempotent else PARTLY_DONE)
        attempt = Attempt(call, context, key)
        reserve = self.finder.store.idempotency.reserve(
            key.scope,
            digest,
            datetime.now(UTC) + timedelta(hours=KEY_HOURS),
            owner=key.owner,
            lease=LEASE_SECONDS,
            # A task begins with its key's settlement: without one, nothing has been done.
            reason="" if operation.is_repeatable or _is_task(call, operation) else STOPPED,
        )
        renewing = asyncio.create_task(self._renew(key))
        try:
            kept = await finish_despite_cancel(reserve)
            if kept is None:
                return await self._begin(permit, operation, given, attempt)
        except BaseException as error:
            await asyncio.shield(self._give_up(key, attempt.doubt(operation, error)))
            raise
        finally:
            renewing.cancel()
        return await self._repeated(kept, digest, call, permit.caller)

    async def _renew(self, key: Reservation) -> None:
        """Keep the lease of a key for as long as its call runs."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with contextlib.suppress(SiteError):  # a store that is away is asked again
                await self.finder.store.idempotency.renew(key, LEASE_SECONDS)

    async def _give_up(self, key: Reservation, doubt: str) -> None:
        """Make the key of a failed call free, or record why the outcome of the call is not known."""
        keys = self.finder.store.idempotency
        with contextlib.suppress(SiteError):  # its lease runs out
            await (keys.abandon(key, doubt) if doubt else keys.release(key))

    async def task_of(self, operation: str, key: str, caller: Caller) -> Task | None:
        """The task that an idempotency key of this caller stands for, if it does."""
        kept = await self.finder.store.idempotency.get(_key_scope(operation, key, caller))
        return await self.tasks.get(kept.task, caller) if kept and kept.task else None

    async def _repeated(self, kept: IdempotencyRecord, digest: str, call: Call, caller: Caller) -> Outcome | Task:
        if kept.digest != digest:
            raise KeyInUse("This idempotency key was used with other parameters", key=call.key)
        if kept.task:
            return replace(await self.tasks.get(kept.task, caller), repeated=True)
        if kept.result:
            return Outcome(call.operation, msgspec.json.decode(kept.result), repeated=True)
        if kept.is_running:
            raise KeyInUse(
                "A call with this idempotency key is still running",
                key=call.key,
                state="running",
                hint="Call again in a few seconds to get its result.",
            )
        raise OutcomeUnknown(
            f"It is not known whether {call.operation} did its work: {kept.reason or STOPPED}",
            operation=call.operation,
            key=call.key,
            state="unknown",
            hint="It was not run again, and its uncommitted writes were dropped. Check its effects outside this site,"
            " then use a new idempotency key.",
        )

    async def _begin(self, permit: Permit, operation: Operation, given: Any, attempt: Attempt) -> Outcome | Task:
        call = attempt.call
        cleared = await self.gate.clear(permit)
        if _is_task(call, operation):
            step = cleared.taken.name if cleared.taken else ""
            return await self.tasks.start(cleared, replace(call, step=step), operation, attempt.key)
        try:
            result = await self._run_now(cleared, operation, given, attempt)
        except (SiteError, asyncio.CancelledError):
            await asyncio.shield(self._settle(cleared.taken, permit.caller, failed=True))
            raise
        await self._settle(cleared.taken, permit.caller, failed=False)
        return Outcome(operation.name, result)

    async def _run_now(self, permit: Permit, operation: Operation, given: Any, attempt: Attempt) -> Any:
        """Run an operation, then commit its writes and settle its key in one transaction."""
        attempt.has_begun = True
        completed = await self._in_time(permit, operation, given, attempt)
        attempt.has_ended = True
        self._acknowledged = max(self._acknowledged, attempt.context.seen)
        return await finish_despite_cancel(self._commit(completed, attempt.key))

    async def _commit(self, completed: Completed, key: Reservation | None) -> Any:
        results: list[Any] = []

        def settle(items: Sequence[Item]) -> Settlement:
            results.append(completed.result(items))
            return Settlement(key, msgspec.json.encode(results[-1])) if key else Settlement()

        if not completed.writes and not key:
            return completed.result(())
        committed = await self.finder.store.items.commit(completed.writes, settle)
        if committed is None:
            raise key_in_use()
        self._acknowledge(committed)
        return results[-1]

    def _acknowledge(self, committed: CommitResult) -> None:
        """Let later searches find what was committed."""
        self._acknowledged = max([self._acknowledged, *(change.seq for change in committed.changes)])

    async def _in_time(self, permit: Permit, operation: Operation, given: Any, attempt: Attempt) -> Completed:
        seconds = min(attempt.call.timeout or operation.timeout, MAX_TIMEOUT)
        try:
            async with asyncio.timeout(seconds):
                return await run(permit, given, attempt.context, self._observe)
        except TimeoutError as error:
            raise TimedOut(
                f"{operation.name} did not finish within {seconds:g} seconds",
                operation=operation.name,
                hint="Start it as a task, or allow more time.",
            ) from error

    def _ended(self, task: Task) -> None:
        """Of a task that an agent has reported as its step, the loop is told how it went."""
        if task.call.step:
            settling = asyncio.create_task(self._settle_task(task))
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)

    async def _settle_task(self, task: Task) -> None:
        with contextlib.suppress(SiteError):  # it stays unknown how it went
            taken = Taken.named(task.call.step)
            await self.guard.settle(taken, task.caller, failed=task.state != TaskState.COMPLETED)

    async def _settle(self, taken: Taken | None, caller: Caller, *, failed: bool) -> None:
        if taken:
            with contextlib.suppress(SiteError):  # what was done is done: it stays unknown how it went
                await self.guard.settle(taken, caller, failed=failed)

    def _context(self, permit: Permit, handle: Handle | None = None) -> Context:
        session = permit.request.session if isinstance(permit.request, Call) else ""
        is_writing = permit.operation is None or permit.operation.kind is not Kind.READ
        return Context(
            permit.caller, self.finder, self.limits, handle, self._acknowledged, session, may_write=is_writing
        )

    async def _run_task(self, permit: Permit, handle: Handle) -> Completed:
        operation = cast("Operation", permit.operation)
        call = cast("Call", permit.request)
        return await run(permit, checked_params(operation, call.params), self._context(permit, handle), self._observe)


def _is_task(call: Call, operation: Operation) -> bool:
    return call.run == "later" or (call.run == "auto" and operation.long)


def _unseen(_: Challenged, __: Code) -> None:
    """Codes are shown only to those who ask for them."""


def _read_files(files: Sequence[File], question: str) -> tuple[Item, ...]:
    # Takes a third of a second to import, for those who send files.
    return import_module("portico.conversations.attachments").read_files(files, question)


def _key_scope(operation: str, key: str, caller: Caller) -> str:
    """A key belongs to one caller, or one of its users, and one operation."""
    return f"{_scope(caller)}\n{operation}\n{key}"


def _note(name: str, caller: Caller) -> str:
    return f"{_scope(caller)}\n\nnote\n{name}"


def _scope(caller: Caller) -> str:
    """Whose notes and keys these are. Anonymous callers are told apart by where they come from."""
    return caller.rate_key if caller.is_anonymous else caller.owner


def _forgetful(event: Event) -> Event:
    """Return the event with the note that nothing was remembered: of callers without a key, and of blocked agents."""
    if isinstance(event, Understood):
        return replace(event, ignored=(*event.ignored, "meta.remember"))
    return event


def _concerns(test: Test, change: Change) -> bool:
    """Whether the item matches, or did before."""
    return change.is_readable and (test(change.item) or (change.kind == "update" and test(change.before)))


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True): ...


class TaskParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


def shown_task(task: Task) -> dict[str, Any]:
    """A task as plain JSON."""
    return {
        "id": task.id,
        "operation": task.call.operation,
        "state": task.state.value,
        "progress": round(task.progress, 4),
        "message": task.message,
        "created": task.created.isoformat(),
        "updated": task.updated.isoformat(),
        "estimate": task.estimate,
        "result": task.result,
        "error": task.error,
    }


# As NLWeb's `meta.user`: any JSON value. No type is published, since not every MCP client reads lists of types.
User = Annotated[
    Any, Meta(description="One of your users: a string, or an object with an identifier. Left out: you yourself")
]


class AskParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    text: str
    collections: tuple[str, ...] = ()
    filters: dict[str, Any] = {}
    previous: tuple[str, ...] = ()
    background: str = ""
    memory: tuple[str, ...] = ()
    profile: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    settled: dict[str, Any] = {}
    modes: frozenset[Mode] = frozenset({"list"})
    limit: int = 10
    start: int = 0
    language: str = ""
    rounds: int = 0
    may_clarify: bool = False
    may_act: bool = False
    retrieval: Retrieval = "hybrid"
    user: User = ""  # the memories of this user count, and no others
    remember: Annotated[bool, Meta(description="Must be false: create_memories stores preferences")] = False


def _check_question(params: AskParams) -> None:
    """Refuse to remember anything: `ask` reads. Tasks of earlier versions and some callers send `remember: false`."""
    if params.remember:
        raise InvalidParams(
            "`remember` must be false: `ask` stores nothing",
            operation="ask",
            param="remember",
            hint="Call `create_memories` with the preferences to store.",
        )


class UserParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: User = ""


class RememberParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    preferences: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=CHARACTERS)], ...],
        Meta(min_length=1, max_length=MOST, description="What counts in your later questions, as in vegetarian"),
    ]
    user: User = ""


class ForgetParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str = ""
    user: User = ""
    all_users: Annotated[bool, Meta(description="Forget everything of all your users, but not what is yours")] = False


def _own_operations(site: Site) -> list[Operation]:
    """What every site can do beside its collections."""

    async def ask(context: Context, given: AskParams) -> dict[str, Any]:
        question = {name: value for name, value in msgspec.structs.asdict(given).items() if name != "user"}
        wanted = replace(Ask(**question), may_clarify=False, may_act=False)
        return recorded(await site.answered(wanted, for_user(context.caller, given.user)))

    async def get_task(context: Context, given: TaskParams) -> dict[str, Any]:
        return shown_task(await site.tasks.get(given.id, context.caller))

    async def cancel_task(context: Context, given: TaskParams) -> dict[str, Any]:
        return shown_task(await site.tasks.cancel(given.id, context.caller))

    async def create_memories(context: Context, given: RememberParams) -> list[Memory]:
        if context.caller.is_anonymous:
            raise Unauthenticated("Memories are kept for callers with a key", hint="Send an API key.")
        caller = for_user(context.caller, given.user)
        await site.memories.keep(caller, "preference", given.preferences)
        return await site.memories.of(caller)

    async def list_memories(context: Context, given: UserParams) -> list[Memory]:
        return await site.memories.of(for_user(context.caller, given.user))

    async def forget_memories(context: Context, given: ForgetParams) -> Counted:
        if not given.all_users:
            return Counted(await site.memories.forget(for_user(context.caller, given.user), given.id))
        if given.id or names_user(given.user):
            raise InvalidParams(
                "forget_memories: `all_users` cannot be combined with `id` or `user`",
                operation="forget_memories",
                param="all_users",
                hint="Leave out `all_users`, or `id` and `user`.",
            )
        return Counted(await site.memories.forget_users(context.caller))

    shape = dict[str, Any]
    return [
        Operation(
            "ask",
            Kind.READ,
            "Answer a question, as a record of what happened.",
            AskParams,
            shape,
            ask,
            open=True,
            check=_check_question,
        ),
        Operation("get_task", Kind.READ, "How a task is getting on.", TaskParams, shape, get_task, open=True),
        Operation("cancel_task", Kind.EXECUTE, "Stop a task of your own.", TaskParams, shape, cancel_task, open=True),
        Operation(
            REMEMBER,
            Kind.CREATE,
            "Have preferences of yours remembered, for later questions.",
            RememberParams,
            list[Memory],
            create_memories,
            open=True,
            idempotent=True,  # what is known already is not kept twice
        ),
        Operation(
            "list_memories",
            Kind.READ,
            "List what is remembered of you, or of one of your users, because you asked for it.",
            UserParams,
            list[Memory],
            list_memories,
            open=True,
        ),
        Operation(
            "forget_memories",
            Kind.EXECUTE,
            "Forget one thing that is remembered of you or of a user of yours, all of it, or all of all your users.",
            ForgetParams,
            Counted,
            forget_memories,
            open=True,
        ),
        Operation(
            RUN,
            Kind.EXECUTE,
            "Run operations that depend on each other, each with what others gave.",
            Workflow,
            Ran,
            site.workflows.run,
            open=True,  # each step passes the gate by itself
            long=True,
            attempts=3,
        ),
    ]
