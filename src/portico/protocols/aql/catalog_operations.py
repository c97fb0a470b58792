"""Operations of the catalog as MCP-AQL operations: snake_case parameters, and results in its types."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import msgspec

from portico import errors
from portico.catalog import ID, Collection, Danger, Kind, Operation
from portico.errors import OperationFailed
from portico.items import Item
from portico.operations import CreateParams, DeleteParams, UpdateParams, schema_of
from portico.operations.tasks import is_retried
from portico.protocols.aql.envelopes import failure_result
from portico.protocols.aql.schemas import SchemaReader, TypeNames, info_of, pascal_case, snake_case_names
from portico.protocols.aql.selection import (
    PRESET,
    SELECTION,
    Selection,
    own_name,
    read_selection,
    render_item,
    selection_params,
)
from portico.protocols.aql.shapes import (
    INPUT,
    TOKEN,
    AqlOperation,
    AqlRequestContext,
    AqlResult,
    LifecycleInfo,
    OperationRunner,
    ParameterInfo,
    RequestExample,
    TypeDetails,
)
from portico.protocols.aql.types import EXECUTION, LOOP_NAMES, PROTOCOL, input_type, item_type
from portico.requests import Call, Outcome, TaskState
from portico.safety.models import Execution
from portico.safety.operations import LOOP, task_execution
from portico.site import Site

ResultRenderer: TypeAlias = Callable[[Any], Any]  # of a result

START, RECORD, CONFIRM = "execute_agent", "record_execution_step", "confirm_operation"
STATUS, RETRY = "get_execution_status", "retry_execution"
ALIASES = {"stepDescription": "step_description", "nextActionHint": "next_action_hint"}  # used in 8.6.3, but not in 4.3

CONFIRMATION = ParameterInfo(
    name=TOKEN,
    type="string",
    required=False,
    description="From CONFIRMATION_REQUIRED, once somebody else has approved the call",
)
SELECTION_PARAMS = selection_params("full")  # of the created or changed item
VERSION = "_version"
_SELECTION_NAMES = frozenset(param.name for param in SELECTION_PARAMS)
_ITEM_PARAMS = frozenset({CreateParams, UpdateParams, DeleteParams})
_KNOWN = {operation.name: operation for operation in PROTOCOL}
_CANONICAL: Mapping[Kind, tuple[str, ...]] = {
    Kind.CREATE: ("create",),
    Kind.READ: ("get", "list"),
    Kind.UPDATE: ("update",),
    Kind.DELETE: ("delete",),
    Kind.EXECUTE: ("execute", "cancel"),
}
_LIKE: Mapping[str, str] = {
    "ask": "Similar to get, but by a question in natural language.",
    "forget_memories": "Similar to delete, but only of the caller's own memories.",
    "retry_execution": "Similar to execute, but for an earlier execution.",
    "run_workflow": "Similar to execute, but for several operations at once.",
}
_WITHOUT_CONFIRMATION = LOOP - {START, RETRY}  # never need approval
_SAMPLES: Mapping[str, Any] = {"string": "…", "integer": 1, "number": 1, "boolean": True, "object": {"name": "…"}}


@dataclass(frozen=True, slots=True)
class CatalogOperations:
    """Builds the operations of one catalog, with unique names for their types."""

    site: Site
    names: TypeNames

    def build(self, operation: Operation) -> AqlOperation:
        is_of_items = bool(operation.collection) and operation.params in _ITEM_PARAMS
        return self._build_item_operation(operation) if is_of_items else self._build_operation(operation)

    def _build_operation(self, operation: Operation) -> AqlOperation:
        reader = SchemaReader(schema_of(operation.params), operation.name, self.names, **_reader_options(operation))
        own_params = reader.parameters()
        own_names = snake_case_names(param.name for param in own_params)
        params = [msgspec.structs.replace(param, name=name) for name, param in zip(own_names, own_params, strict=True)]
        shape: ResultRenderer = _render_execution if operation.result is Execution else lambda result: result
        described_operation = self._build(
            operation, params, reader, _call_runner(self.site, operation, own_names, shape)
        )
        if operation.kind is Kind.UPDATE and INPUT not in own_names:
            return self._nest_input(described_operation)
        return replace(described_operation, aliases=ALIASES) if operation.name == RECORD else described_operation

    def _nest_input(self, operation_: AqlOperation) -> AqlOperation:
        """Move the changes of an update into `input` (4.5); the parameters that identify its target stay beside it."""
        names = _id_param_names(operation_.params)
        beside = tuple(param for param in operation_.params if param.name in names)
        inside = tuple(param for param in operation_.params if param.name not in names)
        if not inside:
            return operation_
        name = self.names.claim(f"{pascal_case(operation_.name)}Input", operation_.name, inside)
        input_details = TypeDetails(name=name, kind="object", description="The changes.", fields=inside)
        input_param = ParameterInfo(name=INPUT, type=name, required=True, description="The changes")
        sample = _samples(inside) or _samples((msgspec.structs.replace(inside[0], required=True),))
        return replace(
            operation_,
            params=(input_param, *beside),
            input_fields=inside,
            examples=_examples(operation_.name, {**_samples(beside), INPUT: sample}),
            types=(*operation_.types, input_details),
            run=_flatten_input(operation_.run),
        )

    def _build_item_operation(self, operation: Operation) -> AqlOperation:
        """Build create, update or delete of a collection."""
        collection = self.site.catalog.collections[operation.collection]
        reader = SchemaReader(schema_of(operation.params), operation.name, self.names)
        input_details, item = input_type(collection), item_type(collection)
        params = [
            msgspec.structs.replace(param, type=input_details.name) if param.name == INPUT else param
            for param in reader.parameters()
        ]
        run = _change_runner(self.site, operation, collection)
        if operation.kind is Kind.DELETE:
            return self._build(operation, params, reader, run)
        result = self._build(operation, [*params, *SELECTION_PARAMS], reader, run)
        return replace(result, returns=info_of(item), types=(input_details, item, SELECTION, PRESET))

    def _build(
        self, operation: Operation, params: list[ParameterInfo], reader: SchemaReader, run: OperationRunner
    ) -> AqlOperation:
        result_reader = SchemaReader(
            schema_of(operation.result), operation.name, self.names, **_reader_options(operation)
        )
        returns = result_reader.result_type()
        needs_confirmation = operation.kind is not Kind.READ and operation.name not in _WITHOUT_CONFIRMATION
        if needs_confirmation and not any(param.name == TOKEN for param in params):
            params = [*params, CONFIRMATION]
        return AqlOperation(
            name=operation.name,
            kind=operation.kind,
            description=self._describe(operation, returns.name),
            params=tuple(params),
            returns=info_of(_KNOWN[EXECUTION]) if operation.long else returns,
            run=run,
            operation=operation,
            examples=_examples(operation.name, _samples(params)),
            lifecycle=_lifecycle(operation),
            types=(*reader.types.values(), *result_reader.types.values()),
        )

    def _describe(self, operation: Operation, result: str) -> str:
        lines = [operation.description.strip() or operation.name.replace("_", " "), *_likeness(operation)]
        if operation.danger >= Danger.DESTRUCTIVE:
            lines.append(f"Danger: {operation.danger.name.lower()}; somebody else may have to approve it.")
        if operation.long:
            lines.append(f"Runs as an execution: {STATUS} returns its status, and finally its {result}.")
        return "\n".join(lines)


def _likeness(operation: Operation) -> Iterator[str]:
    """Yield what an operation is similar to, if its name does not begin with a verb of its category (8.5.3)."""
    if operation.name in _LIKE:
        yield _LIKE[operation.name]
    elif operation.name not in LOOP and operation.name.partition("_")[0] not in _CANONICAL[operation.kind]:
        yield f"Similar to {_CANONICAL[operation.kind][0]}, under this site's own name."


def _reader_options(operation: Operation) -> dict[str, Any]:
    return {"type_names": LOOP_NAMES, "known_types": _KNOWN} if operation.name in LOOP else {}


def _lifecycle(operation: Operation) -> LifecycleInfo | None:
    is_of_loop = operation.name in LOOP and operation.kind is Kind.EXECUTE and operation.name != CONFIRM
    if not operation.long and not is_of_loop:
        return None
    return LifecycleInfo(
        states=tuple(TaskState),  # its schema allows only these; the type ExecutionStatus also has `paused` (8.4.4)
        supports_cancel=True,
        supports_retry=is_retried(operation),
        progress_reporting=True,
    )


def _examples(name: str, params: Mapping[str, Any]) -> tuple[RequestExample, ...]:
    """Return the shortest valid request; none if it takes more than scalar values."""
    if None in params.values():
        return ()
    return (RequestExample(request={"operation": name, **({"params": dict(params)} if params else {})}),)


def _samples(params: Iterable[ParameterInfo]) -> dict[str, Any]:
    return {param.name: _sample(param) for param in params if param.required}


def _sample(parameter: ParameterInfo) -> Any:
    if isinstance(parameter.enum, tuple):
        return parameter.enum[0]
    if isinstance(parameter.minimum, int | float):
        return parameter.minimum
    if parameter.type == "array" and isinstance(parameter.items, dict):
        inner = _SAMPLES.get(parameter.items["type"])
        return None if inner is None else [inner]
    return _SAMPLES.get("object" if parameter.name == INPUT else parameter.type)


def _id_param_names(params: Iterable[ParameterInfo]) -> set[str]:
    """Return the parameters that identify the target: those named as an id, or else the first required one."""
    params_ = list(params)
    ids = [param.name for param in params_ if param.name == ID or param.name.endswith("_id")]
    first = [param.name for param in params_ if param.required][:1]
    return {*(ids or first), "if_match", TOKEN}


# Running


def _call_runner(site: Site, operation: Operation, own: Mapping[str, str], shape: ResultRenderer) -> OperationRunner:
    """Return a runner that calls an operation with its own parameter names."""

    async def run(params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
        own_params = {own[name]: value for name, value in params.items() if name in own}
        return AqlResult(await _call(site, operation, own_params, context, shape))

    return run


def _flatten_input(run: OperationRunner) -> OperationRunner:
    async def run_flat(params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
        beside = {name: value for name, value in params.items() if name != INPUT}
        return await run({**params[INPUT], **beside}, context)

    return run_flat


def _change_runner(site: Site, operation: Operation, collection: Collection) -> OperationRunner:
    """Return a runner for create, update or delete. `fields` is validated before the item is changed."""

    async def run(params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
        selection = read_selection(params, collection, "full", (), operation.name)
        call_params = {name: value for name, value in params.items() if name not in _SELECTION_NAMES}
        if "if_match" in call_params:
            call_params["if_match"] = version_of(call_params["if_match"])
        if INPUT in call_params:
            call_params[INPUT] = _with_own_names(call_params[INPUT], collection)
        shape = partial(_select_fields, collection, selection)
        result = await _call(site, operation, call_params, context, shape)
        return AqlResult(result, untrusted=operation.kind is not Kind.DELETE)

    return run


def _with_own_names(data: Mapping[str, Any], collection: Collection) -> Mapping[str, Any]:
    """Return an item under its fields' own names. Two values of one field stay apart, and are refused by the store."""
    renamed = {own_name(name, collection): value for name, value in data.items()}
    return renamed if len(renamed) == len(data) else data


