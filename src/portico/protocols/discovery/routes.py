"""Mounts discovery."""

from portico.protocols import Mounted, Services
from portico.protocols.discovery import catalogs, llms, openapi, sitemap
from portico.protocols.edge import PUBLIC
from portico.protocols.http import RESOURCE_METADATA


def mount(services: Services) -> Mounted:
    uncrawled = [path for protocol in services.protocols for path in protocol.description(services).uncrawled]
    return Mounted(
        routes=[
            *sitemap.routes(services.site, services.config, services.counts, uncrawled),
            *llms.routes(services),
            *openapi.routes(services),
            *catalogs.routes(services),
        ],
        # Their clients have no credentials, or none yet.
        policies=dict.fromkeys((RESOURCE_METADATA, "/robots.txt", "/sitemap.xml", "/sitemap-*"), PUBLIC),
    )
