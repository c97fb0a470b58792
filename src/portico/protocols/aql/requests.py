"""Bytes, or what a carrier has already decoded, to a request within the published limits. Knows no operation.

Of two members with the same name the last one counts, as everywhere at a site. NUL characters are not taken.
"""

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, NoReturn, cast

import msgspec

from portico.config import Aql
from portico.items import type_name
from portico.protocols.aql.envelopes import INVALID_ENCODING, INVALID_TYPE, Fault, too_large, wrong_type

MAX_LOCATION = 120  # characters
MAX_NUMBER = 1.7976931348623157e308

# Either `operation` or `operations`: that it is one of them is checked where they are read, so that no client which
# goes by this schema refuses a batch. Every tool has it, and a model pays for each word.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operation": {"type": "string"},
        "params": {"type": "object"},
        "operations": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Instead: a batch of {operation, params}, run in order",
        },
    },
    "additionalProperties": True,
}

_STRUCTURE = re.compile(rb'[\[\]{}]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def read(raw: bytes | Mapping[str, Any], limits: Aql) -> Mapping[str, Any]:
    """A request, checked for size, encoding and depth in this order."""
    value = decoded(raw, limits) if isinstance(raw, bytes) else raw
    _check(value, limits)
    if not isinstance(value, Mapping):
        raise wrong_type("request", "object", type_name(value))
    if not isinstance(raw, bytes) and (size := len(msgspec.json.encode(value))) > limits.request_bytes:
        raise too_large("request_size", limits.request_bytes, size)
    return cast("Mapping[str, Any]", value)


def decoded(raw: bytes, limits: Aql) -> Any:
    if len(raw) > limits.request_bytes:
        raise too_large("request_size", limits.request_bytes, len(raw))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise misencoded(error.start) from error
    _check_depth(raw, limits.depth)
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        # Only the place is told: the words of a library are not those of this face.
        place = f": see character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        expected = {"param_name": "request", "expected_type": "object", "actual_type": "malformed JSON"}
        raise Fault(INVALID_TYPE, f"The request is not valid JSON{place}", **expected) from error


def misencoded(offset: int) -> Fault:
    """Bytes that are no UTF-8, from this one on."""
    return Fault(INVALID_ENCODING, f"Invalid UTF-8 in byte {offset} of the request", byte_offset=offset)


def _no_constant(_: str) -> NoReturn:
    raise ValueError("JSON has no NaN and no Infinity")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _check_depth(raw: bytes, most: int) -> None:
    """Look at the brackets before anything follows them inwards."""
    if raw.count(b"[") + raw.count(b"{") <= most:
        return
    depth = 0
    for found in _STRUCTURE.finditer(raw):
        match found[0][:1]:
            case b"[" | b"{":
                depth += 1
                if depth > most:
                    raise too_large("nesting_depth", most, depth)
            case b"]" | b"}":
                depth -= 1
            case _:
                pass


def _check(value: Any, limits: Aql) -> None:
    """Everything in a request, in all depths, the names of members too."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(value, ())]
    while waiting:
        inner, where = waiting.pop()
        match inner:
            case str():
                _check_text(inner, where, limits.string_bytes)
            case bool() | None:
                pass
            case int() | float():
                _check_number(inner, where)
            case Mapping() | list() | tuple():
                if len(where) >= limits.depth:
                    raise too_large("nesting_depth", limits.depth, len(where) + 1)
                waiting.extend(_inside(cast("Any", inner), where, limits))
            case _:
                raise wrong_type(_place(where), "JSON value", type(inner).__name__)


def _inside(value: Any, where: tuple[str, ...], limits: Aql) -> Iterator[tuple[Any, tuple[str, ...]]]:
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            _check_text(name, where, limits.string_bytes)
            yield inner, (*where, name)
        return
    if len(value) > limits.array_elements:
        raise too_large("array_elements", limits.array_elements, len(value))
    place = (*where, "[]")
    for inner in value:
        yield inner, place


def _check_text(text: str, where: tuple[str, ...], most: int) -> None:
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise Fault(
                INVALID_ENCODING, "A text has half of a surrogate pair, which is no UTF-8", location=_place(where)
            ) from error
    if "\0" in text:
        raise Fault(INVALID_ENCODING, "A text has a NUL character, which is not taken here", location=_place(where))
    if size > most:
        raise too_large("string_length", most, size)


def _check_number(number: float, where: tuple[str, ...]) -> None:
    is_finite = isfinite(number) if isinstance(number, float) else abs(number) <= MAX_NUMBER
    if not is_finite:
        raise wrong_type(_place(where), "finite number", "number")


def _place(where: tuple[str, ...]) -> str:
    said = ".".join(where).replace(".[]", "[]") or "request"
    return said[:MAX_LOCATION].encode("utf-8", "replace").decode()
