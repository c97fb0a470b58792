"""Processes that can be killed, and ways to look at what they left behind."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conftest import StoreUrl

from portico.store import Store, open_store

SCRIPT = Path(sys.executable).parent / "portico"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PORTICO_SITE"}

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(params=("sqlite", "postgres"))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def url(kind: str, store_url: StoreUrl) -> str:
    return store_url(kind)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def start(tmp_path: Path, store_url: StoreUrl) -> Iterator[Start]:
    """Start a command in this test's folder. What still runs at the end is killed, before its store goes."""
    running: list[subprocess.Popen[str]] = []

    def begin(*args: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [SCRIPT, *map(str, args)],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(start: Start) -> Callable[..., str]:
    """Run a command to its good end; what it printed."""

    def done(*args: str | Path) -> str:
        process = start(*args)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out

    return done


def wait_until(happened: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Look again and again, but not for ever."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} seconds"
        time.sleep(0.02)


async def until_written(url: str, changes: int, seconds: float = 120.0) -> None:
    """Return once other processes can see so many changes in a store."""
    deadline = time.monotonic() + seconds
    async with opened(url) as store:
        while await store.changes.head() < changes:
            assert time.monotonic() < deadline, f"{changes} changes were not written within {seconds} seconds"
            await asyncio.sleep(0.02)
