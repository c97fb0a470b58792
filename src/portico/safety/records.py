"""What is written down of agents, confirmations and challenges. Says what things are; decides nothing."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from portico.safety.models import ExecutionState, Notification, Tier

Waits: TypeAlias = Literal["pending", "approved", "rejected", "used", "revoked"]


class Step(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step that an agent may take: once, and only as it was reported."""

    number: int
    hint: str  # the digest of what was reported
    operation: str = ""  # of this site, if it names one
    params: str = ""  # their digest; empty if it did not say with which parameters
    by: str = ""  # who agreed to it, if somebody had to
    used: bool = False
    outcome: Literal["", "success", "failure"] = ""  # as far as the site itself knows


class Run(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An execution that is under way."""

    id: str
    agent: str
    status: ExecutionState
    started: datetime
    touched: datetime
    limit: int
    goal: str = ""
    session: str = ""
    count: int = 0
    steps: tuple[Step, ...] = ()  # the newest
    seen: tuple[str, ...] = ()  # digests of the newest hints, to notice repetition
    silent: int = 0  # steps in a row of which the outcome before was not told
    message: str = ""
    held: bool = False  # paused by a verification, which holds all agents of the caller

    @property
    def is_paused_for_person(self) -> bool:
        """Whether one of its steps waits for an approval, not for a code."""
        return self.status == "paused" and not self.held


class Finished(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An execution that has ended."""

    id: str
    principal: str
    run: Run
    finished: datetime
    summary: str = ""
    error: dict[str, Any] | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    reason: str
    since: datetime
    challenge: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A verification that must come before anything else."""

    challenge: str
    hint: str
    expires: datetime


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A person's word for one step, good once and for a while."""

    hint: str
    by: str
    expires: datetime
    verified: bool = False  # with a code: then nothing else is asked


class ConfirmationRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an agent keeps in mind of a confirmation that it has asked for."""

    size: int = 0  # bytes of its record, parameters included
    stored_until: datetime | None = None  # None for a record without parameters
    execution: str = ""  # that wants it, and with which it is withdrawn


class Agent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All there is to know of the agents of one caller, whatever they call themselves."""

    id: str  # the principal
    name: str = ""  # of the caller
    block: Block | None = None
    pause: Pause | None = None
    runs: tuple[Run, ...] = ()
    window: datetime | None = None  # since when steps are counted
    spent: int = 0
    grants: tuple[Grant, ...] = ()
    waiting: dict[str, datetime] = {}  # confirmations that may still be given, and until when
    requests: dict[str, ConfirmationRequest] = {}  # every confirmation of which the parameters are stored
    undecided: dict[str, datetime] = {}  # digests of steps that paused it for a person, and until when they do
    given: dict[str, datetime] = {}  # those that were, and were not used yet
    notices: tuple[Notification, ...] = ()  # for the next step


class Confirmation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that somebody else has to agree to."""

    id: str
    nonce: str
    principal: str
    name: str
    what: Literal["call", "step"]
    operation: str
    digest: str
    params: dict[str, Any] = {}  # for the approver, whole; empty once it can be neither decided nor used
    danger: str = ""
    reasons: tuple[str, ...] = ()
    issued: datetime
    expires: datetime
    state: Waits = "pending"
    by: str = ""
    at: datetime | None = None  # when it was used
    session: str = ""
    execution: str = ""  # that wants it, if one does; it is withdrawn when that ends


class Challenge(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step that waits for a code. Of the code only a keyed digest is kept."""

    id: str
    principal: str
    agent: str
    hint: str
    digest: str  # of the hint
    operation: str = ""
    params: dict[str, Any] | None = None
    tier: Tier
    reasons: tuple[str, ...]
    blocks: bool
    issued: datetime
    expires: datetime
    code: str = ""  # empty once it was tried in vain


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """The news that an agent was blocked, for all that are at work."""

    id: str  # of the challenge
    notice: Notification


class Attempts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Codes that were wrong lately, for one agent or for all."""

    id: str
    failed: tuple[float, ...] = ()  # seconds since 1970
    locked: float = 0.0  # until then no code is looked at
    lockouts: int = 0
