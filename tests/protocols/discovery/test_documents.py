"""What holds for every document of the site: what it costs, who may keep it, and by what name it calls the site."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.protocols.conftest import Inn, asking, key_of

ISSUER = {"issuer": "https://login.example", "keys": "https://login.example/keys"}
NAMELESS = [  # documents that name no address of the site
    "/",
    "/openapi.json",
    "/v1/ca/cert",
    "/v1/crl",
    "/v1/agents/urn:nps:agent:inn.example:nobody/verify",
]
NAMING = [
    "/docs",
    "/llms.txt",
    "/robots.txt",
    "/sitemap.xml",
    "/sitemap-rooms-1.xml",
    "/collections/rooms",
    "/items/attic",
    "/mcp/server-card",
    "/.well-known/mcp.json",
    "/.well-known/mcp/server-card.json",
    "/.well-known/ai-catalog.json",
    "/.well-known/api-catalog",
    "/.well-known/agent-card.json",
    "/.well-known/nwp",
    "/.well-known/nps-ca",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
]
PATHS = [*NAMELESS, *NAMING]


@pytest.fixture
async def known(inn: Inn) -> AsyncIterator[httpx.AsyncClient]:
    """An inn that knows the name it is reached by, but has no address of its own."""
    async with inn(oauth=ISSUER, server={"hosts": ["inn.example"]}) as parts, asking(parts) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
async def test_a_document_costs_one_request(inn: Inn, path: str) -> None:
    async with inn(oauth=ISSUER, limits={"anonymous_per_minute": 2}) as parts, asking(parts) as client:
        statuses = [(await client.get(path)).status_code for _ in range(3)]

    assert statuses == [200, 200, 429]


@pytest.mark.parametrize("path", PATHS)
async def test_a_document_is_not_sent_twice_to_who_has_it(known: httpx.AsyncClient, path: str) -> None:
    first = await known.get(path)
    again = await known.get(path, headers={"if-none-match": first.headers["etag"]})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])


@pytest.mark.parametrize("path", PATHS)
async def test_a_document_by_the_name_of_a_stranger_is_kept_by_nobody(known: httpx.AsyncClient, path: str) -> None:
    ours = await known.get(path)
    theirs = await known.get(path, headers={"host": "evil.example"})

    by_name = path in NAMING
    assert ("host" in ours.headers["vary"].split(", ")) == by_name
    assert (theirs.headers["cache-control"] == "no-store") == by_name
    assert "no-store" not in ours.headers["cache-control"]
    assert "evil.example" not in ours.text
    assert by_name or "evil.example" not in f"{theirs.text}{theirs.headers}"


@pytest.mark.parametrize("path", PATHS)
async def test_a_site_with_an_address_goes_by_that_alone(inn: Inn, path: str) -> None:
    settings: dict[str, Any] = {"oauth": ISSUER, "server": {"url": "https://inn.example"}}
    async with inn(**settings) as parts, asking(parts) as client:
        ours = await client.get(path)
        theirs = await client.get(path, headers={"host": "evil.example"})

    assert (theirs.text, theirs.headers) == (ours.text, ours.headers)
    assert "host" not in ours.headers["vary"].split(", ")


async def test_who_has_no_good_token_still_learns_where_to_get_one(known: httpx.AsyncClient) -> None:
    wrong = {"authorization": "Bearer pk_wrong"}
    metadata = await known.get("/.well-known/oauth-protected-resource/mcp", headers=wrong)
    card = await known.get("/mcp/server-card", headers=wrong)

    assert (metadata.status_code, metadata.json()["authorization_servers"]) == (200, ["https://login.example"])
    assert (card.status_code, card.headers["content-type"]) == (401, "application/problem+json")


async def test_who_has_a_key_pays_with_it(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 1, "keys_per_minute": 3}) as parts, asking(parts) as client:
        key = {"x-api-key": await key_of(parts)}
        statuses = [(await client.get("/openapi.json", headers=key)).status_code for _ in range(4)]
        stranger = await client.get("/openapi.json")

    assert statuses == [200, 200, 200, 429]
    assert stranger.status_code == 200
