"""Decides what a field is to an item: its title, its picture, its price. Reads names and statistics, never items."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from portico.catalog import FieldType, Role


@dataclass(frozen=True, slots=True)
class FieldProfile:
    """What the values of one field are like, over all items of a source."""

    name: str  # a path such as `offers.price` below an object
    type: FieldType
    format: str = ""  # as in `Field.format`: url, email, money, code, uuid, hash, year, ...
    coverage: float = 1.0  # the share of items that have a value, 0..1
    distinct: float = 1.0  # different values per value, 0..1; that of a sample for large data
    length: float = 0.0  # the mean number of characters of a text
    examples: tuple[Any, ...] = ()  # a few of the values, as they are stored


def assign_roles(profiles: Sequence[FieldProfile], collection: str = "") -> dict[Role, str]:
    """Return the field for each role that a collection's data fills. Profiles are in the order of the source."""
    return {}
