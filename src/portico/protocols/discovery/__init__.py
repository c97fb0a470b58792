"""Documents by which crawlers, agents and developers find the site's interfaces."""

from typing import Final

from portico.protocols import Example, Protocol

PROTOCOL: Final = Protocol(
    name="discovery",
    title="Discovery",
    mount="portico.protocols.discovery.routes:mount",
    describe="portico.protocols.discovery.description:describe",
    documents=("/.well-known/", "/docs", "/openapi.json", "/llms.txt", "/robots.txt", "/sitemap.xml"),
    examples=lambda _: (
        Example("Documentation", "/docs", "curl {base}/openapi.json", 8),
        Example("For language models", "/llms.txt", "curl {base}/llms.txt", 8),
    ),
)
