"""The client, sync and async, against a server that says what each test wants it to say."""

import ast
import inspect
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico import client
from portico.client import (
    Answer,
    AskFailed,
    AsyncClient,
    BadAnswer,
    Client,
    Completed,
    Constraint,
    Elicitation,
    Event,
    Item,
    ItemFound,
    NotReached,
    Promise,
    Question,
    Session,
    Started,
    Summary,
    Understood,
)
from portico.client.client import MAX_FAILED_CHECKS
from portico.client.sse import SseDecoder

SOUP = {
    "@type": ["Recipe", "Thing"],
    "@id": "recipes/soup",
    "url": "https://site.example/soup",
    "name": "Lemon soup",
    "score": 91.5,
    "description": "Sour and warm.",
    "actions": [{"name": "cook", "description": "Cook it.", "protocol": "HTTP", "endpoint": "/operations/cook"}],
}
CAKE = {"@type": "Recipe", "@id": "recipes/cake", "headline": "Lemon cake", "score": 70}
PROSE = {"@type": "SearchSummary", "text": "Both are sour."}
SESSION = {"conversation_id": "c1", "state_token": "opaque"}


def meta(kind: str = "answer", **more: Any) -> dict[str, Any]:
    return {"_meta": {"response_type": kind, "version": "0.55", **more}}


def elicited(**more: Any) -> dict[str, Any]:
    question = {"id": "diet", "text": "Which diet?", "type": "single_select", "options": ["vegan", "any"]}
    return {**meta("elicitation", **more), "elicitation": {"text": "Say more.", "questions": [question]}}


def promised(progress: float, **more: Any) -> dict[str, Any]:
    said = {"token": "p1", "estimated_time": 30, "message": "Thinking", "progress": progress}
    return {**meta("promise", **more), "promise": said}


def failed(code: str, message: str = "") -> dict[str, Any]:
    return {**meta("failure"), "error": {"code": code, "message": message}}


def frames(*events: tuple[str, Any]) -> bytes:
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events).encode()


class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in pieces that knows how far it was read, and whether it was closed."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.read = 0
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.read += 1
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


@dataclass
class Server:
    """Gives its answers one after another, the last one again and again, and remembers what it was asked."""

    answers: list[httpx.Response | Exception] = field(default_factory=list)
    asked: list[httpx.Request] = field(default_factory=list)

    def says(self, *answers: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.answers = [
            each if isinstance(each, httpx.Response | Exception) else httpx.Response(status, json=each, headers=headers)
            for each in answers
        ]

    def streams(self, *events: tuple[str, Any]) -> Chunks:
        return self.sends([frames(event) for event in events])

    def sends(self, pieces: Sequence[bytes]) -> Chunks:
        body = Chunks(pieces)
        self.answers = [httpx.Response(200, stream=body, headers={"content-type": "text/event-stream; charset=utf-8"})]
        return body

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(each.content) for each in self.asked]


