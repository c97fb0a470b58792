"""The contract of a store, one small protocol per concern. `tests/contract` holds the suite every store has to pass.

All methods may be called from many coroutines at once. Reads do not wait for writes.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from portico.access.identity import ApiKey
from portico.catalog import Collection
from portico.items import Change, Item
from portico.query import Filter, Page, Query
from portico.requests import Call, Task
from portico.store.records import (
    AuditEntry,
    AuditEvent,
    CommitResult,
    IdempotencyRecord,
    LedgerEntry,
    Load,
    LoadResult,
    Put,
    Reservation,
    SafetyRecord,
    SettleFunction,
    SourcedItem,
    TokenGrant,
    VectorRow,
    Write,
)


class CollectionStore(Protocol):
    """The collections and their fields."""

    @property
    def schema(self) -> Mapping[str, Collection]:
        """The collections as this process last read them."""
        ...

    async def declare(self, collection: Collection) -> Collection:
        """Create a collection, or bring its description up to date with the site file."""
        ...

    async def settle(self, name: str, describe: Callable[[Collection], Collection]) -> Collection:
        """Change a collection to what `describe` returns for it as it is stored. It may be called repeatedly."""
        ...

    async def refresh(self) -> Mapping[str, Collection]:
        """Return the collections as they are now, including changes by other processes."""
        ...

    async def optimize(self, collection: str) -> None:
        """Index columns and refresh statistics, after many items have changed."""
        ...


class ItemStore(Protocol):
    """Items: structured queries, never text, and atomic writes."""

    async def get(self, collection: str, id: str) -> Item | None:
        """Return the item; raise UnreadableRow if its data is damaged."""
        ...

    async def get_many(self, collection: str, ids: Sequence[str]) -> dict[str, Item]:
        """Return the items that exist. Damaged ones are recorded and left out, as in pages."""
        ...

    async def find(self, query: Query) -> Page:
        """Return a page of a query without text."""
        ...

    def cursor(self, query: Query, last: Item) -> str:
        """Return the cursor of a page of `find` that ends with this item, in an order of typed fields and the id."""
        ...

    async def count(self, collection: str, where: Filter) -> int: ...

    async def list_ids(self, collection: str, where: Filter) -> list[str]:
        """Return the ids of all items that match."""
        ...

    def scan(self, collection: str) -> AsyncIterator[list[Item]]:
        """Yield all items, in batches, in no particular order. Unreadable ones are recorded and left out."""
        ...

    async def write(self, collection: str, writes: Sequence[Write]) -> list[Change]:
        """Make all writes or none. Writes that change nothing return no Change."""
        ...

    async def commit(
        self, writes: Sequence[tuple[str, Write]], settle: SettleFunction | None = None
    ) -> CommitResult | None:
        """Make writes to any collections and record their settlement, all or nothing.

        `settle` receives the items as the writes leave them. It is called in the transaction, in any thread, and again
        if the transaction is repeated. Return None if another owner has taken over the key or the task of the
        settlement. Raise OutcomeUnknown if the store cannot tell whether it has committed.
        """
        ...


class ChangeStore(Protocol):
    """The feed of changes, numbered in the order in which they become visible."""

    def stamp(self) -> int | None:
        """Return a number that grows with every write by any process; None if that takes waiting."""
        ...

    async def head(self) -> int:
        """Return the newest sequence number."""
        ...

    async def list_since(self, since: int, limit: int = 1000, collection: str | None = None) -> list[Change]:
        """Return the changes after a sequence number; raise FeedExpired if some of them were deleted.

        A change whose row cannot be read is recorded and marked: see `Change.is_readable`.
        """
        ...

    async def wait(self, seq: int, timeout: float) -> int:
        """Return the head once it is past seq, or after the timeout."""
        ...


class LoadStore(Protocol):
    """Loading sources: a run puts items in batches, and removes at its end what the source no longer has."""

    async def begin(self, source: str) -> Load: ...

    async def adopt(self, load: Load, collection: str, source: str) -> None:
        """Assign the items that another source loaded into a collection to this load's source."""
        ...

    async def is_shared(self, load: Load, collection: str) -> bool:
        """Return whether a collection has items that do not come from the source of this load."""
        ...

    async def put(self, load: Load, collection: str, puts: Sequence[Put]) -> LoadResult: ...

    async def finish(self, load: Load) -> int:
        """Remove the source's items that this run has not seen, in every collection. Return how many."""
        ...


