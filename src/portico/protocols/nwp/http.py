"""NWP over HTTP: /nwp/{node} and the paths below it. Reads headers and bodies, and responds in the request's encoding.

A body is a frame with its header, or bare JSON or MessagePack, told apart by the first bytes. Errors are always JSON.
"""

import asyncio
import base64
import re
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from math import inf
from typing import Final, TypeAlias, TypeVar, cast

import msgspec
from cachetools import LRUCache
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.access.identity import RequestCredentials
from portico.config import Config
from portico.errors import BadRequest, SiteError
from portico.protocols.documents import VARY, document, preferred_media_type
from portico.protocols.edge import EdgePolicy, check_origin
from portico.protocols.http import (
    CALLER,
    EventStream,
    base_of,
    body_of,
    caller_of,
    credentials_of,
    pick_headers,
    start_stream,
)
from portico.protocols.nwp.actions import AcceptedTask, ActionService
from portico.protocols.nwp.anchors import anchor_frame
from portico.protocols.nwp.encodings import BARE, CAPSULE, FrameEncoding, encode_header_id, read_frame, request_id_of
from portico.protocols.nwp.errors import (
    NodeMethodNotAllowed,
    UnknownNode,
    VersionUnsupported,
    code_of,
    error_frame,
)
from portico.protocols.nwp.feeds import Feed, Feeds
from portico.protocols.nwp.frames import (
    MAX_ID,
    ActionFrame,
    EncodingTier,
    Frame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    encode,
    encode_value,
)
from portico.protocols.nwp.handshake import is_older
from portico.protocols.nwp.messages import ERROR, Headers, NodeRequest, NodeResponder, encode_error
from portico.protocols.nwp.nodes import INVOKE, MANIFEST, PREFIX, SITE, Node, node_of
from portico.protocols.nwp.page import NodeLink, NodeView, node_page
from portico.protocols.nwp.service import NodeResponse, NodeService, NwpRequestContext
from portico.protocols.nwp.settings import NwpSettings
from portico.requests import Caller
from portico.web.addresses import COLLECTIONS
from portico.web.style import HEADERS

LINES: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
JSON: Final = "application/json"
FRAMES: Final = ("application/nwp-frame", "application/x-nps-frame")
FRAMED_MEDIA_TYPES: Final = (*FRAMES, CAPSULE)
NWP_MEDIA_PREFIXES: Final = ("application/nwp-", "application/x-nps-")
BASE_CACHE_SIZE: Final = 64  # base URLs that the site was called by
NUMBER_HEADERS: Final = ("x-nwp-budget", "x-nwp-depth")
# Many clients take the bytes of one read for one frame. To make that mostly true, a frame of a stream is no larger than
# a TCP segment where its records allow it, and a pause after it leaves time to read it before the next one.
# A pause after every frame would bound the throughput: only clients that are known to need it, nps-lib, get that.
SEGMENT_RECORDS: Final = 1000  # bytes of records in a frame of 1,400 bytes, its chunk included
PACE_SECONDS: Final = 0.002
PACED_FRAMES: Final = 32
PACED_KIND: Final = "application/x-nps-frame"  # in Accept: clients that need the pause after every frame
LARGE_FRAMES: Final = "large-frames"  # in Prefer: clients that find frames by their headers
QUOTE: Final = '"'
MAX_HEADER: Final = 8192  # characters of a header that are read
_TRACE = re.compile(r"[\w.:-]{1,300}\Z", re.ASCII)

# The paths below a node's URL, and the one method of each (3.2).
TASKS: Final = "actions/status/"
STATUS: Final = f"{TASKS}{{task}}"
PATHS: Final[Mapping[str, str]] = {
    "": "GET",
    ".nwm": "GET",
    ".schema": "GET",
    "query": "POST",
    "stream": "POST",
    "subscribe": "POST",
    "actions": "GET",
    STATUS: "GET",
    "invoke": "POST",
}
READS: Final = frozenset({"query", "stream", "subscribe"})
ACTS: Final = frozenset({"invoke", "actions", STATUS})

