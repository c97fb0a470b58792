"""The operations of supervision: agents start, report and end; people confirm and verify; all see where their work is.

They are operations like any other, so every protocol has them. What they decide is decided by the guard.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from portico.catalog import Danger, Kind, Operation, whole_seconds
from portico.errors import TaskFinished
from portico.operations import Context, Cursor
from portico.operations.tasks import Tasks
from portico.requests import Task
from portico.safety.guard import LOOP as WATCHED
from portico.safety.guard import Guard
from portico.safety.loop import Started
from portico.safety.models import Decision, Execution, Outcome, PendingApprovals, Progress
from portico.safety.reporting import Report, Reported

LOOP = WATCHED | {"introspect", "cancel_execution", "retry_execution", "list_pending_approvals"}
MAX_HINT = 10_000

Name = Annotated[str, Meta(min_length=1, max_length=100, description="The agent, as it calls itself")]
ExecutionId = Annotated[str, Meta(max_length=100, description="Which of its executions; by default the newest")]
Text = Annotated[str, Meta(max_length=MAX_HINT)]


class ExecuteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    parameters: Annotated[dict[str, Any], Meta(description="What it is to do; whoever agrees sees it")] = {}
    max_autonomous_steps: (
        Annotated[int, Meta(ge=1, le=10_000, description="Fewer steps than the site allows")] | UnsetType
    ) = UNSET


class RecordParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    next_action_hint: Annotated[str, Meta(min_length=1, max_length=MAX_HINT, description="What it will do next")]
    step_description: Annotated[Text, Meta(description="What it has just done")] = ""
    outcome: Annotated[Outcome, Meta(description="How that went")] | UnsetType = UNSET
    findings: Annotated[Text, Meta(description="What it found")] = ""
    execution_id: ExecutionId = ""
    next_operation: Annotated[str, Meta(max_length=128, description="The operation of this site that it will call")] = (
        ""
    )
    next_params: Annotated[dict[str, Any], Meta(description="With which parameters")] | UnsetType = UNSET
    risk_score: Annotated[int, Meta(ge=0, le=100, description="The risk as it sees it; only ever raises")] = 0


class CompleteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    outcome: Annotated[Outcome, Meta(description="How the last step went")] | UnsetType = UNSET
    summary: Annotated[Text, Meta(description="What came of it")] = ""
    execution_id: ExecutionId = ""


class AbortParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    element_name: Name
    reason: Annotated[Text, Meta(description="Why it ends")] = ""
    execution_id: ExecutionId = ""


class ConfirmParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    confirmation_token: Annotated[str, Meta(min_length=8, max_length=80, description="Of what somebody else wants")]
    operation: Annotated[str, Meta(max_length=128, description="That it is for; told, it must be that")] = ""
    digest: Annotated[
        str, Meta(max_length=64, description="The digest that the call was listed with: another call is not approved")
    ] = ""
    decision: Annotated[Decision, Meta(description="Whether to agree")] = "approve"
    note: Annotated[str, Meta(max_length=500, description="For the audit trail")] = ""


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided, and for what."""

    confirmed: bool
    operation: str
    scope: str
    expires_at: datetime


class ListParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    confirmation_token: Annotated[str, Meta(max_length=80, description="List only what waits under this token")] = ""
    cursor: Cursor = ""


class VerifyParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    challenge_id: Annotated[str, Meta(min_length=1, max_length=64, description="Of what is to be released")]
    code: Annotated[str, Meta(min_length=1, max_length=64, description="As a person was shown it")]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was released."""

    verified: bool
    challenge_id: str
    agent: str
    unblocked: bool


class ExecutionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    execution_id: Annotated[str, Meta(min_length=1, max_length=100, description="As it was given when it began")]


def supervision(guard: Guard, tasks: Tasks) -> list[Operation]:
    """The operations of a site's supervision; those of the loop only where there is one."""
    always = [*_lifecycle(guard, tasks), _confirm(guard), _pending(guard)]
    return always if guard.settings.mode == "disabled" else [*always, *_loop(guard, tasks), _verify(guard)]


