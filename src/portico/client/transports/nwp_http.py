"""The HTTP transport of NWP, and the interface of all its transports. Moves frames without interpreting them."""

import base64
import os
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import httpx
import msgspec

from portico.client import BadAnswer, ClientError, NotReached
from portico.client.sse import SseDecoder as Events
from portico.client.transports.http import TIMEOUT
from portico.protocols.nwp.frames import (
    LARGEST,
    VERSION,
    EncodingTier,
    ErrorFrame,
    Frame,
    FrameError,
    FrameHeader,
    FrameType,
    RecordReader,
    decode,
    decode_as,
    encode,
    encode_value,
    read_header,
)

PORT: Final = 17433  # default of nwp:// addresses
SITE: Final = "site"  # the node of the whole site
NOT_MODIFIED: Final = 304

Ident: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A certificate: an object, its JSON, or the path of a file."""


class NwpError(ClientError):
    """The node refuses. `status` is the code of the suite; `error` is that of the protocol, or HTTP_ and a number."""

    def __init__(
        self,
        status: str,
        error: str,
        message: str = "",
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init__(message or error)
        self.status = status
        self.error = error
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.request_id = request_id
        self.http_status = http_status  # None over a native connection

    @property
    def retry_after(self) -> float | None:
        """Seconds."""
        value: Any = self.details.get("retry_after")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class FeedExpired(NwpError):
    """A subscription cannot be resumed, because its missed changes are gone. Read all records and subscribe again."""


def failure(frame: ErrorFrame, http_status: int | None = None) -> NwpError:
    kind = FeedExpired if frame.error == "NWP-SUBSCRIBE-SEQ-TOO-OLD" else NwpError
    id: Any = frame.request_id or frame.details.get("request_id")
    return kind(frame.status, frame.error, frame.message, frame.details, id, http_status)


def decode_frame(raw: bytes, reader: RecordReader | None = None) -> Frame:
    """Decode a frame. Raise BadAnswer if it is invalid."""
    try:
        return reader.decode(raw) if reader else decode(raw)
    except FrameError as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error


def raise_if_error(frame: Frame) -> Frame:
    """Return the frame, or raise the error that it is."""
    if isinstance(frame, ErrorFrame):
        raise failure(frame)
    return frame


@dataclass(frozen=True, slots=True)
class NodeDocument:
    """A document below a node."""

    status: int
    body: bytes
    tag: str = ""


class NodeTransport(Protocol):
    """Sends frames to a node. Raises NotReached if there is no connection, and NwpError if the node refuses."""

    @property
    def is_addressed(self) -> bool:
        """Whether the address names the node; otherwise, frames do."""
        ...

    async def get(self, path: str, **headers: str) -> NodeDocument: ...

    async def ask(self, path: str, frame: Frame, patience: float, reader: RecordReader | None = None) -> Frame:
        """Return the response to a frame. `reader` decodes its records, if the transport can tell them apart."""
        ...

    def frames(
        self, path: str, frame: Frame, patience: float | None, reader: RecordReader | None = None
    ) -> AsyncGenerator[Frame]:
        """Yield the responses to a frame. Closing it ends a stream; a subscription can be resumed."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeCredentials:
    """The credentials of a client: an API key, a certificate (NIP), or just a name."""

    key: str = ""
    ident: Mapping[str, Any] | None = None
    agent: str = ""

    @property
    def headers(self) -> dict[str, str]:
        headers = {"x-nwp-version": VERSION}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        if self.ident:
            headers["x-nwp-ident"] = base64.urlsafe_b64encode(msgspec.json.encode(self.ident)).decode().rstrip("=")
        if self.name:
            headers["x-nwp-agent"] = self.name
        return headers

    @property
    def name(self) -> str:
        return self.agent or str((self.ident or {}).get("nid", ""))


def certificate_of(ident: Ident) -> Mapping[str, Any]:
    """Return the certificate. Raise ValueError if it is invalid, and OSError if the file cannot be read."""
    match ident:
        case Mapping():
            return ident
        case bytes():
            text = ident
        case str() if ident.lstrip().startswith("{"):
            text = ident
        case _:
            text = Path(ident).read_bytes()
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"The certificate is not a JSON object: {error}") from error


def address(url: str, node: str = "") -> httpx.URL:
    """Return the HTTP URL of a node, from its own URL or from that of its site and its name."""
    parts = httpx.URL(url)
    if parts.scheme not in {"http", "https", "nwp", "nwps"} or not parts.host:
        raise ValueError(f"{url!r} is not the address of a node: write http://127.0.0.1:8000/nwp/{SITE}")
    path = parts.path.strip("/")
    if parts.scheme in {"nwp", "nwps"}:
        scheme = parts.scheme.replace("nwp", "http")
        return parts.copy_with(scheme=scheme, port=parts.port or PORT, path=f"/nwp/{node or path or SITE}/")
    if node or not path:
        path = "/".join(filter(None, (path, "nwp", node or SITE)))
    return parts.copy_with(path=f"/{path}/", query=None)


