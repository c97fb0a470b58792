"""The gate: the one place that decides whether a request may be served. Turns a request into a Permit."""

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TypeAlias, TypeVar

import msgspec

from portico.access.identity import ASK, allows
from portico.access.limits import Admission, Allowance, Limits, Rates, check_payload, check_text
from portico.catalog import Catalog, Danger, Kind, Operation, Trust
from portico.errors import (
    BadRequest,
    DangerDenied,
    Forbidden,
    NotFound,
    SiteError,
    TooLarge,
    TrustInsufficient,
    Unauthenticated,
    UnknownField,
)
from portico.items import text_problem
from portico.query import MATCH_ALL, MAX_LIMIT, Query, check_bounds
from portico.requests import Ask, Call, Caller, Task, Watch
from portico.safety.guard import Guard, UsedStep
from portico.safety.policy import OPERATOR_DECIDES, may_call, trust_needed
from portico.telemetry import Recorder, RequestRefused

T = TypeVar("T")

Request: TypeAlias = Ask | Query | Call | Watch

_SEAL = object()
_MISSED = (NotFound, UnknownField)  # which another process may just have created
MAX_KEY = 255
MAX_LET_IN = 10_000  # cached pairs of a collection and scopes that may read it
MAX_TURNS = 200  # earlier questions sent with one


# Kinds of credentials by the prefix of caller ids. Refusals name them, but not how to get more rights.
CREDENTIALS: Mapping[str, str] = {"nip": "certificate of", "oauth": "token of"}
KEY = "key"


class Permit(msgspec.Struct, frozen=True):
    """Proof that the gate admitted a request. Only the gate can make one."""

    request: Request
    caller: Caller
    operation: Operation | None
    seal: object
    cleared: bool = False  # by the guard too, so that it may run
    used_step: UsedStep | None = None  # the step of an execution that it uses up

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("A Permit is made only by the gate")


