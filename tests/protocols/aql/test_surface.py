"""Which operations MCP-AQL offers to whom, in which tool, and what becomes of those of the catalog."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from mcp import Client
from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import Guest, Visit
from tests.protocols.conftest import Inn, key_of

from portico.access.budget import find_tokenizer
from portico.access.identity import RequestCredentials
from portico.catalog import Danger
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.surface import PROFILES, OperationRegistry
from portico.protocols.mcp.server import make_server
from portico.requests import Caller
from portico.server.assembly import Parts

DOINGS = """
import msgspec

from portico.errors import Conflict
from portico.operations import Context, operation


@operation(kind="update")
async def move_guest(context: Context, guest: str, toRoom: str, luggage: int = 1) -> dict[str, str]:
    "Move a guest."
    return {"guest": guest, "room": toRoom, "luggage": str(luggage)}


@operation(kind="execute", long=True)
async def clean(context: Context, room: str) -> str:
    "Clean a room."
    if room == "locked":
        raise Conflict("The room is locked")
    return f"{room} is clean"
"""
COMPANY = """
from typing import Annotated

from msgspec import Meta

from portico.operations import Context, operation

KINDS = {"create": "create", "get": "read", "list": "read", "update": "update", "archive": "execute"}
THINGS = "invoice order ticket contract supplier payment campaign asset shift audit".split()


def made(verb, thing):
    async def run(
        context: Context,
        title: Annotated[str, Meta(description="What it is called, in a line")],
        amount: Annotated[float, Meta(description="In the currency of the account")] = 0.0,
        due_date: Annotated[str, Meta(description="The day it is due, as in 2026-12-05")] = "",
        notify: Annotated[bool, Meta(description="Whether to tell everybody")] = False,
    ) -> str:
        return title

    run.__doc__ = f"{verb.capitalize()} one {thing} of the company, and tell when and by whom."
    return operation(kind=KINDS[verb], name=f"{verb}_{thing}")(run)


