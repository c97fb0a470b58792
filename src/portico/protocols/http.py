"""What faces share: who is calling, bounded bodies, checked JSON, streams that end when nobody listens any more.

Knows HTTP and no protocol on top of it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.access.identity import RESOURCES, Credentials
from portico.access.limits import Limits
from portico.config import Config, Server
from portico.errors import BadRequest, TooLarge, Unauthenticated, Unavailable
from portico.network import HOST, parse_address
from portico.requests import Caller
from portico.site import Site

T = TypeVar("T")

BEARER = "Bearer"  # what faces ask for in www-authenticate
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
CALLER = "portico.caller"  # in a scope: who is calling, set by code of this process; a request cannot
HEARTBEAT_SECONDS = 15.0
BODY_SECONDS = 20.0  # for a request to arrive
PATIENCE_SECONDS = 30.0  # with a client that does not read
PREFLIGHT_SECONDS = 600
MAX_NUMBER = 1.7976931348623157e308


# Who is calling


def credentials(headers: Mapping[str, str], address: str) -> Credentials:
    """A key or token as `authorization: Bearer …` or `x-api-key: …`; header names in lower case. Two must agree."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme and scheme.lower() != "bearer":
        raise Unauthenticated(f"The authorization scheme {scheme!r} is not known", hint="Use Bearer.")
    key = headers.get("x-api-key", "").strip()
    token = token.strip()
    if key and token and key != token:
        raise Unauthenticated("authorization and x-api-key name different keys", hint="Send one of them.")
    return Credentials(token or key, address)


async def caller_of(connection: HTTPConnection, site: Site) -> Caller:
    """Who is calling over HTTP. Code of this process may say so itself, in the scope."""
    told = connection.scope.get(CALLER)
    if told is not None:
        return cast("Caller", told)
    address = connection.client.host if connection.client else ""
    return await site.caller(credentials(connection.headers, address))


# Where the site stands


def base_of(connection: HTTPConnection | None, server: Server) -> str:
    """The address of the site: as configured, or as this client reached it. Without a slash in the end."""
    if server.url:
        return server.url.rstrip("/")
    host = connection.headers.get("host", "") if connection else ""
    secure = connection is not None and connection.scope["scheme"] in {"https", "wss"}
    return f"{'https' if secure else 'http'}://{host if HOST.fullmatch(host) else _own_host(server)}"


def _own_host(server: Server) -> str:
    return f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"


def is_own_host(connection: HTTPConnection, server: Server) -> bool:
    """Whether a request names this site as its host. A page whose name was pointed here by its owner does not.

    Addresses written as numbers are always this site's: no name was resolved on the way.
    """
    host = connection.headers.get("host", "").lower()
    if not HOST.fullmatch(host):
        return False
    name = host.removesuffix(f":{host.rpartition(':')[2]}") if re.search(r":\d+\Z", host) else host
    known = {"localhost", server.host, urlsplit(server.url).hostname, *map(str.lower, server.hosts)}
    return name in known or host in known or parse_address(name.strip("[]")) is not None


# How to come by credentials

CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key"})  # the headers they come in


def challenge(connection: HTTPConnection, config: Config) -> str:
    """What to say in www-authenticate to a request that was refused: with an issuer, where tokens come from."""
    if not config.oauth.issuer:
        return BEARER
    path = connection.scope["path"].rstrip("/")
    door = path if path in RESOURCES else ""
    said = {
        "realm": config.site.name,
        "error": "invalid_token" if CREDENTIALS & set(connection.headers) else "",  # RFC 6750 3.1
        "scope": " ".join(config.oauth.scopes),
        "resource_metadata": f"{base_of(connection, config.server)}{RESOURCE_METADATA}{door}",  # RFC 9728 5.1
    }
    return f"{BEARER} " + ", ".join(f'{name}="{_UNQUOTABLE.sub("?", value)}"' for name, value in said.items() if value)


_UNQUOTABLE = re.compile(r'[^ -~]|["\\]')


class Challenges:
    """Completes what faces ask for in www-authenticate. Without an issuer it does nothing."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._config.oauth.issuer:
            return await self._app(scope, receive, send)

        async def sending(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                headers = MutableHeaders(scope=message)
                if headers.get("www-authenticate") == BEARER:
                    headers["www-authenticate"] = challenge(HTTPConnection(scope), self._config)
            await send(message)

        return await self._app(scope, receive, sending)


# What is sent


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request. What is too long is refused before it is read, or while it is."""
    return await body_of(request.receive, request.headers, limit)


