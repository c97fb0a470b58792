"""The desk as an operator uses it, and the inspector as whoever wants to know uses it."""

import asyncio
import re
import shutil
from dataclasses import replace

import pytest
from playwright.async_api import Page, expect
from tests.browser.conftest import NARROW, Town, Visitor, employ, is_too_wide, serious, sign_in

from portico.access.identity import local_operator
from portico.errors import AgentBlocked, ConfirmationNeeded
from portico.requests import Call
from portico.sources.freshness import load_status
from portico.sources.records import Doubt
from portico.sources.saved_reports import save_report, saved_report

pytestmark = pytest.mark.asyncio(loop_scope="session")

# What of some elements is wider than they are. A choice is measured by a copy that is as wide as it likes.
CUT = """(all) => all.filter((each) => {
  if (each.tagName !== "SELECT") return each.scrollWidth > each.clientWidth;
  const copy = Object.assign(each.cloneNode(true), { value: each.value });
  copy.style.cssText = "field-sizing: content; width: auto; max-width: none; position: absolute";
  each.after(copy);
  const needed = copy.offsetWidth;
  copy.remove();
  return needed > each.offsetWidth;
}).map((each) => each.outerHTML.slice(0, 80))"""

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
    await expect(case.get_by_role("term")).to_have_text(["id"])
    await expect(case.get_by_role("definition")).to_have_text([BOOK])
    await expect(page).to_have_title(re.compile(r"^\(\d+\) "))
    await case.get_by_label("Note").fill("It is twice in there")
    await case.get_by_role("button", name="Approve").click()
    await expect(case).to_contain_text("Approved")

    assert await agent.do("delete_book", id=BOOK)
    await page.get_by_role("tab", name="Audit trail").click()
    await page.get_by_label("Only lines with").fill("twice")
    line = page.get_by_role("list", name="Audit trail").get_by_role("listitem")
    await expect(line).to_have_count(1)
    await expect(line).to_contain_text("ada agreed that gardener may call delete_book.")
    await expect(line).to_contain_text("It is twice in there")
    await page.get_by_role("button", name="Check the whole trail").click()
    await expect(page.get_by_text("The whole trail was checked")).to_be_visible()


async def test_every_name_of_a_long_call_is_visible_at_once_and_every_value_can_be_read(
    town: Town, visitor: Visitor
) -> None:
    long = "A fine book. " * 400 + "The end."
    agent = await employ(town.parts, "merchant")
    await agent.do("execute_agent", element_name="sell")
    call = {"id": BOOK, "input": {"description": long, "price": 0.01, "tags": ["x"] * 3}}
    step = {"next_operation": "delete_book", "next_params": call}
    await agent.do("record_execution_step", element_name="sell", next_action_hint="delete the old book", **step)

    page = await signed_in(town, visitor)
    case = page.get_by_role("article", name="merchant wants record_execution_step")
    price = case.get_by_role("term").filter(has_text=re.compile("^price$"))
    description = case.get_by_role("term").filter(has_text=re.compile("^description$"))
    box = await case.get_by_label("Parameters", exact=True).bounding_box()
    places = [await each.bounding_box() for each in (price, description)]
    assert box
    assert [bool(place and box["y"] < place["y"] < box["y"] + box["height"]) for place in places] == [True, True]
    assert box["height"] < 600  # the long text is folded
    await expect(case.get_by_text("0.01")).to_be_visible()
    await case.get_by_text(f"all {len(long)} characters").click()
    await expect(case.get_by_text("The end.")).to_be_visible()

    (waiting,) = [
        each
        for each in (await town.parts.site.supervision.pending(local_operator())).confirmations
        if each.caller == agent.caller.id
    ]
    await expect(case).to_contain_text(waiting.digest)
    await case.get_by_role("button", name="Approve").click()
    await expect(case).to_contain_text("Approved")


