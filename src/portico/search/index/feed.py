"""Keeps the indexes of all collections up to date: reads the store once, then follows its change feed."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from portico.catalog import Collection
from portico.errors import FeedExpired, SiteError, Unavailable
from portico.items import Change, Item
from portico.models import Embedder
from portico.search.index.collection import CollectionIndex, vector_fields
from portico.search.index.segment import SegmentBuilder, dump_segment, load_segment, merge_segments
from portico.search.index.text import VERSION, searched_numbers
from portico.search.index.vectors import VectorMatrix
from portico.store import Store
from portico.store.health import StoreFault, UnreadableRow
from portico.telemetry import Incident, Recorder, UnexpectedError

BATCH = 1000
VECTOR_BATCH = 20_000
SAVE_FROM = 2_000  # items: a smaller segment is built as quickly as loaded
MAX_UNINDEXED = 1000  # items recorded because they cannot be searched
RETRY_SECONDS = 1.0
SAVE_SECONDS = 20.0  # for which one process has the role of saving a collection


class FeedFollower:
    """Holds a `CollectionIndex` for every collection. Each process that follows a store has its own."""

    def __init__(self, store: Store, embedder: Embedder | None, record: Recorder, owner: str, max_vectors: int) -> None:
        self.parts: dict[str, CollectionIndex] = {}
        self.seq = -1  # -1: nothing has been read
        self.ready = asyncio.Event()
        self.incident = Incident("index", record)
        self._store = store
        self._embedder = embedder
        self._record = record
        self._owner = owner
        self._max_vectors = max_vectors
        self._schema: Mapping[str, Collection] = {}  # as of the last refresh
        self._is_stale = True  # the feed no longer holds every change since `seq`
        self._is_closed = False
        self._unindexed: set[str] = set()  # refs of items that are recorded as not searchable
        self._lock = asyncio.Lock()  # held to change parts
        self._flight: asyncio.Task[bool] | None = None

    async def start(self) -> None:
        """Read every collection and catch up with the feed, once. May be repeated after a failure."""
        while not self.ready.is_set():
            await self._step()

    def stop(self) -> None:
        """Start no further step."""
        self._is_closed = True

    async def close(self) -> None:
        self.stop()
        if self._flight:
            self._flight.cancel()
            await asyncio.wait([self._flight])

    def refresh_schema(self) -> None:
        """Add the collections and fields that were created since the last call."""
        schema = self._store.collections.schema
        if schema is self._schema or self.seq < 0:
            return
        # The items of a new collection came after the last change that was read: the feed has them.
        parts = {name: self.parts.get(name) or self._empty(collection) for name, collection in schema.items()}
        for name, part in parts.items():
            part.snapshot = replace(part.snapshot, collection=schema[name])
        self.parts, self._schema = parts, schema

    def _model(self) -> str:
        return self._embedder.name if self._embedder else ""

    def _empty(self, collection: Collection) -> CollectionIndex:
        return CollectionIndex(collection, [("", self._embedder.dimensions)] if self._embedder else [])

    async def _read_everything(self) -> None:
        """Read all collections. The old parts serve queries until the new ones are complete."""
        seq = await self._store.changes.head()
        schema = await self._store.collections.refresh()
        parts = {name: await self._open(collection, seq) for name, collection in schema.items()}
        self.parts, self._schema, self.seq = parts, schema, seq
        self._is_stale = False

    async def _open(self, collection: Collection, seq: int) -> CollectionIndex:
        part = self._empty(collection)
        if not await self._load(part, collection):
            await self._build(part, collection)
        self._bound_vectors(part)
        await self._read_vectors(part, collection)
        await self._read_fields(part, collection)
        part.publish(collection, seq)
        if len(part.places) > max(SAVE_FROM, part.saved_at * 1.2):
            await self._save(part, collection, seq)
        return part

    async def _build(self, part: CollectionIndex, collection: Collection) -> None:
        builder = SegmentBuilder(collection, part.vocabulary)
        async for items in self._store.items.scan(collection.name):
            for item, error in await asyncio.to_thread(builder.add, items):
                self._report_item(item, error)
        segment = await asyncio.to_thread(builder.build)
        if len(segment):
            part.add_segment(segment)

    def _report_item(self, item: Item, error: Exception) -> None:
        """Record an item that cannot be searched, once."""
        if item.ref not in self._unindexed and len(self._unindexed) < MAX_UNINDEXED:
            self._unindexed.add(item.ref)
            self._record(UnexpectedError(f"index of {item.ref}", repr(error), error))

    async def _load(self, part: CollectionIndex, collection: Collection) -> bool:
        """Load the segment that an earlier process saved, and apply the changes since. Return whether that worked."""
        raw = await self._read_saved(collection)
        if raw is None:
            return False
        head = int.from_bytes(raw[:8], "big")
        if raw[8:24] != _fingerprint(collection):
            return False
        try:
            changes = await self._changes_since(head, collection.name)
        except FeedExpired:
            return False
        segment, part.vocabulary = await asyncio.to_thread(load_segment, raw[24:])
        part.add_segment(segment)
        part.saved_at = len(segment)
        if changes:
            await asyncio.to_thread(self._apply_changes, part, changes, collection)
        return True

    def _apply_changes(self, part: CollectionIndex, changes: Sequence[Change], collection: Collection) -> None:
        for item, error in part.apply(changes, collection):
            self._report_item(item, error)

    async def _read_saved(self, collection: Collection) -> bytes | None:
        try:
            return await self._store.blobs.get(_blob(collection))
        except SiteError as error:  # a saved index only saves time
            self._record(UnexpectedError("saved index", str(error), error))
            return None

    async def _changes_since(self, seq: int, collection: str) -> list[Change]:
        results: list[Change] = []
        while True:
            batch = await self._store.changes.list_since(seq, BATCH * 10, collection)
            results.extend([await self._repair(change) for change in batch])
            if len(batch) < BATCH * 10:
                return results
            seq = batch[-1].seq

    async def _repair(self, change: Change) -> Change:
        """Return the change. Replace the item of an unreadable one by the item that the store has now."""
        if change.is_readable or change.item.collection not in self._store.collections.schema:
            return change
        try:
            item = await self._store.items.get(change.item.collection, change.item.id)
        except UnreadableRow:
            item = None
        return replace(change, item=item) if item else replace(change, kind="delete")

    async def _save(self, part: CollectionIndex, collection: Collection, seq: int) -> None:
        """Save the segment for the next start. Of several processes, one does."""
        if len(part.segments) != 1 or not await self._store.roles.acquire(_blob(collection), self._owner, SAVE_SECONDS):
            return
        raw = await asyncio.to_thread(dump_segment, part.segments[0], part.vocabulary)
        header = seq.to_bytes(8, "big") + _fingerprint(collection)
        try:
            await self._store.blobs.set(_blob(collection), header + raw)
        except SiteError as error:
            self._record(UnexpectedError("saved index", str(error), error))
        part.saved_at = len(part.places)

    def _bound_vectors(self, part: CollectionIndex) -> None:
        """Drop the vectors of a collection that is too large. Each item counts, as it will get a vector."""
        if max(len(part.places), *map(len, part.vectors.values()), 0) > self._max_vectors:
            part.drop_vectors()

    async def _read_fields(self, part: CollectionIndex, collection: Collection) -> bool:
        """Read the vectors of new fields; later ones come with the feed. Return whether there were any."""
        fresh = [spec.name for spec in vector_fields(collection) if spec.name not in part.vector_seq]
        return any([await self._read_vectors(part, collection, name) for name in fresh])

    async def _read_vectors(self, part: CollectionIndex, collection: Collection, field: str = "") -> bool:
        """Read the vectors that any process wrote since the last call. Return whether there were any."""
        if not field and not self._embedder:
            return False
        model = "" if field else self._model()
        before = after = part.vector_seq.get(field, 0)
        while part.holds_vectors:
            rows = await self._store.vectors.list_after(collection.name, field, model, after, VECTOR_BATCH)
            if not rows:
                break
            # The most common length counts, as a few vectors may be damaged.
            lengths = Counter(len(row.vector) for row in rows if row.vector and len(row.vector) % 4 == 0)
            if field not in part.vectors and lengths:
                part.vectors[field] = VectorMatrix(lengths.most_common(1)[0][0] // 4)
            size = 4 * part.vectors[field].dimensions if field in part.vectors else 0
            usable = [row for row in rows if len(row.vector) == size > 0]
            if usable:
                matrix = np.frombuffer(b"".join(row.vector for row in usable), np.float32)
                part.put_vectors(field, [row.id for row in usable], matrix.reshape(len(usable), -1))
            after = rows[-1].seq
            self._bound_vectors(part)
        part.vector_seq[field] = after
        return after > before

    async def reach(self, seq: int) -> None:
        """Follow the feed up to seq, or to its end."""
        # A running step may have read the feed before it contained seq.
        is_current = self._flight is None or self._flight.done()
        while self.seq < seq:
            moved = await self._step()
            if is_current and not moved:
                return
            is_current = True

    async def _step(self) -> bool:
        """Take a step, or wait for the one that is running. Return whether there was anything to do.

        Cancelling a caller does not cancel the step.
        """
        if self._is_closed:
            raise Unavailable("Search has been closed")
        if self._flight is None or self._flight.done():
            self._flight = asyncio.create_task(self._advance())
            # Every caller may be cancelled: an error that nobody retrieves must not be logged.
            self._flight.add_done_callback(lambda flight: flight.cancelled() or flight.exception())
        flight = self._flight
        await asyncio.wait([flight])
        if flight.cancelled():
            raise Unavailable("Search has been closed")
        return flight.result()

    async def _advance(self) -> bool:
        """Read everything if the index is stale, else apply one batch of the feed."""
        async with self._lock:
            if self._is_stale:
                await self._read_everything()
                return True
            try:
                changes = await self._store.changes.list_since(self.seq, BATCH)
            except FeedExpired:
                self._is_stale = True
                self.ready.clear()
                return True
            await self._apply_all(changes)
            if len(changes) < BATCH:
                self.ready.set()
            return bool(changes)

    async def _apply_all(self, changes: Sequence[Change]) -> None:
        """Apply a batch. If that fails, the whole batch is applied again."""
        if not changes:
            return
        # Other processes may have given the collections new fields with these changes.
        schema = await self._store.collections.refresh()
        by_collection: dict[str, list[Change]] = {}
        for change in changes:
            by_collection.setdefault(change.item.collection, []).append(await self._repair(change))
        for name, batch in by_collection.items():
            if name in schema:  # else its row is damaged, and recorded by the store
                await self._apply(schema[name], batch, changes[-1].seq)
        self.seq = changes[-1].seq

    async def _apply(self, collection: Collection, changes: list[Change], seq: int) -> None:
        if collection.name not in self.parts:
            self.parts[collection.name] = self._empty(collection)
        part = self.parts[collection.name]
        await self._read_fields(part, collection)
        if len(changes) > 32:
            await asyncio.to_thread(self._apply_changes, part, changes, collection)
        else:
            self._apply_changes(part, changes, collection)
        self._bound_vectors(part)
        part.publish(self._store.collections.schema[collection.name], seq)

    async def follow(self) -> None:
        while True:
            try:
                await self.start()
                await self.reach(await self._store.changes.wait(self.seq, 5.0))
                await self._tidy()
            except StoreFault:  # the store records it
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it was, search must not stay behind for ever
                report_error(self.incident, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.incident.resolve()

    async def _tidy(self) -> None:
        """Add new vectors and collections, and merge segments where there are too many."""
        await self._store.collections.refresh()
        self.refresh_schema()
        for name, part in list(self.parts.items()):
            await self.load_new_vectors(name)
            await self._merge(part)

    async def load_new_vectors(self, name: str) -> None:
        """Publish vectors that were written since the last call. They are not in the feed."""
        async with self._lock:
            part = self.parts.get(name)
            if part is None:
                return
            collection = part.snapshot.collection
            has_new = await self._read_vectors(part, collection)
            if await self._read_fields(part, collection) or has_new:
                part.publish(part.snapshot.collection, part.snapshot.seq)

    async def _merge(self, part: CollectionIndex) -> None:
        """Merge segments into one. Changes are applied meanwhile."""
        async with self._lock:
            plan = part.plan_merge()
        if plan is None:
            return
        merged = await asyncio.to_thread(merge_segments, *plan)
        async with self._lock:
            part.replace_segments(plan[0], merged)
            part.publish(part.snapshot.collection, part.snapshot.seq)


def report_error(incident: Incident, error: Exception) -> None:
    if isinstance(error, SiteError):
        incident.report(error.message, error)
    else:
        incident.report(f"Unexpected {type(error).__name__}", error, repr(error))


def _blob(collection: Collection) -> str:
    return f"index/{collection.name}"


def _fingerprint(collection: Collection) -> bytes:
    """Return a digest of everything that decides how items are read into a segment."""
    types = {name: [str(f.type), f.path] for name, f in collection.fields.items()}
    inputs = [
        VERSION,
        collection.language,
        dict(collection.weights),
        types,
        collection.title_fields,
        sorted(searched_numbers(collection)),
    ]
    return hashlib.blake2b(msgspec.json.encode(inputs, order="sorted"), digest_size=16).digest()
