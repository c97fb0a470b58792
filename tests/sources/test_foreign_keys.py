"""Which columns of a database are links to other tables."""

import sqlite3
from pathlib import Path

import pytest
from tests.music_shop import fill_postgres, make_sqlite

from portico.sources.registry import Link, Record

LINKS = {
    ("Album", "ArtistId", "Artist"),
    ("Customer", "SupportRepId", "Employee"),
    ("Employee", "ReportsTo", "Employee"),
    ("Invoice", "CustomerId", "Customer"),
    ("InvoiceLine", "InvoiceId", "Invoice"),
    ("InvoiceLine", "TrackId", "Track"),
    ("PlaylistTrack", "PlaylistId", "Playlist"),
    ("PlaylistTrack", "TrackId", "Track"),
    ("Track", "AlbumId", "Album"),
    ("Track", "GenreId", "Genre"),
    ("Track", "MediaTypeId", "MediaType"),
}


def links(entries) -> set[tuple[str, str, str]]:
    return {(entry.collection, entry.field, entry.target) for entry in entries if isinstance(entry, Link)}


@pytest.fixture
def library(tmp_path: Path):
    """Make a database from a script and return its path."""

    def make(script: str) -> Path:
        database = sqlite3.connect(tmp_path / "library.db")
        database.executescript(script)
        database.close()
        return tmp_path / "library.db"

    return make


def test_declared_foreign_keys_are_links(read, tmp_path: Path):
    assert links(read(make_sqlite(tmp_path / "shop.db"), all_tables=True)) == LINKS


def test_declared_foreign_keys_of_postgresql_are_links(read, database):
    assert links(read(fill_postgres(database), all_tables=True)) == LINKS


def test_the_values_of_a_link_are_the_ids_of_its_target(read, tmp_path: Path):
    entries = [e for e in read(make_sqlite(tmp_path / "shop.db"), all_tables=True) if isinstance(e, Record)]
    artists = {entry.id for entry in entries if entry.collection == "Artist"}

    assert {str(entry.data["ArtistId"]) for entry in entries if entry.collection == "Album"} <= artists


def test_names_and_values_make_a_link_without_a_declaration(read, library):
    path = library(
        """
        CREATE TABLE artists (id INTEGER PRIMARY KEY, name TEXT);
        CREATE TABLE albums (album_id INTEGER, title TEXT, artist_id INTEGER, parent_id INTEGER, genre TEXT);
        CREATE TABLE genres (code TEXT, label TEXT, genre_code TEXT);
        INSERT INTO artists VALUES (1, 'Ana'), (2, 'Bo');
        INSERT INTO albums VALUES (10, 'First', 1, NULL, 'r'), (11, 'Second', 2, 10, 'x'), (12, 'Third', NULL, 10, 'r');
        INSERT INTO genres VALUES ('a', 'Rock', 'r'), ('a', 'Pop', 'p');
        """
    )

    entries = read(path, all_tables=True)

    assert links(entries) == {("albums", "artist_id", "artists"), ("albums", "parent_id", "albums")}
    assert [e.id for e in entries if isinstance(e, Record) and e.collection == "albums"] == ["10", "11", "12"]


def test_one_value_that_is_no_key_of_the_target_makes_no_link(read, library):
    path = library(
        """
        CREATE TABLE artists (id INTEGER PRIMARY KEY, name TEXT);
        CREATE TABLE albums (id INTEGER PRIMARY KEY, artist_id INTEGER, other_id INTEGER);
        INSERT INTO artists VALUES (1, 'Ana');
        INSERT INTO albums VALUES (1, 1, 1), (2, 3, 1);
        """
    )

    assert links(read(path, all_tables=True)) == set()


def test_a_key_of_several_columns_and_a_table_that_is_not_there_are_no_links(read, library):
    path = library(
        """
        CREATE TABLE seats (hall TEXT, number INTEGER, PRIMARY KEY (hall, number));
        CREATE TABLE tickets (id INTEGER PRIMARY KEY, hall TEXT, number INTEGER, show_id INTEGER REFERENCES shows (id),
            FOREIGN KEY (hall, number) REFERENCES seats (hall, number));
        INSERT INTO seats VALUES ('A', 1);
        INSERT INTO tickets VALUES (1, 'A', 1, 7);
        """
    )

    entries = read(path, all_tables=True)

    assert links(entries) == set()
    assert [e.id for e in entries if isinstance(e, Record) and e.collection == "seats"] == ["A:1"]


def test_a_link_leads_to_the_collection_that_another_source_loads_its_table_into(read, tmp_path: Path):
    path = make_sqlite(tmp_path / "shop.db")

    (link,) = [e for e in read(path, table="Album", collections={"Artist": "people"}) if isinstance(e, Link)]

    assert link == Link("ArtistId", "people", None)


def test_an_id_field_in_place_of_the_key_makes_no_link(read, tmp_path: Path):
    path = make_sqlite(tmp_path / "shop.db")

    assert links(read(path, tables=("Album", "Artist"), id_field="Title")) == set()
    assert links(read(path, table="Album", collections={"Artist": ""})) == set()
