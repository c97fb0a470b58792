"""A small inn behind its faces: asked in process, or over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp
from tests.ports import free_port

from portico.access.identity import make_key
from portico.ask.events import Event
from portico.config import Config
from portico.protocols import parse_config
from portico.requests import Ask, Caller
from portico.server.assembly import Parts, open_site
from portico.server.http import application, server_settings
from portico.site import Site
from portico.sources.ingest import load_sources
from portico.store import open_store
from portico.store.records import Put
from portico.telemetry import discard

ROOMS: dict[str, dict[str, Any]] = {
    "attic": {"@type": "HotelRoom", "name": "The attic", "beds": 2, "price": 60.0, "url": "/rooms/attic"},
    "cellar": {"@type": "HotelRoom", "name": "The cellar", "beds": 6, "price": 25.0, "image": "/images/cellar.jpg"},
    "garden": {
        "@type": "HotelRoom",
        "name": "Garden room",
        "beds": 1,
        "price": 45.0,
        "description": "Quiet and green.",
    },
}

Inn = Callable[..., AbstractAsyncContextManager[Parts]]


@pytest.fixture
def inn(tmp_path: Path) -> Inn:
    """Open the inn with these settings."""

    @asynccontextmanager
    async def opening(**said: Any) -> AsyncIterator[Parts]:
        settings = {"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}, "folder": str(tmp_path)}
        async with open_site(parse_config({**settings, **said})) as parts:
            await parts.store.collections.declare(parts.config.collection("rooms"))
            await parts.store.items.write("rooms", [Put(id, data) for id, data in ROOMS.items()])
            await parts.index.sync(await parts.store.changes.head())
            yield parts

    return opening


@pytest.fixture
async def parts(inn: Inn) -> AsyncIterator[Parts]:
    async with inn() as parts:
        yield parts


@pytest.fixture
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


def asking(parts: Parts, **settings: Any) -> httpx.AsyncClient:
    """A client of a site in this process."""
    transport = httpx.ASGITransport(application(parts), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://inn.example", **settings)


async def key_of(parts: Parts, *scopes: str) -> str:
    token, key = make_key("somebody", scopes or ("ask", "read:*"), Caller().danger, 1)
    await parts.store.keys.add(key)
    return token


Script = Callable[[Ask, Caller], AsyncIterator[Event]]


@dataclass
class Scripted:
    """A site that answers questions as a test says; in all else it is the site it stands before."""

    site: Site
    ask: Script

    def __getattr__(self, name: str) -> Any:
        return getattr(self.site, name)


def scripted(parts: Parts, script: Script) -> Parts:
    return replace(parts, site=Scripted(parts.site, script))


def telling(*events: Event | Exception) -> Script:
    """Tell these events; an exception is raised at its place."""

    async def script(_: Ask, __: Caller) -> AsyncIterator[Event]:
        for event in events:
            if isinstance(event, Exception):
                raise event
            yield event

    return script


@dataclass
class Endless:
    """An answer that begins and never ends, and knows when it was stopped."""

    first: tuple[Event, ...]

    def __post_init__(self) -> None:
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()

    async def __call__(self, _: Ask, __: Caller) -> AsyncIterator[Event]:
        try:
            self.begun.set()
            for event in self.first:
                yield event
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


async def soon(happens: asyncio.Event) -> None:
    async with asyncio.timeout(60):
        await happens.wait()


@asynccontextmanager
async def listening(app: ASGIApp | Parts) -> AsyncIterator[int]:
    """The port of a real server."""
    settings = server_settings(app) if isinstance(app, Parts) else uvicorn.Config(app, http="httptools")
    settings.port, settings.log_level, settings.lifespan = free_port(), "critical", "off"
    settings.configure_logging()
    server = uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(60):
            while not server.started:
                await asyncio.sleep(0.01)
        yield settings.port
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[tuple[Parts, str]]:
    """A site with everything of its sources, and its address."""
    loading = await open_store(config.store_url)
    await load_sources(config, loading, discard)
    await loading.close()
    async with open_site(config) as parts:
        await parts.index.sync(await parts.store.changes.head())
        async with listening(parts) as port:
            yield parts, f"http://127.0.0.1:{port}"


def frames_of(text: str) -> list[tuple[str, str]]:
    """The name and the data of each server-sent event; comments are left out."""
    frames: list[tuple[str, str]] = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            frames.append((lines.get("event", ""), lines["data"]))
    return frames
