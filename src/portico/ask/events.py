"""The events of an answer: a closed union, on which protocols match without a default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from portico.errors import SiteError
from portico.items import Item
from portico.requests import Task

QuestionType: TypeAlias = Literal["single_select", "multi_select", "free_text", "number", "boolean"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """One thing that was understood: which field, what was said of it, and from which words it was read."""

    field: str
    says: str  # for people: "totalTime is less than 30 minutes"
    words: str  # of the question, or the name of the attribute it came from


@dataclass(frozen=True, slots=True)
class InterpretationEvent:
    """How the question was interpreted, so that a person can see and correct it. Always the first event."""

    text: str  # the question so that it stands alone
    collections: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()
    ignored: tuple[str, ...] = ()  # attributes and settings that have no meaning here
    language: str = "en"  # of fixed phrases and generated text


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask back. Its id is the field or parameter that the answer is for."""

    id: str
    text: str
    type: QuestionType
    options: tuple[str, ...] = ()
    default: Any = None


@dataclass(frozen=True, slots=True)
class ClarificationEvent:
    """The question cannot be answered yet; these would help."""

    text: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """An operation that can be called with this item. Each protocol says how."""

    operation: str
    description: str
    params: Mapping[str, Any]  # those that the item fills in
    missing: tuple[str, ...] = ()  # required ones that the caller has to add
    type: str = "Action"  # of schema.org


@dataclass(frozen=True, slots=True)
class ItemEvent:
    """One item of the answer, with a score from 0 to 100. Places count from 0 and come in any order."""

    item: Item
    score: float
    place: int = 0
    actions: tuple[Action, ...] = ()
    same: tuple[Item, ...] = ()  # near-duplicates that were merged into this one


@dataclass(frozen=True, slots=True)
class TextEvent:
    """A piece of the summary or of the generated answer, and the refs of the items it relies on."""

    text: str
    cites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationEvent:
    """An operation that the question asked for was run."""

    operation: str
    result: Any
    about: tuple[Item, ...] = ()  # items that the result names by their ids


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """The answer takes longer and will be the result of a task."""

    task: Task


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The answer ended with an error."""

    error: SiteError


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What language models did for an answer."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    price: float = 0.0  # by the prices in the model's URL; 0 when it names none

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        return ModelUsage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.price + other.price,
        )


@dataclass(frozen=True, slots=True)
class EndEvent:
    """The answer is complete."""

    items: int
    notes: tuple[str, ...] = ()
    cost: ModelUsage = ModelUsage()


Event: TypeAlias = (
    InterpretationEvent
    | ClarificationEvent
    | ItemEvent
    | TextEvent
    | OperationEvent
    | TaskEvent
    | ErrorEvent
    | EndEvent
)
