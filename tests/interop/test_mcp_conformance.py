"""The MCP conformance suite as a judge: of the sample site's own endpoint, and of the same stack with its fixtures."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml
from tests.conformance.requirements import requirement
from tests.interop.conftest import CLIENTS, HERE, running
from tests.ports import free_port
from tests.server.conftest import Running

ROOT = HERE.parents[1]
SUITE = CLIENTS / "node_modules" / "@modelcontextprotocol" / "conformance"
REVISIONS = ("2026-07-28", "2025-11-25")
BASELINE: dict[str, Any] = tomllib.loads((HERE / "mcp_baseline.toml").read_text("utf-8"))
LISTED = {"endpoint": "needs_fixtures", "fixtures": "exceptions"}
PASSING = {"SUCCESS", "INFO", "SKIPPED"}
SUITE_SECONDS = 120

Verdict = dict[str, dict[str, str]]  # what each scenario finds wrong: a check, and what it says of it


@pytest.fixture(scope="module")
def endpoint(demo: str) -> str:
    return f"{demo}/mcp"


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.interop.mcp_fixtures", str(port)]
    with running(command, port, tmp_path_factory.mktemp("fixtures"), _listens, cwd=ROOT):
        yield f"http://127.0.0.1:{port}/mcp"


def _listens(server: Running) -> bool:
    try:
        return bool(server.get("/mcp")[0])
    except URLError:
        return False


def listed(where: str, revision: str) -> set[str]:
    return set(BASELINE[LISTED[where]][revision])


def judge(node: Path, url: str, revision: str, folder: Path, known: set[str]) -> Verdict:
    """Run everything that belongs to a revision. What would be news is looked at twice.

    Some scenarios give a server half a second to answer, which can be too short on a machine that tests elsewhere.
    """
    verdict = _run(node, url, folder / "all", "--requirements", revision)
    for scenario in [scenario for scenario in verdict if _unlisted(verdict, scenario, known)]:
        verdict |= _run(node, url, folder / scenario, "--spec-version", revision, "--scenario", scenario, "--force")
    return verdict


def _run(node: Path, url: str, folder: Path, *which: str) -> Verdict:
    """The suite ends with an error when something fails; what it found is in its files."""
    folder.mkdir(parents=True)
    command = [node, SUITE / "dist" / "index.js", "server", "--url", url, "--output-dir", folder, *which]
    subprocess.run(command, capture_output=True, timeout=SUITE_SECONDS, check=False)
    return {_scenario(each): _shortcomings(json.loads((each / "checks.json").read_text())) for each in folder.iterdir()}


def _scenario(folder: Path) -> str:
    """Of a folder as `server-caching-2026-11-16T07-05-54-608Z`."""
    return re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder.name.removeprefix("server-"))


def _shortcomings(checks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found = {each["id"]: each.get("errorMessage", "") for each in checks if each["status"] not in PASSING}
    if found or any(each["status"] == "SUCCESS" for each in checks):
        return found
    return {"": "nothing was checked"}


def _unlisted(verdict: Verdict, scenario: str, known: set[str]) -> dict[str, str]:
    if scenario in known:
        return {}
    return {check: said for check, said in verdict[scenario].items() if f"{scenario}:{check}" not in known}


def _outdated(verdict: Verdict, known: set[str]) -> set[str]:
    """What is listed although nothing is wrong with it."""
    checks = {f"{scenario}:{check}" for scenario, found in verdict.items() for check in found}
    return known - checks - {scenario for scenario, found in verdict.items() if found}


def required(revision: str) -> set[str]:
    """Every scenario for servers that belongs to a revision, whether the suite counts it or not."""
    said = yaml.safe_load((SUITE / "requirements" / f"{revision}.yaml").read_text("utf-8"))
    return {*said["server"], *(each["scenario"] for each in said["not_scored"] if each["leg"] == "server")}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("where", LISTED)
@requirement("mcp:transport:stateless", "mcp:transport:headers")
def test_every_scenario_passes_or_is_listed(
    where: str, revision: str, node: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    known = listed(where, revision)

    verdict = judge(node, request.getfixturevalue(where), revision, tmp_path, known)

    assert set(verdict) == required(revision)
    assert {each: found for each in verdict if (found := _unlisted(verdict, each, known))} == {}
    assert _outdated(verdict, known) == set()


def test_the_documentation_says_what_passes_and_what_does_not(node: Path) -> None:
    page = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    section = page.partition("\n## MCP conformance suite\n")[2].partition("\n## ")[0]

    def passing(where: str, revision: str) -> int:
        return len(required(revision) - {name.partition(":")[0] for name in listed(where, revision)})

    counts = [
        f"| {each} | {len(required(each))} | {passing('endpoint', each)} | {passing('fixtures', each)} |"
        for each in REVISIONS
    ]
    exceptions = [
        f"| {revision} | `{name}` | {reason} |"
        for revision in REVISIONS
        for name, reason in BASELINE["exceptions"][revision].items()
    ]
    assert [line for line in section.splitlines() if line.startswith("| 20")] == counts + exceptions
