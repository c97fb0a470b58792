"""Items at their own addresses."""

import httpx
import pytest
from tests.faces.conftest import asking

from portico.server import Parts
from portico.store import Put


@pytest.fixture
async def client(parts: Parts):
    await parts.store.write("rooms", [Put("rooms/loft", {"@type": "HotelRoom", "name": "The loft"})])
    async with asking(parts) as client:
        yield client


@pytest.mark.parametrize(("id", "name"), [("attic", "The attic"), ("rooms/loft", "The loft")])
async def test_an_item_is_shown_at_its_address(client: httpx.AsyncClient, id: str, name: str) -> None:
    answer = await client.get(f"/items/{id}")

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/ld+json")
    assert (answer.json()["@id"], answer.json()["name"]) == (id, name)
    assert answer.headers["etag"]


@pytest.mark.parametrize("id", ["nobody", "rooms/nobody", "%00", "x" * 3000])
async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient, id: str) -> None:
    answer = await client.get(f"/items/{id}")

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
