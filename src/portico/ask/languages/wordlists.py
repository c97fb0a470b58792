"""Words and phrases with what they mean. Has no words of its own."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

from portico.search.index.text import fold

Value = TypeVar("Value")
PhraseIndex: TypeAlias = dict[str, list[tuple[tuple[str, ...], Value]]]


class PhraseTable(Generic[Value]):
    """Sayings and what they mean. The longest one at a position is the one that was said."""

    def __init__(self, *tables: Mapping[Value, str]) -> None:
        """Each table has the sayings of a meaning, with bars between them."""
        self._tables = tables

    @cached_property
    def _by_first(self) -> PhraseIndex[Value]:
        """The phrases by their first words. Built when needed, as most sites are asked in one language."""
        sayings = [
            (tuple(fold(phrase).split()), meaning)
            for table in self._tables
            for meaning, text in table.items()
            for phrase in text.split("|")
            if phrase.strip()
        ]
        by_first: PhraseIndex[Value] = {}
        for phrase, meaning in sorted(sayings, key=lambda pair: -len(pair[0])):
            by_first.setdefault(phrase[0], []).append((phrase, meaning))
        return by_first

    def match(self, line: Sequence[str], at: int) -> tuple[Value, int] | None:
        """Return what is said at a position, and the position after it."""
        if at >= len(line):
            return None
        for phrase, meaning in self._by_first.get(line[at], ()):
            upto = at + len(phrase)
            if tuple(line[at:upto]) == phrase:
                return meaning, upto
        return None

    def skip(self, line: Sequence[str], at: int) -> int:
        match = self.match(line, at)
        return match[1] if match else at


def fold_words(words: str | Iterable[str]) -> frozenset[str]:
    """Return words without accents and capitals; those of a text are separated by spaces."""
    return frozenset(map(fold, words.split() if isinstance(words, str) else words))
