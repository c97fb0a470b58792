"""Workbooks, documents, contacts, calendars and archives: what is read of each, and how a hostile one ends."""

import datetime
import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from portico.errors import SourceError
from portico.sources.registry import BadRecord, Doubt, Record, Remark

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def packed(path: Path, members: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def workbook(path: Path, **sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def word(path: Path, body: str, styles: str = "") -> Path:
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return packed(
        path, {"word/document.xml": document, "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>'}
    )


def paragraph(text: str, style: str = "") -> str:
    look = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{look}<w:r><w:t>{text}</w:t></w:r></w:p>"


# Workbooks


def test_a_sheet_keeps_numbers_dates_and_booleans_and_shows_codes_as_they_look(read, tmp_path: Path):
    day = datetime.datetime(2024, 3, 18)
    path = workbook(tmp_path / "shop.xlsx", Shop=[["id", "price", "since", "open", "zip"], [1, 9.5, day, True, 1234]])
    book = openpyxl.load_workbook(path)
    book["Shop"]["E2"].number_format = "00000"
    book.save(path)

    [record] = read(path)

    assert record == Record(
        {"id": 1, "price": 9.5, "since": "2024-03-18", "open": True, "zip": "01234"}, f"{path}#Shop:2", "1", None
    )


def test_sheets_with_rows_become_collections_of_their_own(read, good, tmp_path: Path):
    rows = [["id", "name"], ["a", "Anchor"]]
    path = workbook(tmp_path / "a.xlsx", Goods=rows, **{"Order lines": rows}, Notes=[["only a note"]])

    entries = read(path)

    assert [record.collection for record in good(entries)] == ["Goods", "Order_lines"]
    assert Remark(f"{path}#Notes", "has no rows below a header and was left out") in entries


def test_titles_above_a_header_and_totals_below_a_table_are_no_records(read, good, tmp_path: Path):
    rows = [["Sales 2024, all regions"], [], ["Region", "Sum"], ["North", 3], [], ["South", 4], ["Total", 7, None, ""]]
    path = tmp_path / "a.xlsx"
    book = openpyxl.load_workbook(workbook(path, Sales=rows))
    book["Sales"].merge_cells("A1:B1")
    book.save(path)

    assert [record.data for record in good(read(path))][:2] == [
        {"Region": "North", "Sum": 3},
        {"Region": "South", "Sum": 4},
    ]


def test_errors_and_unsaved_formulas_of_a_sheet_are_doubts(read, good, tmp_path: Path):
    path = workbook(tmp_path / "a.xlsx", A=[["id", "n", "twice"], ["a", "#N/A", "=B2*2"]])

    entries = read(path)

    assert [record.data for record in good(entries)] == [{"id": "a"}]
    doubts = [entry for entry in entries if isinstance(entry, Doubt)]
    assert ["formulas without values" in doubts[0].reason, doubts[1].field, doubts[1].value] == [True, "n", "#N/A"]


def test_a_workbook_with_an_endless_sheet_ends(read, bad, tmp_path: Path):
    path = workbook(tmp_path / "a.xlsx", A=[["id", "n"], ["a", 1], ["b", 2]])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    sheet = members["xl/worksheets/sheet1.xml"]
    members["xl/worksheets/sheet1.xml"] = sheet.replace(b'<row r="3"', b'<row r="99999999999"')

    [problem] = bad(read(packed(tmp_path / "b.xlsx", members)))

    assert "more than 1,048,576 rows" in problem.reason
    assert problem.is_gap


@pytest.mark.parametrize("name", ["a.xlsx", "a.docx", "a.zip", "a.gz", "a.parquet", "a.ipynb"])
def test_a_file_that_is_not_what_its_name_says_is_refused(read, tmp_path: Path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 and nothing more")

    with pytest.raises(SourceError, match=r"not a readable|unknown format"):
        read(tmp_path / name)


# Documents


def test_the_headings_and_tables_of_a_word_document_are_read(read, tmp_path: Path):
    cells = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("Monday", "9 to 5"))
    body = paragraph("Guide", "Titel") + paragraph("Opening hours", "b1") + f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
    styles = '<w:style w:styleId="Titel"><w:name w:val="Title"/></w:style>'
    styles += '<w:style w:styleId="b1"><w:name w:val="heading 1"/></w:style>'

    [record] = read(word(tmp_path / "a.docx", body, styles))

    assert record.data["name"] == "Guide"
    assert record.data["text"] == "Monday | 9 to 5"
    assert record.data["headline"] == "Opening hours"


def test_a_word_document_with_entities_is_refused(read, tmp_path: Path):
    entities = '<!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>'

    with pytest.raises(SourceError, match="XML entities"):
        read(packed(tmp_path / "a.docx", {"word/document.xml": entities}))


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        ("Opening hours\n\nMonday to Friday,\n9 to 5.", "Opening hours", "Monday to Friday, 9 to 5."),
        ("Opening hours\n=============\n\nDaily.", "Opening hours", "Daily."),
        ("One line of text that says it all.", "A note", "One line of text that says it all."),
        (
            "Caf\xe9\n\nOuvert <b>tous</b> les jours, m\xeame l'\xe9t\xe9.",
            "Café",
            "Ouvert <b>tous</b> les jours, même l'été.",
        ),
    ],
)
def test_a_plain_text_is_an_item_with_its_first_line_as_title(read, good, tmp_path: Path, text, title, body):
    (tmp_path / "a_note.txt").write_bytes(text.encode("cp1252"))

    [record] = good(read(tmp_path / "a_note.txt"))

    assert (record.data["name"], record.data["text"]) == (title, body)


def test_a_table_in_a_text_file_is_a_table(read, good, tmp_path: Path):
    (tmp_path / "stops.txt").write_text("stop_id,stop_name,stop_lat\nA,Harbour,54.1\nB,Market,54.2\n")

    assert [record.data["stop_name"] for record in good(read(tmp_path / "stops.txt"))] == ["Harbour", "Market"]


def test_a_binary_file_named_txt_is_refused(read, tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(bytes(range(256)) * 8)

    with pytest.raises(SourceError, match="is not a text"):
        read(tmp_path / "a.txt")


def test_restructured_text_keeps_what_unknown_directives_say_and_includes_no_file(read, tmp_path: Path):
    (tmp_path / "secret.txt").write_text("the secret")
    text = "Tides\n=====\n\n:Author: Jo\n\nHigh *tide*.\n\n.. versionadded:: 3\n   Now for springs.\n\n"
    (tmp_path / "a.rst").write_text(text + ".. include:: secret.txt\n\n.. raw:: html\n   :file: secret.txt\n")

    [record] = read(tmp_path / "a.rst")

    assert (record.data["name"], record.data["author"]) == ("Tides", "Jo")
    assert record.data["text"] == "High tide.\n\nNow for springs."


def test_a_notebook_gives_its_markdown_and_code_without_outputs(read, tmp_path: Path):
    cells = [
        {"cell_type": "markdown", "source": ["# Tide tables\n", "How they are made."]},
        {"cell_type": "code", "source": "print('a < b')", "outputs": [{"text": "not this"}]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells, "metadata": {}}))

    [record] = read(tmp_path / "a.ipynb")

    assert record.data["name"] == "Tide tables"
    assert record.data["text"] == "How they are made.\n\nprint('a < b')"


# Parquet


def test_a_parquet_file_keeps_its_types(read, tmp_path: Path):
    moment = datetime.datetime(2024, 3, 18, 9, 30, tzinfo=datetime.UTC)
    rows = [{"id": "a", "n": 1, "at": moment, "tags": ["x", "y"], "seen": None}, {"id": "b", "n": 2}]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)

    assert [(record.id, record.data) for record in read(path)] == [
        ("a", {"id": "a", "n": 1, "at": "2024-03-18T09:30:00+00:00", "tags": ["x", "y"]}),
        ("b", {"id": "b", "n": 2}),
    ]


