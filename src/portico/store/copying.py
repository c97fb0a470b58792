"""A site from one store to another: items with their versions, vectors, keys, tasks, cases; then both are compared."""

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from portico.errors import ConfigError, Conflict, Unavailable
from portico.items import content_hash, parts_of
from portico.query import EVERYTHING
from portico.store import Store
from portico.store.records import Remove, SourcedItem

MARK = "copy"  # the blob in which a store says what is being copied into it
VECTORS = 500


@dataclass(slots=True)
class Copied:
    """What a copy has done so far. `unchanged` items were there already, from an earlier run that did not end."""

    collections: dict[str, int] = field(default_factory=dict[str, int])
    items: int = 0
    unchanged: int = 0
    removed: int = 0
    vectors: int = 0
    entries: int = 0
    verified: bool = False


Told = Callable[[str, Copied], None]


async def copy_store(source: Store, target: Store, told: Told) -> Copied:
    """Copy everything, verify it, and say what was done. A run that did not end well can be repeated."""
    started = datetime.now(UTC)  # decides for both stores which idempotency keys and cases have expired
    await _reserve(source, target, started)
    copied = Copied()
    head = await source.changes.head()
    await target.backup.advance_feed(head)
    for name, collection in (await source.collections.refresh()).items():
        await target.collections.declare(collection)
        await _copy_items(source, target, name, copied, told)
        await _copy_vectors(source, target, name, copied, told)
        await target.collections.optimize(name)
    await target.backup.delete_entries()
    async for entries in source.backup.read_entries(started):
        await target.backup.restore_entries(entries)
        copied.entries += len(entries)
        told("keys and tasks", copied)
    await _verify(source, target, copied, told)
    if await _entry_sum(source, started) != await _entry_sum(target, started):
        raise _differs("The ledger", "a key, a task, a case or a line of the audit trail")
    if await source.changes.head() != head:
        raise Conflict(
            "The site was changed while it was copied",
            hint="Stop what writes to it and run the copy again: it takes only what differs.",
        )
    await target.blobs.set(MARK, b"done")
    copied.verified = True
    return copied


async def _reserve(source: Store, target: Store, at: datetime) -> None:
    """Make sure that the target is empty, or holds an unfinished copy of the same site."""
    if source.secret == target.secret:
        raise ConfigError("Both URLs name the same store", hint="Name another one to copy to.")
    mark = hashlib.sha256(source.secret).digest()
    if await target.blobs.get(MARK) != mark:
        held = f"a site with {len(target.collections.schema)} collections" if await target.collections.refresh() else ""
        if not held and await _entry_sum(target, at):
            held = "keys, tasks, cases or an audit trail"
        if held:
            raise Conflict(f"{target.url} already holds {held}", hint="Copy into an empty store.")
    await target.blobs.set(MARK, mark)


async def _copy_items(source: Store, target: Store, name: str, copied: Copied, told: Told) -> None:
    count = 0
    async for records in source.backup.read_items(name):
        new = await target.backup.restore_items(name, records)
        count += len(records)
        copied.items += new
        copied.unchanged += len(records) - new
        told(name, copied)
    copied.collections[name] = count
    if await target.items.count(name, EVERYTHING) != count:
        await _remove_vanished(source, target, name, copied)


async def _remove_vanished(source: Store, target: Store, name: str, copied: Copied) -> None:
    """Walk through both stores, which give items in the same order, and remove what only the target has."""
    ours = _each(source, name)
    next_one = await anext(ours, None)
    async for records in target.backup.read_items(name):
        gone: list[Remove] = []
        for record in records:
            while next_one and next_one.item.id < record.item.id:
                next_one = await anext(ours, None)
            if next_one is None or next_one.item.id != record.item.id:
                gone.append(Remove(record.item.id))
        if gone:
            await target.items.write(name, gone)
            copied.removed += len(gone)


async def _copy_vectors(source: Store, target: Store, name: str, copied: Copied, told: Told) -> None:
    for model in await source.vectors.list_models(name):
        after = 0
        while rows := await source.vectors.list_after(name, "", model, after, VECTORS):
            await target.vectors.put(name, model, [(row.id, row.digest, row.vector) for row in rows])
            after = rows[-1].seq
            copied.vectors += len(rows)
            told(name, copied)


async def _verify(source: Store, target: Store, copied: Copied, told: Told) -> None:
    """Read both stores to the end and compare what they hold, not what they say of it."""
    for name, collection in source.collections.schema.items():
        told(f"verifying {name}", copied)
        if target.collections.schema[name] != collection:
            raise _differs(name, "its fields")
        theirs = _each(target, name)
        async for record in _each(source, name):
            found = await anext(theirs, None)
            if found is None or not _same(record, found):
                raise _differs(name, f"the item {record.item.id!r}")
        if await anext(theirs, None):
            raise _differs(name, "an item too many")
        if await _vector_sum(source, name) != await _vector_sum(target, name):
            raise _differs(name, "its vectors")


async def _entry_sum(store: Store, at: datetime) -> int:
    """The same for the same entries, in whatever order a store gives them; 0 for none."""
    total = 0
    async for entries in store.backup.read_entries(at):
        for entry in entries:
            total ^= _digest(msgspec.json.encode(entry, order="deterministic"))
    return total


async def _each(store: Store, name: str) -> AsyncIterator[SourcedItem]:
    async for records in store.backup.read_items(name):
        for record in records:
            yield record


def _same(record: SourcedItem, found: SourcedItem) -> bool:
    # The version holds a hash of the data: whether it is true of what was stored is what is to be shown.
    return record == found and content_hash(found.item.data) == parts_of(found.item.version)[1]


async def _vector_sum(store: Store, name: str) -> int:
    """The same for the same vectors, in whatever order they were written. Those of items that changed do not count."""
    total = 0
    for model in await store.vectors.list_models(name):
        after = 0
        while rows := await store.vectors.list_after(name, "", model, after, VECTORS):
            after = rows[-1].seq
            items = await store.items.get_many(name, [row.id for row in rows])
            for row in rows:
                if row.id in items and parts_of(items[row.id].version)[1] == row.digest:
                    said = f"{model}\0{row.id}\0{row.digest}\0".encode() + row.vector
                    total ^= _digest(said)
    return total


def _digest(said: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(said, digest_size=16).digest())


def _differs(name: str, what: str) -> Unavailable:
    return Unavailable(
        f"{name} was not copied truly: {what} differs",
        hint="Was either store written to meanwhile? Run the copy again: it takes only what differs.",
    )
