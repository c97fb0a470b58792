"""The example plugin, installed as any package is: its protocol and its source work."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest
from tests.ports import free_port

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
SITE = """
[search]
embedder = "none:"

[hello]
greeting = "Good evening"

[[source]]
url = "hello://Ann,Bob"
collection = "people"
"""


@dataclass
class Hello:
    """A server of a site with the plugin."""

    base: str
    announced: str

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.base + path, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def install(folder: Path) -> None:
    source = folder / "source"
    shutil.copytree(PLUGIN, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation")
    target = str(folder / "installed")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, str(source)], check=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("plugin")
    install(folder)
    inherited = {name: value for name, value in os.environ.items() if name != "PORTICO_SITE"}
    return {**inherited, "PYTHONPATH": str(folder / "installed")}


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Hello]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "portico.toml").write_text(SITE)
    port, native = free_port(), free_port()
    command = [sys.executable, "-m", "portico", "serve", "--load", "--port", str(port), "--nwp-port", str(native)]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        announced = list(takewhile(lambda line: not line.startswith("Stop with"), process.stdout))
        yield Hello(f"http://127.0.0.1:{port}", "".join(announced))
        process.send_signal(signal.SIGTERM)


def test_its_protocol_answers_with_its_setting_and_the_items_of_its_source(hello: Hello) -> None:
    status, answer = hello.get("/hello?q=people")

    assert status == 200
    assert answer.startswith("Good evening! ")
    assert "Ann" in answer
    assert "Bob" in answer


def test_its_errors_are_problem_details(hello: Hello) -> None:
    status, problem = hello.get("/hello")

    assert status == 400
    assert json.loads(problem)["detail"] == "`q` is missing"


def test_it_stands_in_openapi_llms_txt_and_the_banner(hello: Hello) -> None:
    document = json.loads(hello.get("/openapi.json")[1])

    assert "/hello" in document["paths"]
    assert f"[Hello]({hello.base}/hello)" in hello.get("/llms.txt")[1]
    assert f"curl '{hello.base}/hello?q=a+warm+soup'" in hello.announced


def test_its_section_is_refused_where_it_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text(SITE)

    refusal = subprocess.run(
        [sys.executable, "-m", "portico", "load"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert refusal.returncode
    assert "the top level has no setting 'hello'" in refusal.stderr


def test_a_mistake_in_its_section_is_told_with_the_nearest_setting(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "portico.toml").write_text("[hello]\ngreting = 'Hi'\n")

    refusal = subprocess.run(
        [sys.executable, "-m", "portico", "load"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "hello has no setting 'greting'" in refusal.stderr
    assert "Did you mean greeting" in refusal.stderr
