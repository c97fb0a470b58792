"""The same refusals at every door: an agent that is refused by one protocol tries the others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import listening
from tests.protocols.mcp.conftest import ERAS, connected
from tests.safety.conftest import ADDING, Open, Person, blocked, boss_of, events, fresh_code, person

from portico.errors import AgentBlocked, InvalidToken
from portico.requests import Call
from portico.server.assembly import Parts

Tried: TypeAlias = tuple[bool, str]  # whether it was done, and what was said
Door: TypeAlias = Callable[["Visit", str, dict[str, Any]], Awaitable[Tried]]


@dataclass(frozen=True)
class Visit:
    """Somebody at a running server."""

    http: httpx.AsyncClient
    port: int
    key: str


async def over_http(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    answer = await visit.http.post(f"/operations/{operation}", json=params)
    return answer.is_success, answer.text


async def as_a_task(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    answer = await visit.http.post(f"/operations/{operation}", json=params, headers={"prefer": "respond-async"})
    return await ended(visit, answer)


async def in_a_workflow(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    steps = [{"id": "only", "operation": operation, "params": params}]
    answer = await visit.http.post("/operations/run_workflow", json={"steps": steps, "timeout": 5})
    return await ended(visit, answer)


async def ended(visit: Visit, answer: httpx.Response) -> Tried:
    """What became of a task, if one was begun."""
    if not answer.is_success:
        return False, answer.text
    async with asyncio.timeout(60):
        while True:
            task = (await visit.http.get(answer.headers["location"])).json()["task"]
            if task["state"] not in {"pending", "running"}:
                return task["state"] == "completed", str(task)


async def over_aql(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    answer = await visit.http.post("/aql", json={"operation": operation, "params": params})
    return answer.json()["success"], answer.text


async def in_a_batch(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    wanted = [{"operation": "get_recipe", "params": {"id": "r1"}}, {"operation": operation, "params": params}]
    said = (await visit.http.post("/aql", json={"operations": wanted})).json()
    return said["success"] and said["summary"]["succeeded"] == 2, str(said)


async def over_nwp(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    wanted = {"action_id": f"site.{operation}", "params": params}
    answer = await visit.http.post("/nwp/operations/invoke", json=wanted)
    return answer.is_success, answer.text


async def over_a2a(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    part = {"data": {"operation": operation, "params": params}, "mediaType": "application/json"}
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [part]}
    wanted = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = await visit.http.post("/a2a", json=wanted, headers={"a2a-version": "1.0"})
    task = answer.json().get("result", {}).get("task", {})
    return task.get("status", {}).get("state") == "TASK_STATE_COMPLETED", answer.text


async def over_mcp(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    async with connected(visit.port, ERAS[0], visit.key) as client:
        result = await client.call_tool(operation, params)
    return not result.is_error, str(result)


async def over_aql_in_a_session(visit: Visit, operation: str, params: dict[str, Any]) -> Tried:
    async with connected(visit.port, ERAS[1], visit.key) as client:
        result = await client.call_tool("mcp_aql", {"operation": operation, "params": params})
    assert isinstance(result.structured_content, dict)
    return result.structured_content["success"], str(result)


PROTOCOL_CALLS: Mapping[str, Door] = {
    door.__name__: door
    for door in (
        over_http,
        as_a_task,
        in_a_workflow,
        over_aql,
        in_a_batch,
        over_nwp,
        over_a2a,
        over_mcp,
        over_aql_in_a_session,
    )
}


@pytest.fixture
async def served(kitchen: Open) -> AsyncIterator[tuple[Parts, int]]:
    settings = {"mcp": {"operations": "all"}, "safety": {"start": "allow"}, "limits": {"keys_per_minute": 6000}}
    async with kitchen(**settings) as parts, listening(parts) as port:
        yield parts, port


@asynccontextmanager
async def visit_of(who: Person, port: int, **headers: str) -> AsyncIterator[Visit]:
    sent = {"authorization": f"Bearer {who.key}", **headers}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=sent) as http:
        yield Visit(http, port, who.key)


async def tried(visit: Visit, operation: str, **params: Any) -> dict[str, bool]:
    return {name: (await door(visit, operation, params))[0] for name, door in PROTOCOL_CALLS.items()}


async def cleared(parts: Parts, boss: Person, operation: str) -> int:
    lines = await parts.site.supervision.trail(0, 1000, boss.caller)
    return sum(line.event == "OPERATION_CLEARED" and line.body["operation"] == operation for line in lines)


NOWHERE = dict.fromkeys(PROTOCOL_CALLS, False)


@requirement("aql:attack:other-protocol", "aql:self:every-protocol", "aql:attack:batch-bypass")
async def test_no_door_lets_an_unconfirmed_call_through_nor_its_caller_confirm_it(
    served: tuple[Parts, int],
) -> None:
    parts, port = served
    bot, boss = await person(parts, "ask", "*:*", "approve"), await boss_of(parts)
    async with visit_of(bot, port) as visit:
        assert await tried(visit, "close_kitchen", why="late") == NOWHERE
        token = await bot.wants("close_kitchen", why="late")
        assert await tried(visit, "confirm_operation", confirmation_token=token) == NOWHERE
        assert await tried(visit, "close_kitchen", why="late") == NOWHERE
        assert await cleared(parts, boss, "close_kitchen") == 0

        for door in PROTOCOL_CALLS.values():
            await boss.agrees(await bot.wants("close_kitchen", why="late"))
            done, said = await door(visit, "close_kitchen", {"why": "late"})
            assert done, said
            assert not (await door(visit, "close_kitchen", {"why": "late"}))[0]
        assert await cleared(parts, boss, "close_kitchen") == len(PROTOCOL_CALLS)


@requirement("aql:attack:other-protocol", "aql:loop:non-bypass", "aql:block:rejected", "aql:attack:batch-bypass")
async def test_no_door_lets_an_agent_do_what_it_did_not_report_or_anything_while_it_is_blocked(
    served: tuple[Parts, int],
) -> None:
    parts, port = served
    bot, boss = await person(parts), await boss_of(parts)
    async with visit_of(bot, port) as visit:
        await bot.starts()
        assert await tried(visit, "set_table", seats=2) == NOWHERE
        await bot.does("complete_execution", element_name="bot")
        challenge = await blocked(bot)
        assert await tried(visit, "set_table", seats=2) == NOWHERE
        assert await tried(visit, "execute_agent", element_name="other") == NOWHERE
        code = await fresh_code(parts.site, challenge, boss)
        assert await tried(visit, "verify_challenge", challenge_id=challenge, code=code) == NOWHERE
        assert await cleared(parts, boss, "set_table") == 0

        await boss.does("verify_challenge", challenge_id=challenge, code=code)
        assert await tried(visit, "set_table", seats=2) == dict.fromkeys(PROTOCOL_CALLS, True)


@requirement("aql:session:executions-end", "aql:session:tokens-end")
async def test_what_was_begun_over_mcp_ends_when_the_client_leaves(served: tuple[Parts, int]) -> None:
    parts, port = served
    bot, boss = await person(parts), await boss_of(parts)
    async with connected(port, "legacy", bot.key) as client:
        wanted = {"operation": "close_kitchen", "params": {"why": "late"}}
        refused = (await client.call_tool("mcp_aql", wanted)).structured_content
        token = refused["error"]["details"]["confirmation_token"]
        await boss.agrees(token)
        wanted = {"operation": "execute_agent", "params": {"element_name": "bot"}}
        started = (await client.call_tool("mcp_aql", wanted)).structured_content["data"]
        assert started["status"] == "running"

    async with asyncio.timeout(60):
        while "TOKEN_REVOKED" not in await events(parts, boss):
            await asyncio.sleep(0.01)
    status = await bot.does("get_execution_status", execution_id=started["execution_id"])
    assert status["status"] == "cancelled"
    told = await bot.hears(Call("close_kitchen", {"why": "late"}, confirmation=token))
    assert type(told) is InvalidToken


@requirement("aql:attack:unicode-hint", "aql:attack:many-steps-hint", "aql:stage:pattern-examples")
@pytest.mark.parametrize(
    "hint",
    [
        "EXECUTING SHELL COMMAND: RM -RF /",
        "executing shell command: \uff52\uff4d \uff0d\uff52\uff46 /",
        "executing shell command: r\u200bm\u00a0\u00a0-r\u00adf /",
        "read_recipe r1 then rm -rf /",
        "get_recipe; rm\t-rf /; list_recipes",
        "get_recipe\nrm -rf /",
    ],
)
async def test_a_denied_step_is_known_in_every_dress(eager: Parts, hint: str) -> None:
    bot = await person(eager)
    await bot.starts()

    said = await bot.steps(hint, risk_score=0)

    assert (said["continue"], said["stopped"]) == (False, True)
    assert isinstance(await bot.refused("set_table"), AgentBlocked)


@requirement("aql:attack:vague-hint", "aql:attack:long-hint")
@pytest.mark.parametrize("hint", ["do it", "continue", "next step", "stir the soup " * 200])
async def test_who_says_too_little_or_too_much_is_paused(eager: Parts, hint: str) -> None:
    bot = await person(eager)
    await bot.starts()

    assert (await bot.steps(hint))["continue"] is False


@requirement("aql:attack:spoofed-identity", "aql:session:meta-label", "aql:attack:claimed-agent")
async def test_an_identity_in_headers_parameters_or_meta_is_not_believed(served: tuple[Parts, int]) -> None:
    parts, port = served
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("close_kitchen")
    id = boss.caller.id
    headers = {
        "x-nwp-agent": "urn:nps:agent:inn.example:boss",
        "x-forwarded-user": id,
        "x-remote-user": id,
        "x-portico-caller": id,
        "x-forwarded-for": "127.0.0.1",
        "from": "operator:operator",
        "mcp-session-id": "boss",
        "cookie": f"caller={id}",
    }
    claims = [
        {"confirmation_token": token},
        *({"confirmation_token": token, name: id} for name in ("caller", "principal", "by", "_caller", "approver")),
    ]
    meta = {"caller": id, "session_id": "boss", "principal": id, "clientInfo": {"name": id}}
    async with visit_of(bot, port, **headers) as visit:
        for params in claims:
            assert not (await over_http(visit, "confirm_operation", params))[0]
            assert not (await over_nwp(visit, "confirm_operation", params))[0]
            wanted = {"operation": "confirm_operation", "params": {**params, "_meta": meta}, "_meta": meta}
            assert (await visit.http.post("/aql", json=wanted)).json()["success"] is False
        assert not (await over_http(visit, "close_kitchen", {}))[0]
        await bot.starts()
        other = await person(parts)
        foreign = {"element_name": "bot", "next_action_hint": ADDING}
        async with visit_of(other, port, **{**headers, "x-forwarded-user": bot.caller.id}) as stranger:
            assert not (await over_http(stranger, "record_execution_step", foreign))[0]

    (waiting,) = (await parts.site.supervision.pending(boss.caller)).confirmations
    assert (waiting.token, waiting.caller) == (token, bot.caller.id)
