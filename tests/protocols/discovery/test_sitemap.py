"""What crawlers read. Small sitemaps stand for large ones: what is cut is cut by the same rule."""

from collections.abc import AsyncIterator
from xml.etree import ElementTree

import httpx
import pytest
from tests.edges import behind_edge
from tests.protocols.conftest import Inn, asking, key_of

from portico.protocols.discovery import sitemap
from portico.protocols.edge import PUBLIC, EdgeMiddleware
from portico.query import MAX_LIMIT
from portico.server.assembly import Parts
from portico.store.records import Put, Remove
from portico.web.addresses import item_path

BASE = "http://inn.example"
NAMESPACE = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
SIZE = 10


@pytest.fixture
async def large(inn: Inn) -> AsyncIterator[Parts]:
    """An inn of 35 rooms, and a collection that is nobody's business."""
    async with inn(collections={"ledger": {"private": True}}) as parts:
        await parts.store.collections.declare(parts.config.collection("ledger"))
        await parts.store.items.write("ledger", [Put("debt", {"name": "Debts"})])
        await parts.store.items.write("rooms", [Put(f"room/{n:02}", {"name": f"Room {n}"}) for n in range(32)])
        yield parts


def crawling(parts: Parts, *, of: EdgeMiddleware | None = None, address: str = "10.0.0.1") -> httpx.AsyncClient:
    """A client of sitemaps that hold ten items each."""
    transport = httpx.ASGITransport(of or cut_small(parts), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url=BASE)


def cut_small(parts: Parts) -> EdgeMiddleware:
    routes = sitemap.routes(parts.site, parts.config, lambda: {"rooms": 35, "ledger": 1}, size=SIZE)
    return behind_edge(parts.site, routes, PUBLIC)


async def places(client: httpx.AsyncClient, path: str) -> list[str]:
    answer = (await client.get(path)).raise_for_status()
    assert answer.headers["content-type"] == "application/xml"
    return [each.text or "" for each in ElementTree.fromstring(answer.text).iter(f"{NAMESPACE}loc")]


async def crawled(client: httpx.AsyncClient) -> list[str]:
    """Every address that the sitemaps of the index name."""
    return [place for each in await places(client, "/sitemap.xml") for place in await places(client, each)]


def expected(*ids: str) -> list[str]:
    return [f"{BASE}/collections/rooms", *(f"{BASE}{item_path(f'rooms/{id}')}" for id in sorted(ids))]


ROOMS = ["attic", "cellar", "garden", *(f"room/{n:02}" for n in range(32))]


async def test_the_sitemaps_name_every_item_that_anybody_may_read(large: Parts) -> None:
    async with crawling(large) as client:
        assert await places(client, "/sitemap.xml") == [f"{BASE}/sitemap-rooms-{n}.xml" for n in (1, 2, 3, 4)]
        assert await crawled(client) == expected(*ROOMS)


async def test_a_sitemap_can_be_read_before_those_ahead_of_it(large: Parts) -> None:
    async with crawling(large) as client:
        last = await places(client, "/sitemap-rooms-4.xml")
        again = await places(client, "/sitemap-rooms-4.xml")

    assert last == again == expected(*ROOMS)[-5:]


async def test_items_that_come_and_go_are_in_the_sitemap_where_their_id_belongs(large: Parts) -> None:
    async with crawling(large) as client:
        before = await crawled(client)
        await large.store.items.write(
            "rooms", [Put("bath", {"name": "Bath"}), Remove("room/20"), Put("zoo", {"name": "Zoo"})]
        )
        after = await crawled(client)

    assert before == expected(*ROOMS)
    assert after == expected(*{*ROOMS, "bath", "zoo"} - {"room/20"})


async def test_a_sitemap_that_has_grown_too_large_is_cut_anew(large: Parts) -> None:
    more = [f"b{n:03}" for n in range(40)]
    async with crawling(large) as client:
        await crawled(client)
        await large.store.items.write("rooms", [Put(id, {"name": id}) for id in more])
        for _ in range(8):  # each crawl may find one more cut
            found = await crawled(client)
        sizes = [len(await places(client, each)) for each in await places(client, "/sitemap.xml")]

    assert found == expected(*ROOMS, *more)
    assert max(sizes) <= 2 * SIZE + 1


