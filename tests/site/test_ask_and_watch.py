"""Asking, and following changes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.site.conftest import OPERATOR, Calling, Open

from portico.ask.events import EndEvent, InterpretationEvent, ItemEvent
from portico.errors import FeedExpired, InvalidParams, Unauthenticated, UnknownCollection, UnknownField
from portico.items import Change
from portico.query import parse_filter
from portico.requests import Ask, Caller, Watch
from portico.server.assembly import Parts
from portico.site import Site
from portico.store.records import Put


async def events(site: Site, ask: Ask) -> list:
    return [event async for event in site.ask(ask, OPERATOR)]


async def test_a_question_is_understood_answered_best_first_and_finished(parts: Parts) -> None:
    await parts.store.collections.declare(parts.config.collection("guests"))
    await parts.store.items.write("guests", [Put("ada", {"name": "Ada, who likes the attic"})])
    await parts.index.sync(await parts.store.changes.head())

    understood, *found, finished = await events(parts.site, Ask("attic"))

    assert understood == InterpretationEvent("attic", ("rooms", "guests"))
    assert {(each.item.collection, each.item.id) for each in found} == {("rooms", "attic"), ("guests", "ada")}
    assert all(isinstance(each, ItemEvent) and 0 <= each.score <= 100 for each in found)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert finished == EndEvent(2)


async def test_a_question_keeps_to_its_collections_limit_and_filter(parts: Parts) -> None:
    where = parse_filter({"beds": {"$gt": 1}})

    filtered = await events(parts.site, Ask("garden attic cellar room", ("rooms",), where))
    limited = await events(parts.site, Ask("garden attic cellar room", limit=1))

    assert {each.item.id for each in filtered if isinstance(each, ItemEvent)} == {"attic", "cellar"}
    assert len([each for each in limited if isinstance(each, ItemEvent)]) == 1


async def test_a_question_nothing_fits_finishes_with_nothing(site: Site) -> None:
    assert await events(site, Ask("zebra crossing")) == [
        InterpretationEvent("zebra crossing", ("rooms",)),
        EndEvent(0, ("I found nothing for “zebra crossing”.",)),
    ]


async def test_what_is_wrong_before_the_first_event_is_raised(site: Site) -> None:
    with pytest.raises(UnknownCollection):
        await events(site, Ask("attic", ("stables",)))
    with pytest.raises(Unauthenticated):
        await anext(site.ask(Ask("attic"), Caller()))

    with pytest.raises(UnknownField):
        await events(site, Ask("attic", where=parse_filter({"stars": 5})))


async def test_a_write_that_was_acknowledged_is_in_the_next_answer(parts: Parts) -> None:
    call = Calling(parts.site)
    for number in range(20):
        await call("create_room", id=f"r{number}", input={"name": f"Turret{number}"})
        found = await events(parts.site, Ask(f"turret{number}"))
        assert [each.item.id for each in found if isinstance(each, ItemEvent)] == [f"r{number}"]


async def take(changes: AsyncIterator[Change], count: int) -> list[tuple[str, str]]:
    async with asyncio.timeout(60):
        return [(change.kind, change.item.id) for change in [await anext(changes) for _ in range(count)]]


async def test_a_watch_from_now_shows_what_happens_next(parts: Parts) -> None:
    call = Calling(parts.site)
    changes = parts.site.watch(Watch("rooms"), OPERATOR)
    first = asyncio.ensure_future(anext(changes))
    number = 0
    while not first.done():  # it looks from whenever it begins; what it sees must be news
        await call("create_room", id=f"loft{number}", input={"beds": 1})
        number += 1

    assert first.result().kind == "create"
    assert first.result().item.id.startswith("loft")
    await call("delete_room", id="attic")
    seen = await take(changes, number - int(first.result().item.id.removeprefix("loft")))
    assert seen[-1] == ("delete", "attic")


async def test_a_watch_since_a_number_shows_everything_after_it(parts: Parts) -> None:
    head = await parts.store.changes.head()
    await Calling(parts.site)("update_room", id="attic", input={"beds": 3})

    assert await take(parts.site.watch(Watch("rooms", since=0), OPERATOR), 4) == [
        ("create", "attic"),
        ("create", "cellar"),
        ("create", "garden"),
        ("update", "attic"),
    ]
    changes = parts.site.watch(Watch("rooms", since=head), OPERATOR)
    change = await anext(changes)
    assert (change.kind, change.patch) == ("update", ({"op": "replace", "path": "/beds", "value": 3},))


async def test_a_watch_keeps_to_its_collection_and_filter(parts: Parts) -> None:
    call = Calling(parts.site)
    await parts.store.collections.declare(parts.config.collection("guests"))
    head = await parts.store.changes.head()
    await call("create_guest", id="ada", input={"beds": 9})
    await call("create_room", id="small", input={"beds": 1})
    await call("create_room", id="large", input={"beds": 9})

    watch = Watch("rooms", parse_filter({"beds": {"$gt": 5}}), since=head)
    assert await take(parts.site.watch(watch, OPERATOR), 1) == [("create", "large")]


async def test_an_update_that_enters_or_leaves_the_filter_is_shown(parts: Parts) -> None:
    call = Calling(parts.site)
    head = await parts.store.changes.head()
    await call("update_room", id="attic", input={"beds": 7})
    await call("update_room", id="attic", input={"beds": 1})
    await call("update_room", id="attic", input={"beds": 2})
    await call("update_room", id="cellar", input={"beds": 8})

    watch = Watch("rooms", parse_filter({"beds": {"$gt": 5}}), since=head)
    seen = await take(parts.site.watch(watch, OPERATOR), 3)
    assert seen == [("update", "attic"), ("update", "attic"), ("update", "cellar")]


async def test_changes_that_are_no_longer_kept_are_said_to_be_gone(opened: Open) -> None:
    async with opened(store={"url": "sqlite:///inn.db", "keep_changes": 1000}) as parts:
        await parts.store.collections.declare(parts.config.collection("rooms"))
        for number in range(0, 3000, 500):
            await parts.store.items.write("rooms", [Put(f"r{n}", {"n": n}) for n in range(number, number + 500)])

        with pytest.raises(FeedExpired) as expired:
            await anext(parts.site.watch(Watch("rooms", since=0), OPERATOR))
        assert expired.value.details["newest"] == 3000
        with pytest.raises(FeedExpired):
            await anext(parts.site.watch(Watch("rooms", since=99_999), OPERATOR))


async def test_a_watch_that_makes_no_sense_is_refused(site: Site) -> None:
    with pytest.raises(UnknownCollection):
        await anext(site.watch(Watch("stables"), OPERATOR))
    with pytest.raises(UnknownField):
        await anext(site.watch(Watch("rooms", parse_filter({"stars": 5})), OPERATOR))


async def test_ask_as_an_operation_may_be_told_to_remember_nothing(call: Calling) -> None:
    """Tasks that an earlier version stored have this parameter."""
    task = await call.task("ask", text="garden", remember=False)
    with pytest.raises(InvalidParams) as refusal:
        await call("ask", text="garden", remember=True)

    assert (await call.finished(task.id)).state == "completed"
    assert "create_memories" in str(refusal.value.hint)
