"""One site on SQLite and on PostgreSQL: whatever is asked, both give the same pages."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.databases import empty_schema
from tests.search.index.toy_model import ToyModel

from portico.catalog import ID, Collection, Field, FieldType
from portico.errors import SiteError
from portico.field_names import segments
from portico.items import Item
from portico.query import (
    MATCH_ALL,
    OPERATORS,
    Aggregate,
    Aggregation,
    And,
    Condition,
    Filter,
    NearVector,
    Not,
    Or,
    Order,
    Page,
    Query,
    condition,
    values_at,
)
from portico.search.finder import Finder, SearchTarget
from portico.search.index.memory import MemoryIndex
from portico.store import Store, open_store
from portico.store.records import Merge, Put, Remove, Write

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITEMS = {"stock": 250, "people": 120, "notes": 80}
BATCH = 40
LONGEST_WALK = 12  # pages

WORDS = (
    "apple", "Apple", "äpfel", "soup", "broth", "car", "vehicle", "kitten", "red", "lentil", "日本", "🦊", "naïve",
    "e\u0301clair", "éclair", "ZEBRA", "zebra", "a", "ﬁne", "ß", "İstanbul", "100%", "o'clock", "under_score",
)  # fmt: skip
TIMES = (
    "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", "2024-06-01T12:00:00.5Z",
    "2023-12-31T23:00-01:00", "1969-12-31T23:59:59.999999Z", "0001-01-01", "9999-12-31T23:59:59.999999Z",
    "2024-02-29 08:30",
)  # fmt: skip
LENGTHS = ("PT1H", "PT60M", "PT90S", "PT0S", "P1D", "PT24H", "P1W", "PT0.5S", "PT1.25S")
NUMBERS = (
    0, 1, 1.0, -1, 2, 2.5, 0.1, 0.30000000000000004, 1e-7, 1e16, 12345678901234567890, 2**53, 2**53 + 1, 2**63 - 1,
    -(2**63) + 1, 1e300, -0.0, 3, 7,
)  # fmt: skip
ODD_TEXTS = ("", " ", "%", "_", "\\", '"', "'", "\n", "1", "1.0", "true", "null", "\u202e", "\ufeff", "\U0010ffff", "￿")
PATTERNS = ("", "^a", "(?i)APPLE", "[0-9]+", "é", ".$", "^(so|br)", r"\bred\b", "^2024-0", "PT", "🦊|日")
TEXTS = (
    "soup",
    "apple car",
    "kitten broth",
    "red",
    "éclair",
    "日本",
    "lentil soup apple",
    "nothing of this",
    "zebra naïve",
)

DECLARED = {
    "stock": Collection(
        "stock",
        {
            "alias": Field("alias", FieldType.STRING, "o.x", declared=True),
            "rating": Field("rating", FieldType.NUMBER, "o.rating", declared=True),
            "since": Field("since", FieldType.TIMESTAMP, declared=True),
        },
        title="Stock",
        type="Product",
    ),
    "people": Collection("people"),
    "notes": Collection("notes", weights={"name": 3.0}),
}


class Maker:
    """Makes items and questions about them, always the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)

    def often(self, share: float) -> bool:
        return self.source.random() < share

    def one(self, *values: Any) -> Any:
        return self.source.choice(values)

    # Items

    def text(self) -> str:
        return " ".join(self.source.choices(WORDS, k=self.source.randint(1, 4)))

    def scalar(self) -> Any:
        choice = self.source.randrange(7)
        kinds = (NUMBERS, ODD_TEXTS, WORDS, TIMES, LENGTHS, (True, False, None), NUMBERS)
        return self.source.choice(kinds[choice])

    def value(self, depth: int = 0) -> Any:
        match self.source.randrange(4 if depth < 2 else 2):
            case 2:
                return [self.value(depth + 1) for _ in range(self.source.randrange(3))]
            case 3:
                return {
                    self.one("x", "y", "x.y", "z z"): self.value(depth + 1) for _ in range(self.source.randrange(3))
                }
            case _:
                return self.scalar()

    def vector(self) -> Any:
        if self.often(0.05):
            return [0.0] * 16
        if self.often(0.1):
            return [self.source.randint(-1, 1) for _ in range(16)]
        return [round(self.source.gauss(0, 1), 3) for _ in range(24 if self.often(0.1) else 16)]

    def data(self, collection: str) -> dict[str, Any]:
        fields: dict[str, Callable[[], Any]] = {
            "name": self.text,
            "description": lambda: " ".join(self.text() for _ in range(3)),
            "count": lambda: self.source.randint(-3, 4),
            "big": lambda: self.source.choice((2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1, 5)),
            "price": lambda: self.source.choice((*NUMBERS, round(self.source.uniform(0, 50), 2))),
            "cost": lambda: round(self.source.uniform(0, 50), 2),
            "flag": lambda: self.often(0.5),
            "when": lambda: self.source.choice(TIMES),
            "lasts": lambda: self.source.choice(LENGTHS),
            "tags": lambda: self.source.choices(WORDS, k=self.source.randrange(4)),
            "mixed": self.value,
            "o": self.nested,
            "parts": lambda: [self.part() for _ in range(self.source.randrange(4))],
            "v": self.vector,
            "kind": lambda: self.one("a", "b", "c"),
            "odd": lambda: self.source.choice(ODD_TEXTS),
            "since": lambda: self.source.choice((*TIMES, "soon", 7, None)),
        }
        left_out = {"stock": (), "people": ("v", "parts", "since"), "notes": ("price", "mixed", "lasts")}[collection]
        data: dict[str, Any] = {}
        for name, make in fields.items():
            if name not in left_out and not self.often(0.15):
                data[name] = None if self.often(0.08) else make()
        return data

    def nested(self) -> dict[str, Any]:
        return {
            "x": self.scalar(),
            "rating": self.source.choice(NUMBERS[:12]),
            "deep": {
                "z": self.one(1, 2, "2", None, True),
                "list": [self.scalar() for _ in range(self.source.randrange(3))],
            },
            **({"loose": self.value()} if self.often(0.5) else {}),
        }

    def part(self) -> dict[str, Any]:
        return {"name": self.source.choice(WORDS), "n": self.source.randrange(5), "sub": [{"k": self.scalar()}]}

    # Questions

    def path(self, collection: Collection) -> str:
        nested = ("o.x", "o.rating", "o.deep.z", "o.deep.list", "o.loose", "o.loose.x", "parts.n", "parts.name")
        known = [path for path in (*nested, "parts.sub.k", "mixed.x") if path.split(".")[0] in collection.fields]
        return self.source.choice([ID, *collection.fields, *known])

    def condition(self, collection: Collection, items: Sequence[Item]) -> Condition:
        path = self.path(collection)
        wanted = lambda: self.wanted(collection, items, path)  # noqa: E731 - short and used at once
        match self.source.choice(tuple(OPERATORS)):
            case "in" | "nin" as op:
                return condition(path, op, [wanted() for _ in range(self.one(0, 1, 3, 120))])
            case "between":
                return condition(path, "between", [wanted(), wanted()])
            case "exists":
                return condition(path, "exists", self.often(0.5))
            case "regex":
                return condition(path, "regex", self.source.choice(PATTERNS))
            case "contains":
                value = wanted()
                part = value[: self.source.randint(1, 4)] if isinstance(value, str) and self.often(0.5) else value
                return condition(path, "contains", "a" if part is None else part)
            case op:
                return condition(path, op, wanted())

    def wanted(self, collection: Collection, items: Sequence[Item], path: str) -> Any:
        """A value that lies there in some item, or any at all."""
        if path == ID or self.often(0.15):
            return self.one(self.scalar(), self.source.choice(items).id)
        data = self.source.choice(items).data
        there = [each for value in values_at(data, segments(collection.field(path).where)) for each in scalars(value)]
        return self.source.choice(there) if there else self.scalar()

    def filter(self, collection: Collection, items: Sequence[Item], depth: int = 0) -> Filter:
        if depth > 2 or self.often(0.45):
            return self.condition(collection, items)
        parts = tuple(self.filter(collection, items, depth + 1) for _ in range(self.source.randint(1, 3)))
        return self.one(And(parts), Or(parts), Not(parts[0]))

    def order(self, collection: Collection) -> tuple[Order, ...]:
        return tuple(Order(self.path(collection), self.often(0.5)) for _ in range(self.source.randrange(4)))

    def page(self, collection: Collection, items: Sequence[Item]) -> Query:
        return Query(
            collection.name,
            where=MATCH_ALL if self.often(0.15) else self.filter(collection, items),
            order=self.order(collection),
            fields=tuple({self.path(collection) for _ in range(self.source.randrange(4))}) if self.often(0.3) else (),
            limit=self.one(1, 3, 7, 20, 1000) if self.often(0.4) else 50,
            count=self.often(0.5),
        )

    def near(self, collection: Collection, items: Sequence[Item]) -> Query:
        field = "v" if "v" in collection.fields and self.often(0.6) else ""
        size = (16 if self.often(0.85) else 24) if field else ToyModel.dimensions
        vector = [0.0] * size if self.often(0.05) else [round(self.source.gauss(0, 1), 3) for _ in range(size)]
        near = NearVector(
            tuple(vector),
            field,
            top=self.one(1, 5, 20, 1000),
            threshold=round(self.source.uniform(-0.5, 0.6), 2) if self.often(0.3) else None,
            metric=self.one("cosine", "euclidean", "dot_product"),
        )
        where = MATCH_ALL if self.often(0.3) else self.filter(collection, items)
        return Query(collection.name, near=near, where=where, limit=self.one(3, 10, 100))

    def aggregate(self, collection: Collection, items: Sequence[Item]) -> Query:
        # How a sum of very large and very small numbers is rounded depends on the order of its parts.
        numbers = [name for name in ("count", "cost", "lasts") if name in collection.fields]
        operations = [Aggregation("count", "all")]
        for function in self.source.sample(("sum", "avg", "min", "max", "count_distinct", "count"), 3):
            of = self.source.choice(numbers) if function in {"sum", "avg"} else self.path(collection)
            operations.append(Aggregation(function, f"{function}_of_it", of))
        keys = tuple(dict.fromkeys(self.path(collection) for _ in range(self.source.randrange(3))))
        names = [*keys, *(each.alias for each in operations)]
        having = MATCH_ALL
        if self.often(0.4):
            having = Condition(self.source.choice(names), self.one("gt", "ne", "lte", "eq"), self.scalar())
        return Query(
            collection.name,
            where=MATCH_ALL if self.often(0.4) else self.filter(collection, items),
            aggregate=Aggregate(tuple(operations), keys, having),
            order=tuple(Order(name, self.often(0.5)) for name in self.source.sample(names, self.source.randrange(3))),
            limit=self.one(2, 10, 1000),
        )

    def search(self, collection: Collection, items: Sequence[Item]) -> Query:
        return Query(
            collection.name,
            text=self.source.choice(TEXTS),
            where=MATCH_ALL if self.often(0.3) else self.filter(collection, items),
            order=self.order(collection) if self.often(0.2) else (),
            limit=self.one(2, 5, 20, 100),
            count=self.often(0.5),
        )

    def changes(self, items: Sequence[Item]) -> list[Write]:
        """Some items of each kind of change; an item is named once."""
        name = items[0].collection
        writes: list[Write] = []
        for item in self.source.sample(items, len(items) // 3):
            match self.source.randrange(3):
                case 0:
                    writes.append(Remove(item.id, expect=item.version if self.often(0.5) else None))
                case 1:
                    writes.append(Merge(item.id, {self.one("mixed", "o", "name", "v"): None, "flag": self.often(0.5)}))
                case _:
                    writes.append(Put(item.id, self.data(name)))
        fresh = [Put(f"new{n}", {**self.data(name), "later": self.value()}) for n in range(len(items) // 10)]
        return [*writes, *fresh]


def scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from scalars(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from scalars(each)
    else:
        yield value


@dataclass
class Side:
    """One of the two stores, with what searches it."""

    store: Store
    finder: Finder
    crowded: Finder  # whose vectors are too many to be held, so that the store compares them


@dataclass
class Both:
    sqlite: Side
    postgres: Side
    maker: Maker
    items: dict[str, list[Item]]

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.sqlite, self.postgres

    @property
    def collections(self) -> list[Collection]:
        return [self.sqlite.store.collections.schema[name] for name in DECLARED]

    async def compare(
        self,
        count: int,
        make: Callable[[Collection, Sequence[Item]], Query],
        ask: Callable[[Side, Query], Awaitable[Page]],
    ) -> None:
        """Ask both the same questions. What differs is told with the question."""
        answered = 0
        for number in range(count):
            collection = self.collections[number % len(self.collections)]
            query = make(collection, self.items[collection.name])
            here, there = [await answers(side, query, ask) for side in self.sides]
            assert here == there, f"\n{query}\nsqlite:   {first_difference(here, there)}"
            answered += len(here) > 0 and not here[0].startswith("refused")
        assert answered > count * 0.6  # most questions have a meaning


def first_difference(here: list[str], there: list[str]) -> str:
    if len(here) != len(there):
        return f"{len(here)} lines\npostgres: {len(there)} lines\n{here[:3]}\n{there[:3]}"
    mine, other = next((a, b) for a, b in zip(here, there, strict=True) if a != b)
    start = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), 0)
    return f"…{mine[max(start - 60, 0) : start + 120]}\npostgres: …{other[max(start - 60, 0) : start + 120]}"


async def answers(side: Side, query: Query, ask: Callable[[Side, Query], Awaitable[Page]]) -> list[str]:
    """The pages of a question as text, or why it is refused. Numbers of items keep their kind: 1 is not 1.0."""
    lines: list[str] = []
    while len(lines) < LONGEST_WALK:
        try:
            page = await ask(side, query)
        except SiteError as error:
            return [*lines, f"refused: {type(error).__name__} {error} {error.details}"]
        lines.append(shown(page))
        if not page.cursor:
            return lines
        query = replace(query, cursor=page.cursor)
    return lines


def shown(page: Page) -> str:
    items = [(item.id, item.version, item.data) for item in page.items]
    parts = (page.total, bool(page.cursor), page.notes, page.scores, items, [plain(row) for row in page.rows])
    return msgspec.json.encode(parts, order="sorted").decode()


def plain(value: Any) -> Any:
    """A computed value with its numbers in one form: 1 is 1.0 in JSON, and a database need not tell them apart."""
    match value:
        case bool():
            return value
        case int() | float() if isfinite(value):
            return int(value) if value == int(value) and abs(value) < 2**63 else float(value)
        case list():
            return [plain(each) for each in value]
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case _:
            return value


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["as it was loaded", "after changes"])
async def both(request: pytest.FixtureRequest, postgres: str) -> AsyncIterator[Both]:
    maker = Maker(7)
    async with AsyncExitStack() as open_parts:
        urls = ("sqlite:///:memory:", open_parts.enter_context(empty_schema(postgres)))
        stores = [await open_store(url) for url in urls]
        for store in stores:
            open_parts.push_async_callback(store.close)
        for name, collection in DECLARED.items():
            puts = [Put(f"{name}/{n:03}", maker.data(name)) for n in range(ITEMS[name])]
            for store in stores:
                await store.collections.declare(collection)
                await load(store, name, puts)
        if request.param == "after changes":
            for name in DECLARED:
                writes = maker.changes(await everything(stores[0], name))
                for store in stores:
                    await store.items.write(name, writes)
        sides = [await searchable(store, open_parts) for store in stores]
        yield Both(*sides, maker, {name: await everything(stores[0], name) for name in DECLARED})


async def load(store: Store, name: str, puts: Sequence[Put]) -> None:
    """Half is loaded from a source, half is written."""
    half = len(puts) // 2
    begun = await store.loads.begin(f"{name}.json")
    for start in range(0, half, BATCH):
        await store.loads.put(begun, name, puts[start : min(start + BATCH, half)])
    for start in range(half, len(puts), BATCH):
        await store.items.write(name, puts[start : start + BATCH])
    await store.loads.finish(begun)
    await store.collections.optimize(name)


async def everything(store: Store, name: str) -> list[Item]:
    return sorted([item async for items in store.items.scan(name) for item in items], key=lambda item: item.id)


async def searchable(store: Store, open_parts: AsyncExitStack) -> Side:
    model = ToyModel()
    finders: list[Finder] = []
    for held in (100_000, 10):
        index = MemoryIndex(store, model, max_vectors=held)
        open_parts.push_async_callback(index.close)
        await index.start()
        for name in store.collections.schema:
            while await index.embed_batch(name):
                pass
        finders.append(Finder(store, index, model))
    return Side(store, *finders)


def by_store(side: Side, query: Query) -> Awaitable[Page]:
    return side.store.items.find(query)


def by_index(side: Side, query: Query) -> Awaitable[Page]:
    return side.finder.find(query)


def by_crowded_index(side: Side, query: Query) -> Awaitable[Page]:
    return side.crowded.find(query)


async def test_both_hold_the_same_items_fields_and_changes(both: Both) -> None:
    here, there = (side.store for side in both.sides)

    assert here.collections.schema == there.collections.schema
    assert list(here.collections.schema) == list(there.collections.schema)
    assert all(
        list(here.collections.schema[name].fields) == list(there.collections.schema[name].fields)
        for name in here.collections.schema
    )
    for name in here.collections.schema:
        mine, other = [
            [each async for some in store.backup.read_items(name) for each in some] for store in (here, there)
        ]
        assert mine == other
        assert len(mine) > 50
        assert await here.vectors.count(name, "toy-1") == await there.vectors.count(name, "toy-1")
    told = [
        [(c.seq, c.kind, c.item, c.patch, c.undo) for c in await store.changes.list_since(0, 10_000)]
        for store in (here, there)
    ]
    assert told[0] == told[1]
    assert await here.changes.head() == await there.changes.head()


async def test_both_give_the_same_pages(both: Both) -> None:
    await both.compare(80, both.maker.page, by_store)


async def test_both_count_and_list_the_same(both: Both) -> None:
    for number in range(90):
        collection = both.collections[number % 3]
        where = both.maker.filter(collection, both.items[collection.name])
        counts = [await side.store.items.count(collection.name, where) for side in both.sides]
        matching = [sorted(await side.store.items.list_ids(collection.name, where)) for side in both.sides]

        assert (counts[0], matching[0]) == (counts[1], matching[1]), where
        assert counts[0] == len(matching[0])


async def test_both_compute_the_same_rows(both: Both) -> None:
    await both.compare(60, both.maker.aggregate, by_store)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 2**63 - 1, 1e16, 10**18, 0.1])
