"""The index in this process: a snapshot of every collection, fed by the change feed. Rebuilt from the store at will."""

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from portico.catalog import ID, Collection, Field, FieldType
from portico.errors import FeedExpired, SiteError, Unavailable, UnknownCollection
from portico.items import Change, Item
from portico.models import Embedder
from portico.query import Condition, Filter, Order, conditions
from portico.search.index import Arranged, Held, Progress, Ranked, Search
from portico.search.index.columns import NeedsStore, is_quick
from portico.search.index.segment import (
    Segment,
    SegmentBuilder,
    Vocabulary,
    dump_segment,
    load_segment,
    merge_segments,
)
from portico.search.index.snapshot import Snapshot
from portico.search.index.text import VERSION, embedding_text
from portico.search.index.vectors import Vectors
from portico.store import Store
from portico.store.health import StoreFault, UnreadableRow
from portico.store.records import VectorRow
from portico.store.tables import needs_filling
from portico.telemetry import Broke, Incident, Observe, nowhere

BATCH = 1000
VECTOR_BATCH = 20_000
EMBED_BATCH = 64
BIG = 20_000  # items: merging this many is done beside the feed, not in it
SAVE_FROM = 2_000  # items: below this, building is as quick as loading
MAX_UNINDEXED = 1000  # items that cannot be searched, which are recorded once each
MAX_VECTORS_HELD = 300_000  # of a collection: a larger one's stay in the store
IDLE_SECONDS = 0.5
READY_SECONDS = 30.0
RETRY_SECONDS = 1.0
LEAD_SECONDS = 20.0  # longer than a batch of vectors takes
EMBEDDER = "embedder"  # the role of the process that makes vectors


