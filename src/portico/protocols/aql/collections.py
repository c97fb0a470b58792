"""Reading a collection through MCP-AQL: list, search, get and count. Whatever is offered here is also checked here.

{"operation": "list_rooms", "params": {"filter": {"beds": {"$gte": 2}}, "sort": {"field": "price"}, "first": 10}}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog import ID, Collection, Operation
from portico.config import Config
from portico.items import Item
from portico.operations import collection_operations
from portico.protocols.aql import aggregates, paging, selection
from portico.protocols.aql.complaints import concerning, misfit
from portico.protocols.aql.computed import FIELDS, SEARCHED, computed, published
from portico.protocols.aql.schemas import info_of
from portico.protocols.aql.selection import Preset, Selection, field_names, own_name, read_selection, shown
from portico.protocols.aql.shapes import Answered, Asking, Example, Offered, ParameterInfo, TypeDetails, Warned
from portico.protocols.aql.types import item_name, item_type
from portico.query import (
    EVERYTHING,
    MAX_KEYS,
    And,
    Condition,
    Filter,
    Not,
    Or,
    Order,
    Query,
    checked,
    parse_filter,
)
from portico.requests import Call, Outcome
from portico.site import Site

BY_WORDS = Warned(
    code="SEARCH_DEGRADED_WARNING",
    message="The search was by words alone: meanings cannot be compared now",
    severity="low",
)
SORT_KEY = TypeDetails(
    name="SortKey",
    kind="object",
    description="A field to sort by. Items without it come last.",
    fields=(
        ParameterInfo(name="field", type="string", required=True),
        ParameterInfo(name="order", type="string", required=False, default="asc", enum=("asc", "desc")),
    ),
)
SORT = TypeDetails(name="Sort", kind="union", description="A key, or a list of them.", members=(SORT_KEY.name, "array"))
FILTER = ParameterInfo(
    name="filter",
    type="object",
    required=False,
    description='Conditions on fields: {"beds": 2} or {"price": {"$lt": 20}}; $eq, $ne, $lt, $lte, $gt, $gte, $in, '
    "$nin, $contains, $between, $exists, $regex, joined by $and, $or, $not",
)
SORTED = ParameterInfo(
    name="sort",
    type=SORT.name,
    required=False,
    description='{"field": "price", "order": "desc"}, or a list of such keys',
)
TOTAL = ParameterInfo(
    name="include_total",
    type="boolean",
    required=False,
    description="Whether pageInfo has totalCount",
    default=False,
)
WORDS = ParameterInfo(
    name="query",
    type="string",
    required=True,
    description="What to look for, in words; any of them may fit",
    min_length=1,
)
IDENT = ParameterInfo(name=ID, type="string", required=True, description="The item's id", min_length=1)
COUNTED = TypeDetails(
    name="Counted",
    kind="object",
    description="How many there are.",
    fields=(ParameterInfo(name="count", type="integer", required=True),),
)
SHARED = (selection.PRESET, selection.SELECTION, SORT_KEY, SORT)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A list or a search, understood."""

    query: Query
    part: paging.Part
    shows: Selection
    aggregate: list[aggregates.Wanted]
    has_items: bool
    warned: tuple[Warned, ...]


def offered(site: Site, config: Config, collection: Collection) -> list[Offered]:
    """list, search, get and count of a collection; not what the site has put something of its own in place of."""
    made = {each.name.partition("_")[0]: each for each in collection_operations(collection)}
    known = site.catalog.operations
    standing = {verb: each for verb, each in made.items() if _is_same(each, known.get(each.name))}
    reading = Reading(site, config, collection)
    offers = (("list", reading.listing), ("search", reading.search), ("get", reading.single), ("count", reading.count))
    return [offer(standing[verb]) for verb, offer in offers if verb in standing]


def _is_same(made: Operation, known: Operation | None) -> bool:
    return known is not None and known.collection == made.collection and known.params is made.params


