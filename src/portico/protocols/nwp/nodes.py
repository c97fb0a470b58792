"""The nodes of the site, built from its catalog: a Memory node for each collection, an Action node for each group of
operations, a Complex node that leads to all of them, and a Gateway.

Everything in a node's manifest is a function of the catalog and the settings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from portico.access.budget import list_tokenizers
from portico.catalog import Catalog, Collection, Kind, Operation, anchor_of
from portico.config import Config
from portico.links import FieldLink, links_among
from portico.operations import schema_of
from portico.operations.calls import MAX_TIMEOUT
from portico.operations.workflows import RUN
from portico.protocols.documents import tag_of
from portico.protocols.nwp.errors import UnknownNode
from portico.protocols.nwp.frames import VERSION
from portico.protocols.nwp.settings import NwpSettings
from portico.site import Site

PREFIX: Final = "/nwp"
MANIFEST: Final = "application/nwp-manifest+json"
SITE, OPERATIONS, GATEWAY = "site", "operations", "gateway"
MAX_DEPTH: Final = 5  # hops into the graph
MAX_STEPS: Final = 8  # references followed within a JSON Schema
TASK_STATUS, TASK_CANCEL = "system.task.status", "system.task.cancel"
WORKFLOW: Final = RUN  # the operation that a gateway calls for every invocation
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
_HIDDEN = frozenset({"get_task", "cancel_task", WORKFLOW})  # NWP has its own actions for these


@dataclass(frozen=True, slots=True)
class SchemaAnchor:
    """A schema and its id."""

    id: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeAction:
    """An operation as an action of a node."""

    id: str
    operation: Operation

    @property
    def is_async(self) -> bool:
        """Whether it may run as a task. Read operations may not."""
        return self.operation.long or self.operation.kind != Kind.READ

    @property
    def params(self) -> SchemaAnchor:
        return _anchor_of_type(self.operation.params)

    @property
    def result(self) -> SchemaAnchor:
        return _anchor_of_type(self.operation.result)

    @property
    def spec(self) -> dict[str, Any]:
        """Its entry in a manifest."""
        return {
            "description": self.operation.description,
            "params_anchor": self.params.id,
            "result_anchor": self.result.id,
            "async": self.is_async,
            "idempotent": self.operation.is_idempotent,
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
    collections: Mapping[str, SchemaAnchor] = field(default_factory=dict[str, SchemaAnchor])
    actions: Mapping[str, NodeAction] = field(default_factory=dict[str, NodeAction])
    leads_to: tuple[str, ...] = ()  # names of nodes of this site

    @property
    def capability(self) -> str:
        """The capability that an agent needs to use the node at all."""
        return QUERY if self.collections else INVOKE

    @property
    def anchors(self) -> Iterator[tuple[str, SchemaAnchor]]:
        """Every schema that the node publishes, by name; `.schema` shows the first."""
        yield from self.collections.items()
        for id, action in self.actions.items():
            yield f"{id}.params", action.params
            yield f"{id}.result", action.result


class NodeRegistry:
    """The nodes of a site, rebuilt when its catalog changes."""

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
            self._nodes = {node.name: node for node in _build_nodes(self._site, catalog)}
            self._capabilities = {name: self._capabilities_of(node) for name, node in self._nodes.items()}
            self._catalog = catalog
        return self._nodes

    async def get(self, name: str) -> Node:
        """Return a node by name. Another process may just have created the collection behind it."""
        return await self._site.access.look_up(lambda: self._get(name)) if name not in self.all else self.all[name]

    def _get(self, name: str) -> Node:
        node = self.all.get(name)
        if node is None:
            raise UnknownNode(
                f"There is no node {name[:100]!r}", node=name[:100], hint=f"Known nodes: {', '.join(self.all)}."
            )
        return node

    # Manifests

    def url(self, node: str, base: str) -> str:
        """Return the nwp:// URL of a node. The same port also serves HTTP, below /nwp."""
        host = urlsplit(base).hostname or "localhost"
        bracketed = f"[{host}]" if ":" in host else host
        return f"nwp://{bracketed}:{self._config.server.nwp_port}/{node}"

    def id(self, node: str, base: str) -> str:
        # A NID cannot contain a port or a slash.
        return f"urn:nps:node:{(urlsplit(base).hostname or 'localhost').replace(':', '.')}:{node}"

    def capabilities(self, node: Node) -> dict[str, bool]:
        return self._capabilities.get(node.name) or self._capabilities_of(node)

    def _capabilities_of(self, node: Node) -> dict[str, bool]:
        without = self._config.section(NwpSettings).without
        reads = bool(node.collections) and "query" not in without
        subscribes = bool(node.collections) and "subscribe" not in without
        compares = reads and any(self._site.vectors(name) for name in node.collections)
        optional = {
            "query": reads,
            "stream_query": reads,
            "aggregate": reads,
            "subscribe": subscribes,
            "subscribe_filter": subscribes,
            "vector_search": compares,
        }
        fixed = {"token_budget_hint": reads, "ext_frame": True, "e2e_enc": False, "inline_anchor": reads}
        return {**{name: is_available and name not in without for name, is_available in optional.items()}, **fixed}

    def may(self, node: Node, capability: str) -> bool:
        return self.capabilities(node)[capability]

    def manifest(self, node: Node, base: str) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "nwp": VERSION,
            "node_id": self.id(node.name, base),
            "node_type": node.type,
            "display_name": node.title,
            **(
                {"min_agent_version": self._config.section(NwpSettings).min_version}
                if self._config.section(NwpSettings).min_version
                else {}
            ),
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
            "tokenizer_support": list(list_tokenizers()),
        }
        return {**manifest, "manifest_version": tag_of(msgspec.json.encode(manifest))}

    def actions(self, node: Node) -> dict[str, Any]:
        """Return the actions of a node, with those for tasks wherever tasks can be started."""
        own = {id: action.spec for id, action in node.actions.items()}
        return {**own, **_TASK_ACTIONS} if own else {}

    def graph(self, node: Node, base: str) -> dict[str, Any]:
        local = [{"rel": name, "node": self.url(name, base), **self._links(name, base)} for name in node.leads_to]
        remote = [{"rel": child.rel, "node": child.url} for child in self._config.section(NwpSettings).node]
        return {"refs": [*local, *remote], "max_depth": MAX_DEPTH}

    def _links(self, name: str, base: str) -> dict[str, Any]:
        """Return the nodes whose records the fields of a node name by id, as foreign keys do."""
        node = self.all[name]
        links = links_among(self._site.catalog.public)
        nodes = {
            self._published_name(link): self.url(node_of(link.target), base)
            for link in links
            if link.collection in node.collections
        }
        return {"links": nodes} if nodes else {}

    def _published_name(self, link: FieldLink) -> str:
        """Return the name that a field has in the schema of its node."""
        aliases = self._site.catalog.collections[link.collection].names.aliases
        return aliases.get(link.field, link.field)

    def _auth(self, node: Node, base: str) -> dict[str, Any]:
        nwp = self._config.section(NwpSettings)
        required = list(dict.fromkeys((node.capability, *nwp.capabilities)))
        auth: dict[str, Any] = {"required": nwp.auth != "none", "identity_type": nwp.auth}
        if nwp.auth == "nip-cert":
            auth |= {"trusted_issuers": [base, *nwp.issuers], "required_capabilities": required}
            auth |= {"scope_check": nwp.scope_check, "ocsp_url": f"{base}/v1/agents"}
        return auth

    def _rates(self) -> dict[str, int]:
        limits, nwp = self._config.limits, self._config.section(NwpSettings)
        per_minute = limits.anonymous_per_minute if nwp.auth == "none" else limits.keys_per_minute
        return {
            "requests_per_minute": per_minute,
            "max_concurrent_streams": nwp.streams,
            "max_subscriptions": nwp.subscriptions,
        }

    def _endpoints(self, node: Node, base: str) -> dict[str, str]:
        capabilities = self.capabilities(node)
        available = {
            "query": capabilities["query"],
            "stream": capabilities["stream_query"],
            "invoke": bool(node.actions),
            "subscribe": capabilities["subscribe"],
            "actions": bool(node.actions),
        }
        paths = {name: f"{self.url(node.name, base)}/{name}" for name, is_there in available.items() if is_there}
        return {**paths, "schema": f"{self.url(node.name, base)}/.schema"}


