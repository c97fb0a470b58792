"""The last check before a call runs: policies, confirmations, blocks, and the steps that agents reported.

The gate decides who may do what at all. The guard decides whether a call may run now, whatever the protocol.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from portico.catalog import Danger, Kind, Operation
from portico.config import Safety
from portico.errors import Forbidden, SiteError, StepNeeded, TrustInsufficient, Unauthenticated, Unsupported
from portico.requests import Call, Caller
from portico.safety import policy
from portico.safety.challenges import Challenges
from portico.safety.confirmations import Confirmations, id_of_token
from portico.safety.context import SafetyContext, digest_of, now
from portico.safety.evaluation import check_patterns
from portico.safety.loop import ExecutionLoop, block_error
from portico.safety.models import (
    Notification,
    NotificationSubject,
    PendingChallenge,
    VerificationCode,
)
from portico.safety.policy import Policies, Verdict
from portico.safety.records import AgentRecord, AgentRun, ConfirmationRecord, StepRecord
from portico.safety.supervision import Supervision
from portico.safety.transaction import RecordStore, Transaction
from portico.store import Store
from portico.telemetry import Recorder

LOOP_OPERATIONS = frozenset(
    {
        "execute_agent",
        "record_execution_step",
        "complete_execution",
        "abort_execution",
        "confirm_operation",
        "verify_challenge",
        "get_execution_status",
    }
)
VERIFY = "verify_challenge"
SELF_CHECKED = LOOP_OPERATIONS - {policy.START}  # which do their own checks
STOP_OPERATIONS = frozenset({"cancel_task", "cancel_execution"})  # stopping needs no approval
UNNAMED_PARAMS = "The approved step did not name its parameters"
SERVING = "serving"  # the role of the first process that serves a site
SERVING_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class UsedStep:
    """A step of an execution that a call uses up."""

    execution: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.execution}/{self.number}"

    @classmethod
    def parse(cls, name: str) -> "UsedStep":
        execution, _, number = name.partition("/")
        return cls(execution, int(number))


def _discard_code(_: PendingChallenge, __: VerificationCode) -> None:
    """Deliver no code: without a channel, codes are shown only to callers who ask for them."""


class Guard:
    def __init__(
        self,
        store: Store,
        settings: Safety,
        operations: Callable[[], Mapping[str, Operation]],
        record: Recorder,
        show: Callable[[PendingChallenge, VerificationCode], None] | None = None,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self.settings = settings
        self._store = store
        check_patterns(settings)
        context = SafetyContext(
            RecordStore(store.audit, record), settings, Policies(settings), store.secret, show or _discard_code, clock
        )
        self._context = context
        self._confirmations = Confirmations(context)
        self._challenges = Challenges(context)
        self.loop = ExecutionLoop(context, self._confirmations, self._challenges, operations)
        self.supervision = Supervision(store, context, self._confirmations, self._challenges, self.loop)
        self._owner = secrets.token_hex(8)
        self._serving: asyncio.Task[None] | None = None
        self._sessions: dict[str, set[str]] = {}  # by session: callers that started something in it

    # Before a call

    async def clear(self, call: Call, operation: Operation, caller: Caller) -> UsedStep | None:
        """Clear an admitted call to run, or raise the reason why not. What it uses up is on disk by then."""
        if operation.name == VERIFY and call.run == "later":
            # A task is stored with its parameters.
            raise Unsupported(
                "A verification code cannot be checked in a task: call verify_challenge directly",
                operation=operation.name,
            )
        if caller.is_operator or self._is_harmless(operation):
            return None
        if caller.is_anonymous and operation.name in LOOP_OPERATIONS:
            raise Unauthenticated("Executions need an API key", hint="Send one as a bearer token or x-api-key.")
        if call.session:
            self._sessions.setdefault(call.session, set()).add(caller.rate_key)
        verdict = self._context.policies.verdict(operation, call.params, caller)
        if operation.name in SELF_CHECKED and verdict.decision is policy.Decision.CONFIRM:
            return None  # confirmations need no confirmation
        if await self._is_idle(caller) and _is_everyday(operation, verdict):
            return None
        if not _is_open(operation):
            await self.loop.refuse_blocked(caller)
        await self._confirmations.drop_stale_params(caller.rate_key)
        draft = self._draft(call, operation, caller, verdict)
        names = [(AgentRecord, caller.rate_key), (ConfirmationRecord, draft.id)]
        if call.confirmation:
            names.append((ConfirmationRecord, id_of_token(call.confirmation)))

        def work(transaction: Transaction) -> UsedStep | SiteError | None:
            return self._clear(transaction, call, operation, caller, draft, verdict)

        return await self._context.records.update(list(dict.fromkeys(names)), work)

    def _is_harmless(self, operation: Operation) -> bool:
        """Whether a call needs no check: reads are limited by scopes, and some operations must always be possible."""
        is_spared = operation.name in STOP_OPERATIONS or operation.name in SELF_CHECKED
        return _only_reads(operation) or (is_spared and not self._context.policies.concerns(operation))

    async def _is_idle(self, caller: Caller) -> bool:
        """Return whether nothing is stored of a caller that could hold its calls."""
        agent = await self._context.records.read(AgentRecord, caller.rate_key)
        return agent is None or not (agent.block or agent.runs or agent.pause or agent.undecided)

    def _draft(self, call: Call, operation: Operation, caller: Caller, verdict: Verdict) -> ConfirmationRecord:
        danger = operation.danger.name.lower()
        params = policy.fill_defaults(operation, call.params)
        return self._confirmations.draft(
            caller, "call", operation.name, digest_of(params), verdict.reasons, params, danger, call.session
        )

    def _clear(
        self,
        transaction: Transaction,
        call: Call,
        operation: Operation,
        caller: Caller,
        draft: ConfirmationRecord,
        verdict: Verdict,
    ) -> UsedStep | SiteError | None:
        agent = self.loop.load_agent(transaction, caller)
        is_watched = not _is_open(operation)
        if agent.block and is_watched:
            return block_error(agent)
        if verdict.decision is policy.Decision.DENY:
            return self._deny(transaction, agent, operation, caller, verdict)
        step: StepRecord | None = None
        is_held = self.settings.mode == "enforcing" and is_watched and operation.name != policy.START
        if is_held and _is_paused(agent):
            return self._refuse_paused(transaction, agent, operation)
        if is_held and agent.runs:
            run, step = _find_step(agent, operation, draft.digest)
            if run is None or step is None:
                return self._refuse_unreported(transaction, agent, operation)
            agent = _use_step(agent, run, step)
            used_step = UsedStep(run.id, step.number)
        else:
            used_step = None
        reasons = _to_confirm(verdict, step)
        if reasons is not None:
            draft = replace(draft, reasons=reasons, execution=used_step.execution if used_step else "")
            outcome = self._confirmations.redeem(transaction, draft, call.confirmation)
            if isinstance(outcome, SiteError):
                self._remind(transaction, operation, outcome, caller)
                return outcome
            agent = replace(transaction.get(AgentRecord, caller.rate_key) or agent, runs=agent.runs)
        if used_step:
            self._context.save_agent(transaction, agent)
        if operation.danger >= Danger.DESTRUCTIVE or used_step:
            self._audit_cleared(transaction, operation, draft, used_step)
        return used_step

    def _audit_cleared(
        self, transaction: Transaction, operation: Operation, draft: ConfirmationRecord, used_step: UsedStep | None
    ) -> None:
        transaction.audit(
            "OPERATION_CLEARED",
            operation=operation.name,
            caller=draft.principal,
            params=draft.digest,
            danger=draft.danger,
            execution=used_step.execution if used_step else "",
            policy=self._context.policies.digest,
            session=draft.session,
        )

    def _deny(
        self, transaction: Transaction, agent: AgentRecord, operation: Operation, caller: Caller, verdict: Verdict
    ) -> SiteError:
        transaction.audit(
            "OPERATION_DENIED", operation=operation.name, caller=agent.id, reason="; ".join(verdict.reasons)
        )
        self._notice(transaction, agent, operation.name, "; ".join(verdict.reasons), "deny")
        if verdict.by_trust:
            needed = policy.trust_needed(operation.danger)
            return TrustInsufficient(
                f"{operation.name} needs more trust than this caller has",
                operation=operation.name,
                required_trust=needed.name.lower(),
                actual_trust=caller.trust.name.lower(),
                danger_level=int(operation.danger),
                hint=policy.OPERATOR_DECIDES,
            )
        return Forbidden("; ".join(verdict.reasons), operation=operation.name, reason="policy")

    def _refuse_paused(self, transaction: Transaction, agent: AgentRecord, operation: Operation) -> SiteError:
        transaction.audit("OPERATION_DENIED", operation=operation.name, caller=agent.id, reason="paused")
        self._notice(transaction, agent, operation.name, "A step waits for a person", "pause")
        return StepNeeded(
            f"A step of this caller waits for a person, and until then {operation.name} does too",
            operation=operation.name,
            reason="paused",
            hint="Report the step again once a person has approved it.",
        )

    def _refuse_unreported(self, transaction: Transaction, agent: AgentRecord, operation: Operation) -> SiteError:
        transaction.audit("OPERATION_DENIED", operation=operation.name, caller=agent.id, reason="no reported step")
        self._notice(transaction, agent, operation.name, "It was not reported, or not with these parameters", "step")
        return StepNeeded(
            f"An execution is under way, and no reported step covers this call of {operation.name}",
            operation=operation.name,
            reason="step_not_reported",
            hint=f"Report it first with record_execution_step, naming {operation.name}.",
        )

    def _remind(self, transaction: Transaction, operation: Operation, error: SiteError, caller: Caller) -> None:
        agent = transaction.get(AgentRecord, caller.rate_key)
        if agent:
            self._notice(transaction, agent, operation.name, error.message, "confirm")

    def _notice(self, transaction: Transaction, agent: AgentRecord, operation: str, reason: str, level: str) -> None:
        """Store a notification that a running agent gets with its next step."""
        if not agent.runs:
            return
        about = NotificationSubject(operation=operation, reason=reason, level=level)
        notification = Notification(
            type="permission_pending",
            message=f"{operation} was not run: {reason}",
            metadata=about,
            timestamp=self._context.clock(),
        )
        others = tuple(notice for notice in agent.notices if notice.metadata.operation != operation)
        self._context.save_agent(transaction, replace(agent, notices=(*others, notification)))

    def decision(self, operation: Operation, caller: Caller) -> str:
        """Return what is decided of a call before its parameters are known: allow, confirm or deny."""
        return self._context.policies.verdict(operation, {}, caller).decision.name.lower()

    async def settle(self, used_step: UsedStep, caller: Caller, *, failed: bool) -> None:
        """Store the outcome of a step's call, which overrides what the agent reports."""

        def work(transaction: Transaction) -> None:
            agent = transaction.get(AgentRecord, caller.rate_key)
            if agent:
                outcome = "failure" if failed else "success"
                agent = _update_step(agent, used_step, lambda step: replace(step, outcome=outcome))
                self._context.save_agent(transaction, agent)

        await self._context.records.update([(AgentRecord, caller.rate_key)], work)

    async def refuse_blocked(self, caller: Caller) -> None:
        """Raise if a caller is blocked whose work was cleared earlier and continues now."""
        await self.supervision.refuse_blocked(caller)

    # Sessions and restarts

    async def end_session(self, session: str) -> None:
        """End what callers started in a session."""
        if not session:
            return  # without a session, things end by their time
        principals = self._sessions.pop(session, set[str]())
        for principal in principals:
            await self.loop.cancel_session(principal, session)
        await self._confirmations.revoke(session, principals)

    async def begin(self) -> None:
        """Clear pauses after a restart (8.8.3). A second process on the same store is not a restart."""
        with contextlib.suppress(SiteError):  # without the store, the site starts and pauses stay
            if await self._store.roles.acquire(SERVING, self._owner, SERVING_SECONDS):
                await self.loop.clear_pauses()
        self._serving = asyncio.create_task(self._keep_serving())

    async def _keep_serving(self) -> None:
        while True:
            await asyncio.sleep(SERVING_SECONDS / 3)
            with contextlib.suppress(SiteError):  # the store may be unavailable: try again
                await self._store.roles.acquire(SERVING, self._owner, SERVING_SECONDS)

    async def close(self) -> None:
        """Make the start of the next process count as a restart."""
        if self._serving:
            self._serving.cancel()
            with contextlib.suppress(SiteError):
                await self._store.roles.acquire(SERVING, self._owner, 0)


