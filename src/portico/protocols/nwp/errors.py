"""Errors as NWP tells them: a status of the suite, a code of the protocol, and the HTTP status that goes with it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from portico.errors import (
    BadRequest,
    BudgetExceeded,
    CapabilityMissing,
    CertificateExpired,
    CertificateRevoked,
    ConfigError,
    Conflict,
    Denied,
    FeedExpired,
    Forbidden,
    InvalidAggregate,
    InvalidCursor,
    InvalidParams,
    InvalidQuery,
    InvalidWorkflow,
    KeyInUse,
    NotFound,
    OperationFailed,
    OutcomeUnknown,
    OutOfScope,
    QueryTooLarge,
    RateLimited,
    ShuttingDown,
    SiteError,
    SourceError,
    TaskCancelled,
    TaskFinished,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownField,
    UnknownOperation,
    UnknownTask,
    UnsafeRegex,
    Unsupported,
)
from portico.protocols.nwp.frames import (
    ActionFrame,
    ErrorFrame,
    Frame,
    FrameError,
    QueryFrame,
    SubscribeFrame,
    TaskFrame,
)

STATUSES: Final[Mapping[str, HTTPStatus]] = {
    "NPS-CLIENT-BAD-FRAME": HTTPStatus.BAD_REQUEST,
    "NPS-CLIENT-BAD-PARAM": HTTPStatus.BAD_REQUEST,
    "NPS-CLIENT-NOT-FOUND": HTTPStatus.NOT_FOUND,
    "NPS-CLIENT-CONFLICT": HTTPStatus.CONFLICT,
    "NPS-CLIENT-GONE": HTTPStatus.GONE,
    "NPS-CLIENT-UNPROCESSABLE": HTTPStatus.UNPROCESSABLE_ENTITY,
    "NPS-AUTH-UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "NPS-AUTH-FORBIDDEN": HTTPStatus.FORBIDDEN,
    "NPS-LIMIT-RATE": HTTPStatus.TOO_MANY_REQUESTS,
    "NPS-LIMIT-BUDGET": HTTPStatus.TOO_MANY_REQUESTS,
    "NPS-LIMIT-EXCEEDED": HTTPStatus.TOO_MANY_REQUESTS,
    "NPS-LIMIT-PAYLOAD": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "NPS-SERVER-INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
    "NPS-SERVER-UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "NPS-SERVER-TIMEOUT": HTTPStatus.GATEWAY_TIMEOUT,
    "NPS-SERVER-UNSUPPORTED": HTTPStatus.NOT_IMPLEMENTED,
    "NPS-SERVER-ENCODING-UNSUPPORTED": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "NPS-STREAM-SEQ-GAP": HTTPStatus.UNPROCESSABLE_ENTITY,
    "NPS-STREAM-NOT-FOUND": HTTPStatus.NOT_FOUND,
    "NPS-STREAM-LIMIT": HTTPStatus.TOO_MANY_REQUESTS,
    "NPS-PROTO-VERSION-INCOMPATIBLE": HTTPStatus.UPGRADE_REQUIRED,
}


class Code(NamedTuple):
    status: str
    error: str

    @property
    def http(self) -> HTTPStatus:
        return STATUSES[self.status]


# What only this protocol has a word for


class UnknownNode(NotFound):
    """There is no node of this name, or it has no such sub-path."""


class UnknownAction(NotFound): ...


class WrongMethod(BadRequest): ...


class UnreadableFrame(BadRequest):
    """Bytes that are no frame; `code` in the details is NCP's."""


class InvalidFrame(BadRequest):
    """A frame of a known type that lacks a member, or has one with a value it cannot have."""


class AnchorUnknown(NotFound): ...


class AnchorStale(Conflict): ...


class DepthExceeded(BadRequest): ...


class GraphCycle(BadRequest): ...


class VectorUnsupported(Unsupported): ...


class AggregateUnsupported(Unsupported): ...


class StreamUnsupported(Unsupported): ...


class SubscribeFilterUnsupported(Unsupported): ...


class SubscriptionUnknown(NotFound): ...


class SubscriptionLimit(RateLimited): ...


