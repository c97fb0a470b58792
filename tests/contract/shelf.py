"""Short ways to fill a store and to read it out again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from portico.catalog import Collection
from portico.items import Change, Item
from portico.query import Filter, Page, Query, parse_filter
from portico.store import Store
from portico.store.records import Put

Shelf = Mapping[str, Mapping[str, Any]]


async def fill(store: Store, shelf: Shelf, name: str = "things") -> list[Change]:
    """Declare a collection if it is new, and put items into it."""
    if name not in store.collections.schema:
        await store.collections.declare(Collection(name))
    return await store.items.write(name, [Put(id, data) for id, data in shelf.items()])


async def ids(store: Store, where: Mapping[str, Any] | Filter, name: str = "things") -> list[str]:
    """The ids that match, in their own order."""
    found = parse_filter(where) if isinstance(where, Mapping) else where
    page = await store.items.find(Query(name, where=found, limit=1000))
    return [item.id for item in page.items]


async def walk(store: Store, query: Query) -> list[Page]:
    """Every page of a query, following its cursor. A walk that does not end is cut off and fails the test."""
    pages = [await store.items.find(query)]
    while pages[-1].cursor:
        assert len(pages) < 1000, "the walk does not end"
        pages.append(await store.items.find(replace(query, cursor=pages[-1].cursor)))
    return pages


def all_items(pages: list[Page]) -> list[Item]:
    return [item for page in pages for item in page.items]


def all_ids(pages: list[Page]) -> list[str]:
    return [item.id for item in all_items(pages)]


def all_rows(pages: list[Page]) -> list[dict[str, Any]]:
    return [dict(row) for page in pages for row in page.rows]
