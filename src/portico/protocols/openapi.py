"""Building blocks of OpenAPI for protocols that describe their paths, and the components that several of them share."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from portico.protocols import Schema
from portico.protocols.problems import STATUSES, Problem
from portico.protocols.schemas import whole_schema

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
PROBLEM: Final = "application/problem+json"
TEXT: Final[Schema] = {"type": "string"}
# Tags of paths that several protocols have.
QUESTIONS: Final = "Questions"
AGENTS: Final = "Agents"
DISCOVERY: Final = "Discovery"
HEADERS: Final[Mapping[int, dict[str, str]]] = {
    401: {"www_authenticate": "How to say who asks"},
    429: {"retry_after": "Seconds to wait"},
}


class Event(msgspec.Struct):
    """One of a stream."""

    data: Annotated[str, Meta(description="JSON", extra_json_schema={"contentMediaType": "application/json"})]
    event: Annotated[str | None, Meta(description="Of 0.55: start, result, text, error or complete")] = None


class RpcRequest(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | None = None
    params: dict[str, Any] | None = None


class RpcError(msgspec.Struct):
    code: int
    message: str


class RpcResponse(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: Any = None
    result: Any = None
    error: RpcError | None = None


def reference(part: str, name: str) -> Schema:
    return {"$ref": f"#/components/{part}/{name}"}


def content(schema: Schema, *media_types: str) -> Schema:
    return {media_type: {"schema": schema} for media_type in media_types}


PAGE: Final = content(TEXT, "text/html")
DOCUMENT: Final = content({"type": "object"}, JSON)
EVENT_STREAM: Final = content(reference("schemas", "Event"), EVENTS)
ID: Final[Schema] = {"name": "id", "in": "path", "required": True, "schema": {**TEXT, "minLength": 1}}
IDEMPOTENCY_KEY: Final = reference("parameters", "IdempotencyKey")
OPERATION_PROBLEMS: Final = tuple(sorted({status.value for status in STATUSES.values()}))
READING_PROBLEMS: Final = (400, 401, 403, 404, 422, 429, 503, 504)


def response(description: str, content: Schema | None = None, **headers: str) -> Schema:
    """Describe what comes back with a status. Headers are named with _ for -."""
    described = {name.replace("_", "-"): {"description": text, "schema": TEXT} for name, text in headers.items()}
    members = {"description": description, "headers": described, "content": content}
    return {name: value for name, value in members.items() if value}


def operation(id: str, tag: str, summary: str, responses: Mapping[int, Schema], **more: Any) -> Schema:
    """Describe one method of a path."""
    by_status = {str(status): value for status, value in sorted(responses.items())}
    return {"operationId": id, "tags": [tag], "summary": summary, **more, "responses": by_status}


def read_operation(path: str, summary: str, responses: Mapping[int, Schema], *parameters: Schema) -> dict[str, Schema]:
    """Describe the path of a document that is there to be read."""
    id = re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_") or "home"
    get = operation(f"get_{id}", DISCOVERY, summary, responses)
    return {path: {"parameters": list(parameters), "get": get} if parameters else {"get": get}}


def parameter(name: str, place: str, schema: Schema, *, required: bool = False) -> Schema:
    bare = {key: value for key, value in schema.items() if key != "description"}
    members = {
        "name": name,
        "in": place,
        "required": required,
        "description": schema.get("description"),
        "schema": bare,
    }
    return {name: value for name, value in members.items() if value is not None}


def body(name: str) -> Schema:
    """Describe a body of JSON that must be of a schema."""
    return {"requestBody": {"required": True, "content": content(reference("schemas", name), JSON)}}


def rpc_body(method: str, params: Schema) -> Schema:
    """Describe a message of JSON-RPC, with an example."""
    example = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return {"required": True, "content": {JSON: {"schema": reference("schemas", "RpcRequest"), "example": example}}}


def problems(*statuses: int) -> dict[int, Schema]:
    """Describe refusals as problem details (RFC 9457)."""
    return {status: reference("responses", f"Problem{status}") for status in statuses}


DOCUMENT_PROBLEMS: Final = problems(401, 429, 503)


def refusals(statuses: Iterable[int], form: Schema) -> dict[int, Schema]:
    """Describe refusals in a form of a protocol's own."""
    return {status: response(HTTPStatus(status).phrase, form, **HEADERS.get(status, {})) for status in statuses}


def refusal_components(name: str, statuses: Iterable[int], form: Schema) -> dict[str, Schema]:
    """Return the same as components that `reference("responses", f"{name}{status}")` leads to."""
    return {f"{name}{status}": refusal for status, refusal in refusals(statuses, form).items()}


def cacheable(forms: Schema) -> dict[int, Schema]:
    """Describe something that a reader may keep, and ask whether it has changed."""
    return {200: response("Found", forms, etag="Of this version"), 304: response("Nothing has changed since")}


def common_components() -> dict[str, dict[str, Schema]]:
    """Return the components that paths of several protocols refer to."""
    problem = content(reference("schemas", "Problem"), PROBLEM)
    key = {**TEXT, "description": "The same key again does nothing again"}
    return {
        "schemas": {kind.__name__: whole_schema(kind) for kind in (Problem, Event, RpcRequest, RpcResponse)},
        "responses": {
            **refusal_components("Problem", OPERATION_PROBLEMS, problem),
            **refusal_components("Refusal", READING_PROBLEMS, {**problem, **PAGE}),
        },
        "parameters": {"IdempotencyKey": parameter("idempotency-key", "header", key)},
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or an access token"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An API key"},
        },
    }
