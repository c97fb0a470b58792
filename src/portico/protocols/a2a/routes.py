"""The agent card, and `/a2a` over HTTP: checks each message and hands it to the application of the official SDK.

Loads nothing of the SDK, which takes seconds: that happens in the background once a server runs, or at the first
message. What is refused here is answered as a JSON-RPC error with the status of its reason.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Scope

from portico.config import Config
from portico.errors import SiteError
from portico.protocols import Mounted, Services
from portico.protocols.a2a.card import PATH, RPC_PATH, agent_card
from portico.protocols.a2a.errors import refusal
from portico.protocols.documents import document
from portico.protocols.edge import sdk_policy
from portico.protocols.http import LazyApp, base_of
from portico.protocols.jsonrpc import JsonRpcBodies, render_refusal
from portico.protocols.problems import make_handler
from portico.protocols.problems import refusal as problem
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Recorder

CARD_SECONDS = 300  # that a card may be kept


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
        application = await asyncio.to_thread(importlib.import_module, "portico.protocols.a2a.application")
        async with application.open_application(site, config, record) as app:
            yield app

    async def show_card(request: Request, _: Caller) -> Response:
        body = msgspec.json.encode(agent_card(site, config, base_of(request, config.server)))
        return document(request, body, "application/json", server=config.server, seconds=CARD_SECONDS)

    late = LazyApp(open_app)
    messages = Route(RPC_PATH, JsonRpcBodies(site, late, refusal), methods=["POST"])
    return [Route(PATH, make_handler(show_card)), messages], late
