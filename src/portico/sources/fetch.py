"""The only module that makes requests to the web, for sources and for operations. Refuses private addresses, and
responses that are too large or too slow.

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

import httpcore
import httpx

from portico.errors import BlockedAddress, SourceError
from portico.network import join_url

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Sequence[str]]

USER_AGENT = "Portico/0.1 (+site loader)"
MAX_REDIRECTS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_PORTS = {"http": 80, "https": 443}
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# Special-purpose networks of the IANA registries that not every release of Python knows.
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
class FetchResponse:
    """An open response. `chunks` can be read once, and raises SourceError beyond the limits."""

    url: str
    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def location(self) -> str | None:
        """The target of a redirect, as an absolute URL."""
        target = self.headers.get("location")
        return join_url(self.url, target) if target and self.status in _REDIRECTS else None

    def read(self) -> bytes:
        return b"".join(self.chunks)

    def raise_for_status(self) -> None:
        if self.status != 200:
            raise SourceError(f"{self.url} returned status {self.status}.", url=self.url, status=self.status)


def create_tls_context(ca_file: str) -> ssl.SSLContext:
    """Return a context that trusts the authorities in a PEM file as well as the public ones."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_verify_locations(ca_file)
    return context


class Fetcher:
    """Sends requests over http and https. `timeout` limits the wait for the next bytes, `deadline` a whole request."""

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
        self.requests = 0  # sent so far, redirects aside
        self._max_bytes = max_bytes
        self._timeout = timeout
        guard = _GuardedBackend(frozenset(map(_host_key, allow_hosts)), deadline, resolve or resolve_host)
        # Connections are not reused, so that each request has its own deadline and its own check.
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls or httpx.create_ssl_context(trust_env=False),
            max_keepalive_connections=0,
            network_backend=guard,
        )

    @contextmanager
    def open(
        self,
        url: str,
        *,
        follow: bool = True,
        max_bytes: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Generator[FetchResponse]:
        """Send a GET and yield the response, whatever its status. With `follow`, follow up to five redirects.

        The headers are sent with each request, so they must hold no secrets.
        """
        self.requests += 1
        limit = self._max_bytes if max_bytes is None else max_bytes
        for _ in range(MAX_REDIRECTS + 1):
            with self._request(url, limit, extra=headers) as answer:
                target = answer.location if follow else None
                if target is None:
                    yield answer
                    return
                url = target
        raise SourceError(f"{url} redirects more than {MAX_REDIRECTS} times.", url=url)

    def get(self, url: str, *, max_bytes: int | None = None) -> bytes:
        with self.open(url, max_bytes=max_bytes) as answer:
            answer.raise_for_status()
            return answer.read()

    @contextmanager
    def send(
        self,
        method: str,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str],
        max_bytes: int,
        secret_query: str = "",
    ) -> Generator[FetchResponse]:
        """Send a request and yield the response, whatever its status. Redirects are not followed.

        What is secret of the query is added to the request alone: neither errors nor the response name it.
        """
        with self._request(url, min(max_bytes, self._max_bytes), method, body, headers, secret_query) as answer:
            yield answer

    @contextmanager
    def _request(
        self,
        url: str,
        limit: int,
        method: str = "GET",
        body: bytes = b"",
        extra: Mapping[str, str] | None = None,
        secret_query: str = "",
    ) -> Generator[FetchResponse]:
        address = parse_url(url)
        path = address.raw_path
        if secret_query:
            path += (b"&" if b"?" in path else b"?") + secret_query.encode("ascii")
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout)
        headers: dict[str | bytes, str | bytes] = {
            "Host": address.netloc.decode("ascii"),
            "User-Agent": USER_AGENT,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
            **({"Content-Length": str(len(body))} if body or method in {"POST", "PUT", "PATCH"} else {}),
        }
        # Callers cannot override the headers that decide where a request goes and how long it is.
        headers.update({name: value for name, value in (extra or {}).items() if name.lower() not in _FIXED})
        target = httpcore.URL(scheme=address.raw_scheme, host=address.raw_host, port=address.port, target=path)
        with (
            _translate_errors(url),
            self._pool.stream(
                method, target, headers=headers, content=body or None, extensions={"timeout": timeouts}
            ) as raw,
        ):
            response_headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw.headers}
            chunks = _decode(raw.iter_stream(), response_headers.get("content-encoding", ""), url)
            yield FetchResponse(url, raw.status, response_headers, _limit_size(chunks, limit, url))


