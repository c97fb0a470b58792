"""Plain HTTP endpoints: operations, items, pages, the operator's desk (/desk) and the inspector."""

from typing import Final

from portico.protocols import Example, Protocol

PROTOCOL: Final = Protocol(
    name="rest",
    title="Plain HTTP",
    mount="portico.protocols.rest.routes:mount",
    describe="portico.protocols.rest.description:describe",
    paths=lambda _: ("/operations", "/operations/", "/tasks/", "/desk", "/desk/"),
    documents=(
        *("/", "/collections/", "/items/", "/assets/", "/embed.js", "/images/", "/inspect"),
        *("/healthz", "/readyz", "/metrics"),
    ),
    examples=lambda _: (
        Example("Home page", "/", "curl {base}/", 0),
        Example("Inspector", "/inspect", "curl {base}/inspect", 7),
        Example("Desk", "/desk", "curl {base}/desk", 7),
        Example("Operations", "/operations", "curl {base}/operations", 9),
        Example("Health", "/healthz", "curl {base}/healthz", 9),
        Example("Readiness", "/readyz", "curl {base}/readyz", 9),
        Example("Metrics", "/metrics", "curl {base}/metrics", 9),
    ),
)
