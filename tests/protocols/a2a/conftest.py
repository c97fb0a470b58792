"""The inn as an agent: its JSON-RPC spoken by hand, where the official client would be in the way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.protocols.conftest import Inn, frames_of, listening

from portico.server.assembly import Parts
from portico.server.http import application

OWN = '''
import asyncio
from portico.errors import Conflict
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def reserve_room(context: Context, room: str, nights: int = 1) -> dict[str, object]:
    """Reserve a room."""
    return {"room": (await context.get("rooms", room)).id, "nights": nights}

@operation(kind="execute", danger="safe")
async def close_house(context: Context) -> None:
    """Close the house."""
    raise Conflict("There are guests", hint="Wait until they have left.")

@operation(kind="execute", danger="safe", long=True, attempts=5)
async def paint_house(context: Context, coats: int = 1, pause: float = 0.0) -> dict[str, object]:
    """Paint the house."""
    for coat in range(coats):
        await context.progress(coat / coats, f"Coat {coat + 1}")
        await asyncio.sleep(pause)
    return {"coats": coats}
'''
SETTINGS: dict[str, Any] = {"operations": ["own.py"], "anonymous": {"scopes": ["ask", "read:*", "execute:*"]}}


@pytest.fixture
def house(inn: Inn, tmp_path: Path) -> Inn:
    """The inn with operations of its own, which anybody may run."""
    (tmp_path / "own.py").write_text(OWN)

    def opening(**said: Any) -> Any:
        return inn(**{**SETTINGS, **said})

    return opening


@dataclass(frozen=True)
class Talk:
    """A client of A2A 1.0."""

    http: httpx.AsyncClient

    async def post(self, method: str, **params: Any) -> httpx.Response:
        return await self.http.post("/a2a", json=request(method, params))

    async def rpc(self, method: str, **params: Any) -> Any:
        """The result, or the error."""
        body = (await self.post(method, **params)).json()
        return body["result"] if "result" in body else body["error"]

    async def send(self, *parts: dict[str, Any], **more: Any) -> Any:
        """The task that came of a message, or the error."""
        said = await self.rpc("SendMessage", **sent(*parts, **more))
        return said.get("task", said)

    async def stream(self, *parts: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
        answer = await self.post("SendStreamingMessage", **sent(*parts, **more))
        return [json.loads(data)["result"] for _, data in frames_of(answer.text)]


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def sent(
    *parts: dict[str, Any], task: str = "", context: str = "", configuration: Any = None, **metadata: Any
) -> dict[str, Any]:
    message: dict[str, Any] = {"messageId": "m1", "role": "ROLE_USER", "parts": list(parts), "metadata": metadata}
    named = {name: value for name, value in (("taskId", task), ("contextId", context)) if value}
    return {"message": {**message, **named}, **({"configuration": configuration} if configuration else {})}


def text(said: str) -> dict[str, Any]:
    return {"text": said}


def data(**said: Any) -> dict[str, Any]:
    return {"data": said, "mediaType": "application/json"}


def state(task: dict[str, Any]) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def words(task: dict[str, Any]) -> str:
    """What the status of a task says in words."""
    return task["status"]["message"]["parts"][0]["text"]


def answer(task: dict[str, Any]) -> Any:
    """The answer of a task, as data."""
    (artifact,) = task["artifacts"]
    return artifact["parts"][-1]["data"]


@asynccontextmanager
async def visiting(parts: Parts, key: str = "", **headers: str) -> AsyncIterator[Talk]:
    app = application(parts)
    known = {"a2a-version": "1.0", **({"x-api-key": key} if key else {}), **headers}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=known) as http:
        try:
            yield Talk(http)
        finally:
            await app.close()


@dataclass
class Receiver:
    """Somebody who is told, and at first may not want to hear it."""

    refusals: int = 0
    url: str = ""
    heard: asyncio.Queue[tuple[dict[str, str], Any]] = field(default_factory=asyncio.Queue)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = Request(scope, receive)
        body = json.loads(await told.body())
        if self.refusals:
            self.refusals -= 1
            await Response(status_code=503)(scope, receive, send)
            return
        self.heard.put_nowait((dict(told.headers), body))
        await Response(status_code=204)(scope, receive, send)

    async def next(self) -> tuple[dict[str, str], Any]:
        async with asyncio.timeout(60):
            return await self.heard.get()


@asynccontextmanager
async def hearing(refusals: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(refusals)
    async with listening(receiver) as port:
        receiver.url = f"http://127.0.0.1:{port}/told"
        yield receiver