async def _call(
    site: Site, operation: Operation, params: Mapping[str, Any], context: AqlRequestContext, shape: ResultRenderer
) -> Any:
    call = Call(operation.name, params, confirmation=context.confirmation, session=context.session)
    outcome = await site.call(call, context.caller)
    if isinstance(outcome, Outcome):
        return shape(outcome.result)
    return _render_execution(msgspec.to_builtins(task_execution(outcome)))


def _select_fields(collection: Collection, selection: Selection, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the selected fields of an item; a result that is no item is returned whole."""
    if VERSION not in result:
        return dict(result)
    data = {name: value for name, value in result.items() if name != VERSION}
    item = Item(result[ID], collection.name, data, result[VERSION])
    return render_item(item, collection, selection, {})


def version_of(tag: str) -> str:
    """Return the version in an ETag, weak or strong or bare."""
    return tag.removeprefix("W/").strip('"')


def _render_execution(execution: Mapping[str, Any]) -> dict[str, Any]:
    """Return an execution with its error in the form of a failed call's (8.4.3)."""
    if not execution.get("error"):
        return dict(execution)
    error = execution["error"]
    kind = getattr(errors, str(error.get("error")), OperationFailed)
    site_error = kind(str(error.get("message", "")), **error.get("details", {}))
    return {**execution, "error": msgspec.to_builtins(failure_result(site_error).error)}
