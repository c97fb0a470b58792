"""Reads CSV and TSV with a header row, streamed. Infers the delimiter; every cell is a text."""

import csv
import io
import re
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any, TypeAlias

from portico.errors import SourceError
from portico.sources.dialect import SAMPLE, Dialect, detect_dialect, is_total
from portico.sources.records import (
    MAX_RECORD_BYTES,
    BadRecord,
    Document,
    Doubt,
    Entry,
    Record,
    Remark,
    id_of,
    too_large,
)
from portico.sources.text import Encoding, detect_encoding, misread_utf8

Path: TypeAlias = tuple[str, ...]
_NumberedRow: TypeAlias = tuple[str, list[str] | BadRecord]  # with its place

MAX_COLUMNS = 10_000
_QUOTED_REST = re.compile(r'(?:[^"]++|"")*+')
_MAX_OPEN_QUOTES = 100  # after which the rest of a file is not searched for rows
_SURROGATE = re.compile("[\ud800-\udfff]")


class RowTooLong(Exception):
    """A row has more bytes than a record may have. It was read to its end."""


class MultilineRow(list[str]):
    """The cells of a row that has more than one line."""


class OpenQuote(Exception):
    """A quote does not close where a cell ends. The lines below the one that opened it are read again."""


def read(document: Document, delimiter: str | None = None, encoding: str = "") -> Iterator[Entry]:
    # The limit belongs to the csv module, not to one reader: it is the same wherever it is set.
    csv.field_size_limit(MAX_RECORD_BYTES)
    written = detect_encoding(document.file, encoding)
    dialect = detect_dialect(_sample(document, written), delimiter)
    lines = _RowLines(document, written, dialect)
    try:
        rows = _rows(lines, document.name)
        header = next(rows, None)
        paths = _header(header, document.name)
        titles = header[1] if header else []
        yield from _entries(rows, paths, titles, written)
    finally:
        lines.detach()
    yield from written.entries(document.name)
    if dialect.title:
        yield Remark(document.name, f"the header is in line {dialect.skipped + 1}, below: {dialect.title[:200]}")


def _sample(document: Document, encoding: Encoding) -> str:
    document.file.seek(0)
    text = document.file.read(SAMPLE).decode(encoding.codec, "replace")
    document.file.seek(0)
    # A line that is cut off would have fewer cells than the others.
    return text if len(text) < SAMPLE // 4 else text[: text.rfind("\n") + 1] or text


def _entries(rows: Iterator[_NumberedRow], paths: Sequence[Path], titles: Any, encoding: Encoding) -> Iterator[Entry]:
    """Yield the records of the rows below a header, without repeated headers and a row of totals at the end."""
    is_utf8 = encoding.is_utf8
    total: _NumberedRow | None = None
    for where, row in rows:
        if total is not None:
            yield _entry(total[1], paths, total[0], encoding)
            yield Doubt(total[0], "may be a row of totals", value=_first_cell(total[1]))
            total = None
        if row == titles:
            yield Remark(where, "repeats the header and was left out")
        elif isinstance(row, list) and is_total(row):
            total = where, row
        else:
            yield _entry(row, paths, where, encoding)
            if not is_utf8 and isinstance(row, list):
                yield from _misread(row, where, encoding)
    if total is not None:
        yield Remark(total[0], f"is a row of totals and was left out: {_first_cell(total[1])}")


def _first_cell(row: list[str] | BadRecord) -> str:
    return next((cell.strip() for cell in row if cell.strip()), "") if isinstance(row, list) else ""


def _misread(row: list[str], where: str, encoding: Encoding) -> Iterator[Entry]:
    for text in row:
        utf8 = misread_utf8(text, encoding)
        if utf8 is not None:
            yield Doubt(where, f"seems to be UTF-8 in a file of {encoding.label}: {utf8[:100]}", "", text, "encoding")


def _header(first: _NumberedRow | None, name: str) -> list[Path]:
    match first:
        case None:
            return []
        case (_, list() as titles) if len(titles) <= MAX_COLUMNS and not any(map(_is_broken, titles)):
            return column_paths(titles)
        case _:
            hint = f"The first row must name at most {MAX_COLUMNS} columns, in UTF-8."
            raise SourceError(f"{name} has no header that can be read.", hint=hint)


