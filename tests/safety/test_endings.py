"""What ends with an execution or a session, and what does not: requests are withdrawn, pauses and challenges stay."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking
from tests.safety.conftest import DENIED, Open, Person, again, boss_of, events, fresh_code, later, person
from tests.safety.test_attacks import connected, served

from portico.access.identity import RequestCredentials
from portico.errors import AgentBlocked, ConfirmationNeeded, InvalidToken, StepNeeded
from portico.requests import Call
from portico.server.assembly import Parts

__all__ = ["served"]

RISKY = "sudo systemctl restart nginx"  # waits for a code
ASKED = {"next_operation": "set_table", "next_params": {"seats": 2}, "risk_score": 40}  # waits for a person
SEATED = Call("set_table", {"seats": 2})
Ending: TypeAlias = Callable[[Parts, Person, Person, str], Awaitable[Any]]


async def complete(parts: Parts, bot: Person, boss: Person, execution: str) -> None:
    await bot.does("complete_execution", element_name="bot", execution_id=execution)


async def abort(parts: Parts, bot: Person, boss: Person, execution: str) -> None:
    await bot.does("abort_execution", element_name="bot", execution_id=execution)


async def cancel(parts: Parts, bot: Person, boss: Person, execution: str) -> None:
    await bot.does("cancel_execution", execution_id=execution)


async def end_session(parts: Parts, bot: Person, boss: Person, execution: str) -> None:
    await parts.site.access.end_session("s1")


async def end_at_the_desk(parts: Parts, bot: Person, boss: Person, execution: str) -> None:
    await parts.site.supervision.end(execution, "", boss.caller)


ENDINGS = pytest.mark.parametrize("end", [complete, abort, cancel, end_session, end_at_the_desk])


async def start(bot: Person, session: str = "s1") -> str:
    return (await bot.calls(Call("execute_agent", {"element_name": "bot"}, session=session)))["execution_id"]


@requirement("aql:loop:pause-outlives")
@ENDINGS
async def test_no_ending_lifts_a_pause_that_waits_for_a_code(eager: Parts, end: Ending) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    execution = await start(bot)
    assert (await bot.steps(RISKY))["nextStepRisk"] == "verify"

    await end(eager, bot, boss, execution)

    assert isinstance(await bot.hears(SEATED), StepNeeded)
    await bot.calls(Call("execute_agent", {"element_name": "other"}, session="s2"))
    assert (await bot.steps("calling set_table for two", name="other"))["continue"] is False
    assert isinstance(await bot.hears(SEATED), StepNeeded)
    (challenge,) = (await eager.site.supervision.pending(boss.caller)).challenges
    code = await fresh_code(eager.site, challenge.id, boss)
    await boss.does("verify_challenge", challenge_id=challenge.id, code=code)
    assert (await bot.steps("calling set_table for two", name="other"))["continue"] is True


@requirement("aql:loop:pause-outlives")
@ENDINGS
async def test_no_ending_lifts_a_pause_that_waits_for_a_person(eager: Parts, end: Ending) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    execution = await start(bot)
    assert (await bot.steps("set the table for two", **ASKED))["continue"] is False

    await end(eager, bot, boss, execution)

    refusal = await bot.hears(SEATED)
    assert (type(refusal), refusal.details["reason"]) == (StepNeeded, "paused")
    elsewhere = await eager.site.access.authenticate(RequestCredentials(bot.key, address="10.9.8.7"))
    with pytest.raises(StepNeeded):
        await eager.site.call(Call("set_table", {"seats": 2}, session="s3"), elsewhere)
    await start(bot, "s2")
    assert isinstance(await bot.hears(SEATED), StepNeeded)
    assert (await bot.steps("calling create_recipe to add the soup"))["continue"] is True
    await bot.does("complete_execution", element_name="bot")
    assert isinstance(await bot.hears(SEATED), StepNeeded)  # a harmless step in between is no way out

    await start(bot, "s2")
    await boss.agrees((await bot.steps("set the table for two", **ASKED))["token"])
    await bot.does("complete_execution", element_name="bot")
    assert await bot.calls(SEATED) == {"seats": 2}


@requirement("aql:loop:pause-outlives")
@ENDINGS
async def test_a_pause_holds_the_other_executions_of_its_caller_when_one_ends(eager: Parts, end: Ending) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.calls(Call("execute_agent", {"element_name": "other"}, session="s2"))
    four = {"next_operation": "set_table", "next_params": {"seats": 4}}
    assert (await bot.steps("calling set_table", name="other", **four))["continue"] is True
    execution = await start(bot)
    assert (await bot.steps("set the table for two", **ASKED))["continue"] is False

    await end(eager, bot, boss, execution)

    refusal = await bot.hears(Call("set_table", {"seats": 4}))
    assert (type(refusal), refusal.details["reason"]) == (StepNeeded, "paused")
    await bot.does("complete_execution", element_name="other")
    assert isinstance(await bot.hears(SEATED), StepNeeded)


async def test_a_step_that_a_person_decided_pauses_no_other_execution(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.calls(Call("execute_agent", {"element_name": "other"}, session="s2"))
    four = {"next_operation": "set_table", "next_params": {"seats": 4}}
    await bot.steps("calling set_table", name="other", **four)
    await start(bot)
    await boss.agrees((await bot.steps("set the table for two", **ASKED))["token"])

    await bot.does("complete_execution", element_name="bot")

    assert await bot.does("set_table", seats=4) == {"seats": 4}


async def test_turning_a_step_down_does_not_free_its_agent_from_supervision(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await start(bot)
    await boss.agrees((await bot.steps("set the table for two", **ASKED))["token"], "reject")
    await bot.does("complete_execution", element_name="bot")

    assert isinstance(await bot.hears(SEATED), StepNeeded)


async def test_a_pause_that_nobody_decides_ends_by_its_time(eager: Parts) -> None:
    bot = await person(eager)
    await start(bot)
    await bot.steps("set the table for two", **ASKED)
    await bot.does("complete_execution", element_name="bot")

    assert isinstance(await later(eager.site, 1700).refuses(SEATED, bot), StepNeeded)
    assert await later(eager.site, 1801).clears(SEATED, bot) is None


@requirement("aql:session:context-end")
@ENDINGS
async def test_an_ended_execution_leaves_no_request_behind(eager: Parts, end: Ending) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    execution = await start(bot)
    await bot.steps("calling close_kitchen, as it is late", risk_score=0, next_operation="close_kitchen")
    step = (await bot.steps("calling close_kitchen, as it is late", next_operation="close_kitchen"))["token"]
    (waiting,) = (await eager.site.supervision.pending(boss.caller)).confirmations
    assert waiting.token == step

    await end(eager, bot, boss, execution)

    assert (await eager.site.supervision.pending(boss.caller)).confirmations == ()
    late = await boss.refused("confirm_operation", confirmation_token=step, digest=waiting.digest)
    assert (type(late), late.details["reason"]) == (InvalidToken, "withdrawn")
    assert "ended" in late.message


@ENDINGS
async def test_what_was_allowed_in_an_execution_is_void_when_it_ends(eager: Parts, end: Ending) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    execution = await start(bot)
    hint = "calling close_kitchen, as it is late"
    await boss.agrees((await bot.steps(hint))["token"])
    await bot.steps(hint)
    call = Call("close_kitchen", {"why": "late"}, session="s1")
    token = (await bot.hears(call)).details["token"]
    await boss.agrees(token)

    await end(eager, bot, boss, execution)

    assert type(await bot.hears(Call("close_kitchen", {"why": "late"}, confirmation=token))) is InvalidToken
    assert isinstance(await bot.hears(Call("close_kitchen", {"why": "late"})), ConfirmationNeeded)
    await start(bot, "s2")
    assert (await bot.steps(hint))["continue"] is False


async def test_an_execution_that_lapsed_leaves_no_request_behind_either(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow", "idle": 60, "confirm_seconds": 300}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await start(bot)
        token = (await bot.steps("set the table for two", **ASKED))["token"]
        late = later(parts.site, 61)

        assert (await late.guard.supervision.pending(boss.caller)).confirmations == ()
        with pytest.raises(InvalidToken, match="ended"):
            await late.guard.supervision.confirm(token, "reject", "", boss.caller)


async def test_a_blocked_agent_leaves_its_challenge_and_no_request(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await start(bot)
    await bot.steps("set the table for two", **ASKED)
    await bot.calls(Call("execute_agent", {"element_name": "second"}, session="s2"))
    assert (await bot.steps(DENIED, name="second"))["stopped"] is True

    await eager.site.access.end_session("s1")
    await eager.site.access.end_session("s2")

    pending = await eager.site.supervision.pending(boss.caller)
    assert (len(pending.confirmations), len(pending.challenges), len(pending.blocks)) == (0, 1, 1)
    assert isinstance(await bot.hears(SEATED), AgentBlocked)


async def test_requests_of_ended_executions_do_not_count_against_their_caller(eager: Parts) -> None:
    bot = await person(eager)
    for number in range(55):
        await start(bot)
        said = await bot.steps(f"set the table in room {number}", **ASKED)
        assert said["token"]
        await bot.does("complete_execution", element_name="bot")


async def test_what_was_wanted_outside_of_an_execution_outlives_it(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    token = await bot.wants("close_kitchen", why="late")
    await start(bot)
    await bot.does("complete_execution", element_name="bot")

    await boss.agrees(token)

    assert await bot.does("close_kitchen", why="late") == {"why": "late"}


@requirement("aql:loop:pause-outlives")
async def test_deleting_the_mcp_session_lifts_no_pause_and_withdraws_its_requests(served: tuple[Parts, int]) -> None:
    parts, port = served
    bot, boss = await person(parts), await boss_of(parts)
    async with connected(port, "legacy", bot.key) as client:
        await client.call_tool("mcp_aql", {"operation": "execute_agent", "params": {"element_name": "bot"}})
        report = {"element_name": "bot", "next_action_hint": "set the table for two", **ASKED}
        said = await client.call_tool("mcp_aql", {"operation": "record_execution_step", "params": report})
        assert said.structured_content["data"]["autonomy"]["continue"] is False
        assert (await parts.site.supervision.pending(boss.caller)).confirmations

    async with asyncio.timeout(60):
        while "EXECUTION_CANCELLED" not in await events(parts, boss):
            await asyncio.sleep(0.01)
    async with connected(port, "legacy", bot.key) as client:
        wanted = {"operation": "set_table", "params": {"seats": 2}}
        refused = (await client.call_tool("mcp_aql", wanted)).structured_content

    assert (refused["success"], refused["error"]["code"]) == (False, "PERMISSION_DENIED")
    assert (await parts.site.supervision.pending(boss.caller)).confirmations == ()


async def test_an_approver_who_still_has_the_page_open_hears_that_the_request_was_withdrawn(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    keyed = {"authorization": f"Bearer {boss.key}"}
    await start(bot)
    await bot.steps("set the table for two", **ASKED)
    async with asking(eager) as http:
        http.base_url = "http://127.0.0.1"
        (shown,) = (await http.get("/desk/api/pending", headers=keyed)).json()["confirmations"]
        await bot.does("complete_execution", element_name="bot")
        said = {"decision": "approve", "digest": shown["digest"]}
        answer = await http.post(f"/desk/api/confirmations/{shown['token']}", json=said, headers=keyed)

    assert (answer.status_code, "ended" in answer.json()["detail"]) == (403, True)


@pytest.fixture
async def reopened(kitchen: Open, tmp_path: Any) -> AsyncIterator[tuple[Parts, Person]]:
    url = f"sqlite:///{tmp_path / 'site.db'}"
    async with kitchen(url, safety={"start": "allow"}) as parts:
        bot = await person(parts)
        await start(bot)
        await bot.steps("set the table for two", **ASKED)
        await bot.does("complete_execution", element_name="bot")
    async with kitchen(url, safety={"start": "allow"}) as parts:
        yield parts, await again(bot, parts)


async def test_a_pause_for_a_person_is_there_after_a_restart(reopened: tuple[Parts, Person]) -> None:
    _, bot = reopened

    assert isinstance(await bot.hears(SEATED), StepNeeded)
