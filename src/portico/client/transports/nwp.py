"""A client for NWP 0.4, with asyncio: queries, streams, actions and subscriptions. Needs nothing of the server.

    async with NwpClient("http://127.0.0.1:8000", node="recipes") as recipes:
        async for record in recipes.records(filter={"prepTime": {"$lte": "PT10M"}}, order=["name"]): ...

A transport takes frames to a node and back, over HTTP or natively. Everything else is here, once for both.
"""

import asyncio
import hashlib
import ssl as tls
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Literal, Self, TypeAlias, TypedDict, Unpack, cast

import httpx
import msgspec
import rfc8785

from portico.client import BadAnswer, ClientError, NotReached
from portico.client.client import MAX_FAILED_CHECKS, MAX_PAUSE, PAUSE_GROWTH
from portico.client.transports.http import MAX_RESPONSE_BYTES, TIMEOUT
from portico.client.transports.nwp_http import (
    FeedExpired,
    HttpNodeTransport,
    Ident,
    NodeCredentials,
    NodeTransport,
    NwpError,
    address,
    certificate_of,
    http_client,
)
from portico.client.transports.nwp_native import NativeNodeTransport
from portico.protocols.nwp.frames import (
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    EncodingTier,
    Frame,
    FrameError,
    OrderKey,
    QueryFrame,
    RecordReader,
    Records,
    StreamFrame,
    SubscribeFrame,
    VectorSearch,
    decode_as,
    row_type,
)

__all__ = [
    "Anchor",
    "Answer",
    "Change",
    "FeedExpired",
    "Ident",
    "Manifest",
    "NativeNwpClient",
    "Node",
    "NwpClient",
    "NwpError",
    "Part",
    "QueryOptions",
    "Task",
    "VectorSearch",
    "certificate_of",
]

HEARTBEAT: Final = 30.0  # seconds between the heartbeats of a silent subscription
FIRST_PAUSE: Final = 0.1  # seconds; the first attempt to resume a subscription has none
NOT_MODIFIED: Final = 304
UNSUBSCRIBE_SECONDS: Final = 5.0  # to unsubscribe when the iterator is closed
MAX_CACHED_SCHEMAS: Final = 64  # schemas
FINAL: Final = frozenset({"completed", "failed", "cancelled"})
STATUS, CANCEL = "system.task.status", "system.task.cancel"
# Statuses after which a request is worth repeating.
_TEMPORARY: Final = frozenset({"NPS-SERVER-UNAVAILABLE", "NPS-LIMIT-RATE"})

TierName: TypeAlias = Literal["msgpack", "json"]
Record: TypeAlias = Any
"""A mapping; with `rows`, an object that has the fields of the schema as attributes."""


# Responses


@dataclass(frozen=True, slots=True)
class Anchor:
    """A schema and its ID, which is its hash."""

    id: str
    schema: Mapping[str, Any]
    ttl: int = 3600  # seconds

    @property
    def fields(self) -> dict[str, str]:
        """The type of each field."""
        return {field["name"]: field["type"] for field in self.schema["fields"]}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a node. Everything is in `data`."""

    data: Mapping[str, Any]

    @property
    def version(self) -> str:
        return str(self.data.get("manifest_version", ""))

    @property
    def node_id(self) -> str:
        return str(self.data.get("node_id", ""))

    @property
    def node_type(self) -> str:
        return str(self.data.get("node_type", ""))

    @property
    def capabilities(self) -> Mapping[str, bool]:
        return self.data.get("capabilities", {})

    @property
    def anchors(self) -> Mapping[str, str]:
        """The IDs of its schemas, by name."""
        return self.data.get("schema_anchors", {})


@dataclass(frozen=True, slots=True)
class Answer:
    """Records, and the cursor of the next page."""

    records: tuple[Record, ...]
    anchor: str  # the ID of their schema
    next_cursor: str = ""
    tokens: int | None = None
    tokenizer: str = ""
    trimmed: Mapping[str, Any] | None = None  # what was left out to stay within the budget
    inline: Anchor | None = None  # the current schema, if the one in the request is outdated
    graph: tuple[Mapping[str, Any], ...] = ()
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A batch of the records of a stream, in order."""

    seq: int
    records: tuple[Record, ...]
    is_last: bool
    total: int | None = None  # in the first part, if the node knows it
    trimmed: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """An action that runs in the background. It has a result when completed, and an error when failed."""

    id: str
    status: str
    progress: float = 0.0  # 0 to 1
    result: Any = None
    error: Mapping[str, Any] | None = None
    estimated: float | None = None  # seconds
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_final(self) -> bool:
        return self.status in FINAL


