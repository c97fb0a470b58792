"""Words and phrases with what they mean. Has no words of its own."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

from portico.search.index.text import fold

Meaning = TypeVar("Meaning")
Index: TypeAlias = dict[str, list[tuple[tuple[str, ...], Meaning]]]

DASHES = "-|–|—|..|…"


class Sayings(Generic[Meaning]):
    """Sayings and what they mean. The longest one at a position is the one that was said."""

    def __init__(self, *tables: Mapping[Meaning, str]) -> None:
        """Each table has the sayings of a meaning, with bars between them."""
        self._tables = tables

    @cached_property
    def _by_first(self) -> Index[Meaning]:
        """By their first words. Made when it is needed: most sites are asked in one language."""
        sayings = [
            (tuple(fold(saying).split()), meaning)
            for table in self._tables
            for meaning, text in table.items()
            for saying in text.split("|")
            if saying.strip()
        ]
        found: Index[Meaning] = {}
        for saying, meaning in sorted(sayings, key=lambda each: -len(each[0])):
            found.setdefault(saying[0], []).append((saying, meaning))
        return found

    def match(self, line: Sequence[str], at: int) -> tuple[Meaning, int] | None:
        """What is said at a position, and the position after it."""
        if at >= len(line):
            return None
        for saying, meaning in self._by_first.get(line[at], ()):
            upto = at + len(saying)
            if tuple(line[at:upto]) == saying:
                return meaning, upto
        return None

    def skip(self, line: Sequence[str], at: int) -> int:
        found = self.match(line, at)
        return found[1] if found else at


def any_of(*sayings: str) -> Sayings[bool]:
    """Sayings of which it only matters that one of them was said."""
    return Sayings({True: "|".join(sayings)})


def numbered(sayings: str, start: int = 0) -> Sayings[int]:
    """Sayings that stand for numbers one after the other, divided by spaces."""
    return Sayings(dict(enumerate(sayings.split(), start)))


def folded(words: str | Iterable[str]) -> frozenset[str]:
    """Words without accents and capitals; those of a text are divided by spaces."""
    return frozenset(map(fold, words.split() if isinstance(words, str) else words))
