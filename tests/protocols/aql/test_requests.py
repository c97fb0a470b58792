"""Requests of MCP-AQL: how they are read, and how they are checked against the operation they name."""

import json
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.aql.conftest import Visit

from portico.catalog import Kind
from portico.protocols.aql.envelopes import Fault, failure_result
from portico.protocols.aql.shapes import (
    AqlOperation,
    AqlRequestContext,
    AqlResult,
    ParameterInfo,
    TypeDetails,
    TypeInfo,
)
from portico.protocols.aql.validation import OperationRequest, validate

GET = b'{"operation":"get_room","params":{"id":"%s"}}'
FIVE = {"request_bytes": 65_536, "string_bytes": 65_536, "array_elements": 100, "depth": 8, "response_bytes": 1_048_576}


# Reading


@requirement("aql:encoding:utf8", "aql:encoding:surrogates", "aql:encoding:null-byte", "aql:encoding:where")
async def test_what_is_no_text_in_utf_8_is_refused_with_its_place(visit: Visit) -> None:
    async with visit() as guest:
        said = {
            raw: await guest.error(raw)
            for raw in (
                GET % b"\xff",
                GET % b"\xc0\xaf",  # an overlong slash
                GET % b"\xe2\x82",  # half a euro
                GET % b"\xed\xa0\x80",  # a surrogate
                GET % rb"\ud800",
                GET % rb"\u0000",
                rb'{"operation":"get_room","params":{"\ud800":1}}',
            )
        }

    place = GET.index(b"%")
    assert {error["code"] for error in said.values()} == {"VALIDATION_INVALID_ENCODING"}
    assert [error["details"] for error in said.values()] == [
        *[{"byte_offset": place}] * 4,
        *[{"location": "params.id"}] * 2,
        {"location": "params"},
    ]


@requirement("aql:request:operation", "aql:request:params-optional", "aql:encoding:numbers")
async def test_what_is_no_request_is_refused_without_the_words_of_a_parser(visit: Visit) -> None:
    async with visit() as guest:
        said = [
            await guest.error(raw)
            for raw in (
                *(b"", b"{", b"[]", b'"list_rooms"', b'{"operation":NaN}', b'{"operation":"list_rooms","first":1e400}'),
                b'{"operation":"list_rooms","first":1' + b"0" * 400 + b"}",
                b'{"operation":"list_rooms","first":1' + b"0" * 5000 + b"}",
                b'{"operation":7}',
                b'{"operation":"list_rooms","params":[]}',
            )
        ]

    assert {error["code"] for error in said} == {"VALIDATION_INVALID_TYPE"}
    assert [error["message"] for error in said] == [
        "The request is not valid JSON: see character 0",
        "The request is not valid JSON: see character 1",
        "Parameter 'request' expected 'object', got 'array'",
        "Parameter 'request' expected 'object', got 'string'",
        "The request is not valid JSON",
        *["Parameter 'first' expected 'finite number', got 'number'"] * 2,
        "The request is not valid JSON",
        "Parameter 'operation' expected 'string', got 'integer'",
        "Parameter 'params' expected 'object', got 'array'",
    ]


