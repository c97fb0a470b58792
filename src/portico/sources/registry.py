"""Where items come from. A source reads records; it never writes to a store.

`open_source` takes a path, a glob, a folder or a URL and finds out what kind of source it is: from
`options.format`, from a scheme (`feed+https://...`, `sqlite:///shop.db`), from the suffix, or from the
content. Nothing is fetched and no file is read to the end before `records()` is iterated.
"""

import glob
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from portico.errors import SourceError
from portico.plugins import SOURCES, Registry
from portico.redaction import Redactor, redact_url
from portico.sources import (
    archives,
    crawl,
    documents,
    docx,
    feeds,
    folders,
    jsonld,
    notebooks,
    openapi,
    pages,
    sniff,
    tables,
    variants,
    vcards,
)
from portico.sources.base_urls import join_addresses
from portico.sources.fetch import Fetcher, FetchResponse
from portico.sources.records import (
    BadRecord,
    Document,
    Doubt,
    Entry,
    Link,
    Meter,
    Record,
    Remark,
    Source,
    SourceOptions,
)
from portico.sources.revisions import RevisionCheck

if TYPE_CHECKING:
    from portico.sources.schema import TableInfo

__all__ = [
    "FORMATS",
    "BadRecord",
    "Doubt",
    "Entry",
    "Link",
    "Record",
    "Remark",
    "Source",
    "SourceOptions",
    "is_database",
    "list_tables",
    "open_source",
    "source_place",
]

Reader: TypeAlias = Callable[[Document, SourceOptions, Fetcher], Iterator[Entry]]

# What a site file may give as `format`, and what a URL may carry before its plus sign.
FORMATS = {
    "json": "JSON: an array, one object, or an object around an array",
    "jsonld": "schema.org JSON-LD",
    "jsonl": "one JSON object per line",
    "csv": "a table with a header row",
    "tsv": "a table with a header row, tabs between cells",
    "feed": "RSS or Atom",
    "xlsx": "an Excel workbook, each sheet a table",
    "parquet": "a Parquet file",
    "vcf": "contacts as vCards",
    "ics": "events of an iCalendar",
    "pages": "a folder of documents, or one page",
    "site": "a web site, crawled from a start page",
    "sitemap": "the pages that a sitemap lists",
    "pdf": "a PDF document, page by page",
    "text": "a plain text",
    "docx": "a Word document",
    "rst": "a reStructuredText document",
    "ipynb": "a Jupyter notebook",
    "zip": "files in a zip archive, each by its kind",
    "gz": "a file packed with gzip",
    "sql": "tables of an SQL database",
    "openapi": "the operations of an OpenAPI 3 document",
}
MAX_LINKS = 8  # of a folder that the report names
_WEB = ("http://", "https://")
_SCHEME = re.compile(r"([a-z]+)\+(https?://.*|file:.*)", re.DOTALL)
_DATABASE = re.compile(r"(sqlite|postgres|postgresql|mysql|mariadb|mssql|oracle)(\+\w+)?:")
_RECORDS = frozenset({"csv", "tsv", "xlsx", "parquet", "json", "jsonl"})  # whose records have no page of their own
_TABLES = frozenset({"csv", "tsv", "xlsx"})  # kinds whose rows may be of one item
# Kinds whose files are zip archives, or may be packed.
_PACKED = {"zip": frozenset(("zip", "docx", "xlsx")), "gz": frozenset(("gz", "sitemap"))}


# Reads the records behind a URL. Added by installed packages, through entry points named by the URL's scheme.
ReadUrl: TypeAlias = Callable[[str, SourceOptions], Iterator[Entry]]


@cache
def _source_registry() -> Registry[ReadUrl]:
    built_in = dict.fromkeys((*FORMATS, "http", "https", "file", "sqlite", "postgres", "postgresql", "mysql"), "")
    return Registry(SOURCES, built_in, Callable)


