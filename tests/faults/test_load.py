"""Loads that are killed, loads that meet, loads that are large."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import StoreUrl
from tests.faults.conftest import ENVIRONMENT, SCRIPT, Start, opened, until_written

MANY = 30_000


def record(number: int) -> dict:
    return {"id": f"item-{number:06}", "name": f"Item {number}", "price": number % 997, "group": f"g{number % 13}"}


def write_items(path: Path, numbers: Iterator[int] | range) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(record(number)) + "\n" for number in numbers)


async def contents(url: str, collection: str = "items") -> dict[str, dict]:
    async with opened(url) as store:
        return {item.id: dict(item.data) async for items in store.items.scan(collection) for item in items}


async def test_a_load_killed_in_the_middle_and_repeated_ends_with_exactly_the_right_items(
    start: Start, run: Callable[..., str], tmp_path: Path, url: str
) -> None:
    write_items(tmp_path / "items.jsonl", range(MANY))
    load = ("load", "items.jsonl", "--store", url, "--json")

    killed = start(*load)
    await until_written(url, 2000)
    killed.kill()
    killed.communicate()
    kept = await contents(url)
    summary = json.loads(run(*load))

    assert 2000 <= len(kept) < MANY
    assert {name: summary[name] for name in ("added", "changed", "unchanged", "removed", "failed")} == {
        "added": MANY - len(kept),
        "changed": 0,
        "unchanged": len(kept),
        "removed": 0,
        "failed": 0,
    }
    assert await contents(url) == {record(n)["id"]: record(n) for n in range(MANY)}


async def test_a_reload_killed_in_the_middle_forgets_nothing_that_is_still_there(
    start: Start, run: Callable[..., str], tmp_path: Path, url: str
) -> None:
    """The second run of a source is killed; the third has a row less."""
    write_items(tmp_path / "items.jsonl", range(6000))
    load = ("load", "items.jsonl", "--store", url, "--json")
    run(*load)
    changed = {n: {**record(n), "name": f"New {n}"} for n in range(6000)}
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(each) + "\n" for each in changed.values()))
    killed = start(*load)
    await until_written(url, 7000)
    killed.kill()
    killed.communicate()
    del changed[5]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(each) + "\n" for each in changed.values()))

    summary = json.loads(run(*load))

    assert (summary["added"], summary["removed"]) == (0, 1)
    assert await contents(url) == {each["id"]: each for each in changed.values()}


async def test_two_loads_of_one_source_at_once_lose_nothing(start: Start, tmp_path: Path, url: str) -> None:
    write_items(tmp_path / "items.jsonl", range(20_000))
    load = ("load", "items.jsonl", "--store", url, "--json")

    both = [start(*load), start(*load)]
    codes = {(process.communicate(timeout=120), process.returncode)[1] for process in both}

    assert codes <= {0, 5}
    assert await contents(url) == {record(n)["id"]: record(n) for n in range(20_000)}


async def test_two_loads_of_different_sources_share_a_store(start: Start, tmp_path: Path, url: str) -> None:
    write_items(tmp_path / "low.jsonl", range(4000))
    write_items(tmp_path / "high.jsonl", range(4000, 8000))

    both = [
        start("load", name, "--collection", "items", "--store", url, "--json") for name in ("low.jsonl", "high.jsonl")
    ]
    summaries = [json.loads(process.communicate(timeout=120)[0]) for process in both]

    assert [(each["added"], each["removed"], each["failed"]) for each in summaries] == [(4000, 0, 0)] * 2
    assert await contents(url) == {record(n)["id"]: record(n) for n in range(8000)}


@pytest.fixture
def peak(tmp_path: Path, kind: str, store_url: StoreUrl) -> Callable[[str], int]:
    """The most memory, in kilobytes, that loading a file takes."""

    def measured(name: str) -> int:
        process = subprocess.Popen(
            [SCRIPT, "load", name, "--store", store_url(kind, name), "--collection", "items", "--json"],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss

    return measured


def test_ten_times_the_items_do_not_take_more_memory(peak: Callable[[str], int], tmp_path: Path) -> None:
    write_items(tmp_path / "few.jsonl", range(6000))
    write_items(tmp_path / "many.jsonl", range(60_000))

    assert peak("many.jsonl") / peak("few.jsonl") < 1.5


def test_one_large_array_is_read_in_constant_memory_too(peak: Callable[[str], int], tmp_path: Path) -> None:
    for name, count in (("few.json", 2000), ("many.json", 20_000)):
        long = [{**record(n), "text": "All work and no play. " * 20} for n in range(count)]
        (tmp_path / name).write_text(json.dumps(long))

    assert peak("many.json") / peak("few.json") < 1.5
