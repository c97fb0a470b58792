"""Items in the words of schema.org, by the roles of their fields."""

from typing import Any

import pytest

from portico.catalog import Collection, Field, FieldType, Role
from portico.items import Item
from portico.presentation import present, repeated_fields


def table(roles: dict[Role, str], unit: str = "", **chosen: str) -> Collection:
    fields = {
        name: Field(name, FieldType.NUMBER if role == "price" else FieldType.STRING, role=role, unit=unit)
        for role, name in roles.items()
    }
    return Collection("things", fields, roles=chosen)  # pyright: ignore[reportArgumentType]


ALBUM: dict[str, Any] = {"AlbumId": 1, "Artist": "Queen", "Title": "A Night at the Opera"}


@pytest.mark.parametrize(
    ("collection", "data", "title"),
    [
        (table({"title": "Title"}), ALBUM, "A Night at the Opera"),
        (table({"title": "Recipe Name"}), {"Recipe Name": "Fish Pie", "name": "r-1"}, "Fish Pie"),
        (table({"title": "a"}, title="b"), {"a": "first", "b": "second"}, "second"),
        (table({"title": "a"}), {"a": "  ", "name": "Kettle"}, "Kettle"),
        (table({"title": "a"}), {"a": None, "headline": "News"}, "News"),
        (table({"title": "a"}), {"a": 1984}, "1984"),
        (table({"title": "a"}), {"a": ["Blue", "Red"]}, "Blue"),
        (table({"title": "a.b"}), {"a": {"b": "Inner"}}, "Inner"),
        (table({"given_name": "F", "family_name": "L"}), {"F": "Maria", "L": "Silva", "Title": "Boss"}, "Maria Silva"),
        (table({"given_name": "F", "family_name": "L"}), {"F": "", "L": "Silva"}, "Silva"),
        (table({}), {"name": "Kettle"}, "Kettle"),
        (table({}), {"sku": "A-100", "colour": "red", "what": "A copper kettle"}, "A copper kettle"),
        (table({}), {"sku": "A-100", "colour": "red"}, "red"),
        (table({}), {"hash": "5f4dcc3b5aa765d6", "n": 5, "mail": "a@a.example", "at": "https://a.example"}, ""),
        (table({}), {"at": "2026-01-02", "url": "a long way", "when": "12:30"}, ""),
        (table({}), {"@type": "Review", "reviewBody": "Very good indeed."}, ""),
        (table({}), {"name": {"first": "Maria"}}, ""),
    ],
)
def test_an_item_is_called_by_its_role_its_names_or_another_text(
    collection: Collection, data: dict[str, Any], title: str
) -> None:
    assert collection.title_of(data) == title


def test_the_fields_of_a_table_fill_the_members_of_schema_org() -> None:
    collection = table(
        {"title": "Titel", "description": "Text", "image": "Bild", "link": "Web", "price": "Preis", "place": "Ort"},
        unit="EUR",
    )
    data = {"Titel": "Kessel", "Text": "Aus Kupfer.", "Bild": "/k.jpg", "Web": "https://k.example", "Preis": 40,
            "Ort": "Ulm"}  # fmt: skip

    shown = present(Item("1", "things", data), collection).data

    assert shown == {
        **data, "name": "Kessel", "description": "Aus Kupfer.", "image": "/k.jpg", "url": "https://k.example",
        "price": 40, "priceCurrency": "EUR", "location": "Ulm",
    }  # fmt: skip
    assert repeated_fields(shown) == set(data)


def test_a_position_is_that_of_schema_org_too() -> None:
    collection = table({"latitude": "lat", "longitude": "lng"})

    shown = present(Item("1", "things", {"lat": 48.4, "lng": 10.0}), collection).data

    assert shown["geo"] == {"@type": "GeoCoordinates", "latitude": 48.4, "longitude": 10.0}


def test_an_item_of_schema_org_stays_as_it_is() -> None:
    item = Item("1", "things", {"@type": "Product", "name": "Kettle", "offers": {"price": 5}, "cost": 3, "url": "/k"})
    collection = table({"title": "name", "price": "cost", "link": "url"}, unit="EUR")

    assert present(item, collection) is item
    assert present(item, None) is item


def test_what_the_site_file_chooses_counts_before_what_the_data_has() -> None:
    collection = table({"title": "name"}, title="Recipe Name", image="photo")
    data = {"name": "r-1", "Recipe Name": "Fish Pie", "image": "old.jpg", "photo": "new.jpg"}

    shown = present(Item("1", "things", data), collection).data

    assert (shown["name"], shown["image"]) == ("Fish Pie", "new.jpg")
