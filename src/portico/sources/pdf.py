"""Reads the text of PDF files, one record per page. Reads no images: a scanned page is reported as without text.

The name of a page tells it apart: that of its document, what the outline or a heading in large letters says of it, and
its number as it is printed.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias, cast

from pypdf import Configuration, PageObject, PdfReader, apply_configuration
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import IndirectObject, PdfObject

from portico.sources.documents import file_title
from portico.sources.records import BadRecord, Document, Entry, Record, SourceOptions
from portico.sources.web_paths import file_url

Check: TypeAlias = Callable[[], None]

MAX_OUTLINE = 20_000  # entries
_MAX_TITLE = 200
_MAX_HEADING = 120
_LARGE = 1.25  # letters of a heading, to those of most of its page
_OF_A_PROGRAM = re.compile(r"Microsoft (?:Word|PowerPoint) - ")
_SUFFIX = re.compile(r"\.(?:docx?|pdf|indd|odt|pptx?|tex|dvi)\Z", re.IGNORECASE)
_NO_TITLES = frozenset(("", "untitled", "untitled document", "document", "unspecified"))
MAX_STREAM = 1_000_000  # bytes that a stream of an untrusted file may decompress to
_STRANGERS = Configuration(
    zlib_maximum_output_length=MAX_STREAM,
    lzw_maximum_output_length=MAX_STREAM,
    run_length_maximum_output_length=MAX_STREAM,
    array_based_stream_maximum_output_length=MAX_STREAM,
    stream_decoding_work_maximum_length=4 * MAX_STREAM,
    stream_parsing_work_maximum_count=100_000,  # about half a second
    dictionary_maximum_element_count=10_000,
    page_tree_maximum_entries=10_000,
    xform_maximum_invocations_per_extraction=500,
)

# Pypdf meets a broken file with its own errors, and with those of whatever it was doing at the time.
_BROKEN = (
    PyPdfError, DependencyError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, OSError,
    RecursionError, NotImplementedError, AssertionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Book:
    """What a document says of its pages, beside their texts."""

    title: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    sections: dict[int, str] = field(default_factory=dict[int, str])  # by the page, from 0, that they are on
    labels: list[str] = field(default_factory=list[str])  # the numbers of pages as they are printed

    def name(self, number: int, heading: str) -> str:
        label = self.labels[number - 1] if number <= len(self.labels) else ""
        page = f"page {label or number}"
        return f"{self.title} – {heading}, {page}" if heading else f"{self.title} – {page}"


class _Watched(PdfReader):
    """Calls `check` at every lookup: fonts and forms are looked up each time they are used."""

    def __init__(self, document: Document, check: Check) -> None:
        self._check = check
        super().__init__(document.file)

    def get_object(self, indirect_reference: int | IndirectObject) -> PdfObject | None:
        self._check()
        return super().get_object(indirect_reference)


def read_strangers(document: Document, options: SourceOptions, check: Check) -> list[Entry]:
    """Read the pages of an untrusted file. `check` is called often, and raises to stop.

    What unfolds to more than a page can need is not read: a kilobyte can say a thing millions of times.
    """
    with apply_configuration(_STRANGERS):
        return list(_entries(document, options, check))


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    yield from _entries(document, options, None)


def _entries(document: Document, options: SourceOptions, check: Check | None) -> Iterator[Entry]:
    try:
        document.file.seek(0)
        reader = _Watched(document, check) if check else PdfReader(document.file)
        if reader.is_encrypted and not reader.decrypt(""):
            yield BadRecord(document.name, "is encrypted")
            return
        count = len(reader.pages)
        book = _book(reader, count, document)
    except _BROKEN as problem:
        yield BadRecord(document.name, f"is not a readable PDF: {problem}")
        return
    for number in range(1, min(count, options.max_pages) + 1):
        yield _page(reader, number, count, book, document, check)
    if count > options.max_pages:
        yield BadRecord(document.name, f"has {count} pages; `max_pages` stopped at {options.max_pages}")


def _page(reader: PdfReader, number: int, count: int, book: _Book, document: Document, check: Check | None) -> Entry:
    where = f"{document.name}#page={number}"
    try:
        page: PageObject = reader.pages[number - 1]
        text, large = _text(page, check)
    except _BROKEN as problem:
        return BadRecord(where, f"cannot be read: {problem}")
    if not text:
        return BadRecord(where, "has no text; it may be a picture")
    heading = book.sections.get(number - 1) or (large if large != book.title else "")
    data: dict[str, Any] = {
        "@type": "DigitalDocument",
        "name": book.name(number, heading) if count > 1 else book.title,
        "headline": heading,
        "text": text,
        "pageStart": number,
        **book.fields,
    }
    if url := file_url(document):
        data["url"] = f"{url}#page={number}"
    return Record({name: value for name, value in data.items() if value}, where, where)


def _text(page: PageObject, check: Check | None) -> tuple[str, str]:
    """Return the text of a page, and its heading in large letters if the file is trusted to be read for it."""
    if check is None:
        letters: list[tuple[float, str]] = []

        def collect(text: str, form: list[float], matrix: list[float], _font: Any, size: float) -> None:
            if text.strip():
                letters.append((round(abs(size * matrix[3] * form[3]), 1), text))

        text = _tidy(page.extract_text(visitor_text=collect))
        return text, _large_heading(letters)

    def visit(*_: Any) -> None:
        check()

    text = page.extract_text(visitor_operand_before=visit)
    check()  # an error that it raised inside a form was caught there
    return _tidy(text), ""


def _large_heading(letters: list[tuple[float, str]]) -> str:
    """Return the first text in letters that are larger than most of the page; nothing if that is no heading."""
    counts = Counter[float]()
    for size, text in letters:
        counts[size] += len(text)
    usual = max(counts, key=lambda size: counts[size], default=0.0)
    parts: list[str] = []
    for size, text in letters:
        if size >= usual * _LARGE and usual:
            parts.append(text)
        elif parts:
            break
    heading = " ".join(_tidy(" ".join(parts)).split())
    return heading if len(heading) <= _MAX_HEADING and sum(map(str.isalpha, heading)) >= 3 else ""


def _book(reader: PdfReader, count: int, document: Document) -> _Book:
    try:
        sections = _sections(reader, count)
    except _BROKEN:
        sections = {}
    try:
        labels = reader.page_labels if "/PageLabels" in reader.root_object else []
    except _BROKEN:
        labels = []
    printed = [_tidy(label)[:20] for label in labels]
    return _Book(_title(reader, document), _fields(reader), sections, printed if len(set(printed)) == count else [])


def _fields(reader: PdfReader) -> dict[str, Any]:
    """Return the author and the dates of a document."""
    metadata = reader.metadata
    if metadata is None:
        return {}
    author = _tidy(str(metadata.author or ""))[:_MAX_TITLE]
    return {
        "author": "" if author.lower() in ("anonymous", "unknown") else author,
        "dateCreated": _instant(lambda: metadata.creation_date),
        "dateModified": _instant(lambda: metadata.modification_date),
    }


def _instant(read_date: Callable[[], datetime | None]) -> str:
    try:
        date = read_date()
    except _BROKEN:
        return ""
    return date.isoformat() if date else ""


def _sections(reader: PdfReader, count: int) -> dict[int, str]:
    """Return the entry of the outline for each page: the first that begins on it, else the last before it."""
    first: dict[int, tuple[str, int]] = {}
    last: dict[int, str] = {}
    for title, level, number in _outline(reader):
        known = first.get(number)
        # A chapter whose first section begins with it says less than the section.
        if known is None or (level > known[1] and last.get(number) == known[0]):
            first[number] = (title, level)
        last[number] = title
    sections: dict[int, str] = {}
    current = ""
    for number in range(count):
        begun = first.get(number)
        title = begun[0] if begun else current
        if title:
            sections[number] = title
        current = last.get(number, current)
    return sections


def _outline(reader: PdfReader) -> Iterator[tuple[str, int, int]]:
    """Yield the entries of the outline in order: title, level, page from 0."""
    stack: list[tuple[Any, int]] = [(one, 0) for one in reversed(reader.outline)]
    for _ in range(MAX_OUTLINE):
        if not stack:
            return
        entry, level = stack.pop()
        if isinstance(entry, list):
            stack += [(one, level + 1) for one in reversed(cast("list[Any]", entry))]
            continue
        number = reader.get_destination_page_number(entry)
        title = " ".join(_tidy(str(entry.title or "")).split())[:_MAX_HEADING]
        if number is not None and title:
            yield title, level, number


def _title(reader: PdfReader, document: Document) -> str:
    title = " ".join(_tidy(str((reader.metadata.title if reader.metadata else None) or "")).split())
    own = _SUFFIX.sub("", _OF_A_PROGRAM.sub("", title)).strip()[:_MAX_TITLE]
    return own if own.lower() not in _NO_TITLES else file_title(document)


def _tidy(text: str) -> str:
    # Broken font tables result in lone surrogates, which JSON cannot carry.
    clean = text.encode("utf-8", "ignore").decode().replace("\x00", "")
    lines = (" ".join(line.split()) for line in clean.splitlines())
    return "\n".join(line for line in lines if line)
