"""Compares how long one question takes over each protocol, as ratios to plain HTTP.

    python bench/protocols.py

The sample site is served without vectors, so that protocols are compared and not the model. Each round asks
over every protocol in turn, one request at a time, and the median of the rounds counts.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, create_server
from typing import Any

import httpx
import msgspec

from portico.cli.sites import demo_config
from portico.config import Search, StoreSettings
from portico.protocols import parse_config
from portico.server.assembly import open_site
from portico.server.http import Serving, application, server_settings
from portico.sources.ingest import load_sources
from portico.telemetry import discard

QUESTION = {"query": {"text": "a warm soup"}}
VERSION = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
TOOL = {"name": "ask", "arguments": QUESTION}
SESSION_HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
SINGLE_HEADERS = {**SESSION_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "ask"}
MESSAGE = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": QUESTION}]}}

Ask = Callable[[], Awaitable[httpx.Response]]


@asynccontextmanager
async def serve_sample(folder: Path) -> AsyncIterator[str]:
    config = msgspec.structs.replace(
        demo_config(),
        store=StoreSettings(url=f"sqlite:///{folder / 'demo.db'}"),
        search=Search(embedder="none:"),
        limits=parse_config({"limits": {"anonymous_per_minute": 1_000_000}}).limits,
    )
    async with open_site(config) as parts:
        await load_sources(config, parts.store, discard)
        await parts.index.sync(await parts.store.changes.head())
        app = application(parts)
        server, listener = Serving(server_settings(parts, app), app), create_server(("127.0.0.1", 0))
        listener.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serving


async def askers(client: httpx.AsyncClient) -> dict[str, Ask]:
    """Return a function for each protocol that asks over it."""
    handshake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": handshake}
    response = await client.post("/mcp", json=opening, headers={"accept": SESSION_HEADERS["accept"]})
    session = {**SESSION_HEADERS, "mcp-session-id": response.headers["mcp-session-id"]}

    def post(path: str, body: dict[str, Any], **headers: str) -> Ask:
        return lambda: client.post(path, json=body, headers=headers)

    return {
        "POST /ask": post("/ask", QUESTION),
        "/mcp, 2026-07-28": post("/mcp", {**CALL, "params": {**TOOL, "_meta": META}}, **SINGLE_HEADERS),
        "/mcp, 2025-11-25 in a session": post("/mcp", {**CALL, "params": TOOL}, **session),
        "/mcp, plain JSON": post("/mcp", {**CALL, "params": TOOL}),
        "/a2a, 1.0": post(
            "/a2a", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": MESSAGE}, **{"a2a-version": "1.0"}
        ),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with serve_sample(Path(folder)) as base, httpx.AsyncClient(base_url=base, timeout=60) as client:
            askers_by_name = await askers(client)
            seconds: dict[str, list[float]] = {name: [] for name in askers_by_name}
            for _ in range(options.rounds):
                for name, ask in askers_by_name.items():
                    started = time.perf_counter()
                    response = await ask()
                    seconds[name].append(time.perf_counter() - started)
                    if response.status_code != 200 or "Peanut and Sweet Potato Soup" not in response.text:
                        raise SystemExit(f"{name}: {response.status_code} {response.text[:200]}")
    first = statistics.median(seconds["POST /ask"])
    for name, times in seconds.items():
        print(f"{name:<32} {statistics.median(times) * 1000:7.2f} ms   {statistics.median(times) / first:5.2f}")


if __name__ == "__main__":
    asyncio.run(main())
