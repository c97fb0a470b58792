"""Resolves anchor references: to the current schema, an earlier version of it, or none that was ever published."""

import re
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from portico.catalog import anchor_of
from portico.protocols.nwp.errors import AnchorStale, AnchorUnknown
from portico.protocols.nwp.frames import AnchorFrame, FrameError
from portico.protocols.nwp.nodes import Node, SchemaAnchor
from portico.site import Site

RETENTION_DAYS: Final = 3650.0  # that a schema is remembered after it was last published
MAX_REF: Final = 200  # characters
_ID = re.compile(r"sha256:[0-9a-f]{64}\Z")
TYPES: Final = frozenset(
    {"string", "uint64", "int64", "decimal", "bool", "timestamp", "bytes", "object", "array"},
)


class PublishedSchema(msgspec.Struct, frozen=True):
    """A schema, and the collections that use it or once did."""

    collections: tuple[str, ...]
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResolvedAnchor:
    """The collection and current schema that a reference leads to; `is_stale` if it named an older schema."""

    collection: str
    anchor: SchemaAnchor
    is_stale: bool = False

    @property
    def inline(self) -> AnchorFrame | None:
        """The schema to inline into the response, for a reader that has an older one."""
        return anchor_frame(self.anchor) if self.is_stale else None


class AnchorRegistry:
    """Remembers every published schema, so that readers of an old one can be told that it changed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._published: set[tuple[str, str]] = set()

    async def publish(self, node: Node) -> None:
        """Record the schemas of a node's collections before they are sent to anybody."""
        if self.is_published(node):
            return
        unpublished = [item for item in node.collections.items() if (item[0], item[1].id) not in self._published]
        current_ids = {item.name: item.anchor_id for item in self._site.catalog.public}
        for name, anchor in unpublished:
            await self._record(name, anchor, [item for item, id in current_ids.items() if id == anchor.id])
            self._published.add((name, anchor.id))

    async def _record(self, name: str, anchor: SchemaAnchor, sharing: list[str]) -> None:
        """Store a note for the collection alone, and one for all collections that share the schema.

        Every process adds all that share it now, so two processes doing this at once write the same.
        """
        schema = dict(anchor.schema)
        await self._store(_collection_key(name, anchor.id), PublishedSchema((name,), schema))
        before = await self._load(_schema_key(anchor.id))
        names = dict.fromkeys((*(before.collections if before else ()), *sharing, name))
        await self._store(_schema_key(anchor.id), PublishedSchema(tuple(names), schema))

    def is_published(self, node: Node) -> bool:
        return all((name, anchor.id) in self._published for name, anchor in node.collections.items())

    def current(self, node: Node, reference: str | None) -> ResolvedAnchor | None:
        """Resolve an empty reference, or one to a current schema."""
        for name, anchor in node.collections.items():
            if not reference or anchor.id == reference:
                return ResolvedAnchor(name, anchor)
        return None

    async def resolve(self, node: Node, reference: str | None, *, is_patient: bool) -> ResolvedAnchor:
        """Resolve a reference on a node. `is_patient` accepts one to an older schema."""
        resolved = self.current(node, reference)
        if resolved:
            return resolved
        anchor_id = reference or ""
        published = await self._find_published(node, anchor_id)
        if published is None:
            raise AnchorUnknown(
                "This node never published that schema", anchor_ref=anchor_id[:MAX_REF], hint="Read `.schema` again."
            )
        name = next(collection for collection in node.collections if collection in published.collections)
        current = node.collections[name]
        if not is_patient:
            raise AnchorStale(
                "The schema has changed", anchor_ref=anchor_id, current=current.id, hint="Read `.schema` again."
            )
        return ResolvedAnchor(name, current, is_stale=True)

    async def schema(self, node: Node, name: str) -> SchemaAnchor:
        """Return a schema by its name or id, which may be an earlier one."""
        current = dict(node.anchors)
        by_id = {anchor.id: anchor for anchor in current.values()}
        current_anchor = (current.get(name) or by_id.get(name)) if name else next(iter(current.values()), None)
        if current_anchor:
            return current_anchor
        published = await self._find_published(node, name)
        if published:
            return SchemaAnchor(name, published.schema)
        raise AnchorUnknown("This node never published that schema", anchor_ref=name[:MAX_REF])

    async def _find_published(self, node: Node, id: str) -> PublishedSchema | None:
        """Return an earlier schema of one of this node's collections.

        Takes one lookup however many collections there are, since anybody can make up ids.
        """
        if not _ID.match(id):
            return None
        collection = next(iter(node.collections)) if len(node.collections) == 1 else None
        published = await self._load(_collection_key(collection, id) if collection else _schema_key(id))
        return published if published and not node.collections.keys().isdisjoint(published.collections) else None

    async def _store(self, note: str, published: PublishedSchema) -> None:
        await self._site.notes.set_for_site(note, msgspec.json.encode(published), RETENTION_DAYS)

    async def _load(self, note: str) -> PublishedSchema | None:
        note_value = await self._site.notes.get_for_site(note)
        try:
            return msgspec.json.decode(note_value, type=PublishedSchema) if note_value else None
        except msgspec.ValidationError:  # written by another version: treated as never published
            return None


def _collection_key(collection: str, id: str) -> str:
    return f"anchor\n{collection}\n{id}"


def _schema_key(id: str) -> str:
    return f"anchor\n{id}"


def anchor_frame(anchor: SchemaAnchor) -> AnchorFrame:
    return AnchorFrame(anchor_id=anchor.id, schema=dict(anchor.schema))


def check_anchor(frame: AnchorFrame) -> None:
    """Raise for an invalid schema, or one whose id is not its hash."""
    fields: Any = frame.schema.get("fields")
    if not isinstance(fields, list) or not all(_is_field(field) for field in cast("list[Any]", fields)):
        raise FrameError("NCP-ANCHOR-SCHEMA-INVALID", "A schema must be a list of fields, each with a name and a type")
    if anchor_of(frame.schema) != frame.anchor_id:
        raise FrameError("NCP-ANCHOR-ID-MISMATCH", "`anchor_id` must be the hash of the schema")


def _is_field(field: Any) -> bool:
    match field:
        case {"name": str(), "type": str() as kind}:
            return kind in TYPES
        case _:
            return False
