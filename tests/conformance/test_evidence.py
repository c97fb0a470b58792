"""What a live server says over MCP passes every check of MCP-AQL at level 2, and the judge of it can be displeased."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.conformance.evidence import Envelope, Evidence, Exchange, Finding, Resource, collect, judge
from tests.conformance.requirements import requirement
from tests.protocols.mcp.conftest import structured, visiting

from portico.access.identity import make_key
from portico.catalog import Danger
from portico.cli.sites import demo_config
from portico.config import StoreSettings
from portico.server.assembly import open_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECIPE = Resource(
    create="create_recipe",
    get="get_recipe",
    update="update_recipe",
    delete="delete_recipe",
    fields={
        "name": "Harbour chowder",
        "description": "Smoked fish and potatoes.",
        "keywords": ["fish", "winter"],
        "nutrition": {"calories": 410, "protein": 31},
    },
    change={"name": "Quay chowder", "keywords": ["smoked"], "nutrition": {"calories": 380}, "description": None},
    changed={"name": "Quay chowder", "keywords": ["smoked"], "nutrition": {"calories": 380, "protein": 31}},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def evidence(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """What the sample site answered to somebody who may do everything, with the official SDK over a real socket."""
    folder = tmp_path_factory.mktemp("evidence")
    for path in demo_store.glob("demo.db*"):
        shutil.copy(path, folder)
    config = demo_config()
    limits = msgspec.structs.replace(config.limits, keys_per_minute=100_000)
    store = StoreSettings(url=f"sqlite:///{folder / 'demo.db'}")
    async with open_site(msgspec.structs.replace(config, store=store, limits=limits)) as parts:
        token, key = make_key("prober", ("ask", "approve", "*:*"), Danger.DANGEROUS, 1)
        await parts.store.keys.add(key)
        async with visiting(parts, key=token) as client:

            async def call(tool: str, arguments: dict[str, Any]) -> Envelope:
                return structured(await client.call_tool(tool, arguments))

            return await collect(call, RECIPE)


@requirement("aql:level:suite", "aql:level:level-1", "aql:level:level-2")
async def test_a_live_server_passes_every_check_of_level_2(evidence: Evidence) -> None:
    assert [finding for finding in judge(evidence) if not finding.passed] == []


@requirement(
    "aql:introspect:present",
    "aql:introspect:operations",
    "aql:introspect:operation",
    "aql:introspect:types",
    "aql:introspect:type",
    "aql:introspect:closed",
    "aql:introspect:protocol",
    "aql:introspect:capabilities",
    "aql:introspect:parameters",
    "aql:introspect:examples",
    "aql:introspect:unknown-name",
    "aql:limits:published",
    "aql:concurrency:metadata",
    "aql:naming:pattern",
)
async def test_introspection_tells_of_everything_and_keeps_its_shapes(evidence: Evidence) -> None:
    assert _wrong(evidence, "introspection") == []


@requirement(
    "aql:param:required",
    "aql:param:unknown",
    "aql:param:unknown-details",
    "aql:param:strict-default",
    "aql:param:defaults",
    "aql:param:snake-case",
    "aql:param:constraints",
)
async def test_parameters_of_every_operation_are_as_they_are_published(evidence: Evidence) -> None:
    assert _wrong(evidence, "parameters") == []


@requirement(
    "aql:envelope:success",
    "aql:envelope:failure",
    "aql:envelope:error",
    "aql:envelope:confirmation",
    "aql:error:pattern",
    "aql:error:details",
    "aql:error:leaks",
    "aql:route:unknown-operation",
    "aql:update:input-missing",
    "aql:update:input-object",
    "aql:update:identifier-inside",
    "aql:class:create",
)
async def test_answers_keep_their_shapes_and_failures_say_what_is_wrong_and_no_more(evidence: Evidence) -> None:
    assert _wrong(evidence, "answers") == []


@requirement(
    "aql:route:one-family",
    "aql:route:wrong-endpoint",
    "aql:route:mismatch-code",
    "aql:class:one-category",
    "aql:introspect:permissions",
)
async def test_every_operation_is_in_one_family_and_is_rejected_by_others(evidence: Evidence) -> None:
    assert _wrong(evidence, "routing") == []


@requirement("aql:route:both-modes", "aql:route:crude", "aql:route:single", "aql:batch:shape", "aql:fields:paths")
async def test_both_modes_batches_and_fields_are_served(evidence: Evidence) -> None:
    assert _wrong(evidence, "level 2") == []


@requirement("aql:update:input", "aql:update:nested-merge", "aql:update:arrays", "aql:update:null-removes")
async def test_what_is_created_is_read_back_and_updates_keep_the_rest(evidence: Evidence) -> None:
    assert _wrong(evidence, "round trip") == []
    assert "description" not in evidence.round_trip.read_again.data


# The judge can fail


async def test_every_operation_and_each_of_its_parameters_was_tried(evidence: Evidence) -> None:
    names = {each["name"] for each in evidence.operations.data["operations"]}
    required = {(name, each["name"]) for name, each in evidence.parameters() if each["required"]}

    assert {"introspect", "create_recipe", "record_execution_step"} <= names
    assert set(evidence.accepted) == {probe.operation for probe in evidence.unknown} == names
    assert {probe.operation for probe in evidence.misrouted} == names
    assert {(probe.operation, probe.subject) for probe in evidence.missing} == required
    assert evidence.round_trip.deleted.error["code"] == "CONFIRMATION_REQUIRED"


Doctor = Callable[[Evidence], Evidence]


def without_a_name(evidence: Evidence) -> Evidence:
    listed = [{key: each[key] for key in each if key != "name"} for each in evidence.operations.data["operations"]]
    return replace(evidence, operations=_answering(evidence.operations, data={"operations": listed}))


def with_a_key_more(evidence: Evidence) -> Evidence:
    first, *_ = evidence.details
    told = {**evidence.details[first].data["operation"], "danger": "safe"}
    return replace(
        evidence, details={**evidence.details, first: _answering(evidence.details[first], data={"operation": told})}
    )


def _with_details(evidence: Evidence, operation: str, **changed: Any) -> Evidence:
    """The evidence as if introspection had said this of an operation."""
    told = {**evidence.details[operation].data["operation"], **changed}
    answer = _answering(evidence.details[operation], data={"operation": told})
    return replace(evidence, details={**evidence.details, operation: answer})


def with_a_prefixed_computed_field(evidence: Evidence) -> Evidence:
    return _with_details(evidence, "get_recipe", computed_fields=[{"name": "_computed.title", "type": "string"}])


def with_a_function_of_its_own(evidence: Evidence) -> Evidence:
    support = {"supported": True, "functions": ["count", "count_distinct"]}
    return _with_details(evidence, "list_recipes", aggregation_support=support)


def with_a_state_of_its_own(evidence: Evidence) -> Evidence:
    return _with_details(evidence, "execute_agent", lifecycle={"states": ["running", "paused"]})


def with_another_form_of_time(evidence: Evidence) -> Evidence:
    execution = {"execution_id": "x", "status": "running", "started_at": "2026-02-04T10:00:00.5+00:00"}
    asked = replace(evidence.batch, arguments={"operation": "get_execution_status"})
    return replace(evidence, every=(*evidence.every, _answering(asked, data=execution)))


def with_a_detail_that_is_missing(evidence: Evidence) -> Evidence:
    error = {"code": "VALIDATION_MISSING_PARAM", "message": "'id' is missing", "details": {"param_name": "id"}}
    asked = {"operation": "get_recipe"}
    told = replace(evidence.batch, arguments=asked, answer={"success": False, "error": error})
    return replace(evidence, every=(*evidence.every, told))


def with_a_key_beside_the_data(evidence: Evidence) -> Evidence:
    return replace(evidence, types=replace(evidence.types, answer={**evidence.types.answer, "capabilities": {}}))


def with_an_undocumented_parameter(evidence: Evidence) -> Evidence:
    taken = evidence.accepted["get_recipe"] | {"force"}
    return replace(evidence, accepted={**evidence.accepted, "get_recipe": taken})


def with_a_parameter_that_is_not_named(evidence: Evidence) -> Evidence:
    first, *rest = evidence.missing
    silent = replace(first, exchange=_failing(first.exchange, "VALIDATION_MISSING_PARAM", "Something is missing"))
    return replace(evidence, missing=(silent, *rest))


def with_a_parameter_that_was_not_tried(evidence: Evidence) -> Evidence:
    return replace(evidence, missing=evidence.missing[1:])


def with_an_unknown_parameter_that_is_taken(evidence: Evidence) -> Evidence:
    first, *rest = evidence.unknown
    return replace(evidence, unknown=(replace(first, exchange=_answering(first.exchange, data={})), *rest))


def with_a_leak(evidence: Evidence) -> Evidence:
    leaking = _failing(evidence.batch, "INTERNAL_ERROR", "Expected `str`, got `int` - at `$.id`")
    return replace(evidence, every=(*evidence.every, leaking))


def with_a_code_of_its_own(evidence: Evidence) -> Evidence:
    return replace(evidence, every=(*evidence.every, _failing(evidence.batch, "OUT_OF_STOCK", "Sold out")))


def with_an_error_that_is_a_string(evidence: Evidence) -> Evidence:
    told = replace(evidence.batch, answer={"success": False, "error": "It failed"})
    return replace(evidence, every=(*evidence.every, told))


def with_a_field_that_was_lost(evidence: Evidence) -> Evidence:
    trip = evidence.round_trip
    lost = {key: value for key, value in trip.read_again.data.items() if key != "nutrition"}
    return replace(evidence, round_trip=replace(trip, read_again=_answering(trip.read_again, data=lost)))


def with_fields_that_were_not_asked_for(evidence: Evidence) -> Evidence:
    return replace(evidence, round_trip=replace(evidence.round_trip, selected=evidence.round_trip.read))


def with_one_mode(evidence: Evidence) -> Evidence:
    return replace(evidence, modes=("crude",))


def with_a_batch_that_says_more(evidence: Evidence) -> Evidence:
    return replace(evidence, batch=replace(evidence.batch, answer={**evidence.batch.answer, "duration_ms": 3}))


def with_a_constraint_that_is_not_kept(evidence: Evidence) -> Evidence:
    first, *rest = evidence.constraints
    return replace(evidence, constraints=(replace(first, exchange=_answering(first.exchange, data={})), *rest))


def with_an_operation_on_a_wrong_endpoint(evidence: Evidence) -> Evidence:
    first, *rest = evidence.misrouted
    return replace(evidence, misrouted=(replace(first, exchange=_answering(first.exchange, data={})), *rest))


@pytest.mark.parametrize(
    ("doctor", "checks"),
    [
        (without_a_name, {1}),
        (with_a_key_beside_the_data, {2}),
        (with_a_key_more, {3}),
        (with_a_prefixed_computed_field, {3}),
        (with_a_function_of_its_own, {3}),
        (with_a_state_of_its_own, {3}),
        (with_another_form_of_time, {23}),
        (with_a_detail_that_is_missing, {9}),
        (with_an_undocumented_parameter, {4}),
        (with_a_parameter_that_is_not_named, {5}),
        (with_a_parameter_that_was_not_tried, {5}),
        (with_an_unknown_parameter_that_is_taken, {6, 28}),
        (with_an_error_that_is_a_string, {9}),
        (with_a_leak, {9, 10}),
        (with_a_field_that_was_lost, {13}),
        (with_one_mode, {14}),
        (with_fields_that_were_not_asked_for, {15}),
        (with_a_batch_that_says_more, {16}),
        (with_a_constraint_that_is_not_kept, {11, 17, 28}),
        (with_an_operation_on_a_wrong_endpoint, {11, 19, 28}),
        (with_a_code_of_its_own, {9}),
    ],
)
async def test_evidence_that_was_doctored_fails(evidence: Evidence, doctor: Doctor, checks: set[int]) -> None:
    assert _failed(judge(doctor(evidence))) - _failed(judge(evidence)) == checks


def _wrong(evidence: Evidence, topic: str) -> list[Finding]:
    return [finding for finding in judge(evidence) if finding.topic == topic and not finding.passed]


def _failed(findings: list[Finding]) -> set[int]:
    return {finding.check for finding in findings if not finding.passed}


def _answering(exchange: Exchange, data: dict[str, Any]) -> Exchange:
    """As if this had been answered. What introspection says of the protocol is kept."""
    kept = {key: value for key, value in (exchange.data or {}).items() if key == "_protocol"}
    return replace(exchange, answer={"success": True, "data": {**kept, **data}})


def _failing(exchange: Exchange, code: str, message: str) -> Exchange:
    return replace(exchange, answer={"success": False, "error": {"code": code, "message": message}})
