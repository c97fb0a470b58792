"""What comes first, and by how much: relevance, then what is favoured, fresh and in the language."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.ask.conftest import Asked, Data, Opened, demo_items

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = datetime.now(UTC)
FILLER = {f"x{n}": {"name": f"Filler number {n}", "description": "Nothing to do with it."} for n in range(20)}


async def order(small: Opened, items: dict[str, Data], question: str, **more: Any) -> list[str]:
    types = more.pop("types", None)
    async with small({"things": {**FILLER, **items}}, types) as ask:
        return (await ask(question, **more)).ids


async def test_what_has_it_in_its_name_comes_before_what_mentions_it(small: Opened) -> None:
    items = {
        "mention": {"name": "A walk", "description": "Past the lighthouse, along the cliff, and home for tea."},
        "name": {"name": "The lighthouse", "description": "A walk past the cliff, and home for tea."},
    }

    assert await order(small, items, "lighthouse") == ["name", "mention"]


async def test_what_is_filed_under_a_word_comes_before_what_is_only_named_with_it(small: Opened) -> None:
    bowl = {"name": "Soup Bowl", "category": "ceramics", "keywords": ["soup"]}
    soup = {"name": "Pea and Lemon Soup", "recipeCategory": "soup"}
    async with small({"products": {**FILLER, "bowl": bowl}, "recipes": {**FILLER, "pea": soup}}) as ask:
        assert (await ask("a warm soup")).ids == ["pea", "bowl"]
        assert (await ask("soup bowl")).ids == ["bowl", "pea"]


async def test_what_came_out_lately_comes_first_among_equals(small: Opened) -> None:
    def article(days: int) -> Data:
        published = (NOW - timedelta(days=days)).date().isoformat()
        return {"@type": "Article", "name": f"Storm {days}", "datePublished": published}

    items = {f"a{days}": article(days) for days in (900, 3, 90)}

    assert await order(small, items, "storm") == ["a3", "a90", "a900"]


async def test_what_is_over_comes_after_what_is_still_to_come(small: Opened) -> None:
    def event(days: int) -> Data:
        return {"@type": "Event", "name": "Lantern walk", "startDate": (NOW + timedelta(days=days)).isoformat()}

    assert await order(small, {"a": event(-10), "b": event(200)}, "lantern walk") == ["b", "a"]


async def test_what_has_begun_but_not_ended_is_not_over(small: Opened) -> None:
    def event(start: int, end: int) -> Data:
        first, last = (NOW + timedelta(days=days) for days in (start, end))
        return {"@type": "Event", "name": "Fair", "startDate": first.isoformat(), "endDate": last.isoformat()}

    assert await order(small, {"a": event(-9, -8), "b": event(-3, 3)}, "fair") == ["b", "a"]


async def test_what_is_in_the_language_of_the_question_comes_first(small: Opened) -> None:
    items = {
        "en": {"name": "Fisch market", "inLanguage": "en"},
        "de": {"name": "Fisch Markt", "inLanguage": "de"},
    }

    assert (await order(small, items, "fisch", language="de"))[0] == "de"
    assert (await order(small, items, "fisch", language="en"))[0] == "en"


async def test_a_value_that_stands_in_the_question_counts(small: Opened) -> None:
    items = {
        "a": {"name": "Scarf", "material": "cotton", "description": "Not wool: cotton."},
        "b": {"name": "Scarf", "material": "wool", "description": "Made here by hand."},
    }

    assert (await order(small, items, "wool scarf"))[0] == "b"


async def test_what_has_no_word_of_the_question_is_no_answer(small: Opened) -> None:
    assert await order(small, {"a": {"name": "Lamp"}}, "lamp") == ["a"]
    assert await order(small, {"a": {"name": "Lamp"}}, "zebra") == []


async def test_a_question_of_which_little_is_known_is_not_answered(small: Opened) -> None:
    items = {"a": {"name": "Lamp of brass"}}

    assert await order(small, items, "zebra quagga okapi brass giraffe antelope") == []


async def test_the_best_of_a_sure_answer_has_a_hundred(small: Opened) -> None:
    async with small({"things": {**FILLER, "a": {"name": "Brass lamp"}}}) as ask:
        answer = await ask("brass lamp")

    assert [(found.item.id, found.score) for found in answer.found] == [("a", 100.0)]


async def test_half_an_answer_is_worth_less_than_a_whole_one(small: Opened) -> None:
    async with small({"things": {**FILLER, "a": {"name": "Brass lamp"}}}) as ask:
        whole, half = await ask("brass lamp"), await ask("brass trombone")

    assert half.found[0].score < whole.found[0].score


async def test_where_only_limits_decide_everything_fits(small: Opened) -> None:
    items = {f"t{n}": {"@type": "Product", "name": f"Thing {n}", "price": n} for n in range(9)}
    async with small({"things": items}, {"things": {"type": "Product"}}) as ask:
        answer = await ask("products under $5", limit=50)

    assert set(answer.ids) == {"t0", "t1", "t2", "t3", "t4"}
    assert all(found.score >= 50 for found in answer.found)


async def test_items_of_several_collections_are_on_one_scale(small: Opened) -> None:
    held = {
        "first": {"a": {"name": "Brass lamp"}, "b": {"name": "Brass"}},
        "second": {"c": {"name": "Brass lamp of 1900"}, "d": {"name": "Glass"}},
    }
    async with small(held) as ask:
        answer = await ask("brass lamp")

    assert set(answer.ids[:2]) == {"a", "c"}
    scores = [found.score for found in answer.found]
    assert scores == sorted(scores, reverse=True)


# Orders


async def test_what_lacks_the_field_comes_last(small: Opened) -> None:
    items = {
        "a": {"@type": "Product", "name": "Lamp", "description": "one"},
        "b": {"@type": "Product", "name": "Lamp", "description": "two", "price": 9},
        "c": {"@type": "Product", "name": "Lamp", "description": "three", "price": 4},
    }

    assert await order(small, items, "cheapest lamp") == ["c", "b", "a"]


async def test_prices_in_texts_are_ordered_as_numbers(small: Opened) -> None:
    prices = {"a": "$1,299.00", "b": "$99.50", "c": "$100"}
    items = {id: {"@type": "Product", "name": f"Lamp {id}", "price": price} for id, price in prices.items()}

    assert await order(small, items, "cheapest lamp") == ["b", "c", "a"]
    assert await order(small, items, "most expensive lamp") == ["a", "c", "b"]


async def test_times_are_ordered_by_their_length(small: Opened) -> None:
    times = {"a": "PT1H", "b": "PT50M", "c": "PT2H5M"}
    items = {id: {"@type": "Recipe", "name": f"Stew {id}", "totalTime": time} for id, time in times.items()}

    assert await order(small, items, "quickest stew") == ["b", "a", "c"]


# Near-duplicates


def lamp(**more: Any) -> Data:
    return {"@type": "Product", "name": "Brass lamp", "description": "Made by hand in a small town by the sea.", **more}


@pytest.mark.parametrize(
    "twin",
    [
        {},
        {"url": "https://example.com/elsewhere"},
        {"name": "brass LAMP"},
        {"description": "Made by hand in a small town by the sea!"},
    ],
)
async def test_near_duplicates_are_merged(small: Opened, twin: Data) -> None:
    async with small({"things": {"a": lamp(), "b": lamp(**twin)}}) as ask:
        answer = await ask("brass lamp")

    assert [(found.item.id, [item.id for item in found.same]) for found in answer.found] in (
        [("a", ["b"])],
        [("b", ["a"])],
    )


@pytest.mark.parametrize(
    "other",
    [
        {"name": "Brass lamp II"},
        {"@type": "Book"},
        {"inLanguage": "de"},
        {"description": "A film about the sea and a lamp, for grown-ups."},
        {"sku": "2"},
    ],
)
async def test_what_differs_in_what_matters_stands_for_itself(small: Opened, other: Data) -> None:
    async with small({"things": {"a": lamp(sku="1"), "b": lamp(sku="1") | other}}) as ask:
        answer = await ask("brass lamp")

    assert set(answer.ids) == {"a", "b"}


async def test_duplicates_of_two_collections_are_merged_too(small: Opened) -> None:
    async with small({"here": {"a": lamp()}, "there": {"a": lamp()}}) as ask:
        answer = await ask("brass lamp")

    assert [(found.item.collection, [item.collection for item in found.same]) for found in answer.found] == [
        ("here", ["there"])
    ]


async def test_the_demo_answers_questions_of_fact_with_its_answers(demo: Asked) -> None:
    asked = {
        "on which day is my rubbish collected": "faqs/on-which-day-is-my-rubbish-collected",
        "how cold is the sea pool": "faqs/how-cold-is-the-sea-pool",
    }
    for question, id in asked.items():
        assert id in (await demo(question)).ids[:3], question


async def test_dates_that_are_texts_are_ordered_to_the_day(small: Opened) -> None:
    dates = {"a": "2024-03-01", "b": "2024-11-30", "c": "unknown", "d": "2024-06-15"}
    things = {id: {"@type": "Article", "name": f"Storm {id}", "datePublished": date} for id, date in dates.items()}
    async with small({"things": things}) as ask:
        assert (await ask("newest storm")).ids[:3] == ["b", "d", "a"]


async def test_the_cheapest_of_several_offers_counts(small: Opened) -> None:
    things = {
        "a": {"name": "Lamp one", "offers": [{"price": 40}, {"price": 5}]},
        "b": {"name": "Lamp two", "offers": [{"price": 9}]},
    }
    async with small({"things": things}) as ask:
        assert (await ask("cheapest lamp")).ids == ["a", "b"]


@pytest.mark.parametrize(("question", "most"), [("longest book", max), ("shortest book", min)])
async def test_a_long_book_has_many_pages(demo: Asked, question: str, most: Any) -> None:
    books = demo_items("books")

    assert (await demo(question)).ids[0] == most(books, key=lambda id: books[id]["numberOfPages"])
