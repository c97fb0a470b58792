"""The index in memory: follows the store, starts from what it saved, makes vectors once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import apsw
import numpy as np
import pytest
from tests.search.index.toy_model import ToyModel

from portico.catalog import Collection, Field, FieldType
from portico.errors import InvalidQuery, SiteError, Unavailable, UnknownCollection
from portico.items import Item
from portico.query import Condition, NearVector, Query
from portico.search.finder import Finder
from portico.search.index import SearchRequest, segment
from portico.search.index.memory import MemoryIndex
from portico.search.index.text import passages
from portico.store import Store, open_store
from portico.store.records import Merge, Put, Remove
from portico.telemetry import Recorder, TelemetryEvent, UnexpectedError, discard

Start = Callable[..., Awaitable[MemoryIndex]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path / 'site.db'}", keep_changes=500)
    await opened.collections.declare(Collection("things"))
    yield opened
    await opened.close()


@pytest.fixture
async def elsewhere(store: Store) -> AsyncIterator[Store]:
    """The same store, as another process has it open."""
    opened = await open_store(store.url, keep_changes=500)
    yield opened
    await opened.close()


@pytest.fixture
async def start(store: Store) -> AsyncIterator[Start]:
    started: list[MemoryIndex] = []

    async def one(
        model: ToyModel | None = None,
        *,
        run: bool = False,
        on: Store = store,
        record: Recorder = discard,
        max_vectors: int = 1000,
    ) -> MemoryIndex:
        index = MemoryIndex(on, model, record, max_vectors=max_vectors)
        started.append(index)
        await index.start()
        if run:
            index.run()
        return index

    yield one
    for index in started:
        await index.close()


def found(index: MemoryIndex, text: str, name: str = "things") -> list[str]:
    return index.rank(name, SearchRequest(text), 1000).ids


async def load(store: Store, count: int, text: str = "soup") -> None:
    run = await store.loads.begin("test")
    await store.loads.put(run, "things", [Put(f"i{n:04}", {"name": f"{text} {n}", "n": n}) for n in range(count)])
    await store.loads.finish(run)


async def until(index: MemoryIndex, embedded: int) -> None:
    """Wait for vectors that are made in the background."""
    await so(lambda: index.progress()["things"].embedded >= embedded)


async def so(claim: Callable[[], bool]) -> None:
    """Wait for something that happens in the background."""
    async with asyncio.timeout(60):
        while not claim():
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def without(store: Store, table: str) -> Iterator[None]:
    """The store fails wherever it needs this table."""
    database = apsw.Connection(store.url.removeprefix("sqlite:///"))
    database.set_busy_timeout(10_000)
    database.execute(f"ALTER TABLE {table} RENAME TO away")
    try:
        yield
    finally:
        database.execute(f"ALTER TABLE away RENAME TO {table}")
        database.close()


async def test_what_was_there_before_is_found(store: Store, start: Start) -> None:
    await store.items.write("things", [Put("a", {"name": "soup"}), Put("b", {"name": "cake"})])

    index = await start()

    assert found(index, "soup") == ["a"]
    assert index.progress()["things"].items == 2


async def test_what_is_written_is_found_once_the_index_is_in_step(store: Store, start: Start) -> None:
    index = await start()
    (created,) = await store.items.write("things", [Put("a", {"name": "soup"})])
    await index.sync(created.seq)
    assert found(index, "soup") == ["a"]

    (changed,) = await store.items.write("things", [Put("a", {"name": "cake"})])
    await index.sync(changed.seq)
    assert (found(index, "soup"), found(index, "cake")) == ([], ["a"])

    (gone,) = await store.items.write("things", [Remove("a")])
    await index.sync(gone.seq)
    assert found(index, "cake") == []


async def test_an_index_that_follows_finds_new_things_by_itself(store: Store, start: Start) -> None:
    index = await start(run=True)

    await store.items.write("things", [Put("a", {"name": "soup"})])

    async with asyncio.timeout(60):
        while found(index, "soup") != ["a"]:
            await asyncio.sleep(0.01)


async def test_a_collection_made_later_is_found(store: Store, start: Start) -> None:
    index = await start()
    with pytest.raises(UnknownCollection):
        found(index, "soup", "others")
    await store.collections.declare(Collection("others"))
    (change,) = await store.items.write("others", [Put("x", {"name": "soup"})])

    await index.sync(change.seq)

    assert found(index, "soup", "others") == ["x"]


async def test_a_new_field_can_be_filtered_once_the_index_is_in_step(store: Store, start: Start) -> None:
    await store.items.write("things", [Put("a", {"name": "soup"})])
    index = await start()
    (change,) = await store.items.write("things", [Put("b", {"name": "soup", "fresh": 5})])

    await index.sync(change.seq)

    assert index.rank("things", SearchRequest("soup", where=Condition("fresh", "eq", 5)), 10).ids == ["b"]


async def test_a_restart_from_what_was_saved_catches_up(store: Store, start: Start) -> None:
    await load(store, 2100)
    await start()
    assert await store.blobs.get("index/things")
    await store.items.write(
        "things", [Put("new", {"name": "cake"}), Put("i0001", {"name": "bread", "n": 1}), Remove("i0002")]
    )

    again = await start()

    assert (found(again, "cake"), found(again, "bread")) == (["new"], ["i0001"])
    assert found(again, "2") == []
    assert len(found(again, "soup")) == 1000
    assert again.progress()["things"].items == 2100
    fresh = await _built_anew(store)
    for question in ("soup 77", "bread", "cake soup"):
        assert again.rank("things", SearchRequest(question), 50) == fresh.rank("things", SearchRequest(question), 50)


async def _built_anew(store: Store) -> MemoryIndex:
    await store.blobs.set("index/things", b"\0" * 40)
    index = MemoryIndex(store, None)
    await index.start()
    return index


async def test_a_restart_after_the_feed_expired_reads_everything_anew(store: Store, start: Start) -> None:
    await load(store, 2100)
    await start()
    await load(store, 2100, "bread")
    await store.items.write("things", [Put("new", {"name": "cake"})])

    again = await start()

    assert (found(again, "soup"), found(again, "cake"), len(found(again, "bread"))) == ([], ["new"], 1000)


async def test_a_running_index_that_fell_behind_the_feed_reads_everything_anew(store: Store, start: Start) -> None:
    index = await start()
    await load(store, 2100)
    await store.items.write("things", [Remove("i0007")])

    await index.sync(await store.changes.head())

    assert index.progress()["things"].items == 2099
    assert found(index, "7") == []
    assert found(index, "8") == ["i0008"]


async def test_what_was_saved_for_another_schema_is_not_used(store: Store, start: Start) -> None:
    await load(store, 2100)
    await start()
    await store.items.write("things", [Merge("i0000", {"fresh": True})])

    again = await start()

    assert again.rank("things", SearchRequest("soup", where=Condition("fresh", "eq", True)), 10).ids == ["i0000"]


async def test_vectors_are_made_once_and_a_restart_makes_none(store: Store, start: Start) -> None:
    await store.items.write("things", [Put(f"i{n}", {"name": f"soup {n}"}) for n in range(100)])
    model = ToyModel()
    index = await start(model, run=True)
    await until(index, 100)
    await index.close()

    again = await start(model, run=True)

    assert again.progress()["things"].embedded == 100
    assert await again.embed_batch("things") == 0
    assert sorted(model.texts) == sorted(f"soup {n}" for n in range(100))


async def test_only_what_changed_is_embedded_again(store: Store, start: Start) -> None:
    await store.items.write("things", [Put("a", {"name": "soup"}), Put("b", {"name": "cake"})])
    model = ToyModel()
    index = await start(model)
    await index.embed_batch("things")
    (change,) = await store.items.write("things", [Put("a", {"name": "automobile"})])
    await index.sync(change.seq)

    assert await index.embed_batch("things") == 1

    assert model.texts[2:] == ["automobile"]
    near = index.rank("things", SearchRequest("car", model.embed_query("car")), 10)
    assert near.ids[0] == "a"


async def test_another_model_makes_its_own_vectors(store: Store, start: Start) -> None:
    await store.items.write("things", [Put("a", {"name": "soup"})])
    first = await start(ToyModel("toy-1"))
    await first.embed_batch("things")

    second = await start(ToyModel("toy-2"))

    assert second.progress()["things"].embedded == 0
    assert await second.embed_batch("things") == 1


async def test_a_model_that_failed_once_is_asked_again(store: Store, start: Start) -> None:
    await store.items.write("things", [Put("a", {"name": "soup"})])

    index = await start(ToyModel(failures=1), run=True)

    await until(index, 1)
    await index.close()


async def test_meaning_finds_what_words_do_not(store: Store, start: Start) -> None:
    await store.items.write(
        "things", [Put("a", {"name": "automobile"}), Put("b", {"name": "kitten"}), Put("c", {"name": "bread"})]
    )
    model = ToyModel()
    index = await start(model)
    await index.embed_batch("things")

    assert found(index, "feline") == []
    assert index.rank("things", SearchRequest("feline", model.embed_query("feline")), 1).ids == ["b"]


def numbers(*start: float) -> list[float]:
    return [*start, *[0.0] * (16 - len(start))]


async def test_vectors_in_the_data_are_searched_by_nearness(store: Store, start: Start) -> None:
    index = await start()
    changes = await store.items.write(
        "things", [Put("a", {"v": numbers(1.0, 0.0)}), Put("b", {"v": numbers(0.0, 1.0)}), Put("c", {"n": 1})]
    )
    await index.sync(changes[-1].seq)

    near = index.rank("things", SearchRequest(near=NearVector(tuple(numbers(0.1, 1.0)), "v")), 10)

    assert near.ids == ["b", "a"]
    with pytest.raises(InvalidQuery):
        index.rank("things", SearchRequest(near=NearVector((1.0,), "v")), 10)


async def test_a_vector_taken_out_of_the_data_is_no_longer_found(store: Store, start: Start) -> None:
    index = await start()
    put = await store.items.write("things", [Put("a", {"v": numbers(1.0)}), Put("b", {"v": numbers(0.5, 1.0)})])
    await index.sync(put[-1].seq)
    (change,) = await store.items.write("things", [Put("a", {"other": 1})])
    await index.sync(change.seq)

    near = index.rank("things", SearchRequest(near=NearVector(tuple(numbers(1.0)), "v")), 10)

    assert near.ids == ["b"]


async def test_no_more_than_the_top_are_near_however_many_tie(store: Store, start: Start) -> None:
    await store.items.write("things", [Put(f"i{n}", {"v": numbers(1.0)}) for n in range(8)])
    index = await start()

    near = index.rank("things", SearchRequest(near=NearVector(tuple(numbers(1.0)), "v", top=3)), 10)

    assert (near.ids, near.total) == (["i0", "i1", "i2"], 3)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot_product"])
async def test_index_and_store_give_the_same_neighbours_and_scores(store: Store, start: Start, metric: str) -> None:
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(40, 16))
    await store.items.write("things", [Put(f"i{n:02}", {"v": row.tolist(), "n": n}) for n, row in enumerate(rows)])
    index = await start()
    near = NearVector(tuple(rows[3]), "v", top=12, metric=metric)  # type: ignore[arg-type]
    where = Condition("n", "lt", 30)

    page = await store.items.find(Query("things", near=near, where=where))
    found = await Finder(store, index).find(Query("things", near=near, where=where))

    assert [item.id for item in found.items] == [item.id for item in page.items]
    np.testing.assert_allclose(found.scores, page.scores, atol=1e-4)


async def test_a_cancelled_caller_stops_waiting_and_nothing_else(store: Store, start: Start) -> None:
    index = await start()
    await load(store, 400)
    head = await store.changes.head()
    leaving = asyncio.create_task(index.sync(head))
    staying = asyncio.create_task(index.sync(head))
    await asyncio.sleep(0)

    leaving.cancel()

    await staying
    assert leaving.cancelled()
    assert len(found(index, "soup")) == 400


async def test_a_step_whose_callers_have_all_gone_comes_to_its_end(store: Store, start: Start) -> None:
    index = await start()
    (change,) = await store.items.write("things", [Put("a", {"name": "soup"})])
    leaving = asyncio.create_task(index.sync(change.seq))
    await asyncio.sleep(0)

    leaving.cancel()

    await so(lambda: index.seq == change.seq)
    assert found(index, "soup") == ["a"]


async def test_many_who_come_and_go_leave_the_index_as_the_store_is(store: Store, start: Start) -> None:
    index = await start()

    async def come_and_go(number: int) -> None:
        (change,) = await store.items.write("things", [Put(f"i{number % 20}", {"name": f"soup {number}"})])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if number % 2 else None):
                await index.sync(change.seq)

    await asyncio.gather(*(come_and_go(number) for number in range(120)))

    await index.sync(await store.changes.head())
    fresh = await _built_anew(store)
    for question in ("soup", "soup 7", "110"):
        assert index.rank("things", SearchRequest(question), 50) == fresh.rank("things", SearchRequest(question), 50)


async def test_an_error_of_the_store_reaches_everyone_who_waits_and_does_not_last(store: Store, start: Start) -> None:
    index = await start()
    (change,) = await store.items.write("things", [Put("a", {"name": "soup"})])

    with without(store, "changes"):
        errors = await asyncio.gather(*(index.sync(change.seq) for _ in range(3)), return_exceptions=True)

    assert [isinstance(error, SiteError) for error in errors] == [True] * 3
    await index.sync(change.seq)
    assert found(index, "soup") == ["a"]


async def test_who_asks_an_index_that_cannot_be_read_is_told_why(store: Store) -> None:
    index = MemoryIndex(store, None)

    with without(store, "items_1"), pytest.raises(SiteError, match="not whole"):
        await index.sync(0)

    await index.sync(0)
    assert found(index, "soup") == []
    await index.close()


async def test_a_start_that_failed_half_way_is_repeated(store: Store) -> None:
    await store.collections.declare(Collection("others"))
    await store.items.write("things", [Put("a", {"name": "soup"})])
    await store.items.write("others", [Put("x", {"name": "soup"})])
    index = MemoryIndex(store, None)

    with without(store, "items_2"), pytest.raises(SiteError):
        await index.start()
    assert (index.is_ready, index.seq, index.progress()) == (False, 0, {})

    await index.start()
    assert (index.is_ready, index.seq) == (True, 2)
    assert found(index, "soup") + found(index, "soup", "others") == ["a", "x"]
    await index.close()


async def test_an_index_that_follows_outlives_a_failing_store(store: Store, start: Start) -> None:
    seen: list[TelemetryEvent] = []
    store.health.record_to(seen.append)
    index = await start(ToyModel(), run=True, record=seen.append)
    with without(store, "meta"):
        await so(lambda: any(isinstance(each, UnexpectedError) for each in seen))

    await store.items.write("things", [Put("a", {"name": "soup"})])

    await so(lambda: found(index, "soup") == ["a"])
    await until(index, 1)


async def test_a_closed_index_says_so(store: Store, start: Start) -> None:
    index = await start()
    (change,) = await store.items.write("things", [Put("a", {"name": "soup"})])
    waiting = asyncio.create_task(index.sync(change.seq))
    await asyncio.sleep(0)

    await index.close()

    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await index.sync(change.seq)


async def test_an_index_is_ready_once_it_has_caught_up_and_says_how_far_it_is(store: Store, elsewhere: Store) -> None:
    await load(store, 300)
    index = MemoryIndex(store, None)
    assert (index.is_ready, index.seq) == (False, 0)

    await index.start()
    assert (index.is_ready, index.seq) == (True, 300)

    await elsewhere.items.write("things", [Put("a", {"name": "cake"})])
    assert (index.seq, await store.changes.head()) == (300, 301)
    await index.close()


async def test_what_fell_behind_answers_as_before_until_all_is_read_anew(store: Store, start: Start) -> None:
    await store.items.write("things", [Put("a", {"name": "soup"})])
    index = await start()
    await load(store, 2100, "bread")
    head = await store.changes.head()

    with without(store, "items_1"), pytest.raises(SiteError):
        await index.sync(head)
    assert (index.is_ready, index.seq, found(index, "soup")) == (False, 1, ["a"])

    await index.sync(head)
    await index.start()
    assert (index.is_ready, index.seq, len(found(index, "bread"))) == (True, head, 1000)


async def test_a_collection_and_a_field_of_another_process_are_taken_up(
    store: Store, elsewhere: Store, start: Start
) -> None:
    index = await start()
    await elsewhere.collections.declare(Collection("others"))
    await elsewhere.items.write("others", [Put("x", {"name": "soup"})])
    await elsewhere.items.write("things", [Put("a", {"name": "soup", "fresh": 5, "v": numbers(1.0)})])

    await index.sync(await store.changes.head())

    assert found(index, "soup", "others") == ["x"]
    assert index.rank("things", SearchRequest("soup", where=Condition("fresh", "eq", 5)), 10).ids == ["a"]
    assert index.rank("things", SearchRequest(near=NearVector(tuple(numbers(1.0)), "v")), 10).ids == ["a"]


async def test_vectors_declared_later_are_taken_up(store: Store, elsewhere: Store, start: Start) -> None:
    await store.items.write("things", [Put("a", {"v": [1.0, 0.0]}), Put("b", {"v": [0.0, 1.0]})])
    index = await start(run=True)
    assert not index.has_vectors("things", "v")

    await elsewhere.collections.declare(Collection("things", {"v": Field("v", FieldType.VECTOR, declared=True)}))
    await elsewhere.items.write("things", [Put("c", {"n": 1})])

    await so(lambda: index.has_vectors("things", "v"))
    assert index.rank("things", SearchRequest(near=NearVector((0.1, 1.0), "v")), 10).ids == ["b", "a"]


async def test_of_many_processes_one_makes_the_vectors_and_all_have_them(
    store: Store, elsewhere: Store, start: Start
) -> None:
    await store.items.write("things", [Put(f"i{n}", {"name": f"soup {n}"}) for n in range(200)])
    models = [ToyModel(), ToyModel()]
    here = await start(models[0], run=True)
    there = await start(models[1], run=True, on=elsewhere)

    await until(here, 200)
    await until(there, 200)

    assert sorted([len(model.texts) for model in models]) == [0, 200]
    await elsewhere.items.write("things", [Put("i7", {"name": "automobile"})])
    for index in (here, there):
        await so(lambda index=index: _nearest(index, "car") == "i7")
    assert sorted([len(model.texts) for model in models]) == [0, 201]


def _nearest(index: MemoryIndex, text: str) -> str:
    return index.rank("things", SearchRequest(text, ToyModel().embed_query(text)), 1).ids[0]


async def test_when_the_one_that_makes_vectors_ends_another_goes_on(
    store: Store, elsewhere: Store, start: Start
) -> None:
    await store.items.write("things", [Put("a", {"name": "soup"})])
    here = await start(ToyModel(), run=True)
    await until(here, 1)
    there = await start(ToyModel(), run=True, on=elsewhere)
    await here.close()

    await store.items.write("things", [Put("b", {"name": "cake"})])

    await until(there, 2)


async def test_one_whose_model_fails_leaves_the_vectors_to_another(
    store: Store, elsewhere: Store, start: Start
) -> None:
    here = await start(ToyModel(failures=1000), run=True)
    there = await start(ToyModel(), run=True, on=elsewhere)

    await store.items.write("things", [Put("a", {"name": "soup"})])

    await until(there, 1)
    await until(here, 1)


async def test_of_processes_that_start_together_one_saves(store: Store, elsewhere: Store, start: Start) -> None:
    await load(store, 2100)
    assert await elsewhere.roles.acquire("index/things", "another", 60)

    index = await start()

    assert await store.blobs.get("index/things") is None
    assert len(found(index, "soup")) == 1000


async def test_vectors_of_a_collection_that_grows_too_large_are_left_to_the_store(store: Store, start: Start) -> None:
    model = ToyModel()
    await store.items.write("things", [Put(f"i{n}", {"name": "soup", "v": numbers(1.0, n)}) for n in range(10)])
    index = await start(model, max_vectors=10)
    await index.embed_batch("things")
    assert index.has_vectors("things", "v")
    assert index.has_vectors("things", "")

    (change,) = await store.items.write("things", [Put("a", {"name": "automobile", "v": numbers(2.0)})])
    await index.sync(change.seq)

    assert not index.has_vectors("things", "v")
    assert not index.has_vectors("things", "")
    assert await index.embed_batch("things") == 1
    assert found(index, "automobile") == ["a"]
    again = await start(model, max_vectors=10)
    assert not again.has_vectors("things", "")
    assert again.progress()["things"].embedded == 0


async def test_damaged_vectors_are_left_out_and_the_others_are_found(store: Store, start: Start) -> None:
    await store.items.write("things", [Put(id, {"name": "soup", "place": [1.0, 0.0, 0.0]}) for id in "abc"])
    await store.collections.declare(Collection("things", {"place": Field("place", FieldType.VECTOR, "", True)}))
    database = apsw.Connection(store.url.removeprefix("sqlite:///"))
    database.set_busy_timeout(10_000)
    database.execute("UPDATE vectors SET vector = x'00ff' WHERE id = 'a'")
    database.execute("UPDATE vectors SET vector = 'text' WHERE id = 'c'")
    database.close()

    index = await start()

    assert index.is_ready
    assert index.has_vectors("things", "place")
    assert len(index._follower.parts["things"].vectors["place"]) == 1


async def test_an_item_that_cannot_be_searched_is_recorded_once_and_the_others_are_found(
    store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(item: Item, collection: Collection) -> object:
        if item.id == "bad":
            raise RecursionError("too deep")
        return passages(item, collection)

    monkeypatch.setattr(segment, "passages", read)
    seen: list[TelemetryEvent] = []
    await store.items.write("things", [Put(id, {"name": "soup"}) for id in ("a", "bad", "b")])
    index = await start(run=True, record=seen.append)
    await so(lambda: index.is_ready)
    assert found(index, "soup") == ["a", "b"]

    await store.items.write("things", [Put(id, {"name": "soup stew"}) for id in ("bad", "c")])
    await so(lambda: found(index, "soup") == ["a", "b", "c"])

    assert seen == [UnexpectedError("index of things/bad", "RecursionError('too deep')")]
