"""Every answer of MCP-AQL keeps the closed structures: in every mode and profile, over HTTP and MCP, for every caller.

The clients validate each answer that they receive (see `check_answer`); what these tests do is ask for everything.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import msgspec
import pytest
from tests.conformance.aql_structures import CODES, DETAILS, STRUCTURES, check_answer, problems_in
from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import OWNER, Guest, Visit, owner_key
from tests.protocols.aql.test_introspection import DOINGS, ELSEWHERE
from tests.protocols.conftest import Inn, asking
from tests.protocols.mcp.conftest import CheckedClient, structured
from tests.safety.conftest import later

from portico.access.identity import RequestCredentials, make_key
from portico.catalog import Danger, Trust
from portico.errors import TokenExpired
from portico.protocols.aql.envelopes import Envelope, failure_result
from portico.protocols.mcp.server import make_server

FAMILIES = {
    "crude": ("create", "read", "update", "delete", "execute"),
    "operate": ("discover", "query", "manage", "operate"),
    "publish": ("search", "curate", "publish"),
}
MODES = ("semantic", "single", "all")
WRONG: tuple[Any, ...] = (None, True, -1, 7.5, "", "at home", [], [{}], {}, {"at home": {"$regex": "("}})
UNLIMITED = {"keys_per_minute": 1_000_000, "anonymous_per_minute": 1_000_000}
FITTING = {"id": "attic", "query": "operations", "root": {"element_type": "rooms", "element_name": "attic"}}
Answer: TypeAlias = dict[str, Any]
Say: TypeAlias = Callable[[dict[str, Any]], Awaitable[Answer]]


@dataclass
class Walk:
    """A walk through all that one endpoint tells of itself, and through all that can be wrong with a request."""

    say: Say
    operations: dict[str, Answer] = field(default_factory=dict[str, Answer])
    codes: set[str] = field(default_factory=set[str])
    count: int = 0

    async def ask(self, operation: str, /, **params: Any) -> Answer:
        answer = await self.say({"operation": operation, "params": params})
        self.count += 1
        if not answer["success"]:
            self.codes.add(answer["error"]["code"])
        return answer

    async def introspect(self) -> None:
        """Ask every query, without a name, with each known one, and with one that does not exist."""
        for query, key in (("operations", "operation"), ("types", "type")):
            names = [each["name"] for each in (await self.ask("introspect", query=query))["data"][query]]
            assert names
            for name in names:
                told = (await self.ask("introspect", query=query, name=name))["data"][key]
                assert told["name"] == name
                if query == "operations":
                    self.operations[name] = told
            assert (await self.ask("introspect", query=query, name="no_such_name"))["data"] == {key: None}
        for query in ("adapter_info", "quota_status", "policies"):
            await self.ask("introspect", query=query)
        for name in (*self.operations, "no_such_name"):
            await self.ask("introspect", query="policies", name=name)

    async def misuse(self) -> None:
        """Send every operation requests that do not fit it: nothing, something unknown, values of every type."""
        for wrong in WRONG:
            await self.ask("introspect", query=wrong)
            await self.ask("introspect", query="operations", name=wrong)
        await self.ask("introspect", surely_unknown=1)
        await self.ask("no_such_operation")
        for name, operation in self.operations.items():
            await self.ask(name, surely_unknown=1, **{"at home": 2})
            needed = _needed(operation)
            for parameter in operation["parameters"]:
                for wrong in WRONG if needed is not None else ():
                    await self.ask(name, **{**needed, parameter["name"]: wrong})


def _needed(operation: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a request needs besides a wrong parameter to go as far as it can; None if it could change something."""
    required = [each["name"] for each in operation["parameters"] if each["required"]]
    if operation["semantic_category"] == "READ" and operation["name"] != ELSEWHERE["name"]:
        return {name: FITTING.get(name, "x") for name in required}
    return {} if len(required) > 1 else None