T = TypeVar("T", bound=Frame)


Handler: TypeAlias = Callable[[NodeRequest, Node, Caller], Awaitable[None]]
FrameCallback: TypeAlias = Callable[[NodeRequest, Node, Caller, T, FrameEncoding], Awaitable[None]]


class NodeApplication:
    """The HTTP transport of NWP."""

    def __init__(self, service: NodeService, actions: ActionService, feeds: Feeds, config: Config) -> None:
        self._service = service
        self._actions = actions
        self._feeds = feeds
        self._site = service.site
        self._responder = NodeResponder(service.site)
        self._config = config
        self._base_cache: LRUCache[object, str] = LRUCache(BASE_CACHE_SIZE)
        self._handlers: Mapping[str, Handler] = {
            "": self._front_page,
            ".nwm": self._manifest,
            ".schema": self._schema,
            "query": self.frame_handler(QueryFrame, self._query),
            "stream": self.frame_handler(QueryFrame, self._stream),
            "subscribe": self.frame_handler(SubscribeFrame, self._subscribe),
            "actions": self._list_actions,
            STATUS: self._show_task,
            "invoke": self.frame_handler(ActionFrame, self._invoke),
        }

    def frame_handler(self, kind: type[T], answer: "FrameCallback[T]") -> Handler:
        """Return a handler that decodes a frame of this type. Errors carry the id of the frame."""

        async def handle(request: NodeRequest, node: Node, caller: Caller) -> None:
            # Refuse callers without credentials before anything is read.
            self._service.capabilities.require_credentials(caller)
            body = await self._body(request)
            try:
                frame, encoding = await self._parse_frame(request, body, kind)
            except SiteError as error:
                await self._responder.send_error(request.with_id(request_id_of(body)), node, caller, error)
                return
            named_request = request.with_id(getattr(frame, "request_id", None))
            try:
                await answer(named_request, node, caller, frame, encoding)
            except SiteError as error:
                await self._responder.send_error(named_request, node, caller, error)

        return handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(self._parse_request(scope, receive, send))

    def render_error(self, _: Scope, error: SiteError) -> ASGIApp:
        """Return what answers a request that was refused before its node was looked up."""

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            await self._responder.send_error(self._parse_request(scope, receive, send), None, scope.get(CALLER), error)

        return respond

    async def _answer(self, request: NodeRequest) -> None:
        caller: Caller | None = None
        node: Node | None = None
        try:
            handler = self._handler(request)
            caller = caller_of(request.http_request)
            node = await self._node(request, caller)
            await handler(request, node, caller)
        except SiteError as error:
            await self._responder.send_error(request, node, caller, error)
        except ClientDisconnect:
            return

    # Reading

    def _parse_request(self, scope: Scope, receive: Receive, send: Send) -> NodeRequest:
        headers = _headers(scope)
        name, below = self._split_path(scope["path"])
        task = below.removeprefix(TASKS) if below.startswith(TASKS) else ""
        id = _request_id(headers) or str(uuid.uuid4())  # needed to stop a stream
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        base = self._base(scope)
        path_below = STATUS if task else below
        return NodeRequest(scope, receive, send, headers, method, name, path_below, task, id, base)

    def _split_path(self, path: str) -> tuple[str, str]:
        """Return the node name in a path, and the path below it. Without a name it is the site's node."""
        _, _, name, below, *_ = (*path.split("/", 3), "", "")
        whole = f"{name}/{below}".removesuffix("/")
        if name not in self._service.nodes.all and (whole in PATHS or whole.startswith(TASKS)):
            return SITE, whole
        return name, below.removesuffix("/")

    def _base(self, scope: Scope) -> str:
        # Cached, since it is computed from the Host header of every request.
        key = scope["scheme"], next((value for name, value in scope["headers"] if name == b"host"), b"")
        base = self._base_cache.get(key)
        if base is None:
            base = self._base_cache[key] = base_of(HTTPConnection(scope), self._config.server)
        return base

    def _handler(self, request: NodeRequest) -> Handler:
        method = PATHS.get(request.path)
        if method is None:
            raise UnknownNode("A node has no such path", path=request.scope["path"][:200])
        if request.method != method:
            raise NodeMethodNotAllowed(f"Use {method} for this path", allow="GET, HEAD" if method == "GET" else method)
        return self._handlers[request.path]

    async def _caller(self, request: NodeRequest) -> Caller:
        return await self._site.access.authenticate(_credentials_of(request.http_request))

    async def _node(self, request: NodeRequest, caller: Caller) -> Node:
        version = request.headers.get("x-nwp-version", "")
        if version and is_older(version, self._config.section(NwpSettings).min_version):
            oldest = self._config.section(NwpSettings).min_version
            raise VersionUnsupported(f"Agents speak {oldest} or later here", min_agent_version=oldest)
        node = await self._service.nodes.get(request.name)
        _check_has(node, request.path)
        return node

    def _body(self, request: NodeRequest) -> Awaitable[bytes]:
        return body_of(request.receive, request.headers, self._site.limits.payload_bytes)

    async def _parse_frame(self, request: NodeRequest, body: bytes, kind: type[T]) -> tuple[T, FrameEncoding]:
        for name in NUMBER_HEADERS:
            _natural_header(request.headers, name)
        if len(request.headers.get("x-nwp-request-id", "")) > MAX_ID:
            raise BadRequest(f"X-NWP-Request-ID must have at most {MAX_ID} characters", limit=MAX_ID)
        frame, encoding = read_frame(body, kind, self._site.limits.payload_bytes)
        return cast("T", frame), self._response_encoding(request.headers, encoding)

    def _response_encoding(self, headers: Headers, encoding: FrameEncoding) -> FrameEncoding:
        """The encoding of the answer: that of the request, unless the caller asks for another."""
        tier = _TIERS.get(headers.get("x-nwp-encoding", "").lower(), encoding.tier)
        accept = headers.get("accept", "").lower()
        if JSON in accept and not any(kind in accept for kind in FRAMED_MEDIA_TYPES):
            return BARE
        return FrameEncoding(tier, encoding.is_framed or _wants_frame(accept, headers))

    def _context(
        self, request: NodeRequest, node: Node, caller: Caller, encoding: FrameEncoding = BARE
    ) -> NwpRequestContext:
        headers = request.headers
        tokenizer, trace = headers.get("x-nwp-tokenizer"), headers.get("x-nwp-trace")
        return NwpRequestContext(
            caller,
            node,
            request.base,
            request.id,
            encoding.tier,
            encoding.largest,
            _natural_header(headers, "x-nwp-budget"),
            (tokenizer[:80],) if tokenizer else (),
            _natural_header(headers, "x-nwp-depth"),
            _trace(trace) if trace else (),
            bool(headers.get("x-nwp-request-id")),
        )

    # Answering

    async def _query(
        self, request: NodeRequest, node: Node, caller: Caller, frame: QueryFrame, encoding: FrameEncoding
    ) -> None:
        context = self._context(request, node, caller, encoding)
        if frame.stream:
            await self._send_stream(request, frame, context, encoding)
        else:
            await self._responder.send_capsule(request, await self._service.query(frame, context), context, encoding)

    async def _stream(
        self, request: NodeRequest, node: Node, caller: Caller, frame: QueryFrame, encoding: FrameEncoding
    ) -> None:
        await self._send_stream(request, frame, self._context(request, node, caller, encoding), encoding)

    async def _send_stream(
        self, request: NodeRequest, frame: QueryFrame, context: NwpRequestContext, encoding: FrameEncoding
    ) -> None:
        if not encoding.is_framed:
            # Lines are JSON, whatever the encoding of the request.
            context, encoding = msgspec.structs.replace(context, tier=EncodingTier.JSON), BARE
        paced = _pace_frames(request.headers) if encoding.is_framed else 0
        if paced:
            context = msgspec.structs.replace(context, portion=SEGMENT_RECORDS)
        frames = await start_stream(
            self._feeds.make_stoppable(self._service.stream(frame, context), context, frame.request_id)
        )
        headers = self._responder.common_headers(context.node, context.caller, context.id)
        if frames.first and frames.first.anchor_ref:
            headers["x-nwp-schema"] = frames.first.anchor_ref

        async def parts() -> AsyncGenerator[bytes]:
            async for part in frames:
                yield _part(part, encoding)
                await asyncio.sleep(PACE_SECONDS if part.seq < paced else 0)

        kind = encoding.media_type if encoding.is_framed else LINES
        stream = EventStream(parts(), work=frames, heartbeat=None, media_type=kind, headers=headers)
        await stream(request.scope, request.receive, request.send)

    async def _invoke(
        self, request: NodeRequest, node: Node, caller: Caller, frame: ActionFrame | TaskFrame, encoding: FrameEncoding
    ) -> None:
        context = self._context(request, node, caller, encoding)
        trace = request.headers.get("traceparent", "")
        answer = await self._actions.invoke(frame, context, trace)
        if isinstance(answer, AcceptedTask):
            # Flat JSON whatever the encoding of the request: clients read nothing else here.
            body, headers = (
                encode_value(answer.frame, EncodingTier.JSON),
                self._responder.common_headers(node, caller, context.id),
            )
            await self._responder.send(request, HTTPStatus.ACCEPTED, body, CAPSULE, headers)
        else:
            # The result of a repeated key comes at once, but to a client that expects flat JSON.
            is_async = isinstance(frame, ActionFrame) and frame.is_async
            await self._responder.send_capsule(request, answer, context, BARE if is_async else encoding)

    async def _subscribe(
        self, request: NodeRequest, node: Node, caller: Caller, frame: SubscribeFrame, encoding: FrameEncoding
    ) -> None:
        context = self._context(request, node, caller, encoding)
        if frame.action != "subscribe":
            acknowledgement = await self._feeds.manage(frame, context)
            await self._responder.send_capsule(request, NodeResponse(acknowledgement), context, encoding)
            return
        feed = await self._feeds.open(frame, context, lambda: self._caller(request))
        accept = request.headers.get("accept", "*/*")
        if EVENTS in accept or "*/*" in accept:
            await self._send_events(request, feed, context, encoding)
        else:
            await feed.aclose()
            await self._responder.send_capsule(request, NodeResponse(feed.ack), context, encoding)

    async def _send_events(
        self, request: NodeRequest, feed: Feed, context: NwpRequestContext, encoding: FrameEncoding
    ) -> None:
        headers = {
            **self._responder.common_headers(context.node, context.caller, context.id),
            "x-nwp-schema": feed.anchor,
        }
        headers["cache-control"] = f"no-cache, {headers['cache-control']}"  # 8.4 has no-cache, and clients look for it

        async def events() -> AsyncGenerator[bytes]:
            yield _event(feed.ack, encoding.tier)
            async for frame in feed:
                yield _event(frame, encoding.tier)

        stream = EventStream(events(), heartbeat=None, media_type=EVENTS, headers=headers)
        try:
            await stream(request.scope, request.receive, request.send)
        finally:
            await feed.aclose()

    async def _list_actions(self, request: NodeRequest, node: Node, caller: Caller) -> None:
        nodes = self._service.nodes
        self._service.capabilities.require(self._context(request, node, caller), INVOKE)
        body = {"node_id": nodes.id(node.name, request.base), "actions": nodes.actions(node)}
        await self._responder.send_json(request, node, caller, body)

    async def _show_task(self, request: NodeRequest, node: Node, caller: Caller) -> None:
        context = self._context(request, node, caller)
        await self._responder.send_json(request, node, caller, await self._actions.status(request.task, context))

    async def _schema(self, request: NodeRequest, node: Node, caller: Caller) -> None:
        self._service.capabilities.require(self._context(request, node, caller), node.capability)
        await self._service.anchors.publish(node)
        anchor = await self._service.anchors.schema(node, request.http_request.query_params.get("anchor", ""))
        is_framed = any(kind in request.headers.get("accept", "").lower() for kind in FRAMED_MEDIA_TYPES)
        tier = _TIERS.get(request.headers.get("x-nwp-encoding", "").lower(), EncodingTier.MSGPACK)
        encoding = FrameEncoding(tier, is_framed=True) if is_framed else BARE
        headers = {**self._responder.common_headers(node, caller, request.id), "x-nwp-schema": anchor.id}
        kind = encoding.media_type if is_framed else JSON
        await self._responder.send(request, HTTPStatus.OK, encoding.body(anchor_frame(anchor)), kind, headers)

    async def _manifest(self, request: NodeRequest, node: Node, caller: Caller) -> None:
        await self._service.anchors.publish(node)
        manifest = self._service.nodes.manifest(node, request.base)
        headers = self._responder.common_headers(node, caller, request.id)
        if caller.is_anonymous:
            headers["cache-control"] = "private, no-cache"  # the rate limit headers are this caller's
        response = document(
            _quote_if_none_match(request.http_request),
            msgspec.json.encode(manifest),
            MANIFEST,
            headers,
            server=self._config.server,
            tag=manifest["manifest_version"],
            vary=VARY,
        )
        await response(request.scope, request.receive, request.send)

    async def _front_page(self, request: NodeRequest, node: Node, caller: Caller) -> None:
        """Send a page to browsers, and the manifest to programs."""
        preferred = preferred_media_type(request.headers.get("accept", "").lower(), (HTML, JSON))
        if _is_nwp_request(request.headers) or preferred == JSON:
            await self._manifest(request, node, caller)
        else:
            await self._page(request, node, caller)

    async def _page(self, request: NodeRequest, node: Node, caller: Caller) -> None:
        await self._service.anchors.publish(node)
        view = NodeView(
            self._site.name,
            request.base,
            PREFIX,
            node.name,
            node.description,
            self._service.nodes.manifest(node, request.base),
            {anchor.id: anchor.schema for _, anchor in node.anchors},
            PATHS,
            [NodeLink(neighbor.name, neighbor.type, neighbor.title) for neighbor in self._service.nodes.all.values()],
        )
        response = document(
            request.http_request,
            node_page(view),
            HTML,
            HEADERS,
            server=self._config.server,
            vary=VARY,
        )
        await response(request.scope, request.receive, request.send)


