"""NWP over HTTP: /nwp/{node} and what lies below it. Reads headers and bodies, and answers in the form of the request.

A body is a frame with its header, or bare JSON or MessagePack; the first bytes tell. Errors are always JSON.
"""

import asyncio
import base64
import re
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from math import ceil, inf
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.access.budget import Cost
from portico.config import Config
from portico.errors import BadRequest, Forbidden, RateLimited, SiteError, Unauthenticated
from portico.protocols.documents import VARY, document, preferred
from portico.protocols.http import BEARER, EventStream, base_of, begin, body_of, credentials, is_from_elsewhere
from portico.protocols.nwp.actions import Accepted, Actions
from portico.protocols.nwp.anchors import frame_of
from portico.protocols.nwp.encodings import BARE, CAPSULE, Form, header_form, read_frame, request_id_of
from portico.protocols.nwp.errors import (
    UnknownNode,
    VersionUnsupported,
    WrongMethod,
    code_of,
    failure,
)
from portico.protocols.nwp.feeds import Feed, Feeds
from portico.protocols.nwp.frames import (
    MAX_ID,
    ActionFrame,
    ErrorFrame,
    Frame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    Tier,
    encode,
    encode_value,
)
from portico.protocols.nwp.nodes import INVOKE, MANIFEST, PREFIX, SITE, Node, node_of
from portico.protocols.nwp.service import Answer, Asking, Exchange
from portico.protocols.nwp.versions import is_older
from portico.requests import Caller
from portico.search.recent import Recent
from portico.telemetry import Broke, Observe
from portico.web.addresses import COLLECTIONS
from portico.web.node import Neighbour, Shown, node_page
from portico.web.style import HEADERS

ERROR: Final = "application/nwp-error+json"
LINES: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
JSON: Final = "application/json"
FRAMES: Final = ("application/nwp-frame", "application/x-nps-frame")
FRAMED_KINDS: Final = (*FRAMES, CAPSULE)
MARKS: Final = ("application/nwp-", "application/x-nps-")
BASES: Final = 64  # addresses that the site was called by
NUMBERS: Final = ("x-nwp-budget", "x-nwp-depth")
# Many clients take the bytes of one read for one frame. So that these mostly are one, a frame of a stream is no larger
# than a TCP segment where its records allow it, and a pause after it leaves time to read it before the next one.
# A pause after each frame would bound the throughput: only clients that are known to need it, nps-lib, get many.
SEGMENT_RECORDS: Final = 1000  # bytes of records in a frame of 1,400 bytes, its chunk included
PACE_SECONDS: Final = 0.002
PACED_FRAMES: Final = 32
PACED_KIND: Final = "application/x-nps-frame"  # in Accept, of clients that need the pause after every frame
LARGE_FRAMES: Final = "large-frames"  # in Prefer, of clients that find frames by their headers
QUOTE: Final = '"'
MAX_HEADER: Final = 8192  # characters of a header that is read
_TRACE = re.compile(r"[\w.:-]{1,300}\Z", re.ASCII)

# What there is below a node's address, and the one method that it is asked with (3.2).
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

Headers: TypeAlias = Mapping[str, str]
T = TypeVar("T", bound=Frame)


