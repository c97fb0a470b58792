"""The operations of MCP-AQL, their tool families, and the description of each tool for agents."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from portico.access.identity import allows
from portico.catalog import Catalog, Kind
from portico.config import Config
from portico.operations import CountParams, GetParams, ListItemsParams, SearchParams
from portico.protocols.aql import collections, relationships
from portico.protocols.aql.catalog_operations import CatalogOperations
from portico.protocols.aql.introspection import Introspection
from portico.protocols.aql.schemas import TypeNames, snake_case_names
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.shapes import INTROSPECT, AqlOperation
from portico.protocols.aql.types import PROTOCOL, input_type, item_type
from portico.requests import Caller
from portico.safety.operations import LOOP
from portico.site import Site

MAX_VIEWS = 100  # cached, one per set of scopes
MAX_NAMED = 30  # names that a description lists in one place

_DISCOVERY = frozenset({INTROSPECT, relationships.NAME})
_REPLACED = frozenset({"get_task", "cancel_task"})  # the same as get_execution_status and cancel_execution
_COLLECTION_READS = frozenset(
    {ListItemsParams, SearchParams, GetParams, CountParams}
)  # replaced by those of `collections`


@dataclass(frozen=True, slots=True)
class ToolFamily:
    """A tool of semantic mode. An operation belongs to the first family of a profile that accepts it."""

    name: str
    purpose: str
    kinds: frozenset[Kind]
    only: frozenset[str] = frozenset()  # names of operations; any, if there are none

    def accepts(self, operation: AqlOperation) -> bool:
        return operation.kind in self.kinds and (not self.only or operation.name in self.only)


def _family(name: str, does: str, *kinds: Kind, only: frozenset[str] = frozenset()) -> ToolFamily:
    return ToolFamily(name, does, frozenset(kinds), only)


PROFILES: Mapping[str, tuple[ToolFamily, ...]] = {
    "crude": (
        _family("create", "Add things", Kind.CREATE),
        _family("read", "Read and search", Kind.READ),
        _family("update", "Change things", Kind.UPDATE),
        _family("delete", "Remove things", Kind.DELETE),
        _family("execute", "Do things", Kind.EXECUTE),
    ),
    "operate": (
        _family("discover", "Find out what there is", Kind.READ, only=_DISCOVERY),
        _family("query", "Read and search", Kind.READ),
        _family("manage", "Add, change and remove things", Kind.CREATE, Kind.UPDATE, Kind.DELETE),
        _family("operate", "Do things", Kind.EXECUTE),
    ),
    "publish": (
        _family("search", "Search and read", Kind.READ),
        _family("curate", "Add and change things", Kind.CREATE, Kind.UPDATE),
        _family("publish", "Do and remove things", Kind.DELETE, Kind.EXECUTE),
    ),
}


def tools_of(aql: AqlSettings) -> dict[str, str | None]:
    """Map tool names to the families of their operations; None for the tool with all of them."""
    single = {_tool(aql): None}
    semantic = {_tool(aql, family.name): family.name for family in PROFILES[aql.profile]}
    every: Mapping[str, Mapping[str, str | None]] = {
        "semantic": semantic,
        "single": single,
        "all": {**semantic, **single},
        "none": {},
    }
    return dict(every[aql.mode])


def _tool(aql: AqlSettings, family: str = "") -> str:
    return f"{aql.prefix}{family}" if family else aql.single_tool


class OperationRegistry:
    """All operations, and those of one caller. Rebuilt when the catalog changes."""

    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._families = PROFILES[config.section(AqlSettings).profile]
        self._introspect = Introspection(site, config, self).operation()
        self._catalog: Catalog | None = None
        self._operations: Mapping[str, AqlOperation] = {}
        self._views: dict[frozenset[str], Mapping[str, AqlOperation]] = {}

    # Operations

    def all_operations(self) -> Mapping[str, AqlOperation]:
        """Return all operations, whatever a caller's scopes."""
        return self._with_links(self._build_operations(), [collection.name for collection in self._site.catalog.public])

    def operations_for(self, caller: Caller) -> Mapping[str, AqlOperation]:
        """Return the operations that a caller has the scope for, by name."""
        operations = self._build_operations()
        if caller.scopes not in self._views:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            allowed = {name: operation for name, operation in operations.items() if _is_for(operation, caller)}
            self._views[caller.scopes] = self._with_links(allowed, self._site.access.readable(caller))
        return self._views[caller.scopes]

    def _build_operations(self) -> Mapping[str, AqlOperation]:
        catalog = self._site.catalog
        if catalog is not self._catalog:
            self._operations = {**_name_operations(self._list_operations(catalog)), INTROSPECT: self._introspect}
            self._catalog, self._views = catalog, {}
        return self._operations

    def _list_operations(self, catalog: Catalog) -> list[AqlOperation]:
        if self._is_safety:
            return list(self._catalog_operations(catalog, ()))
        reads = [
            operation
            for collection in catalog.public
            for operation in collections.collection_operations_for(self._site, self._config, collection)
        ]
        return [*reads, *self._catalog_operations(catalog, reads)]

    def _catalog_operations(self, catalog: Catalog, read: Iterable[AqlOperation]) -> Iterator[AqlOperation]:
        """Yield the operations of the catalog, without those that MCP-AQL replaces."""
        read_types = [details for read_operation in read for details in read_operation.types]
        item_types = [
            details for collection in catalog.public for details in (item_type(collection), input_type(collection))
        ]
        builder = CatalogOperations(self._site, TypeNames((*PROTOCOL, *read_types, *item_types)))
        for name, operation in sorted(catalog.operations.items()):
            is_told = name in _REPLACED or (bool(operation.collection) and operation.params in _COLLECTION_READS)
            if not is_told and (name in LOOP or not self._is_safety):
                yield builder.build(operation)

    def _with_links(self, operations: Mapping[str, AqlOperation], readable: Sequence[str]) -> dict[str, AqlOperation]:
        """Add query_relationships, which depends on the readable collections."""
        links = None if self._is_safety else relationships.relationships_operation(self._site, self._config, readable)
        return dict(sorted({**({links.name: links} if links else {}), **operations}.items()))

    @property
    def _is_safety(self) -> bool:
        return self._config.section(AqlSettings).offers == "safety"

    # Tools

    def families(self) -> tuple[str, ...]:
        return tuple(family.name for family in self._families)

    def kinds_of(self, family: str) -> frozenset[Kind]:
        """Return the kinds of operations in a family."""
        return next(candidate.kinds for candidate in self._families if candidate.name == family)

    def family_of(self, operation: AqlOperation) -> str:
        return next(family.name for family in self._families if family.accepts(operation))

    def tool_of(self, family: str) -> str:
        return _tool(self._config.section(AqlSettings), family)

    @property
    def single_tool(self) -> str:
        """The tool with all operations."""
        return _tool(self._config.section(AqlSettings))

    def tool_for(self, operation: AqlOperation) -> str:
        """Return the tool to call an operation with."""
        return (
            self.single_tool
            if self._config.section(AqlSettings).mode == "single"
            else self.tool_of(self.family_of(operation))
        )

    def tool_descriptions(self, caller: Caller | None = None) -> dict[str, str]:
        """Return the description of each tool, with all operations or with those of one caller."""
        operations = list((self.all_operations() if caller is None else self.operations_for(caller)).values())
        descriptions: dict[str, str] = {}
        for tool, family in tools_of(self._config.section(AqlSettings)).items():
            of_family = [operation for operation in operations if family is None or self.family_of(operation) == family]
            descriptions[tool] = self._describe_tool(self._purpose_of(family), of_family)
        return descriptions

    def _purpose_of(self, family: str | None) -> str:
        return next(
            (candidate.purpose for candidate in self._families if candidate.name == family),
            "Read, change and do things",
        )

    def _describe_tool(self, does: str, operations: Sequence[AqlOperation]) -> str:
        names = fold_names(operation.name for operation in operations) or "nothing for now"
        start = (
            _START_HINT if self._introspect in operations else _other_tool_hint(self._introspection_tool, operations)
        )
        return f"{does} at {self._site.name}: {names}. {start}"

    @property
    def _introspection_tool(self) -> str:
        return self.tool_of(self.family_of(self._introspect))


