"""What can be reached over the network, and how to try it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Face:
    title: str
    path: str
    example: str  # a command line; {base} stands for the address of the server


FACES = (
    Face("Home page", "/", "curl {base}/"),
    Face("NLWeb", "/ask", """curl {base}/ask -d '{{"query": {{"text": "a warm soup"}}}}'"""),
    Face("Operations", "/operations", "curl {base}/operations"),
    Face("Health", "/healthz", "curl {base}/healthz"),
    Face("Readiness", "/readyz", "curl {base}/readyz"),
    Face("Metrics", "/metrics", "curl {base}/metrics"),
)
