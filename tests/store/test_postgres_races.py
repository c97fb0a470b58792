"""What happens in PostgreSQL when two do things at once: who waits, who gives way, and what stays behind."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import numpy as np
import pytest
from tests.conftest import Opening, StoreUrl
from tests.contract.shelf import fill, ids

from portico.catalog import Collection, Field, FieldType
from portico.errors import Conflict, Unavailable
from portico.items import Item
from portico.query import MATCH_ALL, NearVector, Query
from portico.store import Store
from portico.store.copying import copy_store
from portico.store.records import Put, Remove

DEADLINE = 30.0

# Who waits for this connection, or for somebody who waits for it.
WAITING = """
WITH RECURSIVE held(pid) AS (
    SELECT pg_backend_pid()
    UNION SELECT l.pid FROM held JOIN pg_locks l ON NOT l.granted AND held.pid = ANY(pg_blocking_pids(l.pid))
) SELECT count(*) - 1 FROM held
"""


@pytest.fixture
async def session(url: str, store: Store, postgres: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else who works on the tables of the store."""
    connection = await asyncpg.connect(postgres, server_settings={"search_path": schema_of(url)})
    yield connection
    await connection.close()


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


def puts(*ids: str) -> list[Put]:
    return [Put(id, {"n": 1}) for id in ids]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is so, but not for ever."""
    deadline = time.monotonic() + DEADLINE
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def until_waiting(session: asyncpg.Connection, count: int) -> None:
    """Until so many wait for what the session has locked."""

    async def are_waiting() -> bool:
        return await session.fetchval(WAITING) >= count

    await until(are_waiting)


async def load(store: Store, source: str, *ids: str, name: str = "things") -> None:
    run = await store.loads.begin(source)
    await store.loads.put(run, name, puts(*ids))
    await store.loads.finish(run)


# Loads


async def kinds_and_revisions(store: Store, name: str = "things") -> tuple[set[str], set[str]]:
    changes = await store.changes.list_since(0)
    items = [item async for batch in store.items.scan(name) for item in batch]
    return {change.kind for change in changes}, {item.version.partition("-")[0] for item in items}


async def forgotten_runs(session: asyncpg.Connection) -> int:
    return await session.fetchval("SELECT count(*) FROM seen WHERE run NOT IN (SELECT run FROM runs)")


async def test_a_load_that_begins_while_another_looks_for_what_is_gone_loses_nothing(
    pair: tuple[Store, Store], session: asyncpg.Connection
) -> None:
    here, there = pair
    all_ids = [f"i{n}" for n in range(600)]
    first = await here.loads.begin("file:a")
    await here.loads.put(first, "things", puts(*all_ids))

    async with session.transaction():
        await session.execute("LOCK TABLE items_1 IN ACCESS EXCLUSIVE MODE")
        finishing = asyncio.create_task(here.loads.finish(first))
        await until_waiting(session, 1)
        beginning = asyncio.create_task(there.loads.begin("file:a"))
        await until_waiting(session, 2)  # it does not take from the first run what that has seen
    removed = (await asyncio.gather(finishing, return_exceptions=True))[0]
    second = await beginning
    await there.loads.put(second, "things", puts(*all_ids))

    assert removed == 0 or isinstance(removed, Conflict)
    assert await there.loads.finish(second) == 0
    assert await there.items.count("things", MATCH_ALL) == 600
    assert await kinds_and_revisions(there) == ({"create"}, {"1"})
    assert await forgotten_runs(session) == 0


async def test_a_load_that_ends_while_another_of_its_source_begins_does_not_stand_in_its_way(
    pair: tuple[Store, Store], session: asyncpg.Connection
) -> None:
    here, there = pair
    first = await here.loads.begin("file:a")
    await here.loads.put(first, "things", puts("a", "b"))

    async with session.transaction():
        await session.execute("SELECT run FROM runs FOR SHARE")
        beginning = asyncio.create_task(there.loads.begin("file:a"))
        await until_waiting(session, 1)
        finishing = asyncio.create_task(here.loads.finish(first))
        await until_waiting(session, 2)
    second, removed = await asyncio.gather(beginning, finishing)
    await there.loads.put(second, "things", puts("a", "b"))

    assert (removed, await there.loads.finish(second)) == (0, 0)
    assert await kinds_and_revisions(there) == ({"create"}, {"1"})
    assert await session.fetchval("SELECT count(*) FROM seen") == 0


async def test_a_load_that_was_overtaken_deletes_nothing_and_writes_nothing(
    url: str, pair: tuple[Store, Store], session: asyncpg.Connection
) -> None:
    here, there = pair
    all_ids = [f"i{n}" for n in range(600)]
    await load(here, "file:a", *all_ids)
    first = await here.loads.begin("file:a")

    await hold_shape(session, url, "things")
    finishing = asyncio.create_task(here.loads.finish(first))
    second = await there.loads.begin("file:a")
    loading = asyncio.create_task(there.loads.put(second, "things", puts(*all_ids)))
    await release(session)
    with pytest.raises(Conflict):
        await finishing
    with pytest.raises(Conflict):
        await here.loads.put(first, "things", puts("late"))

    assert (await loading).unchanged == 600
    assert await there.loads.finish(second) == 0
    assert await there.items.count("things", MATCH_ALL) == 600
    assert await kinds_and_revisions(there) == ({"create"}, {"1"})
    assert await session.fetchval("SELECT count(*) FROM seen") == 0


async def test_loads_of_one_source_that_keep_overtaking_each_other_lose_nothing(
    pair: tuple[Store, Store], session: asyncpg.Connection
) -> None:
    all_ids = [f"i{n}" for n in range(50)]
    await load(pair[0], "file:a", *all_ids)

    for _ in range(10):
        ended = await asyncio.gather(*(load(store, "file:a", *all_ids) for store in pair), return_exceptions=True)
        assert [each for each in ended if each and not isinstance(each, Conflict)] == []

    assert await kinds_and_revisions(pair[0]) == ({"create"}, {"1"})
    assert await pair[0].items.count("things", MATCH_ALL) == 50
    assert await forgotten_runs(session) == 0


async def test_an_item_that_another_source_has_just_claimed_is_not_forgotten(
    pair: tuple[Store, Store], session: asyncpg.Connection
) -> None:
    here, there = pair
    await load(here, "file:a", "x", "kept")
    first = await here.loads.begin("file:a")
    await here.loads.put(first, "things", puts("kept"))
    second = await there.loads.begin("file:b")

    async with session.transaction():
        await session.execute("LOCK TABLE seen IN SHARE MODE")  # to be read, but not written
        claiming = asyncio.create_task(there.loads.put(second, "things", puts("x")))
        await until_waiting(session, 1)
        finishing = asyncio.create_task(here.loads.finish(first))
        await until_waiting(session, 2)

    assert (await claiming).unchanged == 1
    assert await finishing == 0
    assert await there.loads.finish(second) == 0
    assert await ids(there, {}) == ["kept", "x"]
    assert await kinds_and_revisions(there) == ({"create"}, {"1"})


# Vectors


async def test_an_item_that_is_removed_while_its_vector_is_written_leaves_none(
    pair: tuple[Store, Store], session: asyncpg.Connection
) -> None:
    here, there = pair
    vector = np.ones(4, "<f4").tobytes()
    names = ["a", "b", "c"]
    await fill(here, {"stays": {"n": 1}})
    await there.vectors.put(
        "things", "m", [(i.id, d, vector) for i, d in await there.vectors.list_missing("things", "m", 9)]
    )

    for _ in range(60):
        await here.items.write("things", puts(*names))
        digests = [(item.id, digest) for item, digest in await there.vectors.list_missing("things", "m", 9)]
        await asyncio.gather(
            here.items.write("things", [Remove(name) for name in names]),
            there.vectors.put("things", "m", [(id, digest, vector) for id, digest in reversed(digests)]),
        )
        assert [row.id for row in await there.vectors.list_after("things", "", "m", 0, 9)] == ["stays"]

    assert await session.fetch("SELECT 1 FROM vectors WHERE id NOT IN (SELECT id FROM items_1)") == []
    found = await there.items.find(Query("things", near=NearVector((1.0, 1.0, 1.0, 1.0), top=5)))
    assert [item.id for item in found.items] == ["stays"]


async def test_a_vector_that_is_being_written_is_removed_with_its_item(
    pair: tuple[Store, Store], session: asyncpg.Connection
) -> None:
    here, there = pair
    (change,) = await fill(here, {"a": {"n": 1}})
    digest = change.item.version.partition("-")[2]

    async with session.transaction():
        await session.execute("SELECT seq FROM vector_feed FOR UPDATE")
        writing = asyncio.create_task(there.vectors.put("things", "m", [("a", digest, np.ones(4, "<f4").tobytes())]))
        await until_waiting(session, 1)
        removing = asyncio.create_task(here.items.write("things", [Remove("a")]))
        await until_waiting(session, 2)
    await asyncio.gather(writing, removing)

    assert await session.fetchval("SELECT count(*) FROM vectors") == 0
    assert (await there.items.find(Query("things", near=NearVector((1.0, 1.0, 1.0, 1.0), top=5)))).items == ()


# Changes of shape


async def hold_shape(session: asyncpg.Connection, url: str, name: str) -> None:
    """Change the shape of a collection for long, as another process may."""
    await session.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", f"portico/{schema_of(url)}/shape/{name}")


async def release(session: asyncpg.Connection) -> None:
    await session.execute("SELECT pg_advisory_unlock_all()")


async def test_a_long_reader_holds_up_a_new_field_and_no_other_reader(
    store: Store, session: asyncpg.Connection
) -> None:
    await fill(store, {"a": {"n": 1}})

    async with session.transaction():
        await session.fetch("SELECT id FROM items_1")
        writing = asyncio.create_task(store.items.write("things", [Put("b", {"n": 2, "new": "x"})]))
        for _ in range(3):
            await until_waiting(session, 1)
            assert await store.items.get("things", "a")
            assert await ids(store, {"n": 1}) == ["a"]
        assert not writing.done()
    await writing

    assert await ids(store, {"new": "x"}) == ["b"]


async def test_a_new_field_that_finds_no_moment_is_refused_in_plain_words(
    store: Store, session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.store.postgres.tables.ALTER_ATTEMPTS", 2)
    monkeypatch.setattr("portico.store.postgres.tables.ALTER_SECONDS", 0.05)
    await fill(store, {"a": {"n": 1}})

    async with session.transaction():
        await session.fetch("SELECT id FROM items_1")
        with pytest.raises(Unavailable, match="reading it for long") as refusal:
            await store.items.write("things", [Put("b", {"n": 2, "new": "x"})])
        await store.items.write("things", [Put("c", {"n": 3})])
    assert refusal.value.hint
    assert await store.items.get("things", "b") is None
    await store.items.write("things", [Put("b", {"n": 2, "new": "x"})])

    assert await ids(store, {"new": "x"}) == ["b"]
    assert await ids(store, {}) == ["a", "b", "c"]


@pytest.mark.parametrize("data", [{"n": 2}, {"n": 2, "new": "x"}], ids=["known", "new"])
async def test_writers_that_wait_for_a_change_of_shape_keep_no_connection(
    url: str, opening: Opening, session: asyncpg.Connection, data: dict[str, object]
) -> None:
    store = await opening(url, pool=3)
    await fill(store, {"a": {"n": 1}})
    await fill(store, {"a": {"n": 1}}, "others")

    await hold_shape(session, url, "things")
    writes = [asyncio.create_task(store.items.write("things", [Put(f"w{n}", data)])) for n in range(6)]
    for _ in range(20):
        assert await store.items.get("others", "a")
        assert await ids(store, {"n": 1}, "others") == ["a"]
        await store.items.write("others", [Put("b", {"n": 2})])
    assert not any(write.done() for write in writes)
    await release(session)
    await asyncio.gather(*writes)

    assert await ids(store, data) == [f"w{n}" for n in range(6)]


async def columns(session: asyncpg.Connection) -> int:
    """How many columns for fields a table has, those that were dropped included: they count for ever."""
    return await session.fetchval(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = 'items_1'::regclass"
        " AND (attname ~ '^f[0-9]+$' OR attisdropped)"
    )


async def test_a_change_of_shape_that_is_cancelled_again_and_again_leaves_no_columns(
    store: Store, session: asyncpg.Connection
) -> None:
    await fill(store, {f"i{n:04}": {"n": n, "m": n, "v": [1.0, 2.0]} for n in range(2500)})
    before = await columns(session)
    wanted = {name: Field(name, FieldType.STRING, "", True) for name in ("n", "m")}
    wanted["v"] = Field("v", FieldType.VECTOR, "", True)

    async with session.transaction():
        await session.execute("SELECT seq FROM vector_feed FOR UPDATE")  # columns are filled until a vector is numbered
        for _ in range(6):
            declaring = asyncio.create_task(store.collections.declare(Collection("things", wanted)))
            await until_waiting(session, 1)
            declaring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await declaring
            assert await columns(session) == before + 2
            assert await ids(store, {"n": 7}) == ["i0007"]
    await store.collections.declare(Collection("things", wanted))
    await store.items.write("things", [Put("new", {"n": "seven", "m": "x"})])

    assert await columns(session) == before + 2
    assert await ids(store, {"n": "seven"}) == ["new"]
    assert len((await store.items.find(Query("things", near=NearVector((1.0, 2.0), field="v", top=3)))).items) == 3


async def test_a_field_that_is_new_in_the_data_leaves_other_items_untouched(
    store: Store, session: asyncpg.Connection
) -> None:
    await fill(store, {f"i{n}": {"n": n} for n in range(200)})
    rows = "SELECT ctid, xmin, id FROM items_1 WHERE id <> 'new' ORDER BY id"
    before = await session.fetch(rows)
    file = await session.fetchval("SELECT pg_relation_filenode('items_1')")

    await store.items.write("things", [Put("new", {"n": 1, "new": "x", "more": 2.5})])

    assert await session.fetch(rows) == before
    assert await session.fetchval("SELECT pg_relation_filenode('items_1')") == file
    assert await ids(store, {"new": "x", "more": 2.5}) == ["new"]


# Wide items


async def test_an_item_of_many_texts_is_copied_there_and_back(
    store_url: StoreUrl, store: Store, opening: Opening
) -> None:
    file, back = await opening(store_url("sqlite")), await opening(store_url("sqlite", "back"))
    data = {f"t{n}": f"a short text, number {n}" for n in range(900)}
    await fill(file, {"wide": data})

    await copy_store(file, store, lambda *_: None)
    await copy_store(store, back, lambda *_: None)

    there: list[Item | None] = [await each.items.get("things", "wide") for each in (file, store, back)]
    assert there[0] == there[1] == there[2]
    assert await ids(back, {"t899": "a short text, number 899"}) == ["wide"]
