"""Many who ask at once: every stream comes to its end, memory stays bounded, and nobody waits for a slow reader."""

import asyncio
import json
import re
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import frames_of
from tests.server.conftest import Running, Serve
from tests.server.test_serve import ready

SITE = """
[search]
embedder = "none:"
[store]
url = "sqlite:///site.db"
[limits]
anonymous_per_minute = 1000000
[[source]]
url = "lamps.jsonl"
"""
ITEMS = 50
LETTERS = 10_000  # of an item
MORE_THAN_BUFFERS_HOLD = 120_000  # letters of an item: systems keep up to four megabytes of what nobody reads
RECEIVED = 4096  # bytes that a client holds before it reads
SECONDS = 120
ANSWERS_HELD = 3  # for each stream, at most; one is what it takes


def request(items: int) -> bytes:
    body = json.dumps({"query": {"text": "brass lamp", "limit": items}, "prefer": {"streaming": True}})
    head = f"POST /ask HTTP/1.1\r\nhost: inn\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


@dataclass
class Stream:
    """A question over a connection of its own, read only when this is wanted."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    items: int
    begun: bytes = b""

    @classmethod
    async def asked(cls, port: int, items: int) -> "Stream":
        """A stream of which the first event has come."""
        plug = socket.socket()
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
        plug.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plug, ("127.0.0.1", port))
        stream = cls(*await asyncio.open_connection(sock=plug, limit=RECEIVED), items)
        stream.writer.write(request(items))
        stream.begun = await stream.reader.readuntil(b"event: start\n")
        return stream

    async def check(self) -> None:
        """Read it to the end, which comes once, after every item once."""
        raw = self.begun + await self.reader.read()
        self.writer.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        events = [(name, json.loads(data)) for name, data in frames_of(_unchunked(body).decode())]
        assert Counter(name for name, _ in events) == {"start": 1, "result": self.items, "complete": 1}
        assert (events[0][0], events[-1][0]) == ("start", "complete")
        results = [data for name, data in events if name == "result"]
        assert sorted(data["index"] for data in results) == list(range(self.items))
        assert len({data["item"]["@id"] for data in results}) == self.items


def _unchunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        parts.append(body[:length])
        body = body[length + 2 :]
    return b"".join(parts)


def memory(server: Running) -> int:
    """The most kilobytes that the server held so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found
    return int(found[1])


def answered(server: Running) -> int:
    """How many questions were answered to the end."""
    found = re.search(r'portico_events_total\{event="Asked"\} (\d+)', server.get("/metrics")[1])
    return int(found[1]) if found else 0


Shop = Callable[[int], Running]


@pytest.fixture
def shop(serve: Serve, tmp_path: Path) -> Shop:
    """A server whose items have so many letters."""

    def opened(letters: int) -> Running:
        (tmp_path / "portico.toml").write_text(SITE)
        with (tmp_path / "lamps.jsonl").open("w") as file:
            for number in range(ITEMS):
                lamp = {"id": f"lamp{number}", "name": f"Brass lamp {number}", "description": "x" * letters}
                file.write(json.dumps(lamp) + "\n")
        server = serve("serve", "--load")
        ready(server)
        return server

    return opened


async def all_at_once(server: Running, count: int, items: int = ITEMS) -> None:
    """As many streams at once: all have begun before the first is read on."""
    streams = await asyncio.gather(*(Stream.asked(server.port, items) for _ in range(count)))
    await asyncio.gather(*(stream.check() for stream in streams))


@requirement("nlweb:stream:start-once", "nlweb:stream:complete-once", "nlweb:note:stream-distinct")
async def test_two_hundred_streams_at_once_all_complete_and_the_server_grows_by_their_answers_alone(
    shop: Shop,
) -> None:
    server = shop(LETTERS)
    async with asyncio.timeout(SECONDS):
        await all_at_once(server, 20)
        few = memory(server)
        await all_at_once(server, 200)
        many = memory(server)

    answer = ITEMS * LETTERS / 1024
    assert many - few <= 180 * ANSWERS_HELD * answer
    assert answered(server) == 220


async def test_a_reader_that_does_not_read_holds_up_nobody(shop: Shop) -> None:
    server = shop(MORE_THAN_BUFFERS_HOLD)
    async with asyncio.timeout(SECONDS):
        slow = await Stream.asked(server.port, ITEMS)
        await all_at_once(server, 30, items=3)
        assert answered(server) == 30  # not the one that nobody reads

        await slow.check()
    assert answered(server) == 31
