"""A server dies in the middle of its work; another one finishes it, once."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conftest import StoreUrl
from tests.replicas.conftest import Begin, LetGo, Notes, Replica, beginning, until

LEASE = 3.0  # long enough to be renewed in time on a busy machine
COUNT = 6


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, store_url: StoreUrl) -> str:
    return store_url(request.param)


@pytest.fixture
async def begin(url: str, folder: Path) -> AsyncIterator[Begin]:
    """Replicas of this test alone, which may kill them."""
    async with beginning(url, folder) as begin:
        yield begin


async def begun(begin: Begin, notes: Notes, operation: str, **given: int) -> tuple[Replica, Replica, str]:
    """Work under way: where it runs, where it does not, and its id."""
    pair = await begin(lease=LEASE)
    id = (await pair[0]("call", operation=operation, name="work", **given))["id"]

    async def runner() -> int | None:
        return next((pid for _, pid in notes("work")), None)

    pid = await until(runner, "the beginning of the work")
    here, there = sorted(pair, key=lambda each: each.pid != pid)
    return here, there, id


async def is_half_done(replica: Replica, id: str) -> bool:
    return (await replica("task", id=id))["progress"] == 0.5


async def test_work_of_a_killed_server_is_taken_over_and_finished_once(
    begin: Begin, notes: Notes, let_go: LetGo
) -> None:
    here, there, id = await begun(begin, notes, "tally", count=COUNT)
    await until(lambda: is_half_done(there, id), "half of the work")
    await here.kill()
    let_go("work")
    ended = await there("wait", id=id, seconds=60)

    assert (ended["state"], ended["attempts"], ended["progress"]) == ("completed", 2, 1.0)
    assert ended["result"] == [f"work-{number}" for number in range(COUNT)]
    assert notes("work") == [("begin", here.pid), ("begin", there.pid), ("end", there.pid)]
    changes = await there("watch", collection="tallies", since=0, count=COUNT)
    assert [(kind, id) for _, kind, id in changes] == [("create", name) for name in ended["result"]]
    assert await there("head") == changes[-1][0]


async def test_work_that_may_be_tried_once_is_not_tried_again(begin: Begin, notes: Notes, let_go: LetGo) -> None:
    here, there, id = await begun(begin, notes, "hold")
    await here.kill()
    let_go("work")
    ended = await there("wait", id=id, seconds=60)

    assert (ended["state"], ended["result"], ended["error"]["error"]) == ("failed", None, "Interrupted")
    assert notes("work") == [("begin", here.pid)]


async def test_waiting_for_work_at_the_survivor_goes_on_through_the_death_of_the_other(
    begin: Begin, notes: Notes, let_go: LetGo
) -> None:
    here, there, id = await begun(begin, notes, "tally", count=COUNT)
    waiting = asyncio.create_task(there("wait", id=id, seconds=60))
    await here.kill()
    let_go("work")

    assert (await waiting)["state"] == "completed"


@pytest.mark.parametrize("url", ["postgres"], indirect=True)  # in SQLite one that sleeps may hold the lock of all
async def test_a_server_that_sleeps_past_its_lease_does_not_change_what_the_other_ended(
    begin: Begin, notes: Notes, let_go: LetGo
) -> None:
    here, there, id = await begun(begin, notes, "tally", count=COUNT)
    await until(lambda: is_half_done(there, id), "half of the work")  # then it writes nothing: it sleeps without a lock
    here.signal(signal.SIGSTOP)
    await until(lambda: noted(notes, there, "begin"), "the second beginning of the work")
    let_go("work")
    ended = await there("wait", id=id, seconds=60)
    here.signal(signal.SIGCONT)
    await until(lambda: noted(notes, here, "cancelled", "failed", "end"), "the end of the first attempt")

    assert (ended["state"], ended["error"], ended["attempts"]) == ("completed", None, 2)
    assert await here("task", id=id) == await there("task", id=id) == ended
    assert (await here("query", collection="tallies", count=True))["total"] == COUNT


async def noted(notes: Notes, replica: Replica, *words: str) -> bool:
    return any(pid == replica.pid and word in words for word, pid in notes("work"))