_TASK_SPEC = {
    "async": False,
    "idempotent": True,
    "timeout_ms_default": 5000,
    "timeout_ms_max": 5000,
    "required_capability": INVOKE,
}


_TASK_ACTIONS = {
    TASK_STATUS: {"description": "Get the status of one of your tasks.", **_TASK_SPEC},
    TASK_CANCEL: {"description": "Cancel one of your tasks.", **_TASK_SPEC},
}


async def check_node(site: Site, config: Config, name: str) -> None:
    """Raise UnknownNode if the site has no node of this name."""
    await NodeRegistry(site, config).get(name)


def _build_nodes(site: Site, catalog: Catalog) -> Iterator[Node]:
    """Yield all nodes. A collection with the name of one of the site's own nodes gets another name."""
    public = catalog.public
    names = {collection.name: node_of(collection.name) for collection in public}
    anchors = {collection.name: SchemaAnchor(collection.anchor_id, collection.schema) for collection in public}
    groups = {collection.name: _actions(catalog, collection) for collection in public}
    site_operations = {f"{SITE}.{collection.name}": collection for collection in _site_operations(catalog)}
    collection_actions = {id: action for group in groups.values() for id, action in group.items()}
    site_actions = {id: NodeAction(id, collection) for id, collection in site_operations.items()}
    for collection in public:
        title = collection.title or collection.name
        yield Node(
            names[collection.name], "memory", title, collection.description, {collection.name: anchors[collection.name]}
        )
        yield Node(
            f"{names[collection.name]}-{OPERATIONS}", "action", f"{title}: operations", actions=groups[collection.name]
        )
    yield Node(OPERATIONS, "action", f"{site.name}: operations", actions=site_actions)
    workflow = {f"{SITE}.{WORKFLOW}": NodeAction(f"{SITE}.{WORKFLOW}", catalog.operations[WORKFLOW])}
    yield Node(GATEWAY, "gateway", f"{site.name}: gateway", actions={**site_actions, **collection_actions, **workflow})
    memory = tuple(names.values())
    yield Node(
        SITE, "complex", site.name, collections=anchors, actions={**site_actions, **collection_actions}, leads_to=memory
    )


