"""A disk that is full, a page that is damaged, a file that is gone, a row that nobody can read: each is told once."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import apsw
import httpx
import psycopg
import pytest

from portico.access.identity import local_operator
from portico.errors import SiteError
from portico.protocols import parse_config
from portico.query import Order, Query
from portico.requests import Watch
from portico.search.index import embedding, feed
from portico.server.assembly import Parts, open_site
from portico.server.http import application
from portico.store import health, open_store
from portico.store.health import StoreFault, UnreadableRow
from portico.store.records import Put
from portico.telemetry import FaultResolved, TelemetryEvent, UnexpectedError

OPERATOR = local_operator()
ENOUGH = 40.0  # seconds in which anything that comes to an end has done so


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(feed, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(embedding, "RETRY_SECONDS", 0.05)


@dataclass
class Site:
    parts: Parts
    web: httpx.AsyncClient
    seen: list[TelemetryEvent]

    async def ready(self) -> tuple[int, str]:
        answer = await self.web.get("/readyz")
        return answer.status_code, answer.json().get("reason", "")

    def broken(self, where: str = "store") -> list[str]:
        return [each.error for each in self.seen if isinstance(each, UnexpectedError) and each.where == where]

    def recovered(self) -> list[str]:
        return [each.where for each in self.seen if isinstance(each, FaultResolved)]

    async def write(self, id: str, name: str = "lentil soup") -> None:
        await self.parts.store.items.write("things", [Put(id, {"name": name})])

    async def found(self, text: str) -> list[str]:
        return sorted(item.id for item in (await self.parts.site.query(Query("things", text=text), OPERATOR)).items)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Site]:
    config = parse_config({"store": {"url": url}, "search": {"embedder": "none:"}, "collections": {"things": {}}})
    seen: list[TelemetryEvent] = []
    async with open_site(config, record=seen.append) as parts:
        transport = httpx.ASGITransport(application(parts))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as web:
            yield Site(parts, web, seen)


async def until(happened: Callable[[], Any], what: str) -> None:
    async with asyncio.timeout(ENOUGH):
        while True:
            found = happened()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.02)


async def is_ready(site: Site) -> bool:
    return (await site.ready())[0] == 200


async def fails(site: Site) -> bool:
    return (await site.ready())[0] == 503


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


async def execute(url: str, *statements: str) -> None:
    """What somebody does to the database behind the site's back."""
    await asyncio.to_thread(_execute, url, *statements)


