"""Questions that name an item of another collection: they are answered exactly, over the links between the two."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.ask.conftest import Asked
from tests.databases import empty_database
from tests.music_shop import TABLES, fill_postgres, make_sqlite, opened_shop

QUESTIONS = {
    "albums by Queen": ("Album", {"6", "7", "8"}, "artist: Queen"),
    "albums by queen": ("Album", {"6", "7", "8"}, "artist: Queen"),
    "which artist made Let There Be Rock": ("Artist", {"1"}, "album: Let There Be Rock"),
    "tracks on Jagged Little Pill": ("Track", {"5", "6", "7"}, "album: Jagged Little Pill"),
    "which album is Ironic on": ("Album", {"5"}, "track: Ironic"),
    "pop tracks": ("Track", {"10"}, "genre: Pop"),
    "tracks by Queen": ("Track", {"8", "9", "10"}, "artist: Queen"),
    "tracks on the playlist Grunge": ("Track", {"5"}, "playlist: Grunge"),
    "how many albums by Accept": ("Album", {"2", "3"}, "artist: Accept"),
}


@asynccontextmanager
async def asked_shop(store: str, database: str | Path, **settings: Any) -> AsyncIterator[Asked]:
    async with opened_shop(store, str(database), **settings) as parts:
        yield Asked(parts, parts.site.access.anonymous_caller("192.0.2.1"))


@pytest_asyncio.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Asked]:
    async with asked_shop(f"sqlite:///{tmp_path / 'site.db'}", make_sqlite(tmp_path / "music.db")) as asked:
        yield asked


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_question_is_answered_over_the_links(shop: Asked, question: str) -> None:
    collection, ids, says = QUESTIONS[question]

    answer = await shop(question)

    assert {(found.item.collection, found.item.id) for found in answer.found} == {(collection, id) for id in ids}
    assert says in [constraint.says for constraint in answer.constraints]
    assert answer.understood.ignored == ()


async def test_several_names_limit_together(shop: Asked) -> None:
    assert set((await shop("rock tracks by Queen")).ids) == {"8", "9"}


async def test_a_postgresql_source_is_linked_alike(postgres: str) -> None:
    """Read from PostgreSQL, and kept there."""
    with empty_database(postgres) as url, empty_database(postgres) as store:
        async with asked_shop(store, fill_postgres(url)) as asked:
            assert set((await asked("albums by Queen")).ids) == {"6", "7", "8"}
            assert set((await asked("tracks by Queen")).ids) == {"8", "9", "10"}


async def test_an_item_of_the_asked_kind_is_found_by_its_own_title(shop: Asked) -> None:
    """Its title holds the name of a genre, which is no limit here."""
    answer = await shop("the track For Those About To Rock")

    assert "1" in answer.ids
    assert answer.constraints == ()


async def test_a_name_that_nothing_has_limits_nothing(shop: Asked) -> None:
    assert (await shop("albums by Nobody Known")).constraints == ()


async def test_a_private_collection_is_no_step_of_a_path(tmp_path: Path) -> None:
    """The playlist would give away which tracks it holds."""
    music = make_sqlite(tmp_path / "music.db")
    for number, name in enumerate(("Playlist", "PlaylistTrack")):
        store = f"sqlite:///{tmp_path / f'{number}.db'}"
        async with asked_shop(store, music, collections={name: {"private": True}}) as asked:
            assert (await asked("tracks on the playlist Grunge")).constraints == ()


async def test_every_table_but_those_of_tools_is_a_collection(shop: Asked) -> None:
    assert sorted(collection.name for collection in shop.site.catalog.public) == TABLES
