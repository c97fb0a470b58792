"""Workflows: steps in order and side by side, what they hand on, and how a run fails, ends and is taken up again."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.conftest import StoreUrl
from tests.site.conftest import OPERATOR, closed_in_time, config, key_holder

from portico.errors import (
    Forbidden,
    InvalidWorkflow,
    OperationFailed,
    RateLimited,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnknownOperation,
)
from portico.operations.workflows import Retries
from portico.requests import Call, Caller, Outcome, Task
from portico.server.assembly import Parts, open_site
from portico.store import open_store

pytestmark = pytest.mark.asyncio(loop_scope="module")

KITCHEN = '''
import asyncio
from portico.errors import OperationFailed, Unavailable
from portico.operations import Context, operation

seen = []
begun = asyncio.Event()
gate = asyncio.Event()
tables = {people: asyncio.Barrier(people) for people in (2, 8, 9)}

@operation(kind="read")
async def larder(context: Context) -> dict:
    seen.append("larder")
    return {"items": [{"id": "flour", "grams": 500}, {"id": "salt", "grams": 5}], "open": True}

@operation(danger="safe")
async def add(context: Context, a: int, b: int = 1) -> int:
    seen.append(["add", a, b])
    return a + b

@operation(danger="safe")
async def meet(context: Context, dish: str, people: int = 2) -> str:
    """Ends when so many have come."""
    async with tables[people]:
        return dish

@operation(danger="safe")
async def stir(context: Context, fails: int) -> int:
    """Fails some times."""
    seen.append("stir")
    if len(seen) <= fails:
        raise Unavailable("Not yet", spoon="wooden")
    return len(seen)

@operation(danger="safe")
async def burn(context: Context) -> str:
    seen.append("burn")
    raise OperationFailed("Burnt", dish="soup")

@operation(danger="safe")
async def wait(context: Context) -> str:
    begun.set()
    try:
        await gate.wait()
    except asyncio.CancelledError:
        seen.append("stopped")
        raise Unavailable("The oven went out on the way")
    return "waited"

@operation(danger="safe")
async def fill(context: Context, size: int) -> str:
    return "x" * size
'''


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kitchen(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with opened(tmp_path_factory.mktemp("kitchen"), "sqlite:///:memory:") as parts:
        yield parts


def opened(folder: Path, url: str, **limits: int) -> AbstractAsyncContextManager[Parts]:
    (folder / "kitchen.py").write_text(KITCHEN)
    said = {"operations": ["kitchen.py"], "limits": {"payload_bytes": 50_000, **limits}}
    return closed_in_time(open_site(config(folder, url, **said)))


def inside() -> Any:
    """What the operations of the open site see and share."""
    return sys.modules["portico_site_kitchen"]


@pytest.fixture
def seen(kitchen: Parts) -> list[Any]:
    inside().seen.clear()
    inside().begun.clear()
    return inside().seen


def step(id: str, operation: str, *sources: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "operation": operation, "input_from": list(sources), "retries": {"first": 0}, **more}


async def run(parts: Parts, *steps: dict[str, Any], caller: Caller = OPERATOR, **more: Any) -> Any:
    outcome = await parts.site.call(Call("run_workflow", {"steps": steps, **more}, run="now"), caller)
    assert isinstance(outcome, Outcome)
    return outcome.result


async def begin(parts: Parts, *steps: dict[str, Any]) -> Task:
    task = await parts.site.call(Call("run_workflow", {"steps": steps}), OPERATOR)
    assert isinstance(task, Task)
    return task


def completed(result: Any) -> dict[str, Any]:
    return {"state": "completed", "result": result}


SKIPPED = {"state": "skipped", "result": None}


async def test_steps_run_in_order_and_hand_on_what_they_gave(kitchen: Parts, seen: list[Any]) -> None:
    ran = await run(
        kitchen,
        step("sum", "add", "look", input_mapping={"a": "$.look.items[0].grams", "b": "$.input['more']"}),
        step("look", "larder"),
        step("once_more", "add", params={"a": 0}, input_mapping={"a": "$.sum"}),
        edges=[{"from": "sum", "to": "once_more"}],
        input={"more": 20},
    )

    assert seen == ["larder", ["add", 500, 20], ["add", 520, 1]]
    assert ran["result"] == 521
    assert {id: each["state"] for id, each in ran["steps"].items()} == dict.fromkeys(ran["steps"], "completed")


async def test_steps_that_do_not_wait_for_each_other_run_together(kitchen: Parts) -> None:
    ran = await run(
        kitchen,
        step("start", "larder"),
        step("soup", "meet", "start", params={"dish": "soup"}),
        step("cake", "meet", "start", params={"dish": "cake"}),
        step("table", "add", "soup", "cake", params={"a": 1}),
        step("song", "add", "start", params={"a": 2}),
    )

    assert (ran["steps"]["soup"], ran["steps"]["cake"]) == (completed("soup"), completed("cake"))
    assert ran["result"] == {"table": 2, "song": 3}


@pytest.mark.parametrize(("people", "met"), [(8, True), (9, False)])
async def test_eight_steps_at_most_run_at_once(kitchen: Parts, people: int, met: bool) -> None:
    steps = [step(f"s{n}", "meet", params={"dish": "pie", "people": people}) for n in range(people)]
    meeting = run(kitchen, *steps, timeout=60 if met else 0.3)

    if met:
        assert (await meeting)["result"] == {f"s{n}": "pie" for n in range(people)}
    else:
        with pytest.raises(TimedOut):
            await meeting


async def test_a_long_workflow_becomes_a_task_that_tells_how_far_it_is(kitchen: Parts, seen: list[Any]) -> None:
    task = await begin(kitchen, step("first", "larder"), step("second", "add", "first", params={"a": 1}))
    ended = await kitchen.site.tasks.wait(task.id, OPERATOR, 60)

    assert (ended.state, ended.message, ended.result["result"]) == ("completed", "2 of 2 steps are done", 2)


async def test_a_step_whose_condition_fails_is_skipped_with_those_that_live_of_it(
    kitchen: Parts, seen: list[Any]
) -> None:
    ran = await run(
        kitchen,
        step("look", "larder"),
        step("bake", "add", "look", params={"a": 1}, condition="$.look.items[0].grams > 1000"),
        step("ice", "add", "bake", params={"a": 2}),
        step("bread", "add", "look", params={"a": 3}, condition="size(look.items) == 2 && look.open"),
        step("serve", "add", "ice", "bread", input_mapping={"a": "$.bread", "b": "$.ice"}),
        step("left", "add", "ice", params={"a": 4}),
    )

    assert seen == ["larder", ["add", 3, 1], ["add", 4, 1]]
    assert [id for id, each in ran["steps"].items() if each == SKIPPED] == ["bake", "ice", "left"]
    assert ran["result"] == {"serve": 5, "left": None}


async def test_a_step_is_tried_again_after_errors_that_pass(kitchen: Parts, seen: list[Any]) -> None:
    ran = await run(kitchen, step("stir", "stir", params={"fails": 2}))

    assert (ran["result"], seen) == (3, ["stir"] * 3)


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [("fixed", [2, 2, 2, 2]), ("linear", [2, 4, 6, 8]), ("exponential", [2, 4, 8, 10])],
)
async def test_the_pauses_between_tries_grow_as_said(backoff: Any, pauses: list[float]) -> None:
    retries = Retries(backoff=backoff, first=2, most=10)

    assert [retries.pause(attempt) for attempt in range(4)] == pauses


@pytest.mark.parametrize(("retries", "times"), [({"max": 1}, 2), ({"retry_on": ["OperationFailed"]}, 1)])
async def test_a_step_is_tried_only_as_often_and_after_what_it_says(
    kitchen: Parts, seen: list[Any], retries: dict[str, Any], times: int
) -> None:
    with pytest.raises(Unavailable) as failure:
        await run(kitchen, step("pot", "stir", params={"fails": 9}, retries={"first": 0, **retries}))

    assert failure.value.details == {"spoon": "wooden", "step": "pot"}
    assert seen == ["stir"] * times


async def test_a_step_that_fails_ends_the_workflow_and_stops_the_rest(kitchen: Parts, seen: list[Any]) -> None:
    task = await begin(
        kitchen,
        step("waiting", "wait"),
        step("burn", "burn", "look"),
        step("look", "larder"),
        step("never", "add", "burn", params={"a": 1}),
    )
    ended = await kitchen.site.tasks.wait(task.id, OPERATOR, 60)

    assert ended.state == "failed"
    assert ended.error is not None
    assert (ended.error["error"], ended.error["details"]) == ("OperationFailed", {"dish": "soup", "step": "burn"})
    assert seen == ["larder", "burn", "stopped"]


async def test_a_workflow_ends_when_its_time_is_up_whatever_its_steps_say_to_that(kitchen: Parts) -> None:
    with pytest.raises(TimedOut) as failure:
        await run(kitchen, step("waiting", "wait"), timeout=0.1)

    assert failure.value.message == "The workflow did not finish within 0.1 seconds"


async def test_a_step_that_takes_too_long_fails_with_its_name(kitchen: Parts) -> None:
    with pytest.raises(TimedOut) as failure:
        await run(kitchen, step("slow", "meet", params={"dish": "stew"}, timeout=0.02, retries={"max": 0}))

    assert failure.value.details == {"operation": "meet", "step": "slow"}


def nested(levels: int, innermost: dict[str, Any]) -> dict[str, Any]:
    if levels == 1:
        return innermost
    return step(f"level_{levels}", "run_workflow", params={"steps": [nested(levels - 1, innermost)]})


async def test_a_workflow_may_be_a_step_of_another(kitchen: Parts, seen: list[Any]) -> None:
    inner = step("add", "add", input_mapping={"a": "$.input.grams"})
    ran = await run(
        kitchen,
        step("look", "larder"),
        step("sub", "run_workflow", "look", params={"steps": [inner]}, input_mapping={"input": "$.look.items[1]"}),
    )

    assert ran["result"] == {"steps": {"add": completed(6)}, "result": 6}


async def test_what_fails_within_is_tried_again_there_and_from_without(kitchen: Parts, seen: list[Any]) -> None:
    pot = step("pot", "stir", params={"fails": 3}, retries={"max": 1, "first": 0})
    ran = await run(kitchen, nested(3, pot))

    assert ran["result"]["result"]["result"] == 4


async def test_an_error_names_the_way_to_the_innermost_step(kitchen: Parts, seen: list[Any]) -> None:
    with pytest.raises(OperationFailed) as failure:
        await run(kitchen, nested(3, step("fire", "burn")))

    assert failure.value.details == {"dish": "soup", "step": "level_3:level_2:fire"}


CHAIN = [step("one", "larder", "two"), step("two", "larder", "three"), step("three", "larder", "one")]
UNFIT: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "a circle": ("cycle", CHAIN),
    "itself": ("cycle", [step("one", "larder", "one")]),
    "nothing": ("invalid", []),
    "the same twice": ("invalid", [step("one", "larder"), step("one", "larder")]),
    "an unknown step": ("invalid", [step("one", "larder", "two")]),
    "a wrong id": ("invalid", [step("a:b", "larder")]),
    "the input": ("invalid", [step("input", "larder")]),
    "a task": ("invalid", [step("one", "get_task", params={"id": "x"})]),
    "an unknown error": ("invalid", [step("one", "larder", retries={"retry_on": ["Exception"]})]),
    "a wrong workflow": ("invalid", [step("one", "run_workflow", params={"steps": 1})]),
    "many steps": ("too-large", [step(f"s{n}", "larder") for n in range(33)]),
    "many edges": ("too-large", [step("a", "larder"), step("b", "larder", *["a"] * 1025)]),
    "four levels": ("too-deep", [nested(4, step("one", "larder"))]),
    "no path": ("mapping", [step("one", "add", input_mapping={"a": "input.x"})]),
    "too many paths": ("mapping", [step("one", "add", input_mapping={"a": ["$.input.x"] * 65})]),
    "a later step": ("mapping", [step("one", "add", input_mapping={"a": "$.two"}), step("two", "larder", "one")]),
    "mapped steps": (
        "mapping",
        [step("one", "run_workflow", params={"steps": []}, input_mapping={"steps": "$.input"})],
    ),
    "no condition": ("condition", [step("one", "larder", condition="1 +")]),
    "a long condition": ("condition", [step("one", "larder", condition="true || " * 100 + "true")]),
    "a condition of others": ("condition", [step("one", "larder", condition="has(two)"), step("two", "larder")]),
}


@pytest.mark.parametrize("what", UNFIT)
async def test_what_does_not_fit_together_is_refused_before_a_task_begins(
    kitchen: Parts, seen: list[Any], what: str
) -> None:
    reason, steps = UNFIT[what]

    with pytest.raises(InvalidWorkflow) as refusal:
        await begin(kitchen, *steps)

    assert (refusal.value.details["reason"], seen) == (reason, [])


async def test_a_refusal_names_the_step(kitchen: Parts) -> None:
    with pytest.raises(InvalidWorkflow) as refusal:
        await begin(kitchen, step("one", "larder"), step("two", "larder", condition="1 +"))

    assert refusal.value.details == {"reason": "condition", "position": 1, "step": "two"}


MISSED = {"mapping": {"input_mapping": {"a": "$.look.total"}}, "condition": {"condition": "look.total > 1"}}


@pytest.mark.parametrize("reason", MISSED)
async def test_results_that_lack_what_a_step_needs_are_an_error_of_that_step(kitchen: Parts, reason: str) -> None:
    with pytest.raises(InvalidWorkflow) as refusal:
        await run(kitchen, step("look", "larder"), step("next", "add", "look", params={"a": 1}, **MISSED[reason]))

    assert (refusal.value.details["reason"], refusal.value.details["step"]) == (reason, "next")


async def test_results_are_carried_only_up_to_a_size(kitchen: Parts) -> None:
    with pytest.raises(OperationFailed) as failure:
        await run(kitchen, *(step(f"s{n}", "fill", params={"size": 20_000}) for n in range(3)))

    assert failure.value.details["limit"] == 50_000


@pytest.mark.parametrize("levels", [1, 2])
async def test_nothing_runs_if_one_operation_is_not_there_or_not_allowed(
    kitchen: Parts, seen: list[Any], levels: int
) -> None:
    reader = await key_holder(kitchen, "read:*")
    first, add = step("look", "larder"), nested(levels, step("sum", "add", params={"a": 1}))

    with pytest.raises(UnknownOperation):
        await run(kitchen, first, nested(levels, step("next", "lardre")))
    with pytest.raises(Forbidden):
        await run(kitchen, first, add, caller=reader)
    with pytest.raises(Unauthenticated):
        await run(kitchen, add, caller=Caller())

    assert seen == []


async def test_every_step_costs_what_a_call_costs(tmp_path: Path) -> None:
    steps = [step("one", "larder"), step("two", "larder", "one"), step("three", "larder", "two", retries={"max": 0})]
    async with opened(tmp_path, "sqlite:///:memory:", keys_per_minute=3) as parts:
        reader = await key_holder(parts, "read:*")
        with pytest.raises(RateLimited) as failure:
            await run(parts, *steps, caller=reader)

    assert failure.value.details["step"] == "three"


async def test_a_finished_step_is_not_repeated_after_a_restart(tmp_path: Path, store_url: StoreUrl) -> None:
    url = store_url("sqlite")
    inner = [step("sum", "add", params={"a": 1}), step("rest", "wait", "sum")]
    async with opened(tmp_path, url) as first, asyncio.timeout(60):
        task = await begin(first, step("look", "larder"), step("sub", "run_workflow", "look", params={"steps": inner}))
        await inside().begun.wait()
        assert inside().seen == ["larder", ["add", 1, 1]]
    async with opened(tmp_path, url) as second:
        inside().gate.set()
        ended = await second.site.tasks.wait(task.id, OPERATOR, 60)
        assert inside().seen == []

    assert (ended.state, ended.attempts) == ("completed", 2)
    assert ended.result["result"] == {"steps": {"sum": completed(2), "rest": completed("waited")}, "result": "waited"}


async def test_a_step_that_was_running_when_a_process_died_is_not_done_twice(
    tmp_path: Path, store_url: StoreUrl
) -> None:
    url = store_url("sqlite")
    async with opened(tmp_path, url) as first, asyncio.timeout(60):
        task = await begin(first, step("rest", "wait"))
        await inside().begun.wait()
    # Closing gives the key of the step back; a process that dies does not.
    store = await open_store(url)
    held = await store.tasks.get(task.id)
    assert held is not None
    scope = f"{OPERATOR.rate_key}\nwait\n{held.saved['run']}:rest"
    await store.idempotency.reserve(scope, "", datetime.now(UTC) + timedelta(hours=1))
    await store.close()
    async with opened(tmp_path, url) as second:
        ended = await second.site.tasks.wait(task.id, OPERATOR, 60)
        assert not inside().begun.is_set()

    assert ended.error is not None
    assert (ended.error["error"], ended.error["details"]["step"]) == ("Interrupted", "rest")
