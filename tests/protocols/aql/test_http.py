"""MCP-AQL over plain HTTP: routes, statuses, and what no message may look like."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import Visit, approve
from tests.protocols.conftest import Inn, asking, key_of

from portico import errors
from portico.errors import ConfirmationNeeded, SiteError
from portico.protocols.aql.endpoint import AqlEndpoint, limit_warnings
from portico.protocols.aql.envelopes import CODES, STATUSES, SUMMARIES, Envelope, code_of, failure_result
from portico.protocols.aql.shapes import AqlOperation, AqlRequestContext, AqlResult, OperationWarning
from portico.protocols.aql.surface import OperationRegistry
from portico.requests import Caller
from portico.telemetry import UnexpectedError

LEAK = re.compile(r"at\s+\S+|typeerror|referenceerror|syntaxerror|/src/|/node_modules/|\.ts:\d|\.js:\d", re.IGNORECASE)
CODE = re.compile(r"[A-Z][A-Z0-9_]*\Z")
ATTIC = {"operation": "get_room", "params": {"id": "attic"}}
TABLES = """
from portico.errors import Conflict
from portico.operations import Context, operation


@operation(kind="execute")
async def reserve(context: Context, why: str) -> str:
    "Reserve a table."
    raise Conflict(why)
"""
WHYS = (
    "No table is free before noon",
    "No table is free at noon",
    "The format of that chat is unknown",
    "SyntaxError in /src/tables.py",
)
# What a request of MCP-AQL comes through, and what makes messages there beside errors.
REACHED = (
    *("query.py", "search/finder.py", "conversations/memories.py", "access/identity.py"),
    *(f"operations/{name}.py" for name in ("__init__", "tasks", "workflows", "http_endpoint", "expressions")),
    *("access/limits.py", "access/signed_tokens.py", "site.py", "items.py", "store/grouping.py", "store/planning.py"),
    *("safety/*.py", "protocols/aql/*.py"),
)
TELLING = ("Fault", "Warned", "misfit")


# Where


@requirement("aql:request:http", "aql:route:wrong-endpoint", "aql:route:mismatch-code")
async def test_each_family_has_an_address_and_takes_no_other_operation(visit: Visit) -> None:
    async with visit() as guest:
        read = await guest.post(ATTIC, "/aql/read")
        wrong = await guest.post(ATTIC, "/aql/delete")
        nowhere = await guest.post(ATTIC, "/aql/dance")
        got = await guest.client.get("/aql")

    assert (read.status_code, read.headers["cache-control"], read.json()["data"]["id"]) == (200, "no-store", "attic")
    assert (wrong.status_code, wrong.json()["error"]) == (
        400,
        {
            "code": "VALIDATION_ENDPOINT_MISMATCH",
            "message": "Operation 'get_room' belongs to endpoint 'read', not 'delete'. Use mcp_aql_read",
            "details": {"operation": "get_room", "expected_endpoint": "read", "actual_endpoint": "delete"},
        },
    )
    assert (nowhere.status_code, nowhere.json()["error"]["details"]["resource_id"]) == (404, "dance")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")


@requirement("aql:route:profiles")
async def test_there_is_nothing_where_the_site_wants_none_and_other_families_with_another_profile(visit: Visit) -> None:
    async with visit(aql={"mode": "none"}) as guest:
        none = (await guest.post(ATTIC)).status_code
    async with visit(aql={"profile": "operate"}) as guest:
        others = [(await guest.post(ATTIC, f"/aql/{name}")).status_code for name in ("query", "manage", "read")]

    assert (none, others) == (404, [200, 400, 404])


@requirement("aql:error:http", "aql:error:permission", "aql:class:create", "aql:envelope:confirmation")
async def test_the_status_tells_what_the_code_tells(visit: Visit) -> None:
    async with visit() as guest:
        waiting = await guest.post({"operation": "delete_room", "params": {"id": "attic"}})
        exists = await guest.post({"operation": "create_room", "params": {"id": "attic", "input": {}}})
        stale = await guest.post(
            {"operation": "update_room", "params": {"id": "attic", "input": {"beds": 3}, "if_match": '"1-0"'}}
        )
        plain_text = await guest.post(b"{}", **{"content-type": "text/plain"})
        elsewhere = await guest.post(ATTIC, origin="https://elsewhere.example")
        guest.key = ""
        nobody = await guest.post({"operation": "delete_room", "params": {"id": "attic"}})
        guest.key = "wrong"
        stranger = await guest.post(ATTIC)

    said = [waiting, exists, stale, plain_text, elsewhere, nobody, stranger]
    assert [(each.status_code, each.json()["error"]["code"]) for each in said] == [
        (428, "CONFIRMATION_REQUIRED"),
        (409, "CONFLICT_ALREADY_EXISTS"),
        (409, "CONFLICT_VERSION_MISMATCH"),
        (400, "VALIDATION_INVALID_TYPE"),
        (403, "PERMISSION_DENIED"),
        (401, "PERMISSION_DENIED"),
        (401, "PERMISSION_DENIED"),
    ]
    assert nobody.headers["www-authenticate"].startswith("Bearer")
    assert nobody.json()["error"]["details"] == {"reason": "unauthenticated", "required_scope": "delete:rooms"}
    body = waiting.json()
    details = body["error"]["details"]
    assert set(details) == {"operation", "danger_level", "reasons", "confirmation_token", "expires_at"}
    assert body["confirmation"] == {
        "token": details["confirmation_token"],
        "expires_at": details["expires_at"],
        "message": body["error"]["message"],
        "reasons": details["reasons"],
    }


@requirement("aql:token:alias", "aql:self:other-principal")
async def test_what_somebody_else_has_approved_is_done_once_with_the_token(visit: Visit) -> None:
    delete: dict[str, Any] = {"operation": "delete_room", "params": {"id": "attic"}}
    async with visit() as guest:
        token = (await guest.say(delete))["confirmation"]["token"]
        early = await guest.error({**delete, "confirmation_token": token})
        own = await guest.error(_approval(token))
        approver = replace(guest, key=await key_of(guest.parts, "approve"))
        approved = await approve(approver, token)
        done = await guest.say({**delete, "_confirmation": token})
        again = await guest.error({**delete, "params": {"id": "attic", "confirmation_token": token}})

    assert [early["code"], own["code"], again["code"]] == [
        "CONFIRMATION_REQUIRED",
        "PERMISSION_DENIED",
        "TOKEN_ALREADY_USED",
    ]
    assert (approved["success"], done["success"], done["data"]) == (True, True, {"id": "attic", "deleted": True})
    assert again["details"]["token"] == token[:10]


def _approval(token: str) -> dict[str, Any]:
    return {"operation": "confirm_operation", "params": {"confirmation_token": token, "decision": "approve"}}


# What is told


def kinds(of: type[SiteError] = SiteError) -> Iterator[type[SiteError]]:
    for each in of.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from kinds(each)


@requirement("aql:error:pattern", "aql:error:leaks")
@pytest.mark.parametrize("kind", sorted(set(kinds()), key=lambda each: each.__name__))
def test_every_error_has_a_code_and_leaks_nothing(kind: type[SiteError]) -> None:
    inside = kind(
        "It broke at line 3 of /srv/src/portico.py: what is that? TypeError", hint="Look at the log", reasons=["at x"]
    )
    outside = kind(
        "That is not what it was", hint="At least 3, at most 4", reason="what is it", token="conf_0123456789"
    )
    said = [failure_result(error) for error in (inside, outside)]

    assert SiteError not in CODES
    for each in said:
        told = Envelope(each)
        assert CODE.match(each.error.code)
        assert told.status in {*STATUSES.values(), 401}
        assert not LEAK.search(each.error.message)
        assert not LEAK.search(getattr(each.confirmation, "message", ""))
        assert "/srv" not in told.json.decode()
        assert "conf_0123456789" not in told.json.decode() or kind is ConfirmationNeeded


@requirement("aql:error:internal")
def test_the_inside_is_told_as_one_thing() -> None:
    broken = [errors.ConfigError, errors.SourceError, errors.BlockedAddress, errors.Unavailable]

    assert {code_of(kind("The file /etc/site.toml")) for kind in broken} == {"INTERNAL_ERROR"}
    assert {failure_result(kind("The file /etc/site.toml")).error.message for kind in broken} == {
        "The site cannot do this now. Try again later."
    }


@requirement("aql:error:leaks", "aql:error:readable")
async def test_words_of_the_site_that_look_like_a_trace_are_told_unchanged_in_the_details(
    visit: Visit, tmp_path: Path
) -> None:
    (tmp_path / "tables.py").write_text(TABLES)
    async with visit(operations=["tables.py"]) as guest:
        refused = [await guest.error({"operation": "reserve", "params": {"why": why}}) for why in WHYS]

    assert [(each["message"], each.get("details")) for each in refused] == [
        ("No table is free before noon", None),
        ("The current state does not allow this", {"explanation": "No table is free at noon"}),
        ("The current state does not allow this", {"explanation": "The format of that chat is unknown"}),
        ("The current state does not allow this", None),
    ]


@requirement("aql:error:leaks", "aql:error:readable")
async def test_words_of_the_caller_that_look_like_a_trace_are_told_whole_in_the_details(visit: Visit) -> None:
    async with visit() as guest:
        plain = await guest.error({"operation": "fly"})
        unknown = await guest.error({"operation": "book chat room"})
        param = await guest.error({"operation": "list_rooms", "params": {"chat room": 1}})

    assert plain["message"].startswith("Unknown operation: 'fly'")
    assert "'book chat room'" in unknown["details"]["explanation"]
    assert "'chat room'" in param["details"]["explanation"]
    assert not any(LEAK.search(error["message"]) or "…" in error["message"] for error in (plain, unknown, param))


@requirement("aql:error:readable")
def test_portico_itself_writes_no_message_that_looks_like_a_trace() -> None:
    """So that its own messages reach every reader of MCP-AQL as they were written."""
    source = Path(errors.__file__).parent
    modules = [path for part in REACHED for path in sorted(source.glob(part))]
    found = [text for path in modules for text in _messages(ast.parse(path.read_text()))]

    assert len(found) > 200
    assert [text for text in [*found, *SUMMARIES.values()] if LEAK.search(text)] == []
    assert SUMMARIES.keys() == STATUSES.keys()


def _messages(tree: ast.AST) -> Iterator[str]:
    """The messages and hints of errors, with a name in place of every value."""
    for call in ast.walk(tree):
        name = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and (name in TELLING or issubclass(getattr(errors, name, int), SiteError)):
            if name in {"ConfigError", "SourceError"}:  # these are told as one thing
                continue
            yield from filter(None, map(_text, call.args))
            yield from (_text(each.value) for each in call.keywords if each.arg in {"hint", "message", "reason"})


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "'x'" for part in parts)
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case _:
            return ""


@requirement("aql:error:leaks")
async def test_no_message_of_a_real_request_looks_like_a_trace(visit: Visit) -> None:
    nasty = ("at home", "TypeError", "/src/x", "x.ts:3", "format of", "\u00e9 at\u00a0x")
    async with visit() as guest:
        said = [
            await guest.error(request)
            for name in nasty
            for request in (
                {"operation": name},
                {"operation": "get_room", "params": {"id": name}},
                {"operation": "get_room", "params": {"id": "attic", name: 1}},
                {"operation": "get_room", "params": {"id": "attic", "fields": [name]}},
                {"operation": "update_room", "params": {"id": name, "input": {"id": name}}},
                {"operation": "update_room", "params": {"id": name, "input": {"name": name}}},
                {"operation": "list_rooms", "params": {"filter": {name: 1}}},
                {"operation": "list_rooms", "params": {"filter": {"name": {"$regex": f"({name}"}}}},
                {"operation": "list_rooms", "params": {"sort": {"field": name}}},
                {"operation": "list_rooms", "params": {"after": name}},
                {"operation": "list_rooms", "params": {"aggregate": {name: {"sum": name}}}},
                {"operation": "introspect", "params": {"query": name}},
                {"operation": "get_task", "params": {"id": name}},
                {"operation": "run_workflow", "params": {"steps": [{name: name}]}},
                {"operation": "create_room", "params": {"id": name * 200, "input": {"name": name}}},
                {"operations": [{name: name}]},
            )
        ]

    assert [error["message"] for error in said if LEAK.search(error["message"])] == []
    assert "INTERNAL_ERROR" not in {error["code"] for error in said}
    assert all(len(error["message"]) < 1200 for error in said)


@requirement("aql:error:internal", "aql:error:http")
async def test_what_breaks_is_an_envelope_and_the_operator_hears_of_it(inn: Inn) -> None:
    heard: list[Any] = []

    async def broken(_: Mapping[str, Any], __: AqlRequestContext) -> AqlResult:
        raise RuntimeError("secret")

    class Breaking(OperationRegistry):
        def operations_for(self, caller: Caller) -> Mapping[str, AqlOperation]:
            found = super().operations_for(caller)
            return {**found, "get_room": replace(found["get_room"], run=broken)}

    async with inn() as parts:
        endpoint = AqlEndpoint(Breaking(parts.site, parts.config), parts.site, parts.config, heard.append)
        nobody = AqlRequestContext(parts.site.access.anonymous_caller())
        alone = await endpoint.answer(ATTIC, None, nobody)
        among = await endpoint.answer({"operations": [ATTIC, {"operation": "list_rooms"}]}, None, nobody)

    assert (alone.code, alone.status, b"secret" in alone.json) == ("INTERNAL_ERROR", 500, False)
    assert json.loads(among.json)["summary"] == {"total": 2, "succeeded": 1, "failed": 1}
    assert heard == [UnexpectedError("aql", "RuntimeError")] * 2


# Warnings


@requirement("aql:warn:bounded", "aql:warn:deduplicated")
def test_the_same_warning_is_given_once_and_never_too_many() -> None:
    same = OperationWarning(code="X_WARNING", message="Again")
    others = [OperationWarning(code="X_WARNING", message=f"Number {number}") for number in range(20)]

    found = limit_warnings([same, *others, same, same])

    assert len(found) == 10
    assert found[0] == OperationWarning(code="X_WARNING", message="Again", details={"occurrence_count": 3})


@requirement("aql:warn:slow")
async def test_what_takes_long_is_warned_of(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(OperationRegistry):
        def operations_for(self, caller: Caller) -> Mapping[str, AqlOperation]:
            found = super().operations_for(caller)
            return {name: _slowed(each, clock) for name, each in found.items()}

    clock = [0.0]
    monkeypatch.setattr("portico.protocols.aql.endpoint.time.perf_counter", lambda: clock[0])
    async with inn() as parts, asking(parts):
        endpoint = AqlEndpoint(Slow(parts.site, parts.config), parts.site, parts.config)
        said = await endpoint.answer(ATTIC, None, AqlRequestContext(parts.site.access.anonymous_caller()))

    (warning,) = said.body.warnings  # pyright: ignore
    assert warning.code == "PERFORMANCE_SLOW_QUERY_WARNING"
    assert warning.details == {"operation": "get_room", "duration_ms": 3000, "threshold_ms": 2000}


def _slowed(offered: AqlOperation, clock: list[float]) -> AqlOperation:
    async def run(params: Mapping[str, Any], asking: AqlRequestContext) -> AqlResult:
        answered = await offered.run(params, asking)
        clock[0] += 3.0
        return answered

    return replace(offered, run=run)
