"""What a hint says: the text in which an agent tells what it will do next (MCP-AQL 8.6.3). Decides nothing.

Hints come from who is to be supervised, so they are read under every disguise that is known, and the worst reading
counts. Only names that stand there openly are taken for operations of this site.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from portico.catalog import Danger
from portico.errors import ConfigError
from portico.safety.normalization import (
    HUMP,
    Form,
    Glob,
    Layers,
    fold,
    forms,
    glob,
    has_ciphertext,
    has_code,
    has_mixed_scripts,
    hidden,
    layers,
    plain,
    together,
    with_humps,
    words,
)
from portico.safety.risks import BASELINES, SUSPECT, UNKNOWN, VAGUE, Hit, hits, is_vague, name_hits

Matched: TypeAlias = Literal["deny", "approve", "auto", ""]

MAX_HINT = 2000  # characters; of a longer one as many from its start and from its end are read
MAX_PATTERN = 200  # characters
MAX_PATTERNS = 200  # of one list
MAX_ACTION = 128
MAX_PARAMS = 16_384  # characters of JSON
MAX_NAMED = 50  # operations of one hint
MAX_PARTS = 16  # that are scored one by one
MANY_PARTS = 3
MAX_FACTORS = 6
HIDDEN_SHARE = 0.05

_ACTION = re.compile(r"[a-z][a-z0-9_]*\Z")
_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b")
_JOINT = re.compile(r" |[_./:-]{0,2}")
_BEFORE_PARAMS = re.compile(r"[`'\"]?\s{0,4}(?:\(|:|with(?: (?:params|parameters|arguments))?)?\s{0,4}(?={)")
_JOINS = r"then|and|afterwards|after that|next|finally"
_SEPARATOR = re.compile(
    rf"[;|&,\n\r\u2028\u2029]+|->|=>|[→⇒➔➜]|\b(?:{_JOINS})\b|(?:^|\s)\d{{1,2}}[.)]\s", re.IGNORECASE
)
_LEAST: Mapping[Matched, int] = {"deny": 86, "approve": 31, "auto": 0}  # so that tiers do not contradict the lists
_JOINING = frozenset({"then", "and", "afterwards", "next"})


@dataclass(frozen=True, slots=True)
class Patterns:
    """Globs of words: what blocks an agent, what a person looks at, and which actions need no look."""

    deny: tuple[str, ...]
    approve: tuple[str, ...]
    auto: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """An operation of this site that a hint names, with the parameters if it gives them."""

    operation: str
    params: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found in a hint."""

    matched: Matched  # the strictest list that matched
    pattern: str  # of that list
    score: int  # 0 to 100
    factors: tuple[str, ...]  # why, for people; nothing of the hint itself is in them
    named: tuple[Named, ...]  # own operations that the hint names
    digest: str  # the same for hints that differ only in case, spacing, and what does not show


def read(hint: str, patterns: Patterns, operations: Mapping[str, Danger]) -> Reading:
    """Everything about a hint that can be known without knowing who gave it."""
    ends = hint if len(hint) <= MAX_HINT else f"{hint[:MAX_HINT]}\n{hint[-MAX_HINT:]}"
    found = layers(ends)
    readings = forms(found.texts)
    matched, pattern, disguise = _match(ends, readings, patterns)
    named, rest = _named(hint[: MAX_HINT + MAX_PARAMS], _vocabulary(tuple(operations)))
    matches = list(_match_hits(matched, pattern, disguise))
    others = [*_oddities(hint, found), *_content_hits(readings, plain(rest)[: 2 * MAX_HINT], operations)]
    score, factors = _summary(matches, others)
    return Reading(matched, pattern, score, factors, named, _digest(hint))


@lru_cache(maxsize=64)
def compiled(patterns: tuple[str, ...]) -> tuple[Glob, ...]:
    """One list of patterns, ready to be found in hints. What is wrong with them is told as ConfigError."""
    if len(patterns) > MAX_PATTERNS:
        raise ConfigError(f"There are {len(patterns)} patterns; {MAX_PATTERNS} are allowed", limit=MAX_PATTERNS)
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN:
            raise ConfigError(
                f"The pattern {pattern[:40]!r}… has {len(pattern)} characters; {MAX_PATTERN} are allowed",
                limit=MAX_PATTERN,
            )
    return tuple(map(glob, patterns))


