"""The client of NWP against a real server: the same over HTTP and natively, and what it does when things break."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import asdict
from tests.conformance.requirements import requirement
from tests.protocols.nwp.conftest import Native, Open, native_inn

from portico.client import BadAnswer, NotReached
from portico.client.transports.nwp import (
    Answer,
    Change,
    FeedExpired,
    NativeNwpClient,
    Node,
    NwpClient,
    NwpError,
    Task,
    certificate_of,
)
from portico.protocols.nwp.frames import (
    CapsFrame,
    DiffFrame,
    EncodingTier,
    ErrorFrame,
    Frame,
    StreamFrame,
    SubscribeFrame,
    decode,
    encode,
)
from portico.store.records import Put, Remove

__all__ = ["native_inn"]  # the fixture

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAYS = ("framed", "bare", "native")
BARE: dict[str, Any] = {"tier": "json", "framed": False}
COUNT = {"operations": [{"func": "COUNT", "alias": "n"}]}


@asynccontextmanager
async def asked(way: str, inn: Open, node: str = "rooms") -> AsyncIterator[Node]:
    if way == "native":
        client: Node = await NativeNwpClient.connect(f"nwp://127.0.0.1:{inn.ports.native}/{node}")
    else:
        client = NwpClient(f"http://127.0.0.1:{inn.ports.http}", node=node, **(BARE if way == "bare" else {}))
    async with client, asyncio.timeout(60):
        yield client


# The same each way


@requirement("nwp:clients:own")
async def test_pages_records_and_streams_are_the_same_each_way(native_inn: Open) -> None:
    wishes: Any = {"filter": {"price": {"$lt": 100}}, "order": ["-price"], "fields": ["id", "price"], "limit": 2}
    for way in WAYS:
        async with asked(way, native_inn) as rooms:
            first = await rooms.query(**wishes)
            pages = [page.records async for page in rooms.pages(**wishes)]
            records = [record async for record in rooms.records(**wishes)]
            parts = [part async for part in rooms.stream(**wishes)]
            counted = await rooms.query(aggregate=COUNT)

        found = ({"id": "attic", "price": 60.0}, {"id": "garden", "price": 45.0}, {"id": "cellar", "price": 25.0})
        assert (first.records, bool(first.next_cursor), bool(first.tokens)) == (found[:2], True, True)
        assert pages == [found[:2], found[2:]]
        assert records == list(found)
        assert [(part.seq, part.records, part.is_last, part.total) for part in parts] == [
            (0, found[:2], False, 3),
            (1, found[2:], True, None),
        ]
        assert counted.records == ({"n": 3},)


async def test_typed_records_have_the_fields_of_the_schema_each_way(native_inn: Open) -> None:
    for way in WAYS:
        async with asked(way, native_inn) as rooms:
            fields = (await rooms.schema()).fields
            answer = await rooms.query(rows=True, order=["price"], limit=1)
            [part] = [part async for part in rooms.stream(rows=True, order=["price"], limit=5)]

        assert fields["@type"] == "string"
        [row] = answer.records
        assert (row.id, row.type, row.name, row.price, row.url) == ("cellar", "HotelRoom", "The cellar", 25.0, None)
        assert [asdict(each)["id"] for each in part.records] == ["cellar", "garden", "attic"]


async def test_actions_are_invoked_now_and_later_each_way(native_inn: Open) -> None:
    for way in WAYS:
        async with asked(way, native_inn, "rooms-operations") as operations:
            actions = await operations.actions()
            found = await operations.invoke("rooms.get", {"id": "attic"}, timeout=5)
            told: list[Task] = []
            task = await operations.invoke(
                "rooms.create", {"id": f"new-{way}", "input": {"name": "New"}}, run_async=True, key=way
            )
            assert isinstance(task, Task)
            ended = await operations.wait(task, told.append, every=0.01)
            with pytest.raises(NwpError) as refusal:
                await operations.cancel(task.id)
            await native_inn.parts.store.items.write("rooms", [Remove(f"new-{way}")])

        assert "rooms.create" in actions
        assert isinstance(found, Answer)
        assert found.records[0]["name"] == "The attic"
        assert (ended.status, ended.progress, ended.result["name"]) == ("completed", 1.0, "New")
        assert refusal.value.error == "NWP-TASK-ALREADY-COMPLETED"


async def test_a_refusal_is_an_error_with_its_codes_each_way(native_inn: Open) -> None:
    for way in WAYS:
        async with asked(way, native_inn) as rooms:
            with pytest.raises(NwpError) as refusal:
                await rooms.query(filter={"beans": {"$lt": 1}})

        error = refusal.value
        assert (error.status, error.error) == ("NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FIELD-UNKNOWN")
        assert (error.details["field"], error.http_status) == ("beans", None if way == "native" else 400)
        assert "beans" in error.message
        assert error.request_id


async def test_changes_come_in_their_order_each_way_until_it_is_given_up(native_inn: Open) -> None:
    for way in WAYS:
        seen: list[Change] = []
        async with asked(way, native_inn) as rooms:
            feed = rooms.subscribe(filter={"price": {"$lt": 50}}, stream_id=f"feed-{way}")
            first = asyncio.ensure_future(anext(feed))
            await until_followed(rooms, f"feed-{way}")
            await write(native_inn, Put("hut", {"name": "The hut", "price": 10.0}))
            seen.append(await first)
            await write(native_inn, Put("hut", {"name": "The hut", "price": 12.0}), Remove("hut"))
            seen += [await anext(feed), await anext(feed)]
            await rooms.unsubscribe(f"feed-{way}")
            rest = [change async for change in feed]

        assert [(each.seq, each.kind, each.id) for each in seen] == [
            (1, "create", "hut"),
            (2, "update", "hut"),
            (3, "delete", "hut"),
        ]
        assert seen[0].record == {"id": "hut", "name": "The hut", "price": 10.0}
        assert seen[1].patch == ({"op": "replace", "path": "/price", "value": 12.0},)
        assert rest == []


async def test_who_takes_a_subscription_up_has_it_alone_each_way(native_inn: Open) -> None:
    for way in WAYS:
        async with asked(way, native_inn) as one, asked(way, native_inn) as other, asyncio.timeout(60):
            first = asyncio.ensure_future(anext(one.subscribe(stream_id=f"mine-{way}")))
            await until_followed(one, f"mine-{way}")
            second = asyncio.ensure_future(anext(other.subscribe(stream_id=f"mine-{way}", after=0)))
            with pytest.raises(NwpError) as interrupted:
                await first
            await write(native_inn, Put("hut", {"name": "The hut"}), Remove("hut"))

            assert (interrupted.value.error, interrupted.value.details["reason"]) == (
                "NWP-SUBSCRIBE-INTERRUPTED",
                "taken_over",
            )
            assert (await second).id == "hut"


async def write(inn: Open, *changes: Put | Remove) -> None:
    for change in changes:
        await inn.parts.store.items.write("rooms", [change])


async def until_followed(client: Node, id: str) -> None:
    while True:
        try:
            await client.ping(id)
        except NwpError:
            await asyncio.sleep(0.01)
        else:
            return


# Natively


async def test_a_lost_connection_is_opened_anew_and_a_subscription_goes_on(native_inn: Open) -> None:
    async with (
        passed_on(native_inn.ports.native) as (port, connections),
        await NativeNwpClient.connect(f"nwp://127.0.0.1:{port}/rooms") as rooms,
        asyncio.timeout(60),
    ):
        feed = rooms.subscribe(stream_id="lasting")
        first = asyncio.ensure_future(anext(feed))
        await until_followed(rooms, "lasting")
        await write(native_inn, Put("hut", {"name": "The hut"}))
        seen = [await first]
        for each in list(connections):
            each.transport.abort()
        await write(native_inn, Put("hut", {"name": "A hut"}), Remove("hut"))
        seen += [await anext(feed), await anext(feed)]
        await feed.aclose()

    assert [(each.seq, each.kind) for each in seen] == [(1, "create"), (2, "update"), (3, "delete")]


async def test_a_stream_that_is_not_read_on_holds_nothing_up(native_inn: Open) -> None:
    huts = [f"hut-{n:03}" for n in range(20)]
    await native_inn.parts.store.items.write("rooms", [Put(id, {"name": id}) for id in huts])
    async with asked("native", native_inn) as rooms:
        async with aclosing(rooms.stream(limit=1, order=["id"])) as parts:
            one = await anext(parts)
            beside = await asyncio.gather(*(rooms.query(filter={"beds": {"$eq": n}}) for n in (1, 2, 6)))
            others = [part.records[0]["id"] async for part in parts]
        async with aclosing(rooms.stream(limit=1)) as parts:
            await anext(parts)
        after = await rooms.query(limit=1)
    await native_inn.parts.store.items.write("rooms", [Remove(id) for id in huts])

    assert [answer.records[0]["id"] for answer in beside] == ["garden", "attic", "cellar"]
    assert [one.records[0]["id"], *others] == ["attic", "cellar", "garden", *huts]
    assert len(after.records) == 1


async def test_a_stream_that_comes_faster_than_it_is_read_is_halted() -> None:
    windows: list[int | None] = []
    halted = asyncio.Event()

    async def streaming(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with Native(reader, writer, EncodingTier.JSON) as agent:
            await agent.receive()
            query = await agent.ask(CapsFrame(anchor_ref="nps:system:caps", count=1, data=[{}]))
            for seq in range(41):
                if seq == 40:
                    windows.append((await agent.receive()).window_size)
                    halted.set()
                    windows.append((await agent.receive()).window_size)
                await agent.send(StreamFrame(stream_id=query.request_id, seq=seq, is_last=seq == 40, data=[seq]))

    async with await asyncio.start_server(streaming, "127.0.0.1", 0) as server, asyncio.timeout(60):
        port = server.sockets[0].getsockname()[1]
        async with await NativeNwpClient.connect(f"nwp://127.0.0.1:{port}") as node:
            parts = node.stream(anchor="known")
            first = await anext(parts)
            await halted.wait()
            rest = [part.records[0] async for part in parts]

    assert [first.records[0], *rest] == list(range(41))
    assert windows == [0, 2**31 - 1]


async def test_whoever_is_no_node_is_not_reached(native_inn: Open) -> None:
    with pytest.raises(NotReached):
        await NativeNwpClient.connect("nwp://127.0.0.1:1", timeout=2)
    with pytest.raises(NotReached, match="serves HTTP only"):
        await NativeNwpClient.connect(f"nwp://127.0.0.1:{native_inn.ports.http}", timeout=2)
    with pytest.raises(ValueError, match="nwp://"):
        await NativeNwpClient.connect("http://127.0.0.1:1")
    with pytest.raises(NwpError) as refusal:
        await NativeNwpClient.connect(f"nwp://127.0.0.1:{native_inn.ports.native}", ident={"nid": "urn:nps:agent:x:y"})
    assert refusal.value.status == "NPS-AUTH-UNAUTHENTICATED"


@asynccontextmanager
async def passed_on(port: int) -> AsyncIterator[tuple[int, set[asyncio.StreamWriter]]]:
    """A port before another one, and its connections, which can be broken."""
    connections: set[asyncio.StreamWriter] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        connections.update((writer, back))
        await asyncio.gather(carry(reader, back), carry(there, writer))

    server = await asyncio.start_server(taken, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], connections
        for each in connections:
            each.close()


# What a node of another make may do


def told(answers: list[httpx.Response], asked: list[httpx.Request] | None = None) -> NwpClient:
    """A node that answers in turn."""

    def answer(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(request)
        return answers.pop(0)

    return NwpClient("http://node.example", transport=httpx.MockTransport(answer))


@requirement("nwp:clients:manifest-kept")
async def test_the_manifest_is_kept_until_it_changes(native_inn: Open) -> None:
    async with asked("framed", native_inn) as rooms:
        known = await rooms.manifest()
        again = await rooms.manifest()
    one, two = ({"manifest_version": n, "node_type": "memory"} for n in ("1", "2"))
    asked_for: list[httpx.Request] = []
    async with told([httpx.Response(200, json=one), httpx.Response(200, json=two)], asked_for) as node:
        versions = [(await node.manifest()).version, (await node.manifest()).version]

    assert again is known
    assert (known.node_type, known.anchors.keys()) == ("memory", {"rooms"})
    assert versions == ["1", "2"]
    assert [request.headers.get("if-none-match") for request in asked_for] == [None, '"1"']


async def test_a_schema_under_another_name_is_refused(native_inn: Open) -> None:
    false = {"anchor_id": "sha256:" + "0" * 64, "schema": {"fields": [{"name": "id", "type": "string"}]}}
    async with told([httpx.Response(200, json=false)]) as node:
        with pytest.raises(BadAnswer, match="not the one"):
            await node.schema()


async def test_a_schema_that_changed_is_taken_over(native_inn: Open) -> None:
    async with asked("framed", native_inn) as rooms:
        before = await rooms.schema()
        await write(native_inn, Put("spa", {"name": "The spa", "price": 90.0, "sauna": True}))
        answer = await rooms.query(rows=True, filter={"sauna": {"$eq": True}})
        again = await rooms.query(rows=True, limit=1)
        with pytest.raises(NwpError) as refusal:
            await rooms.query(anchor=before.id, auto_anchor=False)
        await write(native_inn, Remove("spa"))

    assert answer.inline is not None
    assert answer.inline.id == answer.anchor != before.id
    assert [(row.id, row.sauna) for row in answer.records] == [("spa", True)]
    assert again.inline is None
    assert refusal.value.error == "NCP-ANCHOR-STALE"


def acknowledged(last: int = 0) -> CapsFrame:
    said = {"stream_id": "s", "status": "subscribed", "last_seq": last}
    return CapsFrame(anchor_ref="nps:system:subscribe:ack", count=1, data=[said])


def diff(seq: int, kind: str = "update") -> DiffFrame:
    return DiffFrame(anchor_ref="a", base_seq=seq - 1, patch=[], seq=seq, event_type=kind, entity_id="x")


def events(*frames: Frame) -> httpx.Response:
    body = b"".join(b"data: " + base64.b64encode(encode(each, EncodingTier.MSGPACK)) + b"\n\n" for each in frames)
    return httpx.Response(200, content=body, headers={"content-type": "text/event-stream"})


def resumed_from(request: httpx.Request) -> int | None:
    frame = decode(request.content)
    assert isinstance(frame, SubscribeFrame)
    return frame.resume_from_seq


@requirement("nwp:clients:gap")
async def test_a_gap_or_a_break_is_made_up_for_and_nothing_comes_twice() -> None:
    asked_for: list[httpx.Request] = []
    away = {"status": "NPS-SERVER-UNAVAILABLE", "error": "NWP-NODE-UNAVAILABLE"}
    interrupted = ErrorFrame(status="NPS-SERVER-UNAVAILABLE", error="NWP-SUBSCRIBE-INTERRUPTED")
    answers = [
        events(acknowledged(), diff(1), diff(3)),
        events(acknowledged(3), diff(1), diff(2), diff(3), interrupted),
        httpx.Response(503, json=away),
        events(acknowledged(3), diff(5, "ping")),
        events(acknowledged(5), diff(4), diff(5), diff(5, "ping")),
        httpx.Response(409, json={"status": "NPS-CLIENT-CONFLICT", "error": "NWP-SUBSCRIBE-SEQ-TOO-OLD"}),
        httpx.Response(404, json={"status": "NPS-CLIENT-NOT-FOUND", "error": "NWP-SUBSCRIBE-STREAM-NOT-FOUND"}),
    ]
    async with told(answers, asked_for) as node:
        feed = node.subscribe()
        seen = [(await anext(feed)).seq for _ in range(5)]
        with pytest.raises(FeedExpired) as end:
            await anext(feed)

    assert seen == [1, 2, 3, 4, 5]
    assert [resumed_from(request) for request in asked_for[:-1]] == [None, 1, 3, 3, 3, 5]
    assert (end.value.error, end.value.http_status) == ("NWP-SUBSCRIBE-SEQ-TOO-OLD", 409)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"\x04"),
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, json={"anchor_ref": "a"}),
        httpx.Response(200, json={"anchor_ref": "a", "count": 1, "data": {}}),
        httpx.Response(302, headers={"location": "http://elsewhere.example"}),
        httpx.Response(200, content=b'{"anchor_ref":"a","count":0,"data":[]}' + b" " * (9 << 20)),
    ],
)
async def test_what_is_not_nwp_is_a_bad_answer(answer: httpx.Response) -> None:
    async with told([answer]) as node:
        with pytest.raises(BadAnswer):
            await node.query()


async def test_a_server_that_is_none_of_nwp_is_told_by_its_status() -> None:
    async with told([httpx.Response(502, content=b"Bad gateway")]) as node:
        with pytest.raises(NwpError) as refusal:
            await node.query()

    assert (refusal.value.error, refusal.value.http_status) == ("HTTP_502", 502)


async def test_a_certificate_is_taken_in_every_form_that_one_has(tmp_path: Path) -> None:
    file, shown = tmp_path / "ann.json", {"nid": "urn:nps:agent:x:y"}
    file.write_text('{"nid": "urn:nps:agent:x:y"}\n')

    assert [certificate_of(each) for each in (shown, file, str(file), file.read_text(), file.read_bytes())] == [
        shown
    ] * 5
    with pytest.raises(ValueError, match="not a JSON object"):
        NwpClient("http://node.example", ident=b"[]")
    with pytest.raises(FileNotFoundError):
        NwpClient("http://node.example", ident=tmp_path / "bob.json")


async def test_credentials_are_shown_with_every_request() -> None:
    asked_for: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked_for.append(request)
        return httpx.Response(200, json={"anchor_ref": "a", "count": 0, "data": []})

    shown: Any = {"key": "secret", "ident": {"nid": "urn:nps:agent:x:y"}}
    async with NwpClient("nwp://node.example/rooms", transport=httpx.MockTransport(answer), **shown) as node:
        await node.query()

    [request] = asked_for
    assert str(request.url) == "http://node.example:17433/nwp/rooms/query"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["x-nwp-agent"] == "urn:nps:agent:x:y"
    assert base64.urlsafe_b64decode(request.headers["x-nwp-ident"] + "==") == b'{"nid":"urn:nps:agent:x:y"}'
