"""The safety loop: executions of agents, from their start to their end. Runs nothing itself."""

import secrets
import unicodedata
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from portico.catalog import Operation, whole_seconds
from portico.errors import AgentBlocked, InvalidParams, RateLimited, SiteError, Unauthenticated, UnknownTask
from portico.requests import Caller
from portico.safety.challenges import MAX_NOTE, Challenges
from portico.safety.confirmations import Confirmations, confirmation_id
from portico.safety.context import Office, agent_of, digest_of
from portico.safety.models import Execution, ExecutionState, Notification, Progress
from portico.safety.records import Agent, Broadcast, Confirmation, Finished, Run
from portico.safety.reporting import (
    STEP,
    Report,
    Reported,
    Reporting,
    Sent,
    action_of,
    bound,
    read_report,
    says_no_more,
)
from portico.safety.transaction import Sheets

MAX_RUNS = 20  # of one caller, at once
MAX_NAME = 100
MAX_BROADCASTS = 1000
MAX_NEWS = 100
MAX_REFUSED = 10_000


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    max_autonomous_steps: int
    steps_remaining: int
    risk_tolerance: str
    mode: str


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that has begun, and what holds for it."""

    execution_id: str
    status: ExecutionState
    started_at: datetime
    limits: Bounds


class Loop:
    def __init__(
        self,
        office: Office,
        confirmations: Confirmations,
        challenges: Challenges,
        operations: Callable[[], Mapping[str, Operation]],
    ) -> None:
        self._office = office
        self._confirmations = confirmations
        self._challenges = challenges
        self._operations = operations  # of the site, that agents could have run
        self._refused: dict[str, datetime] = {}  # until when it is not written down again that one was

    @property
    def mode(self) -> str:
        return self._office.settings.mode

    # What agents do

    async def start(
        self, name: str, goal: Mapping[str, Any], steps: int | None, caller: Caller, session: str
    ) -> Started:
        agent_name = _checked_name(name, caller)
        await self.refuse_blocked(caller)
        terms, office = self._office.terms(caller, steps), self._office

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
                "EXECUTION_STARTED",
                execution=run.id,
                caller=agent.id,
                agent=agent_name,
                goal=run.goal,
                limit=run.limit,
                session=session,
            )
            left = max(0, terms.steps - office.spent(agent))
            bounds = Bounds(
                max_autonomous_steps=terms.steps, steps_remaining=left, risk_tolerance=terms.tolerance, mode=self.mode
            )
            return Started(execution_id=run.id, status=run.status, started_at=whole_seconds(now), limits=bounds)

        return await office.docket.change([(Agent, caller.rate_key)], work)

    async def record(self, report: Report, caller: Caller) -> Reported:
        """Hear of a step, and say whether it may be taken. What is said holds from when this returns."""
        name = _checked_name(report.agent, caller)
        await self.refuse_blocked(caller)
        operations = self._operations()
        terms = self._office.terms(caller)
        reading = read_report(report, terms, operations)
        step = bound(reading, report, operations)
        action = action_of(reading, step)
        is_only_call = step.is_exact and says_no_more(reading, step, terms, operations)
        call = confirmation_id(caller, "call", step.operation, step.params) if is_only_call else ""
        names = [(Agent, caller.rate_key), (Confirmation, confirmation_id(caller, "step", STEP, action))]
        if call:
            names.append((Confirmation, call))
        await self._confirmations.drop_stale_params(caller.rate_key)
        operation = operations.get(step.operation)
        denial = self._office.policies.denial(operation, step.arguments, caller) if operation else ""
        news = await self._news()
        sent = Sent()

        def work(sheets: Sheets) -> Reported | SiteError:
            sent.challenges.clear()
            agent = self.current(sheets, caller)
            if agent.block:
                return blocked(agent)
            run = _found(agent, name, report.execution)
            if run is None:
                return _no_execution(report.execution or name)
            return Reporting(
                self._office,
                self._confirmations,
                self._challenges,
                sheets,
                agent,
                run,
                report,
                reading,
                step,
                action,
                call,
                denial,
                caller,
                news,
                sent,
            ).answered()

        reported = await self._office.docket.change(names, work)
        for challenge, code in sent.challenges:
            self._challenges.show(challenge, code)
        return reported

    async def _news(self) -> list[Notification]:
        """Of other agents that are blocked: the newest, in the order that they came in."""
        known = await self._office.docket.all(Broadcast, MAX_BROADCASTS)
        return sorted((each.notice for each in known), key=lambda notice: notice.timestamp)[-MAX_NEWS:]

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
                return _no_execution(execution or agent_name)
            agent, (finished,) = self._office.end_runs(sheets, agent, [run], status, summary)
            self._office.file(sheets, agent)
            return _shown_end(finished)

        return await self._office.docket.change([(Agent, caller.rate_key)], work)

    async def status(self, id: str, caller: Caller) -> Execution | None:
        """Where an execution of this caller is; None if it has none of this id."""
        agent = await self._office.docket.read(Agent, caller.rate_key)
        for run in agent.runs if agent else ():
            if run.id == id:
                return self._show_lapsed(run) if self._office.has_lapsed(run) else _shown(run)
        finished = await self._office.docket.read(Finished, id)
        return _shown_end(finished) if finished and finished.principal == caller.rate_key else None

    async def under_way(self) -> list[tuple[str, Execution]]:
        """The executions of all callers that are not over, the newest first."""
        agents = await self._office.docket.all(Agent)
        live = [(each.id, run) for each in agents for run in each.runs if not self._office.has_lapsed(run)]
        live.sort(key=lambda pair: pair[1].started, reverse=True)
        return [(principal, _shown(run)) for principal, run in live]

    # What happens to agents

    async def refuse_blocked(self, caller: Caller) -> None:
        agent = await self._office.docket.read(Agent, caller.rate_key)
        if agent and agent.block:
            await self._challenges.show_again(agent.block.challenge)
            await self._told_of(agent)
            raise blocked(agent)

    async def _told_of(self, agent: Agent) -> None:
        """Write down that a blocked agent has tried something; once in a minute is enough."""
        now = self._office.clock()
        if now < self._refused.get(agent.id, now):
            return
        if len(self._refused) >= MAX_REFUSED:
            self._refused.clear()
        self._refused[agent.id] = now + timedelta(seconds=60)
        await self._office.docket.change(
            [], lambda sheets: sheets.tell("OPERATION_DENIED", caller=agent.id, reason="blocked")
        )

    def current(self, sheets: Sheets, caller: Caller) -> Agent:
        """An agent as of now: executions that were silent for too long are over."""
        agent, now = agent_of(sheets, caller), self._office.clock()
        lapsed = [run for run in agent.runs if self._office.has_lapsed(run)]
        agent, _ = self._office.end_runs(sheets, agent, lapsed, "cancelled", "Nothing was heard of it for too long")
        current = replace(
            agent,
            grants=tuple(each for each in agent.grants if now < each.expires),
            pause=agent.pause if agent.pause and now < agent.pause.expires else None,
            undecided={step: until for step, until in agent.undecided.items() if now < until},
        )
        if lapsed:
            self._office.file(sheets, current)  # also if nothing else is: they end once
        return current

    def _show_lapsed(self, run: Run) -> Execution:
        return replace(_shown(run), status="cancelled", finished_at=whole_seconds(self._office.lapses_at(run)))

    async def cancel(self, principal: str, session: str) -> None:
        """End the executions of a session that is over."""

        def work(sheets: Sheets) -> None:
            self._stop(sheets, principal, lambda run: run.session == session, "The session is over")

        await self._office.docket.change([(Agent, principal)], work)

    async def stop(self, id: str, note: str, by: Caller) -> tuple[str, Execution]:
        """End an execution, whosever it is; that is given back, too."""
        principal = next((each for each, known in await self.under_way() if known.execution_id == id), None)
        if principal is None:
            raise _no_execution(id)

        def work(sheets: Sheets) -> Execution | SiteError:
            said = {"by": by.rate_key, "note": note[:MAX_NOTE]}
            ended = self._stop(sheets, principal, lambda run: run.id == id, f"Ended by {by.rate_key}", **said)
            return _shown_end(ended[0]) if ended else _no_execution(id)

        return principal, await self._office.docket.change([(Agent, principal)], work)

    def _stop(
        self, sheets: Sheets, principal: str, is_over: Callable[[Run], bool], summary: str, **said: str
    ) -> list[Finished]:
        """End some executions of a caller."""
        agent = sheets.get(Agent, principal)
        over = [run for run in agent.runs if is_over(run)] if agent else []
        if agent is None or not over:
            return []
        agent, finished = self._office.end_runs(sheets, agent, over, "cancelled", summary, **said)
        self._office.file(sheets, agent)
        return finished

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


def blocked(agent: Agent) -> AgentBlocked:
    id = agent.block.challenge if agent.block else ""
    return AgentBlocked(
        "This agent is blocked until a person has verified its step",
        reason="agent_blocked",
        verification_id=id,
        hint="A person has to enter the code they were shown, or release it.",
    )


def _no_execution(name: str) -> UnknownTask:
    return UnknownTask("There is no such execution", execution_id=name, hint="Start one with execute_agent.")


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


def _shown(run: Run) -> Execution:
    share = min(100.0, round(100 * run.count / run.limit, 1)) if run.limit else 0.0
    progress = Progress(current=run.count, total=run.limit, percentage=share, message=run.message)
    return Execution(
        execution_id=run.id,
        status=run.status,
        element_name=run.agent,
        started_at=whole_seconds(run.started),
        progress=progress,
    )


def _shown_end(finished: Finished) -> Execution:
    ended = whole_seconds(finished.finished)
    return replace(_shown(finished.run), finished_at=ended, error=finished.error, summary=finished.summary)
