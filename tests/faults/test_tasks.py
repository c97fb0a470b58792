"""Servers that are killed or stopped while they work."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.conftest import Start, opened, wait_until
from tests.ports import free_port

from portico.requests import Task

SITE = """
operations = ["own.py"]
[search]
embedder = "none:"
[server]
port = {port}
nwp_port = 0
[store]
url = "{url}"
"""
OWN = '''
import asyncio
from pathlib import Path
from portico.operations import tasks
from portico.operations import Context, operation

tasks.LEASE_SECONDS, tasks.RENEW_SECONDS = 5.0, 1.0  # what is left behind is taken up sooner

async def count_up(context: Context, steps: int, log: str) -> list[int]:
    """Step by step; half way it waits until it is let go."""
    done = list(context.saved or [])
    for step in range(len(done), steps):
        with Path(log).open("a") as file:
            file.write(f"{step}\\n")
        while step == steps // 2 and not Path(f"{log}.go").exists():
            await asyncio.sleep(0.02)
        done.append(step)
        await context.progress(len(done) / steps, f"Step {step}", save=done)
    return done

@operation(kind="execute", danger="safe", long=True, attempts=3)
async def patient(context: Context, steps: int, log: str) -> list[int]:
    """May be taken up again."""
    return await count_up(context, steps, log)

@operation(kind="execute", danger="safe", long=True)
async def once(context: Context, steps: int, log: str) -> list[int]:
    """May be tried once."""
    return await count_up(context, steps, log)
'''
STEPS = 10


@pytest.fixture
def site(tmp_path: Path, url: str) -> Path:
    (tmp_path / "portico.toml").write_text(SITE.format(port=free_port(), url=url))
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def work(site: Path, run: Callable[..., str]) -> Callable[[str], str]:
    """Leave work for a server; the task's id. Its steps are logged in a file named after it."""

    def leave(operation: str) -> str:
        params = {"steps": STEPS, "log": str(site / operation)}
        return json.loads(run("call", operation, json.dumps(params), "--later"))["id"]

    return leave


def let_go(site: Path, *operations: str) -> None:
    for operation in operations:
        (site / f"{operation}.go").touch()


def steps(site: Path, operation: str) -> list[int]:
    log = site / operation
    return [int(line) for line in log.read_text().split()] if log.exists() else []


async def finished(url: str, id: str, seconds: float = 120.0) -> Task:
    """The task once it has ended."""
    deadline = time.monotonic() + seconds
    async with opened(url) as store:
        while not (now := await store.tasks.get(id)).state.is_final:
            assert time.monotonic() < deadline, now
            await asyncio.sleep(0.05)
        return now


async def test_after_a_kill_work_goes_on_where_it_was_or_fails_honestly(
    start: Start, site: Path, url: str, work: Callable[[str], str]
) -> None:
    patient, once = work("patient"), work("once")
    server = start("serve")
    wait_until(lambda: min(len(steps(site, name)) for name in ("patient", "once")) >= 4, "the first steps")
    server.kill()
    server.communicate()
    before = {name: steps(site, name) for name in ("patient", "once")}
    let_go(site, "patient", "once")
    start("serve")

    resumed, given_up = await finished(url, patient), await finished(url, once)

    assert (resumed.state, resumed.progress, resumed.result) == ("completed", 1.0, list(range(STEPS)))
    after = steps(site, "patient")
    assert after[: len(before["patient"])] == before["patient"]
    assert len(after) - STEPS <= 1  # only the step that was under way is done again
    assert (given_up.state, given_up.result, given_up.error["error"]) == ("failed", None, "Interrupted")
    assert steps(site, "once") == before["once"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_is_told_to_stop_gives_its_work_back(
    start: Start, site: Path, url: str, work: Callable[[str], str], how: signal.Signals
) -> None:
    """Nobody has to wait for a lease to run out."""
    id = work("patient")
    server = start("serve")
    wait_until(lambda: len(steps(site, "patient")) >= 3, "the first steps")
    server.send_signal(how)
    server.communicate(timeout=60)

    async with opened(url) as store:
        assert (await store.tasks.get(id)).state == "pending"


async def test_cancelling_from_another_process_reaches_the_running_work(
    start: Start, site: Path, url: str, work: Callable[[str], str]
) -> None:
    start("serve")
    id = work("patient")
    wait_until(lambda: len(steps(site, "patient")) >= 2, "the first steps")

    async with opened(url) as store:
        await store.tasks.cancel(id)
    ended = await finished(url, id)

    assert ended.state == "cancelled"
    assert len(steps(site, "patient")) < STEPS
