"""Answers queries without text from memory if possible, else from the store. A page is never older than its query."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
from cachetools import LRUCache

from portico.catalog import ID, Collection, Field
from portico.errors import SiteError
from portico.items import Item
from portico.query import (
    ABSENT,
    Order,
    Page,
    Query,
    conditions,
    count_within,
    item_bytes,
    project,
    sort_key,
    validate_query,
)
from portico.search.index import Index, Location, SortedRuns
from portico.store import Store

MAX_PAGES = 2000  # cached
MAX_PAGE_ITEMS = 200  # of a cached page: measuring a longer one takes too long
MAX_PAGE_BYTES = 256_000  # as JSON
MAX_PAGES_BYTES = 8_000_000  # of all; in memory it is several times that
MAX_ITEMS_BYTES = 8_000_000  # of all cached items, as JSON
MAX_ITEMS = 20_000
MAX_INLINE_TESTS = 10_000  # tests of single items in the event loop; longer work runs in a thread

SizedItem: TypeAlias = tuple[Item, int]  # with its size as JSON
SizedPage: TypeAlias = tuple[Page, int]  # with its size as JSON


class PageCache:
    """The pages made of one state of the store."""

    def __init__(self, head: int = -1, schema: Mapping[str, Collection] | None = None) -> None:
        self.head = head
        self.schema: Mapping[str, Collection] = {} if schema is None else schema
        self._pages: LRUCache[Query, SizedPage] = LRUCache(MAX_PAGES_BYTES, getsizeof=_page_cost)

    def is_current(self, head: int, schema: Mapping[str, Collection]) -> bool:
        return head == self.head and schema is self.schema

    def get(self, query: Query) -> Page | None:
        try:
            return self._pages[query][0]
        except KeyError:
            return None

    def put(self, query: Query, page: Page, size: int | None = None) -> Page:
        """Cache a page, unless it is too large, and return it. Its size as JSON is computed if it is not given."""
        if page.length > MAX_PAGE_ITEMS:
            return page
        size = len(msgspec.json.encode(page)) if size is None else size
        size += sum(len(repr(item.value)) for item in conditions(query.where))
        if size <= MAX_PAGE_BYTES:
            self._pages[query] = replace(page, is_cached=True), size
        return page


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """A query that the index can answer, for the current collection."""

    query: Query
    collection: Collection
    index: Index

    @property
    def is_quick(self) -> bool:
        """Whether it is fast enough to run in the event loop."""
        keys = len(conditions(self.query.where)) + len(self.query.order)
        return self.index.size(self.collection.name) * (1 + keys) <= MAX_INLINE_TESTS

    def run(self) -> SortedRuns | None:
        return self.index.list_sorted(self.collection, self.query.where, self.query.order, self.query.limit + 1)


class PageFinder:
    """Finds pages. They are cached until any process changes an item or the fields of a collection."""

    def __init__(self, store: Store, index: Index | None) -> None:
        self._store = store
        self._index = index
        self._cache = PageCache()
        # An item that changes is stored at another location.
        self._item_cache: LRUCache[Location, SizedItem] = LRUCache(MAX_ITEMS_BYTES, getsizeof=_item_cost)
        self._stamp = -1  # the store's stamp up to which the cache is known to be current
        self._lock = asyncio.Lock()

    async def find(self, query: Query) -> Page:
        # The stamp comes first: any later write makes the next query refresh.
        stamp = self._store.changes.stamp()
        if stamp is None:
            return await self._store.items.find(query)
        if stamp > self._stamp:
            await self._refresh(stamp)
        # The page goes into this cache even if it is replaced meanwhile: then it is dropped with it.
        cache = self._cache
        page = cache.get(query)
        if page is not None:
            return page
        indexed = await self._find_in_index(query, cache, stamp)
        return cache.put(query, *indexed) if indexed else cache.put(query, await self._store.items.find(query))

    async def _refresh(self, stamp: int) -> None:
        """Replace the cache if pages may have changed up to a stamp. Writes of tasks, keys and notes change none."""
        async with self._lock:
            if stamp <= self._stamp:
                return
            # One refresh to the newest stamp serves all that wait here.
            newest = self._store.changes.stamp() or stamp
            schema, head = await self._store.collections.refresh(), await self._store.changes.head()
            if not self._cache.is_current(head, schema):
                self._cache = PageCache(head, schema)
            self._stamp = newest

    async def _find_in_index(self, query: Query, cache: PageCache, stamp: int) -> SizedPage | None:
        """Return the page made from the index and cached items; None if only the store can make it."""
        plan = self._plan(query, cache)
        if plan is None:
            return None
        runs = plan.run() if plan.is_quick else await asyncio.to_thread(plan.run)
        items = await self._load_items(runs, plan.collection, stamp) if runs else None
        return None if runs is None or items is None else self._build_page(plan, runs, items)

    def _plan(self, query: Query, cache: PageCache) -> IndexPlan | None:
        """Return a plan to run on the index; None if it is behind the store or cannot answer the query."""
        index, collection = self._index, cache.schema.get(query.collection)
        if index is None or collection is None or query.cursor or query.aggregate or query.limit > MAX_PAGE_ITEMS:
            return None
        if not index.is_ready or index.seq < cache.head:
            return None
        try:
            return IndexPlan(validate_query(query, collection), collection, index)
        except SiteError:  # the store may know more
            return None

    def _build_page(self, plan: IndexPlan, runs: SortedRuns, matches: list[SizedItem]) -> SizedPage:
        query, collection = plan.query, plan.collection
        if len(runs.runs) > 1:
            sizes = {item.id: size for item, size in matches}
            ordered = sort_items((item for item, _ in matches), query.order, collection)
            matches = [(item, sizes[item.id]) for item in ordered[: query.limit + 1]]
        items, sizes = [item for item, _ in matches[: query.limit]], [size for _, size in matches[: query.limit]]
        if query.fields:
            items = [project(item, query.fields, collection) for item in items]
            sizes = [item_bytes(item, stored, query) for item, stored in zip(items, sizes, strict=True)]
        count = count_within(sizes, query.max_bytes)
        more = len(matches) > count
        cursor = self._store.items.cursor(query, matches[count - 1][0]) if more else ""
        page = Page(tuple(items[:count]), total=runs.total if query.count else None, cursor=cursor)
        return page, sum([size for _, size in matches])

    async def _load_items(self, sorted_runs: SortedRuns, collection: Collection, stamp: int) -> list[SizedItem] | None:
        """Return the items at the locations, with sizes; None if the store was written to meanwhile."""
        places = [place for run in sorted_runs.runs for place in run]
        items = {place: self._item_cache.get(place) for place in places}
        missing = [place for place, item in items.items() if item is None]
        if missing:
            read = await self._store.items.get_many(collection.name, [id for _, _, id in missing])
            if self._store.changes.stamp() != stamp or len(read) < len(missing):
                return None
            items.update({place: self._cache_item(place, read[place[2]]) for place in missing})
        return [item for item in items.values() if item]

    def _cache_item(self, place: Location, item: Item) -> SizedItem:
        size = len(msgspec.json.encode(item.data))
        entry = item, size
        if size <= MAX_PAGE_BYTES:
            self._item_cache[place] = entry
        return entry


def _page_cost(page: SizedPage) -> int:
    """Count small pages as larger than they are, so that there are never more than MAX_PAGES."""
    return max(page[1], MAX_PAGES_BYTES // MAX_PAGES)


def _item_cost(item: SizedItem) -> int:
    return max(item[1], MAX_ITEMS_BYTES // MAX_ITEMS)


def sort_items(items: Iterable[Item], order: Sequence[Order], collection: Collection) -> list[Item]:
    """Return items sorted by their fields, then by id."""
    items = sorted(items, key=lambda item: item.id)
    for key in reversed(order):
        field = collection.field(key.field)
        values = {item.id: sort_key(_value(item, field)) for item in items}
        present = [item for item in items if values[item.id][0] < ABSENT]
        absent = [item for item in items if values[item.id][0] == ABSENT]
        present.sort(key=lambda item: values[item.id], reverse=key.descending)
        items = absent + present if key.absent_first else present + absent
    return items


def _value(item: Item, field: Field) -> Any:
    if field.name == ID:
        return item.id
    return field.comparable_value(item.data) if field.is_typed else field.value(item.data)
