"""`/openapi.json`, generated from the types that parse requests, and `/docs`, the same as a page.

The document is the same for every caller, and is made again when the catalog changes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico import __version__
from portico.catalog import Catalog
from portico.protocols import OpenApi, Protocol, Schema, Services, Tag, documents
from portico.protocols.discovery.docs import BASE, DocsPage
from portico.protocols.http import base_of
from portico.protocols.openapi import (
    AGENTS,
    DOCUMENT_PROBLEMS,
    JSON,
    cacheable,
    common_components,
    content,
    read_operation,
)
from portico.protocols.problems import make_handler
from portico.requests import Caller
from portico.web.style import HEADERS, content_page

MAX_ADDRESSES = 8  # base URLs for which a page is cached


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    body: bytes
    tag: str


def _encode(body: bytes) -> EncodedDocument:
    return EncodedDocument(body, documents.tag_of(body))


class DocumentEdition:
    """The document for one catalog, and its page for the latest base URLs."""

    def __init__(self, catalog: Catalog, document: Schema) -> None:
        self.catalog = catalog
        self.document = _encode(msgspec.json.encode(document))
        site = document["info"]["title"]
        self._page = content_page(f"{site}: interface", site, DocsPage(document).body())
        self.page = lru_cache(MAX_ADDRESSES)(self._render_page)

    def _render_page(self, base: str) -> EncodedDocument:
        return _encode(self._page.replace(BASE, escape(base)).encode())


def routes(services: Services) -> list[BaseRoute]:
    server = services.config.server
    newest: list[DocumentEdition] = []

    def edition() -> DocumentEdition:
        catalog = services.site.catalog
        if not newest or newest[0].catalog is not catalog:
            newest[:] = [DocumentEdition(catalog, openapi_document(services))]
        return newest[0]

    async def show(request: Request, _: Caller) -> Response:
        document = edition().document
        return documents.document(request, document.body, JSON, server=None, seconds=0, tag=document.tag)

    async def docs(request: Request, _: Caller) -> Response:
        page = edition().page(base_of(request, server))
        return documents.document(request, page.body, "text/html", HEADERS, server=server, tag=page.tag)

    return [
        Route("/openapi.json", make_handler(show), methods=["GET"]),
        Route("/docs", make_handler(docs), methods=["GET"]),
    ]


def openapi_document(services: Services) -> Schema:
    """Return the OpenAPI 3.1 document of a site, from the descriptions of its protocols."""
    site = services.config.site
    question = f"Which {next((collection.name for collection in services.site.catalog.public), 'things')} are there?"
    parts = [(protocol, _part(protocol, services, question)) for protocol in services.protocols]
    components = common_components()
    for _, part in parts:
        for kind, parts_by_name in part.components.items():
            components.setdefault(kind, {}).update(parts_by_name)
    return {
        "openapi": "3.1.0",
        "info": {"title": site.name, "version": __version__, "description": site.description},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"key": []}],
        "tags": [{"name": tag.name, "description": tag.description} for tag in _tags(parts)],
        "paths": {path: item for _, part in parts for path, item in part.paths.items()},
        "components": components,
    }


def _part(protocol: Protocol, services: Services, question: str) -> OpenApi:
    description = protocol.description(services)
    part = description.openapi(question) if description.openapi else OpenApi()
    paths = dict(part.paths)
    for document in description.documents:
        form = content({"type": "object"}, document.media_type.partition(";")[0])
        paths |= read_operation(document.path, document.summary, {**cacheable(form), **DOCUMENT_PROBLEMS})
    return replace(part, paths=paths)


def _tags(parts: list[tuple[Protocol, OpenApi]]) -> list[Tag]:
    """Return the groups of paths, and one for all agent protocols."""
    agents = [
        protocol.title for protocol, part in parts if any(AGENTS in step.get("tags", ()) for step in _steps(part))
    ]
    names = " and ".join(filter(None, (", ".join(agents[:-1]), *agents[-1:])))
    shared = [Tag(AGENTS, f"The same site over {names}.", 3)] if agents else []
    return sorted([*shared, *(tag for _, part in parts for tag in part.tags)], key=lambda tag: tag.rank)


def _steps(part: OpenApi) -> Iterator[Mapping[str, Any]]:
    for path_item in part.paths.values():
        yield from (step for name, step in path_item.items() if name != "parameters")
