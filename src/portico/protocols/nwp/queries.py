"""QueryFrames to queries, and pages to records. Decides what a frame means; asks nobody."""

import re
from collections.abc import Collection as Several
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, cast

from portico.catalog import ID, Collection
from portico.errors import InvalidAggregate, InvalidQuery, QueryTooLarge, UnknownField, UnsafeRegex
from portico.items import Item
from portico.protocols.nwp.errors import AggregateUnsupported, VectorUnsupported
from portico.protocols.nwp.frames import OrderKey, QueryFrame, VectorSearch
from portico.protocols.nwp.patterns import nests_quantifiers, refers_back
from portico.query import (
    DEFAULT_LIMIT,
    EVERYTHING,
    FUNCTIONS,
    MAX_KEYS,
    MAX_LIMIT,
    MAX_LIST,
    MAX_VALUES,
    Aggregate,
    Aggregation,
    Filter,
    Function,
    Metric,
    Near,
    Order,
    Page,
    Query,
    conditions,
    parse_filter,
)

AGGREGATE_REF: Final = "nps:system:aggregate:result"
SCORE: Final = "_score"
TOP: Final = 10  # records of a vector search that does not say how many
MAX_PARTS: Final = 2 * MAX_VALUES  # of a filter or an aggregate; one that is let through has fewer
MAX_LEVELS: Final = 64  # of objects and lists in one another; a filter that is let through has far fewer
OWN_VECTORS: Final = ("", "embedding", "_embedding")  # names for the vectors that the site made of its items

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_NAME = re.compile(r"[A-Za-z0-9_.]{1,128}\Z")
_METRICS: Final[Mapping[str, Metric]] = {
    "cosine": "cosine",
    "euclidean": "euclidean",
    "dot_product": "dot_product",
}


class Reading:
    """How frames are read for one collection."""

    def __init__(
        self, collection: Collection, vectors: Sequence[str], *, may_aggregate: bool, may_compare: bool, lenient: bool
    ) -> None:
        self._collection = collection
        self._vectors = vectors  # the fields of vectors it has; "" for those that the site made
        self._may_aggregate = may_aggregate
        self._may_compare = may_compare
        self._lenient = lenient

    def query(self, frame: QueryFrame) -> Query:
        """What a frame asks for. The cursor is left out: it is the caller's."""
        # Looking at each of a hundred thousand names would hold up everybody else.
        if len(frame.order or ()) > MAX_KEYS or len(frame.fields or ()) > MAX_LIST:
            raise QueryTooLarge(f"At most {MAX_KEYS} keys to sort by and {MAX_LIST} fields", limit=MAX_KEYS)
        aggregate = self._aggregate(frame.aggregate)
        near = self._near(frame.vector_search)
        limit = min(frame.limit or DEFAULT_LIMIT, MAX_LIMIT)
        return Query(
            self._collection.name,
            near=near,
            where=self.where(frame.filter),
            order=self._order(frame.order or (), aggregate),
            fields=tuple(dict.fromkeys(self._named(name) for name in frame.fields or ())),
            aggregate=aggregate,
            limit=min(limit, near.top) if near else limit,
        )

    def where(self, raw: Any) -> Filter:
        """A filter, with every name and pattern in it let through."""
        where = self._filter(raw)
        for each in conditions(where):
            self._named(each.field)
        return where

    def _filter(self, raw: Any) -> Filter:
        if raw is None:
            return EVERYTHING
        check_plain(raw)
        try:
            where = parse_filter(raw, bare_values=self._lenient)
        except UnknownField as error:  # raised for what could be no name at all
            raise InvalidQuery(error.message, hint=error.hint, **error.details) from error
        except InvalidQuery as error:
            pattern = error.details.get("pattern")
            if isinstance(pattern, str) and (refers_back(pattern) or nests_quantifiers(pattern)):
                raise UnsafeRegex(
                    f"The pattern {pattern!r} refers back, or repeats what varies by itself", pattern=pattern
                ) from error
            raise
        for each in conditions(where):
            if each.op == "regex" and nests_quantifiers(each.value):
                raise UnsafeRegex(f"The pattern {each.value!r} repeats what varies by itself", pattern=each.value)
        return where

    def _named(self, name: str) -> str:
        """A name that may stand for a field: one that there is, or one of plain letters."""
        if name in self._collection.fields or _NAME.match(name):
            return name
        raise InvalidQuery(
            f"{name[:128]!r} cannot name a field", field=name[:128], hint="Use letters, digits, _ and dots."
        )

    def _order(self, keys: Sequence[OrderKey], aggregate: Aggregate | None) -> tuple[Order, ...]:
        for key in keys:
            if key.direction not in {"ASC", "DESC"}:
                said = key.direction[:20]
                raise InvalidQuery(f"{said!r} is no direction", field=key.field[:128], hint="Use ASC or DESC.")
        named = (key.field if aggregate else self._named(key.field) for key in keys)
        return tuple(Order(name, key.direction == "DESC") for name, key in zip(named, keys, strict=True))

    def _near(self, search: VectorSearch | None) -> Near | None:
        if search is None:
            return None
        if not self._may_compare or not self._vectors:
            raise VectorUnsupported("This node does not search by vectors")
        said, top = search.metric or "cosine", TOP if search.top_k is None else search.top_k
        metric = _METRICS.get(said)
        if metric is None:
            raise InvalidQuery(f"{said[:40]!r} is no metric", hint=f"Use one of {', '.join(_METRICS)}.")
        field = self._named(search.field) if search.field else ""
        if field in OWN_VECTORS and field not in self._collection.fields:
            field = ""
        if not field and "" not in self._vectors:
            raise VectorUnsupported("This node made no vectors of its items", hint=f"Use {', '.join(self._vectors)}.")
        if top < 1:
            raise InvalidQuery("top_k is at least 1", top_k=top)
        if search.threshold is not None and not isfinite(search.threshold):
            raise InvalidQuery("threshold is a finite number")
        return Near(tuple(search.vector), field, min(top, MAX_LIMIT), search.threshold, metric)

    def _aggregate(self, raw: Any) -> Aggregate | None:
        if raw is None:
            return None
        if not self._may_aggregate:
            raise AggregateUnsupported("This node does not aggregate")
        check_plain(raw)
        match raw:
            case {"operations": [_, *_] as operations}:
                made = tuple(_aggregation(each) for each in cast("list[Any]", operations))
            case _:
                raise InvalidAggregate('An aggregate is an object with a list of "operations"')
        said = cast("Mapping[str, Any]", raw)
        groups: Any = said.get("group_by")
        groups = [] if groups is None else groups
        if not isinstance(groups, list) or not all(isinstance(name, str) for name in cast("list[Any]", groups)):
            raise InvalidAggregate("group_by is a list of fields")
        names = tuple(self._named(name) for name in cast("list[str]", groups))
        return Aggregate(made, names, self._filter(said.get("having")))