@dataclass
class Either:
    """One of the two clients or conversations, used in one way."""

    inner: Any

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            result = getattr(self.inner, name)(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return call

    def conversation(self) -> "Either":
        return Either(self.inner.conversation())

    async def events(self, *args: Any, most: int = 100, by: str = "stream", **kwargs: Any) -> list[Event]:
        """The first events of a stream, which is closed then."""
        stream = getattr(self.inner, by)(*args, **kwargs)
        found: list[Event] = []
        if inspect.isasyncgen(stream):
            async for event in stream:
                found.append(event)
                if len(found) == most:
                    await stream.aclose()
        else:
            for event in stream:
                found.append(event)
                if len(found) == most:
                    stream.close()
        return found


@pytest.fixture
def server() -> Server:
    return Server()


Opening = Callable[..., Either]


@pytest.fixture(params=(Client, AsyncClient))
async def opening(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Opening]:
    opened: list[Either] = []

    def opening(url: str = "https://site.example", **options: Any) -> Either:
        opened.append(Either(request.param(url, transport=httpx.MockTransport(server), **options)))
        return opened[-1]

    yield opening
    for each in opened:
        await each.close()


@pytest.fixture
def site(opening: Opening) -> Either:
    return opening()


# Requests


async def test_a_question_alone_asks_for_a_list(site: Either, server: Server) -> None:
    server.says({**meta(), "results": []})

    await site.ask("soup")

    [request] = server.asked
    assert (request.method, str(request.url)) == ("POST", "https://site.example/ask")
    assert request.headers["accept"] == "application/json"
    assert "authorization" not in request.headers
    assert server.bodies == [
        {
            "query": {"text": "soup"},
            "prefer": {"streaming": False, "response_format": "conversational_search", "mode": "list"},
            "meta": {"version": "0.55"},
        }
    ]


async def test_everything_that_can_be_said_is_sent_where_the_protocol_wants_it(
    opening: Opening, server: Server
) -> None:
    server.says({**meta(), "results": []})

    await opening("https://site.example/town/", api_key="pk_1").ask(
        "soup",
        site="recipes",
        filters={"price": "less than 20", "text": "never in place of the question"},
        previous=["cake"],
        memory="vegetarian",
        context={"@type": "Diet", "restrictions": ["nuts"]},
        answers={"diet": "vegan"},
        modes=("list", "summarize"),
        language="de",
        limit=3,
        session=Session(SESSION),
    )

    [request] = server.asked
    assert str(request.url) == "https://site.example/town/ask"
    assert request.headers["authorization"] == "Bearer pk_1"
    assert server.bodies == [
        {
            "query": {"price": "less than 20", "text": "soup", "site": "recipes", "limit": 3},
            "context": {
                "@type": "Diet",
                "restrictions": ["nuts"],
                "prev": ["cake"],
                "memory": "vegetarian",
                "answers": {"diet": "vegan"},
            },
            "prefer": {
                "streaming": False,
                "response_format": "conversational_search",
                "mode": "list, summarize",
                "accept-language": "de",
            },
            "meta": {"version": "0.55", "session_context": SESSION},
        }
    ]


# Responses


async def test_an_answer_is_read_whole(site: Either, server: Server) -> None:
    understood = {
        "collections": ["recipes"],
        "constraints": [{"field": "taste", "says": "taste is sour", "words": "lemon"}],
    }
    told = meta(
        understood=understood,
        decontextualized_query="lemon soup",
        ignored=["colour"],
        notes=["Ranked by words alone"],
        cost={"calls": 1},
        session_context=SESSION,
    )
    server.says({**told, "results": [PROSE, SOUP, CAKE]})

    answer = await site.ask("that soup")

    assert answer == Answer(
        (Item(SOUP), Item(CAKE)),
        "Both are sour.",
        Understood("lemon soup", ("recipes",), (Constraint("taste", "taste is sour", "lemon"),), ("colour",)),
        ("Ranked by words alone",),
        {"calls": 1},
        Session(SESSION),
    )
    soup, cake = answer.items
    assert (soup.id, soup.type, soup.name, soup.url) == (
        "recipes/soup",
        "Recipe",
        "Lemon soup",
        "https://site.example/soup",
    )
    assert (soup.score, soup.description) == (91.5, "Sour and warm.")
    assert [(a.name, a.description, a.protocol) for a in soup.actions] == [("cook", "Cook it.", "HTTP")]
    assert soup.actions[0].data["endpoint"] == "/operations/cook"
    assert (cake.name, cake.url, cake.description, cake.actions) == ("Lemon cake", "", "", ())


def test_an_item_that_says_nonsense_reads_as_an_item_that_says_nothing() -> None:
    item = Item({"@id": 7, "@type": {}, "name": ["x"], "score": True, "url": None, "actions": "none"})

    assert (item.id, item.type, item.name, item.score, item.url, item.actions) == ("", "", "", None, "", ())


async def test_an_answer_without_extensions_is_an_answer(site: Either, server: Server) -> None:
    server.says({**meta(understood="x", notes=3, cost=[], session_context="c"), "results": [CAKE]})

    assert await site.ask("cake") == Answer((Item(CAKE),))


async def test_nothing_found_is_an_answer_without_items(site: Either, server: Server) -> None:
    server.says(failed("NO_RESULTS", "Nothing fits."))

    assert await site.ask("recipes from Mars") == Answer(())


async def test_a_question_that_is_asked_back_comes_with_its_session(site: Either, server: Server) -> None:
    server.says(elicited(session_context=SESSION))

    assert await site.ask("dinner") == Elicitation(
        "Say more.", (Question("diet", "Which diet?", "single_select", ("vegan", "any")),), Session(SESSION)
    )


async def test_a_promise_says_how_far_it_is(site: Either, server: Server) -> None:
    server.says(promised(0.1), status=202)

    assert await site.ask("a plan") == Promise("p1", 30, "Thinking", 0.1)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, failed("TIMEOUT", "Too slow."), ("TIMEOUT", "Too slow.", 200, None)),
        (400, failed("INVALID_QUERY", "No text."), ("INVALID_QUERY", "No text.", 400, None)),
        (429, failed("RATE_LIMITED", "Wait."), ("RATE_LIMITED", "Wait.", 429, 7.0)),
        (502, {"detail": "?"}, ("HTTP_502", "The server answered with status 502", 502, 7.0)),
    ],
)
async def test_a_failure_is_raised_with_its_code(
    site: Either, server: Server, status: int, body: Any, expected: tuple[Any, ...]
) -> None:
    server.says(body, status=status, headers={"retry-after": "7"} if status in {429, 502} else None)

    with pytest.raises(AskFailed) as failure:
        await site.ask("soup")

    told = failure.value
    assert (told.code, told.message, told.status, told.retry_after) == expected


