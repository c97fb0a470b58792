"""NWP over TCP and TLS, by agents with real connections."""

import asyncio
import socket
import ssl
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import soon
from tests.protocols.nwp.conftest import PREAMBLE, Native, Open, opened_inn, serving, tls_files

from portico.access.identity import RequestCredentials
from portico.access.nip.authority import SiteAuthority
from portico.errors import ConfigError, Unauthenticated, Unavailable
from portico.protocols import parse_config
from portico.protocols.nwp.frames import (
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    EncodingTier,
    ErrorFrame,
    Frame,
    FrameHeader,
    FrameType,
    HelloFrame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    decode,
    encode,
)
from portico.protocols.nwp.native import NativeTimeouts
from portico.protocols.nwp.sessions import FRAMES_AT_ONCE, NativeSession
from portico.protocols.nwp.tls import load_tls
from portico.query import Page, Query
from portico.requests import Caller
from portico.server.assembly import open_site
from portico.server.http import bind_listeners
from portico.site import Site
from portico.store.records import Put, Remove
from portico.subscriptions import Subscriptions
from portico.telemetry import TelemetryEvent, UnexpectedError

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = HelloFrame(nps_version="0.4", supported_encodings=["json"], supported_protocols=["nwp"])
BY_PRICE = {"order": [{"field": "price", "dir": "ASC"}], "fields": ["id"]}
IDS = [{"id": "cellar"}, {"id": "garden"}, {"id": "attic"}]


def asked(**said: Any) -> QueryFrame:
    """A query for the rooms by their price, and nothing of what lies behind them."""
    return msgspec.convert({"depth": 0, **BY_PRICE, **said}, QueryFrame, str_keys=True)


async def anchor_of(agent: Native) -> str:
    answer = await agent.ask(asked())
    assert isinstance(answer, CapsFrame)
    return answer.anchor_ref


async def error_of(agent: Native) -> str:
    answer = await agent.receive()
    assert isinstance(answer, ErrorFrame)
    return answer.error


async def closed(agent: Native) -> bytes:
    """What a server says before it leaves. One that leaves data unread resets the connection."""
    try:
        return await agent.last_words()
    except ConnectionResetError:
        return b""


# Beginning


@requirement("nwp:hello:answer", "nwp:hello:answer-flat", "nwp:native:preamble", "nwp:native:query")
@pytest.mark.parametrize("preamble", [False, True])
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_agents_of_both_generations_are_welcomed_and_ask(native_inn: Open, preamble: bool, encoding: str) -> None:
    async with await Native.open(native_inn.ports.native, [encoding], preamble) as agent:
        welcome = agent.said
        answer = await agent.ask(asked())

    assert agent.tier.token == encoding
    assert (welcome["node_id"], welcome["negotiated_encoding"]) == ("urn:nps:node:127.0.0.1:site", encoding)
    assert welcome["caps"] == ["nwp:query", "nwp:stream", "nwp:invoke"]
    assert welcome["data"][0]["session_version"] == "0.4"
    assert (answer.count, answer.data) == (3, IDS)


@requirement("nwp:hello:version-incompatible", "nwp:hello:encoding-none")
@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"min_version": "0.5"}, "NCP-VERSION-INCOMPATIBLE"),
        ({"encodings": ["cbor"]}, "NCP-ENCODING-UNSUPPORTED"),
        ({"max_frame_payload": -1}, "NCP-FRAME-UNKNOWN-TYPE"),
    ],
)
async def test_who_cannot_be_understood_is_told_why_and_left(
    native_inn: Open, said: dict[str, Any], error: str
) -> None:
    async with await Native.open(native_inn.ports.native, **said) as agent:
        assert agent.said["error"] == error
        assert await agent.last_words() == b""


@requirement("nwp:hello:first", "nwp:native:silent-close")
async def test_what_is_no_hello_is_left_without_a_word(native_inn: Open) -> None:
    hello = encode(HELLO, EncodingTier.JSON)
    large = encode(msgspec.structs.replace(HELLO, agent_id="x" * 20_000), EncodingTier.JSON)
    encrypted = FrameHeader(FrameType.HELLO, EncodingTier.JSON, 100, is_encrypted=True).encode()
    beginnings = [
        b"\x99\x04\x00\x02{}",
        b"\x16\x03\x01\x00\xa5\x01",  # TLS, where there is none
        b"GARBAGE IN\r\n",
        b"NPS/2.0\n" + hello,
        PREAMBLE + b"GET / HTTP/1.1\r\n\r\n",
        encode(asked(), EncodingTier.JSON),
        large,
        large[:4],
        encrypted,
        b"\x06\x02\x00\x02{}",  # a tier that nobody knows
    ]
    agents = [await Native.connect(native_inn.ports.native) for _ in beginnings]
    for agent, beginning in zip(agents, beginnings, strict=True):
        agent.writer.write(beginning)

    assert await asyncio.gather(*map(closed, agents)) == [b""] * len(beginnings)

    for agent in agents:
        await agent.close()


@requirement("nwp:native:http", "nwp:native:port", "nwp:nodes:mount")
async def test_http_on_the_native_port_tells_of_nodes(native_inn: Open) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{native_inn.ports.native}") as client:
        manifest = (await client.get("/nwp/rooms/.nwm")).json()
        schema = (await client.get("/nwp/rooms/.schema")).json()
        found = (await client.post("/nwp/rooms/query", json=msgspec.to_builtins(asked()))).json()

    assert manifest["endpoints"]["query"] == f"nwp://127.0.0.1:{native_inn.ports.native}/rooms/query"
    assert schema["anchor_id"] == manifest["schema_anchors"]["rooms"] == found["anchor_ref"]
    assert found["data"] == IDS


