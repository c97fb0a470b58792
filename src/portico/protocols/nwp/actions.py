"""Turns ActionFrames and TaskFrames into calls and tasks, and results into frames. Also reports and cancels tasks."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from portico.access.budget import TokenCost, TrimmedRecords, count_cost, find_tokenizer, trim
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
from portico.operations import check_params
from portico.operations.calls import MAX_TIMEOUT
from portico.operations.tasks import error_of
from portico.protocols.nwp.delegation import add_trace, single_step_task, workflow_of
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
from portico.protocols.nwp.feeds import format_time
from portico.protocols.nwp.fitting import FRAME_SIZE, combine, describe_trimming, fit_records
from portico.protocols.nwp.frames import AcceptedFrame, ActionFrame, CapsFrame, EncodingTier, TaskFrame, encode_value
from portico.protocols.nwp.nodes import GATEWAY, INVOKE, TASK_CANCEL, TASK_STATUS, WORKFLOW, NodeAction
from portico.protocols.nwp.service import BUDGET_REASON, NodeResponse, NodeService, NwpRequestContext
from portico.requests import Call, Outcome, Priority, Task, TaskState

TASK_REF: Final = "nps:system:task:status"
CANCEL_REF: Final = "nps:system:task:cancel"
VALUE: Final = "value"  # the only field of a record made from a bare value
TASK_FIELDS: Final = ("task_id", "status")  # never trimmed from a task's status
ESTIMATE_MS: Final = 1000  # of a task without an estimate of its own
_PRIORITIES: Final[Mapping[str, Priority]] = {"low": "low", "normal": "normal", "high": "high"}
_ID = re.compile(r"[\w-]+(\.[\w-]+)+\Z")

DelegationCallback: TypeAlias = Callable[[TaskFrame, Task], None]
TrimToFit: TypeAlias = Callable[
    [list[dict[str, Any]], Collection[str]], TrimmedRecords
]  # of records and the fields to keep


class CallbackChecker(Protocol):
    """Raises BadRequest for a callback URL that is not allowed."""

    def check(self, url: str) -> None: ...


@dataclass(frozen=True, slots=True)
class AcceptedTask:
    """A task that this request started, or an earlier one with the same key (`is_repeated`)."""

    frame: AcceptedFrame
    is_repeated: bool = False


class ActionService:
    """Runs actions and tasks. `on_delegated` is called for each task that a gateway hands to workers."""

    def __init__(
        self, service: NodeService, callbacks: CallbackChecker, on_delegated: DelegationCallback | None = None
    ) -> None:
        self._service = service
        self._site = service.site
        self._callbacks = callbacks
        self._on_delegated = on_delegated

    async def invoke(
        self, frame: ActionFrame | TaskFrame, context: NwpRequestContext, trace: str = ""
    ) -> NodeResponse | AcceptedTask:
        """Run an action, or start it as a task."""
        if isinstance(frame, TaskFrame):
            return await self._run_task(add_trace(frame, trace), context)
        match frame.action_id:
            case "system.task.status":
                await self._admit(context, TASK_STATUS)
                result = await _trim_result(
                    [describe_task(await self._task(_task_id(frame), context))], context, TASK_FIELDS
                )
                return NodeResponse(result.frame(TASK_REF, context), result.cost)
            case "system.task.cancel":
                await self._admit(context, TASK_CANCEL)
                await self._cancel(_task_id(frame), context)
                data = [{"cancelled": True}]
                return NodeResponse(CapsFrame(anchor_ref=CANCEL_REF, count=1, data=data, request_id=context.id))
            case _:
                return await self._call(frame, context, trace)

    async def status(self, id: str, context: NwpRequestContext) -> dict[str, Any]:
        """Return the status of a task, trimmed to the caller's budget."""
        self._service.capabilities.require(context, INVOKE)
        result = await _trim_result([describe_task(await self._task(id, context))], context, TASK_FIELDS)
        return {**result.records[0], "trimmed": result.trimmed} if result.trimmed else result.records[0]

    async def _task(self, id: str, context: NwpRequestContext) -> Task:
        """Look a task up by its id, or by the id that its caller gave to the gateway."""
        try:
            return await self._site.tasks.get(id, context.caller)
        except UnknownTask:
            task = await self._site.task_of(WORKFLOW, _client_key(id), context.caller)
            if task is None:
                raise
            return task

    async def _admit(self, context: NwpRequestContext, action: str) -> None:
        self._service.capabilities.require(context, INVOKE, "" if action in {TASK_STATUS, TASK_CANCEL} else action)
        if not context.node.actions:
            raise UnknownNode(f"The node {context.node.name} has no actions", node=context.node.name)

    async def _cancel(self, id: str, context: NwpRequestContext) -> None:
        """Cancel a task. One that could not be stopped, or had already ended, is an error."""
        try:
            task = await self._task(id, context)
            state = (await self._site.tasks.cancel(task.id, context.caller)).state
        except TaskFinished as error:
            state = TaskState(error.details["state"])
            raise _FINISHED[state](error.message, task_id=id) from error
        if state.is_final and state != TaskState.CANCELLED:
            raise _FINISHED[state](f"The task is already {state}", task_id=id)

    # Calling

    async def _call(self, frame: ActionFrame, context: NwpRequestContext, trace: str) -> NodeResponse | AcceptedTask:
        task: TaskFrame | None = None
        action = self._find_action(frame, context)
        call = self._build_call(frame, action, context)
        if context.node.type == GATEWAY:
            task = single_step_task(call, action, context.id, trace)
            call = self._delegate(call, action, task, context)
        return await self._execute(call, action, frame.is_async or False, context, task)

    def _delegate(self, call: Call, action: NodeAction, task: TaskFrame, context: NwpRequestContext) -> Call:
        """Turn a call into a one-step workflow for workers. Checks everything that a worker would refuse."""
        check_payload(call.params, self._site.limits)
        steps = self._workflow_params(task, context)
        check_params(action.operation, call.params)
        if not call.key:
            return replace(call, operation=WORKFLOW, params=steps, run="later")
        # A key belongs to one action, but all delegated calls share one operation. The step carries the key too, so it
        # runs once, whichever node it is invoked at.
        keyed = {**steps, "steps": [{**step, "key": call.key} for step in steps["steps"]]}
        key = f"{action.id}:{hashlib.sha256(call.key.encode(errors='surrogatepass')).hexdigest()}"
        return replace(call, operation=WORKFLOW, params=keyed, run="later", key=key)

    def _workflow_params(self, frame: TaskFrame, context: NwpRequestContext) -> Mapping[str, Any]:
        def check(action: NodeAction) -> None:
            self._service.capabilities.require(context, INVOKE, action.id)
            if not self._site.access.may(action.operation, context.caller):
                kind = Unauthenticated if context.caller.is_anonymous else Forbidden
                raise kind(f"{context.caller.name} may not invoke {action.id}", action_id=action.id)

        hosts = self._service.capabilities.hosts | {urlsplit(context.base).hostname or ""}
        return workflow_of(frame, context.node, hosts, check)

    async def _run_task(self, frame: TaskFrame, context: NwpRequestContext) -> NodeResponse | AcceptedTask:
        """Run a caller's workflow."""
        if context.node.type != GATEWAY:
            raise UnknownNode("Only a gateway node accepts TaskFrames", node=context.node.name)
        self._service.capabilities.require(context, INVOKE)
        self._check_callback(frame.callback_url)
        action = next(candidate for candidate in context.node.actions.values() if candidate.operation.name == WORKFLOW)
        call = Call(
            WORKFLOW,
            self._workflow_params(frame, context),
            "later",
            _client_key(frame.task_id),
            priority=_parse_priority(frame.priority),
            request=context.id,
            callback=frame.callback_url or "",
        )
        answer = await self._execute(call, action, True, context, frame)
        if isinstance(answer, AcceptedTask) and answer.is_repeated:
            self._check_resubmitted(answer.frame)
        return answer

    def _check_resubmitted(self, frame: AcceptedFrame) -> None:
        """NOP 7: a completed or cancelled task cannot be submitted again; its status tells how it went."""
        kind = _RESUBMITTED.get(TaskState(frame.status))
        if kind:
            raise kind(f"The task is {frame.status} already", task_id=frame.task_id, poll_url=frame.poll_url)

    def _find_action(self, frame: ActionFrame, context: NwpRequestContext) -> NodeAction:
        self._service.capabilities.require(context, INVOKE, frame.action_id)
        node = context.node
        if not node.actions:
            raise UnknownNode(f"The node {node.name} has no actions", node=node.name)
        action = node.actions.get(frame.action_id)
        if action is None:
            raise UnknownAction(
                f"{node.name} has no action {frame.action_id[:100]!r}",
                action_id=frame.action_id[:100],
                hint="`actions` lists the actions of this node."
                if _ID.match(frame.action_id[:100])
                else "An action id is a domain and a verb, such as orders.create; `actions` lists them.",
            )
        if frame.is_async and not action.is_async:
            raise InvalidParams(f"{action.id} cannot run as a task", action_id=action.id, param="async")
        self._check_callback(frame.callback_url)
        return action

    def _build_call(self, frame: ActionFrame, action: NodeAction, context: NwpRequestContext) -> Call:
        operation = action.operation
        seconds = min(frame.timeout_ms or operation.timeout * 1000, MAX_TIMEOUT * 1000) / 1000
        return Call(
            operation.name,
            frame.params or {},
            "later" if frame.is_async else "now",
            frame.idempotency_key or "",
            # Clients send a timeout with everything, but nobody waits on a task: it may take as long as it needs.
            None if frame.is_async else seconds,
            _parse_priority(frame.priority),
            context.id,
            frame.callback_url or "",
        )

    def _check_callback(self, url: str | None) -> None:
        if not url:
            return
        if not url.lower().startswith("https://"):
            raise InvalidParams("`callback_url` must begin with https://", param="callback_url")
        try:
            self._callbacks.check(url)
        except BadRequest as error:
            raise InvalidParams(error.message, hint=error.hint, param="callback_url") from error

    async def _execute(
        self, call: Call, action: NodeAction, is_async: bool, context: NwpRequestContext, task: TaskFrame | None
    ) -> NodeResponse | AcceptedTask:
        try:
            outcome = await self._site.call(call, context.caller)
        except BadRequest as error:
            if type(error) is BadRequest:  # without a code of its own it is about the action's parameters
                raise InvalidParams(error.message, hint=error.hint, **error.details) from error
            raise
        if isinstance(outcome, Outcome):
            return await _respond(outcome.result, action, context)
        if task and self._on_delegated and not outcome.repeated:
            self._on_delegated(task, outcome)
        if outcome.repeated and not outcome.state.is_final:
            raise KeyInUse("A request with this `idempotency_key` is already running", task_id=outcome.id)
        if is_async:
            return AcceptedTask(await self._accept(outcome, context), outcome.repeated)
        return await _respond(_result_of(await self._wait(outcome, context)), action, context)

    async def _wait(self, task: Task, context: NwpRequestContext) -> Task:
        """Wait for a task to complete. Cancels one that takes too long."""
        seconds = min(task.call.timeout or MAX_TIMEOUT, MAX_TIMEOUT)
        finished = await self._site.tasks.wait(task.id, context.caller, seconds)
        if not finished.state.is_final:
            await self._site.tasks.cancel(task.id, context.caller)
            error_type = TaskTimedOut if task.call.operation == WORKFLOW else TimedOut
            raise error_type(
                f"The action did not finish within {seconds:g} seconds", hint="Set `async` to true to run it as a task."
            )
        if finished.state != TaskState.COMPLETED:
            raise _failure_of(finished)
        return finished

    async def _accept(self, task: Task, context: NwpRequestContext) -> AcceptedFrame:
        poll_url = f"{self._service.nodes.url(context.node.name, context.base)}/actions/status/{task.id}"
        body: dict[str, Any] = {
            "task_id": task.id,
            "status": task.state.value,
            "poll_url": poll_url,
            "estimated_ms": ESTIMATE_MS if task.estimate is None else int(task.estimate * 1000),
            "request_id": context.id,
        }
        if task.state != TaskState.COMPLETED:
            return AcceptedFrame(anchor_ref=TASK_REF, count=1, data=[body], **body)
        try:
            trimmed = await _trim_result([{**body, "result": _result_of(task)}], context, body)
        except (BudgetExceeded, TooLarge):  # the task exists, so it is acknowledged in any case
            return AcceptedFrame(anchor_ref=TASK_REF, count=1, data=[body], **body)
        return AcceptedFrame(anchor_ref=TASK_REF, count=1, data=trimmed.records, trimmed=trimmed.trimmed, **body)


