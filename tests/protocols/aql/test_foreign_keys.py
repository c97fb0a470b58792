"""query_relationships follows foreign keys, in both directions and as far as the caller may read."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.music_shop import make_sqlite, opened_shop
from tests.protocols.conftest import asking


async def related(client: httpx.AsyncClient, collection: str, id: str, **params: Any) -> set[tuple[str, str, str]]:
    """What is around an item: the field, the collection and the id of each relationship."""
    root = {"element_type": collection, "element_name": id}
    answer = await client.post(
        "/aql", json={"operation": "query_relationships", "params": {"root": root, "first": 100, **params}}
    )
    relationships = answer.json()["data"]["relationships"]
    return {
        (found["type"], found["target"]["element_type"], found["target"]["element_name"]) for found in relationships
    }


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = f"sqlite:///{tmp_path / 'site.db'}"
    async with opened_shop(store, str(make_sqlite(tmp_path / "music.db"))) as parts, asking(parts) as client:
        yield client


async def test_an_item_is_related_to_what_its_foreign_keys_name(client: httpx.AsyncClient) -> None:
    assert await related(client, "Track", "8", direction="outgoing") == {
        ("AlbumId", "Album", "6"),
        ("GenreId", "Genre", "1"),
        ("MediaTypeId", "MediaType", "1"),
    }


async def test_an_item_is_related_to_those_whose_foreign_keys_name_it(client: httpx.AsyncClient) -> None:
    """Other tables have an item with the key 4, too."""
    assert await related(client, "Artist", "4", direction="incoming") == {
        ("ArtistId", "Album", "6"),
        ("ArtistId", "Album", "7"),
        ("ArtistId", "Album", "8"),
    }


async def test_a_self_reference_leads_both_ways(client: httpx.AsyncClient) -> None:
    links = {("ReportsTo", "Employee", "1"), ("ReportsTo", "Employee", "3")}

    assert await related(client, "Employee", "2", relationship="ReportsTo") == links


async def test_relationships_are_followed_over_several_steps(client: httpx.AsyncClient) -> None:
    around = await related(client, "Artist", "3", direction="incoming", depth=2)

    assert {("ArtistId", "Album", "5"), *(("AlbumId", "Track", id) for id in ("5", "6", "7"))} <= around


async def test_a_private_table_is_not_related(tmp_path: Path) -> None:
    store, private = f"sqlite:///{tmp_path / 'site.db'}", {"Artist": {"private": True}}
    music = str(make_sqlite(tmp_path / "music.db"))
    async with opened_shop(store, music, collections=private) as parts, asking(parts) as client:
        assert await related(client, "Album", "6", direction="outgoing") == set()
