"""Merrow Bay: what is there, and what can be done."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from mcp import Client
from rs_bpe.bpe import openai
from tests.conformance.requirements import requirement

import portico.demo
from portico.cli.sites import demo_config
from portico.config import Config, StoreSettings
from portico.demo.shopping import shopping_list
from portico.errors import Conflict, InvalidParams, UnknownItem
from portico.protocols.mcp.server import make_server
from portico.query import Order, Query, parse_filter
from portico.requests import Call, Task
from portico.server.assembly import Parts, open_site
from portico.sources.ingest import load_sources
from portico.store import open_store
from portico.store.records import Merge, Put
from portico.telemetry import discard

DEMO = Path(portico.demo.__file__).parent
COLLECTIONS = {
    "recipes": ("recipe", "Recipe"),
    "products": ("product", "Product"),
    "restaurants": ("restaurant", None),
    "events": ("event", None),
    "articles": ("article", None),
    "books": ("book", "Book"),
    "places": ("place", None),
    "faqs": ("faq", None),
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    store = StoreSettings(url=f"sqlite:///{tmp_path_factory.mktemp('demo')}/demo.db")
    plain = msgspec.structs.replace(demo_config(), store=store)
    return msgspec.structs.replace(plain, search=type(plain.search)(embedder="none:"))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def items(config: Config) -> dict[str, dict[str, dict[str, Any]]]:
    """Everything there is, by collection and id."""
    store = await open_store(config.store_url)
    await load_sources(config, store, discard)
    found = {
        name: {item.id: dict(item.data) async for items in store.items.scan(name) for item in items}
        for name in COLLECTIONS
    }
    await store.close()
    return found


@pytest.fixture
async def town(config: Config, items: dict) -> AsyncIterator[Parts]:
    async with open_site(config) as parts:
        yield parts


@pytest.fixture
def visitor(town: Parts):
    """Call an operation as somebody without a key; a task is waited for."""
    nobody = town.site.access.anonymous_caller("10.1.1.1")

    async def call(operation: str, **params: Any) -> Any:
        outcome = await town.site.call(Call(operation, params), nobody)
        if not isinstance(outcome, Task):
            return outcome.result
        ended = await town.site.tasks.wait(outcome.id, nobody, 25)
        assert ended.state == "completed", ended.error
        return ended.result

    return call


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from walk(inner)
    if isinstance(value, list):
        for inner in value:
            yield from walk(inner)


async def test_there_are_four_hundred_items_of_seven_types(items: dict) -> None:
    everything = [data for found in items.values() for data in found.values()]

    assert len(everything) >= 400
    assert len({data["@type"] for data in everything}) >= 7
    assert all(len(found) >= 20 for found in items.values())


async def test_every_item_has_a_name_a_description_and_a_picture_that_exists(items: dict) -> None:
    for found in items.values():
        for id, data in found.items():
            assert data.get("name") or data.get("headline"), id
            image = data.get("image")
            if image is not None:
                path = DEMO / "images" / str(image).split("/images/")[-1].removeprefix("images/")
                assert path.is_file(), (id, image)
    assert sum("image" in data for found in items.values() for data in found.values()) >= 300


async def test_links_between_items_resolve(items: dict) -> None:
    ids = {id for found in items.values() for id in found}
    prefixes = tuple(f"{name}/" for name in COLLECTIONS)
    links = [
        (id, target)
        for found in items.values()
        for id, data in found.items()
        for key, target in walk({k: v for k, v in data.items() if k != "@id"})
        if key == "@id" and isinstance(target, str) and target.startswith(prefixes)
    ]

    assert len(links) >= 50
    assert [link for link in links if link[1] not in ids] == []


@pytest.mark.parametrize(
    "path", sorted((DEMO / "images").rglob("*.svg")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_picture_is_safe_to_show(path: Path) -> None:
    text = path.read_text()

    assert text.lstrip().startswith("<svg")
    assert not re.search(r"<script|<foreignObject|<iframe|\son\w+\s*=|javascript:|<!ENTITY", text, re.IGNORECASE)
    assert not re.search(r"""(?:href|src)\s*=\s*["'](?!#)""", text, re.IGNORECASE)


async def test_there_are_prices_times_ratings_dates_and_coordinates(items: dict) -> None:
    assert all(data["price"] > 0 and data["stock"] >= 0 for data in items["products"].values())
    assert all(re.fullmatch(r"PT\w+", data["totalTime"]) for data in items["recipes"].values())
    assert all(re.match(r"\d{4}-\d\d-\d\dT", data["startDate"]) for data in items["events"].values())
    keys = {key for found in items.values() for data in found.values() for key, _ in walk(data)}
    assert {"ratingValue", "latitude", "longitude"} <= keys


