"""Dates as people say them: "this weekend", "5 December", "since 2019". Reads no clock: today is an argument.

Days are days of UTC and intervals are half-open. A weekday or a month without a year is the next one to come, the
running one included; "next Friday" is the Friday of the next week, as "next weekend" is the one after this. Of
05/12/2026 the day comes first. Tonight begins at five in the afternoon and ends at four.
"""

import re
from calendar import isleap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TypeAlias

from portico.ask.languages.wordlists import PhraseTable

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


def _week(today: date, ahead: int) -> Interval:
    return _days(today + timedelta(days=7 * ahead - today.weekday()), 7)


def _weekend(today: date, ahead: int) -> Interval:
    return _days(today + timedelta(days=7 * ahead + 5 - today.weekday()), 2)


def _months_later(day: date, months: int) -> date:
    """Return the same day of another month, or that month's last."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = (date(year + month // 11, (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return date(year, month + 1, min(day.day, last))


def _month(today: date, ahead: int) -> Interval:
    first = _months_later(today.replace(day=1), ahead)
    return _midnight(first), _midnight(_months_later(first, 1))


def _year(today: date, ahead: int) -> Interval:
    return _midnight(date(today.year + ahead, 1, 1)), _midnight(date(today.year + ahead + 1, 1, 1))


NamedInterval: TypeAlias = Callable[[date], Interval]

NAMED_INTERVALS: dict[str, NamedInterval] = {
    "today": partial(_day, ahead=0),
    "tonight": lambda today: (
        datetime.combine(today, EVENING, UTC),
        datetime.combine(today + timedelta(days=1), LATE, UTC),
    ),
    "tomorrow": partial(_day, ahead=1),
    "yesterday": partial(_day, ahead=-1),
    "upcoming": lambda today: (_midnight(today), None),
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

    names: PhraseTable[str]
    weekdays: PhraseTable[int]
    months: PhraseTable[int]
    # Which of them: this one, the next, the last. French and Spanish say it behind the word as well.
    before: PhraseTable[int]
    behind: PhraseTable[int] = field(default_factory=PhraseTable[int])
    parts: PhraseTable[bool]
    prepositions: PhraseTable[bool]
    bounds: PhraseTable[str]
    onwards: PhraseTable[bool]
    on: PhraseTable[bool]
    openers: PhraseTable[bool]
    joiners: PhraseTable[bool]
    rolling: PhraseTable[int]
    # French says "les 3 derniers jours": the direction behind the number.
    rolling_behind: PhraseTable[int] = field(default_factory=PhraseTable[int])
    rolling_article: PhraseTable[bool] = field(default_factory=PhraseTable[bool])
    spans: PhraseTable[tuple[int, int]]  # days and months
    the: PhraseTable[bool]
    ordinals: PhraseTable[bool]
    year_joiners: PhraseTable[bool]
    stopwords: frozenset[str]


@dataclass(frozen=True, slots=True)
class ParsedDate:
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

    def read(self, at: int) -> ParsedDate | None:
        """Return the longest date that begins at a position. A day that no calendar has is no date."""
        candidates: list[ParsedDate] = []
        for reader in (
            self._alone,
            self._after_preposition,
            self._open_ended,
            self._onwards,
            self._range,
            self._relative,
        ):
            try:
                parsed = reader(at)
            except (ValueError, OverflowError):
                continue
            if parsed:
                candidates.append(parsed)
        return max(candidates, key=lambda parsed: parsed.upto, default=None)

    def _alone(self, at: int) -> ParsedDate | None:
        parsed = self._point(at)
        if not parsed or parsed.firm:
            return parsed
        covers = self.whole and at == 0 and parsed.upto == len(self.line)
        # A value of four digits is a number: the caller knows whether the field counts years.
        return parsed if covers and self._number(0) is None else None

    def _after_preposition(self, at: int) -> ParsedDate | None:
        begin = self.words.prepositions.match(self.line, at)
        parsed = self._point(begin[1]) if begin else None
        if not begin or not parsed:
            return None
        is_year = not parsed.firm and self._number(begin[1]) is not None
        return None if is_year and not self._stands(parsed.upto) else replace(parsed, firm=True)

    def _open_ended(self, at: int) -> ParsedDate | None:
        bound = self.words.bounds.match(self.line, at)
        parsed = self._point(bound[1]) if bound else None
        if not bound or not parsed:
            return None
        first, last = parsed.interval
        match bound[0]:
            case "before":
                return ParsedDate((None, first), parsed.upto)
            case "after":
                return ParsedDate((last, None), parsed.upto)
            case "since":
                return ParsedDate((first, None), parsed.upto)
            case "by" if not parsed.firm:  # "by May" may name an author
                return None
            case _:
                return ParsedDate((None, last), parsed.upto)

    def _onwards(self, at: int) -> ParsedDate | None:
        begin = self.words.onwards.match(self.line, at)
        parsed = self._point(begin[1]) if begin else None
        end = self.words.on.match(self.line, parsed.upto) if parsed else None
        return ParsedDate((parsed.interval[0], None), end[1]) if parsed and end else None

    def _range(self, at: int) -> ParsedDate | None:
        opener = self.words.openers.match(self.line, at)
        begin = opener[1] if opener else at
        return self._days_of_month(begin) or self._points(begin, has_opener=opener is not None)

    def _days_of_month(self, at: int) -> ParsedDate | None:
        """Parse "5 to 8 December"."""
        first = self._number_in(at, range(1, 32))
        joined = self.words.joiners.match(self.line, self.words.ordinals.skip(self.line, at + 1)) if first else None
        last = self._day_month(joined[1], self.today) if joined else None
        if not first or not last or not last.interval[0]:
            return None
        return _interval_between(_midnight(last.interval[0].date().replace(day=first)), last)

    def _points(self, at: int, has_opener: bool) -> ParsedDate | None:
        first = self._point(at)
        joined = self.words.joiners.match(self.line, first.upto) if first else None
        if not first or not joined or not first.interval[0]:
            return None
        start = first.interval[0]
        last = self._point_from(joined[1], start.date()) or self._day_from(joined[1], start.date())
        return _interval_between(start, last) if last and (has_opener or (first.firm and last.firm)) else None

    def _point_from(self, at: int, first: date) -> ParsedDate | None:
        """Return the end of a range: as it is said today, or else as it follows the beginning."""
        parsed = self._point(at)
        if parsed and parsed.interval[1] and parsed.interval[1] <= _midnight(first):
            return self._point(at, first)
        return parsed

    def _day_from(self, at: int, first: date) -> ParsedDate | None:
        """Return the 8 of December 5 to 8."""
        day = self._number_in(at, range(1, 32))
        return ParsedDate(_days(first.replace(day=day)), self.words.ordinals.skip(self.line, at + 1)) if day else None

    def _relative(self, at: int) -> ParsedDate | None:
        direction = self.words.rolling.match(self.line, at)
        if not direction:
            return self._relative_behind(at)
        count = self._number_in(direction[1], range(1, MAX_COUNT))
        if not count and direction[1] == at + 1:  # "next day" is a kind of delivery; "in the next day" is a time
            return None
        return self._relative_span(direction[0], count or 1, direction[1] + bool(count))

    def _relative_behind(self, at: int) -> ParsedDate | None:
        begin = self.words.rolling_article.skip(self.line, at)
        count = self._number_in(begin, range(1, MAX_COUNT))
        direction = self.words.rolling_behind.match(self.line, begin + 1) if count else None
        return self._relative_span(direction[0], count, direction[1]) if count and direction else None

    def _relative_span(self, direction: int, count: int, at: int) -> ParsedDate | None:
        span = self.words.spans.match(self.line, at)
        if not span:
            return None
        days, months = span[0]
        other = _months_later(self.today, direction * count * months) + timedelta(days=direction * count * days)
        last = self.today + timedelta(days=1) if direction < 0 else other
        return ParsedDate((_midnight(min(self.today, other)), _midnight(last)), span[1])

    def _point(self, at: int, today: date | None = None) -> ParsedDate | None:
        """Return a day, a month, a year or a time with a name of its own."""
        reference = today or self.today
        readers = (
            self._interval_by_name,
            self._numeric_date,
            self._day_month,
            self._month_day,
            self._month,
            self._weekday,
            self._year,
        )
        candidates = [parsed for reader in readers if (parsed := reader(at, reference))]
        return max(candidates, key=lambda parsed: parsed.upto, default=None)

    def _interval_by_name(self, at: int, today: date) -> ParsedDate | None:
        name = self.words.names.match(self.line, at)
        return ParsedDate(NAMED_INTERVALS[name[0]](today), name[1]) if name else None

    def _numeric_date(self, at: int, today: date) -> ParsedDate | None:
        text = self.line[at] if at < len(self.line) else ""
        if iso := _ISO.fullmatch(text):
            year, month, day = map(int, iso.groups())
        elif day_first := _DAY_FIRST.fullmatch(text):
            day, month, year = map(int, day_first.groups())
            day, month = (month, day) if month > 12 else (day, month)
        else:
            return None
        return ParsedDate(_days(date(year, month, day)), at + 1)

    def _day_month(self, at: int, today: date) -> ParsedDate | None:
        begin = self.words.the.skip(self.line, at)
        day = self._number_in(begin, range(1, 32))
        month = self.words.months.match(self.line, self.words.ordinals.skip(self.line, begin + 1)) if day else None
        return self._date_of(day, month[0], month[1], today) if day and month else None

    def _month_day(self, at: int, today: date) -> ParsedDate | None:
        month = self.words.months.match(self.line, at)
        begin = self.words.the.skip(self.line, month[1]) if month else at
        day = self._number_in(begin, range(1, 32)) if month else None
        return self._date_of(day, month[0], self._after_ordinal(begin + 1), today) if day and month else None

    def _after_ordinal(self, at: int) -> int:
        # A full stop behind "December 5." ends the sentence, except where it writes an ordinal before a month.
        return at if at < len(self.line) and self.line[at] == "." else self.words.ordinals.skip(self.line, at)

    def _date_of(self, day: int, month: int, upto: int, today: date) -> ParsedDate:
        year = self._year_after(upto)
        if year:
            return ParsedDate(_days(date(year[0], month, day)), year[1])
        # This year's, or the next that has this day: a 29 February can be eight years away.
        return ParsedDate(_days(next(when for when in _dates(day, month, today.year) if when >= today)), upto)

    def _year_after(self, at: int) -> tuple[int, int] | None:
        begin = at
        for begin in (at, self.words.year_joiners.skip(self.line, at)):
            year = self._number_in(begin, YEARS)
            if year:
                return year, begin + 1
        return None

    def _month(self, at: int, today: date) -> ParsedDate | None:
        which, begin = self.words.before.match(self.line, at) or (None, at)
        month = self.words.months.match(self.line, begin)
        if not month:
            return None
        year = self._year_after(month[1])
        if year:
            return ParsedDate(_month(date(year[0], month[0], 1), 0), year[1])
        which, upto = self.words.behind.match(self.line, month[1]) or (which, month[1])
        return ParsedDate(_month(_which_month(month[0], which or 0, today), 0), upto, firm=which is not None)

    def _weekday(self, at: int, today: date) -> ParsedDate | None:
        which, begin = self.words.before.match(self.line, at) or (None, at)
        weekday = self.words.weekdays.match(self.line, begin)
        if not weekday:
            return None
        which, upto = self.words.behind.match(self.line, weekday[1]) or (which, weekday[1])
        part = self.words.parts.match(self.line, upto)
        upto = part[1] if part else upto
        firm = which is not None or part is not None or self._stands(upto)
        return ParsedDate(_days(_which_weekday(weekday[0], which or 0, today)), upto, firm)

    def _stands(self, at: int) -> bool:
        """Return whether the words stand alone, unlike those in a Sunday roast or in 2000 steps."""
        following = self.line[at] if at < len(self.line) else ""
        return not following[:1].isalpha() or following in self.words.stopwords

    def _year(self, at: int, today: date) -> ParsedDate | None:
        year = self._number_in(at, YEARS)
        if not year:
            return None
        if year % 10 == 0 and at + 1 < len(self.line) and self.line[at + 1] == "s":
            return ParsedDate((_midnight(date(year, 1, 1)), _midnight(date(year + 10, 1, 1))), at + 2)
        return ParsedDate(_year(date(year, 1, 1), 0), at + 1, firm=False)

    def _number_in(self, at: int, allowed: range) -> int | None:
        number = self._number(at)
        return number if number is not None and number in allowed else None

    def _number(self, at: int) -> int | None:
        text = self.line[at] if at < len(self.line) else ""
        return int(text) if 0 < len(text) <= 4 and text.isascii() and text.isdigit() else None


def _interval_between(start: datetime, last: ParsedDate) -> ParsedDate | None:
    end = last.interval[1]
    return ParsedDate((start, end), last.upto) if end and start < end else None


def _dates(day: int, month: int, year: int) -> Iterator[date]:
    date(2000, month, day)  # a leap year has every day that there is
    for ahead in range(9):
        if month != 2 or day != 29 or isleap(year + ahead):
            yield date(year + ahead, month, day)


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