def node_of(name: str) -> str:
    """Return the name of a collection's node."""
    return f"{name}-items" if name in {SITE, OPERATIONS, GATEWAY} else name


def _site_operations(catalog: Catalog) -> Iterator[Operation]:
    for name in sorted(catalog.operations):
        operation = catalog.operations[name]
        if not operation.collection and name not in _HIDDEN:
            yield operation


def _actions(catalog: Catalog, collection: Collection) -> dict[str, NodeAction]:
    """Return the actions of a collection: `list_recipes` becomes recipes.list."""
    nouns = {collection.name.replace("-", "_"), collection.one.replace("-", "_")}
    actions: dict[str, NodeAction] = {}
    for operation in catalog.operations.values():
        if operation.collection == collection.name:
            verb, _, noun = operation.name.partition("_")
            id = f"{collection.name}.{verb if noun in nouns else operation.name}"
            actions[id] = NodeAction(id, operation)
    return actions


# Schemas of parameters and results


def _anchor_of_type(kind: Any) -> SchemaAnchor:
    try:
        return _lookup_anchor(kind)
    except TypeError:  # a type that holds a literal schema is not hashable
        return _build_anchor(kind)


@lru_cache(maxsize=1024)
def _lookup_anchor(kind: Any) -> SchemaAnchor:
    return _build_anchor(kind)


def _build_anchor(kind: Any) -> SchemaAnchor:
    schema = _schema_of_object(schema_of(kind))
    return SchemaAnchor(anchor_of(schema), schema)


def _schema_of_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of an object's JSON Schema as fields; none for any other schema."""
    definitions: Any = schema.get("$defs", {})
    resolved, _ = _resolve(schema, definitions)
    resolved, _ = _resolve(resolved["items"], definitions) if "items" in resolved else (resolved, False)
    required, members = resolved.get("required", ()), resolved.get("properties", {})
    return {"fields": [_field(name, member, name in required, definitions) for name, member in members.items()]}


def _field(name: str, schema: Any, is_required: bool, definitions: Mapping[str, Any]) -> dict[str, Any]:
    resolved, is_optional = _resolve(schema, definitions)
    nullable = {"nullable": True} if is_optional or not is_required else {}
    return {"name": name, "type": _type_of(resolved), **nullable}


def _resolve(schema: Any, definitions: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Follow references and optional types. Returns the schema, and whether null is allowed."""
    current, is_optional = _object(schema), False
    for _ in range(MAX_STEPS):
        reference, choices = current.get("$ref"), current.get("anyOf")
        if isinstance(reference, str):
            target = definitions.get(reference.removeprefix("#/$defs/"))
        elif isinstance(choices, list):
            others = [choice for choice in cast("list[Any]", choices) if choice != _NULL]
            is_optional = is_optional or len(others) < len(cast("list[Any]", choices))
            target = others[0] if len(others) == 1 else None
        else:
            break
        current = _object(target)
    return current, is_optional


def _object(schema: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _type_of(schema: Mapping[str, Any]) -> str:
    kind, values = schema.get("type"), schema.get("enum")
    if schema.get("format") == "date-time":
        return "timestamp"
    if isinstance(values, list) and all(isinstance(value, str) for value in cast("list[Any]", values)):
        return "string"
    return _JSON_TYPES.get(kind, "object") if isinstance(kind, str) else "object"
