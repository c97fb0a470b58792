"""Codes that only people see: what stops an agent, what releases it, and what guessing is worth."""

import asyncio
import json
from contextlib import closing
from datetime import UTC, datetime
from uuid import UUID

import apsw
import msgspec
import pytest
from tests.conformance.requirements import requirement
from tests.conftest import StoreUrl
from tests.safety.conftest import (
    ADDING,
    DENIED,
    Open,
    Person,
    again,
    blocked,
    boss_of,
    events,
    fresh_code,
    later,
    person,
)

from portico.access.identity import RequestCredentials
from portico.errors import (
    AgentBlocked,
    Forbidden,
    InvalidToken,
    RateLimited,
    SiteError,
    StepNeeded,
    TokenExpired,
    Unauthenticated,
    UnknownItem,
)
from portico.requests import Call
from portico.safety.models import Notification, NotificationSubject
from portico.safety.records import Broadcast
from portico.server.assembly import Parts
from portico.store.records import SafetyRecord

WRONG = "A" * 26
NOWHERE = "00000000-0000-4000-8000-000000000000"
RISKY = {"hint": 'calling set_table with params {"seats": 1}', "risk_score": 70}
ALLOWED = {"start": "allow"}
REPORTED = {
    "execute_agent": {"element_name": "bot"},
    "record_execution_step": {"element_name": "bot", "next_action_hint": ADDING},
}


async def verifies(who: Person, challenge: str, code: str = WRONG) -> SiteError | None:
    try:
        await who.does("verify_challenge", challenge_id=challenge, code=code)
    except SiteError as error:
        return error
    return None


async def guesses(who: Person, challenge: str, times: int) -> list[type[SiteError]]:
    return [type(await verifies(who, challenge)) for _ in range(times)]


@pytest.fixture
def url(store_url: StoreUrl) -> str:
    """Of a store that can be opened again."""
    return store_url("sqlite")


