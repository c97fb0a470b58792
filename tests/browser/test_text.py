"""An answer on the page while a language model still writes it."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect
from tests.browser.conftest import Visitor, answered
from tests.models.endpoint import ModelEndpoint, Received, Reply
from tests.protocols.conftest import listening

from portico.protocols import parse_config
from portico.server.assembly import open_site
from portico.store.records import Put

pytestmark = pytest.mark.asyncio(loop_scope="session")

LAMPS = {name: {"@type": "Product", "name": f"Lamp of {name}"} for name in ("brass", "tin")}
FIRST, SECOND = "This one is bright.", "That one is dull."


class Writer:
    """A model that begins a second sentence, and ends it when it may."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def __call__(self, received: Received) -> Reply:
        if received.wants_schema:
            return Reply([json.dumps({"ranking": [{"n": 1, "score": 90}, {"n": 2, "score": 80}]})])
        return Reply(self._sentences())

    def _sentences(self) -> Iterator[str]:
        yield f"{FIRST} [1] That"
        self.goes_on.wait(30)
        yield f"{SECOND.removeprefix('That')} [2]"


@asynccontextmanager
async def lamps(writer: Writer) -> AsyncIterator[str]:
    """The address of a shop that this model writes for."""
    with ModelEndpoint(writer) as endpoint:
        settings = {"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}}
        config = parse_config({**settings, "ask": {"model": endpoint.url("openai", "retries=0")}})
        async with open_site(config) as parts:
            await parts.store.collections.declare(parts.config.collection("lamps"))
            await parts.store.items.write("lamps", [Put(id, data) for id, data in LAMPS.items()])
            await parts.index.sync(await parts.store.changes.head())
            async with listening(parts) as port:
                try:
                    yield f"http://127.0.0.1:{port}"
                finally:
                    writer.goes_on.set()


async def test_the_first_sentence_is_on_the_page_before_the_second_exists(visitor: Visitor) -> None:
    writer = Writer()
    async with lamps(writer) as base:
        page = await visitor.visit(f"{base}/?q=lamp")
        text = page.locator(".turn-text")
        await expect(text).to_have_text(f"{FIRST}1")
        await expect(page.locator(".turn[aria-busy]")).to_have_count(1)
        await text.get_by_role("button", name="Source 1: ").focus()
        await expect(page.get_by_role("tooltip")).to_be_visible()

        writer.goes_on.set()
        await answered(page)
        await expect(text).to_have_text(f"{FIRST}1 {SECOND}2")
        # What was there has stayed: nothing was taken away under the reader.
        await expect(text.get_by_role("button", name="Source 1: ")).to_be_focused()
        await expect(page.get_by_role("tooltip")).to_be_visible()

        await page.reload()
        await expect(text).to_have_text(f"{FIRST}1 {SECOND}2")
        await visitor.leave(page)


async def test_what_was_said_stays_when_one_stops_it(visitor: Visitor) -> None:
    async with lamps(Writer()) as base:
        page = await visitor.visit(f"{base}/?q=lamp")
        await expect(page.locator(".turn-text")).to_have_text(f"{FIRST}1")
        await page.keyboard.press("Escape")
        await expect(page.locator(".turn-notes")).to_have_text("Stopped.")
        await expect(page.locator(".turn-text")).to_have_text(f"{FIRST}1")
        await visitor.leave(page)
