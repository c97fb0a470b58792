"""What a person has done in the chat: things chosen by their names, times by the clock, a yes at the end."""

import pytest
from playwright.async_api import expect
from tests.browser.conftest import Town, Visitor, answered, ask

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_command_is_finished_with_the_forms_it_leads_to(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    await ask(page, "add two soup bowls to my cart")
    await page.locator(".asked-back").get_by_text("Soup Bowl, Wide").click()
    await answered(page)
    await expect(page.locator(".asked-back")).to_contain_text("product Soup Bowl, Wide, quantity 2")
    await page.locator(".asked-back").get_by_text("Yes", exact=True).click()
    await answered(page)

    deed = page.locator(".turn").last.locator(".deed")
    await expect(deed.locator(".line")).to_have_text("Soup Bowl, WideQuantity: 2Price: £22.00")
    await expect(deed.locator("dt", has_text="Total").locator("+ dd")).to_have_text("£44.00")
    await expect(deed.locator("dt", has_text="Currency")).to_have_count(0)
    await expect(page.locator(".turn").last.locator(".note.bad, .asked-back")).to_have_count(0)


async def test_a_time_is_chosen_and_sent_as_it_is_taken(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    await ask(page, "book a table at Kelp for 4")
    form = page.locator(".asked-back")
    await expect(form.locator("input[type=datetime-local]")).to_have_count(1)
    await form.locator("input").fill("2030-12-05T19:00")
    await form.get_by_role("button", name="Go on").click()
    await answered(page)
    await expect(page.locator(".asked-back")).to_contain_text("restaurant Kelp, time 5 December 2030, 19:00, people 4")

    page = await visitor.visit(f"{town.base}/?q=Kelp&collection=restaurants&mode=list")
    await answered(page)
    await page.get_by_role("article", name="Kelp", exact=True).get_by_role("button", name="Book table").click()
    dialog = page.get_by_role("dialog")
    await dialog.locator("input[type=datetime-local]").fill("2030-12-05T19:00")
    await dialog.get_by_role("button", name="Book table").click()
    await expect(dialog).to_contain_text("confirmed")
    await expect(dialog.locator("dt", has_text="Restaurant").locator("+ dd")).to_have_text("Kelp")
    await expect(dialog.locator("dt", has_text="Name")).to_have_count(0)
