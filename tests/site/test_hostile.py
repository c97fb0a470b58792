"""What a hostile caller tries: costs that must stay bounded, and answers that must not say too much."""

import asyncio
import time
from typing import Any

import pytest

from portico.catalog import Kind, Operation
from portico.errors import BadRequest, OperationFailed, SiteError, TooLarge, UnsafeRegex
from portico.operations import JsonSchema, check_params
from portico.query import And, NearVector, Order, Query, check_bounds, parse_filter
from portico.requests import Call
from portico.server.assembly import Parts
from portico.store.records import Put

from .conftest import OPERATOR


async def longest_stall(work: Any) -> float:
    """How long the event loop stood still while some work ran."""
    worst, done = 0.0, False

    async def watch() -> None:
        nonlocal worst
        while not done:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            worst = max(worst, time.perf_counter() - before)

    watching = asyncio.create_task(watch())
    await work
    done = True
    await watching
    return worst


async def test_a_costly_filter_in_a_search_does_not_hold_up_others(parts: Parts) -> None:
    await parts.store.items.write("rooms", [Put(f"x{n}", {"name": f"apple {n}", "price": n}) for n in range(500)])
    where = {"$and": [{"price": {"$nin": list(range(10_000 + k, 11_000 + k))}} for k in range(8)]}
    query = Query("rooms", text="apple", where=parse_filter(where), limit=500)

    # A busy machine may stop for a moment by itself.
    costly = min([await longest_stall(parts.site.query(query, OPERATOR)) for _ in range(3)])
    plain = await longest_stall(parts.site.query(Query("rooms", text="apple", limit=500), OPERATOR))

    assert costly < plain * 20 + 0.5


def test_a_filter_of_empty_parts_is_too_large() -> None:
    with pytest.raises(TooLarge):
        parse_filter({"$and": [{}] * 3000})


def test_a_short_pattern_with_a_long_program_is_refused() -> None:
    with pytest.raises(UnsafeRegex):
        parse_filter({"name": {"$regex": "(a|b| ){500}(a|b| ){400}x"}})
    with pytest.raises(UnsafeRegex):  # which would be too much each, all in one
        check_bounds(parse_filter({"$or": [{"name": {"$regex": f"{each}{{400}}x"}} for each in "abcdefg"]}))


@pytest.mark.parametrize(
    "query",
    [
        Query("rooms", order=tuple(Order("name") for _ in range(17))),
        Query("rooms", near=NearVector((10**400,))),
        Query("rooms", text="\ud800"),
    ],
)
async def test_what_costs_too_much_or_is_no_text_is_a_bad_request(parts: Parts, query: Query) -> None:
    with pytest.raises(BadRequest):
        await parts.site.query(query, OPERATOR)


@pytest.mark.parametrize("call", [Call("count_rooms", key="k" * 256), Call("count_rooms", timeout=float("nan"))])
async def test_a_key_and_a_timeout_have_bounds(parts: Parts, call: Call) -> None:
    with pytest.raises(BadRequest):
        await parts.site.call(call, OPERATOR)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"q": {"$dynamicRef": "http://127.0.0.1:9/x"}}},
        {"properties": {"q": {"$ref": "#/nowhere"}}},
        {"properties": {"q": {"type": "file"}}},
        {"properties": {"q": {"pattern": "(?<x"}}},
    ],
)
def test_a_foreign_schema_fetches_nothing_and_breaks_nothing(schema: dict[str, Any]) -> None:
    async def run(*_: Any) -> None: ...

    operation = Operation("op", Kind.READ, "", JsonSchema(schema), Any, run)

    with pytest.raises((OperationFailed, BadRequest)):
        check_params(operation, {"q": "x"})


async def test_a_query_beyond_the_store_does_not_tell_where_it_lies(parts: Parts) -> None:
    many = And((parse_filter({"name": "x"}),) * 40_000)

    with pytest.raises(SiteError) as refusal:
        await parts.store.items.find(Query("rooms", where=many))

    assert ".db" not in str(refusal.value) + str(refusal.value.details)
