"""Every code of section 12, each by a request that earns it, with its NPS status and its HTTP status."""

import asyncio
import base64
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import key_of
from tests.protocols.nwp.agents import GATES, Agent, agent_of, code, held, opened_inn, reached, subscribe, subscribed
from tests.protocols.nwp.conftest import serving

from portico.access.nip.authority import SiteAuthority
from portico.protocols.nwp.errors import CODES, STATUSES, WORKFLOW_CODES
from portico.protocols.nwp.frames import ErrorFrame
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAPSULE = "application/nwp-capsule"


@dataclass(frozen=True)
class Inns:
    """An inn that can do everything, one that leaves things out, and what agents of both ask with."""

    whole: Parts
    less: Parts
    agent: Agent  # of the first
    other: Agent  # of the second
    folder: Path

    async def shown(self, days: float = 30, *, is_revoked: bool = False, **said: Any) -> httpx.Response:
        """What an agent gets for a certificate that it has had for twenty days."""
        ago = datetime.now(UTC).timestamp() - 20 * 86400
        authority = SiteAuthority(self.whole.config, self.whole.store, lambda: ago)
        made = await authority.issue(f"agent-{uuid4()}", scopes=("ask", "read:*"), days=days, **said)
        if is_revoked:
            await self.whole.store.keys.revoke(made.key.id, datetime.now(UTC))
        raw = base64.urlsafe_b64encode(json.dumps(made.certificate).encode())
        return await self.agent.post("rooms/query", x_nwp_ident=raw.decode())

    async def cancelled(self, task: str) -> httpx.Response:
        return await self.agent.invoke("system.task.cancel", {"task_id": task})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inns(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inns]:
    folder = tmp_path_factory.mktemp("inn")
    without = ["stream_query", "aggregate", "subscribe_filter"]
    less_nwp = {"without": without, "min_version": "0.3", "subscriptions": 1}
    async with (
        opened_inn(folder, server={"url": "https://inn.example"}) as whole,
        opened_inn(folder, nwp=less_nwp, limits={"keys_per_minute": 1}) as less,
        agent_of(whole) as agent,
        agent_of(less) as other,
    ):
        yield Inns(whole, less, agent, other, folder)


Earn = Callable[[Inns], Awaitable[httpx.Response]]
EARNED: dict[str, tuple[str, int, Earn]] = {}


def earns(name: str, status: str, http: int) -> Callable[[Earn], Earn]:
    """Enter a code into the table, with the request that earns it."""

    def enter(earn: Earn) -> Earn:
        EARNED[name] = (status, http, earn)
        return earn

    return enter


def queried(body: Any, name: str, status: str = "NPS-CLIENT-BAD-PARAM", http: int = 400, **headers: str) -> None:
    """Enter a code that a query of the whole inn earns."""
    EARNED[name] = (status, http, lambda inns: inns.agent.post("site/query", body, **headers))


# Identity


@earns("NWP-AUTH-NID-SCOPE-VIOLATION", "NPS-AUTH-FORBIDDEN", 403)
async def out_of_scope(inns: Inns) -> httpx.Response:
    return await inns.shown(nodes=["nwp://other.example/*"])


@earns("NWP-AUTH-NID-EXPIRED", "NPS-AUTH-UNAUTHENTICATED", 401)
async def expired(inns: Inns) -> httpx.Response:
    return await inns.shown(days=10)


@earns("NWP-AUTH-NID-REVOKED", "NPS-AUTH-UNAUTHENTICATED", 401)
async def revoked(inns: Inns) -> httpx.Response:
    return await inns.shown(is_revoked=True)


@earns("NWP-AUTH-NID-UNTRUSTED-ISSUER", "NPS-AUTH-UNAUTHENTICATED", 401)
async def untrusted(inns: Inns) -> httpx.Response:
    return await inns.agent.post("rooms/query", x_nwp_ident="{}")


@earns("NWP-AUTH-NID-CAPABILITY-MISSING", "NPS-AUTH-FORBIDDEN", 403)
async def incapable(inns: Inns) -> httpx.Response:
    return await inns.shown(capabilities=["nwp:action"])


