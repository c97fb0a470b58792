"""The native transport of NWP: one connection for all requests, whose responses are told apart by IDs.

The request of a frame is known only after the frame is decoded, so records are decoded later.

A lost connection is reopened by the next request. Requests that were pending on it are not repeated.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

import httpx

from portico.client import BadAnswer, ClientError, NotReached
from portico.client.transports.nwp_http import (
    PORT,
    FrameSplitter,
    HttpNodeTransport,
    NodeCredentials,
    NodeDocument,
    decode_frame,
    raise_if_error,
)
from portico.protocols.nwp.frames import (
    VERSION,
    CapsFrame,
    DiffFrame,
    EncodingTier,
    ErrorFrame,
    Frame,
    FrameError,
    FrameHeader,
    FrameType,
    HelloFrame,
    QueryFrame,
    RecordReader,
    StreamFrame,
    SubscribeFrame,
    encode,
    encode_value,
)

ACK: Final = "nps:system:subscribe:ack"
READ_SIZE: Final = 65536  # bytes
PAUSE_AT: Final = 32  # unread parts at which a stream is paused
MAX_QUEUED: Final = 10_000  # unread frames of one request
UNLIMITED: Final = 2**31 - 1

Queue: TypeAlias = "asyncio.Queue[Frame | ClientError]"


class NativeNodeTransport:
    """Sends frames over TCP or TLS. Manifests and schemas, for which there are no frames, come over HTTP."""

    is_addressed = False

    def __init__(
        self,
        url: httpx.URL,
        credentials: NodeCredentials,
        documents: HttpNodeTransport,
        *,
        encodings: tuple[str, ...],
        largest: int,
        timeout: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._credentials = credentials
        self._documents = documents
        self._encodings = encodings
        self._largest = largest
        self._timeout = timeout
        self._tls = tls
        self._opening = asyncio.Lock()
        self._session: NodeConnection | None = None

    async def get(self, path: str, **headers: str) -> NodeDocument:
        return await self._documents.get(path, **headers)

    async def ask(self, path: str, frame: Frame, patience: float, reader: RecordReader | None = None) -> Frame:
        session = await self.session()
        with session.wait_for(_id_of(frame)) as answers:
            await session.send(frame)
            answer = await _next(answers, patience)
        if isinstance(frame, SubscribeFrame) and frame.action == "unsubscribe":
            session.leave(frame.stream_id)
        return answer

    async def frames(
        self, path: str, frame: Frame, patience: float | None, reader: RecordReader | None = None
    ) -> AsyncGenerator[Frame]:
        session, id = await self.session(), _id_of(frame)
        is_stream = isinstance(frame, QueryFrame)
        with session.wait_for(id, may_halt=is_stream) as answers:
            await session.send(frame)
            try:
                while True:
                    yield await _next(answers, patience)
                    if answers.empty():
                        await session.go_on(id)
            finally:
                if is_stream:
                    await session.stop(id)

    async def session(self) -> "NodeConnection":
        async with self._opening:
            if self._session is None or self._session.is_over:
                self._session = await self._open_session()
            return self._session

    async def close(self) -> None:
        if self._session:
            await self._session.close()
        await self._documents.close()

    async def _open_session(self) -> "NodeConnection":
        try:
            async with asyncio.timeout(self._timeout):
                port = self._url.port or PORT
                reader, writer = await asyncio.open_connection(self._url.host, port, ssl=self._tls)
                session = NodeConnection(reader, writer, self._largest)
                try:
                    await session.greet(self._encodings, self._credentials)
                except BaseException:
                    writer.close()
                    raise
                return session
        except (OSError, TimeoutError) as error:
            raise NotReached(f"The node cannot be reached: {str(error) or type(error).__name__}") from error


class NodeConnection:
    """A connection. One task reads it, and passes each frame to the request that it belongs to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, largest: int) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = self._read(FrameSplitter(largest))
        self._largest = largest
        self._tier = EncodingTier.JSON
        self._waiting: dict[str, Queue] = {}
        self._streams: dict[str, bool] = {}  # whether each stream is paused
        self._listening: asyncio.Task[None] | None = None
        self.is_over = False

    async def greet(self, encodings: tuple[str, ...], credentials: NodeCredentials) -> None:
        """Negotiate the encoding, and send the credentials."""
        hello = HelloFrame(
            nps_version=VERSION,
            min_version=VERSION,
            supported_encodings=list(encodings),
            supported_protocols=["ncp", "nwp", "nip"],
            agent_id=credentials.name or None,
            max_frame_payload=self._largest,
            ext_support=True,
        )
        self._writer.write(encode(hello, EncodingTier.JSON))
        self._tier = EncodingTier((await self._expect_success())[1] & 1)
        if credentials.ident:
            payload = encode_value(credentials.ident, self._tier)
            self._writer.write(FrameHeader(FrameType.IDENT, self._tier, len(payload)).encode() + payload)
            await self._expect_success()
        self._listening = asyncio.create_task(self._listen())

    async def _expect_success(self) -> bytes:
        try:
            raw = await anext(self._frames)
        except StopAsyncIteration:
            raise NotReached("The node closed the connection") from None
        raise_if_error(decode_frame(raw))
        return raw

    @contextmanager
    def wait_for(self, id: str, *, may_halt: bool = False) -> Generator[Queue]:
        answers: Queue = asyncio.Queue()
        self._waiting[id] = answers
        if may_halt:
            self._streams[id] = False
        try:
            yield answers
        finally:
            self._streams.pop(id, None)
            if self._waiting.get(id) is answers:
                del self._waiting[id]

    async def send(self, frame: Frame) -> None:
        if self.is_over:
            raise NotReached("The connection was lost")
        try:
            self._writer.write(encode(frame, self._tier))
            await self._writer.drain()
        except OSError as error:
            raise NotReached(f"The connection was lost: {error}") from error

    async def go_on(self, id: str) -> None:
        """Resume a paused stream, whose parts have been read."""
        if self._streams.get(id):
            self._streams[id] = False
            await self.send(_window(id, UNLIMITED))

    async def stop(self, id: str) -> None:
        """End a stream that is no longer read, unless it has ended."""
        if self._streams.get(id) is not None:
            with suppress(NotReached):
                await self.send(SubscribeFrame(action="unsubscribe", stream_id=id))

    def leave(self, id: str) -> None:
        """End the iterator over a subscription."""
        if answers := self._waiting.get(id):
            answers.put_nowait(NotReached("The subscription was cancelled"))

    async def close(self) -> None:
        if self._listening:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        self._end(NotReached("The client was closed"))
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self, splitter: FrameSplitter) -> AsyncGenerator[bytes]:
        piece = await self._reader.read(READ_SIZE)
        if piece.startswith(b"HTTP/"):
            raise NotReached("This port serves HTTP only, not native NWP")
        while piece:
            for raw in splitter.feed(piece):
                yield raw
            piece = await self._reader.read(READ_SIZE)

    async def _listen(self) -> None:
        try:
            async for raw in self._frames:
                self._hand_over(decode_frame(raw))
            self._end(NotReached("The node closed the connection"))
        except OSError as error:
            self._end(NotReached(f"The connection was lost: {error}"))
        except ClientError as error:
            self._end(error)

    def _hand_over(self, frame: Frame) -> None:
        id, is_last = _route(frame, self._waiting)
        if id is None:
            raise_if_error(frame)  # an error without a request concerns the connection
            return
        answers = self._waiting.get(id)
        if answers is None:
            return  # the request is gone
        answers.put_nowait(frame)
        if is_last:
            self._streams.pop(id, None)
        elif self._streams.get(id) is False and answers.qsize() >= PAUSE_AT:
            self._streams[id] = True
            self._writer.write(encode(_window(id, 0), self._tier))
        elif answers.qsize() > MAX_QUEUED:
            del self._waiting[id]
            answers.put_nowait(NotReached("The reader is too slow"))

    def _end(self, error: ClientError) -> None:
        self.is_over = True
        self._writer.close()
        for answers in self._waiting.values():
            answers.put_nowait(error)
        self._waiting.clear()