# Asking


@requirement("nwp:native:correlation")
async def test_answers_come_in_the_order_of_questions_or_with_their_ids(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native) as agent:
        limits = [1, 3, 2, 1, 3]
        await agent.send_raw(b"".join(encode(asked(limit=limit), EncodingTier.JSON) for limit in limits))
        in_order = [(await agent.receive()).count for _ in limits]
        named = {f"q-{limit}": limit for limit in (1, 2, 3)}
        await agent.send_raw(
            b"".join(encode(asked(limit=n, request_id=id), EncodingTier.MSGPACK) for id, n in named.items())
        )
        by_name = [await agent.receive() for _ in named]

    assert in_order == limits
    assert {each.request_id: each.count for each in by_name} == named


async def test_more_repeated_queries_than_run_at_once_are_all_answered(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native) as agent:
        anchor = native_inn.parts.site.catalog.collection("rooms").anchor_id
        by_price = msgspec.convert({**BY_PRICE, "anchor_ref": anchor, "limit": 2}, QueryFrame, str_keys=True)
        assert [(await agent.ask(by_price)).count for _ in range(10)] == [2] * 10
        await agent.send_raw(encode(by_price, agent.tier) * 37)
        assert [(await agent.receive()).count for _ in range(37)] == [2] * 37


@requirement("nwp:native:correlation")
async def test_a_repeated_query_is_answered_in_its_order_and_as_things_are_now(tmp_path: Path) -> None:
    limits = {"anonymous_per_minute": 60}
    async with (
        opened_inn(tmp_path, limits=limits) as parts,
        serving(parts) as ports,
        await Native.open(ports.native) as agent,
    ):
        by_price = msgspec.convert({**BY_PRICE, "anchor_ref": await anchor_of(agent)}, QueryFrame, str_keys=True)
        at_first = [(await agent.ask(by_price)).data for _ in range(5)]
        slow = ActionFrame(action_id="rooms.count")
        await agent.send_raw(b"".join(encode(each, agent.tier) for each in (by_price, slow, by_price)))
        in_order = [(await agent.receive()).data for _ in range(3)]
        await parts.store.items.write("rooms", [Put("loft", {"name": "The loft", "price": 5.0})])
        later = (await agent.ask(by_price)).data
        spent = [await agent.ask(by_price) for _ in range(60)]

    assert at_first == [IDS] * 5
    assert in_order == [IDS, [{"count": 3}], IDS]
    assert later == [{"id": "loft"}, *IDS]
    assert {each.error for each in spent if isinstance(each, ErrorFrame)} == {"NWP-RATE-LIMIT-EXCEEDED"}


async def test_a_frame_may_arrive_byte_by_byte_and_many_may_arrive_at_once(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native) as agent:
        for byte in encode(asked(limit=2), EncodingTier.MSGPACK):
            await agent.send_raw(bytes([byte]))
        assert (await agent.receive()).data == IDS[:2]
        await agent.send_raw(encode(asked(limit=1), EncodingTier.MSGPACK) * 200)
        assert [(await agent.receive()).count for _ in range(200)] == [1] * 200


@requirement("nwp:native:routing")
async def test_a_question_goes_to_the_node_of_its_schema_also_of_an_older_one(native_inn: Open) -> None:
    store = native_inn.parts.store
    async with await Native.open(native_inn.ports.native) as agent:
        await store.collections.declare(native_inn.parts.config.collection("books"))
        await store.items.write("books", [Put("b1", {"name": "Guests", "pages": 90})])
        manifest = await native_inn.parts.site.access.look_up(lambda: native_inn.parts.site.catalog.collection("books"))
        old = manifest.anchor_id
        known = await agent.ask(QueryFrame(anchor_ref=old, depth=0))
        await store.items.write("books", [Put("b2", {"name": "Guests", "shelf": "top"})])
        fresh = await agent.ask(QueryFrame(anchor_ref=old, depth=0, fields=["id"]))
        stale = await agent.ask(QueryFrame(anchor_ref=old, depth=0, auto_anchor=False))

    assert (known.anchor_ref, known.count, known.inline_anchor) == (old, 1, None)
    assert (fresh.count, fresh.anchor_ref) == (2, fresh.inline_anchor.anchor_id)
    assert stale.error == "NCP-ANCHOR-STALE"


@requirement("nwp:native:action")
async def test_actions_are_invoked_at_once_or_as_tasks(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native) as agent:
        listed = await agent.ask(ActionFrame(action_id="rooms.list", params={"limit": 1}, request_id="r1"))
        update = {"id": "attic", "input": {"beds": 2}}
        accepted = await agent.ask(ActionFrame(action_id="rooms.update", params=update, is_async=True))
        task = agent.said["task_id"]
        status = await agent.ask(ActionFrame(action_id="system.task.status", params={"task_id": task}))

    assert (listed.request_id, listed.count, len(listed.data[0]["items"])) == ("r1", 1, 1)
    assert isinstance(accepted, CapsFrame)
    assert accepted.data[0]["task_id"] == status.data[0]["task_id"] == task