def _match(hint: str, readings: tuple[Form, ...], patterns: Patterns) -> tuple[Matched, str, str]:
    """The strictest list that matches, its pattern, and the disguise that the match was under."""
    everything = together(readings)
    strict: tuple[tuple[Matched, tuple[str, ...]], ...] = (("deny", patterns.deny), ("approve", patterns.approve))
    for name, listed in strict:
        for candidate in compiled(listed):
            if candidate.finds(everything):
                disguise = next((form.disguise for form in readings if candidate.finds(form.words)), "")
                return name, candidate.pattern, disguise
    pattern = _auto(hint.strip(), patterns.auto)
    return ("auto", pattern, "") if pattern else ("", "", "")


def _auto(action: str, patterns: tuple[str, ...]) -> str:
    """The pattern that a hint fits from end to end. Only one name of an action does, exactly as it is written."""
    if len(action) > MAX_ACTION or not _ACTION.match(action) or not _JOINING.isdisjoint(action.split("_")):
        return ""
    return next((one.pattern for one in compiled(patterns) if fnmatchcase(action, one.pattern)), "")


def _match_hits(matched: Matched, pattern: str, disguise: str) -> Iterator[Hit]:
    if matched:
        yield Hit(_LEAST[matched], f"matches the pattern {pattern!r} of {matched}")
    if disguise:
        yield Hit(SUSPECT, f"hides what it says: {disguise}")


def _oddities(hint: str, found: Layers) -> Iterator[Hit]:
    """What makes a hint suspect whatever it says."""
    text = found.texts[0]
    if len(hint) > MAX_HINT or found.is_cut:
        yield Hit(SUSPECT, f"is too long: more than {MAX_HINT} characters")
    if found.is_deep:
        yield Hit(SUSPECT, "is encoded more often than it is decoded here")
    if not words(text):
        yield Hit(SUSPECT, "says nothing")
    sample = hint[: 2 * MAX_HINT]
    if sum(map(hidden(sample).__contains__, sample)) > HIDDEN_SHARE * len(sample):
        yield Hit(SUSPECT, "has many characters that do not show")
    if has_mixed_scripts(text):
        yield Hit(SUSPECT, "mixes alphabets within a word")
    if has_ciphertext(text):
        yield Hit(SUSPECT, "has a part that cannot be read")
    if has_code(text):
        yield Hit(VAGUE, "has a part that is encoded")


def _content_hits(readings: tuple[Form, ...], rest: str, operations: Mapping[str, Danger]) -> list[Hit]:
    """What the actions of a hint are risky for. `rest` is the hint without the parameters of own operations."""
    vocabulary = _vocabulary(tuple(operations))
    names, remainder = vocabulary.sift(form.words for form in readings)
    parts = [part for part in (words(fold(with_humps(piece))) for piece in _SEPARATOR.split(rest)) if " " in part]
    found = [*_own_hits(names, operations), *hits(remainder), *name_hits(_foreign_names(rest, operations))]
    if any("delete from " in said and " where " not in said for said in (*parts, *remainder.splitlines())):
        found.append(Hit(85, "deletes every row of a table"))
    if not names and is_vague(words(fold(with_humps(rest))).split()):
        found.append(Hit(VAGUE, "does not say what will be done"))
    if _worst(found) < UNKNOWN and not all(_is_explained(part, vocabulary) for part in parts[:MAX_PARTS] or [rest]):
        found.append(Hit(UNKNOWN, "is an action that is not known here"))
    if len(parts) > MANY_PARTS:
        # What is in a hint of many actions is harder to see, whatever it is.
        more = 5 * min(4, len(parts) - MANY_PARTS)
        found.append(Hit(min(100, _worst(found) + more), f"has {len(parts)} parts"))
    return found


def _worst(found: list[Hit]) -> int:
    return max((hit.score for hit in found), default=0)


def _own_hits(names: Iterable[str], operations: Mapping[str, Danger]) -> Iterator[Hit]:
    for name in sorted(names):
        yield Hit(BASELINES[operations[name]], f"names {name}, which is {operations[name].name.lower()}")


def _foreign_names(text: str, operations: Mapping[str, Danger]) -> set[str]:
    found = (with_humps(name).replace(" ", "_").lower() for name in _NAME.findall(text))
    return set(found).difference(operations)


