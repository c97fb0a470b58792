"""What MCP-AQL says of operations and types, and what an operation is to this face. The structures are closed."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from portico.catalog import Kind, Operation
from portico.requests import Caller

VERSION = "1.0.0-draft"
INTROSPECT = "introspect"  # the operation that every adapter has
INPUT = "input"  # the parameter with what is to become of an item
TOKEN = "confirmation_token"  # noqa: S105 - names a parameter

TypeKind: TypeAlias = Literal["enum", "object", "scalar", "union"]


class ParameterInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One parameter of an operation, or one field of a type."""

    name: str
    type: str  # string, integer, number, boolean, object, array, or the name of a type
    required: bool = msgspec.field()
    description: str = ""
    default: Any = msgspec.UNSET
    enum: tuple[Any, ...] | msgspec.UnsetType = msgspec.UNSET
    minimum: float | msgspec.UnsetType = msgspec.UNSET
    maximum: float | msgspec.UnsetType = msgspec.UNSET
    min_length: int | msgspec.UnsetType = msgspec.UNSET
    max_length: int | msgspec.UnsetType = msgspec.UNSET
    pattern: str | msgspec.UnsetType = msgspec.UNSET
    format: str | msgspec.UnsetType = msgspec.UNSET
    items: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    sensitive: bool = False


class TypeInfo(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    kind: TypeKind
    description: str = ""


class TypeDetails(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    kind: TypeKind
    description: str = ""
    values: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    fields: tuple[ParameterInfo, ...] | msgspec.UnsetType = msgspec.UNSET
    members: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class Permissions(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    read_only: bool
    destructive: bool


class Example(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    description: str = ""
    request: dict[str, Any]


class ComputedFieldInfo(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    type: str
    description: str = ""
    filterable: bool = False
    sortable: bool = False


class AggregationSupport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    supported: bool
    default_mode: Literal["summary_only", "include_items"] | msgspec.UnsetType = msgspec.UNSET
    functions: tuple[str, ...] = ()
    groupable_fields: tuple[str, ...] = ()
    numeric_fields: tuple[str, ...] = ()


class RelationshipCapabilities(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    supported: bool
    directions: tuple[str, ...] = ()
    relationship_types: tuple[str, ...] = ()
    max_depth: int | msgspec.UnsetType = msgspec.UNSET


class LifecycleInfo(msgspec.Struct, frozen=True, kw_only=True):
    states: tuple[str, ...]
    supports_cancel: bool
    supports_retry: bool
    progress_reporting: bool


class OperationInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    semantic_category: str  # CREATE, READ, UPDATE, DELETE, EXECUTE
    endpoint: str  # the family, as in read
    description: str


class OperationDetails(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    semantic_category: str
    endpoint: str
    mcp_tool: str = msgspec.field(name="mcpTool")
    description: str
    permissions: Permissions
    parameters: tuple[ParameterInfo, ...] = msgspec.field()
    returns: TypeInfo
    examples: tuple[Example, ...] = ()
    computed_fields: tuple[ComputedFieldInfo, ...] = ()
    aggregation_support: AggregationSupport | msgspec.UnsetType = msgspec.UNSET
    relationship_capabilities: RelationshipCapabilities | msgspec.UnsetType = msgspec.UNSET
    lifecycle: LifecycleInfo | msgspec.UnsetType = msgspec.UNSET


class Warned(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that went well, but not as the caller may think."""

    code: str
    message: str
    details: dict[str, Any] = {}
    severity: Literal["low", "medium", "high"] = "medium"


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, and in which session of theirs."""

    caller: Caller
    session: str = ""
    request_id: str = ""  # what the caller calls this request: a label, never more
    confirmation: str = ""  # the token that came as confirmation_token


@dataclass(frozen=True, slots=True)
class Answered:
    """What an operation gave, in the words of this face."""

    data: Any
    warnings: tuple[Warned, ...] = ()
    untrusted: bool = False  # whether it has texts that others wrote, which may look like instructions


Run: TypeAlias = Callable[[Mapping[str, Any], Asking], Awaitable[Answered]]


@dataclass(frozen=True, slots=True)
class Offered:
    """An operation as MCP-AQL offers it. Its parameters are checked before it is run, and defaults are filled in."""

    name: str
    kind: Kind
    description: str
    params: tuple[ParameterInfo, ...]
    returns: TypeInfo
    run: Run
    operation: Operation | None = None  # of the catalog; None for what only this face has
    examples: tuple[Example, ...] = ()
    computed: tuple[ComputedFieldInfo, ...] = ()
    aggregation: AggregationSupport | None = None
    relationships: RelationshipCapabilities | None = None
    lifecycle: LifecycleInfo | None = None
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])  # other spellings of parameters
    input_fields: tuple[ParameterInfo, ...] | None = None  # what `input` may hold, if that is known and closed
    types: tuple[TypeDetails, ...] = ()  # that its parameters and result are made of
