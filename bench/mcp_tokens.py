"""What the tools of the sample site cost a model before it has asked anything, in tokens.

    python bench/mcp_tokens.py

Counted with two tokenizers that need no network. "as sent" is the whole result of tools/list as compact JSON; "as seen"
is what clients pass on to a model: name, description and input schema. Fails if the default tools pass the limit.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec
from mcp import Client
from rs_bpe.bpe import openai

from portico.cli.sites import demo_config
from portico.config import Config, StoreSettings
from portico.protocols.mcp.server import make_server
from portico.protocols.mcp.settings import McpSettings
from portico.server.assembly import open_site
from portico.sources.ingest import load_sources
from portico.telemetry import discard

LIMIT = 2500  # tokens of the default tools, by every tokenizer, as sent
TOKENIZERS = {"o200k": openai.o200k_base(), "cl100k": openai.cl100k_base()}
OFFERED: tuple[Literal["none", "own", "all"], ...] = ("none", "own", "all")
SEEN = ("name", "description", "inputSchema")


def tokens(value: Any) -> dict[str, int]:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {name: len(each.encode(text)) for name, each in TOKENIZERS.items()}


def seen(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: tool[name] for name in SEEN if name in tool}


async def listed(config: Config) -> dict[str, Any]:
    """The result of tools/list for a visitor, as the server sends it."""
    async with open_site(config, background=False) as parts:
        server = make_server(parts.site, config, parts.record, parts.site.access.anonymous_caller())
        async with Client(server, cache=None) as client:
            result = await client.list_tools()
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def show(offered: str, result: dict[str, Any], *, each: bool) -> None:
    tools = result["tools"]
    print(f"\nmcp.operations = {offered}: {len(tools)} tools")
    rows = {"as sent": result, "as seen": [seen(tool) for tool in tools]}
    rows |= {f"  {tool['name']}": seen(tool) for tool in tools} if each else {}
    for name, value in rows.items():
        counts = "   ".join(f"{count:7,} {by}" for by, count in tokens(value).items())
        print(f"  {name:<32}{counts}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brief", action="store_true", help="leave out what each tool costs by itself")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'demo.db')}"
        config = msgspec.structs.replace(demo_config(), store=StoreSettings(url=url))
        async with open_site(config, background=False) as parts:
            await load_sources(config, parts.store, discard)
        results = {
            offered: await listed(
                config.with_section(msgspec.structs.replace(config.section(McpSettings), operations=offered))
            )
            for offered in OFFERED
        }
    for offered, result in results.items():
        show(offered, result, each=not given.brief)
    most = max(tokens(results["none"]).values())
    if most >= LIMIT:
        sys.exit(f"\nThe default tools cost {most:,} tokens; fewer than {LIMIT:,} are allowed.")
    print(f"\nThe default tools cost at most {most:,} tokens; fewer than {LIMIT:,} are allowed.")


if __name__ == "__main__":
    asyncio.run(main())