@requirement("nwp:native:errors", "nwp:native:fields", "nwp:frames:unknown-type")
async def test_what_is_an_error_over_http_is_an_error_frame_and_talk_goes_on(native_inn: Open) -> None:
    wrong: dict[str, Frame] = {
        "NWP-QUERY-FIELD-UNKNOWN": asked(fields=["smell"]),
        "NWP-QUERY-FILTER-INVALID": asked(filter={"beds": {"$almost": 2}}),
        "NWP-QUERY-REGEX-UNSAFE": asked(filter={"name": {"$regex": "(a+)+$"}}),
        "NWP-QUERY-CURSOR-INVALID": asked(cursor="bm90aGluZw"),
        "NWP-QUERY-AGGREGATE-INVALID": asked(aggregate={"funcs": "all"}),
        "NWP-BUDGET-EXCEEDED": asked(token_budget=1),
        "NWP-DEPTH-EXCEEDED": asked(depth=6),
        "NCP-ANCHOR-NOT-FOUND": asked(anchor_ref="sha256:" + "0" * 64),
        "NWP-ACTION-NOT-FOUND": ActionFrame(action_id="rooms.paint"),
        "NWP-ACTION-PARAMS-INVALID": ActionFrame(action_id="rooms.list", params={"limit": "many"}),
        "NWP-TASK-NOT-FOUND": ActionFrame(action_id="system.task.status", params={"task_id": "none"}),
    }
    async with await Native.open(native_inn.ports.native) as agent:
        for code, frame in wrong.items():
            answer = await agent.ask(msgspec.structs.replace(frame, request_id=code))
            assert (answer.error, answer.request_id, answer.details["request_id"]) == (code, code, code)

        await agent.send_raw(
            b"\x77\x05\x00\x01\x80" + encode(HELLO, EncodingTier.JSON) + encode(_anchor(), EncodingTier.JSON)
        )
        bits = DiffFrame(anchor_ref="sha256:1", base_seq=0, patch=b"\x01", patch_format="binary_bitset")
        await agent.send_raw(encode(bits, EncodingTier.MSGPACK))
        assert [await error_of(agent) for _ in range(4)] == [
            "NCP-FRAME-UNKNOWN-TYPE",
            "NCP-FRAME-UNKNOWN-TYPE",
            "NCP-ANCHOR-ID-MISMATCH",
            "NCP-DIFF-FORMAT-UNSUPPORTED",
        ]
        unread = msgspec.json.encode({"limit": -1, "request_id": "negative"})
        await agent.send_raw(FrameHeader(FrameType.QUERY, EncodingTier.JSON, len(unread)).encode() + unread)
        assert (await agent.receive()).details["request_id"] == "negative"
        endless = SubscribeFrame(action="subscribe", stream_id="feed-0", resume_from_seq=1 << 70)
        await agent.send_raw(encode(endless, EncodingTier.JSON))
        refused = await agent.receive()
        assert (agent.tier, refused.details["stream_id"]) == (EncodingTier.MSGPACK, "feed-0")
        assert refused.status.startswith("NPS-CLIENT-")
        assert (await agent.ask(asked())).data == IDS


@requirement("nwp:errors:missing-ids")
@pytest.mark.parametrize(
    ("kind", "said", "error"),
    [
        (FrameType.QUERY, {"limit": -1}, "NWP-QUERY-FILTER-INVALID"),
        (FrameType.QUERY, {"cursor": 5}, "NWP-QUERY-CURSOR-INVALID"),
        (FrameType.ACTION, {"action_id": "rooms.list", "timeout_ms": "soon"}, "NWP-ACTION-PARAMS-INVALID"),
        (FrameType.ACTION, {"params": {}}, "NWP-ACTION-PARAMS-INVALID"),
        (FrameType.SUBSCRIBE, {"action": 5, "stream_id": "feed"}, "NPS-CLIENT-BAD-FRAME"),
        (FrameType.SUBSCRIBE, {"action": "subscribe"}, "NPS-CLIENT-BAD-FRAME"),
        (FrameType.SUBSCRIBE, {"action": "ping"}, "NWP-SUBSCRIBE-STREAM-NOT-FOUND"),
        (FrameType.SUBSCRIBE, {"action": "unsubscribe"}, "NWP-SUBSCRIBE-STREAM-NOT-FOUND"),
    ],
)
async def test_a_wrong_member_is_told_as_over_http(
    native_inn: Open, kind: FrameType, said: dict[str, Any], error: str
) -> None:
    async with (
        await Native.open(native_inn.ports.native) as agent,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{native_inn.ports.http}/nwp/site/") as client,
    ):
        payload = msgspec.json.encode(said)
        await agent.send_raw(FrameHeader(kind, EncodingTier.JSON, len(payload)).encode() + payload)
        below = {FrameType.QUERY: "query", FrameType.ACTION: "invoke", FrameType.SUBSCRIBE: "subscribe"}[kind]

        assert await error_of(agent) == error
        assert (await client.post(below, json=said)).json()["error"] == error


async def test_a_site_without_collections_has_nothing_to_query_or_to_stream(tmp_path: Path) -> None:
    settings = {"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}, "folder": str(tmp_path)}
    async with (
        open_site(parse_config(settings)) as parts,
        serving(parts) as ports,
        await Native.open(ports.native) as agent,
    ):
        refused = [await agent.ask(QueryFrame(depth=0, stream=stream)) for stream in (False, True)]

    assert [(each.status, each.error) for each in refused] == [("NPS-CLIENT-NOT-FOUND", "NPS-CLIENT-NOT-FOUND")] * 2


def _anchor() -> AnchorFrame:
    return AnchorFrame(anchor_id="sha256:1", schema={"fields": [{"name": "id", "type": "string"}]})


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (FrameHeader(FrameType.QUERY, EncodingTier.JSON, 5000).encode(), "NCP-FRAME-PAYLOAD-TOO-LARGE"),
        (
            FrameHeader(FrameType.QUERY, EncodingTier.JSON, 0xFFFFFFFF, is_extended=True).encode(),
            "NCP-FRAME-PAYLOAD-TOO-LARGE",
        ),
        (b"\x10\x06\x00\x02{}", "NCP-FRAME-FLAGS-INVALID"),
    ],
)
async def test_a_header_that_cannot_be_true_ends_the_session_before_anything_is_read(
    native_inn: Open, raw: bytes, error: str
) -> None:
    async with await Native.open(native_inn.ports.native, max_frame_payload=4096) as agent:
        await agent.send_raw(raw)

        assert await error_of(agent) == error
        assert await agent.last_words() == b""


