"""Numbers as texts write them: 14.50, 14,5 and 1’299.00. Compares values, never spellings; knows no items."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

MAX_DIGITS = 30  # of a number; longer runs of digits are compared as they are written
MARKS = ".,"  # which of them begins the decimals is a matter of language

_GROUPING = " '’٬\u00a0\u2009\u202f"  # marks that group digits in every language
_SPACES = re.compile(r"[ \u00a0\u2009\u202f]")
_FIGURE = re.compile(
    r"(?P<digits>\d+(?:[.,'’٫٬]\d+|[ \u00a0\u2009\u202f]\d{3}(?!\d))*)(?P<percent>[ \u00a0\u202f]?[%٪％])?"
)
_PLAIN = re.compile(r"\d+(?:\.\d+)?\Z")


def _notation(decimal: str) -> re.Pattern[str]:
    """Return the form of numbers whose decimals begin with this mark."""
    group = f"[{_GROUPING}{MARKS.replace(decimal, '')}]"
    whole = rf"(?![0٠۰０])\d{{1,3}}(?P<group>{group})\d{{3}}(?:(?P=group)\d{{3}})*|\d+"
    return re.compile(rf"(?P<whole>{whole})(?:[{decimal}٫](?P<rest>\d+))?\Z")


_NOTATIONS = {mark: _notation(mark) for mark in MARKS}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it is written, without its unit."""

    digits: str
    is_percent: bool = False

    def values(self, decimal: str = "") -> set[Decimal]:
        """Return the values that it may stand for: several if no decimal mark is named, none if it is no number.

        A share in percent stands for the fraction too: 35 % is 0.35.
        """
        marks = decimal or MARKS
        numbers = {value for mark in marks if (value := parse_number(self.digits, mark)) is not None}
        return numbers | {value / 100 for value in numbers if self.is_percent and value < 100}

    @property
    def parts(self) -> "list[Figure]":
        """Return the figures that it may be made of: a day, a month and a year, or two neighbouring numbers."""
        apart = _SPACES.split(self.digits)
        apart = apart if len(apart) > 1 else [] if self.values() else re.findall(r"\d+", self.digits)
        return [Figure(digits) for digits in apart] if len(apart) > 1 else []


def parse_number(text: str, decimal: str) -> Decimal | None:
    """Return the value of a number: 1,000.50 and 1.000,50 alike. A mark that could be either is what the language says.

    Return None for a text that is no number in any notation.
    """
    if len(text) > MAX_DIGITS:
        return None
    for mark in (decimal, MARKS.replace(decimal, "")):
        if match := _NOTATIONS[mark].match(text):
            whole = "".join(filter(str.isdecimal, match["whole"]))
            return Decimal(f"{whole}.{match['rest'] or 0}")
    return None


def figures_in(text: str) -> Iterator[Figure]:
    for match in _FIGURE.finditer(text):
        yield Figure(match["digits"], bool(match["percent"]))


class Figures:
    """The numbers of some texts, to look up whether they have a number in whatever notation."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """Take texts, each with the decimal mark of its language, or "" if that is not known."""
        self._written: dict[Figure, str] = {}
        for text, decimal in texts:
            # A value that is a number and nothing else is written as in JSON, in every language.
            mark = "." if _PLAIN.match(text) else decimal
            for figure in figures_in(text):
                self._written[figure] = mark if self._written.get(figure, mark) == mark else ""
        self._digits = {figure.digits for figure in self._written}
        self._values: set[Decimal] | None = None

    def has(self, figure: Figure, decimal: str) -> bool:
        """Return whether a number of a sentence is one of these, read with the sentence's decimal mark."""
        if figure.digits in self._digits or not figure.values(decimal).isdisjoint(self.values):
            return True
        return bool(figure.parts) and all(self.has(part, decimal) for part in figure.parts)

    @property
    def values(self) -> set[Decimal]:
        # Most numbers are found as they are written, and need no values.
        if self._values is None:
            read = ((part, mark) for figure, mark in self._written.items() for part in (figure, *figure.parts))
            self._values = {value for figure, mark in read for value in figure.values(mark)}
        return self._values
