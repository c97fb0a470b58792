"""Types by column: what exports write, what is odd among it, and what may be read in two ways."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog import Collection, Field, FieldType
from portico.sources.columns import Profile
from portico.sources.ingest import examine
from portico.sources.plans import Plan, make_plan
from portico.sources.records import Doubt, Entry, Record
from portico.sources.reports import LoadReport


def profile_of(rows: Sequence[dict[str, Any]]) -> Profile:
    profile = Profile()
    for row in rows:
        profile.add(row)
    return profile


def plan_of(rows: Sequence[dict[str, Any]], *fields: Field) -> Plan:
    return make_plan(profile_of(rows), Collection("things", {field.name: field for field in fields}))


def convert(rows: Sequence[dict[str, Any]], *fields: Field) -> tuple[Plan, list[Any], list[Any]]:
    """Return the plan for rows with a field `x` or another one, its values, and the odd ones."""
    plan, odd = plan_of(rows, *fields), []
    copies = [dict(row) for row in rows]
    for row in copies:
        plan.apply(row, lambda path, value: odd.append(value))
    return plan, copies, odd


def column(values: Sequence[Any], name: str = "x") -> tuple[str, str, str, list[Any]]:
    plan, rows, odd = convert([{name: value} for value in values])
    assert not odd
    decided = plan.types[(name,)]
    return decided.type.value, decided.format, decided.unit, [row.get(name) for row in rows]


@pytest.mark.parametrize(
    ("name", "cells", "type", "format", "unit", "values"),
    [
        ("x", ["12", "-3", "0"], "integer", "", "", [12, -3, 0]),
        ("x", ["0.12345678901", "2", "-1.5"], "number", "", "", [0.12345678901, 2, -1.5]),
        ("x", ["1,234.5", "7", "1,234"], "number", "", "", [1234.5, 7, 1234]),
        ("x", ["1.234,5", "7", "1.234"], "number", "", "", [1234.5, 7, 1234]),
        ("x", ["1 234,5", "1 234"], "number", "", "", [1234.5, 1234]),
        ("x", ["1,234,567", "12"], "integer", "", "", [1234567, 12]),
        ("x", ["0,125", "3,250"], "number", "", "", [0.125, 3.25]),
        ("x", [".5", "1.2", "-.25"], "number", "", "", [0.5, 1.2, -0.25]),
        ("x", [",5", "1,2"], "number", "", "", [0.5, 1.2]),
        ("x", [".5 kg", "2 kg"], "number", "quantity", "kg", [0.5, 2]),
        ("x", ["1,200", "3,400", "980", "5,100", "2,300", "17,000", "12"], "integer", "", "",
         [1200, 3400, 980, 5100, 2300, 17000, 12]),
        ("lat", ["52.520", "48.137"], "number", "latitude", "", [52.52, 48.137]),
        ("year", ["1984", "2001"], "integer", "year", "", [1984, 2001]),
        ("customer_id", ["17", "4"], "integer", "code", "", [17, 4]),
        ("title", ["1984", "1776"], "string", "", "", ["1984", "1776"]),
        ("Book Title", ["1984", "Dune"], "string", "", "", ["1984", "Dune"]),
        ("x", ["007", "123", "044"], "string", "code", "", ["007", "123", "044"]),
        ("zip", ["10115", "80331"], "string", "postcode", "", ["10115", "80331"]),
        ("phone", ["4930123", "4989456"], "string", "phone", "", ["4930123", "4989456"]),
        ("x", ["+49 30 1234567", "+1 (212) 555-0100"], "string", "phone", "", ["+49 30 1234567", "+1 (212) 555-0100"]),
        ("x", ["9780141036144", "9780261103573", "9783161484100"], "string", "isbn", "",
         ["9780141036144", "9780261103573", "9783161484100"]),
        ("x", ["4006381333931", "5901234123457", "4012345678901"], "string", "gtin", "",
         ["4006381333931", "5901234123457", "4012345678901"]),
        ("x", ["12345678901234567890", "22345678901234567890"], "string", "code", "",
         ["12345678901234567890", "22345678901234567890"]),
        ("x", ["true", "FALSE", "True"], "boolean", "", "", [True, False, True]),
        ("x", ["yes", "No"], "boolean", "", "", [True, False]),
        ("x", ["ja", "nein", "JA"], "boolean", "", "", [True, False, True]),
        ("x", ["Y", "N"], "boolean", "", "", [True, False]),
        ("x", ["✓", "✓"], "boolean", "", "", [True, True]),
        ("is_vegan", ["1", "0"], "boolean", "", "", [True, False]),
        ("x", ["1", "0"], "integer", "", "", [1, 0]),
        ("x", ["2019-03-18", "2020-01-02"], "timestamp", "date", "", ["2019-03-18", "2020-01-02"]),
        ("x", ["2019-03-18 18:17:31 +0100"], "timestamp", "datetime", "", ["2019-03-18T18:17:31+01:00"]),
        ("x", ["18/03/2019", "02/03/2019"], "timestamp", "date", "", ["2019-03-18", "2019-03-02"]),
        ("x", ["03/18/2019", "03/02/2019"], "timestamp", "date", "", ["2019-03-18", "2019-03-02"]),
        ("x", ["18.03.2019", "2.3.2019"], "timestamp", "date", "", ["2019-03-18", "2019-03-02"]),
        ("x", ["March 18, 2019", "2 Mar 2019", "18. März 2019"], "timestamp", "date", "",
         ["2019-03-18", "2019-03-02", "2019-03-18"]),
        ("x", ["Mon, 18 Mar 2019 18:17:31 +0100"], "timestamp", "datetime", "", ["2019-03-18T18:17:31+01:00"]),
        ("x", ["3/18/2019 5:30 PM"], "timestamp", "datetime", "", ["2019-03-18T17:30:00"]),
        ("created_at", ["1552925851", "0"] + ["1552925851"] * 10, "timestamp", "datetime", "", None),
        ("created", ["1552925851000"], "timestamp", "datetime", "", ["2019-03-18T16:17:31Z"]),
        ("last_modified_t", ["1552925851"], "timestamp", "datetime", "", ["2019-03-18T16:17:31Z"]),
        ("amount", ["1552925851"], "integer", "", "", [1552925851]),
        ("x", ["1:30:00", "0:05:10"], "duration", "", "", ["PT1H30M", "PT5M10S"]),
        ("x", ["25 min", "1h 30m", "PT25M", "90 minutes"], "duration", "", "",
         ["PT25M", "PT1H30M", "PT25M", "PT1H30M"]),
        ("length", ["4:35", "75:10"], "duration", "", "", ["PT4M35S", "PT1H15M10S"]),
        ("opens", ["09:00", "10:30"], "string", "time", "", ["09:00", "10:30"]),
        ("x", ["$1,299.00", "$5"], "number", "money", "USD", [1299.0, 5]),
        ("x", ["12,50 €", "1.299,00 €"], "number", "money", "EUR", [12.5, 1299.0]),
        ("x", ["EUR 12.50", "-EUR 3.00"], "number", "money", "EUR", None),
        ("x", ["$1,299", "$5"], "number", "money", "USD", [1299, 5]),
        ("価格", ["9,545円", "300円"], "number", "money", "JPY", [9545, 300]),
        ("x", ["1200 руб.", "90,50 руб."], "number", "money", "RUB", [1200, 90.5]),
        ("x", ["12.5 %", "3%"], "number", "percent", "%", [12.5, 3]),
        ("x", ["4 kg", "12 kg"], "integer", "quantity", "kg", [4, 12]),
        ("x", ["220 kcal", "90 kcal"], "integer", "quantity", "kcal", [220, 90]),
        ("x", ["500 g", "1.5 kg", "250 g"], "number", "quantity", "g", [500, 1500, 250]),
        ("x", ["a;b", "c", "d;e"], "array", "", "", [["a", "b"], ["c"], ["d", "e"]]),
        ("x", ["a|b", "c|d|e"], "array", "", "", [["a", "b"], ["c", "d", "e"]]),
        ("x", ['["a","b"]', "[]"], "array", "", "", [["a", "b"], []]),
        ("tags", ["red, blue", "green", "blue, green"], "array", "", "", [["red", "blue"], ["green"],
         ["blue", "green"]]),
        ("Images", ["https://a.example/1.jpg, https://a.example/2.jpg", "https://a.example/3.jpg"] * 2, "array", "", "",
         [["https://a.example/1.jpg", "https://a.example/2.jpg"], ["https://a.example/3.jpg"]] * 2),
        ("Poster", ["https://a.example/1_CR0,0,67.jpg", "https://a.example/2_CR1,0,67.jpg"], "string", "url", "",
         ["https://a.example/1_CR0,0,67.jpg", "https://a.example/2_CR1,0,67.jpg"]),
        ("x", ["<p>Salt &amp; oil</p>", "<b>Tea</b>; hot"], "string", "", "",
         ["<p>Salt &amp; oil</p>", "<b>Tea</b>; hot"]),
        ("brand", ["Marks &amp; Spencer", "H&amp;M"], "string", "", "", ["Marks &amp; Spencer", "H&amp;M"]),
        ("x", ["Berlin, Germany", "Rome, Italy"], "string", "", "", ["Berlin, Germany", "Rome, Italy"]),
        ("location", ["52.5, 13.4"], "object", "coordinates", "", [{"latitude": 52.5, "longitude": 13.4}]),
        ("x", ["https://example.org/a"], "string", "url", "", ["https://example.org/a"]),
        ("x", ["me@example.org"], "string", "email", "", ["me@example.org"]),
        ("x", ["550e8400-e29b-41d4-a716-446655440000"], "string", "uuid", "", None),
        ("version", ["1.10", "1.9"], "string", "code", "", ["1.10", "1.9"]),
        ("x", ["4", "N/A", "-", "null", "5"], "integer", "", "", [4, None, None, None, 5]),
        ("country", ["NA", "DE", "FR"], "string", "", "", ["NA", "DE", "FR"]),
        ("x", ["a", "n/a", "b"], "string", "", "", ["a", None, "b"]),
        ("x", [1, 2.5, 3], "number", "", "", [1, 2.5, 3]),
        ("x", [0, 1], "integer", "", "", [0, 1]),
        ("x", [1, "XL", "M"], "string", "", "", ["1", "XL", "M"]),
        ("x", [["a"], []], "array", "", "", [["a"], []]),
        ("x", [{"a": 1}, "b"], "any", "", "", [{"a": 1}, "b"]),
    ],
)  # fmt: skip
def test_a_column_has_the_type_that_its_values_show(name, cells, type, format, unit, values):
    if values is None:
        decided = plan_of([{name: cell} for cell in cells]).types[(name,)]
        assert (decided.type.value, decided.format, decided.unit) == (type, format, unit)
    else:
        assert column(cells, name) == (type, format, unit, values)


@pytest.mark.parametrize(
    ("name", "cells", "setting"),
    [
        ("x", ["1.234", "5.678"], '{ type = "number", format = "1.234,56" }'),
        ("x", ["1,234", "5,678"], '{ type = "number", format = "1,234.56" }'),
        ("x", ["01/02/2019", "03/04/2019"], '{ type = "timestamp", format = "dd/mm/yyyy" }'),
        ("duration", ["4:35", "3:10"], '{ type = "duration", format = "mm:ss" }'),
        ("x", ["$5", "3 €", "£4"], '{ type = "number", unit = "'),
    ],
)
def test_what_may_be_read_in_two_ways_stays_text_and_is_doubted(name, cells, setting):
    plan = plan_of([{name: cell} for cell in cells])
    (doubt,) = plan.doubts("somewhere")

    assert plan.types[(name,)].type is FieldType.STRING
    assert doubt.field == name
    assert doubt.setting.startswith(f"collections.things.fields.{name} = {setting}")


@pytest.mark.parametrize(
    ("cells", "field", "values"),
    [
        (["1.234", "5.678"], Field("x", FieldType.NUMBER, declared=True, format="1.234,56"), [1234, 5678]),
        (["1,234", "5,678"], Field("x", FieldType.NUMBER, declared=True, format="1,234.56"), [1234, 5678]),
        (["01/02/2019"], Field("x", FieldType.TIMESTAMP, declared=True, format="dd/mm/yyyy"), ["2019-02-01"]),
        (["01/02/2019"], Field("x", FieldType.TIMESTAMP, declared=True, format="mm/dd/yyyy"), ["2019-01-02"]),
        (["4:35"], Field("x", FieldType.DURATION, declared=True, format="mm:ss"), ["PT4M35S"]),
        (["4:35"], Field("x", FieldType.DURATION, declared=True, format="hh:mm"), ["PT4H35M"]),
        (["1984"], Field("x", FieldType.STRING, declared=True), ["1984"]),
        ([1984], Field("x", FieldType.STRING, declared=True), ["1984"]),
        (["1", "0"], Field("x", FieldType.BOOLEAN, declared=True), [True, False]),
        (["a;b", "c;d"], Field("x", FieldType.ARRAY, declared=True), [["a", "b"], ["c", "d"]]),
    ],
)
def test_the_setting_of_a_doubt_settles_it(cells, field, values):
    _, rows, odd = convert([{"x": cell} for cell in cells], field)

    assert ([row["x"] for row in rows], odd) == (values, [])


def test_other_columns_show_how_an_unclear_one_is_written():
    rows = [{"price": "12,50", "sold": "1.234", "on": "18/03/2019", "until": "01/02/2019"}] * 3
    plan, converted, odd = convert(rows)

    assert converted[0] == {"price": 12.5, "sold": 1234, "on": "2019-03-18", "until": "2019-02-01"}
    assert not odd
    assert not plan.doubts("")


def test_one_odd_value_is_kept_and_the_column_has_its_type():
    cells = [*map(str, range(20)), "about 7"]
    plan, rows, odd = convert([{"x": cell} for cell in cells])

    assert plan.types[("x",)].type is FieldType.INTEGER
    assert [row["x"] for row in rows] == [*range(20), "about 7"]
    assert odd == ["about 7"]


def test_many_odd_values_make_a_column_of_texts_with_a_remark():
    plan, rows, odd = convert([{"x": cell} for cell in ["1", "2", "3", "four", "5"]])

    assert [row["x"] for row in rows] == ["1", "2", "3", "four", "5"]
    assert not odd
    assert "4 of 5 values are numbers" in plan.remarks("there")[0].text


def test_amounts_of_several_kinds_are_not_said_to_be_too_few():
    plan, _, _ = convert([{"x": cell} for cell in ["500 g", "1 l", "250 g", "33 cl"]])

    assert "4 of 4 values are amounts, but not of one kind" in plan.remarks("there")[0].text


def test_texts_of_digits_in_a_source_with_numbers_are_texts():
    _, rows, _ = convert([{"n": 1, "sku2": "12345", "cost": "12.50", "day": "18.03.2019"}] * 2)

    assert rows[0] == {"n": 1, "sku2": "12345", "cost": 12.5, "day": "2019-03-18"}


def test_values_below_objects_and_in_their_lists_are_converted():
    data = {"offers": {"low": "12.50"}, "variants": [{"size": "4", "cost": "$5"}, {"size": "5", "cost": "$6"}]}
    _, rows, _ = convert([data, data])

    # Below an object there is no field that could hold a unit.
    assert rows[0]["offers"] == {"low": 12.5}
    assert rows[0]["variants"][0] == {"size": 4, "cost": "$5"}


class Rows:
    """A source of records."""

    url, former_urls = "somewhere", ()

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def share(self) -> float | None:
        return 1.0

    def records(self):
        return iter(self._entries)


async def examined(cells: Sequence[Any], *fields: Field) -> LoadReport:
    entries = [Record({"x": cell}, f"a.csv:{number}", str(number)) for number, cell in enumerate(cells, 2)]
    return await examine(
        Rows(entries), "things", declared=lambda name: Collection(name, {field.name: field for field in fields})
    )


async def test_an_odd_value_is_in_the_report_with_its_place_and_what_settles_it():
    report = await examined([*map(str, range(20)), "about 7"])

    assert report.doubts == (
        Doubt(
            "a.csv:22",
            "the other values are whole numbers; it is kept as it is written",
            "x",
            "about 7",
            'collections.things.fields.x = { type = "string" }',
        ),
    )
    field = report.collections["things"].fields["x"]
    assert (field.type, field.coverage, field.example) == (FieldType.INTEGER, round(20 / 21, 4), 0)


async def test_what_a_declared_type_cannot_take_is_in_the_report():
    report = await examined(["12", "dear"], Field("x", FieldType.NUMBER, declared=True))

    assert [(doubt.place, doubt.value) for doubt in report.doubts] == [("a.csv:3", "dear")]
    assert report.doubts[0].reason.startswith("the site file declares numbers")


MISSING = {"", "NA", "N/A", "n/a", "N.A.", "n.a.", "#N/A", "<NA>", "-", "–", "—", "--", "null", "NULL", "None", "NaN",
           "nan", "\\N"}  # fmt: skip
CELLS = st.one_of(
    st.text(max_size=20),
    st.from_regex(r"[-$€]?[0-9]{1,4}([.,/: -][0-9]{1,4}){0,3} ?(kg|g|%|€|min|h|AM)?", fullmatch=True),
    st.sampled_from(["yes", "no", "N/A", "", "a;b", "[1]", "P1D", "1e400", "9" * 400, "12:60", "31/02/2019", "00:00"]),
)
VALUES = st.one_of(CELLS, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none())


@given(st.lists(CELLS, max_size=15), st.sampled_from(["x", "title", "created_at", "duration", "tags", "is_on", "lat"]))
@settings(max_examples=300, deadline=None)
def test_every_cell_gets_the_normal_form_of_its_type_or_stays_as_it_is_written(cells, name):
    rows = [{name: cell} for cell in cells]
    plan, converted, odd = convert(rows)
    decided = plan.types.get((name,))
    field = Field(name, decided.type if decided else FieldType.ANY)

    for cell, row in zip(cells, converted, strict=True):
        value = row.get(name)
        if value is None:
            assert cell.strip() in MISSING
        elif value == cell:
            assert cell in odd or field.accepts(cell) or field.type is FieldType.ANY
        else:
            assert field.accepts(value)
    assert converted == convert(rows)[1]


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b.c", "id", "@x"]), VALUES), max_size=10))
@settings(max_examples=150, deadline=None)
def test_no_record_is_too_odd(rows):
    convert(rows)
