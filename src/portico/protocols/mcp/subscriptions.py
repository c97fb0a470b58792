"""Who wants to know when a resource changes, and telling them. Sends addresses, never what stands there.

An item's address is told when the item is created, changed or deleted; it need not exist yet. A collection's address
is told when items come or go, or its fields or their description change: what it says when read. The catalog cannot be
followed. Revisions until 2025-11-25 subscribe in a session and are told on its standing stream; since 2026-07-28 a
request says what it wants, and its answer is the stream.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias, cast

import mcp_types as types
from anyio import CancelScope
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from portico.errors import Denied, FeedExpired, NotFound, RateLimited, SiteError
from portico.items import Change
from portico.protocols.http import ended
from portico.protocols.mcp.resources import Address, address_of, not_found, readable
from portico.requests import Caller, Watch
from portico.site import Site

MAX_URIS = 100  # of one stream
MAX_STREAMS = 1000  # of one process
MAX_STREAMS_OF_ONE = 32  # of one caller
PAUSE_SECONDS = 5.0  # before a watch that broke off is tried again
STREAMS = "portico.streams"  # in the state of a connection: its streams by the caller's id

Context: TypeAlias = ServerRequestContext[Any, Any]


class Subscriptions:
    """Everybody who is told of changes by this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._streams: set[Stream] = set()

    # Until 2025-11-25

    async def subscribe(self, ctx: Context, caller: Caller, uri: str) -> types.EmptyResult:
        address = (await self._honoured(caller, [uri])).get(uri)
        if address is None:
            raise not_found(uri, ctx.protocol_version)
        since = await self._site.newest()
        self._session_stream(ctx, caller).add(uri, address, since)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, caller: Caller, uri: str) -> types.EmptyResult:
        """Leaving what was never followed is no mistake."""
        streams = _streams_of(_connection(ctx))
        stream = streams.get(caller.id)
        if stream is not None:
            await stream.remove(uri)
            # Meanwhile another request of the session may have ended it, and begun a new one.
            if not stream.uris and streams.get(caller.id) is stream:
                del streams[caller.id]
                await self._close(stream)
        return types.EmptyResult()

    def _session_stream(self, ctx: Context, caller: Caller) -> "Stream":
        connection = _connection(ctx)
        if STREAMS not in connection.state:
            connection.state[STREAMS] = {}
            connection.exit_stack.push_async_callback(self._leave, connection)
        streams = _streams_of(connection)
        if caller.id not in streams:
            stream = self._open(caller)
            stream.tell_in_background(connection.send_resource_updated)
            streams[caller.id] = stream
        return streams[caller.id]

    async def _leave(self, connection: Connection) -> None:
        for stream in _streams_of(connection).values():
            await self._close(stream)

    # Since 2026-07-28

    async def listen(
        self, ctx: Context, caller: Caller, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell of changes until the client leaves, or `close`. Lists that change are not told of, and not promised."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > MAX_URIS:
            raise _too_many_uris()
        honoured = await self._honoured(caller, uris)
        stream = self._open(caller)
        try:
            since = await self._site.newest()
            for uri, address in honoured.items():
                stream.add(uri, address, since)
            await _acknowledge(ctx, list(honoured))
            await stream.tell(partial(_send_updated, ctx))
        finally:
            await self._close(stream)
        return types.SubscriptionsListenResult(_meta=_stamp(ctx))

    def close(self) -> None:
        """End every stream in good order, as a server does that stops."""
        for stream in self._streams:
            stream.end()

    async def _honoured(self, caller: Caller, uris: list[str]) -> dict[str, Address]:
        """What can be followed of this by this caller."""
        named = {uri: address for uri in uris if (address := address_of(uri)) and address.collection}
        known = await readable(self._site, caller, {address.collection for address in named.values()})
        return {uri: address for uri, address in named.items() if address.collection in known}

    def _open(self, caller: Caller) -> "Stream":
        mine = sum(1 for each in self._streams if each.caller.rate_key == caller.rate_key)
        if mine >= MAX_STREAMS_OF_ONE:
            raise RateLimited(f"You have {mine} streams of changes; more are not allowed", hint="Close one.")
        if len(self._streams) >= MAX_STREAMS:
            raise RateLimited(f"All {MAX_STREAMS} streams of changes are taken", hint="Try again later.")
        stream = Stream(self._site, caller)
        self._streams.add(stream)
        return stream

    async def _close(self, stream: "Stream") -> None:
        self._streams.discard(stream)
        # A client that has left cancels everything that waits, and again whatever waits afterwards.
        with CancelScope(shield=True):
            await stream.close()


class Stream:
    """What one client follows, and what of it has changed and was not told yet. The same is told once, not queued."""

    def __init__(self, site: Site, caller: Caller) -> None:
        self.caller = caller
        self.waiting: dict[str, None] = {}  # addresses, in the order in which they changed
        self._site = site
        self._following: dict[str, Following] = {}  # by collection
        self._news = asyncio.Event()
        self._is_over = False
        self._telling: asyncio.Task[None] | None = None

    @property
    def uris(self) -> int:
        return sum(len(each.wanted) for each in self._following.values())

    def add(self, uri: str, address: Address, since: int) -> None:
        """Follow one address more. A collection that is followed already is not watched twice."""
        following = self._following.get(address.collection)
        if following is not None and uri in following.wanted:
            return
        if self.uris >= MAX_URIS:
            raise _too_many_uris()
        if following is None:
            following = Following(self._site, self.caller, address.collection, since, self._changed, self.end)
            self._following[address.collection] = following
        following.wanted[uri] = address.id

    async def remove(self, uri: str) -> None:
        self.waiting.pop(uri, None)
        for name, following in tuple(self._following.items()):
            following.wanted.pop(uri, None)
            if not following.wanted:
                del self._following[name]
                await following.stop()

    def _changed(self, uri: str) -> None:
        self.waiting[uri] = None
        self._news.set()

    def tell_in_background(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._telling = asyncio.create_task(self.tell(send))

    async def tell(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send what changes, as fast as it is taken, until the end."""
        while not self._is_over:
            await self._news.wait()
            self._news.clear()
            while self.waiting:
                uri = next(iter(self.waiting))
                del self.waiting[uri]
                await send(uri)

    def end(self) -> None:
        self._is_over = True
        self._news.set()

    async def close(self) -> None:
        stopping = [each.stop() for each in self._following.values()]
        if self._telling is not None:
            stopping.append(ended(self._telling))
        await asyncio.gather(*stopping)


class Following:
    """One watch of a collection. What it breaks off with is tried again; when it may not go on, the stream is over."""

    def __init__(
        self,
        site: Site,
        caller: Caller,
        collection: str,
        since: int,
        changed: Callable[[str], None],
        over: Callable[[], None],
    ) -> None:
        self.wanted: dict[str, str] = {}  # ids by address, as the client wrote it; none for the collection itself
        self._site = site
        self._caller = caller
        self._collection = collection
        self._since: int | None = since
        self._shape = site.catalog.collections.get(collection)
        self._changed = changed
        self._over = over
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        await ended(self._task)

    async def _follow(self) -> None:
        while True:
            try:
                await self._watch()
            except FeedExpired:
                self._since = None
            except (Denied, NotFound):
                return self._over()
            except SiteError:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _watch(self) -> None:
        if self._since is None:
            self._since = await self._site.newest()
            # Nobody knows what was missed. Whoever reads again sees how things are.
            for uri in self.wanted:
                self._changed(uri)
        watch = Watch(self._collection, since=self._since)
        async with aclosing(cast("AsyncGenerator[Change]", self._site.watch(watch, self._caller))) as changes:
            async for change in changes:
                self._since = change.seq
                self._tell_of(change)

    def _tell_of(self, change: Change) -> None:
        shape = self._site.catalog.collections.get(self._collection)
        is_other = change.kind != "update" or shape != self._shape
        self._shape = shape
        for uri, id in self.wanted.items():
            if id == change.item.id or (not id and is_other):
                self._changed(uri)


def _too_many_uris() -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"A stream follows at most {MAX_URIS} resources")


def _connection(ctx: Context) -> Connection:
    # The SDK keeps the way to a session's state and end to itself: a handler gets no connection, only this.
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def _streams_of(connection: Connection) -> dict[str, Stream]:
    return connection.state.get(STREAMS, {})


def _stamp(ctx: Context) -> dict[str, Any]:
    return {SUBSCRIPTION_ID_META_KEY: ctx.request_id}


async def _acknowledge(ctx: Context, uris: list[str]) -> None:
    honoured = types.SubscriptionFilter(resource_subscriptions=uris or None)
    told = types.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, _meta=_stamp(ctx))
    await ctx.session.send_notification(types.SubscriptionsAcknowledgedNotification(params=told), ctx.request_id)


async def _send_updated(ctx: Context, uri: str) -> None:
    told = types.ResourceUpdatedNotificationParams(uri=uri, _meta=_stamp(ctx))
    await ctx.session.send_notification(types.ResourceUpdatedNotification(params=told), ctx.request_id)
