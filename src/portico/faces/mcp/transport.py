"""A server of the official SDK over streamable HTTP, in all revisions it speaks."""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.calls import Caller
from portico.config import Config
from portico.errors import RateLimited
from portico.faces.mcp.routes import is_plain, refusal
from portico.faces.wire import CALLER

SESSION = "mcp-session-id"
SHARES = 10  # nobody has more than one of so many shares of all sessions


class Sessions:
    """Who has opened which sessions. One that nobody used for as long as it may be idle has ended."""

    def __init__(self, most: int, idle: float) -> None:
        self._most = most
        self._idle = idle
        self._used: dict[str, tuple[str, float]] = {}  # by session: whose it is, and when it was last used

    def has_room(self, caller: str) -> bool:
        alive = time.monotonic() - self._idle
        self._used = {session: each for session, each in self._used.items() if each[1] >= alive}
        return sum(1 for owner, _ in self._used.values() if owner == caller) < self._most

    def noting(self, caller: str, scope: Scope, send: Send) -> Send:
        """Notes what an answer says of sessions: one was opened, used, or has ended."""
        named = Headers(scope=scope).get(SESSION)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                session = Headers(raw=list(message["headers"])).get(SESSION, named)
                is_alive = message["status"] < 400 and scope["method"] != "DELETE"
                self._note(caller, session, is_alive=is_alive)
            await send(message)

        return sending

    def _note(self, caller: str, session: str | None, *, is_alive: bool) -> None:
        if session and is_alive:
            self._used[session] = caller, time.monotonic()
        elif session and self._used.get(session, ("",))[0] == caller:
            del self._used[session]


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
        elif SESSION not in headers and not sessions.has_room(caller.rate_key):
            error = RateLimited("You have too many sessions open", hint="End one, or wait until one ends.")
            await refusal(error)(scope, receive, send)
        else:
            await manager.handle_request(scope, receive, sessions.noting(caller.rate_key, scope, send))

    # It warns of every host and body it refuses, and every call that failed; whoever sends those gets told.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    async with manager.run(), plain.run():
        yield app
