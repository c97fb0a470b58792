"""The feed of changes: in order, once, and honest about what it no longer has."""

import asyncio
import time

import pytest
from tests.conftest import Opening
from tests.contract.shelf import fill

from portico.errors import FeedExpired
from portico.store import Store
from portico.store.records import Merge, Put, Remove


async def test_a_new_store_has_an_empty_feed(store: Store) -> None:
    assert await store.changes.head() == 0
    assert await store.changes.list_since(0) == []


async def test_the_feed_gives_back_what_the_writes_gave(store: Store) -> None:
    given = [
        *await fill(store, {"a": {"n": 1}, "b": {"n": 2}}),
        *await fill(store, {"x": {"n": 3}}, "others"),
        *await store.items.write("things", [Merge("a", {"n": 5}), Remove("b")]),
    ]

    assert await store.changes.list_since(0) == given
    assert [change.kind for change in given] == ["create", "create", "create", "update", "delete"]
    assert [change.seq for change in given] == sorted({change.seq for change in given})
    assert await store.changes.head() == given[-1].seq


async def test_a_reader_goes_on_from_where_it_was(store: Store) -> None:
    given = await fill(store, {f"i{n}": {"n": n} for n in range(10)})

    first = await store.changes.list_since(0, limit=4)
    rest = await store.changes.list_since(first[-1].seq)

    assert [*first, *rest] == given
    assert await store.changes.list_since(await store.changes.head()) == []


async def test_the_feed_of_one_collection_leaves_out_the_others(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})
    (other,) = await fill(store, {"x": {"n": 3}}, "others")
    await fill(store, {"b": {"n": 2}})

    assert await store.changes.list_since(0, collection="others") == [other]
    assert [c.item.id for c in await store.changes.list_since(0, collection="things")] == ["a", "b"]
    assert await store.changes.list_since(other.seq, collection="others") == []


async def test_a_place_beyond_the_newest_change_is_refused(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})

    with pytest.raises(FeedExpired) as refusal:
        await store.changes.list_since(2)

    assert refusal.value.details == {"oldest": 1, "newest": 1}


async def test_changes_that_are_no_longer_kept_are_said_to_be_gone(opening: Opening, url: str) -> None:
    store = await opening(url, keep_changes=10)
    for start in range(0, 1100, 100):
        await fill(store, {f"i{n}": {"n": n} for n in range(start, start + 100)})

    with pytest.raises(FeedExpired) as refusal:
        await store.changes.list_since(0)

    oldest, newest = refusal.value.details["oldest"], refusal.value.details["newest"]
    assert (oldest > 1, newest) == (True, 1100)
    kept = await store.changes.list_since(oldest - 1)
    assert [change.seq for change in kept] == list(range(oldest, 1101))
    assert len(kept) >= 10
    with pytest.raises(FeedExpired):
        await store.changes.list_since(oldest - 2)
    assert await store.changes.list_since(newest) == []


async def test_waiting_ends_with_the_next_write(store: Store) -> None:
    (first,) = await fill(store, {"a": {"n": 1}})
    waiting = asyncio.create_task(store.changes.wait(first.seq, 60))
    await asyncio.sleep(0)

    (second,) = await store.items.write("things", [Put("a", {"n": 2})])

    assert await asyncio.wait_for(waiting, 5) == second.seq


async def test_everyone_who_waits_is_woken(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})
    waiting = [asyncio.create_task(store.changes.wait(1, 60)) for _ in range(5)]
    await asyncio.sleep(0)

    await store.items.write("things", [Put("a", {"n": 2})])

    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [2] * 5


async def test_waiting_for_what_has_happened_does_not_wait(store: Store) -> None:
    await fill(store, {"a": {"n": 1}, "b": {"n": 2}})

    assert await asyncio.wait_for(store.changes.wait(1, 60), 30) == 2


async def test_waiting_ends_with_its_time_when_nothing_happens(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})
    started = time.monotonic()

    assert await store.changes.wait(1, 0.05) == 1
    assert time.monotonic() - started >= 0.05


async def test_two_that_share_a_store_see_each_others_writes(opening: Opening, url: str) -> None:
    here, there = await opening(url), await opening(url)
    waiting = asyncio.create_task(there.changes.wait(0, 60))

    given = await fill(here, {"a": {"fresh": 1}})

    assert await asyncio.wait_for(waiting, 5) == 1
    assert await there.changes.list_since(0) == given
    assert await there.items.get("things", "a") == given[0].item
    assert await there.collections.refresh() == here.collections.schema


async def test_two_that_share_a_store_learn_fields_from_each_other(opening: Opening, url: str) -> None:
    here, there = await opening(url), await opening(url)
    await fill(here, {"a": {"x": 1}})
    await there.items.write("things", [Put("b", {"y": "text", "x": 2})])
    await here.items.write("things", [Put("c", {"y": "more", "z": True})])

    assert sorted(await there.collections.refresh()) == ["things"]
    assert (
        list(there.collections.schema["things"].fields)
        == list(here.collections.schema["things"].fields)
        == ["x", "y", "z"]
    )
    assert here.collections.schema == there.collections.schema


async def test_a_store_keeps_everything_when_it_is_opened_again(opening: Opening, url: str) -> None:
    first = await opening(url)
    given = await fill(first, {"a": {"n": 1, "o": {"x": "PT5M"}}, "b": {"n": 2.5}})
    schema, secret = dict(first.collections.schema), first.secret
    await first.blobs.set("kept", b"bytes")
    await first.close()

    again = await opening(url)

    assert (again.collections.schema, again.secret) == (schema, secret)
    assert await again.changes.list_since(0) == given
    assert await again.blobs.get("kept") == b"bytes"
    assert await again.check() == []
