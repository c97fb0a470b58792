"""What is asked of nodes and what they answer, frame for frame: the same over HTTP and natively.

A transport reads a frame and knows who sent it; here it becomes a request of the site, and what comes back a frame.
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

from portico.access.budget import Cost, Tokenizer, Trimmed, cost, tokenizer, total, trim
from portico.config import Config
from portico.errors import InvalidCursor, SiteError, TooLarge, Unavailable
from portico.operations.webhooks import Callbacks
from portico.protocols.nwp.anchors import Anchors, Meant
from portico.protocols.nwp.capabilities import Warrants
from portico.protocols.nwp.errors import DepthExceeded, StreamLimit, StreamUnsupported, UnknownNode, code_of
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
from portico.protocols.nwp.frames import CapsFrame, QueryFrame, StreamFrame, Tier, encode_value
from portico.protocols.nwp.graph import Graph, GraphResult
from portico.protocols.nwp.nodes import MAX_DEPTH, QUERY, STREAM, Node, Nodes
from portico.protocols.nwp.queries import AGGREGATE_REF, Reading, records
from portico.query import MAX_LIMIT, Page, Query
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Observe, nowhere

CURSOR_SECONDS: Final = 3600.0
NAMES_BYTES: Final = 2 * MAX_NAMED * MAX_NAME
USUAL_ID: Final = 36  # characters of a UUID
BUDGET_REASON: Final = "token_budget"
FALLBACK: Final = "fallback"  # four bytes are a token, though a tokenizer was named: unknown here, or too slow
CURSOR_BYTES: Final = 400  # of a cursor that an envelope has room for; one that sorts by long texts is longer
STREAM_BYTES: Final = 32_000  # of the records in one part of a stream
TRIES: Final = 4  # to make a page small enough, while others write

Shown = Sequence[Mapping[str, Any]]


class Asking(msgspec.Struct, frozen=True):
    """One request, as its transport understood it."""

    caller: Caller
    node: Node
    base: str  # the address of the site
    id: str  # of the request, told again with the answer
    tier: Tier = Tier.JSON
    largest: int | None = None  # bytes from which on an answer is split, except within a record; None: never
    budget: int | None = None
    tokenizers: tuple[str, ...] = ()
    depth: int | None = None
    trace: tuple[str, ...] = ()  # nodes that the question came through
    is_named: bool = False  # whether the caller chose the id, beside the frame
    portion: int = STREAM_BYTES  # bytes of the records in one part of a stream, except for a record that has more
    max_payload: int | None = None  # bytes that a frame may have at all; a larger record is shortened; None: any number

    @property
    def envelope(self) -> int:
        """The bytes of an answer besides its records: a stream has its id twice."""
        return ENVELOPE if len(self.id) <= USUAL_ID else ENVELOPE + 2 * len(encode_value(self.id, Tier.JSON))

    def with_frame(self, frame: QueryFrame) -> "Asking":
        """What the frame says where the transport said nothing; of two budgets the smaller."""
        warrant = self.caller.warrant
        if warrant is None and frame.token_budget is None and frame.tokenizer is None and frame.depth is None:
            return self
        budgets = [each for each in (self.budget, frame.token_budget, warrant.budget if warrant else None) if each]
        counted = (*self.tokenizers, frame.tokenizer or "", warrant.tokenizer if warrant else "")
        depth = self.depth if self.depth is not None else frame.depth
        named = tuple(filter(None, counted))
        return msgspec.structs.replace(self, budget=min(budgets, default=None), tokenizers=named, depth=depth)

    def counted(self, cost: Cost) -> Cost:
        """What an answer costs, with what counted it for a caller who had named a tokenizer."""
        return replace(cost, tokenizer=FALLBACK) if self.tokenizers and not cost.tokenizer else cost


@dataclass(frozen=True, slots=True)
class Answer:
    """A frame to send, and what is said of it beside."""

    frame: CapsFrame
    cost: Cost | None = None
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """Shown as they are sent."""

    data: bytes
    count: int
    cost: Cost
    trimmed: Trimmed | None = None
    sizes: tuple[int, ...] = ()  # of each record, where they are more than fit
    reason: str = BUDGET_REASON  # why something was left out


@dataclass(frozen=True, slots=True)
class Understood:
    """What a frame means on a node as it is."""

    frame: QueryFrame
    meant: Meant
    query: Query

    def carried(self, tier: Tier) -> int:
        """The bytes of what is sent along."""
        inline = self.meant.inline
        return len(encode_value(inline, tier)) if inline else 0


class Exchange:
    def __init__(
        self, site: Site, config: Config, callbacks: Callbacks | None = None, observe: Observe = nowhere
    ) -> None:
        self.site = site
        self.config = config
        self.nodes = Nodes(site, config)
        self.anchors = Anchors(site)
        self.warrants = Warrants(config)
        self.graph = Graph(self, callbacks or Callbacks(config.allow_hosts), observe)
        self._streams: Counter[str] = Counter()

    # Queries

    async def query(self, frame: QueryFrame, asking: Asking) -> Answer:
        asking = asking.with_frame(frame)
        understood = await self._understood(frame, asking)
        return await self._made(understood, asking, await self.site.query(understood.query, asking.caller))

    async def _made(self, understood: Understood, asking: Asking, page: Page) -> Answer:
        """The answer that a page is."""
        walk = self.graph.walk(understood.frame, asking)
        carried = understood.carried(asking.tier) + (walk.least if walk else 0)
        page, written = await self._fitting(understood.query, page, asking, carried)
        taken = asking.envelope + carried + len(written.data) + _excess(page.cursor)
        spare = asking.largest - taken if asking.largest else None
        reached = await walk.entries(spare, written.cost.tokens) if walk else None
        return self._capsule(understood, asking, page, written, reached)

    def _capsule(
        self,
        understood: Understood,
        asking: Asking,
        page: Page,
        written: Written,
        reached: GraphResult | None,
    ) -> Answer:
        meant = understood.meant
        together = total(written.cost, reached.cost) if reached and reached.entries else written.cost
        spent = asking.counted(together)
        # Records that were counted or trimmed for this request are not what was sent before.
        is_cached = page.is_cached and not asking.budget and not asking.tokenizers
        answer = CapsFrame(
            anchor_ref=AGGREGATE_REF if understood.query.aggregate else meant.anchor.id,
            count=written.count,
            data=msgspec.Raw(written.data),
            next_cursor=self._sealed(page.cursor, meant.anchor.id, asking.caller),
            token_est=spent.tokens,
            tokenizer_used=spent.tokenizer or None,
            cached=is_cached or None,
            inline_anchor=meant.inline,
            request_id=asking.id if understood.frame.request_id or asking.is_named else None,
            trimmed=_told(written, reached),
            graph=reached.entries if reached else None,
        )
        return Answer(answer, spent, is_cached)

    async def _understood(self, frame: QueryFrame, asking: Asking, *, is_stream: bool = False) -> Understood:
        """What a frame asks for."""
        async with self.site.gate.charging(asking.caller):
            self._check(asking, is_stream=is_stream)
            await self.anchors.publish(asking.node)
            is_patient = frame.auto_anchor is not False
            meant = await self.anchors.meant(asking.node, frame.anchor_ref, is_patient=is_patient)
            query = self.reading(asking.node, meant.collection).query(frame)
            understood = _without_large_schema(Understood(frame, meant, query), asking)
            if not frame.cursor:
                return understood
            cursor = self._unsealed(frame.cursor, meant.anchor.id, asking.caller)
            return replace(understood, query=replace(query, cursor=cursor))

    def _check(self, asking: Asking, *, is_stream: bool) -> None:
        self.warrants.check(asking, QUERY)
        if is_stream:
            self.warrants.check(asking, STREAM)
        self._check_depth(asking)
        self.graph.check(asking)
        if not self.nodes.may(asking.node, "query"):
            raise UnknownNode(f"{asking.node.name} is not queried", node=asking.node.name)
        if is_stream and not self.nodes.may(asking.node, "stream_query"):
            raise StreamUnsupported("This node does not stream")

    def reading(self, node: Node, collection: str) -> Reading:
        return Reading(
            self.site.catalog.collection(collection),
            self.site.vectors(collection),
            may_aggregate=self.nodes.may(node, "aggregate"),
            may_compare=self.nodes.may(node, "vector_search"),
            lenient=self.config.nwp.lenient,
        )

    def _check_depth(self, asking: Asking) -> None:
        if asking.depth is not None and asking.depth > MAX_DEPTH:
            raise DepthExceeded(f"A query goes at most {MAX_DEPTH} hops", depth=asking.depth, max_depth=MAX_DEPTH)

    def _sealed(self, cursor: str, anchor: str, caller: Caller) -> str | None:
        """A cursor for this caller, as long as records have this schema."""
        return self.site.seal({"at": cursor, "of": _short(anchor)}, caller, CURSOR_SECONDS) if cursor else None

    def _unsealed(self, cursor: str, anchor: str, caller: Caller) -> str:
        said = self.site.unseal(cursor, caller)
        if said is None or not isinstance(said.get("at"), str) or said.get("of") != _short(anchor):
            raise InvalidCursor(
                "The cursor is not one of yours, has expired, or is from before the schema changed",
                hint="Start again without a cursor.",
            )
        return said["at"]

    async def _fitting(self, query: Query, page: Page, asking: Asking, carried: int) -> tuple[Page, Written]:
        """As much of a page as the caller can take. A shorter page has a cursor that leads to the rest."""
        counter = tokenizer(*asking.tokenizers)
        space = asking.largest - asking.envelope - carried - _names_room(asking) if asking.largest else None
        asked, is_cut = page.length, False
        for _ in range(TRIES):
            room = None if space is None else space - _excess(page.cursor)
            written = await _write_page(page, query, asking, counter, room)
            kept = _that_fit(written.sizes, room) if written.sizes and room is not None else written.count
            if kept == page.length:
                written = _with_loss(written, asked - kept if is_cut else 0)
                most = _frame_room(asking, carried + _excess(page.cursor))
                if most is not None and len(written.data) > most:
                    _check_cursor(page.cursor, asking)
                    written = await _shorten_record(written, records(page, query), asking.tier, most, query)
                return page, written
            is_cut = is_cut or written.count < page.length
            page = await self.site.beside(query, kept)
        raise Unavailable("The records change faster than they can be sent", hint="Ask for fewer.")

    # Streams

    async def stream(self, frame: QueryFrame, asking: Asking) -> AsyncGenerator[StreamFrame]:
        """All that a query finds, part by part. A cursor is let be: a stream begins at the beginning."""
        asking = asking.with_frame(frame)
        whole = msgspec.structs.replace(frame, cursor=None) if frame.cursor else frame
        understood = await self._understood(whole, asking, is_stream=True)
        meant, query = understood.meant, understood.query
        first = {"anchor_ref": AGGREGATE_REF if query.aggregate else meant.anchor.id, "inline_anchor": meant.inline}
        asked = replace(query, count=True, limit=MAX_LIMIT if query.aggregate else query.limit)
        sent = 0
        async with self._counted(asking.caller), aclosing(self._parts(asked, asking, first)) as parts:
            try:
                async for part in parts:
                    yield part
                    sent += 1
            except SiteError as error:
                if not sent:
                    raise
                code = code_of(error).error
                yield StreamFrame(stream_id=asking.id, seq=sent, is_last=True, data=[], error_code=code)

    async def _parts(self, query: Query, asking: Asking, first: dict[str, Any]) -> AsyncGenerator[StreamFrame]:
        """The parts of a stream. A schema that the first one carries takes room from the records of the first page."""
        counter, sent = tokenizer(*asking.tokenizers), 0
        carried = len(encode_value(first["inline_anchor"], asking.tier)) if first["inline_anchor"] else 0
        async with aclosing(self.site.pages(query, asking.caller)) as pages:
            async for page in pages:
                found = _portions(records(page, query), asking, counter, query, 0 if sent else carried)
                async with aclosing(found) as portions:
                    async for written, is_end in portions:
                        said = {} if sent else {**first, "estimated_total": _total(page)}
                        yield _part(written, asking, sent, is_last=is_end and not page.cursor, **said)
                        sent += 1

    @asynccontextmanager
    async def _counted(self, caller: Caller) -> AsyncGenerator[None]:
        """Hold one of the streams that a caller may have at once."""
        key, most = caller.rate_key, self.config.nwp.streams
        if self._streams[key] >= most:
            await self.site.gate.spend(caller)
            raise StreamLimit(f"{most} streams at once are allowed", limit=most, hint="End one of them.")
        self._streams[key] += 1
        try:
            yield
        finally:
            self._streams[key] -= 1
            if not self._streams[key]:
                del self._streams[key]


def _write(
    made: Shown,
    tier: Tier,
    budget: int | None,
    counter: Tokenizer | None,
    room: int | None,
    query: Query,
) -> Written:
    trimmed = trim(made, budget, counter, _groups(query), _asked_for(query)) if budget else None
    shown: Shown = trimmed.records if trimmed else made
    data = encode_value(shown, tier)
    is_over = room is not None and len(data) > room and len(shown) > 1
    sizes = _sizes(shown, tier) if is_over else ()
    if trimmed:
        return Written(data, len(shown), trimmed.cost, None if trimmed.is_whole else trimmed, sizes)
    counted = data if tier == Tier.JSON else encode_value(shown, Tier.JSON)
    # What is over will be written again, shorter: it need not be counted well.
    return Written(data, len(shown), cost(counted, None if is_over else counter), sizes=sizes)


async def _write_page(page: Page, query: Query, asking: Asking, counter: Tokenizer | None, room: int | None) -> Written:
    made = records(page, query)
    if asking.budget or counter:
        return await _write_counted(made, asking, counter, room, query)
    return _write(made, asking.tier, None, None, room, query)


async def _write_counted(
    made: Shown, asking: Asking, counter: Tokenizer | None, room: int | None, query: Query
) -> Written:
    """Write while others go on: to count a long page takes a while, and to trim it is to count it several times."""
    return await asyncio.to_thread(_write, made, asking.tier, asking.budget, counter, room, query)


async def _portions(
    made: Shown, asking: Asking, counter: Tokenizer | None, query: Query, carried: int
) -> AsyncGenerator[tuple[Written, bool]]:
    """Shown in portions that can be taken at once, and whether one is the last; of no records one empty portion."""
    most_together = min(asking.portion, asking.largest - asking.envelope) if asking.largest else asking.portion
    room = most_together - carried
    most = _frame_room(asking, carried)
    sizes, begin, is_end = _sizes(made, asking.tier), 0, False
    while not is_end:
        portion = made[begin : begin + _that_fit(sizes[begin:], room)]
        if asking.budget or counter:
            written = await _write_counted(portion, asking, counter, None, query)
        else:
            written = _write(portion, asking.tier, None, None, None, query)
        if most is not None and len(written.data) > most:
            written = await _shorten_record(written, portion, asking.tier, most, query)
        begin += written.count
        is_end = begin >= len(made)
        yield _with_loss(written, 0), is_end  # what was left out of this one comes with the next


def _part(written: Written, asking: Asking, seq: int, *, is_last: bool, **first: Any) -> StreamFrame:
    return StreamFrame(
        stream_id=asking.id,
        seq=seq,
        is_last=is_last,
        data=msgspec.Raw(written.data),
        request_id=asking.id if first else None,
        token_est=written.cost.tokens,
        trimmed=_told(written),
        **first,
    )


def _with_loss(written: Written, records: int) -> Written:
    """What is sent, with this number of records that the budget left out."""
    if written.trimmed is None and not records:
        return written
    trimmed = replace(written.trimmed or Trimmed([], written.cost), dropped_records=records)
    return replace(written, trimmed=None if trimmed.is_whole else trimmed)


async def _shorten_record(written: Written, made: Shown, tier: Tier, room: int, query: Query) -> Written:
    """Shorten the only record of an answer, which is larger than the caller's frames."""
    before = written.trimmed or Trimmed([*map(dict, made)], written.cost)
    fitted = await asyncio.to_thread(fit_records, before.records, room, tier, _groups(query), _asked_for(query))
    return Written(encode_value(fitted.records, tier), 1, fitted.cost, combine(before, fitted), reason=FRAME_SIZE)


