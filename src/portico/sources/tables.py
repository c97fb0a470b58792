"""Reads CSV and TSV with a header row, streamed. Infers the delimiter, and the type of each cell by itself."""

import csv
import io
import re
from collections.abc import Container, Iterator, Sequence
from enum import Enum, auto
from typing import Any, TypeAlias

from portico.errors import SourceError
from portico.sources.records import MAX_RECORD_BYTES, BadRecord, Document, Entry, Record, id_of, too_large

Path: TypeAlias = tuple[str, ...]

DELIMITERS = ",;\t"
MAX_COLUMNS = 10_000
# 007 and +44 are not numbers; 1e5 may be a part number. A float holds fifteen digits exactly.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,9})\.[0-9]{1,6}", re.ASCII)
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_QUOTED = re.compile(r'"[^"]*"')
_QUOTED_REST = re.compile(r'(?:[^"]++|"")*+')
_SURROGATE = re.compile("[\ud800-\udfff]")


class RowTooLong(Exception):
    """A row has more bytes than a record may have. It was read to its end."""


def cell(text: str) -> Any:
    """Return None for an empty cell, and a number or a boolean only if no information is lost."""
    text = text.strip()
    if not text:
        return None
    if _INTEGER.fullmatch(text) and text != "-0":
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return _BOOLEANS.get(text, text)


def read(document: Document, delimiter: str | None = None) -> Iterator[Entry]:
    # The limit belongs to the csv module, not to one reader: it is the same wherever it is set.
    csv.field_size_limit(MAX_RECORD_BYTES)
    lines = _RowLines(document, delimiter)
    try:
        rows = _rows(csv.reader(lines, delimiter=lines.delimiter), lines, document.name)
        paths = _header(next(rows, None), document.name)
        for where, row in rows:
            yield _entry(row, paths, where)
    finally:
        lines.detach()


def _header(first: tuple[str, list[str] | BadRecord] | None, name: str) -> list[Path]:
    match first:
        case None:
            return []
        case (_, list() as titles) if len(titles) <= MAX_COLUMNS and not any(map(_is_broken, titles)):
            return _paths(titles)
        case _:
            hint = f"The first row must name at most {MAX_COLUMNS} columns, in UTF-8."
            raise SourceError(f"{name} has no header that can be read.", hint=hint)


class _RowLines:
    """The lines of a text file, with a limit on the bytes of one row."""

    def __init__(self, document: Document, delimiter: str | None) -> None:
        document.file.seek(0)
        start = document.file.read(2)
        document.file.seek(0)
        encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        # Bytes that are not UTF-8 become surrogates, so that only their own row is refused.
        errors = "replace" if encoding == "utf-16" else "surrogateescape"
        self._text = io.TextIOWrapper(document.file, encoding, errors, newline="")
        self._first: str | None = self._text.readline(MAX_RECORD_BYTES + 1)
        self._may_search = True
        self._room = MAX_RECORD_BYTES
        bare = _QUOTED.sub("", self._first)
        self.delimiter = delimiter or max(DELIMITERS, key=bare.count)
        self.number = 0  # of lines that were read

    def begin_row(self) -> None:
        self._room = MAX_RECORD_BYTES

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line, self._first = self._first or self._text.readline(MAX_RECORD_BYTES + 1), None
        if not line:
            raise StopIteration
        if _size(line.rstrip("\r\n")) > self._room:
            # A row continues on a second line only inside quotes.
            self._skip_row(line, _Cell.START if self._room == MAX_RECORD_BYTES else _Cell.QUOTED)
            raise RowTooLong
        self._room -= _size(line)
        self.number += _is_whole(line)
        return line

    def _skip_row(self, line: str, cell: "_Cell") -> None:
        """Skip to the end of the row; to the end of its line, if a quote never closes."""
        line, cell = self._skip_line(line, cell)
        position, number = self._text.tell(), self.number
        while cell is _Cell.QUOTED and self._may_search:
            line, cell = self._skip_line(self._text.readline(MAX_RECORD_BYTES), cell)
            if not line:
                # A file with many open quotes is searched only once.
                self._may_search = False
                self._text.seek(position)
                self.number = number

    def _skip_line(self, line: str, cell: "_Cell") -> tuple[str, "_Cell"]:
        """Skip to the end of a partly read line. Return its last part; empty at the end of the file."""
        while line:
            if line.endswith('"'):
                line += self._text.readline(1)  # a second quote would make a pair of it
            cell = _cell_after(line, cell, self.delimiter)
            if _is_whole(line):
                self.number += 1
                break
            line = self._text.readline(MAX_RECORD_BYTES)
        return line, cell

    def detach(self) -> None:
        """Detach from the file, which the text wrapper would otherwise close."""
        self._text.detach()


