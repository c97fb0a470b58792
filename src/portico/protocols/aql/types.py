"""The types of MCP-AQL: those of a site's collections, and those that every adapter has. Knows no caller."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from portico.catalog import ID, Collection, Danger, Field, FieldType, Kind
from portico.operations import schema_of
from portico.protocols.aql.schemas import ANY, Names, Reading, pascal
from portico.protocols.aql.shapes import ParameterInfo, TypeDetails
from portico.safety.models import Directive, Execution, ExecutionState

# Names of JSON-LD that no path of MCP-AQL can have.
SCHEMA_NAMES: Mapping[str, str] = {"@type": "schema_type", "@id": "schema_id"}

# MCP-AQL's words for what the site calls otherwise.
EXECUTION = "ExecutionInfo"
LOOP_NAMES: Mapping[str, str] = {
    "Directive": "AutonomyDirective",
    "Notification": "AgentNotification",
    "About": "NotificationMetadata",
    "Tier": "SafetyTier",
    "Execution": EXECUTION,
    "Progress": "ExecutionProgress",
}

_FIELDS: Mapping[FieldType, Mapping[str, Any]] = {
    FieldType.STRING: {"type": "string"},
    FieldType.INTEGER: {"type": "integer"},
    FieldType.NUMBER: {"type": "number"},
    FieldType.BOOLEAN: {"type": "boolean"},
    FieldType.TIMESTAMP: {"type": "string", "format": "date-time"},
    FieldType.DURATION: {"type": "string", "format": "duration"},
    FieldType.VECTOR: {"type": "array", "items": {"type": "number"}},
    FieldType.OBJECT: {"type": "object"},
    FieldType.ARRAY: {"type": "array"},
    FieldType.ANY: {"type": ANY},
}


# Collections


def item_type(collection: Collection) -> TypeDetails:
    """An item as it is answered."""
    described = collection.description or f"One of {collection.title or collection.name}."
    own = (
        ParameterInfo(name=ID, type="string", required=True, description="The item's id"),
        *map(_field, _named(collection)),
        ParameterInfo(name="_etag", type="string", required=False, description="Its version, for if_match"),
        ParameterInfo(name="_version", type="string", required=False, description="Its version, bare"),
    )
    return TypeDetails(name=item_name(collection), kind="object", description=described, fields=own)


def input_type(collection: Collection) -> TypeDetails:
    """What can be said of an item. Fields that no item has had are taken too."""
    return TypeDetails(
        name=f"{item_name(collection)}Input",
        kind="object",
        description="Known fields; others are taken too. `id` is a parameter of its own.",
        fields=tuple(map(_field, _named(collection))),
    )


def item_name(collection: Collection) -> str:
    """The name of the type of a collection's items."""
    name = pascal(collection.one)
    return f"{name}Item" if name in _TAKEN else name


def _named(collection: Collection) -> list[Field]:
    return [each for each in collection.fields.values() if each.name != ID and "." not in each.name]


def _field(known: Field) -> ParameterInfo:
    told = {"name": SCHEMA_NAMES.get(known.name, known.name), "description": known.description, "required": False}
    return msgspec.convert({**told, **_FIELDS[known.type]}, ParameterInfo)


# What every adapter has


def _object(name: str, description: str, **fields: str | tuple[str, str]) -> TypeDetails:
    """A structure by the types of its members. A type with a question mark may be missing."""
    return TypeDetails(
        name=name,
        kind="object",
        description=description,
        fields=tuple(_member(each, told) for each, told in fields.items()),
    )


def _member(name: str, told: str | tuple[str, str]) -> ParameterInfo:
    kind, said = (told, "") if isinstance(told, str) else told
    element = kind.rstrip("?").removesuffix("[]")
    is_list = "[]" in kind
    return ParameterInfo(
        name=name,
        type="array" if is_list else element,
        required=not kind.endswith("?"),
        description=said,
        items={"type": element} if is_list else msgspec.UNSET,
    )


