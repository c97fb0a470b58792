"""Operations that a question asks for, and actions that results offer."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.ask.conftest import Asked, Opened

from portico.ask.events import ClarificationEvent, EndEvent, ErrorEvent, OperationEvent, TaskEvent
from portico.ask.languages.localization import phrases
from portico.ask.outcomes import render_result
from portico.errors import TaskCancelled
from portico.items import Item
from portico.requests import Call, TaskState

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOMORROW = (datetime.now(UTC) + timedelta(days=1)).date()

OWN = '''
from typing import Annotated, Literal
from msgspec import Meta
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def paint_wall(context: Context, colour: Literal["red", "blue"], coats: int = 1, gloss: bool = False) -> dict:
    """Paint a wall."""
    return {"colour": colour, "coats": coats, "gloss": gloss}

@operation(kind="execute", danger="destructive")
async def launch_rocket(context: Context) -> dict:
    """Launch the rocket."""
    return {}

@operation(kind="execute", danger="safe")
async def rent_boat(context: Context, boat: str, hours: Annotated[int, Meta(ge=1)] = 1) -> dict:
    """Rent a boat by the hour."""
    return {"boat": boat, "hours": hours}

@operation(kind="execute", danger="safe")
async def register_crew(context: Context, members: int, names: list[str]) -> dict:
    """Register the crew of a race."""
    return {"members": members, "names": names}

@operation(kind="execute", danger="safe", long=True)
async def count_fish(context: Context) -> int:
    """Count the fish."""
    return 7
'''
BOATS = {"b1": {"name": "Mary Jane"}, "b2": {"name": "Mary Jane the Second"}, "b3": {"name": "Gull"}}


@pytest.fixture
def harbour(small: Opened, tmp_path: Path) -> Any:
    (tmp_path / "own.py").write_text(OWN)
    rights = {"scopes": ["ask", "read:*", "execute:*"], "danger": "destructive"}

    def opened(**more: Any) -> Any:
        said = {"operations": ["own.py"], "folder": str(tmp_path), "anonymous": rights, **more}
        return small({"boats": BOATS}, {"boats": {"singular": "boat"}}, **said)

    return opened


# Commands


SURE = {"confirm": True}


async def test_a_command_with_everything_it_needs_is_done_once_it_is_confirmed(demo: Asked) -> None:
    asked = await demo("book a table at Kelp for 4 people tomorrow at 7pm")
    assert {id: question.type for id, question in asked.questions.items()} == {"confirm": "boolean"}
    assert "restaurant Kelp," in asked.questions["confirm"].text
    assert asked.why == "Before I do anything, please say yes or no:"

    answer = await demo("book a table at Kelp for 4 people tomorrow at 7pm", answers=SURE)

    assert answer.did.operation == "book_table"
    assert answer.did.result | {"id": ""} == {
        "id": "",
        "restaurant": "restaurants/kelp",
        "name": "Kelp",
        "time": f"{TOMORROW}T19:00:00+00:00",
        "people": 4,
        "status": "confirmed",
    }
    assert [item.data["name"] for item in answer.did.about] == ["Kelp"]
    assert answer.finished.items == 1


@pytest.mark.parametrize("no", [False, "no", "nein", "No"])
async def test_what_is_not_meant_is_not_done(demo: Asked, no: Any) -> None:
    answer = await demo("book a table at Kelp for 4 people tomorrow at 7pm", answers={"confirm": no})

    assert isinstance(answer.last, ErrorEvent)
    assert isinstance(answer.last.error, TaskCancelled)


async def test_neither_yes_nor_no_is_asked_again(demo: Asked) -> None:
    answer = await demo("book a table at Kelp for 4 people tomorrow at 7pm", answers={"confirm": "maybe"})

    assert list(answer.questions) == ["confirm"]


@pytest.mark.parametrize(
    ("question", "name", "value"),
    [
        ("add 3 Fish Kettle to my cart", "quantity", 3),
        ("add two Fish Kettle to my cart", "quantity", 2),
        ("book a table at Kelp tomorrow at 19:00 for 4", "people", 4),
        ("book a table at Kelp for four tomorrow at 7pm", "people", 4),
    ],
)
async def test_the_one_number_that_is_left_counts_what_is_counted(
    demo: Asked, question: str, name: str, value: int
) -> None:
    assert f"{name}: {value}" in {each.says for each in (await demo(question)).constraints}


async def test_a_confirmation_shows_what_was_not_said_too(demo: Asked) -> None:
    asked = await demo("add the Fish Kettle to my cart")

    assert "quantity 1" in asked.questions["confirm"].text


async def test_a_command_says_what_it_was_taken_to_mean(demo: Asked) -> None:
    answer = await demo("book a table at Kelp for 4 people tomorrow at 7pm")

    assert {each.field: each.says for each in answer.constraints} == {
        "restaurant": "restaurant: Kelp",
        "time": f"time: {phrases('en').day(TOMORROW)}, 19:00",
        "people": "people: 4",
    }


async def test_what_a_command_lacks_is_asked_for_and_the_answer_completes_it(demo: Asked) -> None:
    asked = await demo("book a table at Kelp")
    assert {id: question.type for id, question in asked.questions.items()} == {"time": "free_text"}
    assert asked.why == "To do this, I need to know:"
    asked = await demo("book a table at Kelp", answers={"time": f"{TOMORROW}T19:00"})
    assert list(asked.questions) == ["confirm"]

    answer = await demo("book a table at Kelp", answers={"time": f"{TOMORROW}T19:00", **SURE})
    assert answer.did.result["time"] == f"{TOMORROW}T19:00:00+00:00"


async def test_an_answer_that_does_not_fit_is_an_error_of_the_answer(demo: Asked) -> None:
    answer = await demo("book a table at Kelp", answers={"time": "whenever", **SURE})

    assert isinstance(answer.last, ErrorEvent)


async def test_a_command_that_nobody_can_be_asked_about_is_a_question(demo: Asked) -> None:
    answer = await demo("book a table at Kelp", may_clarify=False)

    assert answer.finished.items == 10
    assert not [event for event in answer.events if isinstance(event, OperationEvent)]


async def test_a_thing_is_called_by_its_name(demo: Asked) -> None:
    answer = await demo("add Kipper Pair, Oak-Smoked to my cart", answers=SURE)

    assert [(line["product"], line["quantity"]) for line in answer.did.result["lines"]] == [
        ("products/kipper-pair-oak-smoked", 1)
    ]


async def test_the_longest_name_that_is_said_counts(harbour: Any) -> None:
    async with harbour() as ask:
        short, long = await ask("rent the boat Mary Jane"), await ask("rent the boat Mary Jane the Second")

    assert (short.did.result["boat"], long.did.result["boat"]) == ("b1", "b2")


async def test_long_work_becomes_a_promise_that_is_kept(harbour: Any) -> None:
    async with harbour(background=True) as ask:
        promised = (await ask("please count the fish")).promised
        await ask.site.tasks.wait(promised.task.id, ask.caller, 30)
        events = await ask.site.task_events(promised.task.id, ask.caller)

    assert events == (OperationEvent("count_fish", 7), EndEvent(1))


async def test_a_promise_can_be_given_up(demo: Asked) -> None:
    promised = (await demo("plan meals")).promised
    assert promised.task.state == TaskState.PENDING

    for _ in range(2):
        with pytest.raises(TaskCancelled):
            await demo.site.task_events(promised.task.id, demo.caller, cancel=True)
    with pytest.raises(TaskCancelled):
        await demo.site.task_events(promised.task.id, demo.caller)


# Parameters


@pytest.mark.parametrize(
    ("question", "result"),
    [
        ("paint the wall blue", {"colour": "blue", "coats": 1, "gloss": False}),
        ("can you paint the wall red, coats: 3", {"colour": "red", "coats": 3, "gloss": False}),
    ],
)
async def test_parameters_are_read_from_the_words(harbour: Any, question: str, result: Any) -> None:
    async with harbour() as ask:
        answer = await ask(question)

    assert (answer.did.operation, answer.did.result) == ("paint_wall", result)


async def test_each_missing_parameter_is_a_typed_question(harbour: Any) -> None:
    async with harbour() as ask:
        wall, crew = await ask("paint the wall"), await ask("register the crew")

    colour = wall.questions["colour"]
    assert (colour.type, set(colour.options)) == ("single_select", {"red", "blue"})
    assert {id: question.type for id, question in crew.questions.items()} == {"members": "number", "names": "free_text"}


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ({"colour": "red"}, {"colour": "red", "coats": 1, "gloss": False}),
        ({"colour": "red", "coats": "4"}, {"colour": "red", "coats": 4, "gloss": False}),
        ({"colour": "blue", "gloss": "yes"}, {"colour": "blue", "coats": 1, "gloss": True}),
        ({"colour": "blue", "gloss": "no"}, {"colour": "blue", "coats": 1, "gloss": False}),
    ],
)
async def test_answers_are_taken_as_people_write_them(harbour: Any, answers: Any, result: Any) -> None:
    async with harbour() as ask:
        answer = await ask("paint the wall", answers=answers)

    assert answer.did.result == result


async def test_one_text_may_list_several_things(harbour: Any) -> None:
    async with harbour() as ask:
        answer = await ask("register the crew", answers={"members": 2, "names": "Ann, Bob and Cy"})

    assert answer.did.result == {"members": 2, "names": ["Ann", "Bob", "Cy"]}


@pytest.mark.parametrize(
    "answers", [{"colour": "green"}, {"colour": 5}, {"colour": "red", "coats": "many"}, {"colour": {}}]
)
async def test_a_wrong_answer_runs_nothing(harbour: Any, answers: Any) -> None:
    async with harbour() as ask:
        answer = await ask("paint the wall", answers=answers)

    assert isinstance(answer.last, ErrorEvent | ClarificationEvent)
    assert not [event for event in answer.events if isinstance(event, OperationEvent)]


# Items that answers name


SOUP = "add two soup bowls to my cart"
TABLE = "book a table for 4 tomorrow at 7pm"


async def test_what_a_command_hints_at_is_offered_by_name(demo: Asked) -> None:
    asked = (await demo(SOUP)).questions["product"]

    assert (asked.text, asked.type, asked.options[0]) == ("Which product?", "single_select", "Soup Bowl, Wide")


async def test_few_that_can_be_taken_are_all_offered(demo: Asked) -> None:
    asked = (await demo(TABLE)).questions["restaurant"]

    assert {"Kelp", "The Harbour Lamp"} < set(asked.options)
    assert not {"The Anchor Rest", "The Coble"} & set(asked.options)


@pytest.mark.parametrize(
    ("command", "answers", "shown"),
    [
        (SOUP, {"product": "Soup Bowl, Wide"}, "product Soup Bowl, Wide"),
        (SOUP, {"product": "products/soup-bowl-wide"}, "product Soup Bowl, Wide"),
        (TABLE, {"restaurant": "The Harbour Lamp"}, "restaurant The Harbour Lamp"),
        (TABLE, {"restaurant": "harbour lamp"}, "restaurant The Harbour Lamp"),
    ],
)
async def test_an_answer_names_an_item_and_the_confirmation_does_too(
    demo: Asked, command: str, answers: Any, shown: str
) -> None:
    sure = (await demo(command, answers=answers)).questions
    done = await demo(command, answers={**answers, **SURE})

    assert list(sure) == ["confirm"]
    assert shown in sure["confirm"].text
    assert shown.partition(" ")[2] in str(done.did.result)


async def test_a_name_that_fits_several_is_asked_again_with_those(demo: Asked) -> None:
    asked = (await demo(TABLE, answers={"restaurant": "harbour", **SURE})).questions["restaurant"]

    assert set(asked.options) == {"The Harbour Lamp", "Pho Harbour"}


async def test_a_name_that_fits_nothing_is_asked_again_and_told_so(demo: Asked) -> None:
    asked = (await demo(SOUP, answers={"product": "Flying Soup Carpet", **SURE})).questions["product"]

    assert asked.text == "I found nothing for “Flying Soup Carpet”. Which product?"
    assert "Soup Bowl, Wide" in asked.options


async def test_who_takes_no_reservations_is_told_before_anything_is_confirmed(demo: Asked) -> None:
    said, answered = await demo(f"{TABLE} at The Coble"), await demo(TABLE, answers={"restaurant": "The Anchor Rest"})

    assert said.questions["restaurant"].text == "The Coble takes no reservations. Which restaurant?"
    assert answered.questions["restaurant"].text == "The Anchor Rest takes no reservations. Which restaurant?"
    assert "Kelp" in said.questions["restaurant"].options


async def test_items_of_one_name_are_told_apart_by_their_ids(harbour: Any) -> None:
    async with harbour() as ask:
        await ask.put("boats", {"b4": {"name": "Gull"}})
        asked = await ask("rent the boat Gull")
        answer = await ask("rent the boat Gull", answers={"boat": "Gull (b4)"})

    assert set(asked.questions["boat"].options) == {"Gull (b3)", "Gull (b4)"}
    assert answer.did.result["boat"] == "b4"


@pytest.mark.parametrize(
    ("command", "time"),
    [
        ("book a table at Kelp", "tomorrow 7pm"),
        ("book a table at Kelp", "tomorrow at 19:00"),
        ("book a table at Kelp tomorrow", "7pm"),
    ],
)
async def test_a_time_is_answered_as_people_say_it(demo: Asked, command: str, time: str) -> None:
    asked = await demo(command, answers={"time": time})

    assert f"time {phrases('en').day(TOMORROW)}, 19:00" in asked.questions["confirm"].text


async def test_half_a_time_is_asked_for_again(demo: Asked) -> None:
    assert list((await demo("book a table at Kelp", answers={"time": "tomorrow"})).questions) == ["time"]


# What came of it


async def test_an_id_in_a_result_is_that_of_an_item_by_the_name_it_stands_under(harbour: Any) -> None:
    async with harbour() as ask:
        answer = await ask("rent a boat for 2 hours", answers={"boat": "Gull"})

    assert answer.did.result == {"boat": "b3", "hours": 2}
    assert render_result(answer.did.result, answer.did.about, phrases("en")) == "boat: Gull, hours: 2"


async def test_a_result_is_read_by_names_and_with_its_currency() -> None:
    kettle = Item("p/1", "p", {"name": "Kettle", "price": 20, "priceCurrency": "GBP"})
    line = {"product": "p/1", "name": "Kettle", "quantity": 2, "price": 20.0}
    booked = {"time": "2026-12-05T19:00:00+00:00", "deposit": 5, "currency": "EUR", "paid": False, "coffee": 2}

    assert render_result({"id": "c1", "lines": [line], "total": 40}, [kettle], phrases("en")) == (
        "id: c1, lines: Kettle (quantity: 2, price: £20.00), total: £40.00"
    )
    assert render_result({"total": 10**400, "currency": "EUR", "seats": 2}, (), phrases("en")) == "seats: 2"
    assert render_result(booked, (), phrases("de")) == (
        "time: 5. Dezember 2026, 19:00, deposit: 5,00 €, paid: ✗, coffee: 2"
    )


# What is not run


async def test_what_cannot_be_undone_is_never_run_from_words(harbour: Any) -> None:
    async with harbour() as ask:
        answer = await ask("launch the rocket")

    assert isinstance(answer.last, EndEvent)
    assert not [event for event in answer.events if isinstance(event, OperationEvent)]


@pytest.mark.parametrize(
    "question", ["how do I paint a wall blue?", "the wall was painted blue", "who can paint the wall"]
)
async def test_a_question_about_it_is_no_command(harbour: Any, question: str) -> None:
    async with harbour() as ask:
        answer = await ask(question)

    assert isinstance(answer.last, EndEvent)
    assert not [event for event in answer.events if isinstance(event, OperationEvent)]


@pytest.mark.parametrize("question", ["delete boats", "delete_boats b1", "create a boat", "list boats", "get boat b1"])
async def test_what_every_collection_can_is_no_command(harbour: Any, question: str) -> None:
    async with harbour() as ask:
        answer = await ask(question)

    assert not [event for event in answer.events if isinstance(event, OperationEvent | TaskEvent)]


async def test_who_may_not_is_answered_as_if_it_were_not_there(harbour: Any) -> None:
    async with harbour() as ask:
        reader = await ask.named("reader", ("ask", "read:*"))
        answer = await reader("paint the wall blue")

    assert isinstance(answer.last, EndEvent)
    assert not [event for event in answer.events if isinstance(event, OperationEvent)]


# Actions


async def test_results_offer_what_can_be_done_with_them(demo: Asked) -> None:
    kipper = "products/kipper-pair-oak-smoked"
    action = (await demo("kipper pair", filters={"itemType": "Product"})).actions(kipper)["add_to_cart"]

    assert (action.type, action.params, action.missing) == ("AddToCartAction", {"product": kipper}, ())


async def test_an_action_names_what_is_still_needed(demo: Asked) -> None:
    action = (await demo("Kelp restaurant")).actions("restaurants/kelp")["book_table"]

    assert (action.type, action.params, action.missing) == (
        "ReserveAction",
        {"restaurant": "restaurants/kelp"},
        ("time",),
    )


async def test_an_action_can_be_called_as_it_is(demo: Asked) -> None:
    kipper = "products/kipper-pair-oak-smoked"
    action = (await demo("kipper pair", filters={"itemType": "Product"})).actions(kipper)["add_to_cart"]
    outcome = await demo.site.call(Call(action.operation, action.params), demo.caller)

    assert [line["product"] for line in outcome.result["lines"]] == [kipper]


async def test_nobody_is_offered_a_table_where_none_is_reserved(demo: Asked) -> None:
    answer = await demo("The Anchor Rest restaurant")

    assert "restaurants/the-anchor-rest" in answer.ids
    assert not answer.actions("restaurants/the-anchor-rest")


async def test_nobody_is_offered_to_undo_or_what_they_may_not(demo: Asked) -> None:
    answer = await demo("kipper", limit=20)
    reader = await demo.named("reader", ("ask", "read:*"))
    offered = {each.operation for found in answer.found for each in found.actions}

    assert offered == {"add_to_cart", "book_table"}
    assert not [each for found in (await reader("kipper")).found for each in found.actions]
