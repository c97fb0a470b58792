"""The door before an SDK's application: host, origin, caller, and a body of a size and kind that can be read.

What comes through has its caller in the scope. What does not is answered by the face, in the words of its protocol.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.access.identity import ASK
from portico.config import Config, Server
from portico.errors import BadRequest, Denied, Forbidden, SiteError, TooLarge, Unauthenticated
from portico.protocols.http import CALLER, caller_of, decode, is_from_elsewhere, is_own_host, read_body
from portico.requests import Caller
from portico.site import Site

MAX_VALUES = 5000  # of a body, in all depths: an SDK takes its time for each


class WrongHost(Denied):
    """A request that was meant for somebody else."""


class WrongKind(BadRequest):
    """A body that does not say it is JSON."""


class Unreadable(BadRequest):
    """A body that is no JSON, or nested too deeply."""

    body = b""  # as it was sent


class NoMessage(BadRequest):
    """JSON that is no message of the protocol."""


@dataclass(frozen=True, slots=True)
class Read:
    """A body as it is to be read inside."""

    body: bytes
    is_counted: bool = False  # whether it will count against the caller's allowance inside; else it does here
    id: str | int | None = None  # of the message, for saying what an error is about


def as_it_is(_request: Request, _said: Any, body: bytes) -> Read:
    return Read(body)


class Door:
    def __init__(
        self,
        site: Site,
        config: Config,
        inside: ASGIApp,
        refused: Callable[[SiteError, str | int | None], Response],
        reading: Callable[[Request, Any, bytes], Read] = as_it_is,
        values: int = MAX_VALUES,
        around: int = 0,
    ) -> None:
        self._site = site
        self._config = config
        self._inside = inside
        self._refused = refused
        self._reading = reading
        self._values = values
        # What is sent may lie so many levels deep in a message around it.
        self._limits = msgspec.structs.replace(site.limits, depth=site.limits.depth + around)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # RFC 9110, 5.5: white space around a value is no part of it. The server before leaves what follows.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        request = Request(scope, receive)
        id: str | int | None = None  # of the message
        try:
            self._check(request)
            caller = scope[CALLER] = await self._caller(request)
            if request.method == "POST":
                read = await self._site.unless_refused(self._read(request), caller)
                receive, id = _again(read.body, receive), read.id
            else:
                read = Read(b"")
            if not read.is_counted:
                await self._site.gate.spend(caller)
            await self._inside(scope, receive, send)
        except SiteError as error:
            await self._refused(error, id)(scope, receive, send)

    def _check(self, request: Request) -> None:
        """Refuse what a page sent that had its own name lead here, or that may not ask here."""
        server = self._config.server
        try:
            self._check_names(request, server)
        except SiteError as error:
            self._site.refused("page", error)
            raise

    @staticmethod
    def _check_names(request: Request, server: Server) -> None:
        if not is_own_host(request, server):
            raise WrongHost("This is not a site of that name", hint="Its operator can add it to server.hosts.")
        if is_from_elsewhere(request, server):
            raise Forbidden("Pages of that origin may not ask here", hint="The operator decides which origins may.")

    async def _caller(self, request: Request) -> Caller:
        caller = await caller_of(request, self._site)
        if caller.is_anonymous and ASK not in caller.scopes:
            await self._site.gate.spend(caller)
            error = Unauthenticated("This site wants to know who asks", hint="Send an API key, or a token it takes.")
            self._site.refused("request", error)
            raise error
        return caller

    async def _read(self, request: Request) -> Read:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise WrongKind("Requests are JSON", hint="Send `content-type: application/json`.")
        body = await read_body(request, self._site.limits.payload_bytes)
        try:
            said = decode(body, self._limits, self._values)
        except TooLarge:
            raise
        except BadRequest as error:
            unreadable = Unreadable(error.message, hint=error.hint, **error.details)
            unreadable.body = body
            raise unreadable from error
        read = self._reading(request, said, body)
        return replace(read, id=_id_of(said))


def _id_of(said: Any) -> str | int | None:
    match said:
        case {"id": str() | int() as id} if not isinstance(id, bool):
            return id
        case _:
            return None


def _again(body: bytes, receive: Receive) -> Receive:
    """A request that was read, to be read again."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
