"""`/ask` and `/await` over WebSocket, against a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Endless, Inn, frames_of, key_of, listening, scripted, soon, telling
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from portico.ask.events import EndEvent, Event, InterpretationEvent, ItemEvent
from portico.items import Item
from portico.protocols.nlweb.socket import MAX_WAITING
from portico.requests import Ask, Caller
from portico.server.assembly import Parts

PASSING = {"session_context", "processing_time_ms"}
UNDERSTOOD = InterpretationEvent("soup", ("rooms",))
ATTIC = ItemEvent(Item("attic", "rooms", {"name": "The attic"}), 90.0)


@asynccontextmanager
async def talking(parts: Parts, path: str = "/ask", **settings: Any) -> AsyncIterator[ClientConnection]:
    async with listening(parts) as port, connect(f"ws://127.0.0.1:{port}{path}", **settings) as socket:
        yield socket


async def heard(socket: ClientConnection) -> dict:
    async with asyncio.timeout(60):
        return json.loads(await socket.recv())


async def say(socket: ClientConnection, query: Any = None, **sections: Any) -> None:
    await socket.send(json.dumps({"query": query or {"text": "attic"}, **sections}))


async def test_a_message_is_answered_with_one_object(parts: Parts) -> None:
    async with talking(parts) as socket:
        await say(socket, meta={"request_id": "req_1"})
        answer = await heard(socket)

    assert (answer["_meta"]["response_type"], answer["_meta"]["request_id"]) == ("answer", "req_1")
    assert answer["results"][0]["@id"] == "attic"
    assert answer["results"][0]["url"].startswith("http://127.0.0.1:")


@requirement("nlweb:transport:same-objects")
@pytest.mark.parametrize("streaming", [False, True])
async def test_the_objects_are_the_same_as_over_http(parts: Parts, streaming: bool) -> None:
    body = {"query": {"text": "room"}, "prefer": {"streaming": streaming, "mode": "list, summarize"}}
    async with (
        listening(parts) as port,
        connect(f"ws://127.0.0.1:{port}/ask") as socket,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(f"http://127.0.0.1:{port}/ask", json=body)
        over_http = [json.loads(data) for _, data in frames_of(answer.text)] if streaming else [answer.json()]
        await socket.send(json.dumps(body))
        heard_here = [await heard(socket) for _ in over_http]

    over_socket = [each["data"] for each in heard_here] if streaming else heard_here
    assert [lasting(each) for each in over_socket] == [lasting(each) for each in over_http]


def lasting(body: dict) -> dict:
    """An object without what differs from one request to the next."""
    meta = {name: value for name, value in body.get("_meta", {}).items() if name not in PASSING}
    return {**body, "_meta": meta}


async def test_a_streamed_answer_comes_as_named_events(parts: Parts) -> None:
    async with talking(parts) as socket:
        await say(socket, prefer={"streaming": True})
        first = await heard(socket)
        rest = []
        while not rest or rest[-1]["event"] != "complete":
            rest.append(await heard(socket))

    assert (first["event"], first["data"]["_meta"]["streaming"]) == ("start", True)
    assert {each["event"] for each in rest[:-1]} == {"result"}
    assert rest[0]["data"]["item"]["@id"] == "attic"
    assert rest[-1]["data"]["_meta"]["session_context"]["conversation_id"]


async def test_other_dialects_stream_bare_frames(parts: Parts) -> None:
    async with talking(scripted(parts, telling(UNDERSTOOD, ATTIC, EndEvent(1)))) as socket:
        await say(socket, meta={"api_version": "0.54"})
        earlier = [await heard(socket) for _ in range(3)]
        await say(socket, "attic", query_id="q1")
        flat = [await heard(socket) for _ in range(3)]

    assert [sorted(each) for each in earlier] == [["_meta"], ["structuredData"], ["content"]]
    assert [each["message_type"] for each in flat] == ["query_analysis", "result_batch", "complete"]
    assert {each["query_id"] for each in flat} == {"q1"}


async def test_requests_are_answered_one_after_the_other(parts: Parts) -> None:
    running: set[str] = set()
    together: list[int] = []

    async def script(ask: Ask, _: Caller) -> AsyncIterator[Event]:
        running.add(ask.text)
        yield InterpretationEvent(ask.text, ())
        for _ in range(50):
            await asyncio.sleep(0)
        together.append(len(running))
        running.remove(ask.text)
        yield ATTIC

    texts = ["first", "second", "third", "fourth"][:MAX_WAITING]
    async with talking(scripted(parts, script)) as socket:
        for text in texts:
            await say(socket, {"text": text})
        answers = [await heard(socket) for _ in texts]

    assert [each["_meta"]["decontextualized_query"] for each in answers] == texts
    assert together == [1] * len(texts)


@pytest.mark.parametrize(
    "bad",
    ["{", "[]", "", "5", '{"query": {"text": 5}}', '{"query": {"text": " "}}', "[" * 5000, b"\xff\xfe", '{"meta": {}}'],
)
async def test_a_bad_message_gets_a_failure_and_the_connection_stays(parts: Parts, bad: str | bytes) -> None:
    async with talking(parts) as socket:
        await socket.send(bad)
        failure = await heard(socket)
        await say(socket)
        answer = await heard(socket)

    assert failure["_meta"]["response_type"] == "failure"
    assert failure["error"]["code"] == "INVALID_QUERY"
    assert answer["_meta"]["response_type"] == "answer"


@pytest.mark.parametrize("path", ["/ask", "/await"])
async def test_both_addresses_take_questions_and_looks_at_promises(parts: Parts, path: str) -> None:
    async with talking(parts, path) as socket:
        await socket.send(json.dumps({"promise_token": "nope", "action": "checkin"}))
        unknown = await heard(socket)
        await say(socket)
        answer = await heard(socket)

    assert unknown["error"]["code"] == "UNKNOWN_PROMISE"
    assert answer["results"][0]["@id"] == "attic"


async def test_a_message_over_the_limit_ends_the_connection(inn: Inn) -> None:
    async with inn(limits={"payload_bytes": 1000}) as parts, talking(parts) as socket:
        await say(socket, {"text": "x" * 1000})
        with pytest.raises(ConnectionClosed) as closed:
            await heard(socket)

    assert closed.value.rcvd.code == 1009


async def test_too_many_waiting_messages_end_the_connection(parts: Parts) -> None:
    endless = Endless((UNDERSTOOD,))
    async with talking(scripted(parts, endless)) as socket:
        for _ in range(MAX_WAITING + 2):
            await say(socket)
        with pytest.raises(ConnectionClosed) as closed:
            await heard(socket)
        await soon(endless.stopped)

    assert closed.value.rcvd.code == 1008


@requirement("nlweb:note:stream-disconnect")
@pytest.mark.parametrize("streaming", [True, False])
async def test_closing_the_socket_stops_the_work(parts: Parts, streaming: bool) -> None:
    endless = Endless((UNDERSTOOD, ATTIC))
    async with talking(scripted(parts, endless)) as socket:
        await say(socket, prefer={"streaming": streaming})
        await soon(endless.begun)
        assert not endless.stopped.is_set()
        await socket.close()
        await soon(endless.stopped)


async def test_a_connection_that_is_cut_stops_the_work(parts: Parts) -> None:
    endless = Endless((UNDERSTOOD, ATTIC))
    async with talking(scripted(parts, endless)) as socket:
        await say(socket, prefer={"streaming": True})
        await soon(endless.begun)
        socket.transport.abort()
        await soon(endless.stopped)


async def test_what_breaks_is_said_and_the_connection_stays(parts: Parts) -> None:
    async with talking(scripted(parts, telling(UNDERSTOOD, ATTIC, ZeroDivisionError("secret")))) as socket:
        await say(socket, prefer={"streaming": True})
        streamed = [await heard(socket) for _ in range(4)]
        await say(socket)
        whole = await heard(socket)

    assert [each["event"] for each in streamed] == ["start", "result", "error", "complete"]
    assert whole["error"]["code"] == "INTERNAL_ERROR"
    assert "secret" not in f"{streamed}{whole}"


async def test_the_caller_is_known_from_the_handshake(inn: Inn) -> None:
    async with inn(anonymous={"scopes": []}) as parts:
        key = await key_of(parts)
        async with talking(parts, additional_headers={"x-api-key": key}) as socket:
            await say(socket)
            known = await heard(socket)
        async with talking(parts) as socket:
            await say(socket)
            unknown = await heard(socket)
        with pytest.raises(InvalidStatus) as refused:
            async with talking(parts, additional_headers={"x-api-key": "pk_wrong"}):
                pass

    assert known["_meta"]["response_type"] == "answer"
    assert unknown["error"]["code"] == "UNAUTHENTICATED"
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["error"]["code"] == "UNAUTHENTICATED"


async def test_pages_elsewhere_may_talk_only_if_they_are_named(inn: Inn) -> None:
    settings = {"origins": ["http://localhost:*"], "url": "https://shop.example"}
    async with inn(server=settings) as parts, listening(parts) as port:
        address = f"ws://127.0.0.1:{port}/ask"
        for origin in (f"http://127.0.0.1:{port}", "http://localhost:5173", "https://shop.example", None):
            async with connect(address, origin=origin) as socket:
                await say(socket)
                assert (await heard(socket))["results"], origin
        for origin in (
            "https://evil.example",
            "null",
            "http://127.0.0.1:1",
            "https://shop.example.evil.example",
            "http://[x",
        ):
            with pytest.raises(InvalidStatus) as refused:
                await connect(address, origin=origin)
            assert refused.value.response.status_code == 403
            assert json.loads(refused.value.response.body)["error"]["code"] == "FORBIDDEN"
