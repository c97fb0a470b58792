"""Reads dates, times and durations as exports write them, and returns ISO 8601. Never guesses the order of a date.

`18/03/2019` shows that the day comes first. `02/03/2019` alone may be either: the other cells of its column decide,
then the other columns of its source. Where nothing does, the column stays text. The same holds for `4:35`: a duration
of minutes and seconds if the column shows it (`75:10`, or `1:02:03` beside it), else a time of the day or unclear.
"""

import re
from datetime import UTC, date, datetime
from decimal import Decimal

from portico.catalog import instant, seconds
from portico.sources.notation import Kind, Notation

MAX_LENGTH = 48  # characters
_PIVOT = 70  # two-digit years from here on are of the last century
_TIME = r"""(?P<hour>[0-9]{1,2}):(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9])(?:[.,](?P<fraction>[0-9]{1,9}))?)?
    (?:[ ]?(?P<half>[AaPp]\.?[Mm]\.?))?
    (?:[ ]?(?P<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}|E[SD]T|C[SD]T|M[SD]T|P[SD]T))?"""
_YEAR_FIRST = re.compile(
    rf"""(?P<year>[12][0-9]{{3}})(?P<mark>[-/.])(?P<month>[0-9]{{1,2}})(?P=mark)(?P<day>[0-9]{{1,2}})
    (?:(?:T|,?[ ])[ ]?{_TIME})?""",
    re.VERBOSE,
)
_YEAR_LAST = re.compile(
    rf"""(?P<first>[0-9]{{1,2}})(?P<mark>[-/.])(?P<second_part>[0-9]{{1,2}})(?P=mark)(?P<year>[12][0-9]{{3}}|[0-9]{{2}})
    (?:(?:T|,?[ ])[ ]?{_TIME})?(?:[ ]Uhr)?""",
    re.VERBOSE,
)
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar jänner janvier janv enero ene gennaio gen janeiro januari",
            "feb february februar februari février fév févr febrero febbraio fevereiro fev",
            "mar march märz mär mrz mars marzo março maart mrt",
            "apr april avril avr abril abr aprile",
            "may mai mayo maggio mag maio mei",
            "jun june juni juin junio giugno giu junho",
            "jul july juli juillet juil julio luglio lug julho",
            "aug august août aout agosto ago augustus",
            "sep sept september septembre septiembre settembre set setembro",
            "oct october okt oktober octobre octubre ottobre ott outubro out",
            "nov november novembre noviembre novembro",
            "dec december dez dezember décembre déc diciembre dic dicembre dezembro",
        ),
        1,
    )
    for name in names.split()
}
_NAME = r"[^\W\d_]{3,10}"
_NAMED = re.compile(
    rf"""(?:(?P<weekday>{_NAME})\.?,?[ ]+)?
    (?:(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th|\.)?(?:[ ]|-|[ ]de[ ])?
        (?P<month>{_NAME})\.?,?(?:[ ]|-|[ ]de[ ])(?P<year>[12][0-9]{{3}}|[0-9]{{2}})
    |(?P<month_first>{_NAME})\.?[ ](?P<day_second>[0-9]{{1,2}})(?:st|nd|rd|th)?,?[ ](?P<year_last>[12][0-9]{{3}}))
    (?:(?:T|,|[ ]at)?[ ]{_TIME})?""",
    re.VERBOSE,
)
_UNIX = re.compile(
    rf"(?P<weekday>{_NAME}) (?P<month>{_NAME}) +(?P<day>[0-9]{{1,2}})"
    r" (?P<hour>[0-9]{1,2}):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9])"
    r" (?:(?P<zone>UTC|GMT|[+-][0-9]{4}) )?(?P<year>[12][0-9]{3})"
)
_ZONES = {"Z": "Z", "UTC": "Z", "GMT": "Z", "EST": "-05:00", "EDT": "-04:00", "CST": "-06:00", "CDT": "-05:00",
          "MST": "-07:00", "MDT": "-06:00", "PST": "-08:00", "PDT": "-07:00"}  # fmt: skip
_UNITS = {
    **dict.fromkeys(("w", "week", "weeks", "woche", "wochen"), 604800),
    **dict.fromkeys(("d", "day", "days", "tag", "tage", "tagen", "jour", "jours", "día", "días"), 86400),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden", "heure", "heures", "horas"), 3600),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuten", "minuto", "minutos", "minuti"), 60),
    **dict.fromkeys(("s", "sec", "secs", "sek", "second", "seconds", "sekunde", "sekunden"), 1),
}  # fmt: skip
_PART = re.compile(r"([0-9]{1,6}(?:[.,][0-9]{1,3})?)[ -]?([^\W\d_]{1,8})\.?")
_WORDS = re.compile(rf"{_PART.pattern}(?:(?:,|[ ]and|[ ]und|[ ]et)?[ ]?{_PART.pattern}){{0,3}}")
_HOURS = re.compile(r"([0-9]{1,3}) ?h ?([0-5][0-9])")
_CLOCK = re.compile(r"([0-9]{1,3}):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,6})?))?")
_ALONE = frozenset({"m", "d", "w"})  # metres, or anything else
_EPOCH_UNITS = {"seconds": 1_000_000, "milliseconds": 1000}


