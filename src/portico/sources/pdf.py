"""Reads the text of PDF files, one record per page. Reads no images: a scanned page is reported as without text."""

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from pypdf import Configuration, PageObject, PdfReader, apply_configuration
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import IndirectObject, PdfObject

from portico.sources.records import BadRecord, Document, Entry, Record, SourceOptions

Check: TypeAlias = Callable[[], None]

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
        title = _title(reader, document)
    except _BROKEN as problem:
        yield BadRecord(document.name, f"is not a readable PDF: {problem}")
        return
    for number in range(1, min(count, options.max_pages) + 1):
        yield _page(reader, number, title, document, check)
    if count > options.max_pages:
        yield BadRecord(document.name, f"has {count} pages; `max_pages` stopped at {options.max_pages}")


def _page(reader: PdfReader, number: int, title: str, document: Document, check: Check | None) -> Entry:
    where = f"{document.name}#page={number}"
    try:
        page: PageObject = reader.pages[number - 1]
        text = _tidy(_text(page, check))
    except _BROKEN as problem:
        return BadRecord(where, f"cannot be read: {problem}")
    if not text:
        return BadRecord(where, "has no text; it may be a picture")
    data: dict[str, Any] = {"@type": "DigitalDocument", "name": title, "text": text, "pageStart": number}
    if document.url:
        data["url"] = f"{document.url}#page={number}"
    return Record(data, where, where)


def _text(page: PageObject, check: Check | None) -> str:
    if check is None:
        return page.extract_text()

    def visit(*_: Any) -> None:
        check()

    text = page.extract_text(visitor_operand_before=visit)
    check()  # an error that it raised inside a form was caught there
    return text


def _title(reader: PdfReader, document: Document) -> str:
    title = reader.metadata.title if reader.metadata else None
    return str(title or "").strip() or PurePosixPath(document.name).name


def _tidy(text: str) -> str:
    # Broken font tables result in lone surrogates, which JSON cannot carry.
    clean = text.encode("utf-8", "ignore").decode().replace("\x00", "")
    lines = (" ".join(line.split()) for line in clean.splitlines())
    return "\n".join(line for line in lines if line)
