"""Computed fields of items, such as `_computed.age_days`. They are computed only when requested."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog import instant
from portico.items import Item
from portico.protocols.aql.links import ItemKey, LinkFinder, item_key
from portico.protocols.aql.shapes import AqlRequestContext, ComputedFieldInfo
from portico.site import Site

TITLE, SCORE, RELATED = "title", "score", "related_count"
DATES = ("dateModified", "datePublished", "dateCreated")
DAY = 86_400


@dataclass(frozen=True, slots=True)
class ComputedField:
    """A computed field. `compute` derives it from an item alone; None if it takes more than the item."""

    type: str
    description: str
    compute: Callable[[Item], Any] | None = None


def _age_days(item: Item) -> int | None:
    """Return the age in whole days; None without a date."""
    values = (item.data.get(value) for value in DATES)
    timestamps = (instant(value) for value in values if isinstance(value, str))
    timestamp = next((value for value in timestamps if value is not None), None)
    return None if timestamp is None else int((time.time() - timestamp / 1_000_000) // DAY)


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


FIELDS: Mapping[str, ComputedField] = {
    TITLE: ComputedField("string", "The item's title, or its id"),
    "age_days": ComputedField("integer", "Days since the item was modified, published or created, if known", _age_days),
    "text_length": ComputedField(
        "integer", "Characters in all texts of the item", lambda item: _text_length(item.data)
    ),
    RELATED: ComputedField("integer", "Number of other items that its fields link to"),
}
SEARCH_FIELDS: Mapping[str, ComputedField] = {**FIELDS, SCORE: ComputedField("number", "Relevance to the query")}


def describe_fields(fields: Mapping[str, ComputedField]) -> tuple[ComputedFieldInfo, ...]:
    """Return the fields as introspection names them: without the prefix that requests put before a computed field."""
    return tuple(
        ComputedFieldInfo(name=name, type=field.type, description=field.description) for name, field in fields.items()
    )


async def compute_fields(
    site: Site, context: AqlRequestContext, items: Sequence[Item], scores: Sequence[float], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Compute the named fields of each item. Those without a value are left out."""
    related: Mapping[ItemKey, int] = await _count_related(site, context, items) if RELATED in names else {}
    rows: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        title = site.catalog.collections[item.collection].title_of(item.data) or item.id
        more = {TITLE: title, RELATED: related.get(item_key(item), 0), **({SCORE: scores[number]} if scores else {})}
        values = {name: of(item) if (of := SEARCH_FIELDS[name].compute) else more.get(name) for name in names}
        rows.append({name: value for name, value in values.items() if value is not None})
    return rows


async def _count_related(site: Site, context: AqlRequestContext, items: Sequence[Item]) -> Mapping[ItemKey, int]:
    linked = LinkFinder(site, context.caller, tuple(site.access.readable(context.caller)))
    pairs = {(item_key(link.source), item_key(link.target)) for link in await linked.find_outgoing(items)}
    return Counter(source for source, _ in pairs)
