"""`/v1/responses`, as plain HTTP."""

import json
from typing import Any

import httpx
import pytest
from tests.protocols.conftest import Inn, asking, key_of

RESPONSES = "/v1/responses"


def events_of(body: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]


async def respond(client: httpx.AsyncClient, text: Any, **members: Any) -> dict[str, Any]:
    response = await client.post(RESPONSES, json={"model": "portico", "input": text, **members})
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_response_has_text_with_citations_and_usage(client: httpx.AsyncClient) -> None:
    response = await respond(client, "a quiet room", metadata={"page": "1"})

    [message] = response["output"]
    [part] = message["content"]
    assert (response["status"], message["role"], part["type"]) == ("completed", "assistant", "output_text")
    assert part["annotations"][0]["title"] == "Garden room"
    assert "Garden room" in part["text"][part["annotations"][0]["start_index"] : part["annotations"][0]["end_index"]]
    assert response["usage"]["total_tokens"] > response["usage"]["output_tokens"] > 0
    assert response["metadata"] == {"page": "1"}


async def test_a_stream_has_the_events_of_the_api_in_order(client: httpx.AsyncClient) -> None:
    body = {"model": "portico", "input": "a quiet room", "stream": True}
    events = events_of((await client.post(RESPONSES, json=body)).text)
    whole = await respond(client, "a quiet room")

    kinds = list(dict.fromkeys(event["type"] for event in events))
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.annotation.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == whole["output"][0]["content"][0]["text"]
    completed = events[-1]["response"]
    assert completed["output"][0]["content"] == whole["output"][0]["content"]
    assert {event["response"]["id"] for event in events if "response" in event} == {completed["id"]}


async def test_a_response_continues_the_one_before(client: httpx.AsyncClient) -> None:
    first = await respond(client, "rooms under 50")
    second = await respond(client, "only those under 30", previous_response_id=first["id"])

    titles = [annotation["title"] for annotation in second["output"][0]["content"][0]["annotations"]]
    assert titles == ["The cellar"]
    assert second["previous_response_id"] == first["id"]


async def test_a_response_that_was_not_stored_cannot_be_continued(client: httpx.AsyncClient) -> None:
    first = await respond(client, "rooms under 50", store=False)

    body = {"model": "portico", "input": "cheaper", "previous_response_id": first["id"]}
    error = (await client.post(RESPONSES, json=body)).json()["error"]

    assert error["param"] == "previous_response_id"


async def test_a_response_belongs_to_its_caller(inn: Inn) -> None:
    async with inn() as parts:
        key = await key_of(parts)
        async with asking(parts, headers={"authorization": f"Bearer {key}"}) as owner, asking(parts) as other:
            first = await respond(owner, "rooms under 50")
            body = {"model": "portico", "input": "cheaper", "previous_response_id": first["id"]}
            refused = await other.post(RESPONSES, json=body)

    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"previous_response_id": "resp_unknown"}, "previous_response_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content"),
    ],
)
async def test_errors_name_the_parameter(client: httpx.AsyncClient, members: dict[str, Any], param: str) -> None:
    response = await client.post(RESPONSES, json={"model": "portico", "input": "a room", **members})

    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
