"""The meaning and the values of a collection's fields: the price, the places, the dates. Reads no question."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

from portico.ask.understanding.kinds import kind_tables
from portico.catalog import NUMERIC, Collection, FieldType, instant, seconds, singular
from portico.query import MAX_LIST, Condition, Filter, Or
from portico.search.index import ValueCounts
from portico.search.index.text import fold, stemmer, words

# Paths in schema.org vocabulary by what they mean, the most telling first. What a site calls otherwise is found by
# the words of its name.
ROLES: dict[str, tuple[str, ...]] = {
    "price": (
        "price", "offers.price", "offers.lowPrice", "lowPrice", "offers.offers.price", "averagePrice", "estimatedCost",
        "estimatedCost.value", "cost", "offers.priceSpecification.price", "priceSpecification.price",
        "baseSalary.value.value", "baseSalary.value", "baseSalary", "salary",
    ),
    "duration": (
        "totalTime", "duration", "runtime", "runningTime", "timeRequired", "cookTime", "performTime", "prepTime",
        "courseWorkload",
    ),
    "rating": (
        "aggregateRating.ratingValue", "ratingValue", "starRating.ratingValue", "reviewRating.ratingValue", "rating",
        "stars",
    ),
    "date": (
        "startDate", "datePublished", "releaseDate", "uploadDate", "dateCreated", "date", "published", "datePosted",
        "dateModified", "validFrom",
    ),
    "end": ("endDate", "validThrough", "expires"),
    "diet": ("suitableForDiet", "diet", "diets", "dietary", "dietaryRestrictions"),
    "category": (
        "recipeCategory", "category", "articleSection", "genre", "servesCuisine", "recipeCuisine",
        "applicationCategory", "section", "kind", "department",
    ),
    "latitude": ("geo.latitude", "latitude", "location.geo.latitude", "lat"),
    "longitude": ("geo.longitude", "longitude", "location.geo.longitude", "lon", "lng"),
    "place": (
        "address.addressLocality", "address.addressRegion", "address.addressCountry", "address.streetAddress",
        "address.postalCode", "address", "location.name", "location.address.addressLocality",
        "location.address.addressRegion", "location.address.addressCountry", "location.address", "location",
        "containedInPlace.name", "areaServed", "areaServed.name", "jobLocation.address.addressLocality", "city",
        "region", "state", "country", "town", "contentLocation.name",
    ),
    "maker": (
        "author.name", "author", "creator.name", "creator", "brand.name", "brand", "byArtist.name", "director.name",
        "director", "performer.name", "performer", "organizer.name", "manufacturer.name", "manufacturer",
        "publisher.name", "publisher", "actor.name", "actor", "editor.name",
    ),
    "free": ("isAccessibleForFree", "free"),
    "available": ("stock", "inventoryLevel", "inventoryLevel.value", "inStock", "offers.availability", "availability"),
    "language": ("inLanguage", "language"),
    "people": (
        "recipeYield", "yield", "occupancy.maxValue", "occupancy.value", "occupancy", "maximumAttendeeCapacity",
        "seats", "capacity",
    ),
}  # fmt: skip
_LENGTHS = {"duration": ("pages", "length", "word")}
PLACE_ID = "location.@id"  # the item that is the place of another
EVENT_DATES = frozenset({"startDate"})  # a time something takes place, not one it came into being

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-.\s]+")
_SCHEMA = re.compile(r"https?://schema\.org/")
_NUMBER = re.compile(r"[-+]?\d[\d.,]*")
_CODED = re.compile(r"^https?://|[a-z][A-Z]")  # a value for programs, not for people
_ENDINGS = ("Diet",)  # VegetarianDiet is vegetarian
MAX_VALUES = 5000  # of a path that is read as words
MAX_VALUE_WORDS = 5
MAX_CACHED_CHARACTERS = (
    64  # characters of a text whose stems are kept: what people send may be long, and never come again
)
_FIRST_YEAR, _LAST_YEAR = 1000, 2100
MAX_AMOUNT = 1e18  # microseconds of thirty thousand years
MAX_TEXTS = 10_000  # numbers in texts that are looked up one by one
SILENT = frozenset({"@id", "@type", "@context", "id", "url", "image", "sku", "isbn", "telephone", "email", "logo"})

Key = tuple[str, ...]


def words_of(name: str) -> str:
    """Return a field's name, or a value of a vocabulary, as words: `totalTime` is total time."""
    return _words_of(name) if len(name) <= MAX_CACHED_CHARACTERS else _words_of.__wrapped__(name)


