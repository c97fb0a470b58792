"""What all who decide share: the docket, the settings, the clock, and small things that are true for all of them."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from portico.access.identity import APPROVE, BY_KEY
from portico.config import Safety
from portico.errors import Forbidden, Unauthenticated
from portico.requests import Caller
from portico.safety.evaluation import Terms, terms_of
from portico.safety.models import Challenged, Code, ExecutionState
from portico.safety.policy import Policies
from portico.safety.records import Agent, Finished, Run
from portico.safety.transaction import Docket, Sheets

AGENT_DAYS = 30  # that something is known of an agent which does nothing
MAX_NOTICES = 20  # that wait for one agent
FINISHED_DAYS = 30
MAX_SUMMARY = 1000
MAX_NOTED = 2000  # characters of what an agent says that are kept beside what is approved


@dataclass(frozen=True, slots=True)
class Office:
    docket: Docket
    settings: Safety
    policies: Policies
    secret: bytes
    show: Callable[[Challenged, Code], None]  # to people, where agents cannot read
    clock: Callable[[], datetime]

    def after(self, seconds: float) -> datetime:
        return self.clock() + timedelta(seconds=seconds)

    def file(self, sheets: Sheets, agent: Agent) -> None:
        """Keep what is known of an agent: for good while it is blocked, else for a while."""
        forget = None if agent.block else self.clock() + timedelta(days=AGENT_DAYS)
        sheets.put(replace(agent, notices=agent.notices[-MAX_NOTICES:]), forget)

    def terms(self, caller: Caller, lowered: int | None = None) -> Terms:
        """What holds for a caller. Settings of its own go by its key, never by the name it gives itself."""
        own = self.settings.agent
        is_key = caller.id.startswith(BY_KEY)
        return terms_of(self.settings, own.get(caller.id) or (own.get(caller.name) if is_key else None), lowered)

    def finish(
        self, sheets: Sheets, agent: Agent, run: Run, status: ExecutionState, summary: str, **said: str
    ) -> Finished:
        """End an execution. What else is `said` of that goes into the audit trail."""
        finished = Finished(
            id=run.id,
            principal=agent.id,
            run=replace(run, status=status, steps=()),
            finished=self.clock(),
            summary=summary[:MAX_SUMMARY],
        )
        sheets.put(finished, self.clock() + timedelta(days=FINISHED_DAYS))
        whose = {"execution": run.id, "caller": agent.id, "agent": run.agent}
        sheets.tell(f"EXECUTION_{status.upper()}", **whose, reason=summary[:200], **said)
        return finished

    def end_runs(
        self, sheets: Sheets, agent: Agent, runs: Iterable[Run], status: ExecutionState, summary: str, **said: str
    ) -> tuple[Agent, list[Finished]]:
        """End executions with what they asked for and were allowed. What paused their agent stays: it is not theirs."""
        over = {run.id: run for run in runs}
        if not over:
            return agent, []
        withdrawn = {id for id, request in agent.requests.items() if request.execution in over}
        left = self._pass_pause_on(agent, over.values(), [run for run in agent.runs if run.id not in over])
        agent = replace(
            agent,
            runs=left,
            grants=agent.grants if left else tuple(grant for grant in agent.grants if grant.verified),
            waiting={id: until for id, until in agent.waiting.items() if id not in withdrawn},
            given={id: until for id, until in agent.given.items() if id not in withdrawn},
        )
        return agent, [self.finish(sheets, agent, run, status, summary, **said) for run in over.values()]

    def _pass_pause_on(self, agent: Agent, ended: Iterable[Run], left: Iterable[Run]) -> tuple[Run, ...]:
        """Return the executions that go on: paused if one that ended was, for a step without a decision so far."""
        is_undecided = any(self.clock() < until for until in agent.undecided.values())
        if is_undecided and any(run.is_paused_for_person for run in ended):
            return tuple(replace(run, status="paused", held=False) for run in left)
        return tuple(left)

    def has_lapsed(self, run: Run) -> bool:
        """Return whether nothing was heard of an execution for too long, so that it is over."""
        return self.clock() >= self.lapses_at(run)

    def lapses_at(self, run: Run) -> datetime:
        """Return when an execution is over if nothing more is heard of it."""
        return run.touched + timedelta(seconds=self.settings.idle)

    def is_live(self, agent: Agent | None, execution: str) -> bool:
        """Return whether an execution of an agent goes on. What belongs to none is never over with one."""
        runs = agent.runs if agent else ()
        return not execution or any(run.id == execution and not self.has_lapsed(run) for run in runs)

    def spent(self, agent: Agent) -> int:
        """Steps of all agents of a caller in the window that is counted: a new execution begins no new one."""
        if agent.window is None:
            return 0
        end = agent.window + timedelta(seconds=self.settings.window)
        # Nor does waiting, as long as an execution goes on: its limit is on its steps, not on its pace.
        is_over = self.clock() >= end and not any(run.started < end for run in agent.runs)
        return 0 if is_over else agent.spent

    def spent_with(self, agent: Agent) -> tuple[Agent, int]:
        """An agent with one more step in its window, and how many these are."""
        count = self.spent(agent) + 1
        return replace(agent, spent=count, window=agent.window if count > 1 else self.clock()), count


def now() -> datetime:
    return datetime.now(UTC)


def agent_of(sheets: Sheets, caller: Caller) -> Agent:
    return sheets.get(Agent, caller.rate_key) or Agent(id=caller.rate_key, name=caller.name)


def digest_of(params: Mapping[str, Any]) -> str:
    """Of all parameters of a call. Nobody can find other ones with the same digest."""
    return hashlib.sha256(msgspec.json.encode(params, order="sorted")).hexdigest()


def check_approver(caller: Caller) -> None:
    """Only who holds the scope may agree to anything; said before anything is looked up."""
    if caller.is_anonymous:
        raise Unauthenticated("This needs a key with the scope approve", scope=APPROVE)
    if APPROVE not in caller.scopes:
        raise Forbidden(
            "This is only for people who approve others",
            scope=APPROVE,
        )


def plain(text: str) -> str:
    """Return a text of an agent for people to read, whole: nothing in it moves a cursor or hides.

    What cannot be printed is named, as in U+202E, so that people can tell what was there.
    """
    return "".join(each if each.isprintable() else f"[U+{ord(each):04X}]" for each in text)


def abridge(text: str) -> str:
    """Return a text of an agent for a record that nobody approves by: a long one is cut, and says so."""
    rest = len(text) - MAX_NOTED
    return plain(text[:MAX_NOTED]) + (f" … and {rest} more characters" if rest > 0 else "")
