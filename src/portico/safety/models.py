"""Agents under supervision: what they report, what they are told, and what waits for a person. Decides nothing."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

ExecutionState: TypeAlias = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]
Outcome: TypeAlias = Literal["success", "failure", "skipped"]
Decision: TypeAlias = Literal["approve", "reject"]
NoticeType: TypeAlias = Literal["permission_pending", "autonomy_pause", "danger_zone", "status", "error"]


class Tier(StrEnum):
    """How much has to happen before an agent may go on."""

    ADVISORY = "advisory"
    CONFIRM = "confirm"
    VERIFY = "verify"
    DANGER_ZONE = "danger_zone"


class About(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What a notification is about."""

    operation: str = ""
    reason: str = ""
    level: str = ""
    verification_id: str = ""


class Notification(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Something that happened since an agent last reported."""

    type: NoticeType
    message: str
    metadata: About = About()
    timestamp: datetime


class Directive(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Whether an agent may take the step it has reported, and why."""

    may_continue: bool = msgspec.field(name="continue")
    factors: tuple[str, ...]
    stopped: bool = False
    reason: str = ""
    steps_remaining: int | None = None
    next_step_risk: Tier | None = None
    notifications: tuple[Notification, ...] = ()


class Progress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    current: int
    total: int
    percentage: float
    message: str = ""


class Execution(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where an execution is (MCP-AQL 8.4.3)."""

    execution_id: str
    status: ExecutionState
    element_name: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress | None = None
    error: dict[str, Any] | None = None
    summary: str = ""
    result: Any = None


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that somebody else has to agree to, as those see it who may."""

    token: str
    what: Literal["call", "step"]
    caller: str  # whose it is; nobody agrees to their own
    name: str
    operation: str
    params: dict[str, Any] = {}  # all of them, whole
    danger: str = ""
    reasons: tuple[str, ...] = ()
    issued: datetime
    expires: datetime
    digest: str  # of everything above that is agreed to; an approval names it


class Challenged(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step that only a person with the code can release. The code itself is never part of it."""

    id: str
    caller: str
    agent: str
    hint: str
    operation: str = ""  # of this site, if the step names one
    params: dict[str, Any] | None = None  # None if the step did not name them
    tier: Tier
    reasons: tuple[str, ...] = ()
    blocks: bool
    issued: datetime
    expires: datetime


class Blocked(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A caller whose agents do nothing more until a person has looked."""

    caller: str
    agent: str
    reason: str
    since: datetime
    verification_id: str


class Pending(msgspec.Struct, frozen=True):
    """Everything that waits for a person."""

    confirmations: tuple[Waiting, ...]
    challenges: tuple[Challenged, ...]
    blocks: tuple[Blocked, ...]


class PendingApprovals(Pending, frozen=True, kw_only=True):
    """A page of what waits for a person, every call whole."""

    more: Annotated[int, Meta(description="How many confirmations follow on later pages")] = 0
    cursor: Annotated[str, Meta(description="For the next page; empty on the last one")] = ""


class Code:
    """A verification code. It is shown only by who asks for it by name, never by printing or logging this."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def revealed(self) -> str:
        """The code itself, for a channel that agents cannot read."""
        return self._text

    def __repr__(self) -> str:
        return "Code(…)"
