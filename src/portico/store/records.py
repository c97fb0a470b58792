"""The values that go into a store and come out of it. Knows no database."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from portico.access.identity import ApiKey
from portico.items import Change, Item
from portico.requests import Task


@dataclass(frozen=True, slots=True)
class Put:
    """Write an item whole. `expect` is the version it must have now; "" means it must not exist yet.

    One that `keeps_types` is refused unless it fits the collection as it is: what a caller writes, not the site.
    """

    id: str
    data: Mapping[str, Any]
    expect: str | None = None
    keeps_types: bool = False


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge data into an existing item (see `items.merge`). For `keeps_types` see `Put`."""

    id: str
    data: Mapping[str, Any]
    expect: str | None = None
    keeps_types: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    id: str
    expect: str | None = None


Write: TypeAlias = Put | Merge | Remove


@dataclass(frozen=True, slots=True)
class Load:
    """One run of loading a source. Items that the run does not see again are removed at its end."""

    run: int
    source: str


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a batch of a load did. An id that occurs twice in one run is refused, not overwritten."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourcedItem:
    """An item with the source it was loaded from; the source is empty if an operation created the item."""

    item: Item
    source: str


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A stored vector. `seq` grows with every write of a vector; `digest` is the content hash it was computed from."""

    seq: int
    id: str
    digest: str
    vector: bytes  # float32, little endian


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """What an idempotency key stands for: a task, a finished result, or (neither) a call without a recorded outcome."""

    digest: str
    task: str = ""
    result: bytes = b""
    is_running: bool = False  # the lease of the call's owner has not run out
    reason: str = ""  # why the outcome is unknown, if the owner of the call has recorded it


@dataclass(frozen=True, slots=True)
class IdempotencyEntry:
    """An idempotency key with its expiry, as it is copied to another store."""

    scope: str
    record: IdempotencyRecord
    expires: datetime


@dataclass(frozen=True, slots=True)
class Reservation:
    """An idempotency key held by one call. Only its owner can settle, renew or release it."""

    scope: str
    owner: str


@dataclass(frozen=True, slots=True)
class CallSettlement:
    """What is recorded in the transaction of an operation's writes, provided that its owner still holds it."""

    key: Reservation | None = None
    result: bytes = b""  # what the key stands for from now on; empty while its call goes on
    reason: str = ""  # why the outcome of the call is unknown if no result is recorded later
    task: Task | None = None
    owner: str = ""  # of the task


SettleFunction: TypeAlias = Callable[[Sequence[Item]], CallSettlement]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The changes of a transaction, and for every write the item as it is now, or as it was when removed."""

    changes: list[Change]
    items: list[Item]


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """What a token bucket granted to a request, and how many tokens are left."""

    granted: int
    tokens: float


@dataclass(frozen=True, slots=True)
class SafetyRecord:
    """A record that the safety of the site depends on. The version counts its changes; 0 means it does not exist."""

    kind: str
    id: str
    data: bytes | None  # None deletes the record
    version: int = 0
    expires: datetime | None = None  # from then on it may be deleted


AuditEvent: TypeAlias = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit trail. Each holds the digest of the one before, so that none can be removed or changed."""

    seq: int
    at: datetime
    event: str
    body: Mapping[str, Any]
    before: str  # the digest of the entry before; empty for the first
    digest: str  # see `audit_digest`


LedgerEntry: TypeAlias = ApiKey | Task | IdempotencyEntry | SafetyRecord | AuditEntry


def audit_digest(before: str, seq: int, at: datetime, event: str, body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the digest before, a line feed, and [seq, microseconds, event, body].

    The latter is JSON without spaces and with sorted keys, so that anyone who has the entries can verify them.
    """
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    content = msgspec.json.encode([seq, micros, event, dict(body)], order="sorted")
    return hashlib.sha256(before.encode() + b"\n" + content).hexdigest()
