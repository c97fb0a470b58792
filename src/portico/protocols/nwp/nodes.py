"""The site as nodes, made from its catalog: a Memory node for each collection, an Action node for each group of
operations, a Complex node that leads to all of them, and a Gateway.

Everything a manifest says of a node is a function of the catalog and the settings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from portico.access.budget import SUPPORTED
from portico.catalog import Catalog, Collection, Kind, Operation, anchor_of
from portico.config import Config
from portico.operations import schema_of
from portico.operations.workflows import RUN
from portico.protocols.documents import tag_of
from portico.protocols.nwp.errors import UnknownNode
from portico.protocols.nwp.frames import VERSION
from portico.site import MAX_TIMEOUT, Site

PREFIX: Final = "/nwp"
MANIFEST: Final = "application/nwp-manifest+json"
SITE, OPERATIONS, GATEWAY = "site", "operations", "gateway"
MAX_DEPTH: Final = 5  # hops into the graph
MAX_STEPS: Final = 8  # from one JSON Schema to the next that it refers to
TASK_STATUS, TASK_CANCEL = "system.task.status", "system.task.cancel"
WORKFLOW: Final = RUN  # what a gateway makes of every invocation
QUERY, STREAM, INVOKE = "nwp:query", "nwp:stream", "nwp:invoke"

NodeType: TypeAlias = Literal["memory", "action", "complex", "gateway"]

_JSON_TYPES = {
    "string": "string",
    "integer": "int64",
    "number": "decimal",
    "boolean": "bool",
    "array": "array",
    "object": "object",
}
_NULL = {"type": "null"}
_HIDDEN = frozenset({"get_task", "cancel_task", WORKFLOW})  # said in other words here


@dataclass(frozen=True, slots=True)
class Anchor:
    """A schema and its name."""

    id: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """An operation as a node offers it."""

    id: str
    operation: Operation

    @property
    def is_async(self) -> bool:
        """Whether it may run as a task. What only reads is answered at once."""
        return self.operation.long or self.operation.kind != Kind.READ

    @property
    def params(self) -> Anchor:
        return _anchor_of_type(self.operation.params)

    @property
    def result(self) -> Anchor:
        return _anchor_of_type(self.operation.result)

    @property
    def spec(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {
            "description": self.operation.description,
            "params_anchor": self.params.id,
            "result_anchor": self.result.id,
            "async": self.is_async,
            "idempotent": self.operation.idempotent or self.operation.kind == Kind.READ,
            "timeout_ms_default": int(self.operation.timeout * 1000),
            "timeout_ms_max": int(MAX_TIMEOUT * 1000),
            "required_capability": INVOKE,
        }


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    type: NodeType
    title: str
    description: str = ""
    collections: Mapping[str, Anchor] = field(default_factory=dict[str, Anchor])
    actions: Mapping[str, Action] = field(default_factory=dict[str, Action])
    leads_to: tuple[str, ...] = ()  # names of nodes of this site

    @property
    def capability(self) -> str:
        """What an agent must hold to use it at all."""
        return QUERY if self.collections else INVOKE

    @property
    def anchors(self) -> Iterator[tuple[str, Anchor]]:
        """Every schema it publishes, by a name; the first is the one that `.schema` shows."""
        yield from self.collections.items()
        for id, action in self.actions.items():
            yield f"{id}.params", action.params
            yield f"{id}.result", action.result


class Nodes:
    """The nodes of a site, as its catalog is now."""

    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._catalog: Catalog | None = None
        self._nodes: Mapping[str, Node] = {}
        self._capabilities: dict[str, dict[str, bool]] = {}

    @property
    def all(self) -> Mapping[str, Node]:
        catalog = self._site.catalog
        if catalog is not self._catalog:
            self._nodes = {node.name: node for node in _made(self._site, catalog)}
            self._capabilities = {name: self._offered(node) for name, node in self._nodes.items()}
            self._catalog = catalog
        return self._nodes

    async def named(self, name: str) -> Node:
        """The node of this name. Another process may just have made the collection behind it."""
        return await self._site.gate.settled(lambda: self._named(name)) if name not in self.all else self.all[name]

    def _named(self, name: str) -> Node:
        found = self.all.get(name)
        if found is None:
            raise UnknownNode(
                f"There is no node {name[:100]!r}", node=name[:100], hint=f"Known nodes: {', '.join(self.all)}."
            )
        return found

    # What is said of them

    def url(self, node: str, base: str) -> str:
        """The address of a node in its own scheme. HTTP is spoken on that port too, below /nwp."""
        host = urlsplit(base).hostname or "localhost"
        shown = f"[{host}]" if ":" in host else host
        return f"nwp://{shown}:{self._config.server.nwp_port}/{node}"

    def id(self, node: str, base: str) -> str:
        # A port or a slash has no place in a NID.
        return f"urn:nps:node:{(urlsplit(base).hostname or 'localhost').replace(':', '.')}:{node}"

    def capabilities(self, node: Node) -> dict[str, bool]:
        return self._capabilities.get(node.name) or self._offered(node)

    def _offered(self, node: Node) -> dict[str, bool]:
        without = self._config.nwp.without
        reads = bool(node.collections) and "query" not in without
        hears = bool(node.collections) and "subscribe" not in without
        compares = reads and any(self._site.vectors(name) for name in node.collections)
        offered = {
            "query": reads,
            "stream_query": reads,
            "aggregate": reads,
            "subscribe": hears,
            "subscribe_filter": hears,
            "vector_search": compares,
        }
        fixed = {"token_budget_hint": reads, "ext_frame": True, "e2e_enc": False, "inline_anchor": reads}
        return {**{name: there and name not in without for name, there in offered.items()}, **fixed}

    def may(self, node: Node, capability: str) -> bool:
        return self.capabilities(node)[capability]

    def manifest(self, node: Node, base: str) -> dict[str, Any]:
        said: dict[str, Any] = {
            "nwp": VERSION,
            "node_id": self.id(node.name, base),
            "node_type": node.type,
            "display_name": node.title,
            **({"min_agent_version": self._config.nwp.min_version} if self._config.nwp.min_version else {}),
            "wire_formats": ["ncp-capsule", "msgpack", "json"],
            "preferred_format": "ncp-capsule",
            "schema_anchors": {name: anchor.id for name, anchor in node.collections.items()},
            "capabilities": self.capabilities(node),
            "data_sources": [f"collection:{name}" for name in node.collections],
            "auth": self._auth(node, base),
            "rate_limits": self._rates(),
            **({"actions": self.actions(node)} if node.actions else {}),
            "endpoints": self._endpoints(node, base),
            **({"graph": self.graph(node, base)} if node.type == "complex" else {}),
            "tokenizer_support": list(SUPPORTED),
        }
        return {**said, "manifest_version": tag_of(msgspec.json.encode(said))}

    def actions(self, node: Node) -> dict[str, Any]:
        """The operations that can be called on a node. Tasks are looked at and cancelled wherever they are started."""
        own = {id: action.spec for id, action in node.actions.items()}
        return {**own, **_TASK_ACTIONS} if own else {}

    def graph(self, node: Node, base: str) -> dict[str, Any]:
        here = [{"rel": name, "node": self.url(name, base)} for name in node.leads_to]
        elsewhere = [{"rel": each.rel, "node": each.url} for each in self._config.nwp.node]
        return {"refs": [*here, *elsewhere], "max_depth": MAX_DEPTH}

    def _auth(self, node: Node, base: str) -> dict[str, Any]:
        nwp = self._config.nwp
        needed = list(dict.fromkeys((node.capability, *nwp.capabilities)))
        said: dict[str, Any] = {"required": nwp.auth != "none", "identity_type": nwp.auth}
        if nwp.auth == "nip-cert":
            said |= {"trusted_issuers": [base, *nwp.issuers], "required_capabilities": needed}
            said |= {"scope_check": nwp.scope_check, "ocsp_url": f"{base}/v1/agents"}
        return said

    def _rates(self) -> dict[str, int]:
        limits, nwp = self._config.limits, self._config.nwp
        named = limits.anonymous_per_minute if nwp.auth == "none" else limits.keys_per_minute
        return {
            "requests_per_minute": named,
            "max_concurrent_streams": nwp.streams,
            "max_subscriptions": nwp.subscriptions,
        }

    def _endpoints(self, node: Node, base: str) -> dict[str, str]:
        may = self.capabilities(node)
        there = {
            "query": may["query"],
            "stream": may["stream_query"],
            "invoke": bool(node.actions),
            "subscribe": may["subscribe"],
            "actions": bool(node.actions),
        }
        paths = {name: f"{self.url(node.name, base)}/{name}" for name, is_there in there.items() if is_there}
        return {**paths, "schema": f"{self.url(node.name, base)}/.schema"}


_TASK_SPEC = {
    "async": False,
    "idempotent": True,
    "timeout_ms_default": 5000,
    "timeout_ms_max": 5000,
    "required_capability": INVOKE,
}


_TASK_ACTIONS = {
    TASK_STATUS: {"description": "How a task of your own is getting on.", **_TASK_SPEC},
    TASK_CANCEL: {"description": "Stop a task of your own.", **_TASK_SPEC},
}


def _made(site: Site, catalog: Catalog) -> Iterator[Node]:
    """All nodes. Those of the site have their names first; a collection that is called the same gets another."""
    public = catalog.public
    names = {each.name: node_of(each.name) for each in public}
    anchors = {each.name: Anchor(each.anchor_id, each.schema) for each in public}
    groups = {each.name: _actions(catalog, each) for each in public}
    own = {f"{SITE}.{each.name}": each for each in _own(catalog)}
    everything = {id: action for group in groups.values() for id, action in group.items()}
    at_home = {id: Action(id, each) for id, each in own.items()}
    for each in public:
        title = each.title or each.name
        yield Node(names[each.name], "memory", title, each.description, {each.name: anchors[each.name]})
        yield Node(f"{names[each.name]}-{OPERATIONS}", "action", f"{title}: operations", actions=groups[each.name])
    yield Node(OPERATIONS, "action", f"{site.name}: operations", actions=at_home)
    workflow = {f"{SITE}.{WORKFLOW}": Action(f"{SITE}.{WORKFLOW}", catalog.operations[WORKFLOW])}
    yield Node(GATEWAY, "gateway", f"{site.name}: gateway", actions={**at_home, **everything, **workflow})
    memory = tuple(names.values())
    yield Node(SITE, "complex", site.name, collections=anchors, actions={**at_home, **everything}, leads_to=memory)


def node_of(name: str) -> str:
    """The name of the node of a collection."""
    return f"{name}-items" if name in {SITE, OPERATIONS, GATEWAY} else name


def _own(catalog: Catalog) -> Iterator[Operation]:
    for name in sorted(catalog.operations):
        each = catalog.operations[name]
        if not each.collection and name not in _HIDDEN:
            yield each


def _actions(catalog: Catalog, collection: Collection) -> dict[str, Action]:
    """What can be done with a collection: `list_recipes` is recipes.list here."""
    nouns = {collection.name.replace("-", "_"), collection.one.replace("-", "_")}
    found: dict[str, Action] = {}
    for each in catalog.operations.values():
        if each.collection == collection.name:
            verb, _, noun = each.name.partition("_")
            id = f"{collection.name}.{verb if noun in nouns else each.name}"
            found[id] = Action(id, each)
    return found


# Schemas of parameters and results


def _anchor_of_type(kind: Any) -> Anchor:
    try:
        return _kept_anchor(kind)
    except TypeError:  # what holds a schema as somebody wrote it cannot be looked up
        return _made_anchor(kind)


@lru_cache(maxsize=1024)
def _kept_anchor(kind: Any) -> Anchor:
    return _made_anchor(kind)


def _made_anchor(kind: Any) -> Anchor:
    schema = _schema_of_object(schema_of(kind))
    return Anchor(anchor_of(schema), schema)


def _schema_of_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The members of an object that a JSON Schema describes, as fields. What is no object has none to name."""
    definitions: Any = schema.get("$defs", {})
    whole, _ = _resolved(schema, definitions)
    whole, _ = _resolved(whole["items"], definitions) if "items" in whole else (whole, False)
    required, members = whole.get("required", ()), whole.get("properties", {})
    return {"fields": [_field(name, each, name in required, definitions) for name, each in members.items()]}


