"""Sites that are asked in process: the demo with its vectors, made once for a run, and small ones of odd data."""

import asyncio
import fcntl
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from portico.access.identity import RequestCredentials, make_key
from portico.ask.events import (
    Action,
    ClarificationEvent,
    Constraint,
    EndEvent,
    ErrorEvent,
    Event,
    InterpretationEvent,
    ItemEvent,
    ModelUsage,
    OperationEvent,
    Question,
    TaskEvent,
    TextEvent,
)
from portico.cli.sites import demo_config
from portico.config import Config, StoreSettings
from portico.protocols import parse_config
from portico.requests import Ask, Caller
from portico.server.assembly import Parts, embed_everything, open_site
from portico.site import Site
from portico.sources.ingest import load_sources
from portico.store import open_store
from portico.store.records import Put
from portico.telemetry import discard

Data = dict[str, Any]
ENDS = (EndEvent, ClarificationEvent, TaskEvent, ErrorEvent)


@dataclass(frozen=True)
class Answer:
    """The events of an answer that came to its end."""

    events: tuple[Event, ...]

    @property
    def understood(self) -> InterpretationEvent:
        first = self.events[0]
        assert isinstance(first, InterpretationEvent)
        return first

    @property
    def last(self) -> Event:
        return self.events[-1]

    @property
    def found(self) -> list[ItemEvent]:
        return [event for event in self.events if isinstance(event, ItemEvent)]

    @property
    def ids(self) -> list[str]:
        return [found.item.id for found in sorted(self.found, key=lambda each: each.place)]

    @property
    def names(self) -> list[str]:
        return [id.rpartition("/")[2] for id in self.ids]

    @property
    def said(self) -> list[TextEvent]:
        return [event for event in self.events if isinstance(event, TextEvent)]

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.said)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return self.understood.constraints

    @property
    def limits(self) -> dict[str, str]:
        """What is reported, by the words it was read from."""
        return {each.words: each.says for each in self.constraints}

    @property
    def finished(self) -> EndEvent:
        assert isinstance(self.last, EndEvent), self.last
        return self.last

    @property
    def notes(self) -> tuple[str, ...]:
        return self.finished.notes

    @property
    def cost(self) -> ModelUsage:
        return self.finished.cost

    @property
    def questions(self) -> dict[str, Question]:
        assert isinstance(self.last, ClarificationEvent), self.last
        return {each.id: each for each in self.last.questions}

    @property
    def why(self) -> str:
        """What stands before the questions."""
        assert isinstance(self.last, ClarificationEvent), self.last
        return self.last.text

    @property
    def did(self) -> OperationEvent:
        return next(event for event in self.events if isinstance(event, OperationEvent))

    @property
    def promised(self) -> TaskEvent:
        assert isinstance(self.last, TaskEvent), self.last
        return self.last

    def actions(self, id: str) -> dict[str, Action]:
        return {each.operation: each for found in self.found if found.item.id == id for each in found.actions}


@dataclass(frozen=True)
class Asked:
    """A site and whoever asks it."""

    parts: Parts
    caller: Caller

    @property
    def site(self) -> Site:
        return self.parts.site

    async def __call__(self, text: str, *previous: str, **more: Any) -> Answer:
        """The answer to a question; `previous` are the ones before it, oldest first."""
        events: list[Event] = [
            event async for event in self.site.ask(Ask(text, previous=previous, **more), self.caller)
        ]
        assert isinstance(events[-1], ENDS)
        return Answer(tuple(events))

    async def turn(self, *texts: str, **more: Any) -> Answer:
        """The answer to the last of several questions in a row."""
        return await self(texts[-1], *texts[:-1], **more)

    async def named(self, name: str, scopes: Iterable[str] = ("ask", "read:*")) -> "Asked":
        """The same site, asked by somebody with a key."""
        token, key = make_key(name, scopes, self.caller.danger, None)
        await self.parts.store.keys.add(key)
        return Asked(self.parts, await self.site.identity.caller(RequestCredentials(bearer=token)))

    async def put(self, collection: str, items: Mapping[str, Data]) -> None:
        await self.parts.store.items.write(collection, [Put(id, data) for id, data in items.items()])
        await self.parts.index.sync(await self.parts.store.changes.head())


# The demo


def demo_items(collection: str) -> dict[str, Data]:
    """What the demo's file says, by id."""
    raw = json.loads((files("portico.demo") / "data" / f"{collection}.jsonld").read_text("utf-8"))
    return {each["@id"]: each for each in (raw["@graph"] if isinstance(raw, dict) else raw)}


@pytest.fixture(scope="session")
def recipes() -> dict[str, Data]:
    return demo_items("recipes")


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo that has its vectors. The first process that comes makes it, the others wait for it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if own.name.startswith("popen-") else own) / "demo-with-vectors"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            asyncio.run(_make_demo(_demo_in(folder)))
            (folder / "made").touch()
    return folder


async def _make_demo(config: Config) -> None:
    store = await open_store(config.store_url)
    await load_sources(config, store, discard)
    await store.close()
    await embed_everything(config, lambda *_: None)


def _demo_in(folder: Path) -> Config:
    return msgspec.structs.replace(demo_config(), store=StoreSettings(url=f"sqlite:///{folder / 'demo.db'}"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asked]:
    """The demo, asked by somebody without a key."""
    folder = tmp_path_factory.mktemp("demo")
    for path in demo_store.glob("demo.db*"):
        shutil.copy(path, folder)
    config = _demo_in(folder)
    limits = msgspec.structs.replace(config.limits, anonymous_per_minute=1_000_000)
    async with open_site(msgspec.structs.replace(config, limits=limits), background=False) as parts:
        yield Asked(parts, parts.site.access.anonymous_caller("192.0.2.1"))


# Small sites

Collections = Mapping[str, Mapping[str, Data]]
Opened = Callable[..., AbstractAsyncContextManager[Asked]]


@asynccontextmanager
async def opened_small(
    items: Collections, types: Mapping[str, Data] | None = None, *, background: bool = False, **said: Any
) -> AsyncIterator[Asked]:
    """A site with these items, searched by words alone. `types` are the settings of its collections."""
    settings = {name: dict((types or {}).get(name, {})) for name in items}
    config = parse_config(
        {
            "search": {"embedder": "none:"},
            "store": {"url": "sqlite:///:memory:"},
            "collections": settings,
            "limits": {"anonymous_per_minute": 1_000_000, "keys_per_minute": 1_000_000},
            **said,
        }
    )
    async with open_site(config, background=background) as parts:
        asked = Asked(parts, parts.site.access.anonymous_caller("192.0.2.1"))
        for name, data in items.items():
            await asked.put(name, data)
        yield asked


@pytest.fixture
def small() -> Opened:
    return opened_small