def test_a_damaged_parquet_file_gives_no_traceback(read, tmp_path: Path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"id": str(n)} for n in range(1000)]), path)
    raw = bytearray(path.read_bytes())
    raw[4:400] = b"\xff" * 396
    path.write_bytes(raw)

    [problem] = read(path)

    assert "cannot be read further" in problem.reason
    assert problem.is_gap


# Contacts and calendars


def test_contacts_of_every_version_are_read(read, tmp_path: Path):
    cards = (
        "BEGIN:VCARD\r\nVERSION:2.1\r\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCl=\r\nler;Jo\r\n"
        "TEL;HOME;VOICE:+44 1\r\nEND:VCARD\r\n"
        "BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Ann Lee\r\nORG:Acme\\, Inc.;Sales\r\nitem1.EMAIL;TYPE=work:ann@acme.ex\r\n"
        " ample\r\nEMAIL:ann@home.example\r\nUID:u-2\r\nEND:VCARD\r\n"
        'BEGIN:VCARD\r\nVERSION:4.0\r\nFN:Acme\r\nORG:Acme\r\nTEL;VALUE=uri;TYPE="voice,home":tel:+1-555\r\nEND:VCARD'
    )
    (tmp_path / "a.vcf").write_text(cards, newline="")

    jo, ann, acme = read(tmp_path / "a.vcf")

    assert (jo.data["name"], jo.data["telephone"]) == ("Jo Müller", "+44 1")
    assert ann.id == "u-2"
    assert ann.data["worksFor"] == "Acme, Inc., Sales"
    assert ann.data["email"] == ["ann@acme.example", "ann@home.example"]
    assert (acme.data["@type"], acme.data["telephone"]) == ("Organization", "+1-555")


