"""Connections as they come in from the network: a request's head has a bounded size, and arrives in time."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10  # of a request line and its headers; what arrives in one piece may be a little more
HEAD_SECONDS = 20.0  # for them to arrive
GATHERED_BYTES = 64 << 10  # that are not kept waiting for more
WHOLE = "portico.whole"  # the extension of a request's scope that says that its body is there to its end


class Gathered:
    """A transport that sends together what is written together: for an answer, its head and its body.

    Each sending costs as much as making a small answer does.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.is_closing = transport.is_closing
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)
        self._bytes += len(data)
        # The transport says when its reader is slow, and can say so only of what it was given.
        if self._bytes > GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._transport.write(b"".join(self._waiting))
            self._waiting.clear()
            self._bytes = 0

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Connection(HttpToolsProtocol):
    """Uvicorn's way to read HTTP, without patience for heads that do not end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = 0  # bytes that arrived of a head that is not whole
        self._in_head = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(cast("asyncio.Transport", Gathered(transport, self.loop)))
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._head = self._head + len(data) if self._in_head else 0
        # Most heads arrive in one piece, and need no deadline.
        if self._in_head and self._deadline is None:
            self._expect()
        if self._head > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request has too many headers.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._expect_no_more()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope["extensions"] = {WHOLE: {}}

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _expect_no_more(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
