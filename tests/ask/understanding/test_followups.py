"""A follow-up question stands alone: conversations, as people have them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.ask.understanding.followups import MAX_BASE, MAX_CARRIED, StandaloneQuestion, resolve_followup

DINNER = "vegetarian dinner under 30 minutes"
WROTE = "who wrote The Herring Year"
BIKES = "Where can I rent a bike near the harbour?"

# The conversation so far, the last question, and what it means.
ADDED = [
    ([DINNER], "and without nuts", f"{DINNER} without nuts"),
    ([DINNER], "cheaper ones", f"cheaper {DINNER}"),
    ([DINNER], "cheaper", f"cheaper {DINNER}"),
    (["restaurants near the harbour"], "and for kids?", "restaurants near the harbour for kids"),
    (["restaurants near the harbour"], "I'd prefer something with fish", "restaurants near the harbour with fish"),
    (["soup recipes"], "no nuts please", "soup recipes no nuts"),
    (["soup recipes"], "any vegan ones?", "vegan soup recipes"),
    (["soup recipes"], "ones with rice", "soup recipes with rice"),
    (["soup recipes"], "something with rice in it", "soup recipes with rice in it"),
    (["soup recipes"], "vegan", "soup recipes, vegan"),
    (["hiking trails near Bergen"], "shorter than 5 km", "hiking trails near Bergen, shorter than 5 km"),
    (["flights to Lisbon"], "direct only", "flights to Lisbon, direct"),
    ([BIKES], "and for kids?", "Where can I rent a bike near the harbour for kids?"),
    (
        [BIKES, "and for kids?"],
        "without a deposit",
        "Where can I rent a bike near the harbour for kids without a deposit?",
    ),
]
REPLACED = [
    (["concerts in December"], "what about January", "concerts in January"),
    ([DINNER], "no, I meant vegan", "vegan dinner under 30 minutes"),
    ([DINNER], "actually under 20 minutes", "vegetarian dinner under 20 minutes"),
    ([DINNER], "20 minutes?", "vegetarian dinner under 20 minutes"),
    ([DINNER], "only vegan ones", "vegan dinner under 30 minutes"),
    (["recipes under 500 calories"], "up to 400", "recipes up to 400 calories"),
    (["dinner for 2 people"], "make it 4", "dinner for 4 people"),
    (["best films of 2024"], "and 2023?", "best films of 2023"),
    (["red shoes"], "in blue", "blue shoes"),
    (["hotels in Rome"], "and in Paris?", "hotels in Paris"),
    (["hotels in Rome"], "what about Paris?", "hotels in Paris"),
    (["hotels in Rome"], "Paris?", "hotels in Paris"),
    (["flights to Lisbon in May"], "to Porto", "flights to Porto in May"),
    (["flights to Lisbon in May"], "and in June with a stop?", "flights to Lisbon in June with a stop"),
    (["who wrote Emma?"], "what about Dracula?", "who wrote Dracula?"),
    (["what is the capital of France"], "and of Germany?", "what is the capital of Germany"),
    (["fish stew with potatoes"], "instead of fish, meat", "meat stew with potatoes"),
    (["fish stew with potatoes"], "meat instead of fish", "meat stew with potatoes"),
    (["fish stew"], "meat instead", "fish stew, meat"),
]
NAMED = [
    ([WROTE], "how many pages does it have", "how many pages does The Herring Year have"),
    ([WROTE, "how many pages does it have"], "and who published it?", "who published The Herring Year?"),
    (["The Herring Year"], "who is its author?", "who is The Herring Year's author?"),
    (["museums in Berlin"], "are they open on Sundays?", "are museums in Berlin open on Sundays?"),
    (["who was Marie Curie?"], "where is she buried?", "where is Marie Curie buried?"),
    (["how do I renew my passport"], "can I do that online?", "renew my passport: can I do that online?"),
    (["The Herring Year"], "a film that is based on it", "a film that is based on The Herring Year"),
    (["who was Marie Curie?"], "a film that shows her life", "a film that shows Marie Curie's life"),
    (["The Herring Year"], "explain that its price is high", "explain that The Herring Year's price is high"),
]
LEFT_OUT = [
    (["lighthouse"], "opening hours", "lighthouse: opening hours"),
    (["pubs with a view"], "which is better rated?", "pubs with a view: which is better rated?"),
    (["the great wall of china"], "how long is the wall?", "the great wall of china: how long is the wall?"),
    (["how do I renew my passport"], "what documents do I need?", "renew my passport: what documents do I need?"),
    ([DINNER], "why?", f"{DINNER}: why?"),
]
POINTED = [
    ([DINNER, "and without nuts"], "which of those is cheapest", f"{DINNER} without nuts: which is cheapest"),
    ([DINNER], "is the second one spicy?", f"{DINNER}: is the second one spicy?"),
    ([DINNER], "tell me more about the first", f"{DINNER}: more about the first"),
    ([DINNER], "more like that", f"{DINNER}: more like that"),
    ([DINNER], "compare them", f"{DINNER}: compare them"),
    ([DINNER], "which one is best for winter?", f"{DINNER}: which one is best for winter?"),
    (["events this weekend"], "are these free?", "events this weekend: are these free?"),
    (["hiking trails"], "the longest one", "longest hiking trails"),
    (["What is the cheapest lamp?"], "and the most expensive one?", "What is the most expensive lamp?"),
]
OTHER_LANGUAGES = [
    ("de", "vegetarisches Abendessen", "und ohne Nüsse", "vegetarisches Abendessen ohne Nüsse"),
    (
        "de",
        "vegetarisches Abendessen",
        "welche davon ist am besten?",
        "vegetarisches Abendessen: welche ist am besten?",
    ),
    ("de", "Konzerte im Dezember", "was ist mit Januar?", "Konzerte im Januar"),
    ("de", "Hotels in Rom", "und in Paris?", "Hotels in Paris"),
    ("de", "Hotels in Rom", "günstigere", "günstigere Hotels in Rom"),
    ("de", "Suppe mit Fisch", "Fleisch statt Fisch", "Suppe mit Fleisch"),
    ("de", "Wer schrieb Das Heringsjahr", "wie viele Seiten hat es?", "wie viele Seiten hat Das Heringsjahr?"),
    ("de-AT", "Leuchtturm", "Wie sind die Öffnungszeiten?", "Leuchtturm: Wie sind die Öffnungszeiten?"),
    ("es", "cena vegetariana", "y sin nueces", "cena vegetariana sin nueces"),
    ("es", "cena vegetariana", "¿cuál de esas es la mejor?", "cena vegetariana: cuál es la mejor"),
    ("es", "conciertos en diciembre", "¿y en enero?", "conciertos en enero"),
    ("es", "hoteles en Roma", "más baratos", "hoteles en Roma más baratos"),
    ("fr", "dîner végétarien", "et sans noix", "dîner végétarien sans noix"),
    ("fr", "dîner végétarien", "lequel d'entre eux est le meilleur ?", "dîner végétarien: lequel est le meilleur?"),
    ("fr", "concerts en décembre", "et en janvier ?", "concerts en janvier"),
    ("fr", "hôtels à Rome", "et à Paris ?", "hôtels à Paris"),
]
ALONE = [
    ("hotels in Rome", "best pasta recipe"),
    ("hotels in Rome", "hostels in Rome"),
    ("hotels in Rome", "cheap hotels in Rome with a pool"),
    ("museums in Berlin", "which museums in Berlin are free?"),
    ("lemon soup", "what about the lighthouse opening hours?"),
    ("lemon soup", "lemon soup with rice"),
    ("lemon soup", "lighthouse"),
    ("lemon soup", "how do I renew my passport?"),
    ("lemon soup", "is it safe to swim in the harbour?"),
    ("lemon soup", "if the boat is late, can I cancel it?"),
    ("lemon soup", "the first man on the moon"),
    ("lemon soup", "hotels for one night in Rome"),
    ("lemon soup", "concerts this week in Oslo"),
    ("lemon soup", "so what is the capital of France?"),
    ("what is a heat pump", "what is a galaxy?"),
    (WROTE, "who is Ada Lovelace?"),
]
# A pronoun speaks of what stands before it in the same question.
SAID_INSIDE = [
    ("en", "something protein rich that has cinnamon in it"),
    ("en", "a recipe that has nuts in it"),
    ("en", "a book with pictures in it"),
    ("en", "recipes with rice in them"),
    ("en", "I want a cake without nuts in it"),
    ("en", "someone who lost their keys"),
    ("en", "a man who lost his dog"),
    ("en", "something that keeps its shape"),
    ("en", "a hotel with its own beach"),
    ("de", "etwas mit Zimt drin"),
    ("de", "ein Buch mit Bildern darin"),
    ("de", "ein Haus ohne Möbel in ihm"),
    ("de", "jemand der seine Schlüssel verloren hat"),
    ("es", "una receta que lleva nueces en ella"),
    ("es", "alguien que perdió sus llaves"),
    ("fr", "un gâteau avec des noix dedans"),
    ("fr", "quelqu'un qui a perdu ses clés"),
]


@pytest.mark.parametrize(("previous", "text", "meant"), ADDED + REPLACED + NAMED + LEFT_OUT)
def test_a_question_that_leans_on_the_conversation_says_what_it_means(
    previous: list[str], text: str, meant: str
) -> None:
    answer = resolve_followup(text, previous)

    assert (answer.text, answer.is_followup, answer.has_reference) == (meant, True, False)


@pytest.mark.parametrize(("previous", "text", "meant"), POINTED)
def test_a_question_about_what_was_shown_refers_to_it(previous: list[str], text: str, meant: str) -> None:
    assert resolve_followup(text, previous) == StandaloneQuestion(
        meant, tuple(previous), is_followup=True, has_reference=True
    )


@pytest.mark.parametrize(("language", "previous", "text", "meant"), OTHER_LANGUAGES)
def test_other_languages_have_follow_ups_too(language: str, previous: str, text: str, meant: str) -> None:
    answer = resolve_followup(text, [previous], language)

    assert (answer.text, answer.carried_questions, answer.is_followup) == (meant, (previous,), True)


@pytest.mark.parametrize(("previous", "text"), ALONE)
def test_a_topic_of_its_own_is_left_as_it_is(previous: str, text: str) -> None:
    assert resolve_followup(text, [previous]) == StandaloneQuestion(text)


@pytest.mark.parametrize(("language", "text"), SAID_INSIDE)
def test_a_pronoun_that_the_question_explains_itself_needs_no_other(language: str, text: str) -> None:
    assert resolve_followup(text, ["breakfast muffins", "high fiber snacks"], language) == StandaloneQuestion(text)


@pytest.mark.parametrize(("previous", "text", "meant"), ADDED + NAMED + LEFT_OUT + POINTED)
def test_what_was_made_to_stand_alone_needs_the_conversation_no_more(
    previous: list[str], text: str, meant: str
) -> None:
    assert resolve_followup(meant, previous) == StandaloneQuestion(meant)


def test_all_questions_that_still_hold_are_carried_oldest_first() -> None:
    answer = resolve_followup("which of those is cheapest", ["boat tours", DINNER, "and without nuts"])

    assert answer.carried_questions == (DINNER, "and without nuts")


def test_a_constraint_that_was_replaced_is_carried_no_more() -> None:
    previous = ["concerts in December", "what about January", "with piano"]

    assert resolve_followup("and in February?", previous) == StandaloneQuestion(
        "concerts in February with piano", ("concerts in December", "with piano"), is_followup=True
    )


def test_a_new_topic_ends_what_was_carried() -> None:
    previous = [DINNER, "and without nuts", "hotels in Rome"]

    assert resolve_followup("with a pool", previous) == StandaloneQuestion(
        "hotels in Rome with a pool", ("hotels in Rome",), is_followup=True
    )


def test_of_many_constraints_the_topic_and_the_latest_are_carried() -> None:
    constraints = [f"without {each}" for each in ("nuts", "onions", "salt", "milk", "wheat", "soy")]

    answer = resolve_followup("and cheaper", ["soup", *constraints])

    assert answer.carried_questions == ("soup", *constraints[1 - MAX_CARRIED :])
    assert answer.text == "cheaper soup " + " ".join(constraints)


def test_of_a_long_question_only_the_names_are_carried() -> None:
    story = "I am planning a summer journey to Norway with my family, two dogs and a tent. " * 4

    assert resolve_followup("what are the requirements?", [story]) == StandaloneQuestion(
        "Norway: what are the requirements?", (story,), is_followup=True
    )


@pytest.mark.parametrize("previous", [[], [""], ["  ", "\n"]])
def test_the_first_question_stands_alone(previous: list[str]) -> None:
    assert resolve_followup("and without nuts", previous) == StandaloneQuestion("and without nuts")


def test_nothing_is_made_of_an_empty_question() -> None:
    assert resolve_followup(" ", [DINNER]) == StandaloneQuestion(" ")


PIECES = """and what about it those which of the first one ones in Rome under 30 minutes instead vegan no, not cheaper ?
¿ ’s January soup recipes near harbour her this ß İ 寿司 \u0301 {} %s"""
WORDS = st.sampled_from(PIECES.split())
QUESTIONS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=60)
LANGUAGES = st.sampled_from(["en", "de", "es", "fr", "xx", ""])


@given(QUESTIONS, st.lists(QUESTIONS, max_size=8), LANGUAGES)
def test_any_conversation_is_read_and_adds_only_so_much(text: str, previous: list[str], language: str) -> None:
    answer = resolve_followup(text, previous, language)

    assert len(answer.text) <= len(text) + MAX_BASE + 20
    assert len(answer.carried_questions) <= MAX_CARRIED
    assert set(answer.carried_questions) <= set(previous)
    assert answer.is_followup or answer == StandaloneQuestion(text)


@given(st.text(min_size=1, max_size=4).map(lambda part: (part * 10_000)[:10_000]), QUESTIONS)
def test_a_very_long_question_stands_alone(long: str, previous: str) -> None:
    assert resolve_followup(long, [previous] * 50) == StandaloneQuestion(long)


@given(st.text(min_size=1, max_size=4).map(lambda part: (part * 10_000)[:10_000]), QUESTIONS)
def test_of_very_long_previous_questions_little_is_added(long: str, text: str) -> None:
    assert len(resolve_followup(text, [long] * 50).text) <= len(text) + MAX_BASE + 20
