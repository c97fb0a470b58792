"""Turns a Query into SQL. Knows columns and parameters; never opens a connection.

Names of collections and fields never enter SQL: tables and columns are numbered, paths are checked, values are bound.
Every atom is two-valued, so that NOT means what it says for missing values too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any, Protocol, cast

from portico.catalog import ID, NUMERIC, Collection, Field, FieldType, segments, storable
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

FALSE, TRUE = "(1=0)", "(1=1)"
ENDS = ("gte", "lte")  # of a between
COMPARISONS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
MAX_GROUPS = 100_000


class Dialect(Protocol):
    """What differs between databases."""

    def bound(self, params: list[Any], value: Any) -> str:
        """Add a value to the parameters and name it."""
        ...

    def regex(self, text: str, pattern: str) -> str: ...

    def contains(self, text: str, part: str) -> str: ...

    def one_of(self, value: str, statement: "Statement", wanted: Sequence[Any]) -> str:
        """True if a value, which is not NULL, is one of these; all are of one kind."""
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
    """SQL for one reached value: as each kind, NULL if it is of another, and whether it came out of an array."""

    number: str
    text: str
    boolean: str
    is_null: str
    in_array: str

    def like(self, wanted: Any) -> str | None:
        """The form in which the value compares with this one."""
        match wanted:
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

    dialect: Dialect
    collection: Collection
    columns: Mapping[str, str]
    float_sums: bool = False  # for a database that refuses sums of whole numbers beyond 64 bits
    params: list[Any] = field(default_factory=list[Any])

    def bind(self, value: Any) -> str:
        return self.dialect.bound(self.params, storable(value) if type(value) is int else value)

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

    def _condition(self, known: Field, op: str, wanted: Any) -> str:
        if op in NEGATIONS:
            return f"(NOT {self._condition(known, NEGATIONS[op], wanted)})"
        column = self._column(known)
        if column is None or known.type == FieldType.STRING:
            op, wanted = _without_nul(op, wanted)
        if column is None or (op in TEXTUAL and known.type in TEXT_BEHIND):
            return self._reached(segments(known.where), op, wanted)
        return self._column_test(column, known.type, op, operand(known, op, wanted))

    def _column(self, known: Field) -> str | None:
        return "id" if known.name == ID else self.columns.get(known.name)

    def _column_test(self, column: str, kind: FieldType, op: str, wanted: Any) -> str:
        match op:
            case "exists":
                return f"({column} IS NOT NULL)" if wanted else f"({column} IS NULL)"
            case "eq":
                return self._equals(column, wanted)
            case "in":
                absent = f"({column} IS NULL)" if None in wanted else FALSE
                known = [each for each in wanted if each is not None and not isinstance(each, Unmatchable)]
                found = f"({column} IS NOT NULL AND {self.dialect.one_of(column, self, known)})" if known else FALSE
                return f"({absent} OR {found})"
            case "between":
                ends = [self._column_test(column, kind, *_without_nul(*end)) for end in zip(ENDS, wanted, strict=True)]
                return _join(" AND ", ends, TRUE)
            case "contains" | "regex":
                return self._text_test(op, f"({column} IS NOT NULL)", column, wanted, kind == FieldType.STRING)
            case _:
                if wanted is None or isinstance(wanted, Unmatchable):
                    return FALSE
                return f"({column} IS NOT NULL AND {column} {COMPARISONS[op]} {self.bind(wanted)})"

    def _equals(self, column: str, wanted: Any) -> str:
        if wanted is None:
            return f"({column} IS NULL)"
        if isinstance(wanted, Unmatchable):
            return FALSE
        return f"({column} IS NOT NULL AND {column} = {self.bind(wanted)})"

    def _text_test(self, op: str, guard: str, text: str, wanted: Any, is_text: bool = True) -> str:
        if not is_text or not isinstance(wanted, str):
            return FALSE
        bound = self.bind(wanted)
        test = self.dialect.contains(text, bound) if op == "contains" else self.dialect.regex(text, bound)
        return f"({guard} AND {test})"

    def _reached(self, path: tuple[str, ...], op: str, wanted: Any) -> str:
        if op == "exists":
            return self.dialect.exists(path) if wanted else f"(NOT {self.dialect.exists(path)})"
        if op == "eq" and wanted is None:
            return f"(NOT {self.dialect.exists(path)} OR {self.dialect.reaches(path, lambda e: e.is_null)})"
        if op == "in" and None in wanted:
            rest = tuple(each for each in wanted if each is not None)
            return f"({self._reached(path, 'eq', None)} OR {self._reached(path, 'in', rest)})"
        return self.dialect.reaches(path, lambda e: self._element_test(e, op, wanted))

    def _element_test(self, element: Element, op: str, wanted: Any) -> str:
        match op:
            case "eq":
                return self._element_compares(element, "=", wanted)
            case "in":
                return self._element_in(element, wanted)
            case "between":
                ends = [self._element_test(element, *_without_nul(*end)) for end in zip(ENDS, wanted, strict=True)]
                return _join(" AND ", ends, TRUE)
            case "contains":
                member = f"({element.in_array} AND {self._element_compares(element, '=', wanted)})"
                guard = f"(NOT {element.in_array} AND {element.text} IS NOT NULL)"
                return f"({member} OR {self._text_test('contains', guard, element.text, wanted)})"
            case "regex":
                return self._text_test("regex", f"({element.text} IS NOT NULL)", element.text, wanted)
            case _:
                return self._element_compares(element, COMPARISONS[op], wanted)

    def _element_in(self, element: Element, wanted: Sequence[Any]) -> str:
        groups: dict[str, list[Any]] = {}
        for each in wanted:
            value = element.like(each)
            if value is not None:
                groups.setdefault(value, []).append(each)
        tests = [f"({value} IS NOT NULL AND {self.dialect.one_of(value, self, few)})" for value, few in groups.items()]
        return _join(" OR ", tests, FALSE)

    def _element_compares(self, element: Element, sign: str, wanted: Any) -> str:
        value = element.like(wanted)
        if value is None:
            return FALSE
        return f"({value} IS NOT NULL AND {value} {sign} {self.bind(wanted)})"

    # Orders

    def order(self, order: Sequence[Order]) -> list["SortTerm"]:
        """The terms to sort by, down to the id, so that every item has one place."""
        terms = [term for key in order for term in self._terms(key)]
        return terms if order and order[-1].field == ID else [*terms, SortTerm("id", False)]

    def kinds(self, order: Sequence[Order]) -> str:
        """How the sorted fields are stored: a position among them means nothing once that has changed."""
        known = (self.collection.field(key.field) for key in order)
        return " ".join("number" if f.type in NUMERIC else f.type for f in known)

    def cursor(self, query: Query, last: Item, secret: bytes) -> str:
        """The cursor of a page that ends with this item, in an order of typed fields."""
        return make_cursor(query, (self.kinds(query.order), *self._position(query.order, last)), secret)

    def _position(self, order: Sequence[Order], item: Item) -> list[Any]:
        """Where an item stands among the terms of an order."""
        found: list[Any] = []
        for key in order:
            known = self.collection.field(key.field)
            value = item.id if known.name == ID else known.typed_value(item.data)
            found += [value] if known.name == ID else [value is None, value]
        return found if order and order[-1].field == ID else [*found, item.id]

    def _terms(self, key: Order) -> list["SortTerm"]:
        known = self.collection.field(key.field)
        column = self._column(known)
        if column is not None:
            if known.name == ID:
                return [SortTerm(column, key.descending)]
            absent = SortTerm(f"({column} IS NULL)", key.absent_first, implied=True)
            return [absent, SortTerm(column, key.descending, absent_first=key.absent_first)]
        path = segments(known.where)
        rank = self.dialect.json_rank(path)
        return [
            SortTerm(f"({rank} = 3)", key.absent_first),
            SortTerm(rank, key.descending),
            *(SortTerm(each, key.descending) for each in self.dialect.json_scalars(path)),
        ]

    def after(self, terms: Sequence["SortTerm"], position: Sequence[Any]) -> str:
        """Rows that sort behind a position."""
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

    def group(self, aggregate: Aggregate) -> tuple[list[str], list[str]]:
        """The expressions to group by, and those to compute."""
        keys = [self._group_key(self.collection.field(name)) for name in aggregate.group_by]
        return keys, [self._aggregation(each) for each in aggregate.operations]

    def _group_key(self, known: Field) -> str:
        return self._column(known) or self.dialect.json_key(segments(known.where))

    def _aggregation(self, each: Aggregation) -> str:
        if not each.field:
            return "COUNT(*)"
        known = self.collection.field(each.field)
        column = self._column(known)
        path = segments(known.where)
        match each.function:
            case "count":
                return f"COUNT({column or self.dialect.json_key(path)})"
            case "count_distinct":
                return f"COUNT(DISTINCT {column or self.dialect.json_key(path)})"
            case "min" | "max" if column and known.type == FieldType.BOOLEAN:
                return f"{each.function.upper()}(CASE WHEN {column} THEN 1 WHEN NOT {column} THEN 0 END)"
            case "min" | "max" if not column:
                return self.dialect.json_extreme(each.function.upper(), path)
            case "sum" if self.float_sums:
                return f"SUM(1.0 * {column or self.dialect.json_number(path)})"
            case "sum" | "avg" | "min" | "max":
                return f"{each.function.upper()}({column or self.dialect.json_number(path)})"


@dataclass(frozen=True, slots=True)
class SortTerm:
    sql: str
    descending: bool
    implied: bool = False  # the term behind it says the same in an ORDER BY, in words that an index fits
    absent_first: bool = False

    def __str__(self) -> str:
        return f"{self.sql}{' DESC' if self.descending else ''} NULLS {'FIRST' if self.absent_first else 'LAST'}"


def ordering(terms: Sequence[SortTerm]) -> str:
    return ", ".join(str(term) for term in terms if not term.implied)


def _join(word: str, parts: Sequence[str], empty: str) -> str:
    if not parts:
        return empty
    return parts[0] if len(parts) == 1 else f"({word.join(parts)})"


def _without_nul(op: str, wanted: Any) -> tuple[str, Any]:
    """The same test without a NUL in its text: no stored text has one, and not every database takes one."""
    if op == "in":
        return op, tuple(each for each in wanted if not _has_nul(each))
    if op == "regex" or not _has_nul(wanted):
        return op, wanted
    if op in COMPARISONS:
        return "lte" if op in {"lt", "lte"} else "gt", wanted.partition("\0")[0]
    return "in", ()


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


def too_many_groups() -> InvalidAggregate:
    return InvalidAggregate(f"More than {MAX_GROUPS} groups", limit=MAX_GROUPS, hint="Group by fewer fields.")


def shown_row(
    aggregate: Aggregate, collection: Collection, values: Sequence[Any], decode: Callable[[Any], Any]
) -> dict[str, Any]:
    """A grouped row under its names, values in the form people write them."""
    row: dict[str, Any] = {}
    for name, value in zip(aggregate.group_by, values, strict=False):
        known = collection.field(name)
        row[name] = known.shown(settled(value)) if known.is_typed else settled(decode(value))
    for each, value in zip(aggregate.operations, values[len(aggregate.group_by) :], strict=True):
        is_json = each.function in {"min", "max"} and not collection.field(each.field).is_typed
        row[each.alias] = _shown_aggregate(each, collection, decode(value) if is_json else value)
    return row


def settled(value: Any) -> Any:
    """One form for equal numbers: 1.0 is shown as 1, whichever of them a database kept for a group."""
    match value:
        case float() if value.is_integer():
            return storable(int(Decimal(repr(value))))
        case bool() | float():
            return value
        case int():
            return storable(value)
        case list():
            return [settled(each) for each in cast("list[Any]", value)]
        case dict():
            return {key: settled(each) for key, each in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _shown_aggregate(each: Aggregation, collection: Collection, value: Any) -> Any:
    if value is None or not each.field or each.function in {"count", "count_distinct"}:
        return value
    if isinstance(value, float) and not isfinite(value):
        raise InvalidAggregate(f"The {each.function} of {each.field} is too large", field=each.field)
    known = collection.field(each.field)
    if each.function in {"sum", "avg"}:
        # How a sum is rounded depends on the order of its parts; fifteen digits do not.
        value = float(f"{value:.15g}") if isinstance(value, float) or each.function == "avg" else value
    value = value if each.function == "avg" else settled(value)
    return known.shown(value) if each.function in {"min", "max"} or known.type == FieldType.DURATION else value