class SubscriptionInterrupted(Unavailable): ...


class StreamLimit(RateLimited): ...


class TaskAlreadyCancelled(Conflict): ...


class TaskAlreadyFailed(Conflict): ...


class TaskTimedOut(TimedOut):
    """What a gateway gave to workers took too long."""


class StepTimedOut(TimedOut):
    """A step of it did."""


class TaskResubmitted(Conflict):
    """A task that a gateway was given before is done."""


class TaskWithdrawn(Conflict):
    """A task that a gateway was given before was cancelled."""


class VersionUnsupported(BadRequest): ...


BAD_FRAME = "NPS-CLIENT-BAD-FRAME"
BAD_PARAM = "NPS-CLIENT-BAD-PARAM"
CONFLICT = "NPS-CLIENT-CONFLICT"
UNSUPPORTED = "NPS-SERVER-UNSUPPORTED"
UNAUTHENTICATED = "NPS-AUTH-UNAUTHENTICATED"
FORBIDDEN = "NPS-AUTH-FORBIDDEN"
NOT_FOUND = "NPS-CLIENT-NOT-FOUND"
UNPROCESSABLE = "NPS-CLIENT-UNPROCESSABLE"
UNAVAILABLE = "NPS-SERVER-UNAVAILABLE"
INTERNAL = "NPS-SERVER-INTERNAL"
GONE = "NPS-CLIENT-GONE"
TIMEOUT = "NPS-SERVER-TIMEOUT"

