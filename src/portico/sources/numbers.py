"""Reads numbers as people write them: separators, currencies, units, percentages. Never guesses a separator.

`1,234.5` shows that its comma groups thousands, and `12,50` that its comma is decimal. `1,234` alone may be either: the
other cells of its column decide, then the other columns of its source. Where nothing does, the column stays text.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import isfinite

from portico.sources.notation import ENOUGH, Kind, Notation

MAX_NUMBER = 60  # characters
EXACT_DIGITS = 15  # that a float holds
AMOUNTS = (Kind.MONEY, Kind.PERCENT, Kind.QUANTITY)  # numbers with something beside them
_GROUP = " \u00a0\u202f\u2009'’"
_NUMBER = re.compile(
    rf"""(?P<plain>0|[1-9][0-9]*)
    |(?P<zeros>0[0-9]+)
    |(?P<spaced>[1-9][0-9]{{0,2}}(?:[{_GROUP}][0-9]{{3}})+)(?:(?P<spaced_mark>[.,])[0-9]+)?
    |(?P<unclear>[1-9][0-9]{{0,2}}(?P<unclear_mark>[.,])[0-9]{{3}})
    |(?:[1-9][0-9]{{0,2}}(?:(?:,[0-9]{{3}})+\.[0-9]+|(?:,[0-9]{{3}}){{2,}})|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}}(?:\.[0-9]+)?)
        (?P<point>)
    |[1-9][0-9]{{0,2}}(?:(?:\.[0-9]{{3}})+,[0-9]+|(?:\.[0-9]{{3}}){{2,}})(?P<comma>)
    |(?:0|[1-9][0-9]*)?(?P<mark>[.,])[0-9]+
    |(?:0|[1-9][0-9]*)(?:\.[0-9]+)?[eE][+-][0-9]{{1,3}}(?P<exponent>)
    |(?:0|[1-9][0-9]*)\.[0-9]+[eE][0-9]{{1,3}}(?P<power>)""",
    re.VERBOSE,
)
_MINUS = "-−"
_CURRENCY = r"[A-Z]{3}|[A-Z]{1,3}\$|[$€£¥₹₽₩₺₴₫₪₱฿]|Fr\.|Rs\.?|kr\.?|zł|Kč|Ft|lei|R\$|RM|Euro?s?"
_AMOUNT = re.compile(
    rf"""(?P<open>\()?(?P<minus>[{_MINUS}+])?[ ]?
    (?:(?P<before>{_CURRENCY})[ \u00a0]?)?(?P<inner>[{_MINUS}+])?
    (?P<number>[.,]?[0-9](?:[0-9.,{_GROUP}]*[0-9])?(?:[eE][+-]?[0-9]+)?)(?P<dash>[.,](?:-|–|—)+)?
    [ \u00a0\u202f]?
    (?P<after>[^\W\d_](?:[^\W\d_]|[./])*[²³]?|[$€£¥₹₽₩₺₴₫₪₱฿%‰°]|°[CF]|[^\W\d_]+/[0-9]*[^\W\d_]+)?(?P<close>\))?""",
    re.VERBOSE,
)
_SYMBOLS = {
    "$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₽": "RUB", "₩": "KRW", "₺": "TRY", "₴": "UAH",
    "₫": "VND", "₪": "ILS", "₱": "PHP", "฿": "THB", "US$": "USD", "A$": "AUD", "AU$": "AUD", "C$": "CAD", "CA$": "CAD",
    "NZ$": "NZD", "HK$": "HKD", "S$": "SGD", "R$": "BRL", "MX$": "MXN", "NT$": "TWD", "Fr.": "CHF", "Rs": "INR",
    "Rs.": "INR", "zł": "PLN", "Kč": "CZK", "Ft": "HUF", "lei": "RON", "RM": "MYR", "Euro": "EUR", "Eur": "EUR",
    "Euros": "EUR", "kr": "kr", "kr.": "kr", "円": "JPY", "元": "CNY", "원": "KRW", "руб": "RUB", "руб.": "RUB",
    "грн": "UAH", "грн.": "UAH",
}  # fmt: skip
_CODES = frozenset(
    word
    for words in (
        "AED ARS AUD BGN BHD BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JPY KES KRW KWD MAD",
        "MXN MYR NGN NOK NZD PEN PHP PKR PLN QAR RON RSD RUB SAR SEK SGD THB TND TRY TWD UAH USD UYU VND ZAR",
    )
    for word in words.split()
)
# Units of one dimension, with what one of them is in the first of its dimension.
_DIMENSIONS: tuple[Mapping[str, str], ...] = (
    {"g": "1", "mg": "0.001", "µg": "0.000001", "kg": "1000", "t": "1000000", "lb": "453.59237", "oz": "28.349523125"},
    {"l": "1", "ml": "0.001", "cl": "0.01", "dl": "0.1", "hl": "100"},
    {"m": "1", "mm": "0.001", "cm": "0.01", "km": "1000", "in": "0.0254", "ft": "0.3048", "mi": "1609.344"},
    {"m²": "1", "km²": "1000000", "ha": "10000", "ft²": "0.09290304"},
    {"m³": "1"},
    {"kcal": "1"},
    {"kJ": "1", "J": "0.001", "MJ": "1000"},
    {"W": "1", "kW": "1000", "MW": "1000000", "mW": "0.001"},
    {"Wh": "1", "kWh": "1000", "MWh": "1000000"},
    {"V": "1", "mV": "0.001", "kV": "1000"},
    {"A": "1", "mA": "0.001"},
    {"mAh": "1", "Ah": "1000"},
    {"Hz": "1", "kHz": "1000", "MHz": "1000000", "GHz": "1000000000"},
    {"MB": "1", "kB": "0.001", "GB": "1000", "TB": "1000000"},
    {"km/h": "1", "mph": "1.609344"},
    {"bar": "1"},
    {"hPa": "1"},
    {"°C": "1"},
    {"°F": "1"},
    {"dB": "1"},
    {"lm": "1"},
    {"px": "1"},
)
_FACTORS = {
    unit: (number, Decimal(factor)) for number, units in enumerate(_DIMENSIONS) for unit, factor in units.items()
}
_UNITS = {
    **{unit: unit for unit in _FACTORS},
    "gr": "g", "gram": "g", "grams": "g", "Gramm": "g", "kilo": "kg", "kilos": "kg", "Kg": "kg", "KG": "kg",
    "lbs": "lb", "ug": "µg", "μg": "µg", "mcg": "µg", "L": "l", "mL": "ml", "cL": "cl", "dL": "dl", "liter": "l",
    "liters": "l",
    "litre": "l", "litres": "l", "Liter": "l", "meter": "m", "meters": "m", "metre": "m", "metres": "m", "inch": "in",
    "inches": "in", "feet": "ft", "miles": "mi", "m2": "m²", "qm": "m²", "sqm": "m²", "sqft": "ft²", "m3": "m³",
    "calories": "kcal", "Kcal": "kcal", "KB": "kB", "kmh": "km/h", "kph": "km/h",
}  # fmt: skip


@lru_cache(maxsize=4096)
def currency_of(text: str) -> str:
    """Return the ISO 4217 code of a currency as it is written; empty if there is none."""
    return _SYMBOLS.get(text) or (text if text in _CODES else "")


def read_number(text: str) -> Notation | None:
    """Return how a number without a unit is written; None for any other text.

    Its variant is the decimal separator that it shows, with a `w` if it has no decimals, and with a `?` if that may
    be one of thousands. Whole numbers without a separator have a variant of WHOLE.
    """
    body = text[1:] if text[0] in "-−+" else text
    match = _NUMBER.fullmatch(body) if len(text) <= MAX_NUMBER else None
    if match is None:
        return None
    mark = match.lastgroup
    if (text[0] == "+" and mark in {"plain", "zeros"}) or text in {"-0", "−0"}:
        return None  # +44 is the beginning of a telephone number
    match mark:
        case "plain":
            return _whole(body, is_signed=body is not text)
        case "zeros":
            return Notation(Kind.CODE, "zeros") if body is text else None
        case "spaced":
            return Notation(Kind.NUMBER, "grouped")
        case "spaced_mark" | "mark":
            return Notation(Kind.NUMBER, match[mark])
        case "unclear" | "unclear_mark":
            return Notation(Kind.NUMBER, f"{match['unclear_mark']}?")
        case "comma":
            return Notation(Kind.NUMBER, "," if "," in body else ",w")
        case "point":
            return Notation(Kind.NUMBER, "." if "." in body else ".w")
        case _:
            return Notation(Kind.NUMBER, ".")


def _whole(digits: str, *, is_signed: bool) -> Notation:
    if len(digits) > EXACT_DIGITS:
        return Notation(Kind.CODE, "long")
    if is_signed:
        return Notation(Kind.NUMBER, "whole")
    if len(digits) == 1 and digits in "01":
        return Notation(Kind.NUMBER, "bit")
    if len(digits) < 4:
        return Notation(Kind.NUMBER, "small")
    if len(digits) == 4 and digits < "2200":
        return Notation(Kind.NUMBER, "year")
    if len(digits) in {9, 10} and 10**8 <= int(digits) < 5 * 10**9:
        return Notation(Kind.NUMBER, "seconds")
    if len(digits) in {12, 13} and 10**11 <= int(digits) < 5 * 10**12:
        return Notation(Kind.NUMBER, "milliseconds")
    return Notation(Kind.NUMBER, "whole")


SHOWN = frozenset({".", ",", ".w", ",w"})  # variants that show a decimal separator
WHOLE = frozenset({"bit", "small", "year", "seconds", "milliseconds", "whole"})


def read_amount(text: str) -> Notation | None:
    """Return how a number with a currency, a unit or a percent sign is written; None for any other text."""
    match = _AMOUNT.fullmatch(text) if len(text) <= MAX_NUMBER else None
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    if match["minus"] and match["inner"]:
        return None
    number = read_number(match["number"])
    if number is None or number.kind is not Kind.NUMBER:
        return None
    variant = "whole" if number.variant in WHOLE - {"bit", "small"} else number.variant
    variant = "small" if variant == "bit" else variant
    before, after = match["before"], match["after"]
    if before:
        currency = currency_of(before)
        return Notation(Kind.MONEY, variant, currency) if currency and not after else None
    if not after:
        return None
    if currency := currency_of(after):
        return Notation(Kind.MONEY, variant, currency)
    if match["open"] or match["dash"]:
        return None
    if after == "%":
        return Notation(Kind.PERCENT, variant, "%")
    unit = _UNITS.get(after)
    return Notation(Kind.QUANTITY, variant, unit) if unit else None


def is_fraction(notation: Notation, decimal: str) -> bool:
    return notation.variant in {decimal, f"{decimal}?"}


def is_unclear(notations: Iterable[Notation]) -> bool:
    return any(notation.variant.endswith("?") for notation in notations)


def count_fitting(notations: Mapping[Notation, int], decimal: str) -> int:
    other = "," if decimal == "." else "."
    return sum(count for notation, count in notations.items() if notation.variant not in {other, f"{other}w"})


def decimal_separator(notations: Mapping[Notation, int]) -> str:
    """Return the decimal separator that numbers show; empty if they show none, or both.

    Where no number has another number of decimals than three, the separator groups thousands if smaller whole numbers
    are among them and no greater ones without a separator.
    """
    counts: dict[str, int] = {}
    for notation, count in notations.items():
        if notation.kind is Kind.NUMBER or notation.kind in AMOUNTS:
            counts[notation.variant] = counts.get(notation.variant, 0) + count
    points, commas = (counts.get(mark, 0) + counts.get(f"{mark}w", 0) for mark in (".", ","))
    if points or commas:
        return "." if commas <= (1 - ENOUGH) * points else "," if points <= (1 - ENOUGH) * commas else ""
    unclear = {mark for mark in (".", ",") if f"{mark}?" in counts}
    if len(unclear) != 1:
        return ""
    mark = unclear.pop()
    has_greater = any(counts.get(variant, 0) for variant in WHOLE - {"bit", "small"})
    is_grouped = counts.get("small", 0) and counts[f"{mark}?"] >= 5 and not has_greater
    return ("," if mark == "." else ".") if is_grouped else ""


def parse_number(text: str, decimal: str) -> int | float | None:
    """Return the number of a text that may have a currency or a unit; None if it has another decimal separator.

    With no separator given, numbers are read that show theirs.
    """
    match = _AMOUNT.fullmatch(text) if len(text) <= MAX_NUMBER else None
    if match is None:
        return None
    notation = read_number(match["number"])
    if notation is None or notation.kind is not Kind.NUMBER:
        return None
    mark = notation.variant[0] if notation.variant in SHOWN else ""
    decimal = decimal or ("" if notation.variant.endswith("?") else mark or ".")
    if not decimal or (mark and mark != decimal):
        return None
    body = match["number"]
    for mark in {".", ",", *_GROUP} - {decimal}:
        body = body.replace(mark, "")
    body = body.replace(",", ".")
    is_negative = bool(match["open"]) or (match["minus"] or match["inner"] or "+") != "+"
    number = int(body) if body.isdigit() else float(body)
    if not isfinite(number):
        return None
    return -number if is_negative else number


def is_convertible(unit: str, target: str) -> bool:
    return unit == target or (unit in _FACTORS and target in _FACTORS and _FACTORS[unit][0] == _FACTORS[target][0])


def convert_unit(number: float, unit: str, target: str) -> int | float | None:
    """Return a quantity in another unit of its dimension, without the errors of binary fractions."""
    if unit == target:
        return number
    if not is_convertible(unit, target):
        return None
    try:
        converted = Decimal(repr(number)) * _FACTORS[unit][1] / _FACTORS[target][1]
    except InvalidOperation:
        return None
    return int(converted) if converted == converted.to_integral_value() else float(converted)
