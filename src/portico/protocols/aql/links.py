"""Links between items. A field links to an item by its id, @id or url, or by an object with the same name.

A field whose values are the ids of one collection, such as a foreign key, links to nothing else.

Links are read the same way from both ends, so that each one is found from its target too.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from portico.catalog import ID, Collection, Field, FieldType
from portico.items import MAX_ID, TITLES, Item
from portico.links import linked_ids, linking_filter
from portico.query import MAX_CONDITIONS, MAX_LIST, MAX_VALUES, Condition, Or, Query
from portico.requests import Caller
from portico.site import Site

VOCABULARY = ("isPartOf", "mentions", "author", "sameAs")
KEYS = (ID, "@id", "url")  # fields that identify an item
NAME = "name"
# Fields that describe the item itself, and never link to others.
OWN = frozenset({*KEYS, "@type", "@context", *TITLES, "description"})
MAX_MENTIONS = 128  # of one item
MAX_FOUND = 200  # items of one collection, by one query
MAX_QUERIES = 60
TIMEOUT_SECONDS = 5.0

ItemKey: TypeAlias = tuple[str, str]  # the collection and the id of an item


@dataclass(frozen=True, slots=True)
class Mention:
    """A reference from a field of one item to another."""

    field: str
    keys: frozenset[str] = frozenset()
    name: str = ""
    types: frozenset[str] = frozenset()
    target: str = ""  # the collection that holds the item; empty for any

    def leads_to(self, item: Item, key: str) -> bool:
        return not self.target or (item.collection == self.target and item.id == key)

    def may_be(self, item: Item) -> bool:
        """Return whether an item with the same name also has one of the types."""
        return not self.types or not self.types.isdisjoint(_texts(item.data.get("@type")))


@dataclass(frozen=True, slots=True)
class ItemLink:
    """A link from one item to another through a field."""

    source: Item
    target: Item
    type: str


def item_key(item: Item) -> ItemKey:
    return item.collection, item.id


def references_of(item: Item) -> frozenset[str]:
    return frozenset({item.id, *(key for field in KEYS if field != ID for key in _texts(item.data.get(field)))})


def _names_of(item: Item) -> frozenset[str]:
    return _texts(item.data.get(NAME))


def link_fields(collection: Collection) -> list[str]:
    """Return the fields that could link to other items."""
    kinds = {FieldType.STRING, FieldType.OBJECT, FieldType.ARRAY, FieldType.ANY}
    fields = collection.fields.values()
    candidates = (field for field in fields if field.type in kinds and not field.path and "." not in field.name)
    targets = (field.name for field in fields if field.target)
    return list(dict.fromkeys([*targets, *(field.name for field in candidates if field.name not in OWN)]))


def mentions_of(item: Item, relationship: str = "", targets: Mapping[str, Field] | None = None) -> list[Mention]:
    """Return the references in one field of an item, or in all. `targets` are its fields that hold ids."""
    fields = targets or {}
    mentions = (
        mention
        for name, value in item.data.items()
        if (name in fields or name not in OWN) and (not relationship or name == relationship)
        for mention in (_read_ids(item, fields[name]) if name in fields else _read(name, value))
    )
    return list(dict.fromkeys(mention for mention, _ in zip(mentions, range(MAX_MENTIONS), strict=False)))


def _read_ids(item: Item, field: Field) -> Iterator[Mention]:
    return (Mention(field.name, frozenset({id}), target=field.target) for id in linked_ids(item.data, field))


def _read(name: str, value: Any) -> Iterator[Mention]:
    for element in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if isinstance(element, str) and 0 < len(element) <= MAX_ID:
            yield Mention(name, frozenset({element}))
        elif isinstance(element, Mapping):
            yield from _read_object(name, cast("Mapping[str, Any]", element))


def _read_object(name: str, value: Mapping[str, Any]) -> Iterator[Mention]:
    keys = frozenset(key for field in KEYS for key in _texts(value.get(field)))
    # A reference with an @id does not also match by name.
    name_ = "" if "@id" in value else next(iter(_texts(value.get(NAME))), "")
    if keys or name_:
        yield Mention(name, keys, name_, _texts(value.get("@type")))


def _texts(value: Any) -> frozenset[str]:
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    return frozenset(text for text in values if isinstance(text, str) and 0 < len(text) <= MAX_ID)


@dataclass(slots=True)
class LinkFinder:
    """Finds linked items in the collections that one caller may read, within the limits of one request."""

    site: Site
    caller: Caller
    collections: tuple[str, ...]
    relationship: str = ""
    queries: int = 0
    deadline: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_SECONDS)
    is_truncated: bool = False  # a limit was reached

    async def find_outgoing(self, items: Sequence[Item]) -> list[ItemLink]:
        """Return the links out of these items."""
        mentions = [(item, mention) for item in items for mention in self._mentions_of(item)]
        items_ = await self._find_targets([mention for _, mention in mentions])
        return _match_links(mentions, items_)

    async def find_incoming(self, items: Sequence[Item]) -> list[ItemLink]:
        """Return the links into these items."""
        keys = sorted({key for item in items for key in references_of(item)})
        names = sorted({name for item in items for name in _names_of(item)})
        others: list[Item] = []
        for collection in self._current_collections():
            fields = [field for field in link_fields(collection) if self.relationship in {"", field}]
            plain = [field for field in fields if not collection.fields[field].target]
            tests = [
                *_mention_conditions(collection, plain, keys, names),
                *_target_conditions([collection.fields[field] for field in fields], items),
            ]
            others += await self._find(collection, tests)
        mentions = [(other, mention) for other in others for mention in self._mentions_of(other)]
        return _match_links(mentions, items)

    def _mentions_of(self, item: Item) -> list[Mention]:
        collection = self.site.catalog.collections.get(item.collection)
        fields = collection.fields.values() if collection else ()
        return mentions_of(item, self.relationship, {field.name: field for field in fields if field.target})

    async def _find_targets(self, mentions: Sequence[Mention]) -> list[Item]:
        keys = sorted({key for mention in mentions if not mention.target for key in mention.keys})
        names = sorted({mention.name for mention in mentions if mention.name})
        items: list[Item] = []
        for collection in self._current_collections() if mentions else ():
            ids = sorted({key for mention in mentions if mention.target == collection.name for key in mention.keys})
            id_conditions = [Condition(ID, "in", part) for part in _chunks(ids)]
            key_conditions = [
                Condition(field, "in", part) for field in KEYS if _has(collection, field) for part in _chunks(keys)
            ]
            name_conditions = [Condition(NAME, "in", part) for part in _chunks(names) if _has(collection, NAME)]
            items += await self._find(collection, [*id_conditions, *key_conditions, *name_conditions])
        return items

    def _current_collections(self) -> Iterator[Collection]:
        """Yield the collections that still exist, as they are now."""
        collections = self.site.catalog.collections
        return (collections[name] for name in self.collections if name in collections)

    async def _find(self, collection: Collection, tests: Sequence[Condition]) -> list[Item]:
        items: dict[str, Item] = {}
        for batch in _batches(tests):
            if self.queries >= MAX_QUERIES or time.monotonic() > self.deadline:
                self.is_truncated = True
                break
            self.queries += 1
            page = await self.site.query(Query(collection.name, where=Or(batch), limit=MAX_FOUND), self.caller)
            self.is_truncated = self.is_truncated or bool(page.cursor)
            items.update({item.id: item for item in page.items})
        return list(items.values())


def _batches(tests: Sequence[Condition]) -> Iterator[tuple[Condition, ...]]:
    """Split conditions into as many as one query may have."""
    batch: list[Condition] = []
    for test in tests:
        values = sum(len(condition.value) for condition in (*batch, test))
        if len(batch) == MAX_CONDITIONS or values > MAX_VALUES:
            yield tuple(batch)
            batch = []
        batch.append(test)
    if batch:
        yield tuple(batch)


def _has(collection: Collection, name: str) -> bool:
    return name == ID or name in collection.fields


def _chunks(values: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(values[start : start + MAX_LIST]) for start in range(0, len(values), MAX_LIST)]


def _mention_conditions(
    collection: Collection, fields: Iterable[str], keys: Sequence[str], names: Sequence[str]
) -> list[Condition]:
    """Return the conditions for items that link to one of these keys or names."""
    tests: list[Condition] = []
    for name in fields:
        type_ = collection.fields[name].type
        if type_ != FieldType.OBJECT:
            tests += [Condition(name, "in", part) for part in _chunks(keys)]
        if type_ != FieldType.STRING:
            tests += [Condition(f"{name}.{key_field}", "in", part) for key_field in KEYS for part in _chunks(keys)]
            tests += [Condition(f"{name}.{NAME}", "in", part) for part in _chunks(names)]
    return tests


def _target_conditions(fields: Iterable[Field], items: Sequence[Item]) -> list[Condition]:
    """Return the conditions for items whose fields hold the ids of these items."""
    tests: list[Condition] = []
    for spec in fields:
        ids = [item.id for item in items if item.collection == spec.target]
        filters = [linking_filter(spec, part) for part in _chunks(ids)]
        tests += [test for test in filters if isinstance(test, Condition)]
    return tests


def _match_links(mentions: Iterable[tuple[Item, Mention]], items: Sequence[Item]) -> list[ItemLink]:
    """Match references with items. Each link appears once, and never from an item to itself."""
    by_key, by_name = _group_by(items, references_of), _group_by(items, _names_of)
    links: dict[tuple[ItemKey, ItemKey, str], ItemLink] = {}
    for source, mention in mentions:
        by_keys = [item for key in mention.keys for item in by_key.get(key, ()) if mention.leads_to(item, key)]
        by_names = [item for item in by_name.get(mention.name, ()) if mention.may_be(item)]
        for target in (*by_keys, *by_names):
            if item_key(target) != item_key(source):
                links.setdefault(
                    (item_key(source), item_key(target), mention.field), ItemLink(source, target, mention.field)
                )
    return list(links.values())


def _group_by(items: Sequence[Item], values_of: Callable[[Item], Iterable[str]]) -> Mapping[str, Sequence[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        for value in values_of(item):
            groups.setdefault(value, []).append(item)
    return groups
