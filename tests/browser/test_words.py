"""Everything that is ours on the chat page, in the language of who reads it, and no language that nobody reads."""

import re

import pytest
from playwright.async_api import Request, expect
from tests.browser.conftest import Town, Visitor, answered

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_page_in_german_is_german_but_for_what_the_site_calls_its_own(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base, locale="de-AT")
    await expect(page.locator(".shelves > h2")).to_have_text("Sammlungen")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(_name(request)))
    await page.goto(f"{town.base}/?q=vegetarisches+Abendessen+unter+30+Minuten")
    await answered(page)

    await expect(page.get_by_role("list", name="Verstanden")).to_contain_text("Zeit unter 30 Minuten")
    first = page.locator(".item").first
    await expect(first.locator(".item-kind")).to_contain_text("Rezept")
    await expect(first.locator(".item-facts")).to_contain_text(re.compile(r"\d+ Min\..*\d,\d.*\d,\d\d\s£"))
    assert [each for each in asked if each.startswith("words-")] == ["words-first.js", "words-de.js"]


async def test_where_the_words_of_a_language_do_not_come_the_page_is_in_english(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit("about:blank", locale="fr")
    visitor.hosts.add(town.base.removeprefix("http://"))
    await page.route("**/words-fr.js", lambda route: route.fulfill(status=503))
    await page.goto(town.base)

    await expect(page.get_by_role("textbox", name="Your question")).to_be_visible()
    await expect(page.locator("html")).to_have_attribute("lang", "en")
    await visitor.pardon("503")
    visitor.pardoned.add("503")  # what is asked for ahead may fail by itself, before it is asked for


def _name(request: Request) -> str:
    return request.url.rpartition("/")[2]
