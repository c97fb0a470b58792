"""What a site knows of its collections, fields and operations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.catalog import (
    Catalog,
    Collection,
    Field,
    FieldType,
    comparable,
    instant,
    seconds,
    singular,
    type_of,
    widen,
)
from portico.errors import UnknownCollection, UnknownField, UnknownOperation
from portico.field_names import segments


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01 00:00", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T00:00:00+0000", 0),
        ("2024-02-30", None),
        ("2024-1-1", None),
        ("2024", None),
        ("2024-01-01x", None),
        ("yesterday", None),
    ],
)
def test_a_time_is_an_instant_and_without_a_zone_it_is_utc(text: str, micros: int | None) -> None:
    assert instant(text) == micros


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("PT1H30M", 5400.0),
        ("P1D", 86400.0),
        ("P1W2DT3H", 788400.0),
        ("PT0.5S", 0.5),
        ("PT0S", 0.0),
        ("P", None),
        ("PT", None),
        ("P1Y", None),
        ("P1M", None),
        ("1H", None),
        ("PT-1H", None),
    ],
)
def test_a_duration_has_a_length_unless_it_counts_months(text: str, length: float | None) -> None:
    assert seconds(text) == length


@given(st.datetimes())
def test_a_time_is_shown_as_the_instant_it_is(moment: Any) -> None:
    field = Field("t", FieldType.TIMESTAMP)
    micros = instant(f"{moment.isoformat()}Z")

    assert instant(field.format_value(micros)) == micros


@given(st.integers(0, 10**15).map(lambda micros: micros / 1_000_000))
def test_a_duration_is_shown_as_the_length_it_has(length: float) -> None:
    shown = Field("d", FieldType.DURATION).format_value(length)

    assert seconds(shown) == pytest.approx(length, abs=1e-6, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (FieldType.INTEGER, "12", 12),
        (FieldType.NUMBER, "1.5", 1.5),
        (FieldType.NUMBER, "1e999", None),
        (FieldType.NUMBER, True, None),
        (FieldType.NUMBER, float("nan"), None),
        (FieldType.INTEGER, "many", None),
        (FieldType.INTEGER, 10**400, None),
        (FieldType.INTEGER, "9" * 400, None),
        (FieldType.BOOLEAN, 1, None),
        (FieldType.STRING, 1, None),
        (FieldType.TIMESTAMP, 5, None),
        (FieldType.DURATION, "PT5M", 300.0),
        (FieldType.DURATION, "PT" + "9" * 400 + "S", None),
        (FieldType.OBJECT, {}, None),
        (FieldType.STRING, None, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_value_is_comparable_only_if_it_fits_its_field(kind: FieldType, value: Any, found: Any) -> None:
    assert comparable(kind, value) == found


@given(st.sampled_from(FieldType), st.sampled_from(FieldType), st.sampled_from(FieldType))
def test_widening_does_not_depend_on_the_order_of_two_and_never_narrows(
    a: FieldType, b: FieldType, c: FieldType
) -> None:
    assert widen(a, b) == widen(b, a)
    assert widen(a, a) == a
    assert widen(widen(a, b), a) == widen(a, b)
    assert widen(FieldType.ANY, c) == FieldType.ANY


def test_a_list_of_many_numbers_is_a_vector() -> None:
    assert type_of([1.0] * 16) == FieldType.VECTOR
    assert type_of([1.0] * 15) == FieldType.ARRAY
    assert type_of([True] * 16) == FieldType.ARRAY
    assert type_of([1.0] * 15 + ["x"]) == FieldType.ARRAY


def test_a_path_below_a_plain_field_or_of_an_unknown_one_is_refused() -> None:
    things = Collection("things", {"n": Field("n", FieldType.INTEGER), "o": Field("o", FieldType.OBJECT)})

    assert things.field("o.x.y") == Field("o.x.y", FieldType.ANY)
    assert things.field("id") == Field("id", FieldType.STRING)
    for path in ("n.x", "z", "z.x"):
        with pytest.raises(UnknownField):
            things.field(path)


def test_the_id_of_an_item_is_a_text_whatever_the_data_calls_id() -> None:
    things = Collection("things").widen({"id": 5})

    assert things.field("id").type == FieldType.STRING


@pytest.mark.parametrize("path", ["", "a..b", ".a", "a\0b", "half\ud800", "x" * 1025, "a.b.c.d.e.f.g.h.i"])
def test_a_path_that_could_not_be_a_field_is_refused(path: str) -> None:
    with pytest.raises(UnknownField):
        segments(path)


def test_the_anchor_changes_with_the_schema_and_with_nothing_else() -> None:
    things = Collection("things", {"n": Field("n", FieldType.INTEGER)})

    assert things.anchor_id == Collection("others", dict(things.fields), title="Others").anchor_id
    assert things.anchor_id != things.widen({"m": 1}).anchor_id
    assert things.anchor_id.startswith("sha256:")


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("recipes", "recipe"),
        ("stories", "story"),
        ("dishes", "dish"),
        ("boxes", "box"),
        ("classes", "class"),
        ("news", "news"),
        ("bus", "bus"),
        ("staff", "staff"),
        ("s", ""),
    ],
)
def test_the_name_of_one_is_derived_from_the_name_of_many(name: str, one: str) -> None:
    assert singular(name) == (one or name)


def test_unknown_and_private_names_are_refused_with_a_hint() -> None:
    catalog = Catalog({"recipes": Collection("recipes"), "diary": Collection("diary", private=True)}, {})

    assert catalog.public == (Collection("recipes"),)
    for name in ("diary", "nope"):
        with pytest.raises(UnknownCollection) as refusal:
            catalog.collection(name)
        assert refusal.value.hint == "Known collections: recipes."
    with pytest.raises(UnknownOperation):
        catalog.operation("recipe")
