"""What items say of each other. A field leads to an item by its id, @id or url, or by an object of the same name.

A link is read the same way from both its ends, so that what leads somewhere is also found from there.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from portico.catalog import ID, Collection, FieldType
from portico.items import MAX_ID, TITLES, Item
from portico.query import MAX_CONDITIONS, MAX_LIST, MAX_VALUES, Condition, Or, Query
from portico.requests import Caller
from portico.site import Site

VOCABULARY = ("isPartOf", "mentions", "author", "sameAs")
KEYS = (ID, "@id", "url")  # what an item can be called by
NAME = "name"
# Fields that say what the item itself is, not what it has to do with others.
OWN = frozenset({*KEYS, "@type", "@context", *TITLES, "description"})
MAX_MENTIONS = 128  # of one item
MAX_FOUND = 200  # items of one collection, by one look
MAX_QUERIES = 60
SECONDS = 5.0

Place: TypeAlias = tuple[str, str]  # the collection and the id of an item


@dataclass(frozen=True, slots=True)
class Mention:
    """What one field of an item says of another item."""

    field: str
    keys: frozenset[str] = frozenset()
    name: str = ""
    types: frozenset[str] = frozenset()

    def may_be(self, item: Item) -> bool:
        """Whether an item of the same name is of the kind that is meant."""
        return not self.types or not self.types.isdisjoint(_texts(item.data.get("@type")))


@dataclass(frozen=True, slots=True)
class Link:
    """One item leads to another through a field."""

    source: Item
    target: Item
    type: str


def place_of(item: Item) -> Place:
    return item.collection, item.id


def keys_of(item: Item) -> frozenset[str]:
    return frozenset({item.id, *(key for each in KEYS if each != ID for key in _texts(item.data.get(each)))})


def _names_of(item: Item) -> frozenset[str]:
    return _texts(item.data.get(NAME))


def linking(collection: Collection) -> list[str]:
    """The fields that could lead to other items."""
    kinds = {FieldType.STRING, FieldType.OBJECT, FieldType.ARRAY, FieldType.ANY}
    known = collection.fields.values()
    own = (each for each in known if each.type in kinds and not each.path and "." not in each.name)
    return [each.name for each in own if each.name not in OWN]


def mentions_of(item: Item, relationship: str = "") -> list[Mention]:
    """What an item says of others, in one of its fields or in all."""
    found = (
        mention
        for name, value in item.data.items()
        if name not in OWN and (not relationship or name == relationship)
        for mention in _read(name, value)
    )
    return list(dict.fromkeys(mention for mention, _ in zip(found, range(MAX_MENTIONS), strict=False)))


def _read(name: str, value: Any) -> Iterator[Mention]:
    for each in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if isinstance(each, str) and 0 < len(each) <= MAX_ID:
            yield Mention(name, frozenset({each}))
        elif isinstance(each, Mapping):
            yield from _read_object(name, cast("Mapping[str, Any]", each))


def _read_object(name: str, said: Mapping[str, Any]) -> Iterator[Mention]:
    keys = frozenset(key for each in KEYS for key in _texts(said.get(each)))
    # Whoever is named by an @id is that one and nobody else of the same name.
    called = "" if "@id" in said else next(iter(_texts(said.get(NAME))), "")
    if keys or called:
        yield Mention(name, keys, called, _texts(said.get("@type")))


def _texts(value: Any) -> frozenset[str]:
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    return frozenset(each for each in values if isinstance(each, str) and 0 < len(each) <= MAX_ID)


@dataclass(slots=True)
class Linked:
    """Finds linked items for one caller, among the collections it may read, as far as one answer may cost."""

    site: Site
    caller: Caller
    collections: tuple[str, ...]
    relationship: str = ""
    queries: int = 0
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    is_cut: bool = False  # there was more than could be looked at

    async def outgoing(self, items: Sequence[Item]) -> list[Link]:
        """Where these items lead."""
        said = [(item, mention) for item in items for mention in mentions_of(item, self.relationship)]
        found = await self._meant([mention for _, mention in said])
        return _links(said, found)

    async def incoming(self, items: Sequence[Item]) -> list[Link]:
        """What leads to these items."""
        keys = sorted({key for item in items for key in keys_of(item)})
        names = sorted({name for item in items for name in _names_of(item)})
        found: list[Item] = []
        for collection in self._known():
            wanted = [each for each in linking(collection) if self.relationship in {"", each}]
            found += await self._find(collection, _mentioning(collection, wanted, keys, names))
        said = [(other, mention) for other in found for mention in mentions_of(other, self.relationship)]
        return _links(said, items)

    async def _meant(self, mentions: Sequence[Mention]) -> list[Item]:
        keys = sorted({key for mention in mentions for key in mention.keys})
        names = sorted({mention.name for mention in mentions if mention.name})
        found: list[Item] = []
        for collection in self._known() if mentions else ():
            called = [Condition(each, "in", part) for each in KEYS if _has(collection, each) for part in _parts(keys)]
            named = [Condition(NAME, "in", part) for part in _parts(names) if _has(collection, NAME)]
            found += await self._find(collection, [*called, *named])
        return found

    def _known(self) -> Iterator[Collection]:
        """The collections as they are now; one that has gone is passed over."""
        known = self.site.catalog.collections
        return (known[name] for name in self.collections if name in known)

    async def _find(self, collection: Collection, tests: Sequence[Condition]) -> list[Item]:
        found: dict[str, Item] = {}
        for some in _batches(tests):
            if self.queries >= MAX_QUERIES or time.monotonic() > self.until:
                self.is_cut = True
                break
            self.queries += 1
            page = await self.site.query(Query(collection.name, where=Or(some), limit=MAX_FOUND), self.caller)
            self.is_cut = self.is_cut or bool(page.cursor)
            found.update({item.id: item for item in page.items})
        return list(found.values())


def _batches(tests: Sequence[Condition]) -> Iterator[tuple[Condition, ...]]:
    """Tests in parts that one question may have."""
    some: list[Condition] = []
    for test in tests:
        values = sum(len(each.value) for each in (*some, test))
        if len(some) == MAX_CONDITIONS or values > MAX_VALUES:
            yield tuple(some)
            some = []
        some.append(test)
    if some:
        yield tuple(some)


def _has(collection: Collection, name: str) -> bool:
    return name == ID or name in collection.fields


def _parts(values: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(values[start : start + MAX_LIST]) for start in range(0, len(values), MAX_LIST)]


def _mentioning(
    collection: Collection, fields: Iterable[str], keys: Sequence[str], names: Sequence[str]
) -> list[Condition]:
    """The tests that items pass which lead to one of these keys or names."""
    tests: list[Condition] = []
    for name in fields:
        known = collection.fields[name].type
        if known != FieldType.OBJECT:
            tests += [Condition(name, "in", part) for part in _parts(keys)]
        if known != FieldType.STRING:
            tests += [Condition(f"{name}.{each}", "in", part) for each in KEYS for part in _parts(keys)]
            tests += [Condition(f"{name}.{NAME}", "in", part) for part in _parts(names)]
    return tests


def _links(said: Iterable[tuple[Item, Mention]], known: Sequence[Item]) -> list[Link]:
    """What the mentions lead to among known items: other items than their own, each once."""
    by_key, by_name = _by(known, keys_of), _by(known, _names_of)
    found: dict[tuple[Place, Place, str], Link] = {}
    for source, mention in said:
        called = [item for key in mention.keys for item in by_key.get(key, ())]
        named = [item for item in by_name.get(mention.name, ()) if mention.may_be(item)]
        for target in (*called, *named):
            if place_of(target) != place_of(source):
                found.setdefault(
                    (place_of(source), place_of(target), mention.field), Link(source, target, mention.field)
                )
    return list(found.values())


def _by(items: Sequence[Item], told: Callable[[Item], Iterable[str]]) -> Mapping[str, Sequence[Item]]:
    found: dict[str, list[Item]] = {}
    for item in items:
        for each in told(item):
            found.setdefault(each, []).append(item)
    return found
