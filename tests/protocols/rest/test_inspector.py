"""The inspector: a page that is a client like any other, and what it sends is understood by every protocol."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.protocols.conftest import Inn, asking

from portico.web import assets

SCRIPT = """
import { PROTOCOLS, itemsIn } from "./inspect.js";
const [asked, answers] = JSON.parse(process.argv[2]);
const told = PROTOCOLS.map(({ name, request, answer }) => ({
  name, ...request(asked), items: answers[name] ? [...itemsIn(answer(answers[name])).keys()] : [],
}));
console.log(JSON.stringify(told));
"""


PAGE = """const document = { getElementById: () => ({ textContent: '{"chat": "/chat"}' }) };"""


async def test_the_page_may_ask_this_site_alone(client: httpx.AsyncClient) -> None:
    page = await client.get("/inspect")
    named = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text)

    policy = page.headers["content-security-policy"]
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert {(await client.get(each)).status_code for each in named} == {200}
    assert (await client.post("/inspect")).status_code == 405


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node.js, to run what the page runs")
@pytest.mark.parametrize("within", ["", "rooms"])
async def test_what_it_sends_finds_the_same_items_over_every_protocol(inn: Inn, tmp_path: Path, within: str) -> None:
    asked = {"text": "garden", "limit": 2, "within": within}
    async with inn(server={"hosts": ["inn.example"]}) as parts, asking(parts) as client:
        answers = {}
        for each in _run(tmp_path, asked, {}):
            answer = await client.post(each["path"], json=each["body"], headers=each["headers"])
            assert answer.status_code == 200, (each["name"], answer.text)
            answers[each["name"]] = answer.json()

    found = {each["name"]: each["items"][:1] for each in _run(tmp_path, asked, answers)}
    assert found == {name: ["garden"] for name in ("NLWeb", "MCP", "A2A", "NWP", "MCP-AQL", "Chat")}


def _run(folder: Path, asked: dict[str, Any], answers: dict[str, Any]) -> list[dict[str, Any]]:
    """What the page would send, and the items that it would see in these answers."""
    script = assets.assets()["inspect.js"].decode()
    # Node has no page: what draws is left out, and what sends and reads is run as it is.
    sends, _, _ = script.partition("// Showing\n")
    code = re.sub(r"^import .*$", "", sends, flags=re.MULTILINE)
    (folder / "inspect.js").write_text(f"{PAGE}\n{code}\nexport {{ PROTOCOLS }};\n")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "run.js").write_text(SCRIPT)
    done = subprocess.run(
        ["node", "run.js", json.dumps([asked, answers])],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)
