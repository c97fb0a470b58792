"""MCP-AQL's descriptions of operations and types (closed schemas), and the operations themselves."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from portico.catalog import Kind, Operation
from portico.requests import Caller

VERSION = "1.0.0-draft"
INTROSPECT = "introspect"  # the operation that every adapter has
INPUT = "input"  # the parameter with the data of an item
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


class RequestExample(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
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
    examples: tuple[RequestExample, ...] = ()
    computed_fields: tuple[ComputedFieldInfo, ...] = ()
    aggregation_support: AggregationSupport | msgspec.UnsetType = msgspec.UNSET
    relationship_capabilities: RelationshipCapabilities | msgspec.UnsetType = msgspec.UNSET
    lifecycle: LifecycleInfo | msgspec.UnsetType = msgspec.UNSET


class OperationWarning(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A note on a successful result that may differ from what the caller expects."""

    code: str
    message: str
    details: dict[str, Any] = {}
    severity: Literal["low", "medium", "high"] = "medium"


@dataclass(frozen=True, slots=True)
class AqlRequestContext:
    """The caller of a request, and its session."""

    caller: Caller
    session: str = ""
    request_id: str = ""  # the caller's own label
    confirmation: str = ""  # the token that came as confirmation_token


@dataclass(frozen=True, slots=True)
class AqlResult:
    """The result of an operation."""

    data: Any
    warnings: tuple[OperationWarning, ...] = ()
    untrusted: bool = False  # has texts of items, which may look like instructions


OperationRunner: TypeAlias = Callable[[Mapping[str, Any], AqlRequestContext], Awaitable[AqlResult]]


@dataclass(frozen=True, slots=True)
class AqlOperation:
    """An operation of MCP-AQL. Parameters are validated, and defaults added, before it runs."""

    name: str
    kind: Kind
    description: str
    params: tuple[ParameterInfo, ...]
    returns: TypeInfo
    run: OperationRunner
    operation: Operation | None = None  # of the catalog; None if only MCP-AQL has it
    examples: tuple[RequestExample, ...] = ()
    computed: tuple[ComputedFieldInfo, ...] = ()
    aggregation: AggregationSupport | None = None
    relationships: RelationshipCapabilities | None = None
    lifecycle: LifecycleInfo | None = None
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])  # other spellings of parameters
    input_fields: tuple[ParameterInfo, ...] | None = None  # of `input`, if they are closed
    types: tuple[TypeDetails, ...] = ()  # of its parameters and result
