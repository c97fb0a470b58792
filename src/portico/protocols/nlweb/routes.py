"""`/ask` and `/await` over HTTP. Turns bytes into requests and answers into bytes."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from portico.access.limits import Limits
from portico.config import Config
from portico.errors import BadRequest, SiteError
from portico.protocols.http import EventStream, caller_of, decode, is_from_elsewhere, read_body, sse, while_connected
from portico.protocols.nlweb.dialects import FLAT, V55, Voice, voice_of
from portico.protocols.nlweb.errors import BROKEN, Whole, failure
from portico.protocols.nlweb.item_rendering import members
from portico.protocols.nlweb.render import Flat, Frame, Rendering
from portico.protocols.nlweb.service import Answering, Desk, Received
from portico.protocols.nlweb.socket import Talk
from portico.site import Site
from portico.telemetry import Observe

PATHS = frozenset({"/ask", "/await"})
FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 200  # of a form or a URL
_READ = frozenset({"empty", "document"})  # what browsers say that scripts and people read

Answer: TypeAlias = Callable[[Received], Awaitable[Answering]]


def routes(site: Site, config: Config, observe: Observe) -> list[BaseRoute]:
    desk = Desk(site, config)
    talk = Talk(desk, observe)

    async def ask(request: Request) -> ASGIApp:
        return await _answered(request, desk, desk.ask)

    async def wait(request: Request) -> ASGIApp:
        return await _answered(request, desk, desk.awaited)

    asking = Route("/ask", ask)
    asking.methods = {"GET", "POST"}  # without HEAD, which comes along with GET: a question nobody hears the answer to
    return [
        asking,
        Route("/await", wait, methods=["POST"]),
        WebSocketRoute("/ask", talk),
        WebSocketRoute("/await", talk),
    ]


def refusal(error: HTTPException) -> Response:
    """What the routing refused, such as a method, in the words of this face."""
    said = BadRequest(error.detail, hint=f"Use {error.headers['Allow']}." if error.headers else None)
    return _sent(Whole(error.status_code, failure(said, Voice()).body, error.headers or {}))


def failure_response(error: SiteError) -> Response:
    """Return the response that refuses a request before it is read, so that its dialect is not known."""
    return _sent(failure(error, Voice()))


def breakdown(request: Request) -> Response:
    """What to say when something happened that should not."""
    return _sent(failure(BROKEN, request.scope.get(_VOICE, Voice())))


_VOICE = "portico.nlweb.voice"  # in a scope: how to speak to the caller, once that is known


async def _answered(request: Request, desk: Desk, answer: Answer) -> ASGIApp:
    since, flat = time.perf_counter(), request.method == "GET"
    voice = Voice(FLAT if flat else V55, declared=False)
    try:
        caller = await caller_of(request, desk.site)
        raw = await desk.site.unless_refused(_read(request, desk.site.limits), caller)
        voice = request.scope[_VOICE] = voice_of(raw, flat=flat)
        got = Received(
            raw,
            voice,
            caller,
            desk.premises(request),
            since,
            request.headers.get("accept", ""),
            request.headers.get("accept-language", ""),
            # What a link or a picture of another page can send is answered, but nothing is done for it.
            may_act=request.method == "POST" and not is_from_elsewhere(request, desk.config.server),
        )
        answering = await while_connected(request.receive, _begun(answer, got))
        if answering.streams:
            frames = _encoded(answering.frames())
            return EventStream(frames, _last_words(answering.rendering), work=answering.events)
        async with aclosing(answering.events):
            return _sent(await while_connected(request.receive, answering.whole()))
    except SiteError as error:
        if voice.dialect is FLAT and "text/event-stream" in request.headers.get("accept", ""):
            # A browser asks again and again where it hoped for a stream and got a status.
            return EventStream(_encoded(_refused(error, voice)))
        return _sent(failure(error, voice))


async def _refused(error: SiteError, voice: Voice) -> AsyncGenerator[Frame]:
    for frame in Flat.refusal(error, voice):
        yield frame


async def _begun(answer: Answer, got: Received) -> Answering:
    return await answer(got)


async def _read(request: Request, limits: Limits) -> Any:
    """A request as JSON, from a body, a form or the query of a URL."""
    # Not from `request.url`, of which the Host header is a part.
    in_url = _fields(request.scope["query_string"].decode(errors="replace"))
    if request.method == "GET":
        # A page may have it for a picture, as many times as it has pictures.
        if request.headers.get("sec-fetch-dest", "empty") not in _READ:
            raise BadRequest("Nobody reads an answer there")
        return in_url
    body = await read_body(request, limits.payload_bytes)
    # Command line tools call JSON a form if they are not told otherwise.
    is_form = request.headers.get("content-type", "").startswith(FORM) and not body.lstrip().startswith((b"{", b"["))
    raw = _form(body) if is_form else decode(body, limits)
    return {**in_url, **members(raw)} if isinstance(members(raw).get("query"), str) else raw


def _form(body: bytes) -> dict[str, Any]:
    try:
        return _fields(body.decode())
    except UnicodeDecodeError as error:
        raise BadRequest(f"The form is not UTF-8: {error.reason}") from error


def _fields(encoded: str) -> dict[str, Any]:
    """The fields of a form. One that is given several times is a list."""
    try:
        pairs = parse_qsl(encoded, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise BadRequest(f"There are more than {MAX_FIELDS} fields") from error
    fields: dict[str, Any] = {}
    for name, value in pairs:
        fields[name] = [*_several(fields[name]), value] if name in fields else value
    return fields


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


async def _encoded(frames: AsyncGenerator[Frame]) -> AsyncGenerator[bytes]:
    async with aclosing(frames):
        async for frame in frames:
            yield sse(frame.data, frame.name)


def _last_words(answer: Rendering) -> Iterator[bytes]:
    for frame in answer.broken():
        yield sse(frame.data, frame.name)


def _sent(whole: Whole) -> Response:
    body = msgspec.json.encode(whole.body)
    return Response(body, whole.status, {**_HEADERS, **whole.headers}, "application/json")


# An answer depends on who asks, and nothing in it is a page.
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
