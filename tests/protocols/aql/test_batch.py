"""Several operations in one request."""

from dataclasses import replace
from typing import Any

from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import Visit, approve
from tests.protocols.conftest import key_of

ATTIC: dict[str, Any] = {"operation": "get_room", "params": {"id": "attic"}}
NOWHERE: dict[str, Any] = {"operation": "get_room", "params": {"id": "nowhere"}}
DELETE: dict[str, Any] = {"operation": "delete_room", "params": {"id": "cellar"}}
CREATE: dict[str, Any] = {"operation": "create_room", "params": {"id": "loft", "input": {"name": "The loft"}}}


@requirement("aql:batch:shape", "aql:batch:order", "aql:batch:failure-goes-on", "aql:batch:endpoint")
async def test_operations_run_in_order_and_one_that_fails_stops_no_other(visit: Visit) -> None:
    loft = {"operation": "get_room", "id": "loft", "params": {"fields": ["name"]}}
    async with visit() as guest:
        said = await guest.say({"operations": [NOWHERE, CREATE, {**loft, "_x": 1}, ATTIC], "_request_id": "b"})
        misled = await guest.say({"operations": [ATTIC, CREATE]}, "/aql/read")

    assert set(said) == {"success", "data", "results", "summary"}
    assert (said["success"], said["data"], said["summary"]) == (True, None, {"total": 4, "succeeded": 3, "failed": 1})
    assert [(each["index"], each["operation"], each["result"]["success"]) for each in said["results"]] == [
        (0, "get_room", False),
        (1, "create_room", True),
        (2, "get_room", True),
        (3, "get_room", True),
    ]
    assert said["results"][2]["result"]["data"]["name"] == "The loft"
    assert said["results"][2]["result"]["_meta"] == {"untrusted_content": True}
    assert {frozenset(each["result"]) for each in said["results"]} == {
        frozenset({"success", "data", "_meta"}),
        frozenset({"success", "error"}),
    }
    codes = [each["result"].get("error", {}).get("code") for each in misled["results"]]
    assert codes == [None, "VALIDATION_ENDPOINT_MISMATCH"]


@requirement("aql:batch:halt")
async def test_what_somebody_has_to_confirm_halts_the_rest(visit: Visit) -> None:
    async with visit() as guest:
        said = await guest.say({"operations": [ATTIC, DELETE, CREATE, ATTIC]})
        kept = [(await guest.say(each))["success"] for each in ({**ATTIC, "params": {"id": "cellar"}}, NOWHERE)]

    assert set(said) == {"success", "data", "results", "summary", "halted_at", "pending_operations"}
    assert said["success"] is True
    assert [each["index"] for each in said["results"]] == [0]
    assert said["summary"] == {"total": 4, "succeeded": 1, "failed": 0, "halted": 1, "pending": 2}
    assert (said["halted_at"]["index"], said["halted_at"]["operation"]) == (1, "delete_room")
    waiting = said["halted_at"]["result"]
    assert waiting["error"]["code"] == "CONFIRMATION_REQUIRED"
    assert waiting["confirmation"]["token"] == waiting["error"]["details"]["confirmation_token"]
    assert said["pending_operations"] == [{"index": 2, **CREATE}, {"index": 3, **ATTIC}]
    assert kept == [True, False]


@requirement("aql:batch:continued")
async def test_once_somebody_has_agreed_a_new_batch_goes_on_where_the_other_halted(visit: Visit) -> None:
    async with visit() as guest:
        said = await guest.say({"operations": [ATTIC, DELETE, CREATE]})
        token = said["halted_at"]["result"]["confirmation"]["token"]
        pending = [{"operation": each["operation"], "params": each["params"]} for each in said["pending_operations"]]
        halted = {**DELETE, "params": {**DELETE["params"], "confirmation_token": token}}
        early = await guest.say({"operations": [halted, *pending]})
        approver = replace(guest, key=await key_of(guest.parts, "approve"))
        await approve(approver, token)
        done = await guest.say({"operations": [halted, *pending]})
        gone = await guest.error({**ATTIC, "params": {"id": "cellar"}})

    assert (early["summary"]["succeeded"], early["halted_at"]["index"]) == (0, 0)
    assert done["summary"] == {"total": 2, "succeeded": 2, "failed": 0}
    assert gone["code"] == "NOT_FOUND_RESOURCE"


@requirement("aql:batch:skip")
async def test_where_the_site_says_so_it_is_left_out_instead(visit: Visit) -> None:
    async with visit(aql={"on_confirmation": "skip"}) as guest:
        said = await guest.say({"operations": [DELETE, CREATE]})

    assert said["summary"] == {"total": 2, "succeeded": 1, "failed": 0, "pending": 1}
    assert [each.get("status") for each in said["results"]] == ["pending_confirmation", None]
    assert "halted_at" not in said


@requirement("aql:batch:invalid", "aql:batch:size")
async def test_a_batch_that_is_none_does_nothing(visit: Visit) -> None:
    async with visit(aql={"batch": 3}) as guest:
        said = [
            await guest.say(request)
            for request in (
                {"operations": []},
                {"operations": {}},
                {"operations": [CREATE] * 4},
                {"operations": [CREATE], "operation": "get_room"},
                {"operations": [CREATE], "params": {"id": "attic"}},
                {"operations": [CREATE, "get_room"]},
                {"operations": [CREATE, {"params": {}}]},
            )
        ]
        made = await guest.say({**NOWHERE, "params": {"id": "loft"}})

    assert {each["error"]["code"] for each in said} == {"BATCH_VALIDATION_ERROR"}
    assert {frozenset(each["error"]) for each in said} == {frozenset({"code", "message"})}
    assert said[2]["error"]["message"] == "A batch may have up to 3 operations"
    assert made["success"] is False


@requirement("aql:batch:counted")
async def test_every_operation_of_a_batch_is_counted(visit: Visit) -> None:
    async with visit(as_owner=False, limits={"anonymous_per_minute": 3}) as guest:
        said = await guest.say({"operations": [ATTIC, NOWHERE, ATTIC, ATTIC, ATTIC]})

    codes = [each["result"].get("error", {}).get("code") for each in said["results"]]
    assert codes == [None, "NOT_FOUND_RESOURCE", None, "RATE_LIMIT_EXCEEDED", "RATE_LIMIT_EXCEEDED"]
    assert said["summary"] == {"total": 5, "succeeded": 2, "failed": 3}
