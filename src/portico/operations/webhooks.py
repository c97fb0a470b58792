"""Webhooks: posts to URLs that callers name, and requests to other sites.

Contacts only public addresses, follows no redirects and bounds every wait.
"""

import asyncio
import importlib
import ssl
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from portico.errors import BadRequest, SourceError, TimedOut, Unavailable

if TYPE_CHECKING:
    from portico.sources.fetch import Fetcher

THREADS = 8
SECONDS = 10.0  # for one post
MAX_ANSWER = 64 << 10  # bytes of a response that is ignored
MAX_TOLD = 4 << 20  # bytes of a response that is used
MAX_ASKED = 64  # requests at once, including those waiting for a thread
MAX_URL = 2000  # characters
_PORTS = {"http": 80, "https": 443}


@cache
def _fetch_errors() -> Any:
    # Takes a quarter of a second to import, so only sites that send anything do.
    return importlib.import_module("portico.sources.fetch")


def _names_this_machine(host: str) -> bool:
    """Return whether a host name is this machine by definition (RFC 6761)."""
    return f".{host.lower().rstrip('.')}".endswith(".localhost")


def failure_reason(error: BaseException) -> str:
    """Return why a post failed, for the operator's log, without its URL, which may be secret."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return f"TLS: the certificate is not trusted: {cause.verify_message}"
            case ssl.SSLError():
                return f"TLS: {cause.reason or 'the handshake failed'}"
            case OSError() if cause.strerror:
                return cause.strerror
            case _:
                cause = cause.__cause__ or cause.__context__
    return type(error).__name__


class WebhookClient:
    """Sends on its own threads, so that slow receivers delay only each other, and no requests to other sites."""

    def __init__(self, allow_hosts: Iterable[str], tls: ssl.SSLContext | None = None, ca_file: str = "") -> None:
        self._allowed = frozenset(host.lower().removeprefix("[").replace("]", "") for host in allow_hosts)
        self._tls = tls
        self._ca_file = ca_file  # PEM file of authorities trusted besides the public ones
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="callback")
        self._askers = ThreadPoolExecutor(THREADS, thread_name_prefix="question")
        self._places = threading.BoundedSemaphore(MAX_ASKED)
        self._closed = False

    def check(self, url: str) -> None:
        """Raise BadRequest for a URL that cannot be a callback. Host names are resolved only when a post is sent."""
        if len(url) > MAX_URL:
            raise BadRequest(f"The URL of a callback may have at most {MAX_URL} characters")
        try:
            _fetch_errors().parse_url(url)
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        except (SourceError, ValueError) as error:
            raise BadRequest(f"{url[:200]!r} is not a valid callback URL", hint="Use an https URL.") from error
        if host in self._allowed or f"{host}:{port}" in self._allowed:
            return
        if parts.scheme != "https":
            raise BadRequest("Callbacks require https", hint="Use an https URL.")
        address = _fetch_errors().literal_address(host)
        if _names_this_machine(host) or (address is not None and not _fetch_errors().is_public(address)):
            raise BadRequest(f"{host} is not a public address", hint="Use a public host.", host=host)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Send a POST and return the status of the response. Redirects are not followed."""
        self.check(url)
        if self._closed:
            raise Unavailable("The server is stopping")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._post, url, body, dict(headers))

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], max_bytes: int, seconds: float
    ) -> tuple[int, bytes]:
        """Send a POST and return the status and body of the response. Redirects are not followed."""
        self.check(url)
        if self._closed:
            raise Unavailable("The server is stopping")
        if not self._places.acquire(blocking=False):
            raise Unavailable(f"{MAX_ASKED} questions are under way already")
        future = self._askers.submit(self._answer, url, body, dict(headers), max_bytes)
        # Its slot is free when its thread is: a caller that stops waiting does not end the request.
        future.add_done_callback(lambda _: self._places.release())
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise TimedOut(f"No response within {seconds:g} seconds") from error

    def close(self) -> None:
        """Refuse further requests; running ones end by themselves."""
        self._closed = True  # checked by requests that wait for a thread
        self._askers.shutdown(wait=False)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        try:
            with self._fetcher.send("POST", url, body=body, headers=headers, max_bytes=MAX_ANSWER) as answer:
                return answer.status
        except SourceError as error:
            reason = failure_reason(error)
            raise Unavailable(f"The callback failed: {error.message}", hint=error.hint, reason=reason) from error

    def _answer(self, url: str, body: bytes, headers: Mapping[str, str], max_bytes: int) -> tuple[int, bytes]:
        if self._closed:
            raise Unavailable("The server is stopping")
        try:
            with self._asker.send("POST", url, body=body, headers=headers, max_bytes=max_bytes) as answer:
                return answer.status, answer.read()
        except SourceError as error:
            reason = failure_reason(error)
            raise Unavailable(f"No response: {error.message}", hint=error.hint, reason=reason) from error

    @cached_property
    def _fetcher(self) -> "Fetcher":
        """Created on a sending thread, because it reads the system's certificates."""
        return self._make_fetcher(MAX_ANSWER)

    @cached_property
    def _asker(self) -> "Fetcher":
        # Separate, since the connections of a fetcher are limited.
        return self._make_fetcher(MAX_TOLD)

    def _make_fetcher(self, max_bytes: int) -> "Fetcher":
        tls = self._tls or (_fetch_errors().create_tls_context(self._ca_file) if self._ca_file else None)
        return _fetch_errors().Fetcher(
            allow_hosts=self._allowed, max_bytes=max_bytes, timeout=SECONDS, deadline=SECONDS, tls=tls
        )
