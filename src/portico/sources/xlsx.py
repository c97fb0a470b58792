"""Reads Excel workbooks, row by row. Takes the values that formulas had when the workbook was saved."""

import re
import zipfile
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from typing import Any, cast
from xml.etree.ElementTree import ParseError

from openpyxl import load_workbook
from openpyxl.utils.exceptions import InvalidFileException, ReadOnlyWorkbookException, SheetTitleException

from portico.errors import SourceError
from portico.sources.archives import open_zip, read_head, refuse_doctypes
from portico.sources.records import BadRecord, Document, Doubt, Entry, Remark, SourceOptions, collection_name
from portico.sources.sheets import ErrorValue, Row, Sheet, open_sheet, sheet_entries

MAX_SHEETS = 1000
MAX_ROWS = 1_048_576  # of a sheet, in every version of Excel
MAX_SHARED_TEXTS = 512 << 20  # bytes: they are kept in memory
_SAMPLE = 256 * 1024
_EMPTY_FORMULA = re.compile(rb'<c (?![^<>]*t="str")[^<>]*+><f[^<>]*+>[^<]*+</f>(?:<v\s*/>|<v></v>)?</c>')
_NO_VALUES = "has formulas without values: save it in a spreadsheet program, or their cells stay empty"
_ZEROS = re.compile(r"0{2,}")
_MIDNIGHT = time()
# Openpyxl meets a broken file with its own errors, and with those of whatever it was doing at the time.
_BROKEN = (
    InvalidFileException, ReadOnlyWorkbookException, SheetTitleException, zipfile.BadZipFile, ParseError, KeyError,
    ValueError, TypeError, AttributeError, LookupError, OSError, OverflowError, NotImplementedError, AssertionError,
)  # fmt: skip


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    """Yield the rows of the sheets. If several are tables, each fills a collection of its own."""
    with open_zip(document, options.max_bytes) as archive:
        refuse_doctypes(archive, document.name)
        yield from _check_parts(archive, document.name)
    document.file.seek(0)
    try:
        workbook: Any = load_workbook(document.file, read_only=True, data_only=True, keep_links=False)
    except _BROKEN as problem:
        raise SourceError(f"{document.name} is not a readable Excel workbook: {problem}") from problem
    try:
        yield from _sheets(workbook, document.name)
    finally:
        workbook.close()


def _sheets(workbook: Any, name: str) -> Iterator[Entry]:
    opened: list[Sheet] = []
    for worksheet in workbook.worksheets[:MAX_SHEETS]:
        place = f"{name}#{worksheet.title}"
        if worksheet.sheet_state != "visible":
            yield Remark(place, "is hidden and was left out")
            continue
        try:
            sheet = open_sheet(worksheet.title, place, _rows(worksheet))
        except _BROKEN as problem:
            yield BadRecord(place, f"cannot be read: {problem}", is_gap=True)
            continue
        if sheet is None:
            yield Remark(place, "has no rows below a header and was left out")
        else:
            opened.append(sheet)
    for sheet in opened:
        yield from _read_sheet(sheet, collection_name(sheet.name) if len(opened) > 1 else None)


def _read_sheet(sheet: Sheet, collection: str | None) -> Iterator[Entry]:
    try:
        yield from sheet_entries(sheet, collection)
    except _BROKEN as problem:
        yield BadRecord(sheet.place, f"cannot be read further: {problem}", is_gap=True)


def _rows(worksheet: Any) -> Iterator[Row]:
    # What a file says of the size of its sheets is often wrong.
    worksheet.reset_dimensions()
    for number, row in enumerate(cast("Iterator[tuple[Any, ...]]", worksheet.iter_rows()), 1):
        if number > MAX_ROWS:
            raise ValueError(f"it has more than {MAX_ROWS:,} rows")
        yield [_value(cell) for cell in row]


def _value(cell: Any) -> Any:
    """Return the value of a cell: a date without a time as a date, a number shown with leading zeros as a text."""
    match cell.value:
        case datetime() as moment if moment.time() == _MIDNIGHT:
            return moment.date()
        case timedelta() as duration:
            return _iso_duration(duration)
        case int() as number if type(number) is int and _ZEROS.fullmatch(cell.number_format):
            return str(number).zfill(len(cell.number_format))
        case str() as text if cell.data_type == "e":
            return ErrorValue(text)
        case value:
            return value


def _iso_duration(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    return f"PT{seconds // 3600}H{seconds // 60 % 60}M{seconds % 60}S"


def _check_parts(archive: zipfile.ZipFile, name: str) -> Iterator[Entry]:
    """Refuse texts that would fill the memory; doubt formulas whose values a program did not save."""
    for part in archive.infolist():
        if part.filename == "xl/sharedStrings.xml" and part.file_size > MAX_SHARED_TEXTS:
            raise SourceError(f"{name} has texts of more than {MAX_SHARED_TEXTS >> 20} MB.")
        is_sheet = part.filename.startswith("xl/worksheets/")
        if is_sheet and _EMPTY_FORMULA.search(read_head(archive, part, _SAMPLE)):
            yield Doubt(name, _NO_VALUES, value=part.filename)
