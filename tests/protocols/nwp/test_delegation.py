"""A gateway makes tasks of invocations and leaves them to workers; tasks that callers wrote it takes as they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking

from portico.errors import SiteError
from portico.operations.webhooks import WebhookClient
from portico.protocols.nwp.actions import ActionService
from portico.protocols.nwp.errors import code_of
from portico.protocols.nwp.frames import ActionFrame, EncodingTier, TaskFrame, encode
from portico.protocols.nwp.service import NodeResponse, NodeService, NwpRequestContext
from portico.requests import Caller, Task
from portico.server.assembly import Parts

OWN = '''
import asyncio
import secrets
from typing import Any
from portico.errors import Conflict
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def reserve_room(context: Context, room: str, nights: int = 1) -> dict[str, Any]:
    """Reserve a room."""
    return {"room": (await context.get("rooms", room)).id, "nights": nights, "number": secrets.token_hex(8)}

@operation(kind="execute", danger="safe")
async def close_house(context: Context) -> None:
    """Close the house."""
    raise Conflict("There are guests")

@operation(kind="execute", danger="safe", long=True)
async def wait_long(context: Context) -> None:
    """Wait long."""
    await asyncio.sleep(60)

@operation(kind="execute", danger="safe")
async def name_rooms(context: Context, names: list[str]) -> dict[str, Any]:
    """Say the names of rooms."""
    return {"names": names}

@operation(kind="execute", danger="dangerous")
async def burn_down(context: Context) -> None:
    """Burn the house down."""
'''
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ALLOWED = ["ask", "read:*", "execute:*"]


@asynccontextmanager
async def house(inn: Inn, tmp_path: Path) -> AsyncIterator[Parts]:
    (tmp_path / "own.py").write_text(OWN)
    async with inn(operations=["own.py"], anonymous={"scopes": ALLOWED}) as parts:
        yield parts


async def invoked(client: httpx.AsyncClient, action: str, **said: Any) -> tuple[int, dict[str, Any]]:
    answer = await client.post("/nwp/gateway/invoke", json={"action_id": action, **said})
    return answer.status_code, answer.json()


async def sent(client: httpx.AsyncClient, id: str, nodes: Any, *edges: tuple[str, str], **said: Any) -> Any:
    """What a gateway says of a task that a caller wrote."""
    dag = {"nodes": nodes, "edges": [{"from": source, "to": target} for source, target in edges]}
    frame = TaskFrame(task_id=id, dag=dag, **said)
    return await client.post("/nwp/gateway/invoke", content=encode(frame, EncodingTier.MSGPACK))


async def finished(client: httpx.AsyncClient, accepted: dict[str, Any]) -> dict[str, Any]:
    """How a task ended, as its poll_url tells."""
    path = accepted["poll_url"].partition(":17433")[2]
    async with asyncio.timeout(10):
        while True:
            said = (await client.get(f"/nwp{path}")).json()
            if said["status"] not in {"pending", "running"}:
                return said
            await asyncio.sleep(0.02)


@requirement("nwp:gateway:task-frame", "nwp:idempotency:repeated", "nwp:idempotency:scope")
async def test_an_invocation_is_run_as_a_task_and_answered_as_elsewhere(inn: Inn, tmp_path: Path) -> None:
    params = {"room": "attic"}
    async with house(inn, tmp_path) as parts, asking(parts) as client:
        status, first = await invoked(client, "site.reserve_room", params=params, idempotency_key="k")
        _, again = await invoked(
            client, "site.reserve_room", params=params, idempotency_key="k", timeout_ms=9000, request_id=None
        )
        other = await invoked(client, "rooms.get", params={"id": "attic"}, idempotency_key="k")
        _, later = await invoked(client, "site.reserve_room", params=params, **{"async": True})
        ended = await finished(client, later)

    assert (status, first["count"], first["data"][0]["room"]) == (200, 1, "attic")
    assert again["data"] == first["data"]
    assert (other[0], other[1]["data"][0]["name"]) == (200, "The attic")
    assert (ended["status"], ended["result"]["room"]) == ("completed", "attic")
    assert ended["result"]["number"] != first["data"][0]["number"]


@requirement("nwp:idempotency:scope", "nwp:idempotency:repeated")
async def test_a_key_counts_at_every_node_that_has_the_action(inn: Inn, tmp_path: Path) -> None:
    said = {"action_id": "site.reserve_room", "params": {"room": "attic"}}
    async with house(inn, tmp_path) as parts, asking(parts) as client:
        numbers = {
            key: [
                (await client.post(f"/nwp/{node}/invoke", json={**said, "idempotency_key": key})).json()["data"][0][
                    "number"
                ]
                for node in nodes
            ]
            for key, nodes in {
                "a": ["operations", "gateway", "site"],
                "b": ["gateway", "operations", "gateway"],
            }.items()
        }

        long = {"action_id": "site.wait_long", "idempotency_key": "c"}
        failing = {"action_id": "site.close_house", "idempotency_key": "d", "async": True}
        elsewhere = {**said, "params": {"room": "cellar"}, "idempotency_key": "a"}
        await client.post("/nwp/operations/invoke", json={**long, "async": True})
        await finished(client, (await client.post("/nwp/operations/invoke", json=failing)).json())
        refused = [(await client.post("/nwp/gateway/invoke", json=each)).json() for each in (long, elsewhere)]
        failed = await finished(client, (await client.post("/nwp/gateway/invoke", json=failing)).json())

    assert [len(set(each)) for each in numbers.values()] == [1, 1]
    assert numbers["a"] != numbers["b"]
    assert [each["error"] for each in refused] == ["NWP-ACTION-IDEMPOTENCY-CONFLICT"] * 2
    assert failed["status"] == "failed"


@requirement("nwp:gateway:timeouts", "nwp:gateway:mapping", "nwp:gateway:delegation", "nwp:gateway:resubmitted")
async def test_a_task_may_say_how_long_and_how_far_and_map_several_results(inn: Inn, tmp_path: Path) -> None:
    rooms = [{"id": id, "action": "rooms.get", "params": {"id": id}} for id in ("attic", "garden")]
    both = {"id": "both", "action": "site.name_rooms", "input_from": ["attic", "garden"]}
    mapped = [*rooms, {**both, "input_mapping": {"names": ["$.attic.name", "$.garden.name"]}}]
    slow = [{"id": "invoke", "action": "site.wait_long", "timeout_ms": 50, "retry_policy": {"max_retries": 0}}]
    async with house(inn, tmp_path) as parts, asking(parts) as client:
        named = await finished(client, (await sent(client, "t1", mapped)).json())
        step = await finished(client, (await sent(client, "t2", slow)).json())
        whole = await finished(
            client, (await sent(client, "t3", [{**slow[0], "timeout_ms": None}], timeout_ms=50)).json()
        )
        deep = [await sent(client, f"d{depth}", rooms[:1], delegate_depth=depth) for depth in (2, 3)]
        begun = (await sent(client, "t4", [{"id": "invoke", "action": "site.wait_long"}])).json()
        stopped = {"action_id": "system.task.cancel", "params": {"task_id": "t4"}}
        assert (await client.post("/nwp/gateway/invoke", json=stopped)).status_code == 200
        await finished(client, begun)
        again = await sent(client, "t4", [{"id": "invoke", "action": "site.wait_long"}])

    assert named["result"] == {"names": ["The attic", "Garden room"]}
    assert [each["error"]["code"] for each in (step, whole)] == ["NOP-DELEGATE-TIMEOUT", "NOP-TASK-TIMEOUT"]
    assert [each.status_code for each in deep] == [202, 400]
    assert deep[1].json()["error"] == "NOP-DELEGATE-CHAIN-TOO-DEEP"
    assert (again.status_code, again.json()["error"]) == (409, "NOP-TASK-CANCELLED")


@requirement("nwp:gateway:outcome")
async def test_what_fails_at_a_worker_is_told_as_it_failed(inn: Inn, tmp_path: Path) -> None:
    async with house(inn, tmp_path) as parts, asking(parts) as client:
        answers = {
            "conflict": await invoked(client, "site.close_house"),
            "params": await invoked(client, "site.reserve_room", params={"rom": 1}, **{"async": True}),
            "rights": await invoked(client, "site.burn_down"),
            "unknown": await invoked(client, "site.no_such"),
            "late": await invoked(client, "site.wait_long", timeout_ms=50),
        }

    assert {name: (status, said["error"]) for name, (status, said) in answers.items()} == {
        "conflict": (409, "NPS-CLIENT-CONFLICT"),
        "params": (422, "NWP-ACTION-PARAMS-INVALID"),
        "rights": (401, "NWP-AUTH-NID-UNTRUSTED-ISSUER"),
        "unknown": (404, "NWP-ACTION-NOT-FOUND"),
        "late": (504, "NOP-TASK-TIMEOUT"),
    }


@requirement("nwp:gateway:task-frame", "nwp:gateway:trace", "nwp:gateway:outcome")
async def test_whoever_delegates_is_told_of_the_trace_and_a_cancelled_task_is_gone(inn: Inn, tmp_path: Path) -> None:
    given: asyncio.Queue[tuple[TaskFrame, Task]] = asyncio.Queue()
    async with house(inn, tmp_path) as parts:
        caller = Caller(scopes=frozenset(ALLOWED))
        exchange = NodeService(parts.site, parts.config)
        actions = ActionService(exchange, WebhookClient([]), lambda frame, task: given.put_nowait((frame, task)))
        at = NwpRequestContext(caller, exchange.nodes.all["gateway"], "http://inn.example", "r1")
        parent = f"00-{TRACE}-00f067aa0ba902b7-01"
        waiting = asyncio.create_task(actions.invoke(ActionFrame(action_id="site.wait_long"), at, parent))
        async with asyncio.timeout(10):
            frame, task = await given.get()
            cancel = ActionFrame(action_id="system.task.cancel", params={"task_id": task.id})
            cancelled = await actions.invoke(cancel, at)
            with pytest.raises(SiteError) as refusal:
                await waiting

    assert isinstance(cancelled, NodeResponse)
    assert cancelled.frame.data == [{"cancelled": True}]
    assert code_of(refusal.value).http == 410
    context = frame.context or {}
    assert (context["trace_id"], context["trace_flags"]) == (TRACE, 1)
    assert len(context["span_id"]) == 16
    assert context["span_id"] != "00f067aa0ba902b7"
    assert [each["action"] for each in frame.dag["nodes"]] == ["site.wait_long"]


@requirement("nwp:gateway:fields", "nwp:gateway:resubmitted")
async def test_a_task_of_several_steps_is_accepted_run_once_and_its_result_told(inn: Inn, tmp_path: Path) -> None:
    steps = [
        {
            "id": "find",
            "action": "nwp://inn.example/rooms-operations/invoke?action=rooms.get",
            "params": {"id": "attic"},
        },
        {
            "id": "book",
            "action": "site.reserve_room",
            "agent": "urn:nps:agent:inn.example:clerk",
            "input_from": ["find"],
            "input_mapping": {"room": "$.find.id"},
            "timeout_ms": 5000,
            "retry_policy": {"max_retries": 9, "backoff": "linear", "retry_on": ["NPS-SERVER-TIMEOUT", "NO-SUCH"]},
        },
        {"id": "skipped", "action": "site.close_house", "condition": "$.book.nights > 1"},
    ]
    edges = [("book", "skipped")]
    async with house(inn, tmp_path) as parts, asking(parts) as client:
        accepted = await sent(client, "t1", steps[:2], priority="high")
        ended = await finished(client, accepted.json())
        again = await sent(client, "t1", steps[:2], priority="high", context={"trace_id": TRACE})
        by_own_id = (await client.get("/nwp/gateway/actions/status/t1")).json()
        other = await sent(client, "t1", steps[:1])
        skipped = await finished(client, (await sent(client, "t2", steps, *edges)).json())
        bare = {"frame": "0x40", "task_id": "t3", "dag": {"nodes": steps[:1], "edges": []}}
        written = await client.post("/nwp/gateway/invoke", json=bare)
        elsewhere = await client.post("/nwp/operations/invoke", json=bare)

    assert (accepted.status_code, ended["status"], ended["result"]["room"]) == (202, "completed", "attic")
    assert (again.status_code, again.json()["error"]) == (409, "NOP-TASK-ALREADY-COMPLETED")
    assert again.json()["details"]["task_id"] == ended["task_id"]
    assert by_own_id["result"] == ended["result"]
    assert (other.status_code, other.json()["error"]) == (409, "NWP-ACTION-IDEMPOTENCY-CONFLICT")
    assert (skipped["status"], skipped["result"]) == ("completed", None)
    assert (written.status_code, written.json()["status"], elsewhere.status_code) == (202, "pending", 404)


@requirement("nwp:gateway:dag")
@pytest.mark.parametrize("dag", [[], None, "steps", {}, {"nodes": {}}])
@pytest.mark.parametrize("named", [{"frame": "0x40"}, {"frame": 64}, {}])
async def test_what_is_no_dag_is_told_as_that_also_without_a_header(
    inn: Inn, tmp_path: Path, dag: Any, named: dict[str, Any]
) -> None:
    async with house(inn, tmp_path) as parts, asking(parts) as client:
        bare = await client.post("/nwp/gateway/invoke", json={**named, "task_id": "t", "dag": dag})
        payload = msgspec.json.encode({**named, "task_id": "t", "dag": dag})
        framed = await client.post("/nwp/gateway/invoke", content=b"\x40\x04" + len(payload).to_bytes(2) + payload)

    told = [(each.status_code, each.json()["status"], each.json()["error"]) for each in (bare, framed)]
    assert told == [(400, "NPS-CLIENT-BAD-FRAME", "NOP-TASK-DAG-INVALID")] * 2


@requirement("nwp:gateway:dag", "nwp:gateway:delegation")
async def test_a_task_that_cannot_be_run_is_refused_whole(inn: Inn, tmp_path: Path) -> None:
    def node(id: str, action: str = "rooms.list", **said: Any) -> dict[str, Any]:
        return {"id": id, "action": action, **said}

    def nested(levels: int, operation: str = "list_rooms") -> dict[str, Any]:
        inner = nested(levels - 1, operation) if levels else {}
        return {"steps": [{"id": "s", "operation": "run_workflow" if levels else operation, "params": inner}]}

    many = [node(f"n{number}") for number in range(33)]
    deep = [node("a", "site.run_workflow", params=nested(2))]
    hidden = [node("a", "site.run_workflow", params=nested(0, "burn_down"))]
    cases: dict[str, tuple[Any, ...]] = {
        "cycle": ([node("a"), node("b")], ("a", "b"), ("b", "a")),
        "cycle elsewhere": ([node("a", "nwp://other.example/x"), node("b", "no.such")], ("a", "b"), ("b", "a")),
        "no nodes": ([],),
        "no such step": ([node("a")], ("a", "b")),
        "unreadable": ([{"id": 1}],),
        "too many": (many,),
        "too deep": (deep,),
        "elsewhere": ([node("a", "nwp://other.example/rooms-operations/invoke?action=rooms.list")],),
        "unknown": ([node("a", "rooms.paint")],),
        "rights": ([node("a"), node("b", "site.burn_down")],),
        "hidden": (hidden,),
    }
    async with house(inn, tmp_path) as parts, asking(parts) as client:
        answers = {name: await sent(client, name, *case) for name, case in cases.items()}

    assert {name: (each.status_code, each.json()["error"]) for name, each in answers.items()} == {
        "cycle": (400, "NOP-TASK-DAG-CYCLE"),
        "cycle elsewhere": (400, "NOP-TASK-DAG-CYCLE"),
        "no nodes": (400, "NOP-TASK-DAG-INVALID"),
        "no such step": (400, "NOP-TASK-DAG-INVALID"),
        "unreadable": (400, "NOP-TASK-DAG-INVALID"),
        "too many": (400, "NOP-TASK-DAG-TOO-LARGE"),
        "too deep": (400, "NOP-DELEGATE-CHAIN-TOO-DEEP"),
        "elsewhere": (404, "NWP-ACTION-NOT-FOUND"),
        "unknown": (404, "NWP-ACTION-NOT-FOUND"),
        "rights": (401, "NWP-AUTH-NID-UNTRUSTED-ISSUER"),
        "hidden": (401, "NWP-AUTH-NID-UNTRUSTED-ISSUER"),
    }