def _aggregation(raw: Any) -> Aggregation:
    match raw:
        case {"func": str() as said, "alias": str() as alias}:
            field = cast("Mapping[str, Any]", raw).get("field")
        case _:
            raise InvalidAggregate("An operation of an aggregate has a func and an alias")
    if not isinstance(field, str | None):
        raise InvalidAggregate("The field of an operation is a text", alias=alias[:128])
    function: Function | None = next((each for each in FUNCTIONS if each == said.lower()), None)
    if function is None:
        raise InvalidAggregate(
            f"{said[:40]!r} is no function", func=said[:40], hint=f"Use one of {', '.join(FUNCTIONS).upper()}."
        )
    return Aggregation(function, alias, "" if field in {None, "*"} else cast("str", field))


def check_plain(value: Any) -> None:
    """Refuse what JSON could not say, such as bytes and dates of MessagePack, numbers without end, and far too much."""
    waiting, seen = [(value, MAX_LEVELS)], 0
    while waiting:
        inner, levels = waiting.pop()
        if not levels:
            raise InvalidQuery("The values are nested too deeply", limit=MAX_LEVELS)
        parts = _parts(inner)
        seen += len(parts)
        if seen > MAX_PARTS:
            raise QueryTooLarge(f"A filter or an aggregate has at most {MAX_PARTS} parts", limit=MAX_PARTS)
        waiting += [(each, levels - 1) for each in parts if type(each) not in _PLAIN]


def _parts(value: Any) -> Several[Any]:
    """What a value is made of; nothing of one that stands for itself."""
    kind = cast("type[Any]", type(value))
    if kind is dict:
        members = cast("dict[Any, Any]", value)
        if any(not isinstance(name, str) for name in members):
            raise InvalidQuery("A name of a member is not a text")
        return members.values()
    if kind is list:
        return cast("list[Any]", value)
    if kind in _PLAIN or (kind is float and isfinite(value)):
        return ()
    raise InvalidQuery(f"A value cannot be used: {kind.__name__}")


# Pages to records


def record(item: Item) -> dict[str, Any]:
    """An item as one flat record, its id first."""
    shown = {ID: item.id, **item.data}
    shown[ID] = item.id  # the data may have an id of its own
    return shown


def records(page: Page, query: Query) -> list[Mapping[str, Any]]:
    """What a page shows: rows of an aggregate, or items with the fields that were asked for, and their score."""
    if query.aggregate:
        return list(page.rows)
    with_id = not query.fields or ID in query.fields
    made = [record(item) if with_id else dict(item.data) for item in page.items]
    if query.near:
        made = [{**each, SCORE: score} for each, score in zip(made, page.scores, strict=True)]
    return cast("list[Mapping[str, Any]]", made)
