"""`portico load --watch`, as a process that is stopped with Ctrl-C."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Portico

SCRIPT = Path(sys.executable).parent / "portico"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PORTICO_SITE"}


class Watching:
    """A command that runs, and its lines as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.rstrip())

    def wait_for(self, text: str) -> str:
        while True:
            line = self.lines.get(timeout=60)
            if text in line:
                return line


Watch = Callable[..., Watching]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    running: list[subprocess.Popen[str]] = []

    def begin(*args: str) -> Watching:
        process = subprocess.Popen(
            [SCRIPT, "load", *args, "--watch", "--store", "sqlite:///s.db"],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return Watching(process)

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_files_and_folders_are_loaded_again_when_they_change(watch: Watch, portico: Portico, tmp_path: Path) -> None:
    posts, notes = tmp_path / "posts.csv", tmp_path / "notes"
    posts.write_text("id,name\n1,One\n")
    notes.mkdir()
    (notes / "a.md").write_text("# A note\n\nSome text.\n")
    watching = watch("posts.csv", "notes")
    watching.wait_for("Watching 2 sources")

    posts.write_text("id,name\n1,One\n2,Two\n")
    assert "posts.csv: 1 added, 0 changed, 1 unchanged, 0 removed, 0 failed" in watching.wait_for("posts.csv:")
    (notes / "b.md").write_text("# Another\n\nMore text.\n")
    assert "1 added" in watching.wait_for("notes:")
    posts.unlink()
    assert "There is no file" in watching.wait_for("posts.csv:")
    posts.write_text("id,name\n2,Two\n")
    assert "1 removed" in watching.wait_for("posts.csv:")

    watching.process.send_signal(signal.SIGINT)
    watching.wait_for("Stopped")
    assert watching.process.wait(30) == 0
    assert portico("query", "posts", "--store", "sqlite:///s.db", "--json").json["items"][0]["id"] == "2"


@pytest.mark.parametrize("source", ["https://example.com/posts.csv", "feed+https://example.com/x", "postgres://db/x"])
def test_what_is_no_file_is_refused(portico: Portico, source: str) -> None:
    refused = portico("load", source, "--watch", "--store", "sqlite:///s.db")

    assert refused.code != 0
    assert "--watch watches files and folders" in refused.err
