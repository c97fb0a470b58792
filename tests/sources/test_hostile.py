"""Files made to do harm or by mistake: what cannot be read costs itself, and time grows with the size of a file."""

import json
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from portico.errors import SourceError
from portico.sources.base_urls import join_addresses
from portico.sources.records import Record, Remark
from portico.sources.references import parse_document
from portico.sources.roles import FieldProfile, FieldType, assign_roles

BROKEN = "http://[your-site]/a"  # what templates leave behind; urllib refuses it as an IPv6 address
PAGES = {
    "link.html": f'<div itemscope itemtype="Product"><a itemprop="url" href="{BROKEN}">Pie</a></div>',
    "id.html": f'<div itemscope itemid="{BROKEN}"><b itemprop="name">Pie</b></div><p>Baked today</p>',
    "base.html": f'<base href="{BROKEN}"><a href="/a">Pie</a><p>Baked today</p>',
    "url.md": f"---\ntitle: Pie\nurl: '{BROKEN}'\n---\nBaked today",
    "id.md": f"---\n'@id': '{BROKEN}'\n---\nBaked today",
    "graph.html": f'<script type="application/ld+json">{{"@id":"{BROKEN}","@type":"Product","name":"Pie"}}</script>',
}


@pytest.mark.parametrize("name", PAGES)
def test_an_address_that_is_none_costs_no_page(read, good, bad, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PAGES[name])
    (tmp_path / "other.md").write_text("# Other\n\nAnother page of the folder")

    entries = read(tmp_path)

    assert bad(entries) == []
    assert {record.where for record in good(entries)} == {name, "other.md"}


def test_a_redirect_to_an_address_that_is_none_is_an_error_of_the_source(read, web) -> None:
    with pytest.raises(SourceError):
        read(web.redirect("/a.csv", BROKEN))


@pytest.mark.parametrize("codec", ["idna", "punycode", "undefined", "base64", "none-such"])
def test_a_page_that_declares_no_encoding_of_texts_is_read_all_the_same(read, good, tmp_path: Path, codec: str) -> None:
    page = f'<meta charset="{codec}"><p>Crème brûlée et gâteau à la française</p>'
    (tmp_path / "a.html").write_bytes(page.encode("cp1252"))

    [record] = good(read(tmp_path / "a.html"))

    assert record.data["text"] == "Crème brûlée et gâteau à la française"


