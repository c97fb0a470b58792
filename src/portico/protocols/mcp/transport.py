"""The server of the official SDK over streamable HTTP, in all its revisions."""

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
from portico.protocols.mcp.settings import McpSettings
from portico.requests import Caller
from portico.telemetry import silence_library

SESSION = "mcp-session-id"
SHARES = 10  # a caller has at most this fraction of all sessions


class Sessions:
    """Counts the sessions of callers. A session that was idle for too long has ended."""

    def __init__(self, most: int, idle: float) -> None:
        self._most = most
        self._idle = idle
        self._used: dict[str, tuple[str, float]] = {}  # by session: its caller, and when it was last used
        self._busy: Counter[str] = Counter()  # by session: requests under way
        self._opening: Counter[str] = Counter()  # by caller: requests that may open one

    def has_room(self, caller: str) -> bool:
        alive = time.monotonic() - self._idle
        self._used = {name: use for name, use in self._used.items() if use[1] >= alive or self._busy[name]}
        own = sum(1 for owner, _ in self._used.values() if owner == caller)
        return own + self._opening[caller] < self._most

    async def serve(self, app: ASGIApp, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and record whether it opens, uses or ends a session."""
        headers = Headers(scope=scope)
        session_id = headers.get(SESSION, "")
        session = session_id if self._used.get(session_id, ("",))[0] == caller else None  # a client may send any name
        under_way, key = (self._busy, session) if session else (self._opening, caller)
        weight = 1 if session or opens_session(headers) else 0

        async def send_and_record(message: Message) -> None:
            if message["type"] == "http.response.start":
                new_session = Headers(raw=list(message["headers"])).get(SESSION)
                self._note(caller, session or new_session, scope["method"], message["status"])
            await send(message)

        under_way[key] += weight
        try:
            await app(scope, receive, send_and_record)
        finally:
            under_way[key] -= weight
            under_way += Counter()  # drops counts of zero
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
    """Return whether a request may open a session: it has none, and its revision has them."""
    revision = headers.get("mcp-protocol-version")
    return SESSION not in headers and (revision is None or revision in HANDSHAKE_PROTOCOL_VERSIONS)


@asynccontextmanager
async def open_transport(server: Server[Any], config: Config) -> AsyncGenerator[ASGIApp]:
    """Yield the application. The edge has checked the host, and put the caller into the scope.

    Sessions live in one process. With several workers, clients of the handshake revisions get none, and so no
    notifications; the newest revision has no sessions.
    """
    make_manager = partial(StreamableHTTPSessionManager, server, max_request_body_size=config.limits.payload_bytes)
    plain = make_manager(stateless=True, json_response=True)
    manager = make_manager(
        stateless=config.server.workers > 1,
        session_idle_timeout=config.section(McpSettings).idle,
        max_sessions=config.section(McpSettings).sessions,
    )
    sessions = Sessions(max(1, config.section(McpSettings).sessions // SHARES), config.section(McpSettings).idle)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope[CALLER]
        headers = Headers(scope=scope)
        if not caller.is_anonymous:
            # The SDK binds a session to its user.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.id, scopes=[]))
        if is_plain(scope["method"], headers):
            await plain.handle_request(scope, receive, send)
        elif opens_session(headers) and not sessions.has_room(caller.rate_key):
            error = RateLimited("You have too many open sessions", hint="End one, or wait until one ends.")
            await refusal(error)(scope, receive, send)
        else:
            await sessions.serve(manager.handle_request, caller.rate_key, scope, receive, send)

    silence_library("mcp")
    async with manager.run(), plain.run():
        yield app
