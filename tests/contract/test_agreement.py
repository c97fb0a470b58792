"""Three engines answer the same filters: the store, `query.matches`, and the masks of the index. They must agree."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.contract.shelf import all_ids, walk

from portico.catalog import ID, Collection, Field, FieldType, scalar_at, type_of
from portico.errors import UnknownField
from portico.field_names import segments
from portico.items import Item
from portico.query import (
    MATCH_ALL,
    OPERATORS,
    And,
    Condition,
    Filter,
    Not,
    Or,
    Order,
    Query,
    condition,
    matches,
    validate_query,
    values_at,
)
from portico.search.index.columns import NeedsStore
from portico.search.index.segment import StemVocabulary, build_segment, dump_segment, load_segment, merge_segments
from portico.search.index.snapshot import Snapshot
from portico.search.pages import sort_items
from portico.store import Store
from portico.store.records import Put

FIELDS = ("a", "b", "c", "id", "o")
PATHS = ("a", "b", "c", "id", "o", "o.x", "o.y", "o.x.y", "o.x.y.x", "o.x.y.x.y", "a.x", "b.x.y", "alias", "list")
ALIASES = {"alias": "o.x", "list": "o.y"}
LONG = "long " * 50
numbered = itertools.count()

texts = st.one_of(
    st.sampled_from(
        [
            "", "a", "A", "ab", "b", "é", "e\u0301", "日本", "🦊", "1", "1.0", "true", "null", "%", "_", "'", '"', "\\",
            "\n", LONG, LONG + "end",
        ]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=4),
)  # fmt: skip
times = st.sampled_from(
    [
        "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", "2024-01-01 00:00", "2024-06-01T12:00:00.5Z",
        "1969-12-31T23:59:59.999999Z", "2024-13-01", "0001-01-01", "9999-12-31T23:59:59.999999Z",
    ]
)  # fmt: skip
lengths = st.sampled_from(["PT1H", "PT60M", "PT90S", "PT0S", "P1D", "PT24H", "P1W", "PT0.5S", "P", "P1Y", "PT"])
numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0, 1e300, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 9007199254740992.0]),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, times, lengths)
keys = st.sampled_from(["x", "y", "x.y", "z z"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=2)),
    max_leaves=6,
)
# A field is mostly of one kind, so that columns stay typed; sometimes of any.
KINDS: tuple[st.SearchStrategy[Any], ...] = (
    st.one_of(st.none(), texts),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), numbers),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), times.filter(lambda text: text[5:7] != "13")),
    st.one_of(st.none(), lengths.filter(lambda text: text not in {"P", "P1Y", "PT"})),
    st.dictionaries(keys, values, max_size=2),
    values,
)


@st.composite
def shelves(draw: st.DrawFn) -> list[dict[str, Any]]:
    kinds = {name: draw(st.sampled_from(KINDS)) for name in FIELDS if name != "o"}
    nested = st.dictionaries(keys, values, min_size=1, max_size=3)
    item = st.fixed_dictionaries({"o": st.one_of(nested, st.lists(nested, max_size=3), values)}, optional=kinds)
    return draw(st.lists(item, min_size=3, max_size=6))


def paths_into(shelf: Sequence[dict[str, Any]]) -> list[str]:
    """The paths of which the collection of these items will know at least the beginning."""
    tops = {name: {type_of(d.get(name)) for d in shelf} - {None} for name in FIELDS}
    known = [name for name, kinds in tops.items() if kinds]
    nested = {name for name in known if not all(kind and kind.is_scalar for kind in tops[name])}
    return [ID, "alias", "list", *known, *(path for path in PATHS if "." in path and path[0] in nested)]


@st.composite
def conditions_on(draw: st.DrawFn, shelf: Sequence[dict[str, Any]]) -> Condition:
    """A condition on some path, mostly about a value that lies there."""
    path = draw(st.sampled_from(paths_into(shelf)))
    place = segments(ALIASES.get(path, path))
    there = [each for data in shelf for value in values_at(data, place) for each in mentioned(value)]
    wanted = st.one_of(st.sampled_from([*there, "i1"]), st.sampled_from([*there, "i2"]), scalars)
    op = draw(st.sampled_from(tuple(OPERATORS)))
    match op:
        case "in" | "nin":
            return condition(path, op, draw(st.lists(wanted, max_size=3)))
        case "between":
            return condition(path, op, [draw(wanted), draw(wanted)])
        case "exists":
            return condition(path, op, draw(st.booleans()))
        case "regex":
            return condition(path, op, draw(st.sampled_from(PATTERNS)))
        case "contains":
            value = draw(wanted)
            return condition(path, op, "a" if value is None else value)
        case _:
            return condition(path, op, draw(wanted))


PATTERNS = ("", "a", "^1", "(?i)A", "^2024-01", "PT", ".$", "end", "é")


def filters(plain: st.SearchStrategy[Condition]) -> st.SearchStrategy[Filter]:
    pair = st.tuples(plain, plain)
    tree = st.one_of(pair.map(And), pair.map(Or), pair.map(lambda both: And((both[0], Not(both[1])))))
    return st.one_of(plain, plain, plain.map(Not), tree, tree.map(Not))


def mentioned(value: Any) -> list[Any]:
    """The plain values inside a value, to ask for them."""
    if isinstance(value, dict):
        return [each for inner in value.values() for each in mentioned(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in mentioned(inner)]
    return [value]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[Filter]]:
    shelf = draw(shelves())
    return shelf, draw(st.lists(filters(conditions_on(shelf)), min_size=6, max_size=10))


async def shelve(store: Store, shelf: Sequence[dict[str, Any]]) -> tuple[Collection, list[Item]]:
    """A fresh collection with these items, written one by one so that fields widen on the way."""
    name = f"c{next(numbered)}"
    declared = {
        "alias": Field("alias", FieldType.STRING, ALIASES["alias"], declared=True),
        "list": Field("list", FieldType.ARRAY, ALIASES["list"], declared=True),
    }
    await store.collections.declare(Collection(name, declared))
    for number, data in enumerate(shelf):
        await store.items.write(name, [Put(f"i{number}", data)])
    stored = await store.items.get_many(name, [f"i{number}" for number in range(len(shelf))])
    return store.collections.schema[name], list(stored.values())


def is_known(where: Filter, collection: Collection) -> bool:
    try:
        matches(where, Item("", collection.name, {}), collection)
        for each in _conditions(where):
            collection.field(each.field)
    except UnknownField:
        return False
    return True


def _conditions(where: Filter) -> list[Condition]:
    match where:
        case And(parts) | Or(parts):
            return [each for part in parts for each in _conditions(part)]
        case Not(part):
            return _conditions(part)
        case Condition():
            return [where]


def segmented(items: Sequence[Item], collection: Collection) -> dict[str, Snapshot]:
    """The same items in the index in several ways."""
    words = StemVocabulary()
    whole = build_segment(items, collection, words)
    singles = [build_segment([item], collection, words) for item in items]
    alive = [np.ones(1, bool) for _ in singles]
    merged = merge_segments(singles, alive)
    loaded, loaded_words = load_segment(dump_segment(whole, words))
    full = np.ones(len(items), bool)
    return {
        "whole": Snapshot(collection, words, (whole,), (full,)),
        "spread": Snapshot(collection, words, tuple(singles), tuple(alive)),
        "merged": Snapshot(collection, words, (merged,), (full,)),
        "loaded": Snapshot(collection, loaded_words, (loaded,), (full,)),
    }


async def masked(store: Store, snapshot: Snapshot, where: Filter) -> list[str]:
    name = snapshot.collection.name
    resolved = {
        each: frozenset(await store.items.list_ids(name, each)) for each in snapshot.list_store_conditions(where)
    }
    return sorted(
        id
        for segment in snapshot.segments
        for id, hit in zip(
            segment.ids, segment.columns.mask(where, snapshot.collection, resolved).tolist(), strict=True
        )
        if hit
    )


async def agree(store: Store, shelf: Sequence[dict[str, Any]], wheres: Sequence[Filter]) -> None:
    collection, items = await shelve(store, shelf)
    snapshots = segmented(items, collection)
    for where in wheres:
        if not is_known(where, collection):
            continue
        said = sorted(item.id for item in items if matches(where, item, collection))
        page = await store.items.find(Query(collection.name, where=where, limit=1000))
        answers = {"matches": said, "store": sorted(item.id for item in page.items)}
        for way, snapshot in snapshots.items():
            answers[f"index {way}"] = await masked(store, snapshot, where)
        assert answers == dict.fromkeys(answers, said), f"{where} on {shelf}"


RELAXED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    # Shrinking fills the store with hundreds of collections; the message already names one filter and its items.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@RELAXED
@given(cases())
async def test_store_index_and_python_find_the_same_items(
    backend: Store, case: tuple[list[dict[str, Any]], list[Filter]]
) -> None:
    await agree(backend, *case)


@pytest.mark.parametrize(
    ("shelf", "where"),
    [
        ([{"id": 1}], Condition("id", "eq", "i0")),
        ([{"id": [1]}], Condition("id", "eq", "i0")),
        ([{"id": "2024-01-01"}], Condition("id", "gte", "i0")),
        ([{"o": {"y": ["x"]}}], Condition("list", "contains", "x")),
        ([{"o": {"x.y": 1}}], Condition("o.x.y", "eq", 1)),
        ([{"o": {"x.y": 1}}], Condition("o.x.y", "exists", True)),
        ([{"a": 2**53 + 1}], Condition("a", "eq", 2**53)),
        ([{"a": 2**53 + 1}], Condition("a", "gt", 2**53)),
        ([{"o": {"x": 2**53 + 1}}], Condition("o.x", "gt", 2**53)),
        ([{"a": 10**25}], Condition("a", "gt", 1)),
        ([{"o": {"x": 10**25}}], Condition("o.x", "gt", 1)),
        ([{"o": {"x": 10**25}}], Condition("o.x", "eq", 10**25)),
        ([{"a": LONG}, {"a": LONG + "end"}], Condition("a", "eq", LONG)),
        ([{"a": LONG}, {"a": LONG + "end"}], Condition("a", "regex", "end")),
        ([{"o": {"x": [[{"y": 1}]]}}], Condition("o.x.y", "exists", True)),
    ],
    ids=str,
)
async def test_they_agree_on_what_once_told_them_apart(
    backend: Store, shelf: list[dict[str, Any]], where: Filter
) -> None:
    await agree(backend, shelf, [where, Not(where)])


@pytest.mark.parametrize(
    ("first", "then"),
    [(1, True), (True, 1), (0, False), (1, 1.0), ((1, 2), (True, 2)), ((0,), (False,))],
    ids=str,
)
@pytest.mark.parametrize("path", ["a", "o.x"])
async def test_one_and_true_stay_different_when_asked_one_after_the_other(
    backend: Store, path: str, first: Any, then: Any
) -> None:
    shelf = [{"a": value, "o": {"x": value}} for value in (0, 1, True, False, 2, "1")]
    op = "in" if isinstance(first, tuple) else "eq"

    await agree(
        backend,
        shelf,
        [
            Condition(path, op, first),
            Condition(path, op, then),
            And((Condition(path, op, first), Not(Condition(path, op, then)))),
            Or((Condition(path, op, then), Condition(path, op, first))),
        ],
    )


async def test_one_and_true_stay_different_when_only_the_store_can_tell(backend: Store) -> None:
    deep = {"x": {"y": {"x": {"y": 1}}}}
    shelf = [{"o": deep}, {"o": {"x": {"y": {"x": {"y": True}}}}}]
    path = "o.x.y.x.y"

    await agree(backend, shelf, [And((Condition(path, "eq", 1), Not(Condition(path, "eq", True))))])


def expected_order(items: Sequence[Item], order: Sequence[Order], collection: Collection) -> list[str]:
    """Numbers, texts, booleans, the other way round when descending; without a value last; ties by id."""
    ranked = sorted(items, key=lambda item: item.id)
    for key in reversed(order):
        field = collection.field(key.field)
        placed: list[tuple[tuple[int, Any] | None, Item]] = []
        for item in ranked:
            if field.name == ID:
                value: Any = item.id
            else:
                value = field.comparable_value(item.data) if field.is_typed else scalar_at(item.data, field.where)
            match value:
                case bool():
                    placed.append(((2, value), item))
                case int() | float():
                    placed.append(((0, value), item))
                case str():
                    placed.append(((1, value), item))
                case _:
                    placed.append((None, item))
        there = [(place, item) for place, item in placed if place is not None]
        there.sort(key=lambda pair: pair[0], reverse=key.descending)
        ranked = [item for _, item in there] + [item for place, item in placed if place is None]
    return [item.id for item in ranked]


@RELAXED
@given(shelves(), st.lists(st.builds(Order, st.sampled_from(PATHS), st.booleans()), max_size=3), st.integers(1, 4))
async def test_the_store_orders_as_the_rules_say_and_walks_the_same_way(
    backend: Store, shelf: list[dict[str, Any]], order: list[Order], limit: int
) -> None:
    collection, items = await shelve(backend, shelf)
    try:
        expected = expected_order(items, order, collection)
    except UnknownField:
        return

    whole = await backend.items.find(Query(collection.name, order=tuple(order)))
    pages = await walk(backend, Query(collection.name, order=tuple(order), limit=limit))

    assert [item.id for item in whole.items] == expected, f"{order} on {shelf}"
    assert all_ids(pages) == expected
    if all(key.field == ID or collection.field(key.field).is_typed for key in order):
        for page in pages[:-1]:
            query = Query(collection.name, order=tuple(order), limit=limit)
            made = await backend.items.find(replace(query, cursor=backend.items.cursor(query, page.items[-1])))
            told = await backend.items.find(replace(query, cursor=page.cursor))
            assert made == told, f"{order} on {shelf}"


@RELAXED
@given(
    cases(),
    st.lists(st.builds(Order, st.sampled_from(PATHS), st.booleans(), st.booleans()), max_size=3),
    st.integers(1, 7),
)
async def test_the_index_arranges_as_the_store_does(
    backend: Store, case: tuple[list[dict[str, Any]], list[Filter]], order: list[Order], limit: int
) -> None:
    collection, items = await shelve(backend, case[0])
    data = {item.id: item for item in items}
    for where in [MATCH_ALL, *case[1]]:
        try:
            asked = validate_query(
                Query(collection.name, where=where, order=tuple(order), limit=limit, count=True), collection
            )
        except UnknownField:
            continue
        page = await backend.items.find(asked)
        for way, snapshot in segmented(items, collection).items():
            try:
                found = snapshot.list_sorted(where, asked.order, limit)
            except NeedsStore:
                continue
            first = sort_items((data[id] for run in found.runs for _, _, id in run), asked.order, collection)
            told = [item.id for item in first[:limit]], found.total
            assert told == ([item.id for item in page.items], page.total), f"{way}: {asked} on {case[0]}"
