"""What nodes say of themselves: manifests, actions and schemas, and which schema a question means."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import ROOMS, Inn, asking, key_of
from tests.protocols.nwp.conftest import serving

from portico.catalog import anchor_of
from portico.protocols.nwp.frames import AnchorFrame, CapsFrame, EncodingTier, QueryFrame, decode, encode
from portico.server.assembly import Parts
from portico.store.records import Put

OWN = '''
import datetime
from typing import Annotated, Literal
import msgspec
from portico.operations import Context, operation

class Place(msgspec.Struct):
    name: str
    above: "Place | None" = None

@operation(kind="execute", danger="safe", long=True, idempotent=True, timeout=2.5)
async def paint_house(context: Context, colour: str, coats: int = 1) -> dict[str, object]:
    """Paint the house."""
    return {"colour": colour, "coats": coats}

@operation(kind="read", danger="safe")
async def find_rooms(
    context: Context,
    kind: Literal["big", "small"],
    since: Annotated[datetime.datetime, msgspec.Meta(tz=True)],
    most: int | None,
    price: float = 1.0,
    near: Place | None = None,
    names: list[str] = [],
) -> list[Place]:
    """Rooms."""
    return []

@operation(kind="execute", danger="safe")
async def fill_jug(context: Context, jug: dict[str, object]) -> dict[str, object]:
    """Fill a jug."""
    jug["inside"]["litres"] += 1
    return jug

@operation(kind="read", danger="safe")
async def tell_time(context: Context) -> dict[str, object]:
    """The time in the house."""
    return {"now": datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC), "hours": [1, 2.5], "price": 12.5}
'''
SETTINGS: dict[str, Any] = {"operations": ["own.py"], "anonymous": {"scopes": ["ask", "read:*", "execute:*"]}}
ADDRESS = "nwp://inn.example:17433"
SUPERVISION = {
    *("execute_agent", "record_execution_step", "complete_execution", "abort_execution"),
    *("get_execution_status", "cancel_execution", "retry_execution", "confirm_operation", "verify_challenge"),
    "list_pending_approvals",
}


@pytest.fixture
async def parts(inn: Inn, tmp_path: Path) -> AsyncIterator[Parts]:
    (tmp_path / "own.py").write_text(OWN)
    async with inn(**SETTINGS) as parts:
        yield parts


async def manifest(client: httpx.AsyncClient, node: str) -> dict[str, Any]:
    answer = await client.get(f"/nwp/{node}/.nwm")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/nwp-manifest+json")
    return answer.json()


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["status"], answer.json()["error"]


# Manifests


@requirement(
    "nwp:manifest:required",
    "nwp:manifest:optional",
    "nwp:manifest:node-id",
    "nwp:manifest:wire-formats",
    "nwp:manifest:capabilities",
    "nwp:manifest:rate-limits",
    "nwp:manifest:endpoints",
    "nwp:media:manifest",
    "nwp:nodes:types",
)
async def test_a_memory_node_says_what_it_is(client: httpx.AsyncClient) -> None:
    said = await manifest(client, "rooms")

    version = said.pop("manifest_version")
    assert isinstance(version, str)
    assert said == {
        "nwp": "0.4",
        "node_id": "urn:nps:node:inn.example:rooms",
        "node_type": "memory",
        "display_name": "rooms",
        "wire_formats": ["ncp-capsule", "msgpack", "json"],
        "preferred_format": "ncp-capsule",
        "schema_anchors": {"rooms": (await client.get("/nwp/rooms/.schema")).json()["anchor_id"]},
        "capabilities": {
            "query": True,
            "stream_query": True,
            "aggregate": True,
            "subscribe": True,
            "subscribe_filter": True,
            "vector_search": False,
            "token_budget_hint": True,
            "ext_frame": True,
            "e2e_enc": False,
            "inline_anchor": True,
        },
        "data_sources": ["collection:rooms"],
        "auth": {"required": False, "identity_type": "none"},
        "rate_limits": {"requests_per_minute": 600, "max_concurrent_streams": 32, "max_subscriptions": 20},
        "endpoints": {
            "query": f"{ADDRESS}/rooms/query",
            "stream": f"{ADDRESS}/rooms/stream",
            "subscribe": f"{ADDRESS}/rooms/subscribe",
            "schema": f"{ADDRESS}/rooms/.schema",
        },
        "tokenizer_support": ["cl100k_base", "o200k_base"],
    }


@requirement("nwp:manifest:actions", "nwp:manifest:action-spec", "nwp:http:actions", "nwp:nodes:types", "nwp:nodes:url")
async def test_an_action_node_lists_what_can_be_done(client: httpx.AsyncClient) -> None:
    said = await manifest(client, "operations")

    assert (said["node_type"], said["schema_anchors"], said["data_sources"]) == ("action", {}, [])
    assert [name for name, is_there in said["capabilities"].items() if is_there] == ["ext_frame"]
    assert said["endpoints"] == {
        "invoke": f"{ADDRESS}/operations/invoke",
        "actions": f"{ADDRESS}/operations/actions",
        "schema": f"{ADDRESS}/operations/.schema",
    }
    spec = said["actions"]["site.paint_house"]
    anchors = {name: spec.pop(name) for name in ("params_anchor", "result_anchor")}
    assert spec == {
        "description": "Paint the house.",
        "async": True,
        "idempotent": True,
        "timeout_ms_default": 2500,
        "timeout_ms_max": 300_000,
        "required_capability": "nwp:invoke",
    }
    shown = await client.get("/nwp/operations/.schema", params={"anchor": anchors["params_anchor"]})
    assert shown.json()["schema"] == {
        "fields": [{"name": "colour", "type": "string"}, {"name": "coats", "type": "int64", "nullable": True}]
    }
    listed = (await client.get("/nwp/operations/actions")).json()
    assert listed == {
        "node_id": "urn:nps:node:inn.example:operations",
        "actions": (await manifest(client, "operations"))["actions"],
    }


@requirement("nwp:manifest:actions", "nwp:nodes:types", "nwp:manifest:action-spec")
async def test_every_action_that_is_listed_can_be_invoked_and_no_other(client: httpx.AsyncClient) -> None:
    listed = {
        node: set((await manifest(client, node))["actions"])
        for node in ("rooms-operations", "operations", "gateway", "site")
    }
    own = {
        "site.ask",
        "site.create_memories",
        "site.forget_memories",
        "site.list_memories",
        "site.paint_house",
        "site.tell_time",
        "site.find_rooms",
        "site.fill_jug",
        *(f"site.{name}" for name in SUPERVISION),
    }
    rooms = {f"rooms.{verb}" for verb in ("list", "get", "search", "create", "update", "delete", "count")}
    system = {"system.task.status", "system.task.cancel"}
    assert listed == {
        "rooms-operations": rooms | system,
        "operations": own | system,
        "gateway": own | rooms | system | {"site.run_workflow"},
        "site": own | rooms | system,
    }
    for node, actions in listed.items():
        for action in rooms | own | system | {"rooms.nothing"}:
            answer = await client.post(f"/nwp/{node}/invoke", json={"action_id": action, "params": {"nobody": 1}})
            is_known = answer.json().get("error") != "NWP-ACTION-NOT-FOUND"
            assert is_known == (action in actions), (node, action, answer.text)


@requirement("nwp:manifest:endpoints", "nwp:nodes:types")
async def test_the_complex_node_leads_to_all_others(client: httpx.AsyncClient) -> None:
    said = await manifest(client, "site")

    assert said["node_type"] == "complex"
    assert said["graph"] == {"refs": [{"rel": "rooms", "node": f"{ADDRESS}/rooms"}], "max_depth": 5}
    assert set(said["endpoints"]) == {"query", "stream", "invoke", "subscribe", "actions", "schema"}
    assert said["schema_anchors"] == (await manifest(client, "rooms"))["schema_anchors"]
    gateway = await manifest(client, "gateway")
    assert (gateway["node_type"], set(gateway["endpoints"])) == ("gateway", {"invoke", "actions", "schema"})
    assert "graph" not in gateway


@requirement("nwp:nodes:url", "nwp:nodes:mount", "nwp:manifest:endpoints", "nwp:manifest:node-id")
async def test_addresses_have_the_port_that_the_node_listens_on(parts: Parts) -> None:
    async with serving(parts) as ports, httpx.AsyncClient() as client:
        for port in (ports.http, ports.native):
            said = (await client.get(f"http://127.0.0.1:{port}/nwp/rooms/.nwm")).json()
            assert said["endpoints"]["query"] == f"nwp://127.0.0.1:{ports.native}/rooms/query"
            assert said["node_id"] == "urn:nps:node:127.0.0.1:rooms"


@requirement("nwp:manifest:conditional", "nwp:manifest:conditional-forms")
async def test_who_knows_the_manifest_is_told_so(parts: Parts, client: httpx.AsyncClient) -> None:
    first = await client.get("/nwp/rooms/.nwm")
    version = first.json()["manifest_version"]
    assert first.headers["etag"] == f'"{version}"'
    assert first.headers["cache-control"] == "private, no-cache"

    listed = (f'"a", "{version}"', f"a, {version}", f'"a", {version}', f"a, W/{version}")
    for known in (version, f'"{version}"', f'W/"{version}"', f"W/{version}", *listed, "*"):
        again = await client.get("/nwp/rooms/.nwm", headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", f'"{version}"'), known
    for known in ("", "a", '"a"', f"{version}0", 'W/"a", "b"'):
        again = await client.get("/nwp/rooms/.nwm", headers={"if-none-match": known})
        assert (again.status_code, again.json()) == (200, first.json()), known

    await parts.store.items.write("rooms", [Put("tower", {"name": "The tower", "view": "sea"})])
    changed = await client.get("/nwp/rooms/.nwm", headers={"if-none-match": version})
    assert changed.status_code == 200
    assert changed.json()["manifest_version"] != version


@requirement("nwp:manifest:min-version-http", "nwp:errors:manifest-version-unsupported", "nwp:manifest:optional")
async def test_an_agent_that_is_too_old_is_refused_if_it_says_so(inn: Inn) -> None:
    async with inn(nwp={"min_version": "0.4"}) as parts, asking(parts) as client:
        assert (await manifest(client, "rooms"))["min_agent_version"] == "0.4"
        for version, status in {"0.3": 400, "0.4": 200, "0.10": 200, "1.0": 200, "0.4.1": 200, "old": 400}.items():
            answer = await client.post("/nwp/rooms/query", json={}, headers={"x-nwp-version": version})
            assert answer.status_code == status, version
        refused = await client.get("/nwp/rooms/.nwm", headers={"x-nwp-version": "0.3"})
        assert refusal(refused) == (400, "NPS-CLIENT-BAD-PARAM", "NWP-MANIFEST-VERSION-UNSUPPORTED")


@requirement("nwp:manifest:capabilities", "nwp:manifest:capability-off", "nwp:manifest:endpoints")
async def test_what_is_switched_off_is_neither_promised_nor_done(inn: Inn) -> None:
    without = {"without": ["query", "subscribe"]}
    async with inn(nwp=without) as parts, asking(parts) as client:
        said = await manifest(client, "rooms")
        assert [name for name, is_there in said["capabilities"].items() if is_there] == ["ext_frame"]
        assert set(said["endpoints"]) == {"schema"}
        subscribing = {"action": "subscribe", "stream_id": "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"}
        for below, body in {
            "query": {},
            "subscribe": {**subscribing, "anchor_ref": said["schema_anchors"]["rooms"]},
        }.items():
            answer = await client.post(f"/nwp/rooms/{below}", json=body)
            assert refusal(answer) == (404, "NPS-CLIENT-NOT-FOUND", "NPS-CLIENT-NOT-FOUND")


@requirement(
    "nwp:manifest:capabilities",
    "nwp:errors:query-stream-unsupported",
    "nwp:errors:query-aggregate-unsupported",
    "nwp:errors:query-vector-unsupported",
    "nwp:errors:subscribe-filter-unsupported",
)
async def test_what_is_asked_for_and_switched_off_has_a_code_of_its_own(inn: Inn) -> None:
    without = ["stream_query", "aggregate", "subscribe_filter", "vector_search"]
    async with inn(nwp={"without": without}) as parts, asking(parts) as client:
        said = await manifest(client, "rooms")
        assert [name for name, is_there in said["capabilities"].items() if is_there] == [
            "query",
            "subscribe",
            "token_budget_hint",
            "ext_frame",
            "inline_anchor",
        ]
        assert set(said["endpoints"]) == {"query", "subscribe", "schema"}
        subscribing = {"action": "subscribe", "stream_id": "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"}
        asked = {
            "NWP-QUERY-STREAM-UNSUPPORTED": ("stream", {}),
            "NWP-QUERY-AGGREGATE-UNSUPPORTED": (
                "query",
                {"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}]}},
            ),
            "NWP-QUERY-VECTOR-UNSUPPORTED": ("query", {"vector_search": {"vector": [1.0]}}),
            "NWP-SUBSCRIBE-FILTER-UNSUPPORTED": (
                "subscribe",
                {**subscribing, "anchor_ref": said["schema_anchors"]["rooms"], "filter": {}},
            ),
        }
        for error, (below, body) in asked.items():
            answer = await client.post(f"/nwp/rooms/{below}", json=body)
            assert refusal(answer) == (501, "NPS-SERVER-UNSUPPORTED", error)


@requirement(
    "nwp:manifest:auth", "nwp:manifest:open", "nwp:errors:status-auth", "nwp:identity:bearer", "nwp:security:cache"
)
async def test_a_node_that_wants_a_key_says_so_to_anybody(inn: Inn) -> None:
    async with inn(nwp={"auth": "bearer"}) as parts, asking(parts) as client:
        assert (await manifest(client, "rooms"))["auth"] == {"required": True, "identity_type": "bearer"}
        key = {"authorization": f"Bearer {await key_of(parts)}"}
        asked = [
            ("GET", "/nwp/rooms/.schema", None),
            ("GET", "/nwp/operations/actions", None),
            ("POST", "/nwp/rooms/query", {}),
            ("POST", "/nwp/rooms/stream", {}),
            ("POST", "/nwp/rooms-operations/invoke", {"action_id": "rooms.list"}),
        ]
        for method, path, body in asked:
            refused = await client.request(method, path, json=body)
            assert refusal(refused) == (401, "NPS-AUTH-UNAUTHENTICATED", "NWP-AUTH-NID-UNTRUSTED-ISSUER"), path
            assert refused.headers["www-authenticate"] == "Bearer"
            let_in = await client.request(method, path, json=body, headers=key)
            assert let_in.status_code == 200
            assert let_in.headers["cache-control"] in {"no-store", "no-cache"}
        assert (await client.get("/nwp/rooms/.nwm", headers=key)).headers["cache-control"] == "no-store"


@requirement("nwp:manifest:auth", "nwp:manifest:open", "nwp:identity:bare-name")
async def test_a_node_that_wants_a_certificate_says_whose(inn: Inn) -> None:
    settings = {
        "auth": "nip-cert",
        "issuers": ["https://ca.example"],
        "capabilities": ["ncp:stream"],
        "scope_check": "exact",
    }
    async with inn(nwp=settings) as parts, asking(parts) as client:
        demanded = {name: (await manifest(client, name))["auth"] for name in ("rooms", "operations")}
        agent = {"x-nwp-agent": "urn:nps:agent:ca.example:somebody"}
        refused = await client.post("/nwp/rooms/query", json={}, headers=agent)

    assert demanded["rooms"] == {
        "required": True,
        "identity_type": "nip-cert",
        "trusted_issuers": ["http://inn.example", "https://ca.example"],
        "required_capabilities": ["nwp:query", "ncp:stream"],
        "scope_check": "exact",
        "ocsp_url": "http://inn.example/v1/agents",
    }
    assert demanded["operations"]["required_capabilities"] == ["nwp:invoke", "ncp:stream"]
    assert refusal(refused) == (401, "NPS-AUTH-UNAUTHENTICATED", "NWP-AUTH-NID-UNTRUSTED-ISSUER")


# Schemas


@requirement("nwp:schema:fields", "nwp:anchors:id", "nwp:frames:anchor")
async def test_a_schema_lists_fields_with_types_and_meanings(client: httpx.AsyncClient) -> None:
    answer = await client.get("/nwp/rooms/.schema")

    said = answer.json()
    assert said == {
        "frame": "0x01",
        "anchor_id": anchor_of(said["schema"]),
        "schema": {
            "fields": [
                {"name": "id", "type": "string", "semantic": "entity.id"},
                {"name": "@type", "type": "string", "nullable": True},
                {"name": "name", "type": "string", "semantic": "entity.label", "nullable": True},
                {"name": "beds", "type": "int64", "nullable": True},
                {"name": "price", "type": "decimal", "nullable": True},
                {"name": "url", "type": "string", "nullable": True},
                {"name": "image", "type": "string", "nullable": True},
                {"name": "description", "type": "string", "semantic": "entity.description", "nullable": True},
            ]
        },
    }
    assert (answer.headers["content-type"], answer.headers["x-nwp-schema"]) == ("application/json", said["anchor_id"])


@requirement("nwp:schema:fields", "nwp:schema:preload")
async def test_what_an_action_takes_and_gives_is_described_as_records_are(client: httpx.AsyncClient) -> None:
    shown = {
        what: (await client.get("/nwp/operations/.schema", params={"anchor": f"site.find_rooms.{what}"})).json()[
            "schema"
        ]
        for what in ("params", "result")
    }
    assert shown == {
        "params": {
            "fields": [
                {"name": "kind", "type": "string"},
                {"name": "since", "type": "timestamp"},
                {"name": "most", "type": "int64", "nullable": True},
                {"name": "price", "type": "decimal", "nullable": True},
                {"name": "near", "type": "object", "nullable": True},
                {"name": "names", "type": "array", "nullable": True},
            ]
        },
        "result": {
            "fields": [{"name": "name", "type": "string"}, {"name": "above", "type": "object", "nullable": True}]
        },
    }


@requirement("nwp:schema:several", "nwp:body:encoding")
async def test_a_schema_is_a_frame_for_those_who_read_frames(client: httpx.AsyncClient) -> None:
    plain = (await client.get("/nwp/rooms/.schema")).json()
    for kind in ("application/nwp-capsule", "application/nwp-frame", "application/x-nps-frame"):
        framed = await client.get("/nwp/rooms/.schema", headers={"accept": kind})
        assert decode(framed.content) == AnchorFrame(anchor_id=plain["anchor_id"], schema=plain["schema"])
        assert framed.headers["content-type"].startswith("application/nwp-capsule;")
    in_json = await client.get("/nwp/rooms/.schema", headers={"accept": kind, "x-nwp-encoding": "json"})
    assert (in_json.content[:2].hex(), decode(in_json.content)) == ("0104", decode(framed.content))


@requirement("nwp:schema:several", "nwp:schema:preload", "nwp:anchors:constant")
async def test_every_schema_that_a_manifest_names_can_be_fetched(client: httpx.AsyncClient) -> None:
    for node in ("rooms", "rooms-operations", "operations", "gateway", "site"):
        said = await manifest(client, node)
        named = dict(said["schema_anchors"])
        for action, spec in said.get("actions", {}).items():
            named |= {
                f"{action}.{what}": spec[f"{what}_anchor"] for what in ("params", "result") if f"{what}_anchor" in spec
            }
        first = (await client.get(f"/nwp/{node}/.schema")).json()["anchor_id"]
        assert first == next(iter(named.values()))
        for name, id in named.items():
            for wanted in (name, id):
                shown = (await client.get(f"/nwp/{node}/.schema", params={"anchor": wanted})).json()
                assert shown["anchor_id"] == id == anchor_of(shown["schema"]), (node, wanted)


@requirement("nwp:anchors:unknown", "nwp:schema:several")
async def test_a_schema_that_nobody_published_is_not_found(client: httpx.AsyncClient) -> None:
    for wanted in ("nothing", "sha256:" + "0" * 64, "site.paint_house.params", "sha256:a\0b", "x" * 5000):
        answer = await client.get("/nwp/rooms/.schema", params={"anchor": wanted})
        assert refusal(answer) == (404, "NPS-CLIENT-NOT-FOUND", "NCP-ANCHOR-NOT-FOUND")


# Which schema a question means


async def widen(parts: Parts) -> None:
    await parts.store.items.write("rooms", [Put("tower", {"name": "The tower", "view": "sea"})])


@requirement("nwp:anchors:absent")
async def test_a_question_without_a_schema_is_of_the_first(client: httpx.AsyncClient) -> None:
    anchor = (await manifest(client, "rooms"))["schema_anchors"]["rooms"]
    for said in ({}, {"anchor_ref": None}, {"anchor_ref": ""}, {"anchor_ref": anchor}):
        for node in ("rooms", "site"):
            answer = (await client.post(f"/nwp/{node}/query", json={**said, "depth": 0})).json()
            assert (answer["anchor_ref"], answer["count"]) == (anchor, len(ROOMS))
            assert "inline_anchor" not in answer


@requirement("nwp:cursor:bound")
async def test_a_cursor_is_of_no_use_once_the_schema_has_changed(parts: Parts, client: httpx.AsyncClient) -> None:
    async def page(cursor: str | None) -> httpx.Response:
        return await client.post("/nwp/rooms/query", json={"limit": 1, "cursor": cursor})

    before = (await page(None)).json()["next_cursor"]
    assert (await page(before)).status_code == 200
    await widen(parts)
    late = await page(before)
    after = (await page(None)).json()["next_cursor"]

    assert refusal(late) == (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-CURSOR-INVALID")
    assert (await page(after)).status_code == 200


@requirement("nwp:anchors:stale-inline", "nwp:anchors:stale-refused", "nwp:anchors:constant")
async def test_who_knows_an_older_schema_is_sent_the_new_one(parts: Parts, client: httpx.AsyncClient) -> None:
    old = (await client.get("/nwp/rooms/.schema")).json()
    await widen(parts)
    new = (await client.get("/nwp/rooms/.schema")).json()

    for said in ({}, {"auto_anchor": True}, {"auto_anchor": None}):
        answer = await client.post("/nwp/rooms/query", json={"anchor_ref": old["anchor_id"], **said})
        assert (answer.json()["anchor_ref"], answer.headers["x-nwp-schema"]) == (new["anchor_id"], new["anchor_id"])
        assert answer.json()["inline_anchor"] == new
        assert answer.json()["count"] == len(ROOMS) + 1
    framed = encode(QueryFrame(anchor_ref=old["anchor_id"]), EncodingTier.MSGPACK)
    caps = decode((await client.post("/nwp/rooms/query", content=framed)).content)
    assert isinstance(caps, CapsFrame)
    assert caps.inline_anchor == AnchorFrame(anchor_id=new["anchor_id"], schema=new["schema"])

    refused = await client.post("/nwp/rooms/query", json={"anchor_ref": old["anchor_id"], "auto_anchor": False})
    assert refusal(refused) == (409, "NPS-CLIENT-CONFLICT", "NCP-ANCHOR-STALE")
    assert refused.json()["details"] == {"anchor_ref": old["anchor_id"], "current": new["anchor_id"]}
    assert (await client.get("/nwp/rooms/.schema", params={"anchor": old["anchor_id"]})).json() == old


@requirement("nwp:anchors:stale-inline", "nwp:anchors:stale-refused")
async def test_a_stream_brings_the_new_schema_in_its_first_frame(parts: Parts, client: httpx.AsyncClient) -> None:
    old = (await client.get("/nwp/rooms/.schema")).json()
    await widen(parts)
    new = (await client.get("/nwp/rooms/.schema")).json()

    answer = await client.post("/nwp/rooms/stream", json={"anchor_ref": old["anchor_id"], "limit": 1})
    current = await client.post("/nwp/rooms/stream", json={"anchor_ref": new["anchor_id"], "limit": 1})
    refused = await client.post("/nwp/rooms/stream", json={"anchor_ref": old["anchor_id"], "auto_anchor": False})

    first, *others = [json.loads(line) for line in answer.text.splitlines()]
    assert (first["anchor_ref"], first["inline_anchor"], len(first["data"])) == (new["anchor_id"], new, 1)
    assert len(others) == len(ROOMS)
    assert all("inline_anchor" not in each for each in others)
    assert "inline_anchor" not in current.text
    assert refusal(refused) == (409, "NPS-CLIENT-CONFLICT", "NCP-ANCHOR-STALE")


@requirement("nwp:anchors:unknown")
async def test_a_question_of_a_schema_that_nobody_published_is_refused(client: httpx.AsyncClient) -> None:
    action = (await manifest(client, "operations"))["actions"]["site.paint_house"]["params_anchor"]
    for reference in ("sha256:" + "0" * 64, "nothing", "nps:system:caps", action):
        for said in ({}, {"auto_anchor": False}):
            answer = await client.post("/nwp/rooms/query", json={"anchor_ref": reference, **said})
            assert refusal(answer) == (404, "NPS-CLIENT-NOT-FOUND", "NCP-ANCHOR-NOT-FOUND")


@requirement("nwp:anchors:stale-inline", "nwp:anchors:unknown")
async def test_schemas_that_two_collections_had_in_common_are_known_of_both(
    parts: Parts, client: httpx.AsyncClient
) -> None:
    await parts.store.collections.declare(parts.config.collection("barns"))
    await parts.store.items.write("barns", [Put(id, data) for id, data in ROOMS.items()])
    common = [(await manifest(client, node))["schema_anchors"][node] for node in ("rooms", "barns")]
    assert common[0] == common[1]

    await widen(parts)
    rooms = await client.post("/nwp/rooms/query", json={"anchor_ref": common[0]})
    barns = await client.post("/nwp/barns/query", json={"anchor_ref": common[0]})

    assert [each.status_code for each in (rooms, barns)] == [200, 200]
    assert ["inline_anchor" in each.json() for each in (rooms, barns)] == [True, False]
    other = await client.post("/nwp/barns/query", json={"anchor_ref": rooms.json()["anchor_ref"]})
    assert refusal(other) == (404, "NPS-CLIENT-NOT-FOUND", "NCP-ANCHOR-NOT-FOUND")


@requirement("nwp:anchors:stale-inline")
async def test_the_site_knows_the_older_schemas_of_all_its_collections(parts: Parts, client: httpx.AsyncClient) -> None:
    await parts.store.collections.declare(parts.config.collection("barns"))
    await parts.store.items.write("barns", [Put("red", {"name": "The red barn", "cows": 5})])
    old = (await manifest(client, "site"))["schema_anchors"]
    await widen(parts)
    await parts.store.items.write("barns", [Put("new", {"name": "The new barn", "hay": True})])
    new = (await manifest(client, "site"))["schema_anchors"]

    for name in ("rooms", "barns"):
        answer = (await client.post("/nwp/site/query", json={"anchor_ref": old[name], "depth": 0})).json()
        assert answer["anchor_ref"] == answer["inline_anchor"]["anchor_id"] == new[name] != old[name]


@requirement("nwp:anchors:unknown")
async def test_a_made_up_schema_is_looked_for_once_however_many_collections_there_are(
    parts: Parts, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("barns", "sheds"):
        await parts.store.collections.declare(parts.config.collection(name))
        await parts.store.items.write(name, [Put("first", {"name": name})])
    await manifest(client, "site")
    lookups: list[str] = []
    get_for_site = parts.site.notes.get_for_site

    async def record_lookup(name: str) -> bytes | None:
        lookups.append(name)
        return await get_for_site(name)

    monkeypatch.setattr(parts.site.notes, "get_for_site", record_lookup)
    answer = await client.post("/nwp/site/query", json={"anchor_ref": "sha256:" + "0" * 64})

    assert refusal(answer) == (404, "NPS-CLIENT-NOT-FOUND", "NCP-ANCHOR-NOT-FOUND")
    assert len(lookups) == 1


@requirement("nwp:anchors:stale-inline", "nwp:anchors:constant")
async def test_older_schemas_are_known_after_a_restart(inn: Inn, tmp_path: Path) -> None:
    stored = {"store": {"url": f"sqlite:///{tmp_path}/inn.db"}}
    async with inn(**stored) as parts, asking(parts) as client:
        old = (await client.get("/nwp/rooms/.schema")).json()
    async with inn(**stored) as parts, asking(parts) as client:
        await widen(parts)
        answer = await client.post("/nwp/rooms/query", json={"anchor_ref": old["anchor_id"]})
        assert answer.json()["inline_anchor"]["anchor_id"] != old["anchor_id"]
        assert (await client.get("/nwp/rooms/.schema", params={"anchor": old["anchor_id"]})).json() == old


# What actions give


@requirement("nwp:frames:same-object", "nwp:frames:caps")
async def test_what_an_action_gives_is_the_same_in_both_tiers(client: httpx.AsyncClient) -> None:
    body = {"action_id": "site.tell_time"}
    plain = await client.post("/nwp/operations/invoke", json=body)
    packed = await client.post(
        "/nwp/operations/invoke", json=body, headers={"x-nwp-encoding": "msgpack", "accept": "application/x-nps-frame"}
    )

    anchor = (await manifest(client, "operations"))["actions"]["site.tell_time"]["result_anchor"]
    caps = decode(packed.content)
    assert isinstance(caps, CapsFrame)
    assert plain.json()["data"] == caps.data == [{"now": "2026-05-01T12:00:00Z", "hours": [1, 2.5], "price": 12.5}]
    assert (plain.json()["count"], plain.json()["anchor_ref"], plain.headers["x-nwp-schema"]) == (1, anchor, anchor)


async def test_what_an_action_does_to_its_params_is_not_seen_by_the_next(client: httpx.AsyncClient) -> None:
    body = {"action_id": "site.fill_jug", "params": {"jug": {"inside": {"litres": 1}}}}
    answers = [(await client.post("/nwp/operations/invoke", json=body)).json()["data"] for _ in range(2)]
    assert answers == [[{"inside": {"litres": 2}}]] * 2


@requirement("nwp:http:task-status", "nwp:errors:status-ok")
async def test_a_task_is_looked_at_by_its_address(client: httpx.AsyncClient) -> None:
    body = {"action_id": "site.paint_house", "params": {"colour": "red"}, "async": True}
    begun = await client.post("/nwp/operations/invoke", json=body)
    assert begun.status_code == 202
    id, address = begun.json()["task_id"], begun.json()["poll_url"]
    assert address == f"{ADDRESS}/operations/actions/status/{id}"

    for node in ("operations", "site", "gateway"):
        shown = await client.get(f"/nwp/{node}/actions/status/{id}")
        asked = {"action_id": "system.task.status", "params": {"task_id": id}}
        told = (await client.post(f"/nwp/{node}/invoke", json=asked)).json()["data"][0]
        assert shown.status_code == 200
        assert {**shown.json(), "progress": 0, "status": "", "updated_at": "", "result": None} == {
            **told,
            "progress": 0,
            "status": "",
            "updated_at": "",
            "result": None,
        }
    unknown = await client.get("/nwp/operations/actions/status/nobody")
    assert refusal(unknown) == (404, "NPS-CLIENT-NOT-FOUND", "NWP-TASK-NOT-FOUND")


@requirement("nwp:body:paged")
async def test_a_framed_answer_stays_within_the_short_header(parts: Parts, client: httpx.AsyncClient) -> None:
    await parts.store.items.write("rooms", [Put(f"hall-{at:02}", {"name": "x" * 9000}) for at in range(10)])
    await parts.store.items.write("rooms", [Put("zoo", {"name": "x" * 70_000})])
    seen: list[str] = []
    extended: list[bool] = []
    query = QueryFrame(filter={"beds": {"$exists": False}}, order=None, fields=["id", "name"])
    cursor: str | None = ""
    while cursor is not None:
        raw = (
            await client.post("/nwp/rooms/query", content=encode(_with(query, cursor), EncodingTier.MSGPACK))
        ).content
        caps = decode(raw)
        assert isinstance(caps, CapsFrame)
        assert caps.count == len(caps.data)
        extended.append(bool(raw[1] & 0x80))
        seen += [each["id"] for each in caps.data]
        cursor = caps.next_cursor

    assert seen == [*(f"hall-{at:02}" for at in range(10)), "zoo"]
    assert extended == [False, False, True]
    bare = await client.post("/nwp/rooms/query", json={"filter": query.filter})
    assert bare.json()["count"] == 11


def _with(query: QueryFrame, cursor: str) -> QueryFrame:
    return QueryFrame(filter=query.filter, fields=query.fields, cursor=cursor or None)


async def test_who_names_two_hosts_does_not_decide_where_others_find_the_node(client: httpx.AsyncClient) -> None:
    two = [("host", "elsewhere.example"), ("host", "inn.example")]
    await client.get("/nwp/rooms/.nwm", headers=two)
    told = await client.get("/nwp/rooms/.nwm", headers={"host": "inn.example"})

    assert "elsewhere" not in told.text
    assert told.json()["node_id"] == "urn:nps:node:inn.example:rooms"
