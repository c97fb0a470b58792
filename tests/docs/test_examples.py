"""Runs the documentation. What a page tells a reader to type works, and prints what the page says it prints.

A fence with a file name after its language (```toml portico.toml) is a file to write. A ```console fence is run: lines
after `$ ` are commands, the rest is what they print. In what they print, `…` stands for anything, and how much space
there is does not matter. Other fences, such as ```sh for servers and ```text, are for reading only.

A ```console postgres fence needs a database. In it `postgresql:///shop` stands for one that is empty when the page
begins; without PostgreSQL the page is left out from there.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.databases import empty_database, programs

ROOT = Path(__file__).parents[2]
POSTGRES = "postgresql:///shop"
SECONDS = 120  # for all commands of one fence
_FENCE = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fence:
    language: str
    title: str
    body: str
    line: int


def fences(page: Path) -> Iterator[Fence]:
    text = page.read_text("utf-8")
    for found in _FENCE.finditer(text):
        yield Fence(found[1], found[2].strip(), found[3], text.count("\n", 0, found.start()) + 1)


def runnable(page: Path) -> bool:
    return any(fence.language == "console" for fence in fences(page))


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if runnable(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_reader_who_follows_the_page_sees_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with ExitStack() as made:
        database = ""
        for fence in fences(page):
            if fence.language == "console":
                if fence.title == "postgres" and not database:
                    database = made.enter_context(empty_database(request.getfixturevalue("postgres")))
                check(fence, page.name, tmp_path, database)
            elif fence.title:
                (tmp_path / fence.title).write_text(fence.body, "utf-8")


def test_the_tutorial_and_the_tour_are_run() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "tutorial.md"} <= set(PAGES)


def check(fence: Fence, page: str, folder: Path, database: str) -> None:
    commands, shown = split(fence.body)
    said = run(commands.replace(POSTGRES, database or POSTGRES), folder)
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


def run(commands: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PORTICO_SITE"}
    folders = [Path(sys.executable).parent, environment["PATH"]]
    if "psql" in commands and not shutil.which("psql"):
        folders.append(programs())
    environment["PATH"] = os.pathsep.join(map(str, folders))
    environment["COLUMNS"] = "120"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
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
