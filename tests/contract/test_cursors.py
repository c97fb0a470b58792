"""Walking a query page by page: everything once, whatever is written meanwhile."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import Opening
from tests.contract.shelf import all_ids, fill, walk

from portico.errors import InvalidCursor
from portico.query import Condition, Order, Query, parse_filter
from portico.store import Store
from portico.store.records import Put, Remove

MIXED: list[Any] = [3, 1.5, "a", "b", True, False, None, [1], {"x": 1}, 3, "a", 10**17, -1]
SHELF = {f"i{n:02}": {"n": n % 4, "v": MIXED[n % 13], "t": f"2024-01-{n % 5 + 1:02}"} for n in range(40)}
ORDERS = [
    (),
    (Order("n"),),
    (Order("n", descending=True),),
    (Order("v"),),
    (Order("v", descending=True),),
    (Order("t", descending=True), Order("v"), Order("n")),
    (Order("id", descending=True),),
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("limit", [1, 7, 40])
async def test_a_walk_gives_every_item_once_in_the_order_of_the_whole(
    backend: Store, order: tuple[Order, ...], limit: int
) -> None:
    await fill(backend, SHELF)
    whole = await backend.items.find(Query("things", order=order, limit=1000))

    pages = await walk(backend, Query("things", order=order, limit=limit))

    assert all_ids(pages) == [item.id for item in whole.items]
    assert set(all_ids(pages)) == set(SHELF)
    assert all(len(page.items) == limit for page in pages[:-1])


async def test_the_limit_may_change_between_pages(store: Store) -> None:
    await fill(store, SHELF)
    query = Query("things", order=(Order("n"),), limit=3)

    first = await store.items.find(query)
    rest = await store.items.find(replace(query, cursor=first.cursor, limit=100, count=True))

    assert len({item.id for item in (*first.items, *rest.items)}) == 40
    assert (rest.cursor, rest.total) == ("", 40)


async def test_a_walk_survives_writes_before_and_behind_it(store: Store) -> None:
    await fill(store, {f"i{n}": {"n": n} for n in range(1, 9)})
    query = Query("things", order=(Order("n"),), limit=3)
    first = await store.items.find(query)

    await store.items.write("things", [Remove("i3"), Remove("i2"), Put("new0", {"n": 0}), Put("new4", {"n": 4.5})])
    await store.items.write("things", [Put("i8", {"n": 1.5}), Remove("i5")])
    rest = await walk(store, replace(query, cursor=first.cursor))

    assert [item.id for item in first.items] == ["i1", "i2", "i3"]
    assert all_ids(rest) == ["i4", "new4", "i6", "i7"]


@pytest.mark.parametrize(
    ("first", "later"),
    [(list(range(6)), "text"), ([f"2024-01-0{n}" for n in range(1, 7)], "soon"), (["PT1M"] * 6, "a while")],
    ids=["integer", "timestamp", "duration"],
)
async def test_a_cursor_from_before_its_field_changed_its_kind_is_refused_or_goes_on(
    store: Store, first: list[Any], later: str
) -> None:
    await fill(store, {f"i{n}": {"v": value} for n, value in enumerate(first)})
    query = Query("things", order=(Order("v"),), limit=2)
    page = await store.items.find(query)
    await fill(store, {"z": {"v": later}})

    try:
        rest = all_ids(await walk(store, replace(query, cursor=page.cursor)))
    except InvalidCursor:
        return
    assert rest == ["i2", "i3", "i4", "i5", "z"]


@pytest.mark.parametrize(
    "other",
    [
        Query("things", order=(Order("n", descending=True),), limit=2),
        Query("things", order=(Order("t"),), limit=2),
        Query("things", order=(Order("n"),), where=Condition("n", "gt", 0), limit=2),
        Query("things", order=(Order("n"),), fields=("n",), limit=2),
        Query("others", order=(Order("n"),), limit=2),
    ],
    ids=["direction", "field", "filter", "projection", "collection"],
)
async def test_a_cursor_of_another_query_is_refused(store: Store, other: Query) -> None:
    await fill(store, SHELF)
    await fill(store, SHELF, "others")
    page = await store.items.find(Query("things", order=(Order("n"),), limit=2))

    with pytest.raises(InvalidCursor):
        await store.items.find(replace(other, cursor=page.cursor))


async def test_filters_that_python_takes_for_equal_have_different_cursors(store: Store) -> None:
    await fill(store, {f"i{n}": {"n": n} for n in range(5)})
    query = Query("things", where=parse_filter({"n": {"$ne": 1}}), limit=2)
    page = await store.items.find(query)

    with pytest.raises(InvalidCursor):
        await store.items.find(replace(query, where=parse_filter({"n": {"$ne": True}}), cursor=page.cursor))


async def test_a_cursor_with_any_character_changed_is_refused(store: Store) -> None:
    await fill(store, SHELF)
    query = Query("things", order=(Order("n"),), limit=2)
    cursor = (await store.items.find(query)).cursor

    for at in range(0, len(cursor) - 1, 5):
        changed = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
        with pytest.raises(InvalidCursor):
            await store.items.find(replace(query, cursor=changed))


@pytest.mark.parametrize("cut", [1, 4, 8, 16, 21, 22, 23, -1, -4])
async def test_a_truncated_cursor_is_refused(backend: Store, cut: int) -> None:
    await fill(backend, SHELF)
    query = Query("things", order=(Order("n"),), limit=2)
    cursor = (await backend.items.find(query)).cursor

    with pytest.raises(InvalidCursor):
        await backend.items.find(replace(query, cursor=cursor[:cut]))


@pytest.mark.parametrize(
    "garbage",
    ["x", "====", "not a cursor", "é", "\0", "\ud800", base64.urlsafe_b64encode(b"\0" * 40).decode(), "A" * 10_000],
    ids=lambda text: ascii(text)[:20],
)
async def test_garbage_is_refused(backend: Store, garbage: str) -> None:
    await fill(backend, SHELF)

    with pytest.raises(InvalidCursor):
        await backend.items.find(Query("things", cursor=garbage))


async def test_a_cursor_outlives_the_process_that_made_it(url: str, opening: Opening) -> None:
    first = await opening(url)
    await fill(first, SHELF)
    query = Query("things", order=(Order("n"),), limit=15)
    page = await first.items.find(query)
    await first.close()

    again = await opening(url)
    rest = await walk(again, replace(query, cursor=page.cursor))

    assert len({*all_ids(rest), *(item.id for item in page.items)}) == 40


async def test_a_cursor_of_another_store_is_refused(opening: Opening, url: str) -> None:
    here, there = await opening(url), await opening("sqlite:///:memory:")
    await fill(here, SHELF)
    await fill(there, SHELF)
    page = await here.items.find(Query("things", limit=2))

    with pytest.raises(InvalidCursor):
        await there.items.find(Query("things", limit=2, cursor=page.cursor))
