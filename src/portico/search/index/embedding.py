"""Embeds the items that lack a vector. Of the processes that follow one store, one at a time does so for all."""

import asyncio
import contextlib

from portico.errors import SiteError
from portico.models import Embedder
from portico.search.index.feed import FeedFollower, report_error
from portico.search.index.text import text_to_embed
from portico.store import Store
from portico.store.health import StoreFault
from portico.telemetry import Incident, Recorder

EMBED_BATCH = 64
IDLE_SECONDS = 0.5
RETRY_SECONDS = 1.0
LEAD_SECONDS = 20.0  # longer than embedding a batch takes
EMBEDDER_ROLE = "embedder"  # of the process that embeds


class ItemEmbedder:
    """Embeds new and changed items in the background."""

    def __init__(self, store: Store, embedder: Embedder, record: Recorder, owner: str, follower: FeedFollower) -> None:
        self._store = store
        self._embedder = embedder
        self._owner = owner
        self._follower = follower
        self._incident = Incident("embedder", record)
        self.leads = False  # whether this process has the role

    async def run(self) -> None:
        """Embed items in batches, for as long as the process runs."""
        await self._follower.ready.wait()
        while True:
            try:
                is_busy = await self._run_round()
                self._incident.resolve()
                if not is_busy:
                    await asyncio.sleep(IDLE_SECONDS)
            except Exception as error:  # noqa: BLE001 - a text that a model cannot take, for instance
                if not isinstance(error, StoreFault):  # which the store records
                    report_error(self._incident, error)
                # Another process may succeed.
                await self.step_down()
                await asyncio.sleep(RETRY_SECONDS)

    async def _run_round(self) -> bool:
        """Embed a batch of each collection, or read the vectors that another process made. Return whether any were."""
        is_busy = False
        for name, part in list(self._follower.parts.items()):
            if part.embedded_revision == part.revision or part.snapshot.collection.private:
                continue
            touched = part.revision
            self.leads = await self._store.roles.acquire(EMBEDDER_ROLE, self._owner, LEAD_SECONDS)
            if self.leads:
                missing = await self.embed_batch(name)
                is_busy = is_busy or missing > 0
                if not missing and not part.holds_vectors and len(part.places) > 1.2 * part.optimized_at:
                    part.optimized_at = len(part.places)
                    await self._store.collections.optimize(name)  # its vectors are searched in the store
            else:
                missing = len(await self._store.vectors.list_missing(name, self._embedder.name, 1))
                await self._follower.load_new_vectors(name)
            if not missing:
                part.embedded_revision = touched
        return is_busy

    async def step_down(self) -> None:
        self.leads = False
        with contextlib.suppress(SiteError):
            await self._store.roles.acquire(EMBEDDER_ROLE, self._owner, 0)

    async def embed_batch(self, name: str) -> int:
        """Embed some items of a collection that have no current vector; return how many."""
        embedder = self._embedder
        waiting = await self._store.vectors.list_missing(name, embedder.name, EMBED_BATCH)
        if waiting:
            collection = self._store.collections.schema[name]
            texts = [text_to_embed(item, collection) for item, _ in waiting]
            matrix = await asyncio.to_thread(embedder.embed, texts)
            rows = [(item.id, digest, matrix[i].tobytes()) for i, (item, digest) in enumerate(waiting)]
            await self._store.vectors.put(name, embedder.name, rows)
        await self._follower.load_new_vectors(name)
        return len(waiting)
