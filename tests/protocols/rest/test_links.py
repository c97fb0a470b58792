"""Pages and JSON of items follow the links between collections, in both directions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.music_shop import make_sqlite, opened_shop
from tests.protocols.conftest import asking

PAGE = {"accept": "text/html"}


@asynccontextmanager
async def shop(folder: Path, **settings) -> AsyncIterator[httpx.AsyncClient]:
    more = "UPDATE Track SET GenreId = 77 WHERE TrackId = 3;" + "".join(
        f"INSERT INTO Track VALUES ({n}, 'Filler {n}', 8, 1, 2, NULL, 1000, 1, 0.99);" for n in range(100, 130)
    )
    database = make_sqlite(folder / "music.db", more)
    store = f"sqlite:///{folder / 'site.db'}"
    async with opened_shop(store, str(database), **settings) as parts, asking(parts) as client:
        yield client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with shop(tmp_path) as client:
        yield client


async def page(client: httpx.AsyncClient, ref: str) -> LexborHTMLParser:
    answer = await client.get(f"/items/{ref}", headers=PAGE)
    assert answer.status_code == 200
    return LexborHTMLParser(answer.text)


async def test_a_field_shows_the_title_of_the_linked_item_and_leads_to_it(client: httpx.AsyncClient) -> None:
    album = await page(client, "Album/6")

    links = {link.text(): link.attributes["href"] for link in album.css("dd a")}
    assert links["Queen"].endswith("/items/Artist/4")


async def test_an_item_lists_those_that_link_to_it(client: httpx.AsyncClient) -> None:
    artist = await page(client, "Artist/4")

    [albums] = [section for section in artist.css("section.near") if section.css_first("h2").text() == "Album"]
    paths = {link.attributes["href"] for link in albums.css(".cards a") if link.attributes.get("href")}
    assert {path.rpartition("/items/")[2] for path in paths} == {"Album/6", "Album/7", "Album/8"}


async def test_the_list_of_linking_items_is_bounded(client: httpx.AsyncClient) -> None:
    album = await page(client, "Album/8")

    [tracks] = [section for section in album.css("section.near") if section.css_first("h2").text() == "Track"]
    assert len({link.attributes["href"] for link in tracks.css(".cards a")}) == 12


async def test_a_link_to_nothing_is_the_plain_value(client: httpx.AsyncClient) -> None:
    track = (await client.get("/items/Track/3?format=json")).json()

    assert track["data"]["GenreId"] == 77
    assert "GenreId" not in track["links"]
    assert "77" in (await page(client, "Track/3")).css_first("article").text()


async def test_json_names_the_linked_items(client: httpx.AsyncClient) -> None:
    answer = await client.get("/items/Album/6?format=json")

    assert [(link["collection"], link["id"]) for link in answer.json()["links"]["ArtistId"]] == [("Artist", "4")]
    again = await client.get("/items/Album/6?format=json", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


async def test_nothing_of_a_private_collection_is_shown(tmp_path: Path) -> None:
    private = {"Artist": {"private": True}, "Track": {"private": True}}
    async with shop(tmp_path, collections=private) as client:
        album = await client.get("/items/Album/6", headers=PAGE)
        described = (await client.get("/items/Album/6?format=json")).json()

    assert "Queen" not in album.text
    assert "Bohemian" not in album.text
    assert described["data"]["ArtistId"] == 4
    assert "links" not in described
