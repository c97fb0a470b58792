"""The chat as a person uses it: asking, stopping, going on, answering, acting, waiting."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from tests.browser.conftest import NARROW, Town, Visitor, answered, ask, is_too_wide, key_of, serious
from tests.protocols.conftest import Endless, listening, scripted, soon

from portico.ask.events import InterpretationEvent, ItemEvent, TextEvent
from portico.items import Item
from portico.protocols import parse_config
from portico.server.assembly import open_site
from portico.store.records import Put

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOUP = ItemEvent(Item("recipes/soup", "recipes", {"@type": "Recipe", "name": "Soup"}), 90.0)


async def test_an_answer_cites_items_and_leads_to_them(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    await ask(page, "lemon soup")

    cards = page.locator(".item")
    cite = page.get_by_role("button", name="Source 1: Lemon Barley Soup")
    await expect(page.locator(".turn-text")).to_contain_text("The best match is Lemon Barley Soup")
    await expect(cards).to_have_count(10)
    await cite.hover()
    await expect(page.get_by_role("tooltip")).to_contain_text("Lemon Barley Soup")
    await cite.click()
    await expect(cards.first).to_be_focused()

    await cards.first.get_by_role("link", name="Lemon Barley Soup").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Lemon Barley Soup")
    assert page.url == f"{town.base}/items/recipes/lemon-barley-soup"
    await page.go_back()
    await expect(cards).to_have_count(10)  # the conversation is still there


async def test_one_goes_on_with_what_is_offered_and_takes_back_what_was_understood(
    town: Town, visitor: Visitor
) -> None:
    page = await visitor.visit(f"{town.base}/?q=vegetarian+soup")
    await answered(page)
    await page.locator(".turn-next").get_by_role("button", name=re.compile("Under .* minutes")).click()
    await answered(page)

    await expect(page.locator(".turn")).to_have_count(2)
    last = page.locator(".turn").last
    understood = last.get_by_role("list", name="Understood")
    await expect(understood).to_contain_text("minutes")
    await last.get_by_role("button", name=re.compile("Ask again without .*minutes")).click()
    await answered(page)
    await expect(page.locator(".turn").last.locator(".chip", has_text="minutes")).to_have_count(0)
    assert await page.locator(".turn").last.locator(".item").count()


async def test_items_are_on_the_page_before_the_answer_ends_and_escape_ends_it(town: Town, visitor: Visitor) -> None:
    endless = Endless((InterpretationEvent("soup", ("recipes",)), SOUP, TextEvent("Soup is", ())))
    async with listening(scripted(town.parts, endless)) as port:
        page = await visitor.visit(f"http://127.0.0.1:{port}/?q=soup")
        await expect(page.locator(".item")).to_have_count(1)
        await expect(page.locator(".turn[aria-busy]")).to_have_count(1)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()

        await page.keyboard.press("Escape")
        await expect(page.locator(".turn-notes")).to_have_text("Stopped.")
        await soon(endless.stopped)  # at the server too
        await expect(page.locator(".item")).to_have_count(1)
        await expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible()

        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator(".turn-notes")).to_be_empty()
        await page.locator(".item").focus()  # wherever one is
        await page.keyboard.press("Escape")
        await expect(page.locator(".turn-notes")).to_have_text("Stopped.")
        await expect(page.locator(".item")).to_be_focused()
        await visitor.leave(page)


async def test_a_greeting_is_greeted_and_looked_for_nowhere(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    await ask(page, "Hello!")
    await expect(page.locator(".turn-text")).to_have_text("Hello! What would you like to know?")
    await expect(page.locator(".item")).to_have_count(0)

    await page.locator(".turn-next").get_by_role("button").first.click()  # it says what can be asked
    await answered(page)
    await ask(page, "Hello, is there a lemon soup?")
    await expect(page.locator(".turn").last.locator(".item-name").first).to_have_text("Lemon Barley Soup")
    await answered(page)
    await ask(page, "Thanks!")
    await expect(page.locator(".turn").last.locator(".turn-text")).to_have_text("You are welcome.")
    await ask(page, "Bye")
    await expect(page.locator(".turn").last.locator(".turn-text")).to_have_text("Goodbye!")


async def test_more_comes_from_where_the_answer_came_whatever_was_chosen_since(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/?q=with+onions&collection=recipes&mode=list")
    await answered(page)
    await page.get_by_label("Where to look").select_option("Books")
    await page.get_by_label("How to answer").select_option("Answer")
    await page.get_by_role("button", name="More", exact=True).click()

    links = page.locator(".item-name a")
    await expect(links).to_have_count(20)
    addresses = [urlsplit(await each.get_attribute("href") or "").path for each in await links.all()]
    assert {each.rpartition("/")[0] for each in addresses} == {"/items/recipes"}
    assert len(set(addresses)) == 20
    await expect(page.locator(".turn-text")).to_be_empty()


async def test_more_that_cannot_be_had_takes_nothing_away_and_can_be_asked_for_again(
    town: Town, visitor: Visitor
) -> None:
    page = await visitor.visit(f"{town.base}/?q=with+onions&collection=recipes")
    await answered(page)
    said = await page.locator(".turn-text").inner_text()
    await page.context.set_offline(True)
    await page.get_by_role("button", name="More", exact=True).click()
    await visitor.pardon("net::ERR_INTERNET_DISCONNECTED", times=2)  # from the page, and from the network
    problem = page.locator(".turn-extra").get_by_role("alert")
    await expect(problem).to_contain_text("The site could not be reached.")
    await expect(page.locator(".item")).to_have_count(10)
    assert await page.locator(".turn-text").inner_text() == said

    await page.context.set_offline(False)
    await problem.get_by_role("button", name="Try again").click()
    await expect(page.locator(".item")).to_have_count(20)
    await expect(problem).to_have_count(0)
    assert await page.locator(".turn-text").inner_text() == said


async def test_what_is_asked_back_is_answered_with_a_form(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    await ask(page, "pasta recipe")
    form = page.locator("form.asked-back")
    await expect(form).to_contain_text("Is there a diet to keep to?")
    await form.get_by_text("vegetarian", exact=True).click()
    await expect(form.get_by_label("vegetarian", exact=True)).to_be_checked()
    assert await serious(page) == []
    await form.get_by_role("button", name="Go on").click()
    await answered(page)

    await expect(page.locator(".turn")).to_have_count(2)
    await expect(page.locator(".turn h2").last).to_contain_text("vegetarian")
    assert await page.locator(".turn").last.locator(".item").count()


async def test_an_action_asks_for_what_it_needs_and_shows_what_came_of_it(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/?q=kettle&collection=products&mode=list")
    await answered(page)
    first = page.locator(".item").first
    name = await first.get_attribute("aria-label")
    await first.get_by_role("button", name="Add to cart").click()
    dialog = page.get_by_role("dialog")
    quantity = dialog.get_by_label("Quantity")
    await quantity.fill("100")
    await dialog.get_by_role("button", name="Add to cart").click()
    await expect(dialog).to_contain_text("At most 99")
    await quantity.fill("2")
    assert await serious(page) == []
    await dialog.get_by_role("button", name="Add to cart").click()

    await expect(dialog).to_contain_text("Done")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator(".deed")).to_contain_text(f"Add to cart: {name}")
    await expect(page.locator(".deed")).to_contain_text("Quantity: 2")


async def test_work_that_takes_longer_is_watched_and_cancelled(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    box = page.get_by_role("textbox", name="Your question")
    await box.fill("create a weekly meal plan")
    await box.press("Enter")
    work = page.locator(".work")
    await expect(work).to_contain_text("Choosing a meal for day 1")
    async with page.expect_response(lambda each: '"cancel"' in (each.request.post_data or "")) as cancelling:
        await work.get_by_role("button", name="Cancel").click()
    assert (await cancelling.value).ok

    await expect(page.locator(".turn-notes")).to_have_text("Cancelled.")
    await expect(work).to_have_count(0)
    [task, *_] = await town.desk("tasks")
    assert (task["operation"], task["state"]) == ("plan_meals", "cancelled")


async def test_opinions_reach_the_desk_and_earlier_conversations_stay(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/?q=a+quiet+beach")
    await answered(page)
    await page.get_by_role("button", name="This did not help").click()
    await page.get_by_label("What was missing?").fill("Dogs")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn-tools")).to_contain_text("Thank you")
    await page.get_by_role("button", name="New").click()
    await expect(page.locator(".turn")).to_have_count(0)
    await page.get_by_role("button", name="Earlier").click()
    assert await serious(page) == []
    await page.get_by_role("dialog").get_by_role("button", name="a quiet beach").click()

    await expect(page.locator(".turn h2")).to_contain_text("a quiet beach")
    assert await page.locator(".item").count()
    [noted, *_] = await town.desk("feedback")
    opinion = noted["opinion"]
    assert (opinion["rating"], opinion["comment"], opinion["question"]) == ("down", "Dogs", "a quiet beach")


async def test_all_conversations_are_deleted_only_by_who_is_sure(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/?q=a+quiet+beach")
    await answered(page)
    await page.get_by_role("button", name="Earlier").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Delete all").click()
    await expect(dialog.get_by_role("listitem")).to_have_count(1)
    await dialog.get_by_role("button", name="Delete all: Are you sure?").click()

    await expect(dialog).to_contain_text("Nothing yet.")
    await expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    await expect(page.locator(".turn")).to_have_count(0)


async def test_who_finds_nothing_may_say_so_and_is_told_what_to_ask(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    await ask(page, "xyzzyq")
    await expect(page.locator(".turn-text")).to_contain_text("I found nothing")
    await page.get_by_role("button", name="This did not help").click()
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".turn-tools")).to_contain_text("Thank you")
    await page.locator(".turn-next").get_by_role("button", name="Cheapest products").click()
    await answered(page)

    assert await page.locator(".turn").last.locator(".item").count()
    [noted, *_] = await town.desk("feedback")
    assert noted["opinion"]["answer"].startswith("I found nothing")


async def test_a_narrow_screen_is_wide_enough(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base, viewport=NARROW, has_touch=True)
    assert (await is_too_wide(page), await serious(page)) == (False, [])
    await ask(page, "lemon soup")
    await expect(page.locator(".item").first).to_be_visible()
    assert (await is_too_wide(page), await serious(page)) == (False, [])


async def test_without_scripts_everything_can_still_be_found_and_read(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base, java_script_enabled=False, viewport=NARROW)
    title = page.get_by_role("heading", level=1)
    await expect(title).to_have_text("Merrow Bay")
    assert "needs JavaScript" in await page.locator("#chat").inner_text()
    await page.get_by_role("link", name="Recipes").click()
    await expect(title).to_have_text("Recipes")
    first = page.locator("main a[href^='/items/']").first
    name = await first.inner_text()
    await page.locator("a[rel=next]").click()
    await expect(first).not_to_have_text(name)
    await page.go_back()
    await first.click()
    await expect(title).to_have_text(name)
    await expect(page.get_by_role("heading", name="Zutaten")).to_be_visible()  # the first recipe is a German one
    await page.get_by_role("link", name="Merrow Bay").first.click()
    assert page.url == f"{town.base}/"


async def test_the_theme_is_that_of_the_system_until_one_is_chosen(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base, color_scheme="dark")
    assert await _darkness(page) == "dark"
    await page.emulate_media(color_scheme="light")
    assert await _darkness(page) == "light"
    button = page.get_by_role("button", name=re.compile("Theme: "))
    while "Dark" not in (await button.get_attribute("aria-label") or ""):
        await button.click()
    assert await _darkness(page) == "dark"
    await page.goto(f"{town.base}/items/recipes/lemon-barley-soup")
    assert await _darkness(page) == "dark"


async def _darkness(page: Page) -> str:
    """Which theme a page looks like."""
    colour = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    return "dark" if sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 100 else "light"


async def test_the_embed_asks_from_a_page_of_another_origin(town: Town, visitor: Visitor) -> None:
    async def home(_: Request) -> HTMLResponse:
        return HTMLResponse(
            f"""<!doctype html><html lang="en"><title>A shop</title><main><h1>A shop</h1>
            <style>portico-chat {{ height: 30rem; --sea: rgb(160, 48, 106) }} .item {{ display: none }}</style>
            <script src="{town.base}/embed.js" async></script>
            <portico-chat theme="light" placeholder="What are you looking for?"></portico-chat></main>"""
        )

    visitor.hosts.add(town.base.removeprefix("http://"))
    async with listening(Starlette(routes=[Route("/", home), Route("/favicon.ico", home)])) as port:
        page = await visitor.visit(f"http://127.0.0.1:{port}/", viewport=NARROW)
        await expect(page.get_by_role("textbox")).to_have_attribute("placeholder", "What are you looking for?")
        await ask(page, "lemon soup")
        await expect(page.locator(".item").first).to_be_visible()
        send = page.get_by_role("button", name="Ask", exact=True)
        await expect(send).to_have_css("background-color", "rgb(160, 48, 106)")

        await page.get_by_role("button", name="Source 1: Lemon Barley Soup").click()
        await expect(page.locator(".item").first).to_be_focused()
        assert not await is_too_wide(page)
        assert await serious(page) == []
        await visitor.leave(page)


async def test_nothing_is_done_for_a_link_until_somebody_asks_for_it_here(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(f"{town.base}/?q=plan+a+day")
    await answered(page)
    await expect(page.locator(".turn")).to_have_count(1)
    await expect(page.locator(".asked-back")).to_have_count(0)
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(".asked-back")).to_contain_text("What you like")


async def test_a_key_is_asked_for_on_our_own_page_alone(visitor: Visitor) -> None:
    closed = {"anonymous": {"scopes": []}, "server": {"origins": ["http://127.0.0.1:*"]}}
    config = parse_config({**closed, "search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}})
    async with open_site(config) as parts, listening(parts) as port:
        await parts.store.collections.declare(parts.config.collection("lamps"))
        await parts.store.items.write("lamps", [Put("brass", {"name": "Brass lamp"})])
        await parts.index.sync(await parts.store.changes.head())
        base = f"http://127.0.0.1:{port}"
        page = await visitor.visit(f"{base}/?q=lamp")
        await page.get_by_label("API key").fill(await key_of(parts, "ada", "ask", "read:*"))
        await page.get_by_role("button", name="Use it").click()
        await expect(page.locator(".item")).to_contain_text("Brass lamp")

        # What is typed on a page of somebody else they can read.
        async def home(_: Request) -> HTMLResponse:
            return HTMLResponse(f'<script src="{base}/embed.js" async></script><portico-chat></portico-chat>')

        async with listening(Starlette(routes=[Route("/", home), Route("/favicon.ico", home)])) as elsewhere:
            other = await visitor.visit(f"http://127.0.0.1:{elsewhere}/")
            await ask(other, "lamp")
            await expect(other.get_by_role("alert")).to_contain_text("This needs the scope ask")
            await expect(other.locator("input")).to_have_count(0)
            await visitor.leave(other)
        await visitor.pardon("401", 2)
        await visitor.leave(page)
