"""Being told of what changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, Subscription
from mcp.shared.exceptions import MCPError
from tests.conformance.requirements import requirement
from tests.ports import free_port
from tests.protocols.conftest import key_of, listening
from tests.protocols.mcp.conftest import connected, visiting

from portico.catalog import Collection
from portico.errors import FeedExpired, Unavailable
from portico.protocols.mcp import subscriptions
from portico.protocols.mcp.resources import ResourceAddress
from portico.protocols.mcp.server import make_server
from portico.protocols.mcp.subscriptions import ResourceStream
from portico.requests import Caller, Watch
from portico.server.assembly import Parts
from portico.server.http import Serving, application, server_settings
from portico.store.records import Put, Remove, Write

# The client's author advises against what only older revisions have.
pytestmark = pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")

ROOMS = "portico://collections/rooms"
ATTIC = "portico://items/rooms/attic"
SHED = "portico://items/rooms/shed"
CELLAR = "portico://items/rooms/cellar"


class Told:
    """What a client of a session has been told without asking."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self._heard.put_nowait(message.params.uri)

    async def next(self) -> str:
        async with asyncio.timeout(60):
            return await self._heard.get()


async def heard(subscription: Subscription) -> str:
    async with asyncio.timeout(60):
        event = await anext(subscription)
    assert isinstance(event, ResourceUpdated)
    return event.uri


async def write(parts: Parts, *writes: Write) -> None:
    await parts.store.items.write("rooms", writes)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def in_session(parts: Parts) -> AsyncIterator[tuple[Client, Told]]:
    """A client over a pipe, which has its standing stream from the start."""
    told = Told()
    server = make_server(parts.site, parts.config, parts.record, Caller(scopes=frozenset({"ask", "read:*"})))
    async with Client(server, mode="legacy", message_handler=told) as client:
        yield client, told


# Both eras


async def test_a_session_is_told_of_an_item_that_is_made_changed_and_deleted(parts: Parts) -> None:
    async with in_session(parts) as (client, told):
        await client.subscribe_resource(SHED)
        heard = []
        for step in (Put("shed", {"beds": 1}), Put("shed", {"beds": 2}), Remove("shed")):
            await write(parts, Put("attic", {"beds": step.id + str(len(heard))}), step)
            heard.append(await told.next())

    assert heard == [SHED] * 3


@requirement("mcp:resources:listen")
async def test_a_listener_is_told_of_an_item_that_is_made_changed_and_deleted(parts: Parts) -> None:
    async with visiting(parts) as client, client.listen(resource_subscriptions=[SHED]) as changes:
        told = []
        for step in (Put("shed", {"beds": 1}), Put("shed", {"beds": 2}), Remove("shed")):
            await write(parts, Put("attic", {"beds": step.id + str(len(told))}), step)
            told.append(await heard(changes))

    assert told == [SHED] * 3


@requirement("mcp:resources:subscribe")
async def test_a_session_over_http_is_told_on_its_standing_stream(parts: Parts) -> None:
    told = Told()
    async with visiting(parts, "legacy", message_handler=told) as client:
        await client.subscribe_resource(ATTIC)
        # The standing stream is a request of its own: what happens before it is there goes unheard.
        first = asyncio.create_task(told.next())
        for number in range(100):
            await write(parts, Put("attic", {"beds": number}))
            if (await asyncio.wait([first], timeout=0.1))[0]:
                break

        assert await first == ATTIC


async def test_a_collection_is_told_when_items_come_or_go_or_bring_new_fields(parts: Parts) -> None:
    async with in_session(parts) as (client, told):
        await client.subscribe_resource(ROOMS)
        await client.subscribe_resource(ATTIC)
        heard = []
        for step in (Put("shed", {"beds": 1}), Put("cellar", {"damp": True}), Remove("cellar")):
            await write(parts, step)
            heard.append(await told.next())
        await write(parts, Put("shed", {"beds": 2}))
        await write(parts, Put("attic", {"beds": 3}))
        heard.append(await told.next())

    assert heard == [ROOMS, ROOMS, ROOMS, ATTIC]


