"""Pictures of every page, light and dark, wide and narrow, for the documentation.

    python -m tests.browser.screenshots

Overwrites those in docs/screenshots. Needs a Chromium and Pillow, which reportlab brings.
"""

import asyncio
import io
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.async_api import Browser, Page, ViewportSize
from tests.browser.conftest import Town, answered, employ, open_browser, open_town, sign_in

from portico.errors import ConfirmationNeeded

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
SIZES = {"wide": ViewportSize(width=1280, height=900), "narrow": ViewportSize(width=320, height=640)}
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
COLOURS = 256  # of a picture: as good to the eye, and a third of the size


async def chat(page: Page, town: Town) -> None:
    await page.goto(f"{town.base}/?q=vegetarian+dinner+under+30+minutes")
    await answered(page)


async def item(page: Page, town: Town) -> None:
    await page.goto(f"{town.base}/items/recipes/lemon-barley-soup")


async def collection(page: Page, town: Town) -> None:
    await page.goto(f"{town.base}/collections/restaurants")


async def desk(page: Page, town: Town) -> None:
    await page.goto(f"{town.base}/desk")
    await sign_in(page, town.person)
    await page.locator("article.case").first.wait_for()


async def inspector(page: Page, town: Town) -> None:
    await page.goto(f"{town.base}/inspect")
    await page.get_by_label("Question").fill("a warm soup")
    await page.get_by_label("Question").press("Enter")
    await page.locator("table.figures tbody tr").nth(5).wait_for()


async def home(page: Page, town: Town) -> None:
    await page.goto(town.base)


PAGES: tuple[Callable[[Page, Town], Awaitable[None]], ...] = (home, chat, item, collection, desk, inspector)


async def wait_for_somebody(town: Town) -> None:
    """Agents do what a person has to look at."""
    gardener = await employ(town.parts, "gardener")
    with suppress(ConfirmationNeeded):
        await gardener.do("delete_recipe", id="recipes/lemon-barley-soup")
    tidy = await employ(town.parts, "night shift")
    await tidy.do("execute_agent", element_name="tidy")
    await tidy.do("record_execution_step", element_name="tidy", next_action_hint="run shell: rm -rf /srv/old-menus")


async def take_all(browser: Browser, town: Town) -> None:
    await take(browser, town, "light", "wide")  # what is made once is made before the times in the pictures count
    for theme, size in product(THEMES, SIZES):
        await take(browser, town, theme, size)


async def take(browser: Browser, town: Town, theme: Theme, size: str) -> None:
    context = await browser.new_context(viewport=SIZES[size], color_scheme=theme, reduced_motion="reduce")
    for show in PAGES:
        page = await context.new_page()
        await show(page, town)
        await page.mouse.move(0, 0)
        save(await page.screenshot(animations="disabled"), f"{show.__name__}-{theme}-{size}.png")
        await page.close()
    await context.close()


def save(picture: bytes, name: str) -> None:
    with Image.open(io.BytesIO(picture)) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(FOLDER / name, optimize=True)


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with open_browser() as browser, open_town(Path(folder)) as town:
            await wait_for_somebody(town)
            await take_all(browser, town)


if __name__ == "__main__":
    asyncio.run(main())