@lru_cache(maxsize=16_384)
def _words_of(name: str) -> str:
    last = "kind" if name == "@type" else _SCHEMA.sub("", name)
    for ending in _ENDINGS:
        last = last.removesuffix(ending) or last
    return " ".join(part for part in _CAMEL.split(last) if part).lower()


def label_of(path: str) -> str:
    """Return what a path is called: `aggregateRating.ratingValue` is a rating value, `author.name` an author."""
    *before, last = path.split(".")
    return words_of(before[-1] if before and last in {"name", "value", "@id"} else last)


def id_param_names(kind: str) -> tuple[str, ...]:
    """Return what a parameter or a member is called that holds the id of an item of a kind."""
    return kind, f"{kind}_id", f"{kind}Id"


def key_of(text: str, language: str = "en") -> Key:
    """Return what two spellings of one value have in common."""
    return _key(text, language) if len(text) <= MAX_CACHED_CHARACTERS else _key.__wrapped__(text, language)


@lru_cache(maxsize=65_536)
def _key(text: str, language: str) -> Key:
    stem = stemmer(language)
    return tuple(stem(fold(word)) for word in words(text))


def number_in(value: Any) -> float | None:
    """Return the number a value is or begins with: 220 of "220 calories", 19.99 of "$19.99"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    match = _NUMBER.search(value) if isinstance(value, str) and len(value) <= 40 else None
    return _decimal(match[0].rstrip(".,")) if match else None


def _decimal(digits: str) -> float | None:
    """Return a number as it is written here or there: 1,299.00 and 1.299,00.

    A lone comma before two digits is for cents.
    """
    comma, dot = digits.rfind(","), digits.rfind(".")
    cents = comma > dot and (dot >= 0 or (digits.count(",") == 1 and len(digits) - comma - 1 in {1, 2}))
    plain = digits.replace(".", "").replace(",", ".") if cents else digits.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return None


def year_of(moment: float) -> int:
    """Return the year of a moment in microseconds since 1970."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).year