globals().update({f"{verb}_{thing}": made(verb, thing) for verb in KINDS for thing in THINGS})
"""
EVERYTHING = Caller("key:owner", "owner", frozenset({"ask", "*:*"}), danger=Danger.DANGEROUS)
LOOP = {
    "execute_agent",
    "record_execution_step",
    "complete_execution",
    "abort_execution",
    "confirm_operation",
    "list_pending_approvals",
    "verify_challenge",
    "get_execution_status",
}


def surface(parts: Parts, **settings: Any) -> OperationRegistry:
    aql = msgspec.convert(settings, AqlSettings)
    return OperationRegistry(parts.site, parts.config.with_section(aql))


def named(said: str) -> set[str]:
    """The names of operations in a description, with {a,b}_{c,d} written out."""
    names = said.split(": ", 1)[1].split(". ", maxsplit=1)[0]
    return {name for told in names.split(", ") for name in _written_out(told)}


def _written_out(told: str) -> Iterator[str]:
    parts = [part.strip("{}").split(",") for part in re.findall(r"\{[^}]*\}|[^{}]+", told)]
    return map("".join, product(*parts))


async def listed(guest: Guest) -> dict[str, Any]:
    said = await guest.say({"operation": "introspect", "params": {"query": "operations"}})
    return {each["name"]: each for each in said["data"]["operations"]}


# Families and tools


@requirement("aql:route:one-family", "aql:route:profiles", "aql:route:descriptions")
async def test_in_every_profile_each_operation_is_in_one_family_whose_tool_names_it(parts: Parts) -> None:
    for profile in PROFILES:
        shown = surface(parts, profile=profile)
        offered = shown.operations_for(EVERYTHING)
        said = shown.tool_descriptions(EVERYTHING)
        by_family = {family: named(said[shown.tool_of(family)]) for family in shown.families()}

        assert list(said) == [*map(shown.tool_of, shown.families()), "mcp_aql"]
        assert sum(map(len, by_family.values())) == len(offered)
        assert all(each.name in by_family[shown.family_of(each)] for each in offered.values())
        assert all(each.kind in shown.kinds_of(shown.family_of(each)) for each in offered.values())
        assert named(said["mcp_aql"]) == offered.keys()


async def test_profiles_spread_the_operations_as_their_names_say(parts: Parts) -> None:
    verbs = ("list_rooms", "create_room", "update_room", "delete_room", "run_workflow")
    some = ("introspect", "query_relationships", *verbs)
    spread = {
        profile: [shown.family_of(shown.operations_for(EVERYTHING)[name]) for name in some]
        for profile in PROFILES
        for shown in [surface(parts, profile=profile)]
    }

    assert spread == {
        "crude": ["read", "read", "read", "create", "update", "delete", "execute"],
        "operate": ["discover", "discover", "query", "manage", "manage", "manage", "operate"],
        "publish": ["search", "search", "search", "curate", "curate", "publish", "publish"],
    }


@requirement("aql:route:descriptions")
async def test_every_tool_tells_how_to_begin(parts: Parts) -> None:
    said = surface(parts, prefix="inn_").tool_descriptions()

    start = '{"operation":"introspect","params":{"query":"operations"}}'
    assert {name for name, text in said.items() if start in text} == {"inn_read", "inn"}
    others = {name: text for name, text in said.items() if name not in {"inn_read", "inn"}}
    assert all("introspect (via inn_read)" in text for text in others.values())
    assert said["inn_delete"].endswith('Example: {"operation":"delete_room","params":{"id":"…"}}')


@requirement("aql:route:mode-setting")
async def test_modes_say_which_tools_there_are_and_where_an_operation_is_called(visit: Visit, parts: Parts) -> None:
    assert list(surface(parts, mode="semantic").tool_descriptions()) == [
        f"mcp_aql_{each}" for each in ("create", "read", "update", "delete", "execute")
    ]
    assert list(surface(parts, mode="single").tool_descriptions()) == ["mcp_aql"]
    assert surface(parts, mode="none").tool_descriptions() == {}
    async with visit(aql={"mode": "single"}) as guest:
        wanted = {"query": "operations", "name": "get_room"}
        told = (await guest.say({"operation": "introspect", "params": wanted}))["data"]["operation"]

    assert (told["endpoint"], told["mcpTool"]) == ("read", "mcp_aql")


# Who is offered what


@requirement("aql:introspect:visible")
async def test_a_caller_is_offered_what_it_has_the_scope_for_whatever_it_may_risk(parts: Parts, visit: Visit) -> None:
    shown = surface(parts)
    reader = shown.operations_for(Caller(scopes=frozenset({"read:rooms"})))
    nobody = shown.operations_for(Caller(scopes=frozenset({"read:cellars"})))
    cleaner = shown.operations_for(Caller(scopes=frozenset({"delete:rooms"}), danger=Danger.SAFE))

    assert {name for name in reader if "room" in name} == {"list_rooms", "search_rooms", "get_room", "count_rooms"}
    assert reader.keys() - nobody.keys() == {*(name for name in reader if "room" in name), "query_relationships"}
    assert "delete_room" in cleaner
    assert shown.all_operations().keys() > reader.keys() | cleaner.keys()
    async with visit(as_owner=False) as guest:
        guest.key = await key_of(guest.parts, "delete:rooms")
        refused = await guest.error({"operation": "delete_room", "params": {"id": "attic"}})
    assert refused["code"] == "PERMISSION_DANGER_LEVEL_DENIED"


async def test_what_is_offered_follows_the_catalog(parts: Parts) -> None:
    shown = surface(parts)
    before = shown.operations_for(EVERYTHING)

    assert shown.operations_for(EVERYTHING) is before
    await parts.store.collections.declare(parts.config.collection("Bar-Stools"))

    new = {"list_bar_stools", "search_bar_stools", "count_bar_stools"}
    new |= {f"{verb}_bar_stool" for verb in ("get", "create", "update", "delete")}
    assert shown.operations_for(EVERYTHING).keys() - before.keys() == new
    assert list(shown.operations_for(EVERYTHING)) == sorted(shown.operations_for(EVERYTHING))


@requirement("aql:loop:safety-layer")
async def test_as_a_safety_layer_only_the_loop_is_offered(visit: Visit) -> None:
    async with visit(aql={"offers": "safety"}) as guest:
        assert (await listed(guest)).keys() == LOOP | {"introspect", "cancel_execution", "retry_execution"}


# What becomes of operations of the catalog


@requirement("aql:concurrency:etag", "aql:concurrency:if-match", "aql:concurrency:conflict")
async def test_an_item_carries_its_etag_and_an_update_with_an_old_one_is_refused(visit: Visit) -> None:
    async with visit() as guest:
        given = {"schema_type": "Suite", "name": "Tower"}
        made = (await guest.say({"operation": "create_room", "params": {"input": given}}))["data"]
        params = {"id": made["id"], "input": {"beds": 3}, "fields": ["beds", "_etag"], "if_match": made["_etag"]}
        update = {"operation": "update_room", "params": params}
        once = await guest.say(update)
        again = await guest.say(update)
        params["if_match"] = once["data"]["_etag"].removeprefix('W/"').removesuffix('"')
        plain = await guest.say(update)
        stored = await guest.parts.store.items.get("rooms", made["id"])

    assert made == {
        "id": made["id"],
        "schema_type": "Suite",
        "name": "Tower",
        "_version": made["_version"],
        "_etag": f'W/"{made["_version"]}"',
    }
    assert once["data"].keys() == {"id", "beds", "_etag"}
    assert (again["success"], again["error"]["code"]) == (False, "CONFLICT_VERSION_MISMATCH")
    assert plain["success"]
    assert stored is not None
    assert stored.data == {"@type": "Suite", "name": "Tower", "beds": 3}


@requirement("aql:request:nothing-happened")
async def test_fields_that_are_not_there_are_refused_before_anything_is_written(visit: Visit) -> None:
    async with visit() as guest:
        wanted = {"id": "attic", "input": {"beds": 9}, "fields": ["dragons"]}
        refused = await guest.error({"operation": "update_room", "params": wanted})
        stored = await guest.parts.store.items.get("rooms", "attic")

    assert "dragons" in refused["message"]
    assert stored is not None
    assert stored.data["beds"] == 2


@requirement("aql:update:unknown-field", "aql:update:input")
async def test_an_update_of_the_sites_own_takes_what_changes_in_input(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "housework.py").write_text(DOINGS)
    async with visit(operations=["housework.py"]) as guest:
        moved = await guest.say({"operation": "move_guest", "params": {"guest": "Ann", "input": {"to_room": "attic"}}})
        flat = await guest.error({"operation": "move_guest", "params": {"guest": "Ann", "to_room": "attic"}})
        wrong = await guest.error({"operation": "move_guest", "params": {"guest": "Ann", "input": {"to": "attic"}}})

    assert moved["data"] == {"guest": "Ann", "room": "attic", "luggage": "1"}
    assert (flat["code"], flat["details"]["valid_params"]) == (
        "VALIDATION_UNKNOWN_PARAM",
        ["input", "guest", "confirmation_token"],
    )
    assert (wrong["code"], wrong["details"]["valid"]) == ("VALIDATION_UNKNOWN_FIELD", ["to_room", "luggage"])


@requirement("aql:lifecycle:error")
async def test_long_work_is_an_execution_that_ends_with_its_result_or_an_error_of_this_protocol(
    visit: Visit, tmp_path: Path
) -> None:
    (tmp_path / "housework.py").write_text(DOINGS)

    async def ended(guest: Guest, room: str) -> tuple[dict[str, Any], dict[str, Any]]:
        begun = (await guest.say({"operation": "clean", "params": {"room": room}}))["data"]
        owner = await guest.parts.site.access.authenticate(RequestCredentials(guest.key))
        await guest.parts.site.tasks.wait(begun["execution_id"], owner, 20)
        asked = {"operation": "get_execution_status", "params": {"execution_id": begun["execution_id"]}}
        return begun, (await guest.say(asked))["data"]

    async with visit(operations=["housework.py"]) as guest:
        begun, done = await ended(guest, "attic")
        _, failed = await ended(guest, "locked")

    assert begun["status"] in {"pending", "running"}
    assert {"execution_id", "started_at", "progress"} <= begun.keys()
    assert (done["status"], done["result"]) == ("completed", "attic is clean")
    assert (failed["status"], failed["error"]["message"]) == ("failed", "The room is locked")
    assert failed["error"]["code"].startswith("CONFLICT_")


# What tools cost


@requirement("aql:level:cost")
async def test_with_fifty_operations_five_tools_cost_a_seventh_and_one_a_twenty_fifth(inn: Inn, tmp_path: Path) -> None:
    (tmp_path / "company.py").write_text(COMPANY)
    counter = find_tokenizer("o200k_base")
    assert counter is not None
    cost: dict[str, int] = {}
    async with inn(operations=["company.py"], mcp={"operations": "all"}) as parts:
        server = make_server(parts.site, parts.config, parts.record, EVERYTHING)
        async with Client(server, cache=None) as client:
            tools = (await client.list_tools()).tools
    for tool in tools:
        told = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        cost[tool.name] = counter.count(msgspec.json.encode(told).decode())

    five = {name: each for name, each in cost.items() if name.startswith("mcp_aql_")}
    discrete = {name: each for name, each in cost.items() if name not in {*five, "mcp_aql", "ask", "await"}}
    assert (len(five), len(discrete) > 50) == (5, True)
    assert sum(five.values()) <= 0.15 * sum(discrete.values())
    assert cost["mcp_aql"] <= 0.04 * sum(discrete.values())