@asynccontextmanager
async def opened(inn: Inn, folder: Path, **settings: Any) -> AsyncIterator[Guest]:
    (folder / "doings.py").write_text(DOINGS)
    more = {"operations": ["doings.py"], "operation": [ELSEWHERE], "limits": UNLIMITED}
    async with inn(**more, **settings) as parts, asking(parts) as client:
        yield Guest(parts, client, await owner_key(parts))


def over_http(guest: Guest, path: str) -> Say:
    async def say(request: dict[str, Any]) -> Answer:
        return await guest.say(request, path)

    return say


def over_mcp(client: CheckedClient, tool: str) -> Say:
    async def say(request: dict[str, Any]) -> Answer:
        return structured(await client.call_tool(tool, request))

    return say


@asynccontextmanager
async def connected(guest: Guest) -> AsyncIterator[CheckedClient]:
    parts = guest.parts
    caller = await parts.site.access.authenticate(RequestCredentials(guest.key))
    async with CheckedClient(make_server(parts.site, parts.config, parts.record, caller), cache=None) as client:
        yield client


@requirement("aql:introspect:closed", "aql:route:profiles", "aql:route:mode-setting", "aql:error:details")
@pytest.mark.parametrize("offers", ["all", "safety"])
@pytest.mark.parametrize("profile", list(FAMILIES))
@pytest.mark.parametrize("mode", MODES)
async def test_whatever_the_mode_and_the_profile_every_answer_keeps_the_structures(
    inn: Inn, tmp_path: Path, mode: str, profile: str, offers: str
) -> None:
    async with opened(inn, tmp_path, aql={"mode": mode, "profile": profile, "offers": offers}) as guest:
        whole = Walk(over_http(guest, "/aql"))
        await whole.introspect()
        for family in FAMILIES[profile]:
            part = Walk(over_http(guest, f"/aql/{family}"))
            for name, operation in whole.operations.items():
                answer = await part.ask(name, surely_unknown=1)
                is_own = operation["endpoint"] == family
                expected = "VALIDATION_UNKNOWN_PARAM" if is_own else "VALIDATION_ENDPOINT_MISMATCH"
                assert answer["error"]["code"] == expected
        async with connected(guest) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools if tool.name.startswith("mcp_aql")}
            named = {operation["mcpTool"] for operation in whole.operations.values()}
            for tool in tools:
                await over_mcp(client, tool)({"operation": "introspect", "params": {"query": "operations"}})
            single = Walk(over_mcp(client, whole.operations["introspect"]["mcpTool"]))
            await single.introspect()

    families = {f"mcp_aql_{family}" for family in FAMILIES[profile]}
    assert tools == {"semantic": families, "single": {"mcp_aql"}, "all": {*families, "mcp_aql"}}[mode]
    assert named <= tools
    assert single.operations == whole.operations
    assert whole.count > (20 if offers == "safety" else 100)


@requirement("aql:introspect:closed", "aql:introspect:visible", "aql:loop:capability", "aql:error:details")
@pytest.mark.parametrize("safety", ["enforcing", "monitoring", "logging", "disabled"])
async def test_whoever_asks_and_whatever_is_wrong_every_answer_keeps_the_structures(
    inn: Inn, tmp_path: Path, safety: str
) -> None:
    async with opened(inn, tmp_path, safety={"mode": safety, "start": "allow"}) as guest:
        walks = {name: Walk(over_http(one, "/aql")) for name, one in (await callers(guest)).items()}
        for walk in walks.values():
            await walk.introspect()
            await walk.misuse()

    assert walks["owner"].operations.keys() > walks["reader"].operations.keys()
    assert sum(walk.count for walk in walks.values()) > 3000
    assert {"VALIDATION_INVALID_TYPE", "VALIDATION_UNKNOWN_PARAM"} <= walks["owner"].codes
    assert "INTERNAL_ERROR" not in {code for walk in walks.values() for code in walk.codes}


