"""Fifty agents at once: each is counted, paused and blocked by itself, and the trail has every line once."""

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from tests.conformance.requirements import requirement
from tests.conftest import StoreUrl
from tests.safety.conftest import DENIED, Open, Person, boss_of, person

AGENTS = 50
EVERY_FIFTH = 5


@dataclass(frozen=True)
class Worker:
    """An agent that goes as far as it may. Some then do what they are blocked for."""

    who: Person
    limit: int
    misbehaves: bool

    @property
    def start(self) -> dict[str, object]:
        return {
            "element_name": self.who.caller.name,
            "max_autonomous_steps": self.limit,
            "parameters": {"guests": self.limit},
        }

    @property
    def steps(self) -> int:
        """That it takes before it is stopped."""
        return self.limit - 1 if self.misbehaves else self.limit

    async def works(self) -> tuple[str, str]:
        """Its execution, and the reason why it could not go on."""
        name = self.who.caller.name
        execution = (await self.who.does("execute_agent", **self.start))["execution_id"]
        for number in range(1, self.steps + 1):
            said = await self.who.steps(f"calling set_table for {number} guests", name)
            assert said["stepsRemaining"] == self.limit - number
            assert said["continue"] is True
            await self.who.does("set_table", seats=number)
        last = await self.who.steps(DENIED if self.misbehaves else "calling set_table once more", name)
        assert last["continue"] is False
        return execution, last["reason"]


@requirement("aql:gate:audit-chain", "aql:stage:step-limit", "aql:concurrency:agents")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_fifty_agents_at_once_are_each_held_to_their_own_limit(
    kitchen: Open, store_url: StoreUrl, kind: str
) -> None:
    async with kitchen(store_url(kind), limits={"keys_per_minute": 6000}) as parts:
        boss = await boss_of(parts)
        workers = [
            Worker(await person(parts, name=f"agent {number}"), 2 + number % 4, number % EVERY_FIFTH == 0)
            for number in range(AGENTS)
        ]
        tokens = await asyncio.gather(*(each.who.wants("execute_agent", **each.start) for each in workers))
        await asyncio.gather(*map(boss.agrees, tokens))

        ended = await asyncio.gather(*(each.works() for each in workers))

        for worker, (execution, reason) in zip(workers, ended, strict=True):
            status = await worker.who.does("get_execution_status", execution_id=execution)
            assert status["progress"]["current"] == worker.steps
            assert (status["status"], reason) == (
                ("cancelled", "Denied by the pattern rm -rf*")
                if worker.misbehaves
                else ("paused", "Step limit exceeded")
            )
        bad = [each for each in workers if each.misbehaves]
        pending = await parts.site.supervision.pending(boss.caller)
        assert {each.caller for each in pending.blocks} == {each.who.caller.id for each in bad}
        assert len(pending.confirmations) == AGENTS - len(bad)

        lines = await parts.site.supervision.trail(0, 1000, boss.caller)
        assert Counter(line.event for line in lines) == {
            "CONFIRMATION_REQUIRED": AGENTS + AGENTS - len(bad),
            "CONFIRMATION_GRANTED": AGENTS,
            "TOKEN_VALIDATED": AGENTS,
            "EXECUTION_STARTED": AGENTS,
            "STEP_REPORTED": sum(each.steps + 1 for each in workers),
            "OPERATION_CLEARED": sum(each.steps for each in workers),
            "AGENT_BLOCKED": len(bad),
            "EXECUTION_CANCELLED": len(bad),
        }
        reported = Counter(line.body["caller"] for line in lines if line.event == "STEP_REPORTED")
        assert reported == {each.who.caller.id: each.steps + 1 for each in workers}
        assert await parts.site.supervision.check_trail() == []
