"""Errors of the chat protocol: a string or an object, with a status. An error that a retry cannot mend is 4xx."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal, TypeAlias

import msgspec
from starlette.responses import Response

from portico.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    Denied,
    NotFound,
    OperationFailed,
    RateLimited,
    SiteError,
    SourceError,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from portico.protocols import problems
from portico.protocols.problems import BROKEN, error_headers

ErrorForm: TypeAlias = Literal["text", "object"]


class MethodNotAllowed(BadRequest):
    """The path exists, but not for this method."""


# Clients retry after a 5xx, so an error that a retry would repeat, or that must not run twice, is 4xx.
STATUSES: Mapping[type[SiteError], HTTPStatus] = {
    BadRequest: HTTPStatus.BAD_REQUEST,
    NotFound: HTTPStatus.NOT_FOUND,
    Denied: HTTPStatus.FORBIDDEN,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    Conflict: HTTPStatus.BAD_REQUEST,
    RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    Unsupported: HTTPStatus.BAD_REQUEST,
    OperationFailed: HTTPStatus.BAD_REQUEST,
    Unavailable: HTTPStatus.INTERNAL_SERVER_ERROR,
    ConfigError: HTTPStatus.INTERNAL_SERVER_ERROR,
    SourceError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
CODES: Mapping[type[SiteError], str] = {**problems.CODES, MethodNotAllowed: "METHOD_NOT_ALLOWED"}
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def status_of(error: SiteError) -> HTTPStatus:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def error_body(error: SiteError, form: ErrorForm) -> dict[str, Any]:
    """Return an error as a body or a line. Internal errors are not explained to the caller."""
    text = str(BROKEN if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR else error)
    return {"error": text if form == "text" else {"code": _code(error), "message": text}}


def _code(error: SiteError) -> str:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def refusal(error: SiteError, form: ErrorForm, status: int | None = None, headers: Mapping[str, str] = {}) -> Response:
    all_headers = {**HEADERS, **error_headers(error), **headers}
    body = msgspec.json.encode(error_body(error, form))
    return Response(body, status or status_of(error), all_headers, "application/json")
