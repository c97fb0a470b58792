"""What protocols share of HTTP: credentials, bounded bodies, checked JSON, CORS, and streams that end with the client.

Knows no protocol above HTTP.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.access.identity import RequestCredentials
from portico.access.limits import Limits, NestingTooDeep, walk_json
from portico.config import Config, Server
from portico.errors import BadRequest, TooLarge, Unauthenticated, Unavailable
from portico.items import MAX_NUMBER
from portico.network import HOST, parse_address
from portico.protocols import Protocol, resources
from portico.requests import Caller

T = TypeVar("T")

BEARER = "Bearer"  # the challenge in www-authenticate, before `BearerChallenges` completes it
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
CALLER = "portico.caller"  # the key of the caller in a scope; only code of this process can set it
HEARTBEAT_SECONDS = 15.0
BODY_SECONDS = 20.0  # for a request to arrive
PATIENCE_SECONDS = 30.0  # with a client that does not read
PREFLIGHT_SECONDS = 600


# Who is calling


def read_credentials(headers: Mapping[str, str], address: str) -> RequestCredentials:
    """Return the key or token in `authorization: Bearer …` or `x-api-key: …`. If both are sent, they must be equal.

    The names of headers must be in lower case.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme and scheme.lower() != "bearer":
        raise Unauthenticated(f"The authorization scheme {scheme!r} is not supported", hint="Use Bearer.")
    key = headers.get("x-api-key", "").strip()
    token = token.strip()
    if key and token and key != token:
        raise Unauthenticated("`authorization` and `x-api-key` contain different keys", hint="Send only one of them.")
    return RequestCredentials(token or key, address)


def pick_headers(scope: Scope, names: frozenset[bytes]) -> dict[str, str]:
    """Return the requested headers that are present. If a name occurs twice, the first value counts.

    Faster than Starlette's Headers, which searches all headers for each name.
    """
    headers = reversed(scope["headers"])
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in names}


def address_of(connection: HTTPConnection) -> str:
    """Return the address that a request came from; empty if it has none, as on a Unix socket."""
    client = connection.scope.get("client")
    return client[0] if client else ""


_KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})


def credentials_of(connection: HTTPConnection) -> RequestCredentials:
    """Return the key or token of a request."""
    return read_credentials(pick_headers(connection.scope, _KEY_HEADERS), address_of(connection))