def parse_url(url: str) -> httpx.URL:
    """Parse a URL, and refuse one that Portico never fetches. Does not look up its host."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as problem:
        raise SourceError(f"{url!r} is not a URL: {problem}", url=url) from problem
    if parsed.scheme not in ("http", "https"):
        raise SourceError(f"{url!r} is neither http nor https.", url=url, hint="Use an http or https URL.")
    if parsed.userinfo or not parsed.host:
        raise SourceError("The URL must have a host and no user name.", hint="Remove `user@`.")
    return parsed


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL as a request would use them; empty if it cannot be requested."""
    try:
        parsed = parse_url(url)
    except SourceError:
        return ""
    return f"{parsed.scheme}://{parsed.host}:{parsed.port or _PORTS[parsed.scheme]}"


def is_public(address: Address) -> bool:
    """Whether an address is public. Also checks the address that another one embeds."""
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
    """Return the address that a host spells out, in any form a resolver accepts: 127.1, 0x7f000001, 2130706433."""
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


def resolve_host(host: str, port: int) -> Sequence[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class _GuardedBackend(httpcore.NetworkBackend):
    """Connects only to addresses that passed the check."""

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
        for address in self._resolve_allowed(host, port):
            try:
                stream = self._sockets.connect_tcp(str(address), port, timeout, None, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as problem:
                failure = problem
            else:
                return _DeadlineStream(stream, until)
        raise failure

    def _resolve_allowed(self, host: str, port: int) -> list[Address]:
        addresses = self._addresses(host, port)
        bare = _host_key(host)
        if bare in self._allowed or f"{bare}:{port}" in self._allowed:
            return addresses
        for address in addresses:
            if not is_public(address):
                raise BlockedAddress(
                    f"{host} is at {address}, which is not a public address.",
                    hint=f"If this is intended, add {host!r} to `allow_hosts`.",
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


class _DeadlineStream(httpcore.NetworkStream):
    """A connection that ends at its deadline, however slowly the other side sends."""

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
        return _DeadlineStream(secured, self._until)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def _left(self, timeout: float | None) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the whole request took too long")
        return left if timeout is None else min(left, timeout)


def inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack gzip or zlib in small steps, so that the caller can stop at a size limit."""
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
def _translate_errors(url: str) -> Generator[None]:
    try:
        yield
    except _FAILURES as problem:
        raise SourceError(f"{url} cannot be read: {problem or type(problem).__name__}", url=url) from problem


def may_have_arrived(error: SourceError) -> bool:
    """Whether a request that failed with this error may have reached its server."""
    unsent = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout, httpcore.UnsupportedProtocol)
    return isinstance(error.__cause__, _FAILURES) and not isinstance(error.__cause__, unsent)


def _decode(chunks: Iterator[bytes], encoding: str, url: str) -> Iterator[bytes]:
    if encoding.lower() in ("", "identity"):
        yield from chunks
        return
    if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
        raise SourceError(f"{url} is encoded as {encoding!r}, which Portico does not accept.", url=url)
    try:
        yield from inflate(chunks)
    except zlib.error as problem:
        raise SourceError(f"{url} is not valid {encoding}.", url=url) from problem


def _limit_size(chunks: Iterator[bytes], limit: int, url: str) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise SourceError(f"{url} is larger than {limit} bytes.", url=url, limit=limit)
        yield chunk


def _host_key(host: str) -> str:
    return host.lower().strip("[]").replace("]:", ":").rstrip(".")
