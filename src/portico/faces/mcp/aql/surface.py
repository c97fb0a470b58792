"""What MCP-AQL offers: which operations, in which family, and what each tool says so that agents can begin."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from portico.calls import Caller
from portico.catalog import Catalog, Collection, Kind
from portico.config import Config
from portico.faces.mcp.aql import collections, relationships
from portico.faces.mcp.aql.catalogued import Catalogued
from portico.faces.mcp.aql.introspection import INTROSPECT, Introspection
from portico.faces.mcp.aql.schemas import Names, snaked
from portico.faces.mcp.aql.shapes import Example, Offered
from portico.faces.mcp.aql.types import PROTOCOL, input_type, item_type
from portico.identity import allows
from portico.operations import CountParams, GetParams, ListParams, SearchParams
from portico.site import Site
from portico.supervision import LOOP

MAX_VIEWS = 100  # kept for callers of different scopes
MAX_NAMED = 30  # names that a description lists in one place

_DISCOVERY = frozenset({INTROSPECT, relationships.NAME})
_TOLD = frozenset({"get_task", "cancel_task"})  # get_execution_status and cancel_execution are the same
_READ_HERE = frozenset({ListParams, SearchParams, GetParams, CountParams})  # what collections offer in another way


@dataclass(frozen=True, slots=True)
class Family:
    """A tool of semantic mode. The first of a profile that an operation fits has it."""

    name: str
    does: str
    kinds: frozenset[Kind]
    only: frozenset[str] = frozenset()  # names of operations; any, if there are none

    def has(self, offered: Offered) -> bool:
        return offered.kind in self.kinds and (not self.only or offered.name in self.only)


def _family(name: str, does: str, *kinds: Kind, only: frozenset[str] = frozenset()) -> Family:
    return Family(name, does, frozenset(kinds), only)


PROFILES: Mapping[str, tuple[Family, ...]] = {
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


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation, and the collection that it reads or changes."""

    offered: Offered
    collection: str = ""

    def is_for(self, caller: Caller) -> bool:
        """Whether the caller has the scope. What it may risk is decided when it calls: then it is told why not."""
        operation = self.offered.operation
        if operation is not None:
            return operation.open or allows(caller.scopes, operation.kind, operation.collection, operation.name)
        return not self.collection or allows(caller.scopes, self.offered.kind, self.collection)

    def named(self, name: str) -> "Entry":
        """The same under another name."""
        if name == self.offered.name:
            return self
        told = (msgspec.structs.replace(each, request={**each.request, "operation": name}) for each in self.examples)
        return replace(self, offered=replace(self.offered, name=name, examples=tuple(told)))

    @property
    def examples(self) -> tuple[Example, ...]:
        return self.offered.examples


@dataclass(frozen=True, slots=True)
class View:
    """What there is for callers of the same scopes."""

    entries: tuple[Entry, ...]
    offered: Mapping[str, Offered]


