"""Confirmations: what one caller wants to do, and another has to agree to. Nobody agrees to their own."""

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
from portico.safety.context import Office, check_approver, digest_of
from portico.safety.models import Decision, Waiting
from portico.safety.records import Agent, Confirmation, ConfirmationRequest, Grant
from portico.safety.transaction import Sheets

PREFIX = "conf_"
ID = 22  # characters in the end of a token that name the confirmation; the others are its secret
SHOWN = 10  # characters of a token that are told to others
MAX_WAITING = 50  # of one caller
KEPT = timedelta(hours=1)  # after it expired, to say so
CLOCK_SKEW = timedelta(minutes=1)  # by which the clocks of two processes may differ
MAX_BYTES = 1_000_000  # of records of one caller with parameters: an approver is shown all of them
MAX_PAGE_BYTES = 1_000_000  # of requests on one page; the first is listed whatever its size
MAX_NOTE = 500
T = TypeVar("T")
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{1,64}}")
Position: TypeAlias = tuple[Annotated[datetime, Meta(tz=True)], str]  # when a request expires, and its id


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Some of the requests that can be decided."""

    entries: tuple[Waiting, ...]
    cursor: str = ""  # for the next page; empty on the last one
    more: int = 0  # on later pages


class Confirmations:
    def __init__(self, office: Office) -> None:
        self._office = office

    # For those who want something

    def ask(self, sheets: Sheets, wanted: Confirmation) -> Confirmation | SiteError:
        """Have somebody asked, once for the same thing; who asks for too much is refused."""
        known = sheets.get(Confirmation, wanted.id)
        now = self._office.clock()
        agent = sheets.get(Agent, wanted.principal) or Agent(id=wanted.principal, name=wanted.name)
        if known and known.state == "pending" and now < known.expires and self._is_wanted(agent, known):
            return self._shared(sheets, agent, known, wanted)
        waiting = _lasting(_without(agent.waiting, wanted.id), now - CLOCK_SKEW)
        if len(_lasting(waiting, now)) >= MAX_WAITING:
            return RateLimited(
                f"{MAX_WAITING} things of this caller wait to be confirmed",
                limit=MAX_WAITING,
                hint="Wait for an answer.",
            )
        request = ConfirmationRequest(
            size=len(msgspec.json.encode(wanted)), stored_until=wanted.expires + KEPT, execution=wanted.execution
        )
        stored = {id: other for id, other in agent.requests.items() if id != wanted.id and _is_stored(other, now)}
        if request.size + sum(other.size for other in stored.values()) > MAX_BYTES:
            return RateLimited(
                f"Calls of one caller waiting to be confirmed may have {MAX_BYTES} bytes together",
                limit=MAX_BYTES,
                hint="Wait for an answer, or send less in one call.",
            )
        changed = replace(
            agent, waiting={**waiting, wanted.id: wanted.expires}, requests={**stored, wanted.id: request}
        )
        self._office.file(sheets, changed)
        sheets.put(wanted, wanted.expires + KEPT)
        sheets.tell(
            "CONFIRMATION_REQUIRED",
            token=shown(token_of(wanted)),
            caller=wanted.principal,
            operation=wanted.operation,
            params=wanted.digest,
            reasons=wanted.reasons,
            policy=self._office.policies.digest,
            session=wanted.session,
        )
        return wanted

    def wanted(
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
    ) -> Confirmation:
        office = self._office
        return Confirmation(
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
            issued=office.clock(),
            expires=office.after(office.settings.confirm_seconds),
            session=session,
            execution=execution,
        )

    def _shared(self, sheets: Sheets, agent: Agent, known: Confirmation, wanted: Confirmation) -> Confirmation:
        """What is wanted in two sessions belongs to neither of them, and ends by its time or with its execution."""
        shared = replace(
            known,
            session=known.session if known.session in {"", wanted.session} else "",
            execution=wanted.execution,
        )
        if shared != known:
            sheets.put(shared, known.expires + KEPT)
            request = replace(agent.requests.get(known.id, ConfirmationRequest()), execution=shared.execution)
            self._office.file(sheets, replace(agent, requests={**agent.requests, known.id: request}))
        return shared

    def _is_wanted(self, agent: Agent | None, known: Confirmation) -> bool:
        """Whether it was neither revoked nor wanted by an execution that has ended."""
        return known.state != "revoked" and self._office.is_live(agent, known.execution)

    def redeem(self, sheets: Sheets, wanted: Confirmation, token: str) -> str | SiteError:
        """Who agreed to exactly this; it is used up with that. Or why it may not be done."""
        found = sheets.get(Confirmation, named_by(token) if token else wanted.id)
        agent = sheets.get(Agent, wanted.principal)
        problem = self._problem(found, wanted, token, agent)
        if problem:
            sheets.tell("TOKEN_REJECTED", token=shown(token), caller=wanted.principal, reason=type(problem).__name__)
            return problem
        if found and found.state == "rejected" and not self._is_over(found):
            return Forbidden("Somebody has turned this down", operation=found.operation, reason="rejected")
        is_void = found is None or found.state in {"used", "rejected"} or self._is_over(found)
        if found is None or is_void or not self._is_wanted(agent, found):
            return self.needed(self.ask(sheets, wanted))
        by = found.by
        if found.state == "pending":
            if not (token and self._may_acknowledge(sheets, wanted)):
                return self.needed(self.ask(sheets, wanted))
            by = f"acknowledged by {wanted.principal}"
        self.use(sheets, found, by)
        return by

    def use(self, sheets: Sheets, found: Confirmation, by: str) -> None:
        """Use up an approval, so that what it allows happens once."""
        used = replace(found, params={}, state="used", by=by, at=self._office.clock())
        sheets.put(used, found.expires + KEPT)
        agent = sheets.get(Agent, found.principal)
        if agent:
            self._office.file(sheets, _settled(agent, found))
        sheets.tell(
            "TOKEN_VALIDATED",
            token=shown(token_of(found)),
            caller=found.principal,
            operation=found.operation,
            params=found.digest,
            by=by,
        )

    def find_approval(self, sheets: Sheets, id: str) -> Confirmation | None:
        """Return the unused approval of a call, or None if there is none or it has expired."""
        found = sheets.get(Confirmation, id)
        if found is None or found.state != "approved" or self._is_over(found):
            return None
        return found if self._is_wanted(sheets.get(Agent, found.principal), found) else None

    def _problem(
        self, found: Confirmation | None, wanted: Confirmation, token: str, agent: Agent | None
    ) -> SiteError | None:
        """What is wrong with a token that was shown. Others than its owner hear only that it is not valid."""
        if not token:
            return None
        if found is None or not _is(token, found) or found.principal != wanted.principal:
            return InvalidToken("The confirmation is not valid", token=shown(token))
        if found.id != wanted.id:
            return TokenMismatch(
                "The confirmation was given for another call, or for other parameters",
                token=shown(token),
                token_operation=found.operation,
                requested_operation=wanted.operation,
            )
        match found.state:
            case "used":
                return TokenUsed("The confirmation was used before", token=shown(token), consumed_at=found.at)
            case "rejected":
                return InvalidToken("The confirmation was turned down", token=shown(token))
            case _ if not self._is_wanted(agent, found):
                return _withdrawal_error(token)
            case "pending" | "approved" if self._is_over(found):
                return TokenExpired(
                    "The confirmation has expired",
                    token=shown(token),
                    expired_at=found.expires,
                    current_time=self._office.clock(),
                )
            case _:
                return None

    def _is_over(self, found: Confirmation) -> bool:
        return self._office.clock() >= found.expires

    def _may_acknowledge(self, sheets: Sheets, wanted: Confirmation) -> bool:
        agent = sheets.get(Agent, wanted.principal)
        return self._office.settings.acknowledge and not (agent and agent.runs) and wanted.operation != "execute_agent"

    def needed(self, found: Confirmation | SiteError) -> SiteError:
        """What a caller is told that has to wait."""
        if isinstance(found, SiteError):
            return found
        return ConfirmationNeeded(
            f"Somebody else has to agree to {found.operation}",
            token=token_of(found),
            operation=found.operation,
            danger=found.danger,
            reasons=list(found.reasons),
            expires_at=found.expires,
            hint="Have a person approve it, then send the same again.",
        )

    # For those who agree

    async def confirm(
        self, token: str, decision: Decision, note: str, caller: Caller, operation: str = "", digest: str = ""
    ) -> Waiting:
        """Agree to what somebody else wants, as it was shown under a digest, or turn it down."""
        check_approver(caller)
        id = named_by(token)
        found = await self._office.docket.read(Confirmation, id)
        principal = found.principal if found else caller.rate_key

        def work(sheets: Sheets) -> Waiting | SiteError:
            known = sheets.get(Confirmation, id)
            if known is None or not _is(token, known):
                return InvalidToken("The confirmation is not valid", token=shown(token))
            if known.principal == caller.rate_key:
                sheets.tell("SELF_APPROVAL_REFUSED", token=shown(token), caller=caller.rate_key)
                return Forbidden("Callers cannot approve their own requests", reason="self_approval")
            if operation and operation != known.operation:
                return TokenMismatch(
                    "The confirmation is for another operation",
                    token=shown(token),
                    token_operation=known.operation,
                    requested_operation=operation,
                )
            if known.state in {"pending", "revoked"} and not self._is_wanted(sheets.get(Agent, principal), known):
                return _withdrawal_error(token)
            if known.state != "pending":
                return TokenUsed(f"The confirmation is {known.state} already", token=shown(token), consumed_at=known.at)
            if self._is_over(known):
                return TokenExpired("The confirmation has expired", token=shown(token), expired_at=known.expires)
            return _check_shown(known, decision, digest) or self._decided(sheets, known, decision, note, caller)

        return await self._office.docket.change([(Confirmation, id), (Agent, principal)], work)

    def _decided(self, sheets: Sheets, known: Confirmation, decision: Decision, note: str, caller: Caller) -> Waiting:
        office = self._office
        until = office.after(office.settings.confirm_seconds)
        state: Literal["approved", "rejected"] = "approved" if decision == "approve" else "rejected"
        changed = replace(known, state=state, by=caller.rate_key, expires=until)
        agent = sheets.get(Agent, known.principal)
        if agent:
            request = agent.requests.get(known.id, ConfirmationRequest())
            agent = _settled(agent, known)
            if known.what == "step" and state == "approved":
                grant = Grant(hint=known.digest, by=caller.rate_key, expires=until)
                # Somebody has looked: the steps are counted anew.
                undecided = {step: expires for step, expires in agent.undecided.items() if step != known.digest}
                agent = replace(_looked_at(agent), undecided=undecided)
                agent = replace(agent, grants=(*agent.grants[-MAX_WAITING:], grant), spent=0, window=None)
                changed = replace(changed, state="used", at=office.clock())
            elif state == "approved":
                request = replace(request, stored_until=until + KEPT)
                agent = replace(
                    agent,
                    given={**_lasting(agent.given, office.clock()), known.id: until},
                    requests={**agent.requests, known.id: request},
                )
            office.file(sheets, agent)
        sheets.put(changed if changed.state == "approved" else replace(changed, params={}), until + KEPT)
        event = "CONFIRMATION_GRANTED" if state == "approved" else "CONFIRMATION_REFUSED"
        sheets.tell(
            event,
            token=shown(token_of(known)),
            caller=known.principal,
            operation=known.operation,
            params=known.digest,
            digest=shown_digest(known),
            by=caller.rate_key,
            note=note[:MAX_NOTE],
        )
        return waiting(changed)

    async def pending(self) -> list[Waiting]:
        """Return every request that can be decided, the oldest first."""
        entries = [await self._read_pending(id) for _, id in await self._queue()]
        return [entry for entry in entries if entry]

    async def page(self, cursor: str = "") -> RequestPage:
        """Return the next requests that can be decided, the oldest first, as many as fit. None of them is cut."""
        after = _parse_cursor(cursor) if cursor else None
        queue = [position for position in await self._queue() if after is None or position > after]
        entries, size = list[Waiting](), 0
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
        entry = await self._read_pending(named_by(token))
        return RequestPage((entry,) if entry and entry.token == token else ())

    async def _queue(self) -> list[Position]:
        """Return where the requests of all callers are in the list. Their records, which may be large, are not read."""
        now, office = self._office.clock(), self._office
        return sorted(
            (until, id)
            for agent in await office.docket.all(Agent)
            for id, until in _lasting(agent.waiting, now).items()
            if id not in agent.requests or office.is_live(agent, agent.requests[id].execution)
        )

    async def _read_pending(self, id: str) -> Waiting | None:
        known = await self._office.docket.read(Confirmation, id)
        if known is None or known.state != "pending" or self._is_over(known):
            return None
        agent = await self._office.docket.read(Agent, known.principal) if known.execution else None
        return waiting(known) if self._is_wanted(agent, known) else None

    async def revoke(self, session: str, principals: Iterable[str]) -> None:
        """What these wanted in a session is not wanted any more, also if somebody has agreed to it."""
        for principal in principals:
            agent = await self._office.docket.read(Agent, principal)
            ids = {*agent.waiting, *agent.given, *agent.requests} if agent else set[str]()
            if ids:
                names = [(Agent, principal), *((Confirmation, id) for id in ids)]
                await self._office.docket.change(names, partial(self._revoked, session, principal, ids))

    def _revoked(self, session: str, principal: str, ids: Iterable[str], sheets: Sheets) -> None:
        for id in ids:
            known, agent = sheets.get(Confirmation, id), sheets.get(Agent, principal)
            # It may have been used since, or be wanted anew in another session.
            if known and agent and known.session == session and known.state in {"pending", "approved"}:
                sheets.put(replace(known, params={}, state="revoked"), known.expires + KEPT)
                self._office.file(sheets, _freed(agent, id))
                sheets.tell("TOKEN_REVOKED", token=shown(token_of(known)), caller=principal)

    async def drop_stale_params(self, principal: str) -> None:
        """Delete the parameters of a caller's requests that can be neither decided nor used any more."""
        agent = await self._office.docket.read(Agent, principal)
        ids = self._stale(agent) if agent else set[str]()
        if ids:
            names = [(Agent, principal), *((Confirmation, id) for id in ids)]
            await self._office.docket.change(names, partial(self._drop_params, principal, ids))

    def _drop_params(self, principal: str, ids: set[str], sheets: Sheets) -> None:
        agent = sheets.get(Agent, principal)
        if agent is None:
            return
        for id in ids & self._stale(agent):  # one of them may have been requested again since
            known = sheets.get(Confirmation, id)
            if known:
                sheets.put(replace(known, params={}), known.expires + KEPT)
            agent = _freed(agent, id)
        self._office.file(sheets, agent)

    def _stale(self, agent: Agent) -> set[str]:
        """Return the ids of requests with parameters that have expired, or that their execution no longer wants."""
        now = self._office.clock() - CLOCK_SKEW
        lasting = {*_lasting(agent.waiting, now), *_lasting(agent.given, now)}
        return {
            id
            for id, request in agent.requests.items()
            if id not in lasting or not self._office.is_live(agent, request.execution)
        }


