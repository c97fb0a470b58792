"""Makes records of the rows of a sheet, whose cells have values of their own. Knows no file format."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

from portico.sources.dialect import header_index, is_total
from portico.sources.plain import plain
from portico.sources.records import BadRecord, Doubt, Entry, Record, Remark, id_of
from portico.sources.tables import MAX_COLUMNS, column_paths, place_value

Row: TypeAlias = Sequence[Any]
_SAMPLE_ROWS = 50


class ErrorValue(str):
    """What a spreadsheet shows in place of a value: #N/A, #REF!"""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet of which the first rows have been read. `first` is the number of the header."""

    name: str
    place: str
    header: Row
    first: int
    title: str
    rows: Iterator[Row]  # below the header


def open_sheet(name: str, place: str, rows: Iterable[Row]) -> Sheet | None:
    """Find the header of a sheet; return None if there are no rows below it."""
    iterator = iter(rows)
    sample = list(islice(iterator, _SAMPLE_ROWS))
    filled = [number for number, row in enumerate(sample) if any(map(_is_filled, row))]
    if not filled:
        return None
    texts = [[_text(value) for value in sample[number]] for number in filled]
    header = header_index(texts)
    below = sample[filled[header] + 1 :]
    if header == len(filled) - 1 and len(sample) < _SAMPLE_ROWS:
        return None
    title = " ".join(text for cells in texts[:header] for text in cells if text)
    return Sheet(name, place, sample[filled[header]], filled[header] + 1, title, chain(below, iterator))


def sheet_entries(sheet: Sheet, collection: str | None) -> Iterator[Entry]:
    """Yield the records of a sheet, without a row of totals at its end."""
    titles = [_text(value) for value in _trim(sheet.header)]
    if len(titles) > MAX_COLUMNS:
        yield BadRecord(sheet.place, f"has more than {MAX_COLUMNS:,} columns", is_gap=True)
        return
    paths = column_paths(titles)
    total: tuple[str, Row] | None = None
    for number, row in enumerate(sheet.rows, sheet.first + 1):
        if not any(map(_is_filled, row)):
            continue
        if total is not None:
            yield from _entries(total[1], paths, total[0], collection)
        where = f"{sheet.place}:{number}"
        total = (where, row) if is_total([_text(value) for value in row]) else None
        if total is None:
            yield from _entries(row, paths, where, collection)
    if total is not None:
        yield Remark(total[0], "is a row of totals and was left out")
    if sheet.title:
        yield Remark(sheet.place, f"the header is in row {sheet.first}, below: {sheet.title[:200]}")


def _entries(row: Row, paths: Sequence[tuple[str, ...]], where: str, collection: str | None) -> Iterator[Entry]:
    cells = _trim(row)
    if len(cells) > len(paths):
        yield BadRecord(where, f"has {len(cells)} cells where the header has {len(paths)}")
        return
    data: dict[str, Any] = {}
    for path, value in zip(paths, cells, strict=False):
        if isinstance(value, ErrorValue):
            yield Doubt(where, "is an error of the spreadsheet; the cell was left out", ".".join(path), value)
        elif _is_filled(value):
            place_value(data, path, plain(value))
    if data:
        yield Record(data, where, id_of(data), collection)


def _trim(row: Row) -> Row:
    """Return a row without the empty cells at its end."""
    return row[: max((number for number, value in enumerate(row, 1) if _is_filled(value)), default=0)]


def _is_filled(value: Any) -> bool:
    return value is not None and (not isinstance(value, str) or bool(value.strip()))


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()
