"""JSON Schemas as MCP-AQL's parameters and types. Knows no operation, no collection and no caller."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, cast

from portico.protocols.aql.shapes import ParameterInfo, TypeDetails, TypeInfo, TypeKind

ANY = "any"  # a value of any kind
IS_SNAKE = re.compile(r"[a-z][a-z0-9_]*\Z")

_NUMBERS = (int, float)
_KEPT: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "minimum": ("minimum", _NUMBERS),
    "maximum": ("maximum", _NUMBERS),
    "minLength": ("min_length", (int,)),
    "maxLength": ("max_length", (int,)),
    "pattern": ("pattern", (str,)),
    "format": ("format", (str,)),
}
_SAID = {
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
    "string": scalar("String", "A text in UTF-8."),
    "integer": scalar("Integer", "A whole number; beyond 2^53 - 1 it loses precision."),
    "number": scalar("Number", "A number of double precision."),
    "boolean": scalar("Boolean", "true or false."),
    "null": scalar("Null", "null, always."),
}


# Names


def snake(name: str) -> str:
    """A name as parameters must be called."""
    if IS_SNAKE.match(name):
        return name
    parted = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name)
    plain = re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")
    return plain if IS_SNAKE.match(plain) else f"p_{plain}".rstrip("_")


def snaked(names: Iterable[str]) -> dict[str, str]:
    """By the name to offer, the name that a parameter has. Names that are as they should be are kept."""
    every = list(names)
    taken = {name for name in every if IS_SNAKE.match(name)}
    found: dict[str, str] = {}
    for name in every:
        wanted = snake(name)
        numbered = (f"{wanted}_{number}" for number in count(2))
        offered = name if name in taken else next(each for each in chain((wanted,), numbered) if each not in taken)
        taken.add(offered)
        found[offered] = name
    return found


def pascal(name: str) -> str:
    """A name as types are called."""
    return "".join(part[:1].upper() + part[1:] for part in snake(name).split("_"))


def info_of(details: TypeDetails) -> TypeInfo:
    return TypeInfo(name=details.name, kind=details.kind, description=details.description)


# Schemas


class Names:
    """Type names of one catalog. Each stands for one structure; another of the same name is named after its owner."""

    def __init__(self, taken: Iterable[TypeDetails] = ()) -> None:
        self._taken: dict[str, Any] = {each.name: each for each in taken}

    def claim(self, wanted: str, owner: str, structure: Any) -> str:
        for name in (wanted, pascal(owner) + wanted):
            if self._taken.setdefault(name, structure) == structure:
                return name
        return self.claim(f"{wanted}_", owner, structure)


@dataclass(slots=True)
class Reading:
    """One schema on its way to parameters. What it names, or nests, becomes a type."""

    schema: Mapping[str, Any]
    owner: str  # the operation that it belongs to
    names: Names
    words: Mapping[str, str] = field(default_factory=dict[str, str])  # other names for types
    known: Mapping[str, TypeDetails] = field(default_factory=dict[str, TypeDetails])  # that are told elsewhere
    found: dict[str, TypeDetails] = field(default_factory=dict[str, TypeDetails])
    _refs: dict[str, str] = field(default_factory=dict[str, str])

    def parameters(self) -> tuple[ParameterInfo, ...]:
        """The members of the schema itself, under the names they have in it."""
        return self._members(self._resolved(self.schema))

    def returned(self) -> TypeInfo:
        """The type of what the schema describes; a list is told as a scalar of its own."""
        shape = _without_null(self.schema)
        kind = self._type(shape, f"{self.owner}_result")
        if kind in self.found:
            return info_of(self.found[kind])
        if kind == "array":
            element = self._type(_mapping(shape.get("items")), f"{self.owner}_element")
            named = TypeDetails(
                name=f"{pascal(element)}List", kind="scalar", description=f"An array; each element is {element}."
            )
        else:
            named = PLAIN.get(kind, PLAIN[ANY])
        self.found[named.name] = named
        return info_of(named)

    def _members(self, shape: Mapping[str, Any]) -> tuple[ParameterInfo, ...]:
        told = shape.get("required")
        required = cast("list[str]", told) if isinstance(told, list) else []
        members = _mapping(shape.get("properties"))
        return tuple(self._parameter(name, _mapping(each), name in required) for name, each in members.items())

    def _parameter(self, name: str, told: Mapping[str, Any], required: bool) -> ParameterInfo:
        shape = _without_null(told)
        whole = self._resolved(shape)
        more: dict[str, Any] = {
            own: whole[word] for word, (own, kinds) in _KEPT.items() if type(whole.get(word)) in kinds
        }
        if enum := _enum(whole):
            more["enum"] = enum
        if "items" in whole:
            more["items"] = self._element(_without_null(_mapping(whole["items"])), name)
        if "default" in told:
            more["default"] = told["default"]
        said = str(told.get("description") or shape.get("description") or "")
        bounds = [text.format(whole[word]) for word, text in _SAID.items() if type(whole.get(word)) in _NUMBERS]
        description = "; ".join(filter(None, (said, *bounds)))
        kind = self._type(shape, name)
        return ParameterInfo(name=name, type=kind, required=required, description=description, **more)

    def _element(self, shape: Mapping[str, Any], name: str) -> dict[str, Any]:
        enum = _enum(self._resolved(shape))
        return {"type": self._type(shape, name), **({"enum": list(enum)} if enum else {})}

    def _type(self, shape: Mapping[str, Any], name: str) -> str:
        """What a value is called: a kind of JSON, or a type that is noted on the way."""
        reference = str(shape.get("$ref", ""))
        if reference:
            return self._referred(reference, name)
        choices = _choices(shape)
        if len(choices) > 1:
            members = tuple(dict.fromkeys(self._type(each, name) for each in choices))
            return members[0] if len(members) == 1 else self._noted(name, shape, "union", members=members)
        if shape.get("properties"):
            return self._noted(str(shape.get("title") or name), shape, "object")
        kind = shape.get("type")
        if kind in _TYPES.values():
            return str(kind)
        return next((_TYPES.get(cast("Any", type(each)), ANY) for each in _enum(shape)), ANY)

    def _referred(self, reference: str, name: str) -> str:
        if reference in self._refs:
            return self._refs[reference]
        shape = self._resolved({"$ref": reference})
        last = reference.rsplit("/", 1)[-1]
        if (known := self.known.get(self.words.get(last, ""))) is not None:
            self.found[known.name] = known
            return known.name
        if shape.get("properties"):
            return self._noted(last, shape, "object", reference)
        enum = _enum(shape)
        if enum and all(isinstance(each, str) for each in enum):
            return self._noted(last, shape, "enum", reference, values=enum)
        return self._type(shape, name)

    def _noted(self, name: str, shape: Mapping[str, Any], kind: TypeKind, reference: str = "", **more: Any) -> str:
        """Give a structure its name, then say what it is made of: it may be made of itself."""
        structure = (kind, shape, self._closure(shape))
        claimed = self.names.claim(pascal(self.words.get(name, name)), self.owner, structure)
        if reference:
            self._refs[reference] = claimed
        fields = {"fields": self._members(shape)} if kind == "object" else {}
        said = str(shape.get("description", ""))
        self.found[claimed] = TypeDetails(name=claimed, kind=kind, description=said, **fields, **more)
        return claimed

    def _resolved(self, shape: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a reference stands for; nothing where it leads nowhere."""
        for _ in range(8):
            reference = shape.get("$ref")
            if not isinstance(reference, str):
                return shape
            shape = self._at(reference)
        return {}

    def _at(self, reference: str) -> Mapping[str, Any]:
        value: Any = self.schema
        for step in reference.removeprefix("#/").split("/"):
            value = _mapping(value).get(step)
        return _mapping(value)

    def _closure(self, shape: Any) -> dict[str, Any]:
        """Everything that a structure refers to, directly or not: only if that is the same too, two are the same."""
        reached: dict[str, Any] = {}
        waiting = list(_references(shape))
        while waiting:
            reference = waiting.pop()
            if reference not in reached:
                reached[reference] = self._at(reference)
                waiting.extend(_references(reached[reference]))
        return reached


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        told = cast("Mapping[str, Any]", value)
        if isinstance(told.get("$ref"), str):
            yield told["$ref"]
        value = list(told.values())
    if isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _references(each)


def _choices(shape: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a value may be, other than null."""
    for word in ("anyOf", "oneOf"):
        if isinstance(shape.get(word), list):
            return [_mapping(each) for each in shape[word] if _mapping(each).get("type") != "null"]
    kinds = shape.get("type")
    if isinstance(kinds, list):
        return [{**shape, "type": kind} for kind in cast("list[str]", kinds) if kind != "null"]
    return []


def _without_null(shape: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one thing that a value may be besides null, if it is one."""
    choices = _choices(shape)
    return choices[0] if len(choices) == 1 else shape


def _enum(shape: Mapping[str, Any]) -> tuple[Any, ...]:
    if "const" in shape:
        return (shape["const"],)
    told = shape.get("enum")
    return tuple(cast("list[Any]", told)) if isinstance(told, list) else ()
