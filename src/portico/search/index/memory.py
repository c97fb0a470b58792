"""The index in this process: a snapshot of every collection, kept up to date by the change feed."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence

from portico.catalog import Collection
from portico.errors import Unavailable, UnknownCollection
from portico.models import Embedder
from portico.query import Condition, Filter, Order, conditions
from portico.search.index import IndexProgress, Ranking, SearchRequest, SortedRuns, ValueCounts
from portico.search.index.columns import NeedsStore, is_quick
from portico.search.index.embedding import ItemEmbedder
from portico.search.index.feed import FeedFollower
from portico.search.index.snapshot import Snapshot
from portico.store import Store
from portico.telemetry import Recorder, discard

MAX_VECTORS_HELD = 300_000  # of a collection: those of a larger one stay in the store
READY_SECONDS = 30.0


class MemoryIndex:
    """Answers from the snapshots of a `FeedFollower`. See `Index`.

    Text can be searched as soon as a collection is read; vectors follow as items are embedded.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        record: Recorder = discard,
        *,
        max_vectors: int = MAX_VECTORS_HELD,
    ) -> None:
        owner = secrets.token_hex(8)
        self._follower = FeedFollower(store, embedder, record, owner, max_vectors)
        self._embedder = ItemEmbedder(store, embedder, record, owner, self._follower) if embedder else None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_ready(self) -> bool:
        return self._follower.ready.is_set()

    @property
    def failure(self) -> str:
        """Why the feed cannot be followed; empty while it can."""
        return self._follower.incident.reason

    @property
    def seq(self) -> int:
        return max(self._follower.seq, 0)

    async def start(self) -> None:
        """Read every collection and catch up with the feed, once. May be repeated after a failure."""
        await self._follower.start()

    def run(self, *, embed: bool = True) -> None:
        """Start to read every collection, follow the feed and embed items in the background, until closed."""
        self._tasks.append(asyncio.create_task(self._follower.follow()))
        if embed and self._embedder:
            self._tasks.append(asyncio.create_task(self._embedder.run()))

    async def close(self) -> None:
        self._follower.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()
        await self._follower.close()
        if self._embedder and self._embedder.leads:
            await self._embedder.step_down()

    async def embed_batch(self, name: str) -> int:
        """Embed some items of a collection that have no current vector; return how many."""
        return await self._embedder.embed_batch(name) if self._embedder else 0

    async def sync(self, seq: int) -> None:
        self._follower.refresh_schema()
        if self._follower.seq >= seq:
            return
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._follower.reach(seq)
        except TimeoutError:
            raise Unavailable(
                "Search is still reading the store", hint="Try again in a moment; /readyz reports when it is ready."
            ) from None
        self._follower.refresh_schema()

    def list_store_conditions(self, collection: str, where: Filter) -> list[Condition]:
        return self._snapshot(collection).list_store_conditions(where)

    def rank(
        self, collection: str, search: SearchRequest, limit: int, after: tuple[float, str] | None = None
    ) -> Ranking:
        return self._snapshot(collection).rank(search, limit, after)

    def list_sorted(
        self, collection: Collection, where: Filter, order: Sequence[Order], limit: int
    ) -> SortedRuns | None:
        part = self._follower.parts.get(collection.name)
        if part is None or part.snapshot.collection is not collection:
            return None
        for condition in conditions(where):
            spec = collection.field(condition.field)
            if not is_quick(condition, spec) or not part.has_column(spec):
                return None
        if not all(part.has_column(collection.field(key.field)) for key in order):
            return None
        try:
            return part.snapshot.list_sorted(where, order, limit)
        except NeedsStore:
            return None

    def size(self, collection: str) -> int:
        part = self._follower.parts.get(collection)
        return part.snapshot.count if part else 0

    def has_vectors(self, collection: str, field: str) -> bool:
        return field in self._snapshot(collection).vectors

    def revision(self, collection: str) -> int:
        return self._snapshot(collection).seq

    def values(self, collection: str) -> Mapping[str, ValueCounts]:
        return self._snapshot(collection).values()

    def progress(self) -> Mapping[str, IndexProgress]:
        return {
            name: IndexProgress(len(part.places), len(part.vectors[""]) if "" in part.vectors else 0)
            for name, part in self._follower.parts.items()
        }

    def _snapshot(self, collection: str) -> Snapshot:
        part = self._follower.parts.get(collection)
        if part is None:
            raise UnknownCollection(f"There is no collection {collection!r}", collection=collection)
        return part.snapshot
