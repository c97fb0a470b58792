"""How soon an answer begins: from the question to the first item or word, on the page and at the wire.

    python bench/first_token.py

Runs the sample site without a model in a process of its own, and a Chromium. Each question is asked on the page and
over HTTP, in turns. Also told: how much code of ours each page loads.
"""

import argparse
import asyncio
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
from playwright.async_api import Browser, Page, Response, async_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
GOAL_MS = 100
GOAL_BYTES = 150_000
PAGES = ("/", "/desk", "/inspect", "/items/recipes/lemon-barley-soup")
QUESTIONS = (
    "vegetarian dinner under 30 minutes",
    "a quiet beach",
    "the cheapest kettle",
    "concerts in december",
    "where can I park",
    "a restaurant with a view of the harbour",
    "books about the sea",
    "something warm for a rainy evening",
    "how do I get a library card",
    "a present for a gardener",
    "gluten-free dessert",
    "markets this month",
    "best rated pub",
    "news about the ferry",
    "a walk with children",
    "red wool blanket",
    "soup with lemon",
    "museum opening hours",
    "a novel with at least 4 stars",
    "breakfast with eggs",
)

# Asks as a person does, and sees when the first card or the first words are there.
ASK = """(question) => new Promise((done) => {
  const input = document.querySelector(".chat-input");
  input.value = question;
  const begun = performance.now();
  const look = () => {
    const words = document.querySelector(".turn-text p, .turn-items .item, .asked-back");
    if (!words) return;
    seeing.disconnect();
    done(performance.now() - begun);
  };
  const seeing = new MutationObserver(look);
  seeing.observe(document.querySelector(".chat-log"), { childList: true, subtree: true });
  input.form.requestSubmit();
})"""


async def on_the_page(page: Page, base: str, question: str) -> float:
    """Milliseconds until something of the answer is on the page, in a conversation of its own."""
    await page.goto(base)
    await page.evaluate("sessionStorage.clear()")
    await page.goto(base)
    took = await page.evaluate(ASK, question)
    await page.locator(".turn:not([aria-busy])").wait_for()
    return took


async def at_the_wire(client: httpx.AsyncClient, question: str) -> float:
    """Milliseconds until the first item, words or question back has arrived."""
    asked = {"query": {"text": question}, "prefer": {"streaming": True, "mode": "list, summarize"}}
    begun = time.perf_counter()
    async with client.stream("POST", "/ask", json=asked) as response:
        async for line in response.aiter_lines():
            if line.startswith(("event: result", "event: complete")):
                break
    return (time.perf_counter() - begun) * 1000


async def when_ready(client: httpx.AsyncClient) -> None:
    """Once everything is embedded, so that nothing else goes on."""
    while True:
        try:
            found = (await client.get("/readyz")).json()["collections"].values()
        except httpx.TransportError:
            found = ()
        if found and all(each["items"] == each["embedded"] for each in found):
            return
        await asyncio.sleep(0.1)


async def code_of(browser: Browser, url: str) -> dict[str, int]:
    """The bytes of each script and style sheet that a page loads."""
    page = await browser.new_page()
    loaded: list[Response] = []

    def note(response: Response) -> None:
        loaded.append(response)

    page.on("response", note)
    await page.goto(url, wait_until="networkidle")
    ours = [each for each in loaded if each.request.resource_type in ("script", "stylesheet")]
    sizes = {each.url.rsplit("/", 1)[-1]: len(await each.body()) for each in ours}
    await page.close()
    return sizes


async def measure(base: str) -> tuple[list[float], list[float], dict[str, int]]:
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    async with (
        async_playwright() as driver,
        httpx.AsyncClient(base_url=base, trust_env=False, timeout=60) as client,
    ):
        async with asyncio.timeout(60):
            await when_ready(client)
        browser = await driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = await browser.new_page()
        for question in QUESTIONS[:2]:  # what is made once is made now
            await on_the_page(page, base, f"{question} please")
            await at_the_wire(client, f"{question} please")
        seen: list[float] = []
        heard: list[float] = []
        for question in QUESTIONS:
            seen.append(await on_the_page(page, base, question))
            heard.append(await at_the_wire(client, question))
        code = {path: sum((await code_of(browser, base + path)).values()) for path in PAGES}
        await browser.close()
    return seen, heard, code


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8192)
    port = parser.parse_args().port
    with tempfile.TemporaryDirectory() as folder:
        portico = Path(sys.executable).parent / "portico"
        quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
        server = await asyncio.create_subprocess_exec(
            portico, "demo", "--port", str(port), "--nwp-port", str(port + 1), cwd=folder, **quiet
        )
        try:
            seen, heard, code = await measure(f"http://127.0.0.1:{port}")
        finally:
            if server.returncode is None:
                server.send_signal(signal.SIGTERM)
            await server.wait()
    print(f"{'question':<44}{'page':>9}{'wire':>9}")
    for question, page, wire in zip(QUESTIONS, seen, heard, strict=True):
        print(f"{question:<44}{page:>6.0f} ms{wire:>6.0f} ms")
    median = statistics.median(seen)
    print(f"{'median':<44}{median:>6.0f} ms{statistics.median(heard):>6.0f} ms")
    for path, size in code.items():
        print(f"scripts and styles of {path:<36}{size / 1000:>8.1f} KB")
    if median > GOAL_MS or max(code.values()) > GOAL_BYTES:
        sys.exit(f"More than {GOAL_MS} ms or {GOAL_BYTES / 1000:.0f} KB")


if __name__ == "__main__":
    asyncio.run(main())
