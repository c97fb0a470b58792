"""Results of MCP-AQL: closed envelopes, and one table from the errors of a site to the codes of its taxonomy.

Nothing of the inside is told, nor anything that checkers of messages take for it: see `is_suspect`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http import HTTPStatus
from math import ceil
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
from portico.protocols.aql.shapes import Asking, Warned

MAX_MESSAGE = 500  # characters
MAX_NAME = 80  # characters of what a caller has sent, in a message
MAX_LISTED = 20  # names in a message; the details have all of them
MAX_EXACT = 2**53 - 1  # whole numbers beyond it are not the same for every reader of JSON (4.7.3)
TOKEN_SHOWN = 10  # characters of a token that was refused

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
INVALID_STATE = "CONFLICT_INVALID_STATE"  # of Portico's own: the registry has no code for other conflicts (10.3)
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

# What a message says where the words of the site, or of the caller, cannot stand in it: see `is_suspect`.
SUMMARIES: Mapping[str, str] = {
    MISSING_PARAM: "A required parameter is missing",
    INVALID_TYPE: "A parameter has an invalid value",
    UNKNOWN_PARAM: "The operation does not have this parameter",
    UNKNOWN_FIELD: "The resource does not have this field",
    INVALID_ENCODING: "The request is not valid UTF-8",
    ENDPOINT_MISMATCH: "The operation belongs to another endpoint",
    BATCH_INVALID: "The batch cannot be read",
    PAYLOAD_TOO_LARGE: "The request or its answer is too large",
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
    ALREADY_EXISTS: "The resource exists already",
    INVALID_STATE: "The current state does not allow this",
    RATE_LIMIT: "Too many requests. Try again later",
    INTERNAL: "The operation failed",
}

_BROKEN = "The site cannot do this now. Try again later."
_NOBODY = "unauthenticated"


# What is sent


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    message: str
    details: dict[str, Any] = {}


class Confirmation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody else has to agree to before the same request is done."""

    token: str
    expires_at: Any
    message: str = ""
    reasons: tuple[str, ...] = ()


class Success(msgspec.Struct, frozen=True, kw_only=True):
    success: Literal[True] = True
    data: Any
    warnings: tuple[Warned, ...] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(name="_meta", default=UNSET)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    success: Literal[False] = False
    error: ErrorDetail
    confirmation: Confirmation | UnsetType = UNSET


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one operation of a batch."""

    index: int
    operation: str
    result: Success | Failure
    status: Literal["pending_confirmation"] | UnsetType = UNSET


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a batch that was not begun, as it was sent."""

    index: int
    operation: str
    params: dict[str, Any]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    succeeded: int
    failed: int
    halted: int | UnsetType = UNSET
    pending: int | UnsetType = UNSET


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    success: Literal[True] = True
    data: None = None
    results: tuple[Item, ...]
    summary: Summary
    halted_at: Item | UnsetType = UNSET
    pending_operations: tuple[Pending, ...] | UnsetType = UNSET


@dataclass(frozen=True)
class Envelope:
    """An answer, and how it travels."""

    body: Success | Failure | Batch

    @cached_property
    def encoded(self) -> bytes:
        said = msgspec.json.encode(self.body, enc_hook=str)
        if not _MANY_DIGITS.search(said):
            return said
        return msgspec.json.encode(_exact(msgspec.to_builtins(self.body, str_keys=True, enc_hook=str)))

    @property
    def code(self) -> str:
        """Of its error; empty if there is none."""
        return self.body.error.code if isinstance(self.body, Failure) else ""

    @property
    def status(self) -> HTTPStatus:
        if not isinstance(self.body, Failure):
            return HTTPStatus.OK
        if self.body.error.details.get("reason") == _NOBODY:
            return HTTPStatus.UNAUTHORIZED
        return STATUSES[self.code]


_MANY_DIGITS = re.compile(rb"[0-9]{16}")


def _exact(value: Any) -> Any:
    """The same with numbers as strings where readers would round them."""
    match value:
        case dict():
            return {name: _exact(inner) for name, inner in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_exact(inner) for inner in cast("list[Any]", value)]
        case int() if not isinstance(value, bool) and abs(value) > MAX_EXACT:
            return str(value)
        case _:
            return value


# What this face refuses itself