@requirement("aql:limits:string", "aql:limits:depth-thousands", "aql:limits:details", "aql:limits:configurable")
async def test_every_limit_is_kept_and_named(visit: Visit) -> None:
    def nested(levels: int) -> bytes:
        return b'{"operation":"get_room","params":{"id":' + b"[" * (levels - 2) + b"]" * (levels - 2) + b"}}"

    def listing(elements: int) -> dict[str, Any]:
        return {"operation": "get_room", "params": {"id": "attic", "fields": ["name"] * elements}}

    def named(length: int) -> dict[str, Any]:
        return {"operation": "get_room", "params": {"id": "é" * (length // 2)}}

    async with visit(aql=FIVE) as guest:
        small = [
            await guest.error(request) for request in (b" " * 65_537, nested(9), b"[" * 60_000, listing(101), named(9))
        ]
        fits = [(await guest.say(request))["success"] for request in (listing(100),)]
        deep = (await guest.error(nested(8)))["code"]
    async with visit(aql={**FIVE, "request_bytes": 1_048_576}) as guest:
        text = await guest.error(named(65_538))

    assert small[:-1] == [
        _too_large("request_size", 65_536, 65_537, "bytes"),
        _too_large("nesting_depth", 8, 9, "levels"),
        _too_large("nesting_depth", 8, 9, "levels"),
        _too_large("array_elements", 100, 101, "elements"),
    ]
    assert (small[-1]["code"], fits, deep) == ("NOT_FOUND_RESOURCE", [True], "VALIDATION_INVALID_TYPE")
    assert text == _too_large("string_length", 65_536, 65_538, "bytes")


@requirement("aql:limits:response", "aql:limits:details")
async def test_what_was_done_is_told_also_if_the_answer_is_too_large(visit: Visit) -> None:
    def creating(id: str, length: int) -> dict[str, Any]:
        story = {"name": "x" * length, "description": "y" * length}
        return {"operation": "create_room", "params": {"id": id, "input": story}}

    huge = {"operation": "get_room", "params": {"id": "huge"}}
    lean = {"operation": "get_room", "params": {"id": "huge", "fields": ["beds"]}}
    async with visit(aql={"request_bytes": 4_194_304, "response_bytes": 1_048_576}) as guest:
        made = await guest.post(creating("huge", 560_000))
        read = await guest.error(huge)
        batch = {"operations": [creating("large", 200_000), lean, creating("larger", 500_000), huge]}
        several = await guest.post(batch)
        waiting = {"operation": "delete_room", "params": {"id": "cellar"}}
        rest = [creating(id, 200_000) for id in "abc"]
        halted = await guest.error({"operations": [creating("small", 10), waiting, *rest]})

    completed = made.json()["error"]["details"]
    assert (made.status_code, completed["limit_type"], completed["completed"]) == (413, "response_size", True)
    assert completed["actual_value"] > completed["limit_value"] == 1_048_576
    assert read["details"].keys() == {"limit_type", "limit_value", "actual_value", "unit"}
    told = several.json()
    assert (several.status_code, told["summary"]) == (200, {"total": 4, "succeeded": 2, "failed": 2})
    details = [each["result"].get("error", {}).get("details", {}) for each in told["results"]]
    assert [each.get("limit_type") for each in details] == [None, None, "response_size", "response_size"]
    assert [each.get("completed") for each in details] == [None, None, True, None]
    assert (halted["details"]["limit_type"], halted["details"]["completed"]) == ("response_size", True)


def _too_large(kind: str, limit: int, actual: int, unit: str) -> dict[str, Any]:
    return {
        "code": "VALIDATION_PAYLOAD_TOO_LARGE",
        "message": f"Payload exceeds {kind} limit of {limit}",
        "details": {"limit_type": kind, "limit_value": limit, "actual_value": actual, "unit": unit},
    }


@requirement("aql:request:top-level", "aql:request:precedence", "aql:encoding:duplicate-keys")
async def test_parameters_may_stand_beside_the_operation_and_those_in_params_count_more(visit: Visit) -> None:
    async with visit() as guest:
        said = [
            await guest.say({"operation": "get_room", "id": "attic"}),
            await guest.say({"operation": "get_room", "id": "cellar", "params": {"id": "attic"}}),
            await guest.say(b'{"operation":"get_room","id":"cellar","id":"attic","params":null}'),
        ]

    assert [each["data"]["name"] for each in said] == ["The attic"] * 3


@requirement("aql:param:underscore", "aql:param:underscore-other", "aql:envelope:request-id", "aql:warn:shape")
async def test_labels_come_back_and_other_underscores_are_warned_of(visit: Visit) -> None:
    request = {"operation": "get_room", "id": "attic", "_request_id": "r-1", "_meta": {"by": "me"}, "_hint": 1}
    async with visit() as guest:
        said = await guest.say(request)
        refused = await guest.error({**request, "id": "nowhere"})

    (warning,) = said["warnings"]
    assert said["_meta"] == {"request_id": "r-1", "untrusted_content": True}
    assert (warning["code"], warning["details"]["param_name"]) == ("VALIDATION_UNKNOWN_PARAM_WARNING", "_hint")
    assert refused["details"] == {"resource_type": "rooms", "resource_id": "nowhere", "request_id": "r-1"}


@requirement("aql:param:strict-default")
async def test_where_strictness_is_off_unknown_parameters_are_warned_of(visit: Visit) -> None:
    async with visit(aql={"strict": False}) as guest:
        said = await guest.say({"operation": "get_room", "params": {"id": "attic", "colour": "red"}})

    assert said["data"]["id"] == "attic"
    assert [each["details"]["param_name"] for each in said["warnings"]] == ["colour"]


@requirement("aql:rate:quota", "aql:error:http")
async def test_a_request_that_is_refused_costs_as_much_as_one_that_is_not(visit: Visit) -> None:
    async with visit(as_owner=False, limits={"anonymous_per_minute": 4}) as guest:
        requests = [b"{", {"operation": "dance"}, {"operation": "get_room"}, {"operation": "get_room", "id": "attic"}]
        codes = [(await guest.say(request)).get("error", {}).get("code") for request in requests]
        late = await guest.post({"operation": "list_rooms"})

    assert codes == ["VALIDATION_INVALID_TYPE", "NOT_FOUND_OPERATION", "VALIDATION_MISSING_PARAM", None]
    told = late.json()["error"]
    assert (late.status_code, told["code"]) == (429, "RATE_LIMIT_EXCEEDED")
    assert set(told.get("details", {})) == {"limit", "remaining", "window", "resets_at", "retry_after_seconds"}
    assert int(late.headers["retry-after"]) == told["details"]["retry_after_seconds"] >= 1


# Checking


@requirement(
    "aql:param:unknown",
    "aql:param:unknown-details",
    "aql:param:unknown-top-level",
    "aql:param:required",
    "aql:param:types",
    "aql:error:quotes",
)
async def test_wrong_parameters_are_told_as_the_specification_shows(visit: Visit) -> None:
    async with visit() as guest:
        unknown = await guest.error(
            {"operation": "delete_room", "params": {"id": "attic", "force": 1}, "admin_override": True}
        )
        missing = await guest.error({"operation": "get_room"})
        wrong = await guest.error({"operation": "get_room", "params": {"id": 7}})
        lost = await guest.error({"operation": "get_rooom", "params": {"id": "attic"}})

    assert unknown == {
        "code": "VALIDATION_UNKNOWN_PARAM",
        "message": "Unknown parameter(s) for operation 'delete_room': 'admin_override', 'force'. "
        "Valid: 'id', 'if_match', 'confirmation_token'",
        "details": {
            "operation": "delete_room",
            "unknown_params": ["admin_override", "force"],
            "valid_params": ["id", "if_match", "confirmation_token"],
        },
    }
    assert missing == {
        "code": "VALIDATION_MISSING_PARAM",
        "message": "Missing required parameter 'id' for operation 'get_room'",
        "details": {"param_name": "id", "operation": "get_room"},
    }
    assert (wrong["message"], wrong["details"]) == (
        "Parameter 'id' expected 'string', got 'integer'",
        {"param_name": "id", "expected_type": "string", "actual_type": "integer"},
    )
    assert lost["message"] == "Unknown operation: 'get_rooom'. Did you mean 'get_room'?"
    assert {"get_room", "introspect"} <= set(lost["details"]["available"])


@requirement(
    "aql:update:input-missing",
    "aql:update:input-object",
    "aql:update:identifier-inside",
    "aql:update:replace",
)
async def test_an_update_has_its_fields_in_input_and_only_fields(visit: Visit) -> None:
    update: dict[str, Any] = {"operation": "update_room", "params": {"id": "attic"}}
    async with visit() as guest:
        missing = await guest.error(update)
        wrong = await guest.error({**update, "input": "red"})
        inside = await guest.error({**update, "input": {"id": "cellar", "name": "Red"}})
        done = await guest.say({**update, "input": {"name": "Red", "url": None}})

    assert (missing["code"], missing["details"]["param_name"]) == ("VALIDATION_MISSING_PARAM", "input")
    assert (wrong["code"], wrong["details"]["actual_type"]) == ("VALIDATION_INVALID_TYPE", "string")
    assert (inside["code"], inside["details"]["fields"]) == ("VALIDATION_UNKNOWN_FIELD", ["id"])
    assert (done["data"]["name"], done["data"]["beds"], "url" in done["data"]) == ("Red", 2, False)


async def _nothing(_: Any, __: AqlRequestContext) -> AqlResult:
    return AqlResult(None)


def _booking() -> AqlOperation:
    def param(name: str, type: str = "string", **more: Any) -> ParameterInfo:
        return ParameterInfo(name=name, type=type, **{"required": False, **more})

    return AqlOperation(
        name="book",
        kind=Kind.UPDATE,
        description="Book.",
        params=(
            param("who", required=True, min_length=2, max_length=5, pattern="^[a-z]+$"),
            param("people", "integer", minimum=1, maximum=12, default=2),
            param("first", "integer", minimum=1, maximum=10),
            param("share", "number"),
            param("loud", "boolean"),
            param("day", format="date"),
            param("moment", format="date-time"),
            param("board", enum=("half", "full")),
            param("mood", "Mood"),
            param("tags", "array", items={"type": "string"}, max_length=2),
            param("either", "string|integer"),
            param("secret", max_length=1, sensitive=True),
            param("input", "object"),
        ),
        returns=TypeInfo(name="Booking", kind="object"),
        run=_nothing,
        aliases={"peopleCount": "people"},
        input_fields=(param("note"),),
        types=(TypeDetails(name="Mood", kind="enum", values=("calm", "gay")),),
    )


@requirement("aql:param:constraints", "aql:encoding:dates", "aql:update:unknown-field")
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"who": 1}, "Parameter 'who' expected 'string', got 'integer'"),
        ({"who": None}, "Parameter 'who' expected 'string', got 'null'"),
        ({"people": True}, "Parameter 'people' expected 'integer', got 'boolean'"),
        ({"people": 1.5}, "Parameter 'people' expected 'integer', got 'number'"),
        ({"share": "1"}, "Parameter 'share' expected 'number', got 'string'"),
        ({"loud": 0}, "Parameter 'loud' expected 'boolean', got 'integer'"),
        ({"mood": "grim"}, "Parameter 'mood' expected 'Mood', got 'string'"),
        ({"tags": ["a", 1]}, "Parameter 'tags' expected 'array of string', got 'array with integer'"),
        ({"either": []}, "Parameter 'either' expected 'string|integer', got 'array'"),
        ({"who": "a"}, "Parameter 'who' out of range. Expected: minimum 2 characters"),
        ({"who": "abcdef"}, "Parameter 'who' out of range. Expected: maximum 5 characters"),
        ({"who": "ABC"}, "Parameter 'who' out of range. Expected: pattern ^[a-z]+$"),
        ({"people": 0}, "Parameter 'people' out of range. Expected: minimum 1"),
        ({"people": 13}, "Parameter 'people' out of range. Expected: maximum 12"),
        ({"day": "2026-02-30"}, "Parameter 'day' out of range. Expected: date"),
        ({"day": "20260204"}, "Parameter 'day' out of range. Expected: date"),
        ({"moment": "2026-02-04"}, "Parameter 'moment' out of range. Expected: date-time"),
        ({"board": "none"}, "Parameter 'board' out of range. Expected: one of 'half', 'full'"),
        ({"tags": ["a", "b", "c"]}, "Parameter 'tags' out of range. Expected: maximum 2 elements"),
        ({"people": 3, "peopleCount": 4}, "Parameter 'people' has two different values, one of them as 'peopleCount'"),
        ({"input": {"note": "x", "who": "y"}}, "Unknown field(s) in 'input': 'who'. Valid: 'note'"),
        ({"guest": 1}, "Unknown parameter 'guest' for operation 'book'. Valid: "),
    ],
)
def test_what_is_published_of_a_parameter_is_checked(params: dict[str, Any], message: str) -> None:
    with pytest.raises(Fault) as refusal:
        validate(OperationRequest("book", {"who": "ann", **params}), _booking(), strict=True)

    assert failure_result(refusal.value).error.message.startswith(message)


def test_what_fits_is_taken_under_its_own_name_with_defaults() -> None:
    told = {"first": 99, "share": 1, "loud": True, "day": "2026-02-04", "mood": "gay", "either": 5, "tags": []}
    moment = {"moment": "2026-02-04T10:30:00+05:30", "input": {"note": "x"}}

    assert validate(OperationRequest("book", {"who": "ann", "board": None}), _booking(), strict=True).params == {
        "who": "ann",
        "people": 2,
    }
    assert validate(
        OperationRequest("book", {"who": "ann", "peopleCount": 4, "people": 4, **told, **moment}),
        _booking(),
        strict=True,
    ).params == {"who": "ann", "people": 4, **told, **moment}


def test_a_value_that_is_sensitive_is_not_told_again() -> None:
    with pytest.raises(Fault) as refusal:
        validate(OperationRequest("book", {"who": "ann", "secret": "hush"}), _booking(), strict=True)

    assert "hush" not in json.dumps([refusal.value.message, refusal.value.details])
