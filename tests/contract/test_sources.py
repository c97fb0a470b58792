"""Several sources with one URL keep their items apart, also in a store of a version that took them for one source."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portico.config import Config, SourceSettings
from portico.sources.ingest import ingest, load_source, load_sources
from portico.sources.registry import Source, SourceOptions, open_source
from portico.sources.reports import LoadReport
from portico.store import Store
from portico.telemetry import discard


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE TABLE books (id TEXT PRIMARY KEY, name TEXT); INSERT INTO books VALUES ('b1', 'Tides'), ('b2', 'Salt');"
        "CREATE TABLE maps (id TEXT PRIMARY KEY, name TEXT); INSERT INTO maps VALUES ('m1', 'Bay'), ('m2', 'Cape');"
    )
    database.close()
    return path


def change(shop: Path, statement: str) -> None:
    database = sqlite3.connect(shop)
    database.execute(statement)
    database.commit()
    database.close()


def site(shop: Path, *sources: dict[str, Any]) -> Config:
    return Config(source=tuple(SourceSettings(url=f"sqlite:///{shop}", **options) for options in sources))


ALL = {"all_tables": True}
BOOKS, MAPS = {"table": "books", "collection": "books"}, {"table": "maps", "collection": "maps"}
SHELVED_BOOKS, SHELVED_MAPS = {**BOOKS, "collection": "shelf"}, {**MAPS, "collection": "shelf"}


async def load(store: Store, config: Config) -> list[LoadReport]:
    return await load_sources(config, store, discard)


async def ids(store: Store) -> dict[str, list[str]]:
    return {
        name: sorted([item.id async for page in store.items.scan(name) for item in page])
        for name in store.collections.schema
    }


@dataclass(frozen=True)
class EarlierSource:
    """A source under the name that earlier versions gave it: its URL alone."""

    source: Source
    url: str
    former_urls: tuple[str, ...] = ()

    def records(self):
        return self.source.records()

    def share(self) -> None:
        return None


async def load_as_before(store: Store, shop: Path, table: str | None, collection: str) -> None:
    url = f"sqlite:///{shop}"
    await ingest(
        store, EarlierSource(open_source(url, SourceOptions(table=table, all_tables=table is None)), url), collection
    )


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ((BOOKS, MAPS), {"books": ["b1", "b2"], "maps": ["m1", "m2"]}),
        ((SHELVED_BOOKS, SHELVED_MAPS), {"shelf": ["b1", "b2", "m1", "m2"]}),
        ((ALL, {**BOOKS, "collection": "shelf"}), {"books": ["b1", "b2"], "maps": ["m1", "m2"], "shelf": ["b1", "b2"]}),
        (
            ({**BOOKS, "collection": "one"}, {**BOOKS, "collection": "two"}),
            {"one": ["b1", "b2"], "two": ["b1", "b2"]},
        ),
    ],
)
async def test_sources_of_one_url_keep_their_items_apart(store: Store, shop: Path, sources, expected) -> None:
    config = site(shop, *sources)

    await load(store, config)
    assert await ids(store) == expected
    head = await store.changes.head()
    await load(store, config)

    assert await ids(store) == expected
    assert await store.changes.head() == head  # nothing was removed and added again


async def test_a_source_forgets_what_its_own_table_has_lost(store: Store, shop: Path) -> None:
    config = site(shop, SHELVED_BOOKS, SHELVED_MAPS)
    await load(store, config)
    change(shop, "DELETE FROM maps WHERE id = 'm1'")

    reports = await load(store, config)

    assert [report.removed for report in reports] == [0, 1]
    assert await ids(store) == {"shelf": ["b1", "b2", "m2"]}


async def test_the_first_load_after_an_upgrade_adopts_what_is_there(store: Store, shop: Path) -> None:
    await load_as_before(store, shop, "books", "books")
    change(shop, "DELETE FROM books WHERE id = 'b1'")

    (report,) = await load(store, site(shop, BOOKS))

    assert (report.added, report.unchanged, report.removed) == (0, 1, 1)
    assert await ids(store) == {"books": ["b2"]}


async def test_an_emptied_table_is_forgotten_after_an_upgrade(store: Store, shop: Path) -> None:
    await load_as_before(store, shop, "books", "books")
    change(shop, "DELETE FROM books")

    await load(store, site(shop, BOOKS))

    assert await ids(store) == {"books": []}


async def test_all_tables_of_a_database_are_adopted_after_an_upgrade(store: Store, shop: Path) -> None:
    await load_as_before(store, shop, None, "shop")
    change(shop, "DELETE FROM books WHERE id = 'b1'")

    (report,) = await load(store, site(shop, ALL))

    assert (report.added, report.unchanged, report.removed) == (0, 3, 1)
    assert await ids(store) == {"books": ["b2"], "maps": ["m1", "m2"]}


@pytest.mark.parametrize("last", ["books", "maps"])
@pytest.mark.parametrize("sources", [(BOOKS, MAPS), (SHELVED_BOOKS, SHELVED_MAPS)])
async def test_an_upgrade_neither_loses_nor_doubles_items_of_sources_that_shared_a_name(
    store: Store, shop: Path, sources, last: str
) -> None:
    """The earlier version had forgotten the items of the source that was loaded first."""
    collection = next(options["collection"] for options in sources if options["table"] == last)
    await load_as_before(store, shop, last, collection)
    change(shop, f"DELETE FROM {last} WHERE id LIKE '%1'")
    kept = f"{last[0]}2"
    version = (await store.items.get(collection, kept)).version
    config = site(shop, *sources)

    await load_source(config.source[0], config, store, discard, lambda _: None)
    assert (await store.items.get(collection, kept)).version == version  # whichever source comes first
    await load(store, config)

    found = sorted(id for listed in (await ids(store)).values() for id in listed)
    assert found == sorted({"b1", "b2", "m1", "m2"} - {f"{last[0]}1"})
    assert (await store.items.get(collection, kept)).version == version


async def test_items_of_another_collection_wait_for_their_source(store: Store, shop: Path) -> None:
    """On the command line nothing is known of other sources with this URL."""
    await load_as_before(store, shop, "books", "books")
    url = f"sqlite:///{shop}"

    await ingest(store, open_source(url, SourceOptions(table="maps")), "maps")
    assert await ids(store) == {"books": ["b1", "b2"], "maps": ["m1", "m2"]}
    change(shop, "DELETE FROM books WHERE id = 'b1'")
    await ingest(store, open_source(url, SourceOptions(table="books")), "books")

    assert await ids(store) == {"books": ["b2"], "maps": ["m1", "m2"]}


async def test_a_second_source_of_a_file_takes_nothing_from_the_first(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "books.csv"
    path.write_text("id,name\n1,Tides\n2,Salt\n")
    one, two = ({"url": str(path), "collection": name} for name in ("one", "two"))
    await load(store, Config(source=(SourceSettings(**one),)))
    path.write_text("id,name\n2,Salt\n")

    reports = await load(store, Config(source=(SourceSettings(**one), SourceSettings(**two))))

    assert [(report.added, report.removed) for report in reports] == [(0, 1), (1, 0)]
    assert await ids(store) == {"one": ["2"], "two": ["2"]}


async def test_many_items_are_adopted(store: Store, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.store.sqlite.writing.ADOPT_BATCH", 1)
    monkeypatch.setattr("portico.store.postgres.writing.ADOPT_BATCH", 1)
    await load_as_before(store, shop, "books", "books")
    change(shop, "DELETE FROM books")

    (report,) = await load(store, site(shop, BOOKS))

    assert report.removed == 2
