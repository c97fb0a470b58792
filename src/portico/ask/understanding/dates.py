"""Dates as people say them: "this weekend", "5 December", "since 2019". Reads no clock: today is an argument.

Days are days of UTC and intervals are half-open. A weekday or a month without a year is the next one to come, the
running one included; "next Friday" is the Friday of the next week, as "next weekend" is the one after this. Of
05/12/2026 the day comes first. Tonight begins at five in the afternoon and ends at four.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TypeAlias

from portico.ask.languages.wordlists import Sayings

Interval: TypeAlias = tuple[datetime | None, datetime | None]

YEARS = range(1000, 3000)  # what a number of four digits may mean as a year
MAX_COUNT = 1000  # of days, weeks, months or years, backwards or forwards
EVENING, LATE = time(17), time(4)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _days(first: date, count: int = 1) -> Interval:
    return _midnight(first), _midnight(first + timedelta(days=count))


def _day(today: date, ahead: int) -> Interval:
    return _days(today + timedelta(days=ahead))


def _tonight(today: date) -> Interval:
    return datetime.combine(today, EVENING, UTC), datetime.combine(today + timedelta(days=1), LATE, UTC)


def _week(today: date, ahead: int) -> Interval:
    return _days(today + timedelta(days=7 * ahead - today.weekday()), 7)


def _weekend(today: date, ahead: int) -> Interval:
    return _days(today + timedelta(days=7 * ahead + 5 - today.weekday()), 2)


def _months_later(day: date, months: int) -> date:
    """The same day of another month, or that month's last."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = (date(year + month // 11, (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return date(year, month + 1, min(day.day, last))


def _month(today: date, ahead: int) -> Interval:
    first = _months_later(today.replace(day=1), ahead)
    return _midnight(first), _midnight(_months_later(first, 1))


def _year(today: date, ahead: int) -> Interval:
    return _midnight(date(today.year + ahead, 1, 1)), _midnight(date(today.year + ahead + 1, 1, 1))


def _to_come(today: date) -> Interval:
    return _midnight(today), None


Named: TypeAlias = Callable[[date], Interval]

NAMED: dict[str, Named] = {
    "today": partial(_day, ahead=0),
    "tonight": _tonight,
    "tomorrow": partial(_day, ahead=1),
    "yesterday": partial(_day, ahead=-1),
    "upcoming": _to_come,
    **{f"{name} week": partial(_week, ahead=ahead) for name, ahead in (("last", -1), ("this", 0), ("next", 1))},
    **{f"{name} weekend": partial(_weekend, ahead=ahead) for name, ahead in (("last", -1), ("this", 0), ("next", 1))},
    **{f"{name} month": partial(_month, ahead=ahead) for name, ahead in (("last", -1), ("this", 0), ("next", 1))},
    **{f"{name} year": partial(_year, ahead=ahead) for name, ahead in (("last", -1), ("this", 0), ("next", 1))},
}

