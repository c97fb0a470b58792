"""What only a file of SQLite can do wrong."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from portico.catalog import Collection
from portico.errors import ConfigError, TimedOut, Unavailable
from portico.query import Condition, Query
from portico.store import open_store
from portico.store.planning import WritePlan, plan_writes
from portico.store.records import Put


@pytest.mark.parametrize("url", ["", "site.db", "sqlite://site.db", "sqlite:///", "mysql:///x", "file:///x"])
async def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        await open_store(url)


async def test_the_folder_of_a_new_store_is_made(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/new/folder/site.db")
    await store.close()

    assert (tmp_path / "new/folder/site.db").exists()


async def test_a_database_of_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE people (name TEXT)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(ConfigError, match="not a Portico store"):
        await open_store(f"sqlite:///{path}")

    assert path.read_bytes()[100:] == before[100:]


async def test_a_store_of_a_newer_portico_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    await (await open_store(f"sqlite:///{path}")).close()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()

    with pytest.raises(ConfigError, match="newer Portico"):
        await open_store(f"sqlite:///{path}")


async def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    path.write_bytes(b"not a database, but long enough to be one" * 100)

    with pytest.raises(Unavailable):
        await open_store(f"sqlite:///{path}")


async def test_a_folder_cannot_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await open_store(f"sqlite:///{tmp_path}")


async def test_a_temporary_store_leaves_nothing_behind() -> None:
    store = await open_store("sqlite:///:memory:")
    await store.collections.declare(Collection("things"))
    path = Path(store.items._engine.path)  # type: ignore[attr-defined]
    assert path.exists()

    await store.close()

    assert not path.parent.exists()


async def test_a_temporary_store_has_a_feed_a_ledger_and_an_end_of_its_own() -> None:
    here, there = await open_store("sqlite:///:memory:"), await open_store("sqlite:///:memory:")
    await here.collections.declare(Collection("things"))
    [change] = await here.items.write("things", [Put("a", {"n": 1})])

    assert [each.seq for each in await here.changes.list_since(0)] == [await here.changes.head()] == [change.seq]
    assert await here.roles.acquire("sweeper", "me", 60)
    assert not await here.roles.acquire("sweeper", "you", 60)
    assert await there.roles.acquire("sweeper", "you", 60)
    assert (await there.changes.head(), dict(there.collections.schema)) == (0, {})
    await here.close()
    await there.close()


async def test_a_stamp_tells_of_writes_of_every_process_and_of_nothing_else(tmp_path: Path) -> None:
    here, there = [await open_store(f"sqlite:///{tmp_path}/site.db") for _ in range(2)]
    stamps = [here.changes.stamp()]
    await here.collections.declare(Collection("things"))
    stamps.append(here.changes.stamp())
    await there.items.write("things", [Put("a", {"n": 1})])
    stamps.append(here.changes.stamp())
    await here.items.find(Query("things"))
    await here.meters.take("ann", 3)
    stamps.append(here.changes.stamp())

    first, declared, written, read = stamps
    assert first < declared < written == read
    await here.close()
    await there.close()
    assert here.changes.stamp() is None


async def test_a_cancelled_read_does_not_spoil_the_next(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/site.db")
    await store.collections.declare(Collection("things"))
    await store.items.write("things", [Put(f"i{n}", {"t": "x" * 100, "o": {"l": list(range(50))}}) for n in range(500)])
    slow = Query("things", where=Condition("o.l", "regex", "(x+x+)+y"), count=True)

    for _ in range(8):
        task = asyncio.create_task(store.items.find(slow))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        assert (await store.items.get_many("things", ["i1"]))["i1"].data["t"] == "x" * 100
    except TimedOut:
        pytest.fail("a cancelled read stopped another one")
    await store.close()


async def test_a_store_closed_while_it_is_read_ends_cleanly(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/site.db")
    await store.collections.declare(Collection("things"))
    reads = [asyncio.create_task(store.items.find(Query("things"))) for _ in range(10)]
    await asyncio.sleep(0)

    await store.close()

    outcomes = await asyncio.gather(*reads, return_exceptions=True)
    assert all(not isinstance(outcome, BaseException) for outcome in outcomes)


async def test_a_store_that_lacks_a_table_is_out_of_order_and_does_not_say_which(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/site.db")
    await store.collections.declare(Collection("things"))
    with closing(apsw.Connection(str(tmp_path / "site.db"))) as other:
        other.execute("DROP TABLE items_1")

    with pytest.raises(Unavailable) as refusal:
        await store.items.find(Query("things"))

    assert (refusal.value.message, refusal.value.details) == ("The store is not whole", {})
    await store.close()


async def test_a_write_that_fails_when_nobody_waits_for_it_leaves_no_fields_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def plan_when_let_go(*args: Any) -> WritePlan:
        begun.set()
        go_on.wait(20)
        return plan_writes(*args)

    monkeypatch.setattr("portico.store.sqlite.items.plan_writes", plan_when_let_go)
    here, there = [await open_store(f"sqlite:///{tmp_path}/site.db") for _ in range(2)]
    await here.collections.declare(Collection("things"))
    with closing(apsw.Connection(str(tmp_path / "site.db"))) as other:
        other.execute(
            "CREATE TRIGGER no BEFORE INSERT ON changes WHEN NEW.id = 'bad' BEGIN SELECT RAISE(ABORT, ''); END"
        )

    writing = asyncio.create_task(here.items.write("things", [Put("bad", {"height": 1})]))
    assert await asyncio.to_thread(begun.wait, 20)
    writing.cancel()
    await asyncio.wait([writing])
    go_on.set()
    await here.blobs.set("after it", b"")

    await there.items.write("things", [Put("good", {"width": 1})])
    page = await here.items.find(Query("things", where=Condition("width", "eq", 1)))
    assert [item.id for item in page.items] == ["good"]
    assert set((await here.collections.refresh())["things"].fields) == {"width"}
    await here.close()
    await there.close()
