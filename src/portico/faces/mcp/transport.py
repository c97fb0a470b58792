"""A server of the official SDK over streamable HTTP, in all revisions it speaks."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.calls import Caller
from portico.config import Config
from portico.faces.wire import CALLER


@asynccontextmanager
async def opened(server: Server[Any], config: Config) -> AsyncGenerator[ASGIApp]:
    """Requests must have a caller in their scope, and a host that is this site's: the door before has seen to that.

    Sessions live in one process. Where several serve, clients of the handshake revisions get none, and with it no
    messages that they did not ask for; the newest revision has no sessions.
    """
    manager = StreamableHTTPSessionManager(
        server,
        stateless=config.server.workers > 1,
        session_idle_timeout=config.mcp.idle,
        max_sessions=config.mcp.sessions,
        max_request_body_size=config.limits.payload_bytes,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope[CALLER]
        if not caller.is_anonymous:
            # The SDK binds a session to who opened it.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.id, scopes=[]))
        await manager.handle_request(scope, receive, send)

    # It warns of every host and body it refuses, and every call that failed; whoever sends those gets told.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    async with manager.run():
        yield app