def _is_open(operation: Operation) -> bool:
    """Return whether agents may always call an operation, even if blocked and without a reported step."""
    return _only_reads(operation) or operation.name in STOP_OPERATIONS or operation.name in SELF_CHECKED


def _only_reads(operation: Operation) -> bool:
    return operation.kind is Kind.READ and operation.danger is Danger.SAFE


def _is_everyday(operation: Operation, verdict: Verdict) -> bool:
    return verdict.decision is policy.Decision.ALLOW and operation.danger < Danger.DESTRUCTIVE


def _is_paused(agent: AgentRecord) -> bool:
    """Return whether nothing may run, whatever was approved before: all agents of a caller pause together.

    A caller that ends the execution with the paused step stays paused: its other executions inherit the pause, and a
    new one goes on step by step.
    """
    is_held = any(run.is_paused_for_person for run in agent.runs)
    return agent.pause is not None or is_held or (bool(agent.undecided) and not agent.runs)


def _to_confirm(verdict: Verdict, step: StepRecord | None) -> tuple[str, ...] | None:
    """Return why a person has to approve a call; None if not necessary, or done with its step."""
    reasons = verdict.reasons if verdict.decision is policy.Decision.CONFIRM else None
    if step is None or not step.by:
        return reasons
    # An approval of a step without parameters does not cover the call.
    return None if step.params else (UNNAMED_PARAMS, *(reasons or ()))


def _find_step(agent: AgentRecord, operation: Operation, digest: str) -> tuple[AgentRun | None, StepRecord | None]:
    """Return the reported step that covers a call, preferring the most specific one."""
    candidates = [
        (run, step)
        for run in agent.runs
        for step in run.steps
        if not step.used and step.operation == operation.name and step.params in {"", digest}
    ]
    return max(candidates, key=lambda pair: (bool(pair[1].params), not pair[1].by), default=(None, None))


def _use_step(agent: AgentRecord, run: AgentRun, step: StepRecord) -> AgentRecord:
    agent = _update_step(agent, UsedStep(run.id, step.number), lambda item: replace(item, used=True))
    others = tuple(item for item in agent.notices if item.metadata.operation != step.operation)
    return replace(agent, notices=others)


def _update_step(agent: AgentRecord, used_step: UsedStep, change: Callable[[StepRecord], StepRecord]) -> AgentRecord:
    runs = tuple(
        replace(run, steps=tuple(change(item) if item.number == used_step.number else item for item in run.steps))
        if run.id == used_step.execution
        else run
        for run in agent.runs
    )
    return replace(agent, runs=runs)
