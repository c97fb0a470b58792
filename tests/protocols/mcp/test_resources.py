"""Reading the site by addresses."""

import json
from typing import Any
from urllib.parse import quote

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from tests.conformance.requirements import requirement
from tests.protocols.conftest import ROOMS, Inn, asking, key_of
from tests.protocols.mcp.conftest import ERAS, Era, visiting

from portico.catalog import Collection, Field, FieldType
from portico.protocols.mcp import resources
from portico.protocols.rendering import SCHEMA
from portico.requests import Caller
from portico.server.assembly import Parts
from portico.store.records import Put

NOT_FOUND = {"2026-07-28": types.INVALID_PARAMS, "legacy": -32002}
ODD_IDS = ("a/b", "/", "..", "50 %", "%2F", "?x#y", "Käse 🧀", "https://inn.example/rooms?id=1&x=2", "a\nb", "é" * 512)
HOSTILE = (
    "",
    "rooms",
    "portico:",
    "portico://",
    "portico://catalog/",
    "portico://catalog?x",
    "PORTICO://catalog",
    "portico://collections",
    "portico://collections/",
    "portico://collections/rooms/",
    "portico://collections/..",
    "portico://collections/%",
    "portico://collections/%00",
    "portico://collections/%C3%28",
    "portico://collections/%ED%A0%80",
    "portico://items/rooms",
    "portico://items/rooms/",
    "portico://items//attic",
    "portico://items/rooms/../rooms/attic",
    "portico://items/rooms/attic#top",
    "portico://items/rooms/attic?x=1",
    "portico://items/rooms/%zz",
    "portico://items/rooms/a%00b",
    "portico://items/rooms/%FF",
    "portico://items/rooms/" + "a" * 100_000,
    "file:///etc/passwd",
    "http://169.254.169.254/latest",
    "portico://items/rooms/' OR 1=1 --",
    "portico://items/_operations/x",
    "\u202eportico://catalog",
)


def said(result: types.ReadResourceResult) -> tuple[str, str, Any]:
    (contents,) = result.contents
    assert isinstance(contents, types.TextResourceContents)
    return contents.uri, contents.mime_type or "", json.loads(contents.text)


async def refusal(client: Client, uri: str) -> tuple[int, str, Any]:
    with pytest.raises(MCPError) as refused:
        await client.read_resource(uri)
    error = refused.value.error
    return error.code, error.message, error.data


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:resources:list")
async def test_the_list_has_the_catalog_and_every_collection_one_may_read(parts: Parts, era: Era) -> None:
    await parts.store.collections.declare(Collection("diary", private=True))
    await parts.store.collections.declare(Collection("guests", title="Guests", description="Who is here."))

    async with visiting(parts, era) as everyone:
        listed = (await everyone.list_resources()).resources
    async with visiting(parts, era, await key_of(parts, "ask", "read:rooms")) as somebody:
        narrow = (await somebody.list_resources()).resources

    assert [(each.uri, each.title) for each in listed] == [
        ("portico://catalog", "Catalog of Portico"),
        ("portico://collections/guests", "Guests"),
        ("portico://collections/rooms", "rooms"),
    ]
    assert [each.uri for each in narrow] == ["portico://catalog", "portico://collections/rooms"]


