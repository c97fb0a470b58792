"""What the fields of a collection mean and hold: which one is the price, which values there are. Reads no question."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from portico.ask.understanding.kinds import ALSO, CALLED, WIDE
from portico.catalog import NUMERIC, Collection, FieldType, instant, seconds, singular
from portico.query import MAX_LIST, Condition, Filter, Or
from portico.search.index import Held
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
DATED = frozenset({"startDate"})  # a time something takes place, not one it came into being

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-.\s]+")
_SCHEMA = re.compile(r"https?://schema\.org/")
_NUMBER = re.compile(r"[-+]?\d[\d.,]*")
_CODED = re.compile(r"^https?://|[a-z][A-Z]")  # a value for programs, not for people
_ENDINGS = ("Diet",)  # VegetarianDiet is vegetarian
MAX_VALUES = 5000  # of a path that is read as words
MAX_VALUE_WORDS = 5
REMEMBERED = 64  # characters of a text whose stems are kept: what people send may be long, and never come again
MAX_AMOUNT = 1e18  # microseconds of thirty thousand years
MAX_TEXTS = 10_000  # numbers in texts that are looked up one by one
SILENT = frozenset({"@id", "@type", "@context", "id", "url", "image", "sku", "isbn", "telephone", "email", "logo"})

Key = tuple[str, ...]


def spoken(name: str) -> str:
    """A field's name, or a value of a vocabulary, as words: `totalTime` is total time."""
    return _spoken(name) if len(name) <= REMEMBERED else _spoken.__wrapped__(name)


@lru_cache(maxsize=16_384)
def _spoken(name: str) -> str:
    last = "kind" if name == "@type" else _SCHEMA.sub("", name)
    for ending in _ENDINGS:
        last = last.removesuffix(ending) or last
    return " ".join(part for part in _CAMEL.split(last) if part).lower()


def called(path: str) -> str:
    """What a path is called: `aggregateRating.ratingValue` is a rating value, `author.name` an author."""
    *before, last = path.split(".")
    return spoken(before[-1] if before and last in {"name", "value", "@id"} else last)


def names_of_id(kind: str) -> tuple[str, ...]:
    """What a parameter or a member is called that holds the id of an item of a kind."""
    return kind, f"{kind}_id", f"{kind}Id"


def key_of(text: str, language: str = "en") -> Key:
    """What two spellings of one value have in common."""
    return _key(text, language) if len(text) <= REMEMBERED else _key.__wrapped__(text, language)


@lru_cache(maxsize=65_536)
def _key(text: str, language: str) -> Key:
    stem = stemmer(language)
    return tuple(stem(fold(word)) for word in words(text))