async def callers(guest: Guest) -> dict[str, Guest]:
    """Everybody who may ask: with all rights, with few, with none, and not trusted."""

    async def keyed(name: str, *scopes: str, danger: Danger = Danger.SAFE, trust: Trust = Trust.VALIDATED) -> Guest:
        token, key = make_key(name, scopes, danger, 1, trust=trust)
        await guest.parts.store.keys.add(key)
        return replace(guest, key=token)

    return {
        "owner": guest,
        "anybody": replace(guest, key=""),
        "reader": await keyed("reader", "read:rooms"),
        "timid": await keyed("timid", *OWNER),
        "untested": await keyed("untested", *OWNER, trust=Trust.UNTESTED),
        "generated": await keyed("generated", *OWNER, danger=Danger.DESTRUCTIVE, trust=Trust.GENERATED),
        "certified": await keyed("certified", *OWNER, danger=Danger.DANGEROUS, trust=Trust.CERTIFIED),
    }


# Errors

BROKEN = """
from portico.operations import Context, operation


@operation(kind="execute", danger="safe")
async def burst(context: Context) -> str:
    "Breaks."
    raise RuntimeError("the boiler")


@operation(kind="execute", danger="safe", long=True)
async def clean(context: Context) -> str:
    "Clean a room."
    return "clean"
"""


