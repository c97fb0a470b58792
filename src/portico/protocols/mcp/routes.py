"""`/mcp`: the door, and behind it the official SDK.

Loads nothing of the SDK, which takes a second: that happens in the background once a server runs, or at the first
request. What is refused at the door is answered as a JSON-RPC error with the status of its reason.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from portico.config import Config
from portico.errors import SiteError
from portico.protocols.aql import malformed as misread
from portico.protocols.edge import Door, NoMessage, Read, Unreadable
from portico.protocols.http import Late
from portico.protocols.mcp.errors import refusal
from portico.protocols.nlweb.item_rendering import members
from portico.site import Site
from portico.telemetry import Observe

PATH = "/mcp"
NAME = "portico"  # of the server, to programs
MAX_VALUES = 20_000  # of a message: an item that is made or changed may be long
MAX_METHOD = 200  # characters
AROUND = 2  # levels of a message around the arguments of a tool


def routes(site: Site, config: Config, observe: Observe) -> tuple[list[BaseRoute], Late]:
    @asynccontextmanager
    async def made() -> AsyncGenerator[ASGIApp]:
        server = await asyncio.to_thread(importlib.import_module, "portico.protocols.mcp.server")
        transport = importlib.import_module("portico.protocols.mcp.transport")
        async with transport.opened(server.made(site, config, observe), config) as app:
            yield app

    late = Late(made)
    return [Route(PATH, door(site, config, late))], late


def door(site: Site, config: Config, inside: ASGIApp) -> Door:
    def refused(error: SiteError, id: str | int | None) -> Response:
        # What a tool of MCP-AQL cannot read it says itself, in its own words.
        said = misread.answer(error.body, config.aql) if isinstance(error, Unreadable) else None
        return said or refusal(error, id)

    return Door(site, config, inside, refused, read, MAX_VALUES, AROUND)


def read(request: Request, said: Any, body: bytes) -> Read:
    """A message, and whether what it asks for is counted inside."""
    message = members(said)
    method, params = message.get("method"), members(message.get("params"))
    is_answer = method is None and ("result" in message or "error" in message)
    if message.get("jsonrpc") != "2.0" or not (is_answer or (isinstance(method, str) and len(method) <= MAX_METHOD)):
        raise NoMessage("This is no message of JSON-RPC 2.0", hint="Send one object, not a list, with a method.")
    if method == "initialize" and is_plain(request.method, request.headers):
        # Such a client introduces itself without saying what it can do.
        body = msgspec.json.encode({**message, "params": {"capabilities": {}, **params}})
    return Read(body, is_counted=_is_counted(message, params))


def _is_counted(message: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Whether the site will count it: then it must get there, past what the SDK checks."""
    if not isinstance(message.get("id"), str | int):
        return False
    match message.get("method"):
        case "tools/call":
            return isinstance(params.get("name"), str) and isinstance(params.get("arguments", {}), dict)
        case "resources/read":
            return isinstance(params.get("uri"), str)
        case _:
            return False


def is_plain(method: str, headers: Headers) -> bool:
    """Whether this is a client that reads no streams, opens no session and names no revision: front ends of before."""
    named = {"mcp-session-id", "mcp-protocol-version"}.intersection(headers)
    return method == "POST" and not named and "text/event-stream" not in headers.get("accept", "")
