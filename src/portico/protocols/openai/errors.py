"""Errors as OpenAI's API has them: a type, a code and the parameter that is wrong."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from portico.errors import (
    BadRequest,
    Denied,
    NotFound,
    RateLimited,
    ShuttingDown,
    SiteError,
    TimedOut,
    TooLarge,
    Unauthenticated,
)
from portico.protocols.problems import BROKEN, INSIDE, error_headers, status_of

TYPES: Mapping[type[SiteError], tuple[str, str | None]] = {
    SiteError: ("server_error", None),
    BadRequest: ("invalid_request_error", None),
    TooLarge: ("invalid_request_error", "request_too_large"),
    NotFound: ("invalid_request_error", "not_found"),
    Unauthenticated: ("authentication_error", "invalid_api_key"),
    Denied: ("permission_error", None),
    RateLimited: ("rate_limit_error", "rate_limit_exceeded"),
}
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class UnknownModel(NotFound):
    """A name that is no model of this site."""


class InvalidParameter(BadRequest):
    """A parameter with a value that cannot be used; `details["param"]` names it."""


def error_body(error: SiteError) -> dict[str, Any]:
    """Return an error as an object. The operator reads what failed inside; the caller does not."""
    is_internal = isinstance(error, INSIDE) and not isinstance(error, TimedOut | ShuttingDown)
    kind, code = next(TYPES[cls] for cls in type(error).__mro__ if cls in TYPES)
    code = "model_not_found" if isinstance(error, UnknownModel) else code
    message = str(BROKEN if is_internal else error)
    return {"message": message, "type": kind, "param": error.details.get("param"), "code": code}


def render_error(_: Scope, error: Exception) -> Response:
    match error:
        case SiteError():
            return _respond(error_body(error), status_of(error), error_headers(error))
        case HTTPException():
            body = {"message": error.detail, "type": "invalid_request_error", "param": None, "code": None}
            return _respond(body, error.status_code, error.headers)
        case _:
            return _respond(error_body(BROKEN), HTTPStatus.INTERNAL_SERVER_ERROR, None)


def _respond(body: dict[str, Any], status: int, headers: Mapping[str, str] | None) -> Response:
    content = msgspec.json.encode({"error": body}, enc_hook=str)
    return Response(content, status, {**HEADERS, **(headers or {})}, "application/json")
