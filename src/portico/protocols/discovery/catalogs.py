"""The API catalog (RFC 9727) and the AI catalog, and the other documents that protocols publish."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.protocols import Interface, Services, WellKnownDocument
from portico.protocols.documents import document, host_label
from portico.protocols.http import base_of
from portico.protocols.problems import Answer, make_handler
from portico.requests import Caller

NAME: Final = "portico"  # in the identifiers of cards
API_CATALOG_PATH: Final = "/.well-known/api-catalog"
LINKSET: Final = 'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"'


def routes(services: Services) -> list[BaseRoute]:
    """Serve the documents of all protocols."""
    entries = [entry for protocol in services.protocols for entry in protocol.description(services).documents]
    return [Route(entry.path, _endpoint(entry, services), methods=["GET"]) for entry in entries]


def _endpoint(entry: WellKnownDocument, services: Services) -> Answer:
    server = services.config.server

    async def show(request: Request, _: Caller) -> Response:
        base = base_of(request, server)
        # Public and the same for every client, so pages of other origins may read them too (SEP-2127).
        headers = {
            "access-control-allow-origin": "*",
            "link": f'<{base}{API_CATALOG_PATH}>; rel="api-catalog"',
        }
        body = msgspec.json.encode(entry.make(base))
        return document(request, body, entry.media_type, headers, server=server, seconds=entry.seconds)

    return make_handler(show)


def ai_catalog(services: Services, base: str) -> dict[str, Any]:
    """Return the locations of the cards, which contain their own names and descriptions."""
    return {
        "specVersion": "1.0",
        "host": {"displayName": services.site.name, "documentationUrl": f"{base}/docs"},
        "entries": [
            {
                "identifier": f"urn:air:{host_label(base)}:{name}:{NAME}",
                "type": interface.card,
                "url": f"{base}{interface.described_at}",
            }
            for name, interface in _interfaces(services)
            if interface.card
        ],
    }


def api_catalog(services: Services, base: str) -> dict[str, Any]:
    """Return the interfaces of the site, and where each is described (RFC 9727)."""
    interfaces = [interface for _, interface in _interfaces(services)]
    docs = [
        {"href": f"{base}/docs", "type": "text/html"},
        {"href": f"{base}/llms.txt", "type": "text/plain"},
    ]
    catalog = {
        "anchor": f"{base}{API_CATALOG_PATH}",
        "item": [{"href": f"{base}{interface.path}"} for interface in interfaces],
    }
    links = [
        {
            "anchor": f"{base}{interface.path}",
            "service-desc": [{"href": f"{base}{interface.described_at}", "type": interface.media_type}],
            "service-doc": docs,
            "status": [{"href": f"{base}/readyz"}],
        }
        for interface in interfaces
    ]
    return {"linkset": [catalog, *links]}


def _interfaces(services: Services) -> Iterator[tuple[str, Interface]]:
    for protocol in services.protocols:
        for interface in protocol.description(services).interfaces:
            yield protocol.name, interface
