"""Operations of the catalog as MCP-AQL offers them: parameters under its names, results in its shapes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import msgspec

from portico import errors
from portico.catalog import ID, Collection, Danger, Kind, Operation
from portico.errors import OperationFailed, SiteError
from portico.items import Item
from portico.operations import CreateParams, DeleteParams, UpdateParams, schema_of
from portico.operations.tasks import is_retried
from portico.protocols.aql.envelopes import failure
from portico.protocols.aql.schemas import Names, Reading, info_of, pascal, snaked
from portico.protocols.aql.selection import PRESET, SELECTION, Selection, own_name, parameters, read_selection, shown
from portico.protocols.aql.shapes import (
    INPUT,
    TOKEN,
    Answered,
    Asking,
    Example,
    LifecycleInfo,
    Offered,
    ParameterInfo,
    Run,
    TypeDetails,
)
from portico.protocols.aql.types import EXECUTION, LOOP_NAMES, PROTOCOL, input_type, item_type
from portico.requests import Call, Outcome, TaskState
from portico.safety.models import Execution
from portico.safety.operations import LOOP, shown_execution
from portico.site import Site

Shape: TypeAlias = Callable[[Any], Any]  # of a result

START, RECORD, CONFIRM = "execute_agent", "record_execution_step", "confirm_operation"
STATUS, RETRY = "get_execution_status", "retry_execution"
ALIASES = {"stepDescription": "step_description", "nextActionHint": "next_action_hint"}  # 8.6.3 has them so, 4.3 not

CONFIRMATION = ParameterInfo(
    name=TOKEN,
    type="string",
    required=False,
    description="From CONFIRMATION_REQUIRED, once somebody else has agreed",
)
SHOWING = parameters("full")  # of the item that was made or changed
VERSION = "_version"
_SHOWING = frozenset(each.name for each in SHOWING)
_OF_ITEMS = frozenset({CreateParams, UpdateParams, DeleteParams})
_KNOWN = {each.name: each for each in PROTOCOL}
_CANONICAL: Mapping[Kind, tuple[str, ...]] = {
    Kind.CREATE: ("create",),
    Kind.READ: ("get", "list"),
    Kind.UPDATE: ("update",),
    Kind.DELETE: ("delete",),
    Kind.EXECUTE: ("execute", "cancel"),
}
_LIKE: Mapping[str, str] = {
    "ask": "Similar to get, but by a question in words.",
    "forget_memories": "Similar to delete, but of what belongs to the caller alone.",
    "retry_execution": "Similar to execute, but of work that was begun before.",
    "run_workflow": "Similar to execute, but of several operations at once.",
}
_UNCONFIRMED = LOOP - {START, RETRY}  # these ask nobody
_SAMPLES: Mapping[str, Any] = {"string": "…", "integer": 1, "number": 1, "boolean": True, "object": {"name": "…"}}


@dataclass(frozen=True, slots=True)
class Catalogued:
    """Offers what a catalog has. Types of one catalog get their names together."""

    site: Site
    names: Names

    def offered(self, operation: Operation) -> Offered:
        is_of_items = bool(operation.collection) and operation.params in _OF_ITEMS
        return self._of_items(operation) if is_of_items else self._of_any(operation)

    def _of_any(self, operation: Operation) -> Offered:
        known = Reading(schema_of(operation.params), operation.name, self.names, **_words(operation))
        own = known.parameters()
        named = snaked(each.name for each in own)
        params = [msgspec.structs.replace(each, name=name) for name, each in zip(named, own, strict=True)]
        shape = _execution if operation.result is Execution else _as_is
        made = self._made(operation, params, known, _calling(self.site, operation, named, shape))
        if operation.kind is Kind.UPDATE and INPUT not in named:
            return self._nested(made)
        return replace(made, aliases=ALIASES) if operation.name == RECORD else made

    def _nested(self, offered: Offered) -> Offered:
        """An update of the site's own, with what is changed in `input` (4.5), and what it is of beside it."""
        names = _identifying(offered.params)
        beside = tuple(each for each in offered.params if each.name in names)
        inside = tuple(each for each in offered.params if each.name not in names)
        if not inside:
            return offered
        name = self.names.claim(f"{pascal(offered.name)}Input", offered.name, inside)
        fed = TypeDetails(name=name, kind="object", description="What is to change.", fields=inside)
        given = ParameterInfo(name=INPUT, type=name, required=True, description="What is to change")
        sample = _samples(inside) or _samples((msgspec.structs.replace(inside[0], required=True),))
        return replace(
            offered,
            params=(given, *beside),
            input_fields=inside,
            examples=_examples(offered.name, {**_samples(beside), INPUT: sample}),
            types=(*offered.types, fed),
            run=_unnested(offered.run),
        )

    def _of_items(self, operation: Operation) -> Offered:
        """create, update and delete of a collection."""
        collection = self.site.catalog.collections[operation.collection]
        known = Reading(schema_of(operation.params), operation.name, self.names)
        fed, item = input_type(collection), item_type(collection)
        params = [
            msgspec.structs.replace(each, type=fed.name) if each.name == INPUT else each for each in known.parameters()
        ]
        run = _changing(self.site, operation, collection)
        if operation.kind is Kind.DELETE:
            return self._made(operation, params, known, run)
        made = self._made(operation, [*params, *SHOWING], known, run)
        return replace(made, returns=info_of(item), types=(fed, item, SELECTION, PRESET))

    def _made(self, operation: Operation, params: list[ParameterInfo], known: Reading, run: Run) -> Offered:
        returned = Reading(schema_of(operation.result), operation.name, self.names, **_words(operation))
        returns = returned.returned()
        asks = operation.kind is not Kind.READ and operation.name not in _UNCONFIRMED
        if asks and not any(each.name == TOKEN for each in params):
            params = [*params, CONFIRMATION]
        return Offered(
            name=operation.name,
            kind=operation.kind,
            description=self._described(operation, returns.name),
            params=tuple(params),
            returns=info_of(_KNOWN[EXECUTION]) if operation.long else returns,
            run=run,
            operation=operation,
            examples=_examples(operation.name, _samples(params)),
            lifecycle=_lifecycle(operation),
            types=(*known.found.values(), *returned.found.values()),
        )

    def _described(self, operation: Operation, result: str) -> str:
        lines = [operation.description.strip() or operation.name.replace("_", " "), *_likeness(operation)]
        if operation.danger >= Danger.DESTRUCTIVE:
            lines.append(f"Danger: {operation.danger.name.lower()}; somebody else may have to confirm it.")
        if operation.long:
            lines.append(f"Runs on its own: {STATUS} tells how it goes, and gives its {result}.")
        return "\n".join(lines)


