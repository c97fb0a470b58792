"""What MCP-AQL costs a model before and while it works, beside one tool for each operation, in tokens.

    python -m bench.tokens

Counted offline with two tokenizers, for a caller that may do everything. A tool is counted as clients pass it on to a
model: name, description and input schema, as compact JSON; icons, annotations and output schemas are left out.
"discrete" is mcp.operations = "all" without ask and await; "five" and "single" are the tools of aql.mode = "semantic"
and "single". An introspection is its request and its whole answer; "list" is the one that names all operations, and
"ten introspections" are those of ten operations spread over the site. Fails if a share passes its limit.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import mcp_types as types
import msgspec
from mcp import Client

from portico.access.budget import Tokenizer, find_tokenizer
from portico.catalog import Danger, Trust
from portico.cli.sites import demo_config
from portico.config import Config, StoreSettings
from portico.protocols import parse_config
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.mcp.server import make_server
from portico.protocols.mcp.settings import McpSettings
from portico.requests import Caller
from portico.server.assembly import Parts, open_site
from portico.sources.ingest import load_sources
from portico.telemetry import discard

LIMITS = {"five": 0.15, "single": 0.04}  # of what discrete tools cost
INTROSPECTED = 10
EVERYTHING = Caller("key:bench", "bench", frozenset({"ask", "*:*"}), danger=Danger.DANGEROUS, trust=Trust.CERTIFIED)
SEEN = ("name", "description", "inputSchema")
ALONE: dict[str, Any] = {
    "store": {"url": "sqlite:///:memory:"},
    "search": {"embedder": "none:"},
    "limits": {"keys_per_minute": 1_000_000},
}

KINDS = {
    "create": "create",
    "get": "read",
    "list": "read",
    "update": "update",
    "delete": "delete",
    "archive": "execute",
    "approve": "execute",
    "export": "read",
    "send": "execute",
    "assign": "update",
}
THINGS = "invoice shipment customer ticket contract supplier warehouse payment campaign employee".split()
PARAMETERS = {
    "id": ("string", "The id, as create and list give it"),
    "title": ("string", "What it is called, in at most a line"),
    "status": ("string", "One of draft, open, closed or archived"),
    "amount": ("number", "In the currency of the account, with tax"),
    "due_date": ("string", "The day it is due, as in 2026-12-05"),
    "assignee": ("string", "Who takes care of it, by user name"),
    "tags": ("array", "Words to find it by"),
    "notify": ("boolean", "Whether to tell everybody concerned"),
    "limit": ("integer", "How many at most"),
}


# Sites


def generated(pairs: Sequence[tuple[str, str]]) -> Config:
    """A site with these verbs and things as operations, each with two to six parameters."""
    chance = random.Random(7)
    return parse_config({**ALONE, "operation": [_operation(verb, thing, chance) for verb, thing in pairs]})


def _operation(verb: str, thing: str, chance: random.Random) -> dict[str, Any]:
    chosen = sorted(chance.sample(list(PARAMETERS), k=chance.randint(2, 6)))
    told = {name: PARAMETERS[name] for name in chosen}
    return {
        "name": f"{verb}_{thing}",
        "url": f"https://api.example/{thing}/{verb}",
        "kind": KINDS[verb],
        "description": f"{verb.capitalize()} one {thing} of the company, and tell who has done it and when.",
        "params": {
            name: {"type": kind, "description": said, "required": name == "id"} for name, (kind, said) in told.items()
        },
    }


def sites() -> Iterator[tuple[str, Config]]:
    alone = parse_config(ALONE)
    demo = msgspec.structs.replace(
        demo_config(), store=StoreSettings(url="sqlite:///:memory:"), search=alone.search, limits=alone.limits
    )
    every = list(product(KINDS, THINGS))
    yield "the demo site", demo
    yield "50 generated operations: 5 verbs for each of 10 things", generated(every[:50])
    yield "50 generated operations: verbs and things by chance", generated(random.Random(7).sample(every, 50))


# Counting


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@asynccontextmanager
async def connected(parts: Parts, **changed: Any) -> AsyncIterator[Client]:
    """A client of the site with other settings for what is a tool."""
    config = parts.config
    mcp = msgspec.structs.replace(config.section(McpSettings), operations=changed.get("operations", "none"))
    aql = msgspec.structs.replace(config.section(AqlSettings), mode=changed.get("mode", "none"))
    server = make_server(parts.site, msgspec.structs.replace(config, mcp=mcp, aql=aql), parts.record, EVERYTHING)
    async with Client(server, cache=None) as client:
        yield client


async def seen(parts: Parts, **changed: Any) -> list[dict[str, Any]]:
    async with connected(parts, **changed) as client:
        tools = (await client.list_tools()).tools
    told = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]
    return [{name: tool[name] for name in SEEN} for tool in told if tool["name"] not in {"ask", "await"}]


async def introspected(parts: Parts) -> tuple[list[str], str]:
    """Requests and answers of ten introspections, and of the one that lists all operations."""
    async with connected(parts, mode="single") as client:
        listing = await _exchange(client, {"query": "operations"})
        names = [each["name"] for each in json.loads(listing.partition("\n")[2])["data"]["operations"]]
        step = max(1, len(names) // INTROSPECTED)
        chosen = names[::step][:INTROSPECTED]
        return [await _exchange(client, {"query": "operations", "name": name}) for name in chosen], listing


async def _exchange(client: Client, params: Mapping[str, str]) -> str:
    request = {"operation": "introspect", "params": params}
    (content,) = (await client.call_tool("mcp_aql", request)).content
    assert isinstance(content, types.TextContent)
    return f"{compact(request)}\n{content.text}"


async def counted(config: Config, counters: Sequence[Tokenizer]) -> dict[str, tuple[int, list[int]]]:
    """By what is counted, how many tools or calls there are, and what they cost by each tokenizer."""
    async with open_site(config, background=False) as parts:
        await load_sources(config, parts.store, discard)
        surfaces = {
            "discrete": await seen(parts, operations="all"),
            "five": await seen(parts, mode="semantic"),
            "single": await seen(parts, mode="single"),
        }
        ten, listing = await introspected(parts)
    texts = {name: [compact(tool) for tool in tools] for name, tools in surfaces.items()}
    texts |= {"list": [listing], "ten introspections": ten}
    return {name: (len(each), [sum(map(by.count, each)) for by in counters]) for name, each in texts.items()}


def show(title: str, found: Mapping[str, tuple[int, list[int]]], counters: Sequence[Tokenizer]) -> float:
    """Print a table; by how much the worst share passes its limit."""
    print(f"\n{title}\n{'':<34}{'number':>7}" + "".join(f"{by.name:>22}" for by in counters))
    whole = found["discrete"][1]
    together = [
        sum(found[each][1][by] for each in ("single", "list", "ten introspections")) for by in range(len(whole))
    ]
    rows = {**found, "single, list and ten introspections": (0, together)}
    for name, (number, costs) in rows.items():
        told = "".join(f"{cost:>12,} {cost / all_:>8.1%} " for cost, all_ in zip(costs, whole, strict=True))
        print(f"{name:<36}{number or '':>5}{told}")
    shares = [(found[name][1][by] / whole[by]) / most for name, most in LIMITS.items() for by in range(len(whole))]
    return max(shares)


async def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    counters = [each for each in map(find_tokenizer, ("o200k_base", "cl100k_base")) if each is not None]
    worst = [show(title, await counted(config, counters), counters) for title, config in sites()]
    said = ", ".join(f"{name} {most:.0%}" for name, most in LIMITS.items())
    if max(worst) > 1:
        sys.exit(f"\nA share passes its limit ({said} of discrete).")
    print(f"\nAll shares are within their limits ({said} of discrete).")


if __name__ == "__main__":
    asyncio.run(main())
