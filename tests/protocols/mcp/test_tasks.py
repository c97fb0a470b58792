"""Long work over MCP: promises by `await`, and tasks for clients that know the extension."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, key_of, listening
from tests.protocols.mcp.conftest import ERAS, Era, connected, structured

from portico.protocols.mcp.tasks import EXTENSION

BREW = '''
import asyncio
from portico.operations import Context, operation

@operation(long=True, kind="read", danger="safe")
async def brew_tea(context: Context, cups: int = 1) -> dict[str, int]:
    """Brew tea for the guests."""
    await context.progress(0.5, "The kettle is on")
    if cups > 5:
        await asyncio.Event().wait()
    return {"cups": cups}
'''


@asynccontextmanager
async def kitchen(inn: Inn, folder: Path) -> AsyncIterator[int]:
    (folder / "kitchen.py").write_text(BREW)
    async with inn(operations=["kitchen.py"], mcp={"operations": "own"}) as parts, listening(parts) as port:
        yield port


async def until(client: Client, token: str, kind: str) -> dict[str, Any]:
    """What `await` says once the answer is of this kind."""
    async with asyncio.timeout(60):
        while True:
            said = structured(await client.call_tool("await", {"promise_token": token, "action": "checkin"}))
            assert said["_meta"]["response_type"] in {kind, "promise"}, said
            if said["_meta"]["response_type"] == kind:
                return said
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("era", ERAS)
async def test_long_work_is_a_promise_to_look_at_and_to_cancel(inn: Inn, tmp_path: Path, era: Era) -> None:
    async with kitchen(inn, tmp_path) as port, connected(port, era) as client:
        short = structured(await client.call_tool("brew_tea", {"cups": 2}))["task"]["id"]
        done = await until(client, short, "answer")
        long = structured(await client.call_tool("brew_tea", {"cups": 9}))["task"]["id"]
        cancelled = await client.call_tool("await", {"promise_token": long, "action": "cancel"})
        unknown = await client.call_tool("await", {"promise_token": "nothing", "action": "checkin"})

    assert done["results"] == [
        {"@type": "Action", "name": "brew_tea", "actionStatus": "CompletedActionStatus", "result": {"cups": 2}}
    ]
    assert (structured(cancelled)["error"]["code"], cancelled.is_error) == ("CANCELLED", False)
    assert (structured(unknown)["error"]["code"], unknown.is_error) == ("UNKNOWN_PROMISE", True)


class Named(types.RequestParams):
    task_id: str


class Shown(types.Result):
    """A task as it comes over the wire."""

    model_config = ConfigDict(extra="allow")


class Began(types.Result):
    result_type: Literal["task"]
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class Extension(ClientExtension):
    """A client that can be given tasks, and keeps the one it is given."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.began: Began | None = None

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Began, resolve=self._keep)]

    async def _keep(self, began: Began, _: object) -> types.CallToolResult:
        self.began = began
        return types.CallToolResult(content=[])


async def asked(client: Client, method: str, id: str) -> dict[str, Any]:
    request = types.Request[Named, str](method=method, params=Named(task_id=id))
    return (await client.session.send_request(request, Shown)).model_dump(by_alias=True)


@requirement("mcp:tasks:extension")
async def test_a_client_that_knows_tasks_is_given_one_and_finds_the_result_in_it(inn: Inn, tmp_path: Path) -> None:
    extension = Extension()
    async with kitchen(inn, tmp_path) as port, connected(port, extensions=[extension]) as client:
        await client.call_tool("brew_tea", {"cups": 2})
        assert extension.began is not None
        task = await asked(client, "tasks/get", extension.began.task_id)
        async with asyncio.timeout(60):
            while task["status"] == "working":
                task = await asked(client, "tasks/get", extension.began.task_id)
        await client.call_tool("brew_tea", {"cups": 9})
        long = extension.began.task_id
        await asked(client, "tasks/update", long)
        await asked(client, "tasks/cancel", long)
        cancelled = await asked(client, "tasks/get", long)

    assert (task["status"], task["ttlMs"]) == ("completed", None)
    assert task["result"]["structuredContent"]["results"][0]["result"] == {"cups": 2}
    assert cancelled["status"] == "cancelled"
    assert "result" not in cancelled


@requirement("mcp:tasks:undeclared")
async def test_tasks_are_for_clients_that_say_so_and_for_those_who_began_them(inn: Inn, tmp_path: Path) -> None:
    (tmp_path / "kitchen.py").write_text(BREW)
    async with (
        inn(operations=["kitchen.py"], mcp={"operations": "own"}) as parts,
        listening(parts) as port,
        connected(port) as plain,
        connected(port, "legacy") as older,
        connected(port, key=await key_of(parts), extensions=[Extension()]) as other,
    ):
        id = structured(await plain.call_tool("brew_tea", {"cups": 9}))["task"]["id"]
        refusals = []
        for client in (plain, older, other):
            with pytest.raises(MCPError) as refusal:
                await asked(client, "tasks/get", id)
            refusals.append(refusal.value.code)

    assert refusals == [types.MISSING_REQUIRED_CLIENT_CAPABILITY, types.METHOD_NOT_FOUND, types.INVALID_PARAMS]
