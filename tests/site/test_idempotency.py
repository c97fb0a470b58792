"""Idempotency keys, and the one transaction of an operation's writes, its key and its task."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.site.conftest import OPERATOR, Calling, Open

from portico.errors import (
    Conflict,
    KeyInUse,
    OperationFailed,
    OutcomeUnknown,
    SiteError,
    TimedOut,
    Unavailable,
    UnknownItem,
    Unsupported,
    VersionMismatch,
)
from portico.operations.calls import STOPPED
from portico.query import MATCH_ALL
from portico.requests import Call, Outcome
from portico.server.assembly import Parts
from portico.store.records import Put

OWN = '''
import asyncio
from typing import Literal

from portico.errors import Conflict, OutcomeUnknown, Unavailable
from portico.operations import Context, operation
from portico.query import Order, Query, parse_filter

runs: list[str] = []  # effects outside the store
gate, started = asyncio.Event(), asyncio.Event()
Ending = Literal["well", "raise", "break", "lie", "wait"]

async def sell(context: Context, id: str, ending: Ending) -> str:
    runs.append(id)
    await context.put("orders", id, {"item": id})
    await context.put("stock", id, {"left": 1})
    match ending:
        case "raise":
            raise Conflict("Sold out")
        case "break":
            raise RuntimeError("broken")
        case "lie":
            return 7
        case "wait":
            started.set()
            await gate.wait()
    return f"sold {id}, run {len(runs)}"

@operation(kind="execute", danger="safe")
async def sell_anywhere(context: Context, id: str, ending: Ending = "well") -> str:
    """May have effects outside the store."""
    return await sell(context, id, ending)

@operation(kind="execute", danger="safe", transactional=True)
async def sell_here(context: Context, id: str, ending: Ending = "well") -> str:
    return await sell(context, id, ending)

@operation(kind="execute", danger="safe", idempotent=True)
async def sell_again(context: Context, id: str, ending: Ending = "well") -> str:
    return await sell(context, id, ending)

@operation(kind="execute", danger="safe", transactional=True)
async def sell_half(context: Context, id: str) -> str:
    """Commits half way, then fails."""
    await context.put("orders", id, {"item": id})
    await context.commit()
    await context.put("stock", id, {"left": 1})
    raise Conflict("Sold out")

@operation(kind="execute", danger="safe")
async def sell_patiently(context: Context, id: str, ending: Literal["repeat", "ignore", "refuse"]) -> str:
    """Commits by itself, and deals with a commit that fails."""
    runs.append(id)
    await context.put("orders", id, {"item": id})
    try:
        await context.commit()
    except (Unavailable, OutcomeUnknown):
        if ending == "repeat":
            await context.commit()
        if ending == "refuse":
            raise Conflict("Sold out")
    return "sold"

@operation(kind="execute", danger="safe")
async def sell_hastily(context: Context, id: str) -> str:
    """Stops waiting for a commit, and commits once more."""
    await context.put("orders", id, {"item": id})
    try:
        async with asyncio.timeout(0.01):
            await context.commit()
    except TimeoutError:
        await context.commit()
    return "sold"

@operation(kind="execute", danger="safe")
async def sell_side_by_side(context: Context, id: str) -> str:
    """Writes and commits while it commits."""
    await context.put("orders", id, {"item": id})
    await asyncio.gather(context.commit(), context.commit(), context.put("stock", id, {"left": 1}))
    return "sold"

@operation(kind="execute", danger="safe", transactional=True)
async def count_down(context: Context, id: str) -> int:
    """Takes one from the stock, unless somebody else does meanwhile."""
    item = await context.get("stock", id)
    started.set()
    await gate.wait()
    await context.put("stock", id, {"left": item.data["left"] - 1}, expect=item.version)
    return item.data["left"] - 1

@operation(kind="execute", danger="safe")
async def look(context: Context) -> dict:
    """What an operation sees of what it has written itself."""
    await context.put("stock", "b", {"left": 20})
    await context.merge("stock", "a", {"left": 5})
    await context.remove("stock", "c")
    await context.put("stock", "e", {"left": 1})
    query = Query("stock", order=(Order("left", descending=True),), limit=2, count=True)
    first = await context.find(query)
    second = await context.find(Query("stock", order=query.order, limit=2, cursor=first.cursor))
    few = await context.find(Query("stock", where=parse_filter({"left": {"$lt": 10}}), fields=("id",)))
    return {
        "pages": [[item.id for item in page.items] for page in (first, second)],
        "total": first.total,
        "more": bool(second.cursor),
        "few": [item.id for item in few.items],
        "one": (await context.get("stock", "a")).data["left"],
    }

@operation(kind="execute", danger="safe")
async def page_through(context: Context, fields: list[str]) -> list[list[str]]:
    """Writes to a collection, then reads it page by page."""
    await context.put("stock", "b", {"name": "x" * 100})
    await context.put("stock", "d", {"name": "x" * 100})
    pages, query = [], Query("stock", fields=tuple(fields), limit=1000)
    while True:
        page = await context.find(query)
        pages.append([item.id for item in page.items])
        if not page.cursor:
            return pages
        query = Query("stock", fields=query.fields, limit=1000, cursor=page.cursor)

@operation(kind="execute", danger="safe")
async def search_written(context: Context, commit: bool) -> list[str]:
    await context.put("stock", "new", {"name": "blue kettle"})
    if commit:
        await context.commit()
    return [item.id for item in (await context.find(Query("stock", text="kettle"))).items]

@operation(kind="execute", danger="safe", long=True, attempts=2)
async def load_all(context: Context, count: int, fail: bool = False) -> int:
    """Writes two items in each step, saves after each, and stops once in the middle of a step."""
    done = context.saved or 0
    runs.append(f"from {done}")
    for number in range(done, count):
        await context.put("orders", f"o{number}", {"n": number})
        if number == count // 2 and len(runs) == 1:
            if fail:
                raise Conflict("Try again")
            started.set()
            await gate.wait()
        await context.put("stock", f"s{number}", {"left": number})
        await context.progress((number + 1) / count, save=number + 1)
    return count
'''


@pytest.fixture
async def shop(opened: Open) -> AsyncIterator[Parts]:
    async with opened(OWN) as parts:
        for name in ("orders", "stock"):
            await parts.store.collections.declare(parts.config.collection(name))
        yield parts


def own() -> Any:
    """What the operations of the open site see and share."""
    return sys.modules["portico_site_own"]


async def written(shop: Parts) -> tuple[int, int]:
    """How many orders there are, and how many items of the stock."""
    return await shop.store.items.count("orders", MATCH_ALL), await shop.store.items.count("stock", MATCH_ALL)


async def attempt(shop: Parts, operation: str, key: str = "k", timeout: float | None = None, **params: Any) -> Any:
    """What a call gave, or the type of its error."""
    try:
        outcome = await shop.site.call(Call(operation, params, key=key, timeout=timeout), OPERATOR)
    except SiteError as error:
        return type(error)
    assert isinstance(outcome, Outcome)
    return outcome.result


# One unit of work


@pytest.mark.parametrize(
    ("ending", "error"), [("raise", Conflict), ("break", OperationFailed), ("lie", OperationFailed), ("wait", TimedOut)]
)
@pytest.mark.parametrize("key", ["", "k"])
async def test_writes_of_an_operation_that_fails_are_not_made(
    shop: Parts, ending: str, error: type[SiteError], key: str
) -> None:
    assert await attempt(shop, "sell_anywhere", key, 0.2, id="a", ending=ending) is error

    assert await written(shop) == (0, 0)
    assert await shop.store.changes.head() == 0


async def test_an_operation_sees_what_it_has_written(shop: Parts) -> None:
    call = Calling(shop.site)
    for id, left in {"a": 100, "b": 2, "c": 3, "d": 4}.items():
        await call("create_stock", id=id, input={"left": left})

    assert await call("look") == {
        "pages": [["b", "a"], ["d", "e"]],
        "total": 4,
        "more": False,
        "few": ["a", "d", "e"],
        "one": 5,
    }


@pytest.mark.parametrize("fields", [[], ["name"]])
async def test_a_page_with_what_was_written_has_a_bound_in_bytes(opened: Open, fields: list[str]) -> None:
    async with opened(OWN, limits={"page_bytes": 250}) as parts:
        await parts.store.collections.declare(parts.config.collection("stock"))
        await parts.store.items.write("stock", [Put(id, {"name": "x" * 100}) for id in "acef"])

        assert await Calling(parts.site)("page_through", fields=fields) == [["a", "b"], ["c", "d"], ["e", "f"]]


async def test_a_search_by_words_needs_what_was_written_to_be_committed(shop: Parts) -> None:
    call = Calling(shop.site)
    with pytest.raises(Unsupported, match="not yet committed") as refusal:
        await call("search_written", commit=False)
    assert "context.commit()" in str(refusal.value.hint)
    assert await written(shop) == (0, 0)

    assert await call("search_written", commit=True) == ["new"]


async def test_of_two_that_change_an_item_at_once_one_is_refused_whole(shop: Parts) -> None:
    call = Calling(shop.site)
    await call("create_stock", id="a", input={"left": 9})
    late = asyncio.create_task(shop.site.call(Call("count_down", {"id": "a"}, key="k"), OPERATOR))
    await own().started.wait()
    await call("update_stock", id="a", input={"left": 5})
    own().gate.set()

    with pytest.raises(VersionMismatch):
        await late
    assert (await call("get_stock", id="a"))["left"] == 5
    assert await attempt(shop, "count_down", id="a") == 4


# Keys


async def test_an_operation_that_timed_out_after_writing_is_not_done_again(shop: Parts) -> None:
    tries = [await attempt(shop, "sell_anywhere", "k", 0.2, id="a", ending="wait") for _ in range(4)]

    assert tries == [TimedOut, OutcomeUnknown, OutcomeUnknown, OutcomeUnknown]
    assert own().runs == ["a"]
    assert await written(shop) == (0, 0)


@pytest.mark.parametrize("ending", ["break", "lie"])
async def test_an_operation_that_failed_unexpectedly_is_not_done_again(shop: Parts, ending: str) -> None:
    tries = [await attempt(shop, "sell_anywhere", "k", id="a", ending=ending) for _ in range(3)]

    assert tries == [OperationFailed, OutcomeUnknown, OutcomeUnknown]


async def test_an_operation_that_refused_may_be_tried_again_with_its_key(shop: Parts) -> None:
    tries = [await attempt(shop, "sell_anywhere", "k", id="a", ending="raise") for _ in range(2)]

    assert tries == [Conflict, Conflict]


async def test_a_key_of_an_operation_that_only_reads_stores_nothing(shop: Parts) -> None:
    call = Call("list_stock", {}, key="k")
    await shop.site.call(call, OPERATOR)
    await Calling(shop.site)("create_stock", id="a", input={"left": 1})

    again = await shop.site.call(call, OPERATOR)

    assert isinstance(again, Outcome)
    assert (again.repeated, [item["id"] for item in again.result["items"]]) == (False, ["a"])


async def test_a_repeat_of_an_unknown_outcome_says_what_is_known_and_how_to_find_out(shop: Parts) -> None:
    await attempt(shop, "sell_anywhere", "k", 0.2, id="a", ending="wait")

    with pytest.raises(OutcomeUnknown) as answer:
        await shop.site.call(Call("sell_anywhere", {"id": "a", "ending": "wait"}, key="k"), OPERATOR)

    assert answer.value.message == "It is not known whether sell_anywhere did its work: it did not end in time"
    assert answer.value.details == {"operation": "sell_anywhere", "key": "k", "state": "unknown"}
    assert "new idempotency key" in str(answer.value.hint)


@pytest.mark.parametrize("operation", ["sell_here", "sell_again"])
async def test_an_operation_that_may_be_repeated_is_run_again_after_a_time_out(shop: Parts, operation: str) -> None:
    assert await attempt(shop, operation, "k", 0.2, id="a", ending="wait") is TimedOut
    own().gate.set()

    assert await attempt(shop, operation, "k", id="a", ending="wait") == "sold a, run 2"
    assert await attempt(shop, operation, "k", id="a", ending="wait") == "sold a, run 2"
    assert await written(shop) == (1, 1)


async def test_a_call_that_is_broken_off_has_an_unknown_outcome(shop: Parts) -> None:
    running = asyncio.create_task(attempt(shop, "sell_anywhere", id="a", ending="wait"))
    await own().started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    own().gate.set()

    assert await attempt(shop, "sell_anywhere", id="a", ending="wait") is OutcomeUnknown
    assert own().runs == ["a"]


async def test_a_call_that_is_broken_off_while_it_commits_has_its_outcome(
    shop: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    committing, go_on, commit = asyncio.Event(), asyncio.Event(), shop.store.items.commit

    async def commit_when_let_go(*args: Any) -> Any:
        committing.set()
        await go_on.wait()
        return await commit(*args)

    monkeypatch.setattr(shop.store.items, "commit", commit_when_let_go)
    running = asyncio.create_task(attempt(shop, "sell_anywhere", id="a"))
    await committing.wait()
    running.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await attempt(shop, "sell_anywhere", id="a") == "sold a, run 1"
    assert await written(shop) == (1, 1)


async def leave_behind(shop: Parts, operation: str, digest: str) -> None:
    """A key as a killed process leaves it, once its lease has run out."""
    expires = datetime.now(UTC) + timedelta(hours=24)
    reason = STOPPED if operation == "sell_anywhere" else ""
    scope = f"{OPERATOR.rate_key}\n{operation}\nk"
    await shop.store.idempotency.reserve(scope, digest, expires, owner="dead", lease=-1, reason=reason)


async def test_a_key_of_a_killed_process_is_not_said_to_be_running(
    shop: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests: list[str] = []
    reserve = shop.store.idempotency.reserve
    monkeypatch.setattr(
        shop.store.idempotency,
        "reserve",
        lambda scope, digest, *rest, **more: digests.append(digest) or reserve(scope, digest, *rest, **more),
    )
    await attempt(shop, "sell_anywhere", "other", id="a")
    for operation in ("sell_anywhere", "sell_here", "sell_again"):
        await leave_behind(shop, operation, digests[0])
    own().runs.clear()

    with pytest.raises(OutcomeUnknown, match="the process that ran it stopped"):
        await shop.site.call(Call("sell_anywhere", {"id": "a"}, key="k"), OPERATOR)
    assert own().runs == []
    assert await attempt(shop, "sell_here", id="a") == "sold a, run 1"
    assert await attempt(shop, "sell_again", id="a") == "sold a, run 2"


async def test_a_running_call_keeps_its_lease(shop: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.operations.calls.LEASE_SECONDS", 0.5)
    monkeypatch.setattr("portico.operations.calls.RENEW_SECONDS", 0.05)
    running = asyncio.create_task(attempt(shop, "sell_here", id="a", ending="wait"))
    await own().started.wait()
    renewals = 0
    renew = shop.store.idempotency.renew

    async def count(*args: Any) -> bool:
        nonlocal renewals
        renewed = await renew(*args)
        renewals += renewed
        return renewed

    monkeypatch.setattr(shop.store.idempotency, "renew", count)
    while renewals < 12:  # longer than the lease
        await asyncio.sleep(0.01)

    with pytest.raises(KeyInUse, match="still running") as refusal:
        await shop.site.call(Call("sell_here", {"id": "a", "ending": "wait"}, key="k"), OPERATOR)
    assert refusal.value.details["state"] == "running"
    own().gate.set()
    assert await running == "sold a, run 1"


async def test_who_was_taken_over_commits_nothing(shop: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a process hangs for longer than its lease."""
    with monkeypatch.context() as patch:
        patch.setattr("portico.operations.calls.LEASE_SECONDS", -1)
        hanging = asyncio.create_task(attempt(shop, "sell_here", id="a", ending="wait"))
        await own().started.wait()
    second = asyncio.create_task(attempt(shop, "sell_here", id="a", ending="wait"))
    while len(own().runs) < 2:
        await asyncio.sleep(0.01)
    own().gate.set()

    assert [await hanging, await second] == [KeyInUse, "sold a, run 2"]
    assert await written(shop) == (1, 1)
    assert (await shop.store.items.get("orders", "a")).version.startswith("1-")


