"""Records of 10 bytes to 5 MB: read, streamed, subscribed to and resumed, frame by frame and by our client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.nwp.conftest import Native, Open, serving
from tests.protocols.nwp.shop import shop

from portico.client.transports.nwp import Change, NativeNwpClient, Node, NwpClient, NwpError
from portico.protocols.nwp.frames import (
    LARGEST,
    ActionFrame,
    CapsFrame,
    DiffFrame,
    ErrorFrame,
    Frame,
    OrderKey,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    encode,
)
from portico.store.records import Put, Remove

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZES = (10, 1_000, 40_000, 64_000, 64_400, 65_500, 65_536, 70_000, 1_000_000, 5_000_000, 20)
RECORDS: dict[str, dict[str, Any]] = {
    f"r{place:02}": {"n": place, "text": f"{place:02}" * (size // 2)} for place, size in enumerate(SIZES)
}
WHOLE = [{"id": id, **data} for id, data in RECORDS.items()]
EXTENDED: dict[str, Any] = {"ext_support": True, "max_frame_payload": 16 << 20}
BARE: dict[str, Any] = {"tier": "json", "framed": False}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    anonymous = {"scopes": ["ask", "*:*"], "danger": "dangerous"}
    async with shop(tmp_path_factory.mktemp("large"), RECORDS, anonymous=anonymous) as parts, serving(parts) as ports:
        yield Open(parts, ports)


@asynccontextmanager
async def connected(way: str, served: Open) -> AsyncIterator[Node]:
    if way == "native":
        client: Node = await NativeNwpClient.connect(f"nwp://127.0.0.1:{served.ports.native}/things")
    else:
        client = NwpClient(f"http://127.0.0.1:{served.ports.http}", node="things", **(BARE if way == "bare" else {}))
    async with client, asyncio.timeout(120):
        yield client


async def query_pages(agent: Native, **said: Any) -> list[CapsFrame]:
    """Every page of a query, and no more requests than there are records."""
    pages: list[CapsFrame] = []
    while not pages or pages[-1].next_cursor:
        cursor = pages[-1].next_cursor if pages else None
        page = await agent.ask(msgspec.convert({"limit": 1000, "depth": 0, "cursor": cursor, **said}, QueryFrame))
        assert isinstance(page, CapsFrame), page
        pages.append(page)
        assert len(pages) <= len(RECORDS)
    return pages


async def stream_parts(agent: Native, **said: Any) -> list[StreamFrame]:
    parts: list[StreamFrame] = []
    await agent.send(msgspec.convert({"stream": True, "limit": 100, **said}, QueryFrame))
    while not parts or not parts[-1].is_last:
        part = await agent.receive()
        assert isinstance(part, StreamFrame), part
        assert not part.error_code
        parts.append(part)
    return parts


async def rewrite(served: Open, mark: int) -> None:
    """Write every record once more, with another number."""
    for id, data in RECORDS.items():
        await served.parts.store.items.write("things", [Put(id, {**data, "n": mark, "text": f"{mark}{data['text']}"})])


async def restore(served: Open) -> None:
    await served.parts.store.items.write("things", [Put(id, data) for id, data in RECORDS.items()])


def records_of(frames: list[Any]) -> list[dict[str, Any]]:
    return [record for frame in frames for record in frame.data]


@requirement("nwp:header:extended", "nwp:native:query")
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_extended_frames_carry_records_of_any_size_to_an_agent_that_reads_them(
    served: Open, encoding: str
) -> None:
    async with await Native.open(served.ports.native, [encoding], **EXTENDED) as agent:
        welcome = agent.said
        pages = await query_pages(agent)
        parts = await stream_parts(agent)

    assert (welcome["ext_support"], welcome["max_frame_payload"]) == (True, 16 << 20)
    assert records_of(pages) == WHOLE
    assert records_of(parts) == WHOLE
    assert not [frame for frame in (*pages, *parts) if frame.trimmed]
    assert [part.seq for part in parts] == list(range(len(parts)))


@requirement("nwp:native:subscribe", "nwp:header:extended")
async def test_changes_of_any_size_are_told_and_taken_up_again(served: Open) -> None:
    async with await Native.open(served.ports.native, **EXTENDED) as agent:
        subscribe = SubscribeFrame(action="subscribe", stream_id="large", anchor_ref=await anchor_of(agent))
        await agent.ask(subscribe)
        await rewrite(served, 77)
        changes = [await agent.receive() for _ in RECORDS]
    async with await Native.open(served.ports.native, **EXTENDED) as agent:
        resumed = await agent.ask(msgspec.structs.replace(subscribe, resume_from_seq=4))
        again = [await agent.receive() for _ in range(len(RECORDS) - 4)]
        await agent.ask(SubscribeFrame(action="unsubscribe", stream_id="large"))
    await restore(served)

    assert [(change.seq, change.entity_id) for change in changes] == list(enumerate(RECORDS, 1))
    assert [text_of(change) for change in changes] == [f"77{data['text']}" for data in RECORDS.values()]
    assert isinstance(resumed, CapsFrame)
    assert resumed.data[0]["resumed"]
    assert again == changes[4:]


@requirement("nwp:native:too-large")
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_an_agent_without_extended_frames_gets_past_a_record_that_no_frame_holds(
    served: Open, encoding: str
) -> None:
    async with await Native.open(served.ports.native, [encoding]) as agent:
        welcome = agent.said
        pages = await query_pages(agent)
        parts = await stream_parts(agent)

    assert (welcome["ext_support"], welcome["max_frame_payload"]) == (False, LARGEST)
    for frames in (pages, parts):
        shown = records_of(frames)
        assert [(record["id"], record["n"]) for record in shown] == [(each["id"], each["n"]) for each in WHOLE]
        trimmed = {record["id"]: frame.trimmed for frame in frames for record in frame.data if frame.trimmed}
        assert list(trimmed) == ["r05", "r06", "r07", "r08", "r09"]
        assert {each["reason"] for each in trimmed.values()} == {"frame_size"}
        assert {*map(tuple, (each["summarized_fields"] for each in trimmed.values()))} == {("text",)}
        assert [record for record in shown if record["id"] not in trimmed] == [
            record for record in WHOLE if record["id"] not in trimmed
        ]


@requirement("nwp:native:too-large")
@pytest.mark.parametrize("said", [{}, EXTENDED, {"max_frame_payload": 2048}], ids=["default", "extended", "small"])
async def test_what_is_sorted_or_grouped_by_long_texts_is_streamed_to_its_end(
    served: Open, said: dict[str, Any]
) -> None:
    operations = {"operations": [{"func": "COUNT", "alias": "many"}], "group_by": ["text"]}
    async with await Native.open(served.ports.native, **said) as agent:
        falling = await stream_parts(agent, order=[{"field": "text", "dir": "DESC"}])
        groups = await stream_parts(agent, aggregate=operations)

    assert [record["id"] for record in records_of(falling)] == sorted(RECORDS, reverse=True)
    assert [row["many"] for row in records_of(groups)] == [1] * len(RECORDS)


async def test_a_cursor_that_no_frame_holds_is_refused_with_the_way_around_it(served: Open) -> None:
    async with await Native.open(served.ports.native) as agent:
        order = [OrderKey("text", "DESC")]
        refused = await agent.ask(QueryFrame(limit=1, order=order, filter={"n": {"$lte": 9}}))

    assert isinstance(refused, ErrorFrame)
    assert refused.error == "NCP-FRAME-PAYLOAD-TOO-LARGE"
    assert "cursor" in refused.message
    assert "stream" in refused.message


@requirement("nwp:native:too-large")
async def test_a_record_is_shortened_to_its_id_if_nothing_else_fits(served: Open) -> None:
    hostile: dict[str, dict[str, Any]] = {
        "title": {"title": "t" * 70_000, "url": f"https://shop.example/{'u' * 70_000}"},
        "list": {"list": list(range(40_000))},
        "many": {f"field{n:05}": n for n in range(6_000)},
        "i" * 1024: {"text": "\x01" * 20_000},
        "last": {"n": 1},
    }
    await served.parts.store.items.write("things", [Put(id, {"hostile": True, **data}) for id, data in hostile.items()])
    async with await Native.open(served.ports.native, ["json"]) as agent:
        pages = await query_pages(agent, filter={"hostile": {"$eq": True}})
    await served.parts.store.items.write("things", [Remove(id) for id in hostile])

    shown = {record["id"]: record for record in records_of(pages)}
    assert sorted(shown) == sorted(hostile)
    assert (shown["list"], shown["last"]) == ({"id": "list", "hostile": True}, {"id": "last", "hostile": True, "n": 1})
    assert len(shown["title"]["title"]) < 200
    assert len(shown["many"]) > 1000


@requirement("nwp:native:too-large", "nwp:native:subscribe")
async def test_a_subscription_goes_on_past_a_change_that_no_frame_holds(served: Open) -> None:
    async with await Native.open(served.ports.native) as agent:
        subscribe = SubscribeFrame(action="subscribe", stream_id="small", anchor_ref=await anchor_of(agent))
        await agent.ask(subscribe)
        await served.parts.store.items.write("things", [Put("new", {"n": 1, "text": "t" * 100_000})])
        created = await agent.receive()
        await rewrite(served, 78)
        changes = [await agent.receive() for _ in RECORDS]
        await agent.send(msgspec.structs.replace(subscribe, resume_from_seq=1))
        resumed = [await agent.receive() for _ in range(1 + len(RECORDS))]
        await agent.ask(SubscribeFrame(action="unsubscribe", stream_id="small"))
    await served.parts.store.items.write("things", [Remove("new")])
    await restore(served)

    assert isinstance(created, DiffFrame)
    assert created.patch == [{"op": "add", "path": "", "value": {"id": "new", "n": 1}}]
    assert created.trimmed == {"reason": "frame_size", "dropped_fields": ["text"]}
    assert [change.seq for change in changes] == list(range(2, len(RECORDS) + 2))
    assert [change.entity_id for change in changes if change.trimmed] == ["r05", "r06", "r07", "r08", "r09"]
    for change in changes:
        fields = [step["path"] for step in change.patch]
        assert fields == (["/n"] if change.trimmed else ["/n", "/text"])
        assert not change.trimmed or change.trimmed["dropped_fields"] == ["text"]
    assert [frame for frame in resumed if isinstance(frame, DiffFrame)] == changes


async def test_an_agent_that_asks_for_much_and_reads_nothing_is_told_so_and_holds_little(served: Open) -> None:
    async with await Native.open(served.ports.native, **EXTENDED) as agent:
        anchor = await anchor_of(agent)
        for number in range(12):
            query = QueryFrame(anchor_ref=anchor, filter={"id": {"$eq": "r09"}}, request_id=f"q-{number}")
            await agent.send(query)
        answers = [await agent.receive() for _ in range(12)]
        after = await agent.ask(QueryFrame(anchor_ref=anchor, filter={"id": {"$eq": "r09"}}))

    whole = [answer for answer in answers if isinstance(answer, CapsFrame)]
    refused = [answer for answer in answers if isinstance(answer, ErrorFrame)]
    assert [answer.data for answer in (*whole, after)] == [WHOLE[9:10]] * (len(whole) + 1)
    assert {answer.error for answer in refused} <= {"NWP-RATE-LIMIT-EXCEEDED"}
    assert len({answer.request_id for answer in answers}) == 12
    assert whole


@requirement("nwp:native:action")
async def test_an_action_that_was_done_is_never_told_to_be_sent_again(served: Open) -> None:
    def update(number: int) -> ActionFrame:
        key = f"update-{number}"
        params = {"id": "r09", "input": {"n": number}}
        return ActionFrame(action_id="things.update", params=params, request_id=key, idempotency_key=key)

    async with await Native.open(served.ports.native, **EXTENDED) as agent:
        await anchor_of(agent)
        before = await served.parts.store.changes.head()
        await agent.send_raw(b"".join(encode(update(number), agent.tier) for number in range(12)))
        async with asyncio.timeout(30):
            while await served.parts.store.changes.head() < before + 12:
                await asyncio.sleep(0.01)
        answers = [await agent.receive() for _ in range(12)]
        refused = [answer for answer in answers if isinstance(answer, ErrorFrame)]
        numbers = [int(str(answer.request_id).removeprefix("update-")) for answer in refused]
        again = [await agent.ask(update(number)) for number in numbers]
    await restore(served)

    assert {answer.error for answer in refused} == {"NCP-FRAME-PAYLOAD-TOO-LARGE"}
    assert all(answer.details["completed"] for answer in refused)
    assert [answer.data[0]["n"] for answer in again if isinstance(answer, CapsFrame)] == numbers


@requirement("nwp:native:too-large", "nwp:native:action")
async def test_an_action_is_answered_though_its_result_fits_no_frame(served: Open) -> None:
    async with await Native.open(served.ports.native) as agent:
        one = await agent.ask(ActionFrame(action_id="things.get", params={"id": "r08"}))
        many = await agent.ask(ActionFrame(action_id="things.list", params={"limit": 5}))
    async with await Native.open(served.ports.native, **EXTENDED) as agent:
        whole = await agent.ask(ActionFrame(action_id="things.get", params={"id": "r09"}))

    for answer in (one, many):
        assert isinstance(answer, CapsFrame), answer
        assert answer.trimmed
        assert answer.trimmed["reason"] == "frame_size"
    assert isinstance(whole, CapsFrame)
    assert RECORDS["r09"]["text"] in str(whole.data[0])


@requirement("nwp:clients:own")
@pytest.mark.parametrize("way", ["framed", "bare", "native"])
async def test_our_client_reads_streams_and_follows_records_of_any_size(served: Open, way: str) -> None:
    async with connected(way, served) as things:
        read = [record async for record in things.records(limit=1000)]
        streamed = [record async for part in things.stream(limit=100) for record in part.records]
        changes = await followed(things, served, f"client-{way}")
    await restore(served)

    assert read == WHOLE
    assert streamed == WHOLE
    assert [(change.seq, change.id) for change in changes] == list(enumerate(RECORDS, 1))
    assert not [change for change in changes if change.trimmed]
    texts = [step["value"] for change in changes for step in change.patch if step["path"] == "/text"]
    assert texts == [f"79{data['text']}" for data in RECORDS.values()]


async def followed(things: Node, served: Open, stream: str) -> list[Change]:
    """All changes of a rewrite, read in two halves: the second takes the subscription up again."""
    async with aclosing(things.subscribe(stream_id=stream, heartbeat=1)) as feed:
        first = asyncio.ensure_future(anext(feed))
        await until_subscribed(things, stream)
        await rewrite(served, 79)
        changes = [await first, await anext(feed)]
    async with aclosing(things.subscribe(stream_id=stream, after=2)) as feed:
        changes += [await anext(feed) for _ in range(len(RECORDS) - 2)]
    await things.unsubscribe(stream)
    return changes


async def until_subscribed(things: Node, stream: str) -> None:
    while True:
        try:
            await things.ping(stream)
            return
        except NwpError:  # there is none of this id yet
            await asyncio.sleep(0.01)


async def anchor_of(agent: Native) -> str:
    answer = await agent.ask(QueryFrame(limit=1, depth=0))
    assert not isinstance(answer, ErrorFrame)
    return answer.anchor_ref


def text_of(change: Frame) -> str:
    assert isinstance(change, DiffFrame)
    return next(step["value"] for step in change.patch if step["path"] == "/text")