@dataclass(frozen=True, slots=True)
class Reading:
    """What can be read of one collection."""

    site: Site
    config: Config
    collection: Collection  # as it was published; its fields are looked up anew

    def listing(self, operation: Operation) -> Offered:
        async def run(params: Mapping[str, Any], asking: Asking) -> Answered:
            wanted = await self._understood(operation.name, params, asking, "standard")
            return await self._answered(operation.name, wanted, asking)

        return Offered(
            name=operation.name,
            kind=operation.kind,
            description=f"{operation.description} {selection.described(self.collection, 'standard')}",
            params=(
                FILTER,
                SORTED,
                *selection.parameters("standard"),
                *paging.parameters(self.config.aql, back=True),
                TOTAL,
                *aggregates.PARAMETERS,
            ),
            returns=info_of(self._page_type),
            run=run,
            operation=operation,
            examples=self._examples(operation.name),
            computed=published(FIELDS),
            aggregation=aggregates.support(self.collection),
            types=(item_type(self.collection), self._page_type, *SHARED),
        )

    def search(self, operation: Operation) -> Offered:
        async def run(params: Mapping[str, Any], asking: Asking) -> Answered:
            wanted = await self._understood(operation.name, params, asking, "minimal")
            return await self._answered(operation.name, wanted, asking)

        return Offered(
            name=operation.name,
            kind=operation.kind,
            description=(
                f"{operation.description} {selection.described(self.collection, 'minimal')} "
                "What is ranked has no way back: pages are read from the best on.\n"
                "Similar to list, but by words, and ranked."
            ),
            params=(
                WORDS,
                FILTER,
                SORTED,
                *selection.parameters("minimal"),
                *paging.parameters(self.config.aql, back=False),
                TOTAL,
            ),
            returns=info_of(self._page_type),
            run=run,
            operation=operation,
            examples=(Example(request={"operation": operation.name, "params": {"query": "…", "first": 5}}),),
            computed=published(SEARCHED),
            types=(item_type(self.collection), self._page_type, *SHARED),
        )

    def single(self, operation: Operation) -> Offered:
        async def run(params: Mapping[str, Any], asking: Asking) -> Answered:
            async with self.site.gate.charging(asking.caller):
                shows = await self.site.gate.settled(
                    lambda: read_selection(params, self._now, "full", tuple(FIELDS), operation.name)
                )
            item = await self._item(operation.name, params[ID], asking)
            (told,) = await self._shown([item], (), shows, asking)
            return Answered(told, untrusted=True)

        kind = item_type(self.collection)
        return Offered(
            name=operation.name,
            kind=operation.kind,
            description=f"{operation.description} {selection.described(self.collection, 'full')}",
            params=(IDENT, *selection.parameters("full")),
            returns=info_of(kind),
            run=run,
            operation=operation,
            examples=(Example(request={"operation": operation.name, "params": {ID: "…"}}),),
            computed=published(FIELDS),
            types=(kind, selection.PRESET, selection.SELECTION),
        )

    def count(self, operation: Operation) -> Offered:
        async def run(params: Mapping[str, Any], asking: Asking) -> Answered:
            async with self.site.gate.charging(asking.caller):
                where = await self.site.gate.settled(
                    lambda: read_filter(params.get("filter"), self._now, operation.name)
                )
            page = await self.site.query(Query(self.collection.name, where=where, limit=1, count=True), asking.caller)
            return Answered({"count": page.total or 0})

        return Offered(
            name=operation.name,
            kind=operation.kind,
            description=f"{operation.description}\nSimilar to list, but only how many.",
            params=(FILTER,),
            returns=info_of(COUNTED),
            run=run,
            operation=operation,
            examples=(Example(request={"operation": operation.name}),),
            types=(COUNTED,),
        )

    @property
    def _now(self) -> Collection:
        return self.site.catalog.collection(self.collection.name)

    @property
    def _page_type(self) -> TypeDetails:
        name = item_name(self.collection)
        return TypeDetails(
            name=f"{name}Page",
            kind="object",
            description="A part of what was found. With `aggregate` it has no items unless they are asked for.",
            fields=(
                ParameterInfo(name="items", type="array", required=False, items={"type": name}),
                ParameterInfo(name="pageInfo", type="PageInfo", required=False),
                ParameterInfo(name="aggregations", type="object", required=False),
            ),
        )

    def _examples(self, name: str) -> tuple[Example, ...]:
        return (
            Example(description="The first ten", request={"operation": name, "params": {"first": 10}}),
            Example(
                description="How many there are",
                request={"operation": name, "params": {"aggregate": {"total": {"count": True}}}},
            ),
        )

    async def _understood(self, name: str, params: Mapping[str, Any], asking: Asking, default: Preset) -> Wanted:
        async with self.site.gate.charging(asking.caller):
            return await self.site.gate.settled(lambda: self._read(name, params, default))

    def _read(self, name: str, params: Mapping[str, Any], default: Preset) -> Wanted:
        collection = self._now
        part, warned = paging.read_part(params, self.config.aql, name)
        text, wanted = params.get("query", ""), params.get("aggregate")
        has_items = wanted is None or bool(params.get("include_items"))
        if not has_items and any(params.get(each) is not None for each in paging.PAGING):
            raise misfit(name, "include_items", "Paging with 'aggregate' needs 'include_items'", "true", False)
        return Wanted(
            Query(
                collection.name,
                text=text,
                where=read_filter(params.get("filter"), collection, name),
                order=read_sort(params.get("sort"), collection, name),
                count=bool(params.get("include_total")),
            ),
            part,
            read_selection(params, collection, default, tuple(SEARCHED if text else FIELDS), name),
            [] if wanted is None else aggregates.read_aggregate(wanted, collection, name),
            has_items,
            warned,
        )

    async def _answered(self, name: str, wanted: Wanted, asking: Asking) -> Answered:
        data: dict[str, Any] = {}
        warned = wanted.warned
        if wanted.has_items:
            find = paging.searched if wanted.query.text else paging.walked
            found = await find(self.site, wanted.query, wanted.part, asking, name)
            data["items"] = await self._shown(found.page.items, found.page.scores, wanted.shows, asking)
            data["pageInfo"] = found.info
            warned = (*warned, BY_WORDS) if found.page.notes else warned
        if wanted.aggregate:
            reckoned, cut = await aggregates.aggregated(
                self.site, self.collection.name, wanted.query.where, wanted.aggregate, asking
            )
            data["aggregations"] = reckoned
            warned = (*warned, *cut)
        return Answered(data, warned, untrusted="items" in data)

    async def _item(self, name: str, id: str, asking: Asking) -> Item:
        call = Call(name, {ID: id}, confirmation=asking.confirmation, session=asking.session)
        told = cast("Outcome", await self.site.call(call, asking.caller)).result
        data = {key: value for key, value in told.items() if key not in {ID, "_version"}}
        return Item(told[ID], self.collection.name, data, told["_version"])

    async def _shown(
        self, items: Sequence[Item], scores: Sequence[float], shows: Selection, asking: Asking
    ) -> list[dict[str, Any]]:
        more = await computed(self.site, asking, items, scores, shows.computed)
        collection = self._now
        return [shown(item, collection, shows, told) for item, told in zip(items, more, strict=True)]


