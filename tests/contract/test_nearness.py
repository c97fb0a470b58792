"""Vectors: in the data, and made of the text of an item."""

import contextlib
from typing import Any

import numpy as np
import pytest
from tests.contract.shelf import fill

from portico.catalog import Collection, Field, FieldType
from portico.errors import InvalidQuery, SiteError, UnknownField
from portico.query import Condition, NearVector, Query
from portico.store import Store
from portico.store.records import Merge, Put, Remove


def vector(*start: float) -> list[float]:
    return [*start, *[0.0] * (16 - len(start))]


def raw(*numbers: float) -> bytes:
    return np.asarray(numbers, np.float32).tobytes()


SHELF: dict[str, dict[str, Any]] = {
    "east": {"v": vector(1.0, 0.0), "n": 1},
    "far-east": {"v": vector(5.0, 0.0), "n": 2},
    "north": {"v": vector(0.0, 1.0), "n": 3},
    "west": {"v": vector(-1.0, 0.0), "n": 4},
    "nowhere": {"n": 5},
}


async def nearest(store: Store, near: NearVector, **more: Any) -> list[tuple[str, float]]:
    page = await store.items.find(Query("things", near=near, **more))
    return [(item.id, round(score, 4)) for item, score in zip(page.items, page.scores, strict=True)]


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("cosine", [("east", 1.0), ("far-east", 1.0), ("north", 0.0), ("west", -1.0)]),
        ("dot_product", [("far-east", 10.0), ("east", 2.0), ("north", 0.0), ("west", -2.0)]),
        ("euclidean", [("east", 1.0), ("north", 2.2361), ("far-east", 3.0), ("west", 3.0)]),
    ],
)
async def test_the_nearest_come_first_by_each_measure(store: Store, metric: Any, found: list[Any]) -> None:
    await fill(store, SHELF)

    assert await nearest(store, NearVector(tuple(vector(2.0)), "v", metric=metric)) == found


@pytest.mark.parametrize(
    ("metric", "threshold", "found"),
    [
        ("cosine", 0.5, ["east", "far-east"]),
        ("dot_product", 2.0, ["far-east", "east"]),
        ("euclidean", 2.5, ["east", "north"]),
    ],
)
async def test_a_threshold_leaves_out_what_is_further(
    store: Store, metric: Any, threshold: float, found: list[str]
) -> None:
    await fill(store, SHELF)

    near = NearVector(tuple(vector(2.0)), "v", threshold=threshold, metric=metric)

    assert [id for id, _ in await nearest(store, near)] == found


async def test_top_and_a_filter_narrow_the_answer(store: Store) -> None:
    await fill(store, SHELF)
    near = NearVector(tuple(vector(2.0)), "v", top=2)

    assert [id for id, _ in await nearest(store, near)] == ["east", "far-east"]
    assert [id for id, _ in await nearest(store, near, where=Condition("n", "gt", 1))] == ["far-east", "north"]


async def test_a_vector_of_another_length_is_refused(store: Store) -> None:
    await fill(store, SHELF)

    with pytest.raises(InvalidQuery, match="3 numbers; the stored ones have 16"):
        await store.items.find(Query("things", near=NearVector((1.0, 0.0, 0.0), "v")))


@pytest.mark.parametrize(
    "near",
    [
        NearVector((), "v"),
        NearVector((float("nan"),) * 16, "v"),
        NearVector((1.0,), "v", top=0),
        NearVector((1.0,), "v", top=1001),
    ],
)
async def test_a_vector_that_is_none_is_refused(store: Store, near: NearVector) -> None:
    await fill(store, SHELF)

    with pytest.raises(InvalidQuery):
        await store.items.find(Query("things", near=near))


async def test_a_field_that_does_not_exist_has_no_neighbours_but_an_error(store: Store) -> None:
    await fill(store, SHELF)

    with pytest.raises(UnknownField):
        await store.items.find(Query("things", near=NearVector((1.0,), "nope")))


async def test_a_changed_vector_counts_and_a_removed_one_does_not(store: Store) -> None:
    await fill(store, SHELF)

    await store.items.write(
        "things", [Merge("west", {"v": vector(3.0)}), Merge("east", {"v": None}), Remove("far-east")]
    )

    assert await nearest(store, NearVector(tuple(vector(2.0)), "v")) == [("west", 1.0), ("north", 0.0)]


async def test_a_declared_vector_may_lie_deeper_in_the_data(store: Store) -> None:
    await store.collections.declare(
        Collection("things", {"v": Field("v", FieldType.VECTOR, "meta.embedding", declared=True)})
    )
    await fill(store, {"a": {"meta": {"embedding": [1.0, 0.0]}}, "b": {"meta": {"embedding": [0.0, 1.0]}}})

    assert await nearest(store, NearVector((1.0, 0.0), "v")) == [("a", 1.0), ("b", 0.0)]


async def test_a_vector_declared_after_the_data_came_is_found(store: Store) -> None:
    await fill(store, {"a": {"v": [1.0, 0.0]}, "b": {"v": [0.0, 1.0]}})

    await store.collections.declare(Collection("things", {"v": Field("v", FieldType.VECTOR, declared=True)}))

    assert await nearest(store, NearVector((1.0, 0.0), "v")) == [("a", 1.0), ("b", 0.0)]