def read_date(text: str) -> Notation | None:
    """Return how a date is written; None for any other text.

    Its variant begins with `iso`, `name`, `=` (day and month are the same), `d` or `m` (the day or the month comes
    first), or `?`. A 2 marks a year of two digits, a T a time.
    """
    match = _match(text)
    if match is None:
        return None
    time = "T" if match["hour"] else ""
    if match.re is not _YEAR_LAST:
        name = "iso" if match.re is _YEAR_FIRST else "name"
        return Notation(Kind.DATE, name + time) if parse_date(text, day_first=True) else None
    orders = [order for order, day_first in (("d", True), ("m", False)) if parse_date(text, day_first=day_first)]
    if not orders:
        return None
    order = orders[0] if len(orders) == 1 else "=" if match["first"] == match["second_part"] else "?"
    if match["mark"] == "." and len(match["year"]) == 2 and len(text.partition(" ")[0]) < 8:
        return None  # 1.2.13 is rather a version
    if match["mark"] == ".":
        order = "d" if "d" in orders else "m"  # 18.03.2019: with dots the day comes first
    return Notation(Kind.DATE, f"{order}{'2' if len(match['year']) == 2 else ''}{time}")


def _match(text: str) -> re.Match[str] | None:
    if len(text) > MAX_LENGTH or len(text) < 6:
        return None
    if text[0].isdigit():
        return _YEAR_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text) or _NAMED.fullmatch(text)
    return _NAMED.fullmatch(text) or _UNIX.fullmatch(text)


def parse_date(text: str, *, day_first: bool) -> str | None:
    """Return a date or a time in ISO 8601, as exact as it is written; None if it is none in this order."""
    match = _match(text)
    if match is None:
        return None
    parts = match.groupdict()
    if match.re is _YEAR_LAST:
        day, month = (parts["first"], parts["second_part"]) if day_first else (parts["second_part"], parts["first"])
    else:
        day = parts["day"] or parts.get("day_second")
        month = parts["month"] or parts.get("month_first")
    number = int(month) if month and month.isdigit() else _MONTHS.get((month or "").lower())
    year = parts["year"] or parts.get("year_last")
    if number is None or not day or not year:
        return None
    century = 0 if len(year) == 4 else 1900 if int(year) >= _PIVOT else 2000
    try:
        written = date(century + int(year), number, int(day)).isoformat()
    except ValueError:
        return None
    written += _time(parts) if parts["hour"] else ""
    return written if instant(written) is not None else None


def _time(parts: dict[str, str | None]) -> str:
    """Return the time of a match, with its zone; one that is not valid makes no ISO text."""
    hour, half = int(parts["hour"] or 0), (parts.get("half") or "").lower()[:1]
    if half:
        hour = hour % 12 + 12 * (half == "p") if 1 <= hour <= 12 else 99
    fraction = parts.get("fraction")
    zone = parts["zone"] or ""
    zone = _ZONES.get(zone) or (zone if ":" in zone or not zone else f"{zone[:3]}:{zone[3:]}")
    return f"T{hour:02}:{parts['minute']}:{parts['second'] or '00'}{f'.{fraction}' if fraction else ''}{zone}"


def parse_epoch(number: int, unit: str) -> str | None:
    """Return the time so many `seconds` or `milliseconds` after the beginning of 1970."""
    try:
        moment = datetime.fromtimestamp(number * _EPOCH_UNITS[unit] / 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat().replace("+00:00", "Z")


def read_duration(text: str) -> Notation | None:
    """Return how a duration is written; None for any other text.

    Its variant is `iso`, `words`, `h:m:s` for 1:30:00, `m:s` for 75:10, and for what may be a time of day `hh:mm:ss`
    or `clock`.
    """
    if text[0] == "P":
        return Notation(Kind.DURATION, "iso") if seconds(text) is not None else None
    if not text[0].isdigit() or len(text) > MAX_LENGTH:
        return None
    if clock := _CLOCK.fullmatch(text):
        hours, _, rest = clock.groups()
        if rest is None:
            return Notation(Kind.DURATION, "m:s" if int(hours) > 23 else "clock")
        return Notation(Kind.DURATION, "hh:mm:ss" if len(hours) == 2 and int(hours) < 24 else "h:m:s")
    return Notation(Kind.DURATION, "words") if _worded(text) is not None else None


def _worded(text: str) -> Decimal | None:
    """Return the seconds of a duration in words such as `1h 30m`."""
    if match := _HOURS.fullmatch(text):
        return Decimal(match[1]) * 3600 + Decimal(match[2]) * 60
    if not _WORDS.fullmatch(text):
        return None
    parts = [(number, word.lower()) for number, word in _PART.findall(text)]
    if any(word not in _UNITS for _, word in parts) or (len(parts) == 1 and parts[0][1] in _ALONE):
        return None
    sizes = [_UNITS[word] for _, word in parts]
    if sizes != sorted(set(sizes), reverse=True):
        return None
    return sum((Decimal(number.replace(",", ".")) * _UNITS[word] for number, word in parts), Decimal(0))


def parse_duration(text: str, clock: str) -> str | None:
    """Return a duration in ISO 8601. `clock` says what 4:35 is: `m:s`, `h:m`, or nothing if it is empty."""
    if text[:1] == "P":
        return text if seconds(text) is not None else None
    match = _CLOCK.fullmatch(text)
    if match is None:
        length = _worded(text) if text[:1].isdigit() and len(text) <= MAX_LENGTH else None
        return None if length is None else iso_duration(length)
    first, second, third = match.groups()
    if third is not None:
        return iso_duration(Decimal(first) * 3600 + Decimal(second) * 60 + Decimal(third))
    size = {"m:s": 1, "h:m": 60}.get(clock)
    return None if size is None else iso_duration((Decimal(first) * 60 + Decimal(second)) * size)


def iso_duration(length: Decimal) -> str:
    minutes, rest = divmod(length, 60)
    hours, minutes = divmod(int(minutes), 60)
    exact = f"{rest.normalize():f}"
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", f"{exact}S" if rest else ""]
    return f"PT{''.join(parts) or '0S'}"
