"""`portico serve --workers`: several processes that start, answer and stop as one server."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.server.conftest import ENVIRONMENT, SCRIPT, Running, Serve

SITE = """
operations = ["own.py"]
[search]
embedder = "none:"
[[source]]
url = "rooms.jsonl"
"""
OWN = '''
from portico.operations import Context, operation

@operation(kind="read", danger="safe")
async def greet(context: Context) -> str:
    """Say good day."""
    return "Good day"
'''


@pytest.fixture
def inn(tmp_path: Path) -> Path:
    """The folder of a site."""
    (tmp_path / "portico.toml").write_text(SITE)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "rooms.jsonl").write_text('{"id": "attic", "name": "Attic"}\n')
    return tmp_path


@pytest.fixture
def pair(serve: Serve, inn: Path) -> Running:
    """A server with two workers."""
    server = serve("serve", "--workers", "2")
    assert len(workers(server)) == 2
    return server


def wait_until(happened: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} seconds"
        time.sleep(0.02)


def processes() -> list[tuple[int, int, str]]:
    """The id, the parent and the command line of every process that is not a zombie."""
    columns = [part for name in ("pid", "ppid", "stat", "args") for part in ("-o", f"{name}=")]
    listed = subprocess.run(["ps", "-A", "-ww", *columns], capture_output=True, text=True, check=True)
    found = (line.split(None, 3) for line in listed.stdout.splitlines())
    return [(int(row[0]), int(row[1]), row[3]) for row in found if len(row) == 4 and not row[2].startswith("Z")]


def workers(server: Running) -> set[int]:
    return {pid for pid, parent, args in processes() if parent == server.process.pid and "spawn_main" in args}


def are_gone(pids: set[int]) -> bool:
    return pids.isdisjoint(pid for pid, _, _ in processes())


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def answers(server: Running) -> bool:
    return server.get("/healthz")[0] == 200


def test_each_of_the_workers_answers_on_the_one_address_that_is_printed_once(serve: Serve, inn: Path) -> None:
    server = serve("serve", "--workers", "2", "--port", "0")
    server.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/healthz", "\n".join(server.announced))[1])

    assert len(workers(server)) == 2
    assert sum("is running" in line for line in server.announced) == 1
    for idle in workers(server):
        with paused(idle):
            assert answers(server), "the other worker does not answer"

    server.process.terminate()
    rest, _ = server.process.communicate(timeout=60)
    assert rest == "", "something was printed after the announcement"


def test_the_setting_counts_where_the_option_is_not_given(serve: Serve, inn: Path) -> None:
    """One worker is the process itself."""
    (inn / "portico.toml").write_text(f"{SITE}[server]\nworkers = 3\n")

    assert len(workers(serve())) == 3
    alone = serve("serve", "--workers", "1")
    assert answers(alone)
    assert {pid for pid, parent, _ in processes() if parent == alone.process.pid} == set()


def test_sources_are_loaded_once_before_the_workers_start(serve: Serve, inn: Path) -> None:
    server = serve("serve", "--workers", "2", "--load")

    for idle in workers(server):
        with paused(idle):
            wait_until(lambda: server.get("/readyz")[0] == 200, "readiness")
            assert json.loads(server.get("/readyz")[1])["collections"]["rooms"]["items"] == 1
    _, err = server.stop(signal.SIGTERM)
    assert err.count('"event":"Loaded"') == 1


def test_a_killed_worker_is_replaced_while_the_others_answer(pair: Running) -> None:
    before = workers(pair)
    victim = min(before)

    os.kill(victim, signal.SIGKILL)

    wait_until(lambda: answers(pair) and len(workers(pair) - before) == 1, "a new worker")
    survivor = (before - {victim}).pop()
    assert survivor in workers(pair)
    with paused(survivor):
        assert answers(pair), "the new worker does not answer"
    code, err = pair.stop(signal.SIGTERM)
    assert code == 0
    assert [(each["where"], "-9" in each["error"]) for each in broke(err)] == [(f"worker {victim}", True)]


def broke(err: str) -> list[dict[str, str]]:
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "Broke"]


def test_a_replacement_that_cannot_start_is_tried_again_until_it_can(pair: Running, inn: Path) -> None:
    before = workers(pair)
    (inn / "own.py").write_text('from pathlib import Path\nPath("tries").open("a").write("x")\nraise OSError("away")\n')

    os.kill(min(before), signal.SIGKILL)
    tries = inn / "tries"
    wait_until(lambda: tries.exists() and tries.stat().st_size >= 2 and answers(pair), "two tries")
    (inn / "own.py").write_text(f'{OWN}\nfrom pathlib import Path\nPath("mended").touch()\n')

    wait_until((inn / "mended").exists, "a good start")
    assert len(workers(pair)) == 2
    code, err = pair.stop(signal.SIGTERM)
    assert code == 0
    assert len(broke(err)) >= 3, "the kill and the two tries"
    assert "away" in broke(err)[-1]["error"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_all_of_them_end_cleanly(pair: Running, inn: Path, how: signal.Signals) -> None:
    started = workers(pair)

    code, err = pair.stop(how)

    assert code == 0, err
    assert "Traceback" not in err
    assert broke(err) == []
    assert are_gone(started)
    assert not list(inn.glob("*.db-wal")), "the store was not closed"


def test_open_requests_end_first_also_when_a_terminal_interrupts_all_processes(serve: Serve, inn: Path) -> None:
    size = 64_000_000  # more than the buffers of the connection hold
    (inn / "portico.toml").write_text(f'{SITE}[site]\nimages = "images"\n')
    (inn / "images").mkdir()
    (inn / "images" / "large.png").write_bytes(bytes(size))
    server = serve("serve", "--workers", "2")

    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client, client.makefile("rb") as answer:
        client.sendall(b"GET /images/large.png HTTP/1.1\r\nhost: inn\r\n\r\n")
        assert b" 200 " in answer.readline()
        for pid in (server.process.pid, *workers(server)):
            os.kill(pid, signal.SIGINT)
        wait_until(lambda: refuses(server), "the end of listening")
        while answer.readline() != b"\r\n":
            pass
        assert len(answer.read(size)) == size

    _, err = server.process.communicate(timeout=60)
    assert server.process.returncode == 0, err
    assert "Traceback" not in err


def refuses(server: Running) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.port)) != 0


def test_a_second_interrupt_does_not_wait_for_workers(pair: Running) -> None:
    hanging = workers(pair)
    for pid in hanging:
        os.kill(pid, signal.SIGSTOP)

    # Signals that come too close together are one, so it is sent until it has been seen twice.
    wait_until(lambda: pair.process.send_signal(signal.SIGINT) or are_gone(hanging), "the end of the workers")
    pair.process.wait(timeout=60)


def test_a_parent_that_is_killed_leaves_no_worker(pair: Running, inn: Path) -> None:
    started = workers(pair)

    pair.process.kill()
    _, err = pair.process.communicate(timeout=60)

    wait_until(lambda: are_gone(started), "the end of the workers")
    assert "Traceback" not in err
    assert not list(inn.glob("*.db-wal")), "the store was not closed"


def test_a_parent_that_is_told_to_stop_while_workers_start_leaves_none(inn: Path) -> None:
    (inn / "own.py").write_text(f'{OWN}\nimport time\nfrom pathlib import Path\nPath("here").touch()\ntime.sleep(2)\n')
    command = [SCRIPT, "serve", "--port", "0", "--nwp-port", "0", "--workers", "2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=inn, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True) as process:
        wait_until((inn / "here").exists, "the start of a worker")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, ""), err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("setting", "code", "says"),
    [
        ('operations = ["missing.py"]', 2, "There is no Python file missing.py"),
        ('store.url = "sqlite:///rooms.jsonl/site.db"', 6, "cannot be used"),
        ('store.url = "sqlite:///:memory:"', 2, "cannot share a store in memory"),
        ("server.workers = 0", 2, "server.workers"),
    ],
)
def test_a_site_that_cannot_open_ends_with_the_error_of_one_process(
    serve: Serve, inn: Path, setting: str, code: int, says: str
) -> None:
    (inn / "portico.toml").write_text(setting)

    server = serve("serve", *([] if "workers" in setting else ["--workers", "2"]))
    _, err = server.process.communicate(timeout=60)

    assert server.process.returncode == code, err
    assert server.announced == []
    assert err.count("Error:") == 1
    assert says in " ".join(err.split())
    assert "Traceback" not in err


def test_no_worker_at_all_is_wrong_usage(serve: Serve, inn: Path) -> None:
    server = serve("serve", "--workers", "0")
    _, err = server.process.communicate(timeout=60)

    assert server.process.returncode == 2
    assert "--workers" in err
    assert "Traceback" not in err