@dataclass(frozen=True, slots=True)
class Change:
    """A record was created, updated or deleted; `patch` (JSON Patch) applies the change to a copy."""

    seq: int
    kind: str  # create, update or delete
    id: str
    patch: tuple[Mapping[str, Any], ...]
    at: str
    anchor: str
    trimmed: Mapping[str, Any] | None = None  # what was left out of the patch because it exceeds a frame

    @property
    def record(self) -> Mapping[str, Any] | None:
        """The whole record, if it was created."""
        return self.patch[0].get("value") if self.kind == "create" and self.patch else None


# Requests


class QueryOptions(TypedDict, total=False):
    """The options of a query."""

    filter: Mapping[str, Any]  # {"price": {"$lt": 20}}
    fields: Sequence[str]
    order: Sequence[str]  # "price", or "-price" for descending
    limit: int
    cursor: str
    aggregate: Mapping[str, Any]  # {"operations": [{"func": "COUNT", "alias": "n"}], "group_by": [], "having": {}}
    vector: VectorSearch
    budget: int  # tokens that an answer may cost
    tokenizer: str
    depth: int  # hops into the graph
    anchor: str  # the ID of the expected schema; default: the one in the cache of this client
    auto_anchor: bool  # False: fail if the schema is outdated, instead of sending the new one
    rows: bool  # records as objects with the fields as attributes, which are faster to decode


def _query_frame(options: QueryOptions, anchor: str | None, *, stream: bool = False) -> QueryFrame:
    keys = options.get("order", ())
    order = [
        OrderKey(key.removeprefix("-"), "DESC" if key.startswith("-") else "ASC")
        for key in ((keys,) if isinstance(keys, str) else keys)
    ]
    return QueryFrame(
        anchor_ref=anchor,
        auto_anchor=options.get("auto_anchor"),
        stream=stream or None,
        aggregate=options.get("aggregate"),
        filter=options.get("filter"),
        fields=list(options.get("fields", ())) or None,
        limit=options.get("limit"),
        cursor=options.get("cursor") or None,
        order=order or None,
        vector_search=options.get("vector"),
        token_budget=options.get("budget"),
        tokenizer=options.get("tokenizer"),
        depth=options.get("depth"),
        request_id=str(uuid.uuid4()),
    )


# Parsing of frames


def expect_caps(frame: Frame) -> CapsFrame:
    if not isinstance(frame, CapsFrame):
        raise BadAnswer(f"The answer is not NWP: a frame of type 0x{frame.TYPE:02X} is unexpected")
    return frame


def _records(frame: CapsFrame | StreamFrame) -> tuple[Any, ...]:
    rows: Any = frame.data
    if not isinstance(rows, list | Records):
        raise BadAnswer("The answer is not NWP: the records are not a list")
    try:
        return tuple(cast("Sequence[Any]", rows))
    except FrameError as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error


def _first(frame: CapsFrame) -> Mapping[str, Any]:
    row = next(iter(_records(frame)), None)
    if not isinstance(row, dict):
        raise BadAnswer("The answer is not NWP: it has no record")
    return cast("Mapping[str, Any]", row)


def verify_anchor(frame: AnchorFrame) -> Anchor:
    """Return the schema of a frame. Raise if its ID is not its hash, for then it could be any schema."""
    try:
        hashed = hashlib.sha256(rfc8785.dumps(frame.schema)).hexdigest()
        msgspec.convert(frame.schema, _Schema)
    except (rfc8785.CanonicalizationError, msgspec.ValidationError) as error:
        raise BadAnswer(f"The schema is invalid: {error}") from error
    if frame.anchor_id != f"sha256:{hashed}":
        raise BadAnswer(f"The schema is not the one that {frame.anchor_id[:80]!r} names")
    return Anchor(frame.anchor_id, frame.schema, frame.ttl)


class _Field(msgspec.Struct, frozen=True):
    name: str
    type: str


class _Schema(msgspec.Struct, frozen=True):
    fields: list[_Field]


