"""The fields of many items as arrays: a filter becomes a mask, an order a list of positions. Knows no store."""

import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from portico.catalog import ID, NUMERIC, Collection, Field, FieldType, storable
from portico.items import MAX_EXACT_INTEGER
from portico.query import (
    NEGATIONS,
    TEXT_BEHIND,
    TEXTUAL,
    And,
    Condition,
    Filter,
    Not,
    Or,
    Order,
    compare,
    compile_pattern,
    operand,
)

MAX_TEXT = 200  # longer texts stay in the store, which tests conditions on them
MAX_DEPTH = 4
MAX_MASKS = 64  # cached for each set of items
MAX_VALUES = 16  # values of a condition whose mask is cached
MAX_ORDERS = 8
SORT_CHUNK = 10_000  # values sorted at a time
SCAN_CHUNK = 4096  # positions of an order that are scanned at a time
Mask: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int32]
_SCALE: dict[str, Callable[[Any, Any], Mask]] = {
    "eq": np.equal,
    "lt": np.less,
    "lte": np.less_equal,
    "gt": np.greater,
    "gte": np.greater_equal,
}

K = TypeVar("K")
V = TypeVar("V")
Entry: TypeAlias = tuple[type, Any, bool]
Leaf: TypeAlias = tuple[str, Any, bool]  # path, value, whether it is an element of an array


class _Present:
    """Stands for an object or an array as a whole: it exists and equals nothing."""


PRESENT = _Present()


class NeedsStore(Exception):
    """The columns do not hold enough to test a condition or to sort; the store has to."""


class IndexColumn:
    """The values of one path: distinct entries, and which item has which entry."""

    def __init__(
        self,
        values: list[Any],
        in_array: NDArray[np.bool_],
        docs: Ints,
        entries: Ints,
        partial: bool,
        kind: FieldType,
    ) -> None:
        self.values = values  # distinct; None for null, PRESENT for an object or an array as a whole
        self.in_array = in_array  # parallel to values
        self.docs = docs
        self.entries = entries  # parallel to docs: index into values
        self.partial = partial  # some texts were cut to MAX_TEXT
        self.type = kind
        self._numbers = np.fromiter((_as_number(value) for value in values), np.float64, len(values))
        self._has_others = bool(np.isnan(self._numbers).any())  # some values are not numbers
        self._nulls = np.fromiter((value is None for value in values), bool, len(values))
        self._is_whole: bool | None = None
        self._ranks: Ints | None = None  # parallel to values
        self._positions: dict[Entry, int] | None = None

    def test(self, count: int, op: str, target: Any) -> Mask:
        """Return a mask of the `count` items that satisfy a condition without negation."""
        if op == "exists":
            return self._docs_with(count, ~self._nulls) == target
        if op == "eq" and target is None:
            return ~self._docs_with(count, ~self._nulls) | self._docs_with(count, self._nulls)
        if op == "in" and None in target:
            rest = tuple(item for item in target if item is not None)
            return self.test(count, "eq", None) | self.test(count, "in", rest)
        return self._docs_with(count, self._hits(op, target))

    def counts(self, live: Mask) -> Iterator[tuple[Any, int]]:
        """Yield each value that live items have, and how many of them. Skip texts that were cut."""
        counts = np.bincount(self.entries[live[self.docs]], minlength=len(self.values)).tolist()
        for value, count in zip(self.values, counts, strict=True):
            whole = not isinstance(value, str) or len(value) < MAX_TEXT
            if count and whole and value is not None and value is not PRESENT:
                yield value, count

    def ranks(self, count: int) -> Ints:
        """Rank the value of each of `count` items among all values of a typed field; -1 for items without a value."""
        if self.partial:
            raise NeedsStore
        if self._ranks is None:
            self._ranks = self._compute_ranks()
        ranks = np.full(count, -1, np.int32)
        ranks[self.docs] = self._ranks[self.entries]
        return ranks

    def _compute_ranks(self) -> Ints:
        """Rank the values. 1 and 1.0 are two values with the same rank."""
        if not self._has_others and (np.abs(self._numbers) <= MAX_EXACT_INTEGER).all():
            return np.unique(self._numbers, return_inverse=True)[1].astype(np.int32)
        try:
            order = argsort(self.values)
        except TypeError:  # the type of the field has changed, and some values are older
            raise NeedsStore from None
        ranks = np.zeros(len(self.values), np.int32)
        rank, before = -1, None
        for place in order:
            rank += self.values[place] != before
            before = self.values[place]
            ranks[place] = rank
        return ranks

    def _docs_with(self, count: int, hits: Mask) -> Mask:
        if self._has_one_each(count):
            return hits[self.entries]
        mask = np.zeros(count, bool)
        mask[self.docs[hits[self.entries]]] = True
        return mask

    def _has_one_each(self, count: int) -> bool:
        """Whether every item has exactly one value, so that entries are parallel to items."""
        if self._is_whole is None:
            self._is_whole = len(self.docs) == count and bool((self.docs == np.arange(count)).all())
        return self._is_whole

    def _hits(self, op: str, target: Any) -> Mask:
        match op:
            case "in":
                numbers = [item for item in target if _is_number(item)]
                hits = [self._hits("eq", item) for item in target if not _is_number(item)]
                if any(abs(number) > MAX_EXACT_INTEGER for number in numbers):
                    raise NeedsStore
                return np.logical_or.reduce([np.isin(self._numbers, numbers), *hits])
            case "between":
                return self._hits("gte", target[0]) & self._hits("lte", target[1])
            case _ if _is_number(target) and op in _SCALE:
                return self._numeric_hits(op, target)
            case _ if self.partial and isinstance(target, str):
                raise NeedsStore
            case "eq":
                return self._equal(target)
            case _:
                return np.fromiter(self._tests(op, target), bool, len(self.values))

    def _numeric_hits(self, op: str, target: float) -> Mask:
        if abs(target) > MAX_EXACT_INTEGER:
            raise NeedsStore
        if not self._has_others:
            return _SCALE[op](self._numbers, target)
        with np.errstate(invalid="ignore"):
            return _SCALE[op](self._numbers, target)

    def _equal(self, target: Any) -> Mask:
        hits = np.zeros(len(self.values), bool)
        positions = self._lookup()
        for inside in (False, True):
            position = positions.get(entry_key(target, inside))
            if position is not None:
                hits[position] = True
        return hits

    def _lookup(self) -> dict[Entry, int]:
        if self._positions is None:
            keys = zip(self.values, self.in_array.tolist(), strict=True)
            self._positions = {entry_key(value, inside): i for i, (value, inside) in enumerate(keys)}
        return self._positions

    def _tests(self, op: str, target: Any) -> Iterator[bool]:
        match op:
            case "contains":
                for value, inside in zip(self.values, self.in_array.tolist(), strict=True):
                    yield compare("eq", value, target) if inside else compare(op, value, target)
            case "regex":
                pattern = compile_pattern(target) if isinstance(target, str) else None
                for value in self.values:
                    yield pattern is not None and isinstance(value, str) and bool(pattern.search(value))
            case _:
                yield from (compare(op, value, target) for value in self.values)


