"""A site over HTTP: the application, and the server around it."""

import asyncio
import contextlib
import gc
import importlib
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

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
from portico.catalog import OPERATIONS
from portico.config import Config, ca_file_of, tls_of
from portico.errors import ConfigError, SiteError, Unavailable
from portico.network import TrustedNetworks
from portico.operations.webhooks import Callbacks
from portico.protocols.a2a import routes as a2a
from portico.protocols.aql import routes as aql
from portico.protocols.chat import routes as chat
from portico.protocols.discovery import authority, llms, openapi, sitemap, wellknown
from portico.protocols.http import Challenges, Cors, Late
from portico.protocols.mcp import routes as mcp
from portico.protocols.nlweb import routes as nlweb
from portico.protocols.nwp import http as nwp
from portico.protocols.nwp.actions import Actions
from portico.protocols.nwp.callbacks import Notices
from portico.protocols.nwp.feeds import Feeds
from portico.protocols.nwp.gateway import delegation
from portico.protocols.nwp.native import Answering, NativePort, Patience
from portico.protocols.nwp.service import Exchange
from portico.protocols.rest import desk, items, operations
from portico.protocols.rest import inspector as inspect
from portico.server.admission import (
    AddressLimit,
    CancelledRequests,
    ConnectionLimits,
    Refuse,
    VisitorLimits,
    fit_connections,
)
from portico.server.assembly import Parts, opened_site
from portico.server.connections import Connection, WebSocketConnection
from portico.server.proxies import ForwardedHeaders
from portico.server.workers import Work, Workers
from portico.telemetry import Broke, LibraryLog, Observe, Refused, quiet
from portico.web import assets

PING_SECONDS = 20.0  # between signs of life on a WebSocket
GARBAGE = 20_000  # objects made and not yet freed, before some are looked through
GRACE_SECONDS = 10  # in which open requests may end when the server stops
CANCEL_SECONDS = 2.0  # after these, to answer those that have not
CLIENT_LEFT = 499  # nobody sees it: the client closed the connection
FIRST_SECONDS = 10.0  # of a server, in which only what is asked for is made
BUSY_SECONDS = 120.0  # beyond these, in which a busy one makes nothing else either
BUSY = 0.1  # of a processor


class Application:
    """The HTTP side of a site. Faces that are slow to make are made when they are first needed, or after `begin`."""

    def __init__(
        self,
        app: ASGIApp,
        late: Sequence[Late],
        answering: Answering,
        notices: Callable[[], Notices],
        callbacks: Callbacks,
        streams: AddressLimit,
        cancelled: CancelledRequests,
    ) -> None:
        self.answering = answering  # what answers the frames of NWP
        self.streams = streams  # open by address, over HTTP and natively
        self.cancelled = cancelled
        self._app = app
        self._late = late
        self._made = notices
        self._callbacks = callbacks
        self._notices: Notices | None = None
        self._making: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def begin(self) -> None:
        """Begin what goes on between requests. A little later every face is made, before somebody waits for it."""
        self._notices = self._made()
        self._making = asyncio.create_task(self._make_all())

    async def _make_all(self) -> None:
        # Loading them takes seconds of a processor: whoever waits for an answer needs them more, a stop waits for it.
        await asyncio.sleep(FIRST_SECONDS)
        await _until_quiet(BUSY_SECONDS)
        for each in self._late:
            each.begin()

    async def close(self) -> None:
        """End what faces keep open between requests, so that nobody waits for it to end by itself."""
        if self._making:
            self._making.cancel()
        await self.answering.exchange.site.close_subscriptions()
        if self._notices:
            await self._notices.close()
        self._callbacks.close()
        await asyncio.gather(*(each.close() for each in self._late))


async def _until_quiet(most: float) -> None:
    """Wait until this process has little to do, and so many seconds at most."""
    until = time.monotonic() + most
    while time.monotonic() < until:
        used = time.process_time()
        await asyncio.sleep(1.0)
        if time.process_time() - used < BUSY:
            return