async def test_an_item_says_when_it_changed_if_it_knows(large: Parts) -> None:
    dates = {"a1": "2024-08-09", "a2": "2024-08-09T10:00:00Z", "a3": "last week", "a4": "2024-08-09T10:00", "a5": 7}
    await large.store.items.write("rooms", [Put(id, {"dateModified": date}) for id, date in dates.items()])
    async with crawling(large) as client:
        root = ElementTree.fromstring((await client.get("/sitemap-rooms-1.xml")).text)
    found = {each.findtext(f"{NAMESPACE}loc"): each.findtext(f"{NAMESPACE}lastmod") for each in root}

    modified = [found[f"{BASE}/items/rooms/{id}"] for id in dates]
    assert modified == ["2024-08-09", "2024-08-09T10:00:00Z", None, None, None]


async def test_addresses_are_written_as_xml_wants_them(large: Parts) -> None:
    await large.store.items.write("rooms", [Put("a&<b>'\" ü", {"name": "x"})])
    async with crawling(large) as client:
        found = await places(client, "/sitemap-rooms-1.xml")

    assert f"{BASE}/items/rooms/a%26%3Cb%3E%27%22%20%C3%BC" in found


@pytest.mark.parametrize("name", ["ledger-1", "rooms-0", "rooms-9", "rooms-x", "rooms", "rooms-99999999", "nothing-1"])
async def test_other_sitemaps_are_not_there(large: Parts, name: str) -> None:
    async with crawling(large) as client:
        answer = await client.get(f"/sitemap-{name}.xml")

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_a_sitemap_is_of_what_anybody_may_read_also_for_those_who_may_read_more(inn: Inn) -> None:
    async with inn(anonymous={"scopes": ["ask"]}) as parts, crawling(parts) as client:
        key = {"x-api-key": await key_of(parts, "read:*")}
        index = await client.get("/sitemap.xml", headers=key)
        rooms = await client.get("/sitemap-rooms-1.xml", headers=key)

    assert "rooms" not in index.text
    assert rooms.status_code == 404


async def test_a_sitemap_costs_one_request_however_many_items_it_holds(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 1}) as parts, asking(parts) as client:
        rooms = [Put(f"room/{n:04}", {"name": f"Room {n}"}) for n in range(2 * MAX_LIMIT)]
        await parts.store.items.write("rooms", rooms)
        answer, refused = [await client.get("/sitemap-rooms-1.xml") for _ in range(2)]

    assert len(ElementTree.fromstring(answer.text)) == 1 + 3 + 2 * MAX_LIMIT
    assert refused.status_code == 429


async def test_where_sitemaps_begin_is_kept_also_from_those_who_read_too_fast(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 2}) as parts:
        await parts.store.items.write("rooms", [Put(f"room/{n:02}", {"name": f"Room {n}"}) for n in range(32)])
        app = cut_small(parts)
        async with crawling(parts, of=app) as one, crawling(parts, of=app, address="10.0.0.2") as other:
            refused = await one.get("/sitemap-rooms-4.xml")
            found = await places(other, "/sitemap-rooms-4.xml")

    assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
    assert found == expected(*ROOMS)[-5:]


async def test_robots_are_told_where_the_sitemap_is_and_what_is_not_for_them(parts: Parts) -> None:
    async with asking(parts) as client:
        answer = await client.get("/robots.txt")

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == (
        "User-agent: *\nDisallow: /ask\nDisallow: /await\nDisallow: /operations\nDisallow: /tasks\nDisallow: /mcp\n"
        f"Disallow: /a2a\n\nSitemap: {BASE}/sitemap.xml\n"
    )


async def test_a_sitemap_is_not_sent_twice_to_those_who_have_it(parts: Parts) -> None:
    async with asking(parts) as client:
        first = await client.get("/sitemap-rooms-1.xml")
        again = await client.get("/sitemap-rooms-1.xml", headers={"if-none-match": first.headers["etag"]})

    assert len(ElementTree.fromstring(first.text)) == 4
    assert (again.status_code, again.content) == (304, b"")