def _is_explained(part: str, vocabulary: "Vocabulary") -> bool:
    names, remainder = vocabulary.sift([part])
    return bool(names) or any(hits(remainder))


def _summary(matches: list[Hit], others: list[Hit]) -> tuple[int, tuple[str, ...]]:
    """The worst score, and the reasons: the pattern first, then from the worst on."""
    ranked = [*matches, *sorted(others, key=lambda hit: -hit.score)]
    return _worst(ranked), tuple(dict.fromkeys(hit.reason for hit in ranked))[:MAX_FACTORS]


def _digest(hint: str) -> str:
    """Punctuation counts, as `rm ./x` is not `rm /x`. A hint that is too long is the same only as itself."""
    said = " ".join(plain(hint).casefold().split()) if len(hint) <= MAX_HINT else hint
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()


class Vocabulary:
    """Names of operations by their words, as texts may have them: `get_recipe`, `getRecipe`, `Get recipe`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_first: dict[str, list[tuple[list[str], str]]] = {}
        for name in sorted(names, key=len, reverse=True):
            said = words(fold(with_humps(name))).split()
            if said:
                self._by_first.setdefault(said[0], []).append((said, name))

    def at(self, said: list[str], place: int) -> tuple[str, int] | None:
        """The longest name that begins at a word, and how many words it has."""
        for name_words, name in self._by_first.get(said[place], ()):
            if said[place : place + len(name_words)] == name_words:
                return name, len(name_words)
        return None

    def sift(self, texts: Iterable[str]) -> tuple[set[str], str]:
        """The names in some texts of canonical words, and as lines what else these say."""
        names: set[str] = set()
        lines: list[str] = []
        for text in texts:
            names.update(self._sift(text.split(), lines))
        return names, "\n".join(dict.fromkeys(lines))

    def _sift(self, said: list[str], lines: list[str]) -> Iterator[str]:
        start = place = 0
        while place < len(said):
            found = self.at(said, place)
            if found is None:
                place += 1
                continue
            yield found[0]
            lines.append(" ".join(said[start:place]))
            start = place = place + found[1]
        lines.append(" ".join(said[start:]))

    def occurrences(self, text: str) -> Iterator[tuple[str, int]]:
        """The names that stand openly in a text, in order, and where each ends."""
        tokens = list(_tokens(text))
        said = [text[start:end].lower() for start, end in tokens]
        place = 0
        while place < len(said):
            found = self.at(said, place)
            last = place + (found[1] if found else 1) - 1
            if found and _are_joined(text, tokens[place : last + 1]):
                yield found[0], tokens[last][1]
            place = last + 1


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    """Where words begin and end, those of camelCase apart."""
    for word in _WORD.finditer(text):
        humps = [word.start() + cut.start() for cut in HUMP.finditer(word[0])]
        yield from pairwise([word.start(), *humps, word.end()])


def _are_joined(text: str, tokens: list[tuple[int, int]]) -> bool:
    return all(_JOINT.fullmatch(text, end, start) for (_, end), (start, _) in pairwise(tokens))


@lru_cache(maxsize=8)
def _vocabulary(names: tuple[str, ...]) -> Vocabulary:
    return Vocabulary(names)


def _named(hint: str, vocabulary: Vocabulary) -> tuple[tuple[Named, ...], str]:
    """The operations that a hint names, and the hint without their parameters."""
    found: dict[str, Named] = {}
    rest: list[str] = []
    position = 0
    for operation, end in vocabulary.occurrences(hint):
        if end <= position:
            continue  # within the parameters of another
        params, after = _params(hint, end)
        if len(found) < MAX_NAMED:
            found.setdefault(f"{operation} {json.dumps(params, sort_keys=True)}", Named(operation, params))
        rest.append(hint[position:end])
        position = after
    return tuple(found.values()), "".join([*rest, hint[position:]])


def _params(hint: str, end: int) -> tuple[dict[str, Any] | None, int]:
    """The JSON object right after a name, and where it ends; a doubtful one is none."""
    lead = _BEFORE_PARAMS.match(hint, end)
    if not lead:
        return None, end
    try:
        params, size = _JSON.raw_decode(hint[lead.end() : lead.end() + MAX_PARAMS])
        # Neither half a character nor an infinite number is JSON, though Python reads both.
        json.dumps(params, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None, end
    return params, lead.end() + size


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("A key stands twice")
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_unique)
