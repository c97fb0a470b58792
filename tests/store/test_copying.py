"""The demo site from SQLite to PostgreSQL and back: nothing is lost, nothing is made up."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio
from tests.cli import conftest as commands
from tests.cli.conftest import Portico
from tests.conftest import StoreUrl
from tests.search.index.toy_model import ToyModel

from portico.access.identity import local_operator, make_key
from portico.catalog import Collection, Danger
from portico.cli.sites import demo_config
from portico.config import StoreSettings
from portico.errors import ConfigError, Conflict, Unavailable
from portico.query import Order, Query, parse_filter
from portico.requests import Call, Task, TaskState
from portico.search.finder import Finder
from portico.search.index.memory import MemoryIndex
from portico.sources.ingest import load_sources
from portico.store import Store, open_store
from portico.store.copying import CopyProgress, copy_store
from portico.store.records import IdempotencyEntry, IdempotencyRecord, Merge, Put, Remove, SafetyRecord
from portico.telemetry import discard

warm, portico_in = commands.warm, commands.portico_in

SCRIPT = Path(sys.executable).parent / "portico"
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if name != "PORTICO_SITE"}, "COLUMNS": "200"}
TIMES = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)

Opening = Callable[[str], Awaitable[Store]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the demo site, its vectors, and what a site keeps besides items."""
    path = tmp_path_factory.mktemp("demo") / "demo.db"
    config = msgspec.structs.replace(demo_config(), store=StoreSettings(url=f"sqlite:///{path}"))
    store = await open_store(config.store_url)
    await load_sources(config, store, discard)
    products = [item async for items in store.items.scan("products") for item in items]
    await store.items.write("products", [Merge(item.id, {"stock": 77}) for item in products[:5]])
    await store.items.write("products", [Remove(products[5].id), Put("own", {"name": "Own", "price": 0.1 + 0.2})])
    await embed(store)
    await keep_everything(store)
    await store.close()
    return path


async def embed(store: Store) -> None:
    index = MemoryIndex(store, ToyModel())
    await index.start()
    for name in store.collections.schema:
        while await index.embed_batch(name):
            pass
    await index.close()
    await store.items.write("products", [Merge("own", {"name": "Changed since"})])  # its vector is of what it was


async def keep_everything(store: Store) -> None:
    """Keys, tasks and idempotency keys of all kinds."""
    for number, days in enumerate((1.0, None)):
        await store.keys.add(make_key(f"key {number}", ["read:*"], Danger.SAFE, days)[1])
    revoked = (await store.keys.list_all())[0]
    await store.keys.revoke(revoked.id, TIMES)
    for number, state in enumerate(TaskState):
        task = Task(f"t{number}", Call("plan_day", {"n": number}), local_operator(), TaskState.PENDING, TIMES, TIMES)
        await store.tasks.add(task)
        claimed = await store.tasks.claim("somebody", 60, task.id) if state != TaskState.PENDING else None
        if claimed:
            told = replace(claimed, state=state, progress=0.5, message="half", result={"a": [1, None]}, saved=[1])
            await store.tasks.update(told, "somebody")
    await store.tasks.cancel(f"t{list(TaskState).index(TaskState.RUNNING)}")
    for number, kept in enumerate(
        (IdempotencyRecord("d"), IdempotencyRecord("d", task="t1"), IdempotencyRecord("d", result=b'{"a":"\xc3\xa9"}'))
    ):
        expires = datetime.now(UTC) + timedelta(hours=number + 1)
        await store.backup.restore_entries([IdempotencyEntry(f"me\nplan_day\nk{number}", kept, expires)])


@pytest.fixture
async def opening(store_url: StoreUrl) -> AsyncIterator[Opening]:
    """Opens stores that are closed when the test ends, before their databases go."""
    opened: list[Store] = []

    async def open_one(url: str) -> Store:
        opened.append(await open_store(url))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def origin_url(demo: Path, tmp_path: Path) -> str:
    """A copy of the demo that a test may change."""
    for file in demo.parent.glob("demo.db*"):
        shutil.copy(file, tmp_path / file.name.replace("demo", "origin"))
    return f"sqlite:///{tmp_path}/origin.db"


