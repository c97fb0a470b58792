"""Numbered streams of changes: read, left, taken up again, by the right reader and no other."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import StoreUrl
from tests.site.conftest import OPERATOR, config

from portico import subscriptions
from portico.errors import (
    BadRequest,
    Conflict,
    FeedExpired,
    InvalidQuery,
    NotFound,
    RateLimited,
    TakenOver,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownCollection,
    UnknownField,
)
from portico.items import Change
from portico.requests import Caller
from portico.server.assembly import Parts, open_site_without_index
from portico.site import Site
from portico.store import Store
from portico.store.records import IdempotencyEntry, Merge, Put, Remove, Write
from portico.subscriptions import (
    MAX_BEHIND,
    MAX_MARKS,
    ChangeEvent,
    FeedMark,
    Heartbeat,
    OpenSubscription,
    SubscribeRequest,
    SubscriptionStatus,
    add_mark,
)

ANN = Caller("key:ann", "Ann", frozenset({"read:*"}))
BOB = Caller("key:bob", "Bob", frozenset({"read:*"}))
LARGE = {"beds": {"$gt": 5}}

Open = Callable[..., AbstractAsyncContextManager[Parts]]


@pytest.fixture(params=["sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, store_url: StoreUrl) -> Open:
    """Opens the same inn again and again."""
    url = store_url(request.param)
    return lambda **store: open_site_without_index(config(tmp_path, url, store=store))


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader looks around by itself before a test is over: what ends it has to wake it."""
    monkeypatch.setattr(subscriptions, "CHECK_SECONDS", 60)


@pytest.fixture
async def inn(opened: Open) -> AsyncIterator[Parts]:
    async with opened() as parts:
        await furnish(parts)
        yield parts


@pytest.fixture
def site(inn: Parts) -> Site:
    return inn.site


async def furnish(parts: Parts) -> None:
    await parts.store.collections.declare(parts.config.collection("rooms"))
    await parts.store.items.write("rooms", [Put("attic", {"beds": 2}), Put("cellar", {"beds": 6})])


