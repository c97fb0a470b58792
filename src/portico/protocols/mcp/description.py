"""What discovery tells of MCP: its paths, and the server card (SEP-2127).

The card is served where that says, and where readers of its drafts look. It tells how to connect, never what there is:
tools, resources and prompts are listed by the server itself.
"""

from typing import Any, Final

from portico import __version__
from portico.access.identity import ASK
from portico.protocols import Description, Interface, LlmsLink, OpenApi, Schema, Services, WellKnownDocument
from portico.protocols.documents import host_label
from portico.protocols.mcp.errors import CODES
from portico.protocols.mcp.routes import NAME, PATH
from portico.protocols.openapi import (
    AGENTS,
    EVENT_STREAM,
    JSON,
    content,
    operation,
    reference,
    refusals,
    response,
    rpc_body,
)

CARD: Final = "application/mcp-server-card+json"
CARD_PATH: Final = f"{PATH}/server-card"
CARD_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
# Of the SDK, which is too slow to import for this; a test compares them.
REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
HANDSHAKE: Final = REVISIONS[-2]  # the last revision that begins with one
MAX_TEXT: Final = 100  # characters of a title or a description (SEP-2127)

_REFUSALS: Final = sorted({code.status for code in CODES.values()} | {405, 406})  # those two are the SDK's
_LINK: Final = (
    f"- [MCP]({{base}}{PATH}): Streamable HTTP, with the tools `ask` and `await`. "
    f"Its [server card]({{base}}{CARD_PATH}) says how to connect."
)


def describe(services: Services) -> Description:
    def card(base: str) -> dict[str, Any]:
        return server_card(services, base)

    summary = "How to connect over MCP"
    return Description(
        openapi=lambda _: OpenApi(paths=_paths()),
        documents=(
            WellKnownDocument(CARD_PATH, CARD, summary, card),
            WellKnownDocument("/.well-known/mcp/server-card.json", JSON, summary, card),
            WellKnownDocument("/.well-known/mcp.json", JSON, summary, card),
        ),
        interfaces=(Interface(PATH, CARD_PATH, CARD, CARD),),
        links=(LlmsLink("Ask", _LINK, 1),),
        uncrawled=(PATH,),
    )


def _paths() -> dict[str, Schema]:
    refusal_responses = refusals(_REFUSALS, content(reference("schemas", "RpcResponse"), JSON))
    client = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "somebody", "version": "1"}}
    responses = {
        200: response("The response", {**content(reference("schemas", "RpcResponse"), JSON), **EVENT_STREAM}),
        202: response("Taken note of"),
        **refusal_responses,
    }
    messages = {200: response("Messages", EVENT_STREAM), **refusal_responses}
    return {
        PATH: {
            "post": operation(
                "post_mcp",
                AGENTS,
                "MCP: a message of the client",
                responses,
                requestBody=rpc_body("initialize", client),
            ),
            "get": operation("get_mcp", AGENTS, "MCP: messages of the server", messages),
            "delete": operation(
                "delete_mcp", AGENTS, "MCP: end a session", {200: response("Ended"), **refusal_responses}
            ),
        }
    }


def server_card(services: Services, base: str) -> dict[str, Any]:
    """Describe how to connect to the MCP server (SEP-2127)."""
    site, config = services.site, services.config
    key = {
        "name": "Authorization",
        "description": "Bearer and an API key or an access token",
        "isRequired": ASK not in config.anonymous.scopes,
        "isSecret": True,
    }
    remote = {
        "type": "streamable-http",
        "url": f"{base}{PATH}",
        "headers": [key],
        "supportedProtocolVersions": list(REVISIONS),
    }
    return {
        "$schema": CARD_SCHEMA,
        "name": f"{_reverse(host_label(base))}/{NAME}",
        "version": __version__,
        "title": site.name[:MAX_TEXT],
        "description": (config.site.description or f"Ask {site.name} in plain words.")[:MAX_TEXT],
        "websiteUrl": f"{base}/",
        "remotes": [remote],
    }


def _reverse(host: str) -> str:
    """Return a host as names in reverse order: shop.example is example.shop. Addresses in numbers stay as they are."""
    labels = host.split(".")
    return host if labels[-1].isdecimal() else ".".join(reversed(labels))
