"""Reads Jupyter notebooks: their Markdown and their code. Reads no outputs and runs nothing."""

import re
from collections.abc import Iterator
from html import escape

import msgspec
from markdown_it import MarkdownIt

from portico.errors import SourceError
from portico.sources.documents import file_title, page_entries
from portico.sources.records import Document, Entry, too_large

_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)$", re.MULTILINE)


class _Cell(msgspec.Struct, frozen=True):
    cell_type: str
    source: str | list[str] = ""
    input: str | list[str] = ""  # of code, until version 3

    @property
    def text(self) -> str:
        text = self.source or self.input
        return text if isinstance(text, str) else "".join(text)

    def as_html(self) -> str:
        match self.cell_type:
            case "markdown":
                return _MARKDOWN.render(self.text)
            case "heading" | "raw":
                return f"<p>{escape(self.text)}</p>"
            case _:
                return f"<pre>{escape(self.text)}</pre>"


class _Sheet(msgspec.Struct, frozen=True):
    cells: list[_Cell] = []


class _Metadata(msgspec.Struct, frozen=True):
    title: str = ""


class _Notebook(msgspec.Struct, frozen=True):
    nbformat: int
    cells: list[_Cell] = []
    worksheets: list[_Sheet] = []  # until version 3
    metadata: _Metadata = _Metadata()

    @property
    def title(self) -> str:
        """Return the first heading, which says more than metadata that few people fill in."""
        texts = (cell.text for cell in self.all_cells() if cell.cell_type == "markdown")
        heading = next(filter(None, map(_HEADING.search, texts)), None)
        return heading[1].rstrip(" \t#") if heading else self.metadata.title

    def all_cells(self) -> list[_Cell]:
        return [*self.cells, *(cell for sheet in self.worksheets for cell in sheet.cells)]


def read(document: Document) -> Iterator[Entry]:
    text = document.read()
    if text is None:
        yield too_large(document.name)
        return
    try:
        notebook = msgspec.json.decode(text, type=_Notebook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise SourceError(f"{document.name} is not a readable notebook: {problem}") from problem
    body = "".join(cell.as_html() for cell in notebook.all_cells())
    yield from page_entries(body, document, {"name": notebook.title or file_title(document)})
