"""Describes operations, items, pages, /desk and health checks for OpenAPI.

Operations are described by the types that check their parameters, in groups: those of this site, those of each
collection, and those of every site.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from portico.catalog import JsonSchema, Operation
from portico.config import Config
from portico.operations import schema_hook
from portico.protocols import Description, Interface, LlmsLink, OpenApi, Schema, Services, Tag
from portico.protocols.openapi import (
    DOCUMENT_PROBLEMS,
    ID,
    IDEMPOTENCY_KEY,
    JSON,
    OPERATION_PROBLEMS,
    PAGE,
    READING_PROBLEMS,
    TEXT,
    body,
    cacheable,
    content,
    operation,
    parameter,
    problems,
    read_operation,
    reference,
    response,
)
from portico.protocols.rest import desk, hooks
from portico.protocols.rest.inspector import PATH as INSPECT_PATH
from portico.protocols.rest.operations import PATH, TASKS_PATH, OperationSummary
from portico.protocols.schemas import whole_schema
from portico.requests import TaskState
from portico.safety.models import PendingChallenge, PendingConfirmation
from portico.site import Site
from portico.sources.refresh import SourceInfo
from portico.telemetry import TrafficMinute
from portico.web.addresses import operation_anchor
from portico.web.assets import EMBED, KINDS
from portico.web.item import FORMATS
from portico.web.style import ASSETS

OWN: Final = "Own operations"
ITEMS: Final = "Items"
OPERATIONS: Final = "Operations"
TASKS: Final = "Tasks"
DESK: Final = "Desk"
HEALTH: Final = "Health"


# Types of responses that are rendered without one


class TaskView(msgspec.Struct):
    id: str
    operation: str
    state: TaskState
    progress: Annotated[float, Meta(description="0 to 1")]
    message: str
    created: str
    updated: str
    estimate: Annotated[Any, Meta(description="Seconds in all", extra_json_schema={"type": ["number", "null"]})]
    result: Any
    error: Annotated[Any, Meta(extra_json_schema={"type": ["object", "null"]})]


class TaskEnvelope(msgspec.Struct):
    task: TaskView


class Operations(msgspec.Struct):
    operations: list[OperationSummary]


class Health(msgspec.Struct):
    status: Literal["ok"]
    version: str


class ReadinessAnswer(msgspec.Struct):
    ready: Annotated[bool, Meta(description="Whether questions are answered")]
    current: Annotated[bool, Meta(description="Whether everything stored is found")]
    behind: Annotated[int | None, Meta(description="Changes that are not found yet")] = None
    collections: dict[str, Any] | None = None
    reason: str | None = None


class Sources(msgspec.Struct):
    sources: list[SourceInfo]


class TrafficAnswer(msgspec.Struct):
    at: datetime
    minutes: list[TrafficMinute]


# By the names under which they are published.
_SCHEMAS: Final[Mapping[str, Any]] = {
    "Operations": Operations,
    "TaskHeld": TaskEnvelope,
    "Health": Health,
    "Readiness": ReadinessAnswer,
    "PendingNamed": desk.PendingPage,
    "Waiting": PendingConfirmation,
    "Challenged": PendingChallenge,
    "Decided": desk.DecisionBody,
    "Ended": desk.EndBody,
    "Issued": desk.IssuedCode,
    "Released": desk.UnblockResult,
    "Trail": desk.AuditTrail,
    "Typed": desk.CodeBody,
    "Unblocked": desk.UnblockBody,
    "AtWork": desk.RunningExecution,
    "Checked": desk.TrailCheck,
    "Executions": desk.Executions,
    "FeedbackGiven": desk.FeedbackList,
    "Tasks": desk.TaskList,
    "TaskSeen": desk.TaskSummary,
    "Sources": Sources,
    "SourceShown": SourceInfo,
    "Traffic": TrafficAnswer,
}
_LINK: Final = (
    f"- [Operations]({{base}}{PATH}): what can be done, with the JSON Schema of the parameters. "
    f"Each is called with `POST {{base}}{PATH}/NAME`."
)


def describe(services: Services) -> Description:
    return Description(
        openapi=lambda _: _openapi(services.site, services.config),
        interfaces=(Interface(PATH, "/openapi.json"),),
        links=(LlmsLink("Do", _LINK, 1),),
        uncrawled=(PATH, TASKS_PATH),
    )


def _openapi(site: Site, config: Config) -> OpenApi:
    operations = [site.catalog.operations[name] for name in sorted(site.catalog.operations)]
    schemas, shared = _operation_schemas(operations)
    groups = _groups(site)
    prefer = {**TEXT, "description": "respond-async: begin a task, and answer at once"}
    task = content(reference("schemas", "TaskHeld"), JSON)
    return OpenApi(
        tags=_tags(site, groups),
        paths={
            **_operations_and_tasks(),
            **_items(config),
            **_desk(),
            **_hooks(),
            **_pages(),
            **_health(),
            **{
                f"{PATH}/{operation.name}": _describe_call(
                    operation, schemas[operation.name], groups.get(operation.name, OPERATIONS)
                )
                for operation in operations
            },
        },
        components={
            "schemas": {**{name: whole_schema(kind) for name, kind in _SCHEMAS.items()}, **shared},
            "responses": {"Begun": response("A task", task, location="Where the task is")},
            "parameters": {"Prefer": parameter("prefer", "header", prefer)},
        },
    )


def _tags(site: Site, groups: Mapping[str, str]) -> list[Tag]:
    """Return first what only this site does, and what there is; then what every site can do."""
    own = [Tag(OWN, "What this site does and others do not.", -1)] if OWN in groups.values() else []
    shelves = [
        Tag(_collection_tag(collection.name), collection.description or collection.title or collection.name, 1)
        for collection in site.catalog.public
    ]
    return [
        *own,
        Tag(ITEMS, "Everything public that the site has, one address each.", 0),
        *shelves,
        Tag(OPERATIONS, "What can be done here, and what every site can do. Errors are problem details (RFC 9457).", 2),
        Tag(TASKS, "Work that takes longer. Only who began it can see it.", 2),
        Tag(DESK, "For operators with a key of the scope `approve`: approvals, agents, tasks and the audit trail.", 4),
        Tag(
            HEALTH,
            "For who runs the site. A server with too much to do answers any request with 503 and a line of text.",
            6,
        ),
    ]


def _groups(site: Site) -> dict[str, str]:
    """Return the tags of operations that not every site has: its own, and those of its collections."""
    public = {collection.name for collection in site.catalog.public}
    operations = site.catalog.operations.values()
    return {
        **dict.fromkeys((operation.name for operation in site.own_operations), OWN),
        **{
            operation.name: _collection_tag(operation.collection)
            for operation in operations
            if operation.collection in public
        },
    }


def _collection_tag(collection: str) -> str:
    return f"Collection {collection}"


@dataclass(frozen=True, slots=True)
class _OperationSchemas:
    params: Schema
    result: Schema


def _operation_schemas(
    operations: Sequence[Operation],
) -> tuple[Mapping[str, _OperationSchemas], Mapping[str, Schema]]:
    """Return the schemas of each operation, and what they refer to. A dot keeps the site's names apart from ours."""
    kinds = [kind for operation in operations for kind in (operation.params, operation.result)]
    types = [Any if kind is object or isinstance(kind, JsonSchema) else kind for kind in kinds]
    generated, shared = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/site.{name}", schema_hook=schema_hook
    )
    schemas = [
        dict(kind.schema) if isinstance(kind, JsonSchema) else schema
        for kind, schema in zip(kinds, generated, strict=True)
    ]
    names = [operation.name for operation in operations]
    pairs = map(_OperationSchemas, schemas[::2], schemas[1::2])
    return dict(zip(names, pairs, strict=True)), {f"site.{name}": schema for name, schema in shared.items()}


