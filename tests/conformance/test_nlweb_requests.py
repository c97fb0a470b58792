"""What each part of an NLWeb request does to the answer of the sample site."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement

from portico.access.identity import make_key
from portico.catalog import Danger
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

BEANS = {"text": "a warm recipe with beans"}


async def ask(client: httpx.AsyncClient, query: Json, **sections: Any) -> Json:
    answer = await client.post("/ask", json={"query": query, **sections})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def found(client: httpx.AsyncClient, query: Json, **sections: Any) -> list[Json]:
    return (await ask(client, query, **sections))["results"]


def all_vegan(items: list[Json]) -> bool:
    return bool(items) and all("vegan" in item["suitableForDiet"] for item in items)


# 3.1: query


@requirement("nlweb:ask:site", "nlwebflat:ask:site")
async def test_a_site_names_what_is_searched(client: httpx.AsyncClient) -> None:
    everywhere = await found(client, {"text": "a lantern"})
    products = await found(client, {"text": "a lantern", "site": "products"})
    flat = await client.get("/ask", params={"query": "a lantern", "site": "products", "streaming": "0"})

    assert len({item["@id"].partition("/")[0] for item in everywhere}) > 1
    assert {item["@type"] for item in products} == {"Product"}
    assert [item["@id"] for item in flat.json()["results"]] == [item["@id"] for item in products]


@requirement("nlweb:note:site-url")
@pytest.mark.parametrize(
    "site", ["http://api.recipes.example.com", "https://api.recipes.example.com/", "api.recipes.example.com", "all"]
)
async def test_the_address_of_the_server_itself_means_all_of_it(client: httpx.AsyncClient, site: str) -> None:
    answer = await ask(client, {"text": "lemon barley soup", "site": site})

    assert answer["results"] == await found(client, {"text": "lemon barley soup"})
    assert "ignored" not in answer["_meta"]


@requirement("nlweb:ask:filter-item-type", "nlweb:ask:filter-vocabulary")
async def test_an_item_type_is_the_type_of_every_item(client: httpx.AsyncClient) -> None:
    for kind in ("Recipe", "Product", "Book"):
        items = await found(client, {"text": "tea and cake", "itemType": kind})
        assert {item["@type"] for item in items} == {kind}


@requirement("nlweb:ask:filter-location")
async def test_a_location_keeps_to_what_is_there(client: httpx.AsyncClient) -> None:
    answer = await ask(client, {"text": "a market or a parade", "itemType": "Event", "location": "Old Harbour"})
    elsewhere = await found(client, {"text": "a market or a parade", "itemType": "Event"})

    assert answer["_meta"]["understood"]["constraints"][-1]["words"] == "query.location"
    assert "ignored" not in answer["_meta"]
    inside, around = ({item["@id"] for item in each} for each in (answer["results"], elsewhere))
    assert inside
    assert around - inside


@requirement("nlweb:ask:filter-price")
@pytest.mark.parametrize("price", ["less than $20", "under 20", {"maxPrice": 19.99}])
async def test_a_price_is_kept_to(client: httpx.AsyncClient, price: Any) -> None:
    items = await found(client, {"text": "a present for a friend", "itemType": "Product", "price": price})

    assert items
    assert all(item["price"] < 20 for item in items)


@requirement("nlweb:ask:filter-vocabulary", "nlweb:ask:filters-any")
async def test_attributes_and_values_of_schema_org_are_filters(client: httpx.AsyncClient) -> None:
    diet = "https://schema.org/VeganDiet"
    items = await found(client, {**BEANS, "suitableForDiet": diet, "recipeCategory": "dinner", "moonPhase": "full"})

    assert all_vegan(items)
    assert {item["recipeCategory"] for item in items} == {"dinner"}


@requirement("nlweb:note:filter-date")
async def test_a_date_is_kept_to(client: httpx.AsyncClient) -> None:
    query = {"text": "the town and its people", "site": "articles"}
    before = await found(client, {**query, "datePublished": "before 2025"})
    since = await found(client, {**query, "datePublished": {"$gte": "2025-01-01"}})

    assert before
    assert since
    assert all(item["datePublished"] < "2025" for item in before)
    assert all(item["datePublished"] >= "2025" for item in since)


@requirement("nlweb:note:page-hints", "nlweb:note:page-cap")
@pytest.mark.parametrize("hint", ["limit", "num_results", "max_results"])
async def test_as_many_items_as_wanted_come_up_to_a_bound(client: httpx.AsyncClient, town: Parts, hint: str) -> None:
    few = await found(client, {"text": "a walk by the sea", hint: 3})
    many = await found(client, {"text": "a walk by the sea", hint: 10_000})

    assert len(few) == 3
    assert 3 < len(many) <= town.config.ask.most


# 3.2: context


@requirement("nlweb:context:prev")
async def test_earlier_questions_say_what_this_one_means(client: httpx.AsyncClient) -> None:
    answer = await ask(client, {"text": "with chicken"}, context={"prev": ["lemon barley soup"]})

    assert answer["_meta"]["decontextualized_query"] == "lemon barley soup with chicken"
    assert answer["results"][0]["name"] == "Lemon and Barley Soup with Chicken"


@requirement("nlweb:context:text", "nlweb:context:memory")
@pytest.mark.parametrize(
    "context", [{"text": "She cooks for a friend who is vegan"}, {"memory": "vegan, likes garlic"}]
)
async def test_what_is_known_of_the_person_is_kept_to(client: httpx.AsyncClient, context: Json) -> None:
    assert all_vegan(await found(client, BEANS, context=context))
    assert not all_vegan(await found(client, BEANS))


# 3.4: meta


@requirement("nlweb:meta:remember", "nlweb:note:remember-authenticated", "nlweb:note:user-is-a-label")
async def test_only_what_somebody_with_a_key_asks_to_remember_is_remembered(
    client: httpx.AsyncClient, town: Parts
) -> None:
    async def key(name: str) -> dict[str, str]:
        token, record = make_key(name, ["ask", "read:*"], Danger.SAFE, 1)
        await town.store.keys.add(record)
        return {"x-api-key": token}

    async def asked(headers: dict[str, str], **sections: Any) -> list[Json]:
        return (await client.post("/ask", json={"query": BEANS, **sections}, headers=headers)).json()["results"]

    ann, ben, nobody = await key("ann"), await key("ben"), {}
    to_remember = {"context": {"memory": "vegan"}, "meta": {"remember": True, "user": "ann"}}
    for headers in (ann, nobody):
        await asked(headers, **to_remember)

    assert all_vegan(await asked(ann, meta={"user": "ann"}))
    assert not all_vegan(await asked(ann))
    assert not all_vegan(await asked(nobody, meta={"user": "ann"}))
    assert not all_vegan(await asked(ben, meta={"user": "ann"}))


# Nothing is fetched


class Reached:
    """Counts who connects."""

    def __init__(self) -> None:
        self.connections = 0

    def __call__(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[str, Reached]]:
    reached = Reached()
    server = await asyncio.start_server(reached, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", reached


@requirement("nlweb:note:site-not-fetched", "nlwebflat:ask:context-url")
async def test_no_address_in_a_request_is_ever_fetched(client: httpx.AsyncClient) -> None:
    async with listener() as (url, reached):
        nested = await client.post(
            "/ask",
            json={
                "query": {"text": "lemon barley soup", "site": url, "url": url, "@context": url},
                "context": {"@type": "UserDiet", "@context": url, "text": f"see {url}"},
                "meta": {"user": {"@context": url, "url": url}},
            },
        )
        flat = await client.get("/ask", params={"query": "lemon barley soup", "context_url": url, "site": url})
        assert (nested.status_code, flat.status_code) == (200, 200)
        assert reached.connections == 0

        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
        writer.close()
        while not reached.connections:  # the listener would have noticed
            await asyncio.sleep(0)


# Questions that are asked back


@requirement("nlweb:note:elicitation-validated")
async def test_only_an_answer_that_is_no_option_is_asked_for_again(client: httpx.AsyncClient) -> None:
    query = {"text": "I need something for dinner"}
    asked = await ask(client, query)
    answers: Json = {"suitableForDiet": ["wood"], "totalTime": "under 20 minutes"}
    again = await ask(
        client, query, context={"answers": answers}, meta={"session_context": asked["_meta"]["session_context"]}
    )
    session = again["_meta"]["session_context"]
    answers = {"suitableForDiet": ["vegan"]}
    answer = await ask(client, query, context={"answers": answers}, meta={"session_context": session})

    assert [each["id"] for each in asked["elicitation"]["questions"]] == ["suitableForDiet", "totalTime"]
    assert [each["id"] for each in again["elicitation"]["questions"]] == ["suitableForDiet"]
    fields = {each["field"] for each in answer["_meta"]["understood"]["constraints"]}
    assert fields == {"suitableForDiet", "totalTime", "recipeCategory"}
    assert all_vegan(answer["results"])


# The flat dialect


@requirement("nlwebflat:ask:generate-mode")
@pytest.mark.parametrize(
    ("mode", "said"), [("none", set()), ("list", set()), ("summarize", {"summary"}), ("generate", {"nlws"})]
)
async def test_the_mode_of_a_flat_request_says_what_comes_with_the_items(
    client: httpx.AsyncClient, mode: str, said: set[str]
) -> None:
    params = {"query": "lemon barley soup", "generate_mode": mode, "streaming": "False"}
    answer = (await client.get("/ask", params=params)).json()

    assert set(answer) == {"query_id", "results", "query_analysis", *said}
    assert answer["results"][0]["name"] == "Lemon Barley Soup"


@requirement("nlwebflat:ask:decontextualized")
async def test_what_a_client_takes_a_flat_question_to_mean_is_heeded(client: httpx.AsyncClient) -> None:
    async def first(**more: str) -> str:
        params = {"query": "with chicken", "streaming": "0", **more}
        return (await client.get("/ask", params=params)).json()["results"][0]["name"]

    assert await first() == "Chicken and Leek Cobbler"
    assert await first(decontextualized_query="lemon barley soup with chicken") == "Lemon and Barley Soup with Chicken"


@requirement("nlwebflat:answer:result-batch", "nlweb:note:superset-item")
async def test_an_item_of_a_flat_answer_has_what_its_clients_read(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ask", params={"query": "lemon barley soup", "streaming": "0"})

    for item in answer.json()["results"]:
        assert {"@type", "@id", "url", "name", "site", "siteUrl", "score", "description"} <= set(item)
        assert item["schema_object"]["name"] == item["name"]
        assert item["url"].startswith(item["siteUrl"])
        assert set(item["grounding"]) == {"source_urls", "citations"}
        assert 0 <= item["score"] <= 100
