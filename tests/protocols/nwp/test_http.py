"""Nodes over HTTP: paths, forms of bodies and answers, headers, and refusals."""

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking
from tests.protocols.nwp.conftest import opened_inn

from portico.errors import (
    BudgetExceeded,
    CapabilityMissing,
    Conflict,
    Forbidden,
    InvalidParams,
    OperationFailed,
    RateLimited,
    SiteError,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from portico.protocols.nwp.errors import (
    StreamLimitExceeded,
    SubscriptionLimit,
    UnknownAction,
    UnreadableFrame,
    code_of,
    error_frame,
)
from portico.protocols.nwp.frames import (
    ActionFrame,
    CapsFrame,
    EncodingTier,
    ErrorFrame,
    FrameType,
    IdentFrame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    decode,
    encode,
    encode_value,
)
from portico.server.assembly import Parts
from portico.store import open_store

ID = "6F9619FF-8b86-4d01-b42d-00cf4fc964ff"
OTHER = "0b06eaa4-a47e-4f55-8b35-1fab5e3b8b2d"
FRAMED = 'application/nwp-capsule; profile="application/nwp-frame application/x-nps-frame"'
BARE = "application/nwp-capsule"
ERROR = "application/nwp-error+json"
READABLE = {
    "framed JSON": encode(QueryFrame(limit=1), EncodingTier.JSON),
    "framed MessagePack": encode(QueryFrame(limit=1), EncodingTier.MSGPACK),
    "bare JSON": b'{"limit":1}',
    "bare MessagePack": msgspec.msgpack.encode({"limit": 1}),
    "a larger map": b"\xde\x00\x01" + msgspec.msgpack.encode("limit") + b"\x01",
    "the largest map": b"\xdf\x00\x00\x00\x01" + msgspec.msgpack.encode("limit") + b"\x01",
    "a space before": b' {"limit":1}',
    "spaces before": b' \r\n\t {"limit":1}',
    "a line before": b'\n{"limit":1}',
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    """One inn for all: nobody changes it."""
    async with opened_inn(tmp_path_factory.mktemp("inn"), limits={"anonymous_per_minute": 100_000}) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


def form(answer: httpx.Response) -> str:
    """How an answer is written, by its bytes."""
    if answer.content[0] == FrameType.CAPS:
        return f"framed {EncodingTier(answer.content[1] & 3).name}"
    return "bare JSON" if answer.content[:1] == b"{" else "bare MSGPACK"


def read(answer: httpx.Response) -> CapsFrame:
    match form(answer):
        case "bare JSON":
            return msgspec.json.decode(answer.content, type=CapsFrame)
        case "bare MSGPACK":
            return msgspec.msgpack.decode(answer.content, type=CapsFrame)
        case _:
            found = decode(answer.content)
    assert isinstance(found, CapsFrame)
    return found


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    told = answer.json()
    assert set(told) == {"status", "error", "message", "details", "request_id"}
    assert answer.headers["content-type"] == ERROR
    assert answer.headers["x-nwp-request-id"] == told["request_id"]
    return answer.status_code, told["status"], told["error"]


NOT_FOUND = (404, "NPS-CLIENT-NOT-FOUND", "NPS-CLIENT-NOT-FOUND")
BAD_FRAME = (400, "NPS-CLIENT-BAD-FRAME", "NCP-FRAME-UNKNOWN-TYPE")


# Paths

SERVED = {
    "rooms": {"query", "stream", "subscribe"},
    "rooms-operations": {"invoke", "actions"},
    "operations": {"invoke", "actions"},
    "gateway": {"invoke", "actions"},
    "site": {"query", "stream", "subscribe", "invoke", "actions"},
}


@requirement("nwp:nodes:types", "nwp:nodes:mount", "nwp:http:paths", "nwp:http:complex", "nwp:http:not-served")
async def test_each_node_serves_the_paths_of_its_type(client: httpx.AsyncClient) -> None:
    bodies = {
        "query": {},
        "stream": {},
        "subscribe": {"action": "ping", "stream_id": ID},
        "invoke": {"action_id": "no.such"},
    }
    for node, served in SERVED.items():
        for below in ("query", "stream", "subscribe", "invoke", "actions"):
            method = "GET" if below == "actions" else "POST"
            answer = await client.request(method, f"/nwp/{node}/{below}", json=bodies.get(below))
            is_there = not answer.is_error or answer.json()["error"] != "NPS-CLIENT-NOT-FOUND"
            assert is_there == (below in served), (node, below, answer.text)
        for below in (".nwm", ".schema"):
            assert (await client.get(f"/nwp/{node}/{below}")).status_code == 200


@requirement("nwp:http:not-served", "nwp:media:error")
@pytest.mark.parametrize(
    "path",
    [
        "rooms/nothing",
        "rooms/.nwm/more",
        "rooms/actions/status/",
        "rooms/actions/other/x",
        "nobody/.nwm",
        ".nwn",
        "%2e%2e",
    ],
)
async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    assert refusal(await client.get(f"/nwp/{path}")) == NOT_FOUND


@requirement("nwp:http:method")
async def test_a_wrong_method_is_told_the_right_one(client: httpx.AsyncClient) -> None:
    asked = [("GET", "query"), ("PUT", "stream"), ("DELETE", "subscribe"), ("HEAD", "query"), ("OPTIONS", "query")]
    answers = [await client.request(method, f"/nwp/rooms/{below}") for method, below in asked]
    assert [(each.status_code, each.headers["allow"]) for each in answers] == [(405, "POST")] * 5

    for below in ("", "/.nwm", "/.schema", "/actions", "/actions/status/x"):
        answer = await client.post(f"/nwp/site{below}", json={})
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@requirement("nwp:http:no-anchor-post")
async def test_agents_publish_no_schemas(client: httpx.AsyncClient) -> None:
    frame = bytes.fromhex("0104002e") + b'{"anchor_id":"sha256:x","schema":{"fields":[]}}'[:46]
    assert refusal(await client.post("/nwp/rooms/anchor", content=frame)) == NOT_FOUND
    assert (await client.post("/nwp/rooms/.schema", content=frame)).status_code == 405
    assert refusal(await client.post("/nwp/rooms/query", content=frame))[0] == 400


async def test_a_question_without_its_body_has_the_headers_alone(client: httpx.AsyncClient) -> None:
    whole, head = await client.get("/nwp/rooms/.schema"), await client.head("/nwp/rooms/.schema")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.content))
    assert head.headers["x-nwp-schema"] == whole.headers["x-nwp-schema"]