def test_a_card_that_is_cut_off_or_too_large_is_reported(read, tmp_path: Path):
    huge = b"NOTE:" + b"x" * (17 << 20) + b"\r\n"
    good = b"BEGIN:VCARD\r\nFN:Ann\r\nEND:VCARD\r\n"
    (tmp_path / "a.vcf").write_bytes(b"BEGIN:VCARD\r\n" + huge + b"END:VCARD\r\n" + good + b"BEGIN:VCARD\r\nFN:Bo\r\n")

    large, ann, cut = read(tmp_path / "a.vcf")

    assert large.reason == "is larger than 16 MB"
    assert ann.data["name"] == "Ann"
    assert (cut.reason, cut.is_gap) == ("is cut off: it has no END:VCARD", True)


def test_events_have_times_in_the_zones_of_their_calendar(read, tmp_path: Path):
    zone = "BEGIN:VTIMEZONE\nTZID:Harbour Time\nBEGIN:STANDARD\nDTSTART:19700101T000000\nTZOFFSETFROM:+0300\n"
    zone += "TZOFFSETTO:+0300\nEND:STANDARD\nEND:VTIMEZONE\n"
    event = (
        "BEGIN:VEVENT\nUID:e1\nSUMMARY:Regatta\\, final\nDTSTART;TZID=Harbour Time:20240704T100000\nDURATION:PT90M\n"
    )
    event += "LOCATION:Quay 3\nGEO:54.1;10.2\nRRULE:FREQ=WEEKLY;COUNT=3\nEND:VEVENT\n"
    fair = "BEGIN:VEVENT\nSUMMARY:Fair\nDTSTART;VALUE=DATE:20240801\nDTEND;VALUE=DATE:20240803\nEND:VEVENT\n"
    (tmp_path / "a.ics").write_text(f"BEGIN:VCALENDAR\n{zone}{event}{fair}END:VCALENDAR\n")

    regatta, days = read(tmp_path / "a.ics")

    assert regatta == Record(
        {
            "@type": "Event",
            "name": "Regatta, final",
            "location": "Quay 3",
            "startDate": "2024-07-04T10:00:00+03:00",
            "duration": "PT1H30M",
            "geo": {"@type": "GeoCoordinates", "latitude": 54.1, "longitude": 10.2},
            "repeatRule": "FREQ=WEEKLY;COUNT=3",
        },
        f"{tmp_path / 'a.ics'}:10",
        "e1",
    )
    assert (days.data["startDate"], days.data["endDate"]) == ("2024-08-01", "2024-08-02")


def test_an_event_without_a_time_is_reported_and_the_rest_is_read(read, good, bad, tmp_path: Path):
    events = "BEGIN:VEVENT\nSUMMARY:A\nDTSTART:someday\nEND:VEVENT\nBEGIN:VEVENT\nDTSTART:20240801\nEND:VEVENT\n"
    (tmp_path / "a.ics").write_text(f"BEGIN:VCALENDAR\n{events}END:VCALENDAR\n")

    entries = read(tmp_path / "a.ics")

    assert bad(entries) == [BadRecord(f"{tmp_path / 'a.ics'}:2", "has no start that can be read")]
    assert [record.data["startDate"] for record in good(entries)] == ["2024-08-01"]


# Archives and folders

CSV = "id,name\na,Anchor\nb,Buoy\n"
MIXED = {
    "goods.csv": CSV,
    "docs/guide.md": "# Guide\n\nWelcome to the harbour.",
    "docs/hours.txt": "Hours\n\nDaily from nine.",
    "logo.png": b"\x89PNG",
    "logo2.png": b"\x89PNG",
    "package.json": "{}",
}


