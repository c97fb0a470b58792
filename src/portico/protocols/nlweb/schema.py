"""The JSON Schema of a wire type in one piece, as tools and people read it. Knows no type by itself."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, Any]

_UNSAID = frozenset({"title", "default"})  # the name of a class, and that what is left out is not there


def whole_schema(kind: Any, required: Sequence[str] = ()) -> Schema:
    """The schema of a type without references. What reading it forgives is not told, such as null.

    `required` names members that are read leniently, so that somebody who leaves them out is told what to do.
    """
    (shown,), parts = msgspec.json.schema_components((kind,), ref_template="{name}")
    schema = _simple(shown, parts)
    return {**schema, "required": list(required)} if required else schema


def _simple(schema: Schema, parts: Mapping[str, Schema]) -> Schema:
    said = {name: value for name, value in schema.items() if name not in _UNSAID and value != []}
    if "$ref" in said:
        # A docstring is for who reads the code.
        inner = {name: value for name, value in parts[said.pop("$ref")].items() if name != "description"}
        return {**_simple(inner, parts), **said}
    if "anyOf" in said:
        options = said.pop("anyOf")
        if "type" in said:  # said beside it: the way that is told of several that are read
            return said
        return {**_one([_simple(each, parts) for each in options if each != {"type": "null"}]), **said}
    if "items" in said:
        said["items"] = _simple(said["items"], parts)
    if isinstance(said.get("additionalProperties"), dict):
        said["additionalProperties"] = _simple(said["additionalProperties"], parts)
    if "properties" in said:
        said["properties"] = {name: _simple(each, parts) for name, each in said["properties"].items()}
    return said


def _one(options: list[Schema]) -> Schema:
    """Options as one schema. Not every reader knows lists of types, so of several nothing is said but that."""
    return options[0] if len(options) == 1 else {}
