"""Converts the values of a column to their normal form. Keeps what it cannot convert; decides nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from portico.catalog import FieldType, comparable
from portico.sources.cells import MISSING, PAIRS, parse_coordinates, parse_list
from portico.sources.dates import parse_date, parse_duration, parse_epoch
from portico.sources.notation import Kind
from portico.sources.numbers import convert_unit, parse_number, read_amount, read_number

CACHED_VALUES = 4096  # of a column
CACHED_LENGTH = 64  # characters


class Marker:
    """A result of a conversion that is no value."""


UNREADABLE: Final = Marker()  # the value is kept as it is written
ABSENT: Final = Marker()  # the value says that there is none

Converter: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the values of a column become values of its type. Equal ones convert alike."""

    type: FieldType
    kind: Kind = Kind.TEXT
    decimal: str = "."  # if it is empty, numbers that may have either are not read
    day_first: bool | None = None  # if it is None, dates that may be either are not read
    clock: str = ""  # what 4:35 is: m:s or h:m
    separator: str = ""  # of a list; empty for JSON arrays
    unit: str = ""
    words: str = ""  # for true and false: one of PAIRS, or 1/0
    epoch: str = ""  # seconds or milliseconds
    keeps_codes: bool = False  # NA is a country, not a missing value
    is_declared: bool = False

    def converter(self) -> Converter:
        """Return the function that converts a value: to its normal form, to ABSENT or to UNREADABLE."""
        convert_text = _TEXT_CONVERTERS[self.kind](self)
        cache: dict[str, Any] = {}

        def convert(value: Any) -> Any:
            if type(value) is not str:
                return self._convert_native(value)
            result = cache.get(value, cache)
            if result is cache:
                text = value.strip()
                is_missing = text in MISSING and not (self.keeps_codes and text == "NA")
                result = ABSENT if is_missing else convert_text(text)
                if len(cache) < CACHED_VALUES and len(value) <= CACHED_LENGTH:
                    cache[value] = result
            return result

        return convert

    def _convert_native(self, value: Any) -> Any:
        """Return a value that is no text; null is no value of any type."""
        if value is None:
            return None
        match self.type:
            case FieldType.STRING:
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                return str(value) if is_number else UNREADABLE
            case FieldType.TIMESTAMP:
                return _date_of_number(value, self.epoch)
            case FieldType.INTEGER | FieldType.NUMBER:
                number = comparable(self.type, value)
                is_fraction = self.type is FieldType.INTEGER and isinstance(number, float) and not number.is_integer()
                return UNREADABLE if number is None or is_fraction else value
            case FieldType.BOOLEAN:
                return value if isinstance(value, bool) else UNREADABLE
            case FieldType.ARRAY | FieldType.VECTOR:
                return UNREADABLE if not isinstance(value, list) else cast("Any", value)
            case FieldType.OBJECT:
                return UNREADABLE if not isinstance(value, dict) else cast("Any", value)
            case FieldType.DURATION:
                return UNREADABLE
            case FieldType.ANY:
                return value


def _date_of_number(value: Any, epoch: str) -> Any:
    if not epoch or not isinstance(value, int) or isinstance(value, bool):
        return UNREADABLE
    return parse_epoch(value, epoch) or UNREADABLE


def _to_text(_: Conversion) -> Converter:
    return lambda text: text


def _to_number(conversion: Conversion) -> Converter:
    wants_whole = conversion.type is FieldType.INTEGER
    decimal, unit, kind = conversion.decimal, conversion.unit, conversion.kind

    def convert(text: str) -> Any:
        number = parse_number(text, decimal)
        if number is None or (wants_whole and not isinstance(number, int)):
            return UNREADABLE
        amount = None if text[-1].isdigit() and (text[0].isdigit() or text[0] in "-−+.,") else read_amount(text)
        if amount is None:
            bare = read_number(text)
            fits = bare is not None and kind in {Kind.NUMBER, Kind.MONEY}
            return number if fits or (bare and conversion.is_declared) else UNREADABLE
        if conversion.is_declared and not unit:
            return number
        converted = convert_unit(number, amount.unit, unit) if amount.kind is kind or conversion.is_declared else None
        return UNREADABLE if converted is None else converted

    return convert


def _to_boolean(conversion: Conversion) -> Converter:
    yes, no = ("1", "0") if conversion.words == "1/0" else PAIRS[conversion.words]
    values: dict[str, Any] = {yes: True, no: False}
    return lambda text: values.get(text.lower(), UNREADABLE)


def _to_date(conversion: Conversion) -> Converter:
    def convert(text: str) -> Any:
        if conversion.epoch and text.isascii() and text.isdigit() and len(text) <= 13:
            return parse_epoch(int(text), conversion.epoch) or UNREADABLE
        if conversion.day_first is not None:
            return parse_date(text, day_first=conversion.day_first) or UNREADABLE
        dates = {date for day_first in (True, False) if (date := parse_date(text, day_first=day_first))}
        return dates.pop() if len(dates) == 1 else UNREADABLE

    return convert


def _to_duration(conversion: Conversion) -> Converter:
    return lambda text: parse_duration(text, conversion.clock) or UNREADABLE


def _to_list(conversion: Conversion) -> Converter:
    def convert(text: str) -> Any:
        elements = parse_list(text, conversion.separator)
        return UNREADABLE if elements is None else elements

    return convert


def _to_coordinates(_: Conversion) -> Converter:
    return lambda text: parse_coordinates(text) or UNREADABLE


def _to_nothing(_: Conversion) -> Converter:
    return lambda text: UNREADABLE


_TEXT_CONVERTERS: dict[Kind, Callable[[Conversion], Converter]] = {
    **dict.fromkeys(Kind, _to_text),
    **dict.fromkeys((Kind.NUMBER, Kind.MONEY, Kind.PERCENT, Kind.QUANTITY), _to_number),
    Kind.BOOLEAN: _to_boolean,
    Kind.DATE: _to_date,
    Kind.DURATION: _to_duration,
    Kind.LIST: _to_list,
    Kind.COORDINATES: _to_coordinates,
    Kind.MISSING: _to_nothing,
}
