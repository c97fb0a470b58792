"""The inn as agents ask for it in MCP-AQL over plain HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.conformance.aql_structures import check_answer
from tests.protocols.conftest import Inn, asking

from portico.access.identity import make_key
from portico.catalog import Danger
from portico.server.assembly import Parts

OWNER = ("ask", "*:*")


@dataclass
class Guest:
    """Somebody who sends requests and reads envelopes. Every answer is held against the closed structures."""

    parts: Parts
    client: httpx.AsyncClient
    key: str = ""

    async def post(self, request: Any, path: str = "/aql", **headers: str) -> httpx.Response:
        given = {"authorization": f"Bearer {self.key}"} if self.key else {}
        said = {"content": request} if isinstance(request, bytes) else {"json": request}
        response = await self.client.post(
            path, headers={"content-type": "application/json", **given, **headers}, **said
        )
        if response.headers.get("content-type") == "application/json":
            check_answer(request, response.json())
        return response

    async def say(self, request: Any, path: str = "/aql") -> dict[str, Any]:
        return (await self.post(request, path)).json()

    async def error(self, request: Any, path: str = "/aql") -> dict[str, Any]:
        said = await self.say(request, path)
        assert said["success"] is False
        return said["error"]


async def approve(approver: Guest, token: str) -> dict[str, Any]:
    """Agree to what waits under a token, as it is listed."""
    listing = {"operation": "list_pending_approvals", "params": {"confirmation_token": token}}
    (waiting,) = (await approver.say(listing))["data"]["confirmations"]
    wanted = {"confirmation_token": token, "digest": waiting["digest"]}
    return await approver.say({"operation": "confirm_operation", "params": wanted})


async def owner_key(parts: Parts) -> str:
    token, key = make_key("owner", OWNER, Danger.DESTRUCTIVE, 1)
    await parts.store.keys.add(key)
    return token


Visit = Callable[..., AbstractAsyncContextManager[Guest]]


@pytest.fixture
def visit(inn: Inn) -> Visit:
    """Open the inn with these settings, for its owner or for anybody."""

    @asynccontextmanager
    async def visiting(*, as_owner: bool = True, **settings: Any) -> AsyncIterator[Guest]:
        async with inn(**settings) as parts, asking(parts) as client:
            yield Guest(parts, client, await owner_key(parts) if as_owner else "")

    return visiting
