"""Every error Portico raises on purpose, as one tree. Knows no protocol and no status code.

SiteError
├── BadRequest              the request cannot be understood as sent
│   ├── InvalidQuery        a query, filter, order or aggregate is malformed
│   │   ├── UnknownField
│   │   ├── UnsafeRegex
│   │   ├── InvalidAggregate
│   │   ├── InvalidCursor
│   │   └── QueryTooLarge   it has more parts than are allowed; TooLarge, too
│   ├── InvalidParams       parameters do not fit the operation
│   │   └── InvalidWorkflow the steps of a workflow do not fit together
│   ├── BudgetExceeded      an answer cannot be made small enough for the caller
│   └── TooLarge            over a published limit
├── NotFound
│   ├── UnknownCollection
│   ├── UnknownOperation
│   ├── UnknownItem
│   └── UnknownTask
├── Denied                  who you are does not allow it
│   ├── Unauthenticated
│   │   ├── CertificateExpired
│   │   ├── CertificateRevoked
│   │   └── UntrustedIssuer
│   ├── Forbidden
│   │   ├── CapabilityMissing
│   │   ├── OutOfScope      a certificate does not cover this
│   │   ├── DangerDenied    more than this caller may risk
│   │   ├── TrustInsufficient
│   │   ├── AgentBlocked    until a person has verified what it was about to do
│   │   └── StepNeeded      an agent at work does what it has not reported
│   ├── ConfirmationNeeded  somebody else has to agree first
│   └── InvalidToken        a confirmation or a code that is not known here
│       ├── TokenExpired
│       ├── TokenUsed
│       └── TokenMismatch   it was given for something else
├── Conflict                the state of the site does not allow it
│   ├── VersionMismatch
│   ├── AlreadyExists
│   ├── KeyInUse            an idempotency key is taken
│   ├── OutcomeUnknown      whether a call has done its work cannot be determined
│   ├── TaskFinished
│   ├── TaskCancelled       what a task would have given was not wanted any more
│   ├── TakenOver           somebody else reads on from here
│   └── FeedExpired         the asked-for changes are no longer kept
├── RateLimited
├── Unavailable             a part Portico relies on does not answer
│   ├── TimedOut
│   └── ShuttingDown        the server stops before a request has ended
├── Unsupported             legal, but this site does not offer it
├── OperationFailed         an operation ran and failed
│   └── Interrupted         the server stopped while it ran
├── ConfigError             the site file or the command line is wrong
└── SourceError             a source of items cannot be read
    └── BlockedAddress      a URL points where Portico must not go
"""

from typing import Any

from portico.redaction import redact_text


class SiteError(Exception):
    """A message for people, details for machines, a hint for what to do next."""

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
    """Its texts are redacted: the address of a source may hold a password or a token."""

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        shown = {name: redact_text(value) if isinstance(value, str) else value for name, value in details.items()}
        super().__init__(redact_text(message), hint=hint, **shown)


class BlockedAddress(SourceError): ...