def _execute(url: str, *statements: str) -> None:
    if url.startswith("sqlite"):
        database = apsw.Connection(str(file_of(url)))
        database.set_busy_timeout(10_000)
        for statement in statements:
            database.execute(statement)
        database.close()
        return
    parts = urlsplit(url)
    schema = parse_qs(parts.query)["schema"][0]
    server = parts._replace(query="").geturl()
    with psycopg.connect(server, options=f"-csearch_path={schema}", autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


# A full disk


async def set_pages(site: Site, count: str) -> None:
    await site.parts.store.items._engine.write(lambda db: db.execute(f"PRAGMA max_page_count = {count}").fetchall())


FULL = """CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"""


@asynccontextmanager
async def full_disk(site: Site, url: str) -> AsyncIterator[None]:
    if url.startswith("sqlite"):
        await set_pages(site, "1")
        yield
        await set_pages(site, "1000000")
        return
    tables = ("items_1", "blobs")
    await execute(url, FULL, *(f"CREATE TRIGGER full_{t} BEFORE INSERT ON {t} EXECUTE FUNCTION fill()" for t in tables))
    yield
    await execute(url, "DROP FUNCTION fill CASCADE")


async def test_a_full_disk_is_one_event_with_its_cause_until_there_is_room_again(url: str) -> None:
    async with opened(url) as site:
        await site.write("before")
        await until(lambda: is_ready(site), "readiness")
        async with full_disk(site, url):
            for number in range(20):
                with pytest.raises(StoreFault, match="disk is full"):
                    await site.write(f"lost{number}", "x" * 100_000)
            status, reason = await site.ready()
            assert await site.found("lentil") == ["before"]

        await until(lambda: is_ready(site), "recovery")
        await site.write("after")
        assert await site.found("lentil") == ["after", "before"]

    assert (status, "disk is full" in reason) == (503, True)
    (event,) = [each for each in site.seen if isinstance(each, UnexpectedError)]
    assert (event.where, "disk is full" in event.error, "Error: " in event.error) == ("store", True, True)
    assert site.recovered() == ["store"]


# A damaged page


@pytest.fixture
async def damaged(tmp_path: Path) -> Path:
    """The file of a store with many items; that of its biggest table has a page in the middle of it overwritten."""
    url = f"sqlite:///{tmp_path}/site.db"
    store = await open_store(url)
    config = parse_config({"collections": {"things": {}}})
    await store.collections.declare(config.collection("things"))
    await store.items.write(
        "things", [Put(f"t{n}", {"name": f"lentil {n}", "text": "soup " * 100}) for n in range(500)]
    )
    await store.close()
    database = apsw.Connection(str(tmp_path / "site.db"))
    size = database.execute("PRAGMA page_size").fetchone()[0]
    pages = [n for (n,) in database.execute("SELECT pageno FROM dbstat WHERE name = 'items_1' AND pagetype = 'leaf'")]
    database.close()
    at = (pages[len(pages) // 2] - 1) * size
    (tmp_path / "place").write_text(f"{at} {size}")
    (tmp_path / "whole.db").write_bytes((tmp_path / "site.db").read_bytes())
    overwrite(tmp_path / "site.db", at, b"\xff" * size)
    return tmp_path / "site.db"


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


async def test_a_damaged_page_is_one_event_and_readiness_says_so_until_it_is_mended(damaged: Path) -> None:
    at, size = map(int, (damaged.parent / "place").read_text().split())
    async with opened(f"sqlite:///{damaged}") as site:
        await until(site.broken, "the event")
        await until(lambda: site.parts.store.health.reason, "the reason")
        answers = [await site.ready() for _ in range(5)]
        await asyncio.sleep(0.3)  # the index has tried again and again
        events = [each for each in site.seen if isinstance(each, UnexpectedError)]

        overwrite(damaged, at, (damaged.parent / "whole.db").read_bytes()[at : at + size])
        await until(lambda: is_ready(site), "recovery")
        assert len(await site.found("lentil")) > 0

    assert set(answers) == {(503, "The store is not a sound SQLite database")}
    assert len(events) == 1
    assert "CorruptError" in events[0].error
    assert site.recovered() == ["store"]


async def test_an_error_of_the_disk_is_one_event_and_over_when_the_disk_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(f"sqlite:///{tmp_path}/site.db") as site:
        await until(lambda: is_ready(site), "readiness")
        with monkeypatch.context() as broken:
            broken.setattr(site.parts.store.items._engine, "_write", raise_io_error(site))
            for _ in range(5):
                with pytest.raises(StoreFault, match="cannot be read or written: disk I/O error"):
                    await site.write("lost")
            status, reason = await site.ready()
        await until(lambda: is_ready(site), "recovery")

    assert (status, reason) == (503, "The store cannot be read or written: disk I/O error")
    assert (len(site.broken()), site.recovered()) == (1, ["store"])


def raise_io_error(site: Site) -> Callable[..., None]:
    def write(*_: Any) -> None:
        error = apsw.IOError("disk I/O error")
        raise site.parts.store.items._engine._explain(error) from error

    return write


async def test_damage_that_postgresql_reports_makes_the_site_unready(url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("a function in the database reports it")
    async with opened(url) as site:
        await until(lambda: is_ready(site), "readiness")
        await execute(
            url,
            "CREATE FUNCTION damage() RETURNS trigger LANGUAGE plpgsql AS $$"
            " BEGIN RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = 'XX001'; END $$",
            "CREATE TRIGGER damage BEFORE INSERT ON items_1 EXECUTE FUNCTION damage()",
        )
        with pytest.raises(StoreFault, match="The database is damaged"):
            await site.write("lost")
        status, reason = await site.ready()
        await execute(url, "DROP FUNCTION damage CASCADE")
        await until(lambda: is_ready(site), "recovery")

    assert (status, reason) == (503, "The database is damaged")
    assert site.broken() == ["The database is damaged: DataCorruptedError: invalid page in block 7"]


# A file that is gone


@contextmanager
def moved(path: Path) -> Iterator[None]:
    away = path.with_name("away.db")
    path.rename(away)
    yield
    away.rename(path)


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_a_file_that_is_moved_away_is_noticed_and_so_is_its_return(tmp_path: Path, suffix: str) -> None:
    async with opened(f"sqlite:///{tmp_path}/site.db") as site:
        await site.write("before")
        await until(lambda: is_ready(site), "readiness")
        with moved(tmp_path / f"site.db{suffix}"):
            await until(lambda: fails(site), "noticing")
            status, reason = await site.ready()
            with pytest.raises(StoreFault, match="was deleted or replaced"):
                await site.write("lost")
            with pytest.raises(SiteError, match="was deleted or replaced"):
                await site.parts.site.query(Query("things"), OPERATOR)
            assert not (tmp_path / f"site.db{suffix}").exists()

        await until(lambda: is_ready(site), "recovery")
        await site.write("after")
        assert await site.found("lentil") == ["after", "before"]

    assert (status, reason) == (503, "The database file was deleted or replaced while it was in use")
    assert str(tmp_path) not in reason
    assert (len(site.broken()), site.recovered()) == (1, ["store"])


async def test_a_file_that_another_took_the_place_of_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "site.db"
    async with opened(f"sqlite:///{file}") as site:
        await until(lambda: is_ready(site), "readiness")
        shutil.copy(file, tmp_path / "copy.db")
        os.replace(tmp_path / "copy.db", file)

        await until(lambda: fails(site), "noticing")
        with pytest.raises(StoreFault, match="was deleted or replaced"):
            await site.write("lost")

    assert len(site.broken()) == 1


# Rows that nobody can read


DAMAGE = {
    "a change that is not JSON": "UPDATE changes SET data = 'no{{json' WHERE seq = 2",
    "a change that is no object": "UPDATE changes SET data = '[1]' WHERE seq = 2",
    "a change of no kind": "UPDATE changes SET kind = 'odd' WHERE seq = 2",
    "a change of no collection": "UPDATE changes SET collection = 99 WHERE seq = 2",
    "a patch that is not JSON": "UPDATE changes SET patch = '' WHERE seq = 2",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_the_index_and_watchers_go_on_behind_a_change_that_cannot_be_read(url: str, damage: str) -> None:
    async with opened(url) as site:
        await until(lambda: is_ready(site), "readiness")
        await site.write("a")
        await until(lambda: site.parts.index.seq == 1, "the first change")
        site.parts.index._follower.seq, seq = 10**9, site.parts.index._follower.seq  # it looks away for a moment
        await site.write("b")
        await site.write("c")
        await execute(url, damage)
        site.parts.index._follower.seq = seq

        await until(lambda: site.parts.index.seq == 3, "the last change")
        assert {"a", "c"} <= set(await site.found("lentil"))
        watch = site.parts.site.watch(Watch("things", since=0), OPERATOR)
        async with asyncio.timeout(ENOUGH):
            ids = [(await anext(watch)).item.id for _ in range(2)]
        assert await is_ready(site)

    places = [each.where for each in site.seen if isinstance(each, UnexpectedError)]
    assert ids == ["a", "c"]
    assert len(places) == 1
    assert places[0].startswith("Change 2 (")


async def test_an_item_that_cannot_be_read_is_left_out_of_search_recorded_once_and_can_be_written_anew(
    url: str,
) -> None:
    async with opened(url) as site:
        for id in "abc":
            await site.write(id)
    value = "'no{json'" if url.startswith("sqlite") else "'[1]'"
    await execute(url, f"UPDATE items_1 SET data = {value} WHERE id = 'b'")

    async with opened(url) as site:
        await until(lambda: is_ready(site), "readiness")
        assert await site.found("lentil") == ["a", "c"]
        with pytest.raises(UnreadableRow, match="'b' of things"):
            await site.parts.store.items.get("things", "b")
        for finder in (site.parts.store.items, site.parts.site.finder):
            page = await finder.find(Query("things", order=(Order("name"),)))
            assert sorted(item.id for item in page.items) == ["a", "c"]
        await site.write("b", "lentil stew")
        assert await site.found("lentil") == ["a", "b", "c"]
        await site.write("d")
        assert await site.found("lentil") == ["a", "b", "c", "d"]

    assert [each.where for each in site.seen if isinstance(each, UnexpectedError)] == ["The item 'b' of things"]


@pytest.mark.parametrize("ids", ["a", "b", "d", "ab", "bc", "abc"])
@pytest.mark.parametrize("fields", [(), ("name",)])
async def test_small_pages_lead_past_items_that_cannot_be_read(url: str, ids: str, fields: tuple[str, ...]) -> None:
    async with opened(url) as site:
        for id in "abcd":
            await site.write(id)
    value = "'no{json'" if url.startswith("sqlite") else "'[1]'"
    await execute(url, f"UPDATE items_1 SET data = {value} WHERE id IN ({str(list(ids))[1:-1]})")

    found: list[str] = []
    async with opened(url) as site:
        query = Query("things", fields=fields, max_bytes=1)
        while True:
            page = await site.parts.store.items.find(query)
            found += [item.id for item in page.items]
            if not page.cursor:
                break
            query = replace(query, cursor=page.cursor)

    assert found == sorted(set("abcd") - set(ids))


async def test_a_follower_that_meets_what_it_does_not_expect_says_so_once_and_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as site:
        await until(lambda: is_ready(site), "readiness")
        with monkeypatch.context() as broken:

            async def wait(seq: int, timeout: float) -> int:
                raise ZeroDivisionError("never seen before")

            broken.setattr(site.parts.store.changes, "wait", wait)
            await until(lambda: site.broken("index"), "the event")
            await asyncio.sleep(0.3)  # it tries again and again
            status, reason = await site.ready()

        await until(lambda: is_ready(site), "recovery")
        await site.write("a")
        assert await site.found("lentil") == ["a"]

    assert (status, reason) == (503, "Unexpected ZeroDivisionError")
    assert len(site.broken("index")) == 1
    assert site.recovered() == ["index"]
