"""Which version of NLWeb an answer is in, over HTTP, WebSocket, MCP and A2A."""

from typing import Any

import httpx
import jsonschema
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.a2a import conftest as a2a
from tests.protocols.conftest import asking, scripted, telling
from tests.protocols.mcp.conftest import structured, visiting
from tests.protocols.nlweb.test_http import ATTIC, QUESTION, UNDERSTOOD, ask, frames

from portico.ask.events import EndEvent
from portico.server.assembly import Parts

EARLIER = ({"api_version": "0.54"}, {"version": "0.54"}, {"api_version": 0.54}, {"version": 0.54})
LISTS = {"response_format": "conv_search"}


# 0.54


@requirement("nlweb54:note:no-results")
@pytest.mark.parametrize("meta", EARLIER)
@pytest.mark.parametrize("prefer", [LISTS, {}], ids=["lists", "apps"])
async def test_0_54_no_results_are_a_failure(client: httpx.AsyncClient, meta: Any, prefer: Any) -> None:
    whole = await ask(client, "zebra crossing", prefer={**prefer, "streaming": False}, meta=meta)
    streamed = frames(await ask(client, "zebra crossing", prefer=prefer, meta=meta))

    assert whole.status_code == 200
    for body in (whole.json(), *(data for _, data in streamed)):
        assert (body["_meta"]["response_type"], body["error"]["code"]) == ("Failure", "NO_RESULTS")
        assert body["_meta"]["version"] == "0.54"
        assert "results" not in body
    assert len(streamed) == 1


@requirement("nlweb54:stream:first-frame-type")
@pytest.mark.parametrize("meta", [*EARLIER, {"version": "0.55"}])
async def test_the_first_frame_of_an_elicitation_stream_already_says_so(parts: Parts, meta: Any) -> None:
    async with asking(scripted(parts, telling(UNDERSTOOD, QUESTION))) as client:
        streamed = [data for _, data in frames(await ask(client, prefer={"streaming": True}, meta=meta))]

    assert {data["_meta"]["response_type"].lower() for data in streamed} == {"elicitation"}
    assert streamed[0]["elicitation"]["questions"][0]["id"] == "view"
    assert streamed[0]["_meta"]["decontextualized_query"] == "soup"


@requirement("nlweb54:note:stream-order")
async def test_0_54_the_first_frame_of_an_answer_has_the_question_as_it_was_understood(parts: Parts) -> None:
    async with asking(scripted(parts, telling(UNDERSTOOD, ATTIC, EndEvent(1)))) as client:
        first, second = frames(await ask(client, prefer=LISTS, meta={"api_version": "0.54"}))

    assert first[1]["_meta"]["response_type"] == "Answer"
    assert first[1]["_meta"]["decontextualized_query"] == "soup"
    assert second[1]["results"][0]["@id"] == "attic"


# Versions


@requirement("nlweb:note:dialect-by-version")
@pytest.mark.parametrize(
    ("meta", "version", "response_type"),
    [
        ({"version": "0.54"}, "0.54", "Answer"),
        ({"version": " 0.54 "}, "0.54", "Answer"),
        ({"version": "0.55"}, "0.55", "answer"),
        ({"api_version": "0.55"}, "0.55", "answer"),
        ({"version": "0.54", "api_version": "0.55"}, "0.54", "Answer"),
    ],
)
async def test_the_version_that_a_request_names_is_the_one_of_its_answer(
    client: httpx.AsyncClient, meta: Any, version: str, response_type: str
) -> None:
    body = (await ask(client, prefer={"streaming": False}, meta=meta)).json()

    assert (body["_meta"]["version"], body["_meta"]["response_type"]) == (version, response_type)
    assert "ignored" not in body["_meta"]


@requirement("nlweb:note:unknown-version")
@pytest.mark.parametrize(
    ("meta", "version", "label"),
    [
        ({"version": "0.56"}, "0.55", "meta.version"),
        ({"version": ""}, "0.55", "meta.version"),
        ({"api_version": "0.53"}, "0.54", "meta.api_version"),
    ],
)
async def test_an_unknown_version_is_remarked(client: httpx.AsyncClient, meta: Any, version: str, label: str) -> None:
    whole = (await ask(client, prefer={"streaming": False}, meta=meta)).json()
    refused = (await ask(client, "", prefer={"streaming": False}, meta=meta)).json()
    streamed = frames(await ask(client, prefer={"streaming": True}, meta=meta))
    awaited = (await client.post("/await", json={"promise_token": "no", "action": "checkin", "meta": meta})).json()

    for body in (whole, refused, streamed[0][1], awaited):
        assert (body["_meta"]["version"], body["_meta"]["ignored"]) == (version, [label])


# Other bindings


@requirement("nlweb:mcp:earlier-version")
@pytest.mark.parametrize("meta", EARLIER)
async def test_0_54_requests_over_mcp_are_answered_in_0_54(parts: Parts, meta: Any) -> None:
    async with visiting(parts) as client:
        schema = next(each for each in (await client.list_tools()).tools if each.name == "ask").output_schema
        apps = structured(await client.call_tool("ask", {"query": {"text": "attic"}, "meta": meta}))
        arguments = {"query": {"text": "attic"}, "prefer": LISTS, "meta": meta}
        lists = structured(await client.call_tool("ask", arguments))
        nothing = await client.call_tool("ask", {"query": {"text": "zebra crossing"}, "meta": meta})
        invalid = structured(await client.call_tool("ask", {"query": {"text": ""}, "meta": meta}))
        gone = {"promise_token": "no", "action": "checkin", "meta": meta}
        awaited = structured(await client.call_tool("await", gone))

    assert apps["structuredData"][0]["@id"] == lists["results"][0]["@id"] == "attic"
    assert (structured(nothing)["error"]["code"], nothing.is_error) == ("NO_RESULTS", False)
    assert (invalid["error"]["code"], awaited["error"]["code"]) == ("INVALID_REQUEST", "UNKNOWN_PROMISE")
    for body in (apps, lists):
        assert body["_meta"]["response_type"] == "Answer"
    for body in (structured(nothing), invalid, awaited):
        assert body["_meta"]["response_type"] == "Failure"
    for body in (apps, lists, structured(nothing), invalid, awaited):
        assert body["_meta"]["version"] == "0.54"
        jsonschema.validate(body, schema)


async def test_a_text_as_query_over_mcp_is_answered_in_the_newest_version(parts: Parts) -> None:
    async with visiting(parts) as client:
        body = structured(await client.call_tool("ask", {"query": "attic"}))

    assert (body["_meta"]["version"], body["_meta"]["response_type"]) == ("0.55", "answer")


@pytest.mark.parametrize("meta", EARLIER)
async def test_0_54_requests_over_a2a_are_answered_in_0_54(parts: Parts, meta: Any) -> None:
    async with a2a.visiting(parts) as talk:
        found = await talk.send(a2a.data(query={"text": "attic"}, meta=meta))
        nothing = await talk.send(a2a.data(query={"text": "zebra crossing"}, meta=meta))

    assert (a2a.state(found), a2a.answer(found)["_meta"]["response_type"]) == ("completed", "Answer")
    assert (a2a.state(nothing), a2a.answer(nothing)["error"]["code"]) == ("completed", "NO_RESULTS")
    assert {a2a.answer(each)["_meta"]["version"] for each in (found, nothing)} == {"0.54"}