class Arrived(msgspec.Struct, frozen=True):
    """A request for a node."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Headers
    method: str
    name: str  # of the node
    below: str  # what is wanted of it, as the table of paths says it
    task: str  # the id of the task whose status that is; mostly empty
    id: str  # as the caller calls it, or made up
    base: str

    @property
    def request(self) -> Request:
        return Request(self.scope, self.receive)

    @property
    def address(self) -> str:
        return self.scope["client"][0] if self.scope.get("client") else ""

    def called(self, id: str | None) -> "Arrived":
        """The same under the id that its frame has. That of the header counts before it (9.3)."""
        return msgspec.structs.replace(self, id=id) if id and not self.headers.get("x-nwp-request-id") else self


Handler: TypeAlias = Callable[[Arrived, Node, Caller], Awaitable[None]]
Answering: TypeAlias = Callable[[Arrived, Node, Caller, T, Form], Awaitable[None]]


class Overlay:
    def __init__(self, exchange: Exchange, actions: Actions, feeds: Feeds, config: Config) -> None:
        self._exchange = exchange
        self._actions = actions
        self._feeds = feeds
        self._site = exchange.site
        self._config = config
        self._bases: Recent[str] = Recent(BASES)
        self._handlers: Mapping[str, Handler] = {
            "": self._front,
            ".nwm": self._manifest,
            ".schema": self._schema,
            "query": self._reading(QueryFrame, self._query),
            "stream": self._reading(QueryFrame, self._stream),
            "subscribe": self._reading(SubscribeFrame, self._subscribe),
            "actions": self._list_actions,
            STATUS: self._show_task,
            "invoke": self._reading(ActionFrame, self._invoke),
        }

    def _reading(self, kind: type[T], answer: "Answering[T]") -> Handler:
        """Answers a frame of this kind. What is refused then is told under the id that the frame has."""

        async def handle(arrived: Arrived, node: Node, caller: Caller) -> None:
            # Whoever has nothing to show is told so before anything is read.
            async with self._site.gate.charging(caller):
                self._exchange.warrants.check_shown(caller)
            body = await self._site.unless_refused(self._body(arrived), caller)
            try:
                frame, form = await self._site.unless_refused(self._parsed(arrived, body, kind), caller)
            except SiteError as error:
                await self._refuse(arrived.called(request_id_of(body)), node, caller, error)
                return
            called = arrived.called(getattr(frame, "request_id", None))
            try:
                await answer(called, node, caller, frame, form)
            except SiteError as error:
                await self._refuse(called, node, caller, error)

        return handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(self._arrived(scope, receive, send))

    async def _answer(self, arrived: Arrived) -> None:
        caller: Caller | None = None
        node: Node | None = None
        try:
            handler = self._handler(arrived)
            self._check_page(arrived)
            caller = await self._caller(arrived)
            node = await self._node(arrived, caller)
            await handler(arrived, node, caller)
        except SiteError as error:
            await self._refuse(arrived, node, caller, error)
        except ClientDisconnect:
            return

    # Reading

    def _arrived(self, scope: Scope, receive: Receive, send: Send) -> Arrived:
        headers = _headers(scope)
        name, below = self._place(scope["path"])
        task = below.removeprefix(TASKS) if below.startswith(TASKS) else ""
        id = _named(headers) or str(uuid.uuid4())  # streams are stopped by it
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        base = self._base(scope)
        wanted = STATUS if task else below
        return Arrived(scope, receive, send, headers, method, name, wanted, task, id, base)

    def _place(self, path: str) -> tuple[str, str]:
        """The node that a path leads to, and what is wanted of it. Without a node it is for the site's."""
        _, _, name, below, *_ = (*path.split("/", 3), "", "")
        whole = f"{name}/{below}".removesuffix("/")
        if name not in self._exchange.nodes.all and (whole in PATHS or whole.startswith(TASKS)):
            return SITE, whole
        return name, below.removesuffix("/")

    def _base(self, scope: Scope) -> str:
        # What is kept for all who call the site by a name is made from that name, and from no second one.
        key = scope["scheme"], next((value for name, value in scope["headers"] if name == b"host"), b"")
        return self._bases.get(key) or self._bases.put(key, base_of(HTTPConnection(scope), self._config.server))

    def _handler(self, arrived: Arrived) -> Handler:
        method = PATHS.get(arrived.below)
        if method is None:
            raise UnknownNode("There is nothing at this address of a node", path=arrived.scope["path"][:200])
        if arrived.method != method:
            raise WrongMethod(f"This is asked with {method}", allow="GET, HEAD" if method == "GET" else method)
        return self._handlers[arrived.below]

    def _check_page(self, arrived: Arrived) -> None:
        """Refuse what a page elsewhere sent that may not ask here."""
        if "origin" in arrived.headers and is_from_elsewhere(arrived.request, self._config.server):
            error = Forbidden("Pages of that origin may not ask here", hint="The operator decides which origins may.")
            self._site.refused("page", error)
            raise error

    async def _caller(self, arrived: Arrived) -> Caller:
        shown = credentials(arrived.headers, arrived.address)
        ident, agent = arrived.headers.get("x-nwp-ident", ""), arrived.headers.get("x-nwp-agent", "")
        if ident or agent:
            shown = replace(shown, ident=_certificate(ident), agent=agent[:MAX_HEADER])
        return await self._site.caller(shown)

    async def _node(self, arrived: Arrived, caller: Caller) -> Node:
        said = arrived.headers.get("x-nwp-version", "")
        async with self._site.gate.charging(caller):
            if said and is_older(said, self._config.nwp.min_version):
                oldest = self._config.nwp.min_version
                raise VersionUnsupported(f"Agents speak {oldest} or later here", min_agent_version=oldest)
            node = await self._exchange.nodes.named(arrived.name)
            _check_has(node, arrived.below)
            return node

    def _body(self, arrived: Arrived) -> Awaitable[bytes]:
        return body_of(arrived.receive, arrived.headers, self._site.limits.payload_bytes)

    async def _parsed(self, arrived: Arrived, body: bytes, kind: type[T]) -> tuple[T, Form]:
        for name in NUMBERS:
            _natural(arrived.headers, name)
        if len(arrived.headers.get("x-nwp-request-id", "")) > MAX_ID:
            raise BadRequest(f"X-NWP-Request-ID must have at most {MAX_ID} characters", limit=MAX_ID)
        frame, form = read_frame(body, kind, self._site.limits.payload_bytes)
        return cast("T", frame), self._wanted(arrived.headers, form)

    def _wanted(self, headers: Headers, form: Form) -> Form:
        """The form of the answer: that of the request, unless the caller asks for another."""
        tier = _TIERS.get(headers.get("x-nwp-encoding", "").lower(), form.tier)
        accept = headers.get("accept", "").lower()
        if JSON in accept and not any(kind in accept for kind in FRAMED_KINDS):
            return BARE
        return Form(tier, form.is_framed or _wants_frame(accept, headers))

    def _asking(self, arrived: Arrived, node: Node, caller: Caller, form: Form = BARE) -> Asking:
        headers = arrived.headers
        counted, passed = headers.get("x-nwp-tokenizer"), headers.get("x-nwp-trace")
        return Asking(
            caller,
            node,
            arrived.base,
            arrived.id,
            form.tier,
            form.largest,
            _natural(headers, "x-nwp-budget"),
            (counted[:80],) if counted else (),
            _natural(headers, "x-nwp-depth"),
            _trace(passed) if passed else (),
            bool(headers.get("x-nwp-request-id")),
        )

    # Answering

    async def _query(self, arrived: Arrived, node: Node, caller: Caller, frame: QueryFrame, form: Form) -> None:
        asking = self._asking(arrived, node, caller, form)
        if frame.stream:
            await self._send_stream(arrived, frame, asking, form)
        else:
            await self._send_capsule(arrived, await self._exchange.query(frame, asking), asking, form)

    async def _stream(self, arrived: Arrived, node: Node, caller: Caller, frame: QueryFrame, form: Form) -> None:
        await self._send_stream(arrived, frame, self._asking(arrived, node, caller, form), form)

    async def _send_stream(self, arrived: Arrived, frame: QueryFrame, asking: Asking, form: Form) -> None:
        if not form.is_framed:
            # Lines are JSON, whatever the question was written in.
            asking, form = msgspec.structs.replace(asking, tier=Tier.JSON), BARE
        paced = _paced_frames(arrived.headers) if form.is_framed else 0
        if paced:
            asking = msgspec.structs.replace(asking, portion=SEGMENT_RECORDS)
        begun = await begin(self._feeds.stopping(self._exchange.stream(frame, asking), asking, frame.request_id))
        headers = self._said(asking.node, asking.caller, asking.id)
        if begun.first and begun.first.anchor_ref:
            headers["x-nwp-schema"] = begun.first.anchor_ref

        async def parts() -> AsyncGenerator[bytes]:
            async for part in begun:
                yield _part(part, form)
                await asyncio.sleep(PACE_SECONDS if part.seq < paced else 0)

        kind = form.media_type if form.is_framed else LINES
        stream = EventStream(parts(), work=begun, heartbeat=None, media_type=kind, headers=headers)
        await stream(arrived.scope, arrived.receive, arrived.send)

    async def _invoke(
        self, arrived: Arrived, node: Node, caller: Caller, frame: ActionFrame | TaskFrame, form: Form
    ) -> None:
        asking = self._asking(arrived, node, caller, form)
        trace = arrived.headers.get("traceparent", "")
        answer = await self._actions.invoke(frame, asking, trace)
        if isinstance(answer, Accepted):
            # Flat JSON whatever the form of the request: clients read nothing else here.
            body, headers = encode_value(answer.frame, Tier.JSON), self._said(node, caller, asking.id)
            await self._respond(arrived, HTTPStatus.ACCEPTED, body, CAPSULE, headers)
        else:
            # What a key stands for already is told at once, but where flat JSON is read no frame is.
            is_async = isinstance(frame, ActionFrame) and frame.is_async
            await self._send_capsule(arrived, answer, asking, BARE if is_async else form)

    async def _subscribe(self, arrived: Arrived, node: Node, caller: Caller, frame: SubscribeFrame, form: Form) -> None:
        asking = self._asking(arrived, node, caller, form)
        if frame.action != "subscribe":
            told = await self._feeds.told(frame, asking)
            await self._send_capsule(arrived, Answer(told), asking, form)
            return
        feed = await self._feeds.open(frame, asking, lambda: self._caller(arrived))
        if _takes_events(arrived.headers):
            await self._send_events(arrived, feed, asking, form)
        else:
            await feed.aclose()
            await self._send_capsule(arrived, Answer(feed.ack), asking, form)

    async def _send_events(self, arrived: Arrived, feed: Feed, asking: Asking, form: Form) -> None:
        headers = {**self._said(asking.node, asking.caller, asking.id), "x-nwp-schema": feed.anchor}
        headers["cache-control"] = f"no-cache, {headers['cache-control']}"  # the first is what 8.4 and its readers know

        async def events() -> AsyncGenerator[bytes]:
            yield _event(feed.ack, form.tier)
            async for each in feed:
                yield _event(each, form.tier)

        stream = EventStream(events(), heartbeat=None, media_type=EVENTS, headers=headers)
        try:
            await stream(arrived.scope, arrived.receive, arrived.send)
        finally:
            await feed.aclose()

    async def _list_actions(self, arrived: Arrived, node: Node, caller: Caller) -> None:
        await self._site.gate.spend(caller)
        nodes = self._exchange.nodes
        self._exchange.warrants.check(self._asking(arrived, node, caller), INVOKE)
        said = {"node_id": nodes.id(node.name, arrived.base), "actions": nodes.actions(node)}
        await self._send_json(arrived, node, caller, said)

    async def _show_task(self, arrived: Arrived, node: Node, caller: Caller) -> None:
        await self._site.gate.spend(caller)
        asking = self._asking(arrived, node, caller)
        await self._send_json(arrived, node, caller, await self._actions.status(arrived.task, asking))

    async def _send_json(self, arrived: Arrived, node: Node, caller: Caller, said: Any) -> None:
        headers = self._said(node, caller, arrived.id)
        await self._respond(arrived, HTTPStatus.OK, encode_value(said, Tier.JSON), JSON, headers)

    async def _schema(self, arrived: Arrived, node: Node, caller: Caller) -> None:
        await self._site.gate.spend(caller)
        self._exchange.warrants.check(self._asking(arrived, node, caller), node.capability)
        await self._exchange.anchors.publish(node)
        anchor = await self._exchange.anchors.schema(node, arrived.request.query_params.get("anchor", ""))
        is_framed = any(kind in arrived.headers.get("accept", "").lower() for kind in FRAMED_KINDS)
        wanted = _TIERS.get(arrived.headers.get("x-nwp-encoding", "").lower(), Tier.MSGPACK)
        form = Form(wanted, is_framed=True) if is_framed else BARE
        headers = {**self._said(node, caller, arrived.id), "x-nwp-schema": anchor.id}
        kind = form.media_type if is_framed else JSON
        await self._respond(arrived, HTTPStatus.OK, form.body(frame_of(anchor)), kind, headers)

    async def _manifest(self, arrived: Arrived, node: Node, caller: Caller) -> None:
        await self._site.gate.spend(caller)
        await self._exchange.anchors.publish(node)
        manifest = self._exchange.nodes.manifest(node, arrived.base)
        headers = self._said(node, caller, arrived.id)
        if caller.is_anonymous:
            headers["cache-control"] = "private, no-cache"  # what is said beside it is for this caller
        response = document(
            _quoting(arrived.request),
            msgspec.json.encode(manifest),
            MANIFEST,
            headers,
            server=self._config.server,
            tag=manifest["manifest_version"],
            vary=VARY,
        )
        await response(arrived.scope, arrived.receive, arrived.send)

    async def _front(self, arrived: Arrived, node: Node, caller: Caller) -> None:
        """A page for people; programs get the manifest."""
        if _is_program(arrived.headers):
            await self._manifest(arrived, node, caller)
        else:
            await self._page(arrived, node, caller)

    async def _page(self, arrived: Arrived, node: Node, caller: Caller) -> None:
        await self._site.gate.spend(caller)
        await self._exchange.anchors.publish(node)
        shown = Shown(
            self._site.name,
            arrived.base,
            PREFIX,
            node.name,
            node.description,
            self._exchange.nodes.manifest(node, arrived.base),
            {anchor.id: anchor.schema for _, anchor in node.anchors},
            PATHS,
            [Neighbour(each.name, each.type, each.title) for each in self._exchange.nodes.all.values()],
        )
        response = document(
            arrived.request,
            node_page(shown),
            HTML,
            HEADERS,
            server=self._config.server,
            vary=VARY,
        )
        await response(arrived.scope, arrived.receive, arrived.send)

    # Sending

    async def _send_capsule(self, arrived: Arrived, answer: Answer, asking: Asking, form: Form) -> None:
        body = form.body(answer.frame)
        told = {
            "x-nwp-node-type": asking.node.type,
            "x-nwp-schema": answer.frame.anchor_ref,
            **_spent(answer.cost),
            **({"x-nwp-cached": "true"} if answer.is_cached else {}),
            "content-type": form.media_type,
            "content-length": str(len(body)),
            # Answers to a POST are kept by nobody; of those to a name it is said.
            **({} if asking.caller.is_anonymous else PRIVATE),
            "x-nwp-request-id": header_form(asking.id),
        }
        headers = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        headers += self._metered(asking.caller)
        await arrived.send({"type": "http.response.start", "status": 200, "headers": headers})
        await arrived.send({"type": "http.response.body", "body": body})

    def _said(self, node: Node | None, caller: Caller | None, id: str) -> dict[str, str]:
        """What is said with every answer."""
        headers = {"x-nwp-request-id": header_form(id), **PRIVATE}
        if node:
            headers["x-nwp-node-type"] = node.type
        if caller:
            headers.update({name.decode(): value.decode() for name, value in self._metered(caller)})
        return headers

    def _metered(self, caller: Caller) -> list[tuple[bytes, bytes]]:
        """What a caller has left of its allowance."""
        left = self._site.gate.left(caller)
        return [
            (b"x-nwp-rate-limit", b"%d" % left.limit),
            (b"x-nwp-rate-remaining", b"%d" % left.remaining),
            (b"x-nwp-rate-reset", b"%d" % ceil(time.time() + left.reset)),
        ]

    async def _refuse(self, arrived: Arrived, node: Node | None, caller: Caller | None, error: SiteError) -> None:
        # Who could not be recognised is counted by the address.
        headers = self._said(node, caller or self._site.identity.nobody(arrived.address), arrived.id)
        status = HTTPStatus.METHOD_NOT_ALLOWED if isinstance(error, WrongMethod) else code_of(error).http
        match error:
            case WrongMethod():
                headers["allow"] = str(error.details["allow"])
            case Unauthenticated():
                headers["www-authenticate"] = BEARER
            case RateLimited():
                headers["retry-after"] = str(ceil(error.details.get("retry_after", 1)))
            case _:
                pass
        await self._respond(arrived, status, _told(failure(error, arrived.id)), ERROR, headers)

    async def _respond(
        self, arrived: Arrived, status: HTTPStatus, body: bytes, kind: str, headers: Mapping[str, str]
    ) -> None:
        said = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        said += [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        shown = b"" if arrived.scope["method"] == "HEAD" else body
        await arrived.send({"type": "http.response.start", "status": status.value, "headers": said})
        await arrived.send({"type": "http.response.body", "body": shown})


PRIVATE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def _spent(cost: Cost | None) -> dict[str, str]:
    """What an answer costs, and how that was counted."""
    if cost is None:
        return {}
    told = {"x-nwp-tokens": str(cost.tokens)}
    told |= {} if cost.own is None else {"x-nwp-tokens-native": str(cost.own)}
    return {**told, "x-nwp-tokenizer-used": cost.tokenizer} if cost.tokenizer else told


class Front:
    """Takes requests for nodes before all others: they are many, and small.

    A page that shows what a node has is that node, too, for whoever shows a mark of NWP (2.2).
    """

    def __init__(self, app: ASGIApp, overlay: Overlay, observe: Observe) -> None:
        async def broke(request: Request, error: Exception) -> Response:
            observe(Broke(request.scope["path"][:100], type(error).__name__, error))
            return refusal(request.scope, SiteError("The server failed"))

        self._app = app
        self._nodes = ServerErrorMiddleware(overlay, handler=broke)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_node(scope["path"]):
            await self._nodes(scope, receive, send)
        elif (name := _node_behind(scope)) and _is_marked(_headers(scope)):
            await self._nodes({**scope, "path": f"{PREFIX}/{name}"}, receive, send)
        else:
            await self._app(scope, receive, send)


def is_node(path: str) -> bool:
    """Whether a path is that of a node, or below one."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def refusal(scope: Scope, error: SiteError) -> Response:
    """Return the response that tells of an error which no node has raised."""
    id = _named(_headers(scope)) or str(uuid.uuid4())
    headers = {"x-nwp-request-id": header_form(id), "cache-control": "no-store"}
    return Response(_told(failure(error, id)), code_of(error).http, headers, ERROR)


def _node_behind(scope: Scope) -> str:
    """The node that has what a page shows; mostly none."""
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
        return ""
    path: str = scope["path"]
    return SITE if path == "/" else node_of(path.removeprefix(COLLECTIONS)) if path.startswith(COLLECTIONS) else ""


def _wants_frame(accept: str, headers: Headers) -> bool:
    """Whether nothing but a frame will do. Who calls bare JSON a frame means just that in Accept, too."""
    if not any(kind in accept for kind in FRAMES) or CAPSULE in accept or JSON in accept or "*/*" in accept:
        return False
    return not any(kind in headers.get("content-type", "").lower() for kind in FRAMES)


def _headers(scope: Scope) -> Headers:
    return {name.decode("latin-1"): value.decode("latin-1").strip() for name, value in scope["headers"]}


def _is_program(headers: Headers) -> bool:
    """Whether a request shows a mark of NWP, or likes JSON better than pages."""
    return _is_marked(headers) or preferred(headers.get("accept", "").lower(), (HTML, JSON)) == JSON


def _is_marked(headers: Headers) -> bool:
    """Whether a request shows a mark of NWP (2.2)."""
    kinds = f"{headers.get('accept', '')} {headers.get('content-type', '')}".lower()
    return any(name.startswith("x-nwp-") for name in headers) or any(mark in kinds for mark in MARKS)


def _check_has(node: Node, below: str) -> None:
    """Refuse a sub-path that nodes of this type do not have (3.2)."""
    if (below in READS and not node.collections) or (below in ACTS and not node.actions):
        raise UnknownNode(f"{node.name} has no {below}", node=node.name)


_TIERS: Final = {"json": Tier.JSON, "msgpack": Tier.MSGPACK}


def _certificate(shown: str) -> bytes:
    """An IdentFrame as it is, or in base64url."""
    if not shown or shown.startswith("{"):
        return shown.encode("latin-1")
    try:
        return base64.urlsafe_b64decode(shown + "=" * (-len(shown) % 4))
    except ValueError:
        return shown.encode("latin-1")


def _named(headers: Headers) -> str | None:
    """Return what the header of a request calls it; None if it is too long to be told again."""
    id = headers.get("x-nwp-request-id", "")
    return id if 0 < len(id) <= MAX_ID else None


def _trace(passed: str) -> tuple[str, ...]:
    """The nodes that a question came through. The last of them count: nobody gets past them by naming many."""
    return tuple(each for part in passed[-MAX_HEADER:].split(",") if _TRACE.match(each := part.strip()))


def _natural(headers: Headers, name: str) -> int | None:
    said = headers.get(name)
    if not said:
        return None
    if not said.isascii() or not said.isdecimal() or len(said) > 10:
        raise BadRequest(f"{name} is a whole number", header=name)
    return int(said)


def _told(error: ErrorFrame) -> bytes:
    """An error as a body of its own (9.4): what it says, without being called a frame."""
    said = msgspec.structs.asdict(error)
    return encode_value({name: value for name, value in said.items() if value is not None}, Tier.JSON)


def _part(part: StreamFrame, form: Form) -> bytes:
    """A part of a stream in one piece: a frame, or a line."""
    return form.body(part, is_final=part.is_last) if form.is_framed else encode_value(part, Tier.JSON) + b"\n"


def _event(frame: Frame, tier: Tier) -> bytes:
    seq: int | None = getattr(frame, "seq", None)
    id = f"id: {seq}\n".encode() if seq is not None else b""
    return id + b"data: " + base64.b64encode(encode(frame, tier)) + b"\n\n"


def _paced_frames(headers: Headers) -> float:
    """Return how many frames of a stream, from the first on, are followed by a pause."""
    if LARGE_FRAMES in headers.get("prefer", ""):
        return 0
    return inf if PACED_KIND in headers.get("accept", "") else PACED_FRAMES


def _takes_events(headers: Headers) -> bool:
    accept = headers.get("accept", "*/*")
    return EVENTS in accept or "*/*" in accept


def _quoting(request: Request) -> Request:
    """A request whose If-None-Match has quotes: agents send the version as it stands in the manifest."""
    known = request.headers.get("if-none-match", "")
    if not known or known.strip() == "*":
        return request
    quoted = ", ".join(f'"{each.strip().removeprefix("W/").strip(QUOTE)}"' for each in known.split(","))
    headers = [pair for pair in request.scope["headers"] if pair[0] != b"if-none-match"]
    return Request({**request.scope, "headers": [*headers, (b"if-none-match", quoted.encode("latin-1"))]})