async def body_of(receive: Receive, headers: Mapping[str, str], limit: int) -> bytes:
    """The body that follows these headers; their names are in lower case."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit, int(length))
    body, is_whole = bytearray(), False
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while not is_whole:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk = message.get("body", b"")
                if len(body) + len(chunk) > limit:
                    raise _too_large(limit, len(body) + len(chunk))
                body += chunk
                is_whole = not message.get("more_body", False)
    except TimeoutError as error:
        raise BadRequest(f"The request was not whole after {BODY_SECONDS:g} seconds") from error
    return bytes(body)


def _too_large(limit: int, actual: int) -> TooLarge:
    return TooLarge(f"The request has more than {limit} bytes", limit_type="request_size", limit=limit, actual=actual)


def decode(raw: bytes | str, limits: Limits, values: int | None = None) -> Any:
    """JSON as it was sent, with at most so many values. The last one counts of two members with the same name."""
    if not raw.strip():
        raise BadRequest("The request is empty", hint="Send a JSON object.")
    try:
        value = msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        raise BadRequest(f"The request is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise _too_deep(limits.depth) from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"The request is not JSON: {error}") from error
    _check(value, (), limits.depth)
    if values is not None and _counted(value, values) > values:
        raise TooLarge(f"The request has more than {values} values", limit_type="array_length", limit=values)
    return value


def _counted(value: Any, most: int) -> int:
    """How many values there are, in all depths; of what is too many only that it is."""
    waiting, count = [value], 0
    while waiting and count <= most:
        inner = waiting.pop()
        count += 1
        match inner:
            case dict():
                waiting.extend(cast("dict[str, Any]", inner).values())
            case list():
                waiting.extend(cast("list[Any]", inner))
            case _:
                pass
    return count + len(waiting)


def _check(value: Any, steps: tuple[str, ...], left: int) -> None:
    """Refuse what is nested too deeply, and numbers that no float can hold."""
    match value:
        case dict() | list() if left <= 0:
            raise _too_deep(None, _place(steps))
        case dict():
            for name, inner in cast("dict[str, Any]", value).items():
                _check(inner, (*steps, name), left - 1)
        case list():
            inside = (*steps, "[]")
            for inner in cast("list[Any]", value):
                _check(inner, inside, left - 1)
        case int() if abs(value) > MAX_NUMBER:
            raise BadRequest(f"A number is too large at {_place(steps) or 'the top'}")
        case _:
            pass


def _place(steps: tuple[str, ...]) -> str:
    return ".".join(step[:80] for step in steps).replace(".[]", "[]")


def _too_deep(limit: int | None, where: str = "") -> BadRequest:
    at = f" at {where[:80]}" if where else ""
    return BadRequest(f"The request is nested too deeply{at}", limit_type="nesting_depth", limit=limit)


# Work that ends when the client leaves


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives. It is cancelled when the client leaves before. The body must have been read."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        await ended(working, leaving)


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have cleaned up. What they raise is nobody's concern any more."""
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)
    for each in tasks:
        if not each.cancelled():
            each.exception()  # so that it does not count as never retrieved


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Begun(Generic[T]):
    """Events of which the first has come. Closing it ends the work below, also if nothing more was read."""

    def __init__(self, first: list[T], rest: AsyncGenerator[T]) -> None:
        self._first = first
        self._rest = rest

    @property
    def first(self) -> T | None:
        """What came first, until it is read; None if nothing did."""
        return self._first[0] if self._first else None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return self._first.pop() if self._first else await anext(self._rest)

    async def aclose(self) -> None:
        await self._rest.aclose()


async def begin(events: AsyncIterator[T]) -> Begun[T]:
    """Wait for the first event: an error before it is raised here, while a status code can still be chosen."""
    rest = cast("AsyncGenerator[T]", events)
    try:
        return Begun([await anext(rest)], rest)
    except StopAsyncIteration:
        return Begun([], rest)


# Applications that take a while to make


class Late:
    """An application that is made when it is first needed, once, and lives until it is closed."""

    def __init__(self, made: Callable[[], AbstractAsyncContextManager[ASGIApp]]) -> None:
        self._made = made
        self._app: asyncio.Future[ASGIApp] | None = None
        self._life: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def begin(self) -> None:
        """Begin to make it, if nobody has. It is made and closed in a task of its own."""
        if self._life is None or self._life.done():
            self._app = asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._app))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._ready()
        await app(scope, receive, send)

    async def close(self) -> None:
        """End it, and make none any more. Why one could not be made those who wanted it have been told."""
        self._closing.set()
        if self._life and self._app:
            if not self._app.done():
                self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    async def _ready(self) -> ASGIApp:
        if self._closing.is_set():
            raise Unavailable("The server stops", hint="Try again in a moment.")
        self.begin()
        app, life = cast("asyncio.Future[ASGIApp]", self._app), cast("asyncio.Task[None]", self._life)
        await asyncio.wait({app, life}, return_when=asyncio.FIRST_COMPLETED)
        if not app.done():
            life.result()  # why it could not be made
        return app.result()

    async def _live(self, ready: "asyncio.Future[ASGIApp]") -> None:
        async with self._made() as app:
            ready.set_result(app)
            await self._closing.wait()


# Server-sent events


