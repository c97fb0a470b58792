"""The inspector: a page at /inspect that asks one question through every protocol, as any other client does.

The page holds no data and has no addresses of its own; what it may see is what its visitor may see.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.protocols.documents import document
from portico.protocols.problems import make_handler
from portico.requests import Caller
from portico.site import Site
from portico.web.style import APP_HEADERS
from portico.web.tools import inspect_page

PATH: Final = "/inspect"


def routes(site: Site, chat: str) -> list[BaseRoute]:
    """Return the route of the page."""

    async def show(request: Request, _: Caller) -> Response:
        return document(request, inspect_page(site.name, chat), "text/html", APP_HEADERS, server=None)

    return [Route(PATH, make_handler(show), methods=["GET"])]
