"""ActionFrames to calls and tasks, and what came of them to frames. Also asks how tasks are, and cancels them."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from portico.access.budget import Cost, Tokenizer, Trimmed, cost, tokenizer, trim
from portico.access.limits import check_payload
from portico.errors import (
    BadRequest,
    BudgetExceeded,
    Forbidden,
    InvalidParams,
    KeyInUse,
    SiteError,
    TaskFinished,
    TimedOut,
    TooLarge,
    Unauthenticated,
    UnknownTask,
)
from portico.operations import checked_params
from portico.operations.tasks import error_of
from portico.protocols.nwp.errors import (
    StepTimedOut,
    TaskAlreadyCancelled,
    TaskAlreadyFailed,
    TaskResubmitted,
    TaskTimedOut,
    TaskWithdrawn,
    UnknownAction,
    UnknownNode,
    code_of,
)
from portico.protocols.nwp.feeds import moment
from portico.protocols.nwp.fitting import FRAME_SIZE, combine, describe_trimming, fit_records
from portico.protocols.nwp.frames import AcceptedFrame, ActionFrame, CapsFrame, TaskFrame, Tier, encode_value
from portico.protocols.nwp.gateway import one_step, traced, workflow_of
from portico.protocols.nwp.nodes import GATEWAY, INVOKE, TASK_CANCEL, TASK_STATUS, WORKFLOW, Action
from portico.protocols.nwp.service import BUDGET_REASON, Answer, Asking, Exchange
from portico.requests import Call, Outcome, Priority, Task, TaskState
from portico.site import MAX_TIMEOUT

TASK_REF: Final = "nps:system:task:status"
CANCEL_REF: Final = "nps:system:task:cancel"
VALUE: Final = "value"  # the only field of a record that is made of a bare value
TASK_KEPT: Final = ("task_id", "status")  # what no budget takes from the status of a task
ESTIMATE_MS: Final = 1000  # of a task of which nobody knows how long it takes
_PRIORITIES: Final[Mapping[str, Priority]] = {"low": "low", "normal": "normal", "high": "high"}
_ID = re.compile(r"[\w-]+(\.[\w-]+)+\Z")

Delegated: TypeAlias = Callable[[TaskFrame, Task], None]
TrimToFit: TypeAlias = Callable[[list[dict[str, Any]], Collection[str]], Trimmed]  # of records and the fields to keep


class Checks(Protocol):
    """Whether an address may be called back."""

    def check(self, url: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """A task that was started, or one that an earlier request started."""

    frame: AcceptedFrame
    is_repeated: bool = False


class Actions:
    """Whoever wants to know of what a gateway gives to workers is told as `delegated`."""

    def __init__(self, exchange: Exchange, callbacks: Checks, delegated: Delegated | None = None) -> None:
        self._exchange = exchange
        self._site = exchange.site
        self._callbacks = callbacks
        self._delegated = delegated

    async def invoke(self, frame: ActionFrame | TaskFrame, asking: Asking, trace: str = "") -> Answer | Accepted:
        """Do it, or begin to."""
        if isinstance(frame, TaskFrame):
            return await self._run_task(traced(frame, trace), asking)
        match frame.action_id:
            case "system.task.status":
                await self._admit(asking, TASK_STATUS)
                found = await _trim_result([shown(await self._task(_task_id(frame), asking))], asking, TASK_KEPT)
                return Answer(found.frame(TASK_REF, asking), found.cost)
            case "system.task.cancel":
                await self._admit(asking, TASK_CANCEL)
                await self._cancel(_task_id(frame), asking)
                data = [{"cancelled": True}]
                return Answer(CapsFrame(anchor_ref=CANCEL_REF, count=1, data=data, request_id=asking.id))
            case _:
                return await self._call(frame, asking, trace)

    async def status(self, id: str, asking: Asking) -> dict[str, Any]:
        """How a task is getting on. Whoever calls this has paid for it."""
        self._exchange.warrants.check(asking, INVOKE)
        found = await _trim_result([shown(await self._task(id, asking))], asking, TASK_KEPT)
        return {**found.records[0], "trimmed": found.trimmed} if found.trimmed else found.records[0]

    async def _task(self, id: str, asking: Asking) -> Task:
        """A task by the id that it has here, or by the one that its caller gave to a gateway."""
        try:
            return await self._site.tasks.get(id, asking.caller)
        except UnknownTask:
            given = await self._site.task_of(WORKFLOW, _given(id), asking.caller)
            if given is None:
                raise
            return given

    async def _admit(self, asking: Asking, action: str) -> None:
        await self._site.gate.spend(asking.caller)
        self._exchange.warrants.check(asking, INVOKE, "" if action in {TASK_STATUS, TASK_CANCEL} else action)
        if not asking.node.actions:
            raise UnknownNode(f"{asking.node.name} is not invoked", node=asking.node.name)

    async def _cancel(self, id: str, asking: Asking) -> None:
        """What would not be stopped, or ended just before it was, was not cancelled."""
        try:
            task = await self._task(id, asking)
            state = (await self._site.tasks.cancel(task.id, asking.caller)).state
        except TaskFinished as error:
            state = TaskState(error.details["state"])
            raise _FINISHED[state](error.message, task_id=id) from error
        if state.is_final and state != TaskState.CANCELLED:
            raise _FINISHED[state](f"The task is already {state}", task_id=id)

    # Calling

    async def _call(self, frame: ActionFrame, asking: Asking, trace: str) -> Answer | Accepted:
        task: TaskFrame | None = None
        async with self._site.gate.charging(asking.caller):
            action = self._understood(frame, asking)
            call = self._made(frame, action, asking)
            if asking.node.type == GATEWAY:
                task = one_step(call, action, asking.id, trace)
                call = self._given_away(call, action, task, asking)
        return await self._outcome(call, action, frame.is_async or False, asking, task)

    def _given_away(self, call: Call, action: Action, task: TaskFrame, asking: Asking) -> Call:
        """A call as one of steps, which workers take. What they could only refuse is refused here."""
        check_payload(call.params, self._site.limits)
        steps = self._steps(task, asking)
        checked_params(action.operation, call.params)
        if not call.key:
            return replace(call, operation=WORKFLOW, params=steps, run="later")
        # A key belongs to one action, and here all calls are of the same operation. The step has it, too: so it is done
        # once, whichever node it is invoked at.
        keyed = {**steps, "steps": [{**each, "key": call.key} for each in steps["steps"]]}
        key = f"{action.id}:{hashlib.sha256(call.key.encode(errors='surrogatepass')).hexdigest()}"
        return replace(call, operation=WORKFLOW, params=keyed, run="later", key=key)

    def _steps(self, frame: TaskFrame, asking: Asking) -> Mapping[str, Any]:
        def check(action: Action) -> None:
            self._exchange.warrants.check(asking, INVOKE, action.id)
            if not self._site.gate.may(action.operation, asking.caller):
                kind = Unauthenticated if asking.caller.is_anonymous else Forbidden
                raise kind(f"{asking.caller.name} may not invoke {action.id}", action_id=action.id)

        hosts = self._exchange.warrants.hosts | {urlsplit(asking.base).hostname or ""}
        return workflow_of(frame, asking.node, hosts, check)

    async def _run_task(self, frame: TaskFrame, asking: Asking) -> Answer | Accepted:
        """Steps for workers, as a caller wrote them."""
        async with self._site.gate.charging(asking.caller):
            if asking.node.type != GATEWAY:
                raise UnknownNode("Only a gateway takes tasks", node=asking.node.name)
            self._exchange.warrants.check(asking, INVOKE)
            self._check_callback(frame.callback_url)
            action = next(each for each in asking.node.actions.values() if each.operation.name == WORKFLOW)
            call = Call(
                WORKFLOW,
                self._steps(frame, asking),
                "later",
                _given(frame.task_id),
                priority=_priority(frame.priority),
                request=asking.id,
                callback=frame.callback_url or "",
            )
        answer = await self._outcome(call, action, True, asking, frame)
        if isinstance(answer, Accepted) and answer.is_repeated:
            self._check_resubmitted(answer.frame)
        return answer

    def _check_resubmitted(self, frame: AcceptedFrame) -> None:
        """NOP 7: a task that was done or cancelled cannot be given again. How it went, its status says."""
        kind = _RESUBMITTED.get(TaskState(frame.status))
        if kind:
            raise kind(f"The task is {frame.status} already", task_id=frame.task_id, poll_url=frame.poll_url)

    def _understood(self, frame: ActionFrame, asking: Asking) -> Action:
        self._exchange.warrants.check(asking, INVOKE, frame.action_id)
        node = asking.node
        if not node.actions:
            raise UnknownNode(f"{node.name} is not invoked", node=node.name)
        action = node.actions.get(frame.action_id)
        if action is None:
            raise UnknownAction(
                f"{node.name} has no action {frame.action_id[:100]!r}",
                action_id=frame.action_id[:100],
                hint="An id is a domain and a verb, as in orders.create; `actions` lists them."
                if not _ID.match(frame.action_id[:100])
                else "`actions` lists what there is.",
            )
        if frame.is_async and not action.is_async:
            raise InvalidParams(f"{action.id} is answered at once; it has no task", action_id=action.id, param="async")
        self._check_callback(frame.callback_url)
        return action

    def _made(self, frame: ActionFrame, action: Action, asking: Asking) -> Call:
        operation = action.operation
        seconds = min(frame.timeout_ms or operation.timeout * 1000, MAX_TIMEOUT * 1000) / 1000
        return Call(
            operation.name,
            frame.params or {},
            "later" if frame.is_async else "now",
            frame.idempotency_key or "",
            # A task takes as long as it takes: what waits for it is a caller that comes back, and clients say a timeout
            # with everything.
            None if frame.is_async else seconds,
            _priority(frame.priority),
            asking.id,
            frame.callback_url or "",
        )

    def _check_callback(self, url: str | None) -> None:
        if not url:
            return
        if not url.lower().startswith("https://"):
            raise InvalidParams("A callback_url begins with https://", param="callback_url")
        try:
            self._callbacks.check(url)
        except BadRequest as error:
            raise InvalidParams(error.message, hint=error.hint, param="callback_url") from error

    async def _outcome(
        self, call: Call, action: Action, is_async: bool, asking: Asking, task: TaskFrame | None
    ) -> Answer | Accepted:
        try:
            done = await self._site.call(call, asking.caller)
        except BadRequest as error:
            if type(error) is BadRequest:  # what has no word of its own is wrong with the action here
                raise InvalidParams(error.message, hint=error.hint, **error.details) from error
            raise
        if isinstance(done, Outcome):
            return await _answered(done.result, action, asking)
        if task and self._delegated and not done.repeated:
            self._delegated(task, done)
        if done.repeated and not done.state.is_final:
            raise KeyInUse("A request with this idempotency_key is in progress", task_id=done.id)
        if is_async:
            return Accepted(await self._accepted(done, asking), done.repeated)
        return await _answered(_result_of(await self._ended(done, asking)), action, asking)

    async def _ended(self, task: Task, asking: Asking) -> Task:
        """A task that its caller waits for. One that takes too long is stopped."""
        seconds = min(task.call.timeout or MAX_TIMEOUT, MAX_TIMEOUT)
        ended = await self._site.tasks.wait(task.id, asking.caller, seconds)
        if not ended.state.is_final:
            await self._site.tasks.cancel(task.id, asking.caller)
            late = TaskTimedOut if task.call.operation == WORKFLOW else TimedOut
            raise late(f"It did not finish within {seconds:g} seconds", hint="Invoke it with async.")
        if ended.state != TaskState.COMPLETED:
            raise _failure_of(ended)
        return ended

    async def _accepted(self, task: Task, asking: Asking) -> AcceptedFrame:
        here = f"{self._exchange.nodes.url(asking.node.name, asking.base)}/actions/status/{task.id}"
        said: dict[str, Any] = {
            "task_id": task.id,
            "status": task.state.value,
            "poll_url": here,
            "estimated_ms": ESTIMATE_MS if task.estimate is None else int(task.estimate * 1000),
            "request_id": asking.id,
        }
        if task.state != TaskState.COMPLETED:
            return AcceptedFrame(anchor_ref=TASK_REF, count=1, data=[said], **said)
        try:
            found = await _trim_result([{**said, "result": _result_of(task)}], asking, said)
        except (BudgetExceeded, TooLarge):  # the acknowledgement itself is told in any case: the task is there
            return AcceptedFrame(anchor_ref=TASK_REF, count=1, data=[said], **said)
        return AcceptedFrame(anchor_ref=TASK_REF, count=1, data=found.records, trimmed=found.trimmed, **said)


def shown(task: Task) -> dict[str, Any]:
    """A task as system.task.status tells it, and as callbacks do."""
    failed = _failure_of(task) if task.state == TaskState.FAILED else None
    return {
        "task_id": task.id,
        "status": task.state.value,
        "progress": round(task.progress, 4),
        "created_at": moment(task.created),
        "updated_at": moment(max(task.updated, task.created)),
        "request_id": task.call.request or None,
        "result": _result_of(task) if task.state == TaskState.COMPLETED else None,
        "error": {"code": code_of(failed).error, "message": str(failed)} if failed else None,
    }


def _failure_of(task: Task) -> SiteError:
    """What a task failed with; of steps that took too long, in the word that there is for it."""
    error = error_of(task)
    if task.call.operation != WORKFLOW or not isinstance(error, TimedOut):
        return error
    # The one step of an invocation is the whole of it.
    is_step = "step" in error.details and task.call.key.startswith(_given(""))
    return (StepTimedOut if is_step else TaskTimedOut)(error.message, hint=error.hint, **error.details)


_RESUBMITTED: Final[Mapping[TaskState, type[SiteError]]] = {
    TaskState.COMPLETED: TaskResubmitted,
    TaskState.CANCELLED: TaskWithdrawn,
}
_FINISHED: Final[Mapping[TaskState, type[SiteError]]] = {
    TaskState.COMPLETED: TaskFinished,
    TaskState.CANCELLED: TaskAlreadyCancelled,
    TaskState.FAILED: TaskAlreadyFailed,
}


def _result_of(task: Task) -> Any:
    """What a task gave; of steps, what the last of them gave."""
    result: Any = task.result
    if task.call.operation == WORKFLOW and isinstance(result, dict):
        return cast("dict[str, Any]", result).get("result")
    return result


@dataclass(frozen=True, slots=True)
class TrimmedResult:
    """What the budget of a certificate and the frames of a caller leave of a result."""

    records: list[Any]
    cost: Cost
    trimmed: dict[str, Any] | None

    def frame(self, anchor: str, asking: Asking) -> CapsFrame:
        return CapsFrame(
            anchor_ref=anchor,
            count=len(self.records),
            data=self.records,
            token_est=self.cost.tokens,
            tokenizer_used=self.cost.tokenizer or None,
            request_id=asking.id,
            trimmed=self.trimmed,
        )


async def _answered(result: Any, action: Action, asking: Asking) -> Answer:
    try:
        found = await _trim_result(_records(result), asking)
    except BudgetExceeded as error:
        raise BudgetExceeded(
            f"{action.id} was done, but the smallest form of its result takes {error.details['needed']} tokens; "
            f"the certificate allows {error.details['budget']}",
            action_id=action.id,
            **error.details,
        ) from error
    except TooLarge as error:
        raise TooLarge(
            f"{action.id} was done, but the smallest form of its result fits no frame of {asking.max_payload} bytes",
            action_id=action.id,
            completed=True,
            hint=error.hint,
            **error.details,
        ) from error
    return Answer(found.frame(action.result.id, asking), found.cost)


async def _trim_result(data: list[Any], asking: Asking, keep: Collection[str] = ()) -> TrimmedResult:
    """Trim a result to its caller's certificate, and to its frames. An ActionFrame has no budget of its own (9.3)."""
    warrant, reason = asking.caller.warrant, BUDGET_REASON
    counter = tokenizer(*asking.tokenizers, warrant.tokenizer if warrant else "")
    trimmed = Trimmed(data, Cost(0))
    if warrant and (budget := warrant.budget):
        trimmed = await asyncio.to_thread(
            _trim_records, data, lambda made, kept: trim(made, budget, counter, kept), keep
        )
    room = None if asking.max_payload is None else asking.max_payload - asking.envelope
    if room is not None and len(encode_value(trimmed.records, asking.tier)) > room:
        fitted = await asyncio.to_thread(
            _trim_records, trimmed.records, lambda made, kept: fit_records(made, room, asking.tier, kept), keep
        )
        reason, trimmed = FRAME_SIZE, combine(trimmed, fitted)
    spent = asking.counted(await _cost(trimmed.records, counter))
    described = None if trimmed.is_whole else describe_trimming(trimmed, reason)
    return TrimmedResult(trimmed.records, spent, described)