class _Cell(Enum):
    """The state of a position in a row."""

    START = auto()
    BARE = auto()
    QUOTED = auto()


def _cell_after(text: str, cell: _Cell, delimiter: str) -> _Cell:
    """Return the state after more text of a row. Quotes are read as in the csv module."""
    at = 0
    while at < len(text):
        if cell is _Cell.QUOTED:
            closing = _QUOTED_REST.match(text, at)
            at = closing.end() + 1 if closing else at + 1
            cell = _Cell.QUOTED if at > len(text) else _Cell.BARE
        elif cell is _Cell.START and text[at] == '"':
            at, cell = at + 1, _Cell.QUOTED
        else:
            end = text.find(delimiter, at)
            at, cell = (end + 1, _Cell.START) if end >= 0 else (len(text), _Cell.BARE)
    return cell


def _is_whole(line: str) -> bool:
    return line.endswith(("\n", "\r"))


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _rows(reader: Any, lines: _RowLines, name: str) -> Iterator[tuple[str, list[str] | BadRecord]]:
    """Yield each row, or the reason why it cannot be read, with the line where it starts."""
    while True:
        where = f"{name}:{lines.number + 1}"
        lines.begin_row()
        try:
            row: list[str] = next(reader)
        except StopIteration:
            return
        except RowTooLong:
            yield where, too_large(where)
        except csv.Error as problem:
            yield where, BadRecord(where, f"is not a row: {problem}")
        else:
            if row:
                yield where, row


def _entry(row: list[str] | BadRecord, paths: Sequence[Path], where: str) -> Entry:
    if isinstance(row, BadRecord):
        return row
    while len(row) > len(paths) and not row[-1]:
        row = row[:-1]
    if len(row) != len(paths):
        return BadRecord(where, f"has {len(row)} cells where the header has {len(paths)}")
    if any(_is_broken(text) for text in row):
        return BadRecord(where, "is not UTF-8")
    data: dict[str, Any] = {}
    for path, text in zip(paths, row, strict=True):
        value = cell(text)
        if value is not None:
            _place(data, path, value)
    return Record(data, where, id_of(data)) if data else BadRecord(where, "is empty")


def _is_broken(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def _place(data: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        data = data.setdefault(name, {})
    data[path[-1]] = value


def _paths(header: list[str]) -> list[Path]:
    """Return the path of each column. An empty name becomes column_3, a second `price` becomes price_2."""
    names: dict[str, None] = {}
    for number, title in enumerate(header, 1):
        names[_unique_name(title.strip() or f"column_{number}", names)] = None
    nested = {name: tuple(name.split(".")) for name in names}
    leaves = set(nested.values())
    return [_path(name, nested[name], leaves) for name in names]


def _path(name: str, path: Path, leaves: set[Path]) -> Path:
    # With a column "offers", "offers.price" cannot be nested: it keeps its dotted name.
    hides = any(path[:length] in leaves for length in range(1, len(path)))
    return (name,) if hides or not all(path) else path


def _unique_name(name: str, used: Container[str]) -> str:
    count = 2
    unused = name
    while unused in used:
        unused = f"{name}_{count}"
        count += 1
    return unused
