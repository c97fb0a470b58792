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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.catalog import OPERATIONS
from portico.config import Config, ca_file_of
from portico.errors import ConfigError, SiteError, Unavailable
from portico.network import TrustedNetworks
from portico.operations.webhooks import WebhookClient
from portico.protocols import Example, NativeListener, Protocol, Readiness, Services
from portico.protocols import protocols as installed_protocols
from portico.protocols.edge import EdgeMiddleware
from portico.protocols.http import BearerChallenges, Cors
from portico.server.admission import (
    AddressLimit,
    CancelledRequests,
    ConnectionLimits,
    Refuse,
    VisitorLimits,
    fit_connections,
)
from portico.server.assembly import Parts, open_site
from portico.server.connections import Connection, WebSocketConnection
from portico.server.mounts import Mounts, render_overload
from portico.server.proxies import ForwardedHeaders
from portico.server.workers import Work, Workers
from portico.site import Site
from portico.telemetry import LibraryLog, Recorder, RequestRefused, UnexpectedError, silence_library

PING_SECONDS = 20.0  # between signs of life on a WebSocket
GARBAGE = 20_000  # objects made and not yet freed, before some are looked through
GRACE_SECONDS = 10  # in which open requests may end when the server stops
CANCEL_SECONDS = 2.0  # after these, to answer those that have not
CLIENT_LEFT = 499  # nobody sees it: the client closed the connection
FIRST_SECONDS = 10.0  # of a server, in which only what is asked for is made
BUSY_SECONDS = 120.0  # beyond these, in which a busy one makes nothing else either
BUSY = 0.1  # of a processor


class Application:
    """The HTTP side of a site. Applications that are slow to make are made on first use, or some time after `begin`."""

    def __init__(
        self, app: ASGIApp, mounts: Mounts, site: Site, callbacks: WebhookClient, cancelled: CancelledRequests
    ) -> None:
        self.mounts = mounts
        self.cancelled = cancelled
        self._app = app
        self._site = site
        self._callbacks = callbacks
        self._making: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def begin(self) -> None:
        """Begin what goes on between requests."""
        self.mounts.begin()
        self._making = asyncio.create_task(self._make_late())

    async def _make_late(self) -> None:
        # Loading them takes seconds of a processor, which requests need more.
        await asyncio.sleep(FIRST_SECONDS)
        await _until_quiet(BUSY_SECONDS)
        self.mounts.make_late()

    async def close(self) -> None:
        """End what protocols keep open between requests, so that nothing waits for it to end by itself."""
        if self._making:
            self._making.cancel()
        await self._site.subscriptions.close()
        await self.mounts.close()
        self._callbacks.close()


async def _until_quiet(most: float) -> None:
    """Wait until this process has little to do, and so many seconds at most."""
    until = time.monotonic() + most
    while time.monotonic() < until:
        used = time.process_time()
        await asyncio.sleep(1.0)
        if time.process_time() - used < BUSY:
            return


def application(parts: Parts, protocols: Sequence[Protocol] | None = None) -> Application:
    """Mount the protocols of a site, which are all that are installed if none are named."""
    config, record = parts.config, parts.record
    callbacks = WebhookClient(config.allow_hosts, ca_file=ca_file_of(config))
    streams = AddressLimit(config.limits.streams_per_address)
    protocols = installed_protocols() if protocols is None else tuple(protocols)
    mounts = Mounts(protocols, _services(parts, protocols, callbacks, streams))
    app = Starlette(routes=mounts.routes, exception_handlers=_handlers(mounts, record))
    front = BearerChallenges(EdgeMiddleware(_ErrorSuppressor(app), parts.site, mounts.find), config)
    limited = VisitorLimits(front, config.limits, streams, _refuse_in_form(mounts, record))
    cancelled = CancelledRequests(limited, partial(render_overload, mounts), record)
    # Outside of all that answers, so that a page elsewhere can read what went wrong, too.
    cors = Cors(cancelled, config.server.origins, protocols)
    forwarded = ForwardedHeaders(cors, TrustedNetworks(config.server.trusted_proxies))
    return Application(forwarded, mounts, parts.site, callbacks, cancelled)


