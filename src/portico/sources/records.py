"""The nouns of the family: Record, BadRecord, Source, SourceOptions, Document. Reads nothing itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, TypeAlias

MAX_RECORD_BYTES = 16 * 1024 * 1024  # one record, one line, one page, one feed
MAX_DEPTH = 64  # objects and arrays inside each other
ID_FIELDS = ("@id", "id", "url", "identifier")


@dataclass(frozen=True, slots=True)
class Record:
    """One thing read from a source: `where` is what a person needs to find it (file:line, URL, table row)."""

    data: dict[str, Any]
    where: str
    id: str | None = None
    collection: str | None = None  # only a source that holds several collections says which


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One thing that could not be read, and why. Loading goes on with the rest.

    A gap hides things that may still be there: what a source gave before is then not forgotten.
    """

    where: str
    reason: str
    is_gap: bool = False


Entry: TypeAlias = Record | BadRecord


class Source(Protocol):
    """Reads lazily: memory does not grow with the source. Iteration blocks, so it runs in a thread."""

    @property
    def url(self) -> str:
        """The name under which a store keeps the items of this source."""
        ...

    @property
    def former_urls(self) -> tuple[str, ...]:
        """The names under which a store may still keep them, from an earlier version or another site file."""
        ...

    def records(self) -> Iterator[Entry]: ...

    def share(self) -> float | None:
        """How much of it has been read, from 0 to 1, where that can be known."""
        ...


@dataclass(slots=True)
class Meter:
    """How far the reading of files on disk has come, in bytes."""

    total: int = 0
    done: int = 0
    file: BinaryIO | None = None

    def share(self) -> float | None:
        if not self.total:
            return None
        current = self.file.tell() if self.file and not self.file.closed else 0
        return min((self.done + current) / self.total, 1.0)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a site file may say about one source."""

    format: str | None = None  # one of portico.sources.FORMATS
    id_field: str | None = None
    table: str | None = None
    type: str | None = None  # schema.org type given to records that have none
    max_pages: int = 1000  # pages fetched by a crawl, or read from one PDF
    delay: float = 1.0  # seconds between two requests of a crawl
    max_bytes: int = 1 << 30  # of one downloaded file; a page or a record is held to 16 MB whatever this says
    timeout: float = 30.0  # seconds to wait for the next bytes of an answer
    allow_hosts: tuple[str, ...] = field(default=())  # hosts that may resolve to private addresses
    distinction: tuple[str, ...] = field(default=())  # name=value of options in which sources of one URL differ


@dataclass(frozen=True, slots=True)
class Document:
    """One open file. `name` goes into `where` and ids; `url` is its address on the web, if it has one."""

    file: BinaryIO
    name: str
    url: str | None = None
    content_type: str = ""

    def read(self) -> bytes | None:
        """The whole text, or None when it is longer than a record may be."""
        self.file.seek(0)
        text = self.file.read(MAX_RECORD_BYTES + 1)
        return None if len(text) > MAX_RECORD_BYTES else text


def id_of(data: Mapping[str, Any]) -> str | None:
    for name in ID_FIELDS:
        value = data.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def too_large(where: str) -> BadRecord:
    return BadRecord(where, f"is larger than {MAX_RECORD_BYTES >> 20} MB")
