"""The safety loop: executions of agents, the steps they report, and what they are told. Runs nothing itself."""

import hashlib
import secrets
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from portico.calls import Caller
from portico.catalog import Danger
from portico.errors import AgentBlocked, InvalidParams, RateLimited, SiteError, Unauthenticated, UnknownTask
from portico.oversight import (
    About,
    Directive,
    Execution,
    ExecutionState,
    NoticeType,
    Notification,
    Outcome,
    Progress,
    Tier,
)
from portico.safety.cases import Agent, Broadcast, Challenge, Confirmation, Finished, Grant, Run, Step
from portico.safety.challenges import Challenges
from portico.safety.confirmations import Confirmations, confirmation_id, token_of
from portico.safety.docket import Sheets
from portico.safety.evaluation import Judged, Seen, Terms, judge, terms_of
from portico.safety.hints import Named, Reading, read
from portico.safety.office import Office, agent_of, digest_of

MAX_RUNS = 20  # of one caller, at once
MAX_STEPS = 30  # that are remembered of a run
MAX_SEEN = 100  # hints that are remembered to notice repetition
MAX_NAME = 100
MAX_SUMMARY = 1000
MAX_SHOWN = 500  # characters of what an agent says that people are shown
FINISHED_DAYS = 30
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
    expires_at: str


