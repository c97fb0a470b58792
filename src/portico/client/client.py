"""The clients: `AsyncClient`, and `Client` and `Conversation`, which run the same code without an event loop."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import Any, Self, TypeVar, Unpack

import httpx

from portico.client.models import (
    Answer,
    AskFailed,
    BadAnswer,
    Completed,
    Elicitation,
    Event,
    NotReached,
    Options,
    ProgressCallback,
    Promise,
    Response,
    Session,
)
from portico.client.transports.http import (
    MAX_RESPONSE_BYTES,
    TIMEOUT,
    AsyncTransport,
    BoundedTransport,
    Carrier,
    CarrierTransport,
    SyncTransport,
    Transport,
    http_options,
    iterate_sync,
    run_sync,
)
from portico.client.wire import Request, ResponseReader, ask_request, await_request

PAUSE_GROWTH = 1.5  # factor between the pauses of two polls
MAX_PAUSE = 10.0
MAX_FAILED_CHECKS = 20  # failed polls in a row
MAX_PREVIOUS = 10  # earlier questions that a conversation sends
T = TypeVar("T")


class _BaseClient:
    """The code that both clients share."""

    def __init__(self, transport: Transport, largest: int) -> None:
        self._transport = transport
        self._largest = largest

    async def ask(self, text: str, **options: Unpack[Options]) -> Response:
        """Ask a question. Raise AskFailed for a failure; an Answer without items means that nothing was found."""
        return await self._exchange(ask_request(text, options))

    def stream(self, text: str, **options: Unpack[Options]) -> AsyncGenerator[Event]:
        """Yield events as they arrive. Closing the stream cancels the work on the server."""
        return self._events(ask_request(text, options, streaming=True))

    async def check(self, promise: Promise | str) -> Response:
        """Return the promise with its progress, or the response if it is ready."""
        return await self._exchange(await_request(promise, "checkin"))

    async def cancel(self, promise: Promise | str) -> Response | None:
        """Cancel the work. Return None, or the response if it was already complete."""
        try:
            return await self._exchange(await_request(promise, "cancel"))
        except AskFailed as error:
            if error.code != "CANCELLED":
                raise
        return None

    async def wait(
        self, promise: Promise, on_progress: ProgressCallback | None = None, every: float = 0.5
    ) -> Answer | Elicitation:
        """Poll a promise until it is fulfilled, with growing pauses that begin at `every` seconds.

        A server that is unavailable for a while, such as during a restart, is polled again.
        """
        pause, missed = every, 0
        while True:
            await self._transport.pause(pause)
            pause = max(every, min(pause * PAUSE_GROWTH, MAX_PAUSE))
            try:
                response = await self.check(promise)
                missed = 0
            except NotReached:
                missed += 1
                if missed > MAX_FAILED_CHECKS:
                    raise
                continue
            except AskFailed as error:
                if error.code != "RATE_LIMITED":
                    raise
                pause = error.retry_after or pause
                continue
            if not isinstance(response, Promise):
                return response
            if on_progress:
                on_progress(response)

    async def close(self) -> None:
        await self._transport.close()

    async def _exchange(self, post: Request) -> Response:
        async with contextlib.aclosing(self._events(post)) as events:
            async for event in events:
                match event:
                    case Completed(answer):
                        return answer
                    case Elicitation() | Promise():
                        return event
                    case _:
                        pass
        raise BadAnswer("The response has no end")

    async def _events(self, post: Request) -> AsyncGenerator[Event]:
        reading = ResponseReader(self._largest)
        async with contextlib.aclosing(self._transport.pieces(post)) as pieces:
            async for piece in pieces:
                for event in reading.take(piece):
                    yield event
                if reading.is_complete:
                    return
        for event in reading.finish():
            yield event


class AsyncConversation:
    """A series of questions. Sends the earlier ones and the state of the server along."""

    def __init__(self, client: _BaseClient) -> None:
        self._client = client
        self._text = ""
        self._options: Options = {}
        self.previous: tuple[str, ...] = ()
        self.session: Session | None = None

    async def ask(self, text: str, **options: Unpack[Options]) -> Response:
        self._begin_turn(text, options)
        return self._remember_session(await self._client.ask(text, **self._current_options()))

    async def answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> Response:
        """Ask the last question again, with answers to an elicitation."""
        self._add_answers(elicitation, answers)
        return self._remember_session(await self._client.ask(self._text, **self._current_options()))

    async def stream(self, text: str, **options: Unpack[Options]) -> AsyncGenerator[Event]:
        self._begin_turn(text, options)
        async with contextlib.aclosing(self._client.stream(text, **self._current_options())) as events:
            async for event in events:
                yield self._remember_session(event)

    async def stream_answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> AsyncGenerator[Event]:
        self._add_answers(elicitation, answers)
        async with contextlib.aclosing(self._client.stream(self._text, **self._current_options())) as events:
            async for event in events:
                yield self._remember_session(event)

    def _begin_turn(self, text: str, options: Options) -> None:
        """Begin a new question. The last one becomes a previous one, unless the caller lists those."""
        questions = (*self.previous, self._text) if self._text else self.previous
        self.previous = tuple(options.get("previous") or questions)[-MAX_PREVIOUS:]
        self._text, self._options = text, options

    def _add_answers(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> None:
        self._options = {**self._options, "answers": {**self._options.get("answers", {}), **answers}}
        self.session = elicitation.session or self.session

    def _current_options(self) -> Options:
        return {"session": self.session, **self._options, "previous": self.previous}

    def _remember_session(self, value: T) -> T:
        """Store the session of a response that has one."""
        whole = value.answer if isinstance(value, Completed) else value
        if isinstance(whole, Answer | Elicitation | Promise):
            self.session = whole.session or self.session
        return value


class AsyncClient(_BaseClient):
    """Asks an NLWeb server, with asyncio. `carrier` is called with the HTTP client that it should use."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        largest: int = MAX_RESPONSE_BYTES,
        transport: httpx.AsyncBaseTransport | None = None,
        carrier: Callable[[httpx.AsyncClient], Carrier] | None = None,
    ) -> None:
        if carrier:
            transport = BoundedTransport(transport or httpx.AsyncHTTPTransport(trust_env=False), largest)
        http = httpx.AsyncClient(transport=transport, **http_options(url, api_key, timeout))
        super().__init__(CarrierTransport(http, carrier(http)) if carrier else AsyncTransport(http), largest)

    def conversation(self) -> AsyncConversation:
        return AsyncConversation(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Conversation:
    """AsyncConversation without asyncio."""

    def __init__(self, client: _BaseClient) -> None:
        self._inner = AsyncConversation(client)

    def ask(self, text: str, **options: Unpack[Options]) -> Response:
        return run_sync(self._inner.ask(text, **options))

    def answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> Response:
        return run_sync(self._inner.answer(elicitation, answers))

    def stream(self, text: str, **options: Unpack[Options]) -> Generator[Event]:
        return iterate_sync(self._inner.stream(text, **options))

    def stream_answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> Generator[Event]:
        return iterate_sync(self._inner.stream_answer(elicitation, answers))


class Client:
    """AsyncClient without asyncio."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        largest: int = MAX_RESPONSE_BYTES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        http = httpx.Client(transport=transport, **http_options(url, api_key, timeout))
        self._inner = _BaseClient(SyncTransport(http), largest)

    def ask(self, text: str, **options: Unpack[Options]) -> Response:
        return run_sync(self._inner.ask(text, **options))

    def stream(self, text: str, **options: Unpack[Options]) -> Generator[Event]:
        return iterate_sync(self._inner.stream(text, **options))

    def check(self, promise: Promise | str) -> Response:
        return run_sync(self._inner.check(promise))

    def cancel(self, promise: Promise | str) -> Response | None:
        return run_sync(self._inner.cancel(promise))

    def wait(
        self, promise: Promise, on_progress: ProgressCallback | None = None, every: float = 0.5
    ) -> Answer | Elicitation:
        return run_sync(self._inner.wait(promise, on_progress, every))

    def conversation(self) -> Conversation:
        return Conversation(self._inner)

    def close(self) -> None:
        run_sync(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
