"""What MCP-AQL offers: which operations, in which family, and what each tool says so that agents can begin."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from portico.access.identity import allows
from portico.catalog import Catalog, Kind
from portico.config import Aql, Config
from portico.operations import CountParams, GetParams, ListParams, SearchParams
from portico.protocols.aql import collections, relationships
from portico.protocols.aql.catalog_operations import Catalogued
from portico.protocols.aql.introspection import Introspection
from portico.protocols.aql.schemas import Names, snaked
from portico.protocols.aql.shapes import INTROSPECT, Offered
from portico.protocols.aql.types import PROTOCOL, input_type, item_type
from portico.requests import Caller
from portico.safety.operations import LOOP
from portico.site import Site

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


def tools_of(aql: Aql) -> dict[str, str | None]:
    """By the name of each tool that there is the family of its operations; None for the one that has all of them."""
    single = {_tool(aql): None}
    semantic = {_tool(aql, each.name): each.name for each in PROFILES[aql.profile]}
    every: Mapping[str, Mapping[str, str | None]] = {
        "semantic": semantic,
        "single": single,
        "all": {**semantic, **single},
        "none": {},
    }
    return dict(every[aql.mode])


def _tool(aql: Aql, family: str = "") -> str:
    return f"{aql.prefix}{family}" if family else aql.single_tool


class Surface:
    """What there is, for everybody and for one caller. Made anew when the catalog changes."""

    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._families = PROFILES[config.aql.profile]
        self._introspect = Introspection(site, config, self).offered()
        self._catalog: Catalog | None = None
        self._made: Mapping[str, Offered] = {}
        self._views: dict[frozenset[str], Mapping[str, Offered]] = {}

    # Operations

    def everything(self) -> Mapping[str, Offered]:
        """All operations, also those that somebody has no scope for."""
        return self._with_links(self._known(), [each.name for each in self._site.catalog.public])

    def offered(self, caller: Caller) -> Mapping[str, Offered]:
        """The operations that this caller has the scope for, by name."""
        known = self._known()
        if caller.scopes not in self._views:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            found = {name: each for name, each in known.items() if _is_for(each, caller)}
            self._views[caller.scopes] = self._with_links(found, self._site.gate.readable(caller))
        return self._views[caller.scopes]

    def _known(self) -> Mapping[str, Offered]:
        catalog = self._site.catalog
        if catalog is not self._catalog:
            self._made = {**_named(self._all(catalog)), INTROSPECT: self._introspect}
            self._catalog, self._views = catalog, {}
        return self._made

    def _all(self, catalog: Catalog) -> list[Offered]:
        if self._is_safety:
            return list(self._catalogued(catalog, ()))
        read = [each for known in catalog.public for each in collections.offered(self._site, self._config, known)]
        return [*read, *self._catalogued(catalog, read)]

    def _catalogued(self, catalog: Catalog, read: Iterable[Offered]) -> Iterator[Offered]:
        """Operations of the catalog, but for what is offered in another way."""
        taken = [each for offered in read for each in offered.types]
        written = [each for known in catalog.public for each in (item_type(known), input_type(known))]
        making = Catalogued(self._site, Names((*PROTOCOL, *taken, *written)))
        for name, operation in sorted(catalog.operations.items()):
            is_told = name in _TOLD or (bool(operation.collection) and operation.params in _READ_HERE)
            if not is_told and (name in LOOP or not self._is_safety):
                yield making.offered(operation)

    def _with_links(self, found: Mapping[str, Offered], readable: Sequence[str]) -> dict[str, Offered]:
        """With what leads from one collection to another: that depends on which of them can be read."""
        links = None if self._is_safety else relationships.offered(self._site, self._config, readable)
        return dict(sorted({**({links.name: links} if links else {}), **found}.items()))

    @property
    def _is_safety(self) -> bool:
        return self._config.aql.offers == "safety"

    # Tools

    def families(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._families)

    def kinds_of(self, family: str) -> frozenset[Kind]:
        """What operations of a family may do."""
        return next(each.kinds for each in self._families if each.name == family)

    def family_of(self, offered: Offered) -> str:
        return next(each.name for each in self._families if each.has(offered))

    def tool_of(self, family: str) -> str:
        return _tool(self._config.aql, family)

    @property
    def single(self) -> str:
        """The tool that has everything."""
        return _tool(self._config.aql)

    def tool_for(self, offered: Offered) -> str:
        """The tool to call an operation with."""
        return self.single if self._config.aql.mode == "single" else self.tool_of(self.family_of(offered))

    def described(self, caller: Caller | None = None) -> dict[str, str]:
        """What each tool says of itself: to everybody the same, or to a caller what it has the scope for."""
        offered = list((self.everything() if caller is None else self.offered(caller)).values())
        said: dict[str, str] = {}
        for tool, family in tools_of(self._config.aql).items():
            of_family = [each for each in offered if family is None or self.family_of(each) == family]
            said[tool] = self._says(self._does(family), of_family)
        return said

    def _does(self, family: str | None) -> str:
        return next((each.does for each in self._families if each.name == family), "Read, change and do things")

    def _says(self, does: str, offered: Sequence[Offered]) -> str:
        names = folded(each.name for each in offered) or "nothing for now"
        start = _START if self._introspect in offered else _elsewhere(self._introspecting, offered)
        return f"{does} at {self._site.name}: {names}. {start}"

    @property
    def _introspecting(self) -> str:
        return self.tool_of(self.family_of(self._introspect))


_START = (
    'Start with {"operation":"introspect","params":{"query":"operations"}}; '
    'add "name":"<operation>" for its parameters.'
)


def _elsewhere(tool: str, offered: Iterable[Offered]) -> str:
    begin = f"For parameters: introspect (via {tool})."
    typical = sorted(offered, key=lambda each: each.name in LOOP)
    shown = next((example.request for each in typical for example in each.examples), None)
    return f"{begin} Example: {msgspec.json.encode(shown).decode()}" if shown else begin


def _is_for(offered: Offered, caller: Caller) -> bool:
    """Whether the caller has the scope. What it may risk is decided when it calls: then it is told why not."""
    known = offered.operation
    return known is None or known.open or allows(caller.scopes, known.kind, known.collection, known.name)


# Names


def _named(offered: Iterable[Offered]) -> dict[str, Offered]:
    """Operations by name, under another one where theirs cannot be one of MCP-AQL."""
    every = {each.name: each for each in offered}
    return {name: _renamed(every[own], name) for name, own in snaked(every).items()}


def _renamed(offered: Offered, name: str) -> Offered:
    if name == offered.name:
        return offered
    told = (msgspec.structs.replace(each, request={**each.request, "operation": name}) for each in offered.examples)
    return replace(offered, name=name, examples=tuple(told))


def folded(names: Iterable[str]) -> str:
    """Names of operations, where those that differ in one part are told as {list,search}_{books,plays}."""
    every = list(names)
    verbs: dict[str, list[str]] = {}
    for verb, _, thing in (name.partition("_") for name in every if "_" in name):
        verbs.setdefault(thing, []).append(verb)
    things: dict[tuple[str, ...], list[str]] = {}
    for thing, several in verbs.items():
        things.setdefault(tuple(several), []).append(thing)
    most = sorted(things.items(), key=lambda each: (-len(each[0]) * len(each[1]), each))
    alone = [name for name in every if "_" not in name]
    return ", ".join(_cut([*alone, *(f"{_braced(several)}_{_braced(_cut(those))}" for several, those in most)]))


def _braced(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"


def _cut(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) <= MAX_NAMED else [*names[:MAX_NAMED], "…"]