def _services(
    parts: Parts, protocols: tuple[Protocol, ...], callbacks: WebhookClient, streams: AddressLimit
) -> Services:
    @cache
    def authority() -> Any:
        # Slow to import, for sites whose certificates are asked about.
        return importlib.import_module("portico.access.nip.authority").SiteAuthority(parts.config, parts.store)

    return Services(
        site=parts.site,
        config=parts.config,
        record=parts.record,
        metrics=parts.metrics,
        traffic=parts.traffic,
        sources=parts.sources,
        callbacks=callbacks,
        streams=streams,
        counts=lambda: {name: progress.items for name, progress in parts.index.progress().items()},
        readiness=partial(_readiness, parts),
        authority=authority,
        protocols=protocols,
    )


async def _readiness(parts: Parts) -> Readiness:
    behind = 0
    try:
        behind = max(await parts.store.changes.head() - parts.index.seq, 0)
        reason = parts.store.health.reason or parts.index.failure
    except SiteError as error:
        reason = error.message
    if reason:
        return Readiness(ready=False, current=False, reason=reason)
    schema = parts.store.collections.schema
    collections = {
        name: {"items": progress.items, "embedded": progress.embedded}
        for name, progress in parts.index.progress().items()
        if name in schema and not schema[name].private and name != OPERATIONS
    }
    ready = parts.index.is_ready
    return Readiness(ready=ready, current=ready and not behind, behind=behind, collections=collections)


class _ErrorSuppressor:
    """Drops the errors that Starlette raises again after it has answered them: they have been recorded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(Exception):
            await self._app(scope, receive, send)


def _handlers(mounts: Mounts, record: Recorder) -> dict[Any, Any]:
    """Return what renders the errors that reach the application, in the form of the protocol that has the path."""

    async def render(request: Request, error: Exception) -> ASGIApp:
        return mounts.find(request.scope).render_error(request.scope, error)

    async def render_defect(request: Request, error: Exception) -> ASGIApp:
        record(UnexpectedError(request.scope["path"][:100], type(error).__name__, error))
        return await render(request, error)

    async def render_nothing(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_LEFT)

    return {SiteError: render, HTTPException: render, ClientDisconnect: render_nothing, Exception: render_defect}


def _refuse_in_form(mounts: Mounts, record: Recorder) -> Refuse:
    """Return what refuses a request in the form of its protocol, and records that at most once a second."""
    last_recorded = -math.inf

    def refuse(scope: Scope, error: SiteError) -> ASGIApp:
        nonlocal last_recorded
        if time.monotonic() - last_recorded >= 1:
            last_recorded = time.monotonic()
            record(RequestRefused("admission", "anonymous", type(error).__name__))
        return render_overload(mounts, scope, error)

    return refuse


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server that listens: its addresses, and what the banner of the start shows beside them."""

    name: str
    base: str  # its address, as http://127.0.0.1:8000
    native: Mapping[str, str]  # its addresses on ports of protocols, by title
    collections: tuple[str, ...]  # those that are not private
    examples: tuple[Example, ...] = ()  # for people to try


@dataclass(frozen=True, slots=True)
class Listeners:
    """The sockets that connections come from."""

    http: socket.socket
    native: Mapping[str, socket.socket]  # by the name of the protocol whose port it is

    def __enter__(self) -> "Listeners":
        return self

    def __exit__(self, *_: object) -> None:
        for listener in (self.http, *self.native.values()):
            listener.close()


def serve(config: Config, make_recorder: Callable[[], Recorder], started: Callable[[ServerInfo], None]) -> None:
    """Serve until a signal stops it. Ctrl-C and SIGTERM end open requests first.

    With several workers each is a process with a recorder of its own; all of them accept from the same sockets.
    """
    if config.server.workers > 1:
        _check_shared(config)
    for protocol in installed_protocols():
        if protocol.port:
            protocol.port.check(config)
    ca_file_of(config)
    config, listeners = bind_listeners(config)
    if config.server.workers == 1:
        _serve(config, listeners, make_recorder, started)
        return
    # The sockets are closed first: nobody connects to workers that only finish what they have.
    work = Work(_serve, (config, listeners, make_recorder))
    with Workers(config.server.workers, work, make_recorder()) as workers, listeners:
        workers.run(started)


def _serve(
    config: Config, listeners: Listeners, make_recorder: Callable[[], Recorder], started: Callable[[ServerInfo], None]
) -> None:
    """One process that serves."""
    record = make_recorder()
    config = _limit_connections(config, record)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve_until_stopped(config, listeners, record, started))


