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
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, TypeAlias, cast

import msgspec
import re2

from portico.catalog import (
    ID,
    MAX_FLOAT32,
    NUMERIC,
    Collection,
    Field,
    FieldType,
    comparable,
    storable,
)
from portico.errors import InvalidAggregate, InvalidCursor, InvalidQuery, QueryTooLarge, UnknownField, UnsafeRegex
from portico.field_names import MAX_PATH, segments
from portico.items import MAX_NUMBER, Item, text_problem

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
CONNECTIVES = ("$and", "$or", "$not")
DEFAULT_LIMIT = 20

Metric: TypeAlias = Literal["cosine", "euclidean", "dot_product"]
AggregateFunction: TypeAlias = Literal["count", "sum", "avg", "min", "max", "count_distinct"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to test a field. `label` is for people; `test` takes a value, None if absent, and the operand."""

    name: str
    label: str
    test: Callable[[Any, Any], bool]


class ValueSet:
    """The values of an `in`, prepared for lookup."""

    def __init__(self, values: Sequence[Any]) -> None:
        normal = [storable(value) if type(value) is int else value for value in values]
        self._values = {(_kind(value), value) for value in normal if _kind(value) != "other"}
        self._has_none = any(value is None for value in values)

    def __contains__(self, value: Any) -> bool:
        if value is None:
            return self._has_none
        kind = _kind(value)
        return kind != "other" and (kind, value) in self._values


def _equals(value: Any, target: Any) -> bool:
    """JSON equality: 1 equals 1.0, but not true and not "1"."""
    if value is None or target is None:
        return value is target
    return _same_kind(value, target) and value == target


def _order_test(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, target: _same_kind(value, target) and test(value, target)


def _value_set(target: Any) -> ValueSet:
    return target if isinstance(target, ValueSet) else ValueSet(target)


def _same_kind(value: Any, target: Any) -> bool:
    return _kind(value) == _kind(target) != "other"


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, target: isinstance(value, str) and isinstance(target, str) and test(value, target)


OPERATORS: dict[str, Operator] = {
    op.name: op
    for op in (
        Operator("eq", "equals", _equals),
        Operator("ne", "is not", lambda value, target: not _equals(value, target)),
        Operator("lt", "is less than", _order_test(operator.lt)),
        Operator("lte", "is at most", _order_test(operator.le)),
        Operator("gt", "is greater than", _order_test(operator.gt)),
        Operator("gte", "is at least", _order_test(operator.ge)),
        Operator("in", "is one of", lambda value, target: value in _value_set(target)),
        Operator("nin", "is none of", lambda value, target: value not in _value_set(target)),
        Operator("contains", "contains", _text_test(lambda value, target: target in value)),
        Operator(
            "between",
            "is between",
            lambda value, ends: compare("gte", value, ends[0]) and compare("lte", value, ends[1]),
        ),
        Operator("exists", "exists", lambda value, target: (value is not None) == target),
        Operator(
            "regex", "matches", _text_test(lambda value, pattern: compile_pattern(pattern).search(value) is not None)
        ),
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

    @property
    def values(self) -> tuple[Any, ...]:
        """The values that the field is compared with: several for `in` and `between`, else one."""
        value = self.value
        return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)

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
MATCH_ALL = And(())


@dataclass(frozen=True, slots=True)
class Order:
    """One key of a sort. Items without the field come last in both directions, unless they are to come first."""

    field: str
    descending: bool = False
    absent_first: bool = False  # in pages of items; rows of an aggregate keep them last


REVERSE_ID = Order(ID, descending=True, absent_first=True)  # the last key of an order made by `reverse_order`


@dataclass(frozen=True, slots=True)
class NearVector:
    """Vector similarity. Without a field: the embedding Portico made of each item's text."""

    vector: tuple[float, ...]
    field: str = ""
    top: int = 10
    threshold: float | None = None  # least similarity, or greatest euclidean distance
    metric: Metric = "cosine"


@dataclass(frozen=True, slots=True)
class Aggregation:
    function: AggregateFunction
    alias: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class Aggregate:
    operations: tuple[Aggregation, ...]
    group_by: tuple[str, ...] = ()
    having: Filter = MATCH_ALL


@dataclass(frozen=True, slots=True)
class Query:
    """A query over the items of one collection."""

    collection: str
    text: str = ""
    near: NearVector | None = None
    where: Filter = MATCH_ALL
    order: tuple[Order, ...] = ()
    fields: tuple[str, ...] = ()
    aggregate: Aggregate | None = None
    limit: int = DEFAULT_LIMIT
    cursor: str = ""
    count: bool = False  # whether the page includes the total number of matches
    max_bytes: int = 0  # of its items or rows as JSON; a page has at least one; 0 means no limit


@dataclass(frozen=True, slots=True)
class Page:
    """Items, or rows of an aggregate. It has a cursor exactly when more follow."""

    items: tuple[Item, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    scores: tuple[float, ...] = ()  # beside items, when they were searched for
    total: int | None = None
    cursor: str = ""
    notes: tuple[str, ...] = field(default=())  # for the caller, on how the page was made
    is_cached: bool = False  # whether it was made for an earlier query; nothing has changed since

    @property
    def length(self) -> int:
        return len(self.items) + len(self.rows)


READ_SHARE = 8  # bytes that are read and left out of a page count as one that is sent


def json_size(data: Any) -> int:
    return len(msgspec.json.encode(data))


def item_bytes(item: Item, stored: int, query: Query) -> int:
    """Return how many bytes of a page an item takes that has `stored` bytes in the store."""
    return max(json_size(item.data), stored // READ_SHARE) if query.fields else stored


def count_within(sizes: Iterable[int], max_bytes: int) -> int:
    """Return how many of the first sizes fit into `max_bytes`: at least one, and all if it is 0."""
    total = count = 0
    for size in sizes:
        total += size
        if max_bytes and count and total > max_bytes:
            break
        count += 1
    return count


# Reading the JSON form of a filter, {"price": {"$lt": 20}}.


def parse_filter(raw: Any, *, bare_values: bool = True) -> Filter:
    """Return the filter of a JSON object in the `$` dialect. `bare_values` reads {"f": 1} as equality."""
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
        if key.startswith("$") and not (key not in CONNECTIVES and _has_operators(value)):
            parts.append(_parse_connective(key, value, depth, bare, budget))
        else:
            parts += _parse_conditions(key, value, bare, budget)
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _parse_connective(key: str, value: Any, depth: int, bare: bool, budget: list[int]) -> Filter:
    match key:
        case "$and" | "$or":
            if not isinstance(value, list):
                raise InvalidQuery(f"{key} takes a list of filters", operator=key)
            parts = tuple(_parse(part, depth + 1, bare, budget) for part in cast("list[Any]", value))
            return And(parts) if key == "$and" else Or(parts)
        case "$not":
            return Not(_parse(value, depth + 1, bare, budget))
        case _:
            raise InvalidQuery(f"{key!r} is not a filter operator", operator=key, hint=_operators_hint())


def _has_operators(raw: Any) -> bool:
    """Whether a value belongs to a field, whatever the field is called: {"$where": {"$eq": 1}}."""
    names = [*cast("Mapping[Any, Any]", raw)] if isinstance(raw, Mapping) else []
    return bool(names) and all(str(name)[:1] == "$" and name[1:] in OPERATORS for name in names)


def _parse_conditions(name: str, raw: Any, bare: bool, budget: list[int]) -> list[Condition]:
    if not name or len(name) > MAX_PATH or text_problem(name):
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
    results: list[Condition] = []
    for key, value in tests.items():
        if not key.startswith("$"):
            raise InvalidQuery(f"{key!r} is not a filter operator", operator=key, hint=_operators_hint())
        _spend(budget, 1)
        results.append(condition(name, key[1:], value))
    return results


def _spend(budget: list[int], part: int) -> None:
    budget[part] -= 1
    if budget[part] < 0:
        raise QueryTooLarge(
            f"A filter may have up to {MAX_CONDITIONS} conditions", limit=MAX_CONDITIONS, actual=MAX_CONDITIONS + 1
        )


_AGGREGATION = re2.compile(r"^\s*(\w+)\s*(?:\(\s*(.*?)\s*\))?(?:\s+as\s+(\w+))?\s*$")
FUNCTIONS: tuple[AggregateFunction, ...] = ("count", "sum", "avg", "min", "max", "count_distinct")


def parse_aggregation(text: str) -> Aggregation:
    """Return the aggregation of a text such as `avg(price) as mean`."""
    match = _AGGREGATION.match(text)
    name = (match[1] or "").lower() if match else ""
    function: AggregateFunction | None = next((candidate for candidate in FUNCTIONS if candidate == name), None)
    if match is None or function is None:
        raise InvalidQuery(
            f"{text!r} is not an aggregate",
            hint=f"Write one of {', '.join(FUNCTIONS)}: 'avg(price) as mean'.",
        )
    of = (match[2] or "").removeprefix("*")
    return Aggregation(function, match[3] or (f"{function}_{of}" if of else function), of)


def _operators_hint() -> str:
    return f"Known operators: {', '.join(f'${name}' for name in OPERATORS)}, $and, $or, $not."


def condition(name: str, op: str, value: Any) -> Condition:
    """Return a condition whose operator and value are valid; raise InvalidQuery otherwise."""
    if op not in OPERATORS:
        raise InvalidQuery(f"'${op}' is not a filter operator", operator=op, hint=_operators_hint())
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
    return tuple(_check_plain(name, "eq", item) for item in values)


def _check_range(name: str, op: str, value: Any) -> tuple[Any, Any]:
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
    compile_pattern(value)
    return value


_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "in": _check_list,
    "nin": _check_list,
    "between": _check_range,
    "exists": _check_exists,
    "contains": _check_contains,
    "regex": _check_regex,
}


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> "re2.Pattern":
    """Compile a pattern with RE2, whose time is linear in the text whatever the pattern (NWP 13.5)."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        program = re2.compile(pattern, options)
    except re2.error as error:
        detail: object = error.args[0] if error.args else ""
        reason = detail.decode() if isinstance(detail, bytes) else str(detail)
        kind = UnsafeRegex if "too large" in reason else InvalidQuery
        raise kind(
            f"The pattern {pattern!r} cannot be used: {reason}",
            pattern=pattern,
            hint="Patterns follow RE2: no back-references, no look-around.",
        ) from error
    # Time is linear in text and program; a pattern can be short and its program long, as in (a|b){500}.
    if program.programsize > MAX_PROGRAM:
        raise UnsafeRegex(f"The pattern {pattern!r} repeats too much", pattern=pattern, hint="Use smaller counts.")
    return program


# Deciding whether an item matches.


Predicate: TypeAlias = Callable[[Item], bool]


def matches(where: Filter, item: Item, collection: Collection) -> bool:
    return matcher(where, collection)(item)


def matcher(where: Filter, collection: Collection) -> Predicate:
    """Return a filter as a function of an item; whatever can be prepared is prepared once."""
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


def _test(op: str, target: Any, spec: Field) -> Predicate:
    """Return one condition without negation as a function of an item."""
    if spec.name == ID:
        target_id = _prepare(op, target)
        return lambda item: compare(op, item.id, target_id)
    if spec.is_typed and not (op in TEXTUAL and spec.type in TEXT_BEHIND):
        prepared = _prepare(op, operand(spec, op, target))
        return lambda item: compare(op, spec.comparable_value(item.data), prepared)
    path, prepared = spec.steps, _prepare(op, target)
    return lambda item: _any_holds(op, prepared, list(values_at(item.data, path)))


def _prepare(op: str, target: Any) -> Any:
    return ValueSet(target) if op == "in" else target


TEXTUAL = frozenset({"contains", "regex"})
TEXT_BEHIND = frozenset({FieldType.TIMESTAMP, FieldType.DURATION})  # compared as numbers, written as text


def operand(spec: Field, op: str, target: Any) -> Any:
    """Return the right-hand side in the comparable form of a typed field."""
    if op == "exists":
        return target
    if op in {"in", "between"}:
        return tuple(_operand(spec, value) for value in target)
    return _operand(spec, target)


class Unmatchable:
    """A right-hand side of another kind than the field: equal to nothing, before and after nothing."""


UNMATCHABLE = Unmatchable()


def _operand(spec: Field, target: Any) -> Any:
    if target is None:
        return None
    if spec.type in NUMERIC and isinstance(target, str):
        return UNMATCHABLE
    value = comparable(spec.type, target)
    return UNMATCHABLE if value is None else value


def compare(op: str, value: Any, target: Any) -> bool:
    """Compare one value. Integers beyond 64 bits are as exact as databases store them."""
    if type(value) is int:
        value = storable(value)
    if type(target) is int:
        target = storable(target)
    return OPERATORS[op].test(value, target)


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


def values_at(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Any]:
    """Yield every value a path leads to, through arrays of objects. Arrays at its end are not expanded."""
    heads: list[Any] = [data]
    for step in path:
        heads = [
            cast("Mapping[str, Any]", element)[step]
            for head in heads
            for element in _elements_of(head)
            if isinstance(element, Mapping) and step in element
        ]
    yield from heads


def _elements_of(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _any_holds(op: str, target: Any, values: list[Any]) -> bool:
    if op == "exists":
        return any(value is not None for value in values) == target
    if op == "contains":
        return any(_contains(value, target) for value in values)
    if op in {"eq", "in"} and not any(value is not None for value in values):
        values = [None]
    return any(compare(op, element, target) for value in values for element in _elements_of(value))


def _contains(value: Any, target: Any) -> bool:
    if isinstance(value, list):
        return any(compare("eq", element, target) for element in cast("list[Any]", value))
    return isinstance(value, str) and isinstance(target, str) and target in value


# Sorting and walking.


def sort_key(value: Any) -> tuple[int, Any]:
    """Return a key that sorts values of any kind: numbers, then texts, then the rest, then absent ones."""
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


def validate_query(query: Query, collection: Collection) -> Query:
    """Return the query with its limits applied and with the fields' own names.

    Raise for unknown fields and for combinations without a meaning.
    """
    if query.limit < 0:
        raise InvalidQuery("limit cannot be negative", limit=query.limit)
    if len(query.order) > MAX_KEYS or len(query.fields) > MAX_LIST:
        raise QueryTooLarge(
            f"A query may have up to {MAX_KEYS} keys to sort by and {MAX_LIST} fields",
            limit=MAX_KEYS,
            actual=max(len(query.order), len(query.fields)),
        )
    query = use_own_names(query, collection)
    if query.aggregate:
        _check_aggregate(query, query.aggregate, collection)
    if query.near:
        _check_near(query.near, collection)
        if query.text:
            raise InvalidQuery("A search is by text or by vector, not by both", hint="Leave one of them out.")
    limit = min(query.limit or DEFAULT_LIMIT, MAX_LIMIT)
    return query if limit == query.limit else replace(query, limit=limit)


def use_own_names(query: Query, collection: Collection) -> Query:
    """Return the query with every field by its own name, however it was named; raise for unknown fields."""
    names = (*(test.field for test in conditions(query.where)), *(key.field for key in query.order), *query.fields)
    if not (query.aggregate or query.near) and all(name in collection.fields or name == ID for name in names):
        return query

    def own(name: str) -> str:
        return name if name in collection.fields else collection.field(name).name

    fields = tuple(map(own, query.fields)) if query.aggregate is None else query.fields
    near = query.near and (replace(query.near, field=own(query.near.field)) if query.near.field else query.near)
    aggregate, column = query.aggregate, own
    if aggregate:
        aggregate, column = _with_own_columns(aggregate, own)
    order = tuple(replace(key, field=column(key.field)) for key in query.order)
    where = rename_fields(query.where, own)
    return replace(query, where=where, order=order, fields=fields, near=near, aggregate=aggregate)


def _with_own_columns(aggregate: Aggregate, own: Callable[[str], str]) -> tuple[Aggregate, Callable[[str], str]]:
    """Return an aggregate of fields by their own names, and a function for the names of its columns."""
    aliases = {operation.alias for operation in aggregate.operations}
    groups = tuple(map(own, aggregate.group_by))

    def column(name: str) -> str:
        if name in aliases or name in groups:
            return name
        try:
            return own(name)
        except UnknownField:
            return name

    operations = tuple(
        replace(operation, field=own(operation.field)) if operation.field else operation
        for operation in aggregate.operations
    )
    return Aggregate(operations, groups, rename_fields(aggregate.having, column)), column


def rename_fields(where: Filter, rename: Callable[[str], str]) -> Filter:
    """Return a filter on the same fields by other names; the same object if all names are the same."""
    match where:
        case Condition(name, op, value):
            renamed = rename(name)
            return where if renamed == name else Condition(renamed, op, value)
        case Not(part):
            inner = rename_fields(part, rename)
            return where if inner is part else Not(inner)
        case And(parts) | Or(parts):
            inners = tuple(rename_fields(part, rename) for part in parts)
            return where if all(map(operator.is_, inners, parts)) else type(where)(inners)


def conditions(where: Filter) -> list[Condition]:
    """Return all conditions of a filter, from left to right."""
    if isinstance(where, Condition):
        return [where]
    results: list[Condition] = []
    stack: list[Filter] = [where]
    while stack:
        part = stack.pop()
        if isinstance(part, Condition):
            results.append(part)
        elif isinstance(part, Not):
            stack.append(part.part)
        else:
            stack.extend(reversed(part.parts))
    return results


def check_bounds(where: Filter) -> None:
    """Raise QueryTooLarge or UnsafeRegex for a filter that costs too much to test."""
    clauses = conditions(where)
    values = [value for clause in clauses for value in clause.values]
    steps = sum(compile_pattern(clause.value).programsize for clause in clauses if clause.op == "regex")
    if steps > MAX_PROGRAM:
        raise UnsafeRegex("The patterns of the filter are too complex together", limit=MAX_PROGRAM, hint="Use fewer.")
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    for part, actual, limit in (
        ("conditions", len(clauses), MAX_CONDITIONS),
        ("values", len(values), MAX_VALUES),
        ("parts", _count_nodes(where), MAX_NODES),
        ("characters in a value", longest, MAX_VALUE),
    ):
        if actual > limit:
            raise QueryTooLarge(
                f"A filter may have up to {limit} {part}", limit_type="filter", limit=limit, actual=actual
            )


def _count_nodes(where: Filter) -> int:
    match where:
        case And(parts) | Or(parts):
            return 1 + sum(_count_nodes(part) for part in parts)
        case Not(part):
            return 1 + _count_nodes(part)
        case Condition():
            return 1


def _check_near(near: NearVector, collection: Collection) -> None:
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
    names = [*aggregate.group_by, *(operation.alias for operation in aggregate.operations)]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidAggregate(f"Two columns of the result are called {repeated!r}", alias=repeated)
    for name in aggregate.group_by:
        _check_column(name, collection)
    for item in aggregate.operations:
        _check_aggregation(item, collection)
    _check_names((o.field for o in query.order), names, UnknownField)
    _check_names((c.field for c in conditions(aggregate.having)), names, InvalidAggregate)


def _check_names(used: Iterable[str], names: Sequence[str], wrong: type[InvalidQuery]) -> None:
    stray = next((name for name in used if name not in names), None)
    if stray is not None:
        hint = f"Order and having may use {', '.join(names)}."
        raise wrong(f"{stray!r} is not a column of the result", field=stray, hint=hint)


def _check_column(name: str, collection: Collection) -> Field:
    """Return a field that has one value in each item. Below a list there may be many, which make no column."""
    spec = collection.field(name)
    head, *below = spec.steps
    top = collection.fields.get(head)
    if below and top and top.type == FieldType.ARRAY:
        raise InvalidAggregate(
            f"{head} is a list: {name} has no single value", field=name, hint="Filter by it instead."
        )
    return spec


def _check_aggregation(operation: Aggregation, collection: Collection) -> None:
    if not operation.alias or len(operation.alias) > 128 or text_problem(operation.alias):
        raise InvalidAggregate(
            f"{operation.function} needs an alias of 1 to 128 characters", function=operation.function
        )
    if operation.field:
        spec = _check_column(operation.field, collection)
        numeric = NUMERIC | {FieldType.DURATION, FieldType.ANY}
        if operation.function in {"sum", "avg"} and spec.type not in numeric:
            raise InvalidAggregate(
                f"{operation.function} needs a number; {operation.field} is a {spec.type}", field=operation.field
            )
    elif operation.function != "count":
        raise InvalidAggregate(f"{operation.function} needs a field", function=operation.function)


# Cursors: opaque, tamper-evident, bound to their query.


def make_cursor(query: Query, position: Sequence[Any], secret: bytes) -> str:
    payload = msgspec.msgpack.encode(list(position))
    return base64.urlsafe_b64encode(_sign(query, payload, secret) + payload).rstrip(b"=").decode()


def read_cursor(query: Query, secret: bytes) -> list[Any]:
    """Return the position of a cursor; raise InvalidCursor if it was altered or made for another query."""
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
    return hashlib.blake2b(_query_bytes(query) + b"\0" + payload, key=secret, digest_size=16, person=b"cursor").digest()


def reverse_order(order: tuple[Order, ...]) -> tuple[Order, ...]:
    """Return the reverse of an order that ends with the id."""
    return tuple(Order(key.field, not key.descending, not key.absent_first) for key in order)


def _query_bytes(query: Query) -> bytes:
    """Return the same bytes for the same query in every process: they come from texts, numbers and tuples alone."""
    # Paging backwards continues from where paging forwards stopped: each accepts the other's cursors.
    order = reverse_order(query.order) if query.order[-1:] == (REVERSE_ID,) else query.order
    keys = [(key.field, key.descending, key.absent_first) for key in order]
    parts = query.collection, query.text, query.near, _filter_tuple(query.where), keys, query.fields, query.aggregate
    return repr(parts).encode("utf-8", "surrogatepass")


def _filter_tuple(where: Filter) -> tuple[Any, ...]:
    """Return a filter as tuples, which are faster to serialise."""
    match where:
        case Condition(name, op, value):
            return name, op, value
        case Not(part):
            return "not", _filter_tuple(part)
        case And(parts):
            return "and", *map(_filter_tuple, parts)
        case Or(parts):
            return "or", *map(_filter_tuple, parts)


# Projection.


def project(item: Item, names: Sequence[str], collection: Collection) -> Item:
    """Return the item with only the named fields, paths nested as they were; without names, the item itself."""
    if not names:
        return item
    projected: dict[str, Any] = {}
    for name in names:
        spec = collection.field(name)
        if spec.path:
            value = spec.value(item.data)
            projected.update({} if value is None else {spec.name: value})
        elif spec.name != ID:
            _copy(item.data, projected, spec.steps)
    return replace(item, data=projected)


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: tuple[str, ...]) -> None:
    head, *rest = path
    if head not in source:
        return
    value = source[head]
    if not rest:
        target[head] = value
    elif isinstance(value, Mapping):
        nested = target.setdefault(head, {})
        if isinstance(nested, dict):
            _copy(cast("Mapping[str, Any]", value), cast("dict[str, Any]", nested), tuple(rest))
    elif isinstance(value, list):
        _copy_elements(cast("list[Any]", value), target, head, tuple(rest))


def _copy_elements(values: list[Any], target: dict[str, Any], head: str, rest: tuple[str, ...]) -> None:
    nested = cast("list[Any]", target.setdefault(head, [{} for _ in values]))
    if len(nested) != len(values):
        return
    for value, projected in zip(values, nested, strict=True):
        if isinstance(value, Mapping) and isinstance(projected, dict):
            _copy(cast("Mapping[str, Any]", value), cast("dict[str, Any]", projected), rest)
