"""What all services with models share: deadlines, retries, concurrency, and size limits of a response.

Knows no API; a `ModelDialect` does. Checks every response before it is used, and never puts the key, the prompt or
the service's own words into an error: all of them could reach a caller.
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
from portico.models.language import Prompt, Usage, estimate_tokens

Structured: TypeAlias = Literal["schema", "object", "none"]
Clock: TypeAlias = Callable[[], float]

FIRST_WAIT = 0.2
"""Seconds before the second try, doubled for each further one."""

FAILURES = 3
PAUSE = 15.0
"""After FAILURES failures in a row, a model gets one request every PAUSE seconds."""

DRAIN_SECONDS = 0.05
"""Seconds to read on after a complete reply: a connection that was read to its end can be reused."""

MAX_ESCAPED_BYTES = 12
"""The most bytes that JSON needs for one character: two escapes, for a surrogate pair."""

ENVELOPE = 64 * 1024
"""Bytes of a document besides its text."""

UNREADABLE = "The language model's service sent a response that its API does not describe"
BROKEN = "The language model's service reported an error"
EMPTY = "The language model sent an empty reply"

HINTS: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "The prompt may be too long, or the model may not accept temperature or the token limit.",
    HTTPStatus.UNAUTHORIZED: "Check the key in the variable that key_env names.",
    HTTPStatus.FORBIDDEN: "Check what the key in the variable that key_env names may do.",
    HTTPStatus.NOT_FOUND: "Check the path and the model in the model's URL.",
}

TRANSIENT = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}

MALFORMED = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
"""The status codes of a server that does not support structured output."""

REJECTED = {*MALFORMED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
"""Status codes that refuse this one request; others may be accepted."""

Document = TypeVar("Document")


class ModelOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of every service. Times are in seconds, prices per million tokens; `temperature=null` sends none."""

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
class ReplyEvent:
    """One document of a response: a piece of the reply, with what else it says.

    `is_complete` means that the reply is whole, `is_last` that no event follows.
    """

    text: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    is_complete: bool = False
    is_last: bool = False


class ModelDialect(Protocol):
    """One API: how a request is written and a response is read."""

    def build_request(self, prompt: Prompt, structured: Structured) -> bytes: ...

    def parse_event(self, data: bytes) -> ReplyEvent:
        """Read one event of a stream."""
        ...

    def parse_reply(self, data: bytes) -> ReplyEvent:
        """Read a response that is not a stream."""
        ...


class NoReply(Unavailable):
    """This prompt gets no usable reply. The service works, so it does not count as a failure of the model."""


class CircuitBreaker:
    """Stops requests to a model that keeps failing, so that callers do not wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0

    def check(self) -> None:
        wait = self._until - self._clock()
        if self._failures >= FAILURES and wait > 0:
            raise Unavailable(
                f"The language model is paused: it failed {self._failures} times in a row",
                hint=f"Try again in {math.ceil(wait)} seconds.",
                retry_after=wait,
            )

    @contextmanager
    def track(self) -> Generator[None]:
        """Count the result of one exchange. An exchange that the caller cancels does not count."""
        self.check()
        # During a pause this one request goes through; the next one follows after another pause.
        self._until = self._clock() + PAUSE
        try:
            yield
        except NoReply:
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
        dialect: ModelDialect,
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
        self._largest = options.max_chars * MAX_ESCAPED_BYTES + ENVELOPE
        self._slots = asyncio.Semaphore(options.concurrency)
        self._breaker = CircuitBreaker(clock)
        # Only config.py reads the environment; httpx would take a proxy and a .netrc from it. Uncompressed, a
        # response cannot be larger than what was read of it.
        self._client = httpx.AsyncClient(
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **headers},
            limits=httpx.Limits(max_keepalive_connections=options.concurrency),
            timeout=None,  # noqa: S113  every wait is within the deadline of its exchange
            trust_env=False,
        )

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str | Usage]:
        deadline = _now() + self._options.timeout
        self._breaker.check()
        async with self._acquire_slot(deadline):
            with self._breaker.track():
                async with aclosing(self._stream_with_retries(prompt, deadline)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _acquire_slot(self, deadline: float) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError as error:
            raise TimedOut(
                "The language model is busy with other requests",
                hint="Raise concurrency in its URL if it allows that.",
            ) from error
        try:
            yield
        finally:
            self._slots.release()

    async def _stream_with_retries(self, prompt: Prompt, deadline: float) -> AsyncGenerator[str | Usage]:
        """Try again after a transient failure, unless a piece of the reply has already been passed on."""
        for attempt in range(self._options.retries + 1):
            has_output = False
            try:
                async with aclosing(self._exchange(prompt, deadline)) as pieces:
                    async for piece in pieces:
                        has_output = True
                        yield piece
                return
            except TransientError as failure:
                wait = backoff(attempt) if failure.wait is None else failure.wait
                if has_output or attempt == self._options.retries or _now() + wait >= deadline:
                    raise Unavailable(f"The language model's service {failure}", tries=attempt + 1) from failure
            await asyncio.sleep(wait)

    async def _exchange(self, prompt: Prompt, deadline: float) -> AsyncGenerator[str | Usage]:
        until = min(deadline, _now() + self._options.first)
        reply = _Reply(self._options)
        async with self._response(prompt, until) as response, aclosing(self._documents(response)) as documents:
            while not reply.is_last:
                async with _translate_errors(until):
                    event = await anext(documents, None)
                if event is None:
                    break
                reply.add(event)
                if event.text:
                    until = deadline
                    yield event.text
            await _drain(documents)
        yield reply.usage(prompt)

    @asynccontextmanager
    async def _response(self, prompt: Prompt, until: float) -> AsyncGenerator[httpx.Response]:
        """Send the prompt in the form that this service is known to accept; yield a successful response."""
        structured = self._structured if prompt.schema else "none"
        response = await self._send(prompt, structured, until)
        if structured != "none" and response.status_code in MALFORMED:
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
        request = self._client.build_request("POST", self._url, content=self._dialect.build_request(prompt, structured))
        async with _translate_errors(until):
            return await self._client.send(request, stream=True)

    async def _documents(self, response: httpx.Response) -> AsyncGenerator[ReplyEvent]:
        match response.headers.get("Content-Type", "").partition(";")[0].strip().lower():
            case "text/event-stream":
                async with aclosing(_events(response, self._largest)) as events:
                    async for data in events:
                        yield self._dialect.parse_event(data)
            case "application/json":  # from a server that does not stream
                yield self._dialect.parse_reply(await _body(response, self._largest))
            case _:
                raise Unavailable(UNREADABLE)


def instructions(prompt: Prompt, structured: Structured) -> str:
    """Return the system prompt, with the schema in it unless the API gets the schema itself."""
    if prompt.schema is None or structured == "schema":
        return sendable(prompt.system)
    schema = msgspec.json.encode(prompt.schema).decode()
    return sendable(
        f"{prompt.system}\n\nAnswer with JSON alone, without Markdown, that fits this JSON Schema: {schema}"
    )


def sendable(text: str) -> str:
    """Return the text without halves of surrogate pairs, which UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def decode(data: bytes, kind: type[Document]) -> Document:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unavailable(UNREADABLE) from error


