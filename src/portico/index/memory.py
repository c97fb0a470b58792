"""The index in this process: a snapshot of every collection, fed by the change feed. Rebuilt from the store at will."""

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from portico.catalog import Collection, Field, FieldType
from portico.errors import FeedExpired, SiteError, Unavailable, UnknownCollection
from portico.index import Progress, Ranked, Search
from portico.index.segment import (
    Segment,
    SegmentBuilder,
    Vocabulary,
    build_segment,
    dump_segment,
    load_segment,
    merge_segments,
)
from portico.index.snapshot import Snapshot
from portico.index.text import VERSION, embedding_text
from portico.index.vectors import Vectors
from portico.items import Change, Item
from portico.models import Embedder
from portico.observe import Broke, Observe, nowhere
from portico.query import Condition, Filter
from portico.store import Store

BATCH = 1000
VECTOR_BATCH = 20_000
EMBED_BATCH = 64
BIG = 20_000  # items: merging this many is done beside the feed, not in it
SAVE_FROM = 2_000  # items: below this, building is as quick as loading
IDLE_SECONDS = 0.5
READY_SECONDS = 30.0
RETRY_SECONDS = 1.0


class CollectionIndex:
    """The parts a snapshot is made of. Changed by one task at a time; snapshots already given out stay as they are."""

    def __init__(self, collection: Collection, fields: Sequence[tuple[str, int]]) -> None:
        self.vocabulary = Vocabulary()
        self.segments: list[Segment] = []
        self.live: list[NDArray[np.bool_]] = []
        self.vectors: dict[str, Vectors] = {name: Vectors(size) for name, size in fields}
        self.vector_seq: dict[str, int] = {}
        self.places: dict[str, tuple[Segment, int]] = {}
        self.snapshot = Snapshot(collection, self.vocabulary)
        self.saved_at = 0  # items when last saved

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

    def apply(self, changes: Sequence[Change], collection: Collection) -> None:
        newest = {change.item.id: change for change in changes}
        deleted = [id for id, change in newest.items() if change.kind == "delete"]
        self.bury(deleted)
        for field, vectors in self.vectors.items():
            # Vectors that stand in the data come back with the data, if they still do.
            for id in newest if field else deleted:
                vectors.remove(id)
        kept = [change.item for change in newest.values() if change.kind != "delete"]
        if kept:
            self.adopt(build_segment(kept, collection, self.vocabulary))
            for known in collection.fields.values():
                if known.type == FieldType.VECTOR:
                    self._adopt_vectors(kept, known)
        self.merge_small()

    def _adopt_vectors(self, items: Sequence[Item], known: Field) -> None:
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


