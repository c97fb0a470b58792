"""Queries that come again: the same answer under a new id, in turn, and never an old one or one of another caller."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking, key_of, listening

from portico.protocols.nwp.http import NodeApplication
from portico.query import Page, Query
from portico.requests import Caller
from portico.server.assembly import Parts
from portico.server.connections import Connection
from portico.server.http import application
from portico.site import Site
from portico.store.records import Merge, Put, Remove

BY_ID = b'{"fields": ["id"], "order": [{"field": "id"}]}'
QUESTION = b'{"order": [{"field": "price"}], "limit": 2}'
VARYING = frozenset({"date", "x-nwp-request-id", "x-nwp-rate-remaining", "x-nwp-rate-reset"})


def post(body: bytes = QUESTION, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"POST /nwp/rooms/query HTTP/{version}", "host: inn.example", *headers]
    if not any(each.startswith("transfer-encoding") for each in headers):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Told:
    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.split(": ", 1) for line in lines if line)
        self.body = body

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in json.loads(self.body)["data"]]

    @property
    def lasting(self) -> tuple[int, dict[str, str], bytes]:
        """What is the same whenever it is asked."""
        return self.status, {k: v for k, v in self.headers.items() if k not in VARYING}, self.lasting_body

    @property
    def lasting_body(self) -> bytes:
        """The body without its cursor, which expires and so changes from second to second."""
        return re.sub(rb'"next_cursor":"[^"]+"', b'"next_cursor":"..."', self.body)


class Peer:
    """One connection to a site."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, raw: bytes) -> None:
        self._writer.write(raw)

    async def hear(self) -> Told:
        async with asyncio.timeout(60):
            head = await self._reader.readuntil(b"\r\n\r\n")
            told = Told(head, b"")
            told.body = await self._reader.readexactly(int(told.headers.get("content-length", 0)))
            return told

    async def ask(self, raw: bytes | None = None) -> Told:
        self.say(raw or post())
        return await self.hear()

    async def repeat(self, raw: bytes | None = None) -> Told:
        """Ask twice: the second answer is from the cache."""
        await self.ask(raw)
        return await self.ask(raw)

    async def is_over(self) -> bool:
        async with asyncio.timeout(60):
            return await self._reader.read(1) == b""

    def leave(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(parts: Parts) -> AsyncIterator[Peer]:
    async with listening(parts) as port:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        try:
            yield peer
        finally:
            peer.leave()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What came as far as the application."""
    seen: list[str] = []
    usual = NodeApplication.__call__

    async def call(self: NodeApplication, scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await usual(self, scope, receive, send)

    monkeypatch.setattr(NodeApplication, "__call__", call)
    return seen


async def test_the_same_query_has_the_same_answer_each_time(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        usual = await peer.repeat()
        told = [await peer.ask() for _ in range(40)]

    assert [each.lasting for each in told] == [usual.lasting] * 40
    assert usual.ids == ["cellar", "garden"]
    assert all(each.headers.keys() >= VARYING for each in (usual, *told))
    assert {uuid.UUID(each.headers["x-nwp-request-id"]).version for each in told} == {4}
    assert len({each.headers["x-nwp-request-id"] for each in told}) == 40


async def test_a_cursor_of_a_new_query_leads_on(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await peer.repeat()
        seen: list[str] = []
        for limit in (1, 2):
            told = await peer.ask(post(b'{"order": [{"field": "price"}], "filter": {}, "limit": %d}' % limit))
            cursor = json.loads(told.body)["next_cursor"]
            asked = {"order": [{"field": "price"}], "filter": {}, "limit": 1, "cursor": cursor}
            seen += (await peer.ask(post(json.dumps(asked).encode()))).ids

    assert seen == ["garden", "attic"]


@requirement("nwp:anchors:stale-inline")
async def test_who_knows_an_older_schema_is_sent_the_new_one_with_every_answer(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        older = json.loads((await peer.ask()).body)["anchor_ref"]
        await parts.store.items.write("rooms", [Merge("attic", {"balcony": True})])
        await peer.repeat()
        told = [await peer.ask(post(json.dumps({"anchor_ref": older}).encode())) for _ in range(6)]

    said = [json.loads(each.body) for each in told]
    assert [each["inline_anchor"]["anchor_id"] for each in said] == [said[0]["anchor_ref"]] * 6
    assert said[0]["anchor_ref"] != older


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"filter": {"price": {"$near": 1}}}', "NWP-QUERY-FILTER-INVALID"),
        (b'{"filter": {"nothing": {"$eq": 1}}}', "NWP-QUERY-FIELD-UNKNOWN"),
        (b'{"anchor_ref": "sha256:0000"}', "NCP-ANCHOR-NOT-FOUND"),
    ],
)
async def test_what_is_wrong_with_a_new_question_is_told_and_counted(parts: Parts, body: bytes, code: str) -> None:
    async with connected(parts) as peer:
        await peer.repeat()
        told = await peer.ask(post(body))

    assert json.loads(told.body)["error"] == code
    assert int(told.headers["x-nwp-rate-remaining"]) < int(told.headers["x-nwp-rate-limit"])


async def test_a_hundred_queries_at_once_are_all_answered(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        peer.say(b"".join(post(b'{"filter": {"price": {"$gt": %d}}}' % number) for number in range(100)))
        statuses = [(await peer.hear()).status for _ in range(100)]

    assert statuses == [200] * 100


@pytest.mark.parametrize(
    "headers", [[f"x-{n}: 1" for n in range(100)], ["x-long: " + "1" * 3000]], ids=["many", "long"]
)
async def test_what_says_much_about_itself_is_answered_alike(inn: Inn, headers: list[str]) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await peer.repeat()
        told = [await peer.ask(post(QUESTION, *headers)) for _ in range(5)]

    assert [each.ids for each in told] == [["cellar", "garden"]] * 5


async def test_a_body_with_the_bytes_of_an_earlier_request_is_a_body(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await peer.repeat()
        # The rest of a longer body has the bytes of a whole request.
        longer = post(post().rjust(len(post()) + 1, b" "))
        cut = longer.index(b"\r\n\r\n") + 5
        peer.say(longer[:cut])
        await asyncio.sleep(0.02)
        peer.say(longer[cut:])
        told = await peer.hear()

    assert longer[cut:] == post()
    assert told.status == 400


async def test_a_change_is_in_the_very_next_answer(parts: Parts) -> None:
    async with connected(parts) as peer:
        await peer.repeat()
        await parts.store.items.write("rooms", [Merge("attic", {"price": 5})])
        assert (await peer.ask()).ids == ["attic", "cellar"]
        assert (await peer.repeat()).ids == ["attic", "cellar"]


async def test_what_was_asked_before_a_schema_changed_is_not_answered_so_again(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Query] = []
    may_go_on = asyncio.Semaphore(0)
    usual = Site.query

    async def query(self: Site, query: Query, caller: Caller) -> Page:
        begun.append(query)
        await may_go_on.acquire()
        return await usual(self, query, caller)

    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, listening(parts) as port:
        peers = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3)]
        monkeypatch.setattr(Site, "query", query)
        for peer in peers:
            peer.say(post())
        async with asyncio.timeout(60):
            while len(begun) < 3:
                await asyncio.sleep(0.01)
        await parts.store.items.write("rooms", [Merge("attic", {"stairs": 3})])
        hearing = {asyncio.create_task(peer.hear()) for peer in peers}
        before: set[str] = set()
        while hearing:  # each finds what was written for the one before
            may_go_on.release()
            done, hearing = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
            before |= {each.result().headers["x-nwp-schema"] for each in done}
        monkeypatch.setattr(Site, "query", usual)
        told = [(await peer.ask()).headers["x-nwp-schema"] for peer in peers * 3]
        anchor = parts.site.catalog.collection("rooms").anchor_id
        for peer in peers:
            peer.leave()

    assert anchor not in before
    assert told == [anchor] * 9


async def test_answers_keep_their_turn(parts: Parts) -> None:
    other = b'{"order": [{"field": "price", "dir": "DESC"}], "limit": 1}'
    async with connected(parts) as peer:
        await peer.repeat()
        peer.say(post() + post(other) + post() + post(b"{") + post())
        told = [await peer.hear() for _ in range(5)]

    assert [each.ids for each in told if each.status == 200] == [
        ["cellar", "garden"],
        ["attic"],
        ["cellar", "garden"],
        ["cellar", "garden"],
    ]
    assert told[3].status == 400


async def test_nobody_is_left_for_silence_while_a_query_is_answered(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    other = b'{"order": [{"field": "price", "dir": "DESC"}], "limit": 1}'
    made: list[Connection] = []
    waits: list[object] = []
    usual_connection, usual_call = Connection.connection_made, NodeApplication.__call__

    def connection_made(self: Connection, transport: asyncio.Transport) -> None:
        made.append(self)
        usual_connection(self, transport)

    async def call(self: NodeApplication, scope: Scope, receive: Receive, send: Send) -> None:
        waits.append(made[-1].timeout_keep_alive_task)
        await usual_call(self, scope, receive, send)

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    monkeypatch.setattr(NodeApplication, "__call__", call)
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await peer.repeat()
        for _ in range(20):
            peer.say(post() + post(other, "x-nwp-budget: 1000"))
            assert [(await peer.hear()).status for _ in range(2)] == [200, 200]

    assert len(waits) == 42
    assert set(waits) == {None}


async def test_a_question_in_pieces_is_answered_once_it_is_whole(parts: Parts) -> None:
    raw = post()
    async with connected(parts) as peer:
        usual = await peer.repeat()
        for cut in (1, 30, raw.index(b"\r\n\r\n") + 2, raw.index(b"\r\n\r\n") + 4, len(raw) - 1):
            peer.say(raw[:cut])
            await asyncio.sleep(0.02)
            peer.say(raw[cut:])
            assert (await peer.hear()).lasting == usual.lasting


@pytest.mark.parametrize(
    "headers",
    [
        ("connection: close",),
        ("connection: close", "x-forwarded-for: 203.0.113.9"),
        ("x-nwp-budget: 40",),
        ("authorization: Bearer wrong",),
        ("content-encoding: none",),
    ],
    ids=str,
)
async def test_who_asks_in_another_way_is_answered_in_another(parts: Parts, headers: tuple[str, ...]) -> None:
    async with connected(parts) as peer:
        await peer.repeat()
        told = await peer.ask(post(QUESTION, *headers))

        assert told.status == (401 if "wrong" in headers[0] else 200)
        assert ("x-nwp-tokens" in told.headers) == (told.status == 200)
        assert not headers[0].startswith("connection") or await peer.is_over()


async def test_who_waits_to_send_is_told_to_go_on(parts: Parts) -> None:
    raw = post(QUESTION, "expect: 100-continue")
    async with connected(parts) as peer:
        await peer.repeat()
        peer.say(raw[: raw.index(b"\r\n\r\n") + 4])
        assert (await peer.hear()).status == 100
        peer.say(QUESTION)
        assert (await peer.hear()).ids == ["cellar", "garden"]


async def test_bodies_in_chunks_and_older_versions_are_understood(parts: Parts) -> None:
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(QUESTION), QUESTION)
    async with connected(parts) as peer:
        usual = await peer.repeat()
        for _ in range(4):
            assert (await peer.ask(post(chunked, "transfer-encoding: chunked"))).lasting_body == usual.lasting_body
        assert (await peer.ask(post(version="1.0"))).lasting_body == usual.lasting_body
        assert await peer.is_over()


async def test_nonsense_after_a_query_is_refused(parts: Parts) -> None:
    async with connected(parts) as peer:
        assert (await peer.repeat()).status == 200
        peer.say(b"NONSENSE\r\n\r\n")
        assert (await peer.hear()).status == 400
        assert await peer.is_over()


async def test_an_allowance_ends_for_repeated_queries_too(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 30}) as parts, connected(parts) as peer:
        told = [await peer.ask() for _ in range(40)]

    assert [each.status for each in told][:30] == [200] * 30
    assert 429 in [each.status for each in told]
    assert all(each.headers.get("retry-after") for each in told if each.status == 429)


async def test_pages_elsewhere_hear_that_they_may_read_it(inn: Inn) -> None:
    async with inn(server={"origins": ["https://shop.example"]}) as parts, connected(parts) as peer:
        told: list[Any] = [await peer.ask() for _ in range(5)]

    assert {each.headers["vary"] for each in told} == {"Origin"}


async def test_who_does_not_read_is_not_written_to_without_end(inn: Inn, asked: list[str]) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer, asyncio.timeout(60):
        await parts.store.items.write("rooms", [Merge("attic", {"price": 1, "description": "x" * 60_000})])
        await peer.repeat()
        peer.say(post() * 500)
        # A server that answered them all without looking would hold thirty megabytes by then.
        await asyncio.sleep(0.2)
        unread = len(asked)
        told = [await peer.hear() for _ in range(500)]

    assert unread < 500
    assert {each.status for each in told} == {200}


async def ids(client: httpx.AsyncClient, **headers: str) -> list[str]:
    return [each["id"] for each in (await query(client, **headers)).json()["data"]]


async def query(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
    return await client.post("/nwp/rooms/query", content=BY_ID, headers=headers)


async def test_a_repeated_query_is_marked_as_cached_and_counted(parts: Parts, client: httpx.AsyncClient) -> None:
    first, *again = [await query(client) for _ in range(4)]

    assert {answer.status_code for answer in again} == {200}
    assert len({answer.headers["x-nwp-request-id"] for answer in (first, *again)}) == 4
    assert {answer.headers["x-nwp-cached"] for answer in again} == {"true"}
    assert {answer.content for answer in again} == {again[0].content}
    assert again[0].json() == {**first.json(), "cached": True}
    left = [int(answer.headers["x-nwp-rate-remaining"]) for answer in (first, *again)]
    assert left == sorted(left, reverse=True) != left[::-1]


async def test_what_was_written_or_removed_is_in_the_very_next_answer(parts: Parts, client: httpx.AsyncClient) -> None:
    assert [await ids(client) for _ in range(3)] == [["attic", "cellar", "garden"]] * 3

    await parts.store.items.write("rooms", [Put("tower", {"name": "The tower", "storeys": 4})])
    assert [await ids(client) for _ in range(3)] == [["attic", "cellar", "garden", "tower"]] * 3

    await parts.store.items.write("rooms", [Remove("attic")])
    assert [await ids(client) for _ in range(3)] == [["cellar", "garden", "tower"]] * 3


async def test_whoever_repeats_a_query_too_often_is_refused(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 4}) as parts, asking(parts) as client:
        answers = [await query(client) for _ in range(6)]

    assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
    assert answers[-1].json()["error"] == "NWP-RATE-LIMIT-EXCEEDED"
    assert answers[-1].json()["request_id"] == answers[-1].headers["x-nwp-request-id"]


async def test_what_everybody_may_read_is_not_what_a_key_may(inn: Inn) -> None:
    async with inn() as parts, asking(parts) as client:
        token = await key_of(parts, "ask")
        assert [await ids(client) for _ in range(3)] == [["attic", "cellar", "garden"]] * 3
        refused = await query(client, authorization=f"Bearer {token}")
        wrong = await query(client, authorization="Bearer pk_wrong")

    assert [(answer.status_code, "data" in answer.json()) for answer in (refused, wrong)] == [
        (403, False),
        (401, False),
    ]


async def test_a_question_with_a_name_is_answered_by_its_name(client: httpx.AsyncClient) -> None:
    names = [str(uuid.uuid4()) for _ in range(3)]
    bodies = [(await client.post("/nwp/rooms/query", json={"request_id": name})).json() for name in names]
    same = [(await client.post("/nwp/rooms/query", json={"request_id": names[0]})) for _ in range(3)]

    assert [body["request_id"] for body in bodies] == names
    assert {answer.headers["x-nwp-request-id"] for answer in same} == {names[0]}


async def test_a_body_that_comes_in_pieces_is_read_whole(parts: Parts) -> None:
    pieces: list[Message] = [
        {"type": "http.request", "body": BY_ID[:10], "more_body": True},
        {"type": "http.request", "body": BY_ID[10:], "more_body": False},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return pieces.pop(0) if pieces else await asyncio.Future[Any]()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/nwp/rooms/query", "scheme": "http", "headers": []}
    await application(parts)(scope, receive, send)

    assert sent[0]["status"] == 200
