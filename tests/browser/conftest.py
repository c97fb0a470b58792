"""Pages in a real Chromium, as people see them, and everything on them that should not be.

The browser is one that is installed; `make` looks for it. Without it these tests are left out, or fail where
PORTICO_NEED_BROWSER is set. Everything runs in one event loop: the sites, and what drives the browser.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect
from tests.protocols.conftest import serving

from portico.access.identity import RequestCredentials, make_key
from portico.catalog import Danger
from portico.cli.sites import demo_config
from portico.config import Safety, Search, StoreSettings
from portico.requests import Call, Caller
from portico.server.assembly import Parts

NEEDED = "PORTICO_NEED_BROWSER"  # set where a session without a browser is a failure
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = Path(sys.prefix) / "interop" / "node_modules" / "axe-core" / "axe.min.js"
WAIT_MS = 60_000  # for what is to appear on a page
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 320, "height": 640}
expect.set_options(timeout=WAIT_MS)

# What a policy forbids is said aloud, and a script that was smuggled in is heard of.
LISTENING = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.effectiveDirective} ${event.blockedURI}`));
Object.defineProperty(window, "harm", { value: () => console.error("harm was done") });
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => console.error(`${name} was called`);
"""
SERIOUS = """async (rules) => {
  const only = rules.length ? { runOnly: rules } : {};
  const { violations } = await axe.run(document, { resultTypes: ["violations"], preload: false, ...only });
  return violations.filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""


def chromium() -> str | None:
    """Where a Chromium is that can be started."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """A browser of its own, that nobody sees."""
    async with async_playwright() as driver:
        # As root, in a container, Chromium starts without its sandbox only.
        browser = await driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if not chromium():
        leave_out(f"none of {', '.join(NAMES)} is installed")
    async with open_browser() as opened:
        yield opened


def leave_out(reason: str) -> NoReturn:
    """What a test needs is not there."""
    said = f"Pages were not looked at in a browser: {reason}"
    if os.environ.get(NEEDED):
        pytest.fail(said, pytrace=False)
    pytest.skip(said)


@dataclass
class Visitor:
    """Opens pages, and hears of errors, of requests to elsewhere, and of what the policy of a page has stopped."""

    browser: Browser
    hosts: set[str] = field(default_factory=set[str])
    problems: list[str] = field(default_factory=list[str])
    contexts: list[BrowserContext] = field(default_factory=list[BrowserContext])
    pardoned: set[str] = field(default_factory=set[str])  # words of what may go wrong any number of times

    async def visit(self, url: str, **settings: Any) -> Page:
        """A page with a memory of its own. Only hosts that were visited may be asked."""
        self.hosts.add(urlsplit(url).netloc)
        context = await self.browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **settings})
        context.set_default_timeout(WAIT_MS)
        await context.add_init_script(LISTENING)
        context.on("console", self._heard)
        context.on("weberror", lambda error: self.problems.append(f"error: {error.error}"))
        context.on("request", self._asked)
        has_scripts = settings.get("java_script_enabled", True)
        context.on("requestfailed", lambda request: self._failed(request, has_scripts))
        self.contexts.append(context)
        page = await context.new_page()
        await page.goto(url)
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} {message.location['url']}")

    def _asked(self, request: Request) -> None:
        asked = urlsplit(request.url)
        if asked.scheme not in ("data", "blob") and asked.netloc not in self.hosts:
            self.problems.append(f"request to elsewhere: {request.url}")

    def _failed(self, request: Request, has_scripts: bool) -> None:
        # What the page itself gives up is no failure, nor are scripts where there are to be none.
        if request.failure != "net::ERR_ABORTED" and (has_scripts or request.resource_type != "script"):
            self.problems.append(f"failed: {request.url} {request.failure}")

    async def pardon(self, problem: str, times: int = 1) -> None:
        """Waits until something with these words has gone wrong so many times, as it should."""
        async with asyncio.timeout(WAIT_MS / 1000):
            while len(heard := [each for each in self.problems if problem in each]) < times:
                await asyncio.sleep(0.01)
        for each in heard[:times]:
            self.problems.remove(each)

    async def leave(self, page: Page) -> None:
        """Before its server goes."""
        self.contexts.remove(page.context)
        await page.context.close()

    async def close(self) -> list[str]:
        """Everything that went wrong."""
        for context in self.contexts:
            await context.close()
        return [each for each in self.problems if not any(words in each for words in self.pardoned)]


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser) -> AsyncIterator[Visitor]:
    visitor = Visitor(browser)
    yield visitor
    assert await visitor.close() == []


async def is_too_wide(page: Page) -> bool:
    """Whether one has to scroll sideways."""
    return await page.evaluate("document.documentElement.scrollWidth > innerWidth")


async def serious(page: Page) -> Sequence[str]:
    """What axe finds that keeps people from using a page, in the light and in the dark."""
    if not AXE.exists():
        leave_out(f"there is no {AXE}")
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text("utf-8"))
    found = await page.evaluate(SERIOUS, [])
    await page.emulate_media(color_scheme="dark")
    dark = await page.evaluate(SERIOUS, ["color-contrast"])  # nothing else is different
    await page.emulate_media(color_scheme="light")
    return [*found, *(f"dark {each}" for each in dark)]


async def ask(page: Page, question: str) -> None:
    """Asks, and waits until everything has arrived."""
    await page.get_by_role("textbox", name="Your question").fill(question)
    await page.keyboard.press("Enter")
    await answered(page)


async def sign_in(page: Page, key: str) -> None:
    """At the desk."""
    await page.get_by_label("Your key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("tab", name="Waiting").wait_for()


async def answered(page: Page) -> None:
    await page.locator(".turn").last.and_(page.locator(".turn:not([aria-busy])")).wait_for()


@dataclass(frozen=True)
class Agent:
    """Somebody who may risk much, and has to ask for what destroys something."""

    parts: Parts
    caller: Caller

    async def do(self, operation: str, **params: Any) -> Any:
        return (await self.parts.site.call(Call(operation, params), self.caller)).result


@dataclass(frozen=True)
class Town:
    """The sample site without a model, and a person who may approve."""

    parts: Parts
    base: str
    person: str  # the person's key

    async def desk(self, what: str) -> Any:
        """What the desk is told."""
        headers = {"authorization": f"Bearer {self.person}"}
        async with httpx.AsyncClient(base_url=self.base, headers=headers) as client:
            return (await client.get(f"/desk/api/{what}")).json()[what]


@asynccontextmanager
async def open_town(folder: Path) -> AsyncIterator[Town]:
    config = msgspec.structs.replace(
        demo_config(),
        store=StoreSettings(url=f"sqlite:///{folder}/town.db"),
        search=Search(embedder="none:"),
        safety=Safety(start="allow"),
    )
    async with serving(config) as (parts, base):
        yield Town(parts, base, await key_of(parts, "ada", "approve"))


async def employ(parts: Parts, name: str) -> Agent:
    key = await key_of(parts, name, "*:*", danger=Danger.DANGEROUS)
    return Agent(parts, await parts.site.identity.caller(RequestCredentials(key)))


async def key_of(parts: Parts, name: str, *scopes: str, danger: Danger = Danger.SAFE) -> str:
    token, key = make_key(name, scopes, danger, 1)
    await parts.store.keys.add(key)
    return token


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def town(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    """Shared by all tests of a process, once there is a browser."""
    async with open_town(tmp_path_factory.mktemp("town")) as town:
        yield town
