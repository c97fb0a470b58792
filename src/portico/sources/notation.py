"""How a cell is written: the kind of value that a text may stand for. Decides nothing about its column."""

from enum import StrEnum
from typing import NamedTuple

ENOUGH = 0.9  # of the values of a column decide for all of them


class Kind(StrEnum):
    """What a text looks like."""

    NUMBER = "number"
    CODE = "code"  # digits that are no quantity: 007, or more of them than a number holds
    MONEY = "money"
    PERCENT = "percent"
    QUANTITY = "quantity"
    DATE = "date"
    DURATION = "duration"
    BOOLEAN = "boolean"
    COORDINATES = "coordinates"
    LIST = "list"  # a JSON array
    JSON = "json"  # a JSON object
    URL = "url"
    EMAIL = "email"
    UUID = "uuid"
    HASH = "hash"
    PHONE = "phone"
    TEXT = "text"
    MISSING = "missing"

    __hash__ = str.__hash__  # faster than that of Enum, which is written in Python


class Notation(NamedTuple):
    """One way to write values of a kind. Only what it takes to decide about a column, so that there are few."""

    kind: Kind
    variant: str = ""  # of its separators, its order, its words: see the module that reads the kind
    unit: str = ""