def row_of(anchor: Anchor) -> type[msgspec.Struct]:
    """Return a type for the records of a schema. All fields are optional, since a query may select some."""
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in anchor.fields.items()]
    return row_type({"fields": fields})


def _patch(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[Any]", value)):
        raise BadAnswer("The answer is not NWP: a patch must be a list of objects")
    return tuple(cast("list[Mapping[str, Any]]", value))


def _number(value: Any) -> float:
    """Return a number from a node; 0 if it is missing."""
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise BadAnswer("The answer is not NWP: a number is invalid")
    return value


def _task(data: Mapping[str, Any]) -> Task:
    match data:
        case {"task_id": str() as id, "status": str() as status}:
            estimate = data.get("estimated_ms")
            return Task(
                id,
                status,
                _number(data.get("progress")),
                data.get("result"),
                data.get("error"),
                estimate / 1000 if isinstance(estimate, int) else None,
                data,
            )
        case _:
            raise BadAnswer("The answer is not NWP: a task must have a task_id and a status")


class _SequenceGap(ClientError):
    """Changes of a subscription are missing."""


class _SubscriptionState:
    """The state of a subscription. Returns each change once, however often it arrives."""

    def __init__(self, request: SubscribeFrame) -> None:
        self._request = request
        self._is_acknowledged = False
        self._failures = 0  # failed attempts in a row
        self.last_seq = request.resume_from_seq  # of the last change; None before the subscription exists

    def frame(self) -> SubscribeFrame:
        """Return the request that starts the subscription, or resumes it after the last change."""
        self._is_acknowledged = False
        return msgspec.structs.replace(self._request, resume_from_seq=self.last_seq)

    def take(self, frame: Frame) -> Change | None:
        match frame:
            case CapsFrame() if not self._is_acknowledged:
                self._is_acknowledged = True
                if self.last_seq is None:
                    self.last_seq = int(_number(_first(frame).get("last_seq")))
                return None
            case DiffFrame(seq=int() as seq) if self._is_acknowledged and self.last_seq is not None:
                return self._change(frame, seq, self.last_seq)
            case _:
                return None  # meant for an earlier iterator

    def _change(self, frame: DiffFrame, seq: int, last: int) -> Change | None:
        is_ping = frame.event_type in {"ping", "heartbeat"}
        if seq > last + (not is_ping):
            raise _SequenceGap(f"Changes {last + 1} to {seq} are missing")
        self._failures = 0
        if is_ping or seq <= last:
            return None
        self.last_seq = seq
        patch = _patch(frame.patch)
        details = frame.event_type or "update", frame.entity_id or "", patch, frame.timestamp or ""
        return Change(seq, *details, frame.anchor_ref, frame.trimmed)

    def may_go_on(self, error: ClientError) -> bool:
        is_taken = isinstance(error, NwpError) and error.details.get("reason") == "taken_over"
        return (
            self.last_seq is not None and not is_taken and _is_temporary(error) and self._failures < MAX_FAILED_CHECKS
        )

    async def pause(self) -> None:
        await asyncio.sleep(min(FIRST_PAUSE * (2**self._failures - 1), MAX_PAUSE))
        self._failures += 1


# The clients


class Node:
    """A node of any server of NWP 0.4, over any transport."""

    def __init__(self, transport: NodeTransport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._manifest: Manifest | None = None
        self._tag = ""
        self._anchor: Anchor | None = None  # the schema of the node's records
        self._anchors: dict[str, Anchor] = {}
        self._readers: dict[str, RecordReader] = {}
        self._ended: set[str] = set()  # subscriptions that were cancelled while they are iterated

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # Descriptions

    async def manifest(self) -> Manifest:
        """Return the manifest. It is cached, and fetched again only if it has changed."""
        document = await self._transport.get(".nwm", **({"if-none-match": self._tag} if self._manifest else {}))
        if self._manifest is None or document.status != NOT_MODIFIED:
            self._manifest = Manifest(_object(document.body))
            self._tag = document.tag or f'"{self._manifest.version}"'
        return self._manifest

    async def schema(self, anchor: str = "") -> Anchor:
        """Return the schema of the records, or another by name or ID. Raise BadAnswer if its ID is not its hash."""
        query = f"?{httpx.QueryParams({'anchor': anchor})}" if anchor else ""
        document = await self._transport.get(f".schema{query}")
        try:
            schema = self._cache_anchor(verify_anchor(decode_as(AnchorFrame, document.body, EncodingTier.JSON)))
        except FrameError as error:
            raise BadAnswer(f"The schema is invalid: {error}") from error
        if not anchor:
            self._anchor = schema
        return schema

    async def actions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the actions by ID."""
        return _object((await self._transport.get("actions")).body).get("actions", {})

    # Queries

    async def query(self, **options: Unpack[QueryOptions]) -> Answer:
        """Return one page. If the schema has changed, the new one is used from now on."""
        anchor = await self._reference(options)
        reader = self._reader_for(options, anchor)
        request = _query_frame(options, anchor and anchor.id)
        frame = expect_caps(await self._transport.ask("query", request, self._timeout, reader))
        if anchor and reader:
            return self._answer(self._with_typed_records(frame, anchor, reader))
        answer = self._answer(frame)
        if not all(isinstance(record, dict) for record in answer.records):
            raise BadAnswer("The answer is not NWP: a record is not an object")
        return answer

    async def pages(self, **options: Unpack[QueryOptions]) -> AsyncGenerator[Answer]:
        """Yield all pages in order."""
        while True:
            answer = await self.query(**options)
            yield answer
            if not answer.next_cursor:
                return
            if answer.next_cursor == options.get("cursor"):
                raise BadAnswer("The cursor of the next page is that of this page")
            options["cursor"] = answer.next_cursor
            if answer.inline and "anchor" in options:
                options["anchor"] = answer.inline.id

    async def records(self, **options: Unpack[QueryOptions]) -> AsyncGenerator[Record]:
        """Yield the records of all pages."""
        async with aclosing(self.pages(**options)) as pages:
            async for page in pages:
                for record in page.records:
                    yield record

    async def stream(self, **options: Unpack[QueryOptions]) -> AsyncGenerator[Part]:
        """Yield all results of a query in parts. Closing the stream cancels the work of the node."""
        anchor = await self._reference(options)
        frame = _query_frame(options, anchor and anchor.id, stream=True)
        reader = self._reader_for(options, anchor)
        due = 0
        async with aclosing(self._transport.frames("stream", frame, self._timeout, reader)) as frames:
            async for item in frames:
                part = _part(item, reader, due)
                yield part
                if part.is_last:
                    return
                due += 1
        raise NotReached("The stream ended early")

    async def _reference(self, options: QueryOptions) -> Anchor | None:
        """Return the schema of a query. It is fetched only if needed."""
        id = options.get("anchor")
        if id and options.get("rows"):
            return self._anchors.get(id) or await self.schema(id)
        if id:
            return Anchor(id, {})
        if self._anchor is None and (options.get("rows") or not self._transport.is_addressed):
            return await self.schema()
        return self._anchor

    def _with_typed_records(self, frame: CapsFrame, anchor: Anchor, reader: RecordReader) -> CapsFrame:
        """Decode the records with their schema: the cached one, or the new one in the frame."""
        if frame.anchor_ref != anchor.id and frame.inline_anchor:
            anchor = self._cache_anchor(verify_anchor(frame.inline_anchor))
            reader = self._reader(anchor)
        if frame.anchor_ref != anchor.id:
            raise BadAnswer("The records are not as their schema says")
        return msgspec.structs.replace(frame, data=_read(reader, frame))

    def _reader_for(self, options: QueryOptions, anchor: Anchor | None) -> RecordReader | None:
        """Return the decoder of the records, if the query asks for rows and their schema is known."""
        return self._reader(anchor) if anchor and options.get("rows") and not options.get("aggregate") else None

    def _reader(self, anchor: Anchor) -> RecordReader:
        reader = self._readers.get(anchor.id)
        if reader is None:  # creating a type is slow
            reader = self._readers[anchor.id] = RecordReader(row_of(anchor), anchor.id)
        return reader

    def _cache_anchor(self, anchor: Anchor) -> Anchor:
        if len(self._anchors) >= MAX_CACHED_SCHEMAS:
            self._anchors.clear()
            self._readers.clear()
        self._anchors[anchor.id] = anchor
        return anchor

    def _answer(self, frame: CapsFrame) -> Answer:
        inline = self._cache_anchor(verify_anchor(frame.inline_anchor)) if frame.inline_anchor else None
        if inline and self._anchor:
            self._anchor = inline
        return Answer(
            _records(frame),
            frame.anchor_ref,
            frame.next_cursor or "",
            frame.token_est,
            frame.tokenizer_used or "",
            frame.trimmed,
            inline,
            tuple(frame.graph or ()),
            frame.request_id or "",
        )

    # Actions

    async def invoke(
        self,
        action: str,
        params: Mapping[str, Any] | None = None,
        *,
        run_async: bool = False,
        key: str = "",
        timeout: float | None = None,
        callback: str = "",
        priority: str = "",
    ) -> Answer | Task:
        """Invoke an action. Return its result, or with `run_async` its task. A `key` makes it safe to repeat."""
        frame = ActionFrame(
            action_id=action,
            params=dict(params or {}),
            idempotency_key=key or None,
            timeout_ms=int(timeout * 1000) if timeout else None,
            is_async=run_async or None,
            callback_url=callback or None,
            priority=priority or None,
            request_id=str(uuid.uuid4()),
        )
        response = expect_caps(await self._transport.ask("invoke", frame, self._timeout + (timeout or 0.0)))
        return _task(_first(response)) if run_async else self._answer(response)

    async def task(self, id: str) -> Task:
        """Return the current state of a task."""
        return _task(await self._system(STATUS, id))

    async def cancel(self, id: str) -> None:
        """Cancel a task. Raise NwpError if it has already ended."""
        await self._system(CANCEL, id)

    async def wait(
        self, task: Task | str, on_progress: Callable[[Task], None] | None = None, every: float = 0.5
    ) -> Task:
        """Poll a task until it has ended, with growing pauses that begin at `every` seconds."""
        id, pause, missed = task if isinstance(task, str) else task.id, every, 0
        while True:
            try:
                current = await self.task(id)
                missed = 0
            except (NotReached, NwpError) as error:
                if not _is_temporary(error) or missed >= MAX_FAILED_CHECKS:
                    raise
                missed += 1
            else:
                if current.is_final:
                    return current
                if on_progress:
                    on_progress(current)
            await asyncio.sleep(pause)
            pause = max(every, min(pause * PAUSE_GROWTH, MAX_PAUSE))

    async def _system(self, action: str, id: str) -> Mapping[str, Any]:
        frame = ActionFrame(action_id=action, params={"task_id": id}, request_id=str(uuid.uuid4()))
        return _first(expect_caps(await self._transport.ask("invoke", frame, self._timeout)))

    # Subscriptions

    async def subscribe(
        self,
        *,
        filter: Mapping[str, Any] | None = None,
        anchor: str = "",
        heartbeat: int | None = None,
        stream_id: str = "",
        after: int | None = None,
    ) -> AsyncGenerator[Change]:
        """Yield changes as they happen, each once. A lost connection or a gap is repaired by resuming.

        With a `stream_id` of your own, the subscription outlives this iterator, and `after` resumes it later.
        """
        id = stream_id or str(uuid.uuid4())
        schema = await self._reference({"anchor": anchor} if anchor else {})
        feed = _SubscriptionState(_subscribe(id, schema, filter, heartbeat, after))
        patience = None if heartbeat == 0 else self._timeout + (heartbeat or HEARTBEAT)
        try:
            while id not in self._ended:
                try:
                    async with aclosing(self._changes(feed, patience)) as changes:
                        async for change in changes:
                            yield change
                except (NotReached, NwpError, _SequenceGap) as error:
                    if not feed.may_go_on(error):
                        raise
                await feed.pause()
        finally:
            self._ended.discard(id)
            if not stream_id and feed.last_seq is not None:
                with suppress(ClientError):
                    await self._send_subscribe("unsubscribe", id, UNSUBSCRIBE_SECONDS)

    async def _changes(self, feed: _SubscriptionState, patience: float | None) -> AsyncGenerator[Change]:
        async with aclosing(self._transport.frames("subscribe", feed.frame(), patience)) as frames:
            async for item in frames:
                if change := feed.take(item):
                    yield change
        if feed.last_seq is None:
            raise BadAnswer("The answer is not NWP: the subscription was not acknowledged")

    async def unsubscribe(self, stream_id: str) -> None:
        """End a subscription. An iterator over it on this client ends, too."""
        self._ended.add(stream_id)
        await self._send_subscribe("unsubscribe", stream_id, self._timeout)

    async def ping(self, stream_id: str) -> int:
        """Return the number of the newest change of a subscription, and keep the subscription alive."""
        return int(_number((await self._send_subscribe("ping", stream_id, self._timeout)).get("last_seq")))

    async def _send_subscribe(self, action: str, id: str, patience: float) -> Mapping[str, Any]:
        frame = SubscribeFrame(action=action, stream_id=id)
        return _first(expect_caps(await self._transport.ask("subscribe", frame, patience)))


def _subscribe(
    id: str, anchor: Anchor | None, filter: Mapping[str, Any] | None, heartbeat: int | None, after: int | None
) -> SubscribeFrame:
    return SubscribeFrame(
        action="subscribe",
        stream_id=id,
        anchor_ref=anchor and anchor.id,
        filter=filter,
        heartbeat_interval=heartbeat,
        resume_from_seq=after,
    )


def _is_temporary(error: ClientError) -> bool:
    """Return whether the request may succeed the next time."""
    return not isinstance(error, NwpError) or error.status in _TEMPORARY


def _read(reader: RecordReader, frame: CapsFrame | StreamFrame) -> list[Any]:
    try:
        return reader.read(frame.data)
    except FrameError as error:
        raise BadAnswer(f"The records are not as their schema says: {error}") from error


def _part(frame: Frame, reader: RecordReader | None, due: int) -> Part:
    if not isinstance(frame, StreamFrame):
        raise BadAnswer(f"The answer is not NWP: a frame of type 0x{frame.TYPE:02X} is not part of a stream")
    if frame.error_code:
        raise NwpError("", frame.error_code, "The node aborted the stream")
    if frame.seq != due:
        raise BadAnswer(f"The stream has a gap: part {due} is missing")
    total = frame.estimated_total if frame.estimated_total is not None and frame.estimated_total >= 0 else None
    rows = tuple(_read(reader, frame)) if reader else _records(frame)
    return Part(frame.seq, rows, frame.is_last, total, frame.trimmed)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error


class NwpClient(Node):
    """A node over HTTP. The URL is that of the node, or that of the site; then `node` is its name."""

    def __init__(
        self,
        url: str,
        *,
        node: str = "",
        key: str = "",
        ident: Ident | None = None,
        agent: str = "",
        tier: TierName = "msgpack",
        framed: bool = True,
        ssl: tls.SSLContext | None = None,
        timeout: float = TIMEOUT,
        largest: int = MAX_RESPONSE_BYTES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        credentials = NodeCredentials(key, certificate_of(ident) if ident else None, agent)
        http = http_client(address(url, node), credentials, timeout, transport=transport, verify=ssl)
        super().__init__(HttpNodeTransport(http, EncodingTier[tier.upper()], largest, framed=framed), timeout)


class NativeNwpClient(Node):
    """A node over a native connection that all requests share."""

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        node: str = "",
        ident: Ident | None = None,
        agent: str = "",
        tier: TierName = "msgpack",
        ssl: tls.SSLContext | None = None,
        timeout: float = TIMEOUT,
        largest: int = MAX_RESPONSE_BYTES,
    ) -> Self:
        """Open the connection to nwp://host:port, or nwp://host:port/node; over TLS with a context, or to nwps://."""
        if not url.startswith(("nwp://", "nwps://")):
            raise ValueError(f"{url!r} is not a native address: write nwp://127.0.0.1:17433")
        if ssl is None and url.startswith("nwps://"):
            ssl = httpx.create_ssl_context(trust_env=False)
        credentials, where = NodeCredentials("", certificate_of(ident) if ident else None, agent), address(url, node)
        http = http_client(where.copy_with(scheme="https" if ssl else "http"), credentials, timeout, verify=ssl)
        line = NativeNodeTransport(
            where,
            credentials,
            HttpNodeTransport(http, EncodingTier.JSON, largest),
            encodings=("json",) if tier == "json" else ("msgpack", "json"),
            largest=largest,
            timeout=timeout,
            tls=ssl,
        )
        try:
            await line.session()
        except BaseException:
            await http.aclose()
            raise
        return cls(line, timeout)
