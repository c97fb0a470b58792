"""Protected resource metadata (RFC 9728): which authorization server gives out tokens for this site.

GET /.well-known/oauth-protected-resource   the site; with /mcp, /a2a or /ask behind it, that door of the site
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from portico.config import Config
from portico.faces.wire import RESOURCE_METADATA, base_of
from portico.identity import RESOURCES

HEADERS = {"cache-control": "public, max-age=3600"}


def routes(config: Config) -> list[BaseRoute]:
    """The addresses of the metadata. Without an issuer there are none."""

    async def show(request: Request) -> Response:
        door = request.scope["path"].removeprefix(RESOURCE_METADATA)
        return JSONResponse(metadata(config, base_of(request, config.server), door), headers=HEADERS)

    doors = RESOURCES if config.oauth.issuer else ()
    return [Route(f"{RESOURCE_METADATA}{door}", show, methods=["GET"]) for door in doors]


def metadata(config: Config, base: str, door: str) -> dict[str, Any]:
    return {
        "resource": f"{base}{door}",
        "authorization_servers": [config.oauth.issuer],
        # RFC 9728 3.2: a list without members is left out.
        **({"scopes_supported": list(config.oauth.scopes)} if config.oauth.scopes else {}),
        "bearer_methods_supported": ["header"],
        "resource_name": config.site.name,
        "resource_documentation": f"{base}/",
    }
