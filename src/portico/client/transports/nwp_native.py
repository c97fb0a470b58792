"""The native line to a node: one connection for all that is asked, whose answers are told apart by ids.

Whom a frame is for is known only once it is read, so that its records are left for later, whoever would read them.

A connection that is lost is opened anew with the next request. What was asked on it is not asked again by itself.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

import httpx

from portico.client import BadAnswer, ClientError, NotReached
from portico.client.transports.nwp_lines import PORT, Credentials, Cutter, Document, HttpLine, accepted, decoded
from portico.protocols.nwp.frames import (
    VERSION,
    CapsFrame,
    DiffFrame,
    ErrorFrame,
    Frame,
    FrameError,
    Header,
    HelloFrame,
    QueryFrame,
    Reader,
    StreamFrame,
    SubscribeFrame,
    Tier,
    Type,
    encode,
    encode_value,
)

ACK: Final = "nps:system:subscribe:ack"
PIECE: Final = 65536  # bytes that are read at once
MUCH: Final = 32  # parts of a stream that wait to be read, from which on it is halted
MOST: Final = 10_000  # frames that wait to be read
ANY_NUMBER: Final = 2**31 - 1

Queue: TypeAlias = "asyncio.Queue[Frame | ClientError]"


class NativeLine:
    """Frames over TCP or TLS. Manifests and schemas come over HTTP from the same port: no frame asks for them."""

    is_addressed = False

    def __init__(
        self,
        url: httpx.URL,
        credentials: Credentials,
        documents: HttpLine,
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
        self._known: Session | None = None

    async def get(self, path: str, **headers: str) -> Document:
        return await self._documents.get(path, **headers)

    async def ask(self, path: str, frame: Frame, patience: float, reader: Reader | None = None) -> Frame:
        session = await self.session()
        with session.waiting(_id_of(frame)) as answers:
            await session.send(frame)
            answer = await _next(answers, patience)
        if isinstance(frame, SubscribeFrame) and frame.action == "unsubscribe":
            session.leave(frame.stream_id)
        return answer

    async def frames(
        self, path: str, frame: Frame, patience: float | None, reader: Reader | None = None
    ) -> AsyncGenerator[Frame]:
        session, id = await self.session(), _id_of(frame)
        is_stream = isinstance(frame, QueryFrame)
        with session.waiting(id, may_halt=is_stream) as answers:
            await session.send(frame)
            try:
                while True:
                    yield await _next(answers, patience)
                    if answers.empty():
                        await session.go_on(id)
            finally:
                if is_stream:
                    await session.stop(id)

    async def session(self) -> "Session":
        async with self._opening:
            if self._known is None or self._known.is_over:
                self._known = await self._opened()
            return self._known

    async def close(self) -> None:
        if self._known:
            await self._known.close()
        await self._documents.close()

    async def _opened(self) -> "Session":
        try:
            async with asyncio.timeout(self._timeout):
                port = self._url.port or PORT
                reader, writer = await asyncio.open_connection(self._url.host, port, ssl=self._tls)
                session = Session(reader, writer, self._largest)
                try:
                    await session.greet(self._encodings, self._credentials)
                except BaseException:
                    writer.close()
                    raise
                return session
        except (OSError, TimeoutError) as error:
            raise NotReached(f"The node cannot be reached: {str(error) or type(error).__name__}") from error


class Session:
    """A connection. One task reads it, and hands each frame to whoever waits for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, largest: int) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = self._read(Cutter(largest))
        self._largest = largest
        self._tier = Tier.JSON
        self._waiting: dict[str, Queue] = {}
        self._streams: dict[str, bool] = {}  # whether those that can be are halted
        self._listening: asyncio.Task[None] | None = None
        self.is_over = False

    async def greet(self, encodings: tuple[str, ...], credentials: Credentials) -> None:
        """Agree on how to talk, and say who is talking."""
        hello = HelloFrame(
            nps_version=VERSION,
            min_version=VERSION,
            supported_encodings=list(encodings),
            supported_protocols=["ncp", "nwp", "nip"],
            agent_id=credentials.name or None,
            max_frame_payload=self._largest,
            ext_support=True,
        )
        self._writer.write(encode(hello, Tier.JSON))
        self._tier = Tier((await self._told())[1] & 1)
        if credentials.ident:
            payload = encode_value(credentials.ident, self._tier)
            self._writer.write(Header(Type.IDENT, self._tier, len(payload)).encode() + payload)
            await self._told()
        self._listening = asyncio.create_task(self._listen())

    async def _told(self) -> bytes:
        try:
            raw = await anext(self._frames)
        except StopAsyncIteration:
            raise NotReached("The node closed the connection") from None
        accepted(decoded(raw))
        return raw

    @contextmanager
    def waiting(self, id: str, *, may_halt: bool = False) -> Generator[Queue]:
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
            raise NotReached("The connection broke")
        try:
            self._writer.write(encode(frame, self._tier))
            await self._writer.drain()
        except OSError as error:
            raise NotReached(f"The connection broke: {error}") from error

    async def go_on(self, id: str) -> None:
        """Let a stream go on whose parts have been read."""
        if self._streams.get(id):
            self._streams[id] = False
            await self.send(_window(id, ANY_NUMBER))

    async def stop(self, id: str) -> None:
        """End a stream that nobody reads on. One that has ended is let be."""
        if self._streams.get(id) is not None:
            with suppress(NotReached):
                await self.send(SubscribeFrame(action="unsubscribe", stream_id=id))

    def leave(self, id: str) -> None:
        """Tell whoever still waits for a subscription that nothing more comes."""
        if answers := self._waiting.get(id):
            answers.put_nowait(NotReached("The subscription was given up"))

    async def close(self) -> None:
        if self._listening:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        self._end(NotReached("The client was closed"))
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self, cut: Cutter) -> AsyncGenerator[bytes]:
        piece = await self._reader.read(PIECE)
        if piece.startswith(b"HTTP/"):
            raise NotReached("This port speaks HTTP, and no NWP of its own")
        while piece:
            for raw in cut.feed(piece):
                yield raw
            piece = await self._reader.read(PIECE)

    async def _listen(self) -> None:
        try:
            async for raw in self._frames:
                self._hand_over(decoded(raw))
            self._end(NotReached("The node closed the connection"))
        except OSError as error:
            self._end(NotReached(f"The connection broke: {error}"))
        except ClientError as error:
            self._end(error)

    def _hand_over(self, frame: Frame) -> None:
        id, is_last = _route(frame, self._waiting)
        if id is None:
            accepted(frame)  # an error that is about none of the requests is about the connection
            return
        answers = self._waiting.get(id)
        if answers is None:
            return  # nobody waits for it any more
        answers.put_nowait(frame)
        if is_last:
            self._streams.pop(id, None)
        elif self._streams.get(id) is False and answers.qsize() >= MUCH:
            self._streams[id] = True
            self._writer.write(encode(_window(id, 0), self._tier))
        elif answers.qsize() > MOST:
            del self._waiting[id]
            answers.put_nowait(NotReached("More came than was read"))

    def _end(self, error: ClientError) -> None:
        self.is_over = True
        self._writer.close()
        for answers in self._waiting.values():
            answers.put_nowait(error)
        self._waiting.clear()


