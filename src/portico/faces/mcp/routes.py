"""`/mcp`: the door, and behind it the official SDK.

Loads nothing of the SDK, which takes a second: that happens in the background once a server runs, or at the first
request. What is refused at the door is answered as a JSON-RPC error with the status of its reason.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from portico.config import Config
from portico.errors import BadRequest, Denied, RateLimited, SiteError, TooLarge, Unauthenticated
from portico.faces.door import Door, Unreadable, WrongHost, WrongKind
from portico.faces.nlweb.failures import headers_of
from portico.faces.nlweb.shapes import members
from portico.faces.wire import Late
from portico.observe import Observe
from portico.site import Site

PATH = "/mcp"
INVALID_REQUEST, PARSE_ERROR = -32600, -32700
REFUSED = -32000  # of JSON-RPC's codes that are left to servers

REASONS: Mapping[type[SiteError], tuple[HTTPStatus, int]] = {
    SiteError: (HTTPStatus.SERVICE_UNAVAILABLE, REFUSED),
    WrongHost: (HTTPStatus.MISDIRECTED_REQUEST, REFUSED),
    Denied: (HTTPStatus.FORBIDDEN, REFUSED),
    Unauthenticated: (HTTPStatus.UNAUTHORIZED, REFUSED),
    RateLimited: (HTTPStatus.TOO_MANY_REQUESTS, REFUSED),
    BadRequest: (HTTPStatus.BAD_REQUEST, INVALID_REQUEST),
    Unreadable: (HTTPStatus.BAD_REQUEST, PARSE_ERROR),
    WrongKind: (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST),
    TooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, INVALID_REQUEST),
}


def routes(site: Site, config: Config, observe: Observe) -> tuple[list[BaseRoute], Late]:
    @asynccontextmanager
    async def made() -> AsyncGenerator[ASGIApp]:
        server = await asyncio.to_thread(importlib.import_module, "portico.faces.mcp.server")
        transport = importlib.import_module("portico.faces.mcp.transport")
        async with transport.opened(server.made(site, config, observe), config) as app:
            yield app

    late = Late(made)
    return [Route(PATH, door(site, config, late))], late


def door(site: Site, config: Config, inside: ASGIApp) -> Door:
    return Door(site, config, inside, refusal, _completed)


def refusal(error: SiteError) -> Response:
    status, code = next(REASONS[kind] for kind in type(error).__mro__ if kind in REASONS)
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": str(error)}}
    return Response(msgspec.json.encode(body), status, headers_of(error), "application/json")


def is_plain(method: str, headers: Headers) -> bool:
    """Whether this is a client that reads no streams, opens no session and names no revision: front ends of before."""
    named = {"mcp-session-id", "mcp-protocol-version"}.intersection(headers)
    return method == "POST" and not named and "text/event-stream" not in headers.get("accept", "")


def _completed(request: Request, said: Any, body: bytes) -> bytes:
    """A request of such a client introduces itself without saying what it can do."""
    if members(said).get("method") != "initialize" or not is_plain(request.method, request.headers):
        return body
    return msgspec.json.encode({**said, "params": {"capabilities": {}, **members(said.get("params"))}})