_ISO = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_DAY_FIRST = re.compile(r"([0-9]{1,2})[./]([0-9]{1,2})[./]([0-9]{4})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DateWords:
    """The words of one language that speak of dates."""

    names: Sayings[str]
    weekdays: Sayings[int]
    months: Sayings[int]
    # Which of them: this one, the next, the last. French and Spanish say it behind the word as well.
    before: Sayings[int]
    behind: Sayings[int] = field(default_factory=Sayings[int])
    parts: Sayings[bool]
    prepositions: Sayings[bool]
    bounds: Sayings[str]
    onwards: Sayings[bool]
    on: Sayings[bool]
    openers: Sayings[bool]
    joiners: Sayings[bool]
    rolling: Sayings[int]
    # French says "les 3 derniers jours": the direction behind the number.
    rolling_behind: Sayings[int] = field(default_factory=Sayings[int])
    rolling_article: Sayings[bool] = field(default_factory=Sayings[bool])
    spans: Sayings[tuple[int, int]]  # days and months
    the: Sayings[bool]
    ordinals: Sayings[bool]
    year_joiners: Sayings[bool]
    stopwords: frozenset[str]


@dataclass(frozen=True, slots=True)
class Spoken:
    """An interval that was said, and the position after its words. Firm: it is a date without a preposition, too."""

    interval: Interval
    upto: int
    firm: bool = True


@dataclass(frozen=True, slots=True)
class Calendar:
    """A line of folded words, numbers as digits, and the day on which they are said."""

    line: Sequence[str]
    today: date
    words: DateWords
    whole: bool = False  # the line is a value that may be a date and nothing but a date

    def read(self, at: int) -> Spoken | None:
        """The longest date that begins at a position. A day that no calendar has is no date."""
        found: list[Spoken] = []
        for reader in (self._alone, self._placed, self._bounded, self._onwards, self._range, self._rolling):
            try:
                spoken = reader(at)
            except (ValueError, OverflowError):
                continue
            if spoken:
                found.append(spoken)
        return max(found, key=lambda spoken: spoken.upto, default=None)

    def _alone(self, at: int) -> Spoken | None:
        spoken = self._point(at)
        if not spoken or spoken.firm:
            return spoken
        covers = self.whole and at == 0 and spoken.upto == len(self.line)
        # A value of four digits is a number: the caller knows whether the field counts years.
        return spoken if covers and self._number(0) is None else None

    def _placed(self, at: int) -> Spoken | None:
        begin = self.words.prepositions.match(self.line, at)
        spoken = self._point(begin[1]) if begin else None
        if not begin or not spoken:
            return None
        is_year = not spoken.firm and self._number(begin[1]) is not None
        return None if is_year and not self._stands(spoken.upto) else replace(spoken, firm=True)

    def _bounded(self, at: int) -> Spoken | None:
        bound = self.words.bounds.match(self.line, at)
        spoken = self._point(bound[1]) if bound else None
        if not bound or not spoken:
            return None
        first, last = spoken.interval
        match bound[0]:
            case "before":
                return Spoken((None, first), spoken.upto)
            case "after":
                return Spoken((last, None), spoken.upto)
            case "since":
                return Spoken((first, None), spoken.upto)
            case "by" if not spoken.firm:  # "by May" may name an author
                return None
            case _:
                return Spoken((None, last), spoken.upto)

    def _onwards(self, at: int) -> Spoken | None:
        begin = self.words.onwards.match(self.line, at)
        spoken = self._point(begin[1]) if begin else None
        end = self.words.on.match(self.line, spoken.upto) if spoken else None
        return Spoken((spoken.interval[0], None), end[1]) if spoken and end else None

    def _range(self, at: int) -> Spoken | None:
        opener = self.words.openers.match(self.line, at)
        begin = opener[1] if opener else at
        return self._days_of_month(begin) or self._points(begin, opened=opener is not None)

    def _days_of_month(self, at: int) -> Spoken | None:
        """5 to 8 December."""
        first = self._number_in(at, range(1, 32))
        joined = self.words.joiners.match(self.line, self.words.ordinals.skip(self.line, at + 1)) if first else None
        last = self._day_month(joined[1], self.today) if joined else None
        if not first or not last or not last.interval[0]:
            return None
        return _ordered(_midnight(last.interval[0].date().replace(day=first)), last)

    def _points(self, at: int, opened: bool) -> Spoken | None:
        first = self._point(at)
        joined = self.words.joiners.match(self.line, first.upto) if first else None
        if not first or not joined or not first.interval[0]:
            return None
        start = first.interval[0]
        last = self._point_from(joined[1], start.date()) or self._day_from(joined[1], start.date())
        return _ordered(start, last) if last and (opened or (first.firm and last.firm)) else None

    def _point_from(self, at: int, first: date) -> Spoken | None:
        """The end of a range: as it is said today, or else as it follows the beginning."""
        spoken = self._point(at)
        if spoken and spoken.interval[1] and spoken.interval[1] <= _midnight(first):
            return self._point(at, first)
        return spoken

    def _day_from(self, at: int, first: date) -> Spoken | None:
        """The 8 of December 5 to 8."""
        day = self._number_in(at, range(1, 32))
        return Spoken(_days(first.replace(day=day)), self.words.ordinals.skip(self.line, at + 1)) if day else None

    def _rolling(self, at: int) -> Spoken | None:
        direction = self.words.rolling.match(self.line, at)
        if not direction:
            return self._rolling_behind(at)
        count = self._number_in(direction[1], range(1, MAX_COUNT))
        if not count and direction[1] == at + 1:  # "next day" is a kind of delivery; "in the next day" is a time
            return None
        return self._rolled(direction[0], count or 1, direction[1] + bool(count))

    def _rolling_behind(self, at: int) -> Spoken | None:
        begin = self.words.rolling_article.skip(self.line, at)
        count = self._number_in(begin, range(1, MAX_COUNT))
        direction = self.words.rolling_behind.match(self.line, begin + 1) if count else None
        return self._rolled(direction[0], count, direction[1]) if count and direction else None

    def _rolled(self, direction: int, count: int, at: int) -> Spoken | None:
        span = self.words.spans.match(self.line, at)
        if not span:
            return None
        days, months = span[0]
        other = _months_later(self.today, direction * count * months) + timedelta(days=direction * count * days)
        last = self.today + timedelta(days=1) if direction < 0 else other
        return Spoken((_midnight(min(self.today, other)), _midnight(last)), span[1])

    def _point(self, at: int, today: date | None = None) -> Spoken | None:
        """A day, a month, a year or a time with a name of its own."""
        said = today or self.today
        readers = (self._named, self._written, self._day_month, self._month_day, self._month, self._weekday, self._year)
        found = [spoken for reader in readers if (spoken := reader(at, said))]
        return max(found, key=lambda spoken: spoken.upto, default=None)

    def _named(self, at: int, today: date) -> Spoken | None:
        name = self.words.names.match(self.line, at)
        return Spoken(NAMED[name[0]](today), name[1]) if name else None

    def _written(self, at: int, today: date) -> Spoken | None:
        text = self.line[at] if at < len(self.line) else ""
        if iso := _ISO.fullmatch(text):
            year, month, day = map(int, iso.groups())
        elif day_first := _DAY_FIRST.fullmatch(text):
            day, month, year = map(int, day_first.groups())
            day, month = (month, day) if month > 12 else (day, month)
        else:
            return None
        return Spoken(_days(date(year, month, day)), at + 1)

    def _day_month(self, at: int, today: date) -> Spoken | None:
        begin = self.words.the.skip(self.line, at)
        day = self._number_in(begin, range(1, 32))
        month = self.words.months.match(self.line, self.words.ordinals.skip(self.line, begin + 1)) if day else None
        return self._dated(day, month[0], month[1], today) if day and month else None

    def _month_day(self, at: int, today: date) -> Spoken | None:
        month = self.words.months.match(self.line, at)
        begin = self.words.the.skip(self.line, month[1]) if month else at
        day = self._number_in(begin, range(1, 32)) if month else None
        return self._dated(day, month[0], self._after_ordinal(begin + 1), today) if day and month else None

    def _after_ordinal(self, at: int) -> int:
        # A full stop behind "December 5." ends the sentence, except where it writes an ordinal before a month.
        return at if at < len(self.line) and self.line[at] == "." else self.words.ordinals.skip(self.line, at)

    def _dated(self, day: int, month: int, upto: int, today: date) -> Spoken:
        year = self._following_year(upto)
        if year:
            return Spoken(_days(date(year[0], month, day)), year[1])
        return Spoken(_days(_next_date(day, month, today)), upto)

    def _following_year(self, at: int) -> tuple[int, int] | None:
        begin = at
        for begin in (at, self.words.year_joiners.skip(self.line, at)):
            year = self._number_in(begin, YEARS)
            if year:
                return year, begin + 1
        return None

    def _month(self, at: int, today: date) -> Spoken | None:
        which, begin = self.words.before.match(self.line, at) or (None, at)
        month = self.words.months.match(self.line, begin)
        if not month:
            return None
        year = self._following_year(month[1])
        if year:
            return Spoken(_month(date(year[0], month[0], 1), 0), year[1])
        which, upto = self.words.behind.match(self.line, month[1]) or (which, month[1])
        return Spoken(_month(_which_month(month[0], which or 0, today), 0), upto, firm=which is not None)

    def _weekday(self, at: int, today: date) -> Spoken | None:
        which, begin = self.words.before.match(self.line, at) or (None, at)
        weekday = self.words.weekdays.match(self.line, begin)
        if not weekday:
            return None
        which, upto = self.words.behind.match(self.line, weekday[1]) or (which, weekday[1])
        part = self.words.parts.match(self.line, upto)
        upto = part[1] if part else upto
        firm = which is not None or part is not None or self._stands(upto)
        return Spoken(_days(_which_weekday(weekday[0], which or 0, today)), upto, firm)

    def _stands(self, at: int) -> bool:
        """Nothing follows that the words may belong to, as in a Sunday roast or in 2000 steps."""
        following = self.line[at] if at < len(self.line) else ""
        return not following[:1].isalpha() or following in self.words.stopwords

    def _year(self, at: int, today: date) -> Spoken | None:
        year = self._number_in(at, YEARS)
        if not year:
            return None
        if year % 10 == 0 and at + 1 < len(self.line) and self.line[at + 1] == "s":
            return Spoken((_midnight(date(year, 1, 1)), _midnight(date(year + 10, 1, 1))), at + 2)
        return Spoken(_year(date(year, 1, 1), 0), at + 1, firm=False)

    def _number_in(self, at: int, allowed: range) -> int | None:
        number = self._number(at)
        return number if number is not None and number in allowed else None

    def _number(self, at: int) -> int | None:
        text = self.line[at] if at < len(self.line) else ""
        return int(text) if 0 < len(text) <= 4 and text.isascii() and text.isdigit() else None


def _ordered(start: datetime, last: Spoken) -> Spoken | None:
    end = last.interval[1]
    return Spoken((start, end), last.upto) if end and start < end else None


def _next_date(day: int, month: int, today: date) -> date:
    """This year's, or the next that has this day: a 29 February can be eight years away."""
    return next(found for found in _dates(day, month, today.year) if found >= today)


def _dates(day: int, month: int, year: int) -> Iterator[date]:
    date(2000, month, day)  # a leap year has every day that there is
    for ahead in range(9):
        if month != 2 or day != 29 or _is_leap(year + ahead):
            yield date(year + ahead, month, day)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _which_month(month: int, which: int, today: date) -> date:
    ahead = (month - today.month) % 12
    if which > 0 and ahead == 0:
        ahead = 12
    return _months_later(today.replace(day=1), ahead - 12 if which < 0 else ahead)


def _which_weekday(weekday: int, which: int, today: date) -> date:
    if which > 0:
        return today + timedelta(days=7 + weekday - today.weekday())
    ahead = (weekday - today.weekday()) % 7
    return today + timedelta(days=ahead - 7 if which < 0 else ahead)
