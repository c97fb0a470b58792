"""Where a Complex node leads: nodes of the site and nodes elsewhere, and how little they are told."""

import asyncio
import json
import math
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from rs_bpe.bpe import openai
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking, key_of, listening
from tests.protocols.nwp.test_callbacks import certificate

from portico.protocols.nwp.frames import CapsFrame, EncodingTier, OrderKey, QueryFrame, decode, encode
from portico.protocols.nwp.graph import http_address_of, is_allowed
from portico.server.assembly import Parts
from portico.store.records import Put
from portico.telemetry import UnexpectedError

DISHES = {"soup": {"@type": "MenuItem", "name": "Soup"}, "cake": {"@type": "MenuItem", "name": "Cake"}}
HERE = "urn:nps:node:inn.example:site"
ID = "5b4a4a0e-6f6e-4a8c-9c0a-0d5f1e2d3c4b"
CAPSULE = {"anchor_ref": "sha256:x", "count": 1, "data": [{"id": "a"}]}


async def add_dishes(parts: Parts) -> None:
    await parts.store.collections.declare(parts.config.collection("dishes"))
    await parts.store.items.write("dishes", [Put(id, data) for id, data in DISHES.items()])
    await parts.site.access.look_up(lambda: parts.site.catalog.collection("dishes"))


async def rooms_of(client: httpx.AsyncClient) -> str:
    return (await client.get("/nwp/site/.nwm")).json()["schema_anchors"]["rooms"]


async def asked(client: httpx.AsyncClient, body: dict[str, Any] | None = None, **headers: str) -> dict[str, Any]:
    """The answer of the site's node, and of those one hop further unless the body or a header says otherwise."""
    named = {f"x-nwp-{name}": value for name, value in headers.items()}
    said = {"anchor_ref": await rooms_of(client), "order": [{"field": "id"}], "depth": 1, **(body or {})}
    return (await client.post("/nwp/site/query", json=said, headers=named)).json()


def told(entry: dict[str, Any]) -> Any:
    """What an entry says: the ids of its records, or the code of its error."""
    return [each["id"] for each in entry["data"]["data"]] if "data" in entry else entry["error"]["code"]


@requirement("nwp:graph:refs")
async def test_a_manifest_says_where_a_complex_node_leads(inn: Inn) -> None:
    elsewhere = {"rel": "peer", "url": "https://peer.example/nwp/rooms"}
    async with inn(nwp={"node": [elsewhere]}) as parts, asking(parts) as client:
        site, rooms = [(await client.get(f"/nwp/{name}/.nwm")).json() for name in ("site", "rooms")]

    here = {"rel": "rooms", "node": "nwp://inn.example:17433/rooms"}
    assert site["graph"] == {"refs": [here, {"rel": "peer", "node": elsewhere["url"]}], "max_depth": 5}
    assert "graph" not in rooms


@requirement("nwp:graph:traversal", "nwp:graph:answer", "nwp:graph:trace")
async def test_a_complex_node_tells_what_the_nodes_it_leads_to_say(inn: Inn) -> None:
    async with inn(anonymous={"scopes": ["ask", "read:rooms"]}, nwp={"depth": 1}) as parts, asking(parts) as client:
        await add_dishes(parts)
        whole = await asked(client, {"limit": 2})
        local = await asked(client, {"limit": 2}, depth="0")
        next_page = await asked(client, {"limit": 2, "cursor": whole["next_cursor"], "depth": None})
        memory = (await client.post("/nwp/rooms/query", json={"depth": 3})).json()
        deep = await asked(client, depth="6")
        again = await asked(client, trace=f"urn:nps:node:other.example:a,{HERE}")

    entries = {each["rel"]: each for each in whole["graph"]}
    assert {rel: told(each) for rel, each in entries.items()} == {
        "rooms": ["attic", "cellar"],
        "dishes": "NWP-AUTH-NID-UNTRUSTED-ISSUER",
    }
    assert entries["rooms"]["node"] == "nwp://inn.example:17433/rooms"
    assert entries["rooms"]["data"] == {name: each for name, each in local.items() if name != "next_cursor"} | {
        "next_cursor": entries["rooms"]["data"]["next_cursor"]
    }
    assert ["graph" in each for each in (local, next_page, memory)] == [False, False, False]
    assert (deep["error"], again["error"]) == ("NWP-DEPTH-EXCEEDED", "NWP-GRAPH-CYCLE")
    assert again["status"] == "NPS-CLIENT-UNPROCESSABLE"


