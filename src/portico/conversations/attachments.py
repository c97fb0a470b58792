"""Files that come with a question, as bounded passages to answer it from. Keeps nothing; fetches nothing."""

import io
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeAlias

from portico.errors import BadRequest
from portico.items import IN_WORDS, Item, invisible_pattern, text_problem
from portico.requests import File
from portico.search.index.text import words
from portico.sources import pages
from portico.sources.html import TooDeep
from portico.sources.records import BadRecord, Document, Entry, Record, SourceOptions
from portico.telemetry import silence_library

COLLECTION = "_attachments"  # of which the passages are said to be; there is no such collection
MAX_PAGES = 50  # of a PDF
MAX_PASSAGES = 200  # of a file
MAX_KEPT = 8  # passages that a question is answered from
MAX_CHARACTERS = 2000  # of a passage
MAX_NAME = 100
MAX_MARKDOWN = 100_000  # bytes; what is longer is read as plain text, which takes less time
MAX_PREFACE = 1024  # bytes before what shows that a file is a PDF
SECONDS = 5.0  # to read the files of a question

_MARKS = r"\s\[\]<>#:%?*|\""  # that mean something around a citation
_UNFIT = re.compile(f"(?:{invisible_pattern(except_for=IN_WORDS, also=_MARKS).pattern})+")

Check: TypeAlias = Callable[[], None]
Reader: TypeAlias = Callable[[Document, Check], Iterable[Entry]]


def read_files(files: Sequence[File], question: str, deadline: float | None = None) -> tuple[Item, ...]:
    """Return the passages that share most words with the question, and the first of each file if there is room.

    Reading takes a while: this is for a thread, which ends soon after the deadline (of time.monotonic) by itself.
    What cannot be read is the caller's mistake.
    """
    check = _until(time.monotonic() + SECONDS if deadline is None else deadline)
    parts = [_passages(file, name, check) for file, name in zip(files, _names(files), strict=True)]
    question_words = frozenset(map(str.lower, words(question)))
    first = [passages[0] for passages in parts][:MAX_KEPT]
    others = sorted(
        (item for passages in parts for item in passages[1:]),
        key=lambda item: -_count_shared_words(item, question_words),
    )
    selected = {item.id: item for item in (*first, *others[: MAX_KEPT - len(first)])}
    return tuple(sorted(selected.values(), key=lambda item: -_count_shared_words(item, question_words)))


def _until(deadline: float) -> Check:
    """Return a function to call while reading, which raises once that has taken too long."""

    def check() -> None:
        if time.monotonic() > deadline:
            raise BadRequest("It takes too long to read these files", hint="Send smaller ones.")

    return check


def _count_shared_words(item: Item, question_words: frozenset[str]) -> int:
    return len(question_words.intersection(map(str.lower, words(item.data["text"]))))


def _passages(file: File, name: str, check: Check) -> list[Item]:
    check()
    document = Document(io.BytesIO(file.body), name)
    entries: list[Entry] = []
    for entry in islice(_READERS[_kind_of(file)](document, check), MAX_PASSAGES):
        check()
        entries.append(entry)
    records = [entry for entry in entries if isinstance(entry, Record) and entry.data.get("text")]
    if not records:
        reasons = [entry.reason for entry in entries if isinstance(entry, BadRecord)]
        raise BadRequest(f"{name} {reasons[0] if reasons else 'has no text'}", file=name)
    return [_item(record, name) for record in records]


def _item(record: Record, name: str) -> Item:
    text = str(record.data["text"])
    value = text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
    data = {"@type": "DigitalDocument", "name": str(record.data.get("headline") or name), "text": value}
    return Item((record.id or name).removesuffix("#1"), COLLECTION, data)


def _names(files: Sequence[File]) -> list[str]:
    """Return a distinct name to cite each file by. Browsers call every unnamed file `blob`."""
    names: list[str] = []
    for number, file in enumerate(files, 1):
        name = _name_of(file, number, _kind_of(file))
        names.append(name if name not in names else f"{number}-{name}")
    return names


def _name_of(file: File, number: int, kind: str) -> str:
    """Return a file's name without folders, markup characters and invisible ones."""
    name = PurePosixPath(file.name.replace("\\", "/")).name
    plain = _UNFIT.sub("-", name).strip("-.")[:MAX_NAME]
    if not plain or text_problem(plain):
        return f"file-{number}.{_SUFFIXES[kind]}"
    return plain if "." in plain else f"{plain}.{_SUFFIXES[kind]}"


def _kind_of(file: File) -> str:
    type = file.type.partition(";")[0].strip().lower()
    suffix = PurePosixPath(file.name.lower()).suffix.lstrip(".")
    by_name = next((kind for kind, suffixes in _KNOWN.items() if suffix in suffixes), None)
    if file.body.find(b"%PDF-", 0, MAX_PREFACE) >= 0:
        return "pdf"
    kind = _TYPES.get(type) or by_name or ("text" if type.startswith("text/") else None)
    if kind == "pdf":
        raise BadRequest("A file is not the PDF that it claims to be")
    if kind is None and type in _UNTOLD and _is_text(file.body):
        return "text"
    if kind is None:
        raise BadRequest(
            f"Files of the type {type or suffix or 'unknown'!r} are not read here",
            hint="Send text, Markdown, HTML or PDF.",
        )
    return kind


def _is_text(body: bytes) -> bool:
    """Return whether a file without a known type is text, as browsers send files of types they do not know."""
    try:
        return b"\x00" not in body and bool(body.decode("utf-8-sig").strip())
    except UnicodeDecodeError:
        return False


def _read_html(document: Document, _: Check) -> Iterator[Entry]:
    yield from _of_page(document, document.read() or b"")


def _read_markdown(document: Document, check: Check) -> Iterable[Entry]:
    text = document.read() or b""
    return _read_text(document, check) if len(text) > MAX_MARKDOWN else pages.read_markdown(document)


def _read_text(document: Document, _: Check) -> Iterator[Entry]:
    text = (document.read() or b"").decode("utf-8-sig", "replace").replace("\x00", "")
    paragraphs = re.split(r"\n\s*\n", text)
    html = "".join(f"<p>{escape(' '.join(paragraph.split()))}</p>" for paragraph in paragraphs if paragraph.strip())
    yield from _of_page(document, html.encode())


def _of_page(document: Document, html: bytes) -> Iterator[Entry]:
    try:
        yield from pages.passages(pages.parse_page(html, document.name, None, document.name))
    except TooDeep as problem:
        raise BadRequest(f"{document.name} {problem}", file=document.name) from problem


def _read_pdf(document: Document, check: Check) -> Iterable[Entry]:
    silence_library("pypdf")  # a small file can cause thousands of warnings
    # Takes half a second to import, so only when a PDF is sent.
    return import_module("portico.sources.pdf").read_strangers(document, SourceOptions(max_pages=MAX_PAGES), check)


_READERS: Mapping[str, Reader] = {
    "text": _read_text,
    "markdown": _read_markdown,
    "html": _read_html,
    "pdf": _read_pdf,
}
_TYPES = {
    "text/plain": "text",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
}
_UNTOLD = {"", "application/octet-stream"}  # types that say nothing
_KNOWN = {
    "text": {"txt", "text", "csv", "log"},
    "markdown": {"md", "markdown"},
    "html": {"html", "htm"},
    "pdf": {"pdf"},
}
_SUFFIXES = {"text": "txt", "markdown": "md", "html": "html", "pdf": "pdf"}
