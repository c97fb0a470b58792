"""Confirmations: calls and steps of one caller that another has to approve. Callers cannot approve their own."""

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from portico.errors import (
    ConfirmationNeeded,
    Forbidden,
    InvalidCursor,
    InvalidToken,
    RateLimited,
    SiteError,
    TokenExpired,
    TokenMismatch,
    TokenUsed,
)
from portico.requests import Caller
from portico.safety.context import SafetyContext, check_approver, digest_of
from portico.safety.models import Decision, PendingConfirmation
from portico.safety.records import AgentRecord, ConfirmationRecord, ConfirmationRequest, Grant
from portico.safety.transaction import Transaction

PREFIX = "conf_"
ID_LENGTH = 22  # last characters of a token, the id of the confirmation; the others are secret
PREFIX_LENGTH = 10  # characters of a token that others may see
MAX_WAITING = 50  # of one caller
RETENTION = timedelta(hours=1)  # after it expired, so that the error can say so
CLOCK_SKEW = timedelta(minutes=1)  # between the clocks of two processes
MAX_BYTES = 1_000_000  # of one caller's records with parameters, all of which an approver sees
MAX_PAGE_BYTES = 1_000_000  # of requests on one page; the first is always included
MAX_NOTE = 500
T = TypeVar("T")
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{1,64}}")
Position: TypeAlias = tuple[Annotated[datetime, Meta(tz=True)], str]  # when a request expires, and its id


@dataclass(frozen=True, slots=True)
class RequestPage:
    """A page of the requests that can be decided."""

    entries: tuple[PendingConfirmation, ...]
    cursor: str = ""  # for the next page; empty on the last one
    more: int = 0  # on later pages


