"""Bytes that nobody should send, thousands of them: every one is answered in good form, and the node goes on."""

import asyncio
import json
import resource
import string
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp
from tests.conformance.requirements import requirement
from tests.protocols.nwp.agents import HERE
from tests.protocols.nwp.conftest import PREAMBLE, Native, Ports, opened_inn, serving

from portico.protocols.nwp.errors import CODES, FRAME_CODES, STATUSES, WORKFLOW_CODES
from portico.protocols.nwp.frames import (
    FRAMES,
    LARGEST,
    EncodingTier,
    Frame,
    FrameError,
    FrameHeader,
    HelloFrame,
    QueryFrame,
    decode,
    decode_as,
    encode,
    encode_value,
    read_header,
)
from portico.protocols.nwp.native import NativeTimeouts
from portico.server.assembly import Parts
from portico.server.http import application
from portico.store.records import Put, Remove

OVER_HTTP = 4_500
NATIVELY = 5_300
DRAWN = 100  # by each property
PROPERTIES = 3
SEED = 20_040

assert OVER_HTTP + NATIVELY + DRAWN * PROPERTIES >= 10_000

SECONDS = 60  # that a request may take, on a slow day
GROWTH = 192 << 20  # bytes that the process may grow by, with all that it keeps of what it read
DEEP = 10_000

# Besides those that errors are translated to.
OTHER_CODES = {
    "NCP-FRAME-FLAGS-INVALID",
    "NCP-ENC-NOT-NEGOTIATED",
    "NCP-ANCHOR-SCHEMA-INVALID",
    "NCP-VERSION-INCOMPATIBLE",
    "NCP-ENCODING-UNSUPPORTED",
}
KNOWN = {code.error for code in (*CODES.values(), *WORKFLOW_CODES.values())} | set(FRAME_CODES) | OTHER_CODES
# What a node does not do, and an action that was given no time: said on purpose, and by their codes.
SERVER_SIDE = {501, 504}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Served:
    parts: Parts
    app: ASGIApp
    ports: Ports


@asynccontextmanager
async def serving_anybody(folder: Path, patience: NativeTimeouts | None = None) -> AsyncIterator[Served]:
    """An inn where anybody may do everything, as often as they like."""
    said = {
        "operations": [HERE],
        "anonymous": {"scopes": ["ask", "*:*"], "danger": "dangerous"},
        "limits": {"anonymous_per_minute": 100_000_000, "tasks_per_caller": 10_000},
    }
    async with opened_inn(folder, **said) as parts, serving(parts, patience) as ports:
        yield Served(parts, application(parts), ports)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving_anybody(tmp_path_factory.mktemp("inn")) as served:
        yield served


# Requests

