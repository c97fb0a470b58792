"""Reads contacts from vCards, versions 2.1 to 4.0. Reads no embedded pictures, sounds or keys."""

import codecs
import quopri
import re
from collections.abc import Callable, Iterator
from typing import Any

from portico.sources.contentlines import ContentLine, iter_components, parse_line, split_value, unescape, unfold
from portico.sources.records import BadRecord, Document, Entry, Record, SourceOptions, too_large
from portico.sources.text import detect_encoding

_VCARD = frozenset(("VCARD",))
_ADDRESS = (
    "postOfficeBoxNumber", "extendedAddress", "streetAddress", "addressLocality", "addressRegion", "postalCode",
    "addressCountry",
)  # fmt: skip
_NAME = ("familyName", "givenName", "additionalName", "honorificPrefix", "honorificSuffix")
_WEB = re.compile(r"https?://", re.IGNORECASE)
_DAY = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)")


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    encoding = detect_encoding(document.file, options.encoding)
    for card in iter_components(document.file, _VCARD):
        where = f"{document.name}:{card.line}"
        if card.text is None:
            yield too_large(where)
        elif not card.is_closed:
            yield BadRecord(where, "is cut off: it has no END:VCARD", is_gap=True)
        else:
            yield _record(card.text.decode(encoding.codec, "replace"), where)
    yield from encoding.entries(document.name)


def _record(text: str, where: str) -> Entry:
    data: dict[str, Any] = {"@type": "Person"}
    identity: str | None = None
    for line in filter(None, map(parse_line, unfold(text))):
        if line.name == "UID":
            identity = line.value.strip() or None
        name, convert = _PROPERTIES.get(line.name, ("", _text))
        value = convert(_decode(line)) if name else None
        if value:
            _add(data, name, value)
    parts = data.pop("_name", {})
    data.update(parts)
    name = data.get("name") or " ".join(filter(None, (parts.get("givenName"), parts.get("familyName"))))
    data["name"] = name or data.get("worksFor") or data.get("email")
    if not data["name"]:
        return BadRecord(where, "has no name")
    if data["name"] == data.get("worksFor"):
        data = {**data, "@type": "Organization"}
    return Record(data, where, identity)


def _add(data: dict[str, Any], name: str, value: Any) -> None:
    """Set a field, or make a list of its values: of a name, only the first is kept."""
    present = data.get(name)
    if present is None:
        data[name] = value
    elif name not in ("name", "_name"):
        data[name] = [*(present if isinstance(present, list) else [present]), value]


def _decode(line: ContentLine) -> ContentLine:
    """Return a line whose value is text: vCard 2.1 writes letters as quoted-printable, in a character set."""
    encodings = [one.upper() for name in ("ENCODING", "TYPE") for one in line.parameters.get(name, [])]
    if "QUOTED-PRINTABLE" not in encodings:
        return ContentLine(line.name, "", line.parameters) if {"B", "BASE64"} & set(encodings) else line
    raw = quopri.decodestring(line.value.encode("utf-8", "replace"))
    charset = next(iter(line.parameters.get("CHARSET", [])), "utf-8")
    try:
        codec = codecs.lookup(charset).name
    except LookupError:
        codec = "latin-1"
    return ContentLine(line.name, raw.decode(codec, "replace"), line.parameters)


def _text(line: ContentLine) -> str:
    return unescape(line.value).strip()


def _structured(names: tuple[str, ...]) -> Callable[[ContentLine], dict[str, str]]:
    def convert(line: ContentLine) -> dict[str, str]:
        parts = split_value(line.value, ";")
        return {name: part for name, part in zip(names, parts, strict=False) if part}

    return convert


def _organization(line: ContentLine) -> str:
    return ", ".join(filter(None, split_value(line.value, ";")))


def _list(line: ContentLine) -> str:
    return ", ".join(filter(None, split_value(line.value, ",")))


def _address(line: ContentLine) -> dict[str, str]:
    parts = _structured(_ADDRESS)(line)
    return {"@type": "PostalAddress", **parts} if parts else {}


def _phone(line: ContentLine) -> str:
    return _text(line).removeprefix("tel:")


def _email(line: ContentLine) -> str:
    return _text(line).removeprefix("mailto:")


def _picture(line: ContentLine) -> str:
    """Return the address of a picture; an embedded one is not kept."""
    value = line.value.strip()
    return value if _WEB.match(value) else ""


def _day(line: ContentLine) -> str:
    match = _DAY.match(line.value.strip())
    return "-".join(match.groups()) if match else _text(line)


def _geo(line: ContentLine) -> dict[str, Any]:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", line.value)
    if len(numbers) < 2:
        return {}
    return {"@type": "GeoCoordinates", "latitude": float(numbers[0]), "longitude": float(numbers[1])}


_PROPERTIES: dict[str, tuple[str, Callable[[ContentLine], Any]]] = {
    "FN": ("name", _text),
    "N": ("_name", _structured(_NAME)),
    "NICKNAME": ("alternateName", _list),
    "EMAIL": ("email", _email),
    "TEL": ("telephone", _phone),
    "ORG": ("worksFor", _organization),
    "TITLE": ("jobTitle", _text),
    "ROLE": ("hasOccupation", _text),
    "ADR": ("address", _address),
    "BDAY": ("birthDate", _day),
    "URL": ("url", _text),
    "NOTE": ("description", _text),
    "PHOTO": ("image", _picture),
    "GEO": ("geo", _geo),
    "CATEGORIES": ("keywords", _list),
    "REV": ("dateModified", _text),
}
