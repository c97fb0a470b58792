"""What somebody might ask next, from what was found: questions that this site can answer, and always the same ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.ask.events import Clarify
from portico.ask.phrases import best_language

MOST = 3
MAX_NAME = 80  # characters of a name in a question
MAX_OPTIONS = 4


@dataclass(frozen=True, slots=True)
class Ways:
    """How a language asks on. {} stands for a name."""

    more: str
    like: str


WAYS: Mapping[str, Ways] = {
    "en": Ways("Tell me more about {}", "Something like {}"),
    "de": Ways("Erzähl mir mehr über {}", "Etwas wie {}"),
    "es": Ways("Cuéntame más de {}", "Algo como {}"),
    "fr": Ways("Dites-m’en plus sur {}", "Quelque chose comme {}"),
    "ja": Ways("{}について詳しく教えて", "{}のようなもの"),
    "zh": Ways("详细介绍一下{}", "类似{}的"),
}


def followups(items: Sequence[Mapping[str, Any]], language: str, asked: Sequence[str]) -> tuple[str, ...]:
    """At most three questions that were not asked yet."""
    known = {each.strip().lower() for each in asked}
    fresh = [each for each in _possible(items, WAYS[best_language(language, tuple(WAYS))]) if each.lower() not in known]
    return tuple(fresh[:MOST])


def _possible(items: Sequence[Mapping[str, Any]], ways: Ways) -> Iterator[str]:
    named = (" ".join(str(item.get("name", "")).split()) for item in items)
    names = list(dict.fromkeys(name for name in named if 0 < len(name) <= MAX_NAME))
    yield from (way.format(name) for name in names[:1] for way in (ways.more, ways.like))
    yield from (ways.more.format(name) for name in names[1:])


def options(clarify: Clarify) -> tuple[str, ...]:
    """What was asked back as things to choose from, where one question can be answered so."""
    first = next((each for each in clarify.questions if each.options), None)
    return first.options[:MAX_OPTIONS] if first else ()
