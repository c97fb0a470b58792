"""SafetyContext: the records, settings and clock that the parts of `safety` share."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from portico.access.identity import APPROVE, KEY_PREFIX
from portico.config import Safety
from portico.errors import Forbidden, Unauthenticated
from portico.requests import Caller
from portico.safety.evaluation import EvaluationRules, rules_of
from portico.safety.models import ExecutionState, PendingChallenge, VerificationCode
from portico.safety.policy import Policies
from portico.safety.records import AgentRecord, AgentRun, FinishedRecord
from portico.safety.transaction import RecordStore, Transaction

AGENT_DAYS = 30  # for which the record of an idle agent is stored
MAX_NOTICES = 20  # stored for one agent
FINISHED_DAYS = 30
MAX_SUMMARY = 1000
MAX_EXCERPT = 2000  # characters of an agent's text in a record that nobody approves by


@dataclass(frozen=True, slots=True)
class SafetyContext:
    records: RecordStore
    settings: Safety
    policies: Policies
    secret: bytes
    show_code: Callable[
        [PendingChallenge, VerificationCode], None
    ]  # to people, through channels that agents cannot read
    clock: Callable[[], datetime]

    def after(self, seconds: float) -> datetime:
        return self.clock() + timedelta(seconds=seconds)

    def save_agent(self, transaction: Transaction, agent: AgentRecord) -> None:
        """Store an agent: indefinitely while it is blocked, otherwise for a while."""
        forget = None if agent.block else self.clock() + timedelta(days=AGENT_DAYS)
        transaction.put(replace(agent, notices=agent.notices[-MAX_NOTICES:]), forget)

    def rules_for(self, caller: Caller, max_steps: int | None = None) -> EvaluationRules:
        """Return the rules for a caller. Its own settings are found by its key, never by a name it chose."""
        own = self.settings.agent
        is_key = caller.id.startswith(KEY_PREFIX)
        return rules_of(self.settings, own.get(caller.id) or (own.get(caller.name) if is_key else None), max_steps)

    def finish(
        self,
        transaction: Transaction,
        agent: AgentRecord,
        run: AgentRun,
        status: ExecutionState,
        summary: str,
        **details: str,
    ) -> FinishedRecord:
        """End an execution. The `details` go into the audit trail."""
        finished = FinishedRecord(
            id=run.id,
            principal=agent.id,
            run=replace(run, status=status, steps=()),
            finished=self.clock(),
            summary=summary[:MAX_SUMMARY],
        )
        transaction.put(finished, self.clock() + timedelta(days=FINISHED_DAYS))
        subject = {"execution": run.id, "caller": agent.id, "agent": run.agent}
        transaction.audit(f"EXECUTION_{status.upper()}", **subject, reason=summary[:200], **details)
        return finished

    def end_runs(
        self,
        transaction: Transaction,
        agent: AgentRecord,
        runs: Iterable[AgentRun],
        status: ExecutionState,
        summary: str,
        **details: str,
    ) -> tuple[AgentRecord, list[FinishedRecord]]:
        """End executions with their requests and approvals. A pause of the agent remains: it is not theirs."""
        over = {run.id: run for run in runs}
        if not over:
            return agent, []
        withdrawn = {id for id, request in agent.requests.items() if request.execution in over}
        remaining = self._pass_pause_on(agent, over.values(), [run for run in agent.runs if run.id not in over])
        agent = replace(
            agent,
            runs=remaining,
            grants=agent.grants if remaining else tuple(grant for grant in agent.grants if grant.verified),
            waiting={id: until for id, until in agent.waiting.items() if id not in withdrawn},
            approved={id: until for id, until in agent.approved.items() if id not in withdrawn},
        )
        return agent, [self.finish(transaction, agent, run, status, summary, **details) for run in over.values()]

    def _pass_pause_on(
        self, agent: AgentRecord, finished_runs: Iterable[AgentRun], remaining: Iterable[AgentRun]
    ) -> tuple[AgentRun, ...]:
        """Return the remaining executions, paused if one that ended was paused for a step that is still undecided."""
        is_undecided = any(self.clock() < until for until in agent.undecided.values())
        if is_undecided and any(run.is_paused_for_person for run in finished_runs):
            return tuple(replace(run, status="paused", held=False) for run in remaining)
        return tuple(remaining)

    def has_lapsed(self, run: AgentRun) -> bool:
        """Return whether an execution has been silent for too long and is therefore over."""
        return self.clock() >= self.lapses_at(run)

    def lapses_at(self, run: AgentRun) -> datetime:
        """Return when an execution ends if it stays silent."""
        return run.touched + timedelta(seconds=self.settings.idle)

    def is_live(self, agent: AgentRecord | None, execution: str) -> bool:
        """Return whether an execution of an agent is running; also if there is no execution to end."""
        runs = agent.runs if agent else ()
        return not execution or any(run.id == execution and not self.has_lapsed(run) for run in runs)

    def steps_spent(self, agent: AgentRecord) -> int:
        """Return the steps of a caller's agents in the current window, which outlasts single executions."""
        if agent.window is None:
            return 0
        end = agent.window + timedelta(seconds=self.settings.window)
        # Waiting starts no new window while an execution runs: its limit is on its steps, not on its pace.
        is_over = self.clock() >= end and not any(run.started < end for run in agent.runs)
        return 0 if is_over else agent.spent

    def count_step(self, agent: AgentRecord) -> tuple[AgentRecord, int]:
        """Return an agent with one more step in its window, and the number of steps in it."""
        count = self.steps_spent(agent) + 1
        return replace(agent, spent=count, window=agent.window if count > 1 else self.clock()), count


def now() -> datetime:
    return datetime.now(UTC)


def agent_of(transaction: Transaction, caller: Caller) -> AgentRecord:
    return transaction.get(AgentRecord, caller.rate_key) or AgentRecord(id=caller.rate_key, name=caller.name)


def digest_of(params: Mapping[str, Any]) -> str:
    """Return a collision-resistant digest of all parameters of a call."""
    return hashlib.sha256(msgspec.json.encode(params, order="sorted")).hexdigest()


def check_approver(caller: Caller) -> None:
    """Raise unless the caller has the scope `approve`. Checked before any lookup, so that a refusal reveals nothing."""
    if caller.is_anonymous:
        raise Unauthenticated("This needs an API key with the scope `approve`", scope=APPROVE)
    if APPROVE not in caller.scopes:
        raise Forbidden(
            "This needs the scope `approve`",
            scope=APPROVE,
        )


def escape_unprintable(text: str) -> str:
    """Return an agent's text for people to read in full, with nothing hidden and no control characters.

    Unprintable characters are shown by their code points, such as U+202E.
    """
    return "".join(character if character.isprintable() else f"[U+{ord(character):04X}]" for character in text)


def abridge(text: str) -> str:
    """Return an agent's text for a record that nobody approves by, truncated with a remark if it is long."""
    rest = len(text) - MAX_EXCERPT
    return escape_unprintable(text[:MAX_EXCERPT]) + (f" … and {rest} more characters" if rest > 0 else "")