class HttpNodeTransport:
    """Sends frames as bodies of HTTP requests, with or without their headers."""

    is_addressed = True

    def __init__(self, http: httpx.AsyncClient, tier: EncodingTier, largest: int, *, framed: bool = True) -> None:
        self._http = http
        self._tier = tier
        self._largest = largest
        self._framed = framed

    async def get(self, path: str, **headers: str) -> NodeDocument:
        async with self._send("GET", path, {"accept": "application/json", **headers}, TIMEOUT) as response:
            return NodeDocument(response.status_code, await self._body(response), response.headers.get("etag", ""))

    async def ask(self, path: str, frame: Frame, patience: float, reader: RecordReader | None = None) -> Frame:
        async with self._post(path, frame, "", patience) as response:
            return raise_if_error(decode_frame(_with_header(await self._body(response)), reader))

    async def frames(
        self, path: str, frame: Frame, patience: float | None, reader: RecordReader | None = None
    ) -> AsyncGenerator[Frame]:
        accept = "text/event-stream, " if path == "subscribe" else ""
        async with self._post(path, frame, accept, patience) as response:
            decoder = _DECODERS.get(_kind(response), FrameSplitter)(self._largest)
            async for piece in response.aiter_bytes():
                for raw in decoder.feed(piece):
                    yield raise_if_error(decode_frame(raw, reader))

    async def close(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def _post(
        self, path: str, frame: Frame, accept: str, patience: float | None
    ) -> AsyncGenerator[httpx.Response]:
        is_json = not self._framed and self._tier == EncodingTier.JSON
        body = encode(frame, self._tier) if self._framed else encode_value(frame, self._tier)
        headers = {
            "content-type": "application/json" if is_json else "application/nwp-frame",
            "accept": accept + ("application/json" if is_json else "application/nwp-capsule"),
            "x-nwp-encoding": self._tier.token,
            "prefer": "large-frames",  # frames are split by their headers, so their size does not matter
        }
        async with self._send("POST", path, headers, patience, body) as response:
            yield response

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], patience: float | None, body: bytes | None = None
    ) -> AsyncGenerator[httpx.Response]:
        waits = httpx.Timeout(TIMEOUT, read=patience)
        try:
            async with self._http.stream(method, path, headers=headers, content=body, timeout=waits) as response:
                if response.status_code >= 300 and response.status_code != NOT_MODIFIED:
                    raise _refusal(response, await self._body(response))
                yield response
        except httpx.HTTPError as error:
            raise NotReached(f"The node cannot be reached: {str(error) or type(error).__name__}") from error

    async def _body(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > self._largest:
                raise BadAnswer("The response is too large")
        return bytes(body)


def _kind(response: httpx.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _refusal(response: httpx.Response, body: bytes) -> ClientError:
    status = response.status_code
    if status < 400:
        return BadAnswer(f"The server redirects (status {status}); redirects are not followed")
    with suppress(FrameError):
        error = decode_as(ErrorFrame, body, EncodingTier.JSON)
        wait = response.headers.get("retry-after", "")
        after = {"retry_after": float(wait)} if re.fullmatch(r"[0-9]{1,6}", wait) else {}
        return failure(msgspec.structs.replace(error, details={**after, **error.details}), status)
    return NwpError("", f"HTTP_{status}", f"The server answered with status {status}", http_status=status)


def _with_header(body: bytes) -> bytes:
    """Add a header to a bare body: JSON begins with a brace, an object of MessagePack with a byte above 0x7F."""
    if not body or (body[0] < 0x80 and body[0] != ord("{")):
        return body
    tier = EncodingTier.JSON if body[0] == ord("{") else EncodingTier.MSGPACK
    return FrameHeader(FrameType.CAPS, tier, len(body), is_extended=len(body) > LARGEST).encode() + body


class FrameSplitter:
    """Splits chunks of any size into frames. Limits their size."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._waiting = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._waiting += piece
        while (size := self._size()) is not None and size <= len(self._waiting):
            yield bytes(self._waiting[:size])
            del self._waiting[:size]

    def _size(self) -> int | None:
        try:
            header = read_header(bytes(self._waiting[:8]))
        except FrameError as error:
            raise BadAnswer(f"The answer is not NWP: {error}") from error
        if header is None:
            return None
        if header.length > self._largest:
            raise BadAnswer("The response is too large")
        return header.size + header.length


class _JsonLinesDecoder:
    """Decodes the parts of a stream from lines of JSON."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._waiting = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *lines, self._waiting = (self._waiting + piece).split(b"\n")
        if len(self._waiting) > self._largest:
            raise BadAnswer("The response is too large")
        for line in filter(None, lines):
            header = FrameHeader(FrameType.STREAM, EncodingTier.JSON, len(line), is_extended=len(line) > LARGEST)
            yield header.encode() + line


class _SseFrameDecoder:
    """Decodes frames from the base64 data of server-sent events."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._events = Events()
        self._unended = 0  # bytes since the last complete event

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._unended += len(piece)
        for _, data in self._events.feed(piece):
            self._unended = 0
            try:
                yield base64.b64decode(data, validate=True)
            except ValueError as error:
                raise BadAnswer("The answer is not NWP: an event is not a frame") from error
        if self._unended > 2 * self._largest:
            raise BadAnswer("The response is too large")


_DECODERS: Final[Mapping[str, Callable[[int], FrameSplitter | _JsonLinesDecoder | _SseFrameDecoder]]] = {
    "application/x-ndjson": _JsonLinesDecoder,
    "text/event-stream": _SseFrameDecoder,
}


def http_client(
    url: httpx.URL,
    credentials: NodeCredentials,
    timeout: float,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    verify: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:
    # Ignore the environment: its proxy or .netrc could expose the key.
    return httpx.AsyncClient(
        base_url=url,
        headers=credentials.headers,
        timeout=timeout,
        transport=transport,
        verify=verify or url.scheme == "https",  # loading all certificates takes longer than most requests
        trust_env=False,
        follow_redirects=False,
    )
