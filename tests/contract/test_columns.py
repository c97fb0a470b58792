"""Types by column in every store: what a load makes of the fields of a collection, and what later ones change."""

import csv
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from portico.catalog import FieldType
from portico.errors import InvalidParams
from portico.query import Query, parse_filter
from portico.sources import ingest as loading
from portico.sources.ingest import examine, ingest
from portico.sources.records import Entry, Link, Record
from portico.sources.registry import SourceOptions, open_source
from portico.store import Store
from portico.store.records import Put


class Rows:
    """A source of records, each with its number as its id. Slow ones do not know how much they have."""

    former_urls = ()

    def __init__(self, rows: Sequence[dict[str, Any] | Entry], url: str = "somewhere", pause: int = -1) -> None:
        self._rows = rows
        self.url = url
        self._pause = pause

    def share(self) -> float | None:
        return None if self._pause >= 0 else 1.0

    def records(self) -> Iterator[Entry]:
        for number, row in enumerate(self._rows):
            if number == self._pause:
                time.sleep(0.3)
            yield Record(dict(row), f"a:{number}", str(number)) if isinstance(row, dict) else row


def cells(*values: Any, name: str = "x") -> list[dict[str, Any] | Entry]:
    return [{name: value} for value in values]


async def values(store: Store, name: str = "x") -> list[Any]:
    found = [item async for items in store.items.scan("things") for item in items]
    return [item.data.get(name) for item in sorted(found, key=lambda item: int(item.id))]


async def count(store: Store, where: dict[str, Any], collection: str = "things") -> int:
    return await store.items.count(collection, parse_filter(where))


async def test_a_field_has_the_type_of_its_column_and_odd_values_are_absent_to_filters(store: Store) -> None:
    report = await ingest(store, Rows(cells(*map(str, range(20)), "about 7")), "things")
    field = (await store.collections.refresh())["things"].fields["x"]

    assert (field.type, field.settled) == (FieldType.INTEGER, True)
    assert await count(store, {"x": {"$gte": 10}}) == 10
    assert (await values(store))[-1] == "about 7"
    assert (report.doubt_count, report.collections["things"].items) == (1, 21)


async def test_format_unit_role_and_target_are_stored(store: Store) -> None:
    rows = cells("$5.00", "$12.50", name="Price")
    await ingest(store, Rows([*rows, Link("Price", "prices")]), "things")
    field = (await store.collections.refresh())["things"].fields["Price"]

    assert (field.type, field.format, field.unit, field.role, field.target) == (
        FieldType.NUMBER, "money", "USD", "price", "prices",
    )  # fmt: skip
    assert await count(store, {"Price": {"$lt": 10}}) == 1


async def test_a_repeated_load_changes_nothing(store: Store) -> None:
    rows = cells("18/03/2019", "02/03/2019", *["19/03/2019"] * 20, "soon")
    first = await ingest(store, Rows(rows), "things")
    head, before = await store.changes.head(), await store.collections.refresh()
    second = await ingest(store, Rows(rows), "things")

    assert (second.added, second.changed, second.unchanged) == (0, 0, 23)
    assert await store.changes.head() == head
    assert await store.collections.refresh() == before
    assert (second.collections, second.doubts) == (first.collections, first.doubts)


async def test_a_later_load_of_a_source_may_change_the_types_of_its_fields(store: Store) -> None:
    await ingest(store, Rows(cells("1", "2", "3")), "things")
    await ingest(store, Rows(cells("1", "2", "three")), "things")

    assert (await store.collections.refresh())["things"].fields["x"].type is FieldType.STRING
    assert await values(store) == ["1", "2", "three"]
    assert await count(store, {"x": "2"}) == 1


@pytest.mark.parametrize(
    ("second", "type"), [(["2.5"], FieldType.NUMBER), (["7"], FieldType.INTEGER), (["many"], FieldType.ANY)]
)
async def test_a_second_source_of_a_collection_widens_the_types(
    store: Store, second: list[str], type: FieldType
) -> None:
    await ingest(store, Rows(cells("1", "2")), "things")
    await ingest(store, Rows([Record({"x": cell}, "b:1", "100") for cell in second], "elsewhere"), "things")

    assert (await store.collections.refresh())["things"].fields["x"].type is type
    assert await count(store, {"x": {"$gte": 1}}) == 2 + (second != ["many"])


