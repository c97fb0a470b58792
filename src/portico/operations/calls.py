"""Runs a call that was admitted: now or as a task, once for each idempotency key, with its writes in one transaction.

Does not decide who may call: a call arrives with the gate's Permit, and the guard clears it here before it runs.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from portico.access.limits import Limits
from portico.catalog import Kind, Operation
from portico.errors import KeyInUse, OutcomeUnknown, SiteError, TimedOut, Unavailable
from portico.items import Item, content_hash
from portico.operations import Context, check_params, finish_despite_cancel, run
from portico.operations.tasks import LEASE_SECONDS, RENEW_SECONDS, OperationResult, TaskHandle, TaskManager
from portico.requests import Call, Caller, Outcome, Task, TaskState
from portico.safety.gate import Gate, Permit
from portico.safety.guard import Guard, UsedStep
from portico.search.finder import Finder
from portico.store.idempotency import key_in_use
from portico.store.records import CallSettlement, CommitResult, IdempotencyRecord, Reservation
from portico.telemetry import Recorder

KEY_HOURS = 24
STOPPED = "the process that ran it stopped"
PARTLY_DONE = "it had committed a part of its writes when it ended"
MAX_TIMEOUT = 300.0


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
            case Unavailable() if self.context.lost_store:
                return "the store did not answer while it ran"
            case _ if self.context.has_crashed:
                return "it failed unexpectedly"
            case _:
                return ""


class CallRunner:
    def __init__(self, finder: Finder, gate: Gate, guard: Guard, limits: Limits, record: Recorder) -> None:
        self._finder = finder
        self._store = finder.store
        self._gate = gate
        self._guard = guard
        self._limits = limits
        self._record = record
        self._settlements: set[asyncio.Task[None]] = set()
        self.acknowledged = 0  # the newest change that this process has told a caller of
        self.tasks = TaskManager(finder.store, gate, self._run_task, limits, record, self.acknowledge)
        self.tasks.on_end(self._record_task_end)

    async def run(self, permit: Permit, call: Call, operation: Operation, params: Any) -> Outcome | Task:
        """Run a call, or give back what its idempotency key already stands for."""
        context = self._make_context(permit)
        if not call.key or (operation.kind is Kind.READ and not _is_task(call, operation)):
            # What only reads may be read again; stored results would let readers fill the store.
            return await self._start(permit, operation, params, Attempt(call, context))
        key = Reservation(_key_scope(operation.name, call.key, permit.caller), secrets.token_hex(8))
        digest = content_hash(call.params)
        context.interim = CallSettlement(key, reason="" if operation.idempotent else PARTLY_DONE)
        attempt = Attempt(call, context, key)
        reserve = self._store.idempotency.reserve(
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
            record = await finish_despite_cancel(reserve)
            if record is None:
                return await self._start(permit, operation, params, attempt)
        except BaseException as error:
            await asyncio.shield(self._release_key(key, attempt.doubt(operation, error)))
            raise
        finally:
            renewing.cancel()
        return await self._repeat_outcome(record, digest, call, permit.caller)

    async def _renew(self, key: Reservation) -> None:
        """Keep the lease of a key for as long as its call runs."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with contextlib.suppress(SiteError):  # a store that is away is asked again
                await self._store.idempotency.renew(key, LEASE_SECONDS)

    async def _release_key(self, key: Reservation, doubt: str) -> None:
        """Make the key of a failed call free, or record why the outcome of the call is not known."""
        keys = self._store.idempotency
        with contextlib.suppress(SiteError):  # its lease runs out
            await (keys.abandon(key, doubt) if doubt else keys.release(key))

    async def task_of(self, operation: str, key: str, caller: Caller) -> Task | None:
        """The task that an idempotency key of this caller stands for, if it does."""
        record = await self._store.idempotency.get(_key_scope(operation, key, caller))
        return await self.tasks.get(record.task, caller) if record and record.task else None

    async def _repeat_outcome(
        self, record: IdempotencyRecord, digest: str, call: Call, caller: Caller
    ) -> Outcome | Task:
        """Return what a key already stands for, or raise if that is not known yet."""
        if record.digest != digest:
            raise KeyInUse("This idempotency key was used with other parameters", key=call.key)
        if record.task:
            return replace(await self.tasks.get(record.task, caller), repeated=True)
        if record.result:
            return Outcome(call.operation, msgspec.json.decode(record.result), repeated=True)
        if record.is_running:
            raise KeyInUse(
                "A call with this idempotency key is still running",
                key=call.key,
                state="running",
                hint="Call again in a few seconds to get its result.",
            )
        raise OutcomeUnknown(
            f"It is not known whether {call.operation} did its work: {record.reason or STOPPED}",
            operation=call.operation,
            key=call.key,
            state="unknown",
            hint="It was not run again, and its uncommitted writes were dropped. Check its effects outside this site,"
            " then use a new idempotency key.",
        )

    async def _start(self, permit: Permit, operation: Operation, params: Any, attempt: Attempt) -> Outcome | Task:
        call = attempt.call
        cleared = await self._gate.clear(permit)
        if _is_task(call, operation):
            step = cleared.used_step.name if cleared.used_step else ""
            return await self.tasks.start(cleared, replace(call, step=step), operation, attempt.key)
        try:
            result = await self._run_now(cleared, operation, params, attempt)
        except (SiteError, asyncio.CancelledError):
            await asyncio.shield(self.settle(cleared.used_step, permit.caller, failed=True))
            raise
        await self.settle(cleared.used_step, permit.caller, failed=False)
        return Outcome(operation.name, result)

    async def _run_now(self, permit: Permit, operation: Operation, params: Any, attempt: Attempt) -> Any:
        """Run an operation, then commit its writes and settle its key in one transaction."""
        attempt.has_begun = True
        completed = await self._in_time(permit, operation, params, attempt)
        attempt.has_ended = True
        self.acknowledged = max(self.acknowledged, attempt.context.acknowledged)
        return await finish_despite_cancel(self._commit(completed, attempt.key))

    async def _commit(self, completed: OperationResult, key: Reservation | None) -> Any:
        results: list[Any] = []

        def settle(items: Sequence[Item]) -> CallSettlement:
            results.append(completed.result(items))
            return CallSettlement(key, msgspec.json.encode(results[-1])) if key else CallSettlement()

        if not completed.writes and not key:
            return completed.result(())
        committed = await self._store.items.commit(completed.writes, settle)
        if committed is None:
            raise key_in_use()
        self.acknowledge(committed)
        return results[-1]

    def acknowledge(self, committed: CommitResult) -> None:
        """Let later searches find what was committed."""
        self.acknowledged = max([self.acknowledged, *(change.seq for change in committed.changes)])

    async def _in_time(self, permit: Permit, operation: Operation, params: Any, attempt: Attempt) -> OperationResult:
        seconds = min(attempt.call.timeout or operation.timeout, MAX_TIMEOUT)
        try:
            async with asyncio.timeout(seconds):
                return await run(permit, params, attempt.context, self._record)
        except TimeoutError as error:
            raise TimedOut(
                f"{operation.name} did not finish within {seconds:g} seconds",
                operation=operation.name,
                hint="Start it as a task, or allow more time.",
            ) from error

    def _record_task_end(self, task: Task) -> None:
        """Settle the reported step of an agent that this task was."""
        if task.call.step:
            step = UsedStep.parse(task.call.step)
            settlement = asyncio.create_task(self.settle(step, task.caller, failed=task.state != TaskState.COMPLETED))
            self._settlements.add(settlement)
            settlement.add_done_callback(self._settlements.discard)

    async def settle(self, step: UsedStep | None, caller: Caller, *, failed: bool) -> None:
        """Record how the call went that used up a reported step of an agent."""
        if step:
            with contextlib.suppress(SiteError):  # what was done is done: it stays unknown how it went
                await self._guard.settle(step, caller, failed=failed)

    def _make_context(self, permit: Permit, handle: TaskHandle | None = None) -> Context:
        session = permit.request.session if isinstance(permit.request, Call) else ""
        is_writing = permit.operation is None or permit.operation.kind is not Kind.READ
        return Context(
            permit.caller, self._finder, self._limits, handle, self.acknowledged, session, may_write=is_writing
        )

    async def _run_task(self, permit: Permit, handle: TaskHandle) -> OperationResult:
        operation = cast("Operation", permit.operation)
        call = cast("Call", permit.request)
        return await run(permit, check_params(operation, call.params), self._make_context(permit, handle), self._record)


def _is_task(call: Call, operation: Operation) -> bool:
    return call.run == "later" or (call.run == "auto" and operation.long)


def _key_scope(operation: str, key: str, caller: Caller) -> str:
    """A key belongs to one caller, or one of its users, and one operation."""
    return f"{caller.storage_key}\n{operation}\n{key}"
