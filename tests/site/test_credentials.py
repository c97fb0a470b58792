"""Operations of OpenAPI documents are called with credentials, which nobody but their server sees."""

import base64
import json
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from tests.site.conftest import Calling, Elsewhere, Open

from portico.errors import ConfigError, OperationFailed, SiteError, Unavailable
from portico.sources.ingest import load_sources
from portico.telemetry import discard

SECRET = "s3cret-Value_42"
ALLOWED = {"allow_hosts": ["127.0.0.1"]}
BEARER = {"type": "bearer", "env": "TOURS_KEY"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TOURS_KEY": SECRET, "TOURS_USER": "ada", "TOURS_ID": "portico:1"}.items():
        monkeypatch.setenv(name, value)


Tours = Callable[..., AbstractAsyncContextManager[Calling]]


@pytest.fixture
def tours(opened: Open, elsewhere: Elsewhere, tmp_path: Path) -> Tours:
    """Load a document with credentials, and open the site of its operations."""

    @asynccontextmanager
    async def opening(auth: dict[str, str], **document: Any) -> AsyncIterator[Calling]:
        api = {"openapi": "3.1.0", "servers": [{"url": f"{elsewhere.url}/api"}], "paths": {"/tours": {"get": {}}}}
        (tmp_path / "tours.json").write_text(json.dumps({**api, **document}))
        source = {"url": str(tmp_path / "tours.json"), "collection": "_operations", "auth": auth}
        async with opened(source=[source], **ALLOWED) as parts:
            await load_sources(parts.config, parts.store, discard)
            stored = [item.data async for page in parts.store.items.scan("_operations") for item in page]
        assert SECRET not in repr(stored)
        async with opened(source=[source], **ALLOWED) as parts:
            yield Calling(parts.site)

    return opening


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("auth", "header", "expected"),
    [
        ({"type": "header", "name": "X-Key", "env": "TOURS_KEY"}, "X-Key", SECRET),
        (BEARER, "Authorization", f"Bearer {SECRET}"),
        (
            {"type": "basic", "user_env": "TOURS_USER", "password_env": "TOURS_KEY"},
            "Authorization",
            basic("ada", SECRET),
        ),
    ],
)
async def test_secrets_go_into_a_header(tours: Tours, elsewhere: Elsewhere, auth, header, expected) -> None:
    async with tours(auth) as call:
        assert await call("get_tours") == {}

    assert elsewhere.asked[0].headers[header] == expected


async def test_a_key_goes_into_the_query_and_is_in_no_error(tours: Tours, elsewhere: Elsewhere) -> None:
    """Its parameter has a plain name, by which no URL is redacted."""
    auth = {"type": "query", "name": "appid", "env": "TOURS_KEY"}
    async with tours(auth) as call:
        await call("get_tours")
        assert elsewhere.asked[0].path == f"/api/tours?appid={SECRET}"
        for status in (0, 500, 404):
            elsewhere.status = status
            with pytest.raises(SiteError) as failure:
                await call("get_tours")
            assert SECRET not in "".join(traceback.format_exception(failure.value))
            assert SECRET not in repr(failure.value.details)


async def test_a_response_that_repeats_the_secret_is_shown_without_it(tours: Tours, elsewhere: Elsewhere) -> None:
    elsewhere.body = json.dumps({"headers": {"Authorization": f"Bearer {SECRET}"}}).encode()
    async with tours(BEARER) as call:
        assert await call("get_tours") == {"headers": {"Authorization": "Bearer ***"}}


@pytest.mark.parametrize("render", [json.dumps, quote, quote_plus, lambda text: quote(text, safe="")])
async def test_a_secret_is_recognised_as_json_and_addresses_write_it(
    tours: Tours, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, render: Callable[[str], str]
) -> None:
    secret = 'a "fine" s/cret & Schlüssel'
    monkeypatch.setenv("TOURS_KEY", secret)
    elsewhere.body = json.dumps({"said": "key="}).encode().replace(b"key=", render(secret).strip('"').encode())
    async with tours({"type": "query", "name": "key", "env": "TOURS_KEY"}) as call:
        assert await call("get_tours") == {"said": "***"}


async def test_a_caller_neither_needs_nor_replaces_what_the_credentials_fill(
    tours: Tours, elsewhere: Elsewhere
) -> None:
    parameters = [
        {"name": "x-key", "in": "header", "required": True, "schema": {"type": "string"}},
        {"name": "page", "in": "query", "schema": {"type": "integer"}},
    ]
    auth = {"type": "header", "name": "X-Key", "env": "TOURS_KEY"}
    async with tours(auth, paths={"/tours": {"get": {"parameters": parameters}}}) as call:
        await call("get_tours", page=2)
        with pytest.raises(SiteError):
            await call("get_tours", page=2, **{"x-key": "mine"})

    assert [value for name, value in elsewhere.asked[0].headers.items() if name.lower() == "x-key"] == [SECRET]


