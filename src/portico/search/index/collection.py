"""The index of one collection: the segments, live masks and vectors that its snapshots are made of."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from portico.catalog import ID, Collection, Field, FieldType
from portico.items import Change, Item
from portico.search.index.segment import Segment, SegmentBuilder, StemVocabulary, merge_segments
from portico.search.index.snapshot import Snapshot
from portico.search.index.vectors import VectorMatrix
from portico.store.tables import needs_filling

BIG_SEGMENT = 20_000  # items: a merge of so many runs in the background


class CollectionIndex:
    """The parts of a snapshot. Changed by one task at a time; existing snapshots do not change."""

    def __init__(self, collection: Collection, fields: Sequence[tuple[str, int]]) -> None:
        self.indexed_fields = collection.fields  # as of the first segment; later fields came with their first values
        self.vocabulary = StemVocabulary()
        self.segments: list[Segment] = []
        self.live: list[NDArray[np.bool_]] = []
        self.vectors: dict[str, VectorMatrix] = {name: VectorMatrix(size) for name, size in fields}
        self.vector_seq: dict[str, int] = {}
        self.places: dict[str, tuple[Segment, int]] = {}
        self.holds_vectors = True
        self.saved_at = 0  # items when last saved
        self.optimized_at = 0  # items when the store last optimized the collection
        self.revision = 1  # grows with every change
        self.embedded_revision = 0  # the revision at which every item had its vector
        self.snapshot = Snapshot(collection, self.vocabulary, vectors=dict(self.vectors))

    def has_column(self, spec: Field) -> bool:
        """Whether the columns hold a field with its present definition."""
        return spec.name == ID or not needs_filling(self.indexed_fields.get(spec.name), spec)

    def publish(self, collection: Collection, seq: int) -> None:
        self.snapshot = Snapshot(
            collection, self.vocabulary, tuple(self.segments), tuple(self.live), dict(self.vectors), seq
        ).with_statistics()

    def add_segment(self, segment: Segment) -> None:
        """Add a segment whose items are new or replace older ones."""
        self.remove_items(segment.ids)
        self.segments.append(segment)
        self.live.append(np.ones(len(segment), bool))
        vectors = self.vectors.get("")
        for doc, id in enumerate(segment.ids):
            self.places[id] = (segment, doc)
            if vectors is not None:
                segment.slots[doc] = vectors.slot(id)

    def remove_items(self, ids: Sequence[str]) -> None:
        """Mark items as deleted, in new masks: existing snapshots share the old ones."""
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
        """Apply changes. Return the items that cannot be indexed, with the errors."""
        newest = {change.item.id: change for change in changes}
        deleted = [id for id, change in newest.items() if change.kind == "delete"]
        self.remove_items(deleted)
        for field, vectors in self.vectors.items():
            # Vectors in the data are added again with the data.
            for id in newest if field else deleted:
                vectors.remove(id)
        current = [change.item for change in newest.values() if change.kind != "delete"]
        failed: list[tuple[Item, Exception]] = []
        if current:
            builder = SegmentBuilder(collection, self.vocabulary)
            failed = builder.add(current)
            self.remove_items([item.id for item, _ in failed])
            self.add_segment(builder.build())
            for spec in vector_fields(collection):
                self._adopt_vectors(current, spec)
        self.revision += 1
        self.merge_small()
        return failed

    def _adopt_vectors(self, items: Sequence[Item], spec: Field) -> None:
        if not self.holds_vectors:
            return
        for item in items:
            vector = spec.vector(item.data)
            if vector is not None:
                row = np.asarray([vector], np.float32)
                vectors = self.vectors.setdefault(spec.name, VectorMatrix(row.shape[1]))
                if vectors.dimensions == row.shape[1]:
                    vectors.put([item.id], row)

    def merge_small(self) -> None:
        """Merge small segments, so that each is at least twice as large as the next; leave out big ones."""
        while len(self.segments) >= 2:
            before, last = self.segments[-2], self.segments[-1]
            if len(before) > 2 * len(last) or len(before) > BIG_SEGMENT:
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

    def plan_merge(self) -> tuple[list[Segment], list[NDArray[np.bool_]]] | None:
        """Return the segments that should be merged, with their masks; None if there is no need."""
        total = sum(len(s) for s in self.segments)
        gone = total - len(self.places)
        if (
            len(self.segments) > 12
            or (total > BIG_SEGMENT and gone > total / 4)
            or sum(len(s) > BIG_SEGMENT for s in self.segments) > 3
        ):
            return list(self.segments), list(self.live)
        return None

    def replace_segments(self, old: Sequence[Segment], merged: Segment) -> None:
        """Replace segments by a merged one, and keep the changes that were made meanwhile."""
        serials = {segment.serial for segment in old}
        alive = np.fromiter(
            ((place := self.places.get(id)) is not None and place[0].serial in serials for id in merged.ids),
            bool,
            len(merged),
        )
        others = [(s, m) for s, m in zip(self.segments, self.live, strict=True) if s.serial not in serials]
        vectors = self.vectors.get("")
        for doc in np.flatnonzero(alive).tolist():
            id = merged.ids[doc]
            self.places[id] = (merged, doc)
            if vectors is not None:
                merged.slots[doc] = vectors.slot(id)
        self.segments = [merged, *(s for s, _ in others)]
        self.live = [alive, *(m for _, m in others)]

    def put_vectors(self, field: str, ids: Sequence[str], rows: NDArray[np.float32]) -> None:
        slots = self.vectors[field].put(ids, rows)
        if field:
            return
        for id, slot in zip(ids, slots, strict=True):
            place = self.places.get(id)
            if place:
                place[0].slots[place[1]] = slot

    def drop_vectors(self) -> None:
        """Leave the vectors to the store from now on. Existing snapshots keep theirs."""
        self.holds_vectors = False
        self.vectors = {}


def vector_fields(collection: Collection) -> list[Field]:
    return [spec for spec in collection.fields.values() if spec.type == FieldType.VECTOR]