# Streams and subscriptions


@requirement("nwp:frames:stream", "nwp:frames:stream-window")
async def test_a_reader_pauses_a_stream_and_lets_it_go_on(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native) as agent:
        window = StreamFrame(stream_id="s-1", seq=0, is_last=False, data=[], window_size=0)
        await agent.send_raw(
            encode(asked(stream=True, limit=1, request_id="s-1"), EncodingTier.JSON) + encode(window, EncodingTier.JSON)
        )
        between = await agent.ask(asked(limit=1, request_id="q-1"))
        await agent.send(msgspec.structs.replace(window, window_size=2))
        parts = [await agent.receive(), await agent.receive()]
        again = await agent.ask(asked(limit=1, request_id="q-2"))
        await agent.send(msgspec.structs.replace(window, window_size=100))
        parts.append(await agent.receive())

    assert (between.request_id, again.request_id) == ("q-1", "q-2")
    assert [(each.stream_id, each.seq, each.is_last, each.data) for each in parts] == [
        ("s-1", 0, False, IDS[:1]),
        ("s-1", 1, False, IDS[1:2]),
        ("s-1", 2, True, IDS[2:]),
    ]
    assert (parts[0].anchor_ref, parts[0].request_id) == (between.anchor_ref, "s-1")


@requirement("nwp:frames:stream-window", "nwp:stream:stop")
async def test_a_stream_that_waits_for_its_reader_is_ended_without_another_record(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native) as agent:
        window = StreamFrame(stream_id="s-2", seq=0, is_last=False, data=[], window_size=0)
        await agent.send_raw(
            encode(asked(stream=True, limit=1, request_id="s-2"), EncodingTier.JSON) + encode(window, EncodingTier.JSON)
        )
        await agent.ask(asked())
        await agent.send(SubscribeFrame(action="unsubscribe", stream_id="s-2"))
        heard = [await agent.receive() for _ in range(2)]
        await agent.send(window)  # too late to matter
        unknown = await agent.ask(msgspec.structs.replace(window, stream_id="s-3"))

    acknowledged = next(each for each in heard if isinstance(each, CapsFrame))
    assert acknowledged.data[0]["status"] == "unsubscribed"
    ends = [each for each in heard if isinstance(each, StreamFrame)]
    assert [(each.seq, each.is_last, each.data) for each in ends] == [(0, True, [])]
    assert (unknown.error, unknown.details["stream_id"]) == ("NCP-STREAM-NOT-FOUND", "s-3")


async def test_an_id_has_one_stream_at_a_time(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native) as agent:
        window = StreamFrame(stream_id="s-6", seq=0, is_last=False, data=[], window_size=0)
        stream = asked(stream=True, limit=2, request_id="s-6")
        await agent.send_raw(encode(stream, EncodingTier.JSON) + encode(window, EncodingTier.JSON))
        feed = SubscribeFrame(action="subscribe", stream_id="s-6", resume_from_seq=0)
        refused = [await agent.ask(stream), await agent.ask(feed)]
        await agent.send(msgspec.structs.replace(window, window_size=10))
        parts = [await agent.receive(), await agent.receive()]
        again = await agent.ask(asked(stream=True, limit=10, request_id="s-6"))

    assert [each.error for each in refused] == ["NCP-STREAM-LIMIT-EXCEEDED"] * 2
    assert [each.data for each in (*parts, again)] == [IDS[:2], IDS[2:], IDS]


async def test_a_subscription_that_runs_is_taken_up_in_its_place(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native, max_concurrent_streams=1) as agent:
        subscribe = SubscribeFrame(action="subscribe", stream_id="feed-4", anchor_ref=await anchor_of(agent))
        await agent.ask(subscribe)
        window = StreamFrame(stream_id="feed-4", seq=0, is_last=False, data=[], window_size=0)
        await agent.send(window)
        twice = await agent.ask(subscribe)
        await native_inn.parts.store.items.write("rooms", [Put("barn", {"name": "The barn"})])
        resumed = await agent.ask(msgspec.structs.replace(subscribe, resume_from_seq=0))
        change = await agent.receive()
        await agent.ask(SubscribeFrame(action="unsubscribe", stream_id="feed-4"))
        await native_inn.parts.store.items.write("rooms", [Remove("barn")])

    assert (twice.error, twice.details["stream_id"]) == ("NCP-STREAM-LIMIT-EXCEEDED", "feed-4")
    assert resumed.data[0]["resumed"]
    assert (change.seq, change.entity_id) == (1, "barn")


