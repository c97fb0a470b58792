"""What the protocols of a site may ask about a caller: who it is, what it may see and do, and what it has left.

Lets nothing be done: requests go to the site, and pass the gate and the guard there.
"""

from collections.abc import Callable
from typing import TypeVar

from portico.access.identity import Identity, RequestCredentials
from portico.access.limits import Admission, Allowance
from portico.catalog import Operation
from portico.errors import SiteError, Unauthenticated
from portico.requests import Caller
from portico.safety.gate import Gate, Request
from portico.safety.guard import Guard
from portico.telemetry import Recorder, RequestRefused

T = TypeVar("T")


class Access:
    def __init__(self, identity: Identity, gate: Gate, guard: Guard, record: Recorder) -> None:
        self._identity = identity
        self._gate = gate
        self._guard = guard
        self._record = record

    async def authenticate(self, credentials: RequestCredentials) -> Caller:
        """Return the caller behind credentials. Wrong ones cost what a request costs, so they cannot be guessed."""
        try:
            return await self._identity.caller(credentials)
        except Unauthenticated as error:
            await self.refuse("credentials", error, credentials.address)
            raise

    def anonymous_caller(self, address: str = "") -> Caller:
        return self._identity.anonymous_caller(address)

    async def refuse(self, what: str, error: SiteError, address: str) -> None:
        """Record that a request was refused before its caller was known, and charge the address it came from."""
        self._record(RequestRefused(what, "anonymous", type(error).__name__))
        await self._gate.spend(self._identity.anonymous_caller(address))

    async def admit(self, caller: Caller) -> Admission:
        """Take one unit out of a caller's allowance, and return the context of what it pays for: `with await admit()`.

        The edge does so for every request. A protocol does so for each message of a long-lived connection and for each
        entry of a batch.
        """
        return await self._gate.begin(caller)

    def quota(self, caller: Caller) -> Allowance:
        """Return what is left of the caller's allowance, without taking anything out of it."""
        return self._gate.left(caller)

    def readable(self, caller: Caller) -> list[str]:
        """Return the names of the public collections that the caller may read."""
        return self._gate.readable(caller)

    def may(self, operation: Operation, caller: Caller) -> bool:
        """Return whether the caller may run an operation, as far as that is known without its parameters."""
        return self._gate.may(operation, caller)

    def decision(self, operation: Operation, caller: Caller) -> str:
        """Return what the policies decide of a call before its parameters are known: allow, confirm or deny."""
        return self._guard.decision(operation, caller)

    async def check(self, request: Request, caller: Caller) -> Operation | None:
        """Raise unless the caller may make this request; return the operation that a call names. Nothing is run."""
        return (await self._gate.check(request, caller)).operation

    async def look_up(self, find: Callable[[], T]) -> T:
        """Return what `find` reads from the catalog.

        If it finds nothing and another process has changed the catalog meanwhile, it is called again.
        """
        return await self._gate.look_up(find)

    async def end_session(self, session: str) -> None:
        """End the executions that a caller began in a session of its protocol, and revoke their confirmations."""
        await self._guard.end_session(session)
