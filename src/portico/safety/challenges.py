"""Challenges: steps that only a person with a code can release. The code goes to people alone; kept is its digest."""

import hmac
import re
import secrets
from base64 import b32encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from portico.errors import Forbidden, InvalidToken, RateLimited, SiteError, TokenExpired, UnknownItem
from portico.requests import Caller
from portico.safety.context import Office, abridge, check_approver, plain
from portico.safety.models import About, Blocked, Challenged, Code, Notification, Tier
from portico.safety.records import Agent, Attempts, Block, Broadcast, Challenge, Grant, Pause, Run
from portico.safety.transaction import Sheets

CODE_BYTES = 16  # 128 bits
EVERYBODY = "*"
MAX_FAILED = 10
WINDOW_SECONDS = 60.0
MAX_LOCKOUTS = 10  # doublings of the window
REISSUE_SECONDS = 60.0
GRANT_SECONDS = 300.0
KEPT = timedelta(days=1)
MAX_NOTE = 500
_ID = re.compile(r"[0-9a-f-]{36}")


class Challenges:
    def __init__(self, office: Office) -> None:
        self._office = office

    def begin(
        self,
        sheets: Sheets,
        agent: Agent,
        run: Run,
        hint: str,
        digest: str,
        tier: Tier,
        reasons: tuple[str, ...],
        operation: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> tuple[Agent, Challenge, Code]:
        """Have a step wait for a code. If it blocks, nothing of this caller goes on until it is released."""
        office = self._office
        id, code = str(uuid4()), new_code()
        challenge = Challenge(
            id=id,
            principal=agent.id,
            agent=run.agent,
            hint=plain(hint),
            digest=digest,
            operation=operation,
            params=None if params is None else dict(params),
            tier=tier,
            reasons=reasons,
            blocks=tier == Tier.DANGER_ZONE,
            issued=office.clock(),
            expires=office.after(office.settings.code_seconds),
            code=self._digest(id, code),
        )
        sheets.put(challenge, _kept_until(challenge))
        if challenge.blocks:
            block = Block(agent=run.agent, reason="; ".join(reasons)[:MAX_NOTE], since=challenge.issued, challenge=id)
            agent = replace(agent, block=block, pause=None)
            sheets.put(Broadcast(id=id, notice=_news(challenge)))
        else:
            agent = replace(agent, pause=Pause(challenge=id, hint=digest, expires=challenge.expires))
        event = "AGENT_BLOCKED" if challenge.blocks else "VERIFICATION_REQUIRED"
        sheets.tell(event, challenge=id, caller=agent.id, agent=run.agent, hint=abridge(hint), reasons=reasons)
        return agent, challenge, code

    def show(self, challenge: Challenge, code: Code) -> None:
        """Tell people, once it is on disk."""
        self._office.show(_challenged(challenge), code)

    async def show_again(self, id: str) -> None:
        """A fresh code for people, if the old one is of no use any more; not more often than once in a minute."""
        found = await self._office.docket.read(Challenge, id)
        if found is None or not self._may_renew(found):
            return

        def work(sheets: Sheets) -> tuple[Challenge, Code] | None:
            known = sheets.get(Challenge, id)
            return self._renewed(sheets, known, "site") if known and self._may_renew(known) else None

        renewed = await self._office.docket.change([(Challenge, id)], work)
        if renewed:
            self.show(*renewed)

    def _may_renew(self, known: Challenge) -> bool:
        now = self._office.clock()
        return now >= known.expires and now >= known.issued + timedelta(seconds=REISSUE_SECONDS)

    # For people

    async def reissue(self, id: str, caller: Caller) -> tuple[Challenged, Code]:
        """A fresh code, for the eyes of who asks; those before are of no use any more."""
        check_approver(caller)
        id = _checked(id)

        def work(sheets: Sheets) -> tuple[Challenge, Code] | SiteError:
            known = sheets.get(Challenge, id)
            if known is None:
                return _unknown(id)
            if known.principal == caller.rate_key:
                return self._refused(sheets, known, caller)
            return self._renewed(sheets, known, caller.rate_key)

        challenge, code = await self._office.docket.change([(Challenge, id)], work)
        return _challenged(challenge), code

    def _renewed(self, sheets: Sheets, known: Challenge, by: str) -> tuple[Challenge, Code]:
        code = new_code()
        expires = self._office.after(self._office.settings.code_seconds)
        renewed = replace(known, code=self._digest(known.id, code), issued=self._office.clock(), expires=expires)
        sheets.put(renewed, _kept_until(renewed))
        sheets.tell("CODE_ISSUED", challenge=known.id, caller=known.principal, by=by)
        return renewed, code

    async def verify(self, id: str, code: str, caller: Caller) -> Challenged:
        """Release a step with its code. A wrong one is the last try for that code."""
        if not self._office.settings.relay:
            check_approver(caller)
        id = _checked(id)
        found = await self._office.docket.read(Challenge, id)
        principal = found.principal if found else "nobody"
        names = [(Challenge, id), (Agent, principal), (Broadcast, id), (Attempts, principal), (Attempts, EVERYBODY)]
        return await self._office.docket.change(
            names, lambda sheets: self._verified(sheets, id, principal, code, caller)
        )

    def _verified(self, sheets: Sheets, id: str, principal: str, code: str, caller: Caller) -> Challenged | SiteError:
        known = sheets.get(Challenge, id)
        relays = self._office.settings.relay and known is not None and known.principal == caller.rate_key
        if not relays:
            check_approver(caller)
            if known and known.principal == caller.rate_key:
                # Refused before the code is looked at, so that an agent cannot use up a code.
                return self._refused(sheets, known, caller)
        # Who relays codes for itself can lock out nobody else.
        counted = (principal,) if relays else (principal, EVERYBODY)
        locked = self._locked(sheets, counted)
        if locked:
            sheets.tell("VERIFICATION_REFUSED", challenge=id[:64], caller=caller.rate_key, reason="rate limit")
            return locked
        right = hmac.compare_digest(self._digest(id, Code(code)), known.code if known and known.code else "-" * 64)
        if known is None or not right or self._office.clock() >= known.expires:
            self._count(sheets, counted)
            return self._failed(sheets, known, id, principal, caller, right=right)
        return self._released(sheets, known, f"{'relayed by' if relays else 'verified by'} {caller.rate_key}")

    def _failed(
        self, sheets: Sheets, known: Challenge | None, id: str, principal: str, caller: Caller, *, right: bool
    ) -> SiteError:
        if known:
            sheets.put(replace(known, code=""), _kept_until(known))
        sheets.tell("VERIFICATION_FAILED", challenge=id[:64], caller=caller.rate_key, agent=principal)
        if known and right:
            return TokenExpired("The code has expired", expired_at=known.expires, hint="Ask for a fresh one.")
        return InvalidToken("The code is not valid", hint="It is of no use any more; ask for a fresh one.")

    def _released(self, sheets: Sheets, known: Challenge, by: str) -> Challenged:
        agent = sheets.get(Agent, known.principal) or Agent(id=known.principal)
        grant = Grant(hint=known.digest, by=by, expires=self._office.after(GRANT_SECONDS), verified=True)
        self._office.file(sheets, replace(freed(agent, known.id), grants=(*agent.grants, grant)))
        sheets.drop(Challenge, known.id)
        sheets.drop(Broadcast, known.id)
        sheets.drop(Attempts, known.principal)
        sheets.tell("VERIFIED", challenge=known.id, caller=known.principal, agent=known.agent, by=by)
        return _challenged(known)

    async def unblock(self, principal: str, note: str, caller: Caller) -> None:
        """Let a caller's agents go on without a code: the word of an operator, which the trail keeps."""
        check_approver(caller)
        found = await self._office.docket.read(Agent, principal)
        id = found.block.challenge if found and found.block else ""

        def work(sheets: Sheets) -> SiteError | None:
            agent = sheets.get(Agent, principal)
            if agent is None or agent.block is None or agent.block.challenge != id:
                return UnknownItem("There is no such block", caller=principal[:100])
            if principal == caller.rate_key:
                sheets.tell("SELF_APPROVAL_REFUSED", caller=principal)
                return Forbidden("Nobody releases themselves", reason="self_approval")
            self._office.file(sheets, freed(agent, id))
            sheets.drop(Challenge, id)
            sheets.drop(Broadcast, id)
            sheets.tell("ADMIN_OVERRIDE", caller=principal, challenge=id, by=caller.rate_key, note=note[:MAX_NOTE])
            return None

        await self._office.docket.change([(Agent, principal), (Challenge, id), (Broadcast, id)], work)

    async def pending(self) -> tuple[list[Challenged], list[Blocked]]:
        now = self._office.clock()
        challenges = await self._office.docket.all(Challenge)
        agents = await self._office.docket.all(Agent)
        shown = [_challenged(each) for each in challenges if each.blocks or now < each.expires]
        return shown, [_blocked(each, each.block) for each in agents if each.block]

    # Codes that were wrong

    def _locked(self, sheets: Sheets, counted: tuple[str, ...]) -> RateLimited | None:
        now = self._office.clock().timestamp()
        for name in counted:
            known = sheets.get(Attempts, name)
            if known and now < known.locked:
                wait = round(known.locked - now, 1)
                return RateLimited("Too many wrong codes", limit=MAX_FAILED, retry_after=wait, hint="Wait.")
        return None

    def _count(self, sheets: Sheets, counted: tuple[str, ...]) -> None:
        """Note a wrong code. After ten in a minute none is looked at for a while, and each time for longer."""
        now = self._office.clock().timestamp()
        for name in counted:
            known = sheets.get(Attempts, name) or Attempts(id=name)
            failed = (*(at for at in known.failed if now - at < WINDOW_SECONDS), now)
            if len(failed) >= MAX_FAILED:
                wait = WINDOW_SECONDS * 2 ** min(known.lockouts, MAX_LOCKOUTS)
                known = replace(known, failed=(), locked=now + wait, lockouts=known.lockouts + 1)
            else:
                known = replace(known, failed=failed)
            sheets.put(known, self._office.clock() + KEPT)

    def _refused(self, sheets: Sheets, known: Challenge, caller: Caller) -> SiteError:
        sheets.tell("SELF_APPROVAL_REFUSED", challenge=known.id, caller=caller.rate_key)
        return Forbidden("Nobody releases themselves", reason="self_approval")

    def _digest(self, id: str, code: Code) -> str:
        typed = code.revealed().strip().upper().replace("-", "").replace(" ", "")
        return hmac.digest(self._office.secret, f"code\0{id}\0{typed}".encode(errors="surrogatepass"), "sha256").hex()


def new_code() -> Code:
    return Code(b32encode(secrets.token_bytes(CODE_BYTES)).decode().rstrip("="))


def freed(agent: Agent, challenge: str) -> Agent:
    """An agent without the block or the pause that a challenge has brought."""
    block = None if agent.block and agent.block.challenge == challenge else agent.block
    pause = None if agent.pause and agent.pause.challenge == challenge else agent.pause
    return replace(agent, block=block, pause=pause)


def _kept_until(challenge: Challenge) -> datetime | None:
    return None if challenge.blocks else challenge.expires + KEPT


def _news(challenge: Challenge) -> Notification:
    # Others are told that it happened, not whose agent it was or what it was about to do.
    return Notification(
        type="danger_zone",
        message="An agent was blocked until a person has verified its step",
        metadata=About(reason="hard block", level=challenge.tier.value, verification_id=challenge.id),
        timestamp=challenge.issued,
    )


def _challenged(known: Challenge) -> Challenged:
    return Challenged(
        id=known.id,
        caller=known.principal,
        agent=known.agent,
        hint=known.hint,
        operation=known.operation,
        params=known.params,
        tier=known.tier,
        reasons=known.reasons,
        blocks=known.blocks,
        issued=known.issued,
        expires=known.expires,
    )


def _blocked(agent: Agent, block: Block) -> Blocked:
    return Blocked(
        caller=agent.id, agent=block.agent, reason=block.reason, since=block.since, verification_id=block.challenge
    )


def _checked(id: str) -> str:
    """The id of a challenge; empty, as none is, if it has not the form of one."""
    return id if _ID.fullmatch(id) else ""


def _unknown(id: str) -> SiteError:
    return UnknownItem("There is no such challenge", challenge=id[:64])
