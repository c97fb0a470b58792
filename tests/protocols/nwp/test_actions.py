"""Actions and tasks over HTTP: what an agent invokes, what it is told at once and later, and what nobody else sees."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import key_of
from tests.protocols.nwp.agents import GATES, RESERVED, STARTED, Agent, agent_of, code, held, opened_inn, reached

from portico.protocols.nwp import actions
from portico.protocols.nwp.frames import ActionFrame, CapsFrame, EncodingTier, decode, encode
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

INVALID = (422, "NPS-CLIENT-UNPROCESSABLE", "NWP-ACTION-PARAMS-INVALID")
IN_USE = (409, "NPS-CLIENT-CONFLICT", "NWP-ACTION-IDEMPOTENCY-CONFLICT")
NO_TASK = (404, "NPS-CLIENT-NOT-FOUND", "NWP-TASK-NOT-FOUND")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    """One task at a time, so that the others wait."""
    folder = tmp_path_factory.mktemp("inn")
    async with opened_inn(folder, limits={"concurrent_tasks": 1, "anonymous_per_minute": 60_000}) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(parts: Parts) -> AsyncIterator[Agent]:
    async with agent_of(parts) as agent:
        yield agent


def name() -> str:
    return str(uuid4())


# At once


@requirement("nwp:action:sync", "nwp:action:request-id")
async def test_an_action_is_answered_with_its_result_under_the_schema_that_the_manifest_names(agent: Agent) -> None:
    id = name()

    answer = await agent.invoke("site.reserve_room", {"room": "attic", "nights": 2}, frame="0x11", request_id=id)

    spec = (await agent.get("operations/.nwm")).json()["actions"]["site.reserve_room"]
    assert answer.status_code == 200
    assert answer.json() == {
        "frame": "0x04",
        "anchor_ref": spec["result_anchor"],
        "count": 1,
        "data": [{"room": "attic", "nights": 2, "number": len(RESERVED)}],
        "token_est": 10,
        "request_id": id,
    }
    assert answer.headers["x-nwp-request-id"] == id
    assert answer.headers["x-nwp-schema"] == spec["result_anchor"]


@requirement("nwp:action:id-forms")
async def test_the_name_of_an_action_may_come_twice_and_have_more_than_one_dot(agent: Agent) -> None:
    body = {
        "action_id": "rooms.get",
        "action": "rooms.get",
        "async": False,
        "timeout_ms": 5000,
        "params": {"id": "attic"},
    }
    framed = encode(ActionFrame(action_id="system.task.status", params={"task_id": name()}), EncodingTier.MSGPACK)

    known = await agent.post("rooms-operations/invoke", body)
    unknown = await agent.post("rooms-operations/invoke", framed, content_type="application/x-nps-frame")

    assert known.status_code == 200, known.text
    assert known.json()["count"] == 1
    assert code(unknown) == NO_TASK


@requirement("nwp:action:sync")
async def test_a_framed_request_has_a_framed_answer_that_its_client_recognises(agent: Agent) -> None:
    frame = encode(ActionFrame(action_id="site.reserve_room", params={"room": "cellar"}), EncodingTier.MSGPACK)

    answer = await agent.post("operations/invoke", frame, accept="application/x-nps-frame")

    read = decode(answer.content)
    assert isinstance(read, CapsFrame)
    assert "application/x-nps-frame" in answer.headers["content-type"]
    assert read.data[0]["room"] == "cellar"


@requirement("nwp:action:params")
@pytest.mark.parametrize("params", [{}, {"room": 5}, {"room": "attic", "nights": 0}, {"room": "attic", "beds": 1}, []])
async def test_params_that_do_not_fit_their_schema_are_refused_and_nothing_is_done(agent: Agent, params: Any) -> None:
    before = len(RESERVED)

    answer = await agent.post("operations/invoke", {"action_id": "site.reserve_room", "params": params})

    assert code(answer) == INVALID
    assert len(RESERVED) == before


@requirement("nwp:action:refused", "nwp:callback:https", "nwp:callback:private", "nwp:security:outbound")
@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"priority": "urgent"}, "priority"),
        ({"callback_url": "http://agent.example/told"}, "callback_url"),
        ({"callback_url": "ftp://agent.example/told"}, "callback_url"),
        ({"callback_url": "https://10.0.0.5/told"}, "callback_url"),
        ({"callback_url": "https://192.168.1.1/told"}, "callback_url"),
        ({"callback_url": "https://169.254.169.254/latest"}, "callback_url"),
        ({"callback_url": "https://127.0.0.1:8443/told"}, "callback_url"),
        ({"callback_url": "https://[::1]/told"}, "callback_url"),
        ({"callback_url": "https://[fd00::1]/told"}, "callback_url"),
        ({"callback_url": "https://2130706433/told"}, "callback_url"),
        ({"callback_url": "https://user:secret@agent.example/told"}, "callback_url"),
        ({"callback_url": "https://"}, "callback_url"),
    ],
)
async def test_what_an_action_cannot_be_given_is_refused_before_anything_runs(
    agent: Agent, said: dict[str, Any], param: str
) -> None:
    door = name()

    answer = await agent.invoke("site.paint_house", {"door": door}, **{"async": True, **said})

    assert code(answer) == INVALID
    assert answer.json()["details"]["param"] == param
    assert door not in STARTED


@requirement("nwp:action:refused")
async def test_what_is_answered_at_once_has_no_task(agent: Agent) -> None:
    answer = await agent.invoke("rooms.list", node="rooms-operations", **{"async": True})

    assert code(answer) == INVALID
    assert (await agent.get("rooms-operations/.nwm")).json()["actions"]["rooms.list"]["async"] is False


@requirement("nwp:action:timeout")
async def test_an_action_ends_when_its_time_is_over(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    late = (504, "NPS-SERVER-TIMEOUT", "NPS-SERVER-TIMEOUT")
    spec = (await agent.get("operations/.nwm")).json()["actions"]["site.wait_for_rain"]
    assert (spec["timeout_ms_default"], spec["timeout_ms_max"]) == (50, 300_000)

    by_default = await agent.invoke("site.wait_for_rain")
    as_said = await agent.invoke("site.wait_for_rain", timeout_ms=20)
    monkeypatch.setattr(actions, "MAX_TIMEOUT", 0.03)
    at_most = await agent.invoke("site.wait_for_rain", timeout_ms=4_000_000_000)

    answers = (by_default, as_said, at_most)
    assert [code(each) for each in answers] == [late] * 3
    shown = ["within 0.05 seconds", "within 0.02 seconds", "within 0.03 seconds"]
    assert all(seconds in each.json()["message"] for seconds, each in zip(shown, answers, strict=True))


@pytest.mark.parametrize("action", ["site.fly_away", "fly", "rooms.list", "", "système.é", "x" * 5000])
async def test_an_action_that_the_node_does_not_have_is_unknown(agent: Agent, action: str) -> None:
    assert code(await agent.invoke(action)) == (404, "NPS-CLIENT-NOT-FOUND", "NWP-ACTION-NOT-FOUND")


@requirement("nwp:headers:request-id-wins")
@pytest.mark.parametrize("action", ["site.reserve_room", "system.task.status"])
async def test_the_id_of_a_request_is_that_of_its_header(agent: Agent, action: str) -> None:
    door, header, body = name(), name(), name()
    async with held(door):
        task = await agent.start(door)
        params = {"room": "attic"} if action == "site.reserve_room" else {"task_id": task}
        frame = {"action_id": action, "params": params, "request_id": body}

        both = await agent.post("operations/invoke", frame, x_nwp_request_id=header)
        one = await agent.post("operations/invoke", frame)
        odd = await agent.post("operations/invoke", {**frame, "request_id": "mine\r\nx-evil: 1"})

    for answer, id in ((both, header), (one, body)):
        assert (answer.headers["x-nwp-request-id"], answer.json()["request_id"]) == (id, id)
    assert (odd.json()["request_id"], odd.headers["x-nwp-request-id"]) == ("mine\r\nx-evil: 1", "mine%0D%0Ax-evil: 1")
    assert "x-evil" not in odd.headers


# Later


@requirement("nwp:action:async", "nwp:action:async-http", "nwp:action:request-id", "nwp:errors:status-ok")
async def test_an_async_action_is_acknowledged_with_a_task_in_bare_json(agent: Agent) -> None:
    door, id = name(), name()
    frame = ActionFrame(action_id="site.paint_house", params={"door": door}, is_async=True, request_id=id)
    async with held(door):
        bare = await agent.invoke("site.paint_house", {"door": door}, request_id=id, **{"async": True})
        framed = await agent.post("operations/invoke", encode(frame, EncodingTier.MSGPACK))

    for answer in (bare, framed):
        said = answer.json()
        task = said["task_id"]
        told = {
            "task_id": task,
            "status": "pending",
            "poll_url": f"nwp://inn.example:17433/operations/actions/status/{task}",
            "estimated_ms": 3000,
            "request_id": id,
        }
        assert answer.status_code == 202
        assert UUID(task).version == 4
        assert said == {"frame": "0x04", "anchor_ref": "nps:system:task:status", "count": 1, "data": [told], **told}
        assert (await agent.ended(task))["status"] == "completed"


@requirement("nwp:task:states", "nwp:task:status", "nwp:task:outcome", "nwp:http:task-status", "nwp:action:request-id")
async def test_a_task_goes_from_pending_over_running_to_completed(agent: Agent) -> None:
    first, door, id = name(), name(), name()
    async with held(first, door):
        before = await agent.start(first)
        await reached(first)
        task = await agent.start(door, request_id=id)
        pending = await agent.status(task)
        GATES[first].open.set()
        await reached(door)
        running = await agent.status(task)
        GATES[door].open.set()
        completed = await agent.ended(task)

    assert (pending["status"], pending["progress"], pending["result"], pending["error"]) == ("pending", 0.0, None, None)
    assert (running["status"], running["progress"], running["result"], running["error"]) == ("running", 0.5, None, None)
    created, updated = completed["created_at"], completed["updated_at"]
    assert completed == {
        "task_id": task,
        "status": "completed",
        "progress": 1.0,
        "created_at": created,
        "updated_at": updated,
        "request_id": id,
        "result": {"coats": 1},
        "error": None,
    }
    assert (created[-1], updated[-1]) == ("Z", "Z")
    assert datetime.fromisoformat(created) <= datetime.fromisoformat(updated) <= datetime.now(UTC)
    polled = await agent.get(f"operations/actions/status/{task}")
    assert (polled.status_code, polled.json()) == (200, completed)
    assert (await agent.ended(before))["status"] == "completed"


@requirement("nwp:task:states", "nwp:task:outcome")
async def test_a_task_that_fails_says_why_and_has_no_result(agent: Agent) -> None:
    answer = await agent.invoke("site.close_house", **{"async": True})

    failed = await agent.ended(answer.json()["task_id"])

    assert (failed["status"], failed["result"]) == ("failed", None)
    assert failed["error"]["code"] == "NPS-CLIENT-CONFLICT"
    assert "There are guests" in failed["error"]["message"]


@requirement("nwp:task:cancel", "nwp:task:states")
async def test_a_running_task_is_cancelled_and_so_is_one_that_waits(agent: Agent) -> None:
    doors = name(), name()
    async with held(*doors):
        running = await agent.start(doors[0])
        await reached(doors[0])
        waiting = await agent.start(doors[1])

        answers = [await agent.invoke("system.task.cancel", {"task_id": each}) for each in (waiting, running)]

    assert [each.json()["data"] for each in answers] == [[{"cancelled": True}]] * 2
    assert [(await agent.ended(each))["status"] for each in (waiting, running)] == ["cancelled", "cancelled"]
    assert doors[1] not in STARTED


@requirement("nwp:task:cancel")
async def test_what_has_ended_cannot_be_cancelled(agent: Agent) -> None:
    doors = name(), name()
    async with held(*doors):
        cancelled = await agent.start(doors[0])
        await agent.invoke("system.task.cancel", {"task_id": cancelled})
        completed = await agent.start(doors[1])
        GATES[doors[1]].open.set()
        failed = (await agent.invoke("site.close_house", **{"async": True})).json()["task_id"]
    ended = {task: (await agent.ended(task))["status"] for task in (cancelled, completed, failed)}

    refused = [code(await agent.invoke("system.task.cancel", {"task_id": each})) for each in ended]

    names = ("ALREADY-CANCELLED", "ALREADY-COMPLETED", "ALREADY-FAILED")
    assert refused == [(409, "NPS-CLIENT-CONFLICT", f"NWP-TASK-{each}") for each in names]
    assert {task: (await agent.status(task))["status"] for task in ended} == ended


async def test_a_task_that_would_not_be_stopped_is_not_called_cancelled(agent: Agent) -> None:
    door = name()
    async with held(door):
        answer = await agent.invoke("site.lock_house", {"door": door}, **{"async": True})
        await reached(door)

        refused = await agent.invoke("system.task.cancel", {"task_id": answer.json()["task_id"]})

    assert code(refused) == (409, "NPS-CLIENT-CONFLICT", "NWP-TASK-ALREADY-COMPLETED")
    assert (await agent.status(answer.json()["task_id"]))["result"] == {"locked": True}


@requirement("nwp:task:owner")
async def test_a_task_of_somebody_else_looks_like_one_that_never_was(agent: Agent, parts: Parts) -> None:
    door, never = name(), name()
    token = await key_of(parts, "*:*")
    async with held(door), agent_of(parts, authorization=f"Bearer {token}") as other:
        task = await agent.start(door)
        await reached(door)
        for action in ("system.task.status", "system.task.cancel"):
            foreign, unknown = [await other.invoke(action, {"task_id": each}) for each in (task, never)]
            assert code(foreign) == code(unknown) == NO_TASK
            assert _without_ids(foreign.text, task) == _without_ids(unknown.text, never)
        foreign, unknown = [await other.get(f"operations/actions/status/{each}") for each in (task, never)]
        assert code(foreign) == code(unknown) == NO_TASK
        assert _without_ids(foreign.text, task) == _without_ids(unknown.text, never)
        assert (await agent.status(task))["status"] == "running"


def _without_ids(text: str, task: str) -> str:
    return text.replace(task, "").partition('"request_id"')[0]


@requirement("nwp:task:status")
@pytest.mark.parametrize("params", [{}, {"task_id": 5}, {"task_id": ""}, {"id": "x"}])
async def test_who_asks_for_a_task_has_to_name_it(agent: Agent, params: dict[str, Any]) -> None:
    assert code(await agent.invoke("system.task.status", params)) == INVALID


@pytest.mark.parametrize("task", ["none", "x" * 4000, "é", "a\u0000b", "../../../etc/passwd"])
async def test_a_task_that_never_was_is_not_found(agent: Agent, task: str) -> None:
    assert code(await agent.invoke("system.task.status", {"task_id": task})) == NO_TASK


@requirement("nwp:action:priority")
async def test_what_is_more_urgent_begins_sooner(agent: Agent) -> None:
    first, low, normal, high = doors = [name() for _ in range(4)]
    async with held(*doors):
        tasks = [await agent.start(first)]
        await reached(first)
        for door, priority in ((low, "low"), (normal, None), (high, "high")):
            tasks.append(await agent.start(door, priority=priority))
        for door in doors:
            GATES[door].open.set()
        for task in tasks:
            await agent.ended(task)

    assert STARTED[-4:] == [first, high, normal, low]


# Again


@requirement("nwp:idempotency:repeated", "nwp:action:request-id")
async def test_a_key_that_was_used_gives_the_same_result_under_the_new_id_and_nothing_runs_again(agent: Agent) -> None:
    key, ids = name(), (name(), name())

    first, second = [
        await agent.invoke("site.reserve_room", {"room": "garden"}, idempotency_key=key, request_id=id) for id in ids
    ]

    wanted = ActionFrame(action_id="site.reserve_room", params={"room": "garden"}, idempotency_key=key, is_async=True)
    later = await agent.post("operations/invoke", encode(wanted, EncodingTier.MSGPACK))

    assert second.json() == {**first.json(), "request_id": ids[1]}
    assert later.json()["data"] == first.json()["data"]  # as JSON: who asks for a task reads nothing else
    assert RESERVED.count("garden") == 1


@requirement("nwp:clients:nps-lib-invoke")
async def test_a_task_is_not_bounded_by_the_timeout_that_clients_send_with_everything(agent: Agent) -> None:
    door = name()
    async with held(door):
        task = await agent.start(door, timeout_ms=20)
        await asyncio.sleep(0.2)
        GATES[door].open.set()
        ended = await agent.ended(task)

    assert ended["status"] == "completed"


@requirement("nwp:idempotency:repeated")
async def test_a_task_that_has_ended_is_given_again_for_its_key(agent: Agent) -> None:
    door, key, id = name(), name(), name()
    async with held(door):
        task = await agent.start(door, idempotency_key=key)
        GATES[door].open.set()
        await agent.ended(task)

        again = await agent.invoke(
            "site.paint_house", {"door": door}, idempotency_key=key, request_id=id, **{"async": True}
        )
        at_once = await agent.invoke("site.paint_house", {"door": door}, idempotency_key=key)

    said = again.json()
    assert (again.status_code, said["task_id"], said["status"], said["request_id"]) == (202, task, "completed", id)
    assert said["data"][0]["result"] == {"coats": 1}
    assert at_once.json()["data"] == [{"coats": 1}]
    assert STARTED.count(door) == 1


async def test_a_key_that_is_in_use_is_refused(agent: Agent) -> None:
    doors = name(), name()
    async with held(*doors):
        await agent.start(doors[0], idempotency_key=doors[0])
        async with asyncio.TaskGroup() as group:
            params = {"door": doors[1]}
            waiting = group.create_task(agent.invoke("site.paint_house", params, idempotency_key=doors[1]))
            await reached(doors[1])

            later = await agent.invoke(
                "site.paint_house", {"door": doors[0]}, idempotency_key=doors[0], **{"async": True}
            )
            at_once = await agent.invoke("site.paint_house", params, idempotency_key=doors[1])
            GATES[doors[1]].open.set()

    assert [code(later), code(at_once)] == [IN_USE, IN_USE]
    assert waiting.result().json()["data"] == [{"coats": 1}]
    assert STARTED.count(doors[1]) == 1


@requirement("nwp:idempotency:repeated")
async def test_of_many_requests_with_one_key_at_once_one_runs(agent: Agent) -> None:
    key, before = name(), len(RESERVED)

    answers = await asyncio.gather(
        *(agent.invoke("site.reserve_room", {"room": "attic"}, idempotency_key=key) for _ in range(10))
    )

    done = [each.json()["data"] for each in answers if each.status_code == 200]
    assert done == [[{"room": "attic", "nights": 1, "number": before + 1}]] * len(done)
    assert len(done) >= 1
    assert {code(each) for each in answers if each.status_code != 200} <= {IN_USE}
    assert len(RESERVED) == before + 1


@pytest.mark.parametrize("key", ["k" * 256, "a\u0000b", 5])
async def test_what_can_be_no_key_is_refused(agent: Agent, key: Any) -> None:
    before = len(RESERVED)

    assert code(await agent.invoke("site.reserve_room", {"room": "attic"}, idempotency_key=key)) == INVALID
    assert len(RESERVED) == before


@requirement("nwp:idempotency:other-params", "nwp:idempotency:scope")
async def test_a_key_is_of_one_agent_one_action_and_one_set_of_params(agent: Agent, parts: Parts) -> None:
    key, params = name(), {"room": "attic"}
    await agent.invoke("site.reserve_room", params, idempotency_key=key)
    before = len(RESERVED)

    other_params = await agent.invoke("site.reserve_room", {"room": "attic", "nights": 3}, idempotency_key=key)
    other_action = await agent.invoke("rooms.get", {"id": "attic"}, "rooms-operations", idempotency_key=key)
    token = await key_of(parts, "*:*")
    async with agent_of(parts, authorization=f"Bearer {token}") as other:
        other_agent = await other.invoke("site.reserve_room", params, idempotency_key=key)

    assert code(other_params) == IN_USE
    assert other_action.status_code == 200
    assert other_agent.json()["data"][0]["number"] == before + 1
