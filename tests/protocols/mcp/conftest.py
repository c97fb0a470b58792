"""The inn as other people's MCP clients reach it: over a real socket, with the official SDK."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from tests.conformance.aql_structures import check_answer, is_envelope
from tests.protocols.conftest import listening

from portico.server.assembly import Parts

Era = Literal["2026-07-28", "legacy"]
ERAS: tuple[Era, ...] = ("2026-07-28", "legacy")


class CheckedClient(Client):
    """The SDK's client. Every answer of MCP-AQL that it receives is held against the closed structures."""

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, *rest: Any, **more: Any) -> Any:
        result = await super().call_tool(name, arguments, *rest, **more)
        answer = getattr(result, "structured_content", None)
        if is_envelope(answer):
            check_answer(arguments or {}, answer)
        return result


@asynccontextmanager
async def connected(port: int, era: Era = "2026-07-28", key: str = "", **settings: Any) -> AsyncIterator[Client]:
    """A client of a running server, in one era of the protocol."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        CheckedClient(
            streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http), mode=era, cache=None, **settings
        ) as client,
    ):
        yield client


@asynccontextmanager
async def visiting(parts: Parts, era: Era = "2026-07-28", key: str = "", **settings: Any) -> AsyncIterator[Client]:
    async with listening(parts) as port, connected(port, era, key, **settings) as client:
        yield client


def structured(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text
