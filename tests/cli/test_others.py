"""`portico keys`, `check`, `--help`, and the installed script itself."""

import asyncio
import json
import re
import runpy
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.conftest import Portico
from tests.protocols.nwp.conftest import tls_files as certificate

from portico.cli.serve import print_banner
from portico.cli.site_check import check_site
from portico.protocols import parse_config
from portico.server.http import ServerInfo

COMMANDS = ["demo", "serve", "load", "ask", "query", "call", "check", "keys create", "keys list", "keys revoke"]


# keys


def test_a_key_is_shown_once_listed_without_itself_and_revoked(portico: Portico, tmp_path: Path) -> None:
    store = ("--store", "sqlite:///s.db")
    made = portico(
        *("keys", "create", "--name", "menu importer", "--scope", "create:recipes", "--scope", "ask"),
        *("--danger", "reversible", "--days", "7", *store, "--json"),
    ).json
    listed = portico("keys", "list", *store, "--json").json

    assert made["key"].startswith("pk_")
    assert listed == [{name: value for name, value in made.items() if name != "key"}]
    assert listed[0]["scopes"] == ["ask", "create:recipes"]
    assert (listed[0]["danger"], listed[0]["revoked"]) == ("reversible", None)
    assert made["key"].encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("s.db*"))

    assert portico("keys", "revoke", made["id"], *store).code == 0
    assert portico("keys", "list", *store, "--json").json[0]["revoked"]
    again = portico("keys", "revoke", made["id"], *store)
    unknown = portico("keys", "revoke", "nothing", *store)
    assert (again.code, unknown.code) == (3, 3)
    assert f"Key {made['id']} is already revoked" in again.err
    assert "There is no key or certificate 'nothing'" in unknown.err


def test_a_key_alone_goes_to_the_output_so_that_it_can_be_piped(portico: Portico) -> None:
    done = portico("keys", "create", "--name", "x", "--store", "sqlite:///s.db")

    assert re.fullmatch(r"pk_[\w-]{43}\n", done.out)
    assert "It will not be shown again" in done.err


def test_keys_list_is_a_table_for_people(portico: Portico) -> None:
    store = "--store", "sqlite:///s.db"
    portico("keys", "create", "--name", "x", "--days", "0", *store)

    lasting = portico("keys", "list", *store).out
    portico("keys", "revoke", lasting.splitlines()[1].split()[0], *store)
    revoked = portico("keys", "list", *store).out

    assert [line.split()[1:] for line in lasting.splitlines()] == [
        ["name", "scopes", "danger", "trust", "expires"],
        ["x", "ask", "read:*", "safe", "validated"],
    ]
    assert revoked.splitlines()[0].split()[-1] == "revoked"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", revoked.splitlines()[1].split()[-1])


def test_the_id_of_a_key_stays_in_one_piece_in_a_narrow_table(portico: Portico, script: Portico) -> None:
    store, scopes = ("--store", "sqlite:///s.db"), ("--scope", "read:recipes,products", "--scope", "execute:book_table")
    portico("keys", "create", "--name", "a name that is rather long", *scopes, "--danger", "destructive", *store)

    id = portico("keys", "list", *store, "--json").json[0]["id"]

    table = script("keys", "list", *store, env={"COLUMNS": "60"}).out

    assert id in table.split()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--scope", "write:recipes"), "'write:recipes' is not a scope"),
        (("--scope", "recipes"), "'recipes' is not a scope"),
        (("--danger", "reckless"), "'reckless' is not a danger"),
        (("--danger", "forbidden"), "'forbidden' is not a danger"),
        (("--days", "-3"), "days"),
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(portico: Portico, args: tuple[str, ...], says: str) -> None:
    done = portico("keys", "create", "--name", "x", *args, "--store", "sqlite:///s.db")

    assert done.code == 2
    assert says in done.err


# check


def site(tmp_path: Path, text: str) -> None:
    (tmp_path / "portico.toml").write_text(f'[search]\nembedder = "none:"\n{text}')


