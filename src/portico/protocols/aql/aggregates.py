"""Counts, sums and the like over what a filter leaves, as MCP-AQL asks for them: each under a label, also by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from portico.catalog import NUMERIC, Collection, FieldType
from portico.errors import InvalidAggregate
from portico.items import type_name
from portico.protocols.aql.complaints import concerning, misfit
from portico.protocols.aql.envelopes import quoted
from portico.protocols.aql.paging import truncated
from portico.protocols.aql.selection import field_names, own_name, shown_name
from portico.protocols.aql.shapes import AggregationSupport, Asking, ParameterInfo, Warned
from portico.query import (
    FUNCTIONS,
    MAX_KEYS,
    MAX_LIMIT,
    Aggregate,
    Aggregation,
    Filter,
    Function,
    Page,
    Query,
    checked,
)
from portico.site import Site

GROUP_BY = "group_by"
# The names that introspection has for functions. What is computed beyond them, the description of `aggregate` says.
PUBLISHED = ("count", GROUP_BY, "sum", "avg", "min", "max")
SUMMABLE = NUMERIC | {FieldType.DURATION}
UNGROUPABLE = frozenset({FieldType.OBJECT, FieldType.ARRAY, FieldType.VECTOR})

PARAMETERS = (
    ParameterInfo(
        name="aggregate",
        type="object",
        required=False,
        description=(
            'What to reckon, each under a label: {"how_many": {"count": true}, "mean": {"avg": "price", '
            f'"group_by": "color"}}}}. One of {", ".join(FUNCTIONS)} in each'
        ),
    ),
    ParameterInfo(
        name="include_items",
        type="boolean",
        required=False,
        description="With `aggregate`: whether the items are shown too",
        default=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing to reckon."""

    label: str
    function: Function
    field: str  # empty: the items themselves are counted
    group_by: str = ""


def support(collection: Collection) -> AggregationSupport:
    known = collection.fields.values()
    return AggregationSupport(
        supported=True,
        default_mode="summary_only",
        functions=PUBLISHED,
        groupable_fields=tuple(shown_name(each.name) for each in known if each.type not in UNGROUPABLE),
        numeric_fields=tuple(each.name for each in known if each.type in SUMMABLE),
    )


def read_aggregate(raw: Any, collection: Collection, operation: str) -> list[Wanted]:
    """What is to be reckoned; raises for what cannot be."""
    labels = _object(raw)
    if not labels:
        raise misfit(operation, "aggregate", "'aggregate' must be an object with a label or more", "object", labels)
    if len(labels) > MAX_KEYS:
        raise misfit(operation, "aggregate", f"'aggregate' may have up to {MAX_KEYS} labels", "object", labels)
    return [_wanted(label, said, collection, operation) for label, said in labels.items()]


def _object(raw: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", raw) if isinstance(raw, Mapping) else {}


def _wanted(label: str, raw: Any, collection: Collection, operation: str) -> Wanted:
    said = _object(raw)
    functions: list[Function] = [each for each in FUNCTIONS if each in said]
    strange = [name for name in said if name != GROUP_BY and name not in FUNCTIONS]
    if len(functions) != 1 or strange:
        expected = f"one of {', '.join(FUNCTIONS)}, and {GROUP_BY} if wanted"
        raise misfit(operation, "aggregate", f"{quoted(label)} in 'aggregate' must have {expected}", expected, raw)
    function = functions[0]
    wanted = Wanted(
        label,
        function,
        _field(said[function], label, function, collection, operation),
        _name(said.get(GROUP_BY, ""), label, collection, operation),
    )
    with concerning(operation, "aggregate", field_names(collection)):
        _check(wanted, collection)
    return wanted


def _field(raw: Any, label: str, function: Function, collection: Collection, operation: str) -> str:
    return "" if function == "count" and raw is True else _name(raw, label, collection, operation)


def _name(raw: Any, label: str, collection: Collection, operation: str) -> str:
    if not isinstance(raw, str):
        said = f"{quoted(label)} in 'aggregate' must name a field with a string, not with {type_name(raw)}"
        raise misfit(operation, "aggregate", said, "string", raw)
    return own_name(raw, collection)


def _check(wanted: Wanted, collection: Collection) -> None:
    if wanted.group_by and collection.field(wanted.group_by).type in UNGROUPABLE:
        raise InvalidAggregate(f"Items cannot be grouped by '{wanted.group_by}'", field=wanted.group_by)
    checked(_query([wanted], collection.name, Aggregate(()).having), collection)


async def aggregated(
    site: Site, collection: str, where: Filter, wanted: Sequence[Wanted], asking: Asking
) -> tuple[dict[str, Any], tuple[Warned, ...]]:
    """What was reckoned, by label. Labels of the same groups are reckoned together."""
    found: dict[str, Any] = {}
    warned: list[Warned] = []
    for group_by in dict.fromkeys(each.group_by for each in wanted):
        these = [each for each in wanted if each.group_by == group_by]
        page = await site.query(_query(these, collection, where), asking.caller)
        found.update({each.label: _told(each, number, page) for number, each in enumerate(these)})
        if page.cursor:
            warned += [truncated(each.label, page.total or 0, len(page.rows), MAX_LIMIT) for each in these]
    return {each.label: found[each.label] for each in wanted}, tuple(warned)


def _query(wanted: Sequence[Wanted], collection: str, where: Filter) -> Query:
    operations = tuple(Aggregation(each.function, _column(n), each.field) for n, each in enumerate(wanted))
    group_by = (wanted[0].group_by,) if wanted[0].group_by else ()
    return Query(collection, where=where, aggregate=Aggregate(operations, group_by), limit=MAX_LIMIT)


def _column(number: int) -> str:
    """A name that no field can have."""
    return f"#{number}"


def _told(wanted: Wanted, number: int, page: Page) -> Any:
    if not wanted.group_by:
        return page.rows[0][_column(number)] if page.rows else None
    told: dict[str, Any] = {}
    for row in page.rows:
        told[_key(row[wanted.group_by], told)] = row[_column(number)]
    return told


def _key(value: Any, taken: Mapping[str, Any]) -> str:
    """A group as a text. Where 1 and "1" are both groups, the second says what it is."""
    written = msgspec.json.encode(value, order="sorted").decode()
    key = value if isinstance(value, str) else written
    return f"{written} ({type_name(value)})" if key in taken else key
