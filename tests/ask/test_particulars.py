"""Small questions with one right answer each."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.ask.conftest import Answer, Asked, Data, Opened, demo_items
from tests.models.endpoint import Hang, ModelEndpoint, Received, Reply

from portico.ask.events import ClarificationEvent, TaskEvent
from portico.models.language import estimate_tokens
from portico.query import Condition
from portico.requests import Call

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECIPE = {"type": "Recipe"}


def dish(name: str, **more: Any) -> Data:
    return {"@type": "Recipe", "name": name, **more}


def minutes(data: Data) -> int:
    hours, _, rest = data["totalTime"].removeprefix("PT").rpartition("H")
    return int(hours or 0) * 60 + int(rest.rstrip("M") or 0)


# "without nuts" leaves out what says that it is nut-free, and shows what does not


async def test_what_is_free_of_something_is_not_left_out_for_saying_so(small: Opened) -> None:
    dishes = {
        "free": dish("Carrot cake", description="Nut-free, contains no nuts."),
        "plain": dish("Lemon cake"),
        "nuts": dish("Walnut cake"),
    }
    async with small({"dishes": dishes}) as ask:
        assert set((await ask("cake without nuts")).ids) == {"free", "plain"}


# A limit that nothing keeps to is no limit, where numbers stand in texts


@pytest.mark.parametrize("question", ["lamp under $5", "cheapest lamp under $5"])
async def test_a_limit_that_no_price_in_a_text_keeps_to_lets_nothing_through(small: Opened, question: str) -> None:
    async with small({"things": {"a": {"name": "Lamp", "price": "$12.00"}}}) as ask:
        assert (await ask(question)).ids == []


# The filter of a question that is answered late


async def test_a_slow_answer_keeps_to_the_filter_of_the_question(small: Opened, endpoint: ModelEndpoint) -> None:
    things = {f"l{n}": {"name": f"Brass lamp {n}", "price": n} for n in range(6)}
    endpoint.reply = lambda _: Hang()
    settings = {"model": endpoint.url("openai", "retries=0&first=0.3&timeout=0.5"), "patience": 0.1}
    async with small({"things": things}, ask=settings, background=True) as ask:
        answer = await ask("brass lamp", where=Condition("price", "lt", 2))
        if isinstance(answer.last, TaskEvent):
            await ask.site.tasks.wait(answer.last.task.id, ask.caller, 30)
            answer = Answer(await ask.site.task_events(answer.last.task.id, ask.caller))

    assert set(answer.ids) == {"l0", "l1"}


# Attributes of schema.org whose value is an object are ignored


@pytest.mark.parametrize(
    "value", ["Hester Quill", {"name": "Hester Quill"}, {"@type": "Person", "name": "Hester Quill"}]
)
async def test_an_author_is_known_by_name(demo: Asked, value: Any) -> None:
    answer = await demo("books", filters={"author": value}, limit=50)

    books = demo_items("books")
    assert set(answer.ids) == {id for id, data in books.items() if data["author"]["name"] == "Hester Quill"}


async def test_a_brand_is_known_by_name(demo: Asked) -> None:
    answer = await demo("products", filters={"brand": "Dunnock's"}, limit=50)

    products = demo_items("products")
    assert set(answer.ids) == {id for id, d in products.items() if d.get("brand", {}).get("name") == "Dunnock's"}


async def test_an_offer_is_known_by_what_is_in_it(small: Opened) -> None:
    things = {"a": {"name": "Lamp", "offers": {"price": 4}}, "b": {"name": "Lamp", "offers": {"price": 40}}}
    async with small({"things": things}) as ask:
        assert (await ask("lamp", filters={"offers": {"price": {"maxPrice": 5}}})).ids == ["a"]


# Lengths of time and dates as attributes


@pytest.mark.parametrize("value", ["PT30M", 30, {"max": 30}, {"maxValue": "PT30M"}])
async def test_a_time_as_an_attribute_is_a_length_of_time(demo: Asked, recipes: dict[str, Data], value: Any) -> None:
    answer = await demo("recipes", filters={"totalTime": value}, limit=100, may_clarify=False)

    assert set(answer.ids) == {id for id, data in recipes.items() if minutes(data) <= 30}


@pytest.mark.parametrize("value", ["2024", 2024])
async def test_a_year_as_an_attribute_is_a_year(demo: Asked, value: Any) -> None:
    answer = await demo("books", filters={"datePublished": value}, limit=50)

    books = demo_items("books")
    assert set(answer.ids) == {id for id, data in books.items() if data["datePublished"].startswith("2024")}


# German plurals


@pytest.mark.parametrize(("question", "collection"), [("Bücher", "books"), ("Veranstaltungen", "events")])
async def test_german_plurals_name_a_collection(demo: Asked, question: str, collection: str) -> None:
    assert (await demo(f"{question} am Meer", language="de")).understood.collections == (collection,)


# An item that keeps to one of two limits is shown as if it kept to both


async def test_every_item_keeps_to_every_limit_that_is_reported(small: Opened) -> None:
    things = {"a": {"@type": "Product", "name": "Soup bowl", "price": 12}}
    dishes = {"b": dish("Soup", suitableForDiet="vegan"), "c": dish("Beef soup", suitableForDiet="halal")}
    async with small({"things": things, "dishes": dishes}) as ask:
        answer = await ask("vegan soup under $20")

    reported = {each.field for each in answer.constraints}
    assert all(field in found.item.data for found in answer.found for field in reported)


# Without vectors, a word that no item says hides everything that the limits let through


@pytest.mark.parametrize("question", ["what's on this weekend?", "what's happening this weekend"])
async def test_limits_alone_answer_where_no_word_does(small: Opened, question: str) -> None:
    now = datetime.now(UTC)
    sunday = now + timedelta(days=6 - now.weekday())
    fair = {"@type": "Event", "name": "Fair", "startDate": sunday.isoformat()}
    async with small({"events": {"a": fair}}, {"events": {"type": "Event"}}) as ask:
        assert (await ask(question)).ids == ["a"]


# What is reported is not what was done


async def test_a_category_of_a_collection_that_is_not_asked_is_not_reported(demo: Asked) -> None:
    answer = await demo("romantic dinner by the sea")

    held = {"recipes": {"recipeCategory"}, "books": {"genre"}}
    reported = {each.field for each in answer.constraints}
    wrong = {field for name, fields in held.items() if name not in answer.understood.collections for field in fields}
    assert not reported & wrong


async def test_a_category_that_was_given_up_is_not_reported_as_kept(small: Opened) -> None:
    dishes = {
        "a": dish("Leek pie", recipeCategory="dinner", totalTime="PT50M"),
        "b": dish("Pea pie", recipeCategory="lunch", totalTime="PT10M"),
    }
    async with small({"dishes": dishes}, {"dishes": RECIPE}) as ask:
        answer = await ask("dinner pie under 20 minutes")

    kept = "recipeCategory" in {each.field for each in answer.constraints}
    assert not (kept and answer.ids == ["b"] and answer.notes == ())


async def test_a_limit_is_reported_by_the_fields_that_it_was_put_to(demo: Asked) -> None:
    answer = await demo("lantern under £20", filters={"itemType": ["Product", "Recipe"]})

    assert {each.field for each in answer.constraints if "under" in each.says} == {"price", "estimatedCost"}


# Numbers of other lands


@pytest.mark.parametrize("spelling", ["29,99 €", "29,99", "EUR 29,99"])
async def test_a_comma_may_stand_before_cents(small: Opened, spelling: str) -> None:
    things = {"a": {"name": "Lampe", "price": spelling}, "b": {"name": "Lampe", "price": "1.299,00 €"}}
    async with small({"things": things}, {"things": {"language": "de"}}, site={"language": "de"}) as ask:
        assert (await ask("eine Lampe unter 100 Euro")).ids == ["a"]


# More than a thousand prices in texts


async def test_prices_in_texts_are_compared_however_many_there_are(small: Opened) -> None:
    things = {f"t{n:04}": {"name": "Lamp", "price": f"${n}.00"} for n in range(1500)}
    async with small({"things": things}) as ask:
        answer = await ask("lamp under $2000", filters={"price": {"min": 1400}}, limit=100)

    assert set(answer.ids) == {f"t{n}" for n in range(1400, 1500)}


async def test_the_most_expensive_of_many_is_the_most_expensive(small: Opened) -> None:
    things = {f"t{n:04}": {"name": "Lamp", "price": n} for n in range(900)}
    async with small({"things": things}) as ask:
        assert (await ask("most expensive lamp", limit=1)).ids == ["t0899"]


# Words that all items have count for nothing


async def test_a_shop_of_lamps_finds_lamps(small: Opened) -> None:
    lamps = {f"l{n}": {"name": f"Brass lamp {n}", "description": "A lamp of brass."} for n in range(8)}
    async with small({"things": lamps}) as ask:
        assert (await ask("beautiful brass lamps")).ids


# Items of the same id in two collections are taken for one


async def test_two_collections_may_use_the_same_ids(small: Opened) -> None:
    held = {
        "here": {"1": {"@type": "Product", "name": "Lamp A", "price": 5}},
        "there": {"1": {"@type": "Product", "name": "Lamp B", "price": 50}, "2": {"name": "Lamp C", "price": 20}},
    }
    async with small(held) as ask:
        answer = await ask("cheapest lamp")

    assert [found.item.data["price"] for found in answer.found] == [5, 20, 50]


# A kind that stands in a longer name


async def test_a_car_park_is_no_park(demo: Asked) -> None:
    answer = await demo("how much does the quay car park cost per hour")

    assert "faqs/how-much-does-the-quay-car-park-cost" in answer.ids[:3]


async def test_a_question_of_fact_about_a_beach_is_answered(demo: Asked) -> None:
    faqs = {id for id, data in demo_items("faqs").items() if "dog" in json.dumps(data).lower()}

    assert faqs & set((await demo("can I bring my dog to the beach")).ids)


async def test_one_word_is_looked_for_everywhere(demo: Asked) -> None:
    assert "places/old-harbour" in (await demo("harbour")).ids


# Orders without a field, and the wrong one


async def test_the_latest_news_is_not_what_takes_place_last(demo: Asked) -> None:
    assert (await demo("latest news")).found[0].item.collection == "articles"


# Commands


@pytest.fixture
def workshop(small: Opened, tmp_path: Path) -> Any:
    own = '''
from typing import Literal
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def paint_wall(context: Context, colour: Literal["red", "blue"] = "red", coats: int = 1, days: int = 7) -> dict:
    """Paint a wall."""
    return {"colour": colour, "coats": coats, "days": days}

@operation(kind="execute", danger="safe")
async def rent_hall(context: Context, time: str) -> str:
    """Rent the hall."""
    return time

@operation(kind="execute", danger="safe")
async def draw_map(context: Context, themes: list[str], date: str = "") -> list[str]:
    """Draw a map."""
    return themes
'''
    (tmp_path / "own.py").write_text(own)
    rights = {"scopes": ["ask", "read:*", "execute:*"]}
    return lambda: small({"x": {}}, operations=["own.py"], folder=str(tmp_path), anonymous=rights)


@pytest.mark.parametrize(
    ("question", "name", "value"),
    [
        ("paint the wall with 2 coats", "coats", 2),
        ("paint the wall for 5 days", "days", 5),
    ],
)
async def test_a_number_before_a_parameter_is_its_value(workshop: Any, question: str, name: str, value: int) -> None:
    async with workshop() as ask:
        assert (await ask(question)).did.result[name] == value


async def test_one_choice_may_come_in_a_list(workshop: Any) -> None:
    async with workshop() as ask:
        assert (await ask("paint the wall", answers={"colour": ["blue"]})).did.result["colour"] == "blue"


async def test_midnight_is_not_noon(workshop: Any) -> None:
    async with workshop() as ask:
        assert (await ask("rent the hall tomorrow at 12am")).did.result.endswith("T00:00")


async def test_a_list_ends_where_the_date_begins(workshop: Any) -> None:
    async with workshop() as ask:
        assert (await ask("draw a map about books and fish on 5 December")).did.result == ["books", "fish"]


# What is offered to choose from


@pytest.mark.parametrize("language", ["ja", "zh"])
async def test_ranges_that_are_offered_are_understood(demo: Asked, language: str) -> None:
    options = (await demo("something for dinner", language=language)).questions["totalTime"].options
    answer = await demo("something for dinner", answers={"totalTime": options[0]}, language=language)

    assert answer.ids


async def test_a_diet_in_two_spellings_is_one_option(small: Opened) -> None:
    dishes = {f"d{n}": dish(f"Pie {n}", diet=diet) for n, diet in enumerate(
        ["VeganDiet", "https://schema.org/VeganDiet", "vegan", "HalalDiet"]
    )}  # fmt: skip
    async with small({"dishes": dishes}, {"dishes": {**RECIPE, "details": ["diet"]}}) as ask:
        assert (await ask("some recipe")).questions["diet"].options == ("vegan", "halal", "no preference")


async def test_free_things_make_no_range_of_pennies(small: Opened) -> None:
    prices = [0, 0, 0, 0, 5, 8, 12]
    things = {f"t{n}": {"@type": "Product", "name": f"Thing {n}", "price": price} for n, price in enumerate(prices)}
    async with small({"things": things}, {"things": {"type": "Product"}}) as ask:
        options = (await ask("suggest a product")).questions["price"].options

    assert not [each for each in options if "0.1" in each]


# With a model


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint() as running:
        yield running


def ranking(*numbers: int) -> Reply:
    return Reply([json.dumps({"ranking": [{"n": n, "score": 90 - n} for n in numbers]})])


def model(endpoint: ModelEndpoint, **more: Any) -> Data:
    return {"model": endpoint.url("openai", "retries=0"), **more}


async def test_what_a_model_was_not_shown_follows_what_it_ranked(small: Opened, endpoint: ModelEndpoint) -> None:
    things = {f"l{n:02}": {"name": f"Brass lamp {n}"} for n in range(20)}
    endpoint.reply = lambda _: ranking(1, 2, 3, 4, 5)
    async with small({"things": things}, ask=model(endpoint, candidates=5)) as ask:
        assert len((await ask("brass lamp", limit=20)).ids) == 20


async def test_a_long_question_leaves_the_prompt_within_its_budget(small: Opened, endpoint: ModelEndpoint) -> None:
    things = {f"l{n}": {"name": f"Brass lamp {n}"} for n in range(5)}
    endpoint.reply = lambda _: ranking(1)
    async with small({"things": things}, ask=model(endpoint, prompt=500)) as ask:
        await ask("brass lamp " * 200)

    assert all(estimate_tokens(each.system + each.user) <= 500 for each in endpoint.requests)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (["The first is bright. ", "[1]"], ["The first is bright."]),
        (["It stands at St. Hild's church [1]."], ["It stands at St. Hild's church."]),
        (["It is made of brass, e.g. of old bells [1]."], ["It is made of brass, e.g. of old bells."]),
    ],
)
async def test_a_sentence_is_whole(small: Opened, endpoint: ModelEndpoint, pieces: list[str], said: list[str]) -> None:
    def reply(received: Received) -> Reply:
        return ranking(1, 2) if received.wants_schema else Reply(pieces)

    endpoint.reply = reply
    things = {f"l{n}": {"name": f"Brass lamp {n}"} for n in range(3)}
    async with small({"things": things}, ask=model(endpoint)) as ask:
        answer = await ask("brass lamp", modes=frozenset({"list", "summarize"}))

    assert [each.text.strip() for each in answer.said] == said


@pytest.mark.parametrize("text", ["Buy at evil.example now! The first is bright [1].", "Trust me. It is bright [1]."])
async def test_a_sentence_that_relies_on_nothing_is_not_said_before_one_that_does(
    small: Opened, endpoint: ModelEndpoint, text: str
) -> None:
    endpoint.reply = lambda received: ranking(1, 2) if received.wants_schema else Reply([text])
    things = {f"l{n}": {"name": f"Brass lamp {n}"} for n in range(3)}
    async with small({"things": things}, ask=model(endpoint)) as ask:
        answer = await ask("brass lamp", modes=frozenset({"list", "summarize"}))

    assert "evil" not in answer.text
    assert "Trust" not in answer.text


async def test_a_ranking_in_another_order_of_its_keys_is_read(small: Opened, endpoint: ModelEndpoint) -> None:
    endpoint.reply = lambda _: Reply(['{"ranking": [{"score": 90, "n": 2}, {"score": 80, "n": 1}]}'])
    things = {f"l{n}": {"name": f"Brass lamp {n}"} for n in range(3)}
    async with small({"things": things}, ask=model(endpoint)) as ask:
        assert (await ask("brass lamp")).notes == ()


# Smaller ones


async def test_forgetting_where_nothing_is_known_is_no_mistake(small: Opened) -> None:
    async with small({"x": {}}) as ask:
        ann = await ask.named("ann")
        assert (await ann.site.call(Call("forget_memories"), ann.caller)).result == {"count": 0}


async def test_the_only_thing_that_fits_is_worth_more_than_half(small: Opened) -> None:
    soon = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    fair = {"@type": "Event", "name": "Fair", "startDate": soon}
    async with small({"events": {"a": fair}}, {"events": {"type": "Event"}}) as ask:
        assert (await ask("events tomorrow")).found[0].score == 100.0


async def test_a_yes_is_a_yes(small: Opened) -> None:
    things = {"a": {"name": "Lamp one", "dimmable": True}, "b": {"name": "Lamp two", "dimmable": False}}
    async with small({"things": things}) as ask:
        assert (await ask("lamp", answers={"dimmable": "yes"})).ids == ["a"]


async def test_german_asks_back_too(demo: Asked) -> None:
    answer = await demo("etwas zum Abendessen")

    assert isinstance(answer.last, ClarificationEvent)
