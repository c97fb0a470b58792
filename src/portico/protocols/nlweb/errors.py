"""Errors as NLWeb failures: one table from class to code and status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.errors import (
    BadRequest,
    ConfigError,
    Denied,
    NotFound,
    RateLimited,
    SiteError,
    SourceError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from portico.protocols import problems
from portico.protocols.nlweb.dialects import V54, ClientInfo, NlwebDialect
from portico.protocols.problems import BROKEN, error_headers, retry_after


class NoResults(NotFound):
    """No item was found. The flat dialect has no failures, and shows a message instead."""


class UnsupportedFormat(Unsupported): ...


class UnsupportedMode(Unsupported): ...


class MissingField(BadRequest): ...


class InvalidAction(BadRequest): ...


@dataclass(frozen=True, slots=True)
class NlwebErrorCode:
    code: str
    status: int


INTERNAL = NlwebErrorCode("INTERNAL_ERROR", 500)

_STATUSES: Mapping[type[SiteError], int] = {
    BadRequest: 400,
    TooLarge: 400,
    Denied: 403,
    Unauthenticated: 401,
    RateLimited: 429,
    Unavailable: 500,
    ConfigError: 500,
    SourceError: 500,
}  # all others are answers, with status 200
CODES: Mapping[type[SiteError], NlwebErrorCode] = {
    **{kind: NlwebErrorCode(code, _STATUSES.get(kind, 200)) for kind, code in problems.CODES.items()},
    NoResults: NlwebErrorCode("NO_RESULTS", 200),
    UnsupportedFormat: NlwebErrorCode("UNSUPPORTED_FORMAT", 200),
    UnsupportedMode: NlwebErrorCode("UNSUPPORTED_MODE", 200),
}
# What the 0.54 text calls by other names.
CODES_54: Mapping[type[SiteError], NlwebErrorCode] = {
    BadRequest: NlwebErrorCode("INVALID_REQUEST", 400),
    MissingField: NlwebErrorCode("MISSING_FIELD", 400),
    InvalidAction: NlwebErrorCode("INVALID_ACTION", 400),
}


def code_of(error: SiteError, dialect: NlwebDialect) -> NlwebErrorCode:
    tables = (CODES_54, CODES) if dialect is V54 else (CODES,)
    return next(table[kind] for kind in type(error).__mro__ for table in tables if kind in table)


def error_body(error: SiteError, dialect: NlwebDialect) -> dict[str, Any]:
    """Return the `error` of a failure. Internal errors are not explained to the caller."""
    code = code_of(error, dialect)
    body: dict[str, Any] = {"code": code.code, "message": str(BROKEN if code.status >= 500 else error)}
    if isinstance(error, RateLimited):
        body["retry_after"] = retry_after(error)
    return body


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """An answer as one JSON object, with its HTTP status and headers."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def failure_answer(error: SiteError, client: ClientInfo) -> JsonAnswer:
    """Return a failure that is the whole answer."""
    dialect = client.dialect
    meta: dict[str, Any] = {"response_type": dialect.response_type("failure"), "version": dialect.version}
    if client.request_id != "":
        meta["request_id"] = client.request_id
    if client.ignored:
        meta["ignored"] = list(client.ignored)
    body: dict[str, Any] = {"_meta": meta, "error": error_body(error, dialect)}
    if client.query_id:
        body["query_id"] = client.query_id
    return JsonAnswer(code_of(error, dialect).status, body, error_headers(error))
