"""Whether a request fits the operation it names: parameters as the operation takes them, or what is wrong with them.

What is published of an operation is what is checked. Runs nothing, and knows nobody.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, cast

from msgspec import UNSET, UnsetType

from portico.catalog import Kind
from portico.errors import UnsafeRegex
from portico.items import type_name
from portico.protocols.aql.envelopes import (
    INVALID_TYPE,
    Fault,
    listed,
    missing_param,
    quoted,
    unknown_fields,
    unknown_params,
    wrong_type,
)
from portico.protocols.aql.shapes import INPUT, TOKEN, Offered, ParameterInfo, TypeDetails, Warned
from portico.query import compiled

OPERATION, OPERATIONS, PARAMS, ID = "operation", "operations", "params", "id"
LABELS = frozenset({"_meta", "_request_id"})  # what callers call their requests: never more than a label
CLAMPED = frozenset({"first", "last"})  # what is too much of these is cut, not refused
MAX_LABEL = 128  # characters
IGNORED = "VALIDATION_UNKNOWN_PARAM_WARNING"


@dataclass(frozen=True, slots=True)
class Given:
    """A request for one operation, before anybody knows whether there is one."""

    operation: str
    params: dict[str, Any]  # where those in `params` beat those beside it
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """Parameters that an operation takes, with its defaults."""

    params: dict[str, Any]
    confirmation: str = ""
    warnings: tuple[Warned, ...] = ()


def given(request: Mapping[str, Any]) -> Given:
    name = request.get(OPERATION)
    if name is None:
        raise missing_param(OPERATION, "")
    if not isinstance(name, str):
        raise wrong_type(OPERATION, "string", type_name(name))
    inside = request.get(PARAMS)
    if not isinstance(inside, Mapping | None):
        raise wrong_type(PARAMS, "object", type_name(inside))
    beside = {key: value for key, value in request.items() if key not in {OPERATION, PARAMS}}
    params = {**beside, **cast("Mapping[str, Any]", inside or {})}
    return Given(name, params, label(params))


def label(request: Mapping[str, Any]) -> str:
    """What the caller calls a request."""
    said = request.get("_request_id")
    return said[:MAX_LABEL] if isinstance(said, str) else ""


def checked(request: Given, offered: Offered, *, strict: bool) -> Checked:
    """In the order of the specification: what is unknown, what is missing, types, constraints; then defaults."""
    known = {each.name: each for each in offered.params}
    params, warnings = _known(_named(request.params, offered, known), offered, known, strict=strict)
    # Null says that there is no value: where none is needed, it is as if nothing had been said.
    params = {name: value for name, value in params.items() if value is not None or known[name].required}
    missing = next((each.name for each in offered.params if each.required and each.name not in params), None)
    if missing:
        raise missing_param(missing, offered.name)
    _check_values([(known[name], value) for name, value in params.items()], offered)
    confirmation = "" if TOKEN not in params or known[TOKEN].required else str(params.pop(TOKEN))
    defaults = {each.name: each.default for each in offered.params if each.default is not UNSET}
    return Checked({**defaults, **params}, confirmation, warnings)


def _check_values(params: Sequence[tuple[ParameterInfo, Any]], offered: Offered) -> None:
    # Whether null will do for what is required, an operation of the catalog says itself.
    said = [
        (param, value)
        for param, value in params
        if value is not None or offered.operation is None or (param.name == INPUT and param.required)
    ]
    types = {each.name: each for each in offered.types}
    for param, value in said:
        _check_type(param, value, types)
    for param, value in said:
        _check_bounds(param, value)
    for param, value in said:
        if param.name == INPUT and isinstance(value, Mapping):
            _check_input(cast("Mapping[str, Any]", value), offered)


def _named(params: Mapping[str, Any], offered: Offered, known: Mapping[str, ParameterInfo]) -> dict[str, Any]:
    """Parameters by their own names, whatever spelling they came in."""
    aliases = {**offered.aliases, **({"_confirmation": TOKEN} if TOKEN in known else {})}
    found = {name: value for name, value in params.items() if name not in aliases}
    for name, value in params.items():
        own = aliases.get(name)
        if own is None:
            continue
        if found.get(own, value) != value:
            said = f"Parameter {quoted(own)} came twice with different values, also as {quoted(name)}"
            raise Fault(
                INVALID_TYPE, said, param_name=own, expected_type="one value", actual_type="two different values"
            )
        found[own] = value
    return found


def _known(
    params: Mapping[str, Any], offered: Offered, known: Mapping[str, ParameterInfo], *, strict: bool
) -> tuple[dict[str, Any], tuple[Warned, ...]]:
    """The parameters that there are. Whatever begins with an underscore and is none is only warned of."""
    others = [name for name in params if name not in known and name not in LABELS]
    unknown = [name for name in others if not name.startswith("_")]
    if unknown and strict:
        raise unknown_params(offered.name, unknown, known)
    found = {name: value for name, value in params.items() if name in known}
    return found, tuple(_ignored(name, offered.name) for name in others)


def _ignored(name: str, operation: str) -> Warned:
    return Warned(
        code=IGNORED,
        message=f"Parameter {quoted(name)} is unknown to operation {quoted(operation)} and was ignored",
        details={"param_name": name, "operation": operation},
        severity="low",
    )


# Types

_IS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in {int, float},
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "null": lambda value: value is None,
}


def _check_type(param: ParameterInfo, value: Any, types: Mapping[str, TypeDetails]) -> None:
    if not any(_is_of(each.strip(), value, types) for each in param.type.split("|")):
        raise wrong_type(param.name, param.type, type_name(value))
    inner = {} if isinstance(param.items, UnsetType) else param.items
    if isinstance(value, list | tuple) and isinstance(inner.get("type"), str):
        wrong = next((each for each in cast("list[Any]", value) if not _is_of(inner["type"], each, types)), UNSET)
        if wrong is not UNSET:
            raise wrong_type(param.name, f"array of {inner['type']}", f"array with {type_name(wrong)}")


def _is_of(type: str, value: Any, types: Mapping[str, TypeDetails]) -> bool:
    """Whether a value is of a type. Of types that are not known here the operation itself will say."""
    if type in _IS:
        return _IS[type](value)
    known = types.get(type)
    match known.kind if known else None:
        case "enum":
            return known is not None and known.values is not UNSET and value in cast("Iterable[Any]", known.values)
        case "object":
            return isinstance(value, Mapping)
        case _:
            return True


# Constraints


def _check_bounds(param: ParameterInfo, value: Any) -> None:
    if not isinstance(param.enum, UnsetType) and value not in param.enum:
        raise _outside(param, f"one of {listed(map(str, param.enum))}", value)
    match value:
        case bool():
            pass
        case int() | float():
            _check_number(param, value)
        case str():
            _check_length(param, len(value), "characters", value)
            _check_text(param, value)
        case list() | tuple():
            _check_length(param, len(cast("list[Any]", value)), "elements", value)
        case _:
            pass


def _check_number(param: ParameterInfo, value: float) -> None:
    if not isinstance(param.minimum, UnsetType) and value < param.minimum:
        raise _outside(param, f"minimum {param.minimum:g}", value)
    if not isinstance(param.maximum, UnsetType) and value > param.maximum and param.name not in CLAMPED:
        raise _outside(param, f"maximum {param.maximum:g}", value)


def _check_length(param: ParameterInfo, length: int, unit: str, value: Any) -> None:
    if not isinstance(param.min_length, UnsetType) and length < param.min_length:
        raise _outside(param, f"minimum {param.min_length} {unit}", value)
    if not isinstance(param.max_length, UnsetType) and length > param.max_length:
        raise _outside(param, f"maximum {param.max_length} {unit}", value)


def _check_text(param: ParameterInfo, value: str) -> None:
    if not isinstance(param.pattern, UnsetType) and not _fits(param.pattern, value):
        raise _outside(param, f"pattern {param.pattern}", value)
    if not isinstance(param.format, UnsetType) and not _FORMATS.get(param.format, _anything)(value):
        raise _outside(param, param.format, value)


def _fits(pattern: str, value: str) -> bool:
    try:
        return compiled(pattern).search(value) is not None
    except UnsafeRegex:
        return True  # a pattern that cannot be tested in linear time


def _outside(param: ParameterInfo, expected: str, value: Any) -> Fault:
    """Outside of what is allowed. Only plain values are told again, and none of a sensitive parameter."""
    said = f"Parameter {quoted(param.name)} out of range. Expected: {expected}"
    is_shown = isinstance(value, int | float) and not param.sensitive
    return Fault(
        INVALID_TYPE,
        said,
        param_name=param.name,
        expected_type=expected,
        actual_type=type_name(value),
        **({"value": value} if is_shown else {}),
    )


_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?\Z", re.ASCII)


def _is_date(value: str) -> bool:
    return _DATE.match(value) is not None and _is_read(date.fromisoformat, value)


def _is_instant(value: str) -> bool:
    return _INSTANT.match(value) is not None and _is_read(datetime.fromisoformat, value)


def _is_read(reading: Callable[[str], object], value: str) -> bool:
    try:
        reading(value)
    except ValueError:
        return False
    return True


def _anything(_: str) -> bool:
    return True


_FORMATS: Mapping[str, Callable[[str], bool]] = {"date": _is_date, "date-time": _is_instant}


# What is made or changed


def _check_input(data: Mapping[str, Any], offered: Offered) -> None:
    """Fields are those of the resource; what names the resource stands beside them."""
    valid = None if offered.input_fields is None else [each.name for each in offered.input_fields]
    if valid is not None:
        unknown = [name for name in data if name not in valid]
    else:
        unknown = [name for name in data if name in _identifiers(offered)]
    if unknown:
        raise unknown_fields(unknown, valid or ())


def _identifiers(offered: Offered) -> set[str]:
    if offered.kind is not Kind.UPDATE:
        return {ID}
    return {ID, *(each.name for each in offered.params if each.required and each.name != INPUT)}