def confirmation_id(caller: Caller, what: str, operation: str, digest: str) -> str:
    """The same for the same thing wanted by the same caller, so that nobody is asked twice."""
    told = "\0".join((caller.rate_key, what, operation, digest))
    return urlsafe_b64encode(hashlib.sha256(told.encode(errors="surrogatepass")).digest()[:16]).decode().rstrip("=")


def token_of(known: Confirmation) -> str:
    # What nobody can choose comes first: people name a token by its beginning.
    return f"{PREFIX}{known.nonce}{known.id}"


def shown(token: str) -> str:
    """As much of a token as may be told to others; of what is none nothing, for it may be anything."""
    return token[:SHOWN] if _TOKEN.fullmatch(token) else ""


def named_by(token: str) -> str:
    """The id of the confirmation that a token is for; empty, as no id is, if it has not the form of one."""
    return token[-ID:] if _TOKEN.fullmatch(token) else ""


def waiting(known: Confirmation) -> Waiting:
    return Waiting(
        token=token_of(known),
        what=known.what,
        caller=known.principal,
        name=known.name,
        operation=known.operation,
        params=known.params,
        danger=known.danger,
        reasons=known.reasons,
        issued=known.issued,
        expires=known.expires,
        digest=shown_digest(known),
    )


def shown_digest(known: Confirmation) -> str:
    """Return the SHA-256 of what an approver is shown and agrees to, as canonical JSON."""
    shown_fields = {
        "what": known.what,
        "caller": known.principal,
        "operation": known.operation,
        "params": known.params,
        "danger": known.danger,
        "reasons": known.reasons,
    }
    return hashlib.sha256(msgspec.json.encode(shown_fields, order="sorted")).hexdigest()


