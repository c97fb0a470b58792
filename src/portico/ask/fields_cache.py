"""Caches the fields of the collections and their values for questions. Computes them in threads."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from portico.ask.understanding.fields import Fields
from portico.catalog import Catalog, Collection
from portico.search.finder import Finder
from portico.search.index import Index

LEARN_INTERVAL = 2.0  # seconds for which fields are kept although their collection changes


@dataclass(frozen=True, slots=True)
class _Entry:
    """The fields of a collection, the index revision they were computed from, and when."""

    fields: Fields
    revision: int
    at: float


class FieldsCache:
    """The `Fields` of every collection, computed once for a revision of the index."""

    def __init__(self, finder: Finder, catalog: Callable[[], Catalog]) -> None:
        self._finder = finder
        self._catalog = catalog
        self._entries: dict[str, _Entry] = {}
        self._learning: dict[str, asyncio.Task[Fields]] = {}

    async def of(self, names: Sequence[str]) -> list[Fields]:
        return [await self._fields_of(name) for name in names]

    async def _fields_of(self, name: str) -> Fields:
        """Return what a collection holds, at most `LEARN_INTERVAL` old; concurrent questions share one computation."""
        index, collection = self._finder.index, self._catalog().collections[name]
        if index is None:
            return Fields(collection, {})
        learned = self._entries.get(name)
        is_fresh = learned and (
            learned.revision == index.revision(name) or time.monotonic() - learned.at < LEARN_INTERVAL
        )
        if learned and is_fresh and learned.fields.collection is collection:
            return learned.fields
        learning = self._learning.get(name)
        if learning is None or learning.done():
            learning = self._learning[name] = asyncio.create_task(self._learn(index, name, collection))
        if learned and learned.fields.collection is collection:
            return learned.fields
        return await asyncio.shield(learning)

    async def _learn(self, index: Index, name: str, collection: Collection) -> Fields:
        revision = index.revision(name)
        fields = await asyncio.to_thread(lambda: Fields.learn(collection, index.values(name)))
        self._entries[name] = _Entry(fields, revision, time.monotonic())
        return fields