def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller whom the edge has identified."""
    return cast("Caller", connection.scope[CALLER])


# The host


def base_of(connection: HTTPConnection | None, server: Server) -> str:
    """Return the base URL of the site, as configured or as this client reached it, without a slash at the end."""
    if server.url:
        return server.url.rstrip("/")
    host = connection.headers.get("host", "") if connection else ""
    own_host = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
    secure = connection is not None and connection.scope["scheme"] in {"https", "wss"}
    return f"{'https' if secure else 'http'}://{host if HOST.fullmatch(host) else own_host}"


def is_own_host(connection: HTTPConnection, server: Server) -> bool:
    """Return whether the Host header names this site. It does not if a foreign domain was pointed at this server.

    An IP address always counts as this site's, since no name was resolved.
    """
    host = connection.headers.get("host", "").lower()
    if not HOST.fullmatch(host):
        return False
    name = host.removesuffix(f":{host.rpartition(':')[2]}") if re.search(r":\d+\Z", host) else host
    own_names = {"localhost", server.host, urlsplit(server.url).hostname, *map(str.lower, server.hosts)}
    return name in own_names or host in own_names or parse_address(name.strip("[]")) is not None


# Challenges

CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key"})  # the headers they come in


def challenge(connection: HTTPConnection, config: Config) -> str:
    """Return the www-authenticate header for a refused request. With an issuer, it tells where tokens come from."""
    if not config.oauth.issuer:
        return BEARER
    path = connection.scope["path"].rstrip("/")
    resource = path if path in resources() else ""
    params = {
        "realm": config.site.name,
        "error": "invalid_token" if CREDENTIALS & set(connection.headers) else "",  # RFC 6750 3.1
        "scope": " ".join(config.oauth.scopes),
        "resource_metadata": f"{base_of(connection, config.server)}{RESOURCE_METADATA}{resource}",  # RFC 9728 5.1
    }
    return f"{BEARER} " + ", ".join(
        f'{name}="{_UNQUOTABLE.sub("?", value)}"' for name, value in params.items() if value
    )


_UNQUOTABLE = re.compile(r'[^ -~]|["\\]')


class BearerChallenges:
    """Middleware that completes the www-authenticate headers of responses. Without an issuer it does nothing."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._config.oauth.issuer:
            return await self._app(scope, receive, send)

        async def send_with_challenge(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                headers = MutableHeaders(scope=message)
                if headers.get("www-authenticate") == BEARER:
                    headers["www-authenticate"] = challenge(HTTPConnection(scope), self._config)
            await send(message)

        return await self._app(scope, receive, send_with_challenge)


# Bodies


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request. Raises TooLarge as soon as it is known to be longer than the limit."""
    return await body_of(request.receive, request.headers, limit)


async def body_of(receive: Receive, headers: Mapping[str, str], limit: int) -> bytes:
    """Read a body from `receive`. The names of its headers must be in lower case."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise body_too_large(limit, int(length))
    body, is_whole = bytearray(), False
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while not is_whole:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk = message.get("body", b"")
                if len(body) + len(chunk) > limit:
                    raise body_too_large(limit, len(body) + len(chunk))
                body += chunk
                is_whole = not message.get("more_body", False)
    except TimeoutError as error:
        raise BadRequest(f"The request was incomplete after {BODY_SECONDS:g} seconds") from error
    return bytes(body)


def body_too_large(limit: int, actual: int) -> TooLarge:
    return TooLarge(f"The request has more than {limit} bytes", limit_type="request_size", limit=limit, actual=actual)


def decode(raw: bytes | str, limits: Limits, values: int | None = None) -> Any:
    """Decode JSON with at most `values` values. If an object has two members with one name, the last one counts."""
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
    try:
        for number, (inner, path) in enumerate(walk_json(value, limits.depth), 1):
            if values is not None and number > values:
                raise TooLarge(f"The request has more than {values} values", limit_type="array_length", limit=values)
            if isinstance(inner, int) and abs(inner) > MAX_NUMBER:
                raise BadRequest(f"A number is too large at {_place(path) or 'the top'}")
    except NestingTooDeep as error:
        raise _too_deep(limits.depth, _place(error.path)) from error
    return value


def _place(steps: tuple[str, ...]) -> str:
    return ".".join(step[:80] for step in steps).replace(".[]", "[]")


def _too_deep(limit: int, where: str = "") -> BadRequest:
    at = f" at {where[:80]}" if where else ""
    return BadRequest(f"The request is nested too deeply{at}", limit_type="nesting_depth", limit=limit)


# Work that ends when the client leaves


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel it if the client leaves first. The body must have been read."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        await cancel_and_wait(working, leaving)


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have cleaned up. Ignores their exceptions."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marks it as retrieved


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class StartedStream(Generic[T]):
    """A stream whose first event has arrived. Closing it ends the work behind it, even if nothing more was read."""

    def __init__(self, first: list[T], rest: AsyncGenerator[T]) -> None:
        self._first = first
        self._rest = rest

    @property
    def first(self) -> T | None:
        """The first event until it is read; None if the stream is empty."""
        return self._first[0] if self._first else None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return self._first.pop() if self._first else await anext(self._rest)

    async def aclose(self) -> None:
        await self._rest.aclose()


async def start_stream(events: AsyncIterator[T]) -> StartedStream[T]:
    """Wait for the first event: an error before it is raised here, while a status code can still be chosen."""
    rest = cast("AsyncGenerator[T]", events)
    try:
        return StartedStream([await anext(rest)], rest)
    except StopAsyncIteration:
        return StartedStream([], rest)


# Applications that load slowly


class LazyApp:
    """An application that is made once, at its first request or by `start`, and lives until `close`."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[ASGIApp]]) -> None:
        self._make = make
        self._app: asyncio.Future[ASGIApp] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def start(self) -> None:
        """Make the application in a task of its own, unless that has begun."""
        if self._task is None or self._task.done():
            self._app = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._app))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._ready()
        await app(scope, receive, send)

    async def close(self) -> None:
        """Close the application for good. An error in making it has been raised to the requests that waited for it."""
        self._closing.set()
        if self._task and self._app:
            if not self._app.done():
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ready(self) -> ASGIApp:
        if self._closing.is_set():
            raise Unavailable("The server is shutting down", hint="Try again in a moment.")
        self.start()
        app, life = cast("asyncio.Future[ASGIApp]", self._app), cast("asyncio.Task[None]", self._task)
        await asyncio.wait({app, life}, return_when=asyncio.FIRST_COMPLETED)
        if not app.done():
            life.result()  # raises the error that stopped it
        return app.result()

    async def _run(self, ready: "asyncio.Future[ASGIApp]") -> None:
        async with self._make() as app:
            ready.set_result(app)
            await self._closing.wait()


# Server-sent events


def sse(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return a server-sent event. JSON has no raw line breaks, so it fits into one line."""
    event = f"event: {name}\n".encode() if name else b""
    return event + b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream:
    """A response of server-sent events, or of other frames. Reads at most one frame ahead.

    The work ends when the client leaves, and when it stops reading for `patience` seconds. `work` is closed at the end
    even if no frame was read. After an exception the client gets the frames `broken`; the exception is raised again.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        broken: Iterable[bytes] = (),
        *,
        work: "StartedStream[Any] | None" = None,
        heartbeat: float | None = HEARTBEAT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        media_type: str = "text/event-stream; charset=utf-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        defaults = {"content-type": media_type, "cache-control": "no-cache", "x-accel-buffering": "no"}
        all_headers = {**defaults, **(headers or {})}
        self._headers = [(name.encode(), value.encode("latin-1")) for name, value in all_headers.items()]
        self._frames = frames
        self._broken = broken
        self._work = work
        self._heartbeat = heartbeat
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending_task, leaving = asyncio.ensure_future(self._send_frames(send)), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending_task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending_task.done():
                sending_task.result()
        finally:
            await cancel_and_wait(sending_task, leaving)
            await self._frames.aclose()
            if self._work:
                await self._work.aclose()

    async def _send_frames(self, send: Send) -> None:
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
        """Return the task with the next frame, or with an exception. Sends heartbeats until it is done."""
        step = asyncio.ensure_future(self._step())
        try:
            while not (await asyncio.wait({step}, timeout=self._heartbeat))[0]:
                await self._send(send, _body(b": waiting\n\n", more=True))
        except BaseException:
            await cancel_and_wait(step)
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
    """A client has stopped reading."""


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


# Origins


def is_allowed(origin: str, patterns: Iterable[str]) -> bool:
    """Return whether an origin matches a pattern: exactly, by `*`, or on any port by `http://localhost:*`."""
    return any(pattern in {"*", origin} or _any_port(origin, pattern) for pattern in patterns)


def is_from_elsewhere(connection: HTTPConnection, server: Server) -> bool:
    """Return whether a browser sent this for a page whose origin is neither this site nor in `server.origins`."""
    origin = connection.headers.get("origin")
    if origin is None:
        return False
    # A foreign domain that was pointed at this server is not this site.
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
    """Middleware for CORS without credentials. Without configured origins it does nothing."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...], protocols: Sequence[Protocol] = ()) -> None:
        self._app = app
        self._origins = origins
        self._exposed = ", ".join((*_EXPOSED, *(name for protocol in protocols for name in protocol.exposed_headers)))
        accepted = ", ".join((*_ACCEPTED, *(name for protocol in protocols for name in protocol.accepted_headers)))
        self._preflight_headers = [
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (b"access-control-allow-headers", accepted.encode()),
            (b"access-control-max-age", str(PREFLIGHT_SECONDS).encode()),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._origins:
            return await self._app(scope, receive, send)
        headers = HTTPConnection(scope).headers
        origin = headers.get("origin", "")
        allowed = bool(origin) and is_allowed(origin, self._origins)
        allowed_origin = "*" if "*" in self._origins else origin

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.add_vary_header("Origin")
                if allowed:
                    answer["access-control-allow-origin"] = allowed_origin
                    answer["access-control-expose-headers"] = self._exposed
            await send(message)

        if allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await send_with_cors(
                {"type": "http.response.start", "status": 204, "headers": list(self._preflight_headers)}
            )
            return await send_with_cors(_body(b"", more=False))
        return await self._app(scope, receive, send_with_cors)


# Headers that belong to no single protocol.
_EXPOSED = ("retry-after", "www-authenticate", "location", "etag")
_ACCEPTED = ("content-type", "authorization", "x-api-key", "accept", "prefer", "idempotency-key", "if-none-match")


class TrailingSlashRoute(Route):
    """A route whose path may end with a slash. Does not redirect, because some clients do not follow redirects."""

    def __init__(self, path: str, endpoint: Any, *methods: str) -> None:
        super().__init__(path, endpoint, methods=methods)

    def matches(self, scope: Any) -> Any:
        path = scope["path"]
        plain = {**scope, "path": path.removesuffix("/")} if path != "/" else scope
        return super().matches(plain)