class Fault(BadRequest):
    """A request that does not fit what is offered, in the words of the taxonomy."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        self.code = code


def missing_param(name: str, operation: str) -> Fault:
    said = f"Missing required parameter {quoted(name)}" + (f" for operation {quoted(operation)}" if operation else "")
    return Fault(MISSING_PARAM, said, param_name=name, operation=operation)


def unknown_params(operation: str, unknown: Iterable[str], valid: Iterable[str]) -> Fault:
    names, known = list(unknown), list(valid)
    if len(names) == 1:
        said = f"Unknown parameter {quoted(names[0])} for operation {quoted(operation)}"
    else:
        said = f"Unknown parameter(s) for operation {quoted(operation)}: {listed(names)}"
    details = {"operation": operation, "unknown_params": names, "valid_params": known}
    return Fault(UNKNOWN_PARAM, f"{said}. Valid: {listed(known) or 'none'}", **details)


def unknown_fields(unknown: Iterable[str], valid: Iterable[str], where: str = "input") -> Fault:
    names, known = list(unknown), list(valid)
    said = f"Unknown field(s) in {quoted(where)}: {listed(names)}"
    return Fault(UNKNOWN_FIELD, f"{said}. Valid: {listed(known)}" if known else said, fields=names, valid=known)


def wrong_type(name: str, expected: str, actual: str, **details: Any) -> Fault:
    """Return the refusal of a parameter of a wrong type, or outside of what is allowed of its type."""
    said = f"Parameter {quoted(name)} expected '{expected}', got '{actual}'"
    return Fault(INVALID_TYPE, said, param_name=name, expected_type=expected, actual_type=actual, **details)


def too_large(limit_type: LimitType, limit: int, actual: int, *, completed: bool = False) -> Fault:
    """`completed`: what was asked for was done, and only the answer is too large."""
    details = {"limit_type": limit_type, "limit_value": limit, "actual_value": actual, "unit": UNITS[limit_type]}
    done = {"completed": True} if completed else {}
    return Fault(PAYLOAD_TOO_LARGE, f"Payload exceeds {limit_type} limit of {limit}", **details, **done)


def quoted(text: str) -> str:
    """Return a value of the caller's for a message, on one line."""
    shown = "".join(each if each.isprintable() or each.isspace() else "?" for each in text[:MAX_NAME])
    return f"'{_SPACES.sub(' ', shown)}'"


