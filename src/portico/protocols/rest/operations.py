"""Operations over plain HTTP: the target of actions, and the shortest way to call one. Decides nothing itself.

POST /operations/{name}   a JSON object of parameters; 200 with the result, or 202 with a task
GET  /operations          what there is, with the JSON Schema of the parameters
GET, DELETE /tasks/{id}   how a task is getting on; stop it

Errors are problem details (RFC 9457).
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from math import ceil
from typing import Annotated, Any, TypeAlias, cast

import msgspec
from msgspec import Meta
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.catalog import Kind, Operation
from portico.config import Config
from portico.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    Denied,
    FeedExpired,
    Forbidden,
    InvalidParams,
    NotFound,
    RateLimited,
    ShuttingDown,
    SiteError,
    SourceError,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
    VersionMismatch,
)
from portico.operations import schema_of
from portico.protocols.http import BEARER, caller_of, decode, is_from_elsewhere, read_body
from portico.requests import Call, Caller, Outcome, Task
from portico.site import Site, shown_task

PATH = "/operations"
TASKS_PATH = "/tasks"

STATUSES: dict[type[SiteError], HTTPStatus] = {
    SiteError: HTTPStatus.INTERNAL_SERVER_ERROR,
    BadRequest: HTTPStatus.BAD_REQUEST,
    InvalidParams: HTTPStatus.UNPROCESSABLE_ENTITY,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    NotFound: HTTPStatus.NOT_FOUND,
    Denied: HTTPStatus.FORBIDDEN,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    Conflict: HTTPStatus.CONFLICT,
    VersionMismatch: HTTPStatus.PRECONDITION_FAILED,
    FeedExpired: HTTPStatus.GONE,
    RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    TimedOut: HTTPStatus.GATEWAY_TIMEOUT,
    Unsupported: HTTPStatus.NOT_IMPLEMENTED,
    SourceError: HTTPStatus.BAD_GATEWAY,
}

INSIDE = (ConfigError, SourceError, Unavailable)  # of these the messages name databases, files and services
_BROKEN = Unavailable("The site cannot do this at the moment", hint="Try again later.")

Endpoint: TypeAlias = Callable[[Request, Caller], Awaitable[Response]]
Answer: TypeAlias = Callable[[Request], Awaitable[Response]]
Refusal: TypeAlias = Callable[[Request, SiteError], Response]
Who: TypeAlias = Callable[[HTTPConnection, Site], Awaitable[Caller]]
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Problem details (RFC 9457), with a hint for people and details for machines."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    details: dict[str, Any]


class Listed(msgspec.Struct, frozen=True):
    """An operation as the list shows it."""

    name: str
    kind: Kind
    danger: str
    description: str
    params: Annotated[dict[str, Any], Meta(description="The JSON Schema of its parameters")]


def routes(site: Site, config: Config) -> list[BaseRoute]:
    """The addresses of this face."""

    async def list_operations(_: Request, __: Caller) -> Response:
        operations = sorted(site.catalog.operations.values(), key=lambda each: each.name)
        return _json({"operations": [_shown(each) for each in operations]})

    async def call(request: Request, caller: Caller) -> Response:
        if is_from_elsewhere(request, config.server):
            await site.gate.spend(caller)
            raise Forbidden("Pages of that origin may run nothing here", hint="The operator decides which origins may.")
        run = "later" if "respond-async" in _preferences(request) else "auto"
        key = request.headers.get("idempotency-key", "")
        params = await site.unless_refused(_params(request, site), caller)
        return _outcome(await site.call(Call(request.path_params["name"], params, run, key), caller))

    async def get_task(request: Request, caller: Caller) -> Response:
        return await _task(site, "get_task", request, caller)

    async def cancel_task(request: Request, caller: Caller) -> Response:
        return await _task(site, "cancel_task", request, caller)

    return [
        Route(PATH, answering(metered(list_operations, site), site), methods=["GET"]),
        Route(f"{PATH}/{{name}}", answering(call, site), methods=["POST"]),
        Route(f"{TASKS_PATH}/{{id}}", answering(get_task, site), methods=["GET"]),
        Route(f"{TASKS_PATH}/{{id}}", answering(cancel_task, site), methods=["DELETE"]),
    ]


def answering(endpoint: Endpoint, site: Site, refused: Refusal | None = None, who: Who = caller_of) -> Answer:
    """An endpoint that is told who calls. Its errors are told as problem details, or as `refused` tells them."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request, await who(request, site))
        except SiteError as error:
            return refused(request, error) if refused else problem(error)

    return answer


def metered(endpoint: Endpoint, site: Site) -> Endpoint:
    """An endpoint that costs its caller one request, for what no door of the site meters."""

    async def spending(request: Request, caller: Caller) -> Response:
        await site.gate.spend(caller)
        return await endpoint(request, caller)

    return spending


def status_of(error: SiteError) -> HTTPStatus:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(error: SiteError) -> Response:
    """An error as problem details, with the headers its status asks for.

    What went wrong inside is told to the operator, not to the caller.
    """
    name, status = type(error).__name__, status_of(error)
    told = _BROKEN if isinstance(error, INSIDE) and not isinstance(error, TimedOut | ShuttingDown) else error
    body = Problem(
        type=f"urn:portico:error:{name}",
        title=_WORDS.sub(" ", name).capitalize(),
        status=status.value,
        detail=told.message,
        hint=told.hint or None,
        details=told.details,
    )
    return _json(body, status, _headers(error), "application/problem+json")


def refusal(status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """What no error of the site stands behind: an address or a method that is not there, or a server that failed."""
    body = Problem(type="about:blank", title=status.phrase, status=status.value, detail=detail, details={})
    return _json(body, status, headers, "application/problem+json")


def _headers(error: SiteError) -> dict[str, str]:
    match error:
        case Unauthenticated():
            return {"www-authenticate": BEARER}
        case RateLimited():
            return {"retry-after": str(ceil(error.details.get("retry_after", 1)))}
        case _:
            return {}


async def _params(request: Request, site: Site) -> Mapping[str, Any]:
    # A page elsewhere can make a browser send any other kind without asking first.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest("Parameters are JSON", hint="Send `content-type: application/json`.")
    params = decode(await read_body(request, site.limits.payload_bytes) or b"{}", site.limits)
    if not isinstance(params, dict):
        raise BadRequest("Parameters are a JSON object", hint='Write {"name": value}.')
    return cast("dict[str, Any]", params)


def _preferences(request: Request) -> set[str]:
    """What the client prefers (RFC 7240), without parameters."""
    stated = ",".join(request.headers.getlist("prefer"))
    return {each.partition(";")[0].strip().lower() for each in stated.split(",")}


async def _task(site: Site, operation: str, request: Request, caller: Caller) -> Response:
    """Through an operation, so that the gate is asked."""
    outcome = await site.call(Call(operation, {"id": request.path_params["id"]}, run="now"), caller)
    return _json({"task": cast("Outcome", outcome).result})


def _outcome(outcome: Outcome | Task) -> Response:
    if isinstance(outcome, Task):
        return _json({"task": shown_task(outcome)}, HTTPStatus.ACCEPTED, {"location": f"{TASKS_PATH}/{outcome.id}"})
    return _json({"operation": outcome.operation, "result": outcome.result})


def _shown(operation: Operation) -> Listed:
    danger = operation.danger.name.lower()
    return Listed(operation.name, operation.kind, danger, operation.description, schema_of(operation.params))


def _json(
    body: Any,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
    media_type: str = "application/json",
) -> Response:
    # What is said here is for one caller, and of this moment.
    told = {"cache-control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(body, enc_hook=str), status, told, media_type)
