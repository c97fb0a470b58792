"""Stored records of agents, confirmations and challenges."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from portico.safety.models import ExecutionState, Notification, RiskTier

ConfirmationState: TypeAlias = Literal["pending", "approved", "rejected", "used", "revoked"]


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step that an agent may take once, exactly as it was reported."""

    number: int
    hint: str  # the digest of what was reported
    operation: str = ""  # of this site, if the step names one
    params: str = ""  # their digest; empty if the step named none
    by: str = ""  # who approved it, if that was necessary
    used: bool = False
    outcome: Literal["", "success", "failure"] = ""  # as seen by the site itself


class AgentRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A running execution."""

    id: str
    agent: str
    status: ExecutionState
    started: datetime
    touched: datetime
    limit: int
    goal: str = ""
    session: str = ""
    count: int = 0
    steps: tuple[StepRecord, ...] = ()  # the newest
    # Digests of the newest hints, to detect repetition. Stores know them by their former name.
    actions: tuple[str, ...] = msgspec.field(default=(), name="seen")
    silent: int = 0  # steps in a row without the outcome of the one before
    message: str = ""
    held: bool = False  # by a verification, which holds all agents of the caller

    @property
    def is_paused_for_person(self) -> bool:
        """Whether one of its steps waits for an approval, not for a code."""
        return self.status == "paused" and not self.held


class FinishedRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An execution that has ended."""

    id: str
    principal: str
    run: AgentRun
    finished: datetime
    summary: str = ""
    error: dict[str, Any] | None = None


class AgentBlock(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    reason: str
    since: datetime
    challenge: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A verification that is required before anything else."""

    challenge: str
    hint: str
    expires: datetime


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A person's approval of one step, valid once and for a limited time."""

    hint: str
    by: str
    expires: datetime
    verified: bool = False  # with a code, which overrides every other check


class ConfirmationRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An agent's summary of a confirmation that it requested."""

    size: int = 0  # bytes of its record, parameters included
    stored_until: datetime | None = None  # None for a record without parameters
    execution: str = ""  # that requested it; it is withdrawn when that ends


class AgentRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of all agents of one caller, whatever their names."""

    id: str  # the principal
    name: str = ""  # of the caller
    block: AgentBlock | None = None
    pause: Pause | None = None
    runs: tuple[AgentRun, ...] = ()
    window: datetime | None = None  # since when steps are counted
    spent: int = 0
    grants: tuple[Grant, ...] = ()
    waiting: dict[str, datetime] = {}  # undecided confirmations, and until when they can be decided
    requests: dict[str, ConfirmationRequest] = {}  # every confirmation whose parameters are stored
    undecided: dict[str, datetime] = {}  # digests of steps that paused it for a person, and until when
    # Confirmations that are unused, and until when they are valid. Stores know them by their former name.
    approved: dict[str, datetime] = msgspec.field(default_factory=dict[str, datetime], name="given")
    notices: tuple[Notification, ...] = ()  # for the next step


class ConfirmationRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A call or step that needs the approval of another caller."""

    id: str
    nonce: str
    principal: str
    name: str
    what: Literal["call", "step"]
    operation: str
    digest: str
    params: dict[str, Any] = {}  # complete, for the approver; empty once it can no longer be decided or used
    danger: str = ""
    reasons: tuple[str, ...] = ()
    issued: datetime
    expires: datetime
    state: ConfirmationState = "pending"
    by: str = ""
    at: datetime | None = None  # when it was used
    session: str = ""
    execution: str = ""  # that requested it, if any; it is withdrawn when that ends


class Challenge(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step that waits for a code, of which only a keyed digest is stored."""

    id: str
    principal: str
    agent: str
    hint: str
    digest: str  # of the hint
    operation: str = ""
    params: dict[str, Any] | None = None
    tier: RiskTier
    reasons: tuple[str, ...]
    blocks: bool
    issued: datetime
    expires: datetime
    code: str = ""  # empty once a wrong code was entered


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """The notification that an agent was blocked, for all running agents."""

    id: str  # of the challenge
    notice: Notification


class Attempts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Recent wrong codes, of one agent or of all."""

    id: str
    failed: tuple[float, ...] = ()  # seconds since 1970
    locked: float = 0.0  # until then codes are refused
    lockouts: int = 0