def test_a_member_of_an_archive_without_a_name_leaves_the_others(read, good, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(".", "id,name\n1,Pie\n")
        archive.writestr("a.csv", "id,name\n2,Cake\n")

    assert [record.id for record in good(read(tmp_path / "a.zip"))] == ["2"]


def test_links_that_a_folder_does_not_follow_are_named(read, good, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    (folder / "posts").mkdir(parents=True)
    (folder / "posts" / "a.md").write_text("# Pie\n\nBaked today")
    (tmp_path / "secret.txt").write_text("A secret outside of the folder")
    targets = {"loop": ".", "up": "..", "out.txt": "../secret.txt", "gone": "nowhere", "self": "self"}
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    (folder / "posts" / "again.md").symlink_to("a.md")

    entries = read(folder)

    assert {record.where for record in good(entries)} == {"posts/a.md", "posts/again.md"}
    [remark] = [entry for entry in entries if isinstance(entry, Remark)]
    assert remark.text == "5 links to folders or out of this one not followed: gone, loop, out.txt, self, up"


@pytest.mark.parametrize("text", ["An *unfinished emphasis", "An `unknown role`:nope:", "A |missing| part and a_ link"])
def test_mistakes_in_restructured_text_cost_no_page(read, good, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.rst").write_text(f"Title\n=====\n\n{text} of a page that is read.\n")

    [record] = good(read(tmp_path / "a.rst"))

    assert "of a page that is read" in record.data["text"]


def test_a_feed_with_a_letter_that_is_none_is_an_error_of_the_source(read, tmp_path: Path) -> None:
    entry = '<entry><id>1</id><title>&#55296;</title><link href="/a"/></entry>'
    (tmp_path / "a.atom").write_text(f'<feed xmlns="http://www.w3.org/2005/Atom">{entry}</feed>')

    with pytest.raises(SourceError, match="not a readable feed"):
        read(tmp_path / "a.atom")


@pytest.mark.parametrize("name", ["a.xlsx", "a.docx"])
def test_a_part_of_an_office_file_that_is_damaged_is_an_error_of_the_source(read, tmp_path: Path, name: str) -> None:
    part = "xl/worksheets/sheet1.xml" if name == "a.xlsx" else "word/document.xml"
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr(part, "<sheet>Pie</sheet>")
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes().replace(b"Pie", b"Tea", 1))

    with pytest.raises(SourceError, match="cannot be unpacked"):
        read(tmp_path / name)


@pytest.mark.parametrize("text", ["info: {version: 2020-13-45}", f"version: {'9' * 6000}", "- " * 3000])
def test_a_document_with_a_value_that_yaml_cannot_make_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="neither JSON nor YAML"):
        parse_document(text.encode(), "api.yaml")


def test_references_that_lead_nowhere_cost_their_operation(read, good, bad, tmp_path: Path) -> None:
    references = [f"{BROKEN}#/a", f"#/paths/{'9' * 6000}", "a\x00b.json", "%2e%2e/secret.json", "file:///etc/passwd"]
    paths = {f"/{n}": {"get": {"parameters": [{"$ref": text}]}} for n, text in enumerate(references)}
    (tmp_path / "secret.json").write_text("{}")
    folder = tmp_path / "api"
    folder.mkdir()
    document = {"openapi": "3.0.0", "servers": [{"url": BROKEN}], "paths": {**paths, "/ok": {"get": {}}}}
    (folder / "api.json").write_text(json.dumps(document))

    entries = read(folder / "api.json", format="openapi")

    assert len(bad(entries)) == len(references) + (not good(entries))


def _seconds(work: Callable[[], object]) -> float:
    """The least time of several: what the work itself takes on a busy machine."""
    times: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _formulas(path: Path, size: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", "<c " * size)


def _lines(path: Path, size: int) -> None:
    path.write_text(f"<p>Café</p>\n<script>{'x=1;' * size}</script>\n<p>Open all day</p>")


def _headings(path: Path, size: int) -> None:
    cell = {"cell_type": "markdown", "source": f"# a{' #' * size}b"}
    path.write_text(json.dumps({"nbformat": 4, "cells": [cell], "metadata": {}}))


@pytest.mark.parametrize(("name", "write"), [("a.xlsx", _formulas), ("a.html", _lines), ("a.ipynb", _headings)])
def test_the_time_for_a_file_grows_with_its_size_and_not_faster(read, tmp_path: Path, name: str, write) -> None:
    def read_one(size: int) -> None:
        write(tmp_path / name, size)
        with suppress(SourceError):
            read(tmp_path / name)

    assert _seconds(lambda: read_one(16_000)) < 40 * _seconds(lambda: read_one(1_000))


@pytest.mark.parametrize(("mark", "end"), [("/", " y"), ("/", "\\"), ("a/", ":")])
def test_the_time_for_what_is_almost_a_path_grows_with_its_length_and_not_faster(mark: str, end: str) -> None:
    def join(size: int) -> None:
        list(join_addresses([Record({"image": mark * size + end}, "row 1")] * 50, "https://shop.example"))

    def find_roles(size: int) -> None:
        assign_roles([FieldProfile("link", FieldType.STRING, "", 1.0, 1.0, 9.0, (mark * size + end,) * 20)], "links")

    for work in (join, find_roles):
        assert _seconds(lambda work=work: work(900)) < 40 * _seconds(lambda work=work: work(60))