class Gate:
    """Checks rate, size, existence, scopes and danger."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        refresh: Callable[[], Awaitable[bool]],
        limits: Limits,
        rates: Rates,
        record: Recorder,
        guard: Guard,
        renewed: Callable[[Caller], Awaitable[Caller]],
    ) -> None:
        self._catalog = catalog
        self._refresh = refresh  # updates the catalog; returns whether it changed
        self._limits = limits
        self._rates = rates
        self._record = record
        self._guard = guard
        self._renewed = renewed  # returns an earlier caller with its current rights
        self._seen: Catalog | None = None
        self._let_in: set[tuple[str, frozenset[str]]] = set()  # pairs of a collection and scopes that may read it

    async def admit(self, request: Request, caller: Caller) -> Permit:
        """Return a Permit for the request, or raise the reason why not."""
        try:
            await self._rates.charge(caller.rate_key, anonymous=caller.is_anonymous)
            return await self.check(request, caller)
        except SiteError as error:
            self._record(RequestRefused(type(request).__name__, caller.id, type(error).__name__))
            raise

    async def check(self, request: Request, caller: Caller) -> Permit:
        """Return a Permit for a request that is part of work already paid for, or raise the reason why not."""
        try:
            operation = self._check(request, caller)
        except _MISSED:
            operation = await self.look_up(lambda: self._check(request, caller))
        return Permit(request, caller, operation, _SEAL)

    def recheck(self, query: Query, caller: Caller) -> None:
        """Refuse a query that was admitted under an older catalog if the current one would not admit it."""
        try:
            self._check(query, caller)
        except SiteError as error:
            self._record(RequestRefused(type(query).__name__, caller.id, type(error).__name__))
            raise

    async def clear(self, permit: Permit) -> Permit:
        """Return a Permit to run a call with valid parameters, or raise the reason why not now."""
        call, operation = permit.request, permit.operation
        if not isinstance(call, Call) or operation is None:
            raise TypeError("Only calls are run")
        try:
            used_step = await self._guard.clear(call, operation, permit.caller)
        except SiteError as error:
            self._record(RequestRefused("Call", permit.caller.id, type(error).__name__))
            raise
        return Permit(call, permit.caller, operation, _SEAL, True, used_step)

    async def begin(self, caller: Caller) -> Admission:
        """Take one unit out of a caller's allowance for a piece of work, and return the context to do it in."""
        await self.spend(caller)
        return Admission(caller.rate_key)

    async def spend(self, caller: Caller) -> None:
        """Take one unit out of a caller's allowance, unless the edge has taken it for this request."""
        try:
            await self._rates.charge(caller.rate_key, anonymous=caller.is_anonymous)
        except SiteError as error:
            self._record(RequestRefused("request", caller.id, type(error).__name__))
            raise

    def left(self, caller: Caller) -> Allowance:
        """Return what is left of a caller's allowance, without using any."""
        return self._rates.left(caller.rate_key, anonymous=caller.is_anonymous)

    async def resume(self, task: Task) -> Permit:
        """Return a Permit for work that was admitted earlier and continues now. Raise if it has become forbidden."""
        caller = await self._renewed(task.caller)
        operation = await self.look_up(lambda: self._admit_operation(task.call, caller))
        if operation.kind is not Kind.READ:
            await self._guard.refuse_blocked(caller)
        return Permit(task.call, caller, operation, _SEAL, True)

    async def look_up(self, check: Callable[[], T]) -> T:
        """Return the result of a check of the catalog. If something is missing, refresh the catalog and check again."""
        try:
            return check()
        except _MISSED:
            if not await self._refresh():
                raise
        return check()

    def _check(self, request: Request, caller: Caller) -> Operation | None:
        if caller.trust is Trust.UNTESTED:
            raise TrustInsufficient(
                "This caller is not trusted with anything yet",
                danger_level=int(_danger_of(request, self._catalog())),
                required_trust=Trust.GENERATED.name.lower(),
                actual_trust=caller.trust.name.lower(),
                hint=OPERATOR_DECIDES,
            )
        match request:
            case Ask():
                self._check_ask(request, caller)
                return None
            case Query():
                self._check_query(request, caller)
                return None
            case Watch():
                check_bounds(request.where)
                self._check_collection(request.collection, caller)
                return None
            case Call():
                operation = self._admit_operation(request, caller)
                _check_call(request)
                check_payload(request.params, self._limits)
                return operation

    def _check_query(self, query: Query, caller: Caller) -> None:
        if query.text:
            check_text(query.text, self._limits)
        if query.where is not MATCH_ALL:
            check_bounds(query.where)
        self._check_collection(query.collection, caller)

    def _check_ask(self, ask: Ask, caller: Caller) -> None:
        for text in (ask.text, ask.background, ask.language, *ask.previous, *ask.memory):
            check_text(text, self._limits)
        check_payload({"filters": ask.filters, "profile": ask.profile}, self._limits)
        check_payload({"answers": ask.answers, "settled": ask.settled}, self._limits)
        check_bounds(ask.where)
        if not 1 <= ask.limit <= MAX_LIMIT:
            raise BadRequest(f"`limit` must be between 1 and {MAX_LIMIT}", limit=ask.limit)
        if not 0 <= ask.start <= MAX_LIMIT:
            raise BadRequest(f"`start` must be between 0 and {MAX_LIMIT}", param="start", start=ask.start)
        if len(ask.previous) > MAX_TURNS or len(ask.memory) > MAX_TURNS:
            actual = max(len(ask.previous), len(ask.memory))
            raise TooLarge(
                f"Up to {MAX_TURNS} earlier questions or memories are allowed", limit=MAX_TURNS, actual=actual
            )
        if ASK not in caller.scopes:
            raise _refusal(caller, ASK)
        for name in ask.collections:
            self._check_collection(name, caller)

    def _check_collection(self, name: str, caller: Caller) -> None:
        catalog = self._catalog()
        if catalog is not self._seen or len(self._let_in) > MAX_LET_IN:
            self._seen, self._let_in = catalog, set()
        if (name, caller.scopes) in self._let_in:
            return
        if caller.is_operator and name in catalog.collections:
            return
        collection = catalog.collection(name)
        if not allows(caller.scopes, Kind.READ, collection.name):
            raise _refusal(caller, f"read:{collection.name}")
        self._let_in.add((name, caller.scopes))

    def may(self, operation: Operation, caller: Caller) -> bool:
        """Return whether a caller may run an operation."""
        return may_call(operation, caller)

    def readable(self, caller: Caller) -> list[str]:
        """Return the names of the collections that a caller may read."""
        return [c.name for c in self._catalog().public if allows(caller.scopes, Kind.READ, c.name)]

    def _admit_operation(self, call: Call, caller: Caller) -> Operation:
        operation = self._catalog().operation(call.operation)
        if not operation.open and not allows(caller.scopes, operation.kind, operation.collection, operation.name):
            raise _refusal(caller, f"{operation.kind}:{operation.collection or operation.name}")
        if operation.danger == Danger.FORBIDDEN:
            raise Forbidden(f"{operation.name} is forbidden on this site", operation=operation.name)
        if operation.danger > caller.danger:
            raise DangerDenied(
                f"{operation.name} is {operation.danger.name.lower()}; "
                f"this caller is limited to {caller.danger.name.lower()} operations",
                operation=operation.name,
                danger=operation.danger.name.lower(),
                allowed=caller.danger.name.lower(),
                trust=caller.trust.name.lower(),
                required=trust_needed(operation.danger).name.lower(),
                hint=OPERATOR_DECIDES,
            )
        return operation


def _check_call(call: Call) -> None:
    if len(call.key) > MAX_KEY or text_problem(call.key):
        raise BadRequest(f"An idempotency key may have up to {MAX_KEY} printable characters", limit=MAX_KEY)
    if call.timeout is not None and not 0 < call.timeout < inf:
        raise BadRequest("`timeout` must be a number of seconds above 0", timeout=str(call.timeout))


def _danger_of(request: Request, catalog: Catalog) -> Danger:
    operation = catalog.operations.get(request.operation) if isinstance(request, Call) else None
    return operation.danger if operation else Danger.SAFE


def _refusal(caller: Caller, scope: str) -> SiteError:
    if caller.is_anonymous:
        return Unauthenticated(
            f"This needs the scope {scope}, which anonymous callers do not have",
            scope=scope,
            hint="Send an API key as a bearer token or x-api-key.",
        )
    credential = CREDENTIALS.get(caller.id.partition(":")[0], KEY)
    return Forbidden(f"The {credential} {caller.name!r} has no scope {scope}", scope=scope)