@dataclass(frozen=True)
class Fields:
    """A collection and what its items hold, as of one moment."""

    collection: Collection
    values: Mapping[str, ValueCounts]
    _paths: dict[str, str | None] = field(default_factory=dict[str, str | None])

    @classmethod
    def learn(cls, collection: Collection, values: Mapping[str, ValueCounts]) -> "Fields":
        """Return the fields with everything computed that questions will need. Takes its time."""
        fields = cls(collection, values)
        for role in ROLES:
            fields.path(role)
        for work in (
            fields.by_key,
            fields.categories,
            fields.stems,
            fields.vocabulary,
        ):  # now, not while a visitor waits
            len(work)
        return fields

    def held_values(self, path: str) -> ValueCounts:
        """Return the values of a path; none if there is no such path."""
        return self.values.get(path) or ValueCounts()

    def path(self, role: str) -> str | None:
        """Return the path that has a role here: a known one, or the only one of the fitting kind."""
        if role not in self._paths:
            self._paths[role] = next(self._candidate_paths(role), None)
        return self._paths[role]

    def paths(self, role: str) -> list[str]:
        """Return the paths that have a role: that of the site file, those of schema.org, that of the data."""
        known = [path for path in ROLES.get(role, ()) if self.values.get(path)]
        own = next((spec.name for name, spec in self.collection.by_role.items() if name == role), "")
        if not own or (own in known and role not in self.collection.roles) or not self.values.get(own):
            return known
        return list(dict.fromkeys((own, *known) if role in self.collection.roles else (*known, own)))

    def _candidate_paths(self, role: str) -> Iterator[str]:
        yield from self.paths(role)
        kind = {"duration": FieldType.DURATION, "date": FieldType.TIMESTAMP}.get(role)
        yield from (name for name, declared in self.collection.fields.items() if kind and declared.type == kind)
        if role not in ROLES:
            yield from self.number_paths(role)

    @property
    def has_places(self) -> bool:
        """Whether the items say where they are, by a name or by a position."""
        return bool(self.paths("place") or self.path("latitude") or self.held_values(PLACE_ID))

    def has_years(self, path: str) -> bool:
        """Return whether the numbers of a path are years."""
        field = self.collection.field(path)
        sample = [value for value in islice(self.held_values(path), 50) if isinstance(value, int | float)]
        is_likely = bool(sample) and all(_FIRST_YEAR <= value <= _LAST_YEAR for value in sample)
        return field.type in NUMERIC and (field.format == "year" or is_likely)

    def reaches(self, path: str, moment: float) -> bool:
        """Return whether something here lies beyond a moment: a date of things to come, not of things that came out."""
        if self.has_years(path):
            return any((number_in(value) or 0) > year_of(moment) for value in self.held_values(path))
        return path.rpartition(".")[2] in EVENT_DATES or any(
            (number_in(value) or 0.0) > moment for value in self.held_values(path)
        )

    def sortable(self, role: str) -> str | None:
        """Return the path to sort by: where nothing takes time, what is long has many pages."""
        return self.path(role) or next(
            (path for noun in _LENGTHS.get(role, ()) for path in self.number_paths(noun)), None
        )

    def number_paths(self, noun: str) -> Iterator[str]:
        """Yield paths whose own name has this word and whose values are numbers: pages in numberOfPages."""
        stems = key_of(noun)
        for path, held in self.values.items():
            name = key_of(words_of(path.rpartition(".")[2]))
            if stems and set(stems) <= set(name) and any(number_in(value) is not None for value in list(held)[:50]):
                yield path

    def counts(self, noun: str) -> bool:
        """Return whether a field of numbers has this word in its name, and is no price: those have many names."""
        kinds = {
            path: self.collection.field(path).type for path in self.number_paths(noun) if path not in ROLES["price"]
        }
        return any(kind in NUMERIC for kind in kinds.values())

    def field(self, name: str) -> str | None:
        """Return the path a caller means by a name: itself, the end of one, or its role."""
        if f"{name}.name" in self.values:
            return f"{name}.name"  # people and brands are known by their names
        if name in self.values or name in self.collection.fields:
            return name
        lower = name.lower()
        ends = [path for path in self.values if path.lower() == lower or path.lower().endswith(f".{lower}")]
        stems = key_of(words_of(name))
        alike = [path for path in self.values if key_of(words_of(path)) == stems]
        return next(iter((*sorted(ends, key=len), *alike)), None) or (self.path(name) if name in ROLES else None)

    # Conditions

    def compares(self, path: str, op: str, value: float, upper: float | None = None) -> Filter | None:
        """Return a comparison with a number, in seconds or microseconds where it is one of time.

        Numbers that stand in texts, such as "220 calories", are looked up among the values there are.
        """
        if not abs(value) < MAX_AMOUNT or not abs(upper or 0.0) < MAX_AMOUNT:
            return None  # nobody means that
        definition = self.collection.field(path)
        test = _TESTS[op]
        if definition.is_typed and definition.type != FieldType.STRING:
            operand = definition.format_value(value) if definition.type in _TIME_TYPES else value
            if op == "between":
                last = definition.format_value(upper) if definition.type in _TIME_TYPES else upper
                return Condition(path, "between", (operand, last))
            return Condition(path, op, operand)
        held = self.held_values(path)
        if not held.is_whole:
            return None  # what is not known cannot be looked up
        read = _READERS.get(definition.type, _parse_loosely)
        texts = [
            held_value
            for held_value in held
            if isinstance(held_value, str)
            and (number := read(held_value)) is not None
            and test(number, value, value if upper is None else upper)
        ]
        if len(texts) > MAX_TEXTS:
            return None  # more than a filter can hold
        parts: list[Filter] = [
            Condition(path, "in", tuple(texts[at : at + MAX_LIST])) for at in range(0, len(texts), MAX_LIST)
        ]
        if any(not isinstance(held_value, str | bool) for held_value in held):
            parts.append(Condition(path, op, (value, upper) if op == "between" else value))
        if not parts and not any(read(held_value) is not None for held_value in held):
            return None  # nothing here can be compared
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def is_one_of(self, path: str, values: Iterable[Any]) -> Filter:
        chosen = tuple(dict.fromkeys(values))
        if len(chosen) == 1:
            return Condition(path, "eq", chosen[0])
        return Condition(path, "in", chosen[:MAX_LIST])

    # Values in words

    def has_text_values(self, path: str) -> bool:
        """Return whether a path holds a manageable set of short texts, as categories and names do."""
        held = self.values.get(path)
        if not held or path.rpartition(".")[2] in SILENT or len(held) > MAX_VALUES:
            return False
        definition = self.collection.fields.get(path)
        if definition and definition.type in _TIME_TYPES:
            return False
        sample = [value for value in list(held)[:200] if isinstance(value, str)]
        return bool(sample) and sum(map(len, sample)) / len(sample) <= 40

    @cached_property
    def text_values(self) -> Mapping[str, Mapping[Key, tuple[str, ...]]]:
        """By path: the values in words, with the spellings each has in the data."""
        return {path: self._text_values(path) for path in self.values if self.has_text_values(path)}

    def _text_values(self, path: str) -> dict[Key, tuple[str, ...]]:
        spellings: dict[Key, tuple[str, ...]] = {}
        for value in self.values[path]:
            if isinstance(value, str):
                key = key_of(words_of(value), self.collection.language)
                if 0 < len(key) <= MAX_VALUE_WORDS:
                    spellings[key] = (*spellings.get(key, ()), value)
        return spellings

    @cached_property
    def by_key(self) -> Mapping[Key, tuple[tuple[str, tuple[str, ...]], ...]]:
        """By value in words: the paths that hold it."""
        paths_by_key: dict[Key, list[tuple[str, tuple[str, ...]]]] = {}
        for path, held in self.text_values.items():
            for key, spellings in held.items():
                paths_by_key.setdefault(key, []).append((path, spellings))
        return {key: tuple(places) for key, places in paths_by_key.items()}

    @cached_property
    def stems(self) -> frozenset[str]:
        """Of all the words that stand in short values, and of what the items are called."""
        return frozenset(stem for key in self.by_key for stem in key) | {
            stem for name in self._names for stem in key_of(name)
        }

    @cached_property
    def vocabulary(self) -> Mapping[str, Mapping[str, int]]:
        """The words of short values and of what the items are called, by their first letters; with how many say them.

        Without accents and capitals. What ends like several is there as one, too.
        """
        values = [value for held in self.text_values.values() for spellings in held.values() for value in spellings]
        texts = (words_of(value) if _CODED.search(value) else value for value in values)
        counts = Counter(word for text in (*texts, *self._names) for word in words(text))
        by_letter: dict[str, dict[str, int]] = {}
        for word, count in counts.items():
            for form in {fold(word), singular(fold(word))}:
                alike = by_letter.setdefault(form[:1], {})
                alike[form] = alike.get(form, 0) + count
        return by_letter

    @property
    def _names(self) -> tuple[str, ...]:
        own = self.collection
        return *map(words_of, (own.name, own.one, own.title, own.type)), *kind_tables().names.get(own.type, ())

    def match_values(self, path: str, text: str) -> tuple[str, ...]:
        """Return the values of a path that a text means: the same words, or else those that hold all of them."""
        if text in self.held_values(path):
            return (text,)
        stems = key_of(words_of(text), self.collection.language)
        held = self.text_values.get(path, {})
        if stems in held:
            return held[stems]
        partly = [spelled for key, spelled in held.items() if stems and set(stems) <= set(key)]
        return tuple(value for spellings in partly for value in spellings)

    @cached_property
    def categories(self) -> Mapping[Key, tuple[tuple[str, tuple[str, ...]], ...]]:
        """What the items are filed under: their kinds, by every name there is for them, and their categories."""
        places_by_key: dict[Key, list[tuple[str, tuple[str, ...]]]] = {}
        for kind in self.held_values("@type"):
            if isinstance(kind, str) and kind != self.collection.type and kind not in kind_tables().wide:
                for name in {key_of(name) for name in (words_of(kind), *kind_tables().names.get(kind, ()))}:
                    places_by_key.setdefault(name, []).append(("@type", (kind,)))
        for path in self.paths("category"):
            for key, values in self.text_values.get(path, {}).items():
                for name in {key, *(key_of(other) for other in kind_tables().category_synonyms.get(" ".join(key), ()))}:
                    places_by_key.setdefault(name, []).append((path, values))
        return {key: tuple(places) for key, places in places_by_key.items()}

    def most_common(self, path: str, most: int) -> list[str]:
        """Return the most frequent values in words; spellings of one value count as one."""
        counts: dict[Key, int] = {}
        labels: dict[Key, str] = {}
        for value, count in self.held_values(path).items():
            if isinstance(value, str):
                key = key_of(words_of(value), self.collection.language)
                counts[key] = counts.get(key, 0) + count
                natural = words_of(value) if _CODED.search(value) else value
                labels[key] = natural if not _CODED.search(value) else labels.get(key, natural)
        best = sorted(counts, key=lambda key: (-counts[key], labels[key]))
        return [labels[key] for key in best[:most]]

    def numbers(self, path: str) -> list[float]:
        """Return every number of a path, sorted, as often as it occurs (up to a bound)."""
        read = _READERS.get(self.collection.field(path).type, _parse_loosely)
        counted_numbers = ((read(value), count) for value, count in self.held_values(path).items())
        return sorted(number for number, count in counted_numbers if number is not None for _ in range(min(count, 100)))


