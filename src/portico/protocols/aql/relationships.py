"""The `query_relationships` operation: the graph of links around one item, step by step.

Items that the caller may not read are neither returned nor counted.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import msgspec

from portico.catalog import ID, FieldType, Kind
from portico.config import Config
from portico.errors import InvalidCursor, InvalidParams, UnknownItem
from portico.items import Item, text_problem
from portico.protocols.aql import paging
from portico.protocols.aql.envelopes import invalid_param
from portico.protocols.aql.links import VOCABULARY, ItemKey, ItemLink, LinkFinder, item_key, link_fields
from portico.protocols.aql.schemas import info_of
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.shapes import (
    AqlOperation,
    AqlRequestContext,
    AqlResult,
    OperationWarning,
    ParameterInfo,
    RelationshipCapabilities,
    RequestExample,
    TypeDetails,
)
from portico.query import Condition, Query
from portico.site import Site

Direction: TypeAlias = Literal["incoming", "outgoing", "both"]

NAME = "query_relationships"
DIRECTIONS: tuple[Direction, ...] = ("incoming", "outgoing", "both")
PARTS = ("root", "relationships", "graph.nodes", "graph.edges")
MAX_DEPTH = 3
MAX_NODES = 200
MAX_EDGES = 500
MAX_TYPES = 100  # relationship types in introspection
CURSOR_SECONDS = 3600.0

ELEMENT = TypeDetails(
    name="ElementRef",
    kind="object",
    description="An item of a collection.",
    fields=(
        ParameterInfo(name="element_type", type="string", required=True, description="The collection"),
        ParameterInfo(name="element_name", type="string", required=True, description="The item's id"),
    ),
)
RELATIONSHIPS = TypeDetails(
    name="Relationships",
    kind="object",
    description="The links around the root: each once, nearest first, including those that close a circle.",
    fields=(
        ParameterInfo(name="root", type=ELEMENT.name, required=False),
        ParameterInfo(
            name="relationships",
            type="array",
            required=False,
            items={"type": "object"},
            description="type, direction, target and depth of each, seen from the item that is nearer to the root",
        ),
        ParameterInfo(
            name="graph",
            type="object",
            required=False,
            description="nodes (id, element_type, element_name) and edges (source, target, type)",
        ),
        ParameterInfo(name="pageInfo", type="PageInfo", required=True),
    ),
)


@dataclass(frozen=True, slots=True)
class RelationshipQuery:
    root: ItemKey
    direction: Direction
    relationship: str
    depth: int
    include: tuple[str, ...]
    page: paging.PageRequest
    warnings: tuple[OperationWarning, ...]

    @property
    def digest(self) -> str:
        """A hash of the query, the same for all its pages and for every `include`."""
        query = [*self.root, self.direction, self.relationship, self.depth]
        return hashlib.sha256(msgspec.json.encode(query)).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Relation:
    """A link, seen from the item nearer to the root."""

    type: str
    direction: Literal["incoming", "outgoing"]
    source: ItemKey
    target: ItemKey
    depth: int

    @property
    def neighbor(self) -> ItemKey:
        return self.target if self.direction == "outgoing" else self.source

    @property
    def key(self) -> tuple[Any, ...]:
        return self.depth, self.type, self.direction, self.source, self.target


@dataclass(slots=True)
class RelationshipTraversal:
    """A breadth-first traversal of the graph."""

    linked: LinkFinder
    direction: Direction
    relations: dict[tuple[ItemKey, ItemKey, str], Relation] = field(
        default_factory=dict[tuple[ItemKey, ItemKey, str], Relation]
    )
    nodes: set[ItemKey] = field(default_factory=set[ItemKey])
    is_truncated: bool = False

    async def traverse(self, root: Item, depth: int) -> None:
        self.nodes.add(item_key(root))
        edge: list[Item] = [root]
        for step in range(1, depth + 1):
            edge = await self._step(edge, step)
            if not edge:
                break

    async def _step(self, items: Sequence[Item], depth: int) -> list[Item]:
        """Add the links of these items, and return the items that are new."""
        reached: list[Item] = []
        if self.direction != "incoming":
            reached += self._add_relations(await self.linked.find_outgoing(items), "outgoing", depth)
        if self.direction != "outgoing":
            reached += self._add_relations(await self.linked.find_incoming(items), "incoming", depth)
        return reached

    def _add_relations(
        self, links: Iterable[ItemLink], direction: Literal["incoming", "outgoing"], depth: int
    ) -> list[Item]:
        reached: list[Item] = []
        for link in links:
            other = link.target if direction == "outgoing" else link.source
            edge = (item_key(link.source), item_key(link.target), link.type)
            is_new = item_key(other) not in self.nodes
            if edge in self.relations:
                continue
            if len(self.relations) >= MAX_EDGES or (is_new and len(self.nodes) >= MAX_NODES):
                self.is_truncated = True
                continue
            self.relations[edge] = Relation(link.type, direction, edge[0], edge[1], depth)
            if is_new:
                self.nodes.add(item_key(other))
                reached.append(other)
        return reached


def relationships_operation(site: Site, config: Config, collections: Sequence[str]) -> AqlOperation | None:
    """Return the operation over these collections; None without any."""
    if not collections:
        return None
    relationships = Relationships(site, config, tuple(collections))
    return AqlOperation(
        name=NAME,
        kind=Kind.READ,
        description=(
            "Find the links between an item and others, by id, @id, url or name, in both directions, "
            f"up to {MAX_DEPTH} steps away. Only items that you may read are found.\nSimilar to list, but of links."
        ),
        params=relationships.parameters(),
        returns=info_of(RELATIONSHIPS),
        run=relationships.run,
        examples=(
            RequestExample(
                description="The links into an item",
                request={
                    "operation": NAME,
                    "params": {
                        "root": {"element_type": collections[0], "element_name": "…"},
                        "direction": "incoming",
                    },
                },
            ),
        ),
        relationships=RelationshipCapabilities(
            supported=True,
            directions=DIRECTIONS,
            relationship_types=relationships.types()[:MAX_TYPES],
            max_depth=MAX_DEPTH,
        ),
        types=(ELEMENT, RELATIONSHIPS),
    )


@dataclass(frozen=True, slots=True)
class Relationships:
    site: Site
    config: Config
    collections: tuple[str, ...]

    def parameters(self) -> tuple[ParameterInfo, ...]:
        forth = paging.page_params(self.config.section(AqlSettings), back=False)
        return (
            ParameterInfo(
                name="root",
                type=ELEMENT.name,
                required=True,
                description="The item to start from: element_type, a collection, and element_name, an id",
            ),
            ParameterInfo(
                name="direction",
                type="string",
                required=False,
                description="Links into the item, out of it, or both",
                default="both",
                enum=DIRECTIONS,
            ),
            ParameterInfo(
                name="relationship",
                type="string",
                required=False,
                description="Only links through this field, such as author",
            ),
            ParameterInfo(
                name="depth",
                type="integer",
                required=False,
                description="How many steps from the root",
                default=1,
                minimum=1,
                maximum=MAX_DEPTH,
            ),
            ParameterInfo(
                name="include",
                type="array",
                required=False,
                description=f"Parts of the result: {', '.join(PARTS)}; all by default",
                items={"type": "string", "enum": list(PARTS)},
            ),
            *forth,
        )

    def types(self, among: Iterable[str] | None = None) -> tuple[str, ...]:
        """Return the fields that can link to other items; of strings, only those of the vocabulary and foreign keys."""
        collections = self.site.catalog.collections
        fields = [
            name
            for collection in (self.collections if among is None else among)
            if collection in collections
            for name in link_fields(collections[collection])
            if collections[collection].fields[name].type != FieldType.STRING
            or collections[collection].fields[name].target in self.collections
        ]
        return tuple(dict.fromkeys((*VOCABULARY, *fields)))

    async def run(self, params: Mapping[str, Any], context: AqlRequestContext) -> AqlResult:
        readable = self._readable(context)
        query = self._read(params, readable)
        position = self._cursor_position(query, context)
        root = await self._fetch_root(query.root, context)
        traversal = RelationshipTraversal(
            LinkFinder(self.site, context.caller, readable, query.relationship), query.direction
        )
        await traversal.traverse(root, query.depth)
        relations = sorted(traversal.relations.values(), key=lambda relation: relation.key)
        rest = [relation for relation in relations if position is None or relation.key > position]
        warnings = query.warnings
        if traversal.is_truncated or traversal.linked.is_truncated:
            warnings = (
                *warnings,
                paging.truncation_warning("relationships", len(relations) + 1, len(relations), len(relations)),
            )
        return AqlResult(self._render(query, rest, context), warnings)

    def _readable(self, context: AqlRequestContext) -> tuple[str, ...]:
        readable = set(self.site.access.readable(context.caller))
        return tuple(name for name in self.collections if name in readable)

    def _read(self, params: Mapping[str, Any], readable: Sequence[str]) -> RelationshipQuery:
        part, warnings = paging.parse_page_request(params, self.config.section(AqlSettings), NAME)
        relationship = params.get("relationship") or ""
        collections = self.site.catalog.collections
        if relationship and not self._is_known(relationship, readable):
            raise InvalidParams(
                f"No field '{relationship[:128]}' links items",
                operation=NAME,
                param="relationship",
                expected="a relationship",
                valid=list(self.types(name for name in readable if name in collections)),
            )
        return RelationshipQuery(
            _read_root(params.get("root"), readable),
            _read_direction(params.get("direction", "both")),
            relationship,
            _read_depth(params.get("depth", 1)),
            _read_include(params.get("include")),
            part,
            warnings,
        )

    def _is_known(self, relationship: str, readable: Sequence[str]) -> bool:
        collections = self.site.catalog.collections
        fields = (link_fields(collections[name]) for name in readable if name in collections)
        return relationship in VOCABULARY or any(relationship in name for name in fields)

    def _cursor_position(self, query: RelationshipQuery, context: AqlRequestContext) -> tuple[Any, ...] | None:
        """Return the position of the last relation on the previous page."""
        if not query.page.cursor:
            return None
        content = self.site.tokens.unseal(query.page.cursor, context.caller)
        if content is None or content.get("of") != query.digest:
            raise InvalidCursor(
                "The cursor does not belong to this query",
                operation=NAME,
                param="after",
                hint="Send the query again unchanged, or start again without a cursor.",
            )
        depth, type, direction, source, target = content["place"]
        return depth, type, direction, tuple(source), tuple(target)

    async def _fetch_root(self, root: ItemKey, context: AqlRequestContext) -> Item:
        collection, id = root
        ids = () if text_problem(id) else (id,)
        page = await self.site.query(Query(collection, where=Condition(ID, "in", ids), limit=1), context.caller)
        if not page.items:
            raise UnknownItem(f"{collection} has no item '{id[:100]}'", collection=collection, id=id[:100])
        return page.items[0]

    def _render(self, query: RelationshipQuery, rest: Sequence[Relation], context: AqlRequestContext) -> dict[str, Any]:
        size = query.page.size
        page = rest[:size]
        nodes = dict.fromkeys([query.root, *(place for element in page for place in (element.source, element.target))])
        graph = {
            "nodes": [{"id": _node_id(element), **_element(element)} for element in nodes],
            "edges": [{"source": _node_id(e.source), "target": _node_id(e.target), "type": e.type} for e in page],
        }
        graph_parts = {part: graph[part] for part in graph if f"graph.{part}" in query.include}
        data: dict[str, Any] = {}
        if "root" in query.include:
            data["root"] = _element(query.root)
        if "relationships" in query.include:
            data["relationships"] = [_relation(element) for element in page]
        return {**data, **({"graph": graph_parts} if graph_parts else {}), "pageInfo": self._info(query, rest, context)}

    def _info(self, query: RelationshipQuery, rest: Sequence[Relation], context: AqlRequestContext) -> dict[str, Any]:
        size = query.page.size
        info: dict[str, Any] = {"hasNextPage": len(rest) > size, "hasPreviousPage": bool(query.page.cursor)}
        if rest:
            position = {"of": query.digest, "place": rest[:size][-1].key}
            info["endCursor"] = self.site.tokens.seal(position, context.caller, CURSOR_SECONDS)
        return {**info, "pageSize": size}


def _node_id(place: ItemKey) -> str:
    return "/".join(place)


def _element(place: ItemKey) -> dict[str, str]:
    return {"element_type": place[0], "element_name": place[1]}


def _relation(relation: Relation) -> dict[str, Any]:
    return {
        "type": relation.type,
        "direction": relation.direction,
        "target": _element(relation.neighbor),
        "depth": relation.depth,
    }


def _read_root(raw: Any, readable: Sequence[str]) -> ItemKey:
    match raw:
        case {"element_type": str() as collection, "element_name": str() as id, **rest} if not rest:
            if collection in readable:
                return collection, id
            raise InvalidParams(
                f"There is no element_type '{collection[:128]}'; known: {', '.join(readable)}",
                operation=NAME,
                param="root",
                expected="a collection",
                valid=list(readable),
            )
        case _:
            expected = "element_type and element_name"
            raise invalid_param(NAME, "root", f"'root' must have {expected}", expected, raw)


def _read_direction(raw: Any) -> Direction:
    matching: Direction | None = next((direction for direction in DIRECTIONS if direction == raw), None)
    if matching is None:
        raise invalid_param(
            NAME, "direction", f"'direction' must be one of {', '.join(DIRECTIONS)}", ", ".join(DIRECTIONS), raw
        )
    return matching


def _read_depth(raw: Any) -> int:
    if type(raw) is not int or not 1 <= raw <= MAX_DEPTH:
        raise invalid_param(NAME, "depth", f"'depth' must be between 1 and {MAX_DEPTH}", f"1 to {MAX_DEPTH}", raw)
    return raw


def _read_include(raw: Any) -> tuple[str, ...]:
    if raw is None:
        return PARTS
    parts = cast("list[Any]", raw) if isinstance(raw, list) else []
    if not parts or any(part not in PARTS for part in parts):
        raise invalid_param(NAME, "include", f"'include' must be a list of {', '.join(PARTS)}", ", ".join(PARTS), parts)
    return tuple(part for part in PARTS if part in parts)