async def test_a_page_of_a_proxy_is_a_failure_with_its_status(site: Either, server: Server) -> None:
    server.says(httpx.Response(503, text="<html>Down</html>"))

    with pytest.raises(AskFailed) as failure:
        await site.ask("soup")

    assert (failure.value.code, failure.value.status) == ("HTTP_503", 503)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"[]",
        b"{",
        b'{"_meta": {}}',
        b'{"_meta": {"response_type": "promise"}}',
        b'{"_meta": "\xff"}',
        b'{"_meta":' * 100_000,
    ],
)
async def test_what_is_not_nlweb_is_no_answer(site: Either, server: Server, raw: bytes) -> None:
    server.says(httpx.Response(200, content=raw))

    with pytest.raises(BadAnswer, match="is not NLWeb"):
        await site.ask("soup")


async def test_a_redirect_is_not_followed_so_that_the_key_goes_nowhere_else(opening: Opening, server: Server) -> None:
    server.says(httpx.Response(307, headers={"location": "https://elsewhere.example/ask"}))

    with pytest.raises(BadAnswer, match="redirects are not followed"):
        await opening(api_key="pk_1").ask("soup")

    assert [each.url.host for each in server.asked] == ["site.example"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    opening: Opening, server: Server, streamed: bool
) -> None:
    body = Chunks([b" " * 1000] * 50)
    kind = "text/event-stream" if streamed else "application/json"
    server.says(httpx.Response(200, stream=body, headers={"content-type": kind}))
    site = opening(largest=2500)

    with pytest.raises(BadAnswer, match="too large"):
        await (site.events("soup") if streamed else site.ask("soup"))

    assert (body.read, body.closed) == (3, True)


async def test_a_server_that_cannot_be_reached_is_said_so(site: Either, server: Server) -> None:
    server.says(httpx.ConnectError("refused"))

    with pytest.raises(NotReached, match="refused"):
        await site.ask("soup")
    with pytest.raises(NotReached, match="refused"):
        await site.events("soup")


# Streams


async def test_events_come_in_the_order_they_were_sent_and_the_answer_in_its_own(site: Either, server: Server) -> None:
    server.streams(
        ("start", meta(streaming=True, decontextualized_query="lemon dishes")),
        ("result", {"index": 2, "item": CAKE}),
        ("novelty", "of a later version"),
        ("result", {"index": 1, "item": SOUP}),
        ("result", {"index": 0, "item": PROSE}),
        ("complete", meta(session_context=SESSION, notes=["done"])),
    )

    events = await site.events("lemon", modes=("list", "summarize"))

    understood = Understood("lemon dishes")
    assert events == [
        Started(understood),
        ItemFound(2, Item(CAKE)),
        ItemFound(1, Item(SOUP)),
        Summary("Both are sour."),
        Completed(
            Answer((Item(SOUP), Item(CAKE)), "Both are sour.", understood, ("done",), session=Session(SESSION)),
        ),
    ]
    assert server.asked[0].headers["accept"] == "text/event-stream"
    assert server.bodies[0]["prefer"]["streaming"] is True


