"""How frames reach a node and come back over HTTP, and what any such line has to do. Knows bytes, not their sense."""

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

from portico.client import TIMEOUT, BadAnswer, ClientError, NotReached
from portico.client import Frames as Events
from portico.protocols.nwp.frames import (
    LARGEST,
    VERSION,
    ErrorFrame,
    Frame,
    FrameError,
    Header,
    Reader,
    Tier,
    Type,
    decode,
    decode_as,
    encode,
    encode_value,
    read_header,
)

PORT: Final = 17433  # of nwp:// addresses that name none
SITE: Final = "site"  # the node that leads to all others
NOT_MODIFIED: Final = 304

Ident: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A certificate: as an object, as the JSON that it is written in, or the path of the file that has it."""


class NwpError(ClientError):
    """A node says that it cannot. `status` is the suite's and `error` the protocol's, or HTTP_ and a number."""

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
        self.http_status = http_status  # None where the answer came natively

    @property
    def retry_after(self) -> float | None:
        """Seconds."""
        said: Any = self.details.get("retry_after")
        return float(said) if isinstance(said, int | float) and not isinstance(said, bool) else None


class FeedExpired(NwpError):
    """A subscription cannot be taken up again: what was missed is no longer known. Read all, and subscribe anew."""


def failure(frame: ErrorFrame, http_status: int | None = None) -> NwpError:
    kind = FeedExpired if frame.error == "NWP-SUBSCRIBE-SEQ-TOO-OLD" else NwpError
    id: Any = frame.request_id or frame.details.get("request_id")
    return kind(frame.status, frame.error, frame.message, frame.details, id, http_status)


def decoded(raw: bytes, reader: Reader | None = None) -> Frame:
    """The frame that bytes are."""
    try:
        return reader.decode(raw) if reader else decode(raw)
    except FrameError as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error


def accepted(frame: Frame) -> Frame:
    """The same, unless it says that something went wrong: that is raised."""
    if isinstance(frame, ErrorFrame):
        raise failure(frame)
    return frame


@dataclass(frozen=True, slots=True)
class Document:
    """What stands at an address below a node."""

    status: int
    body: bytes
    tag: str = ""


class Line(Protocol):
    """How a client reaches a node. What is not reached raises NotReached, and what is refused NwpError."""

    @property
    def is_addressed(self) -> bool:
        """Whether the address says which node is meant; else frames have to."""
        ...

    async def get(self, path: str, **headers: str) -> Document: ...

    async def ask(self, path: str, frame: Frame, patience: float, reader: Reader | None = None) -> Frame:
        """The frame that answers another. A line that knows whom it is for has its records read by the way."""
        ...

    def frames(
        self, path: str, frame: Frame, patience: float | None, reader: Reader | None = None
    ) -> AsyncGenerator[Frame]:
        """The frames that answer one, as they come. Closing it ends a stream; a subscription can be taken up again."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks: the holder of a key, of a certificate (NIP), or somebody who only says a name."""

    key: str = ""
    ident: Mapping[str, Any] | None = None
    agent: str = ""

    @property
    def headers(self) -> dict[str, str]:
        said = {"x-nwp-version": VERSION}
        if self.key:
            said["authorization"] = f"Bearer {self.key}"
        if self.ident:
            said["x-nwp-ident"] = base64.urlsafe_b64encode(msgspec.json.encode(self.ident)).decode().rstrip("=")
        if self.name:
            said["x-nwp-agent"] = self.name
        return said

    @property
    def name(self) -> str:
        return self.agent or str((self.ident or {}).get("nid", ""))


def certificate_of(ident: Ident) -> Mapping[str, Any]:
    """The certificate itself. Raises ValueError for what is none, and OSError if there is no such file."""
    match ident:
        case Mapping():
            return ident
        case bytes():
            written = ident
        case str() if ident.lstrip().startswith("{"):
            written = ident
        case _:
            written = Path(ident).read_bytes()
    try:
        return msgspec.json.decode(written, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"The certificate is not a JSON object: {error}") from error


def address(url: str, node: str = "") -> httpx.URL:
    """Where a node is over HTTP. The address of a site will do, with the name of a node or for the site as a whole."""
    given = httpx.URL(url)
    if given.scheme not in {"http", "https", "nwp", "nwps"} or not given.host:
        raise ValueError(f"{url!r} is not the address of a node: write http://127.0.0.1:8000/nwp/{SITE}")
    path = given.path.strip("/")
    if given.scheme in {"nwp", "nwps"}:
        scheme = given.scheme.replace("nwp", "http")
        return given.copy_with(scheme=scheme, port=given.port or PORT, path=f"/nwp/{node or path or SITE}/")
    if node or not path:
        path = "/".join(filter(None, (path, "nwp", node or SITE)))
    return given.copy_with(path=f"/{path}/", query=None)


