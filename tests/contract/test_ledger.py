"""Blobs, tasks, idempotency keys and API keys."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from portico.calls import Call, Caller, Task, TaskState
from portico.catalog import Danger
from portico.identity import make_key
from portico.store import Kept, Store

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

    await store.save_blob("index/things", data)

    assert await store.load_blob("index/things") == data


async def test_a_blob_saved_again_replaces_the_longer_one(store: Store) -> None:
    await store.save_blob("a", b"x" * (9 << 20))
    await store.save_blob("b", b"other")

    await store.save_blob("a", b"short")

    assert (await store.load_blob("a"), await store.load_blob("b")) == (b"short", b"other")
    assert await store.load_blob("c") is None


# Tasks


async def test_a_task_is_kept_whole(store: Store) -> None:
    wanted = replace(
        task("t1"), progress=0.5, message="half", error={"code": "x"}, saved={"page": 3}, result=[1], attempts=2
    )

    await store.add_task(wanted)

    assert await store.get_task("t1") == wanted
    assert await store.get_task("t2") is None


async def test_a_caller_sees_their_own_tasks_newest_first(store: Store) -> None:
    other = replace(ANN, id="key:bob")
    for number in range(3):
        await store.add_task(task(f"t{number}", minutes=number))
    await store.add_task(task("bobs", caller=other))

    assert [t.id for t in await store.tasks("key:ann")] == ["t2", "t1", "t0"]
    assert [t.id for t in await store.tasks("key:ann", limit=2)] == ["t2", "t1"]
    assert await store.tasks("key:eve") == []


async def test_the_oldest_pending_task_is_claimed_first(store: Store) -> None:
    await store.add_task(task("young", minutes=5))
    await store.add_task(task("old"))

    claimed = await store.claim_task("me", 60)

    assert claimed is not None
    assert (claimed.id, claimed.state, claimed.attempts) == ("old", TaskState.RUNNING, 1)
    assert await store.get_task("old") == claimed


async def test_a_task_is_claimed_once_however_many_try(store: Store) -> None:
    for number in range(5):
        await store.add_task(task(f"t{number}"))

    claimed = await asyncio.gather(*(store.claim_task(f"worker{n}", 60) for n in range(20)))

    taken = [each.id for each in claimed if each]
    assert (len(taken), set(taken)) == (5, {f"t{n}" for n in range(5)})


async def test_a_named_task_is_claimed_or_none(store: Store) -> None:
    await store.add_task(task("a"))
    await store.add_task(task("b", minutes=1))

    claimed = await store.claim_task("me", 60, "b")

    assert claimed is not None
    assert claimed.id == "b"
    assert await store.claim_task("you", 60, "b") is None
    assert await store.claim_task("you", 60, "c") is None


async def test_a_task_whose_lease_ran_out_is_taken_over_and_its_owner_loses_it(store: Store) -> None:
    await store.add_task(task("t"))
    mine = await store.claim_task("me", -1)
    assert mine is not None

    theirs = await store.claim_task("you", 60)

    assert theirs is not None
    assert (theirs.id, theirs.attempts) == ("t", 2)
    assert await store.update_task(replace(mine, state=TaskState.COMPLETED, result="mine"), "me") is False
    assert await store.renew_lease("me", "t", 60) is None
    assert await store.get_task("t") == theirs


async def test_a_renewed_lease_keeps_a_task(store: Store) -> None:
    await store.add_task(task("t"))
    mine = await store.claim_task("me", -1)

    assert await store.renew_lease("me", "t", 60) == mine
    assert await store.claim_task("you", 60) is None


async def test_only_its_owner_updates_a_task_and_only_until_it_ends(store: Store) -> None:
    await store.add_task(task("t"))
    mine = await store.claim_task("me", 60)
    assert mine is not None
    done = replace(mine, state=TaskState.COMPLETED, progress=1.0, result={"n": 1})

    assert await store.update_task(replace(mine, progress=0.3), "you") is False
    assert await store.update_task(done, "me") is True
    assert await store.update_task(replace(mine, progress=0.3), "me") is False
    assert await store.get_task("t") == done
    assert await store.claim_task("you", 60) is None


async def test_a_pending_task_is_cancelled_at_once(store: Store) -> None:
    await store.add_task(task("t"))

    cancelled = await store.cancel_task("t")

    assert cancelled is not None
    assert (cancelled.state, cancelled.cancelling) == (TaskState.CANCELLED, False)
    assert await store.get_task("t") == cancelled
    assert await store.claim_task("me", 60) is None


async def test_a_running_task_is_marked_and_its_owner_is_told(store: Store) -> None:
    await store.add_task(task("t"))
    mine = await store.claim_task("me", 60)
    assert mine is not None

    marked = await store.cancel_task("t")

    assert marked == replace(mine, cancelling=True)
    assert await store.renew_lease("me", "t", 60) == marked
    assert await store.update_task(replace(mine, state=TaskState.CANCELLED), "me") is True


async def test_cancelling_what_is_over_or_unknown_changes_nothing(store: Store) -> None:
    await store.add_task(task("t", state=TaskState.COMPLETED))

    assert await store.cancel_task("t") == task("t", state=TaskState.COMPLETED)
    assert await store.cancel_task("nope") is None


# Idempotency


def later(seconds: float = 3600) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def test_a_key_is_reserved_once_however_many_try(store: Store) -> None:
    answers = await asyncio.gather(*(store.keep("ann:k", f"d{n}", later()) for n in range(10)))

    assert answers.count(None) == 1
    first = f"d{answers.index(None)}"
    assert [each for each in answers if each] == [Kept(first)] * 9


async def test_a_settled_key_gives_its_result_or_its_task(store: Store) -> None:
    await store.keep("a", "d1", later())
    await store.keep("b", "d2", later())

    await store.settle("a", Kept("d1", result=b"\0\xff"))
    await store.settle("b", Kept("d2", task="t1"))

    assert await store.keep("a", "other", later()) == Kept("d1", result=b"\0\xff")
    assert await store.keep("b", "other", later()) == Kept("d2", task="t1")


async def test_a_released_key_is_free_again(store: Store) -> None:
    await store.keep("a", "d1", later())

    await store.release("a")

    assert await store.keep("a", "d2", later()) is None
    assert await store.keep("a", "d3", later()) == Kept("d2")


async def test_a_key_is_free_again_when_its_time_is_over(store: Store) -> None:
    await store.keep("a", "d1", later(-1))

    assert await store.keep("a", "d2", later()) is None


# API keys


async def test_a_key_is_found_by_its_digest_until_it_is_revoked(store: Store) -> None:
    _, key = make_key("Ann", ["ask", "read:recipes"], Danger.DESTRUCTIVE, 30, NOW)
    _, other = make_key("Bob", [], Danger.SAFE, None, NOW)

    await store.add_key(key)
    await store.add_key(other)

    assert await store.find_key(key.digest) == key
    assert await store.find_key("nope") is None
    assert sorted(await store.keys(), key=lambda k: k.name) == [key, other]
    assert await store.revoke_key(key.id, NOW) is True
    assert await store.find_key(key.digest) == replace(key, revoked=NOW)
    assert await store.revoke_key(key.id, NOW) is False
    assert await store.revoke_key("nope", NOW) is False


async def test_a_sound_store_has_nothing_to_report(store: Store) -> None:
    assert await store.check() == []
    assert store.url.partition(":")[0] in {"sqlite", "postgresql"}
    assert len(store.secret) >= 16
