"""What a person has agreed to covers exactly the call it named, and no later stage asks for the same again."""

from typing import Any

import pytest
from tests.safety.conftest import Open, boss_of, events, fresh_code, person

from portico.catalog import Danger, Trust
from portico.errors import ConfirmationNeeded, SiteError, StepNeeded, TrustInsufficient
from portico.requests import Call
from portico.server.assembly import Parts

RENAMING = {"next_operation": "update_recipe"}


def renamed(id: str, name: str = "Broth") -> dict[str, Any]:
    return {"id": id, "input": {"name": name}}


# Exactly the call


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("update recipe r1", {"next_operation": "update_recipe"}),
        ("calling update_recipe on r1 to call it Broth", {}),
        ("calling update_recipe with params {'id': 'r1'}", {}),  # which is no JSON
    ],
)
async def test_a_step_agreed_to_without_parameters_covers_no_call_by_itself(
    eager: Parts, hint: str, said: dict[str, Any]
) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    await boss.agrees((await bot.steps(hint, risk_score=40, **said))["token"])
    assert (await bot.steps(hint, risk_score=40, **said))["continue"] is True

    other = await bot.refused("update_recipe", **renamed("r2"))
    needed = await bot.refused("update_recipe", **renamed("r1"))

    assert isinstance(other, ConfirmationNeeded)
    assert isinstance(needed, ConfirmationNeeded)
    assert needed.details["reasons"] == ["The approved step did not name its parameters"]
    await boss.agrees(needed.details["token"])
    assert isinstance(await bot.refused("update_recipe", **renamed("r2")), ConfirmationNeeded)
    assert await bot.does("update_recipe", **renamed("r1"))
    assert (await eager.store.items.get("recipes", "r2")).data["name"] == "Soup"
    assert isinstance(await bot.refused("update_recipe", **renamed("r1")), StepNeeded)


@pytest.mark.parametrize(
    "other",
    [renamed("r2"), renamed("R1"), renamed("r1", "broth"), {"id": "r1", "input": {"name": "Broth", "price": 1}}],
)
async def test_a_step_agreed_to_with_parameters_covers_that_call_and_no_other(
    eager: Parts, other: dict[str, Any]
) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    step = {**RENAMING, "next_params": renamed("r1"), "risk_score": 40}
    await boss.agrees((await bot.steps("update recipe r1", **step))["token"])
    assert (await bot.steps("update recipe r1", **step))["continue"] is True

    assert isinstance(await bot.refused("update_recipe", **other), StepNeeded)
    assert await bot.does("update_recipe", **renamed("r1"))  # nobody is asked a second time
    assert isinstance(await bot.refused("update_recipe", **renamed("r1")), StepNeeded)