class Confirmations:
    def __init__(self, context: SafetyContext) -> None:
        self._context = context

    # For callers that need approval

    def request(self, transaction: Transaction, draft: ConfirmationRecord) -> ConfirmationRecord | SiteError:
        """Request approval, once for the same call. Return an error if the caller has too many requests."""
        record = transaction.get(ConfirmationRecord, draft.id)
        now = self._context.clock()
        agent = transaction.get(AgentRecord, draft.principal) or AgentRecord(id=draft.principal, name=draft.name)
        if record and record.state == "pending" and now < record.expires and self._is_requested(agent, record):
            return self._share(transaction, agent, record, draft)
        waiting = _drop_expired(_without(agent.waiting, draft.id), now - CLOCK_SKEW)
        if len(_drop_expired(waiting, now)) >= MAX_WAITING:
            return RateLimited(
                f"{MAX_WAITING} requests of this caller are already waiting for approval",
                limit=MAX_WAITING,
                hint="Wait until some of them have been decided.",
            )
        entry = ConfirmationRequest(
            size=len(msgspec.json.encode(draft)), stored_until=draft.expires + RETENTION, execution=draft.execution
        )
        stored = {
            id: other
            for id, other in agent.requests.items()
            if id != draft.id and other.stored_until is not None and now < other.stored_until
        }
        if entry.size + sum(other.size for other in stored.values()) > MAX_BYTES:
            return RateLimited(
                f"The calls of one caller waiting for approval may have {MAX_BYTES} bytes in total",
                limit=MAX_BYTES,
                hint="Wait until some of them have been decided, or send less in one call.",
            )
        updated_agent = replace(
            agent, waiting={**waiting, draft.id: draft.expires}, requests={**stored, draft.id: entry}
        )
        self._context.save_agent(transaction, updated_agent)
        transaction.put(draft, draft.expires + RETENTION)
        transaction.audit(
            "CONFIRMATION_REQUIRED",
            token=token_prefix(token_of(draft)),
            caller=draft.principal,
            operation=draft.operation,
            params=draft.digest,
            reasons=draft.reasons,
            policy=self._context.policies.digest,
            session=draft.session,
        )
        return draft

    def draft(
        self,
        caller: Caller,
        what: Literal["call", "step"],
        operation: str,
        digest: str,
        reasons: tuple[str, ...],
        params: Mapping[str, Any],
        danger: str = "",
        session: str = "",
        execution: str = "",
    ) -> ConfirmationRecord:
        context = self._context
        return ConfirmationRecord(
            id=confirmation_id(caller, what, operation, digest),
            nonce=secrets.token_urlsafe(24),
            principal=caller.rate_key,
            name=caller.name,
            what=what,
            operation=operation,
            digest=digest,
            params=dict(params),
            danger=danger,
            reasons=reasons,
            issued=context.clock(),
            expires=context.after(context.settings.confirm_seconds),
            session=session,
            execution=execution,
        )

    def _share(
        self, transaction: Transaction, agent: AgentRecord, record: ConfirmationRecord, draft: ConfirmationRecord
    ) -> ConfirmationRecord:
        """Share a request between two sessions. It then belongs to neither and ends by its time or its execution."""
        updated = replace(
            record,
            session=record.session if record.session in {"", draft.session} else "",
            execution=draft.execution,
        )
        if updated != record:
            transaction.put(updated, record.expires + RETENTION)
            request = replace(agent.requests.get(record.id, ConfirmationRequest()), execution=updated.execution)
            self._context.save_agent(transaction, replace(agent, requests={**agent.requests, record.id: request}))
        return updated

    def _is_requested(self, agent: AgentRecord | None, record: ConfirmationRecord) -> bool:
        """Whether it was not revoked, and its execution, if any, has not ended."""
        return record.state != "revoked" and self._context.is_live(agent, record.execution)

    def redeem(self, transaction: Transaction, draft: ConfirmationRecord, token: str) -> str | SiteError:
        """Use up the approval of this call and return who gave it, or return why the call may not run."""
        record = transaction.get(ConfirmationRecord, id_of_token(token) if token else draft.id)
        agent = transaction.get(AgentRecord, draft.principal)
        problem = self._find_problem(record, draft, token, agent)
        if problem:
            transaction.audit(
                "TOKEN_REJECTED", token=token_prefix(token), caller=draft.principal, reason=type(problem).__name__
            )
            return problem
        if record and record.state == "rejected" and not self._has_expired(record):
            return Forbidden("This call was rejected", operation=record.operation, reason="rejected")
        is_void = record is None or record.state in {"used", "rejected"} or self._has_expired(record)
        if record is None or is_void or not self._is_requested(agent, record):
            return self.to_error(self.request(transaction, draft))
        by = record.by
        if record.state == "pending":
            if not (token and self._may_acknowledge(transaction, draft)):
                return self.to_error(self.request(transaction, draft))
            by = f"acknowledged by {draft.principal}"
        self.use(transaction, record, by)
        return by

    def use(self, transaction: Transaction, record: ConfirmationRecord, by: str) -> None:
        """Use up an approval, so that it counts once."""
        updated = replace(record, params={}, state="used", by=by, at=self._context.clock())
        transaction.put(updated, record.expires + RETENTION)
        agent = transaction.get(AgentRecord, record.principal)
        if agent:
            self._context.save_agent(transaction, _clear_request(agent, record))
        transaction.audit(
            "TOKEN_VALIDATED",
            token=token_prefix(token_of(record)),
            caller=record.principal,
            operation=record.operation,
            params=record.digest,
            by=by,
        )

    def find_approval(self, transaction: Transaction, id: str) -> ConfirmationRecord | None:
        """Return the unused approval of a call, or None if there is none or it has expired."""
        record = transaction.get(ConfirmationRecord, id)
        if record is None or record.state != "approved" or self._has_expired(record):
            return None
        return record if self._is_requested(transaction.get(AgentRecord, record.principal), record) else None

    def _find_problem(
        self, record: ConfirmationRecord | None, draft: ConfirmationRecord, token: str, agent: AgentRecord | None
    ) -> SiteError | None:
        """Return what is wrong with a token. Callers that do not own it learn only that it is not valid."""
        if not token:
            return None
        if record is None or not _is_token_of(token, record) or record.principal != draft.principal:
            return InvalidToken("The confirmation is not valid", token=token_prefix(token))
        if record.id != draft.id:
            return TokenMismatch(
                "The confirmation is for another call, or for other parameters",
                token=token_prefix(token),
                token_operation=record.operation,
                requested_operation=draft.operation,
            )
        match record.state:
            case "used":
                return TokenUsed(
                    "The confirmation has already been used", token=token_prefix(token), consumed_at=record.at
                )
            case "rejected":
                return InvalidToken("The confirmation was rejected", token=token_prefix(token))
            case _ if not self._is_requested(agent, record):
                return _withdrawal_error(token)
            case "pending" | "approved" if self._has_expired(record):
                return TokenExpired(
                    "The confirmation has expired",
                    token=token_prefix(token),
                    expired_at=record.expires,
                    current_time=self._context.clock(),
                )
            case _:
                return None

    def _has_expired(self, record: ConfirmationRecord) -> bool:
        return self._context.clock() >= record.expires

    def _may_acknowledge(self, transaction: Transaction, draft: ConfirmationRecord) -> bool:
        agent = transaction.get(AgentRecord, draft.principal)
        return self._context.settings.acknowledge and not (agent and agent.runs) and draft.operation != "execute_agent"

    def to_error(self, outcome: ConfirmationRecord | SiteError) -> SiteError:
        """Return the error for a caller that has to wait for approval."""
        if isinstance(outcome, SiteError):
            return outcome
        return ConfirmationNeeded(
            f"{outcome.operation} needs the approval of another person",
            token=token_of(outcome),
            operation=outcome.operation,
            danger=outcome.danger,
            reasons=list(outcome.reasons),
            expires_at=outcome.expires,
            hint="Have a person approve it, then send the same call again.",
        )

    # For approvers

    async def confirm(
        self, token: str, decision: Decision, note: str, caller: Caller, operation: str = "", digest: str = ""
    ) -> PendingConfirmation:
        """Approve another caller's request, as it was shown under a digest, or reject it."""
        check_approver(caller)
        id = id_of_token(token)
        stored = await self._context.records.read(ConfirmationRecord, id)
        principal = stored.principal if stored else caller.rate_key

        def work(transaction: Transaction) -> PendingConfirmation | SiteError:
            record = transaction.get(ConfirmationRecord, id)
            if record is None or not _is_token_of(token, record):
                return InvalidToken("The confirmation is not valid", token=token_prefix(token))
            if record.principal == caller.rate_key:
                transaction.audit("SELF_APPROVAL_REFUSED", token=token_prefix(token), caller=caller.rate_key)
                return Forbidden("Callers cannot approve their own requests", reason="self_approval")
            if operation and operation != record.operation:
                return TokenMismatch(
                    "The confirmation is for another operation",
                    token=token_prefix(token),
                    token_operation=record.operation,
                    requested_operation=operation,
                )
            if record.state in {"pending", "revoked"} and not self._is_requested(
                transaction.get(AgentRecord, principal), record
            ):
                return _withdrawal_error(token)
            if record.state != "pending":
                return TokenUsed(
                    f"The confirmation is already {record.state}",
                    token=token_prefix(token),
                    consumed_at=record.at,
                )
            if self._has_expired(record):
                return TokenExpired(
                    "The confirmation has expired", token=token_prefix(token), expired_at=record.expires
                )
            return _check_digest(record, decision, digest) or self._decide(transaction, record, decision, note, caller)

        return await self._context.records.update([(ConfirmationRecord, id), (AgentRecord, principal)], work)

    def _decide(
        self, transaction: Transaction, record: ConfirmationRecord, decision: Decision, note: str, caller: Caller
    ) -> PendingConfirmation:
        context = self._context
        until = context.after(context.settings.confirm_seconds)
        state: Literal["approved", "rejected"] = "approved" if decision == "approve" else "rejected"
        updated = replace(record, state=state, by=caller.rate_key, expires=until)
        agent = transaction.get(AgentRecord, record.principal)
        if agent:
            request = agent.requests.get(record.id, ConfirmationRequest())
            agent = _clear_request(agent, record)
            if record.what == "step" and state == "approved":
                grant = Grant(hint=record.digest, by=caller.rate_key, expires=until)
                # A person has looked, so steps are counted from zero again.
                undecided = {step: expires for step, expires in agent.undecided.items() if step != record.digest}
                agent = replace(_clear_outcomes(agent), undecided=undecided)
                agent = replace(agent, grants=(*agent.grants[-MAX_WAITING:], grant), spent=0, window=None)
                updated = replace(updated, state="used", at=context.clock())
            elif state == "approved":
                request = replace(request, stored_until=until + RETENTION)
                agent = replace(
                    agent,
                    approved={**_drop_expired(agent.approved, context.clock()), record.id: until},
                    requests={**agent.requests, record.id: request},
                )
            context.save_agent(transaction, agent)
        transaction.put(updated if updated.state == "approved" else replace(updated, params={}), until + RETENTION)
        event = "CONFIRMATION_GRANTED" if state == "approved" else "CONFIRMATION_REFUSED"
        transaction.audit(
            event,
            token=token_prefix(token_of(record)),
            caller=record.principal,
            operation=record.operation,
            params=record.digest,
            digest=display_digest(record),
            by=caller.rate_key,
            note=note[:MAX_NOTE],
        )
        return to_pending_confirmation(updated)

    async def list_pending(self) -> list[PendingConfirmation]:
        """Return every request that can be decided, oldest first."""
        entries = [await self._read_pending(id) for _, id in await self._queue()]
        return [entry for entry in entries if entry]

    async def page(self, cursor: str = "") -> RequestPage:
        """Return the next requests that can be decided, oldest first, as many as fit. None of them is truncated."""
        after = _parse_cursor(cursor) if cursor else None
        queue = [position for position in await self._queue() if after is None or position > after]
        entries, size = list[PendingConfirmation](), 0
        for index, (_, id) in enumerate(queue):
            entry = await self._read_pending(id)
            size += len(msgspec.json.encode(entry)) if entry else 0
            if entries and size > MAX_PAGE_BYTES:
                return RequestPage(tuple(entries), _cursor_at(queue[index - 1]), len(queue) - index)
            if entry:
                entries.append(entry)
        return RequestPage(tuple(entries))

    async def find(self, token: str) -> RequestPage:
        """Return the request with this token, if it can be decided."""
        entry = await self._read_pending(id_of_token(token))
        return RequestPage((entry,) if entry and entry.token == token else ())

    async def _queue(self) -> list[Position]:
        """Return the positions of all requests in the list, without reading their records, which may be large."""
        now, context = self._context.clock(), self._context
        return sorted(
            (until, id)
            for agent in await context.records.list_all(AgentRecord)
            for id, until in _drop_expired(agent.waiting, now).items()
            if id not in agent.requests or context.is_live(agent, agent.requests[id].execution)
        )

    async def _read_pending(self, id: str) -> PendingConfirmation | None:
        record = await self._context.records.read(ConfirmationRecord, id)
        if record is None or record.state != "pending" or self._has_expired(record):
            return None
        agent = await self._context.records.read(AgentRecord, record.principal) if record.execution else None
        return to_pending_confirmation(record) if self._is_requested(agent, record) else None

    async def revoke(self, session: str, principals: Iterable[str]) -> None:
        """Revoke what these callers requested in a session, even if it was approved."""
        for principal in principals:
            agent = await self._context.records.read(AgentRecord, principal)
            ids = {*agent.waiting, *agent.approved, *agent.requests} if agent else set[str]()
            if ids:
                names = [(AgentRecord, principal), *((ConfirmationRecord, id) for id in ids)]
                await self._context.records.update(names, partial(self._revoke_records, session, principal, ids))

    def _revoke_records(self, session: str, principal: str, ids: Iterable[str], transaction: Transaction) -> None:
        for id in ids:
            record, agent = transaction.get(ConfirmationRecord, id), transaction.get(AgentRecord, principal)
            # It may have been used since, or requested again in another session.
            if record and agent and record.session == session and record.state in {"pending", "approved"}:
                transaction.put(replace(record, params={}, state="revoked"), record.expires + RETENTION)
                self._context.save_agent(transaction, _drop_request(agent, id))
                transaction.audit("TOKEN_REVOKED", token=token_prefix(token_of(record)), caller=principal)

    async def drop_stale_params(self, principal: str) -> None:
        """Delete the parameters of a caller's requests that can no longer be decided or used."""
        agent = await self._context.records.read(AgentRecord, principal)
        ids = self._stale(agent) if agent else set[str]()
        if ids:
            names = [(AgentRecord, principal), *((ConfirmationRecord, id) for id in ids)]
            await self._context.records.update(names, partial(self._drop_params, principal, ids))

    def _drop_params(self, principal: str, ids: set[str], transaction: Transaction) -> None:
        agent = transaction.get(AgentRecord, principal)
        if agent is None:
            return
        for id in ids & self._stale(agent):  # one of them may have been requested again since
            record = transaction.get(ConfirmationRecord, id)
            if record:
                transaction.put(replace(record, params={}), record.expires + RETENTION)
            agent = _drop_request(agent, id)
        self._context.save_agent(transaction, agent)

    def _stale(self, agent: AgentRecord) -> set[str]:
        """Return the ids of requests with parameters that have expired or whose execution has ended."""
        now = self._context.clock() - CLOCK_SKEW
        lasting = {*_drop_expired(agent.waiting, now), *_drop_expired(agent.approved, now)}
        return {
            id
            for id, request in agent.requests.items()
            if id not in lasting or not self._context.is_live(agent, request.execution)
        }


