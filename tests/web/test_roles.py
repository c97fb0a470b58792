"""Pages of tables that call their fields what they like, and pictures that are elsewhere."""

from typing import Any

import httpx
import msgspec
import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.protocols.conftest import Inn, asking

from portico.errors import ConfigError
from portico.protocols import parse_config
from portico.server.assembly import Parts
from portico.store.records import Put
from portico.web.pictures import PictureHosts

KETTLE: dict[str, Any] = {
    "Artikel": "K-100",
    "Bezeichnung": "Kupferkessel",
    "Beschreibung": "Er singt.",
    "Bild": "https://cdn.shop.example/k.jpg",
    "Preis": 40.5,
    "Seite": "https://shop.example/k",
}
ROLES = {
    "title": "Bezeichnung", "description": "Beschreibung", "image": "Bild", "price": "Preis", "link": "Seite",
}  # fmt: skip
SETTINGS: dict[str, Any] = {"kettles": {"roles": ROLES, "fields": {"Preis": {"type": "number", "unit": "EUR"}}}}


async def stocked(parts: Parts, *items: dict[str, Any]) -> httpx.AsyncClient:
    await parts.store.collections.declare(parts.config.collection("kettles"))
    await parts.store.items.write("kettles", [Put(f"k{n}", data) for n, data in enumerate(items or (KETTLE,))])
    await parts.index.sync(await parts.store.changes.head())
    return asking(parts, headers={"accept": "text/html"})


def policy_of(answer: httpx.Response) -> str:
    directives = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    return directives["img-src"]


async def test_an_item_is_shown_by_its_roles_and_each_thing_once(inn: Inn) -> None:
    async with inn(collections=SETTINGS) as parts, await stocked(parts) as client:
        page = LexborHTMLParser((await client.get("/items/kettles/k0")).text)
        listing = LexborHTMLParser((await client.get("/collections/kettles")).text)

    assert page.css_first("title").text().startswith("Kupferkessel · ")
    assert page.css_first("h1").text() == "Kupferkessel"
    assert page.css_first(".lead").text() == "Er singt."
    assert [fact.text() for fact in page.css("header .item-facts li")] == ["€40.50"]
    assert [name.text() for name in page.css("main dl dt")] == ["Artikel", "Preis", "Seite", "Image"]
    assert not page.css("img")
    assert page.css_first('meta[property="og:image"]').attributes["content"] == KETTLE["Bild"]
    assert listing.css_first(".item-name").text() == "Kupferkessel"
    assert listing.css_first(".item-text").text() == "Er singt."


async def test_the_linked_data_of_an_item_has_the_names_of_schema_org(inn: Inn) -> None:
    async with inn(collections=SETTINGS) as parts, await stocked(parts) as client:
        linked = (await client.get("/items/kettles/k0", headers={"accept": "application/ld+json"})).json()
        plain = (await client.get("/items/kettles/k0", headers={"accept": "application/json"})).json()

    assert (linked["name"], linked["price"], linked["priceCurrency"]) == ("Kupferkessel", 40.5, "EUR")
    assert linked["Bezeichnung"] == "Kupferkessel"
    assert plain["data"] == KETTLE


async def test_results_of_nlweb_are_called_and_linked_by_their_roles(inn: Inn) -> None:
    async with inn(collections=SETTINGS) as parts, await stocked(parts) as client:
        params = {"query": "Kupferkessel", "streaming": "false"}
        answer = (await client.get("/ask", params=params, headers={"accept": "application/json"})).json()

    [result] = answer["results"]
    assert (result["name"], result["url"], result["description"]) == ("Kupferkessel", KETTLE["Seite"], "Er singt.")
    assert (result["image"], result["price"]) == (KETTLE["Bild"], 40.5)


# Pictures that are elsewhere


async def test_pages_load_no_pictures_from_elsewhere_by_default(inn: Inn) -> None:
    async with inn(collections=SETTINGS) as parts, await stocked(parts) as client:
        answers = [await client.get(path) for path in ("/", "/collections/kettles", "/items/kettles/k0")]

    assert [policy_of(answer) for answer in answers] == ["'self' data:"] * 3
    assert not any(LexborHTMLParser(answer.text).css("img") for answer in answers)


@pytest.mark.parametrize(
    ("images", "source"),
    [
        ("https:", "https:"),
        ("cdn.shop.example", "https://cdn.shop.example"),
        (["CDN.shop.example", "img.example"], "https://cdn.shop.example https://img.example"),
    ],
)
async def test_the_policy_of_pages_names_the_hosts_that_the_site_allows(inn: Inn, images: Any, source: str) -> None:
    async with inn(collections=SETTINGS, web={"images": images}) as parts, await stocked(parts) as client:
        home, listing, item, desk = [
            await client.get(path) for path in ("/", "/collections/kettles", "/items/kettles/k0", "/desk")
        ]

    assert [policy_of(answer) for answer in (home, listing, item)] == [f"'self' data: {source}"] * 3
    assert policy_of(desk) == "'self' data:"
    for answer in (listing, item):
        [image] = LexborHTMLParser(answer.text).css("img")
        assert image.attributes["src"] == KETTLE["Bild"]
        assert (image.attributes["loading"], image.attributes["referrerpolicy"]) == ("lazy", "no-referrer")
        assert "alt" in image.attributes
    assert LexborHTMLParser(item.text).css_first("img").attributes["alt"] == "Kupferkessel"
    told = msgspec.json.decode(LexborHTMLParser(home.text).css_first("#portico-data").text())
    assert [f" {name}" if name == "https:" else f" https://{name}" for name in told["images"]] == [
        f" {name}" for name in source.split()
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://cdn.shop.example/k.jpg", "https://cdn.shop.example:8443/k.jpg", "https://evil.example/k.jpg",
        "https://cdn.shop.example.evil.example/k.jpg", "https://user@cdn.shop.example/k.jpg", "javascript:alert(1)",
        "data:image/svg+xml,<svg onload=alert(1)>", "//evil.example/k.jpg", "https://[bad/k.jpg",
        'https://evil.example/"onerror="alert(1)',
    ],
)  # fmt: skip
async def test_a_picture_of_another_host_is_not_loaded(inn: Inn, url: str) -> None:
    item = {**KETTLE, "Bild": url}
    async with (
        inn(collections=SETTINGS, web={"images": ["cdn.shop.example"]}) as parts,
        await stocked(parts, item) as client,
    ):
        page = await client.get("/items/kettles/k0")

    assert page.status_code == 200
    assert not LexborHTMLParser(page.text).css("img, [onerror]")


@pytest.mark.parametrize(
    "images",
    [
        "*", "http:", "https", "https://cdn.example", "cdn.example/x", "cdn.example; script-src *",
        "a.example b.example",
        "'unsafe-inline'", "data:", "*.example.com", "cdn.example:443", "localhost", "-a.example", "a..example",
        "a.example\n", "ä.example", ["cdn.example", "evil.example;"],
    ],
)  # fmt: skip
def test_nothing_but_names_of_hosts_gets_into_the_policy(images: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_config({"web": {"images": images}})

    assert "web.images" in refusal.value.message
    assert "https:" in (refusal.value.hint or "")


def test_all_hosts_make_every_other_name_needless() -> None:
    config = parse_config({"web": {"images": ["cdn.example", "https:"]}})

    assert config.web.image_hosts == ("https:",)
    assert PictureHosts(("https:",)).policy == " https:"
    assert PictureHosts().policy == ""
