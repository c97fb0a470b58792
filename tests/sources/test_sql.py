"""Tables of SQLite and PostgreSQL databases."""

import sqlite3
import sys
from pathlib import Path

import psycopg
import pytest

from portico.errors import SourceError
from portico.sources.registry import BadRecord, Record


@pytest.fixture
def shop(tmp_path: Path, examples: Path) -> Path:
    path = tmp_path / "shop.db"
    database = sqlite3.connect(path)
    database.executescript((examples / "shop.sql").read_text())
    database.close()
    return path


TIDEWATER = {"id": 1, "name": "Tidewater", "price": 14.5, "in_print": True, "extra": {"pages": 312}}


def test_every_table_of_a_database_is_read_and_says_its_collection(read, shop):
    expected = [
        Record(TIDEWATER, "books:1", "1", "books"),
        Record({"id": 2, "name": "Salt Roads", "price": 18, "in_print": False}, "books:2", "2", "books"),
        Record(
            {"shop": "harbour", "day": "2026-03-01", "copies": 7},
            "sales:harbour:2026-03-01",
            "harbour:2026-03-01",
            "sales",
        ),
    ]

    assert read(shop, all_tables=True) == expected
    assert read(f"sqlite:///{shop}", all_tables=True) == expected
    assert read(shop, tables=("sales",)) == expected[2:]


def test_no_table_is_read_until_it_is_named(read, shop):
    with pytest.raises(SourceError) as failure:
        read(shop)

    assert "books (2 rows); sales (1 row)" in failure.value.message
    assert "--table NAME" in failure.value.hint
    assert "--all-tables" in failure.value.hint
    assert failure.value.details["tables"] == ["books", "sales"]


def test_system_tables_and_search_indexes_are_never_among_all_tables(read, shop):
    database = sqlite3.connect(shop)
    database.executescript(
        "create virtual table books_fts using fts5(name); insert into books_fts values ('Tidewater');"
        "create table django_migrations (id integer primary key); insert into django_migrations values (1);"
        "create table notes (id integer primary key autoincrement); insert into notes values (1); analyze;"
    )
    database.close()

    assert {entry.collection for entry in read(shop, all_tables=True)} == {"books", "sales", "notes"}


def test_a_view_is_listed_and_read_by_its_name_alone(read, shop):
    database = sqlite3.connect(shop)
    database.executescript("create view cheap as select id, name from books where price < 15")
    database.close()

    assert {entry.collection for entry in read(shop, all_tables=True)} == {"books", "sales"}
    assert read(shop, table="cheap") == [Record({"id": 1, "name": "Tidewater"}, "cheap:1", "1")]
    with pytest.raises(SourceError, match=r"cheap \(1 row, view\)"):
        read(shop)


def test_a_broken_view_is_listed_without_a_count(read, shop):
    database = sqlite3.connect(shop)
    database.executescript("create view old as select * from gone")
    database.close()

    with pytest.raises(SourceError, match=r"old \(view\)"):
        read(shop)


def test_one_table_is_read_without_a_collection(read, shop):
    assert [(entry.id, entry.collection) for entry in read(shop, table="books")] == [("1", None), ("2", None)]


def test_a_table_that_is_not_there_is_an_error(read, shop):
    with pytest.raises(SourceError, match="no table 'nothing'"):
        read(shop, table="nothing")


def test_the_names_of_tables_and_columns_are_never_sql(read, shop):
    database = sqlite3.connect(shop)
    database.execute('create table "a; drop table books --" ("x""y" text)')
    database.execute('insert into "a; drop table books --" values (1)')
    database.commit()
    database.close()

    assert read(shop, all_tables=True)[0].data == {'x"y': "1"}
    assert len(read(shop, table="books")) == 2
    with pytest.raises(SourceError):
        read(shop, table="books; drop table books")


def test_a_row_that_cannot_be_read_as_text_is_reported(read, shop):
    database = sqlite3.connect(shop)
    database.execute("insert into books values (3, cast(x'ff' as text), 1, 1, '{broken'), (4, 'Fine', x'00ff', 7, '{')")
    database.commit()
    database.close()

    entries = read(shop, table="books")

    assert entries[2] == BadRecord("books row 3", "is not UTF-8")
    assert entries[3].data == {"id": 4, "name": "Fine", "price": "AP8=", "in_print": 7, "extra": "{"}


def test_a_database_is_opened_for_reading_only_and_never_made(read, shop, tmp_path: Path):
    shop.chmod(0o444)
    before = shop.read_bytes()

    read(shop, all_tables=True)

    assert shop.read_bytes() == before
    with pytest.raises(SourceError, match="no SQLite database"):
        read(f"sqlite:///{tmp_path / 'new.db'}")
    assert not (tmp_path / "new.db").exists()


def test_a_file_that_is_no_database_is_an_error(read, tmp_path: Path):
    (tmp_path / "a.db").write_text("not a database at all, whatever its name says")

    with pytest.raises(SourceError, match="cannot be read"):
        read(tmp_path / "a.db")


def test_postgresql_rows_keep_what_they_mean(read, database):
    with psycopg.connect(database) as connection:
        connection.execute(
            """create table tours (
                id uuid primary key, name text, price numeric, seats bigint, open boolean, day date,
                at timestamptz, tags text[], extra jsonb, photo bytea, score float8, pause interval,
                nothing text)"""
        )
        connection.execute(
            """insert into tours values ('00000000-0000-0000-0000-000000000001', 'Harbour', 12.50, 9, true,
            '2026-03-01', '2026-03-01 10:00+00', '{walk,sea}', '{"a": [1, null]}', '\\x00ff', 'NaN', '1 hour',
            null)"""
        )
        connection.execute("create schema other")
        connection.execute("create table other.lines as select n as number from generate_series(1, 2000) n")

    [tour] = read(database, table="tours")
    lines = read(database, table="other.lines", id_field="number")

    assert tour.id == "00000000-0000-0000-0000-000000000001"
    assert tour.data == {
        "id": "00000000-0000-0000-0000-000000000001",
        "name": "Harbour",
        "price": 12.5,
        "seats": 9,
        "open": True,
        "day": "2026-03-01",
        "at": tour.data["at"],
        "tags": ["walk", "sea"],
        "extra": {"a": [1, None]},
        "photo": "AP8=",
        "pause": "1:00:00",
    }
    assert tour.data["at"].startswith("2026-03-01T")
    assert [entry.id for entry in lines] == [str(number) for number in range(1, 2001)]


def test_a_server_that_is_not_there_is_an_error_without_the_password(read):
    with pytest.raises(SourceError) as failure:
        read("postgresql://someone:hunter2@127.0.0.1:1/shop")

    assert "hunter2" not in str(failure.value)


def test_a_malformed_port_is_an_error_that_names_the_source_without_its_password(read):
    with pytest.raises(SourceError) as failure:
        read("postgresql://me:hunter2@127.0.0.1:bad/x")

    assert "postgresql://me@127.0.0.1:bad/x" in str(failure.value)
    assert "hunter2" not in str(failure.value)


def test_a_dialect_or_driver_that_is_not_installed_is_an_error(read):
    for url in ("mysql+nosuchdriver://x/y", "oracle://x/y"):
        with pytest.raises(SourceError):
            read(url)


def test_without_sqlalchemy_the_error_names_the_extra(read, shop, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "portico.sources.sql", raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    with pytest.raises(SourceError, match=r"portico\[sql\]"):
        read(shop, all_tables=True)
