"""Clients that leave: nothing goes on for them, and nothing stays behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Endless, Inn, key_of, listening, scripted, soon
from tests.protocols.mcp.conftest import ERAS, Era, connected
from tests.protocols.mcp.test_edge import HEADERS, INITIALIZE, LIST, META, MODERN

from portico.ask.events import InterpretationEvent, ItemEvent
from portico.items import Item
from portico.server.assembly import Parts

FOUND = (
    InterpretationEvent("a room", ("rooms",)),
    ItemEvent(Item("attic", "rooms", {"name": "The attic"}, "1"), 0, 90),
)
ASK: dict[str, Any] = {
    "name": "ask",
    "arguments": {"query": {"text": "a room"}},
    "_meta": {**META, "progressToken": "p"},
}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": ASK}


def under_way() -> int:
    """Tasks under way in this process, of clients and the server alike."""
    return len(asyncio.all_tasks())


async def session_of(client: httpx.AsyncClient, url: str) -> dict[str, str]:
    return {"mcp-session-id": (await client.post(url, json=INITIALIZE)).headers["mcp-session-id"]}


@asynccontextmanager
async def counted(before: Callable[[], int]) -> AsyncIterator[None]:
    """Nothing runs after the block that did not run before."""
    count = before()
    yield
    async with asyncio.timeout(60):
        while before() > count:
            await asyncio.sleep(0.01)


@requirement("mcp:cancellation:stops")
async def test_a_client_of_the_newest_revision_that_leaves_during_a_stream_ends_the_work(parts: Parts) -> None:
    endless = Endless(FOUND)
    async with listening(scripted(parts, endless)) as port, httpx.AsyncClient() as client:
        url, headers = f"http://127.0.0.1:{port}/mcp", {**MODERN, "mcp-method": "tools/call", "mcp-name": "ask"}
        await client.post(url, json=LIST, headers=MODERN)  # so that the face is there
        async with counted(under_way):
            async with client.stream("POST", url, json=CALL, headers=headers) as answer:
                assert "The attic" in await anext(answer.aiter_text())
            await soon(endless.stopped)


@requirement("mcp:session:bounded")
async def test_a_client_with_a_session_that_leaves_during_a_stream_ends_with_its_session(inn: Inn) -> None:
    """Leaving is not cancelling in those revisions: the client may come back. Its session ends when it does not."""
    endless = Endless(FOUND)
    async with (
        inn(mcp={"idle": 0.3}) as parts,
        listening(scripted(parts, endless)) as port,
        httpx.AsyncClient(headers=HEADERS) as client,
    ):
        url = f"http://127.0.0.1:{port}/mcp"
        await client.delete(url, headers=await session_of(client, url))  # so that the face is there, and has streamed
        async with counted(under_way):
            session = await session_of(client, url)
            async with client.stream("POST", url, json=CALL, headers=session) as answer:
                assert "The attic" in await anext(answer.aiter_text())
            await soon(endless.stopped)
        assert (await client.post(url, json=CALL, headers=session)).status_code == 404


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:leaving:nothing-left")
async def test_clients_that_come_and_go_leave_nothing(parts: Parts, era: Era) -> None:
    async with listening(parts) as port:
        async with connected(port, era) as client:
            await client.list_tools()
        async with counted(under_way):
            for _ in range(5):
                async with connected(port, era) as client:
                    await client.call_tool("ask", {"query": {"text": "a room"}})


@requirement("mcp:session:bounded")
async def test_there_are_only_so_many_sessions_and_nobody_has_them_all(inn: Inn) -> None:
    async with (
        inn(mcp={"sessions": 3}) as parts,
        listening(parts) as port,
        httpx.AsyncClient(headers=HEADERS) as client,
    ):
        url = f"http://127.0.0.1:{port}/mcp"
        names = [{"authorization": f"Bearer {await key_of(parts)}"} for _ in range(4)]
        opened = [await client.post(url, json=INITIALIZE, headers=name) for name in names]
        another = await client.post(url, json=INITIALIZE, headers=names[0])
        session = {"mcp-session-id": opened[0].headers["mcp-session-id"], **names[0]}
        ended = await client.delete(url, headers=session)
        after = await client.post(url, json=INITIALIZE, headers=names[0])

    assert [answer.status_code for answer in opened] == [200, 200, 200, 503]
    assert (another.status_code, ended.status_code, after.status_code) == (429, 200, 200)


async def test_nobody_takes_more_by_asking_for_many_at_once_and_the_newest_revision_needs_none(inn: Inn) -> None:
    async with (
        inn(mcp={"sessions": 20}) as parts,
        listening(parts) as port,
        httpx.AsyncClient(headers=HEADERS) as client,
    ):
        url = f"http://127.0.0.1:{port}/mcp"
        opened = await asyncio.gather(*(client.post(url, json=INITIALIZE) for _ in range(12)))
        modern = await client.post(url, json=LIST, headers=MODERN)

    assert sorted(answer.status_code for answer in opened) == [200] * 2 + [429] * 10
    assert modern.status_code == 200


async def test_a_share_of_sessions_cannot_be_talked_away(inn: Inn) -> None:
    """Neither by being refused with one, nor by naming those that are not there, nor by another caller's doing."""
    async with (
        inn(mcp={"sessions": 10}) as parts,
        listening(parts) as port,
        httpx.AsyncClient(headers=HEADERS) as client,
    ):
        url, other = f"http://127.0.0.1:{port}/mcp", {"authorization": f"Bearer {await key_of(parts)}"}
        session = await session_of(client, url)
        refused = await client.post(url, json=CALL, headers={**session, "accept": "text/plain"})
        foreign = await client.delete(url, headers={**session, **other})
        invented = await client.post(url, json=LIST, headers={**MODERN, "mcp-session-id": "f" * 32})
        more = await client.post(url, json=INITIALIZE)

    assert (refused.status_code, foreign.status_code, invented.status_code) == (406, 404, 200)
    assert more.status_code == 429
