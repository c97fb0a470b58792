"""What people decide of the work of agents: approvals, verification codes, blocks, running executions, the audit trail.

Approves nothing by itself, and runs nothing: the guard looks at what was decided here when a call comes.
"""

from portico.errors import SiteError
from portico.items import MAX_EXACT_INTEGER
from portico.requests import Caller
from portico.safety.challenges import Challenges
from portico.safety.confirmations import Confirmations
from portico.safety.context import SafetyContext, check_approver
from portico.safety.loop import ExecutionLoop
from portico.safety.models import (
    Decision,
    Execution,
    PendingApprovals,
    PendingChallenge,
    PendingConfirmation,
    PendingItems,
    VerificationCode,
)
from portico.store import Store
from portico.store.records import AuditEntry, audit_digest

MAX_TRAIL = 1000  # lines of the audit trail that are read at once


class Supervision:
    """The decisions of people, for the desk, the command line and the operations of the safety module."""

    def __init__(
        self,
        store: Store,
        context: SafetyContext,
        confirmations: Confirmations,
        challenges: Challenges,
        loop: ExecutionLoop,
    ) -> None:
        self._store = store
        self._context = context
        self._confirmations = confirmations
        self._challenges = challenges
        self._loop = loop

    async def pending(self, caller: Caller) -> PendingItems:
        """Everything that waits for a person. What the caller wants itself it sees too, but cannot agree to."""
        check_approver(caller)
        challenges, blocks = await self._challenges.list_pending()
        return PendingItems(tuple(await self._confirmations.list_pending()), tuple(challenges), tuple(blocks))

    async def list_pending(self, caller: Caller, cursor: str = "", token: str = "") -> PendingApprovals:
        """Return a page of what waits for a person, or only the request of a token.

        Challenges and blocks are on the first page.
        """
        check_approver(caller)
        page = await self._confirmations.find(token) if token else await self._confirmations.page(cursor)
        is_first = not (cursor or token)
        challenges, blocks = await self._challenges.list_pending() if is_first else ([], [])
        return PendingApprovals(
            confirmations=page.entries,
            challenges=tuple(challenges),
            blocks=tuple(blocks),
            more=page.more,
            cursor=page.cursor,
        )

    async def executions(self, caller: Caller) -> list[tuple[str, Execution]]:
        """Every execution that is under way, each with whose it is."""
        check_approver(caller)
        return await self._loop.list_running()

    async def confirm(
        self, token: str, decision: Decision, note: str, caller: Caller, operation: str = "", digest: str = ""
    ) -> PendingConfirmation:
        """Approve what was shown under this digest, or turn it down; that needs no digest."""
        await self._check_free(caller)
        return await self._confirmations.confirm(token, decision, note, caller, operation, digest)

    async def verify(self, id: str, code: str, caller: Caller) -> PendingChallenge:
        if not self._context.settings.relay:
            await self._check_free(caller)
        return await self._challenges.verify(id, code, caller)

    async def reissue(self, id: str, caller: Caller) -> tuple[PendingChallenge, VerificationCode]:
        await self._check_free(caller)
        return await self._challenges.reissue(id, caller)

    async def unblock(self, principal: str, note: str, caller: Caller) -> None:
        await self._check_free(caller)
        await self._challenges.unblock(principal, note, caller)

    async def end(self, execution: str, note: str, caller: Caller) -> tuple[str, Execution]:
        """End an execution of somebody else. What its agent may do by itself stays as it is."""
        await self._check_free(caller)
        return await self._loop.stop(execution, note, caller)

    async def note(self, event: str, approver: Caller, **body: str) -> None:
        """Have the audit trail say what an approver did beside the cases."""
        await self._check_free(approver)
        await self._context.records.update(
            [], lambda transaction: transaction.audit(event, by=approver.rate_key, **body)
        )

    async def _check_free(self, caller: Caller) -> None:
        """Raise unless the caller may approve and is not blocked itself. An attempt without the right is audited."""
        try:
            check_approver(caller)
        except SiteError:
            tried = {"caller": caller.rate_key}
            await self._context.records.update([], lambda transaction: transaction.audit("APPROVAL_REFUSED", **tried))
            raise
        await self.refuse_blocked(caller)

    async def refuse_blocked(self, caller: Caller) -> None:
        """Raise if a caller is blocked. The operator never is."""
        if not caller.is_operator:
            await self._loop.refuse_blocked(caller)

    async def trail(self, after: int, limit: int, caller: Caller) -> list[AuditEntry]:
        check_approver(caller)
        return await self._store.audit.list_entries(
            min(max(after, 0), MAX_EXACT_INTEGER), min(max(limit, 1), MAX_TRAIL)
        )

    async def check_trail(self) -> list[str]:
        """What is wrong with the audit trail; empty when every line follows from the one before."""
        problems, before, seq = list[str](), "", 0
        while lines := await self._store.audit.list_entries(seq, MAX_TRAIL):
            for line in lines:
                problems.extend(_problems(line, before, seq))
                before, seq = line.digest, line.seq
        return problems


def _problems(line: AuditEntry, before: str, seq: int) -> list[str]:
    if line.seq != seq + 1:
        return [f"Lines {seq + 1} to {line.seq - 1} of the audit trail are missing"]
    if line.before != before or line.digest != audit_digest(before, line.seq, line.at, line.event, line.body):
        return [f"Line {line.seq} of the audit trail was changed"]
    return []
