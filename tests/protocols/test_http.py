"""What faces share: bodies, JSON, streams, pages elsewhere."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message
from tests.conformance.requirements import requirement
from tests.protocols.conftest import frames_of, listening, soon

from portico.access.limits import Limits
from portico.errors import BadRequest, TooLarge, Unavailable
from portico.protocols import protocols
from portico.protocols.http import Cors, EventStream, decode, is_allowed, read_body, sse, start_stream, while_connected

LIMITS = Limits(depth=4)


# Bodies


def measuring(limit: int) -> Starlette:
    async def measure(request: Request) -> Response:
        try:
            return Response(str(len(await read_body(request, limit))))
        except TooLarge as error:
            return Response(error.message, 400)

    return Starlette(routes=[Route("/", measure, methods=["POST"])])


def local(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inn.example")


async def test_a_body_up_to_the_limit_is_read_and_one_byte_more_is_refused() -> None:
    async with local(measuring(10)) as client:
        assert (await client.post("/", content=b"x" * 10)).text == "10"
        refused = await client.post("/", content=b"x" * 11)

    assert (refused.status_code, refused.text) == (400, "The request has more than 10 bytes")


async def test_a_body_that_does_not_say_its_length_is_read_only_as_far_as_the_limit() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 4

    async with local(measuring(10)) as client:
        refused = await client.post("/", content=endless())

    assert refused.status_code == 400
    assert sent == 3


# JSON


def test_json_is_decoded_and_the_last_of_two_equal_names_counts() -> None:
    assert decode(b' {"a": 1, "a": [true, null, "\xc3\xa9"]} ', LIMITS) == {"a": [True, None, "é"]}
    assert decode('{"a": 1}', LIMITS) == {"a": 1}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "The request is empty. Send a JSON object."),
        (b" \n ", "The request is empty. Send a JSON object."),
        (b'{"a": ', "The request is not JSON: "),
        (b'{"a": nan}', "The request is not JSON: "),
        (b"NaN", "The request is not JSON: "),
        (b'{"a": 1e999}', "The request is not JSON: "),
        (b'{"a": "\xff"}', "The request is not UTF-8: "),
        (b'{"a": "\\ud800 "}', "The request is not JSON: "),
        (b"[" * 100_000, "The request is nested too deeply"),
        (b'{"a": [[[[1]]]]}', "The request is nested too deeply at a[][][]"),
        (b'{"a": 1' + b"0" * 309 + b"}", "A number is too large at a"),
    ],
)
def test_what_is_not_good_json_is_refused_with_its_reason(raw: bytes, said: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        decode(raw, LIMITS)

    assert str(refusal.value).startswith(said)


def test_json_may_be_as_deep_as_the_limit() -> None:
    assert decode(b'{"a": [[[1]]]}', LIMITS) == {"a": [[[1]]]}


# Beginning


async def counting(upto: int, closed: asyncio.Event) -> AsyncGenerator[int]:
    try:
        for number in range(upto):
            yield number
    finally:
        closed.set()


async def test_what_has_begun_goes_on_with_the_first_event() -> None:
    assert [each async for each in await start_stream(counting(3, asyncio.Event()))] == [0, 1, 2]
    assert [each async for each in await start_stream(counting(0, asyncio.Event()))] == []


async def test_an_error_before_the_first_event_is_raised_at_the_beginning() -> None:
    async def failing() -> AsyncIterator[int]:
        raise Unavailable("The sea is rough")
        yield 1

    with pytest.raises(Unavailable):
        await start_stream(failing())


async def test_closing_what_has_begun_ends_the_work_though_nothing_was_read() -> None:
    closed = asyncio.Event()
    begun = await start_stream(counting(3, closed))

    await begun.aclose()

    assert closed.is_set()


async def test_work_is_cancelled_when_the_client_leaves() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def wait(request: Request) -> Response:
        await while_connected(request.receive, work())
        return Response()

    async with listening(Starlette(routes=[Route("/", wait)])) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: inn\r\n\r\n")
        await writer.drain()
        await soon(begun)
        writer.close()
        await soon(cancelled)


# Streams


def streaming(
    frames: AsyncGenerator[bytes], broken: Iterator[bytes] | tuple[bytes, ...] = (), **settings: float
) -> ASGIApp:
    async def stream(_: Request) -> EventStream:
        return EventStream(frames, broken, **settings)

    return Starlette(routes=[Route("/", stream)])


async def two() -> AsyncGenerator[bytes]:
    yield sse({"n": 1}, "first")
    yield sse({"n": 2, "text": "a\nb"})


@requirement("nlweb:stream:headers", "nlweb:note:stream-unbuffered")
async def test_a_stream_sends_its_frames_and_tells_proxies_to_pass_them_on() -> None:
    async with local(streaming(two())) as client:
        answer = await client.get("/")

    assert answer.text == 'event: first\ndata: {"n":1}\n\ndata: {"n":2,"text":"a\\nb"}\n\n'
    assert dict(answer.headers) == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }


@requirement("nlweb:note:stream-unbuffered")
async def test_an_idle_stream_shows_that_it_lives() -> None:
    async def slow() -> AsyncGenerator[bytes]:
        await waited.wait()
        yield sse({"n": 1})

    waited = asyncio.Event()
    text = b""
    async with (
        listening(streaming(slow(), heartbeat=0.01)) as port,
        httpx.AsyncClient() as client,
        client.stream("GET", f"http://127.0.0.1:{port}/") as answer,
    ):
        async for chunk in answer.aiter_bytes():
            text += chunk
            if text.count(b": waiting\n\n") >= 3:
                waited.set()

    assert text.startswith(b": waiting\n\n: waiting\n\n: waiting\n\n")
    assert frames_of(text.decode()) == [("", '{"n":1}')]


async def endless(closed: asyncio.Event, frame: bytes) -> AsyncGenerator[bytes]:
    try:
        while True:
            yield frame
            await asyncio.sleep(0)
    finally:
        closed.set()


async def test_a_stream_ends_when_the_client_leaves() -> None:
    closed = asyncio.Event()

    async def waiting() -> AsyncGenerator[bytes]:
        try:
            yield sse({"n": 1})
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with listening(streaming(waiting())) as port, httpx.AsyncClient() as client:
        async with client.stream("GET", f"http://127.0.0.1:{port}/") as answer:
            await anext(answer.aiter_bytes())
            assert not closed.is_set()
        await soon(closed)


async def test_a_client_that_left_before_the_first_frame_ends_the_work_too() -> None:
    closed = asyncio.Event()
    begun = await start_stream(counting(3, closed))

    async def frames() -> AsyncGenerator[bytes]:
        async for number in begun:
            yield sse({"n": number})

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def unheard(_: Message) -> None:
        await asyncio.Event().wait()

    await EventStream(frames(), work=begun)({"type": "http"}, gone, unheard)

    assert closed.is_set()


async def test_a_client_that_does_not_read_is_given_up() -> None:
    closed = asyncio.Event()
    frames = endless(closed, sse({"text": "x" * 100_000}))
    async with listening(streaming(frames, patience=0.2)) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: inn\r\n\r\n")
            await soon(closed)


async def test_a_stream_that_breaks_ends_with_its_last_words_and_the_error_goes_on() -> None:
    async def breaking() -> AsyncGenerator[bytes]:
        yield sse({"n": 1})
        raise ZeroDivisionError

    seen: list[Exception] = []

    async def noted(_: Request, error: Exception) -> Response:
        seen.append(error)
        return Response()

    async def stream(_: Request) -> EventStream:
        return EventStream(breaking(), [sse({"sorry": True})])

    app = Starlette(routes=[Route("/", stream)], exception_handlers={Exception: noted})
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://inn.example") as client:
        answer = await client.get("/")

    assert frames_of(answer.text) == [("", '{"n":1}'), ("", '{"sorry":true}')]
    assert [type(each) for each in seen] == [ZeroDivisionError]


# Pages elsewhere


@pytest.mark.parametrize(
    ("origin", "pattern", "allowed"),
    [
        ("https://shop.example", "https://shop.example", True),
        ("https://shop.example", "*", True),
        ("http://localhost:5173", "http://localhost:*", True),
        ("http://localhost", "http://localhost:*", True),
        ("http://localhost:5173.evil.example", "http://localhost:*", False),
        ("http://localhost.evil.example:80", "http://localhost:*", False),
        ("https://shop.example.evil.example", "https://shop.example", False),
        ("https://shop.example:8443", "https://shop.example", False),
        ("http://shop.example", "https://shop.example", False),
        ("null", "https://shop.example", False),
    ],
)
def test_an_origin_is_allowed_exactly_or_on_any_port(origin: str, pattern: str, allowed: bool) -> None:
    assert is_allowed(origin, ["https://other.example", pattern]) is allowed


def behind_cors(*origins: str) -> httpx.AsyncClient:
    async def greet(_: Request) -> Response:
        return Response("hello", headers={"vary": "Accept"})

    return local(Cors(Starlette(routes=[Route("/", greet)]), origins, protocols()))


PREFLIGHT = {"origin": "https://shop.example", "access-control-request-method": "POST"}


@requirement("nlweb54:client:cors")
async def test_a_preflight_of_an_allowed_page_says_what_it_may_send() -> None:
    async with behind_cors("https://shop.example") as client:
        answer = await client.options("/", headers=PREFLIGHT)

    assert answer.status_code == 204
    headers = dict(answer.headers)
    lists = {name: headers.pop(f"access-control-{name}-headers").split(", ") for name in ("allow", "expose")}
    assert headers == {
        "access-control-allow-origin": "https://shop.example",
        "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    assert set(lists["allow"]) >= {
        "content-type",
        "authorization",
        "x-api-key",
        "api-key",
        "x-ms-useragent",
        "accept",
        "prefer",
        "idempotency-key",
        "last-event-id",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "a2a-version",
        "a2a-extensions",
        "if-none-match",
        "x-nwp-agent",
        "x-nwp-ident",
        "x-nwp-budget",
        "x-nwp-tokenizer",
        "x-nwp-depth",
        "x-nwp-encoding",
        "x-nwp-request-id",
        "x-nwp-version",
        "x-nwp-trace",
    }
    assert set(lists["expose"]) >= {
        "retry-after",
        "www-authenticate",
        "location",
        "etag",
        "mcp-session-id",
        "x-nwp-schema",
        "x-nwp-tokens",
        "x-nwp-tokens-native",
        "x-nwp-tokenizer-used",
        "x-nwp-cached",
        "x-nwp-node-type",
        "x-nwp-request-id",
        "x-nwp-rate-limit",
        "x-nwp-rate-remaining",
        "x-nwp-rate-reset",
    }
    of_protocols = [(protocol.accepted_headers, protocol.exposed_headers) for protocol in protocols()]
    assert all(set(lists["allow"]) >= set(accepted) for accepted, _ in of_protocols)
    assert all(set(lists["expose"]) >= set(exposed) for _, exposed in of_protocols)
    assert all(len(names) == len(set(names)) for names in lists.values())


@requirement("nlweb:note:cors-list")
async def test_answers_to_an_allowed_page_can_be_read_and_others_cannot() -> None:
    async with behind_cors("https://shop.example") as client:
        allowed = await client.get("/", headers={"origin": "https://shop.example"})
        other = await client.get("/", headers={"origin": "https://evil.example"})
        preflight = await client.options("/", headers={**PREFLIGHT, "origin": "https://evil.example"})

    assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
    assert "access-control-allow-credentials" not in allowed.headers
    assert allowed.headers["vary"] == other.headers["vary"] == "Accept, Origin"
    assert "access-control-allow-origin" not in other.headers
    assert (preflight.status_code, "access-control-allow-origin" in preflight.headers) == (405, False)


@requirement("nlweb:note:cors-list")
async def test_a_star_lets_every_page_read_without_credentials() -> None:
    async with behind_cors("*") as client:
        answer = await client.get("/", headers={"origin": "https://any.example"})

    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


async def test_without_origins_nothing_is_said_of_them() -> None:
    async with behind_cors() as client:
        answer = await client.get("/", headers={"origin": "https://shop.example"})

    assert answer.headers["vary"] == "Accept"
    assert not [name for name in answer.headers if name.startswith("access-control")]