BEGINNINGS: tuple[dict[str, Any], ...] = (
    {"fields": ["name", "price"], "limit": 2, "depth": 0},
    {"filter": {"price": {"$gt": 20, "$lte": 60.5}}, "order": [{"field": "price", "dir": "DESC"}], "depth": 0},
    {"filter": {"$or": [{"name": {"$regex": "^The"}}, {"$not": {"beds": {"$in": [1, 2]}}}]}, "depth": 0},
    {"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}], "group_by": ["beds"]}, "depth": 0},
    {"vector_search": {"vector": [0.1, 0.2], "top_k": 3, "threshold": 0.5, "metric": "cosine"}, "depth": 0},
    {"anchor_ref": "sha256:" + "0" * 64, "auto_anchor": False, "token_budget": 5, "tokenizer": "cl100k_base"},
    {"stream": True, "cursor": "eyJhdCI6MX0", "request_id": "6b0cb4a2-6f3c-4b0e-9df5-0d4c3c1f7a11"},
)
ACTIONS: tuple[dict[str, Any], ...] = (
    {"action_id": "rooms.list", "params": {"limit": 2}, "timeout_ms": 2000},
    {"action_id": "rooms.get", "params": {"id": "attic"}, "idempotency_key": "k", "priority": "high"},
    {"action_id": "site.reserve_room", "params": {"room": "attic", "nights": 2}, "async": False},
    {"action_id": "system.task.status", "params": {"task_id": "t"}, "callback_url": "https://example.com/x"},
    {"action_id": "site.close_house", "params": {}, "async": True, "request_id": "r"},
)
TASKS: tuple[dict[str, Any], ...] = (
    {
        "task_id": "t-1",
        "dag": {
            "nodes": [
                {"id": "a", "action": "rooms.list", "params": {"limit": 1}},
                {"id": "b", "action": "rooms.get", "input_from": ["a"], "input_mapping": {"id": "$.a.items[0].id"}},
            ],
            "edges": [{"from": "a", "to": "b"}],
        },
        "timeout_ms": 100,
        "context": {"trace_id": "0" * 31 + "1"},
    },
)
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"action": "subscribe", "stream_id": "s", "filter": {"price": {"$lt": 50}}, "heartbeat_interval": 1},
    {"action": "subscribe", "stream_id": "s", "resume_from_seq": 3},
    {"action": "unsubscribe", "stream_id": "s"},
    {"action": "ping", "stream_id": "s"},
)
OTHERS: Mapping[int, tuple[dict[str, Any], ...]] = {
    0x01: ({"anchor_id": "sha256:0", "schema": {"fields": [{"name": "a", "type": "string"}]}},),
    0x02: ({"anchor_ref": "a", "base_seq": 1, "patch": [{"op": "add", "path": ""}]},),
    0x03: ({"stream_id": "s", "seq": 0, "is_last": False, "data": [], "window_size": 1},),
    0x04: ({"anchor_ref": "a", "count": 1, "data": [{}]},),
    0x06: ({"nps_version": "0.4", "supported_encodings": ["json"], "supported_protocols": ["nwp"]},),
    0x20: ({"nid": "urn:nps:agent:a.example:b", "pub_key": "ed25519:AAAA", "scope": {"nodes": ["*"]}},),
    0xFE: ({"status": "NPS-SERVER-INTERNAL", "error": "NWP-NODE-UNAVAILABLE", "details": {}},),
}
PAYLOADS: Mapping[int, tuple[dict[str, Any], ...]] = {
    0x10: BEGINNINGS,
    0x11: ACTIONS,
    0x12: SUBSCRIPTIONS,
    0x40: TASKS,
    **OTHERS,
}
PATHS: tuple[tuple[int, str], ...] = (
    (0x10, "rooms/query"),
    (0x10, "site/query"),
    (0x10, "rooms/stream"),
    (0x11, "operations/invoke"),
    (0x11, "rooms-operations/invoke"),
    (0x11, "gateway/invoke"),
    (0x40, "gateway/invoke"),
    (0x12, "rooms/subscribe"),
)

