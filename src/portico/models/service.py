"""What every language model behind a service shares: time, tries, places, and an answer read within bounds.

Knows no API; a Dialect does. Believes nothing in an answer that has not been checked, and never puts the key,
the prompt or the service's own words into an error: all of them could reach a caller.
"""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Literal, Protocol, TypeAlias, TypeVar

import httpx
import msgspec
from msgspec import Meta

from portico.errors import TimedOut, Unavailable
from portico.models.language import Prompt, Usage, tokens

Structured: TypeAlias = Literal["schema", "object", "none"]
Clock: TypeAlias = Callable[[], float]

FIRST_WAIT = 0.2
"""Seconds before the second try, doubled for each further one."""

FAILURES = 3
PAUSE = 15.0
"""After so many failures in a row a model is asked only once in so many seconds."""

MOMENT = 0.05
"""Seconds for the end of an answer that is complete: with it the connection can be used again."""

ESCAPED = 12
"""Bytes that JSON needs for one character at the most: two escapes for a surrogate pair."""

ENVELOPE = 64 * 1024
"""Bytes of a document beside its text."""

UNREADABLE = "The language model's service answers with something that its API does not describe"
BROKEN = "The language model's service reports a failure in its answer"
EMPTY = "The language model answers with nothing"

HINTS: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "The prompt may be too long, or the model may not take temperature or the limit as sent.",
    HTTPStatus.UNAUTHORIZED: "Check the key in the variable that key_env names.",
    HTTPStatus.FORBIDDEN: "Check what the key in the variable that key_env names may do.",
    HTTPStatus.NOT_FOUND: "Check the path and the model in the model's URL.",
}

PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}

ILL_FORMED = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
"""What a server answers that does not know how to be asked for JSON."""

