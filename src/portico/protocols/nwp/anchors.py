"""Which schema a frame refers to: the one that holds, one that held before, or none that was ever published."""

import re
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from portico.catalog import anchor_of
from portico.protocols.nwp.errors import AnchorStale, AnchorUnknown
from portico.protocols.nwp.frames import AnchorFrame, FrameError
from portico.protocols.nwp.nodes import Anchor, Node
from portico.site import Site

KEPT_DAYS: Final = 3650.0  # that a schema is known after it was last published anew
MAX_REF: Final = 200  # characters
_ID = re.compile(r"sha256:[0-9a-f]{64}\Z")
TYPES: Final = frozenset(
    {"string", "uint64", "int64", "decimal", "bool", "timestamp", "bytes", "object", "array"},
)


class _Published(msgspec.Struct, frozen=True):
    """A schema, and the collections that have or had it."""

    collections: tuple[str, ...]
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Meant:
    """What a reference means: a collection and its schema, and whether the reader knows an older one."""

    collection: str
    anchor: Anchor
    is_stale: bool = False

    @property
    def inline(self) -> AnchorFrame | None:
        """The schema to send along."""
        return frame_of(self.anchor) if self.is_stale else None


class Anchors:
    """Every schema that was published is kept, so that its readers are told what has changed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._published: set[tuple[str, str]] = set()

    async def publish(self, node: Node) -> None:
        """Note the schemas of a node's collections, before somebody is told of them."""
        if self.is_published(node):
            return
        new = [each for each in node.collections.items() if (each[0], each[1].id) not in self._published]
        now = {each.name: each.anchor_id for each in self._site.catalog.public}
        for name, anchor in new:
            await self._note(name, anchor, [each for each, id in now.items() if id == anchor.id])
            self._published.add((name, anchor.id))

    async def _note(self, name: str, anchor: Anchor, sharing: list[str]) -> None:
        """Once for the collection, a note that others leave alone, and once for all that have or had the schema.

        Every process adds all that share it now, so that two who do this at once write the same.
        """
        schema = dict(anchor.schema)
        await self._keep(_of_one(name, anchor.id), _Published((name,), schema))
        before = await self._kept(_of_all(anchor.id))
        names = dict.fromkeys((*(before.collections if before else ()), *sharing, name))
        await self._keep(_of_all(anchor.id), _Published(tuple(names), schema))

    def is_published(self, node: Node) -> bool:
        return all((name, anchor.id) in self._published for name, anchor in node.collections.items())

    def current(self, node: Node, reference: str | None) -> Meant | None:
        """What a reference means that is to a schema as it is now, or to none."""
        for name, anchor in node.collections.items():
            if not reference or anchor.id == reference:
                return Meant(name, anchor)
        return None

    async def meant(self, node: Node, reference: str | None, *, is_patient: bool) -> Meant:
        """What a reference means on a node. An older schema will do if the reader is patient."""
        found = self.current(node, reference)
        if found:
            return found
        said = reference or ""
        known = await self._known(node, said)
        if known is None:
            raise AnchorUnknown(
                "This node never published that schema", anchor_ref=said[:MAX_REF], hint="Read `.schema` again."
            )
        name = next(each for each in node.collections if each in known.collections)
        now = node.collections[name]
        if not is_patient:
            raise AnchorStale("The schema has changed", anchor_ref=said, current=now.id, hint="Read `.schema` again.")
        return Meant(name, now, is_stale=True)

    async def schema(self, node: Node, wanted: str) -> Anchor:
        """A schema by its name or id; also one that held before."""
        offered = dict(node.anchors)
        by_id = {anchor.id: anchor for anchor in offered.values()}
        found = (offered.get(wanted) or by_id.get(wanted)) if wanted else next(iter(offered.values()), None)
        if found:
            return found
        known = await self._known(node, wanted)
        if known:
            return Anchor(wanted, known.schema)
        raise AnchorUnknown("This node never published that schema", anchor_ref=wanted[:MAX_REF])

    async def _known(self, node: Node, id: str) -> _Published | None:
        """A schema that a collection of this node had before. Others may have had the same one.

        Anybody can make up an id, so it is looked for once, however many collections there are.
        """
        if not _ID.match(id):
            return None
        only = next(iter(node.collections)) if len(node.collections) == 1 else None
        known = await self._kept(_of_one(only, id) if only else _of_all(id))
        return known if known and not node.collections.keys().isdisjoint(known.collections) else None

    async def _keep(self, note: str, published: _Published) -> None:
        await self._site.keep(note, msgspec.json.encode(published), KEPT_DAYS)

    async def _kept(self, note: str) -> _Published | None:
        found = await self._site.kept(note)
        try:
            return msgspec.json.decode(found, type=_Published) if found else None
        except msgspec.ValidationError:  # written by another Portico: as good as never published
            return None


def _of_one(collection: str, id: str) -> str:
    return f"anchor\n{collection}\n{id}"


def _of_all(id: str) -> str:
    return f"anchor\n{id}"


def frame_of(anchor: Anchor) -> AnchorFrame:
    return AnchorFrame(anchor_id=anchor.id, schema=dict(anchor.schema))


def check_anchor(frame: AnchorFrame) -> None:
    """Refuse a schema that is none, and one under a name that is not its own."""
    fields: Any = frame.schema.get("fields")
    if not isinstance(fields, list) or not all(_is_field(each) for each in cast("list[Any]", fields)):
        raise FrameError("NCP-ANCHOR-SCHEMA-INVALID", "A schema is a list of fields, each with a name and a type")
    if anchor_of(frame.schema) != frame.anchor_id:
        raise FrameError("NCP-ANCHOR-ID-MISMATCH", "The name of a schema is the hash of what it says")


def _is_field(each: Any) -> bool:
    match each:
        case {"name": str(), "type": str() as kind}:
            return kind in TYPES
        case _:
            return False