def application(parts: Parts) -> Application:
    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(_: Request) -> Response:
        collections = {
            name: {"items": p.items, "embedded": p.embedded}
            for name, p in parts.index.progress().items()
            if name in parts.store.collections.schema
            and not parts.store.collections.schema[name].private
            and name != OPERATIONS
        }
        ready, behind = parts.index.is_ready, 0
        try:
            behind = max(await parts.store.changes.head() - parts.index.seq, 0)
            reason = parts.store.health.reason or parts.index.failure
        except SiteError as error:
            reason = error.message
        if reason:
            return JSONResponse({"ready": False, "current": False, "reason": reason}, 503)
        body = {"ready": ready, "current": ready and not behind, "behind": behind, "collections": collections}
        return JSONResponse(body, 200 if ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def counts() -> dict[str, int]:
        return {name: each.items for name, each in parts.index.progress().items()}

    @cache
    def own_authority() -> Any:
        # Slow to import, for sites whose certificates are asked about.
        return importlib.import_module("portico.access.nip.authority").Authority(parts.config, parts.store)

    callbacks = Callbacks(parts.config.allow_hosts, ca_file=ca_file_of(parts.config))
    exchange = Exchange(parts.site, parts.config, callbacks, parts.observe)
    mcp_routes, mcp_face = mcp.routes(parts.site, parts.config, parts.observe)
    a2a_routes, a2a_face = a2a.routes(parts.site, parts.config, parts.observe)
    routes: list[BaseRoute] = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        *nlweb.routes(parts.site, parts.config, parts.observe),
        *chat.routes(parts.site, parts.config),
        *operations.routes(parts.site, parts.config),
        *desk.routes(parts.site, parts.config, parts.sources, parts.traffic),
        *inspect.routes(parts.site, parts.config.chat.path),
        *items.routes(parts.site, parts.config, counts),
        *assets.routes(),
        *sitemap.routes(parts.site, parts.config, counts),
        *llms.routes(parts.site, parts.config, counts),
        *openapi.routes(parts.site, parts.config),
        *wellknown.routes(parts.site, parts.config, exchange),
        *authority.routes(parts.site, parts.config, own_authority),
        *mcp_routes,
        *aql.routes(parts.site, parts.config, parts.observe),
        *a2a_routes,
    ]
    if parts.config.site.images:
        folder = _image_folder(parts.config)
        routes.append(Mount("/images", Images(directory=folder, check_dir=False)))
    app = Starlette(routes=routes, exception_handlers=_handlers(parts.config, parts.observe))
    actions = Actions(exchange, callbacks, delegation(parts.observe))
    answering = Answering(exchange, actions, Feeds(exchange))
    overlay = nwp.Overlay(exchange, actions, answering.feeds, parts.config)
    front = nwp.Front(_Reported(app), overlay, parts.observe)

    def notices() -> Notices:
        sign = partial(_signed, own_authority)
        return Notices(parts.site, callbacks, sign, parts.config, parts.observe)

    config = parts.config
    streams = AddressLimit(config.limits.streams_per_address)
    limited = VisitorLimits(Challenges(front, config), config.limits, streams, _refuse_in_form(config, parts.observe))
    cancelled = CancelledRequests(limited, _in_form(config), parts.observe)
    # Outside of all that answers, so that a page elsewhere can read what went wrong, too.
    cors = Cors(cancelled, config.server.origins)
    forwarded = ForwardedHeaders(cors, TrustedNetworks(config.server.trusted_proxies))
    late = (mcp_face, a2a_face)
    return Application(forwarded, late, answering, notices, callbacks, streams, cancelled)


