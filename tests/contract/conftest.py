"""Every store passes the suite in this folder. A new one adds a line to STORES, BACKENDS and LASTING."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from portico.store import Store, open_store

STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'site.db'}",
    "sqlite-temporary": lambda _: "sqlite:///:memory:",
}
BACKENDS = ("sqlite-temporary",)  # one for each engine: what is slow need not run on every variant of it
LASTING = ("sqlite",)  # those that can be opened again, and by two at once

Opening = Callable[..., Awaitable[Store]]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return STORES[request.param](tmp_path)


@pytest.fixture(params=LASTING)
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return STORES[request.param](tmp_path)


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(STORES[request.param](tmp_path))
    yield store
    await store.close()


@pytest.fixture
async def opening() -> AsyncIterator[Opening]:
    """Opens stores that are closed when the test ends."""
    opened: list[Store] = []

    async def open_one(url: str, **settings: int) -> Store:
        opened.append(await open_store(url, **settings))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(url: str, opening: Opening) -> Store:
    return await opening(url)
