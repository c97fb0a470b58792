"""`ask`, `await` and operations as tools."""

import asyncio
import json
from typing import Any

import httpx
import jsonschema
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Endless, Inn, asking, key_of, listening, scripted, soon
from tests.protocols.mcp.conftest import ERAS, Era, connected, structured, text_of, visiting

from portico.ask.events import InterpretationEvent, ItemEvent
from portico.items import Item
from portico.protocols.nlweb.answers import answer_schema
from portico.server.assembly import Parts

AQL = [f"mcp_aql{family}" for family in ("_create", "_read", "_update", "_delete", "_execute", "")]
SOUP = {"query": {"text": "a quiet room"}}


async def over_http(parts: Parts, body: dict[str, Any]) -> dict[str, Any]:
    async with asking(parts) as client:
        return (await client.post("/ask", json=body)).json()


@requirement("nlweb:mcp:ask-tool", "nlweb:mcp:await-tool")
@pytest.mark.parametrize("era", ERAS)
async def test_the_tools_are_those_of_the_specification(parts: Parts, era: Era) -> None:
    async with visiting(parts, era) as client:
        ask, wait, *_ = (await client.list_tools()).tools

    assert (ask.name, ask.input_schema["required"], set(ask.input_schema["properties"])) == (
        "ask",
        ["query"],
        {"query", "context", "prefer", "meta"},
    )
    assert ask.input_schema["properties"]["query"]["required"] == ["text"]
    assert {"text", "site", "itemType"} <= set(ask.input_schema["properties"]["query"]["properties"])
    assert (wait.name, sorted(wait.input_schema["required"])) == ("await", ["action", "promise_token"])
    assert sorted(wait.input_schema["properties"]["action"]["enum"]) == ["cancel", "checkin"]


@requirement("nlweb:mcp:result-meta", "nlweb:mcp:result-text", "nlweb:note:mcp-structured")
@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:transport:stateless")
async def test_an_answer_is_what_ask_gives_over_http(parts: Parts, era: Era) -> None:
    async with listening(parts) as port:
        async with connected(port, era) as client:
            result = await client.call_tool("ask", SOUP)
        async with httpx.AsyncClient() as plain:
            said = (await plain.post(f"http://127.0.0.1:{port}/ask", json=SOUP)).json()

    body = structured(result)
    assert body["results"] == said["results"] != []
    assert json.loads(text_of(result)) == body
    assert result.meta is not None
    assert {name: result.meta[name] for name in body["_meta"]} == body["_meta"]
    assert (body["_meta"]["response_type"], body["_meta"]["version"], result.is_error) == ("answer", "0.55", False)


@requirement("nlweb:note:mcp-flat")
async def test_a_question_may_be_a_text(parts: Parts) -> None:
    async with visiting(parts) as client:
        result = structured(await client.call_tool("ask", {"query": "a quiet room", "num_results": 1, "site": "rooms"}))

    (item,) = result["results"]
    assert item["name"] == (await over_http(parts, SOUP))["results"][0]["name"]
    assert result["_meta"]["version"] == "0.55"


@requirement("nlweb:note:mcp-chatgpt")
async def test_for_a_chatgpt_app_the_text_is_prose_and_the_widget_is_named(inn: Inn) -> None:
    wanted = {**SOUP, "prefer": {"response_format": "chatgpt_app"}}
    async with inn(nlweb={"widget": "ui://inn/rooms.html"}) as parts, visiting(parts) as client:
        result = await client.call_tool("ask", wanted)

    body = structured(result)
    assert text_of(result) == body["content"][0]["text"]
    assert body["structuredData"]
    assert result.meta is not None
    assert result.meta["openai/outputTemplate"] == "ui://inn/rooms.html"