def test_a_good_site_is_well(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,name\na,Apple\n")
    site(tmp_path, '[server]\nport = 0\n[[source]]\nurl = "p.csv"\ncollection = "fruits"\n')
    portico("load")

    checked = portico("check", "--json").json

    assert checked["well"] is True
    says = {each["what"]: each["says"] for each in checked["findings"]}
    assert says["collection fruits"].startswith("1 item")
    assert says["source p.csv"] == "can be opened"
    assert says["embedder"] == "none: search uses words alone"
    assert says["operations"] == "none of its own"


def test_a_role_of_a_field_that_no_item_has_fails_the_check(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,Recipe Name\na,Apple pie\n")
    source = '[server]\nport = 0\n[[source]]\nurl = "p.csv"\ncollection = "dishes"\n'
    site(tmp_path, f'{source}[collections.dishes.roles]\ntitle = "recipe_name"\nimage = "Recipe Nme"\n')
    portico("load")

    done = portico("check", "--json")

    wrong = [each for each in json.loads(done.out)["findings"] if not each["well"]]
    assert done.code == 1
    assert [each["what"] for each in wrong] == ["collections.dishes.roles"]
    assert "the role image names the field 'Recipe Nme', which no item has" in wrong[0]["says"]
    assert "Recipe Name" in wrong[0]["says"]


def test_people_see_what_is_well_and_what_is_not(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,name\na,Anjou\n")
    site(tmp_path, '[[source]]\nurl = "gone.csv"\n[collections.fruits]\ntitle = "Fruit"\n')
    portico("load", "p.csv", "--collection", "pears")

    done = portico("check")

    assert done.code == 1
    assert "✗ source gone.csv: There is no file or folder" in done.out
    assert "✗ collection fruits: is described in the site file but has no items; run portico load" in done.out
    assert "✓ embedder" in done.out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[store]\nurl = "sqlite:///other.db"\n', "is an SQLite database, but not a Portico store"),
        ('operations = ["gone.py"]\n', "There is no Python file"),
        ('operations = ["no_such_module_here"]\n', "cannot be imported"),
        ('operations = ["broken.py"]\n', "broken.py"),
        ('operations = ["bad.py"]\n', "is not an async function"),
        ('[[operation]]\nname = "x"\nurl = "https://x.example/"\nheaders = {A = "${NOT_SET_HERE}"}\n', "NOT_SET_HERE"),
    ],
)
def test_what_is_broken_is_said_in_plain_words(portico: Portico, tmp_path: Path, text: str, says: str) -> None:
    database = sqlite3.connect(tmp_path / "other.db")
    database.execute("create table t (a)")
    database.commit()
    database.close()
    (tmp_path / "broken.py").write_text("def broken(:\n")
    (tmp_path / "bad.py").write_text("from portico.operations import operation\n@operation()\ndef f(context): ...\n")
    (tmp_path / "portico.toml").write_text(f'{text}\n[search]\nembedder = "none:"\n')

    done = portico("check", "--json")

    assert done.code == 1
    wrong = [each["says"] for each in json.loads(done.out)["findings"] if not each["well"]]
    assert len(wrong) == 1
    assert says in wrong[0]


UNPUBLISHED = """
from portico.operations import Context, operation

class Image: ...

@operation()
async def scan(context: Context, quality: int, image: Image) -> str: ...

@operation()
async def print_it(context: Context) -> Image: ...

@operation()
async def greet(context: Context) -> str: ...
"""


@pytest.mark.parametrize("command", [("check",), ("serve", "--port", "0"), ("call",), ("call", "greet")])
def test_operations_that_cannot_be_published_fail_a_command_by_name(
    portico: Portico, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "own.py").write_text(UNPUBLISHED)
    (tmp_path / "portico.toml").write_text('operations = ["own.py"]\n[search]\nembedder = "none:"\n')

    done = portico(*command)

    assert done.code != 0
    says = " ".join(f"{done.out} {done.err}".split())
    assert "The operation scan (" in says
    assert "own.py:6) cannot be published: its parameter image" in says
    assert "own.py:9) cannot be published: its result" in says
    assert "greet" not in says


def test_what_is_wrong_with_nwp_is_said_in_plain_words(portico: Portico, tmp_path: Path) -> None:
    certificate(tmp_path)
    site(
        tmp_path,
        """
        [server]
        nwp_port = 0
        [nwp]
        tls_certificate = "inn.pem"
        callback_secret = "NOT_SET_HERE"
        issuers = ["http://elsewhere.example"]
        allow_nodes = ["https://shop.example/nwp"]
        [[nwp.node]]
        rel = "suppliers"
        url = "https://shop.example/nwp/products"
        [[nwp.node]]
        rel = "others"
        url = "https://shop.example.evil/nwp/products"
        """,
    )

    portico("load")
    done = portico("check", "--json")

    assert done.code == 1
    found = {each["what"]: each for each in json.loads(done.out)["findings"]}
    assert found["nwp port"]["well"]
    assert {what: each["says"].partition(". ")[0] for what, each in found.items() if not each["well"]} == {
        "nwp.tls_certificate": "nwp.tls_key is missing; inn.pem holds no key",
        "nwp.callback_secret": "The environment variable NOT_SET_HERE is not set",
        "nwp.issuers": "nwp.issuers: http://elsewhere.example is not https",
        "nwp.node https://shop.example.evil/nwp/products": ("is never asked: no entry of nwp.allow_nodes matches it"),
    }


@pytest.mark.parametrize(
    ("tls", "says"),
    [
        ('tls_certificate = "inn.pem"\ntls_key = "inn.key"', "can be used with its key"),
        ('tls_certificate = "inn.pem"\ntls_key = "other/inn.key"', "the key is that of another certificate"),
        ('tls_certificate = "inn.pem"\ntls_key = "gone.key"', "No such file or directory"),
        ('tls_key = "inn.key"', "nwp.tls_certificate is missing"),
    ],
)
def test_files_of_tls_are_looked_into(portico: Portico, tmp_path: Path, tls: str, says: str) -> None:
    (tmp_path / "other").mkdir()
    certificate(tmp_path)
    certificate(tmp_path / "other")
    site(tmp_path, f"[nwp]\n{tls}\n")

    found = json.loads(portico("check", "--json").out)["findings"]

    assert says in next(each["says"] for each in found if each["what"] == "nwp.tls_certificate")


@pytest.mark.parametrize(
    "args", [("demo", "--port", "99999"), ("demo", "--nwp-port", "-1"), ("serve", "--port", "65536")]
)
def test_a_port_that_cannot_be_is_wrong_usage(portico: Portico, args: tuple[str, ...]) -> None:
    done = portico(*args)

    assert done.code == 2
    assert f"Invalid value for '{args[1]}'" in done.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[servr]\nport = 1\n", "has no setting 'servr'"),
        ('[server]\nport = "x"\n', "server.port"),
        ("port = \n", "is not TOML"),
        ('[collections.dishes.roles]\ntitel = "Name"\n', "titel"),
        ('[web]\nimages = "*"\n', "web.images"),
    ],
)
def test_a_site_file_that_cannot_be_read_is_wrong_usage(portico: Portico, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "portico.toml").write_text(text)

    done = portico("check")

    assert done.code == 2
    assert says in done.err


