"""Site: the one door. Every face asks, queries, calls and watches through here, and every door starts at the gate."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from portico.ask.events import Event, Failed, Finished
from portico.ask.pipeline import answer
from portico.calls import Ask, Call, Caller, Outcome, Task, Watch
from portico.catalog import Catalog, Collection, Kind, Operation
from portico.errors import KeyInUse, SiteError, TimedOut, UnknownField
from portico.identity import Identity
from portico.items import Change, content_hash
from portico.limits import Limits, Rates
from portico.observe import Asked, Called, Observe, Queried, nowhere
from portico.operations import Context, checked_params, collection_operations, run
from portico.query import Page, Query, Test, checked, matcher
from portico.safety.gate import Gate, Permit
from portico.search import Finder
from portico.store import Kept
from portico.tasks import Handle, Tasks

KEY_HOURS = 24
RESERVED = frozenset({"get_task", "cancel_task"})
WATCH_SECONDS = 15.0
MAX_TIMEOUT = 300.0


class Site:
    def __init__(
        self,
        name: str,
        finder: Finder,
        identity: Identity,
        limits: Limits | None = None,
        operations: Sequence[Operation] = (),
        observe: Observe = nowhere,
    ) -> None:
        self.name = name
        self.finder = finder
        self.identity = identity
        self.limits = limits or Limits()
        self._own = tuple(operations)
        self._observe = observe
        self._schema: Mapping[str, Collection] | None = None
        self._catalog = Catalog({}, {})
        self._acknowledged = 0  # the newest change this process has told a caller of
        rates = Rates(self.limits, finder.store.spend)
        self.gate = Gate(lambda: self.catalog, self._refresh, self.limits, rates, observe)
        self.tasks = Tasks(finder.store, self.gate, self._run_task, self.limits, observe)

    @property
    def catalog(self) -> Catalog:
        """What the site has and can do, as of now."""
        schema = self.finder.store.schema
        if schema is not self._schema:
            self._schema = schema
            self._catalog = self._build_catalog(schema)
        return self._catalog

    async def _refresh(self) -> bool:
        """See what other processes have made of the collections; whether that is anything new."""
        before = self._schema
        return await self.finder.store.refresh() is not before

    def _build_catalog(self, schema: Mapping[str, Collection]) -> Catalog:
        operations = {
            each.name: each
            for collection in schema.values()
            if not collection.private
            for each in collection_operations(collection)
        }
        operations.update({each.name: each for each in (*_task_operations(self), *self._own)})
        return Catalog(schema, operations)

    # The four doors

    async def ask(self, ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        """Answer a question. Errors before the first event are raised; later ones are events."""
        await self.gate.admit(ask, caller)
        started = time.perf_counter()
        collections = await self.gate.settled(lambda: self._fitting(ask, caller))
        items, begun = 0, False
        try:
            async for event in answer(ask, collections, self.finder, self._acknowledged):
                begun = True
                if isinstance(event, Finished):
                    items = event.items
                yield event
        except SiteError as error:
            if not begun:
                raise
            yield Failed(error)
        self._observe(Asked(_since(started), items, caller.id))

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

    async def query(self, query: Query, caller: Caller) -> Page:
        await self.gate.admit(query, caller)
        started = time.perf_counter()
        page = await self.finder.find(query, self._acknowledged)
        shown = len(page.items) + len(page.rows)
        self._observe(Queried(query.collection, _since(started), shown, caller.id))
        return page

    async def call(self, call: Call, caller: Caller) -> Outcome | Task:
        """Run an operation now, or start it as a task."""
        permit = await self.gate.admit(call, caller)
        operation = cast("Operation", permit.operation)
        started = time.perf_counter()
        try:
            given = checked_params(operation, call.params)
            outcome = await self._once(permit, call, operation, given)
        except SiteError as error:
            self._observe(Called(operation.name, _since(started), caller.id, type(error).__name__))
            raise
        self._observe(Called(operation.name, _since(started), caller.id))
        return outcome

    async def watch(self, watch: Watch, caller: Caller) -> AsyncIterator[Change]:
        """The changes of a collection as they happen. An update that leaves or enters the filter is shown too."""
        await self.gate.admit(watch, caller)
        store = self.finder.store
        wanted = Query(watch.collection, where=watch.where)
        await self.gate.settled(lambda: checked(wanted, self.catalog.collections[watch.collection]))
        seq = await store.head() if watch.since is None else watch.since
        while True:
            changes = await store.changes(seq, 500, watch.collection)
            test = matcher(watch.where, self.catalog.collections[watch.collection])
            for change in changes:
                seq = change.seq
                if await asyncio.to_thread(_concerns, test, change):
                    yield change
            if not changes:
                seq = max(seq, await self._nothing_until(seq, watch.collection))

    async def _nothing_until(self, seq: int, collection: str) -> int:
        """Wait for news. Returns a sequence number up to which there is nothing for this collection."""
        store = self.finder.store
        head = await store.wait(seq, WATCH_SECONDS)
        return seq if await store.changes(seq, 1, collection) else head

    # Running

    async def _once(self, permit: Permit, call: Call, operation: Operation, given: Any) -> Outcome | Task:
        """Run a call, or give back what its idempotency key already stands for."""
        if not call.key:
            return await self._begin(permit, call, operation, given)
        store = self.finder.store
        scope = f"{permit.caller.rate_key}\n{operation.name}\n{call.key}"
        digest = content_hash(call.params)
        kept = await store.keep(scope, digest, datetime.now(UTC) + timedelta(hours=KEY_HOURS))
        if kept is not None:
            return await self._repeated(kept, digest, call, permit.caller)
        try:
            outcome = await self._begin(permit, call, operation, given)
        except BaseException:
            await store.release(scope)
            raise
        task = outcome.id if isinstance(outcome, Task) else ""
        result = b"" if isinstance(outcome, Task) else msgspec.json.encode(outcome.result)
        # It is done: whoever repeats the call must be told so, also if this caller has gone.
        await asyncio.shield(store.settle(scope, Kept(digest, task, result)))
        return outcome

    async def _repeated(self, kept: Kept, digest: str, call: Call, caller: Caller) -> Outcome | Task:
        if kept.digest != digest:
            raise KeyInUse("This idempotency key was used with other parameters", key=call.key)
        if kept.task:
            return await self.tasks.get(kept.task, caller)
        if not kept.result:
            raise KeyInUse("A call with this idempotency key is still running", key=call.key)
        return Outcome(call.operation, msgspec.json.decode(kept.result), repeated=True)

    async def _begin(self, permit: Permit, call: Call, operation: Operation, given: Any) -> Outcome | Task:
        if call.run == "later" or (call.run == "auto" and operation.long):
            return await self.tasks.start(permit, call, operation)
        seconds = min(call.timeout or operation.timeout, MAX_TIMEOUT)
        try:
            async with asyncio.timeout(seconds):
                result = await self._run(permit, given, None)
        except TimeoutError as error:
            raise TimedOut(
                f"{operation.name} did not finish within {seconds:g} seconds",
                operation=operation.name,
                hint="Start it as a task, or allow more time.",
            ) from error
        return Outcome(operation.name, result)

    async def _run(self, permit: Permit, given: Any, handle: Handle | None) -> Any:
        context = Context(permit.caller, self.finder, self.limits, handle, self._acknowledged)
        result = await run(permit, given, context, self._observe)
        self._acknowledged = max(self._acknowledged, context.seen)
        return result

    async def _run_task(self, permit: Permit, handle: Handle) -> Any:
        operation = cast("Operation", permit.operation)
        call = cast("Call", permit.request)
        return await self._run(permit, checked_params(operation, call.params), handle)


def _concerns(test: Test, change: Change) -> bool:
    """Whether the item matches, or did before."""
    return test(change.item) or (change.kind == "update" and test(change.before))


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


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


def _task_operations(site: Site) -> list[Operation]:
    async def get_task(context: Context, given: TaskParams) -> dict[str, Any]:
        return shown_task(await site.tasks.get(given.id, context.caller))

    async def cancel_task(context: Context, given: TaskParams) -> dict[str, Any]:
        return shown_task(await site.tasks.cancel(given.id, context.caller))

    shape = dict[str, Any]
    return [
        Operation("get_task", Kind.READ, "How a task is getting on.", TaskParams, shape, get_task, open=True),
        Operation("cancel_task", Kind.EXECUTE, "Stop a task of your own.", TaskParams, shape, cancel_task, open=True),
    ]
