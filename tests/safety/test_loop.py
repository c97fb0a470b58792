"""Agents that report what they do next: what they are told, what they may then do, and what they cannot talk around."""

import asyncio
import json
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.safety.conftest import ADDING, DENIED, Open, boss_of, events, fresh_code, later, person

from portico.access.identity import RequestCredentials
from portico.errors import (
    AgentBlocked,
    ConfirmationNeeded,
    Forbidden,
    InvalidToken,
    StepNeeded,
    Unauthenticated,
    UnknownOperation,
    UnknownTask,
)
from portico.requests import Call, Task, TaskState
from portico.server.assembly import Parts

SOUP = {"id": "new", "input": {"name": "Soup"}}
CLOSING = "calling close_kitchen now that everybody has left"
TABLE = {"next_operation": "set_table", "next_params": {"seats": 2}}


def adding(params: Any) -> str:
    return f"calling create_recipe with params {json.dumps(params)}"


# Starting and ending


@requirement("aql:loop:gate", "aql:attack:self-start")
async def test_an_agent_starts_when_somebody_else_agrees_to_that_agent_and_that_goal(parts: Parts) -> None:
    bot, boss = await person(parts, "ask", "*:*", "approve"), await boss_of(parts)
    wanted = {"element_name": "Bot", "parameters": {"goal": "soup"}}

    token = await bot.wants("execute_agent", **wanted)
    assert isinstance(await bot.refused("confirm_operation", confirmation_token=token), Forbidden)
    await boss.agrees(token)
    others = [
        {**wanted, "parameters": {"goal": "cake"}},
        {**wanted, "element_name": "Bob"},
        {**wanted, "max_autonomous_steps": 10_000},
        {"element_name": "Bot"},
    ]
    assert [type(await bot.refused("execute_agent", **each)) for each in others] == [ConfirmationNeeded] * 4

    started = await bot.does("execute_agent", **wanted)
    assert started["status"] == "running"
    assert isinstance(await bot.refused("execute_agent", **wanted), ConfirmationNeeded)  # once is once
    nobody = await parts.site.access.authenticate(RequestCredentials(address="10.0.0.1"))
    with pytest.raises(Unauthenticated):
        await parts.site.call(Call("record_execution_step", {"element_name": "b", "next_action_hint": "x"}), nobody)


@requirement("aql:loop:opt-in", "aql:loop:complete", "aql:loop:abort", "aql:loop:after-end", "aql:lifecycle:private")
async def test_an_execution_ends_as_its_agent_says_and_takes_no_step_after_that(eager: Parts) -> None:
    bot, other = await person(eager), await person(eager)
    await bot.does("set_table")  # outside of executions nothing is reported
    first = await bot.starts()
    second = await bot.starts("helper")

    foreign = {"element_name": "bot", "next_action_hint": ADDING, "execution_id": first}
    assert isinstance(await other.refused("record_execution_step", **foreign), UnknownTask)
    assert isinstance(await other.refused("get_execution_status", execution_id=first), UnknownTask)
    assert isinstance(await other.refused("cancel_execution", execution_id=first), UnknownTask)
    assert isinstance(await other.refused("abort_execution", element_name="bot", execution_id=first), UnknownTask)

    done = await bot.does("complete_execution", element_name="BOT", summary="All is served")
    assert (done["execution_id"], done["status"], done["summary"]) == (first, "completed", "All is served")
    given_up = await bot.does("abort_execution", element_name="helper", reason="No salt")
    assert (given_up["execution_id"], given_up["status"]) == (second, "cancelled")
    assert (await bot.does("get_execution_status", execution_id=first))["status"] == "completed"
    assert isinstance(await bot.refused("record_execution_step", **foreign), UnknownTask)
    assert isinstance(await bot.refused("complete_execution", element_name="bot"), UnknownTask)
    await bot.does("set_table")


