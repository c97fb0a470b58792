"""Makes one item of rows that describe one thing: the variants of a product, the lines of an order.

The rows of an item follow each other and share the value of one field, which becomes the id. Fields that are the same
for all rows stay on top. Those that differ go into the list `variants`, pictures into lists under their own names. The
price on top is the lowest of the variants, so that "under 50" finds every item that has a variant under 50.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any, TypeAlias

from portico.catalog import FieldType
from portico.errors import SourceError
from portico.sources.numbers import decimal_separator, parse_number, read_amount, read_number
from portico.sources.records import Doubt, Entry, Record, Remark
from portico.sources.roles import FieldProfile, assign_roles

VARIANTS = "variants"
SAMPLE = 1000  # entries, by which the shape of a table is recognized
MIN_GROUPS = 2  # items of several rows among them
MAX_ROWS = 2000  # of one item
_IMAGE_WORDS = frozenset({"image", "images", "img", "picture", "pictures", "photo", "photos", "bild", "foto", "imagen"})
_WORD = re.compile(r"[A-Za-z]+")

Rows: TypeAlias = Sequence[Record]


@dataclass(slots=True)
class RowShape:
    """What is known of the rows of a table: which fields belong to an item, and which to one of its rows."""

    key: str
    price: str = ""
    decimal: str = ""  # the decimal separator of prices
    of_rows: set[str] = field(default_factory=set[str])  # filled on rows below the first
    differing: set[str] = field(default_factory=set[str])  # different for the rows of one item
    images: set[str] = field(default_factory=set[str])

    def learn(self, rows: Rows) -> None:
        """Add what the rows of one item show."""
        for row in rows[1:]:
            self.of_rows.update(row.data)
        self.images.update(name for row in rows for name in row.data if _is_image(name))
        variants = self.variant_rows(rows)
        for name in self.of_rows - self.images - {self.key}:
            values = [row.data.get(name) for row in variants]
            if any(value != values[0] for value in values):
                self.differing.add(name)

    def variant_rows(self, rows: Rows) -> list[Record]:
        """Return the rows that are more than a further picture."""
        own = self.images | {self.key}
        return [rows[0], *(row for row in rows[1:] if not own.issuperset(row.data))]


def group_rows(entries: Iterable[Entry], group_by: str) -> Iterator[Entry]:
    """Make one record of consecutive ones with the same value of a field, or with none below one that has it."""
    for run in _by_collection(entries):
        sample = list(islice(run, SAMPLE))
        records = [entry for entry in sample if isinstance(entry, Record)]
        if records and not any(group_by in record.data for record in records):
            raise SourceError(
                f"No row has a field {group_by!r} to group by.",
                field=group_by,
                hint=f"Known fields: {', '.join(list(records[0].data)[:50])}.",
            )
        groups = _groups(records, lambda record: record.data.get(group_by))
        yield from _grouped(chain(sample, run), _shape(group_by, groups))


def group_recognized_rows(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Make one record of the rows of one thing, where the shape of a table shows that it has such rows.

    They share the value of the first column, and another column is filled on the first of them and on no other.
    """
    for run in _by_collection(entries):
        sample = list(islice(run, SAMPLE))
        shape = _recognize([entry for entry in sample if isinstance(entry, Record)])
        yield from _grouped(chain(sample, run), shape) if shape else chain(sample, run)


def _by_collection(entries: Iterable[Entry]) -> Iterator[Iterator[Entry]]:
    """Yield the entries of each collection; what is no record belongs to the records before it."""
    current: list[str | None] = [None]

    def collection(entry: Entry) -> str | None:
        if isinstance(entry, Record):
            current[0] = entry.collection
        return current[0]

    return (run for _, run in groupby(entries, collection))


def _recognize(records: Rows) -> RowShape | None:
    if not records:
        return None
    key = next(iter(records[0].data))
    if any(key not in record.data or isinstance(record.data[key], dict | list) for record in records):
        return None
    groups = _groups(records, lambda record: record.data[key])
    keys = [group[0].data[key] for group in groups]
    several = [group for group in groups if len(group) > 1]
    below = {name for group in several for row in group[1:] for name in row.data}
    always = set[str].intersection(*(set(group[0].data) for group in groups))
    if len(several) < MIN_GROUPS or len(set(keys)) < len(keys) or not always - below:
        return None
    return _shape(key, groups)


