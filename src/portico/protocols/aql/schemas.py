"""Turns JSON Schemas into MCP-AQL's parameters and types. Knows no operation, collection or caller."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, cast

from portico.protocols.aql.shapes import ParameterInfo, TypeDetails, TypeInfo, TypeKind

ANY = "any"  # a value of any kind
IS_SNAKE = re.compile(r"[a-z][a-z0-9_]*\Z")

_NUMBERS = (int, float)
_COPIED_KEYWORDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "minimum": ("minimum", _NUMBERS),
    "maximum": ("maximum", _NUMBERS),
    "minLength": ("min_length", (int,)),
    "maxLength": ("max_length", (int,)),
    "pattern": ("pattern", (str,)),
    "format": ("format", (str,)),
}
_DESCRIBED_KEYWORDS = {
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "minItems": "{} or more elements",
    "maxItems": "{} or fewer elements",
}
_TYPES = {
    type(None): "null",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
}


def scalar(name: str, description: str) -> TypeDetails:
    return TypeDetails(name=name, kind="scalar", description=description)


PLAIN: Mapping[str, TypeDetails] = {
    ANY: scalar("Json", "Any JSON value."),
    "object": TypeDetails(name="JsonObject", kind="object", description="An object with any members.", fields=()),
    "string": scalar("String", "UTF-8 text."),
    "integer": scalar("Integer", "An integer; beyond 2^53 - 1 it loses precision."),
    "number": scalar("Number", "A double-precision number."),
    "boolean": scalar("Boolean", "true or false."),
    "null": scalar("Null", "null, always."),
}


# Names


def snake_case(name: str) -> str:
    """Return a name in snake_case, as parameters need it."""
    if IS_SNAKE.match(name):
        return name
    parted = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name)
    plain = re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")
    return plain if IS_SNAKE.match(plain) else f"p_{plain}".rstrip("_")


def snake_case_names(names: Iterable[str]) -> dict[str, str]:
    """Map unique snake_case names to the original ones. Names that already are in snake_case stay."""
    every = list(names)
    used = {name for name in every if IS_SNAKE.match(name)}
    names_by_offered: dict[str, str] = {}
    for name in every:
        plain = snake_case(name)
        numbered = (f"{plain}_{number}" for number in count(2))
        unique = (
            name
            if name in used
            else next(candidate for candidate in chain((plain,), numbered) if candidate not in used)
        )
        used.add(unique)
        names_by_offered[unique] = name
    return names_by_offered


def pascal_case(name: str) -> str:
    """Return a name in PascalCase, as types need it."""
    return "".join(part[:1].upper() + part[1:] for part in snake_case(name).split("_"))


def info_of(details: TypeDetails) -> TypeInfo:
    return TypeInfo(name=details.name, kind=details.kind, description=details.description)


# Schemas


class TypeNames:
    """The type names of one catalog. A second structure of the same name is prefixed with its owner's."""

    def __init__(self, types: Iterable[TypeDetails] = ()) -> None:
        self._taken: dict[str, Any] = {details.name: details for details in types}

    def claim(self, name_: str, owner: str, structure: Any) -> str:
        for name in (name_, pascal_case(owner) + name_):
            if self._taken.setdefault(name, structure) == structure:
                return name
        return self.claim(f"{name_}_", owner, structure)


