"""What a field's name says it is: a title, a price, a place. Its vocabulary is `role_names.toml`; knows no values."""

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast, get_args

from portico.catalog import Role
from portico.field_names import fold

ROLES: Final[tuple[Role, ...]] = get_args(Role)
MAX_NAME = 128  # characters of a name that are read
MAX_WORDS = 8  # of a name
_SHORTEST_ENDING = 4  # letters of a word that others end with: `name` in `Produktname`

# Languages in which what a thing is comes first: `nom du produit`.
_HEAD_FIRST: Final = frozenset({"fr", "es", "it", "pt", "ro", "pl", "cs", "ru", "ar", "he", "fa", "vi", "id", "th"})
# Words after a name that say how it is written, not what it is: `Price (EUR)`, `title_en`, `Body (HTML)`.
_QUALIFIERS: Final = frozenset(
    {"en", "de", "fr", "es", "it", "nl", "pl", "pt", "ru", "ja", "zh", "ko", "ar", "tr", "sv", "eur", "usd", "gbp",
     "chf", "jpy", "html", "markdown", "md", "txt", "utc", "deg", "str", "in"}
)  # fmt: skip
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATOR = re.compile(r"[\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


class Match(IntEnum):
    """How well a name fits a role, the best first."""

    WHOLE = 0
    LAST = 1  # the last words of a compound: `Recipe Name`
    ENDING = 2  # the end of its last word: `Produktname`
    FIRST = 3  # its first words, in a language that begins with what a thing is: `nom du produit`


@dataclass(frozen=True, slots=True)
class NameMatch:
    role: Role
    match: Match
    rank: int  # of the name in the vocabulary of its language, 0 for the most telling
    rest: str  # of a compound: `recipe` of `Recipe Name`


@dataclass(frozen=True, slots=True)
class Vocabulary:
    names: Mapping[str, Mapping[Role, int]]
    first: Mapping[str, Mapping[Role, int]]  # those that may begin a compound
    never: Mapping[str, frozenset[Role]]


def match_name(name: str) -> list[NameMatch]:
    """Return the roles that a field of this name may have; none for a name that says nothing."""
    words = name_words(name)
    if not words:
        return []
    excluded = excluded_roles(name)
    return [match for match in _matches(words, _vocabulary()) if match.role not in excluded]


def excluded_roles(name: str) -> frozenset[Role]:
    """Return the roles that a field of this name cannot have, whatever it holds."""
    never = _vocabulary().never
    return frozenset(role for part in _parts(name_words(name)) for role in never.get(part, ()))


def name_words(name: str) -> list[str]:
    """Return the words of a name, without case, accents, numbers and qualifiers at its end."""
    spaced = _CAMEL.sub(" ", unicodedata.normalize("NFKC", name[:MAX_NAME]))
    words = [word for word in _SEPARATOR.split(fold(spaced)) if word][:MAX_WORDS]
    while len(words) > 1 and (words[-1] in _QUALIFIERS or words[-1].isdigit()):
        words.pop()
    return words


def _parts(words: Sequence[str]) -> Iterator[str]:
    """Yield what a name ends and begins with, the longest first."""
    for start in range(len(words)):
        yield "".join(words[start:])
    for end in range(len(words) - 1, 0, -1):
        yield "".join(words[:end])


def _matches(words: Sequence[str], vocabulary: Vocabulary) -> list[NameMatch]:
    for start in range(len(words)):
        if roles := vocabulary.names.get("".join(words[start:])):
            match = Match.LAST if start else Match.WHOLE
            return [NameMatch(role, match, rank, "".join(words[:start])) for role, rank in roles.items()]
    last = words[-1]
    for start in range(1, len(last)):
        ending = last[start:]
        roles = vocabulary.names.get(ending)
        if roles and (len(ending) >= _SHORTEST_ENDING or _UNSPACED.match(ending)):
            rest = "".join((*words[:-1], last[:start]))
            return [NameMatch(role, Match.ENDING, rank, rest) for role, rank in roles.items()]
    for end in range(len(words) - 1, 0, -1):
        if roles := vocabulary.first.get("".join(words[:end])):
            rest = "".join(words[end:])
            return [NameMatch(role, Match.FIRST, rank, rest) for role, rank in roles.items()]
    return []


@cache
def _vocabulary() -> Vocabulary:
    raw = tomllib.loads((files("portico.sources") / "role_names.toml").read_text("utf-8"))
    names: dict[str, dict[Role, int]] = {}
    first: dict[str, dict[Role, int]] = {}
    for role in ROLES:
        for language, entries in cast("dict[str, list[str]]", raw[role]).items():
            for rank, entry in enumerate(entries):
                for table in (names, first) if language in _HEAD_FIRST else (names,):
                    ranks = table.setdefault(_key(entry), {})
                    ranks[role] = min(rank, ranks.get(role, rank))
    never: dict[str, set[Role]] = {}
    for role, entries in cast("dict[Role, list[Any]]", raw["never"]).items():
        for entry in entries:
            never.setdefault(_key(entry), set()).add(role)
    return Vocabulary(names, first, {key: frozenset(roles) for key, roles in never.items()})


def _key(entry: str) -> str:
    return "".join(word for word in _SEPARATOR.split(fold(entry)) if word)