def mixed(folder: Path) -> Path:
    for name, text in MIXED.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_every_file_of_a_folder_or_an_archive_is_read_by_its_kind_or_counted(read, good, tmp_path: Path, form):
    path = mixed(tmp_path / "all") if form == "folder" else packed(tmp_path / "all.zip", MIXED)

    entries = read(path)

    assert {(record.collection, record.data["name"]) for record in good(entries)} == {
        (None, "Guide"),
        (None, "Hours"),
        ("goods", "Anchor"),
        ("goods", "Buoy"),
    }
    assert entries[-1] == Remark(str(path), "3 files of other kinds not read: 2 .png, 1 .json")


@pytest.mark.parametrize("name", ["goods.csv.gz", "goods.csv"])
def test_a_packed_table_is_read_as_the_table(read, tmp_path: Path, web, name):
    raw = gzip.compress(CSV.encode())
    (tmp_path / name).write_bytes(raw)

    assert [record.id for record in read(tmp_path / name)] == ["a", "b"]
    assert [record.id for record in read(web.serve(f"/{name}", raw, "application/gzip"))] == ["a", "b"]


def test_the_only_file_of_an_archive_fills_the_collection_of_the_source(read, tmp_path: Path):
    records = read(packed(tmp_path / "a.zip", {"deep/goods.csv": CSV}), format="csv")

    assert [(record.id, record.collection) for record in records] == [("a", None), ("b", None)]


def test_an_archive_that_leads_outside_is_read_without_those_files(read, tmp_path: Path):
    (tmp_path / "in").mkdir()
    members = {"../evil.csv": CSV, "/etc/evil.csv": CSV, "fine.csv": CSV, "also.csv": CSV}
    path = packed(tmp_path / "in" / "a.zip", members)

    entries = read(path)

    assert [entry.reason for entry in entries if isinstance(entry, BadRecord)] == [
        "has a path that leads out of the archive"
    ] * 2
    assert {entry.collection for entry in entries if isinstance(entry, Record)} == {"fine", "also"}
    assert not (tmp_path / "evil.csv").exists()


def test_archives_that_unpack_to_far_more_than_they_are_are_refused(read, tmp_path: Path):
    zeros = b"0" * (32 << 20)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(zeros))

    with pytest.raises(SourceError, match="200 times its size"):
        read(packed(tmp_path / "a.zip", {"a.csv": zeros}))
    with pytest.raises(SourceError, match="200 times its size"):
        read(packed(tmp_path / "a.docx", {"word/document.xml": zeros}))
    with pytest.raises(SourceError, match="once it is unpacked"):
        read(tmp_path / "a.csv.gz", max_bytes=1 << 20)


def test_what_must_not_be_read_along_with_a_folder_is_named(read, tmp_path: Path):
    (tmp_path / "api.yaml").write_text("openapi: 3.1.0\npaths: {}\n")
    (tmp_path / "sitemap.xml").write_text("<urlset><url><loc>https://x.example/</loc></url></urlset>")
    (tmp_path / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 500)
    packed(tmp_path / "more.zip", {"a.csv": CSV})

    entries = read(tmp_path)

    assert [entry.place for entry in entries if isinstance(entry, Remark)] == ["api.yaml", "more.zip", "sitemap.xml"]
    [old] = [entry for entry in entries if isinstance(entry, BadRecord)]
    assert (old.where, "old Office program" in old.reason) == ("old.xls", True)


def test_a_damaged_member_of_an_archive_leaves_the_others(read, good, bad, tmp_path: Path):
    path = packed(tmp_path / "a.zip", {"a.csv": CSV * 100, "b.csv": CSV})
    raw = path.read_bytes()
    path.write_bytes(raw[:45] + b"\xff\xff\xff" + raw[48:])

    entries = read(path)

    assert [(problem.where, problem.is_gap) for problem in bad(entries)] == [("a.csv", True)]
    assert {record.collection for record in good(entries)} == {"b"}


def test_kinds_are_found_by_content_where_the_name_says_nothing(read, web, tmp_path: Path):
    book = io.BytesIO(workbook(tmp_path / "a.xlsx", A=[["id", "n"], ["a", 1]]).read_bytes())
    card = "BEGIN:VCARD\nFN:Ann\nEND:VCARD\n"

    assert read(web.serve("/export", book.getvalue(), "application/octet-stream"))[0].data == {"id": "a", "n": 1}
    assert read(web.serve("/card", card, "text/plain"))[0].data["name"] == "Ann"
    assert read(web.serve("/text", "Hello\n\nworld", "text/plain"))[0].data["name"] == "Hello"