# Queries

queried({"filter": {"beds": {"$near": 1}}}, "NWP-QUERY-FILTER-INVALID")
queried({"fields": ["stars"]}, "NWP-QUERY-FIELD-UNKNOWN")
queried({"cursor": "bm90aGluZw"}, "NWP-QUERY-CURSOR-INVALID")
queried({"filter": {"name": {"$regex": "(a+)+$"}}}, "NWP-QUERY-REGEX-UNSAFE")
queried({"aggregate": {"operations": [{"func": "MEDIAN", "alias": "m"}]}}, "NWP-QUERY-AGGREGATE-INVALID")
queried({"vector_search": {"vector": [1.0]}}, "NWP-QUERY-VECTOR-UNSUPPORTED", "NPS-SERVER-UNSUPPORTED", 501)
queried({}, "NWP-BUDGET-EXCEEDED", "NPS-LIMIT-BUDGET", 429, x_nwp_budget="1")
queried({}, "NWP-DEPTH-EXCEEDED", x_nwp_depth="6")
queried({}, "NWP-GRAPH-CYCLE", "NPS-CLIENT-UNPROCESSABLE", 422, x_nwp_trace="urn:nps:node:inn.example:site")


@earns("NWP-QUERY-AGGREGATE-UNSUPPORTED", "NPS-SERVER-UNSUPPORTED", 501)
async def aggregated(inns: Inns) -> httpx.Response:
    return await inns.other.post("rooms/query", {"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}]}})


@earns("NWP-QUERY-STREAM-UNSUPPORTED", "NPS-SERVER-UNSUPPORTED", 501)
async def streamed(inns: Inns) -> httpx.Response:
    return await inns.other.post("rooms/query", {"stream": True})


# Actions and tasks


@earns("NWP-ACTION-NOT-FOUND", "NPS-CLIENT-NOT-FOUND", 404)
async def unknown(inns: Inns) -> httpx.Response:
    return await inns.agent.invoke("site.fly_away")


@earns("NWP-ACTION-PARAMS-INVALID", "NPS-CLIENT-UNPROCESSABLE", 422)
async def unfit(inns: Inns) -> httpx.Response:
    return await inns.agent.invoke("site.reserve_room", {"nights": 0})


@earns("NWP-ACTION-IDEMPOTENCY-CONFLICT", "NPS-CLIENT-CONFLICT", 409)
async def in_progress(inns: Inns) -> httpx.Response:
    door = str(uuid4())
    async with held(door):
        await inns.agent.start(door, idempotency_key=door)
        return await inns.agent.invoke("site.paint_house", {"door": door}, idempotency_key=door, **{"async": True})


@earns("NWP-TASK-NOT-FOUND", "NPS-CLIENT-NOT-FOUND", 404)
async def never_started(inns: Inns) -> httpx.Response:
    return await inns.agent.get(f"operations/actions/status/{uuid4()}")


@earns("NWP-TASK-ALREADY-CANCELLED", "NPS-CLIENT-CONFLICT", 409)
async def cancelled_twice(inns: Inns) -> httpx.Response:
    door = str(uuid4())
    async with held(door):
        task = await inns.agent.start(door)
        await reached(door)
        await inns.cancelled(task)
        return await inns.cancelled(task)


@earns("NWP-TASK-ALREADY-COMPLETED", "NPS-CLIENT-CONFLICT", 409)
async def cancelled_too_late(inns: Inns) -> httpx.Response:
    door = str(uuid4())
    GATES[door].open.set()
    task = await inns.agent.start(door)
    await inns.agent.ended(task)
    return await inns.cancelled(task)


@earns("NWP-TASK-ALREADY-FAILED", "NPS-CLIENT-CONFLICT", 409)
async def cancelled_after_failing(inns: Inns) -> httpx.Response:
    task = (await inns.agent.invoke("site.close_house", **{"async": True})).json()["task_id"]
    await inns.agent.ended(task)
    return await inns.cancelled(task)


# Subscriptions


@earns("NWP-SUBSCRIBE-STREAM-NOT-FOUND", "NPS-CLIENT-NOT-FOUND", 404)
async def never_subscribed(inns: Inns) -> httpx.Response:
    return await inns.agent.post("rooms/subscribe", {"action": "unsubscribe", "stream_id": str(uuid4())})


@earns("NWP-SUBSCRIBE-LIMIT-EXCEEDED", "NPS-LIMIT-EXCEEDED", 429)
async def subscribed_too_often(inns: Inns) -> httpx.Response:
    stream = str(uuid4())
    first = asyncio.create_task(inns.other.post("rooms/subscribe", subscribe(stream), accept="text/event-stream"))
    ping, unsubscribe = ({"action": each, "stream_id": stream} for each in ("ping", "unsubscribe"))
    while (await inns.other.post("rooms/subscribe", ping)).status_code == 404:
        await asyncio.sleep(0.01)
    refused = await inns.other.post("rooms/subscribe", subscribe(), accept=CAPSULE)
    await inns.other.post("rooms/subscribe", unsubscribe)
    await first
    return refused


@earns("NWP-SUBSCRIBE-FILTER-UNSUPPORTED", "NPS-SERVER-UNSUPPORTED", 501)
async def subscribed_to_some(inns: Inns) -> httpx.Response:
    return await inns.other.post("rooms/subscribe", subscribe(filter={"beds": {"$gt": 1}}), accept=CAPSULE)


@earns("NWP-SUBSCRIBE-SEQ-TOO-OLD", "NPS-CLIENT-CONFLICT", 409)
async def resumed_too_late(inns: Inns) -> httpx.Response:
    return await inns.agent.post("rooms/subscribe", subscribe(resume_from_seq=5), accept=CAPSULE)


@earns("NWP-SUBSCRIBE-INTERRUPTED", "NPS-SERVER-UNAVAILABLE", 503)
async def interrupted(inns: Inns) -> httpx.Response:
    """The status of HTTP went out before; the frame that ends the stream is told as an answer here."""
    async with opened_inn(inns.folder) as parts:
        running = serving(parts)
        ports = await running.__aenter__()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports.http}", timeout=30) as client:
            async with subscribed(Agent(client), subscribe()) as listener:
                await listener.frame()
                stopping = asyncio.create_task(running.__aexit__(None, None, None))
                (last,) = await listener.rest()
            await stopping
    assert isinstance(last, ErrorFrame)
    told = {"status": last.status, "error": last.error, "message": last.message, "details": last.details}
    return httpx.Response(STATUSES[last.status], json=told, headers={"content-type": "application/nwp-error+json"})


# The node


@earns("NWP-NODE-UNAVAILABLE", "NPS-SERVER-UNAVAILABLE", 503)
async def damaged(inns: Inns) -> httpx.Response:
    file = inns.folder / "damaged.db"
    async with opened_inn(inns.folder, f"sqlite:///{file}") as parts, agent_of(parts) as agent:
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.write_bytes(b"x" * file.stat().st_size)
        return await agent.post("rooms/query", {"filter": {"beds": {"$gt": 1}}})


@earns("NWP-MANIFEST-VERSION-UNSUPPORTED", "NPS-CLIENT-BAD-PARAM", 400)
async def too_old(inns: Inns) -> httpx.Response:
    return await inns.other.post("rooms/query", x_nwp_version="0.2")


@earns("NWP-RATE-LIMIT-EXCEEDED", "NPS-LIMIT-RATE", 429)
async def too_often(inns: Inns) -> httpx.Response:
    agent = Agent(inns.other.client, {"authorization": f"Bearer {await key_of(inns.less)}"})
    await agent.post("rooms/query")
    return await agent.post("rooms/query")


@requirement(
    "nwp:errors:body",
    "nwp:errors:request-id",
    "nwp:errors:auth-nid-scope-violation",
    "nwp:errors:auth-nid-expired",
    "nwp:errors:auth-nid-revoked",
    "nwp:errors:auth-nid-untrusted-issuer",
    "nwp:errors:auth-nid-capability-missing",
    "nwp:errors:query-filter-invalid",
    "nwp:errors:query-field-unknown",
    "nwp:errors:query-cursor-invalid",
    "nwp:errors:query-regex-unsafe",
    "nwp:errors:query-vector-unsupported",
    "nwp:errors:query-aggregate-unsupported",
    "nwp:errors:query-aggregate-invalid",
    "nwp:errors:query-stream-unsupported",
    "nwp:errors:action-not-found",
    "nwp:errors:action-params-invalid",
    "nwp:errors:action-idempotency-conflict",
    "nwp:errors:task-not-found",
    "nwp:errors:task-already-cancelled",
    "nwp:errors:task-already-completed",
    "nwp:errors:task-already-failed",
    "nwp:errors:subscribe-stream-not-found",
    "nwp:errors:subscribe-limit-exceeded",
    "nwp:errors:subscribe-filter-unsupported",
    "nwp:errors:subscribe-interrupted",
    "nwp:errors:subscribe-seq-too-old",
    "nwp:errors:budget-exceeded",
    "nwp:errors:depth-exceeded",
    "nwp:errors:graph-cycle",
    "nwp:errors:node-unavailable",
    "nwp:errors:manifest-version-unsupported",
    "nwp:errors:rate-limit-exceeded",
)
@pytest.mark.parametrize("name", sorted(EARNED))
async def test_a_code_comes_with_its_two_statuses(inns: Inns, name: str) -> None:
    status, http, earn = EARNED[name]
    async with asyncio.timeout(20):
        answer = await earn(inns)

    assert code(answer) == (http, status, name)
    assert answer.json()["message"]
    assert answer.json().get("request_id") == answer.headers.get("x-nwp-request-id")


async def test_the_table_has_every_code_that_the_specification_has() -> None:
    assert len(EARNED) == 31
    assert set(EARNED) == {each.error for each in CODES.values() if each.error.startswith("NWP-")}


@requirement("nwp:errors:pairs")
async def test_a_code_has_one_status_whatever_it_is_told_for() -> None:
    told = {(each.error, each.status) for each in (*CODES.values(), *WORKFLOW_CODES.values())}

    assert len(told) == len({error for error, _ in told})
    assert {pair for pair in told if pair[0].startswith("NPS-")} <= {(status, status) for status in STATUSES}


@requirement(
    "nwp:errors:status-client",
    "nwp:errors:status-auth",
    "nwp:errors:status-limit",
    "nwp:errors:status-server",
    "nwp:errors:status-stream",
    "nwp:errors:status-unmapped",
)
async def test_every_status_has_its_own_of_http() -> None:
    assert {name: each.value for name, each in STATUSES.items()} == {
        "NPS-CLIENT-BAD-FRAME": 400,
        "NPS-CLIENT-BAD-PARAM": 400,
        "NPS-CLIENT-NOT-FOUND": 404,
        "NPS-CLIENT-CONFLICT": 409,
        "NPS-CLIENT-GONE": 410,
        "NPS-CLIENT-UNPROCESSABLE": 422,
        "NPS-AUTH-UNAUTHENTICATED": 401,
        "NPS-AUTH-FORBIDDEN": 403,
        "NPS-LIMIT-RATE": 429,
        "NPS-LIMIT-BUDGET": 429,
        "NPS-LIMIT-EXCEEDED": 429,
        "NPS-LIMIT-PAYLOAD": 413,
        "NPS-SERVER-INTERNAL": 500,
        "NPS-SERVER-UNAVAILABLE": 503,
        "NPS-SERVER-TIMEOUT": 504,
        "NPS-SERVER-UNSUPPORTED": 501,
        "NPS-SERVER-ENCODING-UNSUPPORTED": 415,
        "NPS-STREAM-SEQ-GAP": 422,
        "NPS-STREAM-NOT-FOUND": 404,
        "NPS-STREAM-LIMIT": 429,
        "NPS-PROTO-VERSION-INCOMPATIBLE": 426,
    }
