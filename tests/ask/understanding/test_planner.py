"""What a question is taken to mean: limits from its words and from attributes, in whatever form the data has."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.ask.conftest import Asked, Data, Opened, demo_items

from portico.ask.events import Constraint, EndEvent
from portico.errors import InvalidParams, SiteError, UnknownField
from portico.query import Condition
from portico.requests import Ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

TODAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def thing(name: str, **more: Any) -> Data:
    return {"@type": "Product", "name": name, **more}


def minutes(data: Data) -> int:
    said = data["totalTime"].removeprefix("PT")
    hours, _, rest = said.rpartition("H")
    return int(hours or 0) * 60 + int(rest.rstrip("M") or 0)


# From the words


async def test_what_was_understood_is_said_field_by_field_with_the_words_it_was_read_from(demo: Asked) -> None:
    answer = await demo("vegetarian dinner under 30 minutes")

    assert answer.understood.text == "vegetarian dinner under 30 minutes"
    assert answer.understood.collections == ("recipes",)
    assert set(answer.constraints) == {
        Constraint("totalTime", "total time under 30 minutes", "under 30 minutes"),
        Constraint("suitableForDiet", "suitable for: vegetarian", "vegetarian"),
        Constraint("recipeCategory", "recipe category: dinner", "dinner"),
    }


@pytest.mark.parametrize(
    ("language", "says"),
    [
        ("de", {"Zeit unter 30 Minuten", "geeignet für: vegetarisch", "Art des Gerichts: Abendessen"}),
        ("fr", {"temps\u00a0: moins de 30 minutes", "convient à\u00a0: végétarien", "type de plat\u00a0: dîner"}),
        ("ar", {"الوقت: أقل من 30 دقيقة", "مناسب لـ: نباتي", "نوع الطبق: عشاء"}),
    ],
)
async def test_what_was_understood_is_said_in_the_language_of_the_answer(
    demo: Asked, language: str, says: set[str]
) -> None:
    answer = await demo("vegetarian dinner under 30 minutes", language=language)

    assert {each.says for each in answer.constraints} == says


@pytest.mark.parametrize(
    ("question", "field", "fits"),
    [
        ("books under £8", "price", lambda d: d["price"] < 8),
        ("books over £20", "price", lambda d: d["price"] > 20),
        ("books between £9 and £10", "price", lambda d: 9 <= d["price"] <= 10),
        ("books under 100 pages", "numberOfPages", lambda d: d["numberOfPages"] < 100),
        ("books with at least 4.5 stars", "ratingValue", lambda d: d["aggregateRating"]["ratingValue"] >= 4.5),
        ("books by Hester Quill", "author.name", lambda d: d["author"]["name"] == "Hester Quill"),
    ],
)
async def test_a_limit_in_words_lets_through_exactly_what_keeps_to_it(
    demo: Asked, question: str, field: str, fits: Any
) -> None:
    answer = await demo(question, limit=50)

    assert answer.understood.collections == ("books",)
    assert [each.field.endswith(field) for each in answer.constraints] == [True]
    assert set(answer.ids) == {id for id, data in demo_items("books").items() if fits(data)}


@pytest.mark.parametrize(
    ("question", "fits"),
    [
        ("recipes that take less than 15 minutes", lambda d: minutes(d) < 15),
        ("recipes that take at most 15 minutes", lambda d: minutes(d) <= 15),
        ("recipes that take more than 3 hours", lambda d: minutes(d) > 180),
        ("recipes with less than 120 calories", lambda d: _calories(d) < 120),
        ("recipes for 8 people", lambda d: d["recipeYield"] >= 8),
    ],
)
async def test_times_calories_and_guests_are_limits_of_recipes(
    demo: Asked, recipes: dict[str, Data], question: str, fits: Any
) -> None:
    answer = await demo(question, limit=100, may_clarify=False)

    expected = {id for id, data in recipes.items() if fits(data)}
    assert expected
    assert set(answer.ids) == expected


def _calories(data: Data) -> float:
    said = data.get("nutrition", {}).get("calories")
    return float(str(said).split()[0]) if said is not None else 1e9


async def test_a_time_of_the_year_keeps_to_what_takes_place_then(demo: Asked) -> None:
    answer = await demo("events in december 2026", limit=50)

    events = demo_items("events")
    assert set(answer.ids) == {id for id, data in events.items() if data["startDate"].startswith("2026-12")}


async def test_what_goes_on_for_days_is_on_until_it_ends(small: Opened) -> None:
    def event(name: str, start: int, end: int) -> Data:
        begins, ends = (TODAY + timedelta(days=days) for days in (start, end))
        return {"@type": "Event", "name": name, "startDate": begins.isoformat(), "endDate": ends.isoformat()}

    held = {"long": event("Fair", -3, 3), "over": event("Fair", -5, -2), "now": event("Fair", 0, 0)}
    async with small({"events": {**held, "later": event("Fair", 20, 22)}}, {"events": {"type": "Event"}}) as ask:
        answer = await ask("events today")

    assert set(answer.ids) == {"long", "now"}


async def test_this_weekend_ends_on_sunday(small: Opened) -> None:
    sunday = TODAY + timedelta(days=6 - TODAY.weekday())
    events = {
        f"d{days}": {"@type": "Event", "name": f"Fair {days}", "startDate": (sunday + timedelta(days=days)).isoformat()}
        for days in (-7, -3, 0, 3, 7)
    }
    async with small({"events": events}, {"events": {"type": "Event"}}) as ask:
        answer = await ask("events this weekend")

    assert answer.ids == ["d0"]


async def test_free_things_are_free_by_a_flag_or_by_their_price(small: Opened) -> None:
    things = {"a": thing("Map", price=0), "b": thing("Map", price=2)}
    shows = {"x": {"@type": "Event", "name": "Map show", "isAccessibleForFree": True}}
    async with small({"things": things, "shows": shows}) as ask:
        answer = await ask("free map")

    assert set(answer.ids) == {"a", "x"}


async def test_what_is_in_stock_is_told_by_a_number_a_flag_or_the_vocabulary(small: Opened) -> None:
    stock = {"a": thing("Lamp", stock=3), "b": thing("Lamp", stock=0)}
    flags = {"c": thing("Lamp", inStock=True), "d": thing("Lamp", inStock=False)}
    offers = {
        "e": thing("Lamp", offers={"availability": "https://schema.org/InStock"}),
        "f": thing("Lamp", offers={"availability": "https://schema.org/SoldOut"}),
    }
    async with small({"stock": stock, "flags": flags, "offers": offers}) as ask:
        answer = await ask("lamp in stock")

    assert set(answer.ids) == {"a", "c", "e"}


@pytest.mark.parametrize("spelling", ["29.99", "$29.99", "29.99 USD"])
async def test_a_price_that_is_a_text_is_compared_as_a_number(small: Opened, spelling: str) -> None:
    things = {"low": thing("Lamp", offers={"price": spelling}), "high": thing("Lamp", offers={"price": "$1,299.00"})}
    async with small({"things": things}) as ask:
        below = await ask("lamp under $100")
        above = await ask("lamp over $100")

    assert (below.ids, above.ids) == (["low"], ["high"])


async def test_a_price_that_is_a_text_or_a_number_from_item_to_item(small: Opened) -> None:
    things = {"a": thing("Lamp", price="12.50"), "b": thing("Lamp", price=8), "c": thing("Lamp", price="free")}
    async with small({"things": things}) as ask:
        answer = await ask("lamp under $10")

    assert answer.ids == ["b"]


@pytest.mark.parametrize(
    ("question", "field", "found"),
    [
        ("plants with a height under 50", "height", {"thyme"}),
        ("plants with a height of at most 50 cm", "height", {"thyme"}),
        ("plants, height over 50", "height", {"birch"}),
        ("plants with a price under 50", "price", {"thyme", "birch"}),
    ],
)
async def test_a_number_behind_the_name_of_a_field_limits_that_field(
    small: Opened, question: str, field: str, found: set[str]
) -> None:
    plants = {
        "thyme": {"name": "Thyme", "price": 4, "height": 20},
        "birch": {"name": "Birch", "price": 9, "height": 900},
    }
    async with small({"plants": plants}) as ask:
        answer = await ask(question)

    assert [each.field for each in answer.constraints] == [field]
    assert set(answer.ids) == found


@pytest.mark.parametrize("measure", ["under 50 cm", "over 2 metres", "under 2 kg"])
async def test_a_measure_of_nothing_named_is_no_price_and_is_ignored(small: Opened, measure: str) -> None:
    async with small({"plants": {"thyme": {"name": "Thyme", "price": 1, "height": 20}}}) as ask:
        answer = await ask(f"plants {measure}")

    assert answer.constraints == ()
    assert answer.understood.ignored == (measure,)
    assert answer.ids == ["thyme"]


async def test_one_of_several_offers_is_enough(small: Opened) -> None:
    things = {
        "a": thing("Lamp", offers=[{"price": 40}, {"price": 15}]),
        "b": thing("Lamp", offers=[{"price": 40}, {"price": 35}]),
    }
    async with small({"things": things}) as ask:
        answer = await ask("lamp under $20")

    assert answer.ids == ["a"]


@pytest.mark.parametrize(
    "spelling", ["https://schema.org/VeganDiet", "http://schema.org/VeganDiet", "VeganDiet", "vegan"]
)
async def test_a_diet_is_known_in_the_spellings_of_the_vocabulary(small: Opened, spelling: str) -> None:
    dishes = {
        "a": {"@type": "Recipe", "name": "Stew", "suitableForDiet": [spelling]},
        "b": {"@type": "Recipe", "name": "Stew", "suitableForDiet": ["https://schema.org/HalalDiet"]},
        "c": {"@type": "Recipe", "name": "Stew"},
    }
    async with small({"dishes": dishes}, {"dishes": {"type": "Recipe"}}) as ask:
        for question in ("vegan stew", "vegetarian stew"):
            assert (await ask(question)).ids == ["a"]
        assert (await ask("stew", filters={"suitableForDiet": "https://schema.org/VeganDiet"})).ids == ["a"]


async def test_where_no_diet_is_named_a_diet_is_told_by_what_dishes_are_made_of(small: Opened) -> None:
    dishes = {
        "meat": {"@type": "Recipe", "name": "Pie", "recipeIngredient": ["500 g beef", "flour"]},
        "fish": {"@type": "Recipe", "name": "Pie", "recipeIngredient": ["2 anchovies", "flour"]},
        "leek": {"@type": "Recipe", "name": "Pie", "recipeIngredient": ["2 leeks", "cream"]},
        "pear": {"@type": "Recipe", "name": "Pie", "recipeIngredient": ["2 pears", "flour"]},
    }
    async with small({"dishes": dishes}, {"dishes": {"type": "Recipe"}}) as ask:
        vegetarian, vegan = await ask("vegetarian pie"), await ask("vegan pie")

    assert set(vegetarian.ids) == {"leek", "pear"}
    assert vegan.ids == ["pear"]
    assert vegan.limits == {"vegan": "vegan, by what it is made of"}


@pytest.mark.parametrize("question", ["stew not chicken", "stew without chicken", "stew with no chicken"])
async def test_what_is_unwanted_is_left_out(small: Opened, question: str) -> None:
    dishes = {
        "a": {"@type": "Recipe", "name": "Chicken stew"},
        "b": {"@type": "Recipe", "name": "Stew", "recipeIngredient": ["two chickens"]},
        "c": {"@type": "Recipe", "name": "Leek stew"},
    }
    async with small({"dishes": dishes}) as ask:
        answer = await ask(question)

    assert answer.ids == ["c"]
    assert [each.says for each in answer.constraints] == ["without chicken"]


async def test_a_family_of_foods_is_left_out_with_all_its_members(small: Opened) -> None:
    names = ("almond", "walnut", "marzipan", "lemon")
    dishes = {name: {"@type": "Recipe", "name": f"Cake with {name}"} for name in names}
    async with small({"dishes": dishes}) as ask:
        answer = await ask("cake without nuts")

    assert answer.ids == ["lemon"]


async def test_a_question_why_something_is_not_there_leaves_nothing_out(small: Opened) -> None:
    faqs = {"a": {"@type": "Question", "name": "Why is there no ferry on Sunday?"}}
    async with small({"faqs": faqs}) as ask:
        answer = await ask("why is there no ferry?")

    assert (answer.ids, answer.constraints) == (["a"], ())


async def test_a_negated_diet_is_no_diet(small: Opened) -> None:
    dishes = {"a": {"name": "Stew", "diet": "vegan"}, "b": {"name": "Stew", "diet": "halal"}}
    async with small({"dishes": dishes}) as ask:
        answer = await ask("stew that is not vegan")

    assert "b" in answer.ids


async def test_naive_dates_are_read_as_dates(small: Opened) -> None:
    day = (TODAY + timedelta(days=1)).date()
    events = {
        "a": {"@type": "Event", "name": "Fair", "startDate": f"{day}T19:00:00"},
        "b": {"@type": "Event", "name": "Fair", "startDate": f"{day + timedelta(days=9)}T19:00:00"},
    }
    async with small({"events": events}, {"events": {"type": "Event"}}) as ask:
        answer = await ask("events tomorrow")

    assert answer.ids == ["a"]


# Where to look


async def test_a_kind_that_the_question_names_says_where_to_look(demo: Asked) -> None:
    answer = await demo("a restaurant with vegetables")

    assert answer.understood.collections == ("restaurants",)


async def test_a_verb_is_no_kind(demo: Asked) -> None:
    answer = await demo("book a room for a party", may_clarify=False)

    assert answer.understood.collections != ("books",)


async def test_collections_that_cannot_tell_are_not_asked(demo: Asked) -> None:
    answer = await demo("lantern under £20")

    assert {found.item.collection for found in answer.found} <= {
        "recipes",
        "products",
        "restaurants",
        "events",
        "books",
    }


@pytest.mark.parametrize(
    ("kind", "collections"),
    [
        ("Recipe", {"recipes"}),
        ("https://schema.org/Recipe", {"recipes"}),
        ("Restaurant", {"restaurants"}),
        ("FoodEstablishment", {"restaurants"}),
        ("Event", {"events"}),
        ("MusicEvent", {"events"}),
        (["Recipe", "Book"], {"recipes", "books"}),
    ],
)
async def test_an_item_type_keeps_to_items_of_that_type(demo: Asked, kind: Any, collections: set[str]) -> None:
    answer = await demo("winter by the sea", filters={"itemType": kind}, limit=50)

    assert answer.ids
    assert {found.item.collection for found in answer.found} <= collections
    if kind == "MusicEvent":
        assert {found.item.data["@type"] for found in answer.found} == {"MusicEvent"}


@pytest.mark.parametrize(
    ("kind", "spellings"),
    [
        (
            "Recipe",
            ["recipe", "RECIPE", " recipe ", "https://schema.org/recipe", "HTTP://Schema.org/Recipe", ["reCipe"]],
        ),
        ("Event", ["event", ["Event"], ["EVENT"]]),
        ("Article", ["article", "schema:ARTICLE"]),
        ("FoodEstablishment", ["foodestablishment", "foodEstablishment"]),
        ("Thing", ["thing", "schema:Thing"]),
    ],
)
async def test_an_item_type_ignores_case(demo: Asked, kind: str, spellings: list[Any]) -> None:
    expected = await demo("winter by the sea", filters={"itemType": kind}, limit=50)

    assert expected.ids
    for spelling in spellings:
        answer = await demo("winter by the sea", filters={"itemType": spelling}, limit=50)
        assert (answer.ids, answer.understood.ignored) == (expected.ids, expected.understood.ignored), spelling


@pytest.mark.parametrize("kind", ["tel", "staurant", "ecipe", "pe"])
async def test_a_part_of_a_word_is_no_item_type(demo: Asked, kind: str) -> None:
    assert (await demo("winter by the sea", filters={"itemType": kind})).ids == []


@pytest.mark.parametrize("kind", ["", " ", "any", "Any", None, []])
async def test_an_item_type_that_says_nothing_leaves_nothing_out(demo: Asked, kind: Any) -> None:
    assert (await demo("winter sea", filters={"itemType": kind})).ids == (await demo("winter sea")).ids


async def test_an_item_type_that_is_nowhere_finds_nothing(demo: Asked) -> None:
    answer = await demo("harbour", filters={"itemType": "Volcano"})

    assert (answer.ids, answer.finished.items) == ([], 0)
    assert [(each.field, each.words) for each in answer.constraints] == [("@type", "query.itemType")]
    assert "Volcano" in answer.constraints[0].says
    assert "Volcano" in answer.notes[0]


@pytest.mark.parametrize("kind", [7, {"a": []}, [True]])
async def test_an_item_type_that_is_no_name_is_ignored(demo: Asked, kind: Any) -> None:
    answer = await demo("winter sea", filters={"itemType": kind})

    assert answer.ids == (await demo("winter sea")).ids
    assert "query.itemType" in answer.understood.ignored


@pytest.mark.parametrize("name", ["site", "collection"])
@pytest.mark.parametrize("said", ["books", "Books", ["books"], "books,books"])
async def test_a_part_of_the_site_is_chosen_by_its_name_or_title(demo: Asked, name: str, said: Any) -> None:
    answer = await demo("harbour", filters={name: said})

    assert answer.understood.collections == ("books",)
    assert answer.understood.ignored == ()


@pytest.mark.parametrize("said", ["all", "*", ""])
async def test_all_of_the_site_is_everything(demo: Asked, said: str) -> None:
    answer = await demo("fog", filters={"site": said})

    assert len(answer.understood.collections) == 8


async def test_a_part_of_the_site_that_is_not_there_is_reported(demo: Asked) -> None:
    answer = await demo("harbour", filters={"site": "example.com"})

    assert answer.understood.ignored == ("query.site",)
    assert answer.ids


# From attributes


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ({"price": "less than £8"}, lambda d: d["price"] < 8),
        ({"price": "under 8"}, lambda d: d["price"] < 8),
        ({"price": {"maxPrice": 8}}, lambda d: d["price"] <= 8),
        ({"price": {"minPrice": 20, "maxPrice": 25}}, lambda d: 20 <= d["price"] <= 25),
        ({"price": {"$gte": 20}}, lambda d: d["price"] >= 20),
        ({"price": 7.5}, lambda d: d["price"] <= 7.5),
        ({"numberOfPages": 28}, lambda d: d["numberOfPages"] == 28),
        ({"numberOfPages": "at least 300"}, lambda d: d["numberOfPages"] >= 300),
        ({"rating": "at least 4.5"}, lambda d: d["aggregateRating"]["ratingValue"] >= 4.5),
        ({"ratingValue": "at least 4.5"}, lambda d: d["aggregateRating"]["ratingValue"] >= 4.5),
        ({"genre": "Novel"}, lambda d: "novel" in d["genre"]),
        ({"genre": ["novel", "poetry"]}, lambda d: bool({"novel", "poetry"} & set(d["genre"]))),
        ({"inLanguage": "de"}, lambda d: d["inLanguage"] == "de"),
        ({"author.name": "Hester Quill"}, lambda d: d["author"]["name"] == "Hester Quill"),
        ({"datePublished": "in 2024"}, lambda d: d["datePublished"].startswith("2024")),
        ({"price": "under 8", "genre": "children"}, lambda d: d["price"] < 8 and "children" in d["genre"]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "fits",
)
async def test_an_attribute_is_a_limit(demo: Asked, filters: Data, fits: Any) -> None:
    answer = await demo("books", filters=filters, limit=100)

    expected = {id for id, data in demo_items("books").items() if fits(data)}
    assert expected
    assert set(answer.ids) == expected
    assert set(answer.limits) == {f"query.{name}" for name in filters}
    assert answer.understood.ignored == ()


async def test_several_diets_of_an_attribute_add_up(demo: Asked, recipes: dict[str, Data]) -> None:
    answer = await demo("recipes", filters={"suitableForDiet": ["vegan", "gluten-free"]}, limit=100, may_clarify=False)

    assert set(answer.ids) == {
        id for id, data in recipes.items() if {"vegan", "gluten-free"} <= set(data["suitableForDiet"])
    }


@pytest.mark.parametrize("value", [None, "", "any", "no preference", [], ["any"], "egal"])
async def test_an_attribute_without_a_preference_limits_nothing(demo: Asked, value: Any) -> None:
    answer = await demo("books", filters={"genre": value}, limit=100)

    assert (answer.constraints, answer.understood.ignored) == ((), ())
    assert set(answer.ids) == set(demo_items("books"))


@pytest.mark.parametrize("filters", [{"colour": "red"}, {"genre": "no such genre"}, {"genre": {"deep": {"er": 1}}}])
async def test_an_attribute_that_means_nothing_here_is_reported(demo: Asked, filters: Data) -> None:
    answer = await demo("books", filters=filters)

    assert answer.understood.ignored == tuple(f"query.{name}" for name in filters)


async def test_an_attribute_says_more_than_the_words(demo: Asked) -> None:
    answer = await demo("something under £30", filters={"itemType": "Book", "price": "under 8"}, limit=100)

    assert answer.ids
    assert all(found.item.data["price"] < 8 for found in answer.found)


async def test_a_location_is_one_that_items_name_or_one_that_lies_around(demo: Asked) -> None:
    answer = await demo("cake", filters={"itemType": "Restaurant", "location": "Old Harbour"}, limit=50)

    assert answer.limits["query.location"] == "within 500 metres of Old Harbour"
    assert answer.ids


async def test_a_location_that_nobody_knows_is_reported(demo: Asked) -> None:
    answer = await demo("cake", filters={"location": "Atlantis"})

    assert answer.understood.ignored == ("query.location",)


async def test_near_a_place_is_within_the_distance_that_is_said(demo: Asked) -> None:
    near = await demo("restaurants within 200 metres of the harbour", limit=50)
    far = await demo("restaurants near the harbour", limit=50)

    assert set(near.ids) < set(far.ids)
    assert [each.says for each in near.constraints] == ["within 200 metres of Old Harbour"]


async def test_a_filter_of_the_caller_is_kept_beside_what_was_read(demo: Asked) -> None:
    answer = await demo("books under £10", where=Condition("numberOfPages", "lt", 100), limit=50)

    assert set(answer.ids) == {
        id for id, data in demo_items("books").items() if data["price"] < 10 and data["numberOfPages"] < 100
    }


async def test_a_filter_on_a_field_that_nothing_has_is_an_error_before_the_first_event(demo: Asked) -> None:
    with pytest.raises(UnknownField):
        await demo("books", where=Condition("no_such_field", "eq", 1))


async def test_a_caller_sees_only_what_it_may_read(small: Opened) -> None:
    held = {"open": {"a": {"name": "Lamp"}}, "shut": {"b": {"name": "Lamp"}}, "secret": {"c": {"name": "Lamp"}}}
    async with small(held, {"secret": {"private": True}}) as ask:
        reader = await ask.named("reader", ("ask", "read:open"))

        assert (await reader("lamp")).ids == ["a"]
        assert set((await ask("lamp")).ids) == {"a", "b"}
        with pytest.raises(SiteError):
            await reader("lamp", collections=("shut",))


# The person


@pytest.mark.parametrize(
    "known",
    [
        {"memory": ("I am vegetarian",)},
        {"background": "We are cooking for a vegetarian friend."},
        {"profile": {"diet": "vegetarian"}},
        {"profile": {"diets": ["vegetarian"]}},
    ],
    ids=str,
)
async def test_what_is_known_of_the_person_is_kept_to(demo: Asked, recipes: dict[str, Data], known: Data) -> None:
    answer = await demo("dinner", limit=100, **known)

    assert set(answer.ids) == {
        id
        for id, data in recipes.items()
        if data["recipeCategory"] == "dinner" and {"vegetarian", "vegan"} & set(data["suitableForDiet"])
    }


@pytest.mark.parametrize("name", ["allergies", "foodIntolerances", "dislikes"])
async def test_what_the_person_must_not_have_is_left_out(demo: Asked, name: str, recipes: dict[str, Data]) -> None:
    answer = await demo("dessert", profile={name: ["nuts"]}, filters={"itemType": "Recipe"}, limit=100)

    assert answer.limits[f"context.{name}"] == "suitable for: nut free"
    assert set(answer.ids) == {
        id
        for id, data in recipes.items()
        if data["recipeCategory"] == "dessert" and "nut-free" in data["suitableForDiet"]
    }


async def test_a_diet_of_the_person_does_not_decide_where_to_look(demo: Asked) -> None:
    answer = await demo("fog over the harbour", memory=("vegan",))

    assert "articles" in answer.understood.collections


# Odd collections


async def test_an_empty_collection_is_no_trouble(small: Opened) -> None:
    async with small({"things": {}, "others": {"a": {"name": "Lamp", "price": 3}}}) as ask:
        assert (await ask("lamp under $5")).ids == ["a"]
        empty = await ask("lamp", collections=("things",))

    assert (empty.ids, empty.finished.items) == ([], 0)


async def test_a_site_without_collections_says_that_there_is_nothing(small: Opened) -> None:
    async with small({}) as ask:
        answer = await ask("lamp under $5")

    assert (answer.finished.items, answer.understood.collections) == (0, ())


async def test_three_hundred_fields_are_no_trouble(small: Opened) -> None:
    wide = {f"field{n}": f"value {n}" for n in range(300)}
    things = {"a": thing("Lamp", price=3, **wide), "b": thing("Lamp", price=30, **wide)}
    async with small({"things": things}) as ask:
        answer = await ask("lamp under $10", filters={"field299": "value 299"})

    assert answer.ids == ["a"]
    assert answer.limits["query.field299"] == "field299: value 299"


async def test_german_is_asked_of_a_german_collection(small: Opened) -> None:
    dishes = {
        "a": {"@type": "Recipe", "name": "Linseneintopf", "recipeCategory": "Suppen", "totalTime": "PT25M"},
        "b": {"@type": "Recipe", "name": "Kürbissuppe", "recipeCategory": "Suppen", "totalTime": "PT55M"},
        "c": {"@type": "Recipe", "name": "Apfelkuchen", "recipeCategory": "Kuchen", "totalTime": "PT20M"},
    }
    kinds = {"rezepte": {"type": "Recipe", "language": "de"}}
    async with small({"rezepte": dishes}, kinds, site={"language": "de"}) as ask:
        answer = await ask("eine Suppe unter 30 Minuten")

    assert answer.understood.language == "de"
    assert answer.ids == ["a"]


@pytest.mark.parametrize(
    ("question", "language", "nothing"),
    [
        ("有什么自行车？", "zh", "没有找到"),
        ("自転車はありますか？", "ja", "見つかりません"),
        ("هل لديكم دراجات؟", "ar", "أجد"),
        ("دوچرخه دارید؟ چرا گران است", "en", "nothing"),  # Persian, in which nothing is said here
        ("Zebra 斑马 in the zoo", "en", "nothing"),
    ],
)
async def test_a_question_is_answered_in_the_language_of_its_letters(
    small: Opened, question: str, language: str, nothing: str
) -> None:
    async with small({"dishes": {"a": {"@type": "Recipe", "name": "Soup"}}}) as ask:
        answer = await ask(question)

    assert answer.understood.language == language
    assert nothing in answer.notes[-1]


async def test_the_answer_is_in_the_language_that_is_asked_for(demo: Asked) -> None:
    answer = await demo("veganes Rezept unter 3 Minuten", language="de")

    assert answer.understood.language == "de"
    assert answer.notes[0].startswith("Mit diesen Vorgaben habe ich nichts gefunden: ")


async def test_what_was_just_written_is_understood(small: Opened) -> None:
    async with small({"things": {"a": thing("Lamp", category="desk")}}) as ask:
        first = await ask.site.collect_answer(Ask("lamp"), ask.caller)
        await ask.put("things", {"b": thing("Lamp", category="floor")})
        answer = await ask("lamp")

    assert first
    assert set(answer.ids) == {"a", "b"}


# Several things at once, and in other languages


def recipe(name: str, **more: Any) -> Data:
    return {"@type": "Recipe", "name": name, **more}


@pytest.mark.parametrize(
    "question", ["not chicken but beef", "without chicken a beef stew", "I don't eat chicken. Do you have beef?"]
)
async def test_what_follows_an_exclusion_is_still_looked_for(small: Opened, question: str) -> None:
    async with small({"dishes": {"a": recipe("Beef stew"), "b": recipe("Leek stew"), "c": recipe("Pea stew")}}) as ask:
        assert (await ask(question)).ids[:1] == ["a"]
        assert len((await ask(question)).ids) == 1


@pytest.mark.parametrize("diet", ["gluten-free", "nut-free", "dairy-free"])
async def test_the_category_behind_a_diet_counts(demo: Asked, recipes: dict[str, Data], diet: str) -> None:
    answer = await demo(f"{diet} dessert", filters={"itemType": "Recipe"}, limit=100)

    meets = {diet, "vegan"} if diet == "dairy-free" else {diet}
    assert set(answer.ids) == {
        id
        for id, data in recipes.items()
        if data["recipeCategory"] == "dessert" and meets & set(data["suitableForDiet"])
    }


async def test_nuts_are_left_out_in_german_by_the_same_diet(demo: Asked, recipes: dict[str, Data]) -> None:
    answer = await demo(
        "ein Dessert ohne Nüsse", filters={"itemType": "Recipe", "recipeCategory": "dessert"}, limit=100, language="de"
    )

    assert set(answer.ids) == {
        id
        for id, data in recipes.items()
        if data["recipeCategory"] == "dessert" and "nut-free" in data["suitableForDiet"]
    }


@pytest.mark.parametrize(
    ("question", "fits"),
    [
        ("vegetarische Rezepte unter 20 Minuten", lambda d: "vegetarian" in d["suitableForDiet"] and minutes(d) < 20),
        ("vegane Rezepte unter 20 Minuten", lambda d: "vegan" in d["suitableForDiet"] and minutes(d) < 20),
    ],
)
async def test_a_short_german_question_is_read(demo: Asked, recipes: dict[str, Data], question: str, fits: Any) -> None:
    answer = await demo(question, limit=100)

    assert set(answer.ids) == {id for id, data in recipes.items() if fits(data)}


async def test_german_exclusions_are_read(small: Opened) -> None:
    dishes = {"a": recipe("Suppe mit Huhn"), "b": recipe("Suppe mit Lauch")}
    async with small({"dishes": dishes}, {"dishes": {"type": "Recipe", "language": "de"}}) as ask:
        assert (await ask("Suppe ohne Huhn")).ids == ["b"]


async def test_an_english_question_is_read_for_whoever_wants_a_german_answer(demo: Asked) -> None:
    answer = await demo("vegan recipes under 20 minutes", language="de")

    assert "under 20 minutes" in answer.limits


@pytest.mark.parametrize("filters", [{"price": 10**400}, {"price": {"maxPrice": 10**400}}], ids=["number", "range"])
async def test_a_number_beyond_all_numbers_is_refused(small: Opened, filters: Data) -> None:
    async with small({"things": {"a": {"name": "Lamp", "price": 3}}}) as ask:
        with pytest.raises(InvalidParams):
            await ask("lamp", filters=filters)


async def test_a_named_restaurant_is_found_though_it_is_also_a_place(demo: Asked) -> None:
    answer = await demo("a table at Kelp")

    assert isinstance(answer.last, EndEvent)
    assert "restaurants/kelp" in answer.ids