# In place of what a member should be. The last ones only MessagePack can say.
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.0,
    -0.0,
    1e308,
    2**31,
    2**53 + 1,
    2**63,
    2**64 - 1,
    -(2**63),
    "",
    "\x00",
    "a\r\nx-forged: 1",
    "\u202e\ufeff\U0010ffff",
    "x" * 5000,
    "9" * 400,
    "$where",
    "../../etc/passwd",
    "' OR 1=1 --",
    [],
    {},
    [[]],
    [None],
    [{}] * 200,
    ["x"] * 3000,
    {"": ""},
    {"$eq": 1},
    {"$and": []},
    {"$not": {"$not": {"$not": {}}}},
    {"name": {"$regex": "(a+)+$"}},
    {"name": {"$regex": "[" * 200}},
    {"price": {"$between": [1, "x"]}},
    {"price": {"$in": list(range(2000))}},
    {"beds": {"$eq": 2**64 - 1}},
    {"x" * 300: {"$eq": 1}},
    {"__class__.__init__": {"$exists": True}},
)
ODD_BYTES: tuple[Any, ...] = (
    b"\xff\xfe",
    datetime(2026, 1, 1, tzinfo=UTC),
    msgspec.msgpack.Ext(5, b"x" * 40),
    {1: 2},
    {None: 1},
    {(1, 2): 3},
)
# What no encoder writes.
TEXTS: tuple[bytes, ...] = (
    b"",
    b" ",
    b"null",
    b"NaN",
    b"[" * DEEP,
    b'{"filter":' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"filter":' + b'{"$not":' * DEEP + b"{}" + b"}" * DEEP + b"}",
    b'{"params":' * DEEP,
    b'{"aggregate":' + b'{"having":' * 500 + b"{}" + b"}" * 501,
    b'{"filter":{"price":{"$gt":NaN}}}',
    b'{"filter":{"price":{"$gt":-Infinity}}}',
    b'{"filter":{"price":{"$gt":1e999}}}',
    b'{"filter":{"price":{"$gt":' + b"9" * 4000 + b"}}}",
    b'{"filter":{"price":{"$gt":' + b"9" * 40 + b"}}}",
    b'{"filter":{"price":{"$gt":' + b"9" * 50_000 + b"}}}",
    b'{"limit":' + b"9" * 40 + b"}",
    b'{"action":"subscribe","stream_id":"s","filter":{"price":{"$gt":' + b"9" * 40 + b"}}}",
    b'{"action_id":"rooms.list","params":{"limit":' + b"9" * 40 + b"}}",
    b'{"action_id":"site.close_house","async":true,"params":{"x":' + b"9" * 40 + b"}}",
    b'{"task_id":"x","dag":{"nodes":[{"id":"a","action":"rooms.list","timeout_ms":' + b"9" * 40 + b"}]}}",
    b'{"filter":{"name":{"$eq":"\\ud800"}}}',
    b'{"filter":{"name":{"$eq":"\\ud800\\u0041"}}}',
    b'{"filter":{"name":{"$eq":"\xed\xa0\x80"}}}',
    b'{"filter":{"name":{"$eq":"\\u0000"}}}',
    b'{"request_id":"\\r\\nx: y"}',
    b'{"filter":{"' + b"k" * 100_000 + b'":{"$eq":1}}}',
    b'{"limit":1,"limit":2,"limit":"x"}',
    b'{"filter":{},"filter":[]}',
    b'{"frame":"0x10"}{"frame":"0x10"}',
    b'\xef\xbb\xbf{"limit":1}',
    b'{"limit":1}\x00',
    b'{"a":' * 50,
    b'{"fields":["' + b'","'.join([b"name"] * 20_000) + b'"]}',
    b'{"order":[' + b",".join([b'{"field":"name"}'] * 5_000) + b"]}",
    b'{"filter":{"$and":[' + b",".join([b"{}"] * 30_000) + b"]}}",
    b'{"aggregate":{"operations":[' + b",".join([b'{"func":"COUNT","alias":"n"}'] * 3_000) + b"]}}",
    b'{"vector_search":{"vector":[' + b",".join([b"0.1"] * 30_000) + b"]}}",
    *(b"\x81\xa6filter" + begin + b"\xff" * 4 for begin in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")),
    b"\x81\xa6filter" + b"\x91" * DEEP + b"\xc0",
    b"\x81\xa6filter" + b"\x81\xa1a" * DEEP + b"\xc0",
    b"\x81\xa6params" + b"\x81" * DEEP,
    b"\x82\xa6filter\x01\xa6filter\x02",
    b"\x81\xa6filter\xd4\x05\x01",
    b"\x81\xa6filter\xa2\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\x10\x84\xff\xff\xff\xff\x00\x00{}",
    b"\x10\x84\x00\x00\xff\xff\xff\xff{}",
    b"\x10\x0c\x00\x02{}",
    b"\x10\x07\x00\x02{}",
    b"\x10\x74\x00\x02{}",
    b"\x10\x04\x00\x00",
)

HEADERS = (
    "x-nwp-agent",
    "x-nwp-ident",
    "x-nwp-budget",
    "x-nwp-depth",
    "x-nwp-trace",
    "x-nwp-tokenizer",
    "x-nwp-encoding",
    "x-nwp-request-id",
    "x-nwp-version",
    "traceparent",
    "accept",
    "content-type",
    "if-none-match",
    "host",
)
SAID: tuple[bytes, ...] = (
    b"",
    b"0",
    b"3",
    b"-1",
    b"1e3",
    b"9" * 60,
    "٣".encode(),
    b"\xff\xfe",
    b"x" * 9000,
    b"json",
    b"msgpack",
    b"application/nwp-capsule",
    b"application/json",
    b"application/x-nps-frame",
    b"text/event-stream;q=0",
    b'{"nid":"urn:nps:agent:a.example:b"}',
    b'{"nid":' * 2000,
    b"eyJuaWQiOiJ4In0",
    b"urn:nps:agent:a.example:b",
    b"urn:nps:node:inn.example:site,urn:nps:node:inn.example:rooms",
    b"0.4",
    b"99.99999999999999999999",
    b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01",
    b"cl100k_base",
    b"6b0cb4a2-6f3c-4b0e-9df5-0d4c3c1f7a11",
    b"x\x00y",
    b"[::1]:99999",
    b'a"b\\c',
)


def some_bytes(random: Random, most: int = 64) -> bytes:
    return random.randbytes(random.randint(1, most))


def flipped(random: Random, raw: bytes) -> bytes:
    made = bytearray(raw)
    for _ in range(random.randint(1, 4)):
        made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


def without(random: Random, raw: bytes) -> bytes:
    begin = random.randrange(len(raw))
    return raw[:begin] + raw[begin + random.randint(1, 8) :]


def with_more(random: Random, raw: bytes) -> bytes:
    place = random.randrange(len(raw) + 1)
    return raw[:place] + some_bytes(random, 8) + raw[place:]


def repeated(random: Random, raw: bytes) -> bytes:
    begin = random.randrange(len(raw))
    end = begin + random.randint(1, 32)
    return raw[:end] + raw[begin:end] * random.randint(1, 40) + raw[end:]


def cut(random: Random, raw: bytes) -> bytes:
    return raw[: random.randrange(len(raw))]


def doubled(random: Random, raw: bytes) -> bytes:
    return raw + raw[random.randrange(len(raw)) :]


def with_head(random: Random, raw: bytes) -> bytes:
    """Another type, other flags, another length."""
    place = random.randrange(min(4, len(raw)))
    return raw[:place] + random.randbytes(1) + raw[place + 1 :]


CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    flipped,
    without,
    with_more,
    repeated,
    cut,
    doubled,
    with_head,
)


def odd_value(random: Random, tier: EncodingTier, depth: int = 0) -> Any:
    """A value of any kind, now and then one made of others."""
    roll = random.random()
    if depth < 4 and roll < 0.1:
        return [odd_value(random, tier, depth + 1) for _ in range(random.randint(0, 4))]
    if depth < 4 and roll < 0.25:
        names = ("$eq", "$in", "$and", "$not", "$regex", "name", "price", "operations", "func", "id", "nodes")
        return {random.choice(names): odd_value(random, tier, depth + 1) for _ in range(random.randint(0, 3))}
    if tier == EncodingTier.MSGPACK and roll > 0.85:
        return random.choice(ODD_BYTES)
    return random.choice(ODD)


def with_odd_member(random: Random, said: Any, tier: EncodingTier) -> Any:
    """The same with something else at one place, near the top or far down."""
    if isinstance(said, dict) and said and random.random() < 0.9:
        name = random.choice(list(said))
        return {**said, name: with_odd_member(random, said[name], tier)}
    if isinstance(said, list) and said and random.random() < 0.7:
        place = random.randrange(len(said))
        return [*said[:place], with_odd_member(random, said[place], tier), *said[place + 1 :]]
    return odd_value(random, tier)


def frame_with(random: Random, kind: int, payload: bytes, tier: EncodingTier) -> bytes:
    """A payload behind a header; now and then an extended one."""
    is_extended = len(payload) > LARGEST or random.random() < 0.1
    return FrameHeader(kind, tier, len(payload), is_extended=is_extended).encode() + payload


def odd_body(random: Random, kind: int, is_framed: bool) -> bytes:
    """Something like a request of this kind, and yet none; sometimes a good one."""
    tier = random.choice((EncodingTier.JSON, EncodingTier.MSGPACK))
    roll = random.random()
    if roll < 0.06:
        return some_bytes(random, 200)
    if roll < 0.2:
        raw = random.choice(TEXTS)
        is_text = raw[:1] in (b"{", b"[", b"")
        return (
            frame_with(random, kind, raw, EncodingTier.JSON if is_text else EncodingTier.MSGPACK) if is_framed else raw
        )
    said: Any = random.choice(PAYLOADS[kind])
    for _ in range(random.choice((0, 1, 1, 2))):
        said = with_odd_member(random, said, tier)
    payload = encode_value(said, tier)
    raw = frame_with(random, kind, payload, tier) if is_framed else payload
    return random.choice(CHANGES)(random, raw) if raw and roll < 0.6 else raw


def odd_headers(random: Random) -> list[tuple[bytes, bytes]]:
    """Headers of a request; one without Accept would be answered by a subscription that goes on."""
    headers = {b"host": b"inn.example", b"accept": b"application/nwp-capsule"}
    for _ in range(random.choice((0, 0, 1, 2))):
        value = random.choice(SAID) if random.random() < 0.8 else some_bytes(random)
        headers[random.choice(HEADERS).encode()] = value
    if b"*/*" in headers[b"accept"] or b"text/event-stream" in headers[b"accept"]:
        headers[b"accept"] = b"application/nwp-capsule"
    return list(headers.items())


@dataclass(frozen=True)
class Sent:
    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    address: str


def odd_requests(random: Random) -> Iterator[Sent]:
    while True:
        kind, path = random.choice(PATHS)
        body = odd_body(random, kind, is_framed=random.random() < 0.5)
        method, query, address = "POST", b"", f"192.0.2.{random.randrange(200)}"
        if random.random() < 0.08:
            method, body = "GET", b""
            path = random.choice(("rooms/.schema", "site/.nwm", "operations/actions", "gateway/actions/status/x"))
            query = b"anchor=" + random.choice((b"rooms", b"sha256:" + b"0" * 64, b"%00", b"%ff%fe", b"x" * 3000))
        elif random.random() < 0.04:
            letters = random.choices(string.printable + "é\u202e\x00", k=random.randint(0, 30))
            path = random.choice(("", "rooms/", "../", "rooms//query/", "ROOMS/query", "site/")) + "".join(letters)
        yield Sent(method, path, query, odd_headers(random), body, address)


# Responses


@dataclass(frozen=True)
class Got:
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


async def answer(app: ASGIApp, sent: Sent) -> Got:
    """What an application says to a request in this process."""
    begun: dict[str, Any] = {}
    body, arrived = bytearray(), iter([sent.body])

    async def receive() -> Any:
        for each in arrived:
            return {"type": "http.request", "body": each, "more_body": False}
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.update(message)
        else:
            body.extend(message["body"])

    path = f"/nwp/{sent.path}"
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": sent.query,
        "root_path": "",
        "headers": sent.headers,
        "client": (sent.address, 1),
        "server": ("inn.example", 80),
        "state": {},
    }
    async with asyncio.timeout(SECONDS):
        await app(scope, receive, send)
    return Got(begun["status"], dict(begun["headers"]), bytes(body))


