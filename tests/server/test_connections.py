"""What a connection must not do before it has said what it wants."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Receive, Scope, Send
from tests.protocols.conftest import Inn, inn, listening  # noqa: F401 - a fixture

from portico.server import connections
from portico.server.http import Application

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
ASKED = HEALTH + b"\r\n"
UPGRADE = HEALTH + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"


async def said(port: int, *pieces: bytes) -> bytes:
    """All that comes back for these pieces, until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_head_without_end_is_cut_off(inn: Inn) -> None:  # noqa: F811
    async with inn() as parts, listening(parts) as port:
        endless = await said(port, HEALTH, b"x: ", *([b"y" * 10_000] * 60))
        whole = await said(port, HEALTH + b"x: " + b"y" * 8000 + b"\r\nconnection: close\r\n\r\n")

    assert endless == b"" or endless.startswith(b"HTTP/1.1 400 ")  # it may be closed before it is read
    assert b'"status":"ok"' in whole


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HT", HEALTH])
async def test_a_head_that_does_not_come_is_not_waited_for(
    inn: Inn,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    begun: bytes,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    async with inn() as parts, listening(parts) as port:
        assert await said(port, begun) == b""


async def test_a_second_head_that_does_not_end_is_not_waited_for(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    async with inn() as parts, listening(parts) as port:
        answer = await said(port, HEALTH + b"\r\n", HEALTH)

    assert answer.count(b'"status":"ok"') == 1


async def test_a_second_request_has_as_much_time_as_the_first(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    async with inn() as parts, listening(parts) as port:
        answer = await said(port, HEALTH + b"\r\n", HEALTH + b"connection: close\r\n\r\n")

    assert answer.count(b'"status":"ok"') == 2


async def test_a_request_with_two_hosts_is_refused(inn: Inn) -> None:  # noqa: F811
    async with inn() as parts, listening(parts) as port:
        answer = await said(port, HEALTH + b"Host: elsewhere.example\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_what_follows_a_body_is_no_header(inn: Inn) -> None:  # noqa: F811
    head = b"POST /nwp/rooms/query HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    async with inn() as parts, listening(parts) as port:
        answer = await said(port, head + b"2\r\n{}\r\n0\r\nauthorization: Bearer wrong\r\nhost: b\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("address", [b"http://h?x=/query", b"http://[::/query"])
async def test_an_address_that_is_none_is_refused_before_its_body_is_there(inn: Inn, address: bytes) -> None:  # noqa: F811
    async with inn() as parts, listening(parts) as port:
        answer = await said(port, b"POST " + address + b" HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")

    assert answer.startswith(b"HTTP/1.1 400 ")


class Stream:
    """An answer that does not end before its client leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int = 1) -> None:
        self.begun, self.over = asyncio.Event(), asyncio.Event()

        async def call(_: Application, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
            self.begun.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            self.over.set()

        monkeypatch.setattr(Application, "__call__", call)

    async def follows(self, port: int, *pieces: bytes, leaves: bool = True) -> None:
        """Send the first piece, the others once the answer has begun, and wait until it is over."""
        async with asyncio.timeout(30):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(pieces[0])
            await self.begun.wait()
            for piece in pieces[1:]:
                writer.write(piece)
                await writer.drain()
            if leaves:
                writer.close()
            await self.over.wait()
            writer.close()


@pytest.mark.parametrize("pieces", [(ASKED + ASKED,), (ASKED, ASKED), (ASKED, UPGRADE)], ids=["one", "two", "upgrade"])
async def test_who_asks_more_and_leaves_is_known_to_have_left(
    inn: Inn,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    pieces: Sequence[bytes],
) -> None:
    monkeypatch.setattr(connections, "PIPELINE_SECONDS", 0.2)
    async with inn() as parts, listening(parts) as port:
        await Stream(monkeypatch).follows(port, *pieces)


async def test_an_answer_that_nobody_takes_is_not_kept_for_ever(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(connections, "READ_SECONDS", 0.2)
    async with inn() as parts, listening(parts) as port:
        await Stream(monkeypatch, 32 << 20).follows(port, ASKED, leaves=False)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", b"400"),
        (b"GET /ask HTTP/1.1\r\nupgrade: websocket", b"400"),
        (b"GET /healthz HTTP/1.0", b"200"),
    ],
    ids=["1.1", "websocket", "1.0"],
)
async def test_a_request_of_http_1_1_without_a_host_is_refused(inn: Inn, request_line: bytes, status: bytes) -> None:  # noqa: F811
    async with inn() as parts, listening(parts) as port:
        answer = await said(port, request_line + b"\r\nconnection: close, upgrade\r\n\r\n")

    assert answer.split()[1] == status
