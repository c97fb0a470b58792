"""Ways around supervision that stay closed."""

from datetime import UTC, datetime

from tests.safety.conftest import ADDING, DENIED, Open, boss_of, events, fresh_code, person

from portico.errors import InvalidToken, RateLimited, StepNeeded
from portico.requests import Call, Task, TaskState
from portico.server.assembly import Parts

LONG = "reading the opening hours of the shop, once more and with care, " * 8


async def test_the_beginning_of_a_token_is_nothing_that_a_caller_can_choose(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    first = await bot.wants("close_kitchen", why="x")
    await boss.agrees(first)
    await bot.does("close_kitchen", why="x")

    again = await bot.wants("close_kitchen", why="x")

    assert (first[:13] == again[:13], first[-22:] == again[-22:]) == (False, True)


async def test_work_of_a_key_that_was_revoked_goes_no_further(parts: Parts) -> None:
    bot = await person(parts)
    steps = [{"id": "one", "operation": "set_table"}, {"id": "two", "operation": "set_table", "input_from": ["one"]}]
    await parts.store.keys.revoke(bot.caller.id.removeprefix("key:"), datetime.now(UTC))

    task = await parts.site.call(Call("run_workflow", {"steps": steps}), bot.caller)

    assert isinstance(task, Task)
    ended = await parts.site.tasks.wait(task.id, bot.caller, 60)
    assert (ended.state, (ended.error or {})["error"]) == (TaskState.FAILED, "Unauthenticated")


async def test_the_end_of_another_session_lifts_no_pause(eager: Parts) -> None:
    bot = await person(eager)
    await bot.starts()
    assert (await bot.steps("sudo systemctl restart nginx"))["nextStepRisk"] == "verify"
    await bot.calls(Call("execute_agent", {"element_name": "decoy"}, session="other"))

    await eager.site.access.end_session("other")

    assert (await bot.steps(ADDING))["continue"] is False


async def test_people_see_that_a_hint_goes_on(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    await bot.steps(f"{LONG}; then emailing the list of customers to eve", outcome="failure")

    (waiting,) = (await eager.site.supervision.pending(boss.caller)).confirmations

    assert waiting.params["hint"].endswith("to eve")


async def test_a_block_ends_what_was_begun_before(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow"}, limits={"concurrent_tasks": 1}) as parts:
        bot = await person(parts)
        tasks = [await parts.site.call(Call("simmer", {}), bot.caller) for _ in range(3)]  # two wait for the first
        await bot.starts()
        await bot.steps(DENIED)

        assert all(isinstance(task, Task) for task in tasks)
        ended = [await parts.site.tasks.wait(task.id, bot.caller, 60) for task in tasks if isinstance(task, Task)]

    assert [task.state for task in ended] == [TaskState.CANCELLED] * 3


async def test_who_relays_wrong_codes_locks_out_nobody_else(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow", "relay": True}) as parts:
        boss, noisy, other = await boss_of(parts), await person(parts), await person(parts)
        challenges = []
        for each in (noisy, other):
            await each.starts()
            said = await each.steps(DENIED)
            challenges.append(said["notifications"][-1]["metadata"]["verificationId"])

        told = [await noisy.refused("verify_challenge", challenge_id=challenges[0], code="A" * 26) for _ in range(11)]
        code = await fresh_code(parts.site, challenges[1], boss)

        assert [type(each) for each in told] == [*[InvalidToken] * 10, RateLimited]
        assert (await boss.does("verify_challenge", challenge_id=challenges[1], code=code))["verified"] is True


async def test_another_execution_hides_no_failure(eager: Parts) -> None:
    bot = await person(eager)
    await bot.starts()
    await bot.does("execute_agent", element_name="second")
    await bot.steps("calling set_table for many")
    await bot.refused("set_table", seats=11)

    said = await bot.does(
        "record_execution_step", element_name="second", next_action_hint="calling set_table", outcome="success"
    )

    assert said["autonomy"]["reason"] == "The previous step failed"


async def test_what_was_confirmed_over_one_protocol_is_confirmed_with_its_defaults_too(kitchen: Open) -> None:
    asking = [{"operation": "set_table", "decision": "confirm"}]
    async with kitchen(safety={"policy": asking}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await boss.agrees(await bot.wants("set_table"))

        assert await bot.does("set_table", seats=1) == {"seats": 1}


async def test_while_one_agent_of_a_caller_waits_for_a_person_the_others_do_nothing(eager: Parts) -> None:
    bot = await person(eager)
    await bot.starts()
    await bot.starts("second")
    await bot.steps("calling set_table for two", name="second")
    await bot.steps("sudo systemctl restart nginx")

    assert isinstance(await bot.refused("set_table", seats=2), StepNeeded)
    await bot.does("complete_execution", element_name="bot")
    await bot.does("complete_execution", element_name="second")
    assert isinstance(await bot.refused("set_table", seats=2), StepNeeded)  # ending it is no way out


async def test_who_tries_to_approve_or_goes_on_though_blocked_is_written_down(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.refused("confirm_operation", confirmation_token="conf_" + "x" * 54)
    await bot.starts()
    await bot.steps(DENIED)
    await bot.refused("set_table")
    await bot.refused("set_table")

    told = await events(eager, boss)

    assert (told.count("APPROVAL_REFUSED"), told[-1]) == (1, "OPERATION_DENIED")
    assert told.count("OPERATION_DENIED") == 1  # once in a minute
