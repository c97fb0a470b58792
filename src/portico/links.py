"""Links between collections: fields whose values are the ids of items of another one. Reads no store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog import ID, Collection, Field, FieldType
from portico.items import MAX_ID
from portico.query import MAX_LIST, Condition, Filter, Or

MAX_LINKED = 5 * MAX_LIST  # ids in one filter
MAX_IN_LIST = 128  # ids in one list of an item


@dataclass(frozen=True, slots=True)
class FieldLink:
    """A field of a collection that holds ids of items of another."""

    collection: str
    field: str
    target: str


def links_among(collections: Iterable[Collection]) -> list[FieldLink]:
    """Return the links from each of these collections to another of them."""
    known = {collection.name: collection for collection in collections}
    return [
        FieldLink(collection.name, field.name, field.target)
        for collection in known.values()
        for field in collection.fields.values()
        if field.target in known
    ]


def linked_ids(data: Mapping[str, Any], field: Field) -> list[str]:
    """Return the ids that a field of an item holds: one, or those of a list."""
    value = field.value(data)
    values = cast("list[Any]", value)[:MAX_IN_LIST] if isinstance(value, list) else [value]
    return list(dict.fromkeys(id for element in values if (id := _id_of(element))))


def _id_of(value: Any) -> str:
    match value:
        case bool():
            return ""
        case int():
            return str(value)
        case float() if value.is_integer():
            return str(int(value))
        case str() if 0 < len(value) <= MAX_ID:
            return value
        case _:
            return ""


def linking_filter(field: Field, ids: Sequence[str]) -> Filter | None:
    """Return the filter for items that link to one of these ids; None if no value of the field can be one of them."""
    return _is_one_of(field.name, [value for id in ids for value in _values_of(field.type, id)])


def ids_filter(ids: Sequence[str]) -> Filter | None:
    return _is_one_of(ID, ids)


def _is_one_of(name: str, values: Sequence[Any]) -> Filter | None:
    distinct = tuple(dict.fromkeys(values))
    if not distinct or len(distinct) > MAX_LINKED:
        return None
    parts = [Condition(name, "in", distinct[at : at + MAX_LIST]) for at in range(0, len(distinct), MAX_LIST)]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _values_of(type: FieldType, id: str) -> list[Any]:
    """Return an id in the form of the values of a field."""
    number = int(id) if len(id) < 20 and id.removeprefix("-").isdecimal() and id.isascii() else None
    match type:
        case FieldType.INTEGER | FieldType.NUMBER:
            return [] if number is None else [number]
        case FieldType.ANY:
            return [id] if number is None else [id, number]
        case _:
            return [id]