@requirement("aql:error:details", "aql:error:pattern")
async def test_every_code_is_told_with_the_details_that_it_has(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    async with visit(operations=["broken.py"], safety={"start": "allow"}) as guest:
        found = {each["error"]["code"] async for each in provoked(guest)}
        expired = await expired_token(guest)
    async with visit(limits={"keys_per_minute": 1}) as guest:
        await guest.say({"operation": "count_rooms"})
        found.add((await guest.error({"operation": "count_rooms"}))["code"])

    answer = msgspec.json.decode(Envelope(failure_result(expired)).json)
    check_answer({"operation": "delete_room"}, answer)
    assert found | {answer["error"]["code"]} == set(CODES)


async def provoked(guest: Guest) -> AsyncIterator[Answer]:
    """One refusal for each code, but for those that take time."""
    everybody = await callers(guest)
    approver_token, approver = make_key("approver", ("approve",), Danger.SAFE, 1)
    await guest.parts.store.keys.add(approver)
    delete = {"operation": "delete_room", "params": {"id": "attic"}}
    for who, request, path in (
        (guest, {"operation": "get_room"}, "/aql"),
        (guest, {"operation": "get_room", "params": {"id": 7}}, "/aql"),
        (guest, {"operation": "get_room", "params": {"id": "attic", "colour": "red"}}, "/aql"),
        (guest, {"operation": "update_room", "params": {"id": "attic", "input": {"id": "x"}}}, "/aql"),
        (guest, {"operation": "update_room", "params": {"id": "attic", "input": {"beds": "x"}}}, "/aql"),
        (guest, b'{"operation": "\xff"}', "/aql"),
        (guest, b"[" * 40 + b"]" * 40, "/aql"),
        (guest, {"operation": "get_room", "params": {"id": "attic"}}, "/aql/delete"),
        (guest, {"operation": "fly"}, "/aql"),
        (guest, {"operation": "get_room", "params": {"id": "nowhere"}}, "/aql"),
        (everybody["anybody"], delete, "/aql"),
        (everybody["timid"], delete, "/aql"),
        (everybody["generated"], delete, "/aql"),
        (everybody["untested"], {"operation": "list_rooms"}, "/aql"),
        (guest, delete, "/aql"),
        (guest, {**delete, "confirmation_token": "conf_no_such_token"}, "/aql"),
        (guest, {"operation": "create_room", "params": {"id": "attic", "input": {}}}, "/aql"),
        (guest, {"operation": "update_room", "params": {"id": "attic", "input": {}, "if_match": "x"}}, "/aql"),
        (guest, {"operations": []}, "/aql"),
        (guest, {"operation": "burst"}, "/aql"),
    ):
        yield await who.say(request, path)
    token = (await guest.say(delete))["confirmation"]["token"]
    await replace(guest, key=approver_token).say(
        {"operation": "confirm_operation", "params": {"confirmation_token": token}}
    )
    yield await guest.say({"operation": "delete_room", "params": {"id": "cellar", "confirmation_token": token}})
    await guest.say({**delete, "confirmation_token": token})
    yield await guest.say({**delete, "confirmation_token": token})
    yield await guest.say(await finished(guest, {"operation": "clean"}))
    started = {"operation": "execute_agent", "params": {"element_name": "bot"}}
    yield await guest.say(await finished(guest, started))


async def finished(guest: Guest, start: dict[str, Any]) -> dict[str, Any]:
    """The request that cancels an execution which is over."""
    execution = {"execution_id": (await guest.say(start))["data"]["execution_id"]}
    if start["operation"] == "execute_agent":
        ended = {"operation": "complete_execution", "params": {"element_name": "bot", **execution}}
        assert (await guest.say(ended))["data"]["status"] == "completed"
    else:
        owner = await guest.parts.site.access.authenticate(RequestCredentials(guest.key))
        await guest.parts.site.tasks.wait(execution["execution_id"], owner, 60)
    return {"operation": "cancel_execution", "params": execution}


async def expired_token(guest: Guest) -> TokenExpired:
    """What a site says of a confirmation that comes too late."""
    waiting = await guest.say({"operation": "delete_room", "params": {"id": "garden"}})
    token, key = make_key("late", ("approve",), Danger.SAFE, 1)
    await guest.parts.store.keys.add(key)
    caller = await guest.parts.site.access.authenticate(RequestCredentials(token))
    with pytest.raises(TokenExpired) as refusal:
        await later(guest.parts.site, 600).guard.supervision.confirm(
            waiting["confirmation"]["token"], "approve", "", caller
        )
    return refusal.value


# The loop


@requirement("aql:encoding:utc", "aql:directive:keys")
async def test_everything_that_is_told_of_an_execution_keeps_the_structures(visit: Visit) -> None:
    told: list[Answer] = []
    async with visit(safety={"start": "allow"}) as guest:
        report = {"element_name": "bot", "outcome": "success"}
        execution = (await guest.say({"operation": "execute_agent", "params": {"element_name": "bot"}}))["data"]
        for hint in ("reading a page", "git push the release", "rm -rf / on the server"):
            step = {"operation": "record_execution_step", "params": {**report, "next_action_hint": hint}}
            told.append(await guest.say(step))
        status = {"operation": "get_execution_status", "params": {"execution_id": execution["execution_id"]}}
        ended = (await guest.say(status))["data"]
        refused = await guest.error({"operation": "execute_agent", "params": {"element_name": "bot"}})

    autonomy = [each["data"]["autonomy"] for each in told]
    assert [each["continue"] for each in autonomy] == [True, False, False]
    assert told[1]["data"]["confirmation"]["token"].startswith("conf_")
    assert autonomy[2]["notifications"][-1]["type"] == "danger_zone"
    assert (ended["status"], "finished_at" in ended) == ("cancelled", True)
    assert refused["details"]["reason"] == "agent_blocked"


# The structures themselves


def test_every_structure_is_a_schema_and_closed_where_it_has_members() -> None:
    jsonschema.Draft202012Validator.check_schema({"$defs": STRUCTURES})
    for name, schema in STRUCTURES.items():
        for part in _objects(schema):
            assert part.get("additionalProperties") is False, name
    assert DETAILS.keys() < set(CODES)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of a schema that names the members of an object; what is closed by its `code` names that alone."""
    if isinstance(schema, dict):
        members = schema.get("properties", {}).keys() if schema.get("type") == "object" else set[str]()
        if members - OPEN_MEMBERS and members != {"code"}:
            yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


OPEN_MEMBERS = {"id", "_etag", "_version"}  # of items, whose other fields are the site's


def test_a_structure_refuses_what_it_does_not_have() -> None:
    execution = {"execution_id": "x", "status": "running", "started_at": "2026-02-04T10:00:00Z"}

    assert problems_in("ExecutionInfo", execution) == []
    assert problems_in("ExecutionInfo", {**execution, "owner": "ann"})
    assert problems_in("ExecutionInfo", {**execution, "started_at": "2026-02-04T10:00:00+00:00"})
    assert problems_in("ExecutionInfo", {**execution, "status": "done"})
    assert problems_in("ExecutionInfo", {**execution, "status": "completed"})  # and no finished_at
