"""Documents by which crawlers, agents and developers find the site's interfaces."""

from typing import Final

from portico.protocols import Example, FooterLink, Protocol

PROTOCOL: Final = Protocol(
    name="discovery",
    title="Discovery",
    mount="portico.protocols.discovery.routes:mount",
    describe="portico.protocols.discovery.description:describe",
    documents=("/.well-known/", "/docs", "/openapi.json", "/llms.txt", "/robots.txt", "/sitemap.xml"),
    footer=(
        FooterLink("/docs", "interface", rank=0),
        FooterLink("/openapi.json", "openapi", "OpenAPI", 1),
        FooterLink("/llms.txt", "llms", "llms.txt", 3),
        FooterLink("/sitemap.xml", "sitemap", rank=5),
    ),
    examples=lambda _: (
        Example("Documentation", "/docs", "curl {base}/openapi.json", 8),
        Example("For language models", "/llms.txt", "curl {base}/llms.txt", 8),
    ),
)
