"""The items that an item links to, and those that link to it, out of the collections that a caller may read.

A link to an item that is not there, or that the caller may not read, is nothing but the value of its field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.catalog import ID, Collection
from portico.items import Item
from portico.links import FieldLink, linked_ids, linking_filter, links_among
from portico.presentation import present
from portico.query import Condition, Query
from portico.requests import Caller
from portico.site import Site

MAX_FIELDS = 32  # links of one item that are followed
MAX_LINKED = 20  # items of one field
MAX_LINKING = 12  # items of one collection that link to an item
MAX_GROUPS = 8  # collections and fields that link to an item


@dataclass(frozen=True, slots=True)
class LinkingItems:
    """Items of a collection that link to an item through a field."""

    collection: Collection
    field: str
    items: tuple[Item, ...]
    has_more: bool


def readable_links(site: Site, caller: Caller) -> list[FieldLink]:
    """Return the links between collections that a caller may read."""
    collections = site.catalog.collections
    return links_among(collections[name] for name in site.access.readable(caller) if name in collections)


async def linked_items(site: Site, item: Item, caller: Caller) -> Mapping[str, Sequence[Item]]:
    """Return the items that an item links to, by field. The caller's request must be admitted."""
    links = [link for link in readable_links(site, caller) if link.collection == item.collection][:MAX_FIELDS]
    targets: dict[str, Sequence[Item]] = {}
    for link in links:
        ids = linked_ids(item.data, site.catalog.collections[link.collection].fields[link.field])[:MAX_LINKED]
        if ids:
            query = Query(link.target, where=Condition(ID, "in", tuple(ids)))
            page = await site.further_page(query, MAX_LINKED)
            targets[link.field] = [present(target, site.catalog.collections[link.target]) for target in page.items]
    return {field: items for field, items in targets.items() if items}


async def linking_items(site: Site, item: Item, caller: Caller) -> list[LinkingItems]:
    """Return the first items that link to an item, by collection and field. The request must be admitted."""
    groups: list[LinkingItems] = []
    for link in readable_links(site, caller):
        if link.target != item.collection or len(groups) >= MAX_GROUPS:
            continue
        collection = site.catalog.collections[link.collection]
        where = linking_filter(collection.fields[link.field], [item.id])
        if where is None:
            continue
        page = await site.further_page(Query(collection.name, where=where), MAX_LINKING)
        items = tuple(present(other, collection) for other in page.items)
        if items:
            groups.append(LinkingItems(collection, link.field, items, bool(page.cursor)))
    return groups


def describe_links(links: Mapping[str, Sequence[Item]], collections: Mapping[str, Collection]) -> dict[str, Any]:
    """Return linked items for programs, by field: their collection, id and title."""
    return {
        field: [
            {"collection": item.collection, "id": item.id, "title": collections[item.collection].title_of(item.data)}
            for item in items
        ]
        for field, items in links.items()
    }
