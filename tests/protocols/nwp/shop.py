"""A shop behind its nodes, with the things that a test puts on its shelves."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from portico.protocols import parse_config
from portico.server.assembly import Parts, open_site
from portico.store.records import Put

Things = Mapping[str, Mapping[str, Any]]

FILTER_INVALID = (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FILTER-INVALID")
FIELD_UNKNOWN = (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FIELD-UNKNOWN")
REGEX_UNSAFE = (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-REGEX-UNSAFE")
CURSOR_INVALID = (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-CURSOR-INVALID")
AGGREGATE_INVALID = (400, "NPS-CLIENT-BAD-PARAM", "NWP-QUERY-AGGREGATE-INVALID")


@asynccontextmanager
async def shop(folder: Path, things: Things, **said: Any) -> AsyncIterator[Parts]:
    """A site with one collection, `things`, that lets anybody ask as often as they like."""
    settings = {
        "search": {"embedder": "none:"},
        "store": {"url": "sqlite:///:memory:"},
        "folder": str(folder),
        "limits": {"anonymous_per_minute": 1_000_000, "keys_per_minute": 1_000_000},
    }
    async with open_site(parse_config({**settings, **said})) as parts:
        await parts.store.collections.declare(parts.config.collection("things"))
        await parts.store.items.write("things", [Put(id, data) for id, data in things.items()])
        await parts.index.sync(await parts.store.changes.head())
        yield parts


async def ask(client: httpx.AsyncClient, said: Any, **headers: str) -> httpx.Response:
    """Put a query. Headers are named without what they all begin with."""
    named = {f"x-nwp-{name.replace('_', '-')}": value for name, value in headers.items()}
    return await client.post("/nwp/things/query", json=said, headers=named)


async def capsule(client: httpx.AsyncClient, said: Any, **headers: str) -> dict[str, Any]:
    answer = await ask(client, said, **headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def found(client: httpx.AsyncClient, said: Any) -> list[str]:
    """The ids of what a query finds."""
    return [each["id"] for each in (await capsule(client, said))["data"]]


def refused(answer: httpx.Response) -> tuple[int, str, str]:
    """How a request was refused: its HTTP status, the status of the suite and the code of the protocol."""
    assert answer.headers["content-type"] == "application/nwp-error+json"
    told = answer.json()
    assert "data" not in told
    return answer.status_code, told["status"], told["error"]


async def refusal(client: httpx.AsyncClient, said: Any) -> tuple[int, str, str]:
    return refused(await ask(client, said))
