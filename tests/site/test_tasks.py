"""Long work: started, watched, cancelled, tried again, taken up again; and idempotency keys."""

import asyncio
import inspect
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.site.conftest import OPERATOR, Calling, Open, config, key_holder

from portico.access.identity import Identity
from portico.catalog import Danger
from portico.errors import (
    Conflict,
    InvalidParams,
    KeyInUse,
    RateLimited,
    TaskFinished,
    TimedOut,
    Unavailable,
    UnknownTask,
)
from portico.requests import Call, Outcome, Task
from portico.search.finder import Finder
from portico.server.assembly import Parts, open_site_without_index, site_operations
from portico.site import Site
from portico.store import Store, open_store
from portico.telemetry import TaskStateChanged, TelemetryEvent, UnexpectedError

OWN = '''
import asyncio
from portico.errors import Conflict, Unavailable
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

@operation(kind="execute", danger="safe", long=True, attempts=2)
async def tell(context: Context, fail: bool = False) -> list:
    """Tells what it does, whoever listens."""
    seen.append("begun")
    if context.saved:
        return [*context.saved, "again"]
    started.set()
    await gate.wait()
    await context.progress(0.9, "Nearly", save=["told"])
    seen.append("told")
    if fail:
        raise Unavailable("Not yet")
    return ["done"]

@operation(kind="execute", danger="safe")
async def quick(context: Context, fail: bool = False) -> str:
    seen.append("quick")
    if fail and len(seen) == 1:
        raise Conflict("first time")
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


async def until(look: Callable[[], Any], is_so: Callable[[Any], bool], seconds: float = 60.0) -> Any:
    """Look again and again until it is so, but not for ever."""
    deadline = time.monotonic() + seconds
    while not is_so(seen := await look()):
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.01)
    return seen


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


async def test_whoever_listens_is_told_once_of_every_end_that_is_stored(opened: Open) -> None:
    told: list[tuple[str, str]] = []

    async with opened(OWN, limits={"concurrent_tasks": 1}) as inn:

        def listen(task: Task) -> None:
            told.append((task.id, task.state))

        inn.site.tasks.on_end(listen)
        call = Calling(inn.site)
        running = await call.task("wait")
        await module(inn).started.wait()
        pending = await call.task("wait")
        await asyncio.gather(*(call("cancel_task", id=pending.id) for _ in range(3)), return_exceptions=True)
        assert told == [(pending.id, "cancelled")]

        await call("cancel_task", id=running.id)
        module(inn).gate.set()
        done = await call.finished((await call.task("wait")).id)
        failed = await call.finished((await call.task("flaky", fails=9)).id)
        await until(partial(asyncio.sleep, 0, told), lambda told: len(told) == 4)

        assert told[1:] == [(running.id, "cancelled"), (done.id, "completed"), (failed.id, "failed")]
        assert (await inn.store.tasks.get(failed.id)).state == "failed"


async def test_the_more_urgent_task_runs_first_and_keeps_what_its_caller_said_of_it(opened: Open) -> None:
    async with opened(OWN, limits={"concurrent_tasks": 1}) as inn:
        order: list[str] = []
        inn.site.tasks.on_end(lambda task: order.append(task.call.request))
        call = Calling(inn.site)
        await call.task("wait")
        await module(inn).started.wait()
        tasks = [
            await inn.site.call(
                Call("quick", {}, "later", priority=priority, request=priority, callback="there"), OPERATOR
            )
            for priority in ("low", "normal", "high")
        ]
        module(inn).gate.set()
        ended = [await call.finished(task.id) for task in tasks]

    assert order[1:] == ["high", "normal", "low"]
    assert [(each.call.request, each.call.callback) for each in ended] == [
        ("low", "there"),
        ("normal", "there"),
        ("high", "there"),
    ]


async def test_what_no_task_can_have_is_refused(inn: Parts) -> None:
    wrong: list[dict[str, Any]] = [{"priority": "urgent"}, {"request": "x" * 256}, {"callback": "a\0b"}]
    for said in wrong:
        with pytest.raises(InvalidParams):
            await inn.site.call(Call("quick", {}, "later", **said), OPERATOR)
    assert await inn.store.tasks.list_by_caller(OPERATOR.id) == []


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
            await inn.site.call(Call(name, {"id": task.id}), inn.site.access.anonymous_caller())
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
        greedy, other = (Calling(parts.site, parts.site.access.anonymous_caller(at)) for at in ("1.1.1.1", "2.2.2.2"))
        for _ in range(2):
            await greedy.task("wait")

        with pytest.raises(RateLimited):
            await greedy.task("wait")
        assert (await other.task("wait")).state == "pending"


async def test_the_limit_of_tasks_holds_at_all_replicas_together(tmp_path: Path, url: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    settings = config(tmp_path, url, operations=["own.py"], limits={"tasks_per_caller": 3})
    async with open_site_without_index(settings) as first, open_site_without_index(settings) as second:
        calls = [Calling(first.site), Calling(second.site)]

        started = await asyncio.gather(*(calls[n % 2].task("wait") for n in range(8)), return_exceptions=True)

    assert len([each for each in started if isinstance(each, Task)]) == 3
    assert len([each for each in started if isinstance(each, RateLimited)]) == 5


async def test_a_task_is_run_waited_for_and_cancelled_at_whichever_replica(opened: Open) -> None:
    async with opened(OWN) as running:
        own = module(running)
        async with open_site_without_index(running.config) as other:
            call = Calling(other.site)
            first, second = await call.task("wait"), await call.task("wait")
            await until(lambda: other.store.tasks.get(second.id), lambda task: task.progress == 0.5)

            cancelled = await call("cancel_task", id=first.id)
            own.gate.set()
            ended = await call.finished(second.id)

    assert (cancelled["state"], ended.state, ended.result) == ("cancelled", "completed", "done")


async def test_work_whose_caller_has_lost_the_right_is_not_done(opened: Open) -> None:
    async with opened(OWN) as first:
        task = await Calling(first.site).task("resume")
        await module(first).started.wait()
    forbidden = OWN.replace('danger="safe", long=True, attempts=2', 'danger="forbidden", long=True, attempts=2')
    async with opened(forbidden) as second:
        ended = await Calling(second.site).finished(task.id)

    assert (ended.state, ended.error["error"]) == ("failed", "Forbidden")


@pytest.mark.timeout(60)
async def test_closing_a_site_with_much_going_on_ends(opened: Open) -> None:
    """Writes, tasks and followers at the moment of closing must not keep it open."""
    for _ in range(15):
        async with opened(OWN) as parts:
            await parts.store.collections.declare(parts.config.collection("rooms"))
            call = Calling(parts.site)
            await call.task("quick")
            await call("create_room", input={"beds": 1})


# A store that is away for a while


@dataclass
class Away:
    """A store that can be away, and how often it was asked for what."""

    store: Store
    is_away: bool = False
    loses: str = ""  # what is done once, but not answered
    asked: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, part: str) -> Any:
        found = getattr(self.store, part)
        return found if isinstance(found, bytes | str) else AwayPart(self, part, found)

    def wrap(self, name: str, found: Any) -> Any:
        if not inspect.iscoroutinefunction(found):
            return found

        async def answer(*args: Any, **more: Any) -> Any:
            self.asked[name] += 1
            if self.is_away:
                raise Unavailable("The store is away")
            done = await found(*args, **more)
            if self.loses == name:
                self.loses = ""
                raise Unavailable("The store has gone away")
            return done

        return answer

    async def is_asked_again(self, name: str, times: int = 1) -> None:
        before = self.asked[name]
        await until(partial(asyncio.sleep, 0, self.asked), lambda asked: asked[name] >= before + times)


@dataclass
class AwayPart:
    """One part of a store that can be away."""

    away: Away
    name: str
    part: Any

    def __getattr__(self, name: str) -> Any:
        return self.away.wrap(f"{self.name}.{name}", getattr(self.part, name))


@dataclass
class Shaky:
    """A replica whose store can be away."""

    call: Calling
    store: Away
    own: Any
    observed: list[TelemetryEvent]


Replica = Callable[[], AbstractAsyncContextManager[Shaky]]


@pytest.fixture
def replica(tmp_path: Path, url: str) -> Replica:
    (tmp_path / "own.py").write_text(OWN)
    settings = config(tmp_path, url, operations=["own.py"])

    @asynccontextmanager
    async def opening() -> AsyncIterator[Shaky]:
        store = Away(await open_store(settings.store_url))
        operations = await site_operations(settings, store.store)
        observed: list[TelemetryEvent] = []
        identity = Identity(store.keys.find, frozenset())
        site = Site("inn", Finder(store), identity, operations=operations, record=observed.append)
        site.tasks.open()
        yield Shaky(Calling(site), store, sys.modules["portico_site_own"], observed)
        async with asyncio.timeout(30):
            await site.tasks.close()
        await store.store.close()

    return opening


async def test_the_end_of_a_task_is_stored_when_the_store_is_back(replica: Replica) -> None:
    async with replica() as here:
        task = await here.call.task("tell")
        await here.own.started.wait()
        here.store.is_away = True
        here.own.gate.set()
        await until(partial(asyncio.sleep, 0, here.own.seen), lambda seen: "told" in seen)
        await here.store.is_asked_again("tasks.get", 3)
        meanwhile = await here.store.store.tasks.get(task.id)
        here.store.is_away = False

        ended = await here.call.finished(task.id)

    assert (meanwhile.state, meanwhile.progress) == ("running", 0.0)
    assert (ended.state, ended.result, ended.attempts) == ("completed", ["done"], 1)
    assert here.own.seen == ["begun", "told"]
    assert [each for each in here.observed if isinstance(each, UnexpectedError)]


async def test_an_end_that_is_stored_without_an_answer_is_told_once(replica: Replica) -> None:
    told: list[Task] = []
    async with replica() as here:
        here.call.site.tasks.on_end(told.append)
        here.store.loses = "items.commit"
        task = await here.call.task("quick")
        await until(partial(asyncio.sleep, 0, told), bool)
        ended = await here.call.finished(task.id)

    assert told == [ended]
    assert (ended.state, ended.attempts, here.store.loses) == ("completed", 1, "")


async def test_what_work_saved_while_the_store_was_away_is_there_for_the_next_try(replica: Replica) -> None:
    async with replica() as here:
        task = await here.call.task("tell", fail=True)
        await here.own.started.wait()
        here.store.is_away = True
        here.own.gate.set()
        await until(partial(asyncio.sleep, 0, here.own.seen), lambda seen: "told" in seen)
        await here.store.is_asked_again("tasks.get", 3)
        here.store.is_away = False

        ended = await here.call.finished(task.id)

    assert (ended.state, ended.result, ended.attempts) == ("completed", ["told", "again"], 2)


async def test_a_task_whose_lease_ran_out_goes_on_and_is_not_run_twice(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.operations.tasks.LEASE_SECONDS", -1)
    async with replica() as here:
        task = await here.call.task("tell")
        await here.own.started.wait()
        here.store.is_away = True
        await here.store.is_asked_again("tasks.claim", 2)
        here.store.is_away = False
        await here.store.is_asked_again("tasks.claim", 2)
        here.own.gate.set()

        ended = await here.call.finished(task.id)

    assert (ended.state, ended.result, ended.attempts) == ("completed", ["done"], 1)
    assert here.own.seen == ["begun", "told"]


async def test_a_process_that_closes_while_the_store_is_away_ends_and_its_work_is_taken_over(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.operations.tasks.LEASE_SECONDS", -1)
    async with replica() as first:
        task = await first.call.task("tell")
        await first.own.started.wait()
        first.store.is_away = True
    monkeypatch.undo()
    async with replica() as second:
        second.own.gate.set()
        ended = await second.call.finished(task.id)

    assert (ended.state, ended.result, ended.attempts) == ("completed", ["done"], 2)


async def test_what_became_of_a_task_that_was_taken_over_meanwhile_is_dropped(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.operations.tasks.LEASE_SECONDS", -1)
    async with AsyncExitStack() as staying:
        async with replica() as first:
            task = await first.call.task("tell")
            await first.own.started.wait()
            first.store.is_away = True
            first.own.gate.set()
            await until(partial(asyncio.sleep, 0, first.own.seen), lambda seen: "told" in seen)
            monkeypatch.undo()
            second = await staying.enter_async_context(replica())
            await second.own.started.wait()
            first.store.is_away = False
        still = await second.store.tasks.get(task.id)
        second.own.gate.set()
        ended = await second.call.finished(task.id)

    assert (still.state, still.attempts, still.result) == ("running", 2, None)
    assert (ended.state, ended.attempts) == ("completed", 2)
    assert "completed" not in [each.state for each in first.observed if isinstance(each, TaskStateChanged)]


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


async def test_a_refusal_releases_its_key(inn: Parts) -> None:
    call = Call("quick", {"fail": True}, key="k")
    with pytest.raises(Conflict):
        await inn.site.call(call, OPERATOR)

    assert await inn.site.call(call, OPERATOR) == Outcome("quick", "quick 2")


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


# A store that was away for all


async def test_when_the_store_is_back_a_living_owner_keeps_its_task(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes back first finds a lease that ran out, and leaves its owner time to renew it."""
    async with replica() as owner, AsyncExitStack() as staying:
        task = await owner.call.task("tell")
        await owner.own.started.wait()
        other = await staying.enter_async_context(replica())
        other.store.is_away = True
        with monkeypatch.context() as patch:
            patch.setattr("portico.operations.tasks.LEASE_SECONDS", -1)
            patch.setattr("portico.operations.tasks.RENEW_SECONDS", 0)
            await owner.store.is_asked_again("tasks.renew", 2)
            owner.store.is_away = True
        await other.store.is_asked_again("tasks.claim")

        other.store.is_away = False
        await other.store.is_asked_again("tasks.claim", 2)
        meanwhile = await other.store.store.tasks.get(task.id)
        owner.own.gate.set()
        owner.store.is_away = False
        ended = await other.call.finished(task.id)

    assert (meanwhile.state, meanwhile.attempts) == ("running", 1)
    assert (ended.state, ended.result, ended.attempts) == ("completed", ["done"], 1)
    assert other.own.seen == []