class _Reported:
    """Starlette raises an error again that it has answered, for servers that log errors. This one was observed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(Exception):
            await self._app(scope, receive, send)


def _signed(authority: Callable[[], Any], body: bytes) -> str:
    return authority().sign(body)


def _handlers(config: Config, observe: Observe) -> dict[Any, Any]:
    """What to say of errors that no face has told."""

    async def failed(_: Request, error: Exception) -> Response:
        if isinstance(error, SiteError):
            return operations.problem(error)
        return operations.refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "The server failed")

    async def refused(request: Request, error: HTTPException) -> Response:
        if request.scope["path"] in nlweb.PATHS:
            return nlweb.refusal(error)
        if chat.is_here(request.scope["path"], config):
            return chat.refused(error, config)
        told = operations.refusal(HTTPStatus(error.status_code), error.detail, error.headers)
        return items.as_page(config.site.name, request, told, error.detail)

    async def broke(request: Request, error: Exception) -> Response:
        observe(Broke(request.scope["path"][:100], type(error).__name__, error))
        if chat.is_here(request.scope["path"], config):
            return chat.breakdown(config)
        return nlweb.breakdown(request) if request.scope["path"] in nlweb.PATHS else await failed(request, error)

    async def left(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_LEFT)

    return {SiteError: failed, HTTPException: refused, ClientDisconnect: left, Exception: broke}


def _refuse_in_form(config: Config, observe: Observe) -> Refuse:
    """Return what refuses in the form of the protocol that a request was made in, and observes it.

    A flood of refusals does not become a flood of log lines: at most one a second is observed.
    """
    observed = -math.inf
    in_form = _in_form(config)

    def refuse(scope: Scope, error: SiteError) -> ASGIApp:
        nonlocal observed
        if time.monotonic() - observed >= 1:
            observed = time.monotonic()
            observe(Refused("admission", "anonymous", type(error).__name__))
        return in_form(scope, error)

    return refuse


def _in_form(config: Config) -> Refuse:
    """Return what refuses in the form of the protocol that a request was made in."""

    def refuse(scope: Scope, error: SiteError) -> Response:
        path = scope["path"]
        if path in nlweb.PATHS:
            response = nlweb.failure_response(error)
        elif chat.is_here(path, config):
            response = chat.failure_response(error, config)
        elif nwp.is_node(path):
            response = nwp.refusal(scope, error)
        else:
            response = operations.problem(error)
        response.status_code = operations.status_of(error)
        response.headers["retry-after"] = str(error.details["retry_after"])
        return response

    return refuse


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
    native: str  # its address in the native protocol, as nwp://127.0.0.1:17433
    collections: tuple[str, ...]  # those that are not private


@dataclass(frozen=True, slots=True)
class Listeners:
    """The sockets that connections come from."""

    http: socket.socket
    native: socket.socket


def serve(config: Config, observer: Callable[[], Observe], started: Callable[[Opened], None]) -> None:
    """Serve until told to stop. Ctrl-C and SIGTERM end open requests first.

    With several workers each is a process with an observer of its own; all of them accept from the same sockets.
    """
    if config.server.workers > 1:
        _check_shared(config)
    tls_of(config)  # what is wrong with it is told at the start
    ca_file_of(config)
    config, listeners = listening_of(config)
    if config.server.workers == 1:
        _serve(config, listeners, observer, started)
        return
    # The sockets are closed first: nobody connects to workers that only finish what they have.
    work = Work(_serve, (config, listeners, observer))
    with Workers(config.server.workers, work, observer()) as workers, listeners.http, listeners.native:
        workers.run(started)


def _serve(
    config: Config, listeners: Listeners, observer: Callable[[], Observe], started: Callable[[Opened], None]
) -> None:
    """One process that serves."""
    observe = observer()
    config = _limit_connections(config, observe)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve_until_told(config, listeners, observe, started))


def _limit_connections(config: Config, observe: Observe) -> Config:
    """Lower `limits.connections` to what the open files of this process leave room for, and record that."""
    limits = config.limits
    connections = fit_connections(limits.connections, config.store.pool)
    if connections < limits.connections:
        message = (
            f"limits.connections is {limits.connections}, but the limit of open files leaves room for {connections}."
            " Raise the hard limit (ulimit -Hn)."
        )
        observe(Broke("admission", message))
    return msgspec.structs.replace(config, limits=msgspec.structs.replace(limits, connections=connections))


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    return importlib.import_module("uvloop").new_event_loop()


async def _serve_until_told(
    config: Config, listeners: Listeners, observe: Observe, started: Callable[[Opened], None]
) -> None:
    # Uvicorn heeds signals while it serves, and sends itself the last one again once it has stopped. These are for the
    # time before; afterwards there is nothing left to end.
    told: list[int] = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _frame: told.append(number))
    async with opened_site(config, observe=observe) as parts:
        app = application(parts)
        logging.getLogger("uvicorn").addHandler(LibraryLog("http", observe))
        running = Serving(server_settings(parts, app), app, told)
        running.listen_natively(listeners.native, parts)
        announcing = asyncio.create_task(_announce(running, lambda: started(_opened(parts))))
        try:
            _settle_memory()
            if not told:
                app.begin()
                await running.serve(sockets=[listeners.http])
        finally:
            announcing.cancel()


def _settle_memory() -> None:
    """Look for garbage among what requests leave behind, not among what lasts as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 20)


