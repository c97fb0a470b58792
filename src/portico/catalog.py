"""What a site has and can do: collections, fields, operations. Everything published about a site is a view of it."""

import difflib
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import lru_cache
from math import isfinite
from typing import Any, cast

import rfc8785

from portico.errors import ConfigError, UnknownCollection, UnknownField, UnknownOperation

OPERATIONS = "_operations"  # the private collection that OpenAPI documents are loaded into
ID = "id"  # names an item's id in filters, orders and projections
MAX_COLUMNS = 300  # fields of a collection with a type of their own: as many as fit any database's row
MAX_FIELDS = 2000  # fields of a collection that can be named at all
MAX_NUMBER = 10**308  # the greatest that is still finite as a float
VECTOR_AT_LEAST = 16  # a list of this many numbers is read as a vector, not as an array


class FieldType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"  # ISO 8601 text; compared as an instant, a missing zone means UTC
    DURATION = "duration"  # ISO 8601 text such as PT25M; compared by length
    VECTOR = "vector"
    OBJECT = "object"
    ARRAY = "array"
    ANY = "any"  # different kinds in different items

    __hash__ = str.__hash__  # that of an Enum is written in Python, and fields are looked up all the time

    @property
    def is_scalar(self) -> bool:
        """Whether the field has a typed column of its own."""
        return self in _SCALARS


_SCALARS = frozenset(
    {
        FieldType.STRING,
        FieldType.INTEGER,
        FieldType.NUMBER,
        FieldType.BOOLEAN,
        FieldType.TIMESTAMP,
        FieldType.DURATION,
    }
)
NUMERIC = frozenset({FieldType.INTEGER, FieldType.NUMBER})
_WRITTEN: Mapping[FieldType, type] = {
    FieldType.STRING: str,
    FieldType.TIMESTAMP: str,
    FieldType.DURATION: str,
    FieldType.BOOLEAN: bool,
    FieldType.OBJECT: Mapping,
    FieldType.ARRAY: list,
    FieldType.VECTOR: list,
}
_LISTS = frozenset({FieldType.ARRAY, FieldType.VECTOR})
_NWP_TYPES = {
    FieldType.STRING: "string",
    FieldType.INTEGER: "int64",
    FieldType.NUMBER: "decimal",
    FieldType.BOOLEAN: "bool",
    FieldType.TIMESTAMP: "timestamp",
    FieldType.DURATION: "string",
    FieldType.VECTOR: "array",
    FieldType.OBJECT: "object",
    FieldType.ARRAY: "array",
    FieldType.ANY: "object",
}
_SEMANTICS = {
    "name": "entity.label",
    "headline": "entity.label",
    "description": "entity.description",
    "dateCreated": "entity.timestamp.created",
    "datePublished": "entity.timestamp.created",
    "dateModified": "entity.timestamp.updated",
    "latitude": "geo.latitude",
    "longitude": "geo.longitude",
}
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z")
_DURATION = re.compile(r"P(?=[\dT])(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?\Z")
_SEGMENT = re.compile(r"[\w@$:-]{1,128}\Z")
_COLLECTION = re.compile(r"[\w-]{1,128}\Z")
_MAX_INTEGER = 2**63 - 1
MAX_FLOAT32 = 3.4e38
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LAST_INSTANT = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Field:
    """What is known of one field. `path` is where its value lies in the data; usually its own name."""

    name: str
    type: FieldType
    path: str = ""
    declared: bool = False  # the site file says so: data that does not fit is absent, not a reason to widen
    description: str = ""

    @property
    def where(self) -> str:
        return self.path or self.name

    @property
    def is_typed(self) -> bool:
        return self.type.is_scalar

    def typed_value(self, data: Mapping[str, Any]) -> Any:
        """The comparable value of this field in an item, or None."""
        return comparable(self.type, scalar_at(data, self.where))

    def vector(self, data: Mapping[str, Any]) -> list[float] | None:
        """The vector of this field in an item, if it has one that can be compared."""
        value = scalar_at(data, self.where)
        if not isinstance(value, list) or not value:
            return None
        numbers = cast("list[Any]", value)
        return numbers if all(type(x) in {int, float} and abs(x) < MAX_FLOAT32 for x in numbers) else None

    def accepts(self, value: Any) -> bool:
        """Whether a caller may write this value, other than null.

        A declared type holds as it is. One that was found in the data holds for the kind of JSON value: texts and
        numbers may still widen it, and so may a list of such values. Numbers may be written as strings, so that exact
        and large ones can be.
        """
        if isinstance(value, list) and not self.declared and self.type not in _LISTS:
            elements = cast("list[Any]", value)
            return all(not isinstance(element, list) and self.accepts(element) for element in elements)
        if self.type in NUMERIC:
            number = _number(value)
            is_whole = self.type is FieldType.NUMBER or not self.declared or isinstance(number, int)
            return number is not None and is_whole
        if self.declared and self.type in {FieldType.TIMESTAMP, FieldType.DURATION}:
            return comparable(self.type, value) is not None
        return isinstance(value, _WRITTEN.get(self.type, object))

    def shown(self, value: Any) -> Any:
        """A comparable value in the form that people write it."""
        if value is None:
            return None
        match self.type:
            case FieldType.TIMESTAMP:
                # A zone can push a time of the first or the last year out of what a calendar can write.
                within = min(max(value, _FIRST_INSTANT), _LAST_INSTANT)
                return (_EPOCH + timedelta(microseconds=within)).isoformat().replace("+00:00", "Z")
            case FieldType.DURATION:
                return _iso_duration(Decimal(repr(float(value))))
            case FieldType.BOOLEAN:
                return bool(value)
            case _:
                return value


