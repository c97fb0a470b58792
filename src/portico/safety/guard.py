"""The last word before something runs: policies, confirmations, blocks, and the steps that agents have reported.

The gate has said who may do what at all. The guard says whether it may be done now, whichever protocol it came through.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from portico.catalog import Danger, Kind, Operation
from portico.config import Safety
from portico.errors import Forbidden, SiteError, StepNeeded, TrustInsufficient, Unauthenticated, Unsupported
from portico.requests import Call, Caller
from portico.safety import policy
from portico.safety.challenges import Challenges
from portico.safety.confirmations import Confirmations, named_by
from portico.safety.context import Office, check_approver, digest_of, now
from portico.safety.evaluation import check_patterns
from portico.safety.loop import Loop, blocked
from portico.safety.models import (
    About,
    Challenged,
    Code,
    Decision,
    Execution,
    Notification,
    Pending,
    PendingApprovals,
    Waiting,
)
from portico.safety.policy import Policies, Verdict
from portico.safety.records import Agent, Confirmation, Run, Step
from portico.safety.transaction import Docket, Sheets
from portico.store import Store
from portico.store.records import AuditEntry, audit_digest
from portico.telemetry import Observe

LOOP = frozenset(
    {
        "execute_agent",
        "record_execution_step",
        "complete_execution",
        "abort_execution",
        "confirm_operation",
        "verify_challenge",
        "get_execution_status",
    }
)
VERIFY = "verify_challenge"
SPARED = LOOP - {policy.START}  # what these do they check by themselves
STOPS = frozenset({"cancel_task", "cancel_execution"})  # nobody has to be asked to do less
UNNAMED = "The agreed step did not name its parameters"
MAX_TRAIL = 1000
SERVING = "serving"  # the role of the process that serves a site, or of the first of several
SERVING_SECONDS = 30.0
MAX_LINE = 2**53


@dataclass(frozen=True, slots=True)
class Taken:
    """A step of an execution that a call uses up."""

    execution: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.execution}/{self.number}"

    @classmethod
    def named(cls, name: str) -> "Taken":
        execution, _, number = name.partition("/")
        return cls(execution, int(number))


def _nowhere(_: Challenged, __: Code) -> None:
    """For sites that show codes only when somebody asks for them."""


class Guard:
    def __init__(
        self,
        store: Store,
        settings: Safety,
        operations: Callable[[], Mapping[str, Operation]],
        observe: Observe,
        show: Callable[[Challenged, Code], None] = _nowhere,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self.settings = settings
        self._store = store
        check_patterns(settings)
        office = Office(Docket(store.audit, observe), settings, Policies(settings), store.secret, show, clock)
        self._office = office
        self._confirmations = Confirmations(office)
        self._challenges = Challenges(office)
        self.loop = Loop(office, self._confirmations, self._challenges, operations)
        self._owner = secrets.token_hex(8)
        self._serving: asyncio.Task[None] | None = None
        self._sessions: dict[str, set[str]] = {}  # which callers began something in which session

    # Before a call

    async def clear(self, call: Call, operation: Operation, caller: Caller) -> Taken | None:
        """Let a call run that was admitted, or say why not. What it uses up is used up before this returns."""
        if operation.name == VERIFY and call.run == "later":
            # A task is written down with its parameters.
            raise Unsupported(
                "A verification code cannot be checked in a task: call verify_challenge directly",
                operation=operation.name,
            )
        if caller.is_operator or self._is_harmless(operation):
            return None
        if caller.is_anonymous and operation.name in LOOP:
            raise Unauthenticated("Executions are for callers with a key", hint="Send an API key.")
        if call.session:
            self._sessions.setdefault(call.session, set()).add(caller.rate_key)
        verdict = self._office.policies.verdict(operation, call.params, caller)
        if operation.name in SPARED and verdict.decision is policy.Decision.CONFIRM:
            return None  # nobody confirms a confirmation
        if await self._is_idle(caller) and _is_everyday(operation, verdict):
            return None
        if not _is_open(operation):
            await self.loop.refuse_blocked(caller)
        await self._confirmations.drop_stale_params(caller.rate_key)
        wanted = self._wanted(call, operation, caller, verdict)
        names = [(Agent, caller.rate_key), (Confirmation, wanted.id)]
        if call.confirmation:
            names.append((Confirmation, named_by(call.confirmation)))

        def work(sheets: Sheets) -> Taken | SiteError | None:
            return self._cleared(sheets, call, operation, caller, wanted, verdict)

        return await self._office.docket.change(list(dict.fromkeys(names)), work)

    def _is_harmless(self, operation: Operation) -> bool:
        """What may be read is a matter of scopes; and what agents must always be able to do needs no look."""
        is_spared = operation.name in STOPS or operation.name in SPARED
        return _only_reads(operation) or (is_spared and not self._office.policies.concerns(operation))

    async def _is_idle(self, caller: Caller) -> bool:
        """Whether nothing is known of a caller that could keep it from anything."""
        known = await self._office.docket.read(Agent, caller.rate_key)
        return known is None or not (known.block or known.runs or known.pause or known.undecided)

    def _wanted(self, call: Call, operation: Operation, caller: Caller, verdict: Verdict) -> Confirmation:
        danger = operation.danger.name.lower()
        params = policy.filled(operation, call.params)
        return self._confirmations.wanted(
            caller, "call", operation.name, digest_of(params), verdict.reasons, params, danger, call.session
        )

    def _cleared(
        self, sheets: Sheets, call: Call, operation: Operation, caller: Caller, wanted: Confirmation, verdict: Verdict
    ) -> Taken | SiteError | None:
        agent = self.loop.current(sheets, caller)
        is_watched = not _is_open(operation)
        if agent.block and is_watched:
            return blocked(agent)
        if verdict.decision is policy.Decision.DENY:
            return self._denied(sheets, agent, operation, caller, verdict)
        step: Step | None = None
        is_held = self.settings.mode == "enforcing" and is_watched and operation.name != policy.START
        if is_held and _is_paused(agent):
            return self._paused(sheets, agent, operation)
        if is_held and agent.runs:
            run, step = _step(agent, operation, wanted.digest)
            if run is None or step is None:
                return self._unreported(sheets, agent, operation)
            agent = _using(agent, run, step)
            taken = Taken(run.id, step.number)
        else:
            taken = None
        reasons = _to_confirm(verdict, step)
        if reasons is not None:
            wanted = replace(wanted, reasons=reasons, execution=taken.execution if taken else "")
            said = self._confirmations.redeem(sheets, wanted, call.confirmation)
            if isinstance(said, SiteError):
                self._remind(sheets, operation, said, caller)
                return said
            agent = replace(sheets.get(Agent, caller.rate_key) or agent, runs=agent.runs)
        if taken:
            self._office.file(sheets, agent)
        if operation.danger >= Danger.DESTRUCTIVE or taken:
            self._tell(sheets, operation, wanted, taken)
        return taken

    def _tell(self, sheets: Sheets, operation: Operation, wanted: Confirmation, taken: Taken | None) -> None:
        sheets.tell(
            "OPERATION_CLEARED",
            operation=operation.name,
            caller=wanted.principal,
            params=wanted.digest,
            danger=wanted.danger,
            execution=taken.execution if taken else "",
            policy=self._office.policies.digest,
            session=wanted.session,
        )

    def _denied(
        self, sheets: Sheets, agent: Agent, operation: Operation, caller: Caller, verdict: Verdict
    ) -> SiteError:
        sheets.tell("OPERATION_DENIED", operation=operation.name, caller=agent.id, reason="; ".join(verdict.reasons))
        self._notice(sheets, agent, operation.name, "; ".join(verdict.reasons), "deny")
        if verdict.by_trust:
            needed = policy.trust_needed(operation.danger)
            return TrustInsufficient(
                f"{operation.name} needs more trust than this caller has",
                operation=operation.name,
                required_trust=needed.name.lower(),
                actual_trust=caller.trust.name.lower(),
                danger_level=int(operation.danger),
                hint=policy.OPERATOR_DECIDES,
            )
        return Forbidden("; ".join(verdict.reasons), operation=operation.name, reason="policy")

    def _paused(self, sheets: Sheets, agent: Agent, operation: Operation) -> SiteError:
        sheets.tell("OPERATION_DENIED", operation=operation.name, caller=agent.id, reason="paused")
        self._notice(sheets, agent, operation.name, "A step waits for a person", "pause")
        return StepNeeded(
            f"A step of this caller waits for a person, and until then {operation.name} does too",
            operation=operation.name,
            reason="paused",
            hint="Report the step again once a person has agreed to it.",
        )

    def _unreported(self, sheets: Sheets, agent: Agent, operation: Operation) -> SiteError:
        sheets.tell("OPERATION_DENIED", operation=operation.name, caller=agent.id, reason="no reported step")
        self._notice(sheets, agent, operation.name, "It was not reported, or not with these parameters", "step")
        return StepNeeded(
            f"An execution is under way, and no reported step covers this call of {operation.name}",
            operation=operation.name,
            reason="step_not_reported",
            hint=f"Report it first with record_execution_step, naming {operation.name}.",
        )

    def _remind(self, sheets: Sheets, operation: Operation, error: SiteError, caller: Caller) -> None:
        agent = sheets.get(Agent, caller.rate_key)
        if agent:
            self._notice(sheets, agent, operation.name, error.message, "confirm")

    def _notice(self, sheets: Sheets, agent: Agent, operation: str, reason: str, level: str) -> None:
        """Have an agent that is at work told with its next step."""
        if not agent.runs:
            return
        about = About(operation=operation, reason=reason, level=level)
        said = Notification(
            type="permission_pending",
            message=f"{operation} was not run: {reason}",
            metadata=about,
            timestamp=self._office.clock(),
        )
        others = tuple(each for each in agent.notices if each.metadata.operation != operation)
        self._office.file(sheets, replace(agent, notices=(*others, said)))

    def decision(self, operation: Operation, caller: Caller) -> str:
        """What is decided of a call before its parameters are known: allow, confirm or deny."""
        return self._office.policies.verdict(operation, {}, caller).decision.name.lower()

    async def settle(self, taken: Taken, caller: Caller, *, failed: bool) -> None:
        """Note how the call of a step went: what an agent says of it does not count."""

        def work(sheets: Sheets) -> None:
            agent = sheets.get(Agent, caller.rate_key)
            if agent:
                self._office.file(sheets, _with_outcome(agent, taken, failed=failed))

        await self._office.docket.change([(Agent, caller.rate_key)], work)

    async def refuse_blocked(self, caller: Caller) -> None:
        """For work that was cleared before and goes on later."""
        if not caller.is_operator:
            await self.loop.refuse_blocked(caller)

    # For people

    async def pending(self, caller: Caller) -> Pending:
        """Everything that waits for a person. What the caller wants itself it sees too, but cannot agree to."""
        check_approver(caller)
        challenges, blocks = await self._challenges.pending()
        return Pending(tuple(await self._confirmations.pending()), tuple(challenges), tuple(blocks))

    async def list_pending(self, caller: Caller, cursor: str = "", token: str = "") -> PendingApprovals:
        """Return a page of what waits for a person, or only the request of a token.

        Challenges and blocks are on the first page.
        """
        check_approver(caller)
        page = await self._confirmations.find(token) if token else await self._confirmations.page(cursor)
        is_first = not (cursor or token)
        challenges, blocks = await self._challenges.pending() if is_first else ([], [])
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
        return await self.loop.under_way()

    async def confirm(
        self, token: str, decision: Decision, note: str, caller: Caller, operation: str = "", digest: str = ""
    ) -> Waiting:
        """Approve what was shown under this digest, or turn it down; that needs no digest."""
        await self._check_free(caller)
        return await self._confirmations.confirm(token, decision, note, caller, operation, digest)

    async def verify(self, id: str, code: str, caller: Caller) -> Challenged:
        if not self.settings.relay:
            await self._check_free(caller)
        return await self._challenges.verify(id, code, caller)

    async def reissue(self, id: str, caller: Caller) -> tuple[Challenged, Code]:
        await self._check_free(caller)
        return await self._challenges.reissue(id, caller)

    async def unblock(self, principal: str, note: str, caller: Caller) -> None:
        await self._check_free(caller)
        await self._challenges.unblock(principal, note, caller)

    async def end(self, execution: str, note: str, caller: Caller) -> tuple[str, Execution]:
        """End an execution of somebody else. What its agent may do by itself stays as it is."""
        await self._check_free(caller)
        return await self.loop.stop(execution, note, caller)

    async def note(self, event: str, approver: Caller, **body: str) -> None:
        """Have the audit trail say what an approver did beside the cases."""
        await self._check_free(approver)
        await self._office.docket.change([], lambda sheets: sheets.tell(event, by=approver.rate_key, **body))

    async def _check_free(self, caller: Caller) -> None:
        """Who is blocked does nothing for others either. Who tries what is not theirs is written down."""
        try:
            check_approver(caller)
        except SiteError:
            tried = {"caller": caller.rate_key}
            await self._office.docket.change([], lambda sheets: sheets.tell("APPROVAL_REFUSED", **tried))
            raise
        await self.refuse_blocked(caller)

    async def trail(self, after: int, limit: int, caller: Caller) -> list[AuditEntry]:
        check_approver(caller)
        return await self._store.audit.list_entries(min(max(after, 0), MAX_LINE), min(max(limit, 1), MAX_TRAIL))

    async def check_trail(self) -> list[str]:
        """What is wrong with the audit trail; empty when every line follows from the one before."""
        problems, before, seq = list[str](), "", 0
        while lines := await self._store.audit.list_entries(seq, MAX_TRAIL):
            for line in lines:
                problems.extend(_problems(line, before, seq))
                before, seq = line.digest, line.seq
        return problems

    # Around sessions and restarts

    async def end_session(self, session: str) -> None:
        """What a caller began in a session ends with it."""
        if not session:
            return  # what belongs to no session ends by its time
        principals = self._sessions.pop(session, set[str]())
        for principal in principals:
            await self.loop.cancel(principal, session)
        await self._confirmations.revoke(session, principals)

    async def begin(self) -> None:
        """Look at paused steps anew after a restart (8.8.3). A second process on the same store is not a restart."""
        with contextlib.suppress(SiteError):  # a store that is away keeps nobody from starting: pauses stay
            if await self._store.roles.acquire(SERVING, self._owner, SERVING_SECONDS):
                await self.loop.forget_pauses()
        self._serving = asyncio.create_task(self._keep_serving())

    async def _keep_serving(self) -> None:
        while True:
            await asyncio.sleep(SERVING_SECONDS / 3)
            with contextlib.suppress(SiteError):  # a store that is away is asked again
                await self._store.roles.acquire(SERVING, self._owner, SERVING_SECONDS)

    async def close(self) -> None:
        """Let the next process that begins count as a restart."""
        if self._serving:
            self._serving.cancel()
            with contextlib.suppress(SiteError):
                await self._store.roles.acquire(SERVING, self._owner, 0)


def _is_open(operation: Operation) -> bool:
    """Whether agents may always do it, blocked or not, reported or not."""
    return _only_reads(operation) or operation.name in STOPS or operation.name in SPARED


def _only_reads(operation: Operation) -> bool:
    return operation.kind is Kind.READ and operation.danger is Danger.SAFE


def _is_everyday(operation: Operation, verdict: Verdict) -> bool:
    return verdict.decision is policy.Decision.ALLOW and operation.danger < Danger.DESTRUCTIVE


def _is_paused(agent: Agent) -> bool:
    """Whether nothing is done, whatever was agreed to before: one agent of a caller stands for all.

    A caller that ends the execution with the paused step stays paused: its other executions inherit the pause, and a
    new one goes on step by step.
    """
    is_held = any(run.is_paused_for_person for run in agent.runs)
    return agent.pause is not None or is_held or (bool(agent.undecided) and not agent.runs)


def _to_confirm(verdict: Verdict, step: Step | None) -> tuple[str, ...] | None:
    """Return why a person has to agree to a call, or None if nobody has to, or has done so with its step."""
    reasons = verdict.reasons if verdict.decision is policy.Decision.CONFIRM else None
    if step is None or not step.by:
        return reasons
    # Who agreed to a step without parameters has not seen the call.
    return None if step.params else (UNNAMED, *(reasons or ()))


def _step(agent: Agent, operation: Operation, digest: str) -> tuple[Run | None, Step | None]:
    """The reported step that covers a call: the one that says most about it first."""
    fitting = [
        (run, step)
        for run in agent.runs
        for step in run.steps
        if not step.used and step.operation == operation.name and step.params in {"", digest}
    ]
    return max(fitting, key=lambda pair: (bool(pair[1].params), not pair[1].by), default=(None, None))


def _using(agent: Agent, run: Run, step: Step) -> Agent:
    agent = _changed(agent, Taken(run.id, step.number), lambda each: replace(each, used=True))
    others = tuple(each for each in agent.notices if each.metadata.operation != step.operation)
    return replace(agent, notices=others)


def _with_outcome(agent: Agent, taken: Taken, *, failed: bool) -> Agent:
    return _changed(agent, taken, lambda each: replace(each, outcome="failure" if failed else "success"))


def _changed(agent: Agent, taken: Taken, change: Callable[[Step], Step]) -> Agent:
    runs = tuple(
        replace(run, steps=tuple(change(each) if each.number == taken.number else each for each in run.steps))
        if run.id == taken.execution
        else run
        for run in agent.runs
    )
    return replace(agent, runs=runs)


def _problems(line: AuditEntry, before: str, seq: int) -> list[str]:
    if line.seq != seq + 1:
        return [f"Lines {seq + 1} to {line.seq - 1} of the audit trail are missing"]
    if line.before != before or line.digest != audit_digest(before, line.seq, line.at, line.event, line.body):
        return [f"Line {line.seq} of the audit trail was changed"]
    return []