# A code has the status that section 12 gives it, and no other. What no code is there for is told by its status alone.
CODES: Final[Mapping[type[SiteError], Code]] = {
    SiteError: Code(INTERNAL, INTERNAL),
    BadRequest: Code(BAD_PARAM, "NWP-QUERY-FILTER-INVALID"),
    WrongMethod: Code(BAD_FRAME, "NCP-FRAME-UNKNOWN-TYPE"),
    UnreadableFrame: Code(BAD_FRAME, "NCP-FRAME-UNKNOWN-TYPE"),
    InvalidFrame: Code(BAD_FRAME, BAD_FRAME),  # the codes of NCP are about headers and types
    InvalidQuery: Code(BAD_PARAM, "NWP-QUERY-FILTER-INVALID"),
    UnknownField: Code(BAD_PARAM, "NWP-QUERY-FIELD-UNKNOWN"),
    UnsafeRegex: Code(BAD_PARAM, "NWP-QUERY-REGEX-UNSAFE"),
    InvalidAggregate: Code(BAD_PARAM, "NWP-QUERY-AGGREGATE-INVALID"),
    InvalidCursor: Code(BAD_PARAM, "NWP-QUERY-CURSOR-INVALID"),
    # The frame is not: what it asks for is.
    QueryTooLarge: Code(BAD_PARAM, "NWP-QUERY-FILTER-INVALID"),
    InvalidParams: Code(UNPROCESSABLE, "NWP-ACTION-PARAMS-INVALID"),
    InvalidWorkflow: Code(BAD_FRAME, "NOP-TASK-DAG-INVALID"),
    BudgetExceeded: Code("NPS-LIMIT-BUDGET", "NWP-BUDGET-EXCEEDED"),
    TooLarge: Code("NPS-LIMIT-PAYLOAD", "NCP-FRAME-PAYLOAD-TOO-LARGE"),
    DepthExceeded: Code(BAD_PARAM, "NWP-DEPTH-EXCEEDED"),
    GraphCycle: Code(UNPROCESSABLE, "NWP-GRAPH-CYCLE"),
    VersionUnsupported: Code(BAD_PARAM, "NWP-MANIFEST-VERSION-UNSUPPORTED"),
    NotFound: Code(NOT_FOUND, NOT_FOUND),
    UnknownNode: Code(NOT_FOUND, NOT_FOUND),
    UnknownAction: Code(NOT_FOUND, "NWP-ACTION-NOT-FOUND"),
    UnknownOperation: Code(NOT_FOUND, "NWP-ACTION-NOT-FOUND"),
    UnknownTask: Code(NOT_FOUND, "NWP-TASK-NOT-FOUND"),
    AnchorUnknown: Code(NOT_FOUND, "NCP-ANCHOR-NOT-FOUND"),
    SubscriptionUnknown: Code(NOT_FOUND, "NWP-SUBSCRIBE-STREAM-NOT-FOUND"),
    Denied: Code(FORBIDDEN, "NWP-AUTH-NID-SCOPE-VIOLATION"),
    Unauthenticated: Code(UNAUTHENTICATED, "NWP-AUTH-NID-UNTRUSTED-ISSUER"),
    CertificateExpired: Code(UNAUTHENTICATED, "NWP-AUTH-NID-EXPIRED"),
    CertificateRevoked: Code(UNAUTHENTICATED, "NWP-AUTH-NID-REVOKED"),
    Forbidden: Code(FORBIDDEN, "NWP-AUTH-NID-SCOPE-VIOLATION"),
    CapabilityMissing: Code(FORBIDDEN, "NWP-AUTH-NID-CAPABILITY-MISSING"),
    OutOfScope: Code(FORBIDDEN, "NWP-AUTH-NID-SCOPE-VIOLATION"),
    Conflict: Code(CONFLICT, CONFLICT),
    AnchorStale: Code(CONFLICT, "NCP-ANCHOR-STALE"),
    KeyInUse: Code(CONFLICT, "NWP-ACTION-IDEMPOTENCY-CONFLICT"),
    OutcomeUnknown: Code(CONFLICT, "NWP-ACTION-IDEMPOTENCY-CONFLICT"),
    TaskCancelled: Code(GONE, GONE),
    TaskFinished: Code(CONFLICT, "NWP-TASK-ALREADY-COMPLETED"),
    TaskAlreadyCancelled: Code(CONFLICT, "NWP-TASK-ALREADY-CANCELLED"),
    TaskAlreadyFailed: Code(CONFLICT, "NWP-TASK-ALREADY-FAILED"),
    FeedExpired: Code(CONFLICT, "NWP-SUBSCRIBE-SEQ-TOO-OLD"),
    RateLimited: Code("NPS-LIMIT-RATE", "NWP-RATE-LIMIT-EXCEEDED"),
    SubscriptionLimit: Code("NPS-LIMIT-EXCEEDED", "NWP-SUBSCRIBE-LIMIT-EXCEEDED"),
    StreamLimit: Code("NPS-STREAM-LIMIT", "NCP-STREAM-LIMIT-EXCEEDED"),
    Unavailable: Code(UNAVAILABLE, "NWP-NODE-UNAVAILABLE"),
    SubscriptionInterrupted: Code(UNAVAILABLE, "NWP-SUBSCRIBE-INTERRUPTED"),
    TimedOut: Code(TIMEOUT, TIMEOUT),
    TaskTimedOut: Code(TIMEOUT, "NOP-TASK-TIMEOUT"),
    StepTimedOut: Code(TIMEOUT, "NOP-DELEGATE-TIMEOUT"),
    TaskResubmitted: Code(CONFLICT, "NOP-TASK-ALREADY-COMPLETED"),
    TaskWithdrawn: Code(CONFLICT, "NOP-TASK-CANCELLED"),
    Unsupported: Code(UNSUPPORTED, "NWP-QUERY-VECTOR-UNSUPPORTED"),
    VectorUnsupported: Code(UNSUPPORTED, "NWP-QUERY-VECTOR-UNSUPPORTED"),
    AggregateUnsupported: Code(UNSUPPORTED, "NWP-QUERY-AGGREGATE-UNSUPPORTED"),
    StreamUnsupported: Code(UNSUPPORTED, "NWP-QUERY-STREAM-UNSUPPORTED"),
    SubscribeFilterUnsupported: Code(UNSUPPORTED, "NWP-SUBSCRIBE-FILTER-UNSUPPORTED"),
    OperationFailed: Code(INTERNAL, INTERNAL),
}

