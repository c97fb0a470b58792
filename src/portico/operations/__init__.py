"""What can be done: the operations every collection gets, those a site writes in Python, and how one is run.

    @operation(kind="execute", danger="reversible")
    async def book_table(context: Context, restaurant: str, people: Annotated[int, Meta(ge=1, le=12)]) -> Booking:
        "Reserve a table."

The signature is the published schema, and what is published is what is checked.
"""

import asyncio
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
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
from portico.catalog import Collection, Danger, JsonSchema, Kind, Operation, scalar_at
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
from portico.items import MAX_ID, Item, problem_with, type_name
from portico.operations.tasks import Completed, Handle, Writes
from portico.operations.unit_of_work import UnitOfWork
from portico.query import (
    DEFAULT_LIMIT,
    EVERYTHING,
    MAX_LIMIT,
    Filter,
    Order,
    Page,
    Query,
    compiled,
    parse_filter,
    project,
)
from portico.requests import Caller
from portico.safety.gate import Permit
from portico.search.finder import Finder
from portico.store.records import CommitResult, Merge, Put, Remove, Settlement, Write
from portico.telemetry import Broke, Observe

LOG_HINT = "The operator's log says why."
T = TypeVar("T")
ANYTHING = (Any, object)
MARK = "__portico_operation__"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}\Z")


@dataclass(slots=True)
class Context:
    """What an operation may use: the site's items, who is calling, and a way to report progress.

    Writes are held back and committed together when the operation has ended. If it raises, none of them is made.
    """

    caller: Caller
    finder: Finder
    limits: Limits = field(default_factory=Limits)
    handle: Handle | None = None
    seen: int = 0  # the newest change the caller knows of; searches find everything up to it
    session: str = ""  # of the caller, if it has one
    may_write: bool = True  # False for operations of the kind read
    interim: Settlement = field(default_factory=Settlement)  # recorded with what is committed before the end
    commits: int = 0  # before the end
    is_cut_off: bool = False  # the store did not answer
    has_crashed: bool = False  # the operation raised an unexpected exception, or returned a result of another type
    unit: UnitOfWork = field(init=False)
    _writing: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)  # a write does not meet a commit

    def __post_init__(self) -> None:
        self.unit = UnitOfWork(self.finder.store.collections, self.finder.store.items)

    async def get(self, collection: str, id: str) -> Item:
        with self._watching():
            item = await self.unit.get(collection, id)
        if item is None:
            raise UnknownItem(f"{collection} has no item {id!r}", collection=collection, id=id)
        return item

    async def find(self, query: Query) -> Page:
        check_text(query.text, self.limits)
        with self._watching():
            if self.unit.is_touched(query.collection):
                return await self.unit.find(self.finder.bound(query))
            return await self.finder.find(query, self.seen)

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
        with self._watching():
            async with self._writing:
                return await self.unit.write(collection, write)

    @contextmanager
    def _watching(self) -> Generator[None]:
        try:
            yield
        except Unavailable:
            self.is_cut_off = True
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
                self.is_cut_off = True
                raise  # nothing was committed: the writes are kept
            except OutcomeUnknown as error:
                self.unit.fault = error
                raise
            except SiteError:
                self.unit.clear()  # they were refused
                raise
            if committed is not None:
                self.unit.clear()
                self.commits += bool(writes)
                self.acknowledge(committed)
            return committed

    def acknowledge(self, committed: CommitResult) -> None:
        """Let later searches of the caller find what was committed."""
        self.seen = max([self.seen, *(change.seq for change in committed.changes)])

    async def progress(self, share: float, message: str = "", save: Any = None) -> None:
        """Say how far this is, from 0 to 1. What is saved comes back in `saved` if the work is taken up again.

        What is saved is committed together with what was written so far.
        """
        if self.handle and save is not None:
            await self._save(self.handle, share, message, save)
        elif self.handle:
            await self.handle.report(share, message)
        await asyncio.sleep(0)

    async def _save(self, handle: Handle, share: float, message: str, save: Any) -> None:
        with suppress(Unavailable):  # the writes are committed with what is saved next, or when the operation has ended
            await finish_despite_cancel(self._commit(partial(handle.save, share, message, save)))

    @property
    def saved(self) -> Any:
        return self.handle.saved if self.handle else None


