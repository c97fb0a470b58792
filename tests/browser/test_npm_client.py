"""npm: @microsoft/ai-chat-protocol as published, in a page of another origin than the site it asks."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse
from starlette.routing import Route
from tests.browser.conftest import Town, Visitor, leave_out
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Endless, listening, scripted, soon, telling

from portico.ask.events import EndEvent, ErrorEvent, Event, InterpretationEvent, ItemEvent, TextEvent
from portico.errors import UnknownItem
from portico.items import Item
from portico.requests import Ask, Caller

pytestmark = pytest.mark.asyncio(loop_scope="session")

PACKAGE = Path(sys.prefix) / "interop" / "node_modules" / "@microsoft" / "ai-chat-protocol"
BUILD = PACKAGE / "dist" / "browser" / "index.js"  # what its package.json names for `import` in browsers
SOUP = "recipes/lemon-barley-soup"
NOTE = "The spare key of the boathouse hangs behind the blue boat."
SESSION = {"browser": "b1", "tab": 7}
BEGINNING = (
    InterpretationEvent("soup", ("recipes",)),
    ItemEvent(Item("recipes/soup", "recipes", {"@type": "Recipe", "name": "Soup"}), 90.0),
)

# One client for each page. What it throws is told as it is, and errors of the language by their names.
FRONT_END = """<!doctype html><html lang="en"><title>A front end</title><link rel="icon" href="data:,">
<script type="module">
import { AIChatProtocolClient } from "/client.js";

const MADE = {
  File: ({ text, name }) => new File([text], name),
  Blob: ({ text }) => new Blob([text]),
  Uint8Array: ({ text }) => new TextEncoder().encode(text),
};
const file = ({ contentType, kind, ...given }) => ({ contentType, data: MADE[kind](given) });
const prepared = ({ files, ...message }) => (files ? { ...message, files: files.map(file) } : message);

async function caught(work) {
  try {
    return await work();
  } catch (error) {
    return { thrown: error instanceof Error ? error.name : error };
  }
}

