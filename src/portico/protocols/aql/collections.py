"""Reads a collection through MCP-AQL: list, search, get and count, and the parameters that they share.

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
from portico.protocols.aql.computed import FIELDS, SEARCH_FIELDS, compute_fields, describe_fields
from portico.protocols.aql.envelopes import blame_param, invalid_param
from portico.protocols.aql.schemas import info_of
from portico.protocols.aql.selection import Preset, Selection, field_names, own_name, read_selection, render_item
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.shapes import (
    AqlOperation,
    AqlRequestContext,
    AqlResult,
    OperationWarning,
    ParameterInfo,
    RequestExample,
    TypeDetails,
)
from portico.protocols.aql.types import item_name, item_type
from portico.query import (
    MATCH_ALL,
    MAX_KEYS,
    Filter,
    Order,
    Query,
    parse_filter,
    rename_fields,
    validate_query,
)
from portico.requests import Call, Outcome
from portico.site import Site

SEARCH_DEGRADED = OperationWarning(
    code="SEARCH_DEGRADED_WARNING",
    message="The search used keywords only: semantic search is unavailable",
    severity="low",
)
SORT_KEY = TypeDetails(
    name="SortKey",
    kind="object",
    description="A field to sort by. Items without the field come last.",
    fields=(
        ParameterInfo(name="field", type="string", required=True),
        ParameterInfo(name="order", type="string", required=False, default="asc", enum=("asc", "desc")),
    ),
)
SORT = TypeDetails(name="Sort", kind="union", description="A key, or a list of them.", members=(SORT_KEY.name, "array"))
FILTER_PARAM = ParameterInfo(
    name="filter",
    type="object",
    required=False,
    description='Conditions on fields: {"beds": 2} or {"price": {"$lt": 20}}; $eq, $ne, $lt, $lte, $gt, $gte, $in, '
    "$nin, $contains, $between, $exists, $regex, joined by $and, $or, $not",
)
SORT_PARAM = ParameterInfo(
    name="sort",
    type=SORT.name,
    required=False,
    description='{"field": "price", "order": "desc"}, or a list of such keys',
)
TOTAL_PARAM = ParameterInfo(
    name="include_total",
    type="boolean",
    required=False,
    description="Whether to return totalCount in pageInfo",
    default=False,
)
QUERY_PARAM = ParameterInfo(
    name="query",
    type="string",
    required=True,
    description="Search words; items match any of them",
    min_length=1,
)
ID_PARAM = ParameterInfo(name=ID, type="string", required=True, description="The item's id", min_length=1)
COUNT_RESULT = TypeDetails(
    name="Counted",
    kind="object",
    description="The number of items.",
    fields=(ParameterInfo(name="count", type="integer", required=True),),
)
SHARED_TYPES = (selection.PRESET, selection.SELECTION, SORT_KEY, SORT)


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The parsed parameters of a list or a search."""

    query: Query
    page: paging.PageRequest
    selection: Selection
    aggregate: list[aggregates.AggregateSpec]
    has_items: bool
    warnings: tuple[OperationWarning, ...]


def collection_operations_for(site: Site, config: Config, collection: Collection) -> list[AqlOperation]:
    """Return list, search, get and count of a collection, without those that the site replaced by its own."""
    built = {operation.name.partition("_")[0]: operation for operation in collection_operations(collection)}
    catalogued = site.catalog.operations
    unchanged = {
        verb: operation for verb, operation in built.items() if _is_unchanged(operation, catalogued.get(operation.name))
    }
    reader = CollectionOperations(site, config, collection)
    offers = (
        ("list", reader.list_operation),
        ("search", reader.search_operation),
        ("get", reader.get_operation),
        ("count", reader.count_operation),
    )
    return [offer(unchanged[verb]) for verb, offer in offers if verb in unchanged]


def _is_unchanged(built: Operation, catalogued: Operation | None) -> bool:
    return catalogued is not None and catalogued.collection == built.collection and catalogued.params is built.params


