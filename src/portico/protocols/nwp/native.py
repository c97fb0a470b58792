"""NWP over TCP and TLS: accepts connections to the native port, up to the handshake. `sessions` has the rest.

A connection that sends nothing in time, or an unknown protocol, is closed.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, cast

from portico.access.identity import RequestCredentials
from portico.config import Config
from portico.errors import TimedOut
from portico.network import network_of
from portico.protocols import StreamLimit
from portico.protocols.http import base_of
from portico.protocols.nwp.errors import error_frame, frame_problem
from portico.protocols.nwp.frame_router import FrameRouter
from portico.protocols.nwp.frames import (
    EncodingTier,
    ErrorFrame,
    FrameError,
    FrameType,
    HelloFrame,
    decode_as,
    encode,
    read_header,
)
from portico.protocols.nwp.handshake import HandshakeOffer, negotiate
from portico.protocols.nwp.sessions import HEADER_BYTES, NativeSession, NativeTimeouts
from portico.protocols.nwp.settings import NwpSettings
from portico.telemetry import Recorder

PREAMBLE: Final = b"NPS/1.0\n"  # first bytes of agents later than 0.4
TLS: Final = b"\x16"  # first byte of a TLS handshake
METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"TRACE ")
HELLO_BYTES: Final = 16 << 10
MAX_PAYLOAD: Final = 16 << 20  # bytes of an extended frame; a larger record is shortened
ACCEPT_PAUSE: Final = 1.0  # seconds, after the system could not accept a connection

# TCP keep-alive: idle seconds, seconds between probes, and their number; where the system supports them.
PROBES: Final[Mapping[str, int]] = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class NativePort:
    """Accepts connections until it is closed, and then ends them. HTTP connections are passed to `http`."""

    def __init__(
        self,
        router: FrameRouter,
        config: Config,
        http: Callable[[], asyncio.Protocol],
        record: Recorder,
        streams: StreamLimit,
        *,
        tls: ssl.SSLContext | None = None,
        timeouts: NativeTimeouts | None = None,
    ) -> None:
        self.router = router
        self.http = http
        self.record = record
        self.streams = streams
        self.timeouts = timeouts or NativeTimeouts()
        self.offer = HandshakeOffer(
            payload=MAX_PAYLOAD,
            streams=config.section(NwpSettings).streams,
            is_extended=True,
            oldest=config.section(NwpSettings).min_version,
        )
        self.trusts_names = config.section(NwpSettings).trust_names
        self.base = base_of(None, config.server)
        self.connections: set[PendingConnection | NativeSession] = set()
        self._max_connections = config.limits.connections
        self._max_per_address = config.limits.connections_per_address
        self._tls = tls
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener))

    def run(
        self, coroutine: Coroutine[Any, Any, None], on_done: Callable[[asyncio.Task[None]], None] | None = None
    ) -> asyncio.Task[None]:
        """Start a task that is cancelled when the port closes. An `on_done` callback has to call `forget`."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(on_done or self.forget)
        return task

    def forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)

    def remove(self, session: NativeSession) -> None:
        self.connections.discard(session)

    async def close(self) -> None:
        """Stop accepting, and give open connections a little time to receive their responses."""
        if self._accepting:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        if self._listener:
            self._listener.close()
        await asyncio.gather(*(connection.drain() for connection in list(self.connections)))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            if self._has_room(address[0]):
                opening = PendingConnection(self, address[0])
                self.connections.add(opening)
                self.run(self._enter(connection, opening))
            else:
                connection.close()

    def _has_room(self, address: str) -> bool:
        network = network_of(address)
        same = sum(connection.network == network for connection in self.connections)
        return len(self.connections) < self._max_connections and same < self._max_per_address

    async def _enter(self, connection: socket.socket, opening: "PendingConnection") -> None:
        """Start serving a connection, through TLS if its first byte says so (which is peeked at, not read)."""
        loop = asyncio.get_running_loop()
        try:
            _enable_keepalive(connection)
            context = self._tls if self._tls and await _peek(connection, self.timeouts.hello) == TLS else None
            seconds = self.timeouts.hello if context else None
            await loop.connect_accepted_socket(lambda: opening, connection, ssl=context, ssl_handshake_timeout=seconds)
        except OSError:  # it disconnected, or its TLS handshake failed
            self.connections.discard(opening)
            connection.close()
        except asyncio.CancelledError:
            self.connections.discard(opening)
            connection.close()
            raise


