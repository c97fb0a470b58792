"""NWP over TCP and TLS: the native port, and how a connection to it begins. What is said then is for sessions.

Whoever says nothing in time, or nothing that is known here, is left.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, cast

from portico.access.identity import Credentials
from portico.config import Config
from portico.errors import TimedOut
from portico.network import network_of
from portico.protocols.http import base_of
from portico.protocols.nwp.errors import failure, unreadable
from portico.protocols.nwp.frames import ErrorFrame, FrameError, HelloFrame, Tier, Type, decode_as, encode, read_header
from portico.protocols.nwp.handshake import Offer, agree
from portico.protocols.nwp.sessions import HEADER_BYTES, Answering, Patience, Session
from portico.server.admission import AddressLimit
from portico.telemetry import Observe

PREAMBLE: Final = b"NPS/1.0\n"  # what later agents begin with
TLS: Final = b"\x16"  # what a handshake of TLS begins with
METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"TRACE ")
HELLO_BYTES: Final = 16 << 10
MAX_PAYLOAD: Final = 16 << 20  # bytes of an extended frame; a larger record is shortened
ACCEPT_PAUSE: Final = 1.0  # seconds, when the system has no more connections to give

# When a peer that says nothing is asked whether it is there, in seconds, and how often; where a system lets one choose.
PROBES: Final[Mapping[str, int]] = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class NativePort:
    """Takes connections until it is closed, and ends them then. What speaks HTTP is handed to `http`."""

    def __init__(
        self,
        answering: Answering,
        config: Config,
        http: Callable[[], asyncio.Protocol],
        observe: Observe,
        streams: AddressLimit,
        *,
        tls: ssl.SSLContext | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.answering = answering
        self.http = http
        self.observe = observe
        self.streams = streams
        self.patience = patience or Patience()
        self.offer = Offer(
            payload=MAX_PAYLOAD, streams=config.nwp.streams, is_extended=True, oldest=config.nwp.min_version
        )
        self.trusts_names = config.nwp.trust_names
        self.base = base_of(None, config.server)
        self.here: set[Opening | Session] = set()
        self._most = config.limits.connections
        self._most_per_address = config.limits.connections_per_address
        self._tls = tls
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener))

    def run(
        self, work: Coroutine[Any, Any, None], done: Callable[[asyncio.Task[None]], None] | None = None
    ) -> asyncio.Task[None]:
        """Begin a work that does not outlive this. Whoever wants to know when it is done has it forgotten then."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done or self.forget)
        return task

    def forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)

    def left(self, session: Session) -> None:
        self.here.discard(session)

    async def close(self) -> None:
        """Take nobody in any more, and let those who are here have their answers, if that does not take long."""
        if self._accepting:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        if self._listener:
            self._listener.close()
        await asyncio.gather(*(each.drain() for each in list(self.here)))
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
                opening = Opening(self, address[0])
                self.here.add(opening)
                self.run(self._enter(connection, opening))
            else:
                connection.close()

    def _has_room(self, address: str) -> bool:
        network = network_of(address)
        same = sum(each.network == network for each in self.here)
        return len(self.here) < self._most and same < self._most_per_address

    async def _enter(self, connection: socket.socket, opening: "Opening") -> None:
        """Let a connection in, through TLS if that is how it begins: its first byte is looked at, and left."""
        loop = asyncio.get_running_loop()
        try:
            _probe(connection)
            secured = self._tls if self._tls and await _first(connection, self.patience.hello) == TLS else None
            seconds = self.patience.hello if secured else None
            await loop.connect_accepted_socket(lambda: opening, connection, ssl=secured, ssl_handshake_timeout=seconds)
        except OSError:  # it left, or its TLS is none
            self.here.discard(opening)
            connection.close()
        except asyncio.CancelledError:
            self.here.discard(opening)
            connection.close()
            raise


def _probe(connection: socket.socket) -> None:
    """Have the system find out when a peer is gone without a word: its place is for others then."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in PROBES.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _first(connection: socket.socket, seconds: float) -> bytes:
    """The first byte that a connection sends; empty if there is none in time. It stays to be read."""
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


class Opening(asyncio.Protocol):
    """A connection that has yet to say what it speaks. Whoever says something else is left without a word."""

    def __init__(self, port: NativePort, address: str) -> None:
        self.address = address
        self.network = network_of(address)
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + port.patience.hello
        self._read = bytearray()
        self._has_preamble = False
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        is_secured = transport.get_extra_info("ssl_object") is not None
        self._wait_until(self._loop.time() + self._port.patience.hello if is_secured else self._due)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self._has_preamble and self._read.startswith(PREAMBLE):
            del self._read[: len(PREAMBLE)]
            self._has_preamble = True
            self._wait_until(self._loop.time() + self._port.patience.hello)
        if self._read:
            self._decide()

    async def drain(self) -> None:
        if self._transport:
            self._transport.abort()

    def _decide(self) -> None:
        if self._read[0] == Type.HELLO:
            self._read_hello()
        elif not self._has_preamble and self._read.startswith(METHODS):
            self._hand_over(self._port.http())
        elif self._has_preamble or not self._may_become((PREAMBLE, *METHODS)):
            self._close()

    def _may_become(self, beginnings: tuple[bytes, ...]) -> bool:
        return any(each.startswith(self._read) for each in beginnings)

    def _read_hello(self) -> None:
        try:
            header = read_header(bytes(self._read[:HEADER_BYTES]))
            if header is None:
                return
            end = header.size + header.length
            if header.is_encrypted or header.length > HELLO_BYTES:
                self._close()
            elif len(self._read) >= end:
                payload = bytes(self._read[header.size : end])
                del self._read[:end]
                self._greet(payload, header.tier)
        except FrameError:
            self._close()

    def _greet(self, payload: bytes, tier: Tier) -> None:
        port = self._port
        try:
            hello = decode_as(HelloFrame, payload, tier)
        except FrameError as error:
            self._refuse(failure(unreadable(error)), tier)
            return
        agreed = agree(hello, port.offer)
        if isinstance(agreed, ErrorFrame):
            self._refuse(agreed, tier)
            return
        shown = Credentials(address=self.address, agent=(hello.agent_id or "")[:1000] if port.trusts_names else "")
        session = Session(port, agreed, shown)
        port.here.add(session)
        self._hand_over(session)

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        self._leave()
        if self._transport:
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            if self._read:
                protocol.data_received(bytes(self._read))

    def _wait_until(self, when: float) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = self._loop.call_at(when, self._late)

    def _late(self) -> None:
        patience = self._port.patience
        begun = self._due - patience.hello
        if self._read.startswith(PREAMBLE[:1]) and self._loop.time() < begun + patience.preamble:
            self._wait_until(begun + patience.preamble)
        else:
            self._refuse(failure(TimedOut("There was no Hello in time")), Tier.JSON)

    def _refuse(self, error: ErrorFrame, tier: Tier) -> None:
        if self._transport:
            self._transport.write(encode(error, tier))
        self._close()

    def _close(self) -> None:
        self._leave()
        if self._transport:
            self._transport.close()

    def _leave(self) -> None:
        self._port.here.discard(self)
        if self._deadline:
            self._deadline.cancel()