# Pages and programs at one address


@requirement("nwp:http:overlay-browser")
@pytest.mark.parametrize("accept", ["text/html,application/xhtml+xml,*/*;q=0.8", "*/*", ""])
@pytest.mark.parametrize("path", ["/nwp", "/nwp/", "/nwp/rooms", "/nwp/rooms/"])
async def test_without_a_mark_of_the_protocol_there_is_a_page(
    client: httpx.AsyncClient, path: str, accept: str
) -> None:
    answer = await client.get(path, headers={"accept": accept})

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["vary"].startswith("accept, x-nwp-agent")


@requirement("nwp:http:overlay-agent", "nwp:http:overlay-marks")
@pytest.mark.parametrize(
    "marks",
    [
        {"x-nwp-agent": "urn:nps:agent:ca.example:somebody", "accept": "text/html"},
        {"x-nwp-request-id": ID},
        {"x-nwp-depth": "1"},
        {"accept": "application/nwp-capsule"},
        {"accept": "application/x-nps-frame"},
        {"accept": "Application/NWP-Manifest+JSON"},
        {"content-type": "application/nwp-frame"},
        {"accept": "application/json"},
    ],
)
async def test_any_mark_of_the_protocol_is_answered_with_the_manifest(
    client: httpx.AsyncClient, marks: dict[str, str]
) -> None:
    answer = await client.get("/nwp/rooms", headers=marks)

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/nwp-manifest+json")
    assert answer.json() == (await client.get("/nwp/rooms/.nwm")).json()
    assert answer.headers["vary"].startswith("accept, x-nwp-agent")


