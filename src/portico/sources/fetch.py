"""The one guarded way out to the web, for sources and for operations. Refuses private addresses, and
answers that are too large or too slow.

The guard sits where connections are made: a host is resolved once, every address it has is checked, and the
connection goes to a checked address. TLS still verifies the name. Redirects are new requests, so they pass
the same guard. No cookies, no proxies, no credentials.
"""

import ipaddress
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urljoin

import httpcore
import httpx

from portico.errors import BlockedAddress, SourceError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Sequence[str]]

USER_AGENT = "Portico/0.1 (+site loader)"
MAX_REDIRECTS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# Set aside by the IANA registries, which Python learns of release by release.
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LEGACY_ADDRESS = re.compile(r"[0-9a-fx.]+", re.IGNORECASE | re.ASCII)
_FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)
_INFLATE_STEP = 64 * 1024
_FIXED = frozenset(("host", "content-length", "connection", "transfer-encoding"))


@dataclass(frozen=True, slots=True)
class Answer:
    """An open answer. `chunks` may be read once, and raises SourceError past the limits."""

    url: str
    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def location(self) -> str | None:
        """Where a redirect points, as an absolute URL."""
        target = self.headers.get("location")
        return urljoin(self.url, target) if target and self.status in _REDIRECTS else None

    def read(self) -> bytes:
        return b"".join(self.chunks)

    def expect_ok(self) -> None:
        if self.status != 200:
            raise SourceError(f"{self.url} answered {self.status}.", url=self.url, status=self.status)


def tls_trusting(ca_file: str) -> ssl.SSLContext:
    """Return a context that trusts the authorities in a file in PEM besides the public ones."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_verify_locations(ca_file)
    return context


class Fetcher:
    """Requests over http and https. `timeout` bounds the wait for the next bytes, `deadline` one whole request."""

    def __init__(
        self,
        *,
        allow_hosts: Iterable[str] = (),
        max_bytes: int = 1 << 30,
        timeout: float = 30.0,
        deadline: float = 600.0,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._timeout = timeout
        guard = _Guard(frozenset(map(_host_key, allow_hosts)), deadline, resolve or system_addresses)
        # Without kept connections each request has its own deadline and its own check.
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls or httpx.create_ssl_context(trust_env=False),
            max_keepalive_connections=0,
            network_backend=guard,
        )

    @contextmanager
    def open(self, url: str, *, follow: bool = True, max_bytes: int | None = None) -> Generator[Answer]:
        """The answer to a GET, whatever its status. With `follow`, up to five redirects are taken."""
        limit = self._max_bytes if max_bytes is None else max_bytes
        for _ in range(MAX_REDIRECTS + 1):
            with self._request(url, limit) as answer:
                target = answer.location if follow else None
                if target is None:
                    yield answer
                    return
                url = target
        raise SourceError(f"{url} redirects more than {MAX_REDIRECTS} times.", url=url)

    def get(self, url: str, *, max_bytes: int | None = None) -> bytes:
        with self.open(url, max_bytes=max_bytes) as answer:
            answer.expect_ok()
            return answer.read()

    @contextmanager
    def send(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str], max_bytes: int
    ) -> Generator[Answer]:
        """The answer to any request, whatever its status. Redirects are not taken: they would carry the body."""
        with self._request(url, min(max_bytes, self._max_bytes), method, body, headers) as answer:
            yield answer

    @contextmanager
    def _request(
        self,
        url: str,
        limit: int,
        method: str = "GET",
        body: bytes = b"",
        extra: Mapping[str, str] | None = None,
    ) -> Generator[Answer]:
        address = checked_url(url)
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout)
        headers: dict[str | bytes, str | bytes] = {
            "Host": address.netloc.decode("ascii"),
            "User-Agent": USER_AGENT,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
            **({"Content-Length": str(len(body))} if body or method in {"POST", "PUT", "PATCH"} else {}),
        }
        # What decides where a request goes and how long it is cannot be overridden.
        headers.update({name: value for name, value in (extra or {}).items() if name.lower() not in _FIXED})
        target = httpcore.URL(
            scheme=address.raw_scheme, host=address.raw_host, port=address.port, target=address.raw_path
        )
        with (
            _named_failures(url),
            self._pool.stream(
                method, target, headers=headers, content=body or None, extensions={"timeout": timeouts}
            ) as raw,
        ):
            found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw.headers}
            chunks = _decoded(raw.iter_stream(), found.get("content-encoding", ""), url)
            yield Answer(url, raw.status, found, _bounded(chunks, limit, url))


def checked_url(url: str) -> httpx.URL:
    """The URL, if it is one that Portico fetches at all. Says nothing yet about where its host is."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as problem:
        raise SourceError(f"{url!r} is not a URL: {problem}", url=url) from problem
    if parsed.scheme not in ("http", "https"):
        raise SourceError(f"{url!r} is neither http nor https.", url=url, hint="Only the web is fetched.")
    if parsed.userinfo or not parsed.host:
        raise SourceError("A URL to fetch needs a host and may not carry a user name.", hint="Remove `user@`.")
    return parsed


