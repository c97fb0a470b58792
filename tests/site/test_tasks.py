"""Long work: started, watched, cancelled, tried again, taken up again; and idempotency keys."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.site.conftest import OPERATOR, Calling, Open, key_holder

from portico.calls import Call, Outcome
from portico.catalog import Danger
from portico.errors import KeyInUse, OperationFailed, RateLimited, TaskFinished, TimedOut, UnknownTask
from portico.server import Parts

OWN = '''
import asyncio
from portico.errors import Unavailable
from portico.operations import Context, operation

started = asyncio.Event()
gate = asyncio.Event()
seen = []

@operation(kind="execute", danger="safe", long=True, estimate=5.0)
async def wait(context: Context, word: str = "done") -> str:
    """Waits until it is let go."""
    try:
        await context.progress(0.5, "Half way")
        started.set()
        await gate.wait()
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    return word

@operation(kind="execute", danger="safe", long=True, attempts=3)
async def flaky(context: Context, fails: int) -> int:
    """Fails some times."""
    seen.append("try")
    if len(seen) <= fails:
        raise Unavailable("Not yet")
    return len(seen)

@operation(kind="execute", danger="safe", long=True)
async def backwards(context: Context) -> str:
    for share in (0.7, 0.2, 5, -1):
        await context.progress(share, str(share))
    return "ok"

@operation(kind="execute", danger="safe", long=True, attempts=2)
async def resume(context: Context) -> list:
    """Goes on from what it saved."""
    if context.saved is None:
        await context.progress(0.3, "Saved", save=["first"])
        started.set()
        await gate.wait()
    return [*context.saved, "second"]

@operation(kind="execute", danger="safe")
async def quick(context: Context, fail: bool = False) -> str:
    seen.append("quick")
    if fail and len(seen) == 1:
        raise RuntimeError("first time")
    started.set()
    if context.caller.name == "operator":
        await asyncio.sleep(0)
    return f"quick {len(seen)}"

@operation(kind="execute", danger="safe")
async def held(context: Context) -> str:
    started.set()
    await gate.wait()
    return "held"
'''


@pytest.fixture
async def inn(opened: Open) -> AsyncIterator[Parts]:
    async with opened(OWN, limits={"tasks_per_caller": 3}) as parts:
        yield parts


@pytest.fixture
def call(inn: Parts) -> Calling:
    return Calling(inn.site)


def module(_: Parts) -> Any:
    """What the operations of the open site see and share."""
    return sys.modules["portico_site_own"]


async def test_long_work_becomes_a_task_and_its_result_is_kept(inn: Parts, call: Calling) -> None:
    started = await inn.site.call(Call("wait", {"word": "hello"}), OPERATOR)
    assert (started.state, started.progress, started.estimate) == ("pending", 0.0, 5.0)

    await module(inn).started.wait()
    halfway = await inn.site.tasks.get(started.id, OPERATOR)
    module(inn).gate.set()
    ended = await call.finished(started.id)

    assert (halfway.state, halfway.progress, halfway.message) == ("running", 0.5, "Half way")
    assert (ended.state, ended.progress, ended.result, ended.error) == ("completed", 1.0, "hello", None)


async def test_a_caller_may_insist_on_waiting_or_on_a_task(inn: Parts, call: Calling) -> None:
    module(inn).gate.set()
    now = await inn.site.call(Call("wait", run="now"), OPERATOR)
    later = await call.task("quick")

    assert now == Outcome("wait", "done")
    assert (await call.finished(later.id)).result == "quick 1"


async def test_waiting_has_an_end(inn: Parts) -> None:
    with pytest.raises(TimedOut):
        await inn.site.call(Call("wait", run="now", timeout=0.05), OPERATOR)


async def test_a_cancellation_reaches_the_running_coroutine(inn: Parts, call: Calling) -> None:
    task = await call.task("wait")
    await module(inn).started.wait()

    cancelled = await call("cancel_task", id=task.id)

    assert cancelled["state"] == "cancelled"
    assert module(inn).seen == ["cancelled"]
    with pytest.raises(TaskFinished):
        await call("cancel_task", id=task.id)


async def test_work_is_tried_as_often_as_declared(inn: Parts, call: Calling) -> None:
    ended = await call.finished((await call.task("flaky", fails=2)).id)

    assert (ended.state, ended.result, ended.attempts) == ("completed", 3, 3)


async def test_work_that_keeps_failing_fails_with_its_reason(inn: Parts, call: Calling) -> None:
    ended = await call.finished((await call.task("flaky", fails=9)).id)

    assert (ended.state, ended.result, ended.attempts) == ("failed", None, 3)
    assert (ended.error["error"], ended.error["message"]) == ("Unavailable", "Not yet")
    assert module(inn).seen == ["try"] * 3


async def test_progress_never_falls_and_stays_within_bounds(inn: Parts, call: Calling) -> None:
    ended = await call.finished((await call.task("backwards")).id)

    assert (ended.state, ended.progress) == ("completed", 1.0)


async def test_work_goes_on_from_what_it_saved_after_a_restart(opened: Open) -> None:
    async with opened(OWN) as first:
        task = await Calling(first.site).task("resume")
        await asyncio.wait_for(module(first).started.wait(), 10)
    async with opened(OWN) as second:
        ended = await Calling(second.site).finished(task.id)

    assert (ended.state, ended.result, ended.attempts) == ("completed", ["first", "second"], 2)


@pytest.mark.timeout(25)
async def test_work_that_was_pending_when_the_site_closed_is_not_counted_as_tried(opened: Open) -> None:
    """One try is declared; closing before it began must not use it up."""
    async with opened(OWN) as first:
        task = await Calling(first.site).task("quick")
    async with opened(OWN) as second:
        ended = await Calling(second.site).finished(task.id)

    assert (ended.state, ended.result) == ("completed", "quick 1")


async def test_only_its_caller_sees_a_task(inn: Parts, call: Calling) -> None:
    task = await call.task("wait")
    other = await key_holder(inn, "*:*", danger=Danger.DANGEROUS)

    for name in ("get_task", "cancel_task"):
        with pytest.raises(UnknownTask):
            await inn.site.call(Call(name, {"id": task.id}), other)
        with pytest.raises(UnknownTask):
            await inn.site.call(Call(name, {"id": task.id}), inn.site.identity.nobody())
    assert (await call("get_task", id=task.id))["operation"] == "wait"


async def test_a_caller_has_so_many_tasks_under_way_and_no_more(inn: Parts, call: Calling) -> None:
    for _ in range(3):
        await call.task("wait")

    with pytest.raises(RateLimited, match="3 tasks are already under way"):
        await call.task("wait")
    module(inn).gate.set()
    other = Calling(inn.site, await key_holder(inn, "*:*"))
    assert (await other.finished((await other.task("wait")).id)).state == "completed"


async def test_one_anonymous_visitor_does_not_use_up_the_tasks_of_all(opened: Open) -> None:
    anonymous = {"scopes": ["execute:*"], "danger": "safe"}
    async with opened(OWN, limits={"tasks_per_caller": 2}, anonymous=anonymous) as parts:
        greedy, other = (Calling(parts.site, parts.site.identity.nobody(at)) for at in ("1.1.1.1", "2.2.2.2"))
        for _ in range(2):
            await greedy.task("wait")

        with pytest.raises(RateLimited):
            await greedy.task("wait")
        assert (await other.task("wait")).state == "pending"


async def test_work_whose_caller_has_lost_the_right_is_not_done(opened: Open) -> None:
    async with opened(OWN) as first:
        task = await Calling(first.site).task("resume")
        await module(first).started.wait()
    forbidden = OWN.replace('danger="safe", long=True, attempts=2', 'danger="forbidden", long=True, attempts=2')
    async with opened(forbidden) as second:
        ended = await Calling(second.site).finished(task.id)

    assert (ended.state, ended.error["error"]) == ("failed", "Forbidden")


@pytest.mark.timeout(15)
async def test_closing_a_site_with_much_going_on_ends(opened: Open) -> None:
    """Writes, tasks and followers at the moment of closing must not keep it open."""
    for _ in range(15):
        async with opened(OWN) as parts:
            await parts.store.declare(parts.config.collection("rooms"))
            call = Calling(parts.site)
            await call.task("quick")
            await call("create_room", input={"beds": 1})


# Idempotency keys


async def test_a_key_with_other_parameters_is_refused(inn: Parts) -> None:
    await inn.site.call(Call("quick", key="k"), OPERATOR)

    with pytest.raises(KeyInUse, match="other parameters"):
        await inn.site.call(Call("quick", {"fail": True}, key="k"), OPERATOR)


async def test_a_key_whose_call_is_running_is_refused(inn: Parts) -> None:
    running = asyncio.create_task(inn.site.call(Call("held", key="k"), OPERATOR))
    await module(inn).started.wait()

    with pytest.raises(KeyInUse, match="still running"):
        await inn.site.call(Call("held", key="k"), OPERATOR)
    module(inn).gate.set()
    assert (await running).result == "held"
    assert await inn.site.call(Call("held", key="k"), OPERATOR) == Outcome("held", "held", repeated=True)


async def test_a_failure_releases_its_key(inn: Parts) -> None:
    call = Call("quick", {"fail": True}, key="k")
    with pytest.raises(OperationFailed):
        await inn.site.call(call, OPERATOR)

    assert await inn.site.call(call, OPERATOR) == Outcome("quick", "quick 2")


async def test_a_cancelled_call_releases_its_key(inn: Parts) -> None:
    running = asyncio.create_task(inn.site.call(Call("held", key="k"), OPERATOR))
    await module(inn).started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    module(inn).gate.set()

    assert (await inn.site.call(Call("held", key="k"), OPERATOR)).repeated is False


async def test_a_key_of_a_task_stands_for_the_task(inn: Parts) -> None:
    first = await inn.site.call(Call("wait", key="k"), OPERATOR)
    second = await inn.site.call(Call("wait", key="k"), OPERATOR)

    assert first.id == second.id


async def test_keys_belong_to_their_caller_and_their_operation(inn: Parts) -> None:
    other = await key_holder(inn, "*:*")
    results = [
        await inn.site.call(Call("quick", key="k"), OPERATOR),
        await inn.site.call(Call("quick", key="k"), other),
    ]
    module(inn).gate.set()
    results.append(await inn.site.call(Call("held", key="k"), OPERATOR))

    assert [each.repeated for each in results] == [False, False, False]
