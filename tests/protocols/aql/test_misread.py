"""Calls of MCP-AQL's tools that no SDK would hand over."""

from typing import Any

from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking

HEADERS = {
    "host": "127.0.0.1",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "mcp_aql_read",
}


def calling(id: bytes, tool: bytes = b"mcp_aql_read") -> bytes:
    params = b'{"name":"%s","arguments":{"operation":"get_room","params":{"id":%s}}}' % (tool, id)
    return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}' % params


@requirement("aql:encoding:utf8", "aql:encoding:surrogates", "aql:encoding:where", "aql:limits:depth")
async def test_a_tool_says_itself_what_it_cannot_read(inn: Inn) -> None:
    bodies = (calling(b'"\xff"'), calling(rb'"\ud800"'), calling(b"[" * 40 + b"]" * 40))
    async with inn() as parts, asking(parts) as client:
        answers = [(await client.post("/mcp", content=body, headers=HEADERS)).json() for body in bodies]
        others = [
            (await client.post("/mcp", content=body, headers=HEADERS)).json()["error"]["code"]
            for body in (calling(b'"\xff"', b"ask"), calling(b"NaN"), b"\xff")
        ]

    told: list[dict[str, Any]] = [answer["result"]["structuredContent"]["error"] for answer in answers]
    assert [answer["id"] for answer in answers] == [7] * 3
    assert [(error["code"], error["details"]) for error in told] == [
        ("VALIDATION_INVALID_ENCODING", {"byte_offset": calling(b'"\xff"').index(b"\xff")}),
        ("VALIDATION_INVALID_ENCODING", {"location": "params.id"}),
        (
            "VALIDATION_PAYLOAD_TOO_LARGE",
            {"limit_type": "nesting_depth", "limit_value": 32, "actual_value": 33, "unit": "levels"},
        ),
    ]
    assert others == [-32700] * 3


async def test_a_tool_that_there_is_not_says_nothing(inn: Inn) -> None:
    async with inn(aql={"mode": "single"}) as parts, asking(parts) as client:
        single, family = [
            (await client.post("/mcp", content=calling(b'"\xff"', tool), headers=HEADERS)).json()
            for tool in (b"mcp_aql", b"mcp_aql_read")
        ]

    assert single["result"]["structuredContent"]["error"]["code"] == "VALIDATION_INVALID_ENCODING"
    assert family["error"]["code"] == -32700
