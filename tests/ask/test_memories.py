"""What is remembered of callers: only what they ask for, only with a key, shown to them and gone when they say so."""

from typing import Any

import pytest
from tests.ask.conftest import Asked, Opened

from portico.conversations.memories import CHARACTERS, COLLECTION, MOST
from portico.errors import UnknownItem
from portico.query import Query
from portico.requests import Call

pytestmark = pytest.mark.asyncio(loop_scope="module")

DISHES = {
    "leek": {"@type": "Recipe", "name": "Leek pie", "suitableForDiet": ["vegan"]},
    "beef": {"@type": "Recipe", "name": "Beef pie", "suitableForDiet": ["halal"]},
}


async def memories(ask: Asked) -> list[tuple[str, str]]:
    outcome = await ask.site.call(Call("list_memories"), ask.caller)
    return [(each["kind"], each["text"]) for each in outcome.result]


async def forget(ask: Asked, **params: Any) -> int:
    return (await ask.site.call(Call("forget_memories", params), ask.caller)).result["count"]


@pytest.fixture
def kitchen(small: Opened) -> Any:
    return lambda: small({"dishes": DISHES}, {"dishes": {"type": "Recipe"}})


async def test_nothing_is_kept_unless_it_is_asked_for(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann = await ask.named("ann")
        await ann("pie", memory=("vegan",))

        assert await memories(ann) == []
        assert (await ann("pie")).constraints == ()


async def test_what_is_to_be_remembered_counts_the_next_time(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann = await ask.named("ann")
        first = await ann("pie", memory=("vegan",), remember=True)
        second = await ann("pie")

        assert first.ids == second.ids == ["leek"]
        assert set(await memories(ann)) == {("preference", "vegan"), ("question", "pie")}


async def test_a_question_that_was_remembered_is_no_preference(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann = await ask.named("ann")
        await ann("vegan pie", remember=True)

        assert set((await ann("pie")).ids) == {"leek", "beef"}


async def test_nobody_knows_what_another_asked_to_remember(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann, bob = await ask.named("ann"), await ask.named("bob")
        await ann("pie", memory=("vegan",), remember=True)

        assert await memories(bob) == []
        assert set((await bob("pie")).ids) == {"leek", "beef"}


async def test_of_callers_without_a_key_nothing_is_kept_and_they_are_told(kitchen: Any) -> None:
    async with kitchen() as ask:
        answer = await ask("pie", memory=("vegan",), remember=True)

        assert answer.ids == ["leek"]
        assert answer.understood.ignored == ("meta.remember",)
        assert await memories(ask) == []
        assert COLLECTION not in ask.parts.store.collections.schema


async def test_one_thing_or_everything_is_forgotten(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann, bob = await ask.named("ann"), await ask.named("bob")
        for each in (ann, bob):
            await each("pie", memory=("vegan", "likes leeks"), remember=True)
        outcome = await ask.site.call(Call("list_memories"), ann.caller)
        one = next(each["id"] for each in outcome.result if each["text"] == "vegan")

        assert await forget(ann, id=one) == 1
        assert set(await memories(ann)) == {("preference", "likes leeks"), ("question", "pie")}
        assert set((await ann("pie")).ids) == {"leek", "beef"}
        assert await forget(ann) == 2
        assert (await memories(ann), len(await memories(bob))) == ([], 3)


async def test_nobody_can_forget_for_another(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann, bob = await ask.named("ann"), await ask.named("bob")
        await ann("pie", memory=("vegan",), remember=True)
        outcome = await ask.site.call(Call("list_memories"), ann.caller)

        with pytest.raises(UnknownItem):
            await forget(bob, id=outcome.result[0]["id"])
        assert len(await memories(ann)) == 2


async def test_the_same_thing_is_remembered_once(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann = await ask.named("ann")
        for _ in range(3):
            await ann("pie", memory=("vegan", "vegan", " "), remember=True)

        assert sorted(await memories(ann)) == [("preference", "vegan"), ("question", "pie")]


async def test_what_is_remembered_is_bounded_and_the_oldest_goes_first(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann = await ask.named("ann")
        for n in range(MOST // 2 + 5):
            await ann(f"pie {n}", memory=(f"thing {n} " + "x" * 2 * CHARACTERS,), remember=True)
        kept = await memories(ann)

    assert len(kept) == MOST
    assert max(len(text) for _, text in kept) == CHARACTERS
    assert ("question", f"pie {MOST // 2 + 4}") in kept
    assert ("question", "pie 0") not in kept


async def test_nobody_finds_memories_in_the_site(kitchen: Any) -> None:
    async with kitchen() as ask:
        ann = await ask.named("ann")
        await ann("pie", memory=("vegan zebra",), remember=True)

        assert COLLECTION not in (await ask("zebra")).understood.collections
        assert (await ask("zebra")).ids == []
        with pytest.raises(Exception, match=COLLECTION):
            await ask.site.query(Query(COLLECTION), ask.caller)
