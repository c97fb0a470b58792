"""The envelopes of MCP-AQL, and the table from the site's errors to the codes of its taxonomy.

Messages contain no internals, nor anything that message checkers take for a stack trace: see `is_suspect`.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http import HTTPStatus
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from portico.catalog import whole_seconds
from portico.errors import (
    AgentBlocked,
    AlreadyExists,
    BadRequest,
    BudgetExceeded,
    ConfigError,
    ConfirmationNeeded,
    Conflict,
    DangerDenied,
    Denied,
    Forbidden,
    InvalidCursor,
    InvalidParams,
    InvalidQuery,
    InvalidToken,
    KeyInUse,
    NotFound,
    OperationFailed,
    OutcomeUnknown,
    RateLimited,
    SiteError,
    SourceError,
    StepNeeded,
    TimedOut,
    TokenExpired,
    TokenMismatch,
    TokenUsed,
    TooLarge,
    TrustInsufficient,
    Unauthenticated,
    Unavailable,
    UnknownCollection,
    UnknownField,
    UnknownItem,
    UnknownOperation,
    UnknownTask,
    UnsafeRegex,
    Unsupported,
    VersionMismatch,
)
from portico.items import MAX_EXACT_INTEGER, type_name
from portico.protocols.aql.shapes import AqlRequestContext, OperationWarning
from portico.protocols.aql.types import SCHEMA_NAMES
from portico.protocols.problems import retry_after
from portico.query import OPERATORS

FILTER_OPERATORS = (*(f"${name}" for name in OPERATORS), "$and", "$or", "$not")
MAX_MESSAGE = 500  # characters
MAX_NAME = 80  # characters of a caller's value in a message
MAX_LISTED = 20  # names in a message; the details have all of them
TOKEN_SHOWN = 10  # characters of a refused token in an error

MISSING_PARAM = "VALIDATION_MISSING_PARAM"
INVALID_TYPE = "VALIDATION_INVALID_TYPE"
UNKNOWN_PARAM = "VALIDATION_UNKNOWN_PARAM"
UNKNOWN_FIELD = "VALIDATION_UNKNOWN_FIELD"
INVALID_ENCODING = "VALIDATION_INVALID_ENCODING"
PAYLOAD_TOO_LARGE = "VALIDATION_PAYLOAD_TOO_LARGE"
ENDPOINT_MISMATCH = "VALIDATION_ENDPOINT_MISMATCH"
NOT_FOUND_OPERATION = "NOT_FOUND_OPERATION"
NOT_FOUND_RESOURCE = "NOT_FOUND_RESOURCE"
PERMISSION_DENIED = "PERMISSION_DENIED"
TRUST_INSUFFICIENT = "PERMISSION_TRUST_LEVEL_INSUFFICIENT"
DANGER_DENIED = "PERMISSION_DANGER_LEVEL_DENIED"
CONFIRMATION_REQUIRED = "CONFIRMATION_REQUIRED"
RATE_LIMIT = "RATE_LIMIT_EXCEEDED"
TOKEN_INVALID = "TOKEN_INVALID"  # noqa: S105 - a code of errors
TOKEN_EXPIRED = "TOKEN_EXPIRED"  # noqa: S105
TOKEN_USED = "TOKEN_ALREADY_USED"  # noqa: S105
TOKEN_MISMATCH = "TOKEN_SCOPE_MISMATCH"  # noqa: S105
VERSION_MISMATCH = "CONFLICT_VERSION_MISMATCH"
ALREADY_EXISTS = "CONFLICT_ALREADY_EXISTS"
INVALID_STATE = "CONFLICT_INVALID_STATE"  # Portico's own code: the registry has none for other conflicts (10.3)
BATCH_INVALID = "BATCH_VALIDATION_ERROR"
INTERNAL = "INTERNAL_ERROR"

LimitType: TypeAlias = Literal["request_size", "response_size", "string_length", "array_elements", "nesting_depth"]

UNITS: Mapping[str, str] = {
    "request_size": "bytes",
    "response_size": "bytes",
    "string_length": "bytes",
    "array_elements": "elements",
    "nesting_depth": "levels",
}
STATUSES: Mapping[str, HTTPStatus] = {
    MISSING_PARAM: HTTPStatus.BAD_REQUEST,
    INVALID_TYPE: HTTPStatus.BAD_REQUEST,
    UNKNOWN_PARAM: HTTPStatus.BAD_REQUEST,
    UNKNOWN_FIELD: HTTPStatus.BAD_REQUEST,
    INVALID_ENCODING: HTTPStatus.BAD_REQUEST,
    ENDPOINT_MISMATCH: HTTPStatus.BAD_REQUEST,
    BATCH_INVALID: HTTPStatus.BAD_REQUEST,
    PAYLOAD_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    NOT_FOUND_OPERATION: HTTPStatus.NOT_FOUND,
    NOT_FOUND_RESOURCE: HTTPStatus.NOT_FOUND,
    PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    TRUST_INSUFFICIENT: HTTPStatus.FORBIDDEN,
    DANGER_DENIED: HTTPStatus.FORBIDDEN,
    CONFIRMATION_REQUIRED: HTTPStatus.PRECONDITION_REQUIRED,
    TOKEN_INVALID: HTTPStatus.FORBIDDEN,
    TOKEN_EXPIRED: HTTPStatus.FORBIDDEN,
    TOKEN_USED: HTTPStatus.FORBIDDEN,
    TOKEN_MISMATCH: HTTPStatus.FORBIDDEN,
    VERSION_MISMATCH: HTTPStatus.CONFLICT,
    ALREADY_EXISTS: HTTPStatus.CONFLICT,
    INVALID_STATE: HTTPStatus.CONFLICT,
    RATE_LIMIT: HTTPStatus.TOO_MANY_REQUESTS,
    INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}

# Messages by code, in place of those that look like a stack trace: see `is_suspect`.
SUMMARIES: Mapping[str, str] = {
    MISSING_PARAM: "A required parameter is missing",
    INVALID_TYPE: "A parameter has an invalid value",
    UNKNOWN_PARAM: "The operation does not have this parameter",
    UNKNOWN_FIELD: "The resource does not have this field",
    INVALID_ENCODING: "The request is not valid UTF-8",
    ENDPOINT_MISMATCH: "The operation belongs to another endpoint",
    BATCH_INVALID: "The batch cannot be read",
    PAYLOAD_TOO_LARGE: "The request or its response is too large",
    NOT_FOUND_OPERATION: "There is no such operation",
    NOT_FOUND_RESOURCE: "There is no such resource",
    PERMISSION_DENIED: "Permission denied",
    TRUST_INSUFFICIENT: "Permission denied: the operation needs more trust than this caller has",
    DANGER_DENIED: "Permission denied: the operation is too dangerous for this caller",
    CONFIRMATION_REQUIRED: "The operation needs the approval of another person",
    TOKEN_INVALID: "The token is not valid",
    TOKEN_EXPIRED: "The token has expired",
    TOKEN_USED: "The token has already been used",
    TOKEN_MISMATCH: "The token was issued for another operation or other parameters",
    VERSION_MISMATCH: "The item has another version now",
    ALREADY_EXISTS: "The resource already exists",
    INVALID_STATE: "The current state does not allow this",
    RATE_LIMIT: "Too many requests. Try again later",
    INTERNAL: "The operation failed",
}

_BROKEN = "The site cannot do this now. Try again later."
_NOBODY = "unauthenticated"


# Envelopes


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    message: str
    details: dict[str, Any] = {}


class ConfirmationDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The approval that the same request needs before it runs."""

    token: str
    expires_at: Any
    message: str = ""
    reasons: tuple[str, ...] = ()


