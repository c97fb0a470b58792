"""CSV and TSV: headers, cells, line numbers, and rows that do not fit."""

from pathlib import Path

import pytest

from portico.errors import SourceError
from portico.sources import tables
from portico.sources.registry import BadRecord, Record


def test_a_csv_row_becomes_a_nested_object_of_texts(read, examples):
    kettle, lamp, fan = read(examples / "prices.csv")

    assert kettle.data == {
        "id": "a1",
        "name": "Enamel kettle",
        "offers": {"price": "39.00", "priceCurrency": "EUR"},
        "gtin": "0071234567890",
        "in_stock": "true",
        "note": "Two litres,\nfor any stove",
    }
    assert kettle.id == "a1"
    assert "note" not in lamp.data
    assert fan.data["name"] == 'The "quiet" fan'
    assert [entry.where.rpartition(":")[2] for entry in (kettle, lamp, fan)] == ["2", "4", "5"]


def test_a_tsv_file_is_cut_at_tabs_only(read, examples):
    assert [entry.data["name"] for entry in read(examples / "prices.tsv")] == ["Wool rug", "Linen, white"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_found_in_the_header(read, tmp_path: Path, delimiter):
    lines = (["id", '"a,;b"', "name"], ["1", "x", "y"])
    (tmp_path / "a.csv").write_text("\n".join(delimiter.join(line) for line in lines))

    assert read(tmp_path / "a.csv")[0].data == {"id": "1", "a,;b": "x", "name": "y"}


def test_a_row_of_the_wrong_width_is_reported_with_its_line(read, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,note\r\n1,"two\r\nlines"\r\n\r\n2\r\n3,a,b\r\n4,a,,\r\n5,\xff\r\n,\r\n6,z\r\n')

    assert read(path) == [
        Record({"id": "1", "note": "two\r\nlines"}, f"{path}:2", "1"),
        BadRecord(f"{path}:5", "has 1 cells where the header has 2"),
        BadRecord(f"{path}:6", "has 3 cells where the header has 2"),
        Record({"id": "4", "note": "a"}, f"{path}:7", "4"),
        BadRecord(f"{path}:8", "is not UTF-8"),
        BadRecord(f"{path}:9", "is empty"),
        Record({"id": "6", "note": "z"}, f"{path}:10", "6"),
    ]


def test_empty_double_and_clashing_headers_still_name_every_cell(read, tmp_path: Path):
    (tmp_path / "a.csv").write_text("price,,price,offers,offers.low,a..b\n1,2,3,4,5,6\n")

    assert read(tmp_path / "a.csv")[0].data == {
        "price": "1", "column_2": "2", "price_2": "3", "offers": "4", "offers.low": "5", "a..b": "6",
    }  # fmt: skip


def test_a_quote_that_never_closes_costs_its_row_and_bounded_memory(read, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text('id,note\n1,"open\n' + ("x,y" + "z" * 1000 + "\n") * (20 << 10) + "9,end\n")

    entries = read(path)

    assert isinstance(entries[0], BadRecord)
    assert entries[0].where == f"{path}:2"
    assert entries[-1] == Record({"id": "9", "note": "end"}, entries[-1].where, "9")


def test_utf_16_as_spreadsheets_write_it_is_read(read, tmp_path: Path):
    (tmp_path / "a.tsv").write_text("id\tname\n1\tKäse\n", "utf-16")

    assert read(tmp_path / "a.tsv")[0].data == {"id": "1", "name": "Käse"}


def test_a_file_without_rows_has_no_records(read, tmp_path: Path):
    for text in ("", "id,name\n", "\n\n"):
        (tmp_path / "a.csv").write_text(text)
        assert read(tmp_path / "a.csv") == []


def test_a_header_of_too_many_columns_is_refused(read, tmp_path: Path):
    (tmp_path / "a.csv").write_text("," * 20_000 + "\n")

    with pytest.raises(SourceError, match="header"):
        read(tmp_path / "a.csv")


MAX = tables.MAX_RECORD_BYTES
NEWLINE = b"\n"


@pytest.mark.parametrize(
    "row",
    [
        b"2," + b"x" * MAX + b",2,cut",  # the rest would be a row of its own
        b"2," + b"x" * MAX,
        b"2," + b"x" * (MAX - 4) + b"\xc3\xa4\xc3\xa4",  # few characters, but too many bytes
        b"2," + "漢".encode() * (MAX // 3),
        b'2,"' + b"x" * MAX + b'"',
        b'2,"' + b"x,y\n" * (MAX // 4) + b'"',
        b'2,"' + b'x,"y""\r\n'.replace(b'"', b'""') * (MAX // 8) + b'"',
        b'2,"' + b'""' * (MAX // 2) + b'"',
        b'2,"' + b"x" * MAX + b"\n" + b"y,z\n" * 3 + b'end"',
        b"2," + b"x" * (3 * MAX),
    ],
    ids=range(10),
)
def test_a_row_over_the_limit_is_refused_whole_and_the_next_one_is_read(read, tmp_path: Path, row: bytes):
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,note\n1,first\n" + row + b"\n3,third\n")

    assert read(path) == [
        Record({"id": "1", "note": "first"}, f"{path}:2", "1"),
        BadRecord(f"{path}:3", "is larger than 16 MB"),
        Record({"id": "3", "note": "third"}, f"{path}:{4 + row.count(NEWLINE)}", "3"),
    ]


def test_a_row_of_exactly_the_limit_is_read_like_a_line_of_json(read, tmp_path: Path):
    for name, start in (("a.csv", b"id,note\n"), ("b.csv", b"id;note\r\n")):
        (tmp_path / name).write_bytes(start + b"1" + start[2:3] + b"x" * (MAX - 2) + b"\n2" + start[2:3] + b"y\n")
        first, second = read(tmp_path / name)

        assert (len(first.data["note"]), second.data) == (MAX - 2, {"id": "2", "note": "y"})


def test_a_header_over_the_limit_is_refused(read, tmp_path: Path):
    (tmp_path / "a.csv").write_bytes(b"id," + b"x" * MAX + b"\n1,a\n")

    with pytest.raises(SourceError, match="header"):
        read(tmp_path / "a.csv")


def test_rows_after_a_quote_that_never_closes_keep_their_line_numbers(read, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,note\n1,"open\n' + b"x" * MAX + b"\n" + b"8,last but one\n9,last\n")

    assert read(path) == [
        BadRecord(f"{path}:2", "is larger than 16 MB", is_gap=True),
        Record({"id": "8", "note": "last but one"}, f"{path}:4", "8"),
        Record({"id": "9", "note": "last"}, f"{path}:5", "9"),
    ]
