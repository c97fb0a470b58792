"""Reads Parquet files in batches, column values with their types. Reads no other file that one refers to."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

from portico.errors import SourceError
from portico.sources.plain import plain_object
from portico.sources.records import BadRecord, Document, Entry, Record, SourceOptions, id_of
from portico.sources.tables import MAX_COLUMNS

BATCH_ROWS = 256
MAX_GROUP = 1 << 30  # bytes of one row group, which is unpacked column by column
_arrow: Any = pyarrow
# What pandas keeps of its own index.
_INDEX = "__index_level_"


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    document.file.seek(0)
    try:
        file: Any = cast("Any", pyarrow.parquet).ParquetFile(document.file, memory_map=False, pre_buffer=False)
        _check(file.metadata, document.name)
    except (_arrow.ArrowException, OSError, ValueError) as problem:
        raise SourceError(f"{document.name} is not a readable Parquet file: {problem}") from problem
    yield from _records(file, document.name)


def _check(metadata: Any, name: str) -> None:
    if metadata.num_columns > MAX_COLUMNS:
        raise SourceError(f"{name} has more than {MAX_COLUMNS:,} columns.")
    for number in range(metadata.num_row_groups):
        if metadata.row_group(number).total_byte_size > MAX_GROUP:
            raise SourceError(f"{name} has a row group of more than {MAX_GROUP >> 30} GB.")


def _records(file: Any, name: str) -> Iterator[Entry]:
    number = 0
    try:
        for batch in file.iter_batches(BATCH_ROWS):
            for row in cast("list[Mapping[str, Any]]", batch.to_pylist()):
                number += 1
                yield _record(row, f"{name}:{number}")
    except (_arrow.ArrowException, OSError, ValueError, OverflowError) as problem:
        yield BadRecord(f"{name}:{number + 1}", f"cannot be read further: {problem}", is_gap=True)


def _record(row: Mapping[str, Any], where: str) -> Entry:
    data = plain_object({name: value for name, value in row.items() if not name.startswith(_INDEX)})
    return Record(data, where, id_of(data)) if data else BadRecord(where, "is empty")
