"""A small inn as a site, opened through the same door as the server opens it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import StoreUrl

from portico.access.identity import RequestCredentials, local_operator, make_key
from portico.catalog import Danger, Trust
from portico.config import Config
from portico.protocols import parse_config
from portico.requests import Call, Caller, Outcome, Task
from portico.server.assembly import Parts, open_site
from portico.site import Site
from portico.store.records import Put

ROOMS = {
    "attic": {"name": "The attic", "beds": 2, "price": 60.0, "view": {"sea": True, "floor": 4}},
    "cellar": {"name": "The cellar", "beds": 6, "price": 25.0},
    "garden": {"name": "Garden room", "beds": 1, "price": 45.0, "tags": ["quiet", "green"]},
}
OPERATOR = local_operator()
CLOSE_SECONDS = 60  # to open, and to close


def config(folder: Path, url: str, **said: Any) -> Config:
    store = {**said.pop("store", {}), "url": url}
    return parse_config({"search": {"embedder": "none:"}, "store": store, "folder": str(folder), **said})


Open = Callable[..., AbstractAsyncContextManager[Parts]]


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, store_url: StoreUrl) -> str:
    return store_url(request.param)


@pytest.fixture
def opened(tmp_path: Path, url: str) -> Open:
    """Open a site with these settings; the store stays between openings. Modules may be given as text."""

    def opening(own: str = "", **said: Any) -> AbstractAsyncContextManager[Parts]:
        if own:
            (tmp_path / "own.py").write_text(own)
            said = {"operations": ["own.py"], **said}
        return closed_in_time(open_site(config(tmp_path, url, **said)))

    return opening


@asynccontextmanager
async def closed_in_time(opening: AbstractAsyncContextManager[Parts]) -> AsyncIterator[Parts]:
    """A site that does not close is a failure of its test, not the end of the suite."""
    async with asyncio.timeout(CLOSE_SECONDS):
        parts = await opening.__aenter__()
    try:
        yield parts
    finally:
        closing = asyncio.ensure_future(opening.__aexit__(None, None, None))
        done, _ = await asyncio.wait([closing], timeout=CLOSE_SECONDS)
        assert done, "the site did not close"
        closing.result()


@pytest.fixture
async def parts(opened: Open) -> AsyncIterator[Parts]:
    async with opened() as parts:
        await furnish(parts)
        yield parts


async def furnish(parts: Parts) -> None:
    await parts.store.collections.declare(parts.config.collection("rooms"))
    await parts.store.items.write("rooms", [Put(id, data) for id, data in ROOMS.items()])
    await parts.index.sync(await parts.store.changes.head())


@pytest.fixture
def site(parts: Parts) -> Site:
    return parts.site


@dataclass
class Calling:
    """Calls as somebody, and looks at what came of it."""

    site: Site
    caller: Caller = OPERATOR

    async def __call__(self, operation: str, **params: Any) -> Any:
        outcome = await self.site.call(Call(operation, params), self.caller)
        assert isinstance(outcome, Outcome)
        return outcome.result

    async def task(self, operation: str, **params: Any) -> Task:
        started = await self.site.call(Call(operation, params, run="later"), self.caller)
        assert isinstance(started, Task)
        return started

    async def finished(self, id: str) -> Task:
        ended = await self.site.tasks.wait(id, self.caller, 20)
        assert ended.state.is_final, ended
        return ended


@pytest.fixture
def call(site: Site) -> Calling:
    return Calling(site)


async def key_holder(
    parts: Parts,
    *scopes: str,
    danger: Danger = Danger.SAFE,
    days: float | None = 1,
    trust: Trust = Trust.VALIDATED,
) -> Caller:
    """Somebody with a key of these scopes, known as a face would know them."""
    token, key = make_key("somebody", scopes, danger, days, trust=trust)
    await parts.store.keys.add(key)
    return await parts.site.identity.caller(RequestCredentials(token))


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Elsewhere:
    """A web service on loopback: what it answers, and what it was asked."""

    url: str = ""
    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    answer: Callable[[str, dict[str, str]], tuple[int, bytes]] | None = None  # by path and headers
    asked: list[Asked] = field(default_factory=list)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    service = Elsewhere()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            service.asked.append(Asked(self.command, self.path, dict(self.headers), body))
            if not service.status:
                self.close_connection = True
                return
            status, body = service.status, service.body
            if service.answer:
                status, body = service.answer(self.path, dict(self.headers))
            self.send_response(status)
            self.send_header("Content-Type", service.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...

    with Server(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        yield service
        server.shutdown()
        thread.join()