class SuccessResult(msgspec.Struct, frozen=True, kw_only=True):
    success: Literal[True] = True
    data: Any
    warnings: tuple[OperationWarning, ...] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(name="_meta", default=UNSET)


class FailureResult(msgspec.Struct, frozen=True, kw_only=True):
    success: Literal[False] = False
    error: ErrorDetail
    confirmation: ConfirmationDetails | UnsetType = UNSET


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one operation of a batch."""

    index: int
    operation: str
    result: SuccessResult | FailureResult
    status: Literal["pending_confirmation"] | UnsetType = UNSET


class PendingOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a batch that was not started, as it was sent."""

    index: int
    operation: str
    params: dict[str, Any]


class BatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    succeeded: int
    failed: int
    halted: int | UnsetType = UNSET
    pending: int | UnsetType = UNSET


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    success: Literal[True] = True
    data: None = None
    results: tuple[BatchItem, ...]
    summary: BatchSummary
    halted_at: BatchItem | UnsetType = UNSET
    pending_operations: tuple[PendingOperation, ...] | UnsetType = UNSET


@dataclass(frozen=True)
class Envelope:
    """A response with its JSON encoding and HTTP status."""

    body: SuccessResult | FailureResult | Batch

    @cached_property
    def json(self) -> bytes:
        encoded = msgspec.json.encode(self.body, enc_hook=str)
        if not _MANY_DIGITS.search(encoded):
            return encoded
        return msgspec.json.encode(
            _stringify_large_numbers(msgspec.to_builtins(self.body, str_keys=True, enc_hook=str))
        )

    @property
    def code(self) -> str:
        """The code of its error; empty if there is none."""
        return self.body.error.code if isinstance(self.body, FailureResult) else ""

    @property
    def status(self) -> HTTPStatus:
        if not isinstance(self.body, FailureResult):
            return HTTPStatus.OK
        if self.body.error.details.get("reason") == _NOBODY:
            return HTTPStatus.UNAUTHORIZED
        return STATUSES[self.code]


