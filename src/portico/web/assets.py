"""Serves the scripts, style sheets and icons of pages: the files of one folder of this package, by name.

GET /assets/{name}  one file
GET /embed.js       the script that embeds the chat in other sites
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.protocols.documents import document
from portico.web.style import ASSETS

EMBED: Final = "/embed.js"
KINDS: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

# Every site may load them, since they contain nothing of this one.
_OPEN: Final = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}


def routes() -> list[BaseRoute]:
    """Return the routes of all assets."""

    async def show(request: Request) -> Response:
        return _asset_response(request, request.path_params["name"])

    async def embed(request: Request) -> Response:
        return _asset_response(request, EMBED[1:])

    return [Route(f"{ASSETS}/{{name}}", show, methods=["GET"]), Route(EMBED, embed, methods=["GET"])]


@cache
def assets() -> Mapping[str, bytes]:
    """Return every asset by name. They are few and small, so the process keeps them in memory."""
    folder = files("portico.web") / "assets"
    return {file.name: file.read_bytes() for file in folder.iterdir() if PurePath(file.name).suffix in KINDS}


def _asset_response(request: Request, name: str) -> Response:
    content = assets().get(name)
    if content is None:
        raise HTTPException(404)
    # Revalidated on each use, so that all modules of a page are of the same version.
    return document(request, content, KINDS[PurePath(name).suffix], _OPEN, server=None, seconds=0)
