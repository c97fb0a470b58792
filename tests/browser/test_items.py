"""Pages of items, collections and nodes."""

import re
from typing import Any

import msgspec
import pytest
from playwright.async_api import expect
from selectolax.lexbor import LexborHTMLParser
from tests.browser.conftest import NARROW, Town, Visitor, answered, is_too_wide, serious

from portico.web.cards import facts
from portico.web.values import DisplayContext
from portico.web.words import page_words

pytestmark = pytest.mark.asyncio(loop_scope="session")

FACTS = """async ([items, languages]) => {
  const [{ facts }, { words }] = await Promise.all([import("/assets/cards.js"), import("/assets/words.js")]);
  const told = async (language) => {
    const say = await words(language);
    return items.map((item) => facts(item, say).map((each) => each.textContent));
  };
  return Promise.all(languages.map(told));
}"""
KINDS = """async ([items, languages]) => {
  const [{ card }, { words }] = await Promise.all([import("/assets/cards.js"), import("/assets/words.js")]);
  const kind = (item, say) => card(item, 1, { say, origin: location.origin }).querySelector(".item-kind").textContent;
  return Promise.all(languages.map((language) => words(language).then((say) => items.map((item) => kind(item, say)))));
}"""
PICTURES = """async ([urls, hosts]) => {
  const { picture } = await import("/assets/cards.js");
  return urls.map((image) => picture({ image }, "https://inn.example", hosts));
}"""
DATED = frozenset({"startDate", "datePublished"})  # a browser writes days in its own way
LANGUAGES = ("en", "de", "es", "fr")


