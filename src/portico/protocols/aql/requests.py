"""Parses requests, from bytes or decoded by MCP, and checks the published limits. Knows no operation.

Of two members with the same name the last one counts, as everywhere on a site. NUL characters are not accepted.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NoReturn, cast

import msgspec

from portico.access.limits import NestingTooDeep, walk_json
from portico.items import MAX_NUMBER, type_name
from portico.protocols.aql.envelopes import INVALID_ENCODING, INVALID_TYPE, Fault, too_large, wrong_type
from portico.protocols.aql.settings import AqlSettings

MAX_LOCATION = 120  # characters

# Either `operation` or `operations` is required, which the schema does not express: some clients would refuse a batch.
# Every tool has this schema, and models pay for each word of it.
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


def parse_request(raw: bytes | Mapping[str, Any], limits: AqlSettings) -> Mapping[str, Any]:
    """Parse a request. Checks its size, encoding and depth, in this order."""
    value = decode_request(raw, limits) if isinstance(raw, bytes) else raw
    _check_values(value, limits)
    if not isinstance(value, Mapping):
        raise wrong_type("request", "object", type_name(value))
    if not isinstance(raw, bytes) and (size := len(msgspec.json.encode(value))) > limits.request_bytes:
        raise too_large("request_size", limits.request_bytes, size)
    return cast("Mapping[str, Any]", value)


def decode_request(raw: bytes, limits: AqlSettings) -> Any:
    if len(raw) > limits.request_bytes:
        raise too_large("request_size", limits.request_bytes, len(raw))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise utf8_fault(error.start) from error
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise _too_deep(limits) from error
    except ValueError as error:
        # Only the position is reported, not the library's message.
        place = f": see character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        expected = {"param_name": "request", "expected_type": "object", "actual_type": "malformed JSON"}
        raise Fault(INVALID_TYPE, f"The request is not valid JSON{place}", **expected) from error


def utf8_fault(offset: int) -> Fault:
    """Return the error for bytes that are not UTF-8 from this offset on."""
    return Fault(INVALID_ENCODING, f"Invalid UTF-8 in byte {offset} of the request", byte_offset=offset)


def _reject_constant(_: str) -> NoReturn:
    raise ValueError("JSON has neither NaN nor Infinity")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def _check_values(value: Any, limits: AqlSettings) -> None:
    """Check every value in a request, at any depth, and the names of members."""
    try:
        for inner, path in walk_json(value, limits.depth):
            match inner:
                case str():
                    _check_text(inner, path, limits.string_bytes)
                case bool() | None:
                    pass
                case int() | float():
                    _check_number(inner, path)
                case Mapping():
                    for name in cast("Mapping[str, Any]", inner):
                        _check_text(name, path, limits.string_bytes)
                case list() | tuple():
                    if (length := len(cast("list[Any]", inner))) > limits.array_elements:
                        raise too_large("array_elements", limits.array_elements, length)
                case _:
                    raise wrong_type(_location(path), "JSON value", type(inner).__name__)
    except NestingTooDeep as error:
        raise _too_deep(limits) from error


def _too_deep(limits: AqlSettings) -> Fault:
    return too_large("nesting_depth", limits.depth, limits.depth + 1)


def _check_text(text: str, where: tuple[str, ...], most: int) -> None:
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise Fault(
                INVALID_ENCODING,
                "A string has half of a surrogate pair, which is not valid UTF-8",
                location=_location(where),
            ) from error
    if "\0" in text:
        raise Fault(
            INVALID_ENCODING, "A string contains a NUL character, which is not accepted", location=_location(where)
        )
    if size > most:
        raise too_large("string_length", most, size)


def _check_number(number: float, where: tuple[str, ...]) -> None:
    is_finite = isfinite(number) if isinstance(number, float) else abs(number) <= MAX_NUMBER
    if not is_finite:
        raise wrong_type(_location(where), "finite number", "number")


def _location(where: tuple[str, ...]) -> str:
    path = ".".join(where).replace(".[]", "[]") or "request"
    return path[:MAX_LOCATION].encode("utf-8", "replace").decode()
