"""One client, three ways: what is asked over MCP and A2A is answered, refused and broken as over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.ports import free_port
from tests.protocols.conftest import Inn, inn, key_of, listening

from portico.cli.conversation import carrier_for, to_json
from portico.client import (
    Answer,
    AskFailed,
    AsyncClient,
    BadAnswer,
    Completed,
    Elicitation,
    NotReached,
    Options,
    Promise,
)
from portico.client import Response as Found

__all__ = ["inn"]  # the fixture

WAYS = ("http", "mcp", "a2a")
OWN = '''
import asyncio
from portico.operations import Context, operation

@operation(kind="execute", danger="reversible")
async def strike_gong(context: Context) -> str:
    """Strike the gong."""
    return "bong"

@operation(kind="execute", danger="safe", long=True)
async def paint_house(context: Context, coats: int = 1) -> int:
    """Paint the house."""
    for coat in range(coats):
        await context.progress(coat / coats, f"Coat {coat + 1}")
        await asyncio.sleep(0.01)
    return coats
'''


@pytest.fixture
def house(inn: Inn, tmp_path: Path) -> Inn:
    """The inn with operations of its own, which anybody may run."""
    (tmp_path / "own.py").write_text(OWN)

    def opening(**said: Any) -> Any:
        allowed = {"scopes": ["ask", "read:*", "execute:*"], "danger": "reversible"}
        return inn(**{"operations": ["own.py"], "anonymous": allowed, **said})

    return opening


def over(way: str, port: int, key: str | None = None) -> AsyncClient:
    return AsyncClient(f"http://127.0.0.1:{port}", api_key=key, carrier=carrier_for(way))


async def three(port: int, asked: Callable[[AsyncClient], Any]) -> list[Any]:
    """What comes of the same, each way."""
    results: list[Any] = []
    for way in WAYS:
        async with over(way, port) as client:
            results.append(await asked(client))
    return results


def shown(found: Found | None) -> Any:
    return None if found is None else to_json(found)


async def failure(client: AsyncClient, text: str = "a room", **options: Any) -> tuple[str, str]:
    with pytest.raises(AskFailed) as refusal:
        await client.ask(text, **options)
    return refusal.value.code, refusal.value.message


# Answers


async def test_the_same_question_has_the_same_answer_each_way(inn: Inn) -> None:
    wishes: Options = {"limit": 1, "modes": ("list", "summarize"), "language": "de"}
    async with inn() as parts, listening(parts) as port:
        plain = await three(port, lambda client: client.ask("rooms under 100"))
        wishful = await three(port, lambda client: client.ask("rooms under 50", **wishes))
        nothing = await three(port, lambda client: client.ask("rooms under 1"))

    for http, mcp, a2a in (plain, wishful, nothing):
        assert shown(mcp) == shown(a2a) == shown(http)
    assert [len(found[0].items) for found in (plain, wishful, nothing)] == [3, 1, 0]


async def test_a_stream_ends_with_the_same_answer_each_way(inn: Inn) -> None:
    async def last(client: AsyncClient) -> Any:
        return [event async for event in client.stream("a quiet room")][-1]

    async with inn() as parts, listening(parts) as port:
        http, mcp, a2a = await three(port, last)

    assert isinstance(http, Completed)
    assert shown(mcp.answer) == shown(a2a.answer) == shown(http.answer)


async def test_a_conversation_goes_on_each_way(inn: Inn) -> None:
    async def talked(client: AsyncClient) -> str:
        talk = client.conversation()
        await talk.ask("rooms under 50")
        found = await talk.ask("only quiet ones")
        assert isinstance(found, Answer)
        return found.understood.text

    async with inn() as parts, listening(parts) as port:
        http, mcp, a2a = await three(port, talked)

    assert mcp == a2a == http
    assert "under 50" in http


async def test_what_is_asked_back_can_be_answered_each_way(house: Inn) -> None:
    async def answered(client: AsyncClient) -> tuple[Any, Any]:
        talk = client.conversation()
        asked = await talk.ask("strike the gong")
        assert isinstance(asked, Elicitation)
        return shown(asked), shown(await talk.answer(asked, {"confirm": True}))

    async with house() as parts, listening(parts) as port:
        http, mcp, a2a = await three(port, answered)

    assert mcp == a2a == http
    assert [each["result"] for each in http[1]["items"]] == ["bong"]


# Promises


async def promised(client: AsyncClient, text: str) -> Promise:
    found = await client.ask(text)
    assert isinstance(found, Promise)
    return found


async def test_a_promise_is_kept_each_way(house: Inn) -> None:
    async def kept(client: AsyncClient) -> tuple[Any, Any]:
        promise = await promised(client, "paint the house")
        found = await client.wait(promise, every=0.01)
        return shown(found), shown(await client.cancel(promise))

    async with house() as parts, listening(parts) as port:
        http, mcp, a2a = await three(port, kept)

    assert mcp == a2a == http
    done, after_it_was_cancelled = http
    assert [each["result"] for each in done["items"]] == [1]
    assert after_it_was_cancelled == done


async def test_a_promise_can_be_cancelled_each_way(house: Inn) -> None:
    async def cancelled(client: AsyncClient) -> tuple[Any, Any, Any]:
        promise = await promised(client, "paint the house with 10000 coats")
        still = await client.check(promise)
        stopped = await client.cancel(promise)
        with pytest.raises(AskFailed) as refusal:
            await client.check(promise)
        return type(still), stopped, refusal.value.code

    async with house() as parts, listening(parts) as port:
        assert await three(port, cancelled) == [(Promise, None, "CANCELLED")] * 3


async def test_a_promise_that_nobody_made_is_unknown_each_way(inn: Inn) -> None:
    async def unknown(client: AsyncClient) -> str:
        with pytest.raises(AskFailed) as refusal:
            await client.check("b7a3")
        return refusal.value.code

    async with inn() as parts, listening(parts) as port:
        assert await three(port, unknown) == ["UNKNOWN_PROMISE"] * 3


# Refusals


async def test_wrong_questions_fail_with_the_same_code_each_way(inn: Inn) -> None:
    async with inn(limits={"text_characters": 100}) as parts, listening(parts) as port:
        empty = await three(port, lambda client: failure(client, ""))
        long = await three(port, lambda client: failure(client, "a room " * 100))
        nowhere = await three(port, lambda client: failure(client, "a room", modes=("sing",)))

    for told in (empty, long, nowhere):
        assert told[1:] == told[:1] * 2
    assert [told[0][0] for told in (empty, long, nowhere)] == ["INVALID_QUERY", "TOKEN_LIMIT", "UNSUPPORTED_MODE"]


@pytest.mark.parametrize("way", WAYS)
async def test_who_asks_is_told_by_a_key(inn: Inn, way: str) -> None:
    async with inn(anonymous={"scopes": []}) as parts, listening(parts) as port:
        key, other = await key_of(parts), await key_of(parts, "read:*")
        async with over(way, port) as nobody, over(way, port, other) as somebody, over(way, port, key) as guest:
            refusals = [(await failure(client))[0] for client in (nobody, somebody)]
            found = await guest.ask("a room")

    assert refusals == ["UNAUTHENTICATED", "FORBIDDEN"]
    assert isinstance(found, Answer)


@pytest.mark.parametrize("way", WAYS)
async def test_too_many_questions_are_told_when_to_go_on(inn: Inn, way: str) -> None:
    async with inn(limits={"anonymous_per_minute": 1}) as parts, listening(parts) as port, over(way, port) as client:
        async with over("http", port) as before:
            await before.ask("a room")
        with pytest.raises(AskFailed) as refusal:
            await client.ask("a room")

    assert refusal.value.code == "RATE_LIMITED"
    assert (refusal.value.retry_after or 0) >= 1


# Servers that are something else


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_is_not_there_is_not_reached(way: str) -> None:
    async with over(way, free_port()) as client:
        with pytest.raises(NotReached):
            await client.ask("a room")


@pytest.mark.parametrize(
    ("said", "error", "says"),
    [
        (PlainTextResponse("no", 404), AskFailed, "The server answered with status 404"),
        (RedirectResponse("http://elsewhere.example/"), BadAnswer, "redirects are not followed"),
        (PlainTextResponse("hello"), BadAnswer, "not"),
        (JSONResponse({"jsonrpc": "2.0", "id": 1, "result": 5}), BadAnswer, "not"),
    ],
)
async def test_a_server_of_another_kind_is_no_answer_each_way(said: Response, error: Any, says: str) -> None:
    async def anything(_: Any) -> Response:
        return said

    async def asked(client: AsyncClient) -> None:
        with pytest.raises(error, match=says):
            await client.ask("a room")

    app = Starlette(routes=[Route("/{path:path}", anything, methods=["GET", "POST"])])
    async with listening(app) as port:
        await three(port, asked)


async def test_an_agent_on_another_server_is_not_asked() -> None:
    asked: list[str] = []

    async def card(_: Any) -> Response:
        interface = {"url": f"http://localhost:{port}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return JSONResponse({"name": "A", "supportedInterfaces": [interface]})

    async def agent(request: Any) -> Response:
        asked.append(request.headers["authorization"])
        return PlainTextResponse("thanks")

    app = Starlette(routes=[Route("/.well-known/agent-card.json", card), Route("/a2a", agent, methods=["POST"])])
    async with listening(app) as port, over("a2a", port, "pk_secret") as client:
        with pytest.raises(BadAnswer, match="on another server"):
            await client.ask("a room")

    assert asked == []


@pytest.mark.parametrize(
    ("text", "items"),
    [('{"_meta": {"response_type": "answer"}, "results": [{"@id": "a"}]}', 1), ("Unknown tool", None)],
)
async def test_a_server_of_mcp_may_answer_in_text_alone(text: str, items: int | None) -> None:
    async def call_tool(_: Any, __: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=text)])

    app = Server[Any]("old", on_call_tool=call_tool).streamable_http_app(stateless_http=True)
    async with app.router.lifespan_context(app), listening(app) as port, over("mcp", port) as client:
        if items is None:
            with pytest.raises(BadAnswer, match="Unknown tool"):
                await client.ask("a room")
        else:
            found = await client.ask("a room")
            assert isinstance(found, Answer)
            assert len(found.items) == items


@pytest.mark.parametrize("way", ["mcp", "a2a"])
async def test_an_answer_that_never_ends_is_given_up(way: str) -> None:
    async def endless(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b" " * 10_000
                await asyncio.sleep(0)  # else a server whose client has left goes round and round

        return StreamingResponse(pieces(), media_type="application/json")

    everything = Starlette(routes=[Route("/{path:path}", endless, methods=["GET", "POST", "DELETE"])])
    async with listening(everything) as port:
        client = AsyncClient(f"http://127.0.0.1:{port}", largest=100_000, carrier=carrier_for(way))
        async with client, asyncio.timeout(60):
            with pytest.raises((NotReached, BadAnswer)):
                await client.ask("a room")
