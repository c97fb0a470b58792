"""Sources are loaded again while the site is served: on time, once, by one of several processes."""

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import Opening

from portico.config import Config, SourceSettings
from portico.errors import Conflict, NotFound
from portico.protocols import parse_config
from portico.sources import refresh
from portico.sources.freshness import LoadStatus, load_status, save_status, source_names
from portico.sources.ingest import load_sources
from portico.sources.refresh import SourceInfo, SourceManager
from portico.store import Store
from portico.telemetry import SourceLoaded, TelemetryEvent, discard


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(refresh, "BUSY_SECONDS", 0.02)


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    return write(tmp_path / "posts.jsonl", "a", "b")


def write(path: Path, *ids: str) -> Path:
    path.write_text("".join(json.dumps({"id": id, "name": f"Post {id}"}) + "\n" for id in ids))
    return path


def site(*sources: dict[str, Any], **more: Any) -> Config:
    return parse_config({"source": list(sources), **more})


async def ids(store: Store) -> list[str]:
    if "posts" not in store.collections.schema:
        return []
    return sorted([item.id async for page in store.items.scan("posts") for item in page])


async def until(happened: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (seen := await happened()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return seen


Managing = Callable[..., SourceManager]


@pytest.fixture
async def managing(store: Store) -> AsyncIterator[Managing]:
    """Make managers that follow the schedule. They are closed at the end."""
    managers: list[SourceManager] = []

    def make(config: Config, record: Callable[[TelemetryEvent], None] = discard, of: Store = store) -> SourceManager:
        managers.append(manager := SourceManager(config, of, record))
        manager.open()
        return manager

    yield make
    for manager in managers:
        await manager.close()


async def last_load(manager: SourceManager, number: int = 1) -> SourceInfo:
    return (await manager.all())[number - 1]


async def settled(manager: SourceManager, state: str = "loaded", number: int = 1) -> SourceInfo:
    async def is_settled() -> SourceInfo | None:
        info = await last_load(manager, number)
        return info if info.state == state else None

    return await until(is_settled)


async def age(store: Store, settings: SourceSettings, by: timedelta, **changes: Any) -> None:
    """Let the last load of a source have ended so long ago."""
    status = await load_status(store.notes, settings) or LoadStatus(state="loaded", at=datetime.now(UTC))
    await save_status(store.notes, settings, msgspec.structs.replace(status, at=datetime.now(UTC) - by, **changes))


async def test_a_source_that_was_never_loaded_is_loaded_at_once_and_then_when_it_is_due(
    store: Store, posts: Path, managing: Managing
) -> None:
    config = site({"url": str(posts), "every": "1h"})
    manager = managing(config)
    first = await settled(manager)
    assert (await ids(store), first.items, first.every, first.failures) == (["a", "b"], 2, "1h", 0)
    assert None not in {first.succeeded, first.started}
    assert timedelta(hours=1) <= first.due - first.at <= timedelta(hours=1, minutes=1)

    write(posts, "b", "c")
    await asyncio.sleep(0.3)
    assert await ids(store) == ["a", "b"]  # it is not due yet
    await age(store, config.source[0], timedelta(hours=2))
    await until(lambda: _holds(store, ["b", "c"]))


async def _holds(store: Store, expected: list[str]) -> bool:
    return await ids(store) == expected


async def test_a_source_without_a_schedule_is_left_alone(store: Store, posts: Path, managing: Managing) -> None:
    manager = managing(site({"url": str(posts)}))
    await asyncio.sleep(0.3)

    info = await last_load(manager)
    assert (info.state, info.due, await ids(store)) == ("never", None, [])


async def test_after_downtime_it_catches_up_once(store: Store, posts: Path, managing: Managing) -> None:
    config = site({"url": str(posts), "every": "*/10 * * * *"})
    await load_sources(config, store, discard)
    await age(store, config.source[0], timedelta(days=3))
    events: list[TelemetryEvent] = []

    manager = managing(config, events.append)
    await until(lambda: _has(events, 1))
    await asyncio.sleep(0.4)

    assert sum(isinstance(event, SourceLoaded) for event in events) == 1
    info = await last_load(manager)
    assert info.due > datetime.now(UTC)


async def _has(events: list[TelemetryEvent], count: int) -> bool:
    return sum(isinstance(event, SourceLoaded) for event in events) >= count


async def test_of_several_processes_one_loads_a_source_that_is_due(
    url: str, opening: Opening, posts: Path, managing: Managing
) -> None:
    stores = [await opening(url) for _ in range(3)]
    config = site({"url": str(posts), "every": "1h"}, {"url": str(posts), "collection": "more", "every": "1h"})
    events: list[TelemetryEvent] = []
    managers = [managing(config, events.append, store) for store in stores]

    for number in (1, 2):
        await settled(managers[0], number=number)
    await asyncio.sleep(0.4)

    assert sorted(event.collection for event in events if isinstance(event, SourceLoaded)) == ["more", "posts"]
    assert {info.state for manager in managers for info in await manager.all()} == {"loaded"}


async def test_a_source_that_fails_is_tried_again_with_longer_and_longer_pauses(
    store: Store, posts: Path, managing: Managing
) -> None:
    config = site({"url": str(posts), "every": "1d"})
    await load_sources(config, store, discard)
    before = await load_status(store.notes, config.source[0])
    posts.unlink()
    await age(store, config.source[0], timedelta(days=2))
    manager = managing(config)

    first = await settled(manager, "failed")
    assert "posts.jsonl" in first.error
    assert (first.failures, first.succeeded) == (1, before.succeeded)
    assert first.due - first.at <= timedelta(seconds=66)
    assert await ids(store) == ["a", "b"]  # nothing is deleted because a source cannot be read
    await age(store, config.source[0], timedelta(seconds=70))
    second = await until(lambda: _failed(manager, 2))
    assert timedelta(seconds=120) <= second.due - second.at <= timedelta(seconds=132)

    write(posts, "c")
    await age(store, config.source[0], timedelta(hours=2))
    recovered = await settled(manager)
    assert (recovered.failures, recovered.error, await ids(store)) == (0, "", ["c"])


async def _failed(manager: SourceManager, failures: int) -> SourceInfo | None:
    info = await last_load(manager)
    return info if info.failures == failures and info.state == "failed" else None


async def test_a_load_that_its_process_did_not_finish_is_made_up_for(
    store: Store, posts: Path, managing: Managing
) -> None:
    config = site({"url": str(posts), "every": "1d"})
    await age(store, config.source[0], timedelta(minutes=5), state="loading")
    assert await store.roles.acquire(refresh.ROLE, "a process that died", 0.5)

    manager = managing(config)
    info = await last_load(manager)
    assert (info.state, info.error) == ("failed", "It was interrupted")

    assert (await settled(manager)).items == 2


async def test_requests_until_a_load_begins_are_one(url: str, opening: Opening, managing: Managing) -> None:
    """Requests at several processes, before and during a load."""
    with slow_site() as web:
        stores = [await opening(url) for _ in range(2)]
        config = site({"url": f"{web.url}/posts.jsonl", "name": "posts"}, allow_hosts=["127.0.0.1"])
        here, there = [managing(config, discard, store) for store in stores]
        web.released.clear()
        for _ in range(3):
            assert (await here.request("posts")).name == "posts"
            await there.request("posts")
        await settled(here, "loading")
        await until(lambda: _requested(web, 1))
        for manager in (there, here, there):  # this load may have read what these mean to be read
            await manager.request("posts")
        web.released.set()

        await until(lambda: _requested(web, 2))
        await settled(here)
        await asyncio.sleep(0.3)
        assert web.requests == 2
        with pytest.raises(NotFound, match="no source 'other'"):
            await here.request("other")


async def _requested(web: "SlowSite", count: int) -> bool:
    return web.requests >= count


async def test_another_process_refuses_to_load_by_hand_meanwhile(
    url: str, opening: Opening, managing: Managing
) -> None:
    with slow_site() as web:
        stores = [await opening(url) for _ in range(2)]
        config = site({"url": f"{web.url}/posts.jsonl"}, allow_hosts=["127.0.0.1"])
        here, there = [managing(config, discard, store) for store in stores]
        web.released.clear()
        await here.reload(1)
        with pytest.raises(Conflict, match="is being loaded"):
            await there.reload(1)
        web.released.set()
        await settled(there)
        assert (await until(lambda: _reloaded(there))).state == "loading"


async def _reloaded(manager: SourceManager) -> SourceInfo | None:
    try:
        return await manager.reload(1)
    except Conflict:
        return None


async def test_closing_does_not_wait_for_a_website_and_another_process_goes_on(
    url: str, opening: Opening, managing: Managing
) -> None:
    with slow_site() as web:
        stores = [await opening(url) for _ in range(2)]
        config = site({"url": f"{web.url}/posts.jsonl", "name": "posts"}, allow_hosts=["127.0.0.1"])
        here, there = managing(config, discard, stores[0]), SourceManager(config, stores[1], discard)
        web.released.clear()
        await here.request("posts")
        await until(lambda: _requested(web, 1))

        await here.close()

        assert web.conditions == []  # the website has not answered
        info = await last_load(there)
        assert (info.state, info.error) == ("failed", "It was interrupted")
        web.released.set()
        there.open()
        await settled(there)
        await there.close()
        assert web.requests == 2


async def test_a_process_that_lost_its_lease_stops_loading(
    store: Store, managing: Managing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "RENEW_SECONDS", 0.05)
    with slow_site() as web:
        config = site({"url": f"{web.url}/posts.jsonl", "name": "posts"}, allow_hosts=["127.0.0.1"])
        manager = managing(config)
        web.released.clear()
        await manager.reload(1)
        await until(lambda: _requested(web, 1))
        monkeypatch.setattr(manager, "_owner", "a process that was thought dead")
        # The role belongs to the former owner, so that this one cannot renew it.
        await until(lambda: _is_over(manager))

        assert (await last_load(manager)).state == "loading"  # what becomes of it, its new owner says
        web.released.set()


async def _is_over(manager: SourceManager) -> bool:
    return manager._job is None or manager._job.done()


def test_names_of_sources_are_their_own_their_collection_or_their_file(tmp_path: Path) -> None:
    config = site(
        {"url": "posts.jsonl"},
        {"url": "posts.csv"},
        {"url": "https://example.com/feed?token=secret", "collection": "news"},
        {"url": "x.csv", "name": "posts-2"},
        {"url": "posts.tsv"},
    )

    assert source_names(config) == ["posts", "posts-3", "news", "posts-2", "posts-4"]


async def reload_when_due(store: Store, manager: SourceManager, config: Config) -> SourceInfo:
    """Let the first source be due, and return what became of its load."""
    before = await settled(manager)
    await age(store, config.source[0], timedelta(days=2))

    async def is_done() -> SourceInfo | None:
        info = await last_load(manager)
        return info if info.state != "loading" and info.started not in {None, before.started} else None

    return await until(is_done)


async def test_a_304_touches_nothing_and_deletes_nothing(store: Store, managing: Managing) -> None:
    with slow_site() as web:
        web.headers = {"ETag": '"v1"', "Last-Modified": "Thu, 19 Nov 2026 10:00:00 GMT"}
        config = site({"url": f"{web.url}/posts.jsonl", "every": "1d"}, allow_hosts=["127.0.0.1"])
        manager = managing(config)
        await settled(manager)
        head = await store.changes.head()

        again = await reload_when_due(store, manager, config)

        assert (again.is_unchanged, again.state, again.items, again.failures) == (True, "loaded", 1, 0)
        assert again.succeeded == again.at
        assert web.conditions == [(None, None), ('"v1"', "Thu, 19 Nov 2026 10:00:00 GMT")]
        assert (await store.changes.head(), await ids(store)) == (head, ["a"])

        web.headers, web.body = {"ETag": '"v2"'}, b'{"id": "b"}\n'
        assert (await reload_when_due(store, manager, config)).is_unchanged is False
        assert await ids(store) == ["b"]
        assert (await reload_when_due(store, manager, config)).is_unchanged
        assert web.conditions[-1] == ('"v2"', None)
        await manager.reload(1)  # by hand: all of it is read
        await until(lambda: _requested(web, 5))
        assert web.conditions[-1] == (None, None)


async def test_after_a_failure_or_with_other_settings_all_is_read(store: Store, managing: Managing) -> None:
    with slow_site() as web:
        web.headers = {"ETag": '"v1"'}
        source = {"url": f"{web.url}/posts.jsonl", "every": "1d"}
        config = site(source, allow_hosts=["127.0.0.1"])
        manager = managing(config)
        await settled(manager)
        web.status = 500
        assert (await reload_when_due(store, manager, config)).state == "failed"
        web.status = 200
        await age(store, config.source[0], timedelta(days=2))
        await settled(manager)
        assert web.conditions[-1] == (None, None)
        await manager.close()

        typed = site({**source, "type": "Article"}, allow_hosts=["127.0.0.1"])
        assert not (await reload_when_due(store, managing(typed), typed)).is_unchanged
        assert web.conditions[-1] == (None, None)


async def test_files_that_have_not_changed_are_not_read(store: Store, posts: Path, managing: Managing) -> None:
    os.utime(posts, (1e9, 1e9))
    config = site({"url": str(posts), "every": "1d"})
    await load_sources(config, store, discard)  # as `portico load` does
    manager = managing(config)
    head = await store.changes.head()

    again = await reload_when_due(store, manager, config)
    assert (again.is_unchanged, again.items, await store.changes.head()) == (True, 2, head)

    write(posts, "b", "d")  # of the same size
    os.utime(posts, (1e9 + 1, 1e9 + 1))
    assert not (await reload_when_due(store, manager, config)).is_unchanged
    assert await ids(store) == ["b", "d"]
    write(posts, "b", "e")  # a moment ago: a later write might have the same time
    assert not (await reload_when_due(store, manager, config)).is_unchanged
    write(posts, "b", "f")
    assert not (await reload_when_due(store, manager, config)).is_unchanged
    assert await ids(store) == ["b", "f"]


async def test_a_folder_is_read_when_any_of_its_files_has_changed(
    store: Store, tmp_path: Path, managing: Managing
) -> None:
    folder = tmp_path / "posts"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.md").write_text(f"# Post {name}\n\nSome text.\n")
        os.utime(folder / f"{name}.md", (1e9, 1e9))
    config = site({"url": str(folder), "every": "1d"})
    manager = managing(config)

    await settled(manager)
    assert (await reload_when_due(store, manager, config)).is_unchanged
    (folder / "two.md").unlink()
    removed = await reload_when_due(store, manager, config)
    assert (removed.is_unchanged, removed.removed, removed.items) == (False, 1, 1)


async def test_a_page_that_stands_for_a_site_is_always_crawled(store: Store, managing: Managing) -> None:
    with slow_site() as web:
        web.headers, web.body = {"ETag": '"v1"'}, b"<html><title>Home</title><body><p>Welcome to the site.</p></html>"
        config = site({"url": f"{web.url}/", "every": "1d", "delay": 0}, allow_hosts=["127.0.0.1"])
        manager = managing(config)

        await settled(manager)
        assert not (await reload_when_due(store, manager, config)).is_unchanged
        assert set(web.conditions) == {(None, None)}


class SlowSite:
    """A site of one file, which it sends once it is released."""

    def __init__(self) -> None:
        self.body = b'{"id": "a", "name": "Post"}\n'
        self.headers: dict[str, str] = {}
        self.status = 200
        self.conditions: list[tuple[str | None, str | None]] = []
        self.url = ""
        self.requests = 0
        self.released = threading.Event()
        self.released.set()


@contextmanager
def slow_site() -> Iterator[SlowSite]:
    web = SlowSite()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.requests += 1
            web.released.wait(60)
            known = self.headers["If-None-Match"]
            web.conditions.append((known, self.headers["If-Modified-Since"]))
            is_known = web.status == 200 and known is not None and known == web.headers.get("ETag")
            body = b"" if is_known else web.body
            self.send_response(304 if is_known else web.status)
            for name, value in web.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None: ...

    with Server(("127.0.0.1", 0), Handler) as server:
        web.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield web
        web.released.set()
        server.shutdown()
        thread.join()
