"""Reads the text of Word documents: headings, paragraphs and tables. Reads no pictures, comments or deleted text."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from portico.errors import SourceError
from portico.sources.archives import open_zip, read_part, refuse_doctypes
from portico.sources.documents import Block, document_entries
from portico.sources.records import Document, Entry, SourceOptions
from portico.sources.xml import local, safe_parser

MAX_PART = 64 << 20  # bytes of the text with its markup
_TITLE_LEVEL = 1
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_SKIPPED = "Fallback"  # shapes are written twice: the second time for older programs
_BODY_LEVEL = 9
_PROPERTIES = {"title": "name", "creator": "author", "created": "dateCreated", "modified": "dateModified"}


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    with open_zip(document, options.max_bytes) as archive:
        refuse_doctypes(archive, document.name)
        text = read_part(archive, "word/document.xml", MAX_PART)
        if text is None:
            raise SourceError(f"{document.name} is not a Word document: it has no text part.")
        styles = _Styles()
        _parse(read_part(archive, "word/styles.xml", MAX_PART), styles, document.name)
        properties = _Properties()
        _parse(read_part(archive, "docProps/core.xml", MAX_PART), properties, document.name)
    body = _Body(styles.levels)
    _parse(text, body, document.name)
    yield from document_entries(body.blocks, document, _fields(properties, body))


def _fields(properties: "_Properties", body: "_Body") -> dict[str, Any]:
    fields = {name: value for name, value in properties.values.items() if value}
    # The title of the properties is often that of the template.
    heading = next((block.text for block in body.blocks if block.level == _TITLE_LEVEL), "")
    return {**fields, "name": body.title or heading or fields.get("name", "")}


class _Handler:
    """Takes the elements of a part, by their local names."""

    def start(self, name: str, attributes: dict[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def text(self, text: str) -> None: ...


def _parse(part: bytes | None, handler: _Handler, name: str) -> None:
    if part is None:
        return
    parser = safe_parser(name)
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: handler.start(
        local(tag), {local(key): value for key, value in attributes.items()}
    )
    parser.EndElementHandler = lambda tag: handler.end(local(tag))
    parser.CharacterDataHandler = handler.text
    try:
        parser.Parse(part, True)
    except expat.ExpatError as problem:
        raise SourceError(f"{name} is not a readable Word document: {problem}") from problem


class _Styles(_Handler):
    """The levels of headings by the ids of their styles, whose names are English in every language of Word."""

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}
        self._id = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "style":
            self._id = attributes.get("styleId", "")
        elif name == "name" and self._id:
            level = _heading_level(attributes.get("val", ""))
            if level is not None:
                self.levels[self._id] = level
        elif name == "outlineLvl" and attributes.get("val", "").isdecimal():
            level = int(attributes["val"])
            if level < _BODY_LEVEL:
                self.levels.setdefault(self._id, level + 1)


def _heading_level(style: str) -> int | None:
    """Return 0 for the style of titles, 1 to 9 for those of headings."""
    name = style.lower()
    if name == "title":
        return 0
    number = name.removeprefix("heading").strip()
    return int(number) if name.startswith("heading") and number.isdecimal() else None


class _Properties(_Handler):
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._name = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._name = _PROPERTIES.get(name, "")

    def end(self, name: str) -> None:
        self._name = ""

    def text(self, text: str) -> None:
        if self._name:
            self.values[self._name] = self.values.get(self._name, "") + text


@dataclass(slots=True)
class _Paragraph:
    words: list[str] = field(default_factory=list[str])
    level: int | None = None


class _Body(_Handler):
    """The blocks of the text. A row of a table is one block, and so is a paragraph of a text box inside another."""

    def __init__(self, levels: dict[str, int]) -> None:
        self.blocks: list[Block] = []
        self.title = ""
        self._levels = levels
        self._paragraphs: list[_Paragraph] = []  # that are open
        self._rows: list[list[str]] = []  # that are open, with the texts of their cells
        self._skipped = 0
        self._is_text = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._is_text = False
        if name == _SKIPPED or self._skipped:
            self._skipped += 1
            return
        match name:
            case "p":
                self._paragraphs.append(_Paragraph())
            case "pStyle" if self._paragraphs:
                style = attributes.get("val", "")
                self._paragraphs[-1].level = self._levels.get(style, _heading_level(style))
            case "tr":
                self._rows.append([])
            case "tc" if self._rows:
                self._rows[-1].append("")
            case "t":
                self._is_text = True
            case _ if name in _BREAKS and self._paragraphs:
                self._paragraphs[-1].words.append(_BREAKS[name])
            case _:
                pass

    def text(self, text: str) -> None:
        if self._is_text and self._paragraphs:
            self._paragraphs[-1].words.append(text)

    def end(self, name: str) -> None:
        self._is_text = False
        if self._skipped:
            self._skipped -= 1
        elif name == "p":
            self._end_paragraph(self._paragraphs.pop())
        elif name == "tr":
            self._add_text(" | ".join(filter(None, self._rows.pop())), 0)

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.words).strip()
        if paragraph.level == 0 and not self._rows:
            self.title = self.title or text
        self._add_text(text, 0 if paragraph.level is None else max(paragraph.level, 1))

    def _add_text(self, text: str, level: int) -> None:
        """Add a text to the cell that is open, or as a block of its own."""
        if text and self._rows and self._rows[-1]:
            self._rows[-1][-1] = f"{self._rows[-1][-1]} {text}".strip()
        elif text:
            self.blocks.append(Block(text, level))