async def test_a_stream_ends_with_what_is_asked_back_or_promised(site: Either, server: Server) -> None:
    server.streams(("start", elicited()), ("complete", elicited(session_context=SESSION)))
    [started, asked] = await site.events("dinner")
    assert (started, asked.questions[0].id, asked.session) == (Started(Understood()), "diet", Session(SESSION))

    server.streams(("start", promised(0)), ("complete", meta("promise", session_context=SESSION)))
    [_, promise] = await site.events("a plan")
    assert promise == Promise("p1", 30, "Thinking", 0, Session(SESSION))


async def test_nothing_found_in_a_stream_is_an_answer_without_items(site: Either, server: Server) -> None:
    server.streams(("start", meta()), ("error", failed("NO_RESULTS")), ("complete", meta("failure")))

    assert (await site.events("Mars"))[-1] == Completed(Answer(()))


async def test_a_stream_that_fails_raises_once_it_is_over(site: Either, server: Server) -> None:
    server.streams(
        ("start", meta()),
        ("result", {"index": 0, "item": SOUP}),
        ("error", failed("INTERNAL_ERROR", "Broke.")),
        ("complete", meta("failure")),
    )
    with pytest.raises(AskFailed, match="Broke") as failure:
        await site.events("soup")
    assert failure.value.code == "INTERNAL_ERROR"


async def test_an_error_that_the_stream_survives_is_told_with_the_answer(site: Either, server: Server) -> None:
    server.streams(
        ("start", meta()),
        ("error", failed("TIMEOUT", "No summary.")),
        ("result", {"index": 0, "item": SOUP}),
        ("complete", meta()),
    )

    answer = (await site.events("soup"))[-1].answer

    assert answer.items == (Item(SOUP),)
    assert [(each.code, each.message) for each in answer.troubles] == [("TIMEOUT", "No summary.")]


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([], NotReached),
        ([("start", meta()), ("result", {"index": 0, "item": SOUP})], NotReached),
        ([("start", meta()), ("error", failed("INTERNAL_ERROR"))], AskFailed),
    ],
)
async def test_a_stream_that_breaks_off_is_no_answer(
    site: Either, server: Server, events: list[Any], error: type[Exception]
) -> None:
    server.streams(*events)

    with pytest.raises(error):
        await site.events("soup")


async def test_a_server_that_does_not_stream_is_heard_all_the_same(site: Either, server: Server) -> None:
    server.says({**meta(), "results": [PROSE, SOUP]})
    answer = Answer((Item(SOUP),), "Both are sour.")
    assert await site.events("soup") == [
        Started(Understood()),
        Summary("Both are sour."),
        ItemFound(0, Item(SOUP)),
        Completed(answer),
    ]

    server.says(promised(0.5), status=202)
    assert await site.events("a plan") == [Promise("p1", 30, "Thinking", 0.5)]

    server.says(failed("INVALID_QUERY", "No text."), status=400)
    with pytest.raises(AskFailed, match="No text"):
        await site.events("")


async def test_a_server_that_streams_unasked_is_heard_all_the_same(site: Either, server: Server) -> None:
    server.streams(("start", meta()), ("result", {"index": 0, "item": SOUP}), ("complete", meta()))

    assert await site.ask("soup") == Answer((Item(SOUP),))


async def test_closing_a_stream_ends_the_exchange(site: Either, server: Server) -> None:
    body = server.streams(("start", meta()), *[("result", {"index": n, "item": SOUP}) for n in range(9)])

    events = await site.events("soup", most=2)

    assert events == [Started(Understood()), ItemFound(0, Item(SOUP))]
    assert (body.read, body.closed) == (2, True)


async def test_nothing_is_read_after_the_end_of_an_answer(site: Either, server: Server) -> None:
    body = server.streams(("start", meta()), ("complete", meta()), ("result", {"index": 0, "item": SOUP}))

    assert (await site.events("soup"))[-1] == Completed(Answer(()))
    assert (body.read, body.closed) == (2, True)


# Server-sent events


