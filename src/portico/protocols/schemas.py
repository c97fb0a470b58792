"""The JSON Schema of a wire type without references, as tools and people read it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, Any]

_UNSAID = frozenset({"title", "default"})  # the name of a class, and that what is left out is not there


def whole_schema(kind: Any, required: Sequence[str] = ()) -> Schema:
    """Return the schema of a type without references. It leaves out what parsing merely tolerates, such as null.

    `required` names members that the parser checks itself, to explain what is missing.
    """
    (root,), parts = msgspec.json.schema_components((kind,), ref_template="{name}")
    schema = _simple(root, parts)
    return {**schema, "required": list(required)} if required else schema


def _simple(schema: Schema, parts: Mapping[str, Schema]) -> Schema:
    simplified = {name: value for name, value in schema.items() if name not in _UNSAID and value != []}
    if "$ref" in simplified:
        # Docstrings are for readers of the code.
        inner = {name: value for name, value in parts[simplified.pop("$ref")].items() if name != "description"}
        return {**_simple(inner, parts), **simplified}
    if "anyOf" in simplified:
        options = simplified.pop("anyOf")
        if "type" in simplified:  # the one published form of several that are accepted
            return simplified
        values = [_simple(part, parts) for part in options if part != {"type": "null"}]
        # Not every client knows lists of types, so several options allow anything.
        return {**(values[0] if len(values) == 1 else {}), **simplified}
    if "items" in simplified:
        simplified["items"] = _simple(simplified["items"], parts)
    if isinstance(simplified.get("additionalProperties"), dict):
        simplified["additionalProperties"] = _simple(simplified["additionalProperties"], parts)
    if "properties" in simplified:
        simplified["properties"] = {name: _simple(part, parts) for name, part in simplified["properties"].items()}
    return simplified