def _enumerated(name: str, description: str, *values: str) -> TypeDetails:
    return TypeDetails(name=name, kind="enum", description=description, values=values)


def _of_the_loop() -> Iterable[TypeDetails]:
    """The structures that agents are supervised with, from the types that check them."""
    names = Names()
    for each in (Directive, Execution):
        reading = Reading(schema_of(each), "loop", names, LOOP_NAMES)
        reading.returned()
        yield from reading.found.values()


INTROSPECTION = _object(
    "IntrospectionResult",
    "What was asked for, and nothing else.",
    _protocol=("object?", "version, limits and capabilities; beside operations"),
    operations=("object[]?", "name, semantic_category, endpoint and description of each"),
    operation=("object?", "all about one; null if there is none of that name"),
    types=("object[]?", "name, kind and description of each"),
    type=("object?", "all about one; null if there is none of that name"),
    adapter="object?",
    quota_status="object?",
    policies="OperationPolicy[]?",
)

PROTOCOL: tuple[TypeDetails, ...] = (
    *_of_the_loop(),
    _enumerated("SemanticCategory", "What an operation does to the site.", *(kind.name for kind in Kind)),
    _object(
        "OperationInput",
        "A request. Parameters may also stand beside `operation`; those in `params` win.",
        operation="string",
        params="object?",
    ),
    TypeDetails(
        name="OperationResult",
        kind="union",
        description="Every answer to one operation; `success` tells which.",
        members=("OperationSuccess", "OperationFailure"),
    ),
    _object(
        "OperationSuccess",
        "What an operation gave.",
        success=("boolean", "true"),
        data=("any", "of the type that the operation returns"),
        warnings="OperationWarning[]?",
    ),
    _object(
        "OperationFailure",
        "Why an operation gave nothing.",
        success=("boolean", "false"),
        error="ErrorDetail",
        confirmation=("Confirmation?", "what to wait for, if the code is CONFIRMATION_REQUIRED"),
    ),
    _object("ErrorDetail", "", code=("string", "as in NOT_FOUND_RESOURCE"), message="string", details="object?"),
    _object(
        "Confirmation",
        "A call that somebody else has to agree to. Repeat it with the token as `confirmation_token`.",
        token=("string", "as in conf_…"),
        expires_at="string",
        message="string?",
        reasons="string[]?",
    ),
    _object(
        "OperationWarning",
        "Something that went well, but not as the caller may think.",
        code="string",
        message="string",
        details="object?",
        severity=("string?", "low, medium or high"),
    ),
    _object("BatchInput", "Several requests in one, run in order.", operations="OperationInput[]"),
    _object(
        "BatchResult",
        "It halts where a confirmation is needed; send what is pending again, from there.",
        success="boolean",
        data=("any", "null"),
        results=("object[]", "index, operation and result of each"),
        summary=("object", "total, succeeded and failed; halted and pending if it halted"),
        halted_at="object?",
        pending_operations="object[]?",
    ),
    _object("EndpointPermissions", "What an endpoint may do.", readOnly="boolean", destructive="boolean"),
    _object(
        "PageInfo",
        "Where a page lies in all that was found.",
        hasNextPage="boolean",
        hasPreviousPage="boolean",
        startCursor="string?",
        endCursor="string?",
        totalCount="integer?",
        pageSize="integer?",
    ),
    _enumerated("ExecutionStatus", "paused is to be read as running.", *get_args(ExecutionState)),
    _enumerated("DangerLevel", "How much harm a call can do.", *(each.name.lower() for each in Danger)),
    _object(
        "OperationPolicy",
        "What is decided of calls of an operation. introspect with query policies lists them.",
        operation="string",
        danger="DangerLevel",
        permitted=("boolean", "whether the caller has the scope for it, and may risk that much"),
        decision=("string", "allow, confirm or deny: of a call without parameters by the caller"),
        rules=("object[]", "decision (allow, confirm, deny), reason, conditional"),
    ),
)
_TAKEN = frozenset(each.name for each in PROTOCOL)
