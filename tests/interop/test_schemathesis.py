"""Schemathesis, somebody else's reader of OpenAPI documents, asks the sample site whatever its document allows."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from tests.protocols.conftest import listening

from portico.access.identity import make_key
from portico.catalog import Danger
from portico.cli.sites import demo_config
from portico.config import Search, StoreSettings
from portico.protocols.a2a.settings import A2aSettings
from portico.server.assembly import Parts, open_site
from portico.sources.ingest import load_sources
from portico.telemetry import discard

EXAMPLES = 4  # of each method of each path
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
# The operations of the other collections have the same types, the messages of an MCP server never end, and nodes, which
# answer 501 and 504 by their protocol, have a fuzzer of their own in tests/protocols/nwp.
LEFT_OUT = (
    "--exclude-path-regex",
    "^/nwp/|_(article|book|event|faq|place|product|restaurant)s?$",
    "--exclude-operation-id",
    "get_mcp",
)
SECONDS = 200  # until it is taken to hang


@asynccontextmanager
async def opened_town() -> AsyncIterator[Parts]:
    """The sample site, in memory, for callers in a hurry. It tells nobody of its tasks: the addresses are made up."""
    plain = demo_config()
    rates = {name: 1_000_000 for name in plain.limits.__struct_fields__ if name.endswith("_per_minute")}
    config = msgspec.structs.replace(
        plain,
        store=StoreSettings(url="sqlite:///:memory:"),
        search=Search(embedder="none:"),
        limits=msgspec.structs.replace(plain.limits, **rates),
    ).with_section(A2aSettings(push=False))
    async with open_site(config) as parts:
        await load_sources(config, parts.store, discard)
        await parts.index.sync(await parts.store.changes.head())
        yield parts


async def test_nothing_breaks_and_every_answer_is_documented(tmp_path: Path) -> None:
    async with opened_town() as parts, listening(parts) as port:
        token, key = make_key("somebody", ("ask", "*:*"), Danger.DANGEROUS, 1)
        await parts.store.keys.add(key)
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{port}/openapi.json"),
            *("--header", f"x-api-key: {token}", "--checks", ",".join(CHECKS), "--seed", "1", "--no-color"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES), "--request-timeout", "20"),
            *("--warnings", "off", *LEFT_OUT),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(SECONDS):
                said, _ = await asking.communicate()
        finally:
            if asking.returncode is None:
                asking.kill()

    report = said.decode()
    counted = re.search(r"Selected: (\d+)/\d+\s+Tested: (\d+)", report)
    assert asking.returncode == 0, report
    assert counted is not None, report
    assert counted[1] == counted[2] != "0"
