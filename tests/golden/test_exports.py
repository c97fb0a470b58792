"""Files shaped like real exports come in right with no settings, or the report says what could not be done.

Every file in `exports/` has at least one trap. What is expected of it was written by hand, from the file.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from tests.cli.conftest import Portico

from portico.access.identity import local_operator
from portico.catalog import Collection
from portico.protocols import parse_config
from portico.query import Query, parse_filter
from portico.server.assembly import open_site

EXPORTS = Path(__file__).parent / "exports"


@dataclass(frozen=True)
class Export:
    """What a file is expected to become."""

    items: int
    types: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    titles: tuple[str, ...] = ()  # all of them, or some
    filters: tuple[tuple[dict[str, Any], int], ...] = ()
    searches: tuple[tuple[str, str], ...] = ()  # words, and the title of the first item that they find
    doubts: tuple[tuple[str, str], ...] = ()  # field and value
    collection: str = ""
    arguments: tuple[str, ...] = ()


EXPECTED: Mapping[str, Export] = {
    # A title that is a year, money with thousands, codes of thirteen digits, yes and no.
    "books.csv": Export(
        items=8,
        types={
            "Title": "string",
            "Author": "string",
            "Year Published": "integer",
            "Original Price": "number",
            "Pages": "integer",
            "ISBN-13": "string",
            "In Stock": "boolean",
        },
        units={"Original Price": "USD"},
        roles={"title": "Title", "price": "Original Price"},
        titles=("1984", "1776", "2666", "Tidewater"),
        filters=(
            ({"Original Price": {"$gt": 1000}}, 1),
            ({"original_price": {"$lt": 20}}, 4),
            ({"In Stock": True}, 5),
            ({"year_published": {"$gte": 2010}}, 4),
            ({"ISBN-13": "9780451524935"}, 1),
        ),
        searches=(("1984", "1984"), ("1776", "1776"), ("salt roads", "The Salt Roads")),
    ),
    # Decimals of any length.
    "quakes.csv": Export(
        items=6,
        types={"time": "timestamp", "latitude": "number", "longitude": "number", "depth": "number", "mag": "number"},
        roles={"title": "place", "date": "time", "latitude": "latitude", "longitude": "longitude"},
        titles=("Santiago", "Sumatra"),
        filters=(
            ({"longitude": {"$lt": -100}}, 3),
            ({"latitude": {"$lt": 0}}, 2),
            ({"mag": {"$gte": 3}}, 3),
            ({"time": {"$gte": "2024-01-04"}}, 3),
        ),
    ),
    # Names with spaces, brackets and signs; thousands; percentages.
    "countries.csv": Export(
        items=5,
        types={
            "Country Name": "string",
            "Region Name": "string",
            "Population (2020)": "integer",
            "GDP per capita ($)": "number",
            "Literacy %": "number",
        },
        units={"Literacy %": "%"},
        roles={"title": "Country Name"},
        titles=("Norland", "Sudia", "Estmark", "Westrova", "Midhaven"),
        filters=(
            ({"Region Name": "Northern Isles"}, 2),
            ({"region_name": "Southern Plains"}, 2),
            ({"Population (2020)": {"$gt": 10_000_000}}, 2),
            ({"GDP per capita ($)": {"$lt": 23_000}}, 2),
            ({"Literacy %": {"$gte": 98}}, 3),
        ),
    ),
    # Windows-1252, semicolons, decimal commas, days before months, ja and nein, leading zeros.
    "orders_de.csv": Export(
        items=5,
        types={
            "Bestelldatum": "timestamp",
            "Betrag": "number",
            "Rabatt": "integer",
            "Bezahlt": "boolean",
            "PLZ": "string",
        },
        units={"Betrag": "EUR", "Rabatt": "%"},
        filters=(
            ({"Betrag": {"$gt": 1000}}, 1),
            ({"Betrag": {"$lt": 20}}, 2),
            ({"Bezahlt": True}, 3),
            ({"PLZ": "01067"}, 2),
            ({"Bestelldatum": {"$lt": "2024-04-01"}}, 1),
            ({"Kunde": "Anna Groß"}, 2),
        ),
    ),
    # The order of day and month is settled by other rows; seconds since 1970; phone numbers are no numbers.
    "signups.csv": Export(
        items=5,
        types={"email": "string", "signed_up": "timestamp", "last_login": "timestamp", "phone": "string"},
        filters=(
            ({"signed_up": {"$gte": "2019-05-01", "$lt": "2019-06-01"}}, 1),
            ({"signed_up": {"$gte": "2020-02-01"}}, 2),
            ({"last_login": {"$gte": "2020-01-01"}}, 2),
            ({"phone": "+44 20 7946 0958"}, 1),
        ),
    ),
    # Nothing in the column tells whether the day or the month comes first.
    "ambiguous_dates.csv": Export(
        items=4,
        roles={"title": "event"},
        titles=("Spring fair", "Garden day", "Harvest feast", "Winter market"),
        doubts=(("when", "03/04/2024"),),
    ),
    "commits.tsv": Export(
        items=4,
        types={"sha": "string", "author_date": "timestamp", "files": "integer"},
        roles={"title": "subject", "date": "author_date"},
        titles=("Fix the rounding of totals", "Release 2.1"),
        filters=(({"author_date": {"$gte": "2019-03-21"}}, 2), ({"files": {"$gt": 5}}, 2)),
    ),
    # Quantities with units, two units in one column, lists in a cell.
    "foods.csv": Export(
        items=5,
        types={"Energy": "integer", "Weight": "number", "Protein": "number", "Tags": "array"},
        units={"Energy": "kcal", "Protein": "g"},
        roles={"title": "Food"},
        titles=("Rolled oats", "Chickpeas"),
        filters=(
            ({"Energy": {"$lt": 200}}, 3),
            ({"Protein": {"$gt": 17}}, 2),
            ({"Tags": {"$contains": "vegan"}}, 4),
            ({"Tags": {"$contains": "breakfast"}}, 2),
        ),
    ),
    # JSON whose values are all text, as some film databases write it.
    "movies.jsonl": Export(
        items=6,
        types={"Released": "timestamp", "imdbRating": "number", "BoxOffice": "number", "Genre": "array"},
        units={"BoxOffice": "USD"},
        roles={"title": "Title", "image": "Poster"},
        titles=("Harbour Lights", "Night Ferry", "1917 Miles", "The Quiet Mill"),
        filters=(
            ({"imdbRating": {"$gte": 7}}, 3),
            ({"BoxOffice": {"$gt": 1_000_000}}, 3),
            ({"Released": {"$gte": "2010-01-01"}}, 3),
            ({"Genre": {"$contains": "Drama"}}, 3),
        ),
    ),
    # One product in several lines: variants and pictures.
    "shopify.csv": Export(
        items=4,
        roles={"title": "Title", "price": "Variant Price", "description": "Body (HTML)"},
        titles=("Ocean Tee", "Wool Cap", "Rain Coat", "Gift Card"),
        filters=(
            ({"Variant Price": {"$lt": 50}}, 3),
            ({"Variant Price": {"$gte": 50}}, 1),
            ({"Vendor": "Tide"}, 3),
        ),
    ),
    "order_lines.csv": Export(items=3, filters=(({"Total": {"$gt": 50}}, 2), ({"Financial Status": "paid"}, 2))),
    # One odd value does not make a column text.
    "sensors.csv": Export(
        items=12,
        types={"reading": "number", "battery": "integer", "recorded_at": "timestamp"},
        units={"battery": "%"},
        filters=(({"reading": {"$gt": 23}}, 4), ({"battery": {"$lte": 93}}, 3)),
        doubts=(("reading", "offline"),),
    ),
    "codes.csv": Export(
        items=4,
        types={"sku": "string", "gtin": "string", "zip": "string", "label": "string", "weight_kg": "number"},
        roles={"title": "label"},
        titles=("Blue mug", "Red mug", "Tea pot", "Saucer"),
        filters=(({"sku": "00017"}, 1), ({"zip": "01067"}, 1), ({"weight_kg": {"$lt": 0.36}}, 2)),
    ),
    # Another script, in the names of the file and of its columns.
    "都市.csv": Export(
        items=3,
        types={"名前": "string", "人口": "integer", "設立日": "timestamp", "公式サイト": "string"},
        roles={"title": "名前", "link": "公式サイト"},
        titles=("海辺市", "山中町", "川上村"),
        filters=(({"人口": {"$gt": 10_000}}, 2), ({"設立日": {"$gt": "1950-01-01"}}, 2), ({"名前": "川上村"}, 1)),
    ),
    "workouts.csv": Export(
        items=4,
        types={"Duration": "duration", "Distance": "number", "Completed": "boolean"},
        units={"Distance": "km"},
        roles={"title": "Workout"},
        titles=("Morning run", "Long ride"),
        filters=(
            ({"Duration": {"$lt": "PT1H"}}, 2),
            ({"Distance": {"$gte": 10}}, 2),
            ({"Completed": True}, 3),
        ),
        doubts=(("Pace", "5:08"),),
    ),
    # Two names that are the same once they are normalised.
    "clash.csv": Export(
        items=3,
        types={"Unit Price": "number", "unit_price": "number"},
        roles={"title": "Name"},
        titles=("Lamp", "Rug", "Chair"),
        filters=(({"Unit Price": {"$lte": 20}}, 2), ({"unit_price": {"$lte": 20}}, 1)),
        doubts=(("unit_price", "'unit_price'"),),
    ),
    "places.csv": Export(
        items=3,
        types={"Opening Date": "timestamp", "Wheelchair Access": "boolean", "Website": "string"},
        roles={"title": "Place", "link": "Website"},
        titles=("City Library", "Old Lighthouse", "Boat Museum"),
        filters=(({"Wheelchair Access": True}, 2), ({"Opening Date": {"$lt": "1900-01-01"}}, 1)),
    ),
    "nested.json": Export(
        items=3,
        types={"title": "string", "tags": "array", "rating": "number"},
        roles={"title": "title"},
        titles=("Enamel Kettle", "Iron Pan", "Bread Box"),
        filters=(
            ({"offers.price": {"$lt": 60}}, 2),
            ({"offers.price": {"$gt": 100}}, 1),
            ({"tags": {"$contains": "kitchen"}}, 2),
            ({"rating": {"$gte": 4.2}}, 1),
        ),
    ),
    # A hash is no title, seconds are a date.
    "hashes.csv": Export(
        items=3,
        types={"createdAt": "timestamp", "views": "integer"},
        roles={"title": "headline text", "description": "body", "date": "createdAt"},
        titles=("Ferry back in service", "New library opens", "Storm closes pass"),
        filters=(({"createdAt": {"$gte": "2021-02-01"}}, 2), ({"views": {"$gt": 1000}}, 2)),
    ),
    # Names that databases and templates would take for something else.
    "trips.json": Export(
        items=3,
        types={
            "Trip Name": "string",
            "Price ($)": "integer",
            "Start": "timestamp",
            "Seats Left": "integer",
            "Guide Languages": "array",
            "$where": "string",
        },
        roles={"title": "Trip Name", "price": "Price ($)", "date": "Start"},
        titles=("Fjord loop", "Island hop", "Glacier day"),
        filters=(
            ({"Price ($)": {"$lt": 400}}, 2),
            ({"where": "north"}, 2),
            ({"Guide Languages": {"$contains": "no"}}, 2),
            ({"Seats Left": {"$gt": 0}}, 2),
        ),
    ),
    # A folder with front matter; one post is not published.
    "jekyll": Export(
        items=2,
        titles=("Hello, harbour", "Winter hours"),
        filters=(({"datePublished": {"$gte": "2022-01-01"}}, 1),),
        searches=(("museum closes", "Winter hours"), ("first boats", "Hello, harbour")),
    ),
    # A page with the graph that a plugin for blogs writes: one article, with its text.
    "yoast.html": Export(
        items=1,
        titles=("How to grow leeks",),
        searches=(("thick as a pencil", "How to grow leeks"), ("earthing up", "How to grow leeks")),
        filters=(({"datePublished": {"$gte": "2023-01-01"}}, 1),),
    ),
    # Typed cells, and dates as spreadsheets hold them.
    "inventory.xlsx": Export(
        items=3,
        types={"Item Name": "string", "Bought": "timestamp", "Cost": "number", "Count": "integer", "Zip": "string"},
        roles={"title": "Item Name"},
        titles=("Anvil", "Bellows", "Crucible"),
        filters=(({"Cost": {"$gt": 20}}, 2), ({"Bought": {"$lt": "2024-01-01"}}, 1), ({"Zip": "01067"}, 1)),
        collection="inventory",
    ),
    "trees.parquet": Export(
        items=3,
        types={"species": "string", "height_m": "number", "planted": "timestamp", "count": "integer"},
        roles={"title": "species"},
        titles=("Silver birch", "Field maple", "Wild cherry"),
        filters=(({"height_m": {"$gt": 10}}, 2), ({"planted": {"$gte": "2020-01-01"}}, 1)),
    ),
    # A database of records that refer to each other. Nothing of it is public until its owner names a table.
    "music.db": Export(
        items=3,
        collection="Album",
        types={"Title": "string", "ArtistId": "integer"},
        roles={"title": "Title"},
        titles=("Jagged Coast", "Night Trains", "Low Tide"),
        filters=(({"ArtistId": 1}, 2),),
        arguments=("--all-tables",),
    ),
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all files, with those that only programs can write."""
    folder = tmp_path_factory.mktemp("exports")
    for source in EXPORTS.iterdir():
        (folder / source.name).symlink_to(source)
    _write_workbook(folder / "inventory.xlsx")
    _write_parquet(folder / "trees.parquet")
    _write_database(folder / "music.db")
    return folder