async def test_what_was_left_is_not_told_of(parts: Parts) -> None:
    async with in_session(parts) as (client, told):
        await client.subscribe_resource(ATTIC)
        await client.subscribe_resource(CELLAR)
        await client.unsubscribe_resource(ATTIC)
        await client.unsubscribe_resource("portico://items/rooms/never-followed")
        await write(parts, Put("attic", {"beds": 9}), Put("cellar", {"beds": 9}))
        first = await told.next()
        await client.unsubscribe_resource(CELLAR)
        await client.subscribe_resource(SHED)
        await write(parts, Put("cellar", {"beds": 8}), Put("shed", {"beds": 8}))

        assert [first, await told.next()] == [CELLAR, SHED]


async def test_an_address_is_told_as_the_client_wrote_it(parts: Parts) -> None:
    spelled = "portico://items/rooms/%61ttic"

    async with visiting(parts) as client, client.listen(resource_subscriptions=[spelled, spelled]) as changes:
        await write(parts, Put("attic", {"beds": 9}))

        assert (changes.honored.resource_subscriptions, await heard(changes)) == ([spelled], spelled)


# Who may follow what


@requirement("mcp:resources:listen")
async def test_a_listener_is_promised_only_what_it_may_read(parts: Parts) -> None:
    await parts.store.collections.declare(Collection("diary", private=True))
    await parts.store.collections.declare(Collection("guests"))
    wanted = ["portico://items/diary/monday", "portico://collections/guests", "portico://catalog", "nowhere", ATTIC]

    async with (
        visiting(parts, key=await key_of(parts, "ask", "read:rooms")) as client,
        client.listen(resource_subscriptions=wanted, tools_list_changed=True, resources_list_changed=True) as changes,
    ):
        await parts.store.items.write("guests", [Put("ann", {})])
        await parts.store.items.write("diary", [Put("monday", {})])
        await write(parts, Put("attic", {"beds": 9}))

        assert changes.honored.model_dump(exclude_none=True) == {"resource_subscriptions": [ATTIC]}
        assert await heard(changes) == ATTIC


@pytest.mark.parametrize(
    "uri", ["portico://items/diary/monday", "portico://items/no/x", "portico://catalog", "nowhere"]
)
async def test_what_cannot_be_read_or_followed_cannot_be_subscribed_to(parts: Parts, uri: str) -> None:
    await parts.store.collections.declare(Collection("diary", private=True))

    async with in_session(parts) as (client, _):
        with pytest.raises(MCPError, match="Resource not found") as refused:
            await client.subscribe_resource(uri)

    assert (refused.value.error.code, refused.value.error.data) == (-32002, {"uri": uri})


# Bounds


async def test_a_stream_follows_a_hundred_resources_and_no_more(parts: Parts) -> None:
    many = [f"portico://items/rooms/{number}" for number in range(101)]

    async with visiting(parts) as client:
        async with client.listen(resource_subscriptions=many[:100]) as changes:
            assert changes.honored.resource_subscriptions == many[:100]
        with pytest.raises(MCPError, match="A stream follows at most 100 resources"):
            async with client.listen(resource_subscriptions=many):
                pass
    async with in_session(parts) as (client, _):
        for uri in [*many[:100], many[0]]:
            await client.subscribe_resource(uri)
        with pytest.raises(MCPError, match="A stream follows at most 100 resources"):
            await client.subscribe_resource(many[100])


