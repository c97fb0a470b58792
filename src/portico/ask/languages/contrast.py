"""How people set things against each other, and how it is said what sets them apart. Has no words of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Contrast:
    """The words of a language for it. What is read is without accents and capitals.

    What one thing is stands in pairs: said of one of two, where {} is the difference, and of one of several.
    """

    together: Callable[[Sequence[str]], str]  # makes one sentence of several
    side: Callable[[str, Sequence[str]], str]  # a name and its facts
    ahead: Callable[[str, Sequence[str]], str]  # a name and what it is
    price: Pair
    time: Pair
    rating: Pair
    day: Pair
    choosing: frozenset[str] = frozenset()  # "or": stands between names
    joining: frozenset[str] = frozenset()  # "and": does so where something else says that they are compared
    cues: frozenset[str] = frozenset()  # say that they are, or by what
