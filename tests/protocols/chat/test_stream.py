"""`/chat/stream`: lines of JSON, as real clients insist on them."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.chat.talk import QUIET, lines_of, message
from tests.protocols.conftest import Endless, asking, listening, scripted, soon, telling

from portico.ask.events import EndEvent, ErrorEvent, InterpretationEvent, ItemEvent, TextEvent
from portico.errors import Unavailable, UnknownItem
from portico.items import Item
from portico.server.assembly import Parts

ATTIC = ItemEvent(Item("attic", "rooms", {"name": "The attic"}), 80.0)
CITED = (ATTIC.item.ref,)
BEGUN = (InterpretationEvent("a room", ("rooms",)), ATTIC, TextEvent("It is ", CITED), TextEvent("high up. ", CITED))


async def lines(client: httpx.AsyncClient, path: str = "/chat/stream", **headers: str) -> list[dict[str, Any]]:
    answer = await client.post(path, json=QUIET, headers=headers)
    assert answer.status_code == 200
    return lines_of(answer.text)


@requirement(
    "chat:stream:ok", "chat:stream:first-context", "chat:stream:delta", "chat:rule:newline", "chat:rule:chunks"
)
@requirement("chat:shape:no-nulls", "chat:answer:citations")
async def test_a_stream_is_context_then_text_then_what_to_ask_next(parts: Parts) -> None:
    async with asking(scripted(parts, telling(*BEGUN, EndEvent(1)))) as http:
        first, *pieces, last = await lines(http)

    assert first["delta"] == {"role": "assistant"}
    assert set(first["context"]) == {"data_points", "thoughts", "portico"}
    assert first["context"]["data_points"]["citations"] == ["http://inn.example/items/rooms/attic"]
    assert [each["delta"]["content"] for each in pieces] == [
        "It is",
        " high up.",
        " [http://inn.example/items/rooms/attic]",
    ]
    assert all(set(each) == {"delta"} for each in pieces)
    assert last == {
        "delta": {},
        "context": {"followup_questions": ["Tell me more about The attic", "Something like The attic"]},
    }
    assert "null" not in json.dumps([first, *pieces, last])


@requirement("chat:stream:type", "chat:shape:ndjson", "chat:rule:accept", "chat:shape:stream-member", "chat:rule:gzip")
@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("/chat/stream", "application/json", "application/jsonl"),
        ("/chat/stream/", "text/html", "application/jsonl"),
        ("/chat/stream", "Application/X-NDJSON", "application/x-ndjson"),
        ("/chat/stream", "application/x-ndjson;q=0, */*", "application/jsonl"),
        ("/chat", "*/*", "application/jsonl"),
    ],
)
async def test_no_accept_is_refused_and_nothing_is_compressed(
    client: httpx.AsyncClient, path: str, accept: str, kind: str
) -> None:
    headers = {"accept": accept, "accept-encoding": "gzip, deflate, br"}

    answer = await client.post(path, json={**QUIET, "stream": True}, headers=headers)

    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert "content-encoding" not in answer.headers
    assert lines_of(answer.text)[-1]["delta"] == {}


@requirement("chat:stream:error-during")
@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (ErrorEvent(UnknownItem("That is gone")), "That is gone"),
        (ErrorEvent(Unavailable("hunter2")), "The site cannot answer this at the moment. Try again later."),
        (RuntimeError("hunter2"), "The site cannot answer this at the moment. Try again later."),
    ],
)
async def test_an_error_in_the_middle_is_the_last_line(parts: Parts, trouble: Any, told: str) -> None:
    async with asking(scripted(parts, telling(*BEGUN, trouble))) as http:
        *before, last = await lines(http)

    assert last == {"error": told}
    assert [each["delta"] for each in before] == [
        {"role": "assistant"},
        {"content": "It is"},
        {"content": " high up."},
    ]


async def test_an_answer_of_blanks_is_what_was_found(parts: Parts) -> None:
    blank = (InterpretationEvent("a room", ("rooms",)), ATTIC, TextEvent(" \n", CITED), EndEvent(1))
    async with asking(scripted(parts, telling(*blank))) as http:
        _, *pieces, _ = await lines(http)

    assert pieces == [{"delta": {"content": "- The attic [http://inn.example/items/rooms/attic]"}}]


@requirement("chat:rule:abort")
@pytest.mark.parametrize("path", ["/chat/stream", "/chat"])
async def test_who_leaves_ends_the_work(parts: Parts, path: str) -> None:
    endless = Endless(BEGUN)
    async with (
        listening(scripted(parts, endless)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        asking_on = asyncio.create_task(http.post(path, json=QUIET))
        await soon(endless.begun)
        asking_on.cancel()
        await soon(endless.stopped)


@requirement("chat:rule:gzip")
async def test_a_line_arrives_before_the_answer_is_over(parts: Parts) -> None:
    endless = Endless(BEGUN)
    async with (
        listening(scripted(parts, endless)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
        http.stream("POST", "/chat/stream", json=QUIET, headers={"accept-encoding": "gzip"}) as answer,
    ):
        async with asyncio.timeout(60):
            first = json.loads(await anext(answer.aiter_lines()))
        assert not endless.stopped.is_set()

    assert first["delta"] == {"role": "assistant"}
    await soon(endless.stopped)


async def test_what_was_noted_at_the_end_comes_with_all_that_is_known(parts: Parts) -> None:
    async with asking(scripted(parts, telling(*BEGUN, EndEvent(1, ("Some words did not count.",))))) as http:
        first, *_, last = await lines(http)

    assert last["context"]["portico"]["notes"] == ["Some words did not count."]
    assert last["context"]["portico"]["items"] == first["context"]["portico"]["items"]


async def test_a_stream_of_a_greeting_has_the_same_form(client: httpx.AsyncClient) -> None:
    answer = await client.post("/chat/stream", json={"messages": [message("user", "hello")]})

    first, piece, last = lines_of(answer.text)
    assert first["delta"] == {"role": "assistant"}
    assert piece == {"delta": {"content": "Hello. You can ask me about rooms."}}
    assert last == {"delta": {}, "context": {"followup_questions": ["Cheapest rooms"]}}
