"""A server whose store breaks under it: what it says, what it logs, and that it still stops cleanly."""

import json
import resource
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.server.conftest import Running, Serve

SITE = (
    '[search]\nembedder = "none:"\n[anonymous]\nscopes = ["ask", "*:*"]\ndanger = "reversible"\n[collections.things]\n'
)
OWN = '''
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def stumble(context: Context) -> str:
    """Fails."""
    raise ZeroDivisionError("at https://me:hush@host/?token=hush")
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "portico.toml").write_text(f'operations = ["own.py"]\n{SITE}')
    return tmp_path


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)


def post(server: Running, path: str, body: object) -> int:
    url = f"http://127.0.0.1:{server.port}{path}"
    headers = {"content-type": "application/json"}
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def events(err: str, kind: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == kind]


def test_a_database_deleted_under_a_server_is_noticed_and_the_server_stops_cleanly(serve: Serve, site: Path) -> None:
    server = serve()
    wait_until(lambda: server.get("/readyz")[0] == 200, "readiness")
    for file in site.glob("site.db*"):
        file.unlink()

    wait_until(lambda: server.get("/readyz")[0] == 503, "noticing")
    reason = json.loads(server.get("/readyz")[1])["reason"]
    status = post(server, "/operations/create_thing", {"id": "a", "input": {"name": "soup"}})
    code, err = server.stop(signal.SIGTERM)

    assert reason == "The database file was deleted or replaced while it was in use"
    assert status == 503
    assert (code, "Traceback" in err) == (0, False), err
    assert [line["where"] for line in events(err, "Broke")] == ["store"]
    assert not (site / "site.db").exists()


def test_a_broken_row_neither_ends_the_index_nor_keeps_the_server_from_stopping(serve: Serve, site: Path) -> None:
    server = serve()
    wait_until(lambda: server.get("/readyz")[0] == 200, "readiness")
    with closing(apsw.Connection(str(site / "site.db"))) as database:
        database.set_busy_timeout(10_000)
        database.execute(
            "INSERT INTO changes (collection, id, kind, version, data, patch, undo, at)"
            " VALUES (1, 'x', 'create', '', 'no{json', '[]', '[]', 0)"
        )
    status = post(server, "/operations/create_thing", {"id": "a", "input": {"name": "soup"}})
    wait_until(lambda: json.loads(server.get("/readyz")[1])["current"], "catching up")
    code, err = server.stop(signal.SIGTERM)

    assert status == 200
    assert (code, "Traceback" in err) == (0, False), err
    assert [line["where"] for line in events(err, "Broke")] == ["Change 1 (things/x)"]


def test_a_disk_that_takes_no_more_makes_a_server_unready_until_it_does(serve: Serve, site: Path) -> None:
    server = serve()
    wait_until(lambda: server.get("/readyz")[0] == 200, "readiness")
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    refused = [post(server, "/operations/create_thing", {"id": f"t{n}", "input": {"n": n}}) for n in range(5)]
    status, body, _ = server.get("/readyz")
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
    wait_until(lambda: server.get("/readyz")[0] == 200, "recovery")
    taken = post(server, "/operations/create_thing", {"id": "after", "input": {"n": 1}})
    code, err = server.stop(signal.SIGTERM)

    assert (set(refused), status, taken, code) == ({503}, 503, 200, 0), err
    assert "cannot be read or written" in json.loads(body)["reason"]
    assert [line["where"] for line in events(err, "Broke")] == ["store"]
    assert [line["where"] for line in events(err, "Recovered")] == ["store"]


@pytest.mark.parametrize("args", [(), ("--log-level", "debug")])
def test_the_log_has_tracebacks_at_debug_level_alone_and_no_passwords(
    serve: Serve, site: Path, args: tuple[str, ...]
) -> None:
    server = serve("serve", *args)
    assert post(server, "/operations/stumble", {}) == 500
    assert post(server, "/operations/get_thing", {"id": "none"}) == 404
    _, err = server.stop(signal.SIGTERM)

    failures = events(err, "Broke") + events(err, "Called")
    traces = [str(line.get("traceback", "")) for line in failures]
    assert [line["error"] for line in events(err, "Called")] == ["OperationFailed", "UnknownItem"]
    assert [trace.startswith("Traceback") for trace in traces] == [bool(args)] * 3
    assert all("own.py" in trace for trace in traces[:2] if trace)
    assert "hush" not in err


def test_the_setting_asks_for_tracebacks_too(serve: Serve, site: Path) -> None:
    with (site / "portico.toml").open("a") as file:
        file.write('[server]\nlog_level = "debug"\n')
    server = serve()
    assert post(server, "/operations/stumble", {}) == 500
    _, err = server.stop(signal.SIGTERM)

    assert "ZeroDivisionError" in str(events(err, "Broke")[0]["traceback"])


def test_a_level_that_there_is_none_of_is_wrong_usage(serve: Serve, site: Path) -> None:
    process: subprocess.Popen[str] = serve("serve", "--log-level", "loud").process
    process.communicate(timeout=60)

    assert process.returncode == 2
