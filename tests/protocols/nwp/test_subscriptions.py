"""Subscriptions over HTTP, on real connections: what is told, how it is taken up again, and who may not."""

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import key_of
from tests.protocols.nwp.agents import Agent, Listener, code, opened_inn, subscribe, subscribed
from tests.protocols.nwp.conftest import serving

from portico import subscriptions
from portico.access.identity import local_operator
from portico.errors import Unavailable
from portico.protocols import parse_config
from portico.protocols.http import EventStream
from portico.protocols.nwp import feeds
from portico.protocols.nwp.frames import CapsFrame, DiffFrame, EncodingTier, ErrorFrame, SubscribeFrame, decode, encode
from portico.protocols.nwp.settings import NwpSettings
from portico.server.assembly import Parts, open_site, open_site_without_index
from portico.store.records import Merge, Put, Remove, Write
from portico.subscriptions import SubscribeRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE = {"beds": {"$gt": 5}}
TOO_OLD = (409, "NPS-CLIENT-CONFLICT", "NWP-SUBSCRIBE-SEQ-TOO-OLD")
NO_STREAM = (404, "NPS-CLIENT-NOT-FOUND", "NWP-SUBSCRIBE-STREAM-NOT-FOUND")
NO_PATH = (404, "NPS-CLIENT-NOT-FOUND", "NPS-CLIENT-NOT-FOUND")
BAD_FRAME = (400, "NPS-CLIENT-BAD-FRAME", "NPS-CLIENT-BAD-FRAME")
CAPSULE = "application/nwp-capsule"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    folder = tmp_path_factory.mktemp("inn")
    async with opened_inn(folder, nwp={"subscriptions": 2}) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with connected(parts) as client:
        yield client


