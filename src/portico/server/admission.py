"""How many connections, WebSockets and streams may be open at once: in this process, and from one address.

A connection beyond these limits is not closed at once. It is kept in a small reserve, where it may check the health of
the server and nothing else: whoever watches over the server sees that it is busy, not that it is gone.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.access.limits import Limits
from portico.errors import RateLimited, ShuttingDown, SiteError, Unavailable
from portico.network import TrustedNetworks, network_of
from portico.server.proxies import FORWARDED
from portico.telemetry import Recorder, RequestsCancelled

if sys.platform != "win32":
    import resource

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
RESERVE = 256  # connections beyond the limits of the process; many may arrive before the first of them is read
RESERVE_PER_ADDRESS = 64
RETRY_SECONDS = 5
OTHER_DESCRIPTORS = 256  # of files, of the store and of services that are asked
GOING_AWAY = 1001  # RFC 6455 7.4.1

Refuse: TypeAlias = Callable[[Scope, SiteError], ASGIApp]  # makes the response that tells of an error


class AddressLimit:
    """Counts what is open by address. The addresses of one /64 network of IPv6 count as one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: dict[str, int] = {}

    def acquire(self, address: str) -> bool:
        """Count one more; return False if the address has as many as it may have."""
        network = network_of(address)
        count = self._open.get(network, 0)
        if count >= self.limit:
            return False
        self._open[network] = count + 1
        return True

    def release(self, address: str) -> None:
        network = network_of(address)
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]

    def refusal(self, what: str) -> RateLimited:
        return RateLimited(
            f"{self.limit} {what} from this address are open already",
            limit=self.limit,
            retry_after=RETRY_SECONDS,
            hint="Close some of them.",
        )


@dataclass(eq=False, slots=True)
class ConnectionSlot:
    """One connection, counted. One with a refusal is in the reserve."""

    address: str
    network: str  # of the address
    abort: Callable[[], None]
    refusal: SiteError | None = None
    is_counted_by_address: bool = False
    is_released: bool = False


class ConnectionLimits:
    """Counts the connections over HTTP. A trusted proxy may have any number of them: it has many visitors."""

    def __init__(self, limits: Limits, trusted: TrustedNetworks, refuse: Refuse) -> None:
        self._limit = limits.connections
        self._by_address = AddressLimit(limits.connections_per_address)
        self._trusted = trusted
        self._refuse = refuse
        self._open = 0
        self._reserve: dict[ConnectionSlot, None] = {}  # the oldest first

    def is_trusted(self, client: tuple[str, int] | None) -> bool:
        return client is not None and client[0] in self._trusted

    def admit(self, client: tuple[str, int] | None, abort: Callable[[], None]) -> ConnectionSlot:
        address = client[0] if client else ""
        slot = ConnectionSlot(address, network_of(address), abort)
        if self._open >= self._limit:
            slot.refusal = Unavailable(f"All {self._limit} connections are in use", retry_after=RETRY_SECONDS)
        elif not self.is_trusted(client):
            slot.is_counted_by_address = self._by_address.acquire(address)
            if not slot.is_counted_by_address:
                slot.refusal = self._by_address.refusal("connections")
        if slot.refusal:
            self._keep_in_reserve(slot)
        else:
            self._open += 1
        return slot

    def release(self, slot: ConnectionSlot) -> None:
        if slot.is_released:
            return
        slot.is_released = True
        if slot.refusal:
            self._reserve.pop(slot, None)
            return
        self._open -= 1
        if slot.is_counted_by_address:
            self._by_address.release(slot.address)

    def app_for(self, slot: ConnectionSlot, app: ASGIApp) -> ASGIApp:
        """Return what answers the requests of a connection."""
        return HealthOnly(app, slot.refusal, self._refuse) if slot.refusal else app

    def _keep_in_reserve(self, slot: ConnectionSlot) -> None:
        # A health check sends its request at once, so the oldest connection is one that has nothing to ask.
        of_address = [other for other in self._reserve if other.network == slot.network]
        if len(of_address) >= RESERVE_PER_ADDRESS:
            self._evict(of_address[0])
        elif len(self._reserve) >= RESERVE:
            self._evict(next(iter(self._reserve)))
        self._reserve[slot] = None

    def _evict(self, slot: ConnectionSlot) -> None:
        del self._reserve[slot]
        slot.abort()