class TransientError(Exception):
    """A failure that may pass. `wait` is the delay that the service requests, in seconds."""

    def __init__(self, message: str, *, kind: type[Unavailable] = Unavailable, wait: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait = wait


@dataclass(slots=True)
class _Reply:
    """Collects one reply, and refuses one that is too long, empty or incomplete."""

    options: ModelOptions
    pieces: list[str] = field(default_factory=list[str])
    chars: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    is_complete: bool = False
    is_last: bool = False

    def add(self, event: ReplyEvent) -> None:
        self.chars += len(event.text)
        if self.chars > self.options.max_chars:
            limit = self.options.max_chars
            raise NoReply(f"The language model sent more than {limit} characters (max_chars)", limit=limit)
        self.pieces.append(event.text)
        # A service may count up with every event: the last number holds.
        self.prompt_tokens = self.prompt_tokens if event.prompt_tokens is None else event.prompt_tokens
        self.completion_tokens = self.completion_tokens if event.completion_tokens is None else event.completion_tokens
        self.is_complete |= event.is_complete
        self.is_last = event.is_last

    def usage(self, prompt: Prompt) -> Usage:
        if not self.is_complete:
            raise TransientError("broke off its response")
        if not self.chars:
            raise NoReply(EMPTY, hint="It may have refused, or spent all its tokens on thinking.")
        prompt_count, completion = self.prompt_tokens, self.completion_tokens
        if prompt_count is None:
            prompt_count = estimate_tokens(instructions(prompt, "none") + sendable(prompt.user))
        if completion is None:
            completion = estimate_tokens("".join(self.pieces))
        price = (prompt_count * self.options.input_price + completion * self.options.output_price) / 1e6
        return Usage(prompt_count, completion, price)


def _now() -> float:
    return asyncio.get_running_loop().time()


def backoff(attempt: int) -> float:
    """Return the seconds to wait after a try; the first is number 0."""
    # Jitter, so that several processes do not return together. Nothing secret depends on it.
    return FIRST_WAIT * 2**attempt * random.uniform(1.0, 2.0)  # noqa: S311


@asynccontextmanager
async def _translate_errors(until: float) -> AsyncGenerator[None]:
    """Raise the failures of httpx, and a missed deadline, as errors of this package."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError as error:
        raise TimedOut("The language model did not answer in time") from error
    except httpx.ConnectError as error:
        raise TransientError("cannot be reached") from error
    except httpx.RequestError as error:
        raise TransientError("broke off its response") from error


def _refuse_failure(response: httpx.Response) -> None:
    if failure := transient_failure(response):
        raise failure
    status = response.status_code
    if not response.is_success:
        kind = NoReply if status in REJECTED else Unavailable
        message = f"The language model's service refused the request with status {status}"
        raise kind(message, hint=HINTS.get(status), status=status)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Unavailable("The language model's service compressed its response, although it must not")


def transient_failure(response: httpx.Response) -> TransientError | None:
    """Return the failure that a status code stands for, if the request may succeed later."""
    if response.status_code not in TRANSIENT and not response.is_server_error:
        return None
    retry_after = response.headers.get("Retry-After", "")
    wait = float(retry_after) if retry_after.isdecimal() else None
    return TransientError(f"returned status {response.status_code}", wait=wait)


async def _events(response: httpx.Response, largest: int) -> AsyncGenerator[bytes]:
    """Yield the data of server-sent events. Both APIs write each document on one line."""
    async with aclosing(_lines(response, largest)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()


async def _lines(response: httpx.Response, largest: int) -> AsyncGenerator[bytes]:
    line = bytearray()
    async for chunk in response.aiter_raw():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield _check_size(line + end, largest)
            line.clear()
        line += rest
        _check_size(line, largest)


async def _body(response: httpx.Response, largest: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        _check_size(body, largest)
    return bytes(body)


def _check_size(data: bytearray, largest: int) -> bytes:
    if len(data) > largest:
        raise NoReply(f"The language model's service sent more than {largest} bytes")
    return bytes(data)


async def _drain(documents: AsyncGenerator[ReplyEvent]) -> None:
    with suppress(Unavailable, TransientError):
        async with _translate_errors(_now() + DRAIN_SECONDS):
            async for _ in documents:
                pass
