"""One report of an agent: what it says is read, judged, written down and answered (MCP-AQL 8.6.3, 8.7)."""

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
from portico.safety.context import Office, abridge, digest_of, plain
from portico.safety.evaluation import Judged, Seen, Terms, judge
from portico.safety.models import About, Code, Directive, ExecutionState, NoticeType, Notification, Outcome, Tier
from portico.safety.policy import filled
from portico.safety.records import Agent, Challenge, Confirmation, Grant, Run, Step
from portico.safety.step_reading import Named, Reading, read
from portico.safety.transaction import Sheets

MAX_STEPS = 30  # that are remembered of a run
MAX_UNDECIDED = 50  # steps that pause one agent for a person
MAX_SEEN = 100  # hints that are remembered to notice repetition
STEP = "record_execution_step"


@dataclass(frozen=True, slots=True)
class Report:
    """What an agent says it has done, and will do next."""

    agent: str
    hint: str
    execution: str = ""
    description: str = ""
    outcome: Outcome | None = None
    findings: str = ""
    operation: str = ""  # of this site, that the step will call
    params: Mapping[str, Any] | None = None
    risk: int = 0


class Awaits(msgspec.Struct, frozen=True):
    """What a person can agree to, so that an agent may go on."""

    token: str
    expires_at: datetime


