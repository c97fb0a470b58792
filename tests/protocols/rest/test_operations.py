"""Operations over plain HTTP, as any HTTP client sees them."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect
from tests.edges import behind_edge
from tests.site.conftest import config, furnish

from portico import errors
from portico.access.identity import make_key
from portico.catalog import Danger
from portico.errors import SiteError
from portico.protocols.problems import problem, status_of
from portico.protocols.rest.operations import edge_policy, routes
from portico.server.assembly import Parts, open_site

OWN = '''
import asyncio
from typing import Annotated
from msgspec import Meta
from portico.operations import Context, operation

@operation(danger="safe")
async def greet(context: Context, name: Annotated[str, Meta(min_length=1)], times: int = 1) -> str:
    """Say hello.

    More than once, if you like.
    """
    return " ".join([f"Hello, {name}."] * times)

@operation(danger="safe", long=True)
async def dream(context: Context) -> str:
    """Sleep until somebody wakes you."""
    await asyncio.sleep(3600)
    return "Morning already?"

@operation(danger="safe")
async def fall(context: Context) -> str:
    """Never ends well."""
    return 1 / 0
'''
ANYBODY = {"scopes": ["read:*", "execute:*"], "danger": "safe"}


@dataclass
class Inn:
    parts: Parts
    http: httpx.AsyncClient

    async def call(self, name: str, params: Any = None, **headers: str) -> httpx.Response:
        named = {each.replace("_", "-"): value for each, value in headers.items()}
        return await self.http.post(f"/operations/{name}", json=params or {}, headers=named)

    async def key(self, *scopes: str, danger: Danger = Danger.REVERSIBLE) -> str:
        token, key = make_key("somebody", scopes, danger, 1)
        await self.parts.store.keys.add(key)
        return f"Bearer {token}"


@asynccontextmanager
async def opened(folder: Path, **said: Any) -> AsyncIterator[Inn]:
    (folder / "own.py").write_text(OWN)
    settings = {"operations": ["own.py"], "anonymous": ANYBODY, **said}
    async with open_site(config(folder, f"sqlite:///{folder / 'inn.db'}", **settings)) as parts:
        await furnish(parts)
        transport = httpx.ASGITransport(behind_edge(parts.site, routes(parts.site), edge_policy(parts.config)))
        async with httpx.AsyncClient(transport=transport, base_url="http://inn.example") as http:
            yield Inn(parts, http)


@pytest.fixture
async def inn(tmp_path: Path) -> AsyncIterator[Inn]:
    async with opened(tmp_path) as inn:
        yield inn


# Calling


async def test_a_call_gives_the_result(inn: Inn) -> None:
    answer = await inn.call("greet", {"name": "Ann", "times": 2})

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {"operation": "greet", "result": "Hello, Ann. Hello, Ann."}


async def test_a_call_without_parameters_needs_no_body(inn: Inn) -> None:
    answer = await inn.http.post("/operations/count_rooms", headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["result"]) == (200, {"count": 3})


async def test_a_repeated_call_with_the_same_key_is_done_once(inn: Inn) -> None:
    bearer = await inn.key("create:rooms", "read:rooms")
    room = {"input": {"name": "Loft"}}

    first = await inn.call("create_room", room, idempotency_key="k1", authorization=bearer)
    again = await inn.call("create_room", room, idempotency_key="k1", authorization=bearer)
    other = await inn.call("create_room", {"input": {"name": "Shed"}}, idempotency_key="k1", authorization=bearer)

    assert first.json() == again.json()
    assert first.json()["result"]["name"] == "Loft"
    assert (other.status_code, other.json()["title"]) == (409, "Key in use")
    assert (await inn.call("count_rooms")).json()["result"] == {"count": 4}


async def test_what_is_there_is_listed_with_its_schema(inn: Inn) -> None:
    answer = await inn.http.get("/operations")

    assert answer.status_code == 200
    listed = {each["name"]: each for each in answer.json()["operations"]}
    assert list(listed) == sorted(inn.parts.site.catalog.operations)
    greet = listed["greet"]
    schema = greet.pop("params")
    assert greet == {
        "name": "greet",
        "kind": "execute",
        "danger": "safe",
        "description": "Say hello.\n\nMore than once, if you like.",
    }
    assert schema["$defs"]["greet_params"]["properties"]["name"] == {"type": "string", "minLength": 1}
    assert (listed["delete_room"]["kind"], listed["delete_room"]["danger"]) == ("delete", "destructive")


# Tasks


async def test_long_work_becomes_a_task_that_can_be_looked_at_and_stopped(inn: Inn) -> None:
    bearer = await inn.key("execute:dream")
    started = await inn.call("dream", authorization=bearer)

    assert started.status_code == 202
    task = started.json()["task"]
    assert (task["operation"], started.headers["location"]) == ("dream", f"/tasks/{task['id']}")

    mine, path = {"authorization": bearer}, started.headers["location"]
    seen = await inn.http.get(path, headers=mine)
    assert (seen.status_code, seen.json()["task"]["state"] in {"pending", "running"}) == (200, True)

    stopped = await inn.http.delete(path, headers=mine)
    assert (stopped.status_code, stopped.json()["task"]["state"]) == (200, "cancelled")

    again = await inn.http.delete(path, headers=mine)
    assert (again.status_code, again.json()["title"]) == (409, "Task finished")


async def test_a_task_is_nobody_elses(inn: Inn) -> None:
    mine = await inn.key("execute:dream")
    path = (await inn.call("dream", authorization=mine)).headers["location"]
    somebody = {"authorization": await inn.key("execute:dream")}

    for answer in (await inn.http.get(path, headers=somebody), await inn.http.delete(path, headers=somebody)):
        assert (answer.status_code, answer.json()["title"]) == (404, "Unknown task")


@pytest.mark.parametrize("prefer", ["respond-async", "wait=10, Respond-Async; please"])
async def test_whoever_prefers_not_to_wait_gets_a_task(inn: Inn, prefer: str) -> None:
    bearer = await inn.key("execute:greet")
    started = await inn.call("greet", {"name": "Ann"}, prefer=prefer, authorization=bearer)
    assert started.status_code == 202

    task = started.json()["task"]
    caller = (await inn.parts.store.tasks.get(task["id"])).caller
    async with asyncio.timeout(60):
        await inn.parts.site.tasks.wait(task["id"], caller, 20)
    done = await inn.http.get(started.headers["location"], headers={"authorization": bearer})

    assert (done.json()["task"]["state"], done.json()["task"]["result"]) == ("completed", "Hello, Ann.")


# Errors


async def test_an_error_is_a_problem_with_a_hint_and_details(inn: Inn) -> None:
    answer = await inn.call("greet", {"nme": "Ann"})

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:portico:error:InvalidParams",
        "title": "Invalid params",
        "status": 422,
        "detail": "greet has no parameter 'nme'",
        "hint": "Allowed: name, times.",
        "details": {"operation": "greet", "unknown": ["nme"], "valid": ["name", "times"]},
    }


async def test_whoever_may_not_is_asked_for_a_key(inn: Inn) -> None:
    answer = await inn.call("create_room", {"input": {}})
    wrong = await inn.call("greet", {"name": "Ann"}, authorization="Bearer pk_wrong")

    for each in (answer, wrong):
        assert (each.status_code, each.headers["www-authenticate"]) == (401, "Bearer")
        assert each.json()["title"] == "Unauthenticated"


async def test_whoever_has_a_key_that_does_not_suffice_is_refused(inn: Inn) -> None:
    answer = await inn.call("create_room", {"input": {}}, authorization=await inn.key("read:rooms"))

    assert (answer.status_code, answer.json()["title"]) == (403, "Forbidden")
    assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize("path", ["/operations", "/tasks/any", "/operations/greet"])
async def test_whoever_asks_too_often_is_told_when_to_come_back(tmp_path: Path, path: str) -> None:
    async with opened(tmp_path, limits={"anonymous_per_minute": 1}) as inn:
        method = "POST" if path.endswith("greet") else "GET"
        await inn.http.request(method, path, json={"name": "Ann"})

        answer = await inn.http.request(method, path, json={"name": "Ann"})

    assert (answer.status_code, answer.json()["title"]) == (429, "Rate limited")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert int(answer.headers["retry-after"]) >= answer.json()["details"]["retry_after"]


@pytest.mark.parametrize(
    ("raw", "status", "says"),
    [
        (b"{", 400, "is not JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'"greet"', 400, "must be a JSON object"),
        (b'{"name": "\xff"}', 400, "is not UTF-8"),
        (b'{"name": ' + b"[" * 50 + b"]" * 50 + b"}", 400, "nested too deeply"),
        (b'{"name": "' + b"x" * 600 + b'"}', 413, "more than 500 bytes"),
        (b"{}", 422, "greet needs 'name'"),
    ],
)
async def test_a_body_that_cannot_be_used_is_refused(tmp_path: Path, raw: bytes, status: int, says: str) -> None:
    async with opened(tmp_path, limits={"payload_bytes": 500}) as inn:
        headers = {"content-type": "application/json"}
        answer = await inn.http.post("/operations/greet", content=raw, headers=headers)

    assert answer.status_code == status
    assert says in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_what_a_page_elsewhere_can_send_unasked_is_refused(inn: Inn, kind: str) -> None:
    answer = await inn.http.post("/operations/greet", content=b'{"name": "Ann"}', headers={"content-type": kind})

    assert (answer.status_code, answer.json()["detail"]) == (400, "Parameters must be JSON")


async def test_unknown_names_and_broken_operations_say_so_and_no_more(inn: Inn) -> None:
    unknown = await inn.call("fly")
    broken = await inn.call("fall")

    assert (unknown.status_code, unknown.json()["title"]) == (404, "Unknown operation")
    assert (broken.status_code, broken.json()["detail"]) == (500, "fall failed")
    assert "division" not in broken.text


async def test_a_caller_who_leaves_while_sending_starts_nothing(inn: Inn) -> None:
    """Driven as a server drives it: a client cannot leave halfway and still be asked what it got."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/operations/create_room",
        "headers": [
            (b"content-type", b"application/json"),
            (b"authorization", (await inn.key("create:rooms")).encode()),
        ],
        "query_string": b"",
    }
    messages = iter(
        [{"type": "http.request", "body": b'{"input": {}}', "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(_: Any) -> None: ...

    with pytest.raises(ClientDisconnect):
        await behind_edge(inn.parts.site, routes(inn.parts.site))(scope, receive, send)

    assert (await inn.call("count_rooms")).json()["result"] == {"count": 3}


def test_every_error_has_its_status() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SiteError)]
    found: dict[int, set[str]] = {}
    for kind in kinds:
        found.setdefault(status_of(kind("…")), set()).add(kind.__name__)

    assert found == {
        400: {
            *("BadRequest", "InvalidQuery", "UnknownField", "UnsafeRegex", "InvalidAggregate", "InvalidCursor"),
            "BudgetExceeded",
        },
        401: {"Unauthenticated", "CertificateExpired", "CertificateRevoked", "UntrustedIssuer"},
        403: {
            *("Denied", "Forbidden", "CapabilityMissing", "OutOfScope", "DangerDenied", "TrustInsufficient"),
            *("AgentBlocked", "StepNeeded", "ConfirmationNeeded"),
            *("InvalidToken", "TokenExpired", "TokenUsed", "TokenMismatch"),
        },
        404: {"NotFound", "UnknownCollection", "UnknownOperation", "UnknownItem", "UnknownTask"},
        409: {
            *("Conflict", "AlreadyExists", "KeyInUse", "OutcomeUnknown", "TakenOver", "TaskFinished"),
            "TaskCancelled",
        },
        410: {"FeedExpired"},
        412: {"VersionMismatch"},
        413: {"TooLarge", "QueryTooLarge"},
        422: {"InvalidParams", "InvalidWorkflow"},
        429: {"RateLimited"},
        500: {"SiteError", "OperationFailed", "Interrupted", "ConfigError"},
        501: {"Unsupported"},
        502: {"SourceError", "BlockedAddress"},
        503: {"Unavailable", "ShuttingDown"},
        504: {"TimedOut"},
    }


def test_a_problem_tells_details_that_json_does_not_know() -> None:
    body = json.loads(problem(SiteError("Odd", path=Path("a/b"))).body)

    assert body["details"] == {"path": "a/b"}
