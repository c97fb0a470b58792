"""Query, Filter, Page and the one operator table. Says what matches; knows no SQL and no protocol.

Three engines answer the same filters: SQL in a store, column masks in an index, and `matches` here. The rules:
a path yields every value it reaches, arrays of objects included; a comparison holds if it holds for one of them;
a missing or null value, or one of another kind, makes it false; `ne` and `nin` are the negations of `eq` and `in`;
`contains` asks a text for a part and an array for an element; `exists` means present and not null.
"""

import base64
import hashlib
import hmac
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import isfinite
from typing import Any, Literal, TypeAlias, cast

import msgspec
import re2

from portico.catalog import (
    ID,
    MAX_FLOAT32,
    MAX_NUMBER,
    NUMERIC,
    Collection,
    Field,
    FieldType,
    comparable,
    scalar_at,
    segments,
    storable,
)
from portico.errors import InvalidAggregate, InvalidCursor, InvalidQuery, QueryTooLarge, UnknownField, UnsafeRegex
from portico.items import Item, text_problem

MAX_DEPTH = 8  # NWP 6.2
MAX_CONDITIONS = 256
MAX_LIST = 1000
MAX_REGEX = 256  # NWP 6.2
MAX_VALUE = 10_000  # characters
MAX_PROGRAM = 2500  # steps of a compiled pattern; a class of Unicode has up to 1200
MAX_NODES = 1024  # of a filter, conditions and what joins them
MAX_VALUES = 10_000  # in all lists of a filter
MAX_HAVING = 16  # conditions: they are tested for every group
MAX_KEYS = 16  # of an order, a grouping or an aggregate
MAX_LIMIT = 1000
DEFAULT_LIMIT = 20

