"""Keeps the records of a source in a temporary file until their types are decided. A few stay in memory."""

import tempfile
from types import TracebackType
from typing import Any, Self

import msgspec

from portico.sources.records import Record

IN_MEMORY = 16 * 1024 * 1024  # bytes

_Row = tuple[dict[str, Any], str, str | None, str | None]
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Row)


class Spool:
    """Records in the order in which they were added. The file vanishes with the spool."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the spool
        self._end = 0
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self._end + len(self._buffer)

    def add(self, record: Record) -> int:
        """Append a record; return its size in bytes."""
        before = len(self._buffer)
        _encoder.encode_into((record.data, record.where, record.id, record.collection), self._buffer, before)
        self._buffer += b"\n"
        return len(self._buffer) - before

    def flush(self) -> None:
        self._file.seek(self._end)
        self._file.write(self._buffer)
        self._end += len(self._buffer)
        self._buffer.clear()

    def read(self, position: int, records: int, size: int) -> tuple[list[Record], int]:
        """Return the next records from a position, limited in count and in bytes, and the position after them."""
        self.flush()
        self._file.seek(position)
        batch: list[Record] = []
        limit = position + size
        while len(batch) < records and position < min(limit, self._end):
            line = self._file.readline()
            batch.append(Record(*_decoder.decode(line)))
            position += len(line)
        return batch, position
