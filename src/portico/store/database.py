"""What the parts of a store that know no collections need of a database, whichever it is."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

SqlRow: TypeAlias = Sequence[Any]


@dataclass(frozen=True, slots=True)
class LedgerDialect:
    """SQL fragments that differ between databases. Parameters are $1, $2, … in all shared statements."""

    now: str  # the clock that all processes share, in the form of a stored time
    now_micros: str  # the same as microseconds
    never: str  # a time before all others
    after: str  # a time as many seconds from now as the parameter {0} says
    no_bytes: str
    lock_row: str  # ends a SELECT whose row is about to be changed
    skip_locked: str  # the same, leaving out rows that another transaction has locked
    batch: str  # ends a SELECT of rows to delete
    encode_time: Callable[[datetime], Any]
    decode_time: Callable[[Any], datetime]


class LedgerTransaction(Protocol):
    """Statements of one transaction."""

    async def execute(self, sql: str, *params: Any) -> None: ...

    async def fetch(self, sql: str, *params: Any) -> Sequence[SqlRow]: ...

    async def fetchrow(self, sql: str, *params: Any) -> SqlRow | None: ...

    async def lock(self, name: str) -> None:
        """Let no other transaction that locks the same name run beside this one."""
        ...

    async def notify_tasks(self) -> None:
        """Tell all processes, once the transaction is committed, that tasks have changed."""
        ...


class LedgerDatabase(Protocol):
    """Runs single statements, and transactions."""

    dialect: LedgerDialect
    has_one_writer: bool  # so that a transaction is worth a look beforehand

    async def fetch(self, sql: str, *params: Any) -> Sequence[SqlRow]: ...

    async def fetchrow(self, sql: str, *params: Any) -> SqlRow | None: ...

    async def fetch_patiently(self, sql: str, *params: Any) -> Sequence[SqlRow]:
        """Like `fetch`, for bulk reads that no caller waits for."""
        ...

    async def change(self, sql: str, *params: Any, before: str = "", notify: bool = False) -> SqlRow | None:
        """Run one statement that writes, in a transaction of its own; return the first row of its RETURNING clause.

        `before` is a DELETE to run first. With `notify` all processes are told that tasks have changed, if one has.
        """
        ...

    async def transact(
        self, work: Callable[[LedgerTransaction], Coroutine[Any, Any, T]], *, patient: bool = False
    ) -> T:
        """Run work in one transaction. It must await nothing but statements of the transaction."""
        ...

    async def wait_for_tasks(self, after: int, timeout: float) -> int:
        """See `TaskStore.wait`."""
        ...


class Notifications:
    """Counts notifications, and wakes the tasks that wait for more."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def notify(self) -> None:
        self.count += 1
        self._event.set()

    async def wait(self, after: int, timeout: float) -> None:
        """Return once the count is above `after`, or after the timeout."""
        self._event.clear()
        if self.count > after or timeout <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()


class LeaseLost(Exception):
    """Another owner has taken over a key or a task, so that nothing of the transaction is stored."""
