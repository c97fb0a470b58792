"""Items at their own addresses, and the pages that lead there."""

from collections.abc import AsyncIterator
from urllib.parse import urljoin

import httpx
import msgspec
import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.protocols.conftest import Inn, asking, key_of, listening

from portico.items import Item
from portico.operations import Context, operation
from portico.server.assembly import Parts
from portico.store.records import Put
from portico.web.addresses import item_path

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
GUEST = {"scopes": ["read:*", "execute:*"]}


@operation(kind="execute", danger="safe")
async def air_room(context: Context, room: str) -> str:
    """Open the window of a room."""
    return room


@pytest.fixture
async def client(parts: Parts):
    await parts.store.items.write("rooms", [Put("rooms/loft", {"@type": "HotelRoom", "name": "The loft"})])
    async with asking(parts) as client:
        yield client


@pytest.mark.parametrize(
    ("asked", "ref", "name"),
    [
        ("rooms/attic", "rooms/attic", "The attic"),
        ("attic", "rooms/attic", "The attic"),
        ("rooms/loft", "rooms/loft", "The loft"),
        ("rooms/rooms/loft", "rooms/loft", "The loft"),
    ],
)
async def test_an_item_is_shown_at_its_address(client: httpx.AsyncClient, asked: str, ref: str, name: str) -> None:
    answer = await client.get(f"/items/{asked}")

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/ld+json")
    assert (answer.json()["@id"], answer.json()["name"]) == (f"http://inn.example/items/{ref}", name)
    assert answer.headers["etag"]


@pytest.mark.parametrize("id", ["nobody", "rooms/nobody", "%00", "x" * 3000])
async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient, id: str) -> None:
    answer = await client.get(f"/items/{id}")

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_a_browser_is_told_on_a_page_that_nothing_is_there(client: httpx.AsyncClient) -> None:
    answer = await client.get("/items/<script>", headers={"accept": BROWSER})

    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "There is no item" in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/ld+json"),
        ("*/*", "application/ld+json"),
        (BROWSER, "text/html; charset=utf-8"),
        ("text/*", "text/html; charset=utf-8"),
        ("text/html, */*", "text/html; charset=utf-8"),
        ("application/*;q=0.5, text/html;q=0.4", "application/ld+json"),
        ("application/json", "application/json"),
        ("application/json;q=0.9, text/html;q=0.95", "text/html; charset=utf-8"),
        ("application/ld+json;q=0, application/json;q=0.1, text/html;q=0", "application/json"),
        ('application/ld+json;profile="a,text/html;q=1"', "application/ld+json"),
        ("APPLICATION/JSON; Q=1", "application/json"),
        ("image/png", "application/ld+json"),
        ("text/html;q=nan", "application/ld+json"),
        (",;=/,", "application/ld+json"),
    ],
)
async def test_a_reader_gets_the_form_that_it_likes_best(
    client: httpx.AsyncClient, accept: str | None, kind: str
) -> None:
    del client.headers["accept"]
    answer = await client.get("/items/attic", headers={"accept": accept} if accept else {})

    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert "accept" in answer.headers["vary"]


async def test_plain_json_is_the_item_with_its_collection_and_version(client: httpx.AsyncClient) -> None:
    found = (await client.get("/items/rooms/loft", headers={"accept": "application/json"})).json()

    assert found.pop("version")
    assert found == {"id": "rooms/loft", "collection": "rooms", "data": {"@type": "HotelRoom", "name": "The loft"}}


async def test_whoever_cannot_say_what_it_accepts_names_a_format(client: httpx.AsyncClient) -> None:
    answer = await client.get("/items/attic?format=json", headers={"accept": BROWSER})

    assert answer.json()["id"] == "attic"


async def test_each_form_has_a_tag_by_which_it_is_not_sent_again(client: httpx.AsyncClient) -> None:
    forms = ["text/html", "application/json", "application/ld+json"]
    tags = [(await client.get("/items/attic", headers={"accept": form})).headers["etag"] for form in forms]

    assert len(set(tags)) == 3
    for form, tag in zip(forms, tags, strict=True):
        known = {"accept": form, "if-none-match": f'"other", W/{tag}'}
        again = await client.get("/items/attic", headers=known)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)


async def test_an_item_names_its_address_and_its_forms(client: httpx.AsyncClient) -> None:
    answer = await client.head("/items/attic")

    assert answer.headers["link"].split(", ") == [
        '<http://inn.example/items/rooms/attic>; rel="canonical"',
        '<http://inn.example/items/rooms/attic>; rel="alternate"; type="application/ld+json"',
        '<http://inn.example/items/rooms/attic>; rel="alternate"; type="application/json"',
        '<http://inn.example/items/rooms/attic>; rel="alternate"; type="text/html"',
    ]


