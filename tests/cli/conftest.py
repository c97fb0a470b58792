"""The command line as others use it: arguments in, an exit code and two streams out."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "sources"
SCRIPT = Path(sys.executable).parent / "portico"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PORTICO_SITE"},
    "COLUMNS": "200",
}


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Portico = Callable[..., Done]


@pytest.fixture(scope="session")
def warm() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture(scope="session")
def portico_in(warm: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory) -> Portico:
    """Run a command in a folder; each in a process of its own."""
    streams = tmp_path_factory.mktemp("streams")

    def run(folder: Path, *args: str | Path, env: Mapping[str, str] | None = None, may_trace: bool = False) -> Done:
        out, err = streams / "out", streams / "err"
        request = {
            "args": [str(each) for each in args],
            "cwd": str(folder),
            "env": dict(env or {}),
            "out": str(out),
            "err": str(err),
        }
        warm.stdin.write(json.dumps(request) + "\n")
        warm.stdin.flush()
        code = int(warm.stdout.readline())
        done = Done(code, out.read_text(), err.read_text())
        assert may_trace or "Traceback" not in done.err, done.err.splitlines()[-1]
        return done

    return run


@pytest.fixture
def portico(portico_in: Portico, tmp_path: Path) -> Portico:
    """Run a command in an empty folder of this test."""
    return partial(portico_in, tmp_path)


@pytest.fixture
def script(tmp_path: Path) -> Portico:
    """The installed script, in an interpreter of its own."""

    def run(*args: str | Path, env: Mapping[str, str] | None = None) -> Done:
        done = subprocess.run(
            [SCRIPT, *map(str, args)],
            cwd=tmp_path,
            env={**ENVIRONMENT, **(env or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def examples() -> Path:
    return EXAMPLES


@pytest.fixture
def web_folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address on loopback where it is served."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