def comparable(kind: FieldType, value: Any) -> Any:
    """A JSON value as the one form in which fields of this type are stored and compared; None if it does not fit."""
    if value is None:
        return None
    match kind:
        case FieldType.INTEGER | FieldType.NUMBER:
            return _number(value)
        case FieldType.BOOLEAN:
            return value if isinstance(value, bool) else None
        case FieldType.STRING:
            return value if isinstance(value, str) else None
        case FieldType.TIMESTAMP:
            return instant(value) if isinstance(value, str) else None
        case FieldType.DURATION:
            return seconds(value) if isinstance(value, str) else None
        case _:
            return None


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value) if any(c in value for c in ".eE") else int(value)
        except ValueError:
            return None
    if isinstance(value, int):
        return storable(value) if abs(value) <= MAX_NUMBER else None
    return value if isinstance(value, float) and isfinite(value) else None


def storable(value: int) -> int | float:
    """An integer as databases keep it: exact up to 64 bits, rounded beyond."""
    return value if -_MAX_INTEGER <= value <= _MAX_INTEGER else float(value)


def instant(text: str) -> int | None:
    """Microseconds since 1970 of an ISO 8601 date or time."""
    if not _TIMESTAMP.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def whole_seconds(moment: datetime) -> datetime:
    """Return a moment in UTC, cut to the second: all timestamps that the site itself makes are shown in this form."""
    return moment.astimezone(UTC).replace(microsecond=0)