async def take(following: OpenSubscription, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        return [await anext(following.events) for _ in range(count)]


async def told(following: OpenSubscription, count: int) -> list[tuple[int, str, str]]:
    return [(event.number, event.kind, event.item.id) for event in await take(following, count)]


async def rest(following: OpenSubscription) -> list[Any]:
    async with asyncio.timeout(60):
        return [event async for event in following.events]


# Going on where it was


async def written(store: Store, ids: set[str], chance: random.Random, number: int) -> list[Change]:
    """Some writes of all kinds at once, each of which changes something."""
    known = sorted(ids)
    merged, removed = chance.sample(known, 2)
    new: list[Write] = [Put(f"r{number}-{n}", {"beds": n}) for n in range(chance.randint(1, 4))]
    writes = chance.sample([*new, Merge(merged, {"turn": number}), *([Remove(removed)] if len(known) > 5 else [])], 2)
    ids |= {each.id for each in writes}
    ids -= {each.id for each in writes if isinstance(each, Remove)}
    return await store.items.write("rooms", writes)


async def leave(following: OpenSubscription, chance: random.Random) -> None:
    """As readers leave: politely, in the middle of waiting, or without a word."""
    match chance.choice(("closed", "cancelled", "forgotten")):
        case "closed":
            await following.events.aclose()
        case "cancelled":
            waiting = asyncio.ensure_future(anext(following.events))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        case _:
            return


async def read_with_breaks(site: Site, seen: list[ChangeEvent], total: int, chance: random.Random) -> None:
    """Read until there are so many, taking the subscription up again after ten breaks."""
    for end in [*sorted(chance.sample(range(len(seen) + 1, total), 10)), total]:
        following = await site.follow(SubscribeRequest("s", "rooms", resume_after=len(seen)), ANN)
        assert following.resumed
        seen += await take(following, end - len(seen))
        await leave(following, chance)


@pytest.mark.parametrize(("opened", "most"), [("sqlite", 1000), ("postgres", 200)], indirect=["opened"])
async def test_a_reader_lost_again_and_again_sees_every_change_once_and_in_order(opened: Open, most: int) -> None:
    chance = random.Random(8)
    ids = {"attic", "cellar"}
    changes: list[Change] = []
    seen: list[ChangeEvent] = []

    async def write(store: Store, total: int) -> None:
        while len(changes) < total:
            changes.extend(await written(store, ids, chance, len(changes)))

    for total in (most // 2, most):
        async with opened() as parts:
            if not changes:
                await furnish(parts)
                await (await parts.site.follow(SubscribeRequest("s", "rooms"), ANN)).events.aclose()
            await asyncio.gather(write(parts.store, total), read_with_breaks(parts.site, seen, total, chance))
            await parts.site.subscriptions.close()

    assert [event.number for event in seen] == list(range(1, most + 1))
    assert len(changes) == most
    wanted = [(each.kind, each.item, each.patch if each.kind == "update" else (), each.at) for each in changes]
    assert [(event.kind, event.item, event.patch, event.at) for event in seen] == wanted


async def test_a_new_subscription_begins_now_and_says_what_it_is(inn: Parts) -> None:
    following = await inn.site.follow(SubscribeRequest("s", "rooms", LARGE, note="mine"), ANN)
    await inn.store.items.write("rooms", [Put("hall", {"beds": 9})])

    assert (following.id, following.resumed, following.last) == ("s", False, 0)
    assert (following.filter, following.note) == (LARGE, "mine")
    assert await told(following, 1) == [(1, "create", "hall")]


async def test_a_subscription_is_taken_up_with_its_filter_its_note_and_its_newest_number(inn: Parts) -> None:
    await (await inn.site.follow(SubscribeRequest("s", "rooms", LARGE, note="mine"), ANN)).events.aclose()
    await inn.store.items.write("rooms", [Put(f"r{n}", {"beds": n}) for n in range(10)])

    following = await inn.site.follow(SubscribeRequest("s", "rooms", resume_after=2), ANN)

    assert (following.resumed, following.last, following.filter, following.note) == (True, 4, LARGE, "mine")
    assert await told(following, 2) == [(3, "create", "r8"), (4, "create", "r9")]


async def test_what_enters_a_filter_is_created_and_what_leaves_it_is_deleted(inn: Parts) -> None:
    following = await inn.site.follow(SubscribeRequest("s", "rooms", LARGE), ANN)
    for beds in (7, 8, 1, 3):
        await inn.store.items.write("rooms", [Merge("attic", {"beds": beds})])
    await inn.store.items.write("rooms", [Remove("attic"), Remove("cellar")])

    events = await take(following, 4)

    assert [(each.kind, each.item.id, each.item.data, each.patch) for each in events] == [
        ("create", "attic", {"beds": 7}, ()),
        ("update", "attic", {"beds": 8}, ({"op": "replace", "path": "/beds", "value": 8},)),
        ("delete", "attic", {"beds": 8}, ()),
        ("delete", "cellar", {"beds": 6}, ()),
    ]


@pytest.mark.parametrize("stops", [False, True])
async def test_a_subscription_to_what_is_rare_outlives_its_beginning_in_the_feed(opened: Open, stops: bool) -> None:
    async with opened(keep_changes=1000) as parts:
        await furnish(parts)
        following = await parts.site.follow(SubscribeRequest("s", "rooms", LARGE), ANN)
        for round in range(8):
            await parts.store.items.write("rooms", [Put(f"small{round}-{n}", {"beds": 1}) for n in range(400)])
            await parts.store.items.write("rooms", [Put(f"large{round}", {"beds": 9})])
            assert await told(following, 1) == [(round + 1, "create", f"large{round}")]
        await (parts.site.subscriptions.close() if stops else following.events.aclose())

    async with opened(keep_changes=1000) as parts:
        again = await parts.site.follow(SubscribeRequest("s", "rooms", resume_after=7), ANN)
        assert await told(again, 1) == [(8, "create", "large7")]


# What cannot be taken up


async def refused(site: Site, after: int, caller: Caller = ANN, id: str = "s") -> None:
    with pytest.raises(FeedExpired):
        await site.follow(SubscribeRequest(id, "rooms", resume_after=after), caller)


async def test_a_subscription_that_never_was_or_a_number_that_is_not_yet_cannot_be_taken_up(inn: Parts) -> None:
    following = await inn.site.follow(SubscribeRequest("s", "rooms"), ANN)
    await inn.store.items.write("rooms", [Put("hall", {})])
    await take(following, 1)

    await refused(inn.site, 0, id="other")
    await refused(inn.site, 2)
    assert (await inn.site.follow(SubscribeRequest("s", "rooms", resume_after=1), ANN)).last == 1


async def test_who_is_too_far_behind_has_to_begin_anew(inn: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_BEHIND", 300)
    await (await inn.site.follow(SubscribeRequest("s", "rooms"), ANN)).events.aclose()
    await inn.store.items.write("rooms", [Put(f"r{n}", {}) for n in range(301)])

    await refused(inn.site, 0)
    following = await inn.site.follow(SubscribeRequest("s", "rooms", resume_after=1), ANN)

    assert following.last == 301
    assert await told(following, 1) == [(2, "create", "r1")]


async def test_what_the_feed_has_lost_cannot_be_taken_up(opened: Open) -> None:
    async with opened(keep_changes=1000) as parts:
        await furnish(parts)
        await (await parts.site.follow(SubscribeRequest("s", "rooms"), ANN)).events.aclose()
        for round in range(4):
            await parts.store.items.write("rooms", [Put(f"r{round}-{n}", {}) for n in range(1000)])

        await refused(parts.site, 0)


async def test_what_has_happened_in_a_collection_that_is_gone_cannot_be_told(inn: Parts) -> None:
    following = await inn.site.follow(SubscribeRequest("s", "rooms"), ANN)
    await inn.store.items.write("rooms", [Put("loft", {"beds": 1})])
    with closing(apsw.Connection(inn.store.url.removeprefix("sqlite:///"))) as other:
        other.execute("DELETE FROM collections")
        other.execute("UPDATE meta SET value = value + 1 WHERE key = 'schema'")

    with pytest.raises(FeedExpired):
        await take(following, 1)


async def test_a_subscription_that_nobody_read_for_too_long_is_forgotten(site: Site) -> None:
    await (await site.follow(SubscribeRequest("s", "rooms", seconds=0.05), ANN)).events.aclose()

    async def again_and_again() -> None:
        while True:
            following = await site.follow(SubscribeRequest("s", "rooms", resume_after=0, seconds=0.01), ANN)
            await following.events.aclose()
            await asyncio.sleep(0.02)

    async with asyncio.timeout(60):
        with pytest.raises(FeedExpired):
            await again_and_again()


async def test_a_subscription_stays_alive_while_it_is_read(inn: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(subscriptions, "KEEP_SECONDS", 0.02)

    async def kept_until() -> datetime:
        kept = [each async for some in inn.store.backup.read_entries(datetime.now(UTC)) for each in some]
        return min(each.expires for each in kept if isinstance(each, IdempotencyEntry))

    following = await inn.site.follow(SubscribeRequest("s", "rooms", heartbeat=0.01), ANN)
    before = await kept_until()
    async with asyncio.timeout(60):
        while await kept_until() == before:
            assert await take(following, 1) == [Heartbeat(0)]

    assert await kept_until() > before


async def test_another_filter_or_collection_is_another_subscription(inn: Parts) -> None:
    await inn.store.collections.declare(inn.config.collection("guests"))
    await inn.site.follow(SubscribeRequest("s", "rooms", {"beds": {"$gt": 5, "$lt": 9}}), ANN)

    with pytest.raises(Conflict):
        await inn.site.follow(SubscribeRequest("s", "rooms", LARGE, resume_after=0), ANN)
    with pytest.raises(Conflict):
        await inn.site.follow(SubscribeRequest("s", "guests", resume_after=0), ANN)
    same = SubscribeRequest("s", "rooms", {"beds": {"$lt": 9, "$gt": 5}}, resume_after=0)
    assert (await inn.site.follow(same, ANN)).resumed


async def test_what_makes_no_sense_or_is_not_allowed_is_refused(site: Site) -> None:
    for subscribe, problem in (
        (SubscribeRequest("s", "stables"), UnknownCollection),
        (SubscribeRequest("s", "rooms", {"stars": {"$gt": 1}}), UnknownField),
        (SubscribeRequest("s", "rooms", {"$maybe": 1}), InvalidQuery),
        (SubscribeRequest("s", "rooms", resume_after=-1), BadRequest),
        (SubscribeRequest("", "rooms"), BadRequest),
        (SubscribeRequest("a\0b", "rooms"), BadRequest),
        (SubscribeRequest("s", "rooms", note="x" * 1001), BadRequest),
        (SubscribeRequest("s", "rooms", {"beds": {"$in": ["x" * 4000] * 5}}), TooLarge),
    ):
        with pytest.raises(problem):
            await site.follow(subscribe, ANN)
    with pytest.raises(Unauthenticated):
        await site.follow(SubscribeRequest("s", "rooms"), Caller())


# Whose it is


async def test_nobody_else_can_take_up_ask_for_or_end_a_subscription(inn: Parts) -> None:
    following = await inn.site.follow(SubscribeRequest("s", "rooms"), ANN)
    await refused(inn.site, 0, BOB)
    for act in (inn.site.subscriptions.unfollow, inn.site.subscriptions.status):
        with pytest.raises(NotFound):
            await act("s", BOB)

    theirs = await inn.site.follow(SubscribeRequest("s", "rooms", LARGE), BOB)
    await inn.store.items.write("rooms", [Put("small", {"beds": 1}), Put("hall", {"beds": 9})])

    assert await told(following, 2) == [(1, "create", "small"), (2, "create", "hall")]
    assert await told(theirs, 1) == [(1, "create", "hall")]


@pytest.mark.parametrize("after", [None, 0])
async def test_a_second_reader_takes_the_place_of_the_first(inn: Parts, after: int | None) -> None:
    first = await inn.site.follow(SubscribeRequest("s", "rooms"), ANN)
    waiting = asyncio.ensure_future(rest(first))
    await asyncio.sleep(0)

    second = await inn.site.follow(SubscribeRequest("s", "rooms", resume_after=after), ANN)
    with pytest.raises(TakenOver):
        await waiting
    await first.events.aclose()

    await inn.store.items.write("rooms", [Put("hall", {})])
    assert await told(second, 1) == [(1, "create", "hall")]
    assert (await inn.site.subscriptions.status("s", ANN)).last == 1


async def test_of_many_who_begin_at_once_one_stays_and_can_be_taken_up(inn: Parts) -> None:
    readers = await asyncio.gather(*(inn.site.follow(SubscribeRequest("s", "rooms"), ANN) for _ in range(10)))
    reading = [asyncio.ensure_future(take(each, 1)) for each in readers]
    await inn.store.items.write("rooms", [Put("hall", {})])

    results = await asyncio.gather(*reading, return_exceptions=True)
    again = await inn.site.follow(SubscribeRequest("s", "rooms", resume_after=0), ANN)

    assert [type(each) for each in results].count(TakenOver) == 9
    assert await told(again, 1) == [(1, "create", "hall")]


async def test_a_reader_ends_when_the_subscription_is_taken_up_or_ended_elsewhere(
    inn: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "CHECK_SECONDS", 0.02)
    async with open_site_without_index(inn.config) as elsewhere:
        first = await inn.site.follow(SubscribeRequest("s", "rooms"), ANN)
        second = await elsewhere.site.follow(SubscribeRequest("s", "rooms", resume_after=0), ANN)
        with pytest.raises(TakenOver):
            await rest(first)

        await inn.site.subscriptions.unfollow("s", ANN)
        assert await rest(second) == []
        await refused(elsewhere.site, 0)


async def test_a_caller_has_so_many_open_at_once(site: Site) -> None:
    def wanted(id: str) -> SubscribeRequest:
        return SubscribeRequest(id, "rooms", limit=2)

    first, _ = await site.follow(wanted("a"), ANN), await site.follow(wanted("b"), ANN)
    with pytest.raises(RateLimited):
        await site.follow(wanted("c"), ANN)
    with pytest.raises(NotFound):
        await site.subscriptions.status("c", ANN)
    await site.follow(wanted("c"), BOB)
    await site.follow(wanted("b"), ANN)

    await first.events.aclose()
    await site.follow(wanted("c"), ANN)


async def test_a_caller_begins_so_many_in_a_minute_and_takes_up_as_many_as_there_are(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "NEW_PER_MINUTE", 2)
    for id in ("a", "b"):
        await (await site.follow(SubscribeRequest(id, "rooms"), ANN)).events.aclose()

    with pytest.raises(RateLimited) as refusal:
        await site.follow(SubscribeRequest("c", "rooms"), ANN)

    assert refusal.value.details["limit"] == 2
    assert 0 < refusal.value.details["retry_after"] <= 30
    assert (await site.follow(SubscribeRequest("a", "rooms", resume_after=0), ANN)).resumed
    await site.follow(SubscribeRequest("c", "rooms"), BOB)


# Signs of life and ends


async def test_when_nothing_happens_there_is_a_sign_of_life_and_it_takes_no_number(inn: Parts) -> None:
    following = await inn.site.follow(SubscribeRequest("s", "rooms", LARGE, heartbeat=0.05), ANN)

    assert await take(following, 2) == [Heartbeat(0), Heartbeat(0)]
    await inn.store.items.write("rooms", [Put("small", {"beds": 1}), Put("hall", {"beds": 9})])
    event, quiet = await take(following, 2)
    assert (event.number, event.item.id, quiet) == (1, "hall", Heartbeat(1))


async def test_a_subscription_says_its_newest_number_also_when_nobody_reads_it(inn: Parts) -> None:
    await (await inn.site.follow(SubscribeRequest("s", "rooms", LARGE), ANN)).events.aclose()
    await inn.store.items.write("rooms", [Put(f"r{n}", {"beds": n}) for n in range(10)])

    assert [await inn.site.subscriptions.status("s", ANN) for _ in range(2)] == [
        SubscriptionStatus(4, LARGE),
        SubscriptionStatus(4, LARGE),
    ]
    with pytest.raises(NotFound):
        await inn.site.subscriptions.status("other", ANN)


async def test_a_subscription_that_is_given_up_ends_and_is_gone(inn: Parts) -> None:
    following = await inn.site.follow(SubscribeRequest("s", "rooms"), ANN)
    waiting = asyncio.ensure_future(rest(following))
    await asyncio.sleep(0)

    await inn.site.subscriptions.unfollow("s", ANN)

    assert await waiting == []
    await refused(inn.site, 0)
    with pytest.raises(NotFound):
        await inn.site.subscriptions.unfollow("s", ANN)


async def test_all_readers_end_when_the_server_stops_and_nobody_new_begins(inn: Parts) -> None:
    idle, busy = [await inn.site.follow(SubscribeRequest(id, "rooms"), OPERATOR) for id in "ab"]
    await inn.store.items.write("rooms", [Put(f"r{n}", {}) for n in range(5)])
    await take(busy, 1)
    waiting = [asyncio.ensure_future(rest(each)) for each in (idle, busy)]

    await inn.site.subscriptions.close()

    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in results] == [Unavailable, Unavailable]
    with pytest.raises(Unavailable):
        await inn.site.follow(SubscribeRequest("c", "rooms"), OPERATOR)
    async with aclosing(busy.events), open_site_without_index(inn.config) as later:
        again = await later.site.follow(SubscribeRequest("b", "rooms", resume_after=1), OPERATOR)
        assert await told(again, 1) == [(2, "create", "r1")]


def test_marks_reach_as_far_back_as_a_reader_may_be_and_stay_few() -> None:
    chance = random.Random(3)
    trail = (FeedMark(0, 7),)
    for _ in range(5000):
        number, position = trail[-1].number, trail[-1].position
        step = chance.choice((1, 20, 200))
        trail = add_mark(trail, FeedMark(number + chance.randint(0, step), position + step))

    newest = trail[-1]
    oldest = max(newest.number - MAX_BEHIND, 0)
    assert newest.number > 2 * MAX_BEHIND
    assert trail[0].number <= oldest < trail[1].number
    assert len(trail) <= MAX_MARKS
    assert list(trail) == sorted(trail, key=lambda mark: (mark.number, mark.position))
    assert add_mark(trail, FeedMark(newest.number - 1, newest.position - 1)) == trail
