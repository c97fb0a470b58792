"""A database that kills connections, stops, is slow, is full, or falls silent while a site is open."""

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests import databases
from tests.conftest import MISSING, NOT_RUN
from tests.ports import free_port

from portico.access.identity import local_operator
from portico.catalog import Collection
from portico.config import Config
from portico.errors import SiteError, TimedOut, Unavailable
from portico.protocols import parse_config
from portico.query import Condition, Query
from portico.requests import Call, Task, Watch
from portico.server.assembly import Parts, open_site
from portico.store import Store, open_store
from portico.store.postgres import engine
from portico.store.records import Put

OPERATOR = local_operator()
SETTINGS = ("fsync=off", "full_page_writes=off")  # it crashes, but its machine does not
ENOUGH = 40.0  # seconds in which anything that comes to an end has done so
OWN = '''
import asyncio
from pathlib import Path
from portico.operations import Context, operation

HERE = Path(__file__).parent

@operation(kind="execute", danger="safe", long=True)
async def hold(context: Context, name: str) -> str:
    """Works until it is let go."""
    (HERE / f"{name}.begun").touch()
    while not (HERE / f"{name}.go").exists():
        await asyncio.sleep(0.02)
    return name
'''


@dataclass
class Server:
    """A PostgreSQL server of this module's own, that may be stopped and started."""

    tools: Path
    folder: Path
    user: str | None
    port: int
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        settings = ("listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}", *SETTINGS)
        program = [self.tools / "postgres", "-D", self.folder / "data", f"-p{self.port}"]
        tied = ["sh", "-c", databases.TIED, "sh", self.tools, self.folder, *program]
        with (self.folder / "log").open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    [*tied, *(f"-c{each}" for each in settings)],
                    user=self.user,
                    cwd=self.folder,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        ready = [self.tools / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        deadline = time.monotonic() + ENOUGH
        while subprocess.run(ready, check=False).returncode:
            assert time.monotonic() < deadline, (self.folder / "log").read_text(errors="replace")[-2000:]
            time.sleep(0.05)

    def stop(self, mode: str) -> None:
        stop = [self.tools / "pg_ctl", "stop", "-D", self.folder / "data", "-m", mode, "-w"]
        subprocess.run(stop, user=self.user, cwd=self.folder, stdout=subprocess.DEVNULL, check=True)
        self._started[-1].wait(ENOUGH)

    def close(self) -> None:
        for each in self._started:
            each.communicate(timeout=ENOUGH)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    try:
        tools = databases.programs()
        folder = Path(tempfile.mkdtemp(prefix="portico-faults-"))
        user = databases.unprivileged(tools, folder)
        databases.make(tools, folder, user)
    except databases.NoDatabase as reason:
        request.config.stash[MISSING] = str(reason)
        if os.environ.get(databases.NEEDED):
            pytest.fail(f"{NOT_RUN}: {reason}", pytrace=False)
        pytest.skip(f"{NOT_RUN}: {reason}")
    server = Server(tools, folder, user, free_port())
    server.start()
    yield server
    server.close()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with databases.empty_schema(server.url) as url:
        yield url


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[Store]:
    """A store with three things in it. One that does not close is a failure of its test."""
    store = await open_store(url, **settings)
    try:
        await store.collections.declare(Collection("things"))
        await store.items.write("things", [Put(f"i{n}", {"n": n}) for n in range(3)])
        yield store
    finally:
        async with asyncio.timeout(ENOUGH):
            await store.close()


@pytest.fixture
async def session(server: Server) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else in the same database."""
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()


@asynccontextmanager
async def locked(session: asyncpg.Connection, url: str) -> AsyncIterator[None]:
    """Nobody can read or write things meanwhile."""
    async with session.transaction():
        await session.execute(f"LOCK TABLE {url.rpartition('=')[2]}.items_1 IN ACCESS EXCLUSIVE MODE")
        yield


OURS = "FROM pg_stat_activity WHERE application_name = 'portico' AND pid <> pg_backend_pid()"


async def kill_connections(session: asyncpg.Connection, which: str = "true") -> int:
    return len(await session.fetch(f"SELECT pg_terminate_backend(pid) {OURS} AND {which}"))


async def until(happened: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Look again and again, but not for ever. What was seen when it had happened."""
    deadline = time.monotonic() + ENOUGH
    while not (seen := await happened()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        await asyncio.sleep(0.02)
    return seen


async def waiting(session: asyncpg.Connection, count: int) -> bool:
    await session.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees what it saw first
    return await session.fetchval(f"SELECT count(*) {OURS} AND wait_event_type = 'Lock'") >= count


async def error_of(work: Awaitable[Any]) -> SiteError | None:
    """What went wrong, in bounded time; anything but a SiteError fails the test."""
    async with asyncio.timeout(ENOUGH):
        try:
            await work
        except SiteError as error:
            return error
    return None


def assert_clear(error: SiteError | None) -> None:
    assert isinstance(error, Unavailable), repr(error)
    assert error.message
    assert error.hint
    assert "postgres" not in str(error).lower()


async def names(store: Store) -> list[str]:
    return sorted(item.id for item in (await store.items.find(Query("things"))).items)


# Connections


async def test_killed_between_requests_at_most_one_request_fails(url: str, session: asyncpg.Connection) -> None:
    async with opened(url) as store:
        for turn in range(5):
            await asyncio.gather(*(names(store) for _ in range(5)))
            assert await kill_connections(session)

            failed = await error_of(store.items.write("things", [Put(f"w{turn}", {"n": turn})]))
            if failed:
                assert_clear(failed)
                await store.items.write("things", [Put(f"w{turn}", {"n": turn})])
            assert f"w{turn}" in await names(store)

            assert await kill_connections(session)
            assert await error_of(names(store)) is None  # what only reads is tried again


async def test_killed_during_requests_only_those_fail(url: str, session: asyncpg.Connection) -> None:
    async with opened(url) as store:
        async with locked(session, url):
            reading = asyncio.create_task(error_of(names(store)))
            writing = asyncio.create_task(error_of(store.items.write("things", [Put("i0", {"n": 10})])))
            await until(lambda: waiting(session, 2), "waiting for the lock")
            assert await kill_connections(session, "wait_event_type = 'Lock'") == 2
            assert_clear(await writing)

        assert await reading is None
        assert await names(store) == ["i0", "i1", "i2"]
        assert (await store.items.get("things", "i0")).data == {"n": 0}
        assert [change.item.version[0] for change in await store.items.write("things", [Put("i0", {"n": 10})])] == ["2"]


async def test_a_killed_listener_hears_again(url: str, session: asyncpg.Connection) -> None:
    async with opened(url) as store, opened(url) as other:
        head = await store.changes.wait(0, 0)
        await until(lambda: hears(store), "listening")
        assert await kill_connections(session)

        hearing = asyncio.create_task(store.changes.wait(head, ENOUGH))
        changes = None
        while not changes:
            try:
                changes = await other.items.write("things", [Put("new", {"n": 1})])
            except Unavailable:
                continue
        assert await hearing == changes[-1].seq
        await until(lambda: hears(store), "listening again")


async def hears(store: Store) -> bool:
    return store.items._engine.is_listening  # type: ignore[attr-defined]


async def test_a_full_pool_is_said_to_be_full_and_recovers(
    url: str, session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url, pool=2) as store:
        async with locked(session, url):
            slow = [asyncio.create_task(store.items.get("things", "i0")) for _ in range(2)]
            await until(lambda: waiting(session, 2), "two slow reads")
            monkeypatch.setattr(engine, "WAIT_SECONDS", 0.3)  # not before: the two may have to connect first
            for refused in await asyncio.gather(*(error_of(store.changes.head()) for _ in range(3))):
                assert_clear(refused)
                assert "2 connections" in refused.message
                assert "store.pool" in refused.hint

        assert [item.id for item in await asyncio.gather(*slow)] == ["i0"] * 2
        assert await store.changes.head() == 3


async def test_slow_queries_leave_connections_for_short_work(url: str, session: asyncpg.Connection) -> None:
    async with opened(url, pool=4) as store:
        async with locked(session, url):
            slow = [asyncio.create_task(names(store)) for _ in range(6)]
            await until(lambda: waiting(session, 2), "two slow queries")

            assert await store.changes.head() == 3
            assert (await store.meters.take("somebody", 10)).granted

        assert await asyncio.gather(*slow) == [["i0", "i1", "i2"]] * 6


async def test_a_slow_statement_is_ended_and_its_connection_stays_usable(url: str, session: asyncpg.Connection) -> None:
    async with opened(url, pool=1, seconds=1.0) as store:
        async with locked(session, url):
            for slow in (
                names(store),
                store.items.get("things", "i0"),
                store.items.count("things", Condition("n", "gt", 0)),
            ):
                failed = await error_of(slow)
                assert isinstance(failed, TimedOut)
                assert "too long" in failed.message
                assert failed.hint

        before = await session.fetch(f"SELECT pid {OURS}")
        assert await names(store) == ["i0", "i1", "i2"]
        assert await session.fetch(f"SELECT pid {OURS}") == before


async def test_a_cancelled_request_gives_its_connection_back(url: str, session: asyncpg.Connection) -> None:
    async with opened(url, pool=2) as store:
        async with locked(session, url):
            works = [names(store), store.items.write("things", [Put("i1", {"n": 5})])]
            tasks = [asyncio.create_task(work) for work in works]
            await until(lambda: waiting(session, 2), "waiting for the lock")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

            assert await store.changes.head() == 3
        assert (await store.items.get("things", "i1")).data == {"n": 1}
        await asyncio.gather(*(store.items.write("things", [Put(f"i{n}", {"n": 7})]) for n in range(6)))


# A database that is away for a while


@dataclass
class Watcher:
    """Follows a collection as a client does: when it is told that the site is away, it asks to go on from there."""

    parts: Parts
    since: int
    seen: list[str] = field(default_factory=list)
    refusals: list[SiteError] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            try:
                async for change in self.parts.site.watch(Watch("things", since=self.since), OPERATOR):
                    self.since = change.seq
                    self.seen.append(change.item.id)
            except SiteError as error:
                self.refusals.append(error)
                await asyncio.sleep(0.1)


def site_config(folder: Path, url: str) -> Config:
    (folder / "own.py").write_text(OWN)
    said = {"search": {"embedder": "none:"}, "store": {"url": url}, "operations": ["own.py"], "folder": str(folder)}
    return parse_config({**said, "collections": {"things": {}}})


async def create(parts: Parts, id: str, name: str) -> Any:
    return await parts.site.call(Call("create_thing", {"id": id, "input": {"name": name}}), OPERATOR)


async def search(parts: Parts, text: str) -> list[str]:
    page = await parts.site.query(Query("things", text=text), OPERATOR)
    return [item.id for item in page.items]


@asynccontextmanager
async def serving_parts(config: Config) -> AsyncIterator[Parts]:
    opening = open_site(config)
    parts = await opening.__aenter__()
    try:
        yield parts
    finally:
        async with asyncio.timeout(ENOUGH):
            await opening.__aexit__(None, None, None)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_database_that_stops_and_starts_again_leaves_the_site_working(
    server: Server, url: str, tmp_path: Path, mode: str
) -> None:
    async with serving_parts(site_config(tmp_path, url)) as parts:
        await create(parts, "before", "lentil soup")
        assert await search(parts, "lentil") == ["before"]
        watcher = Watcher(parts, 0)
        watching = asyncio.create_task(watcher.run())
        held = await started(parts, "held")
        await until(lambda: exists(tmp_path / "held.begun"), "the first task")

        await asyncio.to_thread(server.stop, mode)
        try:
            for _ in range(2):
                requests = (
                    parts.site.query(Query("things"), OPERATOR),
                    search(parts, "lentil"),
                    create(parts, "during", "nothing"),
                    parts.site.tasks.get(held.id, OPERATOR),
                    parts.site.call(Call("hold", {"name": "lost"}), OPERATOR),
                    anext(parts.site.watch(Watch("things"), OPERATOR)),
                )
                for failed in await asyncio.gather(*map(error_of, requests)):
                    assert_clear(failed)
            assert not watching.done()
        finally:
            await asyncio.to_thread(server.start)

        await until(lambda: works(parts), "a query")
        await create(parts, "after", "lentil cake")
        assert await search(parts, "cake") == ["after"]
        assert sorted(await search(parts, "lentil")) == ["after", "before"]
        await until(lambda: has_seen(watcher, "after"), "the watch")
        assert watcher.seen == ["before", "after"]
        for refusal in watcher.refusals:
            assert_clear(refusal)
        (tmp_path / "held.go").touch()
        assert (await parts.site.tasks.wait(held.id, OPERATOR, ENOUGH)).result == "held"
        (tmp_path / "next.go").touch()
        another = await started(parts, "next")
        assert (await parts.site.tasks.wait(another.id, OPERATOR, ENOUGH)).result == "next"
        watching.cancel()
        await asyncio.wait([watching])


async def started(parts: Parts, name: str) -> Task:
    task = await parts.site.call(Call("hold", {"name": name}), OPERATOR)
    assert isinstance(task, Task)
    return task


async def exists(path: Path) -> bool:
    return path.exists()


async def works(parts: Parts) -> bool:
    return await error_of(parts.site.query(Query("things"), OPERATOR)) is None


async def has_seen(watcher: Watcher, id: str) -> bool:
    return id in watcher.seen


async def test_a_task_that_ends_while_the_database_is_away_is_stored_later(
    server: Server, url: str, tmp_path: Path
) -> None:
    async with serving_parts(site_config(tmp_path, url)) as parts:
        held = await started(parts, "held")
        await until(lambda: exists(tmp_path / "held.begun"), "the task")
        await asyncio.to_thread(server.stop, "fast")
        try:
            (tmp_path / "held.go").touch()
            await until(lambda: tried_to_settle(parts), "an attempt to store its end")
        finally:
            await asyncio.to_thread(server.start)

        await until(lambda: works(parts), "a query")
        ended = await parts.site.tasks.wait(held.id, OPERATOR, ENOUGH)
        assert (ended.state, ended.result, ended.attempts) == ("completed", "held", 1)


async def tried_to_settle(parts: Parts) -> bool:
    runs = parts.site.tasks._running.values()
    return all(run.work.done() for run in runs)


async def test_a_store_that_is_away_at_the_start_is_said_to_be(server: Server, url: str, tmp_path: Path) -> None:
    await asyncio.to_thread(server.stop, "fast")
    try:
        assert_clear(await error_of(open_store(url)))
    finally:
        await asyncio.to_thread(server.start)

    async with serving_parts(site_config(tmp_path, url)) as parts:
        assert await works(parts)


# A network that falls silent


class Proxy:
    """Stands between a store and its database. It may fall silent without closing anything."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._talks = asyncio.Event()
        self._talks.set()
        self._streams: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.append(writer)
        await self._talks.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self._behind)
        self._streams.append(back)
        for source, target in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while part := await source.read(1 << 16):
                await self._talks.wait()
                target.write(part)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()

    def fall_silent(self) -> None:
        self._talks.clear()

    def talk(self) -> None:
        """Work again; what was under way is lost, as behind a router that has forgotten it."""
        for stream in self._streams:
            stream.transport.abort()
        self._streams.clear()
        self._talks.set()

    async def close(self) -> None:
        self.talk()
        self._server.close()
        if self._pumps:
            await asyncio.wait(self._pumps)


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    await proxy.close()


async def test_a_silent_network_ends_requests_in_time_and_is_got_over(
    server: Server, url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONNECT_SECONDS", "WAIT_SECONDS", "GRACE_SECONDS", "CLOSE_SECONDS", "LONGEST_PAUSE"):
        monkeypatch.setattr(engine, name, 1.0)
    port = await proxy.open()
    through = url.replace(f":{server.port}/", f":{port}/")
    async with opened(url) as direct, opened(through, seconds=1.0, pool=3) as store:
        head = await store.changes.wait(0, 0)
        await until(lambda: hears(store), "listening")
        await asyncio.gather(*(names(store) for _ in range(3)))

        proxy.fall_silent()
        for _ in range(2):
            works = (
                names(store),
                store.changes.head(),
                store.items.get("things", "i0"),
                store.items.count("things", Condition("n", "gt", 0)),
            )
            for failed in await asyncio.gather(*map(error_of, works)):
                assert_clear(failed)
        await until(lambda: is_deaf(store), "noticing that nothing is heard")
        proxy.talk()

        await until(lambda: answers(store), "an answer")
        assert await names(store) == ["i0", "i1", "i2"]
        hearing = asyncio.create_task(store.changes.wait(head, ENOUGH))
        (change,) = await direct.items.write("things", [Put("i3", {"n": 3})])
        assert await hearing == change.seq
        await until(lambda: hears(store), "listening again")


async def is_deaf(store: Store) -> bool:
    return not await hears(store)


async def answers(store: Store) -> bool:
    return await error_of(store.changes.head()) is None
