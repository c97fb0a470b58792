"""`/ask` and `/await` over WebSocket: one message, one request; answers in the order of the questions."""

import asyncio
import time
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from portico.errors import Forbidden, SiteError
from portico.protocols.http import PATIENCE_SECONDS, caller_of, decode, ended, is_from_elsewhere
from portico.protocols.nlweb.dialects import Voice, voice_of
from portico.protocols.nlweb.errors import BROKEN, Whole, failure
from portico.protocols.nlweb.item_rendering import members
from portico.protocols.nlweb.render import Rendering
from portico.protocols.nlweb.service import Answering, Desk, Received
from portico.requests import Caller
from portico.telemetry import Broke, Observe

MAX_WAITING = 4  # messages of a connection that wait for their turn
TOO_MANY = 1008


class Talk:
    """The WebSocket side of a site."""

    def __init__(self, desk: Desk, observe: Observe) -> None:
        self._desk = desk
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        try:
            self._check_origin(socket)
            caller = await caller_of(socket, self._desk.site)
        except SiteError as error:
            await socket.send_denial_response(_denial(failure(error, Voice())))
            return
        await socket.accept()
        await Connection(socket, caller, self._desk, self._observe).serve()

    def _check_origin(self, socket: WebSocket) -> None:
        """A page elsewhere cannot ask in the name of whoever looks at it."""
        if is_from_elsewhere(socket, self._desk.config.server):
            origin = socket.headers.get("origin", "")
            raise Forbidden(
                f"Pages of {origin[:100]!r} may not ask here", hint="The operator decides which origins may."
            )


class Connection:
    """One client. Reads on while it answers, so that a client that leaves is noticed."""

    def __init__(self, socket: WebSocket, caller: Caller, desk: Desk, observe: Observe) -> None:
        self._socket = socket
        self._caller = caller
        self._desk = desk
        self._observe = observe
        self._waiting: asyncio.Queue[str | bytes] = asyncio.Queue(MAX_WAITING)
        self._streaming: Rendering | None = None  # the answer that is being streamed

    async def serve(self) -> None:
        reading, answering = asyncio.ensure_future(self._read()), asyncio.ensure_future(self._answer_all())
        try:
            await asyncio.wait({reading, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(reading, answering)

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
                await ended(work)
                raise
            match work.exception():
                case None:
                    pass
                case WebSocketDisconnect():
                    return
                case error:
                    self._observe(Broke(self._socket.scope["path"], type(error).__name__, error))
                    await self._apologise()

    async def _answer(self, message: str | bytes) -> None:
        voice, self._streaming = Voice(declared=False), None
        try:
            raw = decode(message, self._desk.site.limits)
            voice = voice_of(raw)
            answering = await self._begun(raw, voice)
            if answering.streams:
                await self._stream(answering)
            else:
                await self._send((await answering.whole()).body)
        except SiteError as error:
            await self._send(failure(error, voice).body)

    async def _stream(self, answering: Answering) -> None:
        self._streaming = answering.rendering
        async with aclosing(answering.frames()) as frames:
            async for frame in frames:
                await self._send(frame.message)

    async def _apologise(self) -> None:
        """Something broke that should not: end the stream there was, or say so at once."""
        if self._streaming is None:
            await self._send(failure(BROKEN, Voice()).body)
            return
        for frame in self._streaming.broken():
            await self._send(frame.message)

    async def _begun(self, raw: Any, voice: Voice) -> Answering:
        socket, since = self._socket, time.perf_counter()
        language = socket.headers.get("accept-language", "")
        got = Received(raw, voice, self._caller, self._desk.premises(socket), since, language=language)
        return await (self._desk.awaited(got) if self._is_await(raw) else self._desk.ask(got))

    def _is_await(self, raw: Any) -> bool:
        given = members(raw)
        if "query" in given:
            return False
        return "promise_token" in given or self._socket.scope["path"] == "/await"

    async def _send(self, body: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._socket.send_text(msgspec.json.encode(body).decode())
        except TimeoutError as error:
            raise WebSocketDisconnect(TOO_MANY, "The client does not read") from error


def _denial(whole: Whole) -> Response:
    return Response(msgspec.json.encode(whole.body), whole.status, dict(whole.headers), "application/json")
