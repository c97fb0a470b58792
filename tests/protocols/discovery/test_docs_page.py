"""`/docs`: everything that the document says, for people; nothing runs in it."""

import json
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.protocols.conftest import Inn, asking

from portico.server.assembly import Parts

OWN = '''
from typing import Annotated
from msgspec import Meta
from portico.operations import Context, operation

Words = Annotated[str, Meta(description="Say <b>what</b>", examples=["it's <i>"])]

@operation(danger="safe")
async def shout(context: Context, text: Words) -> str:
    """Make <script>alert(1)</script> loud."""
    return text.upper()
'''


@pytest.fixture
async def client(inn: Inn, tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    anybody = {"scopes": ["ask", "read:*", "execute:*"], "danger": "safe"}
    said = {"operations": ["own.py"], "site": {"name": "Inn & <Bar>"}, "anonymous": anybody}
    async with inn(**said) as parts, asking(parts) as client:
        yield client


async def page(client: httpx.AsyncClient, **headers: str) -> LexborHTMLParser:
    return LexborHTMLParser((await client.get("/docs", headers=headers)).text)


async def test_every_method_of_every_path_is_shown(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    told = {
        (method.upper(), path, step["summary"])
        for path, item in document["paths"].items()
        for method, step in item.items()
        if method != "parameters"
    }

    found = (await page(client)).css("summary")

    shown = [tuple(each.text(strip=True) for each in summary.iter()) for summary in found]
    assert sorted(shown) == sorted(told)


async def test_what_only_this_site_does_comes_first_and_collections_stand_by_themselves(
    client: httpx.AsyncClient,
) -> None:
    body = (await page(client)).css_first("body")
    groups: dict[str, list[str]] = {}
    for each in body.css("h2, details"):
        if each.tag == "h2":
            groups[each.text()] = []
        else:
            groups[list(groups)[-1]].append(each.css_first("div").attributes["id"] or "")

    assert list(groups)[:4] == ["Own operations", "Questions", "Items", "Collection rooms"]
    assert groups["Own operations"] == ["call_shout"]
    assert [id.partition("_")[2] for id in groups["Collection rooms"]] == [
        *("count_rooms", "create_room", "delete_room", "get_room", "list_rooms", "search_rooms", "update_room")
    ]
    assert {"get_operations", "call_ask", "call_get_task"} <= set(groups["Operations"])


async def test_a_site_without_operations_of_its_own_has_no_heading_for_them(parts: Parts) -> None:
    async with asking(parts) as client:
        found = await page(client)

    assert found.css_first("h2").text() == "Questions"
    assert "Own operations" not in found.text()


async def test_what_an_operation_takes_is_a_table(client: httpx.AsyncClient) -> None:
    shout = (await page(client)).css_first("#call_shout")
    members = next(each for each in shout.css("table") if "Member" in each.text())

    rows = [[cell.text() for cell in row.css("td")] for row in members.css("tr")[1:]]
    assert rows == [["text", "string", "Required. Say <b>what</b>"]]


async def test_nothing_in_it_runs_or_comes_from_elsewhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    found = LexborHTMLParser(answer.text)
    policy = answer.headers["content-security-policy"]

    assert not found.css("script:not([src]), img, iframe, [style], [onclick], .rows b ~ b")
    parts = [each.attributes.get("href") or each.attributes["src"] for each in found.css("link, script")]
    assert all(part.startswith("/assets/") for part in parts)
    assert "Inn & <Bar>" in found.css_first("h1").text()
    assert "Make <script>alert(1)</script> loud." in found.css_first("details:has(#call_shout) summary").text()
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert all(each.attributes["href"][0] in "/#" for each in found.css("a"))


async def test_its_examples_name_the_site_as_it_was_reached(client: httpx.AsyncClient) -> None:
    named = await page(client, host="inn.example:8000")
    odd = await page(client, host='inn.example"><script>')

    assert "curl http://inn.example:8000/healthz" in named.text()
    assert "curl http://127.0.0.1:8000/healthz" in odd.text()


async def test_its_examples_do_what_they_say(client: httpx.AsyncClient) -> None:
    found = await page(client)

    answers = {
        id: await _run(client, found, id)
        for id in ("call_shout", "call_list_rooms", "get_ask", "get_operations", "query_node", "get_node_manifest")
    }

    assert {id: each.status_code for id, each in answers.items()} == dict.fromkeys(answers, 200)
    assert answers["call_shout"].json() == {"operation": "shout", "result": "IT'S <I>"}
    assert len(answers["call_list_rooms"].json()["result"]["items"]) == 3
    assert answers["query_node"].json()["count"] == 3


async def _run(client: httpx.AsyncClient, found: LexborHTMLParser, id: str) -> httpx.Response:
    """Do what the line for a shell would do."""
    match shlex.split(found.css_first(f"#{id} pre").text().replace("\\\n", "")):
        case ["curl", url]:
            return await client.get(url)
        case ["curl", "-X", "POST", url, "-H", header, "-d", body]:
            name, _, value = header.partition(": ")
            sent: Any = json.loads(body)
            return await client.post(url, json=sent, headers={name: value})
        case line:
            raise AssertionError(line)
