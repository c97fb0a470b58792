"""Converts values of parsers and database drivers to JSON values. Refuses YAML aliases and deep nesting."""

import base64
import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, cast

import yaml

from portico.sources.records import MAX_DEPTH

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_BINARY = 64 * 1024
_events = cast("Callable[..., Iterable[Any]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType]


def plain(value: Any) -> Any:
    """Return a JSON value. Dates become ISO text; NaN and large binary data become None."""
    if isinstance(value, Mapping):
        return plain_object(cast("Mapping[Any, Any]", value))
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in cast("Iterable[Any]", value)]
    return _scalar(value)


def plain_object(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a JSON object, without the members that are None."""
    members = ((str(key), plain(value)) for key, value in mapping.items())
    return {key: value for key, value in members if value is not None}


def load_yaml(text: str) -> Any:
    """Load YAML, safe types only. Refuse aliases: a few can expand to gigabytes (the "billion laughs")."""
    depth = 0
    for event in _events(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("YAML aliases are not supported")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"is nested deeper than {MAX_DEPTH}")
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - the loader is a SafeLoader, in C where there is one


def _scalar(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return _number(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(cast("bytes", value)).decode() if len(cast("bytes", value)) <= _MAX_BINARY else None
        case _:
            return str(value)


def _number(value: Decimal) -> int | float | None:
    if not value.is_finite():
        return None
    # Beyond 400 digits int() is slow and no JSON reader could use the number.
    if value == value.to_integral_value() and value.adjusted() < 400:
        return int(value)
    return float(value)
