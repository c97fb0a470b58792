"""Notifies clients when a resource changes. Sends URIs, never contents.

An item's URI is sent when the item is created, changed or deleted; it need not exist yet. A collection's URI is sent
when items come or go, or when its fields or descriptions change. The catalog cannot be followed. Revisions until
2025-11-25 subscribe in a session and are notified on its stream; since 2026-07-28 the response to a request is the
stream.
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
from portico.protocols.http import cancel_and_wait
from portico.protocols.mcp.resources import ResourceAddress, address_of, not_found, readable_collections
from portico.requests import Caller, Watch
from portico.site import Site

MAX_URIS = 100  # of one stream
MAX_STREAMS = 1000  # of one process
MAX_STREAMS_OF_ONE = 32  # of one caller
PAUSE_SECONDS = 5.0  # before a watch that broke off is tried again
STREAMS = "portico.streams"  # in the state of a connection: its streams by the caller's id

Context: TypeAlias = ServerRequestContext[Any, Any]


class ResourceSubscriptions:
    """All streams of changes in this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._streams: set[ResourceStream] = set()

    # Until 2025-11-25

    async def subscribe(self, ctx: Context, caller: Caller, uri: str) -> types.EmptyResult:
        address = (await self._subscribable(caller, [uri])).get(uri)
        if address is None:
            raise not_found(uri, ctx.protocol_version)
        since = await self._site.newest_change()
        self._session_stream(ctx, caller).add(uri, address, since)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, caller: Caller, uri: str) -> types.EmptyResult:
        """Unsubscribe; a URI without a subscription is not an error."""
        streams = _streams_of(_connection(ctx))
        stream = streams.get(caller.id)
        if stream is not None:
            await stream.remove(uri)
            # Another request of the session may have replaced it meanwhile.
            if not stream.uris and streams.get(caller.id) is stream:
                del streams[caller.id]
                await self._close(stream)
        return types.EmptyResult()

    def _session_stream(self, ctx: Context, caller: Caller) -> "ResourceStream":
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
        """Notify of changes until the client disconnects, or `close`. Changed lists are not announced."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > MAX_URIS:
            raise _too_many_uris()
        honoured = await self._subscribable(caller, uris)
        stream = self._open(caller)
        try:
            since = await self._site.newest_change()
            for uri, address in honoured.items():
                stream.add(uri, address, since)
            await _acknowledge(ctx, list(honoured))
            await stream.tell(partial(_send_updated, ctx))
        finally:
            await self._close(stream)
        return types.SubscriptionsListenResult(_meta=_stamp(ctx))

    def close(self) -> None:
        """End every stream, for a server that shuts down."""
        for stream in self._streams:
            stream.end()

    async def _subscribable(self, caller: Caller, uris: list[str]) -> dict[str, ResourceAddress]:
        """Return those of the URIs that this caller can follow."""
        addresses = {uri: address for uri in uris if (address := address_of(uri)) and address.collection}
        collections = await readable_collections(
            self._site, caller, {address.collection for address in addresses.values()}
        )
        return {uri: address for uri, address in addresses.items() if address.collection in collections}

    def _open(self, caller: Caller) -> "ResourceStream":
        count = sum(1 for stream_of_caller in self._streams if stream_of_caller.caller.rate_key == caller.rate_key)
        if count >= MAX_STREAMS_OF_ONE:
            raise RateLimited(f"You have {count} streams of changes; more are not allowed", hint="Close one.")
        if len(self._streams) >= MAX_STREAMS:
            raise RateLimited(f"All {MAX_STREAMS} streams of changes are taken", hint="Try again later.")
        stream = ResourceStream(self._site, caller)
        self._streams.add(stream)
        return stream

    async def _close(self, stream: "ResourceStream") -> None:
        self._streams.discard(stream)
        # A client that disconnects cancels everything that waits, also in this clean-up.
        with CancelScope(shield=True):
            await stream.close()


class ResourceStream:
    """The subscriptions of one client, and the changed URIs that are still to be sent, each once."""

    def __init__(self, site: Site, caller: Caller) -> None:
        self.caller = caller
        self.waiting: dict[str, None] = {}  # URIs, in the order in which they changed
        self._site = site
        self._following: dict[str, CollectionWatch] = {}  # by collection
        self._news = asyncio.Event()
        self._is_over = False
        self.send_task: asyncio.Task[None] | None = None

    @property
    def uris(self) -> int:
        return sum(len(watch.ids) for watch in self._following.values())

    def add(self, uri: str, address: ResourceAddress, since: int) -> None:
        """Follow one more URI. A collection is never watched twice."""
        following = self._following.get(address.collection)
        if following is not None and uri in following.ids:
            return
        if self.uris >= MAX_URIS:
            raise _too_many_uris()
        if following is None:
            following = CollectionWatch(self._site, self.caller, address.collection, since, self._notify, self.end)
            self._following[address.collection] = following
        following.ids[uri] = address.id

    async def remove(self, uri: str) -> None:
        self.waiting.pop(uri, None)
        for name, following in tuple(self._following.items()):
            following.ids.pop(uri, None)
            if not following.ids:
                del self._following[name]
                await following.stop()

    def _notify(self, uri: str) -> None:
        self.waiting[uri] = None
        self._news.set()

    def tell_in_background(self, send: Callable[[str], Awaitable[None]]) -> None:
        self.send_task = asyncio.create_task(self.tell(send))

    async def tell(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send changes as fast as the client reads them, until the end."""
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
        stopping = [watch.stop() for watch in self._following.values()]
        if self.send_task is not None:
            stopping.append(cancel_and_wait(self.send_task))
        await asyncio.gather(*stopping)


class CollectionWatch:
    """A watch of a collection. It is repeated after an error; if it is no longer allowed, the stream ends."""

    def __init__(
        self,
        site: Site,
        caller: Caller,
        collection: str,
        since: int,
        changed: Callable[[str], None],
        over: Callable[[], None],
    ) -> None:
        self.ids: dict[str, str] = {}  # ids by URI as the client wrote it; empty for the collection itself
        self._site = site
        self._caller = caller
        self._collection = collection
        self._since: int | None = since
        self._shape = site.catalog.collections.get(collection)
        self._changed = changed
        self._over = over
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        await cancel_and_wait(self._task)

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
            self._since = await self._site.newest_change()
            # Changes were missed, so report every URI: the client reads them again.
            for uri in self.ids:
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
        for uri, id in self.ids.items():
            if id == change.item.id or (not id and is_other):
                self._changed(uri)


def _too_many_uris() -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"A stream follows at most {MAX_URIS} resources")


def _connection(ctx: Context) -> Connection:
    # The SDK has no public way from a handler to the state and the end of its session.
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def _streams_of(connection: Connection) -> dict[str, ResourceStream]:
    return connection.state.get(STREAMS, {})


def _stamp(ctx: Context) -> dict[str, Any]:
    return {SUBSCRIPTION_ID_META_KEY: ctx.request_id}


async def _acknowledge(ctx: Context, uris: list[str]) -> None:
    subscribed = types.SubscriptionFilter(resource_subscriptions=uris or None)
    params = types.SubscriptionsAcknowledgedNotificationParams(notifications=subscribed, _meta=_stamp(ctx))
    await ctx.session.send_notification(types.SubscriptionsAcknowledgedNotification(params=params), ctx.request_id)


async def _send_updated(ctx: Context, uri: str) -> None:
    params = types.ResourceUpdatedNotificationParams(uri=uri, _meta=_stamp(ctx))
    await ctx.session.send_notification(types.ResourceUpdatedNotification(params=params), ctx.request_id)
