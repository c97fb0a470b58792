"""NWP over TCP and TLS: the native port, and the sessions on it. Frames go where they go over HTTP, too.

A session reads frames, has them answered and writes what comes back. It never holds more than it agreed on: neither of
what an agent sends nor of what one does not read.
"""

import asyncio
import itertools
import re
import socket
import ssl
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec

from portico.calls import Caller
from portico.config import Config
from portico.errors import BadRequest, SiteError, TimedOut, Unavailable
from portico.faces.nwp.actions import Actions
from portico.faces.nwp.anchors import check_anchor
from portico.faces.nwp.exchange import Asking, Exchange
from portico.faces.nwp.failures import AnchorUnknown, StreamLimit, UnreadableFrame, code_of, failure, unreadable
from portico.faces.nwp.feeds import RECHECK_SECONDS, Feeds
from portico.faces.nwp.frames import (
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    ErrorFrame,
    Frame,
    FrameError,
    Header,
    HelloFrame,
    IdentFrame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    Tier,
    Type,
    decode_any,
    decode_as,
    decode_payload,
    encode,
    encode_value,
    read_header,
)
from portico.faces.nwp.handshake import Agreed, Offer, agree, welcome
from portico.faces.nwp.nodes import GATEWAY, INVOKE, QUERY, SITE, Node
from portico.faces.wire import base_of
from portico.identity import Credentials
from portico.observe import Broke, Observe

PREAMBLE: Final = b"NPS/1.0\n"  # what later agents begin with
TLS: Final = b"\x16"  # what a handshake of TLS begins with
METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"TRACE ")
HEADER_BYTES: Final = 8  # at most
HELLO_BYTES: Final = 16 << 10
RUNNING: Final = 32  # requests of one session at once, besides its streams
PER_ADDRESS: Final = 256  # connections
ACCEPT_PAUSE: Final = 1.0  # seconds, when the system has no more connections to give
FLUSH_SECONDS: Final = 1.0  # for the last words to an agent
IDENT_REF: Final = "nps:system:ident:ack"
_ID = re.compile(r"[\w.:-]{1,64}\Z", re.ASCII)