_MANY_DIGITS = re.compile(rb"[0-9]{16}")


def _stringify_large_numbers(value: Any) -> Any:
    """Return a value with integers as strings where JSON readers would round them."""
    match value:
        case dict():
            return {name: _stringify_large_numbers(inner) for name, inner in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_stringify_large_numbers(inner) for inner in cast("list[Any]", value)]
        case int() if not isinstance(value, bool) and abs(value) > MAX_EXACT_INTEGER:
            return str(value)
        case _:
            return value


# Errors in requests


class Fault(BadRequest):
    """An invalid request, with its code in the taxonomy."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.code = code


def param_missing(name: str, operation: str) -> Fault:
    message = f"Missing required parameter {quote(name)}" + (f" for operation {quote(operation)}" if operation else "")
    return Fault(MISSING_PARAM, message, param_name=name, operation=operation)


def unknown_params(operation: str, unknown: Iterable[str], valid: Iterable[str]) -> Fault:
    names, valid_names = list(unknown), list(valid)
    if len(names) == 1:
        message = f"Unknown parameter {quote(names[0])} for operation {quote(operation)}"
    else:
        message = f"Unknown parameter(s) for operation {quote(operation)}: {quote_list(names)}"
    details = {"operation": operation, "unknown_params": names, "valid_params": valid_names}
    return Fault(UNKNOWN_PARAM, f"{message}. Valid: {quote_list(valid_names) or 'none'}", **details)


def unknown_fields(unknown: Iterable[str], valid: Iterable[str], where: str = "input") -> Fault:
    names, valid_names = list(unknown), list(valid)
    message = f"Unknown field(s) in {quote(where)}: {quote_list(names)}"
    return Fault(
        UNKNOWN_FIELD,
        f"{message}. Valid: {quote_list(valid_names)}" if valid_names else message,
        fields=names,
        valid=valid_names,
    )


def wrong_type(name: str, expected: str, actual: str, **details: Any) -> Fault:
    """Return the error for a parameter of a wrong type."""
    message = f"Parameter {quote(name)} expected '{expected}', got '{actual}'"
    return Fault(INVALID_TYPE, message, param_name=name, expected_type=expected, actual_type=actual, **details)


def too_large(limit_type: LimitType, limit: int, actual: int, *, completed: bool = False) -> Fault:
    """Return the error for a request or response over a limit. `completed`: the operation itself succeeded."""
    details = {"limit_type": limit_type, "limit_value": limit, "actual_value": actual, "unit": UNITS[limit_type]}
    done = {"completed": True} if completed else {}
    return Fault(PAYLOAD_TOO_LARGE, f"Payload exceeds {limit_type} limit of {limit}", **details, **done)


# Errors in the parameters of collection operations


@contextmanager
def blame_param(operation: str, param: str, fields: Sequence[str] = ()) -> Generator[None]:
    """Attribute errors to a parameter, with the valid names where a name is wrong."""
    try:
        yield
    except InvalidQuery as error:
        valid = _names(error, fields)
        error.details = {"operation": operation, "param": param, **error.details, **({"valid": valid} if valid else {})}
        raise


def _names(error: InvalidQuery, fields: Sequence[str]) -> list[str]:
    if isinstance(error, UnknownField):
        return list(fields)
    return list(FILTER_OPERATORS) if "operator" in error.details else []


def invalid_param(operation: str, param: str, message: str, expected: str, value: Any = None) -> InvalidParams:
    """Return the error for a parameter with an invalid value."""
    return InvalidParams(message, operation=operation, param=param, expected=expected, got=type_name(value))


def quote(text: str) -> str:
    """Return a caller's value for a message: quoted, shortened, and on one line."""
    printable = "".join(
        character if character.isprintable() or character.isspace() else "?" for character in text[:MAX_NAME]
    )
    return f"'{_SPACES.sub(' ', printable)}'"


