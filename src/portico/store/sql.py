"""Turns a Query into SQL. Knows columns and parameters; never opens a connection.

Names of collections and fields never enter SQL as they are: tables and columns are numbered, the keys of paths are
plain or encoded, values are bound.
Every atom is two-valued, so that NOT means what it says for missing values too.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from decimal import Decimal
from math import isfinite
from typing import Any, Protocol, cast

from portico.catalog import ID, NUMERIC, Collection, Field, FieldType, storable
from portico.errors import InvalidAggregate
from portico.items import Item
from portico.query import (
    NEGATIONS,
    TEXT_BEHIND,
    TEXTUAL,
    Aggregate,
    Aggregation,
    And,
    Condition,
    Filter,
    Not,
    Or,
    Order,
    Query,
    Unmatchable,
    make_cursor,
    operand,
)
from portico.store.tables import Table, position_of

FALSE, TRUE = "(1=0)", "(1=1)"
ENDS = ("gte", "lte")  # of a between
PLAIN_KEY = re.compile(r"[\w@:-]{1,128}\Z")  # a key of a path that can stand in SQL as it is
COMPARISONS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
MAX_GROUPS = 100_000


class SqlDialect(Protocol):
    """What differs between databases."""

    def bind(self, params: list[Any], value: Any) -> str:
        """Add a value to the parameters and name it."""
        ...

    def regex(self, text: str, pattern: str) -> str: ...

    def contains(self, text: str, part: str) -> str: ...

    def one_of(self, value: str, statement: "Statement", options: Sequence[Any]) -> str:
        """True if a value, which is not NULL, is one of the options; all are of one kind."""
        ...

    def reaches(self, path: tuple[str, ...], build: "Callable[[Element], str]") -> str:
        """True if the test holds for one of the values that a path leads to."""
        ...

    def exists(self, path: tuple[str, ...]) -> str:
        """True if a path leads to a value that is not null; an empty array is one."""
        ...

    def json_rank(self, path: tuple[str, ...]) -> str:
        """0 for a number, 1 for a text, 2 for a boolean, 3 for anything else."""
        ...

    def json_scalars(self, path: tuple[str, ...]) -> list[str]:
        """What to sort by among values of one rank."""
        ...

    def json_number(self, path: tuple[str, ...]) -> str: ...

    def json_extreme(self, function: str, path: tuple[str, ...]) -> str:
        """The MIN or MAX of the numbers or, where there are none, of the texts; as `json_key` gives values."""
        ...

    def json_key(self, path: tuple[str, ...]) -> str:
        """Equal for equal values, and JSON or a number when read; NULL where the value is missing or null."""
        ...


@dataclass(frozen=True, slots=True)
class Element:
    """SQL for one value at a path: as each kind, NULL if it is of another, and whether it came out of an array."""

    number: str
    text: str
    boolean: str
    is_null: str
    in_array: str

    def like(self, operand: Any) -> str | None:
        """Return the form in which the value compares with this operand."""
        match operand:
            case bool():
                return self.boolean
            case int() | float():
                return self.number
            case str():
                return self.text
            case _:
                return None


@dataclass(slots=True)
class Statement:
    """SQL text under construction, with its bound values."""

    dialect: SqlDialect
    table: Table
    float_sums: bool = False  # for a database that refuses sums of whole numbers beyond 64 bits
    params: list[Any] = dataclass_field(default_factory=list[Any])

    @property
    def collection(self) -> Collection:
        return self.table.collection

    def bind(self, value: Any) -> str:
        return self.dialect.bind(self.params, storable(value) if type(value) is int else value)

    # Whole statements

    def select(self, columns: str, where: Filter) -> str:
        return f"SELECT {columns} FROM {self.table.name} WHERE {self.where(where)}"

    def select_page(self, query: Query, where: Filter, secret: bytes) -> str:
        """Select the items of a page and one more, each with its position among the sort terms as k0, k1, …"""
        terms = self.order(query.order)
        keys = ", ".join(f"{term.sql} AS k{i}" for i, term in enumerate(terms))
        rows = self.select(f"id, data, revision, digest, {keys}", where)
        if query.cursor:
            position = position_of(query, self.kinds(query.order), secret)
            rows = f"{rows} AND {self.after(terms, position)}"
        order = ", ".join(str(term) for term in terms if not term.implied)
        return f"{rows} ORDER BY {order} LIMIT {query.limit + 1}"

    def select_groups(self, aggregate: Aggregate, where: Filter) -> str:
        """Select the keys of every group and what is computed of it, as c0, c1, …; one group more than allowed."""
        keys = [self._group_key(self.collection.field(name)) for name in aggregate.group_by]
        values = [self._aggregation(aggregation) for aggregation in aggregate.operations]
        columns = ", ".join(f"{value} AS c{i}" for i, value in enumerate([*keys, *values]))
        grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"{self.select(columns, where)}{grouping} LIMIT {MAX_GROUPS + 1}"

    # Filters

    def where(self, where: Filter) -> str:
        match where:
            case And(parts):
                return _join(" AND ", [self.where(part) for part in parts], TRUE)
            case Or(parts):
                return _join(" OR ", [self.where(part) for part in parts], FALSE)
            case Not(part):
                return f"(NOT {self.where(part)})"
            case Condition(name, op, value):
                return self._condition(self.collection.field(name), op, value)

    def _condition(self, field: Field, op: str, value: Any) -> str:
        if op in NEGATIONS:
            return f"(NOT {self._condition(field, NEGATIONS[op], value)})"
        column = self._column(field)
        if column is None or field.type == FieldType.STRING:
            op, value = _without_nul(op, value)
        if column is None or (op in TEXTUAL and field.type in TEXT_BEHIND):
            return self._test_path(field.steps, op, value)
        return self._test_column(column, field.type, op, operand(field, op, value))

    def _column(self, field: Field) -> str | None:
        return "id" if field.name == ID else self.table.columns.get(field.name)

    def _test_column(self, column: str, kind: FieldType, op: str, value: Any) -> str:
        match op:
            case "exists":
                return f"({column} IS NOT NULL)" if value else f"({column} IS NULL)"
            case "eq":
                return self._equals(column, value)
            case "in":
                absent = f"({column} IS NULL)" if None in value else FALSE
                options = [option for option in value if option is not None and not isinstance(option, Unmatchable)]
                present = (
                    f"({column} IS NOT NULL AND {self.dialect.one_of(column, self, options)})" if options else FALSE
                )
                return f"({absent} OR {present})"
            case "between":
                ends = [self._test_column(column, kind, *_without_nul(*end)) for end in zip(ENDS, value, strict=True)]
                return _join(" AND ", ends, TRUE)
            case "contains" | "regex":
                return self._test_text(op, f"({column} IS NOT NULL)", column, value, kind == FieldType.STRING)
            case _:
                if value is None or isinstance(value, Unmatchable):
                    return FALSE
                return f"({column} IS NOT NULL AND {column} {COMPARISONS[op]} {self.bind(value)})"

    def _equals(self, column: str, value: Any) -> str:
        if value is None:
            return f"({column} IS NULL)"
        if isinstance(value, Unmatchable):
            return FALSE
        return f"({column} IS NOT NULL AND {column} = {self.bind(value)})"

    def _test_text(self, op: str, guard: str, text: str, value: Any, is_text: bool = True) -> str:
        if not is_text or not isinstance(value, str):
            return FALSE
        bound = self.bind(value)
        test = self.dialect.contains(text, bound) if op == "contains" else self.dialect.regex(text, bound)
        return f"({guard} AND {test})"

    def _test_path(self, path: tuple[str, ...], op: str, value: Any) -> str:
        if op == "exists":
            return self.dialect.exists(path) if value else f"(NOT {self.dialect.exists(path)})"
        if op == "eq" and value is None:
            return f"(NOT {self.dialect.exists(path)} OR {self.dialect.reaches(path, lambda e: e.is_null)})"
        if op == "in" and None in value:
            rest = tuple(option for option in value if option is not None)
            return f"({self._test_path(path, 'eq', None)} OR {self._test_path(path, 'in', rest)})"
        return self.dialect.reaches(path, lambda e: self._test_element(e, op, value))

    def _test_element(self, element: Element, op: str, value: Any) -> str:
        match op:
            case "eq":
                return self._compare_element(element, "=", value)
            case "in":
                return self._test_membership(element, value)
            case "between":
                ends = [self._test_element(element, *_without_nul(*end)) for end in zip(ENDS, value, strict=True)]
                return _join(" AND ", ends, TRUE)
            case "contains":
                member = f"({element.in_array} AND {self._compare_element(element, '=', value)})"
                guard = f"(NOT {element.in_array} AND {element.text} IS NOT NULL)"
                return f"({member} OR {self._test_text('contains', guard, element.text, value)})"
            case "regex":
                return self._test_text("regex", f"({element.text} IS NOT NULL)", element.text, value)
            case _:
                return self._compare_element(element, COMPARISONS[op], value)

    def _test_membership(self, element: Element, options: Sequence[Any]) -> str:
        groups: dict[str, list[Any]] = {}
        for option in options:
            value = element.like(option)
            if value is not None:
                groups.setdefault(value, []).append(option)
        tests = [
            f"({value} IS NOT NULL AND {self.dialect.one_of(value, self, group)})" for value, group in groups.items()
        ]
        return _join(" OR ", tests, FALSE)

    def _compare_element(self, element: Element, sign: str, operand: Any) -> str:
        value = element.like(operand)
        if value is None:
            return FALSE
        return f"({value} IS NOT NULL AND {value} {sign} {self.bind(operand)})"

    # Orders

    def order(self, order: Sequence[Order]) -> list["SortTerm"]:
        """Return the terms to sort by, down to the id, so that every item has one position."""
        terms = [term for key in order for term in self._terms(key)]
        return terms if order and order[-1].field == ID else [*terms, SortTerm("id", False)]

    def kinds(self, order: Sequence[Order]) -> str:
        """Return how the sorted fields are stored: a position among them means nothing once that has changed."""
        fields = (self.collection.field(key.field) for key in order)
        return " ".join("number" if field.type in NUMERIC else field.type for field in fields)

    def cursor(self, query: Query, last: Item, secret: bytes) -> str:
        """Return the cursor of a page that ends with this item, in an order of typed fields."""
        return make_cursor(query, (self.kinds(query.order), *self._position(query.order, last)), secret)

    def _position(self, order: Sequence[Order], item: Item) -> list[Any]:
        """Return the position of an item among the terms of an order."""
        position: list[Any] = []
        for key in order:
            field = self.collection.field(key.field)
            value = item.id if field.name == ID else field.comparable_value(item.data)
            position += [value] if field.name == ID else [value is None, value]
        return position if order and order[-1].field == ID else [*position, item.id]

    def _terms(self, key: Order) -> list["SortTerm"]:
        field = self.collection.field(key.field)
        column = self._column(field)
        if column is not None:
            if field.name == ID:
                return [SortTerm(column, key.descending)]
            absent = SortTerm(f"({column} IS NULL)", key.absent_first, implied=True)
            return [absent, SortTerm(column, key.descending, absent_first=key.absent_first)]
        path = field.steps
        rank = self.dialect.json_rank(path)
        return [
            SortTerm(f"({rank} = 3)", key.absent_first),
            SortTerm(rank, key.descending),
            *(SortTerm(scalar, key.descending) for scalar in self.dialect.json_scalars(path)),
        ]

    def after(self, terms: Sequence["SortTerm"], position: Sequence[Any]) -> str:
        """Return the condition for rows that sort after a position."""
        behind: list[str] = []
        equal: list[str] = []
        for term, value in zip(terms, position, strict=True):
            if value is None:
                equal.append(f"({term.sql} IS NULL)")
                continue
            bound = self.bind(value)
            behind.append(_join(" AND ", [*equal, f"({term.sql} {'<' if term.descending else '>'} {bound})"], TRUE))
            equal.append(f"({term.sql} = {bound})")
        return _join(" OR ", behind, FALSE)

    # Aggregates

    def _group_key(self, field: Field) -> str:
        return self._column(field) or self.dialect.json_key(field.steps)

    def _aggregation(self, aggregation: Aggregation) -> str:
        if not aggregation.field:
            return "COUNT(*)"
        field = self.collection.field(aggregation.field)
        column = self._column(field)
        path = field.steps
        match aggregation.function:
            case "count":
                return f"COUNT({column or self.dialect.json_key(path)})"
            case "count_distinct":
                return f"COUNT(DISTINCT {column or self.dialect.json_key(path)})"
            case "min" | "max" if column and field.type == FieldType.BOOLEAN:
                return f"{aggregation.function.upper()}(CASE WHEN {column} THEN 1 WHEN NOT {column} THEN 0 END)"
            case "min" | "max" if not column:
                return self.dialect.json_extreme(aggregation.function.upper(), path)
            case "sum" if self.float_sums:
                return f"SUM(1.0 * {column or self.dialect.json_number(path)})"
            case "sum" | "avg" | "min" | "max":
                return f"{aggregation.function.upper()}({column or self.dialect.json_number(path)})"


@dataclass(frozen=True, slots=True)
class SortTerm:
    sql: str
    descending: bool
    implied: bool = False  # the term after it has the same effect in an ORDER BY, in a form that an index serves
    absent_first: bool = False

    def __str__(self) -> str:
        return f"{self.sql}{' DESC' if self.descending else ''} NULLS {'FIRST' if self.absent_first else 'LAST'}"


def _join(word: str, parts: Sequence[str], empty: str) -> str:
    if not parts:
        return empty
    return parts[0] if len(parts) == 1 else f"({word.join(parts)})"


def _without_nul(op: str, value: Any) -> tuple[str, Any]:
    """Return the same test without a NUL in its text: no stored text has one, and not every database takes one."""
    if op == "in":
        return op, tuple(option for option in value if not _has_nul(option))
    if op == "regex" or not _has_nul(value):
        return op, value
    if op in COMPARISONS:
        return "lte" if op in {"lt", "lte"} else "gt", value.partition("\0")[0]
    return "in", ()


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


def too_many_groups() -> InvalidAggregate:
    return InvalidAggregate(f"More than {MAX_GROUPS} groups", limit=MAX_GROUPS, hint="Group by fewer fields.")


def name_values(
    aggregate: Aggregate, collection: Collection, values: Sequence[Any], decode: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return a grouped row by the names of its columns, values in the form people write them."""
    row: dict[str, Any] = {}
    for name, value in zip(aggregate.group_by, values, strict=False):
        field = collection.field(name)
        row[name] = field.format_value(normalize(value)) if field.is_typed else normalize(decode(value))
    for aggregation, value in zip(aggregate.operations, values[len(aggregate.group_by) :], strict=True):
        is_json = aggregation.function in {"min", "max"} and not collection.field(aggregation.field).is_typed
        row[aggregation.alias] = _format_aggregate(aggregation, collection, decode(value) if is_json else value)
    return row


def normalize(value: Any) -> Any:
    """Return one form for equal numbers: 1.0 becomes 1, whichever of them a database chose for a group."""
    match value:
        case float() if value.is_integer():
            return storable(int(Decimal(repr(value))))
        case bool() | float():
            return value
        case int():
            return storable(value)
        case list():
            return [normalize(element) for element in cast("list[Any]", value)]
        case dict():
            return {key: normalize(element) for key, element in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _format_aggregate(aggregation: Aggregation, collection: Collection, value: Any) -> Any:
    if value is None or not aggregation.field or aggregation.function in {"count", "count_distinct"}:
        return value
    if isinstance(value, float) and not isfinite(value):
        raise InvalidAggregate(
            f"The {aggregation.function} of {aggregation.field} is too large", field=aggregation.field
        )
    field = collection.field(aggregation.field)
    if aggregation.function in {"sum", "avg"}:
        # How a sum is rounded depends on the order of its parts; fifteen digits do not.
        value = float(f"{value:.15g}") if isinstance(value, float) or aggregation.function == "avg" else value
    value = value if aggregation.function == "avg" else normalize(value)
    return (
        field.format_value(value)
        if aggregation.function in {"min", "max"} or field.type == FieldType.DURATION
        else value
    )