def number_in(value: Any) -> float | None:
    """The number a value is or begins with: 220 of "220 calories", 19.99 of "$19.99"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.search(value) if isinstance(value, str) and len(value) <= 40 else None
    return _decimal(found[0].rstrip(".,")) if found else None


def _decimal(digits: str) -> float | None:
    """A number as it is written here or there: 1,299.00 and 1.299,00. A lone comma before two digits is for cents."""
    comma, dot = digits.rfind(","), digits.rfind(".")
    cents = comma > dot and (dot >= 0 or (digits.count(",") == 1 and len(digits) - comma - 1 in {1, 2}))
    plain = digits.replace(".", "").replace(",", ".") if cents else digits.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return None


@dataclass(frozen=True)
class Fields:
    """A collection and what its items hold, as of one moment."""

    collection: Collection
    values: Mapping[str, Held]
    _paths: dict[str, str | None] = field(default_factory=dict[str, str | None])

    @classmethod
    def learned(cls, collection: Collection, values: Mapping[str, Held]) -> "Fields":
        """With everything worked out that questions will ask for; takes its time."""
        known = cls(collection, values)
        for role in ROLES:
            known.path(role)
        for work in (known.by_key, known.filed, known.stems, known.vocabulary):  # here, not while somebody waits
            len(work)
        return known

    def held(self, path: str) -> Held:
        """The values of a path; none if there is no such path."""
        return self.values.get(path) or Held()

    def path(self, role: str) -> str | None:
        """The path that has a role here: a known one, or the only one of the fitting kind."""
        if role not in self._paths:
            self._paths[role] = next(self._fitting(role), None)
        return self._paths[role]

    def paths(self, role: str) -> list[str]:
        return [path for path in ROLES.get(role, ()) if self.values.get(path)]

    def _fitting(self, role: str) -> Iterator[str]:
        yield from self.paths(role)
        kind = {"duration": FieldType.DURATION, "date": FieldType.TIMESTAMP}.get(role)
        yield from (name for name, known in self.collection.fields.items() if kind and known.type == kind)
        if role not in ROLES:
            yield from self.named(role)

    @property
    def has_places(self) -> bool:
        """Whether the items say where they are, by a name or by a position."""
        return bool(self.paths("place") or self.path("latitude") or self.held(PLACE_ID))

    def reaches(self, path: str, moment: float) -> bool:
        """Whether something here lies beyond a moment: a date of things to come, not of things that came out."""
        return path.rpartition(".")[2] in DATED or any((number_in(each) or 0.0) > moment for each in self.held(path))

    def sortable(self, role: str) -> str | None:
        """The path to sort by: where nothing takes time, what is long has many pages."""
        return self.path(role) or next((path for noun in _LENGTHS.get(role, ()) for path in self.named(noun)), None)

    def named(self, noun: str) -> Iterator[str]:
        """Paths whose own name has this word, and whose values are numbers: pages in numberOfPages."""
        wanted = key_of(noun)
        for path, held in self.values.items():
            name = key_of(spoken(path.rpartition(".")[2]))
            if wanted and set(wanted) <= set(name) and any(number_in(value) is not None for value in list(held)[:50]):
                yield path

    def counts(self, noun: str) -> bool:
        """Whether a field of numbers has this word in its name, and is no price: those have many names."""
        kinds = {path: self.collection.field(path).type for path in self.named(noun) if path not in ROLES["price"]}
        return any(kind in NUMERIC for kind in kinds.values())

    def field(self, name: str) -> str | None:
        """The path a caller means by a name: itself, the end of one, or its role."""
        if f"{name}.name" in self.values:
            return f"{name}.name"  # people and brands are known by their names
        if name in self.values or name in self.collection.fields:
            return name
        lower = name.lower()
        ends = [path for path in self.values if path.lower() == lower or path.lower().endswith(f".{lower}")]
        said = key_of(spoken(name))
        alike = [path for path in self.values if key_of(spoken(path)) == said]
        return next(iter((*sorted(ends, key=len), *alike)), None) or (self.path(name) if name in ROLES else None)

    # Conditions

    def compares(self, path: str, op: str, value: float, upper: float | None = None) -> Filter | None:
        """A comparison with a number, a length in seconds or a moment in microseconds, in whatever form the path holds.

        Numbers that stand in texts, such as "220 calories", are looked up among the values there are.
        """
        if not abs(value) < MAX_AMOUNT or not abs(upper or 0.0) < MAX_AMOUNT:
            return None  # nobody means that
        known = self.collection.field(path)
        test = _TESTS[op]
        if known.is_typed and known.type != FieldType.STRING:
            given = known.shown(value) if known.type in _TIMELY else value
            if op == "between":
                last = known.shown(upper) if known.type in _TIMELY else upper
                return Condition(path, "between", (given, last))
            return Condition(path, op, given)
        held = self.held(path)
        if not held.is_whole:
            return None  # what is not known cannot be looked up
        read = _READERS.get(known.type, _loose)
        texts = [each for each in held if isinstance(each, str) and _holds(test, read(each), value, upper)]
        if len(texts) > MAX_TEXTS:
            return None  # more than a filter can hold
        parts: list[Filter] = [
            Condition(path, "in", tuple(texts[at : at + MAX_LIST])) for at in range(0, len(texts), MAX_LIST)
        ]
        if any(not isinstance(each, str | bool) for each in held):
            parts.append(Condition(path, op, (value, upper) if op == "between" else value))
        if not parts and not any(read(each) is not None for each in held):
            return None  # nothing here can be compared
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def among(self, path: str, values: Iterable[Any]) -> Filter:
        chosen = tuple(dict.fromkeys(values))
        if len(chosen) == 1:
            return Condition(path, "eq", chosen[0])
        return Condition(path, "in", chosen[:MAX_LIST])

    # Values in words

    def is_worded(self, path: str) -> bool:
        """Whether a path holds a manageable set of short texts, as categories and names do."""
        held = self.values.get(path)
        if not held or path.rpartition(".")[2] in SILENT or len(held) > MAX_VALUES:
            return False
        known = self.collection.fields.get(path)
        if known and known.type in _TIMELY:
            return False
        sample = [each for each in list(held)[:200] if isinstance(each, str)]
        return bool(sample) and sum(map(len, sample)) / len(sample) <= 40

    @cached_property
    def worded(self) -> Mapping[str, Mapping[Key, tuple[str, ...]]]:
        """By path: the values in words, with the spellings each has in the data."""
        return {path: self._worded(path) for path in self.values if self.is_worded(path)}

    def _worded(self, path: str) -> dict[Key, tuple[str, ...]]:
        found: dict[Key, tuple[str, ...]] = {}
        for value in self.values[path]:
            if isinstance(value, str):
                key = key_of(spoken(value), self.collection.language)
                if 0 < len(key) <= MAX_VALUE_WORDS:
                    found[key] = (*found.get(key, ()), value)
        return found

    @cached_property
    def by_key(self) -> Mapping[Key, tuple[tuple[str, tuple[str, ...]], ...]]:
        """By value in words: the paths that hold it."""
        found: dict[Key, list[tuple[str, tuple[str, ...]]]] = {}
        for path, held in self.worded.items():
            for key, spellings in held.items():
                found.setdefault(key, []).append((path, spellings))
        return {key: tuple(places) for key, places in found.items()}

    @cached_property
    def stems(self) -> frozenset[str]:
        """Of all the words that stand in short values, and of what the items are called."""
        return frozenset(stem for key in self.by_key for stem in key) | {
            stem for name in self._called for stem in key_of(name)
        }

    @cached_property
    def vocabulary(self) -> Mapping[str, Mapping[str, int]]:
        """The words of short values and of what the items are called, by their first letters; with how many say them.

        Without accents and capitals. What ends like several is there as one, too.
        """
        said = [value for held in self.worded.values() for spellings in held.values() for value in spellings]
        texts = (spoken(value) if _CODED.search(value) else value for value in said)
        counts = Counter(word for text in (*texts, *self._called) for word in words(text))
        found: dict[str, dict[str, int]] = {}
        for word, count in counts.items():
            for form in {fold(word), singular(fold(word))}:
                alike = found.setdefault(form[:1], {})
                alike[form] = alike.get(form, 0) + count
        return found

    @property
    def _called(self) -> tuple[str, ...]:
        own = self.collection
        return *map(spoken, (own.name, own.one, own.title, own.type)), *CALLED.get(own.type, ())

    def matching(self, path: str, text: str) -> tuple[str, ...]:
        """The values of a path that a text means: the same words, or else those that hold all of them."""
        if text in self.held(path):
            return (text,)
        wanted = key_of(spoken(text), self.collection.language)
        held = self.worded.get(path, {})
        if wanted in held:
            return held[wanted]
        partly = [each for key, each in held.items() if wanted and set(wanted) <= set(key)]
        return tuple(value for spellings in partly for value in spellings)

    @cached_property
    def filed(self) -> Mapping[Key, tuple[tuple[str, tuple[str, ...]], ...]]:
        """What the items are filed under: their kinds, by every name there is for them, and their categories."""
        found: dict[Key, list[tuple[str, tuple[str, ...]]]] = {}
        for kind in self.held("@type"):
            if isinstance(kind, str) and kind != self.collection.type and kind not in WIDE:
                for name in {key_of(name) for name in (spoken(kind), *CALLED.get(kind, ()))}:
                    found.setdefault(name, []).append(("@type", (kind,)))
        for path in self.paths("category"):
            for key, values in self.worded.get(path, {}).items():
                for name in {key, *(key_of(other) for other in ALSO.get(" ".join(key), ()))}:
                    found.setdefault(name, []).append((path, values))
        return {key: tuple(places) for key, places in found.items()}

    def common(self, path: str, most: int) -> list[str]:
        """The values that most items have, in words, most frequent first; spellings of one value count as one."""
        counts: dict[Key, int] = {}
        shown: dict[Key, str] = {}
        for value, count in self.held(path).items():
            if isinstance(value, str):
                key = key_of(spoken(value), self.collection.language)
                counts[key] = counts.get(key, 0) + count
                natural = spoken(value) if _CODED.search(value) else value
                shown[key] = natural if not _CODED.search(value) else shown.get(key, natural)
        best = sorted(counts, key=lambda key: (-counts[key], shown[key]))
        return [shown[key] for key in best[:most]]

    def numbers(self, path: str) -> list[float]:
        """Every number of a path, sorted, as often as it occurs (up to a bound)."""
        read = _READERS.get(self.collection.field(path).type, _loose)
        known = ((read(value), count) for value, count in self.held(path).items())
        return sorted(number for number, count in known if number is not None for _ in range(min(count, 100)))


def _loose(value: Any) -> float | None:
    """A length of time, a moment, or the number that a text begins with."""
    if isinstance(value, str):
        length = seconds(value) if value[:1] == "P" else _minutes(value)
        moment = instant(value) if length is None and value[:4].isdigit() and "-" in value[4:] else None
        if length is not None or moment is not None:
            return length if length is not None else moment
    return number_in(value)


def _minutes(text: str) -> float | None:
    """A length of time as people write it in tables: 88 min, 1 h 28 min."""
    found = _LENGTH.fullmatch(text.strip()) if len(text) <= 40 else None
    if not found or not (found[1] or found[2]):
        return None
    return float(found[1] or 0) * 3600 + float(found[2] or 0) * 60


_LENGTH = re.compile(
    r"(?:(\d{1,4})\s*(?:h|hrs?|hours?|std|stunden?)\.?)?\s*(?:(\d{1,5})\s*(?:min|mins|minutes?|minuten)\.?)?",
    re.IGNORECASE,
)
_TIMELY = frozenset({FieldType.DURATION, FieldType.TIMESTAMP})
# The values of typed columns are in their comparable form already.
_READERS: dict[FieldType, Callable[[Any], float | None]] = {
    FieldType.DURATION: number_in,
    FieldType.TIMESTAMP: number_in,
    FieldType.INTEGER: number_in,
    FieldType.NUMBER: number_in,
}
Test = Callable[[float, float, float], bool]
_TESTS: dict[str, Test] = {
    "lt": lambda value, wanted, _: value < wanted,
    "lte": lambda value, wanted, _: value <= wanted,
    "gt": lambda value, wanted, _: value > wanted,
    "gte": lambda value, wanted, _: value >= wanted,
    "eq": lambda value, wanted, _: value == wanted,
    "between": lambda value, wanted, upper: wanted <= value <= upper,
}


def _holds(test: Test, value: float | None, wanted: float, upper: float | None) -> bool:
    return value is not None and test(value, wanted, wanted if upper is None else upper)
