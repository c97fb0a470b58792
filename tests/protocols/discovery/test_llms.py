"""What language models read first."""

import re

from tests.protocols.conftest import Inn, asking, key_of

SETTINGS = {
    "site": {"name": "The Inn", "description": "Rooms by\nthe sea."},
    "collections": {
        "rooms": {"title": "Rooms", "description": "Where to sleep.", "type": "HotelRoom"},
        "ledger": {"private": True},
    },
}


async def read(inn: Inn, **said: object) -> str:
    async with inn(**SETTINGS, **said) as parts, asking(parts) as client:
        return (await client.get("/llms.txt")).raise_for_status().text


async def test_it_is_plain_text_that_browsers_show(inn: Inn) -> None:
    async with inn() as parts, asking(parts) as client:
        answer = await client.get("/llms.txt")
        again = await client.get("/llms.txt", headers={"if-none-match": answer.headers["etag"]})

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert again.status_code == 304


async def test_it_has_the_shape_that_readers_expect(inn: Inn) -> None:
    lines = (await read(inn)).splitlines()

    assert lines[:3] == ["# The Inn", "", "> Rooms by the sea."]
    assert [line for line in lines if line.startswith("#")][1:] == [
        "## Collections",
        "## Ask",
        "## Read",
        "## Do",
        "## Optional",
    ]


async def test_it_says_what_there_is_and_what_to_ask_by(inn: Inn) -> None:
    text = await read(inn)

    assert (
        "- [Rooms](http://inn.example/collections/rooms): "
        "Where to sleep. 3 items of type HotelRoom. Ask by beds, price.\n"
    ) in text
    assert "- [NWP](http://inn.example/nwp/site): " in text
    assert "[manifest](http://inn.example/.well-known/nwp)" in text
    assert "ledger" not in text


async def test_it_says_only_what_the_caller_may_read_and_do(inn: Inn) -> None:
    settings = {**SETTINGS, "anonymous": {"scopes": ["ask"]}, "operations": ["portico.demo.operations"]}
    async with inn(**settings) as parts, asking(parts) as client:
        key = {"x-api-key": await key_of(parts, "read:rooms", "execute:view_cart")}
        anybody = (await client.get("/llms.txt")).text
        somebody = (await client.get("/llms.txt", headers=key)).text

    cart = "- [view_cart](http://inn.example/operations#view_cart): Show what is in a cart."
    assert [(line in text) for text in (anybody, somebody) for line in ("## Collections", cart)] == [
        *(False, False),
        *(True, True),
    ]


async def test_whatever_it_links_to_can_be_read_but_for_the_ways_to_ask(inn: Inn) -> None:
    async with inn(**SETTINGS, operations=["portico.demo.operations"]) as parts, asking(parts) as client:
        client.headers["x-api-key"] = await key_of(parts, "ask", "read:rooms", "execute:view_cart")
        text = (await client.get("/llms.txt")).text
        links = {link.removeprefix("http://inn.example") for link in re.findall(r"\]\(([^)]+)\)", text)}
        status = {link: (await client.get(link)).status_code for link in links}

    assert "/operations#view_cart" in links
    assert {link for link, code in status.items() if code != 200} == {"/ask", "/mcp", "/a2a"}