def _enable_keepalive(connection: socket.socket) -> None:
    """Have the system detect peers that are gone, to free their place."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in PROBES.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _peek(connection: socket.socket, seconds: float) -> bytes:
    """Return the first byte of a connection without reading it; empty if there is none in time."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        async with asyncio.timeout(seconds):
            await ready.wait()
        return connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return b""
    finally:
        loop.remove_reader(connection)


class PendingConnection(asyncio.Protocol):
    """A connection before its handshake. It is closed silently if it speaks an unknown protocol."""

    def __init__(self, port: NativePort, address: str) -> None:
        self.address = address
        self.network = network_of(address)
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + port.timeouts.hello
        self._buffer = bytearray()
        self._has_preamble = False
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        is_secured = transport.get_extra_info("ssl_object") is not None
        self._wait_until(self._loop.time() + self._port.timeouts.hello if is_secured else self._due)

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._has_preamble and self._buffer.startswith(PREAMBLE):
            del self._buffer[: len(PREAMBLE)]
            self._has_preamble = True
            self._wait_until(self._loop.time() + self._port.timeouts.hello)
        if self._buffer:
            self._decide()

    async def drain(self) -> None:
        if self._transport:
            self._transport.abort()

    def _decide(self) -> None:
        if self._buffer[0] == FrameType.HELLO:
            self._read_hello()
        elif not self._has_preamble and self._buffer.startswith(METHODS):
            self._hand_over(self._port.http())
        elif self._has_preamble or not self._may_become((PREAMBLE, *METHODS)):
            self._close()

    def _may_become(self, beginnings: tuple[bytes, ...]) -> bool:
        return any(beginning.startswith(self._buffer) for beginning in beginnings)

    def _read_hello(self) -> None:
        try:
            header = read_header(bytes(self._buffer[:HEADER_BYTES]))
            if header is None:
                return
            end = header.size + header.length
            if header.is_encrypted or header.length > HELLO_BYTES:
                self._close()
            elif len(self._buffer) >= end:
                payload = bytes(self._buffer[header.size : end])
                del self._buffer[:end]
                self._start_session(payload, header.tier)
        except FrameError:
            self._close()

    def _start_session(self, payload: bytes, tier: EncodingTier) -> None:
        port = self._port
        try:
            hello = decode_as(HelloFrame, payload, tier)
        except FrameError as error:
            self._refuse(error_frame(frame_problem(error)), tier)
            return
        agreed = negotiate(hello, port.offer)
        if isinstance(agreed, ErrorFrame):
            self._refuse(agreed, tier)
            return
        sender = RequestCredentials(
            address=self.address, agent=(hello.agent_id or "")[:1000] if port.trusts_names else ""
        )
        session = NativeSession(port, agreed, sender)
        port.connections.add(session)
        self._hand_over(session)

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        self._release()
        if self._transport:
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            if self._buffer:
                protocol.data_received(bytes(self._buffer))

    def _wait_until(self, when: float) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = self._loop.call_at(when, self._time_out)

    def _time_out(self) -> None:
        timeouts = self._port.timeouts
        begun_at = self._due - timeouts.hello
        if self._buffer.startswith(PREAMBLE[:1]) and self._loop.time() < begun_at + timeouts.preamble:
            self._wait_until(begun_at + timeouts.preamble)
        else:
            self._refuse(error_frame(TimedOut("No HelloFrame arrived in time")), EncodingTier.JSON)

    def _refuse(self, error: ErrorFrame, tier: EncodingTier) -> None:
        if self._transport:
            self._transport.write(encode(error, tier))
        self._close()

    def _close(self) -> None:
        self._release()
        if self._transport:
            self._transport.close()

    def _release(self) -> None:
        self._port.connections.discard(self)
        if self._deadline:
            self._deadline.cancel()
