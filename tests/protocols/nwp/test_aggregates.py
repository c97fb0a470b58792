"""Aggregates over HTTP: what is counted and what not, by which groups, and which aggregates mean nothing."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking
from tests.protocols.nwp.shop import (
    AGGREGATE_INVALID,
    CURSOR_INVALID,
    FIELD_UNKNOWN,
    FILTER_INVALID,
    ask,
    capsule,
    refusal,
    refused,
    shop,
)

from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFERENCE = "nps:system:aggregate:result"
THINGS: dict[str, dict[str, Any]] = {
    "a": {"kind": "phone", "price": 100, "maker": "Acme", "offers": [{"price": 90}, {"price": 95}]},
    "b": {"kind": "phone", "price": 300, "maker": "Bolt"},
    "c": {"kind": "tablet", "price": 250, "maker": "Acme"},
    "d": {"kind": "tablet", "price": None, "maker": "Acme"},
    "e": {"kind": "tablet", "price": 250},
    "f": {"kind": "lamp", "maker": None},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with shop(tmp_path_factory.mktemp("shop"), THINGS) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


def operation(func: str, alias: str, field: str | None = None) -> dict[str, Any]:
    return {"func": func, "alias": alias, **({} if field is None else {"field": field})}


COUNT = operation("COUNT", "n")
DEAREST = operation("MAX", "dearest", "price")
ALL = [
    operation("COUNT", "rows"),
    operation("COUNT", "prices", "price"),
    operation("SUM", "sum", "price"),
    operation("AVG", "mean", "price"),
    operation("MIN", "least", "price"),
    operation("MAX", "most", "price"),
    operation("COUNT_DISTINCT", "kinds", "price"),
]


async def rows(client: httpx.AsyncClient, *operations: dict[str, Any], **said: Any) -> list[dict[str, Any]]:
    """The rows of an aggregate. What is no part of one is said of the query."""
    parts = {name: said.pop(name) for name in ("group_by", "having") if name in said}
    answer = await capsule(client, {"aggregate": {"operations": list(operations), **parts}, **said})
    assert answer["count"] == len(answer["data"])
    return answer["data"]


@requirement("nwp:aggregate:functions", "nwp:aggregate:nulls")
async def test_the_functions_pass_over_what_is_null_or_missing(client: httpx.AsyncClient) -> None:
    assert await rows(client, *ALL) == [
        {"rows": 6, "prices": 4, "sum": 900, "mean": 225.0, "least": 100, "most": 300, "kinds": 3}
    ]
    assert await rows(client, operation("count", "n", "*"), operation("Min", "first", "maker")) == [
        {"n": 6, "first": "Acme"}
    ]


@requirement("nwp:aggregate:nulls")
async def test_of_nothing_the_count_is_zero_and_the_rest_is_null(client: httpx.AsyncClient) -> None:
    nothing = {"rows": 0, "prices": 0, "sum": None, "mean": None, "least": None, "most": None, "kinds": 0}

    assert await rows(client, *ALL, filter={"kind": {"$eq": "sofa"}}) == [nothing]
    assert await rows(client, *ALL, filter={"kind": {"$eq": "lamp"}}) == [{**nothing, "rows": 1}]
    assert await rows(client, COUNT, group_by=["kind"], filter={"kind": {"$eq": "sofa"}}) == []


@requirement("nwp:aggregate:group-by", "nwp:aggregate:rows")
async def test_records_that_the_filter_chooses_make_a_row_for_each_group_sorted_by_it(
    client: httpx.AsyncClient,
) -> None:
    assert await rows(client, COUNT, DEAREST, group_by=["kind"], filter={"id": {"$ne": "b"}}) == [
        {"kind": "lamp", "n": 1, "dearest": None},
        {"kind": "phone", "n": 1, "dearest": 100},
        {"kind": "tablet", "n": 3, "dearest": 250},
    ]
    assert await rows(client, COUNT, group_by=["maker", "kind"]) == [
        {"maker": "Acme", "kind": "phone", "n": 1},
        {"maker": "Acme", "kind": "tablet", "n": 2},
        {"maker": "Bolt", "kind": "phone", "n": 1},
        {"maker": None, "kind": "lamp", "n": 1},
        {"maker": None, "kind": "tablet", "n": 1},
    ]


@requirement("nwp:aggregate:having")
@pytest.mark.parametrize(
    ("having", "kinds"),
    [
        ({"n": {"$gt": 1}}, ["phone", "tablet"]),
        ({"n": {"$gt": 1}, "dearest": {"$gt": 250}}, ["phone"]),
        ({"kind": {"$in": ["lamp", "tablet"]}}, ["lamp", "tablet"]),
        ({"$or": [{"kind": {"$regex": "^l"}}, {"n": {"$eq": 3}}]}, ["lamp", "tablet"]),
        ({"dearest": {"$exists": False}}, ["lamp"]),
        ({}, ["lamp", "phone", "tablet"]),
    ],
)
async def test_having_filters_rows_by_their_aliases_and_groups(
    client: httpx.AsyncClient, having: dict[str, Any], kinds: list[str]
) -> None:
    shown = await rows(client, COUNT, DEAREST, group_by=["kind"], having=having)

    assert [row["kind"] for row in shown] == kinds


@requirement("nwp:aggregate:rows")
async def test_order_limit_and_cursor_act_on_rows(client: httpx.AsyncClient) -> None:
    said: dict[str, Any] = {
        "aggregate": {"operations": [COUNT, DEAREST], "group_by": ["kind"]},
        "order": [{"field": "n", "dir": "DESC"}],
        "limit": 2,
    }
    first = await capsule(client, said)
    last = await capsule(client, {**said, "cursor": first["next_cursor"]})
    by_dearest = await capsule(client, {**said, "order": [{"field": "dearest", "dir": "ASC"}]})

    assert [row["kind"] for row in first["data"]] == ["tablet", "phone"]
    assert [row["kind"] for row in last["data"]] == ["lamp"]
    assert "next_cursor" not in last
    assert [row["dearest"] for row in by_dearest["data"]] == [250, 300]
    assert await refusal(client, {**said, "order": [], "cursor": first["next_cursor"]}) == CURSOR_INVALID


@requirement("nwp:aggregate:anchor")
async def test_the_anchor_is_that_of_aggregates_whether_the_query_names_one_or_not(client: httpx.AsyncClient) -> None:
    anchor = (await client.get("/nwp/things/.schema")).json()["anchor_id"]

    for said in ({}, {"anchor_ref": anchor}):
        answer = await ask(client, {"aggregate": {"operations": [COUNT]}, **said})

        assert (answer.json()["anchor_ref"], answer.headers["x-nwp-schema"]) == (REFERENCE, REFERENCE)
        assert answer.json()["data"] == [{"n": 6}]


@requirement("nwp:aggregate:invalid", "nwp:errors:query-aggregate-invalid")
@pytest.mark.parametrize(
    "aggregate",
    [
        {"operations": [operation("MEDIAN", "n", "price")]},
        {"operations": [operation("", "n", "price")]},
        {"operations": [operation("SUM", "n")]},
        {"operations": [operation("AVG", "n", "*")]},
        {"operations": [operation("COUNT_DISTINCT", "n")]},
        {"operations": [operation("SUM", "n", "kind")]},
        {"operations": [COUNT, operation("MAX", "n", "price")]},
        {"operations": [operation("COUNT", "kind")], "group_by": ["kind"]},
        {"operations": [COUNT], "group_by": ["kind", "kind"]},
        {"operations": [COUNT], "having": {"price": {"$gt": 1}}},
        {"operations": [COUNT], "group_by": "kind"},
        {"operations": [COUNT], "group_by": ""},
        {"operations": [COUNT], "group_by": [1]},
        {"operations": [{"func": "COUNT", "alias": "n", "field": 0}]},
        {"operations": [{"func": "COUNT"}]},
        {"operations": [{"alias": "n"}]},
        {"operations": [{"func": "COUNT", "alias": ""}]},
        {"operations": [{"func": "COUNT", "alias": "n" * 129}]},
        {"operations": [{"func": 1, "alias": "n"}]},
        {"operations": ["COUNT"]},
        {"operations": []},
        {"operations": {}},
        {},
        [],
        "COUNT",
        0,
    ],
    ids=repr,
)
async def test_an_aggregate_that_means_nothing_is_refused(client: httpx.AsyncClient, aggregate: Any) -> None:
    assert await refusal(client, {"aggregate": aggregate}) == AGGREGATE_INVALID


@requirement("nwp:aggregate:invalid")
async def test_what_lies_below_a_list_is_no_column(client: httpx.AsyncClient) -> None:
    whole = await capsule(client, {"aggregate": {"operations": [operation("COUNT", "n", "offers")]}})
    assert whole["data"] == [{"n": 1}]
    for aggregate in (
        {"operations": [operation("SUM", "sum", "offers.price")]},
        {"operations": [operation("COUNT", "n", "offers.price")]},
        {"operations": [COUNT], "group_by": ["offers.price"]},
    ):
        assert await refusal(client, {"aggregate": aggregate}) == AGGREGATE_INVALID


@requirement("nwp:aggregate:invalid")
async def test_rows_are_sorted_by_what_they_have_and_found_by_no_vector(client: httpx.AsyncClient) -> None:
    said = {"aggregate": {"operations": [COUNT]}}

    assert await refusal(client, {**said, "order": [{"field": "price"}]}) == FIELD_UNKNOWN
    assert await refusal(client, {"aggregate": {"operations": [COUNT], "having": []}}) == FILTER_INVALID


@requirement("nwp:errors:query-aggregate-unsupported", "nwp:errors:query-stream-unsupported")
async def test_a_node_that_shall_not_aggregate_or_stream_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("plain")
    async with shop(folder, THINGS, nwp={"without": ["aggregate", "stream_query"]}) as parts, asking(parts) as client:
        manifest = (await client.get("/nwp/things/.nwm")).json()
        aggregate = await ask(client, {"aggregate": {"operations": [COUNT]}})
        streams = [
            await client.post("/nwp/things/stream", json={}),
            await client.post("/nwp/things/query", json={"stream": True}),
        ]

    assert (manifest["capabilities"]["aggregate"], manifest["capabilities"]["stream_query"]) == (False, False)
    assert refused(aggregate) == (501, "NPS-SERVER-UNSUPPORTED", "NWP-QUERY-AGGREGATE-UNSUPPORTED")
    for stream in streams:
        assert refused(stream) == (501, "NPS-SERVER-UNSUPPORTED", "NWP-QUERY-STREAM-UNSUPPORTED")