async def test_some_items_are_in_a_second_language(items: dict) -> None:
    languages = {data.get("inLanguage") for found in items.values() for data in found.values()}

    assert len(languages - {None}) >= 2


async def test_every_collection_has_its_seven_operations_by_name(town: Parts) -> None:
    known = town.site.catalog.operations

    for many, (one, _) in COLLECTIONS.items():
        wanted = {f"{verb}_{many}" for verb in ("list", "search", "count")}
        wanted |= {f"{verb}_{one}" for verb in ("get", "create", "update", "delete")}
        assert wanted <= set(known), wanted - set(known)
    own = {"add_to_cart", "view_cart", "remove_from_cart", "place_order", "cancel_order"}
    assert own | {"book_table", "cancel_booking", "plan_day"} <= set(known)
    assert not [name for name in known if re.search(r"_(cart|order|booking)s$", name)]


async def a_product(town: Parts, least: int = 5) -> str:
    query = Query("products", where=parse_filter({"stock": {"$gte": least, "$lt": 99}}), limit=1)
    return (await town.store.items.find(query)).items[0].id


async def stock(town: Parts, id: str) -> int:
    return (await town.store.items.get("products", id)).data["stock"]


async def test_a_cart_is_filled_emptied_ordered_and_the_order_cancelled(town: Parts, visitor) -> None:
    product = await a_product(town)
    before = await stock(town, product)

    cart = await visitor("add_to_cart", product=product, quantity=2)
    cart = await visitor("add_to_cart", product=product, cart=cart["id"])
    assert [line["quantity"] for line in cart["lines"]] == [3]
    assert cart["total"] == round(cart["lines"][0]["price"] * 3, 2)
    assert cart["currency"] == cart["lines"][0]["currency"] == "GBP"
    assert await visitor("view_cart", cart=cart["id"]) == cart

    order = await visitor("place_order", cart=cart["id"])
    assert (order["status"], order["total"], order["currency"]) == ("sent", cart["total"], "GBP")
    assert await stock(town, product) == before - 3
    assert (await visitor("view_cart", cart=cart["id"]))["lines"] == []

    for _ in range(2):
        assert (await visitor("cancel_order", order=order["id"]))["status"] == "cancelled"
    assert await stock(town, product) == before


@pytest.mark.parametrize(
    ("lines", "bought"),
    [
        (("1 lemon", "2 lemons", "1/2 lemon"), ["3.5 lemons"]),
        (("900 g flour", "1.2 kg flour", "80 g butter"), ["2.1 kg flour", "80 g butter"]),
        (("1 tin chickpeas", "1 tin chickpeas, drained"), ["2 × tin chickpeas"]),
        (("1/2 tsp salt", "1/4 tsp salt", "1 tbsp salt"), ["3/4 tsp salt", "1 tbsp salt"]),
        (("1/2 swede", "1/2 swede"), ["1 swede"]),
        (("1/00 swede", "2 , sliced", "3 , sliced"), ["1/00 swede", "2 , sliced", "3 , sliced"]),
        (("parsley", "2 leeks, sliced", "Parsley", "1,5 kg Äpfel"), ["parsley", "2 leeks, sliced", "1,5 kg Äpfel"]),
    ],
)
async def test_what_several_recipes_need_is_bought_once(lines: tuple[str, ...], bought: list[str]) -> None:
    assert shopping_list(lines) == bought


async def test_a_plan_of_meals_has_one_list_of_all_they_need(visitor) -> None:
    plan = await visitor("plan_meals", days=7, pace=0)

    assert len(plan["meals"]) == 7
    assert len(plan["shopping"]) == len(set(plan["shopping"])) > 20


async def test_a_plan_of_meals_survives_recipes_that_say_less_than_others(town: Parts, visitor) -> None:
    recipes: dict[str, dict[str, Any]] = {
        "bare": {"name": "Zorgle stew"},
        "nameless": {"description": "A zorgle without a name.", "recipeIngredient": []},
        "odd": {"name": "Zorgle pie", "recipeIngredient": [None, 2, {"name": "salt"}, "1 leek"]},
        "one": {"name": "Zorgle soup", "recipeIngredient": "2 leeks, sliced"},
        "null": {"name": "Zorgle cake", "recipeIngredient": None},
    }
    await town.store.items.write("recipes", [Put(f"zorgle/{id}", data) for id, data in recipes.items()])
    await town.index.sync(await town.store.changes.head())

    plan = await visitor("plan_meals", days=5, wish="zorgle", pace=0)

    assert {meal["what"] for meal in plan["meals"]} == {
        "Zorgle stew", "zorgle/nameless", "Zorgle pie", "Zorgle soup", "Zorgle cake"
    }  # fmt: skip
    assert plan["shopping"] == ["3 leeks"]