class CollectionIndex:
    """The parts a snapshot is made of. Changed by one task at a time; snapshots already given out stay as they are."""

    def __init__(self, collection: Collection, fields: Sequence[tuple[str, int]]) -> None:
        self.read_as = collection.fields  # what the columns were made of; later fields came with their first values
        self.vocabulary = Vocabulary()
        self.segments: list[Segment] = []
        self.live: list[NDArray[np.bool_]] = []
        self.vectors: dict[str, Vectors] = {name: Vectors(size) for name, size in fields}
        self.vector_seq: dict[str, int] = {}
        self.places: dict[str, tuple[Segment, int]] = {}
        self.holds_vectors = True
        self.saved_at = 0  # items when last saved
        self.optimised_at = 0  # items when the store last made ready for searching them
        self.touched = 1  # grows as items come and change
        self.settled = 0  # where `touched` stood when every item had its vector
        self.snapshot = Snapshot(collection, self.vocabulary, vectors=dict(self.vectors))

    def reads(self, known: Field) -> bool:
        """Whether columns hold a field as the collection now has it."""
        return known.name == ID or not needs_filling(self.read_as.get(known.name), known)

    def publish(self, collection: Collection, seq: int) -> None:
        self.snapshot = Snapshot(
            collection, self.vocabulary, tuple(self.segments), tuple(self.live), dict(self.vectors), seq
        ).counted()

    def adopt(self, segment: Segment) -> None:
        """Add a segment whose items are new or replace older ones."""
        self.bury(segment.ids)
        self.segments.append(segment)
        self.live.append(np.ones(len(segment), bool))
        vectors = self.vectors.get("")
        for doc, id in enumerate(segment.ids):
            self.places[id] = (segment, doc)
            if vectors is not None:
                segment.slots[doc] = vectors.slot(id)

    def bury(self, ids: Sequence[str]) -> None:
        """Mark items as gone; masks already given out are not touched."""
        gone: dict[int, list[int]] = {}
        for id in ids:
            place = self.places.pop(id, None)
            if place:
                gone.setdefault(place[0].serial, []).append(place[1])
        for number, segment in enumerate(self.segments):
            if segment.serial in gone:
                mask = self.live[number].copy()
                mask[gone[segment.serial]] = False
                self.live[number] = mask

    def apply(self, changes: Sequence[Change], collection: Collection) -> list[tuple[Item, Exception]]:
        """Take in changes; returns the items that cannot be searched, and why."""
        newest = {change.item.id: change for change in changes}
        deleted = [id for id, change in newest.items() if change.kind == "delete"]
        self.bury(deleted)
        for field, vectors in self.vectors.items():
            # Vectors that stand in the data come back with the data, if they still do.
            for id in newest if field else deleted:
                vectors.remove(id)
        kept = [change.item for change in newest.values() if change.kind != "delete"]
        failed: list[tuple[Item, Exception]] = []
        if kept:
            builder = SegmentBuilder(collection, self.vocabulary)
            failed = builder.add(kept)
            self.bury([item.id for item, _ in failed])
            self.adopt(builder.build())
            for known in vector_fields(collection):
                self._adopt_vectors(kept, known)
        self.touched += 1
        self.merge_small()
        return failed

    def _adopt_vectors(self, items: Sequence[Item], known: Field) -> None:
        if not self.holds_vectors:
            return
        for item in items:
            vector = known.vector(item.data)
            if vector is not None:
                row = np.asarray([vector], np.float32)
                vectors = self.vectors.setdefault(known.name, Vectors(row.shape[1]))
                if vectors.dimensions == row.shape[1]:
                    vectors.put([item.id], row)

    def merge_small(self) -> None:
        """Keep segments few: each at least twice the one behind it, up to those too big to merge in passing."""
        while len(self.segments) >= 2:
            before, last = self.segments[-2], self.segments[-1]
            if len(before) > 2 * len(last) or len(before) > BIG:
                return
            self.replace_tail(2)

    def replace_tail(self, count: int) -> None:
        merged = merge_segments(self.segments[-count:], self.live[-count:])
        del self.segments[-count:], self.live[-count:]
        self._place(merged)
        self.segments.append(merged)
        self.live.append(np.ones(len(merged), bool))

    def _place(self, merged: Segment) -> None:
        for doc, id in enumerate(merged.ids):
            self.places[id] = (merged, doc)

    def big_merge(self) -> tuple[list[Segment], list[NDArray[np.bool_]]] | None:
        """What should become one segment, if it is worth the while."""
        total = sum(len(s) for s in self.segments)
        gone = total - len(self.places)
        if (
            len(self.segments) > 12
            or (total > BIG and gone > total / 4)
            or sum(len(s) > BIG for s in self.segments) > 3
        ):
            return list(self.segments), list(self.live)
        return None

    def swap(self, old: Sequence[Segment], merged: Segment) -> None:
        """Put a merged segment in the place of old ones; what changed meanwhile stays changed."""
        serials = {segment.serial for segment in old}
        alive = np.fromiter(
            ((place := self.places.get(id)) is not None and place[0].serial in serials for id in merged.ids),
            bool,
            len(merged),
        )
        kept = [(s, m) for s, m in zip(self.segments, self.live, strict=True) if s.serial not in serials]
        vectors = self.vectors.get("")
        for doc in np.flatnonzero(alive).tolist():
            id = merged.ids[doc]
            self.places[id] = (merged, doc)
            if vectors is not None:
                merged.slots[doc] = vectors.slot(id)
        self.segments = [merged, *(s for s, _ in kept)]
        self.live = [alive, *(m for _, m in kept)]

    def put_vectors(self, field: str, ids: Sequence[str], rows: NDArray[np.float32]) -> None:
        slots = self.vectors[field].put(ids, rows)
        if field:
            return
        for id, slot in zip(ids, slots, strict=True):
            place = self.places.get(id)
            if place:
                place[0].slots[place[1]] = slot

    def let_go(self) -> None:
        """Leave the vectors to the store, for good. Snapshots already given out keep theirs."""
        self.holds_vectors = False
        self.vectors = {}


