"""Every store passes the suite in this folder. A new one adds its name to STORES and BACKENDS."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.conftest import StoreUrl

from portico.store import Store, open_store

STORES = ("sqlite", "postgres")  # these can be opened again, and by two at once
BACKENDS = ("sqlite-temporary", "postgres")  # for what one opening shows: a temporary store does all of that too

Opening = Callable[..., Awaitable[Store]]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, store_url: StoreUrl) -> str:
    return store_url(request.param)


@pytest.fixture(params=BACKENDS)
def backend_url(request: pytest.FixtureRequest, store_url: StoreUrl) -> str:
    return store_url(request.param)


@pytest.fixture
async def backend(backend_url: str) -> AsyncIterator[Store]:
    store = await open_store(backend_url)
    yield store
    await store.close()


@pytest.fixture
async def opening(store_url: StoreUrl) -> AsyncIterator[Opening]:
    """Opens stores that are closed when the test ends, before their databases go."""
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
