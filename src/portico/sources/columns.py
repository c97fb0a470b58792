"""What the cells of a source's columns are like: counts of notations, and a sample. Decides no types; see `decisions`.

The memory that it takes does not grow with the number of records.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from portico.catalog import FieldType, type_of
from portico.sources.cells import read_cell
from portico.sources.notation import Kind, Notation

Path: TypeAlias = tuple[str, ...]  # names of fields, from the record down; arrays of objects are passed through

MAX_COLUMNS = 2000  # of a collection; the values of others are kept as they are
MAX_NESTED = 6  # objects inside each other
MAX_NOTATIONS = 500  # of a column
SAMPLE = 500  # texts
SAMPLE_LENGTH = 100  # characters
MAX_LISTED = 20  # elements of an example
EXAMPLES = 20
CACHED_CELLS = 512  # of a column
CACHED_LENGTH = 64  # characters
_OTHER = Notation(Kind.TEXT)


@dataclass(slots=True)
class Column:
    """The cells of one column so far."""

    path: Path
    notations: dict[Notation, int] = field(default_factory=dict[Notation, int])  # of texts
    natives: dict[type, int] = field(default_factory=dict[type, int])  # values that are no texts, without null
    vectors: int = 0  # lists that are vectors
    epochs: dict[str, int] = field(default_factory=dict[str, int])  # whole numbers that may be times
    sample: dict[str, None] = field(default_factory=dict[str, None])  # different texts among the first
    sampled: int = 0
    examples: list[Any] = field(default_factory=list[Any])  # values that are no texts
    length: int = 0  # of all texts, in characters
    _cache: dict[str, Notation] = field(default_factory=dict[str, Notation])

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def texts(self) -> int:
        """How many texts there are that do not stand for a missing value."""
        return sum(count for notation, count in self.notations.items() if notation.kind is not Kind.MISSING)

    @property
    def filled(self) -> int:
        return self.texts + sum(self.natives.values())

    def count(self, kind: Kind, *variants: str) -> int:
        return sum(
            count
            for notation, count in self.notations.items()
            if notation.kind is kind and (not variants or notation.variant in variants)
        )

    def missing(self) -> dict[str, int]:
        """Return how often each text stands for a missing value."""
        return {n.variant: count for n, count in self.notations.items() if n.kind is Kind.MISSING and n.variant}

    def add(self, value: Any) -> None:
        if type(value) is not str:
            self._add_native(value)
            return
        notation = self._cache.get(value)
        if notation is None:
            notation = read_cell(value.strip())
            if len(self._cache) < CACHED_CELLS and len(value) <= CACHED_LENGTH:
                self._cache[value] = notation
        notations = self.notations
        count = notations.get(notation)
        if count is None:
            notation = notation if len(notations) < MAX_NOTATIONS else _OTHER
            count = notations.get(notation, 0)
        notations[notation] = count + 1
        self.length += len(value)
        if self.sampled < SAMPLE and notation.kind is not Kind.MISSING:
            self.sampled += 1
            self.sample[value if len(value) <= SAMPLE_LENGTH else value[:SAMPLE_LENGTH]] = None

    def _add_native(self, value: Any) -> None:
        if value is None:
            return
        kind = cast("type[Any]", type(value))
        self.natives[kind] = self.natives.get(kind, 0) + 1
        if len(self.examples) < EXAMPLES and _is_short(value) and value not in self.examples:
            self.examples.append(value)
        if kind is list:
            self.vectors += type_of(value) is FieldType.VECTOR
        if kind is int:
            unit = "seconds" if 10**8 <= value < 5 * 10**9 else "milliseconds" if 10**11 <= value < 5 * 10**12 else ""
            if unit:
                self.epochs[unit] = self.epochs.get(unit, 0) + 1


@dataclass(slots=True)
class Profile:
    """The columns of one collection so far: of its records, and of the objects in them."""

    items: int = 0
    top: dict[str, Column] = field(default_factory=dict[str, Column])
    nested: dict[Path, Column] = field(default_factory=dict[Path, Column])

    def add(self, data: Mapping[str, Any]) -> None:
        self.items += 1
        columns = self.top
        for name, value in data.items():
            column = columns.get(name)
            if column is None:
                if len(columns) >= MAX_COLUMNS:
                    continue
                column = columns[name] = Column((name,))
            column.add(value)
            if type(value) is dict or type(value) is list:
                self._add_nested((name,), value)

    def _add_nested(self, path: Path, value: Any) -> None:
        for inner in objects_in(value):
            for name, member in inner.items():
                below = (*path, name)
                column = self.nested.get(below)
                if column is None:
                    if len(self.nested) >= MAX_COLUMNS:
                        continue
                    column = self.nested[below] = Column(below)
                column.add(member)
                if isinstance(member, dict | list) and len(below) < MAX_NESTED:
                    self._add_nested(below, member)


def _is_short(value: Any) -> bool:
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        return len(elements) <= MAX_LISTED and not any(isinstance(element, dict | list) for element in elements)
    return isinstance(value, int | float)


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield an object, or those in an array."""
    if isinstance(value, dict):
        yield cast("dict[str, Any]", value)
    elif isinstance(value, list):
        for element in cast("list[Any]", value):
            if isinstance(element, dict):
                yield cast("dict[str, Any]", element)
