"""Reads the events of iCalendar files, with the time zones that they define. Expands no recurrences."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any, cast

import icalendar
from icalendar.prop.broken import vBroken

from portico.sources.contentlines import iter_components
from portico.sources.records import BadRecord, Document, Entry, Record, SourceOptions, too_large
from portico.sources.text import detect_encoding

_COMPONENTS = frozenset(("VTIMEZONE", "VEVENT"))
_MAX_ZONES = 200
_TEXTS = {
    "SUMMARY": "name",
    "DESCRIPTION": "description",
    "LOCATION": "location",
    "URL": "url",
    "STATUS": "eventStatus",
}
_TIMES = {
    "DTSTART": "startDate",
    "DTEND": "endDate",
    "DURATION": "duration",
    "CREATED": "dateCreated",
    "LAST-MODIFIED": "dateModified",
}


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    encoding = detect_encoding(document.file, options.encoding)
    zones: list[str] = []  # those that are defined so far: a calendar has them before its events
    for component in iter_components(document.file, _COMPONENTS):
        where = f"{document.name}:{component.line}"
        if component.text is None:
            yield too_large(where)
        elif not component.is_closed:
            yield BadRecord(where, f"is cut off: it has no END:{component.name}", is_gap=True)
        elif component.name == "VTIMEZONE":
            zones = [*zones, component.text.decode(encoding.codec, "replace")][-_MAX_ZONES:]
        else:
            yield _record(component.text.decode(encoding.codec, "replace"), zones, where)
    yield from encoding.entries(document.name)


def _record(text: str, zones: list[str], where: str) -> Entry:
    used = [zone for zone in zones if "TZID" in text]
    try:
        event = _parse("\r\n".join(["BEGIN:VCALENDAR", *used, text.strip(), "END:VCALENDAR"]))
        data = _data(event)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as problem:
        return BadRecord(where, f"is not a readable event: {problem}")
    if "startDate" not in data:
        return BadRecord(where, "has no start that can be read")
    return Record(data, where, _identity(event))


def _parse(text: str) -> Any:
    calendar: Any = icalendar.Calendar.from_ical(text)
    return calendar.walk("VEVENT")[0]


def _data(event: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"@type": "Event"}
    for source, target in _TEXTS.items():
        text = str(_property(event, source) or "").strip()
        if text:
            data[target] = text
    for source, target in _TIMES.items():
        value = _property(event, source)
        if value is not None:
            data[target] = _iso(value.dt)
    if _is_whole_day(event):
        _make_end_inclusive(data)
    return data | _details(event)


def _details(event: Any) -> dict[str, Any]:
    """Return what is not a plain text or a time. A recurrence stays the rule that it is."""
    geo, rule, organizer = (_property(event, name) for name in ("GEO", "RRULE", "ORGANIZER"))
    details: dict[str, Any] = {}
    if geo is not None:
        details["geo"] = {"@type": "GeoCoordinates", "latitude": geo.latitude, "longitude": geo.longitude}
    if rule is not None:
        details["repeatRule"] = rule.to_ical().decode()
    if organizer is not None:
        details["organizer"] = str(organizer.params.get("CN") or organizer).removeprefix("mailto:")
    keywords = [str(word) for word in event.categories if str(word)]
    if keywords:
        details["keywords"] = keywords
    return details


def _property(event: Any, name: str) -> Any:
    """Return a property, the first of several; None if it cannot be read."""
    value = event.get(name)
    first: Any = cast("list[Any]", value)[0] if isinstance(value, list) else value
    return None if isinstance(first, vBroken) else first


def _iso(value: Any) -> str:
    if not isinstance(value, timedelta):
        return value.isoformat()
    minutes = int(value.total_seconds()) // 60
    return f"PT{minutes // 60}H{minutes % 60}M" if minutes % 60 else f"PT{minutes // 60}H"


def _is_whole_day(event: Any) -> bool:
    start = _property(event, "DTSTART")
    return start is not None and not hasattr(start.dt, "hour")


def _make_end_inclusive(data: dict[str, Any]) -> None:
    # RFC 5545, 3.6.1: the end of an event of whole days is the day after it.
    if "endDate" in data and data["endDate"] > data["startDate"]:
        data["endDate"] = (date.fromisoformat(data["endDate"][:10]) - timedelta(days=1)).isoformat()


def _identity(event: Any) -> str | None:
    """Return the UID; that of a changed occurrence has its original time after it."""
    uid = str(_property(event, "UID") or "").strip()
    occurrence = _property(event, "RECURRENCE-ID")
    return f"{uid}#{occurrence.dt.isoformat()}" if uid and occurrence is not None else uid or None