@dataclass(frozen=True, slots=True)
class Marked:
    """What `@operation` noted on a function."""

    kind: Kind
    danger: Danger | None  # None: as its kind and its name suggest
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
    """The result of an operation that ends with one write: it is rendered from the item as it is committed."""

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
            hint=f"Kinds: {', '.join(Kind)}. Dangers: {', '.join(each.name.lower() for each in Danger)}.",
        )
    level = Danger[danger.upper()] if danger else None
    marked = Marked(Kind(kind), level, name, collection, idempotent, transactional, long, attempts, timeout, estimate)

    def mark(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        setattr(function, MARK, marked)
        return function

    return mark


def default_danger(kind: Kind, name: str = "") -> Danger:
    """Reading is safe, deleting destroys, everything else can be undone, unless its name says worse (MCP-AQL)."""
    if kind is Kind.READ:
        return Danger.SAFE
    usual = Danger.DESTRUCTIVE if kind is Kind.DELETE else Danger.REVERSIBLE
    named = (danger for pattern, danger in _TELLING if fnmatchcase(name, pattern))
    return max(usual, max(named, default=usual))


_TELLING = (
    *((each, Danger.DANGEROUS) for each in ("force_*", "*_permanently", "bulk_delete*", "override_*", "bypass_*")),
    *((each, Danger.DANGEROUS) for each in ("*_without_backup", "purge_*")),
    *((each, Danger.FORBIDDEN) for each in ("drop_*", "delete_all*", "truncate_*", "reset_*", "destroy_*", "wipe_*")),
    ("*_production", Danger.FORBIDDEN),
)


def marked_operations(module: object) -> list[Operation]:
    """The operations a module defines."""
    members: list[Any] = list(vars(module).values())
    return [from_function(each, getattr(each, MARK)) for each in members if hasattr(each, MARK)]


def check_operation_name(name: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(f"{name!r} cannot name an operation", hint="Use small letters, digits and _.")


def from_function(function: Callable[..., Awaitable[Any]], marked: Marked) -> Operation:
    name = marked.name or function.__name__
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"The operation {name} is not an async function", hint="Write `async def`.")
    check_operation_name(name)
    hints = _type_hints(name, function)
    parameters = list(inspect.signature(function).parameters.values())
    loose = [each.name for each in parameters if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}]
    if loose:
        raise ConfigError(f"The operation {name} takes any number of {loose[0]}", hint="Name every parameter.")
    if not parameters or hints.get(parameters[0].name) is not Context:
        raise ConfigError(f"The first parameter of the operation {name} is not a Context")
    fields = [_struct_field(f"{name} ({_place_of(function)})", each, hints) for each in parameters[1:]]
    params = msgspec.defstruct(f"{name}_params", fields, frozen=True, forbid_unknown_fields=True, kw_only=True)

    @wraps(function)
    async def run(context: Context, given: Any) -> Any:
        return await function(context, **{each.name: getattr(given, each.name) for each in parameters[1:]})

    return Operation(
        name=name,
        kind=marked.kind,
        description=inspect.getdoc(function) or "",
        params=params,
        result=hints.get("return", Any),
        run=run,
        danger=default_danger(marked.kind, name) if marked.danger is None else marked.danger,
        collection=marked.collection,
        idempotent=marked.idempotent,
        transactional=marked.transactional,
        long=marked.long,
        attempts=marked.attempts,
        timeout=marked.timeout,
        estimate=marked.estimate,
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
                f"The type of the {what} of the operation {name} ({_place_of(function)}) cannot be read: {error}"
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


# What every collection gets.

Ident = Annotated[str, Meta(min_length=1, max_length=MAX_ID, description="The item's id")]
Where = Annotated[dict[str, Any], Meta(description='A filter such as {"price": {"$lt": 20}}')]
Limit = Annotated[int, Meta(ge=0, description=f"How many, at most {MAX_LIMIT}")]
Fields = Annotated[list[str], Meta(description="Only these fields; paths such as offers.price are allowed")]
Cursor = Annotated[str, Meta(description="Where the page before ended")]
Version = Annotated[str, Meta(description="Only if the item is still at this version")]


class Sort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    field: str
    descending: bool = False


class ListParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    where: Where = {}
    order: list[Sort] = []
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
    id: Annotated[str, Meta(max_length=MAX_ID, description="The new item's id; made up when left out")] = ""
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


# Where null means the same as a parameter that is left out. Not for writes: there null would do away with `if_match`.
_NULL_IS_ABSENT = (ListParams, SearchParams, GetParams, CountParams)


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of items, each with its id and version."""

    items: list[dict[str, Any]]
    cursor: str = ""
    notes: list[str] = []


class Counted(msgspec.Struct, frozen=True):
    count: int


class Deleted(msgspec.Struct, frozen=True):
    id: str
    deleted: bool = True


def shown(item: Item, score: float | None = None) -> dict[str, Any]:
    """An item as one flat object: its id first, its version and score beside its own fields."""
    extra = {} if score is None else {"_score": score}
    return {
        "id": item.id,
        **{k: v for k, v in item.data.items() if k != "id"},
        "_version": item.version,
        **extra,
    }


def shown_page(page: Page) -> Found:
    scores = page.scores or (None,) * len(page.items)
    items = [shown(item, score) for item, score in zip(page.items, scores, strict=True)]
    return Found(items, page.cursor, list(page.notes))


def collection_operations(collection: Collection) -> list[Operation]:
    """list, get, search, create, update, delete and count for one collection."""
    many, one, name = collection.name.replace("-", "_"), collection.one.replace("-", "_"), collection.name
    title = collection.title or name

    async def list_items(context: Context, given: ListParams) -> Found:
        order = tuple(Order(each.field, each.descending) for each in given.order)
        return shown_page(
            await context.find(
                Query(
                    name,
                    where=_where(given.where),
                    order=order,
                    fields=tuple(given.fields),
                    limit=given.limit,
                    cursor=given.cursor,
                )
            )
        )

    async def search_items(context: Context, given: SearchParams) -> Found:
        return shown_page(
            await context.find(
                Query(
                    name,
                    text=given.query,
                    where=_where(given.where),
                    fields=tuple(given.fields),
                    limit=given.limit,
                    cursor=given.cursor,
                )
            )
        )

    async def get_item(context: Context, given: GetParams) -> dict[str, Any]:
        item = await context.get(name, given.id)
        return shown(_projected(item, given.fields, context))

    async def create_item(_: Context, given: CreateParams) -> LastWrite:
        id = given.id or secrets.token_hex(8)
        return LastWrite(name, Put(id, given.input, expect=""), shown)

    async def update_item(_: Context, given: UpdateParams) -> LastWrite:
        return LastWrite(name, Merge(given.id, given.input, _expected(given.if_match)), shown)

    async def delete_item(_: Context, given: DeleteParams) -> LastWrite:
        return LastWrite(name, Remove(given.id, _expected(given.if_match)), lambda item: Deleted(item.id))

    async def count_items(context: Context, given: CountParams) -> Counted:
        return Counted(await context.finder.store.items.count(name, _where(given.where)))

    def made(verb: str, kind: Kind, says: str, params: Any, result: Any, run: Any, **more: Any) -> Operation:
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

    found = dict[str, Any]
    return [
        made("list", Kind.READ, f"List {title}: filtered, sorted, page by page.", ListParams, Found, list_items),
        made("get", Kind.READ, f"One of {title}, by id.", GetParams, found, get_item),
        made("search", Kind.READ, f"Search {title} in words, best first.", SearchParams, Found, search_items),
        made(
            "create",
            Kind.CREATE,
            f"Add one to {title}.",
            CreateParams,
            found,
            create_item,
            check=partial(_check_input, "create", collection),
        ),
        made(
            "update",
            Kind.UPDATE,
            f"Change fields of one of {title}.",
            UpdateParams,
            found,
            update_item,
            idempotent=True,
            check=partial(_check_input, "update", collection),
        ),
        made("delete", Kind.DELETE, f"Remove one from {title}.", DeleteParams, Deleted, delete_item),
        made("count", Kind.READ, f"How many {title} there are.", CountParams, Counted, count_items),
    ]


def _where(raw: Mapping[str, Any]) -> Filter:
    return parse_filter(raw) if raw else EVERYTHING


def _projected(item: Item, fields: Sequence[str], context: Context) -> Item:
    return project(item, fields, context.finder.store.collections.schema[item.collection])


def _check_input(verb: str, collection: Collection, given: CreateParams | UpdateParams) -> None:
    """Refuse fields of other types than the collection has.

    An update is held to every type that is known. A new item is held to the types that the site has declared: it may
    still show that those found in the data were too narrow.
    """
    operation = f"{verb}_{collection.one}"
    if "id" in given.input:
        raise InvalidParams(
            "`id` must be a parameter of its own, not a field of `input`",
            operation=operation,
            field="id",
            param="input",
        )
    for known in collection.fields.values():
        value = scalar_at(given.input, known.where)
        is_held = known.declared or verb == "update"
        if value is not None and is_held and not known.accepts(value):
            raise InvalidParams(
                f"`input.{known.where}` must be of the type {known.type}, not {type_name(value)}",
                operation=operation,
                param=f"input.{known.where}",
                expected=known.type.value,
                got=type_name(value),
            )


def _expected(version: str | UnsetType) -> str | None:
    return None if isinstance(version, UnsetType) else version


# Running.


async def run(permit: Permit, given: Any, context: Context, observe: Observe) -> Completed:
    """Do what a Permit allows, with parameters that were checked. Its writes are left to commit."""
    operation = cast("Operation", permit.operation)
    if not permit.cleared:
        raise TypeError("A call is run only when the guard has cleared it")
    try:
        result = await operation.run(context, given)
    except (SiteError, asyncio.CancelledError):
        raise
    except TimeoutError as error:
        raise TimedOut(f"{operation.name} took too long", operation=operation.name) from error
    except Exception as error:
        observe(Broke(operation.name, repr(error), error))
        context.has_crashed = True
        raise OperationFailed(f"{operation.name} failed", operation=operation.name, hint=LOG_HINT) from error
    if isinstance(result, LastWrite):
        last = result
        writes = (*context.unit.writes, (last.collection, last.write))
        return Completed(writes, lambda items: checked_result(operation, last.render(items[-1])))
    try:
        plain = checked_result(operation, result)
    except OperationFailed:
        context.has_crashed = True
        raise
    return Completed(context.unit.writes, lambda _: plain)


async def finish_despite_cancel(work: Coroutine[Any, Any, T]) -> T:
    """Finish work also if the caller is cancelled meanwhile: the cancellation is raised when it has ended."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the caller has gone, and is not told
        raise


def checked_params(operation: Operation, raw: Mapping[str, Any]) -> Any:
    """Parameters as the operation's own type; every complaint names the parameter."""
    if isinstance(operation.params, JsonSchema):
        _check_schema(operation.params, dict(raw), operation.name)
        return raw
    if operation.params in _NULL_IS_ABSENT:
        raw = {name: value for name, value in raw.items() if value is not None}
    known = [each.name for each in msgspec.structs.fields(operation.params)]
    unknown = [name for name in raw if name not in known]
    if unknown:
        raise InvalidParams(
            f"{operation.name} has no parameter {', '.join(map(repr, unknown))}",
            operation=operation.name,
            unknown=unknown,
            valid=known,
            hint=f"It takes {', '.join(known) or 'none'}.",
        )
    missing = [f.name for f in msgspec.structs.fields(operation.params) if f.required and f.name not in raw]
    if missing:
        raise InvalidParams(
            f"{operation.name} needs {', '.join(map(repr, missing))}",
            operation=operation.name,
            missing=missing,
        )
    try:
        given = msgspec.convert(dict(raw), operation.params)
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
        operation.check(given)
    return given


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
    """Fetches nothing, whatever a schema refers to, and tests patterns in linear time."""
    kind: Any = cast("Any", validators).extend(jsonschema.Draft202012Validator, {"pattern": _check_pattern})
    return kind(dict(schema.schema), registry=cast("Any", Registry)())


def _check_pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not compiled(pattern).search(value):
        yield jsonschema.ValidationError(f"does not match {pattern!r}")


def checked_result(operation: Operation, result: Any) -> Any:
    """The result as plain JSON; an operation that breaks its own promise fails instead of passing it on."""
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
    """Raise a ConfigError that names every operation of which a type cannot be published."""
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
        # A complaint about all of them does not say which it is.
        for each in () if isinstance(params, JsonSchema) else msgspec.structs.fields(params):
            _check_type(f"its parameter {each.name}", each.type)
            if each.default is not msgspec.NODEFAULT and each.default is not UNSET:
                _check_type(f"the default of its parameter {each.name}", JsonSchema({"default": each.default}))
        raise


def _check_type(what: str, kind: Any) -> None:
    try:
        msgspec.json.encode(schema_of(kind))
        if not isinstance(kind, JsonSchema):
            msgspec.json.Decoder(kind)
    except Exception as error:  # a type may be the site's own code, and raise anything
        shown = "" if isinstance(kind, JsonSchema) else f", {inspect.formatannotation(kind)},"
        # What msgspec says of a type that it does not know is advice for its own callers.
        reason = "" if "custom types requires" in str(error) else f" ({error})"
        raise ConfigError(f"{what}{shown} has no JSON form{reason}") from error


def _place_of(function: Callable[..., Any]) -> str:
    """The file and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of parameters or a result, from the type that checks them."""
    if isinstance(kind, JsonSchema):
        return dict(kind.schema)
    return {} if kind in ANYTHING else msgspec.json.schema(kind, schema_hook=schema_hook)


def schema_hook(kind: type) -> dict[str, Any]:
    """The JSON Schema of a type that msgspec has none for: an `object` is anything."""
    if kind is not object:
        raise NotImplementedError
    return {"description": "Any JSON value"}  # an empty one would count as none
