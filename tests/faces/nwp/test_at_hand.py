"""Questions whose answers are at hand are answered on their connection: as anywhere, in turn, and to nobody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from tests.conformance.requirements import requirement
from tests.faces.conftest import Inn, listening

from portico.calls import Caller
from portico.connections import Connection
from portico.faces.nwp.overlay import Overlay
from portico.limits import Rates
from portico.query import Page, Query
from portico.server import Parts
from portico.site import Site
from portico.store.records import Merge

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
        return self.status, {k: v for k, v in self.headers.items() if k not in VARYING}, self.body


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

    async def familiarise(self, raw: bytes | None = None) -> Told:
        """Ask until the answer is at hand."""
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
        yield peer
        peer.leave()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What came as far as the application."""
    seen: list[str] = []
    usual = Overlay.__call__

    async def call(self: Overlay, scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await usual(self, scope, receive, send)

    monkeypatch.setattr(Overlay, "__call__", call)
    return seen


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was answered before it came there."""
    seen: list[str] = []
    usual = Overlay.at_hand

    def at_hand(self: Overlay, path: str, *given: Any) -> tuple[bytes, bytes] | None:
        found = usual(self, path, *given)
        seen.extend([path] if found else [])
        return found

    monkeypatch.setattr(Overlay, "at_hand", at_hand)
    return seen


async def test_an_answer_at_hand_is_the_one_that_the_application_gives(inn: Inn, asked: list[str]) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        usual = await peer.familiarise()
        told = [await peer.ask() for _ in range(40)]

    assert len(asked) < 40
    assert [each.lasting for each in told] == [usual.lasting] * 40
    assert usual.ids == ["cellar", "garden"]
    assert all(each.headers.keys() >= VARYING for each in (usual, *told))
    assert len({each.headers["x-nwp-request-id"] for each in told}) == 40


AT_HAND = (
    b'{"filter": {"price": {"$lt": 41}}, "order": [{"field": "price"}], "limit": 5}',
    b'{"filter": {"price": {"$gte": 30}, "beds": {"$in": [1, 2]}}, "limit": 1}',
    b'{"filter": {"$or": [{"name": {"$eq": "The attic"}}, {"price": {"$between": [1, 26]}}]}}',
    b'{"fields": ["name"], "order": [{"field": "name", "dir": "DESC"}], "limit": 2}',
    b'{"filter": {"price": {"$lt": 41}}, "request_id": "0b6c5a1e-7f52-4c59-8f6f-3b8f4f8a2d11"}',
)
NOT_AT_HAND = (
    b'{"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}]}}',
    b'{"filter": {"name": {"$regex": "^The"}}, "limit": 1}',
    b'{"filter": {"price": {"$lt": 41}}, "token_budget": 1000}',
)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an allowance nor a turn comes to its end, however busy the machine is."""
    monkeypatch.setattr("portico.connections.QUICK_SECONDS", 60.0)
    monkeypatch.setattr(Rates, "has_at_hand", lambda *_: True)
    monkeypatch.setattr(Rates, "spend_at_hand", lambda *_: True)


async def acquainted(peer: Peer) -> None:
    """Ask until every item is in memory."""
    for _ in range(10):
        await peer.ask()
    await peer.ask(post(b'{"limit": 100}'))


def told_alike(told: Told) -> tuple[int, dict[str, str], dict[str, Any]]:
    """What two sites with the same items say alike: cursors are signed by each."""
    said = {name: value for name, value in json.loads(told.body).items() if name != "next_cursor"}
    own = VARYING | {"content-length"}
    return told.status, {name: value for name, value in told.headers.items() if name not in own}, said


@pytest.mark.usefixtures("unhurried")
async def test_a_new_question_is_answered_as_the_application_answers_it(inn: Inn, answered: list[str]) -> None:
    limits = {"anonymous_per_minute": 100_000}
    async with inn(limits=limits) as parts, connected(parts) as peer:
        await acquainted(peer)
        answered.clear()
        told = [await peer.ask(post(each)) for each in AT_HAND]
        at_hand = len(answered)
        told += [await peer.ask(post(each)) for each in NOT_AT_HAND]
    async with inn(limits=limits, server={"origins": ["https://shop.example"]}) as parts, connected(parts) as peer:
        answered.clear()
        usual = [await peer.ask(post(each)) for each in (*AT_HAND, *NOT_AT_HAND)]

    assert 3 <= at_hand <= len(AT_HAND)  # while somebody writes, be it a note, the store is looked at
    assert answered == []
    assert [each.headers.pop("vary") for each in usual] == ["Origin"] * len(usual)
    assert [told_alike(each) for each in told] == [told_alike(each) for each in usual]
    assert [bool(json.loads(each.body).get("next_cursor")) for each in told[:2]] == [False, True]
    assert told[4].headers["x-nwp-request-id"] == "0b6c5a1e-7f52-4c59-8f6f-3b8f4f8a2d11"


@pytest.mark.usefixtures("unhurried")
async def test_a_cursor_of_an_answer_at_hand_leads_on(inn: Inn, answered: list[str]) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await acquainted(peer)
        answered.clear()
        seen: list[str] = []
        for limit in (1, 2):
            told = await peer.ask(post(b'{"order": [{"field": "price"}], "filter": {}, "limit": %d}' % limit))
            cursor = json.loads(told.body)["next_cursor"]
            asked = {"order": [{"field": "price"}], "filter": {}, "limit": 1, "cursor": cursor}
            seen += (await peer.ask(post(json.dumps(asked).encode()))).ids

    assert answered
    assert seen == ["garden", "attic"]


@requirement("nwp:anchors:stale-inline")
async def test_who_knows_an_older_schema_is_sent_the_new_one_with_every_answer(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        older = json.loads((await peer.ask()).body)["anchor_ref"]
        await parts.store.items.write("rooms", [Merge("attic", {"balcony": True})])
        await acquainted(peer)
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
        await peer.familiarise()
        told = await peer.ask(post(body))

    assert json.loads(told.body)["error"] == code
    assert int(told.headers["x-nwp-rate-remaining"]) < int(told.headers["x-nwp-rate-limit"])


@pytest.mark.usefixtures("unhurried")
async def test_a_request_that_comes_again_is_not_read_again(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Connection] = []
    usual = Connection.on_message_begin

    def begin(self: Connection) -> None:
        read.append(self)
        usual(self)

    monkeypatch.setattr(Connection, "on_message_begin", begin)
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await acquainted(peer)
        read.clear()
        told = [await peer.ask() for _ in range(5)]
        assert len(read) < 5
        # Two at once are two: what came then is not known as one.
        peer.say(post() * 2)
        told += [await peer.hear(), await peer.hear()]
        peer.say(post() * 2)
        told += [await peer.hear(), await peer.hear()]

    assert len(read) >= 4
    assert len({each.lasting[2] for each in told}) == 1


@pytest.mark.usefixtures("unhurried")
async def test_many_questions_at_once_hold_up_nobody_else(
    inn: Inn, answered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await acquainted(peer)
        answered.clear()
        peer.say(b"".join(post(b'{"filter": {"price": {"$gt": %d}}}' % number) for number in range(100)))
        statuses = [(await peer.hear()).status for _ in range(100)]
        by_number = len(answered)
        monkeypatch.setattr("portico.connections.QUICK_SECONDS", 0.0)
        answered.clear()
        late = await peer.ask(post(b'{"filter": {"price": {"$gt": 7.5}}}'))

    assert statuses == [200] * 100
    assert 0 < by_number < 100
    assert (late.status, answered) == (200, [])


async def test_line_breaks_between_requests_keep_no_connection(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Connection] = []
    usual = Connection.connection_made

    def connection_made(self: Connection, transport: asyncio.Transport) -> None:
        made.append(self)
        self.timeout_keep_alive = 0.05  # pyright: ignore[reportAttributeAccessIssue]
        usual(self, transport)

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    async with inn() as parts, connected(parts) as peer:
        await peer.ask()
        peer.say(b"\r\n")
        assert await peer.is_over()


@pytest.mark.usefixtures("unhurried")
async def test_who_was_answered_without_a_timer_is_left_once_quiet_and_not_before(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Connection] = []
    usual = Connection.connection_made

    def connection_made(self: Connection, transport: asyncio.Transport) -> None:
        made.append(self)
        usual(self, transport)

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await acquainted(peer)
        async with asyncio.timeout(60):  # whatever is written meanwhile, be it a note, makes an answer a new one
            timer = None
            while timer is None or made[-1].timeout_keep_alive_task is not timer:
                timer = made[-1].timeout_keep_alive_task
                await peer.ask()
        made[-1].timeout_keep_alive_handler()
        assert (await peer.ask()).status == 200
        made[-1].timeout_keep_alive = 0
        made[-1].timeout_keep_alive_handler()
        assert await peer.is_over()


@pytest.mark.parametrize(
    "headers", [[f"x-{n}: 1" for n in range(100)], ["x-long: " + "1" * 3000]], ids=["many", "long"]
)
async def test_what_says_much_about_itself_is_not_kept(inn: Inn, answered: list[str], headers: list[str]) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await acquainted(peer)
        answered.clear()
        told = [await peer.ask(post(QUESTION, *headers)) for _ in range(5)]

    assert [each.ids for each in told] == [["cellar", "garden"]] * 5
    assert answered == []


async def test_a_request_that_came_before_is_known_again_only_as_a_whole(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await acquainted(peer)
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
        await peer.familiarise()
        await parts.store.items.write("rooms", [Merge("attic", {"price": 5})])
        assert (await peer.ask()).ids == ["attic", "cellar"]
        assert (await peer.familiarise()).ids == ["attic", "cellar"]


@pytest.mark.usefixtures("unhurried")
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


async def test_answers_keep_their_turn_whoever_gives_them(parts: Parts, asked: list[str]) -> None:
    other = b'{"order": [{"field": "price", "dir": "DESC"}], "limit": 1}'
    async with connected(parts) as peer:
        await peer.familiarise()
        peer.say(post() + post(other) + post() + post(b"{") + post())
        told = [await peer.hear() for _ in range(5)]

    assert [each.ids for each in told if each.status == 200] == [
        ["cellar", "garden"],
        ["attic"],
        ["cellar", "garden"],
        ["cellar", "garden"],
    ]
    assert told[3].status == 400


async def test_nobody_is_left_for_silence_while_a_question_after_one_at_hand_is_answered(
    inn: Inn, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = b'{"order": [{"field": "price", "dir": "DESC"}], "limit": 1}'
    made: list[Connection] = []
    waits: list[object] = []
    usual_connection, usual_call = Connection.connection_made, Overlay.__call__

    def connection_made(self: Connection, transport: asyncio.Transport) -> None:
        made.append(self)
        usual_connection(self, transport)

    async def call(self: Overlay, scope: Scope, receive: Receive, send: Send) -> None:
        waits.append(made[-1].timeout_keep_alive_task)
        await usual_call(self, scope, receive, send)

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    monkeypatch.setattr(Overlay, "__call__", call)
    async with inn(limits={"anonymous_per_minute": 100_000}) as parts, connected(parts) as peer:
        await peer.familiarise()
        for _ in range(20):
            peer.say(post() + post(other, "x-nwp-budget: 1000"))
            assert [(await peer.hear()).status for _ in range(2)] == [200, 200]

    assert 20 < len(waits) < 42
    assert set(waits) == {None}


async def test_a_question_in_pieces_is_answered_once_it_is_whole(parts: Parts) -> None:
    raw = post()
    async with connected(parts) as peer:
        usual = await peer.familiarise()
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
        await peer.familiarise()
        told = await peer.ask(post(QUESTION, *headers))

        assert told.status == (401 if "wrong" in headers[0] else 200)
        assert ("x-nwp-tokens" in told.headers) == (told.status == 200)
        assert not headers[0].startswith("connection") or await peer.is_over()


async def test_who_waits_to_send_is_told_to_go_on(parts: Parts) -> None:
    raw = post(QUESTION, "expect: 100-continue")
    async with connected(parts) as peer:
        await peer.familiarise()
        peer.say(raw[: raw.index(b"\r\n\r\n") + 4])
        assert (await peer.hear()).status == 100
        peer.say(QUESTION)
        assert (await peer.hear()).ids == ["cellar", "garden"]


async def test_bodies_in_chunks_and_older_versions_are_understood(parts: Parts) -> None:
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(QUESTION), QUESTION)
    async with connected(parts) as peer:
        usual = await peer.familiarise()
        for _ in range(4):
            assert (await peer.ask(post(chunked, "transfer-encoding: chunked"))).body == usual.body
        assert (await peer.ask(post(version="1.0"))).body == usual.body
        assert await peer.is_over()


async def test_nonsense_after_an_answer_at_hand_is_refused(parts: Parts) -> None:
    async with connected(parts) as peer:
        await peer.familiarise()
        peer.say(post() + b"NONSENSE\r\n\r\n")
        assert (await peer.hear()).status == 200
        assert (await peer.hear()).status == 400
        assert await peer.is_over()


async def test_an_allowance_ends_for_answers_at_hand_too(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 30}) as parts, connected(parts) as peer:
        told = [await peer.ask() for _ in range(40)]

    assert [each.status for each in told][:30] == [200] * 30
    assert 429 in [each.status for each in told]
    assert all(each.headers.get("retry-after") for each in told if each.status == 429)


async def test_pages_elsewhere_hear_that_they_may_read_it(inn: Inn, asked: list[str]) -> None:
    async with inn(server={"origins": ["https://shop.example"]}) as parts, connected(parts) as peer:
        told: list[Any] = [await peer.ask() for _ in range(5)]

    assert len(asked) == 5
    assert {each.headers["vary"] for each in told} == {"Origin"}


async def test_who_does_not_read_is_not_written_to_without_end(
    parts: Parts, asked: list[str], answered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing holds answers back but who reads them.
    monkeypatch.setattr(Rates, "has_at_hand", lambda *_: True)
    monkeypatch.setattr(Rates, "spend_at_hand", lambda *_: True)
    await parts.store.items.write("rooms", [Merge("attic", {"price": 1, "description": "x" * 60_000})])
    async with connected(parts) as peer, asyncio.timeout(60):
        await peer.familiarise()
        peer.say(post() * 500)
        # A server that answered them all without looking would hold thirty megabytes by then.
        await asyncio.sleep(0.2)
        unread = len(asked) + len(answered)
        told = [await peer.hear() for _ in range(500)]

    assert answered
    assert unread < 500
    assert {each.status for each in told} <= {200, 429}
