"""Questions that compare things by their names: those come first, and what sets them apart is said."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from tests.ask.conftest import Asked, Data, opened_small
from tests.models.endpoint import ModelEndpoint, Reply

from portico.ask.languages.loader import LANGUAGES, load_language

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMMED_UP = frozenset({"list", "summarize"})
PRODUCTS: dict[str, Data] = {
    "kettle": {"name": "Copper Kettle", "price": 35.5, "priceCurrency": "GBP", "aggregateRating": {"ratingValue": 4.1}},
    "lamp": {"name": "Brass Lamp, Small", "price": 45, "priceCurrency": "GBP", "aggregateRating": {"ratingValue": 4.8}},
    "rope": {"name": "Old Rope", "price": 45, "priceCurrency": "GBP"},
    "bowl": {"name": "Fish Bowl", "price": 9, "priceCurrency": "EUR"},
}
RECIPES: dict[str, Data] = {
    "pie": {"name": "Fish Pie", "totalTime": "PT1H10M"},
    "mash": {"name": "Bangers and Mash", "totalTime": "PT40M"},
    "stew": {"name": "Chicken Stew with Beans", "totalTime": "PT2H"},
    "curry": {"name": "Chicken Curry", "totalTime": "PT40M"},
    "loft": {"name": "The Loft Supper", "description": "It is served in a loft."},
    "pond": {"name": "Fish Pond Supper", "description": "It has a fish pond."},
    "under": {"name": "Under the Loft Supper"},
}
ITEMS = {
    "products": {id: {"@type": "Product", **data} for id, data in PRODUCTS.items()},
    "recipes": {id: {"@type": "Recipe", **data} for id, data in RECIPES.items()},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Asked]:
    async with opened_small(ITEMS) as asked:
        yield asked


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("compare the Copper Kettle and the Old Rope", ["kettle", "rope"]),
        ("which is cheaper, old rope or copper kettle?", ["rope", "kettle"]),
        ("Copper Kettle or Old Rope?", ["kettle", "rope"]),
        ("how does the Copper Kettle compare to Fish Pie", ["kettle", "pie"]),
        ("is the brass lamp dearer than the copper kettle", ["lamp", "kettle"]),
        ("Fish Pie vs Bangers and Mash", ["pie", "mash"]),
        ("compare Bangers and Mash with Fish Pie", ["mash", "pie"]),
        ("compare the Bangers and Mash and the Fish Pie", ["mash", "pie"]),
        ("Compare Fish Pie and Bangers and Mash.", ["pie", "mash"]),
        ("compare Copper Kettle, Fish Pie and Old Rope", ["kettle", "pie", "rope"]),
        ("Brass Lamp, Small or Copper Kettle?", ["lamp", "kettle"]),
        ("The Loft Supper or Old Rope", ["loft", "rope"]),
        ("Under the Loft Supper or Old Rope", ["under", "rope"]),
        ("Was ist günstiger, Copper Kettle oder Old Rope?", ["kettle", "rope"]),
        ("¿Qué es mejor, Copper Kettle o Old Rope?", ["kettle", "rope"]),
        ("Quelle est la différence entre Copper Kettle et Old Rope ?", ["kettle", "rope"]),
    ],
)
async def test_what_is_compared_by_name_comes_first_in_the_order_of_the_question(
    shop: Asked, question: str, named: list[str]
) -> None:
    answer = await shop(question, modes=SUMMED_UP)

    assert answer.names[: len(named)] == named
    assert [each.score for each in answer.found[: len(named)]] == [100.0] * len(named)
    assert answer.constraints == ()  # what stands in a name is no limit
    assert set(answer.said[-1].cites) == {each.item.ref for each in answer.found[: len(named)]}


@pytest.mark.parametrize(
    "question",
    [
        "fish or chicken recipes",
        "fish or chicken",
        "compare fish and chicken",
        "brass lamp or copper kettle",  # one of them is no whole name, and nothing says that they are compared
        "compare Fish Pie and Apple Crumble",
        "Fish Pie and Copper Kettle",
        "Copper Kettle or Copper Kettle",
        "recipes like Fish Pie or Bangers and Mash",
        "which is better",
        "compare",
    ],
)
async def test_what_names_no_items_is_searched_for_as_ever(shop: Asked, question: str) -> None:
    answer = await shop(question, modes=SUMMED_UP, may_clarify=False)

    assert [found.score for found in answer.found[:2]].count(100.0) < 2
    assert "less" not in answer.text


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            "compare Copper Kettle and Brass Lamp, Small",
            "Copper Kettle costs £9.50 less; Brass Lamp, Small is rated higher. "
            "Copper Kettle: costs £35.50, rated 4.1; Brass Lamp, Small: costs £45, rated 4.8. ",
        ),
        (
            "which is cheaper, Copper Kettle or Brass Lamp, Small?",
            "Copper Kettle costs £9.50 less. "
            "Copper Kettle: costs £35.50, rated 4.1; Brass Lamp, Small: costs £45, rated 4.8. ",
        ),
        (
            "which is faster: Fish Pie, Chicken Curry or Chicken Stew with Beans?",
            "Chicken Curry takes least time. Fish Pie: takes 1 hour 10 minutes; Chicken Curry: takes 40 minutes; "
            "Chicken Stew with Beans: takes 2 hours. ",
        ),
        # Nobody is ahead where the values are the same, or cannot be compared.
        ("compare Brass Lamp, Small and Old Rope", "Brass Lamp, Small: costs £45; Old Rope: costs £45. "),
        ("compare Copper Kettle and Fish Bowl", "Copper Kettle: costs £35.50; Fish Bowl: costs €9. "),
        (
            "Was ist billiger, Copper Kettle oder Old Rope?",
            "Copper Kettle kostet 9,50 £ weniger. Copper Kettle (kostet 35,50 £); Old Rope (kostet 45 £). ",
        ),
    ],
)
async def test_what_sets_them_apart_is_said_by_what_was_asked_for(shop: Asked, question: str, text: str) -> None:
    assert (await shop(question, modes=SUMMED_UP)).text == text
    assert (await shop(question, modes=frozenset({"generate"}))).text == text


async def test_of_what_has_nothing_in_common_each_is_said_what_it_is(shop: Asked) -> None:
    answer = await shop("compare Fish Pie and Old Rope", modes=SUMMED_UP)

    assert answer.text == "Fish Pie: takes 1 hour 10 minutes; Old Rope: costs £45. "


async def test_of_what_has_no_facts_at_all_is_said_what_it_says_itself(shop: Asked) -> None:
    question = "compare The Loft Supper and the Fish Pond Supper"

    assert (await shop(question, modes=SUMMED_UP)).text == "The best match is The Loft Supper. Also: Fish Pond Supper. "
    assert (await shop(question, modes=frozenset({"generate"}))).text == "It has a fish pond. It is served in a loft. "


async def test_limits_beside_the_question_hold_for_what_is_compared(shop: Asked) -> None:
    answer = await shop("compare Copper Kettle and Old Rope", filters={"price": "under 40"}, modes=SUMMED_UP)

    assert answer.names == ["kettle"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_every_language_says_who_is_ahead(shop: Asked, language: str) -> None:
    answer = await shop("compare Copper Kettle and Old Rope", modes=SUMMED_UP, language=language)

    ahead, sides = (each.text for each in answer.said)
    assert "Copper Kettle" in ahead
    assert "Old Rope" not in ahead
    assert "Copper Kettle" in sides
    assert "Old Rope" in sides
    assert "{" not in answer.text
    assert all(part.strip() in ahead for part in load_language(language).comparison_phrases.price[0].split("{}"))


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(lambda _: Reply(["The Copper Kettle costs less [1]."])) as running:
        yield running


async def test_a_model_is_told_of_what_is_compared_and_not_asked_for_an_order(endpoint: ModelEndpoint) -> None:
    async with opened_small(ITEMS, ask={"model": endpoint.url("openai", "retries=0")}) as shop:
        answer = await shop("compare Old Rope and Copper Kettle", modes=SUMMED_UP)

    [asked] = endpoint.requests
    assert answer.names[:2] == ["rope", "kettle"]
    assert "Fish Bowl" not in asked.user
    assert "Old Rope" in asked.user