def _describe_call(described: Operation, schemas: _OperationSchemas, tag: str) -> Schema:
    result: Schema = {
        "type": "object",
        "properties": {"operation": {"const": described.name}, "result": schemas.result},
        "required": ["operation", "result"],
    }
    responses = {
        200: response("The result", content(result, JSON)),
        202: reference("responses", "Begun"),
        **problems(*OPERATION_PROBLEMS),
    }
    return {
        "post": operation(
            operation_anchor(described.name),
            tag,
            described.summary or described.name,
            responses,
            **({"description": described.description} if described.description != described.summary else {}),
            parameters=[reference("parameters", "Prefer"), IDEMPOTENCY_KEY],
            requestBody={"required": True, "content": content(schemas.params, JSON)},
            **{"x-kind": described.kind.value, "x-danger": described.danger.name.lower()},
        )
    }


def _operations_and_tasks() -> dict[str, Schema]:
    list_responses = {200: response("All operations", content(reference("schemas", "Operations"), JSON))}
    task = {200: response("The task", content(reference("schemas", "TaskHeld"), JSON)), **problems(*READING_PROBLEMS)}
    return {
        PATH: {
            "get": operation(
                "get_operations",
                OPERATIONS,
                "What can be done here",
                {**list_responses, **problems(401, 403, 429, 503)},
            )
        },
        f"{TASKS_PATH}/{{id}}": {
            "parameters": [ID],
            "get": operation("get_task", TASKS, "How a task is getting on", task),
            "delete": operation("delete_task", TASKS, "Stop a task", {**task, **problems(409)}),
        },
    }


