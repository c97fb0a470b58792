"""Ask, Call, Watch, Caller, Outcome and Task: what is wanted, for whom, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from portico.catalog import Danger, Trust
from portico.items import Item
from portico.network import network_of
from portico.query import MATCH_ALL, Filter

Run: TypeAlias = Literal["auto", "now", "later"]
Priority: TypeAlias = Literal["low", "normal", "high"]


@dataclass(frozen=True, slots=True)
class Warrant:
    """What a certificate says its holder may do. The gate knows only scopes; NWP checks this on every request."""

    capabilities: frozenset[str]  # as in nwp:query
    nodes: tuple[str, ...]  # addresses that it covers, by their beginning; * covers all
    actions: tuple[str, ...] | None = None  # as in orders:create; None covers all
    budget: int | None = None  # tokens of one answer, at most
    tokenizer: str = ""  # of the holder's model
    record: str = ""  # of a certificate that this site issued: by it the site knows whether it is good still


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking. Made only by `identity.py`, never from the body of a request."""

    id: str = "anonymous"
    name: str = "anonymous"
    scopes: frozenset[str] = frozenset()
    danger: Danger = Danger.SAFE  # the most this caller may risk
    address: str = ""  # where an anonymous caller comes from, to tell one from another in rates
    warrant: Warrant | None = None  # of a caller that showed a certificate
    trust: Trust = Trust.VALIDATED  # how much of that it may do without being confirmed by somebody else
    user: str = ""  # one of the people it asks for, as a digest; a label of the caller's that gives no rights

    @property
    def is_anonymous(self) -> bool:
        return self.id == "anonymous"

    @property
    def is_operator(self) -> bool:
        """Whoever sits at the machine; sees private collections too."""
        return self.id.startswith("operator:")

    @property
    def rate_key(self) -> str:
        """What rates and approvals go by: all users of a caller are one there."""
        return f"{self.id}@{network_of(self.address)}" if self.is_anonymous else self.id

    @property
    def storage_key(self) -> str:
        """What notes and idempotency keys are kept under: anonymous callers are told apart by where they come from."""
        return self.rate_key if self.is_anonymous else self.owner

    @property
    def owner(self) -> str:
        """Whose memories, conversations and sessions these are: the caller's, or those of one of its users."""
        return f"{self.id}{OF_USER}{self.user}" if self.user else self.id


OF_USER = "\n"  # between a caller's id, which never has it, and one of its users


def account_of(owner: str) -> str:
    """The id of the caller whose user an owner is; empty for a caller itself."""
    account, separator, _ = owner.partition(OF_USER)
    return account if separator else ""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation with its parameters. `key` makes a repeat within a day give the first answer again."""

    operation: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    run: Run = "auto"
    key: str = ""
    timeout: float | None = None
    priority: Priority = "normal"  # of a task among those that wait
    request: str = ""  # what the caller calls this request; told again with the task
    callback: str = ""  # an address that is told when the task has ended
    confirmation: str = ""  # a token that says whom this call waited for
    session: str = ""  # of the caller, as the server numbers them; what began in it ends with it
    step: str = ""  # of an agent's execution, that it uses up; set by the site alone


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operation gave back."""

    operation: str
    result: Any
    repeated: bool = False  # an idempotency key gave the stored result of an earlier call


Mode: TypeAlias = Literal["list", "summarize", "generate"]
Retrieval: TypeAlias = Literal["hybrid", "vectors", "text"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A question in natural language, in its context. Nothing in it is trusted, and nothing in it says who asks."""

    text: str
    collections: tuple[str, ...] = ()
    where: Filter = MATCH_ALL
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as written: {"price": "less than $20"}
    previous: tuple[str, ...] = ()  # earlier questions, oldest first
    background: str = ""  # what the conversation is about, in free words
    memory: tuple[str, ...] = ()  # what is known of the person: "vegetarian, has a sweet tooth"
    profile: Mapping[str, Any] = field(default_factory=dict[str, Any])  # attributes of the caller's own kind of context
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])  # to what was asked back, by question id
    settled: Mapping[str, Any] = field(default_factory=dict[str, Any])  # earlier answers: they hold for follow-ups
    modes: frozenset[Mode] = frozenset({"list"})
    limit: int = 10
    start: int = 0  # how many of the best to leave out: the pages before
    language: str = ""  # of the answer, as in en or pt-BR
    rounds: int = 0  # how often this question was asked back already
    may_clarify: bool = True  # whether the caller can be asked back
    key: str = ""  # of what it has done: the same again is not done twice
    may_act: bool = True  # whether it may have operations run; not if a page elsewhere could have sent it unasked
    remember: bool = False  # keep what was asked and said of the person, for the next time
    retrieval: Retrieval = "hybrid"  # what finds items: words, meaning, or both
    attached: tuple[Item, ...] = ()  # passages that came with the question: the answer may rely on them


@dataclass(frozen=True, slots=True)
class File:
    """A file that comes with a question."""

    name: str  # may be empty
    type: str  # as in text/html; may be empty
    body: bytes


@dataclass(frozen=True, slots=True)
class Watch:
    """The changes of a collection, from after a sequence number on; None means from now."""

    collection: str
    where: Filter = MATCH_ALL
    since: int | None = None


class TaskState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED}


@dataclass(frozen=True, slots=True)
class Task:
    """Durable work. The id cannot be guessed, and only the caller that started the task can see it."""

    id: str
    call: Call
    caller: Caller
    state: TaskState
    created: datetime
    updated: datetime
    progress: float = 0.0  # 0 to 1, never falls
    message: str = ""
    result: Any = None
    error: Mapping[str, Any] | None = None
    attempts: int = 0
    estimate: float | None = None  # seconds it is expected to take in all
    saved: Any = None  # what the operation noted to continue from after a restart
    cancelling: bool = False  # a cancellation is on its way to the running coroutine
    repeated: bool = False  # an idempotency key gave the task of an earlier call
