"""The agent card: readable to clients of both versions, true to the catalog, and cheap."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as earlier
from google.protobuf.json_format import MessageToDict
from tests.conformance.requirements import requirement
from tests.protocols.a2a.conftest import visiting
from tests.protocols.conftest import Inn

from portico import __version__
from portico.config import Oauth
from portico.protocols.http import LazyApp
from portico.server.assembly import Parts
from portico.server.http import application

PATH = "/.well-known/agent-card.json"


async def card_of(parts: Parts) -> dict[str, Any]:
    async with visiting(parts) as talk:
        return (await talk.http.get(PATH)).json()


@requirement("nlweb:note:a2a-card")
async def test_a_client_of_1_0_reads_where_the_agent_is_and_what_it_can_do(house: Inn) -> None:
    async with house(site={"name": "The Inn", "description": "Rooms by the harbour."}) as parts:
        read = MessageToDict(parse_agent_card(await card_of(parts)))

    assert (read["name"], read["description"], read["version"]) == ("The Inn", "Rooms by the harbour.", __version__)
    url = "http://127.0.0.1/a2a"
    assert read["supportedInterfaces"] == [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version} for version in ("1.0", "0.3")
    ]
    assert read["capabilities"] == {"streaming": True, "pushNotifications": True}
    assert read["defaultInputModes"] == read["defaultOutputModes"] == ["text/plain", "application/json"]
    assert set(read["securitySchemes"]) == {"bearer", "apiKey"}
    assert "securityRequirements" not in read
    assert [skill["id"] for skill in read["skills"]] == ["ask", "close_house", "paint_house", "reserve_room"]
    assert read["skills"][3] == {
        "id": "reserve_room",
        "name": "Reserve room",
        "description": "Reserve a room.",
        "tags": ["operation", "execute", "safe"],
        "examples": ['{"operation":"reserve_room","params":{"room":"…"}}'],
        "inputModes": ["text/plain", "application/json"],
        "outputModes": ["text/plain", "application/json"],
    }


async def test_a_client_of_0_3_reads_it_too(house: Inn) -> None:
    async with house(anonymous={"scopes": []}, a2a={"push": False}) as parts:
        read = earlier.AgentCard.model_validate(await card_of(parts))

    assert (read.url, read.preferred_transport, read.protocol_version) == ("http://127.0.0.1/a2a", "JSONRPC", "0.3.0")
    assert (read.capabilities.streaming, read.capabilities.push_notifications) == (True, False)
    assert read.security == [{"bearer": []}, {"apiKey": []}]
    schemes = {name: scheme.root for name, scheme in (read.security_schemes or {}).items()}
    assert isinstance(schemes["bearer"], earlier.HTTPAuthSecurityScheme)
    assert isinstance(schemes["apiKey"], earlier.APIKeySecurityScheme)


async def test_where_tokens_are_taken_it_says_from_whom(house: Inn) -> None:
    async with house(anonymous={"scopes": []}) as parts:
        config = msgspec.structs.replace(parts.config, oauth=Oauth(issuer="https://login.example/"))
        read = MessageToDict(parse_agent_card(await card_of(replace(parts, config=config))))

    said = "An API key of this site, or an access token of https://login.example/."
    assert read["securitySchemes"]["bearer"] == {"httpAuthSecurityScheme": {"scheme": "Bearer", "description": said}}
    assert [set(each["schemes"]) for each in read["securityRequirements"]] == [{"bearer"}, {"apiKey"}]


async def test_private_collections_are_not_named(house: Inn) -> None:
    async with house(collections={"rooms": {"title": "Rooms"}, "ledgers": {"private": True}}) as parts:
        card = await card_of(parts)

    assert card["skills"][0]["tags"] == ["ask", "search", "nlweb", "rooms"]
    assert "ledgers" not in str(card)


async def test_what_a_client_has_already_is_not_sent_again(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        first = await talk.http.get(PATH)
        second = await talk.http.get(PATH, headers={"if-none-match": first.headers["etag"]})
        tag = first.headers["etag"]
        known = {each: await talk.http.get(PATH, headers={"if-none-match": each}) for each in ("*", f'W/{tag}, "b"')}
        other = await talk.http.get(PATH, headers={"if-none-match": f'"another", "x{tag[1:]}'})

    assert (first.status_code, second.status_code, second.content, other.status_code) == (200, 304, b"", 200)
    assert [each.status_code for each in known.values()] == [304, 304]
    assert (first.headers["cache-control"], "host" in first.headers["vary"]) == ("public, max-age=300", True)


async def test_it_costs_what_a_request_costs(house: Inn) -> None:
    async with house(limits={"anonymous_per_minute": 1}) as parts, visiting(parts) as talk:
        first, second = await talk.http.get(PATH), await talk.http.get(PATH)

    assert (first.status_code, second.status_code) == (200, 429)


def test_a_server_starts_without_the_sdk() -> None:
    late = ("a2a", "google.protobuf", "mcp", "onnxruntime", "portico.sources.fetch")
    said = f"import sys, portico.server.http; print(*(name in sys.modules for name in {late}))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["False"] * len(late)


async def test_what_nobody_has_asked_for_is_made_a_while_after_the_start(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answers of a server do not compete with it, and one that stops at once need not wait for it."""
    begun: list[LazyApp] = []

    def start(app: LazyApp) -> None:
        begun.append(app)

    monkeypatch.setattr(LazyApp, "start", start)

    async with beginning(parts):
        await asyncio.sleep(0.02)
    assert begun == []

    monkeypatch.setattr("portico.server.http.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("portico.server.http.BUSY", -1.0)  # it always is
    async with beginning(parts):
        await asyncio.sleep(0.02)
    assert begun == []

    monkeypatch.setattr("portico.server.http.BUSY_SECONDS", 0.0)
    async with beginning(parts), asyncio.timeout(60):
        while len(begun) < 2:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def beginning(parts: Parts) -> AsyncIterator[None]:
    """An application from its start to its end."""
    app = application(parts)
    app.begin()
    yield
    await app.close()
