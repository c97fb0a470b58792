"""A site over HTTP: the application, and the server around it."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from portico import __version__
from portico.catalog import OPERATIONS
from portico.config import Config
from portico.errors import ConfigError, SiteError, Unavailable
from portico.observe import Observe
from portico.server import Parts, opened_site
from portico.web import home_page


def application(parts: Parts) -> Starlette:
    """The HTTP side of a site."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(_: Request) -> Response:
        collections = {
            name: {"items": p.items, "embedded": p.embedded}
            for name, p in parts.index.progress().items()
            if not parts.store.schema[name].private and name != OPERATIONS
        }
        body = {"ready": parts.index.is_ready, "collections": collections}
        return JSONResponse(body, 200 if parts.index.is_ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def home(_: Request) -> Response:
        counts = {name: each.items for name, each in parts.index.progress().items()}
        return HTMLResponse(home_page(parts.site, parts.config.site.description, counts), headers=_PAGE_HEADERS)

    async def failed(_: Request, error: Exception) -> Response:
        message = error.message if isinstance(error, SiteError) else "The server failed"
        return JSONResponse({"error": type(error).__name__, "message": message}, 500)

    routes: list[BaseRoute] = [
        Route("/", home),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]
    if parts.config.site.images:
        folder = _image_folder(parts.config)
        routes.append(Mount("/images", Images(directory=folder, check_dir=False)))
    return Starlette(routes=routes, exception_handlers={SiteError: failed})


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
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; base-uri 'none'",
    **_NO_SNIFF,
    "referrer-policy": "no-referrer",
}


async def serve(config: Config, observe: Observe, started: Callable[[Parts], None]) -> None:
    """Serve until told to stop. Ctrl-C and SIGTERM end open requests first."""
    listener = _listener(config)
    server = msgspec.structs.replace(config.server, port=listener.getsockname()[1])
    config = msgspec.structs.replace(config, server=server)
    # Uvicorn sends itself the signal again once it has stopped; by then there is nothing left to end.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _ignore)
    async with opened_site(config, observe=observe) as parts:
        settings = uvicorn.Config(
            application(parts),
            log_level="warning",
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            http="httptools",
            timeout_graceful_shutdown=10,
            server_header=False,
        )
        running = uvicorn.Server(settings)
        announcing = asyncio.create_task(_announce(running, lambda: started(parts)))
        try:
            await running.serve(sockets=[listener])
        finally:
            announcing.cancel()


def _listener(config: Config) -> socket.socket:
    host, port = config.server.host, config.server.port
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {host}:{port}: {error.strerror}", port=port, hint="Choose another with --port."
        ) from error


def _ignore(_signal: int, _frame: object) -> None:
    """Already stopping."""


async def _announce(server: uvicorn.Server, started: Callable[[], None]) -> None:
    while not server.started:  # noqa: ASYNC110 - uvicorn offers a flag, not an event
        await asyncio.sleep(0.02)
    started()
