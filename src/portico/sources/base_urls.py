"""Joins the relative links and pictures of tables to the `base_url` of their source. Reads names and values only."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from portico.network import absolute
from portico.sources.records import Entry, Record
from portico.sources.role_names import match_name

MAX_URL = 2000
# A path, or the name of a file: without spaces, scheme and host.
_RELATIVE = re.compile(r"(?!//)(?![A-Za-z][A-Za-z0-9+.-]*:)(?=[^\s\\]++\Z)[^\s\\]*(?:/|\.[A-Za-z0-9]{2,5}(?:[?#]|\Z))")


def join_addresses(entries: Iterable[Entry], base_url: str) -> Iterator[Entry]:
    """Yield the entries of a table, with the fields absolute whose names are those of links or pictures."""
    for entry in entries:
        yield replace(entry, data=_join(entry.data, base_url)) if isinstance(entry, Record) else entry


def _join(data: dict[str, Any], base_url: str) -> dict[str, Any]:
    return {name: _absolute(value, base_url) if _is_address(name) else value for name, value in data.items()}


def _absolute(value: Any, base_url: str) -> Any:
    """Return a relative address as an absolute one, and any other value as it is."""
    match value:
        case str() if len(value) <= MAX_URL and _RELATIVE.match(value.strip()):
            return absolute(value, base_url.rstrip("/")) or value
        case list():
            return [_absolute(element, base_url) for element in cast("list[Any]", value)]
        case _:
            return value


@lru_cache(maxsize=4096)
def _is_address(name: str) -> bool:
    return any(match.role in {"link", "image"} for match in match_name(name))