@dataclass(frozen=True, slots=True)
class CollectionOperations:
    """The read operations of one collection."""

    site: Site
    config: Config
    collection: Collection  # as it was published; `_current` has its fields now

    def list_operation(self, operation: Operation) -> AqlOperation:
        async def run(params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
            request = await self._parse(operation.name, params, context, "standard")
            return await self._execute(operation.name, request, context)

        return AqlOperation(
            name=operation.name,
            kind=operation.kind,
            description=f"{operation.description} {selection.describe_presets(self.collection, 'standard')}",
            params=(
                FILTER_PARAM,
                SORT_PARAM,
                *selection.selection_params("standard"),
                *paging.page_params(self.config.section(AqlSettings), back=True),
                TOTAL_PARAM,
                *aggregates.PARAMETERS,
            ),
            returns=info_of(self._page_type),
            run=run,
            operation=operation,
            examples=self._examples(operation.name),
            computed=describe_fields(FIELDS),
            aggregation=aggregates.aggregation_support(self.collection),
            types=(item_type(self.collection), self._page_type, *SHARED_TYPES),
        )

    def search_operation(self, operation: Operation) -> AqlOperation:
        async def run(params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
            request = await self._parse(operation.name, params, context, "minimal")
            return await self._execute(operation.name, request, context)

        return AqlOperation(
            name=operation.name,
            kind=operation.kind,
            description=(
                f"{operation.description} {selection.describe_presets(self.collection, 'minimal')} "
                "Pages go forward only, best matches first.\n"
                "Similar to list, but by search words, and ranked."
            ),
            params=(
                QUERY_PARAM,
                FILTER_PARAM,
                SORT_PARAM,
                *selection.selection_params("minimal"),
                *paging.page_params(self.config.section(AqlSettings), back=False),
                TOTAL_PARAM,
            ),
            returns=info_of(self._page_type),
            run=run,
            operation=operation,
            examples=(RequestExample(request={"operation": operation.name, "params": {"query": "…", "first": 5}}),),
            computed=describe_fields(SEARCH_FIELDS),
            types=(item_type(self.collection), self._page_type, *SHARED_TYPES),
        )

    def get_operation(self, operation: Operation) -> AqlOperation:
        async def run(params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
            shows = await self.site.access.look_up(
                lambda: read_selection(params, self._current, "full", tuple(FIELDS), operation.name)
            )
            item = await self._item(operation.name, params[ID], context)
            (rendered,) = await self._render_items([item], (), shows, context)
            return AqlResult(rendered, untrusted=True)

        kind = item_type(self.collection)
        return AqlOperation(
            name=operation.name,
            kind=operation.kind,
            description=f"{operation.description} {selection.describe_presets(self.collection, 'full')}",
            params=(ID_PARAM, *selection.selection_params("full")),
            returns=info_of(kind),
            run=run,
            operation=operation,
            examples=(RequestExample(request={"operation": operation.name, "params": {ID: "…"}}),),
            computed=describe_fields(FIELDS),
            types=(kind, selection.PRESET, selection.SELECTION),
        )

    def count_operation(self, operation: Operation) -> AqlOperation:
        async def run(params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
            where = await self.site.access.look_up(
                lambda: read_filter(params.get("filter"), self._current, operation.name)
            )
            page = await self.site.query(Query(self.collection.name, where=where, limit=1, count=True), context.caller)
            return AqlResult({"count": page.total or 0})

        return AqlOperation(
            name=operation.name,
            kind=operation.kind,
            description=f"{operation.description}\nSimilar to list, but returns only the number of items.",
            params=(FILTER_PARAM,),
            returns=info_of(COUNT_RESULT),
            run=run,
            operation=operation,
            examples=(RequestExample(request={"operation": operation.name}),),
            types=(COUNT_RESULT,),
        )

    @property
    def _current(self) -> Collection:
        return self.site.catalog.collection(self.collection.name)

    @property
    def _page_type(self) -> TypeDetails:
        name = item_name(self.collection)
        return TypeDetails(
            name=f"{name}Page",
            kind="object",
            description="A page of items. With `aggregate` it has none unless `include_items` is true.",
            fields=(
                ParameterInfo(name="items", type="array", required=False, items={"type": name}),
                ParameterInfo(name="pageInfo", type="PageInfo", required=False),
                ParameterInfo(name="aggregations", type="object", required=False),
            ),
        )

    def _examples(self, name: str) -> tuple[RequestExample, ...]:
        return (
            RequestExample(description="The first ten", request={"operation": name, "params": {"first": 10}}),
            RequestExample(
                description="The number of items",
                request={"operation": name, "params": {"aggregate": {"total": {"count": True}}}},
            ),
        )

    async def _parse(
        self, name: str, params: Mapping[str, Any], context: AqlRequestContext, default: Preset
    ) -> ListRequest:
        return await self.site.access.look_up(lambda: self._read(name, params, default))

    def _read(self, name: str, params: Mapping[str, Any], default: Preset) -> ListRequest:
        collection = self._current
        part, warnings = paging.parse_page_request(params, self.config.section(AqlSettings), name)
        text, aggregate = params.get("query", ""), params.get("aggregate")
        has_items = aggregate is None or bool(params.get("include_items"))
        if not has_items and any(params.get(name_) is not None for name_ in paging.PAGING):
            raise invalid_param(name, "include_items", "Paging with 'aggregate' needs 'include_items'", "true", False)
        return ListRequest(
            Query(
                collection.name,
                text=text,
                where=read_filter(params.get("filter"), collection, name),
                order=read_sort(params.get("sort"), collection, name),
                count=bool(params.get("include_total")),
            ),
            part,
            read_selection(params, collection, default, tuple(SEARCH_FIELDS if text else FIELDS), name),
            [] if aggregate is None else aggregates.read_aggregate(aggregate, collection, name),
            has_items,
            warnings,
        )

    async def _execute(self, name: str, request: ListRequest, context: AqlRequestContext) -> AqlResult:
        data: dict[str, Any] = {}
        warnings = request.warnings
        if request.has_items:
            fetch = paging.fetch_search_page if request.query.text else paging.fetch_page
            result = await fetch(self.site, request.query, request.page, context, name)
            data["items"] = await self._render_items(result.page.items, result.page.scores, request.selection, context)
            data["pageInfo"] = result.info
            warnings = (*warnings, SEARCH_DEGRADED) if result.page.notes else warnings
        if request.aggregate:
            aggregations, cut_warnings = await aggregates.compute_aggregates(
                self.site, self.collection.name, request.query.where, request.aggregate, context
            )
            data["aggregations"] = aggregations
            warnings = (*warnings, *cut_warnings)
        return AqlResult(data, warnings, untrusted="items" in data)

    async def _item(self, name: str, id: str, context: AqlRequestContext) -> Item:
        call = Call(name, {ID: id}, confirmation=context.confirmation, session=context.session)
        result = cast("Outcome", await self.site.call(call, context.caller)).result
        data = {key: value for key, value in result.items() if key not in {ID, "_version"}}
        return Item(result[ID], self.collection.name, data, result["_version"])

    async def _render_items(
        self, items: Sequence[Item], scores: Sequence[float], shows: Selection, context: AqlRequestContext
    ) -> list[dict[str, Any]]:
        more = await compute_fields(self.site, context, items, scores, shows.computed)
        collection = self._current
        return [render_item(item, collection, shows, values) for item, values in zip(items, more, strict=True)]


def read_filter(raw: Any, collection: Collection, operation: str) -> Filter:
    """Parse `filter`, on fields that the collection has."""
    if raw is None:
        return MATCH_ALL
    with blame_param(operation, "filter", field_names(collection)):
        where = rename_fields(parse_filter(raw), lambda name: own_name(name, collection))
        validate_query(Query(collection.name, where=where), collection)
    return where


def read_sort(raw: Any, collection: Collection, operation: str) -> tuple[Order, ...]:
    """Parse `sort`."""
    keys = _as_list(raw)
    if len(keys) >= MAX_KEYS:
        raise invalid_param(
            operation, "sort", f"'sort' may have up to {MAX_KEYS - 1} keys, not {len(keys)}", "array", keys
        )
    order = tuple(_key(key, collection, operation) for key in keys)
    with blame_param(operation, "sort", field_names(collection)):
        validate_query(Query(collection.name, order=order), collection)
    return order


def _as_list(raw: Any) -> list[Any]:
    if raw is None:
        return []
    return cast("list[Any]", raw) if isinstance(raw, list) else [raw]


def _key(raw: Any, collection: Collection, operation: str) -> Order:
    match raw:
        case {"field": str() as field, **rest} if not rest or (set(rest) == {"order"} and rest["order"] in _ORDERS):
            return Order(own_name(field, collection), rest.get("order") == "desc")
        case _:
            expected = "field, and order asc or desc"
            raise invalid_param(operation, "sort", f"A key of 'sort' must have {expected}", expected, raw)


_ORDERS = ("asc", "desc")