def confirmation_id(caller: Caller, what: str, operation: str, digest: str) -> str:
    """Return the id of a request: the same for the same call of the same caller, so that nobody is asked twice."""
    parts = "\0".join((caller.rate_key, what, operation, digest))
    return urlsafe_b64encode(hashlib.sha256(parts.encode(errors="surrogatepass")).digest()[:16]).decode().rstrip("=")


def token_of(record: ConfirmationRecord) -> str:
    # The random part comes first, because people refer to a token by its beginning.
    return f"{PREFIX}{record.nonce}{record.id}"


def token_prefix(token: str) -> str:
    """Return the part of a token that others may see; nothing of a malformed one, which may be anything."""
    return token[:PREFIX_LENGTH] if _TOKEN.fullmatch(token) else ""


def id_of_token(token: str) -> str:
    """Return the id of a token's confirmation; empty if the token is malformed."""
    return token[-ID_LENGTH:] if _TOKEN.fullmatch(token) else ""


def to_pending_confirmation(record: ConfirmationRecord) -> PendingConfirmation:
    return PendingConfirmation(
        token=token_of(record),
        what=record.what,
        caller=record.principal,
        name=record.name,
        operation=record.operation,
        params=record.params,
        danger=record.danger,
        reasons=record.reasons,
        issued=record.issued,
        expires=record.expires,
        digest=display_digest(record),
    )