def read_filter(raw: Any, collection: Collection, operation: str) -> Filter:
    """The filter that `filter` means, on fields that the collection has."""
    if raw is None:
        return EVERYTHING
    with concerning(operation, "filter", field_names(collection)):
        where = _named(parse_filter(raw), collection)
        checked(Query(collection.name, where=where), collection)
    return where


def _named(where: Filter, collection: Collection) -> Filter:
    """The same filter by the names that the items have."""
    match where:
        case And(parts):
            return And(tuple(_named(part, collection) for part in parts))
        case Or(parts):
            return Or(tuple(_named(part, collection) for part in parts))
        case Not(part):
            return Not(_named(part, collection))
        case Condition(name, op, value):
            return Condition(own_name(name, collection), op, value)


def read_sort(raw: Any, collection: Collection, operation: str) -> tuple[Order, ...]:
    """The order that `sort` means."""
    keys = _listed(raw)
    if len(keys) >= MAX_KEYS:
        raise misfit(operation, "sort", f"'sort' may have up to {MAX_KEYS - 1} keys, not {len(keys)}", "array", keys)
    order = tuple(_key(each, collection, operation) for each in keys)
    with concerning(operation, "sort", field_names(collection)):
        checked(Query(collection.name, order=order), collection)
    return order


def _listed(raw: Any) -> list[Any]:
    if raw is None:
        return []
    return cast("list[Any]", raw) if isinstance(raw, list) else [raw]


def _key(raw: Any, collection: Collection, operation: str) -> Order:
    match raw:
        case {"field": str() as field, **rest} if not rest or (set(rest) == {"order"} and rest["order"] in _ORDERS):
            return Order(own_name(field, collection), rest.get("order") == "desc")
        case _:
            expected = "field, and order asc or desc"
            raise misfit(operation, "sort", f"A key of 'sort' must have {expected}", expected, raw)


_ORDERS = ("asc", "desc")
