"""The page of an item, whatever the item is."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from portico.ask.events import Action
from portico.catalog import Collection
from portico.items import Item
from portico.query import Page
from portico.web import HEADERS, page
from portico.web.addresses import item_path
from portico.web.assets import assets
from portico.web.home import CollectionListing, collection_page, problem_page
from portico.web.item import ItemExtras, PageLocation, item_page
from portico.web.style import APP_HEADERS, ITEM_HEADERS, READ_MODULES

BASE = "https://bay.example"
SHELF = PageLocation("Merrow <Bay>", BASE, Collection("things", title="Things", language="en"))


def shown(
    data: dict[str, Any], id: str = "things/one", shelf: PageLocation = SHELF, company: ItemExtras | None = None
) -> LexborHTMLParser:
    return LexborHTMLParser(item_page(Item(id, "things", data), shelf, {"@id": id, **data}, company))


def facts(page: LexborHTMLParser) -> dict[str, str]:
    """The names and values of the first table of details."""
    table = page.css_first("main dl")
    rows = [each for each in table.iter() if each.tag in {"dt", "dd"}]
    return {name.text(): value.text() for name, value in zip(rows[::2], rows[1::2], strict=True)}


def glance(page: LexborHTMLParser) -> list[str]:
    """The facts below the name."""
    return [each.text() for each in page.css("header .item-facts li")]


def test_a_recipe_is_laid_out_for_a_cook() -> None:
    page = shown(
        {
            "@type": "Recipe",
            "name": "Lemon soup",
            "description": "Sharp and warm.",
            "image": "/images/soup.svg",
            "totalTime": "PT1H10M",
            "recipeYield": 4,
            "suitableForDiet": ["vegan", "nut-free"],
            "aggregateRating": {"@type": "AggregateRating", "ratingValue": 4.7, "reviewCount": 127},
            "author": {"@type": "Person", "name": "Marigold Osei"},
            "datePublished": "2025-07-06",
            "recipeIngredient": ["2 lemons", "2 leeks"],
            "recipeInstructions": [{"@type": "HowToStep", "text": "Soften."}, "Simmer."],
        }
    )

    assert page.css_first("h1").text() == "Lemon soup"
    assert page.css_first("img").attributes["src"] == f"{BASE}/images/soup.svg"
    assert glance(page) == ["1 hr 10 min", "4.7 (127)"]
    assert [each.text() for each in page.css("section h2")] == ["Ingredients", "Instructions", "Details"]
    assert [each.text() for each in page.css("section ul li")] == ["2 lemons", "2 leeks"]
    assert [each.text() for each in page.css("ol li")] == ["Soften.", "Simmer."]
    assert facts(page) == {
        "Rating": "★ 4.7 / 5 (127)",
        "Total time": "1 hour 10 minutes",
        "Author": "Marigold Osei",
        "Date published": "6 July 2025",
        "Serves": "4",
        "Suitable for": "vegan, nut-free",
    }


def test_a_product_and_its_shop_are_laid_out_for_a_buyer() -> None:
    page = shown(
        {
            "name": "Kipper",
            "price": 6.5,
            "offers": {
                "@type": "Offer",
                "price": "6.50",
                "priceCurrency": "GBP",
                "availability": "https://schema.org/InStock",
                "seller": {"@id": "places/old-smokehouse"},
            },
            "address": {"@type": "PostalAddress", "streetAddress": "1 Quay", "addressLocality": "Merrow Bay"},
            "openingHoursSpecification": {
                "@type": "OpeningHoursSpecification",
                "dayOfWeek": "https://schema.org/Monday",
                "opens": "09:00",
                "closes": "17:00",
            },
            "weight": {"@type": "QuantitativeValue", "value": 300, "unitText": "g"},
            "fresh": True,
            "startDate": "2026-12-05T08:00:00+00:00",
        }
    )

    assert glance(page) == ["5 December 2026, 08:00", "£6.50", "1 Quay, Merrow Bay"]
    assert facts(page) == {
        "Price": "£6.50",
        "Offer": "£6.50 · In stock · Old smokehouse",
        "Start date": "5 December 2026, 08:00",
        "Address": "1 Quay, Merrow Bay",
        "Opening hours": "Monday 09:00–17:00",
        "Weight": "300 g",
        "Fresh": "Yes",
    }
    assert page.css_first("dd a").attributes["href"] == f"{BASE}/items/places/old-smokehouse"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"price": 1.4}, {"Price": "1.40"}),
        ({"price": 0}, {"Price": "Free"}),
        ({"price": "6.50", "priceCurrency": "points"}, {"Price": "6.50"}),
        ({"price": 5, "offers": [{"priceCurrency": "GBP"}, {"priceCurrency": "EUR"}]}, {"Price": "5"}),
        (
            {"priceCurrency": "GBP", "offers": {"price": 5}, "isRelatedTo": {"@type": "Product", "price": 7}},
            {"Offer": "£5", "Related": "Price7"},
        ),
        (
            {"offers": [{"@type": "Offer", "price": 5, "priceCurrency": "GBP"}, {"@type": "Offer", "price": 6}]},
            {"Offer": "£56"},
        ),
        ({"estimatedCost": {"@type": "MonetaryAmount", "value": 3, "currency": "EUR"}}, {"Estimated cost": "€3"}),
    ],
)
def test_a_price_is_shown_in_its_own_currency_or_in_none(data: dict[str, Any], told: dict[str, str]) -> None:
    assert facts(shown({"name": "x", **data})) == told


def test_what_an_item_is_known_by_stands_in_the_words_of_its_language() -> None:
    german = PageLocation("Bucht", BASE, Collection("dinge", type="Product", language="de"))
    data = {
        "name": "x",
        "aggregateRating": {"ratingValue": 4.25, "reviewCount": 1234},
        "offers": {"price": 1300, "priceCurrency": "EUR", "availability": "https://schema.org/SoldOut"},
    }

    assert glance(shown(data, shelf=german)) == ["1.300,00 €", "4,2 (1.234)", "Ausverkauft"]
    assert glance(shown({**data, "@type": "Event", "startDate": "soon", "location": "Quay"})) == [
        *("soon", "Quay", "€1,300.00")
    ]
    assert glance(shown({**data, "@type": "Question"})) == []
    arabic = PageLocation("Bucht", BASE, Collection("dinge", type="Recipe", language="ar"))
    assert glance(shown({"name": "x", "totalTime": "PT1H10M", "price": 0}, shelf=arabic)) == ["1 س 10 د", "مجاني"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"offers": [{"price": "7", "priceCurrency": "GBP"}, {"price": 4.5}]}, ["£4.50"]),
        ({"isAccessibleForFree": True, "price": 3}, ["Free"]),
        ({"offers": {"price": "ask us"}, "priceRange": "££"}, ["ask us"]),
        ({"priceRange": "££"}, ["££"]),
    ],
)
def test_the_least_that_something_costs_is_said_first(data: dict[str, Any], told: list[str]) -> None:
    assert glance(shown({"name": "x", "@type": "Product", **data})) == told


def test_what_can_be_done_with_an_item_leads_to_how_where_no_script_runs() -> None:
    action = Action("add_to_cart", 'Put "it" in', {"product": '<"things/one">'}, ("quantity",))
    near = [Item("things/two", "things", {"name": "Two", "image": "/2.png", "price": 2})]
    page = shown({"name": "Tea & milk"}, company=ItemExtras([action], near))

    [link] = page.css("a[data-operation]")
    assert link.text() == "Add to cart"
    assert link.attributes == {
        "class": "button primary",
        "href": "/docs#call_add_to_cart",
        "title": 'Put "it" in',
        "data-operation": "add_to_cart",
        "data-params": '{"product":"<\\"things/one\\">"}',
    }
    assert page.css_first(".actions noscript").text().startswith("This needs JavaScript. Without it,")
    [card] = page.css(".near .item")
    assert (card.css_first("h3 a").attributes["href"], card.css_first("li").text()) == ("/items/things/two", "Price: 2")
    assert page.css_first(".near h2 a").attributes["href"] == "/collections/things"


def test_an_answer_stands_before_what_is_known_of_the_question() -> None:
    data = {
        "name": "Where?",
        "text": "Where?",
        "keywords": "parking",
        "acceptedAnswer": {"@type": "Answer", "text": "Here."},
    }

    read = [each.text() for each in shown(data).css("main h1, main h2, section p, main dt, main dd")]
    assert read == ["Where?", "Answer", "Here.", "Details", "Keywords", "parking"]


def test_only_a_name_is_enough() -> None:
    page = shown({"name": "x"})

    assert page.css_first("article").text(strip=True) == "xAsk about thisAsk"
    assert [(each.text(), each.attributes["href"]) for each in page.css("nav.trail a")] == [
        ("Merrow <Bay>", "/"),
        ("Things", "/collections/things"),
    ]


@pytest.mark.parametrize(
    ("title", "detail", "told"),
    [
        ("Not Found", "Not Found", "There is no page at this address. Use the chat to find what you are looking for."),
        ("Not Found", "There is no item 'x'.", "There is no item 'x'."),
        ("Gone", "Gone", "Gone"),
    ],
)
def test_what_went_wrong_is_told_with_the_way_on(title: str, detail: str, told: str) -> None:
    page = LexborHTMLParser(problem_page("Merrow Bay", title, detail))

    assert [each.text() for each in page.css("main h1, main .lead")] == [title, told]
    assert [each.attributes["href"] for each in page.css("main a")] == ["/"]


def test_without_a_name_the_id_is_shown() -> None:
    assert shown({"@type": "Thing"}, "things/4711").css_first("h1").text() == "things/4711"


def test_much_is_shown_in_part_and_said_so() -> None:
    deep: Any = "bottom"
    for n in range(200):
        deep = {"further": deep} if n % 3 else [[deep], 1]
    page = shown(
        {
            "name": "Much",
            "text": "word " * 20_000,
            "tags": [f"tag {n}" for n in range(62)],
            "steps": [f"{n} " + "long " * 20 for n in range(70)],
            "vector": [0.5] * 300,
            "deep": deep,
            **{f"field{n}": n for n in range(300)},
        }
    )
    text = page.css_first("main").text(separator=" ")

    assert all(told in text for told in ("… and 12 more", "… and 20 more", "… and 203 more", "300 numbers"))
    assert "bottom" not in text
    assert len(page.css_first("section p").text()) <= 20_000
    assert len(page.html or "") < 200_000


def test_a_text_with_tags_is_read_and_a_text_in_lines_keeps_them() -> None:
    page = shown({"name": "News", "description": "<p>Fish &amp; <b>chips</b></p><p>Today</p>", "note": "one\ntwo"})

    assert [each.text() for each in page.css("main .lead p")] == ["Fish & chips", "Today"]
    assert [each.text() for each in shown({"name": "x", "description": "a " * 300}).css("section p")] == [
        ("a " * 300).strip()
    ]
    assert facts(page) == {"Note": "one\ntwo"}


@pytest.mark.parametrize(
    ("image", "loaded"),
    [
        ("/a.png", f"{BASE}/a.png"),
        ("https://cdn.example/a.png", None),
        ({"@type": "ImageObject", "contentUrl": "/b.png"}, f"{BASE}/b.png"),
        (["http://cdn.example/a.png", {"url": "/c.png"}], f"{BASE}/c.png"),
        ("http://cdn.example/a.png", None),
        ("data:image/png;base64,AAAA", None),
        ("javascript:alert(1)", None),
        (7, None),
    ],
)
def test_only_pictures_of_this_site_are_loaded(image: Any, loaded: str | None) -> None:
    pictures = [each.attributes["src"] for each in shown({"name": "x", "image": image}).css("img")]

    assert pictures == ([loaded] if loaded else [])


def test_a_picture_elsewhere_is_linked_and_named_to_those_who_share_the_page() -> None:
    page = shown({"name": "x", "image": "https://cdn.example/a.png"})

    assert facts(page) == {"Image": "https://cdn.example/a.png"}
    assert page.css_first("meta[property='og:image']").attributes["content"] == "https://cdn.example/a.png"


def test_links_of_data_lead_to_pages_and_are_not_recommended() -> None:
    page = shown(
        {
            "name": "x",
            "sameAs": ["https://elsewhere.example/a?b=1&c=2", "javascript:alert(1)", "ftp://elsewhere.example/"],
            "about": [{"@id": "places/quay", "name": "The quay"}, {"@id": "https://elsewhere.example/b"}],
        }
    )

    assert [(each.attributes["href"], each.attributes.get("rel")) for each in page.css("dd a")] == [
        ("https://elsewhere.example/a?b=1&c=2", "nofollow noopener ugc"),
        (f"{BASE}/items/places/quay", None),
        ("https://elsewhere.example/b", "nofollow noopener ugc"),
    ]


def test_the_language_of_the_page_is_that_of_the_item_or_its_collection() -> None:
    german = PageLocation("Bucht", BASE, Collection("dinge", language="de"))

    assert shown({"name": "x"}, shelf=german).css_first("html").attributes["lang"] == "de"
    assert shown({"name": "x", "inLanguage": "fr"}, shelf=german).css_first("html").attributes["lang"] == "fr"
    assert shown({"name": "x", "inLanguage": "ar-EG"}).css_first("html").attributes == {"lang": "ar-EG", "dir": "rtl"}
    assert shown({"name": "x", "inLanguage": '"><script>'}).css_first("html").attributes["lang"] == "en"


SOUP = {
    "@type": "Recipe",
    "name": "Linsensuppe",
    "totalTime": "PT1H",
    "price": 0,
    "vegan": True,
    "datePublished": "2025-07-06",
    "recipeIngredient": [f"{n} g " + "Linsen, braun, klein und trocken " * 3 for n in range(1, 53)],
    "offers": {"@type": "Offer", "availability": "https://schema.org/OutOfStock"},
}


def soup(language: str) -> LexborHTMLParser:
    shelf = PageLocation("Bucht", BASE, Collection("soups", title="Suppen", language=language))
    near = [Item("soups/two", "soups", {"@type": "Recipe", "name": "Zwei"})]
    return shown(SOUP, shelf=replace(shelf, collections=[shelf.collection]), company=ItemExtras([], near))


def test_a_page_says_everything_in_the_language_of_its_items() -> None:
    page = soup("de-AT")

    read = [
        each.text() for each in page.css(".skip, .places > *, .kind, h2, dt, dd, label, form button, .item-facts li")
    ]
    assert read == [
        *("Zum Inhalt springen", "Chat", "StöbernSuppen", "Rezept", "1 Std.", "Kostenlos"),
        *("Zutaten", "Einzelheiten", "Preis", "Kostenlos", "Angebot", "Ausverkauft", "Zeit", "1 Stunde"),
        *("Veröffentlicht", "6. Juli 2025", "Vegan", "Ja", "Eine Frage hierzu", "Fragen", "Mehr aus Suppen"),
    ]
    named = [each.attributes["aria-label"] for each in page.css("nav")]
    assert (named, page.css_first(".item-kind").text()) == (["Website", "Sie sind hier"], "Rezept")
    assert page.css_first("ul li:last-child .faint").text() == "… und 2 weitere"
    assert page.css_first(".forms").text() == "Dieser Eintrag als application/ld+json oder application/json"
    doors = [(each.text(), each.attributes["title"]) for each in page.css("footer a")]
    assert doors[0] == ("Schnittstelle", "für alle, die programmieren")
    assert page.css_first("footer").attributes["lang"] == "de-AT"
    assert not page.css("main [lang]")


def test_what_is_english_on_a_page_in_a_language_without_words_says_so() -> None:
    page = soup("it")

    assert page.css_first("html").attributes["lang"] == "it"
    english = [each.text() for each in page.css("main bdi[lang=en], main time[lang=en]")]
    assert english == [
        *("Recipe", "1 hr", "Free", "Ingredients", "… and 2 more", "Details", "Price", "Free", "Offer", "Sold out"),
        *("Total time", "1 hour", "Date published", "6 July 2025", "Yes", "Ask about this", "Ask"),
        *("More in Suppen", "Recipe", "This item as application/ld+json or application/json"),
    ]
    # What is the site's own is Italian again within it, and what nobody has words for is left alone.
    own = [(each.tag, each.text()) for each in page.css("[lang=en] [lang=it]")]
    assert own == [("a", "Suppen"), ("a", "Bucht"), ("a", "Suppen"), ("a", "Suppen")]
    assert [each.attributes.get("lang") for each in page.css("dt bdi") if each.text() == "Vegan"] == [None]
    assert {each.attributes.get("lang") for each in page.css("nav, footer")} == {"en"}


def test_a_list_of_a_collection_speaks_its_language() -> None:
    shelf = PageLocation("Baie", BASE, Collection("soupes", title="Soupes", description="Chaudes.", language="fr"))
    soups = [Item(f"soupes/{n}", "soupes", {"@type": "Recipe", "name": f"Soupe {n}"}) for n in range(2)]
    listing = CollectionListing(shelf, Page(items=tuple(soups), cursor="more"), 12_345, is_first=False)
    page = LexborHTMLParser(collection_page(listing))

    assert [each.text() for each in page.css(".heading .faint, .item-kind, .turning a")] == [
        *("12\u202f345 fiches", "Recette", "Recette", "Précédent", "Suivant")
    ]
    empty = collection_page(CollectionListing(shelf, Page(), 1, is_first=True))
    assert [each.text() for each in LexborHTMLParser(empty).css(".heading .faint, label, .note")] == [
        *("1 fiche", "Poser une question à ce sujet", "Rien encore.")
    ]


HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "\u202eesrever",
]
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
NAMES = st.one_of(
    TEXTS, st.sampled_from(["@type", "@id", "name", "description", "url", "image", "offers", "text", "step"])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
ELEMENTS = {
    "html", "head", "meta", "title", "link", "script", "style", "body", "nav", "main", "section", "footer", "div",
    "span", "p", "h1", "h2", "ul", "ol", "li", "dl", "dt", "dd", "a", "bdi", "img", "time", "header", "article", "form",
    "label", "input", "button", "svg", "path",
}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=6), TEXTS.filter(bool))
def test_no_item_puts_anything_of_its_own_on_the_page(data: dict[str, Any], id: str) -> None:
    page = shown(data, id)

    theme, module, linked = page.css("script")
    assert (theme.attributes, linked.attributes) == ({"src": "/assets/theme.js"}, {"type": "application/ld+json"})
    assert module.attributes == {"type": "module", "src": "/assets/page.js"}
    assert msgspec.json.decode(linked.text()) == msgspec.json.decode(msgspec.json.encode({"@id": id, **data}))
    assert {each.tag for each in page.css("*")} <= ELEMENTS
    assert not [name for each in page.css("*") for name in each.attributes if name.startswith("on")]
    places = [each.attributes.get("href") or each.attributes["src"] or "" for each in page.css("[href], [src]")]
    assert all(place.startswith(("/", "#main", "http://", "https://")) for place in places)


def test_a_browser_may_use_what_the_site_serves() -> None:
    policies = [each["content-security-policy"] for each in (HEADERS, APP_HEADERS, ITEM_HEADERS)]

    assert policies[0] == (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert policies[2] == policies[1].replace("form-action 'none'", "form-action 'self'")
    found = LexborHTMLParser(page("<Title>", "<p>Body"))
    assert [each.attributes["href"] for each in found.css("link")] == ["/assets/icon.svg", "/assets/portico.css"]
    assert [each.attributes["src"] for each in found.css("script")] == ["/assets/theme.js"]
    assert not found.css("style")


def test_the_script_of_a_page_to_be_read_is_small() -> None:
    assert {*READ_MODULES, "theme.js", "item.css"} <= set(assets())
    assert len(assets()["page.js"]) < 4_000


@pytest.mark.parametrize(
    ("id", "path"),
    [
        ("recipes/soup", "/items/recipes/soup"),
        ("a b?c#d%", "/items/a%20b%3Fc%23d%25"),
        ("a//b", "/items/a%2F%2Fb"),
        ("https://shop.example/a", "/items/https:%2F%2Fshop.example%2Fa"),
        ("..", "/items/?id=.."),
        ("a\nb", "/items/?id=a%0Ab"),
    ],
)
def test_the_address_of_an_item_is_readable_where_it_can_be(id: str, path: str) -> None:
    assert item_path(id) == path