def _write_workbook(path: Path) -> None:
    from datetime import datetime

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "inventory"
    for row in (
        ["Item Name", "Bought", "Cost", "Count", "Zip"],
        ["Anvil", datetime(2023, 5, 17), 149.5, 1, "01067"],
        ["Bellows", datetime(2024, 2, 1), 39, 4, "80331"],
        ["Crucible", datetime(2024, 9, 30), 12.25, 12, "04109"],
    ):
        sheet.append(row)
    book.save(path)


def _write_parquet(path: Path) -> None:
    from datetime import date

    table = pyarrow.table(
        {
            "species": ["Silver birch", "Field maple", "Wild cherry"],
            "height_m": [18.400000000000002, 9.75, 14.0],
            "planted": [date(1988, 3, 1), date(2003, 11, 20), date(2021, 4, 9)],
            "count": [12, 7, 30],
        }
    )
    pyarrow.parquet.write_table(table, path)


def _write_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY, Name TEXT NOT NULL);
            CREATE TABLE Album (AlbumId INTEGER PRIMARY KEY, Title TEXT NOT NULL,
                                ArtistId INTEGER NOT NULL REFERENCES Artist (ArtistId));
            INSERT INTO Artist VALUES (1, 'The Breakwaters'), (2, 'Ada Quill');
            INSERT INTO Album VALUES (1, 'Jagged Coast', 1), (2, 'Night Trains', 2), (3, 'Low Tide', 1);
            """
        )
    database.close()


Loaded = Callable[[str], tuple[dict[str, Any], Path]]


@pytest.fixture(scope="module")
def loaded(portico_in: Portico, exports: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Load an export, once, into a store of its own; return the report and the store."""
    reports: dict[str, tuple[dict[str, Any], Path]] = {}

    def load(name: str) -> tuple[dict[str, Any], Path]:
        if name not in reports:
            store = tmp_path_factory.mktemp("store") / "s.db"
            arguments = ("load", name, "--store", f"sqlite:///{store}", "--json", *EXPECTED[name].arguments)
            reports[name] = portico_in(exports, *arguments).json, store
        return reports[name]

    return load