def argsort(values: Sequence[Any]) -> list[int]:
    """Return the positions of values from the least to the greatest."""
    places = range(len(values))
    # One long sort would block every other thread, so sort in chunks and merge these.
    runs = [
        sorted(places[begin : begin + SORT_CHUNK], key=values.__getitem__)
        for begin in range(0, len(places), SORT_CHUNK)
    ]
    return runs[0] if len(runs) == 1 else list(heapq.merge(*runs, key=values.__getitem__))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_number(value: Any) -> float:
    return float(value) if _is_number(value) else np.nan


def entry_key(value: Any, inside: bool) -> Entry:
    """Return a key that distinguishes 1, 1.0, true and "1", as JSON does."""
    return value.__class__, value, inside


@dataclass(slots=True)
class ColumnBuilder:
    type: FieldType
    positions: dict[Entry, int] = field(default_factory=dict[Entry, int])
    docs: list[int] = field(default_factory=list[int])
    entries: list[int] = field(default_factory=list[int])
    partial: bool = False

    def add(self, doc: int, value: Any, inside: bool) -> None:
        if isinstance(value, str) and len(value) > MAX_TEXT:
            self.partial = True
            value = value[:MAX_TEXT]
        elif type(value) is int:
            value = storable(value)
        entry = self.positions.setdefault(entry_key(value, inside), len(self.positions))
        self.docs.append(doc)
        self.entries.append(entry)

    def build(self) -> IndexColumn:
        return IndexColumn(
            [value for _, value, _ in self.positions],
            np.fromiter((inside for _, _, inside in self.positions), bool, len(self.positions)),
            np.asarray(self.docs, np.int32),
            np.asarray(self.entries, np.int32),
            self.partial,
            self.type,
        )