def _check_shown(known: Confirmation, decision: Decision, digest: str) -> SiteError | None:
    """Refuse to approve anything but the call that the approver was shown.

    A token stands for one call, which never changes. A digest also catches an approver who mixed up two of them.
    """
    if decision != "approve":
        return None
    is_shown = not digest or hmac.compare_digest(digest.encode(errors="surrogatepass"), shown_digest(known).encode())
    # What runs is found by the digest of its parameters: they have to be those that are shown. A step always has some.
    is_whole = bool(known.params) if known.what == "step" else digest_of(known.params) == known.digest
    if is_shown and is_whole:
        return None
    return TokenMismatch(
        "The call waiting under this token is not the one shown",
        token=shown(token_of(known)),
        token_operation=known.operation,
        requested_operation=known.operation,
        hint="Read the call again before you decide.",
    )


def _cursor_at(position: Position) -> str:
    return urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def _parse_cursor(cursor: str) -> Position:
    try:
        return msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=Position)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidCursor("`cursor` is not one of this list", hint="Start again without a cursor.") from error


def _withdrawal_error(token: str) -> InvalidToken:
    return InvalidToken(
        "The request was withdrawn because its execution or session has ended",
        token=shown(token),
        reason="withdrawn",
    )


def _is(token: str, known: Confirmation) -> bool:
    return hmac.compare_digest(token.encode(errors="surrogatepass"), token_of(known).encode())


def _settled(agent: Agent, known: Confirmation) -> Agent:
    """An agent that waits for this no longer, and need not be reminded of it."""
    kept = tuple(each for each in agent.notices if each.metadata.operation != known.operation)
    return replace(_freed(agent, known.id), notices=kept)


def _freed(agent: Agent, id: str) -> Agent:
    return replace(
        agent,
        waiting=_without(agent.waiting, id),
        given=_without(agent.given, id),
        requests=_without(agent.requests, id),
    )


def _is_stored(request: ConfirmationRequest, now: datetime) -> bool:
    return request.stored_until is not None and now < request.stored_until


def _without(entries: Mapping[str, T], id: str) -> dict[str, T]:
    return {key: value for key, value in entries.items() if key != id}


def _lasting(known: Mapping[str, datetime], now: datetime) -> dict[str, datetime]:
    return {id: until for id, until in known.items() if now < until}


def _looked_at(agent: Agent) -> Agent:
    """An agent whose failures a person knows of."""
    runs = tuple(replace(run, steps=tuple(replace(step, outcome="") for step in run.steps)) for run in agent.runs)
    return replace(agent, runs=runs)
