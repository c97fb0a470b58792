"""A site over HTTP: the application, and the server around it."""

import asyncio
import importlib
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from portico import __version__
from portico.callbacks import Callbacks
from portico.catalog import OPERATIONS
from portico.config import Config
from portico.connections import Connection
from portico.errors import ConfigError, SiteError, Unavailable
from portico.faces import items, operations
from portico.faces.a2a import routes as a2a
from portico.faces.discovery import llms, openapi, sitemap, wellknown
from portico.faces.mcp import routes as mcp
from portico.faces.nlweb import routes as nlweb
from portico.faces.nwp.actions import Actions
from portico.faces.nwp.exchange import Exchange
from portico.faces.nwp.feeds import Feeds
from portico.faces.nwp.overlay import Front, Overlay
from portico.faces.wire import Challenges, Cors, Late
from portico.observe import Broke, Observe
from portico.server import Parts, opened_site
from portico.workers import Work, Workers

PING_SECONDS = 20.0  # between signs of life on a WebSocket
CLIENT_LEFT = 499  # nobody sees it: the client closed the connection


class Application:
    """The HTTP side of a site. Faces that are slow to make are made when they are first needed, or in `begin`."""

    def __init__(self, app: ASGIApp, late: Sequence[Late]) -> None:
        self._app = app
        self._late = late

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def begin(self) -> None:
        """Begin to make every face, before somebody waits for it."""
        for each in self._late:
            each.begin()

    async def close(self) -> None:
        """End what faces keep open between requests, so that nobody waits for it to end by itself."""
        await asyncio.gather(*(each.close() for each in self._late))


def application(parts: Parts) -> Application:
    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(_: Request) -> Response:
        collections = {
            name: {"items": p.items, "embedded": p.embedded}
            for name, p in parts.index.progress().items()
            if not parts.store.schema[name].private and name != OPERATIONS
        }
        ready = parts.index.is_ready
        try:
            behind = max(await parts.store.head() - parts.index.seq, 0)
        except SiteError as error:
            return JSONResponse({"ready": False, "current": False, "reason": error.message}, 503)
        body = {"ready": ready, "current": ready and not behind, "behind": behind, "collections": collections}
        return JSONResponse(body, 200 if ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def counts() -> dict[str, int]:
        return {name: each.items for name, each in parts.index.progress().items()}

    mcp_routes, mcp_face = mcp.routes(parts.site, parts.config, parts.observe)
    a2a_routes, a2a_face = a2a.routes(parts.site, parts.config, parts.observe)
    routes: list[BaseRoute] = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        *nlweb.routes(parts.site, parts.config, parts.observe),
        *operations.routes(parts.site, parts.config),
        *items.routes(parts.site, parts.config, counts),
        *sitemap.routes(parts.site, parts.config, counts),
        *llms.routes(parts.site, parts.config, counts),
        *openapi.routes(parts.site, parts.config),
        *wellknown.routes(parts.site, parts.config),
        *mcp_routes,
        *a2a_routes,
    ]
    if parts.config.site.images:
        folder = _image_folder(parts.config)
        routes.append(Mount("/images", Images(directory=folder, check_dir=False)))
    # Outside of everything, so that a page elsewhere can read what went wrong, too.
    app = Challenges(
        Starlette(routes=routes, exception_handlers=_handlers(parts.site.name, parts.observe)), parts.config
    )
    exchange = Exchange(parts.site, parts.config)
    actions = Actions(exchange, Callbacks(parts.config.allow_hosts))
    front = Front(app, Overlay(exchange, actions, Feeds(exchange), parts.config), parts.observe)
    return Application(Cors(front, parts.config.server.origins), (mcp_face, a2a_face))


def _handlers(site: str, observe: Observe) -> dict[Any, Any]:
    """What to say of errors that no face has told."""

    async def failed(_: Request, error: Exception) -> Response:
        if isinstance(error, SiteError):
            return operations.problem(error)
        return operations.refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "The server failed")

    async def refused(request: Request, error: HTTPException) -> Response:
        if request.scope["path"] in nlweb.PATHS:
            return nlweb.refusal(error)
        told = operations.refusal(HTTPStatus(error.status_code), error.detail, error.headers)
        return items.as_page(site, request, told, error.detail)

    async def broke(request: Request, error: Exception) -> Response:
        observe(Broke(request.scope["path"][:100], type(error).__name__))
        return nlweb.breakdown(request) if request.scope["path"] in nlweb.PATHS else await failed(request, error)

    async def left(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_LEFT)

    return {SiteError: failed, HTTPException: refused, ClientDisconnect: left, Exception: broke}


