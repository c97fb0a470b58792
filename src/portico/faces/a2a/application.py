"""The application behind the door: the official SDK's dispatcher, for 1.0 and 0.3, and its answers as HTTP."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.callbacks import Callbacks
from portico.config import Config
from portico.errors import SiteError
from portico.faces.a2a.agent import REFUSAL, VISITOR, Agent
from portico.faces.a2a.errands import Errands, Shelf
from portico.faces.a2a.failures import refusal
from portico.faces.a2a.push import Push
from portico.faces.a2a.runs import Runs, Visitor
from portico.faces.nlweb.desk import Desk
from portico.faces.wire import CALLER, Begun, EventStream, begin, while_connected
from portico.observe import Observe
from portico.site import Site

CONTEXT = "portico.a2a.context"  # in a scope: the SDK's context of the call


@asynccontextmanager
async def opened(site: Site, config: Config, callbacks: Callbacks, observe: Observe) -> AsyncGenerator[ASGIApp]:
    # The SDK warns of every wrong request; where nobody wants its log, that goes to standard error.
    if not logging.getLogger("a2a").hasHandlers():
        logging.getLogger("a2a").addHandler(logging.NullHandler())
    desk, shelf = Desk(site, config), Shelf(site)
    errands = Errands(shelf)
    runs = Runs(desk, errands, observe)
    push = Push(shelf, callbacks if config.a2a.push else None, site.limits.tasks_per_caller)
    dispatcher = JsonRpcDispatcher(Agent(desk, errands, runs, push), Contexts(desk), enable_v0_3_compat=True)
    try:
        yield Inside(dispatcher)
    finally:
        await push.close()
        await runs.close()


class Contexts(DefaultServerCallContextBuilder):
    """Tells the agent who calls, as the door has found out."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        caller, language = request.scope[CALLER], request.headers.get("accept-language", "")
        earlier = not request.headers.get("a2a-version", "").startswith("1")
        context.state[VISITOR] = Visitor(caller, self._desk.premises(request), language, earlier)
        request.scope[CONTEXT] = context
        return context


class Inside:
    def __init__(self, dispatcher: JsonRpcDispatcher) -> None:
        self._dispatcher = dispatcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()  # at once: from here on, what is received is that the client leaves
        response = await while_connected(receive, self._dispatcher.handle_requests(request))
        answer = await self._told(request, response, receive)
        await answer(scope, receive, send)

    async def _told(self, request: Request, response: Response, receive: Receive) -> ASGIApp:
        """An answer of the SDK; a refusal of the site in its own words instead of the SDK's."""
        if not hasattr(response, "body_iterator"):
            return _refused(request) or response
        frames = _encoded(cast("AsyncIterator[dict[str, str]]", cast("Any", response).body_iterator))
        begun = await while_connected(receive, begin(frames))
        refused = _refused(request)
        if refused is None:
            return EventStream(_each(begun), work=begun)
        await begun.aclose()
        return refused


def _refused(request: Request) -> Response | None:
    context: ServerCallContext | None = request.scope.get(CONTEXT)
    error: SiteError | None = context.state.get(REFUSAL) if context else None
    return refusal(error, cast("ServerCallContext", context).state.get("request_id")) if error else None


async def _encoded(events: AsyncIterator[dict[str, str]]) -> AsyncGenerator[bytes]:
    """Server-sent events of the SDK. Their data are JSON in one line."""
    async with aclosing(cast("AsyncGenerator[dict[str, str]]", events)):
        async for event in events:
            name = f"event: {event['event']}\n" if "event" in event else ""
            yield f"{name}data: {event['data']}\n\n".encode()


async def _each(frames: Begun[bytes]) -> AsyncGenerator[bytes]:
    async for frame in frames:
        yield frame
