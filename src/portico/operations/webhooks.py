"""Messages to addresses that callers name, and questions to other sites. Goes to public addresses alone, follows
nothing, waits for nobody long.
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
SECONDS = 10.0  # for one message
MAX_ANSWER = 64 << 10  # bytes of an answer, which nobody reads
MAX_TOLD = 4 << 20  # bytes of an answer that somebody waits for
MAX_ASKED = 64  # questions under way, those that wait for a thread counted
MAX_URL = 2000  # characters
_PORTS = {"http": 80, "https": 443}


@cache
def _fetching() -> Any:
    # A quarter of a second to import, for sites that have somebody to tell.
    return importlib.import_module("portico.sources.fetch")


def _names_this_machine(host: str) -> bool:
    """Whether a name needs no looking up (RFC 6761)."""
    return f".{host.lower().rstrip('.')}".endswith(".localhost")


def failure_reason(error: BaseException) -> str:
    """Return why a message did not arrive, for the operator's log. Never has its address, which may be a secret."""
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


class Callbacks:
    """Sends on threads of its own: receivers that do not answer hold up only each other, and no questions."""

    def __init__(self, allow_hosts: Iterable[str], tls: ssl.SSLContext | None = None, ca_file: str = "") -> None:
        self._allowed = frozenset(each.lower().removeprefix("[").replace("]", "") for each in allow_hosts)
        self._tls = tls
        self._ca_file = ca_file  # authorities in PEM, trusted besides the public ones
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="callback")
        self._askers = ThreadPoolExecutor(THREADS, thread_name_prefix="question")
        self._places = threading.BoundedSemaphore(MAX_ASKED)
        self._closed = False

    def check(self, url: str) -> None:
        """Refuse what cannot be a callback, as far as its text tells. Names are looked up when a message is sent."""
        if len(url) > MAX_URL:
            raise BadRequest(f"The address of a callback has at most {MAX_URL} characters")
        try:
            _fetching().checked_url(url)
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        except (SourceError, ValueError) as error:
            raise BadRequest(f"{url[:200]!r} cannot be called back", hint="Name an https address.") from error
        if host in self._allowed or f"{host}:{port}" in self._allowed:
            return
        if parts.scheme != "https":
            raise BadRequest("Callbacks go over https", hint="Name an https address.")
        address = _fetching().literal_address(host)
        if _names_this_machine(host) or (address is not None and not _fetching().is_public(address)):
            raise BadRequest(f"{host} is not a public address", hint="Name a host that is public.", host=host)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the answer to a POST. A redirect is an answer like any other."""
        self.check(url)
        if self._closed:
            raise Unavailable("The server stops")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._post, url, body, dict(headers))

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], max_bytes: int, seconds: float
    ) -> tuple[int, bytes]:
        """The status of the answer to a POST, and its body. Redirects are not taken here either."""
        self.check(url)
        if self._closed:
            raise Unavailable("The server stops")
        if not self._places.acquire(blocking=False):
            raise Unavailable(f"{MAX_ASKED} questions are under way already")
        asked = self._askers.submit(self._answer, url, body, dict(headers), max_bytes)
        # Its place is free when its thread is: whoever stops waiting does not end the question.
        asked.add_done_callback(lambda _: self._places.release())
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(asked)
        except TimeoutError as error:
            raise TimedOut(f"There was no answer within {seconds:g} seconds") from error

    def close(self) -> None:
        """Send and ask nothing more; what is on its way ends by itself."""
        self._closed = True  # questions that wait for a thread see it there
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
            raise Unavailable("The server stops")
        try:
            with self._asker.send("POST", url, body=body, headers=headers, max_bytes=max_bytes) as answer:
                return answer.status, answer.read()
        except SourceError as error:
            reason = failure_reason(error)
            raise Unavailable(f"There was no answer: {error.message}", hint=error.hint, reason=reason) from error

    @cached_property
    def _fetcher(self) -> "Fetcher":
        """Made on a thread that sends: it reads the certificates of the system."""
        return self._made(MAX_ANSWER)

    @cached_property
    def _asker(self) -> "Fetcher":
        # One of its own, since a fetcher has only so many connections.
        return self._made(MAX_TOLD)

    def _made(self, max_bytes: int) -> "Fetcher":
        tls = self._tls or (_fetching().tls_trusting(self._ca_file) if self._ca_file else None)
        return _fetching().Fetcher(
            allow_hosts=self._allowed, max_bytes=max_bytes, timeout=SECONDS, deadline=SECONDS, tls=tls
        )
