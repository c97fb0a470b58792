"""NWP's errors: the status of the suite, the code of the protocol, and the HTTP status for each error type."""

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


class NwpErrorCode(NamedTuple):
    status: str
    error: str

    @property
    def http(self) -> HTTPStatus:
        return STATUSES[self.status]


# Errors that only this protocol has a code for


class UnknownNode(NotFound):
    """No node has this name, or the node has no such sub-path."""


class UnknownAction(NotFound): ...


class NodeMethodNotAllowed(BadRequest): ...


class UnreadableFrame(BadRequest):
    """The bytes are not a frame; `code` in the details is NCP's."""


class InvalidFrame(BadRequest):
    """A frame of a known type lacks a member, or has one with an invalid value."""


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


class StreamLimitExceeded(RateLimited): ...


class TaskAlreadyCancelled(Conflict): ...


class TaskAlreadyFailed(Conflict): ...


class TaskTimedOut(TimedOut):
    """A delegated task took too long."""


class StepTimedOut(TimedOut):
    """A step of a delegated task took too long."""


class TaskResubmitted(Conflict):
    """A resubmitted task is already completed."""


class TaskWithdrawn(Conflict):
    """A resubmitted task was cancelled."""


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

# Section 12 gives each code its status. An error without a code repeats the status in its place.
CODES: Final[Mapping[type[SiteError], NwpErrorCode]] = {
    SiteError: NwpErrorCode(INTERNAL, INTERNAL),
    BadRequest: NwpErrorCode(BAD_PARAM, "NWP-QUERY-FILTER-INVALID"),
    NodeMethodNotAllowed: NwpErrorCode(BAD_FRAME, "NCP-FRAME-UNKNOWN-TYPE"),
    UnreadableFrame: NwpErrorCode(BAD_FRAME, "NCP-FRAME-UNKNOWN-TYPE"),
    InvalidFrame: NwpErrorCode(BAD_FRAME, BAD_FRAME),  # NCP's codes are about headers and types
    InvalidQuery: NwpErrorCode(BAD_PARAM, "NWP-QUERY-FILTER-INVALID"),
    UnknownField: NwpErrorCode(BAD_PARAM, "NWP-QUERY-FIELD-UNKNOWN"),
    UnsafeRegex: NwpErrorCode(BAD_PARAM, "NWP-QUERY-REGEX-UNSAFE"),
    InvalidAggregate: NwpErrorCode(BAD_PARAM, "NWP-QUERY-AGGREGATE-INVALID"),
    InvalidCursor: NwpErrorCode(BAD_PARAM, "NWP-QUERY-CURSOR-INVALID"),
    # The query is too large, not the frame.
    QueryTooLarge: NwpErrorCode(BAD_PARAM, "NWP-QUERY-FILTER-INVALID"),
    InvalidParams: NwpErrorCode(UNPROCESSABLE, "NWP-ACTION-PARAMS-INVALID"),
    InvalidWorkflow: NwpErrorCode(BAD_FRAME, "NOP-TASK-DAG-INVALID"),
    BudgetExceeded: NwpErrorCode("NPS-LIMIT-BUDGET", "NWP-BUDGET-EXCEEDED"),
    TooLarge: NwpErrorCode("NPS-LIMIT-PAYLOAD", "NCP-FRAME-PAYLOAD-TOO-LARGE"),
    DepthExceeded: NwpErrorCode(BAD_PARAM, "NWP-DEPTH-EXCEEDED"),
    GraphCycle: NwpErrorCode(UNPROCESSABLE, "NWP-GRAPH-CYCLE"),
    VersionUnsupported: NwpErrorCode(BAD_PARAM, "NWP-MANIFEST-VERSION-UNSUPPORTED"),
    NotFound: NwpErrorCode(NOT_FOUND, NOT_FOUND),
    UnknownNode: NwpErrorCode(NOT_FOUND, NOT_FOUND),
    UnknownAction: NwpErrorCode(NOT_FOUND, "NWP-ACTION-NOT-FOUND"),
    UnknownOperation: NwpErrorCode(NOT_FOUND, "NWP-ACTION-NOT-FOUND"),
    UnknownTask: NwpErrorCode(NOT_FOUND, "NWP-TASK-NOT-FOUND"),
    AnchorUnknown: NwpErrorCode(NOT_FOUND, "NCP-ANCHOR-NOT-FOUND"),
    SubscriptionUnknown: NwpErrorCode(NOT_FOUND, "NWP-SUBSCRIBE-STREAM-NOT-FOUND"),
    Denied: NwpErrorCode(FORBIDDEN, "NWP-AUTH-NID-SCOPE-VIOLATION"),
    Unauthenticated: NwpErrorCode(UNAUTHENTICATED, "NWP-AUTH-NID-UNTRUSTED-ISSUER"),
    CertificateExpired: NwpErrorCode(UNAUTHENTICATED, "NWP-AUTH-NID-EXPIRED"),
    CertificateRevoked: NwpErrorCode(UNAUTHENTICATED, "NWP-AUTH-NID-REVOKED"),
    Forbidden: NwpErrorCode(FORBIDDEN, "NWP-AUTH-NID-SCOPE-VIOLATION"),
    CapabilityMissing: NwpErrorCode(FORBIDDEN, "NWP-AUTH-NID-CAPABILITY-MISSING"),
    OutOfScope: NwpErrorCode(FORBIDDEN, "NWP-AUTH-NID-SCOPE-VIOLATION"),
    Conflict: NwpErrorCode(CONFLICT, CONFLICT),
    AnchorStale: NwpErrorCode(CONFLICT, "NCP-ANCHOR-STALE"),
    KeyInUse: NwpErrorCode(CONFLICT, "NWP-ACTION-IDEMPOTENCY-CONFLICT"),
    OutcomeUnknown: NwpErrorCode(CONFLICT, "NWP-ACTION-IDEMPOTENCY-CONFLICT"),
    TaskCancelled: NwpErrorCode(GONE, GONE),
    TaskFinished: NwpErrorCode(CONFLICT, "NWP-TASK-ALREADY-COMPLETED"),
    TaskAlreadyCancelled: NwpErrorCode(CONFLICT, "NWP-TASK-ALREADY-CANCELLED"),
    TaskAlreadyFailed: NwpErrorCode(CONFLICT, "NWP-TASK-ALREADY-FAILED"),
    FeedExpired: NwpErrorCode(CONFLICT, "NWP-SUBSCRIBE-SEQ-TOO-OLD"),
    RateLimited: NwpErrorCode("NPS-LIMIT-RATE", "NWP-RATE-LIMIT-EXCEEDED"),
    SubscriptionLimit: NwpErrorCode("NPS-LIMIT-EXCEEDED", "NWP-SUBSCRIBE-LIMIT-EXCEEDED"),
    StreamLimitExceeded: NwpErrorCode("NPS-STREAM-LIMIT", "NCP-STREAM-LIMIT-EXCEEDED"),
    Unavailable: NwpErrorCode(UNAVAILABLE, "NWP-NODE-UNAVAILABLE"),
    SubscriptionInterrupted: NwpErrorCode(UNAVAILABLE, "NWP-SUBSCRIBE-INTERRUPTED"),
    TimedOut: NwpErrorCode(TIMEOUT, TIMEOUT),
    TaskTimedOut: NwpErrorCode(TIMEOUT, "NOP-TASK-TIMEOUT"),
    StepTimedOut: NwpErrorCode(TIMEOUT, "NOP-DELEGATE-TIMEOUT"),
    TaskResubmitted: NwpErrorCode(CONFLICT, "NOP-TASK-ALREADY-COMPLETED"),
    TaskWithdrawn: NwpErrorCode(CONFLICT, "NOP-TASK-CANCELLED"),
    Unsupported: NwpErrorCode(UNSUPPORTED, "NWP-QUERY-VECTOR-UNSUPPORTED"),
    VectorUnsupported: NwpErrorCode(UNSUPPORTED, "NWP-QUERY-VECTOR-UNSUPPORTED"),
    AggregateUnsupported: NwpErrorCode(UNSUPPORTED, "NWP-QUERY-AGGREGATE-UNSUPPORTED"),
    StreamUnsupported: NwpErrorCode(UNSUPPORTED, "NWP-QUERY-STREAM-UNSUPPORTED"),
    SubscribeFilterUnsupported: NwpErrorCode(UNSUPPORTED, "NWP-SUBSCRIBE-FILTER-UNSUPPORTED"),
    OperationFailed: NwpErrorCode(INTERNAL, INTERNAL),
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

WORKFLOW_CODES: Final[Mapping[str, NwpErrorCode]] = {
    "cycle": NwpErrorCode(BAD_FRAME, "NOP-TASK-DAG-CYCLE"),
    "too-large": NwpErrorCode(BAD_FRAME, "NOP-TASK-DAG-TOO-LARGE"),
    "too-deep": NwpErrorCode(BAD_PARAM, "NOP-DELEGATE-CHAIN-TOO-DEEP"),
    "condition": NwpErrorCode(BAD_PARAM, "NOP-CONDITION-EVAL-ERROR"),
    "mapping": NwpErrorCode(UNPROCESSABLE, "NOP-INPUT-MAPPING-ERROR"),
}

INSIDE = (ConfigError, SourceError, Unavailable)  # their messages name databases, files and services


def code_of(error: SiteError) -> NwpErrorCode:
    """Return the status and code of an error."""
    if isinstance(error, UnreadableFrame):
        code = str(error.details.get("code", "NCP-FRAME-UNKNOWN-TYPE"))
        return NwpErrorCode(FRAME_CODES.get(code, BAD_FRAME), code)
    if isinstance(error, InvalidWorkflow) and error.details.get("reason") in WORKFLOW_CODES:
        return WORKFLOW_CODES[str(error.details["reason"])]
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def error_frame(error: SiteError, request_id: str | None = None) -> ErrorFrame:
    """Return an ErrorFrame. Internal details are for the operator, and left out."""
    code = code_of(error)
    is_inside = isinstance(error, INSIDE) and not isinstance(error, TimedOut | ShuttingDown | SubscriptionInterrupted)
    message = "The node cannot do this at the moment. Try again later." if is_inside else str(error)
    # The code is a member of its own.
    public = {name: value for name, value in error.details.items() if name != "code"}
    details = {} if is_inside else public if isinstance(error, UnreadableFrame) else error.details
    return ErrorFrame(status=code.status, error=code.error, message=message, details=details, request_id=request_id)


def frame_problem(error: FrameError, otherwise: type[SiteError] = UnreadableFrame) -> SiteError:
    """Turn a FrameError into an error of the site: of type `otherwise` for a wrong member, else with NCP's code."""
    if error.where:
        member = error.where.lstrip("$.").partition(".")[0].partition("[")[0]
        kind = _MEMBERS.get(member, otherwise)
        return kind(str(error), member=member, hint=_HINTS.get(member, ""))
    return UnreadableFrame(str(error), code=error.code)


# The error for a wrong member of a frame; for other frames it is UnreadableFrame.
MEMBERS: Final[Mapping[type[Frame], type[SiteError]]] = {
    QueryFrame: BadRequest,
    ActionFrame: InvalidParams,
    SubscribeFrame: InvalidFrame,
    TaskFrame: UnreadableFrame,
}

# Examples of members that clients often get wrong.
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