def _likeness(operation: Operation) -> Iterator[str]:
    """Of a name that does not begin as its category has it: why, and what it is like (8.5.3)."""
    if operation.name in _LIKE:
        yield _LIKE[operation.name]
    elif operation.name not in LOOP and operation.name.partition("_")[0] not in _CANONICAL[operation.kind]:
        yield f"Similar to {_CANONICAL[operation.kind][0]}, in the words of this site."


def _words(operation: Operation) -> dict[str, Any]:
    return {"words": LOOP_NAMES, "known": _KNOWN} if operation.name in LOOP else {}


def _lifecycle(operation: Operation) -> LifecycleInfo | None:
    is_of_loop = operation.name in LOOP and operation.kind is Kind.EXECUTE and operation.name != CONFIRM
    if not operation.long and not is_of_loop:
        return None
    return LifecycleInfo(
        states=tuple(TaskState),  # its schema knows these alone; the type ExecutionStatus has `paused` too (8.4.4)
        supports_cancel=True,
        supports_retry=is_retried(operation),
        progress_reporting=True,
    )


def _examples(name: str, given: Mapping[str, Any]) -> tuple[Example, ...]:
    """The shortest request that can be sent; none if that takes more than plain values."""
    if None in given.values():
        return ()
    return (Example(request={"operation": name, **({"params": dict(given)} if given else {})}),)


