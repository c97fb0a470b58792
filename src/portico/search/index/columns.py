"""Fields of many items as arrays: a filter is a mask, an order a list of places. Knows no store."""

import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from portico.catalog import ID, NUMERIC, Collection, Field, FieldType, storable
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
    compiled,
    operand,
)

MAX_TEXT = 200  # longer texts stay in the store; conditions on them are asked there
MAX_DEPTH = 4
MAX_MASKS = 64  # that are kept, of each set of items
MAX_PARTS = 16  # of a condition whose mask is kept
MAX_ORDERS = 8
SORTED = 10_000  # values in one go
WALKED = 4096  # places of an order that are looked at in one go
Mask: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int32]
_EXACT = 2**53  # integers beyond this are not exact as float64
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
Leaf: TypeAlias = tuple[str, Any, bool]  # path, value, whether it stood in an array


class _Present:
    """Stands for an object or an array as a whole: there, and equal to nothing."""


PRESENT = _Present()


class NeedsStore(Exception):
    """This column does not hold enough to test the condition."""


class Column:
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
        self.in_array = in_array  # beside values
        self.docs = docs
        self.entries = entries  # beside docs: index into values
        self.partial = partial  # some texts were too long to keep whole
        self.type = kind
        self._numbers = np.fromiter((_as_number(value) for value in values), np.float64, len(values))
        self._has_others = bool(np.isnan(self._numbers).any())  # values that are no numbers
        self._nulls = np.fromiter((value is None for value in values), bool, len(values))
        self._is_whole: bool | None = None
        self._ranks: Ints | None = None  # beside values
        self._positions: dict[Entry, int] | None = None

    def test(self, count: int, op: str, wanted: Any) -> Mask:
        """Which of `count` items satisfy a positive condition."""
        if op == "exists":
            return self._having(count, ~self._nulls) == wanted
        if op == "eq" and wanted is None:
            return ~self._having(count, ~self._nulls) | self._having(count, self._nulls)
        if op == "in" and None in wanted:
            rest = tuple(each for each in wanted if each is not None)
            return self.test(count, "eq", None) | self.test(count, "in", rest)
        return self._having(count, self._hits(op, wanted))

    def counts(self, live: Mask) -> Iterator[tuple[Any, int]]:
        """Each value that living items have, and how many of them. Texts that were cut are left out."""
        counted = np.bincount(self.entries[live[self.docs]], minlength=len(self.values)).tolist()
        for value, count in zip(self.values, counted, strict=True):
            whole = not isinstance(value, str) or len(value) < MAX_TEXT
            if count and whole and value is not None and value is not PRESENT:
                yield value, count

    def ranks(self, count: int) -> Ints:
        """Where the value of each of `count` items stands among all values of a typed field; -1 for those without."""
        if self.partial:
            raise NeedsStore
        if self._ranks is None:
            self._ranks = self._ranked()
        ranks = np.full(count, -1, np.int32)
        ranks[self.docs] = self._ranks[self.entries]
        return ranks

    def _ranked(self) -> Ints:
        """A rank for each value. 1 and 1.0 are two values of one rank."""
        if not self._has_others and (np.abs(self._numbers) < _EXACT).all():
            return np.unique(self._numbers, return_inverse=True)[1].astype(np.int32)
        try:
            ordered = places_in_order(self.values)
        except TypeError:  # the field has changed its type, and some values are from before
            raise NeedsStore from None
        ranks = np.zeros(len(self.values), np.int32)
        rank, before = -1, None
        for place in ordered:
            rank += self.values[place] != before
            before = self.values[place]
            ranks[place] = rank
        return ranks

    def _having(self, count: int, hits: Mask) -> Mask:
        if self._has_one_each(count):
            return hits[self.entries]
        mask = np.zeros(count, bool)
        mask[self.docs[hits[self.entries]]] = True
        return mask

    def _has_one_each(self, count: int) -> bool:
        """Whether every item has exactly one value, so that values stand beside items."""
        if self._is_whole is None:
            self._is_whole = len(self.docs) == count and bool((self.docs == np.arange(count)).all())
        return self._is_whole

    def _hits(self, op: str, wanted: Any) -> Mask:
        match op:
            case "in":
                numbers = [each for each in wanted if _is_number(each)]
                hits = [self._hits("eq", each) for each in wanted if not _is_number(each)]
                if any(abs(each) >= _EXACT for each in numbers):
                    raise NeedsStore
                return np.logical_or.reduce([np.isin(self._numbers, numbers), *hits])
            case "between":
                return self._hits("gte", wanted[0]) & self._hits("lte", wanted[1])
            case _ if _is_number(wanted) and op in _SCALE:
                return self._numeric_hits(op, wanted)
            case _ if self.partial and isinstance(wanted, str):
                raise NeedsStore
            case "eq":
                return self._equal(wanted)
            case _:
                return np.fromiter(self._tests(op, wanted), bool, len(self.values))

    def _numeric_hits(self, op: str, wanted: float) -> Mask:
        if abs(wanted) >= _EXACT:
            raise NeedsStore
        if not self._has_others:
            return _SCALE[op](self._numbers, wanted)
        with np.errstate(invalid="ignore"):
            return _SCALE[op](self._numbers, wanted)

    def _equal(self, wanted: Any) -> Mask:
        hits = np.zeros(len(self.values), bool)
        positions = self._lookup()
        for inside in (False, True):
            found = positions.get(entry_key(wanted, inside))
            if found is not None:
                hits[found] = True
        return hits

    def _lookup(self) -> dict[Entry, int]:
        if self._positions is None:
            keys = zip(self.values, self.in_array.tolist(), strict=True)
            self._positions = {entry_key(value, inside): i for i, (value, inside) in enumerate(keys)}
        return self._positions

    def _tests(self, op: str, wanted: Any) -> Iterator[bool]:
        match op:
            case "contains":
                for value, inside in zip(self.values, self.in_array.tolist(), strict=True):
                    yield compare("eq", value, wanted) if inside else compare(op, value, wanted)
            case "regex":
                pattern = compiled(wanted) if isinstance(wanted, str) else None
                for value in self.values:
                    yield pattern is not None and isinstance(value, str) and bool(pattern.search(value))
            case _:
                yield from (compare(op, value, wanted) for value in self.values)


