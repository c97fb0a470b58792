"""Where "near the harbour" is: finds the place among the site's own items, and what lies around it. Asks no map."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, radians

from portico.ask.understanding.fields import PLACE_ID, Fields, key_of, number_in
from portico.ask.understanding.planner import Target
from portico.catalog import scalar_at
from portico.items import Item, title_of
from portico.query import MAX_LIST, And, Condition, Filter, Or, Query
from portico.search.finder import Finder, Wish

METRES_PER_DEGREE = 111_320.0
LOOKED_AT = 20  # items that might be the place
WITHIN_ID = "containedInPlace.@id"


@dataclass(frozen=True, slots=True)
class Spot:
    """A place and how far around it counts."""

    name: str
    latitude: float
    longitude: float
    metres: float
    id: str = ""  # of the item that is the place, if one is


async def find_spot(said: str, site: Sequence[Fields], finder: Finder, metres: float) -> Spot | None:
    """The item that these words name and whose position is known: all of them stand in its name, or in what it is."""
    located = [fields for fields in site if fields.path("latitude") and fields.path("longitude")]
    wanted = set(key_of(said))
    if not located or not wanted:
        return None
    hits, _ = await finder.find_across([Wish(each.collection.name) for each in located], said, LOOKED_AT)
    fields_of = {each.collection.name: each for each in located}
    named = [hit.item for hit in hits if wanted <= set(key_of(title_of(hit.item.data)))]
    spots = [(item, spot) for item in named if (spot := _spot(item, fields_of[item.collection], metres))]
    # A place of the town before a business that is called after it, and the shortest name before longer ones.
    return min(spots, key=lambda found: _directness(found[0]), default=(None, None))[1]


def _directness(item: Item) -> tuple[bool, int]:
    return item.data.get("@type") in {"Restaurant", "BarOrPub", "CafeOrCoffeeShop", "Store"}, len(title_of(item.data))


def _spot(item: Item, fields: Fields, metres: float) -> Spot | None:
    latitude, longitude = (
        number_in(scalar_at(item.data, fields.path(role) or "")) for role in ("latitude", "longitude")
    )
    if latitude is None or longitude is None:
        return None
    return Spot(title_of(item.data) or item.id, latitude, longitude, metres, item.id)


async def around(spot: Spot, targets: Sequence[Target], site: Sequence[Fields], finder: Finder) -> tuple[Target, ...]:
    """The targets that can tell where their items are, kept to what lies around a spot."""
    inside: list[str] | None = None
    kept: list[Target] = []
    for target in targets:
        where = _box(spot, target.fields)
        if where is None and PLACE_ID in target.fields.values:
            inside = inside if inside is not None else await _places_around(spot, site, finder)
            where = target.fields.among(PLACE_ID, inside)
        if where is not None:
            kept.append(replace(target, where=And((target.where, where)), relaxed=And((target.relaxed, where))))
    return tuple(kept)


def _box(spot: Spot, fields: Fields) -> Filter | None:
    """A square around a spot: near enough for "near", and a filter that every store can run."""
    latitude, longitude = fields.path("latitude"), fields.path("longitude")
    if latitude is None or longitude is None:
        return None
    high = spot.metres / METRES_PER_DEGREE
    wide = high / max(cos(radians(spot.latitude)), 0.01)
    sides = (
        fields.compares(latitude, "between", spot.latitude - high, spot.latitude + high),
        fields.compares(longitude, "between", spot.longitude - wide, spot.longitude + wide),
    )
    inside = And(tuple(side for side in sides if side))
    is_named = spot.id and WITHIN_ID in fields.values
    return Or((inside, Condition(WITHIN_ID, "eq", spot.id))) if is_named else inside


async def _places_around(spot: Spot, site: Sequence[Fields], finder: Finder) -> list[str]:
    found = [spot.id] if spot.id else []
    for fields in site:
        where = _box(spot, fields)
        if where is not None:
            page = await finder.find(Query(fields.collection.name, where=where, fields=("id",), limit=MAX_LIST))
            found += [item.id for item in page.items]
    return found[:MAX_LIST]