Metric: TypeAlias = Literal["cosine", "euclidean", "dot_product"]
Function: TypeAlias = Literal["count", "sum", "avg", "min", "max", "count_distinct"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to test a field. `says` is for people; `holds` tests one value, which may be None for an absent one."""

    name: str
    says: str
    holds: Callable[[Any, Any], bool]


class Members:
    """The values of an `in`, ready to be looked up."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._known = {(_kind(value), value) for value in map(_kept, values) if _kind(value) != "other"}
        self._has_none = any(value is None for value in values)

    def __contains__(self, value: Any) -> bool:
        return (
            self._has_none
            if value is None
            else (_kind(value), value) in self._known
            if _kind(value) != "other"
            else False
        )


def _kept(value: Any) -> Any:
    return storable(value) if type(value) is int else value


def _same(value: Any, wanted: Any) -> bool:
    """JSON equality: 1 equals 1.0, but not true and not "1"."""
    if value is None or wanted is None:
        return value is wanted
    return _comparable(value, wanted) and value == wanted


def _ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, wanted: _comparable(value, wanted) and test(value, wanted)


def _members(wanted: Any) -> Members:
    return wanted if isinstance(wanted, Members) else Members(wanted)


def _comparable(value: Any, wanted: Any) -> bool:
    return _kind(value) == _kind(wanted) != "other"


def _textual(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, wanted: isinstance(value, str) and isinstance(wanted, str) and test(value, wanted)


OPERATORS: dict[str, Operator] = {
    op.name: op
    for op in (
        Operator("eq", "equals", _same),
        Operator("ne", "is not", lambda value, wanted: not _same(value, wanted)),
        Operator("lt", "is less than", _ordered(operator.lt)),
        Operator("lte", "is at most", _ordered(operator.le)),
        Operator("gt", "is greater than", _ordered(operator.gt)),
        Operator("gte", "is at least", _ordered(operator.ge)),
        Operator("in", "is one of", lambda value, wanted: value in _members(wanted)),
        Operator("nin", "is none of", lambda value, wanted: value not in _members(wanted)),
        Operator("contains", "contains", _textual(lambda value, wanted: wanted in value)),
        Operator(
            "between",
            "is between",
            lambda value, ends: compare("gte", value, ends[0]) and compare("lte", value, ends[1]),
        ),
        Operator("exists", "exists", lambda value, wanted: (value is not None) == wanted),
        Operator("regex", "matches", _textual(lambda value, pattern: compiled(pattern).search(value) is not None)),
    )
}
NEGATIONS = {"ne": "eq", "nin": "in"}


_HASHABLE = frozenset({str, int, bool, type(None)})  # and not float, of which 0.0 and -0.0 are the same


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """One test of one field. Equal to another only if their values are the same JSON: 1 is not true."""

    field: str
    op: str
    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self._key() == other._key()

    def __hash__(self) -> int:
        value = self.value
        return hash((self.field, self.op, value if type(value) in _HASHABLE or type(value) is float else repr(value)))

    def _key(self) -> tuple[Any, ...]:
        kind = cast("type[Any]", type(self.value))  # to Python 1 and true are the same, and inside tuples, too
        return self.field, self.op, kind, self.value if kind in _HASHABLE else repr(self.value)


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: "Filter"


Filter: TypeAlias = Condition | And | Or | Not
EVERYTHING = And(())


@dataclass(frozen=True, slots=True)
class Order:
    """One key of a sort. Items without the field come last in both directions, unless they are to come first."""

    field: str
    descending: bool = False
    absent_first: bool = False  # in pages of items; rows of an aggregate keep them last


BACK = Order(ID, descending=True, absent_first=True)  # the last key of an order that `turned` made


@dataclass(frozen=True, slots=True)
class Near:
    """Vector similarity. Without a field: the embedding Portico made of each item's text."""

    vector: tuple[float, ...]
    field: str = ""
    top: int = 10
    threshold: float | None = None  # least similarity, or greatest euclidean distance
    metric: Metric = "cosine"


@dataclass(frozen=True, slots=True)
class Aggregation:
    function: Function
    alias: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Aggregate:
    operations: tuple[Aggregation, ...]
    group_by: tuple[str, ...] = ()
    having: Filter = EVERYTHING


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for in one collection."""

    collection: str
    text: str = ""
    near: Near | None = None
    where: Filter = EVERYTHING
    order: tuple[Order, ...] = ()
    fields: tuple[str, ...] = ()
    aggregate: Aggregate | None = None
    limit: int = DEFAULT_LIMIT
    cursor: str = ""
    count: bool = False  # whether the page shall say how many there are in all
    max_bytes: int = 0  # of its items or rows as JSON; a page has one of them at least; 0 is no bound


@dataclass(frozen=True, slots=True)
class Page:
    """Items, or rows of an aggregate. A cursor is there exactly when more follows."""

    items: tuple[Item, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    scores: tuple[float, ...] = ()  # beside items, when they were searched for
    total: int | None = None
    cursor: str = ""
    notes: tuple[str, ...] = field(default=())  # what a caller should know of how the page came about
    is_cached: bool = False  # whether it was found for an earlier query; nothing has changed since

    @property
    def length(self) -> int:
        return len(self.items) + len(self.rows)


READ_SHARE = 8  # bytes that are read and left out of a page count as one that is sent


def json_size(data: Any) -> int:
    return len(msgspec.json.encode(data))


def item_bytes(item: Item, stored: int, query: Query) -> int:
    """How many bytes of a page an item takes, of which so many are stored."""
    return max(json_size(item.data), stored // READ_SHARE) if query.fields else stored


def count_within(sizes: Iterable[int], max_bytes: int) -> int:
    """How many of the first of these sizes fit into so many bytes: one at least, and all if there is no bound."""
    total = count = 0
    for size in sizes:
        total += size
        if max_bytes and count and total > max_bytes:
            break
        count += 1
    return count


# Reading the JSON form of a filter, {"price": {"$lt": 20}}.


def parse_filter(raw: Any, *, bare_values: bool = True) -> Filter:
    """The filter that a JSON object in the `$` dialect means. `bare_values` reads {"f": 1} as equality."""
    return _parse(raw, 0, bare_values, [MAX_NODES, MAX_CONDITIONS])


def _parse(raw: Any, depth: int, bare: bool, budget: list[int]) -> Filter:
    if not isinstance(raw, Mapping):
        raise InvalidQuery(
            "A filter is a JSON object",
            got=type(raw).__name__,
            hint='For example {"price": {"$lt": 20}}.',
        )
    _spend(budget, 0)
    if depth >= MAX_DEPTH:
        raise InvalidQuery(f"The filter is nested more than {MAX_DEPTH} levels deep", limit=MAX_DEPTH)
    parts: list[Filter] = []
    for key, value in cast("Mapping[Any, Any]", raw).items():
        if not isinstance(key, str):
            raise InvalidQuery(f"{key!r} is not a field name", got=type(key).__name__)
        if key.startswith("$"):
            parts.append(_parse_joint(key, value, depth, bare, budget))
        else:
            parts += _parse_conditions(key, value, bare, budget)
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _parse_joint(key: str, value: Any, depth: int, bare: bool, budget: list[int]) -> Filter:
    match key:
        case "$and" | "$or":
            if not isinstance(value, list):
                raise InvalidQuery(f"{key} takes a list of filters", operator=key)
            parts = tuple(_parse(part, depth + 1, bare, budget) for part in cast("list[Any]", value))
            return And(parts) if key == "$and" else Or(parts)
        case "$not":
            return Not(_parse(value, depth + 1, bare, budget))
        case _:
            raise InvalidQuery(f"{key!r} is not a filter operator", operator=key, hint=_known_operators())


def _parse_conditions(name: str, raw: Any, bare: bool, budget: list[int]) -> list[Condition]:
    segments(name)
    tests: Mapping[str, Any] | None = cast("Mapping[str, Any]", raw) if isinstance(raw, Mapping) else None
    if tests is None or not any(key.startswith("$") for key in tests):
        if not bare:
            raise InvalidQuery(
                f"The filter on {name!r} names no operator",
                field=name,
                hint=f'Write {{"{name}": {{"$eq": …}}}}.',
            )
        tests = {"$eq": cast("Any", raw)}
    found: list[Condition] = []
    for key, value in tests.items():
        if not key.startswith("$"):
            raise InvalidQuery(f"{key!r} is not a filter operator", operator=key, hint=_known_operators())
        _spend(budget, 1)
        found.append(condition(name, key[1:], value))
    return found


def _spend(budget: list[int], part: int) -> None:
    budget[part] -= 1
    if budget[part] < 0:
        raise QueryTooLarge(
            f"A filter may have up to {MAX_CONDITIONS} conditions", limit=MAX_CONDITIONS, actual=MAX_CONDITIONS + 1
        )


_AGGREGATION = re2.compile(r"^\s*(\w+)\s*(?:\(\s*([^()\s]*)\s*\))?(?:\s+as\s+(\w+))?\s*$")
FUNCTIONS: tuple[Function, ...] = ("count", "sum", "avg", "min", "max", "count_distinct")


def parse_aggregation(text: str) -> Aggregation:
    """The aggregation that a text such as `avg(price) as mean` means."""
    found = _AGGREGATION.match(text)
    name = (found[1] or "").lower() if found else ""
    function: Function | None = next((each for each in FUNCTIONS if each == name), None)
    if found is None or function is None:
        raise InvalidQuery(
            f"{text!r} is not an aggregate",
            hint=f"Write one of {', '.join(FUNCTIONS)}: 'avg(price) as mean'.",
        )
    of = (found[2] or "").removeprefix("*")
    return Aggregation(function, found[3] or (f"{function}_{of}" if of else function), of)


def _known_operators() -> str:
    return f"Known operators: {', '.join(f'${name}' for name in OPERATORS)}, $and, $or, $not."


def condition(name: str, op: str, value: Any) -> Condition:
    """A checked condition."""
    if op not in OPERATORS:
        raise InvalidQuery(f"'${op}' is not a filter operator", operator=op, hint=_known_operators())
    check = _CHECKS.get(op, _check_plain)
    return Condition(name, op, check(name, op, value))


def _check_plain(name: str, op: str, value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        raise InvalidQuery(f"${op} on {name!r} needs a finite number", field=name)
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise InvalidQuery(f"${op} on {name!r} needs a smaller number", field=name)
    if isinstance(value, str) and "\0" not in value and text_problem(value):
        raise InvalidQuery(f"${op} on {name!r} needs whole characters", field=name)
    if isinstance(value, list | dict):
        raise InvalidQuery(
            f"${op} on {name!r} needs a single value",
            field=name,
            hint="Ask an array for an element with $contains.",
        )
    return value


def _check_list(name: str, op: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidQuery(f"${op} on {name!r} needs a list", field=name, operator=op)
    values = tuple(cast("Sequence[Any]", value))
    if len(values) > MAX_LIST:
        raise QueryTooLarge(f"${op} takes up to {MAX_LIST} values", limit=MAX_LIST, actual=len(values))
    return tuple(_check_plain(name, "eq", each) for each in values)


def _check_ends(name: str, op: str, value: Any) -> tuple[Any, Any]:
    ends = _check_list(name, op, value)
    if len(ends) != 2:
        raise InvalidQuery(f"$between on {name!r} needs two values, the least and the greatest", field=name)
    return ends[0], ends[1]


def _check_exists(name: str, op: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidQuery(f"${op} on {name!r} needs true or false", field=name)
    return value


def _check_contains(name: str, op: str, value: Any) -> Any:
    if value is None:
        raise InvalidQuery(f"${op} on {name!r} needs a single value", field=name)
    return _check_plain(name, op, value)


def _check_regex(name: str, op: str, value: Any) -> str:
    if not isinstance(_check_plain(name, op, value), str):
        raise InvalidQuery(f"${op} on {name!r} needs a pattern", field=name)
    if len(value) > MAX_REGEX:
        raise UnsafeRegex(f"The pattern on {name!r} is longer than {MAX_REGEX} characters", field=name, limit=MAX_REGEX)
    compiled(value)
    return value


_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "in": _check_list,
    "nin": _check_list,
    "between": _check_ends,
    "exists": _check_exists,
    "contains": _check_contains,
    "regex": _check_regex,
}


@lru_cache(maxsize=512)
def compiled(pattern: str) -> "re2.Pattern":
    """A pattern in RE2: its time is linear in the text, whatever the pattern (NWP 13.5)."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        told: object = error.args[0] if error.args else ""
        reason = told.decode() if isinstance(told, bytes) else str(told)
        kind = UnsafeRegex if "too large" in reason else InvalidQuery
        raise kind(
            f"The pattern {pattern!r} cannot be used: {reason}",
            pattern=pattern,
            hint="Patterns follow RE2: no back-references, no look-around.",
        ) from error
    # Time is linear in text and program; a pattern can be short and its program long, as in (a|b){500}.
    if found.programsize > MAX_PROGRAM:
        raise UnsafeRegex(f"The pattern {pattern!r} repeats too much", pattern=pattern, hint="Use smaller counts.")
    return found


# Deciding whether an item matches.


Test: TypeAlias = Callable[[Item], bool]


def matches(where: Filter, item: Item, collection: Collection) -> bool:
    return matcher(where, collection)(item)


def matcher(where: Filter, collection: Collection) -> Test:
    """A filter as a function of an item; what can be prepared is prepared once."""
    match where:
        case And(parts):
            tests = [matcher(part, collection) for part in parts]
            return lambda item: all(test(item) for test in tests)
        case Or(parts):
            tests = [matcher(part, collection) for part in parts]
            return lambda item: any(test(item) for test in tests)
        case Not(part):
            inner = matcher(part, collection)
            return lambda item: not inner(item)
        case Condition(name, op, value) if op in NEGATIONS:
            positive = _test(NEGATIONS[op], value, collection.field(name))
            return lambda item: not positive(item)
        case Condition(name, op, value):
            return _test(op, value, collection.field(name))


def _test(op: str, wanted: Any, known: Field) -> Test:
    """One positive condition as a function of an item."""
    if known.name == ID:
        return partial(_id_holds, op, _prepared(op, wanted))
    if known.is_typed and not (op in TEXTUAL and known.type in TEXT_BEHIND):
        prepared = _prepared(op, operand(known, op, wanted))
        return lambda item: compare(op, known.typed_value(item.data), prepared)
    path, prepared = segments(known.where), _prepared(op, wanted)
    return lambda item: _any_holds(op, prepared, list(reached(item.data, path)))


def _id_holds(op: str, wanted: Any, item: Item) -> bool:
    return compare(op, item.id, wanted)


def _prepared(op: str, wanted: Any) -> Any:
    return Members(wanted) if op == "in" else wanted


TEXTUAL = frozenset({"contains", "regex"})
TEXT_BEHIND = frozenset({FieldType.TIMESTAMP, FieldType.DURATION})  # compared as numbers, written as text


def operand(known: Field, op: str, wanted: Any) -> Any:
    """The right-hand side in the comparable form of a typed field."""
    if op == "exists":
        return wanted
    if op in {"in", "between"}:
        return tuple(_operand(known, each) for each in wanted)
    return _operand(known, wanted)


class Unmatchable:
    """A right-hand side of another kind than the field: equal to nothing, before and after nothing."""


UNMATCHABLE = Unmatchable()


def _operand(known: Field, wanted: Any) -> Any:
    if wanted is None:
        return None
    if known.type in NUMERIC and isinstance(wanted, str):
        return UNMATCHABLE
    value = comparable(known.type, wanted)
    return UNMATCHABLE if value is None else value


def compare(op: str, value: Any, wanted: Any) -> bool:
    """One comparison of one value. Integers beyond 64 bits are as exact as databases keep them."""
    if type(value) is int:
        value = storable(value)
    if type(wanted) is int:
        wanted = storable(wanted)
    return OPERATORS[op].holds(value, wanted)


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case _:
            return "other"


def reached(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Any]:
    """Every value a path leads to, through arrays of objects. Arrays at its end are not opened."""
    heads: list[Any] = [data]
    for step in path:
        heads = [
            cast("Mapping[str, Any]", each)[step]
            for head in heads
            for each in _opened(head)
            if isinstance(each, Mapping) and step in each
        ]
    yield from heads


def _opened(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _any_holds(op: str, wanted: Any, found: list[Any]) -> bool:
    if op == "exists":
        return any(value is not None for value in found) == wanted
    if op == "contains":
        return any(_contains(value, wanted) for value in found)
    if op in {"eq", "in"} and not any(value is not None for value in found):
        found = [None]
    return any(compare(op, each, wanted) for value in found for each in _opened(value))


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return any(compare("eq", each, wanted) for each in cast("list[Any]", value))
    return isinstance(value, str) and isinstance(wanted, str) and wanted in value


# Sorting and walking.


def sort_key(value: Any) -> tuple[int, Any]:
    """Orders values of any kind: numbers, then texts, then the rest, then nothing."""
    match value:
        case bool():
            return (2, int(value))
        case int() | float():
            return (0, value)
        case str():
            return (1, value)
        case _:
            return (ABSENT, 0)


ABSENT = 3


def checked(query: Query, collection: Collection) -> Query:
    """The query with its bounds applied; raises for fields that do not exist and combinations that mean nothing."""
    if query.limit < 0:
        raise InvalidQuery("limit cannot be negative", limit=query.limit)
    if len(query.order) > MAX_KEYS or len(query.fields) > MAX_LIST:
        raise QueryTooLarge(
            f"A query may have up to {MAX_KEYS} keys to sort by and {MAX_LIST} fields",
            limit=MAX_KEYS,
            actual=max(len(query.order), len(query.fields)),
        )
    _check_filter_fields(query.where, collection)
    for name in (*(o.field for o in query.order), *query.fields):
        if query.aggregate is None:
            collection.field(name)
    if query.aggregate:
        _check_aggregate(query, query.aggregate, collection)
    if query.near:
        _check_near(query.near, collection)
        if query.text:
            raise InvalidQuery("A search is by text or by vector, not by both", hint="Leave one of them out.")
    limit = min(query.limit or DEFAULT_LIMIT, MAX_LIMIT)
    return query if limit == query.limit else replace(query, limit=limit)


def _check_filter_fields(where: Filter, collection: Collection) -> None:
    for each in conditions(where):
        collection.field(each.field)


def conditions(where: Filter) -> list[Condition]:
    """All conditions of a filter, from left to right."""
    if isinstance(where, Condition):
        return [where]
    found: list[Condition] = []
    waiting: list[Filter] = [where]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Condition):
            found.append(part)
        elif isinstance(part, Not):
            waiting.append(part.part)
        else:
            waiting.extend(reversed(part.parts))
    return found


def check_bounds(where: Filter) -> None:
    """Refuse a filter that costs more to test than one question may."""
    found = conditions(where)
    values = [one for each in found for one in _values(each)]
    steps = sum(compiled(each.value).programsize for each in found if each.op == "regex")
    if steps > MAX_PROGRAM:
        raise UnsafeRegex("The patterns of the filter are too much together", limit=MAX_PROGRAM, hint="Use fewer.")
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    for part, actual, limit in (
        ("conditions", len(found), MAX_CONDITIONS),
        ("values", len(values), MAX_VALUES),
        ("parts", _nodes(where), MAX_NODES),
        ("characters in a value", longest, MAX_VALUE),
    ):
        if actual > limit:
            raise QueryTooLarge(
                f"A filter may have up to {limit} {part}", limit_type="filter", limit=limit, actual=actual
            )


def _values(each: Condition) -> tuple[Any, ...]:
    value: Any = each.value
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)


def _nodes(where: Filter) -> int:
    match where:
        case And(parts) | Or(parts):
            return 1 + sum(_nodes(part) for part in parts)
        case Not(part):
            return 1 + _nodes(part)
        case Condition():
            return 1


def _check_near(near: Near, collection: Collection) -> None:
    if near.field and collection.field(near.field).type != FieldType.VECTOR:
        raise InvalidQuery(f"{near.field} holds no vectors", field=near.field)
    # Its length is squared to be compared.
    if not 1 <= len(near.vector) <= MAX_VALUES or not sum(x * x for x in near.vector) < MAX_FLOAT32:
        raise InvalidQuery("A vector needs numbers whose squares are finite in 32 bits", field=near.field)
    if not 1 <= near.top <= MAX_LIMIT:
        raise InvalidQuery(f"top lies between 1 and {MAX_LIMIT}", top=near.top)


def _check_aggregate(query: Query, aggregate: Aggregate, collection: Collection) -> None:
    if not aggregate.operations:
        raise InvalidAggregate("An aggregate needs one operation or more")
    if max(len(aggregate.operations), len(aggregate.group_by)) > MAX_KEYS:
        raise InvalidAggregate(f"An aggregate may have up to {MAX_KEYS} columns of each kind", limit=MAX_KEYS)
    if len(conditions(aggregate.having)) > MAX_HAVING:
        raise InvalidAggregate(f"`having` may have up to {MAX_HAVING} conditions", limit=MAX_HAVING)
    check_bounds(aggregate.having)
    if query.text or query.near:
        raise InvalidAggregate("Aggregates count stored items; they do not combine with a search")
    names = [*aggregate.group_by, *(each.alias for each in aggregate.operations)]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidAggregate(f"Two columns of the result are called {repeated!r}", alias=repeated)
    for name in aggregate.group_by:
        _check_column(name, collection)
    for each in aggregate.operations:
        _check_aggregation(each, collection)
    _check_names((o.field for o in query.order), names, UnknownField)
    _check_names((c.field for c in conditions(aggregate.having)), names, InvalidAggregate)


def _check_names(used: Iterable[str], names: Sequence[str], wrong: type[InvalidQuery]) -> None:
    stray = next((name for name in used if name not in names), None)
    if stray is not None:
        hint = f"Order and having may use {', '.join(names)}."
        raise wrong(f"{stray!r} is not a column of the result", field=stray, hint=hint)


def _check_column(name: str, collection: Collection) -> Field:
    """A field that has one value in each item. Below a list there may be many, of which no column can be made."""
    known = collection.field(name)
    head, _, below = known.where.partition(".")
    top = collection.fields.get(head)
    if below and top and top.type == FieldType.ARRAY:
        raise InvalidAggregate(
            f"{head} is a list: {name} has no single value", field=name, hint="Filter by it instead."
        )
    return known


def _check_aggregation(each: Aggregation, collection: Collection) -> None:
    if not each.alias or len(each.alias) > 128 or text_problem(each.alias):
        raise InvalidAggregate(f"{each.function} needs an alias of 1 to 128 characters", function=each.function)
    if each.field:
        known = _check_column(each.field, collection)
        numeric = NUMERIC | {FieldType.DURATION, FieldType.ANY}
        if each.function in {"sum", "avg"} and known.type not in numeric:
            raise InvalidAggregate(f"{each.function} needs a number; {each.field} is a {known.type}", field=each.field)
    elif each.function != "count":
        raise InvalidAggregate(f"{each.function} needs a field", function=each.function)


# Cursors: opaque, tamper-evident, bound to their query.


def make_cursor(query: Query, position: Sequence[Any], secret: bytes) -> str:
    payload = msgspec.msgpack.encode(list(position))
    return base64.urlsafe_b64encode(_sign(query, payload, secret) + payload).rstrip(b"=").decode()


def read_cursor(query: Query, secret: bytes) -> list[Any]:
    """The position a cursor stands for; raises if it was altered or made for another query."""
    try:
        padded = query.cursor + "=" * (-len(query.cursor) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    signature, payload = raw[:16], raw[16:]
    if not payload or not hmac.compare_digest(signature, _sign(query, payload, secret)):
        raise InvalidCursor(
            "The cursor does not belong to this query",
            hint="Send the query again exactly as it was, or start again without a cursor.",
        )
    return msgspec.msgpack.decode(payload, type=list[Any])


def _sign(query: Query, payload: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(_asked(query) + b"\0" + payload, key=secret, digest_size=16, person=b"cursor").digest()


def turned(order: tuple[Order, ...]) -> tuple[Order, ...]:
    """An order that ends with the id, from its other end."""
    return tuple(Order(key.field, not key.descending, not key.absent_first) for key in order)


def _asked(query: Query) -> bytes:
    """The same bytes for the same question, in every process: it is made of texts, numbers and tuples alone."""
    # A walk back goes on from where a walk forth stood: each takes the other's cursors.
    order = turned(query.order) if query.order[-1:] == (BACK,) else query.order
    keys = [(key.field, key.descending, key.absent_first) for key in order]
    said = query.collection, query.text, query.near, _spelt(query.where), keys, query.fields, query.aggregate
    return repr(said).encode("utf-8", "surrogatepass")


def _spelt(where: Filter) -> tuple[Any, ...]:
    """A filter as tuples, which are quicker to write down."""
    match where:
        case Condition(name, op, value):
            return name, op, value
        case Not(part):
            return "not", _spelt(part)
        case And(parts):
            return "and", *map(_spelt, parts)
        case Or(parts):
            return "or", *map(_spelt, parts)


# Projection.


def project(item: Item, names: Sequence[str], collection: Collection) -> Item:
    """The item with only the named fields; paths keep their nesting. No names keep everything."""
    if not names:
        return item
    shown: dict[str, Any] = {}
    for name in names:
        known = collection.field(name)
        if known.path:
            value = scalar_at(item.data, known.path)
            shown.update({} if value is None else {name: value})
        elif name != ID:
            _copy(item.data, shown, segments(name))
    return replace(item, data=shown)


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: tuple[str, ...]) -> None:
    head, *rest = path
    if head not in source:
        return
    value = source[head]
    if not rest:
        target[head] = value
    elif isinstance(value, Mapping):
        kept = target.setdefault(head, {})
        if isinstance(kept, dict):
            _copy(cast("Mapping[str, Any]", value), cast("dict[str, Any]", kept), tuple(rest))
    elif isinstance(value, list):
        _copy_each(cast("list[Any]", value), target, head, tuple(rest))


def _copy_each(values: list[Any], target: dict[str, Any], head: str, rest: tuple[str, ...]) -> None:
    kept = cast("list[Any]", target.setdefault(head, [{} for _ in values]))
    if len(kept) != len(values):
        return
    for value, shown in zip(values, kept, strict=True):
        if isinstance(value, Mapping) and isinstance(shown, dict):
            _copy(cast("Mapping[str, Any]", value), cast("dict[str, Any]", shown), rest)
