"""The `aggregate` parameter: counts, sums and the like over filtered items, each under a label, also by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from portico.catalog import NUMERIC, Collection, FieldType
from portico.errors import InvalidAggregate
from portico.items import type_name
from portico.protocols.aql.envelopes import blame_param, invalid_param, quote
from portico.protocols.aql.paging import truncation_warning
from portico.protocols.aql.selection import field_names, own_name
from portico.protocols.aql.shapes import AggregationSupport, AqlRequestContext, OperationWarning, ParameterInfo
from portico.protocols.aql.types import public_name
from portico.query import (
    FUNCTIONS,
    MAX_KEYS,
    MAX_LIMIT,
    Aggregate,
    AggregateFunction,
    Aggregation,
    Filter,
    Page,
    Query,
    validate_query,
)
from portico.site import Site

GROUP_BY = "group_by"
# The functions that introspection's schema knows. The description of `aggregate` lists the others.
PUBLISHED = ("count", GROUP_BY, "sum", "avg", "min", "max")
SUMMABLE = NUMERIC | {FieldType.DURATION}
UNGROUPABLE = frozenset({FieldType.OBJECT, FieldType.ARRAY, FieldType.VECTOR})

PARAMETERS = (
    ParameterInfo(
        name="aggregate",
        type="object",
        required=False,
        description=(
            'What to compute, each under a label: {"how_many": {"count": true}, "mean": {"avg": "price", '
            f'"group_by": "color"}}}}. One of {", ".join(FUNCTIONS)} in each'
        ),
    ),
    ParameterInfo(
        name="include_items",
        type="boolean",
        required=False,
        description="With `aggregate`: whether to return the items too",
        default=False,
    ),
)


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One value to compute, or one per group."""

    label: str
    function: AggregateFunction
    field: str  # empty to count the items themselves
    group_by: str = ""


def aggregation_support(collection: Collection) -> AggregationSupport:
    fields = collection.fields.values()
    return AggregationSupport(
        supported=True,
        default_mode="summary_only",
        functions=PUBLISHED,
        groupable_fields=tuple(
            public_name(field.name, collection) for field in fields if field.type not in UNGROUPABLE
        ),
        numeric_fields=tuple(public_name(field.name, collection) for field in fields if field.type in SUMMABLE),
    )


def read_aggregate(raw: Any, collection: Collection, operation: str) -> list[AggregateSpec]:
    """Parse `aggregate`. Raises for what cannot be computed."""
    labels = _object(raw)
    if not labels:
        raise invalid_param(
            operation, "aggregate", "'aggregate' must be an object with one label or more", "object", labels
        )
    if len(labels) > MAX_KEYS:
        raise invalid_param(operation, "aggregate", f"'aggregate' may have up to {MAX_KEYS} labels", "object", labels)
    return [_parse_spec(label, spec, collection, operation) for label, spec in labels.items()]


def _object(raw: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", raw) if isinstance(raw, Mapping) else {}


def _parse_spec(label: str, raw: Any, collection: Collection, operation: str) -> AggregateSpec:
    spec = _object(raw)
    functions: list[AggregateFunction] = [function_name for function_name in FUNCTIONS if function_name in spec]
    strange = [name for name in spec if name != GROUP_BY and name not in FUNCTIONS]
    if len(functions) != 1 or strange:
        expected = f"one of {', '.join(FUNCTIONS)}, and optionally {GROUP_BY}"
        raise invalid_param(
            operation, "aggregate", f"{quote(label)} in 'aggregate' must have {expected}", expected, raw
        )
    function = functions[0]
    parsed = AggregateSpec(
        label,
        function,
        _field(spec[function], label, function, collection, operation),
        _name(spec.get(GROUP_BY, ""), label, collection, operation),
    )
    with blame_param(operation, "aggregate", field_names(collection)):
        _check(parsed, collection)
    return parsed


def _field(raw: Any, label: str, function: AggregateFunction, collection: Collection, operation: str) -> str:
    return "" if function == "count" and raw is True else _name(raw, label, collection, operation)


def _name(raw: Any, label: str, collection: Collection, operation: str) -> str:
    if not isinstance(raw, str):
        message = f"{quote(label)} in 'aggregate' must name a field with a string, not with {type_name(raw)}"
        raise invalid_param(operation, "aggregate", message, "string", raw)
    return own_name(raw, collection)


def _check(spec: AggregateSpec, collection: Collection) -> None:
    if spec.group_by and collection.field(spec.group_by).type in UNGROUPABLE:
        raise InvalidAggregate(f"Items cannot be grouped by '{spec.group_by}'", field=spec.group_by)
    validate_query(_query([spec], collection.name, Aggregate(()).having), collection)


async def compute_aggregates(
    site: Site, collection: str, where: Filter, specs: Sequence[AggregateSpec], context: AqlRequestContext
) -> tuple[dict[str, Any], tuple[OperationWarning, ...]]:
    """Return the results by label. Labels with the same grouping share one query."""
    results: dict[str, Any] = {}
    warnings: list[OperationWarning] = []
    for group_by in dict.fromkeys(spec.group_by for spec in specs):
        group = [spec for spec in specs if spec.group_by == group_by]
        page = await site.query(_query(group, collection, where), context.caller)
        results.update({spec.label: _render_result(spec, number, page) for number, spec in enumerate(group)})
        if page.cursor:
            warnings += [truncation_warning(spec.label, page.total or 0, len(page.rows), MAX_LIMIT) for spec in group]
    return {spec.label: results[spec.label] for spec in specs}, tuple(warnings)


def _query(specs: Sequence[AggregateSpec], collection: str, where: Filter) -> Query:
    operations = tuple(Aggregation(spec.function, _column(number), spec.field) for number, spec in enumerate(specs))
    group_by = (specs[0].group_by,) if specs[0].group_by else ()
    return Query(collection, where=where, aggregate=Aggregate(operations, group_by), limit=MAX_LIMIT)


def _column(number: int) -> str:
    """Return a column name that no field can have."""
    return f"#{number}"


def _render_result(spec: AggregateSpec, number: int, page: Page) -> Any:
    if not spec.group_by:
        return page.rows[0][_column(number)] if page.rows else None
    values: dict[str, Any] = {}
    for row in page.rows:
        values[_key(row[spec.group_by], values)] = row[_column(number)]
    return values


def _key(value: Any, keys: Mapping[str, Any]) -> str:
    """Return the name of a group. Where 1 and "1" are both groups, the second also has its type."""
    encoded = msgspec.json.encode(value, order="sorted").decode()
    key = value if isinstance(value, str) else encoded
    return f"{encoded} ({type_name(value)})" if key in keys else key