async def test_a_long_list_comes_in_pages(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PAGE", 2)
    names = ["baths", "drinks", "meals", "walks"]
    for name in names:
        await parts.store.collections.declare(Collection(name))
    found: list[str] = []

    async with visiting(parts) as client:
        page = await client.list_resources()
        found += [each.name for each in page.resources]
        while page.next_cursor:
            page = await client.list_resources(cursor=page.next_cursor)
            found += [each.name for each in page.resources]
        with pytest.raises(MCPError, match="cursor") as refused:
            await client.list_resources(cursor="nowhere")

    assert found == ["catalog", *sorted([*names, "rooms"])]
    assert refused.value.error.code == types.INVALID_PARAMS


async def test_the_catalog_says_what_there_is_and_what_one_can_have_done(parts: Parts) -> None:
    await parts.store.collections.declare(Collection("diary", private=True))

    async with visiting(parts) as client:
        uri, kind, catalog = said(await client.read_resource("portico://catalog"))
    async with visiting(parts, key=await key_of(parts, "ask")) as stranger:
        _, _, little = said(await stranger.read_resource("portico://catalog"))

    operations = {each["name"]: each for each in catalog["operations"]}
    assert (uri, kind, catalog["site"]) == ("portico://catalog", "application/json", "Portico")
    assert catalog["collections"] == [
        {
            "uri": "portico://collections/rooms",
            "name": "rooms",
            "fields": {
                "@type": "string",
                "name": "string",
                "beds": "integer",
                "price": "number",
                "url": "string",
                "image": "string",
                "description": "string",
            },
        }
    ]
    assert operations["get_room"] == {
        "name": "get_room",
        "kind": "read",
        "danger": "safe",
        "description": parts.site.catalog.operations["get_room"].description,
    }
    assert "delete_room" not in operations
    assert little["collections"] == []
    assert "get_room" not in {each["name"] for each in little["operations"]}


async def test_a_collection_tells_its_fields_and_how_many_items_it_has(parts: Parts) -> None:
    fields = {"stars": Field("stars", FieldType.INTEGER, path="rating.stars", declared=True, description="1 to 5")}
    await parts.store.collections.declare(Collection("inns", fields, "Inns", "Where to stay.", "Hotel", language="de"))
    await parts.store.items.write("inns", [Put("swan", {"rating": {"stars": 4}}), Put("bear", {})])

    async with visiting(parts) as client:
        uri, kind, inns = said(await client.read_resource("portico://collections/inns"))

    assert (uri, kind) == ("portico://collections/inns", "application/json")
    assert inns == {
        "name": "inns",
        "title": "Inns",
        "description": "Where to stay.",
        "type": "Hotel",
        "language": "de",
        "count": 2,
        "anchor_id": parts.site.catalog.collections["inns"].anchor_id,
        "items": "portico://items/inns/{id}",
        "fields": {
            "stars": {"type": "integer", "path": "rating.stars", "description": "1 to 5"},
            "rating": {"type": "object"},
        },
    }


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:resources:list")
async def test_an_item_is_read_at_the_address_that_the_template_gives(parts: Parts, era: Era) -> None:
    await parts.store.items.write("rooms", [Put(id, {"name": "Odd"}) for id in ODD_IDS])

    async with visiting(parts, era) as client:
        collection, item = (await client.list_resource_templates()).resource_templates
        template = UriTemplate.parse(item.uri_template)
        attic = said(await client.read_resource(template.expand({"collection": "rooms", "id": "attic"})))
        odd = [
            said(await client.read_resource(template.expand({"collection": "rooms", "id": id})))[2] for id in ODD_IDS
        ]

    assert collection.uri_template == "portico://collections/{collection}"
    assert attic == (
        "portico://items/rooms/attic",
        "application/ld+json",
        {"@context": SCHEMA, "@id": "attic", **ROOMS["attic"]},
    )
    assert odd == [{"@context": SCHEMA, "@id": id, "@type": "Thing", "name": "Odd"} for id in ODD_IDS]


async def test_an_id_may_keep_its_slashes_and_letters(parts: Parts) -> None:
    await parts.store.items.write("rooms", [Put("north/Käse", {"name": "Odd"})])

    async with visiting(parts) as client:
        _, _, item = said(await client.read_resource("portico://items/rooms/north/Käse"))

    assert item == {"@context": SCHEMA, "@id": "north/Käse", "@type": "Thing", "name": "Odd"}


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:resources:not-found")
async def test_every_address_that_leads_nowhere_is_answered_alike(parts: Parts, era: Era) -> None:
    async with visiting(parts, era) as client:
        answers = {uri: await refusal(client, uri) for uri in HOSTILE}

    assert answers == {uri: (NOT_FOUND[era], "Resource not found", {"uri": uri[:6000]}) for uri in HOSTILE}


@requirement("mcp:resources:not-found")
async def test_what_one_may_not_read_does_not_exist(parts: Parts) -> None:
    await parts.store.collections.declare(Collection("diary", private=True))
    await parts.store.items.write("diary", [Put("monday", {"name": "Rain"})])
    await parts.store.collections.declare(Collection("guests"))
    await parts.store.items.write("guests", [Put("ann", {"name": "Ann"})])
    hidden = ("collections/diary", "items/diary/monday", "collections/guests", "items/guests/ann")

    async with visiting(parts, key=await key_of(parts, "ask", "read:rooms")) as client:
        refused = [(await refusal(client, f"portico://{each}"))[:2] for each in hidden]
        unknown = (await refusal(client, "portico://items/nothing/x"))[:2]

    assert refused == [unknown] * len(hidden)


async def test_half_a_letter_is_no_address(parts: Parts) -> None:
    with pytest.raises(MCPError) as refused:
        await resources.read_resource(parts.site, Caller(), "portico://items/rooms/\ud800")

    assert refused.value.error.data == {"uri": "portico://items/rooms/?"}


@pytest.mark.parametrize("uri", ["portico://catalog", "portico://items/rooms/attic", "portico://items/no/x", "nowhere"])
async def test_reading_costs_a_request_found_or_not(inn: Inn, uri: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}
    headers = {"accept": "application/json, text/event-stream"}
    async with inn(limits={"anonymous_per_minute": 1}) as parts, asking(parts, headers=headers) as http:
        first, second = [await http.post("/mcp", json=message) for _ in range(2)]

    assert first.status_code != 429
    assert second.status_code == 429


def test_an_address_is_written_as_it_is_read() -> None:
    addresses = [
        resources.ResourceAddress(),
        resources.ResourceAddress("rooms"),
        *(resources.ResourceAddress("rooms", id) for id in ODD_IDS),
    ]

    assert [resources.address_of(each.uri) for each in addresses] == addresses
    assert addresses[2].uri == f"portico://items/rooms/{quote('a/b', safe='')}"