Request: TypeAlias = QueryFrame | ActionFrame | TaskFrame | SubscribeFrame
Tag: TypeAlias = Mapping[str, str]  # what tells an agent which request an error is about


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds agents have."""

    hello: float = 5.0
    preamble: float = 10.0  # of one that has begun
    reading: float = 30.0  # to read what was sent to them
    idle: float = 600.0  # to say something
    drain: float = 5.0  # to get their answers when the server stops


class Answering:
    """What answers frames, however they came."""

    def __init__(self, exchange: Exchange, actions: Actions, feeds: Feeds) -> None:
        self.exchange = exchange
        self.actions = actions
        self.feeds = feeds
        self._nodes: Mapping[str, Node] = {}
        self._by_anchor: Mapping[str, Node] = {}

    async def node(self, frame: Request) -> Node:
        """No frame names a node: what it refers to leads to one, or else it is for the site."""
        nodes = self.exchange.nodes.all
        if isinstance(frame, QueryFrame | SubscribeFrame) and frame.anchor_ref:
            return self._current(frame.anchor_ref) or await self._superseded(frame.anchor_ref) or nodes[SITE]
        return nodes[GATEWAY if isinstance(frame, TaskFrame) else SITE]

    def _current(self, reference: str) -> Node | None:
        nodes = self.exchange.nodes.all
        if nodes is not self._nodes:
            self._nodes = nodes
            self._by_anchor = {
                anchor.id: node
                for node in reversed(list(nodes.values()))  # of two with one schema the first counts
                if node.type == "memory"
                for anchor in node.collections.values()
            }
        return self._by_anchor.get(reference)

    async def _superseded(self, reference: str) -> Node | None:
        nodes = self.exchange.nodes.all
        if not nodes[SITE].collections:
            return None
        try:
            meant = await self.exchange.anchors.meant(nodes[SITE], reference, is_patient=True)
        except AnchorUnknown:
            return None
        return self._current(meant.anchor.id)


class NativePort:
    """Takes connections until it is closed, and ends them then. What speaks HTTP is handed to `http`."""

    def __init__(
        self,
        answering: Answering,
        config: Config,
        http: Callable[[], asyncio.Protocol],
        observe: Observe,
        *,
        tls: ssl.SSLContext | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.answering = answering
        self.http = http
        self.observe = observe
        self.patience = patience or Patience()
        self.offer = Offer(streams=config.nwp.streams, oldest=config.nwp.min_version)
        self.trusts_names = config.nwp.trust_names
        self.base = base_of(None, config.server)
        self.here: set[Opening | Session] = set()
        self._most = config.limits.connections
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
        same = sum(each.address == address for each in self.here)
        return len(self.here) < self._most and same < PER_ADDRESS

    async def _enter(self, connection: socket.socket, opening: "Opening") -> None:
        """Let a connection in, through TLS if that is how it begins: its first byte is looked at, and left."""
        loop = asyncio.get_running_loop()
        try:
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


class Flow:
    """How many more frames of a stream its reader wants. While it does not say, any number."""

    def __init__(self) -> None:
        self.seq = 0  # of the next frame
        self._left: int | None = None
        self._granted = asyncio.Event()

    def grant(self, frames: int | None) -> None:
        self._left = frames
        self._granted.set()

    async def turn(self) -> None:
        """Wait until one more may be sent."""
        while self._left == 0:
            self._granted.clear()
            await self._granted.wait()
        if self._left is not None:
            self._left -= 1


class Session(asyncio.Protocol):
    """A connection whose agent and site agreed on how to talk.

    Requests with an id are answered as soon as they can be, those without in their order, and streams go on beside.
    """

    def __init__(self, port: NativePort, agreed: Agreed, shown: Credentials) -> None:
        self.address = shown.address
        self._port = port
        self._agreed = agreed
        self._patience = port.patience
        self._loop = asyncio.get_running_loop()
        self._answering = port.answering
        self._site = port.answering.exchange.site
        self._shown = shown
        self._known: Caller | None = None
        self._checked = 0.0
        self._read = bytearray()
        self._waiting: deque[tuple[Request | SiteError, Tag]] = deque()  # to be answered in their order
        self._orderly: asyncio.Task[None] | None = None
        self._identifying: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._beside: set[asyncio.Task[None]] = set()  # streams and subscriptions
        self._following = 0
        self._flows: dict[str, Flow] = {}
        self._ended: deque[str] = deque(maxlen=64)  # streams: what is still said of them comes too late
        self._ids = str(uuid.uuid4())[:24]
        self._count = itertools.count()
        self._is_draining = False
        self._is_listening = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._heard = self._loop.time()
        self._looking: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        exchange, port = self._answering.exchange, self._port
        node = exchange.nodes.all[SITE]
        may = {QUERY: exchange.nodes.may(node, "query"), "nwp:stream": exchange.nodes.may(node, "stream_query")}
        held = [name for name, is_offered in {**may, INVOKE: bool(node.actions)}.items() if is_offered]
        self._write(encode(welcome(self._agreed, port.offer, exchange.nodes.id(SITE, port.base), held), self._tier))
        self._looking = self._loop.call_later(self._patience.idle, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._port.here.discard(self)
        if self._looking:
            self._looking.cancel()
        self._waiting.clear()
        for task in (*self._running, *self._beside):
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._read += data
        self._advance()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def drain(self) -> None:
        """Read no more, finish what was read, and close."""
        self._is_draining = True
        self._listen(False)
        running = self._running | self._beside
        if running:
            await asyncio.wait(running, timeout=self._patience.drain)
        for id, flow in self._flows.items():
            self._write(encode(_broken(id, flow, Unavailable("The server is stopping")), self._tier))
        self._transport.close()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()

    def _look(self) -> None:
        """End a connection on which nothing happens, or that was closed before its agent read the last words."""
        left = self._patience.idle - (self._loop.time() - self._heard)
        if self._transport.is_closing() or (left <= 0 and not self._following):
            self._transport.abort()
        else:
            self._looking = self._loop.call_later(left if left > 0 else self._patience.idle, self._look)

    # Reading

    @property
    def _tier(self) -> Tier:
        return self._agreed.tier

    @property
    def _is_busy(self) -> bool:
        has_enough = len(self._waiting) + len(self._running) >= RUNNING
        return has_enough or self._identifying is not None or self._is_draining or self._transport.is_closing()

    def _advance(self) -> None:
        """Take in as many frames as there are and as can be worked on; more is not even read."""
        try:
            while not self._is_busy and (header := self._next()):
                end = header.size + header.length
                payload = bytes(self._read[header.size : end])
                del self._read[:end]
                self._take(header, payload)
        except FrameError as error:  # nobody knows where the next one begins
            self._write(_refusal(unreadable(error), {}, self._tier))
            self._transport.close()
        self._listen(not self._is_busy)

    def _listen(self, is_listening: bool) -> None:
        if is_listening == self._is_listening or self._transport.is_closing():
            return
        self._is_listening = is_listening
        if is_listening:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _next(self) -> Header | None:
        """The header of a frame that is there as a whole. What it says is believed before anything is kept for it."""
        header = read_header(bytes(self._read[:HEADER_BYTES])) if self._read else None
        if header is None:
            return None
        if header.length > self._agreed.payload:
            told = f"The payload has {header.length} bytes; {self._agreed.payload} were agreed on"
            raise FrameError("NCP-FRAME-PAYLOAD-TOO-LARGE", told)
        return header if len(self._read) >= header.size + header.length else None

    def _take(self, header: Header, payload: bytes) -> None:
        try:
            frame = decode_payload(header, payload)
        except FrameError as error:
            self._ask(unreadable(error, BadRequest), _tag_of_payload(payload, header.tier))
            return
        match frame:
            case QueryFrame(stream=True):
                self._open(frame, self._stream)
            case SubscribeFrame(action="subscribe"):
                self._open(frame, self._follow)
            case QueryFrame() | ActionFrame() | TaskFrame() | SubscribeFrame():
                self._ask(frame, _tag(frame))
            case StreamFrame():
                self._grant(frame)
            case IdentFrame():
                self._identify(frame, payload, header.tier)
            case ErrorFrame():
                pass  # to be told of an error is no reason to tell of one
            case _:
                self._ask(_unwanted(frame), {})

    def _ask(self, asked: Request | SiteError, tag: Tag) -> None:
        if "request_id" in tag:
            self._run(self._answer(asked, tag), tag)
            return
        self._waiting.append((asked, tag))
        if self._orderly is None:
            self._orderly = self._run(self._answer_in_order(), {})

    def _run(self, work: Coroutine[Any, Any, None], tag: Tag) -> asyncio.Task[None]:
        task = self._port.run(work, lambda ended: self._done(ended, tag))
        self._running.add(task)
        return task

    def _done(self, task: asyncio.Task[None], tag: Tag) -> None:
        self._port.forget(task)
        self._running.discard(task)
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._port.observe(Broke("native", type(error).__name__))
            self._write(_refusal(SiteError("The server failed"), tag, self._tier))
        if task is self._orderly:
            self._orderly = self._run(self._answer_in_order(), {}) if self._waiting else None
        if task is self._identifying:
            self._identifying = None
        if (self._read or not self._is_listening) and not self._transport.is_closing():
            self._advance()

    # Answering

    async def _answer_in_order(self) -> None:
        while self._waiting:
            asked, tag = self._waiting.popleft()
            await self._answer(asked, tag)

    async def _answer(self, asked: Request | SiteError, tag: Tag) -> None:
        try:
            written = self._written(await self._answered(asked, tag))
        except SiteError as error:
            written = _refusal(error, tag, self._tier)
        await self._send(written)

    async def _answered(self, asked: Request | SiteError, tag: Tag) -> Frame:
        caller = await self._caller()
        if isinstance(asked, SiteError):
            await self._site.gate.spend(caller)  # what cannot be understood costs as much as what can
            raise asked
        asking = await self._asking(asked, caller, tag)
        match asked:
            case QueryFrame():
                return (await self._answering.exchange.query(asked, asking)).frame
            case SubscribeFrame():
                flow = self._flows.get(asked.stream_id)
                told = await self._answering.feeds.told(asked, asking)
                if flow and asked.action == "unsubscribe":
                    flow.grant(None)  # so that one that waits comes to its end
                return told
            case ActionFrame() | TaskFrame():
                return (await self._answering.actions.invoke(asked, asking)).frame

    async def _asking(self, frame: Request, caller: Caller, tag: Tag) -> Asking:
        id = tag.get("request_id") or self._new_id()
        node = await self._answering.node(frame)
        return Asking(caller, node, self._port.base, id, self._tier, self._agreed.payload)

    def _new_id(self) -> str:
        """A UUID for a request that has none: one of the session, counted on."""
        return f"{self._ids}{next(self._count):012x}"

    # Who is calling

    async def _caller(self) -> Caller:
        """Who is calling. What was shown is looked at again now and then: it may have expired, or been revoked."""
        is_shown = self._shown.ident or self._shown.agent
        if self._known is None or (is_shown and self._loop.time() - self._checked > RECHECK_SECONDS):
            shown = self._shown
            known = await self._site.caller(shown)
            if shown is not self._shown:  # another certificate was bound meanwhile
                return known
            self._known, self._checked = known, self._loop.time()
        return self._known

    def _identify(self, frame: IdentFrame, payload: bytes, tier: Tier) -> None:
        """Bind a certificate to the connection. Nothing else is read before it is known to be good."""
        try:
            shown = Credentials(ident=_as_json(payload, tier), address=self.address)
        except FrameError as error:
            self._ask(unreadable(error), {})
            return
        self._identifying = self._run(self._bind(frame.nid, shown), {})

    async def _bind(self, nid: str, shown: Credentials) -> None:
        try:
            known = await self._site.caller(shown)
            await self._site.gate.spend(known)
            self._shown, self._known, self._checked = shown, known, self._loop.time()
            accepted = {"nid": nid, "status": "accepted"}
            written = self._written(CapsFrame(anchor_ref=IDENT_REF, count=1, data=[accepted]))
        except SiteError as error:
            self._shown, self._known = Credentials(address=self.address), None
            written = _refusal(error, {}, self._tier)
        await self._send(written)

    # Streams

    def _open(self, frame: QueryFrame | SubscribeFrame, begin: Callable[..., Coroutine[Any, Any, None]]) -> None:
        most, tag = self._agreed.streams, _tag(frame)
        if len(self._beside) >= most:
            self._ask(StreamLimit(f"{most} streams were agreed on", limit=most, hint="End one of them."), tag)
            return
        id = next(iter(tag.values()), None) or self._new_id()
        flow = self._flows[id] = Flow()
        self._beside.add(self._port.run(begin(frame, id, flow), lambda ended: self._end(ended, tag, id, flow)))

    def _end(self, task: asyncio.Task[None], tag: Tag, id: str, flow: Flow) -> None:
        if self._flows.get(id) is flow:
            del self._flows[id]
            self._ended.append(id)
        self._done(task, tag)

    async def _stream(self, frame: QueryFrame, id: str, flow: Flow) -> None:
        feeds, exchange = self._answering.feeds, self._answering.exchange
        try:
            asking = await self._asking(frame, await self._caller(), {"request_id": id})
            async with aclosing(feeds.stopping(exchange.stream(frame, asking), asking)) as parts:
                async for part in parts:
                    await flow.turn()
                    await self._send(self._written(part, is_final=part.is_last))
                    flow.seq = part.seq + 1
        except SiteError as error:
            tier, tag = self._tier, _tag(frame)
            await self._send(encode(_broken(id, flow, error), tier) if flow.seq else _refusal(error, tag, tier))

    async def _follow(self, frame: SubscribeFrame, id: str, flow: Flow) -> None:
        self._following += 1
        try:
            # It lasts as long as what it was opened with, whatever is shown later on the same connection.
            shown = self._shown
            asking = await self._asking(frame, await self._caller(), {})
            feed = await self._answering.feeds.open(frame, asking, lambda: self._site.caller(shown))
            try:
                await self._send(self._written(feed.ack))
                async with aclosing(cast("AsyncGenerator[Frame]", aiter(feed))) as events:
                    async for each in events:
                        await flow.turn()
                        await self._send(self._written(_with_stream(each, id)))
            finally:
                await feed.aclose()
        except SiteError as error:
            await self._send(_refusal(error, _tag(frame), self._tier))
        finally:
            self._following -= 1

    def _grant(self, frame: StreamFrame) -> None:
        """What an agent says of a stream that it reads: how many more frames it wants."""
        flow = self._flows.get(frame.stream_id)
        if flow:
            flow.grant(None if frame.window_size is None else max(frame.window_size, 0))
        elif frame.stream_id not in self._ended:
            tag = {"stream_id": frame.stream_id[:64]}
            self._ask(UnreadableFrame("There is no such stream", code="NCP-STREAM-NOT-FOUND"), tag)

    # Writing

    def _written(self, frame: Frame, *, is_final: bool = True) -> bytes:
        try:
            return encode(frame, self._tier, is_final=is_final, largest=self._agreed.payload)
        except FrameError as error:
            raise unreadable(error) from error

    async def _send(self, written: bytes) -> None:
        """Write, once the agent has read most of what was written before. One that does not read is left."""
        if not self._writable.is_set():
            await self._until_writable()
        self._heard = self._loop.time()
        self._write(written)

    async def _until_writable(self) -> None:
        try:
            async with asyncio.timeout(self._patience.reading):
                while not self._writable.is_set():
                    await self._writable.wait()
        except TimeoutError:
            self._transport.abort()
            await self._loop.create_future()  # which the end of the connection cancels

    def _write(self, written: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(written)


def _tag(frame: Request) -> Tag:
    """What an agent calls a request. What could not be told again is no name."""
    if isinstance(frame, SubscribeFrame):
        return {"stream_id": frame.stream_id} if _ID.match(frame.stream_id) else {}
    return {"request_id": frame.request_id} if frame.request_id and _ID.match(frame.request_id) else {}


def _tag_of_payload(payload: bytes, tier: Tier) -> Tag:
    """What an agent calls a request that cannot be read."""
    try:
        said = decode_any(payload, tier)
    except FrameError:
        return {}
    match said:
        case {"request_id": str(id)} if _ID.match(id):
            return {"request_id": id}
        case {"stream_id": str(id)} if _ID.match(id):
            return {"stream_id": id}
        case _:
            return {}


def _as_json(payload: bytes, tier: Tier) -> bytes:
    """A certificate as its authority wrote it before somebody packed it."""
    if tier == Tier.JSON:
        return payload
    try:
        return encode_value(decode_any(payload, tier), Tier.JSON)
    except (TypeError, ValueError) as error:
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "A certificate holds only what JSON can say") from error


def _refusal(error: SiteError, tag: Tag, tier: Tier) -> bytes:
    """An error as it is sent. Agents of 0.4 look for its request in the details."""
    told = failure(error, tag.get("request_id"))
    try:
        return encode(msgspec.structs.replace(told, details={**told.details, **tag}), tier)
    except OverflowError:  # a number that an agent wrote in JSON, and that MessagePack has no room for
        return encode(msgspec.structs.replace(told, details={**tag}), tier)


def _broken(id: str, flow: Flow, error: SiteError) -> StreamFrame:
    """The last frame of a stream that cannot go on."""
    return StreamFrame(stream_id=id, seq=flow.seq, is_last=True, data=[], error_code=code_of(error).error)


def _with_stream(frame: Frame, id: str) -> Frame:
    if not isinstance(frame, ErrorFrame):
        return frame
    return msgspec.structs.replace(frame, details={**frame.details, "stream_id": id})


def _unwanted(frame: Frame) -> SiteError:
    """Why a frame is not read here that is one."""
    try:
        if isinstance(frame, AnchorFrame):
            check_anchor(frame)
    except FrameError as error:
        return unreadable(error)
    if isinstance(frame, DiffFrame) and frame.patch_format not in {None, "json_patch"}:
        return UnreadableFrame("Changes are told as JSON Patch here", code="NCP-DIFF-FORMAT-UNSUPPORTED")
    told = f"A frame of type 0x{frame.TYPE:02X} is not read here"
    return UnreadableFrame(told, code="NCP-FRAME-UNKNOWN-TYPE")
