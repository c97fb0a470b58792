"""A database in the shape of Chinook: artists, albums, tracks, customers and invoices, on SQLite and PostgreSQL."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from portico.protocols import parse_config
from portico.server.assembly import Parts, open_site
from portico.sources.ingest import load_sources
from portico.store import open_store
from portico.telemetry import discard

SCHEMA = """
CREATE TABLE "Artist" ("ArtistId" INTEGER PRIMARY KEY, "Name" VARCHAR(120));
CREATE TABLE "Album" (
    "AlbumId" INTEGER PRIMARY KEY, "Title" VARCHAR(160) NOT NULL,
    "ArtistId" INTEGER NOT NULL REFERENCES "Artist" ("ArtistId"));
CREATE TABLE "Genre" ("GenreId" INTEGER PRIMARY KEY, "Name" VARCHAR(120));
CREATE TABLE "MediaType" ("MediaTypeId" INTEGER PRIMARY KEY, "Name" VARCHAR(120));
CREATE TABLE "Track" (
    "TrackId" INTEGER PRIMARY KEY, "Name" VARCHAR(200) NOT NULL, "AlbumId" INTEGER REFERENCES "Album" ("AlbumId"),
    "MediaTypeId" INTEGER NOT NULL REFERENCES "MediaType" ("MediaTypeId"),
    "GenreId" INTEGER REFERENCES "Genre" ("GenreId"), "Composer" VARCHAR(220), "Milliseconds" INTEGER NOT NULL,
    "Bytes" INTEGER, "UnitPrice" NUMERIC(10, 2) NOT NULL);
CREATE TABLE "Playlist" ("PlaylistId" INTEGER PRIMARY KEY, "Name" VARCHAR(120));
CREATE TABLE "PlaylistTrack" (
    "PlaylistId" INTEGER NOT NULL REFERENCES "Playlist" ("PlaylistId"),
    "TrackId" INTEGER NOT NULL REFERENCES "Track" ("TrackId"), PRIMARY KEY ("PlaylistId", "TrackId"));
CREATE TABLE "Employee" (
    "EmployeeId" INTEGER PRIMARY KEY, "LastName" VARCHAR(20) NOT NULL, "FirstName" VARCHAR(20) NOT NULL,
    "Title" VARCHAR(30), "ReportsTo" INTEGER REFERENCES "Employee" ("EmployeeId"), "HireDate" TIMESTAMP,
    "Email" VARCHAR(60));
CREATE TABLE "Customer" (
    "CustomerId" INTEGER PRIMARY KEY, "FirstName" VARCHAR(40) NOT NULL, "LastName" VARCHAR(20) NOT NULL,
    "Country" VARCHAR(40), "Email" VARCHAR(60) NOT NULL,
    "SupportRepId" INTEGER REFERENCES "Employee" ("EmployeeId"));
CREATE TABLE "Invoice" (
    "InvoiceId" INTEGER PRIMARY KEY, "CustomerId" INTEGER NOT NULL REFERENCES "Customer" ("CustomerId"),
    "InvoiceDate" TIMESTAMP NOT NULL, "BillingCountry" VARCHAR(40), "Total" NUMERIC(10, 2) NOT NULL);
CREATE TABLE "InvoiceLine" (
    "InvoiceLineId" INTEGER PRIMARY KEY, "InvoiceId" INTEGER NOT NULL REFERENCES "Invoice" ("InvoiceId"),
    "TrackId" INTEGER NOT NULL REFERENCES "Track" ("TrackId"), "UnitPrice" NUMERIC(10, 2) NOT NULL,
    "Quantity" INTEGER NOT NULL);
CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY);
"""

ROWS = """
INSERT INTO "Artist" VALUES (1, 'AC/DC'), (2, 'Accept'), (3, 'Alanis Morissette'), (4, 'Queen'), (5, 'Kaela Brandt');
INSERT INTO "Album" VALUES
    (1, 'For Those About To Rock We Salute You', 1), (2, 'Balls to the Wall', 2), (3, 'Restless and Wild', 2),
    (4, 'Let There Be Rock', 1), (5, 'Jagged Little Pill', 3), (6, 'Greatest Hits I', 4), (7, 'News Of The World', 4),
    (8, 'Greatest Hits II', 4);
