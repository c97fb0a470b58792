"""Fields that no item has, but that can be told of each. They are reckoned only when somebody asks for them."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog import instant
from portico.items import Item, title_of
from portico.protocols.aql.links import Linked, Place, place_of
from portico.protocols.aql.shapes import Asking, ComputedFieldInfo
from portico.site import Site

SCORE, RELATED = "score", "related_count"
DATES = ("dateModified", "datePublished", "dateCreated")
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Computed:
    """`of` tells it of an item alone; None for what takes more to know."""

    type: str
    description: str
    of: Callable[[Item], Any] | None = None


def _title(item: Item) -> str:
    return title_of(item.data) or item.id


def _age(item: Item) -> int | None:
    """Whole days; None if no date says."""
    said = (item.data.get(each) for each in DATES)
    moments = (instant(each) for each in said if isinstance(each, str))
    moment = next((each for each in moments if each is not None), None)
    return None if moment is None else int((time.time() - moment / 1_000_000) // DAY)


def _text_length(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(map(_text_length, cast("Mapping[str, Any]", value).values()))
        case list():
            return sum(map(_text_length, cast("list[Any]", value)))
        case _:
            return 0


FIELDS: Mapping[str, Computed] = {
    "title": Computed("string", "What the item is called, or its id", _title),
    "age_days": Computed("integer", "Days since it was modified, published or created, if it says so", _age),
    "text_length": Computed("integer", "Characters in all its texts", lambda item: _text_length(item.data)),
    RELATED: Computed("integer", "Other items that its fields lead to"),
}
SEARCHED: Mapping[str, Computed] = {**FIELDS, SCORE: Computed("number", "How well it fits the query")}


def published(fields: Mapping[str, Computed]) -> tuple[ComputedFieldInfo, ...]:
    """Return the fields as introspection names them: without the prefix that requests put before a computed field."""
    return tuple(
        ComputedFieldInfo(name=name, type=field.type, description=field.description) for name, field in fields.items()
    )


async def computed(
    site: Site, asking: Asking, items: Sequence[Item], scores: Sequence[float], names: Sequence[str]
) -> list[dict[str, Any]]:
    """What was asked for of each item. What cannot be told of one is left out."""
    related: Mapping[Place, int] = await _related(site, asking, items) if RELATED in names else {}
    told: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        more = {RELATED: related.get(place_of(item), 0), **({SCORE: scores[number]} if scores else {})}
        values = {name: of(item) if (of := SEARCHED[name].of) else more.get(name) for name in names}
        told.append({name: value for name, value in values.items() if value is not None})
    return told


async def _related(site: Site, asking: Asking, items: Sequence[Item]) -> Mapping[Place, int]:
    linked = Linked(site, asking.caller, tuple(site.gate.readable(asking.caller)))
    pairs = {(place_of(link.source), place_of(link.target)) for link in await linked.outgoing(items)}
    return Counter(source for source, _ in pairs)
