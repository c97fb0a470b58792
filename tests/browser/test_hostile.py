"""Items and answers made to do harm: nothing of them runs, nothing breaks a page, and what they say can be read."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.browser.conftest import NARROW, Visitor, answered, employ, is_too_wide, key_of, sign_in
from tests.protocols.conftest import listening, scripted, serving, telling

from portico.ask.events import (
    Action,
    ClarificationEvent,
    EndEvent,
    InterpretationEvent,
    ItemEvent,
    OperationEvent,
    Question,
    TextEvent,
)
from portico.errors import ConfirmationNeeded
from portico.items import Item
from portico.protocols import parse_config
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = '<script>harm()</script><img src=x onerror="harm()"><svg onload=harm()>'
BREAKOUT = '"\'></script></title></textarea><script>harm()</script><a href="javascript:harm()" onclick=harm()>x</a>'
LINK = "javascript:harm()//"
TURNED = "\u202egpj.exe\u2066 \u200f\u061c"
WORD = "w" * 100_000
TEXT = f"{SCRIPT} {BREAKOUT} {TURNED} [click]({LINK}) {WORD}"
ITEM = {
    "@type": SCRIPT,
    "name": f"Trap {SCRIPT}",
    "headline": BREAKOUT,
    "description": TEXT,
    "url": LINK,
    "image": ["javascript:harm()", "http://elsewhere.example/pixel.png"],
    "author": {"@type": "Person", "name": TURNED + SCRIPT, "url": "JaVaScRiPt:harm()"},
    "offers": {"price": SCRIPT, "priceCurrency": BREAKOUT, "url": "data:text/html,<script>harm()</script>"},
    "aggregateRating": {"ratingValue": SCRIPT, "reviewCount": WORD},
    "startDate": BREAKOUT,
    "location": {"name": WORD, "address": {"streetAddress": SCRIPT}},
    "totalTime": SCRIPT,
    SCRIPT: WORD,
    "__proto__": {"harm": SCRIPT},
    "constructor": BREAKOUT,
}
ID = "traps/one"
LISTENERS = """[...document.querySelectorAll("*")].flatMap((each) => each.getAttributeNames())
  .filter((name) => name.startsWith("on"))"""


@dataclass(frozen=True)
class Trap:
    parts: Parts
    base: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trap(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trap]:
    """A site whose words are all hostile."""
    folder = tmp_path_factory.mktemp("trap")
    (folder / "traps.jsonl").write_text(
        "\n".join(json.dumps({"@id": f"traps/{name}", **ITEM}) for name in ("one", "two", "three")), "utf-8"
    )
    said = {
        "site": {"name": f"Site {SCRIPT}", "description": TEXT[:2000]},
        "folder": str(folder),
        "search": {"embedder": "none:"},
        "safety": {"start": "allow"},
        "store": {"url": f"sqlite:///{folder}/trap.db"},
        "collections": {"traps": {"title": f"Traps {BREAKOUT}", "description": SCRIPT + TURNED}},
        "source": [{"url": str(folder / "traps.jsonl"), "collection": "traps"}],
    }
    async with serving(parse_config(said)) as (parts, base):
        yield Trap(parts, base)


async def harmless(page: Page) -> None:
    """It fits, and it still answers to a person at once. What ran would have been heard by the visitor."""
    assert not await is_too_wide(page)
    assert await page.locator("[href^='javascript:' i], [src^='javascript:' i], [href^='data:text' i]").count() == 0
    assert await page.evaluate(LISTENERS) == []
    async with asyncio.timeout(60):
        await page.keyboard.press("Tab")
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


@pytest.mark.parametrize("path", ["/", "/collections/traps", f"/items/{ID}", "/docs"])
async def test_no_page_of_a_hostile_site_does_harm(trap: Trap, visitor: Visitor, path: str) -> None:
    page = await visitor.visit(trap.base + path, viewport=NARROW)
    await harmless(page)
    await page.set_viewport_size({"width": 1280, "height": 800})
    await harmless(page)


async def test_hostile_items_are_shown_as_text_in_the_chat_and_the_inspector(trap: Trap, visitor: Visitor) -> None:
    page = await visitor.visit(f"{trap.base}/?q=trap+script", viewport=NARROW)
    await answered(page)
    await expect(page.locator(".item-name").first).to_contain_text("Trap <script>harm()</script>")
    await harmless(page)
    await page.reload()  # from the history
    await expect(page.locator(".item-name").first).to_contain_text("Trap <script>")
    await harmless(page)

    await page.goto(f"{trap.base}/inspect")
    await page.get_by_label("Question").fill("trap script")
    await page.keyboard.press("Enter")
    await expect(page.locator("table.figures tbody tr")).to_have_count(6)
    await harmless(page)


async def test_what_a_hostile_agent_wants_is_shown_as_text_at_the_desk(trap: Trap, visitor: Visitor) -> None:
    agent = await employ(trap.parts, f"agent {SCRIPT}{TURNED}")
    with pytest.raises(ConfirmationNeeded):
        await agent.do("delete_trap", id=f"{TURNED}{SCRIPT}{BREAKOUT}{WORD[:700]}")
    await agent.do("execute_agent", element_name="bot", parameters={SCRIPT: WORD[:9000]})
    await agent.do("record_execution_step", element_name="bot", next_action_hint=f"drop_table {TEXT[:3000]}")

    page = await visitor.visit(f"{trap.base}/desk", viewport=NARROW)
    await sign_in(page, await key_of(trap.parts, SCRIPT, "approve"))
    await expect(page.locator("article.case")).to_have_count(3)
    await expect(page.locator("#panel")).to_contain_text("U+202Egpj.exeU+2066")
    await harmless(page)
    for name in ("Agents and tasks", "Audit trail"):
        await page.get_by_role("tab", name=name).click()
        await page.wait_for_load_state("networkidle")
        await harmless(page)


HOSTILE = Item("one", "traps", ITEM)
BUILT_IN = Item("two", "traps", {**ITEM, "@type": "constructor", "offers": {"availability": "toString"}})
SPEAKING = Item("three", "traps", {**ITEM, "@type": "SearchSummary", "text": "Pay elsewhere"})  # as the site would
ACTION = Action(SCRIPT, BREAKOUT, {SCRIPT: BREAKOUT}, (SCRIPT,))
ANSWERS = {
    "text": (
        ItemEvent(HOSTILE, 90.0, 0, (ACTION,)),
        ItemEvent(BUILT_IN, 80.0, 1),
        ItemEvent(SPEAKING, 70.0, 2),
        TextEvent(f"{TEXT} [1] [{ID}] **{SCRIPT}**\n- {WORD}\n", (ID, LINK)),
        EndEvent(3, (TEXT,)),
    ),
    "question": (
        ClarificationEvent(
            TEXT,
            (Question(SCRIPT, TEXT, "single_select", (SCRIPT, WORD)), Question("__proto__", BREAKOUT, "free_text")),
        ),
        EndEvent(0),
    ),
    "deed": (OperationEvent(SCRIPT, {SCRIPT: TEXT, "url": LINK, "list": [{"a": WORD, "b": BREAKOUT}]}), EndEvent(1)),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_hostile_answers_do_no_harm(trap: Trap, visitor: Visitor, kind: str) -> None:
    understood = InterpretationEvent(TEXT[:300], ("traps",))
    async with listening(scripted(trap.parts, telling(understood, *ANSWERS[kind]))) as port:
        page = await visitor.visit(f"http://127.0.0.1:{port}/?q={kind}", viewport=NARROW)
        await answered(page)
        await expect(page.locator(".turn")).to_contain_text("<script>harm()</script>")
        await expect(page.locator(".item")).to_have_count(sum(isinstance(each, ItemEvent) for each in ANSWERS[kind]))
        await harmless(page)
        await page.evaluate("document.querySelector('.turn .unfold')?.click()")
        await harmless(page)
        await visitor.leave(page)