async def test_what_is_shown_to_a_key_is_for_nobody_else_to_keep(inn: Inn) -> None:
    async with inn(server={"hosts": ["inn.example"]}) as parts, asking(parts) as client:
        anyone = await client.get("/items/attic")
        somebody = await client.get("/items/attic", headers={"x-api-key": await key_of(parts)})

    assert anyone.headers["cache-control"] == "public, max-age=60"
    assert somebody.headers["cache-control"] == "private, no-cache"
    assert {"authorization", "x-api-key"} <= set(anyone.headers["vary"].split(", "))


IDS = [
    "a b",
    "a/b",
    "a//b",
    "/a",
    "a/",
    "a/../b",
    "./a",
    ".",
    "..",
    "...",
    "100%",
    "%2F",
    "a%2Fb",
    "a?b=c&d#e",
    "https://shop.example/a/../b?c=d#e",
    "ümlaut/日本語/🦀",
    "a+b",
    "a\\b",
    "a\nb\n",
    "<a href=\"'&amp;",
]


async def test_an_item_is_found_whatever_its_id_holds(parts: Parts) -> None:
    await parts.store.items.write("rooms", [Put(id, {"name": id}) for id in IDS])
    paths = [item_path(Item(id, "rooms", {}).ref) for id in IDS]
    async with listening(parts) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answers = [await client.get(path) for path in paths]

    assert [answer.json()["name"] for answer in answers] == IDS
    assert [answer.json()["@id"] for answer in answers] == [f"http://127.0.0.1:{port}{path}" for path in paths]
    assert all(path.isascii() for path in paths)


async def test_items_of_one_id_in_two_collections_have_pages_of_their_own(parts: Parts) -> None:
    await parts.store.collections.declare(parts.config.collection("guests"))
    await parts.store.items.write("rooms", [Put("1", {"name": "Room one"})])
    await parts.store.items.write("guests", [Put("1", {"name": "Ada"})])
    async with asking(parts) as client:
        lists = [LexborHTMLParser((await client.get(f"/collections/{name}")).text) for name in ("rooms", "guests")]
        links = {link.text(): link.attributes["href"] or "" for each in lists for link in each.css("h2 a")}
        found = [(await client.get(links[name])).json() for name in ("Room one", "Ada")]

    assert [each["name"] for each in found] == ["Room one", "Ada"]


async def test_a_page_holds_the_item_as_json_ld(client: httpx.AsyncClient) -> None:
    page = LexborHTMLParser((await client.get("/items/attic", headers={"accept": BROWSER})).text)
    linked = (await client.get("/items/attic")).json()

    [script] = page.css("script:not([src])")
    assert script.attributes == {"type": "application/ld+json"}
    assert msgspec.json.decode(script.text()) == linked
    assert page.css_first("link[rel=canonical]").attributes["href"] == "http://inn.example/items/rooms/attic"


# Collections


@pytest.fixture
async def large(inn: Inn) -> AsyncIterator[httpx.AsyncClient]:
    """An inn of many rooms, and a collection that is nobody's business."""
    async with inn(collections={"ledger": {"private": True}}) as parts:
        await parts.store.collections.declare(parts.config.collection("ledger"))
        await parts.store.items.write("ledger", [Put("debt", {"name": "Debts"})])
        await parts.store.items.write("rooms", [Put(f"room {n}", {"name": f"Room <{n}>"}) for n in range(120)])
        await parts.index.sync(await parts.store.changes.head())
        async with asking(parts, headers={"accept": BROWSER}) as client:
            yield client


async def test_every_item_is_reached_by_following_links(large: httpx.AsyncClient) -> None:
    seen: set[str] = set()
    ahead = ["/"]
    while ahead:
        path = ahead.pop()
        seen.add(path)
        page = LexborHTMLParser((await large.get(path)).raise_for_status().text)
        links = {urljoin(path, link.attributes["href"] or "") for link in page.css("main a")}
        ahead += sorted(link for link in links - seen if link.startswith(("/collections/", "/?")))
        seen |= {link for link in links if link.startswith("/items/")}

    assert {path for path in seen if path.startswith("/items/")} == {
        *(item_path(f"rooms/room {n}") for n in range(120)),
        *map(item_path, ["rooms/attic", "rooms/cellar", "rooms/garden"]),
    }


