"""What all tests of a process share: a PostgreSQL server, started when the first test needs it."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from tests.databases import NEEDED, NoDatabase, empty_schema, postgres_server

from portico.store import Store, open_store

MISSING = pytest.StashKey[str]()
NOT_RUN = "PostgreSQL tests were not run"
PATIENCE = 60.0  # seconds for an answer: on a busy machine the first one of a server may take longer than httpx waits


def pytest_configure() -> None:
    """Let every client wait that is not told how long, and examples take what a busy machine takes for them."""
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
    usual = signature(httpx.Client).parameters["timeout"].default  # one object, for all kinds of requests
    for phase in ("connect", "read", "write", "pool"):
        setattr(usual, phase, PATIENCE)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database that all tests of this process share."""
    with ExitStack() as running:
        try:
            url = running.enter_context(postgres_server())
        except NoDatabase as reason:
            request.config.stash[MISSING] = str(reason)
            if os.environ.get(NEEDED):
                pytest.fail(f"{NOT_RUN}: {reason}", pytrace=False)
            pytest.skip(f"{NOT_RUN}: {reason}")
        yield url


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reason = config.stash.get(MISSING, "")
    if not reason:
        return
    terminalreporter.section(NOT_RUN, red=True, bold=True)
    terminalreporter.line(f"There is no database to run them on: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes tells the first one, which writes the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["missing"] = session.config.stash.get(MISSING, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    reason = getattr(node, "workeroutput", {}).get("missing")  # there is none from a process that broke down
    if reason:
        node.config.stash[MISSING] = reason


StoreUrl = Callable[..., str]


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUrl]:
    """The URL of a store of this test's own, by its kind. It is empty at first, and gone afterwards."""
    with ExitStack() as made:

        def url(kind: str, name: str = "site") -> str:
            match kind:
                case "postgres":
                    return made.enter_context(empty_schema(request.getfixturevalue("postgres")))
                case "sqlite-temporary":
                    return "sqlite:///:memory:"
                case _:
                    return f"sqlite:///{tmp_path / name}.db"

        yield url


Opening = Callable[..., Awaitable[Store]]


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
