"""The collections, fields and operations of a site. Everything published about a site is a view of its `Catalog`."""

import difflib
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from math import isfinite
from typing import Any, Literal, TypeAlias, cast

import rfc8785

from portico.errors import ConfigError, UnknownCollection, UnknownField, UnknownOperation
from portico.field_names import MAX_PATH, FieldNames, index_names, is_path, problem_with_name, segments
from portico.items import MAX_NUMBER, TITLES

OPERATIONS = "_operations"  # the private collection that OpenAPI documents are loaded into
ID = "id"  # the name of an item's id in filters, orders and projections
MAX_COLUMNS = 300  # fields of a collection with a typed column: as many as fit into a row of any database
MAX_FIELDS = 2000  # fields of a collection in all
VECTOR_AT_LEAST = 16  # numbers: a list of so many is a vector, a shorter one an array


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
    ANY = "any"  # values of different types in different items

    __hash__ = str.__hash__  # faster than that of Enum, which is written in Python

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
    FieldType.BOOLEAN: bool,
    FieldType.OBJECT: Mapping,
    FieldType.ARRAY: list,
    FieldType.VECTOR: list,
}
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
_COLLECTION = re.compile(r"[\w-]{1,128}\Z")
_MAX_INTEGER = 2**63 - 1
MAX_FLOAT32 = 3.4e38
_NAMING: tuple["Role", ...] = ("title", "given_name", "family_name")
_NOT_NAMING = frozenset({"id", "@id", "@context", "url", "image", "inLanguage", "language", "priceCurrency"})
_MAX_SHORT = 120  # characters of a text that may stand for a title
# A text with letters, and neither an address nor one word with digits in it, as codes, dates and hashes are.
_PHRASE = re.compile(r"(?!\S*(?:://|@))(?!\S*\d\S*\s*\Z)[^\n]*[^\W\d_]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LAST_INSTANT = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


# What a field is to an item, whatever its name: what pages show first, answers say and links follow.
Role: TypeAlias = Literal[
    "title", "given_name", "family_name", "description", "image", "link", "price", "date", "place",
    "latitude", "longitude",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a collection. `path` is where its value lies in the data; usually its own name."""

    name: str
    type: FieldType
    path: str = ""
    declared: bool = False  # in the site file: data that does not fit counts as absent and does not widen the type
    description: str = ""
    format: str = ""  # of its values: date, url, email, money, percent, year, ...
    unit: str = ""  # of its numbers: kg, min, %, or a currency such as EUR
    role: Role | Literal[""] = ""  # found by its name and values; the site file may name another field
    target: str = ""  # the collection whose items its values name by id, as a foreign key does
    settled: bool = False  # decided over the data of a source: single values that do not fit do not widen the type
    keys: tuple[str, ...] = ()  # of the data on the way to its value, if a key has a dot; else `where` has them

    @property
    def where(self) -> str:
        return self.path or self.name

    @property
    def steps(self) -> tuple[str, ...]:
        """The keys of the data on the way to its value."""
        return self.keys or segments(self.where)

    def value(self, data: Mapping[str, Any]) -> Any:
        """Return the value of this field in an item, as it is stored; None if it has none."""
        return scalar_along(data, self.keys) if self.keys else scalar_at(data, self.where)

    @property
    def is_typed(self) -> bool:
        return self.type.is_scalar

    def comparable_value(self, data: Mapping[str, Any]) -> Any:
        """Return the comparable value of this field in an item, or None."""
        return comparable(self.type, self.value(data))

    def vector(self, data: Mapping[str, Any]) -> list[float] | None:
        """Return the vector of this field in an item, if it has one that can be compared."""
        value = self.value(data)
        if not isinstance(value, list) or not value:
            return None
        numbers = cast("list[Any]", value)
        return numbers if all(type(x) in {int, float} and abs(x) < MAX_FLOAT32 for x in numbers) else None

    def accepts(self, value: Any) -> bool:
        """Whether a caller may write this value, other than null.

        A type inferred from data is as strict as a declared one: it is published, so no single write changes it.
        Numbers may be strings, so that exact and large ones are possible.
        """
        if self.type in NUMERIC:
            number = _number(value)
            return number is not None and (self.type is FieldType.NUMBER or isinstance(number, int))
        if self.type in {FieldType.TIMESTAMP, FieldType.DURATION}:
            return comparable(self.type, value) is not None
        return isinstance(value, _WRITTEN.get(self.type, object))

    def format_value(self, value: Any) -> Any:
        """Return a comparable value in the form that people write."""
        if value is None:
            return None
        match self.type:
            case FieldType.TIMESTAMP:
                # A zone can move a time of the first or the last year out of the range of datetime.
                within = min(max(value, _FIRST_INSTANT), _LAST_INSTANT)
                return (_EPOCH + timedelta(microseconds=within)).isoformat().replace("+00:00", "Z")
            case FieldType.DURATION:
                return _iso_duration(Decimal(repr(float(value))))
            case FieldType.BOOLEAN:
                return bool(value)
            case _:
                return value


def comparable(kind: FieldType, value: Any) -> Any:
    """Return a JSON value in the form in which fields of this type are stored and compared; None if it does not fit."""
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
    """Return an integer as databases store it: exact up to 64 bits, a float beyond."""
    return value if -_MAX_INTEGER <= value <= _MAX_INTEGER else float(value)


def instant(text: str) -> int | None:
    """Return the microseconds since 1970 of an ISO 8601 date or time; None for any other text."""
    if not _TIMESTAMP.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def whole_seconds(moment: datetime) -> datetime:
    """Return a moment in UTC, cut to the second: the form of all timestamps that the site itself creates."""
    return moment.astimezone(UTC).replace(microsecond=0)


def seconds(text: str) -> float | None:
    """Return the seconds of an ISO 8601 duration without months or years; None for any other text."""
    match = _DURATION.match(text)
    if not match:
        return None
    weeks, days, hours, minutes, secs = (float(part or 0) for part in match.groups())
    length = ((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60 + secs
    return length if isfinite(length) else None


def _iso_duration(length: Decimal) -> str:
    minutes, secs = divmod(length, 60)
    hours, minutes = divmod(int(minutes), 60)
    exact = f"{secs.normalize():f}"
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", f"{exact}S" if secs else ""]
    return f"PT{''.join(parts) or '0S'}"


def scalar_at(data: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of objects; None where a step is missing."""
    return scalar_along(data, path.split(".")) if "." in path else data.get(path)


def scalar_along(data: Mapping[str, Any], steps: Iterable[str]) -> Any:
    """Return the value that these keys of objects lead to; None where a step is missing."""
    value: Any = data
    for step in steps:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(step)
    return value


def type_of(value: Any) -> FieldType | None:
    """Infer the type of a field from a value; None for null."""
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


def widen(known_type: FieldType, new_type: FieldType) -> FieldType:
    """Return the narrowest type that holds both."""
    if known_type == new_type:
        return known_type
    both = {known_type, new_type}
    if both <= NUMERIC:
        return FieldType.NUMBER
    if both <= {FieldType.STRING, FieldType.TIMESTAMP, FieldType.DURATION}:
        return FieldType.STRING
    if both == {FieldType.ARRAY, FieldType.VECTOR}:
        return FieldType.ARRAY
    return FieldType.ANY


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of items, with the fields that they have."""

    name: str
    fields: Mapping[str, Field] = field(default_factory=dict[str, Field])
    title: str = ""
    description: str = ""
    type: str = ""  # the schema.org type most of its items have
    singular: str = ""  # for operation names; derived from the name when empty
    language: str = "en"
    weights: Mapping[str, float] = field(default_factory=dict[str, float])  # of fields in text search
    private: bool = False  # only operations of the site use it; no protocol shows it
    details: tuple[str, ...] = ()  # fields to ask the user for when a question is vague
    roles: Mapping[Role, str] = field(default_factory=dict[Role, str])  # the fields that the site file names for roles
    unknown: Literal["refuse", "keep"] = "refuse"  # fields that a caller writes and the collection does not have
    by_role: Mapping[Role, Field] = field(init=False, repr=False, compare=False)  # those of the site file first

    def __post_init__(self) -> None:
        own = {spec.role: spec for spec in reversed(tuple(self.fields.values())) if spec.role}
        chosen = {role: self._role_field(name) for role, name in self.roles.items() if name}
        object.__setattr__(self, "by_role", {**own, **chosen})

    def _role_field(self, name: str) -> Field:
        """Return the field that the site file names for a role, also one that no item has yet."""
        return self._lookup(name) or Field(name, FieldType.ANY, keys=(name,))

    @property
    def one(self) -> str:
        return self.singular or singular(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """Return the fields of a record as NWP publishes them: the id, and every field of the items."""
        fields: list[dict[str, Any]] = [{"name": ID, "type": "string", "semantic": "entity.id"}]
        aliases = self.names.aliases
        for spec in self.fields.values():
            semantic = {"semantic": _SEMANTICS[spec.name]} if spec.name in _SEMANTICS else {}
            label = {"label": spec.name} if spec.name in aliases else {}
            name = aliases.get(spec.name, spec.name)
            fields.append({"name": name, "type": _NWP_TYPES[spec.type], **semantic, **label, "nullable": True})
        return {"fields": fields}

    @property
    def names(self) -> FieldNames:
        """The other names of the fields: their aliases and their normal forms."""
        return index_names(tuple(self.fields))

    @property
    def anchor_id(self) -> str:
        return anchor_of(self.schema)

    def field_for(self, role: Role) -> str:
        """Return the name of the field with a role; empty if there is none."""
        spec = self.by_role.get(role)
        return spec.name if spec else ""

    def role_of(self, name: str) -> Role | Literal[""]:
        """Return the role of a field; empty if it has none, or the site file gives its role to another field."""
        for role, spec in self.by_role.items():
            if spec.name == name:
                return role
        return ""

    @property
    def title_fields(self) -> tuple[str, ...]:
        """The fields that name an item: those of the roles, then those that schema.org has for it."""
        roles = map(self.field_for, _NAMING)
        return tuple(dict.fromkeys((*filter(None, roles), *TITLES)))

    def value_for(self, role: Role, data: Mapping[str, Any]) -> Any:
        """Return what an item has in the field with a role; None without one."""
        spec = self.by_role.get(role)
        return spec.value(data) if spec else None

    @property
    def absent_roles(self) -> Mapping[Role, str]:
        """The roles that the site file gives to fields that the collection does not have."""
        return {role: name for role, name in self.roles.items() if name and self._lookup(name) is None}

    def title_of(self, data: Mapping[str, Any]) -> str:
        """Return what an item is called; empty if no text of it says.

        The field with the role counts before a person's two names, and these before the names that schema.org has. A
        record of no schema.org type that has none of them is called by another short text.
        """
        title = _name_in(self.value_for("title", data))
        person = " ".join(filter(None, (_name_in(self.value_for(role, data)) for role in _NAMING[1:])))
        named = title or person or next(filter(None, (_name_in(data.get(name)) for name in TITLES)), "")
        return named or ("" if "@type" in data else _short_text(data))

    def field(self, path: str) -> Field:
        """Return the field with a name, or at a path below one. Its own name comes before its other names.

        Below an object, an array or a field of any type, every path may exist. A field whose own name has dots comes
        before a path of the same spelling.
        """
        if path == ID:
            return Field(ID, FieldType.STRING)
        field = self._lookup(path)
        if field is None:
            shown = path[:MAX_PATH]
            raise UnknownField(
                f"{self.name} has no field {shown!r}",
                field=shown,
                collection=self.name,
                hint=f"Known fields: {', '.join(self.fields) or 'none yet'}.",
            )
        return field

    def _lookup(self, path: str) -> Field | None:
        field = self.fields.get(path) or self._below(path, self.fields.get)
        return field or self._find(path) or self._below(path, self._find)

    def _below(self, path: str, find: Callable[[str], Field | None]) -> Field | None:
        """Return the field of a path that begins with the name of an object, an array or a field of any type."""
        if "." not in path or not is_path(path):
            return None
        steps = segments(path)
        for count in range(len(steps) - 1, 0, -1):
            top, below = find(".".join(steps[:count])), steps[count:]
            if top and not top.type.is_scalar:
                return Field(".".join((top.name, *below)), FieldType.ANY, keys=(*top.keys, *below) if top.keys else ())
        return None

    def _find(self, name: str) -> Field | None:
        """Return the field with this alias or normal form."""
        own = self.names.find(name)
        return None if own is None else self.fields[own]

    def widen(self, data: Mapping[str, Any], *, keeps_types: bool = False) -> "Collection":
        """Return this collection with fields for the data; the same object if nothing is new.

        With `keeps_types` the data may add fields, but the types of those that there are stay as they are.
        """
        additions: dict[str, Field] = {}
        for name, value in data.items():
            existing = self.fields.get(name)
            new_type = type_of(value)
            if existing and existing.declared and "." in name and not (keeps_types or existing.path or existing.keys):
                # The data has its name as one key: it is not a path into an object.
                additions[name] = replace(existing, keys=(name,))
            if (
                (existing and (keeps_types or existing.declared or existing.settled))
                or new_type is None
                or name == ID
                or (existing is None and problem_with_name(name))
            ):
                continue
            kind = widen(existing.type, new_type) if existing else new_type
            if existing is None and len(self.fields) + len(additions) >= MAX_COLUMNS:
                kind = FieldType.ANY
            if (existing is None and len(self.fields) + len(additions) < MAX_FIELDS) or (
                existing and kind != existing.type
            ):
                additions[name] = Field(name, kind, keys=(name,) if "." in name else ())
        return replace(self, fields={**self.fields, **additions}) if additions else self


def _name_in(value: Any) -> str:
    """Return a name: a text, a number that stands for one, or the first text of a list; empty for anything else."""
    match value:
        case str():
            return value if value.strip() else ""
        case bool():
            return ""
        case int() | float():
            return str(value)
        case [str() as first, *_]:
            return first if first.strip() else ""
        case _:
            return ""


def _short_text(data: Mapping[str, Any]) -> str:
    """Return a text that may stand for the title of a record: several words, else one; no code, date or address."""
    texts = [
        value
        for name, value in data.items()
        if isinstance(value, str) and name not in _NOT_NAMING and len(value) <= _MAX_SHORT and _PHRASE.match(value)
    ]
    return next((text for text in texts if " " in text.strip()), texts[0] if texts else "")


def anchor_of(schema: Mapping[str, Any]) -> str:
    """Return the anchor of a schema: SHA-256 of its canonical form (RFC 8785)."""
    return f"sha256:{hashlib.sha256(rfc8785.dumps(dict(schema))).hexdigest()}"


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
    """How much harm a call can do (MCP-AQL 5). The gate compares it with the limit of the caller."""

    SAFE = 0
    REVERSIBLE = 1
    DESTRUCTIVE = 2
    DANGEROUS = 3
    FORBIDDEN = 4


class Trust(IntEnum):
    """How far a caller may act without a person's approval (MCP-AQL, trust levels)."""

    UNTESTED = 0
    GENERATED = 1
    VALIDATED = 2
    COMMUNITY_REVIEWED = 3
    CERTIFIED = 4


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a caller can request. Its published schema and its validation come from the same types."""

    name: str
    kind: Kind
    description: str
    params: Any  # a msgspec Struct type, or a JsonSchema for operations described elsewhere
    result: Any
    run: Callable[..., Awaitable[Any]]
    danger: Danger = Danger.SAFE
    collection: str = ""  # the collection it belongs to, for scopes
    idempotent: bool = False
    transactional: bool = False  # its only effects are its writes through the context
    open: bool = False  # open to everyone: it checks itself which data the caller may see
    long: bool = False  # runs as a task unless the caller insists on waiting
    attempts: int = 1  # how often a task is tried before it fails; more than 1 only if repeating is harmless
    timeout: float = 30.0
    estimate: float | None = None  # seconds a task usually takes
    check: Callable[[Any], None] | None = None  # raises for parameters that fit their type but are not valid

    @property
    def summary(self) -> str:
        return self.description.strip().split("\n", 1)[0]

    @property
    def is_idempotent(self) -> bool:
        """Whether two equal calls have the effect of one."""
        return self.idempotent or self.kind is Kind.READ

    @property
    def is_repeatable(self) -> bool:
        """Whether an interrupted call may be run again: its effects were rolled back, or do not matter."""
        return self.is_idempotent or self.transactional


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
        """Return a collection that protocols may show; raise UnknownCollection for any other name."""
        collection = self.collections.get(name)
        if collection is None or collection.private:
            raise UnknownCollection(
                f"There is no collection {name!r}",
                collection=name,
                hint=f"Known collections: {', '.join(c.name for c in self.public) or 'none yet'}.",
            )
        return collection

    def operation(self, name: str) -> Operation:
        operation = self.operations.get(name)
        if operation is None:
            raise UnknownOperation(
                f"There is no operation {name!r}",
                operation=name,
                hint=nearest_hint(name, self.operations) or "`portico call` lists all operations.",
            )
        return operation

    @property
    def public(self) -> tuple[Collection, ...]:
        return tuple(c for c in self.collections.values() if not c.private)


def nearest_hint(name: str, names: Iterable[str]) -> str:
    """Suggest names that are close to a wrong one, for the hint of an error."""
    close = difflib.get_close_matches(name, list(names), n=3)
    return f"Did you mean {', '.join(close)}?" if close else ""
