"""Telling callers of their tasks at an address of theirs, which is checked when it is named and when it is used.

A process tells of the tasks that it was given; what it could not tell when it stopped is not told later.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeAlias

import msgspec
from a2a.compat.v0_3 import conversions
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, PushNotificationNotSupportedError, TaskNotFoundError
from google.protobuf import json_format

from portico.errors import BadRequest, RateLimited, SiteError, Unauthenticated, Unavailable
from portico.operations.webhooks import Callbacks
from portico.protocols.a2a.task_records import Cupboard, Errand, Event
from portico.protocols.http import ended
from portico.requests import Caller

MAX_CONFIGS = 5  # addresses of a task
MAX_HEADER = 2000  # characters of a token or of credentials
PAUSES = (0.2, 2.0, 10.0)  # before a message is sent again
TOKEN = "X-A2A-Notification-Token"  # noqa: S105 - the name of a header

Following: TypeAlias = Callable[[], AsyncGenerator[Event]]  # what happens to an errand, as it happens


class Address(msgspec.Struct, frozen=True):
    """Where to tell of a task, and how to prove who tells it."""

    id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    earlier: bool = False  # named by a client of 0.3, which reads tasks of 0.3

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers[TOKEN] = self.token
        if self.scheme and self.credentials:
            headers["Authorization"] = f"{self.scheme} {self.credentials}"
        return headers

    def shown(self, task: str) -> pb.TaskPushNotificationConfig:
        config = pb.TaskPushNotificationConfig(id=self.id, task_id=task, url=self.url, token=self.token)
        if self.scheme:
            config.authentication.scheme = self.scheme
            config.authentication.credentials = self.credentials
        return config


class Push:
    """The addresses of tasks, and the messages to them. Without callbacks there are none."""

    def __init__(self, cupboard: Cupboard, callbacks: Callbacks | None, most: int) -> None:
        self._cupboard = cupboard
        self._callbacks = callbacks
        self._most = most  # tasks of one caller that are told of at the same time
        self._followed: set[str] = set()  # tasks whose end somebody waits for
        self._telling: dict[asyncio.Task[None], str] = {}  # who waits or tells, and for which caller

    async def check(self, task: str, config: pb.TaskPushNotificationConfig, caller: Caller) -> None:
        """Refuse an address that must not be used, or a caller whom nobody could hold to account for it."""
        if caller.is_anonymous:
            raise Unauthenticated("Only callers with a name are called back", hint="Send an API key.")
        self._allowed().check(config.url)
        for text in (config.id, config.token, config.authentication.scheme, config.authentication.credentials):
            if len(text) > MAX_HEADER or not (text.isascii() and text.isprintable()):
                raise BadRequest("Ids, tokens and credentials of callbacks are plain text, and short")
        if list(self._telling.values()).count(caller.rate_key) >= self._most:
            raise RateLimited(f"{self._most} tasks are told of already", hint="Wait for one to finish.")
        await self._others(task, config.id, caller)

    async def add(
        self, task: str, config: pb.TaskPushNotificationConfig, caller: Caller, *, earlier: bool
    ) -> pb.TaskPushNotificationConfig:
        """Keep an address that was checked."""
        said, id = config.authentication, config.id or str(uuid.uuid4())
        address = Address(id, config.url, config.token, said.scheme, said.credentials, earlier)
        async with self._cupboard.changing(_name(task), caller):
            await self._put(task, [*await self._others(task, id, caller), address], caller)
        return address.shown(task)

    async def remove(self, task: str, id: str, caller: Caller) -> None:
        async with self._cupboard.changing(_name(task), caller):
            known = await self.addresses(task, caller)
            await self._put(task, [each for each in known if each.id != id], caller)

    async def _others(self, task: str, id: str, caller: Caller) -> list[Address]:
        """The addresses of a task beside one, for which there must be room."""
        others = [each for each in await self.addresses(task, caller) if each.id != id]
        if len(others) >= MAX_CONFIGS:
            raise InvalidParamsError(f"A task has at most {MAX_CONFIGS} addresses")
        return others

    async def one(self, task: str, id: str, caller: Caller) -> pb.TaskPushNotificationConfig:
        found = next((each for each in await self.addresses(task, caller) if each.id == id), None)
        if found is None:
            raise TaskNotFoundError("There is no such address")
        return found.shown(task)

    async def addresses(self, task: str, caller: Caller) -> list[Address]:
        self._allowed()
        note = await self._cupboard.get(_name(task), caller)
        return [] if note is None else msgspec.msgpack.decode(note, type=list[Address])

    def follow(self, errand: Errand, caller: Caller, following: Following) -> None:
        """Tell of an errand when it has ended or waits for its caller. Nothing happens if somebody does already."""
        id = errand.task.id
        if id in self._followed:
            return
        self._followed.add(id)
        telling = asyncio.create_task(self._tell(errand, caller, following))
        self._telling[telling] = caller.rate_key
        telling.add_done_callback(self._telling.pop)

    async def close(self) -> None:
        if self._telling:
            await ended(*self._telling)

    async def _tell(self, errand: Errand, caller: Caller, following: Following) -> None:
        with suppress(SiteError):  # the store is away: the caller can still ask when it is back
            try:
                await _ended(following())
            finally:
                self._followed.discard(errand.task.id)
            task = errand.snapshot()
            addresses = await self.addresses(task.id, caller)
            await asyncio.gather(*(self._send(each, task) for each in addresses))

    async def _send(self, address: Address, task: pb.Task) -> None:
        """Send until it is taken, a few times. Whoever takes nothing can still ask."""
        body = msgspec.json.encode(_shown(task, earlier=address.earlier))
        for pause in (*PAUSES, None):
            with suppress(Unavailable, BadRequest):
                if await self._allowed().send(address.url, body, address.headers) < 300:
                    return
            if pause is not None:
                await asyncio.sleep(pause)

    async def _put(self, task: str, addresses: list[Address], caller: Caller) -> None:
        await self._cupboard.put(_name(task), msgspec.msgpack.encode(addresses), caller)

    def _allowed(self) -> Callbacks:
        if self._callbacks is None:
            raise PushNotificationNotSupportedError("This agent calls nobody back")
        return self._callbacks


def _name(task: str) -> str:
    return f"a2a/push/{task}"


async def _ended(events: AsyncGenerator[Event]) -> None:
    async with aclosing(events):
        async for _ in events:
            pass


def _shown(task: pb.Task, *, earlier: bool) -> Any:
    if earlier:
        return conversions.to_compat_task(task).model_dump(mode="json", by_alias=True, exclude_none=True)
    return json_format.MessageToDict(pb.StreamResponse(task=task))