def open_source(
    url: str, options: SourceOptions, *, fetcher: Fetcher | None = None, check: RevisionCheck | None = None
) -> Source:
    """Open the source at a path, a glob, a folder or a URL. Raise SourceError if its kind is unknown.

    Its records raise SourceUnchanged if the check knows the source as it is.
    """
    kind, place = _kind_and_place(url, options)
    web = fetcher or Fetcher(allow_hosts=options.allow_hosts, max_bytes=options.max_bytes, timeout=options.timeout)
    meter = Meter()
    names = _store_names(url, options)
    plan = _make_reader(kind, place, options, web, meter, check or RevisionCheck())
    return _LazySource(names[-1], names[:-1], options, plan, meter, Redactor(url))


def source_place(url: str, options: SourceOptions) -> str:
    """Return the absolute path or the URL without secrets: the same for every spelling and every password."""
    _, place = _kind_and_place(url, options)
    return redact_url(url) if "://" in place or _DATABASE.match(place) else os.path.abspath(place)


def is_database(url: str, options: SourceOptions) -> bool:
    """Whether `table` applies to a source: its URL or its file is an SQL database."""
    kind, place = _kind_and_place(url, options)
    path = Path(place)
    return kind == "sql" or (kind is None and path.is_file() and _kind_of_file(path) == "sql")


def list_tables(url: str, options: SourceOptions) -> "list[TableInfo]":
    """Return the tables and views that a database has to publish."""
    _, place = _kind_and_place(url, options)
    return cast("list[TableInfo]", _sql_module().list_tables(_database_url(place)))


def _store_names(url: str, options: SourceOptions) -> tuple[str, ...]:
    """Return the names of a source in stores, the present one last.

    A name that is less exact comes from an earlier version, or from a time when no other source had the same URL.
    """
    names = [source_place(url, options)]
    if is_database(url, options):
        # Also without `table`: so a plain URL always comes from an earlier version.
        names.append(f"{names[-1]} ({f'table={options.table}' if options.table else 'all tables'})")
    if options.distinction:
        names.append(f"{names[-1]} ({', '.join(options.distinction)})")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class _LazySource:
    """A source that is ready to be read. Gives each record the id and the type that the site file sets."""

    url: str
    former_urls: tuple[str, ...]
    options: SourceOptions
    start: Callable[[], Iterator[Entry]]
    meter: Meter
    redactor: Redactor

    def share(self) -> float | None:
        return self.meter.share()

    def records(self) -> Iterator[Entry]:
        entries = self.start()
        for entry in variants.group_rows(entries, self.options.group_by) if self.options.group_by else entries:
            finished = _apply_options(entry, self.options) if isinstance(entry, Record) else entry
            yield _redact_entry(finished, self.redactor) if self.redactor else finished


def _apply_options(record: Record, options: SourceOptions) -> Entry:
    data, identity = record.data, record.id
    if options.id_field is not None:
        value = data.get(options.id_field)
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            return BadRecord(record.where, f"has no value for the id field {options.id_field!r}")
        identity = str(value)
    if options.type is not None and "@type" not in data:
        data = {"@type": options.type, **data}
    return Record(data, record.where, identity, record.collection)


def _redact_entry(entry: Entry, redactor: Redactor) -> Entry:
    """Redact the secrets of the source's own URL in an entry, whose id may be that URL."""
    match entry:
        case Record():
            data, where = redactor.redact_data(entry.data), redactor.redact(entry.where)
            return replace(entry, data=data, where=where, id=entry.id and redactor.redact_data(entry.id))
        case BadRecord():
            return replace(entry, where=redactor.redact(entry.where), reason=redactor.redact(entry.reason))
        case Doubt():
            return replace(entry, place=redactor.redact(entry.place), value=redactor.redact(entry.value))
        case Remark():
            return Remark(redactor.redact(entry.place), redactor.redact(entry.text))
        case Link():
            return entry