async def test_pages_of_items_can_be_read_by_everybody(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/collections/restaurants", viewport=NARROW)
    assert (await is_too_wide(page), await serious(page)) == (False, [])

    await page.get_by_role("link", name="Café Zimtstern").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Café Zimtstern")
    assert (await is_too_wide(page), await serious(page)) == (False, [])


async def test_a_node_and_a_wrong_way_are_pages_of_the_same_site(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/nwp/recipes", viewport=NARROW)
    assert (await is_too_wide(page), await serious(page)) == (False, [])
    await page.get_by_role("button", name="Theme: System").click()
    await page.get_by_role("button", name="Theme: Light").click()

    await page.goto(f"{town.base}/collections/nothing")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(page.get_by_role("button", name="Theme: Dark")).to_be_visible()
    assert (await is_too_wide(page), await serious(page)) == (False, [])
    await page.get_by_role("link", name="Go to the chat").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    [missing] = [each for each in visitor.problems if "404" in each]
    visitor.problems.remove(missing)


async def test_something_is_done_with_an_item_on_its_page(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/items/products/kipper-pair-oak-smoked")
    await page.get_by_role("button", name="Add to cart").click()
    dialog = page.get_by_role("dialog", name="Add to cart")
    await dialog.get_by_label("Quantity").fill("2")
    await dialog.get_by_role("button", name="Add to cart").click()

    await expect(dialog).to_contain_text("Kipper Pair, Oak-Smoked")
    await expect(dialog).to_contain_text("13")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


async def test_a_question_about_items_is_answered_in_the_chat(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/items/recipes/lemon-barley-soup")
    await page.get_by_label("Ask about this").fill("how long does it take?")
    await page.keyboard.press("Enter")
    await answered(page)
    await expect(page.locator(".turn h2").first).to_contain_text("Lemon Barley Soup: how long does it take?")
    await expect(page.locator(".item-name").first).to_have_text("Lemon Barley Soup")

    await page.goto(f"{town.base}/collections/books")
    await page.get_by_text("Browse", exact=True).click()
    await page.get_by_role("link", name="Events", exact=True).click()
    await page.get_by_label("Ask about these").fill("market")
    await page.keyboard.press("Enter")
    await answered(page)
    await expect(page.locator(".item-kind").first).to_contain_text("Event")


async def test_without_scripts_an_item_still_leads_to_its_actions(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/items/restaurants/the-harbour-lamp", java_script_enabled=False)

    await expect(page.locator("form")).to_be_hidden()
    await expect(page.locator(".actions noscript p")).to_be_visible()
    await page.get_by_role("link", name="Book table").click()
    told = page.locator("details[open]")
    await expect(told.locator("summary")).to_contain_text("/operations/book_table")
    await expect(told.get_by_text("curl -X POST")).to_be_visible()
    await page.goto(f"{town.base}/collections/restaurants")
    await expect(page.locator("form")).to_be_hidden()


async def test_the_interface_is_a_page_of_the_same_site(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/docs#call_book_table", viewport=NARROW)

    await expect(page.get_by_role("link", name="Inspector")).to_be_attached()
    await expect(page.get_by_role("button", name="Theme: System")).to_be_visible()
    assert not await is_too_wide(page)
    # The others are like the one that is open, and looking at all of them takes long.
    await page.locator("details:not([open])").evaluate_all("(all) => all.forEach((each) => each.remove())")
    assert await serious(page) == []


async def test_dates_are_written_as_where_the_reader_is(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/inspect", locale="en-GB")
    event = {"@type": "Event", "startDate": "2027-01-12T10:15:00+00:00"}

    assert await page.evaluate(FACTS, [[event], ("en", "de")]) == [[["12 Jan 2027, 10:15"]], [["12.01.2027, 10:15"]]]


async def test_that_an_item_is_a_thing_is_not_said(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/inspect")
    items = [{"@type": "Thing", "name": "Box"}, {"name": "Ivy"}, {"@type": "Product", "name": "Lamp"}]

    assert await page.evaluate(KINDS, [items, ("en", "de")]) == [["1", "1", "1Product"], ["1", "1", "1Produkt"]]


async def test_a_page_says_of_items_what_the_chat_says(town: Town, visitor: Visitor) -> None:
    stored = [await town.parts.store.items.get(*each) for each in ITEMS]
    items = [_plain(each.data) for each in stored if each]
    page = await visitor.visit(f"{town.base}/inspect")
    told = await page.evaluate(FACTS, [items, LANGUAGES])

    for language, chat in zip(LANGUAGES, told, strict=True):
        context = DisplayContext(town.base, page_words(language))
        pages = [LexborHTMLParser(facts(item, item["@type"], context)).css("li") for item in items]
        assert [[_spaced(each.text()) for each in page] for page in pages] == [[*map(_spaced, each)] for each in chat]


ITEMS = [
    ("recipes", "recipes/lemon-barley-soup"),
    ("products", "products/kipper-pair-oak-smoked"),
    ("restaurants", "restaurants/the-harbour-lamp"),
    ("events", "events/saturday-market-december"),
    ("books", "books/salt-on-the-sill"),
    ("faqs", "faqs/where-should-i-park"),
    ("places", "places/merrow-bay"),
]


def _plain(data: Any) -> dict[str, Any]:
    kept = {name: value for name, value in data.items() if name not in DATED}
    return msgspec.json.decode(msgspec.json.encode(kept))


def _spaced(text: str) -> str:
    # In some languages a browser writes the code of a currency where a page has its sign.
    return re.sub(r"£GB|GBP", "£", re.sub(r"\s+", " ", text))


@pytest.mark.parametrize(
    ("hosts", "loaded"),
    [([], [0]), (["cdn.example"], [0, 1]), (["https:"], [0, 1, 2, 3])],
)
async def test_cards_of_the_chat_load_pictures_of_allowed_hosts_only(
    town: Town, visitor: Visitor, hosts: list[str], loaded: list[int]
) -> None:
    page = await visitor.visit(f"{town.base}/")
    urls = [
        "https://inn.example/a.jpg", "https://cdn.example/b.jpg", "https://cdn.example:8443/c.jpg",
        "https://evil.example/d.jpg", "http://cdn.example/e.jpg", "javascript:alert(1)", "data:image/png;base64,AA",
    ]  # fmt: skip

    pictures = await page.evaluate(PICTURES, [urls, hosts])

    assert pictures == [url if place in loaded else None for place, url in enumerate(urls)]
