"""Finding: by word, by meaning, by filter, in pages, and never what is gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.search.index.toy_model import ToyModel

from portico.catalog import Collection, Field, FieldType
from portico.errors import InvalidCursor, UnknownCollection, UnknownField, Unsupported
from portico.query import Aggregate, Aggregation, Condition, NearVector, Order, Page, Query, parse_filter
from portico.requests import Call, Caller, Retrieval, Task, TaskState
from portico.search.finder import Finder, SearchTarget
from portico.search.index.memory import MemoryIndex
from portico.search.pages import MAX_PAGE_BYTES, MAX_PAGE_ITEMS
from portico.store import Store, open_store
from portico.store.records import Merge, Put, Remove, Write

NOW = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass
class Library:
    """A store with its index and a way to search both."""

    store: Store
    index: MemoryIndex
    model: ToyModel
    finder: Finder
    seen: int = 0

    async def write(self, *writes: Write, name: str = "things") -> None:
        changes = await self.store.items.write(name, writes)
        self.seen = changes[-1].seq if changes else self.seen

    async def put(self, name: str = "things", /, **names: Any) -> None:
        await self.write(*(Put(id, d if isinstance(d, dict) else {"name": d}) for id, d in names.items()), name=name)

    async def embed(self, name: str = "things") -> None:
        await self.index.sync(self.seen)
        while await self.index.embed_batch(name):
            pass

    async def find(self, text: str, **more: Any) -> list[str]:
        page = await self.finder.find(Query("things", text=text, **more), self.seen)
        return [item.id for item in page.items]

    async def walk(self, query: Query) -> list[Page]:
        pages = [await self.finder.find(query, self.seen)]
        while pages[-1].cursor:
            assert len(pages) < 500, "the walk does not end"
            pages.append(await self.finder.find(replace(query, cursor=pages[-1].cursor), self.seen))
        return pages


@pytest.fixture
async def library() -> AsyncIterator[Library]:
    async with opened("sqlite:///:memory:") as library:
        yield library


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[tuple[Library, Library]]:
    """Two processes on one store."""
    url = f"sqlite:///{tmp_path / 'site.db'}"
    async with opened(url) as here, opened(url) as there:
        yield here, there


@pytest.fixture
async def crowded() -> AsyncIterator[Library]:
    """One whose collections are soon too large for their vectors to be held."""
    async with opened("sqlite:///:memory:", max_vectors=10) as library:
        yield library


@asynccontextmanager
async def opened(url: str, max_vectors: int = 1000) -> AsyncIterator[Library]:
    store = await open_store(url)
    for name in ("things", "others"):
        await store.collections.declare(Collection(name))
    model = ToyModel()
    index = MemoryIndex(store, model, max_vectors=max_vectors)
    await index.start()
    yield Library(store, index, model, Finder(store, index, model))
    await index.close()
    await store.close()


def ids(pages: list[Page]) -> list[str]:
    return [item.id for page in pages for item in page.items]


async def test_a_query_without_text_is_answered_by_the_store(library: Library) -> None:
    await library.put(a={"n": 2}, b={"n": 1})

    assert await library.find("", order=(Order("n"),)) == ["b", "a"]
    page = await library.finder.find(Query("things", aggregate=Aggregate((Aggregation("count", "n"),))))
    assert page.rows == ({"n": 2},)


async def test_a_query_gives_the_same_page_until_an_item_changes(library: Library) -> None:
    await library.put(a={"n": 1})
    query = Query("things", where=Condition("n", "exists", True))
    page = await library.finder.find(query)
    cached = await library.finder.find(replace(query))
    assert cached == replace(page, is_cached=True)

    await library.store.notes.set("ann", b"a note", NOW)
    await library.store.tasks.add(Task("t", Call("export"), Caller(), TaskState.PENDING, NOW, NOW))
    assert await library.finder.find(query) is cached

    await library.write(Merge("a", {"n": 2}))
    assert [item.data for item in (await library.finder.find(query)).items] == [{"n": 2}]


async def test_one_and_true_are_two_questions(library: Library) -> None:
    await library.put(a={"n": 1}, b={"n": True})

    assert await library.find("", where=Condition("n", "eq", 1)) == ["a"]
    assert await library.find("", where=Condition("n", "eq", True)) == ["b"]


async def test_what_another_process_writes_is_on_the_very_next_page(replicas: tuple[Library, Library]) -> None:
    here, there = replicas
    query = Query("things", fields=("tint",))
    await there.store.collections.declare(Collection("things", {"tint": Field("tint", FieldType.STRING, path="a")}))
    await there.put(x={"a": "red", "b": "blue"})
    assert [item.data for item in (await here.finder.find(query)).items] == [{"tint": "red"}]

    await there.write(Merge("x", {"a": "green"}))
    assert [item.data for item in (await here.finder.find(query)).items] == [{"tint": "green"}]

    await there.store.collections.declare(Collection("things", {"tint": Field("tint", FieldType.STRING, path="b")}))
    assert [item.data for item in (await here.finder.find(query)).items] == [{"tint": "blue"}]


async def test_nobody_is_shown_less_than_was_acknowledged_before_they_asked(replicas: tuple[Library, Library]) -> None:
    acknowledged = 0

    async def write(number: int) -> None:
        nonlocal acknowledged
        await replicas[number % 2].write(Put("a", {"n": number}))
        acknowledged = number

    async def read(library: Library) -> None:
        while acknowledged < 40:
            known = acknowledged
            page = await library.finder.find(Query("things"))
            assert page.items[0].data["n"] >= known
            await asyncio.sleep(0)

    await write(1)
    readers = [asyncio.create_task(read(replicas[number % 2])) for number in range(6)]
    for number in range(2, 41):
        await write(number)
        await replicas[0].store.notes.set("ann", b"a note", NOW)
    await asyncio.gather(*readers)


async def test_pages_are_kept_as_far_as_there_is_room(library: Library) -> None:
    await library.put(small={"text": "x" * (MAX_PAGE_BYTES // 2), "n": 1}, large={"text": "x" * MAX_PAGE_BYTES, "n": 2})
    large = Query("things", where=Condition("n", "eq", 2))
    small = [Query("things", where=Condition("n", "eq", 1), limit=limit) for limit in range(1, 80)]

    assert (await library.finder.find(large)).items is not (await library.finder.find(large)).items
    pages = [await library.finder.find(query) for query in small]
    assert (await library.finder.find(small[-1])).items is pages[-1].items
    assert (await library.finder.find(small[0])).items is not pages[0].items


async def test_long_pages_are_not_kept(library: Library) -> None:
    await library.put(**{f"i{number}": {"n": number} for number in range(MAX_PAGE_ITEMS + 1)})

    async def is_kept(limit: int) -> bool:
        query = Query("things", limit=limit)
        return (await library.finder.find(query)).items is (await library.finder.find(query)).items

    assert (await is_kept(MAX_PAGE_ITEMS), await is_kept(MAX_PAGE_ITEMS + 1)) == (True, False)


async def test_ones_own_writes_are_found_at_once(library: Library) -> None:
    await library.put(a="lentil soup")
    assert await library.find("lentil") == ["a"]

    await library.write(Merge("a", {"name": "cake"}))
    assert (await library.find("lentil"), await library.find("cake")) == ([], ["a"])

    await library.put(b={"name": "soup", "brand": "new field"})
    assert await library.find("soup", where=Condition("brand", "eq", "new field")) == ["b"]


async def test_what_is_deleted_is_never_shown_even_before_the_index_knows(library: Library) -> None:
    await library.put(**{f"i{n:02}": "soup" for n in range(30)})
    await library.find("soup")
    await library.store.items.write("things", [Remove(f"i{n:02}") for n in range(0, 30, 2)])

    page = await library.finder.find(Query("things", text="soup", limit=10))

    assert [item.id for item in page.items] == [f"i{n:02}" for n in range(1, 20, 2)]


async def test_what_no_longer_matches_is_not_shown_even_before_the_index_knows(library: Library) -> None:
    await library.put(a={"name": "soup", "n": 1}, b={"name": "soup", "n": 1})
    await library.find("soup")
    await library.store.items.write("things", [Merge("a", {"n": 2})])

    page = await library.finder.find(Query("things", text="soup", where=Condition("n", "eq", 1)))

    assert [item.id for item in page.items] == ["b"]


@pytest.mark.parametrize("embedded", [False, True])
async def test_a_filter_that_leaves_out_the_best_still_gives_full_pages(library: Library, embedded: bool) -> None:
    await library.put(
        **{f"best{n:03}": {"name": "soup", "kind": "best"} for n in range(300)},
        **{f"rest{n:03}": {"name": f"soup with {n} other words in it", "kind": "rest"} for n in range(30)},
    )
    if embedded:
        await library.embed()
    query = Query("things", text="soup", where=Condition("kind", "eq", "rest"), limit=10, count=True)

    pages = await library.walk(query)

    assert [len(page.items) for page in pages] == [10, 10, 10]
    assert sorted(ids(pages)) == [f"rest{n:03}" for n in range(30)]
    assert pages[0].total == 30


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"long": {"$contains": "needle"}}, ["a"]),
        ({"when": {"$regex": "^2024-01"}}, ["a", "b"]),
        ({"o.a.b.c.d": 1}, ["a"]),
        ({"$not": {"o.a.b.c.d": 1}}, ["b"]),
        ({"id": {"$in": ["b", "z"]}}, ["b"]),
        ({"$or": [{"long": "short"}, {"when": {"$contains": "-01-01"}}]}, ["a", "b"]),
    ],
    ids=str,
)
async def test_conditions_that_only_the_store_can_test_apply_to_a_search(
    library: Library, where: dict[str, Any], found: list[str]
) -> None:
    await library.put(
        a={"name": "soup", "long": "hay " * 100 + "needle", "when": "2024-01-01", "o": {"a": {"b": {"c": {"d": 1}}}}},
        b={"name": "soup", "long": "short", "when": "2024-01-02", "o": {}},
        c={"name": "cake", "long": "needle", "when": "2024-01-01"},
    )

    assert sorted(await library.find("soup", where=parse_filter(where))) == found


async def test_a_walk_over_a_search_by_word_and_meaning_gives_everything_once(library: Library) -> None:
    words = ["soup", "broth", "lentil soup", "warm broth", "soup soup", "cake", "kitten"]
    await library.put(**{f"i{n:03}": f"{words[n % 7]} {'x ' * (n % 5)}" for n in range(260)})
    await library.embed()
    query = Query("things", text="warm soup", limit=9)

    pages = await library.walk(query)

    whole = await library.finder.find(replace(query, limit=1000))
    assert ids(pages) == [item.id for item in whole.items]
    assert len(set(ids(pages))) == len(ids(pages))
    scores = [score for page in pages for score in page.scores]
    assert scores == sorted(scores, reverse=True)


async def test_a_walk_goes_past_many_equal_matches(library: Library) -> None:
    await library.put(
        **{f"a{n:02}": "soup" for n in range(15)},
        **{f"b{n:03}": "soup " + "x " * (n + 1) for n in range(300)},
    )

    pages = await library.walk(Query("things", text="soup", limit=15))

    assert len(ids(pages)) == 315
    assert len(set(ids(pages))) == 315


async def test_a_walk_through_nothing_but_equal_matches_gives_each_once(library: Library) -> None:
    await library.put(**{f"i{n:03}": "soup" for n in range(250)})

    pages = await library.walk(Query("things", text="soup", limit=7))

    assert ids(pages) == [f"i{n:03}" for n in range(250)]


async def test_meaning_brings_in_what_the_words_miss(library: Library) -> None:
    await library.put(car="automobile", cat="kitten", soup="broth")
    await library.embed()

    assert (await library.find("vehicle"))[0] == "car"
    assert (await library.find("feline"))[0] == "cat"


async def test_items_without_a_vector_are_judged_by_their_words(library: Library) -> None:
    await library.put(old="cake and bread")
    await library.embed()
    await library.put(new="soup")

    assert (await library.find("soup"))[0] == "new"


async def test_a_model_that_does_not_answer_leaves_words_and_says_so(library: Library) -> None:
    await library.put(a="soup")
    await library.embed()
    library.model.failures = 1

    page = await library.finder.find(Query("things", text="soup"))

    assert [item.id for item in page.items] == ["a"]
    assert page.notes == ("Searched by words alone: The model does not answer",)


async def test_a_search_may_be_given_in_another_order(library: Library) -> None:
    await library.put(
        a={"name": "soup", "n": 2},
        b={"name": "soup", "n": "x"},
        c={"name": "soup"},
        d={"name": "soup", "n": 1},
        e="cake",
    )

    assert await library.find("soup", order=(Order("n"),)) == ["d", "a", "b", "c"]
    assert await library.find("soup", order=(Order("n", descending=True),)) == ["b", "a", "d", "c"]


async def test_a_walk_in_another_order_gives_everything_once(library: Library) -> None:
    await library.put(**{f"i{n:02}": {"name": "soup", "n": n % 4} for n in range(25)})
    query = Query("things", text="soup", order=(Order("n", descending=True),), limit=4, count=True)

    pages = await library.walk(query)

    assert ids(pages) == sorted((f"i{n:02}" for n in range(25)), key=lambda id: (-(int(id[1:]) % 4), id))
    assert {page.total for page in pages} == {25}


async def test_a_projection_applies_to_what_a_search_finds(library: Library) -> None:
    await library.put(a={"name": "soup", "n": 1, "o": {"x": 1, "y": 2}})

    page = await library.finder.find(Query("things", text="soup", fields=("n", "o.y")), library.seen)

    assert [dict(item.data) for item in page.items] == [{"n": 1, "o": {"y": 2}}]


async def test_a_cursor_of_another_search_is_refused(library: Library) -> None:
    await library.put(**{f"i{n}": "soup cake" for n in range(5)})
    page = await library.finder.find(Query("things", text="soup", limit=2), library.seen)

    for other in (
        Query("things", text="cake", limit=2),
        Query("things", text="soup", order=(Order("name"),), limit=2),
        Query("things", limit=2),
        Query("things", text="soup", where=Condition("name", "exists", True), limit=2),
    ):
        with pytest.raises(InvalidCursor):
            await library.finder.find(replace(other, cursor=page.cursor))


@pytest.mark.parametrize("text", ["?!", '"', "the", "🦊", "\0", "x" * 9000, "AND OR NOT * ( ) : ^"])
async def test_any_text_can_be_searched_for(library: Library, text: str) -> None:
    await library.put(a="soup")
    await library.embed()

    assert isinstance(await library.find(text), list)


async def test_what_cannot_be_searched_is_refused(library: Library) -> None:
    await library.put(a="soup")

    with pytest.raises(UnknownField):
        await library.find("soup", where=Condition("nope", "eq", 1))
    with pytest.raises(UnknownCollection):
        await library.finder.find(Query("nowhere", text="soup"))
    with pytest.raises(Unsupported):
        await Finder(library.store).find(Query("things", text="soup"))


async def test_an_unknown_collection_is_named_even_when_a_filter_is_given(library: Library) -> None:
    with pytest.raises(UnknownCollection):
        await library.finder.find(Query("nowhere", text="soup", where=Condition("n", "eq", 1)))


async def test_neighbours_of_a_vector_come_in_pages(library: Library) -> None:
    await library.put(**{f"i{n:02}": {"v": [1.0, n / 10, *[0.0] * 14]} for n in range(20)})
    query = Query("things", near=NearVector((1.0, *[0.0] * 15), "v", top=12), limit=5)

    pages = await library.walk(query)

    assert ids(pages) == [f"i{n:02}" for n in range(12)]


async def test_a_distance_is_shown_as_a_distance_with_and_without_an_index(library: Library) -> None:
    await library.put(a={"v": [3.0, *[0.0] * 15]})
    query = Query("things", near=NearVector((1.0, *[0.0] * 15), "v", metric="euclidean"))

    searched = await library.finder.find(query, library.seen)
    stored = await library.store.items.find(query)

    assert (searched.scores, stored.scores) == ((2.0,), (2.0,))


async def test_several_collections_are_searched_on_one_scale(library: Library) -> None:
    await library.put(a="lentil soup", b="apple cake")
    await library.put("others", x="lentil soup with bread and butter", y="nothing of the kind")
    await library.embed()
    await library.embed("others")

    found, notes = await library.finder.find_across([SearchTarget("things"), SearchTarget("others")], "lentil soup", 2)

    assert [(hit.item.collection, hit.item.id) for hit in found] == [("things", "a"), ("others", "x")]
    assert all(0 <= hit.score <= 1 for hit in found)
    assert found[0].score > found[1].score
    assert notes == ()


async def test_each_collection_is_searched_by_its_own_wish(library: Library) -> None:
    await library.put(a={"name": "lentil soup", "n": 1}, b={"name": "pea soup", "n": 2})
    await library.put("others", x={"name": "lentil soup"}, y={"name": "pea soup"})
    targets = [SearchTarget("things", Condition("n", "eq", 1)), SearchTarget("others", excluded=("lentil",))]

    found, _ = await library.finder.find_across(targets, "soup", 9, library.seen)

    assert sorted((hit.item.collection, hit.item.id) for hit in found) == [("others", "y"), ("things", "a")]


async def test_without_words_everything_that_filters_let_through_is_found(library: Library) -> None:
    await library.put(**{f"i{n}": {"name": f"thing {n}", "n": n} for n in range(6)})

    found, _ = await library.finder.find_across([SearchTarget("things", Condition("n", "gte", 3))], "", 9, library.seen)

    assert [(hit.item.id, hit.score, hit.term_coverage) for hit in found] == [(f"i{n}", 0.0, 0.0) for n in (3, 4, 5)]


async def test_a_hit_says_why_it_was_found(library: Library) -> None:
    await library.put(a="lentil soup", b="apple cake")
    await library.embed()

    found, _ = await library.finder.find_across([SearchTarget("things")], "lentil soup", 9, library.seen)

    best = found[0]
    assert (best.item.id, best.term_coverage, best.score) == ("a", 1.0, 1.0)
    assert best.text_score > 0
    assert best.vector_score == pytest.approx(1.0, abs=1e-3)


async def test_what_is_meant_may_be_said_otherwise_than_what_is_looked_for(library: Library) -> None:
    await library.put(a="cat", b="soup")
    await library.embed()

    found, _ = await library.finder.find_across([SearchTarget("things")], "", 9, library.seen, semantic_text="feline")

    assert found[0].item.id == "a"


async def test_what_has_no_vector_yet_is_judged_by_its_words(library: Library) -> None:
    await library.put(a="lentil soup")
    await library.embed()
    await library.put("others", x="lentil soup")

    found, _ = await library.finder.find_across(
        [SearchTarget("things"), SearchTarget("others")], "lentil soup", 9, library.seen
    )

    assert {hit.item.id: hit.vector_score > -1 for hit in found} == {"a": True, "x": False}
    assert all(hit.score > 0.4 for hit in found)


async def test_a_wish_for_a_collection_that_is_not_there_is_an_error(library: Library) -> None:
    with pytest.raises(UnknownCollection):
        await library.finder.find_across([SearchTarget("things"), SearchTarget("nowhere")], "soup", 9)


async def test_without_wishes_nothing_is_found(library: Library) -> None:
    assert await library.finder.find_across([], "soup", 9) == ([], ())


async def test_a_process_without_an_index_cannot_look_across(library: Library) -> None:
    with pytest.raises(Unsupported):
        await Finder(library.store).find_across([SearchTarget("things")], "soup", 9)


async def test_a_search_across_collections_shows_nothing_deleted(library: Library) -> None:
    await library.put(a="soup", b="soup")
    await library.put("others", x="soup")
    await library.find("soup")
    await library.store.items.write("things", [Remove("a")])

    found, _ = await library.finder.find_across([SearchTarget("things"), SearchTarget("others")], "soup", 5)

    assert sorted(hit.item.id for hit in found) == ["b", "x"]


@pytest.mark.parametrize("background", [False, True])
async def test_many_readers_and_a_writer_never_see_what_is_not_so(library: Library, background: bool) -> None:
    """Acknowledged deletions stay gone, acknowledged writes are there, and nothing comes twice."""
    await library.put(first={"name": "bread"})
    if background:
        library.index.run()
    alive: dict[str, int] = {}  # id -> the change that was acknowledged last
    leaving: set[str] = set()  # deleted, acknowledged or not
    gone: set[str] = set()
    done = asyncio.Event()

    async def acknowledged(*writes: Write) -> None:
        leaving.update(write.id for write in writes if isinstance(write, Remove))
        changes = await library.store.items.write("things", writes)
        for change in changes:
            if change.kind == "delete":
                alive.pop(change.item.id, None)
                gone.add(change.item.id)
            else:
                alive[change.item.id] = change.seq

    async def write() -> None:
        for n in range(120):
            await acknowledged(Put(f"i{n:03}", {"name": f"soup {n}", "n": n, f"f{n % 10}": n}))
            if n % 3 == 0 and n:
                await acknowledged(Merge(f"i{n - 1:03}", {"name": f"soup again {n}"}))
            if n % 4 == 0 and n >= 8:
                await acknowledged(Remove(f"i{n - 8:03}"))
        done.set()

    async def read(query: Query) -> int:
        rounds = 0
        while not done.is_set():
            certain, lost = dict(alive), set(gone)
            page = await library.finder.find(query, max(certain.values(), default=0))
            found = [item.id for item in page.items]
            assert len(found) == len(set(found))
            assert not lost & set(found)
            assert certain.keys() - leaving <= set(found)
            rounds += 1
            await asyncio.sleep(0)
        return rounds

    everything = Query("things", where=Condition("id", "ne", "first"), limit=1000)
    *_, first, second, third, fourth = await asyncio.gather(
        write(),
        read(replace(everything, text="soup")),
        read(replace(everything, text="soup", where=Condition("name", "contains", "soup"))),
        read(everything),
        read(replace(everything, order=(Order("name"),))),
    )

    assert min(first, second, third, fourth) > 0
    final = await library.finder.find(replace(everything, text="soup"), await library.store.changes.head())
    assert {item.id for item in final.items} == set(alive)


async def test_what_another_process_acknowledged_is_found_here(replicas: tuple[Library, Library]) -> None:
    here, there = replicas
    await there.put(a="lentil soup", b="bean soup")
    assert await here.find("soup lentil") == ["a", "b"]

    await there.write(Merge("a", {"name": "cake"}), Remove("b"))
    assert (await here.find("soup"), await here.find("cake")) == ([], ["a"])

    await there.put("others", x="cake")
    found, _ = await here.finder.find_across([SearchTarget("things"), SearchTarget("others")], "cake", 5)
    assert sorted(hit.item.id for hit in found) == ["a", "x"]


async def test_a_collection_or_a_field_that_another_process_made_can_be_searched(
    replicas: tuple[Library, Library],
) -> None:
    here, there = replicas
    await there.put(a={"name": "soup", "brand": "new", "v": [1.0, *[0.0] * 15]})
    assert await here.find("soup", where=Condition("brand", "eq", "new")) == ["a"]
    assert await here.find("", near=NearVector((1.0, *[0.0] * 15), "v")) == ["a"]

    await there.store.collections.declare(Collection("fresh"))
    await there.put("fresh", x={"name": "soup", "n": 1})
    page = await here.finder.find(Query("fresh", text="soup", where=Condition("n", "eq", 1)))
    assert [item.id for item in page.items] == ["x"]
    found, _ = await here.finder.find_across([SearchTarget("fresh")], "soup", 5)
    assert [hit.item.id for hit in found] == ["x"]


async def test_a_search_does_not_queue_behind_what_others_write_but_waits_for_its_own(
    replicas: tuple[Library, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = replicas
    monkeypatch.setattr("portico.search.finder.FRESH_SECONDS", 0)
    await there.put(**{f"i{n:04}": "soup" for n in range(1500)})
    query = Query("things", text="soup", limit=1, count=True)

    await here.finder.find(query)
    assert here.index.seq < there.seen

    await here.put(ours="soup")
    assert (await here.finder.find(query, here.seen)).total == 1501


async def test_a_search_that_is_broken_off_leaves_others_whole(library: Library) -> None:
    await library.put(**{f"i{n:03}": "soup" for n in range(200)})
    query = Query("things", text="soup", limit=1000)
    searches = [asyncio.create_task(library.finder.find(query, library.seen)) for _ in range(10)]
    await asyncio.sleep(0)

    for search in searches[::2]:
        search.cancel()

    for search in searches[1::2]:
        assert len((await search).items) == 200
    assert all(search.cancelled() for search in searches[::2])


def circle(count: int) -> dict[str, Any]:
    """Items whose vectors lie ever farther from the first."""
    return {f"i{n:02}": {"v": [10.0, n, *[0.0] * 14], "n": n, "parity": n % 2} for n in range(count)}


NEAR = NearVector((10.0, *[0.0] * 15), "v", top=14)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot_product"])
async def test_vectors_that_are_not_held_are_searched_in_the_store(
    crowded: Library, library: Library, metric: Any
) -> None:
    query = Query("things", near=replace(NEAR, metric=metric), where=Condition("n", "gt", 2), limit=4, count=True)
    for each in (crowded, library):
        await each.put(**circle(30))

    pages, held = await crowded.walk(query), await library.walk(query)

    assert not crowded.index.has_vectors("things", "v")
    assert library.index.has_vectors("things", "v")
    assert [len(page.items) for page in pages] == [4, 4, 4, 2]
    assert ids(pages) == ids(held)
    assert [page.total for page in pages] == [page.total for page in held]
    scores, expected = ([score for page in each for score in page.scores] for each in (pages, held))
    assert scores == pytest.approx(expected, abs=1e-4)


async def test_neighbours_in_the_store_may_be_given_in_another_order(crowded: Library, library: Library) -> None:
    query = Query("things", near=NEAR, order=(Order("parity"), Order("n", descending=True)), limit=5, fields=("n",))
    for each in (crowded, library):
        await each.put(**circle(30))

    assert ids(await crowded.walk(query)) == ids(await library.walk(query))


async def test_a_walk_goes_on_when_vectors_are_no_longer_held(crowded: Library) -> None:
    await crowded.put(**circle(9))
    query = Query("things", near=NEAR, limit=4)
    first = await crowded.finder.find(query, crowded.seen)
    assert crowded.index.has_vectors("things", "v")
    await crowded.put(**{f"far{n}": {"v": [-1.0, *[0.0] * 15]} for n in range(5)})

    rest = await crowded.walk(replace(query, cursor=first.cursor))

    assert not crowded.index.has_vectors("things", "v")
    assert ids([first, *rest])[:9] == [f"i{n:02}" for n in range(9)]
    assert len(set(ids([first, *rest]))) == 14


async def test_without_an_index_neighbours_come_from_the_store(library: Library) -> None:
    await library.put(**circle(20))

    page = await Finder(library.store).find(Query("things", near=NEAR, limit=3))

    assert [item.id for item in page.items] == ["i00", "i01", "i02"]
    assert page.items[1].data["n"] == 1


async def test_where_vectors_are_not_held_the_store_says_what_is_near_in_meaning(
    crowded: Library, library: Library
) -> None:
    words = ["soup", "broth", "lentil soup", "warm broth", "cake", "kitten", "automobile"]
    for each in (crowded, library):
        await each.put(**{f"i{n:03}": f"{words[n % 7]} {'x ' * (n % 5)}" for n in range(300)})
        await each.embed()

    for text in ("warm soup", "vehicle", "feline"):
        pages, held = [await each.walk(Query("things", text=text, limit=50)) for each in (crowded, library)]
        assert ids(pages)[:30] == ids(held)[:30]
        assert len(set(ids(pages))) == len(ids(pages)) >= 200
    (across, notes), (expected, _) = [
        await each.finder.find_across([SearchTarget("things")], "feline", 9) for each in (crowded, library)
    ]
    assert [hit.item.id for hit in across] == [hit.item.id for hit in expected]
    assert notes == ()


async def test_across_collections_words_alone_or_meaning_alone_can_decide(library: Library) -> None:
    await library.put(a="a cat", b="a kitten", c="a car")
    await library.embed()

    async def found(by: Retrieval) -> list[tuple[str, bool]]:
        hits, _ = await library.finder.find_across([SearchTarget("things")], "kitten", 2, library.seen, retrieval=by)
        return [(hit.item.id, hit.text_score > 0) for hit in hits if hit.text_score > 0 or hit.vector_score > 0.5]

    assert await found("text") == [("b", True)]
    assert sorted(await found("vectors")) == [("a", False), ("b", False)]
    assert sorted(await found("hybrid")) == [("a", False), ("b", True)]