@requirement("nlweb:note:mcp-progress")
@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:progress:told")
async def test_items_are_told_as_progress_while_they_are_found(parts: Parts, era: Era) -> None:
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, _: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with visiting(parts, era) as client:
        result = await client.call_tool("ask", SOUP, progress_callback=hear)

    names = [item["name"] for item in structured(result)["results"]]
    assert heard == list(enumerate(names, 1))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": {}},
        {"query": {"text": 7}},
        {"query": 7},
        {"query": {"text": "room"}, "context": 7},
        {"query": {"text": "room"}, "prefer": {"mode": "shout"}},
        {"query": {"text": ""}},
        {"query": ""},
        {"query": {"text": "x" * 60_000}},
    ],
)
@requirement("mcp:tools:errors")
async def test_what_is_wrong_with_a_question_is_a_result_that_a_model_can_act_on(
    parts: Parts, arguments: dict[str, Any]
) -> None:
    async with visiting(parts) as client:
        result = await client.call_tool("ask", arguments)

    body = structured(result)
    assert (result.is_error, body["_meta"]["response_type"]) == (True, "failure")
    assert body["error"]["code"] in {"INVALID_QUERY", "UNSUPPORTED_MODE", "TOKEN_LIMIT"}
    assert body["error"]["message"]


async def test_that_nothing_fits_is_an_answer_and_no_mistake(inn: Inn) -> None:
    async with inn() as parts, visiting(parts) as client:
        result = await client.call_tool("ask", {"query": {"text": "zzyzx"}})

    assert (result.is_error, structured(result)["error"]["code"]) == (False, "NO_RESULTS")


@requirement("mcp:tools:errors")
async def test_a_tool_that_does_not_exist_is_an_error_of_the_protocol(parts: Parts) -> None:
    async with visiting(parts) as client:
        with pytest.raises(MCPError) as refusal:
            await client.call_tool("dance", {})

    assert (refusal.value.code, refusal.value.message) == (types.INVALID_PARAMS, "Unknown tool: dance")


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:cancellation:stops")
async def test_an_ask_that_the_client_cancels_stops(parts: Parts, era: Era) -> None:
    found = ItemEvent(Item("attic", "rooms", {"name": "The attic"}, "1"), 0, 90)
    endless = Endless((InterpretationEvent("a room", ("rooms",)), found))
    told = asyncio.Event()

    async def hear(*_: object) -> None:
        told.set()

    async with visiting(scripted(parts, endless), era) as client:
        call = asyncio.create_task(client.call_tool("ask", SOUP, progress_callback=hear))
        await soon(told)
        call.cancel()
        await soon(endless.stopped)


@requirement("mcp:tools:output-schema")
async def test_what_is_published_of_answers_holds_for_every_kind(inn: Inn) -> None:
    async with inn() as parts, visiting(parts) as client:
        for arguments in (SOUP, {}, {"query": "a room", "meta": {"api_version": "0.54"}}):
            body = structured(await client.call_tool("ask", arguments))
            jsonschema.validate(body, answer_schema())


# Operations


@requirement("mcp:tools:list", "mcp:tools:annotations")
async def test_operations_are_tools_only_where_the_site_says_so_and_the_caller_may(inn: Inn) -> None:
    async with inn() as parts, listening(parts) as port, connected(port) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["ask", "await", *AQL]
        with pytest.raises(MCPError):
            await client.call_tool("list_rooms", {})
    async with inn(mcp={"operations": "all"}) as parts, listening(parts) as port:
        async with connected(port) as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
        key = await key_of(parts, "ask", "*:rooms")
        async with connected(port, key=key) as client:
            with_key = {each.name for each in (await client.list_tools()).tools}

    assert {"get_room", "list_rooms", "search_rooms"} <= set(tools)
    assert "delete_room" not in tools
    assert tools["get_room"].annotations == types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    assert tools["get_room"].input_schema["type"] == "object"
    assert set(tools) <= with_key


@requirement("mcp:tools:errors")
async def test_an_operation_gives_its_result_and_says_what_is_wrong_with_parameters(inn: Inn) -> None:
    async with inn(mcp={"operations": "all"}) as parts, visiting(parts) as client:
        found = await client.call_tool("get_room", {"id": "attic"})
        wrong = await client.call_tool("get_room", {"name": "attic"})

    assert structured(found)["result"]["name"] == "The attic"
    assert json.loads(text_of(found)) == structured(found)
    assert wrong.is_error
    assert structured(wrong)["error"]["error"] == "InvalidParams"