def is_node(path: str) -> bool:
    """Return whether a path is that of a node, or below one."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def is_for_node(scope: Scope) -> bool:
    """Return whether a node answers a request: by its path, or as the node behind a page for an NWP client (2.2)."""
    if scope["type"] != "http":
        return False
    return is_node(scope["path"]) or (bool(node_of_page(scope)) and _is_nwp_request(_headers(scope)))


def edge_policy(config: Config) -> EdgePolicy:
    """Return how the edge admits requests for nodes: agents show certificates or say who they are."""
    return EdgePolicy(check=partial(check_origin, server=config.server), credentials=_credentials_of)


_AGENT_HEADERS: Final = frozenset({b"x-nwp-ident", b"x-nwp-agent"})


def _credentials_of(connection: HTTPConnection) -> RequestCredentials:
    presented = credentials_of(connection)
    headers = pick_headers(connection.scope, _AGENT_HEADERS)
    ident, agent = headers.get("x-nwp-ident", ""), headers.get("x-nwp-agent", "")
    return (
        replace(presented, certificate=_certificate(ident), agent=agent[:MAX_HEADER]) if ident or agent else presented
    )


def refusal(scope: Scope, error: SiteError) -> Response:
    """Return the response for an error that no node raised."""
    id = _request_id(_headers(scope)) or str(uuid.uuid4())
    headers = {"x-nwp-request-id": encode_header_id(id), "cache-control": "no-store"}
    return Response(encode_error(error_frame(error, id)), code_of(error).http, headers, ERROR)


def node_of_page(scope: Scope) -> str:
    """Return the name of the node behind a page; mostly empty."""
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
        return ""
    path: str = scope["path"]
    return SITE if path == "/" else node_of(path.removeprefix(COLLECTIONS)) if path.startswith(COLLECTIONS) else ""


def _wants_frame(accept: str, headers: Headers) -> bool:
    """Return whether the client accepts only frames. One that labels bare JSON as a frame means JSON here too."""
    if not any(kind in accept for kind in FRAMES) or CAPSULE in accept or JSON in accept or "*/*" in accept:
        return False
    return not any(kind in headers.get("content-type", "").lower() for kind in FRAMES)


def _headers(scope: Scope) -> Headers:
    return {name.decode("latin-1"): value.decode("latin-1").strip() for name, value in scope["headers"]}


def _is_nwp_request(headers: Headers) -> bool:
    """Return whether a request is marked as NWP by a header or a media type (2.2)."""
    kinds = f"{headers.get('accept', '')} {headers.get('content-type', '')}".lower()
    return any(name.startswith("x-nwp-") for name in headers) or any(mark in kinds for mark in NWP_MEDIA_PREFIXES)


def _check_has(node: Node, below: str) -> None:
    """Raise for a sub-path that nodes of this type do not have (3.2)."""
    if (below in READS and not node.collections) or (below in ACTS and not node.actions):
        raise UnknownNode(f"{node.name} has no {below}", node=node.name)


_TIERS: Final = {"json": EncodingTier.JSON, "msgpack": EncodingTier.MSGPACK}


def _certificate(value: str) -> bytes:
    """Decode an IdentFrame header: JSON, or base64url of it."""
    if not value or value.startswith("{"):
        return value.encode("latin-1")
    try:
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return value.encode("latin-1")


def _request_id(headers: Headers) -> str | None:
    """Return the request id in the headers; None if it is missing or too long to be repeated."""
    id = headers.get("x-nwp-request-id", "")
    return id if 0 < len(id) <= MAX_ID else None


def _trace(passed: str) -> tuple[str, ...]:
    """Return the nodes that a query came through: the last ones, so that a long list cannot hide them."""
    return tuple(node for part in passed[-MAX_HEADER:].split(",") if _TRACE.match(node := part.strip()))


def _natural_header(headers: Headers, name: str) -> int | None:
    value = headers.get(name)
    if not value:
        return None
    if not value.isascii() or not value.isdecimal() or len(value) > 10:
        raise BadRequest(f"`{name}` must be a whole number of at most 10 digits, not {value[:40]!r}", header=name)
    return int(value)


def _part(part: StreamFrame, encoding: FrameEncoding) -> bytes:
    """Encode a part of a stream: as a frame, or as a line of JSON."""
    return (
        encoding.body(part, is_final=part.is_last)
        if encoding.is_framed
        else encode_value(part, EncodingTier.JSON) + b"\n"
    )


def _event(frame: Frame, tier: EncodingTier) -> bytes:
    seq: int | None = getattr(frame, "seq", None)
    id = f"id: {seq}\n".encode() if seq is not None else b""
    return id + b"data: " + base64.b64encode(encode(frame, tier)) + b"\n\n"


def _pace_frames(headers: Headers) -> float:
    """Return how many frames at the start of a stream are followed by a pause."""
    if LARGE_FRAMES in headers.get("prefer", ""):
        return 0
    return inf if PACED_KIND in headers.get("accept", "") else PACED_FRAMES


def _quote_if_none_match(request: Request) -> Request:
    """Return the request with quotes around If-None-Match: agents send the bare version from the manifest."""
    value = request.headers.get("if-none-match", "")
    if not value or value.strip() == "*":
        return request
    quoted = ", ".join(f'"{tag.strip().removeprefix("W/").strip(QUOTE)}"' for tag in value.split(","))
    headers = [pair for pair in request.scope["headers"] if pair[0] != b"if-none-match"]
    return Request({**request.scope, "headers": [*headers, (b"if-none-match", quoted.encode("latin-1"))]})
