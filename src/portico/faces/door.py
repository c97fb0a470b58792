"""The door before an SDK's application: host, origin, caller, and a body of a size and kind that can be read.

What comes through has its caller in the scope. What does not is answered by the face, in the words of its protocol.
"""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.calls import Caller
from portico.config import Config
from portico.errors import BadRequest, Denied, Forbidden, SiteError, Unauthenticated
from portico.faces.wire import CALLER, caller_of, decode, is_from_elsewhere, is_own_host, read_body
from portico.identity import ASK
from portico.site import Site


class WrongHost(Denied):
    """A request that was meant for somebody else."""


class WrongKind(BadRequest):
    """A body that does not say it is JSON."""


class Unreadable(BadRequest):
    """A body that is no JSON, or nested too deeply."""


class Door:
    def __init__(
        self,
        site: Site,
        config: Config,
        inside: ASGIApp,
        refused: Callable[[SiteError], Response],
        completed: Callable[[Request, Any, bytes], bytes] = lambda _, __, body: body,
    ) -> None:
        self._site = site
        self._config = config
        self._inside = inside
        self._refused = refused
        self._completed = completed  # a body as it is to be read inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # RFC 9110, 5.5: white space around a value is no part of it. The server before leaves what follows.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        request = Request(scope, receive)
        try:
            self._check(request)
            caller = scope[CALLER] = await self._caller(request)
            if request.method == "POST":
                receive = _again(await self._site.unless_refused(self._read(request), caller), receive)
            await self._inside(scope, receive, send)
        except SiteError as error:
            await self._refused(error)(scope, receive, send)

    def _check(self, request: Request) -> None:
        """Refuse what a page sent that had its own name lead here, or that may not ask here."""
        server = self._config.server
        if not is_own_host(request, server):
            raise WrongHost("This is not a site of that name", hint="Its operator can add it to server.hosts.")
        if is_from_elsewhere(request, server):
            raise Forbidden("Pages of that origin may not ask here", hint="The operator can add it to server.origins.")

    async def _caller(self, request: Request) -> Caller:
        caller = await caller_of(request, self._site)
        if caller.is_anonymous and ASK not in caller.scopes:
            await self._site.gate.spend(caller)
            raise Unauthenticated("This site wants to know who asks", hint="Send an access token or an API key.")
        return caller

    async def _read(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise WrongKind("Requests are JSON", hint="Send `content-type: application/json`.")
        body = await read_body(request, self._site.limits.payload_bytes)
        try:
            said = decode(body, self._site.limits)
        except BadRequest as error:
            raise Unreadable(error.message, hint=error.hint, **error.details) from error
        return self._completed(request, said, body)


def _again(body: bytes, receive: Receive) -> Receive:
    """A request that was read, to be read again."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
