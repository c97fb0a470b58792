"""The attributes of a request beside its question: filters, answers to clarifications, and the caller's memory."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Any, TypeAlias, cast

from portico.ask.languages.localization import LANGUAGES, english_for, phrases, read_range
from portico.ask.languages.phrasebook import Phrases
from portico.ask.languages.wordlists import fold_words
from portico.ask.understanding.constraints import (
    ConditionBuilder,
    FieldCondition,
    ParsedConstraint,
    diet_condition,
    exclusion_condition,
    parse_diets,
    time_filter,
    value_phrase,
)
from portico.ask.understanding.fields import Fields, key_of, label_of, number_in, words_of
from portico.ask.understanding.kinds import food_tables, is_kind, local_name
from portico.ask.understanding.parsers import DateRange, Exclusion, Finding, Quantity, parse_question, parse_value
from portico.catalog import FieldType, instant, seconds
from portico.errors import InvalidQuery, QueryTooLarge
from portico.query import MATCH_ALL, And, Condition, Filter, Or, parse_filter
from portico.requests import Ask
from portico.search.index.text import fold

MAX_ATTRIBUTES = 64
MAX_NAME = 100  # characters of an attribute's name
MAX_VALUE = 200  # characters of a text
MAX_SEVERAL = 16  # values of a list
MAX_CHARACTERS = 8000  # of all attributes together
MAX_PERSON = 4000  # characters about the caller that are read
LOCATIONS = ("location", "near")  # attributes that name a place
MAX_METRES = 20_000_000  # to the other side of the world
_AVOIDANCE_NAMES = ("allerg", "intoleran", "dislike", "avoid", "exclude", "without")


Reader: TypeAlias = Callable[[str], Sequence[Finding]]


def attribute_constraints(ask: Ask, today: date, language: str) -> tuple[list[ParsedConstraint], list[str]]:
    """Return the caller's own filters and answers: whatever names a field is enforced, the rest is reported."""
    constraints: list[ParsedConstraint] = []

    @cache
    def parse(text: str) -> Sequence[Finding]:
        return parse_value(text, today, language)

    left, attributes = MAX_CHARACTERS, {**ask.filters, **ask.answers}
    ignored: list[str] = []
    for number, (name, raw) in enumerate(attributes.items()):
        label = name[:MAX_NAME] if name in ask.answers else f"query.{name[:MAX_NAME]}"
        value = _truncate(raw)
        left -= _characters(value)
        if number >= MAX_ATTRIBUTES or len(name) > MAX_NAME or left < 0:
            ignored.append(label)
        elif name not in _HANDLED and not is_empty(value):
            is_answer = name in ask.answers
            make = _type_filter(value) if name in KINDS else _attribute(name, value, parse, is_answer=is_answer)
            constraints.append(ParsedConstraint(f"attribute {name}", label, make))
    return constraints, ignored


def _truncate(value: Any) -> Any:
    """Return a value as far as it is read: no long texts, no long lists."""
    match value:
        case str():
            return value[:MAX_VALUE]
        case list():
            return [_truncate(element) for element in cast("list[Any]", value)[:MAX_SEVERAL]]
        case Mapping():
            pairs = list(cast("Mapping[str, Any]", value).items())[:MAX_SEVERAL]
            return {key[:MAX_NAME]: _truncate(inner) for key, inner in pairs}
        case _:
            return value


