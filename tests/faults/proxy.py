"""A proxy in front of PostgreSQL that loses the answers to some COMMITs, or the COMMITs themselves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

Fate = Literal["pass", "lose the answer", "lose the commit"]


class Proxy:
    """Passes bytes on both ways. `decide` says of every COMMIT what becomes of it."""

    def __init__(self, target: str, decide: Callable[[], Fate]) -> None:
        self._parts = urlsplit(target)
        self.decide = decide
        self.is_shut = False  # takes no new connections
        self.lost = 0

    @property
    def url(self) -> str:
        netloc = self._parts.netloc.rpartition("@")[0]
        return self._parts._replace(netloc=f"{netloc}@127.0.0.1:{self._port}").geturl()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()
            await asyncio.gather(*self._connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            if not self.is_shut:
                await self._connect(reader, writer)
        self._writers.discard(writer)
        writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._parts.hostname, self._parts.port
        answers, requests = await asyncio.open_connection(host, port)
        back = asyncio.create_task(_pass_on(answers, writer))
        try:
            while data := await reader.read(1 << 16):
                fate = self.decide() if data.startswith(b"Q") and b"COMMIT;" in data else "pass"
                if fate == "pass":
                    requests.write(data)
                    await requests.drain()
                    continue
                self.lost += 1
                if fate == "lose the answer":
                    back.cancel()
                    await asyncio.wait([back])
                    requests.write(data)
                    await answers.read(1 << 16)
                return
        finally:
            back.cancel()
            requests.close()


async def _pass_on(answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await answers.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
