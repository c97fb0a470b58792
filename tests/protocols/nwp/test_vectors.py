"""Vector search over HTTP: the nearest, how near they are, and what cannot be compared."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking
from tests.protocols.nwp.shop import AGGREGATE_INVALID, FIELD_UNKNOWN, FILTER_INVALID, capsule, refusal, refused, shop

from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

THINGS: dict[str, dict[str, Any]] = {
    "east": {"place": [1.0, 0.0], "n": 1},
    "far": {"place": [4.0, 3.0], "n": 2},
    "north": {"place": [0.0, 1.0], "n": 3},
    "west": {"place": [-1.0, 0.0], "n": 4},
    "nowhere": {"n": 5},
}
FIELDS = {"collections": {"things": {"fields": {"place": {"type": "vector"}}}}}
EAST = [2.0, 0.0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with shop(tmp_path_factory.mktemp("shop"), THINGS, **FIELDS) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


def near(vector: Any = EAST, **said: Any) -> dict[str, Any]:
    return {"field": "place", "vector": vector, **said}


async def nearest(client: httpx.AsyncClient, search: dict[str, Any], **said: Any) -> list[tuple[str, float]]:
    answer = await capsule(client, {"vector_search": search, **said})
    return [(each["id"], each["_score"]) for each in answer["data"]]


@requirement("nwp:vector:metrics", "nwp:vector:score")
async def test_each_metric_ranks_in_its_own_way_and_tells_its_score(client: httpx.AsyncClient) -> None:
    cosine = [("east", 1.0), ("far", 0.8), ("north", 0.0), ("west", -1.0)]

    assert await nearest(client, near()) == cosine
    assert await nearest(client, near(metric="cosine")) == cosine
    assert await nearest(client, near(metric="dot_product")) == [
        ("far", 8.0),
        ("east", 2.0),
        ("north", 0.0),
        ("west", -2.0),
    ]
    assert await nearest(client, near(metric="euclidean")) == [
        ("east", 1.0),
        ("north", pytest.approx(5**0.5, abs=1e-5)),
        ("west", 3.0),
        ("far", pytest.approx(13**0.5, abs=1e-5)),
    ]
    assert await refusal(client, {"vector_search": near(metric="manhattan")}) == FILTER_INVALID


@requirement("nwp:vector:nearest")
@pytest.mark.parametrize(
    ("search", "ids"),
    [
        ({"threshold": 0.8}, ["east", "far"]),
        ({"threshold": 0.0}, ["east", "far", "north"]),
        ({"threshold": 2.0, "metric": "dot_product"}, ["far", "east"]),
        ({"threshold": 3.0, "metric": "euclidean"}, ["east", "north", "west"]),
        ({"threshold": 0.5, "metric": "euclidean"}, []),
        ({"top_k": 2}, ["east", "far"]),
        ({"top_k": None, "metric": None, "threshold": None}, ["east", "far", "north", "west"]),
        ({"top_k": 5000}, ["east", "far", "north", "west"]),
    ],
    ids=repr,
)
async def test_a_threshold_is_the_least_score_or_the_greatest_distance(
    client: httpx.AsyncClient, search: dict[str, Any], ids: list[str]
) -> None:
    assert [id for id, _ in await nearest(client, near(**search))] == ids


@requirement("nwp:vector:nearest")
async def test_there_are_at_most_top_k_and_limit_records_and_all_pages_have_top_k(client: httpx.AsyncClient) -> None:
    first = await capsule(client, {"vector_search": near(top_k=3), "limit": 2})
    last = await capsule(client, {"vector_search": near(top_k=3), "limit": 2, "cursor": first["next_cursor"]})

    assert [each["id"] for each in first["data"]] == ["east", "far"]
    assert [each["id"] for each in last["data"]] == ["north"]
    assert "next_cursor" not in last
    assert await nearest(client, near(top_k=1), limit=10) == [("east", 1.0)]


@requirement("nwp:vector:nearest")
async def test_a_stream_of_the_nearest_ends_with_top_k(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nwp/things/stream", json={"vector_search": near(top_k=3), "limit": 2})
    parts = [msgspec.json.decode(line) for line in answer.text.splitlines()]

    assert [[each["id"] for each in part["data"]] for part in parts] == [["east", "far"], ["north"]]
    assert (parts[0]["estimated_total"], parts[-1]["is_last"]) == (3, True)


async def test_a_search_goes_with_a_filter_with_fields_and_with_an_order(client: httpx.AsyncClient) -> None:
    chosen = await capsule(client, {"vector_search": near(), "filter": {"n": {"$gt": 1}}, "fields": ["n"], "limit": 2})
    by_number = {"order": [{"field": "n", "dir": "DESC"}], "fields": ["id"]}

    assert chosen["data"] == [{"n": 2, "_score": 0.8}, {"n": 3, "_score": 0.0}]
    assert await nearest(client, near(metric="euclidean", top_k=3), **by_number) == [
        ("west", 3.0),
        ("north", pytest.approx(5**0.5, abs=1e-5)),
        ("east", 1.0),
    ]


@requirement("nwp:vector:dimension", "nwp:errors:query-filter-invalid")
@pytest.mark.parametrize(
    "vector", [[1.0], [1.0, 0.0, 0.0], [], [1e39, 0.0], [1e20, 0.0], ["1", "0"], "east", None], ids=repr
)
async def test_a_vector_that_cannot_be_compared_is_refused(client: httpx.AsyncClient, vector: Any) -> None:
    assert await refusal(client, {"vector_search": near(vector)}) == FILTER_INVALID


@requirement("nwp:vector:dimension")
@pytest.mark.parametrize(
    "said",
    [
        {"vector": [float("nan"), 1.0]},
        {"vector": [float("inf"), 1.0]},
        {"vector": EAST, "threshold": float("nan")},
        {"vector": EAST, "threshold": float("-inf")},
    ],
    ids=repr,
)
async def test_numbers_without_an_end_are_refused(client: httpx.AsyncClient, said: dict[str, Any]) -> None:
    body = msgspec.msgpack.encode({"vector_search": {"field": "place", **said}})

    assert refused(await client.post("/nwp/things/query", content=body)) == FILTER_INVALID


async def test_what_is_searched_in_holds_vectors_and_is_not_aggregated(client: httpx.AsyncClient) -> None:
    counted = {"operations": [{"func": "COUNT", "alias": "n"}]}

    assert await refusal(client, {"vector_search": near(field="n")}) == FILTER_INVALID
    assert await refusal(client, {"vector_search": near(field="a b")}) == FILTER_INVALID
    assert await refusal(client, {"vector_search": near(field="else")}) == FIELD_UNKNOWN
    assert await refusal(client, {"vector_search": near(top_k=0)}) == FILTER_INVALID
    assert await refusal(client, {"vector_search": near(), "aggregate": counted}) == AGGREGATE_INVALID


@requirement("nwp:errors:query-vector-unsupported")
async def test_a_node_that_has_no_vectors_or_shall_not_compare_them_says_so(
    client: httpx.AsyncClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    unsupported = (501, "NPS-SERVER-UNSUPPORTED", "NWP-QUERY-VECTOR-UNSUPPORTED")
    settings = ({}, {**FIELDS, "nwp": {"without": ["vector_search"]}})

    for number, said in enumerate(settings):
        async with shop(tmp_path_factory.mktemp(f"plain{number}"), THINGS, **said) as parts, asking(parts) as plain:
            assert (await plain.get("/nwp/things/.nwm")).json()["capabilities"]["vector_search"] is False
            assert await refusal(plain, {"vector_search": near()}) == unsupported
    assert (await client.get("/nwp/things/.nwm")).json()["capabilities"]["vector_search"] is True
    assert await refusal(client, {"vector_search": near(field="embedding")}) == unsupported
