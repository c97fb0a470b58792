"""The way over MCP: each request is a call of the tool `ask` or `await`, with the client of the official SDK."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import httpx
import httpx2
import mcp_types as types
import msgspec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from portico.client import LARGEST, AskFailed, BadAnswer, ClientError, NotReached, Path
from portico.client.transports.refusals import refused


class McpCarrier:
    """Asks the server's `/mcp`. It says that it shows no forms, so that questions back come as NLWeb has them."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._url = str(http.base_url.join("mcp"))
        self._mode = "auto"  # until it is known which revisions the server speaks

    async def post(self, path: Path, body: Mapping[str, Any]) -> Mapping[str, Any]:
        bridge = Bridge(self._http)
        params = types.CallToolRequestParams(name=path, arguments=dict(body))
        try:
            return _answer(await self._called(params, bridge))
        except (MCPError, ExceptionGroup, ValueError) as error:
            raise bridge.trouble or _failed(_innermost(error)) from error

    async def _called(self, params: types.CallToolRequestParams, bridge: "Bridge") -> types.CallToolResult:
        # A connection for each call: it may not outlive the task that opened it, and a server may start anew between.
        async with (
            httpx2.AsyncClient(transport=bridge, trust_env=False, timeout=None) as http,
            Client(
                streamable_http_client(self._url, http_client=http, max_sse_event_size=LARGEST),
                mode=self._mode,
                cache=None,
            ) as client,
        ):
            version = client.protocol_version
            self._mode = version if version in MODERN_PROTOCOL_VERSIONS else "legacy"
            # Client.call_tool would fetch the schemas of all tools first: whether this is NLWeb, our client finds out.
            return await client.session.send_request(types.CallToolRequest(params=params), types.CallToolResult)


def _answer(result: types.CallToolResult) -> Mapping[str, Any]:
    """The structured content. Servers that have none say the same as text."""
    structured: Any = result.structured_content
    if isinstance(structured, dict):
        return cast("dict[str, Any]", structured)
    text = next((each.text for each in result.content if isinstance(each, types.TextContent)), "")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise BadAnswer(f"The answer is not NLWeb: {text[:200] or 'it has no content'}") from None


def _innermost(error: Exception) -> Exception:
    """The first error of groups in groups, which the SDK makes of one."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _failed(error: Exception) -> ClientError:
    match error:
        case MCPError(code=types.CONNECTION_CLOSED | types.REQUEST_TIMEOUT):
            return NotReached(f"The connection broke: {error}")
        case MCPError(data={"retry_after": int() | float() as seconds}):
            return AskFailed("RATE_LIMITED", str(error), 200, seconds)
        case _:
            return BadAnswer(f"The server does not answer as MCP says: {error}")


class Bridge(httpx2.AsyncBaseTransport):
    """Takes what the SDK sends to our own HTTP client, and remembers what went wrong with the latest message."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.trouble: ClientError | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers, body = request.headers.multi_items(), await request.aread()
        sent = self._http.build_request(request.method, str(request.url), headers=headers, content=body)
        if request.method != "POST":
            return await self._passed_on(sent)
        self.trouble = None
        try:
            return await self._passed_on(sent)
        except httpx.HTTPError as error:
            self.trouble = NotReached(f"The server cannot be reached: {str(error) or type(error).__name__}")
            raise

    async def _passed_on(self, request: httpx.Request) -> httpx2.Response:
        response = await self._http.send(request, stream=True)
        if response.status_code < 300:
            return httpx2.Response(response.status_code, headers=response.headers.raw, stream=Body(response))
        await response.aread()
        if request.method == "POST":
            self.trouble = refused(response)
        kind = {name: response.headers[name] for name in ("content-type", "location") if name in response.headers}
        return httpx2.Response(response.status_code, headers=kind, content=response.content)


class Body(httpx2.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._response.aiter_raw():
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()
