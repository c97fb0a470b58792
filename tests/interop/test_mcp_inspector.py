"""The MCP inspector's command line against the sample site, in both eras of the protocol."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.interop.conftest import CLIENTS

INSPECTOR = CLIENTS / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
INSPECTOR_SECONDS = 60
SOUP = {"text": "a warm soup"}

Inspect = Callable[..., dict[str, Any]]


@pytest.fixture(params=["legacy", "modern"])
def inspect(node: Path, demo: str, tmp_path: Path, request: pytest.FixtureRequest) -> Inspect:
    """Runs one method, and gives its result."""

    def run(method: str, *options: str) -> dict[str, Any]:
        done = subprocess.run(
            [
                *(node, INSPECTOR / "index.js", "--cli", f"{demo}/mcp", "--transport", "http", "--format", "json"),
                *("--quiet", "--protocol-era", request.param, "--method", method, *options),
            ],
            env={**os.environ, "HOME": str(tmp_path)},  # where it would keep what it learns
            capture_output=True,
            text=True,
            timeout=INSPECTOR_SECONDS,
            check=False,
        )
        # It warns of schemas that some models cannot fill in; of what they only read it may say what it likes.
        assert (done.returncode, "inputSchema" in done.stderr) == (0, False), done.stderr
        return json.loads(done.stdout)["result"]

    return run


def test_the_inspector_finds_no_fault_with_the_tools(inspect: Inspect) -> None:
    listed = inspect("tools/list", "--strict")  # which says what of a schema some clients cannot use

    assert [each["name"] for each in listed["tools"]][:2] == ["ask", "await"]


def test_the_inspector_asks(inspect: Inspect, demo: str) -> None:
    result = inspect("tools/call", "--tool-name", "ask", "--tool-arg", f"query={json.dumps(SOUP)}")

    asked = httpx.post(f"{demo}/ask", json={"query": SOUP, "prefer": {"portico_actions": "MCP"}}).json()
    assert result["structuredContent"]["results"] == asked["results"]


def test_the_inspector_lists_resources_and_prompts(inspect: Inspect) -> None:
    resources, prompts = inspect("resources/list")["resources"], inspect("prompts/list")["prompts"]

    assert [each["uri"] for each in resources][:2] == ["portico://catalog", "portico://collections/articles"]
    assert [each["name"] for each in prompts] == ["find", "compare", "recommend", "arrange"]