UNACCEPTED = {*ILL_FORMED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
"""A refusal of this one request; others may be accepted."""

Document = TypeVar("Document")


class ModelOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of every service. Times are in seconds, prices for a million tokens; `temperature=null` sends none."""

    key_env: str | None = None
    timeout: Annotated[float, Meta(gt=0, le=600)] = 15.0
    first: Annotated[float, Meta(gt=0, le=600)] = 6.0
    retries: Annotated[int, Meta(ge=0, le=5)] = 1
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 8
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = 0.0
    input_price: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    output_price: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    max_chars: Annotated[int, Meta(ge=1, le=1_000_000)] = 40_000
    structured: Structured = "schema"


@dataclass(frozen=True, slots=True)
class Heard:
    """What one document of an answer says. `finished`: the reply is whole; `last`: nothing comes after this."""

    text: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finished: bool = False
    last: bool = False


class Dialect(Protocol):
    """How one API is spoken."""

    def request(self, prompt: Prompt, structured: Structured) -> bytes: ...

    def event(self, data: bytes) -> Heard:
        """What one event of a stream says."""
        ...

    def whole(self, data: bytes) -> Heard:
        """What an answer says that does not come as a stream."""
        ...


class Unanswered(Unavailable):
    """This prompt gets no usable reply. The service is there, so it does not count as a failure of the model."""


class Breaker:
    """Spares a model that keeps failing, and those who would wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0

    def refuse(self) -> None:
        wait = self._until - self._clock()
        if self._failures >= FAILURES and wait > 0:
            raise Unavailable(
                f"The language model is not asked for a while: it failed {self._failures} times in a row",
                hint=f"It is tried again in {math.ceil(wait)} seconds.",
                retry_after=wait,
            )

    @contextmanager
    def trial(self) -> Generator[None]:
        """Around one exchange. One that is given up halfway says nothing of the model."""
        self.refuse()
        # While the model rests, this one try is let through; the next comes after another pause.
        self._until = self._clock() + PAUSE
        try:
            yield
        except Unanswered:
            self._failures = 0
            raise
        except Unavailable:
            self._failures += 1
            self._until = self._clock() + PAUSE
            raise
        self._failures = 0


class ServiceModel:
    def __init__(
        self,
        name: str,
        dialect: Dialect,
        url: httpx.URL,
        headers: Mapping[str, str],
        options: ModelOptions,
        clock: Clock,
    ) -> None:
        self.name = name
        self._dialect = dialect
        self._url = url
        self._options = options
        self._structured: Structured = options.structured
        self._largest = options.max_chars * ESCAPED + ENVELOPE
        self._places = asyncio.Semaphore(options.concurrency)
        self._breaker = Breaker(clock)
        # Only config.py reads the environment; httpx would take a proxy and a .netrc from it. Uncompressed, an
        # answer cannot be larger than what was read of it.
        self._client = httpx.AsyncClient(
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **headers},
            limits=httpx.Limits(max_keepalive_connections=options.concurrency),
            timeout=None,  # noqa: S113  every wait is within the deadline of its exchange
            trust_env=False,
        )

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str | Usage]:
        deadline = _now() + self._options.timeout
        self._breaker.refuse()
        async with self._place(deadline):
            with self._breaker.trial():
                async with aclosing(self._patiently(prompt, deadline)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _place(self, deadline: float) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError as error:
            raise TimedOut(
                "The language model is busy with others", hint="Raise concurrency in its URL if it can take more."
            ) from error
        try:
            yield
        finally:
            self._places.release()

    async def _patiently(self, prompt: Prompt, deadline: float) -> AsyncGenerator[str | Usage]:
        """Tries again what may pass, while nobody has heard anything yet."""
        for attempt in range(self._options.retries + 1):
            spoken = False
            try:
                async with aclosing(self._exchange(prompt, deadline)) as pieces:
                    async for piece in pieces:
                        spoken = True
                        yield piece
                return
            except _Setback as setback:
                wait = _backoff(attempt) if setback.wait is None else setback.wait
                if spoken or attempt == self._options.retries or _now() + wait >= deadline:
                    raise Unavailable(f"The language model's service {setback}", tries=attempt + 1) from setback
            await asyncio.sleep(wait)

    async def _exchange(self, prompt: Prompt, deadline: float) -> AsyncGenerator[str | Usage]:
        until = min(deadline, _now() + self._options.first)
        tally = _Tally(self._options)
        async with self._response(prompt, until) as response, aclosing(self._documents(response)) as documents:
            while not tally.last:
                async with _waiting(until):
                    heard = await anext(documents, None)
                if heard is None:
                    break
                tally.add(heard)
                if heard.text:
                    until = deadline
                    yield heard.text
            await _settle(documents)
        yield tally.usage(prompt)

    @asynccontextmanager
    async def _response(self, prompt: Prompt, until: float) -> AsyncGenerator[httpx.Response]:
        """An answer that promises to be one, asked for in the way this service is known to take."""
        structured = self._structured if prompt.schema else "none"
        response = await self._send(prompt, structured, until)
        if structured != "none" and response.status_code in ILL_FORMED:
            await response.aclose()
            response = await self._send(prompt, "none", until)
            if response.is_success:
                self._structured = "none"
        try:
            _refuse_failure(response)
            yield response
        finally:
            await response.aclose()

    async def _send(self, prompt: Prompt, structured: Structured, until: float) -> httpx.Response:
        request = self._client.build_request("POST", self._url, content=self._dialect.request(prompt, structured))
        async with _waiting(until):
            return await self._client.send(request, stream=True)

    async def _documents(self, response: httpx.Response) -> AsyncGenerator[Heard]:
        match response.headers.get("Content-Type", "").partition(";")[0].strip().lower():
            case "text/event-stream":
                async with aclosing(_events(response, self._largest)) as events:
                    async for data in events:
                        yield self._dialect.event(data)
            case "application/json":  # from a server that does not stream
                yield self._dialect.whole(await _body(response, self._largest))
            case _:
                raise Unavailable(UNREADABLE)


def instructions(prompt: Prompt, structured: Structured) -> str:
    """The prompt's own, and the schema in words where the API is not given it."""
    if prompt.schema is None or structured == "schema":
        return sendable(prompt.system)
    schema = msgspec.json.encode(prompt.schema).decode()
    return sendable(
        f"{prompt.system}\n\nAnswer with JSON alone, without Markdown, that fits this JSON Schema: {schema}"
    )


def sendable(text: str) -> str:
    """Without half of a surrogate pair, which UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def decode(data: bytes, kind: type[Document]) -> Document:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unavailable(UNREADABLE) from error


class _Setback(Exception):
    """A failure that may pass. `wait` is what the service asks for, in seconds."""

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(slots=True)
class _Tally:
    """Adds up one answer, and refuses one that is too long, empty or not whole."""

    options: ModelOptions
    pieces: list[str] = field(default_factory=list[str])
    chars: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finished: bool = False
    last: bool = False

    def add(self, heard: Heard) -> None:
        self.chars += len(heard.text)
        if self.chars > self.options.max_chars:
            raise Unanswered("The language model answers with more than max_chars allows", limit=self.options.max_chars)
        self.pieces.append(heard.text)
        # A service may count on with every event: what it says last holds.
        self.prompt_tokens = self.prompt_tokens if heard.prompt_tokens is None else heard.prompt_tokens
        self.completion_tokens = self.completion_tokens if heard.completion_tokens is None else heard.completion_tokens
        self.finished |= heard.finished
        self.last = heard.last

    def usage(self, prompt: Prompt) -> Usage:
        if not self.finished:
            raise _Setback("broke off its answer")
        if not self.chars:
            raise Unanswered(EMPTY, hint="It may have refused, or spent all its tokens on thinking.")
        read, written = self.prompt_tokens, self.completion_tokens
        if read is None:
            read = tokens(instructions(prompt, "none") + sendable(prompt.user))
        if written is None:
            written = tokens("".join(self.pieces))
        price = (read * self.options.input_price + written * self.options.output_price) / 1e6
        return Usage(read, written, price)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _backoff(attempt: int) -> float:
    # Jitter, so that several processes do not return together. Nothing secret depends on it.
    return FIRST_WAIT * 2**attempt * random.uniform(1.0, 2.0)  # noqa: S311


@asynccontextmanager
async def _waiting(until: float) -> AsyncGenerator[None]:
    """Around every wait for the service: its failures in our words."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError as error:
        raise TimedOut("The language model did not answer in time") from error
    except httpx.ConnectError as error:
        raise _Setback("cannot be reached") from error
    except httpx.RequestError as error:
        raise _Setback("broke off its answer") from error


def _refuse_failure(response: httpx.Response) -> None:
    status = response.status_code
    if status in PASSING or response.is_server_error:
        raise _Setback(f"answers with status {status}", wait=_seconds(response.headers.get("Retry-After", "")))
    if not response.is_success:
        kind = Unanswered if status in UNACCEPTED else Unavailable
        raise kind(f"The language model's service refuses with status {status}", hint=HINTS.get(status), status=status)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Unavailable("The language model's service compresses its answer, which it was asked not to")


def _seconds(retry_after: str) -> float | None:
    return float(retry_after) if retry_after.isdecimal() else None


async def _events(response: httpx.Response, largest: int) -> AsyncGenerator[bytes]:
    """The data of server-sent events. Both APIs write each document on one line; a broken one is not JSON."""
    async with aclosing(_lines(response, largest)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()


async def _lines(response: httpx.Response, largest: int) -> AsyncGenerator[bytes]:
    line = bytearray()
    async for chunk in response.aiter_raw():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield _bounded(line + end, largest)
            line.clear()
        line += rest
        _bounded(line, largest)


async def _body(response: httpx.Response, largest: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        _bounded(body, largest)
    return bytes(body)


def _bounded(data: bytearray, largest: int) -> bytes:
    if len(data) > largest:
        raise Unanswered("The language model's service answers with more than can be a reply")
    return bytes(data)


async def _settle(documents: AsyncGenerator[Heard]) -> None:
    with suppress(Unavailable, _Setback):
        async with _waiting(_now() + MOMENT):
            async for _ in documents:
                pass
