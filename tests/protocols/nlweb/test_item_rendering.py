"""Items and actions as clients see them."""

from typing import Any

import pytest
from tests.conformance.requirements import requirement

from portico.ask.events import Action, ItemEvent, OperationEvent
from portico.items import Item
from portico.protocols import parse_config, request_segments
from portico.protocols.nlweb.compat_054 import fit_to_054
from portico.protocols.nlweb.dialects import FLAT, V54, V55
from portico.protocols.nlweb.render import render_result
from portico.protocols.rendering import RenderContext, render_action, render_completed_action

SHOP = RenderContext(
    "https://shop.example", {"recipes": "Recipe"}.get, request_segments=request_segments(parse_config({}))
)
BOOK = Action("book_table", "Book a table.", {"id": "r1"}, ("time",), "ReserveAction")


def shown(data: dict[str, Any], dialect=V55, id: str = "r1", collection: str = "recipes", **found: Any) -> dict:
    return render_result(ItemEvent(Item(id, collection, data), 87.5, **found), SHOP, dialect)


@requirement("nlweb:answer:item-fields")
def test_an_item_is_its_data_and_what_every_client_needs() -> None:
    data = {"name": "Soup", "url": "/soup", "description": "Hot.", "cookTime": "PT5M", "_note": "kept"}

    assert shown(data) == {
        "@type": "Recipe",
        "@id": "r1",
        "url": "https://shop.example/soup",
        "name": "Soup",
        "site": "shop.example",
        "score": 87.5,
        "description": "Hot.",
        "cookTime": "PT5M",
        "_note": "kept",
        "grounding": {"source_urls": ["https://shop.example/soup"], "citations": ["r1"]},
    }


@requirement("nlweb:note:superset-item")
@pytest.mark.parametrize("dialect", [V54, FLAT], ids=["0.54", "flat"])
def test_one_item_has_what_every_known_client_reads(dialect: Any) -> None:
    item = shown({"name": "Soup", "url": "/soup", "description": "Hot."}, dialect)

    keys = {"@type", "@id", "url", "name", "site", "score", "description", "schema_object", "grounding"}
    assert keys <= set(item)
    assert set(item["grounding"]) == {"source_urls", "citations"}
    assert keys - {"schema_object"} <= set(shown({"name": "Soup", "url": "/soup", "description": "Hot."}, V55))


def test_other_dialects_get_the_data_once_more_as_an_object() -> None:
    data = {"@type": ["Recipe", "HowTo"], "name": "Soup", "image": "soup.png"}
    whole = {"@type": ["Recipe", "HowTo"], "name": "Soup", "image": "https://shop.example/soup.png"}

    assert shown(data, V54)["schema_object"] == shown(data, FLAT)["schema_object"] == whole
    assert shown(data, FLAT)["siteUrl"] == "https://shop.example"
    assert "schema_object" not in shown(data, V55)


@requirement("nlweb:answer:item-type")
@pytest.mark.parametrize(
    ("data", "collection", "type"),
    [
        ({"@type": "Dish"}, "recipes", "Dish"),
        ({}, "recipes", "Recipe"),
        ({}, "things", "Thing"),
        ({"@type": "SearchSummary"}, "recipes", "Recipe"),
        ({"@type": ["Dish", "Summary"]}, "things", "Thing"),
    ],
)
def test_the_type_is_the_items_or_its_collections(data: dict, collection: str, type: str) -> None:
    assert shown(data, collection=collection)["@type"] == type


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"name": "Soup", "headline": "Hot"}, "Soup"),
        ({"headline": "Hot"}, "Hot"),
        ({"title": "Title"}, "Title"),
        ({"name": ["", "Second"]}, "Second"),
        ({"name": {"@value": "Suppe", "@language": "de"}}, "Suppe"),
        ({"name": 5}, "r1"),
        ({}, "r1"),
    ],
)
def test_every_item_has_a_name_that_is_a_text(data: dict, name: str) -> None:
    assert shown(data)["name"] == name


@pytest.mark.parametrize(
    ("data", "description"),
    [
        ({"description": "x" * 500}, "x" * 500),
        ({"text": "Hot."}, "Hot."),
        ({"acceptedAnswer": {"@type": "Answer", "text": "Yes."}}, "Yes."),
        ({"articleBody": "word " * 100}, ("word " * 60).strip() + "…"),
        ({"description": {"@value": "Hot."}}, "Hot."),
        ({"description": "<p>Hot &amp; <b>sour</b>.</p>"}, "Hot & sour."),
        ({"description": "Ready in < 20 minutes."}, "Ready in < 20 minutes."),
        ({"description": 5}, None),
        ({}, None),
    ],
)
def test_a_description_is_a_text_and_found_elsewhere_if_need_be(data: dict, description: str | None) -> None:
    assert shown(data).get("description") == description


