"""The chat in the languages that its words are in, and in those that are written from right to left."""

import pytest
from playwright.async_api import expect
from tests.browser.conftest import NARROW, Town, Visitor, answered, is_too_wide, serious

pytestmark = pytest.mark.asyncio(loop_scope="session")

IS_AT_THE_RIGHT = """(card) => {
  const [number, whole] = [card.querySelector(".item-number"), card].map((each) => each.getBoundingClientRect());
  return number.left > whole.left + whole.width / 2;
}"""
DIRECTIONS = {"en": "ltr", "de": "ltr", "es": "ltr", "fr": "ltr", "ar": "rtl"}


async def test_the_page_speaks_the_language_that_is_chosen_and_fits(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base, viewport=NARROW)
    root, picker = page.locator("html"), page.locator(".language select")
    said: set[str] = set()
    for language, direction in DIRECTIONS.items():
        await picker.select_option(language)
        await expect(root).to_have_attribute("lang", language)
        await expect(root).to_have_attribute("dir", direction)
        assert (language, await is_too_wide(page)) == (language, False)
        said.add(await page.get_by_role("textbox").get_attribute("aria-label") or "")

    assert len(said) == len(DIRECTIONS)
    assert len(await picker.locator("option").all()) == len(DIRECTIONS) + 1  # and that of the system


async def test_answers_read_from_right_to_left_where_the_browser_speaks_arabic(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/?q=lemon+soup", viewport=NARROW, locale="ar-EG")
    await answered(page)

    await expect(page.locator("html")).to_have_attribute("dir", "rtl")
    await expect(page.locator(".item-name").first).to_have_text("Lemon Barley Soup")
    await expect(page.locator(".item-text").first).to_have_css("direction", "ltr")
    assert await page.locator(".item").first.evaluate(IS_AT_THE_RIGHT)
    assert (await is_too_wide(page), await serious(page)) == (False, [])
