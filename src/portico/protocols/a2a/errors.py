"""Errors as JSON-RPC errors: one table from class to code and status. What fails inside a task is told by the task."""

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
from portico.protocols.edge import Unreadable, WrongHost, WrongKind
from portico.protocols.nlweb.dialects import V55
from portico.protocols.nlweb.errors import headers_of, shown_error


@dataclass(frozen=True, slots=True)
class Code:
    code: int
    status: int = 200


INVALID_REQUEST, INVALID_PARAMS, INTERNAL, PARSE_ERROR = -32600, -32602, -32603, -32700
TASK_NOT_FOUND, NOT_CANCELABLE, UNSUPPORTED = -32001, -32002, -32004
# Codes from -32000 to -32099 are a server's own; A2A has taken the first ten.
UNAUTHENTICATED, FORBIDDEN, RATE_LIMITED = -32041, -32043, -32029

# There is no entry for SiteError itself: a new kind of error needs a code of its own.
CODES: Mapping[type[SiteError], Code] = {
    BadRequest: Code(INVALID_PARAMS),
    TooLarge: Code(INVALID_REQUEST, 413),
    WrongKind: Code(INVALID_REQUEST, 415),
    Unreadable: Code(PARSE_ERROR),
    NotFound: Code(INVALID_PARAMS),
    UnknownTask: Code(TASK_NOT_FOUND),
    Denied: Code(FORBIDDEN, 403),
    Unauthenticated: Code(UNAUTHENTICATED, 401),
    WrongHost: Code(INVALID_REQUEST, 421),
    Conflict: Code(UNSUPPORTED),
    OutcomeUnknown: Code(INTERNAL),
    TaskFinished: Code(NOT_CANCELABLE),
    TaskCancelled: Code(NOT_CANCELABLE),
    RateLimited: Code(RATE_LIMITED, 429),
    Unavailable: Code(INTERNAL, 503),
    Unsupported: Code(UNSUPPORTED),
    OperationFailed: Code(INTERNAL),
    ConfigError: Code(INTERNAL, 500),
    SourceError: Code(INTERNAL, 500),
}


def code_of(error: SiteError) -> Code:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def refusal(error: SiteError, request_id: Any = None) -> Response:
    """A JSON-RPC error as a whole response. Its data say what it is in the words of NLWeb, and why."""
    found, shown = code_of(error), shown_error(error, V55)
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": shown["code"],
        "domain": "portico",
        "metadata": {name: str(value) for name, value in shown.items() if name not in {"code", "message"}},
    }
    told = {"code": found.code, "message": shown["message"], "data": [info]}
    body = {"jsonrpc": "2.0", "id": request_id, "error": told}
    headers = {"cache-control": "no-store", **headers_of(error)}
    return Response(msgspec.json.encode(body), found.status, headers, "application/json")