def quote_list(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - MAX_LISTED} more" if len(all_names) > MAX_LISTED else ""
    return ", ".join(map(quote, all_names[:MAX_LISTED])) + more


_SPACES = re.compile(r"[\s\ufeff]+")


# Messages

# The public conformance suite takes these for a stack trace. Portico's own messages have none of them. Those of a site
# or a caller may match the second one innocently: "no table is free at noon".
_TRACE = re.compile(r"typeerror|referenceerror|syntaxerror|/src/|/node_modules/|\.[tj]s:\d", re.IGNORECASE)
_AT_A_PLACE = re.compile(r"(at)[\s\ufeff]+[^\s\ufeff]", re.IGNORECASE)


def is_suspect(message: str) -> bool:
    """Return whether a message checker would take this for a stack trace."""
    return bool(_TRACE.search(message) or _AT_A_PLACE.search(message))


# Errors of the site


MessageFunction: TypeAlias = Callable[[SiteError, Mapping[str, Any]], str]
DetailsFunction: TypeAlias = Callable[[SiteError], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class AqlErrorCode:
    """The code, message and details of one error type. `details` maps the taxonomy's names to the site's."""

    name: str
    details: Mapping[str, tuple[str, ...]]
    message: MessageFunction = lambda error, _: str(error)
    defaults: DetailsFunction = lambda _: {}

    def details_of(self, error: SiteError) -> dict[str, Any]:
        details: dict[str, Any] = {}
        for key, names in self.details.items():
            values = [error.details[name] for name in (key, *names) if error.details.get(name) is not None]
            if values:
                details[key] = values[0]
        return {**self.defaults(error), **details}


def _permission_message(error: SiteError, _: Mapping[str, Any]) -> str:
    return f"Permission denied: {error}"


def _unavailable_message(_: SiteError, __: Mapping[str, Any]) -> str:
    return _BROKEN


def _not_found_message(error: SiteError, details: Mapping[str, Any]) -> str:
    if "resource_id" not in details:
        return str(error)
    kind = quote(str(details.get("resource_type", "item")))
    return f"Resource {kind} not found: {quote(str(details['resource_id']))}"


def _unknown_operation_message(error: SiteError, details: Mapping[str, Any]) -> str:
    hint = f". {error.hint}" if error.hint else ""
    return f"Unknown operation: {quote(str(details.get('operation', '')))}{hint}"


def _too_large_message(error: SiteError, details: Mapping[str, Any]) -> str:
    if error.details.get("limit_type") in UNITS and "limit" in error.details:
        return f"Payload exceeds {details['limit_type']} limit of {details['limit_value']}"
    return str(error)


def _limit(error: SiteError) -> dict[str, Any]:
    limit_type = str(error.details.get("limit_type"))
    kind = limit_type if limit_type in UNITS else "array_elements"
    # The site counts characters of texts, not bytes.
    unit = "characters" if kind == "string_length" else UNITS[kind]
    return {"limit_type": kind, "unit": unit, "limit_value": 0, "actual_value": 0}


def _rate(error: SiteError) -> dict[str, Any]:
    seconds = retry_after(error)
    resets = datetime.now(UTC) + timedelta(seconds=seconds)
    return {"limit": 0, "remaining": 0, "window": "minute", "resets_at": resets, "retry_after_seconds": seconds}


def _reason_details(reason: str) -> DetailsFunction:
    return lambda _: {"reason": reason}


def _reasons(error: SiteError) -> dict[str, Any]:
    return {"reasons": [error.message]}


def _token(error: SiteError) -> dict[str, Any]:
    return {"token": str(error.details.get("token", ""))[:TOKEN_SHOWN]}


def _resource(error: SiteError) -> dict[str, Any]:
    kind = _RESOURCES.get(type(error))
    return {"resource_type": kind} if kind else {}


_RESOURCES: Mapping[type[SiteError], str] = {
    UnknownCollection: "collection",
    UnknownItem: "item",
    UnknownTask: "execution",  # MCP-AQL's word for a task
}


def _param(error: SiteError) -> dict[str, Any]:
    expected, actual = next(
        (_EXPECTATIONS[kind] for kind in type(error).__mro__ if kind in _EXPECTATIONS), _ANY_EXPECTATION
    )
    return {"param_name": "params", "expected_type": expected, "actual_type": actual}


# What was expected and what came, for errors whose details do not have it.
_ANY_EXPECTATION = ("a valid value", "an invalid value")
_EXPECTATIONS: Mapping[type[SiteError], tuple[str, str]] = {
    InvalidCursor: ("a cursor of this query", "another cursor"),
    UnsafeRegex: ("an RE2 pattern", "another pattern"),
    Unsupported: ("a supported request", "an unsupported request"),
}


def _fields(error: SiteError) -> dict[str, Any]:
    field = error.details.get("field")
    return {"fields": [field] if field else [], "valid": []}


_TYPE_KEYS: Mapping[str, tuple[str, ...]] = {
    "param_name": ("param", "field"),
    "expected_type": ("expected",),
    "actual_type": ("got",),
    "value": (),
}
_PERMISSION_KEYS: Mapping[str, tuple[str, ...]] = {"reason": (), "required_scope": ("scope",)}

# SiteError itself has no entry: each new error type needs a code of its own.
CODES: Mapping[type[SiteError], AqlErrorCode] = {
    BadRequest: AqlErrorCode(INVALID_TYPE, _TYPE_KEYS, defaults=_param),
    UnknownField: AqlErrorCode(UNKNOWN_FIELD, {"fields": (), "valid": ("known",)}, defaults=_fields),
    TooLarge: AqlErrorCode(
        PAYLOAD_TOO_LARGE, {"limit_value": ("limit",), "actual_value": ("actual",)}, _too_large_message, _limit
    ),
    BudgetExceeded: AqlErrorCode(
        PAYLOAD_TOO_LARGE,
        {"limit_value": ("limit",), "actual_value": ("actual",)},
        defaults=lambda _: {"limit_type": "response_size", "unit": "tokens"},
    ),
    NotFound: AqlErrorCode(
        NOT_FOUND_RESOURCE,
        {"resource_type": ("collection",), "resource_id": ("id", "task", "execution_id")},
        _not_found_message,
        _resource,
    ),
    UnknownOperation: AqlErrorCode(NOT_FOUND_OPERATION, {"operation": (), "available": ()}, _unknown_operation_message),
    Denied: AqlErrorCode(PERMISSION_DENIED, _PERMISSION_KEYS, _permission_message, _reason_details("denied")),
    Unauthenticated: AqlErrorCode(PERMISSION_DENIED, _PERMISSION_KEYS, _permission_message, _reason_details(_NOBODY)),
    Forbidden: AqlErrorCode(PERMISSION_DENIED, _PERMISSION_KEYS, _permission_message, _reason_details("forbidden")),
    AgentBlocked: AqlErrorCode(
        PERMISSION_DENIED,
        {**_PERMISSION_KEYS, "verification_id": ()},
        _permission_message,
        _reason_details("agent_blocked"),
    ),
    StepNeeded: AqlErrorCode(
        PERMISSION_DENIED, _PERMISSION_KEYS, _permission_message, _reason_details("step_not_reported")
    ),
    DangerDenied: AqlErrorCode(
        DANGER_DENIED,
        {
            "operation": (),
            "danger_level": ("danger",),
            "adapter_trust": ("trust",),
            "minimum_trust_required": ("required",),
            "reasons": (),
        },
        _permission_message,
        _reasons,
    ),
    TrustInsufficient: AqlErrorCode(
        TRUST_INSUFFICIENT,
        {
            "operation": (),
            "required_trust": ("required",),
            "actual_trust": ("trust",),
            "danger_level": ("level", "danger"),
        },
        _permission_message,
    ),
    ConfirmationNeeded: AqlErrorCode(
        CONFIRMATION_REQUIRED,
        {
            "operation": (),
            "danger_level": ("danger",),
            "reasons": (),
            "confirmation_message": (),
            "confirmation_token": ("token",),
            "expires_at": ("expires",),
        },
    ),
    InvalidToken: AqlErrorCode(TOKEN_INVALID, {}, defaults=_token),
    TokenExpired: AqlErrorCode(
        TOKEN_EXPIRED,
        {"expired_at": ("expires_at",)},
        defaults=lambda error: {**_token(error), "current_time": datetime.now(UTC)},
    ),
    TokenUsed: AqlErrorCode(TOKEN_USED, {"consumed_at": ("used_at",)}, defaults=_token),
    TokenMismatch: AqlErrorCode(
        TOKEN_MISMATCH, {"token_operation": (), "requested_operation": ("operation",)}, defaults=_token
    ),
    Conflict: AqlErrorCode(
        INVALID_STATE,
        {"resource_id": ("task",), "status": ("state",)},
        defaults=lambda error: {"resource_type": "execution"} if "task" in error.details else {},
    ),
    VersionMismatch: AqlErrorCode(VERSION_MISMATCH, {}),
    AlreadyExists: AqlErrorCode(ALREADY_EXISTS, {}),
    KeyInUse: AqlErrorCode(ALREADY_EXISTS, {}),
    OutcomeUnknown: AqlErrorCode(INTERNAL, {}),
    RateLimited: AqlErrorCode(RATE_LIMIT, {"limit": ()}, defaults=_rate),
    Unsupported: AqlErrorCode(INVALID_TYPE, _TYPE_KEYS, defaults=_param),
    OperationFailed: AqlErrorCode(INTERNAL, {}),
    TimedOut: AqlErrorCode(INTERNAL, {}),
    Unavailable: AqlErrorCode(INTERNAL, {}, _unavailable_message),
    ConfigError: AqlErrorCode(INTERNAL, {}, _unavailable_message),
    SourceError: AqlErrorCode(INTERNAL, {}, _unavailable_message),
}


def code_of(error: SiteError) -> str:
    return error.code if isinstance(error, Fault) else _entry(error).name


def _entry(error: SiteError) -> AqlErrorCode:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def failure_result(
    error: SiteError, context: AqlRequestContext | None = None, operation: str = "", *, brief: bool = False
) -> FailureResult:
    """Return an error as the result of an operation. A `brief` one has no details."""
    translated = _translate(error)
    code = code_of(translated)
    if isinstance(translated, Fault):
        text, details = translated.message, dict(translated.details)
    else:
        entry = _entry(translated)
        details = {name: _format_time(value) for name, value in entry.details_of(translated).items()}
        if "operation" in entry.details and operation:
            details.setdefault("operation", operation)
        text = entry.message(translated, details)
    message = _readable(text, code, details)
    confirmation = _confirmation(details, message) if code == CONFIRMATION_REQUIRED else UNSET
    if is_suspect(text) and not _TRACE.search(text):
        details["explanation"] = text[:MAX_MESSAGE]
    details = {} if brief or code == BATCH_INVALID else {**details, **labels(context)}
    return FailureResult(error=ErrorDetail(code=code, message=message, details=details), confirmation=confirmation)


def _readable(text: str, code: str, details: Mapping[str, Any]) -> str:
    """Return the text, or the summary of its code if the text looks like a stack trace."""
    if not is_suspect(text):
        return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"
    param = str(details.get("param_name", "")) if code == INVALID_TYPE else ""
    return f"Parameter {quote(param)} has an invalid value" if param and not is_suspect(param) else SUMMARIES[code]


def _format_time(value: Any) -> Any:
    return whole_seconds(value) if isinstance(value, datetime) else value


def labels(context: AqlRequestContext | None) -> dict[str, Any]:
    """Return the session and request ids that are known."""
    values = {"session_id": context.session, "request_id": context.request_id} if context else {}
    return {name: value for name, value in values.items() if value}


def _confirmation(details: Mapping[str, Any], message: str) -> ConfirmationDetails:
    text = str(details.get("confirmation_message", message))
    return ConfirmationDetails(
        token=str(details.get("confirmation_token", "")),
        expires_at=details.get("expires_at"),
        message=message if is_suspect(text) else text,
        reasons=tuple(details.get("reasons", ())),
    )


def _translate(error: SiteError) -> SiteError:
    """Reword the site's parameter errors in the taxonomy's terms, without the validation library's messages."""
    if not isinstance(error, InvalidParams):
        return error
    details = error.details
    operation, param = str(details.get("operation", "")), str(details.get("param", "") or "params")
    match details:
        case {"unknown": [*unknown], "valid": [*valid]}:
            return unknown_params(operation, map(str, unknown), map(str, valid))
        case {"missing": [first, *_]}:
            return param_missing(str(first), operation)
        case {"fields": [*fields], "known": [*known]}:
            names = [[SCHEMA_NAMES.get(name, name) for name in map(str, group)] for group in (fields, known)]
            return unknown_fields(names[0], sorted(names[1]))
        case {"field": str() as field, "param": "input"}:
            return unknown_fields([field], ())
        case {"reason": str() as reason}:
            return _invalid_value(param, operation, reason)
        case _:
            return error


def _invalid_value(param: str, operation: str, reason: str) -> Fault:
    match = _EXPECTED.match(reason)
    if match is None:
        expected, actual = _ANY_EXPECTATION
        text = f"Parameter {quote(param)} does not fit operation {quote(operation)}"
        return Fault(INVALID_TYPE, text, param_name=param, expected_type=expected, actual_type=actual)
    expected, actual = (
        " or ".join(_JSON_NAMES.get(name, name) for name in name.split(" | ")) for name in match.groups()
    )
    return wrong_type(param, expected, actual)


_EXPECTED = re.compile(r"Expected `([\w |]+)`, got `([\w |]+)`\Z")
_JSON_NAMES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
