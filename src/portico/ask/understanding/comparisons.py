"""Questions that compare things: which names stand in them, and which items they mean. Searches nothing itself.

A question is taken for one only if every name means one item. All else is searched for as before.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from portico.ask.languages import CONTRASTS, SPEECHES, known
from portico.ask.ranking import Scored
from portico.ask.understanding.fields import Key, key_of
from portico.items import Item, title_of
from portico.search.index.text import fold, words

MOST = 4  # things that are compared
MAX_NAME = 100  # characters
PARTLY = 2  # words of a name that stand for all of it, if they are half of it


@dataclass(frozen=True, slots=True)
class Contest:
    """Names that a question sets against each other."""

    names: tuple[str, ...]
    is_said: bool  # that they are compared; else they may be mere words: "fish or chicken"


def contests_in(question: str, language: str) -> list[Contest]:
    """What a question may compare, or let choose from: two to four things. Names may have an "and" or a comma, too."""
    language = known(language)
    contrast, idle = CONTRASTS[language], _idle(language)
    said = {fold(word) for word in words(question)}
    is_said = not said.isdisjoint(contrast.cues)
    between = sorted(said & contrast.choosing or (said & contrast.joining if is_said else frozenset[str]()))
    if not between:
        return []
    joined = rf"\b(?:{'|'.join(between)})\b"
    ways = (joined, f"{joined}|{_MARKS}", *(rf"\b{word}\b" for word in between))
    said_plainly = fold(question)
    splits = [*(re.split(way, said_plainly) for way in ways), *_halves(joined, said_plainly)]
    names = [tuple(name for part in parts if (name := _core(part, idle))) for parts in splits]
    return [Contest(each, is_said) for each in dict.fromkeys(names) if _is_fit(each)]


_MARKS = "[,;:?!]"


def _halves(joined: str, question: str) -> Iterator[list[str]]:
    """Two names, as each of the words between says where one ends: both may have such a word of their own."""
    for found in islice(re.finditer(joined, question), MOST):
        yield [question[: found.start()], question[found.end() :]]


def _is_fit(names: Sequence[str]) -> bool:
    return 2 <= len(names) == len(set(names)) <= MOST and all(len(name) <= MAX_NAME for name in names)


@cache
def _idle(language: str) -> frozenset[str]:
    """Words around a name that are no part of it."""
    return SPEECHES[language].empty | CONTRASTS[language].cues


def bare(name: str, language: str) -> str:
    """A name without the small words around it."""
    return _core(name, _idle(known(language)))


def _core(text: str, idle: frozenset[str]) -> str:
    """A text without the idle words before and behind it."""
    found = words(text)
    telling = [at for at, word in enumerate(found) if fold(word) not in idle]
    return " ".join(found[telling[0] : telling[-1] + 1]) if telling else ""


def meant_by(name: str, items: Sequence[Item], question: str, language: str, *, is_said: bool) -> Item | None:
    """The only item that a name names. Two of its words may do where it is said that things are compared."""
    key, idle = key_of(name), _idle(known(language))
    titles = [(item, key_of(_core(title_of(item.data), idle))) for item in items]
    whole = [item for item, title in titles if title == key]
    fitting = _longest(whole, question) or [item for item, title in titles if is_said and _stands_for(key, title)]
    return fitting[0] if len(fitting) == 1 else None


def _longest(items: Sequence[Item], question: str) -> Sequence[Item]:
    """Of items with much the same name, those whose name stands in the question with most of its small words."""
    said = f" {' '.join(key_of(question))} "
    names = [" ".join(key_of(title_of(item.data))) for item in items]
    most = max((len(name) for name in names if f" {name} " in said), default=0)
    return [item for item, name in zip(items, names, strict=True) if len(name) == most] or items


def _stands_for(key: Key, title: Key) -> bool:
    return len(key) >= max(PARTLY, len(title) / 2) and set(key) <= set(title)


def led_by(items: Sequence[Item], scored: Sequence[Scored]) -> list[Scored]:
    """These items first, since they were named; then whatever else was found."""
    found = {(each.item.collection, each.item.id): each for each in scored}
    first = [found.pop((item.collection, item.id), Scored(item, 0.0)) for item in items]
    return [*(replace(each, score=100.0) for each in first), *found.values()]
