"""`/v1/models` and `/v1/chat/completions`, as plain HTTP."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from markdown_it import MarkdownIt
from tests.protocols.conftest import ROOMS, Inn, asking, key_of

from portico.server.assembly import Parts
from portico.store.records import Put

COMPLETIONS = "/v1/chat/completions"


def question(text: str, **members: Any) -> dict[str, Any]:
    return {"model": "portico", "messages": [{"role": "user", "content": text}], **members}


def chunks_of(body: str) -> list[dict[str, Any]]:
    frames = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    return [json.loads(frame) for frame in frames[:-1]]


@pytest.fixture
async def closed(inn: Inn) -> AsyncIterator[Parts]:
    async with inn(anonymous={"scopes": []}) as parts:
        yield parts


async def test_the_models_are_the_site_and_its_collections(client: httpx.AsyncClient) -> None:
    models = (await client.get("/v1/models")).json()
    one = (await client.get("/v1/models/portico/rooms")).json()

    assert [model["id"] for model in models["data"]] == ["portico", "portico/rooms"]
    assert one == models["data"][1]


async def test_an_answer_lists_and_cites_the_items_that_every_protocol_finds(client: httpx.AsyncClient) -> None:
    completion = (await client.post(COMPLETIONS, json=question("a quiet room"))).json()
    answer = (
        await client.post("/ask", json={"query": {"text": "a quiet room"}, "prefer": {"streaming": False}})
    ).json()

    message = completion["choices"][0]["message"]
    citations = [annotation["url_citation"] for annotation in message["annotations"]]
    assert [citation["title"] for citation in citations] == [item["name"] for item in answer["results"]]
    assert [citation["url"] for citation in citations] == [item["url"] for item in answer["results"]]
    for citation in citations:
        assert citation["title"] in message["content"][citation["start_index"] : citation["end_index"]]
    assert completion["choices"][0]["finish_reason"] == "stop"


async def test_a_stream_says_the_same_in_chunks(client: httpx.AsyncClient) -> None:
    body = question("a quiet room")
    whole = (await client.post(COMPLETIONS, json=body)).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = chunks_of((await client.post(COMPLETIONS, json={**body, **options})).text)

    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    message = whole["choices"][0]["message"]
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [message["annotations"]]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])


async def test_usage_counts_the_tokens_of_request_and_answer(client: httpx.AsyncClient) -> None:
    short = (await client.post(COMPLETIONS, json=question("a quiet room"))).json()["usage"]
    long = (await client.post(COMPLETIONS, json=question("a quiet room with a view of the garden"))).json()["usage"]

    assert 0 < short["prompt_tokens"] < long["prompt_tokens"]
    assert short["total_tokens"] == short["prompt_tokens"] + short["completion_tokens"]


async def test_a_follow_up_is_read_in_its_conversation(client: httpx.AsyncClient) -> None:
    messages = [
        {"role": "system", "content": "You are a pirate."},
        {"role": "user", "content": [{"type": "text", "text": "rooms under 50"}]},
        {"role": "assistant", "content": "The cellar, and the garden room."},
        {"role": "user", "content": "only those under 30"},
    ]

    completion = (await client.post(COMPLETIONS, json={"model": "portico", "messages": messages})).json()

    [annotation] = completion["choices"][0]["message"]["annotations"]
    assert annotation["url_citation"]["title"] == "The cellar"
    assert "messages: system" in completion["portico"]["ignored"]


async def test_a_greeting_is_answered_and_finds_nothing(client: httpx.AsyncClient) -> None:
    completion = (await client.post(COMPLETIONS, json=question("hello"))).json()

    message = completion["choices"][0]["message"]
    assert "rooms" in message["content"].lower()
    assert message["annotations"] == []


async def test_tools_are_ignored_with_a_remark(client: httpx.AsyncClient) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]

    completion = (await client.post(COMPLETIONS, json=question("a room", tools=tools, temperature=0.2))).json()

    assert completion["portico"]["ignored"] == ["tools", "temperature"]
    assert any("Tools" in note for note in completion["portico"]["notes"])
    assert "tool_calls" not in completion["choices"][0]["message"]


async def test_a_model_of_a_collection_answers_from_it_alone(client: httpx.AsyncClient) -> None:
    completion = (await client.post(COMPLETIONS, json={**question("garden"), "model": "portico/rooms"})).json()

    assert completion["model"] == "portico/rooms"
    assert completion["choices"][0]["message"]["annotations"][0]["url_citation"]["title"] == ROOMS["garden"]["name"]


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        (question("a room") | {"model": "gpt-4o"}, 404, "model", "model_not_found"),
        (question("a room") | {"model": "portico/secrets"}, 404, "model", "model_not_found"),
        (question("a room", n=2), 400, "n", None),
        (question(" "), 400, "messages", None),
        ({"model": "portico", "messages": []}, 400, "messages", None),
        ({"model": "portico", "messages": [{"role": "assistant", "content": "hi"}]}, 400, "messages", None),
        ({"model": "portico"}, 400, None, None),
        ({"model": 7, "messages": []}, 400, "model", None),
        ([], 400, None, None),
        (question("") | {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, None, None),
        (question("") | {"messages": [{"role": "user", "content": 7}]}, 400, None, None),
    ],
)
async def test_errors_name_the_parameter(
    client: httpx.AsyncClient, body: Any, status: int, param: str | None, code: str | None
) -> None:
    response = await client.post(COMPLETIONS, json=body)

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert error["type"] == "invalid_request_error"
    if param:
        assert error["param"] == param
    assert error["message"]


async def test_bodies_that_cannot_be_read_are_refused_in_this_form(client: httpx.AsyncClient) -> None:
    broken = await client.post(COMPLETIONS, content=b"{", headers={"content-type": "application/json"})
    wrong_method = await client.get(COMPLETIONS)
    large = await client.post(COMPLETIONS, content=b"[" + b"1," * 2_000_000 + b"1]")

    assert (broken.status_code, wrong_method.status_code, large.status_code) == (400, 405, 413)
    assert all(set(response.json()["error"]) == {"message", "type", "param", "code"} for response in (broken, large))
    assert wrong_method.json()["error"]["type"] == "invalid_request_error"


async def test_keys_are_checked_and_placeholders_count_as_none(closed: Parts, client: httpx.AsyncClient) -> None:
    key = await key_of(closed)
    async with asking(closed) as http:
        anonymous = await http.post(COMPLETIONS, json=question("a room"), headers={"authorization": "Bearer sk-none"})
        wrong = await http.post(COMPLETIONS, json=question("a room"), headers={"authorization": "Bearer pk_wrong"})
        known = await http.post(COMPLETIONS, json=question("a room"), headers={"authorization": f"Bearer {key}"})
    open_site = await client.post(COMPLETIONS, json=question("a room"), headers={"authorization": "Bearer anonymous"})

    assert anonymous.status_code in {401, 403}
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (known.status_code, open_site.status_code) == (200, 200)


async def test_rates_hold_and_say_when_to_come_back(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 2}) as parts, asking(parts) as http:
        responses = [await http.post(COMPLETIONS, content=b"{") for _ in range(4)]

    assert [response.status_code for response in responses][-1] == 429
    assert int(responses[-1].headers["retry-after"]) >= 1
    assert responses[-1].json()["error"]["code"] == "rate_limit_exceeded"


async def test_it_can_be_switched_off(inn: Inn) -> None:
    async with inn(openai={"enabled": False}) as parts, asking(parts) as http:
        responses = [await http.get("/v1/models"), await http.post(COMPLETIONS, json=question("a room"))]
        described = (await http.get("/openapi.json")).json()

    assert [response.status_code for response in responses] == [404, 404]
    assert not {"/v1/models", COMPLETIONS, "/v1/responses"} & set(described["paths"])


async def test_text_of_items_cannot_break_out_of_the_list(inn: Inn) -> None:
    hostile = {
        "name": "A [room](javascript:alert(1))\n\n# Heading &lt;img&gt;",
        "description": "](http://evil.example) <b>x</b>",
        "url": "http://inn.example/items/rooms/trap)\n\n<img/src=//evil.example/p.png>\n\n[y]: http://z\n# Heading",
    }
    async with inn() as parts, asking(parts) as http:
        await parts.store.items.write("rooms", [Put("trap", hostile)])
        await parts.index.sync(await parts.store.changes.head())
        completion = (await http.post(COMPLETIONS, json=question("evil heading room"))).json()

    html = MarkdownIt().render(completion["choices"][0]["message"]["content"])
    assert "/items/rooms/trap" in html
    assert all(href.startswith("http://inn.example/") for href in re.findall(r'href="([^"]*)"', html))
    assert "<h1>" not in html
    assert "<b>" not in html
    assert "<img" not in html
