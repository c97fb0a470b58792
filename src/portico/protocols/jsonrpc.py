"""Checks the JSON-RPC messages that an SDK's application receives, and passes them on unchanged.

The edge has authenticated and admitted the caller. The protocol renders errors, with the id of the message.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.errors import BadRequest, RateLimited, SiteError, TooLarge
from portico.protocols.http import CALLER, decode, read_body
from portico.site import Site

MAX_VALUES = 5000  # in a body, at all depths: an SDK is slow for each


class WrongMediaType(BadRequest):
    """The content type is not JSON."""


class UnreadableBody(BadRequest):
    """The body is not JSON, or nested too deeply."""

    body = b""  # as it was sent


class InvalidMessage(BadRequest):
    """The body is JSON, but not a message of the protocol."""


class JsonRpcBodies:
    """Checks the body of each POST before an SDK's application reads it.

    `prepare` may raise for a message, or return other bytes in its place. `wrapping` is the number of levels of a
    message around the caller's own data.
    """

    def __init__(
        self,
        site: Site,
        app: ASGIApp,
        render_error: Callable[[SiteError, str | int | None], Response],
        prepare: Callable[[Request, Any, bytes], bytes] = lambda _, __, body: body,
        max_values: int = MAX_VALUES,
        wrapping: int = 0,
    ) -> None:
        self._app = app
        self._render_error = render_error
        self._prepare = prepare
        self._max_values = max_values
        self._limits = msgspec.structs.replace(site.limits, depth=site.limits.depth + wrapping)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # RFC 9110, 5.5: white space around a value does not belong to it. Uvicorn leaves it at the end.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        request = Request(scope, receive)
        id: str | int | None = None  # of the message
        try:
            if request.method == "POST":
                body, message = await self._read(request)
                receive = _replay(self._prepare(request, message, body), receive)
                id = _id_of(message)
            await self._app(scope, receive, send)
        except SiteError as error:
            await self._render_error(error, id)(scope, receive, send)

    async def _read(self, request: Request) -> tuple[bytes, Any]:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise WrongMediaType("Requests must be JSON", hint="Send `content-type: application/json`.")
        body = await read_body(request, self._limits.payload_bytes)
        try:
            return body, decode(body, self._limits, self._max_values)
        except TooLarge:
            raise
        except BadRequest as error:
            unreadable = UnreadableBody(error.message, hint=error.hint, **error.details)
            unreadable.body = body
            raise unreadable from error


def render_refusal(site: Site, render: Callable[[SiteError, str | int | None], Response], error: SiteError) -> ASGIApp:
    """Return the response to a request that the edge refused.

    If the caller exceeds its rate, the body is read, so that the error has the id of the message.
    """

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        id: str | int | None = None
        if isinstance(error, RateLimited) and CALLER in scope and scope["method"] == "POST":
            with suppress(SiteError):
                body = await read_body(Request(scope, receive), site.limits.payload_bytes)
                id = _id_of(decode(body, site.limits))
        await render(error, id)(scope, receive, send)

    return respond


def _id_of(message: Any) -> str | int | None:
    match message:
        case {"id": str() | int() as id} if not isinstance(id, bool):
            return id
        case _:
            return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that repeats a body that has been read."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