async def _next(answers: Queue, patience: float | None) -> Frame:
    try:
        async with asyncio.timeout(patience):
            frame = await answers.get()
    except TimeoutError:
        raise NotReached("The node did not answer in time") from None
    if isinstance(frame, ClientError):
        raise frame
    return raise_if_error(frame)


def _window(id: str, size: int) -> StreamFrame:
    return StreamFrame(stream_id=id, seq=0, is_last=False, data=[], window_size=size)


def _id_of(frame: Frame) -> str:
    """Return the ID by which the response to a frame is recognized."""
    if isinstance(frame, SubscribeFrame):
        return frame.stream_id if frame.action == "subscribe" else _control_id(frame.stream_id)
    return str(getattr(frame, "request_id", ""))


def _control_id(id: str) -> str:
    """Return the ID of messages about a subscription, as opposed to those in it."""
    return f"of {id}"


def _route(frame: Frame, waiting: Mapping[str, Queue]) -> tuple[str | None, bool]:
    """Return the request of a frame, or None, and whether the frame is its last."""
    match frame:
        case CapsFrame(anchor_ref=anchor) if anchor == ACK:
            return _subscription_id(frame.data), False
        case CapsFrame(request_id=id):
            return id, False
        case StreamFrame(stream_id=id, is_last=is_last):
            return id, is_last
        case DiffFrame(stream_id=id):
            return id, False
        case ErrorFrame(details={"stream_id": str() as id}):
            return (_control_id(id) if _control_id(id) in waiting else id), True
        case ErrorFrame(details={"request_id": str() as id}) | ErrorFrame(request_id=id):
            return id, True
        case _:
            return None, False


def _subscription_id(data: Any) -> str | None:
    try:
        rows = list(data)
    except (FrameError, TypeError) as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error
    match rows:
        case [{"stream_id": str() as id, "status": "subscribed"}, *_]:
            return id
        case [{"stream_id": str() as id}, *_]:
            return _control_id(id)
        case _:
            return None