class HttpLine:
    """Frames as bodies of requests, with their header or bare."""

    is_addressed = True

    def __init__(self, http: httpx.AsyncClient, tier: Tier, largest: int, *, framed: bool = True) -> None:
        self._http = http
        self._tier = tier
        self._largest = largest
        self._framed = framed

    async def get(self, path: str, **headers: str) -> Document:
        async with self._sent("GET", path, {"accept": "application/json", **headers}, TIMEOUT) as response:
            return Document(response.status_code, await self._body(response), response.headers.get("etag", ""))

    async def ask(self, path: str, frame: Frame, patience: float, reader: Reader | None = None) -> Frame:
        async with self._posted(path, frame, "", patience) as response:
            return accepted(decoded(_framed(await self._body(response)), reader))

    async def frames(
        self, path: str, frame: Frame, patience: float | None, reader: Reader | None = None
    ) -> AsyncGenerator[Frame]:
        accept = "text/event-stream, " if path == "subscribe" else ""
        async with self._posted(path, frame, accept, patience) as response:
            cut = _CUTTERS.get(_kind(response), Cutter)(self._largest)
            async for piece in response.aiter_bytes():
                for each in cut.feed(piece):
                    yield accepted(decoded(each, reader))

    async def close(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def _posted(
        self, path: str, frame: Frame, accept: str, patience: float | None
    ) -> AsyncGenerator[httpx.Response]:
        is_json = not self._framed and self._tier == Tier.JSON
        body = encode(frame, self._tier) if self._framed else encode_value(frame, self._tier)
        headers = {
            "content-type": "application/json" if is_json else "application/nwp-frame",
            "accept": accept + ("application/json" if is_json else "application/nwp-capsule"),
            "x-nwp-encoding": self._tier.token,
            "prefer": "large-frames",  # they are found by their headers here, wherever reads cut them
        }
        async with self._sent("POST", path, headers, patience, body) as response:
            yield response

    @asynccontextmanager
    async def _sent(
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
                raise BadAnswer("The answer is too large")
        return bytes(body)


def _kind(response: httpx.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _refusal(response: httpx.Response, body: bytes) -> ClientError:
    status = response.status_code
    if status < 400:
        return BadAnswer(f"The server answers elsewhere (status {status}); redirects are not followed")
    with suppress(FrameError):
        said = decode_as(ErrorFrame, body, Tier.JSON)
        wait = response.headers.get("retry-after", "")
        after = {"retry_after": float(wait)} if re.fullmatch(r"[0-9]{1,6}", wait) else {}
        return failure(msgspec.structs.replace(said, details={**after, **said.details}), status)
    return NwpError("", f"HTTP_{status}", f"The server answered with status {status}", http_status=status)


def _framed(body: bytes) -> bytes:
    """An answer with a header, which a bare one gets here: JSON begins with a brace, an object of MessagePack above."""
    if not body or (body[0] < 0x80 and body[0] != ord("{")):
        return body
    tier = Tier.JSON if body[0] == ord("{") else Tier.MSGPACK
    return Header(Type.CAPS, tier, len(body), is_extended=len(body) > LARGEST).encode() + body


class Cutter:
    """Frames out of bytes, however these are cut. None is larger than a bound."""

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
            raise BadAnswer("The answer is too large")
        return header.size + header.length


class _Lines:
    """Parts of a stream as lines of JSON."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._waiting = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *ended, self._waiting = (self._waiting + piece).split(b"\n")
        if len(self._waiting) > self._largest:
            raise BadAnswer("The answer is too large")
        for line in filter(None, ended):
            header = Header(Type.STREAM, Tier.JSON, len(line), is_extended=len(line) > LARGEST)
            yield header.encode() + line


class _Told:
    """Frames in base64, as the data of events."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._events = Events()
        self._unended = 0  # bytes since the last event

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._unended += len(piece)
        for _, data in self._events.feed(piece):
            self._unended = 0
            try:
                yield base64.b64decode(data, validate=True)
            except ValueError as error:
                raise BadAnswer("The answer is not NWP: an event is no frame") from error
        if self._unended > 2 * self._largest:
            raise BadAnswer("The answer is too large")


_CUTTERS: Final[Mapping[str, Callable[[int], Cutter | _Lines | _Told]]] = {
    "application/x-ndjson": _Lines,
    "text/event-stream": _Told,
}


def http_client(
    url: httpx.URL,
    credentials: Credentials,
    timeout: float,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    verify: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:
    # Nothing from the environment: a proxy or a .netrc there would learn the key.
    return httpx.AsyncClient(
        base_url=url,
        headers=credentials.headers,
        timeout=timeout,
        transport=transport,
        verify=verify or url.scheme == "https",  # to read all certificates takes longer than most requests
        trust_env=False,
        follow_redirects=False,
    )
