"""What one caller wants and another agrees to: once, for exactly that, in time, and never by themselves."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.safety.conftest import DENIED, Open, boss_of, events, later, person

from portico.access.identity import RequestCredentials, local_operator
from portico.catalog import Danger, Trust
from portico.errors import (
    ConfirmationNeeded,
    DangerDenied,
    Forbidden,
    InvalidToken,
    RateLimited,
    SiteError,
    TokenExpired,
    TokenMismatch,
    TokenUsed,
    TrustInsufficient,
    Unauthenticated,
)
from portico.requests import Call, Outcome
from portico.server.assembly import Parts

DELETING = Call("delete_recipe", {"id": "r1"})


def with_token(token: str, **params: Any) -> Call:
    return Call("delete_recipe", params or {"id": "r1"}, confirmation=token)


async def is_there(parts: Parts, id: str = "r1") -> bool:
    return await parts.store.items.get("recipes", id) is not None


@requirement("aql:self:other-principal", "aql:token:required", "aql:gate:audit", "aql:token:audit")
async def test_what_somebody_else_has_agreed_to_runs_once(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)

    needed = await bot.hears(DELETING)
    assert isinstance(needed, ConfirmationNeeded)
    assert set(needed.details) == {"token", "operation", "danger", "reasons", "expires_at"}
    assert (needed.details["operation"], needed.details["danger"]) == ("delete_recipe", "destructive")
    assert await is_there(parts)

    token = needed.details["token"]
    assert (await boss.agrees(token))["confirmed"] is True
    assert await is_there(parts)  # to agree is not to do
    assert await bot.calls(with_token(token)) == {"id": "r1", "deleted": True}

    assert isinstance(await bot.hears(with_token(token)), TokenUsed)
    assert await events(parts, boss) == [
        "CONFIRMATION_REQUIRED",
        "CONFIRMATION_GRANTED",
        "TOKEN_VALIDATED",
        "OPERATION_CLEARED",
        "TOKEN_REJECTED",
    ]


async def test_the_token_need_not_be_sent_again(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    await boss.agrees(await bot.wants("delete_recipe", id="r1"))

    await bot.calls(DELETING)

    assert isinstance(await bot.hears(DELETING), ConfirmationNeeded)


@requirement("aql:self:prevented", "aql:self:own-token", "aql:self:scope", "aql:attack:second-session")
async def test_nobody_agrees_to_their_own_call(parts: Parts) -> None:
    bot = await person(parts, "ask", "*:*", "approve")
    token = await bot.wants("delete_recipe", id="r1")
    same = await parts.site.access.authenticate(
        RequestCredentials(bot.key, address="10.9.8.7")
    )  # the same key from elsewhere
    stranger = await person(parts)  # may do everything but agree

    assert isinstance(await bot.hears(with_token(token)), ConfirmationNeeded)
    refused = await bot.refused("confirm_operation", confirmation_token=token)
    with pytest.raises(Forbidden):
        await parts.site.call(Call("confirm_operation", {"confirmation_token": token}, session="another"), same)

    assert refused.details == {"reason": "self_approval"}
    assert isinstance(await stranger.refused("confirm_operation", confirmation_token=token), Forbidden)
    assert isinstance(await bot.hears(with_token(token)), ConfirmationNeeded)
    assert await is_there(parts)
    assert (await events(parts, await boss_of(parts))).count("SELF_APPROVAL_REFUSED") == 2


@requirement("aql:self:unauthenticated")
async def test_callers_without_a_name_agree_to_nothing(kitchen: Open) -> None:
    async with kitchen(anonymous={"scopes": ["ask", "*:*", "approve"], "danger": "destructive"}) as parts:
        bot = await person(parts)
        token = await bot.wants("delete_recipe", id="r1")
        nobody = await parts.site.access.authenticate(RequestCredentials(address="10.0.0.1"))

        with pytest.raises(Unauthenticated):
            await parts.site.call(Call("confirm_operation", {"confirmation_token": token}), nobody)
        with pytest.raises(ConfirmationNeeded):  # what they want themselves waits for somebody with a key
            await parts.site.call(Call("delete_recipe", {"id": "r2"}), nobody)

        assert isinstance(await bot.hears(DELETING), ConfirmationNeeded)


@requirement("aql:token:other-caller", "aql:token:unknown", "aql:token:no-values")
async def test_the_token_of_another_is_not_valid_whatever_its_state(parts: Parts) -> None:
    bot, thief, boss = await person(parts), await person(parts), await boss_of(parts)
    pending, approved, used, rejected = [await bot.wants("delete_recipe", id=f"r{number}") for number in range(1, 5)]
    await boss.agrees(approved)
    await boss.agrees(used)
    await bot.calls(with_token(used, id="r3"))
    await boss.agrees(rejected, "reject")
    never = "conf_" + "A" * 54

    told = [
        await thief.hears(with_token(token, id=f"r{number}"))
        for number, token in enumerate((pending, approved, used, rejected, never), 1)
    ]

    assert [type(each) for each in told] == [InvalidToken] * 5
    assert [(each.message, each.details) for each in told] == [
        ("The confirmation is not valid", {"token": token[:10]}) for token in (pending, approved, used, rejected, never)
    ]
    assert await is_there(parts, "r2")
    assert await bot.calls(with_token(approved, id="r2"))  # which did not use it up


@pytest.mark.parametrize("token", ["x", "conf_", "conf_\x00", "conf_\ud800", "conf_ä" * 9, "conf_" + "a" * 5000])
async def test_what_is_no_token_is_not_valid(parts: Parts, token: str) -> None:
    bot = await person(parts)

    told = await bot.hears(with_token(token))

    assert (type(told), told.message) == (InvalidToken, "The confirmation is not valid")


@requirement("aql:token:changed-params", "aql:token:changed-operation", "aql:attack:params-swapped")
@pytest.mark.parametrize(
    "call",
    [
        Call("delete_recipe", {"id": "r2"}),
        Call("delete_recipe", {"id": "R1"}),
        Call("close_kitchen", {}),
        Call("close_kitchen", {"why": "r1"}),
    ],
)
async def test_a_token_is_for_one_call_with_its_parameters(parts: Parts, call: Call) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("delete_recipe", id="r1")
    await boss.agrees(token)

    told = await bot.hears(Call(call.operation, call.params, confirmation=token))

    assert isinstance(told, TokenMismatch)
    assert told.details == {
        "token": token[:10],
        "token_operation": "delete_recipe",
        "requested_operation": call.operation,
    }
    await bot.calls(with_token(token))  # it is still good for what it is for


@requirement("aql:token:replay", "aql:attack:double-redemption")
async def test_of_many_that_redeem_one_approval_at_once_one_runs(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("close_kitchen", why="it is late")
    await boss.agrees(token)

    async def redeem(number: int) -> Outcome | SiteError:
        try:
            call = Call("close_kitchen", {"why": "it is late"}, confirmation=token if number % 2 else "")
            outcome = await parts.site.call(call, bot.caller)
            assert isinstance(outcome, Outcome)
            return outcome
        except SiteError as error:
            return error

    told = await asyncio.gather(*(redeem(number) for number in range(20)))

    ran = [each for each in told if isinstance(each, Outcome)]
    others = {type(each) for each in told if isinstance(each, SiteError)}
    assert len(ran) == 1
    assert others <= {TokenUsed, InvalidToken, ConfirmationNeeded}
    assert (await events(parts, boss)).count("OPERATION_CLEARED") == 1
    assert (await events(parts, boss)).count("TOKEN_VALIDATED") == 1


@requirement("aql:self:reject")
async def test_what_was_turned_down_does_not_run(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("delete_recipe", id="r1")

    assert (await boss.agrees(token, "reject"))["confirmed"] is False

    assert type(await bot.hears(with_token(token))) is InvalidToken
    assert isinstance(await boss.refused("confirm_operation", confirmation_token=token), TokenUsed)
    again = await bot.refused("delete_recipe", id="r1")
    assert (type(again), again.details["reason"]) == (Forbidden, "rejected")  # and nobody is asked again at once
    assert await is_there(parts)


@requirement("aql:token:expired", "aql:token:lifetime", "aql:attack:clock")
async def test_an_approval_is_good_for_five_minutes(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    forgotten, token = [await bot.wants("delete_recipe", id=id) for id in ("r2", "r1")]
    await boss.agrees(token)
    soon, late = later(parts.site, 290), later(parts.site, 301)

    told = await late.refuses(with_token(token), bot)
    assert isinstance(told, TokenExpired)
    assert set(told.details) == {"token", "expired_at", "current_time"}
    with pytest.raises(TokenExpired):
        await late.guard.supervision.confirm(forgotten, "approve", "", boss.caller)
    assert isinstance(await late.refuses(DELETING, bot), ConfirmationNeeded)  # without the token it is asked anew

    (waiting,) = [
        each for each in (await soon.guard.supervision.pending(boss.caller)).confirmations if each.token == forgotten
    ]
    assert await soon.guard.supervision.confirm(forgotten, "approve", "", boss.caller, digest=waiting.digest)
    assert await soon.clears(with_token(forgotten, id="r2"), bot) is None


async def test_an_approval_that_is_late_by_the_clock_of_one_process_stays_late_for_the_others(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("delete_recipe", id="r1")
    await boss.agrees(token)

    await later(parts.site, 301).refuses(DELETING, bot)  # asks anew, in place of the old one

    assert type(await bot.hears(with_token(token))) is InvalidToken
    assert await is_there(parts)


@requirement("aql:token:format")
async def test_tokens_have_the_form_of_the_specification_and_are_never_the_same(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    tokens = set[str]()
    for _ in range(3):
        token = await bot.wants("close_kitchen")
        assert token == await bot.wants("close_kitchen")  # nobody is asked twice for the same
        await boss.agrees(token)
        await bot.does("close_kitchen")
        tokens.add(token)

    assert len(tokens) == 3
    for token in tokens:
        prefix, _, secret = token.partition("_")
        assert prefix == "conf"
        assert secret.replace("-", "").replace("_", "").isalnum()
        assert 22 <= len(secret) <= 64


@requirement("aql:attack:flood")
async def test_one_caller_has_at_most_fifty_things_waiting(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    for number in range(50):
        await bot.hears(Call("close_kitchen", {"why": str(number)}, session="s1"))

    assert isinstance(await bot.refused("close_kitchen", why="50"), RateLimited)
    assert await bot.wants("close_kitchen", why="7")  # which waits already

    waiting = (await parts.site.supervision.pending(boss.caller)).confirmations
    assert len(waiting) == 50
    await boss.agrees(waiting[0].token)
    assert await bot.wants("close_kitchen", why="50")

    await parts.site.access.end_session("s1")
    assert len((await parts.site.supervision.pending(boss.caller)).confirmations) == 2  # what was wanted in no session
    assert await bot.wants("close_kitchen", why="51")


@requirement("aql:session:tokens-end")
async def test_the_end_of_a_session_takes_nothing_from_another(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    first, second = (Call("close_kitchen", {"why": "x"}, session=each) for each in ("s1", "s2"))

    await boss.agrees((await bot.hears(first)).details["token"])
    await bot.calls(first)
    await boss.agrees((await bot.hears(second)).details["token"])
    await parts.site.access.end_session("s1")
    assert await bot.calls(second) == {"why": "x"}

    wanted = [(await bot.hears(each)).details["token"] for each in (first, second)]
    await boss.agrees(wanted[0])
    await parts.site.access.end_session("s1")
    assert wanted[0] == wanted[1]
    assert await bot.calls(second) == {"why": "x"}


async def test_what_is_done_while_its_session_ends_is_done_and_cannot_be_done_again(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    calls = [Call("close_kitchen", {"why": str(number)}, session="s1") for number in range(10)]
    tokens = [(await bot.hears(each)).details["token"] for each in calls]
    for token in tokens:
        await boss.agrees(token)
    sent = [replace(each, confirmation=token) for each, token in zip(calls, tokens, strict=True)]

    _, *ran = await asyncio.gather(
        parts.site.access.end_session("s1"),
        *(parts.site.call(each, bot.caller) for each in sent),
        return_exceptions=True,
    )

    after = [type(await bot.hears(each)) for each in sent]
    assert after == [TokenUsed if isinstance(each, Outcome) else InvalidToken for each in ran]


async def test_who_agrees_sees_what_it_is_and_whose(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("delete_recipe", id="r1")

    (waiting,) = (await parts.site.supervision.pending(boss.caller)).confirmations

    assert (waiting.token, waiting.what, waiting.caller) == (token, "call", bot.caller.id)
    assert (waiting.operation, waiting.params, waiting.danger) == ("delete_recipe", {"id": "r1"}, "destructive")
    wrong = await boss.refused("confirm_operation", confirmation_token=token, operation="get_recipe")
    assert isinstance(wrong, TokenMismatch)
    right = await boss.does(
        "confirm_operation", confirmation_token=token, operation="delete_recipe", digest=waiting.digest
    )
    assert right["confirmed"] is True


@requirement("aql:self:acknowledge")
async def test_callers_confirm_their_own_calls_only_where_the_site_lets_them_and_outside_of_executions(
    kitchen: Open,
) -> None:
    async with kitchen(safety={"acknowledge": True}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        token = await bot.wants("delete_recipe", id="r1")
        assert isinstance(await bot.hears(DELETING), ConfirmationNeeded)  # the token shows that it was read
        await bot.calls(with_token(token))
        validated = next(
            each for each in await parts.site.supervision.trail(0, 100, boss.caller) if each.event == "TOKEN_VALIDATED"
        )
        assert validated.body["by"] == f"acknowledged by {bot.caller.id}"

        start = Call("execute_agent", {"element_name": "bot"})
        token = (await bot.hears(start)).details["token"]
        assert isinstance(await bot.hears(Call("execute_agent", start.params, confirmation=token)), ConfirmationNeeded)
        await boss.agrees(token)
        await bot.calls(start)
        asked = await bot.steps("calling close_kitchen now that everybody has left")
        await boss.agrees(asked["token"])
        assert (await bot.steps("calling close_kitchen now that everybody has left"))["continue"] is True
        own = await bot.wants("close_kitchen")
        assert isinstance(await bot.hears(Call("close_kitchen", {}, confirmation=own)), ConfirmationNeeded)


async def test_an_idempotency_key_gives_the_first_answer_of_a_confirmed_call_again(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    call = Call("delete_recipe", {"id": "r1"}, key="k1")
    await boss.agrees((await bot.hears(call)).details["token"])

    first = await parts.site.call(call, bot.caller)
    second = await parts.site.call(call, bot.caller)

    assert isinstance(first, Outcome)
    assert second == Outcome("delete_recipe", first.result, repeated=True)
    assert (await events(parts, boss)).count("TOKEN_VALIDATED") == 1


async def test_who_sits_at_the_machine_is_asked_for_nothing(parts: Parts) -> None:
    await parts.site.call(DELETING, local_operator())

    assert not await is_there(parts)


# Policies and trust


@requirement("aql:gate:matrix", "aql:gate:trust-insufficient", "aql:gate:danger-denied", "aql:gate:untested")
async def test_danger_and_trust_decide_as_the_table_says(parts: Parts) -> None:
    ladder = ("get_recipe", "set_table", "close_kitchen", "burn_kitchen")
    found: dict[str, list[str]] = {}
    for trust in Trust:
        who = await person(parts, danger=Danger.DANGEROUS, trust=trust)
        found[trust.name.lower()] = []
        for operation in ladder:
            try:
                await who.does(operation, **({"id": "r1"} if operation == "get_recipe" else {}))
                found[trust.name.lower()].append("runs")
            except SiteError as error:
                found[trust.name.lower()].append(type(error).__name__)

    denied, asks = TrustInsufficient.__name__, ConfirmationNeeded.__name__
    assert found == {
        "untested": [denied, denied, denied, denied],
        "generated": ["runs", denied, denied, denied],
        "validated": ["runs", "runs", asks, denied],
        "community_reviewed": ["runs", "runs", asks, asks],
        "certified": ["runs", "runs", "runs", "runs"],
    }
    careful = await person(parts, danger=Danger.REVERSIBLE, trust=Trust.CERTIFIED)
    assert isinstance(await careful.refused("close_kitchen"), DangerDenied)
    told = await (await person(parts, trust=Trust.GENERATED)).refused("set_table")
    assert told.details == {
        "operation": "set_table",
        "required_trust": "validated",
        "actual_trust": "generated",
        "danger_level": 1,
    }


POLICIES = [
    {"operation": "set_*", "decision": "confirm", "when": {"seats": {"$gt": 4}}, "reason": "Large tables"},
    {"operation": "set_table", "decision": "deny", "when": {"seats": {"$gt": 8}}, "reason": "Too large"},
    {"operation": "*", "decision": "allow"},
    {"operation": "close_kitchen", "decision": "allow"},
    {"operation": "close_kitchen", "decision": "deny", "when": {"why": {"$eq": ""}}, "reason": "Say why"},
]


@requirement("aql:gate:policies")
async def test_of_all_policies_the_strictest_holds(kitchen: Open) -> None:
    async with kitchen(safety={"policy": POLICIES, "start": "allow"}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        sure = await person(parts, danger=Danger.DANGEROUS, trust=Trust.CERTIFIED)

        assert await bot.does("set_table", seats=4) == {"seats": 4}
        large = await bot.refused("set_table", seats=5)
        assert (type(large), large.details["reasons"]) == (ConfirmationNeeded, ["Large tables"])
        for who in (bot, sure):
            too_large = await who.refused("set_table", seats=9)
            assert (type(too_large), too_large.message) == (Forbidden, "Too large")
        for said in ({}, {"why": ""}):  # what is left out counts as its default
            assert (await sure.refused("close_kitchen", **said)).message == "Say why"
        asked = await bot.refused("close_kitchen", why="late")
        assert isinstance(asked, ConfirmationNeeded)  # allowing takes nothing away
        await boss.agrees(large.details["token"])
        assert await bot.does("set_table", seats=5) == {"seats": 5}

        await bot.starts()
        assert await bot.does("get_recipe", id="r1")  # to read needs no step, though a policy speaks of it
        assert (await bot.steps(DENIED))["stopped"] is True
        assert await bot.does("get_recipe", id="r1")  # nor a release


async def test_reading_that_is_declared_destructive_waits_like_all_that_is(parts: Parts) -> None:
    bot = await person(parts)

    assert isinstance(await bot.refused("taste_soup"), ConfirmationNeeded)


@requirement("aql:attack:limits-raised")
async def test_no_operation_writes_limits_or_policies(parts: Parts) -> None:
    words = ("polic", "limit", "safety", "setting", "config", "key", "trust", "unblock", "override")

    assert [name for name in parts.site.catalog.operations if any(word in name for word in words)] == []