def _kind_and_place(url: str, options: SourceOptions) -> tuple[str | None, str]:
    """Return the kind that the options or the scheme set, and the path or URL that remains."""
    added = url.partition("://")[0]
    if _source_registry().adds(added):
        return added, url
    match = _SCHEME.fullmatch(url)
    if match and match[1] in FORMATS:
        scheme, place = match[1], match[2]
    else:
        scheme, place = None, url
    kind = options.format or scheme
    if kind is not None and kind not in FORMATS:
        raise _unknown(f"There is no source format {kind!r}.")
    if place.startswith("file:"):
        place = unquote(urlsplit(place).path)
    if "://" not in place and not _DATABASE.match(place):
        place = os.path.normpath(place)
    if kind is None and _DATABASE.match(place):
        kind = "sql"
    return kind, place


def _make_reader(
    kind: str | None, place: str, options: SourceOptions, web: Fetcher, meter: Meter, check: RevisionCheck
) -> Callable[[], Iterator[Entry]]:
    if kind and _source_registry().adds(kind):
        return lambda: _source_registry().get(kind)(place, options)
    if kind == "sql":
        return lambda: _read_sql(place, options)
    if place.startswith(_WEB):
        return lambda: _read_web(kind, place, options, web, check)
    if "://" in place:
        raise _unknown(f"{place!r} has an unknown scheme.")
    path = Path(place)
    if path.is_dir():
        return lambda: _read_changed(_read_folder(path, kind, options, web), list_files(path), web, check)
    paths = [path] if path.exists() else sorted(map(Path, glob.glob(place, recursive=True)))
    if not paths:
        raise SourceError(f"There is no file or folder {place!r}.", path=place)
    kinds = [(one, kind or _kind_of_file(one)) for one in paths]
    meter.total = sum(one.stat().st_size for one, kind in kinds if kind != "sql")
    if any(kind == "openapi" for _, kind in kinds):  # which may refer to files beside it
        return lambda: _read_files(kinds, options, web, meter)
    return lambda: _read_changed(_read_files(kinds, options, web, meter), paths, web, check)


def _read_changed(
    entries: Iterator[Entry], paths: Iterable[Path], web: Fetcher, check: RevisionCheck
) -> Iterator[Entry]:
    """Read files unless none has changed since they were loaded."""
    check.see_files(paths)
    yield from _read_whole(entries, web, check)


def _read_whole(entries: Iterator[Entry], web: Fetcher, check: RevisionCheck) -> Iterator[Entry]:
    """Read what was checked. If it leads to further requests, the check does not cover all of the source."""
    requests = web.requests
    yield from entries
    if web.requests != requests:
        check.forget()


def _kind_of_file(path: Path) -> str:
    kind = sniff.by_name(path.name)
    if kind is None:
        with _open_file(path, str(path)) as document:
            kind = sniff.by_content(document)
    if kind is None:
        raise _unknown(f"{str(path)!r} has an unknown format.")
    return kind


def _read_files(files: list[tuple[Path, str]], options: SourceOptions, web: Fetcher, meter: Meter) -> Iterator[Entry]:
    for path, kind in files:
        if kind == "sql":
            yield from _read_sql(str(path), options)
            continue
        with _open_file(path, str(path)) as document:
            meter.file = document.file
            yield from _read_document(document, kind, options, web)
        meter.done += path.stat().st_size


def _read_folder(root: Path, kind: str | None, options: SourceOptions, web: Fetcher) -> Iterator[Entry]:
    names = {path.relative_to(root).as_posix(): path for path in list_files(root)}
    members = [folders.Member(name, partial(_open_unpacked, path, name, options)) for name, path in names.items()]
    yield from folders.read_members(
        members, str(root), lambda document, kind: _read_document(document, kind, options, web), kind
    )
    if links := sorted(path.relative_to(root).as_posix() for path in _unfollowed_links(root)):
        count = "1 link" if len(links) == 1 else f"{len(links):,} links"
        yield Remark(str(root), f"{count} to folders or out of this one not followed: {', '.join(links[:MAX_LINKS])}")


@contextmanager
def _open_unpacked(path: Path, name: str, options: SourceOptions) -> Generator[Document]:
    with _open_file(path, name) as document, _unpacked(document, options) as unpacked:
        yield unpacked


