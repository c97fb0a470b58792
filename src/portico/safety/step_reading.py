"""Reads hints: the texts in which agents describe their next steps (MCP-AQL 8.6.3). Decides nothing.

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
    DecodedLayers,
    Glob,
    NormalizedText,
    decode_layers,
    fold,
    glob,
    has_ciphertext,
    has_code,
    has_mixed_scripts,
    hidden_characters,
    join_texts,
    normalize_layers,
    strip_hidden,
    with_humps,
    words,
)
from portico.safety.risks import BASELINES, SUSPECT, UNKNOWN, VAGUE, RiskHit, hits, is_vague, name_hits

Matched: TypeAlias = Literal["deny", "approve", "auto", ""]

MAX_HINT = 2000  # characters; of a longer one, as many are read from its start as from its end
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
_LEAST: Mapping[Matched, int] = {"deny": 86, "approve": 31, "auto": 0}  # so that scores do not contradict the lists
_JOINING = frozenset({"then", "and", "afterwards", "next"})


@dataclass(frozen=True, slots=True)
class Patterns:
    """Globs of words: what blocks an agent, what needs approval, and which actions need none."""

    deny: tuple[str, ...]
    approve: tuple[str, ...]
    auto: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedCall:
    """An operation of this site that a hint names, with the parameters if it gives them."""

    operation: str
    params: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class StepReading:
    """The result of reading a hint."""

    matched: Matched  # the strictest list that matched
    pattern: str  # of that list
    score: int  # 0 to 100
    factors: tuple[str, ...]  # reasons for people, without any text of the hint
    calls: tuple[NamedCall, ...]  # operations of this site that the hint names
    digest: str  # the same for hints that differ only in case, spacing and hidden characters


def read_step(hint: str, patterns: Patterns, operations: Mapping[str, Danger]) -> StepReading:
    """Read a hint, regardless of whose it is."""
    ends = hint if len(hint) <= MAX_HINT else f"{hint[:MAX_HINT]}\n{hint[-MAX_HINT:]}"
    layers = decode_layers(ends)
    readings = normalize_layers(layers.texts)
    matched, pattern, disguise = _match(ends, readings, patterns)
    calls, rest = _find_calls(hint[: MAX_HINT + MAX_PARAMS], _operation_names(tuple(operations)))
    matches = list(_match_hits(matched, pattern, disguise))
    others = [*_find_oddities(hint, layers), *_content_hits(readings, strip_hidden(rest)[: 2 * MAX_HINT], operations)]
    score, factors = _summary(matches, others)
    return StepReading(matched, pattern, score, factors, calls, _digest(hint))


@lru_cache(maxsize=64)
def compile_patterns(patterns: tuple[str, ...]) -> tuple[Glob, ...]:
    """Compile a list of patterns. Raise ConfigError if one is invalid."""
    if len(patterns) > MAX_PATTERNS:
        raise ConfigError(f"There are {len(patterns)} patterns; {MAX_PATTERNS} are allowed", limit=MAX_PATTERNS)
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN:
            raise ConfigError(
                f"The pattern {pattern[:40]!r}… has {len(pattern)} characters; {MAX_PATTERN} are allowed",
                limit=MAX_PATTERN,
            )
    return tuple(map(glob, patterns))


def _match(hint: str, readings: tuple[NormalizedText, ...], patterns: Patterns) -> tuple[Matched, str, str]:
    """Return the strictest list that matches, its pattern, and the disguise that hid the match."""
    everything = join_texts(readings)
    strict: tuple[tuple[Matched, tuple[str, ...]], ...] = (("deny", patterns.deny), ("approve", patterns.approve))
    for name, globs in strict:
        for candidate in compile_patterns(globs):
            if candidate.finds(everything):
                disguise = next((form.disguise for form in readings if candidate.finds(form.words)), "")
                return name, candidate.pattern, disguise
    pattern = _match_auto(hint.strip(), patterns.auto)
    return ("auto", pattern, "") if pattern else ("", "", "")


def _match_auto(action: str, patterns: tuple[str, ...]) -> str:
    """Return the pattern that matches a whole hint. Only a single, exactly written action name can match."""
    if len(action) > MAX_ACTION or not _ACTION.match(action) or not _JOINING.isdisjoint(action.split("_")):
        return ""
    return next((one.pattern for one in compile_patterns(patterns) if fnmatchcase(action, one.pattern)), "")


def _match_hits(matched: Matched, pattern: str, disguise: str) -> Iterator[RiskHit]:
    if matched:
        yield RiskHit(_LEAST[matched], f"matches the pattern {pattern!r} of {matched}")
    if disguise:
        yield RiskHit(SUSPECT, f"hides what it says: {disguise}")


def _find_oddities(hint: str, layers: DecodedLayers) -> Iterator[RiskHit]:
    """Yield what makes a hint suspect, whatever it says."""
    text = layers.texts[0]
    if len(hint) > MAX_HINT or layers.is_cut:
        yield RiskHit(SUSPECT, f"is too long: more than {MAX_HINT} characters")
    if layers.is_deep:
        yield RiskHit(SUSPECT, "is encoded more often than it is decoded here")
    if not words(text):
        yield RiskHit(SUSPECT, "says nothing")
    sample = hint[: 2 * MAX_HINT]
    if sum(map(hidden_characters(sample).__contains__, sample)) > HIDDEN_SHARE * len(sample):
        yield RiskHit(SUSPECT, "has many characters that do not show")
    if has_mixed_scripts(text):
        yield RiskHit(SUSPECT, "mixes alphabets within a word")
    if has_ciphertext(text):
        yield RiskHit(SUSPECT, "has a part that cannot be read")
    if has_code(text):
        yield RiskHit(VAGUE, "has a part that is encoded")


def _content_hits(readings: tuple[NormalizedText, ...], rest: str, operations: Mapping[str, Danger]) -> list[RiskHit]:
    """Return the risks of a hint's actions. `rest` is the hint without the parameters of this site's operations."""
    vocabulary = _operation_names(tuple(operations))
    names, remainder = vocabulary.sift(form.words for form in readings)
    parts = [part for part in (words(fold(with_humps(piece))) for piece in _SEPARATOR.split(rest)) if " " in part]
    risks = [*_own_hits(names, operations), *hits(remainder), *name_hits(_foreign_names(rest, operations))]
    if any("delete from " in line and " where " not in line for line in (*parts, *remainder.splitlines())):
        risks.append(RiskHit(85, "deletes every row of a table"))
    if not names and is_vague(words(fold(with_humps(rest))).split()):
        risks.append(RiskHit(VAGUE, "does not say what will be done"))
    if _max_score(risks) < UNKNOWN and not all(_is_explained(part, vocabulary) for part in parts[:MAX_PARTS] or [rest]):
        risks.append(RiskHit(UNKNOWN, "is an action that is not known here"))
    if len(parts) > MANY_PARTS:
        # A hint of many actions is harder to review.
        more = 5 * min(4, len(parts) - MANY_PARTS)
        risks.append(RiskHit(min(100, _max_score(risks) + more), f"has {len(parts)} parts"))
    return risks


def _max_score(risks: list[RiskHit]) -> int:
    return max((hit.score for hit in risks), default=0)


def _own_hits(names: Iterable[str], operations: Mapping[str, Danger]) -> Iterator[RiskHit]:
    for name in sorted(names):
        yield RiskHit(BASELINES[operations[name]], f"names {name}, which is {operations[name].name.lower()}")


def _foreign_names(text: str, operations: Mapping[str, Danger]) -> set[str]:
    names = (with_humps(name).replace(" ", "_").lower() for name in _NAME.findall(text))
    return set(names).difference(operations)


def _is_explained(part: str, vocabulary: "OperationNames") -> bool:
    names, remainder = vocabulary.sift([part])
    return bool(names) or any(hits(remainder))


def _summary(matches: list[RiskHit], others: list[RiskHit]) -> tuple[int, tuple[str, ...]]:
    """Return the highest score, and the reasons: the pattern first, then by descending score."""
    ranked = [*matches, *sorted(others, key=lambda hit: -hit.score)]
    return _max_score(ranked), tuple(dict.fromkeys(hit.reason for hit in ranked))[:MAX_FACTORS]


def _digest(hint: str) -> str:
    """Return a digest of a normalized hint. Punctuation counts: `rm ./x` is not `rm /x`. Long hints count exactly."""
    normalized = " ".join(strip_hidden(hint).casefold().split()) if len(hint) <= MAX_HINT else hint
    return hashlib.sha256(normalized.encode(errors="surrogatepass")).hexdigest()


class OperationNames:
    """Finds names of operations in texts by their words: `get_recipe`, `getRecipe`, `Get recipe`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_first: dict[str, list[tuple[list[str], str]]] = {}
        for name in sorted(names, key=len, reverse=True):
            name_words = words(fold(with_humps(name))).split()
            if name_words:
                self._by_first.setdefault(name_words[0], []).append((name_words, name))

    def find_at(self, text_words: list[str], place: int) -> tuple[str, int] | None:
        """Return the longest name that begins at a word, and its number of words."""
        for name_words, name in self._by_first.get(text_words[place], ()):
            if text_words[place : place + len(name_words)] == name_words:
                return name, len(name_words)
        return None

    def sift(self, texts: Iterable[str]) -> tuple[set[str], str]:
        """Return the names in some normalized texts, and the rest of these texts as lines."""
        names: set[str] = set()
        lines: list[str] = []
        for text in texts:
            names.update(self._sift(text.split(), lines))
        return names, "\n".join(dict.fromkeys(lines))

    def _sift(self, text_words: list[str], lines: list[str]) -> Iterator[str]:
        start = place = 0
        while place < len(text_words):
            match = self.find_at(text_words, place)
            if match is None:
                place += 1
                continue
            yield match[0]
            lines.append(" ".join(text_words[start:place]))
            start = place = place + match[1]
        lines.append(" ".join(text_words[start:]))

    def occurrences(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield the names that are written openly in a text, in order, and the end of each."""
        tokens = list(_tokens(text))
        text_words = [text[start:end].lower() for start, end in tokens]
        place = 0
        while place < len(text_words):
            match = self.find_at(text_words, place)
            last = place + (match[1] if match else 1) - 1
            if match and _are_joined(text, tokens[place : last + 1]):
                yield match[0], tokens[last][1]
            place = last + 1


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each word; words in camelCase are split."""
    for word in _WORD.finditer(text):
        humps = [word.start() + cut.start() for cut in HUMP.finditer(word[0])]
        yield from pairwise([word.start(), *humps, word.end()])


def _are_joined(text: str, tokens: list[tuple[int, int]]) -> bool:
    return all(_JOINT.fullmatch(text, end, start) for (_, end), (start, _) in pairwise(tokens))


@lru_cache(maxsize=8)
def _operation_names(names: tuple[str, ...]) -> OperationNames:
    return OperationNames(names)


def _find_calls(hint: str, vocabulary: OperationNames) -> tuple[tuple[NamedCall, ...], str]:
    """Return the operations that a hint names, and the hint without their parameters."""
    calls: dict[str, NamedCall] = {}
    rest: list[str] = []
    position = 0
    for operation, end in vocabulary.occurrences(hint):
        if end <= position:
            continue  # within the parameters of another
        params, after = _params(hint, end)
        if len(calls) < MAX_NAMED:
            calls.setdefault(f"{operation} {json.dumps(params, sort_keys=True)}", NamedCall(operation, params))
        rest.append(hint[position:end])
        position = after
    return tuple(calls.values()), "".join([*rest, hint[position:]])


def _params(hint: str, end: int) -> tuple[dict[str, Any] | None, int]:
    """Return the JSON object right after a name, and its end; None if it is malformed."""
    lead = _BEFORE_PARAMS.match(hint, end)
    if not lead:
        return None, end
    try:
        params, size = _JSON.raw_decode(hint[lead.end() : lead.end() + MAX_PARAMS])
        # Lone surrogates and infinite numbers are not JSON, though Python parses both.
        json.dumps(params, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None, end
    return params, lead.end() + size


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("A key occurs twice")
    return members


_JSON = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys)
