"""Handles one report of an agent: evaluates it, records it and returns the decision (MCP-AQL 8.6.3, 8.7)."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from portico.catalog import Operation, whole_seconds
from portico.requests import Caller
from portico.safety.challenges import Challenges
from portico.safety.confirmations import Confirmations, token_of
from portico.safety.context import SafetyContext, abridge, digest_of, escape_unprintable
from portico.safety.evaluation import EvaluationRules, StepContext, StepVerdict, evaluate
from portico.safety.models import (
    Directive,
    ExecutionState,
    NoticeType,
    Notification,
    NotificationSubject,
    Outcome,
    RiskTier,
    VerificationCode,
)
from portico.safety.policy import fill_defaults
from portico.safety.records import AgentRecord, AgentRun, Challenge, ConfirmationRecord, Grant, StepRecord
from portico.safety.step_reading import NamedCall, StepReading, read_step
from portico.safety.transaction import Transaction

MAX_STEPS = 30  # stored of one execution
MAX_UNDECIDED = 50  # steps of one agent that wait for a person
MAX_HINTS = 100  # hints stored to detect repetition
STEP = "record_execution_step"


@dataclass(frozen=True, slots=True)
class StepReport:
    """What an agent reports to have done, and will do next."""

    agent: str
    hint: str
    execution: str = ""
    description: str = ""
    outcome: Outcome | None = None
    findings: str = ""
    operation: str = ""  # of this site, that the step will call
    params: Mapping[str, Any] | None = None
    risk: int = 0


class PendingApproval(msgspec.Struct, frozen=True):
    """The token under which a person can approve the step."""

    token: str
    expires_at: datetime


class StepDecision(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The decision about a reported step."""

    execution_id: str
    step: int
    status: ExecutionState
    autonomy: Directive
    confirmation: PendingApproval | None = None


@dataclass(frozen=True, slots=True)
class StepCall:
    """The call that a step may make: its operation and the digest of its parameters, empty if it named none."""

    operation: str
    params: str
    arguments: Mapping[str, Any] | None = None  # the parameters themselves, with defaults for those left out

    @property
    def is_exact(self) -> bool:
        """Whether it is one call with all its parameters."""
        return bool(self.operation and self.params)


@dataclass(slots=True)
class Outbox:
    """Challenges to show to people once they are on disk."""

    challenges: list[tuple[Challenge, VerificationCode]] = field(
        default_factory=list[tuple[Challenge, VerificationCode]]
    )


