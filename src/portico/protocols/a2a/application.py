"""The ASGI application of A2A: the official SDK's dispatcher, for 1.0 and 0.3."""

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
from portico.operations.webhooks import WebhookClient
from portico.protocols.a2a.agent import REFUSAL, VISITOR, SiteAgent
from portico.protocols.a2a.errors import refusal
from portico.protocols.a2a.push import PushNotifier
from portico.protocols.a2a.settings import A2aSettings
from portico.protocols.a2a.task_records import NoteCache, TaskRecords
from portico.protocols.a2a.task_runner import MessageContext, TaskRunner
from portico.protocols.http import CALLER, EventStream, StartedStream, start_stream, while_connected
from portico.protocols.nlweb.service import NlwebService
from portico.site import Site
from portico.telemetry import Recorder, silence_library

MAX_ERROR = 2000  # bytes of an error of the SDK
MAX_MESSAGE = 300  # characters of one that is longer
JSON = "application/json"
CONTEXT = "portico.a2a.context"  # in a scope: the SDK's context of the call


@asynccontextmanager
async def open_application(site: Site, config: Config, record: Recorder) -> AsyncGenerator[ASGIApp]:
    silence_library("a2a")
    service, notes = NlwebService(site, config), NoteCache(site)
    records = TaskRecords(notes)
    runner = TaskRunner(service, records, record)
    with closing(WebhookClient(config.allow_hosts, ca_file=ca_file_of(config))) as callbacks:
        push = PushNotifier(
            notes, callbacks if config.section(A2aSettings).push else None, site.limits.tasks_per_caller
        )
        agent = SiteAgent(site, config.ask.patience, records, runner, push)
        dispatcher = JsonRpcDispatcher(agent, CallContextBuilder(service), enable_v0_3_compat=True)
        try:
            yield SdkApplication(dispatcher)
        finally:
            await push.close()
            await runner.close()


class CallContextBuilder(DefaultServerCallContextBuilder):
    """Gives the request handler the caller that the edge has identified."""

    def __init__(self, service: NlwebService) -> None:
        self._service = service

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        caller, language = request.scope[CALLER], request.headers.get("accept-language", "")
        earlier = not request.headers.get("a2a-version", "").startswith("1")
        context.state[VISITOR] = MessageContext(caller, self._service.render_context(request, "A2A"), language, earlier)
        request.scope[CONTEXT] = context
        return context


class SdkApplication:
    def __init__(self, dispatcher: JsonRpcDispatcher) -> None:
        self._dispatcher = dispatcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()  # read it now: from here on, the only message is that the client disconnects
        response = await while_connected(receive, self._dispatcher.handle_requests(request))
        answer = await self._finish_response(request, response, receive)
        await answer(scope, receive, send)

    async def _finish_response(self, request: Request, response: Response, receive: Receive) -> ASGIApp:
        """Return the SDK's response, or the site's own refusal in its place."""
        if not hasattr(response, "body_iterator"):
            return await self._site_refusal(request) or _shorten_error(response)
        frames = _encode_events(cast("AsyncIterator[dict[str, str]]", cast("Any", response).body_iterator))
        stream = await while_connected(receive, start_stream(frames))
        refusal_response = await self._site_refusal(request)
        if refusal_response is None:
            return EventStream(_iterate(stream), work=stream)
        await stream.aclose()
        return refusal_response

    async def _site_refusal(self, request: Request) -> Response | None:
        """Return the response to a refusal of the site, if there is one."""
        context: ServerCallContext | None = request.scope.get(CONTEXT)
        error: SiteError | None = context.state.get(REFUSAL) if context else None
        return refusal(error, await _id_of(request)) if error else None


def _shorten_error(response: Response) -> Response:
    """Return a response of the SDK with a shorter error: it may quote far more than was sent."""
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
    """Return the id of a JSON-RPC request, if it has one."""
    match await request.json():
        case {"id": str() | int() as id} if not isinstance(id, bool):
            return id
        case _:
            return None


async def _encode_events(events: AsyncIterator[dict[str, str]]) -> AsyncGenerator[bytes]:
    """Encode server-sent events of the SDK. Their data is JSON on one line."""
    async with aclosing(cast("AsyncGenerator[dict[str, str]]", events)):
        async for event in events:
            name = f"event: {event['event']}\n" if "event" in event else ""
            yield f"{name}data: {event['data']}\n\n".encode()


async def _iterate(frames: StartedStream[bytes]) -> AsyncGenerator[bytes]:
    async for frame in frames:
        yield frame
