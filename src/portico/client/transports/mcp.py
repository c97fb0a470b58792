"""The carrier over MCP: sends each request as a call of the tool `ask` or `await`, with the official SDK."""

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

from portico.client import AskFailed, BadAnswer, ClientError, NotReached, RequestPath
from portico.client.transports.http import MAX_RESPONSE_BYTES
from portico.client.transports.jsonrpc_errors import error_from_response


class McpCarrier:
    """Calls the tools at `/mcp`. It does not support forms, so that elicitations arrive in the form of NLWeb."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._url = str(http.base_url.join("mcp"))
        self._mode = "auto"  # until the revision of the server is known

    async def post(self, path: RequestPath, body: Mapping[str, Any]) -> Mapping[str, Any]:
        bridge = HttpxBridge(self._http)
        params = types.CallToolRequestParams(name=path, arguments=dict(body))
        try:
            return _answer(await self._call_tool(params, bridge))
        except (MCPError, ExceptionGroup, ValueError) as error:
            raise bridge.error or _to_client_error(_innermost(error)) from error

    async def _call_tool(self, params: types.CallToolRequestParams, bridge: "HttpxBridge") -> types.CallToolResult:
        # One connection per call: it must not outlive the task that opened it, and the server may restart in between.
        async with (
            httpx2.AsyncClient(transport=bridge, trust_env=False, timeout=None) as http,
            Client(
                streamable_http_client(self._url, http_client=http, max_sse_event_size=MAX_RESPONSE_BYTES),
                mode=self._mode,
                cache=None,
            ) as client,
        ):
            version = client.protocol_version
            self._mode = version if version in MODERN_PROTOCOL_VERSIONS else "legacy"
            # Client.call_tool would fetch the schemas of all tools first, to validate what our client validates anyway.
            return await client.session.send_request(types.CallToolRequest(params=params), types.CallToolResult)


def _answer(result: types.CallToolResult) -> Mapping[str, Any]:
    """Return the structured content. Servers without it send the same as text."""
    structured: Any = result.structured_content
    if isinstance(structured, dict):
        return cast("dict[str, Any]", structured)
    text = next((part.text for part in result.content if isinstance(part, types.TextContent)), "")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise BadAnswer(f"The answer is not NLWeb: {text[:200] or 'it has no content'}") from None


def _innermost(error: Exception) -> Exception:
    """Return the first error of the nested groups that the SDK raises."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _to_client_error(error: Exception) -> ClientError:
    match error:
        case MCPError(code=types.CONNECTION_CLOSED | types.REQUEST_TIMEOUT):
            return NotReached(f"The connection was lost: {error}")
        case MCPError(data={"retry_after": int() | float() as seconds}):
            return AskFailed("RATE_LIMITED", str(error), 200, seconds)
        case _:
            return BadAnswer(f"The response is not valid MCP: {error}")


class HttpxBridge(httpx2.AsyncBaseTransport):
    """Sends the requests of the SDK with our own HTTP client, and stores the error of the latest message."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.error: ClientError | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers, body = request.headers.multi_items(), await request.aread()
        outgoing = self._http.build_request(request.method, str(request.url), headers=headers, content=body)
        if request.method != "POST":
            return await self._forward(outgoing)
        self.error = None
        try:
            return await self._forward(outgoing)
        except httpx.HTTPError as error:
            self.error = NotReached(f"The server cannot be reached: {str(error) or type(error).__name__}")
            raise

    async def _forward(self, request: httpx.Request) -> httpx2.Response:
        response = await self._http.send(request, stream=True)
        if response.status_code < 300:
            return httpx2.Response(response.status_code, headers=response.headers.raw, stream=ResponseStream(response))
        await response.aread()
        if request.method == "POST":
            self.error = error_from_response(response)
        kind = {name: response.headers[name] for name in ("content-type", "location") if name in response.headers}
        return httpx2.Response(response.status_code, headers=kind, content=response.content)


class ResponseStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._response.aiter_raw():
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()
