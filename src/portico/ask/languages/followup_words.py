"""How people hang one question on another: the words that show it. Has no rules, and no language of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from portico.ask.languages.wordlists import folded
from portico.search.index.text import STOPWORDS, fold


class Opening(Enum):
    """What the first words announce."""

    NONE = "without nuts"
    JOIN = "and without nuts"
    SHIFT = "what about January"
    CORRECT = "I meant January"


@dataclass(frozen=True, slots=True)
class Speech:
    """The words of a language that show how a question hangs together: without accents and capitals."""

    language: str
    joins: tuple[str, ...]
    openings: Mapping[str, Sequence[tuple[str, Opening | None]]]  # by first word, longest first; None announces nothing
    closings: frozenset[str]  # say nothing at the end
    asking: frozenset[str]  # make a whole question: question words, auxiliary verbs, I and you
    limiting: frozenset[str]  # begin a constraint
    placing: frozenset[str]  # of these, the ones that need to be said only once
    bounds: frozenset[str]  # stand before a number
    swapping: str  # "instead of"
    pronouns: frozenset[str]
    owners: frozenset[str]  # "its"
    dummies: frozenset[str]  # pronouns that may stand for a clause: "is it safe to swim"
    clausal: frozenset[str]  # and how the clause begins
    holding: tuple[str, ...]  # "with" in "with pictures in it"
    inside: frozenset[str]  # and the "in"
    relatives: Mapping[str, frozenset[str]]  # with the owners that may speak of what stands before them
    unnamed: frozenset[str]  # may stand there without being a noun: "something"
    own: frozenset[str]
    these: frozenset[str]
    this: frozenset[str]  # points back only where no noun follows
    pointing: tuple[str, ...]
    among: tuple[str, ...]  # "of those"
    ordinals: frozenset[str]
    definite: frozenset[str]
    indefinite: frozenset[str]
    ones: frozenset[str]
    comparing: frozenset[str]
    grading: frozenset[str]  # of these, the ones that grade the word after them: "more"
    relational: frozenset[str]  # nouns of something else: the price, the reason
    empty: frozenset[str]  # no content
    calendar: frozenset[str]  # "this week" points to no result
    slots: tuple[frozenset[str], ...]  # a word takes the place of another of its slot
    possessive: str = ""  # a name as an owner, where that may stand in the place of "its"
    adjectives_first: bool = True
    capitals: bool = True  # they show names


def speech(
    language: str,
    *,
    joins: str,
    shifts: str,
    corrects: str,
    chats: str,
    pointing: str,
    among: str,
    relatives: Mapping[str, str],
    unnamed: str,
    own: str,
    slots: str,
    swapping: str,
    empty: str,
    holding: str = "",
    inside: str = "",
    possessive: str = "",
    capitals: bool = True,
    adjectives_first: bool = True,
    **sets: str,
) -> Speech:
    """Lists of words are divided by spaces, of phrases by bars."""
    small = {
        name: folded(each)
        for name, each in sets.items()
        if name not in ("comparing", "grading", "relational", "calendar")
    }
    openings = {
        Opening.JOIN: _phrases(joins),
        Opening.SHIFT: _phrases(shifts),
        Opening.CORRECT: _phrases(corrects),
        None: _phrases(chats),
    }
    return Speech(
        language=language,
        joins=_phrases(joins),
        openings=_openings(openings),
        pointing=_phrases(pointing),
        among=_phrases(among),
        holding=_phrases(holding),
        inside=folded(inside),
        relatives={relative: folded(owners) for relative, owners in relatives.items()},
        unnamed=folded(unnamed),
        own=folded(own),
        slots=tuple(folded(each) for each in slots.split("|")),
        swapping=swapping,
        empty=folded(empty).union(folded(STOPWORDS[language]), *small.values()),
        possessive=possessive,
        capitals=capitals,
        adjectives_first=adjectives_first,
        comparing=folded(sets["comparing"]) | folded(sets["grading"]),
        grading=folded(sets["grading"]),
        relational=folded(sets["relational"]),
        calendar=folded(sets["calendar"]),
        **small,
    )


def _phrases(words: str) -> tuple[str, ...]:
    """Phrases, divided by bars."""
    return tuple(" ".join(phrase.split()) for phrase in fold(words).split("|"))


def _openings(lists: Mapping[Opening | None, tuple[str, ...]]) -> dict[str, list[tuple[str, Opening | None]]]:
    found: dict[str, list[tuple[str, Opening | None]]] = {}
    phrases = [(phrase, opening) for opening, each in lists.items() for phrase in each]
    for phrase, opening in sorted(phrases, key=lambda pair: -len(pair[0].split())):
        found.setdefault(phrase.rstrip(",").split()[0], []).append((phrase, opening))
    return found