@requirement("aql:session:stateless")
async def test_an_agent_that_says_nothing_for_half_an_hour_is_over_and_its_caller_goes_on(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    late = later(eager.site, 1801)

    for _ in range(2):
        assert await late.clears(Call("set_table", {}), bot) is None
        with pytest.raises(UnknownTask):
            await late.steps(bot)

    assert (await events(eager, boss)).count("EXECUTION_CANCELLED") == 1


@requirement("aql:session:tokens-end", "aql:session:executions-end", "aql:session:context-end")
async def test_what_was_begun_in_a_session_ends_with_it(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    kept, other = await bot.starts("keeper"), await person(eager)
    own = await other.wants("close_kitchen")  # in no session
    started = await bot.calls(Call("execute_agent", {"element_name": "bot"}, session="s1"))
    tokens = [(await bot.hears(Call("close_kitchen", {"why": why}, session="s1"))).details.get("token") for why in "ab"]
    assert tokens == [None, None]  # an execution is under way: it is to be reported first
    await bot.does("complete_execution", element_name="keeper", execution_id=kept)
    asked = await bot.steps(CLOSING)
    await boss.agrees(asked["token"])
    await bot.steps(CLOSING)
    needed = await bot.hears(Call("close_kitchen", {}, session="s1"))
    token = needed.details["token"]
    await boss.agrees(token)
    assert (await bot.steps(ADDING, risk_score=70))["status"] == "paused"

    await eager.site.access.end_session("")  # that of nobody
    await eager.site.access.end_session("another")
    assert (await bot.does("get_execution_status", execution_id=started["execution_id"]))["status"] == "paused"
    await eager.site.access.end_session("s1")

    ended = await bot.does("get_execution_status", execution_id=started["execution_id"])
    assert (ended["status"], ended["summary"]) == ("cancelled", "The session is over")
    assert isinstance(await bot.hears(Call("close_kitchen", {}, confirmation=token)), StepNeeded)  # paused still
    (challenge,) = (await eager.site.supervision.pending(boss.caller)).challenges
    await boss.does(
        "verify_challenge", challenge_id=challenge.id, code=await fresh_code(eager.site, challenge.id, boss)
    )
    assert type(await bot.hears(Call("close_kitchen", {}, confirmation=token))) is InvalidToken
    await bot.starts()
    assert (await bot.steps())["continue"] is True
    assert isinstance(await bot.refused("close_kitchen"), StepNeeded)  # and so is the step
    await boss.agrees(own)
    assert await other.calls(Call("close_kitchen", {}, confirmation=own))


# Steps and calls


@requirement("aql:loop:before-first-step", "aql:loop:every-action", "aql:loop:checkpoint", "aql:directive:required")
async def test_while_an_agent_is_at_work_only_what_it_reported_runs_and_only_once(eager: Parts) -> None:
    bot = await person(eager)
    execution = await bot.starts()

    early = await bot.refused("create_recipe", **SOUP)
    assert isinstance(early, StepNeeded)
    assert early.details == {"operation": "create_recipe", "reason": "step_not_reported"}
    assert await bot.does("get_recipe", id="r1")

    said = await bot.steps()
    assert said["continue"] is True
    assert said["factors"]
    await bot.does("create_recipe", **SOUP)
    assert isinstance(await bot.refused("create_recipe", **{**SOUP, "id": "newer"}), StepNeeded)
    status = await bot.does("get_execution_status", execution_id=execution)
    assert status["progress"] == {"current": 1, "total": 50, "percentage": 2.0}


@requirement("aql:attack:lying-hint", "aql:attack:grant-reused")
@pytest.mark.parametrize(
    ("hint", "said", "call"),
    [
        (ADDING, {}, Call("update_recipe", {"id": "r1", "input": {"name": "Ash"}})),
        (ADDING, {}, Call("set_table", {})),
        (adding(SOUP), {}, Call("create_recipe", {**SOUP, "id": "other"})),
        (adding(SOUP), {}, Call("create_recipe", {**SOUP, "input": {"name": "Soup", "more": 1}})),
        ("set the table for two", TABLE, Call("set_table", {"seats": 3})),
        ("set the table for two", TABLE, Call("set_table", {})),
        ("calling set_table for two", {"next_params": {"seats": 2}}, Call("set_table", {"seats": 3})),
        ("calling set_table for two", {"next_operation": "SET_TABLE"}, Call("set_table", {})),
        ("set the table and add the soup", {}, Call("set_table", {})),
        ("calling set_table and create_recipe for two", {}, Call("set_table", {})),
    ],
)
async def test_a_call_that_differs_from_what_was_reported_does_not_run(
    eager: Parts, hint: str, said: dict[str, Any], call: Call
) -> None:
    bot = await person(eager)
    await bot.starts()
    await bot.steps(hint, **said)

    assert isinstance(await bot.hears(call), StepNeeded)


@pytest.mark.parametrize(
    ("hint", "said", "call"),
    [
        (adding(SOUP), {}, Call("create_recipe", SOUP)),
        ("set the table for two", TABLE, Call("set_table", {"seats": 2})),
        ("calling set_table for two", {}, Call("set_table", {"seats": 3})),
        (adding(SOUP), {"next_operation": "create_recipe"}, Call("create_recipe", SOUP)),
    ],
)
async def test_a_call_as_it_was_reported_runs(eager: Parts, hint: str, said: dict[str, Any], call: Call) -> None:
    bot = await person(eager)
    await bot.starts()
    assert (await bot.steps(hint, **said))["continue"] is True

    assert await bot.calls(call)
    assert isinstance(await bot.hears(call), StepNeeded)


@requirement("aql:stage:requires-approval", "aql:stage:confirm", "aql:notify:autonomy-pause")
async def test_a_step_that_a_person_saw_with_its_parameters_is_confirmed_with_that(eager: Parts) -> None:
    bot, boss = await person(eager, "ask", "*:*", "approve"), await boss_of(eager)
    await bot.starts()
    step = {"next_operation": "delete_recipe", "next_params": {"id": "r1"}}

    paused = await bot.steps("delete the old soup", **step)
    assert (paused["continue"], paused["status"]) == (False, "paused")
    assert [each["type"] for each in paused["notifications"]] == ["autonomy_pause"]
    assert isinstance(await bot.refused("delete_recipe", id="r1"), StepNeeded)
    refused = await bot.refused("confirm_operation", confirmation_token=paused["token"])
    assert refused.details == {"reason": "self_approval"}
    (waiting,) = (await eager.site.supervision.pending(boss.caller)).confirmations
    assert waiting.params == {
        "agent": "bot",
        "hint": "delete the old soup",
        "operation": "delete_recipe",
        "params": {"id": "r1"},
    }
    await boss.agrees(paused["token"])

    changed = await bot.steps("delete the old soup", next_operation="delete_recipe", next_params={"id": "r2"})
    assert changed["continue"] is False  # agreed was to another call
    assert (await bot.steps("delete the old soup", **step))["continue"] is True
    assert isinstance(await bot.refused("delete_recipe", id="r2"), StepNeeded)
    await bot.does("delete_recipe", id="r1")
    assert isinstance(await bot.refused("delete_recipe", id="r1"), StepNeeded)
    assert (await bot.steps("delete the old soup", **step))["continue"] is False


@requirement("aql:notify:permission-pending", "aql:notify:permission-cleared", "aql:notify:pull")
async def test_a_step_without_parameters_leaves_the_call_to_be_confirmed(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    await boss.agrees((await bot.steps(CLOSING))["token"])
    assert (await bot.steps(CLOSING))["continue"] is True

    needed = await bot.refused("close_kitchen", why="late")
    assert isinstance(needed, ConfirmationNeeded)
    (pending,) = (await bot.steps())["notifications"]
    assert (pending["type"], pending["metadata"]["operation"]) == ("permission_pending", "close_kitchen")
    assert type(await bot.hears(Call("close_kitchen", {}, confirmation="conf_" + "A" * 40))) is InvalidToken
    assert [each["type"] for each in (await bot.steps())["notifications"]] == ["permission_pending"]

    await boss.agrees(needed.details["token"])
    assert "notifications" not in await bot.steps()
    assert await bot.does("close_kitchen", why="late") == {"why": "late"}


async def test_who_agrees_to_a_step_sees_the_call_wherever_in_the_hint_it_stands(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    hidden = "stir the soup, " * 60 + f"calling delete_recipe with params {json.dumps({'id': 'r1'})}"

    assert (await bot.steps(hidden))["continue"] is False

    (waiting,) = (await eager.site.supervision.pending(boss.caller)).challenges  # so many parts are a risk of their own
    assert (waiting.operation, waiting.params) == ("delete_recipe", {"id": "r1"})


@requirement("aql:loop:pause-holds")
async def test_while_an_agent_is_paused_steps_that_were_agreed_to_before_are_not_taken(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    await bot.steps()
    paused = await bot.steps(CLOSING)

    assert isinstance(await bot.refused("create_recipe", **SOUP), StepNeeded)

    await boss.agrees(paused["token"])
    await bot.steps(CLOSING)
    await bot.does("create_recipe", **SOUP)


@requirement("aql:stage:auto-approve")
async def test_a_pattern_that_waves_steps_through_waves_no_destructive_call_through(kitchen: Open) -> None:
    patterns = {"auto": ["*"], "approve": [], "deny": [], "start": "allow"}
    async with kitchen(safety=patterns) as parts:
        bot = await person(parts)
        await bot.starts()

        said = await bot.steps("close_kitchen")
        assert (said["continue"], said["factors"][0]) == (False, "Risk 50 of 100")
        harmless = await bot.steps("list_recipes")
        assert (harmless["continue"], harmless["factors"][0]) == (True, "Harmless by the pattern *")

        assert isinstance(await bot.refused("close_kitchen"), StepNeeded)
        assert isinstance(await bot.refused("delete_recipe", id="r1"), StepNeeded)
        assert (await bot.steps("set_table", next_operation="set_table", risk_score=40))["continue"] is False
        assert (await bot.steps("get_reverse_shell"))["continue"] is False


async def test_a_workflow_carries_no_call_past_the_loop(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)

    assert isinstance(await bot.hears(_workflow("close_kitchen")), ConfirmationNeeded)
    await bot.starts()
    assert isinstance(await bot.hears(_workflow("set_table")), StepNeeded)
    await bot.steps("calling run_workflow for the evening")
    assert isinstance(await bot.hears(_workflow("set_table")), StepNeeded)  # it was reported, its step was not

    cleared = [
        line.body["operation"]
        for line in await eager.site.supervision.trail(0, 100, boss.caller)
        if line.event == "OPERATION_CLEARED"
    ]
    assert cleared == ["run_workflow"]


def _workflow(operation: str) -> Call:
    return Call("run_workflow", {"steps": [{"id": "only", "operation": operation}]}, run="now")


# How many steps


@requirement(
    "aql:stage:step-limit",
    "aql:stage:step-limit-at",
    "aql:stage:step-limit-configured",
    "aql:stage:step-limit-renewed",
    "aql:stage:step-limit-lowered",
    "aql:attack:step-reset",
    "aql:directive:steps-remaining",
)
async def test_beyond_its_limit_an_agent_waits_for_a_person_and_new_executions_bring_no_new_steps(
    kitchen: Open,
) -> None:
    async with kitchen(safety={"start": "allow", "steps": 3}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        started = await bot.does("execute_agent", element_name="bot", max_autonomous_steps=9999)
        assert started["limits"] == {
            "max_autonomous_steps": 3,
            "steps_remaining": 3,
            "risk_tolerance": "moderate",
            "mode": "enforcing",
        }
        assert [(await bot.steps())["stepsRemaining"] for _ in range(3)] == [2, 1, 0]

        beyond = await bot.steps()
        assert (beyond["continue"], beyond["reason"], beyond["stepsRemaining"]) == (False, "Step limit exceeded", 0)
        for name in ("bot", "Bot", "new"):
            await bot.starts(name)
            assert (await bot.steps(name=name))["reason"] == "Step limit exceeded"
        await bot.does("complete_execution", element_name="new")
        await bot.starts("new")
        assert (await bot.steps(name="new"))["reason"] == "Step limit exceeded"

        await boss.agrees((await bot.steps("calling set_table for two"))["token"])
        assert (await bot.steps("calling set_table for two"))["stepsRemaining"] == 2
        await bot.starts("careful", max_autonomous_steps=1)
        assert (await bot.steps(name="careful"))["reason"] == "Step limit exceeded"


async def test_of_many_calls_at_once_one_uses_a_step_and_of_many_reports_no_more_pass_than_are_left(
    kitchen: Open,
) -> None:
    async with kitchen(safety={"start": "allow", "steps": 5}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await bot.starts()
        hints = (f"calling set_table for {number} guests" for number in range(20))

        told = await asyncio.gather(*(bot.steps(hint) for hint in hints))

        assert sum(each["continue"] for each in told) == 5
        (paused,) = {each["reason"] for each in told if not each["continue"]}
        assert paused == "Step limit exceeded"
        await bot.does("abort_execution", element_name="bot")
        await bot.starts("other")
        await boss.agrees((await bot.steps(adding(SOUP), "other"))["token"])
        await bot.steps(adding(SOUP), "other")

        calls = (Call("create_recipe", SOUP) for _ in range(20))
        done = await asyncio.gather(*(bot.calls(call) for call in calls), return_exceptions=True)

        assert sum(isinstance(each, dict) for each in done) == 1
        assert sum(isinstance(each, StepNeeded) for each in done) == 19


@requirement("aql:attack:step-reset")
async def test_an_agent_that_is_slow_has_no_more_steps_than_a_quick_one(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow", "steps": 2, "window": 60, "idle": 100_000}) as parts:
        bot = await person(parts)
        await bot.starts()
        for minutes in (0, 2):
            assert (await later(parts.site, 60 * minutes).steps(bot)).autonomy.may_continue

        slow = await later(parts.site, 240).steps(bot)

        assert (slow.autonomy.may_continue, slow.autonomy.reason) == (False, "Step limit exceeded")
        await bot.does("complete_execution", element_name="bot")
        (await later(parts.site, 300).guard.loop.start("bot", {}, None, bot.caller, ""))
        assert (await later(parts.site, 300).steps(bot)).autonomy.may_continue


@requirement("aql:stage:configurable")
async def test_an_agent_has_the_settings_of_its_key_not_of_the_name_that_it_gives_itself(kitchen: Open) -> None:
    safety = {"start": "allow", "steps": 5, "agent": {"careful": {"steps": 1, "tolerance": "conservative"}}}
    async with kitchen(safety=safety) as parts:
        careful, bot = await person(parts, name="careful"), await person(parts)
        await careful.starts()
        await bot.starts("careful")

        assert (await careful.steps("calling get_recipe for the soup", risk_score=26))["continue"] is False
        assert (await bot.steps("calling get_recipe for the soup", "careful", risk_score=26))["continue"] is True
        assert (await careful.steps("get_recipe"))["stepsRemaining"] == 0
        assert (await bot.steps("get_recipe", "careful"))["stepsRemaining"] == 3


# Risk and outcome


@requirement("aql:stage:tiers", "aql:stage:verify", "aql:stage:danger-zone", "aql:stage:self-score")
async def test_what_an_agent_says_of_its_risk_only_raises_it(eager: Parts) -> None:
    bot = await person(eager)
    await bot.starts()
    hint = "calling set_table for two"
    own = await bot.steps(hint)
    assert own["nextStepRisk"] == "advisory"
    assert (await bot.steps(hint, risk_score=0))["factors"] == own["factors"]
    assert (await bot.steps(CLOSING, risk_score=1))["continue"] is False
    found = {}
    for risk in (30, 31, 60, 61, 85, 86):
        who = await person(eager)
        await who.starts()
        said = await who.steps(hint, risk_score=risk)
        found[risk] = (said["continue"], said.get("stopped", False), said["nextStepRisk"])

    assert found == {
        30: (True, False, "advisory"),
        31: (False, False, "confirm"),
        60: (False, False, "confirm"),
        61: (False, False, "verify"),
        85: (False, False, "verify"),
        86: (False, True, "danger_zone"),
    }


async def test_the_same_again_and_again_is_a_risk(eager: Parts) -> None:
    bot = await person(eager)
    await bot.starts()

    assert [(await bot.steps())["continue"] for _ in range(5)] == [True, True, True, True, False]


@requirement("aql:stage:failure", "aql:attack:false-outcome")
async def test_what_the_site_saw_fail_has_failed_whatever_the_agent_says(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    assert (await bot.steps(outcome="failure"))["reason"] == "The previous step failed"
    await bot.steps("calling set_table for many")
    await bot.steps()  # another one, so that the last step is not the one that fails
    await bot.refused("set_table", seats=11)

    lied = await bot.steps()
    assert (lied["continue"], lied["reason"]) == (False, "The previous step failed")
    assert (await bot.steps("calling set_table for two"))["reason"] == "The previous step failed"
    await boss.agrees(lied["token"])
    assert (await bot.steps())["continue"] is True
    assert (await bot.steps("calling set_table for two"))["continue"] is True  # a person has looked


@requirement("aql:stage:outcome-omitted")
async def test_who_never_says_how_it_went_is_paused_at_the_third_step(eager: Parts) -> None:
    bot = await person(eager)
    await bot.starts()

    told = [(await bot.steps(outcome=""))["continue"] for _ in range(3)]

    assert told == [True, True, False]
    assert (await bot.steps())["continue"] is True


# Other modes


@requirement("aql:loop:monitoring")
async def test_who_is_only_watched_is_never_stopped(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow", "mode": "monitoring", "steps": 2}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await bot.starts()
        hints = (DENIED, CLOSING, ADDING, ADDING)

        told = [await bot.steps(hint, outcome="failure", risk_score=99) for hint in hints]

        assert [(each["continue"], "stopped" in each) for each in told] == [(True, False)] * 4
        assert all(each["factors"][0].startswith("would ") for each in told)
        await bot.does("set_table")  # though it was not reported
        pending = await parts.site.supervision.pending(boss.caller)
        assert (pending.challenges, pending.blocks) == ((), ())


@requirement("aql:loop:logging")
async def test_where_steps_are_only_logged_nothing_is_evaluated(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow", "mode": "logging"}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await bot.starts()

        said = await bot.steps(DENIED, risk_score=99)

        assert (said["continue"], said["factors"][0]) == (True, "Recorded; nothing is evaluated")
        assert "nextStepRisk" not in said
        assert await events(parts, boss) == ["EXECUTION_STARTED", "STEP_REPORTED"]


@requirement("aql:loop:disabled")
async def test_without_the_loop_there_are_none_of_its_operations_and_calls_still_wait_to_be_confirmed(
    kitchen: Open,
) -> None:
    async with kitchen(safety={"mode": "disabled"}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        loop = ("execute_agent", "record_execution_step", "complete_execution", "abort_execution", "verify_challenge")
        for name in loop:
            assert isinstance(await bot.refused(name), UnknownOperation)

        token = await bot.wants("delete_recipe", id="r1")
        await boss.agrees(token)
        await bot.does("delete_recipe", id="r1")


@requirement("aql:attack:log-forged", "aql:gate:audit-chain")
async def test_nothing_that_an_agent_says_forges_a_line_of_the_trail(eager: Parts) -> None:
    bot, boss = await person(eager, name="bot\n1 VERIFIED"), await boss_of(eager)
    await bot.starts()
    await bot.steps("calling set_table\n2 VERIFIED {}\r\n\u2028\x1b[2J for two")

    lines = await eager.site.supervision.trail(0, 100, boss.caller)

    assert [line.event for line in lines] == ["EXECUTION_STARTED", "STEP_REPORTED"]
    assert lines[1].body["hint"].isprintable()
    assert await eager.site.supervision.check_trail() == []
    blocked = await person(eager)
    await blocked.starts()
    await blocked.steps(DENIED)
    assert isinstance(await blocked.refused("execute_agent", element_name="bot"), AgentBlocked)


async def test_what_the_site_saw_fail_as_a_task_has_failed_too(eager: Parts) -> None:
    bot = await person(eager)
    await bot.does("execute_agent", element_name="bot")
    hint = {"element_name": "bot", "next_action_hint": "calling set_table for a party"}
    await bot.does("record_execution_step", **hint)

    task = await eager.site.call(Call("set_table", {"seats": 11}, run="later"), bot.caller)
    assert isinstance(task, Task)
    ended = await eager.site.tasks.wait(task.id, bot.caller, 60)
    assert ended.state == TaskState.FAILED
    async with asyncio.timeout(60):
        while (said := await bot.does("record_execution_step", **hint, outcome="success"))["autonomy"]["continue"]:
            await asyncio.sleep(0)  # how the task went is written down right after it has ended

    assert said["autonomy"]["reason"] == "The previous step failed"
