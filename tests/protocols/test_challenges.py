"""Access tokens over HTTP: what they open, and what is said to those who have none."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking, listening
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from portico.server.assembly import Parts

KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = "https://login.example"
SITE = "https://inn.example"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
QUESTION = {"query": {"text": "attic"}}


def token(**claims: Any) -> dict[str, str]:
    """The header of a request with a good token, but for what is said."""
    exp = int(datetime.now(UTC).timestamp()) + 300
    said = {"iss": ISSUER, "sub": "ann", "aud": f"{SITE}/ask", "exp": exp, **claims}
    return {"authorization": f"Bearer {jwt.encode(said, KEY, 'ES256', {'typ': 'at+jwt'})}"}


@asynccontextmanager
async def trusting(inn: Inn, folder: Path, **said: Any) -> AsyncIterator[Parts]:
    """The inn, which answers only those whom an authorization server vouches for."""
    keys = {"keys": [ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)]}
    (folder / "keys.json").write_text(json.dumps(keys))
    oauth = {"issuer": ISSUER, "keys": "keys.json", **said.pop("oauth", {})}
    settings = {"site": {"name": 'The "inn"'}, "server": {"url": SITE}, "anonymous": {"scopes": []}, "oauth": oauth}
    async with inn(**{**settings, **said}) as parts:
        yield parts


@pytest.fixture
async def client(inn: Inn, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with trusting(inn, tmp_path) as parts, asking(parts) as client:
        yield client


def challenge(door: str = "", error: str = "") -> str:
    return f'Bearer realm="The ?inn?", {error}scope="ask read:*", resource_metadata="{SITE}{WELL_KNOWN}{door}"'


async def test_a_token_opens_what_its_holder_may_do(client: httpx.AsyncClient) -> None:
    answer = await client.post("/ask", json=QUESTION, headers=token())
    counted = await client.post("/operations/count_rooms", json={}, headers=token(aud=SITE))
    refused = await client.post("/operations/delete_room", json={"id": "attic"}, headers=token())

    assert [item["name"] for item in answer.json()["results"]] == ["The attic"]
    assert counted.json() == {"operation": "count_rooms", "result": {"count": 3}}
    assert (refused.status_code, refused.json()["title"]) == (403, "Forbidden")
    assert "www-authenticate" not in refused.headers


async def test_a_token_may_name_scopes_but_never_what_its_holder_may_risk(inn: Inn, tmp_path: Path) -> None:
    room, bearer = {"input": {"name": "Loft"}}, token(scope="create:rooms")
    statuses: list[int] = []
    for danger in ("safe", "reversible"):
        async with trusting(inn, tmp_path, oauth={"danger": danger}) as parts, asking(parts) as client:
            answer = await client.post("/operations/create_room", json=room, headers=bearer)
            statuses.append(answer.status_code)

    assert statuses == [403, 200]


@pytest.mark.parametrize(("path", "door"), [("/ask", "/ask"), ("/operations/count_rooms", ""), ("/await", "")])
@requirement("mcp:auth:challenge")
async def test_who_brings_no_good_token_is_told_where_to_get_one(
    client: httpx.AsyncClient, path: str, door: str
) -> None:
    wrong = await client.post(path, json=QUESTION, headers=token(aud="https://elsewhere.example"))
    key = await client.post(path, json=QUESTION, headers={"x-api-key": "pk_wrong"})

    for each in (wrong, key):
        assert each.status_code == 401
        assert each.headers["www-authenticate"] == challenge(door, 'error="invalid_token", ')
    assert "The access token is for another audience" in wrong.text


async def test_who_brings_no_credentials_is_not_told_that_they_are_wrong(client: httpx.AsyncClient) -> None:
    answers = [await client.post("/ask", json=QUESTION), await client.post("/operations/count_rooms", json={})]

    assert [each.status_code for each in answers] == [401, 401]
    assert [each.headers["www-authenticate"] for each in answers] == [challenge("/ask"), challenge()]


async def test_a_web_socket_is_told_too(inn: Inn, tmp_path: Path) -> None:
    async with trusting(inn, tmp_path) as parts, listening(parts) as port:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(f"ws://127.0.0.1:{port}/ask", additional_headers=token(exp=1_000_000_000))

    response = refusal.value.response
    assert (response.status_code, response.headers["www-authenticate"]) == (
        401,
        challenge("/ask", 'error="invalid_token", '),
    )


@pytest.mark.parametrize("door", ["", "/mcp", "/a2a", "/ask"])
@requirement("mcp:auth:metadata")
async def test_metadata_say_who_gives_out_tokens_for_the_site_and_its_doors(
    client: httpx.AsyncClient, door: str
) -> None:
    answer = await client.get(f"{WELL_KNOWN}{door}")

    assert answer.json() == {
        "resource": f"{SITE}{door}",
        "authorization_servers": [ISSUER],
        "scopes_supported": ["ask", "read:*"],
        "bearer_methods_supported": ["header"],
        "resource_name": 'The "inn"',
        "resource_documentation": f"{SITE}/",
    }
    assert answer.headers["cache-control"] == "public, max-age=3600"


async def test_a_site_without_an_address_of_its_own_is_named_as_the_client_did(inn: Inn, tmp_path: Path) -> None:
    async with trusting(inn, tmp_path, server={}, oauth={"scopes": []}) as parts, asking(parts) as client:
        metadata = (await client.get(f"{WELL_KNOWN}/mcp")).json()
        challenged = await client.post("/ask", json=QUESTION, headers={"host": "inn.lan:81"})

    assert metadata["resource"] == "http://inn.example/mcp"
    assert "scopes_supported" not in metadata
    assert challenged.headers["www-authenticate"] == (
        f'Bearer realm="The ?inn?", resource_metadata="http://inn.lan:81{WELL_KNOWN}/ask"'
    )


async def test_without_an_issuer_there_are_no_metadata_and_only_keys_are_asked_for(inn: Inn) -> None:
    async with inn(anonymous={"scopes": []}) as parts, asking(parts) as client:
        metadata = await client.get(WELL_KNOWN)
        refused = await client.post("/ask", json=QUESTION, headers=token())

    assert metadata.status_code == 404
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "The API key is not valid" in refused.text
