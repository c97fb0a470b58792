"""Native sessions: frames are read, handled and answered on a connection, after the handshake.

A session bounds its memory: both what an agent sends, and what it does not read. It knows nothing of the handshake, nor
of what a frame means.
"""

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import msgspec

from portico.access.identity import RequestCredentials
from portico.errors import RateLimited, SiteError, TooLarge, Unavailable
from portico.network import network_of
from portico.protocols import StreamLimit
from portico.protocols.nwp.anchors import check_anchor
from portico.protocols.nwp.errors import (
    MEMBERS,
    StreamLimitExceeded,
    UnreadableFrame,
    code_of,
    frame_problem,
)
from portico.protocols.nwp.frame_router import FrameRouter, RequestFrame
from portico.protocols.nwp.frames import (
    FRAMES,
    LARGEST,
    MAX_ID,
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    EncodingTier,
    ErrorFrame,
    Frame,
    FrameError,
    FrameHeader,
    FrameType,
    IdentFrame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    decode_any,
    decode_payload,
    encode,
    encode_value,
    read_header,
)
from portico.protocols.nwp.handshake import HandshakeOffer, SessionTerms, welcome
from portico.protocols.nwp.nodes import INVOKE, QUERY, SITE, STREAM
from portico.protocols.nwp.service import NwpRequestContext
from portico.protocols.nwp.writer import FrameWriter, RequestTag
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Recorder, UnexpectedError

HEADER_BYTES: Final = 8  # at most
MAX_UNREAD_BYTES: Final = 16 << 20  # of responses that wait to be written; a single one may be larger
MAX_RUNNING: Final = 32  # concurrent requests of one session, besides its streams
FRAMES_AT_ONCE: Final = 64  # of one session, before other sessions have their turn
FLUSH_SECONDS: Final = 1.0  # to send the last frames when closing
IDENT_REF: Final = "nps:system:ident:ack"


@dataclass(frozen=True, slots=True)
class NativeTimeouts:
    """Timeouts of native connections, in seconds."""

    hello: float = 5.0
    preamble: float = 10.0  # for the rest of a preamble
    reading: float = 30.0  # without any progress in reading responses
    frame: float = 20.0  # for the rest of a frame
    idle: float = 600.0
    drain: float = 5.0  # to finish responses when the server stops


class SessionHost(Protocol):
    """What a session needs of the port that accepted it."""

    router: FrameRouter
    record: Recorder
    streams: StreamLimit
    offer: HandshakeOffer
    timeouts: NativeTimeouts
    base: str

    def run(
        self, coroutine: Coroutine[Any, Any, None], on_done: Callable[[asyncio.Task[None]], None] | None = None
    ) -> asyncio.Task[None]: ...

    def forget(self, task: asyncio.Task[None]) -> None: ...

    def remove(self, session: "NativeSession") -> None: ...


class StreamFlow:
    """The flow control of one stream: how many more frames its reader wants. Unlimited until the reader sets it."""

    def __init__(self, *, is_feed: bool) -> None:
        self.is_feed = is_feed  # a subscription, which can be resumed
        self.seq = 0  # of the next frame
        self.is_ended = False  # the reader stopped it
        self.is_counted = True  # among the streams of its address
        self.task: asyncio.Task[None] | None = None
        self._window: int | None = None
        self._has_room = asyncio.Event()

    def grant(self, frames: int | None) -> None:
        self._window = frames
        self._has_room.set()

    def end(self) -> None:
        """Mark the stream as stopped, and wake it up."""
        self.is_ended = True
        self.grant(None)

    async def wait_turn(self) -> None:
        """Wait until the reader accepts one more frame."""
        while self._window == 0:
            self._has_room.clear()
            await self._has_room.wait()
        if self._window is not None:
            self._window -= 1


class SessionIdentity:
    """The credentials bound to a connection, and their caller."""

    def __init__(self, site: Site, credentials: RequestCredentials) -> None:
        self.credentials = credentials
        self._site = site
        self._caller: Caller | None = None

    async def caller(self) -> Caller:
        """Return the caller. Credentials are verified each time: they may have expired, or been revoked."""
        credentials = self.credentials
        if self._caller is None or credentials.certificate or credentials.agent:
            caller = await self._site.access.authenticate(credentials)
            if credentials is not self.credentials:  # another certificate was bound meanwhile
                return caller
            self._caller = caller
        return self._caller

    async def bind(self, credentials: RequestCredentials) -> None:
        """Verify a certificate, and use it from now on. An invalid one also unbinds the one before."""
        try:
            caller = await self._site.access.authenticate(credentials)
            await self._site.access.admit(caller)
        except SiteError:
            self.credentials, self._caller = RequestCredentials(address=self.credentials.address), None
            raise
        self.credentials, self._caller = credentials, caller