@pytest.fixture
async def origin(origin_url: str, opening: Opening) -> Store:
    return await opening(origin_url)


def quiet(_what: str, _copied: CopyProgress) -> None: ...


async def contents(store: Store) -> dict[str, Any]:
    """All that a store holds, in an order that does not depend on the store."""
    held: dict[str, Any] = {"schema": dict(await store.collections.refresh())}
    for name in store.collections.schema:
        held[name] = [record async for records in store.backup.read_items(name) for record in records]
        current = {record.item.id: record.item.version.partition("-")[2] for record in held[name]}
        for model in await store.vectors.list_models(name):
            rows = await store.vectors.list_after(name, "", model, 0, 10_000)
            held[f"vectors of {name} by {model}"] = sorted(
                (row.id, row.digest, row.vector) for row in rows if current[row.id] == row.digest
            )
    entries = [entry async for some in store.backup.read_entries(datetime.now(UTC)) for entry in some]
    held["entries"] = sorted(entries, key=lambda entry: (type(entry).__name__, str(entry)))
    return held


async def found(store: Store, count: int = 40) -> list[Any]:
    """What searches by word, meaning and filter find, with scores rounded a little."""
    model = ToyModel()
    index = MemoryIndex(store, model)
    await index.start()
    await index.embed_batch("products")  # a vector of what an item was is not copied
    finder = Finder(store, index, model)
    queries = [
        *(
            Query(name, text=text, limit=count)
            for name in ("recipes", "products")
            for text in ("soup", "red boat", "sea")
        ),
        Query("products", text="wool", where=parse_filter({"price": {"$lt": 40}}), limit=count, count=True),
        Query("events", order=(Order("startDate"),), limit=count),
        Query("products", where=parse_filter({"$or": [{"stock": 77}, {"name": {"$regex": "^B"}}]}), limit=count),
    ]
    pages = [await finder.find(query) for query in queries]
    await index.close()
    return [(page.total, page.items, [round(score, 4) for score in page.scores]) for page in pages]


async def test_a_site_goes_there_and_back_without_a_loss(origin: Store, store_url: StoreUrl, opening: Opening) -> None:
    before = await contents(origin)
    assert sum(len(records) for name, records in before.items() if name in origin.collections.schema) > 400
    assert len([name for name in before if name.startswith("vectors")]) >= 8
    statuses, reports, index = len(demo_config().source), len(demo_config().source), 1
    assert len(before["entries"]) == 2 + len(TaskState) + 3 + statuses + reports + index

    there, back = await opening(store_url("postgres")), await opening(store_url("sqlite", "back"))
    first = await copy_store(origin, there, quiet)
    second = await copy_store(there, back, quiet)

    for store, copied in ((there, first), (back, second)):
        assert copied.verified
        assert (
            copied.items
            == sum(copied.collections.values())
            == sum(len(before[name]) for name in origin.collections.schema)
        )
        assert (copied.unchanged, copied.removed, copied.entries) == (0, 0, len(before["entries"]))
        held = await contents(store)
        for what in before:
            assert held[what] == before[what], what
        assert held.keys() == before.keys()
        assert await store.check() == []
        assert await store.changes.head() >= await origin.changes.head()
    assert await contents(origin) == before
    assert await found(there) == await found(back) == await found(origin)


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_what_was_copied_goes_on_as_it_was(
    origin: Store, store_url: StoreUrl, opening: Opening, kind: str
) -> None:
    """Versions, keys, tasks and idempotency keys work in the new store as they did in the old one."""
    target = await opening(store_url(kind, "target"))
    await copy_store(origin, target, quiet)
    old = await origin.items.get("products", "own")

    (change,) = await target.items.write("products", [Merge("own", {"price": 1}, expect=old.version)])
    assert int(change.item.version.partition("-")[0]) == int(old.version.partition("-")[0]) + 1
    assert change.seq > await origin.changes.head()
    for key in await origin.keys.list_all():
        assert await target.keys.find(key.digest) == key
    kept = await target.idempotency.reserve("me\nplan_day\nk2", "d", datetime.now(UTC) + timedelta(hours=1))
    assert kept == IdempotencyRecord("d", result=b'{"a":"\xc3\xa9"}')
    claimed = [task.id for _ in range(2) if (task := await target.tasks.claim("another", 60))]
    assert sorted(claimed) == sorted(
        f"t{n}" for n, state in enumerate(TaskState) if state in {TaskState.PENDING, TaskState.RUNNING}
    )
    load = await target.loads.begin((await anext(origin.backup.read_items("events")))[0].source)
    assert await target.loads.finish(load) > 0  # what came from a source is still known to