def _without_large_schema(understood: Understood, asking: Asking) -> Understood:
    """Leave a schema out that would take more than half a frame: its id is in the answer, and HTTP serves it."""
    meant = understood.meant
    if meant.inline is None or asking.max_payload is None or understood.carried(asking.tier) <= asking.max_payload // 2:
        return understood
    return replace(understood, meant=replace(meant, inline=None))


def _names_room(asking: Asking) -> int:
    """Return the bytes to leave for the names of fields that a budget may cost an answer."""
    return min(NAMES_BYTES, (asking.largest or 0) // 8) if asking.budget else 0


def _check_cursor(cursor: str, asking: Asking) -> None:
    """Refuse a page whose cursor takes a frame by itself: it has the values that the page is sorted by."""
    if asking.max_payload is not None and _excess(cursor) > asking.max_payload // 2:
        raise TooLarge(
            f"The cursor to the next page has {2 * len(cursor)} bytes, which no frame has room for",
            limit=asking.max_payload,
            hint="Use `stream`, which needs no cursor, or sort and group by shorter values.",
        )


def _frame_room(asking: Asking, carried: int) -> int | None:
    """Return the bytes that a frame has for records; None if there is no bound."""
    return None if asking.max_payload is None else asking.max_payload - asking.envelope - carried


def _groups(query: Query) -> tuple[str, ...]:
    """The fields that a row is known by."""
    return query.aggregate.group_by if query.aggregate else ()


def _asked_for(query: Query) -> frozenset[str]:
    """Return the fields that a caller named: values of an aggregate, or fields, which may be paths into others."""
    if query.aggregate:
        return frozenset(each.alias for each in query.aggregate.operations)
    return frozenset((*query.fields, *(name.partition(".")[0] for name in query.fields)))


def _sizes(made: Shown, tier: Tier) -> tuple[int, ...]:
    return tuple(len(encode_value(each, tier)) + 1 for each in made)


def _that_fit(sizes: Sequence[int], room: int) -> int:
    """How many records fit: at least one, which is then sent as it is."""
    return max(1, bisect_right(tuple(accumulate(sizes)), room - 1))


def _short(anchor: str) -> str:
    """Enough of a schema's name to tell it from another."""
    return anchor[-16:]


def _excess(cursor: str) -> int:
    """The bytes that a cursor takes beyond those there are for it, once it is sealed."""
    return max(0, 2 * (len(cursor) - CURSOR_BYTES))


def _told(written: Written, reached: GraphResult | None = None) -> dict[str, Any] | None:
    lost = name_fields("dropped_nodes", reached.dropped) if reached and reached.dropped else {}
    if written.trimmed is None and not lost:
        return None
    return {**describe_trimming(written.trimmed or Trimmed([], written.cost), written.reason), **lost}


def _total(page: Page) -> int:
    return -1 if page.total is None else page.total
