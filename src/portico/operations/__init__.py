"""Operations: those of every collection, those that a site defines in Python, and how one is run.

    @operation(kind="execute", danger="reversible")
    async def book_table(context: Context, restaurant: str, people: Annotated[int, Meta(ge=1, le=12)]) -> Booking:
        "Reserve a table."

The signature is the published schema, and what is published is what is checked.
"""

import asyncio
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial, wraps
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

import jsonschema
import msgspec
from jsonschema import validators
from msgspec import UNSET, Meta, UnsetType
from referencing import Registry

from portico.access.limits import Limits, check_text
from portico.catalog import Collection, Danger, JsonSchema, Kind, Operation
from portico.errors import (
    ConfigError,
    Interrupted,
    InvalidParams,
    OperationFailed,
    OutcomeUnknown,
    SiteError,
    TimedOut,
    Unavailable,
    UnknownItem,
)
from portico.items import MAX_ID, Item, problem_with
from portico.operations.tasks import OperationResult, TaskHandle, Writes
from portico.operations.unit_of_work import UnitOfWork
from portico.query import (
    DEFAULT_LIMIT,
    MATCH_ALL,
    MAX_LIMIT,
    Filter,
    Order,
    Page,
    Query,
    compile_pattern,
    parse_filter,
    project,
)
from portico.requests import Caller
from portico.safety.gate import Permit
from portico.search.finder import Finder
from portico.store.records import CallSettlement, CommitResult, Merge, Put, Remove, Write
from portico.store.shape import check_shape
from portico.telemetry import Recorder, UnexpectedError

LOG_HINT = "The operator's log says why."
T = TypeVar("T")
ANYTHING = (Any, object)
MARK = "__portico_operation__"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}\Z")


@dataclass(slots=True)
class Context:
    """What an operation works with: the site's items, its caller, and a way to report progress.

    Writes are held back and committed together when the operation has ended. If it raises, none of them is made.
    """

    caller: Caller
    finder: Finder
    limits: Limits = field(default_factory=Limits)
    handle: TaskHandle | None = None
    acknowledged: int = 0  # the newest change the caller knows of; searches find everything up to it
    session: str = ""  # of the caller, if it has one
    may_write: bool = True  # False for operations of the kind read
    interim: CallSettlement = field(default_factory=CallSettlement)  # recorded with commits before the end
    commits: int = 0  # before the operation ended
    lost_store: bool = False  # the store did not answer
    has_crashed: bool = False  # the operation raised an unexpected exception, or returned a result of another type
    unit: UnitOfWork = field(init=False)
    _writing: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)  # keeps writes and commits apart

    def __post_init__(self) -> None:
        self.unit = UnitOfWork(self.finder.store.collections, self.finder.store.items)

    async def get(self, collection: str, id: str) -> Item:
        with self._watch_store():
            item = await self.unit.get(collection, id)
        if item is None:
            raise UnknownItem(f"{collection} has no item {id!r}", collection=collection, id=id)
        return item

    async def find(self, query: Query) -> Page:
        check_text(query.text, self.limits)
        with self._watch_store():
            if self.unit.is_touched(query.collection):
                return await self.unit.find(self.finder.limit_bytes(query))
            return await self.finder.find(query, self.acknowledged)

    async def put(self, collection: str, id: str, data: Mapping[str, Any], expect: str | None = None) -> Item:
        return await self.write(collection, Put(id, data, expect))

    async def merge(self, collection: str, id: str, data: Mapping[str, Any], expect: str | None = None) -> Item:
        return await self.write(collection, Merge(id, data, expect))

    async def remove(self, collection: str, id: str, expect: str | None = None) -> Item:
        return await self.write(collection, Remove(id, expect))

    async def write(self, collection: str, write: Write) -> Item:
        """Add one write; return the item as it will be, or as it was before its removal."""
        if not self.may_write:
            raise PermissionError("An operation of the kind read cannot write: declare it with another kind")
        with self._watch_store():
            async with self._writing:
                return await self.unit.write(collection, write)

    @contextmanager
    def _watch_store(self) -> Generator[None]:
        try:
            yield
        except Unavailable:
            self.lost_store = True
            raise

    async def commit(self) -> None:
        """Commit what was written so far. What follows is committed on its own.

        If it raises Unavailable, nothing was committed, and the writes are kept for the next commit. After
        OutcomeUnknown, every later write and commit of this call raises it again. Other errors drop the writes.
        """
        if await finish_despite_cancel(self._commit(self._commit_writes)) is None:
            raise Interrupted("Another process has taken over this call", hint="Call again to get the result.")

    async def _commit_writes(self, writes: Writes) -> CommitResult | None:
        if not writes:
            return CommitResult([], [])
        if self.handle:
            return await self.handle.save(0.0, None, None, writes)
        return await self.finder.store.items.commit(writes, lambda _: self.interim)

    async def _commit(self, save: Callable[[Writes], Awaitable[CommitResult | None]]) -> CommitResult | None:
        """Commit the writes; return None if the call or the task is no longer this process's."""
        async with self._writing:
            writes = self.unit.writes
            try:
                committed = await save(writes)
            except Unavailable:
                self.lost_store = True
                raise  # nothing was committed, so the writes are kept
            except OutcomeUnknown as error:
                self.unit.fault = error
                raise
            except SiteError:
                self.unit.clear()  # the store refused the writes
                raise
            if committed is not None:
                self.unit.clear()
                self.commits += bool(writes)
                self.acknowledge(committed)
            return committed

    def acknowledge(self, committed: CommitResult) -> None:
        """Make later searches of the caller see these changes."""
        self.acknowledged = max([self.acknowledged, *(change.seq for change in committed.changes)])

    async def progress(self, share: float, message: str = "", save: Any = None) -> None:
        """Report progress from 0 to 1. A value to `save` is available as `saved` if the operation is resumed.

        What is saved is committed together with what was written so far.
        """
        if self.handle and save is not None:
            await self._save(self.handle, share, message, save)
        elif self.handle:
            await self.handle.report(share, message)
        await asyncio.sleep(0)

    async def _save(self, handle: TaskHandle, share: float, message: str, save: Any) -> None:
        with suppress(Unavailable):  # the writes are committed with what is saved next, or when the operation has ended
            await finish_despite_cancel(self._commit(partial(handle.save, share, message, save)))

    @property
    def saved(self) -> Any:
        return self.handle.saved if self.handle else None