class Reported(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What became of a report."""

    execution_id: str
    step: int
    status: ExecutionState
    autonomy: Directive
    confirmation: Awaits | None = None


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    max_autonomous_steps: int
    steps_remaining: int
    risk_tolerance: str
    mode: str


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that has begun, and what holds for it."""

    execution_id: str
    status: ExecutionState
    started_at: str
    limits: Bounds


@dataclass(slots=True)
class Sent:
    """What is to be told to people once it is on disk."""

    challenges: list[tuple[Challenge, Any]] = field(default_factory=list[tuple[Challenge, Any]])


class Loop:
    def __init__(
        self,
        office: Office,
        confirmations: Confirmations,
        challenges: Challenges,
        operations: Callable[[], Mapping[str, Danger]],
    ) -> None:
        self._office = office
        self._confirmations = confirmations
        self._challenges = challenges
        self._operations = operations  # of the site, that agents could have run

    @property
    def mode(self) -> str:
        return self._office.settings.mode

    def terms(self, caller: Caller, lowered: int | None = None) -> Terms:
        """What holds for a caller. Settings of its own go by its key, never by the name it gives itself."""
        own = self._office.settings.agent
        is_key = caller.id.startswith("key:")
        return terms_of(
            self._office.settings, own.get(caller.id) or (own.get(caller.name) if is_key else None), lowered
        )

    # What agents do

    async def start(
        self, name: str, goal: Mapping[str, Any], steps: int | None, caller: Caller, session: str
    ) -> Started:
        agent_name = _checked_name(name, caller)
        await self.refuse_blocked(caller)
        terms, office = self.terms(caller, steps), self._office

        def work(sheets: Sheets) -> Started | SiteError:
            agent = self.current(sheets, caller)
            if agent.block:
                return blocked(agent)
            if len(agent.runs) >= MAX_RUNS:
                return RateLimited(f"{MAX_RUNS} executions are under way", limit=MAX_RUNS, hint="End one first.")
            now = office.clock()
            run = Run(
                id=secrets.token_hex(16),
                agent=agent_name,
                status="running",
                started=now,
                touched=now,
                limit=terms.steps,
                goal=digest_of(goal),
                session=session,
            )
            office.file(sheets, replace(agent, name=caller.name, runs=(*agent.runs, run)))
            sheets.tell(
                "EXECUTION_STARTED", execution=run.id, caller=agent.id, agent=agent_name, goal=run.goal, limit=run.limit
            )
            left = max(0, terms.steps - self._spent(agent))
            bounds = Bounds(
                max_autonomous_steps=terms.steps, steps_remaining=left, risk_tolerance=terms.tolerance, mode=self.mode
            )
            return Started(execution_id=run.id, status=run.status, started_at=now.isoformat(), limits=bounds)

        return await office.docket.change([(Agent, caller.rate_key)], work)

    async def record(self, report: Report, caller: Caller) -> Reported:
        """Hear of a step, and say whether it may be taken. What is said holds from when this returns."""
        name = _checked_name(report.agent, caller)
        await self.refuse_blocked(caller)
        reading = self._reading(report, self.terms(caller))
        action = action_of(reading, report)
        names = [(Agent, caller.rate_key), (Confirmation, confirmation_id(caller, "step", STEP, action))]
        news = [each.notice for each in await self._office.docket.all(Broadcast, 100)]
        sent = Sent()

        def work(sheets: Sheets) -> Reported | SiteError:
            sent.challenges.clear()
            agent = self.current(sheets, caller)
            if agent.block:
                return blocked(agent)
            run = _found(agent, name, report.execution)
            if run is None:
                return UnknownTask("There is no such execution", execution_id=report.execution or name)
            office = self._office
            return Reporting(
                self,
                office,
                self._confirmations,
                self._challenges,
                sheets,
                agent,
                run,
                report,
                reading,
                action,
                caller,
                news,
                sent,
            ).answered()

        reported = await self._office.docket.change(names, work)
        for challenge, code in sent.challenges:
            self._challenges.show(challenge, code)
        return reported

    async def end(
        self, name: str, execution: str, status: Literal["completed", "cancelled"], summary: str, caller: Caller
    ) -> Execution:
        agent_name = _checked_name(name, caller)
        await self.refuse_blocked(caller)

        def work(sheets: Sheets) -> Execution | SiteError:
            agent = self.current(sheets, caller)
            if agent.block:
                return blocked(agent)
            run = _found(agent, agent_name, execution)
            if run is None:
                return UnknownTask("There is no such execution", execution_id=execution or agent_name)
            self._office.file(sheets, replace(agent, runs=_without(agent.runs, run)))
            return _shown_end(self.finish(sheets, agent, run, status, summary))

        return await self._office.docket.change([(Agent, caller.rate_key)], work)

    async def status(self, id: str, caller: Caller) -> Execution | None:
        """Where an execution of this caller is; None if it has none of this id."""
        agent = await self._office.docket.read(Agent, caller.rate_key)
        for run in agent.runs if agent else ():
            if run.id == id:
                return replace(_shown(run), status="cancelled") if self.has_lapsed(run) else _shown(run)
        finished = await self._office.docket.read(Finished, id)
        return _shown_end(finished) if finished and finished.principal == caller.rate_key else None

    async def under_way(self) -> list[tuple[str, Execution]]:
        """The executions of all callers that are not over, the newest first."""
        agents = await self._office.docket.all(Agent)
        live = [(each.id, run) for each in agents for run in each.runs if not self.has_lapsed(run)]
        live.sort(key=lambda pair: pair[1].started, reverse=True)
        return [(principal, _shown(run)) for principal, run in live]

    # What happens to agents

    async def refuse_blocked(self, caller: Caller) -> None:
        agent = await self._office.docket.read(Agent, caller.rate_key)
        if agent and agent.block:
            await self._challenges.show_again(agent.block.challenge)
            raise blocked(agent)

    def current(self, sheets: Sheets, caller: Caller) -> Agent:
        """An agent as of now: executions that were silent for too long are over."""
        agent, now = agent_of(sheets, caller), self._office.clock()
        lapsed = [run for run in agent.runs if self.has_lapsed(run)]
        for run in lapsed:
            self.finish(sheets, agent, run, "cancelled", "Nothing was heard of it for too long")
        current = replace(
            agent,
            runs=tuple(run for run in agent.runs if run not in lapsed),
            grants=tuple(each for each in agent.grants if now < each.expires),
            pause=agent.pause if agent.pause and now < agent.pause.expires else None,
        )
        if lapsed:
            self._office.file(sheets, current)  # also if nothing else is: they end once
        return current

    def has_lapsed(self, run: Run) -> bool:
        return self._office.clock() >= run.touched + timedelta(seconds=self._office.settings.idle)

    def finish(self, sheets: Sheets, agent: Agent, run: Run, status: ExecutionState, summary: str) -> Finished:
        finished = Finished(
            id=run.id,
            principal=agent.id,
            run=replace(run, status=status, steps=()),
            finished=self._office.clock(),
            summary=summary[:MAX_SUMMARY],
        )
        sheets.put(finished, self._office.clock() + timedelta(days=FINISHED_DAYS))
        sheets.tell(
            f"EXECUTION_{status.upper()}", execution=run.id, caller=agent.id, agent=run.agent, reason=summary[:200]
        )
        return finished

    async def cancel(self, principal: str, session: str) -> None:
        """End the executions of a session that is over."""

        def work(sheets: Sheets) -> None:
            agent = sheets.get(Agent, principal)
            over = tuple(run for run in agent.runs if run.session == session) if agent else ()
            if agent and over:
                for run in over:
                    self.finish(sheets, agent, run, "cancelled", "The session is over")
                left = tuple(run for run in agent.runs if run not in over)
                kept = tuple(each for each in agent.grants if each.verified)
                self._office.file(sheets, replace(agent, runs=left, grants=kept, pause=None))

        await self._office.docket.change([(Agent, principal)], work)

    async def forget_pauses(self) -> None:
        """After a restart steps are looked at anew; blocks stay (8.8.3)."""
        for each in await self._office.docket.all(Agent):
            if each.pause:
                await self._office.docket.change(
                    [(Agent, each.id)], lambda sheets, id=each.id: self._unpause(sheets, id)
                )

    def _unpause(self, sheets: Sheets, id: str) -> None:
        agent = sheets.get(Agent, id)
        if agent:
            self._office.file(sheets, replace(agent, pause=None))

    def _spent(self, agent: Agent) -> int:
        """Steps of all agents of a caller in the window that is counted: a new execution begins no new one."""
        if agent.window is None:
            return 0
        end = agent.window + timedelta(seconds=self._office.settings.window)
        # Nor does waiting, as long as an execution goes on: its limit is on its steps, not on its pace.
        is_over = self._office.clock() >= end and not any(run.started < end for run in agent.runs)
        return 0 if is_over else agent.spent

    def _reading(self, report: Report, terms: Terms) -> Reading:
        """What a hint says; if it also names an operation outright, the stricter of both."""
        operations = self._operations()
        said = read(report.hint, terms.patterns, operations)
        if not report.operation:
            return said
        named = read(report.operation, terms.patterns, operations)
        order = ("", "auto", "approve", "deny")
        # What the words say harmlessly the operation may not be: only if both are harmless is the step.
        strict = max(said, named, key=lambda each: order.index(each.matched))
        matched = "" if strict.matched == "auto" and "" in {said.matched, named.matched} else strict.matched
        score, factors = max(said.score, named.score), (*said.factors, *named.factors)
        return Reading(matched, strict.pattern, score, factors, said.named, said.digest)

    def spent_with(self, agent: Agent) -> tuple[Agent, int]:
        """An agent with one more step in its window, and how many these are."""
        count = self._spent(agent) + 1
        return replace(agent, spent=count, window=agent.window if count > 1 else self._office.clock()), count

    def spent(self, agent: Agent) -> int:
        return self._spent(agent)


@dataclass(slots=True)
class Reporting:
    """One report: judged, written down, answered."""

    loop: Loop
    office: Office
    confirmations: Confirmations
    challenges: Challenges
    sheets: Sheets
    agent: Agent
    run: Run
    report: Report
    reading: Reading
    action: str
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
            hint=plain(report.hint),
            outcome=report.outcome or "",
            operation=report.operation,
            score=self.reading.score,
        )

    def _seen(self, grant: Grant | None) -> Seen:
        return Seen(
            self.reading,
            self.loop.spent(self.agent) + 1,
            self._outcome(),
            self.run.silent,
            self.run.seen[:-1].count(self.action),
            self.report.risk,
            grant,
        )

    def _outcome(self) -> Outcome | None:
        """How it went since a person last looked: as the site saw it, if it did, whatever the agent says."""
        for step in reversed(self.run.steps):
            if step.outcome == "failure":
                return "failure"
            if step.by:
                break
        return self.report.outcome

    def _monitored(self) -> Reported:
        judged = judge(self._seen(None), self.loop.terms(self.caller, self.run.limit))
        if judged.may_go:
            return self._passed(judged)
        return self._passed(Judged("go", f"would {judged.action}: {judged.factor}", judged.tier))

    def _enforced(self) -> Reported:
        pause = self.agent.pause
        if pause:
            judged = Judged("verify", f"Verification {pause.challenge} is pending", Tier.VERIFY)
            return self._halted(judged, "paused", pause.challenge)
        grant = next((each for each in self.agent.grants if each.hint == self.action), None)
        judged = judge(self._seen(grant), self.loop.terms(self.caller, self.run.limit))
        match judged.action:
            case "go":
                return self._passed(judged, grant)
            case "pause":
                return self._paused(judged)
            case "verify":
                return self._halted(judged, "paused", self._challenged(Tier.VERIFY, judged))
            case "stop":
                return self._stopped(judged)

    def _passed(self, judged: Judged, grant: Grant | None = None, *, authoritative: bool = True) -> Reported:
        self.agent, _ = self.loop.spent_with(self.agent)
        if grant:
            self.agent = replace(self.agent, grants=tuple(each for each in self.agent.grants if each is not grant))
        count = self.run.count + 1
        operation, params = bound(self.reading, self.report)
        step = Step(number=count, hint=self.action, operation=operation, params=params, by=grant.by if grant else "")
        steps = (*self.run.steps, step)[-MAX_STEPS:] if authoritative else self.run.steps
        self.run = replace(self.run, status="running", count=count, steps=steps, message=plain(self.report.description))
        self._file()
        return self._reported(judged)

    def _paused(self, judged: Judged) -> Reported:
        """Have a person asked whether this very step may be taken."""
        self.run = replace(self.run, status="paused")
        self._file()
        step = meant(self.reading, self.report)
        # What is agreed to is the call, wherever in the hint it stands.
        params: dict[str, Any] = {
            "agent": self.run.agent,
            "hint": plain(self.report.hint),
            "operation": step.operation,
        }
        if step.params is not None:
            params["params"] = dict(step.params)
        reasons = (judged.factor, *self.reading.factors)
        wanted = self.confirmations.wanted(
            self.caller, "step", STEP, self.action, reasons, params, session=self.run.session
        )
        asked = self.confirmations.ask(self.sheets, wanted)
        if isinstance(asked, Confirmation):
            self.confirmation = Awaits(token_of(asked), asked.expires.isoformat())
        self._notify("autonomy_pause", judged.factor, judged.tier)
        return self._reported(judged)

    def _stopped(self, judged: Judged) -> Reported:
        challenge = self._challenged(Tier.DANGER_ZONE, judged)
        for run in self.agent.runs:
            current = self.run if run.id == self.run.id else run
            self.loop.finish(self.sheets, self.agent, current, "cancelled", f"Stopped: {judged.factor}")
        self.agent = replace(self.agent, runs=())
        self.run = replace(self.run, status="cancelled")
        self.office.file(self.sheets, self.agent)
        self._notify("danger_zone", judged.factor, judged.tier, challenge)
        return self._reported(judged)

    def _halted(self, judged: Judged, status: ExecutionState, challenge: str) -> Reported:
        self.run = replace(self.run, status=status)
        self._file()
        self._notify("autonomy_pause", judged.factor, judged.tier, challenge)
        return self._reported(judged)

    def _challenged(self, tier: Tier, judged: Judged) -> str:
        reasons = (judged.factor, *self.reading.factors)
        self.agent, challenge, code = self.challenges.begin(
            self.sheets, self.agent, self.run.agent, self.report.hint, self.action, tier, reasons
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
        limit = self.loop.terms(self.caller, self.run.limit).steps
        return Reported(
            execution_id=self.run.id,
            step=self.run.count,
            status=self.run.status,
            autonomy=Directive(
                may_continue=judged.may_go,
                factors=(judged.factor, *self.reading.factors),
                stopped=judged.action == "stop",
                reason="" if judged.may_go else judged.factor,
                steps_remaining=max(0, limit - self.loop.spent(self.agent)),
                next_step_risk=judged.tier,
                notifications=(*self.agent.notices, *news, *self.told),
            ),
            confirmation=self.confirmation,
        )


def blocked(agent: Agent) -> AgentBlocked:
    id = agent.block.challenge if agent.block else ""
    return AgentBlocked(
        "This agent is blocked until a person has verified its step",
        reason="agent_blocked",
        verification_id=id,
        hint="A person has to enter the code that they were shown, or release it.",
    )


def bound(reading: Reading, report: Report) -> tuple[str, str]:
    """The operation that a step may call, and the digest of its parameters as far as it told them."""
    step = meant(reading, report)
    return step.operation, digest_of(step.params) if step.params is not None else ""


def meant(reading: Reading, report: Report) -> Named:
    """The call that a step is for: as the report says outright, or else as its hint names it."""
    only = reading.named[0] if len(reading.named) == 1 else Named("", None)
    operation = report.operation or only.operation
    named = only.params if only.operation == operation else None
    return Named(operation, named if report.params is None else report.params)


def action_of(reading: Reading, report: Report) -> str:
    """What a step is, whatever it looks like: its words, its operation and the parameters of that."""
    return hashlib.sha256("\0".join((reading.digest, *bound(reading, report))).encode()).hexdigest()


def plain(text: str) -> str:
    """A text of an agent for people to read: nothing in it moves a cursor or hides."""
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_SHOWN])


def _checked_name(name: str, caller: Caller) -> str:
    if caller.is_anonymous:
        raise Unauthenticated("Executions are for callers with a key", hint="Send an API key.")
    normal = unicodedata.normalize("NFKC", name).strip().casefold()
    if not normal or len(normal) > MAX_NAME or not normal.isprintable():
        raise InvalidParams(
            f"An agent is named with 1 to {MAX_NAME} printable characters", param="element_name", operation=STEP
        )
    return normal


def _found(agent: Agent, name: str, execution: str) -> Run | None:
    fitting = [run for run in agent.runs if run.agent == name and (not execution or run.id == execution)]
    return fitting[-1] if fitting else None


def _without(runs: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    return tuple(each for each in runs if each.id != run.id)


def _shown(run: Run) -> Execution:
    share = min(100.0, round(100 * run.count / run.limit, 1)) if run.limit else 0.0
    progress = Progress(current=run.count, total=run.limit, percentage=share, message=run.message)
    return Execution(
        execution_id=run.id, status=run.status, element_name=run.agent, started_at=run.started, progress=progress
    )


def _shown_end(finished: Finished) -> Execution:
    return replace(_shown(finished.run), finished_at=finished.finished, error=finished.error, summary=finished.summary)
