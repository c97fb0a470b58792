"""Names of fields: own names, aliases and normal forms."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.catalog import Collection, Field, FieldType
from portico.errors import UnknownField
from portico.field_names import alias_of, clean_name, index_names, normalize, problem_with_name

ALIAS = re.compile(r"[a-z][a-z0-9_]{0,63}")
HOSTILE = (
    "Region Name",
    "Price ($)",
    "名前",
    "Größe",
    "a.b",
    "$where",
    "__proto__",
    "' OR 1=1",
    "x'); DROP TABLE items_1; --",
    'say "hi"',
    "back\\slash",
    '\\"',
    "$[0]",
    "$",
    "🙂",
    "100%",
    "a[0].b",
    "?1",
    "${x}",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "x" * 300,
    "名" * 300,
)


def things(*names: str) -> Collection:
    return Collection("things").widen(dict.fromkeys(names, 1))


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("Region Name", "region_name"),
        ("region-name", "region_name"),
        ("  REGION   name ", "region_name"),
        ("Price ($)", "price"),
        ("Région", "region"),
        ("Größe (cm)", "grosse_cm"),
        ("名前", "名前"),
        ("ＡＢＣ", "abc"),
        ("a.b", "a_b"),
        ("$where", "where"),
        ("@type", "@type"),
        ("datePublished", "datepublished"),
        ("($)", ""),
    ],
)
def test_the_normal_form_has_no_capitals_accents_or_punctuation(name: str, normal: str) -> None:
    assert normalize(name) == normal


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("Price\n(USD)", "Price (USD)"),
        ("\ufeffid number", "id number"),
        ("a\x00b\x1b[31m", "ab[31m"),
        ("\u202eeman", "eman"),
        ("na\u200bme", "name"),
        ("", "field"),
        (" \t", "field"),
        ("\u2066\u2069", "field"),
    ],
)
def test_what_cannot_be_seen_is_cleaned_out_of_a_name(name: str, cleaned: str) -> None:
    assert problem_with_name(name)
    assert clean_name(name) == cleaned
    assert problem_with_name(cleaned) is None


@pytest.mark.parametrize("name", [*HOSTILE, "می\u200cخواهم", "👩\u200d🍳"])
def test_everything_that_can_be_seen_can_be_a_name(name: str) -> None:
    assert problem_with_name(name) is None
    assert clean_name(name) == name
    assert things(name).field(name).name == name


def test_names_that_are_too_long_are_cut_and_stay_apart() -> None:
    first, second = clean_name("x" * 600), clean_name("x" * 601)

    assert problem_with_name(first) is None
    assert first != second


@given(st.text())
def test_any_text_becomes_a_name(text: str) -> None:
    assert problem_with_name(clean_name(text)) is None


@given(st.text(min_size=1))
def test_any_name_has_an_alias_of_plain_characters(name: str) -> None:
    assert ALIAS.fullmatch(alias_of(name))


@given(st.lists(st.text(min_size=1), unique=True, max_size=20), st.text(min_size=1))
def test_a_later_field_changes_no_alias(names: list[str], later: str) -> None:
    before = index_names(tuple(names))
    after = index_names((*dict.fromkeys((*names, later)),))

    assert {name: after.alias(name) for name in names} == {name: before.alias(name) for name in names}
    aliases = [after.alias(name) for name in dict.fromkeys((*names, later))]
    assert len(set(aliases)) == len(aliases)


@pytest.mark.parametrize("name", ["price", "datePublished", "@type", "geo:lat", "e-mail", "_note", "2024"])
def test_a_name_of_plain_characters_is_its_own_alias(name: str) -> None:
    assert things(name).names.aliases == {}
    assert things(name).schema["fields"][1]["name"] == name
    assert "label" not in things(name).schema["fields"][1]


def test_the_schema_lists_aliases_with_the_own_names() -> None:
    schema = things("name", "Region Name", "Price ($)", "名前").schema

    names = [(field["name"], field.get("label")) for field in schema["fields"]]
    assert names == [
        ("id", None),
        ("name", None),
        ("region_name", "Region Name"),
        ("price", "Price ($)"),
        (alias_of("名前"), "名前"),
    ]


def test_fields_with_one_normal_form_have_aliases_of_their_own() -> None:
    names = things("Price ($)", "Price (€)", "price").names

    assert names.alias("Price ($)") == "price"
    assert re.fullmatch(r"price_[0-9a-f]{8}", names.alias("Price (€)"))
    assert re.fullmatch(r"price_[0-9a-f]{8}", names.alias("price"))
    assert names.find(names.alias("Price (€)")) == "Price (€)"


@pytest.mark.parametrize("name", ["id", "Id", "ID.", " id "])
def test_no_field_takes_the_name_of_the_id(name: str) -> None:
    assert things(name).field("id") == Field("id", FieldType.STRING)
    assert "id" not in things(name).names.aliases.values()


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        ("Region Name", "Region Name"),
        ("region_name", "Region Name"),
        ("REGION NAME", "Region Name"),
        ("région-name", "Region Name"),
        ("price ($)", "Price ($)"),
        ("price", "Price ($)"),
        ("Price (€)", "Price (€)"),
        ("price (€)", "Price (€)"),
        ("名前", "名前"),
        ("a.b", "a.b"),
        ("a_b", "a.b"),
        ("a.c", "a.c"),
        ("A.c", "a.c"),
        ("open hours.Mon Day", "Open Hours.Mon Day"),
        ("Open Hours.a.b", "Open Hours.a.b"),
    ],
)
def test_a_field_is_found_by_its_own_name_its_alias_and_its_normal_form(asked: str, own: str) -> None:
    data = {"Region Name": "x", "Price ($)": 1, "Price (€)": 2, "名前": "x", "a.b": 1, "a": {"b": 2}, "Open Hours": {}}

    assert Collection("things").widen(data).field(asked).name == own


@pytest.mark.parametrize("asked", ["$.price;--", "price'", "Price [$]", "region.name", "", "x" * 2000])
def test_other_punctuation_is_another_name(asked: str) -> None:
    with pytest.raises(UnknownField):
        things("Region Name", "Price ($)").field(asked)


def test_its_own_name_comes_first_whichever_field_came_first() -> None:
    both = things("Region Name", "region_name")

    assert both.field("region_name").name == "region_name"
    assert both.field("Region Name").name == "Region Name"
    assert both.field("REGION NAME").name == "Region Name"


def test_a_key_with_a_dot_comes_before_a_path_of_the_same_spelling() -> None:
    data = {"a.b": 1, "a": {"b": 2, "c": 3}}
    collection = Collection("things").widen(data)

    assert [collection.field(path).value(data) for path in ("a.b", "a.c")] == [1, 3]


def test_a_declared_name_is_a_path_until_the_data_has_it_as_a_key() -> None:
    declared = Collection("things", {"a.b": Field("a.b", FieldType.INTEGER, declared=True)})

    assert declared.field("a.b").value({"a": {"b": 1}}) == 1
    assert declared.widen({"a.b": 2}).field("a.b").value({"a.b": 2}) == 2
    assert declared.widen({"a": {"b": 1}}).field("a.b").value({"a": {"b": 1}}) == 1