class NativeSession(asyncio.Protocol):
    """A native connection after its handshake.

    Requests with an id are answered as soon as possible, those without in order, and streams run beside them.
    """

    def __init__(self, port: SessionHost, terms: SessionTerms, credentials: RequestCredentials) -> None:
        self.address = credentials.address
        self.network = network_of(credentials.address)
        self._port = port
        self._terms = terms
        self._timeouts = port.timeouts
        self._loop = asyncio.get_running_loop()
        self._router = port.router
        self._site = port.router.service.site
        # Requests have the same bound as over HTTP, whatever size of frame the agent can read.
        self._max_request = min(terms.payload, max(LARGEST, self._site.limits.payload_bytes))
        self._identity = SessionIdentity(self._site, credentials)
        self._writer = FrameWriter(terms, port.timeouts.reading)
        self._buffer = bytearray()
        self._next_turn: asyncio.Handle | None = None  # to continue with buffered frames
        self._queue: deque[tuple[RequestFrame | SiteError, RequestTag]] = deque()  # to be answered in order
        self._ordered_task: asyncio.Task[None] | None = None
        self._identify_task: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._unread_bytes = 0  # of responses that wait until the agent reads earlier ones
        self._streams: set[asyncio.Task[None]] = set()  # streams and subscriptions
        self._flows: dict[str, StreamFlow] = {}
        self._ended_streams: deque[str] = deque(maxlen=64)  # late frames about these are ignored
        prefix = str(uuid.uuid4())[:24]
        self._ids = (f"{prefix}{number:012x}" for number in itertools.count())  # UUIDs for requests without an id
        self._is_draining = False
        self._is_listening = True
        self._is_lost = asyncio.Event()
        self._last_activity = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._frame_deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writer.connect(self._transport)
        service, port = self._router.service, self._port
        node = service.nodes.all[SITE]
        may = {QUERY: service.nodes.may(node, "query"), STREAM: service.nodes.may(node, "stream_query")}
        held = [name for name, is_offered in {**may, INVOKE: bool(node.actions)}.items() if is_offered]
        self._writer.write(
            encode(welcome(self._terms, port.offer, service.nodes.id(SITE, port.base), held), self._writer.tier)
        )
        self._idle_timer = self._loop.call_later(self._timeouts.idle, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost.set()
        self._port.remove(self)
        for timer in (self._idle_timer, self._next_turn, self._frame_deadline):
            if timer:
                timer.cancel()
        self._queue.clear()
        for task in (*self._running, *self._streams):
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._last_activity = self._loop.time()
        self._buffer += data
        self._advance()

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    async def drain(self) -> None:
        """Stop reading, finish the running requests, and close."""
        self._is_draining = True
        self._listen(False)
        running = self._running | self._streams
        if running:
            await asyncio.wait(running, timeout=self._timeouts.drain)
        for id, flow in self._flows.items():
            self._writer.write(encode(_abort_frame(id, flow, Unavailable("The server is stopping")), self._writer.tier))
        self._transport.close()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._is_lost.wait()
        except TimeoutError:
            self._transport.abort()

    def _check_idle(self) -> None:
        """Abort an idle connection, or one whose agent does not read the last frames before closing."""
        left = self._timeouts.idle - (self._loop.time() - max(self._last_activity, self._writer.last_write))
        if self._transport.is_closing() or left <= 0:
            self._transport.abort()
        else:
            self._idle_timer = self._loop.call_later(left, self._check_idle)

    # Reading

    @property
    def _is_busy(self) -> bool:
        has_enough = len(self._queue) + len(self._running) >= MAX_RUNNING
        return has_enough or self._identify_task is not None or self._is_draining or self._transport.is_closing()

    def _advance(self) -> None:
        """Handle buffered frames until the session is busy, and stop reading then.

        After FRAMES_AT_ONCE frames other sessions have their turn.
        """
        if self._next_turn:
            self._next_turn.cancel()
            self._next_turn = None
        try:
            for _ in range(FRAMES_AT_ONCE):
                if not self._buffer or self._is_busy or not (header := self._next_header()):
                    break
                end = header.size + header.length
                raw = bytes(self._buffer[:end])
                del self._buffer[:end]
                self._clear_frame_deadline()
                self._receive(header, raw)
            else:
                self._next_turn = self._loop.call_soon(self._advance)
        except FrameError as error:  # the start of the next frame is unknown
            self._writer.write(self._writer.encode_error(frame_problem(error), {}))
            self._transport.close()
        self._listen(not self._is_busy and self._next_turn is None)
        self._limit_frame()

    def _clear_frame_deadline(self) -> None:
        if self._frame_deadline:
            self._frame_deadline.cancel()
            self._frame_deadline = None

    def _limit_frame(self) -> None:
        """Set a deadline for a partial frame, unless it is this side that does not read."""
        is_partial = bool(self._buffer) and self._is_listening
        if is_partial and self._frame_deadline is None:
            self._frame_deadline = self._loop.call_later(self._timeouts.frame, self._transport.abort)
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

    def _next_header(self) -> FrameHeader | None:
        """Return the header of the next frame, if all of it has arrived. Its length is checked before buffering it."""
        header = read_header(bytes(self._buffer[:HEADER_BYTES]))
        if header is None:
            return None
        if header.length > self._max_request:
            message = f"The payload has {header.length} bytes; at most {self._max_request} are allowed"
            raise FrameError("NCP-FRAME-PAYLOAD-TOO-LARGE", message)
        return header if len(self._buffer) >= header.size + header.length else None

    def _receive(self, header: FrameHeader, raw: bytes) -> None:
        try:
            frame = decode_payload(header, raw[header.size :])
        except FrameError as error:
            if header.type != FrameType.ERROR:  # an invalid ErrorFrame is not answered with another
                wrong = MEMBERS.get(FRAMES.get(header.type, Frame), UnreadableFrame)
                self._enqueue(frame_problem(error, wrong), _tag_of_payload(raw[header.size :], header.tier))
            return
        match frame:
            case QueryFrame(stream=True):
                self._open(frame, self._stream)
            case SubscribeFrame(action="subscribe"):
                self._open(frame, self._follow)
            case QueryFrame() | ActionFrame() | TaskFrame() | SubscribeFrame():
                self._enqueue(frame, _tag(frame))
            case StreamFrame():
                self._grant(frame)
            case IdentFrame():
                self._identify(frame, raw[header.size :], header.tier)
            case ErrorFrame():
                pass
            case _:
                self._enqueue(_frame_error(frame), {})

    def _enqueue(self, request: RequestFrame | SiteError, tag: RequestTag) -> None:
        if "request_id" in tag:
            self._run(self._answer(request, tag), tag)
            return
        self._queue.append((request, tag))
        if self._ordered_task is None:
            self._ordered_task = self._run(self._answer_in_order(), {})

    def _run(self, coroutine: Coroutine[Any, Any, None], tag: RequestTag) -> asyncio.Task[None]:
        task = self._port.run(coroutine, lambda finished: self._finish(finished, tag))
        self._running.add(task)
        return task

    def _finish(self, task: asyncio.Task[None], tag: RequestTag) -> None:
        self._port.forget(task)
        self._running.discard(task)
        self._streams.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._port.record(UnexpectedError("native", type(error).__name__, error))
            self._writer.write(self._writer.encode_error(SiteError("The server failed"), tag))
        if task is self._ordered_task:
            self._ordered_task = self._run(self._answer_in_order(), {}) if self._queue else None
        if task is self._identify_task:
            self._identify_task = None
        if (self._buffer or not self._is_listening) and not self._transport.is_closing():
            self._advance()

    # Answering

    async def _answer_in_order(self) -> None:
        while self._queue:
            request, tag = self._queue.popleft()
            await self._answer(request, tag)

    async def _answer(self, request: RequestFrame | SiteError, tag: RequestTag) -> None:
        if self._unread_bytes:  # take no more requests from an agent that does not read its responses
            await self._writer.wait_writable()
        try:
            encoded = self._writer.encode(await self._handle(request, tag))
            if self._unread_bytes and len(encoded) > LARGEST and self._unread_bytes + len(encoded) > MAX_UNREAD_BYTES:
                raise _unread_error(request, self._unread_bytes)
        except SiteError as error:
            encoded = self._writer.encode_error(error, tag)
        self._unread_bytes += len(encoded)
        try:
            await self._writer.send(encoded)
        finally:
            self._unread_bytes -= len(encoded)

    async def _handle(self, request: RequestFrame | SiteError, tag: RequestTag) -> Frame:
        caller = await self._identity.caller()
        with await self._site.access.admit(caller):
            if isinstance(request, SiteError):
                raise request
            context = await self._context(request, caller, tag)
            match request:
                case QueryFrame():
                    return (await self._router.service.query(request, context)).frame
                case SubscribeFrame():
                    flow = self._flows.get(request.stream_id)
                    frame = await self._router.feeds.manage(request, context)
                    if flow and request.action == "unsubscribe":
                        flow.end()
                    return frame
                case ActionFrame() | TaskFrame():
                    return (await self._router.actions.invoke(request, context)).frame

    async def _context(self, frame: RequestFrame, caller: Caller, tag: RequestTag) -> NwpRequestContext:
        node = await self._router.node(frame, caller)
        id, most = tag.get("request_id") or next(self._ids), self._terms.payload
        return NwpRequestContext(
            caller, node, self._port.base, id, self._writer.tier, min(most, LARGEST), max_payload=most
        )

    # Credentials

    def _identify(self, frame: IdentFrame, payload: bytes, tier: EncodingTier) -> None:
        """Bind a certificate to the connection. Nothing else is read until it is verified."""
        try:
            credentials = RequestCredentials(certificate=_as_json(payload, tier), address=self.address)
        except FrameError as error:
            self._enqueue(frame_problem(error), {})
            return
        self._identify_task = self._run(self._bind(frame.nid, credentials), {})

    async def _bind(self, nid: str, credentials: RequestCredentials) -> None:
        try:
            await self._identity.bind(credentials)
            accepted = {"nid": nid, "status": "accepted"}
            encoded = self._writer.encode(CapsFrame(anchor_ref=IDENT_REF, count=1, data=[accepted]))
        except SiteError as error:
            encoded = self._writer.encode_error(error, {})
        await self._writer.send(encoded)

    # Streams

    def _open(self, frame: QueryFrame | SubscribeFrame, begin: Callable[..., Coroutine[Any, Any, None]]) -> None:
        tag = _tag(frame)
        id = next(iter(tag.values()), None) or next(self._ids)
        older = self._flows.get(id)
        refusal = self._refusal_of(frame, older)
        if refusal:
            self._enqueue(refusal, tag)
            return
        if older and older.task:
            older.task.cancel()
            older.is_counted = False  # the new stream takes its place
        flow = self._flows[id] = StreamFlow(is_feed=isinstance(frame, SubscribeFrame))
        flow.task = self._port.run(begin(frame, id, flow), lambda task: self._finish_stream(task, tag, id, flow))
        self._streams.add(flow.task)

    def _refusal_of(self, frame: QueryFrame | SubscribeFrame, older: StreamFlow | None) -> SiteError | None:
        """Return why a stream cannot start; None counts it for its address.

        Only a subscription can be resumed while it runs (NWP 8.2).
        """
        is_taken_up = isinstance(frame, SubscribeFrame) and frame.resume_from_seq is not None
        if older and not (older.is_feed and is_taken_up):
            return StreamLimitExceeded(
                "A stream with this id is already running", limit=1, hint="Stop it first, or use another id."
            )
        most = self._terms.streams
        if len(self._streams) - bool(older) >= most:
            return StreamLimitExceeded(
                f"The handshake allows {most} concurrent streams", limit=most, hint="Stop one of them first."
            )
        if not older and not self._port.streams.acquire(self.address):
            refusal = self._port.streams.refusal("streams")
            return StreamLimitExceeded(refusal.message, hint=refusal.hint, **refusal.details)
        return None

    def _finish_stream(self, task: asyncio.Task[None], tag: RequestTag, id: str, flow: StreamFlow) -> None:
        if flow.is_counted:
            self._port.streams.release(self.address)
        if self._flows.get(id) is flow:
            del self._flows[id]
            self._ended_streams.append(id)
        self._finish(task, tag)

    async def _stream(self, frame: QueryFrame, id: str, flow: StreamFlow) -> None:
        feeds, service = self._router.feeds, self._router.service
        try:
            caller = await self._identity.caller()
            with await self._site.access.admit(caller):
                context = await self._context(frame, caller, {"request_id": id})
                async with aclosing(feeds.make_stoppable(service.stream(frame, context), context)) as parts:
                    async for part in parts:
                        await flow.wait_turn()
                        if flow.is_ended:  # stopped while it waited
                            # The last frame of a stream that its reader stopped has no records.
                            end = StreamFrame(stream_id=part.stream_id, seq=part.seq, is_last=True, data=[])
                            await self._writer.send(self._writer.encode(end))
                            break
                        await self._writer.send(self._writer.encode(part, is_final=part.is_last))
                        flow.seq = part.seq + 1
        except SiteError as error:
            tier, tag = self._writer.tier, _tag(frame)
            await self._writer.send(
                encode(_abort_frame(id, flow, error), tier) if flow.seq else self._writer.encode_error(error, tag)
            )

    async def _follow(self, frame: SubscribeFrame, id: str, flow: StreamFlow) -> None:
        try:
            # A subscription depends on the credentials that opened it, not on those bound later.
            credentials = self._identity.credentials
            caller = await self._identity.caller()
            # A subscriber need not send anything: heartbeats show whether it is still connected.
            quiet = self._timeouts.idle / 2
            with await self._site.access.admit(caller):
                context = await self._context(frame, caller, {})
                feed = await self._router.feeds.open(
                    frame, context, lambda: self._site.access.authenticate(credentials), quiet
                )
            try:
                await self._writer.send(self._writer.encode(feed.ack))
                async with aclosing(cast("AsyncGenerator[Frame]", aiter(feed))) as frames:
                    async for event in frames:
                        await flow.wait_turn()
                        if flow.is_ended:
                            break
                        await self._writer.send(self._writer.encode_change(_with_stream(event, id)))
            finally:
                await feed.aclose()
        except SiteError as error:
            await self._writer.send(self._writer.encode_error(error, _tag(frame)))

    def _grant(self, frame: StreamFrame) -> None:
        """Set how many more frames of a stream the agent accepts."""
        flow = self._flows.get(frame.stream_id)
        if flow:
            flow.grant(None if frame.window_size is None else max(frame.window_size, 0))
        elif frame.stream_id not in self._ended_streams:
            tag = {"stream_id": frame.stream_id[:MAX_ID]}
            self._enqueue(UnreadableFrame("There is no stream with this id", code="NCP-STREAM-NOT-FOUND"), tag)


def _tag(frame: RequestFrame) -> RequestTag:
    """Return the member that identifies a request."""
    if isinstance(frame, SubscribeFrame):
        return {"stream_id": frame.stream_id} if frame.stream_id else {}
    return {"request_id": frame.request_id} if frame.request_id else {}


def _tag_of_payload(payload: bytes, tier: EncodingTier) -> RequestTag:
    """Return the member that identifies an invalid request."""
    try:
        members = decode_any(payload, tier)
    except FrameError:
        return {}
    match members:
        case {"request_id": str(id)} if 0 < len(id) <= MAX_ID:
            return {"request_id": id}
        case {"stream_id": str(id)} if 0 < len(id) <= MAX_ID:
            return {"stream_id": id}
        case _:
            return {}


def _as_json(payload: bytes, tier: EncodingTier) -> bytes:
    """Return a certificate as the JSON that its authority signed."""
    if tier == EncodingTier.JSON:
        return payload
    try:
        return encode_value(decode_any(payload, tier), EncodingTier.JSON)
    except (TypeError, ValueError) as error:
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "A certificate must have a JSON form") from error