@requirement("nwp:errors:subscribe-interrupted")
async def test_who_follows_is_told_that_the_subscription_is_read_elsewhere_now(native_inn: Open) -> None:
    async with (
        await Native.open(native_inn.ports.native) as first,
        await Native.open(native_inn.ports.native) as second,
    ):
        subscribe = SubscribeFrame(action="subscribe", stream_id="feed-9", anchor_ref=await anchor_of(first))
        await first.ask(subscribe)
        taken = await second.ask(msgspec.structs.replace(subscribe, resume_from_seq=0))
        interrupted = await first.receive()
        await native_inn.parts.store.items.write("rooms", [Put("loft", {"name": "The loft"})])
        change = await second.receive()
        await second.ask(SubscribeFrame(action="unsubscribe", stream_id="feed-9"))
        rooms = await first.ask(asked(limit=1))
        await native_inn.parts.store.items.write("rooms", [Remove("loft")])

    assert taken.data[0]["resumed"]
    assert interrupted.error == "NWP-SUBSCRIBE-INTERRUPTED"
    assert interrupted.details == {"reason": "taken_over", "stream_id": "feed-9"}
    assert change.entity_id == "loft"
    assert rooms.count == 1


@requirement("nwp:native:subscribe", "nwp:frames:diff", "nwp:frames:stream-limit")
async def test_a_subscription_tells_of_changes_until_it_is_ended(native_inn: Open) -> None:
    async with await Native.open(native_inn.ports.native, max_concurrent_streams=1) as agent:
        anchor = await anchor_of(agent)
        subscribe = SubscribeFrame(action="subscribe", stream_id="feed-1", anchor_ref=anchor)
        acknowledged = await agent.ask(subscribe)
        await native_inn.parts.store.items.write("rooms", [Put("shed", {"name": "The shed"})])
        change = await agent.receive()
        full = await agent.ask(asked(stream=True, request_id="s-4"))
        alive = await agent.ask(SubscribeFrame(action="ping", stream_id="feed-1"))
        ended = await agent.ask(SubscribeFrame(action="unsubscribe", stream_id="feed-1"))
        gone = await agent.ask(SubscribeFrame(action="ping", stream_id="feed-1"))
        await native_inn.parts.store.items.write("rooms", [Remove("shed")])
        streamed = await agent.ask(asked(stream=True, limit=100))

    assert acknowledged.data[0]["status"] == "subscribed"
    assert isinstance(change, DiffFrame)
    assert (change.stream_id, change.seq, change.event_type, change.entity_id) == ("feed-1", 1, "create", "shed")
    assert (full.error, full.details["request_id"]) == ("NCP-STREAM-LIMIT-EXCEEDED", "s-4")
    assert [each.data[0]["status"] for each in (alive, ended)] == ["alive", "unsubscribed"]
    assert (gone.error, gone.details["stream_id"]) == ("NWP-SUBSCRIBE-STREAM-NOT-FOUND", "feed-1")
    assert streamed.is_last


async def test_who_leaves_leaves_no_work_behind(native_inn: Open) -> None:
    before = asyncio.all_tasks()
    agent = await Native.open(native_inn.ports.native)
    await agent.ask(SubscribeFrame(action="subscribe", stream_id="feed-2"))
    begun = asyncio.all_tasks() - before
    assert begun

    await agent.close()

    async with asyncio.timeout(10):
        await asyncio.wait(begun)


# Who asks


@requirement("nwp:native:identity", "nwp:identity:every-request", "nwp:identity:bare-name")
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_a_certificate_is_bound_to_its_connection(tmp_path: Path, encoding: str) -> None:
    async with opened_inn(tmp_path, nwp={"auth": "nip-cert", "min_version": "0.3"}) as parts, serving(parts) as ports:
        issued = await SiteAuthority(parts.config, parts.store).issue(
            "ann", capabilities=["nwp:query"], nodes=[f"nwp://127.0.0.1:{ports.native}/rooms"], scopes=["read:*"]
        )
        certificate = dict(issued.certificate)
        old = await Native.open(ports.native, nps_version="0.2")
        async with await Native.open(ports.native, [encoding], agent_id=certificate["nid"]) as agent:
            anchor = parts.site.catalog.collection("rooms").anchor_id
            nobody = await agent.ask(asked(anchor_ref=anchor))
            await agent.send_raw(_ident({**certificate, "nid": f"{certificate['nid']}x"}, agent.tier))
            forged = await agent.receive()
            strange = {"nid": certificate["nid"], "signature": msgspec.msgpack.Ext(7, b"")}
            await agent.send_raw(_ident(strange, EncodingTier.MSGPACK))
            unread = await agent.receive()
            still_nobody = await agent.ask(asked(anchor_ref=anchor))
            # The question is not read before the certificate is known to be good.
            await agent.send_raw(_ident(certificate, agent.tier) + encode(asked(anchor_ref=anchor), agent.tier))
            accepted, known = await agent.receive(), await agent.receive()
            elsewhere = await agent.ask(asked())
        async with await Native.open(ports.native) as another:
            stranger = await another.ask(asked(anchor_ref=anchor))
        await old.close()

    untrusted = "NWP-AUTH-NID-UNTRUSTED-ISSUER"
    assert old.said["error"] == "NWP-MANIFEST-VERSION-UNSUPPORTED"
    assert [each.error for each in (nobody, forged, still_nobody, stranger)] == [untrusted] * 4
    assert unread.error == "NCP-FRAME-UNKNOWN-TYPE"
    assert (accepted.anchor_ref, accepted.data[0]["nid"]) == ("nps:system:ident:ack", certificate["nid"])
    assert known.data == IDS
    assert elsewhere.error == "NWP-AUTH-NID-SCOPE-VIOLATION"


