"""Every store passes the suite in this folder. A new one adds its name to STORES and BACKENDS."""

from collections.abc import AsyncIterator

import pytest
from tests.conftest import Opening, StoreUrl

from portico.store import Store, open_store

STORES = ("sqlite", "postgres")  # these can be opened again, and by two at once
BACKENDS = ("sqlite-temporary", "postgres")  # for what one opening shows: a temporary store does all of that too


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
async def store(url: str, opening: Opening) -> Store:
    return await opening(url)