def _field(name: str, schema: Any, is_required: bool, definitions: Mapping[str, Any]) -> dict[str, Any]:
    whole, may_lack = _resolved(schema, definitions)
    nullable = {"nullable": True} if may_lack or not is_required else {}
    return {"name": name, "type": _type_of(whole), **nullable}


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """What a schema comes down to if it refers to another or is one or nothing, and whether it may be nothing."""
    whole, may_lack = _object(schema), False
    for _ in range(MAX_STEPS):
        reference, choices = whole.get("$ref"), whole.get("anyOf")
        if isinstance(reference, str):
            found = definitions.get(reference.removeprefix("#/$defs/"))
        elif isinstance(choices, list):
            others = [each for each in cast("list[Any]", choices) if each != _NULL]
            may_lack = may_lack or len(others) < len(cast("list[Any]", choices))
            found = others[0] if len(others) == 1 else None
        else:
            break
        whole = _object(found)
    return whole, may_lack


def _object(schema: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _type_of(schema: Mapping[str, Any]) -> str:
    said, values = schema.get("type"), schema.get("enum")
    if schema.get("format") == "date-time":
        return "timestamp"
    if isinstance(values, list) and all(isinstance(each, str) for each in cast("list[Any]", values)):
        return "string"
    return _JSON_TYPES.get(said, "object") if isinstance(said, str) else "object"
