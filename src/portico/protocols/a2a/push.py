"""Push notifications: sends tasks to the URLs of their callers, which are checked when they are set and when used.

A process notifies of the tasks that it started. Notifications that fail when it stops are not repeated.
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
from portico.operations.webhooks import WebhookClient
from portico.protocols.a2a.task_records import A2aEvent, NoteCache, TaskRecord
from portico.protocols.http import cancel_and_wait
from portico.requests import Caller

MAX_CONFIGS = 5  # addresses of a task
MAX_HEADER = 2000  # characters of a token or of credentials
PAUSES = (0.2, 2.0, 10.0)  # before a message is sent again
TOKEN = "X-A2A-Notification-Token"  # noqa: S105 - the name of a header

Following: TypeAlias = Callable[[], AsyncGenerator[A2aEvent]]  # the events of a task as they happen


class PushTarget(msgspec.Struct, frozen=True):
    """A URL to notify of a task, and the credentials to send."""

    id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    earlier: bool = False  # set by a client of 0.3, which reads tasks of 0.3

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers[TOKEN] = self.token
        if self.scheme and self.credentials:
            headers["Authorization"] = f"{self.scheme} {self.credentials}"
        return headers

    def to_config(self, task: str) -> pb.TaskPushNotificationConfig:
        config = pb.TaskPushNotificationConfig(id=self.id, task_id=task, url=self.url, token=self.token)
        if self.scheme:
            config.authentication.scheme = self.scheme
            config.authentication.credentials = self.credentials
        return config


class PushNotifier:
    """The notification URLs of tasks, and the messages to them. Without callbacks there are none."""

    def __init__(self, notes: NoteCache, callbacks: WebhookClient | None, most: int) -> None:
        self._notes = notes
        self._callbacks = callbacks
        self._most = most  # tasks of one caller that are told of at the same time
        self._followed: set[str] = set()  # tasks whose end a callback waits for
        self.tasks: dict[asyncio.Task[None], str] = {}  # who waits or tells, and for which caller

    async def check(self, task: str, config: pb.TaskPushNotificationConfig, caller: Caller) -> None:
        """Refuse a URL that must not be used, or an anonymous caller."""
        if caller.is_anonymous:
            raise Unauthenticated(
                "Only callers with an API key can be notified", hint="Send one as a bearer token or x-api-key."
            )
        self._enabled_callbacks().check(config.url)
        for text in (config.id, config.token, config.authentication.scheme, config.authentication.credentials):
            if len(text) > MAX_HEADER or not (text.isascii() and text.isprintable()):
                raise BadRequest(
                    f"IDs, tokens and credentials of callbacks must be printable ASCII, up to {MAX_HEADER} characters"
                )
        if list(self.tasks.values()).count(caller.rate_key) >= self._most:
            raise RateLimited(
                f"{self._most} tasks with notifications are running already", hint="Wait for one to finish."
            )
        await self._others(task, config.id, caller)

    async def add(
        self, task: str, config: pb.TaskPushNotificationConfig, caller: Caller, *, earlier: bool
    ) -> pb.TaskPushNotificationConfig:
        """Store a URL that was checked."""
        authentication, id = config.authentication, config.id or str(uuid.uuid4())
        address = PushTarget(id, config.url, config.token, authentication.scheme, authentication.credentials, earlier)
        async with self._notes.lock(_name(task), caller):
            await self._put(task, [*await self._others(task, id, caller), address], caller)
        return address.to_config(task)

    async def remove(self, task: str, id: str, caller: Caller) -> None:
        async with self._notes.lock(_name(task), caller):
            targets = await self.addresses(task, caller)
            await self._put(task, [target for target in targets if target.id != id], caller)

    async def _others(self, task: str, id: str, caller: Caller) -> list[PushTarget]:
        """Return the other URLs of a task, among which there must be room for one more."""
        others = [target for target in await self.addresses(task, caller) if target.id != id]
        if len(others) >= MAX_CONFIGS:
            raise InvalidParamsError(f"A task may have at most {MAX_CONFIGS} notification URLs")
        return others

    async def one(self, task: str, id: str, caller: Caller) -> pb.TaskPushNotificationConfig:
        target = next((candidate for candidate in await self.addresses(task, caller) if candidate.id == id), None)
        if target is None:
            raise TaskNotFoundError("There is no such notification URL")
        return target.to_config(task)

    async def addresses(self, task: str, caller: Caller) -> list[PushTarget]:
        self._enabled_callbacks()
        note = await self._notes.get(_name(task), caller)
        return [] if note is None else msgspec.msgpack.decode(note, type=list[PushTarget])

    def follow(self, record: TaskRecord, caller: Caller, following: Following) -> None:
        """Notify when a task has ended or waits for its caller. Does nothing if the task is followed already."""
        id = record.task.id
        if id in self._followed:
            return
        self._followed.add(id)
        task = asyncio.create_task(self._notify(record, caller, following))
        self.tasks[task] = caller.rate_key
        task.add_done_callback(self.tasks.pop)

    async def close(self) -> None:
        if self.tasks:
            await cancel_and_wait(*self.tasks)

    async def _notify(self, record: TaskRecord, caller: Caller, following: Following) -> None:
        with suppress(SiteError):  # the store is down: the caller can get the task when it is back
            try:
                async with aclosing(following()) as events:
                    async for _ in events:
                        pass
            finally:
                self._followed.discard(record.task.id)
            task = record.snapshot()
            addresses = await self.addresses(task.id, caller)
            await asyncio.gather(*(self._send(target, task) for target in addresses))

    async def _send(self, address: PushTarget, task: pb.Task) -> None:
        """Send a task, and repeat it a few times until it is accepted. The client can still get the task itself."""
        body = msgspec.json.encode(_notification_body(task, earlier=address.earlier))
        for pause in (*PAUSES, None):
            with suppress(Unavailable, BadRequest):
                if await self._enabled_callbacks().send(address.url, body, address.headers) < 300:
                    return
            if pause is not None:
                await asyncio.sleep(pause)

    async def _put(self, task: str, addresses: list[PushTarget], caller: Caller) -> None:
        await self._notes.put(_name(task), msgspec.msgpack.encode(addresses), caller)

    def _enabled_callbacks(self) -> WebhookClient:
        if self._callbacks is None:
            raise PushNotificationNotSupportedError("This agent does not send push notifications")
        return self._callbacks


def _name(task: str) -> str:
    return f"a2a/push/{task}"


def _notification_body(task: pb.Task, *, earlier: bool) -> Any:
    if earlier:
        return conversions.to_compat_task(task).model_dump(mode="json", by_alias=True, exclude_none=True)
    return json_format.MessageToDict(pb.StreamResponse(task=task))
