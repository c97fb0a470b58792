"""A language model's service on this machine. Speaks both APIs, records what it is asked, and fails as told.

    with ModelEndpoint() as endpoint:
        endpoint.script = [Status(503), Reply(["Hello"])]
        model = open_language_model(endpoint.url("openai"), secret=None)

The script is answered first, one entry for a request; then `reply` answers, a function of the request.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, TypeAlias

Api: TypeAlias = Literal["openai", "anthropic"]

LONGEST_WAIT = 30.0
"""Seconds. No connection of a test is kept longer, whatever goes wrong."""

DRIP = 0.01  # seconds


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: Any

    @property
    def api(self) -> Api:
        return "anthropic" if self.path.endswith("/messages") else "openai"

    @property
    def system(self) -> str:
        if self.api == "anthropic":
            return self.body.get("system", "")
        return "".join(each["content"] for each in self.body["messages"] if each["role"] == "system")

    @property
    def user(self) -> str:
        return "".join(each["content"] for each in self.body["messages"] if each["role"] == "user")

    @property
    def wants_schema(self) -> bool:
        return "tools" in self.body or "response_format" in self.body


@dataclass(frozen=True)
class Reply:
    """Pieces of a reply in the API that was asked. `then` is what follows the last piece."""

    pieces: Sequence[str] = ("Hello", " world")
    usage: tuple[int, int] | None = (7, 3)
    streamed: bool = True
    drips: int = 0
    """Comments between the last piece and what follows, each at least DRIP seconds after the one before."""
    then: Literal["end", "linger", "cut", "stop", "hang", "drip"] = "end"
    """Besides a proper end: one after which the connection just stays, a cut connection, an answer that ends
    without saying so, silence, or comments for ever."""


@dataclass(frozen=True)
class Status:
    code: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b'{"error": {"message": "words of the service"}}'


@dataclass(frozen=True)
class Raw:
    body: bytes
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Hang:
    """Says nothing at all until the client leaves."""


Answer: TypeAlias = Reply | Status | Raw | Hang


class ModelEndpoint:
    def __init__(self, reply: Callable[[Received], Answer] = lambda _: Reply()) -> None:
        self.reply = reply
        self.script: list[Answer] = []
        self.requests: list[Received] = []
        self.asked = threading.Semaphore(0)
        """Released with every request, for tests that wait for one."""
        self.connections = 0
        self.left = threading.Event()
        """Set when a connection is over. Unless an answer is cut, it is the client that ends one."""
        self._open: set[socket.socket] = set()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.endpoint = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        for each in tuple(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return self._server.server_port

    def url(self, api: Api, options: str = "") -> str:
        return f"{api}+http://127.0.0.1:{self.port}/v1/org%2Fmodel?{options}"

    def answer(self, received: Received) -> Answer:
        self.requests.append(received)
        self.asked.release()
        return self.script.pop(0) if self.script else self.reply(received)

    def opened(self, connection: socket.socket) -> None:
        self.connections += 1
        self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        self.left.set()

    def pause(self) -> bool:
        """A short while; false when the endpoint closes."""
        return not self._closing.wait(DRIP)


class _Server(ThreadingHTTPServer):
    endpoint: ModelEndpoint


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = LONGEST_WAIT
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        super().setup()
        self.server.endpoint.opened(self.connection)

    def handle(self) -> None:
        with suppress(OSError):  # the client may have left
            super().handle()

    def finish(self) -> None:
        self.server.endpoint.closed(self.connection)
        with suppress(OSError):
            super().finish()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, body)
        self._answer(received, self.server.endpoint.answer(received))

    def _answer(self, received: Received, answer: Answer) -> None:
        match answer:
            case Status(code, headers, body):
                self._send(code, {"Content-Type": "application/json", **headers}, body)
            case Raw(body, content_type, headers):
                self._send(200, {"Content-Type": content_type, **headers}, body)
            case Hang():
                self._hang()
            case Reply(streamed=False):
                document = json.dumps(_whole(received, answer)).encode()
                self._send(200, {"Content-Type": "application/json; charset=utf-8"}, document)
            case Reply():
                self._stream(received, answer)

    def _send(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, received: Received, reply: Reply) -> None:
        begin, end = _EVENTS[received.api](received, reply)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunks(begin)
        for _ in range(reply.drips):
            self._drip()
        if reply.then in {"end", "linger"}:
            self._chunks(end)
        match reply.then:
            case "end" | "stop":
                self._chunk(b"")
            case "cut":
                self.close_connection = True
            case "hang" | "linger":
                self._hang()
            case "drip":
                self._drip_on()

    def _chunks(self, events: Iterator[bytes]) -> None:
        for event in events:
            self._chunk(event)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _hang(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.recv(1)  # nothing more is sent, so this ends when the client leaves

    def _drip(self) -> bool:
        self._chunk(b": still here\r\n")
        return self.server.endpoint.pause()

    def _drip_on(self) -> None:
        self.close_connection = True
        while self._drip():
            pass

    def log_message(self, format: str, *args: Any) -> None: ...


Events: TypeAlias = tuple[Iterator[bytes], Iterator[bytes]]


def _chat_events(received: Received, reply: Reply) -> Events:
    def chunk(choices: list[Any], **more: Any) -> bytes:
        document = {"object": "chat.completion.chunk", "model": received.body["model"], "choices": choices, **more}
        return b"data: %s\n\n" % json.dumps(document).encode()

    def choice(finish_reason: str | None = None, **delta: str) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": finish_reason}

    def begin() -> Iterator[bytes]:
        yield chunk([choice(role="assistant", content="")])
        yield from (chunk([choice(content=piece)], usage=None) for piece in reply.pieces)

    def end() -> Iterator[bytes]:
        yield chunk([choice("stop")])
        if reply.usage:
            yield chunk([], usage=_chat_usage(reply.usage))
        yield b"data: [DONE]\n\n"

    return begin(), end()


def _message_events(received: Received, reply: Reply) -> Events:
    def event(kind: str, **fields: Any) -> bytes:
        return b"event: %s\r\ndata: %s\r\n\r\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())

    def delta(piece: str) -> dict[str, str]:
        if received.wants_schema:
            return {"type": "input_json_delta", "partial_json": piece}
        return {"type": "text_delta", "text": piece}

    def begin() -> Iterator[bytes]:
        usage = {"input_tokens": reply.usage[0], "output_tokens": 1} if reply.usage else {}
        yield event("message_start", message={"type": "message", "role": "assistant", "content": [], "usage": usage})
        yield event("content_block_start", index=0, content_block=_block(received, ""))
        yield event("ping")
        yield from (event("content_block_delta", index=0, delta=delta(piece)) for piece in reply.pieces)

    def end() -> Iterator[bytes]:
        usage = {"output_tokens": reply.usage[1]} if reply.usage else {}
        yield event("content_block_stop", index=0)
        yield event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage)
        yield event("message_stop")

    return begin(), end()


_EVENTS: dict[Api, Callable[[Received, Reply], Events]] = {"openai": _chat_events, "anthropic": _message_events}


def _whole(received: Received, reply: Reply) -> dict[str, Any]:
    text = "".join(reply.pieces)
    if received.api == "anthropic":
        usage = dict(zip(("input_tokens", "output_tokens"), reply.usage, strict=True)) if reply.usage else {}
        return {"type": "message", "role": "assistant", "content": [_block(received, text)], "usage": usage}
    message = {"role": "assistant", "content": text}
    usage = {"usage": _chat_usage(reply.usage)} if reply.usage else {}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        **usage,
    }


def _chat_usage(usage: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _block(received: Received, text: str) -> dict[str, Any]:
    if received.wants_schema:
        return {"type": "tool_use", "id": "t1", "name": "reply", "input": json.loads(text or "{}")}
    return {"type": "text", "text": text}
