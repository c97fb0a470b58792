"""Mounts operations, items, pages, /desk and health checks. Serves `/`, and so renders all errors that belong to no
other protocol: as problem details (RFC 9457), or as a page if the client prefers pages.
"""

from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from portico import __version__
from portico.config import Config
from portico.errors import ConfigError, SiteError
from portico.protocols import Mounted, Services
from portico.protocols.edge import FREE
from portico.protocols.problems import refusal
from portico.protocols.rest import desk, hooks, inspector, items, operations
from portico.web import assets
from portico.web.style import ASSETS


def mount(services: Services) -> Mounted:
    site, config = services.site, services.config
    chat = services.path_of("chat")

    def render_error(scope: Scope, error: Exception) -> ASGIApp:
        match error:
            case SiteError() if scope["path"].startswith(desk.PATH):
                return desk.render_error(site.name, scope, error)
            case SiteError():
                return items.render_error(site.name, scope, error)
            case HTTPException():
                response = refusal(HTTPStatus(error.status_code), error.detail, error.headers)
                return items.as_page(site.name, Request(scope), response, error.detail)
            case _:
                return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "The server failed")

    return Mounted(
        routes=[
            *_health(services),
            *operations.routes(site),
            *desk.routes(site, config, services.sources, services.traffic),
            *hooks.routes(site, services.sources),
            *inspector.routes(site, chat),
            *items.routes(site, config, services.counts, chat),
            *assets.routes(),
            *_images(config),
        ],
        render_error=render_error,
        policies={
            **dict.fromkeys(("/healthz", "/readyz", "/metrics", ASSETS, assets.EMBED, "/images"), FREE),
            operations.PATH: operations.edge_policy(config),
            desk.PATH: desk.edge_policy(config),
        },
    )


def _health(services: Services) -> list[BaseRoute]:
    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(_: Request) -> Response:
        readiness = await services.readiness()
        return JSONResponse(msgspec.to_builtins(readiness), 200 if readiness.ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


def _images(config: Config) -> list[BaseRoute]:
    """Serve the site's folder of images, if it has one. It must not hold the site file."""
    if not config.site.images:
        return []
    folder, site = Path(config.folder, config.site.images).resolve(), Path(config.folder).resolve()
    if site.is_relative_to(folder):
        raise ConfigError(
            "site.images names a folder that holds the site file", hint="Give images a folder of their own."
        )
    return [Mount("/images", Images(directory=folder, check_dir=False))]


class Images(StaticFiles):
    """Files of the site's image folder. An SVG that is opened by itself cannot run scripts."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(
            {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}
        )
        return response