@dataclass(slots=True)
class ReportHandler:
    """Handles one report within a transaction."""

    context: SafetyContext
    confirmations: Confirmations
    challenges: Challenges
    transaction: Transaction
    agent: AgentRecord
    run: AgentRun
    report: StepReport
    reading: StepReading
    step_call: StepCall
    action: str
    approval_id: str  # id of a confirmation of the same call, if the step is only that call; otherwise empty
    denial: str  # why the named call is refused even if approved; otherwise empty
    caller: Caller
    news: Sequence[Notification]
    outbox: Outbox
    notices: list[Notification] = field(default_factory=list[Notification])
    confirmation: PendingApproval | None = None

    def handle(self) -> StepDecision:
        run, now = self.run, self.context.clock()
        silent = run.silent + 1 if self.report.outcome is None and run.count else 0
        self.run = replace(run, touched=now, silent=silent, actions=(*run.actions, self.action)[-MAX_HINTS:])
        self._audit()
        match self.context.settings.mode:
            case "logging":
                return self._pass(StepVerdict("go", "Recorded; nothing is evaluated"), authoritative=False)
            case "monitoring":
                return self._monitor()
            case _:
                return self._enforce()

    def _audit(self) -> None:
        report = self.report
        self.transaction.audit(
            "STEP_REPORTED",
            execution=self.run.id,
            caller=self.agent.id,
            hint=abridge(report.hint),
            outcome=report.outcome or "",
            operation=report.operation,
            score=self.reading.score,
        )

    def _step_context(self, grant: Grant | None) -> StepContext:
        return StepContext(
            self.reading,
            self.context.steps_spent(self.agent) + 1,
            self._outcome(),
            self.run.silent,
            self.run.actions[:-1].count(self.action),
            self.report.risk,
            grant,
        )

    def _outcome(self) -> Outcome | None:
        """The outcome since a person last looked. What the site saw overrides what the agent reports."""
        # All executions count: in another one the same caller could try the same again.
        has_failed = any(step.outcome == "failure" for run in self.agent.runs for step in run.steps)
        return "failure" if has_failed else self.report.outcome

    def _monitor(self) -> StepDecision:
        verdict = evaluate(self._step_context(None), self.context.rules_for(self.caller, self.run.limit))
        if verdict.may_proceed:
            return self._pass(verdict)
        return self._pass(StepVerdict("go", f"would {verdict.action}: {verdict.factor}", verdict.tier))

    def _enforce(self) -> StepDecision:
        pause = self.agent.pause
        if pause:
            verdict = StepVerdict("verify", f"Verification {pause.challenge} is pending", RiskTier.VERIFY)
            return self._hold(verdict, "paused", pause.challenge)
        grant = next((item for item in self.agent.grants if item.hint == self.action), None)
        step, terms = self._step_context(grant), self.context.rules_for(self.caller, self.run.limit)
        verdict = evaluate(step, terms)
        match verdict.action:
            case "go":
                return self._pass(verdict, grant)
            case "pause" | "verify" if self.denial:
                return self._deny(verdict)
            case "pause":
                return self._pass_if_approved(step, terms) or self._ask_person(verdict, step, terms)
            case "verify":
                return self._hold(verdict, "paused", self._begin_challenge(RiskTier.VERIFY, verdict))
            case "stop":
                return self._stop(verdict)

    def _pass_if_approved(self, step: StepContext, terms: EvaluationRules) -> StepDecision | None:
        """Pass a step whose call a person has approved, if the call is the only objection."""
        agreement = self.confirmations.find_approval(self.transaction, self.approval_id) if self.approval_id else None
        verdict = evaluate(dataclasses.replace(step, is_call_agreed=True), terms)
        if agreement is None or not verdict.may_proceed:
            return None
        self.confirmations.use(self.transaction, agreement, agreement.by)
        stored = self.transaction.get(AgentRecord, self.agent.id) or self.agent
        self.agent = replace(
            self.agent,
            waiting=stored.waiting,
            approved=stored.approved,
            requests=stored.requests,
            notices=stored.notices,
        )
        return self._pass(verdict, Grant(hint=self.action, by=agreement.by, expires=agreement.expires))

    def _ask_person(self, verdict: StepVerdict, step: StepContext, terms: EvaluationRules) -> StepDecision:
        """Ask a person once for what the strictest stage needs: an approval, or a code where that is not enough."""
        grant = Grant(hint=self.action, by="", expires=self.context.clock())
        if evaluate(dataclasses.replace(step, grant=grant), terms).may_proceed:
            return self._pause(verdict)
        return self._hold(verdict, "paused", self._begin_challenge(RiskTier.VERIFY, verdict))

    def _deny(self, verdict: StepVerdict) -> StepDecision:
        """Refuse a step whose call would be refused. Nobody is asked to approve it."""
        self._save()
        return self._decide(StepVerdict("pause", self.denial, verdict.tier))

    def _pass(self, verdict: StepVerdict, grant: Grant | None = None, *, authoritative: bool = True) -> StepDecision:
        self.agent, _ = self.context.count_step(self.agent)
        if grant:
            self.agent = replace(self.agent, grants=tuple(item for item in self.agent.grants if item is not grant))
        count = self.run.count + 1
        by = grant.by if grant else ""
        step = StepRecord(
            number=count, hint=self.action, operation=self.step_call.operation, params=self.step_call.params, by=by
        )
        steps = (*self.run.steps, step)[-MAX_STEPS:] if authoritative else self.run.steps
        message = abridge(self.report.description)
        self.run = replace(self.run, status="running", count=count, steps=steps, message=message, held=False)
        self._save()
        return self._decide(verdict)

    def _pause(self, verdict: StepVerdict) -> StepDecision:
        """Pause, and request approval of this very step."""
        self.run = replace(self.run, status="paused", held=False)
        settings = self.context.settings
        until = self.context.after(max(settings.idle, settings.confirm_seconds))
        undecided = {**self.agent.undecided, self.action: until}
        self.agent = replace(self.agent, undecided=dict(list(undecided.items())[-MAX_UNDECIDED:]))
        self._save()
        # The approval is for the call, wherever the hint names it.
        params: dict[str, Any] = {
            "agent": self.run.agent,
            "hint": escape_unprintable(self.report.hint),
            "operation": self.step_call.operation,
        }
        if self.step_call.arguments is not None:
            params["params"] = dict(self.step_call.arguments)
        reasons = (verdict.factor, *self.reading.factors)
        if self.step_call.operation and not self.step_call.is_exact:
            name = self.step_call.operation
            reasons = (*reasons, f"The step does not name the parameters of {name}, so the call needs its own approval")
        draft = self.confirmations.draft(
            self.caller,
            "step",
            STEP,
            self.action,
            reasons,
            params,
            session=self.run.session,
            execution=self.run.id,
        )
        outcome = self.confirmations.request(self.transaction, draft)
        if isinstance(outcome, ConfirmationRecord):
            self.confirmation = PendingApproval(token_of(outcome), whole_seconds(outcome.expires))
        self._notify("autonomy_pause", verdict.factor, verdict.tier)
        return self._decide(verdict)

    def _stop(self, verdict: StepVerdict) -> StepDecision:
        challenge = self._begin_challenge(RiskTier.DANGER_ZONE, verdict)
        runs = [self.run if run.id == self.run.id else run for run in self.agent.runs]
        self.agent, _ = self.context.end_runs(
            self.transaction, self.agent, runs, "cancelled", f"Stopped: {verdict.factor}"
        )
        self.run = replace(self.run, status="cancelled")
        self.context.save_agent(self.transaction, self.agent)
        self._notify("danger_zone", verdict.factor, verdict.tier, challenge)
        return self._decide(verdict)

    def _hold(self, verdict: StepVerdict, status: ExecutionState, challenge: str) -> StepDecision:
        self.run = replace(self.run, status=status, held=True)
        self._save()
        self._notify("autonomy_pause", verdict.factor, verdict.tier, challenge)
        return self._decide(verdict)

    def _begin_challenge(self, tier: RiskTier, verdict: StepVerdict) -> str:
        reasons = (verdict.factor, *self.reading.factors)
        self.agent, challenge, code = self.challenges.begin(
            self.transaction,
            self.agent,
            self.run,
            self.report.hint,
            self.action,
            tier,
            reasons,
            self.step_call.operation,
            self.step_call.arguments,
        )
        self.outbox.challenges.append((challenge, code))
        return challenge.id

    def _save(self) -> None:
        runs = tuple(self.run if run.id == self.run.id else run for run in self.agent.runs)
        self.agent = replace(self.agent, runs=runs)
        self.context.save_agent(self.transaction, self.agent)

    def _notify(self, kind: NoticeType, message: str, tier: RiskTier | None, challenge: str = "") -> None:
        about = NotificationSubject(
            operation=STEP, reason=message, level=tier.value if tier else "", verification_id=challenge
        )
        self.notices.append(Notification(type=kind, message=message, metadata=about, timestamp=self.context.clock()))

    def _decide(self, verdict: StepVerdict) -> StepDecision:
        own_ids = {notice.metadata.verification_id for notice in self.notices if notice.metadata.verification_id}
        news = [
            notice
            for notice in self.news
            if notice.timestamp >= self.run.started and notice.metadata.verification_id not in own_ids
        ]
        limit = self.context.rules_for(self.caller, self.run.limit).steps
        return StepDecision(
            execution_id=self.run.id,
            step=self.run.count,
            status=self.run.status,
            autonomy=Directive(
                may_continue=verdict.may_proceed,
                factors=(verdict.factor, *self.reading.factors),
                stopped=verdict.action == "stop",
                reason="" if verdict.may_proceed else verdict.factor,
                steps_remaining=max(0, limit - self.context.steps_spent(self.agent)),
                next_step_risk=verdict.tier,
                notifications=tuple(map(_round_time, (*self.agent.notices, *news, *self.notices))),
            ),
            confirmation=self.confirmation,
        )