async def test_an_operation_that_committed_a_part_is_not_run_again(shop: Parts) -> None:
    assert await attempt(shop, "sell_half", id="a") is Conflict
    with pytest.raises(OutcomeUnknown, match="committed a part of its writes"):
        await shop.site.call(Call("sell_half", {"id": "a"}, key="k"), OPERATOR)
    assert await written(shop) == (1, 0)


def fail_once(shop: Parts, monkeypatch: pytest.MonkeyPatch, error: SiteError, *, commits: bool = False) -> None:
    """Let the next commit of writes fail, before or after it is made."""
    commit, errors = shop.store.items.commit, [error]

    async def fail(writes: Any, *args: Any) -> Any:
        if not errors or not writes:
            return await commit(writes, *args)
        if commits:
            await commit(writes, *args)
        raise errors.pop()

    monkeypatch.setattr(shop.store.items, "commit", fail)


@pytest.mark.parametrize("ending", ["repeat", "ignore"])
async def test_writes_are_kept_when_the_store_could_not_commit_them(
    shop: Parts, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    fail_once(shop, monkeypatch, Unavailable("The disk is full"))

    assert await attempt(shop, "sell_patiently", id="a", ending=ending) == "sold"
    assert await written(shop) == (1, 0)
    assert await shop.store.changes.head() == 1


@pytest.mark.parametrize("ending", ["repeat", "ignore", "refuse"])
@pytest.mark.parametrize("commits", [False, True])
async def test_writes_with_an_unknown_outcome_are_neither_repeated_nor_acknowledged(
    shop: Parts, monkeypatch: pytest.MonkeyPatch, ending: str, commits: bool
) -> None:
    fail_once(shop, monkeypatch, OutcomeUnknown("The connection was lost"), commits=commits)

    tries = [await attempt(shop, "sell_patiently", id="a", ending=ending) for _ in range(2)]

    assert tries == [Conflict if ending == "refuse" else OutcomeUnknown, OutcomeUnknown]
    assert own().runs == ["a"]
    assert await written(shop) == (int(commits), 0)


async def test_a_commit_that_is_no_longer_awaited_is_made_once(shop: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = shop.store.items.commit

    async def commit_slowly(*args: Any) -> Any:
        await asyncio.sleep(0.1)
        return await commit(*args)

    monkeypatch.setattr(shop.store.items, "commit", commit_slowly)

    assert await attempt(shop, "sell_hastily", id="a") == "sold"
    assert await shop.store.changes.head() == 1


async def test_commits_and_writes_at_the_same_time_are_each_made_once(shop: Parts) -> None:
    assert await attempt(shop, "sell_side_by_side", id="a") == "sold"
    assert (await written(shop), await shop.store.changes.head()) == ((1, 1), 2)


@pytest.mark.parametrize(("operation", "then"), [("sell_here", "sold a, run 2"), ("sell_anywhere", OutcomeUnknown)])
async def test_after_a_commit_that_failed_only_what_is_undone_is_run_again(
    shop: Parts, monkeypatch: pytest.MonkeyPatch, operation: str, then: Any
) -> None:
    async def fail(*_: Any) -> None:
        raise Unavailable("The disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(shop.store.items, "commit", fail)
        assert await attempt(shop, operation, id="a") is Unavailable

    assert await attempt(shop, operation, id="a") == then


async def test_calls_with_one_key_at_the_same_time_are_done_once(shop: Parts) -> None:
    calls = [attempt(shop, "create_order", input={"n": 1}) for _ in range(10)]
    answers = await asyncio.gather(*calls)

    done = [answer for answer in answers if answer is not KeyInUse]
    assert len({answer["id"] for answer in done}) == 1
    assert await written(shop) == (1, 0)


async def test_built_in_operations_tell_the_version_that_was_committed(shop: Parts) -> None:
    call = Calling(shop.site)
    await call("create_stock", id="a", input={f"n{n}": -1 for n in range(8)})

    updates = await asyncio.gather(*(call("update_stock", id="a", input={f"n{n}": n}) for n in range(8)))

    assert len({update["_version"] for update in updates}) == 8
    newest = max(updates, key=lambda update: int(update["_version"].partition("-")[0]))
    assert await call("get_stock", id="a") == newest
    with pytest.raises(UnknownItem):
        await call("delete_stock", id="b")


# Tasks


@pytest.mark.parametrize("fail", [False, True])
async def test_what_a_task_writes_is_kept_with_what_it_saves(shop: Parts, opened: Open, fail: bool) -> None:
    task = await Calling(shop.site).task("load_all", count=6, fail=fail)
    if not fail:
        await own().started.wait()
        assert await written(shop) == (3, 3)  # of the step under way nothing is seen
        own().gate.set()

    ended = await Calling(shop.site).finished(task.id)

    assert (ended.state, ended.result, ended.attempts) == ("completed", 6, 2 if fail else 1)
    assert own().runs == (["from 0", "from 3"] if fail else ["from 0"])
    assert await written(shop) == (6, 6)
    assert await shop.store.changes.head() == 12  # nothing was written twice


async def test_a_site_that_closes_leaves_no_half_step_behind(shop: Parts, opened: Open) -> None:
    task = await Calling(shop.site).task("load_all", count=6)
    await own().started.wait()
    await shop.site.tasks.close()

    left = await shop.store.tasks.get(task.id)
    assert (left.state, left.saved) == ("pending", 3)
    assert await written(shop) == (3, 3)


async def test_a_key_and_the_task_that_it_stands_for_are_stored_together(
    shop: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = shop.store.tasks.add

    async def lose(*args: Any) -> bool:
        await add(*args)
        raise Unavailable("The answer got lost")

    with monkeypatch.context() as patch:
        patch.setattr(shop.store.tasks, "add", lose)
        with pytest.raises(Unavailable):
            await shop.site.call(Call("load_all", {"count": 1}, key="k"), OPERATOR)

    again = await shop.site.call(Call("load_all", {"count": 1}, key="k"), OPERATOR)
    assert again.repeated
    assert len(await shop.store.tasks.list_recent()) == 1
