"""A server of the official SDK over streamable HTTP, in all revisions it speaks."""

import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.config import Config
from portico.errors import RateLimited
from portico.protocols.http import CALLER
from portico.protocols.mcp.errors import refusal
from portico.protocols.mcp.routes import is_plain
from portico.requests import Caller
from portico.telemetry import quiet

SESSION = "mcp-session-id"
SHARES = 10  # nobody has more than one of so many shares of all sessions


class Sessions:
    """Who has opened which sessions. One that nobody used for as long as it may be idle has ended."""

    def __init__(self, most: int, idle: float) -> None:
        self._most = most
        self._idle = idle
        self._used: dict[str, tuple[str, float]] = {}  # by session: whose it is, and when it was last used
        self._busy: Counter[str] = Counter()  # by session: requests under way
        self._opening: Counter[str] = Counter()  # by caller: requests that may open one

    def has_room(self, caller: str) -> bool:
        alive = time.monotonic() - self._idle
        self._used = {name: each for name, each in self._used.items() if each[1] >= alive or self._busy[name]}
        own = sum(1 for owner, _ in self._used.values() if owner == caller)
        return own + self._opening[caller] < self._most

    async def serve(self, app: ASGIApp, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request served, and note what it does: it opens a session, uses one, or ends one."""
        headers = Headers(scope=scope)
        named = headers.get(SESSION, "")
        session = named if self._used.get(named, ("",))[0] == caller else None  # a client may name what it likes
        under_way, key = (self._busy, session) if session else (self._opening, caller)
        weight = 1 if session or opens_session(headers) else 0

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = Headers(raw=list(message["headers"])).get(SESSION)
                self._note(caller, session or opened, scope["method"], message["status"])
            await send(message)

        under_way[key] += weight
        try:
            await app(scope, receive, sending)
        finally:
            under_way[key] -= weight
            under_way += Counter()  # forgets those of which there are none
            if session in self._used:
                self._used[session] = caller, time.monotonic()

    def _note(self, caller: str, session: str | None, method: str, status: int) -> None:
        if session is None:
            return
        if status == 404 or (method == "DELETE" and status < 400):
            self._used.pop(session, None)
        elif session in self._used or status < 400:
            self._used[session] = caller, time.monotonic()


def opens_session(headers: Headers) -> bool:
    """Whether a request may open a session: of the revisions that have them, and without one."""
    revision = headers.get("mcp-protocol-version")
    return SESSION not in headers and (revision is None or revision in HANDSHAKE_PROTOCOL_VERSIONS)


@asynccontextmanager
async def opened(server: Server[Any], config: Config) -> AsyncGenerator[ASGIApp]:
    """Requests must have a caller in their scope, and a host that is this site's: the door before has seen to that.

    Sessions live in one process. Where several serve, clients of the handshake revisions get none, and with it no
    messages that they did not ask for; the newest revision has no sessions.
    """
    made = partial(StreamableHTTPSessionManager, server, max_request_body_size=config.limits.payload_bytes)
    plain = made(stateless=True, json_response=True)
    manager = made(
        stateless=config.server.workers > 1, session_idle_timeout=config.mcp.idle, max_sessions=config.mcp.sessions
    )
    sessions = Sessions(max(1, config.mcp.sessions // SHARES), config.mcp.idle)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope[CALLER]
        headers = Headers(scope=scope)
        if not caller.is_anonymous:
            # The SDK binds a session to who opened it.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.id, scopes=[]))
        if is_plain(scope["method"], headers):
            await plain.handle_request(scope, receive, send)
        elif opens_session(headers) and not sessions.has_room(caller.rate_key):
            error = RateLimited("You have too many sessions open", hint="End one, or wait until one ends.")
            await refusal(error)(scope, receive, send)
        else:
            await sessions.serve(manager.handle_request, caller.rate_key, scope, receive, send)

    quiet("mcp")
    async with manager.run(), plain.run():
        yield app
