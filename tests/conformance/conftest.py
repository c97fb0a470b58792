"""The sample site, asked over HTTP in this process."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.ask import conftest as asking

from portico.cli.sites import demo_config
from portico.config import StoreSettings
from portico.server.assembly import Parts, open_site
from portico.server.http import application

demo_store = asking.demo_store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    """The sample site of a module, with its vectors and its tasks."""
    folder = tmp_path_factory.mktemp("town")
    for path in demo_store.glob("demo.db*"):
        shutil.copy(path, folder)
    config = msgspec.structs.replace(demo_config(), store=StoreSettings(url=f"sqlite:///{folder / 'demo.db'}"))
    async with open_site(config) as parts:
        await parts.index.sync(await parts.store.changes.head())
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(town: Parts) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application(town), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api.recipes.example.com") as client:
        yield client