def places_in_order(values: Sequence[Any]) -> list[int]:
    """The places of values from the least to the greatest."""
    places = range(len(values))
    # One long sort would hold up every other thread, so that shorter ones are merged.
    runs = [sorted(places[begin : begin + SORTED], key=values.__getitem__) for begin in range(0, len(places), SORTED)]
    return runs[0] if len(runs) == 1 else list(heapq.merge(*runs, key=values.__getitem__))


def _is_short(wanted: Any) -> bool:
    """Whether what a condition asks for is worth keeping beside its mask."""
    parts = cast("tuple[Any, ...]", wanted) if isinstance(wanted, tuple) else (wanted,)
    return len(parts) <= MAX_PARTS and all(not isinstance(each, str) or len(each) <= MAX_TEXT for each in parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_number(value: Any) -> float:
    return float(value) if _is_number(value) else np.nan


def entry_key(value: Any, inside: bool) -> Entry:
    """Tells 1, 1.0, true and "1" apart, as JSON does."""
    return value.__class__, value, inside


@dataclass(slots=True)
class ColumnBuilder:
    type: FieldType
    known: dict[Entry, int] = field(default_factory=dict[Entry, int])
    docs: list[int] = field(default_factory=list[int])
    entries: list[int] = field(default_factory=list[int])
    partial: bool = False

    def add(self, doc: int, value: Any, inside: bool) -> None:
        if isinstance(value, str) and len(value) > MAX_TEXT:
            self.partial = True
            value = value[:MAX_TEXT]
        elif type(value) is int:
            value = storable(value)
        entry = self.known.setdefault(entry_key(value, inside), len(self.known))
        self.docs.append(doc)
        self.entries.append(entry)

    def build(self) -> Column:
        return Column(
            [value for _, value, _ in self.known],
            np.fromiter((inside for _, _, inside in self.known), bool, len(self.known)),
            np.asarray(self.docs, np.int32),
            np.asarray(self.entries, np.int32),
            self.partial,
            self.type,
        )


def merge_columns(parts: Sequence[tuple[Column | None, Ints]]) -> Column:
    """One column out of several. `renumber` gives each old item its new number, or -1 if it is gone."""
    known: dict[Entry, int] = {}
    docs: list[Ints] = []
    entries: list[Ints] = []
    present = [column for column, _ in parts if column]
    for column, renumber in parts:
        if column is None:
            continue
        fresh = [
            known.setdefault(entry_key(value, inside), len(known))
            for value, inside in zip(column.values, column.in_array.tolist(), strict=True)
        ]
        moved = renumber[column.docs]
        kept = moved >= 0
        docs.append(moved[kept])
        entries.append(np.asarray(fresh, np.int32)[column.entries[kept]])
    return Column(
        [value for _, value, _ in known],
        np.fromiter((inside for _, _, inside in known), bool, len(known)),
        np.concatenate(docs),
        np.concatenate(entries),
        any(column.partial for column in present),
        present[0].type,
    )


def leaves(data: Mapping[str, Any], typed: Mapping[str, Field], loose: frozenset[str]) -> Iterator[Leaf]:
    """Every value of an item under its path: typed fields in their comparable form, loose ones as they are."""
    for name, known in typed.items():
        value = known.typed_value(data)
        if value is not None:
            yield name, value, False
    for name, value in data.items():
        if name in loose:
            yield from _leaves(name, value, 1)


def _leaves(path: str, value: Any, depth: int) -> Iterator[Leaf]:
    if isinstance(value, list):
        yield path, PRESENT, False
        for each in cast("list[Any]", value):
            if isinstance(each, Mapping):
                yield from _leaves(path, each, depth)
            elif not isinstance(each, list):
                yield path, each, True
    elif isinstance(value, Mapping):
        yield path, PRESENT, False
        if depth < MAX_DEPTH:
            for name, inner in cast("Mapping[str, Any]", value).items():
                if "." not in name:  # no path can reach it
                    yield from _leaves(f"{path}.{name}", inner, depth + 1)
    else:
        yield path, value, False


class Columns:
    """All columns of a set of items."""

    def __init__(self, ids: Sequence[str], columns: Mapping[str, Column]) -> None:
        self.ids = ids
        self.columns = columns
        self._masks: dict[tuple[Condition, FieldType], Mask] = {}
        self._orders: dict[tuple[tuple[Order, FieldType], ...], Ints] = {}
        self._ranks: Ints | None = None  # of the ids
        self._lock = threading.Lock()  # held to change what is kept

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
        """Which items satisfy a condition; raises NeedsStore where the columns cannot tell."""
        known = collection.field(condition.field)
        negated = condition.op in NEGATIONS
        op = NEGATIONS.get(condition.op, condition.op)
        key = (Condition(condition.field, op, condition.value) if negated else condition, known.type)
        mask = self._masks.get(key)
        if mask is None:
            value = operand(known, op, condition.value) if known.is_typed else condition.value
            mask = self._test(known.name if known.is_typed else known.where, known.type, op, value)
            if _is_short(condition.value):
                self._keep(self._masks, key, mask, MAX_MASKS)
        return ~mask if negated else mask

    def first(self, mask: Mask, order: Sequence[Order], collection: Collection, limit: int) -> list[int]:
        """The items of a mask that come first in an order, ties by id; raises NeedsStore where it cannot be told."""
        places = self._arranged(order, collection)
        found: list[int] = []
        for begin in range(0, len(places), WALKED):
            walked = places[begin : begin + WALKED]
            found += walked[mask[walked]][: limit - len(found)].tolist()
            if len(found) == limit:
                break
        return found

    def _arranged(self, order: Sequence[Order], collection: Collection) -> Ints:
        """All items in an order."""
        key = tuple((each, collection.field(each.field).type) for each in order)
        places = self._orders.get(key)
        if places is None:
            keys = [self._key(each, collection) for each in order]
            if not order or order[-1].field != ID:
                keys.append(self._key(Order(ID), collection))
            places = np.lexsort(keys[::-1]).astype(np.int32)
            self._keep(self._orders, key, places, MAX_ORDERS)
        return places

    def _key(self, order: Order, collection: Collection) -> Ints:
        """A number for each item that grows in an order."""
        known = collection.field(order.field)
        count = len(self.ids)
        if known.name == ID:
            return -self._places_of_ids() if order.descending else self._places_of_ids()
        if not known.is_typed:
            raise NeedsStore
        column = self.columns.get(known.name)
        if column is None:
            return np.zeros(count, np.int32)
        if _storage(column.type) != _storage(known.type):
            raise NeedsStore
        ranks = column.ranks(count)
        keys = -ranks if order.descending else ranks.copy()
        keys[ranks < 0] = -count - 1 if order.absent_first else count + 1
        return keys

    def _places_of_ids(self) -> Ints:
        if self._ranks is None:
            ranks = np.zeros(len(self.ids), np.int32)
            ranks[places_in_order(self.ids)] = np.arange(len(self.ids), dtype=np.int32)
            self._ranks = ranks
        return self._ranks

    def _keep(self, kept: dict[K, V], key: K, value: V, most: int) -> None:
        with self._lock:
            if len(kept) >= most:
                del kept[next(iter(kept))]
            kept[key] = value

    def _test(self, name: str, kind: FieldType, op: str, wanted: Any) -> Mask:
        count = len(self.ids)
        if name == ID:
            return np.fromiter((compare(op, id, wanted) for id in self.ids), bool, count)
        if name.count(".") >= MAX_DEPTH or (op in TEXTUAL and kind in TEXT_BEHIND):
            raise NeedsStore
        column = self.columns.get(name)
        if column is None:
            return np.full(count, _holds_for_nothing(op, wanted))
        if _storage(column.type) != _storage(kind):
            raise NeedsStore
        return column.test(count, op, wanted)


def is_quick(condition: Condition, known: Field) -> bool:
    """Whether columns test a condition as a whole, and not value after value."""
    if known.name == ID:
        return False
    op = NEGATIONS.get(condition.op, condition.op)
    if op in {"eq", "in", "exists"}:
        return True
    ends = condition.value if op == "between" else (condition.value,)
    return op not in TEXTUAL and ((known.is_typed and known.type != FieldType.STRING) or all(map(_is_number, ends)))


def _holds_for_nothing(op: str, wanted: Any) -> bool:
    match op:
        case "exists":
            return not wanted
        case "in":
            return None in wanted
        case _:
            return op == "eq" and wanted is None


def _storage(kind: FieldType) -> str:
    if kind in NUMERIC:
        return "number"
    return kind if kind.is_scalar else "json"


class ColumnsBuilder:
    """Collects the values of items, one after the other."""

    def __init__(self, collection: Collection) -> None:
        self._typed = {f.name: f for f in collection.fields.values() if f.is_typed}
        self._loose = frozenset(collection.fields) - self._typed.keys()
        self._types = {name: f.type for name, f in collection.fields.items()}
        self._builders: dict[str, ColumnBuilder] = {}

    def read(self, data: Mapping[str, Any]) -> list[Leaf]:
        return list(leaves(data, self._typed, self._loose))

    def add(self, doc: int, values: Iterable[Leaf]) -> None:
        for path, value, inside in values:
            builder = self._builders.get(path)
            if builder is None:
                builder = self._builders[path] = ColumnBuilder(self._types.get(path, FieldType.ANY))
            builder.add(doc, value, inside)

    def build(self) -> dict[str, Column]:
        return {path: builder.build() for path, builder in self._builders.items()}