def _samples(params: Iterable[ParameterInfo]) -> dict[str, Any]:
    return {each.name: _sample(each) for each in params if each.required}


def _sample(parameter: ParameterInfo) -> Any:
    if isinstance(parameter.enum, tuple):
        return parameter.enum[0]
    if isinstance(parameter.minimum, int | float):
        return parameter.minimum
    if parameter.type == "array" and isinstance(parameter.items, dict):
        inner = _SAMPLES.get(parameter.items["type"])
        return None if inner is None else [inner]
    return _SAMPLES.get("object" if parameter.name == INPUT else parameter.type)


def _identifying(params: Iterable[ParameterInfo]) -> set[str]:
    """The parameters that say what is to change: those that are called an id, or else the first that is needed."""
    every = list(params)
    ids = [each.name for each in every if each.name == ID or each.name.endswith("_id")]
    first = [each.name for each in every if each.required][:1]
    return {*(ids or first), "if_match", TOKEN}


# Running


def _calling(site: Site, operation: Operation, own: Mapping[str, str], shape: Shape) -> Run:
    """Calls an operation, with parameters under the names that it has for them."""

    async def run(params: Mapping[str, Any], asking: Asking) -> Answered:
        given = {own[name]: value for name, value in params.items() if name in own}
        return Answered(await _called(site, operation, given, asking, shape))

    return run


def _unnested(run: Run) -> Run:
    async def told(params: Mapping[str, Any], asking: Asking) -> Answered:
        beside = {name: value for name, value in params.items() if name != INPUT}
        return await run({**params[INPUT], **beside}, asking)

    return told


def _changing(site: Site, operation: Operation, collection: Collection) -> Run:
    """Calls create, update or delete of a collection. What is to be shown of the item is read before it is touched."""

    async def run(params: Mapping[str, Any], asking: Asking) -> Answered:
        selection = read_selection(params, collection, "full", (), operation.name)
        given = {name: value for name, value in params.items() if name not in _SHOWING}
        if "if_match" in given:
            given["if_match"] = version_of(given["if_match"])
        if INPUT in given:
            given[INPUT] = {own_name(name, collection): value for name, value in given[INPUT].items()}
        shape = partial(_selected, collection, selection)
        told = await _called(site, operation, given, asking, shape)
        return Answered(told, untrusted=operation.kind is not Kind.DELETE)

    return run


async def _called(site: Site, operation: Operation, given: Mapping[str, Any], asking: Asking, shape: Shape) -> Any:
    call = Call(operation.name, given, confirmation=asking.confirmation, session=asking.session)
    outcome = await site.call(call, asking.caller)
    if isinstance(outcome, Outcome):
        return shape(outcome.result)
    return _execution(msgspec.to_builtins(shown_execution(outcome)))


def _selected(collection: Collection, selection: Selection, result: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be shown of an item; whatever is none is shown whole."""
    if VERSION not in result:
        return dict(result)
    data = {name: value for name, value in result.items() if name != VERSION}
    item = Item(result[ID], collection.name, data, result[VERSION])
    return shown(item, collection, selection, {})


def version_of(tag: str) -> str:
    """The version that an etag stands for, in whatever form it is sent."""
    return tag.removeprefix("W/").strip('"')


def _as_is(result: Any) -> Any:
    return result


def _execution(told: Mapping[str, Any]) -> dict[str, Any]:
    """An execution, with what it failed with as a failed call tells it (8.4.3)."""
    if not told.get("error"):
        return dict(told)
    return {**told, "error": msgspec.to_builtins(failure(_raised(told["error"])).error)}


def _raised(told: Mapping[str, Any]) -> SiteError:
    kind = getattr(errors, str(told.get("error")), OperationFailed)
    return kind(str(told.get("message", "")), **told.get("details", {}))
