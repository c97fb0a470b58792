"""What people say to a site in passing: tell me more, who can I talk to, and words with a slip in them."""

from typing import Any

import pytest
from tests.ask.conftest import Asked, Opened, demo_items

from portico.ask.answers import find_accepted_answer as reply_to
from portico.ask.languages.localization import LANGUAGES, phrases
from portico.ask.opening_hours import WEEK_WORDS, render_hours
from portico.ask.suggestions import TEMPLATES
from portico.ask.understanding.contact_intent import is_contact_request
from portico.ask.understanding.detail_intent import subject_of
from portico.ask.understanding.references import find_pointers
from portico.ask.understanding.spelling import find_nearest
from portico.items import Item
from portico.query import Condition

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMMED_UP = frozenset({"list", "summarize"})


# Tell me more


@pytest.mark.parametrize("question", [each.more.format("Fish Kettle") for each in TEMPLATES.values()])
async def test_what_is_offered_to_be_told_of_is_read_in_every_language(question: str) -> None:
    assert subject_of(question) == "Fish Kettle"


@pytest.mark.parametrize("language", TEMPLATES)
async def test_what_is_offered_by_a_name_that_is_a_question_is_found_by_it(demo: Asked, language: str) -> None:
    name = "Which pubs allow dogs?"
    answer = await demo(TEMPLATES[language].more.format(phrases(language).name(name)), modes=SUMMED_UP)

    assert [each.item.data["name"] for each in answer.found] == [name]


@pytest.mark.parametrize("question", ["cheapest kettle", "what is on tonight?", "recipes with more protein"])
async def test_who_looks_for_something_does_not_want_to_be_told_of_it(question: str) -> None:
    assert subject_of(question) == ""


@pytest.mark.parametrize("mode", ["summarize", "generate"])
async def test_who_wants_to_be_told_of_a_thing_is_told_what_it_says(demo: Asked, mode: Any) -> None:
    answer = await demo("Tell me more about the Fish Kettle", modes=frozenset({"list", mode}))

    kettle = demo_items("products")["products/fish-kettle"]
    assert answer.names == ["fish-kettle"]
    assert answer.text.startswith(f"Fish Kettle: costs £68, rated 3.8. {kettle['description']} Category: kitchen; ")
    assert "stock: 4" in answer.text


async def test_what_only_one_thing_fits_is_told_of_without_its_name(demo: Asked) -> None:
    answer = await demo("tell me about the library", modes=SUMMED_UP)

    library = demo_items("places")["places/town-library"]
    assert library["description"] in answer.text
    assert "opening hours: Mon–Fri 09:30–18:00 and Sat 09:30–13:00" in answer.text


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("opening hours of the library", "Merrow Bay Library: open Mon–Fri 09:30–18:00 and Sat 09:30–13:00, at"),
        ("when is the museum open?", "Museum of the Herring: open Tue–Sun 10:00–17:00, at"),
        ("is the museum open on sunday", "Museum of the Herring: open Tue–Sun 10:00–17:00, at"),
        ("what time does the library open?", "Merrow Bay Library: open Mon–Fri 09:30–18:00 and Sat 09:30–13:00, at"),
        ("a library", "Merrow Bay Library: at"),
    ],
)
async def test_who_asks_when_something_is_open_is_told(demo: Asked, question: str, said: str) -> None:
    assert said in (await demo(question, modes=SUMMED_UP)).text


@pytest.mark.parametrize(
    ("language", "written", "said"),
    [
        ("en", "Mo-Su 00:00-23:59", "day and night"),
        ("en", "Mo-Su 10:00-17:00", "every day 10:00–17:00"),
        ("en", "Mo,We,Fr 09:00-12:00", "Mon, Wed, Fri 09:00–12:00"),
        ("en", "Sa-Su 00:00-24:00", "Sat–Sun day and night"),
        ("de", "Tu-Su 10:00-17:00", "Di–So 10:00–17:00"),
        ("fr", "Mo-Su 08:00-20:00", "tous les jours 08:00–20:00"),
        ("en", "Su", "Sun"),
        ("en", "by appointment", "by appointment"),
        ("en", "Mo-Fr 9am to 5pm", "Mo-Fr 9am to 5pm"),
    ],
)
async def test_hours_are_written_as_people_write_them(language: str, written: str, said: str) -> None:
    assert render_hours(written, language) == said