def is_public(address: Address) -> bool:
    """Whether it means the same machine everywhere. Looks inside addresses that carry another."""
    if any(address in network for network in _SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and not address.is_reserved
    if address in _NAT64:
        return is_public(ipaddress.IPv4Address(address.packed[12:]))
    if address.sixtofour is not None:
        return is_public(address.sixtofour)
    # Mapped, compatible, local, multicast and unassigned addresses all lie outside 2000::/3.
    return address in _GLOBAL_UNICAST and address.is_global and address.teredo is None


def literal_address(host: str) -> Address | None:
    """The address a host spells out, in any form a resolver takes: 127.1, 0x7f000001, 2130706433."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    if not _LEGACY_ADDRESS.fullmatch(host):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def system_addresses(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class _Guard(httpcore.NetworkBackend):
    """Connects to addresses that passed the check, and to nothing else."""

    def __init__(self, allowed: frozenset[str], deadline: float, resolve: Resolve) -> None:
        self._allowed = allowed
        self._deadline = deadline
        self._resolve = resolve
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        until = time.monotonic() + self._deadline
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in self._checked(host, port):
            try:
                stream = self._sockets.connect_tcp(str(address), port, timeout, None, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as problem:
                failure = problem
            else:
                return _TimedStream(stream, until)
        raise failure

    def _checked(self, host: str, port: int) -> list[Address]:
        addresses = self._addresses(host, port)
        bare = _host_key(host)
        if bare in self._allowed or f"{bare}:{port}" in self._allowed:
            return addresses
        for address in addresses:
            if not is_public(address):
                raise BlockedAddress(
                    f"{host} is at {address}, which is not a public address.",
                    hint=f"If that is meant, add {host!r} to `allow_hosts`.",
                    host=host,
                    address=str(address),
                )
        return addresses

    def _addresses(self, host: str, port: int) -> list[Address]:
        host = host.rstrip(".")
        literal = literal_address(host)
        if literal is not None:
            return [literal]
        try:
            return [ipaddress.ip_address(text) for text in self._resolve(host, port)]
        except (OSError, UnicodeError) as problem:
            raise SourceError(f"The host {host!r} cannot be resolved.", host=host) from problem


class _TimedStream(httpcore.NetworkStream):
    """A connection that ends at its deadline, however slowly the other side feeds it."""

    def __init__(self, stream: httpcore.NetworkStream, until: float) -> None:
        self._stream = stream
        self._until = until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, self._left(timeout))
        return _TimedStream(secured, self._until)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def _left(self, timeout: float | None) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the whole request took too long")
        return left if timeout is None else min(left, timeout)


def inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack gzip or zlib in small steps, so that a bomb is noticed by whoever counts the bytes."""
    unpacker = zlib.decompressobj(wbits=47)
    for chunk in chunks:
        rest = chunk
        while rest:
            if unpacker.eof:  # a gzip file may have several members
                unpacker = zlib.decompressobj(wbits=47)
            yield unpacker.decompress(rest, _INFLATE_STEP)
            rest = unpacker.unconsumed_tail or unpacker.unused_data
    yield unpacker.flush()  # at most what the last bits stand for
    if not unpacker.eof:
        raise zlib.error("the packed data are cut off")


@contextmanager
def _named_failures(url: str) -> Generator[None]:
    try:
        yield
    except _FAILURES as problem:
        raise SourceError(f"{url} cannot be read: {problem or type(problem).__name__}", url=url) from problem


def may_have_arrived(error: SourceError) -> bool:
    """Whether a request that failed with this error may have reached its server."""
    unsent = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout, httpcore.UnsupportedProtocol)
    return isinstance(error.__cause__, _FAILURES) and not isinstance(error.__cause__, unsent)


def _decoded(chunks: Iterator[bytes], encoding: str, url: str) -> Iterator[bytes]:
    if encoding.lower() in ("", "identity"):
        yield from chunks
        return
    if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
        raise SourceError(f"{url} is encoded as {encoding!r}, which was not asked for.", url=url)
    try:
        yield from inflate(chunks)
    except zlib.error as problem:
        raise SourceError(f"{url} is not valid {encoding}.", url=url) from problem


def _bounded(chunks: Iterator[bytes], limit: int, url: str) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise SourceError(f"{url} is larger than {limit} bytes.", url=url, limit=limit)
        yield chunk


def _host_key(host: str) -> str:
    return host.lower().strip("[]").replace("]:", ":").rstrip(".")
