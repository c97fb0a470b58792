"""The operations of supervision: agents start, report and end; people confirm and verify; callers see their work.

They are ordinary operations, so every protocol has them. The guard makes the decisions.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from portico.catalog import Danger, Kind, Operation, whole_seconds
from portico.errors import TaskFinished
from portico.operations import Context, Cursor
from portico.operations.tasks import TaskManager
from portico.requests import Task
from portico.safety.guard import LOOP_OPERATIONS as WATCHED
from portico.safety.guard import Guard
from portico.safety.loop import ExecutionStarted
from portico.safety.models import Decision, Execution, ExecutionProgress, Outcome, PendingApprovals
from portico.safety.reporting import StepDecision, StepReport

LOOP = WATCHED | {"introspect", "cancel_execution", "retry_execution", "list_pending_approvals"}
MAX_HINT = 10_000

Name = Annotated[str, Meta(min_length=1, max_length=100, description="The agent, as it calls itself")]
ExecutionId = Annotated[str, Meta(max_length=100, description="Which of its executions; by default the newest")]
Text = Annotated[str, Meta(max_length=MAX_HINT)]


class ExecuteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    parameters: Annotated[dict[str, Any], Meta(description="What it is to do; approvers see it")] = {}
    max_autonomous_steps: (
        Annotated[int, Meta(ge=1, le=10_000, description="Fewer steps than the site allows")] | UnsetType
    ) = UNSET


class RecordParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    next_action_hint: Annotated[str, Meta(min_length=1, max_length=MAX_HINT, description="What it will do next")]
    step_description: Annotated[Text, Meta(description="What it has just done")] = ""
    outcome: Annotated[Outcome, Meta(description="The outcome of that step")] | UnsetType = UNSET
    findings: Annotated[Text, Meta(description="What it found")] = ""
    execution_id: ExecutionId = ""
    next_operation: Annotated[str, Meta(max_length=128, description="The operation of this site that it will call")] = (
        ""
    )
    next_params: Annotated[dict[str, Any], Meta(description="The parameters of that call")] | UnsetType = UNSET
    risk_score: Annotated[
        int, Meta(ge=0, le=100, description="The agent's own estimate of the risk; it can only raise the score")
    ] = 0


class CompleteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    outcome: Annotated[Outcome, Meta(description="The outcome of the last step")] | UnsetType = UNSET
    summary: Annotated[Text, Meta(description="The result of the execution")] = ""
    execution_id: ExecutionId = ""


class AbortParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    reason: Annotated[Text, Meta(description="Why the execution ends")] = ""
    execution_id: ExecutionId = ""


class ConfirmParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    confirmation_token: Annotated[
        str, Meta(min_length=8, max_length=80, description="The token of another caller's request")
    ]
    operation: Annotated[
        str, Meta(max_length=128, description="The operation that the request must be for, if given")
    ] = ""
    digest: Annotated[
        str,
        Meta(max_length=64, description="The digest that the call was listed with, so that no other call is approved"),
    ] = ""
    decision: Annotated[Decision, Meta(description="Whether to approve")] = "approve"
    note: Annotated[str, Meta(max_length=500, description="For the audit trail")] = ""


class ConfirmationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, and what it is for."""

    confirmed: bool
    operation: str
    scope: str
    expires_at: datetime


class PendingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    confirmation_token: Annotated[str, Meta(max_length=80, description="List only the request with this token")] = ""
    cursor: Cursor = ""


class VerifyParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    challenge_id: Annotated[str, Meta(min_length=1, max_length=64, description="The challenge to release")]
    code: Annotated[str, Meta(min_length=1, max_length=64, description="The code that a person was shown")]


class VerificationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that was released."""

    verified: bool
    challenge_id: str
    agent: str
    unblocked: bool


class ExecutionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    execution_id: Annotated[str, Meta(min_length=1, max_length=100, description="The id returned at the start")]


def safety_operations(guard: Guard, tasks: TaskManager) -> list[Operation]:
    """Return the operations of supervision; those of the execution loop only if it is enabled."""
    always = [*_lifecycle_operations(guard, tasks), _confirm_operation(guard), _list_pending_operation(guard)]
    return (
        always
        if guard.settings.mode == "disabled"
        else [*always, *_loop_operations(guard, tasks), _verify_operation(guard)]
    )


def _loop_operations(guard: Guard, tasks: TaskManager) -> list[Operation]:
    loop = guard.loop

    async def execute_agent(context: Context, params: ExecuteParams) -> ExecutionStarted:
        steps = None if isinstance(params.max_autonomous_steps, UnsetType) else params.max_autonomous_steps
        return await loop.start(params.element_name, params.parameters, steps, context.caller, context.session)

    async def record_execution_step(context: Context, params: RecordParams) -> StepDecision:
        report = StepReport(
            params.element_name,
            params.next_action_hint,
            params.execution_id,
            params.step_description,
            None if isinstance(params.outcome, UnsetType) else params.outcome,
            params.findings,
            params.next_operation,
            None if isinstance(params.next_params, UnsetType) else params.next_params,
            params.risk_score,
        )
        decision = await loop.report_step(report, context.caller)
        if decision.autonomy.stopped:
            await tasks.cancel_all(context.caller)  # its earlier tasks end too
        return decision

    async def complete_execution(context: Context, params: CompleteParams) -> Execution:
        return await loop.end(params.element_name, params.execution_id, "completed", params.summary, context.caller)

    async def abort_execution(context: Context, params: AbortParams) -> Execution:
        return await loop.end(params.element_name, params.execution_id, "cancelled", params.reason, context.caller)

    started = "Start an agent under supervision. It then reports every step before taking it."
    recorded = "Report the last step and the next one; the response says whether that may be taken."
    return [
        _define(
            "execute_agent", Kind.EXECUTE, started, ExecuteParams, ExecutionStarted, execute_agent, Danger.REVERSIBLE
        ),
        _define("record_execution_step", Kind.CREATE, recorded, RecordParams, StepDecision, record_execution_step),
        _define(
            "complete_execution",
            Kind.EXECUTE,
            "Complete an agent's execution.",
            CompleteParams,
            Execution,
            complete_execution,
        ),
        _define(
            "abort_execution", Kind.EXECUTE, "Abort an agent's execution.", AbortParams, Execution, abort_execution
        ),
    ]


def _confirm_operation(guard: Guard) -> Operation:
    async def confirm_operation(context: Context, params: ConfirmParams) -> ConfirmationResult:
        request = await guard.supervision.confirm(
            params.confirmation_token, params.decision, params.note, context.caller, params.operation, params.digest
        )
        return ConfirmationResult(
            confirmed=params.decision == "approve",
            operation=request.operation,
            scope="once, by the caller that requested it, with the same parameters",
            expires_at=whole_seconds(request.expires),
        )

    says = "Approve or reject a request of another caller. Callers cannot approve their own."
    return _define("confirm_operation", Kind.EXECUTE, says, ConfirmParams, ConfirmationResult, confirm_operation)


def _list_pending_operation(guard: Guard) -> Operation:
    async def list_pending_approvals(context: Context, params: PendingParams) -> PendingApprovals:
        return await guard.supervision.list_pending(context.caller, params.cursor, params.confirmation_token)

    says = "List the calls and steps that wait for approval, each with all its parameters and its digest."
    return _define("list_pending_approvals", Kind.READ, says, PendingParams, PendingApprovals, list_pending_approvals)


def _verify_operation(guard: Guard) -> Operation:
    async def verify_challenge(context: Context, params: VerifyParams) -> VerificationResult:
        challenge = await guard.supervision.verify(params.challenge_id, params.code, context.caller)
        return VerificationResult(
            verified=True, challenge_id=challenge.id, agent=challenge.agent, unblocked=challenge.blocks
        )

    says = "Release an agent with the code that a person was shown."
    return _define("verify_challenge", Kind.CREATE, says, VerifyParams, VerificationResult, verify_challenge)


def _lifecycle_operations(guard: Guard, tasks: TaskManager) -> list[Operation]:
    async def get_execution_status(context: Context, params: ExecutionParams) -> Execution:
        execution = await guard.loop.status(params.execution_id, context.caller)
        return execution or task_execution(await tasks.get(params.execution_id, context.caller))

    async def cancel_execution(context: Context, params: ExecutionParams) -> Execution:
        execution = await guard.loop.status(params.execution_id, context.caller)
        if execution and execution.finished_at:
            await guard.refuse_blocked(context.caller)
            raise TaskFinished(
                f"The execution is already {execution.status}", task=params.execution_id, state=execution.status
            )
        if execution:
            return await guard.loop.end(
                execution.element_name, params.execution_id, "cancelled", "Cancelled by its caller", context.caller
            )
        return task_execution(await tasks.cancel(params.execution_id, context.caller))

    async def retry_execution(context: Context, params: ExecutionParams) -> Execution:
        return task_execution(await tasks.retry(params.execution_id, context.caller))

    where = "Get the state of an execution or task of your own."
    return [
        _define("get_execution_status", Kind.READ, where, ExecutionParams, Execution, get_execution_status),
        _define(
            "cancel_execution",
            Kind.EXECUTE,
            "Stop an execution or a task of your own.",
            ExecutionParams,
            Execution,
            cancel_execution,
        ),
        _define(
            "retry_execution",
            Kind.EXECUTE,
            "Retry a failed task of your own, if its operation may be repeated.",
            ExecutionParams,
            Execution,
            retry_execution,
        ),
    ]


def task_execution(task: Task) -> Execution:
    """Return a task as an execution."""
    share = round(task.progress * 100, 1)
    return msgspec.convert(
        {
            "execution_id": task.id,
            "status": task.state.value,
            "element_name": task.call.operation,
            "started_at": whole_seconds(task.created),
            "finished_at": whole_seconds(task.updated) if task.state.is_final else None,
            "progress": ExecutionProgress(current=int(share), total=100, percentage=share, message=task.message),
            "error": task.error,
            "result": task.result,
        },
        Execution,
        from_attributes=True,
    )


def _define(
    name: str, kind: Kind, description: str, params: Any, result: Any, run: Any, danger: Danger = Danger.SAFE
) -> Operation:
    # Open to all callers: each operation checks ownership itself.
    return Operation(name, kind, description, params, result, run, danger, open=True)