async def test_every_language_has_a_week() -> None:
    assert set(WEEK_WORDS) == set(LANGUAGES)


# Questions that were answered before


async def test_a_summary_says_what_was_answered_before(demo: Asked) -> None:
    parking = await demo("where can I park?", modes=SUMMED_UP)
    dogs = await demo("can I bring my dog to the beach?", modes=SUMMED_UP)

    faqs = demo_items("faqs")
    assert parking.text.startswith(faqs["faqs/where-should-i-park"]["acceptedAnswer"]["text"])
    allowed = next(each for each in faqs.values() if each["name"] == "Where are dogs allowed on the beach?")
    said = f"The best match is “{allowed['name']}”. {allowed['acceptedAnswer']['text']}"
    assert dogs.text.startswith(said)


async def test_who_asks_where_something_is_is_not_told_how_to_join_it(demo: Asked) -> None:
    answer = await demo("where is the library?", modes=frozenset({"list", "generate"}))

    assert "Membership" not in answer.text


@pytest.mark.parametrize(
    ("language", "question", "answered"),
    [
        ("es", "¿Dónde está la sala?", "¿Cómo está la sala?"),
        ("fr", "Quand ouvre la salle ?", "Où ouvre la salle ?"),
    ],
)
async def test_what_was_asked_with_another_question_word_is_no_answer(
    language: str, question: str, answered: str
) -> None:
    item = Item("q", "questions", {"name": answered, "acceptedAnswer": {"text": "Ask at the counter in the hall."}})

    assert reply_to(question, [item], phrases(language)) is None
    assert reply_to(answered, [item], phrases(language)) is not None


# Whom to reach


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("I want to speak to a human", True),
        ("contact", True),
        ("How can I contact you?", True),
        ("What is your phone number?", True),
        ("Ich möchte mit einem Menschen sprechen", True),
        ("quiero hablar con una persona", True),
        ("je voudrais parler à quelqu'un", True),
        ("phone", False),
        ("contact lenses", False),
        ("a book about a real person", False),
        ("who can speak German?", False),
    ],
)
async def test_who_wants_to_reach_a_person_says_nothing_else(text: str, wants: bool) -> None:
    assert is_contact_request(text) is wants


async def test_who_wants_a_person_is_told_how_to_reach_one(demo: Asked) -> None:
    answer = await demo("I want to speak to a human", "kettle", modes=SUMMED_UP)
    listed = await demo("contact")

    said = "You can reach Merrow Bay Town Hall here: 01632 960100, counter@townhall.merrowbay.example."
    assert (answer.names, answer.text.strip()) == (["town-hall"], said)
    assert (listed.names, listed.notes) == (["town-hall"], (said,))


async def test_who_may_not_find_the_one_who_speaks_for_the_site_is_not_told_of_it(demo: Asked) -> None:
    answer = await demo("contact", where=Condition("name", "eq", "Kelp"))

    assert (answer.found, answer.notes) == ([], ("This site does not say how to reach a person.",))


async def test_a_site_that_nobody_speaks_for_says_so_or_what_it_answered_before(small: Opened) -> None:
    shops = {"s1": {"name": "Human Touch", "telephone": "1"}, "s2": {"name": "Speak Easy", "telephone": "2"}}
    asked = {"name": "How do I contact you?", "acceptedAnswer": {"text": "Ring the bell at the door."}}
    async with small({"shops": shops}) as ask:
        silent = await ask("I want to speak to a human", modes=SUMMED_UP)
        await ask.put("shops", {"s1": {"contactPoint": {"telephone": "1"}}, "s2": {"contactPoint": {"email": "2"}}})
        torn = await ask("contact")
        await ask.put("shops", {"q": {"@type": "Question", **asked}})
        known = await ask("how can I contact you?", modes=SUMMED_UP)

    for unsaid in (silent, torn):
        assert (unsaid.found, unsaid.notes) == ([], ("This site does not say how to reach a person.",))
    assert known.text.strip() == "Ring the bell at the door."