async def test_the_order_of_names_does_not_make_another_call(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    step = {**RENAMING, "next_params": {"input": {"b": 1, "a": 2}, "id": "r1"}, "risk_score": 40}
    await boss.agrees((await bot.steps("update recipe r1", **step))["token"])
    await bot.steps("update recipe r1", **step)

    assert await bot.does("update_recipe", id="r1", input={"a": 2, "b": 1})


async def test_a_step_that_a_code_released_covers_no_call_that_it_did_not_name(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await bot.starts()
    said = await bot.steps("calling update_recipe on r1", risk_score=70)
    challenge = said["notifications"][-1]["metadata"]["verificationId"]
    code = await fresh_code(eager.site, challenge, boss)
    await boss.does("verify_challenge", challenge_id=challenge, code=code)
    assert (await bot.steps("calling update_recipe on r1", risk_score=70))["continue"] is True

    assert isinstance(await bot.refused("update_recipe", **renamed("r2")), ConfirmationNeeded)


# Once is enough


async def test_a_call_that_was_agreed_to_is_not_asked_about_again_when_an_agent_reports_it(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await boss.agrees(await bot.wants("delete_recipe", id="r1"))
    await bot.starts()

    other = await bot.steps("calling delete_recipe", next_operation="delete_recipe", next_params={"id": "r2"})
    said = await bot.steps("calling delete_recipe", next_operation="delete_recipe", next_params={"id": "r1"})

    assert (other["continue"], said["continue"]) == (False, True)
    assert await bot.does("delete_recipe", id="r1") == {"id": "r1", "deleted": True}
    again = await bot.steps("calling delete_recipe", next_operation="delete_recipe", next_params={"id": "r1"})
    assert again["continue"] is False  # once
    assert (await events(eager, boss)).count("TOKEN_VALIDATED") == 1


async def test_agreeing_to_a_call_agrees_to_nothing_else_that_a_hint_says(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    await boss.agrees(await bot.wants("delete_recipe", id="r1"))
    await bot.starts()
    step = {"next_operation": "delete_recipe", "next_params": {"id": "r1"}}

    said = await bot.steps("calling delete_recipe, then git push --force to production", **step)

    assert said["continue"] is False


async def test_a_call_agreed_to_does_not_lift_the_limit_of_steps(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow", "steps": 1}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await boss.agrees(await bot.wants("delete_recipe", id="r1"))
        await bot.starts()
        await bot.steps()

        said = await bot.steps("calling delete_recipe", next_operation="delete_recipe", next_params={"id": "r1"})

        assert said["reason"] == "Step limit exceeded"


@pytest.mark.parametrize("risk", [70, 99])
async def test_a_person_is_asked_for_what_the_strictest_stage_needs_and_only_once(kitchen: Open, risk: int) -> None:
    async with kitchen(safety={"start": "allow", "approve": ["set_table*"]}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await bot.starts()
        step = {"next_operation": "set_table", "next_params": {"seats": 2}, "risk_score": risk}

        paused = await bot.steps("calling set_table for two", **step)
        pending = await parts.site.supervision.pending(boss.caller)
        assert (paused["continue"], paused["reason"]) == (False, "The pattern set_table* requires approval")
        assert (len(pending.confirmations), len(pending.challenges)) == (0, 1)
        challenge = pending.challenges[0].id
        await boss.does("verify_challenge", challenge_id=challenge, code=await fresh_code(parts.site, challenge, boss))

        assert (await bot.steps("calling set_table for two", **step))["continue"] is True
        assert await bot.does("set_table", seats=2) == {"seats": 2}


@pytest.mark.parametrize(
    ("operation", "rights", "refusal"),
    [
        ("burn_kitchen", {"danger": Danger.DANGEROUS}, TrustInsufficient),
        ("burn_kitchen", {"danger": Danger.DESTRUCTIVE, "trust": Trust.CERTIFIED}, SiteError),
        ("set_table", {"trust": Trust.GENERATED}, TrustInsufficient),
    ],
)
async def test_nobody_is_asked_to_agree_to_what_is_refused_anyway(
    eager: Parts, operation: str, rights: dict[str, Any], refusal: type[SiteError]
) -> None:
    bot, boss = await person(eager, **{"danger": Danger.DESTRUCTIVE, **rights}), await boss_of(eager)
    helper = await person(eager)
    if rights.get("trust") is not Trust.GENERATED:
        await bot.starts()
        said = await bot.steps("take the step", next_operation=operation, next_params={}, risk_score=40)
        assert (said["continue"], said.get("stopped", False), said["token"]) == (False, False, None)
    pending = await eager.site.supervision.pending(boss.caller)

    assert (pending.confirmations, pending.challenges, pending.blocks) == ((), (), ())
    assert isinstance(await bot.refused(operation), (refusal, StepNeeded))
    assert await helper.does("set_table")


async def test_what_a_policy_denies_is_refused_when_it_is_reported(kitchen: Open) -> None:
    policy = [{"operation": "set_table", "decision": "deny", "when": {"seats": {"$gt": 8}}, "reason": "Too large"}]
    async with kitchen(safety={"start": "allow", "policy": policy}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await bot.starts()
        large = {"next_operation": "set_table", "next_params": {"seats": 9}, "risk_score": 40}

        said = await bot.steps("calling set_table for many", **large)

        assert (said["continue"], "Too large" in said["reason"], said["token"]) == (False, True, None)
        assert (await parts.site.supervision.pending(boss.caller)).confirmations == ()
        assert (await bot.steps("calling set_table for two"))["continue"] is True
        assert isinstance(await bot.hears(Call("set_table", {"seats": 9})), SiteError)