def display_digest(record: ConfirmationRecord) -> str:
    """Return the SHA-256, over canonical JSON, of what an approver sees."""
    fields = {
        "what": record.what,
        "caller": record.principal,
        "operation": record.operation,
        "params": record.params,
        "danger": record.danger,
        "reasons": record.reasons,
    }
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def _check_digest(record: ConfirmationRecord, decision: Decision, digest: str) -> SiteError | None:
    """Return an error unless the approved call is the one that the approver was shown.

    A token stands for one call, which never changes. The digest also catches an approver who mixed up two of them.
    """
    if decision != "approve":
        return None
    is_shown = not digest or hmac.compare_digest(digest.encode(errors="surrogatepass"), display_digest(record).encode())
    # The call is found by the digest of its parameters, so those have to be the ones shown. A step always has some.
    is_whole = bool(record.params) if record.what == "step" else digest_of(record.params) == record.digest
    if is_shown and is_whole:
        return None
    return TokenMismatch(
        "The call waiting under this token is not the one shown",
        token=token_prefix(token_of(record)),
        token_operation=record.operation,
        requested_operation=record.operation,
        hint="Read the call again before you decide.",
    )


def _cursor_at(position: Position) -> str:
    return urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def _parse_cursor(cursor: str) -> Position:
    try:
        return msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=Position)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidCursor("`cursor` is not valid for this list", hint="Start again without a cursor.") from error


