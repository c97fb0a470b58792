"""The ingredients of several recipes as one list to buy from: what is the same is put together."""

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
    """One line of a recipe. The amount is 0 where it gives none."""

    line: str
    amount: Fraction = Fraction(0)
    unit: str = ""
    name: str = ""  # without what is done to it: "leeks" of "2 leeks, sliced"

    @property
    def key(self) -> tuple[str, ...]:
        """What lines that can be put together have in common."""
        stem = stemmer("en")
        return (self.unit, *map(stem, words(self.name))) if self.amount else (self.line.casefold(),)


def shopping_list(lines: Iterable[str]) -> list[str]:
    """Each ingredient once, in the order they are first needed, with all that is needed of it."""
    found: dict[tuple[str, ...], list[Ingredient]] = {}
    for each in map(_read, lines):
        found.setdefault(each.key, []).append(each)
    return [_together(same) for same in found.values()]


def _read(line: str) -> Ingredient:
    found = _LINE.fullmatch(line.strip())
    if found is None:
        return Ingredient(line)
    unit, size = _MEASURES.get(found["unit"] or "", (found["unit"] or "", 1))
    amount = Fraction(found["amount"].replace(",", "."))
    return Ingredient(line, amount * size, unit, found["name"].partition(",")[0].strip())


def _together(same: Sequence[Ingredient]) -> str:
    if len(same) == 1 or not same[0].amount:
        return same[0].line
    total = sum((each.amount for each in same), Fraction(0))
    if unit := same[0].unit:
        return f"{_measured(total, unit)} {same[0].name}"
    # The name as it is said of several, if a line says it.
    several = next((each.name for each in same if each.amount > 1), "")
    times = "" if several or total <= 1 else "× "
    return f"{_written(total)} {times}{several or same[0].name}"


def _measured(total: Fraction, unit: str) -> str:
    is_large = unit in _LARGER and total >= 1000
    return f"{_written(total / 1000)} {_LARGER[unit]}" if is_large else f"{_written(total)} {unit}"


def _written(amount: Fraction) -> str:
    """A number as recipes write it: 3, 1/2, 1.5."""
    is_part = amount < 1 and amount.denominator <= 4
    return str(amount) if is_part or amount.denominator == 1 else f"{float(amount):.10g}"
