"""The types of MCP-AQL: those of a site's collections, and those of every adapter. Knows no caller."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from portico.catalog import ID, Collection, Danger, Field, FieldType, Kind
from portico.field_names import FieldNames, index_names
from portico.operations import schema_of
from portico.protocols.aql.schemas import ANY, SchemaReader, TypeNames, pascal_case
from portico.protocols.aql.shapes import ParameterInfo, TypeDetails
from portico.safety.models import Directive, Execution, ExecutionState

# Names of JSON-LD that no path of MCP-AQL can have.
SCHEMA_NAMES: Mapping[str, str] = {"@type": "schema_type", "@id": "schema_id"}
# Names that need no alias: those of schema.org among them, although paths are in snake_case.
PLAIN = re.compile(r"(?:@type|@id|(?!_version\Z|_etag\Z|_computed\Z)[A-Za-z_][A-Za-z0-9_]{0,127})\Z")

# MCP-AQL's names for the site's types.
EXECUTION = "ExecutionInfo"
LOOP_NAMES: Mapping[str, str] = {
    "Directive": "AutonomyDirective",
    "Notification": "AgentNotification",
    "NotificationSubject": "NotificationMetadata",
    "RiskTier": "SafetyTier",
    "Execution": EXECUTION,
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
    """Return the type of an item in results."""
    described = collection.description or f"One of {collection.title or collection.name}."
    own = (
        ParameterInfo(name=ID, type="string", required=True, description="The item's id"),
        *_fields(collection),
        ParameterInfo(name="_etag", type="string", required=False, description="Its version, for if_match"),
        ParameterInfo(name="_version", type="string", required=False, description="Its version, bare"),
    )
    return TypeDetails(name=item_name(collection), kind="object", description=described, fields=own)


def input_type(collection: Collection) -> TypeDetails:
    """Return the type of an item in `input`."""
    is_open = collection.unknown == "keep" or not collection.fields
    others = "others are accepted too" if is_open else "others are refused"
    return TypeDetails(
        name=f"{item_name(collection)}Input",
        kind="object",
        description=f"Known fields; {others}. `id` is a parameter of its own.",
        fields=_fields(collection),
    )


def item_name(collection: Collection) -> str:
    """Return the type name of a collection's items."""
    name = pascal_case(collection.one)
    return f"{name}Item" if name in _RESERVED else name


def names_of(collection: Collection) -> FieldNames:
    """Return the names of a collection's fields, with aliases that paths of MCP-AQL can have."""
    return index_names(tuple(collection.fields), PLAIN)


def public_name(own: str, collection: Collection) -> str:
    """Return the name that introspection lists for a field."""
    return SCHEMA_NAMES.get(own) or names_of(collection).alias(own)


def _fields(collection: Collection) -> tuple[ParameterInfo, ...]:
    top_level = (field for field in collection.fields.values() if field.keys or "." not in field.name)
    return tuple(_field(field, public_name(field.name, collection)) for field in top_level if field.name != ID)


def _field(field: Field, name: str) -> ParameterInfo:
    is_own = name == field.name or field.name in SCHEMA_NAMES
    description = field.description if is_own else ": ".join(filter(None, (field.name, field.description)))
    info = {"name": name, "description": description, "required": False}
    return msgspec.convert({**info, **_FIELDS[field.type]}, ParameterInfo)


# Types of every adapter


def _object(name: str, description: str, **fields: str | tuple[str, str]) -> TypeDetails:
    """Return an object type by the types of its members. A question mark marks an optional member."""
    return TypeDetails(
        name=name,
        kind="object",
        description=description,
        fields=tuple(_member(member, kind) for member, kind in fields.items()),
    )


def _member(name: str, declared: str | tuple[str, str]) -> ParameterInfo:
    kind, description = (declared, "") if isinstance(declared, str) else declared
    element = kind.rstrip("?").removesuffix("[]")
    is_list = "[]" in kind
    return ParameterInfo(
        name=name,
        type="array" if is_list else element,
        required=not kind.endswith("?"),
        description=description,
        items={"type": element} if is_list else msgspec.UNSET,
    )


def _enum(name: str, description: str, *values: str) -> TypeDetails:
    return TypeDetails(name=name, kind="enum", description=description, values=values)


def _loop_types() -> Iterable[TypeDetails]:
    """Yield the types of the execution loop, from the types that validate them."""
    names = TypeNames()
    for kind in (Directive, Execution):
        reading = SchemaReader(schema_of(kind), "loop", names, LOOP_NAMES)
        reading.result_type()
        yield from reading.types.values()


INTROSPECTION = _object(
    "IntrospectionResult",
    "The requested description, and nothing else.",
    _protocol=("object?", "version, limits and capabilities; beside operations"),
    operations=("object[]?", "name, semantic_category, endpoint and description of each"),
    operation=("object?", "one operation in full; null if no operation has that name"),
    types=("object[]?", "name, kind and description of each"),
    type=("object?", "one type in full; null if no type has that name"),
    adapter="object?",
    quota_status="object?",
    policies="OperationPolicy[]?",
)

PROTOCOL: tuple[TypeDetails, ...] = (
    *_loop_types(),
    _enum("SemanticCategory", "What an operation does to the site.", *(kind.name for kind in Kind)),
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
        "The result of a successful operation.",
        success=("boolean", "true"),
        data=("any", "of the type that the operation returns"),
        warnings="OperationWarning[]?",
    ),
    _object(
        "OperationFailure",
        "The error of a failed operation.",
        success=("boolean", "false"),
        error="ErrorDetail",
        confirmation=("Confirmation?", "what to wait for, if the code is CONFIRMATION_REQUIRED"),
    ),
    _object("ErrorDetail", "", code=("string", "as in NOT_FOUND_RESOURCE"), message="string", details="object?"),
    _object(
        "Confirmation",
        "A call that somebody else has to approve. Repeat it with the token as `confirmation_token`.",
        token=("string", "as in conf_…"),
        expires_at="string",
        message="string?",
        reasons="string[]?",
    ),
    _object(
        "OperationWarning",
        "A note on a successful result that may differ from what the caller expects.",
        code="string",
        message="string",
        details="object?",
        severity=("string?", "low, medium or high"),
    ),
    _object("BatchInput", "Several requests in one, run in order.", operations="OperationInput[]"),
    _object(
        "BatchResult",
        "A batch halts at an operation that needs approval; send the pending ones again later.",
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
        "The position of a page in all results.",
        hasNextPage="boolean",
        hasPreviousPage="boolean",
        startCursor="string?",
        endCursor="string?",
        totalCount="integer?",
        pageSize="integer?",
    ),
    _enum("ExecutionStatus", "paused is to be read as running.", *get_args(ExecutionState)),
    _enum("DangerLevel", "How much harm a call can do.", *(danger.name.lower() for danger in Danger)),
    _object(
        "OperationPolicy",
        "The policy for calls of an operation. introspect with query policies lists them.",
        operation="string",
        danger="DangerLevel",
        permitted=("boolean", "whether the caller has the scope, and a danger limit that allows it"),
        decision=("string", "allow, confirm or deny, for a call of the caller without parameters"),
        rules=("object[]", "decision (allow, confirm, deny), reason, conditional"),
    ),
)
_RESERVED = frozenset(operation.name for operation in PROTOCOL)