class Reported(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What became of a report."""

    execution_id: str
    step: int
    status: ExecutionState
    autonomy: Directive
    confirmation: Awaits | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """The call that a step may make: its operation, and the digest of its parameters, empty if it named none."""

    operation: str
    params: str
    arguments: Mapping[str, Any] | None = None  # the parameters themselves, with defaults for those left out

    @property
    def is_exact(self) -> bool:
        """Whether it is one call with all its parameters."""
        return bool(self.operation and self.params)


@dataclass(slots=True)
class Sent:
    """What is to be told to people once it is on disk."""

    challenges: list[tuple[Challenge, Code]] = field(default_factory=list[tuple[Challenge, Code]])


@dataclass(slots=True)
class Reporting:
    """One report: judged, written down, answered."""

    office: Office
    confirmations: Confirmations
    challenges: Challenges
    sheets: Sheets
    agent: Agent
    run: Run
    report: Report
    reading: Reading
    bound: Bound
    action: str
    call: str  # the id of a confirmation of the same call, if the step is nothing but that; else empty
    denial: str  # why the call that it names is refused whoever agrees to it; else empty
    caller: Caller
    news: Sequence[Notification]
    sent: Sent
    told: list[Notification] = field(default_factory=list[Notification])
    confirmation: Awaits | None = None

    def answered(self) -> Reported:
        run, now = self.run, self.office.clock()
        silent = run.silent + 1 if self.report.outcome is None and run.count else 0
        self.run = replace(run, touched=now, silent=silent, seen=(*run.seen, self.action)[-MAX_SEEN:])
        self._audit()
        match self.office.settings.mode:
            case "logging":
                return self._passed(Judged("go", "Recorded; nothing is evaluated"), authoritative=False)
            case "monitoring":
                return self._monitored()
            case _:
                return self._enforced()

    def _audit(self) -> None:
        report = self.report
        self.sheets.tell(
            "STEP_REPORTED",
            execution=self.run.id,
            caller=self.agent.id,
            hint=abridge(report.hint),
            outcome=report.outcome or "",
            operation=report.operation,
            score=self.reading.score,
        )

    def _seen(self, grant: Grant | None) -> Seen:
        return Seen(
            self.reading,
            self.office.spent(self.agent) + 1,
            self._outcome(),
            self.run.silent,
            self.run.seen[:-1].count(self.action),
            self.report.risk,
            grant,
        )

    def _outcome(self) -> Outcome | None:
        """How it went since a person last looked: as the site saw it, if it did, whatever the agent says."""
        # In another execution the same caller would only try the same again.
        has_failed = any(step.outcome == "failure" for run in self.agent.runs for step in run.steps)
        return "failure" if has_failed else self.report.outcome

    def _monitored(self) -> Reported:
        judged = judge(self._seen(None), self.office.terms(self.caller, self.run.limit))
        if judged.may_go:
            return self._passed(judged)
        return self._passed(Judged("go", f"would {judged.action}: {judged.factor}", judged.tier))

    def _enforced(self) -> Reported:
        pause = self.agent.pause
        if pause:
            judged = Judged("verify", f"Verification {pause.challenge} is pending", Tier.VERIFY)
            return self._halted(judged, "paused", pause.challenge)
        grant = next((each for each in self.agent.grants if each.hint == self.action), None)
        seen, terms = self._seen(grant), self.office.terms(self.caller, self.run.limit)
        judged = judge(seen, terms)
        match judged.action:
            case "go":
                return self._passed(judged, grant)
            case "pause" | "verify" if self.denial:
                return self._denied(judged)
            case "pause":
                return self._agreed(seen, terms) or self._asked(judged, seen, terms)
            case "verify":
                return self._halted(judged, "paused", self._challenged(Tier.VERIFY, judged))
            case "stop":
                return self._stopped(judged)

    def _agreed(self, seen: Seen, terms: Terms) -> Reported | None:
        """Let a step pass whose call a person has agreed to, if nothing but the call is objected to."""
        agreement = self.confirmations.find_approval(self.sheets, self.call) if self.call else None
        judged = judge(dataclasses.replace(seen, is_call_agreed=True), terms)
        if agreement is None or not judged.may_go:
            return None
        self.confirmations.use(self.sheets, agreement, agreement.by)
        kept = self.sheets.get(Agent, self.agent.id) or self.agent
        self.agent = replace(
            self.agent, waiting=kept.waiting, given=kept.given, requests=kept.requests, notices=kept.notices
        )
        return self._passed(judged, Grant(hint=self.action, by=agreement.by, expires=agreement.expires))

    def _asked(self, judged: Judged, seen: Seen, terms: Terms) -> Reported:
        """Ask a person once, for what the strictest stage needs: where agreeing would not do, for a code."""
        word = Grant(hint=self.action, by="", expires=self.office.clock())
        if judge(dataclasses.replace(seen, grant=word), terms).may_go:
            return self._paused(judged)
        return self._halted(judged, "paused", self._challenged(Tier.VERIFY, judged))

    def _denied(self, judged: Judged) -> Reported:
        """Refuse a step whose call will be refused. Nobody is asked to agree to it."""
        self._file()
        return self._reported(Judged("pause", self.denial, judged.tier))

    def _passed(self, judged: Judged, grant: Grant | None = None, *, authoritative: bool = True) -> Reported:
        self.agent, _ = self.office.spent_with(self.agent)
        if grant:
            self.agent = replace(self.agent, grants=tuple(each for each in self.agent.grants if each is not grant))
        count = self.run.count + 1
        by = grant.by if grant else ""
        step = Step(number=count, hint=self.action, operation=self.bound.operation, params=self.bound.params, by=by)
        steps = (*self.run.steps, step)[-MAX_STEPS:] if authoritative else self.run.steps
        said = abridge(self.report.description)
        self.run = replace(self.run, status="running", count=count, steps=steps, message=said, held=False)
        self._file()
        return self._reported(judged)

    def _paused(self, judged: Judged) -> Reported:
        """Have a person asked whether this very step may be taken."""
        self.run = replace(self.run, status="paused", held=False)
        settings = self.office.settings
        until = self.office.after(max(settings.idle, settings.confirm_seconds))
        undecided = {**self.agent.undecided, self.action: until}
        self.agent = replace(self.agent, undecided=dict(list(undecided.items())[-MAX_UNDECIDED:]))
        self._file()
        # What is agreed to is the call, wherever in the hint it stands.
        params: dict[str, Any] = {
            "agent": self.run.agent,
            "hint": plain(self.report.hint),
            "operation": self.bound.operation,
        }
        if self.bound.arguments is not None:
            params["params"] = dict(self.bound.arguments)
        reasons = (judged.factor, *self.reading.factors)
        if self.bound.operation and not self.bound.is_exact:
            name = self.bound.operation
            reasons = (*reasons, f"The step names no parameters of {name}: the call needs its own approval")
        wanted = self.confirmations.wanted(
            self.caller,
            "step",
            STEP,
            self.action,
            reasons,
            params,
            session=self.run.session,
            execution=self.run.id,
        )
        asked = self.confirmations.ask(self.sheets, wanted)
        if isinstance(asked, Confirmation):
            self.confirmation = Awaits(token_of(asked), whole_seconds(asked.expires))
        self._notify("autonomy_pause", judged.factor, judged.tier)
        return self._reported(judged)

    def _stopped(self, judged: Judged) -> Reported:
        challenge = self._challenged(Tier.DANGER_ZONE, judged)
        runs = [self.run if run.id == self.run.id else run for run in self.agent.runs]
        self.agent, _ = self.office.end_runs(self.sheets, self.agent, runs, "cancelled", f"Stopped: {judged.factor}")
        self.run = replace(self.run, status="cancelled")
        self.office.file(self.sheets, self.agent)
        self._notify("danger_zone", judged.factor, judged.tier, challenge)
        return self._reported(judged)

    def _halted(self, judged: Judged, status: ExecutionState, challenge: str) -> Reported:
        self.run = replace(self.run, status=status, held=True)
        self._file()
        self._notify("autonomy_pause", judged.factor, judged.tier, challenge)
        return self._reported(judged)

    def _challenged(self, tier: Tier, judged: Judged) -> str:
        reasons = (judged.factor, *self.reading.factors)
        self.agent, challenge, code = self.challenges.begin(
            self.sheets,
            self.agent,
            self.run,
            self.report.hint,
            self.action,
            tier,
            reasons,
            self.bound.operation,
            self.bound.arguments,
        )
        self.sent.challenges.append((challenge, code))
        return challenge.id

    def _file(self) -> None:
        runs = tuple(self.run if run.id == self.run.id else run for run in self.agent.runs)
        self.agent = replace(self.agent, runs=runs)
        self.office.file(self.sheets, self.agent)

    def _notify(self, kind: NoticeType, message: str, tier: Tier | None, challenge: str = "") -> None:
        about = About(operation=STEP, reason=message, level=tier.value if tier else "", verification_id=challenge)
        self.told.append(Notification(type=kind, message=message, metadata=about, timestamp=self.office.clock()))

    def _reported(self, judged: Judged) -> Reported:
        known = {each.metadata.verification_id for each in self.told if each.metadata.verification_id}
        news = [
            each
            for each in self.news
            if each.timestamp >= self.run.started and each.metadata.verification_id not in known
        ]
        limit = self.office.terms(self.caller, self.run.limit).steps
        return Reported(
            execution_id=self.run.id,
            step=self.run.count,
            status=self.run.status,
            autonomy=Directive(
                may_continue=judged.may_go,
                factors=(judged.factor, *self.reading.factors),
                stopped=judged.action == "stop",
                reason="" if judged.may_go else judged.factor,
                steps_remaining=max(0, limit - self.office.spent(self.agent)),
                next_step_risk=judged.tier,
                notifications=tuple(map(_shown, (*self.agent.notices, *news, *self.told))),
            ),
            confirmation=self.confirmation,
        )


def _shown(notification: Notification) -> Notification:
    return replace(notification, timestamp=whole_seconds(notification.timestamp))


def read_report(report: Report, terms: Terms, operations: Mapping[str, Operation]) -> Reading:
    """What a hint says; if it also names an operation outright, the stricter of both."""
    dangers = {name: each.danger for name, each in operations.items()}
    said = read(report.hint, terms.patterns, dangers)
    if not report.operation:
        return said
    named = read(report.operation, terms.patterns, dangers)
    order = ("", "auto", "approve", "deny")
    # What the words say harmlessly the operation may not be: only if both are harmless is the step.
    strict = max(said, named, key=lambda each: order.index(each.matched))
    matched = "" if strict.matched == "auto" and "" in {said.matched, named.matched} else strict.matched
    score, factors = max(said.score, named.score), (*said.factors, *named.factors)
    return Reading(matched, strict.pattern, score, factors, said.named, said.digest)


def says_no_more(reading: Reading, step: Bound, terms: Terms, operations: Mapping[str, Operation]) -> bool:
    """Return whether a step is as risky as the call that it names, for no other reason than that call."""
    dangers = {name: each.danger for name, each in operations.items()}
    return set(reading.factors) <= set(read(step.operation, terms.patterns, dangers).factors)


def bound(reading: Reading, report: Report, operations: Mapping[str, Operation]) -> Bound:
    """The call that a step may make, as far as it told."""
    step = meant(reading, report)
    if step.params is None:
        return Bound(step.operation, "")
    operation = operations.get(step.operation)
    arguments = filled(operation, step.params) if operation else step.params
    return Bound(step.operation, digest_of(arguments), arguments)


def meant(reading: Reading, report: Report) -> Named:
    """The call that a step is for: as the report says outright, or else as its hint names it."""
    only = reading.named[0] if len(reading.named) == 1 else Named("", None)
    operation = report.operation or only.operation
    named = only.params if only.operation == operation else None
    return Named(operation, named if report.params is None else report.params)


def action_of(reading: Reading, step: Bound) -> str:
    """What a step is, whatever it looks like: its words, its operation and the parameters of that."""
    return hashlib.sha256("\0".join((reading.digest, step.operation, step.params)).encode()).hexdigest()
