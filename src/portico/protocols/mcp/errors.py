"""Errors as JSON-RPC errors: one table from class to code and status. What a tool could not do its result tells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from portico.protocols.edge import NoMessage, Unreadable, WrongHost, WrongKind
from portico.protocols.nlweb.errors import BROKEN, headers_of, retry_after


@dataclass(frozen=True, slots=True)
class Code:
    code: int
    status: int  # of a response that has nothing but the error


INVALID_REQUEST, INVALID_PARAMS, METHOD_NOT_FOUND, INTERNAL, PARSE_ERROR = -32600, -32602, -32601, -32603, -32700
# Codes from -32000 to -32099 are a server's own, as far as MCP and its SDK have not taken them.
RATE_LIMITED, UNAUTHENTICATED, FORBIDDEN, TIMED_OUT, CONFLICT = -32029, -32051, -32043, -32044, -32049

# There is no entry for SiteError itself: a new kind of error needs a code of its own.
CODES: Mapping[type[SiteError], Code] = {
    BadRequest: Code(INVALID_PARAMS, 400),
    Unreadable: Code(PARSE_ERROR, 400),
    NoMessage: Code(INVALID_REQUEST, 400),
    WrongKind: Code(INVALID_REQUEST, 415),
    TooLarge: Code(INVALID_REQUEST, 413),
    NotFound: Code(INVALID_PARAMS, 404),
    Denied: Code(FORBIDDEN, 403),
    WrongHost: Code(INVALID_REQUEST, 421),
    Unauthenticated: Code(UNAUTHENTICATED, 401),
    Conflict: Code(CONFLICT, 409),
    RateLimited: Code(RATE_LIMITED, 429),
    TimedOut: Code(TIMED_OUT, 504),
    Unsupported: Code(METHOD_NOT_FOUND, 501),
    Unavailable: Code(INTERNAL, 503),
    OperationFailed: Code(INTERNAL, 500),
    ConfigError: Code(INTERNAL, 500),
    SourceError: Code(INTERNAL, 502),
}


def code_of(error: SiteError) -> Code:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def told(error: SiteError) -> dict[str, Any]:
    """The `error` of a message. What went wrong inside is told to the operator, not to the client."""
    code = code_of(error).code
    if code == INTERNAL:
        return {"code": code, "message": str(BROKEN)}
    return {"code": code, "message": str(error), "data": shown(error)}


def shown(error: SiteError) -> dict[str, Any]:
    """What a program can use of an error, besides its message."""
    details = {"error": type(error).__name__, **error.details}
    return {**details, "retry_after": retry_after(error)} if isinstance(error, RateLimited) else details


def refusal(error: SiteError, request_id: str | int | None = None) -> Response:
    """An error that is the whole response."""
    body = {"jsonrpc": "2.0", "id": request_id, "error": told(error)}
    return Response(
        msgspec.json.encode(body, enc_hook=str), code_of(error).status, headers_of(error), "application/json"
    )
