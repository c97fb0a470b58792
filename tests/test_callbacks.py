"""Messages to addresses that callers name: where they go, where they never go, and what is said of the answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from portico.callbacks import Callbacks
from portico.errors import BadRequest, Unavailable


@asynccontextmanager
async def receiver(status: str, heard: list[bytes], extra: str = "") -> AsyncIterator[str]:
    """The address of somebody who answers everything alike."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length")
        )
        heard.append(head + await reader.readexactly(length))
        writer.write(f"HTTP/1.1 {status}\r\n{extra}Content-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/told?of=it"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "ftp://shop.example/",
        "http://shop.example/told",
        "https://user:word@shop.example/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://[::1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1:8443/",
        "https://shop.example:99999/",
        "https://shop.example/" + "x" * 2000,
    ],
)
def test_what_cannot_be_called_back_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        Callbacks([]).check(url)


def test_public_addresses_are_taken_and_what_the_operator_allows() -> None:
    Callbacks([]).check("https://shop.example/told?of=it")
    Callbacks(["127.0.0.1", "[::1]:8080", "hook.internal:80"]).check("http://127.0.0.1:9/")
    Callbacks(["127.0.0.1", "[::1]:8080", "hook.internal:80"]).check("http://[::1]:8080/")
    Callbacks(["127.0.0.1", "[::1]:8080", "hook.internal:80"]).check("http://hook.internal/")


async def test_a_message_arrives_as_it_was_given() -> None:
    heard: list[bytes] = []
    callbacks = Callbacks(["127.0.0.1"])
    async with receiver("204 No Content", heard) as url:
        status = await callbacks.send(url, b'{"a": 1}', {"Content-Type": "application/json", "X-Token": "t"})

    assert status == 204
    (request,) = heard
    assert request.startswith(b"POST /told?of=it HTTP/1.1\r\n")
    assert b"X-Token: t\r\n" in request
    assert request.endswith(b'\r\n\r\n{"a": 1}')


async def test_a_redirect_is_not_followed() -> None:
    heard: list[bytes] = []
    async with receiver("307 Temporary Redirect", heard, "Location: http://127.0.0.1:1/\r\n") as url:
        assert await Callbacks(["127.0.0.1"]).send(url, b"{}", {}) == 307

    assert len(heard) == 1


async def test_a_name_that_leads_inside_is_noticed_when_a_message_is_sent() -> None:
    callbacks = Callbacks([])
    callbacks.check("https://localhost/")

    with pytest.raises(Unavailable, match="not a public address"):
        await callbacks.send("https://localhost/", b"{}", {})


async def test_whoever_does_not_listen_is_not_reached() -> None:
    with pytest.raises(Unavailable, match="The callback failed"):
        await Callbacks(["127.0.0.1"]).send("http://127.0.0.1:1/", b"{}", {})


async def test_after_the_end_nothing_is_sent() -> None:
    callbacks = Callbacks(["127.0.0.1"])
    callbacks.close()

    with pytest.raises(Unavailable, match="The server stops"):
        await callbacks.send("http://127.0.0.1:1/", b"{}", {})
