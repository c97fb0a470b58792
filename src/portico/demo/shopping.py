"""Combines the ingredients of several recipes into one shopping list."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from portico.search.index.text import stemmer, words

# Measures of one kind, in the smallest of them.
_MEASURES = {"g": ("g", 1), "kg": ("g", 1000), "ml": ("ml", 1), "l": ("ml", 1000)}
_LARGER = {"g": "kg", "ml": "l"}
_SPOONS = ("tbsp", "tsp", "EL", "TL")
_LINE = re.compile(
    r"(?P<amount>\d{1,6}(?:[.,]\d{1,3}|/[1-9]\d{0,2})?)\s+"
    rf"(?:(?P<unit>{'|'.join((*_MEASURES, *_SPOONS))})\s+)?(?P<name>[^\s,].*)"
)


@dataclass(frozen=True, slots=True)
class Ingredient:
    """One line of a recipe. The amount is 0 if the line has none."""

    line: str
    amount: Fraction = Fraction(0)
    unit: str = ""
    name: str = ""  # without the preparation: "leeks" in "2 leeks, sliced"

    @property
    def key(self) -> tuple[str, ...]:
        """Return a key that lines of the same ingredient and unit share."""
        stem = stemmer("en")
        return (self.unit, *map(stem, words(self.name))) if self.amount else (self.line.casefold(),)


def shopping_list(lines: Iterable[str]) -> list[str]:
    """Return each ingredient once, in order of first use, with its total amount."""
    groups: dict[tuple[str, ...], list[Ingredient]] = {}
    for ingredient in map(_read, lines):
        groups.setdefault(ingredient.key, []).append(ingredient)
    return [_combine(same) for same in groups.values()]


def _read(line: str) -> Ingredient:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        return Ingredient(line)
    unit, size = _MEASURES.get(match["unit"] or "", (match["unit"] or "", 1))
    amount = Fraction(match["amount"].replace(",", "."))
    return Ingredient(line, amount * size, unit, match["name"].partition(",")[0].strip())


def _combine(same: Sequence[Ingredient]) -> str:
    if len(same) == 1 or not same[0].amount:
        return same[0].line
    total = sum((item.amount for item in same), Fraction(0))
    if unit := same[0].unit:
        return f"{_format_measure(total, unit)} {same[0].name}"
    # The plural name, if a line has it.
    several = next((item.name for item in same if item.amount > 1), "")
    times = "" if several or total <= 1 else "× "
    return f"{_format_amount(total)} {times}{several or same[0].name}"


def _format_measure(total: Fraction, unit: str) -> str:
    is_large = unit in _LARGER and total >= 1000
    return f"{_format_amount(total / 1000)} {_LARGER[unit]}" if is_large else f"{_format_amount(total)} {unit}"


def _format_amount(amount: Fraction) -> str:
    """Format a number as recipes do: 3, 1/2, 1.5."""
    is_part = amount < 1 and amount.denominator <= 4
    return str(amount) if is_part or amount.denominator == 1 else f"{float(amount):.10g}"
