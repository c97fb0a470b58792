"""Finds items for questions, in the words of schema.org. Everything that `ask` reads of an item comes from here."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from portico.catalog import Catalog
from portico.items import Item
from portico.presentation import present, present_all
from portico.query import Page, Query
from portico.search.finder import Finder, ScoredItem, SearchTarget


class ItemFinder:
    """A `Finder` whose items have the members that the roles of their fields fill."""

    def __init__(self, finder: Finder, catalog: Callable[[], Catalog]) -> None:
        self._finder = finder
        self._catalog = catalog

    async def find(self, query: Query) -> Page:
        page = await self._finder.find(query)
        return replace(page, items=tuple(present_all(page.items, self._catalog().collections)))

    async def find_across(
        self, targets: Sequence[SearchTarget], text: str, limit: int, min_seq: int = 0, **options: Any
    ) -> tuple[list[ScoredItem], tuple[str, ...]]:
        """Return what `Finder.find_across` does, with its options."""
        hits, notes = await self._finder.find_across(targets, text, limit, min_seq, **options)
        collections = self._catalog().collections
        return [replace(hit, item=present(hit.item, collections.get(hit.item.collection))) for hit in hits], notes

    async def get(self, collection: str, id: str) -> Item | None:
        item = await self._finder.store.items.get(collection, id)
        return present(item, self._catalog().collections.get(collection)) if item else None

    async def get_many(self, collection: str, ids: Sequence[str]) -> list[Item]:
        items = await self._finder.store.items.get_many(collection, list(ids))
        return present_all(list(items.values()), self._catalog().collections)
