"""Runs the documentation. What a page tells a reader to type works, and prints what the page says it prints.

A fence with a file name after its language (```toml portico.toml) is a file to write. A ```console fence is run: lines
after `$ ` are commands, the rest is what they print. In what they print, `…` stands for anything, and how much space
there is does not matter. Other fences, such as ```sh for servers and ```text, are for reading only.

A ```console postgres fence needs a database. In it `postgresql:///shop` stands for one that is empty when the page
begins; without PostgreSQL the page is left out from there. A port that a page names stands for one that is free.

The reader has run the sample site before, so that it has its vectors. README.md is run with the command as it is
installed; other pages with one that need not load Portico first, which is most of what their commands would do.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ask import conftest as asking
from tests.databases import empty_database
from tests.databases import programs as tools
from tests.docs.forking import forking
from tests.ports import free_port

demo_store = asking.demo_store

ROOT = Path(__file__).parents[2]
POSTGRES = "postgresql:///shop"
INSTALLED = Path(sys.executable).parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PORTICO_SITE"} | {"COLUMNS": "120"}
SECONDS = 120  # for all commands of one fence
_PORT = re.compile(r"(?<=port )\d{4,5}\b")
_FENCE = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fence:
    language: str
    title: str
    body: str
    line: int


def fences(page: Path) -> Iterator[Fence]:
    yield from fences_in(page.read_text("utf-8"))


def fences_in(text: str) -> Iterator[Fence]:
    for found in _FENCE.finditer(text):
        yield Fence(found[1], found[2].strip(), found[3], text.count("\n", 0, found.start()) + 1)


def runnable(page: Path) -> bool:
    return any(fence.language == "console" for fence in fences(page))


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if runnable(page)]


@pytest.fixture(scope="session")
def quick() -> Iterator[Path]:
    """A folder with a command that starts at once."""
    with forking(ENVIRONMENT) as folder:
        yield folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_reader_who_follows_the_page_sees_what_it_says(
    page: Path, tmp_path: Path, demo_store: Path, quick: Path, request: pytest.FixtureRequest
) -> None:
    folders = [INSTALLED] if page.name == "README.md" else [quick, INSTALLED]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(demo_store, tmp_path / ".portico", ignore=shutil.ignore_patterns("lock", "made"))
    with ExitStack() as made:
        database = ""
        for fence in fences_in(with_free_ports(page.read_text("utf-8"))):
            if fence.language == "console":
                if fence.title == "postgres" and not database:
                    database = made.enter_context(empty_database(request.getfixturevalue("postgres")))
                check(fence, page.name, tmp_path, database, folders)
            elif fence.title:
                (tmp_path / fence.title).write_text(fence.body, "utf-8")


def test_the_tutorial_and_the_tour_are_run() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "tutorial.md"} <= set(PAGES)


def with_free_ports(text: str) -> str:
    """Pages are run at the same time as others, and beside whatever else runs."""
    for port in {
        port for fence in fences_in(text) if fence.language == "console" for port in _PORT.findall(fence.body)
    }:
        text = re.sub(rf"\b{port}\b", str(free_port()), text)
    return text


def check(fence: Fence, page: str, folder: Path, database: str, programs: Sequence[Path]) -> None:
    commands, shown = split(fence.body)
    said = run(commands.replace(POSTGRES, database or POSTGRES), folder, programs)
    where = f"{page}:{fence.line}"
    at, printed = 0, spaced(said)
    for line in shown:
        found = as_pattern(line).search(printed, at)
        assert found, f"{where} shows {line!r}, but what is printed is:\n{said}"
        at = found.end()


def split(body: str) -> tuple[str, list[str]]:
    """The commands as one script, and the lines they print. `> ` goes on with a command."""
    commands: list[str] = []
    shown: list[str] = []
    for line in body.splitlines():
        if line.startswith(("$ ", "> ")):
            commands.append(line[2:])
        elif line.strip():
            shown.append(line)
    return "\n".join(commands), shown


def run(commands: str, folder: Path, programs: Sequence[Path]) -> str:
    folders = [*programs, ENVIRONMENT["PATH"]]
    if "psql" in commands and not shutil.which("psql"):
        folders.append(tools())
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**ENVIRONMENT, "PATH": os.pathsep.join(map(str, folders))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode} of:\n{commands}\n\n{done.stdout}"
    return done.stdout


def spaced(text: str) -> str:
    return " ".join(text.split())


def as_pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*?".join(re.escape(spaced(part)) for part in line.split("…")))