class MemoryIndex:
    """See `Index`. Text can be searched as soon as a collection is read; vectors follow as they are made.

    Many processes may follow one store. Each reads for itself; one at a time makes vectors for all.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        observe: Observe = nowhere,
        *,
        max_vectors: int = MAX_VECTORS_HELD,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._observe = observe
        self._max_vectors = max_vectors
        self._owner = secrets.token_hex(8)
        self._parts: dict[str, CollectionIndex] = {}
        self._schema: Mapping[str, Collection] = {}  # as of the last look
        self._seq = -1  # nothing has been read
        self._is_stale = True  # the feed does not lead from here to the present
        self._is_closed = False
        self._leads = False
        self._ready = asyncio.Event()
        self._follower_incident = Incident("index", observe)
        self._embedder_incident = Incident("embedder", observe)
        self._unindexed: set[str] = set()  # refs of items that are recorded not to fit
        self._lock = asyncio.Lock()  # held to change parts
        self._flight: asyncio.Task[bool] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    @property
    def failure(self) -> str:
        """Why the feed cannot be followed; empty while it can."""
        return self._follower_incident.reason

    @property
    def seq(self) -> int:
        return max(self._seq, 0)

    async def start(self) -> None:
        """Read every collection and catch up with the feed, once. May be repeated after a failure."""
        while not self.is_ready:
            await self._step()

    def run(self, *, embed: bool = True) -> None:
        """In the background: read every collection, then follow the feed and make vectors until closed."""
        self._tasks.append(asyncio.create_task(self._follow()))
        if embed and self._embedder:
            self._tasks.append(asyncio.create_task(self._embed()))

    async def close(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()
        if self._flight:
            self._flight.cancel()
            await asyncio.wait([self._flight])
        if self._leads:
            await self._step_down()

    async def sync(self, seq: int) -> None:
        self._see_schema()
        if self._seq >= seq:
            return
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._reach(seq)
        except TimeoutError:
            raise Unavailable(
                "Search is still reading the store", hint="Try again in a moment; /readyz says when it is done."
            ) from None
        self._see_schema()

    def _see_schema(self) -> None:
        """Take up collections and fields that came into being since the last look."""
        schema = self._store.collections.schema
        if schema is self._schema or self._seq < 0:
            return
        # What is in a new collection came after the last change that was read: the feed brings it.
        parts = {name: self._parts.get(name) or self._empty(collection) for name, collection in schema.items()}
        for name, part in parts.items():
            part.snapshot = replace(part.snapshot, collection=schema[name])
        self._parts, self._schema = parts, schema

    def unresolved(self, collection: str, where: Filter) -> list[Condition]:
        return self._snapshot(collection).unresolved(where)

    def rank(self, collection: str, search: Search, limit: int, after: tuple[float, str] | None = None) -> Ranked:
        return self._snapshot(collection).rank(search, limit, after)

    def arranged(self, collection: Collection, where: Filter, order: Sequence[Order], limit: int) -> Arranged | None:
        part = self._parts.get(collection.name)
        if part is None or part.snapshot.collection is not collection:
            return None
        for each in conditions(where):
            known = collection.field(each.field)
            if not is_quick(each, known) or not part.reads(known):
                return None
        if not all(part.reads(collection.field(key.field)) for key in order):
            return None
        try:
            return part.snapshot.arranged(where, order, limit)
        except NeedsStore:
            return None

    def size(self, collection: str) -> int:
        part = self._parts.get(collection)
        return part.snapshot.count if part else 0

    def holds(self, collection: str, field: str) -> bool:
        return field in self._snapshot(collection).vectors

    def revision(self, collection: str) -> int:
        return self._snapshot(collection).seq

    def values(self, collection: str) -> Mapping[str, Held]:
        return self._snapshot(collection).values()

    def progress(self) -> Mapping[str, Progress]:
        return {
            name: Progress(len(part.places), len(part.vectors[""]) if "" in part.vectors else 0)
            for name, part in self._parts.items()
        }

    def _snapshot(self, collection: str) -> Snapshot:
        part = self._parts.get(collection)
        if part is None:
            raise UnknownCollection(f"There is no collection {collection!r}", collection=collection)
        return part.snapshot

    # Building

    def _model(self) -> str:
        return self._embedder.name if self._embedder else ""

    def _empty(self, collection: Collection) -> CollectionIndex:
        return CollectionIndex(collection, [("", self._embedder.dimensions)] if self._embedder else [])

    async def _read_everything(self) -> None:
        """Read all collections aside: the old parts answer until the new ones are whole."""
        seq = await self._store.changes.head()
        schema = await self._store.collections.refresh()
        parts = {name: await self._opened(collection, seq) for name, collection in schema.items()}
        self._parts, self._schema, self._seq = parts, schema, seq
        self._is_stale = False

    async def _opened(self, collection: Collection, seq: int) -> CollectionIndex:
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
            part.adopt(segment)

    def _report_item(self, item: Item, error: Exception) -> None:
        """Record an item that cannot be searched, once."""
        if item.ref not in self._unindexed and len(self._unindexed) < MAX_UNINDEXED:
            self._unindexed.add(item.ref)
            self._observe(Broke(f"index of {item.ref}", repr(error), error))

    async def _load(self, part: CollectionIndex, collection: Collection) -> bool:
        """Start from the segment that an earlier process saved, and catch up from there."""
        raw = await self._saved(collection)
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
        part.adopt(segment)
        part.saved_at = len(segment)
        if changes:
            await asyncio.to_thread(self._apply_changes, part, changes, collection)
        return True

    def _apply_changes(self, part: CollectionIndex, changes: Sequence[Change], collection: Collection) -> None:
        for item, error in part.apply(changes, collection):
            self._report_item(item, error)

    async def _saved(self, collection: Collection) -> bytes | None:
        try:
            return await self._store.blobs.get(_blob(collection))
        except SiteError as error:  # it saves time, and nothing depends on it
            self._observe(Broke("saved index", str(error), error))
            return None

    async def _changes_since(self, seq: int, collection: str) -> list[Change]:
        found: list[Change] = []
        while True:
            batch = await self._store.changes.list_since(seq, BATCH * 10, collection)
            found.extend([await self._repair(change) for change in batch])
            if len(batch) < BATCH * 10:
                return found
            seq = batch[-1].seq

    async def _repair(self, change: Change) -> Change:
        """The change, or in place of one that cannot be read what the store has of its item now."""
        if change.is_readable or change.item.collection not in self._store.collections.schema:
            return change
        try:
            item = await self._store.items.get(change.item.collection, change.item.id)
        except UnreadableRow:
            item = None
        return replace(change, item=item) if item else replace(change, kind="delete")

    async def _save(self, part: CollectionIndex, collection: Collection, seq: int) -> None:
        """Keep the segment for the next start. Of processes that start together, one does it."""
        if len(part.segments) != 1 or not await self._store.roles.acquire(_blob(collection), self._owner, LEAD_SECONDS):
            return
        raw = await asyncio.to_thread(dump_segment, part.segments[0], part.vocabulary)
        header = seq.to_bytes(8, "big") + _fingerprint(collection)
        try:
            await self._store.blobs.set(_blob(collection), header + raw)
        except SiteError as error:
            self._observe(Broke("saved index", str(error), error))
        part.saved_at = len(part.places)

    def _bound_vectors(self, part: CollectionIndex) -> None:
        """Every item may come to have a vector, so a collection with too many items counts as too large already."""
        if max(len(part.places), *map(len, part.vectors.values()), 0) > self._max_vectors:
            part.let_go()

    async def _read_fields(self, part: CollectionIndex, collection: Collection) -> bool:
        """The vectors of fields seen for the first time. From then on the feed brings them."""
        fresh = [known.name for known in vector_fields(collection) if known.name not in part.vector_seq]
        return any([await self._read_vectors(part, collection, name) for name in fresh])

    async def _read_vectors(self, part: CollectionIndex, collection: Collection, field: str = "") -> bool:
        """Take in vectors written since the last look, by whichever process."""
        if not field and not self._embedder:
            return False
        model = "" if field else self._model()
        before = after = part.vector_seq.get(field, 0)
        while part.holds_vectors:
            rows = await self._store.vectors.list_after(collection.name, field, model, after, VECTOR_BATCH)
            if not rows:
                break
            if field not in part.vectors and (dimensions := _dimensions(rows)):
                part.vectors[field] = Vectors(dimensions)
            size = 4 * part.vectors[field].dimensions if field in part.vectors else 0
            fitting = [row for row in rows if len(row.vector) == size > 0]
            if fitting:
                matrix = np.frombuffer(b"".join(row.vector for row in fitting), np.float32)
                part.put_vectors(field, [row.id for row in fitting], matrix.reshape(len(fitting), -1))
            after = rows[-1].seq
            self._bound_vectors(part)
        part.vector_seq[field] = after
        return after > before

    # Following

    async def _reach(self, seq: int) -> None:
        """Follow the feed up to seq, or to its end."""
        # A step that is under way may have read the feed before seq was in it.
        is_current = self._flight is None or self._flight.done()
        while self._seq < seq:
            moved = await self._step()
            if is_current and not moved:
                return
            is_current = True

    async def _step(self) -> bool:
        """Take a step towards the present, or join the one under way. Says whether it led anywhere.

        A caller that is cancelled stops waiting, and nothing else: the step goes on to its end.
        """
        if self._is_closed:
            raise Unavailable("Search has been closed")
        if self._flight is None or self._flight.done():
            self._flight = asyncio.create_task(self._advance())
            # Those who would be told of an error may all have gone.
            self._flight.add_done_callback(lambda flight: flight.cancelled() or flight.exception())
        flight = self._flight
        await asyncio.wait([flight])
        if flight.cancelled():
            raise Unavailable("Search has been closed")
        return flight.result()

    async def _advance(self) -> bool:
        """Read everything if need be, else apply one batch of the feed."""
        async with self._lock:
            if self._is_stale:
                await self._read_everything()
                return True
            try:
                changes = await self._store.changes.list_since(self._seq, BATCH)
            except FeedExpired:
                self._is_stale = True
                self._ready.clear()
                return True
            await self._apply_all(changes)
            if len(changes) < BATCH:
                self._ready.set()
            return bool(changes)

    async def _apply_all(self, changes: Sequence[Change]) -> None:
        """Apply a batch. One that fails half way is applied again."""
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
        self._seq = changes[-1].seq

    async def _apply(self, collection: Collection, changes: list[Change], seq: int) -> None:
        if collection.name not in self._parts:
            self._parts[collection.name] = self._empty(collection)
        part = self._parts[collection.name]
        await self._read_fields(part, collection)
        if len(changes) > 32:
            await asyncio.to_thread(self._apply_changes, part, changes, collection)
        else:
            self._apply_changes(part, changes, collection)
        self._bound_vectors(part)
        part.publish(self._store.collections.schema[collection.name], seq)

    async def _follow(self) -> None:
        while True:
            try:
                await self.start()
                await self._reach(await self._store.changes.wait(self._seq, 5.0))
                await self._tidy()
            except StoreFault:  # the store records it
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it was, search must not stay behind for ever
                _report(self._follower_incident, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._follower_incident.resolve()

    async def _tidy(self) -> None:
        """Take up new vectors and collections, and merge what has become too much."""
        await self._store.collections.refresh()
        self._see_schema()
        for name, part in list(self._parts.items()):
            await self._take_in(name)
            await self._merge(part)

    async def _take_in(self, name: str) -> None:
        """Publish vectors written since the last look. They are not in the feed."""
        async with self._lock:
            part = self._parts.get(name)
            if part is None:
                return
            collection = part.snapshot.collection
            made = await self._read_vectors(part, collection)
            if await self._read_fields(part, collection) or made:
                part.publish(part.snapshot.collection, part.snapshot.seq)

    async def _merge(self, part: CollectionIndex) -> None:
        """Make one segment of many, while the feed goes on."""
        async with self._lock:
            plan = part.big_merge()
        if plan is None:
            return
        merged = await asyncio.to_thread(merge_segments, *plan)
        async with self._lock:
            part.swap(plan[0], merged)
            part.publish(part.snapshot.collection, part.snapshot.seq)

    # Vectors

    async def _embed(self) -> None:
        """Give every item a vector, a few at a time, for as long as the process runs."""
        await self._ready.wait()
        while True:
            try:
                is_busy = await self._embed_round()
                self._embedder_incident.resolve()
                if not is_busy:
                    await asyncio.sleep(IDLE_SECONDS)
            except Exception as error:  # noqa: BLE001 - a text that a model cannot take, for instance
                if not isinstance(error, StoreFault):  # which the store records
                    _report(self._embedder_incident, error)
                # Another process may fare better.
                await self._step_down()
                await asyncio.sleep(RETRY_SECONDS)

    async def _embed_round(self) -> bool:
        """Make some vectors for each collection that lacks any, or take in those that another process makes."""
        is_busy = False
        for name, part in list(self._parts.items()):
            if part.settled == part.touched or part.snapshot.collection.private:
                continue
            touched = part.touched
            self._leads = await self._store.roles.acquire(EMBEDDER, self._owner, LEAD_SECONDS)
            if self._leads:
                missing = await self.embed_batch(name)
                is_busy = is_busy or missing > 0
                if not missing and not part.holds_vectors and len(part.places) > 1.2 * part.optimised_at:
                    part.optimised_at = len(part.places)
                    await self._store.collections.optimize(name)  # they are searched there
            else:
                missing = len(await self._store.vectors.list_missing(name, self._model(), 1))
                await self._take_in(name)
            if not missing:
                part.settled = touched
        return is_busy

    async def _step_down(self) -> None:
        self._leads = False
        with contextlib.suppress(SiteError):
            await self._store.roles.acquire(EMBEDDER, self._owner, 0)

    async def embed_batch(self, name: str) -> int:
        """Embed some items of a collection that have no current vector; says how many."""
        embedder = self._embedder
        if embedder is None:
            return 0
        waiting = await self._store.vectors.list_missing(name, embedder.name, EMBED_BATCH)
        if waiting:
            collection = self._store.collections.schema[name]
            texts = [embedding_text(item, collection) for item, _ in waiting]
            matrix = await asyncio.to_thread(embedder.embed, texts)
            rows = [(item.id, digest, matrix[i].tobytes()) for i, (item, digest) in enumerate(waiting)]
            await self._store.vectors.put(name, embedder.name, rows)
        await self._take_in(name)
        return len(waiting)


def vector_fields(collection: Collection) -> list[Field]:
    return [known for known in collection.fields.values() if known.type == FieldType.VECTOR]


def _report(incident: Incident, error: Exception) -> None:
    if isinstance(error, SiteError):
        incident.report(error.message, error)
    else:
        incident.report(f"Unexpected {type(error).__name__}", error, repr(error))


def _dimensions(rows: Sequence[VectorRow]) -> int:
    """How long the vectors of a field are: most of them, where a few are damaged."""
    lengths = Counter(len(row.vector) for row in rows if len(row.vector) % 4 == 0)
    return lengths.most_common(1)[0][0] // 4 if lengths else 0


def _blob(collection: Collection) -> str:
    return f"index/{collection.name}"


def _fingerprint(collection: Collection) -> bytes:
    """Changes with everything that decides how items are read into a segment."""
    types = {name: [str(f.type), f.path] for name, f in collection.fields.items()}
    described = [VERSION, collection.language, dict(collection.weights), types]
    return hashlib.blake2b(msgspec.json.encode(described, order="sorted"), digest_size=16).digest()
