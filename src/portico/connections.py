"""Connections as they come in from the network: a request's head has a bounded size, and arrives in time.

A question whose answer is at hand is answered here: the way through an application takes longer than its answer. If
it comes again to the letter, it is not even read again.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from portico.admission import Admission, ConnectionLimits
from portico.recent import Recent

HEAD_BYTES = 64 << 10  # of a request line and its headers; what arrives in one piece may be a little more
HEAD_SECONDS = 20.0  # for them to arrive
GATHERED_BYTES = 64 << 10  # that are not kept waiting for more
TAKING_SECONDS = 30.0  # in which a client takes something of what is there for it
WAITING_SECONDS = 60.0  # that a request waits behind another: meanwhile nobody hears that its client has left
QUICK = 32  # questions of one connection that are tried to be answered in one go, before others have their turn
QUICK_SECONDS = 0.005  # in which they are
KNOWN = 4  # requests that a connection would know again
KNOWN_BYTES = 2048  # of one
KNOWN_HEADERS = 32  # of one
ASKED = b"/query"  # how addresses end where an answer may be at hand
FOUND = b"HTTP/1.1 200 OK\r\n"
WHOLE = "portico.whole"  # the extension of a request's scope that says that its body is there to its end

Header: TypeAlias = tuple[bytes, bytes]
Question: TypeAlias = tuple[str, list[Header], bytes]  # path, headers and body of a request whose answer was at hand
# Of a path, a scheme, the address of a client, headers and a body: head and body of the answer, if it is at hand.
AtHand: TypeAlias = Callable[[str, str, str, Iterable[Header], bytes], tuple[bytes, bytes] | None]


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
        self._watching: asyncio.TimerHandle | None = None

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

    def send(self, data: bytes) -> None:
        """Write what is whole already."""
        if self._waiting:
            self.write(data)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        # To who has left nothing can be written.
        if self._waiting and not self.is_closing():
            self._transport.write(b"".join(self._waiting))
        self._waiting.clear()
        self._bytes = 0

    def close(self) -> None:
        self.flush()
        self._transport.close()
        self.watch()

    def watch(self) -> None:
        """Leave a client that takes nothing: what is there for it would stay, and so would its place."""
        self.unwatch()
        left = self._transport.get_write_buffer_size()
        if left:
            self._watching = self._loop.call_later(TAKING_SECONDS, self._look, left)

    def unwatch(self) -> None:
        if self._watching:
            self._watching.cancel()
            self._watching = None

    def _look(self, before: int) -> None:
        if self._transport.get_write_buffer_size() < before:
            self.watch()
        else:
            self._transport.abort()


class Turn:
    """What one connection may have answered before others have theirs."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._left = QUICK
        self._until = time.monotonic() + QUICK_SECONDS

    def end(self) -> None:
        self._left = 0

    def may_go_on(self) -> bool:
        """Whether one more question may be tried, which is then counted."""
        self._left -= 1
        return self._left >= 0 and time.monotonic() < self._until