FRAME_CODES: Final[Mapping[str, str]] = {
    "NCP-FRAME-PAYLOAD-TOO-LARGE": "NPS-LIMIT-PAYLOAD",
    "NCP-VERSION-INCOMPATIBLE": "NPS-PROTO-VERSION-INCOMPATIBLE",
    "NCP-ENCODING-UNSUPPORTED": "NPS-SERVER-ENCODING-UNSUPPORTED",
    "NCP-ANCHOR-ID-MISMATCH": CONFLICT,
    "NCP-ANCHOR-NOT-FOUND": NOT_FOUND,
    "NCP-STREAM-NOT-FOUND": "NPS-STREAM-NOT-FOUND",
    "NCP-STREAM-SEQ-GAP": "NPS-STREAM-SEQ-GAP",
    "NCP-STREAM-WINDOW-OVERFLOW": "NPS-STREAM-LIMIT",
    "NCP-STREAM-LIMIT-EXCEEDED": "NPS-STREAM-LIMIT",
}

WORKFLOW_CODES: Final[Mapping[str, Code]] = {
    "cycle": Code(BAD_FRAME, "NOP-TASK-DAG-CYCLE"),
    "too-large": Code(BAD_FRAME, "NOP-TASK-DAG-TOO-LARGE"),
    "too-deep": Code(BAD_PARAM, "NOP-DELEGATE-CHAIN-TOO-DEEP"),
    "condition": Code(BAD_PARAM, "NOP-CONDITION-EVAL-ERROR"),
    "mapping": Code(UNPROCESSABLE, "NOP-INPUT-MAPPING-ERROR"),
}

INSIDE = (ConfigError, SourceError, Unavailable)  # of these the messages name databases, files and services


def code_of(error: SiteError) -> Code:
    """What an error is called here."""
    if isinstance(error, UnreadableFrame):
        said = str(error.details.get("code", "NCP-FRAME-UNKNOWN-TYPE"))
        return Code(FRAME_CODES.get(said, BAD_FRAME), said)
    if isinstance(error, InvalidWorkflow) and error.details.get("reason") in WORKFLOW_CODES:
        return WORKFLOW_CODES[str(error.details["reason"])]
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def failure(error: SiteError, request_id: str | None = None) -> ErrorFrame:
    """An error as a frame. What went wrong inside is told to the operator, not to the caller."""
    code = code_of(error)
    is_inside = isinstance(error, INSIDE) and not isinstance(error, TimedOut | ShuttingDown | SubscriptionInterrupted)
    message = "The node cannot do this at the moment. Try again later." if is_inside else str(error)
    # Which code it is stands beside already.
    told = {name: value for name, value in error.details.items() if name != "code"}
    details = {} if is_inside else told if isinstance(error, UnreadableFrame) else error.details
    return ErrorFrame(status=code.status, error=code.error, message=message, details=details, request_id=request_id)


def unreadable(error: FrameError, otherwise: type[SiteError] = UnreadableFrame) -> SiteError:
    """What is wrong with a frame. A member that is wrong is told as `otherwise` tells it, the rest by NCP's code."""
    if error.where:
        member = error.where.lstrip("$.").partition(".")[0].partition("[")[0]
        kind = _MEMBERS.get(member, otherwise)
        return kind(str(error), member=member, hint=_HINTS.get(member, ""))
    return UnreadableFrame(str(error), code=error.code)


# What a wrong member makes of a frame; of one that is not here it makes none.
MEMBERS: Final[Mapping[type[Frame], type[SiteError]]] = {
    QueryFrame: BadRequest,
    ActionFrame: InvalidParams,
    SubscribeFrame: InvalidFrame,
    TaskFrame: UnreadableFrame,
}

# How members are written that are often written otherwise.
_HINTS: Final[Mapping[str, str]] = {
    "aggregate": 'As in {"group_by": ["brand"], "operations": [{"func": "COUNT", "alias": "n"}]}.',
    "fields": 'As in ["name", "price"].',
    "filter": 'As in {"price": {"$lt": 20}}.',
    "limit": "As in 20.",
    "order": 'As in [{"field": "price", "dir": "ASC"}].',
    "vector_search": 'As in {"vector": [0.1, 0.2], "top_k": 10}.',
}

_MEMBERS: Final[Mapping[str, type[SiteError]]] = {
    "aggregate": InvalidAggregate,
    "cursor": InvalidCursor,
    "dag": InvalidWorkflow,
    "params": InvalidParams,
}