async def test_an_interrupted_copy_is_resumed_and_forgets_what_vanished(
    origin: Store, store_url: StoreUrl, opening: Opening
) -> None:
    target = await opening(store_url("postgres"))
    calls = 0

    def interrupt(_what: str, _copied: CopyProgress) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            copying.cancel()

    copying = asyncio.create_task(copy_store(origin, target, interrupt))
    with pytest.raises(asyncio.CancelledError):
        await copying
    there = {name: await ids(target, name) for name in target.collections.schema}
    name, [gone, changed, *_] = next((name, some) for name, some in there.items() if len(some) > 2)
    await origin.items.write(
        name, [Remove(gone), Merge(changed, {"name": "Changed meanwhile"}), Put("new", {"name": "New"})]
    )

    copied = await copy_store(origin, target, quiet)

    assert copied.verified
    assert copied.removed == 1
    assert copied.unchanged == sum(map(len, there.values())) - 2
    assert await contents(target) == await contents(origin)
    with pytest.raises(Conflict, match="already holds"):
        await copy_store(origin, target, quiet)


async def unfinished(origin: Store, target: Store) -> None:
    """Copy everything, and stop short of calling it done."""

    def interrupt(what: str, _copied: CopyProgress) -> None:
        if what.startswith("verifying"):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await copy_store(origin, target, interrupt)


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_repeated_copy_follows_the_keys_and_tasks_of_the_site(
    origin: Store, store_url: StoreUrl, opening: Opening, kind: str
) -> None:
    target = await opening(store_url(kind, "target"))
    _, key = make_key("soon revoked", ["ask"], Danger.SAFE, None)
    await origin.keys.add(key)
    running = await origin.tasks.claim("me", 60)
    await origin.idempotency.reserve("me\nplan_day\nsoon over", "d", datetime.now(UTC) + timedelta(seconds=3600))
    await unfinished(origin, target)

    await origin.tasks.update(replace(running, state=TaskState.COMPLETED, result={"done": True}), "me")
    await origin.keys.revoke(key.id, datetime.now(UTC))
    done = IdempotencyEntry(
        "me\nplan_day\nk0", IdempotencyRecord("d", result=b"{}"), datetime.now(UTC) + timedelta(hours=1)
    )
    await origin.backup.restore_entries([done])
    await origin.notes.delete("me\nplan_day\nsoon over")
    await origin.idempotency.reserve("me\nplan_day\nsoon over", "d", datetime.now(UTC) - timedelta(seconds=1))
    await origin.notes.delete("me\nplan_day\nk1")
    copied = await copy_store(origin, target, quiet)

    assert copied.verified
    assert copied.items == 0
    assert await contents(target) == await contents(origin)
    assert (await target.tasks.get(running.id)).state == TaskState.COMPLETED
    assert (await target.keys.find(key.digest)).revoked
    assert (
        await target.idempotency.reserve("me\nplan_day\nsoon over", "new", datetime.now(UTC) + timedelta(hours=1))
        is None
    )


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_an_idempotency_key_that_expires_during_the_copy_does_no_harm(
    origin: Store, store_url: StoreUrl, opening: Opening, kind: str
) -> None:
    target = await opening(store_url(kind, "target"))
    expires = datetime.now(UTC) + timedelta(seconds=1)
    await origin.idempotency.reserve("me\nplan_day\nsoon over", "d", expires)

    def wait(what: str, _copied: CopyProgress) -> None:
        while what == "verifying products" and datetime.now(UTC) <= expires:
            time.sleep(0.01)

    assert (await copy_store(origin, target, wait)).verified
    assert await contents(target) == await contents(origin)


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_repeated_copy_follows_the_items_and_vectors_of_the_site(
    origin: Store, store_url: StoreUrl, opening: Opening, kind: str
) -> None:
    target = await opening(store_url(kind, "target"))
    await unfinished(origin, target)
    vanished, claimed, back, *_ = [record async for records in origin.backup.read_items("events") for record in records]
    assert vanished.source == claimed.source != ""

    await origin.items.write("events", [Remove(vanished.item.id), Remove((await ids(origin, "events"))[-1])])
    await origin.loads.put(await origin.loads.begin("elsewhere"), "events", [Put(claimed.item.id, claimed.item.data)])
    await origin.items.write("events", [Merge(back.item.id, {"name": "Another"})])
    await embed(origin)
    await origin.items.write(
        "events", [Put(back.item.id, back.item.data)]
    )  # it has a vector in the target, and none here
    copied = await copy_store(origin, target, quiet)

    assert copied.verified
    assert copied.removed == 2
    assert await contents(target) == await contents(origin)
    sources = {r.item.id: r.source async for records in target.backup.read_items("events") for r in records}
    assert sources[claimed.item.id] == "elsewhere"
    assert vanished.item.id not in sources


