"""Blobs, tasks, idempotency keys, API keys, and what replicas share."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.conftest import Opening

from portico.access.identity import make_key
from portico.access.limits import Limits, Rates
from portico.catalog import Collection, Danger
from portico.errors import KeyInUse, RateLimited
from portico.requests import Call, Caller, Priority, Task, TaskState, Warrant
from portico.store import Store
from portico.store.encoding import decode_task, encode_task
from portico.store.records import CallSettlement, IdempotencyEntry, IdempotencyRecord, LedgerEntry, Put, Reservation

NOW = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
ANN = Caller("key:ann", "Ann", frozenset({"ask", "read:*"}), Danger.REVERSIBLE, "10.0.0.1")


def task(id: str, *, caller: Caller = ANN, minutes: int = 0, state: TaskState = TaskState.PENDING) -> Task:
    moment = NOW + timedelta(minutes=minutes)
    call = Call("export", {"deep": {"list": [1, None, "é"]}}, "later", "key-1", 12.5)
    return Task(id, call, caller, state, moment, moment, estimate=3.0)


# Blobs


@pytest.mark.parametrize("size", [0, 1, 8 << 20, (16 << 20) + 5])
async def test_a_blob_comes_back_whole_whatever_its_size(store: Store, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    await store.blobs.set("index/things", data)

    assert await store.blobs.get("index/things") == data


async def test_a_blob_saved_again_replaces_the_longer_one(store: Store) -> None:
    await store.blobs.set("a", b"x" * (9 << 20))
    await store.blobs.set("b", b"other")

    await store.blobs.set("a", b"short")

    assert (await store.blobs.get("a"), await store.blobs.get("b")) == (b"short", b"other")
    assert await store.blobs.get("c") is None


# Tasks


async def test_a_task_is_kept_whole(store: Store) -> None:
    warrant = Warrant(frozenset({"nwp:query"}), ("nwp://inn.example/",), ("rooms:create",), 500, "cl100k_base")
    wanted = replace(
        task("t1", caller=replace(ANN, warrant=warrant)),
        progress=0.5,
        message="half",
        error={"code": "x"},
        saved={"page": 3},
        result=[1],
        attempts=2,
    )
    asked = replace(wanted.call, priority="high", request="r-1", callback="https://ann.example/told")
    wanted = replace(wanted, call=asked)

    await store.tasks.add(wanted)

    assert await store.tasks.get("t1") == wanted
    assert await store.tasks.get("t2") is None


async def test_a_caller_sees_their_own_tasks_newest_first(store: Store) -> None:
    other = replace(ANN, id="key:bob")
    for number in range(3):
        await store.tasks.add(task(f"t{number}", minutes=number))
    await store.tasks.add(task("bobs", caller=other))

    assert [t.id for t in await store.tasks.list_by_caller("key:ann")] == ["t2", "t1", "t0"]
    assert [t.id for t in await store.tasks.list_by_caller("key:ann", limit=2)] == ["t2", "t1"]
    assert await store.tasks.list_by_caller("key:eve") == []
    assert [t.id for t in await store.tasks.list_recent(3)] == ["t2", "t1", "bobs"]


async def test_the_oldest_pending_task_is_claimed_first(store: Store) -> None:
    await store.tasks.add(task("young", minutes=5))
    await store.tasks.add(task("old"))

    claimed = await store.tasks.claim("me", 60)

    assert claimed is not None
    assert (claimed.id, claimed.state, claimed.attempts) == ("old", TaskState.RUNNING, 1)
    assert await store.tasks.get("old") == claimed


def test_a_task_that_an_older_version_stored_is_read() -> None:
    stored = msgspec.json.decode(encode_task(task("t")))
    for part, name in (("call", "priority"), ("call", "request"), ("call", "callback"), ("caller", "warrant")):
        del stored[part][name]
    del stored["repeated"]

    assert decode_task(msgspec.json.encode(stored).decode(), cancelling=False) == task("t")


async def test_urgent_tasks_are_claimed_first_and_of_equal_ones_the_oldest(store: Store) -> None:
    now = datetime.now(UTC)
    waiting: list[tuple[str, Priority, float]] = [  # and for how many seconds
        ("low", "low", 50),
        ("normal", "normal", 40),
        ("normal, younger", "normal", 30),
        ("high", "high", 20),
        ("high, younger", "high", 10),
        ("low, for long", "low", 90),
        ("normal, for longer", "normal", 120),
    ]
    for id, priority, seconds in waiting:
        call = replace(task(id).call, priority=priority, params={"priority": "high"})
        await store.tasks.add(replace(task(id), call=call, created=now - timedelta(seconds=seconds)))

    claimed = [await store.tasks.claim("me", 600) for _ in waiting]

    assert [each.id for each in claimed if each] == [
        "normal, for longer",
        "low, for long",
        "high",
        "high, younger",
        "normal",
        "normal, younger",
        "low",
    ]


async def test_a_task_that_is_restored_has_the_priority_it_had(store: Store) -> None:
    now = datetime.now(UTC)
    urgent = [replace(task(id), created=now, call=replace(task(id).call, priority="high")) for id in ("a", "b")]
    await store.tasks.add(replace(urgent[0], call=task("a").call))
    await store.tasks.add(replace(task("older"), created=now - timedelta(seconds=5)))

    await store.backup.restore_entries(urgent)

    claimed = [await store.tasks.claim("me", 600) for _ in range(3)]
    assert [each.id for each in claimed if each][2:] == ["older"]


async def test_a_task_is_claimed_once_however_many_try(store: Store) -> None:
    for number in range(5):
        await store.tasks.add(task(f"t{number}"))

    claimed = await asyncio.gather(*(store.tasks.claim(f"worker{n}", 60) for n in range(20)))

    taken = [each.id for each in claimed if each]
    assert (len(taken), set(taken)) == (5, {f"t{n}" for n in range(5)})


async def test_a_named_task_is_claimed_or_none(store: Store) -> None:
    await store.tasks.add(task("a"))
    await store.tasks.add(task("b", minutes=1))

    claimed = await store.tasks.claim("me", 60, "b")

    assert claimed is not None
    assert claimed.id == "b"
    assert await store.tasks.claim("you", 60, "b") is None
    assert await store.tasks.claim("you", 60, "c") is None


async def test_a_task_whose_lease_ran_out_is_taken_over_and_its_owner_loses_it(store: Store) -> None:
    await store.tasks.add(task("t"))
    mine = await store.tasks.claim("me", -1)
    assert mine is not None

    theirs = await store.tasks.claim("you", 60)

    assert theirs is not None
    assert (theirs.id, theirs.attempts) == ("t", 2)
    assert await store.tasks.update(replace(mine, state=TaskState.COMPLETED, result="mine"), "me") is False
    assert await store.tasks.renew("me", "t", 60) is None
    assert await store.tasks.get("t") == theirs


async def test_a_renewed_lease_keeps_a_task(store: Store) -> None:
    await store.tasks.add(task("t"))
    mine = await store.tasks.claim("me", -1)

    assert await store.tasks.renew("me", "t", 60) == mine
    assert await store.tasks.claim("you", 60) is None


async def test_an_owner_does_not_claim_its_own_task_again_when_its_lease_ran_out(store: Store) -> None:
    """It may still be running it: a store that was away renews no lease."""
    await store.tasks.add(task("t"))
    mine = await store.tasks.claim("me", -1)

    assert await store.tasks.claim("me", 60) is None
    assert await store.tasks.claim("me", 60, "t") is None
    assert await store.tasks.renew("me", "t", 60) == mine


async def test_only_its_owner_updates_a_task_and_only_until_it_ends(store: Store) -> None:
    await store.tasks.add(task("t"))
    mine = await store.tasks.claim("me", 60)
    assert mine is not None
    done = replace(mine, state=TaskState.COMPLETED, progress=1.0, result={"n": 1})

    assert await store.tasks.update(replace(mine, progress=0.3), "you") is False
    assert await store.tasks.update(done, "me") is True
    assert await store.tasks.update(replace(mine, progress=0.3), "me") is False
    assert await store.tasks.get("t") == done
    assert await store.tasks.claim("you", 60) is None


async def test_a_pending_task_is_cancelled_at_once(store: Store) -> None:
    await store.tasks.add(task("t"))

    cancelled = await store.tasks.cancel("t")

    assert cancelled is not None
    assert (cancelled.state, cancelled.cancelling) == (TaskState.CANCELLED, False)
    assert await store.tasks.get("t") == cancelled
    assert await store.tasks.claim("me", 60) is None


async def test_a_running_task_is_marked_and_its_owner_is_told(store: Store) -> None:
    await store.tasks.add(task("t"))
    mine = await store.tasks.claim("me", 60)
    assert mine is not None

    marked = await store.tasks.cancel("t")

    assert marked == replace(mine, cancelling=True)
    assert await store.tasks.renew("me", "t", 60) == marked
    assert await store.tasks.update(replace(mine, state=TaskState.CANCELLED), "me") is True


async def test_cancelling_what_is_over_or_unknown_changes_nothing(store: Store) -> None:
    await store.tasks.add(task("t", state=TaskState.COMPLETED))

    assert await store.tasks.cancel("t") == task("t", state=TaskState.COMPLETED)
    assert await store.tasks.cancel("nope") is None


async def test_a_caller_has_so_many_tasks_under_way_and_no_more(store: Store) -> None:
    bob = replace(ANN, id="key:bob")
    await store.tasks.add(task("done", state=TaskState.COMPLETED))

    assert [await store.tasks.add(task(id), 2) for id in "abc"] == [True, True, False]
    assert await store.tasks.add(task("bobs", caller=bob), 2) is True
    assert await store.tasks.add(task("more")) is True
    assert await store.tasks.get("c") is None


async def test_a_task_that_ends_makes_room_for_another(store: Store) -> None:
    for id in "abc":
        await store.tasks.add(task(id), 3)
    mine = await store.tasks.claim("me", 60, "a")
    assert mine is not None
    assert await store.tasks.add(task("d"), 3) is False

    await store.tasks.update(replace(mine, state=TaskState.FAILED), "me")
    await store.tasks.cancel("b")

    assert [await store.tasks.add(task(id), 3) for id in "efg"] == [True, True, False]


async def test_anonymous_callers_are_told_apart_by_address(store: Store) -> None:
    here, there = Caller(address="1.1.1.1"), Caller(address="2.2.2.2")

    assert [await store.tasks.add(task(id, caller=here), 1) for id in "ab"] == [True, False]
    assert await store.tasks.add(task("c", caller=there), 1) is True


async def test_the_limit_of_tasks_holds_for_all_processes_together(url: str, opening: Opening) -> None:
    stores = [await opening(url), await opening(url)]

    added = await asyncio.gather(*(stores[n % 2].tasks.add(task(f"t{n}"), 5) for n in range(20)))

    assert added.count(True) == 5
    assert len(await stores[0].tasks.list_by_caller(ANN.id)) == 5


# News of tasks


async def heard(store: Store, what: Awaitable[object]) -> bool:
    """Whether the store tells of something while one waits for it."""
    before = await store.tasks.wait(-1, 0)
    await what
    return await store.tasks.wait(before, 10) > before


async def test_tasks_added_cancelled_given_back_and_ended_are_news(store: Store) -> None:
    assert await heard(store, store.tasks.add(task("t")))
    mine = await store.tasks.claim("me", 60)
    assert mine is not None
    assert await heard(store, store.tasks.cancel("t"))
    assert await heard(store, store.tasks.update(replace(mine, state=TaskState.PENDING), "me"))
    again = await store.tasks.claim("me", 60)
    assert again is not None
    assert await heard(store, store.tasks.update(replace(again, state=TaskState.COMPLETED), "me"))


async def test_news_wakes_all_who_wait_for_it(store: Store) -> None:
    before = await store.tasks.wait(-1, 0)
    waiting = [asyncio.create_task(store.tasks.wait(before, 60)) for _ in range(5)]
    await asyncio.sleep(0)

    await store.tasks.add(task("t"))

    async with asyncio.timeout(60):
        assert all(news >= before for news in await asyncio.gather(*waiting))
    assert await store.tasks.wait(before, 10) > before


async def test_a_task_of_another_process_ends_the_wait_for_news(url: str, opening: Opening) -> None:
    here, there = await opening(url), await opening(url)
    before = await here.tasks.wait(-1, 0)
    waiting = asyncio.create_task(here.tasks.wait(before, 60))

    await there.tasks.add(task("t"))

    async with asyncio.timeout(60):
        await waiting
    assert await here.tasks.get("t") == task("t")


async def test_waiting_for_news_has_an_end(store: Store) -> None:
    before = await store.tasks.wait(-1, 0)

    async with asyncio.timeout(60):
        assert await store.tasks.wait(before, 0.01) >= before


# Meters


async def test_a_bucket_gives_what_it_holds_and_then_nothing(store: Store) -> None:
    meters = [await store.meters.take("ann", 3) for _ in range(4)]

    assert [meter.granted for meter in meters] == [True, True, True, False]
    assert [int(meter.tokens) for meter in meters] == [2, 1, 0, 0]
    assert 0 <= meters[3].tokens < 1


async def test_everybody_has_a_bucket_of_their_own(store: Store) -> None:
    assert [(await store.meters.take("ann", 2)).granted for _ in range(3)] == [True, True, False]

    assert (await store.meters.take("bob", 2)).granted
    assert (await store.meters.take("Änne 'x' \u2603", 2)).granted


async def test_a_bucket_refills_evenly_also_while_it_is_asked_in_vain(store: Store) -> None:
    a_second = 5
    began = time.monotonic()
    assert (await store.meters.take("ann", a_second * 60, a_second * 60)).granted == a_second * 60

    async with asyncio.timeout(60):
        while not (meter := await store.meters.take("ann", a_second * 60)).granted:
            pass

    refilled = (time.monotonic() - began) * a_second
    assert refilled > 0.9
    assert meter.tokens <= refilled


async def test_a_bucket_never_holds_more_than_its_limit(store: Store) -> None:
    await store.meters.take("ann", 6000)
    await asyncio.sleep(0.05)

    assert (await store.meters.take("ann", 6000)).tokens <= 5999
    assert (await store.meters.take("ann", 2)).tokens <= 1


async def test_all_processes_spend_from_one_bucket(url: str, opening: Opening) -> None:
    stores = [await opening(url), await opening(url)]
    began = time.monotonic()

    meters = await asyncio.gather(*(stores[n % 2].meters.take("ann", 5) for n in range(40)))

    refilled = (time.monotonic() - began) * 5 / 60
    assert 5 <= sum(meter.granted for meter in meters) <= 5 + refilled


async def test_a_bucket_gives_many_tokens_at_once_or_as_many_as_there_are(store: Store) -> None:
    meters = [await store.meters.take("ann", 8, 5) for _ in range(3)]

    assert [meter.granted for meter in meters] == [5, 3, 0]
    assert [int(meter.tokens) for meter in meters] == [3, 0, 0]
    assert (await store.meters.take("bob", 3, 5)).granted == 3


async def test_two_processes_that_take_many_at_once_never_exceed_the_limit(url: str, opening: Opening) -> None:
    limits = Limits(keys_per_minute=600)
    rates = [Rates(limits, (await opening(url)).meters.take) for _ in range(2)]
    began = time.monotonic()

    granted = sum(await asyncio.gather(*(_spent_until_refused(each) for each in rates)))

    refilled = (time.monotonic() - began) * 10
    assert 600 <= granted <= 600 + refilled


async def _spent_until_refused(rates: Rates) -> int:
    spent = 0
    with contextlib.suppress(RateLimited):
        while True:
            await rates.spend("ann", anonymous=False)
            spent += 1
    return spent


# Roles


async def test_a_role_has_one_owner_who_may_keep_it(store: Store) -> None:
    assert await store.roles.acquire("embed", "me", 60) is True
    assert await store.roles.acquire("embed", "you", 60) is False
    assert await store.roles.acquire("embed", "me", 60) is True
    assert await store.roles.acquire("other", "you", 60) is True


async def test_a_role_goes_to_another_when_its_time_is_over_and_not_before(store: Store) -> None:
    assert await store.roles.acquire("embed", "me", 60) is True
    assert await store.roles.acquire("embed", "you", 60) is False
    assert await store.roles.acquire("embed", "me", -1) is True

    assert await store.roles.acquire("embed", "you", 60) is True
    assert await store.roles.acquire("embed", "me", 60) is False


async def test_one_of_many_processes_gets_a_role(url: str, opening: Opening) -> None:
    stores = [await opening(url), await opening(url)]

    leads = await asyncio.gather(*(stores[n % 2].roles.acquire("embed", f"process {n}", 60) for n in range(20)))

    assert leads.count(True) == 1


# Idempotency


def later(seconds: float = 3600) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def test_a_key_is_reserved_once_however_many_try(store: Store) -> None:
    answers = await asyncio.gather(*(store.idempotency.reserve("ann:k", f"d{n}", later()) for n in range(10)))

    assert answers.count(None) == 1
    first = f"d{answers.index(None)}"
    assert [each for each in answers if each] == [IdempotencyRecord(first)] * 9


async def test_a_settled_key_gives_its_result_or_its_task(store: Store) -> None:
    await store.idempotency.reserve("a", "d1", later(), owner="me", lease=60)
    await store.idempotency.reserve("b", "d2", later(), owner="me", lease=60)

    await store.items.commit([], lambda _: CallSettlement(Reservation("a", "me"), b"\0\xff"))
    await store.tasks.add(task("t1"), key=Reservation("b", "me"))

    assert await store.idempotency.reserve("a", "other", later()) == IdempotencyRecord("d1", result=b"\0\xff")
    assert await store.idempotency.reserve("b", "other", later()) == IdempotencyRecord("d2", task="t1")


async def test_a_call_counts_as_running_until_its_lease_runs_out_or_it_is_given_up(store: Store) -> None:
    for scope, lease in {"held": 60, "expired": -1, "renewed": -1, "given up": 60}.items():
        await store.idempotency.reserve(scope, "d", later(), owner="me", lease=lease)

    assert await store.idempotency.renew(Reservation("renewed", "me"), 60)
    assert not await store.idempotency.renew(Reservation("held", "other"), 60)
    await store.idempotency.abandon(Reservation("given up", "me"), "it did not end in time")

    assert await store.idempotency.get("held") == IdempotencyRecord("d", is_running=True)
    assert await store.idempotency.get("expired") == IdempotencyRecord("d")
    assert await store.idempotency.get("renewed") == IdempotencyRecord("d", is_running=True)
    assert await store.idempotency.get("given up") == IdempotencyRecord("d", reason="it did not end in time")


async def test_only_a_key_without_an_outcome_or_a_reason_is_taken_over(store: Store) -> None:
    await store.idempotency.reserve("running", "d", later(), owner="me", lease=60)
    await store.idempotency.reserve("left", "d", later(), owner="me", lease=-1)
    await store.idempotency.reserve("in doubt", "d", later(), owner="me", lease=-1, reason="it stopped")
    await store.idempotency.reserve("a name", "d", later())
    await store.idempotency.reserve("done", "d", later(), owner="me", lease=-1)
    await store.items.commit([], lambda _: CallSettlement(Reservation("done", "me"), b"1"))

    async def take_over(scope: str, digest: str = "d") -> IdempotencyRecord | None:
        return await store.idempotency.reserve(scope, digest, later(), owner="other", lease=60)

    assert await take_over("running") == IdempotencyRecord("d", is_running=True)
    assert await take_over("done") == IdempotencyRecord("d", result=b"1")
    assert await take_over("left", "other parameters") == IdempotencyRecord("d")
    assert await take_over("in doubt") == IdempotencyRecord("d", reason="it stopped")
    assert await take_over("a name") == IdempotencyRecord("d")
    assert await take_over("left") is None
    assert await store.idempotency.get("left") == IdempotencyRecord("d", is_running=True)


async def test_who_lost_a_key_or_a_task_commits_nothing(store: Store) -> None:
    await store.collections.declare(Collection("things"))
    await store.idempotency.reserve("k", "d", later(), owner="other", lease=60)
    await store.tasks.add(task("t"))
    running = await store.tasks.claim("other", 60)
    assert running is not None
    write = ("things", Put("a", {"n": 1}))

    by_key = await store.items.commit([write], lambda _: CallSettlement(Reservation("k", "me"), b"1"))
    by_task = await store.items.commit(
        [write], lambda _: CallSettlement(task=replace(running, progress=1.0), owner="me")
    )
    with pytest.raises(KeyInUse):
        await store.tasks.add(task("t2"), key=Reservation("k", "me"))
    await store.idempotency.release(Reservation("k", "me"))
    await store.idempotency.abandon(Reservation("k", "me"), "no")

    assert (by_key, by_task) == (None, None)
    assert await store.items.get("things", "a") is None
    assert await store.changes.head() == 0
    assert await store.tasks.get("t2") is None
    assert await store.tasks.get("t") == running
    assert await store.idempotency.get("k") == IdempotencyRecord("d", is_running=True)


async def test_a_settled_key_is_neither_given_up_nor_released(store: Store) -> None:
    key = Reservation("k", "me")
    await store.idempotency.reserve("k", "d", later(), owner="me", lease=60)
    await store.items.commit([], lambda _: CallSettlement(key, b"1"))

    await store.idempotency.abandon(key, "too late")
    await store.idempotency.release(key)

    assert await store.items.commit([], lambda _: CallSettlement(key, b"2")) is None
    assert await store.idempotency.get("k") == IdempotencyRecord("d", result=b"1")


async def test_a_released_key_is_free_again(store: Store) -> None:
    await store.idempotency.reserve("a", "d1", later())

    await store.notes.delete("a")

    assert await store.idempotency.reserve("a", "d2", later()) is None
    assert await store.idempotency.reserve("a", "d3", later()) == IdempotencyRecord("d2")


async def test_a_key_is_free_again_when_its_time_is_over(store: Store) -> None:
    await store.idempotency.reserve("a", "d1", later(-1))

    assert await store.idempotency.reserve("a", "d2", later()) is None


# API keys


async def test_a_key_is_found_by_its_digest_until_it_is_revoked(store: Store) -> None:
    _, key = make_key("Ann", ["ask", "read:recipes"], Danger.DESTRUCTIVE, 30, NOW)
    _, other = make_key("Bob", [], Danger.SAFE, None, NOW)

    await store.keys.add(key)
    await store.keys.add(other)

    assert await store.keys.find(key.digest) == key
    assert await store.keys.find("nope") is None
    assert sorted(await store.keys.list_all(), key=lambda k: k.name) == [key, other]
    assert await store.keys.revoke(key.id, NOW) is True
    assert await store.keys.find(key.digest) == replace(key, revoked=NOW)
    assert await store.keys.revoke(key.id, NOW) is False
    assert await store.keys.revoke("nope", NOW) is False


async def test_another_takes_the_place_of_a_key_once_and_it_can_still_be_revoked(store: Store) -> None:
    (_, key), (_, gone) = (make_key(name, [], Danger.SAFE, None, NOW) for name in ("Ann", "Bob"))
    until, sooner = NOW + timedelta(hours=1), NOW + timedelta(minutes=59)
    await store.keys.add(key)
    await store.keys.add(gone)
    await store.keys.revoke(gone.id, NOW)

    taken = await asyncio.gather(*(store.keys.supersede(key.id, at) for at in (until, sooner, until)))
    ending = await store.keys.get(key.id)

    assert sorted(taken) == [False, False, True]
    assert ending == replace(key, until=ending.until)
    assert [ending.is_valid(NOW), ending.is_valid(until)] == [True, False]
    assert [await store.keys.supersede(id, until) for id in (key.id, gone.id, "nope")] == [False] * 3
    assert await store.keys.revoke(key.id, until) is True
    assert not (await store.keys.get(key.id)).is_valid(NOW)  # whatever the clock of who revoked it says


# Moving


async def entries(store: Store) -> list[LedgerEntry]:
    return [entry async for some in store.backup.read_entries(NOW) for entry in some]


def some_entries() -> list[LedgerEntry]:
    keys = [make_key(name, ["ask"], Danger.SAFE, 30, NOW)[1] for name in ("Ann", "Bob")]
    return [
        *sorted((keys[0], replace(keys[1], revoked=NOW)), key=lambda key: key.id),
        task("t1", state=TaskState.COMPLETED),
        replace(task("t2", state=TaskState.RUNNING), cancelling=True),
        IdempotencyEntry("a", IdempotencyRecord("d1"), NOW + timedelta(hours=1)),
        IdempotencyEntry("b", IdempotencyRecord("d2", "t1", b"\0\xff"), NOW + timedelta(hours=1)),
    ]


async def test_entries_come_back_as_they_were_restored(store: Store) -> None:
    wanted = some_entries()

    await store.backup.restore_entries(wanted)

    assert await entries(store) == wanted
    assert await store.tasks.get("t1") == task("t1", state=TaskState.COMPLETED)


async def test_many_entries_come_in_batches_and_none_is_left_out(store: Store) -> None:
    wanted: list[LedgerEntry] = [
        *(task(f"t{n:04}") for n in range(1001)),
        *(IdempotencyEntry(f"p{n:04}", IdempotencyRecord("d"), NOW + timedelta(hours=n - 500)) for n in range(1501)),
    ]

    await store.backup.restore_entries(wanted)

    valid = [entry for entry in wanted if not isinstance(entry, IdempotencyEntry) or entry.expires > NOW]
    assert len(valid) == 1001 + 1000
    assert await entries(store) == valid


async def test_an_entry_restored_again_takes_the_place_of_the_older_one(store: Store) -> None:
    first, second, done, running, promise, other = some_entries()
    await store.backup.restore_entries([first, second, done, task("t2"), promise, other])
    await store.tasks.claim("somebody", 3600, "t2")

    newer: list[LedgerEntry] = [
        replace(first, name="Ann again", revoked=NOW),
        second,
        done,
        running,
        replace(promise, record=IdempotencyRecord("d3", result=b"{}"), expires=NOW + timedelta(hours=2)),
        other,
    ]
    await store.backup.restore_entries(newer)

    assert await entries(store) == newer
    assert await store.tasks.claim("another", 60, "t2") is not None  # it is nobody's here, whoever ran it


async def test_forgotten_entries_leave_room_for_others(store: Store) -> None:
    await store.backup.restore_entries(some_entries())
    await store.blobs.set("index", b"stays")

    await store.backup.delete_entries()

    assert await entries(store) == []
    assert (await store.keys.list_all(), await store.tasks.get("t1")) == ([], None)
    assert await store.blobs.get("index") == b"stays"
    wanted = some_entries()
    await store.backup.restore_entries(wanted)
    assert await entries(store) == wanted


async def test_an_idempotency_key_is_left_out_from_the_moment_it_expires(store: Store) -> None:
    hour = NOW + timedelta(hours=1)
    await store.backup.restore_entries([IdempotencyEntry("a", IdempotencyRecord("d"), hour)])

    async def held(at: datetime) -> list[LedgerEntry]:
        return [entry async for some in store.backup.read_entries(at) for entry in some]

    assert await held(hour - timedelta(microseconds=1)) == [IdempotencyEntry("a", IdempotencyRecord("d"), hour)]
    assert await held(hour) == []


async def test_a_sound_store_has_nothing_to_report(store: Store) -> None:
    assert await store.check() == []
    assert store.url.partition(":")[0] in {"sqlite", "postgresql"}
    assert len(store.secret) >= 16


async def test_a_note_takes_the_place_of_the_one_before_and_its_time(store: Store) -> None:
    soon, past = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(seconds=1)
    await store.notes.set("a", b"first", past)
    assert await store.idempotency.get("a") is None

    await store.notes.set("a", b"second", soon)
    assert await store.idempotency.get("a") == IdempotencyRecord("", result=b"second")

    await store.notes.set("a", b"third", past)
    assert await store.idempotency.get("a") is None
