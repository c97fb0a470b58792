"""COMMITs that PostgreSQL does not answer, or never gets."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests import databases
from tests.faults.proxy import Fate, Proxy

from portico.access.identity import local_operator
from portico.errors import OutcomeUnknown, Unavailable
from portico.protocols import parse_config
from portico.query import MATCH_ALL
from portico.requests import Call, Outcome
from portico.server.assembly import Parts, open_site
from portico.store.postgres import engine
from portico.store.records import Put, Remove

OPERATOR = local_operator()
OWN = '''
from portico.operations import Context, operation

runs: list[str] = []

@operation(kind="execute", danger="safe")
async def sell(context: Context, id: str) -> int:
    """Has effects outside the store, too."""
    runs.append(id)
    await context.put("orders", id, {"item": id})
    await context.put("stock", id, {"left": 1})
    return len(runs)

@operation(kind="execute", danger="safe", long=True)
async def sell_later(context: Context, id: str) -> int:
    return await sell(context, id)
'''


@dataclass
class Shop:
    parts: Parts
    proxy: Proxy
    fates: list[Fate] = field(default_factory=list)  # of the next COMMITs

    async def sell(self, key: str = "") -> Any:
        outcome = await self.parts.site.call(Call("sell", {"id": "a"}, key=key), OPERATOR)
        assert isinstance(outcome, Outcome)
        return outcome

    async def written(self) -> list[int]:
        return [await self.parts.store.items.count(name, MATCH_ALL) for name in ("orders", "stock")]


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Shop]:
    fates: list[Fate] = []
    (folder / "own.py").write_text(OWN)
    async with Proxy(url, lambda: fates.pop(0) if fates else "pass").running() as proxy:
        said = {"search": {"embedder": "none:"}, "store": {"url": proxy.url}, "operations": ["own.py"]}
        async with open_site(parse_config({**said, "folder": str(folder)})) as parts:
            for name in ("orders", "stock"):
                await parts.store.collections.declare(parts.config.collection(name))
                await parts.store.items.write(
                    name, [Put("first", {"item": "x", "left": 0}), Remove("first")]
                )  # its fields
            yield Shop(parts, proxy, fates)


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    with databases.empty_schema(postgres) as url:
        yield url


@pytest.fixture
async def shop(url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened(url, tmp_path) as shop:
        yield shop


async def test_a_commit_whose_answer_is_lost_is_done_and_told(shop: Shop) -> None:
    shop.fates[:] = ["lose the answer"]

    assert (await shop.sell()).result == 1
    assert (await shop.written(), shop.proxy.lost) == ([1, 1], 1)


async def test_a_commit_that_never_arrives_is_not_done_and_said_so(shop: Shop) -> None:
    shop.fates[:] = ["lose the commit"]

    with pytest.raises(Unavailable):
        await shop.sell()
    assert (await shop.written(), shop.proxy.lost) == ([0, 0], 1)


async def test_a_call_with_a_key_is_done_once_whichever_answer_is_lost(shop: Shop) -> None:
    """The first COMMIT reserves the key, the second one is that of the operation."""
    for fates in (["lose the answer"], ["pass", "lose the answer"], ["lose the answer"] * 2):
        shop.fates[:] = fates
        assert (await shop.sell(key="k")).result == 1
        assert (await shop.sell(key="k")).repeated

    assert await shop.written() == [1, 1]


async def test_an_outcome_that_nobody_can_look_up_is_unknown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOKUP_SECONDS", 0.2)
    decide = shop.proxy.decide

    def shut() -> Fate:
        fate = decide()
        shop.proxy.is_shut = fate != "pass"
        return fate

    shop.proxy.decide = shut
    shop.fates[:] = ["pass", "lose the answer"]

    with pytest.raises(OutcomeUnknown, match="did not confirm the commit"):
        await shop.sell(key="k")
    shop.proxy.is_shut = False

    assert (await shop.sell(key="k")).repeated  # it was done after all, and the key says so
    assert await shop.written() == [1, 1]


async def test_a_task_whose_end_is_stored_without_an_answer_has_ended_once(shop: Shop) -> None:
    shop.fates[:] = ["pass", "pass", "lose the answer"]  # of adding it, of claiming it, of its end
    task = await shop.parts.site.call(Call("sell_later", {"id": "a"}), OPERATOR)
    async with asyncio.timeout(60):
        while not (ended := await shop.parts.site.tasks.wait(task.id, OPERATOR, 1)).state.is_final:
            pass

    assert (ended.state, ended.result, ended.attempts) == ("completed", 1, 1)
    assert (await shop.written(), shop.proxy.lost) == ([1, 1], 1)


async def tokens(url: str, before: str = "SELECT 1") -> list[str]:
    """Return the tokens that are stored, once the statement `before` was run."""
    session = await asyncpg.connect(url.partition("?")[0])
    try:
        await session.execute(f"SET search_path = {url.partition('schema=')[2]}")
        await session.execute(before)
        rows = await session.fetch("SELECT token FROM commits ORDER BY token")
        return [token for (token,) in rows]
    finally:
        await session.close()


async def test_tokens_of_transactions_are_deleted_after_a_while(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(engine, "SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(engine, "TOKEN_SECONDS", -1.0)
    await shop.sell()

    assert await tokens(url) == []


async def test_a_process_with_few_transactions_deletes_old_tokens(url: str, tmp_path: Path) -> None:
    async with opened(url, tmp_path):
        old = await tokens(url, "UPDATE commits SET token = '0' || token")  # as if they were years old
    async with opened(url, tmp_path):
        assert old
        assert not set(old) & set(await tokens(url))


@pytest.mark.parametrize("hours", [-1, 1])
async def test_tokens_do_not_depend_on_the_clock_of_a_process(
    shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr(engine, "SWEEP_SECONDS", 0.0)
    await shop.sell()
    with monkeypatch.context() as patch:
        clock = time.time
        patch.setattr(time, "time", lambda: clock() + 3600 * hours)
        await shop.sell()
        stored = await tokens(url)
    await shop.sell()

    assert set(stored) < set(await tokens(url))
    assert len(stored) > 2
