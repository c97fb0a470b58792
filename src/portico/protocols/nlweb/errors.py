"""Errors as NLWeb failures: one table from class to code and status."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.errors import (
    BadRequest,
    ConfigError,
    ConfirmationNeeded,
    Conflict,
    Denied,
    NotFound,
    OperationFailed,
    RateLimited,
    SiteError,
    SourceError,
    TaskCancelled,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownTask,
    Unsupported,
)
from portico.protocols.http import BEARER
from portico.protocols.nlweb.dialects import V54, Dialect, Voice


class NoResults(NotFound):
    """Nothing fits the question. The flat dialect has no failures, and shows a message instead."""


class UnsupportedFormat(Unsupported): ...


class UnsupportedMode(Unsupported): ...


class MissingField(BadRequest): ...


class InvalidAction(BadRequest): ...


@dataclass(frozen=True, slots=True)
class Code:
    code: str
    status: int


INTERNAL = Code("INTERNAL_ERROR", 500)

# There is no entry for SiteError itself: a new kind of error needs a code of its own.
CODES: Mapping[type[SiteError], Code] = {
    BadRequest: Code("INVALID_QUERY", 400),
    TooLarge: Code("TOKEN_LIMIT", 400),
    NotFound: Code("NOT_FOUND", 200),
    UnknownTask: Code("UNKNOWN_PROMISE", 200),
    NoResults: Code("NO_RESULTS", 200),
    Denied: Code("FORBIDDEN", 403),
    Unauthenticated: Code("UNAUTHENTICATED", 401),
    ConfirmationNeeded: Code("CONFIRMATION_NEEDED", 200),
    Conflict: Code("CONFLICT", 200),
    TaskCancelled: Code("CANCELLED", 200),
    RateLimited: Code("RATE_LIMITED", 429),
    Unavailable: INTERNAL,
    TimedOut: Code("TIMEOUT", 200),
    Unsupported: Code("UNSUPPORTED", 200),
    UnsupportedFormat: Code("UNSUPPORTED_FORMAT", 200),
    UnsupportedMode: Code("UNSUPPORTED_MODE", 200),
    OperationFailed: Code("INTERNAL_ERROR", 200),
    ConfigError: INTERNAL,
    SourceError: INTERNAL,
}

# What the 0.54 text calls by other names.
CODES_54: Mapping[type[SiteError], Code] = {
    BadRequest: Code("INVALID_REQUEST", 400),
    MissingField: Code("MISSING_FIELD", 400),
    InvalidAction: Code("INVALID_ACTION", 400),
}

BROKEN = Unavailable("The site cannot answer this at the moment", hint="Try again later.")


def code_of(error: SiteError, dialect: Dialect) -> Code:
    tables = (CODES_54, CODES) if dialect is V54 else (CODES,)
    return next(table[kind] for kind in type(error).__mro__ for table in tables if kind in table)


def shown_error(error: SiteError, dialect: Dialect) -> dict[str, Any]:
    """The `error` of a failure. What went wrong inside is told to the operator, not to the caller."""
    code = code_of(error, dialect)
    shown: dict[str, Any] = {"code": code.code, "message": str(BROKEN if code.status >= 500 else error)}
    if isinstance(error, RateLimited):
        shown["retry_after"] = retry_after(error)
    return shown


def retry_after(error: RateLimited) -> int:
    """Whole seconds to wait, at least one."""
    return max(1, math.ceil(error.details.get("retry_after", 1)))


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is one object."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def failure(error: SiteError, voice: Voice) -> Whole:
    """A failure by itself, before anything was answered."""
    dialect = voice.dialect
    meta: dict[str, Any] = {"response_type": dialect.response_type("failure"), "version": dialect.version}
    if voice.request_id != "":
        meta["request_id"] = voice.request_id
    if voice.ignored:
        meta["ignored"] = list(voice.ignored)
    body: dict[str, Any] = {"_meta": meta, "error": shown_error(error, dialect)}
    if voice.query_id:
        body["query_id"] = voice.query_id
    return Whole(code_of(error, dialect).status, body, headers_of(error))


def headers_of(error: SiteError | None) -> dict[str, str]:
    match error:
        case RateLimited():
            return {"retry-after": str(retry_after(error))}
        case Unauthenticated():
            return {"www-authenticate": BEARER}
        case _:
            return {}
