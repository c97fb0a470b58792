"""MCP-AQL as tools of MCP, with clients of the official SDK."""

import asyncio
import json
from typing import Any, TypeAlias

import httpx
import mcp_types as types
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import owner_key
from tests.protocols.conftest import Inn, listening
from tests.protocols.mcp.conftest import ERAS, Era, connected, structured, text_of, visiting

CRUDE = ("create", "read", "update", "delete", "execute")
Hints: TypeAlias = tuple[bool | None, bool | None]  # whether it only reads, and whether it may destroy
FAMILIES: dict[str, Hints] = {
    "mcp_aql_create": (False, False),
    "mcp_aql_read": (True, False),
    "mcp_aql_update": (False, True),
    "mcp_aql_delete": (False, True),
    "mcp_aql_execute": (False, True),
}
ATTIC = {"operation": "get_room", "params": {"id": "attic"}}


def hints(tool: types.Tool) -> Hints:
    assert tool.annotations is not None
    return tool.annotations.read_only_hint, tool.annotations.destructive_hint


@requirement(
    "aql:route:crude",
    "aql:route:single",
    "aql:route:annotations",
    "aql:route:descriptions",
    "aql:route:input-schema",
)
async def test_there_is_a_tool_for_each_family_and_one_for_all(inn: Inn) -> None:
    async with inn() as parts, visiting(parts) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools if "aql" in each.name}

    assert list(tools) == [*FAMILIES, "mcp_aql"]
    assert {name: hints(tool) for name, tool in tools.items()} == {**FAMILIES, "mcp_aql": (False, True)}
    for tool in tools.values():
        assert "introspect" in (tool.description or "")
        assert set(tool.input_schema["properties"]) == {"operation", "operations", "params"}
        assert "required" not in tool.input_schema
    assert "rooms" in (tools["mcp_aql_read"].description or "")


@requirement("aql:route:mode-setting", "aql:route:profiles", "aql:route:annotations")
@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"mode": "semantic", "prefix": "inn_"}, {f"inn_{name}": FAMILIES[f"mcp_aql_{name}"] for name in CRUDE}),
        ({"mode": "single", "prefix": "inn_"}, {"inn": (False, True)}),
        ({"mode": "none"}, {}),
        (
            {"mode": "semantic", "profile": "operate"},
            {
                "mcp_aql_discover": (True, False),
                "mcp_aql_query": (True, False),
                "mcp_aql_manage": (False, True),
                "mcp_aql_operate": (False, True),
            },
        ),
    ],
)
async def test_which_tools_there_are_the_site_says(inn: Inn, settings: dict[str, Any], found: dict[str, Hints]) -> None:
    async with inn(aql=settings) as parts, visiting(parts) as client:
        tools = (await client.list_tools()).tools

    assert [each.name for each in tools] == ["ask", "await", *found]
    assert {each.name: hints(each) for each in tools[2:]} == found


@requirement("aql:request:http", "aql:envelope:both", "aql:session:identifier")
@pytest.mark.parametrize("era", ERAS)
async def test_a_result_is_the_envelope_that_http_gives(inn: Inn, era: Era) -> None:
    async with inn() as parts, listening(parts) as port:
        async with connected(port, era) as client:
            found = await client.call_tool("mcp_aql_read", ATTIC)
            single = await client.call_tool("mcp_aql", {"operations": [ATTIC]})
            wrong = await client.call_tool("mcp_aql_delete", ATTIC)
        async with httpx.AsyncClient() as plain:
            said = (await plain.post(f"http://127.0.0.1:{port}/aql", json=ATTIC)).json()

    body = structured(found)
    assert json.loads(text_of(found)) == body
    assert body["data"] == said["data"]
    assert structured(single)["results"][0]["result"]["data"] == said["data"]
    assert structured(wrong)["error"]["code"] == "VALIDATION_ENDPOINT_MISMATCH"
    assert [each.is_error for each in (found, single, wrong)] == [False, False, False]
    # A session has a label of the server's own; requests that stand alone have none.
    labels = {body.get("_meta", {}).get("session_id"), structured(wrong)["error"]["details"].get("session_id")}
    assert (len(labels), None in labels) == (1, era != "legacy")


@requirement("aql:envelope:is-error")
async def test_what_a_caller_can_mend_is_an_error_of_the_tool_only_where_the_site_says_so(inn: Inn) -> None:
    async with inn(aql={"errors": True}) as parts, visiting(parts) as client:
        missing = await client.call_tool("mcp_aql_read", {"operation": "get_room"})
        found = await client.call_tool("mcp_aql_read", ATTIC)

    assert (missing.is_error, structured(missing)["error"]["code"]) == (True, "VALIDATION_MISSING_PARAM")
    assert found.is_error is False


@requirement("aql:limits:string", "aql:limits:array", "aql:route:input-schema", "aql:request:operation")
async def test_decoded_arguments_keep_to_the_same_limits(inn: Inn) -> None:
    small = {"request_bytes": 65_536, "string_bytes": 65_536, "array_elements": 100, "depth": 8}
    deep: dict[str, Any] = {"operation": "get_room", "params": {"id": [[[[[[[]]]]]]]}}
    async with inn(aql=small) as parts, visiting(parts) as client:
        said = [
            structured(await client.call_tool("mcp_aql_read", arguments))["error"]
            for arguments in (
                {"operation": "get_room", "params": {"id": "x" * 65_537}},
                {"operation": "get_room", "params": {"ids": ["x" * 40_000, "y" * 40_000]}},
                {"operation": "get_room", "params": {"fields": ["name"] * 101}},
                deep,
                {"operation": "get_room", "params": {"id": "a\0b"}},
                {},
                {"operation": "get_room", "operations": []},
            )
        ]

    assert [each.get("details", {}).get("limit_type") for each in said[:4]] == [
        "string_length",
        "request_size",
        "array_elements",
        "nesting_depth",
    ]
    assert [each["code"] for each in said[4:]] == [
        "VALIDATION_INVALID_ENCODING",
        "VALIDATION_MISSING_PARAM",
        "BATCH_VALIDATION_ERROR",
    ]


@requirement("aql:lifecycle:progress-token")
@pytest.mark.parametrize("era", ERAS)
async def test_progress_is_told_to_who_wants_it(inn: Inn, era: Era) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, _: str | None) -> None:
        assert total == 100
        heard.append(progress)

    async with inn() as parts, visiting(parts, era) as client:
        await client.call_tool("mcp_aql_read", {"operations": [ATTIC, ATTIC]}, progress_callback=hear)

    assert heard == [0, 10, 50, 90, 100]


@requirement("aql:session:executions-end")
async def test_what_was_begun_in_a_session_ends_with_it(inn: Inn) -> None:
    start = {"operation": "execute_agent", "params": {"element_name": "scout"}}
    async with inn(safety={"start": "allow"}) as parts, listening(parts) as port:
        key = await owner_key(parts)
        async with connected(port, "legacy", key) as client:
            begun = structured(await client.call_tool("mcp_aql_execute", start))
            wanted = {"operation": "get_execution_status", "params": {"execution_id": begun["data"]["execution_id"]}}
            during = structured(await client.call_tool("mcp_aql_read", wanted))
        async with connected(port, "2026-07-28", key) as client, asyncio.timeout(60):
            after = during
            while after["data"]["status"] == "running":  # the client does not wait for the end of its session
                await asyncio.sleep(0.01)
                after = structured(await client.call_tool("mcp_aql_read", wanted))

    assert (during["data"]["status"], after["data"]["status"]) == ("running", "cancelled")