@pytest.mark.parametrize(
    "servers",
    [
        [{"url": "http://localhost:{port}/api"}],
        [{"url": "http://127.0.0.1:{port}@localhost:{port}/api"}],
    ],
)
async def test_an_operation_of_another_server_is_called_without_them(
    tours: Tours, elsewhere: Elsewhere, servers
) -> None:
    port = elsewhere.url.rpartition(":")[2]
    own = [{"url": server["url"].replace("{port}", port)} for server in servers]
    async with tours(BEARER, paths={"/tours": {"get": {"servers": own}}}) as call:
        with pytest.raises(SiteError):  # the guard allows 127.0.0.1 alone
            await call("get_tours")

    assert all("Authorization" not in asked.headers for asked in elsewhere.asked)


async def test_a_redirect_is_not_followed_with_them(tours: Tours, elsewhere: Elsewhere) -> None:
    elsewhere.status = 302
    async with tours(BEARER) as call:
        await call("get_tours")

    assert [asked.path for asked in elsewhere.asked] == ["/api/tours"]


async def test_they_are_not_sent_in_clear(tours: Tours) -> None:
    async with tours(BEARER, servers=[{"url": "http://tours.example"}]) as call:
        with pytest.raises(OperationFailed, match="https only"):
            await call("get_tours")


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({"type": "bearer", "env": "TOURS_ABSENT"}, "TOURS_ABSENT is not set"),
        ({"type": "bearer"}, "requires `env`"),
        ({"type": "header", "env": "TOURS_KEY"}, "requires `name`"),
        ({"type": "oauth", "token_url": "https://x.example/t", "client_id_env": "TOURS_ID"}, "`client_secret_env`"),
    ],
)
async def test_what_is_missing_is_named_at_the_start(opened: Open, auth, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        async with opened(source=[{"url": "tours.json", "auth": auth}]):
            pass

    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("value", ["two\nlines", "tab\there", "ümlaut"])
async def test_a_secret_that_fits_no_header_is_refused(opened: Open, monkeypatch, value: str) -> None:
    monkeypatch.setenv("TOURS_KEY", value)

    with pytest.raises(ConfigError, match="TOURS_KEY cannot be sent in a header") as refusal:
        async with opened(source=[{"url": "tours.json", "auth": BEARER}]):
            pass

    assert value not in str(refusal.value)


# Tokens


@pytest.fixture
def oauth(elsewhere: Elsewhere) -> dict[str, str]:
    return {
        "type": "oauth",
        "token_url": f"{elsewhere.url}/token",
        "client_id_env": "TOURS_ID",
        "client_secret_env": "TOURS_KEY",
        "scope": "tours",
    }


async def test_a_token_is_used_until_it_expires_and_renewed_once_if_it_is_refused(
    tours: Tours, elsewhere: Elsewhere, oauth: dict[str, str]
) -> None:
    elsewhere.answer = issue_tokens(elsewhere, refused={"token-1"})
    async with tours(oauth) as call:
        for _ in range(3):
            assert await call("get_tours") == {"ok": True}

    paths = [(asked.path, asked.headers["Authorization"]) for asked in elsewhere.asked]
    client = basic("portico%3A1", SECRET)
    assert paths == [
        ("/token", client),
        ("/api/tours", "Bearer token-1"),
        ("/token", client),
        *[("/api/tours", "Bearer token-2")] * 3,
    ]
    assert elsewhere.asked[0].body == b"grant_type=client_credentials&scope=tours"


async def test_a_token_that_is_always_refused_ends_in_an_error(
    tours: Tours, elsewhere: Elsewhere, oauth: dict[str, str]
) -> None:
    elsewhere.answer = issue_tokens(elsewhere, refused={f"token-{n}" for n in range(9)})
    async with tours(oauth) as call:
        with pytest.raises(OperationFailed, match="answered 401"):
            await call("get_tours")

    assert [asked.path for asked in elsewhere.asked] == ["/token", "/api/tours"] * 2


async def test_an_expired_token_is_replaced(tours: Tours, elsewhere: Elsewhere, oauth: dict[str, str]) -> None:
    elsewhere.answer = issue_tokens(elsewhere, expires_in=1e-9)
    async with tours(oauth) as call:
        await call("get_tours")
        await call("get_tours")

    assert [asked.path for asked in elsewhere.asked] == ["/token", "/api/tours"] * 2


@pytest.mark.parametrize("body", [b"", b"[]", b'{"access_token": 7}', b'{"access_token": "a\\r\\nX: y"}', b"<html>"])
async def test_a_broken_token_is_an_error_without_secrets(
    tours: Tours, elsewhere: Elsewhere, oauth: dict[str, str], body: bytes
) -> None:
    elsewhere.body = body
    async with tours(oauth) as call:
        with pytest.raises(Unavailable, match="No access token") as failure:
            await call("get_tours")

    assert SECRET not in "".join(traceback.format_exception(failure.value))
    assert [asked.path for asked in elsewhere.asked] == ["/token"]


def issue_tokens(elsewhere: Elsewhere, refused: set[str] = frozenset(), expires_in: float = 3600) -> Any:
    """Answer as a server of tokens and of tours."""
    issued: list[str] = []

    def answer(path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        if path == "/token":
            issued.append(f"token-{len(issued) + 1}")
            token = {"access_token": issued[-1], "token_type": "bearer", "expires_in": expires_in}
            return 200, json.dumps(token).encode()
        is_refused = headers["Authorization"].removeprefix("Bearer ") in refused
        return (401, b"") if is_refused else (200, b'{"ok": true}')

    return answer