@requirement("nwp:graph:trace")
async def test_a_node_is_known_by_its_mark_whatever_it_is_called(inn: Inn) -> None:
    async with inn() as parts, asking(parts) as client:
        own, other = f"mark:{parts.site.tokens.fingerprint}:site", f"mark:{'0' * 16}:site"
        long = ",".join([*("x" * 300 for _ in range(40)), own])
        cycles = [
            await asked(client, trace=f"urn:nps:node:alias.example:site,{own}"),
            await asked(client, trace=HERE),
            await asked(client, trace=long),
        ]
        sister = await asked(client, trace=f"{HERE},{other}")

    assert [each["error"] for each in cycles] == ["NWP-GRAPH-CYCLE"] * 3
    assert [told(each) for each in sister["graph"]] == [["attic", "cellar", "garden"]]


@requirement("nwp:graph:small")
async def test_a_site_stays_by_itself_unless_it_is_asked_to_go_further(inn: Inn) -> None:
    async with inn() as parts, asking(parts) as client:
        assert "graph" not in await asked(client, {"depth": None})
        assert [told(each) for each in (await asked(client, {"depth": 1}))["graph"]] == [["attic", "cellar", "garden"]]
    async with inn(nwp={"depth": 1}) as parts, asking(parts) as client:
        assert len((await asked(client, {"depth": None}))["graph"]) == 1


@requirement("nwp:budget:counted", "nwp:headers:tokens")
@pytest.mark.parametrize("tokenizer", ["", "cl100k_base"])
async def test_tokens_are_counted_with_what_other_nodes_say(inn: Inn, tokenizer: str) -> None:
    named = {"tokenizer": tokenizer} if tokenizer else {}
    async with inn() as parts, asking(parts) as client:
        body = {"anchor_ref": await rooms_of(client), "depth": 1}
        headers = {f"x-nwp-{name}": value for name, value in named.items()}
        bare = await client.post("/nwp/site/query", json=body, headers=headers)
        packed = await client.post(
            "/nwp/site/query", content=encode(QueryFrame(**body), EncodingTier.MSGPACK), headers=headers
        )

    said = bare.json()
    sent = [msgspec.json.encode(said[name]) for name in ("data", "graph")]
    assert said["token_est"] == sum(counted(each, tokenizer) for each in sent)
    assert bare.headers["x-nwp-tokens"] == packed.headers["x-nwp-tokens"] == str(said["token_est"])
    assert (bare.headers.get("x-nwp-tokenizer-used"), said.get("tokenizer_used")) == (tokenizer or None,) * 2


def counted(encoded: bytes, name: str) -> int:
    return getattr(openai, name)().count(encoded.decode()) if name else math.ceil(len(encoded) / 4)


@requirement("nwp:budget:limit", "nwp:budget:not-silent")
@pytest.mark.parametrize("budget", [30, 60, 120, 200, 400, 2000])
@pytest.mark.parametrize("tier", list(EncodingTier))
async def test_all_nodes_together_keep_to_a_budget(inn: Inn, tier: EncodingTier, budget: int) -> None:
    async with inn() as parts, asking(parts) as client:
        await add_dishes(parts)
        question = QueryFrame(anchor_ref=await rooms_of(client), limit=2, depth=1, token_budget=budget)
        answer = await client.post("/nwp/site/query", content=encode(question, tier))
        said = decode(answer.content)

    assert isinstance(said, CapsFrame)
    assert said.graph is not None
    sent = estimated(list(said.data)) + (estimated(said.graph) if said.graph else 0)
    assert int(answer.headers["x-nwp-tokens"]) == sent <= budget
    named = [entry["rel"] for entry in said.graph] + (said.trimmed or {}).get("dropped_nodes", [])
    assert sorted(named) == ["dishes", "rooms"]


def estimated(part: Any) -> int:
    return math.ceil(len(msgspec.json.encode(part)) / 4)