class VectorStore(Protocol):
    """Vectors of items, by the model that computed them."""

    async def list_missing(self, collection: str, model: str, limit: int) -> list[tuple[Item, str]]:
        """Return items without a current vector of this model, with the content hash to store beside it."""
        ...

    async def put(self, collection: str, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None:
        """Store vectors as (id, content hash, vector). An item that has changed since gets none."""
        ...

    async def list_after(self, collection: str, field: str, model: str, after: int, limit: int) -> list[VectorRow]: ...

    async def count(self, collection: str, model: str) -> tuple[int, int]:
        """Return how many items have a current vector, and how many there are."""
        ...

    async def list_models(self, collection: str) -> list[str]: ...


class BlobStore(Protocol):
    """Bytes that a process may reuse later, such as a ready-made index."""

    async def get(self, name: str) -> bytes | None: ...

    async def set(self, name: str, data: bytes) -> None: ...


class TaskStore(Protocol):
    """Tasks, held by leases of the processes that run them."""

    async def add(self, task: Task, limit: int | None = None, key: Reservation | None = None) -> bool:
        """Add a task; return False if its caller already has `limit` unfinished ones.

        The key stands for the task from then on. Raise KeyInUse if another owner has taken it over.
        """
        ...

    async def get(self, id: str) -> Task | None: ...

    async def list_by_caller(self, caller: str, limit: int = 100, *, unfinished: bool = False) -> list[Task]: ...

    async def list_recent(self, limit: int = 100) -> list[Task]:
        """Return the tasks of all callers, newest first."""
        ...

    async def claim(self, owner: str, lease: float, id: str | None = None, *, takeover: bool = True) -> Task | None:
        """Assign a pending task, or with `takeover` one whose lease has expired, to this owner."""
        ...

    async def renew(self, owner: str, id: str, lease: float) -> Task | None:
        """Extend the lease of a task; return None if it is no longer this owner's."""
        ...

    async def update(self, task: Task, owner: str) -> bool:
        """Store a running task's new state; return False if it is no longer this owner's."""
        ...

    async def cancel(self, id: str) -> Task | None:
        """Request a cancellation: a pending task is cancelled at once, a running one is marked."""
        ...

    async def retry(self, id: str, call: Call) -> Task | None:
        """Restart a failed task from the beginning with this call; return None if it has not failed."""
        ...

    async def wait(self, after: int, timeout: float) -> int:
        """Return how many notifications about tasks of any process have arrived in this one.

        Returns once there are more than `after`, or after the timeout. A store that is notified late returns early.
        """
        ...


class IdempotencyStore(Protocol):
    """Idempotency keys: what a key stands for, and which call holds it."""

    async def reserve(
        self, scope: str, digest: str, expires: datetime, *, owner: str = "", lease: float = 0.0, reason: str = ""
    ) -> IdempotencyRecord | None:
        """Reserve a key. Return None if it was free, else what it already stands for.

        The call counts as running until the lease of its owner expires. If no outcome is recorded by then, `reason`
        tells why it is unknown. A key reserved without a reason is then free for a call of the same digest.
        """
        ...

    async def get(self, scope: str) -> IdempotencyRecord | None:
        """Return what a key stands for, without reserving it."""
        ...

    async def renew(self, key: Reservation, lease: float) -> bool:
        """Extend the lease of a key without an outcome; return False if it is no longer its owner's."""
        ...

    async def abandon(self, key: Reservation, reason: str) -> None:
        """Record why the outcome of a key's call is unknown, and end its lease. A settled key stays as it is."""
        ...

    async def release(self, key: Reservation) -> None:
        """Make a key free again, unless it is settled or no longer its owner's."""
        ...


class NoteStore(Protocol):
    """Values with an expiry that all processes of a site can read. They share their names with idempotency keys."""

    async def get(self, name: str) -> bytes | None:
        """Return the value; None if there is none, it is empty, or it has expired."""
        ...

    async def set(self, name: str, value: bytes, expires: datetime) -> None: ...

    async def delete(self, name: str) -> None: ...


class MeterStore(Protocol):
    """Token buckets shared by all processes."""

    async def take(self, key: str, per_minute: int, count: int = 1) -> TokenGrant:
        """Take so many tokens, or all there are, out of a bucket that holds `per_minute` and refills in a minute."""
        ...


class RoleStore(Protocol):
    """Roles that one process at a time has."""

    async def acquire(self, role: str, owner: str, seconds: float) -> bool:
        """Return whether this owner has the role, alone and for this long. With 0 seconds it gives the role up."""
        ...


class KeyStore(Protocol):
    """API keys and certificates."""

    async def add(self, key: ApiKey) -> None: ...

    async def get(self, id: str) -> ApiKey | None: ...

    async def find(self, digest: str) -> ApiKey | None: ...

    async def list_all(self) -> list[ApiKey]: ...

    async def revoke(self, id: str, at: datetime) -> bool: ...

    async def supersede(self, id: str, until: datetime) -> bool:
        """Keep a key valid until then, beside its successor. Of several attempts, one succeeds."""
        ...


class AuditStore(Protocol):
    """Safety records, and the audit trail of what was decided on them."""

    async def get(self, kind: str, id: str) -> SafetyRecord | None:
        """Return the record; None if there is none, or it has expired."""
        ...

    async def list_records(self, kind: str, limit: int = 1000) -> list[SafetyRecord]:
        """Return the records of a kind that have not expired, ordered by id."""
        ...

    async def commit(self, records: Sequence[SafetyRecord], events: Sequence[AuditEvent]) -> list[AuditEntry] | None:
        """Replace the records of the versions that they name, and append the events to the audit trail.

        All or nothing, and durable on return. Return None if a record has another version by now, else the new
        entries of the trail. A stored record has the version after the one it names.
        """
        ...

    async def list_entries(self, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
        """Return the audit trail, oldest first, after a sequence number."""
        ...


class BackupStore(Protocol):
    """Copying a site to another store: everything but the feed, which continues after the numbers it had."""

    def read_items(self, collection: str) -> AsyncIterator[list[SourcedItem]]:
        """Yield all items, in batches, ordered by id."""
        ...

    async def restore_items(self, collection: str, items: Sequence[SourcedItem]) -> int:
        """Write items with their versions and sources, and delete the vectors of those that it replaces.

        Return how many did not exist already in this version.
        """
        ...

    def read_entries(self, at: datetime) -> AsyncIterator[list[LedgerEntry]]:
        """Yield all keys and tasks, the idempotency keys and records not expired at this time, and the audit trail.

        In batches; the entries of the trail in their order.
        """
        ...

    async def restore_entries(self, entries: Sequence[LedgerEntry]) -> None:
        """Write entries of another store in place of those with the same names.

        Entries of the audit trail must continue the trail of this store or be part of it; else this is a Conflict.
        """
        ...

    async def delete_entries(self) -> None:
        """Delete all keys, tasks, idempotency keys and safety records. The audit trail stays: it only grows."""
        ...

    async def advance_feed(self, seq: int) -> None:
        """Number changes on from here, so that no position in another store's feed is valid in this one."""
        ...
