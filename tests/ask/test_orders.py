"""Numbers and orders: how many there are, what comes first, and what a question does not ask for."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from tests.ask.conftest import Asked, Data, demo_items, opened_small

from portico.ask.suggestions import starters

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMMED_UP = frozenset({"list", "summarize"})


# How many


@pytest.mark.parametrize("mode", ["summarize", "generate"])
@pytest.mark.parametrize(
    ("question", "collection", "said"),
    [
        ("how many books do you have?", "books", "{} books fit."),
        ("how many events are there?", "events", "{} events fit."),
        ("how many places are there?", "places", "{} places fit."),
        ("Wie viele Bücher gibt es?", "books", "{} Bücher passen."),
        ("¿Cuántos restaurantes hay?", "restaurants", "{} sitios para comer encajan."),
        ("Combien de livres avez-vous ?", "books", "{} livres conviennent."),
    ],
)
async def test_who_asks_how_many_there_are_is_told(
    demo: Asked, question: str, collection: str, said: str, mode: str
) -> None:
    answer = await demo(question, modes=frozenset({"list", mode}))

    assert answer.text.startswith(said.format(len(demo_items(collection))))


async def test_what_is_counted_keeps_to_the_limits_of_the_question(demo: Asked, recipes: dict[str, Data]) -> None:
    asked = "cheapest kettle under £40", "how many vegetarian recipes do you have?", "and vegan?"
    vegetarian, vegan = [await demo.turn(*asked[: n + 1], modes=SUMMED_UP) for n in (1, 2)]

    meatless = [data for data in recipes.values() if {"vegetarian", "vegan"} & set(data["suitableForDiet"])]
    assert vegetarian.text.startswith(f"{len(meatless)} recipes fit.")
    assert vegan.text.startswith(f"{sum('vegan' in data['suitableForDiet'] for data in meatless)} recipes fit.")


async def test_what_is_merely_near_in_meaning_is_not_counted_among_what_fits(demo: Asked) -> None:
    answer = await demo("recipes with lentils", modes=SUMMED_UP)

    assert answer.text.startswith("The best match is Red Lentil Dal with Lime Pickle")


# In which order


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fair() -> AsyncIterator[Asked]:
    """Events before and after today, and things that cost more than they do."""
    now = datetime.now(UTC)
    days = {"over": -30, "later": 60, "soon": 3, "last": 90, "next": 20}
    events: dict[str, Data] = {
        name: {
            "@type": "Event",
            "name": f"Lantern walk {name}",
            "startDate": (now + timedelta(days=day)).isoformat(),
            "price": 1,
        }
        for name, day in days.items()
    }
    products: dict[str, Data] = {
        f"lantern-{n}": {"@type": "Product", "name": f"Lantern {n}", "price": 10 + n} for n in range(3)
    }
    kinds = {
        "events": {"type": "Event", "fields": {"startDate": {"type": "timestamp"}}},
        "products": {"type": "Product", "fields": {"price": {"type": "number"}}},
    }
    async with opened_small({"events": events, "products": products}, kinds) as asked:
        yield asked


@pytest.mark.parametrize("language", ["en", "de", "es", "fr"])
async def test_what_is_to_come_is_begun_with_and_comes_in_its_order(fair: Asked, language: str) -> None:
    collection = fair.parts.site.catalog.collections["events"]
    answer = await fair(*starters([collection], language), language=language)

    assert answer.ids == ["soon", "next", "later", "last"]


@pytest.mark.parametrize(
    ("language", "question"), [("en", "next event"), ("es", "próximos eventos"), ("de", "nächste Veranstaltungen")]
)
async def test_the_next_of_what_takes_place_is_none_that_is_over(fair: Asked, language: str, question: str) -> None:
    assert (await fair(question, language=language)).ids == ["soon", "next", "later", "last"]


async def test_things_of_several_kinds_are_not_counted_as_the_first_of_them(fair: Asked) -> None:
    answer = await fair("cheapest lantern", modes=SUMMED_UP, limit=3)

    assert {found.item.collection for found in answer.found} == {"events"}
    assert answer.text.startswith("8 results fit.")


@pytest.mark.parametrize("question", ["cheapest kettle", "compare the two cheapest kettles"])
async def test_what_is_named_is_put_in_order_and_nothing_else(demo: Asked, question: str) -> None:
    assert (await demo(question)).names == ["fish-kettle"]
    assert (await demo(question, filters={"site": "products"})).names == ["fish-kettle"]


async def test_what_is_called_so_but_costs_more_is_named_and_nothing_else_is_put_in_its_place(demo: Asked) -> None:
    answer = await demo("cheapest kettle under £40")

    assert not answer.found
    assert answer.notes == ("This would fit, but not with this limit (price under £40): Fish Kettle.",)


async def test_what_only_speaks_of_a_thing_is_not_put_in_order_with_it(fair: Asked) -> None:
    sold = {"rope": {"@type": "Product", "name": "Rope", "description": "To hang up a whistle.", "price": 1}}
    await fair.put("products", {**sold, "tin": {"@type": "Product", "name": "Tin whistle", "price": 5}})

    assert (await fair("cheapest whistle")).ids == ["tin"]


async def test_what_is_not_there_is_not_found_in_any_order(demo: Asked) -> None:
    answer = await demo("cheapest unicorn")

    assert not answer.found
    assert answer.notes == ("I found nothing for “cheapest unicorn”.",)


async def test_the_order_that_was_asked_for_last_holds(demo: Asked) -> None:
    answer = await demo.turn("Cheapest products", "The best rated")

    assert answer.limits == {"best rated": "rating value: highest first"}


async def test_the_best_rated_are_asked_for_in_other_words_too(demo: Asked) -> None:
    wordings = ("restaurantes con mejor valoración", "Restaurants mit der besten Bewertung")
    first = [(await demo(each)).found[0].item.data["aggregateRating"]["ratingValue"] for each in wordings]

    best = max(each["aggregateRating"]["ratingValue"] for each in demo_items("restaurants").values())
    assert first == [best, best]


async def test_which_of_them_stays_among_them_and_what_is_quick_takes_little_time(
    demo: Asked, recipes: dict[str, Data]
) -> None:
    answer = await demo.turn("a warm soup without meat", "which of them is the quickest?", limit=50)

    assert {each.says for each in answer.constraints} == {
        "without meat",
        "recipe category: soup",
        "total time: lowest first",
    }
    assert {recipes[id]["recipeCategory"] for id in answer.ids} == {"soup"}


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Concerts in January", "kind: Concerts"),
        ("Konzerte im Januar", "Art: Konzerte"),
        ("a library", "kind: library"),
    ],
)
async def test_a_kind_is_called_as_it_was_asked_for(demo: Asked, question: str, said: str) -> None:
    assert said in [each.says for each in (await demo(question)).constraints]


# What a question does not ask for


@pytest.mark.parametrize("question", ["Is the library open on Sunday?", "Hat die Bibliothek am Sonntag geöffnet?"])
async def test_a_day_on_which_something_is_open_is_no_date_of_an_event(demo: Asked, question: str) -> None:
    answer = await demo(question)

    assert {each.field for each in answer.constraints} <= {"@type"}
    assert answer.found


@pytest.mark.parametrize("question", ["vegane Suppen", "Suppen unter 30 Minuten"])
async def test_several_of_a_category_are_called_so_in_other_languages(
    demo: Asked, recipes: dict[str, Data], question: str
) -> None:
    answer = await demo(question, limit=50, filters={"site": "recipes"})

    assert {recipes[id]["recipeCategory"] for id in answer.ids} == {"soup"}


@pytest.mark.parametrize(
    "question", ["where can I park?", "what is on this weekend?", "events", "how do I get to the lighthouse?"]
)
async def test_a_question_about_something_else_keeps_no_limits(demo: Asked, question: str) -> None:
    answer = await demo.turn("cheapest kettle under £40", question)

    assert answer.understood.text == question
    assert not [each for each in answer.constraints if "price" in each.field]


# The word that names the collection


DISHES: dict[str, Data] = {
    "bread": {"name": "Bread", "description": "With butter.", "price": 2.5},
    "soup": {"name": "Lentil soup", "description": "A warm soup.", "price": 4.5},
    "lasagne": {"name": "Lasagne", "description": "Our most loved dish.", "price": 14},
    "steak": {"name": "Steak", "description": "A hearty dish with fries.", "price": 22},
}
TOOLS: dict[str, Data] = {"spoon": {"name": "Spoon", "description": "For any dish.", "price": 1}}


@pytest.mark.parametrize(
    ("question", "ids"),
    [
        ("cheapest dishes", ["bread", "soup", "lasagne", "steak"]),
        ("the cheapest dish", ["bread", "soup", "lasagne", "steak"]),
        ("show me the most expensive dishes", ["steak", "lasagne", "soup", "bread"]),
        ("dishes under 5", ["bread", "soup"]),
        ("cheap dishes", ["bread", "soup", "lasagne", "steak"]),
    ],
)
async def test_the_word_that_names_a_collection_of_no_type_is_not_searched_for(question: str, ids: list[str]) -> None:
    async with opened_small({"dishes": DISHES, "tools": TOOLS}) as asked:
        answer = await asked(question)

    assert (answer.ids if "under" not in question else sorted(answer.ids)) == ids
