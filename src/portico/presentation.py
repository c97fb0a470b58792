"""Items in the words of schema.org: what a table calls otherwise, under the names that pages, answers and clients know.

The data itself keeps its fields. Nothing is stored in this form.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from portico.catalog import Collection, Role
from portico.items import Item, title_of

NAME = "name"
# The role of each member that is added, unless the data has it or one of those that say the same.
_MEMBERS: Mapping[str, tuple[Role, tuple[str, ...]]] = {
    "description": ("description", ()),
    "image": ("image", ()),
    "url": ("link", ()),
    "price": ("price", ("offers", "priceRange", "estimatedCost")),
    "location": ("place", ("address",)),
}
_POSITION: Mapping[str, Role] = {"latitude": "latitude", "longitude": "longitude"}
_CURRENCY_LENGTH = 3


def present(item: Item, collection: Collection | None) -> Item:
    """Return an item with the schema.org members that the roles of its collection's fields fill; itself if none do."""
    added = dict(_added(item.data, collection)) if collection else {}
    return replace(item, data={**added, **item.data, **_overriding(added, item.data)}) if added else item


def present_all(items: Sequence[Item], collections: Mapping[str, Collection]) -> list[Item]:
    """Return items of several collections in the words of schema.org."""
    return [present(item, collections.get(item.collection)) for item in items]


def repeated_fields(data: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields whose value a schema.org member of the same item says, too."""
    values = [data[name] for name in (NAME, *_MEMBERS) if name in data]
    return frozenset(
        name for name, value in data.items() if name not in _MEMBERS and name != NAME and _is_one_of(value, values)
    )


def _is_one_of(value: Any, values: Sequence[Any]) -> bool:
    return any(type(value) is type(other) and value == other for other in values)


def _added(data: Mapping[str, Any], collection: Collection) -> Iterator[tuple[str, Any]]:
    title = collection.title_of(data)
    if title and title != title_of(data):
        yield NAME, title
    for name, (role, alike) in _MEMBERS.items():
        value = collection.value_for(role, data)
        is_chosen = role in collection.roles
        if value in (None, "", []) or collection.field_for(role) == name:
            continue
        if is_chosen or not any(data.get(other) for other in (name, *alike)):
            yield name, value
    if currency := _currency(data, collection):
        yield "priceCurrency", currency
    position = {name: collection.value_for(role, data) for name, role in _POSITION.items()}
    if "geo" not in data and "latitude" not in data and all(_is_number(value) for value in position.values()):
        yield "geo", {"@type": "GeoCoordinates", **position}


def _currency(data: Mapping[str, Any], collection: Collection) -> str:
    """Return the currency of an item's price that its field has and the item does not say."""
    spec = collection.by_role.get("price")
    unit = spec.unit if spec else ""
    is_unsaid = "priceCurrency" not in data and "offers" not in data
    has_price = collection.value_for("price", data) is not None
    return unit if is_unsaid and has_price and len(unit) == _CURRENCY_LENGTH and unit.isalpha() else ""


def _overriding(added: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in added.items() if name in data}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