class Serving(uvicorn.Server):
    """A server of HTTP and of the native port. Closes what the application keeps open before it waits for its clients.

    HTTP that arrives on the native port is served as all HTTP is, and counted with it.
    """

    def __init__(self, settings: uvicorn.Config, app: Application, told: Sequence[int] = ()) -> None:
        super().__init__(settings)
        self._application = app
        self._told = told  # signals that came before there was anybody to heed them
        self._native: NativePort | None = None
        self._listener: socket.socket | None = None

    def listen_natively(self, listener: socket.socket, parts: Parts, patience: Patience | None = None) -> None:
        """Take native connections from a socket, too, once it serves."""
        self._listener = listener
        self._native = NativePort(
            self._application.answering,
            parts.config,
            lambda: self.config.http_protocol_class(self.config, self.server_state, {}),  # pyright: ignore[reportCallIssue]
            parts.observe,
            self._application.streams,
            tls=tls_of(parts.config),
            patience=patience,
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.should_exit = self.should_exit or bool(self._told)
        if self._native and self._listener:
            self._native.open(self._listener)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._application.close()
        leaving = [self._native.close()] if self._native else []
        await asyncio.gather(*leaving, super().shutdown(sockets))
        # Those that uvicorn has cancelled still answer.
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks), timeout=CANCEL_SECONDS)
        self._application.cancelled.report()


def server_settings(parts: Parts, app: Application | None = None) -> uvicorn.Config:
    config = parts.config
    limits = ConnectionLimits(
        config.limits, TrustedNetworks(config.server.trusted_proxies), _refuse_in_form(config, parts.observe)
    )
    quiet("uvicorn")
    return uvicorn.Config(
        app or application(parts),
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,  # what happens is observed where it does; nobody would see this
        proxy_headers=False,  # server.trusted_proxies says whom to believe, and neither uvicorn nor its environment
        http=cast("type[asyncio.Protocol]", partial(Connection, limits=limits)),
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        ws=cast("type[asyncio.Protocol]", partial(WebSocketConnection, limits=limits)),
        ws_max_size=config.limits.payload_bytes,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,
    )


def _opened(parts: Parts) -> Opened:
    server, catalog = parts.config.server, parts.site.catalog
    host = f"[{server.host}]" if ":" in server.host else server.host
    names = tuple(each.name for each in catalog.public)
    return Opened(parts.site.name, f"http://{host}:{server.port}", f"nwp://{host}:{server.nwp_port}", names)


def _check_shared(config: Config) -> None:
    if config.store_url == "sqlite:///:memory:":
        raise ConfigError(
            "Several workers cannot share a store in memory", hint="Name a file with --store, or use --workers 1."
        )


def listening_of(config: Config) -> tuple[Config, Listeners]:
    """Listen where the settings say. Port 0 is any that is free: the settings that come back have its number."""
    server = config.server
    http = _listener(server.host, server.port, "--port")
    try:
        native = _listener(server.host, server.nwp_port, "--nwp-port")
    except Unavailable:
        http.close()
        raise
    ports = {"port": http.getsockname()[1], "nwp_port": native.getsockname()[1]}
    server = msgspec.structs.replace(server, **ports)
    return msgspec.structs.replace(config, server=server), Listeners(http, native)


def _listener(host: str, port: int, option: str) -> socket.socket:
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
        # Connections have it from here: an answer's body does not wait until its head was acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {host}:{port}: {error.strerror}", port=port, hint=f"Choose another with {option}."
        ) from error


async def _announce(server: uvicorn.Server, started: Callable[[], None]) -> None:
    while not server.started:  # noqa: ASYNC110 - uvicorn offers a flag, not an event
        await asyncio.sleep(0.02)
    started()
