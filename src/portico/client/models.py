"""The types of the client: options of a question, responses, events and errors. Parses nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict, cast


class ClientError(Exception):
    """Base class of all errors of the client."""


class NotReached(ClientError):
    """The server cannot be reached, or the connection was lost."""


class BadAnswer(ClientError):
    """The response is not NLWeb, or too large."""


class AskFailed(ClientError):
    """The server refuses to answer. The code is NLWeb's, or HTTP_ and the status if it sends none."""

    def __init__(self, code: str, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.status = status
        self.retry_after = retry_after  # seconds


# Responses


@dataclass(frozen=True, slots=True)
class Session:
    """State to send back with the next question. Opaque."""

    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """An action of an item. `data` says how to run it, depending on the protocol."""

    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return as_text(self.data.get("name"))

    @property
    def description(self) -> str:
        return as_text(self.data.get("description"))

    @property
    def protocol(self) -> str:
        return as_text(self.data.get("protocol"))


@dataclass(frozen=True, slots=True)
class Item:
    """One result. `data` has everything that the server sent."""

    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        return as_text(self.data.get("@id")) or self.url

    @property
    def type(self) -> str:
        """The first of its types."""
        return next(iter(as_texts(self.data.get("@type"))), "")

    @property
    def name(self) -> str:
        return next((text for key in ("name", "headline", "title") if (text := as_text(self.data.get(key)))), "")

    @property
    def url(self) -> str:
        return as_text(self.data.get("url"))

    @property
    def score(self) -> float | None:
        return as_number(self.data.get("score"))

    @property
    def description(self) -> str:
        return as_text(self.data.get("description")) or as_text(self.data.get("text"))

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(Action(action) for action in as_objects(self.data.get("actions")))


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition that was understood: its field, its meaning, and the words that expressed it."""

    field: str
    says: str
    words: str


@dataclass(frozen=True, slots=True)
class Understood:
    """How the question was understood."""

    text: str = ""  # the question, independent of its conversation
    collections: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    ignored: tuple[str, ...] = ()  # options that the server does not support


@dataclass(frozen=True, slots=True)
class Answer:
    """Items, best first; none if the server found nothing."""

    items: tuple[Item, ...]
    summary: str = ""
    understood: Understood = Understood()
    notes: tuple[str, ...] = ()
    cost: Mapping[str, Any] = field(default_factory=dict[str, Any])
    session: Session | None = None
    troubles: tuple[AskFailed, ...] = ()  # errors of a stream that continued


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str = ""
    type: str = "free_text"  # or single_select, multi_select, number, boolean
    options: tuple[str, ...] = ()
    default: Any = None


@dataclass(frozen=True, slots=True)
class Elicitation:
    """The server needs clarification. Send the answers with the same question and this session."""

    text: str = ""
    questions: tuple[Question, ...] = ()
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """The answer takes longer. Pass it to `check`, `wait` or `cancel`."""

    token: str
    estimated_time: float | None = None  # seconds
    message: str = ""
    progress: float | None = None  # 0 to 1
    session: Session | None = None


# Events of a stream


@dataclass(frozen=True, slots=True)
class Started:
    understood: Understood


@dataclass(frozen=True, slots=True)
class ItemFound:
    """An item and its place in the answer. Places arrive in any order."""

    index: int
    item: Item


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary so far. A later one replaces an earlier one."""

    text: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of a stream, with the whole answer."""

    answer: Answer


Response: TypeAlias = Answer | Elicitation | Promise
Event: TypeAlias = Started | ItemFound | Summary | Completed | Elicitation | Promise
"""An event of a stream. The last one is Completed, Elicitation or Promise."""


ProgressCallback: TypeAlias = Callable[[Promise], None]

# Requests


class Options(TypedDict, total=False):
    """The options of a question."""

    site: str  # a part of the server's corpus
    filters: Mapping[str, Any]  # {"itemType": "Recipe", "price": "less than $20"}
    previous: Sequence[str]  # earlier questions, oldest first; a conversation adds them itself
    memory: str  # facts about the user
    context: Mapping[str, Any]  # further attributes, or a context of your own @type
    answers: Mapping[str, Any]  # answers to an Elicitation, by question ID
    modes: Sequence[str]  # list, summarize, generate
    language: str
    limit: int
    start: int  # number of results to skip, for paging
    remember: bool  # store the question and the memory for later; needs an API key
    user: str | Mapping[str, Any]  # the user, if several share an API key
    session: Session | None


# Values of unknown type


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def as_object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Mapping[str, Any]]:
    return [as_object(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []


def as_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in cast("list[Any]", value) if isinstance(item, str)] if isinstance(value, list) else []
