"""`/chat` and `/chat/stream` over HTTP. Turns bytes into requests and answers into bytes.

POST /chat                      one JSON object; with "stream": true as the next
POST /chat/stream               lines of JSON, each ended by a newline
     /chat/conversations, /chat/feedback   see conversations.py

A trailing slash and a query such as api-version make no difference.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Scope

from portico.access.identity import RequestCredentials, for_user
from portico.config import Config
from portico.errors import BadRequest, NotFound, SiteError, Unauthenticated, Unsupported
from portico.protocols import Mounted, Services, action_forms, request_segments
from portico.protocols.chat import azure_compat as familiar
from portico.protocols.chat import conversations
from portico.protocols.chat.errors import HEADERS, MethodNotAllowed, error_body, refusal
from portico.protocols.chat.multipart import MultipartForm, read_multipart
from portico.protocols.chat.requests import read_request
from portico.protocols.chat.settings import ChatSettings
from portico.protocols.chat.turns import ChatService, TurnRequest
from portico.protocols.documents import preferred_media_type
from portico.protocols.edge import EdgePolicy
from portico.protocols.http import (
    EventStream,
    TrailingSlashRoute,
    base_of,
    caller_of,
    credentials_of,
    decode,
    is_from_elsewhere,
    read_body,
    while_connected,
)
from portico.protocols.problems import BROKEN
from portico.protocols.rendering import RenderContext
from portico.requests import Caller, File
from portico.site import Site

LINES = "application/jsonl"
OTHER_LINES = "application/x-ndjson"
MULTIPART = "multipart/form-data"
AT_ONCE = 256_000  # bytes of a form that is parsed at once; larger ones are parsed in a thread


def mount(services: Services) -> Mounted:
    config = services.config

    def render_error(_: Scope, error: Exception) -> Response:
        match error:
            case SiteError():
                return failure_response(error, config)
            case HTTPException():
                return _render_routing_error(error, config)
            case _:
                return breakdown(config)

    return Mounted(routes=routes(services.site, config), render_error=render_error, policy=edge_policy(config))


def routes(site: Site, config: Config) -> list[BaseRoute]:
    """Return the routes of this protocol."""
    dialogue = ChatEndpoint(site, config)
    path = config.section(ChatSettings).path

    async def whole(request: Request) -> ASGIApp:
        return await dialogue.answer(request, streams=False)

    async def stream(request: Request) -> ASGIApp:
        return await dialogue.answer(request, streams=True)

    conversation_routes = conversations.routes(site, config)
    compat_routes = familiar.routes(site, config, dialogue.answer) if config.section(ChatSettings).azure else []
    return [
        TrailingSlashRoute(path, whole, "POST"),
        TrailingSlashRoute(f"{path}/stream", stream, "POST"),
        *conversation_routes,
        *compat_routes,
    ]


def _render_routing_error(error: HTTPException, config: Config) -> Response:
    """Render what the routing refused, such as a method, as NLWeb does."""
    allowed = ", ".join(sorted(error.headers["Allow"].split(", "))) if error.headers else ""
    kind = _ROUTING_ERRORS.get(error.status_code, BadRequest)
    error_of_site = kind(error.detail, hint=f"Use {allowed}." if allowed else None)
    return refusal(error_of_site, config.section(ChatSettings).errors, error.status_code, error.headers or {})


def failure_response(error: SiteError, config: Config) -> Response:
    """Return the response that refuses a request before it is read."""
    return refusal(error, config.section(ChatSettings).errors)


def edge_policy(config: Config) -> EdgePolicy:
    """Return how the edge admits requests of this protocol: their key may come as `api-key`, and files with them."""
    max_body = (
        config.limits.payload_bytes + config.section(ChatSettings).files * config.section(ChatSettings).file_bytes
    )
    return EdgePolicy(credentials=_credentials_of, max_body=max_body)


def _credentials_of(connection: HTTPConnection) -> RequestCredentials:
    key = connection.headers.get("api-key")
    others = credentials_of(connection)
    if key and others.bearer and others.bearer != key:
        name = "x-api-key" if connection.headers.get("x-api-key") else "authorization"
        raise Unauthenticated(f"api-key and {name} name different keys", hint="Send one of them.")
    return replace(others, bearer=key or others.bearer)


_ROUTING_ERRORS: Mapping[int, type[SiteError]] = {404: NotFound, 405: MethodNotAllowed}


def breakdown(config: Config) -> Response:
    """Return the response after a defect."""
    return refusal(BROKEN, config.section(ChatSettings).errors)


class ChatEndpoint:
    """The chat service over HTTP."""

    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._service = ChatService(site, config)

    async def answer(self, request: Request, *, streams: bool, owner: str = "") -> ASGIApp:
        try:
            caller = caller_of(request)
            turn, streams_too = await self._parse(request, caller, owner)
            stream = await while_connected(request.receive, self._service.begin(turn))
            if streams or streams_too:
                broken = (_line(error_body(BROKEN, self._config.section(ChatSettings).errors)),)
                return EventStream(
                    _lines(stream.chunks()),
                    broken,
                    work=stream.events,
                    heartbeat=None,  # a heartbeat would be a line that is not JSON
                    media_type=preferred_media_type(",".join(request.headers.getlist("accept")), (LINES, OTHER_LINES)),
                    headers=HEADERS,
                )
            async with aclosing(stream.events):
                body = await while_connected(request.receive, stream.collect())
            return Response(_encode(body), 200, HEADERS, "application/json")
        except SiteError as error:
            return refusal(error, self._config.section(ChatSettings).errors)

    async def _parse(self, request: Request, caller: Caller, owner: str) -> tuple[TurnRequest, bool]:
        raw, files = await self._read(request)
        chat_request, session_name = read_request(raw)
        turn = TurnRequest(
            chat_request,
            session_name,
            for_user(caller, chat_request.request_context.user_id or ""),
            self._render_context(request),
            files,
            # Another page can make a browser send this request, so answer it but run no operation.
            may_act=not is_from_elsewhere(request, self._config.server),
            owner=owner
            or familiar.owner_of(
                chat_request.request_context.user_id if self._config.section(ChatSettings).azure else None, caller
            ),
            key=request.headers.get("idempotency-key", ""),
        )
        return turn, bool(chat_request.stream)

    async def _read(self, request: Request) -> tuple[Any, tuple[File, ...]]:
        limits = self._site.limits
        kind = request.headers.get("content-type", "")
        if kind.partition(";")[0].strip().lower() != MULTIPART:
            return decode(await read_body(request, limits.payload_bytes), limits), ()
        form = await self._form(request, kind)
        if len(form.json) > limits.payload_bytes:
            raise BadRequest(f"The part json has more than {limits.payload_bytes} bytes")
        raw = decode(form.json, limits)
        if form.messages > _messages_of(raw):
            raise BadRequest("A file names a message that does not exist", hint="Messages count from 0.")
        return raw, form.files

    async def _form(self, request: Request, kind: str) -> MultipartForm:
        chat = self._config.section(ChatSettings)
        if not chat.files:
            raise Unsupported("This site does not accept files")
        body = await read_body(request, self._site.limits.payload_bytes + chat.files * chat.file_bytes)
        if len(body) > AT_ONCE:
            return await asyncio.to_thread(read_multipart, body, kind, chat)
        return read_multipart(body, kind, chat)

    def _render_context(self, request: Request) -> RenderContext:
        collections = self._site.catalog.collections
        return RenderContext(
            base_of(request, self._config.server),
            lambda name: collections[name].type if name in collections else "",
            action_forms(self._config),
            request_segments(self._config),
        )


def _messages_of(raw: Any) -> int:
    messages = cast("dict[str, Any]", raw).get("messages") if isinstance(raw, dict) else None
    return len(cast("list[Any]", messages)) if isinstance(messages, list) else 0


async def _lines(chunks: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            yield _line(chunk)


def _line(body: dict[str, Any]) -> bytes:
    return _encode(body) + b"\n"


def _encode(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body, enc_hook=str)