def _parse_loosely(value: Any) -> float | None:
    """Return a length of time, a moment, or the number that a text begins with."""
    if isinstance(value, str):
        length = seconds(value) if value[:1] == "P" else _minutes(value)
        moment = instant(value) if length is None and value[:4].isdigit() and "-" in value[4:] else None
        if length is not None or moment is not None:
            return length if length is not None else moment
    return number_in(value)


def _minutes(text: str) -> float | None:
    """Return a length of time as people write it in tables: 88 min, 1 h 28 min."""
    match = _LENGTH.fullmatch(text.strip()) if len(text) <= 40 else None
    if not match or not (match[1] or match[2]):
        return None
    return float(match[1] or 0) * 3600 + float(match[2] or 0) * 60


_LENGTH = re.compile(
    r"(?:(\d{1,4})\s*(?:h|hrs?|hours?|std|stunden?)\.?)?\s*(?:(\d{1,5})\s*(?:min|mins|minutes?|minuten)\.?)?",
    re.IGNORECASE,
)
_TIME_TYPES = frozenset({FieldType.DURATION, FieldType.TIMESTAMP})
# The values of typed columns are in their comparable form already.
_READERS: dict[FieldType, Callable[[Any], float | None]] = {
    FieldType.DURATION: number_in,
    FieldType.TIMESTAMP: number_in,
    FieldType.INTEGER: number_in,
    FieldType.NUMBER: number_in,
}
Test = Callable[[float, float, float], bool]
_TESTS: dict[str, Test] = {
    "lt": lambda value, limit, _: value < limit,
    "lte": lambda value, limit, _: value <= limit,
    "gt": lambda value, limit, _: value > limit,
    "gte": lambda value, limit, _: value >= limit,
    "eq": lambda value, limit, _: value == limit,
    "between": lambda value, limit, upper: limit <= value <= upper,
}