def seconds(text: str) -> float | None:
    """The length of an ISO 8601 duration without months or years."""
    found = _DURATION.match(text)
    if not found:
        return None
    weeks, days, hours, minutes, secs = (float(part or 0) for part in found.groups())
    length = ((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60 + secs
    return length if isfinite(length) else None


def _iso_duration(length: Decimal) -> str:
    minutes, secs = divmod(length, 60)
    hours, minutes = divmod(int(minutes), 60)
    exact = f"{secs.normalize():f}"
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", f"{exact}S" if secs else ""]
    return f"PT{''.join(parts) or '0S'}"


@lru_cache(maxsize=1024)
def segments(path: str) -> tuple[str, ...]:
    """The steps of a path such as `offers.price`; refuses what could not be a field."""
    parts = tuple(path.split("."))
    if len(path) > 512 or len(parts) > 8 or not all(_SEGMENT.match(part) for part in parts):
        raise UnknownField(
            f"{path!r} is not a field name",
            field=path,
            hint="Use letters, digits and _, with dots between levels.",
        )
    return parts


def scalar_at(data: Mapping[str, Any], path: str) -> Any:
    """The value at a path of objects; None where a step is missing."""
    if "." not in path:
        return data.get(path)
    value: Any = data
    for step in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(step)
    return value


def type_of(value: Any) -> FieldType | None:
    """The type a value suggests for its field; None for null."""
    match value:
        case None:
            return None
        case bool():
            return FieldType.BOOLEAN
        case int():
            return FieldType.INTEGER
        case float():
            return FieldType.NUMBER
        case str():
            return _type_of_text(value)
        case Mapping():
            return FieldType.OBJECT
        case list():
            return FieldType.VECTOR if _is_vector(cast("list[Any]", value)) else FieldType.ARRAY
        case _:
            return FieldType.ANY


def _type_of_text(text: str) -> FieldType:
    if len(text) <= 40:
        if text[:1].isdigit() and instant(text) is not None:
            return FieldType.TIMESTAMP
        if text[:1] == "P" and seconds(text) is not None:
            return FieldType.DURATION
    return FieldType.STRING


def _is_vector(value: list[Any]) -> bool:
    return len(value) >= VECTOR_AT_LEAST and all(type(x) is float or type(x) is int for x in value)


def widen(known: FieldType, seen: FieldType) -> FieldType:
    """The narrowest type that holds both."""
    if known == seen:
        return known
    both = {known, seen}
    if both <= NUMERIC:
        return FieldType.NUMBER
    if both <= {FieldType.STRING, FieldType.TIMESTAMP, FieldType.DURATION}:
        return FieldType.STRING
    if both == {FieldType.ARRAY, FieldType.VECTOR}:
        return FieldType.ARRAY
    return FieldType.ANY


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of items and what is known of its fields."""

    name: str
    fields: Mapping[str, Field] = field(default_factory=dict[str, Field])
    title: str = ""
    description: str = ""
    type: str = ""  # the schema.org type most of its items have
    singular: str = ""  # for operation names; derived from the name when empty
    language: str = "en"
    weights: Mapping[str, float] = field(default_factory=dict[str, float])  # of fields in text search
    private: bool = False  # only operations of the site touch it; no face shows it
    details: tuple[str, ...] = ()  # fields to ask for when a question about these items says little

    @property
    def one(self) -> str:
        return self.singular or singular(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """What a record has, as NWP publishes it: the id, and every field of the items."""
        own = {"name": ID, "type": "string", "semantic": "entity.id"}
        return {"fields": [own, *(_published(each) for each in self.fields.values())]}

    @property
    def anchor_id(self) -> str:
        return anchor_of(self.schema)

    def field(self, path: str) -> Field:
        """The field a path names; below an object, an array or an unknown kind any path may exist."""
        if path == ID:
            return Field(ID, FieldType.STRING)
        known = self.fields.get(path)
        if known:
            return known
        head, *rest = segments(path)
        top = self.fields.get(head)
        if top is None or (rest and top.type.is_scalar):
            raise UnknownField(
                f"{self.name} has no field {path!r}",
                field=path,
                collection=self.name,
                hint=f"Known fields: {', '.join(self.fields) or 'none yet'}.",
            )
        return Field(path, FieldType.ANY)

    def widened(self, data: Mapping[str, Any]) -> "Collection":
        """This collection with room for the data; itself when nothing is new."""
        grown: dict[str, Field] = {}
        for name, value in data.items():
            known = self.fields.get(name)
            seen = type_of(value)
            if (known and known.declared) or seen is None or name == ID or not _SEGMENT.match(name):
                continue
            kind = widen(known.type, seen) if known else seen
            if known is None and len(self.fields) + len(grown) >= MAX_COLUMNS:
                kind = FieldType.ANY
            if (known is None and len(self.fields) + len(grown) < MAX_FIELDS) or (known and kind != known.type):
                grown[name] = Field(name, kind)
        return replace(self, fields={**self.fields, **grown}) if grown else self


def anchor_of(schema: Mapping[str, Any]) -> str:
    """The name of a schema: SHA-256 of its canonical form (RFC 8785)."""
    return f"sha256:{hashlib.sha256(rfc8785.dumps(dict(schema))).hexdigest()}"


def _published(each: Field) -> dict[str, Any]:
    semantic = _SEMANTICS.get(each.name)
    said = {"name": each.name, "type": _NWP_TYPES[each.type], **({"semantic": semantic} if semantic else {})}
    return {**said, "nullable": True}


def check_collection_name(name: str) -> None:
    if not _COLLECTION.match(name):
        raise ConfigError(f"{name!r} cannot name a collection", hint="Use letters, digits, - and _ (at most 128).")


def singular(name: str) -> str:
    for ending, one in (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x")):
        if name.endswith(ending) and len(name) > len(ending) + 1:
            return name[: -len(ending)] + one
    if len(name) > 1 and name.endswith("s") and not name.endswith(("ss", "us", "is", "news")):
        return name[:-1]
    return name


class Kind(StrEnum):
    CREATE = "create"
    READ = "read"
    UPDATE = "update"
    DELETE = "delete"
    EXECUTE = "execute"


class Danger(IntEnum):
    """How much harm a call can do (MCP-AQL 5). The gate compares it with what a caller may risk."""

    SAFE = 0
    REVERSIBLE = 1
    DESTRUCTIVE = 2
    DANGEROUS = 3
    FORBIDDEN = 4


class Trust(IntEnum):
    """How far a caller is trusted to do alone what it may do at all (MCP-AQL, trust levels)."""

    UNTESTED = 0
    GENERATED = 1
    VALIDATED = 2
    COMMUNITY_REVIEWED = 3
    CERTIFIED = 4


@dataclass(frozen=True, slots=True)
class Operation:
    """Something a caller can have done. Published schema and validation come from the same types."""

    name: str
    kind: Kind
    description: str
    params: Any  # a msgspec Struct type, or a JsonSchema for operations described elsewhere
    result: Any
    run: Callable[..., Awaitable[Any]]
    danger: Danger = Danger.SAFE
    collection: str = ""  # the collection it belongs to, for scopes
    idempotent: bool = False
    transactional: bool = False  # it has no effects but its writes through the context
    open: bool = False  # for everyone: it checks by itself whose things it shows
    long: bool = False  # runs as a task unless the caller insists on waiting
    attempts: int = 1  # how often a task is tried before it fails; more than 1 only if repeating is harmless
    timeout: float = 30.0
    estimate: float | None = None  # seconds a task usually takes
    check: Callable[[Any], None] | None = None  # raises for parameters that fit their type and still cannot be taken

    @property
    def summary(self) -> str:
        return self.description.strip().split("\n", 1)[0]

    @property
    def is_repeatable(self) -> bool:
        """Whether a call that was broken off may be run again: what it has done is undone, or does not matter."""
        return self.idempotent or self.transactional or self.kind is Kind.READ


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """Parameters or results described by a JSON Schema instead of a Python type."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Catalog:
    """All collections and operations of a site."""

    collections: Mapping[str, Collection]
    operations: Mapping[str, Operation]

    def collection(self, name: str) -> Collection:
        """A collection that faces may show."""
        found = self.collections.get(name)
        if found is None or found.private:
            raise UnknownCollection(
                f"There is no collection {name!r}",
                collection=name,
                hint=f"Known collections: {', '.join(c.name for c in self.public) or 'none yet'}.",
            )
        return found

    def operation(self, name: str) -> Operation:
        found = self.operations.get(name)
        if found is None:
            raise UnknownOperation(
                f"There is no operation {name!r}",
                operation=name,
                hint=nearest_hint(name, self.operations) or "`portico call` lists what there is.",
            )
        return found

    @property
    def public(self) -> tuple[Collection, ...]:
        return tuple(c for c in self.collections.values() if not c.private)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Names close to a wrong one, for error hints."""
    close = difflib.get_close_matches(name, list(known), n=3)
    return f"Did you mean {', '.join(close)}?" if close else ""
