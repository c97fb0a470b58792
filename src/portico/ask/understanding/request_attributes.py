"""What callers say beside the question: attributes, answers to what was asked back, and what is known of them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Any, TypeAlias, cast

from portico.ask.languages.localization import LANGUAGES, english_for, phrases, read_range
from portico.ask.languages.phrasebook import Phrases
from portico.ask.understanding.constraints import Clue, Made, Maker, being, diet_clues, excluding, keeping_to, within
from portico.ask.understanding.fields import Fields, called, key_of, number_in, spoken
from portico.ask.understanding.kinds import DIETS, is_kind, local_name
from portico.ask.understanding.parsers import Finding, Quantity, When, Without, read, read_value
from portico.catalog import FieldType, instant, seconds
from portico.errors import InvalidQuery, QueryTooLarge
from portico.query import EVERYTHING, And, Condition, Filter, Or, parse_filter
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
_NOTHING = frozenset({"", "none", "any", "all", "no_preference"}) | {
    fold(said) for language in LANGUAGES for said in (phrases(language).no_preference, phrases(language).any)
}
_YES = frozenset({"true", "yes", "y"}) | {fold(phrases(language).yes) for language in LANGUAGES}
_NO = frozenset({"false", "no", "n"}) | {fold(phrases(language).no) for language in LANGUAGES}
_AVOIDING = ("allerg", "intoleran", "dislike", "avoid", "exclude", "without")


Read: TypeAlias = Callable[[str], Sequence[Finding]]


def attribute_clues(ask: Ask, today: date, language: str) -> tuple[list[Clue], list[str]]:
    """The caller's own filters and answers: whatever names a field is enforced, the rest is reported."""
    clues: list[Clue] = []

    @cache
    def reading(text: str) -> Sequence[Finding]:
        return read_value(text, today, language)

    left, given = MAX_CHARACTERS, {**ask.filters, **ask.answers}
    ignored: list[str] = []
    for number, (name, said) in enumerate(given.items()):
        label = name[:MAX_NAME] if name in ask.answers else f"query.{name[:MAX_NAME]}"
        value = _bounded(said)
        left -= _characters(value)
        if number >= MAX_ATTRIBUTES or len(name) > MAX_NAME or left < 0:
            ignored.append(label)
        elif name not in _HANDLED and not says_nothing(value):
            is_answer = name in ask.answers
            make = _type_filter(value) if name in KINDS else _attribute(name, value, reading, is_answer=is_answer)
            clues.append(Clue(f"attribute {name}", label, make))
    return clues, ignored


def _bounded(value: Any) -> Any:
    """A value as far as it is read: no long texts, no long lists."""
    match value:
        case str():
            return value[:MAX_VALUE]
        case list():
            return [_bounded(each) for each in cast("list[Any]", value)[:MAX_SEVERAL]]
        case Mapping():
            pairs = list(cast("Mapping[str, Any]", value).items())[:MAX_SEVERAL]
            return {key[:MAX_NAME]: _bounded(inner) for key, inner in pairs}
        case _:
            return value