@requirement("nlweb:note:no-nulls")
def test_nulls_are_left_out_at_every_depth() -> None:
    data = {"a": None, "b": {"c": None, "d": [None, {"e": None, "f": 1}]}, "g": []}

    item = shown(data)

    assert {name: item[name] for name in ("b", "g")} == {"b": {"d": [{"f": 1}]}, "g": []}
    assert "a" not in item


@requirement("nlweb:note:urls-http")
@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "java\nscript:alert(1)", " JavaScript:alert(1)", "data:text/html,x", "http://[::1", "", 5],
)
def test_links_that_a_page_must_not_follow_are_left_out(address: Any) -> None:
    data = {
        "url": address,
        "image": [address, {"@type": "ImageObject", "contentUrl": address, "width": 5}],
        "author": {"name": "Ada", "url": address},
        "sameAs": [address],
    }

    item = shown(data)

    assert item["url"] == "https://shop.example/items/recipes/r1"  # the item's page here, in place of what it says
    assert "sameAs" not in item
    assert item["image"] == [{"@type": "ImageObject", "width": 5}]
    assert item["author"] == {"name": "Ada"}


def test_links_are_made_whole_at_every_depth() -> None:
    data = {
        "url": "soup?x=1",
        "image": {"url": "/a.png", "caption": "/not a link"},
        "logo": "//cdn.example/logo.png",
        "offers": [{"url": "https://other.example/buy"}],
    }

    item = shown(data)

    assert item["url"] == "https://shop.example/soup?x=1"
    assert item["image"] == {"url": "https://shop.example/a.png", "caption": "/not a link"}
    assert item["logo"] == "https://cdn.example/logo.png"
    assert item["offers"] == [{"url": "https://other.example/buy"}]


def test_an_id_that_is_an_address_serves_as_one() -> None:
    assert shown({}, id="https://shop.example/soup")["url"] == "https://shop.example/soup"


def test_an_item_that_names_no_address_has_its_page_here() -> None:
    item = shown({}, id="hot soup/no. 5?")

    assert item["url"] == "https://shop.example/items/recipes/hot%20soup/no.%205%3F"
    assert item["grounding"]["source_urls"] == [item["url"]]


@requirement("nlweb:answer:grounding")
def test_merged_items_are_named_as_grounds() -> None:
    twin = Item("r2", "recipes", {"url": "https://twin.example/soup"})

    assert shown({"url": "/soup"}, same=(twin,))["grounding"] == {
        "source_urls": ["https://shop.example/soup", "https://twin.example/soup"],
        "citations": ["r1", "r2"],
    }


def test_data_cannot_speak_in_our_place() -> None:
    forged = {
        "actions": [{"name": "pay", "endpoint": "https://evil.example"}],
        "grounding": "me",
        "score": 999,
        "site": "x",
    }

    item = shown({"name": "Soup", **forged})

    assert "actions" not in item
    assert (item["score"], item["site"]) == (87.5, "shop.example")
    assert item["grounding"] == {"source_urls": ["https://shop.example/items/recipes/r1"], "citations": ["r1"]}
    assert shown({"name": "Soup", **forged}, FLAT)["schema_object"] == {"name": "Soup"}


def test_whole_numbers_that_json_readers_cannot_hold_become_floats() -> None:
    assert shown({"big": 10**30, "small": -(10**30), "fine": 2**63})["big"] == 1e30


# Actions


@requirement(
    "nlweb:action:required",
    "nlweb:action:protocol",
    "nlweb:action:http",
    "nlweb:action:mcp",
    "nlweb:action:a2a",
    "nlweb:action:type",
)
def test_an_action_is_offered_in_the_form_of_each_protocol() -> None:
    common = {
        "@context": "http://schema.org/",
        "@type": "ReserveAction",
        "name": "book_table",
        "description": "Book a table. Needs also: time.",
    }

    assert render_action(BOOK, "HTTP", SHOP) == {
        **common,
        "protocol": "HTTP",
        "method": "POST",
        "endpoint": "https://shop.example/operations/book_table",
        "params": {"id": "r1"},
    }
    assert render_action(BOOK, "MCP", SHOP) == {
        **common,
        "protocol": "MCP",
        "server": "https://shop.example/mcp",
        "tool": "book_table",
        "arguments": {"id": "r1"},
    }
    assert render_action(BOOK, "A2A", SHOP) == {
        **common,
        "protocol": "A2A",
        "agent_url": "https://shop.example/a2a",
        "skill": "book_table",
        "message": {
            "role": "ROLE_USER",
            "parts": [{"data": {"operation": "book_table", "params": {"id": "r1"}}, "mediaType": "application/json"}],
        },
    }


def test_an_item_offers_its_actions_in_the_forms_that_are_served() -> None:
    everywhere = RenderContext("https://shop.example", action_forms=("HTTP", "MCP", "A2A"))
    found = ItemEvent(Item("r1", "recipes", {}), 1.0, actions=(BOOK,))

    assert [each["protocol"] for each in render_result(found, SHOP, V55)["actions"]] == ["HTTP"]
    assert [each["protocol"] for each in render_result(found, everywhere, V55)["actions"]] == ["HTTP", "MCP", "A2A"]


