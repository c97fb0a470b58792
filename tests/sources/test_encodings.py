"""Text tables as people have them: encodings, delimiters, titles, totals and quotes that never close."""

from pathlib import Path

import pytest

from portico.config import Config, SourceSettings
from portico.errors import SourceError
from portico.sources.ingest import open_configured_source
from portico.sources.registry import BadRecord, Doubt, Record, Remark

TEXTS = {
    "windows-1252": ("name;pris\nRødgrød med fløde;45\nSmørrebrød;60\n", "cp1252"),
    "windows-1250": ("nazwa;cena\nŻurek;12\nPączki z różą;5\n", "cp1250"),
    "ISO8859-2": ("nazwa;cena\nŻurek;12\nŁosoś wędzony;30\nPączki z różą;5\n", "iso8859_2"),
    "ISO8859-15": ("nom;prix\nŒuf à la coque;3 €\nBœuf;12 €\n", "iso8859_15"),
    "windows-1254": ("isim,fiyat\nİskender kebabı,100\nŞiş köfte,80\n", "cp1254"),
    "windows-1251": ("название;цена\nБорщ украинский;100\nПельмени;200\n", "cp1251"),
    "KOI8-R": ("название;цена\nБорщ украинский;100\nПельмени;200\n", "koi8_r"),
    "windows-1253": ("όνομα,τιμή\nΜουσακάς,10\nΣουβλάκι,3\n", "cp1253"),
    "windows-1255": ("שם,מחיר\nפלאפל,20\nחומוס,15\n", "cp1255"),
    "windows-1256": ("الاسم,السعر\nفلافل,20\nحمص,15\n", "cp1256"),
    "Shift-JIS": ("商品名,価格\n緑茶,300\nおにぎり,150\n", "shift_jis"),
    "GB18030": ("名称,价格\n北京烤鸭,100\n宫保鸡丁,50\n", "gb18030"),
    "Big5": ("名稱,價格\n牛肉麵,100\n珍珠奶茶,50\n", "big5"),
    "EUC-JP": ("商品名,価格\n緑茶,300\nおにぎり,150\n", "euc_jp"),
    "EUC-KR": ("이름,가격\n비빔밥,8000\n김치찌개,7000\n", "euc_kr"),
    "UTF-16": ("name\tcity\nCafé\tKöln\n", "utf-16"),
    "UTF-32": ("name,city\nCafé,Köln\n", "utf-32"),
}


def write(tmp_path: Path, content: bytes | str, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("label", TEXTS)
def test_a_table_is_read_in_the_encoding_that_it_has_and_the_report_names_it(read, good, tmp_path: Path, label: str):
    text, codec = TEXTS[label]
    plain = good(read(write(tmp_path, text)))

    entries = read(write(tmp_path, text.encode(codec)))

    assert [record.data for record in good(entries)] == [record.data for record in plain]
    assert [entry.text for entry in entries if isinstance(entry, Remark)] == [f"read as {label}"]


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognised(read, good, tmp_path: Path, codec: str):
    [record] = good(read(write(tmp_path, "name;city\nCafé;Köln\n".encode(codec))))

    assert record.data == {"name": "Café", "city": "Köln"}


def test_utf_8_stays_utf_8_though_a_few_rows_are_broken(read, tmp_path: Path):
    path = write(tmp_path, "id,name\n1,Café\n2,Köln\n".encode() + b"3,M\xfcnchen\n")

    assert read(path)[-1] == BadRecord(f"{path}:4", "is not UTF-8")


def test_a_letter_far_behind_the_start_still_decides_the_encoding(read, good, tmp_path: Path):
    path = write(tmp_path, b"id,name\n" + b"1,plain\n" * 300_000 + "2,Müller\n".encode("cp1252"))

    assert good(read(path))[-1].data["name"] == "Müller"


def test_a_row_of_another_encoding_is_a_doubt_or_refused(read, tmp_path: Path):
    rows = ["id;name", "1;Rødgrød", "2;Smørrebrød", "3;Æbleskiver", "3;Fløde", "3;Grød"]
    path = write(tmp_path, "\n".join(rows).encode("cp1252") + "\n4;Müller\n".encode() + b"5;\x81\n")

    entries = read(path)

    doubts = [entry for entry in entries if isinstance(entry, Doubt)]
    assert [(doubt.place, doubt.setting) for doubt in doubts] == [(f"{path}:7", "encoding")]
    assert "Müller" in doubts[0].reason
    assert BadRecord(f"{path}:8", "is not windows-1252") in entries


def test_the_encoding_of_a_source_can_be_set(read, good, tmp_path: Path):
    path = write(tmp_path, "id,name\n1,Чай\n".encode("cp866"))

    assert good(read(path, encoding="cp866"))[0].data["name"] == "Чай"
    with pytest.raises(SourceError, match="no encoding 'klingon'"):
        read(path, encoding="klingon")


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("id|name|tags\n1|Tea, green|a;b\n2|Salt, coarse|c\n", "|"),
        ("sep=;\nid;name;tags\n1;Tea, green;a|b\n", ";"),
        ('"sep=|"\r\nid|name|tags\r\n1|Tea, green|a;b\r\n', "|"),
        ("id;name (net, EUR);tags\n1;Tea, green;x\n", ";"),
        ("id\tname\ttags\n1\tTea, green\tx\n", "\t"),
        ('id,name,tags\n1,"Tea, green",a;b\n2,Salt,c;d\n', ","),
    ],
)
def test_the_delimiter_is_the_one_that_gives_rows_of_one_width(read, good, tmp_path: Path, text: str, delimiter: str):
    first = good(read(write(tmp_path, text)))[0]

    assert len(first.data) == 3, delimiter
    assert list(first.data.values())[1] in ("Tea, green", "Tea")


