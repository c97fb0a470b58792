"""The data files of languages: complete, without unknown names, and built only when they are needed."""

import tomllib
from dataclasses import fields
from importlib.resources import files
from typing import Any

import pytest

from portico.ask.languages.lexicon import COMPARISONS, ORDERS, UNITS, FollowupWords, Lexicon
from portico.ask.languages.loader import LANGUAGES, UNDERSTOOD, load_language, supported_language
from portico.ask.understanding.dates import NAMED_INTERVALS, DateWords

READ_ONLY = {"reading", "dates", "followups"}
OPENINGS = {"shifts", "corrects", "chats"}


def language_file(code: str) -> dict[str, Any]:
    return tomllib.loads((files("portico.ask.languages") / f"{code}.toml").read_text("utf-8"))


def names_of(table: type[Any]) -> set[str]:
    return {field.name for field in fields(table)}


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_language_has_the_phrases_that_english_has(code: str) -> None:
    english, own = language_file("en"), language_file(code)

    assert set(own) | READ_ONLY == set(english)
    assert set(own) >= READ_ONLY if code in UNDERSTOOD else READ_ONLY.isdisjoint(own)
    for section in ("phrases", "small_talk"):
        assert set(own[section]) == set(english[section])
    for part in ("nouns", "questions"):
        assert set(own["phrases"][part]) == set(english["phrases"][part])
    assert set(own["limits"]) - {"words"} == set(english["limits"])


@pytest.mark.parametrize("code", UNDERSTOOD)
def test_a_misspelt_name_in_the_words_that_are_read_does_not_go_unnoticed(code: str) -> None:
    own = language_file(code)

    assert set(own["reading"]) <= names_of(Lexicon)
    assert set(own["reading"]["units"]) <= set(UNITS)
    assert set(own["reading"]["comparisons"]) <= set(COMPARISONS)
    assert set(own["reading"]["sorts"]) <= set(ORDERS)
    assert set(own["dates"]) <= names_of(DateWords)
    assert set(own["dates"]["names"]) <= set(NAMED_INTERVALS)
    assert set(own["followups"]) <= names_of(FollowupWords) | OPENINGS


def test_a_template_has_its_plural_its_optional_part_and_its_capital() -> None:
    phrases = load_language("en").phrases

    assert phrases.fit(1, "book") == "1 book fits."
    assert phrases.fit(2, "books") == "2 books fit."
    assert phrases.best("Fish Pie", []) == "The best match is Fish Pie."
    assert phrases.best("Fish [Pie]", ["45 minutes", "£5"]) == "The best match is Fish [Pie]: 45 minutes, £5."
    assert phrases.missing("table size") == "Table size?"
    assert phrases.confirm("{name}") == "Shall I do this: {name}?"


def test_a_spanish_list_says_e_before_the_sound_of_i() -> None:
    phrases = load_language("es").phrases

    assert phrases.join(["Ana", "Inés"]) == "Ana e Inés"
    assert phrases.join(["agua", "hielo"]) == "agua y hielo"


def test_questions_in_other_languages_are_read_with_the_words_of_english() -> None:
    assert [supported_language(tag) for tag in ("de-CH", "ja", "FR")] == ["de", "en", "fr"]
    assert load_language("de") is load_language("de")