def _unread_error(request: RequestFrame | SiteError, unread: int) -> SiteError:
    """Return the error that replaces a response while too many bytes of earlier ones are unread.

    It suggests repeating the request only if that is safe.
    """
    message = f"{unread} bytes of responses on this connection are unread; {MAX_UNREAD_BYTES} are allowed"
    if isinstance(request, ActionFrame | TaskFrame):
        return TooLarge(
            f"The action succeeded, but its result was dropped: {message}",
            limit=MAX_UNREAD_BYTES,
            completed=True,
            hint="Read responses before you send more requests. If the action has an `idempotency_key`, repeat it with "
            "that key to get its result.",
        )
    return RateLimited(message, retry_after=1, hint="Read responses before you send more requests.")


def _abort_frame(id: str, flow: StreamFlow, error: SiteError) -> StreamFrame:
    """Return the last frame of a stream that failed."""
    return StreamFrame(stream_id=id, seq=flow.seq, is_last=True, data=[], error_code=code_of(error).error)


def _with_stream(frame: Frame, id: str) -> Frame:
    if not isinstance(frame, ErrorFrame):
        return frame
    return msgspec.structs.replace(frame, details={**frame.details, "stream_id": id})


def _frame_error(frame: Frame) -> SiteError:
    """Return the error for a valid frame of a type that agents do not send."""
    try:
        if isinstance(frame, AnchorFrame):
            check_anchor(frame)
    except FrameError as error:
        return frame_problem(error)
    if isinstance(frame, DiffFrame) and frame.patch_format not in {None, "json_patch"}:
        return UnreadableFrame("Changes must be JSON Patch", code="NCP-DIFF-FORMAT-UNSUPPORTED")
    message = f"A frame of type 0x{frame.TYPE:02X} is not read here"
    return UnreadableFrame(message, code="NCP-FRAME-UNKNOWN-TYPE")