async def test_streams_are_counted_for_each_caller_and_for_all(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_STREAMS_OF_ONE", 2)
    monkeypatch.setattr(subscriptions, "MAX_STREAMS", 3)

    async with listening(parts) as port, AsyncExitStack() as open_streams:
        enter = open_streams.enter_async_context
        nobody = await enter(connected(port))
        somebody = await enter(connected(port, key=await key_of(parts)))
        for _ in range(2):
            await enter(nobody.listen(resource_subscriptions=[ATTIC]))
        with pytest.raises(MCPError, match="You have 2 streams of changes"):
            await enter(nobody.listen(resource_subscriptions=[ATTIC]))
        await enter(somebody.listen(resource_subscriptions=[ATTIC]))
        with pytest.raises(MCPError, match="All 3 streams of changes are taken"):
            await enter(somebody.listen(resource_subscriptions=[ATTIC]))


async def test_a_slow_reader_is_told_once_of_what_changed_often(parts: Parts) -> None:
    stream = ResourceStream(parts.site, parts.site.access.anonymous_caller())
    since = await parts.store.changes.head()
    for id in ("attic", "shed"):
        stream.add(ResourceAddress("rooms", id).uri, ResourceAddress("rooms", id), since)
    sent: list[str] = []
    may_go_on = asyncio.Event()

    async def send(uri: str) -> None:
        sent.append(uri)
        await may_go_on.wait()
        if uri == SHED:
            stream.end()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(stream.tell(send))
        await write(parts, Put("attic", {"beds": 0}))
        await until(lambda: sent == [ATTIC])
        for number in range(50):
            await write(parts, Put("attic", {"beds": f"{number} more"}))
        await write(parts, Put("shed", {}))
        await until(lambda: SHED in stream.waiting)
        may_go_on.set()
    await stream.close()

    assert sent == [ATTIC, ATTIC, SHED]


# Whatever happens


@pytest.mark.parametrize("mishap", [FeedExpired("Too old"), Unavailable("The database is away")])
async def test_a_watch_that_breaks_off_is_taken_up_again(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, mishap: Exception
) -> None:
    monkeypatch.setattr(subscriptions, "PAUSE_SECONDS", 0)
    watch, mishaps = parts.site.watch, [mishap]

    async def faltering(wanted: Watch, caller: Caller) -> AsyncIterator[Any]:
        async for change in watch(wanted, caller):
            if mishaps:
                raise mishaps.pop()
            yield change

    monkeypatch.setattr(parts.site, "watch", faltering)
    async with visiting(parts) as client, client.listen(resource_subscriptions=[ATTIC]) as changes:
        await write(parts, Put("attic", {"beds": 9}))

        assert await heard(changes) == ATTIC


async def test_nothing_goes_on_when_clients_have_left(parts: Parts) -> None:
    await parts.store.collections.declare(Collection("guests"))
    followed = [ROOMS, ATTIC, "portico://collections/guests"]
    async with listening(parts) as port:
        await _come_and_go(port, followed)
        await until(lambda: not _watching())
        always = len(asyncio.all_tasks())  # the first time begins what a server has running from then on
        for _ in range(3):
            await _come_and_go(port, followed)
        await until(lambda: len(asyncio.all_tasks()) <= always)

        assert _watching() == 0


async def _come_and_go(port: int, followed: list[str]) -> None:
    async with connected(port, "legacy") as client:
        for uri in followed:
            await client.subscribe_resource(uri)
        assert _watching() == 2
    await until(lambda: not _watching())
    async with connected(port) as client, client.listen(resource_subscriptions=followed):
        assert _watching() == 2


def _watching() -> int:
    """Watches that run: of one collection there is one, however many of its items are followed."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return names.count("CollectionWatch._follow")


async def test_a_server_that_stops_ends_its_streams_in_good_order(parts: Parts) -> None:
    app = application(parts)
    settings = server_settings(parts, app)
    settings.port, settings.log_level = free_port(), "critical"
    server = Serving(settings, app)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    async with connected(settings.port) as client, client.listen(resource_subscriptions=[ATTIC]) as changes:
        await write(parts, Put("attic", {"beds": 9}))
        first = await heard(changes)
        server.should_exit = True
        async with asyncio.timeout(settings.timeout_graceful_shutdown / 2):
            assert [first, *[event async for event in changes]] == [ATTIC]
            await serving
