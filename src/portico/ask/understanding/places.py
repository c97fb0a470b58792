"""Places such as "near the harbour": found among the site's own items, with what lies around them. Uses no map."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, radians

from portico.ask.item_finder import ItemFinder
from portico.ask.understanding.fields import PLACE_ID, Fields, key_of, number_in
from portico.ask.understanding.planner import CollectionQuery
from portico.catalog import scalar_at
from portico.items import Item, title_of
from portico.query import MAX_LIST, And, Condition, Filter, Or, Query
from portico.search.finder import SearchTarget

METRES_PER_DEGREE = 111_320.0
MAX_CANDIDATES = 20  # items that might be the place
WITHIN_ID = "containedInPlace.@id"


@dataclass(frozen=True, slots=True)
class GeoCircle:
    """A place and how far around it counts."""

    name: str
    latitude: float
    longitude: float
    metres: float
    id: str = ""  # of the item that is the place, if one is


async def find_place(name: str, site: Sequence[Fields], finder: ItemFinder, metres: float) -> GeoCircle | None:
    """Return the item with a known position whose name these words are."""
    located = [fields for fields in site if fields.path("latitude") and fields.path("longitude")]
    stems = set(key_of(name))
    if not located or not stems:
        return None
    hits, _ = await finder.find_across(
        [SearchTarget(known_fields.collection.name) for known_fields in located], name, MAX_CANDIDATES
    )
    fields_of = {known_fields.collection.name: known_fields for known_fields in located}
    matches = [result.item for result in hits if stems <= set(key_of(title_of(result.item.data)))]
    spots = [(item, circle) for item in matches if (circle := _circle_of(item, fields_of[item.collection], metres))]
    # A place of the town before a business that is called after it, and the shortest name before longer ones.
    return min(spots, key=lambda pair: _directness(pair[0]), default=(None, None))[1]


def _directness(item: Item) -> tuple[bool, int]:
    return item.data.get("@type") in {"Restaurant", "BarOrPub", "CafeOrCoffeeShop", "Store"}, len(title_of(item.data))


def _circle_of(item: Item, fields: Fields, metres: float) -> GeoCircle | None:
    latitude, longitude = (
        number_in(scalar_at(item.data, fields.path(role) or "")) for role in ("latitude", "longitude")
    )
    if latitude is None or longitude is None:
        return None
    return GeoCircle(title_of(item.data) or item.id, latitude, longitude, metres, item.id)


async def limit_to_circle(
    circle: GeoCircle, targets: Sequence[CollectionQuery], site: Sequence[Fields], finder: ItemFinder
) -> tuple[CollectionQuery, ...]:
    """Return the targets that can tell where their items are, kept to what lies around a spot."""
    inside: list[str] | None = None
    limited: list[CollectionQuery] = []
    for target in targets:
        where = _box(circle, target.fields)
        if where is None and PLACE_ID in target.fields.values:
            inside = inside if inside is not None else await _places_around(circle, site, finder)
            where = target.fields.is_one_of(PLACE_ID, inside)
        if where is not None:
            limited.append(replace(target, where=And((target.where, where)), relaxed=And((target.relaxed, where))))
    return tuple(limited)


def _box(circle: GeoCircle, fields: Fields) -> Filter | None:
    """Return a square around a spot: near enough for "near", and a filter that every store can run."""
    latitude, longitude = fields.path("latitude"), fields.path("longitude")
    if latitude is None or longitude is None:
        return None
    high = circle.metres / METRES_PER_DEGREE
    wide = high / max(cos(radians(circle.latitude)), 0.01)
    sides = (
        fields.compares(latitude, "between", circle.latitude - high, circle.latitude + high),
        fields.compares(longitude, "between", circle.longitude - wide, circle.longitude + wide),
    )
    inside = And(tuple(side for side in sides if side))
    is_named = circle.id and WITHIN_ID in fields.values
    return Or((inside, Condition(WITHIN_ID, "eq", circle.id))) if is_named else inside


async def _places_around(circle: GeoCircle, site: Sequence[Fields], finder: ItemFinder) -> list[str]:
    ids = [circle.id] if circle.id else []
    for fields in site:
        where = _box(circle, fields)
        if where is not None:
            page = await finder.find(Query(fields.collection.name, where=where, fields=("id",), limit=MAX_LIST))
            ids += [item.id for item in page.items]
    return ids[:MAX_LIST]