class MemoryIndex:
    """See `Index`. Text can be searched as soon as a collection is read; vectors follow as they are made."""

    def __init__(self, store: Store, embedder: Embedder | None, observe: Observe = nowhere) -> None:
        self._store = store
        self._embedder = embedder
        self._observe = observe
        self._parts: dict[str, CollectionIndex] = {}
        self._seq = 0
        self._ready = asyncio.Event()
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def start(self) -> None:
        """Read every collection, once."""
        async with self._lock:
            self._seq = await self._store.head()
            for name in await self._store.refresh():
                await self._open(name)
        self._ready.set()
        await self.sync(await self._store.head())

    def run(self, *, embed: bool = True) -> None:
        """In the background: read every collection, then follow the feed and make vectors until closed."""
        self._tasks.append(asyncio.create_task(self._follow()))
        if embed and self._embedder:
            self._tasks.append(asyncio.create_task(self._embed()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    async def sync(self, seq: int) -> None:
        if not self.is_ready:
            await self._wait_until_ready()
        if any(name not in self._parts for name in self._store.schema):
            await self._open_new()
        if self._seq >= seq:
            return
        async with self._lock:
            while self._seq < seq and await self._catch_up():
                pass

    async def _open_new(self) -> None:
        """Collections that came into being since the last look."""
        async with self._lock:
            for name in self._store.schema:
                if name not in self._parts:
                    await self._open(name)

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            raise Unavailable(
                "Search is still reading the store", hint="Try again in a moment; /readyz says when it is done."
            ) from None

    def unresolved(self, collection: str, where: Filter) -> list[Condition]:
        return self._snapshot(collection).unresolved(where)

    def rank(self, collection: str, search: Search, limit: int, after: tuple[float, str] | None = None) -> Ranked:
        return self._snapshot(collection).rank(search, limit, after)

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

    async def _open(self, name: str) -> None:
        collection = self._store.schema[name]
        fields = [("", self._embedder.dimensions)] if self._embedder else []
        part = self._parts[name] = CollectionIndex(collection, fields)
        if not await self._load(part, collection):
            await self._build(part, collection)
        for field in self._vector_fields(collection):
            await self._read_vectors(part, collection, field)
        part.publish(collection, self._seq)
        if len(part.places) > max(SAVE_FROM, part.saved_at * 1.2):
            await self._save(part, collection)

    async def _build(self, part: CollectionIndex, collection: Collection) -> None:
        builder = SegmentBuilder(collection, part.vocabulary)
        async for items in self._store.scan(collection.name):
            await asyncio.to_thread(builder.add, items)
        segment = await asyncio.to_thread(builder.build)
        if len(segment):
            part.adopt(segment)

    async def _load(self, part: CollectionIndex, collection: Collection) -> bool:
        """Start from the segment that an earlier process saved, and catch up from there."""
        raw = await self._store.load_blob(_blob(collection))
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
            await asyncio.to_thread(part.apply, changes, collection)
        return True

    async def _changes_since(self, seq: int, collection: str) -> list[Change]:
        found: list[Change] = []
        while True:
            batch = await self._store.changes(seq, BATCH * 10, collection)
            found.extend(batch)
            if len(batch) < BATCH * 10:
                return found
            seq = batch[-1].seq

    async def _save(self, part: CollectionIndex, collection: Collection) -> None:
        if len(part.segments) != 1:
            return
        raw = await asyncio.to_thread(dump_segment, part.segments[0], part.vocabulary)
        header = self._seq.to_bytes(8, "big") + _fingerprint(collection)
        await self._store.save_blob(_blob(collection), header + raw)
        part.saved_at = len(part.places)

    async def _read_vectors(self, part: CollectionIndex, collection: Collection, field: str = "") -> bool:
        """Take in vectors written since the last look, by whichever process."""
        if not field and not self._embedder:
            return False
        changed = False
        model = "" if field else self._model()
        after = part.vector_seq.get(field, 0)
        while rows := await self._store.vectors(collection.name, field, model, after, VECTOR_BATCH):
            vectors = part.vectors.setdefault(field, Vectors(len(rows[-1].vector) // 4))
            fitting = [row for row in rows if len(row.vector) == 4 * vectors.dimensions]
            if fitting:
                matrix = np.frombuffer(b"".join(row.vector for row in fitting), np.float32)
                part.put_vectors(field, [row.id for row in fitting], matrix.reshape(len(fitting), -1))
            after = part.vector_seq[field] = rows[-1].seq
            changed = True
        return changed

    def _vector_fields(self, collection: Collection) -> list[str]:
        """The site's own vectors, and those that stand in the data. The latter then follow from the changes."""
        return ["", *(f.name for f in collection.fields.values() if f.type == FieldType.VECTOR)]

    # Following

    async def _catch_up(self) -> bool:
        """Apply one batch of the feed. Called with the lock held."""
        try:
            changes = await self._store.changes(self._seq, BATCH)
        except FeedExpired:
            await self._rebuild()
            return True
        if not changes:
            return False
        by_collection: dict[str, list[Change]] = {}
        for change in changes:
            by_collection.setdefault(change.item.collection, []).append(change)
        seq = changes[-1].seq
        for name, batch in by_collection.items():
            await self._apply(name, batch, seq)
        self._seq = seq
        return True

    async def _apply(self, name: str, changes: list[Change], seq: int) -> None:
        collection = self._store.schema[name]
        if name not in self._parts:
            fields = [("", self._embedder.dimensions)] if self._embedder else []
            self._parts[name] = CollectionIndex(collection, fields)
        part = self._parts[name]
        if len(changes) > 32:
            await asyncio.to_thread(part.apply, changes, collection)
        else:
            part.apply(changes, collection)
        part.publish(collection, seq)

    async def _rebuild(self) -> None:
        self._seq = await self._store.head()
        for name in await self._store.refresh():
            await self._open(name)

    async def _follow(self) -> None:
        while True:
            try:
                if not self.is_ready:
                    await self.start()
                await self.sync(await self._store.wait(self._seq, 5.0))
                async with self._lock:
                    await self._tidy()
            except SiteError as error:
                self._observe(Broke("index", str(error)))
                await asyncio.sleep(RETRY_SECONDS)

    async def _tidy(self) -> None:
        """Publish new vectors and collections, and merge what has become too much."""
        await self._store.refresh()
        for name, collection in self._store.schema.items():
            if name not in self._parts:
                await self._open(name)
                continue
            part = self._parts[name]
            if await self._read_vectors(part, collection) or part.snapshot.collection is not collection:
                part.publish(collection, self._seq)
            plan = part.big_merge()
            if plan:
                merged = await asyncio.to_thread(merge_segments, *plan)
                part.swap(plan[0], merged)
                part.publish(collection, self._seq)

    # Vectors

    async def _embed(self) -> None:
        """Give every item a vector, a few at a time, for as long as the process runs."""
        await self._ready.wait()
        while True:
            busy = False
            try:
                for name in [each.name for each in self._store.schema.values() if not each.private]:
                    busy = await self.embed_batch(name) > 0 or busy
            except SiteError as error:
                self._observe(Broke("embedder", str(error)))
                await asyncio.sleep(RETRY_SECONDS)
            if not busy:
                await asyncio.sleep(IDLE_SECONDS)

    async def embed_batch(self, name: str) -> int:
        """Embed some items of a collection that have no current vector; says how many."""
        embedder = self._embedder
        if embedder is None:
            return 0
        waiting = await self._store.unembedded(name, embedder.name, EMBED_BATCH)
        if not waiting:
            return 0
        collection = self._store.schema[name]
        texts = [embedding_text(item, collection) for item, _ in waiting]
        matrix = await asyncio.to_thread(embedder.embed, texts)
        rows = [(item.id, digest, matrix[i].tobytes()) for i, (item, digest) in enumerate(waiting)]
        await self._store.put_vectors(name, embedder.name, rows)
        part = self._parts.get(name)
        if part:
            async with self._lock:
                if await self._read_vectors(part, collection):
                    part.publish(part.snapshot.collection, part.snapshot.seq)
        return len(waiting)


def _blob(collection: Collection) -> str:
    return f"index/{collection.name}"


def _fingerprint(collection: Collection) -> bytes:
    """Changes with everything that decides how items are read into a segment."""
    types = {name: [str(f.type), f.path] for name, f in collection.fields.items()}
    described = [VERSION, collection.language, dict(collection.weights), types]
    return hashlib.blake2b(msgspec.json.encode(described, order="sorted"), digest_size=16).digest()
