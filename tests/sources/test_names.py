"""Names in the data of other people: all become fields, and what is doubtful about them is reported."""

from pathlib import Path
from typing import Any

import pytest

from portico.query import Condition, Query
from portico.sources.ingest import examine, ingest
from portico.sources.names import check_names
from portico.sources.records import BadRecord, Doubt, Record
from portico.sources.registry import SourceOptions, open_source
from portico.store import open_store


def read(*datas: dict[Any, Any]) -> tuple[list[dict[str, Any]], list[Doubt]]:
    entries = list(check_names([Record(data, f"line {n}") for n, data in enumerate(datas, 1)], "things"))
    records = [entry.data for entry in entries if isinstance(entry, Record)]
    return records, [entry for entry in entries if isinstance(entry, Doubt)]


@pytest.mark.parametrize("name", ["Region Name", "Price ($)", "名前", "a.b", "$where", "__proto__", "x" * 300, "@type"])
def test_a_name_that_can_be_seen_stays_as_it_is(name: str) -> None:
    assert read({name: 1}, {name: 2}) == ([{name: 1}, {name: 2}], [])


@pytest.mark.parametrize(
    ("name", "own"),
    [("Price\n(USD)", "Price (USD)"), ("\u202eeman", "eman"), ("", "field"), ("a\0b", "ab"), ("half\ud800", "half")],
)
def test_other_names_are_cleaned_once_with_a_doubt(name: str, own: str) -> None:
    records, doubts = read({name: 1}, {name: 2})

    assert records == [{own: 1}, {own: 2}]
    assert [(doubt.place, doubt.field) for doubt in doubts] == [("line 1", own)]
    assert doubts[0].reason.isprintable()


def test_two_columns_stay_two_when_their_clean_names_are_one() -> None:
    assert read({"name": 1, "na\u200bme": 2, "\u200bname": 3})[0] == [{"name": 1, "name_2": 2, "name_3": 3}]
    assert read({"na\u200bme": 1, "name": 2})[0] == [{"name": 1, "name_2": 2}]


def test_names_that_are_easily_confused_are_reported_once() -> None:
    _, doubts = read({"Price ($)": 1, "Price (€)": 2, "price": 3}, {"price": 4})

    assert [(doubt.field, doubt.place) for doubt in doubts] == [("Price (€)", "line 1"), ("price", "line 1")]
    assert "'Price ($)' and 'Price (€)' are easily confused" in doubts[0].reason


def test_collections_have_names_of_their_own() -> None:
    entries = check_names([Record({"Name": 1}, "a", None, "a"), Record({"name": 1}, "b", None, "b")], "things")

    assert not [entry for entry in entries if isinstance(entry, Doubt)]


def test_what_is_no_record_passes() -> None:
    bad = BadRecord("line 1", "is broken")

    assert list(check_names([bad], "things")) == [bad]
    assert read({5: 1}) == ([{5: 1}], [])


async def test_a_table_with_spaces_and_capitals_loads_with_all_its_columns(tmp_path: Path) -> None:
    table = tmp_path / "sales.csv"
    table.write_text("Region Name,Price ($),名前,region_name\nOslo,5.5,a,x\nBergen,7.5,b,y\n", "utf-8")
    store = await open_store("sqlite:///:memory:")

    report = await ingest(store, open_source(str(table), SourceOptions()), "sales")
    rehearsal = await examine(open_source(str(table), SourceOptions()), "sales")

    assert [*report.collections["sales"].fields] == ["Region Name", "Price ($)", "名前", "region_name"]
    assert [doubt.field for doubt in report.doubts] == [doubt.field for doubt in rehearsal.doubts] == ["region_name"]
    assert not report.is_lossless
    page = await store.items.find(Query("sales", where=Condition("price", "lt", 6)))
    assert [item.data["Region Name"] for item in page.items] == ["Oslo"]
    await store.close()
