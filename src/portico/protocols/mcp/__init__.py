"""The Model Context Protocol: tools, resources and prompts of a site, over HTTP and standard input and output.

`server.py` says which function handles which method, in the server of the official SDK; `tools.py`, `resources.py` and
`prompts.py` have them. `routes.py` and `transport.py` serve it over HTTP.
"""

from typing import Any, Final

from portico.config import Config
from portico.protocols import ActionBinding, ActionCall, Example, Protocol
from portico.protocols.mcp.settings import McpSettings


def _action_tool(config: Config) -> str | None:
    """Return the empty name where operations are tools by their own names."""
    return None if config.section(McpSettings).operations == "none" else ""


def _describe_action(call: ActionCall) -> dict[str, Any]:
    own = {"tool": call.operation, "arguments": call.params}
    by_name = {"tool": call.tool, "arguments": {"operation": call.operation, "params": call.params}}
    return {"server": f"{call.base_url}/mcp", **(by_name if call.tool else own)}


PROTOCOL: Final = Protocol(
    name="mcp",
    title="MCP",
    settings=McpSettings,
    mount="portico.protocols.mcp.routes:mount",
    describe="portico.protocols.mcp.description:describe",
    paths=lambda _: ("/mcp",),
    resource="/mcp",
    action_tool=_action_tool,
    action_binding=ActionBinding("MCP", _describe_action),
    carrier="portico.client.transports.mcp:McpCarrier",
    exposed_headers=("mcp-session-id",),
    accepted_headers=("last-event-id", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"),
    examples=lambda _: (
        Example("MCP", "/mcp", """curl {base}/mcp --json '{{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}'""", 2),
    ),
)
