"""Who an agent is, over HTTP: what certificates let it do, what is refused without a word of data, and how often."""

import base64
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from tests.conformance.requirements import requirement
from tests.protocols.conftest import key_of, listening
from tests.protocols.nwp.agents import RESERVED, Agent, agent_of, code, held, opened_inn, reached, subscribe

from portico.access.nip import canonical_body, render_key, sign, timestamp
from portico.access.nip.authority import SiteAuthority
from portico.protocols.nwp.settings import NwpSettings
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_HOME = {"url": "https://inn.example"}
EVERYTHING = ("ask", "read:*", "execute:*")
EXPIRED = (401, "NPS-AUTH-UNAUTHENTICATED", "NWP-AUTH-NID-EXPIRED")
REVOKED = (401, "NPS-AUTH-UNAUTHENTICATED", "NWP-AUTH-NID-REVOKED")
UNTRUSTED = (401, "NPS-AUTH-UNAUTHENTICATED", "NWP-AUTH-NID-UNTRUSTED-ISSUER")
MISSING = (403, "NPS-AUTH-FORBIDDEN", "NWP-AUTH-NID-CAPABILITY-MISSING")
VIOLATION = (403, "NPS-AUTH-FORBIDDEN", "NWP-AUTH-NID-SCOPE-VIOLATION")
LIMITED = (429, "NPS-LIMIT-RATE", "NWP-RATE-LIMIT-EXCEEDED")
BOB = "urn:nps:agent:elsewhere.example:bob"

Ident = Mapping[str, Any]


# An authority elsewhere


