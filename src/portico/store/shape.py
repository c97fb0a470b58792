"""Checks what a caller writes against the fields that a collection publishes. Knows no database."""

from collections.abc import Mapping
from typing import Any, cast

from portico.catalog import ID, Collection, Field, FieldType, nearest_hint, scalar_at
from portico.errors import InvalidParams
from portico.items import type_name

MAX_LISTED = 20  # fields in a hint
MAX_SHOWN = 40  # characters of a value

_EXPECTED: Mapping[FieldType, str] = {
    FieldType.STRING: "a text",
    FieldType.INTEGER: "a whole number",
    FieldType.NUMBER: "a number",
    FieldType.BOOLEAN: "true or false",
    FieldType.TIMESTAMP: "a date or time such as 2026-12-05 or 2026-12-05T18:30:00Z",
    FieldType.DURATION: "a duration such as PT25M",
    FieldType.VECTOR: "a list of numbers",
    FieldType.OBJECT: "an object",
    FieldType.ARRAY: "a list",
}


def check_shape(collection: Collection, data: Mapping[str, Any]) -> None:
    """Raise InvalidParams for a value of another type than its field has, and for a field that is not to be kept.

    A collection without fields takes everything: its first item defines them. Null is always allowed.
    """
    if not collection.fields:
        return
    if collection.unknown == "refuse":
        _refuse_unknown(collection, data)
    for field in collection.fields.values():
        value = scalar_at(data, field.where)
        if value is not None and not field.accepts(value):
            raise _wrong_type(collection, field, value)


def _refuse_unknown(collection: Collection, data: Mapping[str, Any]) -> None:
    known = {top for field in collection.fields.values() for top in (field.where, field.where.split(".")[0])} - {ID}
    unknown = [name for name, value in data.items() if value is not None and name not in known]
    if unknown:
        listed = ", ".join(sorted(known)[:MAX_LISTED])
        raise InvalidParams(
            f"{collection.name} has no field {', '.join(repr(name[:128]) for name in unknown[:MAX_LISTED])}",
            collection=collection.name,
            param="input",
            field=unknown[0][:128],
            fields=[name[:128] for name in unknown],
            known=sorted(known),
            hint=nearest_hint(unknown[0], known)
            or f"Known fields: {listed}{', …' if len(known) > MAX_LISTED else '.'}",
        )


def _wrong_type(collection: Collection, field: Field, value: Any) -> InvalidParams:
    return InvalidParams(
        f"`{field.where}` must be {_EXPECTED[field.type]}, not {_describe(value)}",
        collection=collection.name,
        param=f"input.{field.where}",
        field=field.where,
        expected=field.type.value,
        got=type_name(value),
    )


def _describe(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"the text {_shorten(value)!r}"
        case int() | float():
            return f"the number {_shorten(str(value))}"
        case list():
            return f"a list of {len(cast('list[Any]', value))}"
        case _:
            return "an object"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
