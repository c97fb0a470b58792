"""What MCP-AQL says of itself. That its answers keep the closed structures, the client checks: see test_structures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import Guest, Visit
from tests.protocols.conftest import key_of

from portico.operations import schema_of
from portico.protocols.aql.schemas import snake_case
from portico.protocols.aql.shapes import AqlRequestContext
from portico.protocols.aql.surface import OperationRegistry
from portico.requests import Caller

DOINGS = '''
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from portico.operations import Context, operation


class Guest(msgspec.Struct):
    """Somebody who stays."""

    name: str
    age: Annotated[int, Meta(ge=0, le=120)] = 30


class Stay(msgspec.Struct):
    room: str
    guests: list[Guest]


class Room(msgspec.Struct):
    """Not one of the rooms."""

    number: int


@operation(kind="execute", long=True, attempts=2)
async def book_stay(
    context: Context,
    room: Annotated[str, Meta(min_length=1, description="Which room")],
    guests: list[Guest],
    mood: Literal["calm", "loud"] = "calm",
    nights: Annotated[int, Meta(ge=1, le=30)] = 1,
    price: Annotated[float, Meta(gt=0)] | None = None,
) -> Stay:
    "Book a room."
    return Stay(room, guests)


@operation(kind="read")
async def guess_room(context: Context, hints: Annotated[list[str] | int, Meta(description="Any")]) -> Room:
    "Guess a room."
    return Room(7)


@operation(kind="delete", danger="destructive")
async def close_inn(context: Context) -> None:
    "Close for good."
'''
ELSEWHERE = {
    "name": "trace_parcel",
    "url": "https://parcels.example/{parcelId}",
    "params": {"parcelId": {}, "X-Trace": {"location": "header", "required": False}, "2nd": {"type": "integer"}},
}
REQUIRED = {
    "SemanticCategory",
    "OperationInput",
    "OperationResult",
    "OperationSuccess",
    "OperationFailure",
    "EndpointPermissions",
}
EXTENSIONS = [
    *("batch", "queries", "paused", "invalid_state", "explanation"),
    *("aliases", "schema_names", "etags", "separate_approval"),
]
JSON_KINDS = {"string", "integer", "number", "boolean", "object", "array", "null", "any"}


async def introspect(guest: Guest, query: str, name: str = "") -> dict[str, Any]:
    """What an introspection gives. Its envelope has nothing besides."""
    named = {"name": name} if name else {}
    said = await guest.say({"operation": "introspect", "params": {"query": query, **named}})
    assert said.keys() == {"success", "data"}
    return said["data"]


async def all_details(guest: Guest, query: str, key: str) -> dict[str, dict[str, Any]]:
    """Everything that a list names, in full, by name."""
    names = [each["name"] for each in (await introspect(guest, query))[query]]
    batch = [{"operation": "introspect", "params": {"query": query, "name": name}} for name in names]
    said = await guest.say({"operations": batch})
    return dict(zip(names, (each["result"]["data"][key] for each in said["results"]), strict=True))


def named_types(parameters: list[dict[str, Any]]) -> set[str]:
    inner = {each["items"]["type"] for each in parameters if "items" in each}
    return (inner | {each["type"] for each in parameters}) - JSON_KINDS


@requirement("aql:introspect:closed", "aql:introspect:protocol-types", "aql:introspect:parameters")
async def test_every_parameter_and_every_type_that_is_named_is_told(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "doings.py").write_text(DOINGS)
    async with visit(operations=["doings.py"], operation=[ELSEWHERE], aql={"batch": 1000}) as guest:
        operations = await all_details(guest, "operations", "operation")
        types = await all_details(guest, "types", "type")
        catalog = guest.parts.site.catalog

    told = {name for each in operations.values() for name in named_types(each["parameters"])}
    told |= {each["returns"]["name"] for each in operations.values()}
    told |= {name for each in types.values() for name in named_types(each.get("fields", []))}
    told |= {name for each in types.values() for name in each.get("members", [])} - JSON_KINDS
    assert told <= types.keys()
    assert {*REQUIRED, "AutonomyDirective", "AgentNotification", "SafetyTier", "Room", "RoomInput"} <= types.keys()

    # Every parameter that an operation takes is listed, beside `input` or in it.
    own = {name: each for name, each in catalog.operations.items() if name in operations and not each.collection}
    assert {"book_stay", "trace_parcel", "run_workflow", "execute_agent"} <= own.keys()
    for name, operation in own.items():
        schema = schema_of(operation.params)
        root = schema.get("$defs", {}).get(schema.get("$ref", "").rsplit("/", 1)[-1], schema)
        assert {snake_case(each) for each in root["properties"]} <= {
            each["name"] for each in operations[name]["parameters"]
        }


@requirement("aql:lifecycle:introspection", "aql:introspect:type")
async def test_parameters_are_told_with_their_bounds_and_structures_become_types(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "doings.py").write_text(DOINGS)
    async with visit(operations=["doings.py"], operation=[ELSEWHERE]) as guest:
        stay = (await introspect(guest, "operations", "book_stay"))["operation"]
        guess = (await introspect(guest, "operations", "guess_room"))["operation"]
        parcel = (await introspect(guest, "operations", "trace_parcel"))["operation"]
        closing = (await introspect(guest, "operations", "close_inn"))["operation"]
        guests = (await introspect(guest, "types", "Guest"))["type"]
        choice = (await introspect(guest, "types", "Hints"))["type"]
        room = (await introspect(guest, "types", "Room"))["type"]
        other = (await introspect(guest, "types", "GuessRoomRoom"))["type"]

    token = {
        "name": "confirmation_token",
        "type": "string",
        "required": False,
        "description": "From CONFIRMATION_REQUIRED, once somebody else has approved the call",
    }
    assert stay == {
        "name": "book_stay",
        "semantic_category": "EXECUTE",
        "endpoint": "execute",
        "mcpTool": "mcp_aql_execute",
        "description": "Book a room.\nSimilar to execute, under this site's own name.\n"
        "Runs as an execution: get_execution_status returns its status, and finally its Stay.",
        "permissions": {"readOnly": False, "destructive": True},
        "parameters": [
            {"name": "room", "type": "string", "required": True, "description": "Which room", "minLength": 1},
            {"name": "guests", "type": "array", "required": True, "items": {"type": "Guest"}},
            {"name": "mood", "type": "string", "required": False, "default": "calm", "enum": ["calm", "loud"]},
            {"name": "nights", "type": "integer", "required": False, "default": 1, "minimum": 1, "maximum": 30},
            {"name": "price", "type": "number", "required": False, "default": None, "description": "above 0"},
            token,
        ],
        "returns": {
            "name": "ExecutionInfo",
            "kind": "object",
            "description": "The state of an execution (MCP-AQL 8.4.3).",
        },
        "lifecycle": {
            "states": ["pending", "running", "completed", "failed", "cancelled"],
            "supports_cancel": True,
            "supports_retry": True,
            "progress_reporting": True,
        },
    }
    assert guests == {
        "name": "Guest",
        "kind": "object",
        "description": "Somebody who stays.",
        "fields": [
            {"name": "name", "type": "string", "required": True},
            {"name": "age", "type": "integer", "required": False, "default": 30, "minimum": 0, "maximum": 120},
        ],
    }
    assert guess["parameters"] == [{"name": "hints", "type": "Hints", "required": True, "description": "Any"}]
    assert sorted(choice["members"]) == ["array", "integer"]
    assert [each["name"] for each in parcel["parameters"]] == ["parcel_id", "x_trace", "p_2nd"]
    assert closing["description"].endswith("Danger: destructive; somebody else may have to approve it.")
    assert (closing["returns"]["name"], guess["returns"]["name"]) == ("Null", "GuessRoomRoom")
    # The items of the site keep their name; a structure of the same name gets that of its operation.
    assert {"beds", "schema_type", "_etag"} <= {each["name"] for each in room["fields"]}
    assert [each["name"] for each in other["fields"]] == ["number"]


@requirement("aql:introspect:unknown-name", "aql:introspect:unknown-query")
async def test_what_there_is_not_is_null_and_another_query_is_refused(visit: Visit) -> None:
    async with visit() as guest:
        assert await introspect(guest, "operations", "fly_away") == {"operation": None}
        assert await introspect(guest, "types", "Dragon") == {"type": None}
        refused = await guest.say({"operation": "introspect", "params": {"query": "weather"}})

    assert refused["error"]["code"] == "VALIDATION_INVALID_TYPE"
    assert refused["error"]["message"] == (
        "Parameter 'query' out of range. "
        "Expected: one of 'operations', 'types', 'adapter_info', 'quota_status', 'policies'"
    )
    assert refused.keys() == {"success", "error"}


@requirement(
    "aql:introspect:protocol",
    "aql:introspect:capabilities",
    "aql:limits:published",
    "aql:limits:configurable",
    "aql:concurrency:metadata",
    "aql:concurrency:documented",
    "aql:session:identifier",
    "aql:loop:capability",
    "aql:stage:documented",
)
async def test_the_protocol_is_told_with_its_limits_and_the_bounds_of_the_loop(visit: Visit) -> None:
    aql = {"profile": "publish", "depth": 16, "page": 5, "most": 50, "batch": 7}
    safety = {"mode": "monitoring", "steps": 9, "tolerance": "conservative", "deny": ["boil_*"], "auto": []}
    async with visit(aql=aql, safety=safety) as guest:
        told = (await introspect(guest, "operations"))["_protocol"]
        asked = OperationRegistry(guest.parts.site, guest.parts.config).all_operations()["introspect"]
        in_session = await asked.run({"query": "operations"}, AqlRequestContext(Caller(), session="s1"))

    assert in_session.data["_protocol"] == {**told, "session_id": "s1"}
    assert told == {
        "version": "1.0.0-draft",
        "conformance": "level-2",
        "mode": "all",
        "profile": "publish",
        "endpoint_modes": ["publish", "single"],
        "capabilities": {
            "batch": True,
            "field_selection": True,
            "aggregations": True,
            "computed_fields": True,
            "pagination": True,
            "relationship_queries": True,
            "warnings": True,
            "confirmation": True,
            "dangerous_operations": True,
            "execution_safety_loop": "monitoring",
        },
        "limits": {
            "max_request_size": 1_048_576,
            "max_response_size": 10_485_760,
            "max_string_length": 1_048_576,
            "max_array_elements": 10_000,
            "max_nesting_depth": 16,
            "max_batch_size": 7,
            "default_page_size": 5,
            "max_page_size": 50,
        },
        "concurrency": "resource-locked",
        "supports_etag": True,
        "max_concurrent_requests": 2000,
        "safety": {
            "max_autonomous_steps": 9,
            "window_seconds": 3600.0,
            "risk_tolerance": "conservative",
            "tiers": ["advisory", "confirm", "verify", "danger_zone"],
            "patterns": {"deny": 1, "requires_approval": 8, "auto_approve": 0},
        },
        "extensions": EXTENSIONS,
    }


@requirement(
    "aql:introspect:policies",
    "aql:rate:quota-status",
    "aql:encoding:date-zone",
    "aql:encoding:numbers-documented",
    "aql:encoding:binary",
    "aql:encoding:null-documented",
    "aql:encoding:duplicate-keys",
    "aql:level:extensions",
    "aql:class:documented",
    "aql:lifecycle:triggers",
    "aql:lifecycle:extensions",
)
async def test_policies_quotas_and_conventions_have_queries_of_their_own(visit: Visit) -> None:
    rules = [
        {"operation": "delete_*", "decision": "confirm", "reason": "Rooms are dear"},
        {"operation": "create_room", "decision": "deny", "when": {"id": "13"}},
    ]
    async with visit(safety={"policy": rules}, limits={"keys_per_minute": 20}) as guest:
        policies = {each["operation"]: each for each in (await introspect(guest, "policies"))["policies"]}
        one = (await introspect(guest, "policies", "get_room"))["policies"]
        quota = (await introspect(guest, "quota_status"))["quota_status"]
        timid = replace(guest, key=await key_of(guest.parts, "*:*"))
        (risky,) = (await introspect(timid, "policies", "update_room"))["policies"]
        adapter = (await introspect(guest, "adapter_info"))["adapter"]

    assert policies["delete_room"] == {
        "operation": "delete_room",
        "danger": "destructive",
        "permitted": True,
        "decision": "confirm",
        "rules": [{"decision": "confirm", "reason": "Rooms are dear", "conditional": False}],
    }
    assert policies["create_room"]["decision"] == "allow"  # as long as the condition does not hold
    assert policies["create_room"]["rules"] == [{"decision": "deny", "reason": "", "conditional": True}]
    harmless = {"operation": "get_room", "danger": "safe", "permitted": True, "decision": "allow", "rules": []}
    assert policies["get_room"] == harmless
    assert (risky["permitted"], risky["decision"]) == (False, "allow")
    assert one == [policies["get_room"]]
    assert (quota["status"], quota["limit"], quota["remaining"]) == ("ok", 20, 17)
    assert adapter["conventions"].keys() == {"dates", "numbers", "binary", "null", "duplicates", "content"}
    assert adapter["classification"].keys() == {"CREATE", "READ", "UPDATE", "DELETE", "EXECUTE"}
    assert list(adapter["lifecycle"]) == ["pending", "running", "paused", "completed", "failed", "cancelled"]
    assert list(adapter["extensions"]) == EXTENSIONS


@requirement("aql:loop:capability", "aql:loop:disabled")
async def test_the_loop_is_told_only_where_there_is_one(visit: Visit) -> None:
    async with visit(safety={"mode": "disabled"}) as guest:
        told = await introspect(guest, "operations")

    names = {each["name"] for each in told["operations"]}
    assert names.isdisjoint({"execute_agent", "record_execution_step", "complete_execution", "abort_execution"})
    assert told["_protocol"]["capabilities"]["execution_safety_loop"] == "disabled"
