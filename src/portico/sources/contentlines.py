"""Splits vCards and calendars into their components, and lines into their parts. Knows no properties."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from portico.sources.records import MAX_RECORD_BYTES

_FOLD = re.compile(r"\r?\n[ \t]")
_PARAMETER = re.compile(r';([^=;:"]+)(?:=((?:"[^"]*"|[^";:])*))?')
_QUOTED = re.compile("QUOTED-PRINTABLE", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MAX_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Component:
    """The text from a BEGIN line to its END line; None if it is too large. It is not closed if the file ends in it."""

    name: str
    line: int
    text: bytes | None
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class ContentLine:
    """A property with its parameters. Names are upper case; a parameter of vCard 2.1 without a name is a TYPE."""

    name: str
    value: str
    parameters: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


@dataclass(slots=True)
class _Open:
    """A component whose end has not been read."""

    name: str
    line: int
    size: int = 0
    lines: list[bytes] = field(default_factory=list[bytes])

    def add(self, line: bytes) -> None:
        self.size += len(line)
        if self.size <= MAX_RECORD_BYTES:
            self.lines.append(line)

    def component(self, *, is_closed: bool) -> Component:
        text = b"".join(self.lines) if self.size <= MAX_RECORD_BYTES else None
        return Component(self.name, self.line, text, is_closed)


def iter_components(file: BinaryIO, names: frozenset[str]) -> Iterator[Component]:
    """Yield the components of some names, in constant memory. Those inside them belong to their text."""
    file.seek(0)
    current: _Open | None = None
    number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        name = _marker(line, b"BEGIN:")
        if name in names:
            if current:
                yield current.component(is_closed=False)
            current = _Open(name, number)
        if current:
            current.add(line)
            if _marker(line, b"END:") == current.name:
                yield current.component(is_closed=True)
                current = None
    if current:
        yield current.component(is_closed=False)


def unfold(text: str) -> list[str]:
    """Return the lines of a component, of which long ones were folded."""
    lines: list[str] = []
    for line in _FOLD.sub("", text).splitlines():
        if lines and lines[-1].endswith("=") and _QUOTED.search(lines[-1].partition(":")[0]):
            lines[-1] = lines[-1][:-1] + line  # quoted-printable has its own way of folding
        else:
            lines.append(line)
    return lines


def parse_line(line: str) -> ContentLine | None:
    """Return the parts of an unfolded line, or None if it is not one. `item1.EMAIL` is an EMAIL."""
    head = re.match(r"(?:[\w-]+\.)?([\w-]+)", line)
    if head is None:
        return None
    parameters: dict[str, list[str]] = {}
    at = head.end()
    while match := _PARAMETER.match(line, at):
        name, value = match[1].strip().upper(), match[2]
        kind, values = ("TYPE", [name]) if value is None else (name, [one.strip('"') for one in value.split(",")])
        parameters.setdefault(kind, []).extend(values)
        at = match.end()
    return ContentLine(head[1].upper(), line[at + 1 :], parameters) if line[at : at + 1] == ":" else None


def split_value(value: str, mark: str) -> list[str]:
    """Return the parts of a structured value, without the backslashes of its escapes."""
    parts = re.split(rf"(?<!\\){re.escape(mark)}", value)
    return [unescape(part).strip() for part in parts]


def unescape(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)


def _marker(line: bytes, mark: bytes) -> str:
    text = line.removeprefix(b"\xef\xbb\xbf").strip()
    return text[len(mark) :].decode("ascii", "replace").upper() if text[: len(mark)].upper() == mark else ""
