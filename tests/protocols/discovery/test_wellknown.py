"""What agents look for at addresses they know."""

import re
from typing import Any

import httpx
import pytest
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS
from tests.protocols.conftest import Inn, asking

from portico import __version__
from portico.protocols.mcp.description import REVISIONS
from portico.server.assembly import Parts
from portico.server.http import application
from portico.store.records import Put

CARDS = ["/mcp/server-card", "/.well-known/mcp/server-card.json", "/.well-known/mcp.json"]
PATHS = [*CARDS, "/.well-known/ai-catalog.json", "/.well-known/api-catalog", "/.well-known/nwp"]


async def read(parts: Parts, path: str) -> httpx.Response:
    async with asking(parts) as client:
        return (await client.get(path)).raise_for_status()


@pytest.mark.parametrize("path", CARDS)
async def test_the_server_card_tells_how_to_connect(parts: Parts, path: str) -> None:
    key = {
        "name": "Authorization",
        "description": "Bearer and an API key or an access token",
        "isRequired": False,
        "isSecret": True,
    }

    assert (await read(parts, path)).json() == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": "example.inn/portico",
        "version": __version__,
        "title": "Portico",
        "description": "Ask Portico in plain words.",
        "websiteUrl": "http://inn.example/",
        "remotes": [
            {
                "type": "streamable-http",
                "url": "http://inn.example/mcp",
                "headers": [key],
                "supportedProtocolVersions": list(REVISIONS),
            }
        ],
    }


def test_the_card_names_the_revisions_that_the_sdk_speaks() -> None:
    assert set(REVISIONS) == set(SUPPORTED_PROTOCOL_VERSIONS)


async def test_a_card_fits_whatever_the_site_is_called(inn: Inn) -> None:
    site = {"name": "N" * 300, "description": "D" * 300}
    async with inn(site=site, server={"url": "https://[::1]:8443"}, anonymous={"scopes": []}) as parts:
        card: dict[str, Any] = (await read(parts, "/mcp/server-card")).json()

    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card["name"])
    assert (len(card["title"]), len(card["description"])) == (100, 100)
    assert (card["remotes"][0]["url"], card["remotes"][0]["headers"][0]["isRequired"]) == (
        "https://[::1]:8443/mcp",
        True,
    )


async def test_the_catalog_leads_to_the_cards(parts: Parts) -> None:
    catalog = (await read(parts, "/.well-known/ai-catalog.json")).json()

    assert [(each["type"], each["url"]) for each in catalog["entries"]] == [
        ("application/mcp-server-card+json", "http://inn.example/mcp/server-card"),
        ("application/a2a-agent-card+json", "http://inn.example/.well-known/agent-card.json"),
        ("application/nwp-manifest+json", "http://inn.example/.well-known/nwp"),
    ]
    for each in (catalog["entries"][0], catalog["entries"][2]):
        assert (await read(parts, each["url"])).headers["content-type"] == each["type"]


async def test_the_api_catalog_lists_every_interface_with_its_description(parts: Parts) -> None:
    answer = await read(parts, "/.well-known/api-catalog")
    whole, *each = answer.json()["linkset"]

    assert answer.headers["content-type"] == (
        'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"'
    )
    assert answer.headers["link"] == '<http://inn.example/.well-known/api-catalog>; rel="api-catalog"'
    assert [link["href"] for link in whole["item"]] == [one["anchor"] for one in each]
    assert {one["anchor"]: one["service-desc"][0]["href"] for one in each} == {
        "http://inn.example/ask": "http://inn.example/openapi.json",
        "http://inn.example/operations": "http://inn.example/openapi.json",
        "http://inn.example/mcp": "http://inn.example/mcp/server-card",
        "http://inn.example/a2a": "http://inn.example/.well-known/agent-card.json",
        "http://inn.example/nwp/site": "http://inn.example/.well-known/nwp",
    }


async def test_the_manifest_is_that_of_the_node_that_leads_to_all_others(parts: Parts) -> None:
    known, own = await read(parts, "/.well-known/nwp"), await read(parts, "/nwp/site/.nwm")

    assert known.json() == own.json()
    assert known.headers["etag"] == own.headers["etag"] == f'"{known.json()["manifest_version"]}"'
    assert known.json()["graph"]["refs"][0]["rel"] == "rooms"


async def test_who_asks_by_the_manifest_is_told_when_its_schema_has_changed(parts: Parts) -> None:
    anchor = (await read(parts, "/.well-known/nwp")).json()["schema_anchors"]["rooms"]
    await parts.store.items.write("rooms", [Put("loft", {"name": "The loft", "stairs": 40})])
    async with asking(parts) as client:
        query = {"anchor_ref": anchor, "auto_anchor": False}
        answer = await client.post("/nwp/rooms/query", json=query)

    assert (answer.status_code, answer.json()["error"]) == (409, "NCP-ANCHOR-STALE")


@pytest.mark.parametrize("path", PATHS)
async def test_pages_elsewhere_may_read_it(parts: Parts, path: str) -> None:
    assert (await read(parts, path)).headers["access-control-allow-origin"] == "*"


async def test_the_card_names_the_server_as_it_names_itself(parts: Parts) -> None:
    app = application(parts)
    hello = {"protocolVersion": REVISIONS[-2], "clientInfo": {"name": "somebody", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        server = (await client.post("/mcp", json=request, headers={"accept": "application/json"})).json()["result"]
    await app.close()
    card = (await read(parts, "/mcp/server-card")).json()

    assert card["name"].endswith(f"/{server['serverInfo']['name']}")
    assert (card["version"], card["title"]) == (server["serverInfo"]["version"], server["serverInfo"]["title"])
