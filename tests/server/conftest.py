"""A server as an operator runs it: a process with ports of its own."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.conftest import StoreUrl
from tests.ports import free_port

SCRIPT = Path(sys.executable).parent / "portico"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PORTICO_SITE"}


@dataclass
class Running:
    """A server that has said where it listens."""

    process: subprocess.Popen[str]
    port: int
    announced: list[str] = field(default_factory=list)

    def get(self, path: str) -> tuple[int, str, dict[str, str]]:
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), dict(error.headers)

    def stop(self, how: signal.Signals) -> tuple[int, str]:
        """The exit code and what was said on the error stream."""
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


Serve = Callable[..., Running]


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, store_url: StoreUrl) -> str:
    return store_url(request.param)


@pytest.fixture
def serve(tmp_path: Path, store_url: StoreUrl) -> Iterator[Serve]:
    """Start a server in this test's folder. What still runs at the end is killed, before its store goes."""
    running: list[subprocess.Popen[str]] = []

    def begin(command: str = "serve", *args: str, port: int | None = None) -> Running:
        port = port or free_port()
        process = subprocess.Popen(
            [SCRIPT, command, "--port", str(port), "--nwp-port", str(free_port()), *args],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        server = Running(process, port)
        for line in iter(process.stdout.readline, ""):
            server.announced.append(line.rstrip())
            if "Stop with" in line:
                break
        return server

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
