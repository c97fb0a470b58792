"""Who approves sees the whole call, and approves exactly what was shown, on every way of approving."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import httpx
import pytest
from tests.protocols.conftest import listening
from tests.safety.conftest import Open, Person, boss_of, events, later, person

from portico.access.identity import RequestCredentials
from portico.errors import (
    ConfirmationNeeded,
    Forbidden,
    InvalidCursor,
    RateLimited,
    TokenExpired,
    TokenMismatch,
    Unauthenticated,
)
from portico.requests import Call
from portico.server.assembly import Parts

LONG = "A fine soup. " * 400  # more than five kilobytes
ITEM = {"id": "r1", "input": {"description": LONG, "price": 0.01}}
BIG = {f"part{number}": "x" * 9000 for number in range(60)}  # more than half of what one caller may have waiting
POLICY = [{"operation": "update_recipe", "decision": "confirm"}]
Leaving: TypeAlias = Callable[[Parts, Person, Person, Call], Awaitable[None]]


@pytest.fixture
async def parts(kitchen: Open) -> AsyncIterator[Parts]:
    async with kitchen(safety={"policy": POLICY, "start": "allow"}) as parts:
        yield parts


async def listed(who: Person, **params: Any) -> dict[str, Any]:
    return await who.does("list_pending_approvals", **params)


async def test_the_price_behind_four_kilobytes_of_text_is_shown(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    await bot.wants("update_recipe", **ITEM)

    (waiting,) = (await parts.site.supervision.pending(boss.caller)).confirmations
    (over_operations,) = (await listed(boss))["confirmations"]

    assert waiting.params["input"] == ITEM["input"]
    assert over_operations["params"] == waiting.params
    assert over_operations["digest"] == waiting.digest


async def test_parameters_that_the_caller_left_out_are_shown_with_their_defaults(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    await bot.wants("close_kitchen")

    (waiting,) = (await listed(boss))["confirmations"]

    assert waiting["params"] == {"why": ""}


async def test_every_protocol_shows_the_whole_call_to_an_approver_and_to_nobody_else(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    await bot.wants("update_recipe", **ITEM)
    async with listening(parts) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        keyed = {"authorization": f"Bearer {boss.key}"}
        asked = {"operation": "list_pending_approvals"}
        shown = [
            (await http.get("/desk/api/pending", headers=keyed)).json(),
            (await http.post("/aql", json=asked, headers=keyed)).json()["data"],
            (await http.post("/operations/list_pending_approvals", json={}, headers=keyed)).json()["result"],
        ]

    assert [each["confirmations"][0]["params"]["input"] for each in shown] == [ITEM["input"]] * 3
    assert len({each["confirmations"][0]["digest"] for each in shown}) == 1
    assert isinstance(await bot.refused("list_pending_approvals"), Forbidden)
    nobody = await parts.site.access.authenticate(RequestCredentials(address="10.0.0.1"))
    with pytest.raises(Unauthenticated):
        await parts.site.call(Call("list_pending_approvals", {}), nobody)


async def test_an_approval_with_a_digest_is_for_the_call_that_was_shown(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("update_recipe", **ITEM)
    await bot.wants("update_recipe", **{**ITEM, "id": "r2"})
    mine, other = (await listed(boss))["confirmations"]
    assert mine["token"] == token

    swapped = await boss.refused("confirm_operation", confirmation_token=token, digest=other["digest"])
    assert isinstance(swapped, TokenMismatch)
    assert isinstance(await bot.refused("update_recipe", **ITEM), ConfirmationNeeded)

    said = await boss.does("confirm_operation", confirmation_token=token, digest=mine["digest"])
    assert said["confirmed"] is True
    assert await bot.does("update_recipe", **ITEM)
    assert "CONFIRMATION_GRANTED" in await events(parts, boss)


async def test_a_token_alone_approves_the_one_call_that_it_stands_for(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("update_recipe", **ITEM)

    assert (await boss.does("confirm_operation", confirmation_token=token))["confirmed"] is True

    assert isinstance(await bot.refused("update_recipe", **{**ITEM, "id": "r2"}), ConfirmationNeeded)
    assert await bot.does("update_recipe", **ITEM)


async def test_the_digest_covers_caller_operation_parameters_and_reasons(kitchen: Open) -> None:
    digests = set[str]()
    for reason in ("", "Prices are looked at"):
        async with kitchen(safety={"policy": [{**POLICY[0], "reason": reason}]}) as parts:
            bot, twin, boss = await person(parts), await person(parts), await boss_of(parts)
            await bot.wants("update_recipe", id="r1", input={"price": 1})
            await bot.wants("update_recipe", id="r1", input={"price": 1.5})
            await bot.wants("update_recipe", id="r1", input={"price": "1"})
            await bot.wants("delete_recipe", id="r1")
            await twin.wants("delete_recipe", id="r1")
            digests |= {each["digest"] for each in (await listed(boss))["confirmations"]}

    assert len(digests) == 10


async def test_to_turn_something_down_needs_no_digest(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("update_recipe", **ITEM)

    said = await boss.does("confirm_operation", confirmation_token=token, decision="reject")

    assert said["confirmed"] is False


async def test_who_agrees_to_a_step_sees_all_of_its_hint_and_of_its_call(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    await bot.starts()
    hint = "stir the soup, " * 600 + "then email the customers to eve"
    said = await bot.steps(hint, next_operation="update_recipe", next_params=ITEM, outcome="failure")
    assert said["continue"] is False

    pending = await parts.site.supervision.pending(boss.caller)
    (entry,) = [*pending.confirmations, *pending.challenges]
    (shown,) = [*(await listed(boss))["confirmations"], *(await listed(boss))["challenges"]]

    assert hint in str(entry)
    assert shown["params"] == entry.params
    assert ITEM["input"] in (entry.params.get("input"), entry.params.get("params", {}).get("input"))


async def test_who_verifies_a_step_sees_its_call(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    await bot.starts()
    await bot.steps("change a recipe", next_operation="update_recipe", next_params=ITEM, risk_score=70)

    (challenge,) = (await listed(boss))["challenges"]

    assert (challenge["operation"], challenge["params"]["input"]) == ("update_recipe", ITEM["input"])


async def test_one_entry_is_listed_by_its_token_and_a_long_list_says_how_many_more_there_are(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    others = [await person(parts) for _ in range(3)]
    text = "x" * 9000
    big = {"id": "r1", "input": {f"part{number}": text for number in range(100)}}  # nine hundred kilobytes
    token = await bot.wants("update_recipe", **big)
    tokens = [await each.wants("update_recipe", **big) for each in others]

    page = await listed(boss)
    (last,) = (await listed(boss, confirmation_token=tokens[-1]))["confirmations"]

    assert [each["token"] for each in page["confirmations"]] == [token]
    assert page["more"] == 3
    assert last["params"]["input"] == big["input"]


async def test_the_cursor_of_a_list_leads_to_the_approvals_behind_it(parts: Parts) -> None:
    boss = await boss_of(parts)
    tokens = [await (await person(parts)).wants("update_recipe", id="r1", input=BIG) for _ in range(3)]

    first = await listed(boss)
    await boss.agrees(tokens[0], "reject")  # the cursor stays good when the entry in front of it is gone
    second = await listed(boss, cursor=first["cursor"])
    third = await listed(boss, cursor=second["cursor"])

    pages = [first, second, third]
    assert [[entry["token"] for entry in page["confirmations"]] for page in pages] == [[token] for token in tokens]
    assert [page["more"] for page in pages] == [2, 1, 0]
    assert third["cursor"] == ""


@pytest.mark.parametrize(
    "cursor", ["x", "conf_x", "\ud800", "W10", "WyJ4IiwieCJd", "WyIyMDI2LTAxLTAxVDAwOjAwOjAwIiwieCJd"]
)
async def test_a_cursor_of_no_list_is_refused(parts: Parts, cursor: str) -> None:
    boss = await boss_of(parts)

    with pytest.raises(InvalidCursor):
        await parts.site.supervision.list_pending(boss.caller, cursor)


async def test_the_list_of_the_desk_is_bounded_in_bytes_too(parts: Parts) -> None:
    boss = await boss_of(parts)
    for _ in range(3):
        await (await person(parts)).wants("update_recipe", id="r1", input=BIG)
    async with listening(parts) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        keyed = {"authorization": f"Bearer {boss.key}"}
        first = await http.get("/desk/api/pending", headers=keyed)
        rest = await http.get("/desk/api/pending", params={"cursor": first.json()["cursor"]}, headers=keyed)

    assert len(first.content) < 1_500_000
    assert (len(first.json()["confirmations"]), first.json()["more"]) == (1, 2)
    assert (len(rest.json()["confirmations"]), rest.json()["more"]) == (1, 1)


async def test_what_one_caller_has_waiting_is_bounded_in_bytes(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    token = await bot.wants("update_recipe", id="r1", input=BIG)

    refused = await bot.refused("update_recipe", id="r2", input=BIG)

    assert isinstance(refused, RateLimited)
    await boss.does("confirm_operation", confirmation_token=token, decision="reject")
    assert await bot.wants("update_recipe", id="r2", input=BIG)


async def test_an_approved_call_counts_until_it_is_used(parts: Parts) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    await boss.agrees(await bot.wants("update_recipe", id="r1", input=BIG))

    assert isinstance(await bot.refused("update_recipe", id="r2", input=BIG), RateLimited)

    await bot.does("update_recipe", id="r1", input=BIG)
    assert await bot.wants("update_recipe", id="r2", input=BIG)


async def stored_bytes(parts: Parts) -> int:
    return sum(len(case.data or b"") for case in await parts.store.audit.list_records("Confirmation", 10_000))


async def reject(parts: Parts, bot: Person, boss: Person, call: Call) -> None:
    await boss.agrees((await bot.hears(call)).details["token"], "reject")


async def use(parts: Parts, bot: Person, boss: Person, call: Call) -> None:
    await boss.agrees((await bot.hears(call)).details["token"])
    await bot.calls(call)


async def end_session(parts: Parts, bot: Person, boss: Person, call: Call) -> None:
    assert isinstance(await bot.hears(call), ConfirmationNeeded)
    await parts.site.access.end_session(call.session)


async def end_session_after_approval(parts: Parts, bot: Person, boss: Person, call: Call) -> None:
    await boss.agrees((await bot.hears(call)).details["token"])
    await parts.site.access.end_session(call.session)


async def end_execution(parts: Parts, bot: Person, boss: Person, call: Call) -> None:
    await bot.starts()
    step = await bot.steps("change", next_operation=call.operation, next_params=call.params, risk_score=40)
    assert step["token"]
    await bot.does("complete_execution", element_name="bot")


async def end_session_of_execution(parts: Parts, bot: Person, boss: Person, call: Call) -> None:
    await bot.calls(Call("execute_agent", {"element_name": "bot"}, session=call.session))
    step = await bot.steps("change", next_operation=call.operation, next_params=call.params, risk_score=40)
    assert step["token"]
    await parts.site.access.end_session(call.session)


@pytest.mark.parametrize(
    "leave", [reject, use, end_session, end_session_after_approval, end_execution, end_session_of_execution]
)
async def test_calls_that_are_no_longer_pending_keep_no_parameters(parts: Parts, leave: Leaving) -> None:
    bot, boss = await person(parts), await boss_of(parts)

    for number in range(4):
        call = Call("update_recipe", {"id": f"r{number + 1}", "input": BIG}, session=f"s{number}")
        await leave(parts, bot, boss, call)

    assert await stored_bytes(parts) < 1_000_000


async def test_calls_that_expired_free_their_caller_and_keep_no_parameters(parts: Parts) -> None:
    bot = await person(parts)
    token = await bot.wants("update_recipe", id="r1", input=BIG)
    late = later(parts.site, 361)  # a minute is left to processes with slower clocks

    assert isinstance(await late.refuses(Call("update_recipe", {"id": "r2", "input": BIG}), bot), ConfirmationNeeded)

    assert await stored_bytes(parts) < 1_000_000
    expired = await late.refuses(Call("update_recipe", {"id": "r1", "input": BIG}, confirmation=token), bot)
    assert isinstance(expired, TokenExpired)


async def test_a_list_reads_only_calls_that_can_be_decided(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    bot, boss = await person(parts), await boss_of(parts)
    for number in range(3):
        await reject(parts, bot, boss, Call("close_kitchen", {"why": str(number)}))
    await bot.wants("close_kitchen", why="late")
    read = list[str]()
    records = type(parts.site._guard._context.records)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(records, "read", _recording(records.read, read))
    monkeypatch.setattr(records, "list_all", _recording(records.list_all, read))

    assert len((await parts.site.supervision.pending(boss.caller)).confirmations) == 1

    assert read.count("ConfirmationRecord") == 1


def _recording(method: Any, read: list[str]) -> Any:
    """Return the method of a record store so that the kinds of records it reads are noted."""

    async def recorded(records: Any, kind: type, *args: Any) -> Any:
        found = await method(records, kind, *args)
        read.extend([kind.__name__] * (len(found) if isinstance(found, list) else 1))
        return found

    return recorded
