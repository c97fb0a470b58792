"""Pages that memory answers: the same as the store's, never older, and the store is not asked."""

import random
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from portico.catalog import Collection, Field, FieldType
from portico.query import Aggregate, Aggregation, Condition, Order, Page, Query, parse_filter
from portico.search import pages
from portico.search.index import columns
from portico.search.index.memory import MemoryIndex
from portico.search.pages import MAX_PAGE_ITEMS, PageFinder
from portico.store import ItemStore, Store, open_store
from portico.store.records import Merge, Put, Remove

BY_PRICE = Query("lamps", where=parse_filter({"colour": "red", "price": {"$lt": 70}}), order=(Order("price"),), limit=5)
QUERIES = [
    Query("lamps", limit=7),
    Query("lamps", limit=7, count=True, fields=("price", "size.width")),
    BY_PRICE,
    replace(BY_PRICE, order=(Order("price", descending=True), Order("id", descending=True)), count=True),
    Query("lamps", order=(Order("sold", descending=True), Order("price")), limit=9),
    Query("lamps", order=(Order("sold", absent_first=True), Order("colour", descending=True)), limit=9),
    Query("lamps", where=parse_filter({"sold": {"$gte": "2024-03-01"}}), order=(Order("sold"),), limit=3, count=True),
    Query("lamps", where=parse_filter({"$or": [{"size.width": {"$gt": 5}}, {"tags": {"$in": ["new"]}}]}), limit=9),
    Query("lamps", where=parse_filter({"colour": {"$ne": "red"}, "sold": {"$exists": False}}), order=(Order("price"),)),
    Query("lamps", where=parse_filter({"price": {"$gt": 1000}}), count=True),
]
FOR_THE_STORE = [
    Query("lamps", aggregate=Aggregate((Aggregation("count", "lamps"),))),
    Query("lamps", where=parse_filter({"id": "lamp-003"})),
    Query("lamps", where=parse_filter({"colour": {"$contains": "e"}})),
    Query("lamps", where=parse_filter({"colour": {"$lt": "m"}})),
    Query("lamps", order=(Order("size.width"),)),
    Query("lamps", order=(Order("story"),)),
    Query("lamps", limit=MAX_PAGE_ITEMS + 1),
]


