"""query_relationships: what an item has to do with others, step by step, as far as the caller may read.

The answer is a part of the graph around one item. What a caller may not read is neither in it nor counted.
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
from portico.protocols.aql.complaints import misfit
from portico.protocols.aql.links import VOCABULARY, Link, Linked, Place, linking, place_of
from portico.protocols.aql.schemas import info_of
from portico.protocols.aql.shapes import (
    Answered,
    Asking,
    Example,
    Offered,
    ParameterInfo,
    RelationshipCapabilities,
    TypeDetails,
    Warned,
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
MAX_TYPES = 100  # that are published
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
    description="What is linked to the root: each link once, nearest first. A link that closes a circle is there too.",
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
class Wanted:
    root: Place
    direction: Direction
    relationship: str
    depth: int
    include: tuple[str, ...]
    part: paging.Part
    warned: tuple[Warned, ...]

    @property
    def digest(self) -> str:
        """The same for the same question, whichever page of it is wanted and whatever is shown of it."""
        asked = [*self.root, self.direction, self.relationship, self.depth]
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Relation:
    """A link, seen from the item that was reached first."""

    type: str
    direction: Literal["incoming", "outgoing"]
    source: Place
    target: Place
    depth: int

    @property
    def other(self) -> Place:
        return self.target if self.direction == "outgoing" else self.source

    @property
    def key(self) -> tuple[Any, ...]:
        return self.depth, self.type, self.direction, self.source, self.target


@dataclass(slots=True)
class Walk:
    """A walk through the graph, one step farther at a time."""

    linked: Linked
    direction: Direction
    relations: dict[tuple[Place, Place, str], Relation] = field(
        default_factory=dict[tuple[Place, Place, str], Relation]
    )
    nodes: set[Place] = field(default_factory=set[Place])
    is_cut: bool = False

    async def from_root(self, root: Item, depth: int) -> None:
        self.nodes.add(place_of(root))
        edge: list[Item] = [root]
        for step in range(1, depth + 1):
            edge = await self._step(edge, step)
            if not edge:
                break

    async def _step(self, items: Sequence[Item], depth: int) -> list[Item]:
        """Note what is linked to these items; gives those that were not known yet."""
        reached: list[Item] = []
        if self.direction != "incoming":
            reached += self._noted(await self.linked.outgoing(items), "outgoing", depth)
        if self.direction != "outgoing":
            reached += self._noted(await self.linked.incoming(items), "incoming", depth)
        return reached

    def _noted(self, links: Iterable[Link], direction: Literal["incoming", "outgoing"], depth: int) -> list[Item]:
        reached: list[Item] = []
        for link in links:
            other = link.target if direction == "outgoing" else link.source
            edge = (place_of(link.source), place_of(link.target), link.type)
            is_new = place_of(other) not in self.nodes
            if edge in self.relations:
                continue
            if len(self.relations) >= MAX_EDGES or (is_new and len(self.nodes) >= MAX_NODES):
                self.is_cut = True
                continue
            self.relations[edge] = Relation(link.type, direction, edge[0], edge[1], depth)
            if is_new:
                self.nodes.add(place_of(other))
                reached.append(other)
        return reached


def offered(site: Site, config: Config, collections: Sequence[str]) -> Offered | None:
    """The operation over these collections; None if there are none."""
    if not collections:
        return None
    relationships = Relationships(site, config, tuple(collections))
    return Offered(
        name=NAME,
        kind=Kind.READ,
        description=(
            "What an item has to do with others: links by id, @id, url or name, out of its fields and into it, "
            f"up to {MAX_DEPTH} steps far. Only what you may read is found.\nSimilar to list, but of links."
        ),
        params=relationships.parameters(),
        returns=info_of(RELATIONSHIPS),
        run=relationships.run,
        examples=(
            Example(
                description="What leads to an item",
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
        forth = paging.parameters(self.config.aql, back=False)
        return (
            ParameterInfo(
                name="root",
                type=ELEMENT.name,
                required=True,
                description="The item to begin with: element_type, a collection, and element_name, an id",
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
                name="relationship", type="string", required=False, description="Only links by this field, as in author"
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
                description=f"Parts of the answer: {', '.join(PARTS)}; all without it",
                items={"type": "string", "enum": list(PARTS)},
            ),
            *forth,
        )

    def types(self, among: Iterable[str] | None = None) -> tuple[str, ...]:
        """Fields that can lead somewhere; of texts, only those of the vocabulary are told before."""
        known = self.site.catalog.collections
        found = [
            name
            for collection in (self.collections if among is None else among)
            if collection in known
            for name in linking(known[collection])
            if known[collection].fields[name].type != FieldType.STRING
        ]
        return tuple(dict.fromkeys((*VOCABULARY, *found)))

    async def run(self, params: Mapping[str, Any], asking: Asking) -> Answered:
        async with self.site.gate.charging(asking.caller):
            readable = self._readable(asking)
            wanted = self._read(params, readable)
            place = self._place(wanted, asking)
        root = await self._root(wanted.root, asking)
        walk = Walk(Linked(self.site, asking.caller, readable, wanted.relationship), wanted.direction)
        await walk.from_root(root, wanted.depth)
        found = sorted(walk.relations.values(), key=lambda each: each.key)
        rest = [each for each in found if place is None or each.key > place]
        warned = wanted.warned
        if walk.is_cut or walk.linked.is_cut:
            warned = (*warned, paging.truncated("relationships", len(found) + 1, len(found), len(found)))
        return Answered(self._told(wanted, rest, asking), warned)

    def _readable(self, asking: Asking) -> tuple[str, ...]:
        readable = set(self.site.gate.readable(asking.caller))
        return tuple(each for each in self.collections if each in readable)

    def _read(self, params: Mapping[str, Any], readable: Sequence[str]) -> Wanted:
        part, warned = paging.read_part(params, self.config.aql, NAME)
        relationship = params.get("relationship") or ""
        known = self.site.catalog.collections
        if relationship and not self._is_known(relationship, readable):
            raise InvalidParams(
                f"No field '{relationship[:128]}' leads from one item to another",
                operation=NAME,
                param="relationship",
                expected="a relationship",
                valid=list(self.types(each for each in readable if each in known)),
            )
        return Wanted(
            _read_root(params.get("root"), readable),
            _read_direction(params.get("direction", "both")),
            relationship,
            _read_depth(params.get("depth", 1)),
            _read_include(params.get("include")),
            part,
            warned,
        )

    def _is_known(self, relationship: str, readable: Sequence[str]) -> bool:
        known = self.site.catalog.collections
        fields = (linking(known[each]) for each in readable if each in known)
        return relationship in VOCABULARY or any(relationship in each for each in fields)

    def _place(self, wanted: Wanted, asking: Asking) -> tuple[Any, ...] | None:
        """Where the page before ended."""
        if not wanted.part.cursor:
            return None
        told = self.site.unseal(wanted.part.cursor, asking.caller)
        if told is None or told.get("of") != wanted.digest:
            raise InvalidCursor(
                "The cursor does not belong to this query",
                operation=NAME,
                param="after",
                hint="Send the query again exactly as it was, or start again without a cursor.",
            )
        depth, type, direction, source, target = told["place"]
        return depth, type, direction, tuple(source), tuple(target)

    async def _root(self, root: Place, asking: Asking) -> Item:
        collection, id = root
        wanted = () if text_problem(id) else (id,)
        page = await self.site.query(Query(collection, where=Condition(ID, "in", wanted), limit=1), asking.caller)
        if not page.items:
            raise UnknownItem(f"{collection} has no item '{id[:100]}'", collection=collection, id=id[:100])
        return page.items[0]

    def _told(self, wanted: Wanted, rest: Sequence[Relation], asking: Asking) -> dict[str, Any]:
        size = wanted.part.size
        page = rest[:size]
        nodes = dict.fromkeys([wanted.root, *(place for each in page for place in (each.source, each.target))])
        graph = {
            "nodes": [{"id": _node(each), **_element(each)} for each in nodes],
            "edges": [{"source": _node(e.source), "target": _node(e.target), "type": e.type} for e in page],
        }
        shown = {part: graph[part] for part in graph if f"graph.{part}" in wanted.include}
        data: dict[str, Any] = {}
        if "root" in wanted.include:
            data["root"] = _element(wanted.root)
        if "relationships" in wanted.include:
            data["relationships"] = [_relation(each) for each in page]
        return {**data, **({"graph": shown} if shown else {}), "pageInfo": self._info(wanted, rest, asking)}

    def _info(self, wanted: Wanted, rest: Sequence[Relation], asking: Asking) -> dict[str, Any]:
        size = wanted.part.size
        info: dict[str, Any] = {"hasNextPage": len(rest) > size, "hasPreviousPage": bool(wanted.part.cursor)}
        if rest:
            place = {"of": wanted.digest, "place": rest[:size][-1].key}
            info["endCursor"] = self.site.seal(place, asking.caller, CURSOR_SECONDS)
        return {**info, "pageSize": size}


def _node(place: Place) -> str:
    return "/".join(place)


def _element(place: Place) -> dict[str, str]:
    return {"element_type": place[0], "element_name": place[1]}


def _relation(each: Relation) -> dict[str, Any]:
    return {"type": each.type, "direction": each.direction, "target": _element(each.other), "depth": each.depth}


def _read_root(raw: Any, readable: Sequence[str]) -> Place:
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
            raise misfit(NAME, "root", f"'root' must have {expected}", expected, raw)


def _read_direction(raw: Any) -> Direction:
    found: Direction | None = next((each for each in DIRECTIONS if each == raw), None)
    if found is None:
        raise misfit(
            NAME, "direction", f"'direction' must be one of {', '.join(DIRECTIONS)}", ", ".join(DIRECTIONS), raw
        )
    return found


def _read_depth(raw: Any) -> int:
    if type(raw) is not int or not 1 <= raw <= MAX_DEPTH:
        raise misfit(NAME, "depth", f"'depth' must be between 1 and {MAX_DEPTH}", f"1 to {MAX_DEPTH}", raw)
    return raw


def _read_include(raw: Any) -> tuple[str, ...]:
    if raw is None:
        return PARTS
    parts = cast("list[Any]", raw) if isinstance(raw, list) else []
    if not parts or any(each not in PARTS for each in parts):
        raise misfit(NAME, "include", f"'include' must be a list of {', '.join(PARTS)}", ", ".join(PARTS), parts)
    return tuple(each for each in PARTS if each in parts)
