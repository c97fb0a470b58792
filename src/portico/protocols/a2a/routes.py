"""The agent card, and the door of `/a2a`: lets in who may come in, and hands the request to the official SDK.

Loads nothing of the SDK, which takes seconds: that happens in the background once a server runs, or at the first
message. What is refused here is answered as a JSON-RPC error with the status of its reason.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from portico.config import Config
from portico.protocols.a2a.card import PATH, RPC_PATH, card
from portico.protocols.a2a.errors import refusal
from portico.protocols.documents import document
from portico.protocols.edge import Door
from portico.protocols.http import Late, base_of
from portico.protocols.rest.operations import answering, metered
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Observe

CARD_SECONDS = 300  # that a card may be kept


def routes(site: Site, config: Config, observe: Observe) -> tuple[list[BaseRoute], Late]:
    @asynccontextmanager
    async def made() -> AsyncGenerator[ASGIApp]:
        application = await asyncio.to_thread(importlib.import_module, "portico.protocols.a2a.application")
        async with application.opened(site, config, observe) as app:
            yield app

    async def show_card(request: Request, _: Caller) -> Response:
        body = msgspec.json.encode(card(site, config, base_of(request, config.server)))
        return document(request, body, "application/json", server=config.server, seconds=CARD_SECONDS)

    late = Late(made)
    door = Route(RPC_PATH, Door(site, config, late, refusal), methods=["POST"])
    return [Route(PATH, answering(metered(show_card, site), site)), door], late