let client, chunks;
const stopping = new AbortController();
Object.assign(window, {
  meet: (endpoint, ...given) => { client = new AIChatProtocolClient(endpoint, ...given); },
  complete: ({ messages, ...options }) => caught(() => client.getCompletion(messages.map(prepared), options)),
  begin: ({ messages, ...options }) => caught(async () => {
    const asked = { ...options, abortSignal: stopping.signal };
    chunks = (await client.getStreamedCompletion(messages.map(prepared), asked))[Symbol.asyncIterator]();
  }),
  next: () => caught(() => chunks.next()),
  stop: () => stopping.abort(),
});
</script>"""


async def _front_end(_: Request) -> HTMLResponse:
    return HTMLResponse(FRONT_END)


async def _client(_: Request) -> FileResponse:
    return FileResponse(BUILD)


@dataclass
class Front:
    """A page with the client, and what the browser sent to the site: questions, and before them whether it may."""

    page: Page
    questions: int = 0
    preflights: list[str] = field(default_factory=list[str])  # the headers that they named

    def sent(self, event: dict[str, Any]) -> None:
        request = event["request"]
        if request["method"] == "OPTIONS":
            self.preflights.append(request["headers"]["Access-Control-Request-Headers"])
        else:
            self.questions += 1

    async def complete(self, *messages: dict[str, Any], **options: Any) -> dict[str, Any]:
        return await self.page.evaluate("(asked) => complete(asked)", {"messages": messages, **options})

    async def begin(self, *messages: dict[str, Any], **options: Any) -> dict[str, Any] | None:
        """Begins a stream. Gives nothing, or what was thrown."""
        return await self.page.evaluate("(asked) => begin(asked)", {"messages": messages, **options})

    async def next(self) -> dict[str, Any]:
        return await self.page.evaluate("next()")

    async def chunks(self) -> list[dict[str, Any]]:
        """All that are left of a stream."""
        left: list[dict[str, Any]] = []
        while not (step := await self.next())["done"]:
            left.append(step["value"])
        return left


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def elsewhere(browser: Browser) -> AsyncIterator[str]:
    """The origin of the front end."""
    if not BUILD.exists():
        leave_out(f"there is no {BUILD}")
    async with listening(Starlette(routes=[Route("/", _front_end), Route("/client.js", _client)])) as port:
        yield f"http://127.0.0.1:{port}"


async def meet(visitor: Visitor, elsewhere: str, site: str, *given: Any) -> Front:
    """The front end of a site, with further arguments of the client."""
    visitor.hosts.add(site.removeprefix("http://"))
    page = await visitor.visit(elsewhere)
    front = Front(page)
    session = await page.context.new_cdp_session(page)
    session.on("Network.requestWillBeSent", front.sent)
    await session.send("Network.enable")
    await page.evaluate("(given) => meet(...given)", [f"{site}/chat", *given])
    return front


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(each["delta"].get("content", "") for each in chunks)


@requirement("chat:client:browser")
async def test_the_client_gets_completions_whole_and_streamed(town: Town, visitor: Visitor, elsewhere: str) -> None:
    front = await meet(visitor, elsewhere, town.base)
    question = user("Which soup has lemon and barley?")

    completion = await front.complete(question)
    assert await front.begin(question) is None
    chunks = await front.chunks()

    assert f"[{town.base}/items/{SOUP}]" in completion["message"]["content"]
    assert text_of(chunks) == completion["message"]["content"]
    assert chunks[0]["context"]["data_points"] == completion["context"]["data_points"]
    assert chunks[-1]["context"]["followup_questions"] == completion["context"]["followup_questions"]
    assert front.questions == 2
    assert front.preflights == ["content-type,x-ms-useragent"] * 2  # one for each address


@dataclass
class Paced:
    """An answer whose pieces are said when a test says so."""

    pieces: asyncio.Queue[Event]

    async def __call__(self, _: Ask, __: Caller) -> AsyncIterator[Event]:
        for event in BEGINNING:
            yield event
        while not isinstance(event := await self.pieces.get(), EndEvent):
            yield event
        yield event


async def test_the_client_is_given_each_chunk_as_it_comes(town: Town, visitor: Visitor, elsewhere: str) -> None:
    pieces = asyncio.Queue[Event]()
    async with listening(scripted(town.parts, Paced(pieces))) as port:
        front = await meet(visitor, elsewhere, f"http://127.0.0.1:{port}")
        pieces.put_nowait(TextEvent("Soup"))
        await front.begin(user("soup"))
        first = (await front.next())["value"]
        assert (first["delta"], first["context"]["portico"]["items"][0]["name"]) == ({"role": "assistant"}, "Soup")

        assert (await front.next())["value"] == {"delta": {"content": "Soup"}}
        pieces.put_nowait(TextEvent(" is warm."))
        assert (await front.next())["value"] == {"delta": {"content": " is warm."}}
        pieces.put_nowait(EndEvent(1))
        assert text_of(await front.chunks()) == ""
        await visitor.leave(front.page)


@requirement("chat:client:browser")
async def test_the_client_throws_what_went_wrong_and_does_not_ask_again(
    town: Town, visitor: Visitor, elsewhere: str
) -> None:
    front = await meet(visitor, elsewhere, town.base)
    refused = [await front.complete(user(" ")), await front.begin(user(" "))]

    assert [each and each["thrown"].startswith("The last message is empty") for each in refused] == [True, True]
    assert front.questions == 2
    await visitor.pardon("the server responded with a status of 400", times=2)  # says the browser


async def test_the_client_sends_a_key_and_hears_that_it_is_wrong(town: Town, visitor: Visitor, elsewhere: str) -> None:
    front = await meet(
        visitor, elsewhere, town.base, {"key": "wrong"}, {"credentials": {"apiKeyHeaderName": "api-key"}}
    )
    denied = await front.complete(user("soup"))

    assert denied["thrown"].startswith("The API key is not valid")
    assert front.preflights == ["api-key,content-type,x-ms-useragent"]
    await visitor.pardon("the server responded with a status of 401")


async def test_the_client_throws_what_goes_wrong_on_the_way(town: Town, visitor: Visitor, elsewhere: str) -> None:
    told = telling(*BEGINNING, TextEvent("Soup is"), ErrorEvent(UnknownItem("That is gone")))
    async with listening(scripted(town.parts, told)) as port:
        front = await meet(visitor, elsewhere, f"http://127.0.0.1:{port}")
        await front.begin(user("soup"))
        heard = [await front.next() for _ in range(3)]

        assert text_of([each["value"] for each in heard[:2]]) == "Soup is"
        assert heard[2]["thrown"] == "That is gone"
        await visitor.leave(front.page)


@requirement("chat:client:browser")
async def test_the_client_continues_a_conversation_by_its_session(town: Town, visitor: Visitor, elsewhere: str) -> None:
    front = await meet(visitor, elsewhere, town.base)
    completion = await front.complete(user("lemon barley soup"), sessionState=SESSION)
    await front.begin(user("with chicken"), sessionState=SESSION)
    [first, *_] = await front.chunks()

    own = first["context"]["portico"]
    assert (completion["sessionState"], first["sessionState"]) == (SESSION, SESSION)
    assert own["conversation"]["turn"] == 2
    assert own["items"][0]["name"] == "Lemon and Barley Soup with Chicken"


@requirement("chat:client:browser")
async def test_the_client_sends_files(town: Town, visitor: Visitor, elsewhere: str) -> None:
    front = await meet(visitor, elsewhere, town.base)
    files = [
        {"kind": "Blob", "contentType": "text/plain", "text": NOTE},
        {"kind": "File", "contentType": "text/markdown", "text": "# Nets\n\nMend them.", "name": "nets.md"},
        {"kind": "Uint8Array", "contentType": "text/plain", "text": "The blue boat leaks."},
    ]
    question = user("Where does the spare key of the boathouse hang?", files=files)

    completion = await front.complete(question)
    await front.begin(question)
    chunks = await front.chunks()

    points = completion["context"]["data_points"]["text"][:3]
    assert [each.partition(": ")[2] for each in points] == [NOTE, "The blue boat leaks.", "Nets. Mend them."]
    assert completion["message"]["content"].startswith(f"{NOTE} [file-1.txt]")
    assert text_of(chunks) == completion["message"]["content"]


async def test_the_client_stops_an_answer_and_its_work(town: Town, visitor: Visitor, elsewhere: str) -> None:
    endless = Endless((*BEGINNING, TextEvent("Soup is")))
    async with listening(scripted(town.parts, endless)) as port:
        front = await meet(visitor, elsewhere, f"http://127.0.0.1:{port}")
        await front.begin(user("soup"))
        heard = [(await front.next())["value"] for _ in range(2)]
        await front.page.evaluate("stop()")

        assert text_of(heard) == "Soup is"
        assert await front.next() == {"thrown": "AbortError"}
        await soon(endless.stopped)
        await visitor.leave(front.page)


async def test_the_client_gets_nothing_where_its_page_may_not_ask(town: Town, visitor: Visitor, elsewhere: str) -> None:
    server = msgspec.structs.replace(town.parts.config.server, origins=("http://shop.example",))
    config = msgspec.structs.replace(town.parts.config, server=server)
    async with listening(replace(town.parts, config=config)) as port:
        front = await meet(visitor, elsewhere, f"http://127.0.0.1:{port}", {"retryOptions": {"maxRetries": 0}})

        assert await front.complete(user("soup")) == {"thrown": "RestError"}
        assert len(front.preflights) == 1
        await visitor.pardon("has been blocked by CORS policy")
        await visitor.pardon("net::ERR_FAILED", times=2)  # from the page, and from the network
        await visitor.leave(front.page)
