"""Who is let in at /mcp, and what everybody else is told."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking, key_of, listening
from tests.protocols.mcp.conftest import connected

from portico.server.assembly import Parts

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = {
    **HEADERS,
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/list",
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": META}}


@asynccontextmanager
async def knocking(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts, headers={**HEADERS, "host": "127.0.0.1:8000"}) as client:
        yield client


async def post(client: httpx.AsyncClient, body: Any = INITIALIZE, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post("/mcp", json=body, headers=named)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "localhost", "localhost:9", "[::1]:8000", "192.168.1.7:80", "inn.test", "INN.test:443"],
)
@requirement("mcp:transport:host")
async def test_a_host_that_is_this_site_is_let_in(inn: Inn, host: str) -> None:
    async with inn(server={"url": "https://inn.test"}) as parts, knocking(parts) as client:
        assert (await post(client, host=host)).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:8000", "127.0.0.1.evil.test", "localhost.evil.test", "inn.test.evil.test", "[x]"]
)
@requirement("mcp:transport:host", "aql:attack:stolen-session")
async def test_a_name_that_was_made_to_lead_here_is_not(inn: Inn, host: str) -> None:
    async with inn(server={"url": "https://inn.test"}) as parts, knocking(parts) as client:
        answer = await post(client, host=host)

    assert answer.status_code == 421
    assert "server.hosts" in answer.json()["error"]["message"]


async def test_further_names_can_be_configured(inn: Inn) -> None:
    async with inn(server={"hosts": ["portico", "inn.lan:8080"]}) as parts, knocking(parts) as client:
        statuses = [(await post(client, host=host)).status_code for host in ("portico:8000", "inn.lan:8080", "inn.lan")]

    assert statuses == [200, 200, 421]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8000", 200),
        ("https://app.test", 200),
        ("http://evil.test", 403),
        ("null", 403),
        ("http://127.0.0.1:9", 403),
    ],
)
@requirement("mcp:transport:origin", "aql:attack:stolen-session")
async def test_pages_of_other_origins_are_refused_unless_allowed(inn: Inn, origin: str, status: int) -> None:
    async with inn(server={"origins": ["https://app.test"]}) as parts, knocking(parts) as client:
        assert (await post(client, origin=origin)).status_code == status


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
@requirement("mcp:transport:content-type")
async def test_a_body_of_another_kind_is_refused(parts: Parts, kind: str) -> None:
    async with knocking(parts) as client:
        answer = await post(client, content_type=kind)

    assert (answer.status_code, answer.json()["error"]["code"]) == (415, -32600)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 3000, b'{"a":' * 100 + b"1" + b"}" * 100, b"NaN"])
@requirement("mcp:transport:parse-error")
async def test_a_body_that_is_no_json_or_too_deep_is_refused(parts: Parts, body: bytes) -> None:
    async with knocking(parts) as client:
        answer = await client.post("/mcp", content=body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32700)


@requirement("mcp:transport:size")
async def test_a_body_that_is_too_large_is_refused(inn: Inn) -> None:
    async with inn(limits={"payload_bytes": 10_000}) as parts, knocking(parts) as client:
        answer = await post(client, {**PING, "params": {"x": "y" * 10_000}})

    assert (answer.status_code, answer.json()["error"]["code"]) == (413, -32600)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@requirement("mcp:session:unknown")
async def test_a_session_that_is_not_known_is_not_found(parts: Parts, method: str) -> None:
    async with knocking(parts) as client:
        answer = await client.request(
            method, "/mcp", headers={"mcp-session-id": "0" * 32}, json=PING if method == "POST" else None
        )

    assert answer.status_code == 404


@requirement("mcp:session:required")
async def test_a_request_without_a_session_is_told_to_open_one(parts: Parts) -> None:
    async with knocking(parts) as client:
        answer = await post(client, {**PING, "method": "tools/list"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)


@requirement("mcp:session:unknown", "aql:attack:stolen-session")
async def test_a_session_is_of_the_caller_who_opened_it(parts: Parts) -> None:
    mine, yours = await key_of(parts), await key_of(parts)
    async with knocking(parts) as client:
        opened = await post(client, authorization=f"Bearer {mine}")
        session = opened.headers["mcp-session-id"]
        tried = [
            (await post(client, PING, mcp_session_id=session, **credentials)).status_code
            for credentials in ({"authorization": f"Bearer {mine}"}, {"authorization": f"Bearer {yours}"}, {})
        ]

    assert tried == [200, 404, 404]


@requirement("mcp:auth:challenge")
async def test_where_everybody_must_have_a_name_nobody_is_told_who_has_none(inn: Inn) -> None:
    async with inn(anonymous={"scopes": []}) as parts, listening(parts) as port:
        async with httpx.AsyncClient(headers=HEADERS) as client:
            url = f"http://127.0.0.1:{port}/mcp"
            answers = [
                await client.post(url, json=INITIALIZE),
                await client.post(url, json=INITIALIZE, headers={"authorization": "Bearer wrong"}),
                await client.post(url, json=LIST, headers=MODERN),
                await client.get(url),
            ]
        async with connected(port, key=await key_of(parts)) as named:
            tools = (await named.list_tools()).tools

    assert [answer.status_code for answer in answers] == [401] * 4
    assert all(answer.headers["www-authenticate"].startswith("Bearer") for answer in answers)
    assert [tool.name for tool in tools][:2] == ["ask", "await"]


@requirement("mcp:limits:counted")
async def test_listing_and_trying_out_tools_is_counted_like_everything_else(inn: Inn) -> None:
    def of(method: str, **params: Any) -> tuple[dict[str, Any], Mapping[str, str]]:
        name = {"mcp-name": params["name"]} if "name" in params else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
        return body, {**MODERN, "mcp-method": method, **name}

    async with inn(limits={"anonymous_per_minute": 3}) as parts, knocking(parts) as client:
        answers = [
            await client.post("/mcp", json=body, headers=headers)
            for body, headers in (
                of("tools/list"),
                of("tools/call", name="dance", arguments={}),
                of("prompts/list"),
                of("tools/list"),
            )
        ]
        body, headers = of("tools/call", name="ask", arguments={"query": {"text": "a room"}})
        asked = await client.post("/mcp", json=body, headers=headers)

    codes = [answer.json().get("error", {}).get("code") for answer in answers]
    assert codes == [None, -32602, None, -32029]
    assert (answers[-1].status_code, int(answers[-1].headers["retry-after"]) >= 1) == (429, True)
    error = asked.json()["error"]
    assert (asked.status_code, asked.json()["id"], error["code"]) == (429, 1, -32029)
    assert error["data"]["error"] == "RateLimited"


@pytest.mark.parametrize(
    "body",
    [
        [PING],
        {"id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "x" * 900},
        {"jsonrpc": "2.0", "id": 1, "method": {}},
        {"jsonrpc": "2.0", "id": 1},
        7,
    ],
)
async def test_what_is_no_message_is_refused_in_plain_words(parts: Parts, body: Any) -> None:
    async with knocking(parts) as client:
        answer = await post(client, body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
    assert answer.json()["error"]["message"].startswith("This is no message of JSON-RPC 2.0")


@pytest.mark.parametrize(
    "body",
    [
        [PING],
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "dance"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": []}},
        {"jsonrpc": "2.0", "id": None, "method": "tools/call", "params": {"name": "ask"}},
        {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "x"}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "await", "arguments": {}}},
    ],
)
async def test_whatever_is_sent_counts(inn: Inn, body: Any) -> None:
    async with inn(limits={"anonymous_per_minute": 2}) as parts, knocking(parts) as client:
        for _ in range(3):
            answer = await client.post("/mcp", json=body, headers={"accept": "application/json"})

    assert answer.status_code == 429 or "RATE_LIMITED" in answer.text


async def test_a_body_of_very_many_values_is_refused(parts: Parts) -> None:
    async with knocking(parts) as client:
        answer = await post(client, {**PING, "params": {"x": [0] * 20_001}})

    assert (answer.status_code, answer.json()["error"]["code"]) == (413, -32600)


@requirement("mcp:session:several-processes")
async def test_a_site_of_several_processes_answers_without_sessions(inn: Inn) -> None:
    async with inn(server={"workers": 2}) as parts, knocking(parts) as client:
        opened = await post(client)
        listed = await post(client, {**PING, "method": "tools/list"}, mcp_protocol_version="2025-11-25")

    assert "mcp-session-id" not in opened.headers
    assert '"name":"ask"' in listed.text
