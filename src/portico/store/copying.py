"""A site from one store to another: items with their versions, vectors, keys, tasks, cases; then both are compared."""

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from portico.errors import ConfigError, Conflict, Unavailable
from portico.items import content_hash, parts_of
from portico.query import MATCH_ALL
from portico.store import Store
from portico.store.records import Remove, SourcedItem

MARK = "copy"  # the blob in which a store says what is being copied into it
VECTORS = 500


@dataclass(slots=True)
class CopyProgress:
    """What a copy has done so far. `unchanged` items were there already, from an earlier run that did not end."""

    collections: dict[str, int] = field(default_factory=dict[str, int])
    items: int = 0
    unchanged: int = 0
    removed: int = 0
    vectors: int = 0
    entries: int = 0
    verified: bool = False


CopyCallback = Callable[[str, CopyProgress], None]


async def copy_store(source: Store, target: Store, on_progress: CopyCallback) -> CopyProgress:
    """Copy everything, verify it, and say what was done. A run that did not end well can be repeated."""
    started = datetime.now(UTC)  # decides for both stores which idempotency keys and cases have expired
    await _reserve(source, target, started)
    progress = CopyProgress()
    head = await source.changes.head()
    await target.backup.advance_feed(head)
    for name, collection in (await source.collections.refresh()).items():
        await target.collections.declare(collection)
        await _copy_items(source, target, name, progress, on_progress)
        await _copy_vectors(source, target, name, progress, on_progress)
        await target.collections.optimize(name)
    await target.backup.delete_entries()
    async for entries in source.backup.read_entries(started):
        await target.backup.restore_entries(entries)
        progress.entries += len(entries)
        on_progress("keys and tasks", progress)
    await _verify(source, target, progress, on_progress)
    if await _entry_sum(source, started) != await _entry_sum(target, started):
        raise _differs("The ledger", "a key, a task, a case or a line of the audit trail")
    if await source.changes.head() != head:
        raise Conflict(
            "The site was changed while it was copied",
            hint="Stop what writes to it and run the copy again: it copies only what differs.",
        )
    await target.blobs.set(MARK, b"done")
    progress.verified = True
    return progress


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


async def _copy_items(
    source: Store, target: Store, name: str, progress: CopyProgress, on_progress: CopyCallback
) -> None:
    count = 0
    async for records in source.backup.read_items(name):
        new = await target.backup.restore_items(name, records)
        count += len(records)
        progress.items += new
        progress.unchanged += len(records) - new
        on_progress(name, progress)
    progress.collections[name] = count
    if await target.items.count(name, MATCH_ALL) != count:
        await _remove_vanished(source, target, name, progress)


async def _remove_vanished(source: Store, target: Store, name: str, progress: CopyProgress) -> None:
    """Walk through both stores, which give items in the same order, and remove what only the target has."""
    ours = _iter_items(source, name)
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
            progress.removed += len(gone)


async def _copy_vectors(
    source: Store, target: Store, name: str, progress: CopyProgress, on_progress: CopyCallback
) -> None:
    for model in await source.vectors.list_models(name):
        after = 0
        while rows := await source.vectors.list_after(name, "", model, after, VECTORS):
            await target.vectors.put(name, model, [(row.id, row.digest, row.vector) for row in rows])
            after = rows[-1].seq
            progress.vectors += len(rows)
            on_progress(name, progress)


async def _verify(source: Store, target: Store, progress: CopyProgress, on_progress: CopyCallback) -> None:
    """Read both stores to the end and compare what they hold, not what they say of it."""
    for name, collection in source.collections.schema.items():
        on_progress(f"verifying {name}", progress)
        if target.collections.schema[name] != collection:
            raise _differs(name, "its fields")
        theirs = _iter_items(target, name)
        async for record in _iter_items(source, name):
            copy = await anext(theirs, None)
            # The version holds a hash of the data, which has to fit the data that was stored.
            if copy is None or record != copy or content_hash(copy.item.data) != parts_of(copy.item.version)[1]:
                raise _differs(name, f"the item {record.item.id!r}")
        if await anext(theirs, None):
            raise _differs(name, "an item too many")
        if await _vector_sum(source, name) != await _vector_sum(target, name):
            raise _differs(name, "its vectors")


async def _entry_sum(store: Store, at: datetime) -> int:
    """Return a sum of the entries that does not depend on their order; 0 for none."""
    total = 0
    async for entries in store.backup.read_entries(at):
        for entry in entries:
            total ^= _digest(msgspec.json.encode(entry, order="deterministic"))
    return total


async def _iter_items(store: Store, name: str) -> AsyncIterator[SourcedItem]:
    async for records in store.backup.read_items(name):
        for record in records:
            yield record


async def _vector_sum(store: Store, name: str) -> int:
    """Return a sum of the vectors that does not depend on their order. Outdated vectors do not count."""
    total = 0
    for model in await store.vectors.list_models(name):
        after = 0
        while rows := await store.vectors.list_after(name, "", model, after, VECTORS):
            after = rows[-1].seq
            items = await store.items.get_many(name, [row.id for row in rows])
            for row in rows:
                if row.id in items and parts_of(items[row.id].version)[1] == row.digest:
                    content = f"{model}\0{row.id}\0{row.digest}\0".encode() + row.vector
                    total ^= _digest(content)
    return total


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=16).digest())


def _differs(name: str, what: str) -> Unavailable:
    return Unavailable(
        f"The copy of {name} is not identical: {what} differs",
        hint="If a store was written to meanwhile, run the copy again: it copies only what differs.",
    )
