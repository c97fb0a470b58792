"""When a question is asked back, what is asked, and that the answers count."""

from typing import Any

import pytest
from tests.ask.conftest import Answer, Asked, Data, Opened, demo_items
from tests.conformance.requirements import requirement

from portico.ask.events import ClarificationEvent, EndEvent, Question

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECIPE = {"type": "Recipe"}


def minutes(data: Data) -> int:
    hours, _, rest = data["totalTime"].removeprefix("PT").rpartition("H")
    return int(hours or 0) * 60 + int(rest.rstrip("M") or 0)


async def test_something_for_dinner_is_asked_back(demo: Asked, recipes: dict[str, Data]) -> None:
    answer = await demo("something for dinner")

    assert isinstance(answer.last, ClarificationEvent)
    assert answer.found == []
    assert set(answer.questions) == {"suitableForDiet", "totalTime"}
    diet = answer.questions["suitableForDiet"]
    held = {diet for data in recipes.values() for diet in data["suitableForDiet"]}
    assert (diet.type, set(diet.options)) == ("multi_select", held | {"no preference"})


async def test_options_come_from_the_data_the_most_frequent_first(demo: Asked, recipes: dict[str, Data]) -> None:
    options = (await demo("pasta recipe")).questions["recipeCategory"].options

    counts = [sum(data["recipeCategory"] == each for data in recipes.values()) for each in options[:-1]]
    assert counts == sorted(counts, reverse=True)
    assert all(counts)
    assert options[-1] == "no preference"


async def test_answering_narrows(demo: Asked, recipes: dict[str, Data]) -> None:
    answers = {"suitableForDiet": ["vegan"], "totalTime": "under 20 minutes"}
    answer = await demo("something for dinner", answers=answers, rounds=1, limit=100)

    assert set(answer.ids) == {
        id
        for id, data in recipes.items()
        if data["recipeCategory"] == "dinner" and "vegan" in data["suitableForDiet"] and minutes(data) < 20
    }
    assert set(answer.limits) == {"suitableForDiet", "totalTime", "dinner"}


async def test_every_range_that_is_offered_is_understood_and_together_they_hold_everything(
    demo: Asked, recipes: dict[str, Data]
) -> None:
    options = (await demo("something for dinner")).questions["totalTime"].options[:-1]
    found = [set((await demo("something for dinner", answers={"totalTime": each}, limit=100)).ids) for each in options]

    assert all(found)
    assert set().union(*found) == {id for id, data in recipes.items() if data["recipeCategory"] == "dinner"}


@pytest.mark.parametrize("language", ["de", "es", "fr", "en"])
async def test_what_is_offered_in_another_language_is_understood_there(demo: Asked, language: str) -> None:
    asked = await demo("something for dinner", language=language)
    options = asked.questions["totalTime"].options
    narrow, whole = [
        await demo("something for dinner", answers={"totalTime": each}, language=language, limit=100)
        for each in (options[0], options[-1])
    ]

    assert 0 < len(narrow.ids) < len(whole.ids)


async def test_no_preference_at_all_gives_everything(demo: Asked, recipes: dict[str, Data]) -> None:
    asked = await demo("something for dinner")
    answers = {id: question.options[-1] for id, question in asked.questions.items()}
    answer = await demo("something for dinner", answers=answers, limit=100)

    assert set(answer.ids) == {id for id, data in recipes.items() if data["recipeCategory"] == "dinner"}


async def test_an_answer_holds_before_what_the_question_said(demo: Asked) -> None:
    answer = await demo("recipes", answers={"recipeCategory": "soup"}, limit=100)

    assert {found.item.data["recipeCategory"] for found in answer.found} == {"soup"}


async def test_answers_are_never_asked_back(demo: Asked) -> None:
    assert isinstance((await demo("recipe", answers={"totalTime": "no preference"})).last, EndEvent)


async def test_a_question_is_asked_back_at_most_twice(demo: Asked) -> None:
    kinds = [type((await demo("something for dinner", rounds=rounds)).last) for rounds in (0, 1, 2, 3)]

    assert kinds == [ClarificationEvent, ClarificationEvent, EndEvent, EndEvent]


@pytest.mark.parametrize(
    "question",
    ["vegetarian dinner", "lemon barley soup recipe", "where can I park?", "books by Hester Quill", "cheapest book"],
)
async def test_a_question_that_says_enough_is_answered(demo: Asked, question: str) -> None:
    assert isinstance((await demo(question)).last, EndEvent)


async def test_who_cannot_be_asked_is_answered(demo: Asked) -> None:
    answer = await demo("something for dinner", may_clarify=False)

    assert answer.finished.items == 10


@pytest.mark.parametrize("question", ["something", "anything", "what do you recommend?", "?"])
async def test_where_nothing_is_said_the_collections_are_offered(demo: Asked, question: str) -> None:
    questions = (await demo(question)).questions

    assert list(questions) == ["collection"]
    assert questions["collection"].type == "single_select"
    assert set(questions["collection"].options) == {
        "Recipes", "Products", "Restaurants", "Events", "Articles", "Books", "Places", "Questions and answers",
    }  # fmt: skip


async def test_a_collection_that_is_chosen_is_looked_at_alone(demo: Asked) -> None:
    answer = await demo("something", answers={"collection": "Books"}, limit=100)

    assert answer.understood.collections == ("books",)
    assert set(answer.ids) == set(demo_items("books"))