def parsed(*pieces: bytes) -> list[tuple[str, str]]:
    reader = SseDecoder()
    return [frame for piece in pieces for frame in reader.feed(piece)]


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"event: a\ndata: 1\n\n", [("a", "1")]),
        (b"data: 1\ndata:2\ndata\n\n", [("message", "1\n2\n")]),
        (b"data:  two spaces\n\n", [("message", " two spaces")]),
        (b": comment\n\ndata: 1\nid: 7\nretry: 5\n:\n\n", [("message", "1")]),
        (b"event: lost\n\ndata: 1\n\n", [("message", "1")]),
        (b"data: 1\r\n\r\nevent: b\rdata: 2\r\r", [("message", "1"), ("b", "2")]),
        (b"\xef\xbb\xbfdata: 1\n\n", [("message", "1")]),
        ("data: grün \u2028 ✓\n\n".encode(), [("message", "grün \u2028 ✓")]),
        (b"data: \xff\n\n", [("message", "\ufffd")]),
        (b"data: unfinished\n", []),
    ],
)
def test_events_are_read_as_the_standard_says_however_they_are_cut(raw: bytes, found: list[tuple[str, str]]) -> None:
    assert parsed(raw) == found
    assert parsed(*(bytes([byte]) for byte in raw)) == found


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))), st.data())
def test_any_text_survives_any_cut(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
    raw = "".join(f"event: e{end}data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)))))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert parsed(*pieces) == [("e", text) for text in texts]


# Promises


async def test_a_promise_is_looked_at_until_it_is_kept(site: Either, server: Server) -> None:
    server.says(promised(0.2), promised(0.8), {**meta(), "results": [SOUP]})
    told: list[float | None] = []

    answer = await site.wait(Promise("p1"), on_progress=lambda promise: told.append(promise.progress), every=0.001)

    assert answer == Answer((Item(SOUP),))
    assert told == [0.2, 0.8]
    assert [str(each.url) for each in server.asked] == ["https://site.example/await"] * 3
    assert server.bodies[0] == {"promise_token": "p1", "action": "checkin", "meta": {"version": "0.55"}}


def test_the_pauses_between_two_looks_grow_up_to_a_bound(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.says(*[promised(0.2)] * 9, {**meta(), "results": [SOUP]})
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)

    with Client("https://site.example", transport=httpx.MockTransport(server)) as site:
        site.wait(Promise("p1"))

    assert [round(pause, 2) for pause in pauses] == [0.5, 0.75, 1.12, 1.69, 2.53, 3.8, 5.7, 8.54, 10, 10]


async def test_waiting_goes_on_where_the_server_wants_it_slower(site: Either, server: Server) -> None:
    slower = httpx.Response(429, json=failed("RATE_LIMITED"), headers={"retry-after": "0"})
    server.says(slower, {**meta(), "results": [SOUP]})

    assert await site.wait(Promise("p1"), every=0.001) == Answer((Item(SOUP),))


async def test_waiting_outlives_a_server_that_is_started_anew(site: Either, server: Server) -> None:
    away = httpx.ConnectError("refused")
    server.says(away, away, promised(0.4), away, {**meta(), "results": [SOUP]})

    assert await site.wait(Promise("p1"), every=0.001) == Answer((Item(SOUP),))


async def test_waiting_ends_when_the_server_stays_away(site: Either, server: Server) -> None:
    server.says(httpx.ConnectError("refused"))

    with pytest.raises(NotReached):
        await site.wait(Promise("p1"), every=0.0001)
    assert len(server.asked) == MAX_FAILED_CHECKS + 1


async def test_a_page_and_remembering_are_asked_for(site: Either, server: Server) -> None:
    server.says({**meta(), "results": [SOUP]})

    await site.ask("soup", start=10, remember=True)

    assert server.bodies[0]["meta"] == {"version": "0.55", "start_num": 10, "remember": True}


@pytest.mark.parametrize("user", ["ann", {"@type": "Person", "identifier": "ann"}])
async def test_the_user_is_named_for_whom_it_is_asked(site: Either, server: Server, user: Any) -> None:
    server.says({**meta(), "results": [SOUP]})

    await site.ask("soup", user=user)

    assert server.bodies[0]["meta"] == {"version": "0.55", "user": user}


async def test_a_promise_that_was_broken_raises_why(site: Either, server: Server) -> None:
    server.says(failed("CANCELLED", "It was cancelled."))

    for look in (site.wait(Promise("p1"), every=0.001), site.check("p1")):
        with pytest.raises(AskFailed) as failure:
            await look
        assert failure.value.code == "CANCELLED"


async def test_a_promise_is_checked_and_cancelled_by_itself_or_by_its_token(site: Either, server: Server) -> None:
    server.says(promised(0.4), failed("CANCELLED"), {**meta(), "results": [SOUP]})

    assert await site.check(Promise("p1")) == Promise("p1", 30, "Thinking", 0.4)
    assert await site.cancel("p1") is None
    assert await site.cancel(Promise("p1")) == Answer((Item(SOUP),))
    assert [each["action"] for each in server.bodies] == ["checkin", "cancel", "cancel"]


async def test_a_cancellation_that_fails_says_so(site: Either, server: Server) -> None:
    server.says(failed("UNKNOWN_PROMISE", "There is no such promise."))

    with pytest.raises(AskFailed, match="no such promise"):
        await site.cancel("p2")


# Conversations


async def test_a_conversation_sends_along_what_was_asked_and_what_the_server_wants_back(
    site: Either, server: Server
) -> None:
    talk = site.conversation()
    server.says({**meta(session_context={"n": 1}), "results": [SOUP]})
    await talk.ask("soup", limit=3)
    server.streams(("start", meta()), ("complete", meta(session_context={"n": 2})))
    await talk.events("with lemon")
    server.says({**meta(), "results": []})
    await talk.ask("and cake")

    first, second, third = server.bodies
    assert ("context" in first, first["meta"]) == (False, {"version": "0.55"})
    assert (second["context"], second["meta"]["session_context"]) == ({"prev": ["soup"]}, {"n": 1})
    assert "limit" not in second["query"]
    assert (third["context"], third["meta"]["session_context"]) == ({"prev": ["soup", "with lemon"]}, {"n": 2})


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_to_what_was_asked_back_repeats_the_question(
    site: Either, server: Server, streamed: bool
) -> None:
    talk = site.conversation()
    server.says(elicited(session_context={"n": 1}), elicited(session_context={"n": 2}), {**meta(), "results": []})

    await talk.ask("soup", limit=3)
    for answers in ({"diet": "vegan"}, {"time": 20}):
        asked = Elicitation(session=Session({"n": len(server.asked)}))
        await (talk.events(asked, answers, by="stream_answer") if streamed else talk.answer(asked, answers))
    await talk.ask("cake")

    _, second, third, fourth = server.bodies
    assert second["query"] == third["query"] == {"text": "soup", "limit": 3}
    assert (second["context"], second["meta"]["session_context"]) == ({"answers": {"diet": "vegan"}}, {"n": 1})
    assert third["context"] == {"answers": {"diet": "vegan", "time": 20}}
    assert third["meta"]["session_context"] == {"n": 2}
    assert fourth["context"] == {"prev": ["soup"]}


async def test_a_conversation_can_go_on_from_another(site: Either, server: Server) -> None:
    talk = site.conversation()
    server.says({**meta(), "results": []})

    await talk.ask("soup", previous=["dinner"], session=Session({"n": 7}))
    await talk.ask("with lemon")

    first, second = server.bodies
    assert (first["context"], first["meta"]["session_context"]) == ({"prev": ["dinner"]}, {"n": 7})
    assert second["context"] == {"prev": ["dinner", "soup"]}


async def test_a_long_conversation_sends_its_end(site: Either, server: Server) -> None:
    talk = site.conversation()
    server.says({**meta(), "results": []})

    for number in range(15):
        await talk.ask(f"question {number}")

    assert server.bodies[-1]["context"]["prev"] == [f"question {number}" for number in range(4, 14)]


# Alone


def test_the_client_needs_nothing_of_the_server() -> None:
    package = Path(client.__file__).parent
    files = [*package.glob("*.py"), package / "transports" / "__init__.py", package / "transports" / "http.py"]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    imported = {
        name
        for node in nodes
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if not name.startswith("portico.client")
    }
    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"httpx", "msgspec"}


def test_a_client_is_closed_at_the_end_of_its_block(server: Server) -> None:
    with Client("https://site.example", transport=httpx.MockTransport(server)) as site:
        pass

    with pytest.raises(RuntimeError, match="closed"):
        site.ask("soup")


async def test_an_async_client_is_closed_at_the_end_of_its_block(server: Server) -> None:
    async with AsyncClient("https://site.example", transport=httpx.MockTransport(server)) as site:
        pass

    with pytest.raises(RuntimeError, match="closed"):
        await site.ask("soup")
