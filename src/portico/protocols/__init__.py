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
    Face(
        "MCP",
        "/mcp",
        """curl {base}/mcp --json '{{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}'""",
    ),
    Face("A2A", "/a2a", "curl {base}/.well-known/agent-card.json"),
    Face("NWP", "/nwp/site", """curl {base}/nwp/site/query -d '{{"limit": 3}}'"""),
    Face("MCP-AQL", "/aql", """curl {base}/aql --json '{{"operation": "introspect", "query": "operations"}}'"""),
    Face(
        "AI Chat",
        "/chat",
        """curl {base}/chat --json '{{"messages": [{{"role": "user", "content": "a warm soup"}}]}}'""",
    ),
    Face("Inspector", "/inspect", "curl {base}/inspect"),
    Face("Desk", "/desk", "curl {base}/desk"),
    Face("Documentation", "/docs", "curl {base}/openapi.json"),
    Face("For language models", "/llms.txt", "curl {base}/llms.txt"),
    Face("Operations", "/operations", "curl {base}/operations"),
    Face("Health", "/healthz", "curl {base}/healthz"),
    Face("Readiness", "/readyz", "curl {base}/readyz"),
    Face("Metrics", "/metrics", "curl {base}/metrics"),
)