async def test_cases_and_the_audit_trail_go_there_and_back_and_go_on(store_url: StoreUrl, opening: Opening) -> None:
    origin, there, back = [await opening(store_url(*where)) for where in (("sqlite",), ("postgres",), ("sqlite", "b"))]
    await origin.collections.declare(Collection("things"))
    soon, later = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 2))
    await origin.audit.commit(
        [SafetyRecord("block", "ann", b"1", 0, soon), SafetyRecord("token", "t", b"\0")], [("blocked", {"n": 1.0})]
    )
    await unfinished(origin, there)
    await origin.audit.commit(
        [SafetyRecord("block", "ann", b"2", 1, later), SafetyRecord("token", "t", None, 1)], [("told", {"ö": [None]})]
    )

    assert (await copy_store(origin, there, quiet)).entries == 1 + 2
    assert (await copy_store(there, back, quiet)).verified

    for store in (there, back):
        assert await store.audit.list_records("block") == [SafetyRecord("block", "ann", b"2", 2, later)]
        assert await store.audit.list_records("token") == []
        assert await store.audit.list_entries() == await origin.audit.list_entries()
    (line,) = await back.audit.commit([SafetyRecord("block", "ann", None, 2)], [("freed", {})])
    assert (line.seq, line.before) == (3, (await origin.audit.list_entries())[-1].digest)
    with pytest.raises(Conflict, match="already holds"):
        await copy_store(origin, back, quiet)


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_keys_of_a_store_without_collections_are_not_lost(
    origin: Store, store_url: StoreUrl, opening: Opening, kind: str
) -> None:
    other = await opening(store_url(kind, "other"))
    _, key = make_key("mine", ["ask"], Danger.SAFE, None)
    await other.keys.add(key)

    with pytest.raises(Conflict, match="already holds keys"):
        await copy_store(origin, other, quiet)

    assert await other.keys.list_all() == [key]


async def ids(store: Store, name: str) -> list[str]:
    return [record.item.id async for records in store.backup.read_items(name) for record in records]


async def test_a_store_that_holds_a_site_is_not_copied_into(
    origin: Store, store_url: StoreUrl, opening: Opening
) -> None:
    for kind in ("sqlite", "postgres"):
        other = await opening(store_url(kind, "other"))
        await other.collections.declare(origin.collections.schema["products"])
        await other.items.write("products", [Put("mine", {"name": "Mine"})])

        with pytest.raises(Conflict, match="already holds") as refusal:
            await copy_store(origin, other, quiet)

        assert refusal.value.hint
        assert [item.id async for items in other.items.scan("products") for item in items] == ["mine"]
        assert list(other.collections.schema) == ["products"]