async def _next(answers: Queue, patience: float | None) -> Frame:
    try:
        async with asyncio.timeout(patience):
            found = await answers.get()
    except TimeoutError:
        raise NotReached("The node did not answer in time") from None
    if isinstance(found, ClientError):
        raise found
    return accepted(found)


def _window(id: str, size: int) -> StreamFrame:
    return StreamFrame(stream_id=id, seq=0, is_last=False, data=[], window_size=size)


def _id_of(frame: Frame) -> str:
    """What tells the answer to a frame from others."""
    if isinstance(frame, SubscribeFrame):
        return frame.stream_id if frame.action == "subscribe" else _aside(frame.stream_id)
    return str(getattr(frame, "request_id", ""))


def _aside(id: str) -> str:
    """What is said of a subscription or stream, not in it."""
    return f"of {id}"


def _route(frame: Frame, waiting: Mapping[str, Queue]) -> tuple[str | None, bool]:
    """Who waits for a frame, and whether it is the last; None if it belongs to no request."""
    match frame:
        case CapsFrame(anchor_ref=anchor) if anchor == ACK:
            return _acknowledged(frame.data), False
        case CapsFrame(request_id=id):
            return id, False
        case StreamFrame(stream_id=id, is_last=is_last):
            return id, is_last
        case DiffFrame(stream_id=id):
            return id, False
        case ErrorFrame(details={"stream_id": str() as id}):
            return (_aside(id) if _aside(id) in waiting else id), True
        case ErrorFrame(details={"request_id": str() as id}) | ErrorFrame(request_id=id):
            return id, True
        case _:
            return None, False


def _acknowledged(data: Any) -> str | None:
    try:
        said = list(data)
    except (FrameError, TypeError) as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error
    match said:
        case [{"stream_id": str() as id, "status": "subscribed"}, *_]:
            return id
        case [{"stream_id": str() as id}, *_]:
            return _aside(id)
        case _:
            return None
