"""What NLWeb wants an agent to document stands in the documentation, and is so."""

import re
from pathlib import Path

import httpx
import pytest
from tests.conformance.requirements import requirement

from portico.access.identity import make_key
from portico.catalog import Danger
from portico.protocols import settings
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCS = Path(__file__).parents[2] / "docs"
NLWEB = (DOCS / "reference" / "nlweb.md").read_text("utf-8")
_HEADER = re.compile(r"`(Authorization|X-Api-Key): (Bearer )?…`")


@requirement("nlweb:auth:documented")
async def test_the_documented_headers_say_who_asks(client: httpx.AsyncClient, town: Parts) -> None:
    token, record = make_key("ann", ["ask", "read:*"], Danger.SAFE, 1)
    await town.store.keys.add(record)
    documented = dict(_HEADER.findall(NLWEB))
    assert set(documented) == {"Authorization", "X-Api-Key"}

    for name, scheme in documented.items():
        right = await client.post("/operations/list_memories", json={}, headers={name: f"{scheme}{token}"})
        wrong = await client.post("/ask", json={"query": {"text": "soup"}}, headers={name: f"{scheme}pk_wrong"})
        assert (right.status_code, right.json()["result"]) == (200, [])
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert "| `UNAUTHENTICATED` | 401 |" in NLWEB


@requirement("nlweb:rate:documented")
async def test_rates_and_what_happens_beyond_them_are_documented() -> None:
    rates = {"limits.anonymous_per_minute", "limits.keys_per_minute"}
    row = next(line for line in NLWEB.splitlines() if line.startswith("| requests in a minute"))
    refusal = next(line for line in NLWEB.splitlines() if line.startswith("| `RATE_LIMITED`"))
    page = (DOCS / "how-to" / "keys-and-scopes.md").read_text("utf-8")

    assert rates <= settings().keys()
    assert rates == set(re.findall(r"`([^`]+)`", row))
    assert "| 429 |" in refusal
    assert "Retry-After" in refusal
    assert all(f"`{name}`" in page for name in rates)