class Surface:
    """What there is, for everybody and for one caller. Made anew when the catalog changes."""

    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._families = PROFILES[config.aql.profile]
        self._introspect = Introspection(site, config, self).offered()
        self._catalog: Catalog | None = None
        self._entries: Mapping[str, Entry] = {}
        self._views: dict[frozenset[str], View] = {}

    # Operations

    def everything(self) -> Mapping[str, Offered]:
        """All operations, also those that somebody has no scope for."""
        return self._all().offered

    def offered(self, caller: Caller) -> Mapping[str, Offered]:
        """The operations that this caller has the scope for, by name."""
        return self._view(caller).offered

    def _view(self, caller: Caller) -> View:
        known = self._known().values()
        if caller.scopes not in self._views:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            found = [each for each in known if each.is_for(caller)]
            self._views[caller.scopes] = self._viewed(found, self._site.gate.readable(caller))
        return self._views[caller.scopes]

    def _all(self) -> View:
        return self._viewed(self._known().values(), [each.name for each in self._site.catalog.public])

    def _viewed(self, entries: Iterable[Entry], readable: Sequence[str]) -> View:
        """With what is there across collections: that depends on which of them can be read."""
        found = {each.offered.name: each for each in entries}
        across = None if self._is_safety else relationships.offered(self._site, self._config, readable)
        if across is not None:
            found.setdefault(across.name, Entry(across))
        every = dict(sorted(found.items()))
        return View(tuple(every.values()), {name: each.offered for name, each in every.items()})

    def _known(self) -> Mapping[str, Entry]:
        catalog = self._site.catalog
        if catalog is not self._catalog:
            self._entries = self._made(catalog)
            self._catalog, self._views = catalog, {}
        return self._entries

    def _made(self, catalog: Catalog) -> dict[str, Entry]:
        read = [] if self._is_safety else [each for known in catalog.public for each in self._read(known)]
        own = self._catalogued(catalog, read)
        every = {each.offered.name: each for each in (*read, *own)}
        named = {name: every[known].named(name) for name, known in snaked(every).items()}
        return {**named, INTROSPECT: Entry(self._introspect)}

    @property
    def _is_safety(self) -> bool:
        return self._config.aql.offers == "safety"

    def _read(self, collection: Collection) -> Iterator[Entry]:
        for offered in collections.offered(self._site, self._config, collection):
            yield Entry(offered, collection.name)

    def _catalogued(self, catalog: Catalog, read: Iterable[Entry]) -> Iterator[Entry]:
        """Operations of the catalog, but for what is offered in another way."""
        taken = [each for entry in read for each in entry.offered.types]
        written = [each for known in catalog.public for each in (item_type(known), input_type(known))]
        making = Catalogued(self._site, Names((*PROTOCOL, *taken, *written)))
        for name, operation in sorted(catalog.operations.items()):
            is_told = name in _TOLD or (bool(operation.collection) and operation.params in _READ_HERE)
            if not is_told and (name in LOOP or not self._is_safety):
                yield Entry(making.offered(operation), operation.collection)

    # Tools

    def families(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._families)

    def kinds_of(self, family: str) -> frozenset[Kind]:
        """What operations of a family may do."""
        return next(each.kinds for each in self._families if each.name == family)

    def family_of(self, offered: Offered) -> str:
        return next(each.name for each in self._families if each.has(offered))

    def tool_of(self, family: str) -> str:
        return f"{self._config.aql.prefix}{family}"

    @property
    def single(self) -> str:
        """The tool that has everything."""
        return self._config.aql.prefix.removesuffix("_")

    def tool_for(self, offered: Offered) -> str:
        """The tool to call an operation with."""
        return self.single if self._config.aql.mode == "single" else self.tool_of(self.family_of(offered))

    def described(self, caller: Caller | None = None) -> dict[str, str]:
        """What each tool says of itself: to everybody the same, or to a caller what it has the scope for."""
        entries = (self._all() if caller is None else self._view(caller)).entries
        said: dict[str, str] = {}
        if self._config.aql.mode in {"semantic", "all"}:
            for family in self._families:
                of_family = [each for each in entries if self.family_of(each.offered) == family.name]
                said[self.tool_of(family.name)] = self._says(family.does, of_family)
        if self._config.aql.mode in {"single", "all"}:
            said[self.single] = self._says("Read, change and do things", entries)
        return said

    def _says(self, does: str, entries: Sequence[Entry]) -> str:
        names = folded(each.offered.name for each in entries) or "nothing for now"
        has_introspect = any(each.offered.name == INTROSPECT for each in entries)
        start = _START if has_introspect else _elsewhere(self._introspecting, entries)
        return f"{does} at {self._site.name}: {names}. {start}"

    @property
    def _introspecting(self) -> str:
        return self.tool_of(self.family_of(self._introspect))


_START = (
    'Start with {"operation":"introspect","params":{"query":"operations"}}; '
    'add "name":"<operation>" for its parameters.'
)


def _elsewhere(tool: str, entries: Iterable[Entry]) -> str:
    begin = f"For parameters: introspect (via {tool})."
    typical = sorted(entries, key=lambda each: each.offered.name in LOOP)
    shown = next((example.request for each in typical for example in each.examples), None)
    return f"{begin} Example: {msgspec.json.encode(shown).decode()}" if shown else begin


# Names, in few words


def folded(names: Iterable[str]) -> str:
    """Names of operations, where those that differ in one part are told as {list,search}_{books,plays}."""
    verbs: dict[str, list[str]] = {}
    for name in names:
        verb, _, thing = name.partition("_")
        verbs.setdefault(thing, []).append(verb)
    things: dict[tuple[str, ...], list[str]] = {}
    for thing, several in verbs.items():
        things.setdefault(tuple(several), []).append(thing)
    most = sorted(things.items(), key=lambda each: (-len(each[0]) * len(each[1]), each))
    return ", ".join(_cut([_crossed(*each) for each in most]))


def _crossed(verbs: Sequence[str], things: Sequence[str]) -> str:
    if things == [""]:
        return ", ".join(verbs)
    return f"{_braced(verbs)}_{_braced(_cut(things))}"


def _braced(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"


def _cut(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) <= MAX_NAMED else [*names[:MAX_NAMED], "…"]
