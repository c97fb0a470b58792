"""The application behind the door: the official SDK's dispatcher, for 1.0 and 0.3, and its answers as HTTP."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from typing import Any, cast

import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.config import Config, ca_file_of
from portico.errors import SiteError
from portico.operations.webhooks import Callbacks
from portico.protocols.a2a.agent import REFUSAL, VISITOR, Agent
from portico.protocols.a2a.errors import refusal
from portico.protocols.a2a.push import Push
from portico.protocols.a2a.task_records import Cupboard, Errands
from portico.protocols.a2a.task_runner import Runs, Visitor
from portico.protocols.http import CALLER, Begun, EventStream, begin, while_connected
from portico.protocols.nlweb.service import Desk
from portico.site import Site
from portico.telemetry import Observe, quiet

MAX_ERROR = 2000  # bytes of an error that the SDK tells
MAX_MESSAGE = 300  # characters of one that is longer
JSON = "application/json"
CONTEXT = "portico.a2a.context"  # in a scope: the SDK's context of the call


@asynccontextmanager
async def opened(site: Site, config: Config, observe: Observe) -> AsyncGenerator[ASGIApp]:
    quiet("a2a")
    desk, cupboard = Desk(site, config), Cupboard(site)
    errands = Errands(cupboard)
    runs = Runs(desk, errands, observe)
    with closing(Callbacks(config.allow_hosts, ca_file=ca_file_of(config))) as callbacks:
        push = Push(cupboard, callbacks if config.a2a.push else None, site.limits.tasks_per_caller)
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
        context.state[VISITOR] = Visitor(caller, self._desk.premises(request, "A2A"), language, earlier)
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
            return await self._refused(request) or _brief(response)
        frames = _encoded(cast("AsyncIterator[dict[str, str]]", cast("Any", response).body_iterator))
        begun = await while_connected(receive, begin(frames))
        refused = await self._refused(request)
        if refused is None:
            return EventStream(_each(begun), work=begun)
        await begun.aclose()
        return refused

    async def _refused(self, request: Request) -> Response | None:
        """Why the site does not do it, if so."""
        context: ServerCallContext | None = request.scope.get(CONTEXT)
        error: SiteError | None = context.state.get(REFUSAL) if context else None
        return refusal(error, await _id_of(request)) if error else None


def _brief(response: Response) -> Response:
    """An answer of the SDK; of what was wrong with a request it may say much more than was sent."""
    body = bytes(response.body)
    if b'"error"' not in body[:MAX_ERROR] or len(body) <= MAX_ERROR:
        return response
    match msgspec.json.decode(body):
        case {"error": {"code": int() as code, "message": str() as message}, **rest}:
            error = {"code": code, "message": message[:MAX_MESSAGE]}
            return Response(msgspec.json.encode({**rest, "error": error}), response.status_code, media_type=JSON)
        case _:
            return response


async def _id_of(request: Request) -> str | int | None:
    """The id of a JSON-RPC request, if it is one."""
    match await request.json():
        case {"id": str() | int() as id} if not isinstance(id, bool):
            return id
        case _:
            return None


async def _encoded(events: AsyncIterator[dict[str, str]]) -> AsyncGenerator[bytes]:
    """Server-sent events of the SDK. Their data are JSON in one line."""
    async with aclosing(cast("AsyncGenerator[dict[str, str]]", events)):
        async for event in events:
            name = f"event: {event['event']}\n" if "event" in event else ""
            yield f"{name}data: {event['data']}\n\n".encode()


async def _each(frames: Begun[bytes]) -> AsyncGenerator[bytes]:
    async for frame in frames:
        yield frame
