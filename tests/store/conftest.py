"""A store on PostgreSQL, unless a module says otherwise."""

import pytest
from tests.conftest import Opening, StoreUrl

from portico.store import Store


@pytest.fixture
def url(store_url: StoreUrl) -> str:
    return store_url("postgres")


@pytest.fixture
async def store(url: str, opening: Opening) -> Store:
    return await opening(url)


@pytest.fixture
async def pair(url: str, opening: Opening) -> tuple[Store, Store]:
    """Two stores on one schema, as two processes have them."""
    return await opening(url), await opening(url)
