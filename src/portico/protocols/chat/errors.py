"""Errors as this protocol tells them: a text or an object, with a status. What cannot succeed by itself is 4xx."""

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
from portico.protocols.nlweb.dialects import V55
from portico.protocols.nlweb.errors import BROKEN, code_of, headers_of

ErrorForm: TypeAlias = Literal["text", "object"]


class WrongMethod(BadRequest):
    """An address that is there, asked in a way that it is not for."""


# Clients send a request again that met a 5xx: what would fail again, or would be done again, is the caller's to mend.
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
CODES: Mapping[type[SiteError], str] = {WrongMethod: "METHOD_NOT_ALLOWED"}  # beyond those of NLWeb
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def status_of(error: SiteError) -> HTTPStatus:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def shown_error(error: SiteError, form: ErrorForm) -> dict[str, Any]:
    """An error as a body or a line. What went wrong inside is told to the operator, not to the caller."""
    text = str(BROKEN if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR else error)
    return {"error": text if form == "text" else {"code": _code(error), "message": text}}


def _code(error: SiteError) -> str:
    return CODES.get(type(error)) or code_of(error, V55).code


def refusal(error: SiteError, form: ErrorForm, status: int | None = None, headers: Mapping[str, str] = {}) -> Response:
    told = {**HEADERS, **headers_of(error), **headers}
    body = msgspec.json.encode(shown_error(error, form))
    return Response(body, status or status_of(error), told, "application/json")