def listed(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    return ", ".join(map(quoted, known[:MAX_LISTED])) + more


_SPACES = re.compile(r"[\s\ufeff]+")


# Messages

# The public conformance suite takes these for a stack trace. The messages of Portico's own have none of them, but for
# the second the words of a site or of a caller may be ordinary: "no table is free at noon".
_TRACE = re.compile(r"typeerror|referenceerror|syntaxerror|/src/|/node_modules/|\.[tj]s:\d", re.IGNORECASE)
_AT_A_PLACE = re.compile(r"(at)[\s\ufeff]+[^\s\ufeff]", re.IGNORECASE)


def is_suspect(message: str) -> bool:
    """Whether a checker of messages would take this for a stack trace."""
    return bool(_TRACE.search(message) or _AT_A_PLACE.search(message))


# Errors of the site


Words: TypeAlias = Callable[[SiteError, Mapping[str, Any]], str]
Found: TypeAlias = Callable[[SiteError], dict[str, Any]]


def _as_it_is(error: SiteError, _: Mapping[str, Any]) -> str:
    return str(error)


def _nothing(_: SiteError) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Code:
    """How errors of one kind are told: details by the taxonomy's names, from those that the site has for them."""

    name: str
    details: Mapping[str, tuple[str, ...]]
    says: Words = _as_it_is
    more: Found = _nothing

    def told(self, error: SiteError) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, names in self.details.items():
            known = [error.details[name] for name in (key, *names) if error.details.get(name) is not None]
            if known:
                found[key] = known[0]
        return {**self.more(error), **found}


def _denied(error: SiteError, _: Mapping[str, Any]) -> str:
    return f"Permission denied: {error}"


def _broken(_: SiteError, __: Mapping[str, Any]) -> str:
    return _BROKEN


def _not_there(error: SiteError, details: Mapping[str, Any]) -> str:
    if "resource_id" not in details:
        return str(error)
    kind = quoted(str(details.get("resource_type", "item")))
    return f"Resource {kind} not found: {quoted(str(details['resource_id']))}"


def _no_operation(error: SiteError, details: Mapping[str, Any]) -> str:
    hint = f". {error.hint}" if error.hint else ""
    return f"Unknown operation: {quoted(str(details.get('operation', '')))}{hint}"


def _too_much(error: SiteError, details: Mapping[str, Any]) -> str:
    if error.details.get("limit_type") in UNITS and "limit" in error.details:
        return f"Payload exceeds {details['limit_type']} limit of {details['limit_value']}"
    return str(error)


def _limit(error: SiteError) -> dict[str, Any]:
    limit_type = str(error.details.get("limit_type"))
    kind = limit_type if limit_type in UNITS else "array_elements"
    # The site counts the characters of texts.
    unit = "characters" if kind == "string_length" else UNITS[kind]
    return {"limit_type": kind, "unit": unit, "limit_value": 0, "actual_value": 0}


def _rate(error: SiteError) -> dict[str, Any]:
    seconds = max(1, ceil(float(error.details.get("retry_after", 1))))
    resets = datetime.now(UTC) + timedelta(seconds=seconds)
    return {"limit": 0, "remaining": 0, "window": "minute", "resets_at": resets, "retry_after_seconds": seconds}


def _because(reason: str) -> Found:
    return lambda _: {"reason": reason}


def _reasons(error: SiteError) -> dict[str, Any]:
    return {"reasons": [error.message]}


def _token(error: SiteError) -> dict[str, Any]:
    return {"token": str(error.details.get("token", ""))[:TOKEN_SHOWN]}


def _expired(error: SiteError) -> dict[str, Any]:
    return {**_token(error), "current_time": datetime.now(UTC)}


def _resource(error: SiteError) -> dict[str, Any]:
    kind = _RESOURCES.get(type(error))
    return {"resource_type": kind} if kind else {}


_RESOURCES: Mapping[type[SiteError], str] = {
    UnknownCollection: "collection",
    UnknownItem: "item",
    UnknownTask: "execution",  # as tasks are called here
}


def _param(error: SiteError) -> dict[str, Any]:
    expected, actual = next((_MISFITS[kind] for kind in type(error).__mro__ if kind in _MISFITS), _MISFIT)
    return {"param_name": "params", "expected_type": expected, "actual_type": actual}


# What was expected and what came, where an error does not say it in its details.
_MISFIT = ("a valid value", "an invalid value")
_MISFITS: Mapping[type[SiteError], tuple[str, str]] = {
    InvalidCursor: ("a cursor of this query", "another cursor"),
    UnsafeRegex: ("an RE2 pattern", "another pattern"),
    Unsupported: ("a supported request", "an unsupported request"),
}


def _state(error: SiteError) -> dict[str, Any]:
    return {"resource_type": "execution"} if "task" in error.details else {}


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

# There is no entry for SiteError itself: a new kind of error needs a code of its own.
CODES: Mapping[type[SiteError], Code] = {
    BadRequest: Code(INVALID_TYPE, _TYPE_KEYS, more=_param),
    UnknownField: Code(UNKNOWN_FIELD, {"fields": (), "valid": ("known",)}, more=_fields),
    TooLarge: Code(PAYLOAD_TOO_LARGE, {"limit_value": ("limit",), "actual_value": ("actual",)}, _too_much, _limit),
    BudgetExceeded: Code(
        PAYLOAD_TOO_LARGE,
        {"limit_value": ("limit",), "actual_value": ("actual",)},
        more=lambda _: {"limit_type": "response_size", "unit": "tokens"},
    ),
    NotFound: Code(
        NOT_FOUND_RESOURCE,
        {"resource_type": ("collection",), "resource_id": ("id", "task", "execution_id")},
        _not_there,
        _resource,
    ),
    UnknownOperation: Code(NOT_FOUND_OPERATION, {"operation": (), "available": ()}, _no_operation),
    Denied: Code(PERMISSION_DENIED, _PERMISSION_KEYS, _denied, _because("denied")),
    Unauthenticated: Code(PERMISSION_DENIED, _PERMISSION_KEYS, _denied, _because(_NOBODY)),
    Forbidden: Code(PERMISSION_DENIED, _PERMISSION_KEYS, _denied, _because("forbidden")),
    AgentBlocked: Code(
        PERMISSION_DENIED, {**_PERMISSION_KEYS, "verification_id": ()}, _denied, _because("agent_blocked")
    ),
    StepNeeded: Code(PERMISSION_DENIED, _PERMISSION_KEYS, _denied, _because("step_not_reported")),
    DangerDenied: Code(
        DANGER_DENIED,
        {
            "operation": (),
            "danger_level": ("danger",),
            "adapter_trust": ("trust",),
            "minimum_trust_required": ("required",),
            "reasons": (),
        },
        _denied,
        _reasons,
    ),
    TrustInsufficient: Code(
        TRUST_INSUFFICIENT,
        {
            "operation": (),
            "required_trust": ("required",),
            "actual_trust": ("trust",),
            "danger_level": ("level", "danger"),
        },
        _denied,
    ),
    ConfirmationNeeded: Code(
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
    InvalidToken: Code(TOKEN_INVALID, {}, more=_token),
    TokenExpired: Code(TOKEN_EXPIRED, {"expired_at": ("expires_at",)}, more=_expired),
    TokenUsed: Code(TOKEN_USED, {"consumed_at": ("used_at",)}, more=_token),
    TokenMismatch: Code(TOKEN_MISMATCH, {"token_operation": (), "requested_operation": ("operation",)}, more=_token),
    Conflict: Code(INVALID_STATE, {"resource_id": ("task",), "status": ("state",)}, more=_state),
    VersionMismatch: Code(VERSION_MISMATCH, {}),
    AlreadyExists: Code(ALREADY_EXISTS, {}),
    KeyInUse: Code(ALREADY_EXISTS, {}),
    OutcomeUnknown: Code(INTERNAL, {}),
    RateLimited: Code(RATE_LIMIT, {"limit": ()}, more=_rate),
    Unsupported: Code(INVALID_TYPE, _TYPE_KEYS, more=_param),
    OperationFailed: Code(INTERNAL, {}),
    TimedOut: Code(INTERNAL, {}),
    Unavailable: Code(INTERNAL, {}, _broken),
    ConfigError: Code(INTERNAL, {}, _broken),
    SourceError: Code(INTERNAL, {}, _broken),
}


def code_of(error: SiteError) -> str:
    return error.code if isinstance(error, Fault) else _entry(error).name


def _entry(error: SiteError) -> Code:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def failure(error: SiteError, asking: Asking | None = None, operation: str = "", *, brief: bool = False) -> Failure:
    """An error as the whole result of an operation. Where details are not allowed it is a brief one."""
    known = _own_words(error)
    code = code_of(known)
    if isinstance(known, Fault):
        text, details = known.message, dict(known.details)
    else:
        entry = _entry(known)
        details = {name: _timed(value) for name, value in entry.told(known).items()}
        if "operation" in entry.details and operation:
            details.setdefault("operation", operation)
        text = entry.says(known, details)
    message = _readable(text, code, details)
    confirmation = _confirmation(details, message) if code == CONFIRMATION_REQUIRED else UNSET
    if is_suspect(text) and not _TRACE.search(text):
        details["explanation"] = text[:MAX_MESSAGE]
    details = {} if brief or code == BATCH_INVALID else {**details, **labels(asking)}
    return Failure(error=ErrorDetail(code=code, message=message, details=details), confirmation=confirmation)


def _readable(text: str, code: str, details: Mapping[str, Any]) -> str:
    """Return the text, or what its code means where the text would be taken for a stack trace."""
    if not is_suspect(text):
        return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"
    named = str(details.get("param_name", "")) if code == INVALID_TYPE else ""
    return f"Parameter {quoted(named)} has an invalid value" if named and not is_suspect(named) else SUMMARIES[code]


def _timed(value: Any) -> Any:
    return whole_seconds(value) if isinstance(value, datetime) else value


def labels(asking: Asking | None) -> dict[str, Any]:
    """What a session and a request are called in logs."""
    named = {"session_id": asking.session, "request_id": asking.request_id} if asking else {}
    return {name: value for name, value in named.items() if value}


def _confirmation(details: Mapping[str, Any], message: str) -> Confirmation:
    text = str(details.get("confirmation_message", message))
    return Confirmation(
        token=str(details.get("confirmation_token", "")),
        expires_at=details.get("expires_at"),
        message=message if is_suspect(text) else text,
        reasons=tuple(details.get("reasons", ())),
    )


def _own_words(error: SiteError) -> SiteError:
    """What the site says of parameters, in the words of this face: never in those of the library that checked them."""
    if not isinstance(error, InvalidParams):
        return error
    details = error.details
    operation, param = str(details.get("operation", "")), str(details.get("param", "") or "params")
    match details:
        case {"unknown": [*unknown], "valid": [*valid]}:
            return unknown_params(operation, map(str, unknown), map(str, valid))
        case {"missing": [first, *_]}:
            return missing_param(str(first), operation)
        case {"field": str() as field, "param": "input"}:
            return unknown_fields([field], ())
        case {"reason": str() as reason}:
            return _misfit(param, operation, reason)
        case _:
            return error


def _misfit(param: str, operation: str, reason: str) -> Fault:
    said = _EXPECTED.match(reason)
    if said is None:
        expected, actual = _MISFIT
        text = f"Parameter {quoted(param)} does not fit operation {quoted(operation)}"
        return Fault(INVALID_TYPE, text, param_name=param, expected_type=expected, actual_type=actual)
    expected, actual = (
        " or ".join(_JSON_NAMES.get(each, each) for each in each.split(" | ")) for each in said.groups()
    )
    return wrong_type(param, expected, actual)


_EXPECTED = re.compile(r"Expected `([\w |]+)`, got `([\w |]+)`\Z")
_JSON_NAMES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
