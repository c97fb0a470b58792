"""An inn with chores that a test can hold up, and agents that ask it over HTTP: in process, or over real sockets."""

import asyncio
import base64
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import httpx
from msgspec import Meta
from tests.protocols.conftest import ROOMS

from portico.errors import Conflict
from portico.operations import Context, operation
from portico.protocols import parse_config
from portico.protocols.nwp.frames import Frame, decode, decode_any, read_header
from portico.server.assembly import Parts, open_site
from portico.server.http import application
from portico.store.records import Put
from portico.telemetry import Recorder, discard

HERE = "tests.protocols.nwp.agents"
ANYBODY: dict[str, Any] = {"scopes": ["ask", "read:*", "execute:*"]}


# What the inn does


@dataclass
class Gate:
    """What a chore waits for, and how a test knows that it does."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)


GATES: dict[str, Gate] = defaultdict(Gate)
RESERVED: list[str] = []  # rooms, in the order of their reservations
STARTED: list[str] = []  # doors, in the order they were reached


@operation(kind="execute", danger="safe")
async def reserve_room(context: Context, room: str, nights: Annotated[int, Meta(ge=1)] = 1) -> dict[str, Any]:
    """Reserve a room."""
    found = await context.get("rooms", room)
    RESERVED.append(found.id)
    return {"room": found.id, "nights": nights, "number": len(RESERVED)}


@operation(kind="execute", danger="safe", long=True, estimate=3.0)
async def paint_house(context: Context, door: str, coats: int = 1) -> dict[str, Any]:
    """Paint the house, once the door is open."""
    STARTED.append(door)
    await context.progress(0.5, "Half of it")
    GATES[door].reached.set()
    await GATES[door].open.wait()
    return {"coats": coats}


@operation(kind="execute", danger="safe", long=True)
async def close_house(context: Context) -> dict[str, Any]:
    """Close the house."""
    raise Conflict("There are guests", hint="Wait until they have left.")


@operation(kind="execute", danger="safe", long=True)
async def lock_house(context: Context, door: str) -> dict[str, Any]:
    """Lock the house; once begun, it is done."""
    GATES[door].reached.set()
    try:
        await GATES[door].open.wait()
    except asyncio.CancelledError:
        return {"locked": True}
    return {}


@operation(kind="read", danger="safe", timeout=0.05)
async def wait_for_rain(context: Context) -> dict[str, Any]:
    """Wait for rain."""
    await asyncio.Event().wait()
    return {}


@asynccontextmanager
async def opened_inn(
    folder: Path, store: str = "sqlite:///:memory:", record: Recorder = discard, **said: Any
) -> AsyncIterator[Parts]:
    """The inn with these settings. Where there are rooms already, they stay as they are."""
    settings = {"search": {"embedder": "none:"}, "store": {"url": store}, "folder": str(folder), "operations": [HERE]}
    async with open_site(parse_config({**settings, "anonymous": ANYBODY, **said}), record=record) as parts:
        await parts.store.collections.declare(parts.config.collection("rooms"))
        if not await parts.store.items.get("rooms", "attic"):
            await parts.store.items.write("rooms", [Put(id, data) for id, data in ROOMS.items()])
        await parts.index.sync(await parts.store.changes.head())
        yield parts


# Who asks it


@dataclass
class Agent:
    """Asks in bare JSON, with headers of its own."""

    client: httpx.AsyncClient
    headers: Mapping[str, str] = field(default_factory=dict)

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Headers are written with underscores; bytes are sent as they are."""
        sent = {"content": body} if isinstance(body, bytes) else {"json": body or {}}
        return await self.client.post(f"/nwp/{path}", headers=self._with(headers), **sent)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"/nwp/{path}", headers=self._with(headers))

    async def invoke(self, action: str, params: Any = None, node: str = "operations", **said: Any) -> httpx.Response:
        return await self.post(f"{node}/invoke", {"action_id": action, "params": params or {}, **said})

    async def start(self, door: str, **said: Any) -> str:
        """The id of a task that waits at a door."""
        answer = await self.invoke("site.paint_house", {"door": door}, **{"async": True, **said})
        assert answer.status_code == 202, answer.text
        return answer.json()["task_id"]

    async def status(self, task: str) -> dict[str, Any]:
        answer = await self.invoke("system.task.status", {"task_id": task})
        assert answer.status_code == 200, answer.text
        return answer.json()["data"][0]

    async def ended(self, task: str) -> dict[str, Any]:
        """The status of a task once it has ended."""
        async with asyncio.timeout(10):
            while (said := await self.status(task))["status"] in {"pending", "running"}:
                await asyncio.sleep(0.01)
        return said

    def _with(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**self.headers, **{name.replace("_", "-"): value for name, value in more.items()}}


@asynccontextmanager
async def agent_of(parts: Parts, address: str = "192.0.2.1", **headers: str) -> AsyncIterator[Agent]:
    """An agent at an address, of a site in this process."""
    transport = httpx.ASGITransport(application(parts), raise_app_exceptions=False, client=(address, 1000))
    async with httpx.AsyncClient(transport=transport, base_url="https://inn.example") as client:
        yield Agent(client, headers)


@asynccontextmanager
async def held(*doors: str) -> AsyncIterator[None]:
    """Doors that are open in the end, whatever happens: nobody waits there for ever."""
    try:
        yield
    finally:
        for door in doors:
            GATES[door].open.set()


async def reached(door: str) -> None:
    async with asyncio.timeout(10):
        await GATES[door].reached.wait()


def code(answer: httpx.Response) -> tuple[int, str, str]:
    """How a request was refused: by HTTP, by NPS and by NWP. What is refused has an error's form, and no data."""
    said = answer.json()
    assert answer.headers["content-type"] == "application/nwp-error+json"
    assert said.keys() <= {"status", "error", "message", "details", "request_id"}, said
    return answer.status_code, said["status"], said["error"]


# Subscriptions


class Listener:
    """A subscriber on a connection: the frames of its events, one by one, with their ids."""

    def __init__(self, response: httpx.Response) -> None:
        self.headers = response.headers
        self._lines = response.aiter_lines()
        self.tier = -1

    async def next(self) -> tuple[str, Frame]:
        """The next event: its id and its frame, which has to be whole and alone."""
        id = ""
        async with asyncio.timeout(10):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "id":
                    id = value
                elif name == "data":
                    return id, self._decoded(base64.b64decode(value, validate=True))
        raise EOFError

    async def frame(self) -> Any:
        return (await self.next())[1]

    async def rest(self) -> list[Frame]:
        """All that comes before the server ends it."""
        found: list[Frame] = []
        try:
            while True:
                found.append(await self.frame())
        except EOFError:
            return found

    def _decoded(self, raw: bytes) -> Frame:
        header = read_header(raw)
        assert header is not None
        self.tier = header.tier
        assert decode_any(raw[header.size :], header.tier)["frame"]
        return decode(raw)


@asynccontextmanager
async def subscribed(agent: Agent, body: Any, node: str = "rooms", **headers: str) -> AsyncGenerator[Listener]:
    """A subscription as it is read. Leaving closes the connection."""
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    told = {"accept": "text/event-stream", **agent.headers, **headers}
    async with agent.client.stream("POST", f"/nwp/{node}/subscribe", headers=told, **sent) as response:
        if response.status_code != 200:
            await response.aread()
            raise AssertionError(response.text)
        yield Listener(response)


def subscribe(stream: str = "", **said: Any) -> dict[str, Any]:
    return {"action": "subscribe", "stream_id": stream or str(uuid4()), **said}
