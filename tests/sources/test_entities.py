"""What a page is about: one item for its main entity, with its text; the nodes around it are context."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico.sources.registry import BadRecord, Doubt, Record

SITE = "https://reef.example/"
POST = f"{SITE}tide-tables/"


def write(folder: Path, *scripts: Any, body: str = "<main><p>The text of the page.</p></main>", head: str = "") -> Path:
    blocks = "".join(f'<script type="application/ld+json">{json.dumps(script)}</script>' for script in scripts)
    path = folder / "page.html"
    path.write_text(f"<!doctype html><html lang=en><head>{head}{blocks}</head><body>{body}</body></html>")
    return path


def graph_of_a_plugin(*more: dict[str, Any]) -> dict[str, Any]:
    """What the search plugins of blogs write into each page."""
    return {
        "@context": "https://schema.org",
        "@graph": [
            *more,
            {
                "@type": "WebPage",
                "@id": POST,
                "url": POST,
                "name": "Tide tables - Reef",
                "isPartOf": {"@id": f"{SITE}#website"},
                "primaryImageOfPage": {"@id": f"{POST}#primaryimage"},
                "datePublished": "2026-03-01T08:00:00+00:00",
                "description": "How to read a tide table.",
                "breadcrumb": {"@id": f"{POST}#breadcrumb"},
                "inLanguage": "en-GB",
                "potentialAction": [{"@type": "ReadAction", "target": [POST]}],
            },
            {"@type": "ImageObject", "@id": f"{POST}#primaryimage", "url": f"{SITE}tide.jpg", "width": 1200},
            {
                "@type": "BreadcrumbList",
                "@id": f"{POST}#breadcrumb",
                "itemListElement": [{"@type": "ListItem", "position": 1, "name": "Home", "item": SITE}],
            },
            {
                "@type": "WebSite",
                "@id": f"{SITE}#website",
                "url": SITE,
                "name": "Reef",
                "publisher": {"@id": f"{SITE}#organization"},
                "potentialAction": [{"@type": "SearchAction", "query-input": "required name=s"}],
            },
            {
                "@type": "Organization",
                "@id": f"{SITE}#organization",
                "name": "Reef Society",
                "url": SITE,
                "logo": {"@type": "ImageObject", "@id": f"{SITE}#logo", "url": f"{SITE}logo.png"},
                "image": {"@id": f"{SITE}#logo"},
            },
            {"@type": "Person", "@id": f"{SITE}#/person/1", "name": "Ada Moss", "url": f"{SITE}author/ada/"},
        ],
    }


ARTICLE = {
    "@type": "Article",
    "@id": f"{POST}#article",
    "isPartOf": {"@id": POST},
    "author": {"name": "Ada Moss", "@id": f"{SITE}#/person/1"},
    "headline": "Tide tables",
    "mainEntityOfPage": {"@id": POST},
    "publisher": {"@id": f"{SITE}#organization"},
    "image": {"@id": f"{POST}#primaryimage"},
}


def test_a_page_of_a_blog_plugin_is_one_article_with_its_text(read, tmp_path: Path):
    path = write(tmp_path, graph_of_a_plugin(ARTICLE), head=f'<link rel="canonical" href="{POST}">')

    [entry] = read(path)

    assert entry.id == f"{POST}#article"
    assert entry.data["name"] == "Tide tables"
    assert entry.data["articleBody"] == "The text of the page."
    assert entry.data["url"] == POST
    assert entry.data["datePublished"] == "2026-03-01T08:00:00+00:00"
    assert entry.data["description"] == "How to read a tide table."
    assert entry.data["image"]["url"] == f"{SITE}tide.jpg"
    assert entry.data["publisher"]["name"] == "Reef Society"
    assert "image" not in entry.data["publisher"]  # a reference of what is referred to leads no further


def test_the_references_of_an_item_hold_what_they_refer_to(read, tmp_path: Path):
    article = {**ARTICLE, "author": {"@id": f"{SITE}#/person/1"}}

    [entry] = read(write(tmp_path, graph_of_a_plugin(article)))

    assert entry.data["author"] == {
        "@type": "Person",
        "@id": f"{SITE}#/person/1",
        "name": "Ada Moss",
        "url": f"{SITE}author/ada/",
    }


def test_a_page_with_nothing_but_context_is_one_page_with_its_text(read, tmp_path: Path):
    head = f"<title>Tide tables - Reef</title><link rel=canonical href={POST}><meta property=og:site_name content=Reef>"

    [entry] = read(write(tmp_path, graph_of_a_plugin(), head=head))

    assert entry == Record(
        {
            "@type": "WebPage",
            "name": "Tide tables",
            "description": "How to read a tide table.",
            "image": f"{SITE}tide.jpg",
            "datePublished": "2026-03-01T08:00:00+00:00",
            "inLanguage": "en-GB",
            "text": "The text of the page.",
            "url": POST,
        },
        str(tmp_path / "page.html"),
        str(tmp_path / "page.html"),
    )


def test_a_long_page_with_nothing_but_context_is_cut_into_passages(read, tmp_path: Path):
    text = "<h2 id=part>Part</h2><p>" + "Eight words of text stand in this sentence. " * 20
    body = f"<main><h1>Tides</h1>{text * 12}</main>"

    entries = read(write(tmp_path, graph_of_a_plugin(), body=body, head=f"<link rel=canonical href={POST}>"))

    assert len(entries) > 5
    assert {entry.data["url"] for entry in entries} == {f"{POST}#part"}
    assert entries[0].data["datePublished"] == "2026-03-01T08:00:00+00:00"
    assert len({entry.data["name"] for entry in entries}) == len(entries)


def test_a_recipe_in_a_blog_post_is_the_item_and_knows_when_the_post_was_written(read, tmp_path: Path):
    recipe = {"@type": "Recipe", "name": "Kelp soup", "recipeIngredient": ["kelp"], "isPartOf": {"@id": ARTICLE["@id"]}}

    [entry] = read(write(tmp_path, graph_of_a_plugin({**ARTICLE, "datePublished": "2026-03-02"}, recipe)))

    assert [entry.data["@type"], entry.data["name"]] == ["Recipe", "Kelp soup"]
    assert entry.data["datePublished"] == "2026-03-02"
    assert entry.data["author"]["name"] == "Ada Moss"
    assert entry.data["text"] == "The text of the page."


def test_nodes_with_one_id_are_one_item(read, tmp_path: Path):
    first = {"@type": "Product", "@id": "#kettle", "name": "Kettle"}
    second = {"@id": "#kettle", "offers": {"@type": "Offer", "price": 39}}

    [entry] = read(write(tmp_path, first, second))

    assert entry.id.endswith("page.html#kettle")
    assert entry.data["offers"]["price"] == 39


def test_json_ld_and_microdata_of_one_product_are_one_item(read, tmp_path: Path):
    body = """<main><div itemscope itemtype="https://schema.org/Product"><h1 itemprop=name>Enamel  kettle</h1>
        <i itemprop=color>blue</i></div>
        <div itemscope itemtype="https://schema.org/Product"><b itemprop=name>Lid</b></div></main>"""

    [entry] = read(write(tmp_path, {"@type": "Product", "name": "Enamel kettle", "sku": "k-1"}, body=body))

    assert [entry.data["sku"], entry.data["color"]] == ["k-1", "blue"]
    assert entry.data["text"] == "blue\n\nLid"


def test_a_product_that_two_plugins_describe_is_one_item(read, tmp_path: Path):
    one = {"@type": "Product", "name": "Kettle", "offers": {"@type": "Offer", "price": 39}}
    other = {"@type": "Product", "name": "Kettle", "aggregateRating": {"@type": "AggregateRating", "ratingValue": 4}}

    [entry] = read(write(tmp_path, one, other))

    assert entry.data["aggregateRating"]["ratingValue"] == 4


def test_things_of_one_name_at_different_times_stay_several(read, tmp_path: Path):
    events = [{"@type": "Event", "name": "Yoga", "startDate": f"2026-05-0{day}"} for day in (1, 2)]

    entries = read(write(tmp_path, events))

    assert [entry.data["startDate"] for entry in entries] == ["2026-05-01", "2026-05-02"]
    assert len({entry.id for entry in entries}) == 2


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_products_of_a_list_are_items_each_with_the_text_below_its_name(read, tmp_path: Path, wrapped):
    products = [{"@type": "Product", "name": name, "offers": {"price": 5}} for name in ("Kettle", "Lamp")]
    elements = [{"@type": "ListItem", "position": 1, "item": one} for one in products] if wrapped else products
    listing = {"@type": "ItemList", "name": "Goods", "itemListElement": elements}
    body = (
        "<main><h1>Goods</h1><h2>Kettle</h2><p>Boils.</p><h2>Lamp</h2><p>Shines.</p><h2>Contact</h2><p>Call.</p></main>"
    )

    entries = read(write(tmp_path, graph_of_a_plugin(listing), body=body))

    assert [(entry.data["name"], entry.data["text"]) for entry in entries] == [
        ("Kettle", "Boils."),
        ("Lamp", "Shines."),
    ]
    assert [entry.id.rpartition("#")[2] for entry in entries] == ["kettle", "lamp"]


def test_what_a_page_says_beside_its_list_is_an_item_of_its_own(read, tmp_path: Path):
    events = [{"@type": "Event", "name": name, "startDate": "2026-05-01"} for name in ("Walk", "Talk")]
    body = f"<main><h1>Events</h1><p>{'We explain at length how to come. ' * 20}</p><h2>Walk</h2><p>Far.</p></main>"

    walk, talk, page = read(write(tmp_path, events, body=body))

    assert [walk.data["text"], "text" in talk.data] == ["Far.", False]
    assert [page.data["@type"], page.id] == ["WebPage", str(tmp_path / "page.html")]
    assert page.data["text"].startswith("We explain")


def test_a_list_that_only_names_other_pages_is_no_item(read, tmp_path: Path):
    elements = [{"@type": "ListItem", "position": 1, "url": f"{SITE}a"}, {"@type": "ListItem", "url": f"{SITE}b"}]

    [entry] = read(write(tmp_path, {"@type": "ItemList", "name": "Posts", "itemListElement": elements}))

    assert [entry.data["@type"], entry.data["text"]] == ["WebPage", "The text of the page."]


def test_what_a_page_names_as_its_main_entity_is_its_item(read, tmp_path: Path):
    person = {"@type": "Person", "@id": "#ada", "name": "Ada Moss", "jobTitle": "Diver"}
    page = {"@type": "ProfilePage", "mainEntity": {"@id": "#ada"}}

    [entry] = read(write(tmp_path, page, person, {"@type": "Organization", "name": "Reef"}))

    assert [entry.data["@type"], entry.data["jobTitle"]] == ["Person", "Diver"]


def test_a_shop_that_names_itself_on_every_page_is_an_item_on_its_own_page_only(read, web):
    shop = {"@type": "Restaurant", "@id": "/#shop", "name": "The Lamp", "address": "Mill Street 4", "priceRange": "€"}
    script = f'<script type="application/ld+json">{json.dumps(shop)}</script>'
    web.serve("/", f"<title>The Lamp</title>{script}<main><p>Welcome. <a href=/menu>Menu</a></main>")
    web.serve("/menu", f"<title>Menu</title>{script}<main><p>Soup and bread.</main>")

    home, menu = read(f"site+{web.url}/")

    assert [home.data["@type"], home.id] == ["Restaurant", f"{web.url}/#shop"]
    assert [menu.data["@type"], menu.data["name"], menu.id] == ["WebPage", "Menu", f"{web.url}/menu"]


def test_questions_and_answers_of_a_plugin_stay_one_page(read, tmp_path: Path):
    question = {"@type": "Question", "@id": f"{POST}#q1", "name": "When?", "acceptedAnswer": {"text": "At ten."}}
    page = {"@type": ["WebPage", "FAQPage"], "@id": POST, "mainEntity": [{"@id": f"{POST}#q1"}]}

    [entry] = read(write(tmp_path, {"@graph": [page, question]}))

    assert entry.data["mainEntity"][0]["acceptedAnswer"]["text"] == "At ten."
    assert "The text of the page." in entry.data["text"]


def test_variants_belong_to_their_group(read, tmp_path: Path):
    group = {"@type": "ProductGroup", "@id": "#g", "name": "Kettle", "hasVariant": [{"@id": "#red"}]}
    variant = {"@type": "Product", "@id": "#red", "name": "Kettle, red", "isVariantOf": {"@id": "#g"}}

    [entry] = read(write(tmp_path, group, variant))

    assert entry.data["@type"] == "ProductGroup"


def test_opengraph_of_a_product_makes_one_item(read, tmp_path: Path):
    head = (
        '<meta property="og:type" content="product"><meta property="og:title" content="Rug">'
        '<meta property="product:price:amount" content="120.00"><meta property="product:price:currency" content="EUR">'
        '<meta property="og:image" content="https://x.example/rug.jpg">'
    )

    [entry] = read(write(tmp_path, head=head))

    assert entry.data["offers"] == {"@type": "Offer", "price": "120.00", "priceCurrency": "EUR"}
    assert [entry.data["image"], entry.data["text"]] == ["https://x.example/rug.jpg", "The text of the page."]


CYCLE = [
    {"@id": "#a", "@type": "Person", "knows": {"@id": "#b"}},
    {"@id": "#b", "@type": "Person", "knows": {"@id": "#a"}},
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "data",
    [
        [*CYCLE, {"@type": "Article", "name": "x", "author": {"@id": "#a"}}],
        {"@id": "#x", "@type": "Article", "author": {"@id": "#x"}, "mainEntityOfPage": {"@id": "#x"}},
        {"@type": "WebPage", "@id": "#p", "mainEntity": {"@id": "#p"}},
        {"@type": "ItemList", "@id": "#l", "itemListElement": [{"@type": "ListItem", "item": {"@id": "#l"}}]},
        [{"@type": "Product", "name": "same"} for _ in range(4000)],
        [{"@type": "Product", "name": f"n{n}", "brand": {"@id": f"#{n}"}, "@id": f"#{n - 1}"} for n in range(4000)],
        [{"@id": "#a", f"f{n}": {"@id": "#a"}} for n in range(4000)],
        {"@type": [], "@id": [], "name": {}, "url": 5, "mainEntityOfPage": [[]], "mainEntity": [None]},
        {"@type": {"@type": []}, "@id": "http://[", "url": "http://[", "name": ["x"], "image": "http://["},
        {"@type": ["Article", {}, None, []], "mainEntityOfPage": {"@id": {}}, "headline": 7},
        {
            "@type": ["WebPage", "ItemPage"],
            "mainEntity": {"@type": ["Product", {}], "@id": {}},
            "primaryImageOfPage": [],
        },
        [{"@graph": {"@graph": []}}, [], [[]], {}],
    ],
)
def test_hostile_linked_data_ends_and_the_text_is_kept(read, tmp_path: Path, data):
    entries = read(write(tmp_path, data, body="<main><p>" + "The text of the page. " * 9))

    assert "The text of the page." in json.dumps([entry.data for entry in entries if isinstance(entry, Record)])


def test_more_nodes_than_a_page_can_have_are_a_doubt(read, tmp_path: Path):
    entries = read(write(tmp_path, [{"@type": "Event", "name": f"n{n}"} for n in range(5001)]))

    assert [entry.reason for entry in entries if isinstance(entry, Doubt)] == [
        "has 5,001 JSON-LD nodes; the first 5,000 were read"
    ]


def test_a_script_that_is_no_json_is_reported_and_the_text_is_kept(read, tmp_path: Path):
    path = write(tmp_path, body='<script type="application/ld+json">{"a":</script><main><p>Text.</p></main>')

    broken, entry = read(path)

    assert isinstance(broken, BadRecord)
    assert entry.data["text"] == "Text."
