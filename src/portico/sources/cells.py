"""Reads the text of one cell: what it looks like, with no regard to its column."""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from portico.sources.dates import read_date, read_duration
from portico.sources.notation import Kind, Notation
from portico.sources.numbers import read_amount, read_number

MAX_SHORT = 64  # characters: a longer text is a text, a URL or JSON
MAX_PART = 40  # characters of one element of a list
MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "N.A.", "n.a.", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "\\N",
     "-", "--", "–", "—"}
)  # fmt: skip
# Words for true and false. A column uses the words of one pair.
PAIRS: Mapping[str, tuple[str, str]] = {
    "true/false": ("true", "false"), "yes/no": ("yes", "no"), "y/n": ("y", "n"), "t/f": ("t", "f"),
    "ja/nein": ("ja", "nein"), "ja/nee": ("ja", "nee"), "oui/non": ("oui", "non"), "sí/no": ("sí", "no"),
    "si/no": ("si", "no"), "sì/no": ("sì", "no"), "sim/não": ("sim", "não"), "wahr/falsch": ("wahr", "falsch"),
    "vrai/faux": ("vrai", "faux"), "ja/nej": ("ja", "nej"), "on/off": ("on", "off"),
    "✓/✗": ("✓", "✗"), "✔/✘": ("✔", "✘"), "✔/✖": ("✔", "✖"), "☑/☐": ("☑", "☐"), "✅/❌": ("✅", "❌"),
    "✓/✕": ("✓", "✕"),
}  # fmt: skip
_WORDS = frozenset(word for pair in PAIRS.values() for word in pair)
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|&(?:[a-zA-Z]{2,10}|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")
_DIGIT = re.compile("[0-9]")
_URL = re.compile(r"(?:https?|ftp)://[^\s/]+\S*", re.IGNORECASE)
_EMAIL = re.compile(r"[^\s@,;:<>()\"]+@[^\s@,;:<>()\"]+\.[^\W\d_]{2,}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HASH = re.compile(r"(?=[0-9a-f]*[a-f])(?=[a-f]*[0-9])(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})", re.IGNORECASE)
_PHONE = re.compile(r"(?:\+[0-9]|\([0-9+])[0-9() /.-]{5,22}[0-9](?: ?(?:x|ext\.?) ?[0-9]{1,6})?")
_COORDINATES = re.compile(r"[(\[]?(-?[0-9]{1,2}\.[0-9]{1,20}) ?[,;] ?(-?[0-9]{1,3}\.[0-9]{1,20})[)\]]?")
_TEXT = Notation(Kind.TEXT)
_LISTED = {separators: Notation(Kind.TEXT, separators) for separators in (";", "|", ",", ";|", ";,", "|,", ";|,")}


def read_cell(text: str) -> Notation:
    """Return how a cell is written. A text that looks like nothing else is a text, with the separators it has."""
    if text in MISSING:
        return Notation(Kind.MISSING, text)
    if len(text) <= MAX_SHORT:
        if _DIGIT.search(text):
            if notation := _read_digits(text):
                return notation
        elif (word := text.lower()) in _WORDS:
            return Notation(Kind.BOOLEAN, word)
    return _read_text(text)


def _read_digits(text: str) -> Notation | None:
    first = text[0]
    if first.isdigit() or first in "-−+.,":
        if number := read_number(text):
            return number
        if date := read_date(text):
            return date
        if duration := read_duration(text):
            return duration
    elif first.isalpha() and (notation := read_date(text) or read_duration(text)):
        return notation
    if amount := read_amount(text):
        return amount
    if parse_coordinates(text):
        return Notation(Kind.COORDINATES)
    if _UUID.fullmatch(text):
        return Notation(Kind.UUID)
    if _HASH.fullmatch(text):
        return Notation(Kind.HASH)
    return Notation(Kind.PHONE) if _PHONE.fullmatch(text) else None


def _read_text(text: str) -> Notation:
    if text[0] in "hHfF" and _URL.fullmatch(text):
        return Notation(Kind.URL)
    if text[0] in "[{":
        value = parse_json(text)
        if isinstance(value, list):
            return Notation(Kind.LIST)
        if isinstance(value, dict):
            return Notation(Kind.JSON)
    if "@" in text and len(text) <= 254 and _EMAIL.fullmatch(text):
        return Notation(Kind.EMAIL)
    separators = "".join(mark for mark in ";|," if mark in text) if len(text) <= 1000 else ""
    return _LISTED[separators] if separators else _TEXT


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; None if it is none."""
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def has_markup(text: str) -> bool:
    """Return whether a text has tags or character references of HTML, whose semicolons separate nothing."""
    return _MARKUP.search(text) is not None


def is_url(text: str) -> bool:
    return _URL.fullmatch(text) is not None


def parse_list(text: str, separator: str) -> list[Any] | None:
    """Return the elements of a cell; None if a JSON array was expected and there is none."""
    if separator:
        return [part for piece in text.split(separator) if (part := piece.strip())]
    value = parse_json(text) if text[:1] == "[" else None
    return cast("list[Any]", value) if isinstance(value, list) else None


def parse_coordinates(text: str) -> dict[str, float] | None:
    """Return the latitude and the longitude in a cell such as `52.5, 13.4`."""
    match = _COORDINATES.fullmatch(text)
    if match is None:
        return None
    latitude, longitude = float(match[1]), float(match[2])
    is_on_earth = abs(latitude) <= 90 and abs(longitude) <= 180
    return {"latitude": latitude, "longitude": longitude} if is_on_earth else None
