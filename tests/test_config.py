"""One TOML file to one frozen Config."""

from pathlib import Path

import msgspec
import pytest

from portico.catalog import Danger, FieldType
from portico.config import Config, find_site_file, resolve_location, secret
from portico.errors import ConfigError
from portico.protocols import parse_config, read_config, settings


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "portico.toml"
    path.write_text(text)
    return read_config(path)


def test_sources_that_differ_in_an_ordinary_parameter_are_two_sources() -> None:
    urls = ["https://host.example/export?key=recipes", "https://host.example/export?key=wines"]

    config = parse_config({"source": [{"url": url} for url in urls]})

    assert [source.url for source in config.source] == urls


def test_an_empty_file_is_a_working_site(tmp_path: Path) -> None:
    config = read(tmp_path, "")

    assert config == msgspec.structs.replace(Config(), folder=str(tmp_path))
    assert config.store_url == f"sqlite:///{tmp_path}/site.db"
    assert config.anonymous_scopes == {"ask", "read:*"}
    assert config.anonymous_danger == Danger.SAFE


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[servr]\n", "the top level has no setting 'servr'", "Did you mean server"),
        ("[server]\nprot = 1\n", "server has no setting 'prot'", "Did you mean port"),
        ("[limits]\ndepht = 1\n", "limits has no setting 'depht'", "Did you mean depth"),
        ("[collections.books]\ntitel = 'x'\n", "has no setting 'titel'", "Did you mean title"),
        ("[collections.books.fields.price]\ntype='number'\npaht = 'x'\n", "has no setting 'paht'", "Did you mean path"),
        ("[[source]]\nurl = 'x'\ncolection = 'y'\n", "has no setting 'colection'", "Did you mean collection"),
        ("[[operation]]\nname='x'\nurl='y'\nmethd='GET'\n", "has no setting 'methd'", "Did you mean method"),
        (
            "[[operation]]\nname='x'\nurl='y'\n[operation.params.id]\nlocaton='path'\n",
            "has no setting 'locaton'",
            "Did you mean location",
        ),
        ("[site]\nzzz = 1\n", "site has no setting 'zzz'", "Known settings: name, description, language, images"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(tmp_path, text)

    assert message in refusal.value.message
    assert hint in (refusal.value.hint or "")
    assert str(tmp_path / "portico.toml") in refusal.value.message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[server]\nport = "8000"\n', "server.port"),
        ("[server]\nport = 70000\n", "server.port"),
        ("[store]\nkeep_changes = 5\n", "store.keep_changes"),
        ("[[source]]\nurl = 'x'\ndelay = -1\n", "delay"),
        ("[[source]]\ncollection = 'x'\n", "url"),
        ("[anonymous]\ndanger = 'wild'\n", "anonymous.danger"),
        ("[collections.books.fields.price]\ntype = 'money'\n", "type"),
        ("[[operation]]\nname = 'x'\nurl = 'y'\nmethod = 'FETCH'\n", "method"),
        ("operations = 'own.py'\n", "operations"),
        ("[limits]\nanonymous_per_minute = 0\n", "anonymous_per_minute"),
        ("[limits]\nkeys_per_minute = -1\n", "keys_per_minute"),
        ("[limits]\ndepth = -1\n", "depth"),
        ("[limits]\nconcurrent_tasks = 0\n", "concurrent_tasks"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(tmp_path, text)

    assert place in refusal.value.message


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[nwp]\nauth = 'foo'\n", "nwp.auth cannot be 'foo'", "none, bearer, nip-cert."),
        ("[nwp]\nwithout = ['query', 'foo']\n", "nwp.without[1] cannot be 'foo'", "query, stream_query, aggregate"),
        ("[[operation]]\nname = 'x'\nurl = 'y'\ndanger = 'wild'\n", "cannot be 'wild'", "safe, reversible"),
        ("[collections.books.fields.price]\ntype = 'money'\n", "cannot be 'money'", "string, integer, number"),
        ("[mcp]\noperations = true\n", "mcp.operations: Expected `str`", "none, own, all."),
        ("[nwp]\nmin_version = 'v1'\n", "nwp.min_version: 'v1' is no version", "As in 0.3."),
    ],
)
def test_a_value_of_a_fixed_set_is_told_with_all_that_there_are(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(tmp_path, text)

    assert message in refusal.value.message
    assert hint in refusal.value.hint


def test_a_scope_that_means_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'write:all' is not a scope"):
        read(tmp_path, "[anonymous]\nscopes = ['write:all']\n")


def test_what_is_not_toml_says_where(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not TOML: .*line 2"):
        read(tmp_path, "[site]\nname = \n")


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_bytes(b"\xff\xfe[site]")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_config(tmp_path / "portico.toml")
    with pytest.raises(ConfigError):
        read_config(tmp_path)


def test_the_folder_is_not_a_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder is not a setting"):
        read(tmp_path, 'folder = "/"\n')


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("sqlite:///site.db", "sqlite:////inn/site.db"),
        ("sqlite:////var/site.db", "sqlite:////var/site.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("data/books.jsonld", "/inn/data/books.jsonld"),
        ("/var/books.jsonld", "/var/books.jsonld"),
        ("https://example.com/feed", "https://example.com/feed"),
        ("feed+https://example.com/feed", "feed+https://example.com/feed"),
    ],
)
def test_paths_are_relative_to_the_site_file_and_urls_are_not(url: str, found: str) -> None:
    assert resolve_location(url, "/inn") == found


def test_what_the_file_says_of_a_collection(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [site]
        language = "de"
        [collections.books]
        title = "Books"
        type = "Book"
        weights = {name = 3.0}
        [collections.books.fields.price]
        type = "number"
        path = "offers.price"
        [collections.carts]
        private = true
        """,
    )

    books = config.collection("books")
    assert (books.title, books.type, books.language, books.weights) == ("Books", "Book", "de", {"name": 3.0})
    assert (books.fields["price"].type, books.fields["price"].where) == (FieldType.NUMBER, "offers.price")
    assert books.fields["price"].declared
    assert config.collection("carts").private
    assert config.collection("_operations").private
    assert not config.collection("unheard_of").private


def test_the_site_file_is_named_or_in_the_environment_or_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PORTICO_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_site_file(None) is None

    (tmp_path / "inn").mkdir()
    (tmp_path / "inn" / "portico.toml").write_text("")
    (tmp_path / "portico.toml").write_text("")
    assert find_site_file(None) == Path("portico.toml")
    assert find_site_file("inn") == Path("inn/portico.toml")
    monkeypatch.setenv("PORTICO_SITE", str(tmp_path / "inn"))
    assert find_site_file(None) == tmp_path / "inn" / "portico.toml"
    with pytest.raises(ConfigError, match="There is no site file at nowhere"):
        find_site_file("nowhere")


def test_a_secret_comes_from_the_environment_or_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INN_KEY", "s3cret")
    monkeypatch.delenv("OTHER_KEY", raising=False)

    assert secret("INN_KEY") == "s3cret"
    with pytest.raises(ConfigError, match="OTHER_KEY is not set"):
        secret("OTHER_KEY")


def test_every_setting_is_listed_with_its_default() -> None:
    known = settings()

    assert known["server.port"] == 8000
    assert known["store.url"] == "sqlite:///site.db"
    assert known["limits.depth"] == 32
    assert known["source.url"] is None
    assert known["operation.params.location"] == "query"
    assert "folder" not in known


def test_a_parsed_config_cannot_be_changed() -> None:
    config = parse_config({"site": {"name": "Inn"}})

    with pytest.raises(AttributeError):
        config.site.name = "Other"
