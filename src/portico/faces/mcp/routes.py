"""`/mcp`: lets in who may come in, and hands the request to the official SDK.

Loads nothing of the SDK, which takes a second: that happens in the background once a server runs, or at the first
request. What is refused here is answered as a JSON-RPC error with the status of its reason.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.config import Config
from portico.errors import BadRequest, RateLimited, SiteError, TooLarge, Unauthenticated
from portico.faces.nlweb.shapes import members
from portico.faces.wire import BEARER, CALLER, Late, caller_of, decode, is_from_elsewhere, is_own_host, read_body
from portico.identity import ASK
from portico.observe import Observe
from portico.site import Site

PATH = "/mcp"
INVALID_REQUEST = -32600
PARSE_ERROR = -32700
REFUSED = -32000  # of JSON-RPC's codes that are left to servers


def routes(site: Site, config: Config, observe: Observe) -> tuple[list[BaseRoute], Late]:
    @asynccontextmanager
    async def made() -> AsyncGenerator[ASGIApp]:
        server = await asyncio.to_thread(importlib.import_module, "portico.faces.mcp.server")
        transport = importlib.import_module("portico.faces.mcp.transport")
        async with transport.opened(server.made(site, config, observe), config) as app:
            yield app

    late = Late(made)
    return [Route(PATH, Door(site, config, late))], late


class Door:
    """Who comes in here has a right host, a right origin and credentials, and a body of a size that can be read."""

    def __init__(self, site: Site, config: Config, inside: ASGIApp) -> None:
        self._site = site
        self._config = config
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # RFC 9110, 5.5: white space around a value is no part of it. The server before leaves what follows.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        request = Request(scope, receive)
        refusal = self._misdirected(request)
        if refusal is None:
            try:
                scope[CALLER] = await self._caller(request)
                receive = await self._read(request, receive)
            except SiteError as error:
                refusal = self._refused(error, request)
        app = refusal or self._inside
        await app(scope, receive, send)

    def _misdirected(self, request: Request) -> Response | None:
        """What a page sent that had its own name lead here, or that may not ask here."""
        server = self._config.server
        if not is_own_host(request, server):
            return refusal(421, "This is not a site of that name; its operator can add it to server.hosts")
        if is_from_elsewhere(request, server):
            return refusal(403, "Pages of that origin may not ask here; the operator can add it to server.origins")
        return None

    async def _caller(self, request: Request) -> object:
        caller = await caller_of(request, self._site)
        if caller.is_anonymous and ASK not in caller.scopes:
            await self._site.gate.spend(caller)
            raise Unauthenticated("This site wants to know who asks", hint="Send an access token or an API key.")
        return caller

    async def _read(self, request: Request, receive: Receive) -> Receive:
        """The body, whole and checked, for the SDK to read again."""
        if request.method != "POST":
            return receive
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise WrongKind("Requests are JSON", hint="Send `content-type: application/json`.")
        body = await read_body(request, self._site.limits.payload_bytes)
        said = decode(body, self._site.limits)
        if is_plain(request.method, request.headers):
            body = _completed(said)
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        return again

    def _refused(self, error: SiteError, request: Request) -> Response:
        match error:
            case Unauthenticated():
                return refusal(401, str(error), headers={"www-authenticate": BEARER})
            case RateLimited():
                seconds = max(1, round(error.details.get("retry_after", 1)))
                return refusal(429, str(error), headers={"retry-after": str(seconds)})
            case TooLarge():
                return refusal(413, str(error), INVALID_REQUEST)
            case WrongKind():
                return refusal(415, str(error), INVALID_REQUEST)
            case BadRequest():
                return refusal(400, str(error), PARSE_ERROR)
            case _:
                return refusal(503, str(error))


class WrongKind(BadRequest): ...


def is_plain(method: str, headers: Headers) -> bool:
    """Whether this is a client that reads no streams, opens no session and names no revision: front ends of before."""
    named = {"mcp-session-id", "mcp-protocol-version"}.intersection(headers)
    return method == "POST" and not named and "text/event-stream" not in headers.get("accept", "")


def _completed(said: Any) -> bytes:
    """A request of such a client. It introduces itself without saying what it can do."""
    message, params = members(said), members(members(said).get("params"))
    if message.get("method") == "initialize":
        return msgspec.json.encode({**message, "params": {"capabilities": {}, **params}})
    return msgspec.json.encode(said)


def refusal(status: int, message: str, code: int = REFUSED, headers: dict[str, str] | None = None) -> Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return Response(msgspec.json.encode(body), status, headers, "application/json")
