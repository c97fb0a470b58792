"""A protocol that does nothing about limits is limited, and what is refused is said in its own form."""

import ast
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Scope
from tests.site.conftest import config, furnish

import portico.protocols
from portico.access.identity import make_key
from portico.catalog import Danger
from portico.errors import BadRequest, SiteError
from portico.protocols import Mounted, Protocol, Services, protocols
from portico.protocols.http import caller_of
from portico.query import Query
from portico.server.assembly import Parts, open_site
from portico.server.http import application

LIMIT = 20
PROTOCOLS = Path(portico.protocols.__file__).parent


def mount(services: Services) -> Mounted:
    """A protocol whose author has never heard of limits."""
    site = services.site

    async def shout(request: Request) -> Response:
        try:
            message = json.loads(await request.body())
        except ValueError as error:
            raise BadRequest("This is not JSON") from error
        for _ in range(message.get("queries", 0)):
            await site.query(Query("rooms", limit=1), caller_of(request))
        return PlainTextResponse(message["text"].upper())

    return Mounted(routes=[Route("/shout", shout, methods=["POST"])], render_error=render_error)


def render_error(_: Scope, error: Exception) -> Response:
    status = {"RateLimited": 429, "TooLarge": 413, "Unauthenticated": 401}.get(type(error).__name__, 400)
    text = error.message if isinstance(error, SiteError) else str(error)
    return PlainTextResponse(f"SORRY: {text}", status)


SHOUT = Protocol(name="shout", title="Shouting", mount=mount, paths=lambda _: ("/shout", "/shout/"))


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    limits = {"anonymous_per_minute": LIMIT, "keys_per_minute": LIMIT, "payload_bytes": 500}
    url = f"sqlite:///{tmp_path / 'inn.db'}"
    anybody = {"scopes": ["ask", "read:*"]}
    async with open_site(config(tmp_path, url, limits=limits, anonymous=anybody)) as parts:
        await furnish(parts)
        yield parts


@pytest.fixture
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    app = application(parts, [*protocols(), SHOUT])
    transport = httpx.ASGITransport(app, client=("10.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def spent(parts: Parts) -> int:
    """How much of its allowance the client has used."""
    nobody = parts.site.access.anonymous_caller("10.0.0.1")
    return LIMIT - parts.site.access.quota(nobody).remaining


async def shout(client: httpx.AsyncClient, **message: Any) -> httpx.Response:
    return await client.post("/shout", json={"text": "a soup", **message})


async def test_too_many_requests_are_refused_in_the_form_of_the_protocol(client: httpx.AsyncClient) -> None:
    answers = [await shout(client) for _ in range(LIMIT + 1)]

    assert [answer.text for answer in answers[:-1]] == ["A SOUP"] * LIMIT
    assert answers[-1].status_code == 429
    assert answers[-1].text == f"SORRY: More than {LIMIT} requests in a minute"


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/shout", b'{"text": "' + b"a" * 500 + b'"}', {}, 413),
        ("/shout", b"{", {}, 400),
        ("/shout/louder", b"{}", {}, 400),
        ("/shout", b"{}", {"authorization": "Bearer pk_wrong"}, 401),
        ("/shout", b"{}", {"authorization": "Basic cm9vdDo="}, 401),
    ],
)
async def test_what_cannot_be_served_costs_as_much_as_what_can(
    parts: Parts, client: httpx.AsyncClient, path: str, content: bytes, headers: Mapping[str, str], status: int
) -> None:
    answer = await client.post(path, content=content, headers=headers)

    assert (answer.status_code, answer.text[:7]) == (status, "SORRY: ")
    assert spent(parts) == 1


async def test_a_body_that_does_not_say_how_long_it_is_is_bounded_too(parts: Parts, client: httpx.AsyncClient) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"a" * 100

    answer = await client.post("/shout", content=body())

    assert (answer.status_code, answer.text) == (413, "SORRY: The request has more than 500 bytes")
    assert spent(parts) == 1


@pytest.mark.parametrize(("queries", "cost"), [(0, 1), (1, 1), (2, 2), (5, 5)])
async def test_a_request_pays_for_its_first_query_and_each_further_one_costs(
    parts: Parts, client: httpx.AsyncClient, queries: int, cost: int
) -> None:
    assert (await shout(client, queries=queries)).text == "A SOUP"
    assert spent(parts) == cost


async def test_a_key_pays_for_its_own_requests(parts: Parts, client: httpx.AsyncClient) -> None:
    token, key = make_key("somebody", ("read:*",), Danger.SAFE, 1)
    await parts.store.keys.add(key)

    answers = [await client.post("/shout", json={"text": "a"}, headers={"x-api-key": token}) for _ in range(LIMIT + 1)]

    assert [answer.status_code for answer in answers] == [200] * LIMIT + [429]
    assert spent(parts) == 0


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/assets/portico.css", "/embed.js"])
async def test_health_and_static_files_are_free_whatever_key_comes_along(
    parts: Parts, client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path, headers={"x-api-key": "pk_wrong"})

    assert answer.status_code == 200
    assert spent(parts) == 0


def test_no_protocol_reaches_into_the_gate_or_the_guard() -> None:
    reaches = [
        f"{path.name}:{node.lineno}"
        for path in PROTOCOLS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.strip("_") in {"gate", "guard"}
    ]
    assert reaches == []