def lamp(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    data: dict[str, Any] = {
        "colour": chance.choice(["red", "green", "blue", "Rot", "Ärger"]),
        "price": chance.choice([10, 10.0, 12.5, 60, 99]),
        "size": {"width": chance.randrange(10)},
        "tags": chance.sample(["new", "old", "odd"], 2),
        "story": "long " * 60 + str(number),
    }
    return data | ({"sold": f"2024-0{chance.randrange(1, 7)}-01"} if chance.random() < 0.7 else {})


class Asked:
    """The items of a store, counting what is asked of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pages = 0
        self.items = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store.items, name)

    async def find(self, query: Query) -> Page:
        self.pages += 1
        return await self.store.items.find(query)

    async def get_many(self, collection: str, ids: list[str]) -> Any:
        self.items += len(ids)
        return await self.store.items.get_many(collection, ids)


class Shop:
    def __init__(self, store: Store, index: MemoryIndex) -> None:
        self.asked = Asked(store)
        self.store = replace(store, items=cast("ItemStore", self.asked))
        self.index = index
        self.pages = PageFinder(self.store, index)

    async def write(self, *writes: Any) -> None:
        await self.index.sync((await self.store.items.write("lamps", writes))[-1].seq)

    async def check(self, query: Query, *, from_memory: bool = True) -> None:
        """A page is that of the store, to the last cursor, and of the same walk."""
        before = self.asked.pages
        page = await self.pages.find(query)
        assert (self.asked.pages == before) == from_memory, query
        while True:
            told = await self.asked.store.items.find(query)
            assert (page.items, page.total, bool(page.cursor)) == (told.items, told.total, bool(told.cursor)), query
            if not page.cursor:
                break
            query = replace(query, cursor=page.cursor)
            page = await self.pages.find(query)


async def opened(url: str) -> Shop:
    store = await open_store(url)
    await store.collections.declare(Collection("lamps"))
    index = MemoryIndex(store, None)
    await index.start()
    return Shop(store, index)


@pytest.fixture
async def shops(tmp_path: Path) -> AsyncIterator[list[Shop]]:
    """Two processes on one store."""
    url = f"sqlite:///{tmp_path / 'site.db'}"
    found = [await opened(url), await opened(url)]
    await found[0].write(*(Put(f"lamp-{number:03}", lamp(number)) for number in range(250)))
    await found[1].index.sync(await found[1].store.changes.head())
    yield found
    for each in found:
        await each.index.close()
        await each.store.close()


@pytest.fixture
def shop(shops: list[Shop]) -> Shop:
    return shops[0]


@pytest.mark.parametrize("query", QUERIES)
async def test_a_page_from_memory_is_that_of_the_store(shop: Shop, query: Query) -> None:
    await shop.check(query)


@pytest.mark.parametrize("query", FOR_THE_STORE)
async def test_what_the_index_does_not_tell_or_not_quickly_the_store_is_asked(shop: Shop, query: Query) -> None:
    await shop.check(query, from_memory=False)


@pytest.mark.parametrize("query", QUERIES)
async def test_a_page_is_cached_until_somebody_writes(shops: list[Shop], query: Query) -> None:
    shop, elsewhere = shops
    told = await shop.asked.store.items.find(query)
    page = await shop.pages.find(query)
    assert not page.is_cached
    assert (page.items, page.total, bool(page.cursor)) == (told.items, told.total, bool(told.cursor))
    assert await shop.pages.find(query) == replace(page, is_cached=True)

    await elsewhere.write(Remove(told.items[0].id) if told.items else Put("lamp-999", lamp(999)))
    assert not (await shop.pages.find(query)).is_cached


async def test_a_write_is_noticed_within_one_turn_of_the_event_loop(tmp_path: Path) -> None:
    shop = await opened(f"sqlite:///{tmp_path / 'site.db'}")
    await shop.write(Put("one", lamp(1)))

    before = shop.store.changes.stamp()
    unchanged = shop.store.changes.stamp()
    with closing(apsw.Connection(str(tmp_path / "site.db"))) as elsewhere:
        elsewhere.execute("CREATE TABLE elsewhere (written)")
    after = shop.store.changes.stamp()  # nobody had a turn in between

    assert before is not None
    assert after is not None
    assert before == unchanged < after
    await shop.index.close()
    await shop.store.close()


@pytest.mark.parametrize("query", QUERIES)
async def test_writes_of_all_kinds_are_on_the_very_next_page(shops: list[Shop], query: Query) -> None:
    here, there = shops
    for step in range(4):
        await there.store.items.write(
            "lamps", [Put(f"lamp-{n:03}", lamp(n + 1000 * step)) for n in range(step, 240, 17)]
        )
        await there.store.items.write("lamps", [Remove(f"lamp-{240 + step}"), Merge("lamp-007", {"price": step})])
        await here.check(query, from_memory=False)  # the index has not read of it yet

        await here.index.sync(await here.store.changes.head())
        await here.check(replace(query, limit=query.limit + 1))


async def test_an_item_is_read_once_and_again_when_it_changes(shop: Shop) -> None:
    await shop.pages.find(BY_PRICE)
    read = shop.asked.items
    await shop.pages.find(replace(BY_PRICE, where=parse_filter({"colour": "red", "price": {"$lt": 70.5}})))
    assert shop.asked.items == read

    first = (await shop.pages.find(BY_PRICE)).items[0]
    await shop.write(Merge(first.id, {"price": first.data["price"], "name": "Vega"}))
    assert [item.data.get("name") for item in (await shop.pages.find(BY_PRICE)).items].count("Vega") == 1
    assert read < shop.asked.items <= read + 2  # one more stands behind the page


async def test_a_field_that_lies_elsewhere_now_is_the_stores(shops: list[Shop]) -> None:
    here, there = shops
    query = Query("lamps", where=Condition("width", "gte", 5), order=(Order("width"),))
    await there.store.collections.declare(
        Collection("lamps", {"width": Field("width", FieldType.INTEGER, "size.width", declared=True)})
    )
    await here.check(query, from_memory=False)
    assert (await here.pages.find(query)).items


async def test_a_large_collection_is_looked_through_in_a_thread(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_INLINE_TESTS", 100)
    for query in QUERIES:
        await shop.check(query)


async def test_what_is_written_while_items_are_read_is_not_mixed_with_them(shop: Shop) -> None:
    plain = shop.asked.get_many

    async def late(collection: str, ids: list[str]) -> Any:
        await shop.store.items.write("lamps", [Merge(ids[0], {"price": 1})])
        return await plain(collection, ids)

    shop.asked.get_many = late  # type: ignore[method-assign]
    page = await shop.pages.find(BY_PRICE)
    assert shop.asked.pages == 1
    assert page.items == (await shop.asked.store.items.find(BY_PRICE)).items


async def test_items_are_kept_as_far_as_there_is_room(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_ITEMS_BYTES", 5_000)
    shop.pages = PageFinder(shop.store, shop.index)
    for query in QUERIES:
        await shop.check(query)

    await shop.pages.find(Query("lamps", limit=100))
    read = shop.asked.items
    await shop.pages.find(Query("lamps", limit=101))
    assert shop.asked.items >= read + 80


async def test_without_an_index_everything_is_the_stores(shop: Shop) -> None:
    shop.pages = PageFinder(shop.store, None)
    await shop.check(Query("lamps"), from_memory=False)


async def test_a_long_collection_is_sorted_in_runs(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "SORT_CHUNK", 17)
    monkeypatch.setattr(columns, "SCAN_CHUNK", 13)
    for query in QUERIES:
        await shop.check(query)