def _characters(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case list():
            return sum(_characters(element) for element in cast("list[Any]", value))
        case Mapping():
            return sum(_characters(element) for element in cast("Mapping[str, Any]", value).values())
        case _:
            return 8


_HANDLED = frozenset({"site", "collection", *LOCATIONS})  # looked at elsewhere
KINDS = ("itemType", "item_type", "@type")  # attributes that name a type of schema.org


def is_empty(value: Any) -> bool:
    """Return whether a value leaves an attribute open: nothing, "any", "no preference"."""
    if isinstance(value, list):
        return all(is_empty(element) for element in cast("list[Any]", value))
    return value is None or (isinstance(value, str) and fold(value.strip()) in _answer_words().nothing)


def _type_filter(value: Any) -> ConditionBuilder:
    def make(fields: Fields) -> FieldCondition | None:
        kind_names = [local_name(text) for text in texts_in(value)[:MAX_SEVERAL]]
        kinds = [kind for kind in fields.held_values("@type") if isinstance(kind, str)]
        matches = [kind for kind in kinds if any(is_kind(kind, kind_name) for kind_name in kind_names)]

        def says(phrases: Phrases) -> str:
            return phrases.limits.kind.format(", ".join(kind_names))

        if matches:
            return FieldCondition("@type", says, fields.is_one_of("@type", matches))
        is_of_kind = any(is_kind(fields.collection.type, name) for name in kind_names)
        return FieldCondition("@type", says) if is_of_kind and not kinds else None

    return make


def _attribute(name: str, value: Any, parse: Reader, *, is_answer: bool) -> ConditionBuilder:
    def make(fields: Fields) -> FieldCondition | None:
        path = fields.path(name) or fields.field(name)
        if (
            is_answer
            and path in (*fields.paths("duration"), *fields.paths("price"))
            and not isinstance(value, str | list)
        ):
            return None  # ranges were offered
        if isinstance(value, Mapping) and name in fields.collection.fields:
            inside = _inside(fields, name, cast("Mapping[str, Any]", value), parse)
            if inside:
                return FieldCondition(name, value_phrase(words_of(name), render_value(value)), inside)
        where = _value_filter(fields, path, value, parse) if path else None
        return (
            FieldCondition(path, value_phrase(label_of(path), render_value(value)), where) if path and where else None
        )

    return make


def _inside(fields: Fields, name: str, value: Mapping[str, Any], parse: Reader) -> Filter | None:
    """Return what an object asks of the fields below a name, as in {"offers": {"price": {"maxPrice": 5}}}."""
    parts = [
        _value_filter(fields, f"{name}.{key}", inner, parse)
        for key, inner in list(value.items())[:MAX_ATTRIBUTES]
        if f"{name}.{key}" in fields.values and not key.startswith("@")
    ]
    return And(tuple(part for part in parts if part)) if parts and all(parts) else None


def render_value(value: Any) -> str:
    """Return a value in a line, for people."""
    match value:
        case list():
            return ", ".join(render_value(element) for element in cast("list[Any]", value))[:80]
        case Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            return ", ".join(f"{words_of(key.lstrip('$'))} {render_value(inner)}" for key, inner in pairs)[:80]
        case _:
            return str(value)[:80]


def _value_filter(fields: Fields, path: str, value: Any, parse: Reader) -> Filter | None:
    """Return a filter for an attribute's value: words, a number, a range, a list of these, or operators."""
    match value:
        case bool():
            return Condition(path, "eq", value) if _is_flag(fields, path) else None
        case int() | float():
            return _number_filter(fields, path, float(value))
        case str():
            return _text_filter(fields, path, value, parse)
        case list():
            several = cast("list[Any]", value)
            parts = [_value_filter(fields, path, element, parse) for element in several if not is_empty(element)]
            conditions = tuple(part for part in parts if part)
            # Diets add up; of everything else one is enough.
            return (And(conditions) if path == fields.path("diet") else Or(conditions)) if conditions else None
        case Mapping():
            return _range_filter(fields, path, cast("Mapping[str, Any]", value))
        case _:
            return None


def _is_flag(fields: Fields, path: str) -> bool:
    held = fields.held_values(path)
    return bool(held) and all(isinstance(held_value, bool) for held_value in held)


def _number_filter(fields: Fields, path: str, value: float) -> Filter | None:
    """Return a bare number: a price or a time is not to be above it, a date is in that year, anything else is it."""
    if path in fields.paths("duration") or fields.collection.field(path).type == FieldType.DURATION:
        return fields.compares(path, "lte", value * 60)  # people count in minutes
    if path in fields.paths("price"):
        return fields.compares(path, "lte", value)
    if fields.collection.field(path).type == FieldType.TIMESTAMP:
        return _year_filter(fields, path, value)
    return fields.compares(path, "eq", value)


def _year_filter(fields: Fields, path: str, year: float) -> Filter | None:
    if not 1 <= year < 9999 or year != int(year):
        return None
    start, end = (instant(f"{int(bound):04}-01-01") or 0 for bound in (year, year + 1))
    return fields.compares(path, "between", start, end - 1)


def _text_filter(fields: Fields, path: str, value: str, parse: Reader) -> Filter | None:
    """Return what a text asks of a path: the first reading that fits what the path holds."""
    return (
        _diet_value(fields, path, value)
        or _match_value(fields, path, value)
        or _match_translation(fields, path, value)
        or _plain_value(fields, path, value)
        # The ranges that we offer ourselves are read back in every language.
        or (None if value.isascii() else _range_option(fields, path, value))
        or _filter_from_findings(fields, path, parse(value))
        or _range_option(fields, path, value)
        or _contains(fields, path, value)
    )


def _diet_value(fields: Fields, path: str, value: str) -> Filter | None:
    if path != fields.path("diet"):
        return None
    diet = next(
        (name for name, names in food_tables().diets.items() if key_of(value) in {key_of(alias) for alias in names}),
        None,
    )
    condition = diet_condition(diet)(fields) if diet else None
    return condition.where if condition and condition.where != MATCH_ALL else None


def _match_value(fields: Fields, path: str, value: str) -> Filter | None:
    values = fields.match_values(path, value)
    return fields.is_one_of(path, values) if values else None


def _match_translation(fields: Fields, path: str, value: str) -> Filter | None:
    """Return a value in another language than the data's, as options are offered."""
    held = fields.text_values.get(path, {})
    keys = [key_of(english, fields.collection.language) for english in english_for(value)]
    values = [spelling for key in keys for spelling in held.get(key, ())]
    return fields.is_one_of(path, values) if values else None


def _plain_value(fields: Fields, path: str, value: str) -> Filter | None:
    """Return a yes or no, a time in ISO 8601, or a number."""
    if _is_flag(fields, path):
        return Condition(path, "eq", is_yes(value))
    length = seconds(value)
    if length is not None:
        return fields.compares(path, "lte", length)
    if value.strip().isdecimal() and len(value) < 16:
        return _number_filter(fields, path, float(value))
    return None


def _range_option(fields: Fields, path: str, value: str) -> Filter | None:
    bounds = read_range(value)
    return _between(fields, path, *bounds) if bounds else None


def _filter_from_findings(fields: Fields, path: str, findings: Sequence[Finding]) -> Filter | None:
    for finding in findings:
        match finding:
            case Quantity():
                return fields.compares(path, finding.op, finding.value, finding.upper)
            case DateRange():
                return time_filter(fields, path, finding)
            case _:
                pass
    return None


def _contains(fields: Fields, path: str, value: str) -> Filter | None:
    is_text = fields.collection.field(path).type == FieldType.STRING
    return Condition(path, "contains", value) if is_text else None


def _between(fields: Fields, path: str, low: float | None, high: float | None) -> Filter | None:
    if low is not None and high is not None:
        return fields.compares(path, "between", low, high)
    if high is not None:
        return fields.compares(path, "lte", high)
    return fields.compares(path, "gte", low) if low is not None else None


_LEAST = ("minPrice", "minValue", "min", "from", "gte")
_MOST = ("maxPrice", "maxValue", "max", "to", "lte")


def _end(fields: Fields, path: str, value: Any) -> float | None:
    """Return one end of a range: a number, minutes, or a time in ISO 8601."""
    if isinstance(value, str):
        return seconds(value) if seconds(value) is not None else number_in(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * (60 if path in fields.paths("duration") else 1)


def _range_filter(fields: Fields, path: str, value: Mapping[str, Any]) -> Filter | None:
    """Return a schema.org range with its ends, or the operators of Portico's own filters."""
    if any(key.startswith("$") for key in value):
        try:
            return parse_filter({path: dict(value)})
        except QueryTooLarge:
            raise
        except InvalidQuery:
            return None
    low = next((end for key in _LEAST if (end := _end(fields, path, value.get(key))) is not None), None)
    high = next((end for key in _MOST if (end := _end(fields, path, value.get(key))) is not None), None)
    name = value.get("name") or value.get("value")
    if low is None and high is None and isinstance(name, str):
        values = fields.match_values(path, name)
        return fields.is_one_of(path, values) if values else None
    return _between(fields, path, low, high)


def memory_constraints(ask: Ask, today: date, language: str) -> Iterator[ParsedConstraint]:
    """Yield what is known of the person: diets and what they must not have. The rest is only a colour."""
    left = MAX_PERSON
    for text in (*ask.memory, ask.background):
        yield from _of_person(text[: min(left, 2000)], today, language)
        left = max(left - len(text), 0)
    for name, value in list(ask.profile.items())[:MAX_ATTRIBUTES]:
        for text in texts_in(value)[:20]:
            left -= len(text)
            if left < 0:
                return
            if any(part in name.lower() for part in _AVOIDANCE_NAMES):
                unwanted = Exclusion(words=text[:80], start=0, end=0)
                yield ParsedConstraint(
                    f"without {text}", f"context.{name}", exclusion_condition(unwanted), selects=False
                )
            else:
                yield from (
                    replace(constraint, words=f"context.{name}")
                    for constraint in _of_person(text[:200], today, language)
                )


def _of_person(text: str, today: date, language: str) -> Iterator[ParsedConstraint]:
    for constraint in parse_diets(text, language):
        yield replace(constraint, span=None, selects=False)
    for finding in parse_question(text, today, language):
        if isinstance(finding, Exclusion):
            words = text[finding.start : finding.end]
            yield ParsedConstraint(f"without {finding.words}", words, exclusion_condition(finding), selects=False)


@dataclass(frozen=True, slots=True)
class AnswerWords:
    """What a person may answer in any language that asks for it, without accents and capitals."""

    yes: frozenset[str]
    no: frozenset[str]
    nothing: frozenset[str]  # no preference


@cache
def _answer_words() -> AnswerWords:
    tables = [phrases(language) for language in LANGUAGES]
    return AnswerWords(
        yes=fold_words(["true", "yes", "y", *(table.yes for table in tables)]),
        no=fold_words(["false", "no", "n", *(table.no for table in tables)]),
        nothing=fold_words(
            ["", "none", "any", "all", "no_preference"]
            + [text for table in tables for text in (table.no_preference, table.any)]
        ),
    )


def is_yes(value: Any) -> bool:
    """Return whether an answer is a yes, in any language."""
    return value is True or (isinstance(value, str) and fold(value.strip()) in _answer_words().yes)


def is_no(value: Any) -> bool:
    """Return whether an answer is a no, in any language."""
    return value is False or (isinstance(value, str) and fold(value.strip()) in _answer_words().no)


def texts_in(value: Any) -> list[str]:
    several = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [text for text in several if isinstance(text, str)]


# Places


@dataclass(frozen=True, slots=True)
class LocationFilter:
    """A place by its name or by its position, as an attribute gives it."""

    name: str
    position: tuple[float, float] | None = None  # latitude and longitude
    metres: float | None = None  # around the position
    is_around: bool = False  # what is near it is meant, too


def locations_of(ask: Ask) -> tuple[dict[str, LocationFilter], list[str]]:
    """Return the places that attributes and answers name, by their labels, and the labels of those that name none."""
    values = {**ask.filters, **ask.answers}
    places: dict[str, LocationFilter] = {}
    unread: list[str] = []
    for name in LOCATIONS:
        label = name if name in ask.answers else f"query.{name}"
        if is_empty(values.get(name)):
            continue
        if location := read_location(values[name]):
            places[label] = replace(location, is_around=name == "near" or location.position is not None)
        else:
            unread.append(label)
    return places, unread


def read_location(value: Any) -> LocationFilter | None:
    """Return a place from a text, or from a Place, PostalAddress, GeoCoordinates or GeoCircle of schema.org."""
    match value:
        case str():
            return _read_position(value) or (LocationFilter(value[:MAX_VALUE]) if value.strip() else None)
        case Mapping():
            place = cast("Mapping[str, Any]", value)
            inner = (place.get(name) for name in ("geo", "geoMidpoint", "address"))
            parts = [place, *(cast("Mapping[str, Any]", element) for element in inner if isinstance(element, Mapping))]
            position = next((candidate for part in parts if (candidate := _position(part))), None)
            return _around(position, place) if position else _place_by_name(parts)
        case list() if len(cast("list[Any]", value)) == 1:
            return read_location(value[0])
        case _:
            return None


def _read_position(text: str) -> LocationFilter | None:
    """Return a position as "54.47, -0.58" or "geo:54.47,-0.58" (RFC 5870)."""
    match = _POSITION.fullmatch(text.strip()) if len(text) <= MAX_NAME else None
    position = _position({"latitude": float(match[1]), "longitude": float(match[2])}) if match else None
    return _around(position, {}) if position else None


_POSITION = re.compile(r"(?:geo:)?([-+]?\d{1,3}(?:\.\d{1,15})?)\s*,\s*([-+]?\d{1,3}(?:\.\d{1,15})?)")


def _position(place: Mapping[str, Any]) -> tuple[float, float] | None:
    latitude, longitude = (number_in(place.get(name)) for name in ("latitude", "longitude"))
    if latitude is None or longitude is None or not (abs(latitude) <= 90 and abs(longitude) <= 180):
        return None
    return latitude, longitude


def _around(position: tuple[float, float], circle: Mapping[str, Any]) -> LocationFilter:
    metres = number_in(circle.get("geoRadius"))
    is_length = metres is not None and 0 < metres < MAX_METRES
    return LocationFilter("{:g}, {:g}".format(*position), position, metres if is_length else None)


def _place_by_name(parts: Sequence[Mapping[str, Any]]) -> LocationFilter | None:
    """Return the place that an object names most closely."""
    names = [part.get(name) for name in _PLACE_NAMES for part in parts]
    name = next((name for name in names if isinstance(name, str) and name.strip()), None)
    return LocationFilter(name[:MAX_VALUE]) if name else None


_PLACE_NAMES = ("name", "address", "addressLocality", "addressRegion", "addressCountry")