@requirement("nwp:native:routing", "nwp:identity:every-request")
async def test_a_frame_goes_to_a_node_that_the_certificate_covers(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp={"auth": "nip-cert"}) as parts, serving(parts) as ports:
        authority = SiteAuthority(parts.config, parts.store)

        async def holder(*nodes: str) -> Native:
            issued = await authority.issue(
                *("ann",), nodes=[f"nwp://127.0.0.1/{each}" for each in nodes], scopes=["read:*", "execute:*"]
            )
            agent = await Native.open(ports.native, ["json"])
            await agent.send_raw(_ident(dict(issued.certificate), agent.tier))
            await agent.receive()
            return agent

        anchor = parts.site.catalog.collection("rooms").anchor_id
        async with await holder("rooms-operations") as agent:
            counted = await agent.ask(ActionFrame(action_id="rooms.count"))
            foreign = await agent.ask(ActionFrame(action_id="site.ask", params={"text": "rooms"}))
        async with await holder("rooms") as agent:
            followed = SubscribeFrame(action="subscribe", stream_id="s-1", anchor_ref=anchor)
            opened = await agent.ask(followed)
            told = [
                (await agent.ask(SubscribeFrame(action=action, stream_id="s-1"))).data[0]["status"]
                for action in ("ping", "unsubscribe")
            ]
        async with await holder("gateway") as agent:
            steps = {"nodes": [{"id": "a", "action": "rooms.count"}], "edges": []}
            begun = await agent.ask(TaskFrame(task_id="t-1", dag=steps))
            asked_for = ActionFrame(action_id="system.task.status", params={"task_id": begun.data[0]["task_id"]})
            status = await agent.ask(asked_for)

    assert counted.data == [{"count": 3}]
    assert foreign.error == "NWP-AUTH-NID-SCOPE-VIOLATION"
    assert [opened.data[0]["status"], *told] == ["subscribed", "alive", "unsubscribed"]
    assert status.data[0]["task_id"] == begun.data[0]["task_id"]


@requirement("nwp:identity:every-request")
async def test_a_certificate_that_is_revoked_or_expires_ends_in_a_session_too(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp={"auth": "nip-cert"}) as parts, serving(parts) as ports:
        authority = SiteAuthority(parts.config, parts.store)
        told: list[list[str]] = []
        for days in (1, 4 / 86400):
            async with await Native.open(ports.native, ["json"]) as agent:
                each = await authority.issue("ann", scopes=["read:*"], days=days)
                await agent.send_raw(_ident(dict(each.certificate), agent.tier))
                await agent.receive()
                first = await agent.ask(asked())
                if days == 1:
                    await parts.store.keys.revoke(each.key.id, datetime.now(UTC))
                else:
                    await asyncio.sleep(max((each.key.expires - datetime.now(UTC)).total_seconds(), 0))
                then = await agent.ask(asked())
                told.append([getattr(answer, "error", "") for answer in (first, then)])

    assert told == [["", "NWP-AUTH-NID-REVOKED"], ["", "NWP-AUTH-NID-EXPIRED"]]


