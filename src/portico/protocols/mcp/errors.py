"""Errors as JSON-RPC errors: one table from class to code and status. Errors of tools are results."""

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
from portico.protocols.edge import WrongHost
from portico.protocols.jsonrpc import InvalidMessage, UnreadableBody, WrongMediaType
from portico.protocols.problems import BROKEN, error_headers, retry_after


@dataclass(frozen=True, slots=True)
class McpErrorCode:
    code: int
    status: int  # of a response that has nothing but the error


INVALID_REQUEST, INVALID_PARAMS, METHOD_NOT_FOUND, INTERNAL, PARSE_ERROR = -32600, -32602, -32601, -32603, -32700
# Codes from -32000 to -32099 are a server's own, as far as MCP and its SDK have not taken them.
RATE_LIMITED, UNAUTHENTICATED, FORBIDDEN, TIMED_OUT, CONFLICT = -32029, -32051, -32043, -32044, -32049

# There is no entry for SiteError itself: a new kind of error needs a code of its own.
CODES: Mapping[type[SiteError], McpErrorCode] = {
    BadRequest: McpErrorCode(INVALID_PARAMS, 400),
    UnreadableBody: McpErrorCode(PARSE_ERROR, 400),
    InvalidMessage: McpErrorCode(INVALID_REQUEST, 400),
    WrongMediaType: McpErrorCode(INVALID_REQUEST, 415),
    TooLarge: McpErrorCode(INVALID_REQUEST, 413),
    NotFound: McpErrorCode(INVALID_PARAMS, 404),
    Denied: McpErrorCode(FORBIDDEN, 403),
    WrongHost: McpErrorCode(INVALID_REQUEST, 421),
    Unauthenticated: McpErrorCode(UNAUTHENTICATED, 401),
    Conflict: McpErrorCode(CONFLICT, 409),
    RateLimited: McpErrorCode(RATE_LIMITED, 429),
    TimedOut: McpErrorCode(TIMED_OUT, 504),
    Unsupported: McpErrorCode(METHOD_NOT_FOUND, 501),
    Unavailable: McpErrorCode(INTERNAL, 503),
    OperationFailed: McpErrorCode(INTERNAL, 500),
    ConfigError: McpErrorCode(INTERNAL, 500),
    SourceError: McpErrorCode(INTERNAL, 502),
}


def code_of(error: SiteError) -> McpErrorCode:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def rpc_error(error: SiteError) -> dict[str, Any]:
    """Return the `error` of a message. Internal errors are not explained to the client."""
    code = code_of(error).code
    if code == INTERNAL:
        return {"code": code, "message": str(BROKEN)}
    return {"code": code, "message": str(error), "data": error_data(error)}


def error_data(error: SiteError) -> dict[str, Any]:
    """Return the details of an error for programs, besides its message."""
    details = {"error": type(error).__name__, **error.details}
    return {**details, "retry_after": retry_after(error)} if isinstance(error, RateLimited) else details


def refusal(error: SiteError, request_id: str | int | None = None) -> Response:
    """Return an error as a whole response."""
    body = {"jsonrpc": "2.0", "id": request_id, "error": rpc_error(error)}
    return Response(
        msgspec.json.encode(body, enc_hook=str), code_of(error).status, error_headers(error), "application/json"
    )