def _unpacked(document: Document, options: SourceOptions) -> AbstractContextManager[Document]:
    is_gzip = sniff.packing(document) == "gz"
    return archives.open_gzip(document, options.max_bytes) if is_gzip else nullcontext(document)


def _read_zip(document: Document, options: SourceOptions, web: Fetcher) -> Iterator[Entry]:
    """Read the files of an archive as those of a folder; its only file as if it were not packed."""
    with archives.open_zip(document, options.max_bytes) as archive:
        infos = archives.list_files(archive)
        yield from (BadRecord(info.filename, problem) for info in infos if (problem := archives.problem_with(info)))
        members = [
            folders.Member(info.filename, partial(archives.open_member, archive, info))
            for info in infos
            if not archives.problem_with(info)
        ]
        wanted = options.format if options.format != "zip" else None
        yield from folders.read_members(
            members,
            document.name,
            lambda inner, kind: _read_document(inner, kind, options, web),
            wanted,
            names_tables=len(members) > 1,
        )


def _read_gzip(document: Document, options: SourceOptions, web: Fetcher) -> Iterator[Entry]:
    with archives.open_gzip(document, options.max_bytes) as unpacked:
        wanted = options.format if options.format != "gz" else None
        kind = wanted or sniff.by_name(unpacked.name) or sniff.by_content(unpacked)
        if kind in (None, "gz", "sql"):
            raise _unknown(f"{document.name} holds a file of an unknown format.")
        yield from _read_document(unpacked, kind, options, web)


def _read_web(
    kind: str | None, url: str, options: SourceOptions, web: Fetcher, check: RevisionCheck
) -> Iterator[Entry]:
    if kind == "site":
        yield from crawl.read_site(url, web, options)
        return
    if kind == "sitemap":
        yield from crawl.read_sitemap(url, web, options)
        return
    with _download(url, web, check) as document:
        document_kind = kind or _kind_of_answer(document)
        if document_kind != "site":
            entries = _read_document(document, document_kind, replace(options, format=kind), web)
            yield from _read_whole(entries, web, check)
            return
    check.forget()
    # The URL of a page stands for its whole site.
    yield from crawl.read_site(url, web, options)


def _kind_of_answer(document: Document) -> str:
    kind_by_name = sniff.by_name(document.name)
    kind = sniff.by_content(document) if kind_by_name in (None, "html") else kind_by_name
    if kind is None or kind == "sql":
        raise _unknown(f"{document.name} has an unknown format.")
    return "site" if kind == "html" else kind


def _read_document(document: Document, kind: str, options: SourceOptions, web: Fetcher) -> Iterator[Entry]:
    document = replace(document, base_url=options.base_url)
    packing = sniff.packing(document)
    if packing is not None and kind not in _PACKED[packing]:
        kind = packing
    document_kind = _document_kind(kind, document)
    entries = _READERS[document_kind](document, options, web)
    if document_kind in _RECORDS and options.base_url:
        entries = join_addresses(entries, options.base_url)
    if document_kind in _TABLES and not options.group_by:
        entries = variants.group_recognized_rows(entries)
    yield from entries


def _document_kind(kind: str, document: Document) -> str:
    """Return the format of a document, which `pages` and `site` leave to its name or content."""
    if kind not in ("pages", "site"):
        return kind
    document_kind = sniff.by_name(document.name) or sniff.by_content(document)
    return document_kind if document_kind in folders.DOCUMENTS else "html"


@contextmanager
def _open_file(path: Path, name: str) -> Generator[Document]:
    try:
        file = path.open("rb")
    except OSError as problem:
        raise SourceError(f"{name} cannot be read: {problem.strerror}", path=str(path)) from problem
    with file:
        yield Document(file, name, folder=path.parent)


@contextmanager
def _open_changed(url: str, fetcher: Fetcher, check: RevisionCheck) -> Generator[FetchResponse]:
    """Request a URL. Raise SourceUnchanged if it is what was loaded last."""
    conditions = check.conditions()
    with fetcher.open(url, headers=conditions) as answer:
        if not conditions or answer.status != HTTPStatus.NOT_MODIFIED:
            yield answer
            return
        check.confirm_response(answer.url)
    with fetcher.open(url) as answer:
        yield answer


