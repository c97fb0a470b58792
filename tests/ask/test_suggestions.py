"""What somebody might ask first and next: what a site can answer, in the language of whoever asks."""

import pytest

from portico.ask.events import Constraint
from portico.ask.suggestions import example_questions, followups, starters
from portico.catalog import Collection, Field, FieldType

MEALS = [
    {"name": f"Soup {minutes}", "totalTime": f"PT{minutes}M", "offers": {"price": 3.5}, "suitableForDiet": diet}
    for minutes, diet in ((10, ["vegan"]), (22, "low-fat"), (50, []))
]


def collection(title: str, *fields: str) -> Collection:
    return Collection(
        title.lower(),
        title=title,
        type={"Recipes": "Recipe"}.get(title, "Thing"),
        fields={name: Field(name, FieldType.STRING) for name in fields},
    )


@pytest.mark.parametrize(
    ("language", "first"),
    [
        ("en", ("Recipes under 30 minutes", "Best rated places", "Cheapest tea", "What is there about notes?")),
        (
            "de-AT",
            ("Rezepte unter 30 Minuten", "Bestbewertete Places", "Günstigste Tea", "Was gibt es zu Notes?"),
        ),
        ("zh", ("有哪些recipes？", "有哪些places？", "有哪些tea？", "有哪些notes？")),
        ("ar", ("Recipes", "Places", "Tea", "Notes")),
    ],
)
def test_a_site_offers_what_each_collection_can_be_asked_by(language: str, first: tuple[str, ...]) -> None:
    site = [
        collection("Recipes", "totalTime", "aggregateRating"),
        collection("Places", "totalTime", "aggregateRating"),
        collection("Tea", "offers"),
        collection("Notes"),
    ]

    assert starters(site, language) == first


def test_a_name_that_is_a_question_is_quoted_in_one() -> None:
    assert followups([{"name": "Which pubs allow dogs?"}], "de", ()) == (
        "Erzähl mir mehr über „Which pubs allow dogs?“", "Etwas wie „Which pubs allow dogs?“",
    )  # fmt: skip


def test_one_goes_on_with_what_was_found_and_by_what_sets_it_apart() -> None:
    assert followups(MEALS, "en", ()) == (
        "Tell me more about Soup 10", "Under 25 minutes", "The cheapest", "Something like Soup 10",
    )  # fmt: skip
    limits = [Constraint("totalTime", "total time under 1 hour", "under an hour"), Constraint("price", "", "")]
    assert followups(MEALS, "de", ["etwas wie soup 10 "], limits) == (
        "Erzähl mir mehr über Soup 10", "Nur vegan", "Erzähl mir mehr über Soup 22", "Erzähl mir mehr über Soup 50",
    )  # fmt: skip
    by_address = [{**MEALS[0], "suitableForDiet": "https://schema.org/VegetarianDiet"}, *MEALS[1:]]
    assert followups(by_address, "es", (), limits)[1] == "Solo vegetariano"
    assert followups(MEALS[:2], "ja", ()) == (
        "Soup 10について詳しく教えて", "Soup 10のようなもの", "Soup 22について詳しく教えて",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "compares"),
    [
        ({"offers": [{"price": "3.50"}, {"price": 5}]}, True),
        ({"estimatedCost": {"value": 4}}, True),
        ({"averagePrice": 12}, True),
        ({"isAccessibleForFree": True}, False),
        ({"price": "ask us"}, False),
    ],
)
def test_the_cheapest_is_offered_where_prices_can_be_compared(cost: dict[str, object], compares: bool) -> None:
    items = [{"name": f"Tea {number}", **cost} for number in range(3)]

    assert ("The cheapest" in followups(items, "en", ())) is compares


def test_whatever_items_hold_there_is_no_question_about_nothing() -> None:
    odd = [{"name": "x" * 100, "totalTime": 7, "offers": [1], "suitableForDiet": 3}, {}, {"aggregateRating": {}}]

    assert followups(odd, "en", ()) == ()


@pytest.mark.parametrize("code", ["£££", "GBP", "01632 960201", "en", ""])
def test_an_example_question_is_about_a_word_and_not_about_a_code(code: str) -> None:
    tea = collection("Tea", "code", "origin")

    assert example_questions([(tea, {"code": code, "origin": "Assam"})], "en") == ("What is there about Assam?",)


@pytest.mark.parametrize(
    ("price", "asked"), [(39, "50"), (9.8, "10"), (50, "100"), (0.4, "0.5"), (1129, "2000"), (1e300, ""), (-3, "")]
)
def test_an_example_question_names_a_round_price_above_that_of_the_example(price: float, asked: str) -> None:
    tea = Collection("tea", {"cost": Field("cost", FieldType.NUMBER, role="price")})

    assert example_questions([(tea, {"cost": price})], "en") == ((f"Tea under {asked}",) if asked else ())
