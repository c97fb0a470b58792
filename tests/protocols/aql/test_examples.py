"""The specification's own examples, over plain HTTP and over MCP: what it shows is what is answered."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import Guest, owner_key
from tests.protocols.conftest import asking, key_of
from tests.protocols.mcp.conftest import structured, visiting

from portico.protocols import parse_config
from portico.server.assembly import open_site
from portico.store.records import Put

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORK = """
import asyncio

from portico.errors import Unavailable
from portico.operations import Context, operation

gate = asyncio.Event()
tries = []


@operation(kind="create")
async def create_user(context: Context, user_name: str, password: str, email: str) -> str:
    "Add a user."
    return user_name


@operation(kind="execute", danger="safe", long=True)
async def execute_report(context: Context, title: str) -> str:
    "Write a report."
    await context.progress(0.45, "Processing step 5 of 10")
    await gate.wait()
    return title


@operation(kind="execute", danger="safe", long=True, idempotent=True)
async def execute_job(context: Context) -> int:
    "Fails the first time."
    tries.append(1)
    if len(tries) == 1:
        raise Unavailable("Connection timeout while processing")
    return len(tries)
"""
PAPERS = 105
Answer: TypeAlias = dict[str, Any]
Say: TypeAlias = Callable[[dict[str, Any]], Awaitable[Answer]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guest]:
    """Where one piece of work is done at a time."""
    folder = tmp_path_factory.mktemp("office")
    (folder / "office.py").write_text(WORK)
    settings = {
        "folder": str(folder),
        "search": {"embedder": "none:"},
        "store": {"url": "sqlite:///:memory:"},
        "collections": {"documents": {}, "papers": {}},
        "operations": ["office.py"],
        "limits": {"keys_per_minute": 1_000_000, "concurrent_tasks": 1},
    }
    async with open_site(parse_config(settings)) as parts, asking(parts) as client:
        await parts.store.items.write(
            "papers", [Put(f"p{number:03}", {"name": f"{number}"}) for number in range(PAPERS)]
        )
        yield Guest(parts, client, await owner_key(parts))


@asynccontextmanager
async def door(office: Guest, name: str) -> AsyncIterator[Say]:
    if name == "http":
        yield office.say
        return
    async with visiting(office.parts, key=office.key) as client:

        async def say(request: dict[str, Any]) -> Answer:
            return structured(await client.call_tool("mcp_aql", request))

        yield say


@pytest.fixture(params=["http", "mcp"])
def by(request: pytest.FixtureRequest) -> str:
    return request.param


def asked(operation: str, **params: Any) -> dict[str, Any]:
    return {"operation": operation, "params": params}


# Requests and updates


@requirement(
    "aql:update:worked-example",
    "aql:update:replace",
    "aql:update:nested-merge",
    "aql:update:arrays",
    "aql:update:null-removes",
)
async def test_objects_merge_arrays_replace_and_null_removes(office: Guest, by: str) -> None:
    id = f"res_{by}"
    old = {
        "title": "Old Title",
        "metadata": {"priority": "low", "tags": ["draft"], "author": "alice", "deprecated_field": 1},
    }
    new = {"title": "New Title", "metadata": {"priority": "high", "tags": ["published", "reviewed"]}}
    merged = {"priority": "high", "tags": ["published", "reviewed"], "author": "alice"}
    async with door(office, by) as say:
        await say(asked("create_document", id=id, input=old))
        await say(asked("update_document", id=id, input={"metadata": {"deprecated_field": None}}))
        await say(asked("update_document", id=id, input=new))
        state = (await say(asked("get_document", id=id, fields=["title", "metadata"])))["data"]

    assert state == {"id": id, "title": "New Title", "metadata": merged}


@requirement("aql:param:unknown", "aql:param:unknown-details", "aql:envelope:failure")
async def test_unknown_parameters_are_all_named_beside_the_valid_ones(office: Guest, by: str) -> None:
    given = {"user_name": "ann", "password": "x", "email": "ann@inn.example"}
    async with door(office, by) as say:
        said = await say(asked("create_user", **given, force_create=True, admin_override=True))

    assert (said.keys(), said["success"], said["error"]["code"]) == (
        {"success", "error"},
        False,
        "VALIDATION_UNKNOWN_PARAM",
    )
    assert (
        "Unknown parameter(s) for operation 'create_user': 'force_create', 'admin_override'" in said["error"]["message"]
    )
    assert said["error"]["details"] == {
        "operation": "create_user",
        "unknown_params": ["force_create", "admin_override"],
        "valid_params": ["user_name", "password", "email", "confirmation_token"],
    }


@requirement("aql:concurrency:etag", "aql:concurrency:if-match", "aql:concurrency:conflict")
async def test_an_update_is_made_only_to_the_version_that_it_names(office: Guest, by: str) -> None:
    id = f"doc_{by}"
    async with door(office, by) as say:
        tag = (await say(asked("create_document", id=id, input={"title": "My Document"})))["data"]["_etag"]
        update = asked("update_document", id=id, input={"title": "Updated Title"}, if_match=tag)
        first = await say(update)
        late = await say({**update, "params": {**update["params"], "input": {"title": "Too late"}}})
        kept = (await say(asked("get_document", id=id)))["data"]

    assert tag.startswith('W/"')
    assert first["data"]["_etag"] == kept["_etag"] != tag
    assert (late["error"]["code"], kept["title"]) == ("CONFLICT_VERSION_MISMATCH", "Updated Title")


@requirement("aql:concurrency:one-wins")
async def test_of_many_updates_of_one_version_one_is_made(office: Guest) -> None:
    tag = (await office.say(asked("create_document", id="contested", input={"title": "-"})))["data"]["_etag"]
    said = await asyncio.gather(
        *(
            office.say(asked("update_document", id="contested", input={"title": str(number)}, if_match=tag))
            for number in range(10)
        )
    )

    won = [each["data"]["title"] for each in said if each["success"]]
    lost = {each["error"]["code"] for each in said if not each["success"]}
    stored = await office.parts.store.items.get("documents", "contested")
    assert stored is not None
    assert (won, lost) == ([stored.data["title"]], {"CONFLICT_VERSION_MISMATCH"})


@requirement(
    "aql:page:first-after",
    "aql:page:last-before",
    "aql:page:info",
    "aql:page:clamped",
    "aql:page:conflicts",
    "aql:page:cursor-opaque",
    "aql:page:truncated-warning",
)
async def test_pages_are_walked_both_ways_and_are_of_the_documented_sizes(office: Guest) -> None:
    async def page(**params: Any) -> Answer:
        return await office.say(asked("list_papers", fields=[], **params))

    usual, most = (await page())["data"], await page(first=500)
    on = [(await page(first=60))["data"]]
    on.append((await page(first=60, after=on[0]["pageInfo"]["endCursor"]))["data"])
    back = (await page(last=5, before=on[1]["pageInfo"]["startCursor"]))["data"]
    wrong = [
        (await page(**params))["error"]
        for params in ({"first": 1, "last": 1}, {"after": "x"}, {"before": "x"}, {"first": 1, "before": "x"})
    ]
    forged = (await page(first=60, after=on[0]["pageInfo"]["endCursor"][:-3] + "abc"))["error"]

    every = [f"p{number:03}" for number in range(PAPERS)]
    assert (len(usual["items"]), len(most["data"]["items"])) == (20, 100)
    assert most["warnings"][0]["details"]["limit"] == 100
    assert [item["id"] for each in on for item in each["items"]] == every
    assert [item["id"] for item in back["items"]] == every[55:60]
    assert (on[0]["pageInfo"]["hasNextPage"], on[1]["pageInfo"]["hasNextPage"]) == (True, False)
    assert {(error["code"], error["details"]["param_name"]) for error in wrong} == {
        ("VALIDATION_INVALID_TYPE", "pagination")
    }
    assert forged["code"] == "VALIDATION_INVALID_TYPE"


# The lifecycle


async def status(say: Say, execution: Answer) -> Answer:
    return (await say(asked("get_execution_status", execution_id=execution["execution_id"])))["data"]


async def until(say: Say, execution: Answer, wanted: str) -> Answer:
    async with asyncio.timeout(60):
        while (seen := await status(say, execution))["status"] != wanted:
            await asyncio.sleep(0.01)
    return seen


def work() -> Any:
    """What the operations of the office share."""
    return sys.modules["portico_site_office"]


@requirement(
    "aql:lifecycle:states",
    "aql:lifecycle:transitions",
    "aql:lifecycle:answer",
    "aql:lifecycle:progress",
    "aql:lifecycle:cancel-any",
    "aql:encoding:utc",
)
async def test_work_waits_runs_with_progress_and_is_completed_or_cancelled_on_the_way(office: Guest, by: str) -> None:
    work().gate.clear()
    async with door(office, by) as say:
        first = (await say(asked("execute_report", title="first")))["data"]
        second = (await say(asked("execute_report", title="second")))["data"]
        async with asyncio.timeout(60):
            while (running := await status(say, first))["progress"].get("message") is None:
                await asyncio.sleep(0.01)
        pending = await status(say, second)
        dropped = (await say(asked("cancel_execution", execution_id=second["execution_id"])))["data"]
        work().gate.set()
        done = await until(say, first, "completed")
        work().gate.clear()
        third = (await say(asked("execute_report", title="third")))["data"]
        await until(say, third, "running")
        stopped = (await say(asked("cancel_execution", execution_id=third["execution_id"])))["data"]

    assert running == {
        "execution_id": first["execution_id"],
        "status": "running",
        "element_name": "execute_report",
        "started_at": running["started_at"],
        "progress": {"current": 45, "total": 100, "percentage": 45.0, "message": "Processing step 5 of 10"},
    }
    assert pending["status"] == "pending"
    assert (done["status"], done["result"], done["progress"]["percentage"]) == ("completed", "first", 100.0)
    assert [dropped["status"], stopped["status"]] == ["cancelled", "cancelled"]
    for ended in (done, dropped, stopped):
        assert ended["started_at"].endswith("Z")
        assert ended["finished_at"].endswith("Z")
        assert datetime.fromisoformat(ended["finished_at"]).utcoffset() == timedelta()


@requirement(
    "aql:lifecycle:terminal",
    "aql:lifecycle:retry",
    "aql:lifecycle:failed-not-cancelled",
    "aql:lifecycle:error",
    "aql:lifecycle:private",
    "aql:error:not-found",
    "aql:error:state",
)
async def test_what_has_ended_stays_so_but_for_a_retry_where_that_is_declared(office: Guest) -> None:
    work().gate.set()
    work().tries.clear()
    stranger = replace(office, key=await key_of(office.parts, "*:*"))
    job = (await office.say(asked("execute_job")))["data"]
    failed = await until(office.say, job, "failed")
    late = await office.error(asked("cancel_execution", execution_id=job["execution_id"]))
    still = await status(office.say, job)
    hidden = await stranger.error(asked("get_execution_status", execution_id=job["execution_id"]))
    nothing = await stranger.error(asked("get_execution_status", execution_id="nothing"))
    again = (await office.say(asked("retry_execution", execution_id=job["execution_id"])))["data"]
    done = await until(office.say, job, "completed")
    report = (await office.say(asked("execute_report", title="once")))["data"]
    await until(office.say, report, "completed")
    refused = [
        (await office.say(asked(name, execution_id=each["execution_id"])))["success"]
        for name in ("retry_execution", "cancel_execution")
        for each in (report, job)
    ]

    assert failed["error"].keys() <= {"code", "message", "details"}
    assert (failed["error"]["code"], failed["finished_at"].endswith("Z")) == ("INTERNAL_ERROR", True)
    assert (late["message"], still) == ("The task is already failed", failed)
    assert (late["code"], late["details"]) == (
        "CONFLICT_INVALID_STATE",
        {"resource_type": "execution", "resource_id": job["execution_id"], "status": "failed"},
    )
    assert [hidden["code"], nothing["code"]] == ["NOT_FOUND_RESOURCE"] * 2
    assert hidden["message"].replace(job["execution_id"], "nothing") == nothing["message"]
    assert again["status"] in {"pending", "running"}
    assert (done["result"], refused) == (2, [False] * 4)
    assert [(await status(office.say, each))["status"] for each in (report, job)] == ["completed"] * 2