@requirement(
    "aql:stage:deny",
    "aql:block:rejected",
    "aql:block:code",
    "aql:block:execution-cancelled",
    "aql:oob:required",
    "aql:oob:verified",
    "aql:oob:granted-once",
    "aql:oob:one-use",
    "aql:oob:challenge-id",
)
async def test_a_denied_step_blocks_its_agent_until_a_person_enters_the_code(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    execution = await bot.starts()
    other = await bot.starts("helper")

    stopped = await bot.steps(DENIED)

    assert (stopped["continue"], stopped["stopped"], stopped["nextStepRisk"]) == (False, True, "danger_zone")
    (news,) = stopped["notifications"]
    challenge = news["metadata"]["verificationId"]
    assert (news["type"], UUID(challenge).version) == ("danger_zone", 4)
    calls = [
        Call("execute_agent", {"element_name": "bot"}),
        Call("record_execution_step", {"element_name": "bot", "next_action_hint": ADDING}),
        Call("complete_execution", {"element_name": "bot"}),
        Call("abort_execution", {"element_name": "helper"}),
        Call("cancel_execution", {"execution_id": execution}),
        Call("set_table", {}),
        Call("create_recipe", {"id": "new", "input": {"name": "Soup"}}),
        Call("close_kitchen", {}),
        Call("set_table", {}, run="later"),
    ]
    for call in calls:
        told = await bot.hears(call)
        assert (type(told), told.details) == (
            AgentBlocked,
            {"reason": "agent_blocked", "verification_id": challenge},
        )
    assert await bot.does("get_recipe", id="r1")
    for each in (execution, other):
        assert (await bot.does("get_execution_status", execution_id=each))["status"] == "cancelled"

    code = await fresh_code(eager.site, challenge, boss)
    said = await boss.does("verify_challenge", challenge_id=challenge, code=code.lower())
    assert said == {"verified": True, "challenge_id": challenge, "agent": "bot", "unblocked": True}
    assert type(await verifies(boss, challenge, code)) is InvalidToken

    await bot.does("set_table")
    await bot.starts()
    assert (await bot.steps(DENIED))["continue"] is True  # that very step was looked at
    assert (await bot.steps(DENIED))["stopped"] is True


@requirement("aql:notify:danger-broadcast", "aql:notify:broadcast-discreet", "aql:notify:danger-cleared")
async def test_all_who_are_at_work_hear_of_a_block_but_not_whose_it_is(eager: Parts) -> None:
    bot, other, boss = await person(eager), await person(eager, name="other"), await boss_of(eager)
    await other.starts()
    challenge = await blocked(bot)

    (news,) = (await other.steps())["notifications"]

    assert (news["type"], news["metadata"]["verificationId"]) == ("danger_zone", challenge)
    assert not any(word in str(news) for word in ("rm -rf", "bot", bot.caller.id))
    assert type(await verifies(other, challenge)) is Forbidden
    await boss.does("verify_challenge", challenge_id=challenge, code=await fresh_code(eager.site, challenge, boss))
    assert "notifications" not in await other.steps()


async def test_the_newest_block_is_heard_of_however_many_there_were(eager: Parts) -> None:
    bot, other = await person(eager), await person(eager, name="other")
    past = Notification(
        type="danger_zone",
        message="Long ago",
        metadata=NotificationSubject(),
        timestamp=datetime(2020, 1, 1, tzinfo=UTC),
    )
    first = [Broadcast(id=f"!{number}", notice=past) for number in range(120)]  # in the order of ids
    await eager.store.audit.commit(
        [SafetyRecord("Broadcast", each.id, msgspec.json.encode(each), 0, None) for each in first], []
    )
    await other.starts()
    challenge = await blocked(bot)

    (news,) = (await other.steps())["notifications"]

    assert news["metadata"]["verificationId"] == challenge


@requirement("aql:attack:code-burned", "aql:attack:challenge-probed", "aql:self:prevented")
async def test_an_agent_cannot_use_up_a_code_nor_learn_from_trying(eager: Parts) -> None:
    bot, boss = await person(eager, "ask", "*:*", "approve"), await boss_of(eager)
    challenge = await blocked(bot)
    code = await fresh_code(eager.site, challenge, boss)
    plain = await person(eager)

    for tried in (WRONG, code):
        told = await verifies(bot, challenge, tried)
        assert told is not None
        assert type(told) is AgentBlocked
    nobody = await eager.site.access.authenticate(RequestCredentials(address="10.0.0.1"))
    with pytest.raises(Unauthenticated):
        await eager.site.call(Call("verify_challenge", {"challenge_id": challenge, "code": code}), nobody)
    known, unknown, odd = [await verifies(plain, id, code) for id in (challenge, NOWHERE, "x\u2028")]
    assert known is not None
    assert unknown is not None
    assert odd is not None
    assert len({(type(each), each.message, str(each.details)) for each in (known, unknown, odd)}) == 1
    with pytest.raises(AgentBlocked):
        await eager.site.supervision.reissue(challenge, bot.caller)
    with pytest.raises(AgentBlocked):
        await eager.site.supervision.unblock(bot.caller.id, "", bot.caller)

    assert await verifies(boss, challenge, code) is None  # it is still good


@requirement("aql:oob:failed", "aql:oob:reissue", "aql:attack:challenge-probed", "aql:rate:audit")
async def test_a_wrong_code_makes_the_right_one_useless_and_is_told_like_an_unknown_challenge(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    challenge = await blocked(bot)
    code = await fresh_code(eager.site, challenge, boss)

    wrong, unknown, late = [
        await verifies(boss, *tried) for tried in ((challenge, WRONG), (NOWHERE, WRONG), (challenge, code))
    ]

    assert wrong is not None
    assert unknown is not None
    assert late is not None
    assert type(wrong) is InvalidToken
    assert len({(type(each), each.message, str(each.details), each.hint) for each in (wrong, unknown, late)}) == 1
    assert isinstance(await bot.refused("set_table"), AgentBlocked)
    assert (await events(eager, boss)).count("VERIFICATION_FAILED") == 3
    assert await verifies(boss, challenge, await fresh_code(eager.site, challenge, boss)) is None


@requirement("aql:rate:eleventh", "aql:rate:restart", "aql:rate:window", "aql:rate:lockout", "aql:attack:code-guessed")
async def test_after_ten_wrong_codes_none_is_looked_at_for_a_while_also_after_a_restart(
    kitchen: Open, url: str
) -> None:
    async with kitchen(url, safety=ALLOWED) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        challenge = await blocked(bot)
        assert await guesses(boss, challenge, 5) == [InvalidToken] * 5
    async with kitchen(url, safety=ALLOWED) as parts:
        boss = await again(boss, parts)
        assert await guesses(boss, NOWHERE, 5) == [InvalidToken] * 5  # ids may differ: they count for all
        assert await guesses(boss, challenge, 2) == [RateLimited] * 2
    async with kitchen(url, safety=ALLOWED) as parts:
        boss = await again(boss, parts)
        code = await fresh_code(parts.site, challenge, boss)
        locked = await verifies(boss, challenge, code)
        assert isinstance(locked, RateLimited)
        assert 0 < locked.details["retry_after"] <= 60

        after = later(parts.site, 61).guard.supervision
        for _ in range(10):
            with pytest.raises(InvalidToken):
                await after.verify(NOWHERE, WRONG, boss.caller)
        with pytest.raises(RateLimited) as again_locked:
            await after.verify(challenge, code, boss.caller)
        assert 60 < again_locked.value.details["retry_after"] <= 120  # each time for longer
        with pytest.raises(RateLimited):
            await later(parts.site, 61 + 100).guard.supervision.verify(challenge, code, boss.caller)

        assert await later(parts.site, 61 + 121).guard.supervision.verify(
            challenge, code, boss.caller
        )  # and was not used up


async def test_guesses_that_come_at_once_are_counted_like_others(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    challenge = await blocked(bot)

    told = await asyncio.gather(*(verifies(boss, challenge) for _ in range(25)))

    assert sorted(type(each).__name__ for each in told) == ["InvalidToken"] * 10 + ["RateLimited"] * 15


@requirement("aql:oob:expires", "aql:oob:expired-fails")
async def test_a_code_is_good_for_five_minutes_and_a_block_for_good(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    challenge = await blocked(bot)
    code = await fresh_code(eager.site, challenge, boss)
    late = later(eager.site, 301)

    with pytest.raises(TokenExpired):
        await late.guard.supervision.verify(challenge, code, boss.caller)
    assert isinstance(await later(eager.site, 10 * 365 * 86_400).refuses(Call("set_table", {}), bot), AgentBlocked)
    assert [each.verification_id for each in (await late.guard.supervision.pending(boss.caller)).blocks] == [challenge]

    _, fresh = await late.guard.supervision.reissue(challenge, boss.caller)
    assert await late.guard.supervision.verify(challenge, fresh.reveal(), boss.caller)


@requirement("aql:oob:reissue", "aql:attack:flood")
async def test_people_are_shown_a_fresh_code_when_the_old_one_has_expired_and_not_more_often(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    challenge = await blocked(bot)
    soon, late = later(eager.site, 290), later(eager.site, 301)

    for _ in range(3):
        await soon.refuses(Call("set_table", {}), bot)
        await late.refuses(Call("set_table", {}), bot)

    assert soon.shown == []
    (code,) = late.shown
    assert await late.guard.supervision.verify(challenge, code.reveal(), boss.caller)


@requirement("aql:attack:store-deleted")
async def test_a_block_is_on_disk_when_it_is_told_and_without_the_disk_nothing_goes_on(kitchen: Open, url: str) -> None:
    async with kitchen(url, safety=ALLOWED) as parts:
        bot, other = await person(parts), await person(parts)
        await other.starts()
        challenge = await blocked(bot)
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as file:
            kept = file.execute("SELECT data FROM cases WHERE kind = 'Agent' AND id = ?", (bot.caller.id,)).fetchone()
            assert json.loads(kept[0])["block"]["challenge"] == challenge
            file.execute("DROP TABLE cases")

        for operation in ("set_table", "execute_agent", "record_execution_step"):
            for who in (bot, other):
                with pytest.raises(SiteError, match="The store is not whole"):
                    await who.does(operation, **REPORTED.get(operation, {}))


@requirement("aql:block:restart", "aql:block:new-execution", "aql:attack:renamed-agent")
async def test_neither_a_restart_nor_another_name_gets_around_a_block(kitchen: Open, url: str) -> None:
    async with kitchen(url, safety=ALLOWED) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        challenge = await blocked(bot)
    async with kitchen(url, safety=ALLOWED) as parts:
        bot, boss = await again(bot, parts), await again(boss, parts)
        for name in ("bot", "BOT", "ｂｏｔ", "b\u200bot", "bo\u0442", " bot ", "somebody else"):
            told = await bot.refused("execute_agent", element_name=name)
            assert (type(told), told.details.get("verification_id")) == (AgentBlocked, challenge)
        assert isinstance(await bot.refused("set_table"), AgentBlocked)

        assert await verifies(boss, challenge, await fresh_code(parts.site, challenge, boss)) is None
        await bot.does("set_table")


@requirement("aql:block:override")
async def test_an_operators_override_releases_and_stands_in_the_trail(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    challenge = await blocked(bot)
    supervision = eager.site.supervision

    with pytest.raises(Forbidden):
        await supervision.unblock(bot.caller.id, "", (await person(eager)).caller)
    await supervision.unblock(bot.caller.id, "Looked at it", boss.caller)

    await bot.does("set_table")
    line = (await supervision.trail(0, 100, boss.caller))[-1]
    assert (line.event, line.body) == (
        "ADMIN_OVERRIDE",
        {"caller": bot.caller.id, "challenge": challenge, "by": boss.caller.id, "note": "Looked at it"},
    )
    assert type(await verifies(boss, challenge)) is InvalidToken
    with pytest.raises(UnknownItem):
        await supervision.unblock(bot.caller.id, "", boss.caller)


async def test_who_is_blocked_agrees_to_nothing_of_others(eager: Parts) -> None:
    bot, other = await person(eager, "ask", "*:*", "approve"), await person(eager)
    token = await other.wants("close_kitchen")
    await blocked(bot)

    assert isinstance(await bot.refused("confirm_operation", confirmation_token=token), AgentBlocked)


# Pauses


async def test_a_verification_outlives_another_process_that_opens_the_store(kitchen: Open, url: str) -> None:
    async with kitchen(url, safety=ALLOWED) as parts:
        bot = await person(parts)
        await bot.starts()
        await bot.steps(**RISKY)
        async with kitchen(url, safety=ALLOWED):
            assert (await bot.steps())["continue"] is False
        assert (await bot.steps())["continue"] is False


@requirement(
    "aql:stage:verify",
    "aql:block:verify-pending",
    "aql:block:verify-restart",
    "aql:block:verify-new-execution",
    "aql:notify:verification-id",
    "aql:notify:autonomy-cleared",
)
async def test_a_verification_holds_an_agent_up_until_it_is_given_or_the_site_starts_again(
    kitchen: Open, url: str
) -> None:
    async with kitchen(url, safety=ALLOWED) as parts:
        bot = await person(parts)
        await bot.starts()
        paused = await bot.steps(**RISKY)
        assert (paused["continue"], "stopped" in paused, paused["nextStepRisk"]) == (False, False, "verify")
        (news,) = paused["notifications"]
        challenge = news["metadata"]["verificationId"]
        assert news["type"] == "autonomy_pause"

        for hint in (RISKY["hint"], ADDING):
            pending = await bot.steps(hint)
            assert pending["continue"] is False
            assert challenge in pending["reason"]
        await bot.starts("helper")
        assert challenge in (await bot.steps(name="helper"))["reason"]
        assert isinstance(await bot.refused("set_table"), StepNeeded)
    async with kitchen(url, safety=ALLOWED) as parts:
        bot, boss = await again(bot, parts), await boss_of(parts)
        assert (await bot.steps())["continue"] is True
        anew = (await bot.steps(**RISKY))["notifications"][-1]["metadata"]["verificationId"]
        assert anew != challenge

        assert await verifies(boss, anew, await fresh_code(parts.site, anew, boss)) is None
        assert (await bot.steps(**RISKY))["continue"] is True
        await bot.does("set_table")


@requirement("aql:block:verify-expiry")
async def test_when_a_verification_expires_the_step_is_looked_at_anew(eager: Parts) -> None:
    bot = await person(eager)
    await bot.starts()
    first = (await bot.steps(**RISKY))["notifications"][0]["metadata"]["verificationId"]
    late = later(eager.site, 301)

    second = await late.steps(bot, RISKY["hint"], risk=70)

    assert not second.autonomy.may_continue
    (news,) = second.autonomy.notifications
    assert news.metadata.verification_id not in {first, ""}
    assert (await later(eager.site, 700).steps(bot)).autonomy.may_continue


@requirement("aql:oob:relay")
async def test_an_agent_passes_a_code_on_only_where_the_site_says_so(kitchen: Open) -> None:
    async with kitchen(safety={**ALLOWED, "relay": True}) as parts:
        bot, other, boss = await person(parts), await person(parts), await boss_of(parts)
        challenge = await blocked(bot)
        code = await fresh_code(parts.site, challenge, boss)

        assert type(await verifies(other, challenge, code)) is Forbidden
        assert await verifies(bot, challenge, code) is None

        last = (await parts.site.supervision.trail(0, 100, boss.caller))[-1]
        assert (last.event, last.body["by"]) == ("VERIFIED", f"relayed by {bot.caller.id}")


@requirement("aql:oob:entropy")
async def test_codes_have_128_bits_and_are_never_the_same(eager: Parts) -> None:
    bot, boss = await person(eager), await boss_of(eager)
    challenge = await blocked(bot)

    codes = [await fresh_code(eager.site, challenge, boss) for _ in range(20)]

    assert len(set(codes)) == 20
    assert {len(code) for code in codes} == {26}  # of 32 signs each
    assert len({code[0] for code in codes}) > 1
    assert type(await verifies(boss, challenge, codes[0])) is InvalidToken  # an older one is of no use