async def test_a_product_is_taken_out_of_a_cart(town: Parts, visitor) -> None:
    product = await a_product(town)
    cart = await visitor("add_to_cart", product=product)

    assert (await visitor("remove_from_cart", cart=cart["id"], product=product))["lines"] == []
    with pytest.raises(UnknownItem):
        await visitor("view_cart", cart="guessed")
    with pytest.raises(UnknownItem):
        await visitor("add_to_cart", product="products/none")
    with pytest.raises(Conflict):
        await visitor("add_to_cart", product=product, quantity=99)


async def test_two_additions_to_one_cart_at_once_lose_nothing(town: Parts, visitor) -> None:
    """Both are in the cart, or one is told to try again."""
    first = await a_product(town)
    cart = (await visitor("add_to_cart", product=first))["id"]

    results = await asyncio.gather(
        *(visitor("add_to_cart", product=first, cart=cart) for _ in range(4)), return_exceptions=True
    )

    done = [each for each in results if not isinstance(each, Exception)]
    assert all(isinstance(each, Conflict) for each in results if isinstance(each, Exception))
    assert (await visitor("view_cart", cart=cart))["lines"][0]["quantity"] == 1 + len(done)


async def test_an_order_that_cannot_be_filled_gives_back_what_it_took(town: Parts, visitor) -> None:
    plenty = await a_product(town)
    others = Query("products", where=parse_filter({"stock": {"$gte": 2}, "id": {"$ne": plenty}}), limit=1)
    scarce = (await town.store.items.find(others)).items[0].id
    before = await stock(town, plenty)
    cart = (await visitor("add_to_cart", product=plenty))["id"]
    await visitor("add_to_cart", product=scarce, quantity=2, cart=cart)
    left = await stock(town, scarce)
    await town.store.items.write("products", [Merge(scarce, {"stock": 0})])

    with pytest.raises(AssertionError, match="sold out"):
        await visitor("place_order", cart=cart)
    await town.store.items.write("products", [Merge(scarce, {"stock": left})])

    assert await stock(town, plenty) == before


async def test_a_table_is_booked_and_given_back(town: Parts, items: dict, visitor) -> None:
    bookable = [id for id, data in items["restaurants"].items() if data.get("acceptsReservations")]
    walk_in = [id for id, data in items["restaurants"].items() if not data.get("acceptsReservations")]

    booking = await visitor("book_table", restaurant=bookable[0], time="2026-12-05T19:00", people=4)
    assert (booking["restaurant"], booking["people"], booking["status"]) == (bookable[0], 4, "confirmed")
    assert booking["time"].startswith("2026-12-05T19:00")
    assert (await visitor("cancel_booking", booking=booking["id"]))["status"] == "cancelled"

    with pytest.raises(Conflict):
        await visitor("book_table", restaurant=walk_in[0], time="2026-12-05T19:00")
    with pytest.raises(InvalidParams):
        await visitor("book_table", restaurant=bookable[0], time="tomorrow")
    with pytest.raises(InvalidParams):
        await visitor("book_table", restaurant=bookable[0], time="2026-12-05T19:00", people=40)


async def test_a_day_is_planned_around_interests(visitor, items: dict) -> None:
    day = next(data["startDate"][:10] for data in items["events"].values())

    plan = await visitor("plan_day", date=day, interests=["sea", "music"], pace=0)

    assert plan["date"] == day
    assert [stop["time"] for stop in plan["stops"]] == ["09:30", "11:00", "13:00", "15:00", "17:00", "19:30"]
    chosen = [stop["id"] for stop in plan["stops"] if stop["id"]]
    assert len(chosen) == len(set(chosen)) >= 4
    known = {id for name in ("restaurants", "places", "events") for id in items[name]}
    assert set(chosen) <= known
    with pytest.raises(AssertionError, match="is not a day"):
        await visitor("plan_day", date="someday", interests=[])


async def test_the_query_of_the_readme_finds_cheap_products(town: Parts) -> None:
    query = Query("products", where=parse_filter({"price": {"$lt": 20}}), order=(Order("price"),), limit=5)
    page = await town.site.query(query, town.site.access.anonymous_caller())

    prices = [item.data["price"] for item in page.items]
    assert len(prices) == 5
    assert prices == sorted(prices)
    assert prices[-1] < 20


@requirement("mcp:tools:cost")
async def test_its_tools_cost_a_model_few_tokens(town: Parts) -> None:
    server = make_server(town.site, town.config, discard, town.site.access.anonymous_caller())
    async with Client(server, cache=None) as client:
        result = await client.list_tools()

    sent = json.dumps(result.model_dump(by_alias=True, mode="json", exclude_none=True), separators=(",", ":"))
    assert [tool.name for tool in result.tools][:2] == ["ask", "await"]
    assert len(openai.o200k_base().encode(sent)) < 2500
