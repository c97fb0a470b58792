"""From text to words."""

import pytest

from portico.catalog import Collection, Field, FieldType
from portico.items import Item
from portico.search.index.text import Term, fold, parse_text_query, passages, stemmer, text_to_embed, words


def stems_of(text: str, language: str) -> list[str]:
    return [stemmer(language)(word) for word in words(text)]


def item(**data: object) -> Item:
    return Item("a", "things", data)


@pytest.mark.parametrize(
    ("text", "language", "stems"),
    [
        ("Running runners ran", "en", ["run", "runner", "ran"]),
        ("Die Häuser der Städte", "de", ["die", "haus", "der", "stadt"]),
        ("les élèves mangent", "fr", ["le", "elev", "mangent"]),
        ("Straße", "de", ["strass"]),
        ("plain words", "xx", ["plain", "words"]),
        ("snake_case e-mail don't 3.14", "en", ["snake", "case", "e", "mail", "don", "t", "3", "14"]),
        ("CAFÉ café Cafe cafe\u0301", "en", ["cafe", "cafe", "cafe", "cafe"]),
        ("", "en", []),
        ("¡!?", "es", []),
    ],
)
def test_words_are_cut_stemmed_and_folded(text: str, language: str, stems: list[str]) -> None:
    assert stems_of(text, language) == stems


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert words("東京大学") == ["東京", "京大", "大学"]
    assert words("茶") == ["茶"]
    assert words("부산") == ["부산"]


@pytest.mark.parametrize(
    ("text", "language"), [("हिन्दी भाषा", "hi"), ("தமிழ் மொழி", "ta"), ("नेपाली भाषा", "ne"), ("ภาษา ไทย", "th")]
)
def test_vowel_signs_belong_to_their_word(text: str, language: str) -> None:
    assert len(stems_of(text, language)) == 2


def test_folding_makes_one_word_of_its_spellings() -> None:
    assert {fold(word) for word in ("Café", "CAFE", "café", "cafe\u0301")} == {"cafe"}
    assert (fold("ﬁne"), fold("Ångström"), fold("ß"), fold("ñ")) == ("fine", "angstrom", "ss", "n")


def test_stopwords_are_dropped_from_questions() -> None:
    assert parse_text_query("What is the best soup for me?", ("en",)).terms == (Term(("best",)), Term(("soup",)))
    assert parse_text_query("Wo gibt es eine Suppe?", ("en", "de")).terms == (Term(("supp",)),)


def test_a_question_of_nothing_but_stopwords_keeps_them() -> None:
    assert parse_text_query("to be or not to be", ("en",)).terms == tuple(
        Term((word,)) for word in ("to", "be", "or", "not")
    )


def test_a_repeated_word_counts_once() -> None:
    assert parse_text_query("soup soups SOUP", ("en",)).terms == (Term(("soup",)),)


@pytest.mark.parametrize("text", ['"lentil soup"', "“lentil soup”", 'warm "Lentil Soups" please'])
def test_quotes_ask_for_a_phrase(text: str) -> None:
    assert parse_text_query(text, ("en",)).phrases == ((Term(("lentil",)), Term(("soup",))),)


def test_a_phrase_may_be_written_with_separate_accents() -> None:
    composed, apart = '"crème brûlée"', '"cre\u0300me bru\u0302le\u0301e"'

    assert parse_text_query(apart, ("en",)).phrases == parse_text_query(composed, ("en",)).phrases


def test_a_word_has_a_stem_in_each_language_of_the_collection() -> None:
    assert parse_text_query("Häuser", ("en", "de")).terms == (Term(("hauser", "haus")),)


def test_titles_count_twice_and_weights_are_obeyed() -> None:
    collection = Collection("things", weights={"body": 3.0, "secret": 0.0, "url": 1.0})
    found = passages(item(name="N", body="B", secret="S", other="O", url="speaking words", image="I"), collection)

    assert [(p.text, p.weight) for p in found] == [("N", 2.0), ("B", 3.0), ("O", 1.0), ("speaking words", 1.0)]


def test_only_what_speaks_is_searched() -> None:
    found = passages(
        item(
            text="words",
            link="https://example.com/soup",
            when="2024-01-01",
            takes="PT5M",
            n=5,
            nested={"a": ["x", {"b": "y", "url": "no"}]},
            **{"@type": "Recipe"},
        ),
        Collection("things"),
    )

    assert [p.text for p in found] == ["words", "x", "y"]


def test_the_embedder_reads_titles_first_and_not_without_end() -> None:
    text = text_to_embed(item(body="long " * 1000, name="Title"), Collection("things"))

    assert text.startswith("Title. long")
    assert len(text) == 2000


def test_titles_are_searched_whatever_they_look_like() -> None:
    fields = [Field("Book", FieldType.INTEGER, role="title"), Field("day", FieldType.TIMESTAMP)]
    collection = Collection("things", {field.name: field for field in fields})

    assert [passage.text for passage in passages(item(Book=1984, day="2001-01-01", pages=328), collection)] == ["1984"]
    assert [passage.text for passage in passages(item(Book="1776-07-04"), collection)] == ["1776-07-04"]


def test_years_and_numbers_that_identify_are_words_and_quantities_are_not() -> None:
    fields = [Field("year", FieldType.INTEGER, format="year"), Field("order_id", FieldType.INTEGER, format="code")]
    collection = Collection("things", {field.name: field for field in fields})

    assert [passage.text for passage in passages(item(year=1984, order_id=10248, pages=328), collection)] == [
        "1984",
        "10248",
    ]
