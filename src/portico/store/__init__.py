"""The record of a site: items, changes, vectors, tasks, keys, cases. A store answers structured queries, never text.

`Store` is the contract; `tests/contract` holds the suite that every store has to pass.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import msgspec

from portico.calls import Call, Task
from portico.catalog import Collection
from portico.errors import ConfigError
from portico.identity import Key
from portico.items import Change, Item
from portico.query import Filter, Page, Query
from portico.store.health import Health


@dataclass(frozen=True, slots=True)
class Put:
    """Write an item whole. `expect` is the version it must have now; "" means it must not exist yet."""

    id: str
    data: Mapping[str, Any]
    expect: str | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge data into an existing item (see `items.merge`)."""

    id: str
    data: Mapping[str, Any]
    expect: str | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    id: str
    expect: str | None = None


Write: TypeAlias = Put | Merge | Remove


@dataclass(frozen=True, slots=True)
class Load:
    """One run of loading a source. Items it does not see again are forgotten at its end."""

    run: int
    source: str


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch of a load did. Ids given twice in one run are refused, not overwritten."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A stored vector. `seq` grows with every write of a vector; `digest` is the content hash it was made from."""

    seq: int
    id: str
    digest: str
    vector: bytes  # float32, little endian


@dataclass(frozen=True, slots=True)
class Kept:
    """What an idempotency key stands for: a task, a finished result, or (neither) a call without a recorded outcome."""

    digest: str
    task: str = ""
    result: bytes = b""
    is_running: bool = False  # the lease of the call's owner has not run out
    reason: str = ""  # why the outcome is not known, if the owner of the call has recorded it


@dataclass(frozen=True, slots=True)
class Reservation:
    """An idempotency key as one call holds it. Only its owner can settle, renew or give it up."""

    scope: str
    owner: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is recorded in the transaction of an operation's writes, provided that its owner still holds it."""

    key: Reservation | None = None
    result: bytes = b""  # what the key stands for from now on; empty while its call goes on
    reason: str = ""  # why the outcome of the call is not known if no result is recorded later
    task: Task | None = None
    owner: str = ""  # of the task


@dataclass(frozen=True, slots=True)
class Committed:
    """What a transaction did: its changes, and for every write the item as it is now, or as it was when removed."""

    changes: list[Change]
    items: list[Item]


Settle: TypeAlias = Callable[[Sequence[Item]], Settlement]


@dataclass(frozen=True, slots=True)
class Promise:
    """An idempotency key as it is kept, to take it elsewhere."""

    scope: str
    kept: Kept
    expires: datetime


