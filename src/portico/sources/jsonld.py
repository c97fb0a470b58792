"""Reads JSON, JSON Lines and schema.org JSON-LD, streamed. Does not expand contexts and does not follow links.

A file holds one object, an array, an object around an array (`@graph`, `items`, `data`, ...), or one object
per line. Nodes stay as they are written: a nested node with its own `@id` is not cut out.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from portico.sources import scan
from portico.sources.records import (
    MAX_DEPTH,
    MAX_RECORD_BYTES,
    BadRecord,
    Document,
    Entry,
    Record,
    id_of,
    too_large,
)

# Members that hold the records of an answer, most telling first.
WRAPPERS = (b"@graph", b"items", b"data", b"results", b"records", b"entries", b"rows", b"hits", b"value")
# Members that hold an envelope in an envelope.
_INNER = frozenset((*WRAPPERS, b"response", b"result", b"payload", b"body"))
_MAX_INNER = 5
# An object with one of these is a thing of its own, not an envelope around things.
_IDENTITY = frozenset((b"@type", b"@id"))
_NAMES = frozenset((b"id", b"name", b"title", b"headline", b"url"))


class InvalidJson(ValueError):
    """The text is not valid JSON; the message says why."""


def read(document: Document) -> Iterator[Entry]:
    shape = scan.outline(document.file)
    if shape is None or not shape.is_closed:
        return _pieces(document, scan.values(scan.Scanner(document.file)))
    if not shape.is_alone:
        return (
            read_lines(document) if shape.is_one_line else _pieces(document, scan.values(scan.Scanner(document.file)))
        )
    wrapper = _find_wrapper(shape) or _find_inner_wrapper(document, shape)
    if wrapper is None:
        return _pieces(document, scan.values(scan.Scanner(document.file)))
    inside = scan.Scanner(document.file, offset=wrapper.offset, line=wrapper.line)
    inside.peek()
    return _pieces(document, scan.elements(inside))


def read_lines(document: Document) -> Iterator[Entry]:
    document.file.seek(0)
    number = 0
    while line := document.file.readline(MAX_RECORD_BYTES + 1):
        number += 1
        where = f"{document.name}:{number}"
        if len(line) > MAX_RECORD_BYTES and not line.endswith(b"\n"):
            _skip_line(document)
            yield too_large(where)
            continue
        text = line.removeprefix(scan.BOM).strip() if number == 1 else line.strip()
        if text:
            yield from entries(text, where)


def entries(text: bytes, where: str) -> Iterator[Entry]:
    """Yield the records of one JSON text: the nodes of an array or a graph."""
    try:
        value = decode(text)
    except InvalidJson as problem:
        yield BadRecord(where, str(problem))
        return
    for node in nodes(value):
        yield record_of(node, where)


def decode(text: bytes) -> Any:
    try:
        value = msgspec.json.decode(text)
    except UnicodeDecodeError as problem:
        raise InvalidJson("is not UTF-8") from problem
    except msgspec.DecodeError as problem:
        raise InvalidJson(f"is not JSON: {problem}") from problem
    except RecursionError as problem:
        raise InvalidJson(f"is nested deeper than {MAX_DEPTH}") from problem
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise InvalidJson(f"is nested deeper than {MAX_DEPTH}")
    return value


def nodes(value: Any) -> Iterator[Any]:
    """Yield one node, or those of an array or a graph."""
    if isinstance(value, dict):
        graph = cast("dict[str, Any]", value).get("@graph")
        yield from cast("list[Any]", graph) if isinstance(graph, list) else (value,)
    elif isinstance(value, list):
        for node in cast("list[Any]", value):
            yield from nodes(node) if isinstance(node, dict) else (node,)
    else:
        yield value


def record_of(node: Any, where: str) -> Entry:
    if not isinstance(node, dict):
        return BadRecord(where, f"is {_kind(node)}, not an object")
    data = cast("dict[str, Any]", node)
    return Record(data, where, id_of(data))


def is_deeper(value: Any, depth: int) -> bool:
    """Measure level by level, without recursion."""
    level: list[Any] = [value]
    for _ in range(depth + 1):
        level = [child for one in level for child in _children(one)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _find_wrapper(shape: scan.Outline) -> scan.Member | None:
    """Return the array with the records, if the object is only an envelope."""
    by_name = {member.name: member for member in shape.arrays}
    if b"@graph" in by_name:
        return by_name[b"@graph"]
    of_objects = [member for member in shape.arrays if member.first == b"{"]
    if shape.names & _IDENTITY or not of_objects:
        if shape.names & (_IDENTITY | _NAMES):
            return None
        return next((by_name[name] for name in WRAPPERS if name in by_name and by_name[name].first == b"]"), None)
    for name in WRAPPERS:
        if name in by_name and by_name[name] in of_objects:
            return by_name[name]
    return of_objects[0] if len(of_objects) == 1 and not shape.names & _NAMES else None


def _find_inner_wrapper(document: Document, shape: scan.Outline) -> scan.Member | None:
    """Return the array with the records of `{"data": {"results": [...]}}`."""
    for _ in range(_MAX_INNER):
        if shape.names & (_IDENTITY | _NAMES) or any(member.first == b"{" for member in shape.arrays):
            return None
        inner = [member for member in shape.objects if member.name in _INNER or len(shape.names) == 1]
        outline = scan.outline(document.file, inner[0].offset, inner[0].line) if len(inner) == 1 else None
        if outline is None:
            return None
        if wrapper := _find_wrapper(outline):
            return wrapper
        shape = outline
    return None


def _pieces(document: Document, pieces: Iterator[scan.Piece]) -> Iterator[Entry]:
    for piece in pieces:
        where = f"{document.name}:{piece.line}"
        if piece.text is None:
            yield too_large(where)
        elif not piece.is_closed:
            yield BadRecord(where, "is cut off: a bracket or a quote never closes", is_gap=True)
        elif piece.text.startswith(b"["):
            yield BadRecord(where, "is an array, not an object")
        else:
            yield from entries(piece.text, where)


def _skip_line(document: Document) -> None:
    while (rest := document.file.readline(MAX_RECORD_BYTES)) and not rest.endswith(b"\n"):
        pass


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case _:
            return "an array"