def _collection(report: dict[str, Any], expected: Export) -> tuple[str, dict[str, Any]]:
    name = expected.collection or next(iter(report["collections"]))
    return name, report["collections"][name]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_export_has_the_right_fields(loaded: Loaded, name: str) -> None:
    expected = EXPECTED[name]
    report, _ = loaded(name)
    _, described = _collection(report, expected)
    fields = described["fields"]

    assert described["items"] == expected.items
    assert {field: fields[field]["type"] for field in expected.types} == expected.types
    assert {field: fields[field]["unit"] for field in expected.units} == expected.units
    roles = {spec["role"]: field for field, spec in fields.items() if spec.get("role")}
    assert {role: roles.get(role) for role in expected.roles} == expected.roles


@pytest.mark.parametrize("name", EXPECTED)
def test_what_was_not_understood_is_in_the_report(loaded: Loaded, name: str) -> None:
    expected = EXPECTED[name]
    report, _ = loaded(name)

    doubts = {(doubt["field"], doubt["value"]) for doubt in report["doubts"]}
    assert doubts >= set(expected.doubts)
    assert {field for field, _ in doubts} == {field for field, _ in expected.doubts}
    assert all(doubt["place"] and doubt["reason"] for doubt in report["doubts"])
    assert report["failed"] == 0


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_export_answers_with_the_right_items(loaded: Loaded, name: str) -> None:
    expected = EXPECTED[name]
    report, store = loaded(name)
    collection_name, _ = _collection(report, expected)
    config = parse_config({"store": {"url": f"sqlite:///{store}"}, "search": {"embedder": "none:"}})

    async with open_site(config, background=False, serves=False) as parts:
        site, caller = parts.site, local_operator()
        collection: Collection = site.catalog.collections[collection_name]

        async def titles(query: Query) -> list[str]:
            page = await site.query(query, caller)
            return [collection.title_of(item.data) for item in page.items]

        assert set(expected.titles) <= set(await titles(Query(collection_name, limit=100)))
        for where, count in expected.filters:
            page = await site.query(Query(collection_name, where=parse_filter(where), limit=100), caller)
            assert len(page.items) == count, where
        for words, title in expected.searches:
            assert (await titles(Query(collection_name, text=words, limit=5)))[0] == title


@pytest.mark.parametrize("name", EXPECTED)
def test_a_dry_run_reports_the_same_and_writes_nothing(
    portico_in: Portico, loaded: Loaded, exports: Path, tmp_path: Path, name: str
) -> None:
    report, _ = loaded(name)
    store = tmp_path / "s.db"
    arguments = ("load", name, "--store", f"sqlite:///{store}", "--json", "--dry-run", *EXPECTED[name].arguments)

    dry = portico_in(exports, *arguments).json

    assert json.dumps(dry["collections"], sort_keys=True) == json.dumps(report["collections"], sort_keys=True)
    assert dry["doubts"] == report["doubts"]
    assert not store.exists()
