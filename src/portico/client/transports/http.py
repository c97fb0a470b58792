"""How requests of NLWeb reach a server: over HTTP with asyncio, over HTTP without it, or with a carrier."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Mapping
from typing import Any, Protocol, TypeVar, cast

import httpx
import msgspec

from portico.client.models import NotReached
from portico.client.wire import Request, RequestPath, ResponseHead

MAX_RESPONSE_BYTES = 8 * 1024 * 1024  # bytes of one response
TIMEOUT = 60.0  # seconds without a byte
T = TypeVar("T")


class Transport(Protocol):
    """Sends requests and waits, with or without an event loop."""

    def pieces(self, post: Request) -> AsyncGenerator[ResponseHead | bytes]: ...

    async def pause(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class AsyncTransport:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def pieces(self, post: Request) -> AsyncGenerator[ResponseHead | bytes]:
        with _translate_errors():
            async with self._http.stream("POST", post.path, **post.request_args) as response:
                yield _head(response)
                async for piece in response.aiter_bytes():
                    yield piece

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()


class Carrier(Protocol):
    """Sends requests to a server over another protocol."""

    async def post(self, path: RequestPath, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the whole response as NLWeb defines it. Raise a ClientError if there is none."""
        ...


class CarrierTransport(AsyncTransport):
    """Responses arrive whole, even if the request prefers a stream."""

    def __init__(self, http: httpx.AsyncClient, carrier: Carrier) -> None:
        super().__init__(http)
        self._carrier = carrier

    async def pieces(self, post: Request) -> AsyncGenerator[ResponseHead | bytes]:
        answer = await self._carrier.post(post.path, post.body)
        yield ResponseHead(200, "application/json", "")
        yield msgspec.json.encode(answer)


class SyncTransport:
    """Async in form only: it blocks and never suspends."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def pieces(self, post: Request) -> AsyncGenerator[ResponseHead | bytes]:
        with _translate_errors(), self._http.stream("POST", post.path, **post.request_args) as response:
            yield _head(response)
            for piece in response.iter_bytes():
                yield piece

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop is running

    async def close(self) -> None:
        self._http.close()


def run_sync(work: Awaitable[T]) -> T:
    """Return the result of work over a SyncTransport, which completes in one step."""
    try:
        next(iter(work.__await__()))
    except StopIteration as done:
        return done.value
    raise RuntimeError("A sync client cannot wait for asyncio")


def iterate_sync(events: AsyncGenerator[T]) -> Generator[T]:
    try:
        while True:
            yield run_sync(anext(events))
    except StopAsyncIteration:
        return
    finally:
        run_sync(events.aclose())


def http_options(url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    # Ignore the environment: its proxy or .netrc could expose the key.
    return {"base_url": url, "headers": headers, "timeout": timeout, "trust_env": False, "follow_redirects": False}


class BoundedTransport(httpx.AsyncBaseTransport):
    """Limits the size of responses, for carriers whose SDK reads them whole."""

    def __init__(self, inner: httpx.AsyncBaseTransport, largest: int) -> None:
        self._inner = inner
        self._largest = largest

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        stream = _BoundedStream(cast("httpx.AsyncByteStream", response.stream), self._largest)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, left: int) -> None:
        self._inner = inner
        self._left = left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx.ReadError("the response is too large")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _head(response: httpx.Response) -> ResponseHead:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return ResponseHead(response.status_code, kind, response.headers.get("retry-after", ""))


@contextlib.contextmanager
def _translate_errors() -> Generator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise NotReached(f"The server cannot be reached: {str(error) or type(error).__name__}") from error
