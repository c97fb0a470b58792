"""Telling callers at an address of theirs that a task has ended, as system.task.status would (NWP 7.1, 13.6).

The process in which a task ended tells of it. What could not be told when it stopped is not told later: the caller can
still ask. Whatever becomes of a notice, the task stays as it is.
"""

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from portico.config import Config, secret
from portico.errors import BadRequest, RateLimited, SiteError, Unavailable
from portico.operations.webhooks import Callbacks
from portico.protocols.http import ended
from portico.protocols.nwp.actions import shown
from portico.protocols.nwp.encodings import header_form
from portico.protocols.nwp.frames import Tier, encode_value
from portico.requests import Task
from portico.site import Site
from portico.telemetry import Broke, Observe

PAUSES: Final = (1.0, 2.0)  # seconds before a notice is sent again
MAX_WAITING: Final = 256  # notices under way
PER_MINUTE: Final = 60  # messages to one host
MAX_HOSTS: Final = 1024  # whose messages are counted
WHERE: Final = "nwp callback"

Sign: TypeAlias = Callable[[bytes], str]


class Notices:
    """Tells of every task that ends in this process and has an address to tell it to."""

    def __init__(
        self,
        site: Site,
        callbacks: Callbacks,
        sign: Sign,
        config: Config,
        observe: Observe,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        named = config.nwp.callback_secret
        self._callbacks = callbacks
        self._sign = _signing(secret(named)) if named else sign
        self._observe = observe
        self._pauses = pauses
        self._pace = Pace(PER_MINUTE)
        self._telling: set[asyncio.Task[None]] = set()
        self._closed = False
        site.tasks.on_end(self._begin)

    async def close(self) -> None:
        """Tell nothing more."""
        self._closed = True
        if self._telling:
            await ended(*self._telling)

    def _begin(self, task: Task) -> None:
        if not task.call.callback or self._closed:
            return
        if len(self._telling) >= MAX_WAITING:
            self._observe(Broke(WHERE, f"{MAX_WAITING} notices wait already"))
            return
        telling = asyncio.create_task(self._tell(task))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, task: Task) -> None:
        """Send until it is taken, a few times."""
        body, problem = encode_value(shown(task), Tier.JSON), ""
        try:
            # The first signature reads the key of the node.
            headers = _headers(task, await asyncio.to_thread(self._sign, body))
        except SiteError as error:
            self._observe(Broke(WHERE, error.message, error))
            return
        for pause in (*self._pauses, None):
            try:
                status = await self._send(task.call.callback, body, headers)
            except (Unavailable, BadRequest, RateLimited) as error:
                # Its message has the whole address, which may be a secret.
                problem = str(error.details.get("reason") or type(error).__name__)
            else:
                if 200 <= status < 300:
                    return
                problem = str(status)
            if pause is not None:
                await asyncio.sleep(pause)
        self._observe(Broke(WHERE, f"{urlsplit(task.call.callback).hostname} was not told: {problem}"))

    async def _send(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        parts = urlsplit(url)
        if parts.scheme != "https":
            raise BadRequest("Callbacks of tasks go over https")
        self._pace.take(parts.hostname or "")
        return await self._callbacks.send(url, body, headers)


class Pace:
    """How many messages a host gets in a minute, whoever they are for."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._sent: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, host: str) -> None:
        now = self._clock()
        sent = self._sent.setdefault(host, deque(maxlen=self._most))
        self._sent.move_to_end(host)
        if len(self._sent) > MAX_HOSTS:
            self._sent.popitem(last=False)
        if len(sent) == self._most and now - sent[0] < 60:
            raise RateLimited(f"More than {self._most} messages to one host in a minute")
        sent.append(now)


def _headers(task: Task, signature: str) -> dict[str, str]:
    said = {"Content-Type": "application/json", "X-NWP-Signature": signature}
    return {**said, "X-NWP-Request-ID": header_form(task.call.request)} if task.call.request else said


def _signing(key: str) -> Sign:
    def sign(body: bytes) -> str:
        return f"sha256={hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}"

    return sign