def _characters(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case list():
            return sum(_characters(each) for each in cast("list[Any]", value))
        case Mapping():
            return sum(_characters(each) for each in cast("Mapping[str, Any]", value).values())
        case _:
            return 8


_HANDLED = frozenset({"site", "collection", *LOCATIONS})  # looked at elsewhere
KINDS = ("itemType", "item_type", "@type")  # attributes that name a type of schema.org


def says_nothing(value: Any) -> bool:
    """Whether a value leaves an attribute open: nothing, "any", "no preference"."""
    if isinstance(value, list):
        return all(says_nothing(each) for each in cast("list[Any]", value))
    return value is None or (isinstance(value, str) and fold(value.strip()) in _NOTHING)


def _type_filter(value: Any) -> Maker:
    def make(fields: Fields) -> Made | None:
        wanted = [local_name(text) for text in texts_in(value)[:MAX_SEVERAL]]
        kinds = [kind for kind in fields.held("@type") if isinstance(kind, str)]
        fitting = [kind for kind in kinds if any(is_kind(kind, each) for each in wanted)]

        def says(speech: Phrases) -> str:
            return speech.limits.kind.format(", ".join(wanted))

        if fitting:
            return Made("@type", says, fields.among("@type", fitting))
        is_of_kind = any(is_kind(fields.collection.type, name) for name in wanted)
        return Made("@type", says) if is_of_kind and not kinds else None

    return make


def _attribute(name: str, value: Any, reading: Read, *, is_answer: bool) -> Maker:
    def make(fields: Fields) -> Made | None:
        path = fields.path(name) or fields.field(name)
        if (
            is_answer
            and path in (*fields.paths("duration"), *fields.paths("price"))
            and not isinstance(value, str | list)
        ):
            return None  # ranges were offered
        if isinstance(value, Mapping) and name in fields.collection.fields:
            inside = _inside(fields, name, cast("Mapping[str, Any]", value), reading)
            if inside:
                return Made(name, being(spoken(name), shown_value(value)), inside)
        where = _value_filter(fields, path, value, reading) if path else None
        return Made(path, being(called(path), shown_value(value)), where) if path and where else None

    return make


def _inside(fields: Fields, name: str, value: Mapping[str, Any], reading: Read) -> Filter | None:
    """What an object asks of the fields below a name, as in {"offers": {"price": {"maxPrice": 5}}}."""
    parts = [
        _value_filter(fields, f"{name}.{key}", inner, reading)
        for key, inner in list(value.items())[:MAX_ATTRIBUTES]
        if f"{name}.{key}" in fields.values and not key.startswith("@")
    ]
    return And(tuple(part for part in parts if part)) if parts and all(parts) else None


def shown_value(value: Any) -> str:
    """A value in a line, for people."""
    match value:
        case list():
            return ", ".join(shown_value(each) for each in cast("list[Any]", value))[:80]
        case Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            return ", ".join(f"{spoken(key.lstrip('$'))} {shown_value(inner)}" for key, inner in pairs)[:80]
        case _:
            return str(value)[:80]


def _value_filter(fields: Fields, path: str, value: Any, reading: Read) -> Filter | None:
    """What a value of an attribute asks of a path: words, a number, a range, a list of any of these, or operators."""
    match value:
        case bool():
            return Condition(path, "eq", value) if _is_flag(fields, path) else None
        case int() | float():
            return _number_filter(fields, path, float(value))
        case str():
            return _text_filter(fields, path, value, reading)
        case list():
            several = cast("list[Any]", value)
            parts = [_value_filter(fields, path, each, reading) for each in several if not says_nothing(each)]
            known = tuple(each for each in parts if each)
            # Diets add up; of everything else one is enough.
            return (And(known) if path == fields.path("diet") else Or(known)) if known else None
        case Mapping():
            return _range_filter(fields, path, cast("Mapping[str, Any]", value))
        case _:
            return None


def _is_flag(fields: Fields, path: str) -> bool:
    held = fields.held(path)
    return bool(held) and all(isinstance(each, bool) for each in held)


def _number_filter(fields: Fields, path: str, value: float) -> Filter | None:
    """A bare number: a price or a time is not to be above it, a date is in that year, anything else is it."""
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
    start, end = (instant(f"{int(each):04}-01-01") or 0 for each in (year, year + 1))
    return fields.compares(path, "between", start, end - 1)


def _text_filter(fields: Fields, path: str, value: str, reading: Read) -> Filter | None:
    """What a text asks of a path: the first reading that fits what the path holds."""
    return (
        _diet_value(fields, path, value)
        or _known_value(fields, path, value)
        or _translated_value(fields, path, value)
        or _plain_value(fields, path, value)
        # The ranges that we offer ourselves are read back in every language.
        or (None if value.isascii() else _offered_value(fields, path, value))
        or _worded_value(fields, path, reading(value))
        or _offered_value(fields, path, value)
        or _contained(fields, path, value)
    )


def _diet_value(fields: Fields, path: str, value: str) -> Filter | None:
    if path != fields.path("diet"):
        return None
    diet = next((name for name, said in DIETS.items() if key_of(value) in {key_of(each) for each in said}), None)
    made = keeping_to(diet)(fields) if diet else None
    return made.where if made and made.where != EVERYTHING else None


def _known_value(fields: Fields, path: str, value: str) -> Filter | None:
    values = fields.matching(path, value)
    return fields.among(path, values) if values else None


def _translated_value(fields: Fields, path: str, value: str) -> Filter | None:
    """A value in another language than the data's, as options are offered."""
    held = fields.worded.get(path, {})
    keys = [key_of(english, fields.collection.language) for english in english_for(value)]
    values = [spelling for key in keys for spelling in held.get(key, ())]
    return fields.among(path, values) if values else None


def _plain_value(fields: Fields, path: str, value: str) -> Filter | None:
    """A yes or no, a time in ISO 8601, or a number."""
    if _is_flag(fields, path):
        return Condition(path, "eq", is_yes(value))
    length = seconds(value)
    if length is not None:
        return fields.compares(path, "lte", length)
    if value.strip().isdecimal() and len(value) < 16:
        return _number_filter(fields, path, float(value))
    return None


def _offered_value(fields: Fields, path: str, value: str) -> Filter | None:
    bounds = read_range(value)
    return _between(fields, path, *bounds) if bounds else None


def _worded_value(fields: Fields, path: str, findings: Sequence[Finding]) -> Filter | None:
    for finding in findings:
        match finding:
            case Quantity():
                return fields.compares(path, finding.op, finding.value, finding.upper)
            case When():
                return within(fields, path, finding)
            case _:
                pass
    return None


def _contained(fields: Fields, path: str, value: str) -> Filter | None:
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
    """One end of a range: a number, minutes of a time, or a time in ISO 8601."""
    if isinstance(value, str):
        return seconds(value) if seconds(value) is not None else number_in(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * (60 if path in fields.paths("duration") else 1)


def _range_filter(fields: Fields, path: str, value: Mapping[str, Any]) -> Filter | None:
    """A schema.org range with its ends, or the operators of Portico's own filters."""
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
        values = fields.matching(path, name)
        return fields.among(path, values) if values else None
    return _between(fields, path, low, high)


def remembered_clues(ask: Ask, today: date, language: str) -> Iterator[Clue]:
    """What is known of the person: diets and what they must not have. The rest is only a colour."""
    left = MAX_PERSON
    for text in (*ask.memory, ask.background):
        yield from _of_person(text[: min(left, 2000)], today, language)
        left = max(left - len(text), 0)
    for name, value in list(ask.profile.items())[:MAX_ATTRIBUTES]:
        for text in texts_in(value)[:20]:
            left -= len(text)
            if left < 0:
                return
            if any(part in name.lower() for part in _AVOIDING):
                unwanted = Without(words=text[:80], start=0, end=0)
                yield Clue(f"without {text}", f"context.{name}", excluding(unwanted), selects=False)
            else:
                yield from (replace(each, words=f"context.{name}") for each in _of_person(text[:200], today, language))


def _of_person(text: str, today: date, language: str) -> Iterator[Clue]:
    for clue in diet_clues(text, language):
        yield replace(clue, span=None, selects=False)
    for finding in read(text, today, language):
        if isinstance(finding, Without):
            said = text[finding.start : finding.end]
            yield Clue(f"without {finding.words}", said, excluding(finding), selects=False)


def is_yes(value: Any) -> bool:
    """A yes, in any language that asks for it."""
    return value is True or (isinstance(value, str) and fold(value.strip()) in _YES)


def is_no(value: Any) -> bool:
    return value is False or (isinstance(value, str) and fold(value.strip()) in _NO)


def texts_in(value: Any) -> list[str]:
    several = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [each for each in several if isinstance(each, str)]


# Places


@dataclass(frozen=True, slots=True)
class Location:
    """A place by its name or by its position, as an attribute gives it."""

    name: str
    position: tuple[float, float] | None = None  # latitude and longitude
    metres: float | None = None  # around the position
    is_around: bool = False  # what is near it is meant, too


def locations_of(ask: Ask) -> tuple[dict[str, Location], list[str]]:
    """The places that attributes and answers name, by their labels, and the labels of those that name none."""
    values = {**ask.filters, **ask.answers}
    places: dict[str, Location] = {}
    unread: list[str] = []
    for name in LOCATIONS:
        label = name if name in ask.answers else f"query.{name}"
        if says_nothing(values.get(name)):
            continue
        if location := read_location(values[name]):
            places[label] = replace(location, is_around=name == "near" or location.position is not None)
        else:
            unread.append(label)
    return places, unread


def read_location(value: Any) -> Location | None:
    """A place from a text, or from a Place, PostalAddress, GeoCoordinates or GeoCircle of schema.org."""
    match value:
        case str():
            return _read_position(value) or (Location(value[:MAX_VALUE]) if value.strip() else None)
        case Mapping():
            place = cast("Mapping[str, Any]", value)
            inner = (place.get(name) for name in ("geo", "geoMidpoint", "address"))
            parts = [place, *(cast("Mapping[str, Any]", each) for each in inner if isinstance(each, Mapping))]
            position = next((found for part in parts if (found := _position(part))), None)
            return _around(position, place) if position else _named_place(parts)
        case list() if len(cast("list[Any]", value)) == 1:
            return read_location(value[0])
        case _:
            return None


def _read_position(text: str) -> Location | None:
    """A position as "54.47, -0.58" or "geo:54.47,-0.58" (RFC 5870)."""
    found = _POSITION.fullmatch(text.strip()) if len(text) <= MAX_NAME else None
    position = _position({"latitude": float(found[1]), "longitude": float(found[2])}) if found else None
    return _around(position, {}) if position else None


_POSITION = re.compile(r"(?:geo:)?([-+]?\d{1,3}(?:\.\d{1,15})?)\s*,\s*([-+]?\d{1,3}(?:\.\d{1,15})?)")


def _position(place: Mapping[str, Any]) -> tuple[float, float] | None:
    latitude, longitude = (number_in(place.get(name)) for name in ("latitude", "longitude"))
    if latitude is None or longitude is None or not (abs(latitude) <= 90 and abs(longitude) <= 180):
        return None
    return latitude, longitude


def _around(position: tuple[float, float], circle: Mapping[str, Any]) -> Location:
    metres = number_in(circle.get("geoRadius"))
    is_length = metres is not None and 0 < metres < MAX_METRES
    return Location("{:g}, {:g}".format(*position), position, metres if is_length else None)


def _named_place(parts: Sequence[Mapping[str, Any]]) -> Location | None:
    """The place that an object names most closely."""
    names = [part.get(name) for name in _PLACE_NAMES for part in parts]
    name = next((name for name in names if isinstance(name, str) and name.strip()), None)
    return Location(name[:MAX_VALUE]) if name else None


_PLACE_NAMES = ("name", "address", "addressLocality", "addressRegion", "addressCountry")
