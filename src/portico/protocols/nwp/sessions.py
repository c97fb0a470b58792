"""Native sessions: frames are read, answered and written, on a connection whose two sides agreed on how to talk.

A session never holds more than it agreed on: neither of what an agent sends nor of what one does not read. How it came
about is not its matter, nor what a frame means.
"""

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from portico.access.identity import Credentials
from portico.errors import RateLimited, SiteError, TooLarge, Unavailable
from portico.network import network_of
from portico.protocols.nwp.actions import Actions
from portico.protocols.nwp.anchors import check_anchor
from portico.protocols.nwp.errors import (
    MEMBERS,
    AnchorUnknown,
    StreamLimit,
    UnreadableFrame,
    code_of,
    failure,
    unreadable,
)
from portico.protocols.nwp.feeds import Feeds
from portico.protocols.nwp.fitting import fit_change
from portico.protocols.nwp.frames import (
    FRAMES,
    LARGEST,
    MAX_ID,
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    ErrorFrame,
    Frame,
    FrameError,
    Header,
    IdentFrame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    Tier,
    Type,
    decode_any,
    decode_payload,
    encode,
    encode_value,
    read_header,
)
from portico.protocols.nwp.handshake import Agreed, Offer, welcome
from portico.protocols.nwp.nodes import GATEWAY, INVOKE, QUERY, SITE, STREAM, TASK_CANCEL, TASK_STATUS, Node
from portico.protocols.nwp.service import Asking, Exchange
from portico.requests import Caller
from portico.server.admission import AddressLimit
from portico.telemetry import Broke, Observe

HEADER_BYTES: Final = 8  # at most
MAX_HELD: Final = 16 << 20  # bytes of large answers that wait to be written, though one alone may have more
RUNNING: Final = 32  # requests of one session at once, besides its streams
FRAMES_AT_ONCE: Final = 64  # of one session, before others have their turn
FLUSH_SECONDS: Final = 1.0  # for the last words to an agent
IDENT_REF: Final = "nps:system:ident:ack"
TASKS: Final = frozenset({TASK_STATUS, TASK_CANCEL})  # what every node with actions has