class HealthOnly:
    """Answers health checks, refuses every other request, and closes the connection after the first."""

    def __init__(self, app: ASGIApp, refusal: SiteError, refuse: Refuse) -> None:
        self._app = app
        self._refusal = refusal
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_health = scope["type"] == "http" and scope["path"] in HEALTH_PATHS

        async def send_and_close(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        app = self._app if is_health else self._refuse(scope, self._refusal)
        await app(scope, receive, send_and_close)


class CancelledRequests:
    """Refuses requests that the server cancels because it stops; the responses that have begun are broken off.

    Nothing else cancels the task of a request.
    """

    def __init__(self, app: ASGIApp, refuse: Refuse, record: Recorder) -> None:
        self._app = app
        self._refuse = refuse
        self._record = record
        self._count = 0

    def report(self) -> None:
        """Record how many there were, if any."""
        if self._count:
            self._record(RequestsCancelled(self._count))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_first(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_first)
        except asyncio.CancelledError:
            self._count += 1
            if not has_begun:
                error = ShuttingDown("The server is shutting down", retry_after=RETRY_SECONDS)
                await self._refuse(scope, error)(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": GOING_AWAY})


class VisitorLimits:
    """Bounds the WebSockets and the streams of one visitor's address, and closes WebSockets that are idle.

    A stream is a response whose length is not known when it begins. The connections of visitors behind a trusted proxy
    are the proxy's, so that their requests are bounded instead.
    """

    def __init__(self, app: ASGIApp, limits: Limits, streams: AddressLimit, refuse: Refuse) -> None:
        self._app = app
        self._requests = AddressLimit(limits.connections_per_address)
        self._websockets = AddressLimit(limits.websockets_per_address)
        self._streams = streams
        self._idle = limits.websocket_idle
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        address = client[0] if client else ""
        match scope["type"]:
            case "http" if scope.get(FORWARDED) and scope["path"] not in HEALTH_PATHS:
                await self._serve_forwarded(address, scope, receive, send)
            case "http":
                await self._serve_http(address, scope, receive, send)
            case "websocket":
                await self._serve_websocket(address, scope, receive, send)
            case _:
                await self._app(scope, receive, send)

    async def _serve_forwarded(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._requests.acquire(address):
            await self._refuse(scope, self._requests.refusal("requests"))(scope, receive, send)
            return
        try:
            await self._serve_http(address, scope, receive, send)
        finally:
            self._requests.release(address)

    async def _serve_http(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        is_stream, is_refused = False, False

        async def send_within_limit(message: Message) -> None:
            nonlocal is_stream, is_refused
            if is_refused:
                return
            if message["type"] == "http.response.start" and _is_stream(scope, message):
                is_stream = self._streams.acquire(address)
                if not is_stream:
                    # Once its response is complete, the application receives http.disconnect and ends the stream.
                    is_refused = True
                    await self._refuse(scope, self._streams.refusal("streams"))(scope, receive, send)
                    return
            await send(message)

        try:
            await self._app(scope, receive, send_within_limit)
        finally:
            if is_stream:
                self._streams.release(address)

    async def _serve_websocket(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._websockets.acquire(address):
            await self._refuse(scope, self._websockets.refusal("WebSockets"))(scope, receive, send)
            return
        idle = IdleTimeout(receive, send, self._idle)
        try:
            await self._app(scope, idle.receive, idle.send)
        finally:
            self._websockets.release(address)


def _is_stream(scope: Scope, start: Message) -> bool:
    is_bodiless = scope["method"] == "HEAD" or start["status"] != 200
    return not is_bodiless and all(name.lower() != b"content-length" for name, _ in start.get("headers", ()))


class IdleTimeout:
    """Closes a WebSocket on which no message was sent in either direction for so many seconds."""

    def __init__(self, receive: Receive, send: Send, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + seconds
        self._is_closed = False

    async def receive(self) -> Message:
        while not self._is_closed:
            try:
                async with asyncio.timeout_at(self._due):
                    message = await self._receive()
            except TimeoutError:
                if self._loop.time() >= self._due:
                    await self._close()
            else:
                self._due = self._loop.time() + self._seconds
                return message
        return await self._receive()

    async def send(self, message: Message) -> None:
        if self._is_closed:
            return
        await self._send(message)
        self._due = self._loop.time() + self._seconds

    async def _close(self) -> None:
        self._is_closed = True
        reason = f"No message for {self._seconds:g} seconds"
        await self._send({"type": "websocket.close", "code": GOING_AWAY, "reason": reason})


def fit_connections(connections: int, others: int) -> int:
    """Return how many connections fit into the files that this process may open, on either port.

    The soft limit is raised as far as needed. `others` is how many descriptors the store takes.
    """
    if sys.platform == "win32":
        return connections
    reserved = RESERVE + OTHER_DESCRIPTORS + others
    needed = 2 * connections + reserved
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    while allowed > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            break
        except (OSError, ValueError):  # a system may allow less than its hard limit
            allowed //= 2
    allowed = max(allowed, soft)
    return min(connections, max((allowed - reserved) // 2, allowed // 4))
