"""Webhooks of sources, as a program with a key or a secret uses them, and as everybody else finds them."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.protocols.conftest import Inn, asking

from portico.access.identity import make_key
from portico.catalog import Danger
from portico.errors import ConfigError
from portico.server.assembly import Parts
from portico.server.http import application
from portico.telemetry import SourceLoaded

SECRET = "a secret that nobody guesses"
PATH = "/hooks/sources/rooms"


@dataclass
class Hooks:
    parts: Parts
    http: httpx.AsyncClient
    keys: dict[str, str]

    def by_key(self, scope: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[scope]}"}

    async def settled(self, state: str = "loaded") -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                info = (await self.http.get(PATH, headers=signed(b""))).json()
                if info["state"] == state:
                    return info
                await asyncio.sleep(0.02)


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"}


@asynccontextmanager
async def hooked(inn: Inn, **settings: Any) -> AsyncIterator[Hooks]:
    source = {"url": "rooms.jsonl", "collection": "rooms", "webhook_secret_env": "ROOMS_SECRET"}
    other = {"url": "other.jsonl", "name": "other"}
    async with inn(source=[source, other], **settings) as parts, asking(parts) as http:
        keys = {}
        for scope in ("approve", "*:*"):
            keys[scope], key = make_key(scope, [scope], Danger.DANGEROUS, 1)
            await parts.store.keys.add(key)
        yield Hooks(parts, http, keys)


@pytest.fixture
async def hooks(inn: Inn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hooks]:
    monkeypatch.setenv("ROOMS_SECRET", SECRET)
    (tmp_path / "rooms.jsonl").write_text('{"@id": "shed", "name": "The shed"}\n')
    async with hooked(inn) as hooks:
        yield hooks


@pytest.mark.parametrize("by", ["key", "signature"])
async def test_a_source_is_loaded_on_request(hooks: Hooks, by: str) -> None:
    body = json.dumps({"event": "changed"}).encode()
    headers = hooks.by_key("approve") if by == "key" else signed(body)

    accepted = await hooks.http.post(PATH, content=body, headers=headers)

    assert (accepted.status_code, accepted.headers["location"]) == (202, PATH)
    assert accepted.json()["name"] == "rooms"
    info = await hooks.settled()
    assert (info["items"], info["added"]) == (1, 1)
    assert await hooks.parts.store.items.get("rooms", "shed")


async def test_many_requests_are_few_loads(hooks: Hooks) -> None:
    loads: list[SourceLoaded] = []
    record = hooks.parts.sources._record
    hooks.parts.sources._record = lambda event: (
        loads.append(event) if isinstance(event, SourceLoaded) else None,
        record(event),
    )

    answers = await asyncio.gather(*(hooks.http.post(PATH, headers=signed(b"")) for _ in range(20)))

    assert {answer.status_code for answer in answers} == {202}
    await hooks.settled()
    await asyncio.sleep(0.5)
    assert 1 <= len(loads) <= 2


async def test_everybody_else_is_refused_and_learns_nothing(hooks: Hooks) -> None:
    body = b"{}"
    forms = [
        ({}, 401),
        (signed(body, "wrong"), 401),
        (signed(b"other body"), 401),
        ({"X-Hub-Signature-256": signed(body)["X-Hub-Signature-256"].removeprefix("sha256=")}, 401),
        ({"X-Hub-Signature-256": "sha256="}, 401),
        ({"X-Hub-Signature-256": "sha256=" + "é" * 64}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        (hooks.by_key("*:*"), 403),
    ]
    for headers, status in forms:
        raw = {name: value.encode() for name, value in headers.items()}
        for name in ("rooms", "other", "nothing"):
            for method in ("POST", "GET"):
                sent = {"content": body} if method == "POST" else {}
                answer = await hooks.http.request(method, f"/hooks/sources/{name}", headers=raw, **sent)
                assert answer.status_code == status, (headers, name, method)
                assert SECRET not in answer.text
    # The secret of one source is none of another.
    assert (await hooks.http.post("/hooks/sources/other", content=body, headers=signed(body))).status_code == 401
    states = {info.state for info in await hooks.parts.sources.all()}
    assert states == {"never"}


async def test_a_source_that_is_not_there_is_named_to_who_may_know(hooks: Hooks) -> None:
    answer = await hooks.http.post("/hooks/sources/nothing", headers=hooks.by_key("approve"))

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert (await hooks.http.delete(PATH, headers=signed(b""))).status_code == 405


async def test_a_large_body_is_refused(hooks: Hooks) -> None:
    body = b"x" * (2 << 20)
    assert (await hooks.http.post(PATH, content=body, headers=signed(body))).status_code == 413


async def test_wrong_signatures_are_limited_as_all_requests_are(
    inn: Inn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOMS_SECRET", SECRET)
    async with hooked(inn, limits={"anonymous_per_minute": 4}) as hooks:
        transport = httpx.ASGITransport(application(hooks.parts), client=("10.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://inn.example") as http:
            statuses = [(await http.post(PATH, headers=signed(b"", "wrong"))).status_code for _ in range(6)]

    assert statuses[:4] == [401] * 4
    assert statuses[-1] == 429


async def test_metrics_have_the_freshness_of_sources(hooks: Hooks) -> None:
    await hooks.http.post(PATH, headers=signed(b""))
    info = await hooks.settled()
    async with asyncio.timeout(30):
        while "portico_source_refresh_total{" not in (text := (await hooks.http.get("/metrics")).text):
            await asyncio.sleep(0.02)

    assert 'portico_source_refresh_total{result="loaded",source="rooms"} 1.0' in text
    assert 'portico_source_items{source="rooms"} 1.0' in text
    stamp = next(
        line for line in text.splitlines() if line.startswith("portico_source_last_success_timestamp_seconds{")
    )
    assert stamp.startswith('portico_source_last_success_timestamp_seconds{source="rooms"} 1.')
    assert info["succeeded"]


async def test_a_missing_secret_is_named_at_the_start(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOMS_SECRET", raising=False)
    with pytest.raises(ConfigError, match="ROOMS_SECRET is not set"):
        async with hooked(inn):
            pass
