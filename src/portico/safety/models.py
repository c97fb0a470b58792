"""Result types of supervision: executions, notifications, directives, and what waits for a person."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

ExecutionState: TypeAlias = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]
Outcome: TypeAlias = Literal["success", "failure", "skipped"]
Decision: TypeAlias = Literal["approve", "reject"]
NoticeType: TypeAlias = Literal["permission_pending", "autonomy_pause", "danger_zone", "status", "error"]


class RiskTier(StrEnum):
    """What has to happen before an agent may continue."""

    ADVISORY = "advisory"
    CONFIRM = "confirm"
    VERIFY = "verify"
    DANGER_ZONE = "danger_zone"


class NotificationSubject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What a notification is about."""

    operation: str = ""
    reason: str = ""
    level: str = ""
    verification_id: str = ""


class Notification(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An event since an agent's last report."""

    type: NoticeType
    message: str
    metadata: NotificationSubject = NotificationSubject()
    timestamp: datetime


class Directive(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Whether an agent may take the step that it reported, and why."""

    may_continue: bool = msgspec.field(name="continue")
    factors: tuple[str, ...]
    stopped: bool = False
    reason: str = ""
    steps_remaining: int | None = None
    next_step_risk: RiskTier | None = None
    notifications: tuple[Notification, ...] = ()


class ExecutionProgress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    current: int
    total: int
    percentage: float
    message: str = ""


class Execution(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of an execution (MCP-AQL 8.4.3)."""

    execution_id: str
    status: ExecutionState
    element_name: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: ExecutionProgress | None = None
    error: dict[str, Any] | None = None
    summary: str = ""
    result: Any = None


class PendingConfirmation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request for approval, as approvers see it."""

    token: str
    what: Literal["call", "step"]
    caller: str  # who may not approve it
    name: str
    operation: str
    params: dict[str, Any] = {}  # complete
    danger: str = ""
    reasons: tuple[str, ...] = ()
    issued: datetime
    expires: datetime
    digest: str  # of everything above that is approved; an approval names it


class PendingChallenge(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step that only a person with the code can release. The code itself is never part of it."""

    id: str
    caller: str
    agent: str
    hint: str
    operation: str = ""  # of this site, if the step names one
    params: dict[str, Any] | None = None  # None if the step did not name them
    tier: RiskTier
    reasons: tuple[str, ...] = ()
    blocks: bool
    issued: datetime
    expires: datetime


class BlockedAgent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A caller whose agents are blocked until a person releases them."""

    caller: str
    agent: str
    reason: str
    since: datetime
    verification_id: str


class PendingItems(msgspec.Struct, frozen=True):
    """Everything that waits for a person."""

    confirmations: tuple[PendingConfirmation, ...]
    challenges: tuple[PendingChallenge, ...]
    blocks: tuple[BlockedAgent, ...]


class PendingApprovals(PendingItems, frozen=True, kw_only=True):
    """A page of what waits for a person, with complete calls."""

    more: Annotated[int, Meta(description="How many confirmations follow on later pages")] = 0
    cursor: Annotated[str, Meta(description="For the next page; empty on the last one")] = ""


class VerificationCode:
    """A verification code. Printing or logging this object does not reveal it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the code itself, for a channel that agents cannot read."""
        return self._text

    def __repr__(self) -> str:
        return "Code(…)"
