"""What a load made of a source: counts, the collections with their fields, doubts and remarks. Reads nothing itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from portico.catalog import FieldType, Role, widen
from portico.sources.records import BadRecord, Doubt, Remark
from portico.sources.revisions import Revision

MAX_FAILURES = 100
MAX_DOUBTS = 100
MAX_REMARKS = 100
MAX_EXAMPLE = 200  # characters


class FieldReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a field holds. Its name is the key in `CollectionReport.fields`."""

    type: FieldType
    role: Role | Literal[""] = ""
    format: str = ""
    unit: str = ""
    coverage: float = 0.0  # the share of items with a value of this type, 0..1
    example: Any = None  # as it is stored; long texts are cut


class CollectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a source holds of one collection."""

    items: int = 0
    fields: dict[str, FieldReport] = {}


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of a load so far. `failures`, `doubts` and `remarks` hold the first hundred of each.

    `collections` is empty until the whole source has been read.
    """

    source: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: int = 0
    failures: tuple[BadRecord, ...] = field(default=())
    has_gap: bool = False  # part of the source could not be read, so nothing was deleted
    seconds: float = 0.0
    share: float | None = None  # of the source that has been read, if known
    name: str = ""  # of the source in the store
    stored_as: str = ""  # the name of the source in the store, once all of it was read
    collections: Mapping[str, CollectionReport] = field(default_factory=dict[str, CollectionReport])
    doubts: tuple[Doubt, ...] = field(default=())
    doubt_count: int = 0  # of all doubts
    remarks: tuple[Remark, ...] = field(default=())
    revision: Revision | None = None  # of the source as it was read, if it can be recognized again
    error: str = ""  # why the source could not be read at all, or not to its end

    @property
    def read(self) -> int:
        return self.added + self.changed + self.unchanged + self.failed

    @property
    def is_lossless(self) -> bool:
        """Whether every record was loaded and every value was understood."""
        return not (self.failed or self.has_gap or self.doubt_count or self.error)


@dataclass(frozen=True, slots=True)
class DoubtGroup:
    """Doubts of one kind about one field, such as twelve prices that are no numbers."""

    first: Doubt
    count: int


def group_doubts(doubts: Iterable[Doubt]) -> list[DoubtGroup]:
    """Return the doubts grouped by field, reason and setting, in the order of the first of each group."""

    groups: dict[tuple[str, str, str], list[Doubt]] = {}
    for doubt in doubts:
        # Without a field, each doubt is about a place of its own.
        subject = (doubt.field, doubt.setting) if doubt.field else (doubt.place, doubt.value)
        groups.setdefault((*subject, doubt.reason), []).append(doubt)
    return [DoubtGroup(group[0], len(group)) for group in groups.values()]


def shorten_example(value: Any) -> Any:
    """Return a value as an example: a long text is cut, and a long list or object becomes a short text."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value if len(text) <= MAX_EXAMPLE else f"{text[: MAX_EXAMPLE - 1]}…"


def merge_collections(reports: Iterable[LoadReport]) -> dict[str, CollectionReport]:
    """Return the collections of several sources. One that several sources fill has the items and fields of all."""
    merged: dict[str, CollectionReport] = {}
    for report in reports:
        for name, collection in report.collections.items():
            merged[name] = _merge(merged[name], collection) if name in merged else collection
    return merged


def _merge(one: CollectionReport, other: CollectionReport) -> CollectionReport:
    items = one.items + other.items
    fields: dict[str, FieldReport] = {}
    for name in (*one.fields, *(name for name in other.fields if name not in one.fields)):
        sides = [(part.items, part.fields[name]) for part in (one, other) if name in part.fields]
        first, last = sides[0][1], sides[-1][1]
        fields[name] = msgspec.structs.replace(
            first,
            type=widen(first.type, last.type),
            role=first.role or last.role,
            coverage=sum(count * spec.coverage for count, spec in sides) / items if items else 0.0,
            example=last.example if first.example is None else first.example,
        )
    return CollectionReport(items=items, fields=fields)
