"""Meters in a file of their own, and ledgers that an older Portico made."""

import asyncio
import sqlite3
import stat
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from portico.requests import Call, Caller, Task, TaskState
from portico.store import Store, open_store
from portico.store.encoding import encode_task, to_micros
from portico.store.sqlite.engine import MIGRATIONS

NOW = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/site.db")
    yield opened
    await opened.close()


@pytest.fixture
def meters(tmp_path: Path) -> Path:
    return tmp_path / "site.db-meters"


def execute(path: Path, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        return database.execute(sql, params).fetchall()


async def test_meters_are_for_this_user_alone(store: Store, meters: Path) -> None:
    await store.meters.take("ann", 3)

    assert stat.S_IMODE(meters.stat().st_mode) == 0o600


async def test_spending_does_not_wait_for_a_long_write(store: Store, tmp_path: Path) -> None:
    # By the library of the store: two libraries in one process do not see each other's locks.
    with closing(apsw.Connection(str(tmp_path / "site.db"))) as other:
        other.execute("BEGIN IMMEDIATE")
        blocked = asyncio.create_task(store.blobs.set("a", b"x"))

        async with asyncio.timeout(60):
            assert (await store.meters.take("ann", 3)).granted
        assert not blocked.done()

        other.execute("ROLLBACK")
    await blocked


@pytest.mark.parametrize("broken", [b"", b"not a database, but long enough to be one" * 100])
async def test_a_broken_file_of_meters_is_made_anew(store: Store, meters: Path, broken: bytes) -> None:
    meters.write_bytes(broken)

    spent = [(await store.meters.take("ann", 3)).granted for _ in range(4)]

    assert spent == [True, True, True, False]
    assert len(execute(meters, "SELECT key FROM meters")) == 1


async def test_a_file_of_meters_with_other_columns_is_made_anew(store: Store, meters: Path) -> None:
    execute(meters, "CREATE TABLE meters (key TEXT, level INTEGER)")

    assert [(await store.meters.take("ann", 1)).granted for _ in range(2)] == [True, False]


async def test_meters_that_are_removed_or_ruined_while_in_use_are_made_anew(store: Store, meters: Path) -> None:
    await store.meters.take("ann", 3)
    meters.unlink()
    assert (await store.meters.take("ann", 3)).granted
    assert meters.exists()

    meters.write_bytes(b"ruined" * 1000)
    assert (await store.meters.take("ann", 3)).granted

    assert execute(meters, "SELECT key FROM meters") == [("ann",)]


async def test_where_no_file_can_be_made_a_process_counts_for_itself(store: Store, meters: Path) -> None:
    meters.mkdir()

    assert [(await store.meters.take("ann", 2)).granted for _ in range(3)] == [True, True, False]


async def test_two_processes_agree_again_after_one_made_the_file_anew(tmp_path: Path, meters: Path) -> None:
    stores = [await open_store(f"sqlite:///{tmp_path}/site.db") for _ in range(2)]
    for each in stores:
        await each.meters.take("bob", 3)
    meters.unlink()

    spent = [(await stores[n % 2].meters.take("ann", 4)).granted for n in range(6)]

    assert spent == [True] * 4 + [False] * 2
    for each in stores:
        await each.close()


async def test_buckets_that_are_full_again_are_forgotten(store: Store, tmp_path: Path, meters: Path) -> None:
    await store.meters.take("new", 3)
    old = time.time() - 61
    for n in range(100):
        execute(meters, "INSERT INTO meters VALUES (?, 0, ?)", f"old {n}", old)

    other = await open_store(f"sqlite:///{tmp_path}/site.db")  # a process looks when it begins, and then every minute
    await other.meters.take("newer", 3)
    await other.close()

    assert execute(meters, "SELECT key FROM meters ORDER BY key") == [("new",), ("newer",)]


async def test_a_clock_that_is_set_back_stops_no_bucket(store: Store, meters: Path) -> None:
    await store.meters.take("ann", 3)
    ahead = time.time() + 50
    execute(meters, "UPDATE meters SET tokens = 2.0, at = ?", ahead)

    meter = await store.meters.take("ann", 3)

    assert (meter.granted, meter.tokens) == (True, 1.0)
    [(at,)] = execute(meters, "SELECT at FROM meters")
    assert at < ahead


async def test_a_temporary_store_has_its_meters_in_its_own_folder() -> None:
    store = await open_store("sqlite:///:memory:")
    assert (await store.meters.take("ann", 3)).granted
    path = Path(store.items._engine.meters.path)  # type: ignore[attr-defined]
    assert path.exists()

    await store.close()

    assert not path.parent.exists()


async def test_tasks_that_an_older_portico_left_count_for_their_callers(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    left = [
        Task("a", Call("export"), Caller(address="1.1.1.1"), TaskState.PENDING, NOW, NOW),
        Task("b", Call("export"), Caller("key:ann"), TaskState.PENDING, NOW, NOW),
    ]
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.executescript(MIGRATIONS[0] + "PRAGMA user_version = 1")
        older.executemany(
            "INSERT INTO tasks (id, caller, state, created, task) VALUES (?, ?, 'pending', 0, ?)",
            [(task.id, task.caller.id, encode_task(task)) for task in left],
        )

    store = await open_store(f"sqlite:///{path}")

    for task in left:
        another = Task(f"{task.id}2", task.call, task.caller, TaskState.PENDING, NOW, NOW)
        assert await store.tasks.get(task.id) == task
        assert await store.tasks.add(another, 1) is False
    elsewhere = Task("c", Call("export"), Caller(address="2.2.2.2"), TaskState.PENDING, NOW, NOW)
    assert await store.tasks.add(elsewhere, 1) is True
    await store.close()


async def test_of_the_tasks_that_wait_only_the_one_that_is_claimed_is_read(store: Store, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    for number in range(3):
        await store.tasks.add(Task(f"t{number}", Call("export"), Caller(), TaskState.PENDING, now, now))
    with closing(apsw.Connection(str(tmp_path / "site.db"))) as other:
        other.execute("UPDATE tasks SET task = 'no task', created = created + 1 WHERE id <> 't1'")

    claimed = await store.tasks.claim("me", 60)

    assert claimed is not None
    assert claimed.id == "t1"


async def test_tasks_that_an_older_portico_left_wait_among_those_of_normal_priority(tmp_path: Path) -> None:
    path, now = tmp_path / "site.db", datetime.now(UTC)
    left = Task("left", Call("export"), Caller("key:ann"), TaskState.PENDING, now, now)
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.executescript("".join(MIGRATIONS[:2]) + "PRAGMA user_version = 2")
        older.execute(
            "INSERT INTO tasks (id, caller, meter, state, created, task) VALUES ('left', '', '', 'pending', ?, ?)",
            (to_micros(now), encode_task(left)),
        )

    store = await open_store(f"sqlite:///{path}")

    for priority in ("low", "high"):
        await store.tasks.add(replace(left, id=priority, call=Call("export", priority=priority)))
    claimed = [await store.tasks.claim("me", 60) for _ in range(3)]
    assert [each.id for each in claimed if each] == ["high", "left", "low"]
    await store.close()
