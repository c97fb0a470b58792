"""Source to store, with sources that misbehave at the worst moment."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from portico.errors import SourceError
from portico.sources.ingest import examine, ingest
from portico.sources.registry import BadRecord, Doubt, Entry, Record, Remark
from portico.sources.reports import LoadReport
from portico.store import Store, open_store
from portico.store.records import Put


@dataclass
class Listed:
    """A source that gives what it is told, and may stop on the way until it is let go."""

    entries: list[Entry]
    url: str = "somewhere"
    former_urls: tuple[str, ...] = ()
    pause_after: int | None = None
    paused: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def share(self) -> float | None:
        return None

    def records(self) -> Iterator[Entry]:
        for number, entry in enumerate(self.entries):
            if number == self.pause_after:
                self.paused.set()
                assert self.go_on.wait(20)
            yield entry


def record(id: str | None, collection: str | None = None, **data: object) -> Record:
    return Record(dict(data), f"there:{id}", id, collection)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/s.db")
    yield opened
    await opened.close()


async def contents(store: Store, collection: str = "things") -> dict[str, dict]:
    return {item.id: dict(item.data) async for items in store.items.scan(collection) for item in items}


def counts(report: LoadReport) -> tuple[int, int, int, int, int]:
    return report.added, report.changed, report.unchanged, report.removed, report.failed


async def test_what_is_new_changed_the_same_and_gone_is_counted(store: Store) -> None:
    first = await ingest(store, Listed([record("a", n=1), record("b", n=1), record("c", n=1)]), "things")
    second = await ingest(store, Listed([record("a", n=1), record("b", n=2), record("d", n=1)]), "things")

    assert counts(first) == (3, 0, 0, 0, 0)
    assert counts(second) == (1, 1, 1, 1, 0)
    assert await contents(store) == {"a": {"n": 1}, "b": {"n": 2}, "d": {"n": 1}}


async def test_a_record_without_an_id_is_known_by_its_content(store: Store) -> None:
    await ingest(store, Listed([record(None, n=1), record(None, n=2)]), "things")
    again = await ingest(store, Listed([record(None, n=2), record(None, n=3)]), "things")

    assert counts(again) == (1, 0, 1, 1, 0)
    assert sorted(data["n"] for data in (await contents(store)).values()) == [2, 3]


async def test_two_sources_of_one_collection_forget_only_their_own(store: Store) -> None:
    await ingest(store, Listed([record("a"), record("b")], "one"), "things")
    await ingest(store, Listed([record("c"), record("d")], "two"), "things")

    report = await ingest(store, Listed([record("a")], "one"), "things")

    assert report.removed == 1
    assert sorted(await contents(store)) == ["a", "c", "d"]


async def test_what_people_add_is_not_forgotten_by_a_load(store: Store) -> None:
    await ingest(store, Listed([record("a")]), "things")
    await store.items.write("things", [Put("mine", {"n": 1})])

    report = await ingest(store, Listed([record("a")]), "things")

    assert report.removed == 0
    assert sorted(await contents(store)) == ["a", "mine"]


async def test_bad_records_are_counted_and_the_first_hundred_kept(store: Store) -> None:
    bad = [BadRecord(f"there:{n}", "is bad") for n in range(150)]

    report = await ingest(store, Listed([record("a"), *bad, record("b")]), "things")

    assert counts(report) == (2, 0, 0, 0, 150)
    assert report.failures == tuple(bad[:100])


async def test_doubts_and_remarks_of_a_source_are_in_its_report(store: Store) -> None:
    doubts = [Doubt(f"there:{n}", "may be two dates") for n in range(150)]
    remark = Remark("there", "Read as windows-1252.")

    report = await ingest(store, Listed([remark, record("a"), *doubts]), "things")

    assert (report.doubts, report.doubt_count, report.remarks) == (tuple(doubts[:100]), 150, (remark,))
    assert not report.is_lossless


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (record("x" * 2000), "the id has 2000 characters; 1 to 1024 are allowed"),
        (record("a", text="zero \0 byte"), "it contains a NUL character"),
        (record("a", text="\ud800"), "it contains half a surrogate pair"),
    ],
)
async def test_what_no_store_can_keep_is_reported(store: Store, entry: Record, reason: str) -> None:
    report = await ingest(store, Listed([record("fine"), entry]), "things")

    assert counts(report) == (1, 0, 0, 0, 1)
    assert report.failures[0].where == entry.where
    assert report.failures[0].reason.startswith(reason)


async def test_a_source_that_breaks_off_forgets_nothing(store: Store) -> None:
    class Breaking(Listed):
        def records(self) -> Iterator[Entry]:
            yield record("a", n=2)
            raise SourceError("The line went dead.")

    await ingest(store, Listed([record("a", n=1), record("b", n=1)]), "things")
    with pytest.raises(SourceError):
        await ingest(store, Breaking([]), "things")

    assert sorted(await contents(store)) == ["a", "b"]


async def test_a_run_that_another_overtakes_takes_nothing_away(store: Store) -> None:
    """Two runs of one source: the first is halfway when the second comes and goes."""
    entries: list[Entry] = [record(f"i{n:04}", n=n) for n in range(1500)]
    slow = Listed(entries, pause_after=1000)

    first = asyncio.create_task(ingest(store, slow, "things"))
    assert await asyncio.to_thread(slow.paused.wait, 20)
    await ingest(store, Listed(entries), "things")
    slow.go_on.set()
    await asyncio.wait([first])

    assert sorted(await contents(store)) == [f"i{n:04}" for n in range(1500)]


async def test_a_source_of_several_collections_makes_only_those(store: Store) -> None:
    report = await ingest(store, Listed([record("a", "apples"), record("p", "pears")]), "shop")

    assert counts(report) == (2, 0, 0, 0, 0)
    assert sorted(store.collections.schema) == ["apples", "pears"]


async def test_a_collection_that_vanished_from_its_source_is_emptied(store: Store) -> None:
    await ingest(store, Listed([record("a", "apples"), record("p", "pears")]), "shop")

    report = await ingest(store, Listed([record("a", "apples")]), "shop")

    assert report.removed == 1
    assert await contents(store, "pears") == {}


async def test_progress_is_told_batch_by_batch(store: Store) -> None:
    told: list[int] = []

    await ingest(
        store,
        Listed([record(f"i{n}") for n in range(1200)]),
        "things",
        on_progress=lambda report: told.append(report.read),
    )

    assert told == sorted(told)
    assert told[-1] == 1200
    assert len(told) >= 3


async def test_a_source_can_be_examined_without_a_store() -> None:
    bad = BadRecord("there:2", "is bad")

    report = await examine(Listed([record("a", n=1), bad, record("b", "pears", n=2)]), "things")

    assert counts(report) == (2, 0, 0, 0, 1)
    assert {name: (part.items, list(part.fields)) for name, part in report.collections.items()} == {
        "things": (1, ["n"]),
        "pears": (1, ["n"]),
    }
