"""Challenges: steps that only a person with a code can release. Only people get the code; a digest is stored."""

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
from portico.safety.context import SafetyContext, abridge, check_approver, escape_unprintable
from portico.safety.models import (
    BlockedAgent,
    Notification,
    NotificationSubject,
    PendingChallenge,
    RiskTier,
    VerificationCode,
)
from portico.safety.records import AgentBlock, AgentRecord, AgentRun, Attempts, Broadcast, Challenge, Grant, Pause
from portico.safety.transaction import Transaction

CODE_BYTES = 16  # 128 bits
EVERYBODY = "*"
MAX_FAILED = 10
WINDOW_SECONDS = 60.0
MAX_LOCKOUTS = 10  # doublings of the window
REISSUE_SECONDS = 60.0
GRANT_SECONDS = 300.0
RETENTION = timedelta(days=1)
MAX_NOTE = 500
_ID = re.compile(r"[0-9a-f-]{36}")


class Challenges:
    def __init__(self, context: SafetyContext) -> None:
        self._context = context

    def begin(
        self,
        transaction: Transaction,
        agent: AgentRecord,
        run: AgentRun,
        hint: str,
        digest: str,
        tier: RiskTier,
        reasons: tuple[str, ...],
        operation: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> tuple[AgentRecord, Challenge, VerificationCode]:
        """Hold a step until a code is entered. A challenge that blocks holds everything else of the caller too."""
        context = self._context
        id, code = str(uuid4()), new_code()
        challenge = Challenge(
            id=id,
            principal=agent.id,
            agent=run.agent,
            hint=escape_unprintable(hint),
            digest=digest,
            operation=operation,
            params=None if params is None else dict(params),
            tier=tier,
            reasons=reasons,
            blocks=tier == RiskTier.DANGER_ZONE,
            issued=context.clock(),
            expires=context.after(context.settings.code_seconds),
            code=self._digest(id, code),
        )
        transaction.put(challenge, _retention_end(challenge))
        if challenge.blocks:
            block = AgentBlock(
                agent=run.agent, reason="; ".join(reasons)[:MAX_NOTE], since=challenge.issued, challenge=id
            )
            agent = replace(agent, block=block, pause=None)
            transaction.put(Broadcast(id=id, notice=_block_notification(challenge)))
        else:
            agent = replace(agent, pause=Pause(challenge=id, hint=digest, expires=challenge.expires))
        event = "AGENT_BLOCKED" if challenge.blocks else "VERIFICATION_REQUIRED"
        transaction.audit(event, challenge=id, caller=agent.id, agent=run.agent, hint=abridge(hint), reasons=reasons)
        return agent, challenge, code

    def show(self, challenge: Challenge, code: VerificationCode) -> None:
        """Send the code to people, once the challenge is on disk."""
        self._context.show_code(to_pending_challenge(challenge), code)

    async def reissue_expired(self, id: str) -> None:
        """Send people a new code if the old one has expired, at most once a minute."""
        challenge = await self._context.records.read(Challenge, id)
        if challenge is None or not self._may_renew(challenge):
            return

        def work(transaction: Transaction) -> tuple[Challenge, VerificationCode] | None:
            current = transaction.get(Challenge, id)
            return self._renew(transaction, current, "site") if current and self._may_renew(current) else None

        reissue = await self._context.records.update([(Challenge, id)], work)
        if reissue:
            self.show(*reissue)

    def _may_renew(self, challenge: Challenge) -> bool:
        now = self._context.clock()
        return now >= challenge.expires and now >= challenge.issued + timedelta(seconds=REISSUE_SECONDS)

    # For people

    async def reissue(self, id: str, caller: Caller) -> tuple[PendingChallenge, VerificationCode]:
        """Return a new code for the person who asks. Earlier codes become invalid."""
        check_approver(caller)
        id = _normalize_id(id)

        def work(transaction: Transaction) -> tuple[Challenge, VerificationCode] | SiteError:
            challenge = transaction.get(Challenge, id)
            if challenge is None:
                return UnknownItem("There is no such challenge", challenge=id[:64])
            if challenge.principal == caller.rate_key:
                return self._refuse_self_approval(transaction, challenge, caller)
            return self._renew(transaction, challenge, caller.rate_key)

        challenge, code = await self._context.records.update([(Challenge, id)], work)
        return to_pending_challenge(challenge), code

    def _renew(self, transaction: Transaction, challenge: Challenge, by: str) -> tuple[Challenge, VerificationCode]:
        code = new_code()
        expires = self._context.after(self._context.settings.code_seconds)
        renewed = replace(
            challenge, code=self._digest(challenge.id, code), issued=self._context.clock(), expires=expires
        )
        transaction.put(renewed, _retention_end(renewed))
        transaction.audit("CODE_ISSUED", challenge=challenge.id, caller=challenge.principal, by=by)
        return renewed, code

    async def verify(self, id: str, code: str, caller: Caller) -> PendingChallenge:
        """Release a step with its code. A wrong code invalidates the right one."""
        if not self._context.settings.relay:
            check_approver(caller)
        id = _normalize_id(id)
        challenge = await self._context.records.read(Challenge, id)
        principal = challenge.principal if challenge else "nobody"
        names = [
            (Challenge, id),
            (AgentRecord, principal),
            (Broadcast, id),
            (Attempts, principal),
            (Attempts, EVERYBODY),
        ]
        return await self._context.records.update(
            names, lambda transaction: self._check_code(transaction, id, principal, code, caller)
        )

    def _check_code(
        self, transaction: Transaction, id: str, principal: str, code: str, caller: Caller
    ) -> PendingChallenge | SiteError:
        challenge = transaction.get(Challenge, id)
        relays = self._context.settings.relay and challenge is not None and challenge.principal == caller.rate_key
        if not relays:
            check_approver(caller)
            if challenge and challenge.principal == caller.rate_key:
                # Refused before the code is checked, so that an agent cannot invalidate it.
                return self._refuse_self_approval(transaction, challenge, caller)
        # A caller that relays its own codes can lock out nobody else.
        counters = (principal,) if relays else (principal, EVERYBODY)
        lock_error = self._find_lock(transaction, counters)
        if lock_error:
            transaction.audit("VERIFICATION_REFUSED", challenge=id[:64], caller=caller.rate_key, reason="rate limit")
            return lock_error
        is_right = hmac.compare_digest(
            self._digest(id, VerificationCode(code)), challenge.code if challenge and challenge.code else "-" * 64
        )
        if challenge is None or not is_right or self._context.clock() >= challenge.expires:
            self._count_failure(transaction, counters)
            return self._fail(transaction, challenge, id, principal, caller, is_right=is_right)
        return self._release(transaction, challenge, f"{'relayed by' if relays else 'verified by'} {caller.rate_key}")

    def _fail(
        self,
        transaction: Transaction,
        challenge: Challenge | None,
        id: str,
        principal: str,
        caller: Caller,
        *,
        is_right: bool,
    ) -> SiteError:
        if challenge:
            transaction.put(replace(challenge, code=""), _retention_end(challenge))
        transaction.audit("VERIFICATION_FAILED", challenge=id[:64], caller=caller.rate_key, agent=principal)
        if challenge and is_right:
            return TokenExpired("The code has expired", expired_at=challenge.expires, hint="Request a new one.")
        return InvalidToken("The code is not valid", hint="The code can no longer be used. Request a new one.")

    def _release(self, transaction: Transaction, challenge: Challenge, by: str) -> PendingChallenge:
        agent = transaction.get(AgentRecord, challenge.principal) or AgentRecord(id=challenge.principal)
        grant = Grant(hint=challenge.digest, by=by, expires=self._context.after(GRANT_SECONDS), verified=True)
        self._context.save_agent(
            transaction, replace(release_agent(agent, challenge.id), grants=(*agent.grants, grant))
        )
        transaction.drop(Challenge, challenge.id)
        transaction.drop(Broadcast, challenge.id)
        transaction.drop(Attempts, challenge.principal)
        transaction.audit("VERIFIED", challenge=challenge.id, caller=challenge.principal, agent=challenge.agent, by=by)
        return to_pending_challenge(challenge)

    async def unblock(self, principal: str, note: str, caller: Caller) -> None:
        """Release a caller's agents without a code, on an operator's decision, which the audit trail records."""
        check_approver(caller)
        agent = await self._context.records.read(AgentRecord, principal)
        id = agent.block.challenge if agent and agent.block else ""

        def work(transaction: Transaction) -> SiteError | None:
            agent = transaction.get(AgentRecord, principal)
            if agent is None or agent.block is None or agent.block.challenge != id:
                return UnknownItem("There is no such block", caller=principal[:100])
            if principal == caller.rate_key:
                transaction.audit("SELF_APPROVAL_REFUSED", caller=principal)
                return Forbidden("Callers cannot release their own agents", reason="self_approval")
            self._context.save_agent(transaction, release_agent(agent, id))
            transaction.drop(Challenge, id)
            transaction.drop(Broadcast, id)
            transaction.audit(
                "ADMIN_OVERRIDE", caller=principal, challenge=id, by=caller.rate_key, note=note[:MAX_NOTE]
            )
            return None

        await self._context.records.update([(AgentRecord, principal), (Challenge, id), (Broadcast, id)], work)

    async def list_pending(self) -> tuple[list[PendingChallenge], list[BlockedAgent]]:
        now = self._context.clock()
        challenges = await self._context.records.list_all(Challenge)
        agents = await self._context.records.list_all(AgentRecord)
        pending_challenges = [to_pending_challenge(item) for item in challenges if item.blocks or now < item.expires]
        return pending_challenges, [_to_blocked_agent(item, item.block) for item in agents if item.block]

    # Wrong codes

    def _find_lock(self, transaction: Transaction, counters: tuple[str, ...]) -> RateLimited | None:
        now = self._context.clock().timestamp()
        for name in counters:
            attempts = transaction.get(Attempts, name)
            if attempts and now < attempts.locked:
                wait = round(attempts.locked - now, 1)
                return RateLimited(
                    "Too many wrong codes", limit=MAX_FAILED, retry_after=wait, hint=f"Try again in {wait:g} seconds."
                )
        return None

    def _count_failure(self, transaction: Transaction, counters: tuple[str, ...]) -> None:
        """Count a wrong code. After ten in a minute, codes are refused for a while, longer each time."""
        now = self._context.clock().timestamp()
        for name in counters:
            attempts = transaction.get(Attempts, name) or Attempts(id=name)
            failed = (*(at for at in attempts.failed if now - at < WINDOW_SECONDS), now)
            if len(failed) >= MAX_FAILED:
                wait = WINDOW_SECONDS * 2 ** min(attempts.lockouts, MAX_LOCKOUTS)
                attempts = replace(attempts, failed=(), locked=now + wait, lockouts=attempts.lockouts + 1)
            else:
                attempts = replace(attempts, failed=failed)
            transaction.put(attempts, self._context.clock() + RETENTION)

    def _refuse_self_approval(self, transaction: Transaction, challenge: Challenge, caller: Caller) -> SiteError:
        transaction.audit("SELF_APPROVAL_REFUSED", challenge=challenge.id, caller=caller.rate_key)
        return Forbidden("Callers cannot release their own agents", reason="self_approval")

    def _digest(self, id: str, code: VerificationCode) -> str:
        typed = code.reveal().strip().upper().replace("-", "").replace(" ", "")
        return hmac.digest(self._context.secret, f"code\0{id}\0{typed}".encode(errors="surrogatepass"), "sha256").hex()


def new_code() -> VerificationCode:
    return VerificationCode(b32encode(secrets.token_bytes(CODE_BYTES)).decode().rstrip("="))


def release_agent(agent: AgentRecord, challenge: str) -> AgentRecord:
    """Return an agent without the block or the pause of a challenge."""
    block = None if agent.block and agent.block.challenge == challenge else agent.block
    pause = None if agent.pause and agent.pause.challenge == challenge else agent.pause
    return replace(agent, block=block, pause=pause)


def _retention_end(challenge: Challenge) -> datetime | None:
    return None if challenge.blocks else challenge.expires + RETENTION


def _block_notification(challenge: Challenge) -> Notification:
    # Other agents learn that it happened, not whose agent it was or what it was about to do.
    return Notification(
        type="danger_zone",
        message="An agent is blocked until a person has verified its step",
        metadata=NotificationSubject(reason="hard block", level=challenge.tier.value, verification_id=challenge.id),
        timestamp=challenge.issued,
    )


def to_pending_challenge(challenge: Challenge) -> PendingChallenge:
    return PendingChallenge(
        id=challenge.id,
        caller=challenge.principal,
        agent=challenge.agent,
        hint=challenge.hint,
        operation=challenge.operation,
        params=challenge.params,
        tier=challenge.tier,
        reasons=challenge.reasons,
        blocks=challenge.blocks,
        issued=challenge.issued,
        expires=challenge.expires,
    )


def _to_blocked_agent(agent: AgentRecord, block: AgentBlock) -> BlockedAgent:
    return BlockedAgent(
        caller=agent.id, agent=block.agent, reason=block.reason, since=block.since, verification_id=block.challenge
    )


def _normalize_id(id: str) -> str:
    """Return the id of a challenge; empty if it is malformed."""
    return id if _ID.fullmatch(id) else ""