def merge_columns(parts: Sequence[tuple[IndexColumn | None, Ints]]) -> IndexColumn:
    """Merge columns. `renumber` holds the new number of each old item, or -1 if it is gone."""
    positions: dict[Entry, int] = {}
    docs: list[Ints] = []
    entries: list[Ints] = []
    present = [column for column, _ in parts if column]
    for column, renumber in parts:
        if column is None:
            continue
        fresh = [
            positions.setdefault(entry_key(value, inside), len(positions))
            for value, inside in zip(column.values, column.in_array.tolist(), strict=True)
        ]
        moved = renumber[column.docs]
        is_live = moved >= 0
        docs.append(moved[is_live])
        entries.append(np.asarray(fresh, np.int32)[column.entries[is_live]])
    return IndexColumn(
        [value for _, value, _ in positions],
        np.fromiter((inside for _, _, inside in positions), bool, len(positions)),
        np.concatenate(docs),
        np.concatenate(entries),
        any(column.partial for column in present),
        present[0].type,
    )


def leaves(
    data: Mapping[str, Any], typed: Mapping[str, Field], loose: frozenset[str], dotted: frozenset[str] = frozenset()
) -> Iterator[Leaf]:
    """Yield every value of an item with its path: typed fields in their comparable form, others as they are.

    No path leads to what has the same path as a field with dots in its own name.
    """
    for name, spec in typed.items():
        value = spec.comparable_value(data)
        if value is not None:
            yield name, value, False
    for name, value in data.items():
        if name in loose:
            yield from _leaves(name, value, 1, dotted)


def _leaves(path: str, value: Any, depth: int, dotted: frozenset[str]) -> Iterator[Leaf]:
    if isinstance(value, list):
        yield path, PRESENT, False
        for element in cast("list[Any]", value):
            if isinstance(element, Mapping):
                yield from _leaves(path, element, depth, dotted)
            elif not isinstance(element, list):
                yield path, element, True
    elif isinstance(value, Mapping):
        yield path, PRESENT, False
        if depth < MAX_DEPTH:
            for name, inner in cast("Mapping[str, Any]", value).items():
                if "." not in name and f"{path}.{name}" not in dotted:  # else no path can reach it
                    yield from _leaves(f"{path}.{name}", inner, depth + 1, dotted)
    else:
        yield path, value, False


