"""One site of large items, many doors: no page and no answer is larger than the site allows, and nothing is lost."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from tests.conftest import StoreUrl
from tests.parity.protocols import A2A, CHAT, NLWEB, NWP, OPERATION, Face, visitor
from tests.protocols.a2a.conftest import request as rpc
from tests.protocols.a2a.conftest import sent, text
from tests.protocols.conftest import listening
from tests.protocols.mcp.conftest import connected

from portico.access.identity import local_operator, make_key
from portico.ask.events import ItemEvent
from portico.catalog import Danger
from portico.protocols import parse_config
from portico.query import Aggregate, Aggregation, NearVector, Order, Page, Query, json_size
from portico.requests import Ask
from portico.server.assembly import Parts, open_site
from portico.store.records import Put

PAGE_BYTES = 100_000
ITEM_BYTES = 12_000
HUGE_BYTES = 3 * PAGE_BYTES  # of one item, which is larger than any page
ENVELOPE = 3.5  # times the size of its items: some protocols have them as text beside the data, and escaped
THINGS: dict[str, dict[str, Any]] = {
    f"t{n:02}": {"name": f"Brass lamp {n}", "description": "é" * ((HUGE_BYTES if n == 7 else ITEM_BYTES) // 2)}
    for n in range(30)
}
OPERATOR = local_operator()


@dataclass
class Shop:
    parts: Parts
    port: int
    key: str


@pytest_asyncio.fixture(params=("sqlite", "postgres"))
async def shop(request: pytest.FixtureRequest, store_url: StoreUrl) -> AsyncIterator[Shop]:
    settings = {
        "search": {"embedder": "none:"},
        "store": {"url": store_url(request.param)},
        "limits": {"anonymous_per_minute": 100_000, "keys_per_minute": 100_000, "page_bytes": PAGE_BYTES},
        "ask": {"most": 100},
        "mcp": {"operations": "all"},
        "aql": {"most": 1000},
        "chat": {"errors": "object"},
        "collections": {"things": {"fields": {"place": {"type": "vector"}}}},
    }
    async with open_site(parse_config(settings)) as parts:
        await parts.store.collections.declare(parts.config.collection("things"))
        puts = [
            Put(id, {**data, "rank": 50 - int(id[1:]), "place": [float(id[1:]), 1.0], "odd": {"n": int(id[1:])}})
            for id, data in THINGS.items()
        ]
        await parts.store.items.write("things", puts)
        await parts.index.sync(await parts.store.changes.head())
        token, key = make_key("owner", ("ask", "*:*"), Danger.DESTRUCTIVE, 1)
        await parts.store.keys.add(key)
        async with listening(parts) as port:
            yield Shop(parts, port, token)


# Queries

QUERIES: Mapping[str, Query] = {
    "all": Query("things", limit=1000),
    "few at a time": Query("things", limit=3),
    "as many as are kept": Query("things", limit=100),
    "in another order": Query("things", order=(Order("rank", descending=True),), limit=1000),
    "by a path": Query("things", order=(Order("odd.n", descending=True),), limit=1000),
    "words": Query("things", text="brass lamp", limit=1000),
    "words in another order": Query("things", text="brass lamp", order=(Order("rank"),), limit=1000),
    "long fields": Query("things", fields=("description",), limit=1000),
    "near": Query("things", near=NearVector((1.0, 1.0), "place", top=1000), limit=1000),
}


async def walk(shop: Shop, query: Query) -> list[Page]:
    return [page async for page in shop.parts.site.pages(query, OPERATOR)]


@pytest.mark.parametrize("name", QUERIES)
async def test_a_page_has_a_bound_in_bytes_and_its_cursor_leads_to_the_rest(shop: Shop, name: str) -> None:
    pages = await walk(shop, QUERIES[name])

    ids = [item.id for page in pages for item in page.items]
    assert sorted(ids) == sorted(THINGS)
    sizes = [[json_size(item.data) for item in page.items] for page in pages]
    assert all(sum(page) <= PAGE_BYTES or len(page) == 1 for page in sizes)
    assert max(map(len, sizes)) == min(QUERIES[name].limit, PAGE_BYTES // ITEM_BYTES)
    assert all(len(page.items) == len(page.scores) for page in pages if page.scores)


async def test_what_is_left_out_of_the_items_leaves_room_for_more_of_them(shop: Shop) -> None:
    (page,) = await walk(shop, Query("things", fields=("name",), limit=1000))
    (searched,) = await walk(shop, Query("things", text="brass lamp", fields=("name",), limit=1000))

    assert len(page.items) == len(searched.items) == len(THINGS)


async def test_much_that_is_read_for_little_ends_a_page_too(shop: Shop) -> None:
    more = {f"u{n:03}": THINGS["t00"] for n in range(100)}
    await shop.parts.store.items.write("things", [Put(id, data) for id, data in more.items()])
    await shop.parts.index.sync(await shop.parts.store.changes.head())

    for words in ("", "brass lamp"):
        pages = await walk(shop, Query("things", text=words, fields=("name",), limit=1000))
        assert len(pages) > 1
        assert sorted(item.id for page in pages for item in page.items) == sorted(THINGS | more)


async def test_rows_of_an_aggregate_have_the_same_bound(shop: Shop) -> None:
    longest = Aggregate((Aggregation("max", "longest", "description"),), ("name",))
    pages = await walk(shop, Query("things", aggregate=longest, limit=1000))

    assert sorted(row["name"] for page in pages for row in page.rows) == sorted(x["name"] for x in THINGS.values())
    assert all(sum(map(json_size, page.rows)) <= PAGE_BYTES or len(page.rows) == 1 for page in pages)


async def test_an_item_larger_than_a_page_is_read_alone(shop: Shop) -> None:
    async with visitor(shop.port, shop.key) as http:
        got = await http.post("/operations/get_thing", json={"id": "t07"})
        listed = await http.post("/operations/list_things", json={"where": {"id": "t07"}})

    assert got.json()["result"]["description"] == THINGS["t07"]["description"]
    assert [item["id"] for item in listed.json()["result"]["items"]] == ["t07"]


# Walks over protocols

Step: TypeAlias = Callable[[str], Awaitable[tuple[list[str], str, int]]]  # of a cursor: ids, the next one, and bytes


async def walk_protocol(step: Step) -> tuple[list[str], list[int]]:
    """Every id in order, and the size of every answer."""
    ids, sizes, cursor = [], [], ""
    while True:
        more, cursor, size = await step(cursor)
        ids += more
        sizes.append(size)
        if not cursor:
            return ids, sizes
        assert len(sizes) <= len(THINGS)


def by_operation(name: str, params: dict[str, Any]) -> Callable[[Shop], AsyncGenerator[Step]]:
    async def door(shop: Shop) -> AsyncGenerator[Step]:
        async with visitor(shop.port, shop.key) as http:

            async def step(cursor: str) -> tuple[list[str], str, int]:
                got = await http.post(f"/operations/{name}", json={**params, "limit": 1000, "cursor": cursor})
                page = got.json()["result"]
                return [item["id"] for item in page["items"]], page.get("cursor", ""), len(got.content)

            yield step

    return door


def by_mcp(name: str, params: dict[str, Any]) -> Callable[[Shop], AsyncGenerator[Step]]:
    async def door(shop: Shop) -> AsyncGenerator[Step]:
        async with connected(shop.port, key=shop.key) as client:

            async def step(cursor: str) -> tuple[list[str], str, int]:
                result = await client.call_tool(name, {**params, "limit": 1000, "cursor": cursor})
                page = (result.structured_content or {})["result"]
                return [item["id"] for item in page["items"]], page.get("cursor", ""), len(result.model_dump_json())

            yield step

    return door


async def by_aql(shop: Shop) -> AsyncGenerator[Step]:
    async with visitor(shop.port, shop.key) as http:

        async def step(cursor: str) -> tuple[list[str], str, int]:
            params = {"first": 1000, **({"after": cursor} if cursor else {})}
            got = await http.post("/aql", json={"operation": "list_things", "params": params})
            data = got.json()["data"]
            info = data["pageInfo"]
            more = info["endCursor"] if info["hasNextPage"] else ""
            return [item["id"] for item in data["items"]], more, len(got.content)

        yield step


async def by_nwp(shop: Shop) -> AsyncGenerator[Step]:
    async with visitor(shop.port, shop.key) as http:

        async def step(cursor: str) -> tuple[list[str], str, int]:
            frame = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
            got = await http.post("/nwp/things/query", json=frame)
            page = got.json()
            return [item["id"] for item in page["data"]], page.get("next_cursor") or "", len(got.content)

        yield step


WALKS = {
    "operation": by_operation("list_things", {}),
    "operation, searching": by_operation("search_things", {"query": "brass lamp"}),
    "mcp": by_mcp("list_things", {}),
    "mcp, searching": by_mcp("search_things", {"query": "brass lamp"}),
    "aql": by_aql,
    "nwp": by_nwp,
}


@pytest.mark.parametrize("door", WALKS)
async def test_a_walk_over_a_protocol_meets_every_item_once_in_bounded_answers(shop: Shop, door: str) -> None:
    async for step in WALKS[door](shop):
        ids, sizes = await walk_protocol(step)

    assert sorted(ids) == sorted(THINGS)
    alone = [size for size in sizes if size > HUGE_BYTES]
    assert len(alone) == 1
    assert max(size for size in sizes if size not in alone) <= ENVELOPE * PAGE_BYTES
    assert alone[0] <= ENVELOPE * HUGE_BYTES


async def by_tasks(shop: Shop) -> AsyncGenerator[Step]:
    """The tasks of a context over A2A, each with an answer of its own."""
    headers = {"a2a-version": "1.0"}
    async with visitor(shop.port, shop.key, **headers) as http:
        for number in range(4):
            wanted = sent(text("brass lamp"), context="ours")
            wanted["message"]["messageId"] = f"m{number}"
            await http.post("/a2a", json=rpc("SendMessage", wanted))

        async def step(cursor: str) -> tuple[list[str], str, int]:
            params = {"contextId": "ours", "includeArtifacts": True, "pageToken": cursor}
            got = await http.post("/a2a", json=rpc("ListTasks", params))
            page = got.json()["result"]
            return [task["id"] for task in page["tasks"]], page["nextPageToken"], len(got.content)

        yield step


async def test_a_list_of_tasks_is_bounded_too(shop: Shop) -> None:
    async for step in by_tasks(shop):
        ids, sizes = await walk_protocol(step)

    assert len(set(ids)) == len(ids) == 4
    assert len(sizes) > 1
    assert max(sizes) <= ENVELOPE * HUGE_BYTES


# Questions

ASKING: Mapping[str, Face] = {**NLWEB, **A2A, **OPERATION, **NWP, **CHAT}


async def test_an_answer_has_the_same_bound_and_says_how_many_items_it_shows(shop: Shop) -> None:
    found, start = [], 0
    while start < len(THINGS):
        events = [event async for event in shop.parts.site.ask(Ask("brass lamp", limit=100, start=start), OPERATOR)]
        items = [event.item for event in events if isinstance(event, ItemEvent)]
        size = sum(json_size(item.data) for item in items)
        assert size <= PAGE_BYTES or len(items) == 1
        assert events[-1].items == len(items)
        assert start + len(items) == len(THINGS) or str(len(items)) in " ".join(events[-1].notes)
        found += [item.id for item in items]
        start += len(items)

    assert sorted(found) == sorted(THINGS)


@pytest.mark.parametrize("face", ASKING)
async def test_an_answer_over_a_protocol_is_bounded(shop: Shop, face: str) -> None:
    async with ASKING[face](shop.port, shop.key) as ask:
        heard, body = await ask("brass lamp")

    assert 1 <= len(heard.ids) <= PAGE_BYTES // ITEM_BYTES
    assert len(body.encode()) <= ENVELOPE * HUGE_BYTES


async def test_without_a_setting_no_page_is_larger_than_eight_megabytes() -> None:
    settings = {"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}}
    large = {f"t{n:02}": {"name": "Brass lamp", "description": "x" * 1_000_000} for n in range(20)}
    async with open_site(parse_config(settings)) as parts:
        await parts.store.collections.declare(parts.config.collection("things"))
        await parts.store.items.write("things", [Put(id, data) for id, data in large.items()])
        async with listening(parts) as port, visitor(port, "") as http:
            got = await http.post("/operations/list_things", json={"limit": 1000})

    assert len(got.content) < 8_100_000
    assert got.json()["result"]["cursor"]