@dataclass(slots=True)
class SchemaReader:
    """Reads one schema into parameters. Named and nested schemas become types."""

    schema: Mapping[str, Any]
    owner: str  # the operation that it belongs to
    names: TypeNames
    type_names: Mapping[str, str] = field(default_factory=dict[str, str])  # other names for types
    known_types: Mapping[str, TypeDetails] = field(default_factory=dict[str, TypeDetails])  # described elsewhere
    types: dict[str, TypeDetails] = field(default_factory=dict[str, TypeDetails])
    _refs: dict[str, str] = field(default_factory=dict[str, str])

    def parameters(self) -> tuple[ParameterInfo, ...]:
        """Return the properties of the schema, under their own names."""
        return self._members(self._resolve(self.schema))

    def result_type(self) -> TypeInfo:
        """Return the type of the schema; a list becomes a scalar of its own."""
        shape = _without_null(self.schema)
        kind = self._type(shape, f"{self.owner}_result")
        if kind in self.types:
            return info_of(self.types[kind])
        if kind == "array":
            element = self._type(_as_mapping(shape.get("items")), f"{self.owner}_element")
            details = TypeDetails(
                name=f"{pascal_case(element)}List", kind="scalar", description=f"An array; each element is {element}."
            )
        else:
            details = PLAIN.get(kind, PLAIN[ANY])
        self.types[details.name] = details
        return info_of(details)

    def _members(self, shape: Mapping[str, Any]) -> tuple[ParameterInfo, ...]:
        declared = shape.get("required")
        required = cast("list[str]", declared) if isinstance(declared, list) else []
        members = _as_mapping(shape.get("properties"))
        return tuple(self._parameter(name, _as_mapping(member), name in required) for name, member in members.items())

    def _parameter(self, name: str, declared: Mapping[str, Any], required: bool) -> ParameterInfo:
        shape = _without_null(declared)
        whole = self._resolve(shape)
        more: dict[str, Any] = {
            own: whole[word] for word, (own, kinds) in _COPIED_KEYWORDS.items() if type(whole.get(word)) in kinds
        }
        if enum := _enum(whole):
            more["enum"] = enum
        if "items" in whole:
            more["items"] = self._element(_without_null(_as_mapping(whole["items"])), name)
        if "default" in declared:
            more["default"] = declared["default"]
        description_ = str(declared.get("description") or shape.get("description") or "")
        bounds = [
            text.format(whole[word]) for word, text in _DESCRIBED_KEYWORDS.items() if type(whole.get(word)) in _NUMBERS
        ]
        description = "; ".join(filter(None, (description_, *bounds)))
        kind = self._type(shape, name)
        return ParameterInfo(name=name, type=kind, required=required, description=description, **more)

    def _element(self, shape: Mapping[str, Any], name: str) -> dict[str, Any]:
        enum = _enum(self._resolve(shape))
        return {"type": self._type(shape, name), **({"enum": list(enum)} if enum else {})}

    def _type(self, shape: Mapping[str, Any], name: str) -> str:
        """Return the type name of a value: a JSON type, or one that is added to `types`."""
        reference = str(shape.get("$ref", ""))
        if reference:
            return self._type_of_reference(reference, name)
        choices = _choices(shape)
        if len(choices) > 1:
            members = tuple(dict.fromkeys(self._type(choice, name) for choice in choices))
            return members[0] if len(members) == 1 else self._add_type(name, shape, "union", members=members)
        if shape.get("properties"):
            return self._add_type(str(shape.get("title") or name), shape, "object")
        kind = shape.get("type")
        if kind in _TYPES.values():
            return str(kind)
        return next((_TYPES.get(cast("Any", type(choice)), ANY) for choice in _enum(shape)), ANY)

    def _type_of_reference(self, reference: str, name: str) -> str:
        if reference in self._refs:
            return self._refs[reference]
        shape = self._resolve({"$ref": reference})
        last = reference.rsplit("/", 1)[-1]
        if (known_type := self.known_types.get(self.type_names.get(last, ""))) is not None:
            self.types[known_type.name] = known_type
            return known_type.name
        if shape.get("properties"):
            return self._add_type(last, shape, "object", reference)
        enum = _enum(shape)
        if enum and all(isinstance(value, str) for value in enum):
            return self._add_type(last, shape, "enum", reference, values=enum)
        return self._type(shape, name)

    def _add_type(self, name: str, shape: Mapping[str, Any], kind: TypeKind, reference: str = "", **more: Any) -> str:
        """Name a structure before reading its fields, since it may contain itself."""
        structure = (kind, shape, self._closure(shape))
        claimed = self.names.claim(pascal_case(self.type_names.get(name, name)), self.owner, structure)
        if reference:
            self._refs[reference] = claimed
        fields = {"fields": self._members(shape)} if kind == "object" else {}
        description = str(shape.get("description", ""))
        self.types[claimed] = TypeDetails(name=claimed, kind=kind, description=description, **fields, **more)
        return claimed

    def _resolve(self, shape: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follow references; empty for one that leads nowhere."""
        for _ in range(8):
            reference = shape.get("$ref")
            if not isinstance(reference, str):
                return shape
            shape = self._at(reference)
        return {}

    def _at(self, reference: str) -> Mapping[str, Any]:
        value: Any = self.schema
        for step in reference.removeprefix("#/").split("/"):
            value = _as_mapping(value).get(step)
        return _as_mapping(value)

    def _closure(self, shape: Any) -> dict[str, Any]:
        """Return all that a structure refers to, which has to be equal too for two structures to be the same."""
        reached: dict[str, Any] = {}
        waiting = list(_references(shape))
        while waiting:
            reference = waiting.pop()
            if reference not in reached:
                reached[reference] = self._at(reference)
                waiting.extend(_references(reached[reference]))
        return reached


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        schema = cast("Mapping[str, Any]", value)
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        value = list(schema.values())
    if isinstance(value, list):
        for element in cast("list[Any]", value):
            yield from _references(element)


def _choices(shape: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives of a schema, without null."""
    for word in ("anyOf", "oneOf"):
        if isinstance(shape.get(word), list):
            return [_as_mapping(choice) for choice in shape[word] if _as_mapping(choice).get("type") != "null"]
    kinds = shape.get("type")
    if isinstance(kinds, list):
        return [{**shape, "type": kind} for kind in cast("list[str]", kinds) if kind != "null"]
    return []


def _without_null(shape: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the only alternative besides null, if there is just one."""
    choices = _choices(shape)
    return choices[0] if len(choices) == 1 else shape


def _enum(shape: Mapping[str, Any]) -> tuple[Any, ...]:
    if "const" in shape:
        return (shape["const"],)
    values = shape.get("enum")
    return tuple(cast("list[Any]", values)) if isinstance(values, list) else ()