def check_answer(got: Got) -> None:
    """Refuse what is neither a refusal in its form nor a good answer."""
    kind = got.headers.get(b"content-type", b"").decode()
    assert all(b"\n" not in value and b"\r" not in value for value in got.headers.values())
    if got.status >= 400:
        assert kind == "application/nwp-error+json"
        told = json.loads(got.body)
        assert told["error"] in KNOWN, told
        assert got.status == 405 or got.status == STATUSES[told["status"]], told
        assert got.status < 500 or got.status in SERVER_SIDE, told
    elif kind == "application/x-ndjson":
        check_stream([json.loads(line) for line in got.body.splitlines()])
    elif kind.startswith("application/nwp-capsule; profile="):
        check_frames(got.body)
    elif kind == "application/nwp-capsule":
        check_capsule(msgspec.json.decode(got.body) if got.body[:1] == b"{" else msgspec.msgpack.decode(got.body))
    else:
        assert kind.partition(";")[0] in {"application/json", "application/nwp-manifest+json", "text/html"}


def check_capsule(said: Any) -> None:
    assert said.get("schema") or said["count"] == len(said["data"])


def check_stream(parts: list[Any]) -> None:
    assert [each["seq"] for each in parts] == list(range(len(parts)))
    assert parts[-1]["is_last"]


