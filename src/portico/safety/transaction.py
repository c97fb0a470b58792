"""Transactions over safety records: an update is committed whole, or run again on what other processes have written.

Updates of one record queue up within a process, so they conflict only with those of other processes.
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
from portico.telemetry import AuditEntryAdded, Recorder

TRIES = 200
FIRST_PAUSE = 0.001  # seconds; it doubles with every attempt
LONGEST_PAUSE = 0.05
MAX_RECORDS = 10_000

R = TypeVar("R")
T = TypeVar("T", bound="StoredRecord")
Name: TypeAlias = tuple[type["StoredRecord"], str]


class StoredRecord(Protocol):
    """Anything that can be stored as a safety record."""

    @property
    def id(self) -> str: ...


@dataclass(slots=True)
class Transaction:
    """Records as they were read, and the changes to commit."""

    read: Mapping[tuple[str, str], SafetyRecord | None]
    changed: dict[tuple[str, str], SafetyRecord] = field(default_factory=dict[tuple[str, str], SafetyRecord])
    audit_events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[tuple[str, Mapping[str, Any]]])

    def get(self, kind: type[T], id: str) -> T | None:
        name = (_kind_name(kind), id)
        record = self.changed.get(name) or self.read[name]
        return msgspec.json.decode(record.data, type=kind) if record and record.data is not None else None

    def put(self, value: StoredRecord, expires: datetime | None = None) -> None:
        self._change(_kind_name(type(value)), value.id, msgspec.json.encode(value), expires)

    def drop(self, kind: type[Any], id: str) -> None:
        name = (_kind_name(kind), id)
        if self.read.get(name) is None:
            self.changed.pop(name, None)
        else:
            self._change(_kind_name(kind), id, None, None)

    def audit(self, event: str, **body: Any) -> None:
        """Add an event to the audit trail. Empty values are left out."""
        self.audit_events.append((event, {name: value for name, value in body.items() if value not in ("", None)}))

    def _change(self, kind: str, id: str, data: bytes | None, expires: datetime | None) -> None:
        before = self.read.get((kind, id))
        self.changed[kind, id] = SafetyRecord(kind, id, data, before.version if before else 0, expires)


class RecordLocks:
    """A first-come, first-served lock for every record that is being updated in this process."""

    def __init__(self) -> None:
        self._locks = WeakValueDictionary[tuple[str, str], asyncio.Lock]()

    @asynccontextmanager
    async def hold(self, keys: Iterable[tuple[str, str]]) -> AsyncGenerator[None, None]:
        """Hold the locks of some records. All callers take them in the same order, so none deadlock."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                await stack.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            yield


class RecordStore:
    def __init__(self, audit: AuditStore, record: Recorder) -> None:
        self._audit = audit
        self._record = record
        self._queues = RecordLocks()

    async def read(self, kind: type[T], id: str) -> T | None:
        record = await self._audit.get(_kind_name(kind), id)
        return msgspec.json.decode(record.data, type=kind) if record and record.data is not None else None

    async def list_all(self, kind: type[T], limit: int = MAX_RECORDS) -> list[T]:
        records = await self._audit.list_records(_kind_name(kind), limit)
        return [msgspec.json.decode(record.data, type=kind) for record in records if record.data is not None]

    async def update(self, names: Sequence[Name], work: Callable[[Transaction], R | SiteError]) -> R:
        """Run `work` on records, commit its changes, and return its result, or raise it if it is an error."""
        keys = [(_kind_name(kind), id) for kind, id in names]
        async with self._queues.hold(keys):
            for attempt in range(TRIES):
                transaction = Transaction({key: await self._audit.get(*key) for key in keys})
                result = work(transaction)
                if await self._commit(transaction):
                    if isinstance(result, SiteError):
                        raise result
                    return cast("R", result)
                await asyncio.sleep(_pause(attempt))
        raise Unavailable("Too many processes are changing the same record", hint="Try again.")

    async def _commit(self, transaction: Transaction) -> bool:
        if not transaction.changed and not transaction.audit_events:
            return True
        lines = await self._audit.commit(list(transaction.changed.values()), transaction.audit_events)
        if lines is None:
            return False
        for line in lines:
            self._record(AuditEntryAdded(line.seq, line.event, dict(line.body), line.digest))
        return True


def _kind_name(kind: type[Any]) -> str:
    """Return the name under which the store has records of a class: `Agent` for AgentRecord."""
    return kind.__name__.removesuffix("Record")


def _pause(attempt: int) -> float:
    """Return how long to wait after a conflict with another process: random, and longer from attempt to attempt."""
    return random.uniform(0, min(FIRST_PAUSE * 2 ** min(attempt, 10), LONGEST_PAUSE))  # noqa: S311