def _items(config: Config) -> dict[str, Schema]:
    forms = {**PAGE, **content({"type": "object"}, *FORMATS.values())}
    form = parameter("format", "query", {"enum": list(FORMATS), "description": "Instead of what Accept says"})
    cursor = parameter("cursor", "query", {**TEXT, "description": "Where the page before ended"})
    items = {
        "/collections/{name}": {
            "parameters": [parameter("name", "path", {**TEXT, "minLength": 1}, required=True)],
            "get": operation(
                "get_collection", ITEMS, "A list of items, for people", _readable(PAGE), parameters=[cursor]
            ),
        },
        "/items/{id}": {
            "parameters": [ID],
            "get": operation(
                "get_item",
                ITEMS,
                "One item",
                _readable(forms),
                description="A page, JSON-LD or JSON, as `Accept` says.",
                parameters=[form],
            ),
        },
    }
    images = {
        "/images/{path}": {
            "parameters": [parameter("path", "path", {**TEXT, "minLength": 1}, required=True)],
            "get": operation("get_image", ITEMS, "A picture", {**cacheable(content({}, "*/*")), **problems(404)}),
        }
    }
    return {**items, **images} if config.site.images else items


def _readable(forms: Schema) -> dict[int, Schema]:
    """Describe what is not there for everybody. Who reads pages is told so on a page."""
    return {**cacheable(forms), **{status: reference("responses", f"Refusal{status}") for status in READING_PROBLEMS}}


def _desk() -> dict[str, Schema]:
    """Describe what waits for a person. A code is said nowhere else."""
    token = parameter("token", "path", {**TEXT, "minLength": 1}, required=True)
    after = parameter("after", "query", {"type": "integer", "minimum": 0, "description": "The last line that is known"})
    cursor = parameter("cursor", "query", {**TEXT, "description": "Where the page before ended"})
    limit = parameter("limit", "query", {"type": "integer", "minimum": 0, "maximum": desk.MAX_LINES})
    few = parameter("limit", "query", {"type": "integer", "minimum": 0, "maximum": desk.MAX_TASKS})
    number = parameter("number", "path", {"type": "integer", "minimum": 1}, required=True)
    closed = {status: reference("responses", f"Refusal{status}") for status in (400, 401, 403, 429, 503)}
    api, page = desk.API, {200: response("The page", PAGE), **closed}
    reload = _at_desk("post_reload", "Load a source again", "SourceShown", 202)
    unblock = _at_desk("post_unblock", "Let a caller go on without a code", "Released", **body("Unblocked"))
    return {
        desk.PATH: {"get": operation("get_desk", DESK, "The desk, for people", page)},
        f"{api}/pending": {"get": _at_desk("get_pending", "What waits", "PendingNamed", parameters=[cursor])},
        f"{api}/audit": {"get": _at_desk("get_audit", "The audit trail", "Trail", parameters=[after, limit])},
        f"{api}/audit/check": {"get": _at_desk("get_audit_check", "What is wrong with the trail", "Checked")},
        f"{api}/executions": {"get": _at_desk("get_executions", "Agents at work", "Executions")},
        f"{api}/executions/{{id}}/end": {
            "parameters": [ID],
            "post": _at_desk("post_end", "End what an agent does", "AtWork", **body("Ended")),
        },
        f"{api}/tasks": {"get": _at_desk("get_tasks", "The newest tasks of all", "Tasks", parameters=[few])},
        f"{api}/tasks/{{id}}/cancel": {
            "parameters": [ID],
            "post": _at_desk("post_cancel", "Cancel a task of anybody", "TaskSeen"),
        },
        f"{api}/sources": {"get": _at_desk("get_sources", "What the site is loaded from", "Sources")},
        f"{api}/sources/{{number}}/reload": {"parameters": [number], "post": reload},
        f"{api}/feedback": {
            "get": _at_desk("get_feedback", "What people say of answers", "FeedbackGiven", parameters=[few])
        },
        f"{api}/traffic": {"get": _at_desk("get_traffic", "The last hour of this process", "Traffic")},
        f"{api}/confirmations/{{token}}": {
            "parameters": [token],
            "post": _at_desk("post_confirmation", "Agree, or refuse", "Waiting", **body("Decided")),
        },
        f"{api}/challenges/{{id}}/code": {
            "parameters": [ID],
            "post": _at_desk("post_code", "Make a fresh code", "Issued"),
        },
        f"{api}/challenges/{{id}}/verify": {
            "parameters": [ID],
            "post": _at_desk("post_verify", "Give the code", "Challenged", **body("Typed")),
        },
        f"{api}/agents/unblock": {"post": unblock},
    }