async def test_frames_that_need_no_answer_leave_others_their_turn(
    native_inn: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = encode(ErrorFrame(status="NPS-OK", error="none"), EncodingTier.JSON)
    usual, runs = NativeSession._receive, [0]

    def take(self: NativeSession, header: FrameHeader, payload: bytes) -> None:
        runs[-1] += 1
        usual(self, header, payload)

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            runs.append(0)

    monkeypatch.setattr(NativeSession, "_receive", take)
    async with await Native.open(native_inn.ports.native, ["json"]) as agent:
        waiting = asyncio.create_task(others())
        await agent.send_raw(told * 4000 + encode(asked(limit=1), EncodingTier.JSON))
        assert (await agent.receive()).count == 1
        waiting.cancel()

    assert sum(runs) == 4001
    assert max(runs) <= 2 * FRAMES_AT_ONCE  # of what has just arrived, and of what was there


@requirement("nwp:identity:every-request")
async def test_what_a_certificate_began_ends_with_it(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp={"auth": "nip-cert"}) as parts:
        issued = await SiteAuthority(parts.config, parts.store).issue("ann", scopes=["read:*"])
        shown = RequestCredentials(certificate=msgspec.json.encode(issued.certificate))
        caller = await parts.site.access.authenticate(shown)
        assert await parts.site.identity.refresh(caller) == caller
        await parts.store.keys.revoke(issued.key.id, datetime.now(UTC))
        with pytest.raises(Unauthenticated, match="certificate"):
            await parts.site.identity.refresh(caller)


@pytest.mark.parametrize(
    "frame",
    [
        b'\x20{"nid": 5}',
        b'\x03{"stream_id": "s", "seq": 0, "is_last": false, "data": [], "window_size": "lots"}',
        b'\x01{"anchor_id": 5, "schema": {}}',
    ],
)
async def test_a_wrong_member_of_what_is_no_question_is_a_bad_frame(native_inn: Open, frame: bytes) -> None:
    broken = b'{"status": 5}'
    async with await Native.open(native_inn.ports.native, ["json"]) as agent:
        await agent.send_raw(
            FrameHeader(FrameType.ERROR, EncodingTier.JSON, len(broken)).encode() + broken
        )  # to which nothing is said
        await agent.send_raw(FrameHeader(frame[0], EncodingTier.JSON, len(frame) - 1).encode() + frame[1:])
        told = await agent.receive()

    assert (told.status, told.error) == ("NPS-CLIENT-BAD-FRAME", "NCP-FRAME-UNKNOWN-TYPE")


def _ident(certificate: dict[str, Any], tier: EncodingTier) -> bytes:
    payload = (msgspec.json if tier == EncodingTier.JSON else msgspec.msgpack).encode(certificate)
    return FrameHeader(FrameType.IDENT, tier, len(payload)).encode() + payload


# Patience, room, and the end


@dataclass
class Broken:
    """A site whose queries run into a defect; in all else it is the site it stands before."""

    site: Site

    def __getattr__(self, name: str) -> Any:
        return getattr(self.site, name)

    async def query(self, query: Query, caller: Caller) -> Page:
        raise ZeroDivisionError


async def test_a_defect_is_told_to_the_operator_and_the_talk_goes_on(tmp_path: Path) -> None:
    seen: list[TelemetryEvent] = []
    async with opened_inn(tmp_path) as parts:
        broken = replace(parts, site=Broken(parts.site), record=seen.append)
        async with serving(broken) as ports, await Native.open(ports.native) as agent:
            in_order, named = await agent.ask(asked()), await agent.ask(asked(request_id="q-3"))
            listed = await agent.ask(ActionFrame(action_id="rooms.count"))

    assert seen == [UnexpectedError("native", "ZeroDivisionError")] * 2
    assert [(each.status, each.message) for each in (in_order, named)] == [
        ("NPS-SERVER-INTERNAL", "The server failed")
    ] * 2
    assert named.details == {"request_id": "q-3"}
    assert isinstance(listed, CapsFrame)


@requirement("nwp:hello:deadline")
async def test_nobody_is_waited_for_without_end(tmp_path: Path) -> None:
    patience = NativeTimeouts(hello=0.05, preamble=0.1, idle=0.05)
    async with opened_inn(tmp_path) as parts, serving(parts, patience) as ports:
        begun = [b"", encode(HELLO, EncodingTier.JSON)[:10], b"NPS/", PREAMBLE]
        agents = [await Native.connect(ports.native) for _ in begun]
        for agent, raw in zip(agents, begun, strict=True):
            agent.writer.write(raw)
        told = [decode(each) for each in await asyncio.gather(*(agent.last_words() for agent in agents))]
        idle = await Native.open(ports.native)
        assert await idle.last_words() == b""
        for agent in (*agents, idle):
            await agent.close()

    assert [(each.status, each.message) for each in told] == [
        ("NPS-SERVER-TIMEOUT", "No HelloFrame arrived in time")
    ] * len(begun)


async def test_a_frame_that_is_never_whole_ends_its_connection(tmp_path: Path) -> None:
    async with opened_inn(tmp_path) as parts, serving(parts, NativeTimeouts(frame=0.1)) as ports:
        slow, quiet = await Native.open(ports.native), await Native.open(ports.native)
        slow.writer.write(encode(QueryFrame(limit=1), EncodingTier.JSON)[:-1])
        assert await slow.last_words() == b""
        answer = await quiet.ask(QueryFrame(limit=1))
        for agent in (slow, quiet):
            await agent.close()

    assert isinstance(answer, CapsFrame)


async def test_who_follows_is_told_that_there_is_nothing_or_is_left(tmp_path: Path) -> None:
    async with opened_inn(tmp_path) as parts, serving(parts, NativeTimeouts(idle=1)) as ports:
        reading, paused = await Native.open(ports.native), await Native.open(ports.native)
        for agent in (reading, paused):
            await agent.ask(SubscribeFrame(action="subscribe", stream_id=str(id(agent)), heartbeat_interval=0))
        await paused.send(StreamFrame(stream_id=str(id(paused)), seq=0, is_last=False, data=[], window_size=0))
        told = [await reading.receive() for _ in range(3)]  # for longer than anybody may say nothing
        left = await paused.last_words()
        for agent in (reading, paused):
            await agent.close()

    assert [(each.event_type, each.seq) for each in told] == [("ping", 0)] * 3
    assert left == b""


@requirement("nwp:native:connections")
async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, limits={"connections": 2}) as parts, serving(parts) as ports:
        first, second = await Native.open(ports.native), await Native.connect(ports.native)
        third = await Native.connect(ports.native)
        assert await closed(third) == b""
        await first.close()
        async with asyncio.timeout(10):
            while not await _is_let_in(ports.native):  # it takes a moment until the server sees that one has left
                await asyncio.sleep(0.01)
        await second.close()
        await third.close()


@requirement("nwp:native:connections")
async def test_connections_of_one_address_are_bounded_and_others_are_let_in(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, limits={"connections_per_address": 2}) as parts, serving(parts) as ports:
        agents = [await Native.connect(ports.native) for _ in range(2)]
        third = await Native.connect(ports.native)
        assert await closed(third) == b""
        assert await _is_let_in(ports.native, "127.0.0.2")
        for agent in (*agents, third):
            await agent.close()


async def test_streams_of_one_address_are_bounded_over_all_its_connections(tmp_path: Path) -> None:
    subscribe = SubscribeFrame(action="subscribe", stream_id="feed-1")
    async with opened_inn(tmp_path, limits={"streams_per_address": 1}) as parts, serving(parts) as ports:
        first, second = await Native.open(ports.native), await Native.open(ports.native)
        opened = await first.ask(subscribe)
        refused = await second.ask(msgspec.structs.replace(subscribe, stream_id="feed-2"))
        resumed = await first.ask(msgspec.structs.replace(subscribe, resume_from_seq=0))
        refused_again = await second.ask(msgspec.structs.replace(subscribe, stream_id="feed-3"))
        await first.close()
        async with asyncio.timeout(10):
            while isinstance(await second.ask(msgspec.structs.replace(subscribe, stream_id="feed-4")), ErrorFrame):
                await asyncio.sleep(0.01)
        await second.close()

    assert (opened.data[0]["status"], resumed.data[0]["resumed"]) == ("subscribed", True)
    assert [each.error for each in (refused, refused_again)] == ["NCP-STREAM-LIMIT-EXCEEDED"] * 2
    assert refused.details["limit"] == 1


