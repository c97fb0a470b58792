"""`/chat` and `/chat/stream` over HTTP. Turns bytes into requests and answers into bytes.

POST /chat                      one JSON object; with "stream": true as the next
POST /chat/stream               lines of JSON, each ended by a newline
     /chat/conversations, /chat/feedback   see conversations.py

A slash in the end is no other address, and neither is any query such as api-version.
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
from starlette.types import ASGIApp

from portico.access.identity import for_user
from portico.config import Config
from portico.errors import BadRequest, NotFound, SiteError, Unauthenticated, Unsupported
from portico.protocols.chat import azure_compat as familiar
from portico.protocols.chat import conversations
from portico.protocols.chat.errors import HEADERS, WrongMethod, refusal, shown_error
from portico.protocols.chat.multipart import Form, read_multipart
from portico.protocols.chat.requests import read_request
from portico.protocols.chat.slashes import Slashed
from portico.protocols.chat.turns import Counter, Received
from portico.protocols.documents import preferred
from portico.protocols.http import (
    CALLER,
    EventStream,
    base_of,
    caller_of,
    credentials,
    decode,
    is_from_elsewhere,
    read_body,
    while_connected,
)
from portico.protocols.nlweb.errors import BROKEN
from portico.protocols.nlweb.item_rendering import Premises
from portico.requests import Caller, File
from portico.site import Site

LINES = "application/jsonl"
OTHER_LINES = "application/x-ndjson"
MULTIPART = "multipart/form-data"
AT_ONCE = 256_000  # bytes of a form that nobody waits for; more are read beside the others' work


def routes(site: Site, config: Config) -> list[BaseRoute]:
    """The addresses of this face."""
    talk = Talk(site, config)
    path = config.chat.path

    async def whole(request: Request) -> ASGIApp:
        return await talk.answer(request, streams=False)

    async def stream(request: Request) -> ASGIApp:
        return await talk.answer(request, streams=True)

    kept = conversations.routes(site, config, talk.who)
    older = familiar.routes(site, config, talk.who, talk.answer) if config.chat.azure else []
    return [Slashed(path, whole, "POST"), Slashed(f"{path}/stream", stream, "POST"), *kept, *older]


def is_here(path: str, config: Config) -> bool:
    """Whether this face tells what went wrong at an address."""
    places = (config.chat.path, *familiar.PLACES) if config.chat.azure else (config.chat.path,)
    return any(path == each or path.startswith(f"{each}/") for each in places)


def refused(error: HTTPException, config: Config) -> Response:
    """What the routing refused, such as a method, in the words of this face."""
    allowed = ", ".join(sorted(error.headers["Allow"].split(", "))) if error.headers else ""
    kind = _REFUSED.get(error.status_code, BadRequest)
    said = kind(error.detail, hint=f"Use {allowed}." if allowed else None)
    return refusal(said, config.chat.errors, error.status_code, error.headers or {})


def failure_response(error: SiteError, config: Config) -> Response:
    """Return the response that refuses a request before it is read."""
    return refusal(error, config.chat.errors)


_REFUSED: Mapping[int, type[SiteError]] = {404: NotFound, 405: WrongMethod}


def breakdown(config: Config) -> Response:
    """What to say when something happened that should not."""
    return refusal(BROKEN, config.chat.errors)


class Talk:
    """The counter, as HTTP reaches it."""

    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._counter = Counter(site, config)

    async def answer(self, request: Request, *, streams: bool, owner: str = "") -> ASGIApp:
        try:
            caller = await self.who(request, self._site)
            got, streams_too = await self._site.unless_refused(self._received(request, caller, owner), caller)
            answering = await while_connected(request.receive, self._counter.begin(got))
            if streams or streams_too:
                broken = (_line(shown_error(BROKEN, self._config.chat.errors)),)
                return EventStream(
                    _lines(answering.chunks()),
                    broken,
                    work=answering.events,
                    heartbeat=None,  # a sign of life would be a line that is no JSON
                    media_type=_kind_of_lines(request),
                    headers=HEADERS,
                )
            async with aclosing(answering.events):
                shown = await while_connected(request.receive, answering.whole())
            return Response(_encoded(shown), 200, HEADERS, "application/json")
        except SiteError as error:
            return refusal(error, self._config.chat.errors)

    async def who(self, connection: HTTPConnection, site: Site) -> Caller:
        """Who is calling: clients of this protocol send a key as `api-key`, too."""
        key = connection.headers.get("api-key")
        if key is None or connection.scope.get(CALLER) is not None:
            return await caller_of(connection, site)
        address = connection.client.host if connection.client else ""
        others = credentials(connection.headers, address)
        if key and others.bearer and others.bearer != key:
            name = "x-api-key" if connection.headers.get("x-api-key") else "authorization"
            raise Unauthenticated(f"api-key and {name} name different keys", hint="Send one of them.")
        return await site.caller(replace(others, bearer=key or others.bearer))

    async def _received(self, request: Request, caller: Caller, owner: str) -> tuple[Received, bool]:
        raw, files = await self._read(request)
        said, session_name = read_request(raw)
        got = Received(
            said,
            session_name,
            for_user(caller, said.said.user_id or ""),
            self._premises(request),
            files,
            # What a page elsewhere can make a browser send is answered, but nothing is done for it.
            may_act=not is_from_elsewhere(request, self._config.server),
            owner=owner or familiar.owner_of(said.said.user_id if self._config.chat.azure else None, caller),
            key=request.headers.get("idempotency-key", ""),
        )
        return got, bool(said.stream)

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
            raise BadRequest("A file belongs to a message that is not there", hint="Messages count from 0.")
        return raw, form.files

    async def _form(self, request: Request, kind: str) -> Form:
        chat = self._config.chat
        if not chat.files:
            raise Unsupported("No files are read here")
        body = await read_body(request, self._site.limits.payload_bytes + chat.files * chat.file_bytes)
        if len(body) > AT_ONCE:
            return await asyncio.to_thread(read_multipart, body, kind, chat)
        return read_multipart(body, kind, chat)

    def _premises(self, request: Request) -> Premises:
        collections = self._site.catalog.collections
        return Premises(
            base_of(request, self._config.server),
            lambda name: collections[name].type if name in collections else "",
            self._config.nlweb.actions,
        )


def _kind_of_lines(request: Request) -> str:
    return preferred(",".join(request.headers.getlist("accept")), (LINES, OTHER_LINES))


def _messages_of(raw: Any) -> int:
    said = cast("dict[str, Any]", raw).get("messages") if isinstance(raw, dict) else None
    return len(cast("list[Any]", said)) if isinstance(said, list) else 0


async def _lines(chunks: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        async for chunk in chunks:
            yield _line(chunk)


def _line(shown: dict[str, Any]) -> bytes:
    return _encoded(shown) + b"\n"


def _encoded(shown: dict[str, Any]) -> bytes:
    return msgspec.json.encode(shown, enc_hook=str)
