"""Pages of queries without text: from memory as far as it goes, else from the store. Never older than the question."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from portico.catalog import ID, Collection, Field, scalar_at
from portico.errors import SiteError
from portico.index import Arranged, Index, Place
from portico.items import Item
from portico.query import ABSENT, Order, Page, Query, checked, conditions, project, sort_key
from portico.recent import Recent
from portico.store import Store

MAX_PAGES = 2000  # kept in memory
MAX_PAGE_ITEMS = 200  # of one that is kept: to learn that a long one is too large takes long
MAX_PAGE_BYTES = 256_000  # as JSON
MAX_PAGES_BYTES = 8_000_000  # of all; in memory it is several times that
MAX_ITEMS_BYTES = 8_000_000  # of items that are kept, as JSON
MAX_ITEMS = 20_000
AT_ONCE = 10_000  # tests of single items that hold up nobody; more of them are made in a thread

Sized: TypeAlias = tuple[Item, int]  # with its size as JSON


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

    def put(self, query: Query, page: Page, size: int | None = None) -> None:
        """Keep a page, unless it is too large. Its size as JSON is found out if it is not known."""
        if len(page.items) + len(page.rows) > MAX_PAGE_ITEMS:
            return
        size = len(msgspec.json.encode(page)) if size is None else size
        size += sum(len(repr(each.value)) for each in conditions(query.where))
        if size <= MAX_PAGE_BYTES:
            self._pages.put(query, page, size)


class Pages:
    """Kept until an item or the shape of a collection changes, whoever changes it."""

    def __init__(self, store: Store, index: Index | None) -> None:
        self._store = store
        self._index = index
        self._shelf = Shelf()
        self._kept: Recent[Sized] = Recent(MAX_ITEMS, MAX_ITEMS_BYTES)  # none changes at its place
        self._stamp = -1  # when the shelf was last known to show the store as it is
        self._looking = asyncio.Lock()

    def known(self, query: Query) -> Page | None:
        """A page that needs no look at the store; None also where nobody can tell."""
        stamp = self._store.stamp()
        return self._shelf.get(query) if stamp is not None and stamp <= self._stamp else None

    async def find(self, query: Query) -> Page:
        # The stamp comes first: what is written after it makes the next one look again.
        stamp = self._store.stamp()
        if stamp is None:
            return await self._store.find(query)
        if stamp > self._stamp:
            await self._look(stamp)
        # A page goes where it was looked for. If that has been replaced meanwhile, it is forgotten with the rest.
        shelf = self._shelf
        page = shelf.get(query)
        if page is not None:
            return page
        made = await self._arranged(query, shelf, stamp)
        if made:
            page, size = made
            shelf.put(query, page, size)
        else:
            page = await self._store.find(query)
            shelf.put(query, page)
        return page

    async def _look(self, stamp: int) -> None:
        """Bring the shelf up to a stamp. Tasks, keys and notes are written too, and change no page."""
        async with self._looking:
            if stamp <= self._stamp:
                return
            # Those who wait here are served by one look, if it is at the newest.
            newest = self._store.stamp() or stamp
            schema, head = await self._store.refresh(), await self._store.head()
            if not self._shelf.shows(head, schema):
                self._shelf = Shelf(head, schema)
            self._stamp = newest

    async def _arranged(self, query: Query, shelf: Shelf, stamp: int) -> tuple[Page, int] | None:
        """The page that the index makes of items in memory, with its size; None if the store is to be asked."""
        index, collection = self._index, shelf.schema.get(query.collection)
        if index is None or collection is None or query.cursor or query.aggregate or query.limit > MAX_PAGE_ITEMS:
            return None
        if not index.is_ready or index.seq < shelf.head:
            return None
        try:
            asked = checked(query, collection)
        except SiteError:  # the store may know more
            return None
        found = await self._found(index, asked, collection)
        shown = await self._items(found, asked, collection, stamp) if found else None
        if found is None or shown is None:
            return None
        items = [item for item, _ in shown[: asked.limit]]
        if asked.fields:
            items = [project(item, asked.fields, collection) for item in items]
        more = len(shown) > asked.limit
        cursor = self._store.cursor(asked, shown[asked.limit - 1][0]) if more else ""
        page = Page(tuple(items), total=found.total if asked.count else None, cursor=cursor)
        return page, sum(size for _, size in shown)

    async def _found(self, index: Index, asked: Query, collection: Collection) -> Arranged | None:
        given = collection, asked.where, asked.order, asked.limit + 1
        tests = index.size(collection.name) * (1 + len(conditions(asked.where)))
        return index.arranged(*given) if tests <= AT_ONCE else await asyncio.to_thread(index.arranged, *given)

    async def _items(self, found: Arranged, asked: Query, collection: Collection, stamp: int) -> list[Sized] | None:
        """What stands at these places, with sizes, in the order of the whole; None if somebody wrote meanwhile."""
        places = [place for run in found.runs for place in run]
        kept = dict(zip(places, self._kept.several(places), strict=True))
        missing = [place for place, item in kept.items() if item is None]
        if missing:
            read = await self._store.get_many(collection.name, [id for _, _, id in missing])
            if self._store.stamp() != stamp or len(read) < len(missing):
                return None
            kept.update({place: self._keep(place, read[place[2]]) for place in missing})
        shown = [each for each in kept.values() if each]
        if len(found.runs) <= 1:
            return shown
        sizes = {item.id: size for item, size in shown}
        ordered = in_order((item for item, _ in shown), asked.order, collection)
        return [(item, sizes[item.id]) for item in ordered[: asked.limit + 1]]

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