async def test_a_framed_answer_fits_with_all_that_other_nodes_say(inn: Inn) -> None:
    nodes = [{"rel": "far", "url": f"https://{number}.example/{'x' * 200}"} for number in range(20)]
    async with inn(nwp={"node": nodes}) as parts, asking(parts) as client:
        long = {f"r{number:03}": {"@type": "HotelRoom", "name": "x" * 3000} for number in range(40)}
        await add_dishes(parts)
        await parts.store.items.write("rooms", [Put(id, data) for id, data in long.items()])
        answers = {limit: await framed(client, limit) for limit in (12, 40)}

    assert all(size <= 0xFFFF for size, _ in answers.values())
    share = {each["rel"]: each for each in answers[12][1].graph or ()}
    assert answers[12][1].count == 12
    assert 1 <= share["rooms"]["data"]["count"] < 12
    assert share["rooms"]["data"]["next_cursor"]
    full = {each["rel"]: told(each) for each in answers[40][1].graph or ()}
    assert full["rooms"] == "NCP-FRAME-PAYLOAD-TOO-LARGE"


async def framed(client: httpx.AsyncClient, limit: int) -> tuple[int, CapsFrame]:
    """How large the payload of an answer is, and what it says."""
    question = QueryFrame(anchor_ref=await rooms_of(client), limit=limit, order=[OrderKey("id", "DESC")], depth=1)
    body = encode(question, EncodingTier.MSGPACK)
    answer = (await client.post("/nwp/site/query", content=body)).content
    said = decode(answer)
    assert isinstance(said, CapsFrame)
    return len(answer) - 4, said


# Nodes elsewhere