async def test_both_say_the_same_of_sums_that_grow_large(both: Both, value: float) -> None:
    name = f"large{str(value).translate(str.maketrans('+-.', 'pmd'))}"
    # An average is of a sum that one rounds on the way and the other does not.
    functions = ("sum", "min", "max") if abs(value) > 1e307 else ("sum", "avg", "min", "max")
    said: list[list[list[str]]] = []
    for side in both.sides:
        await side.store.collections.declare(Collection(name))
        await side.store.items.write(name, [Put(f"i{n}", {"x": value}) for n in range(3)])
        queries = [Query(name, aggregate=Aggregate((Aggregation(each, "it", "x"),))) for each in functions]
        said.append([await answers(side, query, by_store) for query in queries])

    assert dict(zip(functions, said[0], strict=True)) == dict(zip(functions, said[1], strict=True))


async def test_both_find_the_same_neighbours(both: Both) -> None:
    await both.compare(40, both.maker.near, by_store)
    await both.compare(25, both.maker.near, by_index)
    await both.compare(25, both.maker.near, by_crowded_index)


async def test_both_find_the_same_by_words_and_meaning(both: Both) -> None:
    await both.compare(25, both.maker.search, by_index)
    await both.compare(10, both.maker.search, by_crowded_index)


async def test_both_rank_all_collections_the_same(both: Both) -> None:
    for text in TEXTS:
        here, there = [
            await side.finder.find_across(
                [SearchTarget(name, Condition("flag", "eq", True)) for name in DECLARED], text, 25
            )
            for side in both.sides
        ]
        assert here[1] == there[1]
        assert [hit.item for hit in here[0]] == [hit.item for hit in there[0]]
        assert [hit.score for hit in here[0]] == pytest.approx([hit.score for hit in there[0]], abs=1e-6)
