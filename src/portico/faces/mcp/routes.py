"""`/mcp`: the door, and behind it the official SDK.

Loads nothing of the SDK, which takes a second: that happens in the background once a server runs, or at the first
request. What is refused at the door is answered as a JSON-RPC error with the status of its reason.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from portico.config import Config
from portico.faces.door import Door
from portico.faces.mcp.failures import refusal
from portico.faces.nlweb.shapes import members
from portico.faces.wire import Late
from portico.observe import Observe
from portico.site import Site

PATH = "/mcp"


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


def is_plain(method: str, headers: Headers) -> bool:
    """Whether this is a client that reads no streams, opens no session and names no revision: front ends of before."""
    named = {"mcp-session-id", "mcp-protocol-version"}.intersection(headers)
    return method == "POST" and not named and "text/event-stream" not in headers.get("accept", "")


def _completed(request: Request, said: Any, body: bytes) -> bytes:
    """A request of such a client introduces itself without saying what it can do."""
    if members(said).get("method") != "initialize" or not is_plain(request.method, request.headers):
        return body
    return msgspec.json.encode({**said, "params": {"capabilities": {}, **members(said.get("params"))}})
