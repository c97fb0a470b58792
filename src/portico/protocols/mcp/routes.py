"""`/mcp` over HTTP: checks each message and hands it to the application of the official SDK.

Loads nothing of the SDK, which takes a second: that happens in the background once a server runs, or at the first
request. Refusals are JSON-RPC errors with the HTTP status of their reason.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Scope

from portico.config import Config
from portico.errors import SiteError
from portico.protocols import Mounted, Services, tool_sets
from portico.protocols.edge import sdk_policy
from portico.protocols.http import LazyApp
from portico.protocols.jsonrpc import InvalidMessage, JsonRpcBodies, UnreadableBody, render_refusal
from portico.protocols.mcp.errors import refusal
from portico.protocols.problems import refusal as problem
from portico.protocols.rendering import members
from portico.site import Site
from portico.telemetry import Recorder, discard

PATH = "/mcp"
NAME = "portico"  # of the server, to programs
MAX_VALUES = 20_000  # of a message: an item that is made or changed may be long
MAX_METHOD = 200  # characters
AROUND = 2  # levels of a message around the arguments of a tool


def mount(services: Services) -> Mounted:
    site_routes, late = routes(services.site, services.config, services.record)

    def render_error(_: Scope, error: Exception) -> ASGIApp:
        match error:
            case SiteError():
                return render_refusal(services.site, refusal, error)
            case HTTPException():
                return problem(HTTPStatus(error.status_code), error.detail, error.headers)
            case _:
                return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "The server failed")

    return Mounted(routes=site_routes, lazy_apps=[late], render_error=render_error, policy=sdk_policy(services.config))


def routes(site: Site, config: Config, record: Recorder) -> tuple[list[BaseRoute], LazyApp]:
    @asynccontextmanager
    async def open_app() -> AsyncGenerator[ASGIApp]:
        server = await asyncio.to_thread(importlib.import_module, "portico.protocols.mcp.server")
        transport = importlib.import_module("portico.protocols.mcp.transport")
        async with transport.open_transport(server.make_server(site, config, record), config) as app:
            yield app

    late = LazyApp(open_app)
    return [Route(PATH, build_checked_app(site, config, late, record))], late


def build_checked_app(site: Site, config: Config, app: ASGIApp, record: Recorder = discard) -> JsonRpcBodies:
    """Return an application of the SDK behind the check of its messages."""
    sets = tool_sets(site, config, record)

    def render_error(error: SiteError, id: str | int | None) -> Response:
        # The protocol of a tool renders the errors of calls that cannot be read.
        if isinstance(error, UnreadableBody):
            responses = (tool_set.answer_malformed(error.body) for tool_set in sets)
            return next((response for response in responses if response), None) or refusal(error, id)
        return refusal(error, id)

    return JsonRpcBodies(site, app, render_error, prepare_message, MAX_VALUES, AROUND)


def prepare_message(request: Request, raw: Any, body: bytes) -> bytes:
    """Return the body of a message that is one of JSON-RPC 2.0, with what older clients leave out."""
    message = members(raw)
    method, params = message.get("method"), members(message.get("params"))
    is_answer = method is None and ("result" in message or "error" in message)
    if message.get("jsonrpc") != "2.0" or not (is_answer or (isinstance(method, str) and len(method) <= MAX_METHOD)):
        raise InvalidMessage("This is no message of JSON-RPC 2.0", hint="Send one object, not a list, with a method.")
    if method == "initialize" and is_plain(request.method, request.headers):
        # Such a client leaves its capabilities out.
        return msgspec.json.encode({**message, "params": {"capabilities": {}, **params}})
    return body


def is_plain(method: str, headers: Headers) -> bool:
    """Return whether this is an older front end: it reads no streams, opens no session and names no revision."""
    session_headers = {"mcp-session-id", "mcp-protocol-version"}.intersection(headers)
    return method == "POST" and not session_headers and "text/event-stream" not in headers.get("accept", "")