def _hooks() -> dict[str, Schema]:
    name = parameter("name", "path", {**TEXT, "minLength": 1, "description": "Of a source"}, required=True)
    signature = parameter(hooks.SIGNATURE, "header", {**TEXT, "description": "sha256= and the HMAC of the body"})
    shown = content(reference("schemas", "SourceShown"), JSON)
    refused = problems(400, 401, 403, 404, 413, 429, 503)
    accepted = response("It will be loaded", shown, location="Where its state is")
    post = operation(
        "post_source_hook", DESK, "Have a source loaded again", {202: accepted, **refused}, parameters=[signature]
    )
    get = operation(
        "get_source_hook",
        DESK,
        "How fresh a source is",
        {200: response("The source", shown), **refused},
        parameters=[signature],
    )
    return {f"{hooks.PATH}/{{name}}": {"parameters": [name], "post": post, "get": get}}


def _at_desk(id: str, summary: str, schema: str, status: int = 200, **more: Any) -> Schema:
    done = response("Done", content(reference("schemas", schema), JSON))
    responses = {status: done, **problems(400, 401, 403, 404, 409, 413, 422, 429, 503)}
    return operation(id, DESK, summary, responses, **more)


def _pages() -> dict[str, Schema]:
    name = parameter("name", "path", {**TEXT, "description": "As pages name it"}, required=True)
    asset = {**cacheable(content(TEXT, *KINDS.values())), **problems(404)}
    inspector = {**cacheable(PAGE), **DOCUMENT_PROBLEMS}
    return {
        **read_operation("/", "What this site is, and a place to ask it, for people", _readable(PAGE)),
        **read_operation(INSPECT_PATH, "One question through every protocol, for people", inspector),
        **read_operation(f"{ASSETS}/{{name}}", "A part of pages", asset, name),
        **read_operation(EMBED, "The chat, for pages elsewhere", cacheable(content(TEXT, KINDS[".js"]))),
    }


def _health() -> dict[str, Schema]:
    health = {200: response("It does", content(reference("schemas", "Health"), JSON))}
    ready = content(reference("schemas", "Readiness"), JSON)
    readiness = {200: response("It does", ready), 503: response("Not yet", ready)}
    metrics = {200: response("Text", content(TEXT, "text/plain"))}
    return {
        "/healthz": {"get": operation("get_health", HEALTH, "Whether the server runs", health)},
        "/readyz": {"get": operation("get_readiness", HEALTH, "Whether the site answers questions", readiness)},
        "/metrics": {"get": operation("get_metrics", HEALTH, "Figures for Prometheus", metrics)},
    }
