"""Cases, read and changed together: a change holds whole, or is worked out again on what others have made of them.

Changes to one case queue up within a process, so they conflict only with those of other processes.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec

from portico.errors import SiteError, Unavailable
from portico.store import AuditStore
from portico.store.records import SafetyRecord
from portico.telemetry import Audited, Observe

TRIES = 200
FIRST_PAUSE = 0.001  # seconds; it doubles with every attempt
LONGEST_PAUSE = 0.05
MANY = 10_000

R = TypeVar("R")
T = TypeVar("T", bound="Filed")
Name: TypeAlias = tuple[type["Filed"], str]


class Filed(Protocol):
    """Anything that is kept as a case."""

    @property
    def id(self) -> str: ...


@dataclass(slots=True)
class Sheets:
    """Cases as they were read, and what is to become of them."""

    read: Mapping[tuple[str, str], SafetyRecord | None]
    changed: dict[tuple[str, str], SafetyRecord] = field(default_factory=dict[tuple[str, str], SafetyRecord])
    told: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[tuple[str, Mapping[str, Any]]])

    def get(self, kind: type[T], id: str) -> T | None:
        name = (kind.__name__, id)
        case = self.changed.get(name) or self.read[name]
        return msgspec.json.decode(case.data, type=kind) if case and case.data is not None else None

    def put(self, value: Filed, expires: datetime | None = None) -> None:
        self._change(type(value).__name__, value.id, msgspec.json.encode(value), expires)

    def drop(self, kind: type[Any], id: str) -> None:
        name = (kind.__name__, id)
        if self.read.get(name) is None:
            self.changed.pop(name, None)
        else:
            self._change(kind.__name__, id, None, None)

    def tell(self, event: str, **body: Any) -> None:
        """Have the audit trail say what happened."""
        self.told.append((event, {name: value for name, value in body.items() if value not in ("", None)}))

    def _change(self, kind: str, id: str, data: bytes | None, expires: datetime | None) -> None:
        before = self.read.get((kind, id))
        self.changed[kind, id] = SafetyRecord(kind, id, data, before.version if before else 0, expires)


class Queues:
    """One first-come, first-served lock for every case that is being changed in this process."""

    def __init__(self) -> None:
        self._locks = WeakValueDictionary[tuple[str, str], asyncio.Lock]()

    @asynccontextmanager
    async def hold(self, keys: Iterable[tuple[str, str]]) -> AsyncGenerator[None, None]:
        """Hold the locks of all cases. They are taken in one order everywhere, so that no two wait for each other."""
        async with AsyncExitStack() as held:
            for key in sorted(set(keys)):
                await held.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            yield


class Docket:
    def __init__(self, audit: AuditStore, observe: Observe) -> None:
        self._audit = audit
        self._observe = observe
        self._queues = Queues()

    async def read(self, kind: type[T], id: str) -> T | None:
        case = await self._audit.get(kind.__name__, id)
        return msgspec.json.decode(case.data, type=kind) if case and case.data is not None else None

    async def all(self, kind: type[T], limit: int = MANY) -> list[T]:
        cases = await self._audit.list_records(kind.__name__, limit)
        return [msgspec.json.decode(case.data, type=kind) for case in cases if case.data is not None]

    async def change(self, names: Sequence[Name], work: Callable[[Sheets], R | SiteError]) -> R:
        """Do some work on cases. What it gives back is given back, or raised, once all it wrote is on disk."""
        keys = [(kind.__name__, id) for kind, id in names]
        async with self._queues.hold(keys):
            for attempt in range(TRIES):
                sheets = Sheets({key: await self._audit.get(*key) for key in keys})
                result = work(sheets)
                if await self._kept(sheets):
                    if isinstance(result, SiteError):
                        raise result
                    return cast("R", result)
                await asyncio.sleep(_pause(attempt))
        raise Unavailable("Too many processes are changing the same record", hint="Try again.")

    async def _kept(self, sheets: Sheets) -> bool:
        if not sheets.changed and not sheets.told:
            return True
        lines = await self._audit.commit(list(sheets.changed.values()), sheets.told)
        if lines is None:
            return False
        for line in lines:
            self._observe(Audited(line.seq, line.event, dict(line.body), line.digest))
        return True


def _pause(attempt: int) -> float:
    """Return how long to wait after a conflict with another process: random, and longer from attempt to attempt."""
    return random.uniform(0, min(FIRST_PAUSE * 2 ** min(attempt, 10), LONGEST_PAUSE))  # noqa: S311
