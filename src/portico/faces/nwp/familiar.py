"""Questions of callers without a name. What they have in common is read once, and so are those that come again.

What decides whether there is an answer, and whether it is still the same, is asked every time.
"""

import asyncio
import itertools
import secrets
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.types import Message, Receive, Scope

from portico.calls import Caller
from portico.connections import WHOLE
from portico.faces.nwp.exchange import Answer, Asking
from portico.faces.nwp.forms import Form
from portico.faces.nwp.frames import QueryFrame
from portico.faces.wire import BODY_SECONDS

SHORT: Final = 2048  # bytes of a question that is kept, and of its headers
HEADERS: Final = 32  # of one
NAMED: Final = (b"x-nwp-", b"authorization", b"x-api-key", b"origin")  # how headers begin that tell callers apart

Head: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Familiar:
    """A question as it was understood, and what was last sent in answer."""

    frame: QueryFrame
    asking: Asking
    form: Form
    answer: Answer
    head: Head
    body: bytes
    lines: bytes = b""  # the head as it is sent, once that is wanted

    @property
    def caller(self) -> Caller:
        return self.asking.caller

    def is_same(self, answer: Answer) -> bool:
        return answer is self.answer

    def renew(self, answer: Answer, head: Head, body: bytes) -> None:
        self.answer, self.head, self.body, self.lines = answer, head, body, b""


@dataclass(frozen=True, slots=True)
class Setting:
    """What questions have in common that differ in their bodies alone: who asks whom, and in which way."""

    asking: Asking  # one of them
    headers: Mapping[str, str]


def written(head: Head) -> bytes:
    """Headers as HTTP/1.1 has them."""
    return b"".join([b"%b: %b\r\n" % pair for pair in head])


async def first_of(scope: Scope, receive: Receive) -> tuple[Message | None, Receive]:
    """What arrives first of a request, and the request as if it had not been read. None if it takes its time."""
    if WHOLE in scope.get("extensions", ()):  # it is there: a deadline would cost more than to read it
        message = await receive()
    else:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await receive()
        except TimeoutError:
            return None, receive
    waiting = [message]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return message, again


def short_body(message: Message | None, most: int) -> bytes | None:
    """The body of a request that came whole with its first message and is worth keeping, else None."""
    if message is None or message["type"] != "http.request" or message.get("more_body"):
        return None
    body = message.get("body", b"")
    return body if is_short(body, most) else None


def is_short(body: bytes, most: int) -> bool:
    return len(body) <= min(SHORT, most)


def key_of(scope: Scope, body: bytes | None) -> Hashable | None:
    """What tells a question from others; None if it is not worth keeping. Whose it is the headers tell, too."""
    if body is None:
        return None
    client = scope.get("client")
    return key_for(scope["path"], scope["scheme"], client[0] if client else "", scope["headers"], body)


def key_for(path: str, scheme: str, client: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Hashable:
    return path, scheme, client, body, *headers


def setting_of(scope: Scope) -> Hashable:
    """What tells the setting of a question from others."""
    client = scope.get("client")
    return setting_for(scope["path"], scope["scheme"], client[0] if client else "", scope["headers"])


def setting_for(path: str, scheme: str, client: str, headers: Iterable[tuple[bytes, bytes]]) -> Hashable:
    return path, scheme, client, *[each for each in headers if each[0] != b"content-length"]


def is_anybodys(scope: Scope) -> bool:
    """Whether nothing in a request tells its caller from others, and not much is said about it."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if len(headers) > HEADERS or sum(len(name) + len(value) for name, value in headers) > SHORT:
        return False
    return not any(name.startswith(NAMED) for name, _ in headers)


class Ids:
    """Names for requests that have none: UUIDs, random in their first part and counted in the last."""

    def __init__(self) -> None:
        random = secrets.token_hex(16)
        self._start = f"{random[:8]}-{random[8:12]}-4{random[13:16]}-8{random[17:20]}-"
        self._count = itertools.count(secrets.randbits(40))

    def next(self) -> str:
        return f"{self._start}{next(self._count) & 0xFFFFFFFFFFFF:012x}"
