"""Errors as JSON-RPC errors: one table from class to code and status. A task reports its own failure."""

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
    OutcomeUnknown,
    RateLimited,
    SiteError,
    SourceError,
    TaskCancelled,
    TaskFinished,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownTask,
    Unsupported,
)
from portico.protocols.edge import WrongHost
from portico.protocols.jsonrpc import UnreadableBody, WrongMediaType
from portico.protocols.nlweb.dialects import V55
from portico.protocols.nlweb.errors import error_body
from portico.protocols.problems import error_headers


@dataclass(frozen=True, slots=True)
class A2aErrorCode:
    code: int
    status: int = 200


INVALID_REQUEST, INVALID_PARAMS, INTERNAL, PARSE_ERROR = -32600, -32602, -32603, -32700
TASK_NOT_FOUND, NOT_CANCELABLE, UNSUPPORTED = -32001, -32002, -32004
# Codes from -32000 to -32099 are a server's own; A2A has taken the first ten.
UNAUTHENTICATED, FORBIDDEN, RATE_LIMITED = -32041, -32043, -32029

# There is no entry for SiteError itself: a new kind of error needs a code of its own.
CODES: Mapping[type[SiteError], A2aErrorCode] = {
    BadRequest: A2aErrorCode(INVALID_PARAMS),
    TooLarge: A2aErrorCode(INVALID_REQUEST, 413),
    WrongMediaType: A2aErrorCode(INVALID_REQUEST, 415),
    UnreadableBody: A2aErrorCode(PARSE_ERROR),
    NotFound: A2aErrorCode(INVALID_PARAMS),
    UnknownTask: A2aErrorCode(TASK_NOT_FOUND),
    Denied: A2aErrorCode(FORBIDDEN, 403),
    Unauthenticated: A2aErrorCode(UNAUTHENTICATED, 401),
    WrongHost: A2aErrorCode(INVALID_REQUEST, 421),
    Conflict: A2aErrorCode(UNSUPPORTED),
    OutcomeUnknown: A2aErrorCode(INTERNAL),
    TaskFinished: A2aErrorCode(NOT_CANCELABLE),
    TaskCancelled: A2aErrorCode(NOT_CANCELABLE),
    RateLimited: A2aErrorCode(RATE_LIMITED, 429),
    Unavailable: A2aErrorCode(INTERNAL, 503),
    Unsupported: A2aErrorCode(UNSUPPORTED),
    OperationFailed: A2aErrorCode(INTERNAL),
    ConfigError: A2aErrorCode(INTERNAL, 500),
    SourceError: A2aErrorCode(INTERNAL, 500),
}


def code_of(error: SiteError) -> A2aErrorCode:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def refusal(error: SiteError, request_id: Any = None) -> Response:
    """Return a JSON-RPC error as a whole response. Its data has the error code of NLWeb."""
    code, failure = code_of(error), error_body(error, V55)
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": failure["code"],
        "domain": "portico",
        "metadata": {name: str(value) for name, value in failure.items() if name not in {"code", "message"}},
    }
    rpc_error = {"code": code.code, "message": failure["message"], "data": [info]}
    body = {"jsonrpc": "2.0", "id": request_id, "error": rpc_error}
    headers = {"cache-control": "no-store", **error_headers(error)}
    return Response(msgspec.json.encode(body), code.status, headers, "application/json")
