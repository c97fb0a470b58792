"""What people see at the address of a node."""

import json
import shlex
from typing import Any

import httpx
import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.protocols.conftest import Inn, asking, key_of

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
NODES = ["rooms", "rooms-operations", "operations", "gateway", "site"]
HOSTILE = "</title><script>alert(1)</script>\u202eesrever " + "w" * 100_000
ELEMENTS = {
    "html", "head", "meta", "title", "link", "script", "style", "body", "nav", "main", "footer", "div", "span", "p",
    "h1", "h2", "pre", "table", "tbody", "tr", "th", "td", "ul", "li", "dl", "dt", "dd", "a", "bdi", "code",
    "details", "summary", "header",
}  # fmt: skip


async def page(client: httpx.AsyncClient, node: str) -> LexborHTMLParser:
    answer = await client.get(f"/nwp/{node}", headers=BROWSER)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    return LexborHTMLParser(answer.text)


def rows(found: LexborHTMLParser, heading: str) -> list[list[str]]:
    """The table under a heading."""
    after = next(each for each in found.css("h2") if each.text() == heading)
    while after.tag != "div":
        after = after.next
    return [[cell.text() for cell in row.css("td")] for row in after.css("tr")[1:]]


async def run(client: httpx.AsyncClient, found: LexborHTMLParser, **variables: str) -> httpx.Response:
    """Do what the line for a shell would do."""
    line = found.css_first("pre").text().replace("\\\n", "")
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    match shlex.split(line):
        case ["curl", url, "-d", body]:
            return await client.post(url, json=json.loads(body))
        case ["curl", url, "-H", header, "-d", body]:
            name, _, value = header.partition(": ")
            return await client.post(url, json=json.loads(body), headers={name: value})
        case words:
            raise AssertionError(words)


async def test_a_page_says_what_a_node_is_and_holds(inn: Inn) -> None:
    described = {"rooms": {"title": "Rooms & more", "description": "Where to sleep."}}
    async with inn(collections=described) as parts, asking(parts) as client:
        found = await page(client, "rooms")

    assert [found.css_first(each).text() for each in (".kind", "h1", ".lead")] == [
        *("Memory node", "Rooms & more", "Where to sleep.")
    ]
    assert rows(found, "Schema")[:4] == [
        ["id", "string", "entity.id"],
        ["@type", "string", ""],
        ["name", "string", "entity.label"],
        ["beds", "int64", ""],
    ]
    assert ["POST /nwp/rooms/query", "Records that fit a filter, a page at a time"] in rows(found, "Addresses")
    assert not [row for row in rows(found, "Addresses") if "invoke" in row[0]]
    assert "Anybody." in found.css_first("dl").text()


async def test_a_page_says_what_a_node_does(client: httpx.AsyncClient) -> None:
    found = await page(client, "rooms-operations")

    actions = {each.css_first("code").text(): each.text() for each in found.css(".list li")}
    assert "Takes id (string, required), input (object, required), if_match (string)." in actions["rooms.update"]
    assert "Can run as a task." in actions["rooms.delete"]
    assert "Can run as a task" not in actions["rooms.get"]
    assert list(actions)[-1] == "system.task.cancel"


@pytest.mark.parametrize("node", NODES)
async def test_the_example_of_a_node_works(client: httpx.AsyncClient, node: str) -> None:
    answer = await run(client, await page(client, node))

    assert (answer.status_code, answer.json()["frame"]) == (200, "0x04"), answer.text


async def test_the_example_of_a_closed_node_works_with_a_key(inn: Inn) -> None:
    async with inn(nwp={"auth": "bearer"}) as parts, asking(parts) as client:
        found = await page(client, "rooms")
        answers = [await run(client, found, KEY=key) for key in (await key_of(parts), "pk_wrong")]

    assert [each.status_code for each in answers] == [200, 401]


async def test_all_links_of_all_pages_lead_somewhere(client: httpx.AsyncClient) -> None:
    found = {node: await page(client, node) for node in NODES}
    links = {each.attributes["href"] or "" for shown in found.values() for each in shown.css("a:not(.skip)")}
    statuses = {link: (await client.get(link, headers=BROWSER)).status_code for link in links}

    assert statuses == dict.fromkeys(links, 200)
    assert {f"/nwp/{node}" for node in NODES} <= links


async def test_no_title_puts_anything_of_its_own_on_a_page(inn: Inn) -> None:
    said: dict[str, Any] = {
        "site": {"name": HOSTILE},
        "collections": {"rooms": {"title": HOSTILE, "description": f"javascript:alert(1) {HOSTILE}"}},
    }
    async with inn(**said) as parts, asking(parts) as client:
        pages = [await page(client, node) for node in NODES]

    for found in pages:
        assert {each.tag for each in found.css("*")} <= ELEMENTS
        assert all((each.attributes["href"] or "").startswith(("/", "#")) for each in found.css("a"))
        assert [each.attributes["src"] for each in found.css("script")] == ["/assets/theme.js", "/assets/page.js"]
        assert not [name for each in found.css("*") for name in each.attributes if name.startswith("on")]
        assert "\u202e" not in found.css_first("title").text()
        assert len(found.html or "") < 50_000
    text = pages[0].css_first("h1 > bdi").text()
    assert text.startswith("</title><script>alert(1)</script>")
    assert len(text) <= 300


async def test_a_browser_may_use_what_the_site_serves_and_nothing_else(client: httpx.AsyncClient) -> None:
    answer = await client.get("/nwp/site", headers=BROWSER)

    assert not LexborHTMLParser(answer.text).css("style, [style], script:not([src])")
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'self'; script-src 'self'"
    )
