"""`portico ask`: of a site in this process, of a server elsewhere, and with a person at a terminal."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.conftest import ENVIRONMENT, SCRIPT, Portico

from portico.access.identity import local_operator
from portico.cli.conversation import InProcess, duration, facts
from portico.client import AsyncClient, Item

SECONDS = 30
SOUP = {"@type": "Recipe", "@id": "r1", "name": "Lemon soup", "score": 91.4, "totalTime": "PT1H5M", "price": 4.5}
CAKE = {"@type": "Recipe", "@id": "r2", "name": "Cake", "score": 50, "description": "Sweet."}


def meta(kind: str = "answer", **more: Any) -> dict[str, Any]:
    return {"_meta": {"response_type": kind, "version": "0.55", **more}}


def answer(*items: Any, **more: Any) -> dict[str, Any]:
    return {**meta(**more), "results": list(items)}


def elicited(*questions: dict[str, Any]) -> dict[str, Any]:
    said = {"text": "Say a little more.", "questions": list(questions)}
    return {**meta("elicitation", session_context={"state": "s1"}), "elicitation": said}


def promised(progress: float) -> dict[str, Any]:
    return {**meta("promise"), "promise": {"token": "p1", "message": "Stirring", "progress": progress}}


@dataclass
class Elsewhere:
    """An NLWeb server that says what a test wants, in turn; the last answer again and again."""

    url: str = ""
    answers: list[Any] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    def says(self, *answers: Any) -> None:
        self.answers = list(answers)

    def take(self, path: str, body: dict[str, Any], key: str | None) -> tuple[int, Any]:
        with self.news:
            self.asked.append((path, body))
            self.keys.append(key)
            self.news.notify_all()
            said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(said):
            said = said(body)
        return said if isinstance(said, tuple) else (200, said)

    def wait_for(self, path: str) -> None:
        """Until somebody has asked there."""
        with self.news:
            assert self.news.wait_for(lambda: any(each == path for each, _ in self.asked), SECONDS)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    service = Elsewhere()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, said = service.take(self.path, body, self.headers.get("Authorization"))
            raw = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        yield service
        server.shutdown()
        thread.join()


class Terminal:
    """A command on a terminal of its own, as a person sees it."""

    def __init__(self, *args: str) -> None:
        self._mine, its = pty.openpty()
        self._process = subprocess.Popen(
            [SCRIPT, *args], stdin=its, stdout=its, stderr=its, env={**ENVIRONMENT, "TERM": "dumb"}, close_fds=True
        )
        os.close(its)
        self._screen = ""  # what came after what was waited for

    def sees(self, text: str) -> None:
        """Wait until this is on the screen, after what was waited for before."""
        deadline = time.monotonic() + SECONDS
        while text not in self._screen:
            assert self._read(deadline), f"{text!r} is not in {self._screen!r}"
        self._screen = self._screen.partition(text)[2]

    def types(self, line: str) -> None:
        os.write(self._mine, f"{line}\n".encode())

    def interrupts(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ends(self) -> int:
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        return self._process.wait(SECONDS)

    def _read(self, deadline: float) -> bool:
        if not select.select([self._mine], [], [], max(deadline - time.monotonic(), 0))[0]:
            return False
        try:
            found = os.read(self._mine, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self._screen += found.decode(errors="replace").replace("\r\n", "\n")
        return bool(found)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._mine)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def opening(*args: str) -> Terminal:
        opened.append(Terminal(*args))
        return opened[-1]

    yield opening
    for each in opened:
        each.close()


# A site in this process


def test_a_question_is_answered_with_the_best_items_of_all_collections(portico: Portico, examples: Path) -> None:
    store = ("--store", "sqlite:///s.db")
    portico("load", examples / "products.jsonl", examples / "books.jsonld", *store)

    both = portico("ask", "brass reading lamp", "--json", *store).json
    one = portico("ask", "lighthouse", "--collection", "books", "--limit", "1", *store)
    unknown = portico("ask", "lamp", "--collection", "films", *store)

    assert set(both) == {"items", "summary", "understood", "notes", "cost"}
    assert both["items"][0]["id"] == "lamp-2"
    assert 0 < both["items"][0]["_score"] <= 100
    assert set(both["understood"]["collections"]) == {"products", "books"}
    assert one.out.startswith("Tidewater  https://books.example/tidewater")
    assert (unknown.code, unknown.err.splitlines()[0]) == (3, "Error: There is no collection 'films'")


def test_long_work_is_finished_before_the_command_ends(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from portico.operations import Context, operation\n"
        '@operation(danger="safe", long=True)\n'
        "async def count_sheep(context: Context) -> int:\n"
        '    "Count sheep."\n'
        "    return 3\n"
    )
    (tmp_path / "portico.toml").write_text('operations = ["own.py"]\n[search]\nembedder = "none:"\n')
    (tmp_path / "p.csv").write_text("id,name\na,Apple\n")
    portico("load", "p.csv")

    done = portico("ask", "count sheep", "--json").json

    assert [(each["name"], each["result"]) for each in done["items"]] == [("count_sheep", 3)]


def test_a_key_that_may_not_ask_is_refused(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,name\na,Apple\n")
    portico("load", "p.csv", "--store", "sqlite:///s.db")
    key = portico("keys", "create", "--name", "x", "--scope", "read:p", "--store", "sqlite:///s.db").out.strip()

    done = portico("ask", "apple", "--api-key", key, "--store", "sqlite:///s.db")

    assert (done.code, done.err.splitlines()[0]) == (4, "Error: The key 'x' has no scope ask")


def test_the_answer_is_the_same_over_every_protocol(portico: Portico, examples: Path, tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text('[search]\nembedder = "none:"\n')
    portico("load", examples / "products.jsonl")

    plain, mcp, a2a = (portico("ask", "brass lamp", "--json", "--over", over) for over in ("http", "mcp", "a2a"))

    assert "lamp-2" in [each["id"] for each in plain.json["items"]]
    assert mcp.json == a2a.json == plain.json
    assert mcp.err == a2a.err == plain.err == ""
    assert portico("ask", "lamp", "--over", "pigeon").code == 2


def test_a_protocol_that_is_not_asked_for_is_not_loaded() -> None:
    check = "import sys, portico.cli.ask; sys.exit(not {'mcp', 'a2a'}.isdisjoint(sys.modules))"

    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# A server elsewhere


def test_everything_that_was_said_is_sent_to_the_server(portico: Portico, elsewhere: Elsewhere) -> None:
    elsewhere.says(answer(SOUP))

    portico(
        *("ask", "with lemon", "--url", elsewhere.url, "--api-key", "pk_1", "--limit", "3", "--summarize"),
        *("--generate", "-c", "recipes", "-c", "books", "--prev", "dinner", "--prev", "soup", "--language", "de"),
    )

    [(path, body)] = elsewhere.asked
    assert (path, elsewhere.keys) == ("/ask", ["Bearer pk_1"])
    assert body == {
        "query": {"text": "with lemon", "site": "recipes,books", "limit": 3},
        "context": {"prev": ["dinner", "soup"]},
        "prefer": {
            "streaming": True,
            "response_format": "conversational_search",
            "mode": "list, summarize, generate",
            "accept-language": "de",
        },
        "meta": {"version": "0.55"},
    }


def test_a_proxy_of_the_environment_learns_nothing(portico: Portico, elsewhere: Elsewhere) -> None:
    elsewhere.says(answer(CAKE))
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:9")

    assert portico("ask", "cake", "--url", elsewhere.url, "--api-key", "pk_1", env=proxies).code == 0
    assert elsewhere.keys == ["Bearer pk_1"]


def test_people_see_what_was_understood_and_what_was_found(portico: Portico, elsewhere: Elsewhere) -> None:
    constraint = {"field": "totalTime", "says": "total time under 2 hours", "words": "under 2 hours"}
    action = {"name": "cook", "description": "Cook it.", "protocol": "HTTP"}
    elsewhere.says(
        answer(
            {"@type": "SearchSummary", "text": "One soup, one cake."},
            {**SOUP, "actions": [action, {**action, "protocol": "MCP"}]},
            {**CAKE, "name": "Cake \x1b[2J [red]"},
            understood={"collections": ["recipes"], "constraints": [constraint]},
            decontextualized_query="lemon dishes under 2 hours",
            ignored=["colour"],
            notes=["Ranked by words alone."],
            cost={"calls": 2, "prompt_tokens": 900},
        )
    )

    done = portico("ask", "under 2 hours", "--url", elsewhere.url)

    assert done.out.splitlines() == [
        "One soup, one cake.",
        "",
        "Lemon soup  r1  91  Recipe · 1 h 5 min · 4.50",
        "  → cook",
        "Cake �[2J [red]  r2  50  Recipe",
        "  Sweet.",
    ]
    assert done.err.splitlines() == [
        "“lemon dishes under 2 hours” · in recipes · total time under 2 hours · ignored: colour",
        "Ranked by words alone.",
        "2 calls of a language model, 900 input tokens",
    ]


def test_programs_get_everything_as_json(portico: Portico, elsewhere: Elsewhere) -> None:
    odd = {**CAKE, "name": "Cake\u202e\U000e0041"}
    elsewhere.says(answer(odd, understood={"collections": ["recipes"]}, notes=["n"], cost={"calls": 1}))

    done = portico("ask", "cake", "--json", "--url", elsewhere.url)

    assert r"Cake\u202e\udb40\udc41" in done.out
    assert done.json == {
        "items": [{"id": "r2", "@type": "Recipe", "name": odd["name"], "description": "Sweet.", "_score": 50}],
        "summary": "",
        "understood": {"text": "", "collections": ["recipes"], "constraints": [], "ignored": []},
        "notes": ["n"],
        "cost": {"calls": 1},
    }


def test_nothing_found_is_said_and_no_error(portico: Portico, elsewhere: Elsewhere) -> None:
    elsewhere.says({**meta("failure", notes=["No dish is that fast."]), "error": {"code": "NO_RESULTS"}})

    done = portico("ask", "soup", "--url", elsewhere.url)

    assert (done.code, done.out, done.err.splitlines()) == (0, "", ["No results.", "No dish is that fast."])


def test_what_is_asked_back_is_printed_where_nobody_can_answer(portico: Portico, elsewhere: Elsewhere) -> None:
    question = {"id": "diet", "text": "Which diet?", "type": "single_select", "options": ["vegan", "any"]}
    elsewhere.says(elicited(question, {"id": "note", "text": "Anything else?", "type": "free_text"}))

    done = portico("ask", "dinner", "--url", elsewhere.url)
    told = portico("ask", "dinner", "--json", "--url", elsewhere.url).json

    assert done.code == 0
    assert done.out.splitlines() == ["Say a little more.", "- Which diet? (vegan, any)", "- Anything else?"]
    assert done.err.splitlines() == ["Ask again with this information, or ask on a terminal."]
    assert told == {
        "items": [],
        "elicitation": {
            "text": "Say a little more.",
            "questions": [
                {**question, "default": None},
                {"id": "note", "text": "Anything else?", "type": "free_text", "options": [], "default": None},
            ],
        },
    }


@pytest.mark.parametrize("args", [(), ("--json",)])
def test_a_promise_is_waited_for(portico: Portico, elsewhere: Elsewhere, args: tuple[str, ...]) -> None:
    deed = {"@type": "Action", "name": "plan_day", "result": {"stops": 2}}
    elsewhere.says((202, promised(0.1)), (202, promised(0.6)), answer(deed))

    done = portico("ask", "plan a day", "--url", elsewhere.url, *args)

    assert [path for path, _ in elsewhere.asked] == ["/ask", "/await", "/await"]
    if args:
        assert done.json["items"][0]["result"] == {"stops": 2}
    else:
        assert done.out.splitlines() == ["plan_day  Action", "{", '  "stops": 2', "}"]


@pytest.mark.parametrize(
    ("said", "code", "says"),
    [
        ((400, {**meta("failure"), "error": {"code": "INVALID_QUERY", "message": "No text."}}), 2, "No text."),
        ((401, {**meta("failure"), "error": {"code": "UNAUTHENTICATED", "message": "Who?"}}), 4, "Who?"),
        ((429, {**meta("failure"), "error": {"code": "RATE_LIMITED", "message": "Slowly."}}), 4, "Slowly."),
        ((200, {**meta("failure"), "error": {"code": "TIMEOUT", "message": "Too slow."}}), 6, "Too slow."),
        ((200, {**meta("failure"), "error": {"code": "NEW_CODE", "message": "Odd."}}), 1, "Odd."),
        ((404, {}), 3, "The server answered with status 404"),
        ((200, {}), 6, "The answer is not NLWeb: its type is ''"),
    ],
)
def test_what_a_server_refuses_ends_with_a_code_that_means_it(
    portico: Portico, elsewhere: Elsewhere, said: Any, code: int, says: str
) -> None:
    elsewhere.says(said)

    done = portico("ask", "soup", "--url", elsewhere.url)

    assert (done.code, done.err.splitlines()[0]) == (code, f"Error: {says}")


def test_wrong_usage_and_a_server_that_is_not_there(portico: Portico) -> None:
    closed = portico("ask", "soup", "--url", "http://127.0.0.1:9")
    no_url = portico("ask", "soup", "--url", "shop.example")
    no_port = portico("ask", "soup", "--url", "http://shop.example:port")
    no_key = portico("ask", "soup", "--url", "http://127.0.0.1:9", "--api-key", "clé")
    nothing = portico("ask", "--url", "http://127.0.0.1:9")

    assert (closed.code, "cannot be reached" in closed.err) == (6, True)
    assert (no_url.code, "is not the address of a server" in no_url.err) == (2, True)
    assert (no_port.code, no_key.code) == (2, 2)
    assert (nothing.code, "The question is missing" in nothing.err) == (2, True)


# A person at a terminal


def test_a_person_is_asked_back_and_answers(terminal: Callable[..., Terminal], elsewhere: Elsewhere) -> None:
    elsewhere.says(
        elicited(
            {"id": "diet", "text": "Which diet?", "type": "single_select", "options": ["vegan", "any"]},
            {"id": "taste", "text": "Which tastes?", "type": "multi_select", "options": ["sour", "sweet", "hot"]},
            {"id": "people", "text": "How many eat?", "type": "number", "default": 2},
            {"id": "quick", "text": "In a hurry?", "type": "boolean"},
            {"id": "wine", "text": "Wine?", "type": "boolean"},
            {"id": "note", "text": "Anything else?", "type": "free_text"},
        ),
        answer(SOUP),
    )
    screen = terminal("ask", "dinner", "--url", elsewhere.url)

    for question, *lines in (
        ("Which diet?", "7", "vegan?", "1"),
        ("3. hot", "1, 9", "hot,1,1"),
        ("How many eat?", ""),
        ("In a hurry?", "perhaps", "Y"),
        ("Wine?", ""),
        ("Anything else?", "no nuts"),
    ):
        screen.sees(question)
        for wrong in lines[:-1]:
            screen.types(wrong)
            screen.sees(f"{wrong} is not a valid answer.")
        screen.types(lines[-1])
    screen.sees("Lemon soup  r1  91")

    assert screen.ends() == 0
    _, body = elsewhere.asked[1]
    assert body["query"]["text"] == "dinner"
    assert body["context"]["answers"] == {
        "diet": "vegan",
        "taste": ["hot", "sour"],
        "people": 2,
        "quick": True,
        "note": "no nuts",
    }
    assert body["meta"]["session_context"] == {"state": "s1"}


def test_without_a_question_a_person_asks_on_and_on(terminal: Callable[..., Terminal], elsewhere: Elsewhere) -> None:
    broken = (200, {**meta("failure"), "error": {"code": "TIMEOUT", "message": "Too slow."}})
    elsewhere.says(answer(SOUP, session_context={"n": 1}), broken, answer(CAKE))
    screen = terminal("ask", "--prev", "dinner", "--url", elsewhere.url)

    screen.sees("An empty line ends the conversation.")
    for question, sees in (("soup", "Lemon soup"), ("faster", "Too slow."), ("cake", "Sweet.")):
        screen.types(question)
        screen.sees(sees)
    screen.types("")

    assert screen.ends() == 0
    asked = [
        (body["query"]["text"], body["context"]["prev"], body["meta"].get("session_context"))
        for _, body in elsewhere.asked
    ]
    assert asked == [
        ("soup", ["dinner"], None),
        ("faster", ["dinner", "soup"], {"n": 1}),
        ("cake", ["dinner", "soup", "faster"], {"n": 1}),
    ]


def test_control_c_cancels_what_was_promised(terminal: Callable[..., Terminal], elsewhere: Elsewhere) -> None:
    def still(body: dict[str, Any]) -> dict[str, Any]:
        cancelled = {**meta("failure"), "error": {"code": "CANCELLED", "message": "Cancelled."}}
        return cancelled if body.get("action") == "cancel" else promised(0.3)

    elsewhere.says(still)
    screen = terminal("ask", "a stew", "--url", elsewhere.url)

    screen.sees("Stirring. Ctrl-C cancels it.")
    elsewhere.wait_for("/await")
    screen.interrupts()
    screen.sees("Cancelled.")

    assert screen.ends() == 130
    assert [body.get("action") for _, body in elsewhere.asked][-1] == "cancel"


# What is shown of an item


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"@type": "Thing"}, []),
        ({"@type": "Event", "startDate": "2026-12-05T19:00:00Z"}, ["Event", "2026-12-05 19:00"]),
        ({"offers": [{"price": "12", "priceCurrency": "EUR"}]}, ["12 EUR"]),
        ({"offers": {"price": 0}, "aggregateRating": {"ratingValue": 4.5}}, ["0", "★ 4.5"]),
        ({"cookTime": "soon", "duration": "P1DT2H"}, ["1 d 2 h"]),
        ({"offers": "none", "aggregateRating": [], "startDate": None}, []),
    ],
)
def test_what_helps_to_choose_is_shown(data: dict[str, Any], shown: list[str]) -> None:
    assert facts(Item(data)) == shown


@pytest.mark.parametrize(
    ("raw", "shown"), [("PT25M", "25 min"), ("PT0S", ""), ("P", ""), ("PT90M30S", "90 min"), (5, "")]
)
def test_a_duration_is_shown_as_people_say_it(raw: Any, shown: str) -> None:
    assert duration(raw) == shown


# The line into an application of this process


def over(app: Any) -> AsyncClient:
    return AsyncClient("http://site.example", transport=InProcess(app, local_operator()))


async def begin(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"event: start\ndata: {}\n\n", "more_body": True})


async def test_events_arrive_while_the_application_still_works_and_leaving_ends_it() -> None:
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append(scope["portico.caller"].id)
        told.append(json.loads((await receive())["body"])["query"]["text"])
        await begin(send)
        told.append((await receive())["type"])

    async with asyncio.timeout(SECONDS), over(app) as client:
        events = client.stream("soup")
        await anext(events)
        assert told == ["operator:operator", "soup"]
        await events.aclose()

    assert told[2:] == ["http.disconnect"]


async def test_an_application_that_breaks_is_not_waited_for() -> None:
    async def before(*_: Any) -> None:
        raise ValueError("broken")

    async def amid(_scope: Any, _receive: Any, send: Any) -> None:
        await begin(send)
        raise ValueError("broken")

    for app in (before, amid):
        async with asyncio.timeout(SECONDS), httpx.AsyncClient(transport=InProcess(app, local_operator())) as http:
            with pytest.raises(ValueError, match="broken"):
                await http.post("http://site.example/ask")
