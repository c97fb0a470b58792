"""Validates the parameters of a request against the published ones of its operation. Knows no caller."""

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
    param_missing,
    quote,
    quote_list,
    unknown_fields,
    unknown_params,
    wrong_type,
)
from portico.protocols.aql.shapes import INPUT, TOKEN, AqlOperation, OperationWarning, ParameterInfo, TypeDetails
from portico.query import compile_pattern

OPERATION, OPERATIONS, PARAMS, ID = "operation", "operations", "params", "id"
LABELS = frozenset({"_meta", "_request_id"})  # labels of requests, which are no parameters
CLAMPED = frozenset({"first", "last"})  # reduced to their maximum
MAX_LABEL = 128  # characters
IGNORED = "VALIDATION_UNKNOWN_PARAM_WARNING"


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """A request for an operation that may not exist."""

    operation: str
    params: dict[str, Any]  # those in `params` override those beside it
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ValidatedParams:
    """The parameters for an operation, with defaults."""

    params: dict[str, Any]
    confirmation: str = ""
    warnings: tuple[OperationWarning, ...] = ()


def read_operation(request: Mapping[str, Any]) -> OperationRequest:
    name = request.get(OPERATION)
    if name is None:
        raise param_missing(OPERATION, "")
    if not isinstance(name, str):
        raise wrong_type(OPERATION, "string", type_name(name))
    inside = request.get(PARAMS)
    if not isinstance(inside, Mapping | None):
        raise wrong_type(PARAMS, "object", type_name(inside))
    beside = {key: value for key, value in request.items() if key not in {OPERATION, PARAMS}}
    params = {**beside, **cast("Mapping[str, Any]", inside or {})}
    return OperationRequest(name, params, label(params))


def label(request: Mapping[str, Any]) -> str:
    """Return the caller's label for a request."""
    value = request.get("_request_id")
    return value[:MAX_LABEL] if isinstance(value, str) else ""


def validate(request: OperationRequest, operation: AqlOperation, *, strict: bool) -> ValidatedParams:
    """Check unknown parameters, missing ones, types and constraints in the specification's order, then add defaults."""
    params_by_name = {param.name: param for param in operation.params}
    params, warnings = _split_unknown(
        _apply_aliases(request.params, operation, params_by_name), operation, params_by_name, strict=strict
    )
    # Null is the same as a missing value for an optional parameter.
    params = {name: value for name, value in params.items() if value is not None or params_by_name[name].required}
    missing = next((param.name for param in operation.params if param.required and param.name not in params), None)
    if missing:
        raise param_missing(missing, operation.name)
    _check_values([(params_by_name[name], value) for name, value in params.items()], operation)
    confirmation = "" if TOKEN not in params or params_by_name[TOKEN].required else str(params.pop(TOKEN))
    defaults = {param.name: param.default for param in operation.params if param.default is not UNSET}
    return ValidatedParams({**defaults, **params}, confirmation, warnings)


def _check_values(params: Sequence[tuple[ParameterInfo, Any]], operation: AqlOperation) -> None:
    # An operation of the catalog checks itself whether null will do for a required parameter.
    values = [
        (param, value)
        for param, value in params
        if value is not None or operation.operation is None or (param.name == INPUT and param.required)
    ]
    types = {details.name: details for details in operation.types}
    for param, value in values:
        _check_type(param, value, types)
    for param, value in values:
        _check_bounds(param, value)
    for param, value in values:
        if param.name == INPUT and isinstance(value, Mapping):
            _check_input(cast("Mapping[str, Any]", value), operation)


def _apply_aliases(
    params: Mapping[str, Any], operation: AqlOperation, params_by_name: Mapping[str, ParameterInfo]
) -> dict[str, Any]:
    """Replace aliases by the parameters' own names."""
    aliases = {**operation.aliases, **({"_confirmation": TOKEN} if TOKEN in params_by_name else {})}
    named_params = {name: value for name, value in params.items() if name not in aliases}
    for name, value in params.items():
        own = aliases.get(name)
        if own is None:
            continue
        if named_params.get(own, value) != value:
            message = f"Parameter {quote(own)} has two different values, one of them as {quote(name)}"
            raise Fault(
                INVALID_TYPE, message, param_name=own, expected_type="one value", actual_type="two different values"
            )
        named_params[own] = value
    return named_params


def _split_unknown(
    params: Mapping[str, Any], operation: AqlOperation, params_by_name: Mapping[str, ParameterInfo], *, strict: bool
) -> tuple[dict[str, Any], tuple[OperationWarning, ...]]:
    """Return the known parameters. Unknown ones that begin with an underscore only cause warnings."""
    others = [name for name in params if name not in params_by_name and name not in LABELS]
    unknown = [name for name in others if not name.startswith("_")]
    if unknown and strict:
        raise unknown_params(operation.name, unknown, params_by_name)
    known_params = {name: value for name, value in params.items() if name in params_by_name}
    return known_params, tuple(_warn_unknown(name, operation.name) for name in others)