_START_HINT = (
    'Start with {"operation":"introspect","params":{"query":"operations"}}; '
    'add "name":"<operation>" for its parameters.'
)


def _other_tool_hint(tool: str, operations: Iterable[AqlOperation]) -> str:
    begin = f"For parameters: introspect (via {tool})."
    typical = sorted(operations, key=lambda operation: operation.name in LOOP)
    example_request = next((example.request for operation in typical for example in operation.examples), None)
    return f"{begin} Example: {msgspec.json.encode(example_request).decode()}" if example_request else begin


def _is_for(operation: AqlOperation, caller: Caller) -> bool:
    """Return whether the caller has the scope. Its danger limit is checked on the call, with a better error."""
    catalog_operation = operation.operation
    return (
        catalog_operation is None
        or catalog_operation.open
        or allows(caller.scopes, catalog_operation.kind, catalog_operation.collection, catalog_operation.name)
    )


# Names


def _name_operations(operations: Iterable[AqlOperation]) -> dict[str, AqlOperation]:
    """Map operations by name, renamed where theirs is invalid in MCP-AQL."""
    by_name = {operation.name: operation for operation in operations}
    return {name: _rename(by_name[own], name) for name, own in snake_case_names(by_name).items()}


def _rename(operation: AqlOperation, name: str) -> AqlOperation:
    if name == operation.name:
        return operation
    examples = (
        msgspec.structs.replace(example, request={**example.request, "operation": name})
        for example in operation.examples
    )
    return replace(operation, name=name, examples=tuple(examples))


def fold_names(names: Iterable[str]) -> str:
    """Join operation names, folding those that differ in one part: {list,search}_{books,plays}."""
    all_names = list(names)
    verbs: dict[str, list[str]] = {}
    for verb, _, thing in (name.partition("_") for name in all_names if "_" in name):
        verbs.setdefault(thing, []).append(verb)
    things: dict[tuple[str, ...], list[str]] = {}
    for thing, several in verbs.items():
        things.setdefault(tuple(several), []).append(thing)
    most = sorted(things.items(), key=lambda group: (-len(group[0]) * len(group[1]), group))
    alone = [name for name in all_names if "_" not in name]
    return ", ".join(_truncate([*alone, *(f"{_brace(several)}_{_brace(_truncate(those))}" for several, those in most)]))


def _brace(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"


def _truncate(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) <= MAX_NAMED else [*names[:MAX_NAMED], "…"]
