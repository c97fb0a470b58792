"""`portico load`: every kind of source, repeats, removals, bad records."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.cli.conftest import Portico
from tests.music_shop import make_sqlite

from portico.site import RESERVED

EXPECTED = {
    "books.jsonld": [
        "https://books.example/people/mara-lind",
        "https://books.example/salt-roads",
        "https://books.example/tidewater",
    ],
    "products.jsonl": ["kettle-1", "lamp-2", "rug-3"],
    "plain.json": ["1", "2"],
    "prices.csv": ["a1", "a2", "a3"],
    "prices.tsv": ["b1", "b2"],
    "news.rss": ["https://news.example/market", "news-17"],
    "blog.atom": ["tag:blog.example,2026:plane"],
    "guide.pdf": ["guide.pdf#page=1", "guide.pdf#page=2"],
}


def counts(added: int = 0, changed: int = 0, unchanged: int = 0, removed: int = 0, failed: int = 0) -> dict:
    return {"added": added, "changed": changed, "unchanged": unchanged, "removed": removed, "failed": failed}


def summary(loaded: dict) -> dict:
    return {name: loaded[name] for name in counts()}


def ids(portico: Portico, collection: str, store: str = "sqlite:///s.db") -> list[str]:
    found = portico("query", collection, "--store", store, "--limit", "1000", "--json").json
    return [item["id"] for item in found["items"]]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_loads_and_loading_it_again_changes_nothing(
    portico: Portico, examples: Path, tmp_path: Path, name: str
) -> None:
    shutil.copy(examples / name, tmp_path / name)
    load = ("load", name, "--store", "sqlite:///s.db", "--collection", "things", "--json")

    first, second = portico(*load).json, portico(*load).json

    assert summary(first) == counts(added=len(EXPECTED[name]))
    assert summary(second) == counts(unchanged=len(EXPECTED[name]))
    assert ids(portico, "things") == EXPECTED[name]


def test_a_folder_of_pages_loads_as_products_and_passages(portico: Portico, examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples / "pages", tmp_path / "pages")
    load = ("load", "pages", "--store", "sqlite:///s.db", "--json")

    first, second = portico(*load).json, portico(*load).json

    assert summary(first) == counts(added=5)
    assert summary(second) == counts(unchanged=5)
    found = portico("query", "pages", "--store", "sqlite:///s.db", "--fields", "name", "--json").json
    assert sorted(item["name"] for item in found["items"]) == [
        "About us",
        "Desk lamp",
        "Enamel kettle",
        "House rules",
        "Visiting the workshop",
    ]


def test_the_tables_of_a_database_load_as_collections(portico: Portico, examples: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.executescript((examples / "shop.sql").read_text())
    database.close()

    first = portico("load", "sqlite:///shop.db", "--all-tables", "--store", "sqlite:///s.db", "--json").json
    second = portico("load", "sqlite:///shop.db", "--all-tables", "--store", "sqlite:///s.db", "--json").json

    assert summary(first) == counts(added=3)
    assert summary(second) == counts(unchanged=3)
    assert portico("call", "get_book", '{"id": "1"}', "--store", "sqlite:///s.db").json["name"] == "Tidewater"
    checked = portico("check", "--store", "sqlite:///s.db", "--json").json
    collections = [each["what"] for each in checked["findings"] if each["what"].startswith("collection")]
    assert collections == ["collection books", "collection sales"]


def test_one_table_of_a_database_goes_where_it_is_told(portico: Portico, examples: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.executescript((examples / "shop.sql").read_text())
    database.close()

    portico("load", "sqlite:///shop.db", "--table", "books", "--collection", "library", "--store", "sqlite:///s.db")

    assert ids(portico, "library") == ["1", "2"]


def test_several_tables_of_a_database_load_each_into_its_own_collection(portico: Portico, tmp_path: Path) -> None:
    make_sqlite(tmp_path / "music.db")

    loaded = portico("load", "music.db", "--table", "Album", "--table", "Artist", "--store", "sqlite:///s.db", "--json")

    assert summary(loaded.json) == counts(added=13)
    assert ids(portico, "Artist") == ["1", "2", "3", "4", "5"]
    assert portico("query", "Customer", "--store", "sqlite:///s.db").code != 0


def test_a_database_without_named_tables_is_listed_and_nothing_is_loaded(portico: Portico, tmp_path: Path) -> None:
    make_sqlite(tmp_path / "music.db")

    done = portico("load", "music.db", "--store", "sqlite:///s.db")

    assert done.code != 0
    assert "Album (8 rows)" in done.err
    assert "Customer (2 rows)" in done.err
    assert "alembic_version" not in done.err
    assert "--table NAME" in done.err
    assert "--all-tables" in done.err
    assert portico("query", "Album", "--store", "sqlite:///s.db").code != 0


def test_one_collection_for_several_tables_is_refused(portico: Portico, tmp_path: Path) -> None:
    make_sqlite(tmp_path / "music.db")

    done = portico("load", "music.db", "--table", "Album", "--table", "Artist", "-c", "x", "--store", "sqlite:///s.db")

    assert done.code != 0
    assert "each table is loaded into its own" in done.err


def test_an_openapi_document_becomes_operations_and_no_collection(
    portico: Portico, examples: Path, tmp_path: Path
) -> None:
    shutil.copy(examples / "tours.openapi.yaml", tmp_path)
    load = ("load", "tours.openapi.yaml", "--store", "sqlite:///s.db", "--json")

    first, second = portico(*load).json, portico(*load).json

    assert summary(first) == counts(added=4)
    assert summary(second) == counts(unchanged=4)
    listed = portico("call", "--store", "sqlite:///s.db", "--json").json
    own = {each["operation"]: each["kind"] for each in listed if each["operation"] not in RESERVED}
    assert own == {
        "list_tours": "read",
        "get_tours_id": "read",
        "cancel_tour": "delete",
        "book_tour": "create",
    }


def test_the_pages_of_a_sitemap_load_and_a_page_that_left_it_is_forgotten(
    portico: Portico, web_folder: tuple[Path, str]
) -> None:
    folder, address = web_folder
    write_pages(folder, "kettle", "lamp")
    (folder / "sitemap.xml").write_text(sitemap(address, "kettle", "lamp"))
    load = (
        *("load", f"sitemap+{address}/sitemap.xml", "--collection", "pages", "--store", "sqlite:///s.db"),
        *("--allow-host", "127.0.0.1", "--delay", "0", "--json"),
    )

    first, second = portico(*load).json, portico(*load).json
    (folder / "sitemap.xml").write_text(sitemap(address, "kettle"))
    third = portico(*load).json

    assert summary(first) == counts(added=2)
    assert summary(second) == counts(unchanged=2)
    assert summary(third) == counts(unchanged=1, removed=1)


def test_a_site_is_crawled_from_its_start_page(portico: Portico, web_folder: tuple[Path, str]) -> None:
    folder, address = web_folder
    write_pages(folder, "kettle", "lamp")
    links = '<a href="kettle.html">Kettle</a> <a href="lamp.html">Lamp</a> <a href="secret.html">No</a>'
    (folder / "index.html").write_text(f"<title>Start</title><main><p>{links} A shop by the canal.</p></main>")
    write_pages(folder, "secret")
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /secret.html\n")
    load = (
        *("load", f"site+{address}/", "--collection", "pages", "--store", "sqlite:///s.db"),
        *("--allow-host", "127.0.0.1", "--delay", "0", "--json"),
    )

    first, second = portico(*load).json, portico(*load).json

    closed = [{"where": f"{address}/secret.html", "reason": "is disallowed by robots.txt"}]
    assert (summary(first), first["failures"]) == (counts(added=3, failed=1), closed)
    assert (summary(second), second["failures"]) == (counts(unchanged=3, failed=1), closed)
    found = portico("query", "pages", "--store", "sqlite:///s.db", "--json").json
    assert sorted(item["name"] for item in found["items"]) == ["Start", "kettle", "lamp"]


def write_pages(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.html").write_text(
            f"<title>{name}</title><main><h1>{name}</h1><p>All about the {name}, at some length.</p></main>"
        )


def sitemap(address: str, *names: str) -> str:
    pages = "".join(f"<url><loc>{address}/{name}.html</loc></url>" for name in names)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{pages}</urlset>'


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x.json", "http://localhost:9/x.json", "http://[::1]:9/x.json"])
def test_a_private_address_is_refused_unless_its_host_is_allowed(portico: Portico, address: str) -> None:
    refused = portico("load", address, "--collection", "x", "--store", "sqlite:///s.db")

    assert refused.code == 6
    assert "not a public address" in refused.err
    assert "allow_hosts" in refused.err


def test_the_site_file_can_allow_a_host(portico: Portico, web_folder: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = web_folder
    (folder / "x.jsonl").write_text('{"id": "a"}\n')
    (tmp_path / "portico.toml").write_text(
        f'allow_hosts = ["127.0.0.1"]\n[[source]]\nurl = "{address}/x.jsonl"\ncollection = "x"\n'
    )

    assert summary(portico("load", "--json").json) == counts(added=1)


def test_changed_and_removed_rows_are_told_apart(portico: Portico, tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    load = ("load", "p.csv", "--store", "sqlite:///s.db", "--json")
    table.write_text("id,name\na,Apple\nb,Pear\nc,Plum\n")
    portico(*load)
    table.write_text("id,name\na,Apple\nb,Quince\nd,Fig\n")

    loaded = portico(*load).json

    assert summary(loaded) == counts(added=1, changed=1, unchanged=1, removed=1)
    found = portico("query", "p", "--store", "sqlite:///s.db", "--json").json
    assert [(item["id"], item["name"]) for item in found["items"]] == [
        ("a", "Apple"),
        ("b", "Quince"),
        ("d", "Fig"),
    ]


BROKEN = '{"id": "a", "n": 1}\n{"id": "b", "n": \n{"id": "c", "n": 3}\n[1]\n'


def test_broken_lines_are_reported_by_file_and_line_and_the_others_load(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(BROKEN)

    done = portico("load", "rows.jsonl", "--store", "sqlite:///s.db", "--json")

    assert done.code == 0
    assert summary(done.json) == counts(added=2, failed=2)
    assert [each["where"] for each in done.json["failures"]] == ["rows.jsonl:2", "rows.jsonl:4"]
    assert "rows.jsonl:2: " in done.err
    assert "rows.jsonl:4: " in done.err
    assert ids(portico, "rows") == ["a", "c"]


def test_with_strict_a_broken_line_fails_the_command_after_loading_the_rest(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(BROKEN)

    done = portico("load", "rows.jsonl", "--store", "sqlite:///s.db", "--strict", "--json")

    assert done.code == 1
    assert summary(json.loads(done.out)) == counts(added=2, failed=2)
    assert ids(portico, "rows") == ["a", "c"]


def test_a_short_table_row_is_reported_by_its_line(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,name,price\na,Apple,1\nb,Pear,2,3,4\nc,Plum,3\n")

    loaded = portico("load", "p.csv", "--store", "sqlite:///s.db", "--json").json

    assert summary(loaded) == counts(added=2, failed=1)
    assert [each["where"] for each in loaded["failures"]] == ["p.csv:3"]


def test_an_id_given_twice_is_reported_where_it_is_repeated(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "n": 1}\n{"id": "b"}\n{"id": "a", "n": 2}\n')

    loaded = portico("load", "p.jsonl", "--store", "sqlite:///s.db", "--json").json

    assert summary(loaded) == counts(added=2, failed=1)
    assert [each["where"] for each in loaded["failures"]] == ["p.jsonl:3"]
    assert portico("call", "get_p", "id=a", "--store", "sqlite:///s.db").json["n"] == 1


def test_several_sources_load_at_once_and_are_summed(portico: Portico, examples: Path) -> None:
    loaded = portico(
        "load", examples / "prices.csv", examples / "prices.tsv", "-c", "prices", "--store", "sqlite:///s.db", "--json"
    ).json

    assert summary(loaded) == counts(added=5)
    assert [each["added"] for each in loaded["sources"]] == [3, 2]
    assert ids(portico, "prices") == ["a1", "a2", "a3", "b1", "b2"]


def test_people_read_what_became_of_each_source(portico: Portico, examples: Path, tmp_path: Path) -> None:
    shutil.copy(examples / "prices.csv", tmp_path)

    done = portico("load", "prices.csv", "--store", "sqlite:///s.db")

    lines = done.out.splitlines()
    assert lines[0].startswith("prices.csv: 3 added, 0 changed, 0 unchanged, 0 removed, 0 failed in ")
    assert lines[2].split() == ["field", "type", "role", "filled", "example"]
    assert lines[-1] == "All is well: every record was loaded and every value understood."


def test_a_source_that_cannot_be_read_does_not_stop_the_others(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\na,Apple\n")
    (tmp_path / "b.csv").write_text("id,name\nb,Pear\n")

    done = portico("load", "a.csv", "missing.csv", "b.csv", "-c", "fruits", "--store", "sqlite:///s.db")
    as_json = portico("load", "a.csv", "missing.csv", "b.csv", "-c", "fruits", "--store", "sqlite:///s.db", "--json")

    assert (done.code, as_json.code) == (1, 1)
    assert "missing.csv: There is no file or folder 'missing.csv'" in done.err
    assert done.out.splitlines()[-1] == "Not all is well: missing.csv could not be read; see above."
    assert json.loads(as_json.out)["failures"] == [
        {"where": "missing.csv", "reason": "There is no file or folder 'missing.csv'."}
    ]
    assert ids(portico, "fruits") == ["a", "b"]


def test_a_source_of_the_site_file_that_cannot_be_read_does_not_stop_the_others(
    portico: Portico, tmp_path: Path
) -> None:
    (tmp_path / "b.csv").write_text("id,name\nb,Pear\n")
    (tmp_path / "portico.toml").write_text('[[source]]\nurl = "missing.csv"\n[[source]]\nurl = "b.csv"\n')

    done = portico("load", "--json")

    assert done.code == 1
    loaded = json.loads(done.out)
    assert summary(loaded) == counts(added=1)
    assert [source.get("error", "") != "" for source in loaded["sources"]] == [True, False]


def test_an_encoding_can_be_named(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes("id,name\na,Kräuterñá\n".encode("cp850"))

    portico("load", "p.csv", "--encoding", "cp850", "--store", "sqlite:///s.db")

    assert portico("call", "get_p", "id=a", "--store", "sqlite:///s.db").json["name"] == "Kräuterñá"


def test_options_give_an_id_field_and_a_type(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sku,name\nx1,Apple\n")

    portico("load", "p.csv", "--store", "sqlite:///s.db", "--id-field", "sku", "--type", "Product")

    found = portico("call", "get_p", "id=x1", "--store", "sqlite:///s.db").json
    assert (found["@type"], found["name"]) == ("Product", "Apple")


def test_a_site_file_loads_all_its_sources(portico: Portico, examples: Path, tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text(
        f"""
        [store]
        url = "sqlite:///data/site.db"
        [[source]]
        url = "{examples}/prices.csv"
        collection = "products"
        [[source]]
        url = "{examples}/books.jsonld"
        """
    )

    loaded = portico("load", "--json").json

    assert summary(loaded) == counts(added=6)
    assert (tmp_path / "data" / "site.db").is_file()
    assert len(portico("query", "books", "--json").json["items"]) == 3


def test_a_row_is_forgotten_from_whichever_folder_the_site_is_loaded(portico_in: Portico, tmp_path: Path) -> None:
    """The source is the same file, however the way to it is written."""
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "portico.toml").write_text('[[source]]\nurl = "p.csv"\ncollection = "p"\n')
    (shop / "p.csv").write_text("id,name\na,Apple\nb,Pear\n")
    portico_in(tmp_path, "load", "--site", "shop")
    (shop / "p.csv").write_text("id,name\na,Apple\n")

    loaded = portico_in(shop, "load", "--json").json

    assert summary(loaded) == counts(unchanged=1, removed=1)


def test_files_of_the_same_name_in_two_folders_are_two_sources(portico_in: Portico, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.csv").write_text(f"id,name\n{name},Town\n")
        portico_in(tmp_path / name, "load", "p.csv", "--store", store)

    found = portico_in(tmp_path, "query", "p", "--store", store, "--json").json
    assert [item["id"] for item in found["items"]] == ["north", "south"]


def test_a_file_cut_off_in_the_middle_does_not_empty_the_collection(portico: Portico, tmp_path: Path) -> None:
    whole = json.dumps([{"id": f"p{n}", "name": f"Product {n}"} for n in range(50)])
    (tmp_path / "p.json").write_text(whole)
    load = ("load", "p.json", "--store", "sqlite:///s.db", "--json")
    portico(*load)
    (tmp_path / "p.json").write_text(whole[: len(whole) // 2])

    portico(*load)

    assert len(ids(portico, "p")) == 50


def test_a_missing_file_and_an_unknown_format_are_said_plainly(portico: Portico, tmp_path: Path) -> None:
    missing = portico("load", "nowhere.csv", "--store", "sqlite:///s.db")
    (tmp_path / "a.csv").write_text("id\n1\n")
    unknown = portico("load", "a.csv", "--format", "xls", "--store", "sqlite:///s.db")

    assert (missing.code, unknown.code) == (6, 6)
    assert "There is no file or folder 'nowhere.csv'" in missing.err
    assert "There is no source format 'xls'" in unknown.err
    assert "jsonl" in unknown.err


def test_a_store_that_cannot_be_is_said_plainly(portico: Portico, examples: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "text.db").write_text("this is not a database, but long enough to be looked into" * 20)
    source = examples / "prices.csv"

    below_a_file = portico("load", source, "--store", "sqlite:///file/s.db")
    not_a_store = portico("load", source, "--store", "sqlite:///text.db")
    no_scheme = portico("load", source, "--store", "mysql://x/y")

    assert (below_a_file.code != 0, not_a_store.code != 0, no_scheme.code) == (True, True, 2)
    assert all("Error:" in each.err for each in (below_a_file, not_a_store, no_scheme))


def test_vectors_can_be_made_while_loading(portico: Portico, examples: Path) -> None:
    portico("load", examples / "products.jsonl", "--store", "sqlite:///s.db", "--embed")

    found = portico("ask", "something to boil water", "--store", "sqlite:///s.db", "--json").json

    assert found["items"][0]["id"] == "kettle-1"
