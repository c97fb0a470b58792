"""Checks what a caller writes against the fields that a collection publishes. Knows no database."""

from collections.abc import Mapping
from typing import Any, cast

from portico.catalog import ID, Collection, Field, FieldType, nearest_hint
from portico.errors import InvalidParams
from portico.field_names import problem_with_name
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


def _use_own_names(collection: Collection, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a caller writes under the fields' own names. Raise InvalidParams for two values of one field."""
    if all(name in collection.fields or name == ID for name in data):
        return data
    renamed: dict[str, Any] = {}
    used: dict[str, str] = {}  # names as they were written, by own names
    for name, value in data.items():
        is_own = name in collection.fields or name == ID
        own = name if is_own else collection.names.find(name) or name
        if own in used:
            raise InvalidParams(
                f"`{_shorten(used[own])}` and `{_shorten(name)}` are one field, {_shorten(own)!r}",
                collection=collection.name,
                param="input",
                field=own,
                hint="Write the field once.",
            )
        used[own] = name
        renamed[own] = value
    return renamed


def check_shape(collection: Collection, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a caller writes under the fields' own names.

    Raise InvalidParams for a value of another type than its field has, and for a field that is not to be kept. A
    collection without fields takes everything: its first item defines them. Null is always allowed.
    """
    data = _use_own_names(collection, data)
    _refuse_names(collection, data)
    if not collection.fields:
        return data
    if collection.unknown == "refuse":
        _refuse_unknown(collection, data)
    for field in collection.fields.values():
        value = field.value(data)
        if value is not None and not field.accepts(value):
            raise _wrong_type(collection, field, value)
    return data


def _refuse_names(collection: Collection, data: Mapping[str, Any]) -> None:
    """Raise InvalidParams for a name that no field can have. Those that loads have stored may stay."""
    for name, value in data.items():
        problem = None if value is None or name in collection.fields else problem_with_name(name)
        if problem:
            raise InvalidParams(
                f"{_shorten(name)!r} cannot be the name of a field: {problem}",
                collection=collection.name,
                param="input",
                field=_shorten(name),
            )


def _refuse_unknown(collection: Collection, data: Mapping[str, Any]) -> None:
    known = {top for field in collection.fields.values() for top in (field.where, field.steps[0])} - {ID}
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