class Columns:
    """All columns of a set of items, with a cache of masks and orders."""

    def __init__(self, ids: Sequence[str], columns: Mapping[str, IndexColumn]) -> None:
        self.ids = ids
        self.columns = columns
        self._masks: dict[tuple[Condition, FieldType], Mask] = {}
        self._orders: dict[tuple[tuple[Order, FieldType], ...], Ints] = {}
        self._ranks: Ints | None = None  # of the ids
        self._lock = threading.Lock()  # held to change the caches

    def mask(self, where: Filter, collection: Collection, resolved: Mapping[Condition, frozenset[str]]) -> Mask:
        match where:
            case And(parts):
                masks = [self.mask(part, collection, resolved) for part in parts]
                return reduce(np.logical_and, masks) if masks else np.ones(len(self.ids), bool)
            case Or(parts):
                masks = [self.mask(part, collection, resolved) for part in parts]
                return reduce(np.logical_or, masks) if masks else np.zeros(len(self.ids), bool)
            case Not(part):
                return ~self.mask(part, collection, resolved)
            case Condition() if resolved and where in resolved:
                ids = resolved[where]
                return np.fromiter((id in ids for id in self.ids), bool, len(self.ids))
            case Condition():
                return self.condition(where, collection)

    def condition(self, condition: Condition, collection: Collection) -> Mask:
        """Return a mask of the items that satisfy a condition; raise NeedsStore if the columns cannot test it."""
        spec = collection.field(condition.field)
        negated = condition.op in NEGATIONS
        op = NEGATIONS.get(condition.op, condition.op)
        key = (Condition(condition.field, op, condition.value) if negated else condition, spec.type)
        mask = self._masks.get(key)
        if mask is None:
            value = operand(spec, op, condition.value) if spec.is_typed else condition.value
            mask = self._test(spec.name if spec.is_typed else spec.where, spec.type, op, value)
            # A large condition would need more memory than its mask.
            values = condition.values
            if len(values) <= MAX_VALUES and all(not isinstance(v, str) or len(v) <= MAX_TEXT for v in values):
                self._cache(self._masks, key, mask, MAX_MASKS)
        return ~mask if negated else mask

    def first(self, mask: Mask, order: Sequence[Order], collection: Collection, limit: int) -> list[int]:
        """Return the first items of a mask in an order, ties by id; raise NeedsStore if the columns cannot sort so."""
        places = self._sort_docs(order, collection)
        results: list[int] = []
        for begin in range(0, len(places), SCAN_CHUNK):
            chunk = places[begin : begin + SCAN_CHUNK]
            results += chunk[mask[chunk]][: limit - len(results)].tolist()
            if len(results) == limit:
                break
        return results

    def _sort_docs(self, order: Sequence[Order], collection: Collection) -> Ints:
        """Return all items in an order."""
        key = tuple((item, collection.field(item.field).type) for item in order)
        places = self._orders.get(key)
        if places is None:
            keys = [self._sort_key(item, collection) for item in order]
            if not order or order[-1].field != ID:
                keys.append(self._sort_key(Order(ID), collection))
            places = np.lexsort(keys[::-1]).astype(np.int32)
            self._cache(self._orders, key, places, MAX_ORDERS)
        return places

    def _sort_key(self, order: Order, collection: Collection) -> Ints:
        """Return a number for each item: the greater, the later in the order."""
        spec = collection.field(order.field)
        count = len(self.ids)
        if spec.name == ID:
            return -self._places_of_ids() if order.descending else self._places_of_ids()
        if not spec.is_typed:
            raise NeedsStore
        column = self.columns.get(spec.name)
        if column is None:
            return np.zeros(count, np.int32)
        if _storage(column.type) != _storage(spec.type):
            raise NeedsStore
        ranks = column.ranks(count)
        keys = -ranks if order.descending else ranks.copy()
        keys[ranks < 0] = -count - 1 if order.absent_first else count + 1
        return keys

    def _places_of_ids(self) -> Ints:
        if self._ranks is None:
            ranks = np.zeros(len(self.ids), np.int32)
            ranks[argsort(self.ids)] = np.arange(len(self.ids), dtype=np.int32)
            self._ranks = ranks
        return self._ranks

    def _cache(self, cache: dict[K, V], key: K, value: V, most: int) -> None:
        with self._lock:
            if len(cache) >= most:
                del cache[next(iter(cache))]
            cache[key] = value

    def _test(self, name: str, kind: FieldType, op: str, target: Any) -> Mask:
        count = len(self.ids)
        if name == ID:
            return np.fromiter((compare(op, id, target) for id in self.ids), bool, count)
        if name.count(".") >= MAX_DEPTH or (op in TEXTUAL and kind in TEXT_BEHIND):
            raise NeedsStore
        column = self.columns.get(name)
        if column is None:
            return np.full(count, _matches_absent(op, target))
        if _storage(column.type) != _storage(kind):
            raise NeedsStore
        return column.test(count, op, target)


def is_quick(condition: Condition, spec: Field) -> bool:
    """Whether columns test a condition with array operations, not value by value."""
    if spec.name == ID:
        return False
    op = NEGATIONS.get(condition.op, condition.op)
    if op in {"eq", "in", "exists"}:
        return True
    ends = condition.value if op == "between" else (condition.value,)
    return op not in TEXTUAL and ((spec.is_typed and spec.type != FieldType.STRING) or all(map(_is_number, ends)))


def _matches_absent(op: str, target: Any) -> bool:
    match op:
        case "exists":
            return not target
        case "in":
            return None in target
        case _:
            return op == "eq" and target is None


def _storage(kind: FieldType) -> str:
    if kind in NUMERIC:
        return "number"
    return kind if kind.is_scalar else "json"


class ColumnsBuilder:
    """Collects the values of items into columns."""

    def __init__(self, collection: Collection) -> None:
        self._typed = {f.name: f for f in collection.fields.values() if f.is_typed}
        self._loose = frozenset(collection.fields) - self._typed.keys()
        self._dotted = frozenset(name for name, f in collection.fields.items() if f.keys)
        self._types = {name: f.type for name, f in collection.fields.items()}
        self._builders: dict[str, ColumnBuilder] = {}

    def read(self, data: Mapping[str, Any]) -> list[Leaf]:
        return list(leaves(data, self._typed, self._loose, self._dotted))

    def add(self, doc: int, values: Iterable[Leaf]) -> None:
        for path, value, inside in values:
            builder = self._builders.get(path)
            if builder is None:
                builder = self._builders[path] = ColumnBuilder(self._types.get(path, FieldType.ANY))
            builder.add(doc, value, inside)

    def build(self) -> dict[str, IndexColumn]:
        return {path: builder.build() for path, builder in self._builders.items()}