def describe_task(task: Task) -> dict[str, Any]:
    """Return a task as system.task.status and callbacks report it."""
    failed = _failure_of(task) if task.state == TaskState.FAILED else None
    return {
        "task_id": task.id,
        "status": task.state.value,
        "progress": round(task.progress, 4),
        "created_at": format_time(task.created),
        "updated_at": format_time(max(task.updated, task.created)),
        "request_id": task.call.request or None,
        "result": _result_of(task) if task.state == TaskState.COMPLETED else None,
        "error": {"code": code_of(failed).error, "message": str(failed)} if failed else None,
    }


def _failure_of(task: Task) -> SiteError:
    """Return the error of a failed task; a timeout of a workflow or a step has its own type."""
    error = error_of(task)
    if task.call.operation != WORKFLOW or not isinstance(error, TimedOut):
        return error
    # A plain invocation has one step, whose timeout is that of the task.
    is_step = "step" in error.details and task.call.key.startswith(_client_key(""))
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
    """Return the result of a task; of a workflow, that of its last step."""
    result: Any = task.result
    if task.call.operation == WORKFLOW and isinstance(result, dict):
        return cast("dict[str, Any]", result).get("result")
    return result


@dataclass(frozen=True, slots=True)
class TrimmedResult:
    """A result, trimmed to the certificate's budget and the caller's frame size."""

    records: list[Any]
    cost: TokenCost
    trimmed: dict[str, Any] | None

    def frame(self, anchor: str, context: NwpRequestContext) -> CapsFrame:
        return CapsFrame(
            anchor_ref=anchor,
            count=len(self.records),
            data=self.records,
            token_est=self.cost.tokens,
            tokenizer_used=self.cost.tokenizer or None,
            request_id=context.id,
            trimmed=self.trimmed,
        )


