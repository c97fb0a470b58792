"""What can happen while a question is answered. A closed union: faces match on it without a default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from portico.calls import Task
from portico.errors import SiteError
from portico.items import Item


@dataclass(frozen=True, slots=True)
class Understood:
    """What the question was taken to mean, so that a person can see and correct it."""

    text: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clarify:
    """The question cannot be answered yet; these would help."""

    questions: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """One item of the answer, with a score from 0 to 100."""

    item: Item
    score: float


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Promised:
    """The answer takes longer; it will be the task's result."""

    task: Task


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer broke off."""

    error: SiteError


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing more follows."""

    items: int
    notes: tuple[str, ...] = ()


Event: TypeAlias = Understood | Clarify | Found | Said | Promised | Failed | Finished