def _round_time(notification: Notification) -> Notification:
    return replace(notification, timestamp=whole_seconds(notification.timestamp))


def read_report(report: StepReport, terms: EvaluationRules, operations: Mapping[str, Operation]) -> StepReading:
    """Read a report's hint; if the report also names an operation, the stricter of the two counts."""
    dangers = {name: operation.danger for name, operation in operations.items()}
    reading = read_step(report.hint, terms.patterns, dangers)
    if not report.operation:
        return reading
    operation_reading = read_step(report.operation, terms.patterns, dangers)
    order = ("", "auto", "approve", "deny")
    # Harmless words may name a harmful operation: a step is harmless only if both are.
    strict = max(reading, operation_reading, key=lambda operation: order.index(operation.matched))
    matched = "" if strict.matched == "auto" and "" in {reading.matched, operation_reading.matched} else strict.matched
    score, factors = max(reading.score, operation_reading.score), (*reading.factors, *operation_reading.factors)
    return StepReading(matched, strict.pattern, score, factors, reading.calls, reading.digest)


def is_risk_of_call_only(
    reading: StepReading, step: StepCall, terms: EvaluationRules, operations: Mapping[str, Operation]
) -> bool:
    """Return whether all risk of a step comes from the call that it names."""
    dangers = {name: operation.danger for name, operation in operations.items()}
    return set(reading.factors) <= set(read_step(step.operation, terms.patterns, dangers).factors)


def resolve_call(reading: StepReading, report: StepReport, operations: Mapping[str, Operation]) -> StepCall:
    """Return the call that a step may make, as far as it is named."""
    step = call_of(reading, report)
    if step.params is None:
        return StepCall(step.operation, "")
    operation = operations.get(step.operation)
    arguments = fill_defaults(operation, step.params) if operation else step.params
    return StepCall(step.operation, digest_of(arguments), arguments)


def call_of(reading: StepReading, report: StepReport) -> NamedCall:
    """Return the call that the report names explicitly, or else the one that its hint names."""
    hinted = reading.calls[0] if len(reading.calls) == 1 else NamedCall("", None)
    operation = report.operation or hinted.operation
    params = hinted.params if hinted.operation == operation else None
    return NamedCall(operation, params if report.params is None else report.params)


def action_digest(reading: StepReading, step: StepCall) -> str:
    """Return the identity of a step: a digest of its words, its operation and that one's parameters."""
    return hashlib.sha256("\0".join((reading.digest, step.operation, step.params)).encode()).hexdigest()