@dataclass(frozen=True, slots=True)
class OperationSettingsMark:
    """The arguments of `@operation`, attached to its function."""

    kind: Kind
    danger: Danger | None  # None: derived from its kind and name
    name: str
    collection: str
    idempotent: bool
    transactional: bool
    long: bool
    attempts: int
    timeout: float
    estimate: float | None


@dataclass(frozen=True, slots=True)
class LastWrite:
    """The result of an operation that ends with one write, rendered from the committed item."""

    collection: str
    write: Write
    render: Callable[[Item], Any]


def operation(
    *,
    kind: Literal["create", "read", "update", "delete", "execute"] = "execute",
    danger: Literal["safe", "reversible", "destructive", "dangerous", "forbidden"] | None = None,
    name: str = "",
    collection: str = "",
    idempotent: bool = False,
    transactional: bool = False,
    long: bool = False,
    attempts: int = 1,
    timeout: float = 30.0,
    estimate: float | None = None,
) -> Callable[[Callable[..., Awaitable[T]]], Callable[..., Awaitable[T]]]:
    """Make an async function an operation of the site. Its first parameter is the Context."""
    if kind not in set(Kind) or (danger and danger.upper() not in Danger.__members__):
        raise ConfigError(
            f"@operation does not know {kind if kind not in set(Kind) else danger!r}",
            hint=f"Kinds: {', '.join(Kind)}. Dangers: {', '.join(level_name.name.lower() for level_name in Danger)}.",
        )
    level = Danger[danger.upper()] if danger else None
    marker = OperationSettingsMark(
        Kind(kind), level, name, collection, idempotent, transactional, long, attempts, timeout, estimate
    )

    def mark(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        setattr(function, MARK, marker)
        return function

    return mark


def default_danger(kind: Kind, name: str = "") -> Danger:
    """Reads are safe, deletes destructive, the rest reversible, unless the name says worse (MCP-AQL)."""
    if kind is Kind.READ:
        return Danger.SAFE
    usual = Danger.DESTRUCTIVE if kind is Kind.DELETE else Danger.REVERSIBLE
    dangers = (danger for pattern, danger in _DANGEROUS_NAMES if fnmatchcase(name, pattern))
    return max(usual, max(dangers, default=usual))


_DANGEROUS_NAMES = (
    *(
        (pattern, Danger.DANGEROUS)
        for pattern in ("force_*", "*_permanently", "bulk_delete*", "override_*", "bypass_*")
    ),
    *((pattern, Danger.DANGEROUS) for pattern in ("*_without_backup", "purge_*")),
    *((f"{verb}_*", Danger.FORBIDDEN) for verb in ("drop", "truncate", "reset", "destroy", "wipe")),
    ("delete_all*", Danger.FORBIDDEN),
    ("*_production", Danger.FORBIDDEN),
)


def operations_of(module: object) -> list[Operation]:
    """The operations a module defines."""
    members: list[Any] = list(vars(module).values())
    return [from_function(member, getattr(member, MARK)) for member in members if hasattr(member, MARK)]


def check_operation_name(name: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(f"{name!r} is not a valid name of an operation", hint="Use lower-case letters, digits and _.")


def from_function(function: Callable[..., Awaitable[Any]], marker: OperationSettingsMark) -> Operation:
    name = marker.name or function.__name__
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"The operation {name} is not an async function", hint="Write `async def`.")
    check_operation_name(name)
    hints = _type_hints(name, function)
    parameters = list(inspect.signature(function).parameters.values())
    loose = [
        parameter.name
        for parameter in parameters
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    ]
    if loose:
        raise ConfigError(
            f"The operation {name} has the variadic parameter {loose[0]}", hint="Declare every parameter by name."
        )
    if not parameters or hints.get(parameters[0].name) is not Context:
        raise ConfigError(f"The first parameter of the operation {name} is not a Context")
    fields = [_struct_field(f"{name} ({_place_of(function)})", parameter, hints) for parameter in parameters[1:]]
    params = msgspec.defstruct(f"{name}_params", fields, frozen=True, forbid_unknown_fields=True, kw_only=True)

    @wraps(function)
    async def run(context: Context, params_given: Any) -> Any:
        return await function(
            context, **{parameter.name: getattr(params_given, parameter.name) for parameter in parameters[1:]}
        )

    return Operation(
        name=name,
        kind=marker.kind,
        description=inspect.getdoc(function) or "",
        params=params,
        result=hints.get("return", Any),
        run=run,
        danger=default_danger(marker.kind, name) if marker.danger is None else marker.danger,
        collection=marker.collection,
        idempotent=marker.idempotent,
        transactional=marker.transactional,
        long=marker.long,
        attempts=marker.attempts,
        timeout=marker.timeout,
        estimate=marker.estimate,
    )


def _type_hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for parameter, annotation in function.__annotations__.items():
        alone = SimpleNamespace(__annotations__={parameter: annotation})
        try:
            hints |= get_type_hints(alone, function.__globals__, include_extras=True)
        except Exception as error:  # an annotation is the site's own code, and may raise anything
            what = "result" if parameter == "return" else f"parameter {parameter}"
            raise ConfigError(
                f"The type of the {what} of the operation {name} ({_place_of(function)}) is malformed: {error}"
            ) from error
    return hints


def _struct_field(operation: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    if parameter.name not in hints:
        raise ConfigError(f"The parameter {parameter.name} of the operation {operation} has no type")
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, hints[parameter.name])
    default: Any = parameter.default
    if type(default) in {list, dict, set}:
        default = msgspec.field(default_factory=partial(copy, default))
    field = (parameter.name, hints[parameter.name], default)
    try:
        msgspec.defstruct("alone", [field])
    except TypeError as error:
        raise ConfigError(
            f"The default of the parameter {parameter.name} of the operation {operation} cannot be used: {error}"
        ) from error
    return field


# Operations of every collection.

Ident = Annotated[str, Meta(min_length=1, max_length=MAX_ID, description="The item's id")]
Where = Annotated[dict[str, Any], Meta(description='A filter such as {"price": {"$lt": 20}}')]
Limit = Annotated[int, Meta(ge=0, description=f"How many items, at most {MAX_LIMIT}")]
Fields = Annotated[list[str], Meta(description="Only these fields; paths such as offers.price are allowed")]
Cursor = Annotated[str, Meta(description="The cursor of the previous page")]
Version = Annotated[str, Meta(description="Only if the item is still at this version")]


class ItemOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    field: str
    descending: bool = False


class ListItemsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    where: Where = {}
    order: list[ItemOrder] = []
    fields: Fields = []
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = ""


class SearchParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    query: Annotated[str, Meta(min_length=1, description="What to look for, in words")]
    where: Where = {}
    fields: Fields = []
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor = ""


class GetParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: Ident
    fields: Fields = []


class CreateParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: Annotated[str, Meta(max_length=MAX_ID, description="The new item's id; generated if omitted")] = ""
    input: Annotated[dict[str, Any], Meta(description="The new item's fields")]


class UpdateParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: Ident
    input: Annotated[
        dict[str, Any], Meta(description="Fields to change; objects merge, null removes, the rest replaces")
    ]
    if_match: Version | UnsetType = UNSET


class DeleteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: Ident
    if_match: Version | UnsetType = UNSET


class CountParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    where: Where = {}


# Kinds for which null means the same as a missing parameter. Not for writes, where null would disable `if_match`.
_NULL_IS_ABSENT = (ListItemsParams, SearchParams, GetParams, CountParams)


class FoundItems(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of items, each with its id and version."""

    items: list[dict[str, Any]]
    cursor: str = ""
    notes: list[str] = []


class Counted(msgspec.Struct, frozen=True):
    count: int


class Deleted(msgspec.Struct, frozen=True):
    id: str
    deleted: bool = True


def render_item(item: Item, score: float | None = None) -> dict[str, Any]:
    """Return an item as one flat object: its id first, then its fields, version and score."""
    extra = {} if score is None else {"_score": score}
    return {
        "id": item.id,
        **{k: v for k, v in item.data.items() if k != "id"},
        "_version": item.version,
        **extra,
    }


def render_page(page: Page) -> FoundItems:
    scores = page.scores or (None,) * len(page.items)
    items = [render_item(item, score) for item, score in zip(page.items, scores, strict=True)]
    return FoundItems(items, page.cursor, list(page.notes))


def collection_operations(collection: Collection) -> list[Operation]:
    """Return the operations list, get, search, create, update, delete and count of one collection."""
    many, one, name = collection.name.replace("-", "_"), collection.one.replace("-", "_"), collection.name
    title = collection.title or name

    async def list_items(context: Context, params: ListItemsParams) -> FoundItems:
        order = tuple(Order(item.field, item.descending) for item in params.order)
        return render_page(
            await context.find(
                Query(
                    name,
                    where=_where(params.where),
                    order=order,
                    fields=tuple(params.fields),
                    limit=params.limit,
                    cursor=params.cursor,
                )
            )
        )

    async def search_items(context: Context, params: SearchParams) -> FoundItems:
        return render_page(
            await context.find(
                Query(
                    name,
                    text=params.query,
                    where=_where(params.where),
                    fields=tuple(params.fields),
                    limit=params.limit,
                    cursor=params.cursor,
                )
            )
        )

    async def get_item(context: Context, params: GetParams) -> dict[str, Any]:
        item = await context.get(name, params.id)
        return render_item(project(item, params.fields, context.finder.store.collections.schema[item.collection]))

    async def create_item(_: Context, params: CreateParams) -> LastWrite:
        id = params.id or secrets.token_hex(8)
        return LastWrite(name, Put(id, params.input, expect="", keeps_types=True), render_item)

    async def update_item(_: Context, params: UpdateParams) -> LastWrite:
        merge = Merge(params.id, params.input, _expect_version(params.if_match), keeps_types=True)
        return LastWrite(name, merge, render_item)

    async def delete_item(_: Context, params: DeleteParams) -> LastWrite:
        return LastWrite(name, Remove(params.id, _expect_version(params.if_match)), lambda item: Deleted(item.id))

    async def count_items(context: Context, params: CountParams) -> Counted:
        return Counted(await context.finder.store.items.count(name, _where(params.where)))

    def define(verb: str, kind: Kind, says: str, params: Any, result: Any, run: Any, **more: Any) -> Operation:
        noun = many if verb in {"list", "search", "count"} else one
        return Operation(
            f"{verb}_{noun}",
            kind,
            says,
            params,
            result,
            run,
            default_danger(kind),
            collection=name,
            transactional=True,
            **more,
        )

    result_type = dict[str, Any]
    return [
        define(
            "list", Kind.READ, f"List {title}: filtered, sorted, page by page.", ListItemsParams, FoundItems, list_items
        ),
        define("get", Kind.READ, f"One of {title}, by id.", GetParams, result_type, get_item),
        define("search", Kind.READ, f"Search {title} in words, best first.", SearchParams, FoundItems, search_items),
        define(
            "create",
            Kind.CREATE,
            f"Add one to {title}.",
            CreateParams,
            result_type,
            create_item,
            check=partial(_check_input, "create", collection),
        ),
        define(
            "update",
            Kind.UPDATE,
            f"Change fields of one of {title}.",
            UpdateParams,
            result_type,
            update_item,
            idempotent=True,
            check=partial(_check_input, "update", collection),
        ),
        define("delete", Kind.DELETE, f"Remove one from {title}.", DeleteParams, Deleted, delete_item),
        define("count", Kind.READ, f"How many {title} there are.", CountParams, Counted, count_items),
    ]


def _where(raw: Mapping[str, Any]) -> Filter:
    return parse_filter(raw) if raw else MATCH_ALL


def _check_input(verb: str, collection: Collection, params: CreateParams | UpdateParams) -> None:
    """Raise InvalidParams for what does not fit the collection, before anything waits for an approval or a task.

    The store checks again: another process may have changed the collection.
    """
    operation = f"{verb}_{collection.one}"
    if "id" in params.input:
        raise InvalidParams(
            "`id` must be a parameter of its own, not a field of `input`",
            operation=operation,
            field="id",
            param="input",
        )
    try:
        check_shape(collection, params.input)
    except InvalidParams as error:
        error.details = {"operation": operation, **error.details}
        raise


def _expect_version(version: str | UnsetType) -> str | None:
    return None if isinstance(version, UnsetType) else version


# Running.


async def run(permit: Permit, params: Any, context: Context, record: Recorder) -> OperationResult:
    """Run a permitted operation with checked parameters. Its writes are returned for the caller to commit."""
    operation = cast("Operation", permit.operation)
    if not permit.cleared:
        raise TypeError("A call is run only when the guard has cleared it")
    try:
        result = await operation.run(context, params)
    except (SiteError, asyncio.CancelledError):
        raise
    except TimeoutError as error:
        raise TimedOut(f"{operation.name} took too long", operation=operation.name) from error
    except Exception as error:
        record(UnexpectedError(operation.name, repr(error), error))
        context.has_crashed = True
        raise OperationFailed(f"{operation.name} failed", operation=operation.name, hint=LOG_HINT) from error
    if isinstance(result, LastWrite):
        last = result
        writes = (*context.unit.writes, (last.collection, last.write))
        return OperationResult(writes, lambda items: check_result(operation, last.render(items[-1])))
    try:
        plain = check_result(operation, result)
    except OperationFailed:
        context.has_crashed = True
        raise
    return OperationResult(context.unit.writes, lambda _: plain)


async def finish_despite_cancel(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end even if this task is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it: the caller is gone
        raise


def check_params(operation: Operation, raw: Mapping[str, Any]) -> Any:
    """Convert parameters to the operation's type. Every error names its parameter."""
    if isinstance(operation.params, JsonSchema):
        _check_schema(operation.params, dict(raw), operation.name)
        return raw
    if operation.params in _NULL_IS_ABSENT:
        raw = {name: value for name, value in raw.items() if value is not None}
    names = [field.name for field in msgspec.structs.fields(operation.params)]
    unknown = [name for name in raw if name not in names]
    if unknown:
        raise InvalidParams(
            f"{operation.name} has no parameter {', '.join(map(repr, unknown))}",
            operation=operation.name,
            unknown=unknown,
            valid=names,
            hint=f"Allowed: {', '.join(names) or 'none'}.",
        )
    missing = [f.name for f in msgspec.structs.fields(operation.params) if f.required and f.name not in raw]
    if missing:
        raise InvalidParams(
            f"{operation.name} needs {', '.join(map(repr, missing))}",
            operation=operation.name,
            missing=missing,
        )
    try:
        params = msgspec.convert(dict(raw), operation.params)
    except msgspec.ValidationError as error:
        says, _, where = str(error).partition(" - at `$")
        path = where.rstrip("`").lstrip(".")
        raise InvalidParams(
            f"{operation.name}: {path or 'parameters'}: {says}",
            operation=operation.name,
            param=path,
            reason=says,
        ) from error
    if operation.check:
        operation.check(params)
    return params


def _check_schema(schema: JsonSchema, raw: Any, name: str) -> None:
    try:
        error = next(iter(_validator(schema).iter_errors(raw)), None)
    except Exception as problem:
        raise OperationFailed(f"The published schema of {name} cannot be used", operation=name) from problem
    if error is not None:
        path = ".".join(str(step) for step in error.absolute_path)
        raise InvalidParams(
            f"{name}: {path or 'parameters'}: {error.message}", operation=name, param=path, reason=error.message
        )


def _validator(schema: JsonSchema) -> Any:
    """Return a validator that fetches nothing and tests patterns in linear time."""
    kind: Any = cast("Any", validators).extend(jsonschema.Draft202012Validator, {"pattern": _check_pattern})
    return kind(dict(schema.schema), registry=cast("Any", Registry)())


def _check_pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not compile_pattern(pattern).search(value):
        yield jsonschema.ValidationError(f"does not match {pattern!r}")


def check_result(operation: Operation, result: Any) -> Any:
    """Return the result as plain JSON. Raise OperationFailed if it does not match the operation's result type."""
    try:
        plain = msgspec.to_builtins(result, str_keys=True)
        problem = problem_with(operation.name, {"result": plain})
        if problem:
            raise TypeError(problem)
        if isinstance(operation.result, JsonSchema):
            _check_schema(operation.result, plain, operation.name)
        elif operation.result is not Any:
            msgspec.convert(plain, operation.result, strict=False)
    except (msgspec.ValidationError, TypeError, InvalidParams) as error:
        raise OperationFailed(
            f"{operation.name} returned a result of another type than it publishes",
            operation=operation.name,
            reason=str(error),
        ) from error
    return plain


def check_published(operations: Iterable[Operation]) -> None:
    """Raise ConfigError naming every operation whose types have no JSON Schema."""
    problems: list[str] = []
    for operation in operations:
        try:
            _check_params(operation.params)
            _check_type("its result", operation.result)
        except ConfigError as error:
            place = _place_of(operation.run)
            problems.append(f"The operation {operation.name} ({place}) cannot be published: {error.message}")
    if problems:
        hint = "Use types that JSON has: numbers, texts, truth values, lists, dicts, dataclasses, msgspec structs."
        raise ConfigError(". ".join(problems), hint=hint)


def _check_params(params: Any) -> None:
    try:
        _check_type("what it takes", params)
    except ConfigError:
        # An error about all parameters would not name the faulty one.
        for field in () if isinstance(params, JsonSchema) else msgspec.structs.fields(params):
            _check_type(f"its parameter {field.name}", field.type)
            if field.default is not msgspec.NODEFAULT and field.default is not UNSET:
                _check_type(f"the default of its parameter {field.name}", JsonSchema({"default": field.default}))
        raise


def _check_type(what: str, kind: Any) -> None:
    try:
        msgspec.json.encode(schema_of(kind))
        if not isinstance(kind, JsonSchema):
            msgspec.json.Decoder(kind)
    except Exception as error:  # a type may be the site's own code and raise anything
        annotation = "" if isinstance(kind, JsonSchema) else f", {inspect.formatannotation(kind)},"
        # The message of msgspec about an unknown type is advice for its own callers.
        reason = "" if "custom types requires" in str(error) else f" ({error})"
        raise ConfigError(f"{what}{annotation} has no JSON form{reason}") from error


def _place_of(function: Callable[..., Any]) -> str:
    """Return the file and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of parameters or a result, from the type that validates them."""
    if isinstance(kind, JsonSchema):
        return dict(kind.schema)
    return {} if kind in ANYTHING else msgspec.json.schema(kind, schema_hook=schema_hook)


def schema_hook(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a type that msgspec does not support: `object` is any value."""
    if kind is not object:
        raise NotImplementedError
    return {"description": "Any JSON value"}  # an empty schema would count as none
