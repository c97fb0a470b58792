"""Pointers in questions to earlier results by their place: "the second one". Reads words; searches nothing."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MAX_CHARACTERS = 120  # characters of a question that points
MAX_QUESTIONS = 4  # questions before that may point, too
MAX_ITEMS = 3  # things that are pointed at at once

# From the front, and from the end below zero.
_ORDINALS: Mapping[str, int] = {
    "first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1, "1st": 0, "2nd": 1, "3rd": 2, "4th": 3,
    "erste": 0, "ersten": 0, "erstes": 0, "zweite": 1, "zweiten": 1, "zweites": 1, "dritte": 2, "dritten": 2,
    "drittes": 2, "vierte": 3, "vierten": 3, "letzte": -1, "letzten": -1,
    "primero": 0, "primera": 0, "primeros": 0, "primeras": 0, "segundo": 1, "segunda": 1, "tercero": 2, "tercera": 2,
    "cuarto": 3, "cuarta": 3, "último": -1, "última": -1,
    "premier": 0, "première": 0, "premiers": 0, "premières": 0, "deuxième": 1, "seconde": 1, "troisième": 2,
    "quatrième": 3, "dernier": -1, "dernière": -1,
}  # fmt: skip
_COUNTS: Mapping[str, int] = {
    "two": 2, "2": 2, "three": 3, "3": 3, "zwei": 2, "beiden": 2, "drei": 3, "dos": 2, "tres": 3, "deux": 2, "trois": 3,
}  # fmt: skip
_THINGS = r"ones?|results?|options?|items?|of (?:them|those|these)|davon|von (?:ihnen|denen)|de (?:ellos|ellas)"
_ARTICLES = r"the|der|die|das|den|dem|el|la|los|las|les?"
_COUNT_PATTERN = "|".join(_COUNTS)
# What may follow an ordinal that stands for a thing: behind "the first" a noun would be what is first.
_AFTER = (
    r"and|or|is|are|has|have|does|do|costs?|takes?|opens?|open|und|oder|ist|hat|kostet|dauert|y|o|es|tiene|cuesta"
    r"|et|ou|est|coûte|please|bitte|por favor"
)
_POINTER = re.compile(
    rf"\b(?:(?:{_ARTICLES})\s+(?P<place>{'|'.join(_ORDINALS)})(?:\s+(?P<count>{_COUNT_PATTERN})\b)?(?:\s+(?:{_THINGS})\b"
    rf"|(?=\s*(?:[?!.,;:]|\Z))|(?=\s+(?:{_AFTER})\b))"
    rf"|(?:(?:{_ARTICLES})\s+)?(?P<counted>{_COUNT_PATTERN})\s+(?P<counted_place>{'|'.join(_ORDINALS)})(?=\s*(?:[?!.,;:]|\Z))"
    rf"|(?P<bare>{'|'.join(_ORDINALS)})\s+(?:{_THINGS})\b"
    r"|(?:number|nummer|número|numéro)\s+(?P<number>[1-9])\b)",
    re.IGNORECASE,
)
_IDLE = re.compile(
    r"\b(?:and|what|how|about|tell|show|give|me|more|on|of|please|ok|okay|i|want|take|like|und|was|ist|mit|zeig|mir"
    r"|mehr|über|bitte|y|qué|hay|de|con|sobre|más|et|sur|plus|avec|s'il|vous|plaît)\b|[^\w]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Pointer:
    start: int
    end: int
    places: tuple[int, ...]


def find_pointers(question: str) -> list[Pointer]:
    """Return where a question points at earlier results by their place, and at which."""
    matches = _POINTER.finditer(question) if len(question) <= MAX_CHARACTERS else ()
    return [Pointer(*match.span(), _places(match)) for match in matches]


def _places(match: re.Match[str]) -> tuple[int, ...]:
    if match["number"]:
        return (int(match["number"]) - 1,)
    first = _ORDINALS[(match["place"] or match["counted_place"] or match["bare"]).lower()]
    count = _COUNTS[(match["count"] or match["counted"] or "").lower()] if match["count"] or match["counted"] else 1
    return tuple(range(first, first + count)) if first >= 0 else tuple(range(-count, 0))


def replace_pointers(
    question: str, pointers: Sequence[Pointer], names: Sequence[str], joined: Callable[[Sequence[str]], str], more: str
) -> str:
    """Return a question with names in place of its pointers; empty if one points beyond the names.

    One that does nothing but point wants to be told more, which is said as `more` says it.
    """
    places = [place for pointer in pointers for place in pointer.places]
    if len(places) > MAX_ITEMS or any(not -len(names) <= place < len(names) for place in places):
        return ""
    parts, at = list[str](), 0
    for pointer in pointers:
        parts += [question[at : pointer.start], joined([names[place] for place in pointer.places])]
        at = pointer.end
    rest = f"{''.join(parts[::2])}{question[at:]}"
    if len(places) == 1 and not _IDLE.sub("", rest):
        return more.format(names[places[0]])
    return f"{''.join(parts)}{question[at:]}"
