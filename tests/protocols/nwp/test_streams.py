"""Streams over HTTP: part by part, each in a chunk of its own, until the end, or until the reader has had enough."""

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from starlette.types import ASGIApp, Message
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking, key_of, listening
from tests.protocols.nwp.shop import refused, shop

from portico.protocols.nwp.frames import (
    DiffFrame,
    EncodingTier,
    OrderKey,
    QueryFrame,
    StreamFrame,
    decode,
    encode,
    read_header,
)
from portico.protocols.nwp.http import PACE_SECONDS
from portico.server.assembly import Parts
from portico.server.http import application
from portico.store.records import Put

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUEST = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
THINGS: dict[str, dict[str, Any]] = {f"t{n:02}": {"name": f"Thing {n}", "n": n} for n in range(25)}
IDS = list(THINGS)
SEGMENT = 1400  # bytes that reach a reader at once on nearly every network
LIMIT_EXCEEDED = (429, "NPS-STREAM-LIMIT", "NCP-STREAM-LIMIT-EXCEEDED")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with shop(tmp_path_factory.mktemp("shop"), THINGS, nwp={"streams": 2}) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(parts: Parts) -> AsyncIterator[int]:
    async with listening(parts) as port:
        yield port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


async def chunks(port: int, body: bytes, path: str = "stream", **headers: str) -> tuple[str, list[bytes]]:
    """The head of an answer and each of its chunks, as they come over the wire."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = {"host": f"127.0.0.1:{port}", "content-length": str(len(body)), **headers}
    lines = [f"POST /nwp/things/{path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
    try:
        writer.write("\r\n".join(lines).encode() + body)
        async with asyncio.timeout(10):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            found: list[bytes] = []
            while size := int(await reader.readline(), 16):
                found.append((await reader.readexactly(size + 2))[:-2])
        return head, found
    finally:
        writer.close()
        await writer.wait_closed()


def part_of(raw: bytes) -> StreamFrame:
    frame = decode(raw)
    assert isinstance(frame, StreamFrame)
    return frame


def ids(parts: list[Any]) -> list[str]:
    return [each["id"] for part in parts for each in part]


@requirement("nwp:stream:batches", "nwp:stream:first", "nwp:stream:chunks", "nwp:frames:stream", "nwp:header:final")
@pytest.mark.parametrize("tier", list(EncodingTier))
async def test_a_stream_comes_in_frames_of_limit_records_one_to_a_chunk(
    port: int, client: httpx.AsyncClient, tier: EncodingTier
) -> None:
    anchor = (await client.get("/nwp/things/.schema")).json()["anchor_id"]
    asked = QueryFrame(limit=10, order=[OrderKey("n", "DESC")], request_id=REQUEST)

    head, found = await chunks(port, encode(asked, tier))

    shown = [part_of(raw) for raw in found]
    assert "content-type: application/nwp-capsule" in head
    assert f"x-nwp-request-id: {REQUEST}" in head
    assert f"x-nwp-schema: {anchor}" in head
    assert [[each["n"] for each in part.data] for part in shown] == [
        list(range(24, 14, -1)),
        list(range(14, 4, -1)),
        list(range(4, -1, -1)),
    ]
    assert [(part.stream_id, part.seq, part.is_last) for part in shown] == [
        (REQUEST, 0, False),
        (REQUEST, 1, False),
        (REQUEST, 2, True),
    ]
    assert [(part.anchor_ref, part.estimated_total, part.request_id) for part in shown] == [
        (anchor, 25, REQUEST),
        (None, None, None),
        (None, None, None),
    ]
    headers = [read_header(raw) for raw in found]
    assert [(each.is_final, each.tier) for each in headers if each] == [(False, tier), (False, tier), (True, tier)]


@requirement("nwp:stream:flag", "nwp:stream:chunks", "nwp:stream:batches")
@pytest.mark.parametrize(("path", "said"), [("stream", {}), ("query", {"stream": True})])
async def test_bare_json_is_streamed_in_lines_one_to_a_chunk(port: int, path: str, said: dict[str, Any]) -> None:
    head, found = await chunks(port, json.dumps({"limit": 20, "request_id": REQUEST, **said}).encode(), path)

    shown = [json.loads(line) for line in found]
    assert "content-type: application/x-ndjson" in head
    assert [line.count(b"\n") for line in found] == [1, 1]
    assert ids([part["data"] for part in shown]) == IDS
    assert [(part["frame"], part["seq"], part["is_last"]) for part in shown] == [("0x03", 0, False), ("0x03", 1, True)]
    assert shown[0]["estimated_total"] == 25


@requirement("nwp:stream:flag")
async def test_a_framed_query_with_the_flag_is_a_stream_too(port: int) -> None:
    _, found = await chunks(port, encode(QueryFrame(stream=True, limit=20), EncodingTier.MSGPACK), "query")

    assert ids([part_of(raw).data for raw in found]) == IDS


async def test_bare_messagepack_is_streamed_in_lines_that_can_be_read(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nwp/things/stream", content=msgspec.msgpack.encode({"limit": 20}))

    assert ids([json.loads(line)["data"] for line in answer.text.splitlines()]) == IDS


@requirement("nwp:stream:cursor")
async def test_a_stream_begins_at_the_beginning_whatever_the_cursor(client: httpx.AsyncClient) -> None:
    cursor = (await client.post("/nwp/things/query", json={"limit": 5})).json()["next_cursor"]

    for said in (cursor, "nonsense"):
        answer = await client.post("/nwp/things/stream", json={"limit": 20, "cursor": said})
        assert ids([json.loads(line)["data"] for line in answer.text.splitlines()]) == IDS


@requirement("nwp:stream:batches", "nwp:stream:first")
async def test_a_stream_has_one_last_part_even_if_nothing_was_found(client: httpx.AsyncClient) -> None:
    async def shown(said: dict[str, Any]) -> list[tuple[int, int, bool, int | None]]:
        lines = (await client.post("/nwp/things/stream", json=said)).text.splitlines()
        parts = [json.loads(line) for line in lines]
        return [(part["seq"], len(part["data"]), part["is_last"], part.get("estimated_total")) for part in parts]

    assert await shown({"filter": {"n": {"$gt": 99}}}) == [(0, 0, True, 0)]
    assert await shown({"filter": {"n": {"$gt": 19}}, "limit": 5}) == [(0, 5, True, 5)]
    assert await shown({"filter": {"n": {"$gt": 18}}, "limit": 5}) == [(0, 5, False, 6), (1, 1, True, None)]


@requirement("nwp:aggregate:stream", "nwp:aggregate:anchor")
async def test_an_aggregate_is_one_part_the_last(client: httpx.AsyncClient) -> None:
    aggregate = {"operations": [{"func": "COUNT", "alias": "many"}], "group_by": ["n"]}

    answer = await client.post("/nwp/things/stream", json={"aggregate": aggregate, "limit": 2})

    (part,) = [json.loads(line) for line in answer.text.splitlines()]
    assert part["data"] == [{"n": n, "many": 1} for n in range(25)]
    assert (part["seq"], part["is_last"], part["anchor_ref"]) == (0, True, "nps:system:aggregate:result")


@requirement("nwp:stream:chunks", "nwp:stream:batches")
async def test_large_records_are_sent_in_smaller_parts(tmp_path_factory: pytest.TempPathFactory) -> None:
    large = {f"l{n:02}": {"text": "long " * 600} for n in range(40)}
    async with shop(tmp_path_factory.mktemp("large"), large) as parts, listening(parts) as port:
        found = {tier: (await chunks(port, encode(QueryFrame(limit=30), tier)))[1] for tier in EncodingTier}

    for raw in found.values():
        shown = [part_of(each) for each in raw]
        assert all(len(each) < 40_000 for each in raw)
        assert len(shown) > 3
        assert ids([part.data for part in shown]) == list(large)
        assert [part.seq for part in shown] == list(range(len(shown)))
        assert [part.is_last for part in shown] == [False] * (len(shown) - 1) + [True]


@requirement("nwp:stream:segments")
@pytest.mark.parametrize("accept", ["*/*", "application/x-nps-frame", "application/nwp-capsule"])
@pytest.mark.parametrize("tier", list(EncodingTier))
async def test_frames_of_small_records_fit_a_segment_and_one_that_does_not_holds_one_record(
    tmp_path_factory: pytest.TempPathFactory, tier: EncodingTier, accept: str
) -> None:
    things = {f"t{n:02}": {"text": "word " * (400 if n == 7 else 4 * n)} for n in range(20)}
    async with shop(tmp_path_factory.mktemp("small"), things) as parts, listening(parts) as port:
        question = encode(QueryFrame(limit=100, request_id=REQUEST), tier)
        _, small = await chunks(port, question, accept=accept)
        _, large = await chunks(port, question, accept=accept, prefer="large-frames")

    shown = [part_of(raw) for raw in small]
    assert ids([part.data for part in shown]) == ids([part_of(raw).data for raw in large]) == list(things)
    assert [part.seq for part in shown] == list(range(len(shown)))
    beyond = [part for raw, part in zip(small, shown, strict=True) if len(f"{len(raw):x}") + len(raw) + 4 > SEGMENT]
    assert [[record["id"] for record in part.data] for part in beyond] == [["t07"]]
    assert len(large) == 1


@requirement("nwp:stream:segments")
@pytest.mark.parametrize(
    ("headers", "grows"),
    [({}, False), ({"prefer": "large-frames"}, False), ({"accept": "application/x-nps-frame"}, True)],
    ids=["any", "large-frames", "nps-lib"],
)
async def test_only_a_client_that_needs_it_waits_longer_for_more_frames(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], grows: bool
) -> None:
    sleep = asyncio.sleep
    pauses: list[float] = []

    async def record_pause(seconds: float) -> None:
        if seconds == PACE_SECONDS:
            pauses.append(seconds)
        await sleep(seconds)

    async def stream(limit: int) -> tuple[int, int]:
        """Return the number of frames, and of pauses between them."""
        pauses.clear()
        question = encode(QueryFrame(limit=100, filter={"n": {"$lt": limit}}), EncodingTier.JSON)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", record_pause)
            _, frames = await chunks(port, question, **headers)
        return len(frames), len(pauses)

    things = {f"t{n:03}": {"n": n, "text": "word " * 180} for n in range(120)}
    async with shop(tmp_path_factory.mktemp("paces"), things) as parts, listening(parts) as port:
        some, more = await stream(60), await stream(120)

    assert some[0] < more[0]
    assert (some[1] < more[1]) is grows


@requirement("nwp:budget:streams")
async def test_a_subscription_has_no_budget(tmp_path_factory: pytest.TempPathFactory) -> None:
    headers = {"accept": "text/event-stream", "x-nwp-budget": "1"}
    said = {"action": "subscribe", "stream_id": REQUEST}
    folder, new = tmp_path_factory.mktemp("news"), {"name": "New", "description": "Long " * 50}
    async with shop(folder, THINGS) as parts, listening(parts) as port, httpx.AsyncClient() as http:
        address = f"http://127.0.0.1:{port}/nwp/things/subscribe"
        async with asyncio.timeout(10), http.stream("POST", address, json=said, headers=headers) as answer:
            events = (line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: "))
            await anext(events)
            await parts.store.items.write("things", [Put("new", new)])
            told = decode(base64.b64decode(await anext(events)))
            await events.aclose()

    assert isinstance(told, DiffFrame)
    assert told.patch == [{"op": "add", "path": "", "value": {"id": "new", **new}}]


async def test_a_stream_that_is_wrong_is_refused_as_a_query_is(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nwp/things/stream", json={"filter": {"weight": {"$gt": 1}}})

    assert refused(answer) == (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FIELD-UNKNOWN")


@dataclass
class Reader:
    """One who takes the first part of a stream, and the next only when told to read on."""

    app: ASGIApp
    headers: dict[str, str] = field(default_factory=dict[str, str])
    sent: list[Message] = field(default_factory=list[Message])
    got_one: asyncio.Event = field(default_factory=asyncio.Event)
    reads_on: asyncio.Event = field(default_factory=asyncio.Event)
    leaves: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, said: dict[str, Any]) -> "asyncio.Task[None]":
        named = [(b"host", b"inn.example"), *((name.encode(), value.encode()) for name, value in self.headers.items())]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/nwp/things/stream",
            "raw_path": b"/nwp/things/stream",
            "root_path": "",
            "query_string": b"",
            "headers": named,
            "client": ("127.0.0.1", 1),
            "server": ("inn.example", 80),
            "state": {},
        }
        body = [{"type": "http.request", "body": json.dumps(said).encode(), "more_body": False}]

        async def receive() -> Message:
            if body:
                return body.pop()
            await self.leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self.sent.append(message)
            if message["type"] == "http.response.body":
                self.got_one.set()
                await self.reads_on.wait()

        async def asked() -> None:
            await self.app(scope, receive, send)

        return asyncio.create_task(asked())

    @property
    def parts(self) -> list[dict[str, Any]]:
        return [json.loads(each["body"]) for each in self.sent if each.get("body")]


async def happens(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()


async def ends(task: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(10):
        await task


async def unsubscribe(client: httpx.AsyncClient, id: str, **headers: str) -> httpx.Response:
    said = {"action": "unsubscribe", "stream_id": id}
    return await client.post("/nwp/things/subscribe", json=said, headers=headers)


@requirement("nwp:stream:stop")
async def test_a_stream_stops_when_its_reader_unsubscribes_from_its_request(parts: Parts) -> None:
    app = application(parts)
    key = {"authorization": f"Bearer {await key_of(parts)}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://inn.example") as client:
        for said, headers in (
            ({"request_id": REQUEST}, {}),
            ({}, {}),
            ({"request_id": REQUEST}, {"x-nwp-request-id": str(uuid.uuid4())}),
        ):
            reader = Reader(app, headers)
            running = reader.begin({"limit": 5, **said})
            await happens(reader.got_one)
            id = said.get("request_id") or reader.parts[0]["stream_id"]
            others = [await unsubscribe(client, id, **key), await unsubscribe(client, str(uuid.uuid4()))]

            stopped = await unsubscribe(client, id)
            reader.reads_on.set()
            await ends(running)
            again = await unsubscribe(client, id)

            assert [(part["seq"], len(part["data"]), part["is_last"]) for part in reader.parts] == [
                (0, 5, False),
                (1, 0, True),
            ]
            assert stopped.json()["data"][0]["status"] == "unsubscribed"
            for other in (*others, again):
                assert refused(other) == (404, "NPS-CLIENT-NOT-FOUND", "NWP-SUBSCRIBE-STREAM-NOT-FOUND")


@requirement("nwp:stream:disconnect")
async def test_a_stream_ends_with_its_connection_and_leaves_nothing_behind(parts: Parts) -> None:
    app = application(parts)
    before = asyncio.all_tasks()
    reader = Reader(app)
    running = reader.begin({"limit": 5})
    await happens(reader.got_one)

    reader.leaves.set()
    await ends(running)

    assert [part["seq"] for part in reader.parts] == [0]
    assert asyncio.all_tasks() <= before


@requirement("nwp:stream:limit", "nwp:frames:stream-limit")
async def test_an_agent_has_so_many_streams_at_once_and_no_more(parts: Parts) -> None:
    app = application(parts)
    key = {"authorization": f"Bearer {await key_of(parts)}"}
    readers = [Reader(app), Reader(app)]
    running = [reader.begin({"limit": 5}) for reader in readers]
    for reader in readers:
        await happens(reader.got_one)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inn.example") as client:
        third = await client.post("/nwp/things/stream", json={})
        of_another = await client.post("/nwp/things/stream", json={}, headers=key)
        manifest = (await client.get("/nwp/things/.nwm")).json()
        for reader in readers:
            reader.reads_on.set()
        for task in running:
            await ends(task)
        later = await client.post("/nwp/things/stream", json={})

    assert manifest["rate_limits"]["max_concurrent_streams"] == 2
    assert refused(third) == LIMIT_EXCEEDED
    assert int(third.headers["retry-after"]) > 0
    assert (of_another.status_code, later.status_code) == (200, 200)