@pytest.mark.parametrize(
    "above",
    [
        "Sales report 2024\n\n",
        "Sales report 2024,,\n,,\n",
        '"Sales report, all regions"\nPrinted: 2024-01-31\n\n',
        "Report\n",
    ],
)
def test_a_header_below_title_lines_is_found_and_remarked(read, tmp_path: Path, above: str):
    path = write(tmp_path, above + "Region,Units,Price\nNorth,3,1.50\nSouth,4,2.50\n")

    *records, remark = read(path)

    line = above.count("\n") + 1
    assert [list(record.data) for record in records] == [["Region", "Units", "Price"]] * 2
    assert [record.where for record in records] == [f"{path}:{line + 1}", f"{path}:{line + 2}"]
    assert isinstance(remark, Remark)
    assert f"the header is in line {line}" in remark.text


@pytest.mark.parametrize("text", ["name\nSmith, John\nDoe, Jane\n", "name,\na,b\nc,d\n", "2020,2021,2022\n1,2,3\n"])
def test_a_first_row_that_may_be_the_header_is_the_header(read, tmp_path: Path, text: str):
    path = write(tmp_path, text)

    assert not any(isinstance(entry, Remark) for entry in read(path))


def test_a_row_of_totals_at_the_end_is_left_out_and_one_inside_is_a_doubt(read, good, tmp_path: Path):
    rows = "Region,Units,Price\nNorth,3,1.50\nSubtotal,3,\nTotal,9,9\nSouth,4,2.50\nTotal:,7,\n"
    path = write(tmp_path, rows)

    entries = read(path)

    assert [record.data["Region"] for record in good(entries)] == ["North", "Subtotal", "Total", "South"]
    assert Doubt(f"{path}:3", "may be a row of totals", value="Subtotal") in entries
    assert Remark(f"{path}:6", "is a row of totals and was left out: Total:") in entries


def test_a_repeated_header_is_no_record(read, good, tmp_path: Path):
    entries = read(write(tmp_path, "id,name\n1,a\nid,name\n2,b\n"))

    assert [record.id for record in good(entries)] == ["1", "2"]


@pytest.mark.parametrize(
    "text",
    ['id,note\n1,"open\n2,b\n3,c\n', 'id,note\n1,"open\n2,"b"\n3,c\n', 'id,note\n1,"open\n2,b\n3,c'],
)
def test_a_quote_that_never_closes_costs_one_row_and_is_a_gap(read, tmp_path: Path, text: str):
    path = write(tmp_path, text)

    first, *rest = read(path)

    assert first == BadRecord(f"{path}:2", "has a quote that does not close", is_gap=True)
    assert [(record.id, record.where) for record in rest] == [("2", f"{path}:3"), ("3", f"{path}:4")]


def test_a_stray_quote_that_swallows_rows_is_a_gap(read, bad, tmp_path: Path):
    path = write(tmp_path, 'id,name,note\n1,"open\n2,b,c\n3,d"\n4,e,f\n')

    assert bad(read(path)) == [BadRecord(f"{path}:2", "has 2 cells where the header has 3", is_gap=True)]


def test_an_inch_mark_inside_a_cell_is_only_a_letter(read, tmp_path: Path):
    path = write(tmp_path, 'id,name,note\n1,5" pipe,x\n2,"5" pipe,y\n3,"a ""b""",z\n')

    assert [record.data["name"] for record in read(path)] == ['5" pipe', "5 pipe", 'a "b"']


def test_many_open_quotes_are_given_up_in_bounded_time(read, tmp_path: Path):
    path = write(tmp_path, "id,note\n" + '1,"open" x\n"\n' * 3000)

    assert all(isinstance(entry, BadRecord | Record) for entry in read(path))


def test_a_site_file_sets_the_encoding_of_a_source(good, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes("id,name\na,Чай\n".encode("cp866"))
    settings = SourceSettings(url=str(path), encoding="cp866")

    [record] = good(list(open_configured_source(settings, Config(source=(settings,))).records()))

    assert record.data["name"] == "Чай"
