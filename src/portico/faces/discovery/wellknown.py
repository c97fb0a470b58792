"""What agents look for at addresses they know: the MCP server card, the AI catalog and the API catalog.

The card follows SEP-2127 and is served where that says, and where readers of its drafts look. It tells how to connect,
never what there is: tools, resources and prompts are listed by the server itself.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico import __version__
from portico.config import Config
from portico.errors import SiteError
from portico.faces.documents import document
from portico.faces.operations import problem
from portico.faces.wire import base_of, caller_of
from portico.identity import ASK
from portico.site import Site

CARD = "application/mcp-server-card+json"
CARD_PATH = "/mcp/server-card"
CARD_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
AGENT_CARD_PATH = "/.well-known/agent-card.json"
LINKSET = 'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"'
NAME = "portico"  # of the MCP server, as it names itself
# Of the SDK, which is too slow to import for this; a test compares them.
PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
MAX_SAID = 100  # characters of a title or a description (SEP-2127)

# The documents are public and the same for all: pages elsewhere may read them too (SEP-2127).
_HEADERS = {"access-control-allow-origin": "*"}
_LABEL = re.compile(r"[^a-z0-9.-]+")

Document: TypeAlias = Callable[[Site, Config, str], dict[str, Any]]


def routes(site: Site, config: Config) -> list[BaseRoute]:
    """The addresses of this face."""
    return [Route(path, _answering(*each, site, config), methods=["GET"]) for path, each in DOCUMENTS.items()]


def _answering(made: Document, kind: str, site: Site, config: Config) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            await site.gate.spend(await caller_of(request, site))
        except SiteError as error:
            return problem(error)
        base = base_of(request, config.server)
        headers = {**_HEADERS, "link": f'<{base}/.well-known/api-catalog>; rel="api-catalog"'}
        return document(request, msgspec.json.encode(made(site, config, base)), kind, headers)

    return answer


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
        "url": f"{base}/mcp",
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
        ],
    }


def api_catalog(_: Site, __: Config, base: str) -> dict[str, Any]:
    """The interfaces of the site, and where each is described (RFC 9727)."""
    openapi = [{"href": f"{base}/openapi.json", "type": "application/json"}]
    docs = [
        {"href": f"{base}/docs", "type": "text/html"},
        {"href": f"{base}/llms.txt", "type": "text/plain"},
    ]
    described = {
        "/ask": openapi,
        "/operations": openapi,
        "/mcp": [{"href": f"{base}{CARD_PATH}", "type": CARD}],
        "/a2a": [{"href": f"{base}{AGENT_CARD_PATH}", "type": "application/json"}],
    }
    whole = {"anchor": f"{base}/.well-known/api-catalog", "item": [{"href": f"{base}{path}"} for path in described]}
    each = [
        {"anchor": f"{base}{path}", "service-desc": desc, "service-doc": docs, "status": [{"href": f"{base}/readyz"}]}
        for path, desc in described.items()
    ]
    return {"linkset": [whole, *each]}


DOCUMENTS: dict[str, tuple[Document, str]] = {
    CARD_PATH: (server_card, CARD),
    "/.well-known/mcp/server-card.json": (server_card, "application/json"),
    "/.well-known/mcp.json": (server_card, "application/json"),
    "/.well-known/ai-catalog.json": (ai_catalog, "application/ai-catalog+json"),
    "/.well-known/api-catalog": (api_catalog, LINKSET),
}