@dataclass
class Elsewhere:
    """An authority on loopback that signs whatever a test wants."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    public_key: str = ""  # as it publishes it
    revoked: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = Request(scope, receive).url.path
        self.asked.append(path)
        nid = path.removeprefix("/v1/agents/").removesuffix("/verify")
        introduced = {"issuer": "urn:nps:org:elsewhere.example", "public_key": self.public_key}
        standing = {"valid": False, "error_code": "NIP-CERT-REVOKED"} if nid in self.revoked else {"valid": True}
        said = introduced if path == "/.well-known/nps-ca" else standing
        await JSONResponse(said)(scope, receive, send)

    def certificate(self, **said: Any) -> Ident:
        now = datetime.now(UTC)
        frame = {
            "nid": BOB,
            "pub_key": render_key(self.key.public_key()),
            "capabilities": ["nwp:query", "nwp:action"],
            "scope": {"nodes": ["nwp://inn.example/*"]},
            "issued_by": "urn:nps:org:elsewhere.example",
            "issued_at": timestamp(now),
            "expires_at": timestamp(now + timedelta(days=30)),
            "serial": "0x0A3F",
            **said,
        }
        return {**frame, "signature": sign(self.key, canonical_body(frame))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def elsewhere() -> AsyncIterator[tuple[Elsewhere, str]]:
    authority = Elsewhere()
    raw = authority.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    authority.public_key = f"ed25519:{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"
    async with listening(authority) as port:
        yield authority, f"http://127.0.0.1:{port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory, elsewhere: tuple[Elsewhere, str]) -> AsyncIterator[Parts]:
    nwp = {"auth": "nip-cert", "issuers": [elsewhere[1]]}
    limits = {"anonymous_per_minute": 60_000, "keys_per_minute": 60_000}
    folder = tmp_path_factory.mktemp("inn")
    async with opened_inn(folder, server=AT_HOME, nwp=nwp, limits=limits, allow_hosts=["127.0.0.1"]) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nobody(parts: Parts) -> AsyncIterator[Agent]:
    async with agent_of(parts) as agent:
        yield agent


async def issued(parts: Parts, name: str = "", **said: Any) -> Ident:
    """A certificate of the inn itself, for an agent that may do everything but for what is said."""
    name = name or f"agent-{uuid4()}"
    return (await SiteAuthority(parts.config, parts.store).issue(name, scopes=EVERYTHING, **said)).certificate


def showing(agent: Agent, ident: Ident, **headers: str) -> Agent:
    return Agent(agent.client, {"x-nwp-ident": json.dumps(ident), **headers})


DOORS = ("query", "stream", "invoke", "subscribe", "status", "poll")


async def at_door(door: str, agent: Agent, task: str) -> httpx.Response:
    """One request of each kind that needs an identity."""
    match door:
        case "query" | "stream":
            return await agent.post(f"rooms/{door}")
        case "invoke":
            return await agent.invoke("site.reserve_room", {"room": "attic"})
        case "subscribe":
            return await agent.post("rooms/subscribe", subscribe(), accept="application/nwp-capsule")
        case "status":
            return await agent.invoke("system.task.status", {"task_id": task})
        case _:
            return await agent.get(f"operations/actions/status/{task}")


async def everywhere(agent: Agent, task: str = "none") -> dict[str, httpx.Response]:
    return {door: await at_door(door, agent, task) for door in DOORS}


# Refused


@requirement("nwp:identity:header", "nwp:identity:issuing", "nwp:identity:every-request")
async def test_a_good_certificate_opens_every_door_raw_or_in_base64url(parts: Parts, nobody: Agent) -> None:
    ident = await issued(parts, "ann")
    raw = json.dumps(ident).encode()
    nid = "urn:nps:agent:inn.example:ann"
    days = datetime.fromisoformat(ident["expires_at"]) - datetime.fromisoformat(ident["issued_at"])
    door = str(uuid4())
    async with held(door):
        task = await showing(nobody, ident).start(door)
        await reached(door)
        forms = [
            raw.decode(),
            base64.urlsafe_b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode().strip("="),
        ]
        for form in forms:
            answers = await everywhere(Agent(nobody.client, {"x-nwp-ident": form, "x-nwp-agent": nid}), task)
            assert {door: each.status_code for door, each in answers.items()} == dict.fromkeys(DOORS, 200)

    assert (ident["nid"], ident["issued_by"], days) == (nid, "urn:nps:org:inn.example", timedelta(days=30))


async def expired(parts: Parts, _: Elsewhere) -> Ident:
    past = time.time() - 40 * 86400
    return (await SiteAuthority(parts.config, parts.store, lambda: past).issue("late", scopes=EVERYTHING)).certificate


async def revoked(parts: Parts, _: Elsewhere) -> Ident:
    made = await SiteAuthority(parts.config, parts.store).issue("gone", scopes=EVERYTHING)
    await parts.store.keys.revoke(made.key.id, datetime.now(UTC))
    return made.certificate


async def revoked_elsewhere(_: Parts, elsewhere: Elsewhere) -> Ident:
    elsewhere.revoked.add("urn:nps:agent:elsewhere.example:gone")
    return elsewhere.certificate(nid="urn:nps:agent:elsewhere.example:gone")


async def of_a_stranger(_: Parts, __: Elsewhere) -> Ident:
    return Elsewhere().certificate(issued_by="urn:nps:org:stranger.example", nid="urn:nps:agent:stranger.example:eve")


async def forged(parts: Parts, _: Elsewhere) -> Ident:
    return {**await issued(parts), "scope": {"nodes": ["*"]}}


async def signed_by_another(_: Parts, __: Elsewhere) -> Ident:
    return Elsewhere().certificate()


async def without_a_signature(parts: Parts, _: Elsewhere) -> Ident:
    return {name: value for name, value in (await issued(parts)).items() if name != "signature"}


async def of_no_nid(_: Parts, elsewhere: Elsewhere) -> Ident:
    return elsewhere.certificate(nid="urn:nps:robot:elsewhere.example:bob")


async def for_agents_of_another(_: Parts, elsewhere: Elsewhere) -> Ident:
    return elsewhere.certificate(nid="urn:nps:agent:inn.example:ann")


async def out_of_scope(parts: Parts, _: Elsewhere) -> Ident:
    return await issued(parts, nodes=["nwp://inn.example/room", "nwp://other.example/*", "nwp://inn.example/cellar/*"])


async def of_no_use(parts: Parts, _: Elsewhere) -> Ident:
    return await issued(parts, capabilities=["nop:delegate"])


async def expired_and_forged_and_out_of_scope(_: Parts, elsewhere: Elsewhere) -> Ident:
    late = elsewhere.certificate(expires_at="2020-01-01T00:00:00Z", scope={"nodes": []}, capabilities=[])
    return {**late, "signature": "ed25519:none"}


async def revoked_and_of_no_use(parts: Parts, _: Elsewhere) -> Ident:
    made = await SiteAuthority(parts.config, parts.store).issue(
        "both", nodes=["nwp://x.example"], capabilities=["nop:x"]
    )
    await parts.store.keys.revoke(made.key.id, datetime.now(UTC))
    return made.certificate


async def of_no_use_and_out_of_scope(parts: Parts, _: Elsewhere) -> Ident:
    return await issued(parts, nodes=["nwp://x.example"], capabilities=["nop:x"])


@requirement(
    "nwp:identity:every-request",
    "nwp:identity:order",
    "nwp:identity:signature",
    "nwp:identity:revocation",
    "nwp:identity:nid",
    "nwp:identity:capabilities",
    "nwp:identity:scope-prefix",
    "nwp:manifest:open",
)
@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (expired, EXPIRED),
        (revoked, REVOKED),
        (revoked_elsewhere, REVOKED),
        (of_a_stranger, UNTRUSTED),
        (forged, UNTRUSTED),
        (signed_by_another, UNTRUSTED),
        (without_a_signature, UNTRUSTED),
        (of_no_nid, UNTRUSTED),
        (for_agents_of_another, UNTRUSTED),
        (out_of_scope, VIOLATION),
        (of_no_use, MISSING),
        (expired_and_forged_and_out_of_scope, EXPIRED),
        (revoked_and_of_no_use, REVOKED),
        (of_no_use_and_out_of_scope, MISSING),
    ],
)
async def test_a_certificate_that_is_not_good_opens_no_door(
    parts: Parts, nobody: Agent, elsewhere: tuple[Elsewhere, str], made: Any, refused: tuple[int, str, str]
) -> None:
    ident, before = await made(parts, elsewhere[0]), len(RESERVED)

    answers = await everywhere(showing(nobody, ident))

    assert {door: code(each) for door, each in answers.items()} == dict.fromkeys(DOORS, refused)
    assert "attic" not in "".join(each.text for each in answers.values())
    assert len(RESERVED) == before
    assert (await nobody.get("rooms/.nwm")).json()["auth"]["required"] is True


@requirement("nwp:identity:missing", "nwp:identity:bare-name", "nwp:identity:header", "nwp:headers:agent")
async def test_a_name_is_no_proof_and_must_be_that_of_the_certificate(parts: Parts, nobody: Agent) -> None:
    ident = await issued(parts, "carol")
    for headers in (
        {},
        {"x-nwp-agent": "urn:nps:agent:inn.example:carol"},
        {"x-nwp-agent": "urn:nps:agent:inn.example:carol", "x-nwp-ident": "nonsense"},
        {"x-nwp-agent": "urn:nps:agent:inn.example:dave", "x-nwp-ident": json.dumps(ident)},
        {"x-nwp-ident": "e" * 9000},
        {"authorization": f"Bearer {await key_of(parts, '*:*')}"},
    ):
        answers = await everywhere(Agent(nobody.client, headers))
        assert {door: code(each) for door, each in answers.items()} == dict.fromkeys(DOORS, UNTRUSTED)


@requirement("nwp:identity:revocation")
async def test_a_certificate_that_is_revoked_ends_at_once(parts: Parts, nobody: Agent) -> None:
    made = await SiteAuthority(parts.config, parts.store).issue("eve", scopes=EVERYTHING)
    agent = showing(nobody, made.certificate)

    before = await agent.post("rooms/query")
    await parts.store.keys.revoke(made.key.id, datetime.now(UTC))
    after = await agent.post("rooms/query")

    assert before.status_code == 200
    assert code(after) == REVOKED


# What a certificate covers


@requirement("nwp:identity:capabilities", "nwp:action:capability")
async def test_reading_and_acting_need_a_capability_each_and_acting_has_two_names(parts: Parts, nobody: Agent) -> None:
    reads = await everywhere(showing(nobody, await issued(parts, capabilities=["nwp:query"])))
    acts = [
        await everywhere(showing(nobody, await issued(parts, capabilities=[each])))
        for each in ("nwp:action", "nwp:invoke")
    ]

    streams = [
        await showing(nobody, await issued(parts, capabilities=["nwp:query", each])).post("rooms/stream")
        for each in ("nwp:stream", "ncp:stream")
    ]

    assert [reads[door].status_code for door in ("query", "stream", "subscribe")] == [200, 403, 200]
    assert code(reads["stream"]) == MISSING
    assert [each.status_code for each in streams] == [200, 200]
    assert [code(reads[door]) for door in ("invoke", "status", "poll")] == [MISSING] * 3
    for each in acts:
        assert [code(each[door]) for door in ("query", "stream", "subscribe")] == [MISSING] * 3
        assert [each[door].status_code for door in ("invoke", "status", "poll")] == [200, 404, 404]
    spec = (await nobody.get("operations/.nwm")).json()
    assert spec["actions"]["site.reserve_room"]["required_capability"] == "nwp:invoke"
    assert spec["auth"]["required_capabilities"] == ["nwp:invoke"]


@requirement("nwp:identity:capabilities")
async def test_the_owner_may_ask_for_more(tmp_path: Path) -> None:
    nwp = {"auth": "nip-cert", "capabilities": ["nop:delegate"]}
    async with opened_inn(tmp_path, server=AT_HOME, nwp=nwp) as parts, agent_of(parts) as nobody:
        manifest = (await nobody.get("rooms/.nwm")).json()
        usual, more = [
            await showing(nobody, await issued(parts, capabilities=each)).post("rooms/query")
            for each in (["nwp:query", "nwp:action"], ["nwp:query", "nop:delegate"])
        ]

    assert manifest["auth"]["required_capabilities"] == ["nwp:query", "nop:delegate"]
    assert (code(usual), more.status_code) == (MISSING, 200)


@requirement("nwp:identity:scope-prefix", "nwp:identity:scope-exact")
@pytest.mark.parametrize(
    ("node", "by_prefix", "exactly"),
    [
        ("*", 200, 403),
        ("nwp://inn.example/*", 200, 403),
        ("nwp://inn.example", 200, 403),
        ("nwp://inn.example/rooms", 200, 200),
        ("nwp://INN.EXAMPLE/ROOMS", 200, 200),
        ("nwp://inn.example:17433/rooms", 200, 200),
        ("nwp://inn.example/rooms/*", 200, 403),
        ("nwp://inn.example/room", 403, 403),
        ("nwp://inn.example/rooms-operations", 403, 403),
    ],
)
async def test_a_scope_covers_a_node_by_its_beginning_or_exactly(
    parts: Parts, nobody: Agent, exact: Parts, node: str, by_prefix: int, exactly: int
) -> None:
    here = await showing(nobody, await issued(parts, nodes=[node])).post("rooms/query")
    async with agent_of(exact) as stranger:
        there = await showing(stranger, await issued(exact, nodes=[node])).post("rooms/query")

    assert (here.status_code, there.status_code) == (by_prefix, exactly)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exact(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    nwp = {"auth": "nip-cert", "scope_check": "exact"}
    async with opened_inn(tmp_path_factory.mktemp("inn"), server=AT_HOME, nwp=nwp) as parts:
        yield parts


@requirement("nwp:identity:scope-actions")
async def test_a_scope_may_name_the_actions(parts: Parts, nobody: Agent) -> None:
    one = showing(nobody, await issued(parts, actions=["rooms:get"]))
    group = showing(nobody, await issued(parts, actions=["site:*"]))
    none = showing(nobody, await issued(parts, actions=[]))

    async def tried(agent: Agent) -> list[int]:
        answers = [
            await agent.invoke("rooms.get", {"id": "attic"}, "rooms-operations"),
            await agent.invoke("rooms.list", {}, "rooms-operations"),
            await agent.invoke("site.reserve_room", {"room": "attic"}),
            await agent.invoke("site.reserve_room", {"room": "attic"}, "gateway"),
        ]
        refused = [each for each in answers if each.status_code != 200]
        assert [code(each) for each in refused] == [VIOLATION] * len(refused)
        return [each.status_code for each in answers]

    assert await tried(one) == [200, 403, 403, 403]
    assert await tried(group) == [403, 403, 200, 200]
    assert await tried(none) == [403, 403, 403, 403]


@requirement("nwp:budget:effective")
async def test_an_answer_costs_no_more_than_the_certificate_allows(parts: Parts, nobody: Agent) -> None:
    free = await showing(nobody, await issued(parts)).post("rooms/query")
    bound = await showing(nobody, await issued(parts, budget=40)).post("rooms/query", {"token_budget": 10_000})

    assert free.json()["token_est"] > 40
    assert bound.json()["token_est"] <= 40
    assert bound.json()["trimmed"]["reason"] == "token_budget"


@requirement(
    "nwp:identity:authority",
    "nwp:identity:keys",
    "nwp:identity:missing",
    "nwp:identity:signature",
    "nwp:identity:nid",
)
async def test_the_key_of_an_authority_is_read_where_it_publishes_it(
    nobody: Agent, elsewhere: tuple[Elsewhere, str]
) -> None:
    authority, _ = elsewhere
    good = authority.certificate(nid="urn:nps:agent:elsewhere.example:ben_2.x", rank={"unknown": "é"})
    unsigned = {**good, "metadata": {"model_family": "any"}}
    trimmed = {**good, "signature": good["signature"].rstrip("=")}
    altered = {**good, "rank": {"unknown": "e"}}

    shown = [await showing(nobody, each).post("rooms/query") for each in (good, unsigned, trimmed, altered)]

    assert [each.status_code for each in shown] == [200, 200, 200, 401]
    assert code(shown[-1]) == UNTRUSTED
    assert "/.well-known/nps-ca" in authority.asked
    assert "/v1/agents/urn:nps:agent:elsewhere.example:ben_2.x/verify" in authority.asked


@requirement("nwp:security:secrets")
async def test_certificates_are_neither_logged_nor_told_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    noted: list[Any] = []
    nwp = {"auth": "nip-cert"}
    async with opened_inn(tmp_path, record=noted.append, server=AT_HOME, nwp=nwp) as parts, agent_of(parts) as nobody:
        good = await issued(parts)
        wrong = {**good, "scope": {"nodes": ["*"]}}
        answers = [each for ident in (good, wrong) for each in (await everywhere(showing(nobody, ident))).values()]

    said = "".join([repr(noted), caplog.text, *capfd.readouterr(), *(each.text for each in answers)])
    assert "Refused" in said
    assert [secret for secret in (good["signature"], good["pub_key"], good["serial"]) if secret in said] == []


# Other ways to be known


@requirement("nwp:identity:bearer")
async def test_where_a_key_is_wanted_it_is_shown_as_a_bearer_token(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp={"auth": "bearer"}) as parts, agent_of(parts) as nobody:
        token = await key_of(parts, *EVERYTHING)
        manifest = (await nobody.get("rooms/.nwm")).json()
        without = await everywhere(nobody)
        wrong = await everywhere(Agent(nobody.client, {"authorization": "Bearer pk_wrong"}))
        named = await everywhere(Agent(nobody.client, {"x-nwp-agent": "urn:nps:agent:inn.example:ann"}))
        known = await everywhere(Agent(nobody.client, {"authorization": f"Bearer {token}"}))

        unread = [await nobody.client.post("/nwp/rooms/query", content=body) for body in (b"{bad", b"")]

    assert {code(each) for each in unread} == {UNTRUSTED}  # nobody learns what was wrong with the rest
    assert manifest["auth"] == {"required": True, "identity_type": "bearer"}
    for refused in (without, wrong, named):
        assert {door: code(each) for door, each in refused.items()} == dict.fromkeys(DOORS, UNTRUSTED)
        assert refused["query"].headers["www-authenticate"].startswith("Bearer")
    assert [each.status_code for each in known.values()] == [200, 200, 200, 200, 404, 404]


@requirement("nwp:identity:bare-name", "nwp:identity:bearer")
async def test_names_are_believed_only_where_the_owner_says_so(tmp_path: Path, parts: Parts) -> None:
    assert parts.config.section(NwpSettings).trust_names is False
    nwp = {"auth": "nip-cert", "trust_names": True}
    async with opened_inn(tmp_path, server=AT_HOME, nwp=nwp) as inn, agent_of(inn) as nobody:
        await issued(inn, "ann")
        answers = [
            await nobody.post("rooms/query", x_nwp_agent=f"urn:nps:agent:inn.example:{each}") for each in ("ann", "eve")
        ]
    async with opened_inn(tmp_path) as inn, agent_of(inn) as nobody:
        open_to_all = await nobody.post("rooms/query", x_nwp_agent="whoever")

    assert (answers[0].status_code, code(answers[1])) == (200, REVOKED)
    assert open_to_all.status_code == 200


# How often


@requirement("nwp:rate:per-agent")
async def test_what_is_refused_costs_as_much_as_what_is_not(tmp_path: Path) -> None:
    async with opened_inn(tmp_path, limits={"anonymous_per_minute": 8}) as parts, agent_of(parts) as agent:
        refused = [
            await agent.invoke("site.fly_away"),
            await agent.invoke("site.reserve_room", priority="urgent"),
            await agent.invoke("system.task.status", {"task_id": "none"}),
            await agent.post("rooms/subscribe", {"action": "dance", "stream_id": "one"}),
            await agent.post("rooms/subscribe", {"action": "ping", "stream_id": "two words"}),
            await agent.post("rooms/subscribe", subscribe(filter={"stars": {"$eq": 1}})),
            await agent.post("rooms/subscribe", subscribe(resume_from_seq=1)),
            await agent.get("operations/actions/status/none"),
        ]
        last = await agent.post("rooms/query")

    assert [_rate(each) for each in refused] == [(8, left) for left in range(7, -1, -1)]
    assert code(last) == LIMITED


@requirement("nwp:rate:per-agent", "nwp:rate:by-ip", "nwp:rate:headers", "nwp:rate:reset")
async def test_requests_are_counted_by_agent_and_those_of_others_by_address(tmp_path: Path) -> None:
    limits = {"anonymous_per_minute": 4, "keys_per_minute": 3}
    async with (
        opened_inn(tmp_path, server=AT_HOME, limits=limits) as parts,
        agent_of(parts, "192.0.2.1") as here,
        agent_of(parts, "192.0.2.2") as there,
    ):
        ann, ben = [await issued(parts, each) for each in ("ann", "ben")]
        by_agent = [await showing(agent, ann).post("rooms/query") for agent in (here, there, here, there)]
        of_another = await showing(here, ben).post("rooms/query")
        names = [f"urn:nps:agent:inn.example:{each}" for each in ("a", "b", "c", "d")]
        by_address = [await here.post("rooms/query", x_nwp_agent=each) for each in names]
        wrong = await here.post("rooms/query", x_nwp_ident="nonsense")
        elsewhere = await there.post("rooms/query")

    assert [each.status_code for each in by_agent] == [200, 200, 200, 429]
    assert [each.status_code for each in by_address] == [200] * 4
    assert (of_another.status_code, elsewhere.status_code) == (200, 200)
    assert [code(each) for each in (by_agent[-1], wrong)] == [LIMITED, LIMITED]
    assert [_rate(each) for each in by_agent] == [(3, 2), (3, 1), (3, 0), (3, 0)]
    assert [_rate(each) for each in by_address] == [(4, 3), (4, 2), (4, 1), (4, 0)]
    for refused in (by_agent[-1], wrong):
        assert 1 <= int(refused.headers["retry-after"]) <= 60
    for answer in (*by_agent, *by_address, wrong):
        assert time.time() < int(answer.headers["x-nwp-rate-reset"]) <= time.time() + 61


def _rate(answer: httpx.Response) -> tuple[int, int]:
    return int(answer.headers["x-nwp-rate-limit"]), int(answer.headers["x-nwp-rate-remaining"])