async def _is_let_in(port: int, address: str = "127.0.0.1") -> bool:
    agent = await Native.connect(port, address=address)
    agent.writer.write(encode(HELLO, EncodingTier.JSON))
    try:
        return bool(await agent.reader.read(1))
    except ConnectionResetError:
        return False
    finally:
        await agent.close()


async def test_who_does_not_read_is_left(tmp_path: Path) -> None:
    async with opened_inn(tmp_path) as parts, serving(parts, NativeTimeouts(reading=0.1)) as ports:
        await parts.store.items.write("rooms", [Put("hall", {"name": "The hall", "description": "x" * 50_000})])
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", ports.native))
        _, writer = await asyncio.open_connection(sock=connection, limit=1024)
        question = encode(QueryFrame(depth=0), EncodingTier.JSON)
        writer.write(encode(HELLO, EncodingTier.JSON) + question * 400)

        async with asyncio.timeout(10):
            while not writer.is_closing():  # only who writes is told that nobody is there
                writer.write(question)
                await asyncio.sleep(0.05)


@dataclass
class Slow:
    """A site that answers queries once it is told to stop; in all else it is the site it stands before."""

    site: Site

    def __post_init__(self) -> None:
        self.asked = asyncio.Event()
        self.stopping = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.site, name)

    async def query(self, query: Query, caller: Caller) -> Page:
        self.asked.set()
        await self.stopping.wait()
        return await self.site.query(query, caller)

    @property
    def subscriptions(self) -> "Closing":
        return Closing(self.site.subscriptions, self.stopping)


@dataclass
class Closing:
    """The subscriptions of a site, which tell when they are closed."""

    own: Subscriptions
    closed: asyncio.Event

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    async def close(self) -> None:
        self.closed.set()
        await self.own.close()


@requirement("nwp:native:drain")
async def test_a_server_that_stops_finishes_what_was_asked(tmp_path: Path) -> None:
    async with opened_inn(tmp_path) as parts:
        site = Slow(parts.site)
        async with serving(replace(parts, site=site)) as ports:
            agent = await Native.open(ports.native)
            await agent.send_raw(encode(asked(limit=1), EncodingTier.JSON) + encode(asked(limit=2), EncodingTier.JSON))
            await soon(site.asked)
        found = [(await agent.receive()).data, (await agent.receive()).data]
        assert await agent.last_words() == b""
        await agent.close()

    assert found == [IDS[:1], IDS[:2]]


@requirement("nwp:native:drain")
async def test_a_server_that_stops_ends_what_goes_on(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with opened_inn(tmp_path) as parts:
        async with serving(parts, NativeTimeouts(drain=0.2)) as ports:
            feed = await Native.open(ports.native, ["json"])
            await feed.ask(SubscribeFrame(action="subscribe", stream_id="feed-3"))
            paused = await Native.open(ports.native, ["json"])
            window = StreamFrame(stream_id="s-5", seq=0, is_last=False, data=[], window_size=1)
            await paused.send_raw(
                encode(asked(stream=True, limit=1, request_id="s-5"), EncodingTier.JSON)
                + encode(window, EncodingTier.JSON)
            )
            await paused.receive()
            silent = await Native.connect(ports.native)
        interrupted, cut = await feed.receive(), await paused.receive()
        assert [await closed(each) for each in (feed, paused, silent)] == [b""] * 3
        for each in (feed, paused, silent):
            await each.close()

    assert (interrupted.error, interrupted.details) == ("NWP-SUBSCRIBE-INTERRUPTED", {"stream_id": "feed-3"})
    assert (cut.stream_id, cut.seq, cut.is_last, cut.error_code) == ("s-5", 1, True, "NWP-NODE-UNAVAILABLE")
    async with asyncio.timeout(60):  # those that end may still be at it
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)


# TLS and listening


@requirement("nwp:native:tls")
async def test_the_native_port_speaks_tls_where_there_is_a_certificate(tmp_path: Path) -> None:
    certificate = tls_files(tmp_path)
    trusting = ssl.create_default_context(cafile=tmp_path / "inn.pem")
    async with opened_inn(tmp_path, nwp=certificate) as parts, serving(parts, NativeTimeouts(hello=2)) as ports:
        async with await Native.open(ports.native, tls=trusting) as secured:
            found = await secured.ask(asked())
        async with httpx.AsyncClient(verify=trusting) as client:
            manifest = (await client.get(f"https://localhost:{ports.native}/nwp/rooms/.nwm")).json()
        async with await Native.open(ports.native) as plain:
            found_plainly = await plain.ask(asked())
        broken = await Native.connect(ports.native)
        await broken.send_raw(b"\x16nothing like it")
        await closed(broken)
        await broken.close()

    assert found.data == found_plainly.data == IDS
    assert manifest["node_id"] == "urn:nps:node:localhost:rooms"


async def test_a_certificate_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp={**tls_files(tmp_path), "tls_key": "none.pem"}) as parts:
        with pytest.raises(ConfigError, match="tls_certificate"):
            load_tls(parts.config)


async def test_a_native_port_that_is_taken_is_told_with_the_option_that_chooses_another(native_inn: Open) -> None:
    taken = msgspec.structs.replace(native_inn.parts.config.server, port=0, nwp_port=native_inn.ports.native)

    with pytest.raises(Unavailable, match="--nwp-port"):
        bind_listeners(msgspec.structs.replace(native_inn.parts.config, server=taken))
