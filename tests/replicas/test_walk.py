"""Two servers on one store behave as one: every second request of a walk goes to the other.

All walks on a store share two servers. So each uses names of its own, and ends the work that it begins.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.databases import empty_schema
from tests.replicas.conftest import LetGo, Notes, Replica, beginning, until

from portico.errors import KeyInUse, RateLimited, TaskFinished

pytestmark = pytest.mark.asyncio(loop_scope="module")

Pair = tuple[Replica, Replica]


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=("sqlite", "postgres"))
async def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Path, Pair]]:
    folder = tmp_path_factory.mktemp("replicas")
    with ExitStack() as made:
        url = f"sqlite:///{folder / 'site.db'}"
        if request.param == "postgres":
            url = made.enter_context(empty_schema(request.getfixturevalue("postgres")))
        async with beginning(url, folder) as begin:
            yield folder, await begin()


@pytest.fixture
def folder(shared: tuple[Path, Pair]) -> Path:
    return shared[0]


@pytest.fixture
def pair(shared: tuple[Path, Pair]) -> Pair:
    return shared[1]


@pytest.fixture
def turn(pair: Pair) -> Callable[[], Replica]:
    """The replica whose turn it is: first the second, then the first, and so on."""
    return itertools.cycle(reversed(pair)).__next__


def write_posts(path: Path, ids: list[str]) -> str:
    path.write_text("".join(json.dumps({"id": id, "rank": rank}) + "\n" for rank, id in enumerate(ids)))
    return str(path)


async def test_what_one_has_loaded_is_read_page_by_page_from_both(
    pair: Pair, turn: Callable[[], Replica], tmp_path: Path
) -> None:
    ids = [f"p{number:03}" for number in range(60)]
    path = write_posts(tmp_path / "posts.jsonl", ids)
    assert (await pair[0]("load", path=path, collection="posts"))["added"] == 60

    seen, cursor, wanted = [], "", {"collection": "posts", "order": "rank", "limit": 7, "count": True}
    while len(seen) < 60:
        page = await turn()("query", **wanted, cursor=cursor)
        assert page["total"] == 60
        seen, cursor = seen + page["ids"], page["cursor"]
        assert bool(cursor) == (len(seen) < 60)

    assert seen == ids
    path = write_posts(tmp_path / "posts.jsonl", ids[:50])
    assert (await pair[1]("load", path=path, collection="posts"))["removed"] == 10
    assert [(await each("query", **wanted))["total"] for each in pair] == [50, 50]


async def test_what_one_has_written_the_other_finds_by_its_words(pair: Pair) -> None:
    for number, (here, there) in enumerate([pair, pair[::-1]] * 5):
        id = f"b{number}"
        await here("call", operation="create_berth", id=id, input={"name": f"Mooring word{number}"})
        assert (await there("query", collection="berths", text=f"word{number}"))["ids"] == [id]

        await there("call", operation="update_berth", id=id, input={"name": f"Pier other{number}"})
        assert (await here("query", collection="berths", text=f"other{number}"))["ids"] == [id]
        assert (await here("query", collection="berths", text=f"word{number}"))["ids"] == []

        await here("call", operation="delete_berth", id=id)
        assert (await there("query", collection="berths", text=f"other{number}"))["ids"] == []


async def test_work_begun_at_one_is_seen_and_awaited_at_the_other(
    pair: Pair, turn: Callable[[], Replica], notes: Notes, let_go: LetGo
) -> None:
    id = (await pair[0]("call", operation="hold", name="long"))["id"]
    assert (await turn()("task", id=id))["state"] in {"pending", "running"}
    await until(lambda: running(turn(), id), "work that runs")

    waiting = [asyncio.create_task(each("wait", id=id, seconds=60)) for each in pair]
    let_go("long")

    assert [(each["state"], each["result"]) for each in await asyncio.gather(*waiting)] == [("completed", "long")] * 2
    assert [word for word, _ in notes("long")] == ["begin", "end"]


async def running(replica: Replica, id: str) -> bool:
    return (await replica("task", id=id))["state"] == "running"


async def test_work_that_runs_at_one_is_cancelled_at_the_other(pair: Pair, notes: Notes) -> None:
    """Each runs one task at a time, so that each has one of two."""
    tasks = {name: (await pair[0]("call", operation="hold", name=name))["id"] for name in ("first", "second")}
    for name in tasks:
        await until(lambda name=name: begun(notes, name), f"the {name} work")
    assert {notes(name)[0][1] for name in tasks} == {each.pid for each in pair}

    for name, id in tasks.items():
        other = next(each for each in pair if each.pid != notes(name)[0][1])
        await other("cancel", id=id)
        assert (await other("wait", id=id, seconds=60))["state"] == "cancelled"
        assert [word for word, _ in notes(name)] == ["begin", "cancelled"]
        for each in pair:
            with pytest.raises(TaskFinished):
                await each("cancel", id=id)


async def begun(notes: Notes, name: str) -> bool:
    return bool(notes(name))


async def test_a_repeat_at_the_other_gives_the_first_answer(pair: Pair, notes: Notes, let_go: LetGo) -> None:
    a, b = pair
    first = await a("call", operation="stamp", key="k", name="letter")
    again = await b("call", operation="stamp", key="k", name="letter")

    assert (first["repeated"], again["repeated"]) == (False, True)
    assert first["result"] == again["result"] == f"letter {a.pid}"
    assert notes("letter") == [("stamped", a.pid)]
    for each in pair:
        with pytest.raises(KeyInUse, match="other parameters"):
            await each("call", operation="stamp", key="k", name="parcel")
    tasks = [await each("call", operation="hold", key="k", name="reply") for each in pair]
    assert tasks[0]["id"] == tasks[1]["id"]
    let_go("reply")
    assert (await b("wait", id=tasks[0]["id"], seconds=60))["state"] == "completed"


async def test_a_key_used_at_both_at_once_stands_for_one_call(pair: Pair, notes: Notes) -> None:
    for number in range(10):
        calls = [each("call", operation="stamp", key=f"k{number}", name=f"n{number}") for each in pair * 2]
        said = await asyncio.gather(*calls, return_exceptions=True)

        answers = [each for each in said if not isinstance(each, KeyInUse)]
        assert {each["result"] for each in answers} == {f"n{number} {notes(f'n{number}')[0][1]}"}
        assert sum(not each["repeated"] for each in answers) == 1
        assert len(notes(f"n{number}")) == 1


async def test_a_caller_has_so_many_tasks_at_both_together(pair: Pair, let_go: LetGo) -> None:
    """A key made at one is good at both."""
    somebody = {"bearer": await pair[0]("new_key")}
    starts = [each("call", somebody, operation="hold", name="busy") for each in pair * 5]
    said = await asyncio.gather(*starts, return_exceptions=True)

    started = [each for each in said if isinstance(each, dict)]
    assert len(started) == 3
    assert [type(each) for each in said if not isinstance(each, dict)] == [RateLimited] * 7
    for each in pair:
        with pytest.raises(RateLimited):
            await each("call", somebody, operation="hold", name="busy")
    for each, task in zip(pair * 2, started, strict=False):
        await each("cancel", somebody, id=task["id"])
        await each("wait", somebody, id=task["id"], seconds=60)
    another = await pair[1]("call", somebody, operation="hold", name="busy")
    assert another["state"] == "pending"
    let_go("busy")
    assert (await pair[0]("wait", somebody, id=another["id"], seconds=60))["state"] == "completed"


async def test_a_caller_has_one_allowance_at_both_together(pair: Pair) -> None:
    somebody = {"address": "192.0.2.7"}
    granted = 0
    for each in pair * 8:
        granted += await allowed(each, somebody)

    assert 6 <= granted <= 8  # six in a minute, and what is refilled meanwhile
    assert await allowed(pair[1], {"address": "192.0.2.8"})


async def allowed(replica: Replica, credentials: dict[str, str]) -> bool:
    try:
        await replica("query", credentials, collection="berths")
    except RateLimited:
        return False
    return True


async def test_a_watch_at_one_sees_what_the_other_writes_and_goes_on_there(pair: Pair) -> None:
    a, b = pair
    since = await b("head")
    watching = asyncio.create_task(b("watch", collection="berths", since=since, count=3))
    await write(a, "one")
    await write(b, "two")
    await write(a, "three")

    seen: list[Any] = await watching
    assert [(kind, id) for _, kind, id in seen] == [("create", "one"), ("create", "two"), ("create", "three")]
    assert sorted(seq for seq, _, _ in seen) == [seq for seq, _, _ in seen]

    rest = await a("watch", collection="berths", since=seen[0][0], count=2)
    assert rest == seen[1:]
    going_on = asyncio.create_task(a("watch", collection="berths", since=rest[-1][0], count=1))
    await write(b, "four")
    assert [id for _, _, id in await going_on] == ["four"]


async def write(replica: Replica, id: str) -> None:
    await replica("call", operation="create_berth", id=id, input={"name": id})