class Connection(HttpToolsProtocol):
    """Uvicorn's way to read HTTP, without patience for heads that do not end and answers that nobody takes."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._admission: Admission
        self._head = 0  # bytes that arrived of a head that is not whole
        self._in_head = True
        self._deadline: asyncio.TimerHandle | None = None
        self._at_hand: AtHand | None = getattr(self.config.app, "at_hand", None)
        self._turn = Turn()
        self._is_between = True  # whether what comes next begins a request
        self._begun = 0  # requests so far
        self._question: Question | None = None  # the last in what came last, if its answer was at hand
        self._known: Recent[Question] = Recent(KNOWN)  # by all that came
        self._quiet = 0.0  # since the last answer that set no timer
        self._held: bytearray | None = None  # the body of a request that the application was not told of yet
        self._answering: Any = None  # the request that the application is at; others may wait behind it
        self._behind: asyncio.TimerHandle | None = None  # of those

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(cast("asyncio.Transport", Gathered(transport, self.loop)))
        self._admission = self._limits.admit(self.client, transport.abort)
        self.app = self._limits.app_for(self._admission, self.app)
        # What is at hand is told by the peer's address, and a proxy's is not that of its visitors.
        if self._admission.refusal or self._limits.is_trusted(self.client):
            self._at_hand = None
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self._admission)
        self._expect_no_more()
        self._unqueue()
        super().connection_lost(exc)
        cast("Gathered", self.transport).unwatch()
        # Uvicorn tells the newest request alone, for which nothing has begun if another is being answered.
        if self._is_answering:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def handle_websocket_upgrade(self) -> None:
        # This protocol does not hear of the end of the connection; the next one counts it anew.
        self._limits.release(self._admission)
        super().handle_websocket_upgrade()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        was_between, before, self._question = self._is_between, self._begun, None
        may_be_known = was_between and len(data) <= KNOWN_BYTES
        known = self._known.get(data) if may_be_known else None
        if known and self._is_free():
            if self._answered(*known):
                return
            self._turn.end()  # it was not at hand just now
        else:
            self._turn.begin()
        super().data_received(data)
        self._let_go()
        # What came was one request and nothing else: when it comes again it is that request.
        if may_be_known and self._question and self._is_between and self._begun == before + 1:
            if len(self._question[1]) <= KNOWN_HEADERS:
                self._known.put(data, self._question)
        elif was_between and self._begun == before:
            self._wait_again()
        if self.pipeline and self._behind is None:
            self._queue()
        self._head = self._head + len(data) if self._in_head else 0
        # Most heads arrive in one piece, and need no deadline.
        if self._in_head and self._deadline is None:
            self._expect()
        if self._head > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request has too many headers.")

    def _wait_again(self) -> None:
        """Line breaks between requests are no request: they do not keep a connection that nothing else comes on."""
        if self._begun and not self._is_answering and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def pause_writing(self) -> None:
        super().pause_writing()
        cast("Gathered", self.transport).watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        cast("Gathered", self.transport).unwatch()

    def on_response_complete(self) -> None:
        self._unqueue()
        super().on_response_complete()
        if self.pipeline:
            self._queue()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._is_between = False
        self._begun += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        # RFC 9110 6.5.1: what follows a body is no header, and whoever checked the head has not seen it.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # RFC 9112 3.2: of two hosts somebody before us may have checked the other; without one, none could be checked.
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and cast("Any", self.parser).get_http_version() == "1.1"):
            raise ValueError("A request must have one Host header")  # told as a bad request
        if self._is_answering and cast("Any", self.parser).should_upgrade():
            raise ValueError("Another request is being answered, which would not hear any more that its client leaves")
        self._in_head = False
        self._expect_no_more()
        # An answer at hand before it, in the same piece, has begun to wait for this one.
        self._unset_keepalive_if_required()
        if self._may_be_at_hand():
            self._held = bytearray()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
        else:
            self._held += body

    def on_message_complete(self) -> None:
        self._is_between = True
        if self._held is not None:
            question = self.url.decode("ascii"), self.headers, bytes(self._held)
            if self._answered(*question):
                self._held, self._question = None, question
                return
        self._let_go()
        super().on_message_complete()
        self.scope["extensions"] = {WHOLE: {}}

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _may_be_at_hand(self) -> bool:
        """Whether a request is of the plainest kind, and its turn has come."""
        if self._at_hand is None or not self.url.endswith(ASKED) or b"%" in self.url or not self.url.isascii():
            return False
        if not self.url.startswith(b"/"):  # it may be no address at all, which is to be told while it is read
            return False
        parser = cast("Any", self.parser)
        is_plain = (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and not self.root_path
        )
        return is_plain and self._is_free() and self._turn.may_go_on()

    def _is_free(self) -> bool:
        """Whether there is nothing to be done before the next request."""
        return not self._is_answering and not self.flow.write_paused and not self.transport.is_closing()

    def _answered(self, path: str, headers: list[Header], body: bytes) -> bool:
        """Answer a request if that takes no waiting. A timer that runs, of an answer before, goes on."""
        client = self.client[0] if self.client else ""
        if self._at_hand is None:
            return False
        found = self._at_hand(path, self.scheme or "", client, headers, body)
        if found is None:
            return False
        usual = b"".join([b"%b: %b\r\n" % pair for pair in self.server_state.default_headers])
        cast("Gathered", self.transport).send(b"".join((FOUND, usual, found[0], b"\r\n", found[1])))
        if self.timeout_keep_alive_task is None:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._quiet = self.loop.time()
        return True

    def timeout_keep_alive_handler(self) -> None:
        """Leave a client that was quiet for long enough, also since an answer that set no timer."""
        left = self._quiet + self.timeout_keep_alive - self.loop.time()
        if left > 0 and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _let_go(self) -> None:
        """Tell the application of a request that was held back."""
        held, self._held = self._held, None
        if held is None:
            return
        super().on_headers_complete()
        if held:
            super().on_body(bytes(held))

    def _queue(self) -> None:
        self._behind = self.loop.call_later(WAITING_SECONDS, self.transport.abort)

    def _unqueue(self) -> None:
        if self._behind:
            self._behind.cancel()
            self._behind = None

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


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Uvicorn's way to read WebSockets, counted like every connection."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._admission: Admission

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._admission = self._limits.admit(self.client, self.transport.abort)
        self.app = self._limits.app_for(self._admission, self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self._admission)
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        await super().send(message)
        # Without this, uvicorn reports every denial as a handshake that the application has forgotten.
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True
