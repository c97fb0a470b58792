"""What is stored beside a question passes the guard like any other write: who may write nothing stores nothing."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.protocols.conftest import asking
from tests.safety.conftest import Open, Person, blocked, person

from portico.conversations.memories import COLLECTION
from portico.errors import AgentBlocked, Forbidden, RateLimited, StepNeeded, Unauthenticated, Unavailable
from portico.safety import confirmations
from portico.server.assembly import Parts

QUESTION = {
    "query": {"text": "soup"},
    "context": {"memory": "vegetarian"},
    "meta": {"version": "0.55", "remember": True},
}


@pytest.fixture
async def client(eager: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(eager) as client:
        yield client


async def ask(client: httpx.AsyncClient, who: Person) -> str:
    response = await client.post("/ask", json=QUESTION, headers={"x-api-key": who.key})
    assert response.status_code == 200
    return response.text


async def memories(who: Person) -> list[str]:
    return [each["text"] for each in await who.does("list_memories")]


async def test_a_blocked_agent_is_answered_and_told_that_nothing_was_remembered(
    eager: Parts, client: httpx.AsyncClient
) -> None:
    bot = await person(eager)
    await blocked(bot)
    answer = await ask(client, bot)

    assert "Soup" in answer
    assert "meta.remember" in answer
    assert await memories(bot) == []
    assert COLLECTION not in eager.store.collections.schema
    assert isinstance(await bot.refused("create_memories", preferences=["vegetarian"]), AgentBlocked)


async def test_an_agent_under_way_stores_a_memory_only_as_a_step_that_it_has_reported(
    eager: Parts, client: httpx.AsyncClient
) -> None:
    bot = await person(eager)
    await bot.starts()
    before = await ask(client, bot)
    refused = await bot.refused("create_memories", preferences=["vegetarian"])
    unreported = await memories(bot)
    await bot.steps("calling create_memories to note a diet", next_operation="create_memories")
    after = await ask(client, bot)

    assert ("meta.remember" in before, "meta.remember" in after) == (True, False)
    assert isinstance(refused, StepNeeded)
    assert (unreported, sorted(await memories(bot))) == ([], ["soup", "vegetarian"])


async def test_a_policy_about_memories_holds_for_questions_too(kitchen: Open) -> None:
    policy = {"operation": "create_memories", "decision": "deny", "reason": "Nothing is kept here"}
    async with kitchen(safety={"policy": [policy]}) as parts, asking(parts) as client:
        bot = await person(parts)

        assert "meta.remember" in await ask(client, bot)
        assert isinstance(await bot.refused("create_memories", preferences=["vegetarian"]), Forbidden)
        assert await memories(bot) == []


async def test_preferences_are_stored_by_an_operation_of_their_own_for_callers_with_a_key(eager: Parts) -> None:
    bot = await person(eager)
    for _ in range(2):
        kept = await bot.does("create_memories", preferences=["vegetarian", "no nuts"])
    nobody = Person(eager.site, eager.site.access.anonymous_caller(), "")

    assert sorted(each["text"] for each in kept) == ["no nuts", "vegetarian"]
    assert {each["kind"] for each in kept} == {"preference"}
    assert isinstance(await nobody.refused("create_memories", preferences=["vegan"]), Unauthenticated)


async def test_a_question_is_answered_when_too_much_waits_to_be_confirmed(
    kitchen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmations, "MAX_WAITING", 0)
    policy = {"operation": "create_memories", "decision": "confirm", "reason": "Somebody looks first"}
    async with kitchen(safety={"policy": [policy]}) as parts, asking(parts) as client:
        bot = await person(parts)

        assert isinstance(await bot.refused("create_memories", preferences=["vegetarian"]), RateLimited)
        answer = await ask(client, bot)

    assert "Soup" in answer
    assert "meta.remember" in answer


async def test_a_step_that_could_not_store_its_memory_has_failed(
    eager: Parts, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = await person(eager)
    await bot.starts()
    await bot.steps("calling create_memories to note a diet", next_operation="create_memories")
    settle, failures = eager.site._guard.settle, []

    async def record(*args: Any, failed: bool) -> None:
        failures.append(failed)
        await settle(*args, failed=failed)

    async def fail(*_: Any) -> None:
        raise Unavailable("The disk is full")

    monkeypatch.setattr(eager.site._guard, "settle", record)
    monkeypatch.setattr(eager.site.memories, "keep", fail)
    response = await client.post("/ask", json=QUESTION, headers={"x-api-key": bot.key})

    assert response.json()["_meta"]["response_type"] == "failure"
    assert failures == [True]