def sse(data: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event. JSON has no raw line breaks, so one line holds it."""
    event = f"event: {name}\n".encode() if name else b""
    return event + b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream:
    """A response of server-sent events, or of other frames sent one by one. Reads no further ahead than one frame.

    The work ends when the client leaves, and when it does not read for too long. `work` is closed in the end also if no
    frame was read. If the work breaks, `broken` is what the client still gets; the error goes on to the application.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        broken: Iterable[bytes] = (),
        *,
        work: "Begun[Any] | None" = None,
        heartbeat: float | None = HEARTBEAT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        media_type: str = "text/event-stream; charset=utf-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        said = {"content-type": media_type, "cache-control": "no-cache", "x-accel-buffering": "no"}
        told = {**said, **(headers or {})}
        self._headers = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        self._frames = frames
        self._broken = broken
        self._work = work
        self._heartbeat = heartbeat
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        telling, leaving = asyncio.ensure_future(self._tell(send)), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        finally:
            await ended(telling, leaving)
            await self._frames.aclose()
            if self._work:
                await self._work.aclose()

    async def _tell(self, send: Send) -> None:
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self._headers})
            while True:
                step = await self._next(send)
                if step.exception():
                    await self._finish(send, b"".join(self._broken))
                frame = step.result()
                if frame is None:
                    return await self._finish(send, b"")
                await self._send(send, _body(frame, more=True))
        except SlowReader:
            return None

    async def _next(self, send: Send) -> "asyncio.Task[bytes | None]":
        """The next frame or what came instead of it, with a sign of life from time to time until then."""
        step = asyncio.ensure_future(self._step())
        try:
            while not (await asyncio.wait({step}, timeout=self._heartbeat))[0]:
                await self._send(send, _body(b": waiting\n\n", more=True))
        except BaseException:
            await ended(step)
            raise
        return step

    async def _step(self) -> bytes | None:
        return await anext(self._frames, None)

    async def _finish(self, send: Send, last: bytes) -> None:
        await self._send(send, _body(last, more=False))

    async def _send(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await send(message)
        except TimeoutError as error:
            raise SlowReader from error


class SlowReader(Exception):
    """A client took nothing for so long that it is given up."""


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


# Pages elsewhere


def is_allowed(origin: str, patterns: Iterable[str]) -> bool:
    """Whether a page of this origin may ask: exactly, by `*`, or on any port by `http://localhost:*`."""
    return any(pattern in {"*", origin} or _any_port(origin, pattern) for pattern in patterns)


def is_from_elsewhere(connection: HTTPConnection, server: Server) -> bool:
    """Whether a browser sent this for a page that is neither the site's own nor allowed to ask."""
    origin = connection.headers.get("origin")
    if origin is None:
        return False
    # A name that somebody else has made lead here makes nobody at home.
    host = connection.headers.get("host", "") if is_own_host(connection, server) else ""
    own = {host, urlsplit(server.url).netloc} - {""}
    # An origin is a scheme and a host: what follows the slashes is the host, whatever it looks like.
    return origin.partition("://")[2] not in own and not is_allowed(origin, server.origins)


def _any_port(origin: str, pattern: str) -> bool:
    if not pattern.endswith(":*"):
        return False
    start, _, port = origin.rpartition(":")
    return origin == pattern[:-2] or (start == pattern[:-2] and port.isdecimal())


class Cors:
    """Lets pages of configured origins ask from a browser, without credentials. Without origins it does nothing."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._origins:
            return await self._app(scope, receive, send)
        headers = HTTPConnection(scope).headers
        origin = headers.get("origin", "")
        allowed = bool(origin) and is_allowed(origin, self._origins)
        said = "*" if "*" in self._origins else origin

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.add_vary_header("Origin")
                if allowed:
                    answer["access-control-allow-origin"] = said
                    answer["access-control-expose-headers"] = _EXPOSED
            await send(message)

        if allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await sending({"type": "http.response.start", "status": 204, "headers": list(_PREFLIGHT_HEADERS)})
            return await sending(_body(b"", more=False))
        return await self._app(scope, receive, sending)


_EXPOSED = (
    "retry-after, www-authenticate, location, etag, mcp-session-id, x-nwp-schema, x-nwp-tokens, x-nwp-tokens-native,"
    " x-nwp-tokenizer-used, x-nwp-cached, x-nwp-node-type, x-nwp-request-id, x-nwp-rate-limit, x-nwp-rate-remaining,"
    " x-nwp-rate-reset"
)
_ACCEPTED = (
    "content-type, authorization, x-api-key, api-key, x-ms-useragent, accept, prefer, idempotency-key, last-event-id,"
    " mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, a2a-version, a2a-extensions, if-none-match,"
    " x-nwp-agent, x-nwp-ident, x-nwp-budget, x-nwp-tokenizer, x-nwp-depth, x-nwp-encoding, x-nwp-request-id,"
    " x-nwp-version, x-nwp-trace"
)
_PREFLIGHT_HEADERS = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", _ACCEPTED.encode()),
    (b"access-control-max-age", str(PREFLIGHT_SECONDS).encode()),
)
