"""Pages of items and collections."""

import pytest
from playwright.async_api import expect
from tests.browser.conftest import NARROW, Town, Visitor, is_too_wide, serious

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_pages_of_items_can_be_read_by_everybody(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/collections/restaurants", viewport=NARROW)
    assert (await is_too_wide(page), await serious(page)) == (False, [])

    await page.get_by_role("link", name="Café Zimtstern").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Café Zimtstern")
    assert (await is_too_wide(page), await serious(page)) == (False, [])
