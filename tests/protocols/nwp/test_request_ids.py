"""Ids of requests: whatever an agent calls a request, its answer is called the same, over HTTP and natively."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking
from tests.protocols.nwp.agents import opened_inn
from tests.protocols.nwp.conftest import Native, Open, serving

from portico.protocols.nwp.frames import (
    ActionFrame,
    CapsFrame,
    ErrorFrame,
    Frame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDS = [
    "550e8400-e29b-41d4-a716-446655440001",
    "01J9ZC5T9K7VYB6S2Q4M8N3RXA",
    "42",
    "my request/7?x=1&y=[2]",
    'quoted "id" \\ {}',
    "запрос-日本-🙂",
    "mine\r\nx-evil: 1",
    "x" * 255,
]
NAMED = ["uuid", "ulid", "number", "path", "quotes", "unicode", "lines", "long"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    async with opened_inn(tmp_path_factory.mktemp("ids")) as parts, serving(parts) as ports:
        yield Open(parts, ports)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(inn: Open) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(inn.parts) as client:
        yield client


async def post(client: httpx.AsyncClient, below: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer, whose header repeats its id in a form that headers can have."""
    answer = await client.post(f"/nwp/site/{below}", json=body)
    said = answer.json()
    assert answer.headers["x-nwp-request-id"].isprintable()
    assert unquote(answer.headers["x-nwp-request-id"]) == said["request_id"]
    assert "x-evil" not in answer.headers
    return said


@requirement("nwp:headers:request-id-wins", "nwp:action:request-id", "nwp:errors:request-id")
@pytest.mark.parametrize("id", IDS, ids=NAMED)
async def test_an_id_of_any_form_comes_back_over_http(client: httpx.AsyncClient, id: str) -> None:
    query = await post(client, "query", {"request_id": id, "limit": 1})
    again = await post(client, "query", {"request_id": id, "limit": 1})
    stream = await post(client, "stream", {"request_id": id, "limit": 100})
    refused = await post(client, "query", {"request_id": id, "filter": {"nothing": {"$eq": 1}}})
    broken = await post(client, "query", {"request_id": id, "limit": "many"})
    done = await post(client, "invoke", {"request_id": id, "action_id": "rooms.count"})
    begun = await post(client, "invoke", {"request_id": id, "action_id": "site.close_house", "async": True})
    task = begun["task_id"]
    status = await post(client, "invoke", {"action_id": "system.task.status", "params": {"task_id": task}})

    assert {answer["request_id"] for answer in (query, again, stream, refused, broken, done, begun)} == {id}
    assert stream["stream_id"] == id
    assert status["data"][0]["request_id"] == id


@requirement("nwp:headers:request-id-wins", "nwp:action:request-id", "nwp:native:correlation")
@pytest.mark.parametrize("id", IDS, ids=NAMED)
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_an_id_of_any_form_comes_back_natively(inn: Open, encoding: str, id: str) -> None:
    async with await Native.open(inn.ports.native, [encoding]) as agent:
        query = await agent.ask(QueryFrame(request_id=id, limit=1, depth=0))
        again = await agent.ask(QueryFrame(request_id=id, limit=1, depth=0))
        stream = await agent.ask(QueryFrame(request_id=id, limit=100, stream=True))
        refused = await agent.ask(QueryFrame(request_id=id, filter={"nothing": {"$eq": 1}}))
        done = await agent.ask(ActionFrame(request_id=id, action_id="rooms.count"))
        begun = await agent.ask(ActionFrame(request_id=id, action_id="site.close_house", is_async=True))
        unknown = await agent.ask(SubscribeFrame(action="unsubscribe", stream_id=id))

    assert {ids_of(answer) for answer in (query, again, stream, refused, done, begun)} == {id}
    assert isinstance(stream, StreamFrame)
    assert stream.stream_id == id
    assert isinstance(unknown, ErrorFrame)
    assert unknown.details["stream_id"] == id


def ids_of(answer: Frame) -> str | None:
    assert isinstance(answer, CapsFrame | StreamFrame | ErrorFrame)
    return answer.request_id


@pytest.mark.parametrize("id", ["my stream/1", "поток"])
async def test_a_stream_is_ended_by_the_id_of_its_query_whatever_its_form(inn: Open, id: str) -> None:
    async with await Native.open(inn.ports.native) as agent:
        window = StreamFrame(stream_id=id, seq=0, is_last=False, data=[], window_size=0)
        await agent.send(QueryFrame(request_id=id, stream=True, limit=1))
        await agent.send(window)
        frames = [await agent.ask(SubscribeFrame(action="unsubscribe", stream_id=id))]
        while not any(isinstance(frame, CapsFrame) for frame in frames) or not any(map(is_end, frames)):
            frames.append(await agent.receive())

    acknowledged = next(frame for frame in frames if isinstance(frame, CapsFrame))
    assert acknowledged.data[0]["status"] == "unsubscribed"


def is_end(frame: Frame) -> bool:
    return isinstance(frame, StreamFrame) and frame.is_last


@pytest.mark.parametrize("id", ["x" * 256, "a\0b"], ids=["too long", "NUL"])
async def test_an_id_that_cannot_be_kept_is_refused_alike(inn: Open, client: httpx.AsyncClient, id: str) -> None:
    over_http = await client.post("/nwp/site/query", json={"request_id": id})
    async with await Native.open(inn.ports.native) as agent:
        natively = await agent.ask(QueryFrame(request_id=id))

    assert over_http.status_code == 400
    assert isinstance(natively, ErrorFrame)
    assert (over_http.json()["error"], over_http.json()["message"]) == (natively.error, natively.message)
    assert "request_id" in natively.message


async def test_an_id_in_the_header_that_is_too_long_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nwp/site/query", json={}, headers={"x-nwp-request-id": "x" * 256})

    assert (answer.status_code, "X-NWP-Request-ID" in answer.json()["message"]) == (400, True)