async def test_a_site_file_may_forbid_to_ask_back(small: Opened) -> None:
    dishes = {f"d{n}": {"@type": "Recipe", "name": f"Dish {n}", "recipeCategory": f"k{n % 3}"} for n in range(9)}
    async with small({"dishes": dishes}, {"dishes": RECIPE}, ask={"clarify": False}) as ask:
        answer = await ask("some recipe idea", limit=20)

    assert len(answer.ids) == 9


# Types of questions


async def one_question(small: Opened, name: str, values: list[Any]) -> Question | None:
    things = {f"t{n}": {"name": f"Thing {n}", name: value} for n, value in enumerate(values)}
    async with small({"things": things}, {"things": {"details": [name]}}) as ask:
        last = (await ask("something from the things")).last
    return last.questions[0] if isinstance(last, ClarificationEvent) else None


@pytest.mark.parametrize(
    ("name", "values", "type", "options"),
    [
        ("flag", [True, False], "boolean", ()),
        ("size", ["small", "large", "small"], "single_select", ("small", "large", "no preference")),
        (
            "diet",
            ["https://schema.org/VeganDiet", "https://schema.org/HalalDiet"],
            "multi_select",
            ("halal", "vegan", "no preference"),
        ),
        ("weight", [3, 5, 8.5], "number", ()),
        ("motto", [f"saying number {n} of many that were made" for n in range(100)], "free_text", ()),
    ],
)
async def test_a_question_has_the_type_that_the_values_suggest(
    small: Opened, name: str, values: list[Any], type: str, options: tuple[str, ...]
) -> None:
    question = await one_question(small, name, values)

    assert question
    assert (question.id, question.type, question.options) == (name, type, options)
    assert question.text


@pytest.mark.parametrize(("name", "values"), [("size", ["one", "one"]), ("weight", [3, 3, 3]), ("none", [None, None])])
async def test_nothing_is_asked_where_there_is_nothing_to_choose(small: Opened, name: str, values: list[Any]) -> None:
    assert await one_question(small, name, values) is None


@pytest.mark.parametrize(
    ("values", "answer", "found"),
    [
        ({"a": {"flag": True}, "b": {"flag": False}}, {"flag": True}, {"a"}),
        ({"a": {"weight": 3}, "b": {"weight": 5}}, {"weight": 5}, {"b"}),
        ({"a": {"size": "small"}, "b": {"size": "large"}}, {"size": "large"}, {"b"}),
        ({"a": {"size": "small"}, "b": {"size": "large"}}, {"size": ["large", "small"]}, {"a", "b"}),
        ({"a": {"motto": "slow and steady"}, "b": {"motto": "haste"}}, {"motto": "steady"}, {"a"}),
    ],
)
async def test_an_answer_of_every_type_is_honoured(
    small: Opened, values: dict[str, Data], answer: Data, found: set[str]
) -> None:
    things = {id: {"name": "Thing", **data, "description": id} for id, data in values.items()}
    async with small({"things": things}) as ask:
        given: Answer = await ask("things", answers=answer)

    assert set(given.ids) == found
    assert set(given.limits) == set(answer)


async def test_prices_are_offered_in_ranges_that_part_the_items(small: Opened) -> None:
    things = {f"t{n}": {"@type": "Product", "name": f"Lamp {n}", "price": 3 * n + 1} for n in range(30)}
    async with small({"things": things}, {"things": {"type": "Product"}}) as ask:
        options = (await ask("suggest a product")).questions["price"].options
        found = [await ask("suggest a product", answers={"price": each}, limit=50) for each in options[:-1]]

    sizes = [len(each.ids) for each in found]
    assert len(sizes) == 3
    assert min(sizes) >= 5
    assert set().union(*(each.ids for each in found)) == set(things)


async def test_a_number_that_was_asked_for_may_come_as_a_text(small: Opened) -> None:
    things = {"a": {"name": "Lamp one", "weight": 3}, "b": {"name": "Lamp two", "weight": 5}}
    async with small({"things": things}) as ask:
        assert (await ask("lamp", answers={"weight": "5"})).ids == ["b"]


# Options in the language of the answer

LANGUAGES = ["de", "es", "fr", "ar", "zh", "ja"]
ENGLISH = {"nut-free", "gluten-free", "dairy-free", "British", "Seafood", "Coffee", "Recipes", "Books", "Events"}


@requirement("nlweb:prefer:language-options")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("question", ["something for dinner", "a restaurant idea", "something"])
async def test_options_are_in_the_language_of_the_answer(demo: Asked, question: str, language: str) -> None:
    asked = await demo(question, language=language)
    options = {option for each in asked.questions.values() for option in each.options}

    assert options
    assert options & ENGLISH == set()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("question", "id"), [("something for dinner", "suitableForDiet"), ("a restaurant idea", "servesCuisine")]
)
async def test_an_option_in_any_language_means_what_it_means_in_english(
    demo: Asked, question: str, id: str, language: str
) -> None:
    english = (await demo(question)).questions[id].options
    options = (await demo(question, language=language)).questions[id].options

    assert len(options) == len(english)
    for said, meant in zip(options, english, strict=True):
        answers = [(await demo(question, answers={id: each}, language=language, limit=50)) for each in (said, meant)]
        assert answers[0].ids == answers[1].ids, (said, meant)
        assert answers[0].ids
        assert answers[0].understood.ignored == ()


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_collection_is_chosen_by_its_name_in_the_language_of_the_answer(demo: Asked, language: str) -> None:
    options = (await demo("something", language=language)).questions["collection"].options
    chosen = [(await demo("something", answers={"collection": each})).understood.collections for each in options]

    assert len(set(chosen)) == len(options) == 8
    assert all(len(collections) == 1 for collections in chosen)
