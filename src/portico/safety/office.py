"""What all who decide share: the docket, the settings, the clock, and small things that are true for all of them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from portico.calls import Caller
from portico.config import Safety
from portico.errors import Forbidden, Unauthenticated
from portico.identity import APPROVE
from portico.oversight import Challenged, Code
from portico.safety.cases import Agent
from portico.safety.docket import Docket, Sheets
from portico.safety.policy import Policies

AGENT_DAYS = 30  # that something is known of an agent which does nothing
MAX_NOTICES = 20  # that wait for one agent


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
        sheets.put(msgspec.structs.replace(agent, notices=agent.notices[-MAX_NOTICES:]), forget)


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
            "This is for people who approve what others do",
            scope=APPROVE,
            hint="It needs a key with the scope approve.",
        )
