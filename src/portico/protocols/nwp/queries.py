"""Turns QueryFrames into queries, and pages into records. Does no I/O."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite
from typing import Any, Final, cast

from portico.access.limits import NestingTooDeep, walk_json
from portico.catalog import ID, Collection
from portico.errors import InvalidAggregate, InvalidQuery, QueryTooLarge, UnknownField, UnsafeRegex
from portico.field_names import FieldNames
from portico.items import Item
from portico.protocols.nwp.errors import AggregateUnsupported, VectorUnsupported
from portico.protocols.nwp.frames import OrderKey, QueryFrame, VectorSearch
from portico.query import (
    DEFAULT_LIMIT,
    FUNCTIONS,
    MATCH_ALL,
    MAX_KEYS,
    MAX_LIMIT,
    MAX_LIST,
    MAX_VALUES,
    Aggregate,
    AggregateFunction,
    Aggregation,
    Filter,
    Metric,
    NearVector,
    Order,
    Page,
    Query,
    conditions,
    parse_filter,
    rename_fields,
)

AGGREGATE_REF: Final = "nps:system:aggregate:result"
SCORE: Final = "_score"
DEFAULT_TOP: Final = 10  # records of a vector search without `top_k`
MAX_PARTS: Final = 2 * MAX_VALUES  # of a filter or an aggregate; a valid one has fewer
MAX_LEVELS: Final = 64  # of nested objects and lists; a valid filter has far fewer
OWN_VECTORS: Final = ("", "embedding", "_embedding")  # names for the site's own embeddings of its items

_NAME = re.compile(r"[A-Za-z0-9_.]{1,128}\Z")
_METRICS: Final[Mapping[str, Metric]] = {
    "cosine": "cosine",
    "euclidean": "euclidean",
    "dot_product": "dot_product",
}


class QueryParser:
    """Parses the frames for one collection."""

    def __init__(
        self, collection: Collection, vectors: Sequence[str], *, may_aggregate: bool, may_compare: bool, lenient: bool
    ) -> None:
        self._collection = collection
        self._vectors = vectors  # its vector fields; "" for the site's own embeddings
        self._may_aggregate = may_aggregate
        self._may_compare = may_compare
        self._lenient = lenient

    def parse(self, frame: QueryFrame) -> Query:
        """Return the query in a frame, without its cursor."""
        # Checked first, since validating a hundred thousand names would block other requests.
        if len(frame.order or ()) > MAX_KEYS or len(frame.fields or ()) > MAX_LIST:
            raise QueryTooLarge(f"A query may have at most {MAX_KEYS} sort keys and {MAX_LIST} fields", limit=MAX_KEYS)
        aggregate = self._aggregate(frame.aggregate)
        near = self._near(frame.vector_search)
        limit = min(frame.limit or DEFAULT_LIMIT, MAX_LIMIT)
        return Query(
            self._collection.name,
            near=near,
            where=self.where(frame.filter),
            order=self._order(frame.order or (), aggregate),
            fields=tuple(dict.fromkeys(self._own_name(name) for name in frame.fields or ())),
            aggregate=aggregate,
            limit=min(limit, near.top) if near else limit,
        )

    def where(self, raw: Any) -> Filter:
        """Parse a filter, and check every name and pattern in it."""
        return rename_fields(self._filter(raw), self._own_name)

    def _filter(self, raw: Any) -> Filter:
        if raw is None:
            return MATCH_ALL
        check_plain(raw)
        try:
            where = parse_filter(raw, bare_values=self._lenient)
        except UnknownField as error:  # for a name that no field could have
            raise InvalidQuery(error.message, hint=error.hint, **error.details) from error
        except InvalidQuery as error:
            pattern = error.details.get("pattern")
            if isinstance(pattern, str) and (
                _REFERENCE.search(pattern.replace("\\\\", "")) or nests_quantifiers(pattern)
            ):
                raise UnsafeRegex(
                    f"The pattern {pattern!r} has a backreference or nested quantifiers", pattern=pattern
                ) from error
            raise
        for condition in conditions(where):
            if condition.op == "regex" and nests_quantifiers(condition.value):
                raise UnsafeRegex(f"The pattern {condition.value!r} has nested quantifiers", pattern=condition.value)
        return where

    def _own_name(self, name: str) -> str:
        """Return the own name of a field. A name that the schema publishes comes before all others."""
        try:
            return self._collection.field(self._collection.names.own_path(name)).name
        except UnknownField:
            if _NAME.match(name):
                return name  # of a field that another process may have added
        raise InvalidQuery(
            f"{name[:128]!r} is not a valid field name", field=name[:128], hint="Use letters, digits, _ and dots."
        )

    def _order(self, keys: Sequence[OrderKey], aggregate: Aggregate | None) -> tuple[Order, ...]:
        for key in keys:
            if key.direction not in {"ASC", "DESC"}:
                direction = key.direction[:20]
                raise InvalidQuery(
                    f"`dir` must be ASC or DESC, not {direction!r}", field=key.field[:128], hint="Use ASC or DESC."
                )
        columns = {operation.alias for operation in aggregate.operations} if aggregate else set[str]()
        names = (key.field if key.field in columns else self._own_name(key.field) for key in keys)
        return tuple(Order(name, key.direction == "DESC") for name, key in zip(names, keys, strict=True))

    def _near(self, search: VectorSearch | None) -> NearVector | None:
        if search is None:
            return None
        if not self._may_compare or not self._vectors:
            raise VectorUnsupported("This node does not support vector search")
        name, top = search.metric or "cosine", DEFAULT_TOP if search.top_k is None else search.top_k
        metric = _METRICS.get(name)
        if metric is None:
            raise InvalidQuery(f"`metric` must not be {name[:40]!r}", hint=f"Use one of {', '.join(_METRICS)}.")
        field = self._own_name(search.field) if search.field else ""
        if field in OWN_VECTORS and field not in self._collection.fields:
            field = ""
        if not field and "" not in self._vectors:
            raise VectorUnsupported("This node has no embeddings of its items", hint=f"Use {', '.join(self._vectors)}.")
        if top < 1:
            raise InvalidQuery(f"`top_k` must be at least 1, not {top}", top_k=top)
        if search.threshold is not None and not isfinite(search.threshold):
            raise InvalidQuery("`threshold` must be a finite number")
        return NearVector(tuple(search.vector), field, min(top, MAX_LIMIT), search.threshold, metric)

    def _aggregate(self, raw: Any) -> Aggregate | None:
        if raw is None:
            return None
        if not self._may_aggregate:
            raise AggregateUnsupported("This node does not support aggregates")
        check_plain(raw)
        match raw:
            case {"operations": [_, *_] as operations}:
                aggregations = tuple(self._aggregation(operation) for operation in cast("list[Any]", operations))
            case _:
                raise InvalidAggregate('`aggregate` must be an object with a list of "operations"')
        members = cast("Mapping[str, Any]", raw)
        groups: Any = members.get("group_by")
        groups = [] if groups is None else groups
        if not isinstance(groups, list) or not all(isinstance(name, str) for name in cast("list[Any]", groups)):
            raise InvalidAggregate("`group_by` must be a list of fields")
        names = tuple(self._own_name(name) for name in cast("list[str]", groups))
        columns = {operation.alias for operation in aggregations}
        repeated = next((alias for name in names if (alias := self._collection.names.alias_path(name)) in columns), "")
        if repeated:
            raise InvalidAggregate(f"Two columns of the result are called {repeated!r}", alias=repeated)
        having = rename_fields(
            self._filter(members.get("having")), lambda name: name if name in columns else self._own_name(name)
        )
        return Aggregate(aggregations, names, having)

    def _aggregation(self, raw: Any) -> Aggregation:
        operation = _aggregation(raw)
        return replace(operation, field=self._own_name(operation.field)) if operation.field else operation


def _aggregation(raw: Any) -> Aggregation:
    match raw:
        case {"func": str() as name, "alias": str() as alias}:
            field = cast("Mapping[str, Any]", raw).get("field")
        case _:
            raise InvalidAggregate("An operation of an aggregate must have a `func` and an `alias`")
    if not isinstance(field, str | None):
        raise InvalidAggregate("The `field` of an operation must be a string", alias=alias[:128])
    function: AggregateFunction | None = next(
        (known_function for known_function in FUNCTIONS if known_function == name.lower()), None
    )
    if function is None:
        raise InvalidAggregate(
            f"Unknown aggregate function {name[:40]!r}",
            func=name[:40],
            hint=f"Use one of {', '.join(FUNCTIONS).upper()}.",
        )
    return Aggregation(function, alias, "" if field in {None, "*"} else cast("str", field))


def check_plain(value: Any) -> None:
    """Raise for values without a JSON form, such as bytes, dates and infinite numbers, and for far too many of them."""
    try:
        for count, (inner, _) in enumerate(walk_json(value, MAX_LEVELS)):
            if count > MAX_PARTS:
                raise QueryTooLarge(f"A filter or an aggregate may have at most {MAX_PARTS} values", limit=MAX_PARTS)
            match inner:
                case dict():
                    if not all(isinstance(name, str) for name in cast("dict[Any, Any]", inner)):
                        raise InvalidQuery("The names of members must be strings")
                case float() if isfinite(inner):
                    pass
                case list() | str() | int() | None:
                    pass
                case _:
                    kind = type(inner).__name__
                    raise InvalidQuery(f"A filter or an aggregate cannot contain a value of type {kind}")
    except NestingTooDeep as error:
        raise InvalidQuery("The filter or aggregate is too deeply nested", limit=MAX_LEVELS) from error


# Pages to records


def use_aliases(query: Query, names: FieldNames) -> Query:
    """Return a query with the names that its results have: those of the schema."""
    if not names.aliases:
        return query
    aggregate = query.aggregate
    if aggregate:
        aggregate = replace(aggregate, group_by=tuple(map(names.alias_path, aggregate.group_by)))
    return replace(query, fields=tuple(map(names.alias_path, query.fields)), aggregate=aggregate)


def publish_page(page: Page, query: Query, names: FieldNames) -> Page:
    """Return a page of a query with the names of the schema."""
    if not names.aliases:
        return page
    columns = {name: names.alias_path(name) for name in query.aggregate.group_by} if query.aggregate else {}
    rows = tuple({columns.get(name, name): value for name, value in row.items()} for row in page.rows)
    return replace(page, items=tuple(publish_item(item, names) for item in page.items), rows=rows)


def publish_item(item: Item, names: FieldNames) -> Item:
    """Return an item with the names of the schema."""
    if not names.aliases:
        return item
    return replace(item, data={names.alias(name): value for name, value in item.data.items()})


def publish_patch(patch: Iterable[Mapping[str, Any]], names: FieldNames) -> list[dict[str, Any]]:
    """Return a JSON Patch of an item with the names of the schema."""
    return [{**step, "path": _publish_pointer(step["path"], names)} for step in patch]


def _publish_pointer(pointer: str, names: FieldNames) -> str:
    head, *below = pointer.split("/")[1:]
    alias = names.aliases.get(head.replace("~1", "/").replace("~0", "~"), head)  # no alias needs to be escaped
    return "/".join(("", alias, *below))


def record(item: Item) -> dict[str, Any]:
    """Return an item as one flat record, its id first."""
    members = {ID: item.id, **item.data}
    members[ID] = item.id  # the data may have an id of its own
    return members


def records(page: Page, query: Query) -> list[Mapping[str, Any]]:
    """Return the records of a page: rows of an aggregate, or items with the requested fields and their score."""
    if query.aggregate:
        return list(page.rows)
    with_id = not query.fields or ID in query.fields
    rows = [record(item) if with_id else dict(item.data) for item in page.items]
    if query.near:
        rows = [{**row, SCORE: score} for row, score in zip(rows, page.scores, strict=True)]
    return cast("list[Mapping[str, Any]]", rows)


# Regular expressions that NWP forbids (6.2), although the engine here runs in linear time for all of them

_REFERENCE = re.compile(r"\\(?:[1-9]|g[<{]|k[<{'])|\(\?P=")
_PART = re.compile(
    r"""
      (?P<single> \\. | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]? )
    | (?P<open> \( (?:\?(?:P?<\w+>|[a-zA-Z-]*:))? )
    | (?P<close> \) )
    | (?P<choice> \| )
    | (?P<endless> [*+] | \{\d*,\} )
    | (?P<varying> \{\d*,\d+\} )
    | (?P<several> \{0*(?:[2-9]|[1-9]\d+)\} )
    | (?P<optional> \? )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Group:
    """A group while it is read: the quantifiers in it, and its alternatives."""

    begins: int  # start of the current alternative
    repeats: set[str] = field(default_factory=set[str])  # kinds of quantifiers
    choices: list[str] = field(default_factory=list[str])

    def choose(self, pattern: str, end: int) -> None:
        self.choices.append(pattern[self.begins : end])
        self.begins = end + 1

    def is_unsafe(self, quantifier: str) -> bool:
        """Return whether this quantifier must not follow the group."""
        if quantifier == "several":
            return "endless" in self.repeats
        return bool(self.repeats) or self._is_ambiguous

    @property
    def _is_ambiguous(self) -> bool:
        """Whether one alternative is a prefix of another, so that a text can match in two ways: a|aa, a|a?."""
        return any(later.startswith(earlier) for earlier, later in pairwise(sorted(self.choices)))


def nests_quantifiers(pattern: str) -> bool:
    """Return whether a quantifier applies to a quantified or ambiguous group: (a+)+, (a+){9}, (a|aa)*."""
    groups, closed, end, repeated = [_Group(0)], _Group(0), -1, -1
    for part in _PART.finditer(pattern):
        match part.lastgroup:
            case "open":
                groups.append(_Group(part.end()))
            case "choice":
                groups[-1].choose(pattern, part.start())
            case "close" if len(groups) > 1:
                closed, end = groups.pop(), part.end()
                closed.choose(pattern, part.start())
                groups[-1].repeats |= closed.repeats
            case "endless" | "varying" | "several" as quantifier:
                if part.start() == end and closed.is_unsafe(quantifier):
                    return True
                groups[-1].repeats |= {quantifier} - {"several"}
                repeated = part.end()
            case "optional" if part.start() != repeated:  # else it makes a quantifier lazy
                groups[-1].repeats.add("varying")
            case _:
                pass
    return False
