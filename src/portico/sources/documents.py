"""Reads plain texts, and makes a page of any document, so that its passages are those of web pages."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import PurePosixPath
from typing import Any

from portico.errors import SourceError
from portico.sources import pages
from portico.sources.html import TooDeep, parse_html
from portico.sources.records import BadRecord, Document, Entry, SourceOptions
from portico.sources.text import read_text
from portico.sources.web_paths import file_url

_MAX_TITLE = 120
_MAX_PARAGRAPHS = 50_000  # a page may have twice as many tags; more paragraphs share one
_PARAGRAPHS = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_UNDERLINE = re.compile(r"\n[=~*_-]{3,}[ \t]*\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a document. `level` is that of a heading, from 1; 0 for a paragraph."""

    text: str
    level: int = 0
    is_code: bool = False

    def as_html(self) -> str:
        tag = f"h{min(self.level, 6)}" if self.level else "pre" if self.is_code else "p"
        return f"<{tag}>{escape(self.text)}</{tag}>"


def document_entries(blocks: Iterable[Block], document: Document, fields: dict[str, Any]) -> Iterator[Entry]:
    """Yield the passages of a document. Its title is the field `name`, its first heading, or the name of its file."""
    every = list(blocks)
    heading = next((block.text for block in every if block.level), "")
    title = fields.get("name") or heading or file_title(document)
    yield from page_entries("".join(block.as_html() for block in every), document, {**fields, "name": title})


def page_entries(body: str, document: Document, fields: dict[str, Any]) -> Iterator[Entry]:
    """Yield the passages of HTML that a document was converted to."""
    try:
        tree = parse_html(f"<main>{body}</main>")
    except TooDeep as problem:
        yield BadRecord(document.name, str(problem))
        return
    identity = document.url or document.name
    yield from pages.records(pages.HtmlPage(tree, identity, file_url(document), document.name, fields))


def file_title(document: Document) -> str:
    """Return the name of a file as a title: "Opening hours" for opening-hours.txt."""
    stem = re.sub(r"[\s_-]+", " ", PurePosixPath(document.name).stem).strip()
    return stem[:1].upper() + stem[1:]


def read_text_file(document: Document, options: SourceOptions) -> Iterator[Entry]:
    """Read a plain text. Its first line is the title if it stands alone and is short."""
    text, notes = read_text(document, options.encoding)
    if "\x00" in text:
        raise SourceError(f"{document.name} is not a text.", hint="Set `format` to what it is.")
    paragraphs = [part.strip("\n") for part in _PARAGRAPHS.split(text.strip()) if part.strip()]
    if paragraphs:
        yield from document_entries(_text_blocks(paragraphs), document, {})
    elif not notes:
        yield BadRecord(document.name, "has no text")
    yield from notes


def _text_blocks(paragraphs: list[str]) -> Iterator[Block]:
    first, *rest = paragraphs
    first = _UNDERLINE.sub("", first).strip()
    is_title = bool(rest) and "\n" not in first and len(first) <= _MAX_TITLE
    if is_title:
        yield Block(first, 1)
    texts = rest if is_title else paragraphs
    size = 1 + len(texts) // _MAX_PARAGRAPHS
    for start in range(0, len(texts), size):
        yield Block("\n\n".join(texts[start : start + size]))
