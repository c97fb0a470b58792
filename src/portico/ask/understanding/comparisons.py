"""Comparisons in questions: the names in them, and the items that these mean. Searches nothing itself.

A question is taken for one only if every name means one item. All else is searched for as before.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from portico.ask.languages.loader import load_language, supported_language
from portico.ask.ranking import RankedItem
from portico.ask.understanding.fields import key_of
from portico.items import Item, title_of
from portico.search.index.text import fold, words

MAX_COMPARED = 4  # things that are compared
MAX_NAME = 100  # characters
MIN_PARTIAL_WORDS = 2  # words of a name that stand for all of it, if they are half of it


@dataclass(frozen=True, slots=True)
class ComparedNames:
    """Names that a question sets against each other."""

    names: tuple[str, ...]
    is_said: bool  # that they are compared; else they may be mere words: "fish or chicken"


def find_comparisons(question: str, language: str) -> list[ComparedNames]:
    """Return what a question may compare, or let choose from: two to four things.

    Names may have an "and" or a comma, too.
    """
    language = supported_language(language)
    contrast, idle = load_language(language).comparison_phrases, _idle_words(language)
    question_words = {fold(word) for word in words(question)}
    is_said = not question_words.isdisjoint(contrast.cues)
    between = sorted(
        question_words & contrast.choosing or (question_words & contrast.joining if is_said else frozenset[str]())
    )
    if not between:
        return []
    joined = rf"\b(?:{'|'.join(between)})\b"
    ways = (joined, f"{joined}|{_MARKS}", *(rf"\b{word}\b" for word in between))
    said_plainly = fold(question)
    splits = [*(re.split(way, said_plainly) for way in ways), *_halves(joined, said_plainly)]
    names = [tuple(name for part in parts if (name := _strip_idle(part, idle))) for parts in splits]
    return [
        ComparedNames(group, is_said)
        for group in dict.fromkeys(names)
        if 2 <= len(group) == len(set(group)) <= MAX_COMPARED and all(len(name) <= MAX_NAME for name in group)
    ]


_MARKS = "[,;:?!]"


def _halves(joined: str, question: str) -> Iterator[list[str]]:
    """Yield two names for each joining word, as both names may have such a word of their own."""
    for match in islice(re.finditer(joined, question), MAX_COMPARED):
        yield [question[: match.start()], question[match.end() :]]


@cache
def _idle_words(language: str) -> frozenset[str]:
    """Return words around a name that are no part of it."""
    return load_language(language).followup_words.empty | load_language(language).comparison_phrases.cues


def strip_name(name: str, language: str) -> str:
    """Return a name without the small words around it."""
    return _strip_idle(name, _idle_words(supported_language(language)))


def _strip_idle(text: str, idle: frozenset[str]) -> str:
    """Return a text without the idle words before and behind it."""
    all_words = words(text)
    significant = [at for at, word in enumerate(all_words) if fold(word) not in idle]
    return " ".join(all_words[significant[0] : significant[-1] + 1]) if significant else ""


def match_name(name: str, items: Sequence[Item], question: str, language: str, *, is_said: bool) -> Item | None:
    """Return the only item that a name names. Two of its words may do where it is said that things are compared."""
    key, idle = key_of(name), _idle_words(supported_language(language))
    titles = [(item, key_of(_strip_idle(title_of(item.data), idle))) for item in items]
    whole = [item for item, title in titles if title == key]
    partly = [
        item
        for item, title in titles
        if is_said and len(key) >= max(MIN_PARTIAL_WORDS, len(title) / 2) and set(key) <= set(title)
    ]
    matches = _longest(whole, question) or partly
    return matches[0] if len(matches) == 1 else None


def _longest(items: Sequence[Item], question: str) -> Sequence[Item]:
    """Return, of items with much the same name, those whose name stands in the question most fully."""
    padded_question = f" {' '.join(key_of(question))} "
    names = [" ".join(key_of(title_of(item.data))) for item in items]
    most = max((len(name) for name in names if f" {name} " in padded_question), default=0)
    return [item for item, name in zip(items, names, strict=True) if len(name) == most] or items


def put_first(items: Sequence[Item], scored: Sequence[RankedItem]) -> list[RankedItem]:
    """Return the named items first, then whatever else was found."""
    by_id = {(result.item.collection, result.item.id): result for result in scored}
    first = [by_id.pop((item.collection, item.id), RankedItem(item, 0.0)) for item in items]
    return [*(replace(result, score=100.0) for result in first), *by_id.values()]
