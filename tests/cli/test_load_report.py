"""What `portico load` reports, with and without writing, and what `portico check` shows of it afterwards."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Portico
from typer.main import get_command

from portico.catalog import FieldType
from portico.cli import app
from portico.cli.load_report import Report as Printed
from portico.cli.load_report import print_loaded, print_report
from portico.sources.records import Doubt
from portico.sources.reports import CollectionReport, FieldReport, LoadReport, group_doubts, merge_collections

SHAPE = {"collections", "doubts", "remarks", "failures", "questions", "sources"} | {
    "added", "changed", "unchanged", "removed", "failed"
}  # fmt: skip
FIELD = {"type", "role", "coverage", "example", "format", "unit"}
# A total in the middle may be a row of its own.
STOCK = "name,category,stock\nEnamel kettle,kitchen,4\nLinen towel,textiles,31\nTotal,,35\nStoneware mug,kitchen,12\n"
STORE = ("--store", "sqlite:///s.db")


def test_a_dry_run_reports_and_writes_nothing(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "stock.csv").write_text(STOCK)

    done = portico("load", "stock.csv", "--dry-run", *STORE)
    without_store = portico("load", "stock.csv", "--dry-run")

    assert [path.name for path in tmp_path.iterdir()] == ["stock.csv"]
    assert done.out.startswith("stock.csv: 4 items, 0 failed; read in ")
    assert done.out.splitlines()[-1] == "Nothing was written. Not all is well: 1 value is in doubt; see above."
    assert without_store.out.splitlines()[1:7] == done.out.splitlines()[1:7]
    assert without_store.err == ""


def test_a_dry_run_and_a_load_and_a_check_have_one_shape(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "stock.csv").write_text(STOCK)

    dry = portico("load", "stock.csv", "--dry-run", "--json", *STORE).json
    loaded = portico("load", "stock.csv", "--json", *STORE).json
    checked = portico("check", "--json", *STORE).json

    assert set(dry) == set(loaded) == SHAPE
    assert set(checked) == SHAPE | {"well", "findings"}
    for report in (dry, loaded, checked):
        assert set(report["collections"]) == {"stock"}
        fields = report["collections"]["stock"]["fields"]
        assert set(fields) >= {"name", "category", "stock"}
        assert all(set(field) == FIELD for field in fields.values())
        [doubt] = report["doubts"]
        assert set(doubt) == {"place", "field", "value", "reason", "setting"}
        assert doubt["place"] == "stock.csv:4"
    assert checked["collections"]["stock"]["items"] == 4
    assert checked["collections"]["stock"]["fields"]["category"]["coverage"] == 0.75
    assert checked["collections"]["stock"]["fields"]["category"]["example"] == "kitchen"


def test_a_dry_run_of_the_site_file_examines_its_sources(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\na,Apple\n")
    (tmp_path / "portico.toml").write_text('[[source]]\nurl = "a.csv"\ncollection = "fruits"\n')

    report = portico("load", "--dry-run", "--json").json

    assert list(report["collections"]) == ["fruits"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "portico.toml"]


def test_the_report_shows_the_roles_that_the_site_file_sets(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,Name,Label\na,Cedar planter,Big red box\nb,Copper can,Small blue tin\n")
    (tmp_path / "portico.toml").write_text(
        '[[source]]\nurl = "a.csv"\ncollection = "tools"\n[collections.tools.roles]\ntitle = "Label"\n'
    )

    reports = [portico(*command, "--json").json for command in (("load", "--dry-run"), ("load",), ("check",))]

    for report in reports:
        fields = report["collections"]["tools"]["fields"]
        assert {name: field["role"] for name, field in fields.items()} == {"Name": "", "Label": "title"}


def test_with_strict_a_doubt_fails_the_command_after_loading(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "stock.csv").write_text(STOCK)

    strict = portico("load", "stock.csv", "--strict", *STORE)
    lenient = portico("load", "stock.csv", *STORE)

    assert (strict.code, lenient.code) == (1, 0)
    assert "stock.csv:4: may be a row of totals" in strict.out
    assert strict.out.splitlines()[-1] == "Not all is well: 1 value is in doubt; see above."


def test_a_check_remembers_what_the_last_load_could_not_read(portico: Portico, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "name": "Apple"}\n{"id": \n')
    portico("load", "rows.jsonl", *STORE)
    before = portico("check", *STORE)
    rows.write_text('{"id": "a", "name": "Apple"}\n')
    portico("load", "rows.jsonl", *STORE)
    after = portico("check", *STORE)

    assert "Not loaded" in before.out
    assert "rows.jsonl:2: " in before.out
    assert "Not loaded" not in after.out


def test_a_private_collection_is_not_shown(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "staff.csv").write_text("id,name\na,Ada\n")
    (tmp_path / "portico.toml").write_text('[collections.staff]\nprivate = true\n[search]\nembedder = "none:"\n')

    loaded = portico("load", "staff.csv", "--json").json
    checked = portico("check", "--json").json

    assert loaded["questions"] == []
    assert checked["collections"] == {}


def test_alike_doubts_are_one_line_with_the_first_place(capsys) -> None:
    doubts = tuple(
        Doubt(f"p.csv:{line}", "is not a number", "price", "ask", '[collections.p.fields.price] type = "string"')
        for line in (17, 20, 31)
    )
    report = LoadReport("p.csv", added=40, doubts=doubts, doubt_count=12)

    print_report(Printed([report], {}))

    assert [(group.first.place, group.count) for group in group_doubts(doubts)] == [("p.csv:17", 3)]
    lines = capsys.readouterr().out.splitlines()
    assert '  3 values of price, first at p.csv:17: "ask": is not a number' in lines
    assert '    Settle it with [collections.p.fields.price] type = "string"' in lines
    assert "  … and 9 more doubts" in lines
    assert lines[-1] == "Not all is well: 12 values are in doubt; see above."


def test_a_wide_table_shows_the_fields_with_a_role_and_says_how_many_more_there_are(capsys) -> None:
    fields = {f"f{number}": FieldReport(type=FieldType.STRING, coverage=1.0) for number in range(51)}
    fields["Product Name"] = FieldReport(type=FieldType.STRING, role="title", coverage=0.999, example="Kettle")
    report = CollectionReport(items=3, fields=fields)

    print_report(Printed([LoadReport("p.csv", collections={"p": report})], {"p": report}))

    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.startswith("    ")]
    assert rows[1] == ["Product", "Name", "string", "title", "99%", "Kettle"]
    assert len(rows) == 1 + 12 + 1
    assert "    … and 40 more fields, see --json" in lines


def test_what_data_says_is_shown_as_text(capsys) -> None:
    fields = {"[red]na\x1bme": FieldReport(type=FieldType.STRING, example="[bold]\x1b[31m\u202e")}
    report = CollectionReport(items=1, fields=fields)

    print_loaded(Printed([LoadReport("p.csv", doubts=(Doubt("[b]\x07", "is odd", "x", "\x1b"),))], {"[i]p": report}))

    shown = capsys.readouterr().out
    assert "[red]na\ufffdme" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown


def test_a_collection_of_several_sources_has_the_fields_of_all() -> None:
    def report(items: int, **fields: FieldReport) -> LoadReport:
        return LoadReport("x", collections={"p": CollectionReport(items=items, fields=fields)})

    price = FieldReport(type=FieldType.INTEGER, coverage=1.0, example=3)
    odd = FieldReport(type=FieldType.NUMBER, role="price", coverage=0.5, example=2.5)

    merged = merge_collections([report(3, price=price), report(1, price=odd, colour=odd)])["p"]

    assert merged.items == 4
    assert merged.fields["price"] == FieldReport(type=FieldType.NUMBER, role="price", coverage=0.875, example=3)
    assert merged.fields["colour"].coverage == 0.125


def test_json_of_a_load_names_no_secret(portico: Portico) -> None:
    done = portico("load", "a.csv", "https://me:secretpass@127.0.0.1:9/x.csv", *STORE, "--json")

    assert done.code == 6 or "error" in json.loads(done.out)["sources"][1]
    assert "secretpass" not in done.out + done.err


PAGES = [Path(__file__).parents[2] / "docs" / "how-to" / name for name in ("load-data.md", "keep-data-fresh.md")]
OPTIONS = sorted(
    max(param.opts, key=len) for param in get_command(app).commands["load"].params if param.opts[0].startswith("-")
)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_explained_and_tested(option: str) -> None:
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))

    assert any(re.search(rf"[` ]{option}\b", page.read_text("utf-8")) for page in PAGES)
    assert f'"{option}"' in tests


PRODUCTS = "sku,Product Name,Category,Price\n" + "".join(
    f"p{number},{colour} {thing},{thing}s,{number}.95\n"
    for number, (colour, thing) in enumerate(
        ((colour, thing) for colour in ("Copper", "Cedar", "Linen", "Slate") for thing in ("lamp", "planter", "tray")),
        7,
    )
)
BOOKS = '[{"id": 1, "title": "Salt Roads", "author": "Mara Lind", "published": "2019-03-18"}, ' + (
    '{"id": 2, "title": "1984", "author": "George Orwell", "published": "1949-06-08"}]'
)
MENU = '{"@type": "Recipe", "@id": "r1", "name": "Lentil soup", "recipeCuisine": "Greek", "totalTime": "PT25M"}\n' + (
    '{"@type": "Recipe", "@id": "r2", "name": "What is a pie?", "recipeCuisine": "British", "totalTime": "PT80M"}\n'
)
BESTELLUNGEN = "Artikel;Warengruppe;Preis\nKupferlampe;Lampen;49,90 €\nLeinentuch;Stoffe;12,50 €\nTablett;Küche;31 €\n"


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("products.csv", PRODUCTS, "en"),
        ("books.json", BOOKS, "en"),
        ("menu.jsonl", MENU, "en"),
        ("artikel.csv", BESTELLUNGEN, "de"),
        ("articulos.csv", PRODUCTS, "es"),
        ("articles.csv", PRODUCTS, "fr"),
        ("produkte.csv", PRODUCTS, "ja"),
    ],
)
def test_every_question_to_try_finds_the_example_that_it_was_made_from(
    portico: Portico, tmp_path: Path, name: str, text: str, language: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "portico.toml").write_text(
        f'[site]\nlanguage = "{language}"\n[search]\nembedder = "none:"\n[[source]]\nurl = "{name}"\n'
    )

    dry = portico("load", "--dry-run", "--json").json["questions"]
    loaded = portico("load", "--json").json["questions"]
    checked = portico("check", "--json").json["questions"]

    assert dry == loaded
    assert 2 <= len(loaded) <= 3
    for question in {*loaded, *checked}:
        assert portico("ask", question, "--json").json["items"], question


def test_options_say_how_many_pages_where_they_are_and_which_rows_belong_together(
    portico: Portico, web_folder: tuple[Path, str], tmp_path: Path
) -> None:
    folder, address = web_folder
    links = "".join(f'<a href="p{number}.html">{number}</a>' for number in range(5))
    (folder / "index.html").write_text(f"<title>Start</title><main><p>{links} A shop by the canal.</p></main>")
    for number in range(5):
        (folder / f"p{number}.html").write_text(f"<title>Page {number}</title><main><p>About {number}.</p></main>")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "kettle.md").write_text("# Kettle\n\nA kettle of enamel.\n")
    (tmp_path / "orders.csv").write_text("order,item,pieces\nA1,Mug,2\nA1,Towel,1\nA2,Mug,4\n")

    crawl = ("load", f"site+{address}/", "-c", "pages", "--allow-host", "127.0.0.1", "--delay", "0", *STORE)
    crawled = portico(*crawl, "--max-pages", "2", "--json").json
    portico("load", "notes", "--base-url", "https://shop.example/notes/", *STORE)
    grouped = portico("load", "orders.csv", "--group-by", "order", *STORE, "--json").json

    assert crawled["added"] == 2
    [note] = portico("query", "notes", *STORE, "--json").json["items"]
    assert note["url"].startswith("https://shop.example/notes/kettle")
    assert (grouped["added"], grouped["collections"]["orders"]["items"]) == (2, 2)


def test_questions_are_about_different_collections_in_different_ways(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "products.csv").write_text(PRODUCTS)
    (tmp_path / "books.json").write_text(BOOKS)

    questions = portico("load", "products.csv", "books.json", "--dry-run", "--json").json["questions"]

    assert len(questions) == 3
    assert len({question.split()[0] for question in questions}) > 1


def test_names_that_end_with_a_dot_are_fields_like_others(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "art.csv").write_text("Art.Nr.;Bez.;Preis\n001;Lampe;12,50 €\n002;Stuhl;45,00 €\n003;Tisch;99,90 €\n")

    loaded = portico("load", "art.csv", "--json", *STORE).json["collections"]["art"]["fields"]
    checked = portico("check", "--json", *STORE).json["collections"]["art"]["fields"]

    for fields in (loaded, checked):
        assert {name: field["coverage"] for name, field in fields.items()} == {"Art.Nr.": 1, "Bez.": 1, "Preis": 1}
        assert fields["Bez."]["role"] == "title"
    assert "Lampe" in portico("ask", "art under 20", *STORE).out
