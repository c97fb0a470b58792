"""Finds out how a text table is written: its delimiter, and the lines above its header. Reads only its first lines."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

DELIMITERS = ",;\t|"
SAMPLE = 64 * 1024
_MAX_ROWS = 50
_MAX_TITLE_LINES = 20
# Excel writes the delimiter of the table that follows: sep=;
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBER = re.compile(r"[-+(]?[^\w\s]{0,3}\s?[\d\s.,:/'-]*\d\s?[)%€$£]?", re.ASCII)
# What the first cell of a row of totals says.
_TOTALS = frozenset((
    "total", "totals", "grand total", "sum", "subtotal", "sub-total", "gesamt", "summe", "gesamtsumme", "zwischensumme",
    "totaal", "totale", "totaux", "total general", "total général", "suma", "razem", "celkem", "итого", "всего",
    "toplam", "合計", "合计", "总计", "總計", "합계", "المجموع",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dialect:
    """`skipped` is the number of lines above the header, `title` what they say."""

    delimiter: str
    skipped: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    line: int  # the number of lines above it
    cells: list[str]

    @property
    def filled(self) -> int:
        return sum(1 for cell in self.cells if cell.strip())


def detect_dialect(sample: str, delimiter: str | None = None) -> Dialect:
    """Return the dialect of a table that begins with `sample`."""
    lines = sample.splitlines(keepends=True)
    separator = _SEPARATOR.fullmatch(lines[0].strip("\r\n")) if lines else None
    if separator:
        return Dialect(separator[1], 1)
    tables = {mark: _rows(lines, mark) for mark in (delimiter or DELIMITERS)}
    # A comma in a text is followed by a space, one between cells seldom.
    best = max(
        tables, key=lambda mark: (_consistency(tables[mark]), _first_width(tables[mark]), -sample.count(f"{mark} "))
    )
    return _with_header(best, tables[best])


def is_table(sample: str) -> bool:
    """Whether a plain text is a table: every row has the same number of cells, two or more below short names."""
    lines = sample.splitlines(keepends=True)[:-1] if len(sample) >= SAMPLE else sample.splitlines(keepends=True)
    return any(_is_regular([row.cells for row in _rows(lines, mark)], mark) for mark in DELIMITERS)


def header_index(rows: Sequence[Sequence[str]]) -> int:
    """Return which of the first rows is the header: the first one that names the columns below it."""
    width = _usual_width(map(_width, rows))
    for index, cells in enumerate(rows[:_MAX_TITLE_LINES]):
        filled = sum(1 for cell in cells if cell.strip())
        if filled * 2 > width or len(cells) == width == 2:
            return index if index == 0 or _names_columns(rows, index) else 0
    return 0


def is_total(cells: Sequence[str]) -> bool:
    """Whether a row sums up those above it: it says so, leaves cells empty and is numbers otherwise."""
    if "" not in cells:
        return False
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled or len(filled) == 1 or len(filled) == len(cells):
        return False
    return filled[0].rstrip(":").strip().casefold() in _TOTALS and all(map(_NUMBER.fullmatch, filled[1:]))


def _is_regular(rows: list[list[str]], delimiter: str) -> bool:
    rows = [cells for cells in rows if cells]
    # A line of prose may have a comma.
    fewest = 3 if delimiter == "," else 2
    if len(rows) < 3 or len(rows[0]) < fewest or any(len(cells) != len(rows[0]) for cells in rows):
        return False
    names = [cell.strip() for cell in rows[0]]
    return len(set(names)) == len(names) and all(0 < len(name) <= 40 for name in names)


def _rows(lines: list[str], delimiter: str) -> list[_Row]:
    rows: list[_Row] = []
    reader = csv.reader(lines, delimiter=delimiter)
    at = 0
    try:
        for cells in islice(reader, _MAX_ROWS):
            rows.append(_Row(at, cells))
            at = reader.line_num
    except csv.Error:
        pass  # the rows before it tell enough
    return rows


def _consistency(rows: list[_Row]) -> int:
    """Return how many rows have the usual number of cells; 0 if that is one."""
    widths = Counter(len(row.cells) for row in rows if len(row.cells) > 1)
    return max(widths.values(), default=0)


def _first_width(rows: list[_Row]) -> int:
    return len(rows[0].cells) if rows else 0


def _with_header(delimiter: str, rows: list[_Row]) -> Dialect:
    rows = [row for row in rows if row.cells]
    index = header_index([row.cells for row in rows])
    title = " ".join(cell.strip() for row in rows[:index] for cell in row.cells if cell.strip())
    return Dialect(delimiter, rows[index].line if index else 0, title)


def _width(cells: Sequence[str]) -> int:
    return max((number for number, cell in enumerate(cells, 1) if cell.strip()), default=0)


def _usual_width(widths: Iterable[int]) -> int:
    counts = Counter(width for width in widths if width > 1)
    return max(counts, key=lambda width: (counts[width], width), default=0)


def _names_columns(rows: Sequence[Sequence[str]], index: int) -> bool:
    """Whether a row below a title is a header: of texts, with numbers below it or a title of several words above."""
    names = [cell.strip() for cell in rows[index] if cell.strip()]
    if sum(1 for name in names if _NUMBER.fullmatch(name)) * 2 >= len(names) or len(set(names)) < len(names):
        return False
    has_numbers_below = any(_NUMBER.fullmatch(cell.strip()) for cells in rows[index + 1 :] for cell in cells)
    has_title_above = any(len("".join(cells).split()) > 1 or len(cells) > 1 for cells in rows[:index])
    return has_numbers_below or has_title_above
