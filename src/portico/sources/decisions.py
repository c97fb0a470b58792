"""Decides the type of each column of a source from what its cells are like. Reads no records.

A column has a type if at least nine of ten values fit; the others are kept as they are written, and doubted. What may
be read in two ways is not read at all: the column stays text, with a doubt that names the setting that settles it.

Names decide only where values cannot: titles stay texts, postcodes are codes, and `created_at` may be seconds since
1970. Values that have a type in their source (JSON numbers, cells of a workbook) keep it.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from portico.catalog import ID, Field, FieldType
from portico.sources.cells import MISSING, PAIRS, has_markup, is_url, parse_list
from portico.sources.column_names import CODE_PAIRS, CODES_BY_NAME, DEGREES, DURATION_PAIRS, NAMES
from portico.sources.columns import Column, Path, Profile
from portico.sources.conversion import Conversion
from portico.sources.notation import ENOUGH, Kind, Notation
from portico.sources.numbers import (
    AMOUNTS,
    WHOLE,
    count_fitting,
    decimal_separator,
    is_convertible,
    is_fraction,
    is_unclear,
)
from portico.sources.role_names import Match, match_name, name_words

NOTABLE = 0.5  # of them look like values of a type that the column does not get
CODES = 0.01  # of the numbers have leading zeros: then they are codes
MAX_LISTED = 5  # values in a doubt or remark
_LIST_SHARE = 0.3  # of the cells of a list have its separator
_LIST_LENGTH = 30  # characters of an element of a list with commas, at most on average
_LIST_WORDS = 4  # of an element
_REPETITION = 0.6  # different elements of all elements, in a list with commas

_TEXT_FORMATS = (Kind.URL, Kind.EMAIL, Kind.UUID, Kind.HASH, Kind.PHONE, Kind.JSON)
_NOUNS = {
    FieldType.INTEGER: "whole numbers", FieldType.NUMBER: "numbers", FieldType.BOOLEAN: "true or false",
    FieldType.TIMESTAMP: "dates", FieldType.DURATION: "durations", FieldType.ARRAY: "lists",
    FieldType.OBJECT: "objects", FieldType.VECTOR: "lists of numbers", FieldType.STRING: "texts",
}  # fmt: skip
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COUNTRY = re.compile(r"[A-Z]{2}")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column. Without a conversion its values are kept as they are."""

    type: FieldType
    fits: int = 0  # values that have it
    format: str = ""
    unit: str = ""
    conversion: Conversion | None = None
    doubt: str = ""  # why it is not read as what it may be
    example: str = ""  # of a value that is in doubt
    setting: str = ""  # that would settle the doubt
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What the other columns of a source show."""

    collection: str
    decimal: str = ""  # the decimal separator of all columns that show one
    day_first: bool | None = None
    has_native: bool = False  # the source has numbers or booleans of its own: texts of digits are texts

    def setting(self, column: Column, type: str, **options: str) -> str:
        """Return the line of the site file that would settle a doubt."""
        return setting_for(self.collection, column.name, type, **options)


def setting_for(collection: str, field: str, type: str, **options: str) -> str:
    """Return the line of the site file that declares a field."""
    name = field if _BARE_KEY.fullmatch(field) else json.dumps(field, ensure_ascii=False)
    values = ", ".join(f'{option} = "{value}"' for option, value in {"type": type, **options}.items() if value)
    return f"collections.{collection}.fields.{name} = {{ {values} }}"


def decide(collection: str, profile: Profile, declared: Mapping[str, Field]) -> dict[Path, ColumnType]:
    """Return the type of every column of a collection. `declared` holds fields by the place of their values."""
    columns = [*profile.top.values(), *profile.nested.values()]
    context = Context(collection, has_native=any(_natives(column, int, float, bool) for column in columns))
    decimals = {mark for column in columns if (mark := decimal_separator(column.notations))}
    orders = {order for column in columns if (order := _order(column)) is not None}
    context = replace(
        context,
        decimal=decimals.pop() if len(decimals) == 1 else "",
        day_first=orders.pop() if len(orders) == 1 else None,
    )
    types: dict[Path, ColumnType] = {}
    for column in columns:
        field = declared.get(column.name)
        if field is not None:
            types[column.path] = _decide_declared(column, field, context)
        elif column.path[-1].startswith("@"):  # keywords of JSON-LD
            types[column.path] = _keep(column)
        else:
            types[column.path] = _with_missing(column, _decide(column, context))
    return types


def _keep(column: Column) -> ColumnType:
    """Return the type of a column whose values stay as they are."""
    if not column.filled or column.texts < column.filled:
        return ColumnType(FieldType.ANY, column.filled)
    return ColumnType(FieldType.STRING, column.filled)


def _decide(column: Column, context: Context) -> ColumnType:
    filled, texts = column.filled, column.texts
    if not filled:
        return ColumnType(FieldType.ANY)
    if not texts:
        return _decide_native(column)
    if _natives(column, bool) >= ENOUGH * filled:
        conversion = Conversion(FieldType.BOOLEAN, Kind.BOOLEAN, words=_words(column) or "true/false")
        return ColumnType(FieldType.BOOLEAN, _natives(column, bool), conversion=conversion)
    if _natives(column, dict, list, bool):
        return ColumnType(FieldType.ANY, filled)
    if column.path == (ID,):
        return ColumnType(FieldType.STRING, filled)
    title = next((match for match in match_name(column.path[-1]) if match.role == "title"), None)
    if title and title.match in {Match.WHOLE, Match.LAST}:
        return _text(column)
    for rule in _RULES:
        decided = rule(column, context)
        if decided is not None:
            return decided
    return replace(_text(column), remark=_missed(column))


def _natives(column: Column, *kinds: type) -> int:
    return sum(column.natives.get(kind, 0) for kind in kinds)


def _decide_native(column: Column) -> ColumnType:
    """Decide about a column without texts. Values of several types make one of any type, unless few are odd."""
    filled = column.filled
    numbers = _natives(column, int, float)
    if _natives(column, int) == filled and (epoch := _epoch(column)):
        conversion = Conversion(FieldType.TIMESTAMP, Kind.DATE, epoch=epoch)
        return ColumnType(FieldType.TIMESTAMP, column.epochs[epoch], "datetime", conversion=conversion)
    if numbers == filled:
        kind = FieldType.NUMBER if _natives(column, float) else FieldType.INTEGER
        return ColumnType(kind, filled, _number_format(column, kind))
    if _natives(column, list) == filled:
        return ColumnType(FieldType.VECTOR if column.vectors == filled else FieldType.ARRAY, filled)
    for kind, count in (
        (FieldType.NUMBER if _natives(column, float) else FieldType.INTEGER, numbers),
        (FieldType.BOOLEAN, _natives(column, bool)),
        (FieldType.OBJECT, _natives(column, dict)),
    ):
        if count >= ENOUGH * filled:
            is_scalar = count < filled and kind is not FieldType.OBJECT
            return ColumnType(kind, count, conversion=Conversion(kind, Kind.MISSING) if is_scalar else None)
    return ColumnType(FieldType.ANY, filled)


# Rules, tried in this order. Each returns None if a column is nothing of its kind.


def _decide_boolean(column: Column, context: Context) -> ColumnType | None:
    words = _words(column)
    if not words:
        return None
    fits = column.count(Kind.BOOLEAN, *PAIRS[words])
    if fits < ENOUGH * column.filled:
        return None
    conversion = Conversion(FieldType.BOOLEAN, Kind.BOOLEAN, words=words)
    return ColumnType(FieldType.BOOLEAN, fits, conversion=conversion)


def _words(column: Column) -> str:
    """Return the pair of words that most values are of."""
    if not column.count(Kind.BOOLEAN):
        return ""
    best = max(PAIRS, key=lambda pair: column.count(Kind.BOOLEAN, *PAIRS[pair]))
    is_letter = all(len(word) == 1 and word.isalpha() for word in PAIRS[best])
    return "" if is_letter and not all(column.count(Kind.BOOLEAN, word) for word in PAIRS[best]) else best


def _decide_bits(column: Column, context: Context) -> ColumnType | None:
    fits = column.count(Kind.NUMBER, "bit")
    if context.has_native or fits < ENOUGH * column.filled or not _is_boolean_name(column):
        return None
    return ColumnType(FieldType.BOOLEAN, fits, conversion=Conversion(FieldType.BOOLEAN, Kind.BOOLEAN, words="1/0"))


def _is_boolean_name(column: Column) -> bool:
    words = name_words(column.path[-1])
    is_named = bool(words) and (words[0] in NAMES["is"] or words[-1] in NAMES["boolean"])
    return is_named or words in (["in", "stock"], ["gluten", "free"])


def _decide_code(column: Column, context: Context) -> ColumnType | None:
    """Decide about digits that are no quantities: postcodes, article numbers, and all with leading zeros."""
    digits = column.count(Kind.NUMBER) + column.count(Kind.CODE)
    if not digits:
        return None
    format = _code_format(column)
    has_zeros = column.count(Kind.CODE, "zeros") > CODES * digits
    is_long = column.count(Kind.CODE, "long") > (1 - ENOUGH) * column.filled
    if digits >= ENOUGH * column.filled and (has_zeros or is_long):
        format = format or "code"
    elif (
        context.has_native
        and digits >= ENOUGH * column.texts
        and column.count(Kind.NUMBER, *WHOLE) == digits
        and not _is_number_name(column)
    ):
        return replace(_text(column), format=format) if not _natives(column, int, float) else None
    elif format is None and digits == column.filled and _are_gtins(column.sample):
        format = "isbn" if all(text.strip().startswith(("978", "979")) for text in column.sample) else "gtin"
    return replace(_text(column), format=format) if format else None


def _is_number_name(column: Column) -> bool:
    words = name_words(column.path[-1])
    is_price = any(match.role == "price" for match in match_name(column.path[-1]))
    return is_price or (bool(words) and words[-1] in NAMES["number"] | NAMES["year"])


def _code_format(column: Column) -> str | None:
    words = name_words(column.path[-1])
    return CODE_PAIRS.get(" ".join(words[-2:])) or next(
        (CODES_BY_NAME[word] for word in reversed(words) if word in CODES_BY_NAME), None
    )


def _are_gtins(texts: Iterable[str]) -> bool:
    """Whether all texts are article numbers: 12 to 14 digits of which the last one checks the others."""
    digits = [text.strip() for text in texts]
    return len(digits) >= 3 and all(
        len(text) in {12, 13, 14}
        and text.isdigit()
        and sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(reversed(text))) % 10 == 0
        for text in digits
    )


def _decide_epoch(column: Column, context: Context) -> ColumnType | None:
    epoch = _epoch(column)
    if not epoch:
        return None
    fits = column.count(Kind.NUMBER, epoch) + column.epochs.get(epoch, 0)
    conversion = Conversion(FieldType.TIMESTAMP, Kind.DATE, epoch=epoch)
    return ColumnType(FieldType.TIMESTAMP, fits, "datetime", conversion=conversion)


def _epoch(column: Column) -> str:
    """Return the unit of whole numbers that are times since 1970, if their name says so."""
    words = name_words(column.path[-1])
    if len(words) > 1 and words[-1] == "t":  # last_modified_t
        words.pop()
    if not words or (words[-1] not in NAMES["epoch"] and words[0] not in NAMES["epoch"] - {"at", "time", "date"}):
        return ""
    for unit in ("seconds", "milliseconds"):
        fits = column.count(Kind.NUMBER, unit) + column.epochs.get(unit, 0)
        if fits and fits >= ENOUGH * column.filled:
            return unit
    return ""


def _decide_number(column: Column, context: Context) -> ColumnType | None:
    numbers = {n: count for n, count in column.notations.items() if n.kind is Kind.NUMBER}
    natives = _natives(column, int, float)
    if not numbers or sum(numbers.values()) + natives < ENOUGH * column.filled:
        return None
    decimal = decimal_separator(numbers) or ("." if _degrees(column) else context.decimal)
    if not decimal and is_unclear(numbers):
        return _ambiguous_number(column, context)
    fits = count_fitting(numbers, decimal or ".") + natives
    if fits < ENOUGH * column.filled:
        return None
    is_whole = not _natives(column, float) and not any(is_fraction(n, decimal) for n in numbers)
    kind = FieldType.INTEGER if is_whole else FieldType.NUMBER
    return _number(kind, fits, _number_format(column, kind), decimal or ".")


def _number(kind: FieldType, fits: int, format: str = "", decimal: str = ".") -> ColumnType:
    return ColumnType(kind, fits, format, conversion=Conversion(kind, Kind.NUMBER, decimal))


def _number_format(column: Column, kind: FieldType) -> str:
    words = name_words(column.path[-1])
    if degrees := _degrees(column):
        return degrees
    if not words or kind is not FieldType.INTEGER:
        return ""
    if words[-1] in NAMES["key"]:
        return "code"
    return "year" if words[-1] in NAMES["year"] or words[0] in NAMES["year"] else ""


def _degrees(column: Column) -> str:
    words = name_words(column.path[-1])
    return DEGREES.get(words[-1], "") if words else ""


def _ambiguous_number(column: Column, context: Context) -> ColumnType:
    mark = "." if column.count(Kind.NUMBER, ".?") else ","
    example = next((text.strip() for text in column.sample if mark in text), "")
    reason = (
        f"`{example}` may have a decimal separator or one of thousands, and no other value shows which:"
        " the column stays text"
    )
    setting = context.setting(column, "number", format="1,234.56" if mark == "," else "1.234,56")
    return replace(_text(column), doubt=reason, example=example, setting=setting)


def _decide_amount(column: Column, context: Context) -> ColumnType | None:
    """Decide about numbers with a currency, a percent sign or a unit; below an object there is no place for units."""
    if len(column.path) > 1 or column.natives:
        return None
    for kind in AMOUNTS:
        amounts = {n: count for n, count in column.notations.items() if n.kind is kind}
        plain = column.count(Kind.NUMBER) if kind is Kind.MONEY else 0
        total = sum(amounts.values())
        if not total or total + plain < ENOUGH * column.filled or total < plain:
            continue
        return _decide_unit(column, context, kind, amounts)
    return None


def _decide_unit(column: Column, context: Context, kind: Kind, amounts: Mapping[Notation, int]) -> ColumnType | None:
    by_unit: dict[str, int] = {}
    for notation, count in amounts.items():
        by_unit[notation.unit] = by_unit.get(notation.unit, 0) + count
    unit = max(by_unit, key=lambda unit: by_unit[unit])
    numbers = {n: count for n, count in amounts.items() if is_convertible(n.unit, unit)}
    if kind is Kind.MONEY:
        numbers |= {n: count for n, count in column.notations.items() if n.kind is Kind.NUMBER}
    if sum(numbers.values()) < ENOUGH * column.filled:
        if kind is not Kind.MONEY:
            return None
        reason = f"has several currencies: {', '.join(sorted(by_unit)[:MAX_LISTED])}; the column stays text"
        setting = context.setting(column, "number", unit=unit)
        return replace(_text(column), doubt=reason, example=_first(column), setting=setting)
    decimal = decimal_separator(numbers) or context.decimal
    if not decimal and is_unclear(numbers):
        if kind is not Kind.MONEY or any(n.variant == ".?" for n in numbers):
            return _ambiguous_number(column, context)
        decimal = "."  # $1,299: no price has three decimals
    fits = count_fitting(numbers, decimal or ".")
    if fits < ENOUGH * column.filled:
        return None
    has_parts = any(n.unit != unit and n.kind is Kind.QUANTITY for n in numbers)
    is_whole = not has_parts and not any(is_fraction(n, decimal) for n in numbers)
    type = FieldType.INTEGER if is_whole and kind is not Kind.MONEY else FieldType.NUMBER
    conversion = Conversion(type, kind, decimal or ".", unit=unit)
    return ColumnType(type, fits, kind.value, unit, conversion)


def _decide_date(column: Column, context: Context) -> ColumnType | None:
    dates = {n: count for n, count in column.notations.items() if n.kind is Kind.DATE}
    if sum(dates.values()) < ENOUGH * column.filled or not dates:
        return None
    day_first = _order(column)
    if day_first is None:
        day_first = context.day_first
    if day_first is None and any(n.variant[0] == "?" for n in dates):
        example = next((text.strip() for text in column.sample if "/" in text or "-" in text), "")
        return replace(
            _text(column),
            doubt=f"`{example}` may begin with its day or its month, and no other value shows which:"
            " the column stays text",
            example=example,
            setting=context.setting(column, "timestamp", format="dd/mm/yyyy"),
        )
    other = "m" if day_first else "d"
    fitting = {n: count for n, count in dates.items() if day_first is None or n.variant[0] != other}
    fits = sum(fitting.values())
    if fits < ENOUGH * column.filled:
        return None
    has_times = any("T" in n.variant for n in fitting)
    conversion = Conversion(FieldType.TIMESTAMP, Kind.DATE, day_first=day_first)
    is_short = any("2" in n.variant for n in fitting)
    remark = f"{column.name}: years of two digits are read as 1970 to 2069" if is_short else ""
    return ColumnType(
        FieldType.TIMESTAMP, fits, "datetime" if has_times else "date", conversion=conversion, remark=remark
    )


def _order(column: Column) -> bool | None:
    """Whether the day comes first in the dates of a column; None if they show neither, or both."""
    day = month = 0
    for notation, count in column.notations.items():
        if notation.kind is Kind.DATE:
            day += count * (notation.variant[0] == "d")
            month += count * (notation.variant[0] == "m")
    if not day and not month:
        return None
    return True if month <= (1 - ENOUGH) * day else False if day <= (1 - ENOUGH) * month else None


def _decide_duration(column: Column, context: Context) -> ColumnType | None:
    total = column.count(Kind.DURATION)
    if not total or total < ENOUGH * column.filled:
        return None
    words = name_words(column.path[-1])
    is_time = not NAMES["time"].isdisjoint(words)
    is_duration = not NAMES["duration"].isdisjoint(words) or " ".join(words[-2:]) in DURATION_PAIRS
    clocks, full = column.count(Kind.DURATION, "clock"), column.count(Kind.DURATION, "hh:mm:ss")
    exact = column.count(Kind.DURATION, "h:m:s")
    firm = total - clocks - full
    if (clocks or full) and not firm and not (full and is_duration):
        text = replace(_text(column), format="time")
        if is_time or not (is_duration or full):
            return text
        form = "mm:ss"
        reason = "may be times of the day or durations: the column stays text"
        if is_duration:
            reason = "may be minutes and seconds, or hours and minutes: the column stays text"
        setting = context.setting(column, "duration", format=form if clocks and is_duration else "")
        return replace(text, doubt=reason, example=_first(column), setting=setting)
    has_minutes = column.count(Kind.DURATION, "m:s") or exact or (full and is_duration)
    if clocks and not has_minutes and total - clocks < ENOUGH * column.filled:
        reason = "may be minutes and seconds, or hours and minutes: the column stays text"
        setting = context.setting(column, "duration", format="mm:ss")
        return replace(_text(column), doubt=reason, example=_first(column), setting=setting)
    clock = "m:s" if has_minutes else ""
    fits = total if clock else total - clocks
    conversion = Conversion(FieldType.DURATION, Kind.DURATION, clock=clock)
    return ColumnType(FieldType.DURATION, fits, conversion=conversion)


def _decide_coordinates(column: Column, context: Context) -> ColumnType | None:
    fits = column.count(Kind.COORDINATES)
    if not fits or fits < ENOUGH * column.filled or column.natives:
        return None
    is_named = not NAMES["coordinates"].isdisjoint(name_words(column.path[-1]))
    is_exact = all(len(text) >= 16 for text in column.sample)
    if not is_named and not is_exact:
        return None
    return ColumnType(FieldType.OBJECT, fits, "coordinates", conversion=Conversion(FieldType.OBJECT, Kind.COORDINATES))


def _decide_format(column: Column, context: Context) -> ColumnType | None:
    for kind in _TEXT_FORMATS:
        if column.count(kind) >= ENOUGH * column.filled:
            return replace(_text(column), format=kind.value)
    return None


def _decide_list(column: Column, context: Context) -> ColumnType | None:
    if column.natives:
        return None
    arrays = column.count(Kind.LIST)
    if arrays and arrays >= ENOUGH * column.filled:
        return _list(arrays, "")
    for separator in (";", "|", ","):
        marked = sum(count for n, count in column.notations.items() if n.kind is Kind.TEXT and separator in n.variant)
        if marked >= max(2, _LIST_SHARE * column.filled) and _shows_list(column, separator):
            return _list(column.filled, separator)
    return None


def _list(fits: int, separator: str) -> ColumnType:
    return ColumnType(FieldType.ARRAY, fits, conversion=Conversion(FieldType.ARRAY, Kind.LIST, separator=separator))


def _shows_list(column: Column, separator: str) -> bool:
    """Whether the sample has lists of short elements. With commas, elements repeat, in lists of different lengths."""
    words = name_words(column.path[-1])
    lists = [parse_list(text, separator) or [] for text in column.sample]
    parts = [part for elements in lists for part in elements]
    if not parts or any(text.strip() == separator or has_markup(text) for text in column.sample):
        return False
    if all(map(is_url, parts)):
        return True
    short = sum(len(part) <= _LIST_LENGTH and len(part.split()) <= _LIST_WORDS for part in parts)
    if short < ENOUGH * len(parts):
        return False
    is_named = not NAMES["list"].isdisjoint(words)
    if separator != "," or is_named:
        return True
    lengths = {len(elements) for elements in lists}
    is_varied = len(lengths) > 1 and max(lengths) > 2
    return is_varied and len(set(parts)) <= _REPETITION * len(parts) and NAMES["no list"].isdisjoint(words)


_RULES = (
    _decide_boolean, _decide_bits, _decide_code, _decide_epoch, _decide_number, _decide_amount, _decide_date,
    _decide_duration, _decide_coordinates, _decide_format, _decide_list,
)  # fmt: skip


def _text(column: Column) -> ColumnType:
    """Return the type of a column of texts. Numbers among them become texts, so that they can be compared."""
    needs_conversion = bool(column.natives)
    conversion = Conversion(FieldType.STRING) if needs_conversion else None
    return ColumnType(FieldType.STRING, column.filled, conversion=conversion)


def _first(column: Column) -> str:
    return next((text.strip() for text in column.sample if text.strip()), "")


def _missed(column: Column) -> str:
    """Return a remark on a text column of which most values look like another type."""
    nouns = {
        "numbers": column.count(Kind.NUMBER) + _natives(column, int, float),
        "amounts": sum(column.count(kind) for kind in AMOUNTS),
        "dates": column.count(Kind.DATE),
        "durations": column.count(Kind.DURATION),
    }
    noun = max(nouns, key=lambda noun: nouns[noun])
    if nouns[noun] < NOTABLE * column.filled:
        return ""
    reason = "too few" if nouns[noun] < ENOUGH * column.filled else "but not of one kind"
    return f"{column.name}: {nouns[noun]:,} of {column.filled:,} values are {noun}, {reason}: the column stays text"


def _with_missing(column: Column, decided: ColumnType) -> ColumnType:
    """Let texts such as N/A count as missing, but for titles, and for Namibia among countries."""
    missing = column.missing()
    if not missing or decided.type is FieldType.ANY:
        return decided
    keeps_codes = decided.type is FieldType.STRING and _are_countries(column.sample)
    dropped = {text: count for text, count in missing.items() if not (keeps_codes and text == "NA")}
    if decided.conversion is None and decided.type is not FieldType.STRING:
        decided = replace(decided, conversion=Conversion(decided.type, Kind.MISSING))
    if decided.conversion is None:
        title = any(match.role == "title" for match in match_name(column.path[-1]))
        if title or not dropped:
            return decided
        decided = replace(decided, conversion=Conversion(FieldType.STRING))
    if not dropped:
        return decided
    listed = ", ".join(f"`{text}`" for text in list(dropped)[:MAX_LISTED])
    remark = f"{column.name}: {sum(dropped.values()):,} values count as missing: {listed}"
    conversion = replace(decided.conversion, keeps_codes=keeps_codes) if decided.conversion else None
    return replace(decided, conversion=conversion, remark="; ".join(filter(None, (decided.remark, remark))))


def _are_countries(texts: Iterable[str]) -> bool:
    codes = [text for text in texts if text.strip() not in MISSING]
    return bool(codes) and sum(bool(_COUNTRY.fullmatch(text)) for text in codes) >= 0.8 * len(codes)


# Declared fields


def _decide_declared(column: Column, field: Field, context: Context) -> ColumnType:
    """Return how values become those of the type in the site file, which is not to be doubted itself."""
    conversion = _declared_conversion(column, field, context)
    format, unit = field.format, field.unit or (conversion.unit if conversion else "")
    return ColumnType(field.type, column.filled, format, unit, conversion)


def _declared_conversion(column: Column, field: Field, context: Context) -> Conversion | None:
    format = field.format.lower()
    base = Conversion(field.type, is_declared=True)
    match field.type:
        case FieldType.STRING:
            return replace(base, kind=Kind.TEXT)
        case FieldType.INTEGER | FieldType.NUMBER:
            return _declared_number(column, field, context)
        case FieldType.BOOLEAN:
            words = _words(column)
            is_bit = column.count(Kind.NUMBER, "bit") > column.count(Kind.BOOLEAN)
            return replace(base, kind=Kind.BOOLEAN, words="1/0" if is_bit or not words else words)
        case FieldType.TIMESTAMP:
            order = {"d": True, "m": False}.get(format[:1])
            order = _order(column) if order is None else order
            epoch = next((unit for unit in ("seconds", "milliseconds") if format == unit), "") or _epoch(column)
            if order is None:
                order = context.day_first
            return replace(base, kind=Kind.DATE, day_first=order, epoch=epoch)
        case FieldType.DURATION:
            clock = {"mm:ss": "m:s", "hh:mm": "h:m"}.get(format, "")
            has_minutes = column.count(Kind.DURATION, "m:s", "h:m:s")
            return replace(base, kind=Kind.DURATION, clock=clock or ("m:s" if has_minutes else ""))
        case FieldType.ARRAY | FieldType.VECTOR:
            separator = format if format in {";", "|", ","} else ""
            if not separator and not column.natives:
                decided = _decide_list(column, context)
                separator = decided.conversion.separator if decided and decided.conversion else ""
            return replace(base, kind=Kind.LIST, separator=separator)
        case FieldType.OBJECT:
            return replace(base, kind=Kind.COORDINATES)
        case FieldType.ANY:
            return None


def _declared_number(column: Column, field: Field, context: Context) -> Conversion:
    counts = {kind: column.count(kind) for kind in (Kind.NUMBER, *AMOUNTS)}
    kind = max(counts, key=lambda kind: counts[kind])
    numbers = {n: count for n, count in column.notations.items() if n.kind in counts}
    decimal = {"1,234.56": ".", "1.234,56": ","}.get(field.format) or decimal_separator(numbers) or context.decimal
    units = {n.unit: count for n, count in numbers.items() if n.unit}
    unit = field.unit or (max(units, key=lambda unit: units[unit]) if units else "")
    return Conversion(field.type, kind, decimal, unit=unit, is_declared=True)


def noun_of(type: FieldType) -> str:
    """Return what values of a type are called in a doubt."""
    return _NOUNS.get(type, type.value)
