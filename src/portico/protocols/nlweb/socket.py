"""`/ask` and `/await` over WebSocket: one message, one request; answers in the order of the questions."""

import asyncio
import time
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from portico.errors import SiteError
from portico.protocols.http import PATIENCE_SECONDS, caller_of, cancel_and_wait, decode
from portico.protocols.nlweb.dialects import ClientInfo, parse_client_info
from portico.protocols.nlweb.errors import failure_answer
from portico.protocols.nlweb.render import Renderer
from portico.protocols.nlweb.service import AnswerStream, IncomingRequest, NlwebService
from portico.protocols.problems import BROKEN
from portico.protocols.rendering import members
from portico.requests import Caller
from portico.telemetry import Recorder, UnexpectedError

MAX_WAITING = 4  # messages of a connection that wait for their turn
TOO_MANY = 1008


class WebSocketEndpoint:
    """`/ask` and `/await` as WebSocket endpoints."""

    def __init__(self, service: NlwebService, record: Recorder) -> None:
        self._service = service
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await SocketConnection(socket, caller_of(socket), self._service, self._record).serve()


class SocketConnection:
    """One client. It keeps reading while it answers, to notice a client that disconnects."""

    def __init__(self, socket: WebSocket, caller: Caller, service: NlwebService, record: Recorder) -> None:
        self._socket = socket
        self._caller = caller
        self._service = service
        self._record = record
        self._waiting: asyncio.Queue[str | bytes] = asyncio.Queue(MAX_WAITING)
        self._streaming: Renderer | None = None  # the answer that is being streamed

    async def serve(self) -> None:
        reading, stream = asyncio.ensure_future(self._read()), asyncio.ensure_future(self._answer_all())
        try:
            await asyncio.wait({reading, stream}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(reading, stream)

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if self._waiting.full():
                await self._socket.close(TOO_MANY, f"More than {MAX_WAITING} requests wait")
                return
            self._waiting.put_nowait(message.get("text") or message.get("bytes") or "")

    async def _answer_all(self) -> None:
        while True:
            work = asyncio.ensure_future(self._answer(await self._waiting.get()))
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                await cancel_and_wait(work)
                raise
            match work.exception():
                case None:
                    pass
                case WebSocketDisconnect():
                    return
                case error:
                    self._record(UnexpectedError(self._socket.scope["path"], type(error).__name__, error))
                    await self._apologise()

    async def _answer(self, message: str | bytes) -> None:
        client, self._streaming = ClientInfo(declared=False), None
        try:
            with await self._service.site.access.admit(self._caller):
                raw = decode(message, self._service.site.limits)
                client = parse_client_info(raw)
                stream = await self._start_answer(raw, client)
                if stream.streams:
                    await self._stream(stream)
                else:
                    await self._send((await stream.collect()).body)
        except SiteError as error:
            await self._send(failure_answer(error, client).body)

    async def _stream(self, stream: AnswerStream) -> None:
        self._streaming = stream.renderer
        async with aclosing(stream.frames()) as frames:
            async for frame in frames:
                await self._send(frame.message)

    async def _apologise(self) -> None:
        """After a defect, end the stream under way, or send a failure."""
        if self._streaming is None:
            await self._send(failure_answer(BROKEN, ClientInfo()).body)
            return
        for frame in self._streaming.abort():
            await self._send(frame.message)

    async def _start_answer(self, raw: Any, client: ClientInfo) -> AnswerStream:
        socket, since = self._socket, time.perf_counter()
        language = socket.headers.get("accept-language", "")
        request = IncomingRequest(
            raw, client, self._caller, self._service.render_context(socket), since, language=language
        )
        return await (self._service.check_promise(request) if self._is_await(raw) else self._service.ask(request))

    def _is_await(self, raw: Any) -> bool:
        message = members(raw)
        if "query" in message:
            return False
        return "promise_token" in message or self._socket.scope["path"] == "/await"

    async def _send(self, body: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._socket.send_text(msgspec.json.encode(body).decode())
        except TimeoutError as error:
            raise WebSocketDisconnect(TOO_MANY, "The client does not read") from error
