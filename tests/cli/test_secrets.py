"""Passwords and tokens in the URLs of sources: nothing shows, logs or stores them."""

import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.cli.conftest import Portico
from tests.conftest import StoreUrl

from portico.protocols import parse_config
from portico.server.assembly import open_site
from portico.sources.ingest import collection_for, load_sources
from portico.telemetry import JsonLog

SECRET = "hush-0815"
KEPT = "INSERT INTO kept (scope, digest, task, result, expires) VALUES"
Peek = Callable[[], str]


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, store_url: StoreUrl) -> str:
    return store_url(request.param)


@pytest.fixture
def peek(url: str, tmp_path: Path) -> Peek:
    """Everything a backup of the store would hold, as text."""

    def read() -> str:
        if url.startswith("sqlite"):
            return "".join(path.read_bytes().decode("latin-1") for path in sorted(tmp_path.glob("site.db*")))
        server, _, schema = url.partition("?schema=")
        with psycopg.connect(server) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
            return "".join(
                str(connection.execute(f'SELECT t::text FROM {schema}."{name}" t').fetchall()) for (name,) in tables
            )

    return read


def with_password(url: str) -> str:
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user or 'postgres'}:{SECRET}@{host}").geturl()


@pytest.fixture
def tea(postgres: str) -> str:
    """The URL of somebody's database with one table, password included."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS tea")
        connection.execute("DROP TABLE IF EXISTS tea.kinds")
        connection.execute("CREATE TABLE tea.kinds (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO tea.kinds VALUES (1, 'Green'), (2, 'Black')")
    return with_password(postgres)


def test_the_password_of_a_database_is_neither_shown_nor_stored(
    portico: Portico, url: str, peek: Peek, tea: str, postgres: str
) -> None:
    args = (tea, "--table", "tea.kinds", "-c", "teas", "--store", url)

    first, again = portico("load", *args), portico("load", *args, "--json")
    gone = portico("load", tea, "--table", "tea.none", "-c", "teas", "--store", url)

    assert (first.code, again.json["unchanged"], again.json["removed"]) == (0, 2, 0)
    assert again.json["sources"][0]["source"] == postgres
    assert gone.code == 6
    assert SECRET not in peek() + "".join(done.out + done.err for done in (first, again, gone))


def test_a_token_in_the_address_of_a_document_reaches_neither_items_nor_output(
    portico: Portico, url: str, peek: Peek, web_folder: tuple[Path, str]
) -> None:
    folder, address = web_folder
    (folder / "page.html").write_text(f"<title>Tea</title><p>Green tea</p><a href='?token={SECRET}'>more</a>")
    page = f"pages+{address}/page.html?token={SECRET}"
    args = ("--allow-host", "127.0.0.1", "-c", "teas", "--store", url)

    done = portico("load", page, *args, "--json")
    missing = portico("load", f"{address}/none.json?api_key={SECRET}", *args)
    shown = portico("query", "teas", "--store", url, "--json")

    assert (done.json["added"], done.json["failed"]) == (1, 0)
    assert shown.json["items"][0]["id"].startswith(f"{address}/page.html?token=***")
    assert "returned status 404" in missing.err
    assert SECRET not in peek() + "".join(each.out + each.err for each in (done, missing, shown))


def test_check_shows_no_password(portico: Portico, tmp_path: Path, url: str) -> None:
    (tmp_path / "portico.toml").write_text(
        f'[search]\nembedder = "none:"\n[store]\nurl = "{url}"\n'
        f'[[source]]\nurl = "postgresql://me:{SECRET}@db.example/shop"\n'
        f'[[source]]\nurl = "https://me:{SECRET}@feeds.example/news.rss"\n'
        f'[[source]]\nurl = "ftp://me:{SECRET}@files.example/x.csv"\n'
        f'[[nwp.node]]\nrel = "more"\nurl = "https://me:{SECRET}@nodes.example/"\n'
    )

    text, shown = portico("check"), portico("check", "--json")

    names = [each["what"] for each in json.loads(shown.out)["findings"]]
    assert "source postgresql://me@db.example/shop" in names
    assert SECRET not in text.out + text.err + shown.out + shown.err


@pytest.mark.parametrize(
    "source", [f"ftp://me:{SECRET}@host/x", f"https://me:{SECRET}@host/x", f"postgresql://me:{SECRET}@127.0.0.1:1/x"]
)
def test_a_source_that_cannot_be_read_is_named_without_its_password(portico: Portico, source: str) -> None:
    done = portico("load", source, "--store", "sqlite:///s.db")

    assert done.code == 6
    assert SECRET not in done.out + done.err


def test_a_collection_is_not_named_after_a_password() -> None:
    assert collection_for(f"postgresql://me:{SECRET}@host") == "me_host"


async def test_the_log_and_the_operators_desk_name_a_source_without_its_password(
    url: str, peek: Peek, tea: str, postgres: str
) -> None:
    source = {"url": tea, "table": "tea.kinds", "collection": "teas"}
    config = parse_config({"store": {"url": url}, "source": [source], "search": {"embedder": "none:"}})
    log = io.StringIO()
    async with open_site(config, record=JsonLog(log)) as parts:
        await load_sources(config, parts.store, parts.record)
        (shown,) = await parts.sources.all()

    assert json.loads(log.getvalue().splitlines()[-1])["source"] == shown.url == postgres
    assert (shown.state, shown.items) == ("loaded", 2)
    assert SECRET not in log.getvalue() + peek()


def test_sources_that_differ_in_their_token_alone_are_refused(portico: Portico, tmp_path: Path) -> None:
    sources = [f"https://feeds.example/all?token={each}" for each in ("one", "two")]
    (tmp_path / "portico.toml").write_text("".join(f'[[source]]\nurl = "{each}"\n' for each in sources))

    for done in (portico("load"), portico("load", *sources, "--store", "sqlite:///s.db")):
        assert done.code == 2
        assert "differ only in their password or token: https://feeds.example/all?token=***" in done.err


def test_items_that_were_loaded_under_a_password_stay_those_of_their_source(
    portico: Portico, url: str, peek: Peek, tea: str, postgres: str
) -> None:
    """A store of an earlier version, which wrote the whole URL beside every item and into notes."""
    args = (tea, "--table", "tea.kinds", "-c", "teas", "--store", url)
    portico("load", *args)
    note = json.dumps({"state": "failed", "error": f"{tea} failed"}).encode()
    if url.startswith("sqlite"):
        database = sqlite3.connect(url.removeprefix("sqlite:///"))
        database.execute("UPDATE items_1 SET source = ?", [tea])
        database.execute("INSERT INTO runs (source, at) VALUES (?, 0)", [tea])
        database.execute(
            "INSERT INTO kept (scope, digest, task, result, expires) VALUES (?, '', '', ?, 4102444800000000)",
            ["source\nx", note],
        )
        database.execute("DELETE FROM meta WHERE key = 'redacted'")
        database.commit()
        database.close()
    else:
        server, _, schema = url.partition("?schema=")
        with psycopg.connect(server, options=f"-csearch_path={schema}", autocommit=True) as connection:
            connection.execute("UPDATE items_1 SET source = %s", [tea])
            connection.execute("INSERT INTO runs (source) VALUES (%s)", [tea])
            connection.execute(
                "INSERT INTO kept (scope, digest, task, result, expires) VALUES (%s, '', '', %s, 'infinity')",
                ["source\nx", note],
            )
            connection.execute("DELETE FROM blobs WHERE name = 'redacted'")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DELETE FROM tea.kinds WHERE id = 2")
    assert SECRET in peek()

    loaded = portico("load", *args, "--json").json

    assert (loaded["unchanged"], loaded["added"], loaded["removed"]) == (1, 0, 1)
    assert SECRET not in peek()
