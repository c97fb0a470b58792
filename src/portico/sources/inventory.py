"""Describes what the store holds of a collection, in the words of a load's report. Writes nothing."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from portico.catalog import Collection
from portico.query import MATCH_ALL
from portico.sources.reports import CollectionReport, FieldReport, shorten_example
from portico.store import Store

MAX_READ = 100_000  # items of a collection that are read: the shares of a larger one are those of this many


async def describe_items(store: Store, collection: Collection) -> CollectionReport:
    """Return how many items there are, and for each field its type, role, coverage and an example."""
    present, examples, read = Counter[str](), dict[str, Any](), 0
    async for batch in store.items.scan(collection.name):
        for item in batch:
            _count(item.data, collection, present, examples)
        read += len(batch)
        if read >= MAX_READ:
            break
    fields = {
        name: FieldReport(
            type=spec.type,
            role=collection.role_of(name),
            format=spec.format,
            unit=spec.unit,
            coverage=present[name] / read if read else 0.0,
            example=examples.get(name),
        )
        for name, spec in collection.fields.items()
    }
    return CollectionReport(items=await store.items.count(collection.name, MATCH_ALL), fields=fields)


def _count(data: Mapping[str, Any], collection: Collection, present: Counter[str], examples: dict[str, Any]) -> None:
    for name, spec in collection.fields.items():
        value = spec.value(data)
        if value is not None and (not spec.is_typed or spec.comparable_value(data) is not None):
            present[name] += 1
            if name not in examples:
                examples[name] = shorten_example(value)
