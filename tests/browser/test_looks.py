"""How the chat looks where it is easily broken: narrow places, colours of other pages, one turn after the other."""

import pytest
from playwright.async_api import Locator, expect
from tests.browser.conftest import WIDE, Town, Visitor, ask

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIGHT, DARK = "rgb(28, 39, 51)", "rgb(235, 231, 221)"  # the ink of each
LINES = """(element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range.getClientRects().length;
}"""
LEFT = "(element) => element.getBoundingClientRect().left"


async def test_the_field_stays_where_it_is_from_turn_to_turn(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    field = page.locator(".chat-box")
    await ask(page, "hello")
    first = await bottom(field)
    await ask(page, "xyzzyq")

    assert [first, await bottom(field)] == [pytest.approx(WIDE["height"], abs=20)] * 2
    await expect(page.locator("footer")).to_be_hidden()


async def test_what_is_said_of_an_answer_fits_where_it_is_said(town: Town, visitor: Visitor) -> None:
    page = await visitor.visit(town.base)
    await ask(page, "concerts in January")
    await page.get_by_role("button", name="This did not help").click()
    send = page.get_by_role("button", name="Send")
    assert await send.evaluate(LINES) == 1

    await page.set_viewport_size({"width": 320, "height": 640})
    await send.click()
    thanks = page.locator(".turn-tools").get_by_text("Thank you")
    await thanks.wait_for()
    assert await thanks.evaluate(LEFT) >= await page.locator(".turn-text").evaluate(LEFT)


@pytest.mark.parametrize(
    ("style", "theme", "ink"),
    [
        (":root { --sand: #fff; --ink: #777 }", "", DARK),  # of the page, for itself
        ("portico-chat { --sea: #a0306a; --sand: #fff8fb }", "", LIGHT),
        ("portico-chat { --sea: #a0306a; --sand: #222 }", 'theme="system"', DARK),
    ],
)
async def test_a_page_that_gives_some_colours_can_be_read_in_the_dark(
    town: Town, visitor: Visitor, style: str, theme: str, ink: str
) -> None:
    head = f"<link rel='icon' href='data:,'><style>{style}</style><script src='/embed.js' async></script>"
    shop = f"{head}<portico-chat {theme}></portico-chat>"
    page = await visitor.visit(f"{town.base}/inspect", color_scheme="dark")
    await page.route("**/shop", lambda route: route.fulfill(body=shop, content_type="text/html"))
    await page.goto(f"{town.base}/shop")

    await expect(page.locator(".embedded")).to_have_css("color", ink)


async def bottom(place: Locator) -> float:
    box = await place.bounding_box()
    assert box
    return box["y"] + box["height"]