def _loop(guard: Guard, tasks: Tasks) -> list[Operation]:
    loop = guard.loop

    async def execute_agent(context: Context, given: ExecuteParams) -> Started:
        steps = None if isinstance(given.max_autonomous_steps, UnsetType) else given.max_autonomous_steps
        return await loop.start(given.element_name, given.parameters, steps, context.caller, context.session)

    async def record_execution_step(context: Context, given: RecordParams) -> Reported:
        report = Report(
            given.element_name,
            given.next_action_hint,
            given.execution_id,
            given.step_description,
            None if isinstance(given.outcome, UnsetType) else given.outcome,
            given.findings,
            given.next_operation,
            None if isinstance(given.next_params, UnsetType) else given.next_params,
            given.risk_score,
        )
        reported = await loop.record(report, context.caller)
        if reported.autonomy.stopped:
            await tasks.cancel_all(context.caller)  # what it has begun before ends too
        return reported

    async def complete_execution(context: Context, given: CompleteParams) -> Execution:
        return await loop.end(given.element_name, given.execution_id, "completed", given.summary, context.caller)

    async def abort_execution(context: Context, given: AbortParams) -> Execution:
        return await loop.end(given.element_name, given.execution_id, "cancelled", given.reason, context.caller)

    started = "Start an agent under supervision: from then on it reports every step before it takes it."
    recorded = "Report what was done and what comes next; the answer says whether that may be done."
    return [
        _made("execute_agent", Kind.EXECUTE, started, ExecuteParams, Started, execute_agent, Danger.REVERSIBLE),
        _made("record_execution_step", Kind.CREATE, recorded, RecordParams, Reported, record_execution_step),
        _made(
            "complete_execution",
            Kind.EXECUTE,
            "Say that an agent is done.",
            CompleteParams,
            Execution,
            complete_execution,
        ),
        _made("abort_execution", Kind.EXECUTE, "Say that an agent gives up.", AbortParams, Execution, abort_execution),
    ]


def _confirm(guard: Guard) -> Operation:
    async def confirm_operation(context: Context, given: ConfirmParams) -> Confirmed:
        waited = await guard.confirm(
            given.confirmation_token, given.decision, given.note, context.caller, given.operation, given.digest
        )
        return Confirmed(
            confirmed=given.decision == "approve",
            operation=waited.operation,
            scope="once, by the caller that wants it, with the same parameters",
            expires_at=whole_seconds(waited.expires),
        )

    says = "Agree to what somebody else wants to do, or turn it down. Nobody agrees to their own."
    return _made("confirm_operation", Kind.EXECUTE, says, ConfirmParams, Confirmed, confirm_operation)


def _pending(guard: Guard) -> Operation:
    async def list_pending_approvals(context: Context, given: ListParams) -> PendingApprovals:
        return await guard.list_pending(context.caller, given.cursor, given.confirmation_token)

    says = "List the calls and steps that wait for a person, each with all its parameters and its digest."
    return _made("list_pending_approvals", Kind.READ, says, ListParams, PendingApprovals, list_pending_approvals)


def _verify(guard: Guard) -> Operation:
    async def verify_challenge(context: Context, given: VerifyParams) -> Verified:
        released = await guard.verify(given.challenge_id, given.code, context.caller)
        return Verified(verified=True, challenge_id=released.id, agent=released.agent, unblocked=released.blocks)

    says = "Release an agent with the code that a person was shown."
    return _made("verify_challenge", Kind.CREATE, says, VerifyParams, Verified, verify_challenge)


def _lifecycle(guard: Guard, tasks: Tasks) -> list[Operation]:
    async def get_execution_status(context: Context, given: ExecutionParams) -> Execution:
        known = await guard.loop.status(given.execution_id, context.caller)
        return known or shown_execution(await tasks.get(given.execution_id, context.caller))

    async def cancel_execution(context: Context, given: ExecutionParams) -> Execution:
        known = await guard.loop.status(given.execution_id, context.caller)
        if known and known.finished_at:
            await guard.refuse_blocked(context.caller)
            raise TaskFinished(f"The execution is already {known.status}", task=given.execution_id, state=known.status)
        if known:
            return await guard.loop.end(
                known.element_name, given.execution_id, "cancelled", "Cancelled by its caller", context.caller
            )
        return shown_execution(await tasks.cancel(given.execution_id, context.caller))

    async def retry_execution(context: Context, given: ExecutionParams) -> Execution:
        return shown_execution(await tasks.retry(given.execution_id, context.caller))

    where = "Where an execution or a task of your own is."
    return [
        _made("get_execution_status", Kind.READ, where, ExecutionParams, Execution, get_execution_status),
        _made(
            "cancel_execution",
            Kind.EXECUTE,
            "Stop an execution or a task of your own.",
            ExecutionParams,
            Execution,
            cancel_execution,
        ),
        _made(
            "retry_execution",
            Kind.EXECUTE,
            "Try a task of your own again that has failed, where repeating is harmless.",
            ExecutionParams,
            Execution,
            retry_execution,
        ),
    ]


def shown_execution(task: Task) -> Execution:
    """A task in the words of executions."""
    share = round(task.progress * 100, 1)
    return msgspec.convert(
        {
            "execution_id": task.id,
            "status": task.state.value,
            "element_name": task.call.operation,
            "started_at": whole_seconds(task.created),
            "finished_at": whole_seconds(task.updated) if task.state.is_final else None,
            "progress": Progress(current=int(share), total=100, percentage=share, message=task.message),
            "error": task.error,
            "result": task.result,
        },
        Execution,
        from_attributes=True,
    )


def _made(
    name: str, kind: Kind, says: str, params: Any, result: Any, run: Any, danger: Danger = Danger.SAFE
) -> Operation:
    # Open to all, for each checks by itself whose things they are.
    return Operation(name, kind, says, params, result, run, danger, open=True)