def _image_folder(config: Config) -> Path:
    folder, site = Path(config.folder, config.site.images).resolve(), Path(config.folder).resolve()
    if site.is_relative_to(folder):
        raise ConfigError(
            "site.images names a folder that holds the site file", hint="Give images a folder of their own."
        )
    return folder


class Images(StaticFiles):
    """Files of the site's image folder. A drawing that is opened by itself can run nothing."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update({"content-security-policy": "default-src 'none'; sandbox", **_NO_SNIFF})
        return response


_NO_SNIFF = {"x-content-type-options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Opened:
    """What there is to say of a server once it listens."""

    name: str
    base: str  # its address, as http://127.0.0.1:8000
    collections: tuple[str, ...]  # those that are not private


def serve(config: Config, observer: Callable[[], Observe], started: Callable[[Opened], None]) -> None:
    """Serve until told to stop. Ctrl-C and SIGTERM end open requests first.

    With several workers each is a process with an observer of its own; all of them accept from one socket.
    """
    if config.server.workers > 1:
        _check_shared(config)
    listener = _listener(config)
    server = msgspec.structs.replace(config.server, port=listener.getsockname()[1])
    config = msgspec.structs.replace(config, server=server)
    if server.workers == 1:
        _serve(config, listener, observer, started)
        return
    # The socket is closed first: nobody connects to workers that only finish what they have.
    with Workers(server.workers, Work(_serve, (config, listener, observer)), observer()) as workers, listener:
        workers.run(started)


def _serve(
    config: Config, listener: socket.socket, observer: Callable[[], Observe], started: Callable[[Opened], None]
) -> None:
    """One process that serves."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve_until_told(config, listener, observer(), started))


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    return importlib.import_module("uvloop").new_event_loop()


async def _serve_until_told(
    config: Config, listener: socket.socket, observe: Observe, started: Callable[[Opened], None]
) -> None:
    # Uvicorn heeds signals while it serves, and sends itself the last one again once it has stopped. These are for the
    # time before; afterwards there is nothing left to end.
    told: list[int] = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _frame: told.append(number))
    async with opened_site(config, observe=observe) as parts:
        app = application(parts)
        running = Serving(server_settings(parts, app), app)
        announcing = asyncio.create_task(_announce(running, lambda: started(_opened(parts))))
        try:
            if not told:
                app.begin()
                await running.serve(sockets=[listener])
        finally:
            announcing.cancel()


class Serving(uvicorn.Server):
    """A server that closes what the application keeps open before it waits for its clients to leave."""

    def __init__(self, settings: uvicorn.Config, app: Application) -> None:
        super().__init__(settings)
        self._application = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._application.close()
        await super().shutdown(sockets)


def server_settings(parts: Parts, app: Application | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app or application(parts),
        lifespan="off",
        log_level="warning",
        http=Connection,
        timeout_graceful_shutdown=10,
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=parts.config.limits.payload_bytes,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,
        limit_concurrency=parts.config.limits.connections,
    )


def _opened(parts: Parts) -> Opened:
    server, catalog = parts.config.server, parts.site.catalog
    return Opened(parts.site.name, f"http://{server.host}:{server.port}", tuple(each.name for each in catalog.public))


def _check_shared(config: Config) -> None:
    if config.store_url == "sqlite:///:memory:":
        raise ConfigError(
            "Several workers cannot share a store in memory", hint="Name a file with --store, or use --workers 1."
        )


def _listener(config: Config) -> socket.socket:
    host, port = config.server.host, config.server.port
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
        # Connections have it from here: an answer's body does not wait until its head was acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {host}:{port}: {error.strerror}", port=port, hint="Choose another with --port."
        ) from error


async def _announce(server: uvicorn.Server, started: Callable[[], None]) -> None:
    while not server.started:  # noqa: ASYNC110 - uvicorn offers a flag, not an event
        await asyncio.sleep(0.02)
    started()