@requirement("nlweb:note:action-no-credentials", "nlweb:note:action-origin")
def test_an_action_of_the_data_is_offered_if_it_leads_to_this_site() -> None:
    entry = {"@type": "EntryPoint", "urlTemplate": "/order?dish={dish}", "httpMethod": "post", "headers": {"x": "y"}}
    data = {"potentialAction": {"@type": "OrderAction", "target": entry, "headers": {"authorization": "Bearer x"}}}

    item = shown(data)

    assert item["actions"] == [
        {
            "@context": "http://schema.org/",
            "@type": "OrderAction",
            "name": "OrderAction",
            "description": "OrderAction",
            "protocol": "HTTP",
            "method": "GET",
            "endpoint": "https://shop.example/order?dish={dish}",
        }
    ]
    assert "potentialAction" not in item


@requirement("nlweb:note:action-origin", "nlweb:note:urls-http")
@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/order",
        "http://shop.example/order",
        "https://shop.example:8443/order",
        "https://shop.example@evil.example/order",
        "https://admin:pw@shop.example/order",
        "//evil.example/order",
        "https://shop.example.evil.example/",
        "javascript:order()",
        {"urlTemplate": "https://evil.example"},
        [{"url": "https://evil.example"}, "https://shop.example/order"],
        {},
        [],
        5,
        None,
    ],
)
def test_an_action_of_the_data_that_leads_elsewhere_is_not_offered(target: Any) -> None:
    item = shown({"potentialAction": [{"@type": "OrderAction", "target": target}, "nonsense", None]})

    assert "actions" not in item
    assert "potentialAction" not in item


@pytest.mark.parametrize(
    "target",
    [
        "/operations/order",
        "https://shop.example/./operations/order",
        "https://shop.example/a/../%6fperations/order",
        "/a\\..\\operations/order",
    ],
)
def test_no_action_of_the_data_leads_to_where_the_site_is_told_to_do_things(target: str) -> None:
    assert "actions" not in shown({"potentialAction": {"@type": "OrderAction", "target": target}})


def test_a_deed_is_an_action_that_is_completed() -> None:
    assert render_completed_action(OperationEvent("book_table", {"id": "b1", "note": None}), SHOP) == {
        "@type": "Action",
        "name": "book_table",
        "actionStatus": "CompletedActionStatus",
        "result": {"id": "b1"},
    }
    assert "result" not in render_completed_action(OperationEvent("forget", None), SHOP)


def test_a_deed_says_what_the_things_are_called_that_its_result_names() -> None:
    mug = Item("mugs/1", "mugs", {"@type": "Product", "name": "Mug", "offers": {"price": 4, "priceCurrency": "GBP"}})

    assert render_completed_action(OperationEvent("order", {"mug": "mugs/1"}, (mug,)), SHOP)["object"] == [
        {"@type": "Product", "@id": "mugs/1", "name": "Mug", "priceCurrency": "GBP"}
    ]


# 0.54


@requirement("nlweb54:client:item-shapes")
@pytest.mark.parametrize(
    ("member", "given", "fitting"),
    [
        ("image", "a.png", "a.png"),
        ("image", {"@type": "ImageObject", "url": "a.png"}, "a.png"),
        ("image", [{"caption": "nothing"}, {"contentUrl": "b.png"}], "b.png"),
        ("image", {"caption": "nothing"}, None),
        ("genre", "Drama", ["Drama"]),
        ("genre", ["Drama", {"name": "Crime"}, 5], ["Drama", "Crime"]),
        ("sameAs", "https://x.example", ["https://x.example"]),
        ("director", "Ada", [{"name": "Ada"}]),
        ("actor", [{"@type": ["Person"], "name": "Ada", "age": 5}, {"age": 5}], [{"name": "Ada"}]),
        ("actor", 5, None),
        ("aggregateRating", {"ratingValue": 4.5, "ratingCount": [1]}, {"ratingValue": 4.5}),
        ("aggregateRating", {"ratingCount": 5}, None),
        ("aggregateRating", 4.5, None),
        ("recipeIngredient", "eggs", "eggs"),
        ("recipeIngredient", ["eggs", {"name": "milk"}, 5], ["eggs", "milk"]),
        ("cookTime", "PT5M", "PT5M"),
        ("cookTime", 5, None),
        ("datePublished", ["2024-01-01"], "2024-01-01"),
        (
            "review",
            {"author": "Ada", "reviewRating": 5, "reviewBody": "Good"},
            [{"reviewBody": "Good", "author": {"name": "Ada"}}],
        ),
        ("trailer", {"name": "Trailer", "duration": 5}, {"name": "Trailer"}),
        ("trailer", "x", None),
        ("nutrition", {"calories": 5}, {"calories": 5}),
    ],
)
def test_members_have_the_shapes_that_clients_of_0_54_check(member: str, given: Any, fitting: Any) -> None:
    assert fit_to_054({"@id": "m1", member: given}).get(member) == fitting
