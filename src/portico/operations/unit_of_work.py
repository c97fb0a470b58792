"""UnitOfWork: the writes of one operation, collected until they are committed together. Commits nothing itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from portico.catalog import ID, Collection
from portico.errors import OutcomeUnknown, UnknownCollection, Unsupported
from portico.items import Item, parts_of
from portico.query import MAX_LIMIT, Page, Query, count_within, item_bytes, json_size, matcher, project, validate_query
from portico.search.pages import sort_items
from portico.store import CollectionStore, ItemStore
from portico.store.planning import check_ids, plan_writes
from portico.store.records import Write
from portico.store.tables import StoredRow, encode_text


class UnitOfWork:
    """Collects writes, and reads items as they will be. Writes are checked when added and again when committed."""

    def __init__(self, collections: CollectionStore, items: ItemStore) -> None:
        self._collections = collections
        self._items = items
        self._writes: list[tuple[str, Write]] = []
        self._before: dict[tuple[str, str], Item | None] = {}
        self._after: dict[tuple[str, str], Item | None] = {}
        self._ends: dict[str, Item] = {}  # the last item of a page, by the cursor of the next one
        self.fault: OutcomeUnknown | None = None  # of a commit whose writes may have been made

    @property
    def writes(self) -> Sequence[tuple[str, Write]]:
        """The writes to commit. Raises the fault of an earlier commit, so that no write is made twice."""
        if self.fault:
            raise self.fault
        return tuple(self._writes)

    def clear(self) -> None:
        """Drop all writes, after they were committed or refused."""
        self._writes.clear()
        self._before.clear()
        self._after.clear()

    async def get(self, collection: str, id: str) -> Item | None:
        key = (collection, id)
        return self._after[key] if key in self._after else await self._items.get(collection, id)

    async def write(self, collection: str, write: Write) -> Item:
        """Add a write; return the resulting item, or the removed one."""
        if self.fault:
            raise self.fault
        check_ids([write])
        old = await self.get(collection, write.id)
        before = {write.id: StoredRow(old, *parts_of(old.version), encode_text(old.data))} if old else {}
        plan = plan_writes(self._shape(collection), [write], before, datetime.now(UTC))
        row = plan.current(write.id)
        key = (collection, write.id)
        self._before.setdefault(key, old)
        self._after[key] = row.item if row else None
        self._writes.append((collection, write))
        return plan.items[0]

    def is_touched(self, collection: str) -> bool:
        return any(name == collection for name, _ in self._after)

    async def find(self, query: Query) -> Page:
        """Return a page of a query without text, with this unit's writes applied."""
        shape = self._shape(query.collection)
        query = validate_query(query, shape)
        is_plain = not (query.text or query.near or query.aggregate)
        if not is_plain or not all(key.field == ID or shape.field(key.field).is_typed for key in query.order):
            raise Unsupported(
                f"A query of {query.collection} by text, by vector, in groups or in the order of an untyped field does"
                " not see what this call has written and not yet committed",
                collection=query.collection,
                hint="Query before you write, or call `await context.commit()` first.",
            )
        before, after = self._of(self._before, query.collection), self._of(self._after, query.collection)
        page = await self._items.find(replace(query, limit=min(query.limit + len(after), MAX_LIMIT)))
        stored = {item.id: item for item in page.items}
        if query.fields:  # the sort fields may be missing from them
            stored = await self._items.get_many(query.collection, list(stored))
        is_match = matcher(query.where, shape)
        own = [item for item in after.values() if item and is_match(item)]
        others = [item for id, item in stored.items() if id not in after]
        ends = sort_items(stored.values(), query.order, shape)[:: max(len(stored) - 1, 1)]
        items = sort_items([*others, *self._in_range(own, query, page, ends, shape)], query.order, shape)
        page_items = items[: min(query.limit, count_within(_sizes(items, query, shape), query.max_bytes))]
        cursor = page.cursor
        if page_items and (page.cursor or len(items) > len(page_items)):
            cursor = self._items.cursor(query, page_items[-1])
            self._ends[cursor] = page_items[-1]
        total = page.total
        if total is not None:
            total += len(own) - sum(is_match(item) for item in before.values() if item)
        return Page(tuple(project(item, query.fields, shape) for item in page_items), total=total, cursor=cursor)

    def _of(self, items: Mapping[tuple[str, str], Item | None], collection: str) -> dict[str, Item | None]:
        return {id: item for (name, id), item in items.items() if name == collection}

    def _in_range(
        self, own: Sequence[Item], query: Query, page: Page, ends: Sequence[Item], shape: Collection
    ) -> list[Item]:
        """Return this unit's items between the previous page and the end of this one."""
        first = self._ends.get(query.cursor) or (ends[0] if query.cursor and ends else None)
        last = ends[-1] if page.cursor and ends else None

        def is_after(item: Item, other: Item) -> bool:
            return item.id != other.id and sort_items([other, item], query.order, shape)[0] is other

        return [
            item
            for item in own
            if (first is None or is_after(item, first)) and (last is None or not is_after(item, last))
        ]

    def _shape(self, collection: str) -> Collection:
        shape = self._collections.schema.get(collection)
        if shape is None:
            raise UnknownCollection(f"There is no collection {collection!r}", collection=collection)
        return shape


def _sizes(items: Iterable[Item], query: Query, shape: Collection) -> Iterator[int]:
    """Yield how many bytes of a page each item takes."""
    for item in items:
        yield item_bytes(project(item, query.fields, shape), json_size(item.data), query)