async def test_a_list_of_items_says_how_many_there_are(large: httpx.AsyncClient) -> None:
    page = LexborHTMLParser((await large.get("/collections/rooms")).text)

    assert page.css_first("main p.faint").text() == "123 items"
    assert len(page.css(".cards article")) == 48
    assert page.css(".cards h2 a")[-1].text() == "Room <30>"  # by id, as text


async def test_pages_of_a_list_are_turned_forth_and_back(large: httpx.AsyncClient) -> None:
    def turned(page: LexborHTMLParser, way: str) -> str | None:
        return next((each.attributes["href"] for each in page.css(f"a[rel={way}]")), None)

    pages, path = dict[str, LexborHTMLParser](), "/collections/rooms"
    while path:
        pages[path] = LexborHTMLParser((await large.get(path)).text)
        path = turned(pages[path], "next")

    assert [len(page.css(".cards article")) for page in pages.values()] == [48, 48, 27]
    assert [turned(page, "prev") for page in pages.values()] == [None, *list(pages)[:-1]]


async def test_an_item_stands_beside_others_and_with_what_can_be_done(inn: Inn) -> None:
    async with (
        inn(operations=[__name__], anonymous=GUEST) as parts,
        asking(parts, headers={"accept": BROWSER}) as client,
    ):
        pages = {name: LexborHTMLParser((await client.get(f"/items/{name}")).text) for name in ("attic", "garden")}
        program = await client.get("/items/attic?format=json")

    near = {name: [each.text() for each in page.css(".near h3")] for name, page in pages.items()}
    assert near == {"attic": ["The cellar", "Garden room"], "garden": ["The attic", "The cellar"]}
    offered = [each.attributes["data-params"] for each in pages["attic"].css("a[data-operation=air_room]")]
    assert offered == ['{"room":"attic"}']
    assert program.json()["id"] == "attic"


@pytest.mark.parametrize("path", ["/collections/ledger", "/collections/nothing", "/items/debt"])
async def test_what_is_private_is_not_there(large: httpx.AsyncClient, path: str) -> None:
    answer = await large.get(path)

    assert answer.status_code == 404
    assert "ledger" not in (await large.get("/")).text


async def test_what_a_caller_may_not_read_is_not_there(inn: Inn) -> None:
    async with inn(anonymous={"scopes": ["ask"]}) as parts, asking(parts) as client:
        hidden = [(await client.get(path)).status_code for path in ("/collections/rooms", "/items/attic")]
        key = {"x-api-key": await key_of(parts, "read:rooms")}
        shown = [(await client.get(path, headers=key)).status_code for path in ("/collections/rooms", "/items/attic")]
        homes = [(await client.get("/", headers=headers)).text for headers in ({}, key)]

    assert (hidden, shown) == ([404, 404], [200, 200])
    assert ["/collections/rooms" in home for home in homes] == [False, True]


async def test_a_cursor_of_another_list_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get("/collections/rooms?cursor=abc")

    assert (answer.status_code, answer.json()["type"]) == (400, "urn:portico:error:InvalidCursor")


async def test_the_front_of_the_site_shows_what_only_this_site_does(inn: Inn) -> None:
    async with inn(operations=["portico.demo.operations"]) as parts, asking(parts) as client:
        page = LexborHTMLParser((await client.get("/")).text)

    shown = {each.text() for each in page.css("td code")}
    assert shown == {each.name for each in parts.site.own_operations}
    assert {"view_cart", "ask", "list_rooms"} & shown == {"view_cart"}
    assert [link.attributes["href"] for link in page.css("footer a")][:2] == ["/docs", "/openapi.json"]


@pytest.mark.parametrize("path", ["/", "/collections/rooms", "/collections/nothing", "/items/attic"])
async def test_reading_pages_costs_of_the_allowance(inn: Inn, path: str) -> None:
    async with inn(limits={"anonymous_per_minute": 1}) as parts, asking(parts) as client:
        await client.get(path)
        refused = await client.get(path, headers={"accept": BROWSER})

    assert (refused.status_code, refused.headers["content-type"]) == (429, "text/html; charset=utf-8")
    assert int(refused.headers["retry-after"]) > 0


async def test_a_browser_that_took_a_wrong_way_is_told_on_a_page(client: httpx.AsyncClient) -> None:
    page = await client.get("/nowhere", headers={"accept": "text/html"})
    program = await client.get("/nowhere")

    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Not Found" in page.text
    assert (program.status_code, program.headers["content-type"]) == (404, "application/problem+json")
