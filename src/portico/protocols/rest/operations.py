"""Operations over plain HTTP: the target of actions, and the shortest way to call one.

POST /operations/{name}   a JSON object of parameters; 200 with the result, or 202 with a task
GET  /operations          the operations, with the JSON Schema of their parameters
GET, DELETE /tasks/{id}   check a task, or cancel it

Errors are problem details (RFC 9457).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.catalog import Kind, Operation
from portico.config import Config
from portico.errors import BadRequest
from portico.operations import schema_of
from portico.operations.builtin import render_task
from portico.protocols.edge import EdgePolicy, check_origin
from portico.protocols.http import decode, read_body
from portico.protocols.problems import make_handler
from portico.requests import Call, Caller, Outcome, Task
from portico.site import Site

PATH = "/operations"
TASKS_PATH = "/tasks"


class OperationSummary(msgspec.Struct, frozen=True):
    """An operation as the list shows it."""

    name: str
    kind: Kind
    danger: str
    description: str
    params: Annotated[dict[str, Any], Meta(description="The JSON Schema of its parameters")]


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes of this protocol."""

    async def list_operations(_: Request, __: Caller) -> Response:
        operations = sorted(site.catalog.operations.values(), key=lambda operation: operation.name)
        return _json({"operations": [_summarize(operation) for operation in operations]})

    async def call(request: Request, caller: Caller) -> Response:
        run = "later" if "respond-async" in _preferences(request) else "auto"
        key = request.headers.get("idempotency-key", "")
        params = await _params(request, site)
        return _outcome(await site.call(Call(request.path_params["name"], params, run, key), caller))

    async def get_task(request: Request, caller: Caller) -> Response:
        return await _task(site, "get_task", request, caller)

    async def cancel_task(request: Request, caller: Caller) -> Response:
        return await _task(site, "cancel_task", request, caller)

    return [
        Route(PATH, make_handler(list_operations), methods=["GET"]),
        Route(f"{PATH}/{{name}}", make_handler(call), methods=["POST"]),
        Route(f"{TASKS_PATH}/{{id}}", make_handler(get_task), methods=["GET"]),
        Route(f"{TASKS_PATH}/{{id}}", make_handler(cancel_task), methods=["DELETE"]),
    ]


def edge_policy(config: Config) -> EdgePolicy:
    """Return how the edge admits requests: pages of other origins may not run operations."""

    def check(connection: HTTPConnection) -> None:
        if connection.scope["type"] == "http" and connection.scope["method"] == "POST":
            check_origin(connection, config.server)

    return EdgePolicy(check=check)


async def _params(request: Request, site: Site) -> Mapping[str, Any]:
    # Another page can make a browser send any other content type without a preflight.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest("Parameters must be JSON", hint="Send `content-type: application/json`.")
    params = decode(await read_body(request, site.limits.payload_bytes) or b"{}", site.limits)
    if not isinstance(params, dict):
        raise BadRequest("Parameters must be a JSON object", hint='Write {"name": value}.')
    return cast("dict[str, Any]", params)


def _preferences(request: Request) -> set[str]:
    """Return the client's preferences (RFC 7240), without parameters."""
    stated = ",".join(request.headers.getlist("prefer"))
    return {preference.partition(";")[0].strip().lower() for preference in stated.split(",")}


async def _task(site: Site, operation: str, request: Request, caller: Caller) -> Response:
    """Return the result of an operation on a task, so that rights are checked."""
    outcome = await site.call(Call(operation, {"id": request.path_params["id"]}, run="now"), caller)
    return _json({"task": cast("Outcome", outcome).result})


def _outcome(outcome: Outcome | Task) -> Response:
    if isinstance(outcome, Task):
        return _json({"task": render_task(outcome)}, HTTPStatus.ACCEPTED, {"location": f"{TASKS_PATH}/{outcome.id}"})
    return _json({"operation": outcome.operation, "result": outcome.result})


def _summarize(operation: Operation) -> OperationSummary:
    danger = operation.danger.name.lower()
    return OperationSummary(operation.name, operation.kind, danger, operation.description, schema_of(operation.params))


def _json(
    body: Any,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
    media_type: str = "application/json",
) -> Response:
    # The response is for one caller and this moment.
    all_headers = {"cache-control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(body, enc_hook=str), status, all_headers, media_type)