def test_a_missing_site_file_is_wrong_usage(portico: Portico) -> None:
    assert portico("check", "--site", "nowhere").code == 2
    assert portico("check", env={"PORTICO_SITE": "nowhere"}).code == 2


@pytest.fixture
def apples(portico: Portico, tmp_path: Path) -> Path:
    """The file of a store with many items."""
    (tmp_path / "p.csv").write_text("id,name\n" + "".join(f"a{n},Apple {n}\n" for n in range(2000)))
    portico("load", "p.csv", "--store", "sqlite:///s.db")
    return tmp_path / "s.db"


def test_a_damaged_store_is_found(portico: Portico, apples: Path) -> None:
    """A store that can be read, but whose file contradicts itself: its header counts free pages that are not there."""
    whole = apples.read_bytes()
    apples.write_bytes(whole[:36] + (int.from_bytes(whole[36:40]) + 7).to_bytes(4) + whole[40:])

    done = portico("check", "--store", "sqlite:///s.db", "--json")

    assert done.code == 1, done.err
    [store] = [each for each in json.loads(done.out)["findings"] if each["what"] == "store"]
    assert not store["well"]
    assert "reelist" in store["says"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("UPDATE items_1 SET data = 'no{json' WHERE id = 'a7'", "The item 'a7' of p cannot be read"),
        ("UPDATE items_1 SET data = '[1]' WHERE id = 'a7'", "The item 'a7' of p cannot be read"),
        ("UPDATE items_1 SET data = '{}' WHERE id = 'a7'", "The item 'a7' of p is not what was written"),
        ("UPDATE changes SET data = 'no{json' WHERE seq = 7", "Change 7 (p/a6) cannot be read"),
        ("DROP TABLE trail", "The table trail is missing"),
        ("DROP TABLE items_1", "The table items_1 is missing"),
        ("UPDATE fields SET type = 'odd'", "The description of p cannot be read"),
    ],
)
def test_what_a_server_would_stumble_over_is_found(portico: Portico, apples: Path, damage: str, says: str) -> None:
    with closing(sqlite3.connect(apples)) as database:
        database.execute(damage)
        database.commit()

    done = portico("check", "--store", "sqlite:///s.db", "--json")

    assert done.code == 1, done.err
    [store, *_] = [each for each in json.loads(done.out)["findings"] if each["what"] == "store"]
    assert not store["well"]
    assert says in store["says"]


def test_a_missing_store_is_noted_passes_and_is_not_made(portico: Portico, tmp_path: Path) -> None:
    site(tmp_path, "[collections.fruits]\n")

    done = portico("check")

    assert done.code == 0
    assert f"✓ store: There is no store at {Path('site.db')} yet; create one with portico load" in done.out
    assert "✓ disk" in done.out
    assert not (tmp_path / "site.db").exists()


def test_an_empty_store_file_fails_the_check_and_stays_empty(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "s.db").touch()

    done = portico("check", "--store", "sqlite:///s.db")

    assert done.code == 1
    assert "✗ store: s.db is empty" in done.out
    assert {path.name: path.stat().st_size for path in tmp_path.glob("s.db*")} == {"s.db": 0}