@dataclass(frozen=True, slots=True)
class Case:
    """Something that the safety of the site hangs on. The version counts its changes: 0 is not kept, or no longer."""

    kind: str
    id: str
    data: bytes | None  # None takes it away
    version: int = 0
    expires: datetime | None = None  # from then on it may be forgotten


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the audit trail. Each says what the one before was, so that none can be taken out or changed."""

    seq: int
    at: datetime
    event: str
    body: Mapping[str, Any]
    before: str  # the digest of the line before; empty for the first
    digest: str  # see `link`


Entry: TypeAlias = Key | Task | Promise | Case | Line


@dataclass(frozen=True, slots=True)
class Record:
    """An item with the source it was loaded from, to take it elsewhere; no source if an operation made it."""

    item: Item
    source: str


@dataclass(frozen=True, slots=True)
class Meter:
    """What a token bucket says after someone asked for tokens: how many it gave, and how many are left."""

    granted: int
    tokens: float


def link(before: str, seq: int, at: datetime, event: str, body: Mapping[str, Any]) -> str:
    """The digest of a line: SHA-256 of that of the line before, a line feed, and [seq, microseconds, event, body].

    The latter as JSON without spaces, its keys sorted: whoever has the lines can check them.
    """
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    said = msgspec.json.encode([seq, micros, event, dict(body)], order="sorted")
    return hashlib.sha256(before.encode() + b"\n" + said).hexdigest()


class Store(Protocol):
    """Where a site is kept. All methods may be called from many coroutines at once; reads do not wait for writes."""

    url: str
    health: Health

    @property
    def secret(self) -> bytes:
        """Random, made with the store: signs cursors and tokens, the same for every process on this store."""
        ...

    @property
    def schema(self) -> Mapping[str, Collection]:
        """The collections as last seen by this process."""
        ...

    def stamp(self) -> int | None:
        """A number that grows with every write that anybody makes; None if it cannot be told without waiting."""
        ...

    async def close(self) -> None: ...

    async def declare(self, collection: Collection) -> Collection:
        """Make a collection, or bring what the site file says of it up to date."""
        ...

    async def refresh(self) -> Mapping[str, Collection]:
        """The collections as they are now, other processes' changes included."""
        ...

    # Reading

    async def get(self, collection: str, id: str) -> Item | None:
        """The item; UnreadableRow if its data is damaged."""
        ...

    async def get_many(self, collection: str, ids: Sequence[str]) -> dict[str, Item]:
        """Those of the items that are there. Damaged ones are recorded and left out, as from pages."""
        ...

    async def find(self, query: Query) -> Page:
        """A page of a query without text."""
        ...

    def cursor(self, query: Query, last: Item) -> str:
        """The cursor of a page of `find` that ends with this item; the order is of typed fields and the id alone."""
        ...

    async def count(self, collection: str, where: Filter) -> int: ...

    async def matching(self, collection: str, where: Filter) -> list[str]:
        """The ids of all items that match."""
        ...

    def scan(self, collection: str) -> AsyncIterator[list[Item]]:
        """All items, in batches, in no promised order. Those that cannot be read are left out, and recorded."""
        ...

    # Writing

    async def write(self, collection: str, writes: Sequence[Write]) -> list[Change]:
        """All or nothing. Writes that change nothing give no Change."""
        ...

    async def commit(self, writes: Sequence[tuple[str, Write]], settle: Settle | None = None) -> Committed | None:
        """Make writes to any collections and record their settlement, all or nothing.

        `settle` gets the items as the writes leave them. It is called in the transaction, in any thread, and again if
        the transaction is repeated. None if the key or the task of the settlement is no longer its owner's.
        OutcomeUnknown if the store cannot say whether it has committed.
        """
        ...

    async def begin_load(self, source: str) -> Load: ...

    async def adopt(self, load: Load, collection: str, source: str) -> None:
        """Make the items of a collection that another source has loaded items of this load's source."""
        ...

    async def load(self, load: Load, collection: str, puts: Sequence[Put]) -> Written: ...

    async def finish_load(self, load: Load) -> int:
        """Forget what this source gave before and not in this run, in every collection. Returns how many."""
        ...

    async def optimise(self, collection: str) -> None:
        """After much has changed: index columns, refresh statistics."""
        ...

    # The feed

    async def head(self) -> int:
        """The newest sequence number."""
        ...

    async def changes(self, since: int, limit: int = 1000, collection: str | None = None) -> list[Change]:
        """The changes after a sequence number; FeedExpired if some of them are no longer kept.

        One whose row cannot be read is recorded, and says so: see `Change.is_readable`.
        """
        ...

    async def wait(self, seq: int, timeout: float) -> int:
        """Return the head once it is past seq, or after the timeout."""
        ...

    # Vectors

    async def unembedded(self, collection: str, model: str, limit: int) -> list[tuple[Item, str]]:
        """Items without a current vector of this model, with the content hash to store beside it."""
        ...

    async def put_vectors(self, collection: str, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None: ...

    async def vectors(self, collection: str, field: str, model: str, after: int, limit: int) -> list[VectorRow]: ...

    async def vector_counts(self, collection: str, model: str) -> tuple[int, int]:
        """How many items have a current vector, and how many there are."""
        ...

    # Blobs: what a process may find useful next time, such as a ready-made index

    async def save_blob(self, name: str, data: bytes) -> None: ...

    async def load_blob(self, name: str) -> bytes | None: ...

    # Tasks and idempotency

    async def add_task(self, task: Task, limit: int | None = None, key: Reservation | None = None) -> bool:
        """Keep a new task; False if its caller already has as many under way as the limit says.

        A key stands for the task from then on. KeyInUse if it is no longer its owner's.
        """
        ...

    async def get_task(self, id: str) -> Task | None: ...

    async def tasks(self, caller: str, limit: int = 100, *, unfinished: bool = False) -> list[Task]: ...

    async def recent_tasks(self, limit: int = 100) -> list[Task]:
        """The tasks of all callers, newest first."""
        ...

    async def claim_task(
        self, owner: str, lease: float, id: str | None = None, *, takeover: bool = True
    ) -> Task | None:
        """Take one pending task, or with `takeover` one whose owner's lease ran out, and make it this owner's."""
        ...

    async def renew_lease(self, owner: str, id: str, lease: float) -> Task | None:
        """Keep a task; None if it is no longer this owner's."""
        ...

    async def update_task(self, task: Task, owner: str) -> bool:
        """Store a running task's new state; False if it is no longer this owner's."""
        ...

    async def cancel_task(self, id: str) -> Task | None:
        """Ask for a cancellation: a pending task is cancelled at once, a running one is marked."""
        ...

    async def retry_task(self, id: str, call: Call) -> Task | None:
        """Have a failed task tried again from the beginning, as this call; None if it has not failed."""
        ...

    async def task_news(self, after: int, timeout: float) -> int:
        """How many times this process has heard of tasks added, cancelled, given back or ended, here or elsewhere.

        Returns once that is more than `after`, or after the timeout. A store that hears late returns early instead.
        """
        ...

    async def keep(
        self, scope: str, digest: str, expires: datetime, *, owner: str = "", lease: float = 0.0, reason: str = ""
    ) -> Kept | None:
        """Reserve an idempotency key. None: it was free and is now ours; else what it already stands for.

        The call counts as running until the lease of its owner runs out. If no outcome is recorded by then, `reason`
        says why it is not known. A key that was reserved without a reason is free then, for a call of the same digest.
        """
        ...

    async def renew_key(self, key: Reservation, lease: float) -> bool:
        """Prolong the lease of a key without an outcome; False if it is no longer its owner's."""
        ...

    async def abandon_key(self, key: Reservation, reason: str) -> None:
        """Record why the outcome of a key's call is not known, and end its lease. A settled key stays as it is."""
        ...

    async def kept(self, scope: str) -> Kept | None:
        """What a key stands for, without reserving it."""
        ...

    async def note(self, scope: str, note: bytes, expires: datetime) -> None:
        """Keep a result under a key, in place of whatever is there."""
        ...

    async def release(self, scope: str) -> None: ...

    async def release_key(self, key: Reservation) -> None:
        """Make a key free again, unless it is settled or no longer its owner's."""
        ...

    # What replicas share

    async def spend(self, key: str, per_minute: int, count: int = 1) -> Meter:
        """Take so many tokens, or all there are, out of a bucket that holds `per_minute` and refills in a minute."""
        ...

    async def lead(self, role: str, owner: str, seconds: float) -> bool:
        """Whether this owner has a role among the processes of the store, alone and for this long."""
        ...

    # Keys

    async def add_key(self, key: Key) -> None: ...

    async def find_key(self, digest: str) -> Key | None: ...

    async def key(self, id: str) -> Key | None: ...

    async def keys(self) -> list[Key]: ...

    async def revoke_key(self, id: str, at: datetime) -> bool: ...

    async def supersede_key(self, id: str, until: datetime) -> bool:
        """Let a key be good until then, beside the one that takes its place. Of several who try, one does."""
        ...

    # Safety: cases, and the trail of what was decided

    async def case(self, kind: str, id: str) -> Case | None:
        """A case as it is now; None if there is none, or it has expired."""
        ...

    async def cases(self, kind: str, limit: int = 1000) -> list[Case]:
        """The cases of a kind that have not expired, in the order of their ids."""
        ...

    async def decide(self, cases: Sequence[Case], told: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Line] | None:
        """Put cases in place of those of the versions that they name, and add what happened to the audit trail.

        All or nothing, and on disk when this returns. None if a case was changed meanwhile; else the new lines, which
        are none if nothing was told. What is kept has the version that follows the one named.
        """
        ...

    async def trail(self, after: int = 0, limit: int = 1000) -> list[Line]:
        """The audit trail, oldest first, from after a line on."""
        ...

    # Moving to another store: everything but the feed, which goes on behind the numbers it had

    def records(self, collection: str) -> AsyncIterator[list[Record]]:
        """All items, in batches, in the order of their ids."""
        ...

    async def restore(self, collection: str, records: Sequence[Record]) -> int:
        """Put items as they were elsewhere, with their versions and sources, and without vectors of what they were.

        Returns how many were not there already, in this version.
        """
        ...

    async def vector_models(self, collection: str) -> list[str]:
        """The models whose vectors of a collection are kept."""
        ...

    def entries(self, at: datetime) -> AsyncIterator[list[Entry]]:
        """All keys and tasks, the idempotency keys and cases that have not expired at this moment, and the audit trail.

        In batches; the lines of the trail in their order.
        """
        ...

    async def forget_entries(self) -> None:
        """Forget all keys, tasks, idempotency keys and cases: another store's are to take their place.

        The audit trail stays: it only grows.
        """
        ...

    async def restore_entries(self, entries: Sequence[Entry]) -> None:
        """Keep what another store kept, in place of what is there by the same name.

        Lines go on with the audit trail that is there, or are in it already; else this is a Conflict.
        """
        ...

    async def skip_to(self, seq: int) -> None:
        """Number changes on from here, so that positions in another store's feed are never taken for positions here."""
        ...

    # Health

    async def check(self) -> list[str]:
        """What is wrong with the store, in plain words; empty when all is well."""
        ...


async def open_store(url: str, *, keep_changes: int = 100_000, pool: int = 10, seconds: float = 10.0) -> Store:
    """The store a URL names. A query may take so many seconds; `pool` bounds the connections to a server."""
    scheme, separator, path = url.partition("://")
    if scheme == "sqlite" and path.startswith("/") and len(path) > 1:
        module = import_module("portico.store.sqlite")
        return await module.SqliteStore.open(path[1:], keep_changes=keep_changes, seconds=seconds)
    if scheme in {"postgresql", "postgres"} and separator:
        try:
            module = import_module("portico.store.postgres")
        except ModuleNotFoundError as error:
            raise ConfigError(
                "A store on PostgreSQL needs the package asyncpg", hint="pip install 'portico[postgres]'"
            ) from error
        return await module.PostgresStore.open(url, keep_changes=keep_changes, pool=pool, seconds=seconds)
    raise ConfigError(
        f"{scheme}: is not a store",
        hint="Use sqlite:///path/to/site.db or postgresql://user@host/database.",
    )