async def test_a_write_of_a_caller_does_not_change_a_type(store: Store) -> None:
    await ingest(store, Rows(cells("1", "2")), "things")
    with pytest.raises(InvalidParams):
        await store.items.write("things", [Put("9", {"x": "cheap"}, keeps_types=True)])

    assert (await store.collections.refresh())["things"].fields["x"].type is FieldType.INTEGER


async def test_a_slow_source_is_stored_early_and_again_when_its_types_have_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "EARLY_SECONDS", 0.1)
    seen: list[int] = []
    rows = cells(*["4"] * 600, *["four"] * 400)
    report = await ingest(store, Rows(rows, pause=400), "things", on_progress=lambda report: seen.append(report.added))

    assert seen[0] == 500
    assert (report.added, report.changed, report.unchanged, report.failed) == (1000, 0, 0, 0)
    assert await values(store) == [row["x"] for row in rows if isinstance(row, dict)]
    assert (await store.collections.refresh())["things"].fields["x"].type is FieldType.STRING


async def test_an_examination_says_what_a_load_does(store: Store) -> None:
    rows = cells("1", "2", *["3"] * 20, "about 4")
    loaded, examined = await ingest(store, Rows(rows), "things"), await examine(Rows(rows), "things")

    assert (examined.added, examined.doubts, examined.remarks) == (loaded.added, loaded.doubts, loaded.remarks)
    assert examined.collections == loaded.collections


def write_table(path: Path) -> None:
    """A table with a column of every type, as programs export them, with odd and empty cells."""
    chance = random.Random(22)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["sku", "title", "whole", "exact", "price", "weight", "share", "on", "sold_at", "made", "length", "active",
             "tags", "zip", "mail", "Region Name"]
        )  # fmt: skip
        for n in range(400):
            day, month = chance.randint(1, 28), chance.randint(1, 12)
            minutes = chance.randint(5, 200)
            writer.writerow([
                f"{n:05}",
                str(1900 + n) if n % 5 else f"Book {n}",
                chance.choice([str(chance.randint(-50, 5000))] * 30 + ["N/A", "many"]),
                f"{chance.random() * 10:.11f}",
                f"${chance.randint(1, 3000):,}.{chance.randint(0, 99):02}",
                chance.choice([f"{chance.randint(1, 900)} g", f"{chance.randint(1, 5)}.5 kg"]),
                f"{chance.randint(0, 1000) / 10} %",
                f"{day:02}/{month:02}/20{chance.randint(10, 25)}",
                str(1262304000 + chance.randint(0, 500_000_000)),
                str(chance.randint(1950, 2025)),
                f"{minutes // 60}h {minutes % 60}m" if minutes >= 60 and minutes % 60 else f"{minutes} min",
                chance.choice(["yes", "no", ""]),
                ";".join(chance.sample(["red", "green", "blue", "grey"], chance.randint(1, 3))),
                f"{chance.randint(100, 99999):05}",
                f"a{n}@example.org",
                chance.choice(["North", "South West", "n/a"]),
            ])  # fmt: skip


def plain_table(path: Path) -> sqlite3.Connection:
    """The same table in SQLite, with conversions written by hand for these columns."""

    def number(text: str) -> float | None:
        try:
            return float(text.strip("$ %").replace(",", ""))
        except ValueError:
            return None

    def grams(text: str) -> float:
        amount, unit = text.split()
        return float(amount) * {"g": 1, "kg": 1000}[unit]

    def minutes(text: str) -> int:
        if text.endswith(" min"):
            return int(text[:-4])
        hours, rest = text.split()
        return int(hours[:-1]) * 60 + int(rest[:-1])

    db = sqlite3.connect(":memory:")
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    db.execute(f"CREATE TABLE t ({', '.join(json_name(name) for name in header)})")
    for row in rows:
        cell = dict(zip(header, row, strict=True))
        day, month, year = cell["on"].split("/")
        converted: dict[str, Any] = {
            **cell,
            **{name: number(cell[name]) for name in ("whole", "exact", "price", "share", "sold_at", "made")},
            "weight": grams(cell["weight"]),
            "on": f"{year}-{month}-{day}",
            "length": minutes(cell["length"]),
            "active": {"yes": 1, "no": 0, "": None}[cell["active"]],
            "Region Name": None if cell["Region Name"] == "n/a" else cell["Region Name"],
        }
        db.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(header))})", [converted[name] for name in header])
    return db


