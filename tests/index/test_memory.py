"""The index in memory: follows the store, starts from what it saved, makes vectors once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from tests.index.toy_model import ToyModel

from portico.catalog import Collection
from portico.errors import InvalidQuery, UnknownCollection
from portico.index import Search
from portico.index.memory import MemoryIndex
from portico.query import Condition, Near, Query
from portico.search import Finder
from portico.store import Merge, Put, Remove, Store, open_store

Start = Callable[..., Awaitable[MemoryIndex]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path / 'site.db'}", keep_changes=500)
    await opened.declare(Collection("things"))
    yield opened
    await opened.close()


@pytest.fixture
async def start(store: Store) -> AsyncIterator[Start]:
    started: list[MemoryIndex] = []

    async def one(model: ToyModel | None = None, *, run: bool = False) -> MemoryIndex:
        index = MemoryIndex(store, model)
        started.append(index)
        await index.start()
        if run:
            index.run()
        return index

    yield one
    for index in started:
        await index.close()


def found(index: MemoryIndex, text: str, name: str = "things") -> list[str]:
    return index.rank(name, Search(text), 1000).ids


async def load(store: Store, count: int, text: str = "soup") -> None:
    run = await store.begin_load("test")
    await store.load(run, "things", [Put(f"i{n:04}", {"name": f"{text} {n}", "n": n}) for n in range(count)])
    await store.finish_load(run)


async def until(index: MemoryIndex, embedded: int) -> None:
    """Wait for vectors that are made in the background."""
    async with asyncio.timeout(3):
        while index.progress()["things"].embedded < embedded:
            await asyncio.sleep(0.01)


async def test_what_was_there_before_is_found(store: Store, start: Start) -> None:
    await store.write("things", [Put("a", {"name": "soup"}), Put("b", {"name": "cake"})])

    index = await start()

    assert found(index, "soup") == ["a"]
    assert index.progress()["things"].items == 2


async def test_what_is_written_is_found_once_the_index_is_in_step(store: Store, start: Start) -> None:
    index = await start()
    (created,) = await store.write("things", [Put("a", {"name": "soup"})])
    await index.sync(created.seq)
    assert found(index, "soup") == ["a"]

    (changed,) = await store.write("things", [Put("a", {"name": "cake"})])
    await index.sync(changed.seq)
    assert (found(index, "soup"), found(index, "cake")) == ([], ["a"])

    (gone,) = await store.write("things", [Remove("a")])
    await index.sync(gone.seq)
    assert found(index, "cake") == []


async def test_an_index_that_follows_finds_new_things_by_itself(store: Store, start: Start) -> None:
    index = await start(run=True)

    await store.write("things", [Put("a", {"name": "soup"})])

    async with asyncio.timeout(5):
        while found(index, "soup") != ["a"]:
            await asyncio.sleep(0.01)


async def test_a_collection_made_later_is_found(store: Store, start: Start) -> None:
    index = await start()
    with pytest.raises(UnknownCollection):
        found(index, "soup", "others")
    await store.declare(Collection("others"))
    (change,) = await store.write("others", [Put("x", {"name": "soup"})])

    await index.sync(change.seq)

    assert found(index, "soup", "others") == ["x"]


async def test_a_new_field_can_be_filtered_once_the_index_is_in_step(store: Store, start: Start) -> None:
    await store.write("things", [Put("a", {"name": "soup"})])
    index = await start()
    (change,) = await store.write("things", [Put("b", {"name": "soup", "fresh": 5})])

    await index.sync(change.seq)

    assert index.rank("things", Search("soup", where=Condition("fresh", "eq", 5)), 10).ids == ["b"]


async def test_a_restart_from_what_was_saved_catches_up(store: Store, start: Start) -> None:
    await load(store, 2100)
    await start()
    assert await store.load_blob("index/things")
    await store.write(
        "things", [Put("new", {"name": "cake"}), Put("i0001", {"name": "bread", "n": 1}), Remove("i0002")]
    )

    again = await start()

    assert (found(again, "cake"), found(again, "bread")) == (["new"], ["i0001"])
    assert found(again, "2") == []
    assert len(found(again, "soup")) == 1000
    assert again.progress()["things"].items == 2100
    fresh = await _built_anew(store)
    for question in ("soup 77", "bread", "cake soup"):
        assert again.rank("things", Search(question), 50) == fresh.rank("things", Search(question), 50)


async def _built_anew(store: Store) -> MemoryIndex:
    await store.save_blob("index/things", b"\0" * 40)
    index = MemoryIndex(store, None)
    await index.start()
    return index


async def test_a_restart_after_the_feed_expired_reads_everything_anew(store: Store, start: Start) -> None:
    await load(store, 2100)
    await start()
    await load(store, 2100, "bread")
    await store.write("things", [Put("new", {"name": "cake"})])

    again = await start()

    assert (found(again, "soup"), found(again, "cake"), len(found(again, "bread"))) == ([], ["new"], 1000)


async def test_a_running_index_that_fell_behind_the_feed_reads_everything_anew(store: Store, start: Start) -> None:
    index = await start()
    await load(store, 2100)
    await store.write("things", [Remove("i0007")])

    await index.sync(await store.head())

    assert index.progress()["things"].items == 2099
    assert found(index, "7") == []
    assert found(index, "8") == ["i0008"]


async def test_what_was_saved_for_another_schema_is_not_used(store: Store, start: Start) -> None:
    await load(store, 2100)
    await start()
    await store.write("things", [Merge("i0000", {"fresh": True})])

    again = await start()

    assert again.rank("things", Search("soup", where=Condition("fresh", "eq", True)), 10).ids == ["i0000"]


async def test_vectors_are_made_once_and_a_restart_makes_none(store: Store, start: Start) -> None:
    await store.write("things", [Put(f"i{n}", {"name": f"soup {n}"}) for n in range(100)])
    model = ToyModel()
    index = await start(model, run=True)
    await until(index, 100)
    await index.close()

    again = await start(model, run=True)

    assert again.progress()["things"].embedded == 100
    assert await again.embed_batch("things") == 0
    assert sorted(model.texts) == sorted(f"soup {n}" for n in range(100))


async def test_only_what_changed_is_embedded_again(store: Store, start: Start) -> None:
    await store.write("things", [Put("a", {"name": "soup"}), Put("b", {"name": "cake"})])
    model = ToyModel()
    index = await start(model)
    await index.embed_batch("things")
    (change,) = await store.write("things", [Put("a", {"name": "automobile"})])
    await index.sync(change.seq)

    assert await index.embed_batch("things") == 1

    assert model.texts[2:] == ["automobile"]
    near = index.rank("things", Search("car", model.embed_query("car")), 10)
    assert near.ids[0] == "a"


async def test_another_model_makes_its_own_vectors(store: Store, start: Start) -> None:
    await store.write("things", [Put("a", {"name": "soup"})])
    first = await start(ToyModel("toy-1"))
    await first.embed_batch("things")

    second = await start(ToyModel("toy-2"))

    assert second.progress()["things"].embedded == 0
    assert await second.embed_batch("things") == 1


async def test_a_model_that_failed_once_is_asked_again(store: Store, start: Start) -> None:
    await store.write("things", [Put("a", {"name": "soup"})])

    index = await start(ToyModel(failures=1), run=True)

    await until(index, 1)
    await index.close()


async def test_meaning_finds_what_words_do_not(store: Store, start: Start) -> None:
    await store.write(
        "things", [Put("a", {"name": "automobile"}), Put("b", {"name": "kitten"}), Put("c", {"name": "bread"})]
    )
    model = ToyModel()
    index = await start(model)
    await index.embed_batch("things")

    assert found(index, "feline") == []
    assert index.rank("things", Search("feline", model.embed_query("feline")), 1).ids == ["b"]


def numbers(*start: float) -> list[float]:
    return [*start, *[0.0] * (16 - len(start))]


async def test_vectors_in_the_data_are_searched_by_nearness(store: Store, start: Start) -> None:
    index = await start()
    changes = await store.write(
        "things", [Put("a", {"v": numbers(1.0, 0.0)}), Put("b", {"v": numbers(0.0, 1.0)}), Put("c", {"n": 1})]
    )
    await index.sync(changes[-1].seq)

    near = index.rank("things", Search(near=Near(tuple(numbers(0.1, 1.0)), "v")), 10)

    assert near.ids == ["b", "a"]
    with pytest.raises(InvalidQuery):
        index.rank("things", Search(near=Near((1.0,), "v")), 10)


async def test_a_vector_taken_out_of_the_data_is_no_longer_found(store: Store, start: Start) -> None:
    index = await start()
    put = await store.write("things", [Put("a", {"v": numbers(1.0)}), Put("b", {"v": numbers(0.5, 1.0)})])
    await index.sync(put[-1].seq)
    (change,) = await store.write("things", [Put("a", {"other": 1})])
    await index.sync(change.seq)

    near = index.rank("things", Search(near=Near(tuple(numbers(1.0)), "v")), 10)

    assert near.ids == ["b"]


async def test_no_more_than_the_top_are_near_however_many_tie(store: Store, start: Start) -> None:
    await store.write("things", [Put(f"i{n}", {"v": numbers(1.0)}) for n in range(8)])
    index = await start()

    near = index.rank("things", Search(near=Near(tuple(numbers(1.0)), "v", top=3)), 10)

    assert (near.ids, near.total) == (["i0", "i1", "i2"], 3)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot_product"])
async def test_index_and_store_give_the_same_neighbours_and_scores(store: Store, start: Start, metric: str) -> None:
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(40, 16))
    await store.write("things", [Put(f"i{n:02}", {"v": row.tolist(), "n": n}) for n, row in enumerate(rows)])
    index = await start()
    near = Near(tuple(rows[3]), "v", top=12, metric=metric)  # type: ignore[arg-type]
    where = Condition("n", "lt", 30)

    page = await store.find(Query("things", near=near, where=where))
    found = await Finder(store, index).find(Query("things", near=near, where=where))

    assert [item.id for item in found.items] == [item.id for item in page.items]
    np.testing.assert_allclose(found.scores, page.scores, atol=1e-4)