@asynccontextmanager
async def connected(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a real server, which stops in the end."""
    async with (
        serving(parts) as ports,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports.http}", timeout=30) as client,
    ):
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def agent(parts: Parts, client: httpx.AsyncClient) -> Agent:
    return await known(parts, client)


async def known(parts: Parts, client: httpx.AsyncClient) -> Agent:
    """An agent with a key of its own."""
    return Agent(client, {"authorization": f"Bearer {await key_of(parts, 'ask', 'read:*')}"})


def room(beds: int) -> Put:
    return Put(str(uuid4()), {"beds": beds})


async def told(listener: Listener, count: int) -> list[tuple[int, str, str]]:
    frames = [await listener.frame() for _ in range(count)]
    return [(frame.seq, frame.event_type, frame.entity_id) for frame in frames]


# What is told


@requirement(
    "nwp:subscribe:ack", "nwp:subscribe:events", "nwp:subscribe:event-form", "nwp:diff:seq", "nwp:headers:schema"
)
@pytest.mark.parametrize("form", ["bare", EncodingTier.JSON, EncodingTier.MSGPACK])
async def test_a_subscription_is_acknowledged_and_then_tells_of_changes(
    parts: Parts, agent: Agent, form: str | EncodingTier
) -> None:
    anchor = (await agent.get("rooms/.nwm")).json()["schema_anchors"]["rooms"]
    wanted = subscribe(anchor_ref=anchor)
    body = encode(SubscribeFrame(**wanted), form) if isinstance(form, EncodingTier) else wanted
    rooms = [room(1), room(2)]

    async with subscribed(agent, body) as listener:
        first = await listener.next()
        await parts.store.items.write("rooms", rooms)
        events = [await listener.next() for _ in rooms]

    ack = {"stream_id": wanted["stream_id"], "status": "subscribed", "resumed": False, "last_seq": 0}
    assert first == (
        "",
        CapsFrame(anchor_ref="nps:system:subscribe:ack", count=1, data=[{**ack, "effective_filter": {}}]),
    )
    assert [(id, frame.seq, frame.entity_id) for id, frame in events] == [
        ("1", 1, rooms[0].id),
        ("2", 2, rooms[1].id),
    ]
    assert listener.tier == (form if isinstance(form, EncodingTier) else EncodingTier.JSON)
    assert listener.headers["x-nwp-schema"] == anchor
    shown = {name: listener.headers.get(name) for name in ("content-type", "cache-control", "x-accel-buffering")}
    assert shown == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache, no-store",
        "x-accel-buffering": "no",
    }


@requirement("nwp:diff:fields", "nwp:diff:kinds", "nwp:diff:patches", "nwp:diff:seq", "nwp:frames:diff")
async def test_changes_are_patches_of_the_record(parts: Parts, agent: Agent) -> None:
    wanted, id = subscribe(), str(uuid4())
    async with subscribed(agent, wanted) as listener:
        await listener.frame()
        for write in (Put(id, {"name": "Loft", "beds": 2}), Merge(id, {"beds": 3}), Remove(id)):
            await parts.store.items.write("rooms", [write])
        frames = [await listener.frame() for _ in range(3)]

    anchor = (await agent.get("rooms/.nwm")).json()["schema_anchors"]["rooms"]
    patches = [
        ("create", [{"op": "add", "path": "", "value": {"id": id, "name": "Loft", "beds": 2}}]),
        ("update", [{"op": "replace", "path": "/beds", "value": 3}]),
        ("delete", [{"op": "remove", "path": ""}]),
    ]
    assert frames == [
        DiffFrame(
            anchor_ref=anchor,
            base_seq=seq - 1,
            patch=patch,
            entity_id=id,
            stream_id=wanted["stream_id"],
            seq=seq,
            event_type=kind,
            timestamp=frames[seq - 1].timestamp,
        )
        for seq, (kind, patch) in enumerate(patches, 1)
    ]
    assert all(frame.timestamp.endswith("Z") for frame in frames)


@requirement("nwp:subscribe:filter")
async def test_a_filter_is_entered_and_left(parts: Parts, agent: Agent) -> None:
    small, large = room(1), room(9)
    async with subscribed(agent, subscribe(filter=LARGE)) as listener:
        ack = await listener.frame()
        await parts.store.items.write("rooms", [small, large])
        await parts.store.items.write("rooms", [Merge(small.id, {"beds": 7}), Merge(large.id, {"beds": 2})])
        await parts.store.items.write("rooms", [Merge(small.id, {"beds": 8}), Remove(large.id)])
        events = await told(listener, 4)

    assert ack.data[0]["effective_filter"] == LARGE
    assert events == [
        (1, "create", large.id),
        (2, "create", small.id),
        (3, "delete", large.id),
        (4, "update", small.id),
    ]


@requirement("nwp:heartbeat:sent", "nwp:heartbeat:seq")
async def test_when_nothing_happens_there_is_a_ping_that_takes_no_number(
    parts: Parts, agent: Agent, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert feeds.HEARTBEAT_SECONDS == 30
    monkeypatch.setattr(feeds, "HEARTBEAT_SECONDS", 0.05)
    wanted, made = subscribe(), room(1)
    other = await known(parts, client)
    async with (
        subscribed(agent, wanted) as by_default,
        subscribed(agent, subscribe(heartbeat_interval=0)) as never,
        subscribed(other, subscribe(heartbeat_interval=1)) as each_second,
    ):
        for listener in (by_default, never, each_second):
            await listener.frame()
        early = await by_default.next()
        second = await each_second.next()
        await parts.store.items.write("rooms", [made])
        events = await told(never, 1)
        heard = [await by_default.next()]
        while heard[-1][1].event_type == "ping":
            heard.append(await by_default.next())
        late = await by_default.next()

    for seq, (id, ping) in ((0, early), (1, late)):
        assert (id, ping.event_type, ping.seq, ping.base_seq, ping.patch) == (str(seq), "ping", seq, seq, [])
        assert (ping.stream_id, ping.entity_id) == (wanted["stream_id"], None)
    assert (second[1].event_type, second[1].seq) == ("ping", 0)
    assert events == [(1, "create", made.id)]
    assert (heard[-1][1].seq, heard[-1][1].base_seq) == (1, 0)
    assert all(ping.seq == 0 for _, ping in heard[:-1])


@requirement("nwp:subscribe:frame")
@pytest.mark.parametrize(
    "body",
    [
        {"stream_id": "8d0d7ab2-9c52-4c5b-a9a8-1f7d62d0f9a1"},
        {"action": "subscribe"},
        {"action": "dance", "stream_id": "8d0d7ab2-9c52-4c5b-a9a8-1f7d62d0f9a1"},
        {"action": "subscribe", "stream_id": "two words"},
        {"action": "subscribe", "stream_id": "x" * 65},
        {"action": "subscribe", "stream_id": "8d0d7ab2-9c52-4c5b-a9a8-1f7d62d0f9a1", "resume_from_seq": -1},
    ],
)
async def test_a_frame_has_to_say_what_it_wants_of_which_stream(agent: Agent, body: dict[str, Any]) -> None:
    assert code(await agent.post("rooms/subscribe", body)) == BAD_FRAME


@requirement("nwp:errors:subscribe-stream-not-found")
@pytest.mark.parametrize("action", ["ping", "unsubscribe"])
@pytest.mark.parametrize("said", [{}, {"stream_id": ""}], ids=["missing", "empty"])
async def test_no_stream_is_found_under_no_id(agent: Agent, action: str, said: dict[str, Any]) -> None:
    answer = await agent.post("rooms/subscribe", {"action": action, **said})

    assert code(answer) == (404, "NPS-CLIENT-NOT-FOUND", "NWP-SUBSCRIBE-STREAM-NOT-FOUND")


@requirement("nwp:subscribe:frame", "nwp:subscribe:errors")
@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"filter": {"beds": {"$near": 1}}}, (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FILTER-INVALID")),
        ({"filter": {"stars": {"$eq": 1}}}, (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FIELD-UNKNOWN")),
        ({"filter": {"name": {"$regex": "(a+)+"}}}, (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-REGEX-UNSAFE")),
        ({"anchor_ref": f"sha256:{'0' * 64}"}, (404, "NPS-CLIENT-NOT-FOUND", "NCP-ANCHOR-NOT-FOUND")),
    ],
)
async def test_what_cannot_be_subscribed_to_is_an_error_of_http(
    agent: Agent, said: dict[str, Any], refused: tuple[int, str, str]
) -> None:
    answer = await agent.post("rooms/subscribe", subscribe(**said), accept="text/event-stream")

    assert code(answer) == refused


# Leaving and coming back


@requirement("nwp:resume:replay")
async def test_a_subscription_is_taken_up_after_the_last_number_that_its_reader_has(parts: Parts, agent: Agent) -> None:
    stream, rooms = str(uuid4()), [room(beds) for beds in range(6, 12)]
    async with subscribed(agent, subscribe(stream, filter=LARGE)) as listener:
        await listener.frame()
        await parts.store.items.write("rooms", rooms[:3])
        await told(listener, 3)
    await parts.store.items.write("rooms", [room(1), *rooms[3:5]])

    async with subscribed(agent, subscribe(stream, resume_from_seq=1)) as listener:
        ack = await listener.frame()
        missed = await told(listener, 4)
        await parts.store.items.write("rooms", rooms[5:])
        new = await told(listener, 1)

    said = {"stream_id": stream, "status": "subscribed", "resumed": True, "last_seq": 5, "effective_filter": LARGE}
    assert ack.data == [said]
    assert [*missed, *new] == [(seq, "create", each.id) for seq, each in enumerate(rooms[1:], 2)]


@requirement("nwp:resume:unknown", "nwp:resume:filter", "nwp:resume:buffer")
async def test_what_cannot_be_taken_up_exactly_is_not_taken_up(
    parts: Parts, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = str(uuid4())
    await agent.post("rooms/subscribe", subscribe(stream, filter=LARGE), accept=CAPSULE)
    await parts.store.items.write("rooms", [room(beds) for beds in range(6, 12)])

    async def resumed(id: str, seq: int, **said: Any) -> httpx.Response:
        return await agent.post("rooms/subscribe", subscribe(id, resume_from_seq=seq, **said), accept=CAPSULE)

    never = await resumed(str(uuid4()), 0)
    ahead = await resumed(stream, 7)
    far_ahead = await resumed(stream, 2**63 - 1)
    other_filter = await resumed(stream, 1, filter={"beds": {"$gt": 6}})
    assert (subscriptions.MAX_BEHIND, parts.config.section(NwpSettings).resume) == (10_000, 600)
    monkeypatch.setattr(subscriptions, "MAX_BEHIND", 3)
    too_old = await resumed(stream, 2)
    just_in_time = await resumed(stream, 3)

    assert [code(each) for each in (never, ahead, far_ahead, other_filter, too_old)] == [TOO_OLD] * 5
    assert just_in_time.json()["data"][0]["resumed"] is True


@requirement("nwp:subscribe:owner", "nwp:subscribe:unsubscribe", "nwp:subscribe:ping")
async def test_a_subscription_is_pinged_taken_up_and_ended_by_its_owner_alone(
    parts: Parts, agent: Agent, client: httpx.AsyncClient
) -> None:
    stream, other = str(uuid4()), await known(parts, client)
    numbered = {"beds": {"$gt": 0}}
    ping, unsubscribe = ({"action": each, "stream_id": stream} for each in ("ping", "unsubscribe"))
    async with subscribed(agent, subscribe(stream, filter=numbered)) as listener:
        await listener.frame()
        await parts.store.items.write("rooms", [room(1)])
        await listener.frame()

        taken = await other.post("rooms/subscribe", subscribe(stream, resume_from_seq=0), accept="text/event-stream")
        foreign = [await other.post("rooms/subscribe", each) for each in (ping, unsubscribe)]
        alive = await agent.post("rooms/subscribe", ping)
        ended = await agent.post("rooms/subscribe", unsubscribe)
        rest = await listener.rest()
        again = [await agent.post("rooms/subscribe", each) for each in (ping, unsubscribe)]
        late = await agent.post("rooms/subscribe", subscribe(stream, resume_from_seq=1), accept=CAPSULE)

    assert code(taken) == TOO_OLD
    assert [code(each) for each in (*foreign, *again)] == [NO_STREAM] * 4
    said = {"stream_id": stream, "resumed": False, "effective_filter": {}}
    assert alive.json()["data"] == [{**said, "status": "alive", "last_seq": 1, "effective_filter": numbered}]
    assert ended.json()["data"] == [{**said, "status": "unsubscribed", "last_seq": 0}]
    assert {each.json()["anchor_ref"] for each in (alive, ended)} == {"nps:system:subscribe:ack"}
    assert rest == []
    assert code(late) == TOO_OLD


@requirement("nwp:subscribe:ack-only")
async def test_who_does_not_take_events_gets_the_acknowledgement_and_can_come_back(parts: Parts, agent: Agent) -> None:
    stream, made = str(uuid4()), room(1)
    frame = encode(SubscribeFrame(**subscribe(stream)), EncodingTier.MSGPACK)

    answer = await agent.post("rooms/subscribe", frame, accept=CAPSULE)
    await parts.store.items.write("rooms", [made])
    async with subscribed(agent, subscribe(stream, resume_from_seq=0)) as listener:
        ack = await listener.frame()
        events = await told(listener, 1)

    acknowledged = decode(answer.content)
    assert isinstance(acknowledged, CapsFrame)
    assert (acknowledged.anchor_ref, acknowledged.data[0]["stream_id"]) == ("nps:system:subscribe:ack", stream)
    assert CAPSULE in answer.headers["content-type"]
    assert (ack.data[0]["resumed"], ack.data[0]["last_seq"]) == (True, 1)
    assert events == [(1, "create", made.id)]


async def test_a_reader_that_begins_anew_takes_the_place_of_the_first(parts: Parts, agent: Agent) -> None:
    stream, made = str(uuid4()), room(1)
    async with subscribed(agent, subscribe(stream)) as first:
        await first.frame()
        async with subscribed(agent, subscribe(stream, resume_from_seq=0)) as second:
            await second.frame()
            rest = await first.rest()
            await parts.store.items.write("rooms", [made])
            events = await told(second, 1)

    [interrupted] = rest
    assert (interrupted.error, interrupted.details) == ("NWP-SUBSCRIBE-INTERRUPTED", {"reason": "taken_over"})
    assert events == [(1, "create", made.id)]


async def test_an_agent_has_so_many_subscriptions_at_once(
    parts: Parts, agent: Agent, client: httpx.AsyncClient
) -> None:
    other = await known(parts, client)
    async with subscribed(agent, subscribe()) as first, subscribed(agent, subscribe()) as second:
        await first.frame()
        await second.frame()

        refused = await agent.post("rooms/subscribe", subscribe(), accept="text/event-stream")
        async with subscribed(other, subscribe()) as elsewhere:
            ack = await elsewhere.frame()

    assert code(refused) == (429, "NPS-LIMIT-EXCEEDED", "NWP-SUBSCRIBE-LIMIT-EXCEEDED")
    assert refused.json()["details"]["limit"] == 2
    assert ack.data[0]["status"] == "subscribed"


@requirement("nwp:subscribe:slow")
async def test_a_reader_that_is_too_slow_is_dropped_and_can_come_back(
    parts: Parts, agent: Agent, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EventStream.__init__.__kwdefaults__, "patience", 0.05)  # that a server has with a client
    stream = str(uuid4())
    rooms = [Put(str(uuid4()), {"description": "x" * 200_000}) for _ in range(60)]
    async with subscribed(agent, subscribe()), asleep(agent, subscribe(stream)):
        for made in rooms:
            await parts.store.items.write("rooms", [made])
        # There is room for two: a third is let in once one of them was dropped.
        async with asyncio.timeout(20):
            while (await agent.post("rooms/subscribe", subscribe(), accept=CAPSULE)).status_code == 429:
                await asyncio.sleep(0.02)

    async with subscribed(agent, subscribe(stream, resume_from_seq=0)) as listener:
        ack = await listener.frame()
        events = await told(listener, 60)

    assert ack.data[0]["last_seq"] == 60
    assert events == [(seq, "create", each.id) for seq, each in enumerate(rooms, 1)]


@asynccontextmanager
async def asleep(agent: Agent, body: dict[str, Any]) -> AsyncGenerator[None]:
    """A subscriber that reads its acknowledgement and then nothing more."""
    content = httpx.Request("POST", "http://inn.example", json=body).content
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, ("127.0.0.1", agent.client.base_url.port))
        head = f"POST /nwp/rooms/subscribe HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        sent = "".join(f"{name}: {value}\r\n" for name, value in agent.headers.items())
        await loop.sock_sendall(connection, f"{head}{sent}\r\n".encode() + content)
        async with asyncio.timeout(10):
            read = b""
            while b"data: " not in read:
                read += await loop.sock_recv(connection, 1000)
        yield


# What the owner has turned off, and the end


async def test_a_node_may_tell_of_all_changes_or_of_none(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp={"without": ["subscribe_filter"]}) as parts, connected(parts) as client:
        agent = Agent(client)
        filtered = await agent.post("rooms/subscribe", subscribe(filter=LARGE), accept="text/event-stream")
        whole = await agent.post("rooms/subscribe", subscribe(), accept=CAPSULE)
    async with opened_inn(tmp_path, nwp={"without": ["subscribe"]}) as parts, connected(parts) as client:
        agent = Agent(client)
        off = [
            await agent.post("rooms/subscribe", subscribe(), accept="text/event-stream"),
            await agent.post("rooms/subscribe", {"action": "ping", "stream_id": str(uuid4())}),
        ]

    assert code(filtered) == (501, "NPS-SERVER-UNSUPPORTED", "NWP-SUBSCRIBE-FILTER-UNSUPPORTED")
    assert whole.status_code == 200
    assert [code(each) for each in off] == [NO_PATH, NO_PATH]


@requirement("nwp:subscribe:errors")
async def test_a_server_that_stops_says_so_in_a_last_frame(tmp_path: Path) -> None:
    async with opened_inn(tmp_path) as parts, AsyncExitStack() as running:
        ports = await running.enter_async_context(serving(parts))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports.http}", timeout=30) as client:
            async with subscribed(Agent(client), subscribe()) as listener:
                await listener.frame()
                stopping = asyncio.create_task(running.aclose())
                (last,) = await listener.rest()
            await stopping

    assert isinstance(last, ErrorFrame)
    assert (last.status, last.error) == ("NPS-SERVER-UNAVAILABLE", "NWP-SUBSCRIBE-INTERRUPTED")
    assert "resume_from_seq" in last.message


@pytest.mark.parametrize("opening", [open_site, open_site_without_index])
async def test_who_follows_a_site_that_closes_is_told_so(opening: Any, tmp_path: Path) -> None:
    async with opening(parse_config({"search": {"embedder": "none:"}, "folder": str(tmp_path)})) as parts:
        await parts.store.collections.declare(parts.config.collection("rooms"))
        following = await parts.site.follow(SubscribeRequest("mine", "rooms"), local_operator())

    with pytest.raises(Unavailable):
        await anext(following.events)


async def test_a_key_that_is_revoked_ends_what_was_opened_with_it(
    parts: Parts, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "RECHECK_SECONDS", 0.0)
    before = {key.id for key in await parts.store.keys.list_all()}
    agent = await known(parts, client)
    (key,) = {key.id for key in await parts.store.keys.list_all()} - before
    async with subscribed(agent, subscribe()) as listener:
        await listener.frame()
        await parts.store.keys.revoke(key, datetime.now(UTC))
        await parts.store.items.write("rooms", [room(1)])
        rest = await listener.rest()

    assert [(type(each), each.status) for each in rest] == [(ErrorFrame, "NPS-AUTH-UNAUTHENTICATED")]


# Exactly once


@requirement("nwp:resume:exactly-once", "nwp:diff:seq")
async def test_a_subscriber_lost_twenty_times_and_once_by_a_restart_sees_every_change_once_and_in_order(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    writes = list(scripted(chance, 1000))
    cuts = sorted(chance.sample(range(1, 1000), 20))
    stream, seen = str(uuid4()), list[tuple[int, str, str, Any]]()
    open_inn = partial(opened_inn, tmp_path, f"sqlite:///{tmp_path / 'inn.db'}")

    async with open_inn() as parts, connected(parts) as client:
        agent = Agent(client)
        await agent.post("rooms/subscribe", subscribe(stream), accept=CAPSULE)
        reading = asyncio.create_task(followed(agent, stream, seen, cuts))
        await written(parts, writes[:500])
    await reading
    lost = len(seen)
    async with open_inn() as parts, connected(parts) as client, asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(written(parts, writes[500:]))
        await followed(Agent(client), stream, seen, cuts)

    assert 0 < lost < 1000
    assert cuts == []
    assert seen == [(seq, *expected) for seq, (_, *expected) in enumerate(writes, 1)]


async def followed(agent: Agent, stream: str, seen: list[tuple[int, str, str, Any]], cuts: list[int]) -> None:
    """Read until all is seen or the server has gone. At each cut the connection is closed, and another begun."""
    try:
        while len(seen) < 1000:
            async with subscribed(agent, subscribe(stream, resume_from_seq=len(seen))) as listener:
                await listener.frame()
                await read(listener, seen, cuts[0] if cuts else 1000)
            del cuts[:1]
    except (EOFError, httpx.HTTPError):
        return
    except RuntimeError:  # between two requests a client that was closed says it in this way
        assert agent.client.is_closed


async def read(listener: Listener, seen: list[tuple[int, str, str, Any]], upto: int) -> None:
    while len(seen) < upto:
        frame = await listener.frame()
        if isinstance(frame, ErrorFrame):
            raise EOFError
        value = next((each.get("value") for each in frame.patch), None)
        beds = value["beds"] if isinstance(value, dict) else value
        seen.append((frame.seq, frame.event_type, frame.entity_id, beds))


async def written(parts: Parts, writes: list[tuple[Write, str, str, Any]]) -> None:
    """A few at a time, so that others have their turn in between."""
    for begin in range(0, len(writes), 3):
        await parts.store.items.write("rooms", [write for write, *_ in writes[begin : begin + 3]])


def scripted(chance: random.Random, count: int) -> Iterator[tuple[Write, str, str, Any]]:
    """Writes, each with the change that it makes: its kind, its item and how many beds that then has."""
    there: dict[str, int] = {}
    choices: list[Callable[[str], tuple[Write, str]]] = [
        lambda id: (Merge(id, {"beds": there[id]}), "update"),
        lambda id: (Remove(id), "delete"),
    ]
    for beds in range(1, count + 1):
        if len(there) < 10 or chance.random() < 0.3:
            id = f"room-{beds}"
            there[id] = beds
            yield Put(id, {"beds": beds}), "create", id, beds
            continue
        id = chance.choice(list(there))
        there[id] = beds
        write, kind = choices[chance.random() < 0.3](id)
        if kind == "delete":
            del there[id]
        yield write, kind, id, beds if kind == "update" else None
