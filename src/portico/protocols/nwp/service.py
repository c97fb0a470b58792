"""Queries of nodes, from frame to frame: the same for HTTP and native sessions.

A transport decodes a frame and knows its sender. The service turns it into a query of the site, and the page into a
frame that fits the caller's budget and frame size.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

import msgspec

from portico.access.budget import TokenCost, Tokenizer, TrimmedRecords, add_costs, count_cost, find_tokenizer, trim
from portico.config import Config
from portico.errors import InvalidCursor, SiteError, TooLarge, Unavailable
from portico.field_names import FieldNames
from portico.operations.webhooks import WebhookClient
from portico.protocols.nwp.anchors import AnchorRegistry, ResolvedAnchor
from portico.protocols.nwp.capabilities import CapabilityChecker
from portico.protocols.nwp.errors import DepthExceeded, StreamLimitExceeded, StreamUnsupported, UnknownNode, code_of
from portico.protocols.nwp.fitting import (
    ENVELOPE,
    FRAME_SIZE,
    MAX_NAME,
    MAX_NAMED,
    combine,
    describe_trimming,
    fit_records,
    name_fields,
)
from portico.protocols.nwp.frames import CapsFrame, EncodingTier, QueryFrame, StreamFrame, encode_value
from portico.protocols.nwp.graph import GraphResult, NodeGraph
from portico.protocols.nwp.nodes import MAX_DEPTH, QUERY, STREAM, Node, NodeRegistry
from portico.protocols.nwp.queries import AGGREGATE_REF, QueryParser, publish_page, records, use_aliases
from portico.protocols.nwp.settings import NwpSettings
from portico.query import MAX_LIMIT, Page, Query
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Recorder, discard

CURSOR_SECONDS: Final = 3600.0
NAMES_BYTES: Final = 2 * MAX_NAMED * MAX_NAME
UUID_LENGTH: Final = 36  # characters of a UUID
BUDGET_REASON: Final = "token_budget"
FALLBACK: Final = "fallback"  # the named tokenizer is unknown or too slow: four bytes count as a token
CURSOR_BYTES: Final = 400  # the room for a cursor in an envelope; one that sorts by long texts is longer
STREAM_BYTES: Final = 32_000  # records in one part of a stream
MAX_ATTEMPTS: Final = 4  # to make a page fit while records change

RecordList = Sequence[Mapping[str, Any]]


class NwpRequestContext(msgspec.Struct, frozen=True):
    """The caller, node and limits of one request, as its transport read them."""

    caller: Caller
    node: Node
    base: str  # the base URL of the site
    id: str  # of the request, repeated in the response
    tier: EncodingTier = EncodingTier.JSON
    largest: int | None = None  # most bytes of a response, unless one record is larger; None for no bound
    budget: int | None = None
    tokenizers: tuple[str, ...] = ()
    depth: int | None = None
    trace: tuple[str, ...] = ()  # nodes that the query came through
    has_own_id: bool = False  # whether a header has the id
    portion: int = STREAM_BYTES  # bytes of records in one part of a stream, unless one record is larger
    max_payload: int | None = None  # most bytes of a frame; a larger record is shortened; None for no bound

    @property
    def envelope(self) -> int:
        """The bytes of a response besides its records. A stream contains its id twice."""
        return ENVELOPE if len(self.id) <= UUID_LENGTH else ENVELOPE + 2 * len(encode_value(self.id, EncodingTier.JSON))

    def with_frame(self, frame: QueryFrame) -> "NwpRequestContext":
        """Return the context with the frame's options where the transport had none, and the smallest budget."""
        warrant = self.caller.warrant
        if warrant is None and frame.token_budget is None and frame.tokenizer is None and frame.depth is None:
            return self
        budgets = [
            budget for budget in (self.budget, frame.token_budget, warrant.budget if warrant else None) if budget
        ]
        tokenizers = (*self.tokenizers, frame.tokenizer or "", warrant.tokenizer if warrant else "")
        depth = self.depth if self.depth is not None else frame.depth
        names = tuple(filter(None, tokenizers))
        return msgspec.structs.replace(self, budget=min(budgets, default=None), tokenizers=names, depth=depth)

    def label_cost(self, cost: TokenCost) -> TokenCost:
        """Return the cost with the tokenizer that counted it, for a caller that named one."""
        return replace(cost, tokenizer=FALLBACK) if self.tokenizers and not cost.tokenizer else cost


