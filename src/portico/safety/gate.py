"""Request to Permit: the one place that decides whether something may be done. Does nothing itself."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias, TypeVar

import msgspec

from portico.access.identity import ASK, allows
from portico.access.limits import Allowance, Limits, Rates, check_payload, check_text
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
from portico.query import EVERYTHING, MAX_LIMIT, Query, check_bounds
from portico.requests import Ask, Call, Caller, Task, Watch
from portico.safety.guard import Guard, Taken
from portico.safety.policy import OPERATOR_DECIDES, may_call, trust_needed
from portico.telemetry import Observe, Refused

T = TypeVar("T")

Request: TypeAlias = Ask | Query | Call | Watch

_SEAL = object()
_MISSED = (NotFound, UnknownField)  # what another process may just have made
MAX_KEY = 255
MAX_LET_IN = 10_000  # of whom it is kept that they may read a collection
MAX_TURNS = 200  # earlier questions that come with one


# What callers authenticate with, by how their ids begin. Refusals name it, and never how to get one that allows more.
CREDENTIALS: Mapping[str, str] = {"nip": "certificate of", "oauth": "token of"}
KEY = "key"


class Permit(msgspec.Struct, frozen=True):
    """Proof that the gate admitted a request. Only the gate can make one."""

    request: Request
    caller: Caller
    operation: Operation | None
    allowance: Allowance | None
    seal: object
    cleared: bool = False  # by the guard too: it may be run
    taken: Taken | None = None  # the step of an execution that it uses up

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("A Permit is made only by the gate")


class Gate:
    """Checks rate, size, that the thing exists, scopes and danger."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        refresh: Callable[[], Awaitable[bool]],
        limits: Limits,
        rates: Rates,
        observe: Observe,
        guard: Guard,
        renewed: Callable[[Caller], Awaitable[Caller]],
    ) -> None:
        self._catalog = catalog
        self._refresh = refresh  # bring the catalog up to date; whether there was anything new
        self._limits = limits
        self._rates = rates
        self._observe = observe
        self._guard = guard
        self._renewed = renewed  # a caller that asked earlier, as of now
        self._seen: Catalog | None = None
        self._let_in: set[tuple[str, frozenset[str]]] = set()  # who may read what, by this catalog

    async def admit(self, request: Request, caller: Caller) -> Permit:
        """A Permit for the request, or the reason why not."""
        try:
            allowance = await self._rates.spend(caller.rate_key, anonymous=caller.is_anonymous)
            operation = await self._settled(request, caller)
            return Permit(request, caller, operation, allowance, _SEAL)
        except SiteError as error:
            self._observe(Refused(type(request).__name__, caller.id, type(error).__name__))
            raise

    def recheck(self, query: Query, caller: Caller) -> None:
        """Refuse a query that was admitted by an older catalog, if it is not by the one that there is now."""
        try:
            self._checked(query, caller)
        except SiteError as error:
            self._observe(Refused(type(query).__name__, caller.id, type(error).__name__))
            raise

    async def clear(self, permit: Permit) -> Permit:
        """A Permit to run a call whose parameters were found to fit, or the reason why not now."""
        call, operation = permit.request, permit.operation
        if not isinstance(call, Call) or operation is None:
            raise TypeError("Only calls are run")
        try:
            taken = await self._guard.clear(call, operation, permit.caller)
        except SiteError as error:
            self._observe(Refused("Call", permit.caller.id, type(error).__name__))
            raise
        return Permit(call, permit.caller, operation, permit.allowance, _SEAL, True, taken)

    async def spend(self, caller: Caller) -> Allowance:
        """Take one request out of a caller's allowance; for what is asked beside the doors."""
        try:
            return await self._rates.spend(caller.rate_key, anonymous=caller.is_anonymous)
        except SiteError as error:
            self._observe(Refused("request", caller.id, type(error).__name__))
            raise

    def charging(self, caller: Caller) -> "Charging":
        """Where a request is understood, so that what cannot be understood costs as much as what can."""
        return Charging(self, caller)

    def left(self, caller: Caller) -> Allowance:
        """What is left of a caller's allowance, without taking anything out of it."""
        return self._rates.left(caller.rate_key, anonymous=caller.is_anonymous)

    async def resume(self, task: Task) -> Permit:
        """A Permit for work that was admitted before and goes on later. What is forbidden by now stays undone."""
        caller = await self._renewed(task.caller)
        operation = await self.settled(lambda: self._admitted_operation(task.call, caller))
        if operation.kind is not Kind.READ:
            await self._guard.refuse_blocked(caller)
        return Permit(task.call, caller, operation, None, _SEAL, True)

    async def _settled(self, request: Request, caller: Caller) -> Operation | None:
        try:
            return self._checked(request, caller)
        except _MISSED:
            return await self.settled(lambda: self._checked(request, caller))

    async def settled(self, check: Callable[[], T]) -> T:
        """What a check of the catalog says. What it misses another process may have made: then it is asked again."""
        try:
            return check()
        except _MISSED:
            if not await self._refresh():
                raise
        return check()

    def _checked(self, request: Request, caller: Caller) -> Operation | None:
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
                operation = self._admitted_operation(request, caller)
                _check_call(request)
                check_payload(request.params, self._limits)
                return operation

    def _check_query(self, query: Query, caller: Caller) -> None:
        if query.text:
            check_text(query.text, self._limits)
        if query.where is not EVERYTHING:
            check_bounds(query.where)
        self._check_collection(query.collection, caller)

    def _check_ask(self, ask: Ask, caller: Caller) -> None:
        for text in (ask.text, ask.background, ask.language, *ask.previous, *ask.memory):
            check_text(text, self._limits)
        check_payload({"filters": ask.filters, "profile": ask.profile}, self._limits)
        check_payload({"answers": ask.answers, "settled": ask.settled}, self._limits)
        check_bounds(ask.where)
        if not 1 <= ask.limit <= MAX_LIMIT:
            raise BadRequest(f"A question asks for 1 to {MAX_LIMIT} items", limit=ask.limit)
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
        """Whether a caller could have an operation run, as things are."""
        return may_call(operation, caller)

    def readable(self, caller: Caller) -> list[str]:
        """The collections a caller may read."""
        return [c.name for c in self._catalog().public if allows(caller.scopes, Kind.READ, c.name)]

    def _admitted_operation(self, call: Call, caller: Caller) -> Operation:
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


@dataclass(frozen=True, slots=True)
class Charging:
    """Takes a request out of a caller's allowance when it is refused in here."""

    gate: Gate
    caller: Caller

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SiteError):
            await self.gate.spend(self.caller)


def _check_call(call: Call) -> None:
    if len(call.key) > MAX_KEY or text_problem(call.key):
        raise BadRequest(f"An idempotency key may have up to {MAX_KEY} ordinary characters", limit=MAX_KEY)
    if call.timeout is not None and not 0 < call.timeout < inf:
        raise BadRequest("A timeout is a number of seconds above 0", timeout=str(call.timeout))


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
