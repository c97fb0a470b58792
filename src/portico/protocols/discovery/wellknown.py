"""What agents look for at addresses they know: the MCP server card, the NWP manifest, the AI catalog, the API catalog
and who gives out tokens.

The server card follows SEP-2127 and is served where that says, and where readers of its drafts look. It tells how to
connect, never what there is: tools, resources and prompts are listed by the server itself.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico import __version__
from portico.access.identity import ASK, RESOURCES
from portico.config import Config
from portico.protocols.a2a.card import PATH as AGENT_CARD_PATH
from portico.protocols.a2a.card import RPC_PATH as A2A_PATH
from portico.protocols.discovery import anybody, published
from portico.protocols.discovery.oauth import metadata
from portico.protocols.documents import FRESH_SECONDS, document
from portico.protocols.http import RESOURCE_METADATA, base_of, caller_of
from portico.protocols.mcp.routes import NAME
from portico.protocols.mcp.routes import PATH as MCP_PATH
from portico.protocols.nwp.nodes import MANIFEST, PREFIX, SITE
from portico.protocols.nwp.service import Exchange
from portico.protocols.rest import operations
from portico.protocols.rest.operations import Who
from portico.requests import Caller
from portico.site import Site

CARD = "application/mcp-server-card+json"
CARD_PATH = f"{MCP_PATH}/server-card"
CARD_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
API_CATALOG_PATH = "/.well-known/api-catalog"
MANIFEST_PATH = "/.well-known/nwp"
NODE_PATH = f"{PREFIX}/{SITE}"  # of the node that leads to all others
JSON = "application/json"
LINKSET = 'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"'
# Of the SDK, which is too slow to import for this; a test compares them.
PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
TOKEN_SECONDS = 3600  # that a reader may keep who gives out tokens
MAX_SAID = 100  # characters of a title or a description (SEP-2127)

# The documents are public and the same for all: pages elsewhere may read them too (SEP-2127).
_HEADERS = {"access-control-allow-origin": "*"}
_LABEL = re.compile(r"[^a-z0-9.-]+")

Document: TypeAlias = Callable[[Site, Config, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Published:
    """A document at an address that is known beforehand."""

    made: Document
    kind: str
    summary: str
    seconds: int = FRESH_SECONDS
    who: Who = caller_of  # pays for it


def routes(site: Site, config: Config, exchange: Exchange) -> list[BaseRoute]:
    """The addresses of this face."""
    shown = {path: _shown(each, site, config) for path, each in documents(config).items()}
    shown[MANIFEST_PATH] = _manifest(site, config, exchange)
    return [Route(path, each, methods=["GET"]) for path, each in shown.items()]


def _shown(each: Published, site: Site, config: Config) -> operations.Answer:
    async def show(request: Request, _: Caller) -> Response:
        base = base_of(request, config.server)
        headers = {**_HEADERS, "link": f'<{base}{API_CATALOG_PATH}>; rel="api-catalog"'}
        body = msgspec.json.encode(each.made(site, config, base))
        return document(request, body, each.kind, headers, server=config.server, seconds=each.seconds)

    return published(show, site, each.who)


def _manifest(site: Site, config: Config, exchange: Exchange) -> operations.Answer:
    """The manifest of the node that leads to all others, the same as at its own address."""

    async def show(request: Request, _: Caller) -> Response:
        node = await exchange.nodes.named(SITE)
        await exchange.anchors.publish(node)
        manifest = exchange.nodes.manifest(node, base_of(request, config.server))
        body, tag = msgspec.json.encode(manifest), manifest["manifest_version"]
        return document(request, body, MANIFEST, _HEADERS, server=config.server, tag=tag)

    return published(show, site)


def server_card(site: Site, config: Config, base: str) -> dict[str, Any]:
    """How to connect to the MCP server (SEP-2127)."""
    key = {
        "name": "Authorization",
        "description": "Bearer and an API key or an access token",
        "isRequired": ASK not in config.anonymous.scopes,
        "isSecret": True,
    }
    remote = {
        "type": "streamable-http",
        "url": f"{base}{MCP_PATH}",
        "headers": [key],
        "supportedProtocolVersions": list(PROTOCOLS),
    }
    return {
        "$schema": CARD_SCHEMA,
        "name": f"{_reversed(_host(base))}/{NAME}",
        "version": __version__,
        "title": site.name[:MAX_SAID],
        "description": (config.site.description or f"Ask {site.name} in plain words.")[:MAX_SAID],
        "websiteUrl": f"{base}/",
        "remotes": [remote],
    }


def _host(base: str) -> str:
    return _LABEL.sub("-", (urlsplit(base).hostname or "localhost").lower())


def _reversed(host: str) -> str:
    """A host as names in reverse order: shop.example is example.shop. Addresses in numbers stay as they are."""
    labels = host.split(".")
    return host if labels[-1].isdecimal() else ".".join(reversed(labels))


def ai_catalog(site: Site, _: Config, base: str) -> dict[str, Any]:
    """Where the cards are. They name and describe themselves, so this does not."""
    name = f"urn:air:{_host(base)}"
    return {
        "specVersion": "1.0",
        "host": {"displayName": site.name, "documentationUrl": f"{base}/docs"},
        "entries": [
            {"identifier": f"{name}:mcp:{NAME}", "type": CARD, "url": f"{base}{CARD_PATH}"},
            {
                "identifier": f"{name}:a2a:{NAME}",
                "type": "application/a2a-agent-card+json",
                "url": f"{base}{AGENT_CARD_PATH}",
            },
            {"identifier": f"{name}:nwp:{NAME}", "type": MANIFEST, "url": f"{base}{MANIFEST_PATH}"},
        ],
    }


def api_catalog(_: Site, __: Config, base: str) -> dict[str, Any]:
    """The interfaces of the site, and where each is described (RFC 9727)."""
    openapi = [{"href": f"{base}/openapi.json", "type": JSON}]
    docs = [
        {"href": f"{base}/docs", "type": "text/html"},
        {"href": f"{base}/llms.txt", "type": "text/plain"},
    ]
    described = {
        "/ask": openapi,
        operations.PATH: openapi,
        MCP_PATH: [{"href": f"{base}{CARD_PATH}", "type": CARD}],
        A2A_PATH: [{"href": f"{base}{AGENT_CARD_PATH}", "type": JSON}],
        NODE_PATH: [{"href": f"{base}{MANIFEST_PATH}", "type": MANIFEST}],
    }
    whole = {"anchor": f"{base}{API_CATALOG_PATH}", "item": [{"href": f"{base}{path}"} for path in described]}
    each = [
        {"anchor": f"{base}{path}", "service-desc": desc, "service-doc": docs, "status": [{"href": f"{base}/readyz"}]}
        for path, desc in described.items()
    ]
    return {"linkset": [whole, *each]}


_CARD = "How to connect over MCP"
_DOCUMENTS: Mapping[str, Published] = {
    CARD_PATH: Published(server_card, CARD, _CARD),
    "/.well-known/mcp/server-card.json": Published(server_card, JSON, _CARD),
    "/.well-known/mcp.json": Published(server_card, JSON, _CARD),
    "/.well-known/ai-catalog.json": Published(ai_catalog, "application/ai-catalog+json", "Where the cards are"),
    API_CATALOG_PATH: Published(api_catalog, LINKSET, "The interfaces of the site"),
}


def documents(config: Config) -> dict[str, Published]:
    """Each document by its address. Without an issuer nobody gives out tokens."""
    doors = RESOURCES if config.oauth.issuer else ()
    return {**_DOCUMENTS, **{f"{RESOURCE_METADATA}{door}": _tokens(door) for door in doors}}


def _tokens(door: str) -> Published:
    def made(_: Site, config: Config, base: str) -> dict[str, Any]:
        return metadata(config, base, door)

    # Who reads this has no good token yet.
    return Published(made, JSON, "Who gives out access tokens", TOKEN_SECONDS, anybody)