@requirement("nwp:http:overlay-agent", "nwp:http:overlay-browser", "nwp:http:overlay-pages")
@pytest.mark.parametrize(("path", "node"), [("/", "site"), ("/collections/rooms", "rooms")])
async def test_a_page_of_the_site_is_a_node_for_agents(client: httpx.AsyncClient, path: str, node: str) -> None:
    browser = await client.get(path, headers={"accept": "text/html"})
    agent = await client.get(path, headers={"x-nwp-agent": "urn:nps:agent:ca.example:ann", "accept": "text/html"})
    reader = await client.get(path, headers={"accept": "application/nwp-capsule"})

    assert (browser.status_code, browser.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert [each.headers["content-type"] for each in (agent, reader)] == ["application/nwp-manifest+json"] * 2
    assert agent.json() == (await client.get(f"/nwp/{node}/.nwm")).json()
    assert all(each.headers["vary"].startswith("accept, x-nwp-agent") for each in (browser, agent, reader))


@requirement("nwp:http:overlay-pages")
async def test_a_page_of_what_there_is_not_is_no_node(client: httpx.AsyncClient) -> None:
    agent = {"x-nwp-agent": "urn:nps:agent:ca.example:ann"}

    assert refusal(await client.get("/collections/nothing", headers=agent)) == NOT_FOUND
    assert (await client.get("/collections/nothing", headers={"accept": "text/html"})).status_code == 404
    assert (await client.post("/", headers=agent)).status_code == 405


@requirement("nwp:nodes:default")
async def test_an_address_without_a_node_is_the_one_of_the_site(client: httpx.AsyncClient) -> None:
    manifest, schema = await client.get("/nwp/.nwm"), await client.get("/nwp/.schema")
    found = await client.post("/nwp/query", json={"limit": 1})
    task = await client.get(f"/nwp/actions/status/{ID}")

    assert manifest.json() == (await client.get("/nwp/site/.nwm")).json()
    assert schema.json() == (await client.get("/nwp/site/.schema")).json()
    assert (found.status_code, found.headers["x-nwp-node-type"]) == (200, "complex")
    assert (task.status_code, task.json()["error"]) == (404, "NWP-TASK-NOT-FOUND")
    assert refusal(await client.get("/nwp/nothing/.nwm")) == NOT_FOUND


@requirement("nwp:http:overlay-marks")
async def test_below_a_node_there_are_no_pages(client: httpx.AsyncClient) -> None:
    browser = {"accept": "text/html"}
    kinds = [
        (await client.get(f"/nwp/site/{below}", headers=browser)).headers["content-type"]
        for below in (".nwm", ".schema", "actions", "nothing")
    ]
    assert kinds == ["application/nwp-manifest+json", "application/json", "application/json", ERROR]


# Bodies


@requirement("nwp:body:framed", "nwp:body:bare", "nwp:body:sniffed", "nwp:body:mirrored", "nwp:media:capsule")
@pytest.mark.parametrize("name", READABLE)
async def test_the_answer_has_the_form_of_the_request(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.post("/nwp/rooms/query", content=READABLE[name])

    body = READABLE[name]
    is_framed = body[0] == 0x10
    tier = EncodingTier(body[1] & 1) if is_framed else EncodingTier.JSON if b"{" in body else EncodingTier.MSGPACK
    expected = f"framed {tier.name}" if is_framed else f"bare {tier.name}"
    assert (answer.status_code, form(answer)) == (200, expected)
    assert answer.headers["content-type"] == (FRAMED if is_framed else BARE)
    assert [each["id"] for each in read(answer).data] == ["attic"]


@requirement("nwp:body:readable", "nwp:media:request", "nwp:media:request-others")
@pytest.mark.parametrize(
    "kind",
    ["application/nwp-frame", "application/x-nps-frame", "application/json", "text/plain", "image/png", "nonsense", ""],
)
async def test_what_can_be_read_is_read_whatever_it_is_called(client: httpx.AsyncClient, kind: str) -> None:
    forms = []
    for body in (READABLE["framed MessagePack"], READABLE["bare JSON"]):
        answer = await client.post("/nwp/rooms/query", content=body, headers={"content-type": kind})
        assert answer.status_code == 200
        forms.append(form(answer))
    assert forms == ["framed MSGPACK", "bare JSON"]


@requirement("nwp:body:readable", "nwp:body:mirrored")
@pytest.mark.parametrize(
    ("accept", "framed", "bare"),
    [
        ("*/*", "framed MSGPACK", "bare JSON"),
        ("application/nwp-capsule", "framed MSGPACK", "bare JSON"),
        ("application/x-nps-frame", "framed MSGPACK", "framed JSON"),
        ("application/nwp-frame", "framed MSGPACK", "framed JSON"),
        ("application/nwp-frame, */*", "framed MSGPACK", "bare JSON"),
        ("application/json", "bare JSON", "bare JSON"),
        ("Application/JSON, application/nwp-capsule", "framed MSGPACK", "bare JSON"),
        ("text/html", "framed MSGPACK", "bare JSON"),
        ("image/png;q=0.1", "framed MSGPACK", "bare JSON"),
    ],
)
async def test_accept_may_ask_for_another_form_and_refuses_nothing(
    client: httpx.AsyncClient, accept: str, framed: str, bare: str
) -> None:
    headers = {"accept": accept, "content-type": "application/json"}
    answers = [
        await client.post("/nwp/rooms/query", content=READABLE[name], headers=headers)
        for name in ("framed MessagePack", "bare JSON")
    ]
    assert [(each.status_code, form(each)) for each in answers] == [(200, framed), (200, bare)]


@requirement("nwp:clients:others")
async def test_who_calls_bare_json_a_frame_is_answered_with_bare_json(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/nwp-frame", "accept": "application/nwp-frame"}
    answer = await client.post("/nwp/rooms/query", content=READABLE["bare JSON"], headers=headers)
    assert form(answer) == "bare JSON"


@requirement("nwp:body:encoding")
@pytest.mark.parametrize(("said", "tier"), [("json", "JSON"), ("msgpack", "MSGPACK"), ("MsgPack", "MSGPACK")])
async def test_the_tier_of_the_answer_can_be_asked_for(client: httpx.AsyncClient, said: str, tier: str) -> None:
    forms = [
        form(await client.post("/nwp/rooms/query", content=READABLE[name], headers={"x-nwp-encoding": said}))
        for name in ("framed JSON", "framed MessagePack", "bare JSON", "bare MessagePack")
    ]
    assert forms == [f"framed {tier}", f"framed {tier}", f"bare {tier}", f"bare {tier}"]


@requirement("nwp:body:unreadable")
async def test_nothing_at_all_is_no_frame(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nwp/rooms/query")
    assert (answer.status_code, answer.json()["status"]) == (400, "NPS-CLIENT-BAD-FRAME")


@requirement("nwp:body:encoding", "nwp:body:readable")
async def test_a_tier_that_nobody_knows_is_let_be(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nwp/rooms/query", content=READABLE["framed JSON"], headers={"x-nwp-encoding": "cbor"})
    assert (answer.status_code, form(answer)) == (200, "framed JSON")


@requirement("nwp:body:unreadable", "nwp:frames:unknown-type", "nwp:media:error")
@pytest.mark.parametrize(
    "body",
    [
        b"limit=1",
        b"[]",
        b"{",
        b"   ",
        b"not JSON",
        b'{"limit":1} {}',
        b'{"frame":"0x11"}',
        b"\x10",
        READABLE["framed JSON"][:-1],
        READABLE["framed JSON"] + b"\n",
        encode(ActionFrame(action_id="rooms.list"), EncodingTier.MSGPACK),
        encode(SubscribeFrame(action="ping", stream_id=ID), EncodingTier.JSON),
        encode(TaskFrame(task_id=ID, dag={}), EncodingTier.JSON),
        encode(IdentFrame(nid="urn:nps:agent:ca.example:somebody"), EncodingTier.JSON),
        encode(CapsFrame(anchor_ref="", count=0, data=[]), EncodingTier.MSGPACK),
        b"\x13\x04\x00\x02{}",
        b"\xff\x04\x00\x02{}",
        b"\x81\xa6filter" + b"\x91" * 5000,
        b'{"filter":' + b"[" * 5000,
        b"\xdf\xff\xff\xff\xff",
    ],
)
async def test_a_body_that_cannot_be_read_is_a_bad_frame(client: httpx.AsyncClient, body: bytes) -> None:
    assert refusal(await client.post("/nwp/rooms/query", content=body)) == BAD_FRAME


@requirement("nwp:body:sniffed", "nwp:body:unreadable")
@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize(("flags", "size"), [(0x04, 2), (0x84, 4)])
async def test_a_frame_with_a_wrong_length_is_none(client: httpx.AsyncClient, flags: int, size: int, off: int) -> None:
    said = b'{"limit":1}'
    fits, wrong = (
        bytes((0x10, flags)) + length.to_bytes(size) + bytes(size - 2) + said for length in (len(said), len(said) + off)
    )
    assert read(await client.post("/nwp/rooms/query", content=fits)).count == 1
    assert refusal(await client.post("/nwp/rooms/query", content=wrong)) == BAD_FRAME


@requirement("nwp:tiers:reserved", "nwp:header:encryption-refused")
@pytest.mark.parametrize(
    ("flags", "error"),
    [(0x06, "NCP-FRAME-FLAGS-INVALID"), (0x07, "NCP-FRAME-FLAGS-INVALID"), (0x0C, "NCP-ENC-NOT-NEGOTIATED")],
)
async def test_flags_that_mean_nothing_here_are_refused(client: httpx.AsyncClient, flags: int, error: str) -> None:
    answer = await client.post("/nwp/rooms/query", content=bytes((0x10, flags, 0, 2)) + b"{}")
    assert refusal(answer) == (400, "NPS-CLIENT-BAD-FRAME", error)


@requirement("nwp:header:extended-other")
async def test_extended_frames_are_read_in_either_layout(client: httpx.AsyncClient) -> None:
    for header in ("1084000000100000", "1084000000000010"):
        answer = await client.post("/nwp/rooms/query", content=bytes.fromhex(header) + b'{"limit":1}'.ljust(16))
        assert (form(answer), read(answer).count) == ("framed JSON", 1)


@requirement("nwp:frames:key")
@pytest.mark.parametrize("said", [16, "0x10", "0X10"])
async def test_a_frame_may_say_what_it_is(client: httpx.AsyncClient, said: Any) -> None:
    answer = await client.post("/nwp/rooms/query", json={"frame": said, "limit": 1})
    assert (answer.status_code, answer.json()["frame"]) == (200, "0x04")


@requirement("nwp:errors:missing-ids")
@pytest.mark.parametrize(
    ("below", "body", "expected"),
    [
        ("query", {"limit": -1}, (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FILTER-INVALID")),
        ("query", {"cursor": 5}, (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-CURSOR-INVALID")),
        (
            "invoke",
            {"action_id": "rooms.list", "timeout_ms": "soon"},
            (422, "NPS-CLIENT-UNPROCESSABLE", "NWP-ACTION-PARAMS-INVALID"),
        ),
        (
            "invoke",
            {"action_id": "rooms.list", "params": []},
            (422, "NPS-CLIENT-UNPROCESSABLE", "NWP-ACTION-PARAMS-INVALID"),
        ),
        ("invoke", {}, (422, "NPS-CLIENT-UNPROCESSABLE", "NWP-ACTION-PARAMS-INVALID")),
        ("invoke", {"params": {}}, (422, "NPS-CLIENT-UNPROCESSABLE", "NWP-ACTION-PARAMS-INVALID")),
        ("invoke", {"action_id": 5}, (422, "NPS-CLIENT-UNPROCESSABLE", "NWP-ACTION-PARAMS-INVALID")),
        ("subscribe", {"action": "subscribe"}, (400, "NPS-CLIENT-BAD-FRAME", "NPS-CLIENT-BAD-FRAME")),
        ("subscribe", {"action": "subscribe", "stream_id": 5}, (400, "NPS-CLIENT-BAD-FRAME", "NPS-CLIENT-BAD-FRAME")),
    ],
)
async def test_a_wrong_member_is_told_by_the_kind_of_frame(
    client: httpx.AsyncClient, below: str, body: dict[str, Any], expected: tuple[int, str, str]
) -> None:
    assert refusal(await client.post(f"/nwp/site/{below}", json=body)) == expected


@requirement("nwp:body:too-large", "nwp:header:too-large")
async def test_a_body_that_is_too_large_is_refused(client: httpx.AsyncClient, parts: Parts) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"limit":1}'.ljust(parts.site.limits.payload_bytes)
        yield b" "

    for content in (b" " * (parts.site.limits.payload_bytes + 1), pieces()):
        answer = await client.post("/nwp/rooms/query", content=content)
        assert refusal(answer) == (413, "NPS-LIMIT-PAYLOAD", "NCP-FRAME-PAYLOAD-TOO-LARGE")


@requirement("nwp:header:too-large")
@pytest.mark.parametrize(
    "body",
    [
        b"\x10\x84\xff\xff\xff\xff\x00\x00{}",
        b"\x10\x84\x00\x00\x7f\xff\xff\xff{}",
        b"\x10\x04\x11\x70" + b'{"limit":1}'.ljust(70_000),
    ],
)
async def test_a_header_that_announces_too_much_or_has_no_room_for_it_is_told_so(
    client: httpx.AsyncClient, body: bytes
) -> None:
    answer = await client.post("/nwp/rooms/query", content=body)

    assert refusal(answer) == (413, "NPS-LIMIT-PAYLOAD", "NCP-FRAME-PAYLOAD-TOO-LARGE")


# Answers


@requirement(
    "nwp:frames:caps", "nwp:frames:same-object", "nwp:errors:status-ok", "nwp:headers:schema", "nwp:headers:node-type"
)
async def test_both_tiers_and_both_forms_have_the_same_answer(client: httpx.AsyncClient) -> None:
    anchor = (await client.get("/nwp/rooms/.nwm")).json()["schema_anchors"]["rooms"]
    expected = CapsFrame(
        anchor_ref=anchor,
        count=2,
        data=[
            {"id": "attic", "name": "The attic", "price": 60.0},
            {"id": "garden", "name": "Garden room", "price": 45.0},
        ],
        token_est=25,
    )
    query = QueryFrame(fields=["id", "name", "price"], filter={"price": {"$gt": 40}}, order=None)

    for body in (
        *(encode(query, tier) for tier in EncodingTier),
        msgspec.json.encode(query),
        msgspec.msgpack.encode(query),
    ):
        answer = await client.post("/nwp/rooms/query", content=body)
        found = read(answer)
        assert msgspec.structs.replace(found, cached=None) == expected
        headers = answer.headers
        assert (answer.status_code, headers["x-nwp-schema"], headers["x-nwp-node-type"]) == (200, anchor, "memory")
        assert headers["x-nwp-tokens"] == "25"
        assert headers.get("x-nwp-cached") == ("true" if found.cached else None)


@requirement("nwp:headers:cached")
async def test_an_answer_that_was_kept_says_so(client: httpx.AsyncClient) -> None:
    first, again, other = [
        await client.post("/nwp/rooms/query", json={"filter": {"beds": {"$gt": beds}}}) for beds in (-3, -3, -4)
    ]

    assert [each.headers.get("x-nwp-cached") for each in (first, again, other)] == [None, "true", None]
    assert [each.json().get("cached") for each in (first, again, other)] == [None, True, None]
    assert first.json()["data"] == again.json()["data"]


@requirement("nwp:headers:tokens")
async def test_what_an_answer_costs_is_counted_by_the_tokenizer_that_was_named(client: httpx.AsyncClient) -> None:
    headers = {"x-nwp-tokenizer": "cl100k_base"}
    plain = await client.post("/nwp/rooms/query", json={"limit": 1})
    counted = await client.post("/nwp/rooms/query", json={"limit": 1}, headers=headers)
    unknown = await client.post("/nwp/rooms/query", json={"limit": 1}, headers={"x-nwp-tokenizer": "nobody's"})

    size = len(msgspec.json.encode(plain.json()["data"]))
    for each in (plain, unknown):
        assert each.headers["x-nwp-tokens"] == str(-(-size // 4)) == str(each.json()["token_est"])
        assert "x-nwp-tokens-native" not in each.headers
    assert "x-nwp-tokenizer-used" not in plain.headers
    assert unknown.headers["x-nwp-tokenizer-used"] == unknown.json()["tokenizer_used"] == "fallback"
    assert counted.headers["x-nwp-tokenizer-used"] == counted.json()["tokenizer_used"] == "cl100k_base"
    assert counted.headers["x-nwp-tokens"] == counted.headers["x-nwp-tokens-native"] == str(counted.json()["token_est"])


@requirement("nwp:headers:tokens")
async def test_what_an_action_gives_is_counted_too(client: httpx.AsyncClient) -> None:
    said = {"action_id": "rooms.list", "params": {"limit": 1}}
    plain = await client.post("/nwp/rooms-operations/invoke", json=said)
    counted = await client.post(
        "/nwp/rooms-operations/invoke", json=said, headers={"x-nwp-tokenizer": "cl100k_base", "x-nwp-budget": "1"}
    )

    size = len(msgspec.json.encode(plain.json()["data"]))
    assert plain.headers["x-nwp-tokens"] == str(-(-size // 4)) == str(plain.json()["token_est"])
    assert counted.headers["x-nwp-tokenizer-used"] == counted.json()["tokenizer_used"] == "cl100k_base"
    assert counted.headers["x-nwp-tokens-native"] == str(counted.json()["token_est"])
    assert counted.json()["data"] == plain.json()["data"]


@requirement("nwp:media:lines", "nwp:header:final")
async def test_a_stream_has_the_form_of_its_request(client: httpx.AsyncClient) -> None:
    lines = await client.post("/nwp/rooms/stream", json={"limit": 1})
    assert lines.headers["content-type"].partition(";")[0] == "application/x-ndjson"
    assert [json.loads(line)["data"][0]["id"] for line in lines.text.splitlines()] == ["attic", "cellar", "garden"]

    body = encode(QueryFrame(limit=2, stream=True), EncodingTier.MSGPACK)
    framed = await client.post("/nwp/rooms/query", content=body)
    first_length = 4 + int.from_bytes(framed.content[2:4])
    first, last = decode(framed.content[:first_length]), decode(framed.content[first_length:])
    assert framed.headers["content-type"] == FRAMED
    assert (framed.content[1], framed.content[first_length + 1]) == (0x01, 0x05)
    assert isinstance(first, StreamFrame)
    assert isinstance(last, StreamFrame)
    assert [(each.seq, each.is_last, bool(each.anchor_ref)) for each in (first, last)] == [
        (0, False, True),
        (1, True, False),
    ]


# Ids of requests


@requirement(
    "nwp:headers:request-id", "nwp:headers:request-id-made", "nwp:headers:request-id-wins", "nwp:errors:request-id"
)
@pytest.mark.parametrize(
    ("in_header", "in_body", "told"),
    [
        (ID, None, ID),
        (None, ID, ID),
        (ID, OTHER, ID),
        ("my id", OTHER, "my id"),
        (None, "my id", "my id"),
        (None, None, None),
    ],
)
async def test_a_request_is_answered_under_its_id(
    client: httpx.AsyncClient, in_header: str | None, in_body: str | None, told: str | None
) -> None:
    headers = {"x-nwp-request-id": in_header} if in_header else {}
    said = {"request_id": in_body} if in_body else {}
    good = await client.post("/nwp/rooms/query", json=said, headers=headers)
    bad = await client.post("/nwp/rooms/query", json={**said, "filter": {"nothing": {"$eq": 1}}}, headers=headers)

    ids = [each.headers["x-nwp-request-id"] for each in (good, bad)]
    assert bad.json()["request_id"] == ids[1]
    assert good.json().get("request_id") == (ids[0] if told or in_body else None)
    if told:
        assert ids == [told, told]
    else:
        assert len(set(map(uuid.UUID, ids))) == 2


@requirement("nwp:errors:request-id", "nwp:headers:request-id")
@pytest.mark.parametrize("name", ["framed MessagePack", "framed JSON", "bare MessagePack", "bare JSON"])
async def test_a_frame_with_a_wrong_member_is_refused_under_its_id(client: httpx.AsyncClient, name: str) -> None:
    said = {"request_id": ID, "limit": "many"}
    tier = EncodingTier.JSON if "JSON" in name else EncodingTier.MSGPACK
    payload = encode_value(said, tier)
    header = bytes((FrameType.QUERY, 4 | tier)) + len(payload).to_bytes(2) if "framed" in name else b""

    answer = await client.post("/nwp/rooms/query", content=header + payload)

    assert refusal(answer) == (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FILTER-INVALID")
    assert answer.json()["request_id"] == ID


@requirement("nwp:headers:request-id")
async def test_documents_and_refusals_of_any_kind_repeat_the_id(client: httpx.AsyncClient) -> None:
    asked = [
        ("GET", "/nwp/rooms/.nwm", 200),
        ("GET", "/nwp/rooms/.schema", 200),
        ("GET", "/nwp/site/actions", 200),
        ("GET", "/nwp/rooms/query", 405),
        ("GET", "/nwp/rooms/nothing", 404),
        ("POST", "/nwp/nobody/query", 404),
    ]
    for method, path, status in asked:
        answer = await client.request(method, path, headers={"x-nwp-request-id": ID})
        assert (answer.status_code, answer.headers["x-nwp-request-id"]) == (status, ID)


# Refusals


@requirement("nwp:errors:body", "nwp:errors:request-id", "nwp:frames:error", "nwp:media:error", "nwp:anchors:unknown")
@pytest.mark.parametrize("name", ["framed MessagePack", "framed JSON", "bare JSON"])
async def test_a_refusal_is_json_whatever_the_form_of_the_request(client: httpx.AsyncClient, name: str) -> None:
    query = QueryFrame(anchor_ref="sha256:never")
    body = {
        "framed MessagePack": encode(query, EncodingTier.MSGPACK),
        "framed JSON": encode(query, EncodingTier.JSON),
        "bare JSON": msgspec.json.encode(query),
    }[name]

    answer = await client.post("/nwp/rooms/query", content=body, headers={"x-nwp-request-id": ID})

    assert answer.status_code == 404
    assert answer.json() == {
        "status": "NPS-CLIENT-NOT-FOUND",
        "error": "NCP-ANCHOR-NOT-FOUND",
        "message": "This node never published that schema. Read `.schema` again.",
        "details": {"anchor_ref": "sha256:never"},
        "request_id": ID,
    }
    headers = answer.headers
    assert (headers["content-type"], headers["cache-control"]) == (ERROR, "no-store")
    assert (headers["x-nwp-node-type"], headers["x-nwp-request-id"]) == ("memory", ID)


async def test_every_refusal_tells_what_is_left_of_the_rate(client: httpx.AsyncClient) -> None:
    await client.post("/nwp/rooms/query", json={"limit": 1})
    refused = [
        await client.get("/nwp/rooms/query"),
        await client.get("/nwp/rooms/nothing"),
        await client.get("/nwp/nobody"),
        await client.get("/nwp/rooms/.schema", headers={"authorization": "Bearer pk_nobody"}),
        await client.post("/nwp/rooms/query", content=b"nonsense"),
    ]
    assert [each.status_code for each in refused] == [405, 404, 404, 401, 400]
    for each in refused:
        assert each.headers["x-nwp-rate-limit"] == "100000"
        assert int(each.headers["x-nwp-rate-remaining"]) < 100_000
        assert int(each.headers["x-nwp-rate-reset"]) > 0


@pytest.mark.parametrize("name", ["x-nwp-budget", "x-nwp-depth"])
@pytest.mark.parametrize("said", ["many", "-1", "1.5", "٣", "99999999999"])
async def test_a_number_in_a_header_that_is_none_is_refused(client: httpx.AsyncClient, name: str, said: str) -> None:
    answer = await client.post("/nwp/rooms/query", json={}, headers=[(name.encode(), said.encode())])
    assert refusal(answer)[:2] == (400, "NPS-CLIENT-BAD-PARAM")


async def test_what_cannot_be_understood_costs_as_much_as_what_can(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 4}) as parts, asking(parts) as client:
        refused = [
            await client.post("/nwp/rooms/query", content=b"nonsense"),
            await client.post("/nwp/rooms/query", json={}, headers={"x-nwp-budget": "many"}),
            await client.get("/nwp/rooms-operations/query/"),
            await client.post("/nwp/rooms-operations/query", json={}),
            await client.post("/nwp/rooms/query", json={}),
        ]
    assert [each.status_code for each in refused] == [400, 400, 405, 404, 429]
    assert refusal(refused[-1]) == (429, "NPS-LIMIT-RATE", "NWP-RATE-LIMIT-EXCEEDED")
    assert int(refused[-1].headers["retry-after"]) > 0


async def test_when_the_server_fails_it_says_so_in_the_words_of_the_protocol(
    parts: Parts, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(parts.site, "query", broken)
    answer = await client.post("/nwp/rooms/query", json={}, headers={"x-nwp-request-id": ID})

    assert refusal(answer) == (500, "NPS-SERVER-INTERNAL", "NPS-SERVER-INTERNAL")
    assert "secret" not in answer.text
    assert (answer.headers["cache-control"], answer.json()["request_id"]) == ("no-store", ID)


@pytest.mark.parametrize(
    ("error", "status", "http"),
    [
        (UnreadableFrame("x", code="NCP-ENCODING-UNSUPPORTED"), "NPS-SERVER-ENCODING-UNSUPPORTED", 415),
        (UnreadableFrame("x", code="NCP-VERSION-INCOMPATIBLE"), "NPS-PROTO-VERSION-INCOMPATIBLE", 426),
        (UnreadableFrame("x", code="NCP-STREAM-SEQ-GAP"), "NPS-STREAM-SEQ-GAP", 422),
        (UnreadableFrame("x", code="NCP-STREAM-NOT-FOUND"), "NPS-STREAM-NOT-FOUND", 404),
        (UnreadableFrame("x", code="NCP-STREAM-WINDOW-OVERFLOW"), "NPS-STREAM-LIMIT", 429),
        (UnreadableFrame("x", code="NCP-DIFF-FORMAT-UNSUPPORTED"), "NPS-CLIENT-BAD-FRAME", 400),
        (StreamLimitExceeded("x"), "NPS-STREAM-LIMIT", 429),
        (SubscriptionLimit("x"), "NPS-LIMIT-EXCEEDED", 429),
        (RateLimited("x"), "NPS-LIMIT-RATE", 429),
        (BudgetExceeded("x"), "NPS-LIMIT-BUDGET", 429),
        (TooLarge("x"), "NPS-LIMIT-PAYLOAD", 413),
        (UnknownAction("x"), "NPS-CLIENT-NOT-FOUND", 404),
        (Conflict("x"), "NPS-CLIENT-CONFLICT", 409),
        (InvalidParams("x"), "NPS-CLIENT-UNPROCESSABLE", 422),
        (Unauthenticated("x"), "NPS-AUTH-UNAUTHENTICATED", 401),
        (Forbidden("x"), "NPS-AUTH-FORBIDDEN", 403),
        (CapabilityMissing("x"), "NPS-AUTH-FORBIDDEN", 403),
        (Unsupported("x"), "NPS-SERVER-UNSUPPORTED", 501),
        (TimedOut("x"), "NPS-SERVER-TIMEOUT", 504),
        (OperationFailed("x"), "NPS-SERVER-INTERNAL", 500),
    ],
)
async def test_errors_have_the_status_that_their_code_asks_for(error: SiteError, status: str, http: int) -> None:
    assert (code_of(error).status, code_of(error).http) == (status, http)


async def test_what_went_wrong_inside_is_not_told() -> None:
    error = Unavailable("postgres://owner:secret@db is gone", host="db")
    assert error_frame(error, ID) == ErrorFrame(
        status="NPS-SERVER-UNAVAILABLE",
        error="NWP-NODE-UNAVAILABLE",
        message="The node cannot do this at the moment. Try again later.",
        request_id=ID,
    )


# As others send it


@requirement("nwp:clients:others")
async def test_the_clients_in_use_get_what_they_read(client: httpx.AsyncClient) -> None:
    typescript = {"content-type": "application/nwp-frame", "accept": "application/nwp-capsule"}
    go = {"content-type": "application/nwp-frame", "accept": "application/nwp-frame"}
    listing = encode(ActionFrame(action_id="rooms.list", params={"limit": 1}), EncodingTier.MSGPACK)

    for headers in (typescript, go):
        asked = await client.post("/nwp/rooms/query", content=READABLE["framed MessagePack"], headers=headers)
        invoked = await client.post("/nwp/rooms-operations/invoke", content=listing, headers=headers)
        for answer in (asked, invoked):
            assert (answer.status_code, form(answer), read(answer).count) == (200, "framed MSGPACK", 1)
            assert "nwp-frame" in answer.headers["content-type"]
    schema = await client.get("/nwp/rooms/.schema", headers=typescript)
    assert decode(schema.content).TYPE == 0x01
    assert (await client.get("/nwp/site/actions", headers=typescript)).json()["actions"]

    ingress = {"content-type": "application/nwp-frame", "x-nwp-agent": "urn:nps:agent:ca.example:somebody"}
    for headers in (ingress, {"content-type": "application/json"}):
        body = {"anchor_ref": None, "filter": {}, "limit": 20}
        assert (await client.post("/nwp/rooms/query", json=body, headers=headers)).json()["count"] == 3


async def test_nodes_that_another_process_makes_hides_and_shows_again_are_known(inn: Inn, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'inn.db'}"
    async with inn(store={"url": url}) as parts, asking(parts) as client:
        other = await open_store(url)
        statuses: list[int] = []
        books = parts.config.collection("books")
        for collection in (books, replace(books, private=True), books):
            await other.collections.declare(collection)
            statuses += [(await client.post("/nwp/books/query", json={})).status_code for _ in range(2)]
        await other.close()

    assert statuses == [200, 200, 404, 404, 200, 200]


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        (b"", "The body is empty", ""),
        (b"nonsense", "neither JSON, nor MessagePack, nor a frame", ""),
        (b'{"limit": "many"}', "$.limit", "As in 20."),
        (b'{"order": ["price"]}', "$.order[0]", 'As in [{"field": "price", "dir": "ASC"}].'),
    ],
    ids=["empty", "nonsense", "limit", "order"],
)
async def test_what_cannot_be_read_is_named_and_shown_as_it_should_be(
    client: httpx.AsyncClient, body: bytes, message: str, hint: str
) -> None:
    answer = await client.post("/nwp/rooms/query", content=body)

    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert answer.json()["message"].endswith(hint)