@pytest.mark.parametrize("value", [["x", "y"], [[1.0], [2.0]], [1e300, 1.0], [None, 1.0], [], "text"], ids=str)
async def test_what_is_declared_a_vector_but_is_none_is_absent_or_refused(backend: Store, value: Any) -> None:
    await backend.collections.declare(Collection("things", {"v": Field("v", FieldType.VECTOR, declared=True)}))
    await fill(backend, {"good": {"v": [1.0, 0.0]}})

    with contextlib.suppress(SiteError):
        await fill(backend, {"bad": {"v": value}})

    assert await nearest(backend, NearVector((1.0, 0.0), "v")) == [("good", 1.0)]


async def test_a_page_of_neighbours_says_when_more_follow(store: Store) -> None:
    await fill(store, SHELF)
    query = Query("things", near=NearVector(tuple(vector(2.0)), "v", top=4), limit=2)

    page = await store.items.find(query)

    assert len(page.items) == 2
    assert page.cursor


# Vectors that Portico makes


async def embedded(store: Store, model: str, vectors: dict[str, tuple[float, ...]]) -> None:
    digests = {item.id: digest for item, digest in await store.vectors.list_missing("things", model, 100)}
    await store.vectors.put("things", model, [(id, digests[id], raw(*v)) for id, v in vectors.items()])


async def test_an_item_waits_for_its_vector_until_it_has_a_current_one(store: Store) -> None:
    await fill(store, {"a": {"n": 1}, "b": {"n": 2}})
    assert await store.vectors.count("things", "m") == (0, 2)
    waiting = await store.vectors.list_missing("things", "m", 10)
    assert {item.id: dict(item.data) for item, _ in waiting} == {"a": {"n": 1}, "b": {"n": 2}}

    await embedded(store, "m", {"a": (1.0, 0.0)})

    assert [item.id for item, _ in await store.vectors.list_missing("things", "m", 10)] == ["b"]
    assert await store.vectors.count("things", "m") == (1, 2)
    await store.items.write("things", [Merge("a", {"n": 3})])
    assert {item.id for item, _ in await store.vectors.list_missing("things", "m", 10)} == {"a", "b"}
    assert await store.vectors.count("things", "m") == (0, 2)


async def test_a_vector_of_another_model_does_not_count(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})
    await embedded(store, "old", {"a": (1.0, 0.0)})

    assert [item.id for item, _ in await store.vectors.list_missing("things", "new", 10)] == ["a"]
    assert await store.vectors.count("things", "new") == (0, 1)
    assert await store.vectors.list_after("things", "", "new", 0, 10) == []


async def test_as_many_wait_as_are_asked_for(store: Store) -> None:
    await fill(store, {f"i{n}": {"n": n} for n in range(10)})

    assert len(await store.vectors.list_missing("things", "m", 4)) == 4


async def test_a_vector_made_from_what_an_item_no_longer_says_is_not_kept(store: Store) -> None:
    await fill(store, {"a": {"n": 1}, "b": {"n": 1}})
    digests = {item.id: digest for item, digest in await store.vectors.list_missing("things", "m", 10)}
    await store.items.write("things", [Merge("a", {"n": 2}), Remove("b")])

    await store.vectors.put("things", "m", [(id, digests[id], raw(1.0)) for id in ("a", "b")])

    assert await store.vectors.list_after("things", "", "m", 0, 10) == []


async def test_vectors_are_read_in_the_order_they_were_written(store: Store) -> None:
    await fill(store, {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}})
    await embedded(store, "m", {"b": (1.0, 2.0)})
    await embedded(store, "m", {"a": (3.0, 4.0), "c": (5.0, 6.0)})

    rows = await store.vectors.list_after("things", "", "m", 0, 2)
    rest = await store.vectors.list_after("things", "", "m", rows[-1].seq, 10)

    assert [(row.id, row.vector) for row in (*rows, *rest)] == [
        ("b", raw(1.0, 2.0)),
        ("a", raw(3.0, 4.0)),
        ("c", raw(5.0, 6.0)),
    ]
    assert [row.seq for row in (*rows, *rest)] == sorted(row.seq for row in (*rows, *rest))


async def test_a_vector_written_anew_is_read_again(store: Store) -> None:
    await fill(store, {"a": {"n": 1}})
    await embedded(store, "m", {"a": (1.0,)})
    (first,) = await store.vectors.list_after("things", "", "m", 0, 10)
    await store.items.write("things", [Put("a", {"n": 2})])
    await embedded(store, "m", {"a": (2.0,)})

    (second,) = await store.vectors.list_after("things", "", "m", first.seq, 10)

    assert (second.vector, second.digest != first.digest) == (raw(2.0), True)


async def test_items_are_found_by_the_vector_made_of_their_text(store: Store) -> None:
    await fill(store, {"a": {"n": 1}, "b": {"n": 2}})
    await embedded(store, "m", {"a": (1.0, 0.0), "b": (0.0, 1.0)})

    assert await nearest(store, NearVector((0.0, 2.0))) == [("b", 1.0), ("a", 0.0)]


@pytest.mark.parametrize("metric", ["cosine", "dot_product", "euclidean"])
async def test_of_more_that_are_equally_near_than_wanted_the_first_ids_are_found(backend: Store, metric: Any) -> None:
    chance = np.random.default_rng(3)
    rows = chance.standard_normal((300, 16))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    await fill(backend, {f"i{n:03}": {"v": row.tolist()} for n, row in enumerate(rows)})

    page = await backend.items.find(Query("things", near=NearVector((0.0,) * 16, "v", top=5, metric=metric)))

    assert [item.id for item in page.items] == [f"i{n:03}" for n in range(5)]