def _warn_unknown(name: str, operation: str) -> OperationWarning:
    return OperationWarning(
        code=IGNORED,
        message=f"Operation {quote(operation)} has no parameter {quote(name)}; it was ignored",
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
    if not any(_is_of(choice.strip(), value, types) for choice in param.type.split("|")):
        raise wrong_type(param.name, param.type, type_name(value))
    inner = {} if isinstance(param.items, UnsetType) else param.items
    if isinstance(value, list | tuple) and isinstance(inner.get("type"), str):
        wrong = next((choice for choice in cast("list[Any]", value) if not _is_of(inner["type"], choice, types)), UNSET)
        if wrong is not UNSET:
            raise wrong_type(param.name, f"array of {inner['type']}", f"array with {type_name(wrong)}")


def _is_of(type: str, value: Any, types: Mapping[str, TypeDetails]) -> bool:
    """Return whether a value has a type. Types that are not known here are left to the operation."""
    if type in _IS:
        return _IS[type](value)
    details = types.get(type)
    match details.kind if details else None:
        case "enum":
            return (
                details is not None and details.values is not UNSET and value in cast("Iterable[Any]", details.values)
            )
        case "object":
            return isinstance(value, Mapping)
        case _:
            return True


# Constraints


def _check_bounds(param: ParameterInfo, value: Any) -> None:
    if not isinstance(param.enum, UnsetType) and value not in param.enum:
        raise _out_of_range(param, f"one of {quote_list(map(str, param.enum))}", value)
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
        raise _out_of_range(param, f"minimum {param.minimum:g}", value)
    if not isinstance(param.maximum, UnsetType) and value > param.maximum and param.name not in CLAMPED:
        raise _out_of_range(param, f"maximum {param.maximum:g}", value)


def _check_length(param: ParameterInfo, length: int, unit: str, value: Any) -> None:
    if not isinstance(param.min_length, UnsetType) and length < param.min_length:
        raise _out_of_range(param, f"minimum {param.min_length} {unit}", value)
    if not isinstance(param.max_length, UnsetType) and length > param.max_length:
        raise _out_of_range(param, f"maximum {param.max_length} {unit}", value)


def _check_text(param: ParameterInfo, value: str) -> None:
    if not isinstance(param.pattern, UnsetType) and not _matches(param.pattern, value):
        raise _out_of_range(param, f"pattern {param.pattern}", value)
    if not isinstance(param.format, UnsetType) and not _FORMATS.get(param.format, lambda _: True)(value):
        raise _out_of_range(param, param.format, value)


def _matches(pattern: str, value: str) -> bool:
    try:
        return compile_pattern(pattern).search(value) is not None
    except UnsafeRegex:
        return True  # the pattern cannot be matched in linear time


def _out_of_range(param: ParameterInfo, expected: str, value: Any) -> Fault:
    """Return the error for a value out of range. It repeats only numbers, and none of a sensitive parameter."""
    message = f"Parameter {quote(param.name)} out of range. Expected: {expected}"
    includes_value = isinstance(value, int | float) and not param.sensitive
    return Fault(
        INVALID_TYPE,
        message,
        param_name=param.name,
        expected_type=expected,
        actual_type=type_name(value),
        **({"value": value} if includes_value else {}),
    )


_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?\Z", re.ASCII)


def _is_date(value: str) -> bool:
    return _DATE.match(value) is not None and _parses(date.fromisoformat, value)


def _is_instant(value: str) -> bool:
    return _INSTANT.match(value) is not None and _parses(datetime.fromisoformat, value)


def _parses(reading: Callable[[str], object], value: str) -> bool:
    try:
        reading(value)
    except ValueError:
        return False
    return True


_FORMATS: Mapping[str, Callable[[str], bool]] = {"date": _is_date, "date-time": _is_instant}


# Input


def _check_input(data: Mapping[str, Any], operation: AqlOperation) -> None:
    """Raise for unknown fields in `input`, and for those that identify the resource and belong beside it."""
    valid = None if operation.input_fields is None else [field.name for field in operation.input_fields]
    if valid is not None:
        unknown = [name for name in data if name not in valid]
    else:
        identifiers = {ID}
        if operation.kind is Kind.UPDATE:
            identifiers.update(param.name for param in operation.params if param.required and param.name != INPUT)
        unknown = [name for name in data if name in identifiers]
    if unknown:
        raise unknown_fields(unknown, valid or ())
