"""What a load made of a source: counts, the collections with their fields, doubts and remarks. Reads nothing itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from portico.catalog import FieldType
from portico.sources.records import BadRecord, Doubt, Remark

MAX_FAILURES = 100
MAX_DOUBTS = 100
MAX_REMARKS = 100


class FieldReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a field holds. Its name is the key in `CollectionReport.fields`."""

    type: FieldType
    role: str = ""
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
    stored_as: str = ""  # the name of the source in the store, once all of it was read
    collections: Mapping[str, CollectionReport] = field(default_factory=dict[str, CollectionReport])
    doubts: tuple[Doubt, ...] = field(default=())
    doubt_count: int = 0  # of all doubts
    remarks: tuple[Remark, ...] = field(default=())

    @property
    def read(self) -> int:
        return self.added + self.changed + self.unchanged + self.failed

    @property
    def is_lossless(self) -> bool:
        """Whether every record was loaded and every value was understood."""
        return not (self.failed or self.has_gap or self.doubt_count)
