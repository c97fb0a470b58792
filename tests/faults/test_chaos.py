"""The fault loop of `make chaos`, in short."""

from pathlib import Path

from tests.faults.chaos import run

KILLS = 15  # on each store
SEED = 20


async def test_whatever_fails_nothing_is_lost_doubled_or_stuck(kind: str, url: str, tmp_path: Path) -> None:
    report = await run(url, tmp_path, KILLS, SEED)

    assert report.problems == [], report
    assert report.kills == KILLS
    assert report.faults["full disk"] > 0
    assert kind == "sqlite" or report.faults["lose the answer"] > 0
