"""Every error Portico raises on purpose, as one tree. Knows no protocol and no status code.

SiteError
├── BadRequest              the request is malformed
│   ├── InvalidQuery        a query, filter, order or aggregate is malformed
│   │   ├── UnknownField
│   │   ├── UnsafeRegex
│   │   ├── InvalidAggregate
│   │   ├── InvalidCursor
│   │   └── QueryTooLarge   over a limit of a query; also a TooLarge
│   ├── InvalidParams       parameters do not fit the operation
│   │   └── InvalidWorkflow the steps of a workflow do not fit together
│   ├── BudgetExceeded      a response does not fit into the token budget of the caller
│   └── TooLarge            over a published limit
├── NotFound
│   ├── UnknownCollection
│   ├── UnknownOperation
│   ├── UnknownItem
│   └── UnknownTask
├── Denied                  the caller may not do this
│   ├── Unauthenticated
│   │   ├── CertificateExpired
│   │   ├── CertificateRevoked
│   │   └── UntrustedIssuer
│   ├── Forbidden
│   │   ├── CapabilityMissing
│   │   ├── OutOfScope      the certificate does not cover this
│   │   ├── DangerDenied    the operation is too dangerous for this caller
│   │   ├── TrustInsufficient
│   │   ├── AgentBlocked    until a person verifies the step that the agent reported
│   │   └── StepNeeded      an agent must report this step first
│   ├── ConfirmationNeeded  a person has to approve first
│   └── InvalidToken        a confirmation token or a code is unknown
│       ├── TokenExpired
│       ├── TokenUsed
│       └── TokenMismatch   it was issued for another call
├── Conflict                the state of the site does not allow it
│   ├── VersionMismatch
│   ├── AlreadyExists
│   ├── KeyInUse            an idempotency key is taken
│   ├── OutcomeUnknown      it is unknown whether the call had its effect
│   ├── TaskFinished
│   ├── TaskCancelled       the task was cancelled, so it has no result
│   ├── TakenOver           another reader has resumed the subscription
│   └── FeedExpired         the requested changes are no longer stored
├── RateLimited
├── Unavailable             a part that Portico needs does not respond
│   ├── TimedOut
│   └── ShuttingDown        the server stopped before the request was finished
├── Unsupported             valid, but this site does not support it
├── OperationFailed         an operation ran and failed
│   └── Interrupted         the server stopped while the operation ran
├── ConfigError             the site file or the command line is wrong
└── SourceError             a source of items cannot be read
    └── BlockedAddress      a URL points where Portico must not go
"""

from typing import Any

from portico.redaction import redact_text


class SiteError(Exception):
    """The base of all errors: a message for people, a hint about the remedy, details for programs."""

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = details

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(('.', '!', '?')) else '.'} {self.hint}"


class BadRequest(SiteError): ...


class InvalidQuery(BadRequest): ...


class UnknownField(InvalidQuery): ...


class UnsafeRegex(InvalidQuery): ...


class InvalidAggregate(InvalidQuery): ...


class InvalidCursor(InvalidQuery): ...


class InvalidParams(BadRequest): ...


class InvalidWorkflow(InvalidParams): ...


class BudgetExceeded(BadRequest): ...


class TooLarge(BadRequest): ...


class QueryTooLarge(TooLarge, InvalidQuery): ...


class NotFound(SiteError): ...


class UnknownCollection(NotFound): ...


class UnknownOperation(NotFound): ...


class UnknownItem(NotFound): ...


class UnknownTask(NotFound): ...


class Denied(SiteError): ...


class Unauthenticated(Denied): ...


class CertificateExpired(Unauthenticated): ...


class CertificateRevoked(Unauthenticated): ...


class UntrustedIssuer(Unauthenticated): ...


class Forbidden(Denied): ...


class CapabilityMissing(Forbidden): ...


class OutOfScope(Forbidden): ...


class DangerDenied(Forbidden): ...


class TrustInsufficient(Forbidden): ...


class AgentBlocked(Forbidden): ...


class StepNeeded(Forbidden): ...


class ConfirmationNeeded(Denied): ...


class InvalidToken(Denied): ...


class TokenExpired(InvalidToken): ...


class TokenUsed(InvalidToken): ...


class TokenMismatch(InvalidToken): ...


class Conflict(SiteError): ...


class VersionMismatch(Conflict): ...


class AlreadyExists(Conflict): ...


class KeyInUse(Conflict): ...


class OutcomeUnknown(Conflict): ...


class TaskFinished(Conflict): ...


class TakenOver(Conflict): ...


class TaskCancelled(Conflict): ...


class FeedExpired(Conflict): ...


class RateLimited(SiteError): ...


class Unavailable(SiteError): ...


class TimedOut(Unavailable): ...


class ShuttingDown(Unavailable): ...


class Unsupported(SiteError): ...


class OperationFailed(SiteError): ...


class Interrupted(OperationFailed): ...


class ConfigError(SiteError): ...


class SourceError(SiteError):
    """An error of a source. Its texts are redacted, as a URL may hold a password or a token."""

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        redacted = {name: redact_text(value) if isinstance(value, str) else value for name, value in details.items()}
        super().__init__(redact_text(message), hint=hint, **redacted)


class BlockedAddress(SourceError): ...