@dataclass(frozen=True, slots=True)
class NodeResponse:
    """A frame to send, and what the headers say about it."""

    frame: CapsFrame
    cost: TokenCost | None = None
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records as they are sent."""

    data: bytes
    count: int
    cost: TokenCost
    trimmed: TrimmedRecords | None = None
    sizes: tuple[int, ...] = ()  # of each record, if not all fit
    reason: str = BUDGET_REASON  # for leaving something out


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A frame, with the schema and query that it stands for on a node."""

    frame: QueryFrame
    anchor: ResolvedAnchor
    query: Query
    names: FieldNames  # of the fields of the collection

    @property
    def shown(self) -> Query:
        """The query with the names that its records have."""
        return use_aliases(self.query, self.names)

    def schema_bytes(self, tier: EncodingTier) -> int:
        """Return the bytes of the inlined schema."""
        inline = self.anchor.inline
        return len(encode_value(inline, tier)) if inline else 0


class NodeService:
    def __init__(
        self, site: Site, config: Config, callbacks: WebhookClient | None = None, record: Recorder = discard
    ) -> None:
        self.site = site
        self.config = config
        self.nodes = NodeRegistry(site, config)
        self.anchors = AnchorRegistry(site)
        self.capabilities = CapabilityChecker(config)
        self.graph = NodeGraph(self, callbacks or WebhookClient(config.allow_hosts), record)
        self._streams: Counter[str] = Counter()

    # Queries

    async def query(self, frame: QueryFrame, context: NwpRequestContext) -> NodeResponse:
        context = context.with_frame(frame)
        parsed = await self._parse(frame, context)
        page = await self.site.query(parsed.query, context.caller)
        return await self._build_response(parsed, context, publish_page(page, parsed.query, parsed.names))

    async def _build_response(self, parsed: ParsedQuery, context: NwpRequestContext, page: Page) -> NodeResponse:
        """Turn a page into a response, with the answers of other nodes."""
        traversal = self.graph.traverse(parsed.frame, context)
        carried = parsed.schema_bytes(context.tier) + (traversal.least if traversal else 0)
        page, encoded = await self._fit_page(parsed, page, context, carried)
        used = context.envelope + carried + len(encoded.data) + _excess(page.cursor)
        spare = context.largest - used if context.largest else None
        graph = await traversal.fetch_entries(spare, encoded.cost.tokens) if traversal else None
        return self._capsule(parsed, context, page, encoded, graph)

    def _capsule(
        self,
        parsed: ParsedQuery,
        context: NwpRequestContext,
        page: Page,
        encoded: EncodedRecords,
        graph: GraphResult | None,
    ) -> NodeResponse:
        resolved = parsed.anchor
        cost_ = add_costs(encoded.cost, graph.cost) if graph and graph.entries else encoded.cost
        cost = context.label_cost(cost_)
        # Records that were counted or trimmed for this request do not come from the cache.
        is_cached = page.is_cached and not context.budget and not context.tokenizers
        answer = CapsFrame(
            anchor_ref=AGGREGATE_REF if parsed.query.aggregate else resolved.anchor.id,
            count=encoded.count,
            data=msgspec.Raw(encoded.data),
            next_cursor=self._seal_cursor(page.cursor, resolved.anchor.id, context.caller),
            token_est=cost.tokens,
            tokenizer_used=cost.tokenizer or None,
            cached=is_cached or None,
            inline_anchor=resolved.inline,
            request_id=context.id if parsed.frame.request_id or context.has_own_id else None,
            trimmed=_describe_loss(encoded, graph),
            graph=graph.entries if graph else None,
        )
        return NodeResponse(answer, cost, is_cached)

    async def _parse(self, frame: QueryFrame, context: NwpRequestContext, *, is_stream: bool = False) -> ParsedQuery:
        """Check that the caller may query the node, and parse the frame."""
        self._check(context, is_stream=is_stream)
        await self.anchors.publish(context.node)
        is_patient = frame.auto_anchor is not False
        resolved = await self.anchors.resolve(context.node, frame.anchor_ref, is_patient=is_patient)
        query = self.parser(context.node, resolved.collection).parse(frame)
        names = self.site.catalog.collection(resolved.collection).names
        parsed = _without_large_schema(ParsedQuery(frame, resolved, query, names), context)
        if not frame.cursor:
            return parsed
        cursor = self._unseal_cursor(frame.cursor, resolved.anchor.id, context.caller)
        return replace(parsed, query=replace(query, cursor=cursor))

    def _check(self, context: NwpRequestContext, *, is_stream: bool) -> None:
        self.capabilities.require(context, QUERY)
        if is_stream:
            self.capabilities.require(context, STREAM)
        self._check_depth(context)
        self.graph.check_cycle(context)
        if not self.nodes.may(context.node, "query"):
            raise UnknownNode(f"The node {context.node.name} cannot be queried", node=context.node.name)
        if is_stream and not self.nodes.may(context.node, "stream_query"):
            raise StreamUnsupported("This node does not support streams")

    def parser(self, node: Node, collection: str) -> QueryParser:
        return QueryParser(
            self.site.catalog.collection(collection),
            self.site.vectors(collection),
            may_aggregate=self.nodes.may(node, "aggregate"),
            may_compare=self.nodes.may(node, "vector_search"),
            lenient=self.config.section(NwpSettings).lenient,
        )

    def _check_depth(self, context: NwpRequestContext) -> None:
        if context.depth is not None and context.depth > MAX_DEPTH:
            raise DepthExceeded(
                f"The depth of a query must be at most {MAX_DEPTH}, not {context.depth}",
                depth=context.depth,
                max_depth=MAX_DEPTH,
            )

    def _seal_cursor(self, cursor: str, anchor: str, caller: Caller) -> str | None:
        """Seal a cursor for this caller and schema."""
        return (
            self.site.tokens.seal({"at": cursor, "of": _anchor_suffix(anchor)}, caller, CURSOR_SECONDS)
            if cursor
            else None
        )

    def _unseal_cursor(self, cursor: str, anchor: str, caller: Caller) -> str:
        content = self.site.tokens.unseal(cursor, caller)
        if content is None or not isinstance(content.get("at"), str) or content.get("of") != _anchor_suffix(anchor):
            raise InvalidCursor(
                "The cursor is invalid, has expired, or is from before the schema changed",
                hint="Start again without a cursor.",
            )
        return content["at"]

    async def _fit_page(
        self, parsed: ParsedQuery, page: Page, context: NwpRequestContext, carried: int
    ) -> tuple[Page, EncodedRecords]:
        """Shorten a page to what the caller can receive; its cursor then leads to the rest."""
        query = parsed.shown
        counter = find_tokenizer(*context.tokenizers)
        # Room for the names of fields that the budget may drop.
        names = min(NAMES_BYTES, (context.largest or 0) // 8) if context.budget else 0
        space = context.largest - context.envelope - carried - names if context.largest else None
        requested, is_cut = page.length, False
        for _ in range(MAX_ATTEMPTS):
            room = None if space is None else space - _excess(page.cursor)
            encoded = await _encode_page(page, query, context, counter, room)
            count = _count_fitting(encoded.sizes, room) if encoded.sizes and room is not None else encoded.count
            if count == page.length:
                encoded = _with_loss(encoded, requested - count if is_cut else 0)
                most = _frame_room(context, carried + _excess(page.cursor))
                if most is not None and len(encoded.data) > most:
                    _check_cursor(page.cursor, context)
                    encoded = await _shorten_record(encoded, records(page, query), context.tier, most, query)
                return page, encoded
            is_cut = is_cut or encoded.count < page.length
            page = publish_page(await self.site.further_page(parsed.query, count), parsed.query, parsed.names)
        raise Unavailable("The records change faster than they can be sent", hint="Use a smaller `limit`.")

    # Streams

    async def stream(self, frame: QueryFrame, context: NwpRequestContext) -> AsyncGenerator[StreamFrame]:
        """Stream all results of a query. A cursor is ignored: a stream starts at the beginning."""
        context = context.with_frame(frame)
        whole = msgspec.structs.replace(frame, cursor=None) if frame.cursor else frame
        parsed = await self._parse(whole, context, is_stream=True)
        resolved, query = parsed.anchor, parsed.query
        first = {
            "anchor_ref": AGGREGATE_REF if query.aggregate else resolved.anchor.id,
            "inline_anchor": resolved.inline,
        }
        counted_query = replace(query, count=True, limit=MAX_LIMIT if query.aggregate else query.limit)
        counted = replace(parsed, query=counted_query)
        count = 0
        async with self._acquire_stream(context.caller), aclosing(self._parts(counted, context, first)) as parts:
            try:
                async for part in parts:
                    yield part
                    count += 1
            except SiteError as error:
                if not count:
                    raise
                code = code_of(error).error
                yield StreamFrame(stream_id=context.id, seq=count, is_last=True, data=[], error_code=code)

    async def _parts(
        self, parsed: ParsedQuery, context: NwpRequestContext, first: dict[str, Any]
    ) -> AsyncGenerator[StreamFrame]:
        """Yield the parts of a stream. An inlined schema takes room from the records of the first page."""
        query = parsed.shown
        counter, count = find_tokenizer(*context.tokenizers), 0
        carried = len(encode_value(first["inline_anchor"], context.tier)) if first["inline_anchor"] else 0
        async with aclosing(self.site.pages(parsed.query, context.caller)) as pages:
            async for own_page in pages:
                page = publish_page(own_page, parsed.query, parsed.names)
                page_portions = _portions(records(page, query), context, counter, query, 0 if count else carried)
                async with aclosing(page_portions) as portions:
                    async for encoded, is_end in portions:
                        members = {} if count else {**first, "estimated_total": _total(page)}
                        yield _stream_frame(encoded, context, count, is_last=is_end and not page.cursor, **members)
                        count += 1

    @asynccontextmanager
    async def _acquire_stream(self, caller: Caller) -> AsyncGenerator[None]:
        """Hold one of the caller's concurrent streams."""
        key, most = caller.rate_key, self.config.section(NwpSettings).streams
        if self._streams[key] >= most:
            raise StreamLimitExceeded(
                f"At most {most} concurrent streams are allowed", limit=most, hint="Stop one of them first."
            )
        self._streams[key] += 1
        try:
            yield
        finally:
            self._streams[key] -= 1
            if not self._streams[key]:
                del self._streams[key]


def _encode(
    records: RecordList,
    tier: EncodingTier,
    budget: int | None,
    counter: Tokenizer | None,
    room: int | None,
    query: Query,
) -> EncodedRecords:
    trimmed = trim(records, budget, counter, _group_fields(query), _names_asked_for(query)) if budget else None
    trimmed_records: RecordList = trimmed.records if trimmed else records
    data = encode_value(trimmed_records, tier)
    is_over = room is not None and len(data) > room and len(trimmed_records) > 1
    sizes = _sizes(trimmed_records, tier) if is_over else ()
    if trimmed:
        return EncodedRecords(data, len(trimmed_records), trimmed.cost, None if trimmed.is_whole else trimmed, sizes)
    counted_data = data if tier == EncodingTier.JSON else encode_value(trimmed_records, EncodingTier.JSON)
    # Too many records are encoded again anyway, so an estimate of their cost will do.
    return EncodedRecords(
        data, len(trimmed_records), count_cost(counted_data, None if is_over else counter), sizes=sizes
    )


async def _encode_page(
    page: Page, query: Query, context: NwpRequestContext, counter: Tokenizer | None, room: int | None
) -> EncodedRecords:
    page_records = records(page, query)
    if context.budget or counter:
        return await _encode_counted(page_records, context, counter, room, query)
    return _encode(page_records, context.tier, None, None, room, query)


async def _encode_counted(
    records: RecordList, context: NwpRequestContext, counter: Tokenizer | None, room: int | None, query: Query
) -> EncodedRecords:
    """Encode in a thread: counting a long page takes a while, and trimming counts it several times."""
    return await asyncio.to_thread(_encode, records, context.tier, context.budget, counter, room, query)


async def _portions(
    records: RecordList, context: NwpRequestContext, counter: Tokenizer | None, query: Query, carried: int
) -> AsyncGenerator[tuple[EncodedRecords, bool]]:
    """Yield encoded portions of the records, and whether each is the last. No records yield one empty portion."""
    most_together = min(context.portion, context.largest - context.envelope) if context.largest else context.portion
    room = most_together - carried
    most = _frame_room(context, carried)
    sizes, begin, is_end = _sizes(records, context.tier), 0, False
    while not is_end:
        portion = records[begin : begin + _count_fitting(sizes[begin:], room)]
        if context.budget or counter:
            encoded = await _encode_counted(portion, context, counter, None, query)
        else:
            encoded = _encode(portion, context.tier, None, None, None, query)
        if most is not None and len(encoded.data) > most:
            encoded = await _shorten_record(encoded, portion, context.tier, most, query)
        begin += encoded.count
        is_end = begin >= len(records)
        yield _with_loss(encoded, 0), is_end  # the records left out here come in the next portion


def _stream_frame(
    encoded: EncodedRecords, context: NwpRequestContext, seq: int, *, is_last: bool, **first: Any
) -> StreamFrame:
    return StreamFrame(
        stream_id=context.id,
        seq=seq,
        is_last=is_last,
        data=msgspec.Raw(encoded.data),
        request_id=context.id if first else None,
        token_est=encoded.cost.tokens,
        trimmed=_describe_loss(encoded),
        **first,
    )


def _with_loss(encoded: EncodedRecords, records: int) -> EncodedRecords:
    """Return the encoded records with the number of records that the budget dropped."""
    if encoded.trimmed is None and not records:
        return encoded
    trimmed = replace(encoded.trimmed or TrimmedRecords([], encoded.cost), dropped_records=records)
    return replace(encoded, trimmed=None if trimmed.is_whole else trimmed)


async def _shorten_record(
    encoded: EncodedRecords, records: RecordList, tier: EncodingTier, room: int, query: Query
) -> EncodedRecords:
    """Shorten a single record that is larger than the caller's frames."""
    before = encoded.trimmed or TrimmedRecords([*map(dict, records)], encoded.cost)
    fitted = await asyncio.to_thread(
        fit_records, before.records, room, tier, _group_fields(query), _names_asked_for(query)
    )
    return EncodedRecords(
        encode_value(fitted.records, tier), 1, fitted.cost, combine(before, fitted), reason=FRAME_SIZE
    )


def _without_large_schema(parsed: ParsedQuery, context: NwpRequestContext) -> ParsedQuery:
    """Do not inline a schema of more than half a frame: the response has its id, and HTTP serves it."""
    resolved = parsed.anchor
    if (
        resolved.inline is None
        or context.max_payload is None
        or parsed.schema_bytes(context.tier) <= context.max_payload // 2
    ):
        return parsed
    return replace(parsed, anchor=replace(resolved, inline=None))


def _check_cursor(cursor: str, context: NwpRequestContext) -> None:
    """Raise for a page whose cursor, which contains the values it is sorted by, leaves no room in a frame."""
    if context.max_payload is not None and _excess(cursor) > context.max_payload // 2:
        raise TooLarge(
            f"The cursor to the next page has {2 * len(cursor)} bytes, too many for a frame",
            limit=context.max_payload,
            hint="Use `stream`, which needs no cursor, or sort and group by shorter values.",
        )


def _frame_room(context: NwpRequestContext, carried: int) -> int | None:
    """Return the bytes that a frame has for records; None if there is no bound."""
    return None if context.max_payload is None else context.max_payload - context.envelope - carried


def _group_fields(query: Query) -> tuple[str, ...]:
    """Return the fields that identify a row of an aggregate."""
    return query.aggregate.group_by if query.aggregate else ()


def _names_asked_for(query: Query) -> frozenset[str]:
    """Return the fields that the caller asked for by name: aggregate values, or fields and the first part of paths."""
    if query.aggregate:
        return frozenset(operation.alias for operation in query.aggregate.operations)
    return frozenset((*query.fields, *(name.partition(".")[0] for name in query.fields)))


def _sizes(records: RecordList, tier: EncodingTier) -> tuple[int, ...]:
    return tuple(len(encode_value(record, tier)) + 1 for record in records)


def _count_fitting(sizes: Sequence[int], room: int) -> int:
    """Return how many records fit, but at least one."""
    return max(1, bisect_right(tuple(accumulate(sizes)), room - 1))


def _anchor_suffix(anchor: str) -> str:
    """Return enough of a schema's id to distinguish it."""
    return anchor[-16:]


def _excess(cursor: str) -> int:
    """Return the bytes of a sealed cursor beyond the room reserved for it."""
    return max(0, 2 * (len(cursor) - CURSOR_BYTES))


def _describe_loss(encoded: EncodedRecords, graph: GraphResult | None = None) -> dict[str, Any] | None:
    lost = name_fields("dropped_nodes", graph.dropped) if graph and graph.dropped else {}
    if encoded.trimmed is None and not lost:
        return None
    return {**describe_trimming(encoded.trimmed or TrimmedRecords([], encoded.cost), encoded.reason), **lost}


def _total(page: Page) -> int:
    return -1 if page.total is None else page.total
