"""PDF text, one record for each page. Reads no images, so a scanned page has no text and says so."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from pypdf import PageObject, PdfReader
from pypdf.errors import DependencyError, PyPdfError

from portico.sources.records import BadRecord, Document, Entry, Record, SourceOptions

# Pypdf meets a broken file with its own errors, and with those of whatever it was doing at the time.
_BROKEN = (
    PyPdfError, DependencyError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, OSError,
    RecursionError, NotImplementedError, AssertionError,
)  # fmt: skip


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    try:
        document.file.seek(0)
        reader = PdfReader(document.file)
        if reader.is_encrypted and not reader.decrypt(""):
            yield BadRecord(document.name, "is encrypted")
            return
        count = len(reader.pages)
        title = _title(reader, document)
    except _BROKEN as problem:
        yield BadRecord(document.name, f"is not a readable PDF: {problem}")
        return
    for number in range(1, min(count, options.max_pages) + 1):
        yield _page(reader, number, title, document)
    if count > options.max_pages:
        yield BadRecord(document.name, f"has {count} pages; `max_pages` stopped at {options.max_pages}")


def _page(reader: PdfReader, number: int, title: str, document: Document) -> Entry:
    where = f"{document.name}#page={number}"
    try:
        page: PageObject = reader.pages[number - 1]
        text = _tidy(page.extract_text())
    except _BROKEN as problem:
        return BadRecord(where, f"cannot be read: {problem}")
    if not text:
        return BadRecord(where, "has no text; it may be a picture")
    data: dict[str, Any] = {"@type": "DigitalDocument", "name": title, "text": text, "pageStart": number}
    if document.url:
        data["url"] = f"{document.url}#page={number}"
    return Record(data, where, where)


def _title(reader: PdfReader, document: Document) -> str:
    title = reader.metadata.title if reader.metadata else None
    return str(title or "").strip() or PurePosixPath(document.name).name


def _tidy(text: str) -> str:
    # Broken font tables give lone surrogates, which no JSON can carry.
    clean = text.encode("utf-8", "ignore").decode().replace("\x00", "")
    lines = (" ".join(line.split()) for line in clean.splitlines())
    return "\n".join(line for line in lines if line)