async def test_nothing_that_an_agent_sends_is_invisible(town: Town, visitor: Visitor) -> None:
    seen = "books/U+202Egpj.exeU+200BU+2800U+1D173"
    agent = await employ(town.parts, "sly")
    with pytest.raises(ConfirmationNeeded):
        await agent.do("delete_book", id="books/\u202egpj.exe\u200b\u2800\U0001d173")
    page = await signed_in(town, visitor)
    case = page.get_by_role("article", name="sly wants delete_book")
    await expect(case.get_by_role("definition")).to_have_text(seen)
    await case.get_by_text("As JSON").click()
    await expect(case.get_by_label("Parameters as JSON")).to_contain_text(f'"id": "{seen}"')


async def test_a_task_of_somebody_else_is_cancelled(town: Town, visitor: Visitor) -> None:
    agent = await employ(town.parts, "cook")
    await town.parts.site.call(Call("plan_meals", {"pace": 60}, run="later"), agent.caller)
    page = await signed_in(town, visitor)
    await page.get_by_role("tab", name="Agents and tasks").click()
    row = page.get_by_role("row").filter(has_text="cook")
    await row.get_by_role("button", name="Cancel plan_meals").click()
    await expect(row).to_contain_text("cancelled")
    await expect(row.get_by_role("button")).to_have_count(0)
    await page.get_by_role("tab", name="Audit trail").click()
    lines = page.get_by_role("list", name="Audit trail").get_by_role("listitem")
    await expect(lines.first).to_contain_text("ada stopped what cook had begun: to call plan_meals.")


async def test_a_source_is_loaded_again_and_the_page_says_what_came_of_it(town: Town, visitor: Visitor) -> None:
    page = await signed_in(town, visitor)
    await page.get_by_role("tab", name="Sources").click()
    await page.get_by_role("button", name="Load again: data/faqs.jsonld").click()
    await expect(page.get_by_text("data/faqs.jsonld was loaded: nothing new.")).to_be_visible()


async def test_the_doubts_of_a_source_are_shown_with_their_places_and_as_text(town: Town, visitor: Visitor) -> None:
    notes, settings = town.parts.store.notes, town.parts.config.source[0]
    status = await load_status(notes, settings)
    before = await saved_report(notes, status.report)
    price = [
        Doubt(f"recipes.csv:{line}", "is not a number", "price", "<img src=x onerror=harm()>\u202e", 'price = "string"')
        for line in (17, 20)
    ]
    await save_report(notes, replace(before.report, doubts=(*price,), doubt_count=12))
    try:
        page = await signed_in(town, visitor, viewport=NARROW)
        await page.get_by_role("tab", name="Sources").click()
        row = page.get_by_role("row").filter(has_text=settings.url)
        await expect(row).to_contain_text("12 doubts")
        doubt = page.get_by_role("listitem").filter(has_text="recipes.csv:17")
        await expect(doubt).to_contain_text(
            "price “<img src=x onerror=harm()>U+202E” is not a number and 1 more like it"
        )
        await expect(doubt).to_contain_text('Settle it with price = "string"')
        await expect(page.get_by_text("and 10 more; portico check lists them")).to_be_visible()
        assert (await is_too_wide(page), await serious(page)) == (False, [])
    finally:
        await save_report(notes, before.report)


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
    edges = await page.get_by_role("tab").evaluate_all("tabs => tabs.map((tab) => tab.getBoundingClientRect().right)")
    assert max(edges) <= NARROW["width"]
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
    assert await page.locator(".scroll, select").evaluate_all(CUT) == []


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
async def test_what_is_copied_works_in_a_shell(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/inspect", permissions=["clipboard-read", "clipboard-write"])
    await page.get_by_label("Question").fill('it\'s a "lemon" soup for $HOME `x` \\')
    await page.keyboard.press("Enter")
    await expect(page.locator("table.figures tbody tr")).to_have_count(len(PROTOCOLS))
    for protocol in PROTOCOLS:
        card = page.get_by_role("region", name=protocol, exact=True)
        await card.get_by_role("button", name="Copy as curl").click()
        await expect(card.get_by_role("button", name="Copied")).to_be_visible()
        command = await page.evaluate("navigator.clipboard.readText()")
        shell = await asyncio.create_subprocess_shell(f"{command} -sf", stdout=asyncio.subprocess.PIPE)
        answer, _ = await shell.communicate()
        assert (protocol, shell.returncode, b"Lemon Barley Soup" in answer) == (protocol, 0, True)
