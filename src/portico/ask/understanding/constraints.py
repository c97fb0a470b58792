"""One thing that a question says, and what it means to each collection: a price, a diet, a date, a thing to leave out.

Reads words; knows no store.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from portico.ask.languages.phrasebook import Phrases
from portico.ask.understanding.fields import DATED, MAX_VALUE_WORDS, Fields, Key, called, key_of, spoken
from portico.ask.understanding.kinds import ASKING, AVOIDED, DIETS, FAMILIES, MEETS, NAMED
from portico.ask.understanding.parsers import By, Finding, Flag, In, Quantity, When, Without
from portico.query import EVERYTHING, And, Condition, Filter, Or
from portico.search.index.text import fold, stemmer, words

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Saying: TypeAlias = Callable[[Phrases], str]


@dataclass(frozen=True, slots=True)
class Made:
    """What a clue means in one collection."""

    path: str
    says: Saying
    where: Filter = EVERYTHING
    without: tuple[str, ...] = ()


Maker: TypeAlias = Callable[[Fields], Made | None]


@dataclass(frozen=True, slots=True)
class Clue:
    """One thing that was said. A later clue of the same slot takes the place of an earlier one."""

    slot: str
    words: str
    make: Maker
    strict: bool = True  # never given up, even if nothing is left
    selects: bool = True  # collections that cannot tell are not asked
    weight: int = 2  # how much it says of where to look; nearly everything has a price
    span: tuple[int, int] | None = None  # in the question, if its words are cut out once understood


# Clues from the words


def said_clues(findings: Sequence[Finding], text: str, site: Sequence[Fields]) -> Iterator[Clue]:
    for finding in (_meant(each, text, site) for each in findings):
        said = text[finding.start : finding.end]
        span = (finding.start, finding.end)
        match finding:
            case Quantity():
                yield _quantity(finding, said, span)
            case When():
                yield Clue("date", said, dated(finding), span=span)
            case Without() if not (is_factual(text) and not _is_known_food(finding.words)):
                yield Clue(f"without {finding.words}", said, excluding(finding), selects=False, span=span)
            case Flag() if finding.name in _FLAGS and finding.value:
                yield Clue(finding.name, said, _FLAGS[finding.name], span=span)
            case By():
                yield Clue("maker", said, _made_by(finding.words), span=span)
            case In():
                yield Clue("place", said, placed(finding.words), span=span)
            case _:
                pass  # what is near something, and orders, are looked at by themselves


def is_factual(text: str) -> bool:
    """Whether a question wants to know something: "why is there no ferry" leaves nothing out."""
    found = [word.lower() for word in words(text)[:40]]
    return bool(found) and (found[0] in ASKING or "?" in text or "¿" in text)


def _is_known_food(said: str) -> bool:
    return bool(_FOODS & frozenset(key_of(said)))


_FOODS = frozenset(part for each in FAMILIES.values() for name in each for part in key_of(name))


def _meant(found: Finding, text: str, site: Sequence[Fields]) -> Finding:
    return _named(_rated(found, text), text, site) if isinstance(found, Quantity) else found


def _rated(found: Quantity, text: str) -> Quantity:
    """A bare number behind "rated" is a rating."""
    if found.kind != "number" or not _RATED.search(text[max(found.start - 20, 0) : found.end]):
        return found
    return replace(found, kind="rating")


_RATED = re.compile(r"\b(?:rated|ratings?|scores?|bewertet|valorad\w+|noté\w*)\b", re.IGNORECASE)


def _named(found: Quantity, text: str, site: Sequence[Fields]) -> Quantity:
    """A number behind the name of a field is about that field: "height under 50"."""
    name = None if found.noun or found.kind not in {"number", "count"} else _NAME.search(text[: found.start])
    if not name or not any(each.counts(name[1]) for each in site):
        return found
    return replace(found, kind="count", noun=name[1].lower(), start=name.start(1))


_NAME = re.compile(r"([^\W\d_]+)\s+(?:(?:of|is|von|ist|de|es|est)\s+)?$", re.IGNORECASE)


def _quantity(found: Quantity, said: str, span: tuple[int, int] | None) -> Clue:
    role = found.noun if found.kind in {"count", "number"} else found.kind
    if found.kind == "price" and found.op == "eq":
        found = replace(found, op="lte")  # "a £20 gift" may cost less
    bound = "least" if found.op in {"gt", "gte"} else "most"
    weight = 1 if found.kind in {"price", "rating", "number"} else 2
    return Clue(f"{role or 'number'} {bound}", said, _measured(found, role), span=span, weight=weight)


def _measured(found: Quantity, role: str) -> Maker:
    def make(fields: Fields) -> Made | None:
        if found.kind == "count" and not role:
            return None  # nothing costs fifty centimetres
        path = fields.path(_PEOPLE.get(role, role)) if role else fields.path("price")
        where = fields.compares(path, found.op, found.value, found.upper) if path else None
        if not path or not where:
            return None
        other = _other_money(found, fields)
        return Made(path, lambda speech: asked_of(path, _shown(found, speech), speech) + _remark(other, speech), where)

    return make


def _other_money(found: Quantity, fields: Fields) -> str:
    """The currency of prices here where another was said: they are compared as they stand."""
    here = [*fields.held("priceCurrency"), *fields.held("offers.priceCurrency")]
    return str(here[0]) if found.kind == "price" and found.unit and here and found.unit not in here else ""


def _remark(currency: str, speech: Phrases) -> str:
    return speech.limits.other_money.format(currency) if currency else ""


def asked_of(path: str, limit: str, speech: Phrases) -> str:
    """What is asked of a field."""
    return speech.limits.field.format(speech.word(called(path)), limit)


def being(name: str, value: str) -> Saying:
    """What a field is to be."""
    return lambda speech: speech.limits.value.format(speech.word(name), speech.word(value))


_PEOPLE: dict[str, str] = dict.fromkeys(
    ("people", "persons", "guests", "servings", "portions", "personen", "personas"), "people"
)


def _shown(found: Quantity, speech: Phrases) -> str:
    def one(value: float) -> str:
        match found.kind:
            case "duration":
                return speech.duration(value)
            case "price":
                return speech.money(value, found.unit)
            case _:
                return f"{speech.number(value)} {found.unit}".rstrip()

    ends = (found.value,) if found.upper is None else (found.value, found.upper)
    return speech.limits.compares[found.op].format(*map(one, ends))


def dated(found: When) -> Maker:
    def make(fields: Fields) -> Made | None:
        path = fields.path("date")
        is_to_come = found.start_at is not None and found.start_at > datetime.now(UTC)
        if path is None or (is_to_come and not fields.reaches(path, _micros(datetime.now(UTC)))):
            return None  # what is still to come was not published yet
        where = within(fields, path, found)
        return Made(path, lambda speech: asked_of(path, _span(found, speech), speech), where) if where else None

    return make


def within(fields: Fields, path: str, found: When) -> Filter | None:
    """At this time. What goes on for days is on as long as it has not ended."""
    end = fields.path("end") if path.rpartition(".")[2] in DATED else None
    parts: list[Filter | None] = []
    if found.start_at:
        begins = [fields.compares(each, "gte", _micros(found.start_at)) for each in (path, end) if each]
        known = tuple(each for each in begins if each)
        parts.append(known[0] if len(known) == 1 else Or(known) if known else None)
    if found.end_at:
        parts.append(fields.compares(path, "lt", _micros(found.end_at)))
    return And(tuple(part for part in parts if part)) if parts and all(parts) else None


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _span(found: When, speech: Phrases) -> str:
    start = speech.limits.since.format(speech.day(found.start_at)) if found.start_at else ""
    last = found.end_at - timedelta(microseconds=1) if found.end_at and found.end_at.year > 1 else None
    end = speech.limits.until.format(speech.day(last)) if last else ""
    return " ".join(part for part in (start, end) if part)


def excluding(found: Without) -> Maker:
    return lambda fields: _left_out(fields, found.words)


def _left_out(fields: Fields, said: str) -> Made | None:
    """Left out by a diet the items name, or else by the words that they must not say."""
    stems = key_of(said)
    if not stems:
        return None
    diet = fields.path("diet")
    family = next((name for name in FAMILIES if key_of(name) == stems or key_of(name) == stems[-1:]), None)
    for name in (said, NAMED[FAMILIES[family]] if family else said):
        free = fields.worded.get(diet or "", {}).get((*key_of(name), *key_of("free")))
        if diet and free:
            return Made(diet, being(called(diet), spoken(free[0])), fields.among(diet, free))
    unwanted = tuple(dict.fromkeys((said, *(FAMILIES[family] if family else ()))))
    return Made(f"not {said}", lambda speech: speech.limits.without.format(said), without=unwanted)


def _free_of_charge(fields: Fields) -> Made | None:
    path, price = fields.path("free"), fields.path("price")
    if path:
        return Made(path, lambda speech: speech.limits.free, Condition(path, "eq", True))
    where = fields.compares(price, "eq", 0) if price else None
    return Made(price, lambda speech: speech.limits.free, where) if price and where else None


def _available(fields: Fields) -> Made | None:
    path = fields.path("available")
    if path is None:
        return None
    held = fields.values[path]
    in_stock = [value for value in held if isinstance(value, str) and "instock" in value.lower().replace(" ", "")]
    if in_stock:
        return Made(path, _in_stock, fields.among(path, in_stock))
    flag = any(isinstance(value, bool) for value in held)
    return Made(path, _in_stock, Condition(path, "eq", True) if flag else Condition(path, "gt", 0))


def _in_stock(speech: Phrases) -> str:
    return speech.limits.in_stock


_FLAGS: dict[str, Maker] = {"free": _free_of_charge, "available": _available}


def _made_by(name: str) -> Maker:
    def make(fields: Fields) -> Made | None:
        for path in fields.paths("maker"):
            values = fields.matching(path, name)
            if values:
                return Made(path, _by(values[0]), fields.among(path, values))
        return None

    return make


def _by(name: str) -> Saying:
    return lambda speech: speech.limits.by.format(name)


def placed(said: str) -> Maker:
    """In a place that the items name themselves: their town, their venue."""

    def make(fields: Fields) -> Made | None:
        parts = [
            fields.among(path, values)
            for path in fields.paths("place")
            if fields.is_worded(path) and (values := fields.matching(path, said))
        ]
        where = parts[0] if len(parts) == 1 else Or(tuple(parts))
        return Made("place", lambda speech: speech.limits.within.format(said), where) if parts else None

    return make


def diet_clues(text: str, language: str) -> list[Clue]:
    """Diets that are named. Longer names first, so that "gluten free" is not read as "free"."""
    said = tokens_of(text, language)
    found: list[Clue] = []
    for diet, names in DIETS.items():
        spans = [span for name in names for span in spans_of(key_of(name, language), said)]
        if spans and not _is_negated(text, spans[0]):
            found.append(Clue(f"diet {diet}", text[slice(*spans[0])], keeping_to(diet), selects=True, span=spans[0]))
    return found


def keeping_to(name: str) -> Maker:
    def make(fields: Fields) -> Made | None:
        path = fields.path("diet")
        held = fields.worded.get(path or "", {})
        values = [value for each in (name, *MEETS.get(name, ())) for value in held.get(key_of(each), ())]
        if path and values:
            return Made(path, being(called(path), name), fields.among(path, values))
        if name in AVOIDED and fields.collection.type in {"Recipe", "MenuItem"}:
            return Made(
                f"not {name}", lambda speech: speech.limits.made_of.format(speech.word(name)), without=AVOIDED[name]
            )
        return None

    return make


def _is_negated(text: str, span: tuple[int, int]) -> bool:
    before = words(text[: span[0]].lower())[-2:]
    return any(word in {"not", "non", "nicht", "no", "without"} for word in before)


Token: TypeAlias = tuple[str, int, int]  # a stem and where its word stands


def tokens_of(text: str, language: str) -> list[Token]:
    stem, found, at = stemmer(language), list[Token](), 0
    for word in words(text):
        at = text.find(word, at)
        if at < 0:
            return found  # composed differently: its place is not known
        found.append((stem(fold(word)), at, at + len(word)))
        at += len(word)
    return found


def grams(said: Sequence[Token]) -> Iterator[tuple[Key, tuple[int, int]]]:
    """Every run of a few words, with its place; the longest first, so that they win over their parts."""
    for length in range(MAX_VALUE_WORDS, 0, -1):
        for at in range(len(said) - length + 1):
            run = said[at : at + length]
            yield tuple(stem for stem, _, _ in run), (run[0][1], run[-1][2])


def spans_of(key: Key, said: Sequence[Token]) -> Iterator[tuple[int, int]]:
    for at in range(len(said) - len(key) + 1):
        if key and all(said[at + i][0] == part for i, part in enumerate(key)):
            yield said[at][1], said[at + len(key) - 1][2]