INSERT INTO "Genre" VALUES (1, 'Rock'), (2, 'Metal'), (3, 'Pop');
INSERT INTO "MediaType" VALUES (1, 'MPEG audio file'), (2, 'AAC audio file');
INSERT INTO "Track" VALUES
    (1, 'For Those About To Rock', 1, 1, 1, 'Angus Young', 343719, 11170334, 0.99),
    (2, 'Balls to the Wall', 2, 2, 2, NULL, 342562, 5510424, 0.99),
    (3, 'Go Down', 4, 1, 1, 'AC/DC', 331180, 10847611, 0.99),
    (4, 'Dog Eat Dog', 4, 1, 1, 'AC/DC', 215196, 7032162, 0.99),
    (5, 'You Oughta Know', 5, 1, 1, 'Alanis Morissette', 249234, 8196916, 0.99),
    (6, 'Ironic', 5, 1, 1, 'Alanis Morissette', 229825, 7598866, 0.99),
    (7, 'Hand In My Pocket', 5, 1, 1, 'Alanis Morissette', 221570, 7224246, 0.99),
    (8, 'Bohemian Rhapsody', 6, 1, 1, 'Mercury', 358948, 11619868, 0.99),
    (9, 'We Will Rock You', 7, 1, 1, 'May', 122880, 4026955, 0.99),
    (10, 'Spread Your Wings', 7, 2, 3, 'Deacon', 275356, 9064734, 1.29);
INSERT INTO "Playlist" VALUES (1, 'Music'), (2, 'Grunge');
INSERT INTO "PlaylistTrack" VALUES (1, 1), (1, 5), (1, 8), (2, 5);
INSERT INTO "Employee" VALUES
    (1, 'Adler', 'Mirjam', 'General Manager', NULL, '2002-08-14 00:00:00', 'mirjam@shop.example'),
    (2, 'Edwards', 'Nola', 'Sales Manager', 1, '2002-05-01 00:00:00', 'nola@shop.example'),
    (3, 'Pavlik', 'Jonas', 'Sales Support Agent', 2, '2002-04-01 00:00:00', 'jonas@shop.example');
INSERT INTO "Customer" VALUES
    (1, 'Lia', 'Gonsalves', 'Brazil', 'lia@mail.example', 3), (2, 'Leon', 'Kohler', 'Germany', 'leon@mail.example', 3);
INSERT INTO "Invoice" VALUES
    (1, 2, '2026-01-01 00:00:00', 'Germany', 1.98), (2, 1, '2026-01-02 00:00:00', 'Brazil', 0.99);
INSERT INTO "InvoiceLine" VALUES (1, 1, 5, 0.99, 1), (2, 1, 8, 0.99, 1), (3, 2, 3, 0.99, 1);
INSERT INTO alembic_version VALUES ('1f2e3d');
"""

TABLES = [
    "Album", "Artist", "Customer", "Employee", "Genre", "Invoice", "InvoiceLine", "MediaType", "Playlist",
    "PlaylistTrack", "Track",
]  # fmt: skip


def make_sqlite(path: Path, *more: str) -> Path:
    """Create the database in a file, and run further statements."""
    database = sqlite3.connect(path)
    for script in (SCHEMA, ROWS, *more):
        database.executescript(script)
    database.close()
    return path


def fill_postgres(url: str) -> str:
    with psycopg.connect(url) as connection:
        connection.execute(SCHEMA + ROWS)
    return url


@asynccontextmanager
async def opened_shop(store_url: str, database: str, **settings: Any) -> AsyncIterator[Parts]:
    """A site with all tables of a database."""
    config = parse_config(
        {
            "search": {"embedder": "none:"},
            "store": {"url": store_url},
            "limits": {"anonymous_per_minute": 1_000_000},
            "source": [{"url": database, "all_tables": True}],
            **settings,
        }
    )
    store = await open_store(config.store_url)
    await load_sources(config, store, discard)
    await store.close()
    async with open_site(msgspec.structs.replace(config, source=[]), background=False) as parts:
        yield parts