def json_name(name: str) -> str:
    return f'"{name}"'


async def test_counts_are_those_of_sql_on_the_same_table(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_table(path)
    db = plain_table(path)
    report = await ingest(store, open_source(str(path), SourceOptions()), "table")

    wrong = {
        sql: (await count(store, where, "table"), expected)
        for where, sql in FILTERS
        if await count(store, where, "table")
        != (expected := db.execute(f"SELECT count(*) FROM t WHERE {sql}").fetchone()[0])
    }
    assert wrong == {}
    assert {doubt.value for doubt in report.doubts} == {"many"}
    page = await store.items.find(Query("table", limit=1000))
    assert len(page.items) == 400


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"whole": {"$gt": 100}}, "whole > 100"),
    ({"whole": {"$lte": 100}}, "whole <= 100"),
    ({"whole": {"$between": [0, 2000]}}, "whole BETWEEN 0 AND 2000"),
    ({"whole": {"$lt": 0}}, "whole < 0"),
    ({"exact": {"$gt": 5}}, "exact > 5"),
    ({"exact": {"$lt": 2.5}}, "exact < 2.5"),
    ({"exact": {"$between": [1, 9]}}, "exact BETWEEN 1 AND 9"),
    ({"price": {"$lt": 50}}, "price < 50"),
    ({"price": {"$gte": 1000}}, "price >= 1000"),
    ({"price": {"$between": [100, 1299.99]}}, "price BETWEEN 100 AND 1299.99"),
    ({"weight": {"$gt": 1000}}, "weight > 1000"),
    ({"weight": {"$lte": 900}}, "weight <= 900"),
    ({"weight": 1500}, "weight = 1500"),
    ({"share": {"$gte": 50}}, "share >= 50"),
    ({"share": {"$lt": 12.5}}, "share < 12.5"),
    ({"on": {"$gte": "2020-01-01"}}, "\"on\" >= '2020-01-01'"),
    ({"on": {"$lt": "2015-06-15"}}, "\"on\" < '2015-06-15'"),
    ({"on": {"$between": ["2012-01-01", "2012-12-31"]}}, "\"on\" BETWEEN '2012-01-01' AND '2012-12-31'"),
    ({"sold_at": {"$gte": "2015-01-01T00:00:00Z"}}, "sold_at >= 1420070400"),
    ({"sold_at": {"$lt": "2012-01-01T00:00:00Z"}}, "sold_at < 1325376000"),
    ({"made": {"$gte": 2000}}, "made >= 2000"),
    ({"made": 1984}, "made = 1984"),
    ({"length": {"$lte": "PT30M"}}, "length <= 30"),
    ({"length": {"$gt": "PT1H"}}, "length > 60"),
    ({"active": True}, "active = 1"),
    ({"active": False}, "active = 0"),
    ({"active": {"$exists": False}}, "active IS NULL"),
    ({"tags": {"$contains": "red"}}, "tags LIKE '%red%'"),
    ({"tags": {"$contains": "grey"}}, "tags LIKE '%grey%'"),
    ({"zip": {"$lt": "01000"}}, "zip < '01000'"),
    ({"sku": "00007"}, "sku = '00007'"),
    ({"title": "1984"}, "title = '1984'"),
    ({"mail": "a7@example.org"}, "mail = 'a7@example.org'"),
    ({"$and": [{"price": {"$lt": 500}}, {"active": True}]}, "price < 500 AND active = 1"),
    ({"Region Name": "South West"}, "\"Region Name\" = 'South West'"),
]
