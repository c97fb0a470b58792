"""Pages of queries without text: from memory as far as it goes, else from the store. Never older than the question."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from portico.catalog import ID, Collection, Field, scalar_at
from portico.errors import SiteError
from portico.items import Item
from portico.query import (
    ABSENT,
    Order,
    Page,
    Query,
    checked,
    conditions,
    count_within,
    item_bytes,
    project,
    sort_key,
)
from portico.search.index import Arranged, Index, Place
from portico.search.recent import Recent
from portico.store import Store

MAX_PAGES = 2000  # kept in memory
MAX_PAGE_ITEMS = 200  # of one that is kept: to learn that a long one is too large takes long
MAX_PAGE_BYTES = 256_000  # as JSON
MAX_PAGES_BYTES = 8_000_000  # of all; in memory it is several times that
MAX_ITEMS_BYTES = 8_000_000  # of items that are kept, as JSON
MAX_ITEMS = 20_000
AT_ONCE = 10_000  # looks at single items that hold up nobody; more of them are taken in a thread

Sized: TypeAlias = tuple[Item, int]  # with its size as JSON
Made: TypeAlias = tuple[Page, int]  # with its size as JSON


class Shelf:
    """The pages of one state of the store."""

    def __init__(self, head: int = -1, schema: Mapping[str, Collection] | None = None) -> None:
        self.head = head
        self.schema: Mapping[str, Collection] = {} if schema is None else schema
        self._pages: Recent[Page] = Recent(MAX_PAGES, MAX_PAGES_BYTES)

    def shows(self, head: int, schema: Mapping[str, Collection]) -> bool:
        return head == self.head and schema is self.schema

    def get(self, query: Query) -> Page | None:
        return self._pages.get(query)

    def put(self, query: Query, page: Page, size: int | None = None) -> Page:
        """Keep a page, unless it is too large. Its size as JSON is found out if it is not known."""
        if page.length > MAX_PAGE_ITEMS:
            return page
        size = len(msgspec.json.encode(page)) if size is None else size
        size += sum(len(repr(each.value)) for each in conditions(query.where))
        if size <= MAX_PAGE_BYTES:
            self._pages.put(query, replace(page, is_cached=True), size)
        return page


@dataclass(frozen=True, slots=True)
class Plan:
    """A query that an index can answer, for a collection as it is."""

    asked: Query
    collection: Collection
    index: Index

    @property
    def is_quick(self) -> bool:
        """Whether it holds up nobody."""
        keys = len(conditions(self.asked.where)) + len(self.asked.order)
        return self.index.size(self.collection.name) * (1 + keys) <= AT_ONCE

    def found(self) -> Arranged | None:
        return self.index.arranged(self.collection, self.asked.where, self.asked.order, self.asked.limit + 1)


class Pages:
    """Kept until an item or the shape of a collection changes, whoever changes it."""

    def __init__(self, store: Store, index: Index | None) -> None:
        self._store = store
        self._index = index
        self._shelf = Shelf()
        self._kept: Recent[Sized] = Recent(MAX_ITEMS, MAX_ITEMS_BYTES)  # none changes at its place
        self._stamp = -1  # when the shelf was last known to show the store as it is
        self._looking = asyncio.Lock()

    async def find(self, query: Query) -> Page:
        # The stamp comes first: what is written after it makes the next one look again.
        stamp = self._store.changes.stamp()
        if stamp is None:
            return await self._store.items.find(query)
        if stamp > self._stamp:
            await self._look(stamp)
        # A page goes where it was looked for. If that has been replaced meanwhile, it is forgotten with the rest.
        shelf = self._shelf
        page = shelf.get(query)
        if page is not None:
            return page
        made = await self._arranged(query, shelf, stamp)
        return shelf.put(query, *made) if made else shelf.put(query, await self._store.items.find(query))

    async def _look(self, stamp: int) -> None:
        """Bring the shelf up to a stamp. Tasks, keys and notes are written too, and change no page."""
        async with self._looking:
            if stamp <= self._stamp:
                return
            # Those who wait here are served by one look, if it is at the newest.
            newest = self._store.changes.stamp() or stamp
            schema, head = await self._store.collections.refresh(), await self._store.changes.head()
            if not self._shelf.shows(head, schema):
                self._shelf = Shelf(head, schema)
            self._stamp = newest

    async def _arranged(self, query: Query, shelf: Shelf, stamp: int) -> Made | None:
        """The page that the index makes of items in memory; None if the store is to be asked."""
        plan = self._planned(query, shelf)
        if plan is None:
            return None
        found = plan.found() if plan.is_quick else await asyncio.to_thread(plan.found)
        shown = await self._items(found, plan.collection, stamp) if found else None
        return None if found is None or shown is None else self._page(plan, found, shown)

    def _planned(self, query: Query, shelf: Shelf) -> Plan | None:
        """How the index is to be asked; None if it does not show what there is, or could not tell."""
        index, collection = self._index, shelf.schema.get(query.collection)
        if index is None or collection is None or query.cursor or query.aggregate or query.limit > MAX_PAGE_ITEMS:
            return None
        if not index.is_ready or index.seq < shelf.head:
            return None
        try:
            return Plan(checked(query, collection), collection, index)
        except SiteError:  # the store may know more
            return None

    def _page(self, plan: Plan, found: Arranged, shown: list[Sized]) -> Made:
        asked, collection = plan.asked, plan.collection
        if len(found.runs) > 1:
            sizes = {item.id: size for item, size in shown}
            ordered = in_order((item for item, _ in shown), asked.order, collection)
            shown = [(item, sizes[item.id]) for item in ordered[: asked.limit + 1]]
        items, sizes = [item for item, _ in shown[: asked.limit]], [size for _, size in shown[: asked.limit]]
        if asked.fields:
            items = [project(item, asked.fields, collection) for item in items]
            sizes = [item_bytes(item, stored, asked) for item, stored in zip(items, sizes, strict=True)]
        count = count_within(sizes, asked.max_bytes)
        more = len(shown) > count
        cursor = self._store.items.cursor(asked, shown[count - 1][0]) if more else ""
        page = Page(tuple(items[:count]), total=found.total if asked.count else None, cursor=cursor)
        return page, sum([size for _, size in shown])

    async def _items(self, found: Arranged, collection: Collection, stamp: int) -> list[Sized] | None:
        """What stands at the places, with sizes; None if somebody wrote meanwhile."""
        places = [place for run in found.runs for place in run]
        kept = dict(zip(places, self._kept.several(places), strict=True))
        missing = [place for place, item in kept.items() if item is None]
        if missing:
            read = await self._store.items.get_many(collection.name, [id for _, _, id in missing])
            if self._store.changes.stamp() != stamp or len(read) < len(missing):
                return None
            kept.update({place: self._keep(place, read[place[2]]) for place in missing})
        return [each for each in kept.values() if each]

    def _keep(self, place: Place, item: Item) -> Sized:
        size = len(msgspec.json.encode(item.data))
        found = item, size
        return self._kept.put(place, found, size) if size <= MAX_PAGE_BYTES else found


def in_order(items: Iterable[Item], order: Sequence[Order], collection: Collection) -> list[Item]:
    """Items by their fields, and then by id."""
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
    return field.typed_value(item.data) if field.is_typed else scalar_at(item.data, field.where)
