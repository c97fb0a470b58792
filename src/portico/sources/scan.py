"""Splits a JSON text of any size into its values. Checks brackets and strings only; decodes nothing.

Memory is bounded by the longest value that is kept. A value over the limit is passed over without being kept.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from portico.sources.records import MAX_RECORD_BYTES

BOM = b"\xef\xbb\xbf"
_CHUNK = 256 * 1024
_MAX_MEMBERS = 10_000
_OPEN, _CLOSE = b"[{", b"]}"

_SPACE = re.compile(rb"[ \t\r\n]*+")
_BARE = re.compile(rb'[^ \t\r\n,:\[\]{}"]++')
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
# Everything up to the next bracket, whole strings included; stops before a string that the buffer cuts off.
_RUN = re.compile(rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one value, or None if it is over the limit, and the line where it starts."""

    text: bytes | None
    line: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object whose value is an array or an object, where that starts, and the first byte inside."""

    name: bytes
    offset: int
    line: int
    first: bytes


@dataclass(frozen=True, slots=True)
class Outline:
    """The shape of an object: its members, which of them are arrays or objects, and whether more follows."""

    names: frozenset[bytes]
    arrays: tuple[Member, ...]
    objects: tuple[Member, ...]
    is_closed: bool
    is_alone: bool
    is_one_line: bool


class Scanner:
    """A cursor over JSON text."""

    def __init__(self, file: BinaryIO, *, offset: int = 0, line: int = 1, limit: int = MAX_RECORD_BYTES) -> None:
        file.seek(offset)
        self._file = file
        self._limit = limit
        self._buffer = b""
        self._start = 0  # what lies before was dropped
        self._at = 0
        self._offset = offset  # of _start in the file
        self._line = line  # of _start
        self._keeping = False
        self._is_overlong = False
        if offset == 0:
            self._refill()
            self._at = len(BOM) if self._buffer.startswith(BOM) else 0

    def position(self) -> tuple[int, int]:
        """Return the position of the cursor: the offset in the file and the line."""
        self._forget()
        return self._offset, self._line

    def peek(self) -> bytes:
        """Move the cursor to the next byte that is not white space, and return it; empty at the end."""
        while True:
            self._at = _end(_SPACE, self._buffer, self._at)
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._refill():
                return b""

    def take(self) -> None:
        self._at += 1

    def value(self, *, keep: bool = True) -> Piece:
        """Read the value at the cursor. Always moves on, so that a loop over values ends."""
        first = self.peek()
        self._forget()
        line = self._line
        self._keeping, self._is_overlong = keep, not keep
        is_closed = self._pass(first)
        self._keeping = False
        long = self._is_overlong or self._at - self._start > self._limit
        text = None if long else self._buffer[self._start : self._at]
        self._forget()
        return Piece(text, line, is_closed)

    def skip_array(self) -> bool:
        """Skip the rest of an array after its bracket. Return False if it never closes."""
        return self._balance(1)

    def _pass(self, first: bytes) -> bool:
        self._at += 1
        if first in (b"[", b"{"):
            return self._balance(1)
        if first == b'"':
            return self._finish_string()
        while True:
            self._at = _end(_BARE, self._buffer, self._at)
            if self._at < len(self._buffer) or not self._refill():
                return True

    def _balance(self, depth: int) -> bool:
        while depth:
            self._at = _end(_RUN, self._buffer, self._at)
            if self._at == len(self._buffer):
                if not self._refill():
                    return False
                continue
            byte = self._buffer[self._at]
            self._at += 1
            if byte in _OPEN:
                depth += 1
            elif byte in _CLOSE:
                depth -= 1
            elif not self._finish_string():
                return False
        return True

    def _finish_string(self) -> bool:
        while True:
            self._at = _end(_STRING_REST, self._buffer, self._at)
            # Here stands the closing quote, the end of the buffer, or a backslash cut off from its partner.
            if self._buffer[self._at : self._at + 1] == b'"':
                self._at += 1
                return True
            if not self._refill():
                self._at = len(self._buffer)
                return False

    def _refill(self) -> bool:
        if not self._keeping or self._at - self._start > self._limit:
            self._is_overlong = True
            self._forget()
        chunk = self._file.read(_CHUNK)
        self._buffer = self._buffer[self._start :] + chunk
        self._at -= self._start
        self._start = 0
        return bool(chunk)

    def _forget(self) -> None:
        self._line += self._buffer.count(b"\n", self._start, self._at)
        self._offset += self._at - self._start
        self._start = self._at


def outline(file: BinaryIO, offset: int = 0, line: int = 1) -> Outline | None:
    """Return the shape of the first value of a file, or of the value at an offset; None if it is not an object."""
    scanner = Scanner(file, offset=offset, line=line)
    if scanner.peek() != b"{":
        return None
    _, first_line = scanner.position()
    scanner.take()
    names: set[bytes] = set()
    arrays: list[Member] = []
    objects: list[Member] = []
    is_closed = _members(scanner, names, arrays, objects)
    _, last_line = scanner.position()
    is_alone = not scanner.peek()
    return Outline(frozenset(names), tuple(arrays), tuple(objects), is_closed, is_alone, first_line == last_line)


def _members(scanner: Scanner, names: set[bytes], arrays: list[Member], objects: list[Member]) -> bool:
    while (byte := scanner.peek()) != b"}":
        if not byte or len(names) > _MAX_MEMBERS:
            return False
        if byte in (b",", b":"):
            scanner.take()
            continue
        name = (scanner.value().text or b"").strip(b'"')
        names.add(name)
        if scanner.peek() == b":":
            scanner.take()
        if (opening := scanner.peek()) != b"[":
            if opening == b"{":
                objects.append(Member(name, *scanner.position(), opening))
            scanner.value(keep=False)
            continue
        offset, line = scanner.position()
        scanner.take()
        arrays.append(Member(name, offset, line, scanner.peek()))
        if not scanner.skip_array():
            return False
    scanner.take()
    return True


def elements(scanner: Scanner) -> Iterator[Piece]:
    """Yield the values of the array at the cursor. An array that never closes ends with an unclosed piece."""
    scanner.take()
    while (byte := scanner.peek()) != b"]":
        if not byte:
            _, line = scanner.position()
            yield Piece(b"", line, is_closed=False)
            return
        if byte == b",":
            scanner.take()
            continue
        piece = scanner.value()
        yield piece
        if not piece.is_closed:
            return
    scanner.take()


def values(scanner: Scanner) -> Iterator[Piece]:
    """Yield every value of a file, and the values of a top-level array one by one."""
    while byte := scanner.peek():
        if byte == b"[":
            yield from elements(scanner)
        else:
            yield scanner.value()


def _end(pattern: re.Pattern[bytes], buffer: bytes, at: int) -> int:
    match = pattern.match(buffer, at)
    return match.end() if match else at
