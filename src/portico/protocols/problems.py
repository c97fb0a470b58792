"""Errors as HTTP responses: problem details (RFC 9457), and what all protocols say alike about an error."""

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from portico.errors import (
    BadRequest,
    ConfigError,
    ConfirmationNeeded,
    Conflict,
    Denied,
    FeedExpired,
    InvalidParams,
    NotFound,
    OperationFailed,
    RateLimited,
    ShuttingDown,
    SiteError,
    SourceError,
    TaskCancelled,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownTask,
    Unsupported,
    VersionMismatch,
)
from portico.protocols.http import BEARER, caller_of
from portico.requests import Caller

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

INSIDE = (ConfigError, SourceError, Unavailable)  # their messages may name databases, files and services
_FAILED = Unavailable("The site cannot do this at the moment", hint="Try again later.")
BROKEN = Unavailable("The site cannot answer this at the moment", hint="Try again later.")

# The codes of errors wherever a protocol has none of its own. There is no entry for SiteError: a new kind needs a code.
CODES: Mapping[type[SiteError], str] = {
    BadRequest: "INVALID_QUERY",
    TooLarge: "TOKEN_LIMIT",
    NotFound: "NOT_FOUND",
    UnknownTask: "UNKNOWN_PROMISE",
    Denied: "FORBIDDEN",
    Unauthenticated: "UNAUTHENTICATED",
    ConfirmationNeeded: "CONFIRMATION_NEEDED",
    Conflict: "CONFLICT",
    TaskCancelled: "CANCELLED",
    RateLimited: "RATE_LIMITED",
    Unavailable: "INTERNAL_ERROR",
    TimedOut: "TIMEOUT",
    Unsupported: "UNSUPPORTED",
    OperationFailed: "INTERNAL_ERROR",
    ConfigError: "INTERNAL_ERROR",
    SourceError: "INTERNAL_ERROR",
}


Endpoint: TypeAlias = Callable[[Request, Caller], Awaitable[Response]]
Answer: TypeAlias = Callable[[Request], Awaitable[Response]]
Refusal: TypeAlias = Callable[[Request, SiteError], Response]
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Problem details (RFC 9457), with a hint for people and details for machines."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    details: dict[str, Any]


def make_handler(endpoint: Endpoint, render_error: Refusal | None = None) -> Answer:
    """Return a handler of Starlette for an endpoint that is given its caller.

    Errors become problem details, or what `render_error` makes of them.
    """

    async def handle(request: Request) -> Response:
        try:
            return await endpoint(request, caller_of(request))
        except SiteError as error:
            return render_error(request, error) if render_error else problem(error)

    return handle


def status_of(error: SiteError) -> HTTPStatus:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(error: SiteError) -> Response:
    """Return an error as problem details, with the headers that go with its status.

    Internal errors are not explained to the caller.
    """
    name, status = type(error).__name__, status_of(error)
    public_error = _FAILED if isinstance(error, INSIDE) and not isinstance(error, TimedOut | ShuttingDown) else error
    body = Problem(
        type=f"urn:portico:error:{name}",
        title=_WORDS.sub(" ", name).capitalize(),
        status=status.value,
        detail=public_error.message,
        hint=public_error.hint or None,
        details=public_error.details,
    )
    return _respond(body, status, error_headers(error))


def refusal(status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response for a failure without an error of the site: an unknown path or method, or a defect."""
    body = Problem(type="about:blank", title=status.phrase, status=status.value, detail=detail, details={})
    return _respond(body, status, headers)


def _respond(body: Problem, status: HTTPStatus, headers: Mapping[str, str] | None) -> Response:
    all_headers = {"cache-control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(body, enc_hook=str), status, all_headers, "application/problem+json")


def retry_after(error: SiteError) -> int:
    """Return the whole seconds to wait, at least one."""
    return max(1, ceil(error.details.get("retry_after", 1)))


def error_headers(error: SiteError | None) -> dict[str, str]:
    """Return the headers that go with an error."""
    match error:
        case RateLimited():
            return {"retry-after": str(retry_after(error))}
        case Unauthenticated():
            return {"www-authenticate": BEARER}
        case _:
            return {}
