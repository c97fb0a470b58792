"""The scripts and style sheets of pages. Serves the files of one folder of this package, by their names, and no other.

GET /assets/{name}  one of them
GET /embed.js       the script that puts the chat on pages elsewhere
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

# Anybody's page may load them: they hold nothing of the site. What they may ask there is another matter.
_OPEN: Final = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}


def routes() -> list[BaseRoute]:
    """The addresses of all assets."""

    async def show(request: Request) -> Response:
        return _served(request, request.path_params["name"])

    async def embed(request: Request) -> Response:
        return _served(request, EMBED[1:])

    return [Route(f"{ASSETS}/{{name}}", show, methods=["GET"]), Route(EMBED, embed, methods=["GET"])]


@cache
def assets() -> Mapping[str, bytes]:
    """Every asset by its name. They are few and small, and kept for as long as the process lives."""
    folder = files("portico.web") / "assets"
    return {each.name: each.read_bytes() for each in folder.iterdir() if PurePath(each.name).suffix in KINDS}


def _served(request: Request, name: str) -> Response:
    content = assets().get(name)
    if content is None:
        raise HTTPException(404)
    # Asked for again each time, so that the modules of a page are always of one version.
    return document(request, content, KINDS[PurePath(name).suffix], _OPEN, server=None, seconds=0)
