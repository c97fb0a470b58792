"""CSV and TSV: headers, cells, line numbers, and rows that do not fit."""

from pathlib import Path

import pytest

from portico.errors import SourceError
from portico.sources import BadRecord, Record, tables


def test_a_csv_row_becomes_a_typed_nested_object(read, examples):
    kettle, lamp, fan = read(examples / "prices.csv")

    assert kettle.data == {
        "id": "a1",
        "name": "Enamel kettle",
        "offers": {"price": 39.0, "priceCurrency": "EUR"},
        "gtin": "0071234567890",
        "in_stock": True,
        "note": "Two litres,\nfor any stove",
    }
    assert kettle.id == "a1"
    assert "note" not in lamp.data
    assert fan.data["name"] == 'The "quiet" fan'
    assert [entry.where.rpartition(":")[2] for entry in (kettle, lamp, fan)] == ["2", "4", "5"]


def test_a_tsv_file_is_cut_at_tabs_only(read, examples):
    assert [entry.data["name"] for entry in read(examples / "prices.tsv")] == ["Wool rug", "Linen, white"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("0", 0), ("12.50", 12.5), ("-0.5", -0.5),
        ("true", True), ("FALSE", False), ("", None), ("  ", None),
        ("007", "007"), ("+441234", "+441234"), ("1e5", "1e5"), ("1,000", "1,000"), ("-0", "-0"),
        (".5", ".5"), ("1.", "1."), ("00.5", "00.5"), ("2026-03-01", "2026-03-01"), ("1.2.3", "1.2.3"),
        ("NaN", "NaN"), ("٣", "٣"), ("12345678901234567890", "12345678901234567890"), ("yes", "yes"),
        ("null", "null"),
    ],
)  # fmt: skip
def test_a_cell_is_typed_only_where_nothing_is_lost(text, value):
    found = tables.cell(text)

    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_found_in_the_header(read, tmp_path: Path, delimiter):
    lines = (["id", '"a,;b"', "name"], ["1", "x", "y"])
    (tmp_path / "a.csv").write_text("\n".join(delimiter.join(line) for line in lines))

    assert read(tmp_path / "a.csv")[0].data == {"id": 1, "a,;b": "x", "name": "y"}


def test_a_row_of_the_wrong_width_is_reported_with_its_line(read, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,note\r\n1,"two\r\nlines"\r\n\r\n2\r\n3,a,b\r\n4,a,,\r\n5,\xff\r\n,\r\n6,z\r\n')

    assert read(path) == [
        Record({"id": 1, "note": "two\r\nlines"}, f"{path}:2", "1"),
        BadRecord(f"{path}:5", "has 1 cells where the header has 2"),
        BadRecord(f"{path}:6", "has 3 cells where the header has 2"),
        Record({"id": 4, "note": "a"}, f"{path}:7", "4"),
        BadRecord(f"{path}:8", "is not UTF-8"),
        BadRecord(f"{path}:9", "is empty"),
        Record({"id": 6, "note": "z"}, f"{path}:10", "6"),
    ]


def test_empty_double_and_clashing_headers_still_name_every_cell(read, tmp_path: Path):
    (tmp_path / "a.csv").write_text("price,,price,offers,offers.low,a..b\n1,2,3,4,5,6\n")

    assert read(tmp_path / "a.csv")[0].data == {
        "price": 1, "column_2": 2, "price_2": 3, "offers": 4, "offers.low": 5, "a..b": 6,
    }  # fmt: skip


def test_a_quote_that_never_closes_costs_its_row_and_bounded_memory(read, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text('id,note\n1,"open\n' + ("x,y" + "z" * 1000 + "\n") * (20 << 10) + "9,end\n")

    entries = read(path)

    assert isinstance(entries[0], BadRecord)
    assert entries[0].where == f"{path}:2"
    assert entries[-1] == Record({"id": 9, "note": "end"}, entries[-1].where, "9")


def test_utf_16_as_spreadsheets_write_it_is_read(read, tmp_path: Path):
    (tmp_path / "a.tsv").write_text("id\tname\n1\tKäse\n", "utf-16")

    assert read(tmp_path / "a.tsv")[0].data == {"id": 1, "name": "Käse"}


def test_a_file_without_rows_has_no_records(read, tmp_path: Path):
    for text in ("", "id,name\n", "\n\n"):
        (tmp_path / "a.csv").write_text(text)
        assert read(tmp_path / "a.csv") == []


def test_a_header_of_too_many_columns_is_refused(read, tmp_path: Path):
    (tmp_path / "a.csv").write_text("," * 20_000 + "\n")

    with pytest.raises(SourceError, match="header"):
        read(tmp_path / "a.csv")
