"""Constraints of a question, and their filter in each collection: a price, a diet, a date, a thing to leave out.

Reads words; knows no store.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TypeAlias

from portico.ask.languages.phrasebook import Phrases
from portico.ask.understanding.fields import EVENT_DATES, MAX_VALUE_WORDS, Fields, Key, key_of, label_of, words_of
from portico.ask.understanding.kinds import QUESTION_WORDS, food_tables
from portico.ask.understanding.parsers import DateRange, Exclusion, Finding, Flag, MakerMention, PlaceMention, Quantity
from portico.query import MATCH_ALL, And, Condition, Filter, Or
from portico.search.index.text import fold, stemmer, words

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PhraseBuilder: TypeAlias = Callable[[Phrases], str]


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """What a constraint means in one collection: a filter, and words that items must not contain."""

    path: str
    says: PhraseBuilder
    where: Filter = MATCH_ALL
    without: tuple[str, ...] = ()


ConditionBuilder: TypeAlias = Callable[[Fields], FieldCondition | None]


@dataclass(frozen=True, slots=True)
class ParsedConstraint:
    """One thing that was said. A later clue of the same slot takes the place of an earlier one."""

    slot: str
    words: str
    build: ConditionBuilder
    strict: bool = True  # never given up, even if nothing is left
    selects: bool = True  # collections that cannot tell are not asked
    weight: int = 2  # how much it says of where to look; nearly everything has a price
    span: tuple[int, int] | None = None  # in the question, if its words are cut out once understood


# Clues from the words


def parse_constraints(findings: Sequence[Finding], text: str, site: Sequence[Fields]) -> Iterator[ParsedConstraint]:
    for raw in findings:
        finding = _with_field_name(_as_rating(raw, text), text, site) if isinstance(raw, Quantity) else raw
        source = text[finding.start : finding.end]
        span = (finding.start, finding.end)
        match finding:
            case Quantity():
                yield _quantity_constraint(finding, source, span)
            case DateRange():
                yield ParsedConstraint("date", source, date_condition(finding), span=span)
            case Exclusion() if not is_factual(text) or _food_stems() & frozenset(key_of(finding.words)):
                yield ParsedConstraint(
                    f"without {finding.words}", source, exclusion_condition(finding), selects=False, span=span
                )
            case Flag() if finding.name in _FLAGS and finding.value:
                yield ParsedConstraint(finding.name, source, _FLAGS[finding.name], span=span)
            case MakerMention():
                yield ParsedConstraint("maker", source, _maker_condition(finding.words), span=span)
            case PlaceMention():
                yield ParsedConstraint("place", source, place_condition(finding.words), span=span)
            case _:
                pass  # what is near something, and orders, are looked at by themselves


def is_factual(text: str) -> bool:
    """Return whether a question wants to know something: "why is there no ferry" leaves nothing out."""
    lowered = [word.lower() for word in words(text)[:40]]
    return bool(lowered) and (lowered[0] in QUESTION_WORDS or "?" in text or "¿" in text)


@cache
def _food_stems() -> frozenset[str]:
    words = {word for family in food_tables().ingredients.values() for word in family}
    return frozenset(stem for word in words for stem in key_of(word))


def _as_rating(quantity: Quantity, text: str) -> Quantity:
    """Return a bare number behind "rated" is a rating."""
    if quantity.kind != "number" or not _RATING_WORDS.search(text[max(quantity.start - 20, 0) : quantity.end]):
        return quantity
    return replace(quantity, kind="rating")


_RATING_WORDS = re.compile(r"\b(?:rated|ratings?|scores?|bewertet|valorad\w+|noté\w*)\b", re.IGNORECASE)


def _with_field_name(quantity: Quantity, text: str, site: Sequence[Fields]) -> Quantity:
    """Return a number behind the name of a field is about that field: "height under 50"."""
    name = (
        None
        if quantity.noun or quantity.kind not in {"number", "count"}
        else _FIELD_NAME.search(text[: quantity.start])
    )
    if not name or not any(fields.counts(name[1]) for fields in site):
        return quantity
    return replace(quantity, kind="count", noun=name[1].lower(), start=name.start(1))


_FIELD_NAME = re.compile(r"([^\W\d_]+)\s+(?:(?:of|is|von|ist|de|es|est)\s+)?$", re.IGNORECASE)


def _quantity_constraint(quantity: Quantity, text: str, span: tuple[int, int] | None) -> ParsedConstraint:
    role = quantity.noun if quantity.kind in {"count", "number"} else quantity.kind
    if quantity.kind == "price" and quantity.op == "eq":
        quantity = replace(quantity, op="lte")  # "a £20 gift" may cost less
    bound = "least" if quantity.op in {"gt", "gte"} else "most"
    weight = 1 if quantity.kind in {"price", "rating", "number"} else 2
    return ParsedConstraint(
        f"{role or 'number'} {bound}", text, _quantity_condition(quantity, role), span=span, weight=weight
    )


def _quantity_condition(quantity: Quantity, role: str) -> ConditionBuilder:
    def make(fields: Fields) -> FieldCondition | None:
        if quantity.kind == "count" and not role:
            return None  # nothing costs fifty centimetres
        path = fields.path(_PEOPLE.get(role, role)) if role else fields.path("price")
        where = fields.compares(path, quantity.op, quantity.value, quantity.upper) if path else None
        if not path or not where:
            return None
        other = _other_money(quantity, fields)
        return FieldCondition(
            path,
            lambda phrases: (
                render_limit(path, _render_quantity(quantity, phrases), phrases)
                + (phrases.limits.other_money.format(other) if other else "")
            ),
            where,
        )

    return make


def _other_money(quantity: Quantity, fields: Fields) -> str:
    """Return the currency of prices here where another was said: they are compared as they stand."""
    spec = fields.collection.fields.get(fields.path("price") or "")
    own = [spec.unit] if spec and spec.unit else []
    here = [*fields.held_values("priceCurrency"), *fields.held_values("offers.priceCurrency"), *own]
    return str(here[0]) if quantity.kind == "price" and quantity.unit and here and quantity.unit not in here else ""


def render_limit(path: str, limit: str, phrases: Phrases) -> str:
    """Return what is asked of a field."""
    return phrases.limits.field.format(phrases.word(label_of(path)), limit)


def value_phrase(name: str, value: str) -> PhraseBuilder:
    """Return what a field is to be."""
    return lambda phrases: phrases.limits.value.format(phrases.word(name), phrases.word(value))


_PEOPLE: dict[str, str] = dict.fromkeys(
    ("people", "persons", "guests", "servings", "portions", "personen", "personas"), "people"
)


def _render_quantity(quantity: Quantity, phrases: Phrases) -> str:
    def one(value: float) -> str:
        match quantity.kind:
            case "duration":
                return phrases.duration(value)
            case "price":
                return phrases.money(value, quantity.unit)
            case _:
                return f"{phrases.number(value)} {quantity.unit}".rstrip()

    ends = (quantity.value,) if quantity.upper is None else (quantity.value, quantity.upper)
    return phrases.limits.compares[quantity.op].format(*map(one, ends))


def date_condition(dates: DateRange) -> ConditionBuilder:
    def make(fields: Fields) -> FieldCondition | None:
        path = fields.path("date")
        is_to_come = dates.start_at is not None and dates.start_at > datetime.now(UTC)
        if path is None or (is_to_come and not fields.reaches(path, _micros(datetime.now(UTC)))):
            return None  # what is still to come was not published yet
        where = time_filter(fields, path, dates)
        return (
            FieldCondition(path, lambda phrases: render_limit(path, _render_interval(dates, phrases), phrases), where)
            if where
            else None
        )

    return make


def time_filter(fields: Fields, path: str, dates: DateRange) -> Filter | None:
    """Return a filter for a time. What goes on for days matches until it has ended."""
    if fields.has_years(path):
        return _year_filter(fields, path, dates)
    end = fields.path("end") if path.rpartition(".")[2] in EVENT_DATES else None
    parts: list[Filter | None] = []
    if dates.start_at:
        begins = [fields.compares(name, "gte", _micros(dates.start_at)) for name in (path, end) if name]
        conditions = tuple(condition for condition in begins if condition)
        parts.append(conditions[0] if len(conditions) == 1 else Or(conditions) if conditions else None)
    if dates.end_at:
        parts.append(fields.compares(path, "lt", _micros(dates.end_at)))
    return And(tuple(part for part in parts if part)) if parts and all(parts) else None


def _year_filter(fields: Fields, path: str, dates: DateRange) -> Filter | None:
    """Return a filter for the years that a time lies in, where only years are known."""
    parts: list[Filter | None] = []
    if dates.start_at:
        parts.append(fields.compares(path, "gte", dates.start_at.year))
    if dates.end_at and dates.end_at.year > 1:
        parts.append(fields.compares(path, "lte", (dates.end_at - timedelta(microseconds=1)).year))
    return And(tuple(part for part in parts if part)) if parts and all(parts) else None


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _render_interval(dates: DateRange, phrases: Phrases) -> str:
    start = phrases.limits.since.format(phrases.day(dates.start_at)) if dates.start_at else ""
    last = dates.end_at - timedelta(microseconds=1) if dates.end_at and dates.end_at.year > 1 else None
    end = phrases.limits.until.format(phrases.day(last)) if last else ""
    return " ".join(part for part in (start, end) if part)


def exclusion_condition(exclusion: Exclusion) -> ConditionBuilder:
    return lambda fields: _build_exclusion(fields, exclusion.words)


def _build_exclusion(fields: Fields, excluded_name: str) -> FieldCondition | None:
    """Return a condition that excludes by a diet of the items, or else by words that they must not contain."""
    stems = key_of(excluded_name)
    if not stems:
        return None
    diet = fields.path("diet")
    family = next(
        (name for name in food_tables().ingredients if key_of(name) == stems or key_of(name) == stems[-1:]), None
    )
    for name in (
        excluded_name,
        food_tables().family_names[food_tables().ingredients[family]] if family else excluded_name,
    ):
        free = fields.text_values.get(diet or "", {}).get((*key_of(name), *key_of("free")))
        if diet and free:
            return FieldCondition(diet, value_phrase(label_of(diet), words_of(free[0])), fields.is_one_of(diet, free))
    unwanted = tuple(dict.fromkeys((excluded_name, *(food_tables().ingredients[family] if family else ()))))
    return FieldCondition(
        f"not {excluded_name}", lambda phrases: phrases.limits.without.format(excluded_name), without=unwanted
    )


def _free_of_charge(fields: Fields) -> FieldCondition | None:
    path, price = fields.path("free"), fields.path("price")
    if path:
        return FieldCondition(path, lambda phrases: phrases.limits.free, Condition(path, "eq", True))
    where = fields.compares(price, "eq", 0) if price else None
    return FieldCondition(price, lambda phrases: phrases.limits.free, where) if price and where else None


def _available(fields: Fields) -> FieldCondition | None:
    path = fields.path("available")
    if path is None:
        return None
    held = fields.values[path]
    in_stock = [value for value in held if isinstance(value, str) and "instock" in value.lower().replace(" ", "")]
    if in_stock:
        return FieldCondition(path, _in_stock, fields.is_one_of(path, in_stock))
    flag = any(isinstance(value, bool) for value in held)
    return FieldCondition(path, _in_stock, Condition(path, "eq", True) if flag else Condition(path, "gt", 0))


def _in_stock(phrases: Phrases) -> str:
    return phrases.limits.in_stock


_FLAGS: dict[str, ConditionBuilder] = {"free": _free_of_charge, "available": _available}


def _maker_condition(name: str) -> ConditionBuilder:
    def make(fields: Fields) -> FieldCondition | None:
        for path in fields.paths("maker"):
            values = fields.match_values(path, name)
            if values:
                return FieldCondition(path, _by(values[0]), fields.is_one_of(path, values))
        return None

    return make


def _by(name: str) -> PhraseBuilder:
    return lambda phrases: phrases.limits.by.format(name)


def place_condition(place: str) -> ConditionBuilder:
    """Return a condition for a place that the items name themselves: their town, their venue."""

    def make(fields: Fields) -> FieldCondition | None:
        parts = [
            fields.is_one_of(path, values)
            for path in fields.paths("place")
            if fields.has_text_values(path) and (values := fields.match_values(path, place))
        ]
        where = parts[0] if len(parts) == 1 else Or(tuple(parts))
        return FieldCondition("place", lambda phrases: phrases.limits.within.format(place), where) if parts else None

    return make


def parse_diets(text: str, language: str) -> list[ParsedConstraint]:
    """Return the diets that are named. Longer names come first, so that "gluten free" is not read as "free"."""
    tokens = tokens_of(text, language)
    constraints: list[ParsedConstraint] = []
    for diet, names in food_tables().diets.items():
        spans = [span for name in names for span in spans_of(key_of(name, language), tokens)]
        before = words(text[: spans[0][0]].lower())[-2:] if spans else []
        if spans and not any(word in {"not", "non", "nicht", "no", "without"} for word in before):
            constraints.append(
                ParsedConstraint(
                    f"diet {diet}", text[slice(*spans[0])], diet_condition(diet), selects=True, span=spans[0]
                )
            )
    return constraints


def diet_condition(name: str) -> ConditionBuilder:
    def make(fields: Fields) -> FieldCondition | None:
        path = fields.path("diet")
        held = fields.text_values.get(path or "", {})
        values = [
            value
            for diet in (name, *food_tables().stricter_diets.get(name, ()))
            for value in held.get(key_of(diet), ())
        ]
        if path and values:
            return FieldCondition(path, value_phrase(label_of(path), name), fields.is_one_of(path, values))
        if name in food_tables().avoided and fields.collection.type in {"Recipe", "MenuItem"}:
            return FieldCondition(
                f"not {name}",
                lambda phrases: phrases.limits.made_of.format(phrases.word(name)),
                without=food_tables().avoided[name],
            )
        return None

    return make


StemToken: TypeAlias = tuple[str, int, int]  # a stem and where its word stands


def tokens_of(text: str, language: str) -> list[StemToken]:
    stem, tokens, at = stemmer(language), list[StemToken](), 0
    for word in words(text):
        at = text.find(word, at)
        if at < 0:
            return tokens  # composed differently: its place is not known
        tokens.append((stem(fold(word)), at, at + len(word)))
        at += len(word)
    return tokens


def grams(tokens: Sequence[StemToken]) -> Iterator[tuple[Key, tuple[int, int]]]:
    """Yield every run of a few words, with its place; the longest first, so that they win over their parts."""
    for length in range(MAX_VALUE_WORDS, 0, -1):
        for at in range(len(tokens) - length + 1):
            run = tokens[at : at + length]
            yield tuple(stem for stem, _, _ in run), (run[0][1], run[-1][2])


def spans_of(key: Key, tokens: Sequence[StemToken]) -> Iterator[tuple[int, int]]:
    for at in range(len(tokens) - len(key) + 1):
        if key and all(tokens[at + i][0] == part for i, part in enumerate(key)):
            yield tokens[at][1], tokens[at + len(key) - 1][2]