class _RowLines:
    """The lines of a text file, with a limit on the bytes of one row."""

    def __init__(self, document: Document, encoding: Encoding, dialect: Dialect) -> None:
        # Bytes that do not fit become surrogates, so that only their own row is refused.
        self._text = io.TextIOWrapper(document.file, encoding.codec, encoding.errors, newline="")
        self._may_search = True
        self.has_open_quote = False  # the row over the limit began with a quote that never closes
        self._room = MAX_RECORD_BYTES
        self._row: list[str] = []  # the lines of the present row
        self._again: deque[str] = deque()  # lines to be read again
        self._open_quotes = 0
        self.delimiter = dialect.delimiter
        self.number = dialect.skipped  # of lines that were read
        for _ in range(dialect.skipped):
            self._text.readline(MAX_RECORD_BYTES)

    def begin_row(self) -> None:
        self._room = MAX_RECORD_BYTES
        self._row = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._text.readline(MAX_RECORD_BYTES + 1)
        if not line:
            # A reader that wants a further line of a row is inside quotes.
            raise OpenQuote if self._row else StopIteration
        if _size(line.rstrip("\r\n")) > self._room:
            # A row continues on a second line only inside quotes.
            self._skip_row(line, _Cell.QUOTED if self._row else _Cell.START)
            raise RowTooLong
        self._room -= _size(line)
        self._row.append(line)
        self.number += _is_whole(line)
        return line

    @property
    def is_plain(self) -> bool:
        """Whether the present row has a single line."""
        return len(self._row) == 1

    def reread(self) -> list[str] | None:
        """Go back below the first line of a row and return its cells, read without regard to quotes that are odd.

        Return None if the row has several lines. After many of these, what follows is given up.
        """
        first, *rest = self._row
        if not rest and _is_whole(first):
            cells = next(csv.reader([first], delimiter=self.delimiter), None)
            if cells is not None and "\n" not in cells[-1]:
                return cells
        self._open_quotes += 1
        if self._open_quotes <= _MAX_OPEN_QUOTES:
            self._again.extendleft(reversed(rest))
            self.number -= sum(map(_is_whole, rest))
        return None

    def _skip_row(self, line: str, cell: "_Cell") -> None:
        """Skip to the end of the row; to the end of its line, if a quote never closes."""
        line, cell = self._skip_line(line, cell)
        self.has_open_quote = cell is _Cell.QUOTED and not self._may_search
        position, number = self._text.tell(), self.number
        while cell is _Cell.QUOTED and self._may_search:
            line, cell = self._skip_line(self._text.readline(MAX_RECORD_BYTES), cell)
            if not line:
                # A file with many open quotes is searched only once.
                self._may_search, self.has_open_quote = False, True
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


def _rows(lines: _RowLines, name: str) -> Iterator[_NumberedRow]:
    """Yield each row, or the reason why it cannot be read, with the line where it starts."""
    reader = csv.reader(lines, delimiter=lines.delimiter, strict=True)
    while True:
        where = f"{name}:{lines.number + 1}"
        lines.begin_row()
        try:
            row: list[str] = next(reader)
        except StopIteration:
            return
        except RowTooLong:
            yield where, replace(too_large(where), is_gap=lines.has_open_quote)
        except (csv.Error, OpenQuote):
            cells = lines.reread()
            yield where, cells or BadRecord(where, "has a quote that does not close", is_gap=True)
        else:
            if row:
                yield where, row if lines.is_plain else MultilineRow(row)


def _entry(row: list[str] | BadRecord, paths: Sequence[Path], where: str, encoding: Encoding) -> Entry:
    if isinstance(row, BadRecord):
        return row
    # Cells over several lines in a row of the wrong width: a stray quote may have swallowed the rows between.
    is_gap = isinstance(row, MultilineRow)
    while len(row) > len(paths) and not row[-1]:
        row = row[:-1]
    if len(row) != len(paths):
        return BadRecord(where, f"has {len(row)} cells where the header has {len(paths)}", is_gap)
    if any(_is_broken(text) for text in row):
        return BadRecord(where, f"is not {encoding.label}")
    data: dict[str, Any] = {}
    for path, text in zip(paths, row, strict=True):
        if value := text.strip():
            place_value(data, path, value)
    return Record(data, where, id_of(data)) if data else BadRecord(where, "is empty")


def _is_broken(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def place_value(data: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        data = data.setdefault(name, {})
    data[path[-1]] = value


def column_paths(header: list[str]) -> list[Path]:
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