def _groups(records: Rows, key_of: Callable[[Record], Any]) -> list[list[Record]]:
    groups: list[list[Record]] = []
    for record in records:
        key = key_of(record)
        if groups and (key is None or key == key_of(groups[-1][0])):
            groups[-1].append(record)
        else:
            groups.append([record])
    return groups


def _shape(key: str, groups: Iterable[Rows]) -> RowShape:
    shape = RowShape(key)
    for rows in groups:
        shape.learn(rows)
    examples: dict[str, list[Any]] = {}
    for rows in groups:
        for name in shape.differing:
            examples.setdefault(name, []).extend(row.data[name] for row in rows if name in row.data)
    decimals = {name: _decimal(values) for name, values in examples.items()}
    profiles = [
        FieldProfile(name, FieldType.NUMBER, examples=tuple(values[:5]))
        for name, values in examples.items()
        if all(_amount(value, decimals[name]) is not None for value in values)
    ]
    shape.price = assign_roles(profiles).get("price", "")
    shape.decimal = decimals.get(shape.price, "")
    return shape


def _grouped(entries: Iterable[Entry], shape: RowShape) -> Iterator[Entry]:
    rows: list[Record] = []
    total = items = count = 0
    for entry in entries:
        if not isinstance(entry, Record):
            yield entry
            continue
        total += 1
        key = entry.data.get(shape.key)
        if rows and (key is None or key == rows[0].data.get(shape.key)):
            count += 1
            if count <= MAX_ROWS:
                rows.append(entry)
            continue
        if rows:
            yield from _item(rows, count, shape)
        rows, count, items = [entry], 1, items + 1
    if rows:
        yield from _item(rows, count, shape)
    if total > items:
        yield Remark(shape.key, f"{total:,} rows with the same {shape.key} were made {items:,} items")


def _item(rows: list[Record], count: int, shape: RowShape) -> Iterator[Entry]:
    """Yield the item of rows, which are the first ones if there are more of them than an item may have."""
    first = rows[0]
    if count > len(rows):
        reason = f"has {count:,} rows; those after the first {len(rows):,} were left out"
        yield Doubt(first.where, reason, shape.key, str(first.data.get(shape.key)), "group_by")
    shape.learn(rows)
    data: dict[str, Any] = {}
    for row in rows:
        for name, value in row.data.items():
            if name not in shape.differing and name not in shape.images:
                data.setdefault(name, value)
            elif name in shape.images:
                values = data.setdefault(name, [])
                if value not in values:
                    values.append(value)
    variants = [
        variant
        for row in shape.variant_rows(rows)
        if (variant := {name: value for name, value in row.data.items() if name in shape.differing})
    ]
    lowest = _lowest(variants, shape)
    if lowest is not None:
        data[shape.price] = lowest
    if variants:
        data[VARIANTS if VARIANTS not in data else f"{VARIANTS}_2"] = variants
    key = data.get(shape.key)
    yield Record(data, first.where, first.id if key is None else str(key), first.collection)


def _lowest(variants: Iterable[Mapping[str, Any]], shape: RowShape) -> Any:
    """Return the lowest price, as it is written."""
    prices = [variant.get(shape.price) for variant in variants]
    amounts = [(amount, price) for price in prices if (amount := _amount(price, shape.decimal)) is not None]
    return min(amounts, key=lambda pair: pair[0], default=(None, None))[1]


def _amount(value: Any, decimal: str) -> float | None:
    """Return the number that a cell is or holds: 19.99 of "$19.99", and of "19,99 €" in a table of such prices."""
    if isinstance(value, str):
        return parse_number(value.strip(), decimal)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _decimal(values: Iterable[Any]) -> str:
    """Return the decimal separator of amounts. Where none shows it, separators group thousands."""
    texts = [text for value in values if isinstance(value, str) and (text := value.strip())]
    notations = Counter(notation for text in texts if (notation := read_number(text) or read_amount(text)))
    groups_points = any(notation.variant == ".?" for notation in notations)
    return decimal_separator(notations) or ("," if groups_points else ".")


def _is_image(name: str) -> bool:
    first = _WORD.search(name)
    return first is not None and first[0].casefold() in _IMAGE_WORDS