@contextmanager
def _download(url: str, fetcher: Fetcher, check: RevisionCheck) -> Generator[Document]:
    """Download a URL into a temporary file, which is deleted afterwards. The fetcher limits its size."""
    with tempfile.TemporaryFile() as file:
        with _open_changed(url, fetcher, check) as answer:
            answer.raise_for_status()
            check.see_response(answer.url, answer.headers)
            document = Document(file, answer.url, answer.url, answer.content_type)
            for chunk in answer.chunks:
                file.write(chunk)
        file.seek(0)
        yield document


def list_files(root: Path) -> Iterator[Path]:
    """Yield the regular files of a folder in order, without hidden ones and without links that lead outside."""
    inside = root.resolve()
    for folder, _, names in _walk(root):
        for name in names:
            path = folder / name
            if path.is_file() and path.resolve().is_relative_to(inside):
                yield path


def _unfollowed_links(root: Path) -> Iterator[Path]:
    """Yield the links of a folder to folders, to files outside of it, and to nothing."""
    inside = root.resolve()
    for folder, inner, names in _walk(root):
        for path in (folder / name for name in (*inner, *names)):
            if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(inside)):
                yield path


def _walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each folder below one with the names of its folders and its files in order, without hidden ones."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in folders.TOOL_FOLDERS)
        yield Path(folder), inner, sorted(name for name in names if not name.startswith("."))


def _read_sql(place: str, options: SourceOptions) -> Iterator[Entry]:
    entries = cast("Iterator[Entry]", _sql_module().read(_database_url(place), options))
    return join_addresses(entries, options.base_url) if options.base_url else entries


def _database_url(place: str) -> str:
    return place if _DATABASE.match(place) or "://" in place else f"sqlite:///{place}"


def _sql_module() -> ModuleType:
    try:
        return import_module("portico.sources.sql")
    except ModuleNotFoundError as problem:
        hint = "Install it with `pip install 'portico[sql]'`."
        raise SourceError("Reading SQL databases needs SQLAlchemy.", hint=hint) from problem


def _imported(name: str) -> Reader:
    """Return the reader of a module that is imported for the first such file: its libraries take long to import."""

    def read(document: Document, options: SourceOptions, _: Fetcher) -> Iterator[Entry]:
        module = import_module(f"portico.sources.{name}")
        return cast("Iterator[Entry]", module.read(document, options))

    return read


def _unknown(message: str) -> SourceError:
    return SourceError(message, hint=f"Set `format` to one of: {', '.join(FORMATS)}.")


_READERS: dict[str, Reader] = {
    "json": lambda document, _options, _web: jsonld.read(document),
    "jsonld": lambda document, _options, _web: jsonld.read(document),
    "jsonl": lambda document, _options, _web: jsonld.read_lines(document),
    "csv": lambda document, options, _web: tables.read(document, None, options.encoding),
    "tsv": lambda document, options, _web: tables.read(document, "\t", options.encoding),
    "feed": lambda document, _options, _web: feeds.read(document),
    "html": lambda document, options, _web: pages.read_html(document, options.encoding),
    "markdown": lambda document, options, _web: pages.read_markdown(document, options.encoding),
    "openapi": openapi.read,
    "pdf": _imported("pdf"),
    "text": lambda document, options, _web: documents.read_text_file(document, options),
    "docx": lambda document, options, _web: docx.read(document, options),
    "rst": _imported("rst"),
    "ipynb": lambda document, _options, _web: notebooks.read(document),
    "xlsx": _imported("xlsx"),
    "parquet": _imported("parquet"),
    "vcf": lambda document, options, _web: vcards.read(document, options),
    "ics": _imported("calendars"),
    "zip": _read_zip,
    "gz": _read_gzip,
    "sitemap": lambda document, options, web: crawl.read_sitemap_file(document, web, options),
}
