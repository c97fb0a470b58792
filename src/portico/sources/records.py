"""The types that all sources share: Record, BadRecord, Source, SourceOptions, Document. Reads nothing itself."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

from portico.redaction import redact_url

MAX_RECORD_BYTES = 16 * 1024 * 1024  # one record, one line, one page, one feed
MAX_DEPTH = 64  # objects and arrays inside each other
ID_FIELDS = ("@id", "id", "url", "identifier")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a source. `where` is its place, for people: file and line, URL, table and key."""

    data: dict[str, Any]
    where: str
    id: str | None = None
    collection: str | None = None  # set only by a source with several collections


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be read, and why. Loading continues with the rest.

    A gap may hide records that still exist: nothing is deleted after a load with a gap.
    """

    where: str
    reason: str
    is_gap: bool = False


@dataclass(frozen=True, slots=True)
class Doubt:
    """A value that may have been misread, what was made of it, and the setting that would settle it."""

    place: str  # file and line, URL, or table and key
    reason: str
    field: str = ""
    value: str = ""
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """A fact about a source for its report, such as the encoding that was detected."""

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """The values of a field are the ids of items of another collection, as those of a foreign key."""

    field: str
    target: str  # the collection
    collection: str | None = None  # set only by a source with several collections


Entry: TypeAlias = Record | BadRecord | Doubt | Remark | Link


class Source(Protocol):
    """Reads lazily, in constant memory. Iteration blocks, so it runs in a thread."""

    @property
    def url(self) -> str:
        """The name of this source in the store."""
        ...

    @property
    def former_urls(self) -> tuple[str, ...]:
        """The names that this source may have in the store from an earlier version or another site file."""
        ...

    def records(self) -> Iterator[Entry]: ...

    def share(self) -> float | None:
        """Return how much of the source has been read, from 0 to 1; None if that is unknown."""
        ...


@dataclass(slots=True)
class Meter:
    """The progress of reading files on disk, in bytes."""

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
    """The options of a source in the site file."""

    format: str | None = None  # one of portico.sources.FORMATS
    encoding: str = ""  # of text tables and plain texts; detected if it is empty
    id_field: str | None = None
    table: str | None = None  # the only table of a database that is read
    tables: tuple[str, ...] = ()  # several tables, each a collection of its own
    all_tables: bool = False
    collections: Mapping[str, str] = field(default_factory=dict[str, str])  # of tables loaded by other sources
    type: str | None = None  # schema.org type given to records that have none
    base_url: str = ""  # where the files of a folder, or the items of a table, are on the web
    group_by: str = ""  # the field that rows of one item share
    max_pages: int = 1000  # pages fetched by a crawl, or read from one PDF
    delay: float = 1.0  # seconds between two requests of a crawl
    max_bytes: int = 1 << 30  # of one downloaded file; a page or a record is limited to 16 MB in any case
    timeout: float = 30.0  # seconds to wait for the next bytes of a response
    allow_hosts: tuple[str, ...] = field(default=())  # hosts that may resolve to private addresses
    auth_source: str = ""  # the name of a source of OpenAPI operations that are called with credentials
    auth_parameter: tuple[str, str] = ("", "")  # the place and the name of what its credentials fill
    distinction: tuple[str, ...] = field(default=())  # name=value of the options that distinguish sources of one URL


@dataclass(frozen=True, slots=True)
class Document:
    """One open file. `name` goes into `where` and ids; `url` is the address that it was read from, if there is one."""

    file: BinaryIO
    name: str
    url: str | None = None
    content_type: str = ""
    path: str = ""  # in its folder or archive; only its file name if it was read alone
    base_url: str = ""  # where its folder is on the web
    permalink: str = ""  # the pattern of the addresses of posts, which the settings of a Jekyll site give
    folder: Path | None = None  # where it lies, if it is a file on disk

    def read(self) -> bytes | None:
        """Return the whole text, or None if it is longer than a record may be."""
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


def collection_name(text: str) -> str:
    """Return the name of a collection for the name of a file or a sheet."""
    return re.sub(r"[^0-9A-Za-z_-]+", "_", text).strip("_") or "items"


def collection_for(url: str, table: str | None = None) -> str:
    """Return a collection name for a source that sets none."""
    if table:
        return collection_name(table.rpartition(".")[2])
    place = re.split(r"[?#]", redact_url(url))[0].rstrip("/")
    path = Path(place)
    return collection_name(Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem)


def too_large(where: str) -> BadRecord:
    return BadRecord(where, f"is larger than {MAX_RECORD_BYTES >> 20} MB")