def check_frames(raw: bytes) -> None:
    """One capsule, or the parts of a stream."""
    said: list[Any] = []
    while raw:
        header = read_header(raw)
        assert header is not None
        frame, raw = raw[: header.size + header.length], raw[header.size + header.length :]
        said.append(msgspec.to_builtins(decode(frame), enc_hook=list))
    if "seq" in said[0]:
        check_stream(said)
    else:
        (capsule,) = said
        check_capsule(capsule)


async def check_goes_on(served: Served) -> None:
    """The node answers a good request, over HTTP and natively."""
    good = Sent("POST", "rooms/query", b"", [(b"host", b"inn.example")], b'{"limit":1}', "192.0.2.250")
    got = await answer(served.app, good)
    assert (got.status, json.loads(got.body)["anchor_ref"][:7]) == (200, "sha256:")
    async with await Native.open(served.ports.native) as agent:
        told = msgspec.to_builtins(await agent.ask(QueryFrame(limit=1, depth=0)), enc_hook=list)
    assert told["anchor_ref"] == json.loads(got.body)["anchor_ref"]


def largest_yet() -> int:
    """Bytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


async def until_quiet(before: int) -> None:
    """Wait until there are no more tasks than there were: what was begun has come to its end."""
    async with asyncio.timeout(SECONDS):
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)


@requirement("nwp:security:bounded")
async def test_no_body_and_no_header_breaks_a_node(served: Served) -> None:
    await check_goes_on(served)
    requests, tasks, size = odd_requests(Random(SEED)), len(asyncio.all_tasks()), largest_yet()
    statuses: dict[int, int] = {}
    for _ in range(OVER_HTTP):
        sent = next(requests)
        try:
            got = await answer(served.app, sent)
            check_answer(got)
        except (AssertionError, TimeoutError, ValueError, LookupError) as error:
            raise AssertionError(f"{sent.method} {sent.path} {sent.headers} {sent.body[:300]!r}") from error
        statuses[got.status] = statuses.get(got.status, 0) + 1

    await until_quiet(tasks)
    await check_goes_on(served)
    assert sum(statuses.values()) == OVER_HTTP
    assert statuses[200] > OVER_HTTP // 20  # it was not all refused at the door
    assert largest_yet() - size < GROWTH


# Natively

FRAMES_EACH = 24  # that a session gets
SESSIONS = 208
OPENINGS = NATIVELY - SESSIONS * FRAMES_EACH
END = QueryFrame(anchor_ref="the end", depth=0)
HELLO = HelloFrame(nps_version="0.4", supported_encodings=["json"], supported_protocols=["nwp"])


def odd_frame(random: Random) -> bytes:
    """A frame that ends where it says; what is in it may be anything."""
    kind = random.choice(tuple(PAYLOADS)) if random.random() < 0.95 else random.randrange(256)
    body = odd_body(random, kind if kind in PAYLOADS else 0x10, is_framed=False)[:LARGEST]
    tier = EncodingTier.JSON if body[:1] in (b"{", b"[") else EncodingTier.MSGPACK
    return FrameHeader(kind, tier, len(body), random.random() < 0.9, random.random() < 0.02).encode() + body


def odd_opening(random: Random) -> bytes:
    """What a connection begins with that is no Hello, or goes on as none should."""
    hello = encode(HELLO, random.choice((EncodingTier.JSON, EncodingTier.MSGPACK)))
    begin = random.choice((b"", PREAMBLE, PREAMBLE[:4], b"NPS/9.9\n", b"\x16\x03\x01\x02\x00"))
    rest = random.choice(
        (
            b"",
            some_bytes(random, 300),
            random.choice(CHANGES)(random, hello),
            b"\x06" + random.randbytes(7) + b"{" * 100,
            b"\x06\x84\xff\xff\xff\xff\x00\x00",
            odd_frame(random) + hello,
            hello + hello + hello,
            hello + random.choice(CHANGES)(random, encode(END, EncodingTier.JSON)),
            hello + b"\x10\x84\xff\xff\xff\xff\x00\x00{}",
            b"GET /nwp/rooms/.nwm HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            b"POST /nwp/rooms/query HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n" + hello,
            b"POST / HTTP/9.9\r\n" + some_bytes(random),
        )
    )
    return begin + rest


def check_told(frame: Frame) -> None:
    told = msgspec.to_builtins(frame, enc_hook=list)
    if "error" in told:
        status = STATUSES[told["status"]]
        assert told["error"] in KNOWN, told
        assert status < 500 or status in SERVER_SIDE, told
    elif "count" in told:
        assert told["count"] == len(told["data"]), told
    else:
        assert "stream_id" in told


async def told_in_session(port: int, frames: list[bytes], encoding: str) -> int:
    """How many answers an agent gets that sends these frames, before it is told that there is no such end."""
    async with await Native.open(port, [encoding]) as agent:
        agent.writer.write(b"".join(frames) + encode(END, EncodingTier.JSON))
        for number in range(100_000):
            frame = await agent.receive()
            check_told(frame)
            if (agent.said.get("details") or {}).get("anchor_ref") == END.anchor_ref:
                return number
    raise AssertionError("It never ends")


async def last_words(port: int, raw: bytes, *, leaves: bool) -> bytes:
    """What a connection is told that sends this, and then says nothing more or leaves."""
    agent = await Native.connect(port)
    try:
        agent.writer.write(raw)
        if leaves:
            agent.writer.write_eof()
        return await agent.last_words()
    except ConnectionError:
        return b""
    finally:
        await agent.close()


def check_words(raw: bytes) -> None:
    """Whole frames, or an answer of HTTP."""
    if raw.startswith(b"HTTP/1.1 "):
        assert raw[9:12] in {b"200", b"400", b"404"}
        return
    while raw:
        header = read_header(raw)
        assert header is not None
        check_told(decode(raw[: header.size + header.length]))
        raw = raw[header.size + header.length :]


@requirement("nwp:security:bounded")
async def test_no_frame_breaks_a_session(served: Served) -> None:
    random, tasks, size, sent = Random(SEED), len(asyncio.all_tasks()), largest_yet(), 0
    for _ in range(SESSIONS):
        frames = [odd_frame(random) for _ in range(FRAMES_EACH)]
        try:
            told = await told_in_session(served.ports.native, frames, random.choice(("json", "msgpack")))
            assert told >= FRAMES_EACH // 2
        except (AssertionError, TimeoutError, EOFError, ValueError, LookupError) as error:
            raise AssertionError(f"{[each[:120] for each in frames]}") from error
        sent += len(frames)

    assert sent == SESSIONS * FRAMES_EACH
    await until_quiet(tasks)
    await check_goes_on(served)
    assert largest_yet() - size < GROWTH


@requirement("nwp:security:bounded")
async def test_no_beginning_of_a_connection_breaks_the_port(tmp_path: Path) -> None:
    random, told = Random(SEED), list[bytes]()
    async with serving_anybody(tmp_path, NativeTimeouts(hello=0.3, preamble=0.4, idle=0.5)) as served:
        tasks = len(asyncio.all_tasks())
        for _ in range(2):
            # Some never say another word, and stay until the server has had enough of them.
            openings = [(odd_opening(random), random.random() < 0.9) for _ in range(OPENINGS // 2)]
            said = (last_words(served.ports.native, raw, leaves=leaves) for raw, leaves in openings)
            told += await asyncio.gather(*said)
        await until_quiet(tasks)
        await check_goes_on(served)

    for each in told:
        check_words(each)
    assert len(told) == OPENINGS
    assert sum(map(bool, told)) > OPENINGS // 10  # not all were left without a word


# Drawn by hypothesis

LONG = settings(max_examples=DRAWN, deadline=None, derandomize=True, database=None)
NAMES = st.sampled_from(
    [
        "filter",
        "fields",
        "order",
        "field",
        "dir",
        "limit",
        "params",
        "action_id",
        "dag",
        "frame",
        "name",
        "price",
        "beds",
    ]
) | st.text(max_size=8)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OPERATORS = st.sampled_from(
    ["$eq", "$ne", "$gt", "$in", "$nin", "$between", "$contains", "$exists", "$regex", "$starts"]
)
FIELDS = st.sampled_from(["id", "name", "price", "beds", "url", "none", "a.b", ""]) | st.text(max_size=5)
CONDITIONS = st.dictionaries(FIELDS, st.dictionaries(OPERATORS, VALUES, max_size=2) | VALUES, max_size=2)
LOGIC = st.sampled_from(["$and", "$or", "$not"])
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.dictionaries(LOGIC, st.lists(inner, max_size=3) | inner, max_size=2),
    max_leaves=4,
)
FUNCTIONS = st.sampled_from(["COUNT", "SUM", "AVG", "MIN", "MAX", "COUNT_DISTINCT", "sum", "MEDIAN"])
AGGREGATES = st.fixed_dictionaries(
    {
        "operations": st.lists(
            st.fixed_dictionaries({"func": FUNCTIONS, "alias": FIELDS}, optional={"field": FIELDS}), max_size=3
        )
        | VALUES
    },
    optional={"group_by": st.lists(FIELDS, max_size=2) | VALUES, "having": FILTERS},
)
ORDER = st.fixed_dictionaries({"field": FIELDS, "dir": st.sampled_from(["ASC", "desc", ""])})
QUERIES = st.fixed_dictionaries(
    {"depth": st.just(0)},
    optional={
        "filter": FILTERS,
        "aggregate": AGGREGATES,
        "order": st.lists(ORDER, max_size=2),
        "fields": st.lists(FIELDS, max_size=3),
        "limit": st.integers(0, 2**64),
        "token_budget": st.integers(0, 50),
    },
)


def check_decoded(read: Callable[[], Frame]) -> None:
    """Whatever is wrong with bytes is told as one kind of error, by a code that there is."""
    try:
        found: Frame | str = read()
    except FrameError as error:
        found = error.code
    assert isinstance(found, Frame) or found in KNOWN


@requirement("nwp:security:bounded")
@LONG
@given(st.sampled_from(tuple(FRAMES)), st.sampled_from((0x00, 0x04, 0x05, 0x85, 0x0C, 0x07)), st.binary(max_size=300))
async def test_bytes_are_a_frame_or_a_frame_error(kind: int, flags: int, payload: bytes) -> None:
    check_decoded(partial(decode, bytes((kind, flags)) + payload))
    check_decoded(partial(decode, bytes((kind, flags & 0x7F)) + len(payload).to_bytes(2, "big") + payload))


@requirement("nwp:security:bounded")
@LONG
@given(
    st.sampled_from(tuple(FRAMES.values())),
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.sampled_from(tuple(EncodingTier)),
)
async def test_objects_are_a_frame_or_a_frame_error(
    kind: type[Frame], said: dict[str, Any], tier: EncodingTier
) -> None:
    check_decoded(partial(decode_as, kind, encode_value(said, tier), tier))


@requirement("nwp:security:bounded")
@LONG
@given(said=QUERIES)
async def test_a_query_of_any_shape_is_answered_or_refused(served: Served, said: dict[str, Any]) -> None:
    sent = Sent(
        "POST", "rooms/query", b"", [(b"host", b"inn.example")], encode_value(said, EncodingTier.JSON), "192.0.2.251"
    )

    check_answer(await answer(served.app, sent))


@requirement("nwp:security:bounded")
async def test_no_memory_is_taken_for_what_is_only_declared() -> None:
    declared = [begin + b"\xff" * 4 for begin in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")]
    before = [b"", b"\x81\xa6filter", b"\x81\xa6fields", b"\x81\xa1x", b"\x82\xa5limit\xa1x\xa6filter"]
    tracemalloc.start()
    try:
        for payload in (head + each for head in before for each in declared):
            check_decoded(partial(decode_as, QueryFrame, payload, EncodingTier.MSGPACK))
        check_decoded(partial(decode, b"\x10\x85\xff\xff\xff\xff\x00\x00\x80"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 1 << 20


# What else was tried


def posted(path: str, said: Any, *headers: tuple[bytes, bytes]) -> Sent:
    body = said if isinstance(said, bytes) else encode_value(said, EncodingTier.JSON)
    told = [(b"host", b"inn.example"), (b"accept", b"application/nwp-capsule"), *headers]
    return Sent("POST", path, b"", told, body, "192.0.2.252")


@requirement("nwp:security:bounded")
async def test_what_holds_far_too_much_is_refused_before_it_is_looked_at(served: Served) -> None:
    counted = {"func": "COUNT", "alias": "n"}
    answers = [
        await answer(served.app, posted("rooms/query", said))
        for said in (
            {"fields": ["name"] * 1001},
            {"order": [{"field": "name"}] * 17},
            {"filter": {"price": {"$in": [1] * 20_001}}},
            {"filter": {"$and": [{}] * 20_001}},
            {"aggregate": {"operations": [counted] * 20_001}},
            {"aggregate": {"operations": [counted], "group_by": ["name"] * 20_001}},
        )
    ]

    assert [(each.status, json.loads(each.body)["error"]) for each in answers] == [
        (400, "NWP-QUERY-FILTER-INVALID")
    ] * len(answers)


@requirement("nwp:security:bounded")
async def test_long_questions_and_long_answers_are_not_kept(served: Served) -> None:
    async def ask_all(first: int) -> None:
        for number in range(first, first + 20):
            names = [f"{number} {each} {'x' * 200}" for each in range(900)]
            for path in ("rooms/query", "rooms/stream"):
                for unwanted in (names, names[:1]):
                    got = await answer(served.app, posted(path, {"filter": {"name": {"$nin": unwanted}}, "depth": 0}))
                    assert got.status == 200

    await ask_all(0)  # what is kept of the site itself is there now
    await served.parts.store.items.write("rooms", [Put("hall", {"name": "The hall", "description": "x" * 500_000})])
    tracemalloc.start()
    try:
        await ask_all(20)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await served.parts.store.items.write("rooms", [Remove("hall")])

    assert kept < 4 << 20  # the questions alone have twice that, and the answers ten times


async def test_whole_numbers_of_any_size_are_answered_in_both_tiers(served: Served) -> None:
    msgpack = (b"x-nwp-encoding", b"msgpack")
    large = b"9" * 40
    await served.parts.store.items.write("rooms", [Put("tower", {"name": "The tower", "beds": int(large)})])
    find = posted("rooms/query", {"filter": {"id": {"$eq": "tower"}}, "fields": ["beds"], "depth": 0}, msgpack)
    follow = b'{"action":"subscribe","stream_id":"large","filter":{"price":{"$gt":' + large + b"}}}"
    found = await answer(served.app, find)
    followed = await answer(served.app, posted("rooms/subscribe", follow, msgpack))
    await served.parts.store.items.write("rooms", [Remove("tower")])

    assert (found.status, followed.status) == (200, 200), (found.body, followed.body)
    assert msgspec.msgpack.decode(found.body)["data"] == [{"beds": 1e40}]
    assert msgspec.msgpack.decode(followed.body)["data"][0]["effective_filter"] == {"price": {"$gt": 1e40}}
