"""Many that change the same record at once: all of them finish, in turn, and few attempts are wasted."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.conftest import StoreUrl
from tests.safety.conftest import Open, Person, boss_of, events, later, person

from portico.errors import SiteError, StepNeeded
from portico.requests import Call
from portico.safety.transaction import TRIES
from portico.store import Store
from portico.store.records import AuditEntry, SafetyRecord

REFUSALS = 552


class Attempts:
    """Counts how often each task of the event loop tries to write a decision."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_task = Counter[str]()
        decide = store.audit.commit

        async def counted(
            cases: Sequence[SafetyRecord], told: Sequence[tuple[str, Mapping[str, Any]]]
        ) -> list[AuditEntry] | None:
            task = asyncio.current_task()
            self.by_task[task.get_name() if task else ""] += 1
            return await decide(cases, told)

        monkeypatch.setattr(store.audit, "commit", counted)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, store_url: StoreUrl) -> str:
    return store_url(request.param)


async def refuse(who: Person, number: int) -> type[SiteError]:
    return type(await who.refused("set_table", seats=number % 10))


async def test_hundreds_of_refusals_at_once_take_one_attempt_each_and_are_answered_in_turn(
    kitchen: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kitchen(url, safety={"start": "allow"}, limits={"keys_per_minute": 60_000}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await bot.starts()
        attempts = Attempts(parts.store, monkeypatch)

        async with asyncio.TaskGroup() as group:
            refusals = [group.create_task(refuse(bot, number)) for number in range(REFUSALS)]

        assert {each.result() for each in refusals} == {StepNeeded}
        assert (len(attempts.by_task), max(attempts.by_task.values())) == (REFUSALS, 1)
        denied = await parts.site.supervision.trail(0, 1000, boss.caller)
        assert sum(line.event == "OPERATION_DENIED" for line in denied) == REFUSALS


async def test_refusals_in_several_processes_all_finish_within_a_bounded_number_of_attempts(
    kitchen: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kitchen(url, safety={"start": "allow"}, limits={"keys_per_minute": 60_000}) as parts:
        bot, boss = await person(parts), await boss_of(parts)
        await bot.starts()
        attempts = Attempts(parts.store, monkeypatch)
        processes = [later(parts.site, 0) for _ in range(4)]  # each with a queue of its own

        async with asyncio.TaskGroup() as group:
            refusals = [
                group.create_task(processes[number % 4].refuses(Call("set_table", {}), bot)) for number in range(200)
            ]

        assert {type(each.result()) for each in refusals} == {StepNeeded}
        assert max(attempts.by_task.values()) < TRIES
        assert (await events(parts, boss)).count("OPERATION_DENIED") == 200


async def test_a_caller_that_gives_up_waiting_leaves_the_queue_to_the_others(kitchen: Open) -> None:
    async with kitchen(safety={"start": "allow"}) as parts:
        bot = await person(parts)
        await bot.starts()
        waiting = [asyncio.create_task(refuse(bot, number)) for number in range(20)]
        await asyncio.sleep(0)

        for each in waiting[::2]:
            each.cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert {each for each in results if isinstance(each, type)} == {StepNeeded}
        assert await refuse(bot, 1) is StepNeeded