@dataclass
class Peer:
    """Nodes of somebody else's: each answers in its own way."""

    heard: dict[str, tuple[dict[str, str], dict[str, Any]]] = field(default_factory=dict)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        name = scope["path"].split("/")[2]
        self.heard[name] = (dict(request.headers), await request.json())
        if name == "slow":
            await self.over.wait()
        await self._answer(name)(scope, receive, send)

    def _answer(self, name: str) -> Response:
        below = [{"rel": "b", "node_url": "https://b.example", "data": CAPSULE}]
        cycle = {"status": "NPS-CLIENT-UNPROCESSABLE", "error": "NWP-GRAPH-CYCLE", "message": "Been here"}
        match name:
            case "peer":
                return Response(json.dumps({**CAPSULE, "graph": below}))
            case "loop":
                return Response(json.dumps(cycle), 422)
            case "away":
                return Response(status_code=307, headers={"location": "/nwp/peer/query"})
            case "deep":
                return Response(b'{"data":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}")
            case "huge":
                return Response(json.dumps({**CAPSULE, "data": ["x" * 2_000_000]}))
            case _:
                return Response(json.dumps(CAPSULE))


@asynccontextmanager
async def leading_to(inn: Inn, port: int, *names: str, **said: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A site that leads to nodes on this machine."""
    nodes = [{"rel": name, "url": f"http://127.0.0.1:{port}/nwp/{name}"} for name in names]
    nwp = {"node": nodes, "allow_nodes": [f"http://127.0.0.1:{port}/nwp"], **said}
    async with inn(allow_hosts=["127.0.0.1"], nwp=nwp) as parts:
        key = await key_of(parts)
        async with asking(parts, headers={"authorization": f"Bearer {key}"}) as client:
            yield client


@requirement("nwp:graph:parallel", "nwp:graph:answer", "nwp:graph:trace")
async def test_nodes_elsewhere_are_asked_at_once_and_each_fails_by_itself(inn: Inn) -> None:
    peer, names = Peer(), ("peer", "loop", "away", "deep", "huge", "slow")
    async with listening(peer) as port, leading_to(inn, port, *names) as client:
        # The less time there is, the more nodes a question has come through.
        whole = await asked(client, {"limit": 2}, trace="a,b,c,d,e", depth="2", budget="900", **{"request-id": ID})
        peer.over.set()

    graph = {each["rel"]: each for each in whole["graph"]}
    assert graph["peer"]["data"] == {**CAPSULE, "graph": [{"rel": "b", "node": "https://b.example", "data": CAPSULE}]}
    assert graph["loop"]["error"] == {"code": "NWP-GRAPH-CYCLE", "message": "Been here"}
    assert {told(graph[name]) for name in ("away", "deep", "huge")} == {"NWP-NODE-UNAVAILABLE"}
    assert told(graph["slow"]) == "NPS-SERVER-TIMEOUT"
    headers, question = peer.heard["peer"]
    *passed, mark = headers["x-nwp-trace"].split(",")
    assert passed == ["a", "b", "c", "d", "e", HERE]
    assert re.fullmatch(r"mark:[0-9a-f]{16}:site", mark)
    assert {name: headers[name] for name in headers if name.startswith("x-nwp-") and name != "x-nwp-budget"} == {
        "x-nwp-depth": "1",
        "x-nwp-trace": headers["x-nwp-trace"],
        "x-nwp-request-id": ID,
    }
    assert 0 < int(headers["x-nwp-budget"]) < 900
    assert "authorization" not in headers
    assert question == {"frame": "0x10", "limit": 2, "order": [{"field": "id", "dir": "ASC"}]}


@requirement("nwp:graph:allowlist", "nwp:graph:private")
async def test_another_site_is_followed_only_where_its_owner_allows_it(inn: Inn) -> None:
    async with inn() as sister, listening(sister) as port:
        async with leading_to(inn, port, "rooms", "site") as client:
            allowed = (await asked(client, depth="2"))["graph"]
        async with leading_to(inn, port, "rooms", allow_nodes=[f"http://127.0.0.1:{port}/nwp/ro"]) as client:
            beyond = (await asked(client))["graph"]
        inside = {"node": [{"rel": "inside", "url": f"https://127.0.0.1:{port}/nwp/rooms"}]}
        async with (
            inn(nwp={**inside, "allow_nodes": [f"https://127.0.0.1:{port}"]}) as parts,
            asking(parts) as client,
        ):
            private = (await asked(client))["graph"]

    rooms = ["attic", "cellar", "garden"]
    assert [(each["rel"], told(each)) for each in allowed] == [("rooms", rooms), ("rooms", rooms), ("site", rooms)]
    assert [told(each) for each in allowed[-1]["data"]["graph"]] == [rooms]
    assert [told(each) for each in beyond] == [rooms, "NWP-AUTH-NID-SCOPE-VIOLATION"]
    assert [told(each) for each in private] == [rooms, "NWP-AUTH-NID-SCOPE-VIOLATION"]


@asynccontextmanager
async def answering_over_tls(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a node whose certificate an authority of its own has signed, which is in ca.pem."""
    private, public = certificate()
    (tmp_path / "node.pem").write_bytes(private + public)
    (tmp_path / "ca.pem").write_bytes(public)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "node.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(re.findall(r"content-length: (\d+)", head)[0]))
        body = json.dumps(CAPSULE).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/nwp/far"


@requirement("nwp:graph:private-ca")
async def test_a_node_with_a_private_authority_is_reached_where_the_site_file_names_it(
    inn: Inn, tmp_path: Path
) -> None:
    seen: list[Any] = []
    async with answering_over_tls(tmp_path) as url:
        nwp = {"node": [{"rel": "far", "url": url}], "allow_nodes": [url]}
        settings: dict[str, Any] = {"allow_hosts": ["127.0.0.1"], "nwp": nwp}
        async with inn(**settings) as parts, asking(replace(parts, record=seen.append)) as client:
            unknown = [(await asked(client))["graph"][-1] for _ in range(3)]
        async with inn(**settings, ca_file=str(tmp_path / "ca.pem")) as parts, asking(parts) as client:
            trusted = (await asked(client))["graph"][-1]

    assert {told(entry) for entry in unknown} == {"NWP-NODE-UNAVAILABLE"}
    (event,) = [event for event in seen if isinstance(event, UnexpectedError)]
    assert event.error.startswith("127.0.0.1 was not reached: TLS: the certificate is not trusted: self-signed")
    assert "TLS" not in json.dumps(unknown)
    assert trusted["data"] == CAPSULE


@requirement("nwp:graph:allowlist")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/nwp/shop", True),
        ("https://A.example:443/nwp/shop/", True),
        ("nwp://a.example:443/shop", True),
        ("https://a.example/nwp/shopping", False),
        ("https://a.example/nwp", False),
        ("https://a.example.evil/nwp/shop", False),
        ("https://a.example@evil.example/nwp/shop", False),
        ("https://a.example:444/nwp/shop", False),
        ("http://a.example/nwp/shop", False),
        ("https://a.example/nwp/shop/../bank", False),
        ("https://a.example/nwp/shop/%2e%2e/bank", False),
        ("https://a.example/nwp/shop?x=1", False),
        ("https://a.example:x/nwp/shop", False),
    ],
)
def test_addresses_are_compared_host_by_host_and_step_by_step(url: str, expected: bool) -> None:
    assert is_allowed(url, ["https://a.example/nwp/shop"]) is expected


def test_an_address_of_nwp_means_tls_on_the_same_port() -> None:
    assert http_address_of("nwp://shop.example/products") == "https://shop.example:17433/nwp/products"
    assert http_address_of("nwp://[2001:db8::1]:8443/products/") == "https://[2001:db8::1]:8443/nwp/products"