# Slips


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ketle", "kettle"),
        ("recipie", "recipe"),
        ("vegtarian", "vegetarian"),
        ("veegtarain", "vegetarian"),
        ("boots", None),  # no slip for books: a letter in the place of another makes a new word too often
        ("kettl3", None),
        ("tide", None),
        ("mettle", None),
    ],
)
async def test_a_slip_is_one_letter_or_two_of_a_long_word(word: str, meant: str | None) -> None:
    assert find_nearest(word, {"kettle": 1, "recipe": 3, "vegetarian": 2, "books": 9, "tidy": 1}) == meant


async def test_a_word_that_nothing_says_is_taken_for_the_nearest_one_and_that_is_said(demo: Asked) -> None:
    alone = await demo("ketle", modes=SUMMED_UP)
    beside = await demo("lentl soup")
    limit = await demo("vegetrian recipes")

    said = "Nothing here says “ketle”. Showing results for “kettle”. "
    assert alone.names[0] == "fish-kettle"
    assert alone.text.startswith(said)
    assert beside.names[0] == "red-lentil-dal-with-lime-pickle"
    assert beside.notes == ("Nothing here says “lentl”. Showing results for “lentil”.",)
    assert limit.limits == {"vegetarian": "suitable for: vegetarian"}


async def test_a_word_that_something_says_is_as_it_is_meant(small: Opened) -> None:
    things = {"a": {"name": "Kettle"}, "b": {"name": "Pot", "description": "By Anna Ketle, who makes " + "many " * 20}}
    async with small({"things": things}) as ask:
        answer = await ask("ketle")

    assert (answer.ids, answer.notes) == (["b"], ())


# The second one


@pytest.mark.parametrize(
    ("question", "understood"),
    [
        ("the second one", "Tell me more about {1}"),
        ("What about the third?", "Tell me more about {2}"),
        ("and the last one?", "Tell me more about {9}"),
        ("How long does the second one take?", "How long does {1} take?"),
        ("compare the first two", "compare {0} and {1}"),
        ("compare the first and the third", "compare {0} and {2}"),
    ],
)
async def test_who_points_at_a_result_by_its_place_means_that_one(demo: Asked, question: str, understood: str) -> None:
    before = await demo("vegan recipes under 30 minutes")
    shown = [each.item.data["name"] for each in before.found]

    answer = await demo(question, "vegan recipes under 30 minutes", modes=SUMMED_UP)

    assert answer.understood.text == understood.format(*shown)
    assert answer.found[0].item.data["name"] in understood.format(*shown)


async def test_what_was_pointed_at_is_what_is_spoken_of_next(demo: Asked) -> None:
    before = await demo("vegan recipes under 30 minutes")
    second = before.found[1].item

    answer = await demo(
        "how long does it take?",
        "vegan recipes under 30 minutes",
        "the second one",
        modes=frozenset({"list", "generate"}),
    )

    assert answer.said[0].cites == (second.ref,)
    assert answer.said[0].text.startswith(f"{second.data['name']}: takes ")


@pytest.mark.parametrize("question", ["the first aid kit", "first edition books", "the 99th one", "number nine lives"])
async def test_what_points_at_nothing_is_as_it_was_said(question: str) -> None:
    assert find_pointers(question) == []


async def test_a_place_that_nothing_has_is_given_up(small: Opened) -> None:
    async with small({"dishes": {"a": {"@type": "Recipe", "name": "Pea soup"}}}) as ask:
        answer = await ask("the third one", "soup")

    assert "Tell me" not in answer.understood.text


@pytest.mark.parametrize("question", ["der zweite", "el segundo", "la deuxième", "número 2", "the 2nd one"])
async def test_places_are_read_in_several_languages(question: str) -> None:
    assert [each.places for each in find_pointers(question)] == [(1,)]
