"""CSV and TSV with a header row, streamed. Guesses the delimiter and the type of cells; never of columns."""

import csv
import io
import re
from collections.abc import Container, Iterator, Sequence
from typing import Any, TypeAlias

from portico.errors import SourceError
from portico.sources.records import MAX_RECORD_BYTES, BadRecord, Document, Entry, Record, id_of

Path: TypeAlias = tuple[str, ...]

DELIMITERS = ",;\t"
MAX_COLUMNS = 10_000
# 007 and +44 are names, not numbers; 1e5 may be a part number. Fifteen digits survive a float.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,9})\.[0-9]{1,6}", re.ASCII)
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_QUOTED = re.compile(r'"[^"]*"')
_SURROGATE = re.compile("[\ud800-\udfff]")


def read(document: Document) -> Iterator[Entry]:
    return _read(document, None)


def read_tabs(document: Document) -> Iterator[Entry]:
    return _read(document, "\t")


def cell(text: str) -> Any:
    """None for an empty cell; a number or a truth value only where nothing is lost."""
    text = text.strip()
    if not text:
        return None
    if _INTEGER.fullmatch(text) and text != "-0":
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return _BOOLEANS.get(text, text)


def _read(document: Document, delimiter: str | None) -> Iterator[Entry]:
    # The limit belongs to the csv module, not to one reader: it is the same wherever it is set.
    csv.field_size_limit(MAX_RECORD_BYTES)
    lines = _Lines(document)
    try:
        rows = _rows(csv.reader(lines, delimiter=delimiter or _delimiter(lines.first)), lines)
        paths = _header(next(rows, None), document.name)
        for line, row in rows:
            yield _entry(row, paths, f"{document.name}:{line}")
    finally:
        lines.detach()


def _header(first: tuple[int, list[str] | str] | None, name: str) -> list[Path]:
    match first:
        case None:
            return []
        case (_, list() as titles) if len(titles) <= MAX_COLUMNS and not any(map(_is_broken, titles)):
            return _paths(titles)
        case _:
            hint = f"The first row must name at most {MAX_COLUMNS} columns, in UTF-8."
            raise SourceError(f"{name} has no header that can be read.", hint=hint)


class _Lines:
    """The lines of a text file, and a bound on how much one row may take of them."""

    def __init__(self, document: Document) -> None:
        document.file.seek(0)
        start = document.file.read(2)
        document.file.seek(0)
        encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        # Bytes that are not UTF-8 spoil their own row only: they come through as surrogates, found there.
        errors = "replace" if encoding == "utf-16" else "surrogateescape"
        self._text = io.TextIOWrapper(document.file, encoding, errors, newline="")
        self.first = self._text.readline(MAX_RECORD_BYTES)
        self._is_first = True
        self.room = MAX_RECORD_BYTES

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.first if self._is_first else self._text.readline(MAX_RECORD_BYTES)
        self._is_first = False
        if not line:
            raise StopIteration
        self.room -= len(line)
        if self.room < 0:
            raise csv.Error("row is too long")
        return line

    def detach(self) -> None:
        """Let go of the file, which a text wrapper would otherwise close."""
        self._text.detach()


def _rows(reader: Any, lines: _Lines) -> Iterator[tuple[int, list[str] | str]]:
    """Each row with the line it starts on; a text in place of the row says why there is none."""
    while True:
        line: int = reader.line_num + 1
        lines.room = MAX_RECORD_BYTES
        try:
            row: list[str] = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            yield line, f"is not a row: {problem}"
            continue
        if row:
            yield line, row


def _entry(row: list[str] | str, paths: Sequence[Path], where: str) -> Entry:
    if isinstance(row, str):
        return BadRecord(where, row)
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


def _delimiter(line: str) -> str:
    bare = _QUOTED.sub("", line)
    return max(DELIMITERS, key=bare.count)


def _paths(header: list[str]) -> list[Path]:
    """Where each column goes. An empty name becomes column_3, a second `price` becomes price_2."""
    names: dict[str, None] = {}
    for number, title in enumerate(header, 1):
        names[_unused(title.strip() or f"column_{number}", names)] = None
    nested = {name: tuple(name.split(".")) for name in names}
    leaves = set(nested.values())
    return [_path(name, nested[name], leaves) for name in names]


def _path(name: str, path: Path, leaves: set[Path]) -> Path:
    # "offers" and "offers.price" cannot both be nested: the dotted one then keeps its dotted name.
    hides = any(path[:length] in leaves for length in range(1, len(path)))
    return (name,) if hides or not all(path) else path


def _unused(name: str, used: Container[str]) -> str:
    count = 2
    unused = name
    while unused in used:
        unused = f"{name}_{count}"
        count += 1
    return unused
