"""The desk as an operator uses it, and the inspector as whoever wants to know uses it."""

import re

import pytest
from playwright.async_api import Page, expect
from tests.browser.conftest import NARROW, Town, Visitor, employ, is_too_wide, serious, sign_in

from portico.errors import AgentBlocked, ConfirmationNeeded

pytestmark = pytest.mark.asyncio(loop_scope="session")

BOOK = "books/the-herring-year"
PROTOCOLS = ["NLWeb", "MCP", "A2A", "NWP", "MCP-AQL", "Chat"]
TABS = ["Agents and tasks", "Traffic", "Sources", "Audit trail", "Feedback"]


async def signed_in(town: Town, visitor: Visitor, **settings: object) -> Page:
    page = await visitor.visit(f"{town.base}/desk", **settings)
    await sign_in(page, town.person)
    return page


async def test_a_call_is_approved_and_then_runs(town: Town, visitor: Visitor) -> None:
    agent = await employ(town.parts, "gardener")
    with pytest.raises(ConfirmationNeeded):
        await agent.do("delete_book", id=BOOK)
    page = await signed_in(town, visitor)
    case = page.get_by_role("article", name="gardener wants delete_book")
    await expect(case).to_contain_text(BOOK)
    await expect(page).to_have_title(re.compile(r"^\(\d+\) "))
    await case.get_by_label("Note").fill("It is twice in there")
    await case.get_by_role("button", name="Approve").click()
    await expect(case).to_contain_text("Approved")

    assert await agent.do("delete_book", id=BOOK)
    await page.get_by_role("tab", name="Audit trail").click()
    await expect(page.get_by_role("tabpanel")).to_contain_text("It is twice in there")


async def test_a_blocked_step_is_released_with_its_code(town: Town, visitor: Visitor) -> None:
    agent = await employ(town.parts, "cleaner")
    await agent.do("execute_agent", element_name="tidy")
    await agent.do("record_execution_step", element_name="tidy", next_action_hint="drop_table recipes")
    with pytest.raises(AgentBlocked):
        await agent.do("execute_agent", element_name="another")

    page = await signed_in(town, visitor)
    case = page.get_by_role("article", name="A step of tidy")
    await expect(case).to_contain_text("drop_table recipes")
    await case.get_by_role("button", name="Show the code").click()
    dialog = page.get_by_role("dialog", name="Verification code")
    code = await dialog.get_by_label("The code").inner_text()
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_text(code)).to_have_count(0)
    await case.get_by_label("Code", exact=True).fill(code)
    await case.get_by_role("button", name="Verify").click()
    await expect(case).to_contain_text("Verified. The agent may go on.")
    await page.mouse.move(0, 0)
    await expect(case).to_have_count(0)  # once nobody points at it any more

    assert await agent.do("execute_agent", element_name="another")


async def test_every_panel_can_be_used_by_everybody(town: Town, visitor: Visitor) -> None:
    with pytest.raises(ConfirmationNeeded):
        await (await employ(town.parts, "clerk")).do("delete_book", id=BOOK)
    page = await signed_in(town, visitor, viewport=NARROW)
    assert (await is_too_wide(page), await serious(page)) == (False, [])
    for name in TABS:
        await page.get_by_role("tab", name=name).click()
        await page.wait_for_load_state("networkidle")
        assert (name, await is_too_wide(page), await serious(page)) == (name, False, [])


async def test_one_question_is_shown_over_every_protocol(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/inspect", viewport=NARROW)
    await page.get_by_label("Question").fill("lemon soup")
    await page.keyboard.press("Enter")
    rows = page.locator("table.figures tbody tr")
    await expect(rows.get_by_role("rowheader")).to_have_text(PROTOCOLS)
    for row in await rows.all():
        await expect(row).to_contain_text("200")
    await expect(page.get_by_role("row", name=re.compile("^Lemon Barley Soup")).get_by_text("all")).to_be_visible()

    assert (await is_too_wide(page), await serious(page)) == (False, [])
