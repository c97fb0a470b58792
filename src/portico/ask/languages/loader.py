"""Loads the languages from their data files: one TOML file per language, parsed when the language is first used.

A template names its values in braces; `{Label}` is the value `{label}` with a capital. A list is joined by the
separator of its name, and the part of a template in square brackets is dropped when its list is empty. Where a template
has two forms, the first one is for one and the second for many.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import date
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Final, TypeVar, cast

from portico.ask.languages.lexicon import (
    COMPARISONS,
    COMPARISONS_ANYWHERE,
    ORDERS,
    UNITS,
    UNITS_ANYWHERE,
    FollowupWords,
    Lexicon,
    Opening,
)
from portico.ask.languages.phrasebook import (
    ComparisonPhrases,
    ConstraintPhrases,
    Phrases,
    Script,
    SmallTalkPhrases,
    capitalize,
)
from portico.ask.languages.wordlists import PhraseTable, fold_words
from portico.ask.understanding.dates import DateWords
from portico.search.index.text import STOPWORDS, fold

LANGUAGES: Final = ("en", "de", "es", "fr", "zh", "ja", "ar")  # in which a site answers; by default the first
UNDERSTOOD: Final = ("en", "de", "es", "fr")  # whose words are read in questions

_PARAMETERS: Final[Mapping[str, str]] = {
    "nothing_for": "what", "nothing_within": "limits", "beyond": "names limits", "instead": "words correction",
    "reached": "name ways", "fit": "count noun", "best": "name facts", "only": "name facts", "also": "names",
    "selection": "spans", "takes": "time", "costs": "price", "rated": "rating", "rated_of": "rating best", "on": "day",
    "at": "place", "by": "author", "cuisine": "kinds", "open": "hours", "prices": "low high", "times": "low high",
    "ratings": "low high", "dates": "first last", "which": "label", "missing": "label", "confirm": "what",
    "unbookable": "name", "under": "most", "up_to": "most", "between": "low high", "over": "least", "left_out": "words",
    "among": "count", "cut_short": "count", "ignored": "names", "together": "sentences", "side": "name facts",
    "ahead": "name advantages",
}  # fmt: skip
_DIRECTIONS: Final = {"this": 0, "next": 1, "last": -1}
_MEANINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "units": UNITS,
    "comparisons": COMPARISONS,
    "sorts": ORDERS,
    "leads": {"any": ""},
    "extremes": {"most": True, "least": False},
    "makers": {"maker": True, "no_maker": False},
    "before": _DIRECTIONS,
    "behind": _DIRECTIONS,
    "rolling": _DIRECTIONS,
    "rolling_behind": _DIRECTIONS,
    "spans": {"day": (1, 0), "week": (7, 0), "month": (0, 1), "year": (0, 12)},
}
_ANYWHERE: Final[Mapping[str, Mapping[Any, str]]] = {"units": UNITS_ANYWHERE, "comparisons": COMPARISONS_ANYWHERE}
# Of the words that show a follow-up, the ones that have content of their own.
_CONTENT_WORDS: Final = frozenset({"comparing", "grading", "relational", "calendar", "inside", "unnamed", "own"})
_OPTIONAL: Final = re.compile(r"\[(.*?)\]")

_Table = TypeVar("_Table")


class Language:
    """The words of one language. Each part is built when it is first needed."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._file = tomllib.loads((files("portico.ask.languages") / f"{code}.toml").read_text("utf-8"))

    @cached_property
    def phrases(self) -> Phrases:
        values: dict[str, Any] = self._templates(self._file["phrases"])
        nouns = {kind: (one, many) for kind, (one, many) in self._file["phrases"]["nouns"].items()}
        limits: dict[str, Any] = {"words": {}, **self._file["limits"]}
        values |= {"language": self._code, "script": self._script(), "nouns": nouns}
        values["limits"] = ConstraintPhrases(**limits)
        return Phrases(**values)

    @cached_property
    def comparison_phrases(self) -> ComparisonPhrases:
        section = self._file["comparisons"]
        values = self._templates(section)
        values |= {name: fold_words(section.get(name, "")) for name in ("choosing", "joining", "cues")}
        values |= {name: tuple(section[name]) for name in ("price", "time", "rating", "day")}
        return ComparisonPhrases(**values)

    @cached_property
    def small_talk(self) -> SmallTalkPhrases:
        section = self._file["small_talk"]
        return SmallTalkPhrases(
            **{name: "|".join(" ".join(phrase.split()) for phrase in text.split("|")) for name, text in section.items()}
        )

    @cached_property
    def lexicon(self) -> Lexicon:
        return self._word_tables(Lexicon, self._file["reading"])

    @cached_property
    def date_words(self) -> DateWords:
        section = dict(self._file["dates"])
        for name, start in (("weekdays", 0), ("months", 1)):
            section[name] = {str(number): word for number, word in enumerate(section[name].split(), start)}
        return self._word_tables(DateWords, section)

    @cached_property
    def followup_words(self) -> FollowupWords:
        return _read_followups(self._code, self._file["followups"])

    def _script(self) -> Script:
        section = self._file["writing"]
        last, (pattern, other_last) = section["last"], section.get("last_if", (r"(?!)", ""))
        return Script(
            decimal=section["decimal"],
            group=section["group"],
            money=_money_writer(section["money"] == "sign first", section.get("signs_after", ())),
            signs=section.get("signs", {}),
            units=cast("Any", tuple(tuple(forms) for forms in section["units"])),
            space=section["space"],
            day=_date_writer(section["date"], section.get("months", ""), section.get("first_of_month", "1")),
            comma=section["comma"],
            last=lambda others, item: (other_last if re.match(pattern, item, re.IGNORECASE) else last).format(
                others=others, last=item
            ),
            quote=lambda text: section["quote"].format(text=text),
        )

    def _templates(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Turn the templates of a section into functions of their values."""
        return {
            name: self._template(text, _PARAMETERS[name].split()) if name in _PARAMETERS else text
            for name, text in section.items()
        }

    def _template(self, text: str | Sequence[str], parameters: Sequence[str]) -> Callable[..., str]:
        one, many = (text, text) if isinstance(text, str) else text

        def fill(*values: str | int | Sequence[str]) -> str:
            form, texts = one, dict[str, str | int]()
            for name, value in zip(parameters, values, strict=True):
                if isinstance(value, int):
                    form, texts[name] = one if value == 1 else many, value
                elif isinstance(value, str):
                    texts[name], texts[name.capitalize()] = value, capitalize(value)
                else:
                    form, texts[name] = many if len(value) > 1 else one, self._join(name, value)
                    form = _OPTIONAL.sub(r"\1" if value else "", form)
            return form.format_map(texts)

        return fill

    def _join(self, name: str, parts: Sequence[str]) -> str:
        separator = self._file["separators"].get(name)
        return self.phrases.join(parts) if separator is None else separator.join(parts)

    def _word_tables(self, table: type[_Table], section: Mapping[str, Any]) -> _Table:
        """Build a dataclass from a section: its sets of words, its phrase tables, and its settings."""
        values: dict[str, Any] = {"stopwords": fold_words(STOPWORDS[self._code])}
        for field in fields(table):  # pyright: ignore[reportArgumentType]
            value = section.get(field.name)
            if value is None:
                continue
            if isinstance(value, dict):
                values[field.name] = _phrase_table(field.name, cast("dict[str, str]", value))
            elif field.type == frozenset[str]:
                values[field.name] = fold_words(value)
            else:
                values[field.name] = value if field.type in (str, bool) else PhraseTable({True: value})
        return table(**values)


@cache
def load_language(code: str) -> Language:
    """Return a language of `LANGUAGES`."""
    return Language(code)


def supported_language(language: str) -> str:
    """Return the language whose words are read in a question: English where there are none of its own."""
    short = language[:2].lower()
    return short if short in UNDERSTOOD else "en"


def _phrase_table(name: str, phrases: Mapping[str, str]) -> PhraseTable[Any]:
    meanings = _MEANINGS.get(name, {})
    if name in ("numbers", "one_of"):
        meanings = {number: float(number) for number in phrases}
    elif name in ("weekdays", "months"):
        meanings = {number: int(number) for number in phrases}
    return PhraseTable(
        _ANYWHERE.get(name, {}), {meanings.get(meaning, meaning): text for meaning, text in phrases.items()}
    )


def _money_writer(sign_first: bool, signs_after: Sequence[str]) -> Callable[[str, str], str]:
    def write(number: str, sign: str) -> str:
        if sign in signs_after:
            return f"{number}{sign}"
        if not sign_first:
            return f"{number} {sign}"
        return f"{sign} {number}" if sign[-1].isalpha() else f"{sign}{number}"

    return write


def _date_writer(pattern: str, months: str, first: str) -> Callable[[date], str]:
    """Return a function that writes dates. In some languages the first of a month is an ordinal."""
    names = months.split() or [str(month) for month in range(1, 13)]

    def write(day: date) -> str:
        number = first if day.day == 1 else str(day.day)
        return pattern.format(day=number, month=names[day.month - 1], year=day.year)

    return write


def _read_followups(code: str, section: Mapping[str, Any]) -> FollowupWords:
    words: dict[str, Any] = {
        field.name: fold_words(section.get(field.name, ""))
        for field in fields(FollowupWords)
        if field.type == frozenset[str]
    }
    words["empty"] = fold_words(STOPWORDS[code]).union(*(words[name] for name in words.keys() - _CONTENT_WORDS))
    words["comparing"] |= words["grading"]
    openings = {
        Opening.JOIN: _split_phrases(section["joins"]),
        Opening.SHIFT: _split_phrases(section["shifts"]),
        Opening.CORRECT: _split_phrases(section["corrects"]),
        None: _split_phrases(section["chats"]),
    }
    settings: dict[str, Any] = {
        name: section[name] for name in ("possessive", "adjectives_first", "capitals") if name in section
    }
    return FollowupWords(
        language=code,
        joins=openings[Opening.JOIN],
        openings=_index_openings(openings),
        pointing=_split_phrases(section["pointing"]),
        among=_split_phrases(section["among"]),
        holding=_split_phrases(section.get("holding", "")),
        relatives={relative: fold_words(owners) for relative, owners in section["relatives"].items()},
        slots=tuple(fold_words(slot) for slot in section["slots"].split("|")),
        swapping=section["swapping"],
        **settings,
        **words,
    )


def _split_phrases(phrases: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) for phrase in fold(phrases).split("|"))


def _index_openings(
    lists: Mapping[Opening | None, Sequence[str]],
) -> dict[str, list[tuple[str, Opening | None]]]:
    by_first_word: dict[str, list[tuple[str, Opening | None]]] = {}
    phrases = [(phrase, opening) for opening, group in lists.items() for phrase in group]
    for phrase, opening in sorted(phrases, key=lambda pair: -len(pair[0].split())):
        by_first_word.setdefault(phrase.rstrip(",").split()[0], []).append((phrase, opening))
    return by_first_word
