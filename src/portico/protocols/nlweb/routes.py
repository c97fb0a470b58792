"""`/ask` and `/await` over HTTP. Turns bytes into requests and answers into bytes."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Scope

from portico.access.limits import Limits
from portico.config import Config
from portico.errors import BadRequest, SiteError
from portico.protocols import Mounted, Services
from portico.protocols.edge import EdgePolicy, check_origin
from portico.protocols.http import EventStream, caller_of, decode, is_from_elsewhere, read_body, sse, while_connected
from portico.protocols.nlweb.dialects import FLAT, V55, ClientInfo, parse_client_info
from portico.protocols.nlweb.errors import JsonAnswer, failure_answer
from portico.protocols.nlweb.render import AnswerFrame, FlatRenderer, Renderer
from portico.protocols.nlweb.service import AnswerStream, IncomingRequest, NlwebService
from portico.protocols.nlweb.socket import WebSocketEndpoint
from portico.protocols.problems import BROKEN
from portico.protocols.rendering import members
from portico.site import Site
from portico.telemetry import Recorder

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 200  # of a form or a URL
_READ = frozenset({"empty", "document"})  # values of sec-fetch-dest where a script or a person reads the answer

AnswerStarter: TypeAlias = Callable[[IncomingRequest], Awaitable[AnswerStream]]


def mount(services: Services) -> Mounted:
    config = services.config

    def check(connection: HTTPConnection) -> None:
        # A page of another origin may post a question, but not talk over a socket in the name of its visitor.
        if connection.scope["type"] == "websocket":
            check_origin(connection, config.server)

    return Mounted(
        routes=routes(services.site, config, services.record), render_error=render_error, policy=EdgePolicy(check=check)
    )


def routes(site: Site, config: Config, record: Recorder) -> list[BaseRoute]:
    service = NlwebService(site, config)
    dialogue = WebSocketEndpoint(service, record)

    async def ask(request: Request) -> ASGIApp:
        return await _answer_request(request, service, service.ask)

    async def wait(request: Request) -> ASGIApp:
        return await _answer_request(request, service, service.check_promise)

    ask_route = Route("/ask", ask)
    ask_route.methods = {"GET", "POST"}  # without HEAD, which Starlette adds to GET
    return [
        ask_route,
        Route("/await", wait, methods=["POST"]),
        WebSocketRoute("/ask", dialogue),
        WebSocketRoute("/await", dialogue),
    ]


def refusal(error: HTTPException) -> Response:
    """Render an error of the routing, such as a wrong method, as an NLWeb failure."""
    refused_request = BadRequest(error.detail, hint=f"Use {error.headers['Allow']}." if error.headers else None)
    return _respond(
        JsonAnswer(error.status_code, failure_answer(refused_request, ClientInfo()).body, error.headers or {})
    )


def failure_response(error: SiteError) -> Response:
    """Render an error that was raised before the request was read, when its dialect is not known."""
    return _respond(failure_answer(error, ClientInfo()))


def render_error(scope: Scope, error: Exception) -> ASGIApp:
    """Render an error of the edge or the routing, when the dialect of the request is not known."""
    if isinstance(error, HTTPException):
        return refusal(error)
    if not isinstance(error, SiteError):
        return breakdown(Request(scope))
    if scope["type"] == "websocket":
        return failure_response(error)
    is_flat = scope["method"] == "GET"
    client = ClientInfo(FLAT if is_flat else V55, declared=False)
    return _render_refusal(error, client, Headers(scope=scope).get("accept", ""))


def _render_refusal(error: SiteError, client: ClientInfo, accept: str) -> ASGIApp:
    if client.dialect is FLAT and "text/event-stream" in accept:
        # A browser's EventSource repeats its request forever if it gets an error status in place of a stream.
        return EventStream(_encode_frames(_refusal_frames(error, client)))
    return _respond(failure_answer(error, client))


def breakdown(request: Request) -> Response:
    """Return the response after a defect."""
    return _respond(failure_answer(BROKEN, request.scope.get(_VOICE, ClientInfo())))


_VOICE = "portico.nlweb.client"  # in a scope: the dialect of the request, once it is known


async def _answer_request(request: Request, service: NlwebService, answer: AnswerStarter) -> ASGIApp:
    since, flat = time.perf_counter(), request.method == "GET"
    client = ClientInfo(FLAT if flat else V55, declared=False)
    try:
        caller = caller_of(request)
        raw = await _read(request, service.site.limits)
        client = request.scope[_VOICE] = parse_client_info(raw, flat=flat)
        incoming = IncomingRequest(
            raw,
            client,
            caller,
            service.render_context(request),
            since,
            request.headers.get("accept", ""),
            request.headers.get("accept-language", ""),
            # A link or an image on another page can send this request, so answer it but run no operation.
            may_act=request.method == "POST" and not is_from_elsewhere(request, service.config.server),
        )
        stream = await while_connected(request.receive, _start_answer(answer, incoming))
        if stream.streams:
            frames = _encode_frames(stream.frames())
            return EventStream(frames, _frames_after_defect(stream.renderer), work=stream.events)
        async with aclosing(stream.events):
            return _respond(await while_connected(request.receive, stream.collect()))
    except SiteError as error:
        return _render_refusal(error, client, request.headers.get("accept", ""))


async def _refusal_frames(error: SiteError, client: ClientInfo) -> AsyncGenerator[AnswerFrame]:
    for frame in FlatRenderer.refusal(error, client):
        yield frame


async def _start_answer(answer: AnswerStarter, request: IncomingRequest) -> AnswerStream:
    return await answer(request)


async def _read(request: Request, limits: Limits) -> Any:
    """Return a request as JSON, from a body, a form or the query of a URL."""
    # Not from `request.url`, of which the Host header is a part.
    in_url = _fields(request.scope["query_string"].decode(errors="replace"))
    if request.method == "GET":
        # Another page could make this the source of its images.
        if request.headers.get("sec-fetch-dest", "empty") not in _READ:
            raise BadRequest("`/ask` cannot be loaded as a resource of a page")
        return in_url
    body = await read_body(request, limits.payload_bytes)
    # Command line tools label JSON as a form by default.
    is_form = request.headers.get("content-type", "").startswith(FORM) and not body.lstrip().startswith((b"{", b"["))
    raw = _form(body) if is_form else decode(body, limits)
    return {**in_url, **members(raw)} if isinstance(members(raw).get("query"), str) else raw


def _form(body: bytes) -> dict[str, Any]:
    try:
        return _fields(body.decode())
    except UnicodeDecodeError as error:
        raise BadRequest(f"The form is not UTF-8: {error.reason}") from error


def _fields(encoded: str) -> dict[str, Any]:
    """Return the fields of a form. A field that appears several times becomes a list."""
    try:
        pairs = parse_qsl(encoded, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise BadRequest(f"The request has more than {MAX_FIELDS} fields") from error
    fields: dict[str, Any] = {}
    for name, value in pairs:
        fields[name] = [*_several(fields[name]), value] if name in fields else value
    return fields


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


async def _encode_frames(frames: AsyncGenerator[AnswerFrame]) -> AsyncGenerator[bytes]:
    async with aclosing(frames):
        async for frame in frames:
            yield sse(frame.data, frame.name)


def _respond(answer: JsonAnswer) -> Response:
    body = msgspec.json.encode(answer.body)
    return Response(body, answer.status, {**_HEADERS, **answer.headers}, "application/json")


# An answer depends on its caller, and it is never a page.
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def _frames_after_defect(renderer: Renderer) -> Iterator[bytes]:
    """Yield what ends a stream. Lazy, because a renderer is aborted only if there is a defect."""
    for frame in renderer.abort():
        yield sse(frame.data, frame.name)
