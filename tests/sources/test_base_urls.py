"""Relative links and pictures of tables lead to the live site that their source names."""

from pathlib import Path
from typing import Any

import pytest

from portico.sources.base_urls import join_addresses
from portico.sources.records import BadRecord, Record
from portico.sources.registry import SourceOptions, open_source

BASE = "https://shop.example/en"


def joined(data: dict[str, Any], base: str = BASE) -> dict[str, Any]:
    [record] = join_addresses([Record(data, "row 1")], base)
    assert isinstance(record, Record)
    return record.data


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("/img/pie.jpg", "https://shop.example/img/pie.jpg"),
        ("img/pie.jpg", "https://shop.example/en/img/pie.jpg"),
        ("pie.jpg", "https://shop.example/en/pie.jpg"),
        ("pie.jpg?w=5", "https://shop.example/en/pie.jpg?w=5"),
        (["/a.png", "b.png"], ["https://shop.example/a.png", "https://shop.example/en/b.png"]),
        ("https://cdn.example/pie.jpg", "https://cdn.example/pie.jpg"),
        ("//evil.example/pie.jpg", "//evil.example/pie.jpg"),
        ("javascript:alert(1)/x.jpg", "javascript:alert(1)/x.jpg"),
        ("data:image/png;base64,AA/A", "data:image/png;base64,AA/A"),
        ("a boat.jpg", "a boat.jpg"),
        ("\\\\evil.example\\x.jpg", "\\\\evil.example\\x.jpg"),
        ("none", "none"),
        ("", ""),
        (5, 5),
        (None, None),
    ],
)
def test_a_relative_address_is_joined_and_no_other_value_changes(value: Any, address: Any) -> None:
    assert joined({"Image URL": value, "Note": value}) == {"Image URL": address, "Note": value}


def test_a_base_that_is_no_address_joins_nothing() -> None:
    assert joined({"url": "/x"}, "javascript:") == {"url": "/x"}


def test_other_entries_pass() -> None:
    bad = BadRecord("row 2", "is not CSV")

    assert list(join_addresses([bad], BASE)) == [bad]


@pytest.mark.parametrize("base_url", ["", "https://shop.example/"])
def test_a_table_leads_back_to_its_site(tmp_path: Path, base_url: str) -> None:
    (tmp_path / "dishes.csv").write_text("id,Recipe Name,Bild,Page\n1,Fish Pie,/img/pie.jpg,dishes/pie\n")

    source = open_source(str(tmp_path / "dishes.csv"), SourceOptions(base_url=base_url))
    [record] = [entry for entry in source.records() if isinstance(entry, Record)]

    start = base_url.rstrip("/")
    picture = f"{start}/img/pie.jpg"
    assert record.data["Bild"] == picture
    assert record.data["Page"] == (f"{start}/dishes/pie" if base_url else "dishes/pie")