def _withdrawal_error(token: str) -> InvalidToken:
    return InvalidToken(
        "The request was withdrawn because its execution or session has ended",
        token=token_prefix(token),
        reason="withdrawn",
    )


def _is_token_of(token: str, record: ConfirmationRecord) -> bool:
    return hmac.compare_digest(token.encode(errors="surrogatepass"), token_of(record).encode())


def _clear_request(agent: AgentRecord, record: ConfirmationRecord) -> AgentRecord:
    """Return an agent without a decided request and its notices."""
    notices = tuple(notice for notice in agent.notices if notice.metadata.operation != record.operation)
    return replace(_drop_request(agent, record.id), notices=notices)


def _drop_request(agent: AgentRecord, id: str) -> AgentRecord:
    return replace(
        agent,
        waiting=_without(agent.waiting, id),
        approved=_without(agent.approved, id),
        requests=_without(agent.requests, id),
    )


def _without(entries: Mapping[str, T], id: str) -> dict[str, T]:
    return {key: value for key, value in entries.items() if key != id}


def _drop_expired(deadlines: Mapping[str, datetime], now: datetime) -> dict[str, datetime]:
    return {id: until for id, until in deadlines.items() if now < until}


def _clear_outcomes(agent: AgentRecord) -> AgentRecord:
    """Return an agent whose failures a person has seen."""
    runs = tuple(replace(run, steps=tuple(replace(step, outcome="") for step in run.steps)) for run in agent.runs)
    return replace(agent, runs=runs)
