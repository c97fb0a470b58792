"""Questions about tables that call their fields what they like: roles say which is the name, the price, the date."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.ask.conftest import Asked, Data, opened_small

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALBUMS: dict[str, Data] = {
    "1": {"AlbumId": 1, "Album": "A Night at the Opera", "Artist": "Queen", "Preis": 49.99, "Jahr": 1975,
          "Stadt": "London", "Text": "Recorded in six studios."},
    "2": {"AlbumId": 2, "Album": "Sheer Heart Attack", "Artist": "Queen", "Preis": 50.01, "Jahr": 1974,
          "Stadt": "Cardiff", "Text": "Made in a hurry."},
    "3": {"AlbumId": 3, "Album": "Graceland Revisited", "Artist": "Paul", "Preis": 12.5, "Jahr": 2019,
          "Stadt": "London", "Text": "A journey to the south. With friends."},
    "4": {"AlbumId": 4, "Album": "Homework", "Artist": "Daft", "Preis": 80, "Jahr": 2021,
          "Stadt": "Paris", "Text": "Loud."},
}  # fmt: skip
ROLES = {"title": "Album", "price": "Preis", "date": "Jahr", "place": "Stadt", "description": "Text"}
SAID = frozenset({"list", "generate"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Asked]:
    settings: dict[str, Any] = {"albums": {"roles": ROLES, "fields": {"Preis": {"type": "number", "unit": "USD"}}}}
    async with opened_small({"albums": ALBUMS}, settings) as asked:
        yield asked


@pytest.mark.parametrize(
    ("question", "ids"),
    [
        ("albums under $50", {"1", "3"}),
        ("albums over $50", {"2", "4"}),
        ("albums between $12 and $50", {"1", "3"}),
        ("albums from 2019", {"3"}),
        ("albums since 2019", {"3", "4"}),
        ("albums before 1975", {"2"}),
        ("albums in London", {"1", "3"}),
    ],
)
async def test_limits_are_those_of_the_fields_with_the_role(shop: Asked, question: str, ids: set[str]) -> None:
    answer = await shop(question)

    assert set(answer.ids) == ids


@pytest.mark.parametrize(
    ("question", "first"),
    [("cheapest album", "3"), ("most expensive album", "4"), ("newest album", "4"), ("oldest album", "2")],
)
async def test_orders_are_those_of_the_fields_with_the_role(shop: Asked, question: str, first: str) -> None:
    answer = await shop(question)

    assert answer.ids[0] == first


async def test_one_thing_is_told_of_by_its_title(shop: Asked) -> None:
    answer = await shop("tell me about Sheer Heart Attack", modes=SAID)

    assert answer.ids == ["2"]
    assert answer.text.startswith("Sheer Heart Attack: at Cardiff, costs $50.01. Made in a hurry.")
    assert "Preis" not in answer.text  # nothing is said twice


async def test_things_are_compared_by_their_titles(shop: Asked) -> None:
    answer = await shop("compare Homework and Graceland Revisited", modes=SAID)

    assert set(answer.ids[:2]) == {"3", "4"}
    assert answer.text.startswith("Graceland Revisited costs $67.50 less. Homework: at Paris, costs $80;")


async def test_the_items_of_an_answer_have_the_names_of_schema_org(shop: Asked) -> None:
    answer = await shop("Homework")

    data = answer.found[0].item.data
    assert (data["name"], data["price"], data["priceCurrency"], data["Album"]) == ("Homework", 80, "USD", "Homework")


async def test_words_of_a_title_count_more_than_words_of_a_text() -> None:
    things: dict[str, Data] = {
        "a": {"Bezeichnung": "Plain", "Notiz": "kettle"},
        "b": {"Bezeichnung": "Kettle", "Notiz": "plain"},
    }
    async with opened_small({"things": things}, {"things": {"roles": {"title": "Bezeichnung"}}}) as asked:
        answer = await asked("kettle")

        assert answer.ids[0] == "b"


async def test_fields_of_any_name_have_roles() -> None:
    dishes: dict[str, Data] = {
        "1": {"Recipe Name": "Fish Pie", "Price (U.S. $)": 8.5, "名前": "魚"},
        "2": {"Recipe Name": "Lemon Tart", "Price (U.S. $)": 4, "名前": "檸檬"},
    }
    roles = {"title": "recipe_name", "price": "Price (U.S. $)"}
    async with opened_small({"dishes": dishes}, {"dishes": {"roles": roles}}) as asked:
        cheap, told = await asked("dishes under $5"), await asked("tell me about Fish Pie", modes=SAID)

    assert cheap.ids == ["2"]
    assert cheap.found[0].item.data["name"] == "Lemon Tart"
    assert told.ids == ["1"]
    assert told.text.startswith("Fish Pie costs 8.50") or told.text.startswith("Fish Pie: costs 8.50")