async def _respond(result: Any, action: NodeAction, context: NwpRequestContext) -> NodeResponse:
    try:
        trimmed = await _trim_result(_records(result), context)
    except BudgetExceeded as error:
        raise BudgetExceeded(
            f"{action.id} succeeded, but the smallest form of its result takes {error.details['needed']} tokens; "
            f"the certificate allows {error.details['budget']}",
            action_id=action.id,
            **error.details,
        ) from error
    except TooLarge as error:
        raise TooLarge(
            f"{action.id} succeeded, but its result does not fit into a frame of {context.max_payload} bytes",
            action_id=action.id,
            completed=True,
            hint=error.hint,
            **error.details,
        ) from error
    return NodeResponse(trimmed.frame(action.result.id, context), trimmed.cost)


async def _trim_result(data: list[Any], context: NwpRequestContext, keep: Collection[str] = ()) -> TrimmedResult:
    """Trim a result to the caller's certificate and frame size. An ActionFrame has no budget of its own (9.3)."""
    warrant, reason = context.caller.warrant, BUDGET_REASON
    counter = find_tokenizer(*context.tokenizers, warrant.tokenizer if warrant else "")
    trimmed = TrimmedRecords(data, TokenCost(0))
    if warrant and (budget := warrant.budget):
        trimmed = await asyncio.to_thread(
            _trim_records, data, lambda records, keep_fields: trim(records, budget, counter, keep_fields), keep
        )
    room = None if context.max_payload is None else context.max_payload - context.envelope
    if room is not None and len(encode_value(trimmed.records, context.tier)) > room:
        fitted = await asyncio.to_thread(
            _trim_records,
            trimmed.records,
            lambda records, keep_fields: fit_records(records, room, context.tier, keep_fields),
            keep,
        )
        reason, trimmed = FRAME_SIZE, combine(trimmed, fitted)
    encoded = encode_value(trimmed.records, EncodingTier.JSON)
    cost = await asyncio.to_thread(count_cost, encoded, counter) if counter else count_cost(encoded, None)
    spent = context.label_cost(cost)
    described = None if trimmed.is_whole else describe_trimming(trimmed, reason)
    return TrimmedResult(trimmed.records, spent, described)


def _trim_records(data: list[Any], trim_to_fit: TrimToFit, keep: Collection[str]) -> TrimmedRecords:
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


def _parse_priority(value: str | None) -> Priority:
    priority = _PRIORITIES.get(value or "normal")
    if priority is None:
        raise InvalidParams(
            f"`priority` must be low, normal or high, not {str(value)[:40]!r}",
            param="priority",
            hint="Use low, normal or high.",
        )
    return priority


def _client_key(id: str) -> str:
    """Return the idempotency key under which a task with a client-chosen id is stored."""
    return f"task:{id}"


def _task_id(frame: ActionFrame) -> str:
    id: Any = (frame.params or {}).get("task_id")
    if not isinstance(id, str) or not id:
        raise InvalidParams("`params.task_id` must be the id of a task", param="task_id")
    if len(id) > 100:
        raise UnknownTask("There is no such task", task=id[:100])
    return id
