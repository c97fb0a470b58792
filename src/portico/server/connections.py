"""Connections as they come in from the network: a request's head has a bounded size, and arrives in time.

Uvicorn documents its settings and how to run a server, but not the classes that read HTTP and WebSockets. They are used
here and nowhere else, and `pyproject.toml` bounds uvicorn's version: when it is raised, check these members of theirs.
Of HTTP: `app`, `client`, `cycle` (the newest request, with `response_complete`, `disconnected` and `message_event`),
`headers`, `loop`, `parser`, `pipeline` (requests that wait for the one before them, the next one last), `transport`,
`send_400_response`, `handle_websocket_upgrade`, and the callbacks of the parser and of a response.
Of WebSockets: `app`, `client`, `transport`, `send` and `handshake_complete`.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from portico.server.admission import ConnectionLimits, ConnectionSlot

HEAD_BYTES = 64 << 10  # of a request line and its headers; what arrives in one piece may be a little more
HEAD_SECONDS = 20.0  # for them to arrive
BUFFER_BYTES = 64 << 10  # more are flushed at once
READ_SECONDS = 30.0  # in which a client must read something of what was sent
PIPELINE_SECONDS = 60.0  # that a request may wait behind another; meanwhile a disconnect goes unnoticed


class BufferedTransport:
    """A transport that sends the head and the body of a response together: it flushes once per turn of the event loop.

    A system call costs as much as making a small response.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.is_closing = transport.is_closing
        self._transport = transport
        self._loop = loop
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._read_timer: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._chunks:
            self._loop.call_soon(self.flush)
        self._chunks.append(data)
        self._buffered += len(data)
        # The transport reports a slow reader, and only knows of what it was given.
        if self._buffered > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        # A closed transport accepts no writes.
        if self._chunks and not self.is_closing():
            self._transport.write(b"".join(self._chunks))
        self._chunks.clear()
        self._buffered = 0

    def close(self) -> None:
        self.flush()
        self._transport.close()
        self.start_read_timer()

    def start_read_timer(self) -> None:
        """Abort the connection of a client that reads nothing: it would keep its response in memory, and its slot."""
        self.stop_read_timer()
        left = self._transport.get_write_buffer_size()
        if left:
            self._read_timer = self._loop.call_later(READ_SECONDS, self._check_progress, left)

    def stop_read_timer(self) -> None:
        if self._read_timer:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_progress(self, before: int) -> None:
        if self._transport.get_write_buffer_size() < before:
            self.start_read_timer()
        else:
            self._transport.abort()


class Connection(HttpToolsProtocol):
    """Uvicorn's HTTP protocol, with bounds on heads that do not end and on responses that nobody reads."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._slot: ConnectionSlot
        self._head = 0  # bytes that arrived of a head that is not whole
        self._in_head = True
        self._has_begun = False  # whether a request began in what arrived last
        self._is_between = False  # whether what comes next begins a request
        self._head_timer: asyncio.TimerHandle | None = None
        self._answering: Any = None  # the cycle of the request being answered; others may wait behind it
        self._queue_timer: asyncio.TimerHandle | None = None  # of those

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(cast("asyncio.Transport", BufferedTransport(transport, self.loop)))
        self._slot = self._limits.admit(self.client, transport.abort)
        self.app = self._limits.app_for(self._slot, self.app)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self._slot)
        self._stop_head_timer()
        self._stop_queue_timer()
        super().connection_lost(exc)
        cast("BufferedTransport", self.transport).stop_read_timer()
        # Uvicorn tells the newest request alone, for which nothing has begun if another is being answered.
        if self._is_answering:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def handle_websocket_upgrade(self) -> None:
        # This protocol does not hear of the end of the connection; the next one counts it anew.
        self._limits.release(self._slot)
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        was_between, self._has_begun = self._is_between, False
        super().data_received(data)
        if self.pipeline and self._queue_timer is None:
            self._start_queue_timer()
        self._head = self._head + len(data) if self._in_head else 0
        # Line breaks between requests are no request: they do not keep a connection that nothing else comes on.
        is_nothing = was_between and not self._has_begun and not self._is_answering
        # Most heads arrive in one piece, and need no deadline.
        if (self._in_head or is_nothing) and self._head_timer is None:
            self._start_head_timer()
        if self._head > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request has too many headers.")

    def pause_writing(self) -> None:
        super().pause_writing()
        cast("BufferedTransport", self.transport).start_read_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        cast("BufferedTransport", self.transport).stop_read_timer()

    def on_response_complete(self) -> None:
        self._stop_queue_timer()
        if self.pipeline:
            self._answering = self.pipeline[-1][0]
        super().on_response_complete()
        if self.pipeline:
            self._start_queue_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._has_begun = True
        self._is_between = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # RFC 9110 6.5.1: what follows a body is no header, and whoever checked the head has not seen it.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # RFC 9112 3.2: of two hosts somebody before us may have checked the other; without one, none could be checked.
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and cast("Any", self.parser).get_http_version() == "1.1"):
            raise ValueError("A request must have one Host header")  # told as a bad request
        is_next = not self._is_answering
        if not is_next and cast("Any", self.parser).should_upgrade():
            raise ValueError("Another request is being answered, which would not hear any more that its client leaves")
        self._in_head = False
        self._stop_head_timer()
        super().on_headers_complete()
        if is_next:
            self._answering = self.cycle

    def on_message_complete(self) -> None:
        self._is_between = True
        super().on_message_complete()

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _start_queue_timer(self) -> None:
        self._queue_timer = self.loop.call_later(PIPELINE_SECONDS, self.transport.abort)

    def _stop_queue_timer(self) -> None:
        if self._queue_timer:
            self._queue_timer.cancel()
            self._queue_timer = None

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_idle)

    def _stop_head_timer(self) -> None:
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_idle(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Uvicorn's WebSocket protocol, counted like every connection."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._slot: ConnectionSlot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._slot = self._limits.admit(self.client, self.transport.abort)
        self.app = self._limits.app_for(self._slot, self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self._slot)
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        await super().send(message)
        # Without this, uvicorn reports every denial as a handshake that the application has forgotten.
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True