def _trim_records(data: list[Any], trim_to_fit: TrimToFit, keep: Collection[str]) -> Trimmed:
    if all(isinstance(record, dict) for record in data):
        return trim_to_fit(data, keep)
    trimmed = trim_to_fit([{VALUE: value} for value in data], (VALUE,))
    return replace(trimmed, records=[record[VALUE] for record in trimmed.records])


def _records(result: Any) -> list[Any]:
    match result:
        case None:
            return []
        case list():
            return cast("list[Any]", result)
        case dict():
            return [result]
        case _:
            return [{VALUE: result}]


async def _cost(data: list[Any], counter: Tokenizer | None) -> Cost:
    encoded = encode_value(data, Tier.JSON)
    return await asyncio.to_thread(cost, encoded, counter) if counter else cost(encoded, None)


def _priority(said: str | None) -> Priority:
    found = _PRIORITIES.get(said or "normal")
    if found is None:
        raise InvalidParams(f"{str(said)[:40]!r} is no priority", param="priority", hint="low, normal or high.")
    return found


def _given(id: str) -> str:
    """The key of a task that a gateway was given under an id."""
    return f"task:{id}"


def _task_id(frame: ActionFrame) -> str:
    id: Any = (frame.params or {}).get("task_id")
    if not isinstance(id, str) or not id:
        raise InvalidParams("params has the task_id of a task", param="task_id")
    if len(id) > 100:
        raise UnknownTask("There is no such task", task=id[:100])
    return id
