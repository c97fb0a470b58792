"""The execution loop: executions of agents from start to end. Runs no operations itself."""

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
from portico.safety.context import SafetyContext, agent_of, digest_of
from portico.safety.models import Execution, ExecutionProgress, ExecutionState, Notification
from portico.safety.records import AgentRecord, AgentRun, Broadcast, ConfirmationRecord, FinishedRecord
from portico.safety.reporting import (
    STEP,
    Outbox,
    ReportHandler,
    StepDecision,
    StepReport,
    action_digest,
    is_risk_of_call_only,
    read_report,
    resolve_call,
)
from portico.safety.transaction import Transaction

MAX_RUNS = 20  # of one caller, at once
MAX_NAME = 100
MAX_BROADCASTS = 1000
MAX_NEWS = 100
MAX_AUDITED = 10_000


class ExecutionLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_autonomous_steps: int
    steps_remaining: int
    risk_tolerance: str
    mode: str


class ExecutionStarted(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that has started, and its limits."""

    execution_id: str
    status: ExecutionState
    started_at: datetime
    limits: ExecutionLimits


class ExecutionLoop:
    def __init__(
        self,
        context: SafetyContext,
        confirmations: Confirmations,
        challenges: Challenges,
        operations: Callable[[], Mapping[str, Operation]],
    ) -> None:
        self._context = context
        self._confirmations = confirmations
        self._challenges = challenges
        self._operations = operations  # of the site, that agents may call
        self._audit_again_at: dict[str, datetime] = {}  # by agent: when a refusal is audited again

    @property
    def mode(self) -> str:
        return self._context.settings.mode

    # For agents

    async def start(
        self, name: str, goal: Mapping[str, Any], steps: int | None, caller: Caller, session: str
    ) -> ExecutionStarted:
        agent_name = _normalize_name(name, caller)
        await self.refuse_blocked(caller)
        terms, context = self._context.rules_for(caller, steps), self._context

        def work(transaction: Transaction) -> ExecutionStarted | SiteError:
            agent = self.load_agent(transaction, caller)
            if agent.block:
                return block_error(agent)
            if len(agent.runs) >= MAX_RUNS:
                return RateLimited(
                    f"{MAX_RUNS} executions are already running", limit=MAX_RUNS, hint="End one of them first."
                )
            now = context.clock()
            run = AgentRun(
                id=secrets.token_hex(16),
                agent=agent_name,
                status="running",
                started=now,
                touched=now,
                limit=terms.steps,
                goal=digest_of(goal),
                session=session,
            )
            context.save_agent(transaction, replace(agent, name=caller.name, runs=(*agent.runs, run)))
            transaction.audit(
                "EXECUTION_STARTED",
                execution=run.id,
                caller=agent.id,
                agent=agent_name,
                goal=run.goal,
                limit=run.limit,
                session=session,
            )
            remaining = max(0, terms.steps - context.steps_spent(agent))
            bounds = ExecutionLimits(
                max_autonomous_steps=terms.steps,
                steps_remaining=remaining,
                risk_tolerance=terms.tolerance,
                mode=self.mode,
            )
            return ExecutionStarted(
                execution_id=run.id, status=run.status, started_at=whole_seconds(now), limits=bounds
            )

        return await context.records.update([(AgentRecord, caller.rate_key)], work)

    async def report_step(self, report: StepReport, caller: Caller) -> StepDecision:
        """Decide whether a reported step may be taken. The decision is on disk when this returns."""
        name = _normalize_name(report.agent, caller)
        await self.refuse_blocked(caller)
        operations = self._operations()
        terms = self._context.rules_for(caller)
        reading = read_report(report, terms, operations)
        step = resolve_call(reading, report, operations)
        action = action_digest(reading, step)
        is_only_call = step.is_exact and is_risk_of_call_only(reading, step, terms, operations)
        call = confirmation_id(caller, "call", step.operation, step.params) if is_only_call else ""
        names = [(AgentRecord, caller.rate_key), (ConfirmationRecord, confirmation_id(caller, "step", STEP, action))]
        if call:
            names.append((ConfirmationRecord, call))
        await self._confirmations.drop_stale_params(caller.rate_key)
        operation = operations.get(step.operation)
        denial = self._context.policies.denial(operation, step.arguments, caller) if operation else ""
        news = await self._list_block_notices()
        outbox = Outbox()

        def work(transaction: Transaction) -> StepDecision | SiteError:
            outbox.challenges.clear()
            agent = self.load_agent(transaction, caller)
            if agent.block:
                return block_error(agent)
            run = _find_run(agent, name, report.execution)
            if run is None:
                return _no_execution(report.execution or name)
            return ReportHandler(
                self._context,
                self._confirmations,
                self._challenges,
                transaction,
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
                outbox,
            ).handle()

        decision = await self._context.records.update(names, work)
        for challenge, code in outbox.challenges:
            self._challenges.show(challenge, code)
        return decision

    async def _list_block_notices(self) -> list[Notification]:
        """Return the latest notifications about other blocked agents, in order."""
        broadcasts = await self._context.records.list_all(Broadcast, MAX_BROADCASTS)
        return sorted((broadcast.notice for broadcast in broadcasts), key=lambda notice: notice.timestamp)[-MAX_NEWS:]

    async def end(
        self, name: str, execution: str, status: Literal["completed", "cancelled"], summary: str, caller: Caller
    ) -> Execution:
        agent_name = _normalize_name(name, caller)
        await self.refuse_blocked(caller)

        def work(transaction: Transaction) -> Execution | SiteError:
            agent = self.load_agent(transaction, caller)
            if agent.block:
                return block_error(agent)
            run = _find_run(agent, agent_name, execution)
            if run is None:
                return _no_execution(execution or agent_name)
            agent, (finished,) = self._context.end_runs(transaction, agent, [run], status, summary)
            self._context.save_agent(transaction, agent)
            return to_finished_execution(finished)

        return await self._context.records.update([(AgentRecord, caller.rate_key)], work)

    async def status(self, id: str, caller: Caller) -> Execution | None:
        """Return the state of a caller's execution; None if it has none with this id."""
        agent = await self._context.records.read(AgentRecord, caller.rate_key)
        for run in agent.runs if agent else ():
            if run.id == id:
                return self._show_lapsed(run) if self._context.has_lapsed(run) else to_execution(run)
        finished = await self._context.records.read(FinishedRecord, id)
        return to_finished_execution(finished) if finished and finished.principal == caller.rate_key else None

    async def list_running(self) -> list[tuple[str, Execution]]:
        """Return the running executions of all callers, newest first, each with its caller."""
        agents = await self._context.records.list_all(AgentRecord)
        live = [(agent.id, run) for agent in agents for run in agent.runs if not self._context.has_lapsed(run)]
        live.sort(key=lambda pair: pair[1].started, reverse=True)
        return [(principal, to_execution(run)) for principal, run in live]

    # Blocks, pauses and ends

    async def refuse_blocked(self, caller: Caller) -> None:
        agent = await self._context.records.read(AgentRecord, caller.rate_key)
        if agent and agent.block:
            await self._challenges.reissue_expired(agent.block.challenge)
            await self._audit_blocked_attempt(agent)
            raise block_error(agent)

    async def _audit_blocked_attempt(self, agent: AgentRecord) -> None:
        """Audit the attempt of a blocked agent, at most once a minute."""
        now = self._context.clock()
        if now < self._audit_again_at.get(agent.id, now):
            return
        if len(self._audit_again_at) >= MAX_AUDITED:
            self._audit_again_at.clear()
        self._audit_again_at[agent.id] = now + timedelta(seconds=60)
        await self._context.records.update(
            [], lambda transaction: transaction.audit("OPERATION_DENIED", caller=agent.id, reason="blocked")
        )

    def load_agent(self, transaction: Transaction, caller: Caller) -> AgentRecord:
        """Return an agent as of now, without executions that have been silent for too long."""
        agent, now = agent_of(transaction, caller), self._context.clock()
        lapsed = [run for run in agent.runs if self._context.has_lapsed(run)]
        agent, _ = self._context.end_runs(transaction, agent, lapsed, "cancelled", "No step was reported for too long")
        agent_now = replace(
            agent,
            grants=tuple(grant for grant in agent.grants if now < grant.expires),
            pause=agent.pause if agent.pause and now < agent.pause.expires else None,
            undecided={step: until for step, until in agent.undecided.items() if now < until},
        )
        if lapsed:
            self._context.save_agent(transaction, agent_now)  # even if nothing else changes, so that they end only once
        return agent_now

    def _show_lapsed(self, run: AgentRun) -> Execution:
        return replace(to_execution(run), status="cancelled", finished_at=whole_seconds(self._context.lapses_at(run)))

    async def cancel_session(self, principal: str, session: str) -> None:
        """End the executions of a closed session."""

        def work(transaction: Transaction) -> None:
            self._cancel_runs(transaction, principal, lambda run: run.session == session, "The session is over")

        await self._context.records.update([(AgentRecord, principal)], work)

    async def stop(self, id: str, note: str, by: Caller) -> tuple[str, Execution]:
        """End an execution of any caller; return the caller and the execution."""
        principal = next(
            (owner for owner, execution in await self.list_running() if execution.execution_id == id), None
        )
        if principal is None:
            raise _no_execution(id)

        def work(transaction: Transaction) -> Execution | SiteError:
            details = {"by": by.rate_key, "note": note[:MAX_NOTE]}
            finished = self._cancel_runs(
                transaction, principal, lambda run: run.id == id, f"Ended by {by.rate_key}", **details
            )
            return to_finished_execution(finished[0]) if finished else _no_execution(id)

        return principal, await self._context.records.update([(AgentRecord, principal)], work)

    def _cancel_runs(
        self,
        transaction: Transaction,
        principal: str,
        matches: Callable[[AgentRun], bool],
        summary: str,
        **details: str,
    ) -> list[FinishedRecord]:
        """End some executions of a caller."""
        agent = transaction.get(AgentRecord, principal)
        over = [run for run in agent.runs if matches(run)] if agent else []
        if agent is None or not over:
            return []
        agent, finished = self._context.end_runs(transaction, agent, over, "cancelled", summary, **details)
        self._context.save_agent(transaction, agent)
        return finished

    async def clear_pauses(self) -> None:
        """Clear pauses after a restart, so that steps are evaluated again. Blocks stay (8.8.3)."""
        for agent in await self._context.records.list_all(AgentRecord):
            if agent.pause:
                await self._context.records.update(
                    [(AgentRecord, agent.id)], lambda transaction, id=agent.id: self._unpause(transaction, id)
                )

    def _unpause(self, transaction: Transaction, id: str) -> None:
        agent = transaction.get(AgentRecord, id)
        if agent:
            self._context.save_agent(transaction, replace(agent, pause=None))


def block_error(agent: AgentRecord) -> AgentBlocked:
    id = agent.block.challenge if agent.block else ""
    return AgentBlocked(
        "This agent is blocked until a person has verified its step",
        reason="agent_blocked",
        verification_id=id,
        hint="A person has to enter the code shown to them, or release the agent.",
    )


def _no_execution(name: str) -> UnknownTask:
    return UnknownTask("There is no such execution", execution_id=name, hint="Start one with execute_agent.")


def _normalize_name(name: str, caller: Caller) -> str:
    if caller.is_anonymous:
        raise Unauthenticated("Executions need an API key", hint="Send one as a bearer token or x-api-key.")
    normal = unicodedata.normalize("NFKC", name).strip().casefold()
    if not normal or len(normal) > MAX_NAME or not normal.isprintable():
        raise InvalidParams(
            f"`element_name` must have 1 to {MAX_NAME} printable characters", param="element_name", operation=STEP
        )
    return normal


def _find_run(agent: AgentRecord, name: str, execution: str) -> AgentRun | None:
    runs = [run for run in agent.runs if run.agent == name and (not execution or run.id == execution)]
    return runs[-1] if runs else None


def to_execution(run: AgentRun) -> Execution:
    percentage = min(100.0, round(100 * run.count / run.limit, 1)) if run.limit else 0.0
    progress = ExecutionProgress(current=run.count, total=run.limit, percentage=percentage, message=run.message)
    return Execution(
        execution_id=run.id,
        status=run.status,
        element_name=run.agent,
        started_at=whole_seconds(run.started),
        progress=progress,
    )


def to_finished_execution(finished: FinishedRecord) -> Execution:
    finished_at = whole_seconds(finished.finished)
    return replace(to_execution(finished.run), finished_at=finished_at, error=finished.error, summary=finished.summary)
