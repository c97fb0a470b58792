"""Questions that come again natively, to the letter: answered as before, and only as long as that is the answer."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.faces.conftest import soon
from tests.faces.nwp.conftest import Native, Ports, opened_inn, serving

from portico.calls import Call, Caller, Outcome, Task
from portico.faces.nwp.exchange import Exchange
from portico.faces.nwp.frames import ActionFrame, CapsFrame, ErrorFrame, Header, QueryFrame, Tier, Type, encode
from portico.faces.nwp.sessions import Answering, Session
from portico.limits import Rates
from portico.nip.authority import Authority
from portico.server import Parts
from portico.site import Site

IDS = [{"id": "cellar"}, {"id": "garden"}, {"id": "attic"}]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an allowance nor a turn comes to its end, however busy the machine is."""
    monkeypatch.setattr("portico.connections.QUICK_SECONDS", 60.0)
    monkeypatch.setattr(Rates, "has_at_hand", lambda *_: True)
    monkeypatch.setattr(Rates, "spend_at_hand", lambda *_: True)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was written again."""
    written: list[bytes] = []
    usual = Answering.answer_again

    def answer_again(self: Answering, key: Hashable, caller: Caller) -> bytes | None:
        found = usual(self, key, caller)
        written.extend([found] if found else [])
        return found

    monkeypatch.setattr(Answering, "answer_again", answer_again)
    return written


@asynccontextmanager
async def inn(folder: Path) -> AsyncIterator[tuple[Parts, Ports, bytes]]:
    """A site, where it listens, and a question by its bytes."""
    async with opened_inn(folder, anonymous={"scopes": ["ask", "*:*"], "danger": "dangerous"}) as parts:
        anchor = parts.site.catalog.collection("rooms").anchor_id
        asked = {"anchor_ref": anchor, "order": [{"field": "price", "dir": "ASC"}], "fields": ["id"]}
        async with serving(parts) as ports:
            yield parts, ports, encode(msgspec.convert(asked, QueryFrame, str_keys=True), Tier.JSON)


async def ask(agent: Native, raw: bytes) -> CapsFrame | ErrorFrame:
    await agent.send_raw(raw)
    told = await agent.receive()
    assert isinstance(told, CapsFrame | ErrorFrame)
    return told


async def acquaint(agent: Native, raw: bytes, given: list[bytes]) -> None:
    """Ask until the answer is given again. Whatever is written meanwhile, be it a note, makes it a new one."""
    async with asyncio.timeout(60):
        while not given:
            assert (await ask(agent, raw)).data == IDS
    given.clear()


async def test_a_question_that_came_before_is_not_read_again_whoever_asks(
    tmp_path: Path, given: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, read = Answering.read, list[bytes]()

    def reading(self: Answering, header: Header, raw: bytes) -> Any:
        read.append(raw)
        return usual(self, header, raw)

    async with (
        inn(tmp_path) as (_, ports, raw),
        await Native.open(ports.native) as agent,
        await Native.open(ports.native) as other,
    ):
        await acquaint(agent, raw, given)
        await other.ask(QueryFrame(limit=1, depth=0))
        monkeypatch.setattr(Answering, "read", reading)
        told = [await ask(each, raw) for each in (agent, other, agent, other)]

    assert [each.data for each in told] == [IDS] * 4
    assert len(given) + len(read) == 4
    assert len(given) >= 2


async def test_every_session_gets_what_it_agreed_on(tmp_path: Path, given: list[bytes]) -> None:
    async with (
        inn(tmp_path) as (_, ports, raw),
        await Native.open(ports.native, ["json"]) as in_json,
        await Native.open(ports.native, ["msgpack"]) as packed,
        await Native.open(ports.native, ["json"], max_frame_payload=1060) as narrow,
    ):
        for agent in (in_json, packed, narrow):
            await ask(agent, raw)
        await acquaint(in_json, raw, given)
        told = {}
        for name, agent in {"json": in_json, "msgpack": packed, "narrow": narrow}.items():
            answers = [await ask(agent, raw) for _ in range(4)]
            told[name] = {(agent.tier, each.count) for each in answers}

    assert told == {"json": {(Tier.JSON, 3)}, "msgpack": {(Tier.MSGPACK, 3)}, "narrow": {(Tier.JSON, 2)}}


async def test_it_waits_for_what_was_asked_before_it(
    tmp_path: Path, given: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, arrived, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    usual_call, usual_data = Site.call, Session.data_received

    async def call(self: Site, call: Call, caller: Caller) -> Outcome | Task:
        begun.set()
        await may_end.wait()
        return await usual_call(self, call, caller)

    def data_received(self: Session, data: bytes) -> None:
        usual_data(self, data)
        if begun.is_set():
            arrived.set()

    monkeypatch.setattr(Site, "call", call)
    monkeypatch.setattr(Session, "data_received", data_received)
    async with inn(tmp_path) as (_, ports, raw), await Native.open(ports.native) as agent:
        await acquaint(agent, raw, given)
        await agent.send(ActionFrame(action_id="rooms.count"))
        await soon(begun)
        await agent.send_raw(raw)
        await soon(arrived)
        may_end.set()
        in_order = [(await agent.receive()).data for _ in range(2)]

    assert in_order == [[{"count": 3}], IDS]


async def test_who_has_shown_a_certificate_is_given_what_that_allows(tmp_path: Path, given: list[bytes]) -> None:
    async with inn(tmp_path) as (parts, ports, raw):
        certificate = (await Authority(parts.config, parts.store).issue("eve", scopes=["ask"])).certificate
        payload = msgspec.json.encode(certificate)
        async with await Native.open(ports.native) as agent:
            await acquaint(agent, raw, given)
            accepted = await ask(agent, Header(Type.IDENT, Tier.JSON, len(payload)).encode() + payload)
            refused = [await ask(agent, raw) for _ in range(3)]

    assert accepted.data[0]["status"] == "accepted"
    assert {each.error for each in refused} == {"NWP-AUTH-NID-SCOPE-VIOLATION"}
    assert given == []


async def test_after_a_while_it_is_answered_anew(
    tmp_path: Path, given: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Exchange.give_again

    def give_late(self: Exchange, answer: Any, caller: Caller) -> bool:
        return usual(self, replace(answer, until=answer.until - 60), caller)

    async with inn(tmp_path) as (_, ports, raw), await Native.open(ports.native) as agent:
        await acquaint(agent, raw, given)
        monkeypatch.setattr(Exchange, "give_again", give_late)
        told = [(await ask(agent, raw)).data for _ in range(3)]

    assert (told, given) == ([IDS] * 3, [])


async def test_who_does_not_read_is_not_written_to(
    tmp_path: Path, given: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[Session] = []
    usual = Session.connection_made

    def connection_made(self: Session, transport: asyncio.BaseTransport) -> None:
        sessions.append(self)
        usual(self, transport)

    monkeypatch.setattr(Session, "connection_made", connection_made)
    async with inn(tmp_path) as (_, ports, raw), await Native.open(ports.native) as agent:
        await acquaint(agent, raw, given)
        sessions[-1].pause_writing()
        await agent.send_raw(raw)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await agent.receive()
        sessions[-1].resume_writing()
        told = await agent.receive()

    assert (told.data, given) == (IDS, [])
