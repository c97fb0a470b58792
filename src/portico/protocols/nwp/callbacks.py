"""Posts the status of finished tasks to the callers' `callback_url` (NWP 7.1, 13.6).

The process in which a task ends sends its callback. Undelivered callbacks are lost when it stops; the caller can still
ask for the status. The outcome of a delivery never changes the task.
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
from portico.operations.webhooks import WebhookClient
from portico.protocols.http import cancel_and_wait
from portico.protocols.nwp.actions import describe_task
from portico.protocols.nwp.encodings import encode_header_id
from portico.protocols.nwp.frames import EncodingTier, encode_value
from portico.protocols.nwp.settings import NwpSettings
from portico.requests import Task
from portico.site import Site
from portico.telemetry import Recorder, UnexpectedError

PAUSES: Final = (1.0, 2.0)  # seconds before each retry
MAX_WAITING: Final = 256  # deliveries at once
PER_MINUTE: Final = 60  # deliveries to one host
MAX_HOSTS: Final = 1024  # hosts whose deliveries are counted
WHERE: Final = "nwp callback"

Sign: TypeAlias = Callable[[bytes], str]


class TaskCallbacks:
    """Delivers a callback for every task that ends in this process and has a `callback_url`."""

    def __init__(
        self,
        site: Site,
        callbacks: WebhookClient,
        sign: Sign,
        config: Config,
        record: Recorder,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        secret_name = config.section(NwpSettings).callback_secret
        self._callbacks = callbacks
        self._sign = _hmac_signer(secret(secret_name)) if secret_name else sign
        self._record = record
        self._pauses = pauses
        self._rate_limit = HostRateLimit(PER_MINUTE)
        self._deliveries: set[asyncio.Task[None]] = set()
        self._is_closed = False
        site.tasks.on_end(self._begin)

    async def close(self) -> None:
        """Stop all deliveries."""
        self._is_closed = True
        if self._deliveries:
            await cancel_and_wait(*self._deliveries)

    def _begin(self, task: Task) -> None:
        if not task.call.callback or self._is_closed:
            return
        if len(self._deliveries) >= MAX_WAITING:
            self._record(UnexpectedError(WHERE, f"a callback was dropped: {MAX_WAITING} are already being delivered"))
            return
        delivery = asyncio.create_task(self._deliver(task))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    async def _deliver(self, task: Task) -> None:
        """Post the status of a task, with a few retries."""
        body, reason = encode_value(describe_task(task), EncodingTier.JSON), ""
        try:
            # The first signature reads the key of the node from disk.
            headers = _headers(task, await asyncio.to_thread(self._sign, body))
        except SiteError as error:
            self._record(UnexpectedError(WHERE, error.message, error))
            return
        for pause in (*self._pauses, None):
            try:
                status = await self._send(task.call.callback, body, headers)
            except (Unavailable, BadRequest, RateLimited) as error:
                # The message has the whole URL, which may contain a secret.
                reason = str(error.details.get("reason") or type(error).__name__)
            else:
                if 200 <= status < 300:
                    return
                reason = str(status)
            if pause is not None:
                await asyncio.sleep(pause)
        self._record(
            UnexpectedError(WHERE, f"{urlsplit(task.call.callback).hostname} did not accept a callback: {reason}")
        )

    async def _send(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        parts = urlsplit(url)
        if parts.scheme != "https":
            raise BadRequest("A callback URL must use https")
        self._rate_limit.take(parts.hostname or "")
        return await self._callbacks.send(url, body, headers)


class HostRateLimit:
    """Limits how many callbacks one host gets in a minute."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, host: str) -> None:
        now = self._clock()
        times = self._times.setdefault(host, deque(maxlen=self._limit))
        self._times.move_to_end(host)
        if len(self._times) > MAX_HOSTS:
            self._times.popitem(last=False)
        if len(times) == self._limit and now - times[0] < 60:
            raise RateLimited(f"One host may get {self._limit} callbacks in a minute")
        times.append(now)


def _headers(task: Task, signature: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "X-NWP-Signature": signature}
    return {**headers, "X-NWP-Request-ID": encode_header_id(task.call.request)} if task.call.request else headers


def _hmac_signer(key: str) -> Sign:
    def sign(body: bytes) -> str:
        return f"sha256={hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}"

    return sign
