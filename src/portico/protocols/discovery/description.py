"""Describes discovery: the documents about the site, and protected resource metadata."""

from functools import partial
from typing import Any, Final

from portico.protocols import Description, LlmsLink, OpenApi, Services, Tag, WellKnownDocument, resources
from portico.protocols.discovery.catalogs import API_CATALOG_PATH, LINKSET, ai_catalog, api_catalog
from portico.protocols.discovery.sitemap import XML
from portico.protocols.http import RESOURCE_METADATA
from portico.protocols.openapi import (
    DISCOVERY,
    DOCUMENT,
    DOCUMENT_PROBLEMS,
    JSON,
    PAGE,
    READING_PROBLEMS,
    TEXT,
    cacheable,
    content,
    parameter,
    problems,
    read_operation,
)

TOKEN_SECONDS: Final = 3600  # for which a client may cache the metadata
_SITEMAP: Final = (
    "- [Sitemap]({base}/sitemap.xml): the address of every item. An item is a page for browsers, JSON-LD with "
    "`accept: application/ld+json`, and plain JSON with `accept: application/json`."
)


def describe(services: Services) -> Description:
    return Description(
        openapi=_openapi,
        documents=(
            WellKnownDocument(
                "/.well-known/ai-catalog.json",
                "application/ai-catalog+json",
                "Where the cards are",
                partial(ai_catalog, services),
            ),
            WellKnownDocument(API_CATALOG_PATH, LINKSET, "The interfaces of the site", partial(api_catalog, services)),
            *_token_documents(services),
        ),
        links=(
            LlmsLink("Read", _SITEMAP, 1),
            LlmsLink("Do", "- [OpenAPI]({base}/openapi.json): the whole HTTP interface.", 2),
            LlmsLink("Optional", "- [Documentation]({base}/docs): the HTTP interface, for people."),
        ),
    )


def _token_documents(services: Services) -> list[WellKnownDocument]:
    """Return protected resource metadata (RFC 9728); none without an issuer."""
    config = services.config

    def make(resource: str, base: str) -> dict[str, Any]:
        return {
            "resource": f"{base}{resource}",
            "authorization_servers": [config.oauth.issuer],
            # RFC 9728 3.2: empty lists are left out.
            **({"scopes_supported": list(config.oauth.scopes)} if config.oauth.scopes else {}),
            "bearer_methods_supported": ["header"],
            "resource_name": config.site.name,
            "resource_documentation": f"{base}/",
        }

    return [
        WellKnownDocument(
            f"{RESOURCE_METADATA}{path}", JSON, "Who gives out access tokens", partial(make, path), TOKEN_SECONDS
        )
        for path in (resources() if config.oauth.issuer else ())
    ]


def _openapi(_: str) -> OpenApi:
    """Describe the documents at fixed paths."""
    text = {**cacheable(content(TEXT, "text/plain")), **DOCUMENT_PROBLEMS}
    xml = {**cacheable(content({}, XML)), **DOCUMENT_PROBLEMS}
    name = parameter("name", "path", {**TEXT, "description": "A collection and a number"}, required=True)
    sitemap = {**xml, **problems(*READING_PROBLEMS)}
    return OpenApi(
        tags=(Tag(DISCOVERY, "What there is, for browsers, crawlers and agents.", 5),),
        paths={
            **read_operation("/docs", "This description, for people", {**cacheable(PAGE), **DOCUMENT_PROBLEMS}),
            **read_operation(
                "/openapi.json", "This description, for programs", {**cacheable(DOCUMENT), **DOCUMENT_PROBLEMS}
            ),
            **read_operation("/llms.txt", "What this site is, for language models", text),
            **read_operation("/robots.txt", "What crawlers may read", text),
            **read_operation("/sitemap.xml", "The sitemaps of all items", xml),
            **read_operation("/sitemap-{name}.xml", "A sitemap", sitemap, name),
        },
    )