def _limit_connections(config: Config, record: Recorder) -> Config:
    """Lower `limits.connections` to what the open files of this process leave room for, and record that."""
    limits = config.limits
    connections = fit_connections(limits.connections, config.store.pool)
    if connections < limits.connections:
        message = (
            f"limits.connections is {limits.connections}, but the limit of open files leaves room for {connections}."
            " Raise the hard limit (ulimit -Hn)."
        )
        record(UnexpectedError("admission", message))
    return msgspec.structs.replace(config, limits=msgspec.structs.replace(limits, connections=connections))


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    try:
        return importlib.import_module("uvloop").new_event_loop()
    except ImportError:  # there are systems for which it cannot be installed; asyncio's own loop is slower
        return asyncio.new_event_loop()


async def _serve_until_stopped(
    config: Config, listeners: Listeners, record: Recorder, started: Callable[[ServerInfo], None]
) -> None:
    # Uvicorn handles signals while it serves, and raises the last one again once it has stopped. These handlers are for
    # the time before; afterwards there is nothing left to end.
    signals: list[int] = []
    for stop_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop_signal, lambda number, _frame: signals.append(number))
    async with open_site(config, record=record) as parts:
        app = application(parts)
        logging.getLogger("uvicorn").addHandler(LibraryLog("http", record))
        running = Serving(server_settings(parts, app), app, signals)
        running.listen_natively(listeners.native)
        announcing = asyncio.create_task(_announce(running, lambda: started(_server_info(parts))))
        try:
            _settle_memory()
            if not signals:
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

    def __init__(self, settings: uvicorn.Config, app: Application, early_signals: Sequence[int] = ()) -> None:
        super().__init__(settings)
        self._application = app
        self._early_signals = early_signals  # that came before uvicorn handled signals
        self._native: list[tuple[NativeListener, socket.socket]] = []

    def listen_natively(self, listeners: Mapping[str, socket.socket]) -> None:
        """Take the connections of protocols' own ports, too, once it serves."""
        native = self._application.mounts.listeners(
            lambda: self.config.http_protocol_class(self.config, self.server_state, {})  # pyright: ignore[reportCallIssue]
        )
        self._native = [(native[name], listener) for name, listener in listeners.items()]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.should_exit = self.should_exit or bool(self._early_signals)
        for native, listener in self._native:
            native.open(listener)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._application.close()
        leaving = [native.close() for native, _ in self._native]
        await asyncio.gather(*leaving, super().shutdown(sockets))
        # Those that uvicorn has cancelled still answer.
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks), timeout=CANCEL_SECONDS)
        self._application.cancelled.report()


def server_settings(parts: Parts, app: Application | None = None) -> uvicorn.Config:
    config, app = parts.config, app or application(parts)
    limits = ConnectionLimits(
        config.limits, TrustedNetworks(config.server.trusted_proxies), _refuse_in_form(app.mounts, parts.record)
    )
    silence_library("uvicorn")
    return uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,  # requests are recorded where they are handled
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


def _server_info(parts: Parts) -> ServerInfo:
    config, catalog = parts.config, parts.site.catalog
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    protocols = installed_protocols()
    ports = [protocol.port for protocol in protocols if protocol.port]
    examples = [example for protocol in protocols if protocol.examples for example in protocol.examples(config)]
    return ServerInfo(
        parts.site.name,
        f"http://{host}:{config.server.port}",
        {port.title: f"{port.scheme}://{host}:{port.number(config)}" for port in ports},
        tuple(collection.name for collection in catalog.public),
        tuple(sorted(examples, key=lambda example: example.rank)),
    )


def _check_shared(config: Config) -> None:
    if config.store_url == "sqlite:///:memory:":
        raise ConfigError(
            "Several workers cannot share a store in memory", hint="Name a file with --store, or use --workers 1."
        )


def bind_listeners(config: Config) -> tuple[Config, Listeners]:
    """Listen where the settings say. Port 0 is any that is free: the settings that come back have its number."""
    server = config.server
    http = _listener(server.host, server.port, "--port")
    config = msgspec.structs.replace(config, server=msgspec.structs.replace(server, port=http.getsockname()[1]))
    listeners = Listeners(http, native := {})
    for protocol in installed_protocols():
        if port := protocol.port:
            try:
                native[protocol.name] = _listener(server.host, port.number(config), port.option)
            except Unavailable:
                listeners.__exit__()
                raise
            config = port.with_number(config, native[protocol.name].getsockname()[1])
    return config, listeners


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