async def test_an_unfinished_copy_of_one_site_is_not_finished_with_another(
    origin: Store, store_url: StoreUrl, opening: Opening
) -> None:
    target, other = await opening(store_url("postgres")), await opening(store_url("sqlite", "other"))
    await other.collections.declare(origin.collections.schema["products"])

    def interrupt(_what: str, copied: CopyProgress) -> None:
        if copied.items:
            copying.cancel()

    copying = asyncio.create_task(copy_store(origin, target, interrupt))
    await asyncio.wait([copying])

    with pytest.raises(Conflict, match="already holds"):
        await copy_store(other, target, quiet)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_store_is_not_copied_onto_itself(store_url: StoreUrl, opening: Opening, kind: str) -> None:
    url = store_url(kind)
    store, again = await opening(url), await opening(url)

    with pytest.raises(ConfigError, match="same store"):
        await copy_store(store, again, quiet)


@pytest.mark.parametrize("when", ["keys and tasks", "verifying products", "products"])
async def test_a_change_during_the_copy_is_told_and_the_next_run_has_it(
    origin: Store, store_url: StoreUrl, opening: Opening, when: str
) -> None:
    target = await opening(store_url("postgres"))
    writing: list[asyncio.Task[Any]] = []

    def change(what: str, _copied: CopyProgress) -> None:
        if what == when and not writing:
            writing.append(asyncio.create_task(origin.items.write("products", [Put("own", {"name": "Changed"})])))

    with pytest.raises((Conflict, Unavailable)) as told:
        await copy_store(origin, target, change)
    await writing[0]
    assert "again" in told.value.hint

    assert (await copy_store(origin, target, quiet)).verified
    assert await contents(target) == await contents(origin)
    assert (await target.items.get("products", "own")).data == {"name": "Changed"}


# From the command line


def with_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "sqlite" or parts.password:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user or 'postgres'}:hush@{host}").geturl()


async def test_the_command_copies_in_both_directions(
    portico_in: Portico, origin_url: str, store_url: StoreUrl, opening: Opening, tmp_path: Path
) -> None:
    portico = partial(portico_in, tmp_path)
    there, back = with_password(store_url("postgres")), f"sqlite:///{tmp_path}/back.db"

    first, second = portico("copy", origin_url, there, "--json"), portico("copy", there, back)

    assert second.code == 0, second.err
    said = first.json
    assert said["verified"] is True
    assert said["items"] == sum(said["collections"].values()) > 400
    assert (said["unchanged"], said["removed"]) == (0, 0)
    assert "The stores are identical" in second.err
    assert "products" in second.out
    assert "hush" not in first.out + first.err + second.out + second.err
    assert await contents(await opening(back)) == await contents(await opening(origin_url))


def test_the_command_says_what_it_cannot_copy(
    portico_in: Portico, origin_url: str, store_url: StoreUrl, tmp_path: Path
) -> None:
    portico = partial(portico_in, tmp_path)
    there = with_password(store_url("postgres"))
    portico("copy", origin_url, there, "--json")
    nowhere_near = "postgresql://me:hush@127.0.0.1:1/none"

    for args, code in (
        ((origin_url, there), 5),
        ((origin_url, origin_url), 2),
        ((there, there), 2),
        ((origin_url, nowhere_near), 6),
        ((nowhere_near, f"sqlite:///{tmp_path}/new.db"), 6),
        ((origin_url, "nonsense"), 2),
    ):
        done = portico("copy", *args)
        assert done.code == code, (args, done.err)
        assert done.out == ""
        assert "hush" not in done.err
        assert done.err.strip()


async def test_a_command_that_is_killed_is_finished_by_the_next(
    portico_in: Portico, origin_url: str, store_url: StoreUrl, opening: Opening, tmp_path: Path
) -> None:
    there = store_url("postgres")
    killed = subprocess.Popen([SCRIPT, "copy", origin_url, there], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    target = await opening(there)
    async with asyncio.timeout(60):
        while killed.poll() is None and await target.changes.head() == 0:
            await asyncio.sleep(0.005)
    killed.kill()
    killed.wait()
    finished = killed.returncode == 0

    done = portico_in(tmp_path, "copy", origin_url, there, "--json")

    assert done.code == (5 if finished else 0), done.err
    assert await contents(target) == await contents(await opening(origin_url))
