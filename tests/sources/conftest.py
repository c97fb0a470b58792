"""A real web server on loopback, and short ways to read a source to its end."""

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.databases import empty_database

from portico.sources.registry import BadRecord, Entry, Record, SourceOptions, open_source


@dataclass
class Answer:
    body: bytes
    content_type: str
    status: int
    headers: dict[str, str]


@dataclass
class Web:
    """What a loopback server serves, and what was asked of it."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def serve(
        self, path: str, body: str | bytes, content_type: str = "text/html", status: int = 200, **headers: str
    ) -> str:
        text = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = Answer(text, content_type, status, named)
        return self.url + path

    def redirect(self, path: str, target: str) -> str:
        return self.serve(path, "", status=302, Location=target)


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test talks to another machine, even when the guard it tests is broken."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and not ipaddress.ip_address(address[0]).is_loopback:
            raise AssertionError(f"a test tried to connect to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


@pytest.fixture
def web() -> Iterator[Web]:
    site = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append(self.path)
            site.headers.append(dict(self.headers))
            answer = site.answers.get(self.path, Answer(b"not here", "text/plain", 404, {}))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...  # a client that hangs up is part of the tests

    with Server(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    with empty_database(postgres) as url:
        yield url


@pytest.fixture
def read() -> Callable[..., list[Entry]]:
    """Everything a source gives. Loopback is allowed and a crawl does not wait."""

    def reading(url: str | Path, **options: Any) -> list[Entry]:
        chosen = SourceOptions(**{"delay": 0.0, "allow_hosts": ("127.0.0.1",), **options})
        return list(open_source(str(url), chosen).records())

    return reading


@pytest.fixture
def examples() -> Path:
    return Path(__file__).parents[2] / "examples" / "sources"


@pytest.fixture
def good() -> Callable[[list[Entry]], list[Record]]:
    return lambda entries: [entry for entry in entries if isinstance(entry, Record)]


@pytest.fixture
def bad() -> Callable[[list[Entry]], list[BadRecord]]:
    return lambda entries: [entry for entry in entries if isinstance(entry, BadRecord)]