@pytest.mark.parametrize("is_empty", [False, True], ids=["gone", "empty"])
def test_a_write_ahead_log_without_its_database_is_refused_and_kept(
    portico: Portico, tmp_path: Path, is_empty: bool
) -> None:
    database, log = tmp_path / "s.db", tmp_path / "s.db-wal"
    (tmp_path / "fruits.jsonl").write_text('{"id": "fig"}\n')
    log.write_bytes(b"acknowledged writes")
    if is_empty:
        database.touch()

    checked = portico("check", "--store", "sqlite:///s.db")
    loaded = portico("load", "fruits.jsonl", "--store", "sqlite:///s.db")
    served = portico("serve", "--store", "sqlite:///s.db", "--port", "0", "--nwp-port", "0")

    assert (checked.code, loaded.code, served.code) == (1, 6, 6)
    for output in (checked.out, loaded.err, served.err):
        text = " ".join(output.split())
        assert "but its write-ahead log s.db-wal is there" in text
        assert "Restore the database file first" in text
    assert log.read_bytes() == b"acknowledged writes"
    assert database.exists() == is_empty


def test_a_folder_that_cannot_be_written_to_is_found(portico: Portico) -> None:
    done = portico("check", "--store", "sqlite:////proc/site.db")

    assert done.code == 1
    assert "✗ disk: /proc cannot be written to" in done.out


def test_little_room_for_the_store_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 1 << 40, 5 << 20))
    config = parse_config({"store": {"url": f"sqlite:///{tmp_path}/s.db"}, "search": {"embedder": "none:"}})

    findings = asyncio.run(check_site(config))

    [disk] = [each for each in findings if each.subject == "disk"]
    assert not disk.is_ok
    assert disk.message == f"5 MB are free in {tmp_path}; a store needs 64 MB"


def test_a_store_that_cannot_be_read_for_damage_is_not_called_sound(portico: Portico, apples: Path) -> None:
    whole = apples.read_bytes()
    apples.write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"\xff"))

    done = portico("check", "--store", "sqlite:///s.db")

    assert done.code in (1, 6)
    assert "✗ store" in done.out or "is not a sound SQLite database" in done.err
    assert "✓ store" not in done.out


# help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_an_example(portico: Portico, command: str) -> None:
    done = portico(*command.split(), "--help")

    assert done.code == 0
    lines = [line.strip(" │") for line in done.out.splitlines()]
    assert any(line.startswith(f"portico {command}") for line in lines), done.out


def test_the_help_names_every_command_and_the_exit_codes_are_told(script: Portico) -> None:
    done = script("--help")

    assert done.code == 0
    assert all(command.split()[0] in done.out for command in COMMANDS)


def test_the_installed_script_ends_with_the_codes_it_promises(script: Portico, tmp_path: Path, examples: Path) -> None:
    loaded = script("load", examples / "prices.csv", "-c", "prices", "--store", "sqlite:///s.db", "--json")
    unknown = script("query", "nothing", "--store", "sqlite:///s.db")
    version = script("--version")

    assert (loaded.code, json.loads(loaded.out)["added"]) == (0, 3)
    assert (unknown.code, unknown.err.splitlines()[0]) == (3, "Error: There is no collection 'nothing'")
    assert re.fullmatch(r"portico \d+\.\d+\.\d+\n", version.out)


def test_the_package_runs_as_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["portico", "--version"])

    with pytest.raises(SystemExit) as ended:
        runpy.run_module("portico", run_name="__main__")

    assert (ended.value.code, capsys.readouterr().out[:8]) == (0, "portico ")


@pytest.mark.parametrize(("path", "called"), [("", ".venv/bin/portico"), (".venv/bin", "portico")])
def test_who_opens_a_site_is_told_a_command_that_their_shell_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str, called: str
) -> None:
    command = tmp_path / ".venv" / "bin" / "portico"
    command.parent.mkdir(parents=True)
    command.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    monkeypatch.setattr(sys, "argv", [str(command)])

    native = {"NWP, natively": "nwp://127.0.0.1:17433"}
    print_banner(ServerInfo("Shop", "http://127.0.0.1:8000", native, ("things",)))

    assert f"From another terminal:  {called} query things --limit 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [["ask", "a soup"], ["query", "recipes"], ["eval", "questions.jsonl"]], ids=lambda command: command[0]
)
def test_what_only_reads_makes_no_store(portico: Portico, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "questions.jsonl").write_text('{"question": "a soup", "items": ["recipes/soup"]}\n')

    done = portico(*command, "--store", "sqlite:///s.db")

    assert (done.code, "There is no store at" in done.err) == (2, True)
    assert not list(tmp_path.glob("s.db*"))