Request: TypeAlias = QueryFrame | ActionFrame | TaskFrame | SubscribeFrame
Tag: TypeAlias = Mapping[str, str]  # what tells an agent which request an error is about


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds agents have."""

    hello: float = 5.0
    preamble: float = 10.0  # of one that has begun
    reading: float = 30.0  # to read what was sent to them
    frame: float = 20.0  # to send the rest of a frame that has begun
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

    async def node(self, frame: Request, caller: Caller) -> Node:
        """No frame names a node: what it refers to leads to one, or else it is for the site.

        Of several that it could be for, it is for one that the caller's certificate covers.
        """
        nodes = self.exchange.nodes.all
        match frame:
            case QueryFrame(anchor_ref=str() as anchor) | SubscribeFrame(anchor_ref=str() as anchor) if anchor:
                return self.current(anchor) or await self._superseded(anchor) or nodes[SITE]
            case ActionFrame():
                return self._covered(caller, lambda node: _has(node, frame.action_id))
            case SubscribeFrame():  # of a stream that runs, whoever told it to
                return self._covered(caller, lambda node: node.type == "memory")
            case TaskFrame():
                return nodes[GATEWAY]
            case QueryFrame():
                return nodes[SITE]

    def _covered(self, caller: Caller, fits: Callable[[Node], bool]) -> Node:
        nodes = self.exchange.nodes.all
        if caller.warrant is None:
            return nodes[SITE]
        possible = (nodes[SITE], *(node for node in nodes.values() if fits(node)))
        return next((each for each in possible if self.exchange.warrants.covers(caller.warrant, each)), nodes[SITE])

    def current(self, reference: str) -> Node | None:
        """The node whose records have this schema as of now."""
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
        return self.current(meant.anchor.id)


def _has(node: Node, action: str) -> bool:
    return action in node.actions or (action in TASKS and bool(node.actions))


class Port(Protocol):
    """What a session has of the port that it came in by."""

    answering: Answering
    observe: Observe
    streams: AddressLimit
    offer: Offer
    patience: Patience
    base: str

    def run(
        self, work: Coroutine[Any, Any, None], done: Callable[[asyncio.Task[None]], None] | None = None
    ) -> asyncio.Task[None]: ...

    def forget(self, task: asyncio.Task[None]) -> None: ...

    def left(self, session: "Session") -> None: ...


class Flow:
    """How many more frames of a stream its reader wants. While it does not say, any number."""

    def __init__(self, *, is_feed: bool) -> None:
        self.is_feed = is_feed  # of a subscription, which can be taken up again
        self.seq = 0  # of the next frame
        self.is_ended = False  # whether its reader wants no more
        self.is_counted = True  # among the streams of its address
        self.sending: asyncio.Task[None] | None = None
        self._left: int | None = None
        self._granted = asyncio.Event()

    def grant(self, frames: int | None) -> None:
        self._left = frames
        self._granted.set()

    def end(self) -> None:
        """Let one that waits come to its end."""
        self.is_ended = True
        self.grant(None)

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

    def __init__(self, port: Port, agreed: Agreed, shown: Credentials) -> None:
        self.address = shown.address
        self.network = network_of(shown.address)
        self._port = port
        self._agreed = agreed
        self._patience = port.patience
        self._loop = asyncio.get_running_loop()
        self._answering = port.answering
        self._site = port.answering.exchange.site
        # What agents send is held to the same bound as over HTTP, whatever they can read.
        self._readable = min(agreed.payload, max(LARGEST, self._site.limits.payload_bytes))
        self._shown = shown
        self._known: Caller | None = None
        self._read = bytearray()
        self._turn: asyncio.Handle | None = None  # to go on with what was read
        self._waiting: deque[tuple[Request | SiteError, Tag]] = deque()  # to be answered in their order
        self._orderly: asyncio.Task[None] | None = None
        self._identifying: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._held = 0  # bytes of answers that wait for the agent to read those before them
        self._beside: set[asyncio.Task[None]] = set()  # streams and subscriptions
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
        self._frame_deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        exchange, port = self._answering.exchange, self._port
        node = exchange.nodes.all[SITE]
        may = {QUERY: exchange.nodes.may(node, "query"), STREAM: exchange.nodes.may(node, "stream_query")}
        held = [name for name, is_offered in {**may, INVOKE: bool(node.actions)}.items() if is_offered]
        self._write(encode(welcome(self._agreed, port.offer, exchange.nodes.id(SITE, port.base), held), self._tier))
        self._looking = self._loop.call_later(self._patience.idle, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._port.left(self)
        for timer in (self._looking, self._turn, self._frame_deadline):
            if timer:
                timer.cancel()
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
        if self._transport.is_closing() or left <= 0:
            self._transport.abort()
        else:
            self._looking = self._loop.call_later(left, self._look)

    # Reading

    @property
    def _tier(self) -> Tier:
        return self._agreed.tier

    @property
    def _is_busy(self) -> bool:
        has_enough = len(self._waiting) + len(self._running) >= RUNNING
        return has_enough or self._identifying is not None or self._is_draining or self._transport.is_closing()

    def _advance(self) -> None:
        """Take in as many frames as there are and as can be worked on; more is not even read.

        After so many it is the turn of others.
        """
        if self._turn:
            self._turn.cancel()
            self._turn = None
        try:
            for _ in range(FRAMES_AT_ONCE):
                if not self._read or self._is_busy or not (header := self._next()):
                    break
                end = header.size + header.length
                raw = bytes(self._read[:end])
                del self._read[:end]
                self._clear_frame_deadline()
                self._take(header, raw)
            else:
                self._turn = self._loop.call_soon(self._advance)
        except FrameError as error:  # nobody knows where the next one begins
            self._write(_refusal(unreadable(error), {}, self._tier))
            self._transport.close()
        self._listen(not self._is_busy and self._turn is None)
        self._limit_frame()

    def _clear_frame_deadline(self) -> None:
        if self._frame_deadline:
            self._frame_deadline.cancel()
            self._frame_deadline = None

    def _limit_frame(self) -> None:
        """Give a frame that has begun a deadline, unless it is this side that does not read."""
        is_partial = bool(self._read) and self._is_listening
        if is_partial and self._frame_deadline is None:
            self._frame_deadline = self._loop.call_later(self._patience.frame, self._transport.abort)
        elif not is_partial:
            self._clear_frame_deadline()

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
        header = read_header(bytes(self._read[:HEADER_BYTES]))
        if header is None:
            return None
        if header.length > self._readable:
            message = f"The payload has {header.length} bytes; a request may have {self._readable}"
            raise FrameError("NCP-FRAME-PAYLOAD-TOO-LARGE", message)
        return header if len(self._read) >= header.size + header.length else None

    def _take(self, header: Header, raw: bytes) -> None:
        try:
            frame = decode_payload(header, raw[header.size :])
        except FrameError as error:
            if header.type != Type.ERROR:  # to be told of an error is no reason to tell of one
                wrong = MEMBERS.get(FRAMES.get(header.type, Frame), UnreadableFrame)
                self._ask(unreadable(error, wrong), _tag_of_payload(raw[header.size :], header.tier))
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
                self._identify(frame, raw[header.size :], header.tier)
            case ErrorFrame():
                pass
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
            self._port.observe(Broke("native", type(error).__name__, error))
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
        if self._held:  # no more work for an agent that does not read the answers it has
            await self._until_writable()
        try:
            written = self._written(await self._answered(asked, tag))
            if self._held and len(written) > LARGEST and self._held + len(written) > MAX_HELD:
                raise _unread(asked, self._held)
        except SiteError as error:
            written = _refusal(error, tag, self._tier)
        self._held += len(written)
        try:
            await self._send(written)
        finally:
            self._held -= len(written)

    async def _answered(self, asked: Request | SiteError, tag: Tag) -> Frame:
        caller = await self._caller()
        if isinstance(asked, SiteError):
            async with self._site.gate.charging(caller):
                raise asked
        asking = await self._asking(asked, caller, tag)
        match asked:
            case QueryFrame():
                return (await self._answering.exchange.query(asked, asking)).frame
            case SubscribeFrame():
                flow = self._flows.get(asked.stream_id)
                told = await self._answering.feeds.told(asked, asking)
                if flow and asked.action == "unsubscribe":
                    flow.end()
                return told
            case ActionFrame() | TaskFrame():
                return (await self._answering.actions.invoke(asked, asking)).frame

    async def _asking(self, frame: Request, caller: Caller, tag: Tag) -> Asking:
        node = await self._answering.node(frame, caller)
        id, most = tag.get("request_id") or self._new_id(), self._agreed.payload
        return Asking(caller, node, self._port.base, id, self._tier, min(most, LARGEST), max_payload=most)

    def _new_id(self) -> str:
        """A UUID for a request that has none: one of the session, counted on."""
        return f"{self._ids}{next(self._count):012x}"

    # Who is calling

    async def _caller(self) -> Caller:
        """Who is calling. What was shown is looked at again each time: it may have expired, or been revoked."""
        if self._known is None or self._has_shown:
            shown = self._shown
            known = await self._site.caller(shown)
            if shown is not self._shown:  # another certificate was bound meanwhile
                return known
            self._known = known
        return self._known

    @property
    def _has_shown(self) -> bool:
        return bool(self._shown.ident or self._shown.agent)

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
            self._shown, self._known = shown, known
            accepted = {"nid": nid, "status": "accepted"}
            written = self._written(CapsFrame(anchor_ref=IDENT_REF, count=1, data=[accepted]))
        except SiteError as error:
            self._shown, self._known = Credentials(address=self.address), None
            written = _refusal(error, {}, self._tier)
        await self._send(written)

    # Streams

    def _open(self, frame: QueryFrame | SubscribeFrame, begin: Callable[..., Coroutine[Any, Any, None]]) -> None:
        tag = _tag(frame)
        id = next(iter(tag.values()), None) or self._new_id()
        older = self._flows.get(id)
        refusal = self._refusal_of(frame, older)
        if refusal:
            self._ask(refusal, tag)
            return
        if older and older.sending:
            older.sending.cancel()
            older.is_counted = False  # the new one has its place
        flow = self._flows[id] = Flow(is_feed=isinstance(frame, SubscribeFrame))
        flow.sending = self._port.run(begin(frame, id, flow), lambda ended: self._end(ended, tag, id, flow))
        self._beside.add(flow.sending)

    def _refusal_of(self, frame: QueryFrame | SubscribeFrame, older: Flow | None) -> SiteError | None:
        """Why a stream cannot begin beside the others. Only a subscription is taken up while it runs (NWP 8.2).

        A stream that can begin is counted for its address.
        """
        is_taken_up = isinstance(frame, SubscribeFrame) and frame.resume_from_seq is not None
        if older and not (older.is_feed and is_taken_up):
            return StreamLimit("A stream of this id is running", limit=1, hint="End it, or choose another id.")
        most = self._agreed.streams
        if len(self._beside) - bool(older) >= most:
            return StreamLimit(f"{most} streams were agreed on", limit=most, hint="End one of them.")
        if not older and not self._port.streams.acquire(self.address):
            refusal = self._port.streams.refusal("streams")
            return StreamLimit(refusal.message, hint=refusal.hint, **refusal.details)
        return None

    def _end(self, task: asyncio.Task[None], tag: Tag, id: str, flow: Flow) -> None:
        if flow.is_counted:
            self._port.streams.release(self.address)
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
                    if flow.is_ended:  # what waited goes beyond what its reader wanted
                        await self._send(self._written(_end_of(part)))
                        break
                    await self._send(self._written(part, is_final=part.is_last))
                    flow.seq = part.seq + 1
        except SiteError as error:
            tier, tag = self._tier, _tag(frame)
            await self._send(encode(_broken(id, flow, error), tier) if flow.seq else _refusal(error, tag, tier))

    async def _follow(self, frame: SubscribeFrame, id: str, flow: Flow) -> None:
        try:
            # It lasts as long as what it was opened with, whatever is shown later on the same connection.
            shown = self._shown
            asking = await self._asking(frame, await self._caller(), {})
            # Who follows need not say anything: that something is written shows whether they are there.
            quiet = self._patience.idle / 2
            feed = await self._answering.feeds.open(frame, asking, lambda: self._site.caller(shown), quiet)
            try:
                await self._send(self._written(feed.ack))
                async with aclosing(cast("AsyncGenerator[Frame]", aiter(feed))) as events:
                    async for each in events:
                        await flow.turn()
                        if flow.is_ended:
                            break
                        await self._send(self._change(_with_stream(each, id)))
            finally:
                await feed.aclose()
        except SiteError as error:
            await self._send(_refusal(error, _tag(frame), self._tier))

    def _grant(self, frame: StreamFrame) -> None:
        """What an agent says of a stream that it reads: how many more frames it wants."""
        flow = self._flows.get(frame.stream_id)
        if flow:
            flow.grant(None if frame.window_size is None else max(frame.window_size, 0))
        elif frame.stream_id not in self._ended:
            tag = {"stream_id": frame.stream_id[:MAX_ID]}
            self._ask(UnreadableFrame("There is no such stream", code="NCP-STREAM-NOT-FOUND"), tag)

    # Writing

    def _written(self, frame: Frame, *, is_final: bool = True) -> bytes:
        try:
            return encode(frame, self._tier, is_final=is_final, largest=self._agreed.payload)
        except FrameError as error:
            raise unreadable(error) from error

    def _change(self, frame: Frame) -> bytes:
        """Encode a change without the values that the agent's frames have no room for, so that the next can follow."""
        try:
            return encode(frame, self._tier, largest=self._agreed.payload)
        except FrameError:
            if not isinstance(frame, DiffFrame):
                raise
            return self._written(fit_change(frame, self._agreed.payload, self._tier))

    async def _send(self, written: bytes) -> None:
        """Write, once the agent has read most of what was written before. One that does not read is left."""
        if not self._writable.is_set():
            await self._until_writable()
        self._heard = self._loop.time()
        self._write(written)

    async def _until_writable(self) -> None:
        while not self._writable.is_set():
            unread = self._transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._patience.reading):
                    await self._writable.wait()
            except TimeoutError:
                # A large frame takes a while on a slow line: whoever reads on is waited for.
                if unread - self._transport.get_write_buffer_size() < LARGEST:
                    self._transport.abort()
                    await self._loop.create_future()  # which the end of the connection cancels

    def _write(self, written: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(written)


def _tag(frame: Request) -> Tag:
    """What an agent calls a request."""
    if isinstance(frame, SubscribeFrame):
        return {"stream_id": frame.stream_id} if frame.stream_id else {}
    return {"request_id": frame.request_id} if frame.request_id else {}


def _tag_of_payload(payload: bytes, tier: Tier) -> Tag:
    """What an agent calls a request that cannot be read."""
    try:
        said = decode_any(payload, tier)
    except FrameError:
        return {}
    match said:
        case {"request_id": str(id)} if 0 < len(id) <= MAX_ID:
            return {"request_id": id}
        case {"stream_id": str(id)} if 0 < len(id) <= MAX_ID:
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


def _unread(asked: Request | SiteError, unread: int) -> SiteError:
    """Return the error that takes the place of an answer while too many bytes of other answers are unread.

    It asks for a repetition only if nothing was done.
    """
    message = f"{unread} bytes of answers on this connection are unread; {MAX_HELD} are allowed"
    if isinstance(asked, ActionFrame | TaskFrame):
        return TooLarge(
            f"The action was done, but its result was dropped: {message}",
            limit=MAX_HELD,
            completed=True,
            hint="Read answers before you send more requests. If the action has an `idempotency_key`, repeat it with "
            "that key to get its result.",
        )
    return RateLimited(message, retry_after=1, hint="Read answers before you send more requests.")


def _broken(id: str, flow: Flow, error: SiteError) -> StreamFrame:
    """The last frame of a stream that cannot go on."""
    return StreamFrame(stream_id=id, seq=flow.seq, is_last=True, data=[], error_code=code_of(error).error)


def _end_of(part: StreamFrame) -> StreamFrame:
    """The last frame of a stream that its reader ended, in the place of one with records."""
    return StreamFrame(stream_id=part.stream_id, seq=part.seq, is_last=True, data=[])


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
